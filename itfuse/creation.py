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
from itfuse.functions import FUNCTIONS
from itfuse.manipulation import broadcast_to, expand_dims
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


def _dtype(dtype: Any, default: Any, what: str) -> np.dtype[Any]:
    return dtypes.as_dtype(default if dtype is None else dtype, what)


def _index(shape: Shape, axis: int, device: str) -> Any:
    """Return the int64 index along an axis, in `shape`."""
    node = expr.make(IOTA, (), _INT64, shape, along(axis, len(shape)))
    return Array(node, {}, device)


def full(
    shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, like: Any = None
) -> Array:
    """Return an array of one value.

    Parameters
    ----------
    shape : int or tuple of int
        Its shape.
    fill_value : scalar or Array
        The value.
    dtype : dtype-like, optional
        By default NumPy's for the value.
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
    place = _place(device, like)
    if np.ndim(fill_value) and not isinstance(fill_value, Array):
        fill_value = asarray(np.asarray(fill_value))
    if isinstance(fill_value, Array):
        value = fill_value if dtype is None else fill_value.astype(dtype)
        return broadcast_to(value, wanted)
    kind = _dtype(dtype, np.asarray(fill_value).dtype, "full")
    number = np.asarray(fill_value).astype(kind)[()]
    return broadcast_to(Array(expr.scalar(number, kind), {}, place), wanted)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, like: Any = None) -> Array:
    """Return zeros, float64 by default; see `full`."""
    return full(shape, 0, _dtype(dtype, float, "zeros"), device=device, like=like)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, like: Any = None) -> Array:
    """Return ones, float64 by default; see `full`."""
    return full(shape, 1, _dtype(dtype, float, "ones"), device=device, like=like)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, like: Any = None) -> Array:
    """Return zeros: an expression is never uninitialised; see `full`."""
    return zeros(shape, dtype, device=device, like=like)


def _made_like(x: Any, device: Any) -> tuple[Array, Any]:
    lazy = asarray(x)
    return lazy, lazy._device if device is None else device


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, shape: Any = None
) -> Array:
    """Return one value in the shape, dtype and on the device of `x`; see `full`."""
    lazy, place = _made_like(x, device)
    wanted = lazy.shape if shape is None else shape
    return full(wanted, fill_value, lazy.dtype if dtype is None else dtype, device=place)


def zeros_like(x: Any, dtype: Any = None, *, device: Any = None, shape: Any = None) -> Array:
    """Return zeros in the shape, dtype and on the device of `x`."""
    return full_like(x, 0, dtype, device=device, shape=shape)


def ones_like(x: Any, dtype: Any = None, *, device: Any = None, shape: Any = None) -> Array:
    """Return ones in the shape, dtype and on the device of `x`."""
    return full_like(x, 1, dtype, device=device, shape=shape)


def empty_like(x: Any, dtype: Any = None, *, device: Any = None, shape: Any = None) -> Array:
    """Return zeros in the shape, dtype and on the device of `x`: nothing is uninitialised."""
    return full_like(x, 0, dtype, device=device, shape=shape)


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None,
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
    first = np.asarray(start).astype(kind)[()]
    with np.errstate(all="ignore"):
        delta = kind.type(np.asarray(start + step).astype(kind)[()] - first)
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
    start, stop : float
        The ends.
    num : int
        How many.
    endpoint : bool
        Whether `stop` is the last of them.
    retstep : bool
        Whether to return their distance too.
    dtype : dtype-like, optional
        float64 by default; integers round down.
    axis : int
        0; accepted for NumPy's sake.
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
    if np.ndim(start) or np.ndim(stop):
        raise TypeError(
            "linspace: start and stop are single numbers; of arrays, add (stop - start)[..., None] "
            "* itf.linspace(0, 1, num) to start[..., None]"
        )
    div = count - 1 if endpoint else count
    floating = np.result_type(start, stop, float(count))
    kind = _dtype(dtype, floating, "linspace")
    first, last = floating.type(start), floating.type(stop)
    delta = last - first
    index = _index((count,), 0, _place(device, like)).astype(floating)
    step = delta / div if div > 0 else floating.type(np.nan)
    if div > 0:
        y = index * step if step != 0 else index / floating.type(div) * delta
    else:
        y = index * delta
    y = y + first
    if endpoint and count > 1:
        y = FUNCTIONS["where"](_index((count,), 0, y._device) == count - 1, last, y)
    if kind.kind in "iu":
        y = FUNCTIONS["floor"](y)
    y = y.astype(kind)
    return (y, step) if retstep else y


def eye(
    n_rows: int, n_cols: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None,
    like: Any = None,
) -> Array:  # fmt: skip
    """Return ones on diagonal `k` and zeros elsewhere.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.eye(2, 3, 1, dtype="int8", device="cpu").compute()
    array([[0, 1, 0],
           [0, 0, 1]], dtype=int8)
    """
    shape = expr.shape_of((n_rows, n_rows if n_cols is None else n_cols), "eye")
    kind = _dtype(dtype, float, "eye")
    place = _place(device, like)
    return (_index(shape, 1, place) - _index(shape, 0, place) == k).astype(kind)


def identity(n: int, dtype: Any = None, *, device: Any = None, like: Any = None) -> Array:
    """Return the square matrix with ones on the main diagonal; see `eye`."""
    return eye(n, dtype=dtype, device=device, like=like)


def tri(
    n_rows: int, n_cols: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None,
    like: Any = None,
) -> Array:  # fmt: skip
    """Return ones on and below diagonal `k` and zeros above."""
    shape = expr.shape_of((n_rows, n_rows if n_cols is None else n_cols), "tri")
    place = _place(device, like)
    below = _index(shape, 1, place) - _index(shape, 0, place) <= k
    return below.astype(_dtype(dtype, float, "tri"))


def _triangle(x: Any, k: int, name: str) -> tuple[Array, Any]:
    lazy = asarray(x)
    if lazy.ndim < 2:
        raise ShapeError(
            f"{name}({wording.text(lazy._node)}): it has {lazy.ndim} axes and needs two"
        )
    shape = lazy.shape[-2:]
    right = _index(shape, 1, ANY) - _index(shape, 0, ANY)
    return lazy, right <= k


def tril(x: Any, k: int = 0) -> Array:
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


def triu(x: Any, k: int = 0) -> Array:
    """Return `x` with zeros below diagonal `k` of its last two axes."""
    lazy, cut = _triangle(x, k - 1, "triu")
    return FUNCTIONS["where"](cut, lazy.dtype.type(0), lazy)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Array]:
    """Return each one-axis operand repeated over the grid of all.

    Parameters
    ----------
    *arrays : array
        Coordinates along each axis.
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
    return [
        broadcast_to(expand_dims(x, tuple(a for a in range(len(lazy)) if a != at)), tuple(shape))
        for x, at in zip(lazy, order, strict=True)
    ]


def indices(dimensions: Any, dtype: Any = int, *, device: Any = None, like: Any = None) -> Array:
    """Return the index along each axis of a grid, stacked along a new first axis."""
    shape = expr.shape_of(dimensions, "indices")
    place = _place(device, like)
    if not shape:
        return zeros((0,), dtype, device=place)
    kind = _dtype(dtype, int, "indices")
    return FUNCTIONS["stack"]([_index(shape, a, place) for a in range(len(shape))]).astype(kind)


_PUBLIC = (
    full, zeros, ones, empty, full_like, zeros_like, ones_like, empty_like, arange, linspace, eye,
    identity, tri, tril, triu, meshgrid, indices,
)  # fmt: skip
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
