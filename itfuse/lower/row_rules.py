"""Which kernel over rows: rules as data, with the measurements behind them in docs/performance.md.

A rule holds for rows of a class (`plan.order.row_class`) up to a count. Rows whose elements lie in
vectors are best loaded straight into registers, except where a row is shorter than what a warp
loads at once; other rows go through shared memory. Where an element is written after a reduction
(`writes`) it is kept in registers, and the more blocks are asked for the fewer of these a thread
gets.

Measured for float32 on one NVIDIA H200 with 2**28 elements: softmax and layernorm, of which the one
counts that is further below what a copy would take, and sums of squares.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """How a block works on rows.

    Attributes
    ----------
    upto : int
        The greatest count of the class that this is for.
    staged : bool
        Whether rows go through shared memory.
    vectors : int
        Vectors of a lane at most, where lanes of a warp share a row.
    tile : int
        KiB of inputs of a block that takes short rows.
    rounds : int
        How often a block takes a row, or a row for each warp.
    abreast : int
        Leaves that a block walks at once; at least, of those of a cluster.
    cluster : bool
        Whether the blocks of a cluster share a row.
    blocks : int
        Blocks that a multiprocessor should hold, for which the compiler leaves registers.
    block : int
        Threads of a block where a row belongs to one warp or less.
    """

    upto: int
    staged: bool = False
    vectors: int = 1
    tile: int = 16
    rounds: int = 1
    abreast: int = 4
    cluster: bool = False
    blocks: int = 0
    block: int = 128


_ALL = 1 << 30

RULES: dict[tuple[str, bool, bool], tuple[Rule, ...]] = {
    # class, aligned, writes
    ("block", False, False): (Rule(_ALL, staged=True, rounds=3),),
    ("block", False, True): (
        Rule(2, staged=True, rounds=3),
        Rule(_ALL, staged=True),
    ),
    ("block", True, False): (
        Rule(4, blocks=4),
        Rule(_ALL, staged=True, rounds=2),
    ),
    ("block", True, True): (
        Rule(4, blocks=4),
        Rule(_ALL),
    ),
    ("lanes", False, False): (
        Rule(10, staged=True, vectors=10, tile=8),
        Rule(_ALL, staged=True, vectors=5, tile=8, block=64),
    ),
    ("lanes", False, True): (
        Rule(1, staged=True, vectors=10, tile=32),
        Rule(3, staged=True, vectors=5, tile=48, block=256),
        Rule(_ALL, staged=True, vectors=10, tile=32),
    ),
    ("lanes", True, False): (
        Rule(8, staged=True, vectors=10, tile=8),
        Rule(32, staged=True, vectors=10, tile=32, block=256),
        Rule(_ALL, staged=True, vectors=5),
    ),
    ("lanes", True, True): (
        Rule(8, staged=True, vectors=10, tile=8),
        Rule(25, vectors=4, block=64),
        Rule(32, vectors=2),
        Rule(_ALL, vectors=4),
    ),
    ("leaves", False, True): (Rule(_ALL, staged=True, cluster=True, abreast=1, blocks=3),),
    ("leaves", True, True): (
        Rule(2, blocks=2),
        Rule(_ALL),
    ),
    ("walk", False, True): (
        Rule(8, staged=True, cluster=True, abreast=1, blocks=3),
        Rule(_ALL, staged=True, cluster=True, abreast=2, blocks=2),
    ),
    ("walk", True, True): (Rule(_ALL, cluster=True, abreast=2, blocks=2),),
    ("warp", False, False): (Rule(_ALL, staged=True, blocks=8),),
    ("warp", False, True): (Rule(_ALL, staged=True),),
    ("warp", True, False): (Rule(_ALL, staged=True, blocks=4, block=256),),
    ("warp", True, True): (Rule(_ALL, blocks=16, block=64),),
}

APART: dict[tuple[str, bool, bool], tuple[Rule, ...]] = {
    **RULES,
    ("leaves", False, True): (Rule(_ALL),),
    ("walk", False, True): (Rule(_ALL, staged=True, abreast=3),),
    ("walk", True, True): (Rule(_ALL),),
}
"""The rules where blocks cannot form clusters."""


def rule(kind: str, count: int, *, aligned: bool, writes: bool, clusters: bool = True) -> Rule:
    """Return the rule for rows of a class.

    Examples
    --------
    >>> rule("block", 4, aligned=True, writes=True).staged
    False
    """
    table = RULES if clusters else APART
    rules = table.get((kind, aligned, writes)) or table[kind, aligned, True]
    return next(one for one in rules if count <= one.upto)
