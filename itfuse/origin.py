"""Where an array that a function closes over is found again, so that another one there is seen."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from itfuse.array import Array

Find = Callable[[], Any]

MOST = 4000
"""Objects that a search looks at."""
_LIBRARIES = {"numpy", "cupy", "scipy", "itfuse", *sys.stdlib_module_names}
"""Packages whose modules and functions hold no arrays of users."""
_PLAIN = (str, bytes, int, float, complex, type(None), np.generic, np.dtype, type, range)


def origin(array: Any, function: Any, owners: Iterable[Find]) -> tuple[Find, Any] | None:
    """Return what finds an array that a function closes over, and what is found there.

    Parameters
    ----------
    array : array
        What is looked for; or found inside a lazy `Array`.
    function : callable
        Its variables and those of the functions that it names are searched, breadth first, through
        modules, attributes, dicts, lists and tuples.
    owners : iterable of callable
        Each gives an object whose attributes the function may read, such as `self`.

    Returns
    -------
    (callable, object) or None
        None if it is in none of these, and so was made by the function itself; with a warning if
        there was more to look at than `MOST` objects.
    """
    waiting: deque[tuple[Find, Any]] = deque((get, get()) for get in owners)
    waiting.extend(_variables(lambda: function, inspect.unwrap(function)))
    named = set(_names(inspect.unwrap(function)))
    seen: set[int] = set()
    while waiting:
        get, x = waiting.popleft()
        if x is array or (isinstance(x, Array) and any(one is array for one in x._data.values())):
            return get, x
        if isinstance(x, (*_PLAIN, np.ndarray, Array)) or id(x) in seen or _of_library(x):
            continue
        seen.add(id(x))
        if len(seen) > MOST:
            warnings.warn(
                f"{getattr(function, '__qualname__', function)} uses an array of shape "
                f"{tuple(array.shape)} that is not found near it: if it is no array that the "
                "function makes, and another one takes its place, call clear(); or pass it as an "
                "argument",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        named.update(_names(x))
        waiting.extend(_inside(get, x, named))
    return None


def _of_library(x: Any) -> bool:
    if isinstance(x, types.ModuleType):
        home = x.__name__
    elif isinstance(x, types.FunctionType):
        home = x.__module__ or ""
    else:
        home = (
            type(x).__module__ if not isinstance(x, (dict, list, tuple, types.MethodType)) else ""
        )
    return home.partition(".")[0] in _LIBRARIES


def _inside(get: Find, x: Any, named: set[str]) -> Iterator[tuple[Find, Any]]:
    """Find what an object holds; of a module what the functions seen so far name."""
    if isinstance(x, dict):
        for key, value in list(x.items()):
            yield functools.partial(_item, get, key), value
    elif isinstance(x, (list, tuple)):
        for at, value in enumerate(x):
            yield functools.partial(_item, get, at), value
    elif isinstance(x, types.ModuleType):
        for name in named & vars(x).keys():
            yield functools.partial(_attribute, get, name), vars(x)[name]
    elif isinstance(x, types.FunctionType):
        yield from _variables(get, x)
    elif isinstance(x, types.MethodType):
        yield functools.partial(getattr, x, "__func__"), x.__func__
        yield functools.partial(_bound_to, get), x.__self__
    else:
        for name, value in list(getattr(x, "__dict__", {}).items()):
            yield functools.partial(_attribute, get, name), value


def _names(function: Any) -> tuple[str, ...]:
    """Return the globals and attributes that a function names, those inside it included."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return ()
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return (*code.co_names, *(name for one in inner for name in one.co_names))


def _variables(get: Find, function: Any) -> Iterator[tuple[Find, Any]]:
    for at, cell in enumerate(getattr(function, "__closure__", None) or ()):
        yield functools.partial(_content, get, at), _cell(cell)
    variables = getattr(function, "__globals__", {})
    for name in _names(function):
        if name in variables:
            yield functools.partial(variables.get, name), variables[name]


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _content(get: Find, at: int) -> Any:
    cells = getattr(inspect.unwrap(get()), "__closure__", None) or ()
    return _cell(cells[at]) if at < len(cells) else None


def _attribute(get: Find, name: str) -> Any:
    return getattr(get(), "__dict__", {}).get(name)


def _bound_to(get: Find) -> Any:
    return getattr(get(), "__self__", None)


def _item(get: Find, key: Any) -> Any:
    try:
        return get()[key]
    except (LookupError, TypeError):
        return None
