"""Rows that no vector fits: they lie side by side, so a block's go through shared memory whole.

Each operand has a tile there, in which elements stand as they do in memory modulo 16 bytes, so that
all but the ends are copied in vectors whatever the length of a row and wherever the first begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.plan.order import LANES
from itfuse.plan.stages import Stage

SHARED = 47 << 10
"""Bytes of shared memory for tiles; every device gives a block 48 KiB without asking."""

STAGED = f"""\
// Elements from the last 16-byte boundary to p.
template <typename T> __device__ __forceinline__ int skew(const T* p) {{
  return (int)((reinterpret_cast<unsigned long long>(p) & 15) / sizeof(T));
}}
// Whether elements stand at multiples of their size; complex numbers need not.
template <typename T> __device__ __forceinline__ bool whole(const T* p) {{
  return sizeof(T) == alignof(T) || reinterpret_cast<unsigned long long>(p) % sizeof(T) == 0;
}}
// Copy elements that lie side by side between memory and a tile, where they stand from skew on.
template <int BLOCK, typename T>
__device__ __forceinline__ void stage_in(T* tile, const T* from, int count) {{
  constexpr int E = 16 / sizeof(T);
  const bool even = whole(from);
  const int ahead = skew(from), vectors = (ahead + count + E - 1) / E;
#pragma unroll 4
  for (int v = threadIdx.x; v < vectors; v += BLOCK) {{
    const int k = v * E - ahead;
    if (even && k >= 0 && k + E <= count) {{
      reinterpret_cast<int4*>(tile)[v] = *reinterpret_cast<const int4*>(from + k);
    }} else {{
#pragma unroll
      for (int e = 0; e < E; ++e) {{
        if (k + e >= 0 && k + e < count) tile[v * E + e] = from[k + e];
      }}
    }}
  }}
}}
template <int BLOCK, typename T>
__device__ __forceinline__ void stage_out(T* to, const T* tile, int count) {{
  constexpr int E = 16 / sizeof(T);
  const bool even = whole(to);
  const int ahead = skew(to), vectors = (ahead + count + E - 1) / E;
#pragma unroll 4
  for (int v = threadIdx.x; v < vectors; v += BLOCK) {{
    const int k = v * E - ahead;
    if (even && k >= 0 && k + E <= count) {{
      *reinterpret_cast<int4*>(to + k) = reinterpret_cast<const int4*>(tile)[v];
    }} else {{
#pragma unroll
      for (int e = 0; e < E; ++e) {{
        if (k + e >= 0 && k + e < count) to[k + e] = tile[v * E + e];
      }}
    }}
  }}
}}
template <typename T>
__device__ __forceinline__ void shared_piece(Vec<T, {LANES}>& to, const T* from, int left) {{
#pragma unroll
  for (int w = 0; w < {LANES}; ++w) to.at[w] = w < left ? from[w] : T{{}};
}}
template <typename T>
__device__ __forceinline__ void shared_put(T* to, const Vec<T, {LANES}>& from, int left) {{
#pragma unroll
  for (int w = 0; w < {LANES}; ++w) {{
    if (w < left) to[w] = from.at[w];
  }}
}}
"""


@dataclass(frozen=True)
class Tiles:
    """The tiles of a kernel.

    Attributes
    ----------
    inputs : tuple of int
        Slots of the contiguous inputs.
    outputs : int
        How many of the outputs.
    capacity : int
        Elements of each.
    """

    inputs: tuple[int, ...]
    outputs: int
    capacity: int

    def bytes(self, stage: Stage) -> int:
        """Return the bytes of shared memory; outputs take the place of inputs."""
        read = sum(self._size(stage.inputs[s].dtype) for s in self.inputs)
        written = sum(self._size(o.dtype) for o in stage.outputs[: self.outputs])
        return max(read, written)

    def _size(self, dtype: str) -> int:
        itemsize = np.dtype(dtype).itemsize
        return (self.capacity * itemsize + 15) // 16 * 16 + 32

    def _places(self, dtypes: Sequence[str]) -> list[int]:
        sizes = [0, *(self._size(name) for name in dtypes)]
        return [sum(sizes[: at + 1]) for at in range(len(dtypes))]

    def load(self, stage: Stage, each: int, local: str, block: int) -> str:
        """Fill the tiles; `t<slot>` is then the first element of this thread's row."""
        dtypes = [stage.inputs[s].dtype for s in self.inputs]
        lines = [
            f"  __shared__ __align__(16) unsigned char room[{self.bytes(stage)}];\n",
            f"  const long long first = (long long)blockIdx.x * {each};\n",
            f"  const int here = (int)(s.rows - first < {each} ? s.rows - first : {each});\n",
        ]
        for slot, dtype, place in zip(self.inputs, dtypes, self._places(dtypes), strict=True):
            cpp = DTYPES[dtype].cpp
            source = f"s.x{slot} + first * s.length"
            tile = f"reinterpret_cast<{cpp}*>(room + {place})"
            lines.append(f"  stage_in<{block}>({tile}, {source}, here * length);\n")
            lines.append(f"  const {cpp}* const t{slot} = {tile} + skew({source}) + {local};\n")
        lines.append("  __syncthreads();\n")
        return "".join(lines)

    def outputs_begin(self, stage: Stage, local: str) -> str:
        """Make room for the outputs; `u<at>` is the first element of this thread's row."""
        if not self.outputs:
            return ""
        dtypes = [o.dtype for o in stage.outputs[: self.outputs]]
        lines = ["  __syncthreads();\n"]
        for at, (dtype, place) in enumerate(zip(dtypes, self._places(dtypes), strict=True)):
            cpp = DTYPES[dtype].cpp
            lines.append(
                f"  {cpp}* const u{at} = reinterpret_cast<{cpp}*>(room + {place}) +\n"
                f"      skew(s.y{at} + first * s.length) + {local};\n"
            )
        return "".join(lines)

    def outputs_end(self, stage: Stage, block: int) -> str:
        """Write the outputs."""
        if not self.outputs:
            return ""
        dtypes = [o.dtype for o in stage.outputs[: self.outputs]]
        lines = ["  __syncthreads();\n"]
        for at, (dtype, place) in enumerate(zip(dtypes, self._places(dtypes), strict=True)):
            cpp = DTYPES[dtype].cpp
            tile = f"reinterpret_cast<const {cpp}*>(room + {place})"
            target = f"s.y{at} + first * s.length"
            lines.append(f"  stage_out<{block}>({target}, {tile}, here * length);\n")
        return "".join(lines)
