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
from itfuse.custom import operator as operator_of
from itfuse.errors import DTypeError, ShapeError
from itfuse.functions import FUNCTIONS as F
from itfuse.ops import OPS, SEGMENTS
from itfuse.rows.op import REDUCTION, Op
from itfuse.terminals import flat, integers, known, lifted, terminal
from itfuse.wording import Lazily


def segment_reduce(
    x: Any,
    op: Any,
    offsets: Any = None,
    *,
    segment_ids: Any = None,
    num_segments: int | None = None,
    dtype: Any = None,
    identity: Any = None,
    check: bool = False,
) -> Array:
    """Reduce each segment of an expression.

    Parameters
    ----------
    x : array
        One axis.
    op : str, or CppFunction, numpy.ufunc, function of itfuse or Python function
        A reduction: `sum`, `prod`, `min`, `max`, `any` or `all`; or an associative operator of two
        numbers, as `itf.reduce` takes it.
    offsets : array of integers, optional
        Segment k has the elements from `offsets[k]` up to `offsets[k + 1]`; ascending. What lies
        outside of the array has no elements.
    segment_ids : array of integers, optional
        Instead of offsets: the number of the segment of each element, ascending.
    num_segments : int, optional
        How many segments the ids name. Without it the last id is read first, and waited for.
    dtype : dtype-like, optional
        In which `sum` and `prod` add up, as in NumPy.
    identity : scalar, optional
        Of an operator that is no reduction by name: ``op(identity, x)`` is x. The ufuncs of those
        reductions (`numpy.add`, `numpy.maximum`, ...) do without.
    check : bool
        Whether to look first that offsets or ids ascend and stay in range, which waits for the
        answer. Without it, segments of offsets that fall have no defined value.

    Returns
    -------
    Array
        One element a segment; the operator's identity for one without elements (0 for `sum`,
        infinity or the greatest integer for `min`). A segment combines as a whole array of its
        length does (docs/determinism.md), on every engine. One pass, with what it is computed of,
        what is computed of it at the same place, and other reductions of the same offsets.

    Raises
    ------
    ShapeError
        If `x` has not one axis, the segments are given twice or not at all, or `check` finds a
        fault.
    TypeError
        If an operator needs its `identity`.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> x = itf.asarray([1.0, 2.0, 3.0, 4.0])
    >>> itf.segment_reduce(x * x, "sum", [0, 3, 3, 4]).compute()
    array([14.,  0., 16.])
    >>> itf.segment_reduce(x, "max", segment_ids=[0, 0, 1, 1]).compute()
    array([2., 4.])
    >>> itf.segment_reduce(np.array([12, 18, 7]), np.gcd, [0, 2, 3], identity=0).compute()
    array([6, 7])
    >>> norm = itf.sqrt(itf.segment_sum(x * x, np.array([0, 2, 4])))
    >>> itf.plan(norm, itf.segment_max(x, np.array([0, 2, 4]))).passes
    2
    >>> offsets = itf.asarray([0, 2, 4])
    >>> itf.plan(itf.sqrt(itf.segment_sum(x * x, offsets)), itf.segment_max(x, offsets)).passes
    1
    """
    x = asarray(x)
    row, wanted, said = _operator(x, op, identity, dtype)
    what = Lazily(lambda: f"{said}({wording.text(x._node)})")
    if row is None or row.kind != REDUCTION:
        raise ShapeError(f"{what}: op={op!r} is no reduction; sum, prod, min, max, any and all are")
    if x.ndim != 1:
        raise ShapeError(f"{what}: the operand has {x.ndim} axes, and one is needed; .ravel() it")
    if (offsets is None) == (segment_ids is None):
        raise ShapeError(f"{what}: give either offsets or segment_ids")
    bounds = (
        _from_ids(x, segment_ids, num_segments, check, what)
        if offsets is None
        else _from_offsets(x, offsets, check, what)
    )
    reduced = expr.reduction(row, x._node, wanted, of_nothing=True)
    given = lifted(segment_ids if offsets is None else offsets, x)
    shown = "" if said.startswith("segment_") and isinstance(op, str) else f", {row.shown}"
    return terminal(
        SEGMENTS, [x._of(reduced.srcs[0])], [bounds], x.shape, reduced.dtype, (bounds.size - 1,),
        f"{said}({{0}}{shown}, {{1}})", (row.name,), shown=(x, given),
    )  # fmt: skip


