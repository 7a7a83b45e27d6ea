"""Views, creation, gathers and layouts on a GPU: the CPU engine's answers, one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_gather
import test_views
from support.views import chain, leaf

import itfuse as itf
from itfuse.testing import assert_same

pytestmark = pytest.mark.gpu


def on_gpu(cp: Any, x: np.ndarray) -> Any:
    """Return a device array with the very strides of `x`."""
    if not x.ndim or not x.size:
        return cp.asarray(x)
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    packed = cp.asarray(np.ascontiguousarray(x.transpose(order)))
    back = packed.transpose([order.index(axis) for axis in range(x.ndim)])
    assert_same(back, x)
    return back


@pytest.mark.parametrize("strategy", ["tile", "cub"])
@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_views_of_expressions(cp: Any, layout: str, strategy: str) -> None:
    x = cp.asarray(test_views.X)
    x = {"C": x, "F": cp.asfortranarray(x), "strided": cp.repeat(x, 3, 1)[:, ::3]}[layout]
    with itf.config(strategy=strategy):
        for text, ours, theirs in test_views.VIEWS:
            lazy = ours(itf.asarray(x) * 2 + 1)
            assert itf.plan(lazy).passes == 1
            assert_same(lazy.compute(), theirs(test_views.X * 2 + 1), what=text)


@pytest.mark.parametrize("strategy", ["tile", "cub"])
def test_reads_at_computed_places(cp: Any, strategy: str) -> None:
    for text in test_gather.CASES:
        names = {"x": test_gather.X * 2 + 1, "i": test_gather.ROWS, "j": test_gather.J}
        want = np.asarray(eval(text, {**names, "xp": np}))
        ours = {name: itf.asarray(cp.asarray(one)) for name, one in names.items()}
        space = type("xp", (), {name: getattr(itf, name) for name in itf.__all__})
        space.asarray = staticmethod(lambda one: itf.asarray(cp.asarray(one)))
        with itf.config(strategy=strategy):
            lazy = eval(text, {**ours, "xp": space})
            assert_same(lazy.compute(), want, what=text)


def test_random_chains(cp: Any) -> None:
    for seed in range(60):
        random = np.random.default_rng(seed)
        x = leaf(random, seed % 4)
        lazy, want = chain(random, (itf.asarray(x) * 2 + 1, x * 2 + 1), 5, gathers=seed % 2 == 0)
        rows, arrays = _parts(lazy)
        there = _again(rows, [on_gpu(cp, one) for one in arrays])
        assert_same(there.compute(), want, what=f"seed {seed}")
        assert_same(there.sum().compute(), np.asarray(want.sum()), what=f"sum, seed {seed}")


def _parts(lazy: itf.Array) -> Any:
    from itfuse import protocol

    return protocol._serialised(lazy)


def _again(rows: Any, arrays: Any) -> itf.Array:
    from itfuse import protocol

    return protocol._restored(rows, arrays, "any")


def test_bounds(cp: Any) -> None:
    x = itf.asarray(cp.arange(10.0)) * 2
    index = cp.asarray([0, 9, -10, 10, -11, 1 << 40])
    clamped = x[index].compute()  # stays inside the array
    assert clamped.get().tolist() == [0, 18, 0, 18, 0, 18]
    with itf.config(bounds_check=True):
        with pytest.raises(IndexError, match="out of bounds"):
            x[index].compute()
        assert x[index[:3]].compute().get().tolist() == [0, 18, 0]


def test_out_of_any_layout(cp: Any) -> None:
    for lazy, want in test_views.expressions():
        rows, arrays = _parts(lazy)
        there = _again(rows, [cp.asarray(one) for one in arrays])
        for out in (
            cp.zeros((6, 4), "f4").T, cp.zeros((4, 12), "f4")[:, ::2],
            cp.zeros((4, 6), "f4")[::-1, ::-1], cp.zeros((12, 12), "f4")[::3, 1::2],
        ):  # fmt: skip
            assert there.compute(out=out) is out
            assert_same(out, want)
    x = cp.asfortranarray(cp.asarray(test_views.X))
    (itf.asarray(x) * 2).compute(out=x)
    assert_same(x, test_views.X * 2)


def test_creation_runs_where_it_is_combined_and_on_the_gpu_alone(cp: Any) -> None:
    alone = itf.arange(7, dtype="f4").compute()
    assert isinstance(alone, cp.ndarray) and alone.get().tolist() == list(range(7))
    assert isinstance(itf.zeros(3, device="cpu").compute(), np.ndarray)
    x = cp.arange(6.0)
    assert_same((itf.asarray(x) + itf.arange(6)).compute(), np.arange(6.0) * 2)
    big = 1 << 22
    assert int(itf.arange(big).sum()) == big * (big - 1) // 2


def test_protocol(cp: Any) -> None:
    import copy
    import pickle

    lazy = itf.asarray(cp.arange(6.0).reshape(2, 3)).T * 2
    for again in (pickle.loads(pickle.dumps(lazy)), copy.deepcopy(lazy)):
        assert_same(again.compute(), lazy.compute().get())
    assert lazy.__dlpack_device__()[0] == 2
    assert_same(cp.from_dlpack(lazy), lazy.compute().get())
    assert_same(lazy[[0, -1]].compute(), lazy.compute().get()[[0, -1]])
    assert float(lazy[1, 1]) == 8.0
    with pytest.raises(TypeError, match="implicit"):
        np.asarray(lazy)


def test_over_2_to_the_31_elements(cp: Any) -> None:
    rows = 1 << 29
    x = cp.arange(5, dtype="u1")
    lazy = itf.broadcast_to(itf.asarray(x) + 1, (rows, 5))[:, ::-1]  # 2.5 * 2**30 elements
    out = lazy.compute()
    assert out.shape == (rows, 5)
    assert out[rows - 1].get().tolist() == [5, 4, 3, 2, 1]
    assert bool((out == x[::-1] + 1).all())
