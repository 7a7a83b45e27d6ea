// CUDA's words for a host compiler: generated device functions become plain C++ functions.
//
// It shows what generated code means, not how a GPU's library rounds: functions such as expf are the
// host's own, a conversion to an integer that does not fit is the host's, and the fast functions
// (__expf, ...) are the accurate ones. Compile with -ffp-contract=off: then each operation below
// rounds once, as the _rn intrinsics promise.
#pragma once

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// After the headers, because they use some of these words themselves.
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(x) ((void)0)
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
#define __fdividef __fdiv_rn
#define fdividef __fdiv_rn

// ---- arithmetic that is never contracted ----
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __drcp_rn(double a) { return 1.0 / a; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// ---- functions that <math.h> lacks ----
static inline double rsqrt(double a) { return 1.0 / sqrt(a); }
static inline float rsqrtf(float a) { return (float)(1.0 / sqrt((double)a)); }
static inline float rsqrt(float a) { return rsqrtf(a); }
static inline float __frsqrt_rn(float a) { return rsqrtf(a); }
static inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

// ---- integers ----
static inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((unsigned long long)a * b) >> 32);
}
static inline long long __mul64hi(long long a, long long b) {
  return (long long)(((__int128)a * b) >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static inline int __clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
static inline int __clzll(long long a) { return a ? __builtin_clzll((unsigned long long)a) : 64; }
static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline int __ffsll(long long a) { return __builtin_ffsll(a); }

// ---- bits ----
template <typename To, typename From> static inline To itf_host_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}
static inline int __float_as_int(float a) { return itf_host_bits<int>(a); }
static inline unsigned __float_as_uint(float a) { return itf_host_bits<unsigned>(a); }
static inline float __int_as_float(int a) { return itf_host_bits<float>(a); }
static inline float __uint_as_float(unsigned a) { return itf_host_bits<float>(a); }
static inline long long __double_as_longlong(double a) { return itf_host_bits<long long>(a); }
static inline double __longlong_as_double(long long a) { return itf_host_bits<double>(a); }

// ---- loads and stores with a cache hint ----
template <typename T> static inline T __ldg(const T* p) { return *p; }
template <typename T> static inline T __ldcs(const T* p) { return *p; }
template <typename T> static inline T __ldcg(const T* p) { return *p; }
template <typename T> static inline void __stcs(T* p, T value) { *p = value; }
template <typename T> static inline void __stcg(T* p, T value) { *p = value; }
