"""Creation: arrays made from the index, in registers. None of them takes memory until computed.

They have no arrays, so their device is `any`: they adopt that of what they are combined with. Alone
they run on CuPy's current GPU, or on the CPU without one; `device=` or `like=` decides otherwise.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from itfuse import dtypes, expr, wording
from itfuse.array import ANY, Array, asarray
from itfuse.errors import DeviceError, DTypeError, ShapeError
from itfuse.expr import Shape
from itfuse.form import Number
from itfuse.functions import FUNCTIONS
from itfuse.indexing import axis_of
from itfuse.manipulation import broadcast_to, expand_dims, moveaxis
from itfuse.ops import IOTA
from itfuse.plan.index import along

_INT64 = np.dtype(np.int64)


def _place(device: Any, like: Any) -> str:
    if device is None:
        return ANY if like is None else asarray(like)._device
    name = str(device)
    kind, _, number = name.partition(":")
    if kind == "cuda" and (not number or number.isdigit()):
        return name if number else "cuda:0"
    if name in ("cpu", "none", ANY):
        return name
    raise DeviceError(f"device={device!r}: expected 'cpu', 'cuda:<number>' or 'any'")


_ORDERS = ("C", "F", "A", "K", None)


def check_order(order: Any, what: str) -> None:
    """Raise `ValueError` for what is no memory order. An expression has none: all mean the same."""
    if order not in _ORDERS:
        raise ValueError(f"{what}: order must be one of 'C', 'F', 'A' and 'K', not {order!r}")


def _dtype(dtype: Any, default: Any, what: str) -> np.dtype[Any]:
    return dtypes.as_dtype(default if dtype is None else dtype, what)


def _index(shape: Shape, axis: int, device: str) -> Any:
    """Return the int64 index along an axis, in `shape`."""
    node = expr.make(IOTA, (), _INT64, shape, along(axis, len(shape)))
    return Array(node, {}, device)


def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None,
    like: Any = None,
) -> Array:  # fmt: skip
    """Return an array of one value.

    Parameters
    ----------
    shape : int or tuple of int
        Its shape.
    fill_value : scalar or Array
        The value.
    dtype : dtype-like, optional
        By default NumPy's for the value. A Python integer must fit.
    order : str
        Accepted for NumPy's sake: an expression has no memory.
    device : str, optional
        `cpu`, `cuda:0`, ...; by default that of what it is combined with.
    like : array, optional
        An array whose device to take.

    Examples
    --------
    >>> import itfuse as itf
    >>> (itf.full(3, 2.5, device="cpu") + 1).compute()
    array([3.5, 3.5, 3.5])
    """
    wanted = expr.shape_of(shape, "full")
    check_order(order, "full")
    place = _place(device, like)
    if isinstance(fill_value, Number):
        fill_value = asarray(fill_value)
    elif np.ndim(fill_value) and not isinstance(fill_value, Array):
        fill_value = asarray(np.asarray(fill_value))
    if isinstance(fill_value, Array):
        value = fill_value if dtype is None else fill_value.astype(dtype)
        return broadcast_to(value, wanted)
    kind = _dtype(dtype, np.asarray(fill_value).dtype, "full")
    number = expr.stored(fill_value, kind, f"full({wanted}, {fill_value})")
    return broadcast_to(Array(expr.scalar(number, kind), {}, place), wanted)


def zeros(
    shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
) -> Array:
    """Return zeros, float64 by default; see `full`."""
    return full(shape, 0, _dtype(dtype, float, "zeros"), order, device=device, like=like)


def ones(
    shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
) -> Array:
    """Return ones, float64 by default; see `full`."""
    return full(shape, 1, _dtype(dtype, float, "ones"), order, device=device, like=like)


def empty(
    shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
) -> Array:
    """Return zeros: an expression is never uninitialised; see `full`."""
    return zeros(shape, dtype, order, device=device, like=like)


def _made_like(x: Any, device: Any) -> tuple[Array, Any]:
    lazy = asarray(x)
    return lazy, lazy._device if device is None else device


def full_like(  # noqa: PLR0917 - NumPy's signature
    x: Any, /, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True,
    shape: Any = None, *, device: Any = None,
) -> Array:  # fmt: skip
    """Return one value in the shape, dtype and on the device of `x`; see `full`."""
    lazy, place = _made_like(x, device)
    wanted = lazy.shape if shape is None else shape
    return full(wanted, fill_value, lazy.dtype if dtype is None else dtype, order, device=place)


def zeros_like(
    x: Any, /, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
    device: Any = None,
) -> Array:  # fmt: skip
    """Return zeros in the shape, dtype and on the device of `x`."""
    return full_like(x, 0, dtype, order, device=device, shape=shape)


def ones_like(
    x: Any, /, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
    device: Any = None,
) -> Array:  # fmt: skip
    """Return ones in the shape, dtype and on the device of `x`."""
    return full_like(x, 1, dtype, order, device=device, shape=shape)


def empty_like(
    x: Any, /, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
    device: Any = None,
) -> Array:  # fmt: skip
    """Return zeros in the shape, dtype and on the device of `x`: nothing is uninitialised."""
    return full_like(x, 0, dtype, order, device=device, shape=shape)


def _element(value: Any, kind: np.dtype[Any], there: bool) -> Any:
    """Return one of the first two elements of a range; NumPy stores them as Python numbers."""
    if not there:
        return kind.type(0)
    return expr.stored(int(value) if kind.kind in "iu" else value, kind, "arange")


def arange(
    start: Any = None, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None,
    like: Any = None,
) -> Array:  # fmt: skip
    """Return `start, start + step, ...` below `stop`.

    Parameters
    ----------
    start, stop, step : int or float
        As in NumPy: one number is `stop`.
    dtype : dtype-like, optional
        By default NumPy's for the numbers.
    device, like : optional
        See `full`.

    Returns
    -------
    Array
        NumPy's values: `start + i * delta`, with `delta` the difference of the first two elements
        in the result's dtype.

    Examples
    --------
    >>> import itfuse as itf
    >>> (itf.arange(3, device="cpu") * 2).compute()
    array([0, 2, 4])
    """
    if stop is None:
        start, stop = 0, start
    if stop is None:
        raise TypeError("arange: it needs a stop")
    start = 0 if start is None else start
    if step == 0:
        raise ShapeError("arange: the step is zero")
    numbers = [np.asarray(one).dtype for one in (start, stop, step)]
    kind = _dtype(dtype, functools.reduce(np.promote_types, numbers, _INT64), "arange")
    # NumPy's length: the quotient in floating point, or exactly for integers.
    if all(isinstance(one, (int, np.integer)) for one in (start, stop, step)):
        count = max(0, -((int(start) - int(stop)) // int(step)))
    else:
        count = max(0, math.ceil((stop - start) / step))
    if kind.kind == "b":
        if count > 2:
            raise DTypeError("arange: no booleans after False and True; pass a number dtype")
        count_values = np.arange(start, stop, step, dtype=kind)
        ends = (bool(count_values[0]), bool(count_values[-1])) if count else (False, False)
        return FUNCTIONS["where"](_index((count,), 0, _place(device, like)) == 0, *ends)
    first, second = (_element(x, kind, at < count) for at, x in enumerate((start, start + step)))
    with np.errstate(all="ignore"):
        delta = kind.type(second - first)
    index = _index((count,), 0, _place(device, like))
    if first == 0 and delta == 1 and kind.kind in "iu":
        return index.astype(kind)
    # NumPy computes float32 and narrower in its own type as well: start + i * delta.
    moved = index.astype(kind) * delta
    return moved + first


def linspace(  # noqa: PLR0917 - NumPy's signature
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, *, device: Any = None, like: Any = None,
) -> Any:  # fmt: skip
    """Return `num` numbers from `start` to `stop`, evenly apart.

    Parameters
    ----------
    start, stop : float or array
        The ends; arrays are broadcast together.
    num : int
        How many.
    endpoint : bool
        Whether `stop` is the last of them.
    retstep : bool
        Whether to return their distance too.
    dtype : dtype-like, optional
        float64 by default; integers round down.
    axis : int
        Of arrays as ends: the axis of the result that the numbers run along.
    device, like : optional
        See `full`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.linspace(0, 1, 5, device="cpu").compute()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    count = operator.index(num)
    if count < 0:
        raise ShapeError(f"linspace: {count} numbers")
    div = count - 1 if endpoint else count
    ends = [x if isinstance(x, Array) else np.asarray(x) for x in (start, stop)]
    floating = np.result_type(
        *(x.dtype if isinstance(x, Array) else y for x, y in zip(ends, (start, stop), strict=True)),
        float(count),
    )
    kind = _dtype(dtype, floating, "linspace")
    if any(x.ndim or isinstance(x, Array) for x in ends):
        y, step = _between(ends, count, div, endpoint, floating, _place(device, like))
        at = axis_of(axis, y.ndim, "linspace", "the result")
        y = moveaxis(y, 0, at) if at else y
    else:
        y, step = _spaced(start, stop, count, div, endpoint, floating, _place(device, like))
    if kind.kind in "iu":
        y = FUNCTIONS["floor"](y)
    y = y.astype(kind)
    return (y, step) if retstep else y


