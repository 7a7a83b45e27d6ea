"""Python functions -> LTO-IR, by Numba's compiler for CUDA. The only importer of it.

Generated code declares a function of its own for each Python function (see itfuse/python.py). Here
it is defined: it calls what Numba made, and converts the result as any conversion is written.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import re
import threading
import types
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import numpy as np

from itfuse import disk
from itfuse.cache import FORMAT
from itfuse.dtypes import DTYPES
from itfuse.engines.cuda import compile as nvrtc
from itfuse.errors import CompileError, DeviceError
from itfuse.frozen import COMPILERS, LIBRARIES, MAPPED, PREFIX, Mapped
from itfuse.lower.cpp import expression

_SYMBOL = re.compile(rf"\b{PREFIX}[0-9a-f]{{32}}\b")
_INSTALL = "pip install 'itfuse[jit-cu13]' (or [jit-cu12] for a CUDA 12 driver)"
_lock = threading.Lock()

_INSTEAD: dict[Any, Callable[..., Any]] = {
    np.sqrt: math.sqrt, np.fabs: math.fabs, np.log1p: math.log1p, np.expm1: math.expm1,
    np.isinf: math.isinf, np.isfinite: math.isfinite, np.copysign: math.copysign,
    np.fmod: math.fmod,
    np.negative: lambda x: -x, np.positive: lambda x: x, np.square: lambda x: x * x,
    np.power: lambda x, y: x**y, np.remainder: lambda x, y: x % y,
    np.floor_divide: lambda x, y: x // y,
    np.greater: lambda x, y: x > y, np.greater_equal: lambda x, y: x >= y,
    np.less: lambda x, y: x < y, np.less_equal: lambda x, y: x <= y,
    np.equal: lambda x, y: x == y, np.not_equal: lambda x, y: x != y,
    np.logical_not: lambda x: x == 0,
    np.logical_and: lambda x, y: x != 0 and y != 0,
    np.logical_or: lambda x, y: x != 0 or y != 0,
    # A NaN is the result, and is not equal to itself; of fmax and fmin the other operand is.
    np.maximum: lambda x, y: x if x >= y or x != x else y,  # noqa: PLR0124
    np.minimum: lambda x, y: x if x <= y or x != x else y,  # noqa: PLR0124
    np.fmax: lambda x, y: x if x >= y or y != y else y,  # noqa: PLR0124
    np.fmin: lambda x, y: x if x <= y or y != y else y,  # noqa: PLR0124
}  # fmt: skip
"""What stands for NumPy's functions that Numba types, but writes no code for."""


def _numba() -> tuple[Any, Any, Any]:
    """Return modules of Numba's compiler."""
    package, load = "numba_cuda_mlir", importlib.import_module
    return load(f"{package}.cuda"), load(f"{package}.types"), load(f"{package}.tools")


def _missing(names: list[str], found: object) -> DeviceError:
    return DeviceError(
        f"itf.map({', '.join(names)}): Python functions are compiled for a GPU by numba-cuda-mlir, "
        f"which is not installed ({found}); {_INSTALL}. itf.cpp_function needs no such compiler"
    )


@functools.cache
def _versions() -> tuple[str, ...]:
    found = [f"numba-cuda-mlir {metadata.version('numba-cuda-mlir')}"]
    for name in ("nvidia-nvvm", "nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink",
                 "nvidia-nvjitlink-cu12"):  # fmt: skip
        with contextlib.suppress(metadata.PackageNotFoundError):  # a toolkit's, or the other CUDA's
            found.append(f"{name} {metadata.version(name)}")
    return (*nvrtc.versions(), *found)


def versions(source: str) -> tuple[str, ...]:
    """Return the versions that decide code with Python functions, without importing a compiler.

    Raises
    ------
    DeviceError
        If Numba's compiler is not installed.
    """
    try:
        return _versions()
    except metadata.PackageNotFoundError as why:
        raise _missing([one.frozen.name for one in _called(source)], why) from None


def _called(source: str) -> list[Mapped]:
    return [MAPPED[symbol] for symbol in dict.fromkeys(_SYMBOL.findall(source))]


def functions(source: str, arch: str) -> dict[str, bytes]:
    """Return the LTO-IR of the Python functions that a source calls, by symbol."""
    return {one.symbol: _compiled(one, arch)[1] for one in _called(source)}


def defined(source: str, arch: str) -> str:
    """Return a source with the functions defined that it calls for Python ones.

    Each is static, so that several sources with one can be linked; what Numba made is linked once.
    """
    return source + "".join(_definition(one, _compiled(one, arch)[0]) for one in _called(source))


def _definition(one: Mapped, returned: str) -> str:
    rows = [DTYPES[name] for name in one.operands]
    takes = ", ".join(f"{row.computes or row.cpp} x{at}" for at, row in enumerate(rows))
    # C++ and Numba pass every type alike but bool, which goes as a byte.
    given = ["unsigned char" if row.kind == "b" else row.computes or row.cpp for row in rows]
    values = [f"({cpp})x{at}" if cpp == "unsigned char" and rows[at].kind == "b" else f"x{at}"
              for at, cpp in enumerate(given)]  # fmt: skip
    body = f"{one.symbol}_numba"
    call = expression("astype", [f"{body}({', '.join(values)})"], [returned], one.result)
    return (
        f'extern "C" __device__ {DTYPES[returned].cpp} {body}({", ".join(given)});\n'
        f"static __device__ __forceinline__ {DTYPES[one.result].cpp} {one.symbol}({takes}) {{\n"
        f"  return {call};\n}}\n"
    )


