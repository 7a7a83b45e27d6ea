"""Kernels that write where they compute: histograms, and elements at computed places.

Blocks walk the domain in strides of the whole grid. Counts are integers, so that the order in which
they are added does not show.
"""

from __future__ import annotations

from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import comment, expression, index_text, load_text, prelude, struct_text
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.tile import TileKernel, program_text
from itfuse.plan.stages import Stage

THREADS = 256
ON_CHIP = 4096
"""Counts that a block keeps in shared memory (16 KiB): it adds them to the result once."""
_MOST_BLOCKS = 1024
_ELEMENTS = 8  # of a thread, from which on blocks are not shared out further


def lower_places(stage: Stage, name: str) -> TileKernel:
    """Write the kernel of a histogram or of scattered writes, with symbols that start with `name`.

    It has one variant. A histogram adds to what its output holds, which must be zeros; scattered
    writes change elements of it.
    """
    slots = stage.element.slots
    state = state_layout(stage, slots, whole=True, extra=(("long long places;", "q"),))
    symbol = f"{name}_{stage.primitive}"
    assert stage.how is not None
    counts = stage.how.fused == 1
    source = "".join([
        prelude(stage),
        struct_text("State", [declaration for declaration, _ in state.fields]),
        comment(stage.element, "r{at}"),
        _one(stage, state),
        "" if counts else _write(stage),
        f'extern "C" __global__ void __launch_bounds__({THREADS}) {symbol}(const State s) {{\n',
        _COUNTS if counts else _VALUES.replace("TYPE", DTYPES[stage.outputs[0].dtype].cpp),
        "}\n",
    ])  # fmt: skip
    return TileKernel(symbol, source, state, THREADS, 0, grid=_grid)


def _grid(stage: Stage) -> int:
    return max(1, min(_MOST_BLOCKS, -(-stage.size // (THREADS * _ELEMENTS))))


_WALK = f"""\
  const long long step = (long long)gridDim.x * {THREADS};
#pragma unroll 4
  for (long long i = (long long)blockIdx.x * {THREADS} + threadIdx.x; i < s.n; i += step) {{
"""
_COUNTS = f"""\
  __shared__ unsigned own[{ON_CHIP}];
  unsigned long long* const all = reinterpret_cast<unsigned long long*>(s.y0);
  const bool on_chip = s.places <= {ON_CHIP};
  if (on_chip) {{
    for (int k = threadIdx.x; k < s.places; k += {THREADS}) own[k] = 0;
  }}
  __syncthreads();
{_WALK}\
    long long place;
    one(s, i, place);
    if (place < 0 || place >= s.places) continue;
    if (on_chip) {{
      atomicAdd(own + place, 1u);
    }} else {{
      atomicAdd(all + place, 1ull);
    }}
  }}
  __syncthreads();
  if (on_chip) {{
    for (int k = threadIdx.x; k < s.places; k += {THREADS}) {{
      if (own[k] != 0) atomicAdd(all + k, (unsigned long long)own[k]);
    }}
  }}
"""
_VALUES = f"""\
{_WALK}\
    long long place;
    TYPE value;
    one(s, i, place, value);
    if (place >= 0 && place < s.places) write(s.y0 + place, value);
  }}
"""


def _one(stage: Stage, state: StateLayout) -> str:
    """Write the element function: the place of element i, and its value if there is one."""
    names = ("place", "value")
    results = stage.element.result_dtypes
    declared = "".join(
        f", {DTYPES[dtype].cpp}& {name}" for dtype, name in zip(results, names, strict=False)
    )
    loads = "".join(load_text(stage, slot) for slot in state.slots)
    body = program_text(stage.element, [f"{name} = {{value}};" for name in names[: len(results)]])
    return (
        f"__device__ __forceinline__ void one(const State& s, const long long i{declared}) {{\n"
        f"{index_text(stage, state.rank)}{loads}{body}}}\n"
    )


_NATIVE = {"add": "atomicAdd", "min": "atomicMin", "max": "atomicMax"}
_ROWS = {"add": "add", "min": "minimum", "max": "maximum"}


def _write(stage: Stage) -> str:
    """Write what happens to the element at a place."""
    assert stage.how is not None
    mode = "add" if stage.primitive == "histogram" else stage.how.options[0]
    dtype = stage.outputs[0].dtype
    row = DTYPES[dtype]
    head = f"__device__ __forceinline__ void write({row.cpp}* to, {row.cpp} value) {{\n"
    if mode == "set":
        return head + "  *to = value;\n}\n"
    if row.kind in "iu" or mode == "add":
        # Sums of signed integers wrap in the unsigned type.
        word = row.wide if row.kind in "iu" and mode == "add" else row.cpp
        return head + f"  {_NATIVE[mode]}(reinterpret_cast<{word}*>(to), ({word})value);\n}}\n"
    word = "unsigned long long" if row.bits == 64 else "unsigned"
    merged = expression(_ROWS[mode], ["a", "value"], [dtype, dtype], dtype)
    return head + (
        f"  {word}* const at = reinterpret_cast<{word}*>(to);\n"
        f"  {word} before = *reinterpret_cast<volatile {word}*>(to);\n"
        "  for (;;) {\n"
        f"    {row.cpp} a;\n"
        "    memcpy(&a, &before, sizeof(a));\n"
        f"    const {row.cpp} merged = {merged};\n"
        f"    {word} after;\n"
        "    memcpy(&after, &merged, sizeof(after));\n"
        "    if (after == before) return;\n"
        f"    const {word} found = atomicCAS(at, before, after);\n"
        "    if (found == before) return;\n"
        "    before = found;\n"
        "  }\n}\n"
    )
