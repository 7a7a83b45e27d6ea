"""The selection kernel: one launch that keeps the elements whose flag holds, in their order.

A block takes one tile and each of its warps a part of it, which it packs in shared memory. Where a
tile's elements go depends on all tiles before it: blocks publish their counts and look back at
those of others (Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back,
2016), through a tree of 32 children a node so that no block waits for a long chain. Tiles are
handed out in the order in which blocks start, so that a block only waits for running ones.
"""

from __future__ import annotations

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower import select_staged
from itfuse.lower.cpp import comment, index_text, prelude, struct_text
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.look_back import BITS, LEVELS, TREE, nodes
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
from itfuse.plan.primitives import selected_bytes
from itfuse.plan.stages import Stage

BLOCK = 256
_MOST = 32  # elements of a thread: one bit each of a word
_SHORT = 8  # instructions of an element whose registers are few

LOOK_BACK = f"""\
// How many elements all tiles before this one chose, by one warp; `own` is what this one did.
// All levels are asked before the first is waited for. The last of 32 children publishes the sum
// of them as soon as it is known.
__device__ __forceinline__ Word look_back(Word* tree, unsigned tiles, unsigned tile, Word own) {{
  const unsigned lane = threadIdx.x % 32;
  Word* level[{LEVELS}];
  unsigned place[{LEVELS}];  // among its siblings
  Word seen[{LEVELS}];
#pragma unroll
  for (int k = 0; k < {LEVELS}; ++k) {{
    const unsigned number = tile >> {BITS} * k;
    place[k] = k < {LEVELS - 1} ? number % 32 : number;
    level[k] = tree + (number - place[k]);
    tree += (tiles >> {BITS} * k) + 1;
    seen[k] = lane < place[k] ? relaxed_load(level[k] + lane) : 0;
  }}
  Word before = 0, total = own;
  bool last = true;  // whether this tile is the last below its node
#pragma unroll
  for (int k = 0; k < {LEVELS}; ++k) {{
    Word siblings = 0;
    for (unsigned at = lane; at < place[k]; at += 32) {{  // once, below the last level
      Word word = at == lane ? seen[k] : relaxed_load(level[k] + at);
      while (!(word & KNOWN)) word = relaxed_load(level[k] + at);
      siblings += word & ~KNOWN;
    }}
    if (place[k] != 0) {{
#pragma unroll
      for (int apart = 16; apart > 0; apart /= 2) {{
        siblings += __shfl_down_sync(0xffffffffu, siblings, apart);
      }}
      siblings = __shfl_sync(0xffffffffu, siblings, 0);
    }}
    before += siblings;
    total += siblings;
    last = last && place[k] == 31;
    if (k < {LEVELS - 1} && last && lane == 0) {{
      publish(level[k + 1] + place[k + 1], total);
    }}
  }}
  return before;
}}
"""


def lower_select(stage: Stage, name: str, aligned: bool, room: int) -> TileKernel:
    """Write a variant of the kernel of a selection, with symbols that start with `name`."""
    slots = stage.element.slots
    extra = (("Word* status;  // the next tile, then a tree for each flag", "Q"),)
    state = state_layout(stage, slots, whole=True, extra=extra)
    symbol = f"{name}_select"
    staged = aligned and select_staged.fits(stage, room)
    each, vector = select_staged.shape(stage) if staged else _shape(stage)
    source = "".join([
        prelude(stage),
        access(aligned),
        ROW if stage.strided else "",
        TREE,
        LOOK_BACK,
        select_staged.HEAD if staged else "",
        struct_text("State", [declaration for declaration, _ in state.fields]),
        struct_text("Item", [
            f"{DTYPES[dtype].cpp} r{at};" for at, dtype in enumerate(stage.element.result_dtypes)
        ]),
        comment(stage.element, "r{at}"),
        one_text(stage, state.rank),
        _kernel(stage, state, aligned, staged).replace("SYMBOL", symbol),
    ])  # fmt: skip
    needs = needs_of(stage, slots, vector, outputs=False) if aligned else None
    return TileKernel(
        symbol, source, state, BLOCK, BLOCK * each,
        needs=select_staged.needs(stage) if staged else needs,
        shared=select_staged.bytes_of if staged else None,
        zeroed=lambda s: _words(s, each) * 8,
    )  # fmt: skip


