"""Indexing and gathers: which elements of an expression are meant. Nothing is copied.

Basic indexing is an affine map of the index. An index array is an expression too, read at the
output's own index; the source is read at the place that it gives.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from itfuse import engines, expr, wording
from itfuse.array import Array, asarray, combine, place_of, spec
from itfuse.containers import no_expressions
from itfuse.errors import AxisError, BoundsError, ShapeError, Unsupported
from itfuse.expr import Shape
from itfuse.form import Number
from itfuse.functions import FUNCTIONS, without_out
from itfuse.ops import OPS, VIEW
from itfuse.plan.index import Form, Map, along, constant
from itfuse.wording import Lazily

_INT64 = np.dtype(np.int64)


def view(x: Array, shape: Shape, rows: Sequence[Form | int], label: str, *computed: Array) -> Array:
    """Return the elements of `x` that `rows` choose, one row for each axis of `x`; see `Map`.

    The values of `computed` must be int64 places in range, in a shape that broadcasts to `shape`.
    """
    data, device = combine([x, *computed], lambda: wording.text(x._node))
    if len(shape) > expr.MOST_AXES:
        parts = [wording.text(one._node) for one in (x, *computed)]
        expr.check_axes(len(shape), label.format(*parts))
    map_ = Map(tuple(rows), label)
    srcs = (x._node, *(one._node for one in computed))
    if not computed and shape == x.shape and map_ == Map(identity(shape)):
        return x
    return Array(expr.make(VIEW, srcs, x.dtype, shape, map_), data, device)


def identity(shape: Shape) -> tuple[Form, ...]:
    """Return the rows of the view that changes nothing."""
    return tuple(along(axis, len(shape)) for axis in range(len(shape)))


def beside(index: Any, like: Array) -> Array:
    """Return an index as an array; a list or number goes where `like` is."""
    no_expressions(index, "an index")
    if isinstance(index, (list, tuple, range, int, np.generic)):
        index = np.asarray(index)
        if index.size == 0 and index.dtype.kind == "f":
            index = index.astype(np.int64)
        index = (
            spec(index.shape, index.dtype)
            if like._device == "none"
            else engines.upload(index, place_of(like._device))
        )
    return asarray(index)


def as_places(index: Any, like: Array, size: int, what: object) -> Array:
    """Return an index array as int64 places along an axis of `size` elements.

    Raises
    ------
    BoundsError
        If it holds no integers, or the axis has no elements and the index has.
    Unsupported
        For booleans.
    """
    places = beside(index, like)
    if places.dtype.kind == "b":
        raise Unsupported(
            f"{what}: these indices are booleans; use x[mask] or itf.compress(mask, x, axis), or "
            "cast them with .astype(int)"
        )
    if places.dtype.kind not in "iu":
        raise BoundsError(f"{what}: an index array must hold integers, not {places.dtype}")
    if size == 0 and places.size:
        raise BoundsError(f"{what}: the axis has no elements to index")
    node = expr.elementwise(OPS["wrap_index"], (places._node, np.int64(size)))
    return places._of(node)


def trailing(x: Array, count: int) -> Array:
    """Return `x` with `count` more axes of one element at its end."""
    rank = x.ndim + count
    rows = [along(axis, rank) for axis in range(x.ndim)]
    return view(x, (*x.shape, *(1,) * count), rows, "{0}")


def _is_int(item: Any) -> bool:
    if isinstance(item, (bool, np.bool_, Array)) or hasattr(item, "shape"):
        return isinstance(item, np.integer)
    return hasattr(item, "__index__")


class _Axes:
    """The axes of a result while an index is read, and the rows of the source."""

    def __init__(self) -> None:
        self.shape: list[int] = []
        self.rows: list[Any] = []  # (start, step, axis), a constant, or an index array
        self.arrays_at = -1  # axis of the result where the index arrays' axes begin
        self.apart = False  # whether something stands between the index arrays
        self.open = False
        self.beside: list[Shape] = []  # of booleans, which stand for an axis of one element or none

    def advanced(self) -> None:
        if self.arrays_at < 0:
            self.arrays_at = len(self.shape)
        elif not self.open:
            self.apart = True
        self.open = True

    def axis(self, size: int) -> None:
        self.open = False
        self.shape.append(size)


def getitem(x: Array, key: Any) -> Array:
    """Return `x[key]` as NumPy means it.

    Parameters
    ----------
    x : Array
        The expression.
    key : int, slice, Ellipsis, None, integer array, or a tuple of them
        Integer arrays (also lists and lazy expressions) broadcast together. Negative indices
        count from the end.

    Returns
    -------
    Array
        A lazy view; no pass and no copy.

    Raises
    ------
    BoundsError
        For an index beyond its axis, or more indices than axes. Where an index array decides,
        the CPU engine raises when it computes; on a GPU see the setting `bounds_check`.
    Unsupported
        For booleans; `itfuse.selected.getitem`, which calls this, takes masks.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> x = itf.asarray(np.arange(12).reshape(3, 4)) * 10
    >>> x[1:, ::-2].compute()
    array([[ 70,  50],
           [110,  90]])
    >>> x[[0, -1], [1, 2]].compute()
    array([ 10, 100])
    """
    items = list(key) if isinstance(key, tuple) else [key]
    shown = tuple(items)
    what = Lazily(lambda: f"{_base_text(x)}[{', '.join(_item_text(item) for item in shown)}]")
    label = _label(shown)
    if any(item is Ellipsis for item in items):
        if sum(item is Ellipsis for item in items) > 1:
            raise BoundsError(f"{what}: an index can only have a single ellipsis ('...')")
    else:
        items.append(Ellipsis)
    used = sum(item is not None and item is not Ellipsis and not is_flag(item) for item in items)
    if used > x.ndim:
        raise BoundsError(f"{what}: {used} indices for an expression of {x.ndim} axes")
    axes = _Axes()
    mixed = any(not _is_basic(item) for item in items)
    places: list[Array] = []
    for item in items:
        at = len(axes.rows)
        if item is None:
            axes.axis(1)
        elif item is Ellipsis:
            for size in x.shape[at : at + x.ndim - used]:
                axes.axis(size)
                axes.rows.append((0, 1, len(axes.shape) - 1))
            axes.open = False
        elif isinstance(item, slice):
            start, stop, step = item.indices(x.shape[at])
            axes.axis(len(range(start, stop, step)))
            axes.rows.append((start, step, len(axes.shape) - 1))
        else:
            _chosen(item, x, axes, places, what)
            if mixed:
                axes.advanced()
    return _assemble(x, axes, places, what, label)


def _chosen(item: Any, x: Array, axes: _Axes, places: list[Array], what: object) -> None:
    """Take note of an integer, an index array or a boolean among the indices."""
    at = len(axes.rows)
    if is_flag(item):
        axes.beside.append((int(bool(item)),))
    elif _is_int(item):
        axes.rows.append(_in_range(operator.index(item), x.shape[at], at, what))
    else:
        places.append(as_places(item, x, x.shape[at], what))
        axes.rows.append(places[-1])


def _assemble(x: Array, axes: _Axes, places: list[Array], what: object, label: str) -> Array:
    flags = axes.beside
    shape = expr.broadcast([*(one.shape for one in places), *flags], lambda: str(what))
    start = 0 if axes.apart or not (places or flags) else axes.arrays_at
    rank, extra = len(axes.shape) + len(shape), len(shape)
    expr.check_axes(rank, what)
    behind = len(axes.shape) - start
    rows: list[Form | int] = []
    computed: list[Array] = []
    for row in axes.rows:
        if isinstance(row, tuple):
            first, step, axis = row
            rows.append(along(axis + extra if axis >= start else axis, rank, first, step))
        elif isinstance(row, Array):
            rows.append(len(computed))
            computed.append(trailing(row, behind) if behind else row)
        else:
            rows.append(constant(row, rank))
    whole = (*axes.shape[:start], *shape, *axes.shape[start:])
    return view(x, whole, rows, label, *computed)


def is_flag(item: Any) -> bool:
    """Whether an index is one boolean that is known: an axis of one element, or of none."""
    if isinstance(item, np.ndarray) and item.ndim == 0:
        return item.dtype.kind == "b"
    return isinstance(item, (bool, np.bool))


def _is_basic(item: Any) -> bool:
    return item is None or item is Ellipsis or isinstance(item, slice) or _is_int(item)


def _in_range(index: int, size: int, axis: int, what: object) -> int:
    if not -size <= index < size:
        raise BoundsError(f"{what}: index {index} is out of bounds for axis {axis} of {size}")
    return index % size


def _base_text(x: Array) -> str:
    text, op = wording.text(x._node), x._node.op
    return f"({text})" if op.symbol and op.arity == 2 else text


def _label(items: Sequence[Any]) -> str:
    """Return the template of a view's text, in which lazy index arrays are numbered."""
    parts = []
    arrays = 0
    for item in items:
        lazy = isinstance(item, Array)
        arrays += not _is_basic(item)
        parts.append(f"{{{arrays}}}" if lazy else _item_text(item).strip("{}"))
    return f"{{0}}[{', '.join(parts)}]"


