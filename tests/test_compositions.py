"""NumPy's functions that are compositions, against NumPy: random operands and odd ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_arguments import agree

import itfuse as itf

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4, 6))
CUBE = RANDOM.integers(-9, 9, (2, 3, 4)).astype("i2")
LINE = np.array([3.0, -1.5, np.nan, 0.0, -0.0, np.inf, 2.5])
OPERANDS = (
    X, X.astype("f4"), X.T, X[::-2, ::3], CUBE, LINE, LINE[:1], np.zeros((0, 3)), np.array(2.5),
    np.arange(5), np.arange(5, dtype="u1"), np.array([True, False, True]), X * (1 + 2j),
    np.arange(1), np.zeros(0), np.arange(9.0).reshape(3, 3), np.asfortranarray(CUBE),
)  # fmt: skip

ARRANGED: dict[str, Any] = {
    "atleast_1d": lambda m, x: np.atleast_1d(x),
    "atleast_2d": lambda m, x: np.atleast_2d(x),
    "atleast_3d": lambda m, x: np.atleast_3d(x),
    "two": lambda m, x: np.atleast_2d(x, x),
    "vstack": lambda m, x: np.vstack([x, x]),
    "hstack": lambda m, x: np.hstack((x, x)),
    "dstack": lambda m, x: np.dstack([x, x]),
    "column_stack": lambda m, x: np.column_stack([x, x]),
    "vstack dtype": lambda m, x: np.vstack([x, x], dtype="c16"),
    "hstack cast": lambda m, x: np.hstack([x, x], dtype="i1", casting="unsafe")
    if x.dtype.kind in "iub" else np.hstack([x, x], dtype="u1"),
    "block": lambda m, x: np.block([[x, x], [x, x]]),
    "block1": lambda m, x: np.block([x, x]),
    "block0": lambda m, x: np.block([[[x]]]),
    "append": lambda m, x: np.append(x, x),
    "append axis": lambda m, x: np.append(x, x, axis=-1),
    "append 1": lambda m, x: np.append(x, 300),
    "split 2": lambda m, x: tuple(np.split(x, 2)),
    "split 3": lambda m, x: tuple(np.split(x, 3, -1)),
    "split at": lambda m, x: tuple(np.split(x, [1, 3])),
    "split odd": lambda m, x: tuple(np.split(x, [3, 1, -1, 99], axis=0)),
    "array_split": lambda m, x: tuple(np.array_split(x, 3)),
    "array_split 0": lambda m, x: tuple(np.array_split(x, 0)),
    "hsplit": lambda m, x: tuple(np.hsplit(x, 2)),
    "vsplit": lambda m, x: tuple(np.vsplit(x, 2)),
    "dsplit": lambda m, x: tuple(np.dsplit(x, [1])),
    "fliplr": lambda m, x: np.fliplr(x),
    "flipud": lambda m, x: np.flipud(x),
    "rot90": lambda m, x: np.rot90(x),
    "rot90 k": lambda m, x: np.rot90(x, -5, (-1, 0)),
    "rot90 2": lambda m, x: np.rot90(x, 2),
    "rot90 wrong": lambda m, x: np.rot90(x, 1, (0, 0)),
    "rollaxis": lambda m, x: np.rollaxis(x, 1),
    "rollaxis to": lambda m, x: np.rollaxis(x, 0, 2),
    "rollaxis -": lambda m, x: np.rollaxis(x, -1, -1),
    "rollaxis wrong": lambda m, x: np.rollaxis(x, 0, 9),
    "diag": lambda m, x: np.diag(x),
    "diag 1": lambda m, x: np.diag(x, 1),
    "diag -2": lambda m, x: np.diag(x, -2),
    "diagflat": lambda m, x: np.diagflat(x, 1) if x.size < 30 else np.diag(x),
    "resize": lambda m, x: np.resize(x, (3, 5)),
    "resize less": lambda m, x: np.resize(x, 2),
    "resize 0": lambda m, x: np.resize(x, (0, 2)),
    "copy": lambda m, x: np.copy(x),
    "delete": lambda m, x: np.delete(x, 1),
    "delete axis": lambda m, x: np.delete(x, [0, -1], 0),
    "delete all": lambda m, x: np.delete(x, slice(None), -1),
    "delete slice": lambda m, x: np.delete(x, slice(None, None, 2), 0),
    "delete mask": lambda m, x: np.delete(x, np.array([True, False, True]), 0),
    "delete none": lambda m, x: np.delete(x, [], 0),
    "delete far": lambda m, x: np.delete(x, 99),
    "delete twice": lambda m, x: np.delete(x, [1, 1, 0, -1]),
    "insert": lambda m, x: np.insert(x, 1, 7),
    "insert end": lambda m, x: np.insert(x, x.size, 7),
    "insert axis": lambda m, x: np.insert(x, [1, 0, 1], 5, axis=-1),
    "insert many": lambda m, x: np.insert(x, 0, x[..., :2], axis=-1),
    "insert list": lambda m, x: np.insert(x, [0], x[..., :1], axis=-1),
    "insert -": lambda m, x: np.insert(x, -1, [1, 2]),
    "insert far": lambda m, x: np.insert(x, 99, 1),
    "insert slice": lambda m, x: np.insert(x, slice(0, None, 2), 3, axis=0),
    "insert mask": lambda m, x: np.insert(x, np.array([True, False, True]), 3, axis=0),
    "insert none": lambda m, x: np.insert(x, [], 3),
    "insert big": lambda m, x: np.insert(x, 0, 300),
    "iscomplex": lambda m, x: np.iscomplex(x),
    "isreal": lambda m, x: np.isreal(x),
    "fix": lambda m, x: np.fix(x),
    "choose": lambda m, x: np.choose([0, 1, 0], [x, x * 2]),
    "choose wrap": lambda m, x: np.choose(x % 3, [x, -9, 4], mode="wrap"),
    "choose clip": lambda m, x: np.choose(x, [x, x + 2], mode="clip"),
    "isin": lambda m, x: np.isin(x, [0, 2, 2.5]),
    "isin not": lambda m, x: np.isin(x, [2], invert=True),
    "isin none": lambda m, x: np.isin(x, []),
    "polyval": lambda m, x: np.polyval([1, 2, 0.5], x),
    "polyval ints": lambda m, x: np.polyval(np.array([2, -1, 3]), x),
    "polyval none": lambda m, x: np.polyval([], x),
    "ediff1d": lambda m, x: np.ediff1d(x),
    "ediff1d ends": lambda m, x: (
        np.ediff1d(x, [1, 2], 3) if x.dtype.kind in "fc" else np.ediff1d(x)
    ),
    "outer": lambda m, x: np.outer(x, x),
    "vander": lambda m, x: np.vander(x),
    "vander up": lambda m, x: np.vander(x, 3, increasing=True),
    "vander 0": lambda m, x: np.vander(x, 0),
    "kron": lambda m, x: np.kron(x, np.arange(3)),
    "kron self": lambda m, x: np.kron(np.ones((2, 1, 2), "i1"), x),
    "piecewise": lambda m, x: np.piecewise(x, [x > 1, x > 2], [1, lambda v: v * 2, 3]),
    "piecewise one": lambda m, x: np.piecewise(x, x >= 0, [lambda v, by: v + by], 3),
    "gradient": lambda m, x: np.gradient(x),
    "gradient dx": lambda m, x: np.gradient(x, 0.5),
    "gradient axis": lambda m, x: np.gradient(x, axis=0),
    "gradient 2": lambda m, x: np.gradient(x, edge_order=2),
    "gradient at": lambda m, x: np.gradient(x, [0.0, 1.0, 1.5, 4.0, 4.5, 9.0], axis=-1),
    "gradient at 2": lambda m, x: np.gradient(x, [0.0, 1, 1.5, 4, 4.5, 9], axis=-1, edge_order=2),
    "gradient even": lambda m, x: np.gradient(x, [0, 2, 4, 6, 8, 10], axis=-1),
    "gradient many": lambda m, x: np.gradient(x, 2, 3),
    "gradient 3": lambda m, x: np.gradient(
        x, 2, 3, 4, 5),
}  # fmt: skip
_ODD = {
    "choose wrap": "iu",
    "choose clip": "iu",
    "gradient": "iufc",
    "fix": "biuf",
    "polyval": "biuf",
    "outer": "biuf",
    "vander": "biuf",
}


@pytest.mark.parametrize("name", ARRANGED)
def test_compositions_are_numpys(name: str) -> None:
    for x in OPERANDS:
        if name.startswith("piecewise") and not x.size:
            continue  # NumPy looks at the first condition
        if x.dtype.kind in _ODD.get(name.split(maxsplit=1)[0], _ODD.get(name, x.dtype.kind)):
            agree(ARRANGED[name], x)


def near(call: Any, *operands: np.ndarray, ulp: float = 8) -> None:
    want = call(*operands)
    got = call(*(itf.asarray(x) for x in operands)).compute()
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    scale = np.spacing(np.max(np.abs(want), initial=1e-300))
    np.testing.assert_allclose(got, want, rtol=0, atol=ulp * scale)


def test_sums() -> None:
    for x in (X, CUBE, X.astype("f4"), np.arange(9.0).reshape(3, 3)):
        near(np.trace, x)
        near(lambda x: np.trace(x, 1, -1, 0, dtype="f8"), x)
        near(np.trapezoid, x)
        near(lambda x: np.trapezoid(x, dx=0.5, axis=0), x)
        near(lambda x: np.trapezoid(x, [0, 2, 3, 9, 10, 11][: x.shape[-1]]), x)
        near(lambda x: np.trapezoid(x, x, axis=0), x)
        near(lambda x: np.unwrap(x * 5), x)
        near(lambda x: np.unwrap(x * 5, axis=0, period=4), x.astype("f8"))
    near(lambda x: np.unwrap(x, period=4), np.array([0, 3, 1, 0, 7, -9]))
    near(lambda x: np.unwrap(x, period=5), np.array([0, 3, 1, 0, 7, -9]))
    near(lambda x: np.unwrap(x, discont=4, period=6), np.array([0, 3, 1, 0, 7, -9]))
    near(np.cross, X[:, :3], X[:, 3:])
    near(lambda a, b: np.cross(a, b, axis=0), X[:3], X[1:])
    near(lambda a, b: np.cross(a, b, 0, 1, 0), X[:3].T.T, X[:, :3][[0] * 6])
    assert itf.plan(itf.trapezoid(itf.asarray(X))).passes == 1
    assert itf.plan(itf.unwrap(itf.asarray(X))).passes == 1


XP, FP = np.array([0.0, 0.5, 2, 3, 3, 7]), np.array([1.0, -2, 5, 5, 8, np.inf])


def test_interpolation() -> None:
    x = np.array([-1, 0, 0.25, 0.5, 1.9, 2.5, 3, 3.5, 7, 9, np.nan, np.inf, -np.inf])
    for fp in (
        FP[:5],
        FP[:5] * 1j + 2,
        np.array([1, 2, 3, 4, 5]),
        np.array([1, np.inf, 3, 3, -np.inf]),
    ):
        for ends in ({}, {"left": -9}, {"right": 5.5, "left": 0}):
            for at in (x, x[:4].reshape(2, 2), np.arange(4), x.astype("f4")):
                want = np.interp(at, XP[:5], fp, **ends)
                for given in ((XP[:5], fp), (itf.asarray(XP[:5]), itf.asarray(fp))):
                    got = itf.interp(itf.asarray(at), *given, **ends)
                    np.testing.assert_array_equal(got.compute(), want)
                    assert got.dtype == want.dtype and itf.plan(got).passes == 1
    near(lambda v: np.interp(v, [190, -190, 350, -350], [5, 10, 3, 4], period=360),
         np.array([-180.0, -170, -185, 185, -10, -5, 0, 365]))  # fmt: skip
    assert itf.interp(itf.asarray([1.0]), [0], [5]).tolist() == [5]
    for wrong in (([], []), ([1, 2], [1]), ([[1]], [[1]])):
        with pytest.raises(itf.ShapeError, match=r"interp\(a, ...\)"):
            itf.interp(itf.asarray([1.0]), *wrong)


def test_places_in_row_major_order() -> None:
    flat = np.array([[22, 41, 37], [0, 1, 41]])
    for order in ("C", "F"):
        agree(lambda m, x: np.unravel_index(x, (7, 6), order), flat)  # noqa: B023
        agree(lambda m, x: np.unravel_index(x, 42, order=order), flat)  # noqa: B023
        rows = np.array([[3, 6, 6], [4, 5, 1]])
        agree(lambda m, x: np.ravel_multi_index((x[0], x[1]), (7, 6), order=order), rows)  # noqa: B023
    far = np.array([[3, 16, -6], [4, 5, -11]])
    for mode in ("wrap", "clip", ("clip", "wrap")):
        agree(lambda m, x: np.ravel_multi_index((x[0], x[1]), (7, 6), mode), far)  # noqa: B023
    with pytest.raises(itf.BoundsError):
        itf.ravel_multi_index((itf.asarray([-1]), [0]), (7, 6)).compute()
    for wrong in (-1, 42):
        with pytest.raises(itf.BoundsError):
            itf.unravel_index(itf.asarray([wrong]), (7, 6))[0].compute()
    with pytest.raises(itf.BoundsError):
        itf.choose(itf.asarray([0, 2]), [1, 2]).compute()


def test_what_would_depend_on_data_says_so() -> None:
    x = itf.asarray(X)
    for call in (
        lambda: itf.real_if_close(x * 1j), lambda: itf.delete(x, itf.asarray([0])),
        lambda: itf.insert(x, itf.asarray([0]), 1), lambda: itf.split(x, itf.asarray([1, 2])),
        lambda: itf.gradient(x[0], x[1]), lambda: itf.interp(x, x[0], x[0], period=3),
    ):  # fmt: skip
        with pytest.raises(itf.Unsupported):
            call()
    assert itf.real_if_close(x) is x
    assert np.iscomplexobj(x * 1j) and np.isrealobj(x) and not itf.iscomplexobj(X)


def test_they_are_one_pass_and_read_little() -> None:
    x = itf.asarray(np.arange(1000.0))
    for lazy, more in (
        (itf.vstack([x, x]), 0), (itf.insert(x, 5, 1.0) + 1, 0), (itf.delete(x, [1, 5]), 2 * 8),
        (itf.rot90(x.reshape(10, 100)) * 2, 0), (itf.gradient(x), 0), (itf.isin(x, [1, 2]), 2 * 8),
    ):  # fmt: skip
        plan = itf.plan(lazy)
        assert plan.passes == 1 and plan.bytes_temporary == 0
        assert plan.bytes_read <= 3 * x.nbytes + more


def test_isin_of_an_expression() -> None:
    x, test = np.arange(20), np.array([3, 5, 99])
    lazy = itf.asarray(test) + 0
    np.testing.assert_array_equal(itf.isin(itf.asarray(x), lazy).compute(), np.isin(x, test))
