"""Sums and writes at places, in an order that is the same in every run: by sorting the places.

A GPU adds at computed places by atomic operations, which come in another order each time. So
weighted counts, and `itf.put(..., ordered=True)`, are written here with other terminals: the places
are sorted with the numbers of their elements, equal ones lie behind one another, and a segment is
what one place gets. With `determinism="not_guaranteed"` weights are added atomically, in one pass.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from itfuse import expr
from itfuse.config import setting
from itfuse.dtypes import DTYPES, accumulator
from itfuse.expr import Node, Shape, make
from itfuse.form import Fixed
from itfuse.ops import BUFFER, HISTOGRAM, IOTA, OPS, RESHAPE, SCALAR, SCATTER, SEGMENTS, SORT, VIEW
from itfuse.plan.index import How, Map, along
from itfuse.plan.stages import Note
from itfuse.wording import text

_INT64 = np.dtype(np.int64)


def has_atomic(dtype: str) -> bool:
    """Whether a GPU adds, or takes the extreme of, elements of a dtype atomically."""
    row = DTYPES[dtype]
    return row.bits in (32, 64) and row.kind != "c"


def in_order(roots: tuple[Node, ...], engine: str) -> tuple[tuple[Node, ...], list[Note]]:
    """Return `roots` without sums whose order is open where it must not be, and why.

    Parameters
    ----------
    roots : tuple of Node
        Simplified expressions.
    engine : str
        Kind of engine: the CPU adds in the order of the elements anyway.
    """
    notes: list[Note] = []

    def apply(node: Node) -> Node:
        if node.op is HISTOGRAM and _weights_need_it(node, engine):
            notes.append(Note(
                "determinism",
                f"{text(node)}: places are sorted, so that weights are added in one order in every "
                "run; determinism='not_guaranteed' adds them atomically in one pass",
            ))  # fmt: skip
            return _histogram(node)
        if node.op is SCATTER and len(node.arg.options) == 2:
            mode = node.arg.options[0]
            if not _put_needs_it(node, mode, engine):
                how = replace(node.arg, options=(mode,))
                return make(node.op, node.srcs, node.dtype, node.shape, how)
            notes.append(Note(
                "determinism",
                f"{text(node)}: places are sorted, so that each gets its elements in their order",
            ))  # fmt: skip
            return _put(node, mode)
        return node

    return expr.rewrite(roots, apply), notes


def _weights_need_it(node: Node, engine: str) -> bool:
    if engine != "cuda" or node.arg.fused == 1:
        return False
    return setting("determinism") != "not_guaranteed" or not has_atomic(node.dtype.name)


def _put_needs_it(node: Node, mode: str, engine: str) -> bool:
    if engine != "cuda" or mode in ("min", "max"):
        return False
    exact = DTYPES[node.dtype.name].kind in "iu" and has_atomic(node.dtype.name)
    return mode == "set" or not exact


def _number(value: int) -> Node:
    return make(SCALAR, (), _INT64, (), Fixed(np.int64(value)))


def _call(name: str, *operands: Node) -> Node:
    return expr.elementwise(OPS[name], operands)


def _cast(node: Node, dtype: np.dtype[np.generic]) -> Node:
    return node if node.dtype == dtype else make(OPS["astype"], (node,), dtype, node.shape)


def _flat(node: Node, domain: Shape) -> Node:
    """Return an operand of one axis, repeated over the domain."""
    if node.shape != domain:
        node = make(OPS["astype"], (node,), node.dtype, domain)
    size = (math.prod(domain),)
    return node if domain == size else make(RESHAPE, (node,), node.dtype, size)


def _take(x: Node, places: Node) -> Node:
    """Return elements of one axis at places in range."""
    label = "take({0}, {1}, axis=0)"
    return make(VIEW, (x, places), x.dtype, places.shape, Map((0,), label))


def _in_memory(node: Node, label: str = "{0}") -> Node:
    return make(BUFFER, (node,), node.dtype, node.shape, How(node.shape, 0, (), 0, label))


def _sorted(places: Node) -> tuple[Node, Node | None]:
    """Return places in order, and which element each is of; None for a single one."""
    if places.size < 2:
        return _in_memory(places), None
    sides = (("sort({0})", places.dtype), ("argsort({0})", _INT64))
    keys, order = (
        make(SORT, (places,), dtype, places.shape,
             How(places.shape, 0, (False, False), side, label))
        for side, (label, dtype) in enumerate(sides)
    )  # fmt: skip
    return _in_memory(keys), _in_memory(order)


def _bounds(places: Node, count: int) -> Node:
    """Return where each of `count` places begins among sorted ones, and where the last ends.

    A binary search, as `itf.searchsorted` is.
    """
    shape, size = (count + 1,), places.size
    wanted = make(IOTA, (), _INT64, shape, along(0, 1))
    found = make(OPS["astype"], (_number(0),), _INT64, shape)
    step = 1 << size.bit_length() >> 1
    while step:  # found elements are certainly before; are found + step?
        last = _call("minimum", _call("add", found, _number(step - 1)), _number(size - 1))
        inside = _call("less_equal", _call("add", found, _number(step)), _number(size))
        before = _call("logical_and", _call("less", _take(places, last), wanted), inside)
        more = _call("where", before, _number(step), _number(0))
        found = _call("add", found, more)
        step >>= 1
    return _in_memory(found, "where each place begins")


def _sums(values: Node, bounds: Node, node: Node) -> Node:
    """Return the sum of each segment in the accumulator's dtype; it shows as `node`."""
    reduced = expr.reduction(OPS["sum"], values, None, of_nothing=True)
    wide = np.dtype(accumulator(reduced.srcs[0].dtype.name))
    values = _cast(reduced.srcs[0], wide)
    shown = node.arg.shown or node.srcs
    how = How(values.shape, 1, ("sum",), 0, node.arg.label, shown)
    return make(SEGMENTS, (values, bounds), wide, (bounds.size - 1,), how)


def _histogram(node: Node) -> Node:
    places, weights = (_flat(src, node.arg.domain) for src in node.srcs)
    if places.size == 0:
        nothing = make(SCALAR, (), node.dtype, (), Fixed(node.dtype.type(0)))
        return make(OPS["astype"], (nothing,), node.dtype, node.shape)
    keys, order = _sorted(places)
    values = weights if order is None else _take(weights, order)
    sums = _sums(_cast(values, node.dtype), _bounds(keys, node.size), node)
    return _flat_as(_cast(sums, node.dtype), node.shape)


def _flat_as(node: Node, shape: Shape) -> Node:
    return node if node.shape == shape else make(RESHAPE, (node,), node.dtype, shape)


def _put(node: Node, mode: str) -> Node:
    places, values = (_flat(src, node.arg.domain) for src in node.srcs[:2])
    base = _flat(node.srcs[2], node.shape)
    keys, order = _sorted(places)
    bounds = _bounds(keys, node.size)
    begins, ends = (
        make(VIEW, (bounds,), _INT64, base.shape, Map((along(0, 1, offset),), "{0}"))
        for offset in (0, 1)
    )
    if mode == "add":
        given = values if order is None else _take(values, order)
        sums = _sums(given, bounds, node)
        new = _cast(_call("add", _cast(base, sums.dtype), sums), node.dtype)
    else:  # the last one stays
        last = _call("maximum", _call("subtract", ends, _number(1)), _number(0))
        new = _take(values, last if order is None else _take(order, last))
    return _flat_as(_call("where", _call("greater", ends, begins), new, base), node.shape)
