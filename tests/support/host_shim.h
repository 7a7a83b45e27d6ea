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
#include <ucontext.h>
#ifdef ITF_HOST_CLUSTERS
#include <pthread.h>
#include <thread>
#include <vector>
#endif

// After the headers, because they use some of these words themselves.
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
// Blocks run one after another; those of a cluster beside each other, a thread of the host for each.
#ifdef ITF_HOST_CLUSTERS
#define ITF_HOST_OF_BLOCK static thread_local
#else
#define ITF_HOST_OF_BLOCK static
#endif
#define __shared__ ITF_HOST_OF_BLOCK
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

// ---- special functions that <math.h> lacks: slow and accurate ----
static inline double cyl_bessel_i0(double x) {
  long double term = 1.0L, sum = 1.0L;
  if (fabs(x) > 720) return INFINITY;
  for (int k = 1; k < 3000 && term > 1e-20L * sum; ++k) {
    term *= (long double)x / 2 / k * ((long double)x / 2 / k);
    sum += term;
  }
  return x == x ? (double)sum : x;
}
static inline float cyl_bessel_i0f(float x) { return (float)cyl_bessel_i0((double)x); }
static inline double erfinv(double y) {
  const double a = fabs(y);
  if (!(a < 1)) return a == 1 ? (y < 0 ? -INFINITY : INFINITY) : NAN;
  if (a < 1e-8) return y * 0.88622692545275801365;
  double low = 0, high = 6;  // bisection, then Newton
  for (int k = 0; k < 40; ++k) {
    const double middle = (low + high) / 2;
    const bool below = a < 0.5 ? erf(middle) < a : erfc(middle) > 1 - a;
    (below ? low : high) = middle;
  }
  double x = (low + high) / 2;
  for (int k = 0; k < 2; ++k) {
    const double error = a < 0.5 ? erf(x) - a : (1 - a) - erfc(x);
    x -= error / (1.1283791670955126 * exp(-x * x));
  }
  return y < 0 ? -x : x;
}
static inline float erfinvf(float y) { return (float)erfinv((double)y); }

// ---- float16, for which generated code uses PTX ----
static inline unsigned short itf_host_half(double x) {
  const unsigned sign = signbit(x) ? 0x8000u : 0u;
  const double a = fabs(x);
  int exponent;
  if (x != x) return (unsigned short)(sign | 0x7e00u);
  if (a >= 65520.0) return (unsigned short)(sign | 0x7c00u);
  if (a < 0x1p-14) return (unsigned short)(sign | (unsigned)nearbyint(a * 0x1p24));
  const double part = frexp(a, &exponent);  // rounding up to the next power carries by itself
  const unsigned significand = (unsigned)nearbyint(part * 0x1p11) - 1024u;
  return (unsigned short)(sign | (((unsigned)(exponent + 14) << 10) + significand));
}
static inline float itf_host_float(unsigned short bits) {
  const int exponent = bits >> 10 & 31, significand = bits & 1023;
  const double a = exponent == 31 ? (significand ? NAN : INFINITY)
                   : exponent     ? ldexp(1024.0 + significand, exponent - 25)
                                  : ldexp((double)significand, -24);
  return (float)(bits & 0x8000 ? -a : a);
}

// ---- loads and stores with a cache hint ----
template <typename T> static inline T __ldg(const T* p) { return *p; }
template <typename T> static inline T __ldcs(const T* p) { return *p; }
template <typename T> static inline T __ldcg(const T* p) { return *p; }
template <typename T> static inline void __stcs(T* p, T value) { *p = value; }
template <typename T> static inline void __stcg(T* p, T value) { *p = value; }

// ---- kernels: blocks one after another, the threads of a block as fibers ----
struct itf_host_dim {
  unsigned x, y, z;
};
ITF_HOST_OF_BLOCK itf_host_dim threadIdx, blockIdx, blockDim, gridDim;
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct itf_host_barrier {
  int alive, arrived;
  unsigned passed;
};
ITF_HOST_OF_BLOCK struct {
  ucontext_t scheduler, fiber[1024];
  bool done[1024];
  itf_host_barrier all, warp[32];
  unsigned long long slot[1024];
  void (*body)(void*);
  void* state;
  bool moved;
} itf_host_block;

