"""Rows of NumPy's rarer ufuncs and of special functions, as data that ops.py enters in the table.

Each row holds the arguments of an elementwise `Op`; ops.py explains them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse import dtypes, reference, special
from itfuse.rows import complex_cpp
from itfuse.rows.folds import greatest, least

NEXT = """
// The neighbour of a towards b: by its bits, whose order is that of the numbers.
template <typename H> __device__ __forceinline__ H itf_next(H like, float a, float b) {
  const unsigned short bits = H(a).bits;
  if (a != a || b != b) return H(a + b);
  if (a == b) return H(a);
  if (a == 0) return itf_from_bits(like, (unsigned short)(b < 0 ? 0x8001 : 1));
  return itf_from_bits(like, (unsigned short)(((a < b) == (a > 0)) ? bits + 1 : bits - 1));
}
"""

SPACING = """
template <typename F> __device__ __forceinline__ F itf_spacing(F a) {
  const F infinity = (F)__int_as_float(0x7f800000);
  return a - a != 0 ? a - a : nextafter(a, a < 0 ? -infinity : infinity) - a;
}
"""
HALF_SPACING = """
// NumPy's float16 has a positive spacing, below a negative power of two the lesser one.
__device__ __forceinline__ itf_half itf_half_spacing(float a) {
  const unsigned bits = itf_half(a).bits, exponent = bits & 0x7c00;
  if (exponent == 0x7c00) return itf_half(a - a);
  if (bits == 0x7bff) return itf_half(a * a);
  const unsigned less = (bits & 0x8000) != 0 && (bits & 0x3ff) == 0 ? 1 : 0;
  const unsigned below = 0x2800 + (less << 10);
  if (exponent > below) return itf_from_bits(itf_half(), (unsigned short)(exponent - below));
  if (exponent <= 0x400) return itf_from_bits(itf_half(), 1);
  return itf_from_bits(itf_half(), (unsigned short)(1u << ((exponent >> 10) - 1 - less)));
}
"""

LOGADDEXP = """
template <typename F> __device__ __forceinline__ F itf_logaddexp(F a, F b) {
  if (a == b) return a + F(0.693147180559945309417);
  const F d = a - b;
  return d > 0 ? a + log1p(exp(-d)) : d <= 0 ? b + log1p(exp(d)) : d;
}
"""
LOGADDEXP2 = """
template <typename F> __device__ __forceinline__ F itf_logaddexp2(F a, F b) {
  if (a == b) return a + F(1);
  const F d = a - b, log2_e = F(1.442695040888963407360);
  return d > 0 ? a + log2_e * log1p(exp2(-d)) : d <= 0 ? b + log2_e * log1p(exp2(d)) : d;
}
"""

GCD = """
template <typename T> __device__ __forceinline__ unsigned long long itf_size(T a) {
  return a < 0 ? 0ull - (unsigned long long)a : (unsigned long long)a;
}
template <typename T> __device__ __forceinline__ unsigned long long itf_gcd(T x, T y) {
  unsigned long long a = itf_size(x), b = itf_size(y);
  while (a != 0) {
    const unsigned long long rest = b % a;
    b = a;
    a = rest;
  }
  return b;
}
"""
LCM = """
template <typename T> __device__ __forceinline__ unsigned long long itf_lcm(T x, T y) {
  const unsigned long long divisor = itf_gcd(x, y);
  return divisor == 0 ? 0 : itf_size(x) / divisor * itf_size(y);
}
"""

FREXP = """
template <typename F> __device__ __forceinline__ F itf_frexp(F a) {
  int exponent;
  return frexp(a, &exponent);
}
template <typename F> __device__ __forceinline__ int itf_exponent(F a) {
  int exponent = 0;
  if (a - a == 0) frexp(a, &exponent);
  return exponent;
}
"""

LDEXP = """
// Any exponent beyond these gives zero or infinity.
__device__ __forceinline__ int itf_exponent_of(long long n) {
  return n < -5000 ? -5000 : n > 5000 ? 5000 : (int)n;
}
"""


def real_floats(*operands: Any) -> tuple[tuple[Any, ...], Any]:
    """Dtype rule of a function of real numbers: as NumPy's `cbrt` and `arctan2`."""
    asked = {1: np.cbrt, 2: np.arctan2}[len(operands)]
    try:
        *wanted, result = asked.resolve_dtypes((*operands, None))
    except TypeError:
        raise TypeError("the function is of real numbers only") from None
    return tuple(wanted), result


def _wide_floats(x: Any) -> tuple[tuple[Any, ...], Any]:
    """Dtype rule of NumPy's `i0`: integers compute in float64."""
    whole = x is int or (not isinstance(x, type) and np.dtype(x).kind in "biu")
    return real_floats(np.dtype(np.float64) if whole else x)


