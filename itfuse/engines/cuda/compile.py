"""NVRTC: C++ text -> LTO-IR or machine code. Needs no driver and no GPU."""

from __future__ import annotations

import functools
import importlib
import threading
import time
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
    """How often this process has compiled, with NVRTC or with cuda.compute; how long with NVRTC."""

    compilations = 0
    seconds = 0.0
    _lock = threading.Lock()

    @classmethod
    def add(cls, compilations: int = 1, seconds: float = 0.0) -> None:
        """Count one more, or the time that one took."""
        with cls._lock:
            cls.compilations += compilations
            cls.seconds += seconds


_OPTIONS: dict[str, dict[str, Any]] = {
    "cubin": {"std": "c++17"},
    "ltoir": {"std": "c++17", "relocatable_device_code": True, "link_time_optimization": True},
}


def _compile(source: str, arch: str, kind: str) -> bytes:
    core = _core()
    wanted = core.ProgramOptions(arch=arch, **_OPTIONS[kind])
    Count.add()
    start = time.perf_counter()
    try:
        return bytes(core.Program(source, "c++", options=wanted).compile(kind).code)
    except Exception as why:  # NVRTC's own error type is not public
        raise CompileError(
            f"generated code does not compile for {arch}; this is a fault in "
            "itfuse or in a function given to it",
            source,
            str(why),
        ) from None
    finally:
        Count.add(0, time.perf_counter() - start)


def _key(source: str, arch: str, kind: str) -> tuple[object, ...]:
    return (FORMAT, kind, arch, sorted(_OPTIONS[kind].items()), source)


def runs_on(arch: str) -> list[str]:
    """Return the architectures whose machine code runs on `arch`, the best first.

    CUDA's binary compatibility: code for a compute capability runs on later ones of the same major
    number.

    Examples
    --------
    >>> runs_on("sm_89")[:2], runs_on("sm_90")
    (['sm_89', 'sm_88'], ['sm_90'])
    """
    number = int(arch.removeprefix("sm_"))
    return [f"sm_{lower}" for lower in range(number, number - number % 10 - 1, -1)]


@functools.lru_cache(maxsize=1024)
def ltoir(source: str, arch: str) -> bytes:
    """Compile device functions for linking with others.

    Raises
    ------
    CompileError
        With the source and the compiler's log.
    """
    return disk.compiled(
        _key(source, arch, "ltoir"),
        versions,
        lambda: _compile(source, arch, "ltoir"),
        final=False,
    )


def cubin(source: str, arch: str) -> bytes:
    """Compile kernels to machine code for `arch`, such as `sm_90`.

    A loaded file's code for an earlier architecture is taken if `arch` can run it.

    Raises
    ------
    CompileError
        With the source and the compiler's log.
    """
    return disk.compiled(
        _key(source, arch, "cubin"),
        versions,
        lambda: _compile(source, arch, "cubin"),
        instead=(_key(source, other, "cubin") for other in runs_on(arch)[1:]),
    )
