"""Expressions -> passes. Every refusal to fuse is a Note.

plan/late.py says when each node can be computed. Row values are computed in the finish of the
reduction's own pass (the epilogue), and so are element values that read them where the row stays
on chip. Whatever else reads a late value runs in a later pass, which loads what the earlier pass
left on the device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from itfuse.dtypes import accumulator
from itfuse.expr import Node, Shape
from itfuse.ops import COUNT, INPUT, RESHAPE
from itfuse.plan.index import contiguous_strides, grouped
from itfuse.plan.late import Group, When, lies_across, timetable
from itfuse.plan.stages import Combine, Input, Instr, Note, Output, Phase, Stage, fields
from itfuse.plan.write import Inputs, Spot, Writer, by_columns, from_column_to_column
from itfuse.rows.op import SELECTION, TERMINAL
from itfuse.wording import leaf_names, text, toposort


@dataclass
class _Pass:
    """A pass being collected: reductions, and nodes of which every element is written."""

    primitive: str
    time: int
    shape: Shape
    group: Group | None
    flags: tuple[Node, ...] = ()  # of a selection
    members: list[Node] = field(default_factory=list)
    tokens: set[Node] = field(default_factory=set)

    def reductions(self) -> list[Node]:
        return [node for node in self.members if node.op.reduces]

    def written(self) -> list[Node]:
        return [node for node in self.members if not node.op.reduces]


class _Late:
    """When nodes can be computed, and which of them a pass leaves behind."""

    def __init__(self, order: list[Node]) -> None:
        self.when, self.why = timetable(order)

    def __contains__(self, node: Node) -> bool:
        return self.when[node].row

    def same(self, node: Node, when: When) -> bool:
        """Whether `node` is a row value of the time and the rows of `when`."""
        own = self.when[node]
        return own.row and (own.time, own.group) == (when.time, when.group)


Layouts = tuple[tuple[int, ...] | None, ...]


def fuse(
    roots: tuple[Node, ...],
    layouts: Layouts = (),
    start: int = 0,
    names: dict[Node, str] | None = None,
) -> tuple[list[Stage], list[tuple[int, int]], list[Note]]:
    """Return (stages, results, notes) for `roots`.

    `layouts` holds for each root the byte strides to write it in, or None for row-major order.
    `start` is the number of passes before these, and `names` what arrays are called, for the notes.
    """
    order = toposort(roots)
    late = _Late(order)
    notes: list[Note] = []
    passes = _collect(order, roots, late, notes, start, plain=not any(layouts))
    home = _homes(order, late, passes)
    outputs = _outputs(order, roots, late, home, passes)
    names = leaf_names(order) if names is None else names

    place: dict[Node, Spot] = {}
    for s, nodes in enumerate(outputs):
        for o, node in enumerate(nodes):
            place.setdefault(node, (s, o))
    results = _results(roots, outputs)
    layout = dict(zip(results, layouts, strict=True)) if layouts else {}
    stages = []
    for s, one in enumerate(passes):
        wanted = [layout.get((s, o)) for o in range(len(outputs[s]))]
        earlier = {node: spot for node, spot in place.items() if node in late and home[node] < s}
        own = [node for node in order if node in late and home[node] == s]
        stages.append(_build(one, order, outputs[s], earlier, late, own=own, layouts=wanted))
    said: dict[Node, str] = {}  # a text walks its expression, so each is written once
    for s, stage in enumerate(stages):
        if stage.size_class and stage.size_class[0] == "walk":
            again = (
                f"pass {start + s + 1} reads rows of {stage.length} elements {len(stage.phases)} "
                "times, after the first from the chip: they do not fit the registers of a block"
            )
            notes.append(Note("read-again", again))
        for i in stage.inputs:
            if i.kind == "carried" and isinstance(i.source, tuple):
                value = outputs[i.source[0]][i.source[1]]
                reason = _reason(passes[s], late)
                if value not in said:
                    said[value] = text(value, names)
                notes.append(
                    Note(
                        "needs-result",
                        f"pass {start + s + 1} waits for pass {start + i.source[0] + 1}: "
                        f"{'every element' if i.layout == 'fixed' else 'every row'} needs "
                        f"{said[value]}{reason}",
                    )
                )
    return stages, results, list(dict.fromkeys(notes))


def _reason(one: _Pass, late: _Late) -> str:
    """Say why a pass could not join the one that it waits for, where that is known."""
    seen: set[Node] = set()
    stack = list(one.members)
    while stack:
        node = stack.pop()
        if node in late.why:
            return f"; {late.why[node]}"
        fresh = [src for src in node.srcs if src not in seen and src not in late]
        seen.update(fresh)
        stack += fresh
    return ""


def _tokens(member: Node, when: When, late: _Late) -> set[Node]:
    """Return what makes passes belong together.

    These are the array leaves of more than one element that the pass of `member` reads, and the
    reductions whose results it needs while the rows are there.
    """
    found: set[Node] = {member} if member.op.reduces else set()
    stack = list(member.srcs) if member.op.reduces else [member]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node.op is INPUT and node.size > 1:
            found.add(node)
        if node in late:
            if when.group is None or not late.same(node, when):
                continue
            if node.op.reduces:
                found.add(node)
                continue
        for src in node.srcs:
            if src not in seen:
                seen.add(src)
                stack.append(src)
    return found


def _inputs(tokens: set[Node]) -> set[Node]:
    return {node for node in tokens if node.op is INPUT}


def _collect(
    order: list[Node],
    roots: tuple[Node, ...],
    late: _Late,
    notes: list[Note],
    start: int,
    *,
    plain: bool,
) -> list[_Pass]:
    wanted: list[tuple[str, Node, Shape, Group | None]] = []  # primitive, member, domain, rows
    for node in order:
        if node.op.reduces:
            group = late.when[node].group
            assert group is not None
            wanted.append(("reduce" if group.whole else "rows", node, group.domain, group))
    for root in roots:
        if root.op.kind == TERMINAL:
            wanted.append((root.op.name, root, root.arg.domain, None))
        elif root not in late:
            if root.op.kind == SELECTION:
                wanted.append(("select", root, root.arg.domain, None))
                continue
            group = late.when[root].group
            shape = root.srcs[0].shape if root.op is RESHAPE else root.shape
            wanted.append(("transform" if group is None else "rows", root, shape, group))

    passes: list[_Pass] = []
    for primitive, member, shape, group in wanted:
        when = late.when[member]
        tokens = _tokens(member, when, late)
        flags = _flags(member)
        kind = (primitive, when.time, group or shape, flags)
        same = [p for p in passes if (p.primitive, p.time, p.group or p.shape, p.flags) == kind]
        bare = not _inputs(tokens)
        joined = [p for p in same if p.tokens & tokens or flags or (bare and not _inputs(p.tokens))]
        if joined:
            first, *others = joined
            for other in others:  # this member connects passes that had nothing in common
                first.members += other.members
                first.tokens |= other.tokens
                passes.remove(other)
        else:
            first = _Pass(primitive, when.time, group.domain if group else shape, group, flags)
            passes.append(first)
        first.members.append(member)
        first.tokens |= tokens
    for one in [p for p in passes if p.primitive == "transform" and plain]:
        into = next((p for p in passes if _takes(p, one)), None)
        if into is not None:
            into.members += one.members
            passes.remove(one)
    # A stable sort: passes of one time stay in the order in which the user asked for them, except
    # that results of whole arrays are there before the rows that may use them.
    passes.sort(key=lambda p: (p.time, p.primitive == "rows"))
    _explain_separate(passes, notes, start)
    return passes


def _takes(rows: _Pass, one: _Pass) -> bool:
    """Whether a pass that writes elements of its rows may write those of a transform as well.

    It does if it reads all of their arrays anyway. A pass that only reduces keeps no row on chip.
    """
    if rows.primitive != "rows" or not rows.written():
        return False
    same = (rows.time, rows.shape) == (one.time, one.shape)
    reads = _inputs(one.tokens)
    if not (same and reads and reads <= _inputs(rows.tokens)):
        return False
    return not any(lies_across(node) for node in toposort(one.members))


def _flags(member: Node) -> tuple[Node, ...]:
    """Return what a selection chooses by; nothing for other nodes."""
    return member.srcs[: member.arg.flags] if member.op.kind == SELECTION else ()


def _explain_separate(passes: list[_Pass], notes: list[Note], start: int) -> None:
    for b, second in enumerate(passes, start):
        for a, first in enumerate(passes[: b - start], start):
            if first.time != second.time:
                continue
            pair = f"passes {a + 1} and {b + 1} stay separate: "
            if not _inputs(first.tokens & second.tokens):
                if first.shape == second.shape and first.primitive == second.primitive:
                    why = "they share no input, so that one pass would move the same bytes"
                    notes.append(Note("no-common-input", pair + why))
            elif first.shape != second.shape:
                why = f"one runs over {first.shape}, the other over {second.shape}"
                notes.append(Note("different-domain", pair + why))
            elif first.primitive == second.primitive and first.group and second.group:
                why = f"one reduces axes {first.group.axes}, the other {second.group.axes}"
                notes.append(Note("different-axes", pair + why))
            elif first.primitive == second.primitive:
                notes.append(Note("different-flags", pair + "they select by different conditions"))
            else:
                why = (
                    f"a {first.primitive} and a {second.primitive} are different device algorithms"
                )
                notes.append(Note("different-primitive", pair + why))


def _homes(order: list[Node], late: _Late, passes: list[_Pass]) -> dict[Node, int]:
    """Map each row value to the pass whose finish computes it."""
    home = {node: s for s, one in enumerate(passes) for node in one.reductions()}
    for node in order:
        if node in late and node not in home:
            home[node] = max(home[src] for src in node.srcs if src in late)
    return home


def _outputs(
    order: list[Node],
    roots: tuple[Node, ...],
    late: _Late,
    home: dict[Node, int],
    passes: list[_Pass],
) -> list[list[Node]]:
    """For each pass the nodes it writes: those of every element, then row values needed later."""
    needed: set[Node] = {root for root in roots if root in late}
    inside: dict[int, list[Node]] = defaultdict(list)  # row values that are no reductions
    for node in order:
        if node in late and not node.op.reduces:
            inside[home[node]].append(node)
    for s, one in enumerate(passes):
        heads = one.reductions() + inside[s]
        stack = [src for node in heads for src in node.srcs] + one.written()
        seen = set(stack)
        while stack:
            node = stack.pop()
            if node in late:
                if home[node] != s:
                    needed.add(node)
                continue
            fresh = [src for src in node.srcs if src not in seen]
            seen.update(fresh)
            stack += fresh
    outputs: list[list[Node]] = [one.written() for one in passes]
    asked: defaultdict[Node, int] = defaultdict(int)
    for root in roots:
        asked[root] += 1
    for node in order:
        if node in needed:
            # An expression asked for twice is two arrays, as in NumPy.
            outputs[home[node]] += [node] * max(1, asked[node])
    return outputs


def _results(roots: tuple[Node, ...], outputs: list[list[Node]]) -> list[tuple[int, int]]:
    spots: defaultdict[Node, list[Spot]] = defaultdict(list)
    for s, nodes in enumerate(outputs):
        for o, node in enumerate(nodes):
            spots[node].append((s, o))
    return [spots[root].pop(0) for root in roots]


def _build(
    one: _Pass,
    order: list[Node],
    outputs: list[Node],
    earlier: dict[Node, Spot],
    late: _Late,
    *,
    own: list[Node],
    layouts: Sequence[Shape | None] = (),
) -> Stage:
    """Write a pass as a stage.

    `earlier` says where late values of earlier passes were left; `own` are its row values, operands
    first; `layouts` the byte strides of outputs that are not in row-major order.
    """
    written = tuple(Output(node.dtype.name, node.shape, node) for node in outputs)
    if one.primitive == "rows":
        return _rows(one, order, written, earlier, late, own=own)
    inputs = Inputs(one.shape)
    writer = Writer(inputs, earlier)
    if outputs[0].op.kind == TERMINAL:
        return _terminal(outputs[0], inputs, writer, written)
    if one.primitive == "select":
        chosen = [node.srcs[-1] for node in outputs if node.op is not COUNT]
        element = writer.program([writer.write(node) for node in (*one.flags, *chosen)])
        parts = tuple(-1 if node.op is COUNT else node.arg.part for node in outputs)
        frozen, dims, *_ = inputs.freeze()
        return Stage(
            "select", element, (), None, frozen, written, one.shape, dims, parts=parts
        )  # fmt: skip
    if one.primitive == "transform":
        element = writer.program([writer.write(node) for node in outputs])
        maps = []
        if any(layout is not None for layout in layouts):
            maps = [_over(one.shape, *pair) for pair in zip(outputs, layouts, strict=True)]
        frozen, dims, _, steps = inputs.freeze(maps)
        written = tuple(
            output
            if strides == contiguous_strides(dims, output.node.dtype.itemsize)
            else replace(output, strides=strides)
            for output, strides in zip(written, steps or [()] * len(written), strict=True)
        )
        return Stage("transform", element, (), None, frozen, written, one.shape, dims)
    combine, heads, slots = _combines(one.reductions())
    element = writer.program([_wide(writer, node) for node in heads])
    writer = Writer(inputs, earlier)
    of = fields(combine)
    for node, slot in slots.items():
        writer.offers[node] = Instr("combined", (), of[slot][0], slot)
    finish = writer.program([writer.write(node, ()) for node in outputs])
    frozen, dims, *_ = inputs.freeze()
    return Stage("reduce", element, combine, finish, frozen, written, one.shape, dims)


def _terminal(node: Node, inputs: Inputs, writer: Writer, written: tuple[Output, ...]) -> Stage:
    """Write the pass of a terminal."""
    how = node.arg
    element = writer.program([writer.write(src) for src in node.srcs[: how.fused]])
    frozen, dims, *_ = inputs.freeze()
    whole = tuple(
        Input("array", src.dtype.name, "whole", src, (), src.size) for src in node.srcs[how.fused :]
    )
    return Stage(
        node.op.name, element, (), None, (*frozen, *whole), written, how.domain, dims,
        how=replace(how, side=0), sides=(how.side,),
    )  # fmt: skip


def _wide(writer: Writer, node: Node) -> int:
    """Write what is combined: a narrow float in a wider one; the finish rounds it once."""
    return writer.cast(writer.write(node), accumulator(node.dtype.name))


def _over(domain: Shape, node: Node, strides: Shape | None) -> Shape:
    """Return byte strides of a result over its pass's domain, which may split its axes."""
    if strides is None:
        return contiguous_strides(domain, node.dtype.itemsize)
    steps = [0] * len(domain)
    for row, stride in zip(grouped(node.shape, domain), strides, strict=True):
        steps = [a + b * stride for a, b in zip(steps, row.steps, strict=True)]
    return tuple(steps)


