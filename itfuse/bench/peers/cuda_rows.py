"""Hand-written CUDA C++ over rows and columns of float32: one block a row, the row in registers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse.bench.peers.base import NotForThis

_HEAD = r"""
constexpr int THREADS = %(threads)d, VECTORS = %(vectors)d, WARPS = THREADS / 32;
__device__ float add(float a, float b) { return a + b; }
__device__ float greater(float a, float b) { return fmaxf(a, b); }
template <float (*F)(float, float)> __device__ float block(float v, float identity) {
    __shared__ float shared[WARPS];
    for (int d = 16; d; d /= 2) v = F(v, __shfl_xor_sync(~0u, v, d));
    if (WARPS == 1) return v;
    __syncthreads();
    if (threadIdx.x %% 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x %% 32 < WARPS ? shared[threadIdx.x %% 32] : identity;
    for (int d = 16; d; d /= 2) v = F(v, __shfl_xor_sync(~0u, v, d));
    return v;
}
"""

_ROW = r"""
extern "C" __global__ void __launch_bounds__(THREADS) bench_row(
    const float* x, const float* w, const float* b, float* out) {
    constexpr int LENGTH = %(length)d;
    const float4* row = (const float4*)(x + blockIdx.x * (size_t)LENGTH);
    float4 v[VECTORS];
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) v[k] = __ldcs(row + threadIdx.x + k * THREADS);
%(body)s
}
"""

_STORE = r"""
    float4* to = (float4*)(out + blockIdx.x * (size_t)LENGTH);
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) __stcs(to + threadIdx.x + k * THREADS, v[k]);
"""

_BODIES = {
    "softmax": r"""
    float top = v[0].x;
    for (int k = 0; k < VECTORS; ++k)
        top = fmaxf(fmaxf(fmaxf(top, v[k].x), fmaxf(v[k].y, v[k].z)), v[k].w);
    top = block<greater>(top, top);
    float total = 0;
    for (int k = 0; k < VECTORS; ++k) {
        v[k] = make_float4(expf(v[k].x - top), expf(v[k].y - top), expf(v[k].z - top),
                           expf(v[k].w - top));
        total += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    float scale = 1.0f / block<add>(total, 0);
    for (int k = 0; k < VECTORS; ++k)
        v[k] = make_float4(v[k].x * scale, v[k].y * scale, v[k].z * scale, v[k].w * scale);
"""
    + _STORE,
    "layernorm": r"""
    float total = 0;
    for (int k = 0; k < VECTORS; ++k) total += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    float mean = block<add>(total, 0) / LENGTH, spread = 0;
    for (int k = 0; k < VECTORS; ++k) {
        v[k] = make_float4(v[k].x - mean, v[k].y - mean, v[k].z - mean, v[k].w - mean);
        spread += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
    }
    float scale = rsqrtf(block<add>(spread, 0) / LENGTH + 1e-5f);
    for (int k = 0; k < VECTORS; ++k) {
        float4 f = ((const float4*)w)[threadIdx.x + k * THREADS];
        float4 g = ((const float4*)b)[threadIdx.x + k * THREADS];
        v[k] = make_float4(v[k].x * scale * f.x + g.x, v[k].y * scale * f.y + g.y,
                           v[k].z * scale * f.z + g.z, v[k].w * scale * f.w + g.w);
    }
"""
    + _STORE,
    "squares": r"""
    float total = 0;
    for (int k = 0; k < VECTORS; ++k)
        total += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
    total = block<add>(total, 0);
    if (threadIdx.x == 0) out[blockIdx.x] = total;
""",
}

# 256 threads with four columns each walk 512 rows; a second launch adds the partial rows.
_COLUMNS = r"""
extern "C" __global__ void __launch_bounds__(256) bench_columns(
    const float4* x, float4* partial, unsigned int rows, unsigned int vectors, int squared) {
    unsigned int column = blockIdx.x * 256 + threadIdx.x;
    if (column >= vectors) return;
    float4 total = make_float4(0, 0, 0, 0);
    unsigned int first = blockIdx.y * 512u;
    unsigned int end = first + 512u < rows ? first + 512u : rows;
    #pragma unroll 8
    for (unsigned int r = first; r < end; ++r) {
        float4 v = __ldcs(x + (size_t)r * vectors + column);
        if (squared) v = make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
        total.x += v.x; total.y += v.y; total.z += v.z; total.w += v.w;
    }
    partial[(size_t)blockIdx.y * vectors + column] = total;
}
"""


def source(name: str, length: int) -> str:
    """Return the kernel of a row program for rows of `length`.

    Raises
    ------
    NotForThis
        If a row has no whole number of float4 for each thread, or not enough room in registers.
    """
    vectors = length // 4
    for threads in (32, 64, 128, 256, 512, 1024):
        if length % 4 == 0 and vectors % threads == 0 and vectors // threads <= 8:
            break
    else:
        raise NotForThis(f"no hand-written kernel for rows of {length}")
    parts = {"threads": threads, "vectors": vectors // threads, "length": length,
             "body": _BODIES[name]}  # fmt: skip
    return (_HEAD + _ROW) % parts


@functools.cache
def _row_kernel(name: str, length: int) -> Any:
    import cupy

    return cupy.RawKernel(source(name, length), "bench_row", options=("-std=c++17",))


@functools.cache
def _columns_kernel() -> Any:
    import cupy

    return cupy.RawKernel(_COLUMNS, "bench_columns", options=("-std=c++17",))


def bind(name: str, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
    """Return a launch of the row or column kernel `name`."""
    x = inputs[0]
    if str(x.dtype) != "float32":
        raise NotForThis(f"not written for {x.dtype}")
    rows, length = x.shape
    cupy = device.cupy
    if name == "columns":
        if length % 4:
            raise NotForThis(f"no hand-written kernel for {length} columns")
        kernel, vectors, steps = _columns_kernel(), length // 4, -(-rows // 512)
        again = -(-steps // 512)
        partial, less = cupy.empty((steps, length), "f4"), cupy.empty((again, length), "f4")
        grid = -(-vectors // 256)
        width = np.uint32(vectors)

        def columns() -> Any:
            source, target, count, squared = x, partial, rows, 1
            while True:
                height = -(-count // 512)
                target = out if height == 1 else partial if count == rows else less
                kernel((grid, height), (256,),
                       (source, target, np.uint32(count), width, np.int32(squared)))  # fmt: skip
                if height == 1:
                    return out
                source, count, squared = target, height, 0

        return columns
    kernel = _row_kernel(name, length)
    threads = next(t for t in (32, 64, 128, 256, 512, 1024)
                   if (length // 4) % t == 0 and length // 4 // t <= 8)  # fmt: skip
    result = cupy.empty_like(x) if out is None else out
    extra = inputs[1:] if name == "layernorm" else (x, x)

    def launch() -> Any:
        kernel((rows,), (threads,), (x, *extra, result))
        return result

    return launch
