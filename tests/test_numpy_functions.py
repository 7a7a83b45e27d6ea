"""NumPy's own functions and Python's own operators on lazy expressions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse.ops import BY_UFUNC
from itfuse.testing import assert_same, edge_values

X = np.linspace(-2.5, 3, 12)
INTS = np.arange(1, 13)


def lazy(x: object = X) -> itf.Array:
    return itf.asarray(x)


CALLS = {
    "where": lambda x: np.where(x > 0, x, -1.0), "clip": lambda x: np.clip(x, -1, 1),
    "clip_named": lambda x: np.clip(x, a_min=-1, a_max=None), "nan_to_num": np.nan_to_num,
    "isclose": lambda x: np.isclose(x, x + 1e-9), "sum": np.sum, "prod": np.prod, "mean": np.mean,
    "min": np.min, "max": np.max, "amin": np.amin, "amax": np.amax, "any": lambda x: np.any(x > 0),
    "all": lambda x: np.all(x > 0), "real": np.real, "imag": np.imag, "angle": np.angle,
    "round": lambda x: np.round(x, 1), "around": np.around, "sinc": np.sinc, "i0": np.i0,
    "exp": np.exp, "add": lambda x: np.add(x, 1), "add_left": lambda x: np.add(1, x),
    "array_left": lambda x: X + x, "modf": lambda x: np.modf(x)[1], "isposinf": np.isposinf,
    "frexp": lambda x: np.frexp(x)[0], "divmod": lambda x: np.divmod(x, 2)[1],
    "radians": np.radians, "conj": np.conj, "reduce": np.add.reduce, "abs": np.abs,
    "maximum.reduce": np.maximum.reduce,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_numpys_function_stays_lazy(name: str) -> None:
    got = CALLS[name](lazy())
    assert isinstance(got, itf.Array)
    assert_same(got.compute(), CALLS[name](X), 4 if name in ("sum", "mean", "reduce") else 0)


# As NumPy's callers write them: it has `out` and others among the positional arguments.
POSITIONAL = (
    lambda x: np.sum(x, 0, None, None, True), lambda x: np.prod(x, 1, None, None, True),
    lambda x: np.mean(x, 0, None, None, True), lambda x: np.var(x, 0, None, None, 1),
    lambda x: np.var(x, 0, None, None, 1, True), lambda x: np.std(x, 1, correction=1),
    lambda x: np.nansum(x, 0, None, None, True), lambda x: np.min(x, 0, None, True),
    lambda x: np.argmax(x, 0, None), lambda x: np.ptp(x, 0, None, True),
    lambda x: np.count_nonzero(x, 0), lambda x: np.average(x, 0, np.array([1.0, 2])),
    lambda x: np.linalg.norm(x, 1, 1, True), np.linalg.norm,
    lambda x: np.take(x, [0, 1], 1, None, "clip"), lambda x: np.reshape(x, (3, 2), "F"),
    lambda x: np.full_like(x, 3, None, "K"), lambda x: np.zeros_like(x, None, "K", True),
    lambda x: np.broadcast_to(x, (2, 2, 3)), lambda x: np.clip(x, 1, 3, None),
    lambda x: np.roll(x, 1, 0), lambda x: np.concatenate([x, x], 1), lambda x: np.round(x, 1),
    lambda x: np.stack([x, x], 1), lambda x: np.diff(x, 1, 0), lambda x: np.repeat(x, 2, 1),
    lambda x: np.isclose(x, 1.0, 0.1, 0.1, True), lambda x: np.transpose(x, (1, 0)),
)  # fmt: skip


@pytest.mark.parametrize("call", POSITIONAL)
def test_positional_arguments_are_numpys(call: Any) -> None:
    x = np.arange(6.0).reshape(2, 3)
    want = call(x)
    got = call(itf.asarray(x)).compute()
    assert got.dtype == want.dtype
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=1e-15)


def test_what_numpy_passes_by_position_is_by_name_here() -> None:
    for name in ("sum", "mean", "var"):
        with pytest.raises(TypeError, match="positional"):
            getattr(lazy(), name)(0, None, None, True)


def test_every_row_is_reached_by_its_ufunc() -> None:
    for ufunc in vars(np).values():
        if isinstance(ufunc, np.ufunc) and ufunc.signature is None and ufunc is not np.isnat:
            assert ufunc in BY_UFUNC, ufunc


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: np.exp(lazy(), out=np.empty(12)), ["np.exp", "compute(out=...)"]),
        (lambda: np.sum(lazy(), out=np.empty(())), ["np.sum", "compute(out=...)"]),
        (lambda: np.add(lazy(), 1, where=X > 0), ["where=...", "itf.where"]),
        (lambda: np.power.accumulate(lazy()), ["np.power.accumulate", "associative", "compute()"]),
        (lambda: np.add.at(lazy(), [0], 1), ["np.add.at", "itf.put"]),
        (lambda: np.linalg.inv(lazy()), ["inv", "compute()"]),
        (lambda: np.matmul(lazy(), X), ["matmul(a", "compute()"]),
        (lambda: lazy() @ X, ["matrix product"]),
    ],
)
def test_what_there_is_not_says_so(call: object, words: list[str]) -> None:
    with pytest.raises(itf.Unsupported) as caught:
        call()  # type: ignore[operator]
    for word in words:
        assert word in str(caught.value)


OPERATORS = {
    "divmod": lambda x: divmod(x, 2)[0], "rdivmod": lambda x: divmod(7, x)[1],
    "round": round, "round2": lambda x: round(x, 1), "rsub": lambda x: 1 - x,
    "rpow": lambda x: 2.0**x, "rmod": lambda x: 7 % x, "rfloordiv": lambda x: 7 // x,
    "real": lambda x: x.real, "imag": lambda x: x.imag, "conj": lambda x: x.conj(),
    "complex": lambda x: x * 2j, "neg": lambda x: -x, "abs": abs,
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    def numpy(x: np.ndarray) -> np.ndarray:
        return np.round(x) if name == "round" else np.round(x, 1) if name == "round2" \
            else OPERATORS[name](x)  # fmt: skip

    assert_same(OPERATORS[name](lazy()).compute(), numpy(X), 1, name)


def test_math_functions() -> None:
    for function in (math.floor, math.ceil, math.trunc):
        assert_same(function(lazy()).compute(), getattr(np, function.__name__)(X))  # type: ignore


def test_in_place_operators_rebind() -> None:
    x = first = lazy(INTS)
    x += 1
    x *= 2
    x -= 3
    x //= 2
    x **= 2
    x <<= 1
    x |= 1
    x %= 7
    want = (((((INTS + 1) * 2 - 3) // 2) ** 2) << 1 | 1) % 7
    assert_same(x.compute(), want)
    assert_same(first.compute(), INTS)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_numbers(name: str) -> None:
    z = edge_values(name, 200, 3)
    for part in ("real", "imag"):
        assert_same(getattr(lazy(z), part).compute(), np.ascontiguousarray(getattr(z, part)))
    assert complex(lazy(np.array(1 + 2j))) == 1 + 2j
    total = (lazy(np.array([1 + 1j, 2 - 1j], name)) * 1j).sum()
    assert total.dtype == name and total.compute() == 3j
    with pytest.raises(TypeError):
        float(lazy(np.array(1 + 2j)))
