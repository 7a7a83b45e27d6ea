"""The scan kernel where a row takes several tiles that lie in vectors: tiles in shared memory.

One bulk copy brings a tile, which is read twice from shared memory: once for what comes before each
vector, and for the tile's total, and once for the values. Little stays in registers, so many
blocks of a multiprocessor have a tile on its way while others look back.
"""

from __future__ import annotations

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.accumulator import item_dtype
from itfuse.lower.staged import BULK, TILES
from itfuse.lower.tile import by_layout, fixed_values, program_text
from itfuse.plan.order import SCAN_TILE, THREADS, scan_class
from itfuse.plan.stages import Stage

HEAD = f"constexpr int BLOCK = {THREADS};\n{BULK}"


def tile_bytes(stage: Stage) -> int:
    """Return the bytes of a block's tiles."""
    slots = by_layout(stage, stage.element.slots, "linear")
    return sum(np.dtype(stage.inputs[slot].dtype).itemsize for slot in slots) * SCAN_TILE


def fits(stage: Stage, room: int) -> bool:
    """Return whether rows of several tiles go through `room` bytes of shared memory.

    What comes before each vector stays in registers: accumulators must be small.
    """
    small = item_dtype(stage.combine).itemsize <= 8
    return small and scan_class(stage.length)[1] and 0 < tile_bytes(stage) <= room


def blocks(stage: Stage) -> int:
    """Return the blocks of a multiprocessor that there is shared memory and registers for."""
    fit = 4 if item_dtype(stage.combine).itemsize <= 4 else 3
    return max(1, min(fit, TILES // max(1, tile_bytes(stage))))


def bring(stage: Stage) -> str:
    """Bring the tile, if it is full and aligned; `in_x<slot>` are its first elements."""
    lines = ["  __shared__ unsigned long long arrived;\n", "  unsigned char* free_room = room;\n"]
    copies = ""
    for slot in by_layout(stage, stage.element.slots, "linear"):
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        lines += [
            f"  {cpp}* const in_x{slot} = reinterpret_cast<{cpp}*>(free_room);\n",
            f"  free_room += TILE * sizeof({cpp});\n",
        ]
        copies += f"    copy_in(in_x{slot}, s.x{slot} + flat, TILE * sizeof({cpp}), &arrived);\n"
    return "".join([
        *lines, "  stage_begin(&arrived);\n", f"  if (even) {{\n{copies}  }}\n",
        "  stage_wait(&arrived);\n",
    ])  # fmt: skip


def piece(stage: Stage) -> str:
    """Write how a thread gets its vector of chunk `c`, combined in turn."""
    slots = stage.element.slots
    linear = by_layout(stage, slots, "linear")
    cpp = {slot: DTYPES[stage.inputs[slot].dtype].cpp for slot in linear}
    return "".join([
        "  const auto piece = [&](int c, Item (&v)[EACH]) {\n    if (even) {\n",
        fixed_values(stage, slots),
        *(f"      Vec<{cpp[s]}, EACH> e{s};\n      load(e{s}, in_x{s} + slot_of(c * EACH), true);\n"
          for s in linear),
        "#pragma unroll\n      for (int w = 0; w < EACH; ++w) {\n        Item item;\n",
        *(f"        const {cpp[s]} x{s} = e{s}.at[w];\n" for s in linear),
        program_text(stage.element, "item.r{at} = {value};", "        "),
        "        v[w] = item;\n      }\n    } else {\n",
        "#pragma unroll\n      for (int w = 0; w < EACH; ++w) {\n",
        "        const long long i = place(slot_of(c * EACH + w));\n",
        "        v[w] = i >= 0 ? one(s, i) : identity();\n      }\n    }\n",
        "#pragma unroll\n",
        "    for (int w = 1; w < EACH; ++w) v[w] = combine(v[w - 1], v[w]);\n  };\n",
    ])  # fmt: skip


BEFORE = """\
  // What comes before each vector in this warp's part: of a chunk, then of the chunks before.
  Item pre[CHUNKS], run = identity();
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    Item v[EACH];
    piece(c, v);
    Item total = v[EACH - 1];
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const Item other = from_before(total, apart);
      if (lane >= apart) total = combine(other, total);
    }
    pre[c] = from_before(total, 1);
    const Item whole = from_last(total);
    if (c != 0) pre[c] = lane > 0 ? combine(run, pre[c]) : run;
    run = c != 0 ? combine(run, whole) : whole;
  }
  // What comes before the part, if anything `has`.
  if (lane == 0) sums[warp] = run;
  __syncthreads();
  bool has = warp > 0;
  Item before = sums[0];
  for (int w = 1; w < warp; ++w) before = combine(before, sums[w]);
"""


def values(exclusive: bool, store: str) -> str:
    """Write the second walk: the values of each vector, and what becomes of them."""
    shift = (
        "#pragma unroll\n    for (int w = EACH - 1; w > 0; --w) {\n"
        "      v[w] = some ? combine(first, v[w - 1]) : v[w - 1];\n    }\n"
        "    v[0] = some ? first : identity();\n"
    )
    plain = (
        "#pragma unroll\n    for (int w = 0; w < EACH; ++w) {\n"
        "      if (some) v[w] = combine(first, v[w]);\n    }\n"
    )
    return "".join([
        "#pragma unroll\n  for (int c = 0; c < CHUNKS; ++c) {\n",
        "    Item v[EACH];\n    piece(c, v);\n",
        "    const bool inside = lane > 0 || c != 0, some = has || inside;\n",
        "    const Item first = !has ? pre[c] : inside ? combine(before, pre[c]) : before;\n",
        shift if exclusive else plain,
        store,
        "  }\n",
    ])  # fmt: skip
