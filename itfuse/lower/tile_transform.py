"""The transform kernel: one vector of consecutive elements a thread.

The vector has 16 bytes of the widest operand, and proportionally less of the narrower ones. Where
not all arrays are aligned, vectors are aligned to the first output. The elements before the first
and after the last whole vector are done one by one, inside the same launch.
"""

from __future__ import annotations

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import comment, index_text, index_type, load_text, prelude, struct_text
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.tile import (
    ROW,
    TileKernel,
    access,
    copied_index,
    element_values,
    fixed_values,
    needs_of,
    next_index,
    program_text,
    stored_element,
    strided_loads,
    vector_loads,
)
from itfuse.plan.stages import Stage

BLOCK = 128
"""Threads of a block: with one vector a thread, 128 to 512 measured alike, 128 best where there is
much to compute (docs/performance.md)."""


def vector_width(stage: Stage) -> int:
    """Return how many elements a thread owns: 16 bytes of the widest contiguous operand."""
    dtypes = [i.dtype for i in stage.inputs if i.layout == "linear"]
    dtypes += [o.dtype for o in stage.outputs]
    return 16 // max(np.dtype(name).itemsize for name in dtypes)


def lower_transform(stage: Stage, name: str, aligned: bool) -> TileKernel:
    """Write a variant of the kernel of a transform, with symbols that start with `name`."""
    slots = stage.element.slots
    state = state_layout(stage, slots, whole=True)
    vector = vector_width(stage)
    symbol = f"{name}_transform"
    source = "".join([
        prelude(stage),
        access(aligned),
        ROW if stage.strided else "",
        struct_text("State", [declaration for declaration, _ in state.fields]),
        one_function(stage, state),
        comment(stage.element, "y{at}"),
        f'extern "C" __global__ void __launch_bounds__({BLOCK}, 4) {symbol}(const State s) {{\n',
        f"  constexpr int V = {vector};\n",
        _BEGIN[index_type(stage)] if aligned else _begin_anywhere(stage),
        _vectors(stage, state, aligned),
        "}\n",
    ])  # fmt: skip
    needs = needs_of(stage, slots, vector, outputs=True) if aligned else None
    return TileKernel(symbol, source, state, BLOCK, BLOCK * vector, needs=needs)


_BEGIN = {
    kind: f"""\
  const {kind} begin = (({kind})blockIdx.x * {BLOCK} + threadIdx.x) * V;
  if (begin + V > ({kind})s.n) {{
#pragma unroll 1
    for ({kind} i = begin; i < ({kind})s.n; ++i) one(s, i);
    return;
  }}
"""
    for kind in ("int", "long long")
}

_BEGIN_ANYWHERE = f"""\
  // Elements before the first aligned vector of the first output.
  const long long ahead = AHEAD;
  const long long head = ahead < s.n ? ahead : s.n;
  const long long vectors = (s.n - head) / V;
  if (blockIdx.x == 0) {{
    if (threadIdx.x < head) one(s, threadIdx.x);
    const long long last = head + vectors * V + threadIdx.x;
    if (threadIdx.x < V && last < s.n) one(s, last);
  }}
  const long long at = (long long)blockIdx.x * {BLOCK} + threadIdx.x;
  if (at >= vectors) return;
  const long long begin = head + at * V;
"""


def _begin_anywhere(stage: Stage) -> str:
    ahead = "0"
    plain = [at for at, output in enumerate(stage.outputs) if not output.strides]
    if plain:
        size = f"sizeof({DTYPES[stage.outputs[plain[0]].dtype].cpp})"
        address = f"reinterpret_cast<unsigned long long>(s.y{plain[0]})"
        ahead = f"(-{address} & ({size} * V - 1)) / {size}"
    return _BEGIN_ANYWHERE.replace("AHEAD", ahead)


def _stores(stage: Stage, plain: str, index: str = "i") -> list[str]:
    return [
        stored_element(stage, at, plain, index) + " = {value};" for at in range(len(stage.outputs))
    ]


def one_function(stage: Stage, state: StateLayout) -> str:
    """Write the transform of a single element, for the ends."""
    loads = "".join(load_text(stage, slot) for slot in state.slots)
    index = index_text(stage, state.rank)
    body = program_text(stage.element, _stores(stage, "s.y{at}[i]"))
    return (
        "__device__ __forceinline__ void one(const State& s, const long long i) {\n"
        f"{index}{loads}{body}}}\n"
    )


def _vectors(stage: Stage, state: StateLayout, aligned: bool) -> str:
    """Write the work of one thread: load vectors, compute, store vectors."""
    outputs = [
        (at, DTYPES[output.dtype].cpp)
        for at, output in enumerate(stage.outputs)
        if not output.strides
    ]
    # Where an output has strides of its own, each element is stored at indices walked along.
    apart = len(outputs) < len(stage.outputs)
    kind = index_type(stage)
    return "".join([
        vector_loads(stage, state.slots, "begin"),
        fixed_values(stage, state.slots),
        index_text(stage, state.rank, "begin"),
        copied_index(state.rank, kind, "j") if apart else "",
        strided_loads(stage, state.slots, state.rank, aligned),
        *(f"  Vec<{cpp}, V> o{at};\n" for at, cpp in outputs),
        "#pragma unroll\n  for (int k = 0; k < V; ++k) {\n",
        element_values(stage, state.slots),
        program_text(stage.element, _stores(stage, "o{at}.at[k]", "j"), "    "),
        f"    {next_index(state.rank, kind, 'j')}\n" if apart else "",
        "  }\n",
        *(f"  store(s.y{at} + begin, o{at}, is_aligned<{cpp}, V>(s.y{at} + begin));\n"
          for at, cpp in outputs),
    ])  # fmt: skip