static inline void itf_host_pass(itf_host_barrier& barrier) {
  if (barrier.alive == 0 || barrier.arrived < barrier.alive) return;
  barrier.arrived = 0;
  ++barrier.passed;
  itf_host_block.moved = true;
}
static inline void itf_host_wait(itf_host_barrier& barrier) {
  const unsigned before = barrier.passed;
  ++barrier.arrived;
  itf_host_pass(barrier);
  while (barrier.passed == before) {
    swapcontext(&itf_host_block.fiber[threadIdx.x], &itf_host_block.scheduler);
  }
}
static inline void __syncthreads() { itf_host_wait(itf_host_block.all); }
static inline void __threadfence() {}
template <typename T> static inline T atomicAdd(T* p, T value) {
  const T before = *p;
  *p += value;
  return before;
}
template <typename T> static inline T atomicMin(T* p, T value) {
  const T before = *p;
  if (value < before) *p = value;
  return before;
}
template <typename T> static inline T atomicMax(T* p, T value) {
  const T before = *p;
  if (value > before) *p = value;
  return before;
}
template <typename T> static inline T atomicCAS(T* p, T expected, T value) {
  const T before = *p;
  if (before == expected) *p = value;
  return before;
}
template <typename T> static inline T __shfl_down_sync(unsigned, T value, int distance) {
  itf_host_barrier& warp = itf_host_block.warp[threadIdx.x / 32];
  memcpy(&itf_host_block.slot[threadIdx.x], &value, sizeof(T));
  itf_host_wait(warp);
  T found = value;
  if (threadIdx.x % 32 + distance < 32) {
    memcpy(&found, &itf_host_block.slot[threadIdx.x + distance], sizeof(T));
  }
  itf_host_wait(warp);  // before anyone writes the next value
  return found;
}
template <typename T> static inline T __shfl_up_sync(unsigned, T value, int distance) {
  itf_host_barrier& warp = itf_host_block.warp[threadIdx.x / 32];
  memcpy(&itf_host_block.slot[threadIdx.x], &value, sizeof(T));
  itf_host_wait(warp);
  T found = value;
  if ((int)(threadIdx.x % 32) >= distance) {
    memcpy(&found, &itf_host_block.slot[threadIdx.x - distance], sizeof(T));
  }
  itf_host_wait(warp);  // before anyone writes the next value
  return found;
}
static inline void __syncwarp() { itf_host_wait(itf_host_block.warp[threadIdx.x / 32]); }
template <typename T> static inline T __shfl_sync(unsigned, T value, int lane) {
  itf_host_barrier& warp = itf_host_block.warp[threadIdx.x / 32];
  memcpy(&itf_host_block.slot[threadIdx.x], &value, sizeof(T));
  itf_host_wait(warp);
  T found = value;
  memcpy(&found, &itf_host_block.slot[threadIdx.x / 32 * 32 + lane % 32], sizeof(T));
  itf_host_wait(warp);  // before anyone writes the next value
  return found;
}
static inline unsigned __ballot_sync(unsigned, int predicate) {
  itf_host_barrier& warp = itf_host_block.warp[threadIdx.x / 32];
  itf_host_block.slot[threadIdx.x] = predicate != 0;
  itf_host_wait(warp);
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    found |= (unsigned)itf_host_block.slot[threadIdx.x / 32 * 32 + lane] << lane;
  }
  itf_host_wait(warp);  // before anyone writes the next value
  return found;
}
static void itf_host_fiber() {
  itf_host_block.body(itf_host_block.state);
  const unsigned thread = threadIdx.x;
  itf_host_block.done[thread] = itf_host_block.moved = true;
  --itf_host_block.all.alive;
  --itf_host_block.warp[thread / 32].alive;
  itf_host_pass(itf_host_block.all);
  itf_host_pass(itf_host_block.warp[thread / 32]);
}
// Returns 1 if threads wait for each other for ever.
static int itf_host_run_block(int threads) {
  constexpr int room = 1 << 15;
  ITF_HOST_OF_BLOCK char* stacks = nullptr;
  if (stacks == nullptr) stacks = static_cast<char*>(malloc(1024 * room));
  auto& block = itf_host_block;
  block.all = {threads, 0, 0};
  for (int warp = 0; warp < threads / 32; ++warp) block.warp[warp] = {32, 0, 0};
  for (int thread = 0; thread < threads; ++thread) {
    getcontext(&block.fiber[thread]);
    block.fiber[thread].uc_stack.ss_sp = stacks + thread * room;
    block.fiber[thread].uc_stack.ss_size = room;
    block.fiber[thread].uc_link = &block.scheduler;
    block.done[thread] = false;
    makecontext(&block.fiber[thread], itf_host_fiber, 0);
  }
  while (block.all.alive > 0) {
    block.moved = false;
    for (int thread = 0; thread < threads; ++thread) {
      threadIdx.x = (unsigned)thread;
      if (!block.done[thread]) swapcontext(&block.scheduler, &block.fiber[thread]);
    }
    if (!block.moved) return 1;
  }
  return 0;
}
#define ITF_HOST_LAUNCH(kernel, State)                                                        \
  static void kernel##_call(void* state) { kernel(*static_cast<const State*>(state)); }       \
  extern "C" int kernel##_launch(void* state, long long blocks, long long threads) {          \
    itf_host_block.body = kernel##_call;                                                      \
    itf_host_block.state = state;                                                             \
    gridDim.x = (unsigned)blocks;                                                             \
    blockDim.x = (unsigned)threads;                                                           \
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {                                 \
      if (itf_host_run_block((int)threads)) return 1;                                         \
    }                                                                                         \
    return 0;                                                                                 \
  }

