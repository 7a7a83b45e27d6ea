"""Scans that begin anew in every segment.

They are scans of two fields: the running value, and whether a segment began among the elements
combined. Of two neighbours the second alone counts if a segment began in it (Blelloch, Prefix Sums
and Their Applications, 1990), which is associative whatever the operator does.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np

from itfuse import dtypes, expr, wording
from itfuse.array import Array, asarray
from itfuse.custom import operator
from itfuse.dtypes import DTYPES
from itfuse.errors import ShapeError
from itfuse.expr import signature_of
from itfuse.functions import FUNCTIONS as F
from itfuse.lower.cpp import expression
from itfuse.ops import CUSTOM, FOLDS, OPS, ROWS, SCAN, identity
from itfuse.rows.op import FOLD, REDUCTION, Op
from itfuse.terminals import buffered, integers, lifted, terminal
from itfuse.wording import Lazily


def segment_scan(
    x: Any,
    op: Any,
    offsets: Any = None,
    *,
    segment_ids: Any = None,
    identity: Any = None,
    dtype: Any = None,
    exclusive: bool = False,
    reverse: bool = False,
) -> Array:
    """Combine each element with all before it in its segment.

    Parameters
    ----------
    x : array
        One axis.
    op : str, or CppFunction, numpy.ufunc, function of itfuse or Python function
        As for `itf.scan`; it need not be commutative.
    offsets, segment_ids : array of integers
        As for `segment_reduce`, one of them. Elements of no segment are scanned as segments of
        their own are.
    identity, dtype, exclusive, reverse
        As for `itf.scan`, within each segment.

    Returns
    -------
    Array
        Of the shape of `x`. With ids one pass, and fused as scans are; with offsets the beginnings
        are first marked in memory, one byte an element, by passes that the plan shows. Floats
        combine in the order of scans, by their places in the array, on every engine.

    Raises
    ------
    ShapeError
        If `x` has not one axis, `op` is no reduction, or segments are given twice or not at all.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.asarray([1.0, 2.0, 3.0, 4.0])
    >>> itf.segment_scan(x, "sum", segment_ids=[0, 0, 1, 1]).compute()
    array([1., 3., 3., 7.])
    >>> itf.segment_scan(x, "sum", [0, 1, 4], exclusive=True).compute()
    array([0., 0., 2., 5.])
    """
    x = asarray(x)
    said = f"{op}, " if isinstance(op, str) else ""
    what = Lazily(lambda: f"segment_scan({wording.text(x._node)})")
    row: Op | None
    wanted: Any = None if dtype is None else dtypes.as_dtype(dtype, str(what))
    if isinstance(op, str):
        row = OPS.get(op)
    else:
        row, wanted = operator(x, op, identity, "segment_scan")
        said = f"{ROWS[row.combine].shown}, "
    if row is None or row.kind != REDUCTION:
        raise ShapeError(f"{what}: op={op!r} is no reduction; sum, prod, min, max, any and all are")
    if x.ndim != 1:
        raise ShapeError(f"{what}: the operand has {x.ndim} axes, and one is needed; .ravel() it")
    if (offsets is None) == (segment_ids is None):
        raise ShapeError(f"{what}: give either offsets or segment_ids")
    given = lifted(segment_ids if offsets is None else offsets, x)
    marks = _changes if offsets is None else _marks
    begins = marks(x, integers(given, what), reverse, what)
    reduced = expr.reduction(row, x._node, wanted, of_nothing=True)
    both = _segmented(row.combine, dtypes.accumulator(reduced.srcs[0].dtype.name))
    notes = (", exclusive" if exclusive else "") + (", reverse" if reverse else "")
    found = terminal(
        SCAN, [x._of(reduced.srcs[0]), begins], [], x.shape, reduced.dtype, x.shape,
        f"segment_scan({{0}}, {said}{{1}}{notes})", (both.name, bool(exclusive), bool(reverse), 0),
        shown=(x, given),
    )  # fmt: skip
    if not exclusive:
        return found
    neutral = row.identity(reduced.dtype) if row.identity else 0
    return F["where"](begins, reduced.dtype.type(neutral), found)  # type: ignore[no-any-return]


def _changes(x: Array, ids: Any, reverse: bool, what: object) -> Any:
    """Return where another segment begins, in the direction of the scan."""
    if ids.shape != x.shape:
        raise ShapeError(f"{what}: ids have the shape {ids.shape}, and the elements {x.shape}")
    index, last = F["arange"](x.size), x.size - 1
    if reverse:
        return (index == last) | (ids != F["take"](ids, F["minimum"](index + 1, last)))
    return (index == 0) | (ids != F["take"](ids, F["maximum"](index - 1, 0)))


def _marks(x: Array, offsets: Any, reverse: bool, what: object) -> Any:
    """Return the same as an array, marked where the offsets say; what is outside marks nothing."""
    if offsets.ndim != 1 or offsets.size == 0:
        raise ShapeError(f"{what}: offsets must have one axis and at least one element")
    places = offsets - 1 if reverse else offsets
    inside = (places >= 0) & (places < x.size)
    clean = F["zeros"](x.size + 1, dtype=bool)
    marked: Any = buffered(F["put"](clean, F["where"](inside, places, x.size), True))
    return marked[:-1]


@functools.lru_cache(maxsize=256)
def _segmented(combine: str, dtype: str) -> Op:
    """Return the operator on a value and whether a segment began, made of one on values."""
    row = ROWS[combine]
    code = expression(combine, ["a", "b"], [dtype, dtype], dtype)
    signature = signature_of(row.helper, [dtype, dtype], dtype)
    helpers = row.helper[signature] if signature else ()
    key = hashlib.sha256(repr((combine, dtype, code, helpers)).encode()).hexdigest()[:16]
    call, cpp = f"itf_segmented_{key}", DTYPES[dtype].cpp
    text = f"""
__device__ __forceinline__ void {call}({cpp}& a, bool& began, {cpp} b, bool begins) {{
  a = begins ? b : ({cpp})({code});
  began = began || begins;
}}
"""
    kind = np.dtype(dtype)
    neutral = identity(combine, kind)

    def merge(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        both = row.twin(kind.kind)(a[0], b[0])
        return np.where(b[1], b[0], both), a[1] | b[1]

    name = f"segmented_{row.shown}@{key}"
    FOLDS.setdefault(name, Op(
        name, 0, FOLD, f"{row.shown} that begins anew in every segment.", combine=name,
        fields=lambda _: ((kind, neutral), (np.dtype(bool), np.False_)), merge=merge,
        cpp={"merge": f"{call}({{a}}, {{b}})"}, helper={"*": (*helpers, text)},
    ))  # fmt: skip
    return CUSTOM.setdefault(name, FOLDS[name])


F["segment_scan"] = segment_scan