def _spaced(  # noqa: PLR0917
    start: Any, stop: Any, count: int, div: int, endpoint: bool, floating: Any, place: str
) -> tuple[Array, Any]:
    first, last = floating.type(start), floating.type(stop)
    delta = last - first
    index = _index((count,), 0, place).astype(floating)
    step = delta / div if div > 0 else floating.type(np.nan)
    if div > 0:
        y = index * step if step != 0 else index / floating.type(div) * delta
    else:
        y = index * delta
    y = y + first
    if endpoint and count > 1:
        y = FUNCTIONS["where"](_index((count,), 0, place) == count - 1, last, y)
    return y, step


def _between(  # noqa: PLR0917
    ends: list[Any], count: int, div: int, endpoint: bool, floating: Any, place: str
) -> tuple[Array, Any]:
    """Return the numbers between arrays along a new first axis, and their distances."""
    known = not any(isinstance(x, Array) for x in ends)
    first, last = (asarray(x).astype(floating) for x in ends)
    delta: Any = last - first  # type: ignore[operator]
    index = _index((count, *(1,) * delta.ndim), 0, place).astype(floating)
    step: Any = delta / div if div > 0 else full((), floating.type(np.nan), like=delta)
    if div > 0:
        # NumPy divides everywhere where one step is zero: the last bits differ.
        exact = index / floating.type(div) * delta
        if known:
            y = exact if (np.asarray(step.compute()) == 0).any() else index * step
        else:
            y = FUNCTIONS["where"]((step == 0).any(), exact, index * step)
    else:
        y = index * delta
    y = y + first
    if endpoint and count > 1:
        y = FUNCTIONS["where"](index == count - 1, last, y)
    return y, step