def _part(x: Any) -> tuple[tuple[Any, ...], Any]:
    dtype = np.result_type(x(0)) if isinstance(x, type) else np.dtype(x)
    part = dtypes.DTYPES[dtype.name].part if dtypes.supported(dtype) else ""
    return (dtype,), np.dtype(part) if part else dtype


def _pieces(which: int) -> Any:
    def rule(x: Any) -> tuple[tuple[Any, ...], Any]:
        wanted, *results = np.frexp.resolve_dtypes((x, None, None))
        return (wanted,), results[which]

    return rule


def _passed_over(worst: Any) -> Any:
    """Return the neutral element of `fmax` or `fmin`: NaN, or of integers the worst one."""
    return lambda dtype: np.nan if dtypes.kind(dtype) in "fc" else worst(dtype)


_MAX = "({0} > {1} || {1} != {1}) ? {0} : {1}"
_MIN = "({0} < {1} || {1} != {1}) ? {0} : {1}"

UFUNCS: tuple[dict[str, Any], ...] = (
    dict(name="reciprocal", arity=1, doc="1 / x; integers divide as integers.",
         numpy=np.reciprocal,
         cpp={"f": "__{p}div_rn(({A})1, {0})", "c": "itf_reciprocal({0})", "b": "{0}",
              # Of zero: what C leaves open is what NumPy's machines give.
              "i": "{0} == 0 ? ({T})(({W})1 << (sizeof({W}) * 8 - 1)) : {0} == 1 ? ({T})1 : "
                   "{0} == -1 ? ({T})-1 : ({T})0", "u": "({T})({0} == 1)"},
         helper={"c": (complex_cpp.RECIPROCAL,)}),
    dict(name="fabs", arity=1, doc="Absolute value, as a float.", numpy=np.fabs,
         cpp={"f": "fabs{s}({0})"}),
    dict(name="fmax", arity=2, doc="The greater; the other where one is NaN.",
         numpy=reference.fmax, ufunc=np.fmax, numpy_c=np.fmax,
         cpp={"f": _MAX, "float16": _MAX.replace(">", ">="), "*": "{0} > {1} ? {0} : {1}",
              "c": "(itf_nan({1}) || {0} >= {1}) ? {0} : {1}"}, identity=_passed_over(least)),
    dict(name="fmin", arity=2, doc="The lesser; the other where one is NaN.",
         numpy=reference.fmin, ufunc=np.fmin, numpy_c=np.fmin,
         cpp={"f": _MIN, "float16": _MIN.replace("<", "<="), "*": "{0} < {1} ? {0} : {1}",
              "c": "(itf_nan({1}) || {0} <= {1}) ? {0} : {1}"}, identity=_passed_over(greatest)),
    dict(name="nextafter", arity=2, doc="The next number after x1 towards x2.",
         numpy=np.nextafter,
         cpp={"f": "nextafter{s}({0}, {1})", "float16": "itf_next(itf_half(), {0}, {1})",
              "bfloat16": "{0} == {1} ? {1} : (float)itf_next(itf_bfloat(), {0}, {1})"},
         helper={"float16": (NEXT,), "bfloat16": (NEXT,)}),
    dict(name="spacing", arity=1, doc="Distance to the next number away from zero.",
         numpy=np.spacing,
         cpp={"f": "itf_spacing({0})", "float16": "itf_half_spacing({0})",
              "bfloat16": "{0} - {0} != 0 ? {0} - {0} : (float)itf_next(itf_bfloat(), {0}, "
                          "copysignf(__int_as_float(0x7f800000), {0})) - {0}"},
         helper={"f": (SPACING,), "float16": (HALF_SPACING,), "bfloat16": (NEXT,)}),
    dict(name="logaddexp", arity=2, doc="log(exp(x1) + exp(x2)), without overflow.",
         numpy=np.logaddexp, cpp={"f": "itf_logaddexp({0}, {1})"}, helper=LOGADDEXP, ulp=4,
         scale=1.0),
    dict(name="logaddexp2", arity=2, doc="log2(2**x1 + 2**x2), without overflow.",
         numpy=np.logaddexp2, cpp={"f": "itf_logaddexp2({0}, {1})"}, helper=LOGADDEXP2, ulp=4,
         scale=1.0),
    dict(name="heaviside", arity=2, doc="0 below zero, 1 above, the second operand at zero.",
         numpy=np.heaviside,
         cpp={"f": "{0} != {0} ? {0} : {0} == 0 ? {1} : {0} < 0 ? ({T})0 : ({T})1"}),
    dict(name="gcd", arity=2, doc="Greatest common divisor.", numpy=np.gcd,
         cpp={"i": "({T})itf_gcd({0}, {1})", "u": "({T})itf_gcd({0}, {1})"}, helper=GCD),
    dict(name="lcm", arity=2, doc="Least common multiple; it wraps.", numpy=np.lcm,
         cpp={"i": "({T})itf_lcm({0}, {1})", "u": "({T})itf_lcm({0}, {1})"},
         identity=lambda dtype: 1,
         helper={"*": (GCD, LCM)}),
    dict(name="ldexp", arity=2, doc="x1 times 2 to the power of the integer x2.",
         numpy=np.ldexp, cpp={"fi": "ldexp{s}({0}, itf_exponent_of({1}))"}, helper=LDEXP),
    dict(name="float_power", arity=2, doc="Power in float64 or complex128.",
         numpy=np.float_power, cpp={"f": "pow({0}, {1})", "c": "itf_power({0}, {1})"},
         helper={"c": (complex_cpp.EXP, complex_cpp.LOG, complex_cpp.POWER)}, ulp=9, ulp_c=1000),
    dict(name="deg2rad", arity=1, doc="Degrees as radians.", numpy=np.deg2rad,
         cpp={"f": "__{p}mul_rn({0}, ({A})3.141592653589793 / ({A})180)"}, aliases=("radians",)),
    dict(name="rad2deg", arity=1, doc="Radians as degrees.", numpy=np.rad2deg,
         cpp={"f": "__{p}mul_rn({0}, ({A})180 / ({A})3.141592653589793)"}, aliases=("degrees",)),
    dict(name="bitwise_count", arity=1, doc="Number of bits set in the absolute value.",
         numpy=np.bitwise_count,
         cpp={"b": "{0}", "u": "__popcll((unsigned long long){0})",
              "i": "__popcll({0} < 0 ? 0ull - (unsigned long long){0} : (unsigned long long){0})"}),
    dict(name="conjugate", arity=1, doc="The operand with its imaginary part negated.",
         numpy=np.conjugate, cpp={"c": "{T}{{{0}.re, -{0}.im}}", "*": "{0}"}, aliases=("conj",),
         method=True),
    dict(name="real", arity=1, doc="Real part.", numpy=reference.real, result=_part,
         cpp={"c": "{0}.re", "*": "{0}"}),
    dict(name="imag", arity=1, doc="Imaginary part; zero of a real number.",
         numpy=reference.imag, result=_part, cpp={"c": "{0}.im", "*": "({T})0"}),
    dict(name="frexp_fraction", arity=1, doc="First result of `frexp`: in [0.5, 1), signed.",
         numpy=reference.frexp_fraction, result=_pieces(0), cpp={"f": "itf_frexp({0})"},
         helper=FREXP),
    dict(name="frexp_exponent", arity=1, doc="Second result of `frexp`: the power of 2.",
         numpy=reference.frexp_exponent, result=_pieces(1), cpp={"f": "itf_exponent({0})"},
         helper=FREXP),
)  # fmt: skip

