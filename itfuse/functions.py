"""Functions and operators, generated from the op table.

A row of the table becomes a public function, its aliases, and, where the row names a Python
operator, the methods of `Array`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from itfuse import dtypes, expr
from itfuse.array import Array, apply, asarray
from itfuse.errors import Unsupported
from itfuse.ops import COMPOSITE, ELEMENTWISE, INDEX, OPS, REDUCTION, Op


def _reduce(op: Op, x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    lazy = asarray(x)
    what = f"{op.name}({expr.text(lazy._node)})"
    axes = (axis,) if isinstance(axis, int) else axis
    if axes is not None and sorted(a % max(lazy.ndim, 1) for a in axes) != list(range(lazy.ndim)):
        raise Unsupported(
            f"{what}: axis={axis} of a {lazy.ndim}-d expression; only reductions of "
            "the whole array are there, axis=None"
        )
    if keepdims and lazy.ndim:
        raise Unsupported(f"{what}: keepdims=True is not there; the result is 0-d and broadcasts")
    if dtype is not None:
        if op.name not in ("sum", "prod"):
            raise TypeError(f"{op.name} takes no dtype")
        dtype = dtypes.as_dtype(dtype, what)
    return lazy._of(expr.reduction(op, lazy._node, dtype))


def _function(op: Op) -> Callable[..., Array]:
    """Return the public function of a row."""

    def elementwise(*operands: Any) -> Array:
        return apply(op, operands)

    def reduction(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        return _reduce(op, x, axis, dtype, keepdims)

    def composite(*args: Any, **kwargs: Any) -> Array:
        assert op.expand is not None
        result: Array = op.expand(F, *args, **kwargs)
        return result

    call: Callable[..., Array] = {
        ELEMENTWISE: elementwise,
        REDUCTION: reduction,
        COMPOSITE: composite,
    }[op.kind]
    call.__name__ = call.__qualname__ = op.name
    call.__module__ = "itfuse"
    call.__doc__ = _documentation(op)
    return call


def _documentation(op: Op) -> str:
    text = f"{op.doc}\n\nA lazy operation: nothing runs before `compute`.\n"
    if op.ulp:
        text += f"\nAccurate to {op.ulp:g} units in the last place on every engine.\n"
    if op.aliases:
        text += f"\nAlso called {', '.join(op.aliases)}.\n"
    return text


FUNCTIONS: dict[str, Callable[..., Any]] = {}
for _op in OPS.values():
    if _op.name != "astype" and _op.kind != INDEX:
        FUNCTIONS.update(dict.fromkeys((_op.name, *_op.aliases), _function(_op)))


def astype(x: Any, dtype: Any) -> Array:
    """Return `x` converted to `dtype`; see `Array.astype`."""
    return asarray(x).astype(dtype)


FUNCTIONS["astype"] = astype


class _Namespace:
    """Every op as an attribute: what composite rows are written with."""

    asarray = staticmethod(asarray)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return FUNCTIONS[name]
        except KeyError:
            raise AttributeError(name) from None


F = _Namespace()

_METHODS = ("sum", "prod", "min", "max", "any", "all", "mean", "clip", "round")


def _power(x: Any, y: Any) -> Any:
    # NumPy's `**` (not np.power) takes cheap exponents by cheaper means, with other roundings.
    if type(y) in (int, float) and isinstance(x, Array):
        if y == 2 and (x.dtype.kind == "f" or type(y) is int) and x.dtype.kind != "b":
            return FUNCTIONS["square"](x)
        cheap = {0.5: "sqrt", -1: "reciprocal", 1: "positive"}.get(y)
        if cheap and x.dtype.kind == "f":
            return FUNCTIONS[cheap](x)
    return FUNCTIONS["power"](x, y)


def _operand(x: Any) -> bool:
    return not isinstance(x, (str, bytes, type(None), dict, set))


def _install(op: Op) -> None:
    function: Callable[..., Any] = _power if op.dunder == "pow" else FUNCTIONS[op.name]
    if op.arity == 1:
        setattr(Array, f"__{op.dunder}__", function)
        return

    def forward(self: Array, other: Any) -> Any:
        return function(self, other) if _operand(other) else NotImplemented

    def reflected(self: Array, other: Any) -> Any:
        return function(other, self) if _operand(other) else NotImplemented

    setattr(Array, f"__{op.dunder}__", forward)
    if op.dunder not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Array, f"__r{op.dunder}__", reflected)


for _op in OPS.values():
    if _op.dunder:
        _install(_op)
for _name in _METHODS:
    setattr(Array, _name, FUNCTIONS[_name])