def _item_text(item: Any) -> str:
    if isinstance(item, slice):
        parts = ["" if one is None else _item_text(one) for one in (item.start, item.stop)]
        step = "" if item.step is None else f":{_item_text(item.step)}"
        return ":".join(parts) + step
    if isinstance(item, Number):  # of a traced function; an index cannot be one
        return repr(item)
    if item is Ellipsis or item is None:
        return "..." if item is Ellipsis else "None"
    if isinstance(item, Array):
        return wording.text(item._node)
    return f"array{list(item.shape)}" if getattr(item, "shape", ()) else str(item)[:40]


def axis_of(axis: Any, rank: int, what: object, of: str = "the expression") -> int:
    """Return an axis counted from the front; `of` is what has `rank` axes.

    Raises
    ------
    AxisError
        If there is no such axis.
    TypeError
        If it is no integer.
    """
    if not hasattr(axis, "__index__"):
        raise TypeError(f"{what}: axis={axis!r} is no integer")
    number = operator.index(axis)
    if not -rank <= number < rank:
        raise AxisError(f"{what}: axis {number} is out of bounds for the {rank} axes of {of}")
    return number % rank


_MODES = ("raise", "wrap", "clip")


@without_out
def take(x: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Array:
    """Return the elements of `x` at `indices` along an axis.

    Parameters
    ----------
    x : array
        The source.
    indices : array of integers
        Places, of any shape; a lazy expression is computed where it is used.
    axis : int, optional
        The axis; by default that of the flattened `x`.
    mode : str
        `raise`: negative ones count from the end, others out of bounds are an error (see
        `getitem`); `wrap`: modulo the axis; `clip`: the nearest.

    Returns
    -------
    Array
        Of shape `x.shape[:axis] + indices.shape + x.shape[axis + 1:]`.

    Examples
    --------
    >>> import itfuse as itf
    >>> (itf.asarray([10, 20, 30]) + 1).take([[2, -1], [0, 0]]).compute()
    array([[31, 31],
           [11, 11]])
    """
    x = asarray(x)
    what = Lazily(lambda: f"take({wording.text(x._node)}, ...)")
    if mode not in _MODES:
        raise ValueError(f"{what}: mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if axis is None or (x.ndim == 0 and axis in (0, -1)):  # as in NumPy
        x, axis = FUNCTIONS["reshape"](x, (-1,)), 0
    axis = axis_of(axis, x.ndim, what)
    size = x.shape[axis]
    if mode != "raise":
        indices = beside(indices, x).astype(np.int64)
        if mode == "clip":
            indices = FUNCTIONS["clip"](indices, 0, max(size - 1, 0))
        else:
            indices = FUNCTIONS["remainder"](indices, max(size, 1))
    places = as_places(indices, x, size, what)
    behind = x.ndim - axis - 1
    rank = x.ndim - 1 + places.ndim
    expr.check_axes(rank, what)
    rows: list[Form | int] = [along(at, rank) for at in range(axis)]
    rows += [0, *(along(at, rank) for at in range(rank - behind, rank))]
    shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])
    label = f"take({{0}}, {{1}}, axis={axis})"
    return view(x, shape, rows, label, trailing(places, behind) if behind else places)


