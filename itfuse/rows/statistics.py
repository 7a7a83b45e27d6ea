"""Functions along axes, written with the rows of the op table: NumPy's own definitions.

Each takes `F`, which has every op as a function, and the caller's arguments. None is recognised by
the planner: what it does for `softmax` it does for any expression of that shape.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.dtypes import accumulator, kind
from itfuse.errors import DTypeError, ShapeError
from itfuse.rows.norms import matrix_norm, norm, squared, vector_norm

LONG = 1 << 18
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
        keepdims: bool = False, where: Any = None, mean: Any = None,
        correction: float | None = None) -> Any:  # fmt: skip
    """Squared differences from the mean over count - ddof; the standard calls it `correction`."""
    ddof = ddof if correction is None else correction
    x = F.asarray(x)
    if dtype is not None or x.dtype.kind in "biu":
        x = F.astype(x, np.float64 if dtype is None else dtype)
    if mean is not None:  # known to the caller, so that a plain sum of squares is accurate
        apart = squared(F, F.subtract(x, mean))
        squares = F.sum(apart, axis=axis, keepdims=keepdims, where=where)
        return _over(F, squares, x, axis, ddof, keepdims, where)
    if kind(x.dtype) == "c":  # |z|^2 is the sum of the squares of its parts
        over = {"axis": axis, "ddof": ddof, "keepdims": keepdims, "where": where}
        return F.add(*(var(F, part, **over) for part in (F.real(x), F.imag(x))))
    parts = (x, 0, 1, F.subtract(x, x))
    if where is not None:
        present = F.astype(F.not_equal(where, 0), x.dtype)
        parts = (F.where(where, x, 0), 0, present, F.where(where, parts[3], 0))
        if parts[0].shape != x.shape:
            raise ShapeError(f"var: where= has a shape that does not broadcast to {x.shape}")
    squares = F.fold("squared_deviations", parts, axis, keepdims)
    return _over(F, squares, x, axis, ddof, keepdims, where)


def _over(
    F: Any, squares: Any, x: Any, axis: Any, ddof: float, keepdims: bool, where: Any
) -> Any:  # fmt: skip
    """Return sums of squares over the number of elements less ddof."""
    if where is None:
        return F.divide(squares, max(float(F.length(x, axis)) - ddof, 0.0))
    count = _count(F, x, axis, keepdims, where, squares.dtype)
    return F.divide(squares, F.maximum(F.subtract(count, ddof), 0))


def std(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0,
        keepdims: bool = False, where: Any = None, mean: Any = None,
        correction: float | None = None) -> Any:  # fmt: skip
    """Root of the variance."""
    ddof = ddof if correction is None else correction
    return F.sqrt(var(F, x, axis, dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean))


def arg_extreme(name: str) -> Callable[..., Any]:
    """Return `argmax` or `argmin`."""

    def find(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        if axis is not None and not isinstance(axis, (int, np.integer)):
            raise TypeError(f"{name} takes one axis or None, not {axis!r}")
        return F.fold(name, (F.asarray(x), "position"), axis, keepdims)

    return find


def ptp(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Greatest minus least."""
    return F.subtract(
        F.max(x, axis=axis, keepdims=keepdims), F.min(x, axis=axis, keepdims=keepdims)
    )


