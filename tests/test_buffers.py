"""Arrays between passes: only those that somebody asked for; sums at places in one order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import host_cpp
from support.generated import HostEngine, as_cub_sorts, plan_for

import itfuse as itf
from itfuse import engines
from itfuse.engines.cpu import CpuEngine
from itfuse.testing import assert_same

RNG = np.random.default_rng(5)
V = itf.asarray(RNG.standard_normal(300))
ROWS = itf.asarray(RNG.standard_normal((6, 50)).astype("f4"))
PLACES = itf.asarray(RNG.integers(0, 300, 900))
Make = Callable[[], Any]


# ---- NeedsBuffer -----------------------------------------------------------------------------
HIDDEN: list[tuple[Make, str]] = [
    (lambda: V.cumsum().max(), "cumsum(a)"),
    (lambda: V.cumsum()[V > 0], "cumsum(a)"),
    (lambda: itf.diff(V.cumsum()), "cumsum(a)"),
    (lambda: V.cumsum() / V.cumsum().max(), "cumsum(a)"),
    (lambda: itf.bincount(V.cumsum().astype("i8"), length=9), "cumsum(a)"),
    (lambda: itf.cumsum(V.cumsum()[::-1]), "cumsum(a)"),
    (lambda: itf.segment_sum(V.cumsum(), [0, 5, 9]), "cumsum(a)"),
    (lambda: itf.sort(V) * 2, "sort(a)"),
    (lambda: itf.sort(V)[:3], "sort(a)"),
    (lambda: itf.sort(ROWS) * 2, "sort(a)"),
    (lambda: itf.take(V, itf.argsort(V)), "argsort(a)"),
    (lambda: itf.unique_consecutive(itf.sort(V)), "sort(a)"),
    (lambda: itf.put(V, [3], 1.0) * 2, "put(b, a, 1.0)"),
    (lambda: 1 + (itf.put(V, [3], 1.0) * 2).sum(), "put(b, a, 1.0)"),
]


@pytest.mark.parametrize("at", range(len(HIDDEN)))
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_an_array_that_nobody_asked_for_is_refused(at: int, device: str) -> None:
    make, name = HIDDEN[at]
    with pytest.raises(itf.NeedsBuffer) as caught:
        itf.plan(make()) if device == "cpu" else plan_for("auto", make())
    said = str(caught.value)
    assert name in said and "itf.buffered" in said and "itf.materialize" in said


ASKED: list[tuple[Make, int]] = [
    (lambda: V.cumsum() * 2, 1),
    (lambda: itf.diff(itf.buffered(V.cumsum())), 2),
    (lambda: itf.buffered(itf.sort(V)) * 2, 2),
    (lambda: itf.buffered(V * 2)[::2] + 1, 2),
    (lambda: itf.sort(V.cumsum() * 2), 2),  # the keys, which the scan's pass writes
    (lambda: itf.sort(itf.sort(V)), 2),
    (lambda: itf.sort(ROWS, axis=0) * 2, 3),
    (lambda: itf.topk(V, 3)[0], 2),
    (lambda: itf.median(V), 2),
    (lambda: itf.sort_by_key(PLACES[:300], V)[1], 3),
    (lambda: itf.put(itf.put(V, [3], 1.0), [4], 2.0), 2),
    (lambda: itf.bincount(PLACES, length=300) / 2, 2),
    (lambda: itf.sort(itf.bincount(PLACES, length=300))[:3], 3),
    (lambda: itf.segment_mean(V, [0, 5, 9]), 1),
    (lambda: itf.materialize(V.cumsum())[1:], 1),
]


@pytest.mark.parametrize("at", range(len(ASKED)))
def test_what_was_asked_for_and_what_is_small_may_lie_between(at: int) -> None:
    make, passes = ASKED[at]
    assert make().plan().passes <= passes
    assert make().compute().shape == make().shape


def test_a_result_is_no_hidden_array() -> None:
    s = V.cumsum()
    plan = itf.plan(s, s.max(), itf.diff(s))
    assert (plan.passes, plan.bytes_temporary) == (3, 0)
    got, top, steps = itf.compute(s, s.max(), itf.diff(s))
    assert_same(top, got.max())
    assert_same(steps, np.diff(got))
    ordered = itf.compute(itf.sort(V), itf.sort(V)[0])
    assert ordered[1] == ordered[0][0]
    both = plan_for("auto", itf.sort(ROWS), itf.sort(ROWS) * 2)
    assert both.passes == 4  # keys as integers, where rows begin, the sort, both results


def test_a_buffer_is_a_pass_that_the_plan_shows() -> None:
    lazy = itf.buffered(V * 2)[1:] + itf.buffered(V * 2)[:-1]
    plan = lazy.plan()
    assert (plan.passes, plan.bytes_temporary) == (2, 2400)
    assert "writes a * 2.0 to memory, as was asked" in itf.explain(lazy)
    want = V.compute() * 2
    assert_same(lazy.compute(), want[1:] + want[:-1])
    assert itf.buffered(V)._node is V._node
    assert_same(itf.buffered(V * 2).compute(), want)
    f = itf.fuse(lambda x: itf.buffered(x.cumsum())[1:] * 2)
    assert_same(f(V.compute()), V.cumsum().compute()[1:] * 2)
    with pytest.raises(itf.NeedsBuffer, match="max_passes is 1"):
        lazy.compute(max_passes=1)


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")
def test_the_row_kernel_writes_other_elements_too() -> None:
    asked = itf.softmax(ROWS), ROWS * 2 + 1, ROWS.max(-1), ROWS > 0
    plan = plan_for("tile", *asked)
    assert [stage.primitive for stage in plan.stages] == ["rows"]
    got = HostEngine([plan]).run(plan, *asked)
    np.testing.assert_allclose(got[0], asked[0].compute(), 1e-5)
    for one, want in zip(got[1:], itf.compute(*asked[1:]), strict=True):
        assert_same(one, want)


# ---- one order of sums at places -------------------------------------------------------------
class _AsOnTheGpu(CpuEngine):
    """Runs the plan of a GPU: sorts read what CUB reads."""

    name = "sorts"

    def build_key(self) -> tuple[Any, ...]:
        return ("sorts",)

    def build(self, stage: Any) -> Any:
        return as_cub_sorts if stage.primitive == "sort" else super().build(stage)


def run(lazy: itf.Array) -> Any:
    return engines.run(plan_for("auto", lazy), lazy._data, None, engine=_AsOnTheGpu())[0]


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int32", "float16", "float32", "float64", "complex128"]
)
def test_weights_on_a_gpu_are_added_in_one_order(dtype: str) -> None:
    for size in (0, 1, 2, 3000):
        a = RNG.standard_normal(size)
        w = (RNG.standard_normal(size) * 9).astype(dtype)
        lazy = itf.histogram(itf.asarray(a), 12, (-1, 2), weights=itf.asarray(w))[0]
        want, got = np.histogram(a, 12, (-1, 2), weights=w)[0], run(lazy)
        assert got.dtype == want.dtype
        loose = 1e-2 if dtype == "float16" else 1e-4
        np.testing.assert_allclose(got.astype("c16"), want.astype("c16"), loose, loose)
    places, weights = RNG.integers(-5, 60, 999), RNG.standard_normal(999)
    lazy = itf.bincount(itf.asarray(places), itf.asarray(weights), length=40)
    np.testing.assert_allclose(run(lazy), lazy.compute(), 1e-12, 1e-12)
    plan = plan_for("auto", itf.bincount(PLACES, itf.asarray(RNG.standard_normal(900)), length=9))
    assert [s.primitive for s in plan.stages] == ["transform", "sort", "transform", "segments"]
    # The places of the keys, keys and order, and where each of 10 bins begins.
    assert plan.bytes_temporary == 8 * (900 + 2 * 900 + 10)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("mode", ["set", "add", "min"])
def test_put_in_order(dtype: str, mode: str) -> None:
    base = (RNG.standard_normal((10, 10)) * 9).astype(dtype)
    index, values = RNG.integers(-90, 90, 500), (RNG.standard_normal(500) * 9).astype(dtype)
    if mode == "min" and dtype == "complex128":
        return
    lazy = itf.put(itf.asarray(base), itf.asarray(index), itf.asarray(values), mode, ordered=True)
    if mode == "min" and dtype in ("int8", "float16"):
        with pytest.raises(itf.Unsupported, match="no atomic min"):
            plan_for("auto", lazy)
        return
    got, want = run(lazy), lazy.compute()
    if mode == "add":
        loose = 0.05 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(got, want, loose, loose)
    else:
        assert_same(got, want)
    atomic = mode == "min" or (mode, dtype) == ("add", "int32")
    plan = plan_for("auto", lazy)
    assert (plan.passes == 1) == atomic
    assert [n.reason for n in plan.notes].count("determinism") == (not atomic)
    want = base.copy()
    assert itf.put(want, index, values, mode, ordered=True).compute(out=want) is want
    assert_same(want, lazy.compute())
    one = itf.put(itf.asarray(base), 3, itf.asarray(values[:1]), mode, ordered=True)
    assert_same(run(one), one.compute())