def take_along_axis(x: Any, indices: Any, /, axis: int | None = -1) -> Array:
    """Return the elements of `x` that `indices` name along an axis, at their own other places.

    Parameters
    ----------
    x : array
        The source.
    indices : array of integers
        As many axes as `x`; the others broadcast with those of `x`.
    axis : int, optional
        The axis; None: that of the flattened `x`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.take_along_axis(itf.asarray([[1, 2], [3, 4]]), [[1], [-2]], axis=1).compute()
    array([[2],
           [3]])
    """
    x = asarray(x)
    what = Lazily(lambda: f"take_along_axis({wording.text(x._node)}, ...)")
    if axis is None:
        x, axis = FUNCTIONS["ravel"](x), 0
    axis = axis_of(axis, x.ndim, what)
    places = as_places(indices, x, x.shape[axis], what)
    if places.ndim != x.ndim:
        raise ShapeError(
            f"{what}: the indices have {places.ndim} axes and the source {x.ndim}; they must agree"
        )

    def other(shape: Shape) -> Shape:
        return (*shape[:axis], 1, *shape[axis + 1 :])

    rest = expr.broadcast([other(x.shape), other(places.shape)], lambda: str(what))
    rest = rest or (1,) * x.ndim
    shape = (*rest[:axis], places.shape[axis], *rest[axis + 1 :])
    rows: list[Form | int] = [
        constant(0, x.ndim) if size == 1 else along(at, x.ndim) for at, size in enumerate(x.shape)
    ]
    rows[axis] = 0
    return view(x, shape, rows, f"take_along_axis({{0}}, {{1}}, {axis})", places)


