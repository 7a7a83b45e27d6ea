"""The kernels over rows: every row on chip, walked phase by phase in the order of plan/order.py.

A row belongs to some lanes of a warp, to a warp, to a block, or to a block with a leaf for each 256
threads, by its length (`plan.order.row_class`). A thread has vectors of four elements. It keeps
them in registers from one phase to the next where they fit, and loads them again otherwise (from
the caches: a row was read a moment ago). Longer rows that are only reduced go leaf by leaf; where
there are few, several blocks share one.
"""

from __future__ import annotations

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.accumulator import item_dtype
from itfuse.lower.cpp import places, struct_text
from itfuse.lower.row_shapes import ABREAST, DEEP, RowShape
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
from itfuse.lower.staged import SHARED, STAGED, Tiles
from itfuse.lower.tile import TileKernel
from itfuse.lower.tile_long import lower_long
from itfuse.plan.order import LANES, LEAF, WARP, power
from itfuse.plan.stages import Stage, fields

HELD = 128
"""Bytes of inputs that a thread keeps in registers from phase to phase."""


def lower_rows(stage: Stage, name: str, aligned: bool) -> TileKernel:
    """Write a variant of the kernel of a `rows` stage, with symbols that start with `name`."""
    kind, count = stage.size_class
    assert isinstance(count, int)
    if kind == "long":
        return lower_long(stage, name, aligned)
    state = row_state(stage)
    symbol = f"{name}_rows"
    shape = RowShape(str(kind), count)
    tiles = None
    if not aligned:
        shape, tiles = _staged(stage, shape)
    source = "".join([
        row_head(stage, aligned),
        STAGED if tiles else "",
        struct_text("State", [declaration for declaration, _ in state.fields]),
        *(shape.tree(phase, q) for q, phase in enumerate(stage.phases) if phase.combine),
        _kernel(stage, shape, symbol, tiles),
    ])  # fmt: skip
    needs = row_needs(stage, state.slots) if aligned else None
    return TileKernel(symbol, source, state, shape.block, 0, grid=shape.grid, needs=needs)


def _staged(stage: Stage, shape: RowShape) -> tuple[RowShape, Tiles | None]:
    """Return the tiles of a kernel for rows that vectors do not fit, and its shape.

    A thread then reads shared memory, so that it may as well have several vectors of a short row.
    """
    used = sorted({slot for phase in stage.phases for slot in phase.element.slots})
    linear = tuple(s for s in arrays(stage, used) if stage.inputs[s].layout == "linear")
    if not linear or shape.kind in ("leaves", "walk"):
        return shape, None
    size = sum(np.dtype(stage.inputs[s].dtype).itemsize for s in linear)
    outputs = stage.element_outputs
    wished = min(8, shape.lanes) if shape.kind == "lanes" else 1
    largest = max((item_dtype(p.combine).itemsize for p in stage.phases if p.combine), default=0)
    while wished > 1 and wished * largest > DEEP:
        wished //= 2
    while True:
        mine = RowShape("lanes", shape.lanes, wished) if shape.kind == "lanes" else shape
        tiles = Tiles(linear, outputs, mine.block * mine.vectors * LANES)
        # Where outputs take the inputs' place, those are in registers by then.
        kept = not outputs or size * mine.vectors * LANES <= HELD
        if tiles.bytes(stage) <= SHARED and kept:
            return mine, tiles
        if wished == 1:
            return shape, None
        wished //= 2


def _kernel(stage: Stage, shape: RowShape, symbol: str, tiles: Tiles | None) -> str:
    phases = stage.phases
    used = sorted({slot for phase in phases for slot in phase.element.slots})
    every = sorted({*used, *(s for p in phases if p.finish for s in p.finish.slots)})
    moved = moving(stage, used)
    readers = {s: [q for q, p in enumerate(phases) if s in p.element.slots] for s in moved}
    again = [s for s in moved if len(readers[s]) > 1 and stage.inputs[s].kind != "iota"]
    size = sum(np.dtype(stage.inputs[s].dtype).itemsize for s in again)
    fits = size * shape.vectors * LANES <= HELD and shape.kind != "walk"
    held = again if fits else []
    if tiles and tiles.outputs:
        held = sorted({*held, *tiles.inputs})
    local = f"threadIdx.x / {shape.lanes} * length" if shape.apart else "0"
    lines = [
        f'extern "C" __global__ void __launch_bounds__({shape.bounds})\n',
        f"{symbol}(const State s) {{\n",
        f"  constexpr int N = {shape.vectors};  // vectors of a thread\n",
        "  const int length = (int)s.length;\n",
        shape.mine,
        row_indices(stage),
        bases(stage, every),
        tiles.load(stage, shape.each, local, shape.block) if tiles else "",
    ]
    lines += [f"  Vec<{DTYPES[stage.inputs[s].dtype].cpp}, {LANES}> h{s}[N];\n" for s in held]
    first = 0
    for q, phase in enumerate(phases):
        fresh = [s for s in held if readers[s][0] == q]
        if fresh:  # every load is on its way before the first is waited for
            lines.append("#pragma unroll\n  for (int u = 0; u < N; ++u) {\n" + shape.vector)
            lines += [_load(stage, s, f"h{s}[u]", tiles) for s in fresh]
            lines.append("  }\n")
        if tiles and q == len(phases) - 1:
            lines.append(tiles.outputs_begin(stage, local))
        lines.append(_phase(stage, shape, q, held, tiles))
        if tiles and q == len(phases) - 1:
            lines.append(tiles.outputs_end(stage, shape.block))
        lines.append(finish_text(stage, phase, first, f"a{q}"))
        first += len(phase.finish.results) if phase.finish else 0
    lead = "lane == 0" if shape.apart else "threadIdx.x == 0"
    if stage.written:
        lines.append(f"  if ({lead} && on) {{\n")
        count = stage.element_outputs
        for at, value in enumerate(stage.written):
            lines.append(f"    s.y{count + at}[row] = q{value};\n")
        lines.append("  }\n")
    lines.append("}\n")
    return "".join(lines)


