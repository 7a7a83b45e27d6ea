"""The transform kernel: one vector of consecutive elements a thread.

The vector has 16 bytes of the widest operand, and proportionally less of the narrower ones. It is
aligned to the first output. The elements before the first and after the last whole vector are
done by the first block, inside the same launch.
"""

from __future__ import annotations

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import index_text, load_text, prelude, struct_text
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.lower.tile import (
    ACCESS,
    TileKernel,
    element_values,
    fixed_values,
    index_begin,
    index_next,
    program_text,
    stored_element,
    vector_loads,
)
from itfuse.plan.stages import Stage

BLOCK = 256
"""Threads of a block: with one vector a thread, 256 and 1,024 measured the same."""


def vector_width(stage: Stage) -> int:
    """Return how many elements a thread owns: 16 bytes of the widest contiguous operand."""
    dtypes = [i.dtype for i in stage.inputs if i.layout == "linear"]
    dtypes += [o.dtype for o in stage.outputs]
    return 16 // max(np.dtype(name).itemsize for name in dtypes)


def lower_transform(stage: Stage, name: str) -> TileKernel:
    """Write the kernel of a transform, with symbols that start with `name`."""
    state = state_layout(stage, stage.element.slots, whole=True)
    vector = vector_width(stage)
    symbol = f"{name}_transform"
    source = "".join([
        prelude(stage),
        ACCESS,
        struct_text("State", [declaration for declaration, _ in state.fields]),
        _one(stage, state),
        _kernel(stage, state, vector).replace("SYMBOL", symbol),
    ])  # fmt: skip
    return TileKernel(symbol, source, state, BLOCK, BLOCK * vector)


def _one(stage: Stage, state: StateLayout) -> str:
    """Write the transform of a single element, for the ends."""
    loads = "".join(load_text(stage, slot, state.rank) for slot in state.slots)
    index = index_text(state.rank, narrow=state.narrow) if state.rank else ""
    body = program_text(stage.element, _stores(stage, state, "s.y{at}[i]"))
    return (
        "__device__ __forceinline__ void one(const State& s, const long long i) {\n"
        f"{index}{loads}{body}}}\n"
    )


def _stores(stage: Stage, state: StateLayout, plain: str) -> list[str]:
    return [
        stored_element(stage, at, state.rank, plain) + " = {value};"
        for at in range(len(stage.outputs))
    ]


def _kernel(stage: Stage, state: StateLayout, vector: int) -> str:
    outputs = [
        (at, DTYPES[output.dtype].cpp)
        for at, output in enumerate(stage.outputs)
        if not output.strides
    ]
    aligned, first = outputs[0] if outputs else (0, "")
    ahead = f"(-place & (sizeof({first}) * V - 1)) / sizeof({first})" if outputs else "0"
    return "".join([
        f'extern "C" __global__ void __launch_bounds__({BLOCK}) SYMBOL(const State s) {{\n',
        f"  constexpr int V = {vector};\n",
        "  // Elements before the first aligned vector of the first output.\n",
        f"  const unsigned long long place = reinterpret_cast<unsigned long long>(s.y{aligned});\n",
        f"  const long long ahead = {ahead};\n",
        "  const long long head = ahead < s.n ? ahead : s.n;\n",
        "  const long long vectors = (s.n - head) / V;\n",
        "  if (blockIdx.x == 0) {\n",
        "    if (threadIdx.x < head) one(s, threadIdx.x);\n",
        "    const long long last = head + vectors * V + threadIdx.x;\n",
        "    if (threadIdx.x < V && last < s.n) one(s, last);\n",
        "  }\n",
        f"  const long long at = (long long)blockIdx.x * {BLOCK} + threadIdx.x;\n",
        "  if (at >= vectors) return;\n",
        "  const long long begin = head + at * V;\n",
        vector_loads(stage, state.slots, "begin", " + head"),
        fixed_values(stage, state.slots),
        *(f"  Vec<{cpp}, V> o{at};\n" for at, cpp in outputs),
        index_begin(state.rank, "begin", state.narrow),
        "#pragma unroll\n  for (int k = 0; k < V; ++k) {\n",
        element_values(stage, state.slots, state.rank),
        program_text(stage.element, _stores(stage, state, "o{at}.at[k]"), "    "),
        index_next(state.rank),
        "  }\n",
        *(f"  store(s.y{at} + begin, o{at}, is_aligned<{cpp}, V>(s.y{at} + head));\n"
          for at, cpp in outputs),
        "}\n",
    ])  # fmt: skip
