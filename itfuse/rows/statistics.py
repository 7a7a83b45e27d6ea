"""Functions along axes, written with the rows of the op table: NumPy's own definitions.

Each takes `F`, which has every op as a function, and the caller's arguments. None is recognised by
the planner: what it does for `softmax` it does for any expression of that shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.dtypes import accumulator, kind
from itfuse.errors import DTypeError, ShapeError, Unsupported

LONG = 1 << 17
"""Rows longer than this get their variance from one walk (Chan's merging). Shorter ones stay on
chip, where a second walk over the differences is cheaper and reads no memory: it needs no
divisions."""


@dataclass(frozen=True)
class Statistic:
    """A function along axes: its name, number of array operands, one line of doc, definition."""

    name: str
    arity: int
    doc: str
    expand: Callable[..., Any]
    aliases: tuple[str, ...] = ()
    method: bool = False


def mean(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False,
         where: Any = None) -> Any:  # fmt: skip
    """Sum over count, in the dtype of the sum; integers as float64."""
    x = F.asarray(x)
    result = dtype
    if dtype is None and x.dtype.kind in "biu":
        dtype = np.float64
    elif dtype is None and accumulator(x.dtype.name) != x.dtype.name:
        dtype, result = accumulator(x.dtype.name), x.dtype  # as NumPy's of float16
    total = F.sum(x, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    # NumPy divides by the count in the precision of the sum: a weak Python float.
    whole = F.divide(total, _count(F, x, axis, keepdims, where, total.dtype))
    return whole if result is None else F.astype(whole, result)


def _count(F: Any, x: Any, axis: Any, keepdims: bool, where: Any, dtype: Any) -> Any:
    if where is None:
        return float(F.length(x, axis))
    present = F.logical_or(F.not_equal(where, 0), F.logical_and(F.equal(x, x), False))
    return F.astype(F.sum(present, axis=axis, keepdims=keepdims), dtype)


def var(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0,
        keepdims: bool = False, where: Any = None,
        correction: float | None = None) -> Any:  # fmt: skip
    """Squared differences from the mean over count - ddof; the standard calls it `correction`."""
    ddof = ddof if correction is None else correction
    x = F.asarray(x)
    if dtype is not None or x.dtype.kind in "biu":
        x = F.astype(x, np.float64 if dtype is None else dtype)
    if kind(x.dtype) == "c":  # |z|^2 is the sum of the squares of its parts
        over = {"axis": axis, "ddof": ddof, "keepdims": keepdims, "where": where}
        return F.add(*(var(F, part, **over) for part in (F.real(x), F.imag(x))))
    parts = (x, 1, F.subtract(x, x))
    if where is not None:
        present = F.astype(F.not_equal(where, 0), x.dtype)
        parts = (F.where(where, x, 0), present, F.where(where, parts[2], 0))
        if parts[0].shape != x.shape:
            raise ShapeError(f"var: where= has a shape that does not broadcast to {x.shape}")
    squares = F.fold("squared_deviations", parts, axis, keepdims)
    if where is None:
        return F.divide(squares, max(float(F.length(x, axis)) - ddof, 0.0))
    count = _count(F, x, axis, keepdims, where, x.dtype)
    return F.divide(squares, F.maximum(F.subtract(count, ddof), 0))


def std(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0,
        keepdims: bool = False, where: Any = None,
        correction: float | None = None) -> Any:  # fmt: skip
    """Root of the variance."""
    ddof = ddof if correction is None else correction
    return F.sqrt(var(F, x, axis, dtype, ddof=ddof, keepdims=keepdims, where=where))


def _arg(name: str) -> Callable[..., Any]:
    def find(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        if axis is not None and not isinstance(axis, (int, np.integer)):
            raise TypeError(f"{name} takes one axis or None, not {axis!r}")
        return F.fold(name, (F.asarray(x), "position"), axis, keepdims)

    return find


def _nanarg(name: str, worst: float) -> Callable[..., Any]:
    def find(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return _arg(name)(F, _instead_of_nan(F, x, worst), axis, keepdims=keepdims)

    return find


def _instead_of_nan(F: Any, x: Any, value: float) -> Any:
    x = F.asarray(x)
    return F.where(F.isnan(x), value, x) if kind(x.dtype) in "fc" else x


def ptp(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Greatest minus least."""
    return F.subtract(
        F.max(x, axis=axis, keepdims=keepdims), F.min(x, axis=axis, keepdims=keepdims)
    )


def count_nonzero(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many are not zero."""
    return F.sum(F.not_equal(x, 0), axis=axis, keepdims=keepdims)


def nansum(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """Sum of what is not NaN."""
    return F.sum(_instead_of_nan(F, x, 0), axis=axis, dtype=dtype, keepdims=keepdims)


def nanmean(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """Mean of what is not NaN."""
    x = F.asarray(x)
    if kind(x.dtype) not in "fc":
        return mean(F, x, axis, dtype, keepdims=keepdims)
    result = x.dtype if dtype is None else np.dtype(dtype)
    # In the dtype that adds up: float16 has no count beyond 65,504.
    total = nansum(F, x, axis, accumulator(result.name), keepdims=keepdims)
    count = F.sum(F.logical_not(F.isnan(x)), axis=axis, keepdims=keepdims)
    return F.astype(F.divide(total, F.astype(count, total.dtype)), result)


def _nan_extreme(name: str, worst: float) -> Callable[..., Any]:
    def find(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        x = F.asarray(x)
        found = getattr(F, name)(_instead_of_nan(F, x, worst), axis=axis, keepdims=keepdims)
        if kind(x.dtype) not in "fc":
            return found
        return F.where(F.all(F.isnan(x), axis=axis, keepdims=keepdims), float("nan"), found)

    return find


def _wide(expand: Callable[..., Any]) -> Callable[..., Any]:
    """Compute in the dtype in which `x` adds up, rounded once: float16 overflows at 65,504."""

    @functools.wraps(expand)
    def wide(F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        x = F.asarray(x)
        within = accumulator(x.dtype.name)
        if within == x.dtype.name:
            return expand(F, x, *args, **kwargs)
        return F.astype(expand(F, F.astype(x, within), *args, **kwargs), x.dtype)

    return wide


@_wide
def logsumexp(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """log(sum(exp(x))), without overflow."""
    if kind(x.dtype) == "c":
        raise DTypeError(f"logsumexp: the function is of real numbers only, not {x.dtype}")
    x = x if kind(x.dtype) == "f" else F.astype(x, np.float64)

    def top(kept: bool) -> Any:
        found = F.max(x, axis=axis, keepdims=kept)
        return F.where(F.isfinite(found), found, 0.0)  # all -inf, or any inf: exp sees them bare

    total = F.sum(F.exp(F.subtract(x, top(True))), axis=axis, keepdims=keepdims)
    return F.add(F.log(total), top(keepdims))


def _squared(F: Any, x: Any) -> Any:
    """Return the squares of the absolute values."""
    if kind(x.dtype) == "c":
        return F.add(F.square(F.real(x)), F.square(F.imag(x)))
    return F.square(x)


def norm(F: Any, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Vector norms, and the matrix norms that need no decomposition."""
    x = F.asarray(x)
    if x.dtype.kind not in "fc":
        x = F.astype(x, np.float64)
    axes = F.axes(x, axis)
    flat = axis is None and ord is None
    if len(axes) > 2 and not flat:
        raise Unsupported(f"norm(ord={ord!r}) along {len(axes)} axes: give one axis, or two")
    if len(axes) == 2 and not flat and ord not in (None, "fro"):
        if ord not in (1, -1, np.inf, -np.inf):
            raise Unsupported(f"the matrix norm ord={ord!r} needs a decomposition; use cupy.linalg")
        rows, columns = axes if axis is None else tuple(F.axes(x, one)[0] for one in axis)
        inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = F.sum(F.absolute(x), axis=inner, keepdims=True)
        extreme = F.max if ord > 0 else F.min
        if keepdims:
            return extreme(sums, axis=outer, keepdims=True)
        return extreme(sums, axis=axes)
    over: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    if ord in (None, 2, "fro"):
        return F.sqrt(F.sum(_squared(F, x), **over))
    if ord in (np.inf, -np.inf):
        return (F.max if ord > 0 else F.min)(F.absolute(x), **over)
    if ord == 0:
        return F.astype(F.sum(F.not_equal(x, 0), **over), F.absolute(x).dtype)
    if ord == 1:
        return F.sum(F.absolute(x), **over)
    if isinstance(ord, str):
        raise ValueError(f"invalid norm order {ord!r} for vectors")
    return F.power(F.sum(F.power(F.absolute(x), float(ord)), **over), 1 / float(ord))


def vecdot(F: Any, x1: Any, x2: Any, axis: int = -1) -> Any:
    """Sum of products along an axis, in the dtype of the products; x1 is conjugated."""
    x1 = F.asarray(x1)
    product = F.multiply(F.conj(x1) if kind(x1.dtype) == "c" else x1, x2)
    if product.dtype.kind == "b":
        return F.any(product, axis=axis)
    return F.sum(product, axis=axis, dtype=product.dtype)


def average(
    F: Any, x: Any, axis: Any = None, weights: Any = None, *, keepdims: bool = False
) -> Any:
    """Weighted mean; 1-d weights go along the axis."""
    if weights is None:
        return mean(F, x, axis, keepdims=keepdims)
    x = F.asarray(x)
    axes = F.axes(x, axis)
    weights = weights if hasattr(weights, "shape") else np.asarray(weights)
    if tuple(weights.shape) != x.shape:
        if len(axes) != 1 or tuple(weights.shape) != (x.shape[axes[0]],):
            raise ValueError(
                f"average: weights of shape {tuple(weights.shape)} go neither with shape "
                f"{x.shape} nor along axis {axis}"
            )
        if axes[0] != x.ndim - 1:
            weights = weights.reshape((-1,) + (1,) * (x.ndim - 1 - axes[0]))
    w = F.asarray(weights)
    if x.dtype.kind not in "fc" and w.dtype.kind not in "fc":
        w = F.astype(w, np.float64)
    product = F.multiply(x, w)
    # As broadcast, so that both sums are of one pass over the same elements.
    share = F.add(F.astype(w, product.dtype), F.multiply(F.not_equal(x, x), False))
    total = F.sum(share, axis=axes, keepdims=keepdims)
    return F.divide(F.sum(product, axis=axes, keepdims=keepdims), total)


@_wide
def softmax(F: Any, x: Any, axis: Any = -1) -> Any:
    """exp(x) over its sum, without overflow."""
    x = F.asarray(x)
    e = F.exp(F.subtract(x, F.max(x, axis=axis, keepdims=True)))
    return F.divide(e, F.sum(e, axis=axis, keepdims=True))


@_wide
def log_softmax(F: Any, x: Any, axis: Any = -1) -> Any:
    """Logarithm of softmax, without overflow."""
    x = F.asarray(x)
    shifted = F.subtract(x, F.max(x, axis=axis, keepdims=True))
    return F.subtract(shifted, F.log(F.sum(F.exp(shifted), axis=axis, keepdims=True)))


def _centred(F: Any, x: Any, axis: Any, ddof: float = 0) -> tuple[Any, Any]:
    """Return the differences from the mean, and the variance."""
    x = F.asarray(x)
    apart = F.subtract(x, mean(F, x, axis, keepdims=True))
    if F.length(x, axis) > LONG:
        return apart, var(F, x, axis, ddof=ddof, keepdims=True)
    squares = F.sum(_squared(F, apart), axis=axis, keepdims=True)
    return apart, F.divide(squares, max(float(F.length(x, axis)) - ddof, 0.0))


@_wide
def _normal(F: Any, x: Any, axis: Any, eps: float) -> Any:
    apart, spread = _centred(F, x, axis)
    return F.divide(apart, F.sqrt(F.add(spread, eps)))


@_wide
def _of_unit_square(F: Any, x: Any, axis: Any, eps: float) -> Any:
    square = mean(F, _squared(F, x), axis, keepdims=True)
    return F.divide(x, F.sqrt(F.add(square, eps)))


def _scaled(F: Any, x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else F.multiply(x, weight)
    return x if bias is None else F.add(x, bias)


def layernorm(F: Any, x: Any, weight: Any = None, bias: Any = None, axis: Any = -1,
              eps: float = 1e-5) -> Any:  # fmt: skip
    """Mean 0 and variance 1 along the axis, then weight and bias."""
    return _scaled(F, _normal(F, x, axis, eps), weight, bias)


def rmsnorm(F: Any, x: Any, weight: Any = None, axis: Any = -1, eps: float = 1e-5) -> Any:
    """Over the root of the mean square along the axis, then weight."""
    return _scaled(F, _of_unit_square(F, x, axis, eps), weight, None)


@_wide
def normalize(F: Any, x: Any, ord: Any = 2, axis: Any = -1, eps: float = 1e-12) -> Any:
    """Over the norm along the axis."""
    return F.divide(x, F.maximum(norm(F, x, ord, axis, keepdims=True), eps))


@_wide
def standardize(F: Any, x: Any, axis: Any = -1, ddof: float = 0) -> Any:
    """Mean 0 and standard deviation 1 along the axis."""
    apart, spread = _centred(F, x, axis, ddof)
    return F.divide(apart, F.sqrt(spread))


STATISTICS: tuple[Statistic, ...] = (
    Statistic("var", 1, "Variance, with `ddof`: merged by Chan's method in one pass.", var,
              method=True),
    Statistic("std", 1, "Standard deviation, with `ddof`.", std, method=True),
    Statistic("argmax", 1, "Position of the first greatest element, or NaN.", _arg("argmax"),
              method=True),
    Statistic("argmin", 1, "Position of the first least element, or NaN.", _arg("argmin"),
              method=True),
    Statistic("nanargmax", 1, "Position of the first greatest element that is not NaN; 0 if all "
              "are.", _nanarg("argmax", -np.inf)),
    Statistic("nanargmin", 1, "Position of the first least element that is not NaN; 0 if all are.",
              _nanarg("argmin", np.inf)),
    Statistic("ptp", 1, "Greatest minus least element.", ptp),
    Statistic("count_nonzero", 1, "Number of elements that are not zero.", count_nonzero),
    Statistic("nansum", 1, "Sum of the elements that are not NaN.", nansum),
    Statistic("nanmean", 1, "Mean of the elements that are not NaN.", nanmean),
    Statistic("nanmin", 1, "Least element that is not NaN.", _nan_extreme("min", np.inf)),
    Statistic("nanmax", 1, "Greatest element that is not NaN.", _nan_extreme("max", -np.inf)),
    Statistic("logsumexp", 1, "log(sum(exp(x))), without overflow.", logsumexp),
    Statistic("norm", 1, "Vector norm, `ord` 2 by default; or a matrix norm along two axes.", norm,
              ("vector_norm",)),
    Statistic("vecdot", 2, "Sum of products along an axis.", vecdot),
    Statistic("average", 1, "Mean, weighted by `weights`.", average),
    Statistic("softmax", 1, "exp(x) over its sum along an axis, without overflow.", softmax),
    Statistic("log_softmax", 1, "Logarithm of softmax, without overflow.", log_softmax),
    Statistic("layernorm", 1, "Mean 0 and variance 1 along an axis, times weight, plus bias.",
              layernorm),
    Statistic("rmsnorm", 1, "x over its root mean square along an axis, times weight.", rmsnorm),
    Statistic("normalize", 1, "x over its norm along an axis.", normalize),
    Statistic("standardize", 1, "Mean 0 and standard deviation 1 along an axis.", standardize),
)  # fmt: skip
