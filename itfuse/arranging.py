"""NumPy's other ways to arrange elements: stacks, splits, turns and diagonals.

Each is a small composition of the functions of manipulation.py, joining.py and indexing.py, with
NumPy's signature. Nothing is copied; what sizes depend on must be known when they are called.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from itfuse import wording
from itfuse.array import Array, asarray
from itfuse.errors import AxisError, ShapeError, Unsupported
from itfuse.functions import FUNCTIONS, without_out
from itfuse.indexing import axis_of
from itfuse.joining import clamped, concat, counter, read
from itfuse.manipulation import (
    diagonal,
    expand_dims,
    flip,
    permute_dims,
    ravel,
    reshape,
    swapaxes,
)
from itfuse.wording import Lazily


def _what(name: str, x: Array) -> Lazily:
    return Lazily(lambda: f"{name}({wording.text(x._node)}, ...)")


# ---- at least so many axes, and stacks -----------------------------------------------------------
def _several(arrays: tuple[Any, ...], to: Any) -> Any:
    made = tuple(to(asarray(x)) for x in arrays)
    return made[0] if len(made) == 1 else made


def atleast_1d(*arrays: Any) -> Any:
    """Return each operand with at least one axis."""
    return _several(arrays, lambda x: x if x.ndim else reshape(x, (1,)))


def atleast_2d(*arrays: Any) -> Any:
    """Return each operand with at least two axes; new ones are in front."""
    return _several(arrays, lambda x: x if x.ndim > 1 else reshape(x, (1, x.size)))


def atleast_3d(*arrays: Any) -> Any:
    """Return each operand with at least three axes, as NumPy puts them: (1, n, 1), (m, n, 1)."""

    def three(x: Array) -> Array:
        if x.ndim > 2:
            return x
        return reshape(x, (1, x.size, 1) if x.ndim < 2 else (*x.shape, 1))

    return _several(arrays, three)


def vstack(tup: Any, /, *, dtype: Any = None, casting: Any = "same_kind") -> Array:
    """Return operands of at least two axes joined along the first.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.vstack([itf.asarray([1, 2]) * 2, [3, 4]]).compute()
    array([[2, 4],
           [3, 4]])
    """
    return concat([atleast_2d(x) for x in tup], 0, dtype=dtype, casting=casting)


def hstack(tup: Any, /, *, dtype: Any = None, casting: Any = "same_kind") -> Array:
    """Return operands joined along the second axis, or the first where there is one."""
    lazy = [atleast_1d(x) for x in tup]
    flat = bool(lazy) and lazy[0].ndim == 1
    return concat(lazy, 0 if flat else 1, dtype=dtype, casting=casting)


def dstack(tup: Any, /) -> Array:
    """Return operands of at least three axes joined along the third."""
    return concat([atleast_3d(x) for x in tup], 2)


def column_stack(tup: Any, /) -> Array:
    """Return operands joined along the second axis; those of one axis are columns."""
    lazy = [asarray(x) for x in tup]
    return concat([x if x.ndim > 1 else reshape(x, (x.size, 1)) for x in lazy], 1)


def _depths(arrays: Any) -> set[int]:
    if not isinstance(arrays, list):
        return {0}
    found = {1 + depth for one in arrays for depth in _depths(one)}
    if not found:
        raise ShapeError("block: a list is empty")
    return found


def block(arrays: Any) -> Array:
    """Return operands of nested lists joined: the innermost along the last axis.

    Raises
    ------
    ShapeError
        If the lists are not equally deep, a list is empty, or the shapes do not fit.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.ones((1, 2), "i8")
    >>> itf.block([[x, x * 2], [itf.zeros((1, 4), "i8")]]).compute()
    array([[1, 1, 2, 2],
           [0, 0, 0, 0]])
    """
    depths = _depths(arrays)
    if len(depths) > 1:
        raise ShapeError("block: the lists are not equally deep")
    depth = depths.pop()

    def leaves(one: Any) -> list[Array]:
        if isinstance(one, list):
            return [x for part in one for x in leaves(part)]
        return [asarray(one)]

    rank = max(depth, *(x.ndim for x in leaves(arrays)))

    def joined(one: Any, level: int) -> Array:
        if isinstance(one, list):
            return concat([joined(part, level - 1) for part in one], rank - level)
        x = asarray(one)
        return reshape(x, (*(1,) * (rank - x.ndim), *x.shape))

    return joined(arrays, depth)


def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """Return `arr` with `values` behind it along an axis; without one, both are flattened."""
    return concat([arr, values], axis)


# ---- splits --------------------------------------------------------------------------------------
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Return the parts of an array along an axis, which need not be equal; see `split`."""
    x: Any = asarray(ary)
    what = _what("array_split", x)
    axis = axis_of(axis, x.ndim, what)
    size = x.shape[axis]
    if isinstance(indices_or_sections, Array):
        raise Unsupported(f"{what}: places decide about sizes and must be known; compute() them")
    if hasattr(indices_or_sections, "__len__") and np.ndim(indices_or_sections):
        ends = [*(operator.index(one) for one in indices_or_sections), size]
        starts = [0, *ends[:-1]]
    else:
        count = operator.index(indices_or_sections)
        if count <= 0:
            raise ShapeError(f"{what}: the number of sections is {count}; it must be at least 1")
        each, more = divmod(size, count)
        borders = [0, *np.cumsum([each + 1] * more + [each] * (count - more)).tolist()]
        starts, ends = borders[:-1], borders[1:]
    before = (slice(None),) * axis
    return [x[(*before, slice(a, b))] for a, b in zip(starts, ends, strict=True)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Return the parts of an array along an axis.

    Parameters
    ----------
    ary : array
        The operand.
    indices_or_sections : int, or sequence of int
        How many equal parts, or where they end.
    axis : int
        The axis.

    Raises
    ------
    ShapeError
        If the parts would not be equal.

    Examples
    --------
    >>> import itfuse as itf
    >>> [part.tolist() for part in itf.split(itf.arange(6) * 2, 3)]
    [[0, 2], [4, 6], [8, 10]]
    """
    x = asarray(ary)
    axis = axis_of(axis, x.ndim, _what("split", x))
    if not np.ndim(indices_or_sections):
        count = operator.index(indices_or_sections)
        if count and x.shape[axis] % count:
            raise ShapeError(
                f"{_what('split', x)}: {x.shape[axis]} elements are no {count} equal parts; use "
                "itf.array_split"
            )
    return array_split(x, indices_or_sections, axis)


def _split_along(name: str, least: int, axis_for: Any, doc: str) -> Any:
    def along(ary: Any, indices_or_sections: Any) -> list[Array]:
        x = asarray(ary)
        if x.ndim < least:
            raise ShapeError(f"{_what(name, x)}: it has {x.ndim} axes and needs {least}")
        return split(x, indices_or_sections, axis_for(x))

    along.__name__ = along.__qualname__ = name
    along.__doc__ = doc
    return along


hsplit = _split_along(
    "hsplit", 1, lambda x: 0 if x.ndim == 1 else 1,
    "Return parts along the second axis, or the only one; see `split`.",
)  # fmt: skip
vsplit = _split_along("vsplit", 2, lambda _: 0, "Return parts along the first axis; see `split`.")
dsplit = _split_along("dsplit", 3, lambda _: 2, "Return parts along the third axis; see `split`.")


# ---- turns and diagonals -------------------------------------------------------------------------
def _two_axes(x: Array, name: str, least: int = 2) -> Array:
    if x.ndim < least:
        raise ShapeError(f"{_what(name, x)}: it has {x.ndim} axes and needs {least}")
    return x


def fliplr(m: Any) -> Array:
    """Return `m` in reverse along the second axis."""
    return flip(_two_axes(asarray(m), "fliplr"), 1)


def flipud(m: Any) -> Array:
    """Return `m` in reverse along the first axis."""
    return flip(_two_axes(asarray(m), "flipud", 1), 0)


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Array:
    """Return `m` turned by `k` right angles in the plane of two axes, from the first to the second.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.rot90(itf.asarray([[1, 2], [3, 4]])).compute()
    array([[2, 4],
           [1, 3]])
    """
    x = asarray(m)
    what = _what("rot90", x)
    if len(axes) != 2:
        raise ShapeError(f"{what}: axes={axes}; two span a plane")
    a, b = (axis_of(one, x.ndim, what) for one in axes)
    if a == b:
        raise ShapeError(f"{what}: axes={axes} name one axis twice")
    k %= 4
    if k == 2:
        return flip(flip(x, a), b)
    if k == 1:
        return swapaxes(flip(x, b), a, b)
    return flip(swapaxes(x, a, b), b) if k == 3 else x


def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    """Return `a` with one axis moved before that of number `start`."""
    x = asarray(a)
    what = _what("rollaxis", x)
    axis = axis_of(axis, x.ndim, what)
    first = start + x.ndim if start < 0 else start
    if not 0 <= first <= x.ndim:
        raise AxisError(f"{what}: start {start} is out of bounds for {x.ndim} axes")
    order = [one for one in range(x.ndim) if one != axis]
    order.insert(first - (axis < first), axis)
    return permute_dims(x, tuple(order))


def diag(v: Any, k: int = 0) -> Array:
    """Return diagonal `k` of a matrix, or the matrix with `v` on it and zeros elsewhere.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.diag(itf.asarray([1, 2])).compute()
    array([[1, 0],
           [0, 2]])
    """
    x = asarray(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"{_what('diag', x)}: it has {x.ndim} axes and needs one or two")
    n = x.size + abs(k)
    on = FUNCTIONS["eye"](n, k=k, dtype=bool)
    if not x.size:
        return FUNCTIONS["zeros"]((n, n), x.dtype, like=x)
    row: Any = counter(n, 1)
    value = read(x, 0, reshape(clamped(row + min(k, 0), x.size), (n,)), "diag({0})")
    return FUNCTIONS["where"](on, expand_dims(value, 1), x.dtype.type(0))


def diagflat(v: Any, k: int = 0) -> Array:
    """Return the matrix with the flattened `v` on diagonal `k`; see `diag`."""
    return diag(ravel(v), k)


@without_out
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Array:
    """Return the sum of a diagonal of two axes; see `diagonal`."""
    return FUNCTIONS["sum"](diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def resize(a: Any, new_shape: Any) -> Array:
    """Return the elements of `a` in another shape, over and over until it is full.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.resize(itf.asarray([1, 2, 3]), (2, 2)).compute()
    array([[1, 2],
           [3, 1]])
    """
    x = ravel(a)
    shape = tuple(new_shape) if isinstance(new_shape, Sequence) else (operator.index(new_shape),)
    if any(size < 0 for size in shape):
        raise ShapeError(f"{_what('resize', x)}: a size is negative in {shape}")
    total = int(np.prod(shape, dtype=object)) if shape else 1
    if not x.size:
        return FUNCTIONS["zeros"](shape, x.dtype, like=x)
    if total <= x.size:
        whole: Any = x
        return reshape(whole[:total], shape)
    place = FUNCTIONS["remainder"](counter(total, 0), x.size)
    return reshape(read(x, 0, place, "resize({0}, ...)"), shape)


def copy(a: Any, order: str = "K", subok: bool = False) -> Array:
    """Return `a` itself: an expression cannot change. `itf.array` copies an array's elements."""
    return asarray(a)


_PUBLIC = (
    atleast_1d, atleast_2d, atleast_3d, vstack, hstack, dstack, column_stack, block, append,
    array_split, split, hsplit, vsplit, dsplit, fliplr, flipud, rot90, rollaxis, diag, diagflat,
    trace, resize, copy,
)  # fmt: skip
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
setattr(Array, "trace", trace)  # noqa: B010 - installed, as in functions.py
