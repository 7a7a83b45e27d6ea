"""`itf.map`: Python functions of elements, as operations.

A function becomes a row under a name of its own, as those that users write in C++ do. Its C++ calls
a function that is only declared; engines/cuda/python.py compiles the Python code and defines it.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse import dtypes, reference
from itfuse.array import Array, apply, asarray
from itfuse.custom import Twin, row_name
from itfuse.errors import DTypeError, Unsupported
from itfuse.form import Number
from itfuse.frozen import MAPPED, PREFIX, Frozen, Mapped, freeze
from itfuse.ops import CUSTOM
from itfuse.rows.op import ELEMENTWISE, Op

Kind = Any  # a dtype, or the type of a Python number


class _EachElement:
    """A Python function as the CPU engine calls one: once for every element."""

    def __init__(self, frozen: Frozen, result: np.dtype[Any]) -> None:
        self.frozen, self.result = frozen, result

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        shapes = [np.shape(x) for x in operands]
        shape = np.broadcast_shapes(*shapes) if out is None else out.shape
        out = np.empty(shape, self.result) if out is None else out
        # Iterating an array gives NumPy scalars, so that types inside the function are NumPy's.
        # np.frompyfunc would give Python numbers.
        columns: list[Any] = [
            np.broadcast_to(x, shape).flat if own else itertools.repeat(np.asarray(x)[()], out.size)
            for x, own in zip(operands, shapes, strict=True)
        ]
        try:
            values = [self.frozen.function(*one) for one in zip(*columns, strict=True)]
        except Exception as why:
            why.add_note(f"in {self.frozen.name} ({self.frozen.place}), which itf.map called with "
                         "the NumPy scalars of an element")  # fmt: skip
            raise
        if len({type(value) for value in values}) <= 1:
            made = self._array(values).reshape(shape)
            reference.astype(made, out)
        else:  # each by itself: a common dtype may hold none of them
            for place, value in zip(np.ndindex(shape), values, strict=True):
                reference.astype(self._array(value), out[(*place, ...)])
        return out

    def _array(self, values: Any) -> Any:
        made = np.asarray(values)
        if made.ndim > isinstance(values, list) or made.dtype.kind not in "biuf" + "V":
            first = values[0] if isinstance(values, list) else values
            raise DTypeError(
                f"{self.frozen.name} returned {first!r}, a {type(first).__name__}; itf.map takes "
                "functions that return one real number"
            )
        return made


def _kind(x: Any) -> Kind:
    """Return the dtype of an operand, or the type of a Python number, which is weak."""
    if isinstance(x, (Array, np.generic)):
        return x.dtype
    kind = x.kind if isinstance(x, Number) else type(x)
    if issubclass(kind, bool):
        return np.dtype(bool)
    return next((one for one in (int, float, complex) if issubclass(kind, one)), None)


def _operand_dtypes(operands: list[Any], label: str) -> tuple[np.dtype[Any], ...]:
    """Return what each operand is given as: its own dtype, a Python number the common one."""
    kinds = [_kind(x) for x in operands]
    if all(isinstance(kind, type) for kind in kinds):  # numbers only: as NumPy makes arrays of them
        found = [np.dtype(kind) for kind in kinds]
    else:
        common = np.result_type(*(kind(0) if isinstance(kind, type) else kind for kind in kinds))
        found = [common if isinstance(kind, type) else kind for kind in kinds]
    for at, dtype in enumerate(found):
        dtypes.check(dtype, f"{label}: operand {at + 1}")
        if dtypes.DTYPES[dtype.name].part:
            raise Unsupported(
                f"{label}: operand {at + 1} is {dtype.name}; give itf.real(x) and itf.imag(x) as "
                "two operands"
            )
    return tuple(found)


def _result_dtype(frozen: Frozen, operands: tuple[np.dtype[Any], ...], label: str) -> np.dtype[Any]:
    """Return the dtype of what the function makes of ones, as np.vectorize asks the first ones."""
    said = f"to find the dtype of its result, {frozen.name} was called with ones of " + ", ".join(
        one.name for one in operands
    )
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = frozen.function(*[dtype.type(1) for dtype in operands])
    except Exception as why:
        raise DTypeError(
            f"{label}: {said} and raised {type(why).__name__}: {why}; give dtype= if it cannot be "
            "called so"
        ) from why
    made = np.asarray(value)
    if made.ndim or not dtypes.supported(made.dtype):
        raise DTypeError(
            f"{label}: {said} and returned {value!r}, a {type(value).__name__}; one number is "
            "expected"
        )
    return made.dtype


_rows: dict[Any, Op] = {}


def _row(
    frozen: Frozen,
    operands: tuple[np.dtype[Any], ...],
    dtype: np.dtype[Any] | None,
    numpy: Callable[..., Any] | None,
    label: str,
) -> Op:
    """Return the row of a function for operands of these dtypes."""
    names = tuple(one.name for one in operands)
    wish = (frozen.name, frozen.digest, names, None if dtype is None else dtype.name, numpy)
    row = _rows.get(wish)
    if row is not None:
        return row
    result = _result_dtype(frozen, operands, label) if dtype is None else dtype
    if dtypes.DTYPES[result.name].part:
        raise Unsupported(
            f"{label}: its result is {result.name}; map its real and its imaginary part by two "
            "functions, and put them together with itf.complex"
        )
    content = (frozen.digest, names, result.name)
    symbol = PREFIX + hashlib.sha256(repr(content).encode()).hexdigest()[:32]
    MAPPED.setdefault(symbol, Mapped(symbol, frozen, names, result.name))
    takes = ", ".join(dtypes.DTYPES[n].computes or dtypes.DTYPES[n].cpp for n in names)
    gives = dtypes.DTYPES[result.name].cpp
    places = ", ".join(f"{{{at}}}" for at in range(len(names)))
    twin: Any = _EachElement(frozen, result) if numpy is None else Twin(frozen.name, numpy)
    name = row_name(frozen.name, content, numpy)
    row = CUSTOM.setdefault(name, Op(
        name, len(names), ELEMENTWISE, f"The Python function {frozen.name}.", numpy=twin,
        result=lambda *kinds: (operands, result), cpp={"*": f"{symbol}({places})"},
        helper={"*": (f"// The Python function {frozen.name}, compiled by Numba.\n"
                      f"static __device__ __forceinline__ {gives} {symbol}({takes});\n",)},
    ))  # fmt: skip
    return _rows.setdefault(wish, row)


def map(
    function: Callable[..., Any],
    *operands: Any,
    dtype: Any = None,
    numpy: Callable[..., Any] | None = None,
) -> Array:
    """Apply a Python function to every element, as an operation that is fused like any other.

    Parameters
    ----------
    function : callable
        Takes one scalar for each operand, and returns a number. On a GPU it is compiled by Numba
        (``pip install 'itfuse[jit-cu13]'``), which knows the language's numbers, branches, loops
        and tuples, `math` and many functions of NumPy.
    *operands : array or scalar
        Broadcast together. Each keeps its dtype; Python numbers are weak, as in NumPy.
    dtype : dtype-like, optional
        What results are converted to. By default the dtype of what the function returns for NumPy
        scalars of one, so a function whose branches return several types should be given it.
    numpy : callable, optional
        A twin for the CPU engine: called with blocks (arrays of any shape, or scalars), it returns
        an array. Without it the CPU engine calls `function` once for each element, with NumPy
        scalars, which is slow and the definition of its result.

    Returns
    -------
    Array
        Lazy, of the operands' common shape.

    Raises
    ------
    TypeError
        If `function` has no Python code, or does not take so many operands.
    DTypeError
        If calling it with ones fails, or returns no number.
    Unsupported
        If it reads an array, a list or another object that may change: pass those as operands. If
        an operand is complex.
    DeviceError
        When it is built for a GPU and Numba is not installed.
    CompileError
        When it is built for a GPU and Numba does not know what it does.

    Notes
    -----
    The values of globals and closures that the function reads are those of this call; what is
    assigned later is not seen. Functions of equal content, also such as a lambda that is made again
    in a loop, are compiled once. A number that changes from call to call is better an operand: as
    part of the function it is compiled in.

    Inside of a compiled function types are Numba's, where a Python number is an int64 or a float64:
    ``x * 0.1`` of a float32 is computed in double and rounded at the end, integers in 64 bits, and
    ``a * b + c`` may be rounded once. float16 and bfloat16 come as float32. Write
    ``np.float32(0.1)`` where that matters. An exception that is raised on a GPU is not seen.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> def collatz(n):
    ...     steps = 0
    ...     while n > 1:
    ...         n = n // 2 if n % 2 == 0 else 3 * n + 1
    ...         steps += 1
    ...     return steps
    >>> n = np.arange(1, 9)
    >>> itf.map(collatz, n, dtype="int32").compute()
    array([ 0,  1,  7,  2,  5,  8, 16,  3], dtype=int32)
    >>> int(itf.map(collatz, n * 3).max().compute())            # in one pass with what follows
    20
    """
    label = f"map({getattr(function, '__name__', function)!s})"
    frozen = freeze(function, label)
    if numpy is not None and not callable(numpy):
        raise TypeError(f"{label}: numpy={numpy!r} is not callable")
    if not operands:
        raise TypeError(f"{label}: it is given no operand")
    try:
        inspect.signature(frozen.function).bind(*operands)
    except TypeError as why:
        raise TypeError(
            f"{label}: it cannot be called with {len(operands)} operands: {why}"
        ) from None
    numbers = (Number, np.generic, int, float, complex)
    lifted = [x if isinstance(x, numbers) else asarray(x) for x in operands]
    wanted = None if dtype is None else dtypes.as_dtype(dtype, label)
    row = _row(frozen, _operand_dtypes(lifted, label), wanted, numpy, label)
    return apply(row, tuple(lifted))
