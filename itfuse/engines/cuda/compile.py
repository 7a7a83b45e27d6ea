"""NVRTC: C++ text -> LTO-IR or machine code. Needs no driver and no GPU."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from itfuse import disk
from itfuse.cache import FORMAT
from itfuse.errors import CompileError, DeviceError


@functools.cache
def _core() -> Any:
    try:
        return importlib.import_module("cuda.core")
    except ImportError as why:
        raise DeviceError(
            f"cuda-core is not installed ({why}); it comes with the extras: "
            "pip install 'itfuse[cu13]'"
        ) from None


@functools.cache
def versions() -> tuple[str, ...]:
    """Return the versions that decide compiled code, without importing the compiler."""
    metadata = importlib.import_module("importlib.metadata")
    found = []
    for names in (("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"), ("cuda-core",), ("cuda-cccl",)):
        for name in names:
            try:
                found.append(f"{name} {metadata.version(name)}")
                break
            except metadata.PackageNotFoundError:
                continue
    if not found or "nvrtc" not in found[0]:  # NVRTC of a CUDA toolkit: only it knows
        version = importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()[1:]
        found.append(f"nvrtc {'.'.join(map(str, version))}")
    return tuple(found)


class Count:
    """How often this process has compiled."""

    compilations = 0


def _compile(source: str, arch: str, kind: str, **options: Any) -> bytes:
    core = _core()
    wanted = core.ProgramOptions(arch=arch, std="c++17", **options)
    Count.compilations += 1
    try:
        return bytes(core.Program(source, "c++", options=wanted).compile(kind).code)
    except Exception as why:  # NVRTC's own error type is not public
        raise CompileError(
            f"generated code does not compile for {arch}; this is a fault in "
            "itfuse or in a function given to it",
            source,
            str(why),
        ) from None


def _kept(source: str, arch: str, kind: str, **options: Any) -> bytes:
    key = (FORMAT, kind, arch, sorted(options.items()), source)
    return disk.compiled(key, versions(), lambda: _compile(source, arch, kind, **options))


@functools.lru_cache(maxsize=1024)
def ltoir(source: str, arch: str) -> bytes:
    """Compile device functions for linking with others.

    Raises
    ------
    CompileError
        With the source and the compiler's log.
    """
    return _kept(source, arch, "ltoir", relocatable_device_code=True, link_time_optimization=True)


def cubin(source: str, arch: str) -> bytes:
    """Compile kernels to machine code for `arch`, such as `sm_90`.

    Raises
    ------
    CompileError
        With the source and the compiler's log.
    """
    return _kept(source, arch, "cubin")