def _shape(stage: Stage) -> tuple[int, int]:
    """Return the elements of a thread, and of one of its vectors: powers of two.

    A thread keeps 64 bytes of values; the widest input decides how many make 16 bytes.
    """
    each = max(1, min(_MOST, 64 // max(1, selected_bytes(stage))))
    each = 1 << each.bit_length() - 1
    linear = by_layout(stage, stage.element.slots, "linear")
    widest = max((np.dtype(stage.inputs[slot].dtype).itemsize for slot in linear), default=4)
    return each, min(each, 16 // widest)


def _words(stage: Stage, each: int) -> int:
    """Return the words of the status: one for the next tile, then the trees."""
    tiles = max(1, -(-stage.size // (BLOCK * each)))
    return 1 + stage.flags * nodes(tiles)


def _kernel(stage: Stage, state: StateLayout, aligned: bool, staged: bool) -> str:
    flags = stage.flags
    # The elements that a part takes, in the words of flag bits and of a warp's counts.
    taken = [(at, part) for at, part in enumerate(stage.parts) if part >= 0]
    counted = [at for at, part in enumerate(stage.parts) if part < 0]
    values = list(enumerate(taken, flags))  # (result, (output, part))
    each, vector = select_staged.shape(stage) if staged else _shape(stage)
    blocks = select_staged.blocks(stage) if staged else _blocks(stage)
    return "".join([
        f'extern "C" __global__ void __launch_bounds__({BLOCK}, {blocks}) '
        "SYMBOL(const State s) {\n",
        f"  constexpr int V = {vector}, CHUNKS = {each // vector}, EACH = V * CHUNKS;\n",
        "  constexpr int PART = 32 * EACH;\n",
        f"  constexpr int WARPS = {BLOCK // 32}, TILE = WARPS * PART, FLAGS = {flags};\n",
        "  __shared__ unsigned taken;\n",
        "  __shared__ unsigned count[WARPS][FLAGS];\n  __shared__ Word offset[FLAGS];\n",
        "  if (threadIdx.x == 0) taken = atomicAdd(reinterpret_cast<unsigned*>(s.status), 1u);\n",
        "  __syncthreads();\n",
        "  const unsigned tile = taken, tiles = gridDim.x;\n",
        "  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n",
        "  const long long base = (long long)tile * TILE;\n",
        "  const long long mine = base + warp * PART + lane * V;\n",
        "  unsigned chosen[FLAGS] = {};  // flags of this thread's elements\n",
        _flags_staged(stage) if staged else _in_registers(stage, state, aligned, values),
        _COUNT,
        _rank(stage, values, staged),
        _PLACE,
        *(f"  if (tile == tiles - 1 && threadIdx.x == 0) {{\n"
          f"    for (int f = 0; f < FLAGS; ++f) s.y{at}[f] = offset[f] + own[f];\n  }}\n"
          for at in counted),
        *(_write(stage, at, part) for at, part in taken),
        "}\n",
    ])  # fmt: skip


def _bits(stage: Stage, item: str, at: str) -> str:
    """Write the flags of an element into the words of bits."""
    return "".join(
        f"    chosen[{f}] |= (unsigned)({_first(f, item)}) << ({at});\n" for f in range(stage.flags)
    )


def _flags_staged(stage: Stage) -> str:
    return "".join([
        select_staged.bring(stage),
        select_staged.piece(stage),
        "#pragma unroll\n  for (int c = 0; c < CHUNKS; ++c) {\n    Item b[V];\n    piece(c, b);\n",
        "#pragma unroll\n    for (int k = 0; k < V; ++k) {\n",
        _bits(stage, "b[k]", "c * V + k"),
        "    }\n  }\n",
    ])  # fmt: skip


def _in_registers(
    stage: Stage, state: StateLayout, aligned: bool, values: list[tuple[int, tuple[int, int]]]
) -> str:
    """Write how flags and values get into registers."""
    slots, flags = stage.element.slots, stage.flags
    cpp = [DTYPES[dtype].cpp for dtype in stage.element.result_dtypes]

    def keep(at: str) -> str:
        return _bits(stage, "b", at) + "".join(f"    value{r}[{at}] = b.r{r};\n" for r, _ in values)

    chunk = "".join([
        vector_loads(stage, slots, "begin"),
        index_text(stage, state.rank, "begin") if _mapped(stage) else "",
        strided_loads(stage, slots, state.rank, aligned),
        "#pragma unroll\n  for (int k = 0; k < V; ++k) {\n    Item b;\n",
        element_values(stage, slots),
        program_text(stage.element, "b.r{at} = {value};", "    "),
        keep("c * V + k"),
        "  }\n",
    ])  # fmt: skip
    return "".join([
        *(f"  __shared__ {cpp[r]} packed{at}[TILE];\n" for r, (at, _) in values),
        *(f"  {cpp[r]} value{r}[EACH]{' = {}' if part == flags else ''};\n"
          for r, (_, part) in values),
        fixed_values(stage, slots),
        "  if (base + TILE <= s.n) {\n",
        "#pragma unroll\n  for (int c = 0; c < CHUNKS; ++c) {\n",
        "  const long long begin = mine + c * 32 * V;\n",
        chunk,
        "  }\n  } else {\n",
        "#pragma unroll\n  for (int at = 0; at < EACH; ++at) {\n",
        "    const long long i = mine + at / V * 32 * V + at % V;\n",
        "    if (i < s.n) {\n    const Item b = one(s, i);\n",
        keep("at"),
        "    }\n  }\n  }\n",
    ])  # fmt: skip


def _mapped(stage: Stage) -> bool:
    return any(by_layout(stage, stage.element.slots, kind) for kind in ("strided", "index"))


def _blocks(stage: Stage) -> int:
    """Return how many blocks of a multiprocessor the compiler is to leave registers for.

    Blocks wait for each other, so that many must be there; more than these spill.
    """
    if stage.strided or len(stage.element.instrs) > _SHORT:
        return 2
    return 5 if stage.flags == 1 and _shape(stage)[0] <= 16 else 4


def _first(flag: int, item: str) -> str:
    """Write that this flag of an item is the first that holds."""
    return " && ".join([f"{item}.r{flag}", *(f"!{item}.r{earlier}" for earlier in range(flag))])


def _rank(stage: Stage, values: list[tuple[int, tuple[int, int]]], staged: bool) -> str:
    """Write how a warp packs its part: ballots count the lanes before, chunk after chunk."""
    flags = stage.flags
    rest = flags in stage.parts
    stores = ""
    for r, (at, part) in values:
        if part < flags:
            test, place = f"(chosen[{part}] >> at & 1) != 0", f"rank[{part}]"
        else:  # of those that no flag holds of; in the last tile also nothing, behind the end
            marks = " | ".join(f"chosen[{f}]" for f in range(flags))
            test = f"(({marks}) >> at & 1) == 0"
            place = "before" + "".join(f" - rank[{f}]" for f in range(flags))
        value = f"b[k].r{r}" if staged else f"value{r}[at]"
        stores += f"      if ({test}) packed{at}[warp * PART + {place}] = {value};\n"
    return "".join([
        "  // This warp packs its part: lane after lane of a chunk, chunk after chunk.\n",
        "  const unsigned lower = (1u << lane) - 1;\n",
        "  unsigned run[FLAGS] = {};\n",
        "#pragma unroll\n  for (int c = 0; c < CHUNKS; ++c) {\n",
        "    Item b[V];\n    piece(c, b);\n    __syncwarp();  // written over below\n"
        if staged else "",
        "    unsigned rank[FLAGS], all[FLAGS] = {};\n",
        "#pragma unroll\n    for (int f = 0; f < FLAGS; ++f) {\n",
        "      rank[f] = run[f];\n",
        "#pragma unroll\n      for (int k = 0; k < V; ++k) {\n",
        "        const int at = c * V + k;\n",
        "        const unsigned lanes = __ballot_sync(0xffffffffu, chosen[f] >> at & 1);\n",
        "        rank[f] += __popc(lanes & lower);\n        all[f] += __popc(lanes);\n",
        "      }\n      run[f] += all[f];\n    }\n",
        "#pragma unroll\n    for (int k = 0; k < V; ++k) {\n",
        "      const int at = c * V + k;\n",
        "      const unsigned before = c * 32 * V + lane * V + k;\n" if rest else "",
        stores,
        "#pragma unroll\n      for (int f = 0; f < FLAGS; ++f) rank[f] += chosen[f] >> at & 1;\n",
        "    }\n  }\n",
    ])  # fmt: skip


_COUNT = """\
  // Elements chosen by the warps before this one, and by the tile: published before any is packed.
#pragma unroll
  for (int f = 0; f < FLAGS; ++f) {
    unsigned sum = __popc(chosen[f]);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
    if (lane == 0) count[warp][f] = sum;
  }
  __syncthreads();
  unsigned ahead[FLAGS] = {}, own[FLAGS] = {};
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
#pragma unroll
    for (int f = 0; f < FLAGS; ++f) {
      if (w == warp) ahead[f] = own[f];
      own[f] += count[w][f];
    }
  }
#pragma unroll
  for (int f = 0; f < FLAGS; ++f) {
    if (threadIdx.x == f) publish(s.status + 1 + f * tree_size(tiles) + tile, own[f]);
  }
"""

_PLACE = """\
  if (warp == 0) {
#pragma unroll
    for (int f = 0; f < FLAGS; ++f) {
      Word* const tree = s.status + 1 + f * tree_size(tiles);
      const Word found = look_back(tree, tiles, tile, own[f]);
      if (lane == 0) offset[f] = found;
    }
  }
  __syncthreads();
"""


def _write(stage: Stage, at: int, part: int) -> str:
    """Write what this warp packed to its place in an output."""
    flags = stage.flags
    if part < flags:
        start, count = f"offset[{part}] + ahead[{part}]", f"run[{part}]"
        head = ""
    else:
        head = (
            "  const long long left = s.n - base - warp * PART;\n"
            "  const unsigned valid = left < 0 ? 0u : left < PART ? (unsigned)left : PART;\n"
        )
        start = "base + warp * PART" + "".join(f" - offset[{f}] - ahead[{f}]" for f in range(flags))
        count = "valid" + "".join(f" - run[{f}]" for f in range(flags))
    cpp = DTYPES[stage.outputs[at].dtype].cpp
    return (
        f"  {{\n{head}  {cpp}* const to = s.y{at} + ({start});\n  const unsigned many = {count};\n"
        "  for (unsigned i = lane; i < many; i += 32) to[i] = "
        f"packed{at}[warp * PART + i];\n  }}\n"
    )
