"""Rows that lie side by side go through shared memory: a block's come in as one piece and leave so.

A tile stands in shared memory as it does in memory modulo 16 bytes, so that all but its ends are
moved by the copy engine (compute capability 9.0 and later) or in vectors, whatever the length of a
row and wherever the first begins. Outputs take the place of an input of their size where their
addresses allow it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.plan.order import LANES
from itfuse.plan.stages import Stage

ROOM = {7: 64, 8: 99, 9: 227, 10: 227, 11: 227, 12: 99}
"""KiB of shared memory that a block of any device of a major compute capability may ask for.

CUDA C++ Programming Guide, table of technical specifications. 8.0 and 8.7 have 163.
"""


def room_of(arch: str) -> int:
    """Return the bytes of shared memory of a block, less what kernels declare themselves.

    Examples
    --------
    >>> room_of("sm_90")
    229376
    """
    number = int(arch.removeprefix("sm_"))
    largest = 163 if number in {80, 87} else ROOM.get(number // 10, 48)
    return (largest - 3) << 10


@dataclass(frozen=True)
class Chip:
    """What kernels over rows ask of an architecture.

    Attributes
    ----------
    room : int
        Bytes of shared memory of a block.
    clusters : bool
        Whether blocks can form clusters, which see each other's shared memory.
    """

    room: int
    clusters: bool

    @staticmethod
    def of(arch: str) -> Chip:
        """Return what an architecture, such as `sm_90`, has."""
        return Chip(room_of(arch), int(arch.removeprefix("sm_")) >= 90)


TILES = 192 << 10
"""Bytes of tiles of a multiprocessor where many blocks have one on its way: what those with 227 KiB
have, less what kernels declare themselves."""

BULK = """\
extern __shared__ __align__(16) unsigned char room[];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void stage_begin(unsigned long long* arrived) {
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared_address(arrived)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
}
__device__ __forceinline__ void copy_in(
    void* to, const void* from, int bytes, unsigned long long* arrived) {
  if (threadIdx.x == 0 && bytes > 0) {
    const unsigned bar = shared_address(arrived);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
                 :: "r"(bar), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(bar) : "memory");
  }
}
__device__ __forceinline__ void stage_wait(unsigned long long* arrived) {
  const unsigned bar = shared_address(arrived);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
  }
  __syncthreads();
  unsigned done;
  do {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; "
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done) : "r"(bar) : "memory");
  } while (!done);
}
// Tiles are written: from here on the copy engine may read them.
__device__ __forceinline__ void stage_written() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}
__device__ __forceinline__ void copy_out(void* to, const void* from, int bytes) {
  if (threadIdx.x == 0 && bytes > 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :: "l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
  }
}
__device__ __forceinline__ void stage_end() {
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
#else
__device__ __forceinline__ void stage_begin(unsigned long long*) {}
__device__ __forceinline__ void copy_in(
    void* to, const void* from, int bytes, unsigned long long*) {
#pragma unroll 4
  for (int at = threadIdx.x * 16; at < bytes; at += BLOCK * 16) {
    const int4 piece = *reinterpret_cast<const int4*>((const char*)from + at);
    *reinterpret_cast<int4*>((char*)to + at) = piece;
  }
}
__device__ __forceinline__ void stage_wait(unsigned long long*) { __syncthreads(); }
__device__ __forceinline__ void stage_written() { __syncthreads(); }
__device__ __forceinline__ void copy_out(void* to, const void* from, int bytes) {
  copy_in(to, from, bytes, nullptr);
}
__device__ __forceinline__ void stage_end() {}
#endif
"""
"""Copies of whole pieces of 16 bytes between memory and `room`; a block has `BLOCK` threads."""

STAGED = f"""\
// Bytes from the last 16-byte boundary to p.
template <typename T> __device__ __forceinline__ int skew(const T* p) {{
  return (int)(reinterpret_cast<unsigned long long>(p) & 15);
}}
// Bytes that a tile of so many elements takes.
template <typename T> __device__ __forceinline__ int tile_bytes(int count) {{
  return (count * (int)sizeof(T) + 15) / 16 * 16 + 16;
}}
// Of `count` elements from p: bytes before the first 16-byte boundary, and bytes of whole pieces.
// Complex numbers may stand across boundaries, and then there are none.
struct Pieces {{
  int head, body;
}};
template <typename T> __device__ __forceinline__ Pieces pieces(const T* p, int count) {{
  const int bytes = count * (int)sizeof(T);
  const bool cut = reinterpret_cast<unsigned long long>(p) % sizeof(T) != 0;
  int head = -skew(p) & 15;
  if (cut || head > bytes) head = bytes;
  return {{head, (bytes - head) & ~15}};
}}
// Copies the elements at both ends of `count` elements, which no whole piece holds.
template <typename T>
__device__ __forceinline__ void copy_ends(T* to, const T* from, int count, Pieces at) {{
  const int head = at.head / (int)sizeof(T), tail = (at.head + at.body) / (int)sizeof(T);
  for (int k = threadIdx.x; k < head; k += BLOCK) to[k] = from[k];
  for (int k = tail + threadIdx.x; k < count; k += BLOCK) to[k] = from[k];
}}
// Fills the tile from `count` elements of memory that lie side by side.
template <typename T>
__device__ __forceinline__ void stage_in(
    T* tile, const T* from, int count, unsigned long long* arrived) {{
  const Pieces at = pieces(from, count);
  copy_in((char*)tile + at.head, (const char*)from + at.head, at.body, arrived);
  copy_ends(tile, from, count, at);
}}
template <typename T>
__device__ __forceinline__ void stage_out(T* to, const T* tile, int count) {{
  const Pieces at = pieces(to, count);
  copy_out((char*)to + at.head, (const char*)tile + at.head, at.body);
  copy_ends(to, tile, count, at);
}}
// Lanes with whole vectors at any place: they start with different elements, as the same ones of
// 8 lanes (of 4 bytes) are in the same bank.
template <typename T> __device__ __forceinline__ int turn() {{
  return TURNED ? (int)(threadIdx.x * sizeof(T) / 32) & 3 : 0;
}}
template <typename T>
__device__ __forceinline__ Vec<T, {LANES}> turned(const Vec<T, {LANES}>& v, int by) {{
  Vec<T, {LANES}> a, b;
#pragma unroll
  for (int w = 0; w < {LANES}; ++w) a.at[w] = by & 1 ? v.at[(w + 1) % {LANES}] : v.at[w];
#pragma unroll
  for (int w = 0; w < {LANES}; ++w) b.at[w] = by & 2 ? a.at[(w + 2) % {LANES}] : a.at[w];
  return b;
}}
template <typename T>
__device__ __forceinline__ void shared_piece(Vec<T, {LANES}>& to, const T* from, int left) {{
  if (ALIGNED) {{
    if (left > 0) {{
      load(to, from, true);
    }} else {{
#pragma unroll
      for (int w = 0; w < {LANES}; ++w) to.at[w] = T{{}};
    }}
  }} else {{
    const int by = turn<T>();
    Vec<T, {LANES}> got;
    if (left >= {LANES}) {{
#pragma unroll
      for (int w = 0; w < {LANES}; ++w) got.at[w] = from[(w + by) % {LANES}];
    }} else {{
#pragma unroll
      for (int w = 0; w < {LANES}; ++w) {{
        const int k = (w + by) % {LANES};
        got.at[w] = k < left ? from[k] : T{{}};
      }}
    }}
    to = turned(got, {LANES} - by);
  }}
}}
template <typename T>
__device__ __forceinline__ void shared_put(T* to, const Vec<T, {LANES}>& from, int left) {{
  if (ALIGNED) {{
    if (left > 0) store(to, from, true);
  }} else {{
    const int by = turn<T>();
    const Vec<T, {LANES}> given = turned(from, by);
    if (left >= {LANES}) {{
#pragma unroll
      for (int w = 0; w < {LANES}; ++w) to[(w + by) % {LANES}] = given.at[w];
    }} else {{
#pragma unroll
      for (int w = 0; w < {LANES}; ++w) {{
        const int k = (w + by) % {LANES};
        if (k < left) to[k] = given.at[w];
      }}
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Tiles:
    """The tiles of a kernel.

    Attributes
    ----------
    inputs : tuple of int
        Slots of the contiguous inputs, a tile each.
    outputs : tuple of (int or None)
        For each output the slot whose place it takes; None for a tile of its own.
    rows : int
        Rows of a tile.
    part : int
        Elements of a row that are a tile, where several blocks share the row; 0 for all.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int | None, ...]
    rows: int
    part: int = 0

    @classmethod
    def of(cls, stage: Stage, linear: tuple[int, ...], rows: int, part: int = 0) -> Tiles:
        """Return the tiles of these inputs and of all outputs with an element for each."""
        free = list(linear)
        places: list[int | None] = []
        for output in stage.outputs[: stage.element_outputs]:
            size = np.dtype(output.dtype).itemsize
            same = (s for s in free if np.dtype(stage.inputs[s].dtype).itemsize == size)
            place = next(same, None)
            places.append(place)
            if place is not None:
                free.remove(place)
        return cls(linear, tuple(places), rows, part)

    def _apart(self, stage: Stage) -> list[tuple[str, str]]:
        """Return (name, dtype) of every tile."""
        own = [at for at, place in enumerate(self.outputs) if place is None]
        return [(f"x{s}", stage.inputs[s].dtype) for s in self.inputs] + [
            (f"y{at}", stage.outputs[at].dtype) for at in own
        ]

    def bytes(self, stage: Stage, length: int) -> int:
        """Return the bytes of shared memory for rows of `length` elements."""
        count = self.part or self.rows * length
        sizes = (np.dtype(dtype).itemsize for _, dtype in self._apart(stage))
        return sum((count * size + 15) // 16 * 16 + 16 for size in sizes)

    def begin(self, stage: Stage) -> str:
        """Fill the tiles; `in_x<slot>` and `in_y<at>` are then their first elements."""
        if self.part:  # of a row that the blocks of a cluster share
            count = f"{self.part}"
            lines = [
                "  const long long first = number * s.length + part;\n",
                "  const int rest = on ? length - part : 0;\n",
                f"  const int many = rest < {count} ? rest : {count};\n",
            ]
        else:
            count = f"{self.rows} * length"
            lines = [
                f"  const long long tile = (long long)blockIdx.x * {self.rows};\n",
                "  const long long first = tile * s.length;\n",
                f"  const int many = length * (int)(s.rows - tile < {self.rows} ? s.rows - tile : "
                f"{self.rows});\n",
            ]
        lines += [
            "  __shared__ unsigned long long arrived;\n",
            "  unsigned char* place = room;\n",
            "  stage_begin(&arrived);\n",
        ]
        for name, dtype in self._apart(stage):
            cpp = DTYPES[dtype].cpp
            lines += [
                f"  {cpp}* const in_{name} = reinterpret_cast<{cpp}*>(\n"
                f"      place + skew(s.{name} + first));\n",
                f"  place += tile_bytes<{cpp}>({count});\n",
            ]
        lines += [
            f"  stage_in(in_x{slot}, s.x{slot} + first, many, &arrived);\n" for slot in self.inputs
        ]
        for at, place in enumerate(self.outputs):
            if place is not None:
                cpp = DTYPES[stage.outputs[at].dtype].cpp
                lines += [
                    f"  {cpp}* const in_y{at} = reinterpret_cast<{cpp}*>(in_x{place});\n",
                    f"  const bool same{at} = skew(s.y{at} + first) == skew(s.x{place} + first);\n",
                ]
        return "".join([*lines, "  stage_wait(&arrived);\n"])

    def row(self, stage: Stage, mine: str) -> str:
        """Name the first elements of this thread's row, number `mine` of the tile."""
        lines = []
        start = "- part" if self.part else f"+ {mine} * length"
        for slot in self.inputs:
            cpp = DTYPES[stage.inputs[slot].dtype].cpp
            lines.append(f"  const {cpp}* const t{slot} = in_x{slot} {start};\n")
        for at in range(len(self.outputs)):
            cpp = DTYPES[stage.outputs[at].dtype].cpp
            lines.append(f"  {cpp}* const u{at} = in_y{at} {start};\n")
        return "".join(lines)

    def put(self, at: int) -> str:
        """Write elements `j` and on of output `at`, of which `left` are there."""
        staged = f"shared_put(u{at} + j, o{at}, left);\n"
        if self.outputs[at] is None:
            return f"    {staged}"
        plain = f"put(s.y{at} + row * s.length + j, o{at}, left);\n"
        return f"    if (same{at}) {staged}    else {plain}"

    def end(self) -> str:
        """Write the outputs to memory."""
        if not self.outputs:
            return ""
        lines = ["  stage_written();\n"]
        for at, place in enumerate(self.outputs):
            asked = "" if place is None else f"if (same{at}) "
            lines.append(f"  {asked}stage_out(s.y{at} + first, in_y{at}, many);\n")
        return "".join([*lines, "  stage_end();\n"])
