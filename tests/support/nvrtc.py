"""CUDA C++ -> machine code with NVRTC, and what the compiler says of its resources.

Compiling for a named architecture needs no driver and no GPU.
"""

from __future__ import annotations

import functools
import io
import re
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Resources:
    """What one kernel or device function uses; sizes in bytes, a thread's or (shared) a block's.

    `registers` is None for a device function that was not inlined: its kernel's number covers it.
    """

    registers: int | None = None
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0


@dataclass(frozen=True)
class Report:
    """The compiler's log, and the resources read from it by function name (C++ names mangled)."""

    log: str
    functions: dict[str, Resources]

    @property
    def spilled(self) -> int:
        """Bytes spilled by all functions together, stores and loads."""
        return sum(one.spill_stores + one.spill_loads for one in self.functions.values())


@functools.cache
def why_not() -> str:
    """Return why NVRTC cannot be used here, or an empty string."""
    try:
        from cuda.bindings import nvrtc
        from cuda.core import Program  # noqa: F401

        nvrtc.nvrtcVersion()  # finds and loads the library
    except Exception as why:  # a missing library is no ImportError
        return f"NVRTC cannot be used: {why}"
    return ""


def require() -> None:
    """Skip the running test where NVRTC cannot be used."""
    if why_not():
        pytest.skip(why_not())


def compile_cubin(source: str, arch: str) -> tuple[bytes, Report]:
    """Compile kernels for an architecture such as `sm_90`.

    Returns
    -------
    tuple of bytes and Report

    Raises
    ------
    Exception
        cuda.core's error, with the compiler's log in its message.
    """
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(arch=arch, std="c++17", ptxas_options="-v")
    log = io.StringIO()
    code = Program(source, "c++", options=options).compile("cubin", logs=log).code
    return bytes(code), Report(log.getvalue(), read_resources(log.getvalue()))


_ENTRY = re.compile(r"Compiling entry function '(\S+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def read_resources(log: str) -> dict[str, Resources]:
    """Read the log of `ptxas -v`."""
    found: dict[str, dict[str, int]] = {}
    entry = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif match := _FRAME.search(line):
            stack, stores, loads = map(int, match.groups())
            sizes = {"stack": stack, "spill_stores": stores, "spill_loads": loads}
            found.setdefault(function, {}).update(sizes)
        elif match := _REGISTERS.search(line):
            # Of the kernel as a whole, even after the lines of functions that it calls.
            used = found.setdefault(entry, {})
            used["registers"] = int(match[1])
            if shared := _SHARED.search(line):
                used["shared"] = int(shared[1])
    return {name: Resources(**values) for name, values in found.items()}
