"""The pass of segments: reductions between the same offsets, and what is computed of them.

As a scan's, its place in the plan is taken when the first reduction is met, and what it writes is
decided later: further reductions of the same offsets join it, and whatever only needs their values
at a segment's own place (`itf.sqrt(itf.segment_sum(x, offsets))`) is computed in its finish.

Such a stage has two domains. The element program runs over the elements (`Stage.shape`), the finish
over the segments: inputs of the finish have index maps along one axis, which is the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from itfuse.dtypes import accumulator
from itfuse.expr import Node, Shape
from itfuse.ops import INPUT, ROWS
from itfuse.plan.index import How
from itfuse.plan.scans import ScanPass
from itfuse.plan.stages import Combine, Input, Instr, Output, Program, Stage
from itfuse.plan.write import Inputs, Spot, Writer, follows
from itfuse.wording import toposort

MOST_BYTES = 32
"""Bytes of all accumulators of an element: a block keeps 1,024 of them in shared memory."""


class SegmentsPass(ScanPass):
    """Reductions of segments whose outputs are not all known yet.

    Its `core` is the first of the reductions, the others are those of its `leaves`.
    """

    @property
    def offsets(self) -> Node:
        """The array of offsets, which all of its reductions share."""
        return self.core.srcs[-1]

    def cores(self) -> list[Node]:
        """Return the reductions, each once."""
        return list(dict.fromkeys([self.core, *(core for _, core in self.leaves.values())]))

    def takes(self, core: Node, spots: Mapping[Node, Spot]) -> bool:
        """Whether another reduction can join: of the same segments, of what is there in time."""
        if (core.srcs[-1], core.arg.domain) != (self.offsets, self.core.arg.domain):
            return False
        every = dict.fromkeys([*self.cores(), core])
        if sum(np.dtype(accumulator(one.dtype.name)).itemsize for one in every) > MOST_BYTES:
            return False
        return all(
            spots[node][0] < self.number
            for node in toposort(core.srcs[:-1])
            if node.op is INPUT and node in spots
        )

    def stage(self) -> Stage:
        """Write the pass."""
        core = self.core
        inputs = Inputs(core.arg.domain)
        writer = Writer(inputs, {})
        results: list[int] = []
        combine: list[Combine] = []
        number: dict[Node, int] = {}
        for one in self.cores():
            number[one] = len(combine)
            dtype = accumulator(one.srcs[0].dtype.name)
            results.append(writer.cast(writer.write(one.srcs[0]), dtype))
            combine.append(Combine(ROWS[one.arg.options[0]].combine, dtype))
        element = writer.program(results)
        frozen, dims, *_ = inputs.freeze()
        after = Inputs(core.shape)
        writer = Writer(after, {})
        for leaf, (_, one) in self.leaves.items():
            at = number[one]
            writer.offers[leaf] = Instr("combined", (), combine[at].dtype, at)
        finish = writer.program([writer.write(value) for value, *_ in self.outputs])
        behind = tuple(_padded(i, len(dims)) for i in after.freeze()[0])
        whole = Input("array", self.offsets.dtype.name, "whole", self.offsets, (),
                      self.offsets.size)  # fmt: skip
        return Stage(
            "segments", element, tuple(combine), _moved(finish, len(frozen)),
            (*frozen, *behind, whole), tuple(self._output(*one, len(dims)) for one in self.outputs),
            core.arg.domain, dims, how=How(core.arg.domain, len(results), (), 0, core.arg.label),
        )  # fmt: skip

    def _output(self, value: Node, shown: Node, layout: Shape | None, rank: int) -> Output:
        itemsize = value.dtype.itemsize
        plain = layout is None or follows(self.core.shape, layout, itemsize)
        strides = () if plain or layout is None else (*layout, *(0,) * (rank - 1))
        return Output(value.dtype.name, shown.shape, shown, strides)


def _padded(i: Input, rank: int) -> Input:
    """Return an input of the finish with a map of as many axes as the elements have."""
    if not i.mapped:
        return i
    more = rank - len(i.strides)
    return replace(
        i, strides=(*i.strides, *(0,) * more), moves=(*i.moves, *(False,) * more), inner=None,
        turned=None,
    )  # fmt: skip


def _moved(program: Program, by: int) -> Program:
    """Return a program whose inputs have other slots."""
    instrs = tuple(
        replace(one, slot=one.slot + by) if one.op in ("load", "scalar", "gather") else one
        for one in program.instrs
    )
    return Program(instrs, program.results)


def of_elements(stage: Stage) -> Stage:
    """Return a stage of segments with the inputs of its element program only."""
    return _only(stage, stage.element.slots)


def of_segments(stage: Stage) -> Stage:
    """Return the finish of a stage of segments as a stage over them."""
    assert stage.finish is not None
    one = _only(stage, stage.finish.slots)
    count = (stage.outputs[0].size,)
    inputs = tuple(
        replace(i, strides=i.strides[:1], moves=i.moves[:1]) if i.mapped else i for i in one.inputs
    )
    outputs = tuple(replace(o, strides=o.strides[:1]) for o in stage.outputs)
    return replace(one, inputs=inputs, outputs=outputs, shape=count, dims=count)


def _only(stage: Stage, slots: tuple[int, ...]) -> Stage:
    inputs = tuple(
        i if at in slots else replace(i, layout="whole") for at, i in enumerate(stage.inputs)
    )
    return replace(stage, inputs=inputs)
