"""Segments: a whole array's bits for each, one pass, and the GPU's kernel on the host."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import host_cpp, nvrtc, stub_driver
from support.generated import HostEngine, plan_for

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.lower import lower_tile
from itfuse.plan.order import LARGE, LARGE_LEAF, LEAF

RNG = np.random.default_rng(41)


def offsets_of(lengths: Any) -> Any:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def mixed(longest: int = 3 * LEAF + 5) -> Any:
    """Return offsets of segments of every class of lengths, at every alignment."""
    edges = [n + d for n in (4, 8, 64, 128, 1024, LEAF) for d in (-1, 0, 1)]
    short = RNG.integers(0, 20, 200)
    some = [0, 0, *edges, *short, longest, 0, *RNG.integers(100, 1500, 30), 1, 0]
    return offsets_of(some)


def values(count: int, dtype: str) -> Any:
    if dtype == "bool":
        return RNG.random(count) < 0.5
    made = RNG.standard_normal(count) * 3
    if dtype.startswith("complex"):
        made = made + 1j * RNG.standard_normal(count)
    return made.astype(dtype)


def same(got: Any, want: Any, what: Any = "") -> None:
    """Equal bits, but for the signs of NaN."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    number = (got == got) | (want == want)  # noqa: PLR0124
    assert got[number].tobytes() == want[number].tobytes(), (what, np.flatnonzero(got != want)[:9])


# ---- what segments mean ------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64", "int8", "uint64"])
def test_a_segment_combines_as_an_array_of_its_length(dtype: str) -> None:
    offsets = mixed()
    x = values(int(offsets[-1]), dtype)
    found = {
        name: getattr(itf, f"segment_{name}")(x, offsets).compute() for name in ("sum", "prod")
    }
    for k in (*range(22), *range(22, 250, 7), offsets.size - 35, offsets.size - 3):
        part = itf.asarray(x[offsets[k] : offsets[k + 1]])
        same(found["sum"][k], itf.sum(part).compute(), (k, part.size))
        same(found["prod"][k], itf.prod(part).compute(), (k, part.size))


def test_leaves_of_long_segments_are_larger() -> None:
    x = np.float32(RNG.standard_normal(LARGE + 12_345))
    for begin, end in ((7, LARGE + 6), (7, LARGE + 7), (9, LARGE + 12_345)):
        got = itf.segment_sum(x, [begin, end]).compute()
        same(got[0], itf.sum(x[begin:end]).compute(), end - begin)
    assert LARGE_LEAF % LEAF == 0  # a leaf begins where a window does


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_like_numpy(dtype: str) -> None:
    offsets = mixed()
    x = values(int(offsets[-1]), dtype)
    starts = offsets[:-1][np.diff(offsets) > 0]
    filled = np.diff(offsets) > 0
    calls: dict[str, Any] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
    for op, ufunc in calls.items():
        got = itf.segment_reduce(x, op, offsets).compute()
        wide = x.astype("f4") if dtype == "float16" and op == "sum" else x
        # In the dtype that NumPy's sum has: reduceat would keep the elements'.
        want = ufunc.reduceat(wide, starts, dtype=got.dtype if wide is x else None)
        if op == "sum" and got.dtype.kind in "fc":
            low = got.dtype.itemsize // (2 if got.dtype.kind == "c" else 1)
            bound = {2: 2e-3, 4: 1e-4, 8: 1e-10}[low]
            np.testing.assert_allclose(got[filled], want, rtol=bound, atol=bound * 300)
        else:
            same(got[filled], want, op)
        nothing = np.array(0, got.dtype) if op == "sum" else None
        if nothing is not None:
            assert (got[~filled] == nothing).all()


def test_offsets_outside_of_the_array_and_of_any_integer() -> None:
    x = np.arange(10.0)
    wild = np.array([-5, 3, 3, 8, 99, 2**40])
    want = np.array([3.0, 0.0, 25.0, 17.0, 0.0])
    same(itf.segment_sum(x, wild).compute(), want)
    mean = itf.segment_mean(x, wild).compute()
    same(mean, np.array([1.0, np.nan, 5.0, 8.5, np.nan]))
    for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64"):
        plan = itf.plan(itf.segment_sum(x, np.array([0, 3, 9], dtype)))
        assert plan.passes == (2 if np.dtype(dtype).itemsize < 4 else 1), dtype
        same(itf.segment_sum(x, np.array([0, 3, 9], dtype)).compute(), np.array([3.0, 33.0]))
    with pytest.raises(TypeError, match="uint64"):
        itf.segment_sum(x, np.array([0, 3], "u8"))
    falling = np.array([0, 9, 2, 7, 1])  # no defined values, but no harm either
    assert itf.segment_sum(x, falling).compute().shape == (4,)


