"""Hand-written CUDA C++ of running sums and selections of float32, in one pass over the input.

Decoupled look-back (Merrill and Garland 2016): a block takes the next tile, publishes its own
total, and looks back over the tiles before it until one has published a prefix. Flag and value of
a tile are one 64-bit word, so that they are read together. Sums of floats therefore depend on when
blocks run, as those of CUB do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse.bench.case import Kernel
from itfuse.bench.peers.base import NotForThis, Waiting

THREADS, ITEMS = 256, 16
TILE = THREADS * ITEMS

_LOOK_BACK = r"""
typedef float T;
typedef unsigned long long u64;
constexpr int THREADS = %(threads)d, ITEMS = %(items)d, TILE = THREADS * ITEMS;
constexpr int WARPS = THREADS / 32;
// A word of a tile: nothing yet, its own total, or that of all tiles up to it.
constexpr unsigned OWN = 1, WHOLE = 2;
__device__ unsigned flag(u64 word) { return (unsigned)(word >> 62); }
%(words)s
// The next tile, in the order in which blocks arrive: those before it are running or done.
__device__ u64 next_tile(u64* ticket) {
    __shared__ u64 tile;
    if (threadIdx.x == 0) tile = atomicAdd(ticket, 1ull);
    __syncthreads();
    return tile;
}
// What the tiles before `tile` add up to, for the first warp; publishes this tile's total.
__device__ A look_back(u64 tile, u64* words, A total) {
    volatile u64* seen = words;
    if (tile == 0) {
        if (threadIdx.x == 0) seen[0] = word(WHOLE, total);
        return zero();
    }
    if (threadIdx.x == 0) seen[tile] = word(OWN, total);
    A before = zero();
    for (long long nearest = (long long)tile - 1;; nearest -= 32) {
        long long at = nearest - (long long)threadIdx.x;
        u64 found;
        do {
            found = at < 0 ? word(WHOLE, zero()) : seen[at];
        } while (flag(found) == 0);
        unsigned whole = __ballot_sync(~0u, flag(found) == WHOLE);
        int last = whole ? __ffs((int)whole) - 1 : 31;  // the nearest one that has all
        A part = (int)threadIdx.x <= last ? value(found) : zero();
        for (int d = 16; d; d /= 2) {
            A left = __shfl_down_sync(~0u, part, d);
            if ((int)threadIdx.x + d < 32) part = add(left, part);
        }
        before = add(__shfl_sync(~0u, part, 0), before);
        if (whole) break;
    }
    if (threadIdx.x == 0) seen[tile] = word(WHOLE, add(before, total));
    return before;
}
"""

_FLOATS = r"""
typedef float A;
__device__ A zero() { return 0.0f; }
__device__ A add(A a, A b) { return %(combine)s; }
__device__ u64 word(unsigned flag, A value) {
    return ((u64)flag << 62) | (u64)__float_as_uint(value);
}
__device__ A value(u64 word) { return __uint_as_float((unsigned)word); }
"""

_COUNTS = r"""
typedef unsigned long long A;
__device__ A zero() { return 0; }
__device__ A add(A a, A b) { return a + b; }
__device__ u64 word(unsigned flag, A value) { return ((u64)flag << 62) | value; }
__device__ A value(u64 word) { return word & ~(3ull << 62); }
"""

_SCAN = r"""
// A word more for each 32, so that threads that read runs of items meet few others in a bank.
__device__ int padded(int at) { return at + at / 32; }
extern "C" __global__ void __launch_bounds__(THREADS)
bench_scan(const T* x, T* out, u64 n, u64* words, u64* ticket) {
    __shared__ T items[TILE + TILE / 32];
    __shared__ T warps[WARPS];
    __shared__ T carried;
    u64 tile = next_tile(ticket), first = tile * TILE;
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        int at = k * THREADS + (int)threadIdx.x;
        T x0 = first + at < n ? __ldcs(x + first + at) : T(0);
        items[padded(at)] = %(map)s;
    }
    __syncthreads();
    T own[ITEMS];
    T total = T(0);
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        T item = items[padded((int)threadIdx.x * ITEMS + k)];
        total = k == 0 ? item : add(total, item);
        own[k] = total;
    }
    for (int d = 1; d < 32; d *= 2) {
        T left = __shfl_up_sync(~0u, total, d);
        if ((int)threadIdx.x %% 32 >= d) total = add(left, total);
    }
    if (threadIdx.x %% 32 == 31) warps[threadIdx.x / 32] = total;
    T left = __shfl_up_sync(~0u, total, 1);  // of the threads before this one in the warp
    if (threadIdx.x %% 32 == 0) left = T(0);
    __syncthreads();
    T before = T(0), all = T(0);
    for (int k = 0; k < WARPS; ++k) {
        if (k == (int)threadIdx.x / 32) before = all;
        all = add(all, warps[k]);
    }
    if (threadIdx.x < 32) {
        T found = look_back(tile, words, all);
        if (threadIdx.x == 0) carried = found;
    }
    __syncthreads();
    left = add(carried, add(before, left));
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k)
        items[padded((int)threadIdx.x * ITEMS + k)] = add(left, own[k]);
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        int at = k * THREADS + (int)threadIdx.x;
        if (first + at < n) __stcs(out + first + at, items[padded(at)]);
    }
}
"""

_SELECT = r"""
extern "C" __global__ void __launch_bounds__(THREADS)
bench_select(const T* x, T* out, u64 n, u64* words, u64* ticket, long long* count) {
    __shared__ T kept[TILE];
    __shared__ int counts[ITEMS * WARPS];  // of each round of each warp, then what is before it
    __shared__ u64 carried;
    __shared__ int found;
    u64 tile = next_tile(ticket), first = tile * TILE;
    const int warp = threadIdx.x / 32, lane = threadIdx.x %% 32;
    T own[ITEMS];
    unsigned ballots[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        u64 at = first + k * THREADS + threadIdx.x;
        T x0 = at < n ? __ldcs(x + at) : T(0);
        own[k] = x0;
        ballots[k] = __ballot_sync(~0u, at < n && (%(keep)s));
        if (lane == 0) counts[k * WARPS + warp] = __popc((int)ballots[k]);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        constexpr int EACH = ITEMS * WARPS / 32;
        int sum = 0;
        for (int k = 0; k < EACH; ++k) sum += counts[lane * EACH + k];
        int upto = sum;
        for (int d = 1; d < 32; d *= 2) {
            int left = __shfl_up_sync(~0u, upto, d);
            if (lane >= d) upto += left;
        }
        int before = upto - sum;
        for (int k = 0; k < EACH; ++k) {
            int here = counts[lane * EACH + k];
            counts[lane * EACH + k] = before;
            before += here;
        }
        int total = __shfl_sync(~0u, upto, 31);
        u64 places = look_back(tile, words, (u64)total);
        if (lane == 0) {
            carried = places;
            found = total;
            if (tile == gridDim.x - 1) *count = (long long)(places + total);
        }
    }
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k)
        if (ballots[k] >> lane & 1)
            kept[counts[k * WARPS + warp] + __popc((int)(ballots[k] & ((1u << lane) - 1)))] =
                own[k];
    __syncthreads();
    for (int at = threadIdx.x; at < found; at += THREADS) __stcs(out + carried + at, kept[at]);
}
"""


def source(kernel: Kernel) -> str:
    """Return the kernel of a running sum or of a selection."""
    words = _COUNTS if kernel.keep else _FLOATS % {"combine": kernel.combine}
    head = _LOOK_BACK % {"threads": THREADS, "items": ITEMS, "words": words}
    if kernel.keep:
        return head + _SELECT % {"keep": kernel.keep}
    return head + _SCAN % {"map": kernel.map}


@functools.cache
def _build(kernel: Kernel) -> Any:
    import cupy

    name = "bench_select" if kernel.keep else "bench_scan"
    return cupy.RawKernel(source(kernel), name, options=("-std=c++17",))


def bind(kernel: Kernel, x: Any, out: Any, device: Any) -> Callable[[], Any]:
    """Return a call: the words are cleared, then one kernel runs."""
    if str(x.dtype) != "float32":
        raise NotForThis(f"not written for {x.dtype}")
    cupy, built = device.cupy, _build(kernel)
    tiles, size = -(-x.size // TILE), np.uint64(x.size)
    words = cupy.zeros(tiles + 1, "uint64")
    ticket = words[tiles:]
    if not kernel.keep:

        def scan() -> Any:
            words.data.memset_async(0, words.nbytes)
            built((tiles,), (THREADS,), (x, out, size, words, ticket))
            return out

        return scan
    kept, count = cupy.empty_like(x), cupy.zeros(1, "int64")

    def select() -> None:
        words.data.memset_async(0, words.nbytes)
        built((tiles,), (THREADS,), (x, kept, size, words, ticket, count))

    return Waiting(select, lambda: kept[: int(count[0])])  # int() waits, as everybody must
