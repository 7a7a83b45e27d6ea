"""The pass of a scan: the fused map before it, the scan, and what is computed of its values.

A scan's place in the plan is taken as soon as its operands are known. What it writes is decided
later: itself, if somebody reads it as an array, and every expression that only needs its value at
an element's own place (`x.cumsum() / n`), which the same pass computes in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from itfuse.dtypes import accumulator
from itfuse.expr import Node, Shape
from itfuse.ops import INPUT, ROWS
from itfuse.plan.index import contiguous_strides
from itfuse.plan.stages import Combine, Instr, Output, Stage
from itfuse.plan.write import Inputs, Spot, Writer, follows
from itfuse.rows.op import ELEMENTWISE, PLACE, SELECTION, TERMINAL
from itfuse.wording import toposort


@dataclass
class ScanPass:
    """A scan whose outputs are not all known yet.

    Attributes
    ----------
    core : Node
        The scan of operands that hold no terminal and no reduction.
    number : int
        Its place among the passes.
    leaves : dict of Node to (int, Node)
        The leaves that stand for its values: which field, and the scan that each is.
    outputs : list of (Node, Node, tuple or None)
        What it writes: what is computed of the leaves, what the plan shows, and byte strides if
        they are not those of row-major order.
    """

    core: Node
    number: int
    leaves: dict[Node, tuple[int, Node]] = field(default_factory=dict)
    outputs: list[tuple[Node, Node, Shape | None]] = field(default_factory=list)

    def write(self, value: Node, shown: Node, layout: Shape | None = None) -> Spot:
        """Have another output written, and return where it will be."""
        self.outputs.append((value, shown, layout))
        return self.number, len(self.outputs) - 1

    def computes(self, root: Node, number_of: dict[Node, Spot]) -> bool:
        """Whether this pass can compute `root`, in which views are pushed down to the leaves."""
        if root.shape != self.core.shape:
            return False
        over: set[Node] = set()  # nodes over a scan's value
        for node in toposort((root,)):
            if node in self.leaves:
                over.add(node)
            elif node.op is INPUT:
                # What an earlier pass leaves is there; what a later one does, is not.
                if node in number_of and number_of[node][0] >= self.number:
                    return False
            elif node.op.reduces or node.op.kind in (TERMINAL, SELECTION):
                return False
            elif any(src in over for src in node.srcs):
                if node.op.kind == PLACE:  # a value of another place
                    return False
                over.add(node)
        return root in over

    def stage(self) -> Stage:
        """Write the pass."""
        core, how = self.core, self.core.arg
        axis = how.options[-1]
        name = how.options[0]
        inputs = Inputs(core.shape, (axis,))
        writer = Writer(inputs, {})
        element = writer.program([
            writer.cast(writer.write(src), accumulator(src.dtype.name)) for src in core.srcs
        ])  # fmt: skip
        combine = (Combine(ROWS[name].combine, element.result_dtypes[0]),)
        writer = Writer(inputs, {})
        for leaf, (side, _) in self.leaves.items():
            dtype = element.result_dtypes[side]
            writer.offers[leaf] = Instr("combined", (), dtype, side)
        finish = writer.program([writer.write(value) for value, *_ in self.outputs])
        wanted = [
            contiguous_strides(core.shape, value.dtype.itemsize) if layout is None else layout
            for value, _, layout in self.outputs
        ]
        frozen, dims, kept, steps = inputs.freeze(wanted)
        written = tuple(
            Output(
                value.dtype.name, shown.shape, shown,
                () if follows(dims, strides, value.dtype.itemsize) else strides,
            )
            for (value, shown, _), strides in zip(self.outputs, steps, strict=True)
        )  # fmt: skip
        return Stage(
            "scan", element, combine, finish, frozen, written, core.shape, dims,
            axes=(axis,), kept=kept, how=replace(how, side=0, options=how.options[:-1]),
        )  # fmt: skip


def late_values(tops: Sequence[Node]) -> list[Node]:
    """Return what is known after reductions under `tops`, and is used element by element.

    These are the outermost reductions, each with what is computed of its results alone (a mean),
    so that one value goes to the scan. What a terminal reads is not looked at.
    """
    late: set[Node] = set()
    order = toposort(tops)
    for node in order:
        if node.op.reduces or _of_late(node, late):
            late.add(node)
    found: set[Node] = set()
    seen = set(tops)
    stack = list(tops)
    while stack:
        node = stack.pop()
        if node in late:
            found.add(node)
        elif node.op.kind not in (TERMINAL, SELECTION):
            fresh = [src for src in node.srcs if src not in seen]
            seen.update(fresh)
            stack += fresh
    return [node for node in order if node in found]


def _of_late(node: Node, late: set[Node]) -> bool:
    """Whether a node is computed of late values of its own shape and of single numbers."""
    if node.op.kind != ELEMENTWISE or not any(src in late for src in node.srcs):
        return False
    return all(src.size == 1 or (src in late and src.shape == node.shape) for src in node.srcs)
