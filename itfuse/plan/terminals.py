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
from itfuse.ops import INPUT, IOTA, OPS, SCALAR, SCAN, SORT
from itfuse.plan.fuse import Layouts, fuse
from itfuse.plan.index import Form, along, contiguous_strides
from itfuse.plan.scans import ScanPass, reductions
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
            # An expression asked for twice is two arrays; the second one is a copy.
            if root in self.scan_of and layout[at] is not None:
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
        made.results = [results[at] for at in range(len(roots))]
        made.roots = [final[at] for at in range(len(roots))]
        return made

    def _rewritten(self, roots: tuple[Node, ...]) -> tuple[Node, ...]:
        """Plan every terminal under `roots`, operands first, and put a leaf in its place.

        So it is with operands that a terminal reads as arrays: whoever else reads them, reads what
        their pass has written.
        """
        order = toposort(roots)
        whole: dict[Node, Node] = {}  # operand -> a terminal that reads it
        for node in order:
            if node.op.kind == TERMINAL:
                whole.update(dict.fromkeys(node.srcs[node.arg.fused :], node))
                if node.arg.side:
                    self.orders.add((node.op, node.srcs, node.arg.options))
        new: dict[Node, Node] = {}
        for node in order:
            srcs = tuple(new[src] for src in node.srcs)
            same = all(a is b for a, b in zip(srcs, node.srcs, strict=True))
            made = node if same else make(node.op, srcs, node.dtype, node.shape, node.arg)
            if node.op.kind == TERMINAL:
                ordered = (node.op, node.srcs, node.arg.options) in self.orders
                made = self._terminal(made, ordered)
            if node in whole and not self._canonical(node, whole[node]):
                made = self._array(made, whole[node])
            new[node] = made
        return tuple(new[root] for root in roots)

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
        (pushed,) = push_views((root,))
        spots = self.spot | {
            leaf: (one.number, 0) for leaf, one in self.scan_of.items() if leaf not in self.spot
        }
        return last if last.computes(pushed, spots) else None

    def _scan(self, node: Node) -> Node:
        """Take the place of a scan's pass, and return the leaf of its values."""
        what = text(node, self.names)
        bare = self._without_reductions(node.srcs)
        core = make(node.op, push_views(bare), node.dtype, node.shape, node.arg)
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

    def _without_reductions(self, srcs: tuple[Node, ...]) -> tuple[Node, ...]:
        """Plan the reductions under a scan's operands, and put leaves in their places."""
        new: dict[Node, Node] = {}
        for node in reductions(srcs):
            if node not in self.arrays:
                (core,) = push_views((node,))
                (spot,) = self._add((core,))
                self.arrays[node] = self._leaf(node, text(node, self.names), spot, core)
            new[node] = self.arrays[node]
        return substitute(srcs, new)

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
            return make(OPS["from_sort_key"], (leaf,), node.dtype, node.shape)
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
        what = text(src, self.names)
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
            (spot,) = self._add((core,))
            self.arrays[src] = self._leaf(src, what, spot, core)
            how = " as integers in the order of the floats" if self._mapped(user) and (
                src.op is OPS["sort_key"]) else ""  # fmt: skip
            self.made.notes.append(Note(
                "materialized",
                f"pass {spot[0] + 1} writes {what} to memory{how}, where {user.op.name} needs it",
            ))  # fmt: skip
        return self.arrays[src]
