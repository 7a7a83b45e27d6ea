"""Programs in NumPy: straight-line code over one block, in buffers that are used again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.ops import ROWS
from itfuse.plan.index import contiguous_strides
from itfuse.plan.order import LARGE_LEAF
from itfuse.plan.stages import Input, Instr, Output, Program, Stage

BLOCK = max(LARGE_LEAF, 1 << 18)
"""Elements of a block, whole leaves. A few buffers of it stay in the last-level cache. Smaller ones
would fit the inner caches, but NumPy gives up the interpreter lock in every call, and handing it
over costs more than it wins (2 cores, abs and sum: 2**16 29 ms, 2**18 17 ms, 2**20 19 ms)."""

Dims = tuple[int, ...]
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
            if instr.op not in ROWS and instr.op != "gather":
                self.sources.append((at, instr))
                continue
            pool = free.setdefault(instr.dtype, [])
            if not pool:
                pool.append(len(self.dtypes))
                self.dtypes.append(instr.dtype)
            buffer[at] = pool.pop()
            if instr.op == "gather":
                twin: Any = Gather(instr.slot)
            else:
                twin = ROWS[instr.op].twin(np.dtype(instr.dtype).kind)
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
            if type(numpy) is Gather:
                inputs[numpy.slot].read(values[args[0]], out)
            else:
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


@dataclass(frozen=True)
class Gather:
    """The step that reads the array input `slot` at places computed before."""

    slot: int


class _Window:
    """Memory of an array, as NumPy's array interface describes it."""

    def __init__(self, array: Any, offset: int, dims: Dims, steps: Dims) -> None:
        self.array = array
        self.__array_interface__ = {
            **array.__array_interface__,
            "data": (array.__array_interface__["data"][0] + offset, True),
            "shape": dims,
            "strides": steps,
        }


def window(array: Any, offset: int, dims: Dims, steps: Dims) -> Any:
    """Return a read-only view: from `offset` bytes after the first element, in byte steps."""
    view: Any = np.asarray(_Window(array, offset, dims, steps))
    if view.dtype != array.dtype:  # a dtype that the interface does not name
        view = view.view(array.dtype)
    return view


def target(stage: Stage, output: Output, array: Any) -> Any:
    """Return the array to write, over `stage.dims`."""
    if array.flags.c_contiguous and not output.strides:
        return array.reshape(stage.dims)
    steps = output.strides or contiguous_strides(stage.dims, array.itemsize)
    return np.lib.stride_tricks.as_strided(array, stage.dims, steps)


class Scattered:
    """An array that is read at byte offsets from its first element."""

    def __init__(self, array: Any) -> None:
        reach = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
        if not array.size:  # nothing is read
            reach = []
        self.low = sum(r for r in reach if r < 0)
        high = sum(r for r in reach if r > 0)
        unit = array.itemsize
        if any(step % unit for step in array.strides):
            unit = 1
        # A power of two, as every itemsize is: a shift is much faster than a division.
        self.shift = unit.bit_length() - 1
        self.elements = window(array, self.low, ((high - self.low) // unit + 1,), (unit,))

    def read(self, places: Any, out: Any) -> None:
        """Copy the elements at `places` into `out`."""
        at = places - self.low if self.low else places
        out[...] = self.elements[at >> self.shift if self.shift else at]


def view(stage: Stage, at: int, operand: Any) -> Any:
    """Return input `at` over the stage's `dims`, without copying; or as what is read otherwise."""
    source = stage.inputs[at]
    if source.kind in ("scalar", "iota"):
        return operand
    if source.layout == "gathered":
        return Scattered(operand)
    plain = source.layout == "linear" and not stage.by_rows and not source.offset
    if plain and operand.size == stage.size and operand.flags.c_contiguous:
        return operand.reshape(stage.dims)
    steps = source.strides if source.layout != "fixed" else (0,) * len(stage.dims)
    if source.layout == "linear":
        steps = contiguous_strides(stage.dims, operand.itemsize)
    return window(operand, source.offset, stage.dims, steps)


def cut_of(stage: Stage, at: int, array: Any, block: Block) -> Any:
    """Return the elements of a block of input `at`, of which `array` is the `view`."""
    source = stage.inputs[at]
    if source.kind == "iota":
        return numbers(source, stage.dims, block)
    if source.kind == "scalar" or source.layout == "gathered":
        return array
    return array[block]


def numbers(i: Input, dims: Dims, block: Block) -> Any:
    """Return the numbers of an iota over a block."""
    value: Any = np.int64(i.offset)
    whole = (*block, *(slice(None),) * (len(dims) - len(block)))
    inside = [axis for axis, cut in enumerate(whole) if isinstance(cut, slice)]
    for axis, (size, cut, step) in enumerate(zip(dims, whole, i.strides, strict=True)):
        if not isinstance(cut, slice):
            value = value + cut * step
        elif step:
            one = np.arange(*cut.indices(size), dtype=np.int64) * step
            value = value + one.reshape(-1, *(1,) * (len(inside) - 1 - inside.index(axis)))
    return np.broadcast_to(value, block_shape(dims, block))
