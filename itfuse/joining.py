"""Several operands side by side, and one several times.

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
from itfuse.errors import DTypeError, ShapeError, Unsupported
from itfuse.functions import FUNCTIONS, without_out
from itfuse.indexing import anywhere, axis_of, beside, searchsorted, view
from itfuse.manipulation import broadcast_to, expand_dims, ravel, reshape
from itfuse.ops import IOTA
from itfuse.plan.index import Form, along
from itfuse.wording import Lazily

_INT64 = np.dtype(np.int64)


def counter(size: int, behind: int) -> Any:
    """Return 0, 1, ... along an axis that `behind` others follow."""
    shape = (size, *(1,) * behind)
    return Array(expr.make(IOTA, (), _INT64, shape, along(0, len(shape))), {}, ANY)


def read(x: Array, axis: int, places: Any, label: str) -> Array:
    """Return `x` at computed places along one axis."""
    rows: list[Form | int] = [along(at, x.ndim) for at in range(x.ndim)]
    rows[axis] = 0
    size = places.shape[0]
    return view(x, (*x.shape[:axis], size, *x.shape[axis + 1 :]), rows, label, places)


def clamped(places: Any, size: int) -> Any:
    """Return places kept inside an axis."""
    return FUNCTIONS["clip"](places, 0, max(size - 1, 0))


@without_out
def concat(
    arrays: Sequence[Any], /, axis: int | None = 0, *, dtype: Any = None, casting: Any = "same_kind"
) -> Array:
    """Return operands joined along an axis.

    Parameters
    ----------
    arrays : sequence of array
        Equal in shape but along `axis`; the result has their common dtype.
    axis : int, optional
        The axis; None joins the flattened operands.
    dtype : dtype-like, optional
        Of the result.
    casting : str
        Which conversions to `dtype` are allowed.

    Raises
    ------
    ShapeError
        If there is no operand, or the shapes differ elsewhere.
    DTypeError
        If `casting` does not allow `dtype`.

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
    if rank == 0:
        raise ShapeError(f"{names}: operands without axes cannot be joined; use itf.stack")
    axis = axis_of(axis, rank, names)
    first = lazy[0].shape
    for x in lazy:
        if x.ndim != rank or any(
            a != b for at, (a, b) in enumerate(zip(x.shape, first, strict=True)) if at != axis
        ):
            raise ShapeError(
                f"{names}: shapes {first} and {x.shape} must be equal except along axis {axis}"
            )
    if dtype is None:
        dtype = np.result_type(*(x.dtype for x in lazy))
    lazy = [x.astype(dtype, casting=casting) for x in lazy]
    total = sum(x.shape[axis] for x in lazy)
    parts = [x for x in lazy if x.shape[axis]]
    if len(parts) < 2:
        return parts[0] if parts else lazy[0]
    index = counter(total, rank - axis - 1)
    start = total - parts[-1].shape[axis]
    result = read(parts[-1], axis, FUNCTIONS["maximum"](index - start, 0), "{0}[{1}]")
    for x in reversed(parts[:-1]):
        border, start = start, start - x.shape[axis]
        here = read(x, axis, clamped(index - start, x.shape[axis]), "{0}[{1}]")
        result = FUNCTIONS["where"](index < border, here, result)
    return result


@without_out
def stack(
    arrays: Sequence[Any], /, axis: int = 0, *, dtype: Any = None, casting: Any = "same_kind"
) -> Array:
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
    names = Lazily(lambda: f"stack([{', '.join(wording.text(x._node) for x in lazy)}])")
    if not lazy:
        raise ShapeError("stack: it needs at least one array")
    axis = axis_of(axis, lazy[0].ndim + 1, names, "the result")
    return concat([expand_dims(x, axis) for x in lazy], axis, dtype=dtype, casting=casting)


def _numbers(value: Any) -> list[int]:
    return [operator.index(v) for v in value] if isinstance(value, (tuple, list)) else [
        operator.index(value)]  # fmt: skip


