"""Views of expressions -> index maps of their leaves: no copy, no pass.

Elementwise operations commute with choosing elements, so a view moves down through them until it
meets the leaves. There it becomes byte steps over the domain of the pass (`strided`), index
arithmetic (`iota`), or, where the place is no affine function of the index, a read at a computed
place (`gather`). `at(node, index)` below is the whole algorithm: the node whose value, at each
point of a domain, is `node`'s value at the place that `index` gives.

A reshape is affine only where it splits axes or merges ones that lie behind one another. Where a
domain axis crosses the border between two axes of an operand, the *domain* is split there instead:
results are row-major, so a finer domain writes the same bytes. Only where no split can do it (axes
of 2 and 3 read as 3 and 2) are places computed by division.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from itfuse import expr
from itfuse.expr import Node, Shape, make
from itfuse.form import Fixed
from itfuse.ops import CONSTANT, GATHER, INPUT, IOTA, OPS, POSITION, RESHAPE, SCALAR, STRIDED, VIEW
from itfuse.plan.index import (
    Form,
    Map,
    aligned_strides,
    along,
    constant,
    contiguous_strides,
    finer,
    grouped,
    merge_axes,
    unravel,
)
from itfuse.rows.op import ELEMENTWISE, INDEX, PLACE, RANDOM, SELECTION, TERMINAL
from itfuse.wording import toposort

Row = Form | Node
_INT64 = np.dtype(np.int64)
_MOST_AXES = 32
"""Domains are not split into more axes than this; places are computed then."""


@dataclass(frozen=True)
class Index:
    """Where in an operand each point of a domain reads.

    Attributes
    ----------
    domain : tuple of int
        Shape of the points.
    rows : tuple of Form or Node
        The place along each axis of the operand: affine, or an int64 expression over the domain.
    flat : bool
        Whether there is one row only: the row-major place in the whole operand.
    """

    domain: Shape
    rows: tuple[Row, ...]
    flat: bool = False


class _SplitError(Exception):
    """A domain has to be split, and all over it resolved again."""

    def __init__(self, domain: Shape, finer_domain: Shape) -> None:
        self.domain = domain
        self.finer = finer_domain


def push_views(roots: tuple[Node, ...], *, splits: bool = True) -> tuple[Node, ...]:
    """Return `roots` with every view moved into the leaves; the same objects if there is none.

    Parameters
    ----------
    roots : tuple of Node
        Expressions.
    splits : bool
        Whether a domain may be split into more axes than the root has. A pass along an axis needs
        that axis whole: places are computed then.

    Returns
    -------
    tuple of Node
        For each root its expression over a domain, with `strided`, `iota` and `gather` leaves;
        in a `reshape` where the domain is not the root's shape.
    """
    order = toposort(roots)
    if not any(node.op.kind == PLACE for node in order):
        return roots
    resolver = _Resolver(order, splits)
    while True:
        try:
            return tuple(resolver.root(root) for root in roots)
        except _SplitError as split:
            resolver.split(split)


Steps = Generator[tuple[Node, Index], Node, Node]


class _Resolver:
    def __init__(self, order: list[Node], splits: bool) -> None:
        self.splits = splits
        self.moved: set[Node] = set()  # nodes with a view somewhere below
        for node in order:
            if node.op.kind == PLACE or any(src in self.moved for src in node.srcs):
                self.moved.add(node)
        self.by_rows: set[Node] = set()  # nodes that need results along axes
        for node in order:
            along_axes = node.op.reduces and node.shape != ()
            if along_axes or any(src in self.by_rows for src in node.srcs):
                self.by_rows.add(node)
        self.domains: dict[Shape, Shape] = {}
        self.memo: dict[tuple[Node, Index], Node] = {}

    def split(self, split: _SplitError) -> None:
        for shape, domain in self.domains.items():
            if domain == split.domain:
                self.domains[shape] = split.finer
        self.memo.clear()

    def domain(self, shape: Shape) -> Shape:
        """Return the domain over which a result of this shape is computed."""
        if shape not in self.domains:
            # A single element has no axes: what is late stays in the epilogue of its reduction.
            self.domains[shape] = shape if math.prod(shape) != 1 else ()
        return self.domains[shape]

    def whole(self, shape: Shape) -> Index:
        """Return the index of everything."""
        domain = self.domain(shape)
        return Index(domain, grouped(shape, domain))

    def root(self, root: Node) -> Node:
        if root.op.kind == TERMINAL:
            how = root.arg
            index = self.whole(how.domain)
            srcs = []
            for src in root.srcs[: how.fused]:
                found = self.at(src, self._operand(index, how.domain, src.shape))
                srcs.append(_filled(found, index.domain) if found.shape != () else found)
            srcs += root.srcs[how.fused :]
            how = replace(how, domain=index.domain)
            return make(root.op, tuple(srcs), root.dtype, root.shape, how)
        if root.op.kind == SELECTION:
            domain = root.arg.domain
            index = self.whole(domain)
            srcs = []
            for src in root.srcs:
                found = self.at(src, self._operand(index, domain, src.shape))
                srcs.append(_filled(found, index.domain) if found.shape != () else found)
            choice = replace(root.arg, domain=index.domain)
            return make(root.op, tuple(srcs), root.dtype, root.shape, choice)
        if root.op is RESHAPE and root in self.by_rows:
            # The rows stay what they are; only the result has another shape.
            inner = root.srcs[0]
            while inner.op is RESHAPE:
                inner = inner.srcs[0]
            inner = _filled(self.at(inner, _everything(inner.shape)), inner.shape)
            return make(RESHAPE, (inner,), root.dtype, root.shape)
        index = self.whole(root.shape)
        found = _filled(self.at(root, index), index.domain)
        if index.domain == root.shape:
            return found
        return make(RESHAPE, (found,), root.dtype, root.shape)

    def at(self, node: Node, index: Index) -> Node:
        """Run `_step` without recursion, remembering every (node, index)."""
        wanted = (node, index)
        if wanted in self.memo:
            return self.memo[wanted]
        stack: list[tuple[tuple[Node, Index], Steps]] = [(wanted, self._step(*wanted))]
        answer: Any = None
        while stack:
            key, steps = stack[-1]
            try:
                asked = steps.send(answer)
            except StopIteration as done:
                answer = self.memo[key] = done.value
                stack.pop()
                continue
            answer = self.memo.get(asked)
            if answer is None:
                stack.append((asked, self._step(*asked)))
        return self.memo[wanted]

    def _step(self, node: Node, index: Index) -> Steps:  # noqa: PLR0912 - one case a kind
        op = node.op
        if op in (SCALAR, CONSTANT, POSITION):
            return node
        if node.shape == () and index.domain != ():
            return (yield node, Index((), ()))
        if node not in self.moved and _is_identity(node.shape, index):
            return node
        if op.kind in (ELEMENTWISE, INDEX, RANDOM):
            srcs = []
            for src in node.srcs:
                srcs.append((yield src, self._operand(index, node.shape, src.shape)))
            return make(op, tuple(srcs), node.dtype, index.domain, node.arg)
        if op is RESHAPE:
            row = self._linear(index, node.shape, contiguous_strides(node.shape, 1))
            return (yield node.srcs[0], _from_flat(index.domain, row, node.srcs[0].shape))
        if op is VIEW:
            computed = []
            for src in node.srcs[1:]:
                computed.append((yield src, self._operand(index, node.shape, src.shape)))
            rows: list[Row] = []
            for one in node.arg.rows:
                if isinstance(one, int):
                    rows.append(computed[one])
                else:
                    moved = self._linear(index, node.shape, one.steps)
                    rows.append(_plus(moved, one.offset, index.domain))
            return (yield node.srcs[0], Index(index.domain, tuple(rows)))
        if op is IOTA:
            row = self._linear(index, node.shape, node.arg.steps)
            return _value(_plus(row, node.arg.offset, index.domain), index.domain)
        source = node
        if op.reduces:
            inner = node.srcs[0]
            # The whole of one operand is reduced in row-major order, whatever its shape.
            free = node.shape == () and len(node.srcs) == 1
            while free and inner.op is RESHAPE:
                inner = inner.srcs[0]
            whole = self.whole(inner.shape) if free else _everything(inner.shape)
            srcs, axes = [], node.arg
            for src in (inner, *node.srcs[1:]):
                srcs.append(_filled((yield src, whole), whole.domain))
            if free:
                axes = tuple(range(len(whole.domain)))
            source = make(op, tuple(srcs), node.dtype, node.shape, axes)
            if node.shape == ():
                return source
            source, index = _as_rows(source, index)
        strides = node.arg.strides if op is INPUT else contiguous_strides(
            node.shape, node.dtype.itemsize)  # fmt: skip
        if _is_identity(source.shape, index):
            return source
        place = self._linear(index, node.shape, strides)
        if isinstance(place, Form):
            return make(STRIDED, (source,), node.dtype, index.domain, place)
        return make(GATHER, (source, place), node.dtype, index.domain)

    def _operand(self, index: Index, shape: Shape, own: Shape) -> Index:
        """Return the index of an operand of shape `own` that is broadcast to `shape`."""
        if index.flat:
            if own == shape:
                return index
            row = self._linear(index, shape, _repeated(own, shape))
            return _from_flat(index.domain, row, own)
        rank = len(index.domain)
        rows = index.rows[len(shape) - len(own) :]
        return Index(
            index.domain,
            tuple(
                constant(0, rank) if size == 1 else row for size, row in zip(own, rows, strict=True)
            ),
        )

    def _linear(self, index: Index, shape: Shape, steps: tuple[int, ...]) -> Row:
        """Return the sum over the axes of `shape` of step * place along the axis."""
        if not index.flat:
            return _sum(index.domain, index.rows, steps)
        row = index.rows[0]
        dims, (merged,) = merge_axes(shape, [tuple(steps)])
        if len(dims) == 1:
            return _sum(index.domain, (row,), merged)
        if isinstance(row, Form):
            rows = unravel(row, index.domain, dims)
            if rows is not None:
                return _sum(index.domain, tuple(rows), merged)
            free = self.splits and index.domain in self.domains.values()
            if free and len(index.domain) < _MOST_AXES:
                split = finer(row, index.domain, dims)
                if split is not None:
                    raise _SplitError(index.domain, split)
        flat = _value(row, index.domain)
        digits: list[Row] = []
        for at, (size, stride) in enumerate(zip(dims, contiguous_strides(dims, 1), strict=True)):
            if not merged[at]:
                digits.append(constant(0, len(index.domain)))
                continue
            digit = flat if stride == 1 else _arithmetic("floor_divide", flat, stride)
            digits.append(_arithmetic("remainder", digit, size) if at else digit)
        return _sum(index.domain, tuple(digits), merged)


def _everything(shape: Shape) -> Index:
    return Index(shape, grouped(shape, shape))


def _as_rows(node: Node, index: Index) -> tuple[Node, Index]:
    """Return a reduction along axes with them kept, where that is how the index repeats it.

    `x.mean(1)[:, None]` is `x.mean(1, keepdims=True)`: a value of the rows that it belongs to.
    """
    full = node.srcs[0].shape
    if index.flat or len(index.domain) != len(full) or len(node.shape) == len(full):
        return node, index
    rank = len(full)
    kept = [axis for axis in range(rank) if axis not in node.arg]
    for axis, row in zip(kept, index.rows, strict=True):
        if row != (constant(0, rank) if full[axis] == 1 else along(axis, rank)):
            return node, index
        if index.domain[axis] != full[axis]:
            return node, index
    shape = tuple(1 if axis in node.arg else size for axis, size in enumerate(full))
    rows = tuple(
        constant(0, rank) if size == 1 else along(axis, rank) for axis, size in enumerate(shape)
    )
    return make(node.op, node.srcs, node.dtype, shape, node.arg), Index(index.domain, rows)


def _repeated(own: Shape, shape: Shape) -> tuple[int, ...]:
    return aligned_strides(own, contiguous_strides(own, 1), shape)


def _from_flat(domain: Shape, row: Row, shape: Shape) -> Index:
    """Return the index of a row-major place; of a single axis that is the place along it."""
    if not shape:
        return Index(domain, ())
    return Index(domain, (row,), flat=len(shape) > 1)


def _is_identity(shape: Shape, index: Index) -> bool:
    """Whether each point reads its own place, or along repeated axes the only one."""
    rank, missing = len(index.domain), len(index.domain) - len(shape)
    if index.flat:
        same = Form(0, contiguous_strides(shape, 1))
        return index.domain == shape and index.rows[0] == same
    if missing < 0:
        return False
    for axis, (size, row) in enumerate(zip(shape, index.rows, strict=True), missing):
        if size == 1 and row == constant(0, rank):
            continue
        if size != index.domain[axis] or row != along(axis, rank):
            return False
    return True


def _filled(node: Node, domain: Shape) -> Node:
    """Return `node` in the shape of the domain, where it is repeated over it."""
    if node.shape == domain:
        return node
    return make(OPS["astype"], (node,), node.dtype, domain)


def _number(value: int) -> Node:
    """Return a scalar that no call of the plan changes."""
    return make(SCALAR, (), _INT64, (), Fixed(np.int64(value)))


def _arithmetic(name: str, node: Node, value: int) -> Node:
    return expr.elementwise(OPS[name], (node, _number(value)))


def _value(row: Row, domain: Shape) -> Node:
    """Return a row as an expression."""
    if isinstance(row, Node):
        return row
    if any(row.steps):
        return make(IOTA, (), _INT64, domain, row)
    return _number(row.offset)


def _plus(row: Row, offset: int, domain: Shape) -> Row:
    if isinstance(row, Form):
        return row + constant(offset, len(domain))
    return _arithmetic("add", row, offset) if offset else row


def _sum(domain: Shape, rows: tuple[Row, ...], steps: tuple[int, ...]) -> Row:
    """Return the sum of step * row: affine where all rows that count are."""
    affine = constant(0, len(domain))
    computed: list[Node] = []
    for row, step in zip(rows, steps, strict=True):
        if step and isinstance(row, Form):
            affine += row * step
        elif step and isinstance(row, Node):
            computed.append(row if step == 1 else _arithmetic("multiply", row, step))
    if not computed:
        return affine
    total = computed[0]
    for one in computed[1:]:
        total = expr.elementwise(OPS["add"], (total, one))
    if any(affine.steps):
        return expr.elementwise(OPS["add"], (total, _value(affine, domain)))
    return _arithmetic("add", total, affine.offset) if affine.offset else total


def bounds_checks(roots: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return for each index array under `roots` whether any of its values is out of bounds."""
    checks = []
    for node in toposort(roots):
        if node.op is OPS["wrap_index"]:
            index, size = node.srcs
            low = expr.elementwise(OPS["less"], (index, expr.elementwise(OPS["negative"], (size,))))
            high = expr.elementwise(OPS["greater_equal"], (index, size))
            wrong = expr.elementwise(OPS["logical_or"], (low, high))
            checks.append(expr.reduction(OPS["any"], wrong))
    return tuple(checks)


__all__ = ["Index", "Map", "bounds_checks", "push_views"]
