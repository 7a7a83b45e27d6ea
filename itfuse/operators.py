"""Operators beside plain calls: those that work in place, and equality with what is no number.

Both mean what they mean of a NumPy array. An expression never changes: `a += b` binds the name
`a` to another expression, which has the dtype and the shape of the old one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse import expr, wording
from itfuse.array import Array
from itfuse.errors import DTypeError, ShapeError
from itfuse.functions import FUNCTIONS, _operand
from itfuse.ops import INPUT, OPS
from itfuse.rows.op import Op
from itfuse.wording import Lazily

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _in_place(op: Op) -> Callable[[Array, Any], Any]:
    """Return the operator of a row that assigns: `+=` of `+`."""
    operator = getattr(Array, f"__{op.dunder}__")

    def assigned(self: Array, other: Any) -> Any:
        made = operator(self, other)
        # What NumPy's operations return without axes is a scalar, which += rebinds freely.
        if made is NotImplemented or (not self.shape and self._node.op is not INPUT):
            return made
        if made.shape == self.shape and made.dtype == self.dtype:
            return made
        what = f"{wording.text(self._node)} {op.symbol}= ..."
        if not np.can_cast(made.dtype, self.dtype, "same_kind"):
            raise DTypeError(
                f"{what}: {op.name} gives {made.dtype.name}, which does not cast to "
                f"{self.dtype.name} by the rule 'same_kind'; write a = a {op.symbol} ... for the "
                f"wider dtype, or .astype({self.dtype.name!r}) the result"
            )
        if made.shape != self.shape:
            raise ShapeError(
                f"{what}: the result has shape {made.shape}, and what it is assigned to "
                f"{self.shape}; write a = a {op.symbol} ... for a larger array"
            )
        return made.astype(self.dtype)

    return assigned


for _op in OPS.values():
    if _op.dunder and _op.arity == 2 and _op.dunder not in _COMPARISONS:
        setattr(Array, f"__i{_op.dunder}__", _in_place(_op))


_TIMES = (datetime.date, datetime.timedelta)


def _of_no_number(other: Any) -> tuple[int, ...] | None:
    """Return the shape of what is no number (texts, times, None, ...), or None for an operand."""
    if isinstance(other, (list, tuple, range)):
        try:
            other = np.asarray(other)
        except ValueError:  # of several lengths, which the operator says
            return None
    if isinstance(other, (np.ndarray, np.generic)):
        return other.shape if other.dtype.kind in "USMm" else None
    return None if _operand(other) and not isinstance(other, _TIMES) else ()


def _equality(name: str, symbol: str) -> Callable[[Array, Any], Any]:
    """Return `==` or `!=`, elementwise also beside what is no number: it equals nothing."""
    operator = getattr(Array, name)

    def compared(self: Array, other: Any) -> Any:
        if isinstance(other, (Array, int, float, complex)):
            return operator(self, other)
        shape = _of_no_number(other)
        if shape is None:
            return operator(self, other)
        if not isinstance(other, (np.ndarray, np.generic, list, tuple)):
            own = getattr(type(other), name)(other, self)  # a class may know better
            if own is not NotImplemented:
                return own
        what = Lazily(lambda: f"{wording.text(self._node)} {symbol} {str(other)[:40]}")
        common = expr.broadcast([self.shape, shape], lambda: str(what))
        return FUNCTIONS["full"](common, name == "__ne__", bool, like=self)

    return compared


for _name, _symbol in (("__eq__", "=="), ("__ne__", "!=")):
    setattr(Array, _name, _equality(_name, _symbol))
