"""C++ of the functions of complex numbers; arithmetic and order are in lower/numbers.py.

The special values are those of C99, Annex G, which NumPy follows by way of the C library.
"""

from __future__ import annotations

SIGN = """
// x / |x|; of an infinity the direction, NaN where there is none.
template <typename F> __device__ __forceinline__ itf_complex<F> itf_sign(itf_complex<F> a) {
  // A part that adds nothing must not make the size of the other one round to infinity.
  const F x = fabs(a.re), y = fabs(a.im), most = x > y ? x : y, least = x > y ? y : x;
  const F size = least < most * F(1e-18) ? most : hypot(x, y);
  if (size != size) return {size, size};
  if (size - size != 0) {
    if (a.re - a.re == 0) return {F(0), a.im > 0 ? F(1) : F(-1)};
    if (a.im - a.im == 0) return {a.re > 0 ? F(1) : F(-1), F(0)};
    return {size - size, size - size};
  }
  if (size == 0) return {F(0), F(0)};
  return {itf_over(a.re, size), itf_over(a.im, size)};
}
"""

RECIPROCAL = """
template <typename F> __device__ __forceinline__ itf_complex<F> itf_reciprocal(itf_complex<F> a) {
  if (fabs(a.im) <= fabs(a.re)) {
    const F ratio = itf_over(a.im, a.re);
    const F size = itf_plus(a.re, itf_times(a.im, ratio));
    return {itf_over(F(1), size), itf_over(-ratio, size)};
  }
  const F ratio = itf_over(a.re, a.im);
  const F size = itf_plus(itf_times(a.re, ratio), a.im);
  return {itf_over(ratio, size), itf_over(F(-1), size)};
}
"""

EXP = """
// exp(x) cos(y), exp(x) sin(y); in two factors where exp(x) alone would overflow.
template <typename F> __device__ __forceinline__ itf_complex<F> itf_exp(itf_complex<F> z) {
  if (z.im == 0) return {exp(z.re), z.im};
  if (z.im - z.im != 0) {
    if (z.re - z.re == 0 || z.re != z.re) return {z.im - z.im, z.im - z.im};
    return z.re < 0 ? itf_complex<F>{F(0), F(0)} : itf_complex<F>{z.re, z.im - z.im};
  }
  if (z.re != z.re) return {z.re, z.re};
  const F half = z.re > 80 && z.re - z.re == 0 ? z.re / 2 : F(0);
  const F one = half != 0 ? exp(half) : F(1), size = exp(z.re - half);
  const F c = size * cos(z.im), s = size * sin(z.im);
  return {c * one, s * one};
}
"""

LOG = """
// log |z|, without loss where |z| is near 1 or overflows or underflows.
template <typename F> __device__ __forceinline__ F itf_log_size(itf_complex<F> z) {
  F x = fabs(z.re), y = fabs(z.im);
  if (x < y) {
    const F swap = x;
    x = y;
    y = swap;
  }
  if (x > F(0.5) && x < F(1.5)) return log1p((x - 1) * (x + 1) + y * y) / 2;
  const bool tiny = x < F(1e-15) && x > 0;
  return tiny ? log(hypot(x * F(1e30), y * F(1e30))) - log(F(1e30))
              : x > F(1e30) && x - x == 0 ? log(hypot(x / 2, y / 2)) + log(F(2)) : log(hypot(x, y));
}
template <typename F> __device__ __forceinline__ itf_complex<F> itf_log(itf_complex<F> z) {
  return {itf_log_size(z), atan2(z.im, z.re)};
}
template <typename F> __device__ __forceinline__ itf_complex<F> itf_scaled(itf_complex<F> z, F by) {
  return {z.re * by, z.im * by};
}
"""

EXPM1 = """
template <typename F> __device__ __forceinline__ itf_complex<F> itf_expm1(itf_complex<F> z) {
  const F s = sin(z.im / 2);
  return {expm1(z.re) * cos(z.im) - 2 * s * s, exp(z.re) * sin(z.im)};
}
"""

LOG1P = """
// Near zero |1 + z| is 1 and its logarithm would be lost.
template <typename F> __device__ __forceinline__ itf_complex<F> itf_log1p(itf_complex<F> z) {
  const itf_complex<F> sum = {z.re + 1, z.im};
  const bool small = fabs(z.re) < F(0.5) && fabs(z.im) < F(0.5);
  const F size = small ? log1p(z.re * (2 + z.re) + z.im * z.im) / 2 : itf_log_size(sum);
  return {size, atan2(sum.im, sum.re)};
}
"""

