"""What the kernels over rows share: places of elements and rows, shuffles, row values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.accumulator import fresh, from_lane, item_functions, item_struct, shuffle
from itfuse.lower.cpp import UNDIVIDED, prelude, statements, value_dtypes
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.tile import Needs, access
from itfuse.plan.order import LANES
from itfuse.plan.stages import Phase, Program, Stage, fields


def exchange(stage: Stage) -> str:
    """Write how values get from thread to thread: `from_lane`, `of_lane` and `fresh`."""
    used = value_dtypes(stage)
    shuffles = from_lane(used) + shuffle("of_lane", "__shfl_sync", "lane", used)
    return shuffles + fresh(used) + _SWAP


# Written as `on ? b : a`, the compiler puts both into memory and chooses between their addresses.
_SWAP = """\
template <typename T> __device__ __forceinline__ void swap_if(bool on, T& a, T& b) {
  if (on) {
    const T t = a;
    a = b;
    b = t;
  }
}
"""


PIECE = f"""\
template <typename T> __device__ __forceinline__ T zero() {{ return T{{}}; }}
// Loads {LANES} elements of a row that are side by side, of which `left` are there; `even`: whether
// vectors of the row are aligned.
template <typename T>
__device__ __forceinline__ void piece(
    Vec<T, {LANES}>& to, const T* from, long long left, bool even) {{
  if (ALIGNED ? left > 0 : even && left >= {LANES}) {{
    load(to, from, true);
  }} else if (ALIGNED) {{
#pragma unroll
    for (int w = 0; w < {LANES}; ++w) to.at[w] = T{{}};
  }} else {{
#pragma unroll
    for (int w = 0; w < {LANES}; ++w) to.at[w] = w < left ? from[w] : T{{}};
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
    """Return the slots with an element for each index: no scalars, nothing read elsewhere."""
    there = stage.inputs
    return [s for s in slots if there[s].kind != "scalar" and there[s].layout != "gathered"]


def base_type(stage: Stage, slot: int) -> str:
    """Return the C++ type of `base`: a pointer, or for numbers of the index the number."""
    source = stage.inputs[slot]
    cpp = DTYPES[source.dtype].cpp
    return cpp if source.layout == "index" else f"const {cpp}*"


def value(stage: Stage, slot: int, at: str, offset: str) -> str:
    """Write the value `offset` (bytes, or steps of the index) from the base `at`."""
    source = stage.inputs[slot]
    if source.layout == "index":
        return f"{at} + ({offset})"
    cpp = DTYPES[source.dtype].cpp
    return (
        f"*reinterpret_cast<const {cpp}*>(\n"
        f"          reinterpret_cast<const char*>({at}) + ({offset}))"
    )


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
    return "vector" if source.inner == 1 and source.layout == "strided" else "step"


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
    """Write the address of an input's first element in a row; of an index, its number there."""
    source = stage.inputs[slot]
    if source.layout == "linear":
        return f"s.x{slot} + {row} * s.length"
    moved = [k for k in range(stage.kept) if source.mapped and source.moves[k]]
    if not moved:
        return f"s.x{slot}"
    cpp = DTYPES[source.dtype].cpp
    offset = " + ".join(f"i{k} * s.step{slot}[{k}]" for k in moved)
    if source.layout == "index":
        return f"s.x{slot} + {offset}"
    return (
        f"reinterpret_cast<const {cpp}*>(\n      reinterpret_cast<const char*>(s.x{slot}) + "
        f"({offset}))"
    )


def bases(stage: Stage, slots: Sequence[int]) -> str:
    """Name the address of every input's first element in the row, `b<slot>`.

    `even<slot>` says whether vectors from there are aligned.
    """
    lines = []
    for s in arrays(stage, slots):
        lines.append(f"  {base_type(stage, s)} const b{s} = {base(stage, s)};\n")
        if along(stage, s) == "vector":
            cpp = DTYPES[stage.inputs[s].dtype].cpp
            lines.append(f"  const bool even{s} = is_aligned<{cpp}, {LANES}>(b{s});\n")
    return "".join(lines)


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
    cpp = DTYPES[stage.inputs[slot].dtype].cpp
    if along(stage, slot) == "vector":
        return f"    piece({to}, b{slot} + {j}, {left}, even{slot});\n"
    there = value(stage, slot, f"b{slot}", step_offset(stage, slot, f"{j} + w"))
    # A number of the index may be where to read: where no element is, it is the row's first.
    nothing = f"b{slot}" if stage.inputs[slot].layout == "index" else f"zero<{cpp}>()"
    return (
        f"#pragma unroll\n    for (int w = 0; w < {LANES}; ++w) {{\n"
        f"      {to}.at[w] = w < {left} ? {there} : {nothing};\n    }}\n"
    )


def single(stage: Stage, slots: Sequence[int], indent: str = "  ") -> str:
    """Name the values at the bases: `x<slot>`."""
    return "".join(
        f"{indent}const {DTYPES[stage.inputs[s].dtype].cpp} x{s} = "
        f"{'' if stage.inputs[s].layout == 'index' else '*'}b{s};\n"
        for s in arrays(stage, slots)
    )


def once(stage: Stage, slots: Sequence[int]) -> str:
    """Load the inputs that are the same all along a row."""
    return single(stage, [s for s in arrays(stage, slots) if along(stage, s) == "fixed"])


def moving(stage: Stage, slots: Sequence[int]) -> list[int]:
    """Return the inputs that have an element for each of a row."""
    return [s for s in arrays(stage, slots) if along(stage, s) != "fixed"]


def element_text(
    program: Program,
    stores: Sequence[str],
    indent: str = "      ",
    divided: Mapping[int, int] = UNDIVIDED,
) -> str:
    """Write a program whose results go where `stores` say, `{value}` standing for each."""
    values: dict[int, str] = {}
    lines = [indent[2:] + line for line in statements(program, values, divided)]
    for store, value in zip(stores, program.results, strict=True):
        lines.append(indent + store.format(value=values[value]) + "\n")
    return "".join(lines)


def finish_text(stage: Stage, phase: Phase, first: int, item: str) -> str:
    """Write the row values of a phase, `q<first>` and on, from its accumulator `item`."""
    if phase.finish is None:
        return ""
    loads = single(stage, phase.finish.slots)
    combined = any(instr.op == "combined" for instr in phase.finish.instrs)
    given = f"  const auto& a = {item};\n" if combined else ""
    kinds = [DTYPES[name].cpp for name in phase.finish.result_dtypes]
    declared = "".join(f"  {cpp} q{first + at};\n" for at, cpp in enumerate(kinds))
    stores = [f"q{first + at} = {{value}};" for at in range(len(kinds))]
    return f"{declared}  {{\n{given}{loads}{element_text(phase.finish, stores, '  ')}  }}\n"


def row_head(stage: Stage, aligned: bool) -> str:
    """Write what every kernel over rows begins with: helpers, accumulators, their functions."""
    items = "".join(
        item_struct(phase.combine, f"Item{q}")
        + item_functions(phase.combine, f"Item{q}", str(q))
        + _of_lane(phase, q)
        for q, phase in enumerate(stage.phases)
        if phase.combine
    )
    return prelude(stage) + access(aligned) + PIECE + exchange(stage) + items


def _of_lane(phase: Phase, q: int) -> str:
    lines = "".join(
        f"  a.r{at} = of_lane(a.r{at}, lane);\n" for at in range(len(fields(phase.combine)))
    )
    head = f"__device__ __forceinline__ Item{q} of_lane(Item{q} a, int lane)"
    return f"{head} {{\n{lines}  return a;\n}}\n"


TAKE = "      if (ALIGNED ? left > 0 : w < left) lane_of[w] = combine(lane_of[w], b);\n"
"""Takes element `w` of a vector, `b`, if it is there."""


def start_lanes(item: str, q: int) -> str:
    """Write the accumulators of a thread's vector."""
    return (
        f"  {item} lane_of[{LANES}];\n"
        f"#pragma unroll\n  for (int w = 0; w < {LANES}; ++w) lane_of[w] = identity{q}();\n"
    )


def combine_lanes(to: str) -> str:
    """Write the combination of a thread's accumulators."""
    return (
        f"    {to} = combine(combine(lane_of[0], lane_of[1]), combine(lane_of[2], lane_of[3]));\n"
    )