def anywhere(x: Any) -> Array:
    """Return an operand; a number is one on every device."""
    if isinstance(x, (bool, int, float, complex, np.generic)):
        return FUNCTIONS["full"]((), x, dtype=np.asarray(x).dtype)  # type: ignore[no-any-return]
    return asarray(x)


def searchsorted(x1: Any, x2: Any, side: str = "left", sorter: Any = None) -> Array:
    """Return where each element of `x2` would go into the sorted `x1`.

    Parameters
    ----------
    x1 : array
        One axis, ascending; NaN last.
    x2 : array
        What to insert.
    side : str
        `left`: before equal ones; `right`: behind them.
    sorter : array of integers, optional
        Indices that sort `x1`.

    Returns
    -------
    Array
        int64, of the shape of `x2`: as many reads of `x1` an element as its size has bits.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.searchsorted(itf.asarray([1.0, 2.0, 4.0]), [0.5, 2.0, 9.0]).compute()
    array([0, 1, 3])
    """
    x, values = asarray(x1), anywhere(x2)
    if x.ndim != 1 or side not in ("left", "right"):
        raise ShapeError(
            f"searchsorted({wording.text(x._node)}, ..., side={side!r}): x1 must have one axis, "
            "and side is 'left' or 'right'"
        )
    if sorter is not None:
        x = take(x, sorter)
    dtype = np.result_type(x.dtype, values.dtype)
    x, values = x.astype(dtype), values.astype(dtype)
    size = x.shape[0]
    found: Any = FUNCTIONS["zeros_like"](values, dtype=np.int64)
    step = 1 << size.bit_length() >> 1
    while step:  # found elements are certainly before; are found + step?
        last = FUNCTIONS["minimum"](found + (step - 1), np.int64(size - 1))
        one = view(x, values.shape, [0], "{0}[{1}]", last)
        before = _before(one, values) if side == "left" else ~_before(values, one)
        found = found + (before & (found + step <= size)).astype(np.int64) * step
        step >>= 1
    return found


def _before(a: Any, b: Any) -> Any:
    less = a < b
    if a.dtype.kind != "f":
        return less
    return less | (FUNCTIONS["isnan"](b) & ~FUNCTIONS["isnan"](a))


for _name, _function in (
    ("take", take),
    ("take_along_axis", take_along_axis),
    ("searchsorted", searchsorted),
):
    FUNCTIONS[_name] = _function
setattr(Array, "__getitem__", getitem)  # noqa: B010 - operators are installed, as in functions.py
setattr(Array, "take", take)  # noqa: B010
