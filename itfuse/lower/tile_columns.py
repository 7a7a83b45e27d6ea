"""The kernel for reductions whose elements lie across memory: nothing is transposed.

A thread has a vector of neighbouring columns and walks down them. A column is cut into parts, each
what a warp combines in the order of plan/order.py: a thread walks a part in the order in which its
tree is combined depth first, so that a handful of intermediate results suffices. Parts meet in
shared memory. Of columns longer than a leaf, blocks take leaves, and the last block to finish with
a tile of columns combines them.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.accumulator import item_dtype, item_functions, item_struct
from itfuse.lower.cpp import prelude, struct_text
from itfuse.lower.rows import (
    arrays,
    base,
    base_type,
    bases,
    element_text,
    exchange,
    finish_text,
    mask,
    row_indices,
    row_state,
    value,
)
from itfuse.lower.tile import Needs, TileKernel, access
from itfuse.plan.order import LANES, LARGE, LARGE_LEAF, LEAF, THREADS, WARP, leaf
from itfuse.plan.stages import Stage, fields

SHARED = 47 << 10
"""Bytes of shared memory for parts; every device gives a block 48 KiB without asking."""

_BYTES = 16
"""Bytes of accumulators for one element of each of a thread's columns: more would not fit."""


@dataclasses.dataclass(frozen=True)
class _Shape:
    """How a block shares out its columns.

    Attributes
    ----------
    vector : int
        Neighbouring columns of a thread.
    parts : int
        Threads that share a column of a leaf.
    across : int
        Threads side by side.
    """

    vector: int
    parts: int
    across: int

    @property
    def leaves(self) -> int:
        """Leaves that a block walks at once."""
        return THREADS // self.parts // self.across

    def tiles(self, stage: Stage) -> int:
        """Return how many tiles of columns there are."""
        return max(1, -(-stage.rows // (self.across * self.vector)))


def shape_of(stage: Stage) -> _Shape:
    """Return how blocks share out the columns of a stage, by its size class."""
    parts, columns = stage.size_class
    assert isinstance(parts, int) and isinstance(columns, int)
    widest = max(np.dtype(name).itemsize for name, _ in fields(stage.combine))
    size = item_dtype(stage.combine).itemsize
    vector = max(1, min(LANES, _BYTES // min(size, _BYTES), 16 // widest))
    whole = THREADS // parts
    across = min(whole, max(1, columns // vector))
    if parts < THREADS // WARP:  # one leaf: every thread has columns
        across = whole
    return _Shape(vector, parts, across)


def _leaves(stage: Stage) -> int:
    return max(1, -(-stage.length // leaf(stage.length)))


def splits(stage: Stage) -> int:
    """Return how many blocks share a tile of columns."""
    shape = shape_of(stage)
    return -(-_leaves(stage) // shape.leaves)


_KERNEL = f"""\
  const int cx = threadIdx.x % ACROSS, wv = threadIdx.x / ACROSS % PARTS;
  const int lf = threadIdx.x / (ACROSS * PARTS);
  const long long tiles = (s.rows + ACROSS * V - 1) / (ACROSS * V);
  const long long tile = blockIdx.x % tiles, part = blockIdx.x / tiles;
  const int splits = gridDim.x / tiles;
  const long long column = (tile * ACROSS + cx) * V;
  const long long there = s.rows - column;
  const int rounds = s.length < {LARGE} ? 1 : {LARGE_LEAF // LEAF};
  const long long leaf_size = {LEAF}ll * rounds;
  const long long leaves = (s.length + leaf_size - 1) / leaf_size;
"""


def lower_columns(stage: Stage, name: str, aligned: bool) -> TileKernel:
    """Write a variant of the kernel of a `columns` stage, with symbols that start with `name`."""
    extra = (("Item0* partial;", "Q"), ("unsigned* finished;", "Q"))
    state = row_state(stage, extra)
    shape = shape_of(stage)
    symbol = f"{name}_columns"
    source = "".join([
        prelude(stage),
        access(aligned),
        exchange(stage),
        item_struct(stage.combine, "Item0"),
        item_functions(stage.combine, "Item0", "0"),
        struct_text("State", [declaration for declaration, _ in state.fields]),
        f"constexpr int V = {shape.vector}, PARTS = {shape.parts}, ACROSS = {shape.across};\n",
        f"constexpr int LEAVES = {shape.leaves};\nstruct Row {{\n  Item0 at[V];\n}};\n",
        _COMBINE,
        _parts_tree(stage, shape),
        _quad(stage, aligned),
        _KERNEL_HEAD.replace("SYMBOL", symbol).replace("BLOCKS", _blocks(stage)),
        _KERNEL,
        _WALK,
        _finish(stage),
        "}\n",
    ])  # fmt: skip
    needs = None
    if aligned:
        inputs = tuple(
            (s, 0, mask(stage.inputs[s].dtype, shape.vector))
            for s in arrays(stage, stage.element.slots)
            if _how(stage, s, True) == "vector"
        )
        needs = ColumnNeeds(shape.vector, inputs, (), True)
    return TileKernel(
        symbol, source, state, THREADS, 0, item_dtype(stage.combine).itemsize, needs=needs,
        grid=lambda stage: shape.tiles(stage) * splits(stage),
        partials=lambda stage: _leaves(stage) * max(1, stage.rows),
        counters=shape.tiles,
    )  # fmt: skip


class ColumnNeeds(Needs):
    """What vectors across columns ask of a launch."""

    def _whole_rows(self, stage: Stage) -> bool:
        last = stage.kept - 1
        return stage.dims[last] % self.vector == 0 and not any(
            step & bits
            for slot, _, bits in self.inputs
            for axis, step in enumerate(stage.inputs[slot].strides)
            if axis != last
        )


def _how(stage: Stage, slot: int, aligned: bool) -> str:
    """Say how an input moves from column to column: `vector`, `fixed` or `step`."""
    source = stage.inputs[slot]
    last = stage.kept - 1
    if source.layout == "fixed":
        return "fixed"
    if source.layout == "linear":  # rows of one element
        return "step"
    if not any(source.moves[: stage.kept]):
        return "fixed"
    if not aligned and last > 0:  # a thread's columns may lie on both sides of an end
        return "step"
    if not source.moves[last]:
        return "fixed"
    return "vector" if source.inner == 1 and source.layout == "strided" else "step"


def _blocks(stage: Stage) -> str:
    """Return the blocks to leave registers for: large accumulators need them all."""
    return "1" if item_dtype(stage.combine).itemsize > _BYTES else "2"


_KERNEL_HEAD = f"""\
extern "C" __global__ void __launch_bounds__({THREADS}, BLOCKS) SYMBOL(const State s) {{
"""

_COMBINE = """\
__device__ __forceinline__ Row combine(const Row& a, const Row& b) {
  Row r;
#pragma unroll
  for (int v = 0; v < V; ++v) r.at[v] = combine(a.at[v], b.at[v]);
  return r;
}
__device__ __forceinline__ Row nothing() {
  Row r;
#pragma unroll
  for (int v = 0; v < V; ++v) r.at[v] = identity0();
  return r;
}
// Combines what `one(t)` gives for the threads t of a warp in its tree, depth first: of 32, 0 with
// 16, 8 with 24, those two, 4 with 20, and so on. Results wait in one place for each level.
template <typename F> __device__ __forceinline__ Row warp_tree(int count, F one) {
  Row waits[5], a = nothing();
#pragma unroll
  for (int level = 0; level < 5; ++level) waits[level] = nothing();
  int levels = 0;
  while (1 << levels < count) ++levels;
  for (int n = 0; n < 1 << levels; ++n) {
    const int turned = (n & 1) << 4 | (n & 2) << 2 | (n & 4) | (n & 8) >> 2 | (n & 16) >> 4;
    const int t = turned >> (5 - levels);
    a = t < count ? one(t) : nothing();
    bool go = true;
#pragma unroll
    for (int level = 0; level < 5; ++level) {
      if (go) {
        if (n >> level & 1) {
          a = combine(waits[level], a);
        } else {
          waits[level] = a;
          go = false;
        }
      }
    }
  }
  return a;
}
"""


def _parts_tree(stage: Stage, shape: _Shape) -> str:
    """Write how the threads that share a column combine their parts, through shared memory.

    Field by field where whole accumulators would not fit there.
    """
    size = item_dtype(stage.combine).itemsize
    moved = [("Item0", "")]
    if size * shape.vector * THREADS > SHARED:
        moved = [
            (DTYPES[kind].cpp, f".r{at}") for at, (kind, _) in enumerate(fields(stage.combine))
        ]
        size = 16
    lines = [
        "// Combines the parts of each column; the result is that of the threads of part 0.\n",
        "__device__ __forceinline__ Row parts_tree(Row a) {\n  if (PARTS == 1) return a;\n",
        f"  __shared__ __align__(16) unsigned char room[V * {THREADS} * {size}];\n",
        "#pragma unroll\n  for (int apart = PARTS / 2; apart > 0; apart /= 2) {\n",
        f"    Row b;\n    const int other = (threadIdx.x + apart * ACROSS) % {THREADS};\n",
    ]
    for kind, member in moved:
        lines += [
            f"    {{\n      auto* const of_part = reinterpret_cast<{kind}(*)[{THREADS}]>(room);\n",
            "      __syncthreads();\n#pragma unroll\n",
            f"      for (int v = 0; v < V; ++v) of_part[v][threadIdx.x] = a.at[v]{member};\n",
            "      __syncthreads();\n#pragma unroll\n",
            f"      for (int v = 0; v < V; ++v) b.at[v]{member} = of_part[v][other];\n    }}\n",
        ]
    return "".join([*lines, "    a = combine(a, b);\n  }\n  return a;\n}\n"])


_WALK = f"""\
  Row a = nothing();
  const long long leaf = part * LEAVES + lf;
  const long long first = leaf * leaf_size;
  const long long size = there > 0 && leaf < leaves
      ? (s.length - first < leaf_size ? s.length - first : leaf_size) : 0;
  // This thread's part of the leaf: threads wv * 32 to wv * 32 + 31 of the order.
  const long long mine = size - wv * {WARP * LANES};
  const int count = mine <= 0 ? 0
      : mine < {WARP * LANES} ? (int)((mine + {LANES - 1}) / {LANES}) : {WARP};
  if (count > 0) {{
    const Column at = column_of(s, column);
    a = warp_tree(count, [&](int t) {{
      return quad(s, at, first, (wv * {WARP} + t) * {LANES}, size, there);
    }});
  }}
  a = parts_tree(a);
  if (leaves > 1) {{
    if (wv == 0 && leaf < leaves) {{
#pragma unroll
      for (int v = 0; v < V; ++v) {{
        if (v < there) s.partial[leaf * s.rows + column + v] = a.at[v];
      }}
    }}
    // The last block to finish with these columns combines their leaves.
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {{
      __threadfence();
      is_last = atomicAdd(s.finished + tile, 1u) == splits - 1;
    }}
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    a = nothing();
    if (there > 0 && lf == 0) {{
      const long long rest = leaves - wv * {WARP};
      a = warp_tree(rest <= 0 ? 0 : rest < {WARP} ? (int)rest : {WARP}, [&](int t) {{
        Row sum = nothing();
        for (long long leaf = wv * {WARP} + t; leaf < leaves; leaf += {THREADS}) {{
#pragma unroll
          for (int v = 0; v < V; ++v) {{
            if (v < there) {{
              sum.at[v] = combine(sum.at[v], fresh(s.partial + leaf * s.rows + column + v));
            }}
          }}
        }}
        return sum;
      }});
    }}
    a = parts_tree(a);
    if (threadIdx.x == 0) s.finished[tile] = 0;  // ready for the next launch on this stream
  }}
  if (wv > 0 || lf > 0) return;
"""


def _quad(stage: Stage, aligned: bool) -> str:
    """Write the functions that place a thread's columns, and combine four elements of each."""
    slots = stage.element.slots
    cpp = {s: DTYPES[stage.inputs[s].dtype].cpp for s in arrays(stage, slots)}
    kinds = {s: _how(stage, s, aligned) for s in cpp}
    members = "".join(
        f"  {base_type(stage, s)} b{s}{'[V]' if kinds[s] == 'step' else ''};\n" for s in cpp
    )
    placed = ""
    for s in cpp:
        if kinds[s] == "step":
            continue
        placed += f"  c.b{s} = {base(stage, s)};\n"
    stepped = "".join(f"    c.b{s}[v] = {base(stage, s)};\n" for s in cpp if kinds[s] == "step")
    each = "  const long long row = column;\n" + row_indices(stage) + placed if placed else ""
    if stepped:
        each += (
            "#pragma unroll\n  for (int v = 0; v < V; ++v) {\n"
            "    const long long row = column + v < s.rows ? column + v : column;\n"
            + row_indices(stage)
            + stepped
            + "  }\n"
        )
    vectors = [s for s in cpp if kinds[s] == "vector"]
    loads = "".join(
        f"        const {cpp[s]}* const p{s} = reinterpret_cast<const {cpp[s]}*>(\n"
        f"            reinterpret_cast<const char*>(c.b{s}) + {_down(stage, s)});\n"
        f"        if (ALIGNED) {{\n          load(e{s}, p{s}, true);\n        }} else {{\n"
        f"#pragma unroll\n          for (int v = 0; v < V; ++v) "
        f"e{s}.at[v] = v < there ? p{s}[v] : p{s}[0];\n        }}\n"
        for s in vectors
    )
    fixed = "".join(
        f"        const {cpp[s]} x{s} = {value(stage, s, f'c.b{s}', _down(stage, s))};\n"
        for s, kind in kinds.items()
        if kind == "fixed"
    )
    values = "".join(f"          const {cpp[s]} x{s} = e{s}.at[v];\n" for s in vectors)
    values += "".join(
        f"          const {cpp[s]} x{s} = {value(stage, s, f'c.b{s}[v]', _down(stage, s))};\n"
        for s in cpp
        if kinds[s] == "step"
    )
    stores = [f"b.r{at} = {{value}};" for at in range(len(fields(stage.combine)))]
    one = "".join([
        fixed,
        "#pragma unroll\n        for (int v = 0; v < V; ++v) {\n",
        "          Item0 b;\n",
        values,
        element_text(stage.element, stores, "          "),
        "          lane_of[w].at[v] = combine(lane_of[w].at[v], b);\n",
        "        }\n",
    ])  # fmt: skip
    walk = (
        "#pragma unroll\n    for (int n = 0; n < AHEAD; ++n) {\n"
        f"#pragma unroll\n      for (int w = 0; w < {LANES}; ++w) {{\n"
        "        const long long position = first + step + n * NEXT + w;\n"
    ) + "".join(f"        Vec<{cpp[s]}, V>& e{s} = ahead{s}[n][w];\n" for s in vectors)
    return "".join([
        f"struct Column {{\n{members or '  char none;' + chr(10)}}};\n",
        "__device__ __forceinline__ Column column_of(const State& s, long long column) {\n",
        "  Column c;\n", each, "  return c;\n}\n",
        "__device__ __forceinline__ Row quad(const State& s, const Column& c, long long first,\n"
        "                                    int begin, long long size, long long there) {\n",
        f"  Row lane_of[{LANES}];\n"
        f"#pragma unroll\n  for (int w = 0; w < {LANES}; ++w) lane_of[w] = nothing();\n",
        f"  constexpr int NEXT = {THREADS * LANES}, AHEAD = {_ahead(stage)};\n",
        "  long long step = begin;\n"
        "  // Nothing to ask, so that every load is on its way before the first is waited for.\n"
        f"  for (; step + (AHEAD - 1) * NEXT + {LANES} <= size; step += AHEAD * NEXT) {{\n",
        *(f"    Vec<{cpp[s]}, V> ahead{s}[AHEAD][{LANES}];\n" for s in vectors),
        *((walk, loads, "      }\n    }\n") if vectors else ()),
        walk,
        one,
        "      }\n    }\n  }\n",
        "#pragma unroll 1\n  for (; step < size; step += NEXT) {\n",
        f"#pragma unroll\n    for (int w = 0; w < {LANES}; ++w) {{\n",
        "      if (step + w < size) {\n",
        "        const long long position = first + step + w;\n",
        *(f"        Vec<{cpp[s]}, V> e{s};\n" for s in vectors),
        loads,
        one,
        "      }\n    }\n  }\n",
        "  return combine(combine(lane_of[0], lane_of[1]), combine(lane_of[2], lane_of[3]));\n}\n",
    ])  # fmt: skip


def _ahead(stage: Stage) -> int:
    """Return how many steps of four elements are loaded at once: more registers would spill.

    Large accumulators leave a thread a column or two, so that it needs more steps for as many bytes
    on their way.
    """
    return 2 if item_dtype(stage.combine).itemsize <= 4 else 4


def _down(stage: Stage, slot: int) -> str:
    """Write the bytes from the top of a column to its element `position`."""
    source = stage.inputs[slot]
    if source.layout == "fixed":
        return "0"
    if source.layout == "linear":
        return f"position * {np.dtype(source.dtype).itemsize}"
    first = stage.kept
    terms, rest = [], "position"
    for axis in range(len(stage.dims) - 1, first, -1):
        if source.moves[axis]:
            terms.append(f"{rest} % s.size[{axis}] * s.step{slot}[{axis}]")
        rest = f"({rest} / s.size[{axis}])"
    if source.moves[first]:
        terms.append(f"{rest} * s.step{slot}[{first}]")
    return " + ".join(terms) or "0"


def _finish(stage: Stage) -> str:
    """Write the epilogue of each column."""
    assert stage.finish is not None
    named = bases(stage, stage.finish.slots)
    return "".join([
        "#pragma unroll\n  for (int v = 0; v < V; ++v) {\n    if (v >= there) break;\n",
        "    const long long row = column + v;\n    const Item0& a0 = a.at[v];\n",
        row_indices(stage) if named else "",
        named,
        finish_text(stage, stage.phases[0], 0, "a0"),
        *(f"    s.y{at}[row] = q{value};\n" for at, value in enumerate(stage.written)),
        "  }\n",
    ])  # fmt: skip
