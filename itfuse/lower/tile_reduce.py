"""The reduction kernel: one launch, in the order of plan/order.py.

A leaf is one block's own work, so that how many blocks share the leaves decides nothing. The last
block to finish combines the leaves and writes the results.
"""

from __future__ import annotations

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.accumulator import fresh, from_lane, item_dtype, item_functions, item_struct
from itfuse.lower.cpp import (
    comment,
    index_text,
    load_text,
    places,
    prelude,
    single_index,
    struct_text,
)
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.tile import (
    ROW,
    TileKernel,
    access,
    by_layout,
    element_values,
    fixed_values,
    needs_of,
    one_text,
    program_text,
    strided_loads,
    vector_loads,
)
from itfuse.plan.order import LANES, LARGE, LARGE_LEAF, LEAF, THREADS
from itfuse.plan.stages import Stage, fields

BLOCK_TREE = f"""\
// Combines the values of a warp; the result is its first thread's.
__device__ __forceinline__ Item warp_combine(Item a) {{
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) a = combine(a, from_lane(a, distance));
  return a;
}}
// Combines the values of all threads; the result is thread 0's.
__device__ __forceinline__ Item block_combine(Item a) {{
  __shared__ Item of_warp[{THREADS // 32}];
  a = warp_combine(a);
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
    if (leaves <= 32 && threadIdx.x >= 32) return;  // the other warps would hold identities
    a = identity();
#pragma unroll 8
    for (long long leaf = threadIdx.x; leaf < leaves; leaf += {THREADS}) {{
      a = combine(a, fresh(s.partial + leaf));
    }}
    a = leaves <= 32 ? warp_combine(a) : block_combine(a);
    if (threadIdx.x == 0) *s.finished = 0;  // ready for the next launch on this stream
  }}
  if (threadIdx.x != 0) return;
"""


def lower_reduce(stage: Stage, name: str, aligned: bool) -> TileKernel:
    """Write a variant of the kernel of a reduction, with symbols that start with `name`."""
    assert stage.finish is not None
    slots = sorted({*stage.element.slots, *stage.finish.slots})
    extra = (("Item* partial;", "Q"), ("unsigned* finished;", "Q"))
    state = state_layout(stage, slots, whole=True, extra=extra)
    symbol = f"{name}_reduce"
    combined = [name for name, _ in fields(stage.combine)]
    source = "".join([
        prelude(stage),
        access(aligned),
        ROW if stage.strided else "",
        from_lane(combined),
        fresh(combined),
        item_struct(stage.combine),
        item_functions(stage.combine),
        BLOCK_TREE,
        struct_text("State", [declaration for declaration, _ in state.fields]),
        comment(stage.element, "r{at}") + one_text(stage, state.rank),
        _combined(stage) + comment(stage.finish, "y{at}"),
        _kernel(stage, state, aligned).replace("SYMBOL", symbol),
    ])  # fmt: skip
    partial = item_dtype(stage.combine)
    needs = needs_of(stage, stage.element.slots, _lanes(stage), outputs=False) if aligned else None
    return TileKernel(symbol, source, state, THREADS, 0, partial.itemsize, needs=needs)


def _combined(stage: Stage) -> str:
    return "".join(
        f"// a.r{at} = {one.shown} over all r{at}\n" for at, one in enumerate(stage.combine)
    )


def _lanes(stage: Stage) -> int:
    """Return the accumulators of a thread.

    Integers combine to the same bits in any order, so that narrow ones may fill 16-byte loads.
    """
    if any(DTYPES[one.dtype].kind in "fc" for one in stage.combine):
        return LANES
    linear = by_layout(stage, stage.element.slots, "linear")
    widest = max((np.dtype(stage.inputs[slot].dtype).itemsize for slot in linear), default=4)
    return max(LANES, 16 // widest)


_AHEAD = 256
"""Bytes of a thread that are on their way at once: half of its registers."""


def _unroll(stage: Stage) -> int:
    """Return how many vectors of each input are in flight: at most `_AHEAD` bytes of all together.

    Eight of one float32 input measured best (docs/performance.md); index maps need the registers.
    """
    slots = stage.element.slots
    if stage.strided or by_layout(stage, slots, "gathered"):
        return 1
    if any(np.dtype(one.dtype).itemsize > 8 for one in stage.combine):
        return 2  # a vector of complex128 is four loads already
    linear = by_layout(stage, slots, "linear")
    count = 8 if len(linear) <= 2 else 4
    size = sum(np.dtype(stage.inputs[slot].dtype).itemsize for slot in linear)
    most = _AHEAD if len(linear) <= 2 else _AHEAD // 2  # each address takes registers as well
    while count > 1 and count * size * _lanes(stage) > most:
        count //= 2
    return count


def _ahead(stage: Stage, count: int, vector: str, combined: str) -> str:
    """Write `count` steps: every load is on its way before the first is waited for.

    Left to the compiler, loads stay behind the branches of the steps before, as of a division.
    """
    begin = f"  const long long begin = first + ((step + n) * {THREADS} + (int)threadIdx.x) * V;\n"
    steps = f"#pragma unroll\n  for (int n = 0; n < {count}; ++n) {{\n{begin}"
    linear = by_layout(stage, stage.element.slots, "linear")
    if count == 1 or not linear or stage.strided:
        return f"{steps}{vector}  }}\n"
    declared = loads = named = ""
    for slot in linear:
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        at = f"s.x{slot} + begin"
        declared += f"  Vec<{cpp}, V> ahead{slot}[{count}];\n"
        loads += f"  load(ahead{slot}[n], {at}, is_aligned<{cpp}, V>({at}));\n"
        named += f"  const Vec<{cpp}, V>& e{slot} = ahead{slot}[n];\n"
    return f"{declared}{steps}{loads}  }}\n{steps}{named}{combined}  }}\n"


def _kernel(stage: Stage, state: StateLayout, aligned: bool) -> str:
    # Asked for two blocks a multiprocessor, the compiler takes the registers that it needs; asked
    # for nothing, it stops at 40 or 48 for the sake of occupancy and spills.
    assert stage.finish is not None
    slots = stage.element.slots
    lanes = _lanes(stage)
    steps = LEAF // (THREADS * lanes)
    ahead = min(steps, _unroll(stage))
    combined = "".join([
        "#pragma unroll\n  for (int k = 0; k < V; ++k) {\n",
        "    Item b;\n",
        "    const long long position = begin + k;\n" if places(stage.element) else "",
        element_values(stage, slots),
        program_text(stage.element, "b.r{at} = {value};", "    "),
        "    lane[k] = combine(lane[k], b);\n",
        "  }\n",
    ])  # fmt: skip
    vector = "".join([
        vector_loads(stage, slots, "begin"),
        index_text(stage, state.rank, "begin"),
        strided_loads(stage, slots, state.rank, aligned),
        combined,
    ])  # fmt: skip
    finish_loads = single_index(stage, stage.finish.slots)
    finish_loads += "".join(load_text(stage, slot) for slot in stage.finish.slots)
    # Accumulators of more than 16 bytes, or of one complex128, need more than half of them.
    members = [np.dtype(name).itemsize for name, _ in fields(stage.combine)]
    blocks = 1 if sum(members) > 16 or max(members) > 8 else 2
    return "".join([
        f'extern "C" __global__ void __launch_bounds__({THREADS}, {blocks}) '
        "SYMBOL(const State s) {\n",
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
        f"  for (int step = 0; step < {steps} * rounds; step += {ahead}) {{\n",
        _ahead(stage, ahead, vector, combined),
        "  }\n",
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
