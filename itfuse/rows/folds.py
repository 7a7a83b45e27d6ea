"""Reductions whose accumulator has several fields, and the neutral elements of the extremes."""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse import dtypes, reference
from itfuse.rows.op import FOLD, Op


def least(dtype: np.dtype[Any]) -> Any:
    """Return what is below every value of a dtype."""
    if dtypes.kind(dtype) == "c":
        return complex(-np.inf, -np.inf)
    if dtypes.kind(dtype) == "f":
        return -np.inf
    return False if dtype.kind == "b" else np.iinfo(dtype).min


def greatest(dtype: np.dtype[Any]) -> Any:
    """Return what is above every value of a dtype."""
    if dtypes.kind(dtype) == "c":
        return complex(np.inf, np.inf)
    if dtypes.kind(dtype) == "f":
        return np.inf
    return True if dtype.kind == "b" else np.iinfo(dtype).max


FOLDS: dict[str, Op] = {}


def _fold(
    name: str, doc: str, fields: Any, merge: Any, pick: int, *, cpp: str, helper: str,
    of_nothing: bool = True,
) -> None:  # fmt: skip
    FOLDS[name] = Op(name, 0, FOLD, doc, combine=name, fields=fields, merge=merge, pick=pick,
                     cpp={"merge": cpp}, helper={"*": (helper,)},
                     of_nothing=of_nothing)  # fmt: skip


_INT64 = np.dtype(np.int64)
for _name, _sign, _worst in (("argmax", ">", least), ("argmin", "<", greatest)):
    _fold(
        _name, "Position of the first extreme element; the first NaN, if any is.",
        lambda dtype, worst=_worst: (
            (dtype, dtype.type(worst(dtype))), (_INT64, np.int64(np.iinfo(np.int64).max))
        ),
        getattr(reference, _name), 1, of_nothing=False,
        cpp=f"itf_{_name}({{a}}, {{b}})", helper=f"""
// NaN before numbers, then the {'greater' if _sign == '>' else 'lesser'} value, then the earlier.
template <typename T>
__device__ __forceinline__ void itf_{_name}(T& value, long long& at, T other, long long there) {{
  const bool nan = value != value, its = other != other;
  const bool better = its ? !nan : !nan && other {_sign} value;
  const bool equal = (nan && its) || other == value;
  if (better || (equal && there < at)) {{
    value = other;
    at = there;
  }}
}}
""")  # fmt: skip
# Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
# variances" (1979). The mean is base + rest, since one float of data far from zero would be off by
# more than their spread allows. An element is (x, 0, 1, x - x): infinity and NaN give NaN.
_fold(
    "squared_deviations", "Sum of the squared differences from the mean; how far the mean is from "
    "zero adds nothing to the rounding (docs/determinism.md).",
    lambda dtype: ((dtype, dtype.type(0)),) * 4,
    reference.merge_moments, 3, cpp="itf_moments({a}, {b})", helper="""
__device__ __forceinline__ float itf_moment_plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double itf_moment_plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float itf_moment_times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double itf_moment_times(double a, double b) { return __dmul_rn(a, b); }
// a / b for counts, 0 <= a <= b: the compiler's own steps of a division, without its branch for
// numbers near the ends of the range, before which it would not send loads on their way.
__device__ __forceinline__ float itf_share(float a, float b) {
#ifdef __CUDA_ARCH__
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  r = __fmaf_rn(r, __fmaf_rn(-b, r, 1.0f), r);
  const float q = a * r;
  return __fmaf_rn(r, __fmaf_rn(-b, q, a), q);
#else
  return __fdiv_rn(a, b);
#endif
}
__device__ __forceinline__ double itf_share(double a, double b) {
#ifdef __CUDA_ARCH__
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(b));
  const double e = __fma_rn(-b, r, 1.0);
  r = __fma_rn(r, __fma_rn(e, e, e), r);
  r = __fma_rn(r, __fma_rn(-b, r, 1.0), r);
  const double q = a * r;
  return __fma_rn(r, __fma_rn(-b, q, a), q);
#else
  return __ddiv_rn(a, b);
#endif
}
// Mean (base + rest), count and squared deviations of two parts. A part without elements changes
// nothing. The compiler knows `many` of an element, and then leaves out all that it does not need.
template <typename T>
__device__ __forceinline__ void itf_moments(
    T& base, T& rest, T& count, T& squares, T other, T its_rest, T many, T its) {
  const bool first = count == T(0), keep = many == T(0), one = many == T(1);
  const T all = itf_moment_plus(count, many), share = itf_share(many, all);
  const T from = first ? other : base;
  const T past = one ? rest : itf_moment_plus(rest, -its_rest);
  const T apart = itf_moment_plus(itf_moment_plus(other, -from), -past);
  const T moved = itf_moment_times(apart, share), mean = itf_moment_plus(rest, moved);
  const T left = one ? itf_moment_plus(apart, -moved) : itf_moment_times(moved, count);
  const T both = one ? squares : itf_moment_plus(squares, its);
  const T sum = itf_moment_plus(both, itf_moment_times(left, apart));
  // Merged with more than two: the rounded mean, and by a fast two-sum what it lacks.
  const T whole = itf_moment_plus(from, mean), gone = itf_moment_plus(whole, -from);
  const T low = itf_moment_plus(mean, -gone);
  const bool again = many > T(2) && !first;
  base = again ? whole : from;
  rest = keep ? rest : again ? low : mean;
  squares = keep ? squares : sum;
  count = all;
}
""")  # fmt: skip
