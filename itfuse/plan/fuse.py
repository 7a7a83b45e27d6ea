"""Expressions -> passes. Every refusal to fuse is a Note.

A *late* value is known only after a reduction: the reduction itself and every 0-d expression of
it. Late values are computed in the finish of the reduction's own pass (the epilogue). An array
expression that reads a late value must wait for it: it runs in a later pass, which loads the one
element that the earlier pass left on the device.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from itfuse.expr import Memory, Node, Shape, leaf_names, text, toposort
from itfuse.ops import GATHER, INPUT, IOTA, REDUCTION, RESHAPE, SCALAR, STRIDED
from itfuse.plan.index import Form, aligned_strides, contiguous_strides, grouped, merge_axes
from itfuse.plan.stages import Combine, Input, Instr, Note, Output, Program, Stage

_LEAVES = (INPUT, STRIDED, IOTA)

SHARED_SCALARS = 64
"""From this many runtime scalars on, equal ones share a slot, so that the state block stays small.
Below it every occurrence has its own, so that `x * a + b` is one structure also where a == b."""


@dataclass
class _Pass:
    """A pass being collected: nodes to reduce, or root nodes to write."""

    primitive: str
    time: int
    shape: Shape
    members: list[Node] = field(default_factory=list)
    leaves: set[Node] = field(default_factory=set)


Layouts = tuple[tuple[int, ...] | None, ...]


def fuse(
    roots: tuple[Node, ...], layouts: Layouts = ()
) -> tuple[list[Stage], list[tuple[int, int]], list[Note]]:
    """Return (stages, results, notes) for `roots`.

    `layouts` holds for each root the byte strides to write it in, or None for row-major order.
    """
    order = toposort(roots)
    late, ready = _late_and_ready(order)
    notes: list[Note] = []
    passes = _collect(order, roots, late, ready, notes)
    home = _homes(order, late, passes)
    outputs = _outputs(order, roots, late, home, passes)
    names = leaf_names(order)

    place: dict[Node, tuple[int, int]] = {}
    for s, nodes in enumerate(outputs):
        for o, node in enumerate(nodes):
            place.setdefault(node, (s, o))
    results = _results(roots, passes, outputs, late, place)
    layout = dict(zip(results, layouts, strict=True)) if layouts else {}
    stages = []
    for s, one in enumerate(passes):
        earlier = {node: spot for node, spot in place.items() if node in late and home[node] < s}
        wanted = [layout.get((s, o)) for o in range(len(outputs[s]))]
        stages.append(_build(one, outputs[s], earlier, wanted))
    for s, stage in enumerate(stages):
        for i in stage.inputs:
            if i.kind == "carried" and isinstance(i.source, tuple):
                value = outputs[i.source[0]][i.source[1]]
                notes.append(
                    Note(
                        "needs-result",
                        f"pass {s + 1} waits for pass "
                        f"{i.source[0] + 1}: every element needs {text(value, names)}",
                    )
                )
    return stages, results, _unique(notes)


def _unique(notes: list[Note]) -> list[Note]:
    return list(dict.fromkeys(notes))


def _late_and_ready(order: list[Node]) -> tuple[set[Node], dict[Node, int]]:
    """Find late nodes, and for each node how many reductions in a row must end before it."""
    late: set[Node] = set()
    ready: dict[Node, int] = {}
    for node in order:
        ready[node] = max((ready[src] for src in node.srcs), default=0)
        if node.op.kind == REDUCTION:
            ready[node] += 1
            late.add(node)
        elif any(src in late for src in node.srcs) and (node.shape == () or node.op is RESHAPE):
            late.add(node)
    return late, ready


def _domain(root: Node) -> Shape:
    """Return the shape over which a root is computed; a `reshape` there names the result's."""
    return root.srcs[0].shape if root.op is RESHAPE else root.shape


def _leaves_until_late(root: Node, late: set[Node]) -> set[Node]:
    """Array leaves of more than one element that the pass of `root` reads."""
    found: set[Node] = set()
    seen = {root}
    stack = [root]
    while stack:
        node = stack.pop()
        if node.op is INPUT and node.size > 1:
            found.add(node)
        for src in node.srcs:
            if src not in seen and src not in late:
                seen.add(src)
                stack.append(src)
    return found


