"""How threads share rows, by the class of their length, and how their values combine."""

from __future__ import annotations

from itfuse.lower.accumulator import item_dtype
from itfuse.lower.row_rules import Rule
from itfuse.plan.order import LANES, LEAF, THREADS, WARP, power
from itfuse.plan.stages import Phase, Stage

CLUSTER = 8
"""Blocks of a cluster at most, on any device that has clusters (CUDA C++ Programming Guide)."""

CLUSTER_THREADS = 1024
"""Threads of a multiprocessor at most where a row belongs to a cluster: each keeps a part of it."""

DEEP = 96
"""Bytes of accumulators of a thread from which on its vectors are combined one by one."""


class RowShape:
    """How threads share rows: the class of their length as C++.

    Parameters
    ----------
    kind, count : str and int
        The class, `plan.order.row_class`.
    how : Rule
        Threads and blocks, and leaves abreast.
    lanes : int
        Lanes that share a row, if the kind is `lanes`; each has as few vectors as it can.
    rounds : int
        How often a block takes rows.

    Attributes
    ----------
    cluster : int
        Blocks that share a row.
    """

    def __init__(
        self, kind: str, count: int, how: Rule, lanes: int = WARP, rounds: int = 1
    ) -> None:
        self.kind = kind
        self.cluster = 1
        self.rounds = rounds
        self._blocks = how.blocks
        self.lanes = lanes if kind == "lanes" else WARP
        """Lanes of a warp that share a row."""
        of_leaf = LEAF // THREADS // LANES
        self.vectors = {
            "lanes": -(-count // self.lanes), "leaves": of_leaf, "walk": of_leaf
        }.get(kind, count)  # fmt: skip
        self.leaves = {"leaves": count, "walk": how.abreast}.get(kind, 1)
        """Leaves of a block at once."""
        self.of_row = count
        """Leaves of a row, if the kind is `leaves`."""
        if kind == "leaves" and how.cluster:
            self.leaves = max(how.abreast, -(-count // CLUSTER))
            self.cluster = -(-count // self.leaves)
        self.apart = kind in ("lanes", "warp")  # each vector is a thread of the order
        self.block = how.block if self.apart else THREADS * self.leaves
        if self.cluster > 1:
            self._blocks = max(1, min(how.blocks, CLUSTER_THREADS // self.block))
        self.side = self.block // self.lanes if self.apart else 1
        """Rows of a block that it has at once."""
        self.each = self.side * rounds
        """Rows of a block."""

    @property
    def bounds(self) -> str:
        """Launch bounds: asked for a few blocks, the compiler takes the registers it needs."""
        usual = max(1, (THREADS if self.apart else 2 * THREADS) // self.block)
        bounds = f"__launch_bounds__({self.block}, {self._blocks or usual})"
        return bounds if self.cluster == 1 else f"__cluster_dims__({self.cluster}) {bounds}"

    def grid(self, stage: Stage) -> int:
        """Return the blocks that cover the rows."""
        return max(1, -(-stage.rows // self.each)) * self.cluster

    @property
    def part(self) -> int:
        """Elements of a row that a block of a cluster has; 0 for all."""
        return self.leaves * LEAF if self.cluster > 1 else 0

    @property
    def local(self) -> str:
        """Number this thread's row in the block."""
        if not self.apart:
            return "round" if self.rounds > 1 else "0"
        ahead = f"round * {self.side} + " if self.rounds > 1 else ""
        return f"({ahead}(int)threadIdx.x / {self.lanes})"

    @property
    def mine(self) -> str:
        """Name this thread's row, and its first vector in it."""
        if self.apart:
            return (
                f"  const int lane = threadIdx.x % {self.lanes};\n"
                f"  const long long number = (long long)blockIdx.x * {self.each} + {self.local};\n"
                "  const bool on = number < s.rows;\n"
                "  const long long row = on ? number : 0;\n"
            )
        number = f"(long long)blockIdx.x * {self.each} + {self.local}"
        part = ""
        if self.part:
            number = f"blockIdx.x / {self.cluster}"
            part = f"  const int part = (int)(blockIdx.x % {self.cluster}) * {self.part};\n"
        return (
            f"  const int lane = threadIdx.x % {THREADS} + threadIdx.x / {THREADS} * "
            f"{LEAF // LANES};\n{part}"
            f"  const long long number = {number};\n"
            "  const bool on = number < s.rows;\n"
            "  const long long row = on ? number : 0;\n"
        )

    @property
    def vector(self) -> str:
        """Name the first element of vector `u`, and how many elements are left from there."""
        apart = self.lanes if self.apart else THREADS
        start = f"base * {LEAF} + " if self.kind == "walk" else "part + " if self.part else ""
        return (
            f"    const int j = {start}(lane + u * {apart}) * {LANES};\n"
            "    const int left = on ? length - j : 0;\n"
        )

    def _lanes_tree(self, item: str, head: str, down: str) -> str:
        """Write the tree of a row's lanes, for each warp of the order, and then over these.

        Vector u of lane l is thread l + u * lanes of the order.
        """
        each = WARP // self.lanes
        warps = -(-self.vectors // each)
        return (
            f"{head}({item} (&v)[{self.vectors}]) {{\n"
            f"#pragma unroll\n  for (int first = 0; first < {self.vectors}; first += {each}) {{\n"
            f"#pragma unroll\n    for (int apart = {each // 2}; apart > 0; apart /= 2) {{\n"
            "#pragma unroll\n      for (int u = first; u < first + apart; ++u) {\n"
            f"        if (u + apart < {self.vectors}) v[u] = combine(v[u], v[u + apart]);\n"
            f"      }}\n    }}\n    {item} a = v[first];\n"
            f"#pragma unroll\n    for (int distance = {self.lanes // 2}; distance > 0; "
            f"distance /= 2) {{\n  {down}    }}\n    v[first] = a;\n  }}\n"
            f"#pragma unroll\n  for (int apart = {power(warps) // 2 * each}; apart >= {each}; "
            "apart /= 2) {\n"
            f"#pragma unroll\n    for (int u = 0; u < apart; u += {each}) {{\n"
            f"      if (u + apart < {self.vectors}) v[u] = combine(v[u], v[u + apart]);\n"
            "    }\n  }\n"
            f"  return of_lane(v[0], (int)threadIdx.x % {WARP} / {self.lanes} * {self.lanes});\n"
            "}\n"
        )

    def deep(self, phase: Phase, held: bool) -> bool:
        """Whether a thread's vectors are combined one by one: their accumulators are many."""
        size = item_dtype(phase.combine).itemsize if phase.combine else 0
        return self.kind == "warp" and size * self.vectors > DEEP and not held

    def tree(self, phase: Phase, q: int) -> str:
        """Write the function that combines a row's values of all its threads."""
        item = f"Item{q}"
        head = f"__device__ __forceinline__ {item} row_combine"
        down = "    a = combine(a, from_lane(a, distance));\n"
        if self.apart:
            if self.kind == "lanes":
                return self._lanes_tree(item, head, down)
            return _warp_tree(item, q, self.vectors) + (
                f"__device__ __forceinline__ {item} warp_combine({item} a) {{\n"
                f"#pragma unroll\n  for (int distance = {WARP // 2}; distance > 0; distance /= 2) "
                f"{{\n{down}  }}\n  return a;\n}}\n"
            )
        if self.kind == "walk":
            return _walk_tree(item, q, down, self.leaves)
        if self.cluster > 1:
            return _cluster_tree(item, q, self)
        warps = self.block // WARP
        in_leaf = THREADS // WARP
        return (
            f"{head}({item} a) {{\n  __shared__ {item} of_warp[{warps}];\n"
            f"#pragma unroll\n  for (int distance = {WARP // 2}; distance > 0; distance /= 2) {{\n"
            f"{down}  }}\n"
            f"  if (threadIdx.x % {WARP} == 0) of_warp[threadIdx.x / {WARP}] = a;\n"
            "  __syncthreads();\n"
            f"  const int lane = threadIdx.x % {WARP};\n"
            f"  a = lane < {warps} ? of_warp[lane] : identity{q}();\n"
            f"#pragma unroll\n  for (int distance = {in_leaf // 2}; distance > 0; distance /= 2) "
            f"{{\n{down}  }}\n"
            f"#pragma unroll\n  for (int distance = {in_leaf * power(self.leaves) // 2}; "
            f"distance >= {in_leaf}; distance /= 2) {{\n{down}  }}\n"
            "  return of_lane(a, 0);\n}\n"
        )


def _warp_tree(item: str, q: int, vectors: int) -> str:
    """Write the tree of a warp's vectors: one tree for each over the lanes, then over the vectors.

    Lanes exchange halves: at each of the first distances a lane gives away half of its values and
    gets the partners of the others, which takes 12 shuffles of 8 values instead of 40. Afterwards
    the bits of a lane that were exchanged say whose value it has.
    """
    count = power(vectors)
    levels = count.bit_length() - 1
    lines = [
        f"__device__ __forceinline__ {item} row_combine({item} (&of)[{vectors}]) {{\n",
        f"  const int lane = threadIdx.x % {WARP};\n  {item} v[{count}];\n",
        f"#pragma unroll\n  for (int u = 0; u < {count}; ++u) "
        f"v[u] = u < {vectors} ? of[u < {vectors} ? u : 0] : identity{q}();\n",
    ]
    for level in range(levels):
        distance, half = WARP // 2 >> level, count // 2 >> level
        lines.append(
            f"#pragma unroll\n  for (int u = 0; u < {half}; ++u) {{\n"
            f"    const bool upper = lane & {distance};\n"
            f"    {item} own = v[u], its = v[u + {half}];\n"
            f"    swap_if(upper, own, its);\n    its = of_lane(its, lane ^ {distance});\n"
            "    swap_if(upper, own, its);\n    v[u] = combine(own, its);\n  }\n"
        )
    lines.append(f"  {item} a = v[0];\n")
    rest = [WARP // 2 >> level for level in range(levels, 5)]
    over = [WARP // 2 >> level for level in range(levels)]
    lines += [f"  a = combine(a, from_lane(a, {distance}));\n" for distance in rest + over]
    lines.append("  return of_lane(a, 0);\n}\n")
    return "".join(lines)


def _walk_tree(item: str, q: int, down: str, abreast: int) -> str:
    """Write how a block combines the leaves that it walks abreast, and in the end all leaves."""
    warps, in_leaf = abreast * THREADS // WARP, THREADS // WARP
    there = "" if warps == WARP else f"threadIdx.x >= {warps} ? identity{q}() : "
    return (
        f"__device__ __forceinline__ void leaf_combine({item} a, int base, {item}* leaf_of) {{\n"
        f"  __shared__ {item} of_warp[{warps}];\n"
        f"#pragma unroll\n  for (int distance = {WARP // 2}; distance > 0; distance /= 2) {{\n"
        f"{down}  }}\n"
        f"  if (threadIdx.x % {WARP} == 0) of_warp[threadIdx.x / {WARP}] = a;\n"
        f"  __syncthreads();\n  if (threadIdx.x < {WARP}) {{\n"
        f"    a = {there}of_warp[threadIdx.x];\n"
        f"#pragma unroll\n    for (int distance = {in_leaf // 2}; distance > 0; distance /= 2) {{\n"
        f"  {down}    }}\n"
        f"    if (threadIdx.x % {in_leaf} == 0 && threadIdx.x < {warps}) {{\n"
        f"      leaf_of[base + threadIdx.x / {in_leaf}] = a;\n    }}\n"
        "  }\n  __syncthreads();\n}\n"
        f"__device__ __forceinline__ {item} row_combine(const {item}* leaf_of, int leaves) {{\n"
        f"  const int lane = threadIdx.x % {WARP};\n"
        f"  {item} a = lane < leaves ? leaf_of[lane] : identity{q}();\n"
        f"#pragma unroll\n  for (int distance = {WARP // 2}; distance > 0; distance /= 2) {{\n"
        f"{down}  }}\n  return of_lane(a, 0);\n}}\n"
    )


MEET = """\
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Where a variable of this block in shared memory is in that of another block of the cluster.
template <typename T> __device__ __forceinline__ T* there(T* here, unsigned block) {
  T* p;
  asm("mapa.u64 %0, %1, %2;" : "=l"(p) : "l"(here), "r"(block));
  return p;
}
"""


def _cluster_tree(item: str, q: int, shape: RowShape) -> str:
    """Write how blocks of a cluster combine: each tells its leaves to all, and all combine them."""
    warps, in_leaf, leaves = shape.block // WARP, THREADS // WARP, shape.leaves
    down = "    a = combine(a, from_lane(a, distance));\n"
    return (
        f"__device__ __forceinline__ {item} row_combine({item} a) {{\n"
        f"  __shared__ {item} of_warp[{warps}], of_leaf[{WARP}];\n"
        f"#pragma unroll\n  for (int distance = {WARP // 2}; distance > 0; distance /= 2) {{\n"
        f"{down}  }}\n"
        f"  const int lane = threadIdx.x % {WARP};\n"
        f"  if (lane == 0) of_warp[threadIdx.x / {WARP}] = a;\n"
        "  __syncthreads();\n"
        f"  if (threadIdx.x < {WARP}) {{\n"
        f"    a = lane < {warps} ? of_warp[lane] : identity{q}();\n"
        f"#pragma unroll\n    for (int distance = {in_leaf // 2}; distance > 0; distance /= 2) {{\n"
        f"  {down}    }}\n"
        f"    a = of_lane(a, lane % {leaves} * {in_leaf});\n"
        f"    if (lane < {shape.cluster * leaves}) {{\n"
        f"      const int at = (int)(blockIdx.x % {shape.cluster}) * {leaves} + lane % {leaves};\n"
        f"      *there(&of_leaf[at], lane / {leaves}) = a;\n    }}\n  }}\n"
        "  cluster_arrive();\n  cluster_wait();\n"
        f"  a = lane < {shape.of_row} ? of_leaf[lane] : identity{q}();\n"
        f"#pragma unroll\n  for (int distance = {power(shape.of_row) // 2}; distance > 0; "
        f"distance /= 2) {{\n{down}  }}\n"
        "  return of_lane(a, 0);\n}\n"
    )
