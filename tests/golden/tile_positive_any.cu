constexpr bool ALIGNED = false;
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
typedef unsigned long long Word;
constexpr Word KNOWN = 1ull << 63;  // beside a value, so that it is seen whole or not at all
__device__ __forceinline__ Word relaxed_load(const Word* p) {
#ifdef __CUDA_ARCH__
  Word word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(p) : "memory");
  return word;
#else
  return *p;
#endif
}
__device__ __forceinline__ void publish(Word* to, Word value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(to), "l"(value | KNOWN) : "memory");
#else
  *to = value | KNOWN;
#endif
}
// Nodes of a tree over this many tiles.
__device__ __forceinline__ Word tree_size(unsigned tiles) {
  Word nodes = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) nodes += (tiles >> 5 * k) + 1;
  return nodes;
}
// How many elements all tiles before this one chose, by one warp; `own` is what this one did.
// All levels are asked before the first is waited for. The last of 32 children publishes the sum
// of them as soon as it is known.
__device__ __forceinline__ Word look_back(Word* tree, unsigned tiles, unsigned tile, Word own) {
  const unsigned lane = threadIdx.x % 32;
  Word* level[4];
  unsigned place[4];  // among its siblings
  Word seen[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const unsigned number = tile >> 5 * k;
    place[k] = k < 3 ? number % 32 : number;
    level[k] = tree + (number - place[k]);
    tree += (tiles >> 5 * k) + 1;
    seen[k] = lane < place[k] ? relaxed_load(level[k] + lane) : 0;
  }
  Word before = 0, total = own;
  bool last = true;  // whether this tile is the last below its node
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    Word siblings = 0;
    for (unsigned at = lane; at < place[k]; at += 32) {  // once, below the last level
      Word word = at == lane ? seen[k] : relaxed_load(level[k] + at);
      while (!(word & KNOWN)) word = relaxed_load(level[k] + at);
      siblings += word & ~KNOWN;
    }
    if (place[k] != 0) {
#pragma unroll
      for (int apart = 16; apart > 0; apart /= 2) {
        siblings += __shfl_down_sync(0xffffffffu, siblings, apart);
      }
      siblings = __shfl_sync(0xffffffffu, siblings, 0);
    }
    before += siblings;
    total += siblings;
    last = last && place[k] == 31;
    if (k < 3 && last && lane == 0) {
      publish(level[k + 1] + place[k + 1], total);
    }
  }
  return before;
}
struct State {
  const float* x0;
  float k1;
  float* y0;
  long long* y1;
  long long n;
  Word* status;  // the next tile, then a tree for each flag
};
struct Item {
  bool r0;
  float r1;
};
// r0 = (x0 > k1)
// r1 = x0
__device__ __forceinline__ Item one(const State& s, const long long i) {
  Item b;
  const float x0 = s.x0[i];
  const bool v2 = x0 > s.k1;  // greater(x0, s.k1)
  b.r0 = v2;
  b.r1 = x0;
  return b;
}
extern "C" __global__ void __launch_bounds__(256, 5) positive_any_select(const State s) {
  constexpr int V = 4, CHUNKS = 4, EACH = V * CHUNKS;
  constexpr int PART = 32 * EACH;
  constexpr int WARPS = 8, TILE = WARPS * PART, FLAGS = 1;
  __shared__ unsigned taken;
  __shared__ unsigned count[WARPS][FLAGS];
  __shared__ Word offset[FLAGS];
  if (threadIdx.x == 0) taken = atomicAdd(reinterpret_cast<unsigned*>(s.status), 1u);
  __syncthreads();
  const unsigned tile = taken, tiles = gridDim.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long base = (long long)tile * TILE;
  const long long mine = base + warp * PART + lane * V;
  unsigned chosen[FLAGS] = {};  // flags of this thread's elements
  __shared__ float packed0[TILE];
  float value1[EACH];
  if (base + TILE <= s.n) {
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
  const long long begin = mine + c * 32 * V;
  Vec<float, V> e0;
  load(e0, s.x0 + begin, is_aligned<float, V>(s.x0 + begin));
#pragma unroll
  for (int k = 0; k < V; ++k) {
    Item b;
    const float x0 = e0.at[k];
    const bool v2 = x0 > s.k1;  // greater(x0, s.k1)
    b.r0 = v2;
    b.r1 = x0;
    chosen[0] |= (unsigned)(b.r0) << (c * V + k);
    value1[c * V + k] = b.r1;
  }
  }
  } else {
#pragma unroll
  for (int at = 0; at < EACH; ++at) {
    const long long i = mine + at / V * 32 * V + at % V;
    if (i < s.n) {
    const Item b = one(s, i);
    chosen[0] |= (unsigned)(b.r0) << (at);
    value1[at] = b.r1;
    }
  }
  }
  // Elements chosen by the warps before this one, and by the tile: published before any is packed.
#pragma unroll
  for (int f = 0; f < FLAGS; ++f) {
    unsigned sum = __popc(chosen[f]);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
    if (lane == 0) count[warp][f] = sum;
  }
  __syncthreads();
  unsigned ahead[FLAGS] = {}, own[FLAGS] = {};
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
#pragma unroll
    for (int f = 0; f < FLAGS; ++f) {
      if (w == warp) ahead[f] = own[f];
      own[f] += count[w][f];
    }
  }
#pragma unroll
  for (int f = 0; f < FLAGS; ++f) {
    if (threadIdx.x == f) publish(s.status + 1 + f * tree_size(tiles) + tile, own[f]);
  }
  // This warp packs its part: lane after lane of a chunk, chunk after chunk.
  const unsigned lower = (1u << lane) - 1;
  unsigned run[FLAGS] = {};
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    unsigned rank[FLAGS], all[FLAGS] = {};
#pragma unroll
    for (int f = 0; f < FLAGS; ++f) {
      rank[f] = run[f];
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const int at = c * V + k;
        const unsigned lanes = __ballot_sync(0xffffffffu, chosen[f] >> at & 1);
        rank[f] += __popc(lanes & lower);
        all[f] += __popc(lanes);
      }
      run[f] += all[f];
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int at = c * V + k;
      if ((chosen[0] >> at & 1) != 0) packed0[warp * PART + rank[0]] = value1[at];
#pragma unroll
      for (int f = 0; f < FLAGS; ++f) rank[f] += chosen[f] >> at & 1;
    }
  }
  if (warp == 0) {
#pragma unroll
    for (int f = 0; f < FLAGS; ++f) {
      Word* const tree = s.status + 1 + f * tree_size(tiles);
      const Word found = look_back(tree, tiles, tile, own[f]);
      if (lane == 0) offset[f] = found;
    }
  }
  __syncthreads();
  if (tile == tiles - 1 && threadIdx.x == 0) {
    for (int f = 0; f < FLAGS; ++f) s.y1[f] = offset[f] + own[f];
  }
  {
  float* const to = s.y0 + (offset[0] + ahead[0]);
  const unsigned many = run[0];
  for (unsigned i = lane; i < many; i += 32) to[i] = packed0[warp * PART + i];
  }
}
