"""Hand-written CUDA C++ over rows of float32.

Rows of whole float4 for each thread: one block a row, the row in registers. Rows of any other
length up to 32,768: a warp or less for a short row, a block for a long one, in registers as well.
Longer ones are read twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.bench.peers import cuda_columns
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

_LOWEST = "__int_as_float(0xff800000)"  # minus infinity

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
    "max": r"""
    float top = v[0].x;
    for (int k = 0; k < VECTORS; ++k)
        top = fmaxf(fmaxf(fmaxf(top, v[k].x), fmaxf(v[k].y, v[k].z)), v[k].w);
    top = block<greater>(top, top);
    if (threadIdx.x == 0) out[blockIdx.x] = top;
""",
    "var": r"""
    float total = 0, spread = 0;
    for (int k = 0; k < VECTORS; ++k) total += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    float mean = block<add>(total, 0) / LENGTH;
    for (int k = 0; k < VECTORS; ++k) {
        v[k] = make_float4(v[k].x - mean, v[k].y - mean, v[k].z - mean, v[k].w - mean);
        spread += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
    }
    spread = block<add>(spread, 0);
    if (threadIdx.x == 0) out[blockIdx.x] = spread / LENGTH;
""",
    # The value's bits in an order of their own, then the place: the first of the greatest wins.
    "argmax of rows": r"""
    unsigned long long best = 0;
    for (int k = 0; k < VECTORS; ++k) {
        unsigned at = (threadIdx.x + k * THREADS) * 4;
        float values[4] = { v[k].x, v[k].y, v[k].z, v[k].w };
        for (int j = 0; j < 4; ++j) {
            unsigned bits = __float_as_uint(values[j] + 0.0f);  // -0 is 0
            bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
            unsigned long long key = (unsigned long long)bits << 32 | (0xffffffffu - (at + j));
            best = key > best ? key : best;
        }
    }
    __shared__ unsigned long long keys[WARPS];
    for (int d = 16; d; d /= 2) {
        unsigned long long other = __shfl_xor_sync(~0u, best, d);
        best = other > best ? other : best;
    }
    if (threadIdx.x % 32 == 0) keys[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x) return;
    for (int k = 1; k < WARPS; ++k) best = keys[k] > best ? keys[k] : best;
    ((long long*)out)[blockIdx.x] = 0xffffffffu - (unsigned)best;
""",
}

ROWS = tuple(_BODIES)
"""Names of the kernels over rows."""

# A row of any length: GROUP threads have it in registers, neighbours in neighbouring threads.
_ANY = r"""
constexpr int LENGTH = %(length)d, GROUP = %(group)d, ITEMS = %(items)d, ROWS = THREADS / GROUP;
template <float (*F)(float, float)> __device__ float all(float v, float identity) {
    if (GROUP > 32) return block<F>(v, identity);
    for (int d = (GROUP > 32 ? 32 : GROUP) / 2; d; d /= 2)
        v = F(v, __shfl_xor_sync(~0u, v, d));
    return v;
}
extern "C" __global__ void __launch_bounds__(THREADS) bench_row(
    const float* x, const float* w, const float* b, float* out, unsigned rows) {
    const unsigned row = blockIdx.x * ROWS + threadIdx.x / GROUP, lane = threadIdx.x %% GROUP;
    const bool here = row < rows;
    const size_t base = (size_t)row * LENGTH;
    float v[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        unsigned at = lane + k * GROUP;
        v[k] = here && at < LENGTH ? __ldcs(x + base + at) : %(pad)s;
    }
%(body)s
}
"""

_ANY_BODIES = {
    "softmax": (
        _LOWEST,
        r"""
    float top = v[0], total = 0;
    for (int k = 1; k < ITEMS; ++k) top = fmaxf(top, v[k]);
    top = all<greater>(top, top);
    for (int k = 0; k < ITEMS; ++k) {
        v[k] = expf(v[k] - top);
        total += lane + k * GROUP < LENGTH ? v[k] : 0;
    }
    float scale = 1.0f / all<add>(total, 0);
    for (int k = 0; k < ITEMS; ++k) {
        unsigned at = lane + k * GROUP;
        if (here && at < LENGTH) __stcs(out + base + at, v[k] * scale);
    }
""",
    ),
    "layernorm": (
        "0.0f",
        r"""
    float total = 0, spread = 0;
    for (int k = 0; k < ITEMS; ++k) total += v[k];
    float mean = all<add>(total, 0) / LENGTH;
    for (int k = 0; k < ITEMS; ++k) {
        v[k] = lane + k * GROUP < LENGTH ? v[k] - mean : 0;
        spread += v[k] * v[k];
    }
    float scale = rsqrtf(all<add>(spread, 0) / LENGTH + 1e-5f);
    for (int k = 0; k < ITEMS; ++k) {
        unsigned at = lane + k * GROUP;
        if (here && at < LENGTH) __stcs(out + base + at, v[k] * scale * w[at] + b[at]);
    }
""",
    ),
    "squares": (
        "0.0f",
        r"""
    float total = 0;
    for (int k = 0; k < ITEMS; ++k) total += v[k] * v[k];
    total = all<add>(total, 0);
    if (here && lane == 0) out[row] = total;
