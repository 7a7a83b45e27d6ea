"""Elements put in and left out, and the places of elements in row-major order.

Compositions as those of arranging.py. Where places decide about a size they must be known when the
call is made; only they are read beside the operand, an integer each.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from itfuse import wording
from itfuse.array import Array, asarray
from itfuse.errors import BoundsError, DTypeError, ShapeError, Unsupported
from itfuse.functions import FUNCTIONS
from itfuse.indexing import as_places, axis_of, beside, searchsorted
from itfuse.joining import clamped, concat, counter, read
from itfuse.manipulation import broadcast_to, moveaxis, ravel, reshape
from itfuse.wording import Lazily


def _what(name: str, x: Array) -> Lazily:
    return Lazily(lambda: f"{name}({wording.text(x._node)}, ...)")


# ---- insertion and deletion ----------------------------------------------------------------------
def _known_places(obj: Any, size: int, what: object, whole: bool = False) -> np.ndarray[Any, Any]:
    """Return places along an axis that are known when the call is made."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(size), dtype=np.int64)
    if isinstance(obj, Array) or not isinstance(obj, (int, list, tuple, np.ndarray, np.generic)):
        raise Unsupported(f"{what}: places decide about the size and must be known; compute() them")
    places = np.asarray(obj)
    if places.dtype.kind == "b":
        if places.ndim != 1 or (whole and places.size != size):
            raise ShapeError(f"{what}: the mask has shape {places.shape}; it must be ({size},)")
        return np.flatnonzero(places)
    if places.size == 0:
        places = places.astype(np.int64)
    if places.dtype.kind not in "iu":
        raise BoundsError(f"{what}: places must be integers, not {places.dtype}")
    if places.ndim > 1:
        raise ShapeError(f"{what}: places must have one axis, not shape {places.shape}")
    return places.astype(np.int64)


def _in_bounds(places: Any, low: int, high: int, what: object, size: int) -> None:
    wrong = (places < low) | (places >= high)
    if wrong.any():
        bad = int(np.atleast_1d(places)[np.atleast_1d(wrong)][0])
        raise BoundsError(f"{what}: index {bad} is out of bounds for an axis of {size} elements")


def _flat(arr: Any, axis: int | None, name: str) -> tuple[Array, int]:
    x = asarray(arr)
    if axis is None:
        return ravel(x), 0
    return x, axis_of(axis, x.ndim, _what(name, x))


def delete(arr: Any, obj: Any, axis: int | None = None) -> Array:
    """Return `arr` without some places along an axis; without one, of the flattened `arr`.

    Parameters
    ----------
    arr : array
        The operand.
    obj : int, slice, or sequence of int or bool
        The places, known when the call is made.
    axis : int, optional
        The axis.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.delete(itf.arange(5) * 2, [0, 3]).compute()
    array([2, 4, 8])
    """
    x, axis = _flat(arr, axis, "delete")
    what, size = _what("delete", x), x.shape[axis]
    places = _known_places(obj, size, what, whole=True)
    _in_bounds(places, -size, size, what, size)
    gone = np.unique(places % size) if size else places
    if not gone.size:
        return x
    # How many are gone before the i-th that stays: those of which place - number is at most i.
    before = beside((gone - np.arange(gone.size)).tolist(), x)
    index: Any = counter(size - gone.size, 0)
    place = index + searchsorted(before, index, "right")
    return read(x, axis, _trailing(clamped(place, size), x.ndim - axis - 1), "delete({0}, ...)")


def _trailing(x: Any, count: int) -> Array:
    return reshape(x, (*x.shape, *(1,) * count))


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """Return `arr` with values before some places along an axis, or of the flattened `arr`.

    Parameters
    ----------
    arr : array
        The operand.
    obj : int, slice, or sequence of int or bool
        The places, known when the call is made.
    values : array
        In `arr`'s dtype; broadcast as NumPy does.
    axis : int, optional
        The axis.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.insert(itf.arange(4) * 2, [1, 3], 9).compute()
    array([0, 9, 2, 4, 9, 6])
    """
    x, axis = _flat(arr, axis, "insert")
    what, size = _what("insert", x), x.shape[axis]
    places = _known_places(obj, size, what)
    _in_bounds(places, -size, size + 1, what, size)
    places = np.where(places < 0, places + size, places)
    new = _values(values, x)
    if places.size == 1:
        return _inserted(x, int(places.reshape(())[()]), new, axis, places.ndim == 0)
    shape = (*x.shape[:axis], places.size, *x.shape[axis + 1 :])
    new = broadcast_to(new, shape)
    if not places.size:
        return x
    order = places.argsort(kind="stable")
    sorted_places = places[order] + np.arange(places.size)
    at: Any = beside(sorted_places.tolist(), x)
    total = size + places.size
    index: Any = counter(total, 0)
    count: Any = searchsorted(at, index, "right")
    last = clamped(count - 1, places.size)
    behind = x.ndim - axis - 1
    here = _trailing((count > 0) & (FUNCTIONS["take"](at, last) == index), behind)
    number = FUNCTIONS["take"](beside(order.tolist(), x), last)
    label = "insert({0}, ...)"
    mine = read(new, axis, _trailing(number, behind), label)
    if not size:
        return mine
    old = read(x, axis, _trailing(clamped(index - count, size), behind), label)
    return FUNCTIONS["where"](here, mine, old)


