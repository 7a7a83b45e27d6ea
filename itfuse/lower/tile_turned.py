"""The transform kernel for inputs that lie across the rows of the result, such as `x.T`.

A block makes a square of the last axis and the axis along which those inputs are contiguous. It
reads them along their own axis into shared memory and then works row by row like any transform.
"""

from __future__ import annotations

import math

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import comment, place, prelude, struct_text
from itfuse.lower.layout import state_layout
from itfuse.lower.tile import (
    ROW,
    TileKernel,
    access,
    by_layout,
    fixed_values,
    program_text,
    row_loads,
)
from itfuse.lower.tile_transform import one_function, vector_width
from itfuse.plan.stages import Stage

BLOCK = 256
SHARED = 48 << 10
"""Bytes of shared memory that every device gives a block without asking."""


def side(stage: Stage) -> int:
    """Return the side of a square, or 0 if the inputs do not fit shared memory."""
    turned = [i for i in stage.inputs if i.turned is not None]
    itemsize = sum(np.dtype(i.dtype).itemsize for i in turned)
    share = vector_width(stage) * BLOCK  # a block moves at least this many elements at once
    fits = [t for t in (64, 32) if itemsize * t * (t + 1) <= SHARED and t * t >= share]
    same = len({i.turned for i in turned}) == 1
    return fits[0] if fits and same else 0


def lower_turned(stage: Stage, name: str) -> TileKernel:
    """Write the kernel of a transform with turned inputs, with symbols that start with `name`."""
    state = state_layout(stage, stage.element.slots, whole=True)
    symbol = f"{name}_turned"
    source = "".join([
        prelude(stage),
        access(aligned=False),
        ROW,
        struct_text("State", [declaration for declaration, _ in state.fields]),
        one_function(stage, state),
        comment(stage.element, "y{at}"),
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
    straight = [s for s in by_layout(stage, slots, "strided") if s not in turned]
    linear = by_layout(stage, slots, "linear")
    cpp = {s: DTYPES[stage.inputs[s].dtype].cpp for s in slots}
    outputs = [DTYPES[output.dtype].cpp for output in stage.outputs]
    a, b, t, vector = _axis(stage), rank - 1, side(stage), vector_width(stage)
    outer = "".join(
        f"  const long long i{k} = rest % s.size[{k}];\n  rest /= s.size[{k}];\n"
        for k in range(rank - 2, -1, -1)
        if k != a
    )
    flat = "i0"
    for axis in range(1, rank):
        flat = f"({flat}) * s.size[{axis}] + i{axis}"
    # Thread's share number c of the square: V elements of a line, in either direction.
    share = f"const int p = c * {BLOCK} + threadIdx.x, line = p / (T / V), at = p % (T / V) * V;\n"
    reading = (
        f"    {share}    const long long i{b} = first_{b} + line, i{a} = first_{a} + at;\n"
        f"    const long long left = i{b} < s.size[{b}] ? s.size[{a}] - i{a} : 0;\n"
    )
    working = (
        f"    {share}    const long long i{a} = first_{a} + line, i{b} = first_{b} + at;\n"
        f"    const long long left = i{a} < s.size[{a}] ? s.size[{b}] - i{b} : 0;\n"
        f"    const long long begin = {flat};\n"
    )
    each = "#pragma unroll\n  for (int c = 0; c < SHARES; ++c) {\n"
    return "".join([
        f'extern "C" __global__ void __launch_bounds__({BLOCK}, 2) SYMBOL(const State s) {{\n',
        f"  constexpr int V = {vector}, T = {t}, SHARES = {t * t // vector // BLOCK};\n",
        *(f"  __shared__ {cpp[s]} t{s}[T][T + 1];\n" for s in turned),
        "  long long rest = blockIdx.x;\n",
        *(f"  const long long lines_{k} = (s.size[{k}] + T - 1) / T;\n"
          f"  const long long first_{k} = rest % lines_{k} * T;\n  rest /= lines_{k};\n"
          for k in (b, a)),
        outer,
        "  // Every load is on its way before the first is waited for.\n",
        *(f"  Vec<{cpp[s]}, V> v{s}[SHARES];\n" for s in turned),
        *(f"  Vec<{cpp[s]}, V> w{s}[SHARES];\n" for s in linear),
        each, reading,
        *(_across(stage, s) for s in turned),
        "  }\n",
        *((each, working,
           *(f"    if (left >= V) load(w{s}[c], s.x{s} + begin, "
             f"is_aligned<{cpp[s]}, V>(s.x{s} + begin));\n" for s in linear),
           "  }\n") if linear else ()),
        each, reading,
        "#pragma unroll\n    for (int k = 0; k < V; ++k) {\n      if (k < left) {\n",
        *(f"        t{s}[line][at + k] = v{s}[c].at[k];\n" for s in turned),
        "      }\n    }\n  }\n  __syncthreads();\n",
        fixed_values(stage, slots),
        each, working,
        "    if (left < V) {\n      for (int k = 0; k < left; ++k) one(s, begin + k);\n",
        "      continue;\n    }\n",
        row_loads(stage, straight, rank),
        *(f"    Vec<{one}, V> o{at};\n" for at, one in enumerate(outputs)),
        "#pragma unroll\n    for (int k = 0; k < V; ++k) {\n",
        *(f"    const {cpp[s]} x{s} = t{s}[at + k][line];\n" for s in turned),
        *(f"    const {cpp[s]} x{s} = w{s}[c].at[k];\n" for s in linear),
        *(f"    const {cpp[s]} x{s} = e{s}.at[k];\n" for s in straight),
        program_text(stage.element, "o{at}.at[k] = {value};", "    "),
        "    }\n",
        *(f"    store(s.y{at} + begin, o{at}, is_aligned<{one}, V>(s.y{at} + begin));\n"
          for at, one in enumerate(outputs)),
        "  }\n}\n",
    ])  # fmt: skip


def _across(stage: Stage, slot: int) -> str:
    """Load V elements along the input's own axis, or what is left there."""
    cpp = DTYPES[stage.inputs[slot].dtype].cpp
    return (
        f"    const {cpp}* const p{slot} = reinterpret_cast<const {cpp}*>(\n"
        f"        {place(stage, slot)});\n"
        f"    if (left >= V) load(v{slot}[c], p{slot}, is_aligned<{cpp}, V>(p{slot}));\n"
        f"    else\n#pragma unroll\n      for (int k = 0; k < V; ++k)\n"
        f"        if (k < left) v{slot}[c].at[k] = p{slot}[k];\n"
    )