@functools.lru_cache(maxsize=1024)
def _compiled(one: Mapped, arch: str) -> tuple[str, bytes]:
    """Return the dtype that a function returns for these operands, and its LTO-IR."""

    def build() -> bytes:
        returned, code = _compile(one, arch)
        return b"\0".join((returned.encode(), code))

    key = (FORMAT, "python", arch, one.symbol)
    needs = functools.partial(versions, one.symbol)
    returned, _, code = disk.compiled(key, needs, build, final=False).partition(b"\0")
    return returned.decode(), code


def _compile(one: Mapped, arch: str) -> tuple[str, bytes]:
    try:
        cuda, kinds, tools = _numba()
    except ImportError as why:
        raise _missing([one.frozen.name], why) from None
    names = [f"x{at}" for at in range(len(one.operands))]
    rows = [DTYPES[name] for name in one.operands]
    flags = [row.kind == "b" for row in rows]
    takes = [kinds.uint8 if flag else getattr(kinds, "float32" if row.narrow else row.name)
             for row, flag in zip(rows, flags, strict=True)]  # fmt: skip
    given = [f"{name} != 0" if flag else name for name, flag in zip(names, flags, strict=True)]
    nvrtc.Count.add()
    with _lock, _target(tools, arch) as capability:
        try:
            inside = _on_device(one.frozen.function, cuda.jit(device=True), {})
            # Names of our own only: there is nothing of the user's in this text.
            entry = eval(f"lambda {', '.join(names)}: f({', '.join(given)})", {"f": inside})
            make = functools.partial(
                cuda.compile, entry, device=True, abi="c", output="ltoir", cc=capability,
                abi_info={"abi_name": f"{one.symbol}_numba"},
            )  # fmt: skip
            code, kind = make(sig=tuple(takes))
            plain = getattr(kind, "literal_type", kind)
            plain = kinds.float32 if plain == kinds.float16 else plain
            if plain != kind:  # a half has another C ABI, and a literal is no type to return
                code, kind = make(sig=plain(*takes))
        except Exception as why:
            raise _refused(one, arch, _log(why)) from why
    returned = str(kind)
    if returned not in DTYPES or DTYPES[returned].part:
        raise _refused(one, arch, f"it returns {returned}; one real number is expected")
    return returned, bytes(code)


def _refused(one: Mapped, arch: str, log: str) -> CompileError:
    try:
        text = inspect.getsource(one.frozen.function)
    except (OSError, TypeError):
        text = f"{one.frozen.name}, defined in {one.frozen.place}"
    return CompileError(
        f"itf.map: Numba does not compile {one.frozen.name} ({one.frozen.place}) of "
        f"{', '.join(one.operands)} for {arch}; write it otherwise, or with itf.cpp_function",
        text,
        log,
    )


def _log(why: BaseException) -> str:
    """Return what went wrong: of what Numba calls a fault of its own, the reason that it hides."""
    inside = why.__context__
    if inside is not None and "Internal" in type(why).__name__:
        return f"{type(inside).__name__}: {inside}"
    return str(why)


@contextlib.contextmanager
def _target(tools: Any, arch: str) -> Iterator[tuple[int, int]]:
    """Give the compute capability of `arch`, and let Numba compile for it where there is no GPU.

    It asks for the GPU's even if a target is named (cuda.compute does the same about that).
    """
    number = int(arch.removeprefix("sm_"))
    capability = divmod(number, 10)
    asked = tools.get_gpu_compute_capability
    try:
        asked(tuple)
    except Exception:
        tools.get_gpu_compute_capability = lambda *_, **__: capability
    try:
        yield capability
    finally:
        tools.get_gpu_compute_capability = asked


def _on_device(f: types.FunctionType, jit: Any, known: dict[int, Any]) -> Any:
    """Return a function for Numba: what it calls is compiled too, which Numba must be told."""
    if id(f) in known:
        return known[id(f)]
    variables: dict[str, Any] = {}
    cells = tuple(types.CellType() for _ in f.__closure__ or ())
    copy = types.FunctionType(f.__code__, variables, f.__name__, f.__defaults__, cells)
    made = known[id(f)] = jit(copy)

    def convert(x: Any) -> Any:
        if isinstance(x, np.ufunc) and x in _INSTEAD:
            other = _INSTEAD[x]
            return jit(other) if isinstance(other, types.FunctionType) else other
        if isinstance(x, types.FunctionType) and _package(x.__module__) not in LIBRARIES:
            return _on_device(x, jit, known)
        if isinstance(x, types.ModuleType) and _package(x.__name__) not in COMPILERS:
            module = types.ModuleType(x.__name__)
            vars(module).update({name: convert(one) for name, one in vars(x).items()
                                 if not name.startswith("__")})  # fmt: skip
            return module
        return x

    builtin = f.__globals__["__builtins__"]
    variables.update({name: x if x is builtin else convert(x) for name, x in f.__globals__.items()})
    for cell, own in zip(cells, f.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a variable that nothing reads
            cell.cell_contents = convert(own.cell_contents)
    return made


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]
