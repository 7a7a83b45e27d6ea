"""Functions and operators, generated from the op table.

A row of the table becomes a public function, its aliases, and, where the row names a Python
operator, the methods of `Array`.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse import dtypes, expr, wording
from itfuse.array import Array, apply, asarray
from itfuse.errors import AxisError, ShapeError, Unsupported
from itfuse.form import Number
from itfuse.ops import BY_UFUNC, FOLDS, OPS
from itfuse.rows.op import COMBINE, COMPOSITE, ELEMENTWISE, INDEX, RANDOM, REDUCTION, STATISTIC, Op


def _axes(x: Array, axis: Any, what: str) -> tuple[int, ...]:
    return expr.normalize_axes(axis, x.ndim, lambda: f"{what}({wording.text(x._node)})")


def _reduce(
    op: Op, x: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any
) -> Array:
    lazy = asarray(x)
    what = f"{op.name}({wording.text(lazy._node)})"
    axes = _axes(lazy, axis, op.name)
    if dtype is not None:
        if not op.takes_dtype:
            raise TypeError(f"{op.name} takes no dtype")
        dtype = dtypes.as_dtype(dtype, what)
    if where is not None:
        if initial is None and not op.of_nothing:
            raise ShapeError(
                f"{what}: {op.name} of nothing has no value, so that where= needs initial="
            )
        if dtype is None:  # before the mask, so that the dtype is that of the operand alone
            dtype = expr.reduction(op, lazy._node, None, axes, of_nothing=True).dtype
        shape = lazy.shape
        lazy = lazy.astype(dtype)
        assert op.identity is not None
        neutral = np.dtype(dtype).type(op.identity(lazy.dtype))
        lazy = FUNCTIONS["where"](where, lazy, neutral)
        if lazy.shape != shape:
            raise ShapeError(f"{what}: where= has a shape that does not broadcast to {shape}")
    node = expr.reduction(
        op, lazy._node, dtype, axes, keepdims=keepdims, of_nothing=initial is not None
    )
    result = lazy._of(node)
    if initial is None:
        return result
    if isinstance(initial, (bool, int)) and node.dtype.kind in "iu":
        start = expr.scalar(initial, node.dtype).arg
    else:
        start = np.empty((), node.dtype)
        start[...] = initial  # assigned, not cast: NaN is no integer
    return apply(BY_UFUNC[op.asks], (start[()], result))


def _function(op: Op) -> Callable[..., Array]:
    """Return the public function of a row."""

    def elementwise(*operands: Any) -> Array:
        return apply(op, operands)

    def reduction(
        x: Any,
        axis: Any = None,
        dtype: Any = None,
        *,  # NumPy has `out` here
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        return _reduce(op, x, axis, dtype, keepdims, initial, where)

    def composite(*args: Any, **kwargs: Any) -> Array:
        assert op.expand is not None
        try:
            result: Array = op.expand(F, *args, **kwargs)
        except AxisError as why:  # of what it is written with
            what = wording.text(asarray(args[0])._node) if args else ""
            raise AxisError(f"{op.name}({what}):{str(why).partition(':')[2]}") from None
        return result

    call: Any = {
        ELEMENTWISE: elementwise,
        REDUCTION: reduction,
        COMPOSITE: composite,
        STATISTIC: composite,
    }[op.kind]
    if op.expand is not None:
        shown = inspect.signature(op.expand)
        own = list(shown.parameters.values())[1:]  # without the namespace
        call.__signature__ = shown.replace(parameters=own)
    elif op.kind == ELEMENTWISE:
        names = ["x"] if op.arity == 1 else [f"x{k + 1}" for k in range(op.arity)]
        call.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
        )
    call.__name__ = call.__qualname__ = op.name
    call.__module__ = "itfuse"
    call.__doc__ = _documentation(op)
    return call  # type: ignore[no-any-return]


def _documentation(op: Op) -> str:
    text = f"{op.doc}\n\nA lazy operation: nothing runs before `compute`.\n"
    if op.ulp:
        text += f"\nAccurate to {op.ulp:g} units in the last place on every engine.\n"
    if op.aliases:
        text += f"\nAlso called {', '.join(op.aliases)}.\n"
    return text


FUNCTIONS: dict[str, Callable[..., Any]] = {}
for _op in OPS.values():
    if _op.name != "astype" and _op.kind not in (INDEX, COMBINE, RANDOM):
        FUNCTIONS.update(dict.fromkeys((_op.name, *_op.aliases), _function(_op)))


def astype(x: Any, dtype: Any) -> Array:
    """Return `x` converted to `dtype`; see `Array.astype`."""
    return asarray(x).astype(dtype)


FUNCTIONS["astype"] = astype


class _Namespace:
    """Every op as an attribute: what composite rows are written with."""

    asarray = staticmethod(asarray)

    @staticmethod
    def axes(x: Any, axis: Any) -> tuple[int, ...]:
        """Return the axes of `x` that `axis` names, sorted."""
        return _axes(asarray(x), axis, "axis=")

    @staticmethod
    def length(x: Any, axis: Any) -> int:
        """Return how many elements of `x` are reduced together along `axis`."""
        x = asarray(x)
        return math.prod(x.shape[one] for one in _axes(x, axis, "axis="))

    @staticmethod
    def fold(name: str, parts: tuple[Any, ...], axis: Any, keepdims: bool) -> Array:
        """Return a fold over arrays, constants (int) and the element's `position`."""
        x = asarray(parts[0])
        axes = _axes(x, axis, name)

        def node(part: Any) -> expr.Node:
            if isinstance(part, str):  # "position"
                return expr.position(x.shape, axes)
            return expr.constant(part, x.dtype) if isinstance(part, int) else asarray(part)._node

        nodes = tuple(map(node, parts))
        return x._of(expr.reduction(FOLDS[name], nodes, None, axes, keepdims=keepdims))

    @staticmethod
    def random(name: str, *operands: Any) -> Array:
        """Return a row of random words."""
        return apply(OPS[name], operands)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return FUNCTIONS[name]
        except KeyError:
            raise AttributeError(name) from None