SQRT = """
// sqrt((|x| + |z|) / 2) is the part that loses nothing; the other is y over twice that. (FreeBSD's
// s_csqrt.c has the special values.)
template <typename F> __device__ __forceinline__ itf_complex<F> itf_sqrt(itf_complex<F> z) {
  const F x = z.re, y = z.im;
  if (x == 0 && y == 0) return {F(0), y};
  if (y == y && y - y != 0) return {fabs(y), y};
  if (x != x) return {x, x};
  if (x - x != 0) {
    if (x < 0) return {fabs(y - y), copysign(x, y)};
    return {x, copysign(y - y, y)};
  }
  F a = x, b = y, scale = 1;
  const F size = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
  if (size > F(1e37)) {
    a /= 16, b /= 16, scale = 4;
  } else if (size < F(1e-30)) {
    const F up = F(1.2676506002282294e30);  // 2^100; twice for a double's least
    a *= up, b *= up, scale = F(8.8817841970012523e-16);
    if (sizeof(F) == 8 && size < F(1e-270)) a *= up, b *= up, scale *= F(8.8817841970012523e-16);
  }
  const F t = sqrt((fabs(a) + hypot(a, b)) / 2);
  if (a >= 0) return {t * scale, b / (2 * t) * scale};
  return {fabs(b) / (2 * t) * scale, copysign(t, b) * scale};
}
"""

HYPERBOLIC = """
// After FreeBSD's s_ccosh.c, s_csinh.c and (W. Kahan's) s_ctanh.c.
template <typename F> __device__ __forceinline__ itf_complex<F> itf_cosh(itf_complex<F> z) {
  const F x = z.re, y = z.im;
  if (x - x == 0 && y - y == 0) {
    if (y == 0) return {cosh(x), x * y};
    if (fabs(x) < 80) return {cosh(x) * cos(y), sinh(x) * sin(y)};
    const F h = exp(fabs(x) / 2);
    return {h / 2 * cos(y) * h, copysign(h / 2, x) * sin(y) * h};
  }
  if (x == 0) return {y - y, copysign(F(0), x * (y - y))};
  if (y == 0) return {x * x, copysign(F(0), x) * y};
  if (x - x == 0) return {y - y, x * (y - y)};
  if (x == x) return y - y == 0 ? itf_complex<F>{x * x * cos(y), x * sin(y)}
                                : itf_complex<F>{x * x, x * (y - y)};
  return {(x * x) * (y - y), (x + x) * (y - y)};
}
template <typename F> __device__ __forceinline__ itf_complex<F> itf_sinh(itf_complex<F> z) {
  const F x = z.re, y = z.im;
  if (x - x == 0 && y - y == 0) {
    if (y == 0) return {sinh(x), y};
    if (fabs(x) < 80) return {sinh(x) * cos(y), cosh(x) * sin(y)};
    const F h = exp(fabs(x) / 2);
    return {copysign(h / 2, x) * cos(y) * h, h / 2 * sin(y) * h};
  }
  if (x == 0) return {copysign(F(0), x * (y - y)), y - y};
  if (y == 0) return {x == x ? x : x + x, y};
  if (x - x == 0) return {y - y, x * (y - y)};
  if (x == x) return y - y == 0 ? itf_complex<F>{x * cos(y), fabs(x) * sin(y)}
                                : itf_complex<F>{x * x, x * (y - y)};
  return {(x * x) * (y - y), (x + x) * (y - y)};
}
template <typename F> __device__ __forceinline__ itf_complex<F> itf_tanh(itf_complex<F> z) {
  const F x = z.re, y = z.im;
  if (x - x != 0) {
    if (x != x) return {x, y == 0 ? y : x * y};
    return {copysign(F(1), x), copysign(F(0), y - y == 0 ? sin(y) * cos(y) : y)};
  }
  if (y - y != 0) return {x == 0 ? x : y - y, y - y};
  if (fabs(x) >= (sizeof(F) == 8 ? 22 : 11)) {
    const F e = exp(-fabs(x));
    return {copysign(F(1), x), 4 * sin(y) * cos(y) * e * e};
  }
  const F t = tan(y), beta = 1 + t * t, s = sinh(x), rho = sqrt(1 + s * s);
  if (t - t != 0) return {rho / s, 1 / t};
  const F below = 1 + beta * s * s;
  return {beta * rho * s / below, t / below};
}
// Of i z, and a result divided by i: what turns a hyperbolic function into a circular one.
template <typename F> __device__ __forceinline__ itf_complex<F> itf_turn(itf_complex<F> z) {
  return {-z.im, z.re};
}
template <typename F> __device__ __forceinline__ itf_complex<F> itf_turn_back(itf_complex<F> z) {
  return {z.im, -z.re};
}
"""