def _collect(
    order: list[Node],
    roots: tuple[Node, ...],
    late: set[Node],
    ready: dict[Node, int],
    notes: list[Note],
) -> list[_Pass]:
    wanted: list[tuple[str, int, Shape, Node, Node]] = []  # primitive, time, domain, member, walked
    for node in order:
        if node.op.kind == REDUCTION:
            src = node.srcs[0]
            wanted.append(("reduce", ready[src], src.shape, node, src))
    for root in roots:
        if root not in late:
            wanted.append(("transform", ready[root], _domain(root), root, root))

    passes: list[_Pass] = []
    for primitive, time, shape, member, walked in wanted:
        leaves = _leaves_until_late(walked, late) if walked not in late else set()
        same = [p for p in passes if (p.primitive, p.time, p.shape) == (primitive, time, shape)]
        joined = [p for p in same if p.leaves & leaves or not (p.leaves or leaves)]
        if joined:
            first, *others = joined
            for other in others:  # this member connects passes that had nothing in common
                first.members += other.members
                first.leaves |= other.leaves
                passes.remove(other)
        else:
            first = _Pass(primitive, time, shape)
            passes.append(first)
        first.members.append(member)
        first.leaves |= leaves
    # A stable sort: passes of one time stay in the order in which the user asked for them.
    passes.sort(key=lambda p: p.time)
    _explain_separate(passes, notes)
    return passes


def _explain_separate(passes: list[_Pass], notes: list[Note]) -> None:
    for b, second in enumerate(passes):
        for a, first in enumerate(passes[:b]):
            if first.time != second.time:
                continue
            pair = f"passes {a + 1} and {b + 1} stay separate: "
            if not first.leaves & second.leaves:
                if first.shape == second.shape and first.primitive == second.primitive:
                    notes.append(
                        Note(
                            "no-common-input",
                            pair + "they share no input, so that "
                            "one pass would move the same bytes",
                        )
                    )
            elif first.shape != second.shape:
                notes.append(
                    Note(
                        "different-domain",
                        pair + f"one runs over {first.shape}, the other over {second.shape}",
                    )
                )
            else:
                notes.append(
                    Note(
                        "different-primitive",
                        pair + f"a {first.primitive} and a "
                        f"{second.primitive} are different device algorithms",
                    )
                )


def _homes(order: list[Node], late: set[Node], passes: list[_Pass]) -> dict[Node, int]:
    """Map each late node to the pass whose finish computes it."""
    home = {
        node: s for s, one in enumerate(passes) if one.primitive == "reduce" for node in one.members
    }
    for node in order:
        if node in late and node not in home:
            home[node] = max(home[src] for src in node.srcs if src in late)
    return home


def _outputs(
    order: list[Node],
    roots: tuple[Node, ...],
    late: set[Node],
    home: dict[Node, int],
    passes: list[_Pass],
) -> list[list[Node]]:
    """For each pass the nodes it writes: members of a transform, needed late nodes of a reduce."""
    needed: set[Node] = {root for root in roots if root in late}
    for node in order:
        for src in node.srcs:
            if src in late:
                inside = node in late and node.op.kind != REDUCTION and home[node] == home[src]
                if not inside:
                    needed.add(src)
    outputs: list[list[Node]] = [
        list(one.members) if one.primitive == "transform" else [] for one in passes
    ]
    asked: defaultdict[Node, int] = defaultdict(int)
    for root in roots:
        asked[root] += 1
    for node in order:
        if node in needed:
            # An expression asked for twice is two arrays, as in NumPy.
            outputs[home[node]] += [node] * max(1, asked[node])
    return outputs


def _results(
    roots: tuple[Node, ...],
    passes: list[_Pass],
    outputs: list[list[Node]],
    late: set[Node],
    place: dict[Node, tuple[int, int]],
) -> list[tuple[int, int]]:
    taken: set[tuple[int, int]] = set()
    results = []
    for root in roots:
        primitive = "reduce" if root in late else "transform"
        spot = next(
            (s, o)
            for s, nodes in enumerate(outputs)
            if passes[s].primitive == primitive
            for o, node in enumerate(nodes)
            if node is root and (s, o) not in taken
        )
        taken.add(spot)
        results.append(spot)
    return results


