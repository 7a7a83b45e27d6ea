"""C++ of integer and floating-point division and powers, which C++ rounds otherwise than NumPy."""

from __future__ import annotations

FLOOR_DIVIDE = """
// Python's floor division. The least integer over -1 wraps to itself, as NumPy's does.
template <typename T> __device__ __forceinline__ T itf_floor_divide(T a, T b) {
  if (b == 0) return 0;
  if (b == T(-1)) return (T)(0ull - (unsigned long long)a);
  const T q = (T)(a / b);
  return (T)(q - ((a % b != 0) && ((a < 0) != (b < 0))));
}
// The floating-point form follows CPython's float_divmod: exact remainder first, then a quotient
// that is nudged to the nearest integer.
template <typename F> __device__ __forceinline__ F itf_floor_divide_float(F a, F b) {
  if (b == F(0)) return a / b;
  F mod = fmod(a, b);
  F div = (a - mod) / b;
  if (mod != F(0) && ((b < F(0)) != (mod < F(0)))) div -= F(1);
  if (div == F(0)) return copysign(F(0), a / b);
  const F down = floor(div);
  return div - down > F(0.5) ? down + F(1) : down;
}
template <> __device__ __forceinline__ float itf_floor_divide(float a, float b) {
  return itf_floor_divide_float(a, b);
}
template <> __device__ __forceinline__ double itf_floor_divide(double a, double b) {
  return itf_floor_divide_float(a, b);
}
"""

REMAINDER = """
template <typename T> __device__ __forceinline__ T itf_remainder(T a, T b) {
  if (b == 0 || b == T(-1)) return 0;
  const T r = (T)(a % b);
  return (r != 0 && ((r < 0) != (b < 0))) ? (T)(r + b) : r;
}
template <typename F> __device__ __forceinline__ F itf_remainder_float(F a, F b) {
  const F r = fmod(a, b);
  if (b == F(0)) return r;
  if (r == F(0)) return copysign(F(0), b);
  return ((b < F(0)) != (r < F(0))) ? r + b : r;
}
"""

FMOD = """
template <typename T> __device__ __forceinline__ T itf_fmod(T a, T b) {
  return (b == 0 || b == T(-1)) ? T(0) : (T)(a % b);
}
"""

POWER = """
// Exponentiation by squaring, wrapping. A negative exponent truncates 1 / a**-b.
template <typename T> __device__ __forceinline__ T itf_power(T a, T b) {
  if (b < 0) return a == 1 ? T(1) : a == T(-1) ? (b % 2 != 0 ? T(-1) : T(1)) : T(0);
  unsigned long long base = (unsigned long long)a, result = 1;
  for (unsigned long long e = (unsigned long long)b; e != 0; e >>= 1) {
    if (e & 1) result *= base;
    base *= base;
  }
  return (T)result;
}
"""
