"""Every row of the op table x every dtype against NumPy itself, on the CPU engine."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse.dtypes import DTYPES, finfo, kind
from itfuse.ops import OPS
from itfuse.rows.op import COMPOSITE, ELEMENTWISE, REDUCTION, Op
from itfuse.testing import assert_same, edge_values, exponents

NAMES = list(DTYPES)
ELEMENTWISES = [op for op in OPS.values() if op.kind == ELEMENTWISE and op.name != "astype"]
ROWS = [op for op in ELEMENTWISES if hasattr(np, op.name) and op.name != "i0"]
SIZE = 1037


def numpy_of(op: Op) -> Any:
    return op.numpy if isinstance(op.numpy, np.ufunc) else getattr(np, op.name)


def operands(op: Op, names: tuple[str, ...]) -> list[np.ndarray]:
    made = [edge_values(name, SIZE, seed) for seed, name in enumerate(names)]
    if "power" in op.name:
        made[1] = exponents(*made)
    return made


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_same_dtype_and_value_as_numpy(op: Op) -> None:
    tried = 0
    for names in itertools.product(NAMES, repeat=op.arity):
        if op.arity == 3 and names[0] != "bool":
            continue
        values = operands(op, names)
        try:
            with np.errstate(all="ignore"):
                want = numpy_of(op)(*values)
        except TypeError:
            with pytest.raises(itf.DTypeError):
                getattr(itf, op.name)(*values)
            continue
        lazy = getattr(itf, op.name)(*values)
        got = lazy.compute()
        if op.twin(want.dtype.kind) is op.numpy:
            assert_same(got, want, what=f"{op.name}{names}")
        else:  # products that NumPy's vector code fuses where it can, and where NumPy loses digits
            assert_same(got, want, 1e3, f"{op.name}{names}", float(op.name == "log1p"))
        tried += 1
    assert tried > 1


@pytest.mark.parametrize("op", [op for op in ROWS if op.arity == 2], ids=lambda op: op.name)
def test_weak_python_scalars(op: Op) -> None:
    for name, scalar in itertools.product(NAMES, (2, 3.5, True)):
        x = edge_values(name, SIZE, 5)
        for left in (False, True):
            pair = (scalar, x) if left else (x, scalar)
            if op.name == "power" and left and x.dtype.kind == "i":
                continue
            try:
                with np.errstate(all="ignore"):
                    want = numpy_of(op)(*pair)
            except TypeError:
                with pytest.raises(itf.DTypeError):
                    getattr(itf, op.name)(*pair)
                continue
            got = getattr(itf, op.name)(*pair).compute()
            assert_same(got, want, what=f"{op.name} {name} {scalar} {left}")


@pytest.mark.parametrize("name", NAMES)
def test_reductions(name: str) -> None:
    for size in (1, 2, 1037, 40_001):
        x = edge_values(name, size, size)
        inexact = kind(x.dtype) in "fc"
        if inexact:
            x = np.random.default_rng(size).uniform(0.5, 1.5, size).astype(name)
            if kind(x.dtype) == "c":
                x += 1j * np.random.default_rng(size + 1).uniform(0.5, 1.5, size).astype(name)
            x[1::2] = 1 / x[: size // 2 * 2 : 2]  # so that every partial product is near one
        for op in (op for op in OPS.values() if op.kind == REDUCTION):
            got = getattr(itf, op.name)(x).compute()
            want = getattr(np, op.name)(x)
            assert got.dtype == want.dtype and got.shape == ()
            if inexact and op.name in ("sum", "prod"):
                # Both are rounded sums; the truth is the float64 (or exact) sum.
                wider = np.clongdouble if kind(x.dtype) == "c" else np.longdouble
                truth = getattr(np, op.name)(x.astype(wider))
                steps = np.log2(size + 2) if op.name == "sum" else size
                narrow = DTYPES[name].accumulator  # accumulates in more digits than it has
                steps = 1 + steps / 4096 if narrow else steps
                error = abs(wider(got) - truth)
                if np.isfinite(got):  # a sum may be beyond float16
                    assert error <= 2 * float(finfo(name).eps) * abs(truth) * steps
                else:
                    assert abs(truth) > float(finfo(name).max)
            else:
                assert_same(got, want, what=f"{op.name} {name} {size}")


FLOATING = [name for name in NAMES if DTYPES[name].kind in "fc"]


@pytest.mark.parametrize("name", FLOATING)
def test_nan_in_reductions(name: str) -> None:
    x = np.ones(50_000, name)
    x[31_234] = np.nan
    for op in ("sum", "prod", "min", "max", "mean"):
        assert np.isnan(getattr(itf, op)(x).compute())
    assert bool(itf.all(x).compute()) and bool(itf.any(np.array([np.nan])).compute())


def test_reductions_of_nothing() -> None:
    empty = np.empty(0, np.float32)
    for op, want in (("sum", 0.0), ("prod", 1.0)):
        assert_same(getattr(itf, op)(empty).compute(), np.float32(want))
    assert_same(itf.any(empty).compute(), np.False_)
    assert_same(itf.all(empty).compute(), np.True_)
    assert np.isnan(itf.mean(empty).compute())
    for op in ("min", "max"):
        with pytest.raises(itf.ShapeError, match="no elements"):
            getattr(itf, op)(empty)
    assert (itf.asarray(empty) + 1).compute().shape == (0,)


def fitting(x: np.ndarray) -> np.ndarray:
    """Return floats between 0 and 100, and other values as they are."""
    if kind(x.dtype) == "c":
        return fitting(x.real) + x.dtype.type(1j) * fitting(x.imag)
    if kind(x.dtype) != "f":
        return x
    return np.clip(np.nan_to_num(x.astype("f8"), posinf=100, neginf=0), 0, 100).astype(x.dtype)


@pytest.mark.parametrize("source", NAMES)
def test_astype(source: str) -> None:
    x = edge_values(source, SIZE, 3)
    for target in NAMES:
        # NumPy leaves the conversion of what does not fit an integer to the machine.
        values = fitting(x) if kind(np.dtype(target)) in "iu" else x
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the imaginary part goes
            want = values.astype(target)
        assert_same(itf.asarray(values).astype(target).compute(), want, what=target)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


COMPOSITES = {
    "rsqrt": lambda x: 1 / np.sqrt(x), "relu": lambda x: np.maximum(x, 0), "sigmoid": sigmoid,
    "clip": lambda x: np.clip(x, -1, 2), "round": np.round, "mean": np.mean,
    "divmod": lambda x: np.divmod(x, x[::-1]),
    "isclose": lambda x: np.isclose(x, x[::-1]),
    "logit": lambda x: np.where(np.abs(x - 0.5) < 0.25, np.log1p((2 * x - 1) / (1 - x)),
                                np.log(x / (1 - x))),
    "gelu": lambda x: 0.5 * x * (1 + itf.erf(x * 0.7071067811865476).compute()),
    "silu": lambda x: x * sigmoid(x), "softplus": lambda x: np.logaddexp(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, x * 0.01),
    "elu": lambda x: np.where(x > 0, x, 1.0 * np.expm1(x)),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
}  # fmt: skip
ARGUMENTS = {"clip": lambda x: (-1, 2), "divmod": lambda x: (x[::-1],),
             "isclose": lambda x: (x[::-1],)}  # fmt: skip
OF_COMPLEX = ("rsqrt", "sigmoid", "mean", "sinc", "angle", "nan_to_num", "isclose", "silu")


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.kind == COMPOSITE],
                         ids=lambda op: op.name)  # fmt: skip
@pytest.mark.parametrize("name", FLOATING)
def test_composites(op: Op, name: str) -> None:
    x = edge_values(name, SIZE, 9)
    if kind(x.dtype) == "c":
        if op.name not in OF_COMPLEX:
            return
        if op.name in ("mean", "sigmoid", "silu", "rsqrt", "sinc"):
            x = np.random.default_rng(0).normal(size=(2, SIZE)).astype(name)[0] + x.dtype.type(0.5j)
    numpy = COMPOSITES.get(op.name) or getattr(np, op.name)
    arguments = ARGUMENTS.get(op.name, lambda x: ())(x)
    got = getattr(itf, op.name)(x, *arguments)
    with np.errstate(all="ignore"):
        try:
            want = numpy(x)
        except TypeError:  # NumPy's own does not take bfloat16
            assert name == "bfloat16"
            return
    if name == "bfloat16" and op.name in ("clip", "nan_to_num"):  # NumPy: float32; NaN stays
        low, high = (-1, 2) if op.name == "clip" else (float(finfo(name).min), finfo(name).max)
        want = np.clip(x.astype("f4"), low, float(high)).astype(name)
        want = np.where(np.isnan(x), x.dtype.type(0), want) if op.name == "nan_to_num" else want
    loose = name in ("float16", "bfloat16", "complex64", "complex128")
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else ((got, want),)
    for a, b in pairs:
        assert_same(a.compute(), b, 4 if loose and kind(b.dtype) in "fc" else 0, what=op.name)


def test_composites_of_integers() -> None:
    x = np.arange(-5, 6, dtype="i4")
    for name in ("isposinf", "isneginf", "sinc", "angle", "nan_to_num", "round"):
        assert_same(getattr(itf, name)(x).compute(), getattr(np, name)(x), what=name)
    for name in ("modf", "frexp"):
        for got, want in zip(getattr(itf, name)(x), getattr(np, name)(x), strict=True):
            assert_same(got.compute(), want, what=name)
    assert_same(itf.isclose(x, x + 1, atol=1).compute(), np.isclose(x, x + 1, atol=1))


def test_activations() -> None:
    x = np.linspace(-4, 4, 101)
    tanh = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))
    assert_same(itf.gelu(x, approximate="tanh").compute(), tanh)
    assert_same(itf.leaky_relu(x, 0.2).compute(), np.where(x > 0, x, x * 0.2))
    assert_same(itf.softplus(x, beta=2.0).compute(), np.logaddexp(x * 2, 0) / 2)
    assert_same(itf.nan_to_num(np.array([np.nan, np.inf]), nan=1.0, posinf=7.0).compute(),
                np.array([1.0, 7.0]))  # fmt: skip
    with pytest.raises(ValueError, match="approximate"):
        itf.gelu(x, approximate="fast")


def test_round_to_decimals_and_clip_bounds() -> None:
    x = np.random.default_rng(0).normal(size=100) * 1000
    for decimals in (-2, -1, 0, 1, 3):
        assert_same(itf.round(x, decimals).compute(), np.round(x, decimals))
    i = np.arange(-5, 5)
    assert_same(itf.round(i).compute(), np.round(i))
    assert_same(itf.clip(i, None, 2).compute(), np.clip(i, None, 2))
    assert_same(itf.clip(i, -1).compute(), np.clip(i, -1, None))
    assert_same(itf.clip(i, 0, 1.5).compute(), np.clip(i, 0, 1.5))


def test_power_operator_takes_numpys_shortcuts() -> None:
    x = np.abs(np.random.default_rng(0).normal(size=1000).astype("f4"))
    i = np.arange(100)
    for exponent in (2, 2.0, 0.5, -1, 1, 3, 0):
        assert_same((itf.asarray(x) ** exponent).compute(), x**exponent, 2, str(exponent))
    assert_same((itf.asarray(i) ** 2).compute(), i**2)
    assert_same((itf.asarray(i) ** 2.0).compute(), i**2.0)


def test_comparison_with_any_python_integer() -> None:
    for name in ("int8", "uint8", "int64", "uint64"):
        x = edge_values(name, SIZE, 1)
        for value in (-1, 300, 2**63, 2**64, -(2**63), -(2**70)):
            for op in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
                assert_same(getattr(itf, op)(x, value).compute(), getattr(np, op)(x, value))
                assert_same(getattr(itf, op)(value, x).compute(), getattr(np, op)(value, x))


def test_erf() -> None:
    import math

    x = edge_values("float64", SIZE, 2)
    assert_same(itf.erf(x).compute(), np.array([math.erf(v) for v in x]), 2)
    narrow = edge_values("float32", SIZE, 2)
    assert_same(itf.erf(narrow).compute(), np.array([math.erf(v) for v in narrow], "f4"), 1)


def test_the_checker_sees_a_wrong_answer() -> None:
    x = np.float32([1.0, np.nan, -0.0])
    assert_same(x, x.copy())
    for wrong in ([1.0, np.nan, 0.0], [1.0, 2.0, -0.0], [1.0000001, np.nan, -0.0]):
        with pytest.raises(AssertionError):
            assert_same(np.float32(wrong), x)
    with pytest.raises(AssertionError):
        assert_same(x.astype(float), x)
    with pytest.raises(AssertionError):
        assert_same(np.float32([1, np.nan, 1]), np.float32([1, 1, 1]), 5)


BINARY = ("add", "multiply", "divide", "floor_divide", "power", "maximum", "less", "arctan2",
          "bitwise_and", "left_shift", "logical_and", "copysign", "where")  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_promotion_of_every_pair_is_numpys(name: str) -> None:
    python = {bool: True, int: 1, float: 1.0, complex: 1j}
    for left, right in itertools.product([*NAMES, *python], repeat=2):
        a, b = (python[one] if isinstance(one, type) else np.ones(2, one) for one in (left, right))
        if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
            continue
        first = (np.ones(2, bool),) if name == "where" else ()
        if first and left in python and right == "bfloat16":
            continue  # NumPy gives float32, and bfloat16 for the operands in the other order
        try:
            want = getattr(np, name)(*first, a, b).dtype
        except TypeError:
            with pytest.raises(itf.DTypeError):
                getattr(itf, name)(*first, a, b)
            continue
        assert getattr(itf, name)(*first, a, b).dtype == want, (name, left, right)


def test_scalars_of_numpy_are_strong_and_zero_dimensional_arrays_too() -> None:
    x = np.ones(3, "f2")
    for scalar in (np.float32(1), np.array(1.0), np.complex64(1j), np.int8(1)):
        assert (itf.asarray(x) * scalar).dtype == (x * scalar).dtype
    assert (itf.asarray(x) * 1e10).compute().dtype == np.float16  # infinite, as in NumPy


def test_float16_means() -> None:
    for size in (3, 4000, 100_000):
        x = np.random.default_rng(size).uniform(0, 3, size).astype("f2")
        assert_same(itf.mean(x).compute(), np.mean(x), 1)
        assert_same(itf.mean(x, dtype="f8").compute(), np.mean(x, dtype="f8"), 4)
        exact = np.float64(np.sum(x.astype("f8")))
        if exact < 65504:
            assert itf.sum(x).compute() == np.float16(exact)
