"""Ahead of time: compile a function's passes on any machine, load them where the GPU is.

A file holds compiled code by the names under which the cache on disk would keep it, so that loading
it is looking it up: nothing about a pass is written twice.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import itertools
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import itfuse as itf
from itfuse import disk, engines, pytree
from itfuse.bound import BoundFused
from itfuse.cache import FORMAT
from itfuse.config import setting
from itfuse.dtypes import as_dtype
from itfuse.errors import CacheError, ConfigError, DTypeError
from itfuse.fused import Fused
from itfuse.plan.stages import Plan

_EMPTY = re.compile(r"(?<=\w)\s*\[\s*\]")
_QUOTED = re.compile(r"""('[^']*'|"[^"]*")""")
_NUMBERS: dict[str, tuple[Any, ...]] = {"int": (3,), "float": (0.5,), "bool": (False, True)}
_MANIFEST = "manifest.json"
_MOST, _STEPS = 2048, 128
_ELEMENTS = 1 << 30  # from twice as many on code is other code


Call = tuple[list[Any], dict[str, Any]]
"""Arguments by position and by name."""


def calls(signature: str) -> list[Call]:
    """Return placeholders for a signature.

    Parameters
    ----------
    signature : str
        Arguments as in a call of Python. `f4[n]`, `float32[rows, 1000]`, `f8[]` are arrays; a name
        stands for a size that is not 1, the same name for the same size, two names for two sizes.
        `f4` is a NumPy scalar; `int`, `float` and `bool` are Python scalars. `name=...` is
        given by name. Tuples, lists and dicts hold such; strings, numbers, True, False and None are
        values, of static arguments and the like.

    Returns
    -------
    list of (list, dict)
        `itf.spec` arrays, numbers and values; a call for each value of what is `bool`, because a
        flag is part of a fused function's signature.

    Raises
    ------
    ConfigError
        Saying what is not understood.

    Examples
    --------
    >>> ((x, y, z, a), named), = calls("f4[n], f4[n, 1000], f4[], float, mode='a'")
    >>> x.shape, y.shape, z.shape, a, named
    ((2048,), (2048, 1000), (), 0.5, {'mode': 'a'})
    """
    parts = _QUOTED.split(signature)
    parts[::2] = [_EMPTY.sub("[()]", part) for part in parts[::2]]
    try:
        call = ast.parse(f"f({''.join(parts)})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as why:
        found = getattr(why, "msg", str(why))
        raise ConfigError(f"signature {signature!r}: not understood: {found}") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ConfigError(f"signature {signature!r}: not understood: no list of arguments")
    return _Reader(signature, call).calls()


class _Reader:
    """Reads a parsed signature."""

    def __init__(self, signature: str, call: ast.Call) -> None:
        self.signature, self.call = signature, call
        whole = [x for x in ast.walk(call) if isinstance(x, ast.Subscript)]
        self.axes = {id(x): _axes(x) for x in whole}
        self.sizes = _sizes(signature, [axes for axes in self.axes.values() if axes])
        names = [x for x in ast.walk(call) if isinstance(x, ast.Name) and x.id == "bool"]
        self.flags = {id(x): at for at, x in enumerate(names)}
        self.values: tuple[Any, ...] = ()

    def calls(self) -> list[Call]:
        found = []
        given = [x.arg for x in self.call.keywords]
        if None in given or len(set(given)) < len(given):
            raise ConfigError(
                f"signature {self.signature!r}: not understood: each name once, and no **"
            )
        for values in itertools.product(_NUMBERS["bool"], repeat=len(self.flags)):
            self.values = values
            positional = [self._read(x) for x in self.call.args]
            named = {str(x.arg): self._read(x.value) for x in self.call.keywords}
            found.append((positional, named))
        return found

    def _read(self, x: ast.expr) -> Any:
        if isinstance(x, ast.Subscript) and isinstance(x.value, ast.Name):
            dtype = self._dtype(x.value.id)
            return itf.spec(tuple(self.sizes[one] for one in self.axes[id(x)]), dtype)
        if isinstance(x, ast.Name):
            if x.id == "bool":
                return self.values[self.flags[id(x)]]
            return _NUMBERS[x.id][0] if x.id in _NUMBERS else self._dtype(x.id).type(1)
        if isinstance(x, (ast.Tuple, ast.List)):
            held = [self._read(one) for one in x.elts]
            return tuple(held) if isinstance(x, ast.Tuple) else held
        try:
            if isinstance(x, ast.Dict):
                keys = [ast.literal_eval(key) for key in x.keys if key is not None]
                return dict(zip(keys, map(self._read, x.values), strict=True))
            return ast.literal_eval(x)
        except (ValueError, TypeError) as why:
            if isinstance(why, ConfigError):
                raise
            raise ConfigError(
                f"signature {self.signature!r}: {ast.unparse(x)!r} is neither an array such as "
                "f4[n], nor a number's type, nor a value"
            ) from None

    def _dtype(self, name: str) -> Any:
        try:
            return as_dtype(name, f"signature {self.signature!r}")
        except DTypeError as why:
            raise ConfigError(str(why)) from None


def _axes(x: ast.Subscript) -> list[str]:
    parts = x.slice.elts if isinstance(x.slice, ast.Tuple) else [x.slice]
    return [ast.unparse(one) for one in parts]


def _sizes(signature: str, arrays: list[list[str]]) -> dict[str, int]:
    """Return a size for each name and number: large, but no array nor their domain very large."""
    sizes: dict[str, int] = {}
    for text in dict.fromkeys(one for axes in arrays for one in axes):
        if text.isdecimal():
            sizes[text] = int(text)
        elif not text.isidentifier():
            raise ConfigError(
                f"signature {signature!r}: {text!r} is no axis; write a name or a size"
            )
    names = [one for axes in arrays for one in axes if one not in sizes]
    names = list(dict.fromkeys(names))
    given = max([1, *(math.prod(sizes.get(one, 1) for one in axes) for axes in arrays)])
    room = max(2, _ELEMENTS // given)
    largest = min(_MOST, 1 << int(math.log2(room) / max(1, len(names))))
    step = max(1, largest // _STEPS)
    for number, name in enumerate(names):
        sizes[name] = max(2, largest - step * number)
    return sizes


def find(path: str) -> Callable[..., Any]:
    """Return the function that `package.module:function` names, from the import path.

    Raises
    ------
    ConfigError
        If it names none.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise ConfigError(f"{path!r} names no function; write package.module:function")
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as why:  # whatever the module does when it is imported
        missing = why.name if isinstance(why, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            raise ConfigError(
                f"{path}: {why}; start where it can be imported, or set PYTHONPATH"
            ) from why
        raise ConfigError(f"{path}: importing {module} failed: {_said(why)}") from why
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{path}: {module} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{path} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _said(why: BaseException) -> str:
    return f"{type(why).__name__}: {str(why).strip()}"


def _plan(called: Callable[..., Any], signature: str, call: Call) -> Plan:
    """Plan a call of a function, as it will be when it is called with arrays."""
    positional, named = call
    name = getattr(called, "__qualname__", repr(called))
    try:
        inspect.signature(called).bind(*positional, **named)
    except TypeError as why:
        raise ConfigError(f"{name} cannot be called with {signature!r}: {why}") from None
    try:
        if isinstance(called, (Fused, BoundFused)):
            return called.plan(*positional, **named)
        results: list[Any] = []
        made = called(*positional, **named)
        pytree.flatten(made, lambda x: isinstance(x, itf.Array), results)
    except itf.ItfuseError:
        raise
    except Exception as why:  # whatever the function does
        raise ConfigError(f"{name} failed for {signature!r}: {_said(why)}") from why
    if not results:
        raise ConfigError(f"{name} returns no itf.Array for {signature!r}: nothing to build")
    return itf.plan(*results)


def build(
    function: str | Callable[..., Any],
    signatures: Sequence[str],
    archs: Sequence[str],
    output: str | os.PathLike[str],
) -> int:
    """Compile the passes of a function, and write them to a file. Needs no GPU.

    Parameters
    ----------
    function : str or callable
        `package.module:function`, or the function: one of `itf.fuse`, or of lazy arrays.
    signatures : sequence of str
        What it is called with; see `calls`. The code is that of contiguous arrays.
    archs : sequence of str
        Architectures: `90`, `sm_90` or `9.0`.
    output : path
        Where to write. An existing file is replaced at the end.

    Returns
    -------
    int
        Number of compiled codes in the file.

    Raises
    ------
    ConfigError
        If the function, a signature or an architecture is not understood.
    CompileError
        If code does not compile.
    DeviceError
        If there is no compiler, or `strategy="cub"` is asked for where cuda.compute cannot be
        imported, which takes the library of a driver.
    """
    called = find(function) if isinstance(function, str) else function
    null = engines.engine_for("none")
    targets: list[str] = []
    codes: dict[str, bytes] = {}
    for arch in archs:
        with itf.config(arch=arch.strip(), engine="null"), disk.recording() as made:
            targets.append(setting("arch"))
            for signature in signatures:
                for call in calls(signature):
                    for stage in _plan(called, signature, call).stages:
                        null.build_for_gpu(stage)
        codes |= made
    manifest = {
        "format": FORMAT,
        "itfuse": itf.__version__,
        "archs": targets,
        "function": function if isinstance(function, str) else repr(function),
        "signatures": list(signatures),
        "codes": sorted(codes),
    }
    _write(Path(output), manifest, codes)
    return len(codes)


def _write(target: Path, manifest: dict[str, Any], codes: dict[str, bytes]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in _members(manifest, codes):
            # The same date always, so that equal builds are equal files.
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.external_attr = 0o644 << 16
            file.writestr(member, content, zipfile.ZIP_DEFLATED)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        temporary.write_bytes(buffer.getvalue())
        temporary.replace(target)
    except OSError as why:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise type(why)(why.errno, why.strerror, str(target)) from None


def _members(
    manifest: dict[str, Any], codes: dict[str, bytes]
) -> Iterator[tuple[str, str | bytes]]:
    yield _MANIFEST, json.dumps(manifest, indent=1)
    for name, code in sorted(codes.items()):
        yield f"codes/{name}", disk.pack(name, code)


def load(path: str | os.PathLike[str]) -> int:
    """Use the compiled code of a file that `itfuse build` made.

    Parameters
    ----------
    path : path
        The file. It holds machine code: load only files that you trust.

    Returns
    -------
    int
        Number of compiled codes. Passes that they belong to compile nothing from now on, in
        this process.

    Raises
    ------
    FileNotFoundError, PermissionError, ...
        If it cannot be read.
    CacheError
        If it is no such file, is damaged, was made by another version of itfuse, or holds code for
        none of the GPUs here; nothing of it is used then.
    """
    again = "build it again with `itfuse build`"
    content = Path(path).read_bytes()
    own = (FORMAT, itf.__version__)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            manifest = json.loads(file.read(_MANIFEST))
            version = (manifest["format"], manifest["itfuse"])
            archs = [str(arch) for arch in manifest["archs"]]
            names = manifest["codes"] if version == own else ()
            codes = {name: disk.unpack(name, file.read(f"codes/{name}")) for name in names}
    except Exception as why:  # of many kinds: zipfile's, zlib's, json's, and those of wrong types
        raise CacheError(
            f"{path} is no file of `itfuse build`, or damaged ({why}); {again}"
        ) from None
    if version != own:
        raise CacheError(
            f"{path} has format {version[0]} of itfuse {version[1]}; this is itfuse {own[1]} with "
            f"format {own[0]}, whose code is another; {again}"
        )
    _check_gpus(path, archs)
    disk.attach(codes)
    return len(codes)


def _check_gpus(path: Any, archs: Sequence[str]) -> None:
    nvrtc = importlib.import_module("itfuse.engines.cuda.compile")
    here = importlib.import_module("itfuse.engines.cuda.nvml").architectures()
    if here and not any(set(nvrtc.runs_on(arch)) & set(archs) for arch in here):
        wanted = ",".join(arch.removeprefix("sm_") for arch in here)
        raise CacheError(
            f"{path} was built for {', '.join(archs)}, and the GPUs here are {', '.join(here)}; "
            f"build it with --arch {wanted}"
        )
