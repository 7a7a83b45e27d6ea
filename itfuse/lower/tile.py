"""What every tile kernel shares: vectors, index maps, and how a kernel is described.

A kernel takes one argument, its state block. It comes in two variants. The aligned one is for
arrays of which every vector is aligned, and asks no questions: the usual case, and every
instruction counts. The other asks for each input: one whose addresses do not allow vectors is read
element by element (each line of memory is still fetched once, because neighbours share it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.errors import Unsupported
from itfuse.lower.cpp import index_text, index_type, load_text, map_text, place, places, statements
from itfuse.lower.layout import StateLayout
from itfuse.plan.order import leaf
from itfuse.plan.stages import Program, Stage

ACCESS = """\
// Vectors of 1 to 16 bytes, with the default cache policy (docs/performance.md).
template <int BYTES> struct Raw;
template <> struct Raw<1> { typedef char type; };
template <> struct Raw<2> { typedef short type; };
template <> struct Raw<4> { typedef int type; };
template <> struct Raw<8> { typedef int2 type; };
template <> struct Raw<16> { typedef int4 type; };
template <typename T, int V> struct alignas(sizeof(T) * V <= 16 ? sizeof(T) * V : 16) Vec {
  T at[V];
};
template <typename T, int V> __device__ __forceinline__ bool is_aligned(const T* p) {
  return ALIGNED || (reinterpret_cast<unsigned long long>(p) & (alignof(Vec<T, V>) - 1)) == 0;
}
template <typename T, int V>
__device__ __forceinline__ void load(Vec<T, V>& to, const T* from, bool aligned) {
  constexpr int BYTES = alignof(Vec<T, V>);
  typedef typename Raw<BYTES>::type raw;
  if (aligned) {
#pragma unroll
    for (int k = 0; k < (int)sizeof(to) / BYTES; ++k) {
      reinterpret_cast<raw*>(&to)[k] = reinterpret_cast<const raw*>(from)[k];
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to.at[k] = from[k];
  }
}
template <typename T, int V>
__device__ __forceinline__ void store(T* to, const Vec<T, V>& from, bool aligned) {
  constexpr int BYTES = alignof(Vec<T, V>);
  typedef typename Raw<BYTES>::type raw;
  if (aligned) {
#pragma unroll
    for (int k = 0; k < (int)sizeof(from) / BYTES; ++k) {
      reinterpret_cast<raw*>(to)[k] = reinterpret_cast<const raw*>(&from)[k];
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to[k] = from.at[k];
  }
}
"""

ROW = """\
// Loads V elements of a row that are `step` bytes apart. Where `step` is C elements, C of -1 to 4,
// they come from whole vectors: all they hold, the same backwards, or every C-th element of C of
// them (which end one element before the next one of the row: there must be one `more`).
constexpr int ANY = 9;
template <int C, typename T, int V>
__device__ __forceinline__ void row(Vec<T, V>& to, const char* p, long long step, bool more) {
  if (C == 0) {
    const T all = *reinterpret_cast<const T*>(p);
#pragma unroll
    for (int k = 0; k < V; ++k) to.at[k] = all;
    return;
  }
  constexpr int COUNT = C == ANY || C < 2 ? 1 : C;
  const T* from = reinterpret_cast<const T*>(p) - (C == -1 ? V - 1 : 0);
  if (C != ANY && (COUNT == 1 || more) && is_aligned<T, V>(from)) {
    Vec<T, V> part[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) load(part[k], from + k * V, true);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      to.at[k] = C == -1 ? part[0].at[V - 1 - k] : part[k * COUNT / V].at[k * COUNT % V];
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to.at[k] = *reinterpret_cast<const T*>(p + k * step);
  }
}
"""


MOST_BYTES = 32_764
"""Bytes that CUDA 12.1 and newer take as the arguments of a kernel."""


@dataclass(frozen=True)
class Needs:
    """What an aligned kernel asks of a launch.

    Attributes
    ----------
    vector : int
        Elements of a vector.
    inputs : tuple of (int, int, int)
        Slot, byte offset and mask: the bits that address + offset must not have.
    outputs : tuple of int
        Mask of each output; none for a reduction, which writes element by element.
    rows : bool
        Whether vectors must not cross the ends of rows either.
    """

    vector: int
    inputs: tuple[tuple[int, int, int], ...]
    outputs: tuple[int, ...]
    rows: bool

    def met(self, stage: Stage, operands: Sequence[Any], outputs: Sequence[int]) -> bool:
        """Return whether a launch with these addresses gives what is asked."""
        bits = 0
        for slot, offset, mask in self.inputs:
            bits |= (operands[slot] + offset) & mask
        for address, mask in zip(outputs, self.outputs, strict=False):
            bits |= address & mask
        return not bits and (not self.rows or self._whole_rows(stage))

    def _whole_rows(self, stage: Stage) -> bool:
        return stage.dims[-1] % self.vector == 0 and not any(
            step & mask
            for slot, _, mask in self.inputs
            for step in stage.inputs[slot].strides[:-1]
            if stage.inputs[slot].layout == "strided"
        )


def needs_of(stage: Stage, slots: Sequence[int], vector: int, outputs: bool) -> Needs:
    """Return what vectors of the inputs `slots`, and of the outputs, ask for."""
    inputs = []
    for slot in slots:
        source = stage.inputs[slot]
        mask = _mask(source.dtype, vector)
        if source.layout == "linear":
            inputs.append((slot, 0, mask))
        elif source.layout == "strided" and source.inner:
            # Backwards, a vector ends where the index points.
            offset = np.dtype(source.dtype).itemsize if source.inner == -1 else 0
            inputs.append((slot, offset, mask))
    # An output with strides of its own is written element by element.
    targets = tuple(0 if o.strides else _mask(o.dtype, vector) for o in stage.outputs)
    targets = targets if outputs else ()
    return Needs(vector, tuple(inputs), targets, bool(by_layout(stage, slots, "strided")))


def _mask(dtype: str, vector: int) -> int:
    return min(16, np.dtype(dtype).itemsize * vector) - 1


def access(aligned: bool) -> str:
    """Write the vectors of a variant."""
    return f"constexpr bool ALIGNED = {'true' if aligned else 'false'};\n{ACCESS}"


@dataclass(frozen=True)
class TileKernel:
    """A kernel's text and how to launch it.

    Attributes
    ----------
    symbol : str
        Name of the kernel; its only argument is the state block.
    source : str
        A complete translation unit.
    state : StateLayout
        The block.
    block : int
        Threads of a block.
    span : int
        Elements of the domain for one block; 0 for a reduction, which goes leaf by leaf.
    partial : int
        Bytes of a leaf's partial result; 0 for a kernel without scratch memory.
    grid : callable, optional
        Stage -> blocks, for a kernel that does not walk the flat domain.
    needs : Needs, optional
        What the aligned variant asks of a launch.
    partials : callable, optional
        Stage -> number of partial results, if it is not that of the blocks.
    counters : callable, optional
        Stage -> how many counts of finished blocks the kernel needs, if not one.
    zeroed : callable, optional
        Stage -> bytes of memory that a launch needs, all zero; a further member is their address.
    numbers : callable, optional
        Stage -> values of the members behind that.
    shared : callable, optional
        Stage -> bytes of shared memory that a launch asks for.
    """

    symbol: str
    source: str
    state: StateLayout
    block: int
    span: int
    partial: int = 0
    grid: Callable[[Stage], int] | None = None
    needs: Needs | None = None
    partials: Callable[[Stage], int] | None = None
    counters: Callable[[Stage], int] | None = None
    zeroed: Callable[[Stage], int] | None = None
    numbers: Callable[[Stage], tuple[int, ...]] | None = None
    shared: Callable[[Stage], int] | None = None

    def __post_init__(self) -> None:
        if self.state.size > MOST_BYTES:
            raise Unsupported(
                f"a pass with {len(self.state.slots)} inputs takes {self.state.size:,} bytes of "
                f"arguments, and a kernel {MOST_BYTES:,}; compute() a part of it first"
            )

    def fits(self, stage: Stage, operands: Sequence[Any], outputs: Sequence[int]) -> bool:
        """Return whether this variant may run with these addresses; the other always may."""
        return self.needs is None or self.needs.met(stage, operands, outputs)

    def scratch(self, stage: Stage) -> tuple[int, int]:
        """Return the bytes of partial results and the number of counts that a launch needs."""
        partials = self.partials(stage) if self.partials else self.spans(stage)
        return partials * self.partial, self.counters(stage) if self.counters else 1

    def spans(self, stage: Stage) -> int:
        """Return how many blocks or leaves cover the domain, at least one."""
        if self.grid is not None:
            return self.grid(stage)
        return max(1, -(-stage.size // (self.span or leaf(stage.size))))


def by_layout(stage: Stage, slots: Sequence[int], layout: str) -> list[int]:
    """Return the slots whose inputs have this layout, scalars aside."""
    return [
        s for s in slots if stage.inputs[s].layout == layout and stage.inputs[s].kind != "scalar"
    ]


def next_index(rank: int, kind: str, index: str = "i") -> str:
    """Move the indices on to the next element, the last axis fastest."""
    text = f"++{index}0;"
    for axis in range(1, rank):
        i = f"{index}{axis}"
        text = f"if (++{i} == ({kind})s.size[{axis}]) {{ {i} = 0; {text} }}"
    return text


def copied_index(rank: int, kind: str, index: str) -> str:
    """Copy the decoded indices, to walk with the copy."""
    return "".join(f"  {kind} {index}{axis} = i{axis};\n" for axis in range(rank))


def index_values(stage: Stage, slots: Sequence[int], rank: int) -> str:
    """Make a vector of each input that is a number of the index, at the decoded indices."""
    made = by_layout(stage, slots, "index")
    if not made:
        return ""
    kind = index_type(stage)
    declared = "".join(f"  Vec<{DTYPES[stage.inputs[s].dtype].cpp}, V> e{s};\n" for s in made)
    walk = "".join(f"    e{s}.at[k] = s.x{s} + {map_text(stage, s, 'm')};\n" for s in made)
    return (
        f"{declared}  {{\n{copied_index(rank, kind, 'm')}"
        f"#pragma unroll\n  for (int k = 0; k < V; ++k) {{\n{walk}"
        f"    {next_index(rank, kind, 'm')}\n  }}\n  }}\n"
    )


def row_loads(stage: Stage, slots: Sequence[int], rank: int) -> str:
    """Load a vector of each strided input; it stays in the row, of which `left` are left."""
    text = ""
    for slot in by_layout(stage, slots, "strided"):
        source = stage.inputs[slot]
        apart = "ANY" if source.inner is None else source.inner
        text += f"  Vec<{DTYPES[source.dtype].cpp}, V> e{slot};\n"
        text += f"  row<{apart}>(e{slot}, {place(stage, slot)},\n"
        text += f"      s.step{slot}[{rank - 1}], left > V);\n"
    return text


def strided_loads(stage: Stage, slots: Sequence[int], rank: int, aligned: bool) -> str:
    """Load a vector of each strided input at the decoded indices, and make those of numbers.

    A vector that stays within one row, as all do in the aligned variant, is loaded by `row`, in
    vectors where addresses allow it; one that does not is walked element by element.
    """
    strided = by_layout(stage, slots, "strided")
    numbers = index_values(stage, slots, rank)
    if not strided:
        return numbers
    declared = walk = ""
    for slot in strided:
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        declared += f"  Vec<{cpp}, V> e{slot};\n"
        walk += f"      e{slot}.at[k] = *reinterpret_cast<const {cpp}*>(\n"
        walk += f"          {place(stage, slot)});\n"
    kind = index_type(stage)
    loads = row_loads(stage, strided, rank)
    rows = "".join(f"  {line}\n" for line in loads.splitlines() if not line.startswith("  Vec<"))
    left = f"  const {kind} left = ({kind})s.size[{rank - 1}] - i{rank - 1};  // of this row\n"
    if aligned:
        return numbers + left + loads
    return (
        f"{numbers}{left}{declared}  if (left >= V) {{\n{rows}  }} else {{\n"
        f"#pragma unroll\n    for (int k = 0; k < V; ++k) {{\n{walk}"
        f"      {next_index(rank, kind)}\n    }}\n  }}\n"
    )


def vector_loads(stage: Stage, slots: Sequence[int], begin: str) -> str:
    """Load a vector of each linear input at `begin`."""
    text = ""
    for slot in by_layout(stage, slots, "linear"):
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        at = f"s.x{slot} + {begin}"
        text += f"  Vec<{cpp}, V> e{slot};\n  load(e{slot}, {at}, is_aligned<{cpp}, V>({at}));\n"
    return text


def element_values(stage: Stage, slots: Sequence[int]) -> str:
    """Name element k of every loaded vector."""
    return "".join(
        f"    const {DTYPES[stage.inputs[slot].dtype].cpp} x{slot} = e{slot}.at[k];\n"
        for layout in ("linear", "strided", "index")
        for slot in by_layout(stage, slots, layout)
    )


def fixed_values(stage: Stage, slots: Sequence[int]) -> str:
    """Load the inputs of which one element serves all."""
    return "".join(load_text(stage, slot) for slot in by_layout(stage, slots, "fixed"))


def stored_element(stage: Stage, at: int, plain: str, index: str = "i") -> str:
    """Write where element i of output `at` goes: `plain`, or along the output's own strides."""
    output = stage.outputs[at]
    if not output.strides:
        return plain.format(at=at)
    cpp = DTYPES[output.dtype].cpp
    kind = index_type(stage)
    offset = " + ".join(
        f"(long long){index}{axis} * ({kind})s.ystep{at}[{axis}]" for axis in range(len(stage.dims))
    )
    return f"*reinterpret_cast<{cpp}*>(reinterpret_cast<char*>(s.y{at}) + ({offset}))"


def program_text(program: Program, store: str | Sequence[str], indent: str = "  ") -> str:
    """Write a program's statements.

    `store` takes each result's number `at` and its `value`; or one such text a result.
    """
    values: dict[int, str] = {}
    lines = [indent[2:] + line for line in statements(program, values)]
    for at, value in enumerate(program.results):
        form = store if isinstance(store, str) else store[at]
        lines.append(indent + form.format(at=at, value=values[value]) + "\n")
    return "".join(lines)


def one_text(stage: Stage, rank: int) -> str:
    """Write the element function at an index: `one`, for elements that no vector holds."""
    loads = "".join(load_text(stage, slot) for slot in stage.element.slots)
    return (
        "__device__ __forceinline__ Item one(const State& s, const long long i) {\n"
        f"{'  const long long position = i;' + chr(10) if places(stage.element) else ''}"
        f"{index_text(stage, rank)}  Item b;\n{loads}"
        f"{program_text(stage.element, 'b.r{at} = {value};')}  return b;\n}}\n"
    )
