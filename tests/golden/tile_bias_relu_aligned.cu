constexpr bool ALIGNED = true;
// Vectors of 1 to 16 bytes, with the default cache policy (docs/performance.md).
template <int BYTES> struct Raw;
template <> struct Raw<1> { typedef char type; };
template <> struct Raw<2> { typedef short type; };
template <> struct Raw<4> { typedef int type; };
template <> struct Raw<8> { typedef int2 type; };
template <> struct Raw<16> { typedef int4 type; };
template <typename T, int V> struct alignas(sizeof(T) * V <= 16 ? sizeof(T) * V : 16) Vec {
  T at[V];
};
template <typename T, int V> __device__ __forceinline__ bool is_aligned(const T* p) {
  return ALIGNED || (reinterpret_cast<unsigned long long>(p) & (alignof(Vec<T, V>) - 1)) == 0;
}
template <typename T, int V>
__device__ __forceinline__ void load(Vec<T, V>& to, const T* from, bool aligned) {
  constexpr int BYTES = alignof(Vec<T, V>);
  typedef typename Raw<BYTES>::type raw;
  if (aligned) {
#pragma unroll
    for (int k = 0; k < (int)sizeof(to) / BYTES; ++k) {
      reinterpret_cast<raw*>(&to)[k] = reinterpret_cast<const raw*>(from)[k];
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to.at[k] = from[k];
  }
}
template <typename T, int V>
__device__ __forceinline__ void store(T* to, const Vec<T, V>& from, bool aligned) {
  constexpr int BYTES = alignof(Vec<T, V>);
  typedef typename Raw<BYTES>::type raw;
  if (aligned) {
#pragma unroll
    for (int k = 0; k < (int)sizeof(from) / BYTES; ++k) {
      reinterpret_cast<raw*>(to)[k] = reinterpret_cast<const raw*>(&from)[k];
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to[k] = from.at[k];
  }
}
// Loads V elements of a row that are `step` bytes apart. Where `step` is C elements, C of -1 to 4,
// they come from whole vectors: all they hold, the same backwards, or every C-th element of C of
// them (which end one element before the next one of the row: there must be one `more`).
constexpr int ANY = 9;
template <int C, typename T, int V>
__device__ __forceinline__ void row(Vec<T, V>& to, const char* p, long long step, bool more) {
  if (C == 0) {
    const T all = *reinterpret_cast<const T*>(p);
#pragma unroll
    for (int k = 0; k < V; ++k) to.at[k] = all;
    return;
  }
  constexpr int COUNT = C == ANY || C < 2 ? 1 : C;
  const T* from = reinterpret_cast<const T*>(p) - (C == -1 ? V - 1 : 0);
  if (C != ANY && (COUNT == 1 || more) && is_aligned<T, V>(from)) {
    Vec<T, V> part[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) load(part[k], from + k * V, true);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      to.at[k] = C == -1 ? part[0].at[V - 1 - k] : part[k * COUNT / V].at[k * COUNT % V];
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to.at[k] = *reinterpret_cast<const T*>(p + k * step);
  }
}
struct State {
  long long size[2];
  unsigned divider[4];  // multipliers, then shifts
  const float* x0;
  float k1;
  const float* x2;
  long long step2[2];  // bytes
  float k3;
  float* y0;
  long long n;
};
__device__ __forceinline__ void one(const State& s, const long long i) {
  unsigned rest = (unsigned)(i);
  const unsigned d1 = (unsigned)(((unsigned long long)rest * s.divider[1]) >> 32) >> s.divider[3];
  int i1 = (int)(rest - d1 * (unsigned)s.size[1]);
  rest = d1;
  int i0 = (int)rest;
  const float x0 = s.x0[i];
  const float x2 = *reinterpret_cast<const float*>(reinterpret_cast<const char*>(s.x2) + ((long long)i1 * (int)s.step2[1]));
  const float v2 = __fmul_rn(s.k1, x0);  // multiply(s.k1, x0)
  const float v4 = __fadd_rn(v2, x2);  // add(v2, x2)
  const float v6 = (v4 > s.k3 || v4 != v4) ? v4 : s.k3;  // maximum(v4, s.k3)
  s.y0[i] = v6;
}
// y0 = maximum((k1 * x0) + x2, k3)
extern "C" __global__ void __launch_bounds__(128, 4) bias_relu_aligned_transform(const State s) {
  constexpr int V = 4;
  const int begin = ((int)blockIdx.x * 128 + threadIdx.x) * V;
  if (begin + V > (int)s.n) {
#pragma unroll 1
    for (int i = begin; i < (int)s.n; ++i) one(s, i);
    return;
  }
  Vec<float, V> e0;
  load(e0, s.x0 + begin, is_aligned<float, V>(s.x0 + begin));
  unsigned rest = (unsigned)(begin);
  const unsigned d1 = (unsigned)(((unsigned long long)rest * s.divider[1]) >> 32) >> s.divider[3];
  int i1 = (int)(rest - d1 * (unsigned)s.size[1]);
  rest = d1;
  int i0 = (int)rest;
  const int left = (int)s.size[1] - i1;  // of this row
  Vec<float, V> e2;
  row<1>(e2, reinterpret_cast<const char*>(s.x2) + ((long long)i1 * (int)s.step2[1]),
      s.step2[1], left > V);
  Vec<float, V> o0;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const float x0 = e0.at[k];
    const float x2 = e2.at[k];
    const float v2 = __fmul_rn(s.k1, x0);  // multiply(s.k1, x0)
    const float v4 = __fadd_rn(v2, x2);  // add(v2, x2)
    const float v6 = (v4 > s.k3 || v4 != v4) ? v4 : s.k3;  // maximum(v4, s.k3)
    o0.at[k] = v6;
  }
  store(s.y0 + begin, o0, is_aligned<float, V>(s.y0 + begin));
}
