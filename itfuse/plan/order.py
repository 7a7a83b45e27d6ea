"""The order in which every reduction combines: the same on every engine, so the same bits.

It is a function of n, the number of elements that are reduced together, alone: a row of a
reduction along axes combines as a whole array of its length does, wherever its elements lie.

1. The n elements are cut into leaves of `leaf(n)` consecutive elements; beyond the end stands the
   operator's identity. A leaf has `THREADS` * `LANES` accumulators, which start from the identity;
   accumulator (t, w) takes elements (k * THREADS + t) * LANES + w, for k = 0, 1, ... in turn.
2. (a0 . a1) . (a2 . a3) over w leaves one value a thread t. In each warp of 32 threads, value i is
   combined with value i + 16, then with i + 8, i + 4, i + 2, i + 1; then the values of the
   THREADS / 32 warps the same way, from half their number down. The result is the leaf's.
   A tree of fewer elements is the same tree: combining with the identity changes no bit.
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


WARP = 32


def power(count: int) -> int:
    """Return the least power of two that is not below `count`."""
    return 1 << max(0, count - 1).bit_length()


def row_class(length: int, walks: bool) -> tuple[str, int]:
    """Return how a kernel shares out rows of `length` elements: part of its structure.

    Parameters
    ----------
    length : int
        Elements of a row.
    walks : bool
        Whether elements are needed again after the first reduction.

    Returns
    -------
    tuple of (str, int)
        `lanes`, threads of a warp for a row; `warp`, vectors of each of its threads; `block`,
        vectors of each of `THREADS` threads; `leaves`, that many times `THREADS` threads, each
        with one leaf; `long`, leaf after leaf.
    """
    vectors = -(-length // LANES)
    if vectors <= WARP:
        return "lanes", power(max(1, vectors))
    if vectors <= THREADS:
        return "warp", -(-vectors // WARP)
    if length <= LEAF:
        return "block", -(-vectors // THREADS)
    return ("leaves", -(-length // LEAF)) if walks else ("long", 0)


def column_class(length: int, columns: int) -> tuple[int, int]:
    """Return how a kernel shares out columns of `length` elements: part of its structure.

    Returns
    -------
    tuple of (int, int)
        Into how many parts, each a warp's of the order, a column is cut; and about how many columns
        there are, a power of two up to 1,024.
    """
    parts = min(power(-(-max(1, length) // (WARP * LANES))), THREADS // WARP)
    return parts, min(power(max(1, columns)), 1 << 10)
