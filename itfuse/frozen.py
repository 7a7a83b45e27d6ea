"""Python functions, frozen: copies that later changes do not reach, named by their content.

The name decides compiled code, in this process and on disk. It is that of the bytecode and of every
value that the function reads, each with its exact type and bits: `x * 2` is not `x * 2.0`, 0.0 is
not -0.0. Names, lines and files are no part of it, so that a function that is defined again, as in
a loop, is the same function.
"""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import operator
import struct
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.errors import Unsupported

PREFIX = "itf_python_"
"""How the C++ names of Python functions begin."""

COMPILERS = {"numba_cuda_mlir", "numba", "cuda"}
"""Packages whose modules mean something to the compiler: they are kept as they are."""
LIBRARIES = {"builtins", "math", "cmath", "_operator", "numpy", "ml_dtypes", *COMPILERS}
"""Packages whose functions and types are known by name: their versions are part of a disk key."""
_SILENT = {"EXTENDED_ARG", "CACHE", "NOP", "PUSH_NULL"}
_MISSING = object()

Chain = tuple[str, ...]


@dataclass(frozen=True)
class Frozen:
    """A function that nothing changes any more.

    Attributes
    ----------
    function : function
        A copy over copies of what it reads.
    name, place : str
        What it is called, and the file and line of its definition.
    digest : str
        SHA-256 of its content.
    """

    function: types.FunctionType
    name: str
    place: str
    digest: str


@dataclass(frozen=True)
class Mapped:
    """A Python function for operands of certain dtypes, as generated code calls it.

    Attributes
    ----------
    symbol : str
        Its C++ name, which its content and these dtypes decide.
    frozen : Frozen
        The function.
    operands, result : tuple of str, str
        Dtypes of what it takes, and what its result is converted to.
    """

    symbol: str
    frozen: Frozen
    operands: tuple[str, ...]
    result: str


MAPPED: dict[str, Mapped] = {}
"""Every Python function that generated code of this process may call, by symbol."""


def freeze(function: Any, label: str) -> Frozen:
    """Freeze a Python function; `label` begins messages.

    Raises
    ------
    TypeError
        If it is no plain function.
    Unsupported
        If it reads what cannot be frozen.
    """
    plain = _plain(function)
    if plain is None:
        kind = type(function).__name__
        raise TypeError(
            f"{label}: {function!r} is a {kind}, which has no Python code to compile; give a "
            "function that calls it, such as lambda x: ..."
        )
    code = plain.__code__
    if code.co_flags & (0x20 | 0x80 | 0x200):  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
        raise TypeError(f"{label}: {plain.__name__} is a generator or a coroutine")
    if code.co_kwonlyargcount:
        raise TypeError(f"{label}: {plain.__name__} has keyword-only parameters, which compilers "
                        "of Python do not know; make them positional")  # fmt: skip
    copy, parts = _Freezer(label).function(plain)
    text = repr((sys.implementation.cache_tag, parts))
    place = f"{code.co_filename}:{code.co_firstlineno}"
    return Frozen(copy, plain.__name__, place, hashlib.sha256(text.encode()).hexdigest())


def _plain(x: Any) -> types.FunctionType | None:
    """Return the Python function that `x` is, or that a compiler's decorator was given."""
    if isinstance(x, types.FunctionType):
        return x
    inside = getattr(x, "py_func", None)
    known = type(x).__module__.partition(".")[0] in COMPILERS
    return inside if known and isinstance(inside, types.FunctionType) else None


