"""Ahead of time: compile a function's passes on any machine, load them where the GPU is.

A file holds compiled code by the names under which the cache on disk would keep it, so that loading
it is looking it up: nothing about a pass is written twice.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import itfuse as itf
from itfuse import disk
from itfuse.cache import FORMAT
from itfuse.errors import CacheError, ConfigError, DTypeError

_ARGUMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[([^\]]*)\])?\s*(?:,|$)")
_SCALARS = {"int": 3, "float": 0.5, "bool": True}
_SYMBOL = 64
"""Size that a named dimension stands for: code does not depend on it, as long as it is not 1."""


def arguments(signature: str) -> list[Any]:
    """Return placeholders for a signature.

    Parameters
    ----------
    signature : str
        Arguments separated by commas: `f4[n]`, `float32[rows, 1000]`, `f8[]` for a 0-d array;
        `int`, `float` and `bool` for Python scalars. Equal names are equal sizes.

    Raises
    ------
    ConfigError
        Saying what is not understood.

    Examples
    --------
    >>> [a.shape for a in arguments("f4[n], f4[n, 1000]")]
    [(64,), (64, 1000)]
    """
    made: list[Any] = []
    at = 0
    while at < len(signature):
        match = _ARGUMENT.match(signature, at)
        if match is None:
            raise ConfigError(f"signature {signature!r}: not understood from {signature[at:]!r} on")
        at = match.end()
        kind, dims = match.groups()
        if dims is None and kind in _SCALARS:
            made.append(_SCALARS[kind])
            continue
        if dims is None:
            raise ConfigError(f"signature {signature!r}: {kind} needs its axes, such as {kind}[n]")
        try:
            made.append(
                itf.spec(tuple(map(_size, filter(None, map(str.strip, dims.split(","))))), kind)
            )
        except (DTypeError, ValueError) as why:
            raise ConfigError(f"signature {signature!r}: {kind}[{dims}]: {why}") from None
    return made


def _size(text: str) -> int:
    return _SYMBOL if text.isidentifier() else int(text)


def find(path: str) -> Callable[..., Any]:
    """Return the function that `package.module:function` names, from here or the import path."""
    module, _, name = path.partition(":")
    if not name:
        raise ConfigError(f"{path!r} names no function; write package.module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{path} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def build(
    function: str | Callable[..., Any],
    signatures: Sequence[str],
    archs: Sequence[str],
    output: str | Path,
) -> int:
    """Compile the passes of a function of lazy arrays, and write them to a file.

    Parameters
    ----------
    function : str or callable
        `package.module:function`, or the function.
    signatures : sequence of str
        What it is called with; see `arguments`. The code is that of contiguous arrays.
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
    ConfigError, CompileError
        If a signature or an architecture is not understood, or code does not compile.
    """
    called = find(function) if isinstance(function, str) else function
    codes: dict[str, bytes] = {}
    for arch in archs:
        with itf.config(arch=arch.strip(), engine="null"), disk.recording() as made:
            for signature in signatures:
                result = called(*arguments(signature))
                several = isinstance(result, (tuple, list))
                itf.compute(*(result if several else (result,)), engine="null")
        codes |= made
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        manifest = {
            "format": FORMAT,
            "itfuse": itf.__version__,
            "archs": list(archs),
            "signatures": list(signatures),
            "codes": {name: hashlib.sha256(code).hexdigest() for name, code in codes.items()},
        }
        file.writestr("manifest.json", json.dumps(manifest, indent=1))
        for name, code in sorted(codes.items()):
            file.writestr(f"codes/{name}", disk.pack(name, code))
    target = Path(output)
    temporary = target.with_name(f".{target.name}.part")
    temporary.write_bytes(buffer.getvalue())
    temporary.replace(target)
    return len(codes)


def load(path: str | Path) -> int:
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
    CacheError
        If it is no such file, is damaged, or was made by a version with another format.
    """
    try:
        with zipfile.ZipFile(path) as file:
            manifest = json.loads(file.read("manifest.json"))
            if manifest["format"] != FORMAT:
                raise CacheError(
                    f"{path} has format {manifest['format']}, this version of itfuse has {FORMAT}; "
                    "build it again with this version"
                )
            names = list(manifest["codes"])
            codes = {name: disk.unpack(name, file.read(f"codes/{name}")) for name in names}
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as why:
        if isinstance(why, CacheError):
            raise
        raise CacheError(f"{path} is no file of itfuse build, or damaged: {why}") from None
    disk.attach(codes)
    return len(codes)
