"""Scans in blocks of NumPy, in the order of plan/order.py: what every engine's scans must equal.

A block holds whole rows, or whole tiles of one row. It is evaluated and scanned by itself; what
comes before its tiles is added when the blocks before it have told their totals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from itfuse.engines.tape import BLOCK, Tape, block_shape, runs, target, view
from itfuse.engines.tree import Fields, Operator
from itfuse.engines.turns import Turns
from itfuse.plan.order import (
    SCAN_CHILDREN,
    SCAN_CHUNKS,
    SCAN_EACH,
    SCAN_LEVELS,
    SCAN_TILE,
    WARP,
    scan_class,
)
from itfuse.plan.stages import Stage


class _Node:
    """The children of a node so far, as a binary counter: what comes before the next one."""

    def __init__(self, op: Operator) -> None:
        self.op = op
        self.count = 0
        self._stack: list[tuple[int, Fields]] = []

    def before(self) -> Fields | None:
        """Return all children so far, combined from the right."""
        total: Fields | None = None
        for _, one in reversed(self._stack):
            total = one if total is None else self.op.merge(one, total)
        return total

    def add(self, total: Fields) -> None:
        """Add the next child; as many as there are before it become one."""
        size = 1
        # Of a node without a parent, 32 children are one that no more join.
        while self._stack and self._stack[-1][0] == size < SCAN_CHILDREN:
            total = self.op.merge(self._stack.pop()[1], total)
            size *= 2
        if size == SCAN_CHILDREN and self._stack:
            total = self.op.merge(self._stack.pop()[1], total)
        self._stack.append((size, total))
        self.count += 1


class Tiles:
    """What comes before each tile of a row."""

    def __init__(self, op: Operator) -> None:
        self.op = op
        self.levels = [_Node(op) for _ in range(SCAN_LEVELS)]

    def next(self, own: Fields) -> Fields | None:
        """Return what comes before the next tile, whose total is `own`."""
        found: Fields | None = None
        total: Fields | None = own
        for k, node in enumerate(self.levels):
            before = node.before()
            if before is not None:
                found = before if found is None else self.op.merge(before, found)
            if total is None:
                continue
            node.add(total)
            if k < SCAN_LEVELS - 1 and node.count == SCAN_CHILDREN:
                total = total if before is None else self.op.merge(before, total)
                self.levels[k] = _Node(self.op)
            else:
                total = None
        return found


class _Scanned:
    """Tiles that are scanned by themselves.

    Parameters
    ----------
    op : Operator
        What combines.
    values : tuple of numpy.ndarray
        The fields, of shape (tiles, span); they are overwritten.
    """

    def __init__(self, op: Operator, values: Fields) -> None:
        self.op = op
        count, self.span = values[0].shape
        each = min(self.span, SCAN_EACH)
        self.values = tuple(field.reshape(count, self.span // each, each) for field in values)
        for k in range(1, each):
            self._put(self.values, k, op.merge(self._of(self.values, k - 1),
                                               self._of(self.values, k)))  # fmt: skip
        # What comes before a vector in its part of the tile, and before the part.
        vectors = self.span // each
        lanes = min(vectors, WARP)
        chunks = min(vectors // lanes, SCAN_CHUNKS)
        shape = (count, vectors // lanes // chunks, chunks, lanes)
        self.has = np.zeros(shape, bool)
        self.based = np.zeros(shape[:2], bool)
        self.pre: Fields = ()
        self.base: Fields = ()
        self.total: Fields = ()
        if vectors > 1:
            self._vectors(shape)

    @staticmethod
    def _of(values: Fields, k: int) -> Fields:
        return tuple(field[..., k] for field in values)

    @staticmethod
    def _put(values: Fields, k: Any, made: Fields) -> None:
        for field, one in zip(values, made, strict=True):
            field[..., k] = one

    def _vectors(self, shape: tuple[int, int, int, int]) -> None:
        merge = self.op.merge
        _, parts, chunks, lanes = shape
        total = tuple(f[..., -1].reshape(shape).copy() for f in self.values)
        apart = 1
        while apart < lanes:
            left = tuple(field[..., :-apart] for field in total)
            right = tuple(field[..., apart:] for field in total)
            self._put(total, slice(apart, None), merge(left, right))
            apart *= 2
        self.pre = tuple(np.empty_like(field) for field in total)
        for field, one in zip(self.pre, total, strict=True):
            field[..., 1:] = one[..., :-1]
            field[..., 0] = one[..., 0]  # anything: it does not count
        self.has[..., 1:] = True
        sums = self._of(total, -1)
        run = self._of(sums, 0)
        for c in range(1, chunks):
            made = merge(tuple(f[..., None] for f in run), tuple(f[:, :, c] for f in self.pre))
            for field, one, alone in zip(self.pre, made, run, strict=True):
                field[:, :, c] = np.where(self.has[:, :, c], one, alone[..., None])
            self.has[:, :, c] = True
            run = merge(run, self._of(sums, c))
        self.base = tuple(np.empty_like(field) for field in run)
        ahead = self._of(run, 0)
        self._put(self.base, 0, ahead)  # anything
        for part in range(1, parts):
            self._put(self.base, part, ahead)
            ahead = merge(ahead, self._of(run, part))
        self.based[:, 1:] = True
        self.total = ahead

    def after(self, before: list[Fields | None]) -> None:
        """Say what comes before each tile."""
        for t, one in enumerate(before):
            if one is None:
                continue
            made = self.op.merge(
                tuple(np.asarray(f)[None] for f in one), tuple(field[t] for field in self.base)
            )
            for field, both, alone in zip(self.base, made, one, strict=True):
                field[t] = np.where(self.based[t], both, alone)
            self.based[t] = True

    def _starts(self) -> Fields:
        """Return what comes before each vector, where `has` is true afterwards."""
        if not self.based.any():
            return self.pre
        base = tuple(field[:, :, None, None] for field in self.base)
        based = self.based[:, :, None, None]
        made = self.op.merge(base, self.pre)
        starts = tuple(
            np.where(self.has & based, both, np.where(based, first, last))
            for both, first, last in zip(made, base, self.pre, strict=True)
        )
        self.has |= based
        return starts

    def finished(self, exclusive: bool) -> Fields:
        """Return the scan, of the shape that the values had."""
        values = self.values
        flat = values[0].shape[:2]
        starts: Fields = ()
        if self.pre:
            starts = tuple(field.reshape(flat) for field in self._starts())
            made = self.op.merge(tuple(f[..., None] for f in starts), values)
            has = self.has.reshape(flat)[..., None]
            results = [np.where(has, a, b) for a, b in zip(made, values, strict=True)]
        else:
            results = list(values)
        if exclusive:
            for at, (field, neutral) in enumerate(zip(results, self.op.neutral, strict=True)):
                moved = np.empty_like(field)
                moved[..., 1:] = field[..., :-1]
                first = np.full(flat, neutral, field.dtype)
                if starts:
                    first = np.where(self.has.reshape(flat), starts[at], first)
                moved[..., 0] = first
                results[at] = moved
        return tuple(field.reshape(len(field), self.span) for field in results)


class ScanBuilt:
    """A scan of the CPU engine; `cutter` and `in_parallel` are those of the engine."""

    def __init__(self, stage: Stage, cutter: Any, in_parallel: Callable[..., None]) -> None:
        assert stage.finish is not None
        self.element = Tape(stage.element)
        self.finish = Tape(stage.finish)
        self.op = Operator(stage.combine[0])
        self.cutter, self.in_parallel = cutter, in_parallel

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Run over `operands` into `outputs`."""
        if not stage.size:
            return
        with np.errstate(all="ignore"):
            _Run(self, stage, operands, outputs).run()


