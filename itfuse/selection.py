"""Functions that select: masks, `compress`, `nonzero`, partitions and runs of equal elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse import engines, expr, indexing, wording
from itfuse.array import Array, asarray, place_of, spec
from itfuse.containers import no_expressions
from itfuse.errors import BoundsError, DTypeError, ShapeError, Unsupported
from itfuse.expr import Shape
from itfuse.functions import FUNCTIONS, without_out
from itfuse.indexing import axis_of, trailing, view
from itfuse.ops import IOTA
from itfuse.plan.index import along
from itfuse.selected import Selected, select
from itfuse.wording import Lazily

_INT64 = np.dtype(np.int64)


def _lifted(obj: Any, like: Array) -> Array:
    """Return a condition as an expression; lists go to the device of `like`."""
    no_expressions(obj, "asarray")
    if isinstance(obj, (list, tuple, range, bool, int, float, np.generic)):
        array = np.asarray(obj)
        if like._device == "none":
            return spec(array.shape, array.dtype)
        return asarray(engines.upload(array, place_of(like._device)))
    return asarray(obj)


def _truth(x: Any) -> Any:
    return x if x.dtype.kind == "b" else x != 0


def _index(shape: Shape, axis: int, device: str) -> Any:
    node = expr.make(IOTA, (), _INT64, shape, along(axis, len(shape)))
    return Array(node, {}, device)


@without_out
def compress(condition: Any, a: Any, axis: int | None = None) -> Selected:
    """Return the slices of `a` along an axis where a condition holds.

    Parameters
    ----------
    condition : array
        One axis. Where it is shorter than that of `a`, the rest is not chosen.
    a : array
        The source, any expression.
    axis : int, optional
        The axis; by default that of the flattened `a`.

    Returns
    -------
    Selected
        Of shape `a.shape[:axis] + (number,) + a.shape[axis + 1:]`: one pass.

    Raises
    ------
    ShapeError
        If the condition has not one axis.
    BoundsError
        If the condition is longer than the axis and holds behind its end: at once for a list, when
        it is computed for an array, whose elements are read then.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.asarray([[1, 2, 3], [4, 5, 6]])
    >>> itf.compress([False, True, True], x * 10, axis=1).compute()
    array([[20, 30],
           [50, 60]])
    """
    x: Any = asarray(a)
    flag = _truth(_lifted(condition, x))
    what = Lazily(lambda: f"compress({wording.text(flag._node)}, {wording.text(x._node)}, ...)")
    if flag.ndim != 1:
        raise ShapeError(f"{what}: the condition must have one axis, not shape {flag.shape}")
    shown = f", axis={axis}" if axis is not None else ""
    if axis is None or (x.ndim == 0 and axis in (0, -1)):  # as in NumPy
        x, axis = FUNCTIONS["ravel"](x), 0
    axis = axis_of(axis, x.ndim, what)
    size, given = x.shape[axis], flag.shape[0]
    checks: list[Array] = []
    if given > size:
        if isinstance(condition, (list, tuple)) and any(condition[size:]):
            raise BoundsError(
                f"{what}: the condition is longer than the axis and holds beyond its end"
            )
        checks.append(FUNCTIONS["any"](flag[size:]))
        flag = flag[:size]
    elif given < size:
        x = x[(slice(None),) * axis + (slice(0, given),)]
    lead, tail = x.shape[:axis], x.shape[axis + 1 :]
    flags = [trailing(flag, len(tail))]
    return select(flags, [x], x.shape, f"compress({{0}}, {{1}}{shown})", lead, tail, checks)[0]


def extract(condition: Any, arr: Any) -> Selected:
    """Return the elements of the flattened `arr` where the flattened condition holds.

    The same as `arr[condition]` where both have one shape; see `compress`.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.asarray([[1, 2], [3, 4]])
    >>> itf.extract(x % 2 == 0, x * x).compute()
    array([ 4, 16])
    """
    x = asarray(arr)
    return compress(FUNCTIONS["ravel"](_lifted(condition, x)), x)  # type: ignore[no-any-return]


def nonzero(x: Any) -> tuple[Selected, ...]:
    """Return the indices of the elements that are not zero, an array for each axis.

    Parameters
    ----------
    x : array
        At least one axis.

    Returns
    -------
    tuple of Selected
        int64. One pass makes all of them, also where the size of one is asked for.

    Raises
    ------
    ShapeError
        For 0-d expressions, as in NumPy.

    Examples
    --------
    >>> import itfuse as itf
    >>> rows, columns = itf.nonzero(itf.asarray([[0, 5], [7, 0]]))
    >>> rows.tolist(), columns.tolist()
    ([0, 1], [1, 0])
    """
    x = asarray(x)
    if x.ndim == 0:
        raise ShapeError(
            f"nonzero({wording.text(x._node)}): a 0-d expression has no indices; reshape it to "
            "(1,), or use itf.flatnonzero"
        )
    places = [_index(x.shape, axis, x._device) for axis in range(x.ndim)]
    return select([_truth(x)], places, x.shape, "nonzero({0})")


def flatnonzero(x: Any) -> Selected:
    """Return the row-major places of the elements that are not zero; see `nonzero`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.flatnonzero(itf.asarray([[0, 5], [7, 0]])).compute()
    array([1, 2])
    """
    return nonzero(FUNCTIONS["ravel"](asarray(x)))[0]


def argwhere(x: Any) -> Selected:
    """Return the indices of the elements that are not zero, a row for each.

    Returns
    -------
    Selected
        int64, of shape (number, x.ndim).

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.argwhere(itf.asarray([[0, 5], [7, 0]])).compute()
    array([[0, 1],
           [1, 0]])
    """
    x = asarray(x)
    flag = trailing(_truth(x), 1)
    if x.ndim:
        places = [_index(x.shape, axis, x._device) for axis in range(x.ndim)]
        rows = FUNCTIONS["stack"](places, axis=-1)
    else:
        rows = _index((0,), 0, x._device)
    return select([flag], [rows], rows.shape, "argwhere({0})", tail=(x.ndim,))[0]


def three_way_partition(x: Any, first: Any, second: Any) -> tuple[Selected, Selected, Selected]:
    """Part the elements of `x` in three, each in their order.

    Parameters
    ----------
    x : array
        The source.
    first, second : array
        Conditions of the shape of `x`.

    Returns
    -------
    tuple of Selected
        The elements where `first` holds, those others where `second` holds, and the rest; one
        axis each. One pass makes all of them.

    Raises
    ------
    ShapeError
        If a condition has another shape.

    Notes
    -----
    The operation and its name are those of CUB's `DevicePartition` and of
    `cuda.compute.three_way_partition`.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.asarray([5, -2, 0, 9, -7])
    >>> low, zero, high = itf.three_way_partition(x, x < 0, x == 0)
    >>> low.tolist(), zero.tolist(), high.tolist()
    ([-2, -7], [0], [5, 9])
    """
    x = asarray(x)
    flags = [_truth(_lifted(one, x)) for one in (first, second)]
    for flag in flags:
        if flag.shape != x.shape:
            raise ShapeError(
                f"three_way_partition({wording.text(x._node)}, ...): the condition "
                f"{wording.text(flag._node)} has shape {flag.shape}, and the source {x.shape}"
            )
    label = "three_way_partition({2}, {0}, {1})"
    return select(flags, [x] * 3, x.shape, label, parts=(0, 1, 2))  # type: ignore[return-value]


def unique_consecutive(x: Any, *, equal_nan: bool = True) -> Selected:
    """Return the elements that differ from the one before: of sorted input the distinct ones.

    Of input that is not sorted, an element comes once for every run of it.

    Parameters
    ----------
    x : array
        The source, flattened. Sorted, it gives what `numpy.unique` does.
    equal_nan : bool
        Whether NaN equals NaN, as in `numpy.unique`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.unique_consecutive(itf.asarray([1, 1, 2, 5, 5, 5])).compute()
    array([1, 2, 5])
    """
    x = FUNCTIONS["ravel"](asarray(x))
    flag = run_starts(x, equal_nan)
    return select([flag], [x], x.shape, "unique_consecutive({1})")[0]


def run_starts(x: Array, equal_nan: bool) -> Array:
    """Return which elements of one axis differ from the one before."""
    index = _index(x.shape, 0, x._device)
    if x.size == 0:
        return index != 0  # type: ignore[no-any-return]
    before = view(x, x.shape, [0], "{0}[{1}]", FUNCTIONS["maximum"](index - 1, 0))
    differs: Any = x != before
    if equal_nan and x.dtype.kind in "fcV":
        isnan = FUNCTIONS["isnan"]
        differs = differs & ~(isnan(x) & isnan(before))
    return (index == 0) | differs  # type: ignore[no-any-return]


# ---- choices ---------------------------------------------------------------------------------
_choose = FUNCTIONS["where"]
_NOTHING = object()


def where(condition: Any, x: Any = _NOTHING, y: Any = _NOTHING, /) -> Any:
    """Return `x` where a condition holds, else `y`; of a condition alone its `nonzero`.

    Examples
    --------
    >>> import itfuse as itf
    >>> a = itf.asarray([3, -1, 2])
    >>> itf.where(a > 0, a, 0).compute()
    array([3, 0, 2])
    >>> [places.tolist() for places in itf.where(a > 0)]
    [[0, 2]]
    """
    if y is not _NOTHING:
        return _choose(condition, x, y)
    if x is not _NOTHING:
        raise TypeError("where: give both or neither of x and y")
    return nonzero(condition)


def choose_first(condlist: Any, choicelist: Any, default: Any = 0) -> Array:
    """Return, for each element, the choice of the first condition that holds; NumPy's `select`.

    Parameters
    ----------
    condlist : sequence of array
        Conditions, of bool.
    choicelist : sequence of array
        As many choices.
    default : scalar or array
        Where no condition holds.

    Returns
    -------
    Array
        In NumPy's common dtype of the choices and the default; fused like any operation.

    Raises
    ------
    ShapeError
        If there are no conditions, or not as many choices.
    DTypeError
        If a condition is not of bool.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.asarray([1, 5, 9])
    >>> itf.select([x < 3, x < 8], [x, x * 10], -1).compute()
    array([ 1, 50, -1])
    """
    if not len(condlist) or len(condlist) != len(choicelist):
        raise ShapeError(
            f"select: {len(condlist)} conditions and {len(choicelist)} choices; give as many of "
            "each, and at least one"
        )
    flags = [asarray(one) for one in condlist]
    numbers = (bool, int, float, complex, np.generic)
    choices = [x if isinstance(x, numbers) else asarray(x) for x in (*choicelist, default)]
    for one in flags:
        if one.dtype.kind != "b":
            raise DTypeError(f"select: the condition {wording.text(one._node)} is {one.dtype}, "
                             "not bool")  # fmt: skip
    dtype = np.result_type(*(x.dtype if isinstance(x, Array) else x for x in choices))
    those: list[Any] = [
        x.astype(dtype) if isinstance(x, Array) else np.asarray(x).astype(dtype)[()]
        for x in choices
    ]
    found = those.pop()
    for flag, choice in zip(reversed(flags), reversed(those), strict=True):
        found = _choose(flag, choice, found)
    return found  # type: ignore[no-any-return]


choose_first.__name__ = choose_first.__qualname__ = "select"


# ---- indexing by masks -----------------------------------------------------------------------
def _is_mask(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return np.asarray(item).dtype.kind == "b"
    if indexing.is_flag(item):
        return False
    return getattr(getattr(item, "dtype", None), "kind", "") == "b"


def _fits(x: Array, mask: Array, at: int, what: object) -> None:
    """Raise unless the axes of a mask are those of `x` from `at` on."""
    if at + mask.ndim > x.ndim:
        raise BoundsError(f"{what}: a mask of {mask.ndim} axes for an expression of {x.ndim}")
    for axis, size in enumerate(mask.shape):
        if size != x.shape[at + axis]:
            raise BoundsError(
                f"{what}: the mask has {size} elements along axis {axis}, and the expression "
                f"{x.shape[at + axis]} along axis {at + axis}"
            )


def getitem(x: Array, key: Any) -> Array:
    """Return `x[key]` as NumPy means it, masks included.

    Parameters
    ----------
    x : Array
        The expression.
    key : int, slice, Ellipsis, None, integer or boolean array, or a tuple of them
        For all but masks see `itfuse.indexing.getitem`. A mask alone, of the leading axes of `x`,
        gives a `Selected`: one pass over `x` when it is computed. Among other indices a mask is its
        `nonzero`, which is computed at once.

    Raises
    ------
    BoundsError
        If the shape of a mask is not that of the axes it stands for.
    Unsupported
        For a mask without axes among other indices.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> x = itf.asarray(np.arange(6).reshape(3, 2))
    >>> x[x % 2 == 1].compute()
    array([1, 3, 5])
    >>> x[[True, False, True]].compute()
    array([[0, 1],
           [4, 5]])
    >>> x[[True, False, True], 1].compute()
    array([1, 5])
    """
    items = key if isinstance(key, tuple) else (key,)
    if not any(map(_is_mask, items)):
        return indexing.getitem(x, key)
    what = Lazily(lambda: f"{wording.text(x._node)}[mask]")
    if len(items) == 1 or (len(items) == 2 and _is_mask(items[0]) and items[1] is Ellipsis):
        mask = _lifted(items[0], x)
        _fits(x, mask, 0, what)
        tail = x.shape[mask.ndim :]
        return select([trailing(mask, len(tail))], [x], x.shape, "{1}[{0}]", tail=tail)[0]
    lifted = [_lifted(item, x) if _is_mask(item) else item for item in items]
    used = sum(
        item.ndim if _is_mask(item) else item is not None and item is not Ellipsis
        for item in lifted
    )
    expanded: list[Any] = []
    at = 0
    for item in lifted:
        if item is Ellipsis:
            at += x.ndim - used
        elif _is_mask(item):
            if item.ndim == 0:
                raise Unsupported(f"{what}: a 0-d mask among other indices; index twice")
            _fits(x, item, at, what)
            at += item.ndim
            expanded += nonzero(item)
            continue
        elif item is not None:
            at += 1
        expanded.append(item)
    return indexing.getitem(x, tuple(expanded))


_PUBLIC = (
    compress, extract, nonzero, flatnonzero, argwhere, three_way_partition, unique_consecutive,
    where, choose_first,
)  # fmt: skip
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
setattr(Array, "__getitem__", getitem)  # noqa: B010 - installed, as in functions.py


@without_out
def _compress(x: Array, condition: Any, axis: int | None = None) -> Selected:
    """Return `itf.compress(condition, x, axis)`."""
    return compress(condition, x, axis)  # type: ignore[no-any-return]


setattr(Array, "compress", _compress)  # noqa: B010
setattr(Array, "nonzero", nonzero)  # noqa: B010