def eye(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None,
    order: str = "C", *, device: Any = None, like: Any = None,
) -> Array:  # fmt: skip
    """Return `N` rows and `M` columns (by default `N`): ones on diagonal `k` and zeros elsewhere.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.eye(2, 3, 1, dtype="int8", device="cpu").compute()
    array([[0, 1, 0],
           [0, 0, 1]], dtype=int8)
    """
    shape = expr.shape_of((N, N if M is None else M), "eye")
    check_order(order, "eye")
    kind = _dtype(dtype, float, "eye")
    place = _place(device, like)
    return (_index(shape, 1, place) - _index(shape, 0, place) == k).astype(kind)


def identity(n: int, dtype: Any = None, *, device: Any = None, like: Any = None) -> Array:
    """Return the square matrix with ones on the main diagonal; see `eye`."""
    return eye(n, dtype=dtype, device=device, like=like)


def tri(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None, *,
    device: Any = None, like: Any = None,
) -> Array:  # fmt: skip
    """Return `N` rows and `M` columns (by default `N`): ones up to diagonal `k`, zeros above."""
    shape = expr.shape_of((N, N if M is None else M), "tri")
    place = _place(device, like)
    below = _index(shape, 1, place) - _index(shape, 0, place) <= k
    return below.astype(_dtype(dtype, float, "tri"))