""",
    ),
}

# Longer rows: a block a row, which is read once for its statistics and once more for its elements.
_LONG = r"""
constexpr int LENGTH = %(length)d;
extern "C" __global__ void __launch_bounds__(THREADS) bench_row(
    const float* x, const float* w, const float* b, float* out, unsigned rows) {
    const float* row = x + (size_t)blockIdx.x * LENGTH;
%(body)s
}
"""

_LONG_BODIES = {
    "softmax": r"""
    float top = row[threadIdx.x], total = 0;
    #pragma unroll 8
    for (int at = threadIdx.x; at < LENGTH; at += THREADS) {
        float v = row[at];
        if (v > top) { total = total * expf(top - v) + 1; top = v; } else total += expf(v - top);
    }
    float all = block<greater>(top, top);
    float scale = 1.0f / block<add>(total * expf(top - all), 0);
    #pragma unroll 8
    for (int at = threadIdx.x; at < LENGTH; at += THREADS)
        __stcs(out + (size_t)blockIdx.x * LENGTH + at, expf(row[at] - all) * scale);
""",
    "layernorm": r"""
    float pivot = row[0], total = 0, squares = 0;
    #pragma unroll 8
    for (int at = threadIdx.x; at < LENGTH; at += THREADS) {
        float d = row[at] - pivot;
        total += d; squares += d * d;
    }
    float apart = block<add>(total, 0) / LENGTH, mean = pivot + apart;
    float scale = rsqrtf(block<add>(squares, 0) / LENGTH - apart * apart + 1e-5f);
    #pragma unroll 8
    for (int at = threadIdx.x; at < LENGTH; at += THREADS)
        __stcs(out + (size_t)blockIdx.x * LENGTH + at, (row[at] - mean) * scale * w[at] + b[at]);
""",
    "squares": r"""
    float total = 0;
    #pragma unroll 8
    for (int at = threadIdx.x; at < LENGTH; at += THREADS) {
        float v = __ldcs(row + at);
        total += v * v;
    }
    total = block<add>(total, 0);
    if (threadIdx.x == 0) out[blockIdx.x] = total;
""",
}

_IN_REGISTERS = 32  # elements of a thread


@dataclass(frozen=True)
class Shape:
    """How rows of one length are spread over threads.

    Attributes
    ----------
    kind : str
        `vectors`, `any` or `long`.
    threads : int
        Of a block.
    group : int
        Threads that share a row.
    """

    kind: str
    threads: int
    group: int


def shape_of(name: str, length: int) -> Shape:
    """Return how the kernel `name` has rows of `length`.

    Raises
    ------
    NotForThis
        If it has none.

    Examples
    --------
    >>> shape_of("softmax", 1024).kind, shape_of("softmax", 1001).kind
    ('vectors', 'any')
    >>> shape_of("softmax", 100).group, shape_of("softmax", 65_536).kind
    (8, 'long')
    """
    vectors = length // 4
    for threads in (32, 64, 128, 256, 512, 1024):
        if length % 4 == 0 and vectors % threads == 0 and vectors // threads <= 8:
            return Shape("vectors", threads, threads)
    if name not in _ANY_BODIES:
        raise NotForThis(f"no hand-written kernel for rows of {length}")
    if length > 1024 * _IN_REGISTERS:
        return Shape("long", 1024, 1024)
    group = 1
    while group < 1024 and group * 16 < length:  # about sixteen elements of a thread
        group *= 2
    if group > 32:
        group = max(group, 128)
    return Shape("any", max(group, 256) if group <= 32 else group, group)


def reads_twice(name: str, length: int) -> bool:
    """Return whether a row is read once more, for its elements.

    Examples
    --------
    >>> reads_twice("softmax", 65_536), reads_twice("squares", 65_536)
    (True, False)
    """
    return name != "squares" and shape_of(name, length).kind == "long"


def source(name: str, length: int) -> str:
    """Return the kernel of a row program for rows of `length`.

    Raises
    ------
    NotForThis
        If there is none.
    """
    shape = shape_of(name, length)
    parts: dict[str, Any] = {"threads": shape.threads, "length": length, "vectors": 1}
    if shape.kind == "vectors":
        parts.update(vectors=length // 4 // shape.threads, body=_BODIES[name])
        return (_HEAD + _ROW) % parts
    if shape.kind == "long":
        return (_HEAD + _LONG) % {**parts, "body": _LONG_BODIES[name]}
    pad, body = _ANY_BODIES[name]
    parts.update(group=shape.group, items=-(-length // shape.group), pad=pad, body=body)
    return (_HEAD + _ANY) % parts


@functools.cache
def _row_kernel(name: str, length: int) -> Any:
    import cupy

    return cupy.RawKernel(source(name, length), "bench_row", options=("-std=c++17",))


def bind(name: str, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
    """Return a launch of the row or column kernel `name`."""
    x = inputs[0]
    if str(x.dtype) != "float32":
        raise NotForThis(f"not written for {x.dtype}")
    if name in cuda_columns.COLUMNS:
        return cuda_columns.bind(name, x, out, device)
    rows, length = x.shape
    shape, kernel = shape_of(name, length), _row_kernel(name, length)
    result = device.cupy.empty_like(x) if out is None else out
    extra = inputs[1:] if name == "layernorm" else (x, x)
    arguments = (x, *extra, result, np.uint32(rows))
    if shape.kind == "vectors":
        arguments = arguments[:-1]
    grid, block = (-(-rows * shape.group // shape.threads),), (shape.threads,)

    def launch() -> Any:
        kernel(grid, block, arguments)
        return result

    return launch
