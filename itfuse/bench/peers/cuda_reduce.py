"""Hand-written CUDA C++ of whole reductions whose total is more than one float, over float32.

A thread adds to a few locals, closes them into a state, and states are combined: in a warp by
shuffles, in a block through shared memory, and by the last block over what the others left.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.bench.peers.base import NotForThis

_LEAF = 1 << 16


@dataclass(frozen=True)
class Program:
    """A reduction.

    Attributes
    ----------
    fields : str
        Members of the state.
    identity : str
        The state of no elements, as an initialiser.
    start, add, close : str
        Statements: what a thread begins with, for each element (`x0`, `x1`, its index `i`), and
        how the locals become the state `s`.
    combine : str
        Statements that add the state `b` to `a`; elements of `a` come first.
    results : tuple of (str, str)
        C++ type and expression of `a` and the number of elements `n`, for each result.
    """

    fields: str
    identity: str
    start: str
    add: str
    close: str
    combine: str
    results: tuple[tuple[str, str], ...]


# Sums about the first element of the leaf: one subtraction where Welford's way divides. The states
# of threads are merged as Chan, Golub and LeVeque (1979) do.
_MOMENTS_START = "float pivot = p0[first], sum = 0, squares = 0, count = 0;"
_MOMENTS_ADD = "float d = x0 - pivot; sum += d; squares += d * d; count += 1;"
_MOMENTS_CLOSE = """if (count > 0) {
        s.n = count; s.mean = pivot + sum / count; s.m2 = squares - sum * (sum / count);
    }"""
_MOMENTS_COMBINE = """if (b.n > 0) {
        float n = a.n + b.n, d = b.mean - a.mean;
        a.mean += d * (b.n / n); a.m2 += b.m2 + d * d * (a.n * (b.n / n)); a.n = n;
    }"""
_LEAST = ("__int_as_float(0x7f800000)", "__int_as_float(0xff800000)")  # both infinities

PROGRAMS = {
    "minmax": Program(
        "float low, high;", ", ".join(_LEAST),
        f"float low = {_LEAST[0]}, high = {_LEAST[1]};",
        "low = fminf(low, x0); high = fmaxf(high, x0);",
        "s.low = low; s.high = high;",
        "a.low = fminf(a.low, b.low); a.high = fmaxf(a.high, b.high);",
        (("float", "a.low"), ("float", "a.high")),
    ),
    "argmax": Program(
        "unsigned long long at; float value; int any;", f"0, {_LEAST[1]}, 0",
        f"unsigned long long place = 0; float value = {_LEAST[1]}; int any = 0;",
        "if (!any || x0 > value) { value = x0; place = i; any = 1; }",
        "s.at = place; s.value = value; s.any = any;",
        "if (b.any && (!a.any || b.value > a.value || (b.value == a.value && b.at < a.at))) a = b;",
        (("long long", "(long long)a.at"),),
    ),
    "moments": Program(
        "float n, mean, m2;", "0, 0, 0", _MOMENTS_START, _MOMENTS_ADD, _MOMENTS_CLOSE,
        _MOMENTS_COMBINE, (("float", "a.mean"), ("float", "a.m2 / a.n")),
    ),
    "five": Program(
        "float n, mean, m2, low, high, dot;", f"0, 0, 0, {', '.join(_LEAST)}, 0",
        f"{_MOMENTS_START} float low = {_LEAST[0]}, high = {_LEAST[1]}, dot = 0;",
        f"{_MOMENTS_ADD} low = fminf(low, x0); high = fmaxf(high, x0); dot += x0 * x1;",
        f"{_MOMENTS_CLOSE} s.low = low; s.high = high; s.dot = dot;",
        f"{_MOMENTS_COMBINE} a.low = fminf(a.low, b.low); a.high = fmaxf(a.high, b.high);"
        " a.dot += b.dot;",
        (("float", "a.mean"), ("float", "a.m2 / a.n"), ("float", "a.low"), ("float", "a.high"),
         ("float", "a.dot")),
    ),
    "pi": Program(
        "unsigned long long inside;", "0", "unsigned int inside = 0;",
        "inside += x0 * x0 + x1 * x1 < 1.0f;", "s.inside = inside;", "a.inside += b.inside;",
        (("long long", "(long long)a.inside"),),
    ),
}  # fmt: skip
"""Reductions by the name that a case gives them."""

_SOURCE = r"""
typedef unsigned long long u64;
struct State { %(fields)s };
constexpr int THREADS = 512, WORDS = sizeof(State) / 4;
constexpr u64 LEAF = %(leaf)d;
__device__ State nothing() { State s = { %(identity)s }; return s; }
__device__ void combine(State& a, State b) {
    %(combine)s
}
__device__ State block(State a) {
    __shared__ State shared[THREADS / 32];
    for (int d = 1; d < 32; d *= 2) {
        State b;
        #pragma unroll
        for (int k = 0; k < WORDS; ++k)
            ((int*)&b)[k] = __shfl_down_sync(~0u, ((int*)&a)[k], d);
        if (threadIdx.x %% 32 + d < 32) combine(a, b);
    }
    if (threadIdx.x %% 32 == 0) shared[threadIdx.x / 32] = a;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int k = 1; k < THREADS / 32; ++k) combine(a, shared[k]);
    __syncthreads();
    return a;
}
extern "C" __global__ void __launch_bounds__(512)
bench_states(%(takes)s, %(gives)s, u64 n, State* partial, unsigned int* done) {
    __shared__ bool last;
    u64 first = blockIdx.x * LEAF;
    u64 end = first + LEAF < n ? first + LEAF : n;
    %(start)s
    #pragma unroll 4
    for (u64 at = first + threadIdx.x * 4; at + 4 <= end; at += THREADS * 4) {
%(loads)s
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            u64 i = at + k;
            (void)i;
%(vector)s
            %(add)s
        }
    }
    u64 rest = first + (end - first) / 4 * 4;
    for (u64 i = rest + threadIdx.x; i < end; i += THREADS) {
%(scalars)s
        %(add)s
    }
    State s = nothing();
    %(close)s
    State a = block(s);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = a;
        __threadfence();
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    a = nothing();
    for (unsigned int k = threadIdx.x; k < gridDim.x; k += THREADS) {
        State b;
        for (int w = 0; w < WORDS; ++w) ((int*)&b)[w] = __ldcg((const int*)(partial + k) + w);
        combine(a, b);
    }
    a = block(a);
    if (threadIdx.x == 0) {
%(finish)s
    }
}
"""


def source(name: str, inputs: int) -> str:
    """Return the kernel of a reduction."""
    program = PROGRAMS[name]
    places = range(inputs)
    parts = {
        "fields": program.fields,
        "identity": program.identity,
        "combine": program.combine,
        "start": program.start,
        "add": program.add,
        "close": program.close,
        "leaf": _LEAF,
        "takes": ", ".join(f"const float* p{k}" for k in places),
        "gives": ", ".join(f"{kind}* out{k}" for k, (kind, _) in enumerate(program.results)),
        "loads": "\n".join(f"        float4 v{k} = *(const float4*)(p{k} + at);" for k in places),
        "vector": "\n".join(f"            float x{k} = ((float*)&v{k})[k];" for k in places),
        "scalars": "\n".join(f"        float x{k} = p{k}[i];" for k in places),
        "finish": "\n".join(
            f"        *out{k} = {text};" for k, (_, text) in enumerate(program.results)
        ),
    }
    return _SOURCE % parts


@functools.cache
def _build(name: str, inputs: int) -> Any:
    import cupy

    return cupy.RawKernel(source(name, inputs), "bench_states", options=("-std=c++17",))


_DTYPES = {"float": "float32", "long long": "int64"}


def bind(name: str, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
    """Return a launch of the reduction `name`; its results are arrays that are there."""
    if str(inputs[0].dtype) != "float32":
        raise NotForThis(f"not written for {inputs[0].dtype}")
    cupy, count = device.cupy, inputs[0].size
    program, built = PROGRAMS[name], _build(name, len(inputs))
    outs = tuple(cupy.empty((), _DTYPES[kind]) for kind, _ in program.results)
    if out is not None:
        outs = (out,)
    blocks, size = -(-count // _LEAF), np.uint64(count)
    partial = cupy.empty(blocks * 32, "uint8")  # a state has 32 bytes at most
    done = cupy.zeros(1, "uint32")

    def reduce() -> Any:
        built((blocks,), (512,), (*inputs, *outs, size, partial, done))
        return outs

    return reduce
