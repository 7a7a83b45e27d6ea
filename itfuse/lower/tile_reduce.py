"""The reduction kernel: one launch, in the order of plan/order.py.

A leaf is one block's own work, so that how many blocks share the leaves decides nothing. The last
block to finish combines the leaves and writes the results.
"""

from __future__ import annotations

import numpy as np

from itfuse import ops
from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import expression, index_text, load_text, prelude, struct_text
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.tile import (
    ACCESS,
    TileKernel,
    by_layout,
    element_values,
    fixed_values,
    index_begin,
    index_next,
    program_text,
    vector_loads,
)
from itfuse.plan.order import LANES, LARGE, LARGE_LEAF, LEAF, THREADS
from itfuse.plan.stages import Stage

_SHUFFLE = """\
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
template <> __device__ __forceinline__ unsigned long long from_lane(unsigned long long v,
                                                                    int distance) {
  return __shfl_down_sync(0xffffffffu, v, distance);
}
"""

_FRESH = """\
// What other blocks of this launch wrote: from the second-level cache, which all of them share.
template <typename T> __device__ __forceinline__ T fresh(const T* p) {
  typedef typename Raw<sizeof(T)>::type raw;
  const raw bits = __ldcg(reinterpret_cast<const raw*>(p));
  return *reinterpret_cast<const T*>(&bits);
}
"""

_BLOCK_TREE = f"""\
// Combines the values of all threads; the result is thread 0's.
__device__ __forceinline__ Item block_combine(Item a) {{
  __shared__ Item of_warp[{THREADS // 32}];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) a = combine(a, from_lane(a, distance));
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = a;
  __syncthreads();
  if (threadIdx.x < 32) {{
    a = of_warp[threadIdx.x % {THREADS // 32}];
#pragma unroll
    for (int distance = {THREADS // 64}; distance > 0; distance /= 2) {{
      a = combine(a, from_lane(a, distance));
    }}
  }}
  return a;
}}
"""

_LAST = f"""\
  // The last block to finish combines the leaves and writes the results.
  Item a = whole;
  if (gridDim.x > 1 || s.n > leaf_size) {{
    __shared__ bool is_last;
    if (threadIdx.x == 0) {{
      __threadfence();
      is_last = atomicAdd(s.finished, 1u) == gridDim.x - 1;
    }}
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    const long long leaves = (s.n + leaf_size - 1) / leaf_size;
    a = identity();
#pragma unroll 8
    for (long long leaf = threadIdx.x; leaf < leaves; leaf += {THREADS}) {{
      a = combine(a, fresh(s.partial + leaf));
    }}
    a = block_combine(a);
    if (threadIdx.x == 0) *s.finished = 0;  // ready for the next launch on this stream
  }}
  if (threadIdx.x != 0) return;
"""


def lower_reduce(stage: Stage, name: str) -> TileKernel:
    """Write the kernel of a reduction, with symbols that start with `name`."""
    assert stage.finish is not None
    slots = sorted({*stage.element.slots, *stage.finish.slots})
    extra = (("Item* partial;", "Q"), ("unsigned* finished;", "Q"))
    state = state_layout(stage, slots, whole=True, extra=extra)
    symbol = f"{name}_reduce"
    members = [DTYPES[one.dtype].cpp for one in stage.combine]
    source = "".join([
        prelude(stage),
        ACCESS,
        _SHUFFLE,
        _FRESH,
        struct_text("Item", [f"{cpp} r{at};" for at, cpp in enumerate(members)]),
        _item_functions(stage),
        _BLOCK_TREE,
        struct_text("State", [declaration for declaration, _ in state.fields]),
        _one(stage, state),
        _kernel(stage, state).replace("SYMBOL", symbol),
    ])  # fmt: skip
    partial = np.dtype([(f"r{k}", c.dtype) for k, c in enumerate(stage.combine)], align=True)
    return TileKernel(symbol, source, state, THREADS, 0, partial.itemsize)


def _literal(combine: str, dtype: str) -> str:
    """Return the operator's identity as C++ that needs no header."""
    value = ops.identity(combine, np.dtype(dtype))
    cpp = DTYPES[dtype].cpp
    if dtype == "float32":
        return f"__int_as_float({int(value.view(np.int32))})"
    if dtype == "float64":
        return f"__longlong_as_double({int(value.view(np.int64))}ll)"
    if dtype == "int64":  # its least value has no literal
        return f"(long long){int(value) % 2**64}ull"
    suffix = "ull" if dtype == "uint64" else ""
    return f"({cpp}){int(value)}{suffix}"


def _each(stage: Stage, line: str) -> str:
    return "".join("  " + line.replace("#", str(at)) + "\n" for at in range(len(stage.combine)))


def _item_functions(stage: Stage) -> str:
    identity = "".join(
        f"  a.r{at} = {_literal(one.op, one.dtype)};\n" for at, one in enumerate(stage.combine)
    )
    combine = ""
    for at, one in enumerate(stage.combine):
        code = expression(one.op, [f"a.r{at}", f"b.r{at}"], [one.dtype] * 2, one.dtype)
        combine += f"  r.r{at} = {code};  // {one.op}\n"
    shuffle = _each(stage, "a.r# = from_lane(a.r#, distance);")
    fresh = _each(stage, "a.r# = fresh(&p->r#);")
    head = "__device__ __forceinline__ Item"
    return (
        f"{head} identity() {{\n  Item a;\n{identity}  return a;\n}}\n"
        f"{head} combine(const Item& a, const Item& b) {{\n  Item r;\n{combine}  return r;\n}}\n"
        f"{head} from_lane(Item a, int distance) {{\n{shuffle}  return a;\n}}\n"
        f"{head} fresh(const Item* p) {{\n  Item a;\n{fresh}  return a;\n}}\n"
    )


