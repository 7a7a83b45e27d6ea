"""One operand with a rule beyond its borders: neighbours for stencils, and padding."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from itfuse import expr, wording
from itfuse.array import Array, asarray
from itfuse.errors import ShapeError, Unsupported
from itfuse.functions import FUNCTIONS
from itfuse.indexing import anywhere, axis_of, getitem
from itfuse.joining import clamped, concat, counter, read
from itfuse.manipulation import broadcast_to, flip
from itfuse.wording import Lazily

_RULES = ("constant", "edge", "wrap", "reflect", "symmetric")


def _beyond(x: Array, axis: int, index: Any, mode: str, value: Any) -> Array:
    """Return `x` along `axis` at any index, by the rule beyond its ends."""
    size = x.shape[axis]
    label = "{0}[{1}]"
    if mode == "constant":
        inside = (index >= 0) & (index < size)
        fill = anywhere(value).astype(x.dtype)
        if size == 0:
            shape = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
            return broadcast_to(fill, shape)
        return FUNCTIONS["where"](inside, read(x, axis, clamped(index, size), label), fill)
    if size == 0:
        raise ShapeError(
            f"{wording.text(x._node)}: nothing to continue by {mode!r} along axis {axis}"
        )
    if mode == "edge":
        place = clamped(index, size)
    elif mode == "wrap":
        place = FUNCTIONS["remainder"](index, size)
    elif mode == "symmetric":
        place = FUNCTIONS["remainder"](index, 2 * size)
        place = FUNCTIONS["minimum"](place, 2 * size - 1 - place)
    else:
        place = FUNCTIONS["remainder"](index, max(2 * size - 2, 1))
        place = FUNCTIONS["minimum"](place, 2 * size - 2 - place) if size > 1 else place
    return read(x, axis, place, label)


def _rule(mode: Any, what: object, rules: tuple[str, ...]) -> None:
    if mode not in rules:
        raise Unsupported(f"{what}: mode={mode!r}; there are {', '.join(rules)}")


def shift(x: Any, offset: int, axis: int = -1, mode: str = "constant", value: Any = 0) -> Array:
    """Return `x` at `index - offset` along an axis: the neighbour, for stencils.

    Parameters
    ----------
    x : array
        The operand.
    offset : int
        How far elements move towards higher indices.
    axis : int
        The axis.
    mode : str
        What lies beyond the ends: `constant`, `edge`, `wrap`, `reflect` or `symmetric`, as in
        `numpy.pad`.
    value : scalar
        The constant.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.shift(itf.asarray([1, 2, 3]), 1, mode="edge").compute()
    array([1, 1, 2])
    """
    x = asarray(x)
    what = Lazily(lambda: f"shift({wording.text(x._node)}, {offset})")
    _rule(mode, what, _RULES)
    if isinstance(axis, (tuple, list)):
        raise TypeError(f"{what}: axis={axis} must be one axis; call shift once for each axis")
    axis = axis_of(axis, x.ndim, what)
    if not hasattr(offset, "__index__"):
        raise TypeError(
            f"{what}: the offset must be one integer, for one axis; call shift once for each axis"
        )
    if type(value) is int:
        value = expr.stored(value, x.dtype, what)
    index = counter(x.shape[axis], x.ndim - axis - 1) - operator.index(offset)
    if x.shape[axis] == 0:
        return x
    return _beyond(x, axis, index, mode, value)


def _pairs(value: Any, rank: int, what: object) -> list[tuple[Any, Any]]:
    """Return a (before, behind) pair for each axis, as NumPy reads one, two or all of them."""
    if isinstance(value, Mapping):
        pairs: list[tuple[Any, Any]] = [(0, 0)] * rank
        for axis, one in value.items():
            before, behind = one if isinstance(one, (tuple, list)) else (one, one)
            pairs[axis_of(axis, rank, what)] = (before, behind)
        return pairs
    if isinstance(value, (Array, bool, int, float, complex)):
        return [(value, value)] * rank
    try:
        found = np.broadcast_to(np.asarray(value), (rank, 2))
    except ValueError:
        raise ShapeError(f"{what}: {value!r} is no pair for each of {rank} axes") from None
    return [(row[0], row[1]) for row in found.tolist()]


def _ramp(x: Array, axis: int, end: Any, width: int, behind: bool) -> Array:
    """Return `width` numbers from `end` towards the border of `x`, which they do not reach."""
    at = x.shape[axis] - 1 if behind else 0
    edge = getitem(x, (*(slice(None),) * axis, at))
    end = end if isinstance(end, Array) else np.asarray(end)  # not weak, as in NumPy
    made = FUNCTIONS["linspace"](end, edge, width, endpoint=False, dtype=x.dtype, axis=axis)
    return flip(made, axis) if behind else made  # type: ignore[no-any-return]


_PADDED = (*_RULES, "linear_ramp", "empty")


def pad(  # noqa: PLR0917 - NumPy has these by name
    x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0,
    end_values: Any = 0, reflect_type: str = "even",
) -> Array:  # fmt: skip
    """Return `x` with elements before and behind it along each axis.

    Parameters
    ----------
    x : array
        The operand.
    pad_width : int, nested sequence of int, or dict
        As in NumPy: one number, (before, behind), such a pair for each axis, or those of some axes.
    mode : str
        `constant`, `edge`, `wrap`, `reflect`, `symmetric`, `linear_ramp`, or `empty` (zeros:
        nothing is uninitialised).
    constant_values, end_values : scalar, or nested sequence
        What `constant` puts there, and what `linear_ramp` ends with; like `pad_width`.
    reflect_type : str
        `even`; NumPy's `odd` is not there.

    Raises
    ------
    Unsupported
        For another mode.
    ShapeError
        If a width is negative, or there is nothing to continue.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.pad(itf.asarray([1, 2]), 1).compute()
    array([0, 1, 2, 0])
    >>> itf.pad(itf.asarray([[1, 2]]), {-1: (0, 2)}, mode="edge").compute()
    array([[1, 2, 2, 2]])
    """
    x = asarray(x)
    what = Lazily(lambda: f"pad({wording.text(x._node)})")
    _rule(mode, what, _PADDED)
    if reflect_type != "even":
        raise Unsupported(f"{what}: reflect_type={reflect_type!r}; there is 'even'")
    widths = [
        (operator.index(before), operator.index(behind))
        for before, behind in _pairs(pad_width, x.ndim, what)
    ]
    values = _pairs({"constant": constant_values, "linear_ramp": end_values}.get(mode, 0),
                    x.ndim, what)  # fmt: skip
    for axis, (before, behind) in enumerate(widths):
        if before < 0 or behind < 0:
            raise ShapeError(f"{what}: a width is negative in {pad_width}")
        if before or behind:
            x = _padded(x, axis, (before, behind), mode, values[axis])
    return x


def _padded(x: Array, axis: int, width: tuple[int, int], mode: str, values: Any) -> Array:
    before, behind = width
    if mode == "linear_ramp":
        ramps = [_ramp(x, axis, values[k], width[k], bool(k)) for k in (0, 1)]
        return concat([ramps[0], x, ramps[1]], axis)
    if mode in ("constant", "empty") and values[0] is not values[1] and values[0] != values[1]:
        parts = [x]
        for k in (0, 1):
            shape = (*x.shape[:axis], width[k], *x.shape[axis + 1 :])
            filled = broadcast_to(anywhere(values[k]).astype(x.dtype), shape)
            parts.insert(len(parts) * k, filled)
        return concat(parts, axis)
    total = x.shape[axis] + before + behind
    index = counter(total, x.ndim - axis - 1) - before
    return _beyond(x, axis, index, "constant" if mode == "empty" else mode, values[0])


FUNCTIONS.update({"shift": shift, "pad": pad})
