"""Selection: masks, compress, nonzero, partitions; on the CPU engine and as generated kernels."""

from __future__ import annotations

import gc
import importlib
import pickle
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import fake_cupy, generated, host_cpp, nvrtc
from support.generated import HostEngine, unit

import itfuse as itf
from itfuse import engines
from itfuse.dtypes import DTYPES
from itfuse.lower import look_back, lower_tile, tile_select
from itfuse.lower.staged import TILES
from itfuse.plan import make_plan
from itfuse.plan.stages import Plan
from itfuse.testing import assert_same

RNG = np.random.default_rng(7)
X = RNG.standard_normal((57, 83)).astype("f4")
I = RNG.integers(-2, 3, (5, 7, 9)).astype("i2")  # noqa: E741
V = RNG.integers(-3, 4, 4097)

# Evaluated with `np` over plain arrays and with `itf` over lazy ones.
CASES = (
    "x[x > 0]", "x[x > 9]", "x[x < 9]", "(x * 2 + 1)[x * x > 0.5]", "x.T[x.T > 0]",
    "x[::2, ::-3][x[::2, ::-3] < 0]", "x[x[:, 3] > 0]", "x[:, 2:9][x[:, 0] > 0]",
    "i[i[:, :, 0] > 0]", "i[i[:, 0, 0] > 0]", "i[(i > 0) & (i < 2)]", "i[i == 7]",
    "x[:0][x[:0] > 0]", "x[:, :0][x[:, 0] > 0]", "x[x[:, 0] > 0, ...]",
    "x[xp.asarray(True)]", "x[xp.asarray(False)]", "v[xp.asarray([True] * 4097)]",
    "x[x[:, 3] > 0, 4]", "x[2:, x[0] > 0]", "x[None, x > 1]", "i[..., i[0, 0] > 0, None]",
    "x[x.sum(1) > 0]", "x[x > x.mean()]", "x[x > x.max(1, keepdims=True) / 2]",
    "xp.compress(v > 0, v)", "xp.compress(x[0] > 0, x, axis=1)", "xp.compress(x[:, 0] > 0, x, 0)",
    "xp.compress(i[0, :, 0] > 0, i, axis=-2)",
    "xp.compress((v > 0) & (xp.arange(4097) < 2850), x[:, :50])",
    "xp.compress(v[:11] > 0, x, axis=-1)", "xp.compress(x[0, :0] > 0, x, axis=0)",
    "xp.compress(v, v * v)", "xp.extract(x > 0, x * x)", "xp.extract(i, i)",
    "xp.extract(v[:20] > 0, x)", "xp.nonzero(x > 1)", "xp.nonzero(i)", "xp.nonzero(v[:0])",
    "xp.nonzero(x[:, :0])", "xp.flatnonzero(i > 1)", "xp.argwhere(i > 1)", "xp.argwhere(v)",
    "xp.argwhere(xp.asarray(5))", "xp.argwhere(xp.asarray(0))", "xp.argwhere(x[:0])",
    "(x > 1).nonzero()", "v.compress(v > 1)", "x[x > 1].sum()", "x[x > 1][::2] * 2",
    "v[xp.flatnonzero(v > 2)]",
)  # fmt: skip


def evaluated(text: str, **names: Any) -> tuple[Any, ...]:
    """Return what a case gives as a tuple of arrays."""
    found = eval(text, names)
    return found if isinstance(found, tuple) else (found,)


def computed(found: Any) -> Any:
    return found.compute() if isinstance(found, itf.Array) else np.asarray(found)


