"""What the kernels over rows share: places of elements and rows, shuffles, row values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import statements
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.tile import Needs
from itfuse.plan.order import LANES
from itfuse.plan.stages import Phase, Program, Stage

SHUFFLES = """\
// A value of the lane that is `distance` further, or of the lane `lane`.
template <typename T> __device__ __forceinline__ T from_lane(T v, int distance) {
  return (T)__shfl_down_sync(0xffffffffu, (int)v, distance);
}
template <typename T> __device__ __forceinline__ T of_lane(T v, int lane) {
  return (T)__shfl_sync(0xffffffffu, (int)v, lane);
}
""" + "".join(
    f"template <> __device__ __forceinline__ {cpp} from_lane({cpp} v, int distance) {{\n"
    f"  return __shfl_down_sync(0xffffffffu, v, distance);\n}}\n"
    f"template <> __device__ __forceinline__ {cpp} of_lane({cpp} v, int lane) {{\n"
    f"  return __shfl_sync(0xffffffffu, v, lane);\n}}\n"
    for cpp in ("float", "double", "unsigned", "long long", "unsigned long long")
)

FRESH = """\
// What other blocks of this launch wrote: from the second-level cache, which all of them share.
template <typename T> __device__ __forceinline__ T fresh(const T* p) {
  typedef typename Raw<sizeof(T)>::type raw;
  const raw bits = __ldcg(reinterpret_cast<const raw*>(p));
  return *reinterpret_cast<const T*>(&bits);
}
"""

PIECE = f"""\
// Loads {LANES} elements of a row that are side by side, of which `left` are there.
template <typename T>
__device__ __forceinline__ void piece(Vec<T, {LANES}>& to, const T* from, long long left) {{
  if (ALIGNED) {{
    if (left > 0) {{
      load(to, from, true);
    }} else {{
#pragma unroll
      for (int w = 0; w < {LANES}; ++w) to.at[w] = T(0);
    }}
  }} else {{
#pragma unroll
    for (int w = 0; w < {LANES}; ++w) to.at[w] = w < left ? from[w] : T(0);
  }}
}}
// Stores them.
template <typename T>
__device__ __forceinline__ void put(T* to, const Vec<T, {LANES}>& from, long long left) {{
  if (ALIGNED) {{
    if (left > 0) store(to, from, true);
  }} else {{
#pragma unroll
    for (int w = 0; w < {LANES}; ++w) {{
      if (w < left) to[w] = from.at[w];
    }}
  }}
}}
"""


def arrays(stage: Stage, slots: Sequence[int]) -> list[int]:
    """Return the slots that are no scalars."""
    return [s for s in slots if stage.inputs[s].kind != "scalar"]


def row_state(stage: Stage, extra: Sequence[tuple[str, str]] = ()) -> StateLayout:
    """Lay out the state of a kernel over rows: every input of every phase."""
    slots: set[int] = set()
    for phase in stage.phases:
        slots.update(phase.element.slots)
        slots.update(phase.finish.slots if phase.finish else ())
    return state_layout(stage, sorted(slots), whole=True, extra=extra)


def row_needs(stage: Stage, slots: Sequence[int]) -> Needs:
    """Return what vectors along rows ask for: whole vectors in every row, all aligned."""
    inputs = tuple(
        (s, 0, mask(stage.inputs[s].dtype, LANES))
        for s in arrays(stage, slots)
        if along(stage, s) == "vector"
    )
    written = stage.outputs[: stage.element_outputs]
    return Needs(LANES, inputs, tuple(mask(o.dtype, LANES) for o in written), True)


def mask(dtype: str, count: int) -> int:
    """Return the bits that the address of an aligned vector does not have."""
    return min(16, np.dtype(dtype).itemsize * count) - 1


def along(stage: Stage, slot: int) -> str:
    """Say how an input moves along a row: `vector`, `fixed`, `step` (one stride) or `index`."""
    source = stage.inputs[slot]
    if source.layout == "linear":
        return "vector"
    if source.layout == "fixed" or not any(source.moves[stage.kept :]):
        return "fixed"
    if len(stage.dims) - stage.kept > 1:
        return "index"
    return "vector" if source.inner == 1 else "step"


def row_indices(stage: Stage, row: str = "row") -> str:
    """Decode the number of a row into an index for each kept axis, if any input asks for them."""
    if not stage.strided:
        return ""
    if stage.kept == 1:
        return f"  const long long i0 = {row};\n"
    lines = [f"  long long rest = {row};\n"]
    for axis in range(stage.kept - 1, 0, -1):
        lines.append(f"  const long long i{axis} = rest % s.size[{axis}];\n")
        lines.append(f"  rest /= s.size[{axis}];\n")
    lines.append("  const long long i0 = rest;\n")
    return "".join(lines)


def base(stage: Stage, slot: int, row: str = "row") -> str:
    """Write the address of an input's first element in a row."""
    source = stage.inputs[slot]
    if source.layout == "linear":
        return f"s.x{slot} + {row} * s.length"
    moved = [k for k in range(stage.kept) if source.layout == "strided" and source.moves[k]]
    if not moved:
        return f"s.x{slot}"
    cpp = DTYPES[source.dtype].cpp
    offset = " + ".join(f"i{k} * s.step{slot}[{k}]" for k in moved)
    return (
        f"reinterpret_cast<const {cpp}*>(\n      reinterpret_cast<const char*>(s.x{slot}) + "
        f"({offset}))"
    )