def _combines(reductions: list[Node]) -> tuple[tuple[Combine, ...], list[Node], dict[Node, int]]:
    """Return the operators, the nodes whose values they combine, and each reduction's field."""
    combine: list[Combine] = []
    heads: list[Node] = []
    first: dict[object, int] = {}
    slots: dict[Node, int] = {}
    for node in reductions:
        # With and without keepdims it is one reduction, and so it is for each field of a struct.
        same = (node.op.combine, node.srcs)
        if same not in first:
            first[same] = len(heads)
            combine.append(Combine(node.op.combine, accumulator(node.srcs[0].dtype.name)))
            heads += node.srcs
        slots[node] = first[same] + node.op.pick
    return tuple(combine), heads, slots


def _rows(
    one: _Pass,
    order: list[Node],
    written: tuple[Output, ...],
    earlier: dict[Node, Spot],
    late: _Late,
    *,
    own: list[Node],
) -> Stage:
    """Write a pass over rows."""
    group = one.group
    assert group is not None
    inputs = Inputs(group.domain, group.axes)
    phase_of = {node: late.when[node].phase for node in own}
    elements = one.written()
    last = max([*phase_of.values(), *(late.when[node].phase for node in elements)])
    leaving = _handed_on(own, order, phase_of, {output.node for output in written})
    slot: dict[Node, int] = {}  # row values of the phases so far
    phases = []
    for number in range(last + 1):
        writer = _offering(inputs, earlier, slot)
        reductions = [n for n in one.reductions() if phase_of[n] == number]
        combine, heads, slots = _combines(reductions)
        results = [_wide(writer, node) for node in heads]
        if number == last:
            results += [writer.write(node) for node in elements]
        element = writer.program(results)
        finish = None
        made = [node for node in leaving if phase_of[node] == number]
        if made:
            writer = _offering(inputs, earlier, slot)
            of = fields(combine)
            for node, at in slots.items():
                writer.offers[node] = Instr("combined", (), of[at][0], at)
            finish = writer.program([writer.write(n, late.when[n].places) for n in made])
            for node in made:
                slot[node] = len(slot)
        phases.append(Phase(element, combine, finish))
    frozen, dims, kept, _ = inputs.freeze()
    *before, end = phases
    values = tuple(slot[output.node] for output in written[len(elements) :])
    primitive = "rows"
    if not before and not elements and by_columns(frozen, kept):
        primitive = "columns"
        frozen = tuple(from_column_to_column(i, kept) for i in frozen)
    return Stage(
        primitive, end.element, end.combine, end.finish, frozen, written, group.domain, dims,
        axes=group.axes, kept=kept, before=tuple(before), written=values,
    )  # fmt: skip


def _offering(inputs: Inputs, earlier: dict[Node, Spot], slot: dict[Node, int]) -> Writer:
    """Return a writer that knows the row values of earlier phases."""
    writer = Writer(inputs, earlier)
    for node, at in slot.items():
        writer.offers[node] = Instr("row", (), node.dtype.name, at)
    return writer


def _handed_on(
    own: list[Node], order: list[Node], phase_of: dict[Node, int], outputs: set[Node]
) -> list[Node]:
    """Return the row values that leave the finish which computes them."""
    leaving = {node for node in own if node in outputs}
    for user in order:
        for src in user.srcs:
            if src not in phase_of:
                continue
            inside = user in phase_of and not user.op.reduces
            if not inside or phase_of[user] != phase_of[src]:
                leaving.add(src)
    return [node for node in own if node in leaving]
