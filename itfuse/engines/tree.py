"""The order of plan/order.py in NumPy: what every engine's reductions must equal, bit for bit.

Accumulators have one or more fields; they travel as a tuple of arrays whose first axis is the one
that is combined and whose other axes are independent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse.ops import FOLDS, ROWS
from itfuse.plan.order import LANES, THREADS, leaf
from itfuse.plan.stages import Combine

Vector = np.ndarray[Any, Any]
Fields = tuple[Any, ...]
ACCUMULATORS = THREADS * LANES
WARP = 32
_HELD = 64  # leaves whose accumulators are held before their trees are combined together


class Operator:
    """An associative operator on accumulators.

    Parameters
    ----------
    combine : Combine
        Of a stage.
    """

    def __init__(self, combine: Combine) -> None:
        self.dtypes = tuple(np.dtype(name) for name, _ in combine.fields)
        self.neutral: Fields = tuple(neutral for _, neutral in combine.fields)
        kind = self.dtypes[0].kind
        self.ufunc: Any = None  # what has `reduce`
        if combine.op in FOLDS:
            self._merge = FOLDS[combine.op].merger()
            return
        twin = ROWS[combine.op].twin(kind)
        self._merge = lambda a, b: (twin(a[0], b[0]),)
        if hasattr(twin, "reduce"):
            self.ufunc = twin

    def merge(self, a: Fields, b: Fields) -> Fields:
        """Combine, `a` first."""
        merged: Fields = self._merge(a, b)
        return merged

    def in_turn(self, steps: Fields) -> Fields:
        """Combine along the first axis, one after another, from the identity."""
        if self.ufunc is not None:
            # NumPy starts from the first instead. The identity after gives the same bits.
            total: Fields = (self.ufunc.reduce(steps[0], axis=0, dtype=self.dtypes[0]),)
        else:
            total = tuple(field[0] for field in steps)
            for k in range(1, len(steps[0])):
                total = self.merge(total, tuple(field[k] for field in steps))
        return self.merge(total, self.neutral)

    def padded(self, values: Fields, count: int) -> Fields:
        """Return `values` with the identity behind them, `count` in all."""
        have = len(values[0])
        if have == count:
            return values
        made = []
        for field, dtype, neutral in zip(values, self.dtypes, self.neutral, strict=True):
            more = np.full((count, *field.shape[1:]), neutral, dtype)
            more[:have] = field
            made.append(more)
        return tuple(made)

    def nothing(self, shape: tuple[int, ...]) -> Fields:
        """Return identities."""
        return tuple(np.full(shape, n, d) for n, d in zip(self.neutral, self.dtypes, strict=True))


def _power(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


def _halve(op: Operator, a: Fields) -> Fields:
    while len(a[0]) > 1:
        half = len(a[0]) // 2
        a = op.merge(tuple(f[:half] for f in a), tuple(f[half:] for f in a))
    return tuple(f[0] for f in a)


def _threads(op: Operator, values: Fields) -> Fields:
    """Combine the values of up to THREADS threads: warp by warp, then the warps."""
    count = _power(len(values[0]))
    values = op.padded(values, count)
    if count > WARP:
        shape = (count // WARP, WARP, *values[0].shape[1:])
        values = tuple(np.moveaxis(f.reshape(shape), 1, 0) for f in values)
        values = _halve(op, values)
    return _halve(op, values)


def combine_leaf(op: Operator, values: Fields) -> Fields:
    """Combine the elements of a leaf: steps 1 and 2 of the order."""
    size = len(values[0])
    if size > ACCUMULATORS:
        steps = -(-size // ACCUMULATORS)
        values = op.padded(values, steps * ACCUMULATORS)
        shape = (steps, ACCUMULATORS, *values[0].shape[1:])
        values = op.in_turn(tuple(f.reshape(shape) for f in values))
    else:
        values = op.merge(op.padded(values, -(-size // LANES) * LANES), op.neutral)
    a, b, c, d = (tuple(f[lane::LANES] for f in values) for lane in range(LANES))
    whole = op.merge(op.merge(a, b), op.merge(c, d))
    # Threads first: each step is then one operation on long contiguous halves.
    return _threads(op, tuple(np.ascontiguousarray(f) for f in whole))


def combine_leaves(op: Operator, leaves: Fields) -> Fields:
    """Combine the leaves' results: step 3. Of none it is the operator's identity."""
    count = len(leaves[0])
    if count == 0:
        return op.nothing(leaves[0].shape[1:])
    if count > THREADS:
        steps = -(-count // THREADS)
        leaves = op.padded(leaves, steps * THREADS)
        shape = (steps, THREADS, *leaves[0].shape[1:])
        leaves = op.in_turn(tuple(f.reshape(shape) for f in leaves))
    else:
        leaves = op.merge(leaves, op.neutral)
    return _threads(op, leaves)


def combine_rows(op: Operator, values: Fields) -> Fields:
    """Combine whole rows, which lie along the first axis."""
    return combine_leaves(op, leaves_of(op, values, leaf(len(values[0]))))


def leaves_of(op: Operator, values: Fields, span: int) -> Fields:
    """Combine each leaf of `span` elements; the last may have fewer."""
    size, rest = len(values[0]), values[0].shape[1:]
    whole = size // span
    parts = []
    if whole:
        leaves = (f[: whole * span].reshape(whole, span, *rest) for f in values)
        parts.append(combine_leaf(op, tuple(np.moveaxis(f, 1, 0) for f in leaves)))
    if size % span:
        last = combine_leaf(op, tuple(f[whole * span :] for f in values))
        parts.append(tuple(f[None] for f in last))
    if not parts:
        return op.nothing((0, *rest))
    return tuple(np.concatenate(fields) for fields in zip(*parts, strict=True))


class Leaves:
    """One thread's leaves of one operator: elements in, leaf results out.

    Parameters
    ----------
    op : Operator
        The associative operator.
    partials : tuple of numpy.ndarray
        The results of all leaves; this thread writes those that it is given.
    span : int
        Elements of a leaf.
    """

    def __init__(self, op: Operator, partials: Fields, span: int) -> None:
        self.op = op
        self.partials = partials
        self.span = span
        count = min(_HELD, partials[0].size)
        self.held = tuple(np.empty((count, ACCUMULATORS), dtype) for dtype in op.dtypes)
        self.numbers: list[int] = []

    def add(self, first: int, values: Fields) -> None:
        """Take the elements of consecutive leaves, from leaf `first` on: step 1 of the order."""
        whole, rest = divmod(values[0].size, self.span)
        if len(self.numbers) + whole > len(self.held[0]):
            self.finish()
        at = len(self.numbers)
        if whole:
            size = whole * self.span
            steps = tuple(f[:size].reshape(whole, -1, ACCUMULATORS) for f in values)
            held = tuple(f[at : at + whole] for f in self.held)
            if self.op.ufunc is not None:
                self.op.ufunc.reduce(steps[0], axis=1, dtype=self.op.dtypes[0], out=held[0])
            else:
                total = self.op.in_turn(tuple(np.moveaxis(f, 1, 0) for f in steps))
                for place, field in zip(held, total, strict=True):
                    place[...] = field
            self.numbers += range(first, first + whole)
        if rest:
            last = combine_leaf(self.op, tuple(f[whole * self.span :] for f in values))
            for partial, field in zip(self.partials, last, strict=True):
                partial[first + whole] = field

    def finish(self) -> None:
        """Combine what is held into the leaves' results."""
        if self.numbers:
            held = tuple(f[: len(self.numbers)].T for f in self.held)
            for partial, field in zip(self.partials, combine_leaf(self.op, held), strict=True):
                partial[self.numbers] = field
            self.numbers.clear()
