"""Segments in NumPy: each one combines as a whole array of its length does (plan/order.py).

Elements and segments are numbered together, segment k where it begins plus k, so that tasks of
equal size are cut anywhere: in one segment as well as among thousands. A task combines the leaves
that begin in it, those of like lengths at once; who has more than one leaf is combined at the end.
"""

from __future__ import annotations

import bisect
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from itfuse.engines.tape import BLOCK, Tape, block_shape, runs, target, view
from itfuse.engines.tree import Fields, Operator, combine_leaf, combine_leaves
from itfuse.plan.order import LANES, leaf
from itfuse.plan.segments import of_elements, of_segments
from itfuse.plan.stages import Stage


class SegmentsBuilt:
    """Segments of the CPU engine; `cutter` and `in_parallel` are those of the engine."""

    def __init__(self, stage: Stage, cutter: Any, in_parallel: Callable[..., None]) -> None:
        assert stage.finish is not None
        self.element, self.finish = Tape(stage.element), Tape(stage.finish)
        self.operators = [Operator(one) for one in stage.combine]
        self.cutter, self.in_parallel = cutter, in_parallel

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Run over `operands` into `outputs`."""
        if not outputs[0].size:
            return
        with np.errstate(all="ignore"):
            _Run(self, stage, operands, outputs).run()


class _Run:
    def __init__(
        self, built: SegmentsBuilt, stage: Stage, operands: list[Any], outputs: list[Any]
    ) -> None:
        self.built, self.size, self.count = built, stage.size, outputs[0].size
        self.offsets = operands[-1]
        elements, segments = of_elements(stage), of_segments(stage)
        self.dims = stage.dims
        self.cut: Any = None
        if stage.size:
            self.cut = built.cutter(elements, _views(elements, stage.element.slots, operands))
        slots = stage.finish.slots if stage.finish else ()
        self.cut_after = built.cutter(segments, _views(segments, slots, operands))
        pairs = zip(segments.outputs, outputs, strict=True)
        self.targets = [target(segments, *pair) for pair in pairs]
        self.long: dict[int, list[tuple[int, list[Fields]]]] = defaultdict(list)
        self.lock = threading.Lock()

    def run(self) -> None:
        self.built.in_parallel(self._work, -(-(self.size + self.count) // BLOCK))
        after = self.built.finish.scratch(1)
        for k, parts in self.long.items():
            parts.sort(key=lambda one: one[0])
            combined = []
            for at, op in enumerate(self.built.operators):
                pieces = zip(*(leaves[at] for _, leaves in parts), strict=True)
                whole = combine_leaves(op, tuple(np.concatenate(one) for one in pieces))
                combined += [np.reshape(field, 1) for field in whole]
            self._write(k, k + 1, combined, after)

    def _bounds(self, first: int, last: int) -> tuple[Any, Any]:
        """Return where the segments from `first` to `last` begin and end, inside of the array."""
        bounds = np.clip(self.offsets[first : last + 1].astype(np.int64), 0, self.size)
        return bounds[:-1], np.maximum(bounds[1:], bounds[:-1])

    def _place(self, k: int) -> int:
        """Return the number of segment k among elements and segments."""
        return min(max(int(self.offsets[k]), 0), self.size) + k

    def _work(self, numbers: Iterator[int]) -> None:
        scratch, after = self.built.element.scratch(), self.built.finish.scratch()
        every = range(self.count)
        for number in numbers:
            low, high = number * BLOCK, (number + 1) * BLOCK
            first = bisect.bisect_left(every, low, key=self._place)
            last = bisect.bisect_left(every, high, key=self._place)
            begins, ends = self._bounds(first, last)
            short = ends - begins <= leaf(0)
            lasting = (first + np.flatnonzero(~short)).tolist()
            if first:  # begun in an earlier task
                lasting.insert(0, first - 1)
            combined = [
                field for op in self.built.operators for field in op.nothing((last - first,))
            ]
            self._combine(begins[short], ends[short], short, combined, scratch)
            for k in lasting:
                self._leaves(k, low, high, scratch)
            if last > first:
                self._write(first, last, combined, after)

    def _combine(
        self, begins: Any, ends: Any, into: Any, combined: list[Any], scratch: Any
    ) -> None:
        """Combine segments of one leaf each."""
        found = self._combined(begins, ends, scratch)
        for field, value in zip(combined, [f for one in found for f in one], strict=True):
            field[into] = value

    def _leaves(self, k: int, low: int, high: int, scratch: Any) -> None:
        """Combine the leaves of a segment with more than one that begin in this task."""
        (begin,), (end,) = (bound.tolist() for bound in self._bounds(k, k + 1))
        span = leaf(end - begin)
        if end - begin <= span:
            return
        first = max(0, -(-(low - begin - k) // span))
        starts = np.arange(begin + first * span, min(end, high - k), span)
        if starts.size:
            found = self._combined(starts, np.minimum(starts + span, end), scratch)
            with self.lock:
                self.long[k].append((first, found))

    def _combined(self, begins: Any, ends: Any, scratch: Any) -> list[Fields]:
        """Combine what lies between each begin and end, a leaf at most; for each operator."""
        ops = self.built.operators
        found = [op.nothing(begins.shape) for op in ops]
        sizes = ends - begins
        some = np.flatnonzero(sizes)
        if not some.size:
            return found
        start = int(begins[some].min())
        values = self._values(start, int(ends[some].max()), scratch)
        # By the least power of two that holds them: identities behind elements change no bit.
        like = np.frexp(np.maximum(sizes[some], LANES) - 1.0)[1]
        for bits in np.flatnonzero(np.bincount(like)).tolist():
            members, width = some[like == bits], 1 << bits
            for at in range(0, members.size, BLOCK // width):
                these = members[at : at + BLOCK // width]
                places = (begins[these] - start)[None] + np.arange(width)[:, None]
                behind = np.arange(width)[:, None] >= sizes[these][None]
                places[behind] = 0
                given = iter(values)
                for op, fields in zip(ops, found, strict=True):
                    rows = tuple(next(given)[places] for _ in op.dtypes)
                    for row, neutral in zip(rows, op.neutral, strict=True):
                        row[behind] = neutral
                    for field, value in zip(fields, combine_leaf(op, rows), strict=True):
                        field[these] = value
        return found

    def _values(self, start: int, stop: int, scratch: Any) -> list[Any]:
        """Return the fields of the elements from `start` to `stop`."""
        dtypes = [dtype for op in self.built.operators for dtype in op.dtypes]
        flat = [np.empty(stop - start, dtype) for dtype in dtypes]
        for begin in range(start, stop, BLOCK):
            at = begin - start
            for block in runs(self.dims, begin, min(begin + BLOCK, stop)):
                inside = block_shape(self.dims, block)
                size = int(np.prod(inside))
                made = self.built.element.run(self.cut(block), scratch(inside), None)
                for field, value in zip(flat, made, strict=True):
                    field[at : at + size].reshape(inside)[...] = value
                at += size
        return flat

    def _write(self, first: int, last: int, combined: list[Any], after: Any) -> None:
        """Write what is computed of the segments from `first` to `last`."""
        block = (slice(first, last),)
        inputs, shape = self.cut_after(block), (last - first,)
        values = self.built.finish.run(inputs, after(shape), None, combined=combined)
        for goal, value in zip(self.targets, values, strict=True):
            goal[block] = value


def _views(stage: Stage, slots: tuple[int, ...], operands: list[Any]) -> list[Any]:
    return [view(stage, at, x) if at in slots else x for at, x in enumerate(operands)]