def roll(x: Any, /, shift: Any, axis: Any = None) -> Array:
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
            index = counter(size, x.ndim - at - 1)
            place = FUNCTIONS["where"](index < by, index + (size - by), index - by)
            x = read(x, at, place, f"roll({{0}}, {by}, {at})")
    return x


def repeat(x: Any, /, repeats: Any, axis: int | None = None) -> Array:
    """Return `x` with each element `repeats` times in a row.

    Parameters
    ----------
    x : array
        The operand.
    repeats : int, or list or NumPy array of int
        How many times: all, or each of those along the axis.
    axis : int, optional
        The axis; by default that of the flattened operand.

    Raises
    ------
    ShapeError
        If a number is negative, or there are not as many as elements.
    Unsupported
        If `repeats` is an expression or lies on a GPU: the size of the result would depend on it.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.repeat(itf.asarray([1, 2]) + 1, 2).compute()
    array([2, 2, 3, 3])
    >>> itf.repeat(itf.asarray([1, 2]) + 1, [1, 3]).compute()
    array([2, 3, 3, 3])
    """
    x = asarray(x)
    what = Lazily(lambda: f"repeat({wording.text(x._node)}, {str(repeats)[:40]})")
    known = isinstance(repeats, (list, tuple, range, np.ndarray, np.generic))
    if not known and getattr(repeats, "shape", None) is not None:
        raise Unsupported(
            f"{what}: repeats must be numbers of the host, because they make the size of the "
            "result; compute() them, or .get() them from the GPU, first"
        )
    if axis is None or (x.ndim == 0 and axis in (0, -1)):  # as in NumPy
        x, axis = ravel(x), 0
    axis = axis_of(axis, x.ndim, what)
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iub" or counts.ndim > 1:
        raise DTypeError(f"{what}: repeats must be integers along one axis")
    if (counts < 0).any():
        raise ShapeError(f"{what}: a number of repeats is negative")
    if counts.size == 1:
        count = int(counts.reshape(())[()])
        spread = broadcast_to(
            expand_dims(x, axis + 1), (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
        )
        return reshape(spread, (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]))
    if counts.size != x.shape[axis]:
        raise ShapeError(
            f"{what}: {counts.size} numbers of repeats for an axis of {x.shape[axis]} elements"
        )
    total = int(counts.sum())
    if total == 0:
        return x[(*(slice(None),) * axis, slice(0, 0))]
    # Where each begins is all that is read: a place is found among these, not written down.
    ends = _upload(np.cumsum(counts, dtype=np.int64), x)
    place = searchsorted(ends, counter(total, 0), "right")
    place = reshape(place, (total, *(1,) * (x.ndim - axis - 1)))
    return read(x, axis, clamped(place, x.shape[axis]), "repeat({0}, ...)")


def _upload(values: Any, like: Array) -> Array:
    """Return a small array of the host where `like` is."""
    return beside(values.tolist(), like)


def tile(x: Any, repetitions: Any, /) -> Array:
    """Return copies of `x` beside one another, a number for each axis.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.tile(itf.asarray([1, 2]), 2).compute()
    array([1, 2, 1, 2])
    """
    x = asarray(x)
    counts = _numbers(repetitions)
    if any(count < 0 for count in counts):
        raise ShapeError(
            f"tile({wording.text(x._node)}, {repetitions}): a number of repetitions is negative"
        )
    rank = max(x.ndim, len(counts))
    counts = [1] * (rank - len(counts)) + counts
    shape = (1,) * (rank - x.ndim) + x.shape
    spread = [size for pair in zip(counts, shape, strict=True) for size in pair]
    single = [size for one in shape for size in (1, one)]
    tiled = broadcast_to(reshape(x, tuple(single)), tuple(spread))
    return reshape(tiled, tuple(a * b for a, b in zip(counts, shape, strict=True)))


def diff(x: Any, /, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
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


_PUBLIC = (concat, stack, roll, repeat, tile, diff)
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
FUNCTIONS["concatenate"] = concat
for _name in ("roll", "repeat"):
    setattr(Array, _name, FUNCTIONS[_name])
