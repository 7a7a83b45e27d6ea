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
from itfuse.lower.accumulator import item_dtype, item_functions, item_struct
from itfuse.lower.cpp import places, prelude, struct_text
from itfuse.lower.rows import (
    FRESH,
    PIECE,
    SHUFFLES,
    arrays,
    bases,
    element_text,
    finish_text,
    load_piece,
    moving,
    once,
    row_indices,
    row_needs,
    row_state,
)
from itfuse.lower.staged import SHARED, STAGED, Tiles
from itfuse.lower.tile import TileKernel, access
from itfuse.plan.order import LANES, LARGE, LARGE_LEAF, LEAF, THREADS, WARP, leaf, power
from itfuse.plan.stages import Phase, Stage, fields

BLOCK = 128
"""Threads of a block where a row belongs to one warp or less."""

HELD = 128
"""Bytes of inputs that a thread keeps in registers from phase to phase."""

DEEP = 96
"""Bytes of accumulators of a thread from which on its vectors are combined one by one."""

ABREAST = 4
"""Leaves of a row that does not fit registers which a block walks at once."""

FEW = 1 << 10
"""Below this many long rows several blocks share a row."""


def lower_rows(stage: Stage, name: str, aligned: bool) -> TileKernel:
    """Write a variant of the kernel of a `rows` stage, with symbols that start with `name`."""
    kind, count = stage.size_class
    assert isinstance(count, int)
    if kind == "long":
        return _lower_long(stage, name, aligned)
    state = row_state(stage)
    symbol = f"{name}_rows"
    shape = _Shape(str(kind), count)
    tiles = None
    if not aligned:
        shape, tiles = _staged(stage, shape)
    source = "".join([
        _head(stage, aligned),
        STAGED if tiles else "",
        struct_text("State", [declaration for declaration, _ in state.fields]),
        *(shape.tree(phase, q) for q, phase in enumerate(stage.phases) if phase.combine),
        _kernel(stage, shape, symbol, tiles),
    ])  # fmt: skip
    needs = row_needs(stage, state.slots) if aligned else None
    return TileKernel(symbol, source, state, shape.block, 0, grid=shape.grid, needs=needs)


def _head(stage: Stage, aligned: bool) -> str:
    items = "".join(
        item_struct(phase.combine, f"Item{q}")
        + item_functions(phase.combine, f"Item{q}", str(q))
        + _of_lane(phase, q)
        for q, phase in enumerate(stage.phases)
        if phase.combine
    )
    return prelude(stage) + access(aligned) + PIECE + SHUFFLES + FRESH + items


def _of_lane(phase: Phase, q: int) -> str:
    lines = "".join(
        f"  a.r{at} = of_lane(a.r{at}, lane);\n" for at in range(len(fields(phase.combine)))
    )
    head = f"__device__ __forceinline__ Item{q} of_lane(Item{q} a, int lane)"
    return f"{head} {{\n{lines}  return a;\n}}\n"