@pytest.mark.parametrize("text", CASES)
def test_numpy_means_the_same(text: str) -> None:
    want = evaluated(text, x=X, i=I, v=V, xp=np)
    lazy = {name: itf.asarray(one) for name, one in (("x", X), ("i", I), ("v", V))}
    got = evaluated(text, **lazy, xp=itf)
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert_same(computed(ours), np.asarray(theirs), what=text)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [0, 1, 4095, (1 << 18) + 1, 1_000_003])
def test_blocks_are_joined_in_order(size: int, threads: int) -> None:
    x = RNG.integers(0, 1 << 20, size)
    lazy = itf.asarray(x)
    with itf.config(threads=threads):
        for flag in (lambda a: a % 3 == 0, lambda a: a < 0, lambda a: a >= 0, lambda a: a < 7):
            assert_same(lazy[flag(lazy)].compute(), x[flag(x)])
        parts = itf.compute(*itf.three_way_partition(lazy, lazy % 5 == 0, lazy % 3 == 0))
    first, second = x % 5 == 0, x % 3 == 0
    for got, mask in zip(parts, (first, second & ~first, ~(first | second)), strict=True):
        assert_same(got, x[mask])


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_dtype(dtype: str) -> None:
    x = RNG.integers(0, 2, 1000).astype(dtype)
    lazy = itf.asarray(x)
    assert_same(lazy[lazy != 0].compute(), x[x != 0])
    assert_same(itf.flatnonzero(lazy).compute(), np.flatnonzero(x))


def test_unique_of_sorted_input() -> None:
    for x in (np.sort(V), V[:0], V[:1], np.array([0.0, -0.0, 1, np.nan, np.nan]),
              np.array(["nan", 1 + 1j, 1 + 1j], "c16"), np.array([False, True, True])):  # fmt: skip
        lazy = itf.asarray(x)
        assert_same(itf.unique_consecutive(lazy).compute(), x[_changes(x)], what=str(x))
    assert_same(itf.unique_consecutive(np.sort(V)).compute(), np.unique(V))
    nan = np.array([1, np.nan, np.nan])
    assert_same(itf.unique_consecutive(nan).compute(), np.unique(nan))
    assert_same(itf.unique_consecutive(nan, equal_nan=False).compute(), nan)


def _changes(x: Any) -> Any:
    same = (x[1:] == x[:-1]) | ((x[1:] != x[1:]) & (x[:-1] != x[:-1]))
    return np.concatenate([np.ones(min(1, x.size), bool), ~same])


# ---- the plan --------------------------------------------------------------------------------
def test_passes_and_bytes() -> None:
    x, y = itf.spec((1000,), "float32"), itf.spec((1000,), "float64")
    for made, passes, read, written in (
        ((x[x > 0],), 1, 4000, 4008),
        (((x * 2)[y > 0],), 1, 12000, 4008),
        (itf.nonzero(itf.spec((10, 100), "int8")), 1, 1000, 16008),
        (itf.three_way_partition(x, x > 1, x < 0), 1, 4000, 12016),
        ((x[x > 0], y[x > 0], x.sum()), 2, 16000, 12012),
        ((x[x > x.mean()],), 2, 8004, 4012),
        ((x[x > 0], x[x > 1]), 2, 8000, 8016),
        ((itf.unique_consecutive(x),), 1, 4000, 4008),
        ((itf.spec((100, 10), "float32")[itf.spec((100,), "bool")],), 1, 4100, 4008),
    ):
        plan = itf.plan(*made)
        assert (plan.passes, plan.bytes_read, plan.bytes_written) == (passes, read, written)
    (stage,) = itf.plan(x[x > 0]).stages
    assert (stage.primitive, stage.flags, stage.parts) == ("select", 1, (0, -1))
    notes = {note.reason for note in itf.plan(x[x > 0], x[x > 1]).notes}
    assert "different-flags" in notes
    with pytest.raises(itf.NeedsBuffer, match="max_passes is 1"):
        itf.plan(x[x > x.mean()], max_passes=1)


def test_strategies() -> None:
    x, y = itf.spec((1000,), "float32"), itf.spec((1000,), "float64")
    assert itf.plan(x[x > 0]).stages[0].strategy == "tile"
    assert itf.plan(x[x > 0], strategy="cub").stages[0].strategy == "cub.pointers"
    for made, why in (
        (itf.nonzero(itf.spec((10, 10), "int8")), "one array by one condition"),
        (itf.three_way_partition(x, x > 1, x < 0), "one array by one condition"),
        ((x[y > 0],), "a function of each"),
        (((x * 2)[x > 0],), "a function of each"),
        ((x[::2][x[::2] > 0],), "not contiguous"),
    ):
        with pytest.raises(itf.Unsupported, match=why):
            itf.plan(*made, strategy="cub")
    many = itf.spec((1,) * 17, "int8")  # 17 indices of 8 bytes an element
    with pytest.raises(itf.Unsupported, match="128 on chip"):
        itf.plan(*itf.nonzero(many))
    assert len(itf.nonzero(many)[:16]) == itf.plan(*itf.nonzero(many)[:16]).stages[0].parts.count(0)


