"""The kernel of segments: one launch, balanced whatever their lengths are.

Elements and segments are numbered together: segment k begins at number offsets[k] + k, its element
i is i further. A block takes a window of these numbers, which it finds by binary search: so it has
as many elements and segments together as every other block, be it part of one segment or thousands
of empty ones. It combines all leaves (plan/order.py) that begin in its window:

- a segment of up to 128 elements by as many lanes of a warp as it has vectors of four, those of
  like lengths side by side;
- one of up to 1,024 by a warp;
- a leaf of a longer one by the block. A window holds the beginnings of at most two leaves of
  segments with more than one, so that their results have a place each; the last block to finish
  with a segment combines them.

A segment thus combines as a whole array of its length does. How many blocks there are, and what
shares a window with what, decides nothing.
"""

from __future__ import annotations

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.accumulator import fresh, from_lane, item_dtype, item_functions, item_struct
from itfuse.lower.cpp import comment, index_type, load_text, prelude, struct_text
from itfuse.lower.layout import state_layout
from itfuse.lower.tile import (
    TileKernel,
    access,
    element_values,
    fixed_values,
    needs_of,
    one_text,
    program_text,
    vector_loads,
)
from itfuse.lower.tile_reduce import BLOCK_TREE
from itfuse.plan.order import LANES, LARGE, LARGE_LEAF, LEAF, THREADS, WARP
from itfuse.plan.stages import Stage, fields

WINDOW = LEAF
"""Elements and segments of a block. Its places for leaves need a leaf, or a part of one."""

_NUMBERS = f"""\
constexpr int V = {LANES}, WINDOW = {WINDOW}, WARPS = {THREADS // WARP}, STEP = {THREADS * LANES};
constexpr int SHORT = {WARP * LANES};  // elements that lanes of one warp take, a vector each
constexpr int MIDDLE = {THREADS * LANES};  // that one warp walks; the block takes longer ones
constexpr int MIDDLES = WINDOW / SHORT, LONGS = WINDOW / MIDDLE;  // that begin in one window
"""

_BOUND = """\
// Where segment k begins: inside of the array, whatever the offset is.
__device__ __forceinline__ long long bound(const State& s, long long k) {
  const long long at = (long long)s.OFFSETS[k];
  return at < 0 ? 0 : at < s.n ? at : s.n;
}
__device__ __forceinline__ long long length_of(const State& s, long long k, long long begin) {
  const long long end = bound(s, k + 1);
  return end > begin ? end - begin : 0;
}
// The first segment that begins at `number` or behind, by one warp: each step cuts what is left
// into 32 parts.
__device__ __forceinline__ long long first_from(const State& s, long long number) {
  long long low = 0, high = s.segments;
  while (low < high) {
    const long long part = (high - low + 31) / 32;
    const long long at = low + (threadIdx.x % 32 + 1) * part - 1;
    const bool before = at < high && bound(s, at) + at < number;
    low += __popc(__ballot_sync(0xffffffffu, before)) * part;
    high = low + part - 1 < high ? low + part - 1 : high;
  }
  return low;
}
"""

_SOME = """\
// Combines the elements of a vector that starts at `at`, as far as the segment goes.
__device__ __forceinline__ Item some(const State& s, long long at, long long end) {
  Item lane[V];
#pragma unroll
  for (int k = 0; k < V; ++k) lane[k] = identity();
  if (at < end) {
    Item b[V];  // all are loaded before the first is waited for
#pragma unroll
    for (int k = 0; k < V; ++k) b[k] = one(s, at + k < end ? at + k : end - 1);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (at + k < end) lane[k] = combine(lane[k], b[k]);
    }
  }
  return combine(combine(lane[0], lane[1]), combine(lane[2], lane[3]));
}
"""

