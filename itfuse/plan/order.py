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

The order of a scan is a function of an element's place alone, so that the first k values of a scan
are the scan of the first k elements. Nothing is combined with an identity.

1. A tile is `SCAN_TILE` consecutive elements, eight parts for a warp each, of `SCAN_CHUNKS` chunks,
   of 32 vectors of `SCAN_EACH` elements. A vector's elements combine in turn. The totals of a
   chunk's vectors combine as Kogge and Stone's: value i with value i - 1, then with i - 2, i - 4,
   i - 8, i - 16, where these are in the chunk. Totals of a part's chunks combine in turn, and those
   of a tile's parts.
2. A tile's total, all its parts in turn, is a leaf of a tree with 32 children a node. What comes
   before child p of a node is the first 2**k children, for the highest bit k of p, combined as
   (0 . 1) . (2 . 3) and so on, then the rest of the p the same way, from the right: 7 children
   are B4 . (B2 . B1). A node's total is what comes before its last child, then that child's. Nodes
   of level 3 (2**28 elements) have no parent: 32 after 32 of them combine in turn.
3. What comes before a tile is what comes before its ancestors and itself, from the right:
   level 3 . (level 2 . (level 1 . level 0)).
4. An element is ((before the tile . parts before) . (chunks before . vectors before)) . its own
   vector up to it.

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
SHORT = 80
"""Vectors of a row up to which the exact number decides how many threads of a warp share it."""
SCAN_EACH = 4
SCAN_CHUNKS = 8
SCAN_TILE = THREADS * SCAN_EACH * SCAN_CHUNKS
SCAN_CHILDREN = 32
SCAN_LEVELS = 4


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
        `lanes`, vectors of a row that some threads of a warp share; `warp`, vectors of each of its
        threads; `block`, vectors of each of `THREADS` threads; `leaves`, that many times `THREADS`
        threads, each with one leaf; `walk`, leaves that a block walks some at a time, in every
        phase anew; `long`, leaf after leaf.
    """
    vectors = -(-length // LANES)
    if vectors <= WARP:
        return "lanes", max(1, vectors)
    if vectors <= SHORT:
        return "lanes", -(-vectors // 8) * 8
    if vectors <= THREADS:
        return "warp", -(-vectors // WARP)
    if length <= LEAF:
        return "block", -(-vectors // THREADS)
    if not walks:
        return "long", 0
    leaves = -(-length // LEAF)
    return "leaves" if leaves <= 4 else "walk", leaves


def scan_class(length: int) -> tuple[int, bool]:
    """Return how a kernel shares out scans of `length` elements: part of its structure.

    Returns
    -------
    tuple of (int, bool)
        The places that a row takes of a tile: a power of two, `SCAN_TILE` at most. Whether a row
        takes more than one tile.
    """
    return min(power(max(1, length)), SCAN_TILE), length > SCAN_TILE


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