def test_the_plan_is_checked() -> None:
    plan = itf.plan((x := itf.spec((8,), "float32"))[x > 0])
    (stage,) = plan.stages
    verify = importlib.import_module("itfuse.plan.verify").verify
    verify(plan)
    for wrong in ({"parts": (2, -1)}, {"parts": (0, 0)}, {"parts": (-1, 0)}):
        with pytest.raises(itf.PlanError):
            verify(replace(plan, stages=(replace(stage, **wrong),)))


# ---- Selected --------------------------------------------------------------------------------
def test_the_size_is_computed_once_and_only_when_asked() -> None:
    x = X.copy()
    lazy = itf.asarray(x)
    found = lazy[lazy > 0]
    x[0, 0] = 5.0  # seen, because nothing has run
    assert (found.dtype, found.ndim, found.device) == (np.dtype("f4"), 1, "cpu")
    assert repr(found).startswith("itf.Selected(a[a > 0.0], shape=(?,)")
    assert found._whole is None
    want = x[x > 0]
    assert_same(found.compute(), want)
    assert found._whole is None
    assert found.shape == want.shape
    x[...] = 0  # not seen any more
    assert (len(found), found.size) == (want.size, want.size)
    assert_same((found * 2).compute(), want * 2)
    assert_same(np.asarray(found), want)
    assert_same(np.sqrt(found).compute(), np.sqrt(want))
    assert_same(found.compute(), want)
    assert [float(one.compute()) for one in found[:3]] == want[:3].tolist()
    assert_same(pickle.loads(pickle.dumps(found)).compute(), want)
    rows, columns = itf.nonzero(itf.asarray(X) > 2)
    assert rows.shape == (np.count_nonzero(X > 2),)
    assert columns._whole is not None  # by the same pass
    assert_same(
        (rows * 100 + columns).compute(), np.ravel_multi_index(np.nonzero(X > 2), (57, 100))
    )


def test_beside_other_expressions_and_into_out() -> None:
    x = itf.asarray(X)
    total, found, again = itf.compute(x.sum(), x[x > 0], x[x > 0])
    assert_same(found, X[X > 0])
    assert_same(again, found)
    assert not np.shares_memory(found, again)
    assert found.base is None and total.shape == ()
    room = np.full(X.size, 7, "f4")
    got = x[x > 0].compute(out=room)
    assert_same(got, X[X > 0])
    assert np.shares_memory(got, room) and (room[got.size :] == 7).all()
    with pytest.raises(itf.ShapeError, match="has shape"):
        x[x > 0].compute(out=room[:10])
    with pytest.raises(itf.AliasError):
        itf.asarray(room)[itf.asarray(room) > 0].compute(out=room)


