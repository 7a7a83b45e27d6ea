"""The kernels over rows: every row on chip, walked phase by phase in the order of plan/order.py.

A row belongs to some lanes of a warp, to a warp, to a block, or to a block with a leaf for each 256
threads, by its length (`plan.order.row_class`). A thread has vectors of four elements, from memory
or by way of shared memory (`row_rules.py`, `staged.py`). It keeps them, or what came of them
(`kept.py`), in registers from one phase to the next where they fit, and loads them again otherwise
(from shared memory or the caches: a row was read a moment ago). Longer rows that are only reduced
go leaf by leaf; where there are few, several blocks share one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.accumulator import item_dtype
from itfuse.lower.cpp import places, struct_text
from itfuse.lower.divisor import DIVISOR, divisors
from itfuse.lower.kept import Kept, keep
from itfuse.lower.row_rules import rule
from itfuse.lower.row_shapes import DEEP, MEET, RowShape
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
from itfuse.lower.staged import BULK, STAGED, Chip, Tiles
from itfuse.lower.tile import TileKernel
from itfuse.lower.tile_long import lower_long
from itfuse.plan.order import LANES, LEAF, THREADS, WARP, power
from itfuse.plan.stages import Phase, Stage, fields

_MEASURED = 4
"""Bytes of an element, or of what is combined, up to which registers suffice for the rules."""

HELD = 160
"""Bytes of inputs that a thread keeps in registers from phase to phase."""


def lower_rows(stage: Stage, name: str, aligned: bool, chip: Chip) -> TileKernel:
    """Write a variant of the kernel of a `rows` stage, with symbols that start with `name`."""
    kind, count = stage.size_class
    assert isinstance(count, int)
    if kind == "long":
        return lower_long(stage, name, aligned)
    state = row_state(stage)
    symbol = f"{name}_rows"
    shape, tiles = _shape(stage, str(kind), count, aligned, chip)
    source = "".join([
        row_head(stage, aligned),
        DIVISOR if any(divisors(phase.element) for phase in stage.phases) else "",
        _staged_text(shape) if tiles else "",
        MEET if shape.cluster > 1 else "",
        struct_text("State", [declaration for declaration, _ in state.fields]),
        *(shape.tree(phase, q) for q, phase in enumerate(stage.phases) if phase.combine),
        _kernel(stage, shape, symbol, tiles),
    ])  # fmt: skip
    needs = row_needs(stage, state.slots) if aligned else None
    shared = (lambda stage: tiles.bytes(stage, stage.length)) if tiles else None
    return TileKernel(
        symbol, source, state, shape.block, 0, grid=shape.grid, needs=needs, shared=shared
    )


def _staged_text(shape: RowShape) -> str:
    turned = "true" if shape.lanes > 8 else "false"
    return (
        f"constexpr int BLOCK = {shape.block};\nconstexpr bool TURNED = {turned};\n{BULK}{STAGED}"
    )


def _shape(
    stage: Stage, kind: str, count: int, aligned: bool, chip: Chip
) -> tuple[RowShape, Tiles | None]:
    """Return how threads share rows, and the tiles if rows go through shared memory."""
    writes = stage.element_outputs > 0
    how = rule(kind, count, aligned=aligned, writes=writes, clusters=chip.clusters)
    if how.cluster:
        kind = "leaves"
    used = sorted({slot for phase in stage.phases for slot in phase.element.slots})
    there = arrays(stage, used)
    linear = tuple(s for s in there if stage.inputs[s].layout == "linear")
    sizes = [np.dtype(stage.inputs[s].dtype).itemsize for s in there]
    sizes += [item_dtype(phase.combine).itemsize for phase in stage.phases if phase.combine]
    if max(sizes, default=0) > _MEASURED:
        how = replace(how, blocks=0, rounds=1)
    lanes = _lanes(stage, count, how.vectors) if kind == "lanes" else WARP
    if how.staged and linear:
        rounds, staged = how.rounds, "walk" if kind == "leaves" and not how.cluster else kind
        if kind == "lanes":
            size = sum(np.dtype(stage.inputs[s].dtype).itemsize for s in linear)
            once = how.block // lanes * count * LANES * size
            rounds = max(1, (how.tile << 10) // max(1, once))
        shape = RowShape(staged, count, how, lanes, rounds)
        tiles = Tiles.of(stage, linear, shape.each, shape.part)
        if tiles.bytes(stage, _longest(kind, count)) <= chip.room:
            return shape, tiles
    if kind == "lanes" and count > WARP:
        return RowShape("warp", -(-count // WARP), how), None
    return RowShape(kind, count, how, lanes), None


def _again(stage: Stage) -> tuple[list[int], int]:
    """Return the inputs that several phases load, and the bytes of an element of all of them."""
    slots: list[int] = [slot for phase in stage.phases for slot in phase.element.slots]
    again = [
        s
        for s in moving(stage, sorted(set(slots)))
        if slots.count(s) > 1 and stage.inputs[s].kind != "iota"
    ]
    return again, sum(np.dtype(stage.inputs[s].dtype).itemsize for s in again)


def _lanes(stage: Stage, count: int, most: int) -> int:
    """Return how few lanes can share a row of `count` vectors, each with at most `most`.

    The fewer, the fewer places behind the end of a row, and the fewer shuffles; but what a lane
    keeps must fit registers.
    """
    item = max((item_dtype(p.combine).itemsize for p in stage.phases if p.combine), default=1)
    _, size = _again(stage)
    most = max(1, min(most, HELD // max(1, size * LANES), DEEP // item))
    lanes = 1
    while lanes < WARP and -(-count // lanes) > (most if lanes > 1 else min(most, 4)):
        lanes *= 2
    return lanes


def _longest(kind: str, count: int) -> int:
    """Return the elements of the longest row of a class."""
    vectors = {"lanes": count, "warp": count * WARP, "block": count * THREADS}
    return vectors[kind] * LANES if kind in vectors else count * LEAF


def _kernel(stage: Stage, shape: RowShape, symbol: str, tiles: Tiles | None) -> str:
    phases = stage.phases
    used = sorted({slot for phase in phases for slot in phase.element.slots})
    every = sorted({*used, *(s for p in phases if p.finish for s in p.finish.slots)})
    moved = moving(stage, used)
    readers = {s: [q for q, p in enumerate(phases) if s in p.element.slots] for s in moved}
    again, size = _again(stage)
    fits = size * shape.vectors * LANES <= HELD and shape.kind != "walk"
    held = again if fits else []
    phases, kept = keep(phases, held)
    walks = _Walks(stage, shape, tiles, phases, held, kept)
    lines = [
        f'extern "C" __global__ void {shape.bounds}\n',
        f"{symbol}(const State s) {{\n",
        f"  constexpr int N = {shape.vectors};  // vectors of a thread\n",
        "  const int length = (int)s.length;\n",
        "  cluster_arrive();\n" if shape.part else "",
        tiles.begin(stage) if tiles and not shape.part else "",
        f"#pragma unroll 1\n  for (int round = 0; round < {shape.rounds}; ++round) {{\n"
        if shape.rounds > 1 else "",
        shape.mine,
        tiles.begin(stage) if tiles and shape.part else "",
        row_indices(stage),
        bases(stage, every),
        tiles.row(stage, shape.local) if tiles else "",
    ]  # fmt: skip
    lines += [f"  Vec<{DTYPES[stage.inputs[s].dtype].cpp}, {LANES}> h{s}[N];\n" for s in held]
    lines += [f"  Vec<{DTYPES[k.dtype].cpp}, {LANES}> kept{n}[N];\n" for n, k in enumerate(kept)]
    first = 0
    meets = next((q for q, phase in enumerate(phases) if phase.combine), None)
    for q, phase in enumerate(phases):
        fresh = [s for s in held if readers[s][0] == q]
        if fresh:  # every load is on its way before the first is waited for
            lines.append("#pragma unroll\n  for (int u = 0; u < N; ++u) {\n" + shape.vector)
            lines += [_load(stage, s, f"h{s}[u]", tiles) for s in fresh]
            lines.append("  }\n")
        lines.append(_phase(walks, q, first=q == meets))
        lines.append(finish_text(stage, phase, first, f"a{q}"))
        first += len(phase.finish.results) if phase.finish else 0
    lead = "lane == 0" if shape.apart else "threadIdx.x == 0"
    if shape.part:
        lead += " && part == 0"
    if stage.written:
        lines.append(f"  if ({lead} && on) {{\n")
        count = stage.element_outputs
        for at, value in enumerate(stage.written):
            lines.append(f"    s.y{count + at}[row] = q{value};\n")
        lines.append("  }\n")
    if shape.rounds > 1:
        lines.append("  }\n" if shape.apart else "  __syncthreads();  // shared values\n  }\n")
    lines.append(tiles.end() if tiles else "")
    lines.append("}\n")
    return "".join(lines)


def _load(stage: Stage, slot: int, to: str, tiles: Tiles | None) -> str:
    if tiles and slot in tiles.inputs:
        return f"    shared_piece({to}, t{slot} + j, left);\n"
    return load_piece(stage, slot, to, "j", "left")


@dataclass(frozen=True)
class _Walks:
    """What the walks of a kernel share.

    Attributes
    ----------
    stage, shape, tiles
        As the kernel has them.
    phases : tuple of Phase
        The stage's, with `kept` for what they take from registers.
    held : list of int
        Slots that stay in registers.
    kept : tuple of Kept
        Values that stay there.
    """

    stage: Stage
    shape: RowShape
    tiles: Tiles | None
    phases: tuple[Phase, ...]
    held: list[int]
    kept: tuple[Kept, ...]


def _element(walks: _Walks, q: int, stores: list[str]) -> tuple[str, str]:
    """Write what a walk computes of one element, and what it needs before it comes to the first."""
    program = walks.phases[q].element
    own = [(n, k.at) for n, k in enumerate(walks.kept) if k.phase == q]
    if own:
        program = replace(program, results=(*program.results, *(at for _, at in own)))
        stores = [*stores, *(f"kept{n}[u].at[w] = {{value}};" for n, _ in own)]
    taken = {i.slot: DTYPES[i.dtype].cpp for i in program.instrs if i.op == "kept"}
    values = "".join(f"      const {cpp} c{n} = kept{n}[u].at[w];\n" for n, cpp in taken.items())
    divided = divisors(program)
    before = "".join(
        f"  const Divisor<float> by{n} = divisor(q{n});\n" for n in sorted({*divided.values()})
    )
    return before, values + element_text(program, stores, divided=divided)


def _phase(walks: _Walks, q: int, *, first: bool) -> str:
    """Write one walk: load what is not held, compute, combine, or store."""
    stage, shape, tiles, held = walks.stage, walks.shape, walks.tiles, walks.held
    phase = walks.phases[q]
    slots = phase.element.slots
    last = q == len(walks.phases) - 1
    loaded = [s for s in moving(stage, slots) if s not in held]
    cpp = {s: DTYPES[stage.inputs[s].dtype].cpp for s in arrays(stage, range(len(stage.inputs)))}
    combined = len(fields(phase.combine))
    outputs = stage.outputs[: stage.element_outputs] if last else ()
    stores = [f"b.r{at} = {{value}};" for at in range(combined)]
    stores += [f"o{at}.at[w] = {{value}};" for at in range(len(outputs))]
    item = f"Item{q}"
    if not phase.combine and not outputs:
        return ""
    before, element = _element(walks, q, stores)
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
        opening = f"  for (int base = 0; base * {LEAF} < length; base += {shape.leaves}) {{\n"
        closing = "  }\n"
        if phase.combine:
            opening = f"  __shared__ {item} leaf_of[{WARP}];\n" + opening
    body = [
        once(stage, slots),
        before,
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
        element,
        TAKE if phase.combine else "",
        "    }\n",
        combine_lanes("whole") + _DEEPER.replace("LEVELS", str(levels))
        if deep
        else combine_lanes(f"v{q}[u]") if phase.combine and shape.apart else "",
        *(tiles.put(at) if tiles
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
        # By now all blocks of the cluster have begun, whose memory is written to.
        result = "  cluster_wait();\n" if shape.part and first else ""
        result += f"  a{q} = row_combine({f'v{q}' if shape.apart else f'total{q}'});\n"
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
