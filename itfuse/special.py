"""NumPy twins of special functions, by formulas and by Python's `math`; no SciPy is needed.

All compute in float64 and round once to the result's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse import reference

Array = np.ndarray[Any, Any]


def _twin(function: Callable[[Array], Array], doc: str) -> Callable[..., Any]:
    """Make `numpy(x, out=None)` from a function of a flat float64 array."""

    def twin(x: Array, out: Array | None = None) -> Any:
        wide = np.asarray(x, np.float64)
        with np.errstate(all="ignore"):
            result = function(wide.reshape(-1)).reshape(wide.shape)
        if out is None:
            return result.astype(np.asarray(x).dtype)
        np.copyto(out, result, casting="unsafe")
        return out

    twin.__doc__ = doc
    return twin


def _each(function: Callable[[float], float], x: Array) -> Array:
    return np.fromiter(map(function, x.tolist()), np.float64, x.size)


def _erfc(x: Array) -> Array:
    return _each(math.erfc, x)


def _gamma(x: Array) -> Array:
    # math.gamma raises where the C library returns NaN or infinity.
    whole = (x == np.floor(x)) & (x <= 0)
    result = np.where(x > 0, np.inf, np.nan)
    result[x == 0] = np.copysign(np.inf, x[x == 0])
    result[x < -190] = 0.0
    odd = np.floor(x) % 2 != 0
    result = np.where((x < -190) & odd, -0.0, result)
    result[(x < 0) & whole | np.isneginf(x)] = np.nan
    tiny = np.abs(x) < 5.6e-309  # 1 / x is beyond the greatest number
    result[tiny] = np.copysign(np.inf, x[tiny])
    safe = np.flatnonzero(~whole & ~tiny & (x < 171.6243769563027) & (x > -190))
    result[safe] = _each(math.gamma, x[safe])
    return result


def _lgamma(x: Array) -> Array:
    result = np.where(np.isnan(x), np.nan, np.inf)
    safe = np.flatnonzero((x < 2.5e305) & ((x > 0) | (x != np.floor(x))))
    result[safe] = _each(math.lgamma, x[safe])
    return result


def _erfinv(y: Array) -> Array:
    """S. Winitzki's first guess (2008), within 0.2 %, and three steps of Halley's method."""
    a = np.abs(y)
    inside = a < 1
    rest = np.where(inside, 1 - a, 0.5)  # exact where it matters, from 0.5 up
    small = np.where(inside, a, 0.5)
    log = np.log1p(-small * small)
    half = 2 / (math.pi * 0.147) + log / 2
    x = np.sqrt(np.sqrt(half * half - log / 0.147) - half)
    near = small < 0.5
    for _ in range(3):
        error = np.where(near, reference.erf(x) - small, 0.0)
        far = np.flatnonzero(~near)
        error[far] = rest[far] - _erfc(x[far])
        step = error / (2 / math.sqrt(math.pi) * np.exp(-x * x))
        x = x - step / (1 + x * step)
    x = np.where(small == 0, 0.0, x)
    # For the least arguments the slope at zero is all there is.
    x = np.where(small < 1e-8, small * (math.sqrt(math.pi) / 2), x)
    return np.copysign(np.where(inside, x, np.where(a == 1, np.inf, np.nan)), y)


_FAR = 25.0


def _trapezoid(x: Array, order: int) -> Array:
    """Bessel's integral by the trapezoidal rule, which converges faster than any power."""
    count = 4 * 24  # aliasing is J_96(x), beyond all digits for |x| < 25
    total = np.zeros_like(x)
    for k in range(count):
        # Midpoints: they avoid zero and pair up, so a quarter of the circle is enough.
        angle = 2 * math.pi * (k + 0.5) / count
        if angle > math.pi / 2:
            break
        s = math.sin(angle)
        total += np.cos(x * s) if order == 0 else s * np.sin(x * s)
    result: Array = total / (count / 4)
    return result


def _hankel(x: Array, order: int) -> Array:
    """Hankel's expansion (DLMF 10.17.3): for |x| >= 25 its terms fall below the last digit."""
    p, q, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, 18):
        term = term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
        sign = -1.0 if k % 4 in (2, 3) else 1.0
        if k % 2:
            q += sign * term
        else:
            p += sign * term
    # cos(x - pi/4) and sin(x - pi/4), times the square root of 2, without rounding x - pi/4.
    c, s = np.cos(x) + np.sin(x), np.sin(x) - np.cos(x)
    if order == 1:
        c, s = s, -c
    result: Array = (p * c - q * s) / np.sqrt(math.pi * x)
    return result


def _bessel(order: int) -> Callable[[Array], Array]:
    def function(x: Array) -> Array:
        a = np.abs(x)
        result = np.where(np.isnan(x), np.nan, 0.0)
        near, far = np.flatnonzero(a < _FAR), np.flatnonzero((a >= _FAR) & np.isfinite(a))
        result[near] = _trapezoid(a[near], order)
        result[far] = _hankel(a[far], order)
        return np.copysign(1.0, x) * result if order else result

    return function


def _i0(x: Array) -> Array:
    a = np.abs(x)
    result: Array = np.i0(a)
    # NumPy's overflows early, and infinity over infinity is NaN: Hankel's expansion instead.
    far = np.flatnonzero(a > 600)
    b = np.minimum(a[far], 1e4)  # infinite from 714 on
    series = 1 + 1 / (8 * b) * (1 + 9 / (16 * b) * (1 + 25 / (24 * b) * (1 + 49 / (32 * b))))
    half = np.exp(b / 2)
    result[far] = half * (series / np.sqrt(2 * math.pi * b)) * half
    return result


erfc = _twin(_erfc, "Complementary error function: C's, through `math.erfc`; 1 ulp.")
gamma = _twin(_gamma, "Gamma function: CPython's `math.gamma`, a Lanczos sum; below 10 ulp.")
lgamma = _twin(_lgamma, "Logarithm of |gamma|: `math.lgamma`; 10 ulp of max(|result|, 1).")
erfinv = _twin(_erfinv, "Inverse error function; 4 ulp.")
j0 = _twin(_bessel(0), "Bessel function of order 0; 8 ulp of max(|result|, 1).")
j1 = _twin(_bessel(1), "Bessel function of order 1; 8 ulp of max(|result|, 1).")
i0 = _twin(_i0, "Modified Bessel function of order 0: NumPy's `i0`; 4 ulp.")
