"""Several operands side by side, and one operand with a rule beyond its borders.

Each element of the result comes from one of several places, chosen by comparing the index. All of
them are read, at places that are kept inside their arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from itfuse import expr, wording
from itfuse.array import ANY, Array, asarray
from itfuse.errors import ShapeError, Unsupported
from itfuse.functions import FUNCTIONS
from itfuse.indexing import anywhere, axis_of, view
from itfuse.manipulation import broadcast_to, expand_dims, ravel, reshape
from itfuse.ops import IOTA
from itfuse.plan.index import Form, along
from itfuse.wording import Lazily

_INT64 = np.dtype(np.int64)


def _counter(size: int, behind: int) -> Any:
    """Return 0, 1, ... along an axis that `behind` others follow."""
    shape = (size, *(1,) * behind)
    return Array(expr.make(IOTA, (), _INT64, shape, along(0, len(shape))), {}, ANY)


def _read(x: Array, axis: int, places: Any, label: str) -> Array:
    """Return `x` at computed places along one axis."""
    rows: list[Form | int] = [along(at, x.ndim) for at in range(x.ndim)]
    rows[axis] = 0
    size = places.shape[0]
    return view(x, (*x.shape[:axis], size, *x.shape[axis + 1 :]), rows, label, places)


def _clamped(places: Any, size: int) -> Any:
    return FUNCTIONS["clip"](places, 0, max(size - 1, 0))


def concat(arrays: Sequence[Any], axis: int | None = 0) -> Array:
    """Return operands joined along an axis.

    Parameters
    ----------
    arrays : sequence of array
        Equal in shape but along `axis`; the result has their common dtype.
    axis : int, optional
        The axis; None joins the flattened operands.

    Raises
    ------
    ShapeError
        If there is no operand, or the shapes differ elsewhere.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.concat([itf.asarray([1, 2]) * 10, itf.asarray([3])]).compute()
    array([10, 20,  3])
    """
    lazy = [asarray(x) for x in arrays]
    names = Lazily(lambda: f"concat([{', '.join(wording.text(x._node) for x in lazy)}])")
    if not lazy:
        raise ShapeError("concat: it needs at least one array")
    if axis is None:
        lazy, axis = [ravel(x) for x in lazy], 0
    rank = lazy[0].ndim
    axis = axis_of(axis, rank, names)
    first = lazy[0].shape
    for x in lazy:
        if x.ndim != rank or any(
            a != b for at, (a, b) in enumerate(zip(x.shape, first, strict=True)) if at != axis
        ):
            raise ShapeError(
                f"{names}: shapes {first} and {x.shape} must be equal except along axis {axis}"
            )
    dtype = np.result_type(*(x.dtype for x in lazy))
    lazy = [x.astype(dtype) for x in lazy]
    total = sum(x.shape[axis] for x in lazy)
    parts = [x for x in lazy if x.shape[axis]]
    if len(parts) < 2:
        return parts[0] if parts else lazy[0]
    index = _counter(total, rank - axis - 1)
    start = total - parts[-1].shape[axis]
    result = _read(parts[-1], axis, FUNCTIONS["maximum"](index - start, 0), "{0}[{1}]")
    for x in reversed(parts[:-1]):
        border, start = start, start - x.shape[axis]
        here = _read(x, axis, _clamped(index - start, x.shape[axis]), "{0}[{1}]")
        result = FUNCTIONS["where"](index < border, here, result)
    return result


def stack(arrays: Sequence[Any], axis: int = 0) -> Array:
    """Return operands of one shape along a new axis; see `concat`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.stack([itf.asarray([1, 2]), itf.asarray([3, 4])], axis=-1).compute()
    array([[1, 3],
           [2, 4]])
    """
    lazy = [asarray(x) for x in arrays]
    if any(x.shape != lazy[0].shape for x in lazy):
        shapes = ", ".join(str(x.shape) for x in lazy)
        raise ShapeError(f"stack: the operands must have one shape, not {shapes}")
    return concat([expand_dims(x, axis) for x in lazy], axis)


def _numbers(value: Any) -> list[int]:
    return [operator.index(v) for v in value] if isinstance(value, (tuple, list)) else [
        operator.index(value)]  # fmt: skip


def roll(x: Any, shift: Any, axis: Any = None) -> Array:
    """Return `x` moved along an axis; what leaves one end enters at the other.

    Parameters
    ----------
    x : array
        The operand.
    shift : int or tuple of int
        How far, for each axis.
    axis : int or tuple of int, optional
        The axes; None moves the flattened operand.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.roll(itf.asarray([1, 2, 3]) * 2, 1).compute()
    array([6, 2, 4])
    """
    x = asarray(x)
    if axis is None:
        flat = roll(ravel(x), sum(_numbers(shift)), 0)
        return reshape(flat, x.shape)
    axes, shifts = _numbers(axis), _numbers(shift)
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(axes) == 1:
        axes *= len(shifts)
    if len(axes) != len(shifts):
        raise ShapeError(
            f"roll({wording.text(x._node)}): {len(shifts)} shifts for {len(axes)} axes"
        )
    total: dict[int, int] = {}
    for one, by in zip(axes, shifts, strict=True):
        at = axis_of(one, x.ndim, Lazily(lambda: f"roll({wording.text(x._node)})"))
        total[at] = total.get(at, 0) + by
    for at, by in total.items():
        size = x.shape[at]
        by = by % size if size else 0  # noqa: PLW2901 - the shift within one round
        if by:
            index = _counter(size, x.ndim - at - 1)
            place = FUNCTIONS["where"](index < by, index + (size - by), index - by)
            x = _read(x, at, place, f"roll({{0}}, {by}, {at})")
    return x


def repeat(x: Any, repeats: int, axis: int | None = None) -> Array:
    """Return `x` with each element `repeats` times in a row.

    Raises
    ------
    Unsupported
        If `repeats` is an array: the size of the result would depend on data.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.repeat(itf.asarray([1, 2]) + 1, 2).compute()
    array([2, 2, 3, 3])
    """
    x = asarray(x)
    if hasattr(repeats, "shape") and getattr(repeats, "shape", ()) != ():
        raise Unsupported(
            f"repeat({wording.text(x._node)}, ...): repeats must be one number; an array of them "
            "makes a size that only data tell"
        )
    count = operator.index(repeats)
    if count < 0:
        raise ShapeError(f"repeat({wording.text(x._node)}, {count}): the count is negative")
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_of(axis, x.ndim, Lazily(lambda: f"repeat({wording.text(x._node)})"))
    spread = broadcast_to(
        expand_dims(x, axis + 1), (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
    )
    return reshape(spread, (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]))


def tile(x: Any, repetitions: Any) -> Array:
    """Return copies of `x` beside one another, a number for each axis.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.tile(itf.asarray([1, 2]), 2).compute()
    array([1, 2, 1, 2])
    """
    x = asarray(x)
    counts = _numbers(repetitions)
    rank = max(x.ndim, len(counts))
    counts = [1] * (rank - len(counts)) + counts
    shape = (1,) * (rank - x.ndim) + x.shape
    spread = [size for pair in zip(counts, shape, strict=True) for size in pair]
    single = [size for one in shape for size in (1, one)]
    tiled = broadcast_to(reshape(x, tuple(single)), tuple(spread))
    return reshape(tiled, tuple(a * b for a, b in zip(counts, shape, strict=True)))


def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """Return differences of neighbours along an axis, `n` times over.

    Parameters
    ----------
    x : array
        The operand.
    n : int
        How many times.
    axis : int
        The axis.
    prepend, append : array, optional
        Joined to `x` first.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.diff(itf.asarray([1, 4, 9])).compute()
    array([3, 5])
    """
    x = asarray(x)
    what = Lazily(lambda: f"diff({wording.text(x._node)})")
    if n < 0 or x.ndim == 0:
        raise ShapeError(f"{what}: it needs an axis and n of at least 0")
    axis = axis_of(axis, x.ndim, what)
    ends = [prepend, x, append]
    for at in (0, 2):
        if ends[at] is not None:
            end, edge = ends[at], (*x.shape[:axis], 1, *x.shape[axis + 1 :])
            end = anywhere(end)
            ends[at] = end if end.ndim else broadcast_to(end, edge)
    parts = [end for end in ends if end is not None]
    x = concat(parts, axis) if len(parts) > 1 else x
    before = (slice(None),) * axis
    for _ in range(n):
        upper, lower = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = FUNCTIONS["not_equal" if x.dtype.kind == "b" else "subtract"](upper, lower)
    return x


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
        return FUNCTIONS["where"](inside, _read(x, axis, _clamped(index, size), label), fill)
    if size == 0:
        raise ShapeError(
            f"{wording.text(x._node)}: nothing to continue by {mode!r} along axis {axis}"
        )
    if mode == "edge":
        place = _clamped(index, size)
    elif mode == "wrap":
        place = FUNCTIONS["remainder"](index, size)
    elif mode == "symmetric":
        place = FUNCTIONS["remainder"](index, 2 * size)
        place = FUNCTIONS["minimum"](place, 2 * size - 1 - place)
    else:
        place = FUNCTIONS["remainder"](index, max(2 * size - 2, 1))
        place = FUNCTIONS["minimum"](place, 2 * size - 2 - place) if size > 1 else place
    return _read(x, axis, place, label)


def _rule(mode: str, what: object) -> None:
    if mode not in _RULES:
        raise Unsupported(f"{what}: mode={mode!r}; there are {', '.join(_RULES)}")


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
    _rule(mode, what)
    axis = axis_of(axis, x.ndim, what)
    index = _counter(x.shape[axis], x.ndim - axis - 1) - operator.index(offset)
    if x.shape[axis] == 0:
        return x
    return _beyond(x, axis, index, mode, value)


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Array:
    """Return `x` with elements before and behind it along each axis.

    Parameters
    ----------
    x : array
        The operand.
    pad_width : int or nested sequence of int
        As in NumPy: one number, (before, behind), or such a pair for each axis.
    mode : str
        `constant`, `edge`, `wrap`, `reflect` or `symmetric`.
    constant_values : scalar
        The constant.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.pad(itf.asarray([1, 2]), 1).compute()
    array([0, 1, 2, 0])
    """
    x = asarray(x)
    what = Lazily(lambda: f"pad({wording.text(x._node)})")
    _rule(mode, what)
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    for axis, (before, behind) in enumerate(widths):
        if before < 0 or behind < 0:
            raise ShapeError(f"{what}: a width is negative in {pad_width}")
        if before or behind:
            total = x.shape[axis] + before + behind
            index = _counter(total, x.ndim - axis - 1) - before
            x = _beyond(x, axis, index, mode, constant_values)
    return x


_PUBLIC = (concat, stack, roll, repeat, tile, diff, shift, pad)
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
FUNCTIONS["concatenate"] = concat
for _name in ("roll", "repeat"):
    setattr(Array, _name, FUNCTIONS[_name])
