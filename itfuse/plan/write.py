"""Nodes -> programs and inputs of one stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from itfuse.expr import Memory, Node, Shape
from itfuse.ops import CONSTANT, GATHER, INPUT, IOTA, POSITION, RESHAPE, SCALAR, STRIDED
from itfuse.plan.index import Form, contiguous_strides, inner_step, merge_axes, turned_axis
from itfuse.plan.late import Places
from itfuse.plan.stages import Input, Instr, Program

SHARED_SCALARS = 64
"""From this many runtime scalars on, equal ones share a slot, so that the state block stays small.
Below it every occurrence has its own, so that `x * a + b` is one structure also where a == b."""

Spot = tuple[int, int]  # (stage, output)


class Inputs:
    """The inputs of one stage, deduplicated, with their index maps over the domain.

    Parameters
    ----------
    domain : tuple of int
        Sizes of its axes.
    axes : tuple of int, optional
        For rows: the reduced axes; the index maps are over the other axes, then these.
    """

    def __init__(self, domain: Shape, axes: tuple[int, ...] | None = None) -> None:
        self.domain = domain
        self.axes = axes
        self.rows: list[tuple[str, str, Node | Spot]] = []  # kind, dtype, source
        self.maps: list[tuple[int, ...] | None] = []
        self.few: list[bool] = []
        self.offsets: list[int] = []
        self.counts: list[int] = []  # elements that a gather reads at most, else 0
        self.slot: dict[object, int] = {}

    def array(self, node: Node, places: Places | None) -> int:
        """Return the slot of a leaf; `places` is how its axes follow the domain's."""
        # But not in 0-d: an epilogue, which has no index, reads such ones too.
        few = node.size <= 1 and node.shape == self.domain and node.shape != ()
        if isinstance(node.arg, Form):
            steps = self._steps(node.shape, node.arg.steps, places)
            offset, name = node.arg.offset, node.dtype.name
            if node.op is IOTA:
                return self._add("iota", node, name, steps, False, offset)
            return self._add("array", node.srcs[0], name, steps, few, offset)
        assert isinstance(node.arg, Memory)
        steps = self._steps(node.shape, node.arg.strides, places)
        return self._add("array", node, node.dtype.name, steps, few)

    def gathered(self, node: Node, spot: Spot | None) -> int:
        """Return the slot of what a gather reads: an array, or what an earlier pass left."""
        source = node.srcs[0] if spot is None else spot
        self._append("gathered", node.dtype.name, source, None, False)
        self.counts[-1] = min(math.prod(node.shape), node.srcs[0].size)
        return len(self.rows) - 1

    def left(self, node: Node, spot: Spot, places: Places | None) -> int:
        """Return the slot of a view (`strided`) of what an earlier pass leaves at `spot`."""
        steps = self._steps(node.shape, node.arg.steps, places)
        return self._add("carried", spot, node.dtype.name, steps, False, node.arg.offset)

    def carried(self, node: Node, spot: Spot, places: Places | None) -> int:
        """Return the slot of a value that an earlier pass leaves at `spot`."""
        strides = contiguous_strides(node.shape, node.dtype.itemsize)
        steps = self._steps(node.shape, strides, places)
        return self._add("carried", spot, node.dtype.name, steps, False)

    def scalar(self, node: Node) -> int:
        """Return the slot of a runtime scalar."""
        if node in self.slot and sum(row[0] == "scalar" for row in self.rows) >= SHARED_SCALARS:
            return self.slot[node]
        self.slot[node] = len(self.rows)
        self._append("scalar", node.dtype.name, node, None, False)
        return self.slot[node]

    def _steps(
        self, shape: Shape, strides: tuple[int, ...], places: Places | None
    ) -> tuple[int, ...]:
        steps = [0] * len(self.domain)
        axis_of = dict(places) if places is not None else None
        for axis, (size, step) in enumerate(zip(shape, strides, strict=True)):
            if size != 1:
                at = len(shape) - axis
                steps[len(steps) - at if axis_of is None else axis_of[at]] = step
        return tuple(steps)

    def _add(  # noqa: PLR0917  # what makes an input
        self,
        kind: str,
        source: Node | Spot,
        dtype: str,
        steps: tuple[int, ...],
        few: bool,
        offset: int = 0,
    ) -> int:
        key = (source, steps, offset)
        if key not in self.slot:
            self.slot[key] = len(self.rows)
            self._append(kind, dtype, source, steps, few)
            self.offsets[-1] = offset
        return self.slot[key]

    def _append(
        self, kind: str, dtype: str, source: Node | Spot, steps: Shape | None, few: bool
    ) -> None:
        self.rows.append((kind, dtype, source))
        self.maps.append(steps)
        self.few.append(few)
        self.offsets.append(0)
        self.counts.append(0)

    def freeze(
        self, written: Sequence[Shape] = ()
    ) -> tuple[tuple[Input, ...], Shape, int, list[Shape]]:
        """Return the inputs, the merged domain, how many of its axes are kept, and outputs' steps.

        `written` holds for each output its byte strides over the domain. If there are any, and no
        axes are reduced, they go in the order of the first: a transform may walk its domain as it
        likes.
        """
        moving = [steps for steps in self.maps if steps is not None]
        count = len(moving)
        kept = 0
        domain = self.domain
        if self.axes is not None:
            moving += written
        elif written:
            order = sorted(range(len(domain)), key=lambda axis: -abs(written[0][axis]))
            domain = tuple(domain[axis] for axis in order)
            moving = [tuple(one[axis] for axis in order) for one in (*moving, *written)]
        if self.axes is None:
            dims, merged = merge_axes(domain, moving)
        else:
            dims, merged = (), [() for _ in moving]
            for part in ([a for a in range(len(self.domain)) if a not in self.axes], self.axes):
                kept = len(dims)
                sizes = tuple(self.domain[a] for a in part)
                # Nothing divides by 1: an axis of it stays only where there is no other.
                if written and math.prod(sizes) == 1 and (dims or part is not self.axes):
                    continue
                more, steps = merge_axes(sizes, [tuple(one[a] for a in part) for one in moving])
                dims += more
                merged = [a + b for a, b in zip(merged, steps, strict=True)]
        of = iter(merged[:count])
        made = tuple(
            self._input(at, dims, None if steps is None else next(of))
            for at, steps in enumerate(self.maps)
        )
        return made, dims, kept, merged[count:]

    def _input(self, at: int, dims: Shape, strides: Shape | None) -> Input:
        kind, dtype, source = self.rows[at]
        if kind == "gathered":
            kind = "carried" if isinstance(source, tuple) else "array"
            return Input(kind, dtype, "gathered", source, (), self.counts[at])
        if kind == "iota":
            assert strides is not None
            moves = tuple(map(bool, strides))
            return Input(
                kind, dtype, "index", source, strides, 0, moves=moves, offset=self.offsets[at]
            )
        made = _input(self.rows[at], dims, strides, self.few[at])
        return replace(made, offset=self.offsets[at]) if self.offsets[at] else made


