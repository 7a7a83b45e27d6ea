"""Arguments as NumPy's users write them: NumPy's result, or its kind of error."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import itfuse as itf

F = np.arange(12.0).reshape(3, 4)
SMALL = np.arange(12, dtype="u1").reshape(3, 4)
KINDS = (ValueError, TypeError, IndexError, OverflowError)


def agree(call: Any, x: np.ndarray = F) -> None:
    """Raise unless a call of (module, array) gives the same with itfuse as with NumPy."""
    try:
        with np.errstate(all="ignore"):
            want = call(np, x)
    except Exception as why:
        with pytest.raises(tuple(k for k in KINDS if isinstance(why, k))):
            itf.materialize(call(itf, itf.asarray(x)))
        return
    got = call(itf, itf.asarray(x))
    if not isinstance(want, tuple):
        got, want = (got,), (want,)
    for mine, theirs in zip(got, want, strict=True):
        assert isinstance(mine, itf.Array)
        result = mine.compute()
        assert (result.shape, result.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(result, theirs)


CALLS = (
    lambda m, x: np.transpose(x, axes=(1, 0)), lambda m, x: np.reshape(x, shape=(4, 3)),
    lambda m, x: np.reshape(x, (4, 3), "F"), lambda m, x: np.reshape(x, (4, 3), order="A"),
    lambda m, x: x.reshape(4, 3, order="A"), lambda m, x: x.reshape((4, -1)),
    lambda m, x: x.reshape(4, 3, order="K"), lambda m, x: x.transpose(1, 0),
    lambda m, x: x.transpose((1, 0)), lambda m, x: x.transpose(), lambda m, x: x.flatten("F"),
    lambda m, x: x.ravel("Q"), lambda m, x: np.concatenate([x, x], dtype="f4"),
    lambda m, x: np.concatenate([x, x], dtype="i4"), lambda m, x: np.concatenate(x),
    lambda m, x: np.concatenate([x, x], dtype="i4", casting="unsafe"),
    lambda m, x: np.stack([x, x], dtype="f4"), lambda m, x: m.zeros((2, 3), order="F"),
    lambda m, x: m.full((2, 3), 1, order="C"), lambda m, x: m.zeros_like(x, order="K"),
    lambda m, x: m.ones_like(x, "f4", "K", True, (2,)), lambda m, x: m.zeros(3, order="Q"),
    lambda m, x: m.eye(N=3, M=2), lambda m, x: m.tri(3, M=2), lambda m, x: m.arange(stop=5),
    lambda m, x: m.arange(), lambda m, x: m.arange(2, stop=5), lambda m, x: m.tril(m.arange(3)),
    lambda m, x: m.triu(m.arange(1, 4), 1),
    lambda m, x: np.take_along_axis(x, np.array([3, -1]), None),
    lambda m, x: m.repeat(x, [1, 0, 2], axis=0), lambda m, x: m.repeat(x, np.arange(12)),
    lambda m, x: m.repeat(x, np.array([1, 0, 2, 1]), axis=1), lambda m, x: m.repeat(x, [2], axis=0),
    lambda m, x: m.repeat(x, [1, 2], axis=0), lambda m, x: m.repeat(x, [0, 0, 0], axis=0),
    lambda m, x: m.repeat(x, -1), lambda m, x: x.repeat([1, 2, 3], 0),
    lambda m, x: m.meshgrid(x[0], x[1], sparse=True),
    lambda m, x: m.meshgrid(x[0], x[1], x[2], sparse=True, indexing="ij"),
    lambda m, x: m.meshgrid(x[0], x[1], copy=False), lambda m, x: m.indices((2, 3), sparse=True),
    lambda m, x: x.astype("i4", copy=False), lambda m, x: x.astype("i4", "K", "safe"),
    lambda m, x: x.astype("f4", casting="same_kind"), lambda m, x: m.array(x, ndmin=4),
    lambda m, x: np.broadcast_arrays(x, x[0]),
    # An operand without axes has one for these.
    lambda m, x: np.repeat(m.asarray(2.5), 3, axis=0),
    lambda m, x: np.repeat(m.asarray(2.5), [2], -1),
    lambda m, x: np.take(m.asarray(2.5), [0, -1], axis=0),
    lambda m, x: np.squeeze(m.asarray(2.5), 0), lambda m, x: np.squeeze(m.asarray(2.5), 1),
    lambda m, x: np.repeat(m.asarray(2.5), 3, axis=1),
)  # fmt: skip


@pytest.mark.parametrize("at", range(len(CALLS)))
def test_arguments_are_numpys(at: int) -> None:
    agree(CALLS[at])


KEYS: tuple[Any, ...] = (
    (True, 1), (1, True), True, False, (False, 1), (True, slice(1, 3)), (True, [0, 2]),
    ([0, 2], True), (True, None), (None, True, 1), (slice(None), True, 1), (slice(None), 1, True),
    (True, True), (True, False), (..., True), (..., True, 1), (0, ..., True), (np.True_, 1),
    (np.array(True), 1), (True, 0, 1), (True, 0, 1, 2), (0, slice(None), True), np.False_,
)  # fmt: skip


@pytest.mark.parametrize("at", range(len(KEYS)))
def test_booleans_among_indices(at: int) -> None:
    agree(lambda _, x: x[KEYS[at]])


ENDS: tuple[Any, ...] = (
    (F[0], F[1]), (F[0], 3), (F[0], F[0]), (F[0], F[:, :1]), (0, F), (F.astype("f4"), 2.5),
    (F.astype("i4"), 7), (1j, F[0]),
)  # fmt: skip


@pytest.mark.parametrize("at", range(len(ENDS)))
def test_linspace_between_arrays(at: int) -> None:
    start, stop = ENDS[at]
    many = itertools.product((0, 1, 2, 5, 7), (True, False), (0, -1, 5), (None, "i4", "f4"))
    for num, endpoint, axis, dtype in many:
        if dtype and isinstance(start, complex):
            continue
        rest = {"endpoint": endpoint, "axis": axis, "dtype": dtype}
        agree(lambda m, _: m.linspace(start, stop, num, **rest))  # noqa: B023
        agree(lambda m, _: m.linspace(m.asarray(start), m.asarray(stop), num, **rest))  # noqa: B023
    agree(lambda m, _: m.linspace(start, stop, 3, retstep=True))


LAYOUTS = (
    F, np.asfortranarray(F), np.asfortranarray(F)[::-1], F[:, ::2], np.asfortranarray(F)[:, 1:2],
    np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2), np.arange(24).reshape(2, 3, 4).T,
    np.broadcast_to(F[:1], (2, 4)), np.ones((0, 3)), np.asfortranarray(np.ones((1, 4))),
)  # fmt: skip


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_orders_are_those_of_memory(order: Any) -> None:
    for x in LAYOUTS:
        agree(lambda _, x: x.ravel(order), x)
        agree(lambda _, x: x.flatten(order), x)
        agree(lambda _, x: x.reshape((-1, 1), order=order), x)


WIDTHS: tuple[Any, ...] = (
    1, (1, 2), ((1, 0), (2, 3)), {0: (1, 2)}, {-1: 2}, ((0, 0), (0, 1)), 5, {5: 1}, (1, 2, 3), -1,
    1.5,
)  # fmt: skip


@pytest.mark.parametrize(
    "mode", ["constant", "edge", "wrap", "reflect", "symmetric", "linear_ramp"]
)
def test_padding(mode: Any) -> None:
    for width, x in itertools.product(WIDTHS, (F, SMALL, F[:1], F.astype("f4") / 3)):
        agree(lambda _, x: np.pad(x, width, mode=mode), x)  # noqa: B023


@pytest.mark.parametrize("at", range(7))
def test_what_padding_puts_there(at: int) -> None:
    call = (
        lambda _, x: np.pad(x, 1, constant_values=(3, 4)),
        lambda _, x: np.pad(x, 1, constant_values=((3, 4), (5, 6))),
        lambda _, x: np.pad(x, 1, mode="linear_ramp", end_values=((3, 4), (5, 6))),
        lambda _, x: np.pad(x, 1, mode="reflect", reflect_type="even"),
        lambda _, x: np.pad(x[:0], 1), lambda _, x: np.pad(x[:0], 1, mode="edge"),
        lambda _, x: np.pad(x, (2, 0), "constant", constant_values=7),
    )[at]  # fmt: skip
    agree(call)


def test_what_padding_has_not() -> None:
    x = itf.asarray(F)
    for options in ({"mode": "mean"}, {"mode": "reflect", "reflect_type": "odd"}):
        with pytest.raises(itf.Unsupported, match=r"pad\(a\): (mode|reflect_type)="):
            itf.pad(x, 1, **options)


def test_dtype_functions() -> None:
    assert itf.can_cast("f8", "i4", casting="unsafe") and not itf.can_cast("f8", "i4")
    assert itf.can_cast(itf.asarray(F), "f4", "same_kind")
    assert itf.promote_types("i1", np.uint8) == np.int16


def test_a_shift_goes_along_one_axis() -> None:
    x = itf.asarray(F)
    with pytest.raises(TypeError, match=r"shift\(a, \(1, 2\)\): .*one integer"):
        itf.shift(x, (1, 2))
    with pytest.raises(TypeError, match=r"shift\(a, 1\): axis=\(0, 1\)"):
        itf.shift(x, 1, (0, 1))


def test_repeats_must_be_known() -> None:
    x = itf.asarray(F)
    with pytest.raises(itf.Unsupported, match=r"repeat\(a, .*host"):
        itf.repeat(x, x.sum())
    with pytest.raises(itf.DTypeError, match="integers"):
        itf.repeat(x, 1.5)
    plan = itf.plan(itf.repeat(x, [1, 2, 3], axis=0))
    assert plan.passes == 1 and plan.bytes_temporary == 0
