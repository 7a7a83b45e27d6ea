"""Which arrays may lie in memory between passes: what somebody asked for, and small ones.

Small are single values and those of rows, segments and bins, and what has no more elements than
such values that it is made of. A scan, a sort and a scattered write leave as many elements as they
take. Where these are not the result, nor read whole by a terminal whose passes say so (the keys of
a sort), nor asked for (`itf.buffered`), there would be an array that nobody knows of.
"""

from __future__ import annotations

from collections.abc import Iterable

from itfuse.errors import NeedsBuffer
from itfuse.expr import Node
from itfuse.ops import HISTOGRAM, SCAN, SCATTER, SEGMENTS, SORT

_FULL = (SCAN, SORT, SCATTER)


def full_terminals(order: Iterable[Node]) -> set[Node]:
    """Return the terminals whose results are of the order of what they read.

    Parameters
    ----------
    order : iterable of Node
        Operands before users.
    """
    small: set[Node] = set()
    full = set()
    for node in order:
        values = node.op.reduces or node.op in (HISTOGRAM, SEGMENTS) or node.size <= 1
        if values or any(src in small and src.size >= node.size for src in node.srcs):
            small.add(node)
        elif node.op in _FULL:
            full.add(node)
    return full


def needs_buffer(what: str, count: int, reader: str) -> NeedsBuffer:
    """Return the error that names the array, who would read it, and how to ask for it."""
    return NeedsBuffer(
        f"{reader} needs {what} in memory: {count:,} bytes between passes that nobody asked for. "
        "Ask for them: itf.buffered(x) of that expression writes it in a pass of the plan, "
        "itf.materialize(x) or x.compute() at once"
    )