def _input(
    row: tuple[str, str, Node | Spot], dims: Shape, strides: Shape | None, few: bool
) -> Input:
    kind, dtype, source = row
    if strides is None:
        return Input(kind, dtype, "fixed", source)
    itemsize = np.dtype(dtype).itemsize
    elements = 1
    for size, step in zip(dims, strides, strict=True):
        elements *= size if step else min(size, 1)
    # One element, or none, lies where its index says, whatever the strides are.
    whole = contiguous_strides(dims, itemsize)
    if few or (any(strides) and all(map(_follows, dims, strides, whole))):
        return Input(kind, dtype, "linear", source, whole, elements)
    if not any(strides):
        return Input(kind, dtype, "fixed", source, strides, elements)
    inner = inner_step(strides, itemsize)
    turned = turned_axis(dims, strides, itemsize) if inner is None else None
    moves = tuple(map(bool, strides))
    return Input(kind, dtype, "strided", source, strides, elements, inner, turned, moves)


def _follows(size: int, step: int, own: int) -> bool:
    return step == own or size == 1


def follows(dims: Shape, strides: Shape, itemsize: int) -> bool:
    """Return whether byte strides are those of row-major order, wherever they matter."""
    return all(map(_follows, dims, strides, contiguous_strides(dims, itemsize)))


def by_columns(inputs: tuple[Input, ...], kept: int) -> bool:
    """Whether the largest input lies along the kept axes in memory, and not along the rows."""
    strided = [i for i in inputs if i.strides and i.layout != "fixed"]
    largest = max(strided, key=lambda i: i.bytes, default=None)
    if largest is None or largest.layout == "linear":
        return False
    across, along = abs(largest.strides[kept - 1]), abs(largest.strides[-1])
    return 0 < across < along