def bases(stage: Stage, slots: Sequence[int]) -> str:
    """Name the address of every input's first element in the row: `b<slot>`."""
    return "".join(
        f"  const {DTYPES[stage.inputs[s].dtype].cpp}* const b{s} = {base(stage, s)};\n"
        for s in arrays(stage, slots)
    )


def step_offset(stage: Stage, slot: int, j: str) -> str:
    """Write the bytes from the first element of a row to element `j`."""
    first = stage.kept
    if along(stage, slot) == "step":
        return f"({j}) * s.step{slot}[{first}]"
    terms, rest = [], f"({j})"
    for axis in range(len(stage.dims) - 1, first, -1):
        if stage.inputs[slot].moves[axis]:
            terms.append(f"{rest} % s.size[{axis}] * s.step{slot}[{axis}]")
        rest = f"({rest} / s.size[{axis}])"
    if stage.inputs[slot].moves[first]:
        terms.append(f"{rest} * s.step{slot}[{first}]")
    return " + ".join(terms)


def load_piece(stage: Stage, slot: int, to: str, j: str, left: str) -> str:
    """Load the elements `j` and on of a row, LANES of them, of which `left` are there."""
    how = along(stage, slot)
    cpp = DTYPES[stage.inputs[slot].dtype].cpp
    if how == "vector":
        return f"    piece({to}, b{slot} + {j}, {left});\n"
    return (
        f"#pragma unroll\n    for (int w = 0; w < {LANES}; ++w) {{\n"
        f"      {to}.at[w] = w < {left} ? *reinterpret_cast<const {cpp}*>(\n"
        f"          reinterpret_cast<const char*>(b{slot}) + "
        f"({step_offset(stage, slot, f'{j} + w')})) : {cpp}(0);\n    }}\n"
    )


def once(stage: Stage, slots: Sequence[int]) -> str:
    """Load the inputs that are the same all along a row."""
    return "".join(
        f"  const {DTYPES[stage.inputs[s].dtype].cpp} x{s} = *b{s};\n"
        for s in arrays(stage, slots)
        if along(stage, s) == "fixed"
    )


def moving(stage: Stage, slots: Sequence[int]) -> list[int]:
    """Return the inputs that have an element for each of a row."""
    return [s for s in arrays(stage, slots) if along(stage, s) != "fixed"]


def element_text(program: Program, stores: Sequence[str], indent: str = "      ") -> str:
    """Write a program whose results go where `stores` say, `{value}` standing for each."""
    values: dict[int, str] = {}
    lines = [indent[2:] + line for line in statements(program, values)]
    for store, value in zip(stores, program.results, strict=True):
        lines.append(indent + store.format(value=values[value]) + "\n")
    return "".join(lines)


def finish_text(stage: Stage, phase: Phase, first: int, item: str) -> str:
    """Write the row values of a phase, `q<first>` and on, from its accumulator `item`."""
    if phase.finish is None:
        return ""
    loads = "".join(
        f"  const {DTYPES[stage.inputs[s].dtype].cpp} x{s} = *b{s};\n"
        for s in arrays(stage, phase.finish.slots)
    )
    combined = any(instr.op == "combined" for instr in phase.finish.instrs)
    given = f"  const auto& a = {item};\n" if combined else ""
    kinds = [DTYPES[name].cpp for name in phase.finish.result_dtypes]
    declared = "".join(f"  {cpp} q{first + at};\n" for at, cpp in enumerate(kinds))
    stores = [f"q{first + at} = {{value}};" for at in range(len(kinds))]
    return f"{declared}  {{\n{given}{loads}{element_text(phase.finish, stores, '  ')}  }}\n"
