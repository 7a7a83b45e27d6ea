"""Shapes: other arrangements of the same elements, as index maps. Nothing is copied."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from itfuse import expr, wording
from itfuse.array import Array, asarray
from itfuse.errors import ShapeError
from itfuse.functions import FUNCTIONS
from itfuse.indexing import axis_of, view
from itfuse.ops import INPUT, RESHAPE
from itfuse.plan.index import Form, along, constant
from itfuse.wording import Lazily


def _axes_of(axis: Any, rank: int, what: object, of: str = "the expression") -> tuple[int, ...]:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    found = tuple(axis_of(one, rank, what, of) for one in axes)
    if len(set(found)) != len(found):
        raise ShapeError(f"{what}: axis {axis} names an axis twice")
    return found


def _text(x: Array) -> str:
    return wording.text(x._node)


def permute_dims(x: Any, /, axes: Any = None) -> Array:
    """Return `x` with its axes in another order.

    Parameters
    ----------
    x : array
        The operand.
    axes : tuple of int, optional
        For each axis of the result the axis of `x`; by default they are reversed.

    Raises
    ------
    ShapeError
        If `axes` is no permutation.

    Examples
    --------
    >>> import itfuse as itf
    >>> (itf.asarray([[1, 2], [3, 4]]) * 10).T.compute()
    array([[10, 30],
           [20, 40]])
    """
    x = asarray(x)
    what = Lazily(lambda: f"permute_dims({_text(x)}, {axes})")
    order = tuple(reversed(range(x.ndim))) if axes is None else _axes_of(axes, x.ndim, what)
    if len(order) != x.ndim:
        raise ShapeError(f"{what}: {len(order)} axes for an expression of {x.ndim}")
    rows = [along(order.index(axis), x.ndim) for axis in range(x.ndim)]
    label = "{0}.T" if axes is None else f"permute_dims({{0}}, {order})"
    return view(x, tuple(x.shape[axis] for axis in order), rows, label)


def transpose(x: Any, /, axes: Any = None) -> Array:
    """Return `x` with its axes reversed, or in the order given; see `permute_dims`."""
    return permute_dims(x, axes)


def _transposed(x: Array, *axes: Any) -> Array:
    """Return `x` with its axes reversed, or in the order given: integers, or a tuple of them."""
    return permute_dims(x, (axes[0] if len(axes) == 1 else axes) if axes else None)


def matrix_transpose(x: Any) -> Array:
    """Return `x` with its last two axes exchanged.

    Raises
    ------
    ShapeError
        If it has fewer than two axes.
    """
    x = asarray(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose({_text(x)}): it has {x.ndim} axes and needs two")
    return swapaxes(x, -1, -2)


def moveaxis(x: Any, source: Any, destination: Any) -> Array:
    """Return `x` with some axes moved to other places; the others keep their order.

    Parameters
    ----------
    x : array
        The operand.
    source, destination : int or tuple of int
        Where the axes are and where they go.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.moveaxis(itf.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = asarray(x)
    what = Lazily(lambda: f"moveaxis({_text(x)}, {source}, {destination})")
    start, end = _axes_of(source, x.ndim, what), _axes_of(destination, x.ndim, what)
    if len(start) != len(end):
        raise ShapeError(f"{what}: {len(start)} axes go to {len(end)} places")
    order = [axis for axis in range(x.ndim) if axis not in start]
    for place, axis in sorted(zip(end, start, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, tuple(order))


def swapaxes(x: Any, axis1: int, axis2: int) -> Array:
    """Return `x` with two axes exchanged."""
    x = asarray(x)
    what = Lazily(lambda: f"swapaxes({_text(x)}, {axis1}, {axis2})")
    order = list(range(x.ndim))
    a, b = axis_of(axis1, x.ndim, what), axis_of(axis2, x.ndim, what)
    order[a], order[b] = b, a
    return permute_dims(x, tuple(order))


def flip(x: Any, axis: Any = None) -> Array:
    """Return `x` in reverse along an axis, several, or all.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.flip(itf.asarray([1, 2, 3]) * 2).compute()
    array([6, 4, 2])
    """
    x = asarray(x)
    what = Lazily(lambda: f"flip({_text(x)}, {axis})")
    axes = range(x.ndim) if axis is None else _axes_of(axis, x.ndim, what)
    rows = [
        along(at, x.ndim, x.shape[at] - 1, -1) if at in axes else along(at, x.ndim)
        for at in range(x.ndim)
    ]
    return view(x, x.shape, rows, "flip({0})" if axis is None else f"flip({{0}}, {axis})")


def _shape(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, Sequence):
        return tuple(operator.index(one) for one in shape)
    return (operator.index(shape),)


def broadcast_to(x: Any, shape: Any) -> Array:
    """Return `x` repeated along new axes and those of one element.

    Parameters
    ----------
    x : array
        The operand.
    shape : tuple of int
        The shape to have.

    Raises
    ------
    ShapeError
        If the shapes do not fit.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.broadcast_to(itf.asarray([1, 2]), (2, 2)).compute()
    array([[1, 2],
           [1, 2]])
    """
    x, wanted = asarray(x), _shape(shape)
    missing = len(wanted) - x.ndim
    fits = missing >= 0 and all(
        have in (1, want) for have, want in zip(x.shape, wanted[missing:], strict=True)
    )
    if not fits or any(size < 0 for size in wanted):
        raise ShapeError(
            f"broadcast_to({_text(x)}, {wanted}): the operand has shape {x.shape}; sizes must be "
            "equal or 1, aligned from the last axis"
        )
    rank = len(wanted)
    rows = [
        constant(0, rank) if size == 1 else along(axis, rank)
        for axis, size in enumerate(x.shape, missing)
    ]
    return view(x, wanted, rows, f"broadcast_to({{0}}, {wanted})") if wanted != x.shape else x


def broadcast_arrays(*arrays: Any) -> tuple[Array, ...]:
    """Return the operands, each in their common shape."""
    lazy = [asarray(x) for x in arrays]
    shape = expr.broadcast(
        [x.shape for x in lazy], lambda: f"broadcast_arrays({', '.join(map(_text, lazy))})"
    )
    return tuple(broadcast_to(x, shape) for x in lazy)


def expand_dims(x: Any, axis: Any = 0) -> Array:
    """Return `x` with axes of one element at the places `axis` of the result.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.expand_dims(itf.zeros(3), axis=(0, -1)).shape
    (1, 3, 1)
    """
    x = asarray(x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    what = Lazily(lambda: f"expand_dims({_text(x)}, {axis})")
    new = _axes_of(axis, x.ndim + count, what, "the result")
    kept = [at for at in range(x.ndim + count) if at not in new]
    shape = [1] * (x.ndim + count)
    for at, size in zip(kept, x.shape, strict=True):
        shape[at] = size
    rows = [along(at, len(shape)) for at in kept]
    return view(x, tuple(shape), rows, f"expand_dims({{0}}, {axis})")


def squeeze(x: Any, axis: Any = None) -> Array:
    """Return `x` without axes of one element: all of them, or those named.

    Raises
    ------
    ShapeError
        If a named axis has more elements.
    """
    x = asarray(x)
    what = Lazily(lambda: f"squeeze({_text(x)}, {axis})")
    if axis is None:
        gone = tuple(at for at, size in enumerate(x.shape) if size == 1)
    elif x.ndim == 0 and axis in (0, -1):  # as in NumPy
        gone = ()
    else:
        gone = _axes_of(axis, x.ndim, what)
    if any(x.shape[at] != 1 for at in gone):
        raise ShapeError(f"{what}: the shape is {x.shape}; only axes of one element can go")
    kept = [at for at in range(x.ndim) if at not in gone]
    rank = len(kept)
    rows = [constant(0, rank) if at in gone else along(kept.index(at), rank)
            for at in range(x.ndim)]  # fmt: skip
    return view(x, tuple(x.shape[at] for at in kept), rows, "squeeze({0})")


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return a diagonal of two axes, which becomes the last axis.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.diagonal(itf.asarray([[1, 2], [3, 4]]) + 1).compute()
    array([2, 5])
    """
    x = asarray(x)
    what = Lazily(lambda: f"diagonal({_text(x)}, {offset}, {axis1}, {axis2})")
    if x.ndim < 2:
        raise ShapeError(f"{what}: it has {x.ndim} axes and needs two")
    a, b = _axes_of((axis1, axis2), x.ndim, what)
    kept = [at for at in range(x.ndim) if at not in (a, b)]
    down, right = max(-offset, 0), max(offset, 0)
    count = max(0, min(x.shape[a] - down, x.shape[b] - right))
    rank = len(kept) + 1
    rows = [Form(0, ())] * x.ndim
    for at in kept:
        rows[at] = along(kept.index(at), rank)
    rows[a], rows[b] = along(rank - 1, rank, down), along(rank - 1, rank, right)
    return view(x, (*(x.shape[at] for at in kept), count), rows, f"diagonal({{0}}, {offset})")


def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Array:
    """Return all windows of a shape: one more axis for each axis that they cover.

    Parameters
    ----------
    x : array
        The operand.
    window_shape : int or tuple of int
        Elements of a window along each of `axis`.
    axis : int or tuple of int, optional
        The axes; by default all.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.sliding_window_view(itf.arange(4) * 2, 3).compute()
    array([[0, 2, 4],
           [2, 4, 6]])
    """
    x, window = asarray(x), _shape(window_shape)
    what = Lazily(lambda: f"sliding_window_view({_text(x)}, {window})")
    axes = _axes_of(tuple(range(x.ndim)) if axis is None else axis, x.ndim, what)
    if len(axes) != len(window):
        raise ShapeError(f"{what}: {len(window)} sizes for {len(axes)} axes")
    shape = list(x.shape)
    for at, size in zip(axes, window, strict=True):
        if not 0 <= size <= x.shape[at]:
            raise ShapeError(f"{what}: a window of {size} in an axis of {x.shape[at]}")
        shape[at] -= size - 1
    rank = x.ndim + len(window)
    rows = [along(at, rank) for at in range(x.ndim)]
    for number, at in enumerate(axes, x.ndim):
        rows[at] += along(number, rank)
    return view(x, (*shape, *window), rows, f"sliding_window_view({{0}}, {window})")


def _fortran(x: Array) -> bool:
    """Whether `x` is an array in column-major order; an expression's own order is row-major."""
    if x._node.op is not INPUT or x.ndim < 2 or not x.size:
        return False
    sizes = [(size, step) for size, step in zip(x.shape, x._node.arg.strides, strict=True)
             if size > 1]  # fmt: skip

    def in_order(axes: Iterable[tuple[int, int]]) -> bool:
        step = x.itemsize
        for size, found in axes:
            if found != step:
                return False
            step *= size
        return True

    return in_order(sizes) and not in_order(reversed(sizes))


def _in_memory(x: Array) -> Array:
    """Return the view of an array whose rows lie as its elements do in memory (`order='K'`)."""
    if x._node.op is not INPUT:
        return x
    steps = [0 if n == 1 else abs(t) for n, t in zip(x.shape, x._node.arg.strides, strict=True)]
    order: list[int] = []  # the innermost axis first, sorted by insertion as NumPy's iterator does
    for axis in reversed(range(x.ndim)):
        place = len(order)
        for at in reversed(range(len(order))):
            if steps[axis] and steps[order[at]]:  # an axis that repeats has no place of its own
                if steps[order[at]] <= steps[axis]:
                    break
                place = at
        order.insert(place, axis)
    return permute_dims(x, tuple(reversed(order))) if order != sorted(order)[::-1] else x


def reshape(x: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Array:
    """Return the elements of `x` in row-major order in another shape.

    Parameters
    ----------
    x : array
        The operand.
    shape : int or tuple of int
        The new shape, of as many elements; one size may be -1.
    order : str
        `C`, row-major; `F`, column-major on both sides; or `A`: `F` of an array that lies so in
        memory, else `C`. (An expression that is not computed is in row-major order.)
    copy : bool, optional
        Accepted for the standard's sake; an expression is never a copy.

    Returns
    -------
    Array
        No copy and no pass: an index map. Where shapes share no border (rows of 2 read as rows
        of 3) the elements are found by division.

    Raises
    ------
    ShapeError
        If the number of elements differs.
    ValueError
        For another order.

    Examples
    --------
    >>> import itfuse as itf
    >>> (itf.arange(6) * 2).reshape(2, -1).compute()
    array([[ 0,  2,  4],
           [ 6,  8, 10]])
    """
    x = asarray(x)
    wanted = asked = _shape(shape)
    what = Lazily(lambda: f"reshape({_text(x)}, {asked})")
    if order not in ("C", "F", "A"):
        raise ValueError(f"{what}: order must be one of 'C', 'F' and 'A', not {order!r}")
    if wanted.count(-1) == 1:
        rest = math.prod(size for size in wanted if size != -1)
        free = x.size // rest if rest else -1
        wanted = tuple(free if size == -1 else size for size in wanted)
    if math.prod(wanted) != x.size or any(size < 0 for size in wanted):
        raise ShapeError(f"{what}: the operand has shape {x.shape}, {x.size} elements")
    if order == "F" or (order == "A" and _fortran(x)):
        return permute_dims(reshape(permute_dims(x), tuple(reversed(wanted))))
    if wanted == x.shape:
        return x
    expr.check_axes(len(wanted), what)
    return x._of(expr.make(RESHAPE, (x._node,), x.dtype, wanted))


def _reshaped(x: Array, *shape: Any, order: str = "C", copy: bool | None = None) -> Array:
    """Return the elements in another shape: integers, or a tuple of them; see `itf.reshape`."""
    return reshape(x, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def ravel(x: Any, /, order: str = "C") -> Array:
    """Return `x` with one axis; see `reshape`. Order `K` is that of an array in memory."""
    x = asarray(x)
    return reshape(_in_memory(x), (-1,), "C") if order == "K" else reshape(x, (-1,), order)


def unstack(x: Any, axis: int = 0) -> tuple[Array, ...]:
    """Return the parts of `x` along an axis, without it."""
    x = asarray(x)
    axis = axis_of(axis, x.ndim, Lazily(lambda: f"unstack({_text(x)})"))
    before = (slice(None),) * axis
    return tuple(x[(*before, at)] for at in range(x.shape[axis]))


def _iterate(x: Array) -> Iterator[Array]:
    if x.shape == ():
        raise TypeError("iteration over a 0-d expression")
    return iter(unstack(x))


def _length(x: Array) -> int:
    if x.shape == ():
        raise TypeError("len() of a 0-d expression")
    return x.shape[0]


_PUBLIC = (
    permute_dims, transpose, matrix_transpose, moveaxis, swapaxes, flip, broadcast_to,
    broadcast_arrays, expand_dims, squeeze, diagonal, sliding_window_view, reshape, ravel, unstack,
)  # fmt: skip
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
for _name in ("swapaxes", "squeeze", "diagonal", "ravel"):
    setattr(Array, _name, FUNCTIONS[_name])
_INSTALLED: dict[str, Any] = {
    "flatten": ravel,
    "reshape": _reshaped,
    "transpose": _transposed,
    "T": property(permute_dims, doc="The axes reversed."),
    "mT": property(matrix_transpose, doc="The last two axes exchanged."),
    "__iter__": _iterate,
    "__len__": _length,
}
for _name, _value in _INSTALLED.items():
    setattr(Array, _name, _value)