class _Inputs:
    """The inputs of one stage, deduplicated, with their index maps over the domain."""

    def __init__(self, domain: Shape) -> None:
        self.domain = domain
        self.rows: list[tuple[str, str, object]] = []  # kind, dtype, source
        self.slot: dict[object, int] = {}

    def array(self, node: Node) -> int:
        return self._add("iota" if node.op is IOTA else "array", node, node.dtype.name)

    def carried(self, spot: tuple[int, int], dtype: str) -> int:
        return self._add("carried", spot, dtype)

    def scalar(self, node: Node) -> int:
        shared = len(self.rows) >= SHARED_SCALARS and node in self.slot
        return self.slot[node] if shared else self._add("scalar", node, node.dtype.name, True)

    def _add(self, kind: str, source: object, dtype: str, again: bool = False) -> int:
        if source not in self.slot or again:
            self.slot[source] = len(self.rows)
            self.rows.append((kind, dtype, source))
        return self.slot[source]

    def freeze(self, written: list[Shape]) -> tuple[tuple[Input, ...], Shape, list[Shape]]:
        """Return the inputs, the merged axes, and the steps of the outputs along them.

        `written` holds for each output its byte strides over the domain. If there are any, the
        axes go in the order of the first: a transform may walk its domain as it likes.
        """
        arrays = [source for kind, _, source in self.rows if kind in ("array", "iota")]
        maps = []
        for node in arrays:
            assert isinstance(node, Node)
            maps.append(aligned_strides(node.shape, _steps(node), self.domain))
        maps += written
        domain = self.domain
        if written:
            order = sorted(range(len(domain)), key=lambda axis: -abs(written[0][axis]))
            domain = tuple(domain[axis] for axis in order)
            maps = [tuple(one[axis] for axis in order) for one in maps]
        dims, merged = merge_axes(domain, maps)
        of = dict(zip(arrays, merged, strict=False))
        inputs = tuple(self._input(row, dims, of.get(row[2])) for row in self.rows)
        return inputs, dims, merged[len(arrays) :]

    def _input(self, row: tuple[str, str, object], dims: Shape, strides: Shape | None) -> Input:
        kind, dtype, node = row
        if strides is None:
            assert isinstance(node, (Node, tuple))
            return Input(kind, dtype, "fixed", node)
        assert isinstance(node, Node)
        source = node.srcs[0] if node.op in (STRIDED, GATHER) else node
        offset = node.arg.offset if isinstance(node.arg, Form) else 0
        elements = 1
        for size, step in zip(dims, strides, strict=True):
            elements *= size if step else min(size, 1)
        if kind == "iota":
            return Input(kind, dtype, "index", node, strides, 0, offset)
        if node.op is GATHER:
            elements = min(math.prod(node.shape), source.size)
            return Input(kind, dtype, "gathered", source, (), elements)
        # One element, or none, lies where its index says, whatever the strides are.
        # But not in 0-d: an epilogue, which has no index, reads such ones too.
        few = math.prod(self.domain) <= 1 and node.shape != ()
        if few or strides == contiguous_strides(dims, node.dtype.itemsize):
            return Input(kind, dtype, "linear", source, strides, elements, offset)
        layout = "strided" if any(strides) else "fixed"
        return Input(kind, dtype, layout, source, strides, elements, offset)


def _steps(node: Node) -> Shape:
    """Return the steps of a leaf along its own axes: bytes of an array, numbers of an iota."""
    if node.op is GATHER:
        return (0,) * len(node.shape)
    if node.op is INPUT:
        assert isinstance(node.arg, Memory)
        return node.arg.strides
    assert isinstance(node.arg, Form)
    return node.arg.steps


