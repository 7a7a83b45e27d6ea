"""Reads at computed places: take, index arrays, joining, searching. One pass, NumPy's answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import host_cpp
from support.generated import HostEngine, plan_for
from support.views import random_key

import itfuse as itf
from itfuse.engines import cpu
from itfuse.plan.views import bounds_checks
from itfuse.testing import assert_same, evaluate

X = np.arange(24.0).reshape(4, 6)
ROWS, J = np.array([3, 0, -1]), np.array([[1], [-4]], "i2")
CASES = """
x[i]
x[:, i]
x[i, j]
x[i, :, None]
x[None, i, ..., 0]
x[i][:, i]
x[j]
x[1:, j]
x[:, i][::-1, 1:]
x[[0, -4]]
x[[[0], [1]], [[2, 3]]]
x[i, 2]
x[2, i]
x[xp.asarray(2), 1:]
x.reshape(2, 2, 6)[:, [0, 1], [2, 3]]
x.reshape(2, 2, 6)[[0, 1], :, [2, 3]]
x.reshape(2, 2, 6)[0, :, [2, 3]]
x[[]]
x[:, []]
x[i.astype('u4') * 0 + 1]
x[[True, False][0:0]]
x.T[i]
x.ravel()[i]
x.ravel()[::-1][i]
x[::2].ravel()[i]
x.reshape(3, 8)[[0, 2], 5]
x.take(i)
x.take(j, axis=1)
xp.take(x, i, axis=-1)
xp.take(x, 2, axis=0)
xp.take(x, [7, -9], axis=1, mode='wrap')
xp.take(x, [7, -9], axis=1, mode='clip')
xp.take_along_axis(x, j[:, [0, 0, 0, 0]].T[:, :1].reshape(4, 1) * 0 + 1, 1)
xp.take_along_axis(x, i[None, :], 1)
xp.take_along_axis(x, i[:, None], 0)
xp.concat([x, x * 2], 1)
xp.concat([x[0], x[:0].ravel(), x[1, :2]])
xp.concat([x, x], None)
xp.concat([x.T, x[:2].T], -1)
xp.stack([x, x + 1])
xp.stack([x[0], x[1] * 2], 1)
xp.concat([x > 3, i[None, [0, 0, 0, 0, 0, 0]]])
xp.concat([x])
xp.roll(x, 5)
xp.roll(x, -1, 0)
xp.roll(x, (1, 2), (0, 1))
xp.roll(x, 1, (0, 1))
xp.roll(x[:0], 3)
xp.repeat(x, 3)
xp.repeat(x, 2, 1)
xp.repeat(x, 0, 0)
xp.tile(x, 2)
xp.tile(x, (2, 1, 3))
xp.tile(x, ())
xp.diff(x)
xp.diff(x, 2, 0)
xp.diff(x, prepend=0)
xp.diff(x, append=x[:, :2])
xp.diff(x > 5)
xp.diff(x, 0)
xp.pad(x, 2)
xp.pad(x, (1, 2), mode='edge')
xp.pad(x, ((0, 9), (7, 0)), mode='wrap')
xp.pad(x, ((8, 1), (1, 13)), mode='reflect')
xp.pad(x, 11, mode='symmetric')
xp.pad(x, 1, constant_values=5)
xp.pad(x[:1], ((3, 2), (0, 0)), mode='reflect')
xp.searchsorted(x.ravel(), x * 1.5 - 3)
xp.searchsorted(x.ravel(), x, side='right')
xp.searchsorted(x[0] // 2, x)
xp.searchsorted(x[0] // 2, x, side='right')
xp.searchsorted(x[0, :0], x)
xp.searchsorted(x[0, :1], x)
xp.searchsorted(x[0], i)
xp.searchsorted(x[0][::-1], x, sorter=xp.asarray([5, 4, 3, 2, 1, 0]))
xp.searchsorted(xp.asarray([1., float('nan'), float('nan')]), xp.asarray([0., float('nan'), 2.]))
xp.concatenate([x, x])
""".strip().splitlines()


def pairs() -> list[tuple[str, itf.Array, np.ndarray]]:
    found = []
    for text in CASES:
        ours = {"x": itf.asarray(X) * 2 + 1, "i": itf.asarray(ROWS), "j": itf.asarray(J), "xp": itf}
        theirs = {"x": X * 2 + 1, "i": ROWS, "j": J, "xp": np}
        found.append((text, eval(text, ours), np.asarray(eval(text, theirs))))
    return found


def test_cases() -> None:
    for text, lazy, want in pairs():
        plan = itf.plan(lazy)
        assert plan.passes == 1, text
        assert (plan.bytes_written, plan.bytes_temporary) == (want.nbytes, 0), text
        assert_same(lazy.compute(), want, what=text)
        assert_same(evaluate(lazy), want, what=text)


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
def test_cases_in_generated_code() -> None:
    cases = pairs()
    plans = [(case, plan_for(s, case[1])) for case in cases for s in ("tile", "cub.iterator")]
    plans += [
        ((f"max {t}", x.max(), w.max()), plan_for("tile", x.max())) for t, x, w in cases if w.size
    ]
    engine = HostEngine(plan for _, plan in plans)
    for (text, lazy, want), plan in plans:
        (got,) = engine.run(plan, lazy)
        assert_same(got, np.asarray(want), what=f"{text} by {plan.stages[0].strategy}")


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_index_arrays_mixed_with_everything(seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.integers(-99, 99, tuple(random.integers(1, 5, random.integers(1, 5))))
    key = random_key(random, x.shape, True)
    lazy = (itf.asarray(x) + 1)[key]
    assert_same(lazy.compute(), np.asarray((x + 1)[key]), what=f"seed {seed}: {key}")


def test_indices_are_expressions_too() -> None:
    x, i = itf.asarray(X) * 2, itf.asarray(ROWS)
    lazy = x[(i * 2 + 1) % 4, itf.arange(3)]
    assert_same(lazy.compute(), (X * 2)[(ROWS * 2 + 1) % 4, np.arange(3)])
    plan = itf.plan(lazy)
    assert plan.passes == 1
    assert plan.bytes_read == 3 * 8 + 3 * 8  # the indices, and as many elements
    assert_same((x[i] + x[i[::-1]])[::-1].compute(), ((X * 2)[ROWS] + (X * 2)[ROWS[::-1]])[::-1])


@pytest.mark.parametrize("layout", ["F", "reversed", "strided", "unaligned"])
def test_layouts(layout: str) -> None:
    spread = np.repeat(X, 2, 1)[:, ::2]
    x = {"F": np.asfortranarray(X), "reversed": X[::-1, ::-1], "strided": spread,
         "unaligned": np.zeros(X.shape, [("a", "i1"), ("b", "f8")])["b"]}[layout]  # fmt: skip
    if layout == "unaligned":
        x[...] = X
    assert_same((itf.asarray(x) * 2)[ROWS, J].compute(), (x * 2)[ROWS, J])
    assert_same(itf.roll(itf.asarray(x), 5).compute(), np.roll(x, 5))
    assert_same(itf.asarray(x).T.reshape(8, 3).compute(), x.T.reshape(8, 3))


@pytest.mark.parametrize("bad", [[4], [-5], [0, 99], [[-99]]])
def test_out_of_bounds_is_an_index_error(bad: list[Any]) -> None:
    x = itf.asarray(X) * 2
    for lazy in (x[bad], x.take(bad, axis=0), x[1:][:, ::-1][np.array(bad) - 0], x[bad].sum()):
        with pytest.raises(IndexError, match="out of bounds") as caught:
            lazy.compute()
        assert isinstance(caught.value, itf.BoundsError)
        assert "a * 2.0" in str(caught.value)
    assert_same(x[[0]].compute(), X[[0]] * 2)
    # An index that fits the array but not its view.
    with pytest.raises(IndexError):
        x[1:][[3]].compute()
    with pytest.raises(IndexError):
        x[1:][[-4]].compute()


def test_bounds_are_known_beforehand_where_they_can_be() -> None:
    x = itf.asarray(X[:0])
    with pytest.raises(IndexError, match="no elements"):
        x[[0]]
    assert x[[]].shape == (0, 6)
    with pytest.raises(IndexError, match="integers"):
        itf.asarray(X)[np.array([1.0])]
    with pytest.raises(itf.Unsupported, match="booleans"):
        itf.take(X, [True, False])
    for mask in (X > 3, X[:, 0] > 3, True, np.bool_(True)):
        assert itf.asarray(X)[mask].ndim == X[mask].ndim
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        itf.asarray(X)[[0, 1, 2], [0, 1]]
    with pytest.raises(ValueError, match="mode"):
        itf.take(X, [0], mode="nearest")
    with pytest.raises(itf.ShapeError, match="repeats"):
        itf.repeat(X, np.array([1, 2]))
    with pytest.raises(itf.Unsupported, match="mode"):
        itf.pad(X, 1, mode="mean")
    with pytest.raises(ValueError, match="at least one"):
        itf.concat([])
    with pytest.raises(ValueError, match="except along"):
        itf.concat([X, X.T])
    with pytest.raises(ValueError, match="one shape"):
        itf.stack([X, X.T])


def test_the_device_check_finds_what_the_cpu_engine_raises() -> None:
    x = itf.asarray(X) * 2
    for index, wrong in (([3, -4], False), ([4], True), ([-5], True)):
        lazy = x[index] + x[:, [0]][index]
        checks = bounds_checks((lazy._node,))
        assert len(checks) == 3
        found = itf.compute(*(lazy._of(check) for check in checks))
        assert sum(bool(one) for one in found) == 2 * wrong


def test_searchsorted_is_numpys_at_every_size() -> None:
    random = np.random.default_rng(0)
    for size in (*range(1, 40), 127, 128, 1000):
        x = np.sort(random.integers(0, size, size)).astype("f4")
        v = random.uniform(-1, size + 1, 64).round(0).astype("f8")
        for side in ("left", "right"):
            got = itf.searchsorted(itf.asarray(x), v, side=side).compute()
            assert_same(got, np.searchsorted(x, v, side=side), what=f"{size} {side}")


def test_blocks_and_threads() -> None:
    size = 2 * cpu.BLOCK + 17
    x = np.random.default_rng(0).integers(0, 99, size)
    index = np.random.default_rng(1).integers(-size, size, size)
    with itf.config(threads=3):
        assert_same((itf.asarray(x) + 1)[index].compute(), (x + 1)[index])
        assert_same(itf.roll(itf.asarray(x), 3).sum().compute(), x.sum())
        index[-1] = size
        with pytest.raises(IndexError, match=f"index {size}"):
            itf.asarray(x)[index].compute()


def test_stencils() -> None:
    x = np.random.default_rng(0).normal(size=(20, 30))
    lazy = itf.asarray(x)
    laplace = (
        itf.shift(lazy, 1, 0, "edge") + itf.shift(lazy, -1, 0, "edge")
        + itf.shift(lazy, 1, 1, "edge") + itf.shift(lazy, -1, 1, "edge") - 4 * lazy
    )  # fmt: skip
    wide = np.pad(x, 1, mode="edge")
    want = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:] - 4 * x
    assert_same(laplace.compute(), want)
    assert itf.plan(laplace).bytes_read == x.nbytes


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_lists_of_indices_go_where_the_array_is(mode: str) -> None:
    x = np.arange(5.0)
    want = np.take(x, [1, 3], mode=mode)
    assert_same(itf.take(x, [1, 3], mode=mode).compute(), want)
    assert itf.spec((5,), "f8").take([1, 3], mode=mode).shape == (2,)