class _Freezer:
    """One function with all that it reads; the same function inside is frozen once."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.seen: dict[int, tuple[types.FunctionType, int]] = {}

    def function(self, f: types.FunctionType) -> tuple[types.FunctionType, Any]:
        """Return a copy, and what decides what it does."""
        if id(f) in self.seen:
            copy, number = self.seen[id(f)]
            return copy, ("again", number)
        variables: dict[str, Any] = {"__builtins__": builtins, "__name__": f.__module__}
        cells = tuple(types.CellType() for _ in f.__code__.co_freevars)
        copy = types.FunctionType(f.__code__, variables, f.__name__, None, cells)
        self.seen[id(f)] = copy, len(self.seen)
        defaults = [self.value(one, f"{f.__name__}'s default {one!r}") for one in
                    f.__defaults__ or ()]  # fmt: skip
        copy.__defaults__ = tuple(value for value, _ in defaults) or None
        keywords = {name: self.value(one, f"{f.__name__}'s default {name}={one!r}")
                    for name, one in (f.__kwdefaults__ or {}).items()}  # fmt: skip
        copy.__kwdefaults__ = {name: value for name, (value, _) in keywords.items()} or None
        known: list[Any] = [part for _, part in defaults]
        known += [(name, part) for name, (_, part) in keywords.items()]
        for kind, name, chains in _reads(f.__code__):
            if kind == "writes":
                raise Unsupported(
                    f"{self.label}: {f.__name__} assigns to {name}, a variable outside of it; a "
                    "mapped function only returns its result"
                )
            if kind == "cell":
                at = f.__code__.co_freevars.index(name)
                found = self.cell((f.__closure__ or ())[at], name)
            else:
                found = f.__globals__.get(name, _MISSING)
            if found is _MISSING:  # a builtin, or an error when it is called
                known.append((kind, name))
                continue
            value, part = self.value(found, f"{f.__name__} uses {name}", chains)
            if kind == "cell":
                cells[at].cell_contents = value
            else:
                variables[name] = value
            known.append((kind, name, part))
        return copy, ("function", _code(f.__code__), tuple(known))

    def cell(self, cell: types.CellType, name: str) -> Any:
        """Return what a function closes over."""
        try:
            return cell.cell_contents
        except ValueError:
            raise Unsupported(f"{self.label}: {name} has no value yet") from None

    def value(self, x: Any, said: str, chains: Iterable[Chain] = ((),)) -> tuple[Any, Any]:
        """Return a value that nothing changes, and its exact content."""
        if isinstance(x, types.ModuleType):
            return self.module(x, said, chains)
        exact = _exact(x)
        if exact is not None:
            return x, exact
        if type(x) is tuple:
            pairs = [self.value(one, said) for one in x]
            return tuple(value for value, _ in pairs), ("tuple", *(part for _, part in pairs))
        plain = _plain(x)
        if (name := _library_name(x)) is not None:
            return x, ("library", name)
        if plain is not None:
            return self.function(plain)
        raise Unsupported(f"{self.label}: {said}, {_said(x)}")

    def module(
        self, module: types.ModuleType, said: str, chains: Iterable[Chain]
    ) -> tuple[Any, Any]:
        """Return a module of what is read of it, because those may be assigned anew."""
        if module.__name__.partition(".")[0] in COMPILERS:
            return module, ("module", module.__name__, tuple(chains))
        inside: dict[str, list[Chain]] = {}
        for chain in chains:
            if not chain:
                raise Unsupported(f"{self.label}: {said}, a module, as a value; write "
                                  "module.name where it is used")  # fmt: skip
            inside.setdefault(chain[0], []).append(chain[1:])
        copy, known = types.ModuleType(module.__name__), []
        for name, rest in inside.items():
            found = getattr(module, name, _MISSING)
            if found is not _MISSING:
                value, part = self.value(found, f"{said}.{name}", rest)
                setattr(copy, name, value)
                known.append((name, part))
        return copy, ("module", module.__name__, tuple(known))


def _said(x: Any) -> str:
    """Say why a value cannot be frozen, and what to do."""
    kind = type(x).__name__
    if hasattr(x, "shape") or hasattr(x, "__array_interface__"):
        return f"an array ({kind}), whose elements may change; pass it as an operand of itf.map"
    if hasattr(x, "sample") and hasattr(x, "place"):
        return ("a number that is an argument of the fused function and not known while it is "
                "traced; pass it as an operand of itf.map")  # fmt: skip
    if isinstance(x, (list, dict, set)):
        return f"a {kind}, which may change; make it a tuple, or pass its values as operands"
    return (
        f"a {kind}; only numbers, tuples of them, functions and what modules hold of these are "
        "part of a compiled function. Read what it needs of it before, or pass that as an operand"
    )


def _exact(x: Any) -> Any:
    """Return type and bits of what never changes, or None."""
    kind = type(x)
    if kind in (bool, int, str, bytes, type(None), type(...)):
        return kind.__name__, repr(x)
    if kind is float:
        return "float", struct.pack("d", x)
    if kind is complex:
        return "complex", struct.pack("2d", x.real, x.imag)
    if kind is frozenset:
        parts = [_exact(one) for one in x]
        return None if None in parts else ("frozenset", *sorted(parts, key=repr))
    if isinstance(x, np.dtype) and not x.hasobject:
        return "dtype", x.name, x.str
    if isinstance(x, np.generic) and not x.dtype.hasobject and x.dtype.fields is None:
        return "scalar", x.dtype.name, x.tobytes()
    return None


def _library_name(x: Any) -> str | None:
    """Return the name by which a library has `x`, or None."""
    if isinstance(x, np.ufunc):
        same = getattr(np, x.__name__, None) is x
        return f"numpy.{x.__name__}" if same else None
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if module.partition(".")[0] not in LIBRARIES or module not in sys.modules:
        return None
    try:
        found = operator.attrgetter(name)(sys.modules[module])
    except AttributeError:
        return None
    return f"{module}.{name}" if found is x else None


@functools.lru_cache(maxsize=1024)
def _reads(code: types.CodeType) -> tuple[tuple[str, str, tuple[Chain, ...]], ...]:
    """Return what code reads from outside: (global or cell, name, the attributes read of it).

    Code inside of it, such as a lambda's, reads for it.
    """
    found: dict[tuple[str, str], dict[Chain, None]] = {}
    waiting = [(code, frozenset(code.co_freevars))]
    while waiting:
        one, free = waiting.pop()
        steps = [step for step in dis.get_instructions(one) if step.opname not in _SILENT]
        for at, step in enumerate(steps):
            name = step.argval
            outside = "GLOBAL" in step.opname or step.opname == "LOAD_NAME"
            if not outside and not ("DEREF" in step.opname and name in free):
                continue
            kind = "global" if outside else "cell"
            if not step.opname.startswith("LOAD"):
                kind = "writes"
            chain = []
            for later in steps[at + 1 :]:
                if later.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                    break
                chain.append(later.argval)
            found.setdefault((kind, name), {})[tuple(chain)] = None
        inner = (const for const in one.co_consts if isinstance(const, types.CodeType))
        waiting += [(const, free & frozenset(const.co_freevars)) for const in inner]
    return tuple((kind, name, tuple(chains)) for (kind, name), chains in found.items())


@functools.lru_cache(maxsize=1024)
def _code(code: types.CodeType) -> tuple[Any, ...]:
    """Return what of code decides what it does."""
    return (
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, tuple(map(_constant, code.co_consts)),
    )  # fmt: skip


def _constant(x: Any) -> Any:
    if isinstance(x, types.CodeType):
        return "code", _code(x)
    if type(x) is tuple:
        return "tuple", *map(_constant, x)
    return _exact(x) or (type(x).__name__, repr(x))  # a slice, from Python 3.14 on
