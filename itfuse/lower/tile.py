"""What every tile kernel shares: vectors, index maps, and how a kernel is described.

A kernel takes one argument, its state block. Contiguous inputs are read in vectors where their
addresses allow it; an address that does not is read element by element, decided at run time and
alike for the whole grid (each line of memory is still fetched once, because neighbouring threads
share it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import index_text, load_text, statements
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
  return (reinterpret_cast<unsigned long long>(p) & (alignof(Vec<T, V>) - 1)) == 0;
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
    """

    symbol: str
    source: str
    state: StateLayout
    block: int
    span: int
    partial: int = 0

    def spans(self, size: int) -> int:
        """Return how many spans cover `size` elements, at least one."""
        return max(1, -(-size // (self.span or leaf(size))))


def by_layout(stage: Stage, slots: Sequence[int], layout: str) -> list[int]:
    """Return the slots whose inputs have this layout, scalars aside."""
    return [
        s for s in slots if stage.inputs[s].layout == layout and stage.inputs[s].kind != "scalar"
    ]


def index_begin(rank: int, index: str, narrow: bool = False) -> str:
    """Decode the flat index into one index an axis; `index_next` moves on by one element."""
    return index_text(rank, index, narrow, const="") if rank else ""


def index_next(rank: int) -> str:
    """Move the indices on to the next element, the last axis fastest."""
    if not rank:
        return ""
    text = "++i0;"
    for axis in range(1, rank):
        text = f"if (++i{axis} == s.size[{axis}]) {{ i{axis} = 0; {text} }}"
    return f"    {text}\n"


def vector_loads(stage: Stage, slots: Sequence[int], begin: str, aligned_at: str) -> str:
    """Load a vector of each linear input at `begin`; its alignment is that of `aligned_at`."""
    lines = []
    for slot in by_layout(stage, slots, "linear"):
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        lines.append(f"  Vec<{cpp}, V> e{slot};\n")
        lines.append(
            f"  load(e{slot}, s.x{slot} + {begin}, is_aligned<{cpp}, V>(s.x{slot}{aligned_at}));\n"
        )
    return "".join(lines)


def element_values(stage: Stage, slots: Sequence[int], rank: int) -> str:
    """Name element k of every loaded vector, and load the mapped inputs there."""
    lines = [
        f"    const {DTYPES[stage.inputs[slot].dtype].cpp} x{slot} = e{slot}.at[k];\n"
        for slot in by_layout(stage, slots, "linear")
    ]
    lines += ["  " + load_text(stage, slot, rank) for slot in slots if stage.inputs[slot].mapped]
    return "".join(lines)


def fixed_values(stage: Stage, slots: Sequence[int]) -> str:
    """Load the inputs of which one element serves all."""
    return "".join(load_text(stage, slot, 0) for slot in by_layout(stage, slots, "fixed"))


def stored_element(stage: Stage, at: int, rank: int, plain: str) -> str:
    """Write where element i of output `at` goes: `plain`, or along the output's own strides."""
    output = stage.outputs[at]
    if not output.strides:
        return plain.format(at=at)
    cpp = DTYPES[output.dtype].cpp
    offset = " + ".join(f"i{axis} * s.ystep{at}[{axis}]" for axis in range(rank))
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
