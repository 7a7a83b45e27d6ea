"""Functions and operators, generated from the op table.

A row of the table becomes a public function, its aliases, and, where the row names a Python
operator, the methods of `Array`.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse import dtypes, expr, wording
from itfuse.array import Array, apply, asarray
from itfuse.errors import ItfuseError, ShapeError, TraceError, Unsupported
from itfuse.form import Number
from itfuse.ops import BY_UFUNC, FOLDS, OPS
from itfuse.rows.op import COMBINE, ELEMENTWISE, INDEX, RANDOM, REDUCTION, Op


def _axes(x: Array, axis: Any, what: str) -> tuple[int, ...]:
    return expr.normalize_axes(axis, x.ndim, lambda: f"{what}({wording.text(x._node)})")


def reduce_by(
    op: Op, x: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any
) -> Array:
    """Reduce by a row of the table; see the public functions of such rows."""
    lazy = asarray(x)
    what = f"{op.name}({wording.text(lazy._node)})"
    axes = _axes(lazy, axis, op.name)
    if dtype is not None:
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
    if isinstance(initial, Number):
        return apply(BY_UFUNC[op.asks], (asarray(initial).astype(node.dtype), result))
    if isinstance(initial, (bool, int)) and node.dtype.kind in "iu":
        start = expr.scalar(initial, node.dtype).arg
    else:
        start = np.empty((), node.dtype)
        start[...] = initial  # assigned, not cast: NaN is no integer
    return apply(BY_UFUNC[op.asks], (start[()], result))


def no_out(name: str, out: Any, called: str = "") -> None:
    """Refuse `out`, whose place is where an expression is computed."""
    if not (out is None or (isinstance(out, tuple) and all(one is None for one in out))):
        raise Unsupported(
            f"{called or name}(..., out=...) of a lazy expression: nothing is computed yet; use "
            f"itf.{name}(...).compute(out=...)"
        )


def without_out(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Return a function that takes `out`, which NumPy's of that name has, to say where it goes."""
    name = name or function.__name__

    @functools.wraps(function)
    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:
            no_out(name, out)
        return function(*args, **kwargs)

    return call


def _refuse_options(name: str, options: dict[str, Any]) -> None:
    """Refuse what NumPy's ufuncs take by name."""
    no_out(name, options.pop("out", None))
    wrong = [key for key in options if key not in ("where", "casting", "order", "dtype", "subok")]
    if wrong:
        raise TypeError(f"{name}() got an unexpected keyword argument {wrong[0]!r}")
    if options:
        raise Unsupported(
            f"{name}({', '.join(options)}=...) of a lazy expression: use .astype(...) and "
            "itf.where(...) instead"
        )


_CALLED = re.compile(r"[\w=]+(?:\(.*\))?|.*[)\]\w] (?:[-+*/%<>&|^]|\*\*|[=!<>]=|//) .*", re.DOTALL)
"""What an error calls an expression: a name, a call, or an operator between operands."""


def _renamed(why: Exception, name: str, args: tuple[Any, ...]) -> Exception:
    """Return an error that names the function which the user called, not what it is written with.

    Errors begin with the expression that they are about, and a colon.
    """
    head, colon, said = str(why).partition(": ")
    if isinstance(why, TraceError) or not colon or not _CALLED.fullmatch(head):
        return why
    try:
        of = wording.text(asarray(args[0])._node) if args else "..."
    except (ItfuseError, TypeError, ValueError):  # what the error may be about
        of = "..."
    if head.partition("(")[0] != name:
        said = said.replace(f"{head.partition('(')[0]} of nothing", f"{name} of nothing")
    return type(why)(f"{name}({of}): {said}")


def _function(op: Op) -> Callable[..., Array]:
    """Return the public function of a row."""

    def elementwise(*operands: Any, **options: Any) -> Array:
        if options:
            _refuse_options(op.name, options)
        return apply(op, operands)

    # NumPy has `out` before `keepdims`, so that what follows is by name.
    def adding(
        x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None,
        where: Any = None,
    ) -> Array:  # fmt: skip
        return reduce_by(op, x, axis, dtype, keepdims, initial, where)

    def extreme(
        x: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
    ) -> Array:
        return reduce_by(op, x, axis, None, keepdims, initial, where)

    def truth(x: Any, axis: Any = None, *, keepdims: bool = False, where: Any = None) -> Array:
        return reduce_by(op, x, axis, None, keepdims, None, where)

    def composite(*args: Any, **kwargs: Any) -> Array:
        assert op.expand is not None
        try:
            result: Array = op.expand(F, *args, **kwargs)
        except (ItfuseError, TypeError) as why:  # of what it is written with
            try:
                call.__signature__.bind(*args, **kwargs)
            except TypeError as unfit:
                raise TypeError(f"{op.name}() {unfit}") from None
            raise _renamed(why, op.name, args) from None
        return result

    if op.kind == ELEMENTWISE:
        call: Any = elementwise
    elif op.kind == REDUCTION:
        # As in NumPy: what adds up has a dtype, and what has no value of nothing an initial one.
        call = adding if op.takes_dtype else truth if op.of_nothing else extreme
        call.__name__ = call.__qualname__ = op.name
        call = without_out(call, op.name)
    else:
        call = without_out(composite, op.name)
    if op.expand is not None:
        shown = inspect.signature(op.expand)
        own = list(shown.parameters.values())[1:]  # without the namespace
        call.__signature__ = shown.replace(parameters=own)
    elif op.kind == REDUCTION:
        call.__signature__ = inspect.signature(call)
    else:
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


_TAKEN = (Array, Number, int, float, complex, np.generic, np.ndarray, list, tuple, range,
          datetime.date, datetime.timedelta)  # fmt: skip
"""What operators take; of dates they say what to do."""
_SPEAKS = ("__array__", "__dlpack__", "__cuda_array_interface__", "__array_interface__")


def _operand(x: Any) -> bool:
    """Whether an operator takes `x`; what is no array has operators of its own, or none."""
    kind = type(x)
    if isinstance(x, _TAKEN):
        return True
    speaks = getattr(kind, "__array_ufunc__", True) is not None and any(
        hasattr(kind, name) for name in _SPEAKS
    )
    if speaks and len(_PLAIN) < _MOST:
        _PLAIN.add(kind)
    return speaks


_PLAIN: set[type] = {Array, int, float, bool}
"""What operators take without asking; the classes of arrays that were asked are added."""
_MOST = 64


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
