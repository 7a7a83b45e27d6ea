"""The CPU engine: a blocked NumPy interpreter, and the living definition of every result.

It runs the Stage itself and never looks at generated code, so it shares no bug with it. Each
thread walks blocks that stay in cache, in buffers that it reuses; nothing of the input's size is
allocated. Reductions combine in the order of plan/order.py.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.config import setting
from itfuse.engines.tree import Leaves, combine_leaves
from itfuse.expr import Memory
from itfuse.ops import OPS
from itfuse.plan.index import contiguous_strides
from itfuse.plan.order import LARGE_LEAF, leaf
from itfuse.plan.stages import Input, Output, Program, Stage

BLOCK = max(LARGE_LEAF, 1 << 18)
"""Elements of a block, whole leaves. A few buffers of it stay in the last-level cache. Smaller ones
would fit the inner caches, but NumPy gives up the interpreter lock in every call, and handing it
over costs more than it wins (2 cores, abs and sum: 2**16 29 ms, 2**18 17 ms, 2**20 19 ms)."""

Dims = tuple[int, ...]
Block = tuple[Any, ...]  # an index into arrays of the shape `stage.dims`


class CpuBuilt:
    """A stage ready to run: which buffer each value uses, decided once for its structure."""

    def __init__(self, stage: Stage) -> None:
        self.element = Tape(stage.element)
        self.finish = Tape(stage.finish) if stage.finish else None

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Run over `operands` (arrays and scalars, one for each stage input) into `outputs`."""
        with np.errstate(all="ignore"):  # NumPy's values without its warnings
            arrays = [_view(stage, at, x) for at, x in enumerate(operands)] if stage.size else []
            if stage.primitive == "transform":
                self._transform(stage, arrays, outputs)
            else:
                self._reduce(stage, operands, arrays, outputs)

    def _transform(self, stage: Stage, arrays: list[Any], outputs: list[Any]) -> None:
        targets = [_target(stage, *pair) for pair in zip(stage.outputs, outputs, strict=True)]
        # A block is stored only after all of it is computed, so that `out` may be an input.
        direct = not any(
            np.may_share_memory(target, array)
            for target in targets
            for array in arrays
            if isinstance(array, np.ndarray)
        )

        cut = _cutter(stage, arrays)

        def work(numbers: Iterator[int]) -> None:
            scratch = self.element.scratch()
            for number in numbers:
                for block in _blocks(stage, number):
                    places = [target[block] for target in targets]
                    goal = places if direct else None
                    values = self.element.run(cut(block), scratch(places[0].shape), goal)
                    for place, value in zip(places, values, strict=True):
                        if value is not place:
                            place[...] = value

        _in_parallel(work, -(-stage.size // BLOCK))

    def _reduce(
        self, stage: Stage, operands: list[Any], arrays: list[Any], outputs: list[Any]
    ) -> None:
        assert self.finish is not None
        rows = [OPS[one.op] for one in stage.combine]
        span = leaf(stage.size)
        partials = [np.empty(-(-stage.size // span), one.dtype) for one in stage.combine]
        cut = _cutter(stage, arrays)

        def work(numbers: Iterator[int]) -> None:
            scratch = self.element.scratch()
            leaves = [Leaves(row, p, span) for row, p in zip(rows, partials, strict=True)]
            whole: list[Any] = []
            for number in numbers:
                filled = 0
                blocks = list(_blocks(stage, number))
                for block in blocks:
                    shape = _block_shape(stage.dims, block)
                    values = self.element.run(cut(block), scratch(shape), None)
                    if len(blocks) == len(shape) == 1:
                        values = [v if np.shape(v) == shape else np.full(shape, v) for v in values]
                        break
                    # Gathered first, so that the order of a sum does not depend on strides.
                    whole = whole or [np.empty(BLOCK, one.dtype) for one in stage.combine]
                    size = math.prod(shape)
                    for buffer, value in zip(whole, values, strict=True):
                        buffer[filled : filled + size].reshape(shape)[...] = value
                    filled += size
                else:
                    values = [one[:filled] for one in whole]
                for one, value in zip(leaves, values, strict=True):
                    one.add(number * (BLOCK // span), value)
            for one in leaves:
                one.finish()

        _in_parallel(work, -(-stage.size // BLOCK), least=_REDUCED)
        combined = [combine_leaves(row, p) for row, p in zip(rows, partials, strict=True)]
        assert stage.finish is not None
        fixed = list(operands)
        for slot in stage.finish.slots:
            i = stage.inputs[slot]
            if i.layout == "gathered":
                fixed[slot] = _Bytes(operands[slot])
            elif i.kind != "scalar":
                fixed[slot] = _window(operands[slot], i.offset, (), ())[()]
        done = self.finish.run(fixed, self.finish.scratch(1)(()), None, combined)
        for out, value in zip(outputs, done, strict=True):
            out[...] = value


class Tape:
    """A Program with buffers assigned: a buffer is free again after its value's last use."""

    def __init__(self, program: Program) -> None:
        self.results = program.results
        self.length = len(program.instrs)
        last = {arg: at for at, instr in enumerate(program.instrs) for arg in instr.args}
        last.update(dict.fromkeys(program.results, self.length))
        free: dict[str, list[int]] = {}
        buffer: dict[int, int] = {}
        self.dtypes: list[str] = []
        self.sources: list[tuple[int, int, bool]] = []  # position, slot, whether combined
        self.steps: list[tuple[int, Any, tuple[int, ...], int]] = []
        for at, instr in enumerate(program.instrs):
            if instr.op not in OPS and instr.op != "gather":
                self.sources.append((at, instr.slot, instr.op == "combined"))
                continue
            pool = free.setdefault(instr.dtype, [])
            if not pool:
                pool.append(len(self.dtypes))
                self.dtypes.append(instr.dtype)
            buffer[at] = pool.pop()
            numpy = _Gather(instr.slot) if instr.op == "gather" else OPS[instr.op].numpy
            self.steps.append((at, numpy, instr.args, buffer[at]))
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
        combined: list[Any] | None = None,
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
        combined : list, optional
            The combined values of a reduction.
        """
        values: list[Any] = [None] * self.length
        for at, slot, is_combined in self.sources:
            values[at] = combined[slot] if is_combined and combined else inputs[slot]
        goal = dict(zip(self.results, places, strict=True)) if places else {}
        for at, numpy, args, spot in self.steps:
            out = values[at] = goal.get(at, buffers[spot])
            if type(numpy) is _Gather:
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


@dataclass(frozen=True)
class _Gather:
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


def _window(array: Any, offset: int, dims: Dims, steps: Dims) -> Any:
    """Return a read-only view: from `offset` bytes after the first element, in byte steps."""
    view: Any = np.asarray(_Window(array, offset, dims, steps))
    if view.dtype != array.dtype:  # a dtype that the interface does not name
        view.dtype = array.dtype
    return view


def _target(stage: Stage, output: Output, array: Any) -> Any:
    """Return the array to write, over `stage.dims`."""
    if array.flags.c_contiguous and not output.strides:
        return array.reshape(stage.dims)
    steps = output.strides or contiguous_strides(stage.dims, array.itemsize)
    return np.lib.stride_tricks.as_strided(array, stage.dims, steps)


class _Bytes:
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
        self.elements = _window(array, self.low, ((high - self.low) // unit + 1,), (unit,))

    def read(self, places: Any, out: Any) -> None:
        """Copy the elements at `places` into `out`."""
        at = places - self.low if self.low else places
        out[...] = self.elements[at >> self.shift if self.shift else at]


def _view(stage: Stage, at: int, operand: Any) -> Any:
    """Return an input as its elements over `stage.dims`, or as what a gather reads."""
    source = stage.inputs[at]
    if source.kind in ("scalar", "iota"):
        return operand
    if source.layout == "gathered":
        return _Bytes(operand)
    if source.layout == "linear" and not source.offset and _plain(operand, stage):
        return operand.reshape(stage.dims)
    steps = source.strides if source.layout == "strided" else (0,) * len(stage.dims)
    if source.layout == "linear":
        steps = contiguous_strides(stage.dims, operand.itemsize)
    return _window(operand, source.offset, stage.dims, steps)


def _plain(array: Any, stage: Stage) -> bool:
    return bool(array.size == stage.size and array.flags.c_contiguous)


def _cutter(stage: Stage, arrays: list[Any]) -> Callable[[Block], list[Any]]:
    """Return a function that gives every input's elements of a block."""
    fixed: list[Any] = list(arrays)
    moving = []
    numbers = []
    for at, (i, x) in enumerate(zip(stage.inputs, arrays, strict=False)):
        if i.kind == "scalar" or i.layout == "gathered":
            continue
        if i.kind == "iota":
            numbers.append((at, i))
        elif i.layout == "fixed":
            fixed[at] = x[(0,) * x.ndim]
        else:
            moving.append((at, x))

    def cut(block: Block) -> list[Any]:
        inputs = fixed.copy()
        for at, x in moving:
            inputs[at] = x[block]
        for at, i in numbers:
            inputs[at] = _numbers(i, stage.dims, block)
        return inputs

    return cut


def _numbers(i: Input, dims: Dims, block: Block) -> Any:
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
    return np.broadcast_to(value, _block_shape(dims, block))


def _blocks(stage: Stage, number: int) -> Iterator[Block]:
    """Cut block `number` of the domain into rectangles of `dims`, in order."""
    return _runs(stage.dims, number * BLOCK, min((number + 1) * BLOCK, stage.size), ())


def _runs(dims: tuple[int, ...], start: int, stop: int, outer: tuple[int, ...]) -> Iterator[Block]:
    if len(dims) == 1:
        yield (*outer, slice(start, stop))
        return
    inner = math.prod(dims[1:])
    first, head = divmod(start, inner)
    last, tail = divmod(stop, inner)
    if first == last:
        yield from _runs(dims[1:], head, tail, (*outer, first))
        return
    if head:
        yield from _runs(dims[1:], head, inner, (*outer, first))
        first += 1
    if first < last:
        yield (*outer, slice(first, last))
    if tail:
        yield from _runs(dims[1:], 0, tail, (*outer, last))


def _block_shape(dims: tuple[int, ...], block: Block) -> tuple[int, ...]:
    cut = [range(n)[b] for n, b in zip(dims, block, strict=False) if isinstance(b, slice)]
    return (*(len(r) for r in cut), *dims[len(block) :])


_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def _threads() -> int:
    wished = setting("threads")
    if wished is not None:
        return int(wished)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


_REDUCED = 32
"""Blocks a thread of a reduction: with fewer, 2 threads measured slower than 1."""


def _in_parallel(work: Callable[[Iterator[int]], None], blocks: int, least: int = 1) -> None:
    """Run `work` on all block numbers, shared out as threads ask; it never changes a result."""
    count = min(_threads(), blocks // least)
    if count <= 1:
        work(iter(range(blocks)))
        return
    with _pools_lock:
        pool = _pools.get(count)
        if pool is None:
            pool = _pools[count] = ThreadPoolExecutor(count, thread_name_prefix="itfuse-cpu")
    numbers = itertools.count()
    stopped = threading.Event()

    def share() -> Iterator[int]:
        while not stopped.is_set() and (number := next(numbers)) < blocks:
            yield number

    def one() -> None:
        try:
            with np.errstate(all="ignore"):  # the error state is each thread's own
                work(share())
        except BaseException:
            stopped.set()
            raise

    futures = [pool.submit(one) for _ in range(count)]
    wait(futures)  # also after an error: nobody still writes into the caller's arrays
    for future in futures:
        future.result()


def _forget_pools() -> None:
    _pools.clear()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget_pools)


class CpuEngine:
    """Runs plans with NumPy, on any machine."""

    name = "cpu"

    def build(self, stage: Stage) -> CpuBuilt:
        """Prepare a stage."""
        return CpuBuilt(stage)

    def build_key(self) -> tuple[Any, ...]:
        """Return what decides a build beside the stage."""
        return ("cpu",)

    def memory(self, array: Any) -> Memory:
        """Say where a NumPy array lies."""
        return Memory("cpu", array.__array_interface__["data"][0], array.strides)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an uninitialised array."""
        return np.empty(shape, dtype)

    def on(self, stream: Any) -> Any:
        """Return an empty context; there are no streams."""
        return contextlib.nullcontext()

    @functools.cached_property
    def _bandwidth(self) -> float:
        source = np.ones(1 << 23)  # 64 MiB
        target = np.empty_like(source)
        times = []
        for _ in range(4):
            start = time.perf_counter()
            np.copyto(target, source)
            times.append(time.perf_counter() - start)
        return 2 * source.nbytes / min(times)

    def bandwidth(self) -> float:
        """Return the memory bandwidth in bytes per second: a copy, measured once."""
        return self._bandwidth
