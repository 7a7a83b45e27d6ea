"""NumPy's differences and integrals along axes, by its formulas; compositions as in numeric.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from itfuse import dtypes, wording
from itfuse.array import Array, asarray
from itfuse.errors import DTypeError, ShapeError, Unsupported
from itfuse.functions import FUNCTIONS
from itfuse.indexing import axis_of, beside
from itfuse.joining import concat, diff
from itfuse.manipulation import ravel, reshape
from itfuse.wording import Lazily


def _what(name: str, x: Array) -> Lazily:
    return Lazily(lambda: f"{name}({wording.text(x._node)}, ...)")


def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Array:
    """Return `p` with jumps of more than half a period taken as their complements.

    One pass: a running sum of the corrections with what is before and after. Floats are summed in
    the order of docs/scans.md.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.unwrap(itf.asarray([0, 3, 1, 0]), period=4).compute()
    array([ 0, -1, -3, -4])
    """
    x: Any = asarray(p)
    axis = axis_of(axis, x.ndim, _what("unwrap", x))
    kind = np.result_type(x.dtype, period)
    discont = period / 2 if discont is None else discont
    if kind.kind in "iu":
        high, rest = divmod(period, 2)
        ambiguous = rest == 0
    else:
        high, ambiguous = period / 2, True
    first = (slice(None),) * axis
    steps: Any = diff(x, axis=axis, prepend=x[(*first, slice(0, 1))])
    jump: Any = FUNCTIONS["remainder"](steps + high, period) - high
    if ambiguous:
        jump = FUNCTIONS["where"]((jump == -high) & (steps > 0), high, jump)
    correction = FUNCTIONS["where"](FUNCTIONS["absolute"](steps) < discont, 0, jump - steps)
    return x.astype(kind) + FUNCTIONS["cumsum"](correction, axis=axis).astype(kind)


# ---- differences and integrals -------------------------------------------------------------------
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    """Return differences of neighbours of the flattened operand, with others around them."""
    x: Any = ravel(ary)
    parts: list[Any] = [x[1:] - x[:-1]]
    for place, extra in ((0, to_begin), (len(parts) + 1, to_end)):
        if extra is None:
            continue
        new = asarray(extra)
        if not np.can_cast(new.dtype, x.dtype, "same_kind"):
            raise DTypeError(
                f"{_what('ediff1d', x)}: {new.dtype} does not cast to {x.dtype} by 'same_kind'"
            )
        parts.insert(place, ravel(new.astype(x.dtype)))
    return concat(parts) if len(parts) > 1 else parts[0]


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """Return the integral of `y` along an axis by the trapezoidal rule: one pass.

    Examples
    --------
    >>> import itfuse as itf
    >>> float(itf.trapezoid(itf.asarray([1.0, 2.0, 3.0])).compute())
    4.0
    """
    values: Any = asarray(y)
    axis = axis_of(axis, values.ndim, _what("trapezoid", values))
    step = dx
    if x is not None:
        places = asarray(x)
        if places.ndim == 1:
            step = reshape(diff(places), (-1, *(1,) * (values.ndim - axis - 1)))
        else:
            step = diff(places, axis=axis)
    before = (slice(None),) * axis
    pairs = values[(*before, slice(1, None))] + values[(*before, slice(None, -1))]
    return FUNCTIONS["sum"](step * pairs / 2.0, axis=axis)


# ---- gradients -----------------------------------------------------------------------------------
def _spacings(f: Array, varargs: Sequence[Any], axes: tuple[int, ...], what: object) -> list[Any]:
    """Return for each axis a distance, or NumPy's array of distances."""
    if not varargs:
        return [1.0] * len(axes)
    if len(varargs) == 1 and np.ndim(varargs[0]) == 0:
        return [varargs[0]] * len(axes)
    if len(varargs) != len(axes):
        raise TypeError(f"{what}: {len(varargs)} spacings for {len(axes)} axes")
    found: list[Any] = []
    for axis, given in zip(axes, varargs, strict=True):
        if np.ndim(given) == 0:
            found.append(given)
            continue
        if not isinstance(given, (list, tuple, range, np.ndarray)):
            raise Unsupported(
                f"{what}: coordinates decide about the formula and must be on the host; compute() "
                "or .get() them first"
            )
        places = np.asarray(given)
        if places.ndim != 1 or places.size != f.shape[axis]:
            raise ShapeError(
                f"{what}: coordinates of shape {places.shape} for an axis of {f.shape[axis]} "
                "elements"
            )
        places = places.astype(float) if places.dtype.kind in "iu" else places
        steps = np.diff(places)
        found.append(steps[0] if (steps == steps[0]).all() else steps)
    return found


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Return central differences along axes, with one-sided ones at the ends.

    Parameters
    ----------
    f : array
        The operand.
    *varargs : scalar or sequence, optional
        The distance, or one for each axis; or coordinates of the host along an axis.
    axis : int or tuple of int, optional
        The axes; all by default.
    edge_order : int
        1 or 2: the order of the differences at the ends.

    Returns
    -------
    Array, or tuple of Array for several axes

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.gradient(itf.asarray([1.0, 4.0, 9.0, 16.0])).compute()
    array([3., 4., 6., 7.])
    """
    x = asarray(f)
    what = _what("gradient", x)
    if axis is None:
        axes = tuple(range(x.ndim))
    else:
        named = axis if isinstance(axis, (tuple, list)) else (axis,)
        axes = tuple(axis_of(one, x.ndim, what) for one in named)
    if edge_order not in (1, 2):
        raise ValueError(f"{what}: edge_order={edge_order}; it is 1 or 2")
    kind = x.dtype if dtypes.kind(x.dtype) in "fc" else np.dtype(float)
    steps = _spacings(x, varargs, axes, what)
    if any(x.shape[one] < edge_order + 1 for one in axes):
        raise ShapeError(f"{what}: an axis has fewer than {edge_order + 1} elements")
    values = x.astype(kind)
    made = [_along(values, at, step, edge_order) for at, step in zip(axes, steps, strict=True)]
    return made[0] if len(made) == 1 else tuple(made)


def _along(x: Any, axis: int, step: Any, order: int) -> Array:
    before = (slice(None),) * axis

    def at(place: Any) -> Any:
        return x[(*before, place)]

    def edge(weights: Sequence[Any], places: Sequence[slice]) -> Any:
        total = weights[0] * at(places[0])
        for weight, place in zip(weights[1:], places[1:], strict=True):
            total = total + weight * at(place)
        return total

    low, mid, high = at(slice(None, -2)), at(slice(1, -1)), at(slice(2, None))
    plain = np.ndim(step) == 0
    if plain:
        inner = (high - low) / (2.0 * step)
        d1 = d2 = e1 = e2 = step
    else:
        apart: list[Any] = [
            beside(part.reshape((-1, *(1,) * (x.ndim - axis - 1))), x)
            for part in (step[:-1], step[1:])
        ]
        one, two = apart
        a, b, c = (-two / (one * (one + two)), (two - one) / (one * two), one / (two * (one + two)))
        inner = a * low + b * mid + c * high
        d1, d2, e1, e2 = step[0], step[1] if step.size > 1 else None, (
            step[-2] if step.size > 1 else None), step[-1]  # fmt: skip
    first, second, third = slice(0, 1), slice(1, 2), slice(2, 3)
    last, but1, but2 = slice(-1, None), slice(-2, -1), slice(-3, -2)
    if order == 1:
        start = (at(second) - at(first)) / d1
        end = (at(last) - at(but1)) / e2
    else:
        if plain:
            begin = (-1.5 / step, 2.0 / step, -0.5 / step)
            close = (0.5 / step, -2.0 / step, 1.5 / step)
        else:
            begin = (-(2.0 * d1 + d2) / (d1 * (d1 + d2)), (d1 + d2) / (d1 * d2),
                     -d1 / (d2 * (d1 + d2)))  # fmt: skip
            close = (e2 / (e1 * (e1 + e2)), -(e2 + e1) / (e1 * e2),
                     (2.0 * e2 + e1) / (e2 * (e1 + e2)))  # fmt: skip
        start, end = edge(begin, (first, second, third)), edge(close, (but2, but1, last))
    return concat([part.astype(x.dtype) for part in (start, inner, end)], axis)


_PUBLIC = (unwrap, ediff1d, trapezoid, gradient)
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
