"""What blocks of one launch tell each other: words that are seen whole or not at all, in a tree.

Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back (2016), through a
tree of 32 children a node, so that no block waits for a long chain.
"""

from __future__ import annotations

from itfuse.plan.order import SCAN_CHILDREN, SCAN_LEVELS

LEVELS = SCAN_LEVELS
BITS = SCAN_CHILDREN.bit_length() - 1  # 32 children are one load of a warp

TREE = f"""\
typedef unsigned long long Word;
constexpr Word KNOWN = 1ull << 63;  // beside a value, so that it is seen whole or not at all
__device__ __forceinline__ Word relaxed_load(const Word* p) {{
#ifdef __CUDA_ARCH__
  Word word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(p) : "memory");
  return word;
#else
  return *p;
#endif
}}
__device__ __forceinline__ void publish(Word* to, Word value) {{
#ifdef __CUDA_ARCH__
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(to), "l"(value | KNOWN) : "memory");
#else
  *to = value | KNOWN;
#endif
}}
// Nodes of a tree over this many tiles.
__device__ __forceinline__ Word tree_size(unsigned tiles) {{
  Word nodes = 0;
#pragma unroll
  for (int k = 0; k < {LEVELS}; ++k) nodes += (tiles >> {BITS} * k) + 1;
  return nodes;
}}
"""


def nodes(tiles: int) -> int:
    """Return the nodes of a tree over `tiles`."""
    return sum((tiles >> BITS * k) + 1 for k in range(LEVELS))
