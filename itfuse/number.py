"""Python numbers as arguments of a traced function: known when it runs, weak like any number.

Arithmetic among them is Python's own, done again at each call on the host.
"""

from __future__ import annotations

import math
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

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The kind of number it stands for: a test with `isinstance` takes the right branch."""
        return self.kind

    def __repr__(self) -> str:
        return self.name

    def _refuse(self, what: str) -> TraceError:
        return TraceError(
            f"{what}({self.name}): a number given to a fused function is not known while it is "
            "traced, because one trace serves all values. Use itf.where for a choice, give it as "
            f"a static argument (itf.fuse(static=...)), or compute {what}(...) before the call"
        )

    def __getattr__(self, name: str) -> Any:
        """Refuse the methods that the number has when it is known."""
        if not hasattr(self.kind, name):
            raise AttributeError(f"{self.kind.__name__!r} object has no attribute {name!r}")

        def unknown(*args: Any, **kwargs: Any) -> Any:
            raise self._refuse(f"{self.kind.__name__}.{name}")

        return unknown

    @property
    def real(self) -> TracedNumber:
        """The number itself."""
        return _same(self)

    @property
    def imag(self) -> Any:
        """Zero."""
        return self.kind(0) + 0

    def conjugate(self) -> TracedNumber:
        """Return the number itself."""
        return _same(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply NumPy's function, as to the 0-d array that NumPy makes of a number."""
        return asarray(self).__array_ufunc__(ufunc, method, *inputs, **kwargs)  # type: ignore[attr-defined]

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply CuPy's function."""
        return asarray(self).__cupy_override_elementwise_kernel__(kernel, *args, **kwargs)


def _install_refusals() -> None:
    for what in ("bool", "int", "float", "complex", "index", "hash", "str"):

        def asked(self: TracedNumber, what: str = what) -> Any:
            raise self._refuse(what)

        setattr(TracedNumber, f"__{what}__", asked)
    for name, what in {"__array__": "array", "__format__": "format"}.items():

        def called(self: TracedNumber, *args: Any, what: str = what, **kwargs: Any) -> Any:
            raise self._refuse(what)

        setattr(TracedNumber, name, called)


_install_refusals()


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


def _computed(text: str, operation: Callable[..., Any], *operands: Any) -> TracedNumber:
    """Return the number that Python's `operation` gives, done again at each call."""
    device = next(x.device for x in operands if isinstance(x, TracedNumber))
    value = operation(*map(_sample, operands))
    return TracedNumber(value, text, device, -1, operation, operands)


def _same(x: TracedNumber) -> TracedNumber:
    return _computed(repr(x), operator.pos, x)


def _combine(operation: Callable[..., Any], symbol: str, a: Any, b: Any) -> Any:
    if _plain(a) and _plain(b):
        return _computed(f"({a!r} {symbol} {b!r})", operation, a, b)
    if isinstance(a, Array) or isinstance(b, Array):
        return NotImplemented  # the other one's operators
    try:
        return operation(*[x if _plain(x) else asarray(x) for x in (a, b)])
    except TraceError:
        raise
    except (TypeError, ValueError):
        return NotImplemented


def _install(name: str, symbol: str) -> None:
    operation = getattr(operator, {"and": "and_", "or": "or_"}.get(name, name))
    setattr(TracedNumber, f"__{name}__", lambda a, b: _combine(operation, symbol, a, b))
    if name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(TracedNumber, f"__r{name}__", lambda a, b: _combine(operation, symbol, b, a))


for _name, _symbol in _SYMBOLS.items():
    _install(_name, _symbol)


def _install_unary(name: str, text: str, operation: Callable[..., Any]) -> None:
    def call(self: TracedNumber) -> TracedNumber:
        return _computed(text.format(self), operation, self)

    setattr(TracedNumber, f"__{name}__", call)


for _name, _text, _of in (
    ("neg", "-{!r}", operator.neg), ("pos", "+{!r}", operator.pos),
    ("invert", "~{!r}", operator.invert), ("abs", "abs({!r})", operator.abs),
    ("floor", "floor({!r})", math.floor), ("ceil", "ceil({!r})", math.ceil),
    ("trunc", "trunc({!r})", math.trunc),
):  # fmt: skip
    _install_unary(_name, _text, _of)


def _pow(self: TracedNumber, other: Any, modulo: Any = None) -> Any:
    if modulo is None:
        return _combine(operator.pow, "**", self, other)
    return _computed(f"pow({self!r}, {other!r}, {modulo!r})", pow, self, other, modulo)


def _round(self: TracedNumber, digits: Any = None) -> TracedNumber:
    if digits is None:
        return _computed(f"round({self!r})", round, self)
    return _computed(f"round({self!r}, {digits!r})", round, self, digits)


def _divmod(a: Any, b: Any) -> Any:
    return (a // b, a % b)


_MORE: dict[str, Any] = {
    "pow": _pow, "round": _round, "divmod": _divmod, "rdivmod": lambda b, a: _divmod(a, b),
}  # fmt: skip
for _name, _method in _MORE.items():
    setattr(TracedNumber, f"__{_name}__", _method)