def _load(stage: Stage, slot: int, to: str, tiles: Tiles | None) -> str:
    if tiles and slot in tiles.inputs:
        return f"    shared_piece({to}, t{slot} + j, left);\n"
    return load_piece(stage, slot, to, "j", "left")


def _phase(stage: Stage, shape: RowShape, q: int, held: list[int], tiles: Tiles | None) -> str:
    """Write one walk: load what is not held, compute, combine, or store."""
    phase = stage.phases[q]
    slots = phase.element.slots
    last = q == len(stage.phases) - 1
    loaded = [s for s in moving(stage, slots) if s not in held]
    cpp = {s: DTYPES[stage.inputs[s].dtype].cpp for s in arrays(stage, range(len(stage.inputs)))}
    combined = len(fields(phase.combine))
    outputs = stage.outputs[: stage.element_outputs] if last else ()
    stores = [f"b.r{at} = {{value}};" for at in range(combined)]
    stores += [f"o{at}.at[w] = {{value}};" for at in range(len(outputs))]
    item = f"Item{q}"
    if not phase.combine and not outputs:
        return ""
    levels = power(shape.vectors).bit_length() - 1
    deep = shape.deep(phase, any(s in held for s in slots))
    lines = []
    inside = ""  # the accumulators of one vector, or of all
    if phase.combine:
        if deep:
            lines.append(f"  {item} waits[{levels}], whole;\n")
            inside = start_lanes(item, q)
        elif shape.apart:
            lines.append(f"  {item} v{q}[N];\n")
            inside = start_lanes(item, q)
        else:
            lines.append(start_lanes(item, q))
    walk = shape.kind == "walk"
    opening = closing = ""
    if walk:
        opening = f"  for (int base = 0; base * {LEAF} < length; base += {ABREAST}) {{\n"
        closing = "  }\n"
        if phase.combine:
            opening = f"  __shared__ {item} leaf_of[{WARP}];\n" + opening
    body = [
        once(stage, slots),
        _order(shape.vectors) if deep else _EACH,
        shape.vector,
        *(f"    Vec<{cpp[s]}, {LANES}> e{s};\n" + _load(stage, s, f"e{s}", tiles)
          for s in loaded),
        *(f"    Vec<{DTYPES[o.dtype].cpp}, {LANES}> o{at};\n" for at, o in enumerate(outputs)),
        inside,
        f"#pragma unroll\n    for (int w = 0; w < {LANES}; ++w) {{\n",
        f"      {item} b;\n" if phase.combine else "",
        "      const long long position = j + w;\n" if places(phase.element) else "",
        *(f"      const {cpp[s]} x{s} = {f'h{s}[u]' if s in held else f'e{s}'}.at[w];\n"
          for s in moving(stage, slots)),
        element_text(phase.element, stores),
        TAKE if phase.combine else "",
        "    }\n",
        combine_lanes("whole") + _DEEPER.replace("LEVELS", str(levels))
        if deep
        else combine_lanes(f"v{q}[u]") if phase.combine and shape.apart else "",
        *(f"    shared_put(u{at} + j, o{at}, left);\n" if tiles
          else f"    put(s.y{at} + row * s.length + j, o{at}, left);\n"
          for at in range(len(outputs))),
        "  }\n",
    ]  # fmt: skip
    ending = ""
    if phase.combine and not shape.apart:
        ending = f"  {item} total{q};\n" + combine_lanes(f"total{q}")
    declared = f"  {item} a{q};\n" if phase.combine else ""
    result = ""
    if deep:
        result = f"  a{q} = of_lane(whole, 0);\n"
    elif phase.combine:
        result = f"  a{q} = row_combine({f'v{q}' if shape.apart else f'total{q}'});\n"
    if walk and phase.combine:
        ending += f"  leaf_combine(total{q}, base, leaf_of);\n"
        result = f"  a{q} = row_combine(leaf_of, (length + {LEAF - 1}) / {LEAF});\n"
    return "".join([declared, "  {\n", opening, *lines, *body, ending, closing, result, "  }\n"])


_EACH = "#pragma unroll\n  for (int u = 0; u < N; ++u) {\n"


def _order(vectors: int) -> str:
    """Walk the vectors in the order in which the tree over them is combined depth first."""
    bits = power(vectors).bit_length() - 1
    turned = " | ".join(f"(n >> {k} & 1) << {bits - 1 - k}" for k in range(bits))
    return (
        f"#pragma unroll 1\n  for (int n = 0; n < {1 << bits}; ++n) {{\n"
        f"    const int u = {turned};\n"
    )


_DEEPER = """\
    whole = warp_combine(whole);
    bool go = true;
#pragma unroll
    for (int level = 0; level < LEVELS; ++level) {
      if (go) {
        if (n >> level & 1) {
          whole = combine(waits[level], whole);
        } else {
          waits[level] = whole;
          go = false;
        }
      }
    }
"""
