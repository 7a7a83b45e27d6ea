"""The order of plan/order.py in NumPy: what every engine's reductions must equal, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse.ops import Op, identity
from itfuse.plan.order import LANES, THREADS

Vector = np.ndarray[Any, Any]
ACCUMULATORS = THREADS * LANES
_HELD = 64  # leaves whose accumulators are held before their trees are combined together


def combine_tree(row: Op, values: Vector) -> Vector:
    """Combine each row of (rows, THREADS or ACCUMULATORS) to one value: step 2 of the order."""
    combine = row.twin(values.dtype.kind)
    a: Vector = values
    if a.shape[1] == ACCUMULATORS:
        a = a.reshape(len(a), THREADS, LANES)
        a = combine(combine(a[..., 0], a[..., 1]), combine(a[..., 2], a[..., 3]))
    # Threads first: each step is then one operation on long contiguous halves.
    a = np.ascontiguousarray(a.T).reshape(THREADS // 32, 32, -1)
    while a.shape[1] > 1:
        half = a.shape[1] // 2
        a = combine(a[:, :half], a[:, half:])
    a = a[:, 0]
    while len(a) > 1:
        half = len(a) // 2
        a = combine(a[:half], a[half:])
    result: Vector = a[0]
    return result


def combine_leaves(row: Op, partials: Vector) -> Any:
    """Combine the leaves' results: step 3. Of none it is the operator's identity."""
    combine: Any = row.twin(partials.dtype.kind)
    neutral = identity(row.name, partials.dtype)
    if partials.size == 1:  # the rest of the tree would be identities
        return combine(partials[0], neutral)
    steps = max(1, -(-partials.size // THREADS))
    padded = np.full((steps, THREADS), neutral)
    padded.reshape(-1)[: partials.size] = partials
    threads = combine(combine.reduce(padded, axis=0, dtype=partials.dtype), neutral)
    return combine_tree(row, threads.reshape(1, THREADS))[0]


class Leaves:
    """One thread's leaves of one operator: elements in, leaf results out.

    Parameters
    ----------
    row : Op
        The associative operator.
    partials : numpy.ndarray
        The results of all leaves; this thread writes those that it is given.
    leaf : int
        Elements of a leaf.
    """

    def __init__(self, row: Op, partials: Vector, leaf: int) -> None:
        self.row = row
        twin: Any = row.twin(partials.dtype.kind)
        self.reduce = twin.reduce
        self.partials = partials
        self.leaf = leaf
        self.neutral = identity(row.name, partials.dtype)
        self.held = np.empty((min(_HELD, partials.size), ACCUMULATORS), partials.dtype)
        self.numbers: list[int] = []

    def add(self, first: int, value: Vector) -> None:
        """Take the elements of consecutive leaves, from leaf `first` on: step 1 of the order."""
        whole, rest = divmod(value.size, self.leaf)
        if len(self.numbers) + whole + (rest > 0) > len(self.held):
            self.finish()
        at = len(self.numbers)
        if whole:
            # NumPy starts from the first step instead of the identity; see `finish`.
            steps = value[: whole * self.leaf].reshape(whole, -1, ACCUMULATORS)
            self.reduce(steps, axis=1, dtype=self.held.dtype, out=self.held[at : at + whole])
        if rest:
            padded = np.full(-(-rest // ACCUMULATORS) * ACCUMULATORS, self.neutral)
            padded[:rest] = value[whole * self.leaf :]
            self.held[at + whole] = self.reduce(padded.reshape(-1, ACCUMULATORS), axis=0)
        self.numbers += range(first, first + whole + (rest > 0))

    def finish(self) -> None:
        """Combine what is held into the leaves' results."""
        if self.numbers:
            combine = self.row.twin(self.held.dtype.kind)
            held = self.held[: len(self.numbers)]
            # The identity after the elements gives the bits of the identity before them.
            self.partials[self.numbers] = combine_tree(self.row, combine(held, self.neutral))
            self.numbers.clear()
