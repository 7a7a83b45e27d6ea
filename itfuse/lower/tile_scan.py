"""The scan kernel: one launch, in the order of plan/order.py.

A block takes one tile, and a thread a vector of each chunk of its warp's part, which stays in
registers from the load to the store. Short rows share a tile. Of a row of several tiles each block
looks back at what the tiles before it have told (lower/look_back.py); tiles are handed out in the
order in which blocks start.
"""

from __future__ import annotations

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower import scan_staged
from itfuse.lower.accumulator import item_dtype, item_functions, item_struct, shuffle
from itfuse.lower.cpp import (
    comment,
    index_text,
    load_text,
    places,
    prelude,
    struct_text,
    value_dtypes,
)
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.look_back import BITS, LEVELS, TREE, nodes
from itfuse.lower.tile import (
    TileKernel,
    access,
    by_layout,
    fixed_values,
    one_text,
    program_text,
    stored_element,
)
from itfuse.plan.order import SCAN_CHUNKS, SCAN_EACH, SCAN_TILE, THREADS, WARP, scan_class
from itfuse.plan.stages import Stage, fields

_WARPS = THREADS // WARP


def lower_scan(stage: Stage, name: str, room: int) -> TileKernel:
    """Write the kernel of a scan, with symbols that start with `name`; it has one variant."""
    assert stage.finish is not None
    slots = tuple(sorted({*stage.element.slots, *stage.finish.slots}))
    extra = (("Word* status;  // the next tile, then a tree for each row", "Q"),
             ("long long length;", "q"))  # fmt: skip
    state = state_layout(stage, slots, whole=True, extra=extra)
    symbol = f"{name}_scan"
    staged = _vectors(stage) and scan_staged.fits(stage, room)
    used = value_dtypes(stage)
    source = "".join([
        prelude(stage),
        access(aligned=False),
        TREE,
        scan_staged.HEAD if staged else "",
        struct_text("State", [declaration for declaration, _ in state.fields]),
        shuffle("from_lane", "__shfl_down_sync", "distance", used),
        shuffle("from_before", "__shfl_up_sync", "distance", used),
        shuffle("from_lane_of", "__shfl_sync", "lane", used),
        item_struct(stage.combine),
        item_functions(stage.combine, fresh=False),
        _told(stage),
        _LOOK_BACK,
        comment(stage.element, "a.r{at}"),
        one_text(stage, state.rank),
        _finish(stage, state),
        _kernel(stage, symbol, staged),
    ])  # fmt: skip
    return TileKernel(
        symbol, source, state, THREADS, 0, grid=_grid, numbers=lambda s: (s.length,),
        zeroed=_zeroed, shared=scan_staged.tile_bytes if staged else None,
    )  # fmt: skip


def _zeroed(stage: Stage) -> int:
    """Return the bytes of the next tile's number, and of a tree for each row."""
    if stage.length <= SCAN_TILE:
        return 8
    return 8 * (1 + stage.rows * nodes(_tiles(stage)) * _words(stage))


