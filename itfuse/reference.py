"""NumPy twins of operations that NumPy lacks or spells without `out=`.

Each takes `out=` and allocates nothing larger than its operands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse.errors import BoundsError, RangeError

Array = np.ndarray[Any, Any]


def where(condition: Array, x: Array, y: Array, out: Array | None = None) -> Array:
    """`np.where` into `out`."""
    if out is None:
        return np.where(condition, x, y)
    # `out` is a block of the engine's own and never an operand.
    np.copyto(out, y)
    np.copyto(out, x, where=condition)
    return out


def astype(x: Array, out: Array) -> Array:
    """`x.astype(out.dtype)` into `out`; of a complex number its real part, without a warning."""
    real = x.dtype.kind == "c" and out.dtype.kind not in "cb"
    np.copyto(out, x.real if real else x, casting="unsafe")
    return out


def real(x: Array, out: Array) -> Array:
    """Real part of `x` into `out`."""
    np.copyto(out, x.real)
    return out


def imag(x: Array, out: Array) -> Array:
    """Imaginary part of `x` into `out`; of a real number zero."""
    np.copyto(out, x.imag if np.iscomplexobj(x) else out.dtype.type(0))
    return out


def frexp_fraction(x: Array, out: Array) -> Array:
    """Write the first result of `np.frexp` into `out`."""
    np.frexp(x, out, None)
    return out


def frexp_exponent(x: Array, out: Array) -> Array:
    """Write the second result of `np.frexp` into `out`; of what is not finite it is zero."""
    np.frexp(x, None, out)
    out[~np.isfinite(x)] = 0
    return out


class ComplexMultiply:
    """Complex product with each real product and sum rounded, as NumPy documents it.

    NumPy's own vector code fuses some of them, depending on the machine and the memory layout.
    """

    def __call__(self, a: Array, b: Array, out: Array | None = None) -> Any:
        """Return `a * b`."""
        a, b = np.asarray(a), np.asarray(b)
        result: Array = np.empty(np.broadcast(a, b).shape, a.dtype) if out is None else out
        real = a.real * b.real
        real -= a.imag * b.imag
        imag = a.real * b.imag
        imag += a.imag * b.real
        result.real, result.imag = real, imag
        return result if out is not None or result.shape else result[()]

    def reduce(self, a: Array, axis: int = 0, dtype: Any = None, out: Array | None = None) -> Array:
        """Multiply along `axis`, in order."""
        steps = np.moveaxis(np.asarray(a, dtype), axis, 0)
        total: Array = steps[0].copy()
        for step in steps[1:]:
            total = self(total, step)
        if out is None:
            return total
        out[...] = total
        return out


class ComplexProduct(ComplexMultiply):
    """Complex product to which 1 is neutral, as a reduction's identity must be.

    By the rule of products an infinity times 1 + 0j is not a number.
    """

    def __call__(self, a: Array, b: Array, out: Array | None = None) -> Any:
        """Return `a * b`, or the other operand where one is 1."""
        a, b = np.asarray(a), np.asarray(b)
        made = np.where(a == 1, b, np.where(b == 1, a, super().__call__(a, b)))
        if out is None:
            return made if made.shape else made[()]
        out[...] = made
        return out


def fmax(a: Array, b: Array, out: Array | None = None) -> Array:
    """NumPy's `fmax`, whose sign of zero depends on the memory layout; here it is `maximum`'s."""
    return _without_nan(np.maximum, a, b, out)


def fmin(a: Array, b: Array, out: Array | None = None) -> Array:
    """NumPy's `fmin`, with the zero that `minimum` takes."""
    return _without_nan(np.minimum, a, b, out)


def _without_nan(extreme: np.ufunc, a: Array, b: Array, out: Array | None) -> Array:
    """Return the extreme, NaN replaced by the other operand."""
    out = np.empty(np.broadcast(a, b).shape, np.asarray(a).dtype) if out is None else out
    extreme(a, b, out=out)
    nan = np.isnan(out)
    if nan.any():
        np.copyto(out, np.where(np.isnan(b), a, b), where=nan)
    return out


COMPLEX_MULTIPLY = ComplexMultiply()
COMPLEX_PRODUCT = ComplexProduct()


