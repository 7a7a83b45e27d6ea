"""Terminals: device algorithms that end a pipeline, each in a pass of its own.

A terminal is cut out of the expression: its pass computes its fused operands on the way, and what
is written beyond it reads the result as an array. Operands that the algorithm needs in memory (the
keys of a sort) are computed by a pass before it, unless they are arrays already; a note says so.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import numpy as np

from itfuse import expr
from itfuse.dtypes import kind
from itfuse.expr import Memory, Node, make
from itfuse.form import Fixed
from itfuse.ops import BUFFER, INPUT, IOTA, OPS, SCALAR, SCAN, SEGMENTS, SORT
from itfuse.plan.buffers import full_terminals, needs_buffer
from itfuse.plan.fuse import Layouts, fuse
from itfuse.plan.index import Form, along, contiguous_strides
from itfuse.plan.scans import ScanPass, late_values
from itfuse.plan.segments import SegmentsPass
from itfuse.plan.stages import Input, Note, Output, Program, Stage
from itfuse.plan.views import push_views
from itfuse.plan.write import Spot
from itfuse.rows.op import TERMINAL
from itfuse.wording import leaf_names, text, toposort


class Left(Memory):
    """Where a leaf lies that stands for what a pass leaves.

    Attributes
    ----------
    name : str
        Its text.
    """

    name: str


_left = itertools.count(1)


@dataclass
class Composed:
    """Passes with terminals among them.

    Attributes
    ----------
    stages, results, notes
        As `fuse` returns them.
    roots : list of Node
        What the stages compute for each expression asked for.
    """

    stages: list[Stage] = field(default_factory=list)
    results: list[Spot] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    roots: list[Node] = field(default_factory=list)


def has_terminals(roots: tuple[Node, ...]) -> bool:
    """Whether any expression needs a terminal."""
    return any(node.op.kind == TERMINAL for node in toposort(roots))


def compose(roots: tuple[Node, ...], layouts: Layouts, engine: str) -> Composed:
    """Plan expressions with terminals: one after another, then what is written beyond them.

    Parameters
    ----------
    roots : tuple of Node
        Simplified expressions.
    layouts : tuple
        As for `fuse`.
    engine : str
        Kind of engine: `cuda` or `cpu`.
    """
    return _Composer(engine).run(roots, layouts)


_INT64 = np.dtype(np.int64)


def _beside(sort: Node, ordered: bool) -> list[Node]:
    """Return what CUB reads beside the keys: where they were, and where each of the rows begins."""
    axis, length = len(sort.shape) - 1, sort.shape[-1]
    rows = sort.size // length
    found = []
    if ordered:
        places = replace(along(axis, axis + 1), label="the places of its keys")
        found.append(make(IOTA, (), _INT64, sort.shape, places))
    if rows > 1:
        begins = Form(0, (length,), "where its rows begin")
        found.append(make(IOTA, (), _INT64, (rows + 1,), begins))
    return found


def substitute(roots: tuple[Node, ...], new: dict[Node, Node]) -> tuple[Node, ...]:
    """Return `roots` with the nodes of `new` in the places of others."""
    if not new:
        return roots
    made = dict(new)
    for node in toposort(roots):
        if node not in made:
            srcs = tuple(made[src] for src in node.srcs)
            same = all(a is b for a, b in zip(srcs, node.srcs, strict=True))
            made[node] = node if same else make(node.op, srcs, node.dtype, node.shape, node.arg)
    return tuple(made[root] for root in roots)


class _Composer:
    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.made = Composed()
        self.spot: dict[Node, Spot] = {}  # leaf -> what it stands for
        self.core: dict[Node, Node] = {}  # leaf -> what its pass computes
        self.groups: dict[object, int] = {}  # terminals that one pass makes -> the pass
        self.arrays: dict[Node, Node] = {}  # expression -> the leaf of the pass that writes it
        self.orders: set[object] = set()  # sorts of which the order is asked for
        self.scans: dict[object, ScanPass] = {}
        self.scan_of: dict[Node, ScanPass] = {}  # leaf -> the scan whose values it stands for
        self.full: set[Node] = set()  # terminals, and then leaves, that leave all elements
        self.asked: set[Node] = set()  # leaves that may lie in memory
        self.readers: dict[Node, Stage] = {}  # leaf -> a pass that reads it element by element
        self.turned: dict[Node, Node] = {}  # what sorted keys mean -> the leaf of the keys
        self.names: dict[Node, str] = {}

    def run(self, roots: tuple[Node, ...], layouts: Layouts) -> Composed:
        self.names = leaf_names(toposort(roots))
        layout = layouts or (None,) * len(roots)
        found = self._rewritten(roots)
        made = self.made
        results: dict[int, Spot] = {}
        final: dict[int, Node] = {}
        rest: list[int] = []
        for at, root in enumerate(found):
            if root in self.turned:
                self.asked.add(self.turned[root])
            # An expression asked for twice is two arrays; the second one is a copy, where the pass
            # cannot write both.
            again = root in self.scan_of and self._spot(root) in results.values()
            if root in self.scan_of and (again or layout[at] is not None):
                scan, final[at] = self.scan_of[root], self.core[root]
                results[at] = scan.write(root, final[at], layout[at])
            elif root in self.core and self._spot(root) not in results.values():
                results[at], final[at] = self._spot(root), self.core[root]
            elif found_in := self._scan_that_computes(root):
                (final[at],) = push_views((root,))
                results[at] = found_in.write(final[at], final[at], layout[at])
            else:
                rest.append(at)
        if rest:
            pushed = push_views(tuple(found[at] for at in rest))
            wanted = tuple(layout[at] for at in rest) if layouts else ()
            spots = self._add(pushed, wanted)
            results.update(zip(rest, spots, strict=True))
            final.update(zip(rest, pushed, strict=True))
        for one in reversed(self.scans.values()):  # what a later one reads, is written
            (made.stages[one.number],) = self._all_wired([one.stage()], 0, one.number)
        for leaf, reader in self.readers.items():
            if leaf in self.full - self.asked and self.spot[leaf] not in results.values():
                count = leaf.size * leaf.dtype.itemsize
                who = ", ".join(text(output.node, self.names) for output in reader.outputs)
                raise needs_buffer(self.names[leaf], count, who)
        made.results = [results[at] for at in range(len(roots))]
        made.roots = [final[at] for at in range(len(roots))]
        return made

    def _rewritten(self, roots: tuple[Node, ...]) -> tuple[Node, ...]:
        """Plan every terminal under `roots`, operands first, and put a leaf in its place.

        So it is with operands that a terminal reads as arrays: whoever else reads them, reads what
        their pass has written.
        """
        order = toposort(roots)
        self.full |= full_terminals(order)
        whole: dict[Node, Node] = {}  # operand -> a terminal that reads it
        over: set[Node] = set()  # what needs a scan, or segments
        for node in order:
            if node.op.kind == TERMINAL:
                whole.update(dict.fromkeys(node.srcs[node.arg.fused :], node))
                if node.arg.side:
                    self.orders.add((node.op, node.srcs, node.arg.options))
            if node.op in (SCAN, SEGMENTS) or any(src in over for src in node.srcs):
                over.add(node)
        new: dict[Node, Node] = {}
        for node in order:
            if node not in over:
                self._rewrite(node, new, whole)
        if over:
            self._before_scans([node for node in order if node in over], roots, new)
        for node in order:
            if node in over:
                self._rewrite(node, new, whole)
        return tuple(new[root] for root in roots)

    def _rewrite(self, node: Node, new: dict[Node, Node], whole: dict[Node, Node]) -> None:
        srcs = tuple(new[src] for src in node.srcs)
        same = all(a is b for a, b in zip(srcs, node.srcs, strict=True))
        made = node if same else make(node.op, srcs, node.dtype, node.shape, node.arg)
        if node.op.kind == TERMINAL:
            ordered = (node.op, node.srcs, node.arg.options) in self.orders
            made = self._terminal(made, ordered)
            if node in self.full:
                self.full.add(self.turned.get(made, made))
        if node in whole and not self._canonical(node, whole[node]):
            made = self._array(made, whole[node])
        new[node] = made

    def _before_scans(
        self, over: list[Node], roots: tuple[Node, ...], new: dict[Node, Node]
    ) -> None:
        """Plan the reductions that scans need before them, or beside: scans carry their values."""
        tops = dict.fromkeys(src for node in over for src in node.srcs if src in new)
        found = late_values(tuple(tops))
        if found:
            # What else is asked for of the same arrays may join these passes.
            found += [root for root in late_values(roots) if root in new and root in roots]
            done = self._left_by(tuple(dict.fromkeys(new[node] for node in found)))
            new.update(zip(new, substitute(tuple(new.values()), done), strict=True))

    def _left_by(self, values: tuple[Node, ...]) -> dict[Node, Node]:
        """Plan reductions together, and return a leaf for each."""
        cores = push_views(values)
        spots = self._add(cores)
        return {
            value: self._leaf(value, text(value, self.names), spot, core)
            for value, spot, core in zip(values, spots, cores, strict=True)
        }

    def _add(self, roots: tuple[Node, ...], layouts: Layouts = ()) -> list[Spot]:
        """Append the passes of `roots`."""
        made = self.made
        start = len(made.stages)
        stages, results, notes = fuse(roots, layouts, start, self.names)
        made.notes += list(dict.fromkeys(notes))
        made.stages += self._all_wired(stages, start, start)
        return [(s + start, o) for s, o in results]

    def _all_wired(self, stages: list[Stage], start: int, first: int) -> list[Stage]:
        """Say of each input that a pass leaves which one, and why that pass is waited for.

        Passes that the stages name themselves are counted from `start`; they are `first` and so on.
        """
        notes = []
        wired = []
        for s, stage in enumerate(stages, first):
            inputs = tuple(self._wired(i, start) for i in stage.inputs)
            wired.append(replace(stage, inputs=inputs))
            for i in stage.inputs:
                if isinstance(i.source, Node) and i.source in self.spot:
                    if i.layout != "whole":
                        self.readers.setdefault(i.source, stage)
                    what, earlier = self.names[i.source], self.spot[i.source][0]
                    notes.append(Note(
                        "needs-result",
                        f"pass {s + 1} waits for pass {earlier + 1}: it reads {what}",
                    ))  # fmt: skip
        self.made.notes += [one for one in dict.fromkeys(notes) if one not in self.made.notes]
        return wired

    def _wired(self, i: Input, start: int) -> Input:
        if isinstance(i.source, tuple):
            return replace(i, source=(i.source[0] + start, i.source[1]))
        if i.source in self.spot or i.source in self.scan_of:
            if i.layout == "whole":
                self.asked.add(i.source)
            return replace(i, kind="carried", source=self._spot(i.source))
        return i

    def _spot(self, leaf: Node) -> Spot:
        """Return where a pass leaves what `leaf` stands for; a scan has not had to until now."""
        if leaf not in self.spot:
            scan = self.scan_of[leaf]
            self.spot[leaf] = scan.write(leaf, self.core[leaf])
        return self.spot[leaf]

    def _scan_that_computes(self, root: Node) -> ScanPass | None:
        """Return the scan whose pass can compute an expression that is asked for."""
        under = {self.scan_of[node].number: self.scan_of[node]
                 for node in toposort((root,)) if node in self.scan_of}  # fmt: skip
        if not under or root in self.core:
            return None
        last = under[max(under)]  # it waits for the others
        (pushed,) = push_views((root,), splits=False)
        return last if last.computes(pushed, self._places()) else None

    def _scan(self, node: Node) -> Node:
        """Take the place of a scan's pass, and return the leaf of its values."""
        what = text(node, self.names)
        bare = self._without_reductions(node.srcs)
        core = make(node.op, push_views(bare, splits=False), node.dtype, node.shape, node.arg)
        group = (core.op, core.srcs, replace(core.arg, side=0))
        if group not in self.scans:
            self.scans[group] = ScanPass(core, len(self.made.stages))
            self.made.stages.append(Stage("scan", Program((), ()), (), None, (), (), (), ()))
        scan = self.scans[group]
        for leaf, (_, shown) in scan.leaves.items():
            if shown is core:
                return leaf
        leaf = self._leaf(core, what, None, core)
        scan.leaves[leaf] = (node.arg.side, core)
        self.scan_of[leaf] = scan
        return leaf

    def _segments(self, node: Node) -> Node:
        """Join or begin a pass over segments, and return the leaf of the reduction's values."""
        what = text(node, self.names)
        offsets = self._array(node.srcs[-1], node)
        bare = push_views(self._without_reductions(node.srcs[:-1]), splits=False)
        core = make(node.op, (*bare, offsets), node.dtype, node.shape, node.arg)
        spots = self._places()
        open_passes = [one for one in self.scans.values() if isinstance(one, SegmentsPass)]
        found = next((one for one in open_passes if one.takes(core, spots)), None)
        if found is None:
            found = SegmentsPass(core, len(self.made.stages))
            self.scans[core] = found
            self.made.stages.append(Stage("segments", Program((), ()), (), None, (), (), (), ()))
        for leaf, (_, shown) in found.leaves.items():
            if shown is core:
                return leaf
        leaf = self._leaf(core, what, None, core)
        found.leaves[leaf] = (0, core)
        self.scan_of[leaf] = found
        return leaf

    def _places(self) -> dict[Node, Spot]:
        """Return where leaves are left, or would be if somebody read them as arrays."""
        return self.spot | {
            leaf: (one.number, 0) for leaf, one in self.scan_of.items() if leaf not in self.spot
        }

    def _without_reductions(self, srcs: tuple[Node, ...]) -> tuple[Node, ...]:
        """Plan the reductions of other scans' values, and put leaves in their places."""
        found = late_values(srcs)
        missing = tuple(node for node in found if node not in self.arrays)
        if missing:
            self.arrays |= self._left_by(missing)
        return substitute(srcs, {node: self.arrays[node] for node in found})

    def _leaf(self, node: Node, what: str, spot: Spot | None, core: Node | None = None) -> Node:
        """Return an array leaf that stands for what a pass leaves at `spot`, if it must."""
        strides = contiguous_strides(node.shape, node.dtype.itemsize)
        memory = Left("pass", -next(_left), strides)
        memory.name = what
        leaf = make(INPUT, (), node.dtype, node.shape, memory)
        if spot is not None:
            self.spot[leaf] = spot
        self.names[leaf] = what
        if core is not None:
            self.core[leaf] = core
        return leaf

    def _terminal(self, node: Node, ordered: bool) -> Node:
        """Plan a terminal whose operands have no terminal left, and return its leaf."""
        if node.op is SCAN:
            return self._scan(node)
        if node.op is BUFFER:
            return self._array(node.srcs[0], node)
        if node.op is SEGMENTS:
            return self._segments(node)
        how, what = node.arg, text(node, self.names)
        whole = [self._array(src, node) for src in node.srcs[how.fused :]]
        if self.engine == "cuda" and node.op is SORT:
            whole += [self._array(one, node) for one in _beside(node, ordered)]
        core = make(node.op, (*node.srcs[: how.fused], *whole), node.dtype, node.shape, how)
        mapped = self._mapped(node) and how.side == 0
        if mapped:
            core = make(node.op, core.srcs, whole[0].dtype, node.shape, how)
        group = (core.op, core.srcs, replace(how, side=0))
        if group in self.groups:  # the same pass, another of its results
            s = self.groups[group]
            stage = self.made.stages[s]
            output = Output(core.dtype.name, core.shape, core)
            self.made.stages[s] = replace(
                stage, outputs=(*stage.outputs, output), sides=(*stage.sides, how.side)
            )
            leaf = self._leaf(core, what, (s, len(stage.outputs)), core)
        else:
            (core,) = push_views((core,))
            ((s, o),) = self._add((core,))
            self.groups[group] = s
            leaf = self._leaf(core, what, (s, o), core)
        if mapped:
            found = make(OPS["from_sort_key"], (leaf,), node.dtype, node.shape)
            self.turned[found] = leaf
            return found
        return leaf

    def _canonical(self, src: Node, user: Node) -> bool:
        """Whether the user needs keys other than `src` itself.

        CUB sorts floats by their bits, which puts NaN with a sign first; NumPy puts every NaN last.
        So keys are written with one NaN.
        """
        return self.engine == "cuda" and user.op is SORT and kind(src.dtype) == "f"

    def _mapped(self, sort: Node) -> bool:
        """Whether floats are sorted as unsigned integers.

        CUB's segmented sort compares short rows by `<`, which NaN answers with no order at all.
        """
        if sort.op is not SORT or not self._canonical(sort.srcs[0], sort):
            return False
        (_, several) = sort.arg.options
        return bool(several) or sort.srcs[0].dtype.itemsize == 2

    def _array(self, src: Node, user: Node) -> Node:
        """Return an operand that is read as an array: itself, or what a pass of its own writes."""
        what = text(user if user.op is BUFFER else src, self.names)
        self.asked.add(self.turned.get(src, src))
        if self._canonical(src, user) and self._mapped(user):
            src = expr.elementwise(OPS["sort_key"], (src,))
        elif self._canonical(src, user):
            nan = make(SCALAR, (), src.dtype, (), Fixed(src.dtype.type(np.nan)))
            isnan = expr.elementwise(OPS["isnan"], (src,))
            src = expr.elementwise(OPS["where"], (isnan, nan, src))
        plain = contiguous_strides(src.shape, src.dtype.itemsize)
        if src.op is INPUT and src.arg.strides == plain:
            return src
        if src not in self.arrays:
            (core,) = push_views((src,))
            if scan := self._scan_that_computes(src):
                spot = scan.write(core, core)
            else:
                (spot,) = self._add((core,))
            self.arrays[src] = self._leaf(src, what, spot, core)
            how = " as integers in the order of the floats" if self._mapped(user) and (
                src.op is OPS["sort_key"]) else ""  # fmt: skip
            why = "as was asked" if user.op is BUFFER else f"where {user.op.name} needs it"
            self.made.notes.append(Note(
                "materialized", f"pass {spot[0] + 1} writes {what} to memory{how}, {why}"
            ))  # fmt: skip
        return self.arrays[src]
