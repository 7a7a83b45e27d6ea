"""Tile kernels: whole CUDA kernels around a stage's element function.

A transform's thread owns one vector of consecutive elements: 16 bytes of its widest operand, and
proportionally less of the narrower ones. Vectors are aligned to the first output; an operand
that disagrees, at run time, is accessed element by element (each line of memory is still fetched
once, because neighbouring threads share it). The elements before the first and after the last
whole vector are done by the first block, inside the same launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import index_text, load_text, prelude, statements, struct_text
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.plan.stages import Stage

BLOCK = 256
"""Threads of a block: with one vector a thread, 256 and 1,024 measured the same."""

_ACCESS = """\
// Vectors of 1 to 16 bytes; streaming, because a pass reads and writes each element once.
template <int BYTES> struct Raw;
template <> struct Raw<1> { typedef char type; };
template <> struct Raw<2> { typedef short type; };
template <> struct Raw<4> { typedef int type; };
template <> struct Raw<8> { typedef int2 type; };
template <> struct Raw<16> { typedef int4 type; };
template <typename T, int V> struct alignas(sizeof(T) * V) Vec { T at[V]; };
template <typename T, int V> __device__ __forceinline__ bool is_aligned(const T* p) {
  return (reinterpret_cast<unsigned long long>(p) & (sizeof(T) * V - 1)) == 0;
}
template <typename T, int V>
__device__ __forceinline__ void load(Vec<T, V>& to, const T* from, bool aligned) {
  typedef typename Raw<sizeof(T) * V>::type raw;
  if (aligned) {
    *reinterpret_cast<raw*>(&to) = __ldcs(reinterpret_cast<const raw*>(from));
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to.at[k] = from[k];
  }
}
template <typename T, int V>
__device__ __forceinline__ void store(T* to, const Vec<T, V>& from, bool aligned) {
  typedef typename Raw<sizeof(T) * V>::type raw;
  if (aligned) {
    __stcs(reinterpret_cast<raw*>(to), *reinterpret_cast<const raw*>(&from));
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
    vector : int
        Elements of a thread.
    """

    symbol: str
    source: str
    state: StateLayout
    vector: int

    def grid(self, size: int) -> int:
        """Return the number of blocks for `size` elements."""
        return max(1, -(-size // (BLOCK * self.vector)))


def vector_width(stage: Stage) -> int:
    """Return how many elements a thread owns: 16 bytes of the widest contiguous operand."""
    dtypes = [i.dtype for i in stage.inputs if i.layout == "linear"]
    dtypes += [o.dtype for o in stage.outputs]
    return 16 // max(np.dtype(name).itemsize for name in dtypes)


def lower_transform(stage: Stage, name: str) -> TileKernel:
    """Write the kernel of a transform, with symbols that start with `name`."""
    state = state_layout(stage, stage.element.slots, whole=True)
    vector = vector_width(stage)
    symbol = f"{name}_tile"
    parts = [
        prelude(stage),
        _ACCESS,
        struct_text("State", [declaration for declaration, _ in state.fields]),
        _one(stage, state),
        _kernel(stage, state, vector).replace("SYMBOL", symbol),
    ]
    return TileKernel(symbol, "".join(parts), state, vector)


def _body(stage: Stage, store: str) -> str:
    values: dict[int, str] = {}
    lines = statements(stage.element, values)
    for at, value in enumerate(stage.element.results):
        lines.append("  " + store.format(at=at, value=values[value]) + "\n")
    return "".join(lines)


def _one(stage: Stage, state: StateLayout) -> str:
    """The transform of a single element: the ends, and nothing that is fast."""
    loads = "".join(load_text(stage, slot, state.rank) for slot in state.slots)
    index = index_text(state.rank) if state.rank else ""
    body = _body(stage, "s.y{at}[i] = {value};")
    return (
        "__device__ __forceinline__ void one(const State& s, const long long i) {\n"
        f"{index}{loads}{body}}}\n"
    )


def _kernel(stage: Stage, state: StateLayout, vector: int) -> str:
    linear = [slot for slot in state.slots if stage.inputs[slot].layout == "linear"]
    fixed = [slot for slot in state.slots if stage.inputs[slot].layout == "fixed"]
    strided = [slot for slot in state.slots if stage.inputs[slot].layout == "strided"]
    first = DTYPES[stage.outputs[0].dtype].cpp
    lines = [
        f'extern "C" __global__ void __launch_bounds__({BLOCK}) SYMBOL(const State s) {{\n',
        f"  constexpr int V = {vector};\n",
        "  const unsigned long long place = reinterpret_cast<unsigned long long>(s.y0);\n",
        f"  const long long head = min(s.n, (long long)(-place & (sizeof({first}) * V - 1)) /"
        f" (long long)sizeof({first}));\n",
        "  const long long vectors = (s.n - head) / V;\n",
        "  if (blockIdx.x == 0) {\n",
        "    if (threadIdx.x < head) one(s, threadIdx.x);\n",
        "    const long long last = head + vectors * V + threadIdx.x;\n",
        "    if (threadIdx.x < V && last < s.n) one(s, last);\n",
        "  }\n",
        f"  const long long at = (long long)blockIdx.x * {BLOCK} + threadIdx.x;\n",
        "  if (at >= vectors) return;\n",
        "  const long long begin = head + at * V;\n",
    ]
    for slot in linear:
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        lines.append(f"  Vec<{cpp}, V> e{slot};\n")
        lines.append(
            f"  load(e{slot}, s.x{slot} + begin, is_aligned<{cpp}, V>(s.x{slot} + head));\n"
        )
    lines += [load_text(stage, slot, 0) for slot in fixed]
    for at, output in enumerate(stage.outputs):
        lines.append(f"  Vec<{DTYPES[output.dtype].cpp}, V> o{at};\n")
    lines.append("#pragma unroll\n  for (int k = 0; k < V; ++k) {\n")
    if strided:
        lines.append(index_text(state.rank, "begin + k"))
        lines += [load_text(stage, slot, state.rank) for slot in strided]
    for slot in linear:
        lines.append(f"  const {DTYPES[stage.inputs[slot].dtype].cpp} x{slot} = e{slot}.at[k];\n")
    lines.append(_body(stage, "o{at}.at[k] = {value};"))
    lines.append("  }\n")
    for at, output in enumerate(stage.outputs):
        cpp = DTYPES[output.dtype].cpp
        lines.append(f"  store(s.y{at} + begin, o{at}, is_aligned<{cpp}, V>(s.y{at} + head));\n")
    lines.append("}\n")
    return "".join(lines)