def count_nonzero(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many are not zero."""
    return F.sum(F.not_equal(x, 0), axis=axis, keepdims=keepdims)


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
    if F.length(x, axis) == 0:  # log(0), as of any sum of nothing
        return F.log(F.sum(x, axis=axis, keepdims=keepdims))

    def top(kept: bool) -> Any:
        found = F.max(x, axis=axis, keepdims=kept)
        return F.where(F.isfinite(found), found, 0.0)  # all -inf, or any inf: exp sees them bare

    total = F.sum(F.exp(F.subtract(x, top(True))), axis=axis, keepdims=keepdims)
    return F.add(F.log(total), top(keepdims))


def vecdot(F: Any, x1: Any, x2: Any, axis: int = -1) -> Any:
    """Sum of products along an axis of each, in the dtype of the products; x1 is conjugated."""
    pair = [F.asarray(x1), F.asarray(x2)]
    if not all(x.ndim for x in pair):
        raise ShapeError("vecdot: both operands need an axis, and one has none")
    places = [F.axes(x, operator.index(axis))[0] - x.ndim for x in pair]  # from the end
    sizes = [x.shape[at] for x, at in zip(pair, places, strict=True)]
    if sizes[0] != sizes[1]:
        raise ShapeError(f"vecdot: the operands have {sizes[0]} and {sizes[1]} elements along "
                         f"axis {axis}; that axis does not broadcast")  # fmt: skip
    if places[0] != places[1]:
        pair = [F.moveaxis(x, at, -1) for x, at in zip(pair, places, strict=True)]
        places = [-1, -1]
    first, second = pair
    product = F.multiply(F.conj(first) if kind(first.dtype) == "c" else first, second)
    if product.dtype.kind == "b":
        return F.any(product, axis=places[0])
    return F.sum(product, axis=places[0], dtype=product.dtype)


def average(F: Any, x: Any, axis: Any = None, weights: Any = None, returned: bool = False, *,
            keepdims: bool = False) -> Any:  # fmt: skip
    """Weighted mean; weights have the shape of `x`, or that of its axes in the order given."""
    x = F.asarray(x)
    axes = F.axes(x, axis)
    if weights is None:
        found = mean(F, x, axis, keepdims=keepdims)
        if not returned:
            return found
        count = F.full(found.shape, float(F.length(x, axis)), dtype=found.dtype, like=found)
        return found, count
    own = F.asarray(weights)
    w = _along(F, own, x, axis)
    if isinstance(weights, (list, tuple)):  # of arrays the elements are known only when they run
        over = axes if own.shape == x.shape else None
        if not np.all(np.sum(np.asarray(weights), axis=over)):
            raise ZeroDivisionError("average: the weights sum to zero along the axes")
    result = np.result_type(x.dtype, w.dtype, *([] if kind(x.dtype) in "fc" else [np.float64]))
    product = F.multiply(F.astype(x, result), F.astype(w, result))
    # As broadcast, so that both sums are of one pass over the same elements.
    share = F.add(F.astype(w, result), F.multiply(F.not_equal(x, x), False))
    total = F.sum(share, axis=axes, keepdims=keepdims)
    found = F.divide(F.sum(product, axis=axes, keepdims=keepdims), total)
    return (found, total) if returned else found


def _along(F: Any, weights: Any, x: Any, axis: Any) -> Any:
    """Return weights so that they broadcast with `x` as `numpy.average` means them."""
    if weights.shape == x.shape:
        return weights
    if axis is None:
        raise TypeError(
            f"average: weights of shape {weights.shape} for elements of shape {x.shape}; say "
            "which axis= they go along"
        )
    named = axis if isinstance(axis, tuple) else (axis,)
    order = [F.axes(x, one)[0] for one in named]
    if weights.shape != tuple(x.shape[one] for one in order):
        raise ShapeError(
            f"average: weights of shape {weights.shape} go neither with shape {x.shape} nor along "
            f"axis {axis}"
        )
    turned = F.transpose(weights, tuple(sorted(range(len(order)), key=order.__getitem__)))
    return F.reshape(turned, tuple(n if at in order else 1 for at, n in enumerate(x.shape)))


@_wide
def softmax(F: Any, x: Any, axis: Any = -1) -> Any:
    """exp(x) over its sum, without overflow."""
    x = F.asarray(x)
    if x.size == 0:  # there is no greatest element
        return F.exp(F.subtract(x, x))
    e = F.exp(F.subtract(x, F.max(x, axis=axis, keepdims=True)))
    return F.divide(e, F.sum(e, axis=axis, keepdims=True))


@_wide
def log_softmax(F: Any, x: Any, axis: Any = -1) -> Any:
    """Logarithm of softmax, without overflow."""
    x = F.asarray(x)
    if x.size == 0:
        return F.log(F.exp(F.subtract(x, x)))
    shifted = F.subtract(x, F.max(x, axis=axis, keepdims=True))
    return F.subtract(shifted, F.log(F.sum(F.exp(shifted), axis=axis, keepdims=True)))


def _centred(F: Any, x: Any, axis: Any, ddof: float = 0) -> tuple[Any, Any]:
    """Return the differences from the mean, and the variance."""
    x = F.asarray(x)
    apart = F.subtract(x, mean(F, x, axis, keepdims=True))
    if F.length(x, axis) > LONG:
        return apart, var(F, x, axis, ddof=ddof, keepdims=True)
    squares = F.sum(squared(F, apart), axis=axis, keepdims=True)
    return apart, F.divide(squares, max(float(F.length(x, axis)) - ddof, 0.0))


@_wide
def _normal(F: Any, x: Any, axis: Any, eps: float) -> Any:
    apart, spread = _centred(F, x, axis)
    return F.divide(apart, F.sqrt(F.add(spread, eps)))


@_wide
def _of_unit_square(F: Any, x: Any, axis: Any, eps: float) -> Any:
    square = mean(F, squared(F, x), axis, keepdims=True)
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
    Statistic("argmax", 1, "Position of the first greatest element, or NaN.", arg_extreme("argmax"),
              method=True),
    Statistic("argmin", 1, "Position of the first least element, or NaN.", arg_extreme("argmin"),
              method=True),
    Statistic("ptp", 1, "Greatest minus least element.", ptp),
    Statistic("count_nonzero", 1, "Number of elements that are not zero.", count_nonzero),
    Statistic("logsumexp", 1, "log(sum(exp(x))), without overflow.", logsumexp),
    Statistic("norm", 1, "Vector norm along an axis, matrix norm along two; the 2-norm of "
              "everything by default.", norm),
    Statistic("vector_norm", 1, "Vector norm of all elements along any axes, `ord` 2 by default.",
              vector_norm),
    Statistic("matrix_norm", 1, "Matrix norm along the last two axes, Frobenius' by default.",
              matrix_norm),
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
