"""The transform kernel for inputs that lie across the rows of the result, such as `x.T`.

A block makes a square of the last axis and the axis along which those inputs are contiguous. It
reads them along their own axis into shared memory and then works row by row like any transform.
"""

from __future__ import annotations

import math

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import prelude, struct_text
from itfuse.lower.layout import state_layout
from itfuse.lower.tile import (
    ACCESS,
    ROW,
    TileKernel,
    by_layout,
    element_values,
    fixed_values,
    program_text,
    row_loads,
    vector_loads,
)
from itfuse.lower.tile_transform import BLOCK, one_function, vector_width
from itfuse.plan.stages import Stage

SHARED = 48 << 10
"""Bytes of shared memory that every device gives a block without asking."""


def side(stage: Stage) -> int:
    """Return the side of a square, or 0 if the inputs do not fit shared memory."""
    turned = [i for i in stage.inputs if i.turned is not None]
    itemsize = sum(np.dtype(i.dtype).itemsize for i in turned)
    fits = [t for t in (64, 32) if itemsize * t * (t + 1) <= SHARED]
    same = len({i.turned for i in turned}) == 1
    return fits[0] if fits and same else 0


def lower_turned(stage: Stage, name: str) -> TileKernel:
    """Write the kernel of a transform with turned inputs, with symbols that start with `name`."""
    state = state_layout(stage, stage.element.slots, whole=True)
    symbol = f"{name}_turned"
    source = "".join([
        prelude(stage),
        ACCESS,
        ROW,
        struct_text("State", [declaration for declaration, _ in state.fields]),
        one_function(stage, state),
        _kernel(stage, state.rank).replace("SYMBOL", symbol),
    ])  # fmt: skip
    return TileKernel(symbol, source, state, BLOCK, 0, grid=squares)


def _axis(stage: Stage) -> int:
    return next(i.turned for i in stage.inputs if i.turned is not None)


def squares(stage: Stage) -> int:
    """Return how many squares cover the domain."""
    t, across = side(stage), {len(stage.dims) - 1, _axis(stage)}
    return math.prod(-(-n // t) if k in across else n for k, n in enumerate(stage.dims))


def _kernel(stage: Stage, rank: int) -> str:
    slots = stage.element.slots
    turned = [s for s in slots if stage.inputs[s].turned is not None]
    others = [s for s in slots if s not in turned]
    a, b, t = _axis(stage), rank - 1, side(stage)
    outer = "".join(
        f"  const long long i{k} = rest % s.size[{k}];\n  rest /= s.size[{k}];\n"
        for k in range(rank - 2, -1, -1)
        if k != a
    )
    outputs = [DTYPES[output.dtype].cpp for output in stage.outputs]
    flat = "i0"
    for axis in range(1, rank):
        flat = f"({flat}) * s.size[{axis}] + i{axis}"
    return "".join([
        f'extern "C" __global__ void __launch_bounds__({BLOCK}) SYMBOL(const State s) {{\n',
        f"  constexpr int V = {vector_width(stage)}, T = {t};  // a square of T x T\n",
        *(f"  __shared__ {DTYPES[stage.inputs[s].dtype].cpp} t{s}[T][T + 1];\n" for s in turned),
        f"  const long long columns = (s.size[{b}] + T - 1) / T;\n",
        f"  const long long rows = (s.size[{a}] + T - 1) / T;\n",
        "  long long rest = blockIdx.x;\n",
        "  const long long first_column = rest % columns * T;\n  rest /= columns;\n",
        "  const long long first_row = rest % rows * T;\n  rest /= rows;\n",
        outer,
        f"  for (int p = threadIdx.x; p < T * (T / V); p += {BLOCK}) {{\n",
        "    const int column = p / (T / V), row0 = p % (T / V) * V;\n",
        f"    const long long i{b} = first_column + column, i{a} = first_row + row0;\n",
        f"    const long long left = s.size[{a}] - i{a};\n",
        f"    if (i{b} < s.size[{b}] && left > 0) {{\n",
        *(_into_shared(stage, s, rank) for s in turned),
        "    }\n  }\n  __syncthreads();\n",
        fixed_values(stage, slots),
        f"  for (int p = threadIdx.x; p < T * (T / V); p += {BLOCK}) {{\n",
        "    const int row0 = p / (T / V), column = p % (T / V) * V;\n",
        f"    const long long i{a} = first_row + row0, i{b} = first_column + column;\n",
        f"    const long long left = s.size[{b}] - i{b};\n",
        f"    if (i{a} >= s.size[{a}] || left <= 0) continue;\n",
        f"    const long long begin = {flat};\n",
        "    if (left < V) {\n      for (int k = 0; k < left; ++k) one(s, begin + k);\n",
        "      continue;\n    }\n",
        vector_loads(stage, slots, "begin", " + begin"),
        row_loads(stage, [s for s in by_layout(stage, others, "strided")], rank),
        *(f"  Vec<{DTYPES[stage.inputs[s].dtype].cpp}, V> e{s};\n" for s in turned),
        *(f"  Vec<{cpp}, V> o{at};\n" for at, cpp in enumerate(outputs)),
        "#pragma unroll\n  for (int k = 0; k < V; ++k) {\n",
        *(f"    e{s}.at[k] = t{s}[column + k][row0];\n" for s in turned),
        element_values(stage, slots),
        program_text(stage.element, "o{at}.at[k] = {value};", "    "),
        "  }\n",
        *(f"  store(s.y{at} + begin, o{at}, is_aligned<{cpp}, V>(s.y{at} + begin));\n"
          for at, cpp in enumerate(outputs)),
        "  }\n}\n",
    ])  # fmt: skip


def _into_shared(stage: Stage, slot: int, rank: int) -> str:
    cpp = DTYPES[stage.inputs[slot].dtype].cpp
    offset = " + ".join(f"i{axis} * s.step{slot}[{axis}]" for axis in range(rank))
    return (
        f"      const {cpp}* const p{slot} = reinterpret_cast<const {cpp}*>(\n"
        f"          reinterpret_cast<const char*>(s.x{slot}) + ({offset}));\n"
        f"      Vec<{cpp}, V> v{slot};\n"
        f"      if (left >= V) {{\n        load(v{slot}, p{slot}, is_aligned<{cpp}, V>(p{slot}));\n"
        f"#pragma unroll\n"
        f"        for (int k = 0; k < V; ++k) t{slot}[column][row0 + k] = v{slot}.at[k];\n"
        f"      }} else {{\n"
        f"        for (int k = 0; k < left; ++k) t{slot}[column][row0 + k] = p{slot}[k];\n      }}\n"
    )
