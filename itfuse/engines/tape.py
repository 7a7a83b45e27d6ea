"""Programs in NumPy: straight-line code over one block, in buffers that are used again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from itfuse.ops import OPS
from itfuse.plan.order import LARGE_LEAF
from itfuse.plan.stages import Instr, Program, Stage

BLOCK = max(LARGE_LEAF, 1 << 18)
"""Elements of a block, whole leaves. A few buffers of it stay in the last-level cache. Smaller ones
would fit the inner caches, but NumPy gives up the interpreter lock in every call, and handing it
over costs more than it wins (2 cores, abs and sum: 2**16 29 ms, 2**18 17 ms, 2**20 19 ms)."""

Block = tuple[Any, ...]  # an index into arrays of the shape `stage.dims`


class Tape:
    """A Program with buffers assigned: a buffer is free again after its value's last use."""

    def __init__(self, program: Program) -> None:
        self.results = program.results
        self.places = any(instr.op == "position" for instr in program.instrs)
        self.length = len(program.instrs)
        last = {arg: at for at, instr in enumerate(program.instrs) for arg in instr.args}
        last.update(dict.fromkeys(program.results, self.length))
        free: dict[str, list[int]] = {}
        buffer: dict[int, int] = {}
        self.dtypes: list[str] = []
        self.sources: list[tuple[int, Instr]] = []  # what needs no computing, and its place
        self.steps: list[tuple[int, Any, tuple[int, ...], int]] = []
        for at, instr in enumerate(program.instrs):
            if instr.op not in OPS:
                self.sources.append((at, instr))
                continue
            pool = free.setdefault(instr.dtype, [])
            if not pool:
                pool.append(len(self.dtypes))
                self.dtypes.append(instr.dtype)
            buffer[at] = pool.pop()
            twin = OPS[instr.op].twin(np.dtype(instr.dtype).kind)
            self.steps.append((at, twin, instr.args, buffer[at]))
            # Freed only now: an op never writes over its own operands.
            for arg in set(instr.args):
                if last[arg] == at and arg in buffer:
                    free[program.instrs[arg].dtype].append(buffer[arg])

    def scratch(self, size: int = BLOCK) -> Callable[[tuple[int, ...]], list[Any]]:
        """Return a function that gives this thread's buffers in the shape of a block."""
        own = _borrow(self.dtypes, size)
        full = (size,)

        def shaped(shape: tuple[int, ...]) -> list[Any]:
            if shape == full:
                return own
            count = math.prod(shape)
            return [one[:count].reshape(shape) for one in own]

        return shaped

    def run(
        self,
        inputs: list[Any],
        buffers: list[Any],
        places: list[Any] | None,
        *,
        combined: Sequence[Any] = (),
        rows: Sequence[Any] = (),
        position: Any = None,
    ) -> list[Any]:
        """Evaluate one block.

        Parameters
        ----------
        inputs : list
            For each stage input its elements of this block (or the one element, or scalar).
        buffers : list of numpy.ndarray
            From `scratch`, in the block's shape.
        places : list of numpy.ndarray, optional
            Where the results may be written directly.
        combined : sequence
            The combined fields of a reduction.
        rows : sequence
            The row values so far.
        position : numpy.ndarray, optional
            Each element's place among those that are reduced together.
        """
        values: list[Any] = [None] * self.length
        for at, instr in self.sources:
            if instr.op == "position":
                values[at] = position
            elif instr.op == "constant":
                values[at] = np.dtype(instr.dtype).type(instr.slot)
            else:
                given = {"combined": combined, "row": rows}.get(instr.op, inputs)
                values[at] = given[instr.slot]
        goal = dict(zip(self.results, places, strict=True)) if places else {}
        for at, numpy, args, spot in self.steps:
            out = values[at] = goal.get(at, buffers[spot])
            numpy(*[values[arg] for arg in args], out=out)
        return [values[at] for at in self.results]


_buffers = threading.local()


def _borrow(dtypes: list[str], size: int) -> list[Any]:
    """Return buffers that this thread keeps: fresh memory costs a page fault every 4 KiB."""
    if size != BLOCK:
        return [np.empty(size, dtype) for dtype in dtypes]
    kept: dict[str, list[Any]] = _buffers.__dict__
    taken: dict[str, int] = {}
    own = []
    for dtype in dtypes:
        at = taken[dtype] = taken.get(dtype, -1) + 1
        pool = kept.setdefault(dtype, [])
        if at == len(pool):
            pool.append(np.empty(BLOCK, dtype))
        own.append(pool[at])
    return own


def runs(dims: tuple[int, ...], start: int, stop: int, outer: Block = ()) -> Iterator[Block]:
    """Cut the elements `start` to `stop` of an array of shape `dims` into rectangles, in order."""
    if len(dims) == 1:
        yield (*outer, slice(start, stop))
        return
    inner = math.prod(dims[1:])
    first, head = divmod(start, inner)
    last, tail = divmod(stop, inner)
    if first == last:
        yield from runs(dims[1:], head, tail, (*outer, first))
        return
    if head:
        yield from runs(dims[1:], head, inner, (*outer, first))
        first += 1
    if first < last:
        yield (*outer, slice(first, last))
    if tail:
        yield from runs(dims[1:], 0, tail, (*outer, last))


def block_shape(dims: tuple[int, ...], block: Block) -> tuple[int, ...]:
    """Return the shape of a rectangle."""
    cut = [range(n)[b] for n, b in zip(dims, block, strict=False) if isinstance(b, slice)]
    return (*(len(r) for r in cut), *dims[len(block) :])


def view(stage: Stage, at: int, operand: Any) -> Any:
    """Return input `at` over the stage's `dims`, without copying; a scalar as it is."""
    source = stage.inputs[at]
    if source.kind == "scalar":
        return operand
    if source.layout == "linear" and not stage.by_rows:
        return operand.reshape(stage.dims)
    steps = source.strides if source.layout != "fixed" else (0,) * len(stage.dims)
    return np.lib.stride_tricks.as_strided(operand, stage.dims, steps, writeable=False)