def _triangle(x: Any, k: int, name: str) -> tuple[Array, Any]:
    lazy = asarray(x)
    if lazy.ndim < 1:
        raise ShapeError(f"{name}({wording.text(lazy._node)}): the operand has no axes")
    shape = lazy.shape[-2:] if lazy.ndim > 1 else lazy.shape * 2  # as NumPy: a row for each place
    right = _index(shape, 1, ANY) - _index(shape, 0, ANY)
    return lazy, right <= k


def tril(x: Any, /, k: int = 0) -> Array:
    """Return `x` with zeros above diagonal `k` of its last two axes.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.tril(itf.asarray([[1, 2], [3, 4]])).compute()
    array([[1, 0],
           [3, 4]])
    """
    lazy, kept = _triangle(x, k, "tril")
    return FUNCTIONS["where"](kept, lazy, lazy.dtype.type(0))


def triu(x: Any, /, k: int = 0) -> Array:
    """Return `x` with zeros below diagonal `k` of its last two axes."""
    lazy, cut = _triangle(x, k - 1, "triu")
    return FUNCTIONS["where"](cut, lazy.dtype.type(0), lazy)


def meshgrid(
    *arrays: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Array, ...]:
    """Return each one-axis operand repeated over the grid of all.

    Parameters
    ----------
    *arrays : array
        Coordinates along each axis.
    copy : bool
        Accepted for NumPy's sake.
    sparse : bool
        Whether axes along which nothing changes have one element, to be broadcast.
    indexing : str
        `xy`: the first two axes exchanged; `ij`: in order.

    Examples
    --------
    >>> import itfuse as itf
    >>> x, y = itf.meshgrid(itf.arange(3), itf.arange(2))
    >>> x.shape, y.shape
    ((2, 3), (2, 3))
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', not {indexing!r}")
    lazy = [FUNCTIONS["ravel"](x) for x in arrays]
    order = list(range(len(lazy)))
    if indexing == "xy" and len(lazy) > 1:
        order[:2] = [1, 0]
    shape = [0] * len(lazy)
    for x, at in zip(lazy, order, strict=True):
        shape[at] = x.shape[0]
    apart = [
        expand_dims(x, tuple(a for a in range(len(lazy)) if a != at))
        for x, at in zip(lazy, order, strict=True)
    ]
    return tuple(apart if sparse else [broadcast_to(x, tuple(shape)) for x in apart])


def indices(
    dimensions: Any, dtype: Any = int, sparse: bool = False, *, device: Any = None, like: Any = None
) -> Any:
    """Return the index along each axis of a grid, stacked along a new first axis.

    With `sparse` a tuple of them, with one element along the other axes.
    """
    shape = expr.shape_of(dimensions, "indices")
    place = _place(device, like)
    kind = _dtype(dtype, int, "indices")
    if sparse:
        return tuple(
            _index((*(1,) * at, size, *(1,) * (len(shape) - at - 1)), at, place).astype(kind)
            for at, size in enumerate(shape)
        )
    if not shape:
        return zeros((0,), dtype, device=place)
    return FUNCTIONS["stack"]([_index(shape, a, place) for a in range(len(shape))]).astype(kind)


_PUBLIC = (
    full, zeros, ones, empty, full_like, zeros_like, ones_like, empty_like, arange, linspace, eye,
    identity, tri, tril, triu, meshgrid, indices,
)  # fmt: skip
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