_VECTORS = """\
// Combines a leaf, by the block; the result is thread 0's. Vectors are loaded where the array has
// them, which is `shift` elements before the leaf's own: what they add up is then moved.
__device__ __forceinline__ Item leaf_of(
    const State& s, long long begin, long long end, Item* moved) {
  Item lane[V];
#pragma unroll
  for (int k = 0; k < V; ++k) lane[k] = identity();
  const int shift = (int)(begin % V);
  long long at = begin - shift + (int)threadIdx.x * V;
  if (at < begin) {
#pragma unroll
    for (int k = 1; k < V; ++k) {
      if (k >= shift && at + k < end) lane[k] = combine(lane[k], one(s, at + k));
    }
    at += STEP;
  }
FIXED#pragma unroll 4
  for (; at + V <= end; at += STEP) {
LOADS#pragma unroll
    for (int k = 0; k < V; ++k) {
      Item b;
ELEMENT      lane[k] = combine(lane[k], b);
    }
  }
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (at + k < end) lane[k] = combine(lane[k], one(s, at + k));
  }
  if (shift != 0) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < V; ++k) {
      moved[((int)threadIdx.x * V + k + STEP - shift) % STEP] = lane[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < V; ++k) lane[k] = moved[(int)threadIdx.x * V + k];
  }
  return block_combine(combine(combine(lane[0], lane[1]), combine(lane[2], lane[3])));
}
"""

_ELEMENTS = """\
// Combines a leaf, by the block; the result is thread 0's.
__device__ __forceinline__ Item leaf_of(
    const State& s, long long begin, long long end, Item* moved) {
  Item lane[V];
#pragma unroll
  for (int k = 0; k < V; ++k) lane[k] = identity();
#pragma unroll 1
  for (long long at = begin + (int)threadIdx.x * V; at < end; at += STEP) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (at + k < end) lane[k] = combine(lane[k], one(s, at + k));
    }
  }
  return block_combine(combine(combine(lane[0], lane[1]), combine(lane[2], lane[3])));
}
"""

_LEAVES = f"""\
// Combines leaf `number` of segment k, by the block, and writes what the segment's finish makes of
// it; of more leaves than one, the last block to finish does.
__device__ __forceinline__ void leaf_number(
    const State& s, long long k, long long begin, long long length, long long number,
    Item* moved) {{
  const long long span = length < {LARGE} ? {LEAF} : {LARGE_LEAF};
  const long long at = begin + number * span;
  const long long end = begin + length;
  const Item whole = leaf_of(s, at, at + span < end ? at + span : end, moved);
  if (length <= span) {{
    if (threadIdx.x == 0) finish(s, whole, k);
    return;
  }}
  // Of the leaves that begin in a window, at most one is a first and at most one another's.
  const long long leaves = (length + span - 1) / span;
  const long long window = (begin + k) / WINDOW;
  Item* const partial = reinterpret_cast<Item*>(s.finished + (gridDim.x + 3) / 4 * 4);
  __shared__ bool is_last;
  if (threadIdx.x == 0) {{
    partial[2 * (window + number * (span / WINDOW)) + (number == 0)] = whole;
    __threadfence();
    is_last = atomicAdd(s.finished + window, 1u) == leaves - 1;
  }}
  __syncthreads();
  const bool last = is_last;
  __syncthreads();  // before another leaf writes it
  if (!last) return;
  __threadfence();
  Item a = identity();
#pragma unroll 4
  for (long long leaf = threadIdx.x; leaf < leaves; leaf += {THREADS}) {{
    a = combine(a, fresh(partial + 2 * (window + leaf * (span / WINDOW)) + (leaf == 0)));
  }}
  a = block_combine(a);
  if (threadIdx.x == 0) finish(s, a, k);
}}
"""

