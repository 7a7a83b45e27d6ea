"""Python numbers as arguments of a traced function: known when it runs, weak like any number.

Arithmetic among them is Python's own, done again at each call on the host.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from itfuse import expr
from itfuse.array import Array, asarray
from itfuse.errors import TraceError
from itfuse.form import Deferred, Number
from itfuse.ops import SCALAR

_LIMIT = 160
"""Characters from which on a name is elided."""


class TracedNumber(Number):
    """A number that is an argument, or is computed from such.

    Attributes
    ----------
    place : int
        Which argument it is; -1 if it is computed.
    operation, operands
        What it is computed by, and of what.
    sample : bool, int or float
        Its value in the call that is traced: decides nothing but its kind.
    name : str
        How the user would write it.
    """

    __slots__ = ("_parts", "name", "operands", "operation", "place", "sample")
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy's arrays leave operators to this class

    def __init__(  # noqa: PLR0917
        self,
        sample: Any,
        name: str,
        device: str,
        place: int = -1,
        operation: Callable[..., Any] | None = None,
        operands: tuple[Any, ...] = (),
    ) -> None:
        self.kind = type(sample)
        self.sample = sample
        self.name = name if len(name) <= _LIMIT else "(...)"
        self._parts: tuple[TracedNumber, ...] | None = None
        self.device = device
        self.place = place
        self.operation = operation
        self.operands = operands

    def value(self, arguments: Sequence[Any]) -> Any:
        """Return its value in a call."""
        if self.operation is None:
            return arguments[self.place]
        values: dict[int, Any] = {}
        for one in self.parts:
            values[id(one)] = (
                arguments[one.place]
                if one.operation is None
                else one.operation(
                    *[values[id(x)] if isinstance(x, TracedNumber) else x for x in one.operands]
                )
            )
        return values[id(self)]

    @property
    def parts(self) -> tuple[TracedNumber, ...]:
        """All numbers that it is computed from, each once, operands first; itself is the last."""
        if self._parts is None:
            found: dict[int, TracedNumber] = {}
            stack: list[tuple[TracedNumber, bool]] = [(self, False)]
            while stack:
                one, ready = stack.pop()
                if id(one) in found:
                    continue
                if ready:
                    found[id(one)] = one
                    continue
                stack.append((one, True))
                stack += [(x, False) for x in one.operands if isinstance(x, TracedNumber)]
            self._parts = tuple(found.values())
        return self._parts

    def __repr__(self) -> str:
        return self.name

    def _refuse(self, what: str) -> TraceError:
        return TraceError(
            f"{what}({self.name}): a number given to a fused function is not known while it is "
            "traced, because one trace serves all values. Use itf.where for a choice, give it as "
            f"a static argument (itf.fuse(static=...)), or compute {what}(...) before the call"
        )

    def __bool__(self) -> bool:
        raise self._refuse("bool")

    def __int__(self) -> int:
        raise self._refuse("int")

    def __float__(self) -> float:
        raise self._refuse("float")

    def __index__(self) -> int:
        raise self._refuse("index")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise self._refuse("array")


def as_array(number: TracedNumber) -> Array:
    """Return a NumPy scalar argument as what it is in expressions: a 0-d value of its dtype."""
    dtype = np.dtype(number.kind)
    return Array(expr.make(SCALAR, (), dtype, (), Deferred(number, (dtype,))), {}, number.device)


_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|",
    "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip


def _plain(x: Any) -> bool:
    return isinstance(x, (TracedNumber, bool, int, float)) and not isinstance(x, np.generic)


def _sample(x: Any) -> Any:
    return x.sample if isinstance(x, TracedNumber) else x


def _install(name: str, symbol: str) -> None:
    operation = getattr(operator, {"and": "and_", "or": "or_"}.get(name, name))

    def combine(a: Any, b: Any) -> Any:
        if _plain(a) and _plain(b):
            text = f"({a!r} {symbol} {b!r})"
            device = a.device if isinstance(a, TracedNumber) else b.device
            value = operation(_sample(a), _sample(b))
            return TracedNumber(value, text, device, -1, operation, (a, b))
        if isinstance(a, Array) or isinstance(b, Array):
            return NotImplemented  # the other one's operators
        try:
            return operation(*[x if _plain(x) else asarray(x) for x in (a, b)])
        except (TypeError, ValueError):
            return NotImplemented

    setattr(TracedNumber, f"__{name}__", combine)
    if name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(TracedNumber, f"__r{name}__", lambda self, other: combine(other, self))


for _name, _symbol in _SYMBOLS.items():
    _install(_name, _symbol)


def _install_unary(name: str, symbol: str) -> None:
    operation = getattr(operator, name)

    def call(self: TracedNumber) -> TracedNumber:
        text = f"{symbol}{self!r}"
        return TracedNumber(operation(self.sample), text, self.device, -1, operation, (self,))

    setattr(TracedNumber, f"__{name}__", call)


for _name, _symbol in {"neg": "-", "pos": "+", "invert": "~", "abs": "abs "}.items():
    _install_unary(_name, _symbol)