INVERSE = """
// W. Kahan, Branch Cuts for Complex Elementary Functions (1987). complex64 computes in double.
// Beyond `1 / epsilon` all of them are logarithms of 2 z.
__device__ __forceinline__ bool itf_far(itf_complex<double> z) {
  return fabs(z.re) > 1e8 || fabs(z.im) > 1e8;
}
__device__ __forceinline__ double itf_cross(itf_complex<double> a, itf_complex<double> b) {
  return a.re * b.im - a.im * b.re;  // the imaginary part of conj(a) b
}
__device__ __forceinline__ double itf_dot(itf_complex<double> a, itf_complex<double> b) {
  return a.re * b.re + a.im * b.im;  // the real part of conj(a) b
}
__device__ __forceinline__ itf_complex<double> itf_asin(itf_complex<double> z) {
  if (itf_nan(z)) {
    if (z.re == 0) return z;
    const bool infinite = z.re == z.re ? z.re - z.re != 0 : z.im == z.im && z.im - z.im != 0;
    const double nan = z.re + z.im;
    return infinite ? itf_complex<double>{nan - nan, z.re == z.re ? z.re : z.im}
                    : itf_complex<double>{nan, nan};
  }
  if (itf_far(z)) {
    const double size = itf_log_size(z) + log(2.0);
    return {copysign(atan2(fabs(z.re), fabs(z.im)), z.re), copysign(size, z.im)};
  }
  const itf_complex<double> below = itf_sqrt(itf_complex<double>{1 - z.re, -z.im});
  const itf_complex<double> above = itf_sqrt(itf_complex<double>{1 + z.re, z.im});
  const double re = atan2(z.re, below.re * above.re - below.im * above.im);
  return {re, copysign(asinh(itf_cross(below, above)), z.im)};
}
__device__ __forceinline__ itf_complex<double> itf_asinh(itf_complex<double> z) {
  const itf_complex<double> turned = itf_asin(itf_complex<double>{-z.im, z.re});
  return {turned.im, -turned.re};
}
__device__ __forceinline__ itf_complex<double> itf_acos(itf_complex<double> z) {
  if (itf_nan(z)) {
    if (z.re == 0) return {1.5707963267948966, -z.im};
    const bool infinite = z.re == z.re ? z.re - z.re != 0 : z.im == z.im && z.im - z.im != 0;
    const double nan = z.re + z.im;
    return infinite ? itf_complex<double>{nan - nan, z.re == z.re ? -z.re : -z.im}
                    : itf_complex<double>{nan, nan};
  }
  if (itf_far(z)) {
    return {atan2(fabs(z.im), z.re), copysign(itf_log_size(z) + log(2.0), -z.im)};
  }
  const itf_complex<double> below = itf_sqrt(itf_complex<double>{1 - z.re, -z.im});
  const itf_complex<double> above = itf_sqrt(itf_complex<double>{1 + z.re, z.im});
  return {2 * atan2(below.re, above.re), copysign(asinh(itf_cross(above, below)), -z.im)};
}
__device__ __forceinline__ itf_complex<double> itf_acosh(itf_complex<double> z) {
  if (itf_nan(z)) {
    const itf_complex<double> a = itf_acos(z);
    return z.re == 0 ? itf_complex<double>{z.im, a.re} : itf_complex<double>{fabs(a.im), a.re};
  }
  if (itf_far(z)) return {itf_log_size(z) + log(2.0), atan2(z.im, z.re)};
  const itf_complex<double> below = itf_sqrt(itf_complex<double>{z.re - 1, z.im});
  const itf_complex<double> above = itf_sqrt(itf_complex<double>{z.re + 1, z.im});
  return {asinh(itf_dot(below, above)), 2 * atan2(below.im, above.re)};
}
__device__ __forceinline__ itf_complex<double> itf_atanh(itf_complex<double> z) {
  const double x = fabs(z.re), y = z.im, size = hypot(x, y);
  const double quarter = copysign(1.5707963267948966, y);
  if (itf_nan(z)) {
    if (x == 0) return {z.re, y};
    if (x - x != 0 && x == x) return {copysign(0.0, z.re), y};
    if (y == y && y - y != 0) return {copysign(0.0, z.re), quarter};
    return {x + y, x + y};
  }
  if (size > 1e150) {  // 1 / z, whose imaginary part vanishes beside pi / 2
    const double far = x / 2 / size / (size / 2);
    return {copysign(size - size == 0 ? far : 0.0, z.re), quarter};
  }
  if (x == 1 && y == 0) return {1 / (z.re - z.re) * z.re, y};
  const double re = log1p(4 * x / ((1 - x) * (1 - x) + y * y)) / 4;
  const double im = atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2;
  return {copysign(re, z.re), y == 0 && x <= 1 ? y : im};
}
__device__ __forceinline__ itf_complex<double> itf_atan(itf_complex<double> z) {
  const itf_complex<double> turned = itf_atanh(itf_complex<double>{-z.im, z.re});
  return {turned.im, -turned.re};
}
"""

