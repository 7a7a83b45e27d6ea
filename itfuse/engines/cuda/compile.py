"""NVRTC: C++ text -> LTO-IR or machine code. Needs no driver and no GPU."""

from __future__ import annotations

import functools
import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

from itfuse import disk
from itfuse.cache import FORMAT
from itfuse.errors import CompileError, ConfigError, DeviceError
from itfuse.frozen import PREFIX


@functools.cache
def core() -> Any:
    """Return cuda.core.

    Raises
    ------
    DeviceError
        If it is not installed.
    """
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


@functools.cache
def architectures() -> tuple[int, ...]:
    """Return what this NVRTC compiles for; empty if it does not say."""
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        return tuple(int(one) for one in nvrtc.nvrtcGetSupportedArchs()[1])
    except (ImportError, RuntimeError, AttributeError, TypeError):
        return ()


def check(arch: str) -> None:
    """Raise `ConfigError` if this NVRTC does not compile for `arch`."""
    known = architectures()
    if known and int(arch.removeprefix("sm_")) not in known:
        raise ConfigError(
            f"NVRTC does not compile for {arch} here, but for "
            f"{', '.join(f'sm_{one}' for one in known)}; name one of these, or install another "
            "version of NVRTC (the package nvidia-cuda-nvrtc)"
        )


def _compile(source: str, arch: str, kind: str) -> bytes:
    cuda = core()
    check(arch)
    wanted = cuda.ProgramOptions(arch=arch, **_OPTIONS[kind])
    Count.add()
    start = time.perf_counter()
    try:
        return bytes(cuda.Program(source, "c++", options=wanted).compile(kind).code)
    except Exception as why:  # NVRTC's own error type is not public
        raise CompileError(
            f"generated code does not compile for {arch}; this is a fault in "
            "itfuse or in a function given to it",
            source,
            str(why),
        ) from None
    finally:
        Count.add(0, time.perf_counter() - start)


def _link(codes: list[bytes], arch: str, source: str) -> bytes:
    """Link LTO-IR to machine code."""
    cuda = core()
    options = cuda.LinkerOptions(arch=arch, link_time_optimization=True)
    try:
        parts = [cuda.ObjectCode.from_ltoir(code) for code in codes]
        return bytes(cuda.Linker(*parts, options=options).link("cubin").code)
    except Exception as why:  # nvJitLink's own error type is not public
        raise CompileError(
            f"generated code does not link with Python functions for {arch}", source, str(why)
        ) from None


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


def _python(source: str) -> Any:
    """Return the module that compiles Python functions if the source calls any, else None."""
    return importlib.import_module("itfuse.engines.cuda.python") if PREFIX in source else None


def versions_of(source: str) -> Callable[[], tuple[str, ...]]:
    """Return the function that gives the versions which decide the code of a source."""
    python = _python(source)
    return functools.partial(python.versions, source) if python else versions


def beside(source: str, arch: str) -> dict[str, bytes]:
    """Return what must be linked with `ltoir(source, arch)`: LTO-IR by symbol."""
    python = _python(source)
    return python.functions(source, arch) if python else {}


@functools.lru_cache(maxsize=1024)
def ltoir(source: str, arch: str) -> bytes:
    """Compile device functions for linking with others; Python functions are `beside` them.

    Raises
    ------
    CompileError
        With the source and the compiler's log.
    """
    python = _python(source)
    if python:
        source = python.defined(source, arch)
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

    def build() -> bytes:
        others = beside(source, arch)
        if others:
            return _link([ltoir(source, arch), *others.values()], arch, source)
        return _compile(source, arch, "cubin")

    return disk.compiled(
        _key(source, arch, "cubin"),
        versions_of(source),
        build,
        instead=(_key(source, other, "cubin") for other in runs_on(arch)[1:]),
    )