def complex_log1p(z: Array, out: Array) -> Array:
    """log(1 + z) without NumPy's loss near zero: |1 + z|^2 - 1 is x (2 + x) + y^2."""
    np.log1p(z, out=out)
    small = (np.abs(z.real) < 0.5) & (np.abs(z.imag) < 0.5)
    x, y = z.real[small], z.imag[small]
    out.real[small] = np.log1p(x * (2 + x) + y * y) / 2
    return out


def power(x: Array, y: Array, out: Array) -> Array:
    """Write `x ** y`.

    Raises
    ------
    RangeError
        For an integer to a negative integer.
    """
    try:
        return np.power(x, y, out=out)  # type: ignore[no-any-return]
    except ValueError as why:
        raise RangeError(
            f"{str(why)[:1].lower()}{str(why)[1:].rstrip('.')}; make one a float"
        ) from None


def complex_square(x: Array, out: Array) -> Array:
    """Return `x * x`, each real product and sum rounded."""
    result: Array = COMPLEX_MULTIPLY(x, x, out)
    return result


def sort_key(x: Array, out: Array) -> Array:
    """Return unsigned integers that sort as floats do, NaN greatest; both zeros are one."""
    sign = out.dtype.type(1 << (8 * out.itemsize - 1))
    x = np.asarray(x)
    bits = np.where(x == 0, np.zeros_like(x), x).view(out.dtype)
    ordered = np.where(bits & sign, ~bits, bits | sign)
    out[...] = np.where(np.isnan(x), ~out.dtype.type(0), ordered)
    return out


def from_sort_key(key: Array, out: Array) -> Array:
    """Return the floats of `sort_key`."""
    key = np.asarray(key)
    sign = key.dtype.type(1 << (8 * key.itemsize - 1))
    out[...] = np.where(key & sign, key ^ sign, ~key).view(out.dtype)
    return out


def complex_of(re: Array, im: Array, out: Array) -> Array:
    """Write a complex number of two parts."""
    out.real, out.imag = re, im
    return out


def wrap_index(i: Array, n: Any, out: Array) -> Array:
    """Write the places that indices mean into `out`.

    Raises
    ------
    BoundsError
        If an index is below -n or not below n.
    """
    np.copyto(out, i)
    low, high = (out.min(), out.max()) if out.size else (0, -1)
    if low < -n or high >= n:
        bad = low if low < -n else high
        raise BoundsError(f"index {bad} is out of bounds for an axis of {n} elements")
    if low < 0:
        np.add(out, n, out=out, where=out < 0)
    return out


# erf by the rational approximations of W. J. Cody's kind in fdlibm's s_erf.c (Sun Microsystems,
# 1993), whose error is below 1 ulp of float64: erf(x) = x + x P(x^2)/Q(x^2) for |x| < 0.84375;
# c + P(|x|-1)/Q(|x|-1) to 1.25; 1 - exp(-x^2 - 0.5625) R(1/x^2)/S(1/x^2) / |x| beyond, with x
# split so that the square is exact; 1 from 6 on.
_C = 8.45062911510467529297e-01
_PP = (1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
       -5.77027029648944159157e-03, -2.37630166566501626084e-05)  # fmt: skip
_QQ = (1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03,
       1.32494738004321644526e-04, -3.96022827877536812320e-06)  # fmt: skip
_PA = (-2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
       3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
       -2.16637559486879084300e-03)  # fmt: skip
_QA = (1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02,
       1.26171219808761642112e-01, 1.36370839120290507362e-02,
       1.19844998467991074170e-02)  # fmt: skip
_RA = (-9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e01,
       -6.23753324503260060396e01, -1.62396669462573470355e02, -1.84605092906711035994e02,
       -8.12874355063065934246e01, -9.81432934416914548592e00)  # fmt: skip
_SA = (1.0, 1.96512716674392571292e01, 1.37657754143519042600e02, 4.34565877475229228821e02,
       6.45387271733267880336e02, 4.29008140027567833386e02, 1.08635005541779435134e02,
       6.57024977031928170135e00, -6.04244152148580987438e-02)  # fmt: skip
_RB = (-9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e01,
       -1.60636384855821916062e02, -6.37566443368389627722e02, -1.02509513161107724954e03,
       -4.83519191608651397019e02)  # fmt: skip
_SB = (1.0, 3.03380607434824582924e01, 3.25792512996573918826e02, 1.53672958608443695994e03,
       3.19985821950859553908e03, 2.55305040643316442583e03, 4.74528541206955367215e02,
       -2.24409524465858183362e01)  # fmt: skip


