"""The scan kernel: one launch, in the order of plan/order.py.

A block takes one tile. Its threads load and store elements side by side; in between each warp
turns its part in shared memory, so that a thread has `SCAN_EACH` consecutive ones. Short rows share
a tile. Of a row of several tiles each block looks back at what the tiles before it have told
(lower/look_back.py); tiles are handed out in the order in which blocks start.
"""

from __future__ import annotations

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.accumulator import item_functions, item_struct, shuffle
from itfuse.lower.cpp import comment, index_text, load_text, prelude, struct_text, value_dtypes
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.look_back import BITS, LEVELS, TREE, nodes
from itfuse.lower.tile import TileKernel, program_text, stored_element
from itfuse.plan.order import SCAN_EACH, SCAN_TILE, THREADS, WARP, scan_class
from itfuse.plan.stages import Stage, fields

_WARPS = THREADS // WARP


def lower_scan(stage: Stage, name: str) -> TileKernel:
    """Write the kernel of a scan, with symbols that start with `name`; it has one variant."""
    assert stage.finish is not None
    slots = tuple(sorted({*stage.element.slots, *stage.finish.slots}))
    extra = (("Word* status;  // the next tile, then a tree for each row", "Q"),
             ("long long length;", "q"))  # fmt: skip
    state = state_layout(stage, slots, whole=True, extra=extra)
    symbol = f"{name}_scan"
    used = value_dtypes(stage)
    source = "".join([
        prelude(stage),
        TREE,
        struct_text("State", [declaration for declaration, _ in state.fields]),
        shuffle("from_lane", "__shfl_down_sync", "distance", used),
        shuffle("from_before", "__shfl_up_sync", "distance", used),
        shuffle("from_first", "__shfl_sync", "lane", used),
        item_struct(stage.combine),
        item_functions(stage.combine, fresh=False),
        _told(stage),
        _LOOK_BACK,
        comment(stage.element, "a.r{at}"),
        _one(stage, state),
        _finish(stage, state),
        _kernel(stage, symbol),
    ])  # fmt: skip
    return TileKernel(
        symbol, source, state, THREADS, 0, grid=_grid, numbers=lambda s: (s.length,),
        zeroed=_zeroed,
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
    first = "".join(f"  r.r{k} = from_first(a.r{k}, 0);\n" for k in every)
    before = "".join(f"  r.r{k} = from_before(a.r{k}, distance);\n" for k in every)
    return (
        f"constexpr int WORDS = {at};  // of an item, 32 bits each\n"
        "__device__ __forceinline__ Item from_before(const Item& a, int distance) {\n"
        f"  Item r = a;\n{before}  return r;\n}}\n"
        "__device__ __forceinline__ Item from_first(const Item& a) {\n"
        f"  Item r = a;\n{first}  return r;\n}}\n"
        "__device__ __forceinline__ void tell(Word* to, const Item& a) {\n"
        f"  unsigned piece[WORDS] = {{}};\n{give}"
        "#pragma unroll\n  for (int w = 0; w < WORDS; ++w) publish(to + w, piece[w]);\n}\n"
        "__device__ __forceinline__ Item told(const Word* from) {\n"
        "  unsigned piece[WORDS];\n"
        "#pragma unroll\n  for (int w = 0; w < WORDS; ++w) {\n"
        "    Word word = relaxed_load(from + w);\n"
        "    while (!(word & KNOWN)) word = relaxed_load(from + w);\n"
        "    piece[w] = (unsigned)word;\n  }\n"
        f"  Item a;\n{take}  return a;\n}}\n"
    )


_LOOK_BACK = f"""\
// What all tiles of a row before this one give, by one warp; there is one at least. `own` is the
// total of this one. The last of 32 children tells their total as soon as it is known.
__device__ __forceinline__ Item look_back(Word* tree, unsigned tiles, unsigned tile, Item own) {{
  const unsigned lane = threadIdx.x % 32;
  Item before = own, total = own;
  bool some = false, last = true;  // whether this tile is the last below its node
#pragma unroll
  for (int k = 0; k < {LEVELS}; ++k) {{
    const unsigned number = tile >> {BITS} * k;
    const unsigned place = k < {LEVELS - 1} ? number % 32 : number;  // among its siblings
    const Word* const siblings = tree + (Word)(number - place) * WORDS;
    tree += (Word)((tiles >> {BITS} * k) + 1) * WORDS;
    if (place != 0) {{
      Item sum = own;
      for (unsigned from = 0; from < place; from += 32) {{  // once, below the last level
        const unsigned count = place - from < 32 ? place - from : 32;
        Item one = own;
        if (lane < count) one = told(siblings + (Word)(from + lane) * WORDS);
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
    last = last && place == 31;
    if (k < {LEVELS - 1} && last && lane == 0) {{
      tell(tree + (Word)(tile >> {BITS} * (k + 1)) * WORDS, total);
    }}
  }}
  return before;
}}
"""


def _one(stage: Stage, state: StateLayout) -> str:
    """Write the element function at a place."""
    loads = "".join(load_text(stage, slot) for slot in stage.element.slots)
    return (
        "__device__ __forceinline__ Item one(const State& s, const long long i) {\n"
        f"{index_text(stage, state.rank)}  Item item;\n{loads}"
        f"{program_text(stage.element, 'item.r{at} = {value};')}  return item;\n}}\n"
    )


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


def _kernel(stage: Stage, symbol: str) -> str:
    assert stage.how is not None
    _, exclusive, reverse = stage.how.options
    span, several = scan_class(stage.length)
    members: list[tuple[str, str]] = []  # what travels through shared memory
    for at, (name, _) in enumerate(fields(stage.combine)):
        part = DTYPES[name].part
        if part:
            members += [(f"r{at}.re", DTYPES[part].cpp), (f"r{at}.im", DTYPES[part].cpp)]
        else:
            members.append((f"r{at}", DTYPES[name].cpp))
    wide = any(np.dtype(name).itemsize > 4 for name, _ in fields(stage.combine))
    word = "unsigned long long" if wide else "unsigned"

    def turned(to_thread: bool) -> str:
        side, own = "k * 32 + lane", "lane * EACH + k"
        first, then = (side, own) if to_thread else (own, side)
        text = ""
        for member, cpp in members:
            text += (
                f"  {{\n  {cpp}* const room = reinterpret_cast<{cpp}*>(turn[warp]);\n"
                "#pragma unroll\n"
                f"  for (int k = 0; k < EACH; ++k) room[padded({first})] = v[k].{member};\n"
                "  __syncwarp();\n#pragma unroll\n"
                f"  for (int k = 0; k < EACH; ++k) v[k].{member} = room[padded({then})];\n"
                "  __syncwarp();\n  }\n"
            )
        return text

    place = "s.length - 1 - col" if reverse else "col"
    long_place = (
        "    const long long col = begin + slot;\n"
        f"    return col < s.length ? row * s.length + {place} : -1;\n"
    )
    short_place = (
        "    const long long row = base + slot / SPAN;\n    const long long col = slot % SPAN;\n"
        f"    return col < s.length && row * s.length < s.n ? row * s.length + {place} : -1;\n"
    )
    head = _TAKE if several else _BASE
    return "".join([
        "__device__ __forceinline__ int padded(int k) { return k + k / 16; }\n",
        f'extern "C" __global__ void __launch_bounds__({THREADS}) {symbol}(const State s) {{\n',
        f"  constexpr int EACH = {SCAN_EACH}, PART = 32 * EACH, WARPS = {_WARPS};\n",
        f"  constexpr int TILE = WARPS * PART, SPAN = {span};  // places that a row takes\n",
        "  constexpr int LANES = SPAN >= PART ? 32 : SPAN >= EACH ? SPAN / EACH : 1;\n",
        "  constexpr int TOGETHER = SPAN >= PART ? SPAN / PART : 1;  // warps of a row\n",
        f"  __shared__ {word} turn[WARPS][PART + PART / 16];\n",
        "  __shared__ Item sums[WARPS], offset;\n" if several
        else "  __shared__ Item sums[WARPS];\n",
        "  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n",
        head,
        "  const auto place = [&](int slot) -> long long {\n",
        long_place if several else short_place,
        "  };\n  Item v[EACH];\n#pragma unroll\n  for (int k = 0; k < EACH; ++k) {\n",
        "    const long long i = place(warp * PART + k * 32 + lane);\n",
        "    v[k] = i >= 0 ? one(s, i) : identity();\n  }\n",
        turned(True),
        _INSIDE,
        _BEFORE if several else "",
        _EXCLUSIVE if exclusive else _INCLUSIVE,
        turned(False),
        "#pragma unroll\n  for (int k = 0; k < EACH; ++k) {\n",
        "    const long long i = place(warp * PART + k * 32 + lane);\n",
        "    if (i >= 0) finish(s, i, v[k]);\n  }\n}\n",
    ])  # fmt: skip


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
  for (int k = 1; k < EACH; ++k) {
    if (k % SPAN != 0) v[k] = combine(v[k - 1], v[k]);
  }
  // What comes before this thread, if anything `has`: lanes, then warps.
  Item total = v[EACH - 1];
#pragma unroll
  for (int apart = 1; apart < LANES; apart *= 2) {
    const Item other = from_before(total, apart);
    if (lane % LANES >= apart) total = combine(other, total);
  }
  bool has = lane % LANES > 0;
  Item pre = has ? total : identity();
  if (LANES > 1) {
    const Item other = from_before(total, 1);
    if (has) pre = other;
  }
  if (TOGETHER > 1) {
    if (lane == 31) sums[warp] = total;
    __syncthreads();
    const int first = warp / TOGETHER * TOGETHER;
    if (warp > first) {
      Item ahead = sums[first];
      for (int w = first + 1; w < warp; ++w) ahead = combine(ahead, sums[w]);
      pre = has ? combine(ahead, pre) : ahead;
      has = true;
    }
  }
"""

_BEFORE = """\
  if (warp == 0) {
    Item own = sums[0];
    for (int w = 1; w < WARPS; ++w) own = combine(own, sums[w]);
    Word* const tree = s.status + 1 + (Word)row * tree_size(tiles) * WORDS;
    if (lane == 0) tell(tree + (Word)tile * WORDS, own);
    if (tile != 0) {
      const Item before = look_back(tree, tiles, tile, own);
      if (lane == 0) offset = before;
    }
  }
  __syncthreads();
  if (tile != 0) {
    pre = has ? combine(offset, pre) : offset;
    has = true;
  }
"""

_INCLUSIVE = """\
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    if (has) v[k] = combine(pre, v[k]);
  }
"""

_EXCLUSIVE = """\
#pragma unroll
  for (int k = EACH - 1; k >= 0; --k) {
    if (k % SPAN == 0) {
      v[k] = k == 0 && has ? pre : identity();
    } else {
      v[k] = has ? combine(pre, v[k - 1]) : v[k - 1];
    }
  }
"""