F = _Namespace()


_TAKEN = (Array, Number, int, float, complex, np.generic, np.ndarray, list, tuple,
          datetime.date, datetime.timedelta)  # fmt: skip
"""What operators take; of dates they say what to do."""
_SPEAKS = ("__array__", "__dlpack__", "__cuda_array_interface__", "__array_interface__")


def _operand(x: Any) -> bool:
    """Whether an operator takes `x`; what is no array has operators of its own, or none."""
    kind = type(x)
    if isinstance(x, _TAKEN):
        return True
    return getattr(kind, "__array_ufunc__", True) is not None and any(
        hasattr(kind, name) for name in _SPEAKS
    )


_PLAIN = {Array, int, float, bool}


def _install(op: Op) -> None:
    if op.arity == 1:
        setattr(Array, f"__{op.dunder}__", FUNCTIONS[op.name])
        return

    def function(*operands: Any) -> Any:
        return apply(op, operands) if op.operator is None else op.operator(F, *operands)

    def forward(self: Array, other: Any) -> Any:
        if type(other) in _PLAIN or _operand(other):
            return function(self, other)
        return NotImplemented

    def reflected(self: Array, other: Any) -> Any:
        if type(other) in _PLAIN or _operand(other):
            return function(other, self)
        return NotImplemented

    setattr(Array, f"__{op.dunder}__", forward)
    if op.dunder not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Array, f"__r{op.dunder}__", reflected)


for _op in OPS.values():
    if _op.dunder:
        _install(_op)
for _op in OPS.values():
    for _name in (_op.name, *_op.aliases) if _op.method else ():
        if hasattr(np.ndarray, _name):
            setattr(Array, _name, FUNCTIONS[_name])


# ---- what else Python asks of a number -------------------------------------------------------
def _matmul(self: Array, other: Any) -> Any:
    raise Unsupported(
        f"{wording.text(self._node)} @ ...: itfuse has no matrix product, which is no fused pass; "
        "compute() both sides and multiply the arrays"
    )


def _round(self: Array, decimals: int | None = None) -> Any:
    return FUNCTIONS["round"](self, decimals or 0)