class _Shape:
    """How threads share rows: the class of their length as C++."""

    def __init__(self, kind: str, count: int, vectors: int = 1) -> None:
        self.kind = kind
        self.lanes = count // vectors if kind == "lanes" else WARP
        """Lanes of a warp that share a row."""
        of_leaf = LEAF // THREADS // LANES
        self.vectors = {"lanes": vectors, "leaves": of_leaf, "walk": of_leaf}.get(kind, count)
        self.leaves = {"leaves": count, "walk": ABREAST}.get(kind, 1)
        self.apart = kind in ("lanes", "warp")  # each vector is a thread of the order
        self.block = BLOCK if self.apart else THREADS * self.leaves
        self.each = self.block // self.lanes if self.apart else 1
        """Rows of a block."""

    @property
    def bounds(self) -> str:
        """Launch bounds: asked for a few blocks, the compiler takes the registers it needs."""
        return f"{self.block}, {2 if self.block <= THREADS else 1}"

    def grid(self, stage: Stage) -> int:
        """Return the blocks that cover the rows."""
        return max(1, -(-stage.rows // self.each))

    @property
    def mine(self) -> str:
        """Name this thread's row, and its first vector in it."""
        if self.apart:
            return (
                f"  const int lane = threadIdx.x % {self.lanes};\n"
                f"  const long long number = (long long)blockIdx.x * {self.each} + "
                f"threadIdx.x / {self.lanes};\n"
                "  const bool on = number < s.rows;\n"
                "  const long long row = on ? number : 0;\n"
            )
        return (
            f"  const int lane = threadIdx.x % {THREADS} + threadIdx.x / {THREADS} * "
            f"{LEAF // LANES};\n  const bool on = true;\n  const long long row = blockIdx.x;\n"
        )

    @property
    def vector(self) -> str:
        """Name the first element of vector `u`, and how many elements are left from there."""
        apart = self.lanes if self.apart else THREADS
        start = f"base * {LEAF} + " if self.kind == "walk" else ""
        return (
            f"    const int j = {start}(lane + u * {apart}) * {LANES};\n"
            "    const int left = on ? length - j : 0;\n"
        )

    def _lanes_tree(self, item: str, head: str, down: str) -> str:
        """Write the tree of a row's lanes: first over each one's vectors, which are further apart.

        Number u of lane l is thread l + u * lanes of the order.
        """
        return (
            f"{head}({item} (&v)[{self.vectors}]) {{\n"
            f"#pragma unroll\n  for (int apart = {self.vectors // 2}; apart > 0; apart /= 2) {{\n"
            "#pragma unroll\n    for (int u = 0; u < apart; ++u) {\n"
            f"      v[u] = combine(v[u], v[u + apart]);\n    }}\n  }}\n  {item} a = v[0];\n"
            f"#pragma unroll\n  for (int distance = {self.lanes // 2}; distance > 0; "
            f"distance /= 2) {{\n{down}  }}\n"
            f"  return of_lane(a, (int)threadIdx.x % {WARP} / {self.lanes} * {self.lanes});\n}}\n"
        )

    def deep(self, phase: Phase, held: bool) -> bool:
        """Whether a thread's vectors are combined one by one: their accumulators are many."""
        size = item_dtype(phase.combine).itemsize if phase.combine else 0
        return self.kind == "warp" and size * self.vectors > DEEP and not held

    def tree(self, phase: Phase, q: int) -> str:
        """Write the function that combines a row's values of all its threads."""
        item = f"Item{q}"
        head = f"__device__ __forceinline__ {item} row_combine"
        down = "    a = combine(a, from_lane(a, distance));\n"
        if self.apart:
            if self.kind == "lanes":
                return self._lanes_tree(item, head, down)
            return _warp_tree(item, q, self.vectors) + (
                f"__device__ __forceinline__ {item} warp_combine({item} a) {{\n"
                f"#pragma unroll\n  for (int distance = {WARP // 2}; distance > 0; distance /= 2) "
                f"{{\n{down}  }}\n  return a;\n}}\n"
            )
        if self.kind == "walk":
            return _walk_tree(item, q, down)
        warps = self.block // WARP
        in_leaf = THREADS // WARP
        return (
            f"{head}({item} a) {{\n  __shared__ {item} of_warp[{warps}];\n"
            f"#pragma unroll\n  for (int distance = {WARP // 2}; distance > 0; distance /= 2) {{\n"
            f"{down}  }}\n"
            f"  if (threadIdx.x % {WARP} == 0) of_warp[threadIdx.x / {WARP}] = a;\n"
            "  __syncthreads();\n"
            f"  const int lane = threadIdx.x % {WARP};\n"
            f"  a = lane < {warps} ? of_warp[lane] : identity{q}();\n"
            f"#pragma unroll\n  for (int distance = {in_leaf // 2}; distance > 0; distance /= 2) "
            f"{{\n{down}  }}\n"
            f"#pragma unroll\n  for (int distance = {in_leaf * power(self.leaves) // 2}; "
            f"distance >= {in_leaf}; distance /= 2) {{\n{down}  }}\n"
            "  return of_lane(a, 0);\n}\n"
        )


def _warp_tree(item: str, q: int, vectors: int) -> str:
    """Write the tree of a warp's vectors: one tree for each over the lanes, then over the vectors.

    Lanes exchange halves: at each of the first distances a lane gives away half of its values and
    gets the partners of the others, which takes 12 shuffles of 8 values instead of 40. Afterwards
    the bits of a lane that were exchanged say whose value it has.
    """
    count = power(vectors)
    levels = count.bit_length() - 1
    lines = [
        f"__device__ __forceinline__ {item} row_combine({item} (&of)[{vectors}]) {{\n",
        f"  const int lane = threadIdx.x % {WARP};\n  {item} v[{count}];\n",
        f"#pragma unroll\n  for (int u = 0; u < {count}; ++u) "
        f"v[u] = u < {vectors} ? of[u < {vectors} ? u : 0] : identity{q}();\n",
    ]
    for level in range(levels):
        distance, half = WARP // 2 >> level, count // 2 >> level
        lines.append(
            f"#pragma unroll\n  for (int u = 0; u < {half}; ++u) {{\n"
            f"    const bool upper = lane & {distance};\n"
            f"    const {item} own = upper ? v[u + {half}] : v[u];\n"
            f"    const {item} its = of_lane(upper ? v[u] : v[u + {half}], lane ^ {distance});\n"
            "    v[u] = combine(upper ? its : own, upper ? own : its);\n  }\n"
        )
    lines.append(f"  {item} a = v[0];\n")
    rest = [WARP // 2 >> level for level in range(levels, 5)]
    over = [WARP // 2 >> level for level in range(levels)]
    lines += [f"  a = combine(a, from_lane(a, {distance}));\n" for distance in rest + over]
    lines.append("  return of_lane(a, 0);\n}\n")
    return "".join(lines)


def _walk_tree(item: str, q: int, down: str) -> str:
    """Write how a block combines the leaves that it walks abreast, and in the end all leaves."""
    warps, in_leaf = ABREAST * THREADS // WARP, THREADS // WARP
    return (
        f"__device__ __forceinline__ void leaf_combine({item} a, int base, {item}* leaf_of) {{\n"
        f"  __shared__ {item} of_warp[{warps}];\n"
        f"#pragma unroll\n  for (int distance = {WARP // 2}; distance > 0; distance /= 2) {{\n"
        f"{down}  }}\n"
        f"  if (threadIdx.x % {WARP} == 0) of_warp[threadIdx.x / {WARP}] = a;\n"
        f"  __syncthreads();\n  if (threadIdx.x < {WARP}) {{\n"
        "    a = of_warp[threadIdx.x];\n"
        f"#pragma unroll\n    for (int distance = {in_leaf // 2}; distance > 0; distance /= 2) {{\n"
        f"  {down}    }}\n"
        f"    if (threadIdx.x % {in_leaf} == 0) leaf_of[base + threadIdx.x / {in_leaf}] = a;\n"
        "  }\n  __syncthreads();\n}\n"
        f"__device__ __forceinline__ {item} row_combine(const {item}* leaf_of, int leaves) {{\n"
        f"  const int lane = threadIdx.x % {WARP};\n"
        f"  {item} a = lane < leaves ? leaf_of[lane] : identity{q}();\n"
        f"#pragma unroll\n  for (int distance = {WARP // 2}; distance > 0; distance /= 2) {{\n"
        f"{down}  }}\n  return of_lane(a, 0);\n}}\n"
    )


def _staged(stage: Stage, shape: _Shape) -> tuple[_Shape, Tiles | None]:
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
    while True:
        mine = _Shape("lanes", shape.lanes, wished) if shape.kind == "lanes" else shape
        tiles = Tiles(linear, outputs, mine.block * mine.vectors * LANES)
        # Where outputs take the inputs' place, those are in registers by then.
        kept = not outputs or size * mine.vectors * LANES <= HELD
        if tiles.bytes(stage) <= SHARED and kept:
            return mine, tiles
        if wished == 1:
            return shape, None
        wished //= 2


def _kernel(stage: Stage, shape: _Shape, symbol: str, tiles: Tiles | None) -> str:
    phases = stage.phases
    used = sorted({slot for phase in phases for slot in phase.element.slots})
    every = sorted({*used, *(s for p in phases if p.finish for s in p.finish.slots)})
    moved = moving(stage, used)
    readers = {s: [q for q, p in enumerate(phases) if s in p.element.slots] for s in moved}
    size = sum(np.dtype(stage.inputs[s].dtype).itemsize for s in moved if len(readers[s]) > 1)
    fits = size * shape.vectors * LANES <= HELD and shape.kind != "walk"
    held = [s for s in moved if len(readers[s]) > 1 and fits]
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


def _phase(stage: Stage, shape: _Shape, q: int, held: list[int], tiles: Tiles | None) -> str:
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
    deep = shape.deep(phase, any(s in held for s in slots))
    lines = []
    inside = ""  # the accumulators of one vector, or of all
    if phase.combine:
        if deep:
            levels = power(shape.vectors).bit_length() - 1
            lines.append(f"  {item} waits[{levels}], whole;\n")
            inside = _start(item, q)
        elif shape.apart:
            lines.append(f"  {item} v{q}[N];\n")
            inside = _start(item, q)
        else:
            lines.append(_start(item, q))
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
        _TAKE if phase.combine else "",
        "    }\n",
        _lanes("whole") + _DEEPER.replace("LEVELS", str(power(shape.vectors).bit_length() - 1))
        if deep
        else _lanes(f"v{q}[u]") if phase.combine and shape.apart else "",
        *(f"    shared_put(u{at} + j, o{at}, left);\n" if tiles
          else f"    put(s.y{at} + row * s.length + j, o{at}, left);\n"
          for at in range(len(outputs))),
        "  }\n",
    ]  # fmt: skip
    ending = ""
    if phase.combine and not shape.apart:
        ending = f"  {item} total{q};\n" + _lanes(f"total{q}")
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


_TAKE = "      if (ALIGNED ? left > 0 : w < left) lane_of[w] = combine(lane_of[w], b);\n"

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


def _start(item: str, q: int) -> str:
    return (
        f"  {item} lane_of[{LANES}];\n"
        f"#pragma unroll\n  for (int w = 0; w < {LANES}; ++w) lane_of[w] = identity{q}();\n"
    )


def _lanes(to: str) -> str:
    return (
        f"    {to} = combine(combine(lane_of[0], lane_of[1]), combine(lane_of[2], lane_of[3]));\n"
    )


# ---- long rows that are only reduced ---------------------------------------------------------


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


def _lower_long(stage: Stage, name: str, aligned: bool) -> TileKernel:
    extra = (("Item0* partial;", "Q"), ("unsigned* finished;", "Q"))
    state = row_state(stage, extra)
    symbol = f"{name}_long_rows"
    phase = stage.phases[0]
    slots = phase.element.slots
    moved = moving(stage, slots)
    cpp = {s: DTYPES[stage.inputs[s].dtype].cpp for s in arrays(stage, slots)}
    stores = [f"b.r{at} = {{value}};" for at in range(len(fields(phase.combine)))]
    every = sorted({*slots, *(phase.finish.slots if phase.finish else ())})
    steps = LEAF // THREADS // LANES
    kernel = "".join([
        f'extern "C" __global__ void __launch_bounds__({THREADS}, 2) {symbol}(const State s) {{\n',
        _LONG,
        row_indices(stage),
        bases(stage, every),
        "  Item0 mine = identity0();\n  __shared__ Item0 of_leaf;\n  {\n",
        once(stage, slots),
        "  for (long long leaf = part; leaf < leaves; leaf += splits) {\n",
        _start("Item0", 0),
        "  for (int round = 0; round < rounds; ++round) {\n",
        f"#pragma unroll 4\n  for (int step = 0; step < {steps}; ++step) {{\n",
        "    const long long j = leaf * leaf_size +\n"
        f"        ((round * {steps} + step) * {THREADS} + (int)threadIdx.x) * {LANES};\n"
        "    const long long left = s.length - j;\n",
        *(f"    Vec<{cpp[s]}, {LANES}> e{s};\n" + load_piece(stage, s, f"e{s}", "j", "left")
          for s in moved),
        f"#pragma unroll\n    for (int w = 0; w < {LANES}; ++w) {{\n      Item0 b;\n",
        "      const long long position = j + w;\n" if places(phase.element) else "",
        *(f"      const {cpp[s]} x{s} = e{s}.at[w];\n" for s in moved),
        element_text(phase.element, stores),
        _TAKE,
        "    }\n  }\n  }\n",
        "  Item0 whole;\n",
        _lanes("whole"),
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
        _head(stage, aligned),
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