def _values(values: Any, x: Array) -> Array:
    if isinstance(values, (bool, int, float, complex, list, tuple)):
        values = FUNCTIONS["asarray"](values, x.dtype)
        return values if x._device in ("any", "cpu") else beside(values.compute(), x)
    return asarray(values).astype(x.dtype)


def _inserted(x: Array, at: int, values: Any, axis: int, single: bool) -> Array:
    """Return values before one place: as many as they have along the axis."""
    values = reshape(values, (*(1,) * (x.ndim - values.ndim), *values.shape))
    if single:  # NumPy's a[:, 0] = values, not a[:, [0]] = values
        values = moveaxis(values, 0, axis)
    shape = (*x.shape[:axis], values.shape[axis], *x.shape[axis + 1 :])
    before = (slice(None),) * axis
    whole: Any = x
    parts = [whole[(*before, slice(0, at))], broadcast_to(values, shape),
             whole[(*before, slice(at, None))]]  # fmt: skip
    return concat(parts, axis)


# ---- places of an array in row-major order -------------------------------------------------------
def _not_negative(index: Any, size: int, what: object) -> Any:
    """Return int64 places; below zero or beyond the end is an error when they are computed."""
    lazy: Any = asarray(index)
    if lazy.dtype.kind not in "iu":
        raise DTypeError(f"{what}: indices must be integers, not {lazy.dtype}")
    checked = FUNCTIONS["where"](lazy < 0, np.int64(size), lazy.astype(np.int64))
    return as_places(checked, lazy, size, what)


def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Array, ...]:
    """Return the index along each axis of `shape` of places in row-major (or `F`) order.

    Raises
    ------
    BoundsError
        When it is computed, for a place that is not there (on a GPU see `bounds_check`).

    Examples
    --------
    >>> import itfuse as itf
    >>> [x.tolist() for x in itf.unravel_index(itf.asarray([5, 1]), (2, 3))]
    [[1, 0], [2, 1]]
    """
    sizes = tuple(shape) if isinstance(shape, Sequence) else (operator.index(shape),)
    place = _not_negative(indices, int(np.prod(sizes, dtype=object)), "unravel_index(...)")
    found: list[Any] = []
    for size in reversed(sizes) if order == "C" else sizes:
        found.append(place % size)
        place = place // size
    return tuple(reversed(found)) if order == "C" else tuple(found)


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Array:
    """Return the places in row-major (or `F`) order of indices along each axis of `dims`.

    Parameters
    ----------
    multi_index : tuple of integer array
        An index for each axis.
    dims : tuple of int
        Sizes.
    mode : str, or tuple of str
        `raise` (see `unravel_index`), `wrap` or `clip`, for all axes or each.
    order : str
        `C` or `F`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.ravel_multi_index(([1, 0], [2, 1]), (2, 3)).compute()
    array([5, 1])
    """
    sizes = tuple(dims) if isinstance(dims, Sequence) else (operator.index(dims),)
    given = tuple(multi_index)
    modes = (mode,) * len(sizes) if isinstance(mode, str) else tuple(mode)
    if len(given) != len(sizes) or len(modes) != len(sizes):
        raise ShapeError(
            f"ravel_multi_index: {len(given)} indices and {len(modes)} modes for {len(sizes)} axes"
        )
    total: Any = None
    step = 1
    rows = list(zip(given, sizes, modes, strict=True))
    for index, size, how in reversed(rows) if order == "C" else rows:
        place: Any
        if how == "wrap":
            place = FUNCTIONS["remainder"](asarray(index).astype(np.int64), size)
        elif how == "clip":
            place = FUNCTIONS["clip"](asarray(index).astype(np.int64), 0, size - 1)
        elif how == "raise":
            place = _not_negative(index, size, "ravel_multi_index(...)")
        else:
            raise ValueError(f"ravel_multi_index: mode={how!r}; there are raise, wrap and clip")
        total = place * step if total is None else total + place * step
        step *= size
    return total


_PUBLIC = (insert, delete, unravel_index, ravel_multi_index)
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
