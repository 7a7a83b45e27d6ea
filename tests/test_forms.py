"""Forms: expressions of other arrays and numbers run what was planned for the first, correctly."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse import evaluate as evaluating
from itfuse.cache import BUILT
from itfuse.engines import READY
from itfuse.expr import make
from itfuse.form import FORM_LEAVES
from itfuse.ops import INPUT, SCALAR
from itfuse.testing import (
    assert_matches_numpy,
    assert_same,
    edge_values,
    evaluate,
    random_expression,
)
from itfuse.wording import toposort


def elsewhere(lazy: itf.Array, seed: int) -> itf.Array:
    """Return the expression over other arrays of the same layout, and other numbers."""
    rng = np.random.default_rng(seed)
    made: dict[Any, Any] = {}
    data: dict[Any, Any] = {}
    for node in toposort((lazy._node,)):
        if node.op is INPUT:
            old = lazy._data[node]
            new = np.empty_like(old)
            new[...] = rng.permutation(old.reshape(-1)).reshape(old.shape)
            made[node] = itf.asarray(new)._node
            data[made[node]] = new
        elif node.op is SCALAR:
            other = node.dtype != bool and rng.random() < 0.5
            value = node.arg + node.dtype.type(1) if other else node.arg
            made[node] = make(SCALAR, (), node.dtype, (), value)
        else:
            srcs = tuple(made[src] for src in node.srcs)
            made[node] = make(node.op, srcs, node.dtype, node.shape, node.arg)
    return itf.Array(made[lazy._node], data, lazy._device)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_expressions_elsewhere() -> None:
    same = 0
    for seed in range(120):
        names = [("f4", "i4", "u1"), ("f8", "f4", "i8"), ("i4", "u2", "bool")][seed % 3]
        arrays = [edge_values(name, 60, seed + k).reshape(3, 20) for k, name in enumerate(names)]
        first = random_expression(seed, arrays, 1 + seed % 25)
        assert_matches_numpy(first, what=f"seed {seed}")
        for k in range(2):
            other = elsewhere(first, seed + 1000 * k)
            same += other._node.form is first._node.form
            assert_matches_numpy(other, what=f"seed {seed}, copy {k}")
    assert same > 100


def test_which_leaves_are_the_same_is_part_of_the_form() -> None:
    x, y, z = (itf.asarray(np.arange(4, dtype="f4") + k) for k in range(3))
    forms = {(a * b + c)._node.form for a in (x, y) for b in (x, y) for c in (x, y, z)}
    assert len(forms) == 5  # xxx, xxy, xyx, xyy, xyz
    assert (x * 2 + x * 2)._node.form is not (x * 2 + x * 3)._node.form
    assert (x * 2 + y * 3)._node.form is (z * 4 + x * 5)._node.form
    assert (x * 2)._node.form is not (x * np.float64(2))._node.form
    assert (x - y)._node.form is not (x + y)._node.form


def test_the_plan_is_made_once(monkeypatch: Any) -> None:
    READY.clear()
    made = []
    plan = evaluating.cached_plan
    monkeypatch.setattr(evaluating, "cached_plan", lambda *args: made.append(1) or plan(*args))
    for k in range(20):
        x, y = np.full(7, k, "f4"), np.full(7, 2.5, "f4")
        assert_same((itf.asarray(x) * float(k) + y).compute(), x * np.float32(k) + y)
        total, top = itf.compute(itf.asarray(x).sum(), itf.asarray(x).max())
        assert (float(total), float(top)) == (7 * k, k)
    assert len(made) == 2
    x = itf.asarray(np.arange(4, dtype="f4"))
    for expressions in ((x + 1, x * 2), (x * 2, x + 1), (x + 1, x + 1)):
        for got, one in zip(itf.compute(*expressions), expressions, strict=True):
            assert_same(got, evaluate(one))


def test_clearing_the_cache_builds_again() -> None:
    f = itf.fuse(lambda x: itf.cbrt(x) - 0.375)
    x = np.arange(4, dtype="f4")
    for _ in range(2):
        BUILT.clear()
        f(x)
        (itf.asarray(x) * 3 - itf.cbrt(x)).compute()
        assert BUILT.builds == 2


def test_out_is_checked_against_the_arrays_of_this_call() -> None:
    first = np.arange(9, dtype="f4")
    (itf.asarray(first[:8]) + 1).compute(out=np.empty(8, "f4"))
    x = np.arange(9, dtype="f4")
    with pytest.raises(itf.AliasError):
        (itf.asarray(x[1:]) + 1).compute(out=x[:8])
    part = x[:8]
    assert (itf.asarray(part) + 1).compute(out=part) is part
    assert_same(part, np.arange(8, dtype="f4") + 1)
    assert_same((itf.asarray(first[1:]) + 1).compute(out=x[:8]), first[1:] + 1)


def test_many_leaves_have_no_form_and_run() -> None:
    arrays = [np.full(5, k, "f4") for k in range(FORM_LEAVES + 5)]
    total = itf.asarray(arrays[0])
    for one in arrays[1:]:
        total = total + one
    assert total._node.form is None
    for _ in range(2):
        assert_same(total.compute(), sum(arrays[1:], arrays[0]))


def test_a_deep_expression_has_a_form_and_goes_away() -> None:
    x = itf.asarray(np.ones(3, "f4"))
    y = x
    for _ in range(50_000):
        y = -y
    assert y._node.form is not None
    del y
    gc.collect()
    z = itf.asarray(np.ones(3, "f4")) * 3
    assert_same(z.compute(), np.full(3, 3, "f4"))
