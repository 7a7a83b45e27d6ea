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
from typing import Any

import numpy as np

from itfuse.config import setting
from itfuse.engines.ready import Ready
from itfuse.engines.rows import RowsBuilt
from itfuse.engines.scan import ScanBuilt
from itfuse.engines.segments import SegmentsBuilt
from itfuse.engines.select import select_blocks
from itfuse.engines.tape import (
    BLOCK,
    Block,
    Scattered,
    Tape,
    block_shape,
    cut_of,
    runs,
    target,
    view,
    window,
)
from itfuse.engines.terminals import TerminalBuilt
from itfuse.engines.tree import Leaves, Operator, combine_leaves
from itfuse.errors import DeviceError
from itfuse.expr import Memory
from itfuse.plan.order import leaf
from itfuse.plan.stages import Stage, fields


class CpuBuilt:
    """A stage ready to run: which buffer each value uses, decided once for its structure."""

    def __init__(self, stage: Stage) -> None:
        self.element = Tape(stage.element)
        self.finish = Tape(stage.finish) if stage.finish else None
        self.operators = [Operator(one) for one in stage.combine]

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Run over `operands` (arrays and scalars, one for each stage input) into `outputs`."""
        with np.errstate(all="ignore"):  # NumPy's values without its warnings
            arrays = [view(stage, at, x) for at, x in enumerate(operands)] if stage.size else []
            if stage.primitive == "transform":
                self._transform(stage, arrays, outputs)
            elif stage.primitive == "select":
                run = _cutter(stage, arrays), _blocks, _in_parallel
                select_blocks(stage, self.element, outputs, *run)
            else:
                self._reduce(stage, operands, arrays, outputs)

    def _transform(self, stage: Stage, arrays: list[Any], outputs: list[Any]) -> None:
        targets = [target(stage, *pair) for pair in zip(stage.outputs, outputs, strict=True)]
        # A block is stored only after all of it is computed, so that `out` may be an input; also
        # where `out` has strides: NumPy 2.4's isfinite and isnan are wrong from strides to strides.
        direct = all(goal.flags.c_contiguous for goal in targets) and not any(
            np.may_share_memory(goal, array)
            for goal in targets
            for array in arrays
            if isinstance(array, np.ndarray)
        )

        cut = _cutter(stage, arrays)

        def work(numbers: Iterator[int]) -> None:
            scratch = self.element.scratch()
            for number in numbers:
                for block in _blocks(stage, number):
                    places = [one[block] for one in targets]
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
        ops = self.operators
        kinds = [name for name, _ in fields(stage.combine)]
        span = leaf(stage.size)
        partials = [op.nothing((-(-stage.size // span),)) for op in ops]
        cut = _cutter(stage, arrays)

        def work(numbers: Iterator[int]) -> None:
            scratch = self.element.scratch()
            leaves = [Leaves(op, p, span) for op, p in zip(ops, partials, strict=True)]
            whole: list[Any] = []
            for number in numbers:
                filled = 0
                blocks = list(_blocks(stage, number))
                for block in blocks:
                    shape = block_shape(stage.dims, block)
                    size = math.prod(shape)
                    position = None
                    if self.element.places:
                        start = number * BLOCK + filled
                        position = np.arange(start, start + size).reshape(shape)
                    values = self.element.run(cut(block), scratch(shape), None, position=position)
                    if len(blocks) == len(shape) == 1:
                        values = [v if np.shape(v) == shape else np.full(shape, v) for v in values]
                        break
                    # Gathered first, so that the order of a sum does not depend on strides.
                    whole = whole or [np.empty(BLOCK, kind) for kind in kinds]
                    for buffer, value in zip(whole, values, strict=True):
                        buffer[filled : filled + size].reshape(shape)[...] = value
                    filled += size
                else:
                    values = [one[:filled] for one in whole]
                given = iter(values)
                for one in leaves:
                    one.add(number * (BLOCK // span), tuple(next(given) for _ in one.op.dtypes))
            for one in leaves:
                one.finish()

        _in_parallel(work, -(-stage.size // BLOCK), least=_REDUCED)
        combined = [
            field for op, p in zip(ops, partials, strict=True) for field in combine_leaves(op, p)
        ]
        assert stage.finish is not None
        fixed = list(operands)
        for slot in stage.finish.slots:
            i, x = stage.inputs[slot], operands[slot]
            if i.layout == "gathered":
                fixed[slot] = Scattered(x)
            elif i.kind not in ("scalar", "iota"):
                fixed[slot] = window(x, i.offset, (), ())[()]
        done = self.finish.run(fixed, self.finish.scratch(1)(()), None, combined=combined)
        for out, value in zip(outputs, done, strict=True):
            out[...] = value


def _cutter(stage: Stage, arrays: list[Any]) -> Callable[[Block], list[Any]]:
    """Return a function that gives every input's elements of a block."""
    fixed: list[Any] = list(arrays)
    moving = []
    for at, (i, x) in enumerate(zip(stage.inputs, arrays, strict=False)):
        if i.kind == "scalar" or i.layout in ("gathered", "whole"):
            continue
        if i.kind == "iota" or i.layout != "fixed":
            moving.append((at, x))
        else:
            fixed[at] = x[(0,) * x.ndim]

    def cut(block: Block) -> list[Any]:
        inputs = fixed.copy()
        for at, x in moving:
            inputs[at] = cut_of(stage, at, x, block)
        return inputs

    return cut


