"""CUDA C++ written by hand for each kind of case, compiled as a CuPy RawKernel.

Elementwise: 256 threads, one float4 of each input, streaming loads and stores. Reductions: leaves
of 65,536 elements, 512 threads with four float4 in flight, the last block combines; those of more
than one value are in cuda_reduce.py, running sums and selections in cuda_scan.py, rows and columns
in cuda_rows.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse.bench.case import Case, Kernel
from itfuse.bench.peers import cuda_reduce, cuda_rows, cuda_scan
from itfuse.bench.peers.base import Peer, kernel_of, results

_C = {"float32": "float", "float64": "double", "int8": "signed char", "int16": "short",
      "int32": "int", "int64": "long long", "uint8": "unsigned char",
      "float16": "__half"}  # fmt: skip
_LEAF = 1 << 16

_ELEMENTWISE = r"""
typedef %(storage)s S;
typedef %(arithmetic)s T;
struct __align__(16) Vector { S s[16 / sizeof(S)]; };
constexpr int WIDTH = 16 / sizeof(S);
__device__ Vector load(const S* p) {
    int4 raw = __ldcs((const int4*)p);
    return *(Vector*)&raw;
}
extern "C" __global__ void __launch_bounds__(256)
bench_elementwise(%(takes)s, %(gives)s, unsigned long long n) {
    unsigned long long at = (blockIdx.x * 256ull + threadIdx.x) * WIDTH;
    if (at + WIDTH <= n) {
%(loads)s
        Vector %(vectors)s;
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
%(vector)s
%(kept)s
        }
%(stores)s
    } else {
        for (; at < n; ++at) {
%(scalars)s
%(written)s
        }
    }
}
"""

_REDUCTION = r"""
typedef %(storage)s T;
struct __align__(16) Vector { T s[16 / sizeof(T)]; };
constexpr int WIDTH = 16 / sizeof(T), THREADS = 512, DEEP = 4;
constexpr unsigned long long LEAF = %(leaf)d;
__device__ T combine(T a, T b) { return %(combine)s; }
__device__ T block(T value) {
    __shared__ T shared[THREADS / 32];
    for (int d = 16; d; d /= 2) value = combine(value, __shfl_down_sync(~0u, value, d));
    if (threadIdx.x %% 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x < THREADS / 32 ? shared[threadIdx.x] : %(identity)s;
    if (threadIdx.x < 32)
        for (int d = 16; d; d /= 2) value = combine(value, __shfl_down_sync(~0u, value, d));
    __syncthreads();
    return value;
}
extern "C" __global__ void __launch_bounds__(512)
bench_reduction(%(takes)s, T* out, unsigned long long n, T* partial, unsigned int* done) {
    __shared__ bool last;
    T total = %(identity)s;
    unsigned long long first = blockIdx.x * LEAF;
    unsigned long long end = first + LEAF < n ? first + LEAF : n;
    unsigned long long at = first + threadIdx.x * WIDTH;
    for (; at + (DEEP - 1) * THREADS * WIDTH + WIDTH <= end; at += DEEP * THREADS * WIDTH) {
        #pragma unroll
        for (int j = 0; j < DEEP; ++j) {
%(loads)s
            #pragma unroll
            for (int k = 0; k < WIDTH; ++k) {
%(vector)s
                total = combine(total, %(map)s);
            }
        }
    }
    for (; at < end; at += THREADS * WIDTH)
        for (unsigned long long i = at; i < end && i < at + WIDTH; ++i) {
%(scalars)s
            total = combine(total, %(map)s);
        }
    total = block(total);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = total;
        __threadfence();
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    T a = %(identity)s;
    for (unsigned int i = threadIdx.x; i < gridDim.x; i += THREADS)
        a = combine(a, ((volatile T*)partial)[i]);
    a = block(a);
    if (threadIdx.x == 0) *out = %(finish)s;
}
"""


def source(kernel: Kernel, inputs: int, dtype: str) -> str:
    """Return the kernel of a case."""
    storage = _C[dtype]
    parts = {
        "storage": storage,
        "arithmetic": "float" if dtype == "float16" else storage,
        "takes": ", ".join(f"const {'T' if kernel.combine else 'S'}* p{k}" for k in range(inputs)),
        "map": kernel.map,
        "combine": kernel.combine,
        "finish": kernel.finish,
        "identity": kernel.identity,
        "leaf": _LEAF,
    }
    load, scalar = "load(p{k} + at)", "        T x{k} = T(p{k}[at]);"
    if kernel.combine:
        load = "*(const Vector*)(p{k} + at + j * THREADS * WIDTH)"
        scalar = "            T x{k} = p{k}[i];"
    vector = "                T x{k} = T(v{k}.s[k]);"
    lines = [f"            Vector v{{k}} = {load};", vector, scalar]
    for name, line in zip(("loads", "vector", "scalars"), lines, strict=True):
        parts[name] = "\n".join(
            line.replace("{k}", str(k)).replace(f".s[{k}]", ".s[k]") for k in range(inputs)
        )
    maps = (kernel.map, *kernel.also)
    places = range(len(maps))
    parts["gives"] = ", ".join(f"S* out{j}" for j in places)
    parts["vectors"] = ", ".join(f"r{j}" for j in places)
    before = [f"            {kernel.before}"] * bool(kernel.before)
    kept = [f"            r{j}.s[k] = S({one});" for j, one in enumerate(maps)]
    written = [f"            out{j}[at] = S({one});" for j, one in enumerate(maps)]
    parts["kept"], parts["written"] = "\n".join(before + kept), "\n".join(before + written)
    parts["stores"] = "\n".join(
        f"        __stcs((int4*)(out{j} + at), *(int4*)&r{j});" for j in places
    )
    head = "#include <cuda_fp16.h>\n" if dtype == "float16" else ""
    return head + (_REDUCTION if kernel.combine else _ELEMENTWISE) % parts


@functools.cache
def _build(kernel: Kernel, inputs: int, dtype: str) -> Any:
    import cupy

    name = "bench_reduction" if kernel.combine else "bench_elementwise"
    return cupy.RawKernel(source(kernel, inputs, dtype), name, options=("-std=c++17",))


class ByHand(Peer):
    """Hand-written kernels."""

    name = "CUDA C++"
    title = "a CUDA C++ kernel written by hand"
    builds = 0.4
    library = "cupy"

    def may_have(self, case: Case) -> bool:
        """Return whether a kernel of the case has been written."""
        return case.kernel is not None or bool(case.hand)

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a launch of the case's kernel."""
        if case.hand:
            if case.hand in cuda_reduce.PROGRAMS:
                return cuda_reduce.bind(case.hand, inputs, out, device)
            return cuda_rows.bind(case.hand, inputs, out, device)
        dtypes = tuple(_C) if case.elementwise else ("float32", "float64")
        kernel = kernel_of(case, inputs, dtypes, whole=True, several=True)
        if kernel.scan or kernel.keep:
            return cuda_scan.bind(kernel, inputs[0], out, device)
        dtype = str(inputs[0].dtype)
        built = _build(kernel, len(inputs), dtype)
        count = inputs[0].size
        size = np.uint64(count)
        if not kernel.combine:
            grid = (-(-count // (256 * (16 // inputs[0].dtype.itemsize))),)

            outs = (out,) if out is not None else results(device, case, inputs)

            def transform() -> Any:
                built(grid, (256,), (*inputs, *outs, size))
                return outs

            return transform
        blocks = -(-count // _LEAF)
        partial = device.cupy.empty(blocks, dtype)
        done = device.cupy.zeros(1, "uint32")

        def reduce() -> Any:
            built((blocks,), (512,), (*inputs, out, size, partial, done))
            return out

        return reduce

    def moves(self, case: Case, inputs: tuple[Any, ...], least: int) -> int | None:
        """Return every input and result once; rows too long for registers are read again."""
        if case.hand in cuda_rows.ROWS and cuda_rows.reads_twice(case.hand, inputs[0].shape[-1]):
            return least + int(inputs[0].nbytes)
        return least


PEERS = (ByHand(),)
