"""NumPy's own functions and ufuncs on lazy expressions: `np.sum(x)`, `np.add.accumulate(x)`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse import wording
from itfuse.array import Array, apply, asarray
from itfuse.custom import reduce
from itfuse.errors import BoundsError, ShapeError, Unsupported
from itfuse.functions import FUNCTIONS, no_out, reduce_by
from itfuse.ops import BY_UFUNC, OPS
from itfuse.rows.op import REDUCTION, Op
from itfuse.scans import scan, scan_by
from itfuse.segments import segment_reduce
from itfuse.terminals import lifted


def drop_absent(name: str, kwargs: dict[str, Any]) -> None:
    """Remove arguments of the value that NumPy takes as absent; refuse `out`."""
    no_out(name, kwargs.pop("out", None), f"np.{name}")
    for key in [key for key, value in kwargs.items() if value is np._NoValue]:  # type: ignore[attr-defined]
        del kwargs[key]
    for key in ("where", "casting", "order", "subok", "dtype", "initial"):
        if key in kwargs and kwargs[key] is None:
            del kwargs[key]
    if kwargs.get("where") is True:
        del kwargs["where"]


def _array_ufunc(self: Array, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    name = ufunc.__name__
    drop_absent(name if method == "__call__" else f"{name}.{method}", kwargs)
    if method in _METHODS and ufunc.signature is None:
        return _METHODS[method](ufunc, *inputs, **kwargs)
    if method == "__call__" and ufunc.signature is not None and name in FUNCTIONS:
        return FUNCTIONS[name](*inputs, **kwargs)  # np.vecdot
    op = BY_UFUNC.get(ufunc)
    if op is None or method != "__call__":
        called = f"np.{name}" + ("" if method == "__call__" else f".{method}")
        hint = "use itf.put(..., mode)" if method == "at" else "compute() it first"
        raise Unsupported(f"{called} of a lazy expression: itfuse has no such operation; {hint}")
    if kwargs:
        raise Unsupported(
            f"np.{name}({', '.join(kwargs)}=...) of a lazy expression: use .astype(...) and "
            "itf.where(...) instead"
        )
    return FUNCTIONS[op.name](*inputs)


# ---- methods of ufuncs -----------------------------------------------------------------------
def _reduction(ufunc: np.ufunc) -> Op | None:
    """Return the row of the table that is the ufunc's `reduce`."""
    return next((op for op in OPS.values() if op.kind == REDUCTION and op.numpy is ufunc), None)


def _operand(x: Any, ufunc: np.ufunc, dtype: Any) -> Array:
    """Return the operand in the dtype in which the ufunc combines its results."""
    lazy = asarray(x)
    wanted = dtype
    if wanted is None:
        try:
            wanted = ufunc.reduce(np.ones(1, lazy.dtype)).dtype
        except TypeError:
            return lazy  # the operator itself says what it does not take
    return lazy.astype(wanted)


def _neutral(ufunc: np.ufunc, dtype: np.dtype[Any], called: str) -> Any:
    """Return the neutral element of an associative ufunc: NumPy's, or of its row."""
    row = BY_UFUNC.get(ufunc)
    if ufunc.identity is not None:
        return np.asarray(ufunc.identity).astype(dtype)[()]
    if row is not None and row.identity is not None:
        return dtype.type(row.identity(dtype))
    raise Unsupported(
        f"{called} of a lazy expression: {ufunc.__name__} is not known to be associative, so that "
        "its elements cannot be combined in any other order than one by one; compute() the "
        "operand first"
    )


def _keeps(ufunc: np.ufunc, neutral: Any, dtype: np.dtype[Any]) -> bool:
    """Whether the neutral element keeps signs, which it does not of `hypot` and `gcd`."""
    return dtype.kind not in "if" or bool(ufunc(neutral, dtype.type(-1)) == -1)


def _ufunc_reduce(  # noqa: PLR0917 - NumPy's arguments
    ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None,
    keepdims: bool = False, initial: Any = None, where: Any = None,
) -> Any:  # fmt: skip
    row = _reduction(ufunc)
    if row is not None:
        if dtype is not None and not row.takes_dtype:
            x, dtype = asarray(x).astype(dtype), None
        return reduce_by(row, x, axis, dtype, keepdims, initial, where)
    called = f"np.{ufunc.__name__}.reduce"
    lazy = _operand(x, ufunc, dtype)
    neutral = _neutral(ufunc, lazy.dtype, called)
    if where is not None:
        masked = FUNCTIONS["where"](where, lazy, neutral)
        if masked.shape != lazy.shape:
            raise ShapeError(f"{called}: where= does not broadcast to {lazy.shape}")
        lazy = masked
    found = reduce(lazy, ufunc, neutral, axis, keepdims=keepdims)
    return found if initial is None else FUNCTIONS[BY_UFUNC[ufunc].name](initial, found)


