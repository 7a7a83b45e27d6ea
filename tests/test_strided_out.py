"""`out=` with strides: written in the pass itself, or by a copy that the plan shows, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import host_cpp
from support.generated import HostEngine

import itfuse as itf
from itfuse.plan import make_plan
from itfuse.testing import assert_same

X = np.random.default_rng(0).normal(size=(6, 40)).astype("f4")

# What has one element for each row, segment or bin is copied by a second pass.
FEW: dict[str, Any] = {
    "sum": lambda x: x.sum(1), "argmax": lambda x: x.argmax(1), "columns": lambda x: x.sum(0),
    "keepdims": lambda x: x.max(1, keepdims=True), "epilogue": lambda x: itf.sqrt((x * x).sum(1)),
    "var": lambda x: x.var(0), "two axes": lambda x: x.reshape(2, 3, 40).mean(2),
    "turned": lambda x: x.reshape(2, 3, 40).mean(0).T, "axis": lambda x: x.sum(1)[:, None] + 1,
    "bincount": lambda x: itf.bincount((x[0] * 3).astype("i8") % 7, minlength=7),
}  # fmt: skip
# What is written element by element needs no other pass.
ONCE: dict[str, Any] = {
    "map": lambda x: x * 2, "view": lambda x: x.T + 1, "scan": lambda x: itf.cumsum(x, axis=1),
    "segments": lambda x: itf.segment_sum(x[0], [0, 5, 40]),
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "softmax": itf.softmax, "sort": itf.sort, "argsort": itf.argsort,
    "centred": lambda x: x - x.mean(1, keepdims=True),
}  # fmt: skip


def apart(want: np.ndarray) -> np.ndarray:
    """Return an array with room between its elements along the last axis."""
    return np.zeros((*want.shape[:-1], 2 * want.shape[-1]), want.dtype)[..., ::2]


@pytest.mark.parametrize("name", [*FEW, *ONCE])
def test_results_go_where_the_caller_says(name: str) -> None:
    lazy = {**FEW, **ONCE}[name](itf.asarray(X))
    want = lazy.compute()
    out = apart(want)
    assert lazy.compute(out=out) is out
    assert_same(out, want)
    assert not out.base[..., 1::2].any()
    plan = make_plan((lazy._node,), layouts=(out.strides,))
    alone = itf.plan(lazy)
    if name in ONCE:
        assert plan.passes == alone.passes == 1
        return
    assert plan.passes == 2 and plan.stages[-1].primitive == "transform"
    if alone.passes == 1:
        assert plan.bytes_temporary == want.nbytes
        assert any(note.reason == "strided-out" and "out=" in note.text for note in plan.notes)
        with pytest.raises(itf.NeedsBuffer, match="strides of out="):
            lazy.compute(out=apart(want), max_passes=1)


@pytest.mark.parametrize("name", WHOLE)
def test_a_copy_of_everything_is_not_made_unasked(name: str) -> None:
    lazy = WHOLE[name](itf.asarray(X))
    want = lazy.compute()
    out = apart(want)
    with pytest.raises(
        itf.ShapeError, match=r"row-major order; pass a contiguous array, or assign"
    ):
        lazy.compute(out=out)
    assert not out.any()
    out[...] = lazy.compute()
    assert_same(lazy.compute(out=np.empty_like(want)), want)


def test_one_of_several_results() -> None:
    x = itf.asarray(X)
    out = np.zeros(12, "f4")[::2]
    total, top = itf.compute(x.sum(1), x.max(1), out=(out, None))
    assert total is out
    assert_same(out, x.sum(1).compute())
    assert_same(top, X.max(1))


def test_into_a_column_of_the_input() -> None:
    own = X.copy()
    result = itf.asarray(own).sum(1).compute(out=own[:, 0])
    assert_same(result, itf.asarray(X).sum(1).compute())
    np.testing.assert_array_equal(own[:, 1:], X[:, 1:])


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
def test_in_generated_code() -> None:
    lazies = [FEW[name](itf.asarray(X)) for name in ("sum", "columns", "epilogue", "turned")]
    outs = [apart(lazy.compute()) for lazy in lazies]
    plans = [
        make_plan((lazy._node,), device="cuda:0", layouts=(out.strides,))
        for lazy, out in zip(lazies, outs, strict=True)
    ]
    engine = HostEngine(plans)
    for lazy, plan, out in zip(lazies, plans, outs, strict=True):
        engine.run(plan, lazy, out=(out,))
        assert_same(out, lazy.compute())


def test_where_numpys_own_ufuncs_are_wrong() -> None:
    """NumPy 2.4's isfinite and isnan from strides to strides; blocks are written aside."""
    x = np.arange(27.0).reshape(3, 3, 3)
    x[0, 1] = np.nan
    for function in (itf.isfinite, itf.isnan):
        lazy = function(itf.asarray(x).T.reshape(27))
        out = np.zeros(54, bool)[::2]
        lazy.compute(out=out)
        assert_same(out, function(itf.asarray(np.ascontiguousarray(x.T).reshape(27))).compute())


def test_axes_of_one_element_that_the_pass_leaves_out() -> None:
    x = np.arange(8.0).reshape(2, 4)
    for shape in ((1, 4, 2, 1), (4, 1, 2, 1, 1), (1, 1, 8, 1)):
        lazy = itf.asarray(x).T.reshape(4, 2).reshape(shape) * 2
        out = apart(np.zeros(shape))
        lazy.compute(out=out)
        assert_same(out, x.T.reshape(shape) * 2)


def test_shapes_that_the_pass_has_not_are_refused() -> None:
    x = np.arange(64.0).reshape(8, 8)
    lazy = (itf.asarray(x) - itf.asarray(x).mean(0)).reshape(4, 16)  # written over (8, 8)
    want = (x - x.mean(0)).reshape(4, 16)
    with pytest.raises(itf.ShapeError, match=r"pass a contiguous array"):
        lazy.compute(out=apart(want))
    few = itf.asarray(x).sum(1).reshape(1, 4, 2, 1)
    out = apart(np.zeros((1, 4, 2, 1)))
    assert_same(few.compute(out=out), x.sum(1).reshape(1, 4, 2, 1))
