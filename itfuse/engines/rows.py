"""The CPU engine's `rows` and `columns`: blocks of whole rows, walked phase by phase."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from itfuse.engines.tape import (
    BLOCK,
    Block,
    Scattered,
    Tape,
    block_shape,
    cut_of,
    numbers,
    runs,
    view,
    window,
)
from itfuse.engines.tree import Fields, Operator, combine_leaves, leaves_of
from itfuse.plan.order import leaf
from itfuse.plan.stages import Phase, Stage

Parallel = Callable[[Callable[[Iterator[int]], None], int], None]


class _PhaseBuilt:
    """One walk, ready to run."""

    def __init__(self, phase: Phase) -> None:
        self.element = Tape(phase.element)
        self.operators = [Operator(one) for one in phase.combine]
        self.finish = Tape(phase.finish) if phase.finish else None

    def split(self, values: Sequence[Any]) -> list[Fields]:
        """Return the fields of each operator; what is left over are outputs."""
        given = iter(values)
        return [tuple(next(given) for _ in op.dtypes) for op in self.operators]


class RowsBuilt:
    """A stage over rows, ready to run.

    Parameters
    ----------
    stage : Stage
        A `rows` or `columns` stage.
    parallel : callable
        Runs a function on the numbers of all blocks, shared out among threads.
    """

    def __init__(self, stage: Stage, parallel: Parallel) -> None:
        self.phases = [_PhaseBuilt(phase) for phase in stage.phases]
        self.parallel = parallel

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Run over `operands` (arrays and scalars, one for each stage input) into `outputs`."""
        if stage.rows == 0:
            return
        # Rows of nothing are not walked; a block has whole rows, or a part of one.
        each = max(1, BLOCK // max(1, stage.length))

        def work(numbers: Iterator[int]) -> None:
            for number in numbers:
                last = min((number + 1) * each, stage.rows)
                for block in runs(stage.dims[: stage.kept], number * each, last):
                    _Block(self.phases, stage, operands, outputs, block).run()

        with np.errstate(all="ignore"):
            self.parallel(work, -(-stage.rows // each))


class _Block:
    """A rectangle of rows.

    Arrays of elements have the axes of the rows first and those of the block then where memory
    lies along the rows (`columns`: the other way round), so that NumPy walks memory in order.
    """

    def __init__(
        self,
        phases: list[_PhaseBuilt],
        stage: Stage,
        operands: list[Any],
        outputs: list[Any],
        block: Block,
    ) -> None:
        self.phases, self.stage = phases, stage
        self.block = block
        self.across = stage.primitive == "columns"
        kept, self.inner = stage.dims[: stage.kept], stage.dims[stage.kept :]
        self.shape = block_shape(kept, block)
        self.count = math.prod(self.shape)
        self.once = [self._once(at, x, kept) for at, x in enumerate(operands)]
        self.each: list[Any] = [
            cut_of(stage, at, view(stage, at, x), block) if stage.length else None
            for at, x in enumerate(operands)
        ]
        several = stage.element_outputs
        self.elements = [out.reshape(stage.dims)[block] for out in outputs[:several]]
        self.values = [out.reshape(kept)[block] for out in outputs[several:]]
        self.rows: list[Any] = []

    def _once(self, at: int, operand: Any, kept: tuple[int, ...]) -> Any:
        """Return an input over the rows, for what is computed once for each."""
        source = self.stage.inputs[at]
        if source.kind == "scalar":
            return operand
        if source.layout == "gathered":
            return Scattered(operand)
        if source.kind == "iota":
            along = source.strides[: len(kept)]
            return numbers(replace(source, strides=along), kept, self.block)
        steps = source.strides[: len(kept)] if source.layout != "fixed" else (0,) * len(kept)
        return window(operand, source.offset, kept, steps)[self.block]

    def run(self) -> None:
        """Walk the rows as often as there are phases."""
        for phase in self.phases:
            combined = self._walk(phase, last=phase is self.phases[-1])
            if phase.finish is not None:
                scratch = phase.finish.scratch(self.count)(self.shape)
                done = phase.finish.run(self.once, scratch, None, combined=combined, rows=self.rows)
                # Copies: the next phase uses the buffers again.
                self.rows += [np.array(np.broadcast_to(value, self.shape)) for value in done]
        for place, at in zip(self.values, self.stage.written, strict=True):
            place[...] = self.rows[at]

    def _walk(self, phase: _PhaseBuilt, last: bool) -> list[Any]:
        length = self.stage.length
        span = leaf(length)
        parts: list[list[Fields]] = [[] for _ in phase.operators]
        if length and not (phase.operators or (last and self.elements)):
            return []
        start = 0
        size = max(BLOCK // span * span, span)
        while start < length:
            stop = min(start + size, length)
            values = self._part(phase, start, stop, last)
            for op, part, fields in zip(phase.operators, parts, phase.split(values), strict=True):
                part.append(leaves_of(op, fields, span))
            start = stop
        combined = []
        for op, part in zip(phase.operators, parts, strict=True):
            leaves = [np.concatenate(f) for f in zip(*part, strict=True)] if part else None
            whole = op.nothing((0, self.count)) if leaves is None else tuple(leaves)
            combined += [np.reshape(f, self.shape) for f in combine_leaves(op, whole)]
        return combined

    def _part(self, phase: _PhaseBuilt, start: int, stop: int, last: bool) -> list[Any]:
        """Compute the elements `start` to `stop` of every row: (stop - start, rows) each."""
        wanted = sum(len(op.dtypes) for op in phase.operators)
        pieces: list[list[Any]] = [[] for _ in range(wanted)]
        pending = list(runs(self.inner, start, stop))
        for run in pending:
            values = self._rectangle(phase, run, start, last)
            if len(pending) > 1:  # the next rectangle is computed over this one
                values = [np.array(value) for value in values]
            size = math.prod(block_shape(self.inner, run))
            start += size
            for piece, value in zip(pieces, values, strict=False):
                if self.across:
                    piece.append(value.reshape(size, self.count))
                else:
                    piece.append(value.reshape(self.count, size).T)
        return [one[0] if len(one) == 1 else np.concatenate(one) for one in pieces]

    def _rectangle(self, phase: _PhaseBuilt, run: Block, start: int, last: bool) -> list[Any]:
        inner = block_shape(self.inner, run)
        mine = len(self.shape)
        whole = (*inner, *self.shape) if self.across else (*self.shape, *inner)
        flip = (*range(mine, mine + len(inner)), *range(mine))
        at = (slice(None),) * mine + run

        def turned(x: Any) -> Any:
            return x.transpose(flip) if self.across else x

        inputs = [
            x if i.kind == "scalar" or i.layout == "gathered" else turned(x[at])
            for i, x in zip(self.stage.inputs, self.each, strict=True)
        ]
        spread = (1,) * len(inner)
        rows = [
            row.reshape(spread + self.shape if self.across else self.shape + spread)
            for row in self.rows
        ]
        position = None
        if phase.element.places:
            position = np.arange(start, start + math.prod(inner)).reshape(inner)
            position = position.reshape((*inner, *(1,) * mine) if self.across else inner)
        scratch = phase.element.scratch()(whole)
        values = phase.element.run(inputs, scratch, None, rows=rows, position=position)
        if last and self.elements:
            for place, value in zip(self.elements, values[-len(self.elements) :], strict=True):
                turned(place[at])[...] = value
        return [v if np.shape(v) == whole else np.broadcast_to(v, whole) for v in values]
