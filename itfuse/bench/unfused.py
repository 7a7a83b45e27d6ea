"""Counts what the unfused library would do: operations, and the bytes that they move."""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse import reference
from itfuse.bench.spaces import Library


class _Counter:
    def __init__(self) -> None:
        self.passes = 0
        self.bytes = 0

    def add(self, operands: Any, results: Any) -> None:
        self.passes += 1
        for one in (*operands, *results):
            self.bytes += getattr(one, "nbytes", 0)


class _Counted(np.ndarray[Any, Any]):
    """An array whose operations are counted."""

    counter: _Counter

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = tuple(_plain(x) for x in inputs)
        kwargs = {
            key: tuple(_plain(x) for x in value) if isinstance(value, tuple) else _plain(value)
            for key, value in kwargs.items()
        }
        with np.errstate(all="ignore"):
            result = getattr(ufunc, method)(*plain, **kwargs)
        results = result if isinstance(result, tuple) else (result,)
        self.counter.add(plain, results)
        return result if isinstance(result, tuple) else self._of(result)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        plain = tuple(_plain(x) for x in args)
        named = {key: _plain(value) for key, value in kwargs.items()}
        result = function(*plain, **named)
        self.counter.add(plain, (result,))
        return self._of(result)

    def __getitem__(self, key: Any) -> Any:
        result = _plain(self)[_plain(key)]
        self.counter.add((_plain(self), _plain(key)), (result,))
        return self._of(result)

    def _of(self, result: Any) -> Any:
        made = np.asarray(result).view(_Counted)
        made.counter = self.counter
        return made

    def __array_finalize__(self, parent: Any) -> None:
        if parent is not None and hasattr(parent, "counter"):
            self.counter = parent.counter


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, _Counted) else x


def _erf(x: Any) -> Any:
    """One operation, as CuPy has it."""
    result = reference.erf(_plain(x))
    x.counter.add((_plain(x),), (result,))
    return x._of(result)


def count(form: Any, arrays: tuple[Any, ...]) -> tuple[int, int]:
    """Return (operations, bytes) of a form, one library call after the other.

    Parameters
    ----------
    form : callable
        (library, *inputs) -> the answer.
    arrays : tuple of numpy.ndarray
        Inputs; the operations are done on them.

    Examples
    --------
    >>> x = np.ones(1000, "f4")
    >>> count(lambda F, x: F.sum(F.abs(x)), (x,))  # reads x, writes and reads abs(x)
    (2, 12004)
    """
    counter = _Counter()
    counted = []
    for x in arrays:
        one = x.view(_Counted)
        one.counter = counter
        counted.append(one)
    form(Library(np, _erf), *counted)
    return counter.passes, counter.bytes