def test_nothing() -> None:
    none = np.zeros(0)
    assert itf.segment_sum(none, [0]).compute().shape == (0,)
    same(itf.segment_max(none, [0, 0, 0]).compute(), np.full(2, -np.inf))
    same((itf.segment_sum(none, [0, 0]) + 1).compute(), np.ones(1))
    many = itf.segment_sum(np.ones(3), np.full(700_000, 2)).compute()
    assert many.shape == (699_999,) and not many.any()


def test_operators_of_ones_own() -> None:
    offsets = mixed()
    n = int(offsets[-1])
    whole = RNG.integers(1, 500, n)
    got = itf.segment_reduce(whole, np.gcd, offsets, identity=0).compute()
    last = itf.segment_reduce(whole, itf.maximum, offsets, identity=0).compute()
    for k in range(0, offsets.size - 1, 5):
        part = whole[offsets[k] : offsets[k + 1]]
        assert got[k] == np.gcd.reduce(part, initial=0)
        assert last[k] == part.max(initial=0)
    same(itf.segment_reduce(whole, np.maximum, offsets).compute(),
         itf.segment_max(whole, offsets).compute())  # fmt: skip
    add = itf.cpp_function("template <typename T> T plus(T a, T b) { return a + b; }", numpy=np.add)
    x = values(n, "float32")
    same(itf.segment_reduce(x, add, offsets, identity=0).compute(),
         itf.segment_sum(x, offsets).compute())  # fmt: skip
    same(itf.segment_reduce(x, lambda a, b: itf.where(a > b, a, b), offsets,
                            identity=-np.inf).compute(),
         itf.segment_max(x, offsets).compute())  # fmt: skip
    with pytest.raises(TypeError, match="identity"):
        itf.segment_reduce(whole, np.gcd, offsets)
    with pytest.raises(ValueError, match="no reduction"):
        itf.segment_reduce(whole, "mode", offsets)


def test_keys() -> None:
    keys = np.repeat(RNG.integers(0, 9, 500), RNG.integers(1, 9, 500))
    x = values(keys.size, "float32")
    _, sums = itf.reduce_by_key(keys, x)
    _, means = itf.reduce_by_key(keys, x, "mean")
    _, counts = itf.run_length_encode(keys)
    same(means, sums / counts.astype("f4"))
    whole = np.abs(x * 100).astype("i4")
    _, common = itf.reduce_by_key(keys, whole, np.gcd, identity=0)
    starts = offsets_of(counts)[:-1]
    assert (common == np.gcd.reduceat(whole, starts)).all()
    assert itf.reduce_by_key(np.zeros(0), np.zeros(0), "mean")[1].shape == (0,)


# ---- one pass ----------------------------------------------------------------------------------
def figures(*asked: itf.Array) -> tuple[int, int, int]:
    plan = itf.plan(*asked)
    return plan.passes, plan.bytes_read, plan.bytes_written


def test_passes_and_bytes() -> None:
    n, s = 1 << 20, 1000
    x, y = itf.spec((n,), "float32"), itf.spec((n,), "float32")
    offsets, other = itf.spec((s + 1,), "int64"), itf.spec((s + 1,), "int64")
    total = itf.segment_sum(x * x, offsets)
    read = 4 * n + 8 * (s + 1)
    assert figures(total) == (1, read, 4 * s)
    assert figures(itf.sqrt(total)) == (1, read, 4 * s)
    assert figures(itf.segment_mean(x, offsets)) == (1, read, 4 * s)
    # Several reductions of the same data and offsets, also of more data, also asked for as one.
    assert figures(total, itf.segment_max(x, offsets)) == (1, read, 8 * s)
    assert figures(total / itf.segment_sum(y, offsets)) == (1, read + 4 * n, 4 * s)
    spread = itf.segment_max(x, offsets) - itf.segment_min(x, offsets)
    assert figures(spread) == (1, read, 4 * s)
    # An epilogue that reads arrays of its own, also along strides.
    weights = itf.spec((s, 2), "float32")
    assert figures(total * weights[:, 1]) == (1, read + 4 * s, 4 * s)
    assert figures(total, itf.segment_sum(x, other))[0] == 2
    # What reads segments as an array waits.
    again = itf.segment_sum(x - itf.take(itf.segment_mean(x, offsets), itf.spec((n,), "int32")),
                            offsets)  # fmt: skip
    assert itf.plan(again).passes == 2
    assert itf.plan(itf.segment_sum(x / itf.sum(x), offsets)).passes == 2
    four = [itf.segment_sum(x.astype("float64") * k, offsets) for k in range(1, 6)]
    assert itf.plan(*four).passes == 2  # a pass keeps at most 32 bytes of each segment
    assert itf.plan(total, total).passes == 1
    int32 = itf.spec((s + 1,), "int32")
    assert figures(itf.segment_sum(x, int32)) == (1, 4 * n + 4 * (s + 1), 4 * s)


