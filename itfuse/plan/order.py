"""The order in which every reduction combines: the same on every engine, so the same bits.

1. The domain is cut into leaves of `leaf(n)` consecutive elements; beyond the end stands the
   operator's identity. A leaf has `THREADS` * `LANES` accumulators, which start from the identity;
   accumulator (t, w) takes elements (k * THREADS + t) * LANES + w, for k = 0, 1, ... in turn.
2. (a0 . a1) . (a2 . a3) over w leaves one value a thread t. In each warp of 32 threads, value i is
   combined with value i + 16, then with i + 8, i + 4, i + 2, i + 1; then the values of the
   THREADS / 32 warps the same way, from half their number down. The result is the leaf's.
3. Thread t of one more such tree takes leaves t, t + THREADS, ... in turn, from the identity, and
   the threads combine as in 2.

Changing a number here changes bits, and so needs a new `cache.FORMAT`.
"""

from __future__ import annotations

THREADS = 256
LANES = 4
LEAF = 1 << 13
LARGE = 1 << 26
"""From this many elements on a leaf is `LARGE_LEAF`: fewer trees. Below, more blocks share them."""
LARGE_LEAF = 1 << 15


def leaf(n: int) -> int:
    """Return the elements of a leaf of a reduction of `n` elements."""
    return LEAF if n < LARGE else LARGE_LEAF
