"""The CPU engine: a blocked NumPy interpreter, and the living definition of every result.

It runs the Stage itself and never looks at generated code, so it shares no bug with it. Each
thread walks blocks that stay in its cache, in buffers that it reuses; nothing of the input's size
is allocated. The order of a reduction depends on the data's shape only: leaves of `LEAF`
consecutive elements, reduced by NumPy, then a balanced tree over the leaves.
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
from itfuse.expr import Memory
from itfuse.ops import OPS, identity
from itfuse.plan.stages import Program, Stage

LEAF = 1 << 14
"""Elements of a block. Ten float32 buffers of it fit in a 1 MiB L2 cache."""

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
        targets = [out.reshape(stage.dims) for out in outputs]
        # A block is stored only after all of it is computed, so that `out` may be an input.
        direct = not any(
            np.may_share_memory(target, array)
            for target in targets
            for array in arrays
            if isinstance(array, np.ndarray)
        )

        def work(leaves: list[int]) -> None:
            buffers = self.element.buffers()
            for leaf in leaves:
                for block in _blocks(stage, leaf):
                    places = [target[block] for target in targets]
                    values = self.element.run(
                        _cut(stage, arrays, block),
                        buffers,
                        places[0].shape,
                        places if direct else None,
                    )
                    for place, value in zip(places, values, strict=True):
                        if value is not place:
                            place[...] = value

        _in_parallel(work, -(-stage.size // LEAF))

    def _reduce(
        self, stage: Stage, operands: list[Any], arrays: list[Any], outputs: list[Any]
    ) -> None:
        assert self.finish is not None
        count = -(-stage.size // LEAF)
        rows = [OPS[one.op] for one in stage.combine]
        partials = [np.empty(count, one.dtype) for one in stage.combine]

        def work(leaves: list[int]) -> None:
            buffers = self.element.buffers()
            whole = [np.empty(LEAF, one.dtype) for one in stage.combine]
            for leaf in leaves:
                # Gathered first, so that the order of a sum does not depend on strides.
                filled = 0
                for block in _blocks(stage, leaf):
                    shape = _block_shape(stage.dims, block)
                    size = math.prod(shape)
                    values = self.element.run(_cut(stage, arrays, block), buffers, shape, None)
                    for one, value in zip(whole, values, strict=True):
                        one[filled : filled + size].reshape(shape)[...] = value
                    filled += size
                for partial, row, one in zip(partials, rows, whole, strict=True):
                    assert isinstance(row.numpy, np.ufunc)
                    partial[leaf] = row.numpy.reduce(one[:filled], dtype=partial.dtype)

        _in_parallel(work, count)
        combined = [
            _tree(OPS[one.op], partial)
            for partial, one in zip(partials, stage.combine, strict=True)
        ]
        fixed = [
            x.reshape(-1)[0] if i.layout == "fixed" and i.kind != "scalar" else x
            for i, x in zip(stage.inputs, operands, strict=True)
        ]
        done = self.finish.run(fixed, self.finish.buffers(1), (), None, combined)
        for out, value in zip(outputs, done, strict=True):
            out[...] = value


def _tree(row: Any, leaf: Any) -> Any:
    """Combine the leaves pairwise, neighbours first; of nothing, the operator's identity."""
    if not leaf.size:
        return identity(row.name, leaf.dtype)
    while leaf.size > 1:
        even = leaf.size // 2 * 2
        leaf = np.concatenate([row.numpy(leaf[:even:2], leaf[1:even:2]), leaf[even:]])
    return leaf[0]


