"""What Python, NumPy and other libraries ask of an array."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.testing import assert_same

X = np.arange(24.0).reshape(4, 6)


def test_numbers() -> None:
    x = itf.asarray(X)
    assert (int(x[1, 1]), float(x[1, 1]), bool(x[0, 0]), complex(x[1, 1])) == (
        7,
        7.0,
        False,
        7 + 0j,
    )
    assert [10, 20, 30][x[0, 2].astype("i4")] == 30
    assert (x * 2).item(3) == 6.0 and (x * 2).item(1, 2) == 16.0 and (x * 2).item((1, 2)) == 16.0
    assert x[1:2, :1].item() == 6.0
    assert 3.0 in x and -1.0 not in x
    assert x[0].tolist() == X[0].tolist()
    assert len(x) == 4 and len(list(x)) == 4
    assert [type(row) for row in x] == [itf.Array] * 4
    assert [row.tolist() for row in x * 1] == X.tolist()
    for call in (
        lambda: len(x[0, 0]),
        lambda: iter(x[0, 0]),
        lambda: hash(x),
        lambda: range(x[0, 0]),
    ):
        with pytest.raises(TypeError):
            call()
    for call in (lambda: float(x), lambda: bool(x), x.item):
        with pytest.raises(ValueError, match="one element"):
            call()
    with pytest.raises(TypeError):
        [1][x[0, 1]]


def test_repr_computes_nothing() -> None:
    lazy = (itf.spec((3, 4), "f4") * 2).T
    assert repr(lazy) == "itf.Array((a * 2.0).T, shape=(4, 3), dtype=float32, device='none')"


def test_attributes() -> None:
    x = itf.asarray(X)
    assert (x.T.shape, x.mT.shape, x.ndim, x.size, x.nbytes, x.itemsize) == (
        (6, 4),
        (6, 4),
        2,
        24,
        192,
        8,
    )
    assert x.copy() is x and copy.copy(x) is x
    assert x.to_device("cpu") is x
    with pytest.raises(itf.Unsupported, match="copy"):
        x.to_device("cuda:0")


def expression(x: np.ndarray) -> itf.Array:
    a = itf.asarray(x)
    return itf.concat([a * 2, a])[[1, -1]].T.reshape(3, 4) + itf.arange(4) + a.sum()


def test_pickles_and_deep_copies_carry_the_elements() -> None:
    x = X.copy()
    lazy = expression(x)
    want = lazy.compute()
    again, deep = pickle.loads(pickle.dumps(lazy)), copy.deepcopy(lazy)
    x[...] = 0
    assert_same(again.compute(), want)
    assert_same(deep.compute(), want)
    assert lazy.compute().tobytes() != want.tobytes()
    both = copy.deepcopy([itf.asarray(x), itf.asarray(x) + 1])
    assert len({id(a) for one in both for a in one._data.values()}) == 1
    plan = itf.plan(pickle.loads(pickle.dumps(itf.spec((5,), "f4") * 2)))
    assert plan.bytes_read == 20
    deep_tree = itf.asarray(X)
    for _ in range(5000):
        deep_tree = deep_tree + 1
    assert_same(pickle.loads(pickle.dumps(deep_tree)).compute(), X + 5000)


def test_dlpack() -> None:
    lazy = itf.asarray(X) * 2
    assert lazy.__dlpack_device__() == (1, 0)
    assert_same(np.from_dlpack(lazy), X * 2)
    assert_same(itf.from_dlpack(X).compute(), X)
    with pytest.raises(itf.Unsupported):
        itf.from_dlpack(X, device="cuda:0")
    with pytest.raises(itf.Unsupported):
        itf.spec((3,), "f4").__dlpack_device__()


def test_numpys_functions_stay_lazy() -> None:
    x = itf.asarray(X)
    for got, want in (
        (np.concatenate([x, X]), np.concatenate([X, X])),
        (np.where(x > 3, x, 0), np.where(X > 3, X, 0)),
        (np.transpose(x), X.T), (np.stack([x, x]), np.stack([X, X])), (np.sum(x), np.sum(X)),
        (np.reshape(x, (6, 4)), X.reshape(6, 4)), (np.zeros_like(x), np.zeros_like(X)),
        (np.roll(x, 1), np.roll(X, 1)), (np.take(x, [1], 0), X[[1]]), (np.diff(x), np.diff(X)),
        (np.clip(x, 2, 5), X.clip(2, 5)), (np.mean(x), X.mean()), (np.flip(x), np.flip(X)),
        (np.broadcast_to(x, (2, 4, 6)), np.broadcast_to(X, (2, 4, 6))), (np.ravel(x), X.ravel()),
        (np.moveaxis(x, 0, 1), X.T), (np.tril(x), np.tril(X)), (np.pad(x, 1), np.pad(X, 1)),
    ):  # fmt: skip
        assert isinstance(got, itf.Array)
        assert_same(got.compute(), np.asarray(want))
    assert np.shape(x) == (4, 6) and np.ndim(x) == 2 and np.size(x) == 24 and np.size(x, 0) == 4
    assert np.allclose(x, X) and np.array_equal(x * 2, X * 2)
    with pytest.raises(itf.Unsupported, match=r"numpy\.inv"):
        np.linalg.inv(x)


def test_array_api_namespace() -> None:
    x = itf.asarray(X)
    xp = x.__array_namespace__()
    assert xp is itf and x.__array_namespace__(api_version="2024.12") is itf
    with pytest.raises(ValueError, match="2099"):
        x.__array_namespace__(api_version="2099.12")
    info = xp.__array_namespace_info__()
    assert info.default_device() in info.devices() and "cpu" in info.devices()
    assert info.capabilities()["boolean indexing"] is True
    assert info.dtypes(kind="unsigned integer").keys() == {"uint8", "uint16", "uint32", "uint64"}
    assert info.default_dtypes()["real floating"] == xp.float64
    assert xp.zeros(3, dtype=xp.float32).dtype == xp.float32 == np.dtype("float32")
    assert (xp.pi, xp.e, xp.inf, xp.newaxis) == (np.pi, np.e, np.inf, None) and np.isnan(xp.nan)
    assert xp.can_cast(xp.int32, xp.float64) and not xp.can_cast(x, xp.int8)
    assert xp.result_type(x, xp.float32, 1) == xp.float64
    assert (
        xp.finfo(xp.float32).bits == 32 and xp.iinfo("int8").max == 127 and xp.finfo(x).bits == 64
    )
    assert xp.isdtype(x.dtype, ("integral", "real floating")) and not xp.isdtype(x.dtype, xp.bool)


@pytest.mark.skipif("bfloat16" not in DTYPES, reason="ml_dtypes is not installed")
def test_bfloat16_is_a_real_floating_dtype() -> None:
    kind = itf.bfloat16
    assert kind == DTYPES["bfloat16"].numpy and itf.zeros(3, dtype=kind).dtype == kind
    for yes in ("real floating", "numeric", kind, ("bool", "numeric"), (itf.int8, kind)):
        assert itf.isdtype(kind, yes) and itf.isdtype("bfloat16", yes), yes
    for no in ("bool", "integral", "signed integer", "complex floating", itf.float16, ("bool",)):
        assert not itf.isdtype(kind, no), no
    assert not itf.isdtype(itf.float16, kind)
    with pytest.raises((TypeError, ValueError)):
        itf.isdtype("bfloat16", "nonsense")
    with pytest.raises(AttributeError, match="nonsense"):
        itf.nonsense  # noqa: B018


STANDARD = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
    "take",
    "take_along_axis",
    "searchsorted",
    "where",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "cumulative_sum",
    "vecdot",
    "diff",
    "astype",
    "can_cast",
    "finfo",
    "iinfo",
    "isdtype",
    "result_type",
    "matrix_transpose",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "e",
    "inf",
    "nan",
    "newaxis",
    "pi",
    "__array_namespace_info__",
]


@pytest.mark.parametrize("name", STANDARD)
def test_the_standards_names_are_there(name: str) -> None:
    assert hasattr(itf, name)


def test_materialize_is_the_buffer_that_was_asked_for() -> None:
    x = itf.asarray(X)
    buffered = itf.materialize(x * 2)
    assert_same((buffered.T.reshape(4, 6) + 1).compute(), (X * 2).T.reshape(4, 6) + 1)
    assert len(buffered._data) == 1


class Own:
    def __radd__(self, other: object) -> str:
        return "own"

    def __rpow__(self, other: object) -> str:
        return "own"


def test_operators_leave_other_classes_to_themselves() -> None:
    assert X_LAZY + Own() == "own" and X_LAZY ** Own() == "own"
    for other in ("2", None, {}, object()):
        with pytest.raises(TypeError, match=r"unsupported operand"):
            X_LAZY - other  # type: ignore[operator]
        with pytest.raises(TypeError):
            X_LAZY * other  # type: ignore[operator]
    assert (np.add(X_LAZY, [1, 2, 3]).compute() == [1, 3, 5]).all()


X_LAZY = itf.asarray(np.arange(3))
