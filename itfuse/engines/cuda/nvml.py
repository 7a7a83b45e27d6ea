"""NVML, asked for one thing: the architectures of the GPUs of this machine.

Asking CUDA would initialise it, and a process must not fork after that. NVML leaves it alone.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"


def _open() -> Any:
    return ctypes.CDLL(_LIBRARY)


def architectures() -> list[str]:
    """Return the architectures of the GPUs here, such as `["sm_90"]`.

    Returns
    -------
    list of str
        Sorted, each once; empty where NVML finds no GPU or is not there.
    """
    try:
        nvml = _open()
        if nvml.nvmlInit_v2():
            return []
        try:
            return sorted(_found(nvml))
        finally:
            nvml.nvmlShutdown()
    except (OSError, AttributeError):  # no driver, or one that is too old to ask
        return []


def _found(nvml: Any) -> set[str]:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return set()
    found = set()
    for number in range(count.value):
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        if nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(device)):
            continue
        if not nvml.nvmlDeviceGetCudaComputeCapability(
            device, ctypes.byref(major), ctypes.byref(minor)
        ):
            found.add(f"sm_{major.value}{minor.value}")
    return found