_BESSEL = 22_600.0
"""CUDA's j0 and j1 of float64 have an absolute error of up to 5e-12 beyond |x| = 8 (CUDA C++
Programming Guide, mathematical functions)."""

SPECIAL: tuple[dict[str, Any], ...] = tuple(
    dict(name=name, arity=1, doc=doc, numpy=numpy, cpp={"f": cpp}, aliases=aliases,
         **({"result": real_floats} | bounds))
    for name, doc, numpy, cpp, aliases, bounds in (
        ("erf", "Error function.", reference.erf, "erf{s}({0})", (), {"ulp": 4}),
        ("erfc", "1 - erf(x), accurate where that is small.", special.erfc, "erfc{s}({0})", (),
         {"ulp": 6}),
        ("erfinv", "Inverse of erf.", special.erfinv, "erfinv{s}({0})", (), {"ulp": 6}),
        ("gamma", "Gamma function.", special.gamma, "tgamma{s}({0})", (), {"ulp": 11}),
        ("lgamma", "Logarithm of the gamma function's absolute value.", special.lgamma,
         "lgamma{s}({0})", ("gammaln",), {"ulp": 10, "scale": 1.0}),
        ("j0", "Bessel function of the first kind, order 0.", special.j0, "j0{s}({0})", (),
         {"ulp": _BESSEL, "scale": 1.0}),
        ("j1", "Bessel function of the first kind, order 1.", special.j1, "j1{s}({0})", (),
         {"ulp": _BESSEL, "scale": 1.0}),
        ("i0", "Modified Bessel function of the first kind, order 0.", special.i0,
         "cyl_bessel_i0{s}({0})", (), {"ulp": 16, "result": _wide_floats}),
    )
)  # fmt: skip
