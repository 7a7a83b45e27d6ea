"""Scans: running totals along an axis, and those of other associative operators."""

from __future__ import annotations

from typing import Any

from itfuse import dtypes, expr, wording
from itfuse.array import Array, asarray
from itfuse.custom import operator
from itfuse.errors import ShapeError
from itfuse.functions import FUNCTIONS as F
from itfuse.functions import without_out
from itfuse.ops import OPS, SCAN
from itfuse.rows.op import REDUCTION, Op
from itfuse.terminals import terminal
from itfuse.wording import Lazily

_NAMES = {"sum": "cumulative_sum", "prod": "cumulative_prod", "max": "cummax", "min": "cummin"}


def scan(
    x: Any,
    op: Any,
    axis: int = -1,
    *,
    identity: Any = None,
    dtype: Any = None,
    exclusive: bool = False,
    reverse: bool = False,
) -> Array:
    """Combine each element with all before it along an axis.

    Parameters
    ----------
    x : array
        An expression of at least one axis.
    op : str, or CppFunction, numpy.ufunc, function of itfuse or Python function
        A reduction: `sum`, `prod`, `min`, `max`, `any` or `all`; or an associative operator of two
        numbers, as `itf.reduce` takes it. It need not be commutative: the earlier element is the
        first operand.
    axis : int
        The axis.
    identity : scalar, optional
        Of an operator that is no reduction by name: ``op(identity, x)`` is x.
    dtype : dtype-like, optional
        In which `sum` and `prod` add up, as in NumPy.
    exclusive : bool
        Whether an element itself is left out: the first one is then the operator's identity.
    reverse : bool
        Whether to go from the last element to the first.

    Returns
    -------
    Array
        Of the shape of `x`. One pass, with what it is computed of and what is computed of it at
        the same place. Floats combine in the fixed order of docs/determinism.md, which follows
        from an element's place along the axis alone: the first k results are the scan of the first
        k elements, on every engine and in every run. float16 and bfloat16 add up in float32, and
        each result is rounded once.

    Raises
    ------
    ShapeError
        If `x` has no axis, or `op` is no reduction.
    AxisError
        If there is no such axis.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> x = itf.asarray([1.0, 2.0, 3.0])
    >>> itf.scan(x * x, "sum").compute()
    array([ 1.,  5., 14.])
    >>> itf.scan(x, "max", reverse=True, exclusive=True).compute()
    array([  3.,   3., -inf])
    >>> itf.scan(np.array([12, 18, 27]), np.gcd, identity=0).compute()
    array([12,  6,  3])
    >>> itf.plan(itf.scan(x * x, "sum") / 3).passes
    1
    """
    x = asarray(x)
    _one_axis(x, axis, Lazily(lambda: f"scan({wording.text(x._node)}, ...)"))
    if not isinstance(op, str):
        row, wanted = operator(x, op, identity, "scan")
        return scan_by(x, row, axis, "scan", wanted, exclusive, reverse)
    if op not in OPS or OPS[op].kind != REDUCTION:
        raise ShapeError(
            f"scan({wording.text(x._node)}, {op!r}): that is no reduction; sum, prod, min, max, "
            "any and all are"
        )
    label = _NAMES.get(op, f"scan_{op}")
    return scan_by(x, op, axis, label, dtype, exclusive, reverse)


def scan_by(  # noqa: PLR0917 - what makes a scan
    x: Array,
    op: str | Op,
    axis: int,
    label: str,
    dtype: Any = None,
    exclusive: bool = False,
    reverse: bool = False,
) -> Array:
    """Scan by the name of a reduction, or by a row; `label` is what the user called."""
    what = Lazily(lambda: f"{label}({wording.text(x._node)})")
    row = OPS.get(op) if isinstance(op, str) else op
    assert row is not None
    at = _one_axis(x, axis, what)
    wanted = None if dtype is None else dtypes.as_dtype(dtype, str(what))
    reduced = expr.reduction(row, x._node, wanted, of_nothing=True)
    values = x._of(reduced.srcs[0])
    notes = "".join([
        "" if at == x.ndim - 1 else f", axis={at}",
        ", exclusive" if exclusive else "",
        ", reverse" if reverse else "",
    ])  # fmt: skip
    shown = "" if isinstance(op, str) else f", {row.shown}"
    options = (row.name, bool(exclusive), bool(reverse), at)
    return terminal(
        SCAN, [values], [], x.shape, reduced.dtype, x.shape, f"{label}({{0}}{shown}{notes})",
        options, shown=(x,),
    )  # fmt: skip