class _Writer:
    """Writes one Program: nodes become instructions, each once."""

    def __init__(self, inputs: _Inputs) -> None:
        self.inputs = inputs
        self.instrs: list[Instr] = []
        self.at: dict[Node, int] = {}

    def emit(self, instr: Instr) -> int:
        self.instrs.append(instr)
        return len(self.instrs) - 1

    def preset(self, node: Node, instr: Instr) -> None:
        self.at[node] = self.emit(instr)

    def write(self, roots: list[Node], stop: dict[Node, tuple[int, int]]) -> Program:
        """Write `roots`; a node in `stop` is carried in from the (stage, output) it maps to."""
        for node in self._order(roots, stop):
            if node in self.at:
                continue
            if node in stop:
                slot = self.inputs.carried(stop[node], node.dtype.name)
                self.at[node] = self.emit(Instr("load", (), node.dtype.name, slot))
            elif node.op is RESHAPE:
                self.at[node] = self._value(node.srcs[0])
            elif node.op is GATHER:
                slot, place = self.inputs.array(node), self._value(node.srcs[1])
                self.at[node] = self.emit(Instr("gather", (place,), node.dtype.name, slot))
            elif node.op in _LEAVES:
                slot = self.inputs.array(node)
                self.at[node] = self.emit(Instr("load", (), node.dtype.name, slot))
            elif node.op is not SCALAR:
                args = tuple(self._value(src) for src in node.srcs)
                self.at[node] = self.emit(Instr(node.op.name, args, node.dtype.name))
        results = tuple(self._value(root) for root in roots)
        return Program(tuple(self.instrs), results)

    def _value(self, node: Node) -> int:
        if node.op is SCALAR:  # one slot an occurrence
            slot = self.inputs.scalar(node)
            return self.emit(Instr("scalar", (), node.dtype.name, slot))
        return self.at[node]

    def _order(self, roots: list[Node], stop: dict[Node, tuple[int, int]]) -> list[Node]:
        order: list[Node] = []
        seen: set[Node] = set()
        stack = [(root, False) for root in reversed(roots)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                if node not in stop and node not in self.at:
                    stack.extend((src, False) for src in _operands(node) if src not in seen)
        return order


def _operands(node: Node) -> tuple[Node, ...]:
    """Return what a program computes before `node`, last first: not the array it reads."""
    if node.op is STRIDED:
        return ()
    return node.srcs[1:] if node.op is GATHER else node.srcs[::-1]


def _build(
    one: _Pass,
    outputs: list[Node],
    earlier: dict[Node, tuple[int, int]],
    layouts: Sequence[Shape | None],
) -> Stage:
    """Write a pass as a stage.

    `earlier` says where late values of earlier passes were left, `layouts` the byte strides of
    outputs that are not in row-major order.
    """
    inputs = _Inputs(one.shape)
    heads = [node.srcs[0] for node in one.members] if one.primitive == "reduce" else outputs
    element = _Writer(inputs).write(list(heads), earlier)
    combine: tuple[Combine, ...] = ()
    finish = None
    if one.primitive == "reduce":
        combine = tuple(Combine(node.op.combine, node.dtype.name) for node in one.members)
        writer = _Writer(inputs)
        for k, node in enumerate(one.members):
            writer.preset(node, Instr("combined", (), node.dtype.name, k))
        finish = writer.write(list(outputs), earlier)
    maps = []
    if one.primitive == "transform" and any(layout is not None for layout in layouts):
        maps = [_over(one.shape, *pair) for pair in zip(outputs, layouts, strict=True)]
    frozen, dims, steps = inputs.freeze(maps)
    written = []
    for at, node in enumerate(outputs):
        strides = steps[at] if steps else ()
        if strides == contiguous_strides(dims, node.dtype.itemsize):
            strides = ()
        written.append(Output(node.dtype.name, node.shape, node, strides))
    return Stage(one.primitive, element, combine, finish, frozen, tuple(written), one.shape, dims)


def _over(domain: Shape, node: Node, strides: Shape | None) -> Shape:
    """Return byte strides of a result over its pass's domain, which may split its axes."""
    if strides is None:
        return contiguous_strides(domain, node.dtype.itemsize)
    steps = [0] * len(domain)
    for row, stride in zip(grouped(node.shape, domain), strides, strict=True):
        steps = [a + b * stride for a, b in zip(steps, row.steps, strict=True)]
    return tuple(steps)