def _divmod(self: Array, other: Any) -> Any:
    return FUNCTIONS["divmod"](self, other) if _operand(other) else NotImplemented


def _rdivmod(self: Array, other: Any) -> Any:
    return FUNCTIONS["divmod"](other, self) if _operand(other) else NotImplemented


for _name, _method in {
    "matmul": _matmul, "rmatmul": _matmul, "round": _round, "divmod": _divmod,
    "rdivmod": _rdivmod, "floor": FUNCTIONS["floor"], "ceil": FUNCTIONS["ceil"],
    "trunc": FUNCTIONS["trunc"],
}.items():  # fmt: skip
    setattr(Array, f"__{_name}__", _method)
for _name in ("real", "imag"):
    setattr(Array, _name, property(FUNCTIONS[_name], doc=OPS[_name].doc))


# ---- NumPy's functions on an expression ------------------------------------------------------
def _no_out(name: str, kwargs: dict[str, Any]) -> None:
    """Remove arguments of the value that NumPy takes as absent; refuse `out`."""
    out = kwargs.pop("out", None)
    if not (out is None or (isinstance(out, tuple) and all(one is None for one in out))):
        raise Unsupported(
            f"np.{name}(..., out=...) of a lazy expression: nothing is computed yet; use "
            f"itf.{name}(...).compute(out=...)"
        )
    for key in [key for key, value in kwargs.items() if value is np._NoValue]:  # type: ignore[attr-defined]
        del kwargs[key]
    for key in ("where", "casting", "order", "subok", "dtype", "initial"):
        if key in kwargs and kwargs[key] is None:
            del kwargs[key]
    if kwargs.get("where") is True:
        del kwargs["where"]


def _array_ufunc(self: Array, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    name = ufunc.__name__
    _no_out(name, kwargs)
    if method == "reduce":
        row = next((op for op in OPS.values() if op.kind == REDUCTION and op.numpy is ufunc), None)
        if row is not None:
            kwargs.setdefault("axis", 0)  # what a ufunc's own reduce takes
            return FUNCTIONS[row.name](*inputs, **kwargs)
    op = BY_UFUNC.get(ufunc)
    if op is None or method != "__call__":
        called = f"np.{name}" + ("" if method == "__call__" else f".{method}")
        raise Unsupported(
            f"{called} of a lazy expression: itfuse has no such operation; compute() it first"
        )
    if kwargs:
        raise Unsupported(
            f"np.{name}({', '.join(kwargs)}=...) of a lazy expression: use .astype(...) and "
            "itf.where(...) instead"
        )
    return FUNCTIONS[op.name](*inputs)


def call_as_numpy(function: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call an itfuse function with the arguments of NumPy's function of that name.

    Positional ones are passed by NumPy's names from the first one on that has another place here.
    """
    name = function.__name__
    renamed: dict[str, str] = {"a_min": "min", "a_max": "max"} if name == "clip" else {}
    theirs, ours = _parameters(function), _parameters(call)
    places = {one.name: at for at, one in enumerate(ours) if one.kind in _POSITIONAL}
    by_name: dict[str, Any] = dict(kwargs)
    for at, parameter in enumerate(theirs[: len(args)]):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            break
        mine = renamed.get(parameter.name, parameter.name)
        here = at < len(ours) and ours[at].kind in _POSITIONAL and places.get(mine, at) == at
        if not here or parameter.name == "out":
            args, rest = args[:at], args[at:]
            by_name.update(zip((one.name for one in theirs[at:]), rest, strict=False))
            break
    _no_out(name, by_name)
    known = {one.name for one in ours}
    for one in theirs:  # what asks for nothing out of the ordinary
        if one.name in by_name and renamed.get(one.name, one.name) not in known:
            value = by_name[one.name]
            if value is one.default or (isinstance(value, (str, bool)) and value == one.default):
                del by_name[one.name]
    return call(*args, **{renamed.get(key, key): value for key, value in by_name.items()})


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
               inspect.Parameter.VAR_POSITIONAL)  # fmt: skip


@functools.cache
def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:  # written in C: its positional arguments come as they are
        return []


Array.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