class _Run:
    def __init__(
        self, built: ScanBuilt, stage: Stage, operands: list[Any], outputs: list[Any]
    ) -> None:
        assert stage.how is not None
        self.built, self.stage = built, stage
        _, self.exclusive, self.reverse = stage.how.options
        self.span, self.long = scan_class(stage.length)
        self.cut = built.cutter(stage, [view(stage, at, x) for at, x in enumerate(operands)])
        self.targets = [target(stage, *one) for one in zip(stage.outputs, outputs, strict=True)]
        self.turns = Turns()
        self.tiles = Tiles(built.op)

    def run(self) -> None:
        stage = self.stage
        length = stage.length
        if self.long:
            self.pieces = -(-length // BLOCK)
            count = stage.rows * self.pieces
        else:
            self.together = max(1, BLOCK // self.span)
            count = -(-stage.rows // self.together)
        self.built.in_parallel(self._work, count)

    def _work(self, numbers: Iterator[int]) -> None:
        scratch = self.built.element.scratch(), self.built.finish.scratch()
        try:
            for number in numbers:
                if self.long:
                    self._piece(number, *scratch)
                else:
                    self._rows(number, *scratch)
        except BaseException:
            self.turns.stop()
            raise

    def _rows(self, number: int, scratch: Any, after: Any) -> None:
        """Scan whole rows."""
        length = self.stage.length
        first = number * self.together
        last = min(first + self.together, self.stage.rows)
        start, stop = first * length, last * length
        values = self._values(start, stop, scratch, (last - first, length), self.span)
        scanned = _Scanned(self.built.op, values)
        self._write(start, stop, scanned.finished(self.exclusive), length, after)

    def _piece(self, number: int, scratch: Any, after: Any) -> None:
        """Scan a piece of one row."""
        length = self.stage.length
        row, piece = divmod(number, self.pieces)
        low, high = piece * BLOCK, min((piece + 1) * BLOCK, length)
        begin, end = (length - high, length - low) if self.reverse else (low, high)
        start, stop = row * length + begin, row * length + end
        size = stop - start
        tiles = -(-size // SCAN_TILE)
        flat = self._values(start, stop, scratch, (1, size), tiles * SCAN_TILE)
        scanned = _Scanned(self.built.op, tuple(f.reshape(tiles, SCAN_TILE) for f in flat))
        with self.turns.turn(number) as go:
            if not go:
                return
            if piece == 0:
                self.tiles = Tiles(self.built.op)
            before = [
                self.tiles.next(tuple(field[t] for field in scanned.total)) for t in range(tiles)
            ]
        scanned.after(before)
        found = tuple(f.reshape(1, -1) for f in scanned.finished(self.exclusive))
        self._write(start, stop, found, size, after)

    def _values(
        self, start: int, stop: int, scratch: Any, shape: tuple[int, int], span: int
    ) -> Fields:
        """Return the elements from `start` to `stop` in rows, identities behind them."""
        op = self.built.op
        flat = [np.empty(stop - start, dtype) for dtype in op.dtypes]
        at = 0
        for block in runs(self.stage.dims, start, stop):
            inside = block_shape(self.stage.dims, block)
            size = int(np.prod(inside))
            found = self.built.element.run(self.cut(block), scratch(inside), None)
            for field, value in zip(flat, found, strict=True):
                field[at : at + size].reshape(inside)[...] = value
            at += size
        made = op.nothing((shape[0], span))
        for field, one in zip(made, flat, strict=True):
            rows = one.reshape(shape)
            field[:, : shape[1]] = rows[:, ::-1] if self.reverse else rows
        return made

    def _write(self, start: int, stop: int, found: Fields, length: int, after: Any) -> None:
        """Compute what is written of the scan of the elements from `start` to `stop`."""
        rows = [field[:, :length] for field in found]
        flat = [(f[:, ::-1] if self.reverse else f).reshape(-1) for f in rows]
        at = 0
        for block in runs(self.stage.dims, start, stop):
            inside = block_shape(self.stage.dims, block)
            size = int(np.prod(inside))
            combined = [field[at : at + size].reshape(inside) for field in flat]
            values = self.built.finish.run(self.cut(block), after(inside), None, combined=combined)
            for goal, value in zip(self.targets, values, strict=True):
                goal[block] = value
            at += size