#ifdef ITF_HOST_CLUSTERS
// ---- clusters: variables of a block are a thread's, at the same place in what is each thread's ----
static thread_local char itf_host_own;
static pthread_barrier_t itf_host_met;
static char* itf_host_other[16];

static inline void cluster_arrive() {}
static inline void cluster_wait() {
  __syncthreads();
  if (threadIdx.x == 0) pthread_barrier_wait(&itf_host_met);
  __syncthreads();
}
template <typename T> static inline T* there(T* here, unsigned block) {
  return (T*)((char*)here - &itf_host_own + itf_host_other[block]);
}
#define ITF_HOST_CLUSTER(kernel, State, count)                                                \
  static void kernel##_call(void* state) { kernel(*static_cast<const State*>(state)); }       \
  extern "C" int kernel##_launch(void* state, long long blocks, long long threads) {          \
    bool stuck[count] = {};                                                                   \
    pthread_barrier_init(&itf_host_met, nullptr, count);                                      \
    for (long long first = 0; first < blocks; first += count) {                               \
      std::vector<std::thread> running;                                                       \
      for (int rank = 0; rank < count; ++rank) {                                              \
        running.emplace_back([=, &stuck] {                                                    \
          itf_host_block.body = kernel##_call;                                                \
          itf_host_block.state = state;                                                       \
          gridDim.x = (unsigned)blocks;                                                       \
          blockDim.x = (unsigned)threads;                                                     \
          blockIdx.x = (unsigned)(first + rank);                                              \
          itf_host_other[rank] = &itf_host_own;                                               \
          pthread_barrier_wait(&itf_host_met);                                                \
          stuck[rank] = itf_host_run_block((int)threads) != 0;                                \
        });                                                                                   \
      }                                                                                       \
      for (auto& one : running) one.join();                                                   \
    }                                                                                         \
    pthread_barrier_destroy(&itf_host_met);                                                   \
    for (bool one : stuck) {                                                                  \
      if (one) return 1;                                                                      \
    }                                                                                         \
    return 0;                                                                                 \
  }
#endif