_UFUNCS: dict[Any, str] = {
    np.add: "sum", np.multiply: "prod", np.minimum: "min", np.maximum: "max",
    np.logical_and: "all", np.logical_or: "any",
}  # fmt: skip


def _operator(x: Array, op: Any, identity: Any, dtype: Any) -> tuple[Op | None, Any, str]:
    """Return the reduction, the dtype that it adds up in if that is given, and its name."""
    name = op
    if isinstance(op, np.ufunc) and identity is None:
        name = _UFUNCS.get(op, op)
    if isinstance(name, str):
        said = f"segment_{name}"
        wanted = None if dtype is None else dtypes.as_dtype(dtype, said)
        return OPS.get({"and": "all", "or": "any"}.get(name, name)), wanted, said
    return *operator_of(x, op, identity, "segment_reduce"), "segment_reduce"


_PLAIN = 4
"""Bytes of the least integers that kernels read offsets of; narrower ones are converted first."""


def _from_offsets(x: Array, offsets: Any, check: bool, what: object) -> Array:
    bounds = lifted(offsets, x)
    if bounds.dtype.kind not in "iu" or bounds.dtype.itemsize < _PLAIN:
        bounds = integers(bounds, what)
    elif bounds.dtype == np.uint64:
        raise DTypeError(f"{what}: offsets are uint64, and may exceed int64; .astype('int64') them")
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


def segment_mean(
    x: Any, offsets: Any = None, *, segment_ids: Any = None, num_segments: int | None = None,
    check: bool = False,
) -> Array:  # fmt: skip
    """Return the mean of each segment, NaN for one without elements; see `segment_reduce`.

    Integers are added up in float64, float16 and bfloat16 in float32. One pass: the sums are
    divided by the lengths as they are written.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.segment_mean(itf.asarray([1, 2, 6]), [0, 2, 3]).compute()
    array([1.5, 6. ])
    """
    x = asarray(x)
    values = x.astype(np.float64) if x.dtype.kind not in "fcV" else x
    wide = np.dtype(dtypes.accumulator(values.dtype.name))
    what = Lazily(lambda: f"segment_mean({wording.text(x._node)})")
    bounds: Any = None if offsets is None else lifted(offsets, x)
    if segment_ids is not None and offsets is None and x.ndim == 1:
        bounds, segment_ids = _from_ids(x, segment_ids, num_segments, check, what), None
    totals: Any = segment_reduce(
        values.astype(wide), "sum", bounds, segment_ids=segment_ids, num_segments=num_segments,
        check=check,
    )  # fmt: skip
    inside = F["clip"](integers(bounds, what), 0, x.size)
    lengths = F["maximum"](inside[1:] - inside[:-1], 0)
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


def reduce_by_key(keys: Any, values: Any, op: Any = "sum", *, identity: Any = None) -> Any:
    """Reduce the values of each run of equal keys.

    How many runs there are follows from the data: this computes at once, and waits for it.

    Parameters
    ----------
    keys : array
        One axis. Only keys beside one another are taken together: sort them first
        (`itf.sort_by_key`) to take all of them.
    values : array
        Of the length of the keys.
    op : str, or CppFunction, numpy.ufunc, function of itfuse or Python function
        As for `segment_reduce`, or `mean`.
    identity : scalar, optional
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
    >>> itf.reduce_by_key([1, 1, 2], itf.asarray([1.0, 2.0, 3.0]), "mean")
    (array([1, 2]), array([1.5, 3. ]))
    """
    keys, values = asarray(keys), asarray(values)
    what = Lazily(lambda: f"reduce_by_key({wording.text(keys._node)}, ...)")
    if keys.ndim != 1 or values.shape != keys.shape:
        raise ShapeError(
            f"{what}: keys have the shape {keys.shape}, and values {values.shape}; both need one "
            "axis of one length"
        )

    def reduced(offsets: Any) -> Array:
        if isinstance(op, str) and op == "mean":
            return segment_mean(values, offsets)
        return segment_reduce(values, op, offsets, identity=identity)

    if keys.size == 0:
        return compute(keys, reduced(np.zeros(1, np.int64)))
    starts = asarray(_starts(keys))
    offsets = F["concat"]([starts, F["full"](1, keys.size, dtype=np.int64)])
    return compute(F["take"](keys, starts), reduced(offsets))


_PUBLIC = (segment_reduce, segment_mean, reduce_by_key, run_length_encode)
F.update({one.__name__: one for one in _PUBLIC})
F.update({f"segment_{op}": _named(op) for op in ("sum", "prod", "min", "max")})