def _blocks(stage: Stage, number: int) -> Iterator[Block]:
    """Cut block `number` of the domain into rectangles of `dims`, in order."""
    return runs(stage.dims, number * BLOCK, min((number + 1) * BLOCK, stage.size))


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
    try:
        wait(futures)
    except BaseException:  # Ctrl-C: nobody may still write into the caller's arrays
        stopped.set()
        wait(futures)
        raise
    for future in futures:
        future.result()


def _forget_pools() -> None:
    _pools.clear()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget_pools)


class CpuReady(Ready):
    """A plan of the CPU engine."""

    array_type = np.ndarray


class CpuEngine:
    """Runs plans with NumPy, on any machine."""

    name = "cpu"
    ready = CpuReady

    def build(
        self, stage: Stage
    ) -> CpuBuilt | RowsBuilt | ScanBuilt | SegmentsBuilt | TerminalBuilt:
        """Prepare a stage."""
        if stage.primitive == "scan":
            return ScanBuilt(stage, _cutter, _in_parallel)
        if stage.primitive == "segments":
            return SegmentsBuilt(stage, _cutter, _in_parallel)
        if stage.how is not None:
            return TerminalBuilt(stage, _cutter, _blocks, _in_parallel)
        return RowsBuilt(stage, _in_parallel) if stage.by_rows else CpuBuilt(stage)

    def build_key(self) -> tuple[Any, ...]:
        """Return what decides a build beside the stage."""
        return ("cpu",)

    def memory(self, array: Any) -> Memory:
        """Say where a NumPy array lies."""
        return Memory("cpu", array.__array_interface__["data"][0], array.strides)

    def adopt(self, array: Any) -> tuple[Any, None]:
        """Return what is no NumPy array: it has no place here."""
        return array, None

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an uninitialised array."""
        return np.empty(shape, dtype)

    def read(self, array: Any) -> Any:
        """Return an array on the host: itself."""
        return array

    def cut(self, array: Any, count: int) -> Any:
        """Return the first `count` elements of a new array, giving the rest of its memory back."""
        array.resize(count, refcheck=False)
        return array

    def on(self, stream: Any) -> Any:
        """Return an empty context; there are no streams."""
        if stream is not None:
            raise DeviceError(f"stream={stream!r}: the arrays are on cpu, which has no streams")
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

    def seconds(self, call: Callable[[], object], repeat: int, batch: int) -> list[float]:
        """Time `repeat` batches of calls by the wall's clock; return the seconds of one call."""
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            for _ in range(batch):
                call()
            times.append((time.perf_counter() - start) / batch)
        return times

    def copy_speed(self) -> float:
        """Return the bytes per second, read and written, of a copy measured here."""
        return self._bandwidth