_KERNEL = f"""\
  __shared__ long long from[2];
  __shared__ int middles, longs;
  __shared__ unsigned short middle[MIDDLES], longer[LONGS];  // segments, from the first on
  __shared__ unsigned char order[WARPS][32];  // lanes, those of like lengths beside each other
  __shared__ Item part[WARPS][WARPS];
MOVED  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long low = (long long)blockIdx.x * WINDOW, high = low + WINDOW;
  if (threadIdx.x == 0) middles = longs = 0;
  if (warp < 2) {{
    const long long found = first_from(s, warp == 0 ? low : high);
    if (lane == 0) from[warp] = found;
  }}
  __syncthreads();
  const long long first = from[0], last = from[1];
  // A warp takes 32 segments, or fewer where there are few.
  const int count = last < first ? 0 : last - first < WINDOW ? (int)(last - first) : WINDOW;
  const int batch = count < WARPS * 32 ? (count + WARPS - 1) / WARPS : 32;
  const unsigned lower = (1u << lane) - 1;
#pragma unroll 1
  for (int start = warp * batch; start < count; start += WARPS * batch) {{
    long long begin = 0, length = 0;
    const bool there = lane < batch && start + lane < count;
    if (there) {{
      begin = bound(s, first + start + lane);
      length = length_of(s, first + start + lane, begin);
    }}
    if (length > MIDDLE) {{
      const int at = atomicAdd(&longs, 1);
      if (at < LONGS) longer[at] = (unsigned short)(start + lane);
    }} else if (length > SHORT) {{
      const int at = atomicAdd(&middles, 1);
      if (at < MIDDLES) middle[at] = (unsigned short)(start + lane);
    }}
    // Groups of 1, 2, 4, ... lanes, a segment each.
    const int vectors = length > SHORT ? 0 : ((int)length + V - 1) / V;
    const int kind = !there || length > SHORT ? -1 : vectors < 2 ? 0 : 32 - __clz(vectors - 1);
#pragma unroll 1
    for (int k = 0; k < 6; ++k) {{
      const unsigned like = __ballot_sync(0xffffffffu, kind == k);
      if (like == 0) continue;
      if (kind == k) order[warp][__popc(like & lower)] = (unsigned char)lane;
      __syncwarp();
      const int many = __popc(like), own = lane & ((1 << k) - 1);
#pragma unroll 1
      for (int done = 0; done < many; done += 32 >> k) {{
        const int turn = done + (lane >> k);
        const int source = turn < many ? order[warp][turn] : lane;
        const long long at = __shfl_sync(0xffffffffu, begin, source);
        const int size = __shfl_sync(0xffffffffu, (int)length, source);
        Item a = some(s, at + own * V, turn < many ? at + size : at);
#pragma unroll 1
        for (int apart = (1 << k) / 2; apart > 0; apart /= 2) a = combine(a, from_lane(a, apart));
        if (turn < many && own == 0) finish(s, a, first + start + source);
      }}
      __syncwarp();
    }}
  }}
  __syncthreads();
  // Lists are as long as can be, unless offsets fall.
  const int all = middles < MIDDLES ? middles : MIDDLES, most = longs < LONGS ? longs : LONGS;
#pragma unroll 1
  for (int at = warp; at < all; at += WARPS) {{
    const long long k = first + middle[at], begin = bound(s, k);
    const int length = (int)length_of(s, k, begin);
#pragma unroll 2
    for (int w = 0; w < WARPS; ++w) {{
      if (w * SHORT < length) {{
        const Item a = warp_combine(some(s, begin + w * SHORT + lane * V, begin + length));
        if (lane == 0) part[warp][w] = a;
      }}
    }}
    __syncwarp();
    Item a = identity();
    if (lane < WARPS && lane * SHORT < length) a = part[warp][lane];
#pragma unroll
    for (int apart = WARPS / 2; apart > 0; apart /= 2) a = combine(a, from_lane(a, apart));
    if (lane == 0) finish(s, a, k);
    __syncwarp();
  }}
  // The block: a leaf of the segment that began earlier, if one begins here, then first ones.
#pragma unroll 1
  for (int at = -1; at < most; ++at) {{
    if (at < 0 && first == 0) continue;
    const long long k = at < 0 ? first - 1 : first + longer[at];
    const long long begin = bound(s, k), length = length_of(s, k, begin);
    long long number = 0;
    if (at < 0) {{
      const long long span = length < {LARGE} ? {LEAF} : {LARGE_LEAF};
      number = (low - begin - k + span - 1) / span;
      if (number < 1 || number * span >= length || begin + k + number * span >= high) continue;
    }}
    leaf_number(s, k, begin, length, number, moved);
  }}
}}
"""