def _ratio(x: Array, above: tuple[float, ...], below: tuple[float, ...]) -> Array:
    def horner(coefficients: tuple[float, ...]) -> Array:
        total = np.full_like(x, coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total *= x
            total += c
        return total

    top = horner(above)
    top /= horner(below)
    return top


def _erf_tail(a: Array, above: tuple[float, ...], below: tuple[float, ...]) -> Array:
    # The upper half of the bits of a: its square is exact, and (z - a)(z + a) is the small rest.
    z = (a.view(np.int64) & np.int64(-0x100000000)).view(np.float64)
    rest = np.exp(-z * z - 0.5625) * np.exp((z - a) * (z + a) + _ratio(1 / (a * a), above, below))
    return 1 - rest / a


def erf(x: Array, out: Array | None = None) -> Array:
    """Error function, in float64 inside, rounded once to the result's dtype.

    Parameters
    ----------
    x : numpy.ndarray
        Floating-point operand.
    out : numpy.ndarray, optional
        Where the result goes.

    Returns
    -------
    numpy.ndarray
        erf(x), within 1 ulp; NaN stays NaN.

    Examples
    --------
    >>> import numpy as np
    >>> float(erf(np.array([0.5]))[0])
    0.5204998778130465
    """
    wide = np.asarray(x, dtype=np.float64)
    a = np.abs(wide).ravel()
    result: np.ndarray[Any, Any] = np.ones_like(a)
    result[np.isnan(a)] = np.nan
    for low, high, formula in (
        (0.0, 0.84375, lambda v: v + v * _ratio(v * v, _PP, _QQ)),
        (0.84375, 1.25, lambda v: _C + _ratio(v - 1, _PA, _QA)),
        (1.25, 1 / 0.35, lambda v: _erf_tail(v, _RA, _SA)),
        (1 / 0.35, 6.0, lambda v: _erf_tail(v, _RB, _SB)),
    ):
        at = np.flatnonzero((a >= low) & (a < high))
        if at.size:
            result[at] = formula(a[at])
    np.copysign(result, wide.ravel(), out=result)
    result = result.reshape(wide.shape)
    if out is None:
        return result.astype(x.dtype) if x.dtype.kind == "f" else result
    np.copyto(out, result, casting="same_kind")
    return out


Fields = tuple[Any, ...]


def _extreme(a: Fields, b: Fields, greater: Any) -> Fields:
    (value, at), (other, there) = a, b
    nan, its = np.not_equal(value, value), np.not_equal(other, other)
    better = np.where(its, ~nan, ~nan & greater(other, value))
    take = better | (((nan & its) | (other == value)) & (there < at))
    return np.where(take, other, value), np.where(take, there, at)


def argmax(a: Fields, b: Fields) -> Fields:
    """Merge (value, position): NaN before numbers, then the greater, then the earlier."""
    return _extreme(a, b, np.greater)


def argmin(a: Fields, b: Fields) -> Fields:
    """Merge (value, position): NaN before numbers, then the lesser, then the earlier."""
    return _extreme(a, b, np.less)


def merge_moments(a: Fields, b: Fields) -> Fields:
    """Merge (base, rest, count, squared deviations) of two parts; the mean is base + rest.

    Chan, Golub and LeVeque (1979). `base` is an element of the part, or its rounded mean where it
    was merged with more than two: one float of a mean far from zero would be off by more than the
    spread allows. What is returned may be arrays of `a`.
    """
    (base, rest, count, squares), (other, its_rest, many, its) = a, b
    # Most calls have parts of one kind, which need only some of the steps.
    if not np.any(many):
        return a
    first, one = count == 0, many == 1
    total = count + many
    start = np.where(first, other, base) if np.any(first) else base
    if np.all(one):  # elements
        apart = (other - start) - rest
        moved = apart * (many / total)
        return start, rest + moved, total, squares + (apart - moved) * apart
    apart = (other - start) - (rest - its_rest)
    moved = apart * (many / total)
    mean = rest + moved
    weighed = moved * count
    if np.any(one):
        weighed = np.where(one, apart - moved, weighed)
    summed = (squares + its) + weighed * apart
    whole = start + mean
    low = mean - (whole - start)
    again = (many > 2) & ~first
    if np.all(again):
        return whole, low, total, summed
    keep = many == 0
    return (
        np.where(again, whole, start),
        np.where(keep, rest, np.where(again, low, mean)),
        total,
        np.where(keep, squares, summed),
    )