def _ufunc_accumulate(
    ufunc: np.ufunc, x: Any, axis: int = 0, dtype: Any = None, out: Any = None
) -> Any:  # fmt: skip
    called = f"np.{ufunc.__name__}.accumulate"
    lazy = asarray(x)
    if lazy.ndim == 0:
        raise ShapeError(f"{called}({wording.text(lazy._node)}): a 0-d expression has no axis")
    row = _reduction(ufunc)
    if row is not None:
        if dtype is not None and not row.takes_dtype:
            lazy, dtype = lazy.astype(dtype), None
        return scan_by(lazy, row.name, axis, called, dtype)
    lazy = _operand(lazy, ufunc, dtype)
    neutral = _neutral(ufunc, lazy.dtype, called)
    found = scan(lazy, ufunc, axis, identity=neutral)
    if _keeps(ufunc, neutral, lazy.dtype):
        return found
    sizes = [1] * lazy.ndim
    sizes[axis] = -1  # what comes first is combined with nothing
    place = FUNCTIONS["reshape"](FUNCTIONS["arange"](lazy.shape[axis]), tuple(sizes))
    return FUNCTIONS["where"](place == 0, lazy, found)


def _ufunc_reduceat(  # noqa: PLR0917 - NumPy's arguments
    ufunc: np.ufunc, x: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
) -> Any:  # fmt: skip
    """Reduce from each index to the next; where the next is not greater, the element alone."""
    lazy, row = asarray(x), _reduction(ufunc)
    called = f"np.{ufunc.__name__}.reduceat"
    what = f"{called}({wording.text(lazy._node)}, ...)"
    if row is None or lazy.ndim != 1 or axis not in (0, -1):
        raise Unsupported(
            f"{what}: there is add, multiply, minimum, maximum, logical_and and logical_or along "
            "one axis; for others compute() the operand first"
        )
    given: Any = indices
    if not isinstance(indices, Array) and hasattr(indices, "__len__"):
        known = np.asarray(indices.get() if hasattr(indices, "get") else indices)
        if known.ndim != 1 or (known.size and not 0 <= known.min() <= known.max() < lazy.size):
            raise BoundsError(f"{what}: the indices must be one axis of places below {lazy.size}")
        if (known[1:] < known[:-1]).any():
            raise Unsupported(
                f"{what}: the indices must ascend, because segments lie behind one another; "
                "compute() the operand first"
            )
        given = known if hasattr(indices, "get") else known.tolist()
    starts = lifted(given, lazy).astype(np.int64)
    if starts.size == 0:
        like = reduce_by(row, lazy, 0, dtype, False, None, None)
        return FUNCTIONS["zeros"](0, dtype=like.dtype, like=like)
    ends = FUNCTIONS["concat"]([starts[1:], FUNCTIONS["full"](1, lazy.size, dtype=np.int64)])  # type: ignore[index]
    bounds = FUNCTIONS["concat"]([starts, ends[-1:]])
    wanted = dtype if row.takes_dtype else None
    lazy = lazy if row.takes_dtype or dtype is None else lazy.astype(dtype)
    found = segment_reduce(lazy, row.name, bounds, dtype=wanted)
    alone = FUNCTIONS["take"](lazy, starts).astype(found.dtype)
    return FUNCTIONS["where"](ends > starts, found, alone)


def _ufunc_outer(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    op = BY_UFUNC.get(ufunc)
    if op is None:
        raise Unsupported(f"np.{ufunc.__name__}.outer of a lazy expression: compute() it first")
    beside = next(one for one in (x, y) if isinstance(one, Array))
    first, second = lifted(x, beside), lifted(y, beside)
    spread = FUNCTIONS["reshape"](first, (*first.shape, *(1,) * second.ndim))
    return apply(op, (spread, second)) if op.expand is None else FUNCTIONS[op.name](spread, second)


_METHODS: dict[str, Callable[..., Any]] = {
    "reduce": _ufunc_reduce, "accumulate": _ufunc_accumulate, "reduceat": _ufunc_reduceat,
    "outer": _ufunc_outer,
}  # fmt: skip


# ---- functions -------------------------------------------------------------------------------
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
    drop_absent(name, by_name)
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
