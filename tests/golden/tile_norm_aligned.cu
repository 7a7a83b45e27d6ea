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
template <typename T> __device__ __forceinline__ T from_lane(T v, int distance) {
  return (T)__shfl_down_sync(0xffffffffu, (int)v, distance);
}
template <> __device__ __forceinline__ float from_lane(float v, int distance) {
  return __shfl_down_sync(0xffffffffu, v, distance);
}
template <> __device__ __forceinline__ double from_lane(double v, int distance) {
  return __shfl_down_sync(0xffffffffu, v, distance);
}
template <> __device__ __forceinline__ unsigned from_lane(unsigned v, int distance) {
  return __shfl_down_sync(0xffffffffu, v, distance);
}
template <> __device__ __forceinline__ long long from_lane(long long v, int distance) {
  return __shfl_down_sync(0xffffffffu, v, distance);
}
template <> __device__ __forceinline__ unsigned long long from_lane(unsigned long long v, int distance) {
  return __shfl_down_sync(0xffffffffu, v, distance);
}
// What other blocks of this launch wrote: from the second-level cache, which all of them share.
template <typename T> __device__ __forceinline__ T fresh(const T* p) {
  typedef typename Raw<sizeof(T)>::type raw;
  const raw bits = __ldcg(reinterpret_cast<const raw*>(p));
  return *reinterpret_cast<const T*>(&bits);
}
struct Item {
  float r0;
};
__device__ __forceinline__ Item identity() {
  Item a;
  a.r0 = __int_as_float(0);
  return a;
}
__device__ __forceinline__ Item combine(const Item& a, const Item& b) {
  Item r;
  r.r0 = __fadd_rn(a.r0, b.r0);  // add
  return r;
}
__device__ __forceinline__ Item from_lane(Item a, int distance) {
  a.r0 = from_lane(a.r0, distance);
  return a;
}
__device__ __forceinline__ Item fresh(const Item* p) {
  Item a;
  a.r0 = fresh(&p->r0);
  return a;
}
// Combines the values of a warp; the result is its first thread's.
__device__ __forceinline__ Item warp_combine(Item a) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) a = combine(a, from_lane(a, distance));
  return a;
}
// Combines the values of all threads; the result is thread 0's.
__device__ __forceinline__ Item block_combine(Item a) {
  __shared__ Item of_warp[8];
  a = warp_combine(a);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = a;
  __syncthreads();
  if (threadIdx.x < 32) {
    a = of_warp[threadIdx.x % 8];
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2) {
      a = combine(a, from_lane(a, distance));
    }
  }
  return a;
}
struct State {
  const float* x0;
  float* y0;
  long long n;
  Item* partial;
  unsigned* finished;
};
// r0 = (x0 * x0)
__device__ __forceinline__ Item one(const State& s, const long long i) {
  Item b;
  const float x0 = s.x0[i];
  const float v1 = __fmul_rn(x0, x0);  // multiply(x0, x0)
  b.r0 = v1;
  return b;
}
// a.r0 = add over all r0
// y0 = sqrt(a.r0)
extern "C" __global__ void __launch_bounds__(256, 2) norm_aligned_reduce(const State s) {
  constexpr int V = 4;
  Item whole = identity();
  const int rounds = s.n < 67108864 ? 1 : 4;
  const long long leaf_size = 8192ll * rounds;
  for (long long leaf = blockIdx.x; leaf * leaf_size < s.n; leaf += gridDim.x) {
  Item lane[V];
#pragma unroll
  for (int k = 0; k < V; ++k) lane[k] = identity();
  const long long first = leaf * leaf_size;
  if (first + leaf_size <= s.n) {
  for (int step = 0; step < 8 * rounds; step += 8) {
  Vec<float, V> ahead0[8];
#pragma unroll
  for (int n = 0; n < 8; ++n) {
  const long long begin = first + ((step + n) * 256 + (int)threadIdx.x) * V;
  load(ahead0[n], s.x0 + begin, is_aligned<float, V>(s.x0 + begin));
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
  const long long begin = first + ((step + n) * 256 + (int)threadIdx.x) * V;
  const Vec<float, V>& e0 = ahead0[n];
#pragma unroll
  for (int k = 0; k < V; ++k) {
    Item b;
    const float x0 = e0.at[k];
    const float v1 = __fmul_rn(x0, x0);  // multiply(x0, x0)
    b.r0 = v1;
    lane[k] = combine(lane[k], b);
  }
  }
  }
  } else {
  for (int step = 0; step < 8 * rounds; ++step) {
  const long long begin = first + (step * 256 + (int)threadIdx.x) * V;
  if (begin + V <= s.n) {
  Vec<float, V> e0;
  load(e0, s.x0 + begin, is_aligned<float, V>(s.x0 + begin));
#pragma unroll
  for (int k = 0; k < V; ++k) {
    Item b;
    const float x0 = e0.at[k];
    const float v1 = __fmul_rn(x0, x0);  // multiply(x0, x0)
    b.r0 = v1;
    lane[k] = combine(lane[k], b);
  }
  } else {
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (begin + k < s.n) lane[k] = combine(lane[k], one(s, begin + k));
  }
  }
  }
  }
#pragma unroll
  for (int apart = 1; apart < V; apart *= 2) {
#pragma unroll
  for (int k = 0; k < V; k += 2 * apart) {
    lane[k] = combine(lane[k], lane[k + apart]);
  }
  }
  whole = block_combine(lane[0]);
  if (threadIdx.x == 0) s.partial[leaf] = whole;
  }
  // The last block to finish combines the leaves and writes the results.
  Item a = whole;
  if (gridDim.x > 1 || s.n > leaf_size) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
      __threadfence();
      is_last = atomicAdd(s.finished, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    const long long leaves = (s.n + leaf_size - 1) / leaf_size;
    if (leaves <= 32 && threadIdx.x >= 32) return;  // the other warps would hold identities
    a = identity();
#pragma unroll 8
    for (long long leaf = threadIdx.x; leaf < leaves; leaf += 256) {
      a = combine(a, fresh(s.partial + leaf));
    }
    a = leaves <= 32 ? warp_combine(a) : block_combine(a);
    if (threadIdx.x == 0) *s.finished = 0;  // ready for the next launch on this stream
  }
  if (threadIdx.x != 0) return;
  const float v1 = __fsqrt_rn(a.r0);  // sqrt(a.r0)
  *s.y0 = v1;
}
