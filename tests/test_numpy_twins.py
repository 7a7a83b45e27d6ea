"""NumPy's statistics, norms and ufunc methods on expressions: its answers, and its errors."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse.functions import FUNCTIONS

ARRAYS: dict[str, Any] = {
    "X": np.arange(12.0).reshape(3, 4), "NX": -np.arange(1, 13.0).reshape(3, 4),
    "I": np.arange(12).reshape(3, 4), "I8": np.arange(12, dtype="i1").reshape(3, 4),
    "B": np.arange(12).reshape(3, 4) > 5, "Z": np.array([[1 + 2j, 1 + 1j, 3], [0, 1j, 2]]),
    "ZN": np.array([1 + 2j, np.nan, 3 + 1j]),
    "NA": np.array([[1, np.nan, 3, 8], [np.nan] * 4, [2, 2, np.nan, 1]]),
    "T": np.arange(24.0).reshape(2, 3, 4) - 7, "E": np.empty((0, 3)), "D": np.array(5.0),
    "U": np.array([1, 2], "u8"),
}  # fmt: skip
W = np.arange(8.0).reshape(4, 2)

# Evaluated over plain arrays, and over expressions of the same names.
SAME = (
    "np.select([X>3, X>5], [X, X*2])", "np.select([X>3, X>5], [1, np.float32(2)], 7.5)",
    "np.select([X>3], [X], X+1)", "np.where(X>9)", "np.nanmedian(X)", "np.nanmedian(NA, axis=1)",
    "np.nanmedian(NA)", "np.nanmedian(NA, axis=1, keepdims=True)",
    "np.nanmedian(NA.astype('f2'), axis=(0, 1))", "np.nanvar(NA, axis=1, ddof=2)", "np.nanvar(NA)",
    "np.nanvar(NA, axis=0, where=NA>2)", "np.nanstd(NA, axis=0, keepdims=True)",
    "np.nanvar(I, ddof=1)", "np.nanprod(NA, axis=1, initial=3)",
    "np.nansum(NA, axis=1, initial=3, where=NA!=1)", "np.nanmin(NA, axis=1, initial=2.5)",
    "np.nanmax(NA, axis=1, initial=-9, where=NA<2)", "np.nanmin(NA, axis=1)",
    "np.nanmax(I, initial=3, where=I>1)", "np.nanmean(NA, axis=1, where=NA>1)",
    "np.var(X, mean=np.mean(X, axis=0, keepdims=True), axis=0)", "np.std(Z, mean=Z.mean())",
    "np.var(Z, mean=Z.mean(), ddof=1)", "np.var(X, mean=0.5, where=X>2)",
    "np.average(X, axis=(0, 1), weights=X, returned=True)",
    "np.average(X, axis=1, weights=np.arange(4.), returned=True)",
    "np.average(X, axis=1, returned=True)", "np.average(I, returned=True)",
    "np.average(I8, axis=0, weights=np.ones(3, 'f4'))", "np.linalg.norm(X, 'fro')",
    "np.linalg.norm(E, np.inf, axis=0)", "np.linalg.norm(E, np.inf)", "np.linalg.norm(E, 1)",
    "np.linalg.norm(X, -1)", "np.linalg.norm(X, np.inf, keepdims=True)",
    "np.linalg.norm(X, 1, axis=(1, 0))", "np.linalg.norm(T)", "np.linalg.norm(D)",
    "np.linalg.vector_norm(X, axis=(0, 1), ord=1)", "np.linalg.vector_norm(X, ord=np.inf)",
    "np.linalg.vector_norm(X, axis=(0, 1), ord=3, keepdims=True)",
    "np.linalg.vector_norm(T, axis=(0, 2))", "np.linalg.vector_norm(T, axis=(0, 2), ord=0)",
    "np.linalg.vector_norm(T, axis=1, ord=-np.inf)", "np.linalg.vector_norm(D)",
    "np.linalg.vector_norm(X, axis=())", "np.linalg.vector_norm(Z, ord=1, axis=(0, 1))",
    "np.linalg.vector_norm(I, ord=0)", "np.linalg.matrix_norm(T)",
    "np.linalg.matrix_norm(T, ord=1, keepdims=True)", "np.vecdot(X, X[0])",
    "np.vecdot(X, X[:, 0], axis=0)", "np.linalg.vecdot(X, X[:, 0], axis=0)", "np.median(D)",
    "np.quantile(D, 0.5)", "np.argsort(D)", "np.argsort(D, axis=0)", "np.sort(D, axis=None)",
    "np.cumsum(D, axis=0)", "np.cumsum(D)", "np.cumulative_sum(D, axis=0, include_initial=True)",
    "np.cumulative_sum(D)", "np.maximum.accumulate(Z, axis=1)", "np.minimum.accumulate(Z, axis=0)",
    "np.maximum.accumulate(ZN)", "np.bincount(U)", "np.histogram_bin_edges(X, 3)",
    "np.histogram_bin_edges(I, [1, 2, 5])", "np.hypot.reduce(NX)",
    "np.hypot.reduce(NX, axis=(0, 1), keepdims=True)", "np.hypot.reduce(NX[:1])",
    "np.lcm.reduce(I+1)", "np.lcm.accumulate(I-5)", "np.gcd.accumulate(I-5, axis=1)",
    "np.gcd.reduce(I-5, axis=None)", "np.hypot.accumulate(NX, axis=1)",
    "np.logaddexp.accumulate(X)", "np.logaddexp.reduce(X, axis=1, initial=3.0)",
    "np.fmax.accumulate(NA, axis=1)", "np.fmin.reduce(NA, axis=None)",
    "np.bitwise_xor.accumulate(I, axis=1)", "np.bitwise_and.reduce(I)", "np.bitwise_or.reduce(B)",
    "np.logical_xor.accumulate(X)", "np.logical_and.accumulate(X, axis=1)",
    "np.logical_or.reduce(X, axis=1)", "np.add.accumulate(I8)",
    "np.multiply.accumulate(X, axis=1, dtype='f4')", "np.add.reduceat(X[0], [0, 2, 3])",
    "np.add.reduceat(X[0], [0, 2, 2, 3])", "np.maximum.reduceat(X[0], [1, 2])",
    "np.add.reduceat(I8[:, 0], [0, 1])", "np.logical_and.reduceat(X[0], [0, 2])",
    "np.add.outer(X[0], X)", "np.multiply.outer(X, I)", "np.divmod.outer(I8[0], I8[0]+1)",
    "np.add.reduce(X, axis=(0, 1), initial=5, where=X>2)",
    "np.minimum.reduce(X, axis=1, initial=3)",
    "np.average(T, axis=(2, 0), weights=W, returned=True)", "np.nanmin(NA[:0], initial=5)",
    "np.vecdot(Z, Z)", "np.linalg.norm(Z, 1, axis=0)", "np.compress([True]*4+[False], X[0])",
)  # fmt: skip
RAISED = (
    "np.average(T, axis=(2, 0), weights=W.T)", "np.average(X, weights=np.arange(4.))",
    "np.linalg.norm(X, 'fro', axis=0)", "np.linalg.norm(X[0], 'fro')",
    "np.linalg.norm(E, -np.inf, axis=0)", "np.linalg.norm(X, 3)", "np.linalg.norm(T, 1)",
    "np.linalg.norm(T, 2, axis=(0, 1, 2))", "np.linalg.norm(D, 1)", "np.linalg.norm(D, axis=0)",
    "np.linalg.vector_norm(X, ord='fro')", "np.linalg.matrix_norm(X[0])",
    "np.vecdot(X, np.ones((4, 1)))", "np.vecdot(X, X[:, :1])", "np.vecdot(D, X)",
    "np.median(D, axis=0)", "np.quantile(D, 0.5, axis=0)", "np.argsort(D, axis=1)", "np.sort(D)",
    "np.cumsum(D, axis=1)", "np.cumulative_sum(D, axis=1)", "np.cumulative_sum(X)",
    "np.bincount(E[:, 0])", "np.add.reduceat(X[0], [0, 4])", "np.var(X, axis=[0, 1])",
    "np.nanmin(X, where=X>2)", "np.nanargmax(E)", "np.select([], [])", "np.select([X], [X])",
    "np.where(X>1, X)", "np.compress([True]*5, X[0])", "np.average(X[0, :2], weights=[1, -1])",
)  # fmt: skip


def evaluated(text: str, lazy: bool) -> Any:
    names = {key: itf.asarray(x) for key, x in ARRAYS.items()} if lazy else ARRAYS
    return eval(text, {"np": np, "W": W, **names})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", SAME)
def test_numpy_s_answer(text: str) -> None:
    want, lazy = evaluated(text, lazy=False), evaluated(text, lazy=True)
    got = itf.compute(lazy)
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else ((want, got),)
    for one, b in pairs:
        a = np.asarray(one)
        assert (b.dtype, b.shape) == (a.dtype, a.shape)
        rtol = 1e-12 if a.dtype.itemsize > 4 else 1e-3
        np.testing.assert_allclose(b, a, rtol)


@pytest.mark.parametrize("text", RAISED)
def test_numpy_s_error(text: str) -> None:
    with pytest.raises(Exception) as want:  # noqa: PT011 - whichever NumPy raises
        evaluated(text, lazy=False)
    kind = ValueError if isinstance(want.value, ValueError) else type(want.value)
    kind = TypeError if text.startswith("np.where") else kind  # a missing argument
    with pytest.raises(kind) as got:
        evaluated(text, lazy=True)
    called = text.partition("(")[0].rpartition(".")[2]
    assert called in str(got.value)  # the user's function, not what it is written with


def test_what_only_the_data_say_is_not_raised() -> None:
    """NumPy raises for these; their doc says why there is a value instead."""
    nothing = itf.asarray(np.array([np.nan, np.nan]))
    assert int(itf.nanargmax(nothing).compute()) == 0
    x = itf.asarray(np.array([1.0, 2.0]))
    assert not np.isfinite(itf.average(x, weights=np.array([1.0, -1.0])).compute())
    assert itf.bincount(np.array([1, -1]), length=4).compute().tolist() == [0, 1, 0, 0]
    with pytest.raises(itf.ShapeError, match="-1"):  # of a list they are known
        itf.bincount([1, -1], length=4)


def test_of_nothing() -> None:
    empty = itf.asarray(np.empty((3, 0)))
    assert itf.logsumexp(empty, axis=1).compute().tolist() == [-np.inf] * 3
    for name in ("softmax", "log_softmax", "layernorm", "rmsnorm", "normalize", "standardize"):
        got = getattr(itf, name)(empty)
        assert (got.shape, got.dtype) == ((3, 0), np.float64), name
        assert got.compute().shape == (3, 0)


def test_a_vector_norm_is_one_pass_over_any_axes() -> None:
    x = itf.spec((4, 5, 6), "float32")
    for options in ({}, {"axis": (0, 2)}, {"axis": (1, 2), "ord": np.inf}, {"ord": 1.5}):
        plan = itf.plan(itf.vector_norm(x, **options))
        assert (plan.passes, plan.bytes_read) == (1, 480)
    with pytest.raises(TypeError, match="positional"):
        itf.vector_norm(x, 1)


def test_linalg_has_what_is_a_fused_pass() -> None:
    x = itf.asarray(ARRAYS["X"])
    assert float(itf.linalg.norm(x).compute()) == np.linalg.norm(ARRAYS["X"])
    assert not hasattr(itf.linalg, "inv")
    with pytest.raises(AttributeError, match="compute"):
        itf.linalg.inv  # noqa: B018


# ---- out= ------------------------------------------------------------------------------------
ARGUMENTS = {"clip": (0, 1), "round": (), "around": (), "take": ([0],), "concatenate": (),
             "concat": (), "stack": (), "quantile": (0.5,), "percentile": (50,),
             "choose": ([np.ones(4)] * 12,), "outer": (np.ones(3),)}  # fmt: skip


def has_out(name: str) -> bool:
    twin = getattr(np, name, None)
    if isinstance(twin, np.ufunc):
        return True
    try:
        return "out" in inspect.signature(twin).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if has_out(name)])
def test_out_is_one_error_that_says_where_it_goes(name: str) -> None:
    x = itf.asarray(ARRAYS["X"])
    operands: tuple[Any, ...] = (x,)
    out: Any = np.empty(12)
    if name in ("concat", "concatenate", "stack"):
        operands = ([x, x],)
    elif name == "compress":
        operands = ([True], x)
    elif isinstance(twin := getattr(np, name), np.ufunc):
        operands = (x,) * twin.nin
        out = out if twin.nout == 1 else (out,) * twin.nout
    try:
        getattr(itf, name)(*operands, *ARGUMENTS.get(name, ()))
    except itf.Unsupported:  # a product of matrices, whatever `out` is
        return
    except (ValueError, TypeError):  # of these operands; `out` is looked at first
        pass
    for call in (getattr(itf, name), getattr(np, name)):
        with pytest.raises(itf.Unsupported, match=r"itf\.\w+\(\.\.\.\)\.compute\(out=\.\.\.\)"):
            call(*operands, *ARGUMENTS.get(name, ()), out=out)


def test_methods_refuse_out_too() -> None:
    x = itf.asarray(ARRAYS["X"])
    for name in ("sum", "max", "mean", "argmax", "cumsum", "var"):
        with pytest.raises(itf.Unsupported, match="compute"):
            getattr(x, name)(out=np.empty(12))
    with pytest.raises(itf.Unsupported, match="compute"):
        np.add.reduce(x, out=np.empty(4))


# ---- signatures ------------------------------------------------------------------------------
def test_signatures_show_what_numpy_has() -> None:
    def names(name: str) -> set[str]:
        return set(inspect.signature(getattr(itf, name)).parameters)

    for name in ("min", "max"):
        assert names(name) == {"x", "axis", "keepdims", "initial", "where"}
    for name in ("any", "all"):
        assert names(name) == {"x", "axis", "keepdims", "where"}
    for name in ("sum", "prod", "nansum", "nanprod", "nanmin", "nanmax", "nanmean", "nanvar",
                 "nanstd", "var", "std", "mean", "average"):  # fmt: skip
        theirs = set(inspect.signature(getattr(np, name)).parameters)
        assert theirs - {"a", "out"} <= names(name), name


def test_unknown_options_are_named_by_the_user_s_function() -> None:
    x = itf.asarray(ARRAYS["X"])
    for name in ("nanmin", "nansum", "var", "softmax", "argmax", "gelu", "min", "any", "exp"):
        with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected .*'colour'"):
            getattr(itf, name)(x, colour=1)
    with pytest.raises(TypeError, match="'dtype'"):
        itf.min(x, dtype="f4")
    with pytest.raises(TypeError, match="'initial'"):
        itf.any(x, initial=True)


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda x: itf.scan(x, "sum", None), TypeError, r"^scan\(a, .*axis=None.*one axis"),
        (lambda x: itf.scan(x, "sum", (0, 1)), TypeError, r"^scan\(a, .*one axis"),
        (lambda x: itf.scan(x, np.hypot), TypeError, r"scan\(a, hypot\): give identity="),
        (lambda x: itf.scan(x, "median"), itf.ShapeError, r"^scan\(a, 'median'\)"),
        (lambda x: itf.std(x, axis=4), itf.AxisError, r"^std\(a\): axis 4"),
        (lambda x: itf.average(x, axis=4), itf.AxisError, r"^average\(a\): axis 4"),
        (lambda x: itf.layernorm(x, x[:, :3]), itf.ShapeError, r"^layernorm\(a\): shapes"),
        (lambda x: itf.nanmin(x, where=x > 1), itf.ShapeError, r"^nanmin\(a\): nanmin of nothing"),
        (lambda x: itf.gelu(x * 1j), itf.DTypeError, r"^gelu\(.*real"),
        (np.subtract.reduce, itf.Unsupported, "subtract is not known to be assoc"),
        (lambda x: np.add.reduceat(x[0], [2, 1]), itf.Unsupported, "must ascend"),
        (lambda x: np.unique(x, axis=0), itf.Unsupported, "wholes"),
    ],
)
def test_errors_name_what_the_user_called(call: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=says):
        call(itf.asarray(ARRAYS["X"]))


def test_ufunc_methods_are_the_passes_of_functions() -> None:
    x = itf.spec((100, 10), "float32")
    for lazy, primitive in (
        (np.add.reduce(x), "columns"), (np.hypot.reduce(x, 1), "rows"),
        (np.maximum.accumulate(x, 1), "scan"), (np.hypot.accumulate(x, 1), "scan"),
        (np.add.outer(x[0], x[1]), "transform"),
    ):  # fmt: skip
        (stage,) = itf.plan(lazy).stages
        assert stage.primitive == primitive


# ---- unique ----------------------------------------------------------------------------------
RNG = np.random.default_rng(3)
UNIQUE = (RNG.integers(0, 9, (5, 40)), RNG.integers(0, 9, 3000).astype("f4"), np.zeros(0),
          np.array([2.0, np.nan, 2, np.nan]), np.array(5), np.array([3], "u1"),
          np.array([True, False, True]))  # fmt: skip


@pytest.mark.parametrize("x", UNIQUE, ids=lambda x: f"{x.dtype}{x.shape}")
def test_unique(x: Any) -> None:
    every = {"return_index": True, "return_inverse": True, "return_counts": True}
    for options in ({}, every, {"equal_nan": False, "return_counts": True}):
        want, got = np.unique(x, **options), itf.compute(np.unique(itf.asarray(x), **options))
        pairs = zip(want, got, strict=True) if options else ((want, got),)
        for a, b in pairs:
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(a, b)
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        want, got = getattr(np, name)(x), itf.compute(getattr(itf, name)(x))
        assert type(got).__name__ == type(want).__name__ and got._fields == want._fields
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(a, b)
    want = np.sort(np.unique_values(x))  # NumPy's are in any order
    np.testing.assert_array_equal(itf.unique_values(x).compute(), want)


def test_the_passes_of_unique_are_stated() -> None:
    x = itf.spec((1000,), "int32")
    for name, primitives in (
        ("unique_values", ["sort", "select"]),
        ("unique_counts", ["sort", "transform", "scan", "select"]),
    ):
        plan = itf.plan(getattr(itf, name)(x))
        assert [one.primitive for one in plan.stages if one.primitive != "transform"] == [
            one for one in primitives if one != "transform"
        ]
