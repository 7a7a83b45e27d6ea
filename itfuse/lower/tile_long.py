"""The kernel for long rows that are only reduced: leaf by leaf, in the order of plan/order.py.

A block has a row; where there are few, several blocks share one, and the last to finish with it
combines its leaves.
"""

from __future__ import annotations

from itfuse.dtypes import DTYPES
from itfuse.lower.accumulator import item_dtype
from itfuse.lower.cpp import places, struct_text
from itfuse.lower.rows import (
    TAKE,
    arrays,
    bases,
    combine_lanes,
    element_text,
    finish_text,
    load_piece,
    moving,
    once,
    row_head,
    row_indices,
    row_needs,
    row_state,
    start_lanes,
)
from itfuse.lower.tile import TileKernel
from itfuse.plan.order import LANES, LARGE, LARGE_LEAF, LEAF, THREADS, WARP, leaf
from itfuse.plan.stages import Stage, fields

FEW = 1 << 10
"""Below this many long rows several blocks share a row."""


def splits(stage: Stage) -> int:
    """Return how many blocks share a row."""
    if stage.rows >= FEW or stage.rows == 0:
        return 1
    return min(-(-stage.length // leaf(stage.length)), -(-FEW // stage.rows))


_LONG = f"""\
  const int splits = gridDim.x / s.rows;
  const long long row = blockIdx.x / splits;
  const int part = blockIdx.x % splits;
  const int rounds = s.length < {LARGE} ? 1 : {LARGE_LEAF // LEAF};
  const long long leaf_size = {LEAF}ll * rounds;
  const long long leaves = (s.length + leaf_size - 1) / leaf_size;
"""

_LONG_TREE = f"""\
// Combines the values of all threads; the result is thread 0's.
__device__ __forceinline__ Item0 block_combine(Item0 a) {{
  __shared__ Item0 of_warp[{THREADS // WARP}];
#pragma unroll
  for (int distance = {WARP // 2}; distance > 0; distance /= 2) {{
    a = combine(a, from_lane(a, distance));
  }}
  __syncthreads();
  if (threadIdx.x % {WARP} == 0) of_warp[threadIdx.x / {WARP}] = a;
  __syncthreads();
  if (threadIdx.x < {WARP}) {{
    a = of_warp[threadIdx.x % {THREADS // WARP}];
#pragma unroll
    for (int distance = {THREADS // WARP // 2}; distance > 0; distance /= 2) {{
      a = combine(a, from_lane(a, distance));
    }}
  }}
  return a;
}}
"""

_LONG_LAST = f"""\
  if (splits > 1) {{
    // The last block to finish with a row combines its leaves.
    __shared__ bool is_last;
    if (threadIdx.x == 0) {{
      __threadfence();
      is_last = atomicAdd(s.finished + row, 1u) == splits - 1;
    }}
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    for (long long leaf = threadIdx.x; leaf < leaves; leaf += {THREADS}) {{
      mine = combine(mine, fresh(s.partial + row * leaves + leaf));
    }}
    if (threadIdx.x == 0) s.finished[row] = 0;  // ready for the next launch on this stream
  }}
  const Item0 a0 = block_combine(mine);
  if (threadIdx.x != 0) return;
"""


def _ahead(stage: Stage) -> int:
    """Return how many vectors of an input are on their way at once: more registers would spill."""
    return 4 if item_dtype(stage.combine).itemsize <= 16 else 2


def lower_long(stage: Stage, name: str, aligned: bool) -> TileKernel:
    """Write a variant of the kernel, with symbols that start with `name`."""
    extra = (("Item0* partial;", "Q"), ("unsigned* finished;", "Q"))
    state = row_state(stage, extra)
    symbol = f"{name}_long_rows"
    phase = stage.phases[0]
    slots = phase.element.slots
    moved = moving(stage, slots)
    cpp = {s: DTYPES[stage.inputs[s].dtype].cpp for s in arrays(stage, slots)}
    stores = [f"b.r{at} = {{value}};" for at in range(len(fields(phase.combine)))]
    every = sorted({*slots, *(phase.finish.slots if phase.finish else ())})
    steps, ahead = LEAF // THREADS // LANES, _ahead(stage)
    each = (
        f"#pragma unroll\n  for (int n = 0; n < {ahead}; ++n) {{\n"
        "    const long long j = leaf * leaf_size +\n"
        f"        ((round * {steps} + step + n) * {THREADS} + (int)threadIdx.x) * {LANES};\n"
        "    const long long left = s.length - j;\n"
    )
    kernel = "".join([
        f'extern "C" __global__ void __launch_bounds__({THREADS}, 2) {symbol}(const State s) {{\n',
        _LONG,
        row_indices(stage),
        bases(stage, every),
        "  Item0 mine = identity0();\n  __shared__ Item0 of_leaf;\n  {\n",
        once(stage, slots),
        "  for (long long leaf = part; leaf < leaves; leaf += splits) {\n",
        start_lanes("Item0", 0),
        "  for (int round = 0; round < rounds; ++round) {\n",
        f"#pragma unroll 1\n  for (int step = 0; step < {steps}; step += {ahead}) {{\n",
        # Left to the compiler, loads stay behind the branches of the steps before.
        *(f"  Vec<{cpp[s]}, {LANES}> e{s}[{ahead}];\n" for s in moved),
        each,
        *(load_piece(stage, s, f"e{s}[n]", "j", "left") for s in moved),
        "  }\n",
        each,
        f"#pragma unroll\n    for (int w = 0; w < {LANES}; ++w) {{\n      Item0 b;\n",
        "      const long long position = j + w;\n" if places(phase.element) else "",
        *(f"      const {cpp[s]} x{s} = e{s}[n].at[w];\n" for s in moved),
        element_text(phase.element, stores),
        TAKE,
        "    }\n  }\n  }\n  }\n",
        "  Item0 whole;\n",
        combine_lanes("whole"),
        "  whole = block_combine(whole);\n",
        "  if (splits > 1) {\n"
        "    if (threadIdx.x == 0) s.partial[row * leaves + leaf] = whole;\n"
        "  } else {\n"
        "    if (threadIdx.x == 0) of_leaf = whole;\n"
        "    __syncthreads();\n"
        f"    if (threadIdx.x == leaf % {THREADS}) mine = combine(mine, of_leaf);\n"
        "  }\n  }\n  }\n",
        _LONG_LAST,
        finish_text(stage, phase, 0, "a0"),
        *(f"  s.y{at}[row] = q{value};\n" for at, value in enumerate(stage.written)),
        "}\n",
    ])  # fmt: skip
    source = "".join([
        row_head(stage, aligned),
        _LONG_TREE,
        struct_text("State", [declaration for declaration, _ in state.fields]),
        kernel,
    ])  # fmt: skip
    return TileKernel(
        symbol, source, state, THREADS, 0, item_dtype(phase.combine).itemsize,
        grid=lambda stage: max(1, stage.rows) * splits(stage),
        needs=row_needs(stage, slots) if aligned else None,
        partials=lambda stage: stage.rows * -(-stage.length // leaf(stage.length)),
        counters=lambda stage: max(1, stage.rows),
    )  # fmt: skip
