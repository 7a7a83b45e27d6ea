"""Hand-written CUDA C++ over columns of float32: strips of rows, then one launch over the strips.

A block has as many threads side by side as there are four columns each, up to 256, and the rest of
its threads below each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse.bench.peers.base import NotForThis

_STRIP = 512  # rows of a thread

_HEAD = r"""
constexpr int W = %(wide)d, H = 256 / W, STRIP = %(strip)d * H;
__device__ float4 plus(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ float4 minus(float4 a, float4 b) {
    return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}
__device__ float4 times(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
__device__ float4 times(float4 a, float b) {
    return make_float4(a.x * b, a.y * b, a.z * b, a.w * b);
}
"""

_SUM = r"""
// Sums of the squares of rows, or of rows; a strip of `strip` rows for each blockIdx.y.
extern "C" __global__ void __launch_bounds__(256) bench_columns(
    const float4* x, float4* out, unsigned rows, unsigned vectors, unsigned strip, int squared) {
    __shared__ float4 parts[256];
    unsigned column = blockIdx.x * W + threadIdx.x %% W, below = threadIdx.x / W;
    unsigned first = blockIdx.y * strip, end = first + strip < rows ? first + strip : rows;
    float4 total = make_float4(0, 0, 0, 0);
    if (column < vectors) {
        #pragma unroll 8
        for (unsigned r = first + below; r < end; r += H) {
            float4 v = __ldcs(x + (size_t)r * vectors + column);
            total = plus(total, squared ? times(v, v) : v);
        }
    }
    parts[threadIdx.x] = total;
    __syncthreads();
    if (below || column >= vectors) return;
    for (int k = 1; k < H; ++k) total = plus(total, parts[k * W + threadIdx.x]);
    out[(size_t)blockIdx.y * vectors + column] = total;
}
"""

# As in cuda_reduce.py: sums about the strip's first row, merged by the way of Chan.
_VAR = r"""
struct Moments { float n; float4 mean, m2; };
__device__ void merge(Moments& a, Moments b) {
    if (b.n == 0) return;
    float n = a.n + b.n, share = b.n / n;
    float4 d = minus(b.mean, a.mean);
    a.mean = plus(a.mean, times(d, share));
    a.m2 = plus(a.m2, plus(b.m2, times(times(d, d), a.n * share)));
    a.n = n;
}
__device__ bool whole(Moments& m, unsigned column, unsigned vectors) {
    __shared__ float count[256];
    __shared__ float4 mean[256], m2[256];
    unsigned below = threadIdx.x / W;
    count[threadIdx.x] = m.n; mean[threadIdx.x] = m.mean; m2[threadIdx.x] = m.m2;
    __syncthreads();
    if (below || column >= vectors) return false;
    for (int k = 1; k < H; ++k) {
        Moments b;
        b.n = count[k * W + threadIdx.x];
        b.mean = mean[k * W + threadIdx.x];
        b.m2 = m2[k * W + threadIdx.x];
        merge(m, b);
    }
    return true;
}
extern "C" __global__ void __launch_bounds__(256) bench_moments(
    const float4* x, float4* means, float4* m2s, unsigned rows, unsigned vectors) {
    unsigned column = blockIdx.x * W + threadIdx.x %% W, below = threadIdx.x / W;
    unsigned first = blockIdx.y * STRIP, end = first + STRIP < rows ? first + STRIP : rows;
    float4 sum = make_float4(0, 0, 0, 0), squares = sum, pivot = sum;
    float n = 0;
    if (column < vectors) {
        pivot = x[(size_t)first * vectors + column];
        #pragma unroll 8
        for (unsigned r = first + below; r < end; r += H) {
            float4 d = minus(__ldcs(x + (size_t)r * vectors + column), pivot);
            sum = plus(sum, d);
            squares = plus(squares, times(d, d));
            n += 1;
        }
    }
    Moments m = { n, pivot, sum };
    if (n > 0) {
        float4 mean = times(sum, 1 / n);
        m.mean = plus(pivot, mean);
        m.m2 = minus(squares, times(sum, mean));
    }
    if (!whole(m, column, vectors)) return;
    means[(size_t)blockIdx.y * vectors + column] = m.mean;
    m2s[(size_t)blockIdx.y * vectors + column] = m.m2;
}
// `rows` of the input were read in strips of `strip` rows each.
extern "C" __global__ void __launch_bounds__(256) bench_variance(
    const float4* means, const float4* m2s, float4* out, unsigned rows, unsigned vectors,
    unsigned strip) {
    unsigned column = blockIdx.x * W + threadIdx.x %% W, below = threadIdx.x / W;
    unsigned strips = (rows + strip - 1) / strip;
    Moments m = { 0, make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0) };
    if (column < vectors) {
        for (unsigned k = below; k < strips; k += H) {
            Moments b;
            b.n = k == strips - 1 ? rows - k * strip : strip;
            b.mean = means[(size_t)k * vectors + column];
            b.m2 = m2s[(size_t)k * vectors + column];
            merge(m, b);
        }
    }
    if (whole(m, column, vectors)) out[column] = times(m.m2, 1 / m.n);
}
"""

COLUMNS = ("columns", "columns var")
"""Sums of squares, and variances."""


def wide(vectors: int, most: int = 256) -> int:
    """Return how many threads of a block are side by side: a power of two.

    Examples
    --------
    >>> wide(16), wide(1000), wide(1000, 16)
    (16, 256, 16)
    """
    return min(most, 1 << (max(vectors, 1).bit_length() - 1))


def source(name: str, threads: int) -> str:
    """Return the kernels for blocks of `threads` side by side."""
    return (_HEAD + (_SUM if name == "columns" else _VAR)) % {"wide": threads, "strip": _STRIP}


@functools.cache
def _module(name: str, threads: int) -> Any:
    import cupy

    return cupy.RawModule(code=source(name, threads), options=("-std=c++17",))


def bind(name: str, x: Any, out: Any, device: Any) -> Callable[[], Any]:
    """Return the two launches."""
    rows, length = x.shape
    if length % 4:
        raise NotForThis(f"no hand-written kernel for {length} columns")
    cupy, vectors = device.cupy, length // 4
    first, second = wide(vectors), wide(vectors, 16)  # few strips: more blocks, fewer rows each
    strip = _STRIP * (256 // first)
    steps, grids = -(-rows // strip), (-(-vectors // first), -(-vectors // second))
    parts = [cupy.empty((steps, length), "float32") for _ in range(2 if name != "columns" else 1)]
    result = cupy.empty(length, "float32") if out is None else out
    count, width, many = np.uint32(rows), np.uint32(vectors), np.uint32(steps)
    if name == "columns":
        sums, again = (_module(name, w).get_function("bench_columns") for w in (first, second))

        def columns() -> Any:
            sums((grids[0], steps), (256,),
                 (x, *parts, count, width, np.uint32(strip), np.int32(1)))  # fmt: skip
            again((grids[1],), (256,), (*parts, result, many, width, many, np.int32(0)))
            return result

        return columns
    moments = _module(name, first).get_function("bench_moments")
    variance = _module(name, second).get_function("bench_variance")

    def var() -> Any:
        moments((grids[0], steps), (256,), (x, *parts, count, width))
        variance((grids[1],), (256,), (*parts, result, count, width, np.uint32(strip)))
        return result

    return var