def test_results_of_fused_passes() -> None:
    offsets = mixed()
    count = offsets.size - 1
    x, y = (values(int(offsets[-1]), "float32") for _ in "xy")
    weights = values(2 * count, "float32").reshape(count, 2)
    o = itf.asarray(offsets)
    total, top = itf.segment_sum(x, o), itf.segment_max(y, o)
    index = itf.asarray(np.arange(count)[::-1].copy())
    asked = (total * weights[:, 1] + top, itf.segment_mean(x, o), total,
             total - itf.take(itf.asarray(weights[:, 0].copy()), index), total)  # fmt: skip
    plan = itf.plan(*asked)
    assert plan.passes == 1
    got = itf.compute(*asked)
    sums, tops = itf.segment_sum(x, offsets).compute(), itf.segment_max(y, offsets).compute()
    same(got[0], sums * weights[:, 1] + tops)
    with np.errstate(all="ignore"):
        same(got[1], sums / np.diff(offsets).astype("f4"))
    same(got[2], sums)
    same(got[3], sums - weights[::-1, 0])
    assert got[4] is not got[2]
    out = np.zeros((count, 2), "f4")
    (total * 2).compute(out=out[:, 1])
    same(out[:, 1].copy(), sums * 2)
    total.compute(out=out[::-1, 0])
    same(out[::-1, 0].copy(), sums)


def test_threads_do_not_show() -> None:
    x = values(3_000_000, "float32")
    offsets = offsets_of([5, 2_000_000, 0, *[7] * 40_000, 720_000 - 5])
    found = []
    for threads in (1, 2, 3):
        with itf.config(threads=threads):
            found.append(itf.segment_sum(x, offsets).compute())
    assert len({one.tobytes() for one in found}) == 1


def test_explain(golden: Callable[[str, str], None]) -> None:
    x, offsets = itf.spec((1 << 20,), "float32"), itf.spec((1001,), "int64")
    norm = itf.sqrt(itf.segment_sum(x * x, offsets))
    cases = [
        itf.explain(norm, itf.segment_max(x, offsets)),
        itf.explain(itf.segment_mean(x, offsets)),
        itf.explain(itf.segment_reduce(x, np.hypot, offsets, identity=0)),
        itf.explain(
            itf.segment_sum(x, segment_ids=itf.spec((1 << 20,), "int32"), num_segments=1000)
        ),
    ]
    golden("explain_segments.txt", "\n\n".join(cases) + "\n")


def test_strategies() -> None:
    x, offsets = itf.spec((1 << 20,), "float32"), itf.spec((1001,), "int64")
    bare = itf.segment_sum(x * 2, offsets)
    assert plan_for("auto", bare).stages[0].strategy == "tile"
    by_cub = plan_for("cub", bare)
    assert by_cub.stages[0].strategy == "cub.iterator"
    assert any("beyond the array" in note.text for note in by_cub.notes)
    for one, why in ((itf.sqrt(bare), "no epilogue"),
                     (bare / itf.segment_max(x, offsets), "one result")):  # fmt: skip
        with pytest.raises(NotImplementedError, match=why):
            plan_for("cub", one)