def _tiles(stage: Stage) -> int:
    """Return the tiles of a row."""
    return -(-stage.length // SCAN_TILE)


def _grid(stage: Stage) -> int:
    span, several = scan_class(stage.length)
    if several:
        return stage.rows * _tiles(stage)
    return max(1, -(-stage.rows // (SCAN_TILE // span)))


def _pieces(stage: Stage) -> list[tuple[str, int]]:
    """Return each field of an item, and how many words tell it: 32 bits each."""
    return [
        (f"r{at}", -(-np.dtype(name).itemsize // 4))
        for at, (name, _) in enumerate(fields(stage.combine))
    ]


def _words(stage: Stage) -> int:
    return sum(count for _, count in _pieces(stage))


def _told(stage: Stage) -> str:
    """Write how an item is told, and how it is read: each word knows by itself that it is there."""
    give = take = ""
    at = 0
    for name, count in _pieces(stage):
        give += f"  memcpy(piece + {at}, &a.{name}, sizeof(a.{name}));\n"
        take += f"  memcpy(&a.{name}, piece + {at}, sizeof(a.{name}));\n"
        at += count
    every = range(len(fields(stage.combine)))
    first = "".join(f"  r.r{k} = from_lane_of(a.r{k}, 0);\n" for k in every)
    last = "".join(f"  r.r{k} = from_lane_of(a.r{k}, 31);\n" for k in every)
    before = "".join(f"  r.r{k} = from_before(a.r{k}, distance);\n" for k in every)
    return (
        f"constexpr int WORDS = {at};  // of an item, 32 bits each\n"
        "__device__ __forceinline__ Item from_before(const Item& a, int distance) {\n"
        f"  Item r = a;\n{before}  return r;\n}}\n"
        "__device__ __forceinline__ Item from_first(const Item& a) {\n"
        f"  Item r = a;\n{first}  return r;\n}}\n"
        "__device__ __forceinline__ Item from_last(const Item& a) {\n"
        f"  Item r = a;\n{last}  return r;\n}}\n"
        "__device__ __forceinline__ void tell(Word* to, const Item& a) {\n"
        f"  unsigned piece[WORDS] = {{}};\n{give}"
        "#pragma unroll\n  for (int w = 0; w < WORDS; ++w) publish(to + w, piece[w]);\n}\n"
        "__device__ __forceinline__ Item told(const Word* from, const Word (&seen)[WORDS]) {\n"
        "  unsigned piece[WORDS];\n"
        "#pragma unroll\n  for (int w = 0; w < WORDS; ++w) {\n"
        "    Word word = seen[w];\n"
        "    while (!(word & KNOWN)) word = relaxed_load(from + w);\n"
        "    piece[w] = (unsigned)word;\n  }\n"
        f"  Item a;\n{take}  return a;\n}}\n"
    )


_LOOK_BACK = f"""\
// What all tiles of a row before this one give, by one warp; there is one at least. `own` is the
// total of this one. All levels are asked before the first is waited for. The last of 32 children
// tells their total as soon as it is known. Places are computed again rather than kept: the threads
// keep their elements meanwhile.
__device__ __forceinline__ Item look_back(Word* tree, unsigned tiles, unsigned tile, Item own) {{
  const unsigned lane = threadIdx.x % 32;
  const auto place = [&](int k) {{  // among its siblings
    return k < {LEVELS - 1} ? (tile >> {BITS} * k) % 32 : tile >> {BITS} * k;
  }};
  const auto node = [&](int k, unsigned at) {{  // child `at` beside this tile's node of level k
    unsigned start = (tile >> {BITS} * k) - place(k) + at;
#pragma unroll
    for (int below = 0; below < k; ++below) start += (tiles >> {BITS} * below) + 1;
    return tree + (Word)start * WORDS;
  }};
  Word seen[{LEVELS}][WORDS];
#pragma unroll
  for (int k = 0; k < {LEVELS}; ++k) {{
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {{
      seen[k][w] = lane < place(k) ? relaxed_load(node(k, lane) + w) : 0;
    }}
  }}
  Item before = own, total = own;
  bool some = false, last = true;  // whether this tile is the last below its node
#pragma unroll
  for (int k = 0; k < {LEVELS}; ++k) {{
    if (place(k) != 0) {{
      Item sum = own;
      for (unsigned from = 0; from < place(k); from += 32) {{  // once, below the last level
        const unsigned count = place(k) - from < 32 ? place(k) - from : 32;
        Item one = own;
        if (lane < count) {{
          const Word* const there = node(k, from + lane);
          if (from != 0) {{
#pragma unroll
            for (int w = 0; w < WORDS; ++w) seen[k][w] = relaxed_load(there + w);
          }}
          one = told(there, seen[k]);
        }}
#pragma unroll
        for (int apart = 1; apart < 32; apart *= 2) {{
          const Item other = from_lane(one, apart);
          if (lane + apart < count) one = combine(one, other);
        }}
        one = from_first(one);
        sum = from == 0 ? one : combine(sum, one);
      }}
      before = some ? combine(sum, before) : sum;
      some = true;
      total = combine(sum, total);
    }}
    last = last && place(k) == 31;
    if (k < {LEVELS - 1} && last && lane == 0) tell(node(k + 1, place(k + 1)), total);
  }}
  return before;
}}
"""


def _finish(stage: Stage, state: StateLayout) -> str:
    """Write what is computed of the scan's value at a place, and stored there."""
    assert stage.finish is not None
    loads = "".join(load_text(stage, slot) for slot in stage.finish.slots)
    stores = [
        stored_element(stage, at, "s.y{at}[i]") + " = {value};" for at in range(len(stage.outputs))
    ]
    said = comment(stage.finish, "y{at}")
    return (
        f"{said}__device__ __forceinline__ void finish(const State& s, const long long i, "
        f"const Item& a) {{\n{index_text(stage, state.rank)}{loads}"
        f"{program_text(stage.finish, stores)}}}\n"
    )


def _linear(stage: Stage, slots: tuple[int, ...]) -> list[int] | None:
    """Return the inputs that vectors can be loaded of, or None if there are others with places."""
    linear = by_layout(stage, slots, "linear")
    moved = [s for s in slots if stage.inputs[s].layout != "fixed"]
    moved = [s for s in moved if stage.inputs[s].kind != "scalar"]
    return linear if len(moved) == len(linear) else None


def _vectors(stage: Stage) -> bool:
    """Whether everything lies in vectors, in the direction of the scan."""
    assert stage.finish is not None and stage.how is not None
    programs = (stage.element, stage.finish)
    known = all(_linear(stage, program.slots) is not None for program in programs)
    turned = stage.how.options[2] or any(output.strides for output in stage.outputs)
    return known and not turned and not any(places(program) for program in programs)


def _values(stage: Stage, slots: tuple[int, ...], begin: str) -> tuple[str, str]:
    """Write vectors loaded at `begin`, and element `w` of each."""
    loads = values = ""
    for slot in _linear(stage, slots) or ():
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        loads += (
            f"      Vec<{cpp}, EACH> e{slot};\n      load(e{slot}, s.x{slot} + {begin}, true);\n"
        )
        values += f"        const {cpp} x{slot} = e{slot}.at[w];\n"
    return loads, values


def _load(stage: Stage) -> str:
    """Write how a thread gets its elements: a vector of each chunk of its warp's part."""
    text = (
        "#pragma unroll\n    for (int k = 0; k < MINE; ++k) {\n"
        "      const long long i = place(slot_of(k));\n"
        "      v[k] = i >= 0 ? one(s, i) : identity();\n    }\n"
    )
    if not _vectors(stage):
        return f"  {{\n{text}  }}\n"
    loads, values = _values(stage, stage.element.slots, "flat + slot_of(c * EACH)")
    return "".join([
        "  if (even) {  // every load is on its way before the first is waited for\n",
        fixed_values(stage, stage.element.slots),
        "#pragma unroll\n    for (int c = 0; c < CHUNKS; ++c) {\n",
        loads,
        "#pragma unroll\n      for (int w = 0; w < EACH; ++w) {\n        Item item;\n",
        values,
        program_text(stage.element, "item.r{at} = {value};", "        "),
        "        v[c * EACH + w] = item;\n      }\n    }\n  } else {\n",
        text,
        "  }\n",
    ])  # fmt: skip


def _store(stage: Stage, value: str) -> str:
    """Write what becomes of the values of chunk `c`, `value` standing for element `w`."""
    assert stage.finish is not None
    text = (
        "#pragma unroll\n    for (int w = 0; w < EACH; ++w) {\n"
        "      const long long i = place(slot_of(c * EACH + w));\n"
        f"      if (i >= 0) finish(s, i, {value});\n    }}\n"
    )
    loads, values = _values(stage, stage.finish.slots, "begin_of")
    written = list(enumerate(DTYPES[output.dtype].cpp for output in stage.outputs))
    return "".join([
        "    if (even) {\n",
        fixed_values(stage, stage.finish.slots),
        "      const long long begin_of = flat + slot_of(c * EACH);\n",
        loads,
        *(f"      Vec<{cpp}, EACH> o{at};\n" for at, cpp in written),
        "#pragma unroll\n      for (int w = 0; w < EACH; ++w) {\n",
        f"        const Item& a = {value};\n",
        values,
        program_text(stage.finish, [f"o{at}.at[w] = {{value}};" for at, _ in written], "        "),
        "      }\n",
        *(f"      store(s.y{at} + begin_of, o{at}, true);\n" for at, _ in written),
        "    } else {\n",
        text,
        "    }\n",
    ])  # fmt: skip


def _blocks(stage: Stage) -> int:
    """Return how many blocks of a multiprocessor to leave registers for: more would spill.

    Blocks wait for each other, so that the bytes on their way are those of all of them.
    """
    assert stage.finish is not None
    size = item_dtype(stage.combine).itemsize
    plain = all(not instr.args for instr in stage.finish.instrs)
    if size <= 4:
        return 3 if plain else 2
    return 2 if size <= 8 and _vectors(stage) else 1


def _even(stage: Stage, several: bool) -> str:
    """Write whether the tile is full and all of its vectors are aligned."""
    if not _vectors(stage):
        return ""
    assert stage.finish is not None
    slots = sorted({*stage.element.slots, *stage.finish.slots})
    named = [(f"x{s}", stage.inputs[s].dtype) for s in by_layout(stage, slots, "linear")]
    named += [(f"y{at}", output.dtype) for at, output in enumerate(stage.outputs)]
    asked = "".join(
        f" &&\n      is_aligned<{DTYPES[dtype].cpp}, EACH>(s.{name} + flat)"
        for name, dtype in named
    )
    return f"{_FULL if several else _FULL_ROWS}  const bool even = full{asked};\n"


def _kernel(stage: Stage, symbol: str, staged: bool) -> str:
    assert stage.how is not None
    _, exclusive, reverse = stage.how.options
    span, several = scan_class(stage.length)
    blocks = scan_staged.blocks(stage) if staged else _blocks(stage)
    place = "s.length - 1 - col" if reverse else "col"
    long_place = (
        "    const long long col = begin + slot;\n"
        f"    return col < s.length ? row * s.length + {place} : -1;\n"
    )
    short_place = (
        "    const long long row = base + slot / SPAN;\n    const long long col = slot % SPAN;\n"
        f"    return col < s.length && row * s.length < s.n ? row * s.length + {place} : -1;\n"
    )
    return "".join([
        f'extern "C" __global__ void __launch_bounds__({THREADS}, {blocks}) '
        f"{symbol}(const State s) {{\n",
        f"  constexpr int EACH = {SCAN_EACH}, CHUNKS = {SCAN_CHUNKS}, MINE = EACH * CHUNKS;\n",
        f"  constexpr int CHUNK = 32 * EACH, PART = CHUNK * CHUNKS, WARPS = {_WARPS};\n",
        f"  constexpr int TILE = WARPS * PART, SPAN = {span};  // places that a row takes\n",
        "  constexpr int LANES = SPAN >= CHUNK ? 32 : SPAN >= EACH ? SPAN / EACH : 1;\n",
        "  constexpr int ROW = SPAN >= PART ? CHUNKS : SPAN >= CHUNK ? SPAN / CHUNK : 1;\n",
        "  constexpr int TOGETHER = SPAN >= PART ? SPAN / PART : 1;  // warps of a row\n",
        "  __shared__ Item sums[WARPS], offset;\n" if several
        else "  __shared__ Item sums[WARPS];\n",
        "  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n",
        _TAKE if several else _BASE,
        "  const auto slot_of = [&](int k) {\n"
        "    return warp * PART + k / EACH * CHUNK + lane * EACH + k % EACH;\n  };\n",
        "  const auto place = [&](int slot) -> long long {\n",
        long_place if several else short_place,
        "  };\n",
        _even(stage, several),
        _staged_text(stage, exclusive) if staged
        else _in_registers(stage, exclusive, several),
        "}\n",
    ])  # fmt: skip


def _in_registers(stage: Stage, exclusive: bool, several: bool) -> str:
    return "".join([
        "  Item v[MINE];\n",
        _load(stage),
        _INSIDE,
        _BEFORE if several else "",
        _START,
        _EXCLUSIVE if exclusive else _INCLUSIVE,
        "#pragma unroll\n  for (int c = 0; c < CHUNKS; ++c) {\n"
        f"{_store(stage, 'v[c * EACH + w]')}  }}\n" if _vectors(stage) else _STORE,
    ])  # fmt: skip


_STORE = """\
#pragma unroll
  for (int k = 0; k < MINE; ++k) {
    const long long i = place(slot_of(k));
    if (i >= 0) finish(s, i, v[k]);
  }
"""


def _staged_text(stage: Stage, exclusive: bool) -> str:
    return "".join([
        scan_staged.bring(stage),
        scan_staged.piece(stage),
        scan_staged.BEFORE,
        _BEFORE,
        scan_staged.values(exclusive, _store(stage, "v[w]")),
    ])  # fmt: skip


_FULL = """\
  const bool full = begin + TILE <= s.length;
  const long long flat = row * s.length + begin;
"""

_FULL_ROWS = """\
  const long long flat = base * SPAN;
  const bool full = s.length == SPAN && flat + TILE <= s.n;
"""

_BASE = "  const long long base = (long long)blockIdx.x * (TILE / SPAN);\n"

_TAKE = """\
  __shared__ unsigned taken;
  if (threadIdx.x == 0) taken = atomicAdd(reinterpret_cast<unsigned*>(s.status), 1u);
  __syncthreads();
  const unsigned tiles = (unsigned)((s.length + TILE - 1) / TILE);
  const long long row = taken / tiles;
  const unsigned tile = taken % tiles;
  const long long begin = (long long)tile * TILE;
"""

_INSIDE = """\
#pragma unroll
  for (int k = 1; k < MINE; ++k) {
    if (k % EACH != 0 && k % EACH % SPAN != 0) v[k] = combine(v[k - 1], v[k]);
  }
  // What comes before each vector in this warp's part: of a chunk, then of the chunks before.
  const bool lanes_before = lane % LANES > 0;
  Item pre[CHUNKS], run = identity();
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    Item total = v[c * EACH + EACH - 1];
#pragma unroll
    for (int apart = 1; apart < LANES; apart *= 2) {
      const Item other = from_before(total, apart);
      if (lane % LANES >= apart) total = combine(other, total);
    }
    pre[c] = LANES > 1 ? from_before(total, 1) : total;
    if (SPAN >= CHUNK) {
      const Item whole = from_last(total);
      if (c % ROW != 0) pre[c] = lanes_before ? combine(run, pre[c]) : run;
      run = c % ROW != 0 ? combine(run, whole) : whole;
    }
  }
  // What comes before the part, if anything `has`.
  Item before = identity();
  bool has = false;
  if (TOGETHER > 1) {
    if (lane == 0) sums[warp] = run;
    __syncthreads();
    const int first = warp / TOGETHER * TOGETHER;
    has = warp > first;
    before = sums[first];
    for (int w = first + 1; w < warp; ++w) before = combine(before, sums[w]);
  }
"""

_BEFORE = """\
  if (warp == 0) {
    Item own = sums[0];
    for (int w = 1; w < WARPS; ++w) own = combine(own, sums[w]);
    Word* const tree = s.status + 1 + (Word)row * tree_size(tiles) * WORDS;
    if (lane == 0) tell(tree + (Word)tile * WORDS, own);
    if (tile != 0) {
      const Item found = look_back(tree, tiles, tile, own);
      if (lane == 0) offset = found;
    }
  }
  __syncthreads();
  if (tile != 0) {
    before = has ? combine(offset, before) : offset;
    has = true;
  }
"""

_START = """\
  const auto starts = [&](int c) { return has || lanes_before || c % ROW != 0; };
  if (has) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      pre[c] = lanes_before || c % ROW != 0 ? combine(before, pre[c]) : before;
    }
  }
"""

_INCLUSIVE = """\
#pragma unroll
  for (int k = 0; k < MINE; ++k) {
    if (starts(k / EACH)) v[k] = combine(pre[k / EACH], v[k]);
  }
"""

_EXCLUSIVE = """\
#pragma unroll
  for (int k = MINE - 1; k >= 0; --k) {
    const bool some = starts(k / EACH);
    if (k % EACH % SPAN == 0) {
      v[k] = k % EACH == 0 && some ? pre[k / EACH] : identity();
    } else {
      v[k] = some ? combine(pre[k / EACH], v[k - 1]) : v[k - 1];
    }
  }
"""
