"""Segments and keys: reductions of runs of elements that lie behind one another.

Segments are given by offsets (as the rows of a CSR matrix are), or by an ascending number for each
element. Lengths may differ as they like.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from itfuse import dtypes, expr, wording
from itfuse.array import Array, asarray, compute
from itfuse.errors import DTypeError, ShapeError
from itfuse.functions import FUNCTIONS as F
from itfuse.ops import OPS, SEGMENTS
from itfuse.rows.op import REDUCTION
from itfuse.terminals import flat, integers, known, lifted, terminal
from itfuse.wording import Lazily


def segment_reduce(
    x: Any,
    op: str,
    offsets: Any = None,
    *,
    segment_ids: Any = None,
    num_segments: int | None = None,
    dtype: Any = None,
    check: bool = False,
) -> Array:
    """Reduce each segment of an expression.

    Parameters
    ----------
    x : array
        One axis.
    op : str
        A reduction: `sum`, `prod`, `min`, `max`, `any` or `all`.
    offsets : array of integers, optional
        Segment k has the elements from `offsets[k]` up to `offsets[k + 1]`; ascending.
    segment_ids : array of integers, optional
        Instead of offsets: the number of the segment of each element, ascending.
    num_segments : int, optional
        How many segments the ids name. Without it the last id is read first, and waited for.
    dtype : dtype-like, optional
        In which `sum` and `prod` add up, as in NumPy.
    check : bool
        Whether to look first that offsets or ids ascend and stay in range, which waits for the
        answer. Without it such segments have no defined value.

    Returns
    -------
    Array
        One element a segment; the operator's identity for one without elements (0 for `sum`,
        infinity or the greatest integer for `min`). Floats are combined in an order that follows
        from the data alone on the CPU.

    Raises
    ------
    ShapeError
        If `x` has not one axis, the segments are given twice or not at all, or `check` finds a
        fault.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.asarray([1.0, 2.0, 3.0, 4.0])
    >>> itf.segment_reduce(x * x, "sum", [0, 3, 3, 4]).compute()
    array([14.,  0., 16.])
    >>> itf.segment_reduce(x, "max", segment_ids=[0, 0, 1, 1]).compute()
    array([2., 4.])
    """
    x = asarray(x)
    name = {"and": "all", "or": "any"}.get(op, op)
    what = Lazily(lambda: f"segment_{op}({wording.text(x._node)})")
    row = OPS.get(name)
    if row is None or row.kind != REDUCTION:
        raise ShapeError(f"{what}: op={op!r} is no reduction; sum, prod, min, max, any and all are")
    if x.ndim != 1:
        raise ShapeError(f"{what}: the operand has {x.ndim} axes, and one is needed; .ravel() it")
    if (offsets is None) == (segment_ids is None):
        raise ShapeError(f"{what}: give either offsets or segment_ids")
    if x.dtype.kind == "c" and name in ("min", "max"):
        raise DTypeError(f"{what}: segments of complex numbers have no {name}")
    bounds = (
        _from_ids(x, segment_ids, num_segments, check, what)
        if offsets is None
        else _from_offsets(x, offsets, check, what)
    )
    wanted = None if dtype is None else dtypes.as_dtype(dtype, str(what))
    reduced = expr.reduction(row, x._node, wanted, of_nothing=True)
    result = reduced.dtype
    wide = np.dtype(dtypes.accumulator(reduced.srcs[0].dtype.name))
    values = x._of(reduced.srcs[0]).astype(wide)
    given = lifted(segment_ids if offsets is None else offsets, x)
    label = f"segment_{op}({{0}}, {{1}})"
    found = terminal(
        SEGMENTS, [values], [bounds], x.shape, wide, (bounds.size - 1,), label, (name,),
        shown=(x, given),
    )  # fmt: skip
    return found.astype(result)


def _from_offsets(x: Array, offsets: Any, check: bool, what: object) -> Array:
    bounds = integers(lifted(offsets, x), what)
    if bounds.ndim != 1 or bounds.size == 0:
        raise ShapeError(f"{what}: offsets must have one axis and at least one element")
    if check:
        falls, low, high = known(what, _falls(bounds), bounds[0], bounds[-1])  # type: ignore[index]
        if falls or low < 0 or high > x.size:
            raise ShapeError(
                f"{what}: offsets must ascend from 0 to {x.size} at most; they go from {low} to "
                f"{high}{' and fall in between' if falls else ''}"
            )
    return bounds


def _from_ids(x: Array, segment_ids: Any, count: int | None, check: bool, what: object) -> Array:
    ids = integers(lifted(segment_ids, x), what)
    if ids.shape != x.shape:
        raise ShapeError(f"{what}: ids have the shape {ids.shape}, and the elements {x.shape}")
    if count is None:
        count = 0 if ids.size == 0 else known(what, ids[-1])[0] + 1  # type: ignore[index]
    count = operator.index(count)
    if check and ids.size:
        falls, low, high = known(what, _falls(ids), ids[0], ids[-1])  # type: ignore[index]
        if falls or low < 0 or high >= count:
            raise ShapeError(f"{what}: ids must ascend, from 0 to below {count}")
    numbers = F["arange"](count + 1)
    return F["searchsorted"](ids, numbers)  # type: ignore[no-any-return]


def _falls(x: Any) -> Array:
    """Return whether any element is less than the one before."""
    if x.size < 2:
        return F["any"](F["zeros"](1, dtype=bool))  # type: ignore[no-any-return]
    return F["any"](x[1:] < x[:-1])  # type: ignore[no-any-return]


def _named(op: str) -> Any:
    def function(x: Any, offsets: Any = None, **options: Any) -> Array:
        return segment_reduce(x, op, offsets, **options)

    function.__name__ = function.__qualname__ = f"segment_{op}"
    function.__doc__ = f"Return the {op} of each segment; see `segment_reduce`."
    return function


def segment_mean(x: Any, offsets: Any = None, **options: Any) -> Array:
    """Return the mean of each segment, NaN for one without elements; see `segment_reduce`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.segment_mean(itf.asarray([1, 2, 6]), [0, 2, 3]).compute()
    array([1.5, 6. ])
    """
    x = asarray(x)
    exact = x.dtype.kind not in "fcV"
    values = x.astype(np.float64) if exact else x
    what = Lazily(lambda: f"segment_mean({wording.text(x._node)})")
    ids = options.pop("segment_ids", None)
    if ids is not None and offsets is None and x.ndim == 1:
        count, check = options.pop("num_segments", None), options.get("check", False)
        offsets = _from_ids(x, ids, count, check, what)
    wide = np.dtype(dtypes.accumulator(values.dtype.name))
    bounds: Any = lifted(offsets, x)
    totals: Any = segment_reduce(values.astype(wide), "sum", bounds, **options)
    lengths = bounds[1:] - bounds[:-1]
    part = np.empty(0, wide).real.dtype
    mean: Array = (totals / lengths.astype(part)).astype(values.dtype)
    return mean


# ---- runs of equal elements ------------------------------------------------------------------
def _starts(keys: Array) -> Any:
    """Return where runs of equal elements begin, on the device: how many there are is read."""
    index = F["arange"](keys.size)
    before = F["take"](keys, F["maximum"](index - 1, 0))
    return F["flatnonzero"]((index == 0) | (keys != before)).compute()


def run_length_encode(x: Any) -> tuple[Any, Any]:
    """Return the first element and the length of each run of equal elements.

    How many runs there are follows from the data: this computes at once, and waits for it.

    Parameters
    ----------
    x : array
        Flattened. NaN equals nothing, so that each NaN is a run.

    Returns
    -------
    values, lengths : array
        Of the library of `x`; lengths are int64.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.run_length_encode(itf.asarray([7, 7, 7, 2, 2, 7]))
    (array([7, 2, 7]), array([3, 2, 1]))
    """
    keys = flat(x)
    if keys.size == 0:
        return keys.compute(), F["zeros"](0, dtype=np.int64).compute()
    starts = asarray(_starts(keys))
    ends = _ends(starts, keys.size)
    return compute(F["take"](keys, starts), ends - starts)  # type: ignore[no-any-return]


def _ends(starts: Any, size: int) -> Any:
    """Return where each run ends."""
    count = starts.shape[0]
    index = F["arange"](count)
    behind = F["take"](starts, F["minimum"](index + 1, count - 1))
    return F["where"](index == count - 1, np.int64(size), behind)


def reduce_by_key(keys: Any, values: Any, op: str = "sum") -> tuple[Any, Any]:
    """Reduce the values of each run of equal keys.

    How many runs there are follows from the data: this computes at once, and waits for it.

    Parameters
    ----------
    keys : array
        One axis. Only keys beside one another are taken together: sort them first
        (`itf.sort_by_key`) to take all of them.
    values : array
        Of the length of the keys.
    op : str
        As for `segment_reduce`.

    Returns
    -------
    keys, results : array
        The key and the result of each run.

    Raises
    ------
    ShapeError
        If keys and values differ in length.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.reduce_by_key([1, 1, 2, 1], itf.asarray([1.0, 2.0, 3.0, 4.0]))
    (array([1, 2, 1]), array([3., 3., 4.]))
    """
    keys, values = asarray(keys), asarray(values)
    what = Lazily(lambda: f"reduce_by_key({wording.text(keys._node)}, ...)")
    if keys.ndim != 1 or values.shape != keys.shape:
        raise ShapeError(
            f"{what}: keys have the shape {keys.shape}, and values {values.shape}; both need one "
            "axis of one length"
        )
    if keys.size == 0:
        nothing = segment_reduce(values, op, np.zeros(1, np.int64))
        return compute(keys, nothing)  # type: ignore[no-any-return]
    starts = asarray(_starts(keys))
    offsets = F["concat"]([starts, F["full"](1, keys.size, dtype=np.int64)])
    results = segment_reduce(values, op, offsets)
    return compute(F["take"](keys, starts), results)  # type: ignore[no-any-return]


_PUBLIC = (segment_reduce, segment_mean, reduce_by_key, run_length_encode)
F.update({one.__name__: one for one in _PUBLIC})
F.update({f"segment_{op}": _named(op) for op in ("sum", "prod", "min", "max")})