def from_column_to_column(i: Input, kept: int) -> Input:
    """Return an input of `columns`, whose vectors lie along the last kept axis."""
    if i.layout != "strided":
        return i
    inner = inner_step(i.strides[:kept], np.dtype(i.dtype).itemsize)
    return replace(i, inner=inner, turned=None)


class Writer:
    """Writes one Program: nodes become instructions, each once.

    Parameters
    ----------
    inputs : Inputs
        Of the stage.
    stop : dict of Node to (int, int)
        Nodes that an earlier pass leaves behind, and where.
    """

    def __init__(self, inputs: Inputs, stop: dict[Node, Spot]) -> None:
        self.inputs = inputs
        self.stop = stop
        self.instrs: list[Instr] = []
        self.at: dict[tuple[Node, Places | None], int] = {}
        self.offers: dict[Node, Instr] = {}  # what the stage has already, whatever the places
        self.given: dict[Node, int] = {}

    def emit(self, instr: Instr) -> int:
        """Append an instruction and return its position."""
        self.instrs.append(instr)
        return len(self.instrs) - 1

    def write(self, root: Node, places: Places | None = None) -> int:
        """Write what `root` needs and return the position of its value.

        `places` is how the axes of `root`, counted from the right, follow the domain's; None
        where they are the same.
        """
        for node in self._order(root, places):
            key = (node, places)
            if key in self.at or node in self.given:
                continue
            dtype = node.dtype.name
            if node in self.offers:
                self.given[node] = self.cast(self.emit(self.offers[node]), dtype)
            elif node in self.stop:
                slot = self.inputs.carried(node, self.stop[node], places)
                self.at[key] = self.emit(Instr("load", (), dtype, slot))
            elif node.op is RESHAPE:
                self.at[key] = self._value(node.srcs[0], places)
            elif node.op is STRIDED and node.srcs[0] in self.stop:
                slot = self.inputs.left(node, self.stop[node.srcs[0]], places)
                self.at[key] = self.emit(Instr("load", (), dtype, slot))
            elif node.op is GATHER:
                slot = self.inputs.gathered(node, self.stop.get(node.srcs[0]))
                at = self._value(node.srcs[1], places)
                self.at[key] = self.emit(Instr("gather", (at,), dtype, slot))
            elif node.op in (INPUT, STRIDED, IOTA):
                slot = self.inputs.array(node, places)
                self.at[key] = self.emit(Instr("load", (), dtype, slot))
            elif node.op is CONSTANT:
                self.at[key] = self.emit(Instr("constant", (), dtype, node.arg))
            elif node.op is POSITION:
                self.at[key] = self.emit(Instr("position", (), dtype))
            elif node.op is not SCALAR:
                args = tuple(self._value(src, places) for src in node.srcs)
                self.at[key] = self.emit(Instr(node.op.name, args, dtype))
        return self._value(root, places)

    def cast(self, at: int, dtype: str) -> int:
        """Return the position of the value at `at` as `dtype`."""
        if self.instrs[at].dtype == dtype:
            return at
        return self.emit(Instr("astype", (at,), dtype))

    def program(self, results: list[int]) -> Program:
        """Return the program that leaves with these values."""
        return Program(tuple(self.instrs), tuple(results))

    def _value(self, node: Node, places: Places | None) -> int:
        if node in self.given:
            return self.given[node]
        if node.op is SCALAR:  # one slot an occurrence
            slot = self.inputs.scalar(node)
            return self.emit(Instr("scalar", (), node.dtype.name, slot))
        return self.at[node, places]

    def _order(self, root: Node, places: Places | None) -> list[Node]:
        order: list[Node] = []
        seen: set[Node] = set()
        stack = [(root, False)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                if (node, places) in self.at or node in self.given:
                    continue
                stack.append((node, True))
                if node not in self.stop and node not in self.offers:
                    stack.extend((src, False) for src in _operands(node) if src not in seen)
        return order


def _operands(node: Node) -> tuple[Node, ...]:
    """Return what a program computes before `node`, last first: not the array it reads."""
    if node.op is STRIDED:
        return ()
    return node.srcs[1:] if node.op is GATHER else node.srcs[::-1]
