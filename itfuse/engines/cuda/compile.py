"""NVRTC: C++ text -> LTO-IR or machine code. Needs no driver and no GPU."""

from __future__ import annotations

import functools
import importlib
from typing import Any

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


def _compile(source: str, arch: str, kind: str, **options: Any) -> bytes:
    core = _core()
    wanted = core.ProgramOptions(arch=arch, std="c++17", **options)
    try:
        return bytes(core.Program(source, "c++", options=wanted).compile(kind).code)
    except Exception as why:  # NVRTC's own error type is not public
        raise CompileError(
            f"generated code does not compile for {arch}; this is a fault in "
            "itfuse or in a function given to it",
            source,
            str(why),
        ) from None


@functools.lru_cache(maxsize=1024)
def ltoir(source: str, arch: str) -> bytes:
    """Compile device functions for linking with others.

    Raises
    ------
    CompileError
        With the source and the compiler's log.
    """
    return _compile(
        source, arch, "ltoir", relocatable_device_code=True, link_time_optimization=True
    )


def cubin(source: str, arch: str) -> bytes:
    """Compile kernels to machine code for `arch`, such as `sm_90`.

    Raises
    ------
    CompileError
        With the source and the compiler's log.
    """
    return _compile(source, arch, "cubin")