def _one(stage: Stage, state: StateLayout) -> str:
    """Write the element function at an index, for the last leaf."""
    slots = stage.element.slots
    rank = state.rank
    loads = "".join(load_text(stage, slot, rank) for slot in slots)
    return (
        "__device__ __forceinline__ Item one(const State& s, const long long i) {\n"
        f"{index_text(rank, narrow=state.narrow) if rank else ''}  Item b;\n{loads}"
        f"{program_text(stage.element, 'b.r{at} = {value};')}  return b;\n}}\n"
    )


def _lanes(stage: Stage) -> int:
    """Return the accumulators of a thread.

    Integers combine to the same bits in any order, so that narrow ones may fill 16-byte loads.
    """
    if any(DTYPES[one.dtype].kind == "f" for one in stage.combine):
        return LANES
    linear = by_layout(stage, stage.element.slots, "linear")
    widest = max((np.dtype(stage.inputs[slot].dtype).itemsize for slot in linear), default=4)
    return max(LANES, 16 // widest)


def _unroll(stage: Stage) -> int:
    """Return how many vectors of each input are in flight.

    Eight of one or two inputs measured best (docs/performance.md); index maps need the registers.
    """
    slots = stage.element.slots
    if stage.strided or by_layout(stage, slots, "gathered"):
        return 1
    return 8 if len(by_layout(stage, slots, "linear")) <= 2 else 4


def _bounds(stage: Stage) -> str:
    """Return the launch bounds.

    A light map over one input fits 32 registers, so that 8 blocks of 256 fill a multiprocessor;
    at 34 (an epilogue that divides) 6 fit, which measured 7 % slower. Heavier maps would spill.
    """
    light = (
        _lanes(stage) == LANES
        and len(stage.combine) == len(by_layout(stage, stage.element.slots, "linear")) == 1
        and all(i.layout in ("linear", "fixed") for i in stage.inputs)
        and len(stage.element.instrs) <= 4
        and all(np.dtype(i.dtype).itemsize <= 4 for i in stage.element.instrs)
        and not any(ops.OPS[i.op].ulp for i in stage.element.instrs if i.op in ops.OPS)
    )
    return f"{THREADS}, 8" if light else f"{THREADS}"


def _kernel(stage: Stage, state: StateLayout) -> str:
    assert stage.finish is not None
    slots = stage.element.slots
    lanes = _lanes(stage)
    steps = LEAF // (THREADS * lanes)
    vector = "".join([
        vector_loads(stage, slots, "begin", ""),
        index_begin(state.rank, "begin", state.narrow),
        "#pragma unroll\n  for (int k = 0; k < V; ++k) {\n",
        "    Item b;\n",
        element_values(stage, slots, state.rank),
        program_text(stage.element, "b.r{at} = {value};", "    "),
        "    lane[k] = combine(lane[k], b);\n",
        index_next(state.rank),
        "  }\n",
    ])  # fmt: skip
    finish_loads = "".join(load_text(stage, slot, 0) for slot in stage.finish.slots)
    bounds = f"__launch_bounds__({_bounds(stage)})"
    return "".join([
        f'extern "C" __global__ void {bounds} SYMBOL(const State s) {{\n',
        f"  constexpr int V = {lanes};\n",
        "  Item whole = identity();\n",
        f"  const int rounds = s.n < {LARGE} ? 1 : {LARGE_LEAF // LEAF};\n",
        f"  const long long leaf_size = {LEAF}ll * rounds;\n",
        "  for (long long leaf = blockIdx.x; leaf * leaf_size < s.n; leaf += gridDim.x) {\n",
        "  Item lane[V];\n",
        "#pragma unroll\n  for (int k = 0; k < V; ++k) lane[k] = identity();\n",
        fixed_values(stage, slots),
        "  const long long first = leaf * leaf_size;\n",
        "  if (first + leaf_size <= s.n) {\n",
        "  for (int round = 0; round < rounds; ++round) {\n",
        f"#pragma unroll {_unroll(stage)}\n",
        f"  for (int step = 0; step < {steps}; ++step) {{\n",
        f"  const long long begin =\n"
        f"      first + ((round * {steps} + step) * {THREADS} + (int)threadIdx.x) * V;\n",
        vector,
        "  }\n  }\n",
        "  } else {\n",
        f"  for (int step = 0; step < {steps} * rounds; ++step) {{\n",
        f"  const long long begin = first + (step * {THREADS} + (int)threadIdx.x) * V;\n",
        "  if (begin + V <= s.n) {\n",
        vector,
        "  } else {\n",
        "#pragma unroll\n  for (int k = 0; k < V; ++k) {\n",
        "    if (begin + k < s.n) lane[k] = combine(lane[k], one(s, begin + k));\n",
        "  }\n  }\n  }\n  }\n",
        "#pragma unroll\n  for (int apart = 1; apart < V; apart *= 2) {\n",
        "#pragma unroll\n  for (int k = 0; k < V; k += 2 * apart) {\n",
        "    lane[k] = combine(lane[k], lane[k + apart]);\n  }\n  }\n",
        "  whole = block_combine(lane[0]);\n",
        "  if (threadIdx.x == 0) s.partial[leaf] = whole;\n",
        "  }\n",
        _LAST,
        finish_loads,
        program_text(stage.finish, "*s.y{at} = {value};"),
        "}\n",
    ])  # fmt: skip