NARROW = """
template <typename F> __device__ __forceinline__ itf_complex<double> itf_widen(itf_complex<F> z) {
  return {(double)z.re, (double)z.im};
}
template <typename F> __device__ __forceinline__ itf_complex<F> itf_narrow(itf_complex<double> z) {
  return {(F)z.re, (F)z.im};
}
"""

POWER = """
// NumPy multiplies for small whole exponents; else exp(b log(a)).
template <typename F>
__device__ __forceinline__ itf_complex<F> itf_power(itf_complex<F> a, itf_complex<F> b) {
  if (b.re == 0 && b.im == 0) return {F(1), F(0)};
  if (a.re == 0 && a.im == 0) {
    if (b.re > 0) return {F(0), F(0)};
    const F nan = (a.re - a.re) / (a.im - a.im);
    return {nan, nan};
  }
  if (b.im == 0 && fabs(b.re) < 100 && b.re == floor(b.re)) {
    int n = (int)fabs(b.re);
    if (b.re == 1) return a;
    if (b.re == 2) return itf_times(a, a);
    if (b.re == 3) return itf_times(a, itf_times(a, a));
    itf_complex<F> total = {F(1), F(0)}, p = a;
    while (true) {
      if (n & 1) total = itf_times(total, p);
      n >>= 1;
      if (n == 0) break;
      p = itf_times(p, p);
    }
    return b.re < 0 ? itf_over(itf_complex<F>{F(1), F(0)}, total) : total;
  }
  return itf_exp(itf_times(b, itf_log(a)));
}
"""

FUNCTIONS: dict[str, tuple[str, tuple[str, ...], int]] = {
    "exp": ("itf_exp({0})", (EXP,), 6),
    "exp2": ("itf_exp(itf_scaled({0}, ({F})0.6931471805599453))", (EXP, LOG), 40),
    "expm1": ("itf_expm1({0})", (EXPM1,), 8),
    "log": ("itf_log({0})", (LOG,), 6),
    "log2": ("itf_scaled(itf_log({0}), ({F})1.4426950408889634)", (LOG,), 8),
    "log10": ("itf_scaled(itf_log({0}), ({F})0.4342944819032518)", (LOG,), 8),
    "log1p": ("itf_log1p({0})", (LOG, LOG1P), 8),
    "sin": ("itf_turn_back(itf_sinh(itf_turn({0})))", (HYPERBOLIC,), 8),
    "cos": ("itf_cosh(itf_turn({0}))", (HYPERBOLIC,), 8),
    "tan": ("itf_turn_back(itf_tanh(itf_turn({0})))", (HYPERBOLIC,), 12),
    "sinh": ("itf_sinh({0})", (HYPERBOLIC,), 8),
    "cosh": ("itf_cosh({0})", (HYPERBOLIC,), 8),
    "tanh": ("itf_tanh({0})", (HYPERBOLIC,), 12),
} | {
    name: (f"itf_narrow<{{F}}>(itf_{c}(itf_widen({{0}})))",
           (SQRT, LOG, NARROW, INVERSE), 12)
    for name, c in (("arcsin", "asin"), ("arccos", "acos"), ("arctan", "atan"),
                    ("arcsinh", "asinh"), ("arccosh", "acosh"), ("arctanh", "atanh"))
}  # fmt: skip
"""By row: template, helpers, and the largest error in units in the last place of the magnitude."""
