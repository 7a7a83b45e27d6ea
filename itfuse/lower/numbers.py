"""The C++ types of float16, bfloat16 and complex numbers, which need no header.

They are written ahead of a stage's functions when the stage has such values. On the host (the tests
run generated code there) `itf_host_*` of the tests' shim stand in for the two PTX instructions.
"""

from __future__ import annotations

from collections.abc import Iterable

from itfuse.dtypes import DTYPES

_HALF = """\
// float16: every operation computes in float and is rounded here, as NumPy does.
struct itf_half {
  unsigned short bits;
  itf_half() = default;
  __device__ __forceinline__ explicit itf_half(float x) {
#ifdef __CUDACC__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    bits = itf_host_half(x);
#endif
  }
  __device__ __forceinline__ operator float() const {
    float x;
#ifdef __CUDACC__
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
#else
    x = itf_host_float(bits);
#endif
    return x;
  }
};
// Rounded once: by way of float a double would be rounded twice.
__device__ __forceinline__ itf_half itf_half_of(double x) {
  itf_half h;
#ifdef __CUDACC__
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h.bits) : "d"(x));
#else
  h.bits = itf_host_half(x);
#endif
  return h;
}
__device__ __forceinline__ itf_half itf_from_bits(itf_half, unsigned short bits) {
  itf_half h;
  h.bits = bits;
  return h;
}
"""

_BFLOAT = """\
// bfloat16: the upper half of a float. Every operation computes in float and is rounded here.
struct itf_bfloat {
  unsigned short bits;
  itf_bfloat() = default;
  __device__ __forceinline__ explicit itf_bfloat(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned pair;  // the conversion of one number alone has a quarter of the rate
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    bits = (unsigned short)pair;
#else
    const unsigned whole = __float_as_uint(x);
    // To nearest, ties to even; a NaN must not round to infinity.
    bits = x != x ? (unsigned short)(whole >> 16 | 0x40)
                  : (unsigned short)((whole + 0x7fff + (whole >> 16 & 1)) >> 16);
#endif
  }
  __device__ __forceinline__ operator float() const {
    return __uint_as_float((unsigned)bits << 16);
  }
};
// Rounded once: what float cannot hold makes its last bit odd, which is beyond every tie.
__device__ __forceinline__ float itf_float_to_odd(double x) {
  const float near = (float)x;
  if ((double)near == x || x != x) return near;
  unsigned bits = __float_as_uint(near);
  const double error = x - (double)near;
  if ((error > 0) != (x > 0)) --bits;  // towards zero
  return __uint_as_float(bits | 1);
}
__device__ __forceinline__ itf_bfloat itf_bfloat_of(double x) {
  return itf_bfloat(itf_float_to_odd(x));
}
__device__ __forceinline__ itf_bfloat itf_from_bits(itf_bfloat, unsigned short bits) {
  itf_bfloat h;
  h.bits = bits;
  return h;
}
"""

_COMPLEX = """\
// Complex numbers with NumPy's arithmetic: each product and sum is rounded.
template <typename F> struct itf_complex {
  F re, im;
};
__device__ __forceinline__ float itf_plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float itf_minus(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float itf_times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float itf_over(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double itf_plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double itf_minus(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ double itf_times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double itf_over(double a, double b) { return __ddiv_rn(a, b); }
#define ITF_COMPLEX template <typename F> __device__ __forceinline__
ITF_COMPLEX itf_complex<F> itf_plus(itf_complex<F> a, itf_complex<F> b) {
  return {itf_plus(a.re, b.re), itf_plus(a.im, b.im)};
}
ITF_COMPLEX itf_complex<F> itf_minus(itf_complex<F> a, itf_complex<F> b) {
  return {itf_minus(a.re, b.re), itf_minus(a.im, b.im)};
}
ITF_COMPLEX itf_complex<F> itf_times(itf_complex<F> a, itf_complex<F> b) {
  return {itf_minus(itf_times(a.re, b.re), itf_times(a.im, b.im)),
          itf_plus(itf_times(a.re, b.im), itf_times(a.im, b.re))};
}
// R. L. Smith, Algorithm 116 (1962), as NumPy writes it.
ITF_COMPLEX itf_complex<F> itf_over(itf_complex<F> a, itf_complex<F> b) {
  const F re = fabs(b.re), im = fabs(b.im);
  if (re >= im) {
    if (re == 0 && im == 0) return {itf_over(a.re, re), itf_over(a.im, re)};
    const F ratio = itf_over(b.im, b.re);
    const F scale = itf_over(F(1), itf_plus(b.re, itf_times(b.im, ratio)));
    return {itf_times(itf_plus(a.re, itf_times(a.im, ratio)), scale),
            itf_times(itf_minus(a.im, itf_times(a.re, ratio)), scale)};
  }
  const F ratio = itf_over(b.re, b.im);
  const F scale = itf_over(F(1), itf_plus(b.im, itf_times(b.re, ratio)));
  return {itf_times(itf_plus(itf_times(a.re, ratio), a.im), scale),
          itf_times(itf_minus(itf_times(a.im, ratio), a.re), scale)};
}
ITF_COMPLEX itf_complex<F> operator-(itf_complex<F> a) { return {-a.re, -a.im}; }
ITF_COMPLEX bool itf_nan(itf_complex<F> a) { return a.re != a.re || a.im != a.im; }
ITF_COMPLEX bool itf_true(itf_complex<F> a) { return a.re != 0 || a.im != 0; }
ITF_COMPLEX bool operator==(itf_complex<F> a, itf_complex<F> b) {
  return a.re == b.re && a.im == b.im;
}
ITF_COMPLEX bool operator!=(itf_complex<F> a, itf_complex<F> b) { return !(a == b); }
// NumPy's order: by real part, then by imaginary part.
ITF_COMPLEX bool operator<(itf_complex<F> a, itf_complex<F> b) {
  return (a.re < b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im < b.im);
}
ITF_COMPLEX bool operator<=(itf_complex<F> a, itf_complex<F> b) {
  return (a.re < b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im <= b.im);
}
ITF_COMPLEX bool operator>(itf_complex<F> a, itf_complex<F> b) { return b < a; }
ITF_COMPLEX bool operator>=(itf_complex<F> a, itf_complex<F> b) { return b <= a; }
"""


def definitions(names: Iterable[str]) -> str:
    """Write the C++ types that values of these dtypes need."""
    used = {DTYPES[name].cpp.partition("<")[0] for name in names}
    texts = {"itf_half": _HALF, "itf_bfloat": _BFLOAT, "itf_complex": _COMPLEX}
    return "".join(text for name, text in texts.items() if name in used)