# ---- the GPU's code, without a GPU -------------------------------------------------------------
def device_cases() -> list[tuple[itf.Array, ...]]:
    cases: list[tuple[itf.Array, ...]] = []
    for dtype in DTYPES:
        offsets = mixed(2 * LEAF + 3 if dtype != "float32" else 5 * LEAF)
        x = itf.asarray(values(int(offsets[-1]) + 30, "float32").astype(dtype))
        o = itf.asarray(offsets.astype("i4") if dtype == "int16" else offsets)
        cases.append((itf.segment_sum(x, o),))
    x = itf.asarray(values(int(offsets[-1]), "float64"))
    count = offsets.size - 1
    weights = itf.asarray(values(2 * count, "float64").reshape(count, 2))
    total = itf.segment_sum(x * x, o)
    index = itf.arange(count)
    cases += [
        (itf.sqrt(total) * weights[:, 1] + index, itf.segment_min(x, o), itf.segment_mean(x, o)),
        (itf.take(weights.ravel(), index * 2) - itf.segment_max(x, o),),
        # Inputs along strides, broadcast, and numbers of the index.
        (itf.segment_sum(itf.asarray(values(3 * x.size, "float32").reshape(-1, 3))[:, 1], o),),
        (itf.segment_sum(itf.ones(x.size, dtype="float32") * 3, o),),
        (itf.segment_sum(itf.arange(x.size) * itf.flip(x), o),),
        # An odd first element: other addresses.
        (itf.segment_prod(x[1:], itf.asarray(np.clip(offsets - 1, 0, None))),),
    ]
    three = itf.asarray(np.array([-7, 3, 3, 9000, 5, 2**40]))
    add = itf.cpp_function("template <typename T> T plus(T a, T b) { return a + b; }", numpy=np.add)
    cases += [
        (itf.segment_sum(x[:9001], three[:4]), itf.segment_max(x[:9001], three[:4])),
        (itf.segment_reduce(x, add, o, identity=0),),
        (itf.segment_sum(x, itf.asarray(np.array([3]))),),
        (itf.segment_sum(x, itf.asarray(np.array([3, 20_000]))) * 2,),
        (itf.segment_sum(x[:0], itf.asarray(np.zeros(9, int))) + 1,),
        (itf.segment_sum(x[:9], itf.asarray(np.full(20_000, 4))),),
        (itf.segment_sum(x[:40_000], itf.asarray(np.arange(0, 40_001, 2))),),
    ]
    return cases


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")
def test_generated_code_on_the_host() -> None:
    cases = device_cases()
    plans = [plan_for("tile", *asked) for asked in cases]
    engine = HostEngine(plans)
    for asked, plan in zip(cases, plans, strict=True):
        got = engine.run(plan, *asked)
        for one, lazy in zip(got, asked, strict=True):
            same(one, lazy.compute(), lazy)
    assert min(engine.ran.values()) > 5  # aligned and other variants


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")
def test_falling_offsets_do_no_harm() -> None:
    x = itf.asarray(values(70_000, "float32"))
    wild = itf.asarray(RNG.integers(-9, 80_000, 5000))
    lazy = itf.segment_sum(x, wild)
    plan = plan_for("tile", lazy)
    # Nothing is read or written outside: the values themselves are not defined.
    with pytest.raises(host_cpp.HostError, match="filling shows"):
        HostEngine([plan]).run(plan, lazy)


def test_the_check_finds_another_order() -> None:
    offsets = mixed()
    x = values(int(offsets[-1]), "float32")
    starts, filled = offsets[:-1], np.diff(offsets) > 0
    found = itf.segment_sum(x, offsets).compute()
    with pytest.raises(AssertionError):
        same(found[filled], np.add.reduceat(x, starts[filled]))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_kernels_compile(arch: str) -> None:
    nvrtc.require()
    x, offsets = itf.spec((1 << 20,), "float32"), itf.spec((1001,), "int64")
    rows = itf.spec((1 << 18, 4), "complex128")
    asked: list[tuple[itf.Array, ...]] = [
        (itf.segment_sum(x, offsets),),
        (itf.sqrt(itf.segment_sum(x * x, offsets)), itf.segment_max(x, offsets),
         itf.segment_mean(x, offsets)),
        (itf.segment_prod(rows.T.ravel(), offsets), itf.segment_sum(rows.T.ravel(), offsets)),
        tuple(itf.segment_sum(x.astype("float64") ** k, offsets) for k in range(4)),
        (itf.segment_reduce(x > 0, "any", itf.spec((9,), "int32")),),
    ]  # fmt: skip
    for at, one in enumerate(asked):
        (stage,) = plan_for("tile", *one).stages
        for aligned in (True, False):
            source = lower_tile(stage, f"k{at}", aligned, arch).source
            _, report = nvrtc.compile_cubin(source, arch)
            assert report.spilled == 0, (at, report)
            (shared,) = {used.shared for used in report.functions.values() if used.registers}
            assert shared <= 48 << 10


BUILD = """
import numpy as np
import itfuse as itf
from support.generated import plan_for
from itfuse.engines.cuda.cub import CubBuilt
from itfuse.lower.cpp import lower

x = itf.asarray(np.ones(40, "u4"))
for dtype in ("i8", "i4"):
    one = itf.segment_sum(x.astype("f4") * 2, np.array([0, 3, 40], dtype))
    stage = plan_for("cub", one).stages[-1]
    code = CubBuilt(stage, lower(stage, "itf_test"), "sm_90", [90]).serialize()
    print(stage.primitive, len(code) > 30_000)
"""


@pytest.mark.skipif(bool(stub_driver.why_not()), reason=stub_driver.why_not() or "-")
def test_cuda_compute_builds(tmp_path: Any) -> None:
    nvrtc.require()
    done = stub_driver.run_with_stub(BUILD, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["segments True"] * 2


# ---- what is written about them ----------------------------------------------------------------
@pytest.mark.parametrize("page", ["segments", "determinism"])
def test_the_pages(page: str) -> None:
    text = (Path(__file__).parents[1] / "docs" / f"{page}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"np": np, "itf": itf, "itertools": itertools}
    some = [block for block in blocks if page == "segments" or "def scan" not in block]
    for block in some:
        if "scan(x" not in block:
            exec(block, names)
    assert page == "segments" or "sums" in names