def test_memory_is_that_of_the_result() -> None:
    x = np.ones(1 << 23, "f4")
    x[::100] = -1
    lazy = itf.asarray(x)
    lazy[lazy < 0].compute()  # buffers of the threads stay
    gc.collect()
    tracemalloc.start()
    found = lazy[lazy < 0].compute()
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.size == -(-x.size // 100)
    assert now < found.nbytes + (1 << 16)
    assert peak < x.nbytes + (1 << 23)  # the room for all, of which only the beginning is touched


def test_a_thread_that_fails_stops_the_others() -> None:
    index = np.zeros(1 << 20, int)
    index[-1] = 99
    x = itf.asarray(X.ravel()[:50])[itf.asarray(index)]
    with itf.config(threads=2), pytest.raises(itf.BoundsError):
        x[x > 0].compute()


def test_errors() -> None:
    x, s = itf.asarray(X), itf.spec((4,), "float32")
    for wrong, kind, words in (
        (lambda: x[itf.asarray(X[0] > 0)], itf.BoundsError, "83 elements along axis 0"),
        (lambda: x[itf.asarray(I > 0)], itf.BoundsError, "3 axes"),
        (lambda: x[0, X > 0], itf.BoundsError, "2 axes"),
        (lambda: itf.nonzero(itf.asarray(3)), itf.ShapeError, "0-d"),
        (lambda: itf.compress(x > 0, x), itf.ShapeError, "one axis"),
        (lambda: itf.compress([True], x, axis=2), itf.ShapeError, "axis 2"),
        (lambda: itf.three_way_partition(x, x > 0, x[0] > 0), itf.ShapeError, "shape"),
        (lambda: itf.compress([True] * 84, x, axis=1).compute(), itf.BoundsError, "longer"),
        (lambda: s[s > 0].shape, itf.DeviceError, "placeholders"),
        (lambda: itf.fuse(lambda a: a[a > 0])(X), itf.TraceError, "not known yet"),
        (lambda: x.take([True]), itf.Unsupported, "compress"),
    ):
        with pytest.raises(kind, match=words):
            wrong()
    assert_same(itf.compress([True] * 83 + [False], x, axis=1).compute(), X)
    assert s[s > 0].compute(engine="null").shape == (4,)


# ---- generated kernels -----------------------------------------------------------------------
def planned(*found: Any) -> tuple[Plan, dict[Any, Any]]:
    """Plan selections over host arrays as the cuda engine would."""
    nodes: list[Any] = []
    data: dict[Any, Any] = {}
    for one in found:
        asked, sources = one._asked()
        nodes += [node for node in asked if node not in nodes]
        data.update(sources)
    return make_plan(tuple(nodes), device="cuda:0", strategy="tile"), data


def kernel_cases() -> dict[str, tuple[Any, ...]]:
    big = RNG.standard_normal(300_001).astype("f4")
    x, i = itf.asarray(big), itf.asarray(I)
    cases: dict[str, tuple[Any, ...]] = {
        f"float32 {n}": (x[:n][x[:n] > 0],) for n in (0, 1, 31, 33, 4095, 4096, 4097, 300_001)
    }
    cases["not aligned"] = (x[1:9000][x[1:9000] > 0],)
    cases["none"], cases["all"] = (x[:9999][x[:9999] > 99],), (x[:9999][x[:9999] < 99],)
    cases["backwards"] = ((x[5000::-1] * 2)[x[5000::-1] > 0],)
    for dtype in DTYPES:
        one = itf.asarray(RNG.integers(0, 2, 9001).astype(dtype))
        cases[dtype] = (one[one != 0],)
    cases["mask"] = (x[:8200][itf.asarray(big[:8200] > 0)],)
    cases["nonzero"], cases["argwhere"] = itf.nonzero(i > 0), (itf.argwhere(i),)
    cases["leading"] = (i[itf.asarray(I[:, :, 0] > 0)],)
    cases["axis"] = (itf.compress(I[0, :, 0] > 0, i, axis=1),)
    cases["transposed"] = (i.T[i.T > 0],)
    cases["partition"] = itf.three_way_partition(x[:9001], x[:9001] > 0.5, x[:9001] < -0.2)
    cases["runs"] = (itf.unique_consecutive(np.sort(V)),)
    cases["two values"] = (x[:5000][x[:5000] > 0], (x[:5000] > 1)[x[:5000] > 0])
    return cases


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")
def test_kernels_on_the_host() -> None:
    cases = kernel_cases()
    plans = {name: planned(*found) for name, found in cases.items()}
    engine = HostEngine([plan for plan, _ in plans.values()])
    for name, found in cases.items():
        plan, data = plans[name]
        assert plan.passes == 1
        results = engines.run(plan, data, None, engine=engine)
        taken = [r for r, (s, o) in zip(results, plan.results, strict=True)
                 if plan.stages[s].parts[o] >= 0]  # fmt: skip
        want = itf.compute(*found)
        for got, right in zip(taken, want if len(found) > 1 else [want], strict=True):
            assert got[: right.size].tobytes() == right.tobytes(), name
    assert engine.ran[True] > 10 and engine.ran[False] > 10


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("i < many", "i <= many"), ("return before;", "return 0;"), ("ahead[0])", "0)")],
)
def test_a_wrong_kernel_is_found(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(*arguments: Any) -> Any:
        kernel = lower_tile(*arguments)
        assert right in kernel.source
        return replace(kernel, source=kernel.source.replace(right, wrong))

    monkeypatch.setattr(generated, "lower_tile", spoiled)
    x = itf.asarray(np.linspace(-2, 1, 9000, dtype="f4"))
    plan, data = planned(x[x > 0])
    engine = HostEngine([plan])
    want = x[x > 0].compute()
    try:
        got, *_ = engines.run(plan, data, None, engine=engine)
    except host_cpp.HostError:
        return
    assert got[: want.size].tobytes() != want.tobytes()


WALK = """
struct State {
  Word* tree;
  const Word* counts;
  Word* found;
  long long first, tiles;
};
extern "C" __global__ void walk(const State s) {
  const unsigned tile = s.first + blockIdx.x;
  const Word own = s.counts[tile];
  if (threadIdx.x == 0) publish(s.tree + tile, own);
  const Word before = look_back(s.tree, s.tiles, tile, own);
  if (threadIdx.x == 0) s.found[tile] = before;
}
ITF_HOST_LAUNCH(walk, State)
"""


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")
def test_the_look_back_of_many_tiles() -> None:
    library = host_cpp.HostLibrary(look_back.TREE + tile_select.LOOK_BACK + WALK)
    tiles = 40 * 32**3 + 77  # so that the last level has more nodes than a warp has lanes
    counts = RNG.integers(0, 1 << 40, tiles).astype("u8")
    want = np.cumsum(counts) - counts
    for first, last in ((0, 1100), (32**3 - 40, 32**3 + 40), (tiles - 100, tiles)):
        # What earlier tiles have published by now: the sum of every whole node.
        levels = []
        for k in range(tile_select.LEVELS):
            words = np.zeros((tiles >> 5 * k) + 1, "u8")
            whole = first >> 5 * k
            sums = counts[: whole << 5 * k].reshape(whole, 1 << 5 * k).sum(1)
            words[:whole] = sums | np.uint64(1 << 63)
            levels.append(words)
        tree = np.concatenate([*levels, [np.uint64(77)]])
        found = np.zeros(tiles, "u8")
        addresses = [one.ctypes.data for one in (tree, counts, found)]
        state = np.array([*addresses, first, tiles], "u8").tobytes()
        library.launch("walk", state, last - first, 32)
        assert_same(found[first:last], want[first:last])
        assert tree[-1] == 77


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_kernels_compile_without_spills(arch: str) -> None:
    nvrtc.require()
    wide = itf.spec((1 << 32,), "int8")
    x, h = itf.spec((1 << 28,), "float32"), itf.spec((1 << 28,), "float16")
    rows = itf.spec((1 << 14, 1 << 14), "float32")
    cases = [(x[x > 0],), (h[h > 0],), (wide[wide > 0],), itf.nonzero(rows > 0),
             (x[itf.spec((1 << 28,), "bool")],), itf.three_way_partition(x, x > 1, x < 0),
             (rows[itf.spec((1 << 14,), "bool")],), (itf.unique_consecutive(x),)]  # fmt: skip
    sources = [
        lower_tile(planned(*found)[0].stages[0], f"k{at}{'na'[ok]}", bool(ok)).source
        for at, found in enumerate(cases)
        for ok in ((1, 0) if at == 0 else (1,))
    ]
    _, report = nvrtc.compile_cubin(unit(sources), arch)
    assert len(report.functions) == len(sources)
    for name, one in report.functions.items():
        assert (one.spill_stores, one.stack) == (0, 0), name
        assert one.registers is not None and one.registers <= 128, name
    first = report.functions["k0a_select"]
    assert first.registers is not None and first.registers <= 48 and first.shared <= 17_000
    (stage,) = planned(x[x > 0])[0].stages
    kernel = lower_tile(stage, "k0", True, arch)
    assert kernel.shared is not None and f"({kernel.block}, 5)" in kernel.source
    assert 5 * (kernel.shared(stage) + first.shared) <= TILES  # five tiles on their way


# ---- the cuda engine on a stand-in device ----------------------------------------------------
@pytest.fixture(scope="module")
def cp() -> Iterator[Any]:
    if host_cpp.why_not():
        pytest.skip(host_cpp.why_not())
    with fake_cupy.installed() as cupy:
        yield cupy
    fake_cupy.capturing.clear()


def test_on_a_device(cp: Any) -> None:
    x = itf.asarray(cp.asarray(X))
    fake_cupy.counts["launches"] = 0
    found = x[x > 0].compute()
    assert fake_cupy.counts["launches"] == 1
    assert_same(found, X[X > 0])
    assert found.data.mem.buffer.nbytes > X.nbytes  # half of the room is used: not copied
    few = x[x > 2].compute()
    assert_same(few, X[X > 2])
    assert few.data.mem.buffer.nbytes < X.nbytes // 4  # and this is: the room is free again
    assert_same(x[x > 99].compute(), X[:0, 0])
    assert_same((x[x > 0] * 2).compute(), X[X > 0] * 2)
    rows, columns = itf.compute(*itf.nonzero(x > 1))
    for got, want in zip((rows, columns), np.nonzero(X > 1), strict=True):
        assert_same(got, want)
    assert_same(x[[True] * 57].compute(), X)
    room = cp.empty(X.size, "f4")
    got = x[x > 0].compute(out=room)
    assert got.data.ptr == room.data.ptr
    assert_same(got, X[X > 0])
    stream = cp.cuda.Stream(non_blocking=True)
    assert_same(x[x > 0].compute(stream=stream), X[X > 0])


def test_a_graph_does_not_know_the_size(cp: Any) -> None:
    x = itf.asarray(cp.asarray(X))
    x[x > 0].compute()
    with cp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        before = fake_cupy.counts.copy()
        with pytest.raises(itf.Unsupported, match=r"a\[a > 0.0\]: .*graph being captured"):
            x[x > 0].compute()
        assert fake_cupy.counts == before  # nothing was allocated, which would spoil the capture
        stream.end_capture()
    assert_same(x[x > 0].compute(), X[X > 0])


def test_numpys_functions() -> None:
    x, v = itf.asarray(X), itf.asarray(V)
    for got, want in (
        (np.compress(V > 0, v), np.compress(V > 0, V)),
        (np.compress(X[0] > 0, x, axis=1), np.compress(X[0] > 0, X, axis=1)),
        (np.extract(X > 0, x), np.extract(X > 0, X)),
        (np.flatnonzero(x > 1), np.flatnonzero(X > 1)),
        (np.argwhere(x > 1), np.argwhere(X > 1)),
        *zip(np.nonzero(x > 1), np.nonzero(X > 1), strict=True),
    ):
        assert isinstance(got, itf.Selected)
        assert_same(got.compute(), want)
    with pytest.raises(ValueError, match="0-d"):
        np.nonzero(itf.asarray(1.0))


@pytest.mark.parametrize("seed", range(40))
def test_random_masks_and_axes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(0, 7, rng.integers(1, 4)).tolist())
    x = rng.integers(-5, 5, shape).astype(rng.choice(["i1", "f4", "c16"]))
    want = x[tuple(slice(None, None, int(rng.choice([-1, 1, 2]))) for _ in shape)].T
    lazy = itf.asarray(want)
    mask = rng.random(want.shape[: rng.integers(1, want.ndim + 1)]) < rng.choice([0, 0.3, 1])
    assert_same(lazy[mask].compute(), want[mask])
    axis = int(rng.integers(-want.ndim, want.ndim))
    condition = rng.random(rng.integers(0, want.shape[axis] + 1)) < 0.5
    assert_same(itf.compress(condition, lazy, axis).compute(), want.compress(condition, axis))
    for got, right in zip(itf.nonzero(lazy > 0), np.nonzero(want > 0), strict=True):
        assert_same(got.compute(), right)
    assert_same(itf.argwhere(lazy).compute(), np.argwhere(want))
