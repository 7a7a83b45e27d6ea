"""Operators in place, and equality with what is no number: NumPy's dtypes, shapes and errors."""

from __future__ import annotations

import datetime
import operator
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse.testing import assert_same

ASSIGNED = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor",
            "ilshift", "irshift")  # fmt: skip
TARGETS = ("bool", "int8", "uint8", "int64", "float16", "float32", "complex64", "bfloat16")
OTHERS: tuple[Any, ...] = (
    2, True, 1.5, 1j, 300, np.int64(3), np.float64(2.5), np.array([1, 2, 3, 1], "i2"),
    np.array([[1], [2]], "u1"), np.ones(4, "f8"), np.ones(1, "c16"), np.array([True, False] * 2),
)  # fmt: skip


def dtype_of(name: str) -> Any:
    return itf.bfloat16 if name == "bfloat16" else np.dtype(name)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("which", ASSIGNED)
def test_assigning_operators_are_numpys(which: str, name: str) -> None:
    assign = getattr(operator, which)
    for other in OTHERS:
        x = np.array([1, 0, 1, 1]).astype(dtype_of(name))
        first = itf.asarray(x.copy())
        try:
            with np.errstate(all="ignore"):
                want = assign(x.copy(), other)
        except (TypeError, ValueError, OverflowError) as why:
            kind = next(k for k in (TypeError, OverflowError, ValueError) if isinstance(why, k))
            with pytest.raises(kind):
                assign(first, other)
        else:
            got = assign(first, other)
            assert got is not first and isinstance(got, itf.Array)
            assert_same(got.compute(), want, what=f"{which} of {name} by {other!r}")
        assert_same(first.compute(), x)


def test_assigning_errors_name_the_expression() -> None:
    u = itf.asarray(np.arange(4, dtype="u1"))
    with pytest.raises(itf.DTypeError, match=r"a \+ 1 \*= .*float64.*uint8.*same_kind"):
        operator.imul(u + 1, 1.5)
    with pytest.raises(itf.ShapeError, match=r"a \+= .*\(2, 4\).*\(4,\)"):
        operator.iadd(u, np.ones((2, 4), "u1"))
    with pytest.raises(itf.RangeError, match=r"a \+ 300: .*300.*uint8"):
        operator.iadd(u, 300)
    with pytest.raises(TypeError, match="unsupported operand"):
        operator.iadd(u, None)


def test_a_result_without_axes_is_rebound_like_numpys_scalars() -> None:
    x = np.arange(4)
    count, lazy = (x > 1).sum(), (itf.asarray(x) > 1).sum()
    count, lazy = operator.iadd(count, 0.5), operator.iadd(lazy, 0.5)
    count, lazy = operator.iadd(count, x), operator.iadd(lazy, x)
    assert_same(lazy.compute(), count)
    with pytest.raises(TypeError):  # an array without axes is an array
        operator.iadd(itf.asarray(np.array(1)), 0.5)


NO_NUMBERS: tuple[Any, ...] = (
    None, "a", b"a", object(), {}, {1: 2}, datetime.date(2020, 1, 1), np.datetime64("2020"),
    ["a", "b", "c"], np.array(["a", "b", "c"]), np.array([["a"], ["b"]]), np.str_("a"), set(),
)  # fmt: skip


@pytest.mark.parametrize("at", range(len(NO_NUMBERS)))
def test_equality_with_what_is_no_number(at: int) -> None:
    other = NO_NUMBERS[at]
    x = np.arange(3.0)
    lazy = itf.asarray(x)
    for got, want in (
        (lazy == other, x == other), (lazy != other, x != other),
        (other == lazy, other == x) if not isinstance(other, (np.ndarray, np.generic)) else
        (lazy == other, x == other),
    ):  # fmt: skip
        assert isinstance(got, itf.Array) and got.device == "cpu"
        assert_same(got.compute(), np.asarray(want))


def test_equality_with_sequences_and_other_classes() -> None:
    class Anything:
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = None  # type: ignore[assignment]

    x = itf.asarray(np.arange(3))
    assert (x == range(3)).compute().all() and (x == (0, 1, 2)).compute().all()
    assert (x == Anything()) is True and (x != Anything()) is False
    assert None not in x and "a" not in x
    with pytest.raises(itf.ShapeError, match=r"a == .*\(3,\).*\(2,\)"):
        x == ["a", "b"]  # noqa: B015
    with pytest.raises(itf.DTypeError, match="object"):
        x == [None, 1, 2]  # noqa: B015
