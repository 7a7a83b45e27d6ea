"""Order: `sort`, `argsort` and what is read from sorted rows.

Keys are sorted along the last axis, in memory: an expression is written there by a pass of its own,
which `explain` shows; so is an operand whose other axes are sorted, turned on the way.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from itfuse import wording
from itfuse.array import Array, asarray
from itfuse.dtypes import accumulator
from itfuse.errors import AxisError, DTypeError, ShapeError, Unsupported
from itfuse.expr import normalize_axes
from itfuse.functions import FUNCTIONS as F
from itfuse.functions import without_out
from itfuse.ops import SORT
from itfuse.terminals import buffered, flat, terminal
from itfuse.wording import Lazily

_KINDS = (None, "quicksort", "heapsort", "mergesort", "stable")


def _rows(x: Any, axis: int | None, what: object) -> tuple[Array, int]:
    """Return the operand with the sorted axis last, and where that axis was."""
    x = asarray(x)
    if axis is None:
        return flat(x), 0
    if x.ndim == 0:
        raise AxisError(f"{what}: a 0-d expression has no axis to sort along")
    (at,) = normalize_axes(operator.index(axis), x.ndim, lambda: str(what))
    return (x if at == x.ndim - 1 else F["moveaxis"](x, at, -1)), at


def _sorted(x: Array, side: int, descending: bool, name: str) -> Array:
    if x.size < 2 or x.shape[-1] < 2:  # nothing to order
        return x if side == 0 else F["zeros_like"](x, dtype=np.int64)
    dtype = np.dtype(np.int64) if side else x.dtype
    return terminal(
        SORT, [], [x], x.shape, dtype, x.shape,
        f"{name}({{0}}{', descending=True' if descending else ''})",
        (bool(descending), x.size != x.shape[-1]), side,
    )  # fmt: skip


def _both(x: Array, descending: bool) -> list[Any]:
    """Return the sorted rows and their order, which one pass leaves in memory."""
    names = enumerate(("sort", "argsort"))
    return [buffered(_sorted(x, side, descending, name)) for side, name in names]


def in_order(x: Array) -> tuple[Array, Array]:
    """Return the sorted elements of one axis and their order, in memory."""
    keys, order = _both(x, False)
    return keys, order


def _back(x: Array, at: int) -> Array:
    """Return sorted rows along the axis where they were; if it is another, a pass turns them."""
    return x if at == x.ndim - 1 else F["moveaxis"](buffered(x), -1, at)


def _options(kind: Any, order: Any, what: object) -> None:
    if kind not in _KINDS:
        raise ShapeError(f"{what}: kind={kind!r}; there are {', '.join(map(repr, _KINDS))}")
    if order is not None:
        raise Unsupported(f"{what}: order= names fields, and itfuse has no structured dtypes")


def sort(
    x: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *,
    stable: bool | None = None, descending: bool = False,
) -> Array:  # fmt: skip
    """Return `x` in order along an axis.

    Parameters
    ----------
    x : array
        The operand. If it is no array in row-major order, a pass writes it to memory first.
    axis : int, optional
        The axis; None sorts the flattened operand.
    kind, order : optional
        Accepted for NumPy's sake: every order is stable; there are no fields.
    stable : bool, optional
        Accepted: it is.
    descending : bool
        Greatest first.

    Returns
    -------
    Array
        Of the dtype and shape of `x`. NaN counts as greater than every number, as in NumPy: it is
        last, and first if `descending`. Zeros of both signs are equal, in any order.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.sort(itf.asarray([3.0, float("nan"), -1.0])).compute()
    array([-1.,  3., nan])
    >>> itf.plan(itf.sort(abs(itf.asarray([3, -4])))).passes  # the keys, then the sort
    2
    """
    what = Lazily(lambda: f"sort({wording.text(asarray(x)._node)})")
    _options(kind, order, what)
    rows, at = _rows(x, axis, what)
    return _back(_sorted(rows, 0, descending, "sort"), at)


def argsort(
    x: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *,
    stable: bool | None = None, descending: bool = False,
) -> Array:  # fmt: skip
    """Return the indices (int64) that sort `x` along an axis, stably; see `sort`.

    Asked for together with the sorted values, one pass makes both.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.argsort(itf.asarray([3, 1, 3, 2]), descending=True).compute()
    array([0, 2, 3, 1])
    """
    x = asarray(x)
    what = Lazily(lambda: f"argsort({wording.text(x._node)})")
    _options(kind, order, what)
    x = x if x.ndim else flat(x)  # as in NumPy, whose sort takes no 0-d array
    rows, at = _rows(x, axis, what)
    return _back(_sorted(rows, 1, descending, "argsort"), at)


def topk(x: Any, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Array, Array]:
    """Return the `k` greatest (or least) elements along an axis, in order, and their indices.

    Parameters
    ----------
    x : array
        The operand.
    k : int
        How many, at most the size of the axis.
    axis : int
        The axis.
    largest : bool
        Whether the greatest ones, greatest first, or the least, least first. Of equal elements
        the first ones are taken. NaN counts as greatest.

    Returns
    -------
    values, indices : Array
        With `k` elements along the axis; whole rows are sorted for them.

    Raises
    ------
    ShapeError
        If the axis has fewer than `k` elements.

    Examples
    --------
    >>> import itfuse as itf
    >>> values, indices = itf.topk(itf.asarray([3, 9, 1, 7]), 2)
    >>> values.compute(), indices.compute()
    (array([9, 7]), array([1, 3]))
    """
    what = Lazily(lambda: f"topk({wording.text(asarray(x)._node)}, {k})")
    rows, at = _rows(x, axis, what)
    count = operator.index(k)
    if not 0 <= count <= rows.shape[-1]:
        raise ShapeError(f"{what}: the axis has {rows.shape[-1]} elements")
    both = _both(rows, largest)
    values, indices = (_back(one[..., :count], at) for one in both)
    return values, indices


def kthvalue(x: Any, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Array, Array]:
    """Return the `k`-th least element along an axis, counted from 1, and its index.

    Parameters
    ----------
    x : array
        The operand.
    k : int
        Which one: 1 to the size of the axis.
    axis : int
        The axis.
    keepdims : bool
        Whether the axis stays, with one element.

    Raises
    ------
    ShapeError
        If there is no such element.

    Examples
    --------
    >>> import itfuse as itf
    >>> value, index = itf.kthvalue(itf.asarray([30, 10, 20]), 2)
    >>> int(value.compute()), int(index.compute())
    (20, 2)
    """
    what = Lazily(lambda: f"kthvalue({wording.text(asarray(x)._node)}, {k})")
    rows, at = _rows(x, axis, what)
    if not 1 <= operator.index(k) <= rows.shape[-1]:
        raise ShapeError(f"{what}: the axis has {rows.shape[-1]} elements, counted from 1")
    both = _both(rows, False)
    chosen = [one[..., k - 1] for one in both]
    value, index = (F["expand_dims"](one, at) if keepdims else one for one in chosen)
    return value, index


def sort_by_key(keys: Any, *values: Any, descending: bool = False) -> tuple[Array, ...]:
    """Sort keys, and put other arrays into the same order.

    Parameters
    ----------
    keys : array
        One axis.
    *values : array
        Of the length of the keys.
    descending : bool
        Greatest key first.

    Returns
    -------
    tuple of Array
        The sorted keys, then each of the values in their order: stable. One pass sorts; values are
        read along the order in the next, where they may be fused with what follows.

    Raises
    ------
    ShapeError
        If the keys have not one axis, or values another length.

    Examples
    --------
    >>> import itfuse as itf
    >>> keys, values = itf.sort_by_key(itf.asarray([3, 1, 2]), itf.asarray([30.0, 10.0, 20.0]))
    >>> keys.compute(), values.compute()
    (array([1, 2, 3]), array([10., 20., 30.]))
    """
    keys = asarray(keys)
    what = Lazily(lambda: f"sort_by_key({wording.text(keys._node)}, ...)")
    if keys.ndim != 1:
        raise ShapeError(f"{what}: the keys have {keys.ndim} axes, and one is needed")
    lazy = [asarray(one) for one in values]
    for one in lazy:
        if one.ndim < 1 or one.shape[0] != keys.shape[0]:
            raise ShapeError(f"{what}: values have the shape {one.shape}, and keys {keys.shape}")
    order = _sorted(keys, 1, descending, "argsort")
    ordered = _sorted(keys, 0, descending, "sort")
    order = buffered(order)
    return (ordered, *(F["take"](one, order, axis=0) for one in lazy))


# ---- from sorted rows ------------------------------------------------------------------------
def _joined(x: Any, axis: Any, what: object) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    """Return the operand with the reduced axes as one, last; the axes; and the shape it had."""
    x = asarray(x)
    shape = x.shape
    if x.ndim == 0 and axis not in (None, ()):
        raise AxisError(f"{what}: axis {axis} is out of bounds for the 0 axes of the expression")
    axes = normalize_axes(axis, x.ndim, lambda: str(what))
    if axis is None or len(axes) == x.ndim:
        return flat(x) if x.ndim else x.reshape(1), axes, shape  # type: ignore[attr-defined]
    kept = [a for a in range(x.ndim) if a not in axes]
    turned = F["transpose"](x, (*kept, *axes)) if (*kept, *axes) != tuple(range(x.ndim)) else x
    length = math.prod(shape[a] for a in axes)
    return F["reshape"](turned, (*(shape[a] for a in kept), length)), axes, shape


def _shaped(x: Array, axes: tuple[int, ...], shape: tuple[int, ...], keepdims: bool) -> Array:
    if not keepdims:
        return x
    return F["reshape"](x, tuple(1 if a in axes else n for a, n in enumerate(shape)))  # type: ignore[no-any-return]


@without_out
def median(x: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    """Return the middle element along axes, or the mean of the two.

    Parameters
    ----------
    x : array
        The operand: written to memory and sorted, as the plan shows.
    axis : int or tuple of int, optional
        The axes; all by default.
    keepdims : bool
        Whether they stay, with one element.

    Returns
    -------
    Array
        Floating point, as in NumPy; NaN where an element is NaN.

    Examples
    --------
    >>> import itfuse as itf
    >>> float(itf.median(itf.asarray([4, 1, 3, 10])).compute())
    3.5
    """
    what = Lazily(lambda: f"median({wording.text(asarray(x)._node)})")
    rows, axes, shape = _joined(x, axis, what)
    dtype = np.mean(np.zeros(1, rows.dtype)).dtype
    length = rows.shape[-1]
    if length == 0:
        nothing = F["full"](rows.shape[:-1], np.nan, dtype=dtype)
        return _shaped(nothing, axes, shape, keepdims)
    ordered: Any = buffered(_sorted(rows, 0, False, "sort"))
    half = length // 2
    wide = np.dtype(accumulator(dtype.name))  # in which NumPy's mean adds up
    result: Any = ordered[..., half].astype(wide)
    if length % 2 == 0:
        result = (ordered[..., half - 1].astype(wide) + result) / 2
    result = result.astype(dtype)
    if rows.dtype.kind in "fcV":
        last = ordered[..., length - 1]
        result = F["where"](F["isnan"](last), last.astype(dtype), result)
    return _shaped(result, axes, shape, keepdims)


@without_out
def nanmedian(x: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    """Return the median along axes of the elements that are not NaN; see `median`.

    Returns
    -------
    Array
        NaN where every element is NaN. A sort, a pass that counts, and one of the results.

    Examples
    --------
    >>> import itfuse as itf
    >>> float(itf.nanmedian(itf.asarray([4.0, float("nan"), 1.0])).compute())
    2.5
    """
    x = asarray(x)
    what = Lazily(lambda: f"nanmedian({wording.text(x._node)})")
    rows, axes, shape = _joined(x, axis, what)
    length = rows.shape[-1]
    if rows.dtype.kind not in "fcV" or length == 0:
        return median(x, axis, keepdims=keepdims)  # type: ignore[no-any-return]
    ordered: Any = buffered(_sorted(rows, 0, False, "sort"))  # NaN is last
    count: Any = F["sum"](F["logical_not"](F["isnan"](rows)), axis=-1, keepdims=True)
    low, high = F["maximum"](count - 1, 0) // 2, F["minimum"](count // 2, length - 1)
    wide = np.dtype(accumulator(rows.dtype.name))
    left, right = (F["take_along_axis"](ordered, at, -1).astype(wide) for at in (low, high))
    middle = F["where"](low == high, left, (left + right) / 2).astype(rows.dtype)
    return _shaped(middle[..., 0], axes, shape, keepdims)


@without_out
def quantile(
    x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """Return quantiles along axes.

    Parameters
    ----------
    x : array
        Real; written to memory and sorted, as the plan shows.
    q : float or array of float
        Fractions from 0 to 1; an array of them puts an axis before the others.
    axis : int or tuple of int, optional
        The axes; all by default.
    method : str
        `linear`, `lower`, `higher`, `midpoint` or `nearest`, as in NumPy.
    keepdims : bool
        Whether the axes stay, with one element.

    Returns
    -------
    Array
        NaN where an element is NaN.

    Raises
    ------
    ShapeError
        If a fraction is not in range, or there is no element.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.quantile(itf.asarray([1.0, 2.0, 4.0]), [0.5, 0.75]).compute()
    array([2., 3.])
    """
    what = Lazily(lambda: f"quantile({wording.text(asarray(x)._node)}, ...)")
    return _quantile(x, np.asarray(q), type(q) in (int, float), axis, method, keepdims, what)


@without_out
def percentile(
    x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """Return percentiles: quantiles of `q` / 100; see `quantile`.

    Examples
    --------
    >>> import itfuse as itf
    >>> float(itf.percentile(itf.asarray([1.0, 2.0, 4.0]), 75).compute())
    3.0
    """
    x = asarray(x)
    what = Lazily(lambda: f"percentile({wording.text(x._node)}, ...)")
    fractions = np.asarray(np.true_divide(q, 100))
    return _quantile(x, fractions, type(q) in (int, float), axis, method, keepdims, what)


_PICKED: dict[str, Any] = {"lower": np.floor, "higher": np.ceil, "nearest": np.around}
_LERPED = ("linear", "midpoint")


def _quantile(  # noqa: PLR0917 - what both public functions take
    x: Any, fractions: Any, weak: bool, axis: Any, method: str, keepdims: bool, what: object
) -> Array:
    if method not in (*_LERPED, *_PICKED):
        raise Unsupported(f"{what}: method={method!r}; there are {', '.join((*_LERPED, *_PICKED))}")
    if fractions.ndim > 1 or not ((fractions >= 0) & (fractions <= 1)).all():
        raise ShapeError(f"{what}: q must be a number or one axis of numbers in their range")
    rows, axes, shape = _joined(x, axis, what)
    if rows.dtype.kind in "cb":
        raise DTypeError(f"{what}: {rows.dtype} has no quantiles; .astype(...) it first")
    if rows.shape[-1] == 0:
        raise ShapeError(f"{what}: there is no element")
    ordered: Any = buffered(_sorted(rows, 0, False, "sort"))
    found = [
        _shaped(_at_fraction(ordered, one, weak, method), axes, shape, keepdims)
        for one in fractions.reshape(-1)
    ]
    if fractions.ndim == 0:
        return found[0]
    if not found:
        return F["zeros"]((0, *_shaped(ordered[..., 0], axes, shape, keepdims).shape))  # type: ignore[no-any-return]
    return F["stack"](found)  # type: ignore[no-any-return]


def _at_fraction(ordered: Any, q: Any, weak: bool, method: str) -> Array:
    """Return the quantile `q` of sorted rows, with the arithmetic of `numpy.quantile`."""
    last = ordered.shape[-1] - 1
    place = last * q
    if method in _PICKED or (method == "linear" and place.dtype.kind in "iu"):
        at = int(_PICKED.get(method, np.floor)(place))
        result = ordered[..., at]
    else:
        gamma = place - np.floor(place)
        if method == "midpoint":
            place = 0.5 * (np.floor(place) + np.ceil(place))
            gamma = place.dtype.type(0.5 if place % 1 else 0.0)
        if place >= last:
            low = high = ordered[..., last]
            gamma = place + 1 if method == "linear" else gamma
        else:
            low, high = ordered[..., int(place)], ordered[..., int(place) + 1]
        t = float(gamma) if weak else gamma
        apart = high - low
        result = low + apart * t if gamma < 0.5 else high - apart * (1 - t)
    if ordered.dtype.kind in "fV":
        end = ordered[..., last]
        result = F["where"](F["isnan"](end), end.astype(result.dtype), result)
    return result  # type: ignore[no-any-return]


_PUBLIC = (sort, argsort, topk, kthvalue, sort_by_key, median, nanmedian, quantile, percentile)
F.update({one.__name__: one for one in _PUBLIC})
# No method `sort`: NumPy's sorts in place, and an expression cannot change.
setattr(Array, "argsort", argsort)  # noqa: B010 - installed, as in functions.py
