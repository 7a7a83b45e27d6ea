"""When each node of an expression can be computed: before, inside or after which reduction.

A *row group* is a domain with the axes that are reduced: all elements that are reduced together
are a row. A *row value* is known once for each row: a reduction, or an expression of such. Row
values are *late*: their pass leaves them behind, or hands them on inside. An *element value* is
an expression over the domain that reads row values of the same rows: the same pass can compute it
while the row is on chip. Anything else that reads a late value waits for a later pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from itfuse.expr import Memory, Node, Shape
from itfuse.ops import GATHER, INPUT, RESHAPE, STRIDED
from itfuse.plan.index import Form
from itfuse.rows.op import SELECTION, TERMINAL

ON_CHIP = 1 << 18
"""Elements of a row that one pass may walk several times: in registers, beyond 2**15 in those of a
cluster of blocks or, where there are none, out of the second-level cache. Longer rows do not stay
on chip, so that a second walk reads memory again: another pass, whose bytes show in the plan, costs
the same."""


@dataclass(frozen=True)
class Group:
    """Rows: the elements of `domain` that differ only along `axes`."""

    domain: Shape
    axes: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """The other axes."""
        return tuple(a for a in range(len(self.domain)) if a not in self.axes)

    @property
    def length(self) -> int:
        """Elements of a row."""
        return math.prod(self.domain[a] for a in self.axes)

    @property
    def whole(self) -> bool:
        """Whether there is one row."""
        return all(self.domain[a] == 1 for a in self.kept)

    @property
    def inner(self) -> bool:
        """Whether rows are made of the last axes."""
        long = [a for a, size in enumerate(self.domain) if size != 1]
        return all(a in self.axes for a in long[len(long) - sum(a in self.axes for a in long) :])

    @staticmethod
    def of(node: Node) -> Group:
        """Return the rows of a reduction."""
        domain = node.srcs[0].shape
        group = Group(domain, node.arg)
        return Group(domain, tuple(range(len(domain)))) if group.whole else group


Places = tuple[tuple[int, int], ...]
"""Which axis of the domain each axis of a row value follows: (number from the right, axis)."""


@dataclass(frozen=True)
class When:
    """When a node can be computed.

    Attributes
    ----------
    time : int
        In or after how many passes in a row.
    group : Group or None
        The rows that it belongs to; None for what needs no reduction of that time.
    row : bool
        Whether it is a row value.
    phase : int
        Of a row value, the reduction in turn within the pass after which it is known; of an
        element value, the first that can use it.
    places : tuple
        Of a row value: how its axes follow the domain's.
    """

    time: int
    group: Group | None = None
    row: bool = False
    phase: int = 0
    places: Places = ()


def _long(shape: Shape) -> dict[int, int]:
    """Return the sizes of the axes that are not 1, by their number from the right."""
    return {len(shape) - a: size for a, size in enumerate(shape) if size != 1}


def _places(node: Node, group: Group) -> Places:
    rank, kept = len(group.domain), group.kept
    axes = range(rank) if len(node.shape) == rank else kept
    return tuple(
        (len(axes) - at, a) for at, a in enumerate(axes) if a in kept and group.domain[a] != 1
    )


def timetable(order: Iterable[Node]) -> tuple[dict[Node, When], dict[Node, str]]:
    """Return when each node can be computed, and why some wait for a pass of their own.

    Parameters
    ----------
    order : iterable of Node
        Operands before users.
    """
    when: dict[Node, When] = {}
    why: dict[Node, str] = {}
    across: set[Node] = set()  # reads an array whose elements lie apart along the last axis
    for node in order:
        if node.op in (INPUT, STRIDED) and lies_across(node):
            across.add(node)
        if any(src in across for src in node.srcs) and not node.op.reduces:
            across.add(node)
        time = max((when[src].time for src in node.srcs), default=0)
        now = [
            when[src] for src in node.srcs if when[src].time == time and when[src].group is not None
        ]
        if node.op is RESHAPE:  # of a root: it only names the result's shape
            when[node] = when[node.srcs[0]]
        elif node.op in (STRIDED, GATHER) and when[node.srcs[0]].group is not None:
            when[node] = When(time + 1)  # reads what a pass has left
        elif node.op.kind in (SELECTION, TERMINAL):  # a pass of its own over what passes left
            when[node] = When(time + 1 if now else time)
        elif node.op.reduces:
            when[node] = _reduction(node, time, now)
        elif now:
            when[node] = _mixed(node, time, now, node in across, why)
        else:
            when[node] = When(time)
    return when, why


def lies_across(node: Node) -> bool:
    """Whether a leaf's elements lie apart along the last axis, and closer along another."""
    if isinstance(node.arg, Memory):
        strides = node.arg.strides
    elif isinstance(node.arg, Form):
        strides = node.arg.steps
    else:
        return False
    steps = [abs(t) for size, t in zip(node.shape, strides, strict=True) if size > 1 and t]
    return len(steps) > 1 and steps[-1] > min(steps[:-1])


def _reduction(node: Node, time: int, now: list[When]) -> When:
    group = Group.of(node)
    places = _places(node, group)
    if not now:
        return When(time, group, True, 0, places)
    if all(one.group == group and not one.row for one in now):
        return When(time, group, True, max(one.phase for one in now), places)
    return When(time + 1, group, True, 0, places)


def _mixed(node: Node, time: int, now: list[When], across: bool, why: dict[Node, str]) -> When:
    groups = {one.group for one in now if one.group is not None and not one.group.whole}
    later = When(time + 1)
    if not groups:  # values of whole arrays: an epilogue, or something that waits for them
        return When(time, now[0].group, True) if not _long(node.shape) and node.size == 1 else later
    if len(groups) > 1:
        why[node] = "it reads results along different axes or over different shapes"
        return later
    group = groups.pop()
    assert group is not None
    mine = [one for one in now if one.group == group]
    own = _long(node.shape)
    rows = [one for one in mine if one.row]
    if len(rows) == len(mine) and len({one.places for one in rows}) == 1:
        places = rows[0].places
        if own == {at: group.domain[a] for at, a in places}:
            return When(time, group, True, max(one.phase for one in rows), places)
    rank = len(group.domain)
    if own != _long(group.domain):
        why[node] = f"its shape {node.shape} is neither that of the rows nor of the results"
    elif any(a != rank - at for one in rows for at, a in one.places):
        why[node] = "a result is used along another axis than the one it belongs to"
    elif not group.inner:
        why[node] = f"the reduced axes {group.axes} are not the last ones"
    elif group.length > ON_CHIP:
        why[node] = f"rows of {group.length} elements do not stay on chip ({ON_CHIP} do)"
    elif across:
        why[node] = "an input does not lie along the rows in memory"
    else:
        phase = max(one.phase + 1 if one.row else one.phase for one in mine)
        return When(time, group, False, phase, ())
    return later