def _one_axis(x: Array, axis: Any, what: object) -> int:
    if axis is None or isinstance(axis, (tuple, list)):
        raise TypeError(
            f"{what}: axis={axis!r}; a scan runs along one axis: give an integer, or .ravel() the "
            "operand first"
        )
    if x.ndim == 0:
        raise ShapeError(f"{what}: the operand has no axis; .ravel() it")
    return expr.normalize_axes(axis, x.ndim, lambda: str(what))[0]


def _with_axis(x: Array) -> Array:
    """Return a 0-d operand with one axis, as NumPy's running sums take it."""
    return x if x.ndim else F["reshape"](x, 1)  # type: ignore[no-any-return]


def _along(x: Array, axis: Any, name: str) -> tuple[Array, int]:
    """Return what the axis of the Array API names: it may be left out of one axis only."""
    x = _with_axis(x)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(
                f"{name}({wording.text(x._node)}): the operand has {x.ndim} axes; say which axis="
            )
        axis = 0
    return x, axis


def _cumulative(op: str, name: str) -> Any:
    def function(
        x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Array:
        x, along = _along(asarray(x), axis, name)
        if not include_initial:
            return scan_by(x, op, along, name, dtype)
        at = _one_axis(x, along, Lazily(lambda: f"{name}({wording.text(x._node)})"))
        behind = F["zeros"]((*x.shape[:at], 1, *x.shape[at + 1 :]), dtype=x.dtype)
        return scan_by(F["concat"]([x, behind], at), op, at, name, dtype, exclusive=True)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Return the running {op} along an axis, as in the Array API.

    Parameters
    ----------
    x : array
        The operand.
    axis : int, optional
        May be left out of one axis.
    dtype : dtype-like, optional
        In which it adds up.
    include_initial : bool
        Whether the identity comes first, so that there is one element more.

    See Also
    --------
    scan : The order of floats, other operators, from the end.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.{name}(itf.asarray([2, 3, 4]), include_initial=True).compute().tolist()
    {[0, 2, 5, 9] if op == "sum" else [1, 2, 6, 24]}
    """
    return without_out(function)


def _flat(op: str, name: str) -> Any:
    def function(a: Any, axis: int | None = None, dtype: Any = None) -> Array:
        x = asarray(a)
        if axis is None:
            x, axis = (x if x.ndim == 1 else F["ravel"](x)), 0
        return scan_by(_with_axis(x), op, axis, name, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Return the running {op}, of the flattened operand without `axis`.

    NumPy's; see `scan` for the order of floats.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.{name}(itf.asarray([[1, 2], [3, 4]])).compute().tolist()
    {[1, 3, 6, 10] if op == "sum" else [1, 2, 6, 24]}
    """
    return without_out(function)


def _extreme(op: str, name: str) -> Any:
    def function(x: Any, axis: int | None = None) -> Array:
        x, along = _along(asarray(x), axis, name)
        return scan_by(x, op, along, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Return the {op} of each element and all before it along an axis.

    That is `np.{op}imum.accumulate`: NaN stays from its place on.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.{name}(itf.asarray([2, 5, 1])).compute().tolist()
    {[2, 5, 5] if op == "max" else [2, 2, 1]}
    """
    return function


F["scan"] = scan
for _op in ("sum", "prod"):
    _name = _NAMES[_op]
    F[_name] = _cumulative(_op, _name)
    F[f"cum{_op}"] = _flat(_op, f"cum{_op}")
    setattr(Array, f"cum{_op}", F[f"cum{_op}"])
for _op in ("max", "min"):
    F[_NAMES[_op]] = _extreme(_op, _NAMES[_op])


def _nan_to(neutral: int, op: str) -> Any:
    name = f"nancum{op}"

    def function(a: Any, axis: int | None = None, dtype: Any = None) -> Array:
        x = asarray(a)
        if x.dtype.kind in "fcV":
            x = F["where"](F["isnan"](x), x.dtype.type(neutral), x)
        return F[f"cum{op}"](x, axis, dtype)  # type: ignore[no-any-return]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return the running {op}, NaN counted as {neutral}; see `cum{op}`."
    return without_out(function)


F["nancumsum"], F["nancumprod"] = _nan_to(0, "sum"), _nan_to(1, "prod")
