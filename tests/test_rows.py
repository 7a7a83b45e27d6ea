"""Kernels over rows and columns: the CPU engine's bits, on the host; resources by the compiler."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support import host_cpp, nvrtc
from support.generated import HostEngine, plan_for, unit

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.lower import lower_tile
from itfuse.lower.kept import keep
from itfuse.ops import OPS
from itfuse.plan.stages import Stage
from itfuse.rows.op import REDUCTION
from itfuse.testing import assert_same, edge_values

host = pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
Case = tuple[str, tuple[itf.Array, ...], float]

# One of each class, its ends, and lengths that no vector fits.
LENGTHS = (1, 3, 4, 8, 10, 20, 37, 67, 100, 128, 129, 257, 320, 321, 512, 1000, 1024, 1025, 5000,
           8192)  # fmt: skip
OTHER_DTYPES = ("float16", "bfloat16", "complex64", "complex128")
LONGER = (8193, 20_001, 32_768, 33_001, 81_920, 131_073)


def check(cases: list[Case], arch: str = "sm_90") -> None:
    plans = [plan_for("tile", *lazies) for _, lazies, _ in cases]
    engine = HostEngine(plans, arch)
    for (what, lazies, ulp), plan in zip(cases, plans, strict=True):
        wants = itf.compute(*lazies) if len(lazies) > 1 else (lazies[0].compute(),)
        for got, want in zip(engine.run(plan, *lazies), wants, strict=True):
            assert_same(got, want, ulp, what)


def random(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    if dtype not in ("float16", "float32", "float64"):
        return edge_values(dtype, int(np.prod(shape)), seed).reshape(shape)
    return (np.random.default_rng(seed).normal(size=shape) * 3 + 1).astype(dtype)


def several(x: itf.Array, axis: int) -> tuple[itf.Array, ...]:
    return (x.sum(axis), x.max(axis, keepdims=True), x.argmin(axis), x.var(axis) * 2 + 1)


@host
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "int8", "int64", "bool", "bfloat16", "complex64"]
)
def test_row_and_column_reductions_are_the_cpu_engines_bits(dtype: str) -> None:
    cases: list[Case] = []
    for length in LENGTHS if dtype not in OTHER_DTYPES else (3, 37, 129, 1025):
        for rows in (3, 40):
            x = random((rows, length), dtype, length)
            if x.size > 60_000 and dtype != "float32":
                continue
            cases += [(f"rows {x.shape}", several(itf.asarray(x), 1), 0.0),
                      (f"columns {x.shape}", several(itf.asarray(x.T.copy()), 0), 0.0)]  # fmt: skip
    check(cases)


@host
def test_every_reduction_by_rows_and_columns() -> None:
    cases: list[Case] = []
    for name in DTYPES:
        for shape, axis in itertools.product([(5, 130), (130, 5), (9, 11, 13)], (0, 1, -1)):
            x = itf.asarray(random(shape, name, 1))
            every = [op.name for op in OPS.values() if op.kind == REDUCTION]
            made = tuple(getattr(itf, one)(x, axis=axis) for one in every)
            cases.append((f"{name} {shape} {axis}", made, 0.0))
    check(cases)


@host
def test_long_rows_and_columns() -> None:
    cases: list[Case] = []
    for length in (*LONGER, 100_003):
        x = random((3, length), "float32", length)
        cases += [(f"rows {length}", several(itf.asarray(x), 1), 0.0),
                  (f"columns {length}", several(itf.asarray(x.T.copy()), 0), 0.0)]  # fmt: skip
    wide = random((9000, 70), "float32", 5)
    cases.append(("wide columns", several(itf.asarray(wide), 0), 0.0))
    check(cases)


def programs(x: itf.Array, w: Any) -> list[tuple[str, tuple[itf.Array, ...], float]]:
    centred = x - x.mean(-1, keepdims=True)
    return [
        # Only arithmetic: the same bits.
        ("centred", (centred,), 0.0),
        ("standard", (centred / x.std(-1, keepdims=True) * w + w, x.max(-1)), 0.0),
        ("layernorm", (itf.layernorm(x, w, w),), 0.0),
        ("rms", (itf.rmsnorm(x, w),), 0.0),
        ("normalize", (itf.normalize(x, 1), (x * w).sum(-1)), 0.0),
        # exp is the machine's own, and its errors add up.
        ("softmax", (itf.softmax(x),), 64.0),
        ("log_softmax", (itf.log_softmax(x * 0.1),), 4096.0),
    ]


@host
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_row_programs_are_the_cpu_engines(dtype: str) -> None:
    cases: list[Case] = []
    for length in LENGTHS if dtype == "float32" else (10, 100, 300, 2000):
        x = random((5, length), dtype, length)
        w = random((length,), dtype, length + 1)
        some = programs(itf.asarray(x), w)
        cases += [(f"{what} {length}", *rest) for what, *rest in some if what != "log_softmax"]
    check(cases)


@host
@pytest.mark.parametrize("dtype", OTHER_DTYPES)
def test_row_programs_of_other_dtypes(dtype: str) -> None:
    check(other_dtypes(dtype))


def other_dtypes(dtype: str) -> list[Case]:
    cases: list[Case] = []
    for length in (3, 8, 37, 100, 300, 1024, 2001, 5000, 8192):
        rng = np.random.default_rng(length)
        x, w = (as_dtype(rng.normal(size=shape), dtype) for shape in ((5, length), (length,)))
        lazy = itf.asarray(x)
        centred = lazy - lazy.mean(-1, keepdims=True)
        cases += [(f"centred {length}", (centred * w, lazy.sum(-1), lazy.max(-1)), 0.0),
                  (f"down {length}", (itf.asarray(x.T.copy()).sum(0),), 0.0),
                  (f"absolute {length}", (abs(centred * 1j).sum(-1),), 64.0)]  # fmt: skip
        if "complex" not in dtype:
            cases += [(f"softmax {length}", (itf.softmax(lazy),), 1.0),
                      (f"layernorm {length}", (itf.layernorm(lazy, w, w),), 0.0)]  # fmt: skip
    # Parts of complex numbers that stand between the places of whole ones.
    part = np.arange(2 * 3 * 37 + 2, dtype="f4" if dtype == "complex64" else "f8")
    if "complex" in dtype:
        apart = part[1:-1].view(dtype).reshape(3, 37)
        lazy = itf.asarray(apart)
        cases.append(("apart", (lazy - lazy.mean(-1, keepdims=True), lazy.sum(-1)), 0.0))
    return cases


def as_dtype(x: np.ndarray, dtype: str) -> np.ndarray:
    if "complex" in dtype:
        x = x + 1j * x[..., ::-1]
    return x.astype(DTYPES[dtype].numpy)


@host
def test_computed_places_and_numbers_of_the_index() -> None:
    cases = computed_places()
    for what, lazies, _ in cases:
        assert itf.plan(*lazies).passes == 1, what
    check(cases)


def computed_places() -> list[Case]:
    cases: list[Case] = []
    for length in (3, 37, 100, 1024, 5000, 20_001):
        x = random((6, length), "float32", length)
        rng = np.random.default_rng(length)
        order, labels = rng.integers(-length, length, 2 * length), rng.integers(0, length, 6)
        lazy = itf.asarray(x)
        index = itf.arange(length, dtype="float32")
        picked = itf.take_along_axis(lazy, labels[:, None], axis=1)
        cases += [
            (f"taken {length}", (itf.take(lazy, order, axis=1).sum(1),), 0.0),
            (f"down {length}", (itf.take(lazy, order[:9] % 6, axis=0).sum(0),), 0.0),
            (f"index {length}", ((lazy * index).sum(-1),), 0.0),
            (f"index down {length}", ((lazy * index).max(0),), 0.0),
            (f"program {length}", (lazy - (lazy * index).mean(-1, keepdims=True) + index,), 0.0),
            (f"loss {length}", ((lazy - lazy.max(-1, keepdims=True) - picked).sum(-1),), 0.0),
            (f"rolled {length}", (itf.roll(lazy, 5, axis=1) - lazy.mean(1, keepdims=True),), 0.0),
            (f"joined {length}", (itf.concat((lazy, lazy[:, ::-1]), axis=1).sum(1),), 0.0),
        ]
    return cases


@host
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_row_programs_of_long_rows(arch: str) -> None:
    """Without clusters a block walks out of the cache what the registers do not hold."""
    cases: list[Case] = []
    for length in LONGER:
        x, w = random((2, length), "float32", length), random((length,), "float32", 1)
        cases += [(f"{what} {length}", *rest) for what, *rest in programs(itf.asarray(x), w)[:4]]
    check(cases, arch)


@host
def test_accumulators_beyond_shared_memory() -> None:
    y = itf.asarray(random((70, 40), "float64", 3))
    many = tuple((y * float(k)).var(0) for k in range(1, 11))
    check([("columns", many, 0.0), ("rows", tuple((y * k).var(1) for k in range(1, 11)), 0.0)])
    nvrtc.require()
    wide = itf.spec((16_384, 512), "float64")
    for axis in (0, 1):
        plan = plan_for("tile", *((wide * float(k)).var(axis) for k in range(1, 11)))
        source = lower_tile(plan.stages[0], "many", aligned=True).source
        nvrtc.compile_cubin(source, "sm_80")  # which refuses what does not fit


@host
def test_layouts_broadcasts_and_carried_values() -> None:
    x = random((6, 7, 40), "float32", 1)
    row, column = random((40,), "float32", 2), random((7, 1), "float32", 3)
    cases: list[Case] = []
    for view in (x, x[::-1], x[..., ::-1], x[:, ::2], np.asfortranarray(x), x.transpose(1, 0, 2),
                 np.broadcast_to(x[:1], x.shape), np.broadcast_to(x[..., :1], x.shape),
                 np.repeat(x, 2, axis=-1)[..., ::2]):  # fmt: skip
        lazy = itf.asarray(view)
        side = column if view.shape[1] == 7 else column[0, 0]
        for axis in (0, 1, 2, (0, 1), (1, 2), (0, 2)):
            cases.append((f"{view.strides} {axis}", ((lazy * row + side).sum(axis) / 3,), 0.0))
        apart = lazy - lazy.mean((1, 2), keepdims=True)
        cases.append((f"program {view.strides}", (apart * row + side,), 0.0))
    lazy = itf.asarray(x)
    cases += [
        ("carried", ((lazy - lazy.mean(0)).sum(-1),), 0.0),
        ("carried whole", ((lazy - lazy.max()).sum(-1) * lazy.sum(),), 0.0),
        ("epilogue", (lazy.sum(1) * row + random((6, 40), "float32", 4),), 0.0),
        ("epilogue of rows", (lazy.sum(-1, keepdims=True) * column,), 0.0),
        ("positions", (lazy.argmax(1), lazy.argmin(0), lazy.argmax(-1)), 0.0),
        ("no rows", (itf.asarray(np.empty((0, 5), "f4")).sum(1),), 0.0),
        ("no elements", (itf.asarray(np.empty((5, 0), "f4")).sum(1) + 1,), 0.0),
        ("no elements down", (itf.asarray(np.empty((0, 5), "f4")).sum(0) + 1,), 0.0),
    ]
    check(cases)


@host
def test_division_by_a_value_of_the_row_rounds_as_division_does() -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << 32, (6000, 4), "u4").view("f4")  # every exponent, NaN, subnormals
    near = rng.integers(1 << 23, 1 << 24, (6000, 4)) * 2.0 ** rng.integers(-60, 40, (6000, 4))
    few = np.array([0, -0.0, 1, 3, 1e-38, 1e-45, 3.4e38, np.inf, np.nan, -7], "f4")
    cases: list[Case] = []
    for x in (bits, near.astype("f4"), rng.choice(few, (4000, 4))):
        with np.errstate(all="ignore"):
            want = x / x.max(-1, keepdims=True)
        lazy = itf.asarray(x)
        divided = lazy / lazy.max(-1, keepdims=True)
        assert_same(divided.compute(), want, 0)
        cases.append(("x / x.max", (divided,), 0.0))
    check(cases)


def phases_kept(lazy: itf.Array) -> list[tuple[int, ...]]:
    """Return the slots that each phase loads where the first ones are kept in registers."""
    (stage,) = plan_for("tile", lazy).stages
    phases, _ = keep(stage.phases, list(stage.phases[0].element.slots))
    return [phase.element.slots for phase in phases]


def test_a_later_walk_takes_what_an_earlier_one_computed() -> None:
    x, w = itf.spec((9, 64), "f4"), itf.spec(64, "f4")
    assert phases_kept(itf.softmax(x)) == [(0,), (0,), ()]
    *_, last = phases_kept(itf.layernorm(x, w, itf.spec(64, "f4")))
    assert 0 not in last and len(last) == 2  # the weight and the bias
    # Where the input itself is needed again, nothing takes its place.
    assert phases_kept(itf.softmax(x) + x)[-1] == (0,)
    # Nor where the value would not fit: registers do not grow.
    half = itf.spec((9, 64), "f2").astype("f8")
    assert phases_kept(half - half.mean(-1, keepdims=True) * 2)[-1] == (0,)


@host
def test_outputs_beside_and_in_place_of_inputs() -> None:
    x, y = random((11, 37), "float32", 1), random((11, 37), "float16", 2)
    a, b = itf.asarray(x), itf.asarray(y)
    total = (a * b).sum(-1, keepdims=True)
    check([
        ("two for one", (a - total, (a + total).astype("f8")), 0.0),
        ("wide and narrow", ((b - total).astype("f2"), a * total), 0.0),
        ("three for two", (a - total, a + total, (b * 2 - total).astype("i2")), 0.0),
    ])  # fmt: skip


# ---- what the device's compiler says ---------------------------------------------------------


def kernels(dtype: str) -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    for length in (8, 100, 512, 1024, 4096, 8192, 20_000, 32_768, 65_536, 262_144):
        x, w = itf.spec((300, length), dtype), itf.spec((length,), dtype)
        made = {"sum": (x * x).sum(-1), "softmax": itf.softmax(x), "norm": itf.layernorm(x, w, w)}
        turned = itf.spec((length, 300), dtype)
        made["columns"] = (turned * turned).sum(0)
        for what, one in made.items():
            (found[f"{what}_{length}"],) = plan_for("tile", one).stages
        found[f"stats_{length}"] = plan_for("tile", x.mean(-1), x.var(-1), x.argmax(-1)).stages[0]
        found[f"column_stats_{length}"] = plan_for("tile", turned.var(0), turned.max(0)).stages[0]
    return found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_compile_without_spills(dtype: str, arch: str) -> None:
    nvrtc.require()
    stages = kernels(dtype)
    sources = [
        lower_tile(s, f"{k}_{a}", a == "aligned", arch).source
        for k, s in stages.items()
        for a in ("aligned", "any")
    ]
    _, report = nvrtc.compile_cubin(unit(sources), arch)
    for name, one in report.functions.items():
        # A block of 1,024 threads has 64 registers for each: not enough for all of a layernorm,
        # nor for all that a block of a cluster keeps.
        some = {"float32": 64, "float64": 96}[dtype] if name.startswith("norm_32768") else 0
        some = 96 if "_262144_" in name else some
        if arch == "sm_120" and name.startswith("columns"):
            some = 96  # its compiler keeps more loads in flight than 128 registers hold
        assert one.spill_stores + one.spill_loads <= some, (name, one)
        assert one.stack <= some, (name, one)