def windows(stage: Stage) -> int:
    """Return how many blocks share the elements and segments."""
    return max(1, -(-(stage.size + stage.outputs[0].size) // WINDOW))


def lower_segments(stage: Stage, name: str, aligned: bool) -> TileKernel:
    """Write a variant of the kernel of segments, with symbols that start with `name`."""
    assert stage.finish is not None
    offsets = len(stage.inputs) - 1
    slots = sorted({*stage.element.slots, *stage.finish.slots, offsets})
    extra = (
        (
            "unsigned* finished;  // leaves, by the segment's window; then two Items a window",
            "Q",
        ),
        ("long long segments;", "q"),
    )
    state = state_layout(stage, slots, whole=True, extra=extra)
    symbol = f"{name}_segments"
    combined = [name for name, _ in fields(stage.combine)]
    vectors = not any(stage.inputs[slot].mapped for slot in stage.element.slots)
    leaf = _vectors(stage) if vectors else _ELEMENTS
    moved = f"__shared__ Item room[{THREADS * LANES}];\n  Item* const moved = room;"
    moved = moved if vectors else "Item* const moved = nullptr;"
    source = "".join([
        prelude(stage),
        access(aligned),
        from_lane(combined),
        fresh(combined),
        item_struct(stage.combine),
        item_functions(stage.combine),
        BLOCK_TREE,
        struct_text("State", [declaration for declaration, _ in state.fields]),
        _NUMBERS,
        comment(stage.element, "r{at}"),
        one_text(stage, state.rank),
        _BOUND.replace("OFFSETS", f"x{offsets}"),
        "".join(f"// a.r{at} = {one.shown} over the r{at} of a segment\n"
                for at, one in enumerate(stage.combine)),
        comment(stage.finish, "y{at}"),
        _finish(stage),
        _SOME,
        leaf,
        _LEAVES,
        f'extern "C" __global__ void __launch_bounds__({THREADS}, {_blocks(stage)}) {symbol}('
        "const State s) {\n",
        _KERNEL.replace("MOVED", f"  {moved}\n"),
    ])  # fmt: skip
    size = item_dtype(stage.combine).itemsize
    needs = None
    if aligned and vectors:
        needs = needs_of(stage, stage.element.slots, LANES, outputs=False)
    return TileKernel(
        symbol, source, state, THREADS, 0, grid=windows, needs=needs,
        zeroed=lambda stage: (windows(stage) + 3) // 4 * 16 + windows(stage) * 2 * size,
        numbers=lambda stage: (stage.outputs[0].size,),
    )  # fmt: skip


def _blocks(stage: Stage) -> int:
    """Return how many blocks of a multiprocessor the compiler is to leave registers for."""
    members = [np.dtype(name).itemsize for name, _ in fields(stage.combine)]
    return 1 if sum(members) > 16 or max(members) > 8 else 2


def _finish(stage: Stage) -> str:
    """Write what is computed of a segment and written at its place."""
    assert stage.finish is not None
    slots = stage.finish.slots
    index = index_type(stage)
    mapped = any(stage.inputs[slot].mapped for slot in slots)
    return "".join([
        "__device__ __forceinline__ void finish(\n"
        "    const State& s, const Item& a, const long long i) {\n",
        f"  const {index} i0 = ({index})i;\n" if mapped else "",
        *(load_text(stage, slot) for slot in slots),
        program_text(stage.finish, [_stored(stage, at) for at in range(len(stage.outputs))]),
        "}\n",
    ])  # fmt: skip


def _stored(stage: Stage, at: int) -> str:
    if not stage.outputs[at].strides:
        return f"s.y{at}[i] = {{value}};"
    cpp = DTYPES[stage.outputs[at].dtype].cpp
    place = f"reinterpret_cast<char*>(s.y{at}) + i * s.ystep{at}[0]"
    return f"*reinterpret_cast<{cpp}*>({place}) = {{value}};"


def _vectors(stage: Stage) -> str:
    """Write how a block combines a leaf of contiguous inputs."""
    slots = stage.element.slots
    element = element_values(stage, slots) + program_text(
        stage.element, "b.r{at} = {value};", "    "
    )
    return (
        _VECTORS.replace("FIXED", fixed_values(stage, slots))
        .replace("LOADS", vector_loads(stage, slots, "at"))
        .replace("ELEMENT", element)
    )
