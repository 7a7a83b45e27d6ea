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
constexpr int BLOCK = 256;
extern __shared__ __align__(16) unsigned char room[];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void stage_begin(unsigned long long* arrived) {
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared_address(arrived)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
}
__device__ __forceinline__ void copy_in(
    void* to, const void* from, int bytes, unsigned long long* arrived) {
  if (threadIdx.x == 0 && bytes > 0) {
    const unsigned bar = shared_address(arrived);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
                 :: "r"(bar), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(bar) : "memory");
  }
}
__device__ __forceinline__ void stage_wait(unsigned long long* arrived) {
  const unsigned bar = shared_address(arrived);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
  }
  __syncthreads();
  unsigned done;
  do {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; "
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done) : "r"(bar) : "memory");
  } while (!done);
}
// Tiles are written: from here on the copy engine may read them.
__device__ __forceinline__ void stage_written() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}
__device__ __forceinline__ void copy_out(void* to, const void* from, int bytes) {
  if (threadIdx.x == 0 && bytes > 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :: "l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
  }
}
__device__ __forceinline__ void stage_end() {
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
#else
__device__ __forceinline__ void stage_begin(unsigned long long*) {}
__device__ __forceinline__ void copy_in(
    void* to, const void* from, int bytes, unsigned long long*) {
#pragma unroll 4
  for (int at = threadIdx.x * 16; at < bytes; at += BLOCK * 16) {
    const int4 piece = *reinterpret_cast<const int4*>((const char*)from + at);
    *reinterpret_cast<int4*>((char*)to + at) = piece;
  }
}
__device__ __forceinline__ void stage_wait(unsigned long long*) { __syncthreads(); }
__device__ __forceinline__ void stage_written() { __syncthreads(); }
__device__ __forceinline__ void copy_out(void* to, const void* from, int bytes) {
  copy_in(to, from, bytes, nullptr);
}
__device__ __forceinline__ void stage_end() {}
#endif
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
extern "C" __global__ void __launch_bounds__(256, 5) positive_aligned_select(const State s) {
  constexpr int V = 4, CHUNKS = 8, EACH = V * CHUNKS;
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
  __shared__ unsigned long long arrived;
  unsigned char* place = room;
  float* const in_x0 = reinterpret_cast<float*>(place);
  place += TILE * sizeof(float);
  float* const packed0 = reinterpret_cast<float*>(in_x0);
  const bool full = base + TILE <= s.n;
  stage_begin(&arrived);
  if (full) {
    copy_in(in_x0, s.x0 + base, TILE * sizeof(float), &arrived);
  }
  stage_wait(&arrived);
  const auto piece = [&](int c, Item (&b)[V]) {
    if (full) {
      const int at = warp * PART + c * 32 * V + lane * V;
      Vec<float, V> e0;
      load(e0, in_x0 + at, true);
#pragma unroll
      for (int k = 0; k < V; ++k) {
    const float x0 = e0.at[k];
        const bool v2 = x0 > s.k1;  // greater(x0, s.k1)
        b[k].r0 = v2;
        b[k].r1 = x0;
      }
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const long long i = mine + c * 32 * V + k;
        if (i < s.n) { b[k] = one(s, i); } else { b[k].r0 = 0; }
      }
    }
  };
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    Item b[V];
    piece(c, b);
#pragma unroll
    for (int k = 0; k < V; ++k) {
    chosen[0] |= (unsigned)(b[k].r0) << (c * V + k);
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
    Item b[V];
    piece(c, b);
    __syncwarp();  // written over below
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
      if ((chosen[0] >> at & 1) != 0) packed0[warp * PART + rank[0]] = b[k].r1;
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