class Tape:
    """A Program with buffers assigned: a buffer is free again after its value's last use."""

    def __init__(self, program: Program) -> None:
        self.program = program
        last = {arg: at for at, instr in enumerate(program.instrs) for arg in instr.args}
        last.update(dict.fromkeys(program.results, len(program.instrs)))
        free: dict[str, list[int]] = {}
        self.dtypes: list[str] = []
        self.buffer: list[int] = []
        for at, instr in enumerate(program.instrs):
            spot = -1
            if OPS.get(instr.op):
                pool = free.setdefault(instr.dtype, [])
                if pool:
                    spot = pool.pop()
                else:
                    spot = len(self.dtypes)
                    self.dtypes.append(instr.dtype)
            self.buffer.append(spot)
            # Freed only now: an op never writes over its own operands.
            for arg in set(instr.args):
                if last[arg] == at and self.buffer[arg] >= 0:
                    free[program.instrs[arg].dtype].append(self.buffer[arg])

    def buffers(self, size: int = LEAF) -> list[Any]:
        """Return this thread's own buffers."""
        return [np.empty(size, dtype) for dtype in self.dtypes]

    def run(
        self,
        inputs: list[Any],
        buffers: list[Any],
        shape: tuple[int, ...],
        places: list[Any] | None,
        combined: list[Any] | None = None,
    ) -> list[Any]:
        """Evaluate one block.

        Parameters
        ----------
        inputs : list
            For each stage input its elements of this block (or the one element, or scalar).
        buffers : list of numpy.ndarray
            From `buffers`.
        shape : tuple of int
            Shape of the block.
        places : list of numpy.ndarray, optional
            Where the results may be written directly.
        combined : list, optional
            The combined values of a reduction.
        """
        size = math.prod(shape)
        program = self.program
        goal = dict(zip(program.results, places, strict=True)) if places else {}
        values: list[Any] = []
        for at, instr in enumerate(program.instrs):
            if instr.op == "combined":
                assert combined is not None
                values.append(combined[instr.slot])
            elif instr.op in ("load", "scalar"):
                values.append(inputs[instr.slot])
            else:
                out = goal.get(at)
                if out is None:
                    out = buffers[self.buffer[at]][:size].reshape(shape)
                numpy = OPS[instr.op].numpy
                assert numpy is not None
                numpy(*(values[arg] for arg in instr.args), out=out)
                values.append(out)
        return [values[at] for at in program.results]


def _view(stage: Stage, at: int, operand: Any) -> Any:
    source = stage.inputs[at]
    if source.kind == "scalar":
        return operand
    if source.layout == "linear":
        return operand.reshape(stage.dims)
    steps = source.strides if source.layout == "strided" else (0,) * len(stage.dims)
    return np.lib.stride_tricks.as_strided(operand, stage.dims, steps, writeable=False)


def _cut(stage: Stage, arrays: list[Any], block: Block) -> list[Any]:
    return [
        x if i.kind == "scalar" else x[(0,) * x.ndim] if i.layout == "fixed" else x[block]
        for i, x in zip(stage.inputs, arrays, strict=True)
    ]


def _blocks(stage: Stage, leaf: int) -> Iterator[Block]:
    """Cut leaf number `leaf` of the domain into rectangles of `dims`, in order."""
    return _runs(stage.dims, leaf * LEAF, min((leaf + 1) * LEAF, stage.size), ())


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


def _in_parallel(work: Callable[[list[int]], None], leaves: int) -> None:
    """Run `work` on contiguous shares of the leaves; shares never change a result."""
    count = min(_threads(), leaves)
    numbers = list(range(leaves))
    if count <= 1:
        work(numbers)
        return
    with _pools_lock:
        pool = _pools.get(count)
        if pool is None:
            pool = _pools[count] = ThreadPoolExecutor(count, thread_name_prefix="itfuse-cpu")
    # More shares than threads, so that a slow core does not hold up the end.
    shares = min(leaves, count * 8)
    edges = [leaves * k // shares for k in range(shares + 1)]
    futures = [pool.submit(_quiet, work, numbers[a:b]) for a, b in itertools.pairwise(edges)]
    try:
        for future in futures:
            future.result()
    finally:  # after an error nobody still writes into the caller's arrays
        wait(futures)


def _quiet(work: Callable[[list[int]], None], leaves: list[int]) -> None:
    with np.errstate(all="ignore"):  # the error state is each thread's own
        work(leaves)


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
