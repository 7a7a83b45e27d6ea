"""The cuda engine. Only modules of this package import cupy and cuda.*, and only when used."""

from __future__ import annotations

import functools
import importlib
import threading
from typing import Any

from itfuse.errors import DeviceError, Unsupported
from itfuse.expr import Memory

_INSTALL = "pip install 'itfuse[cu13]' (or [cu12] for a CUDA 12 driver)"
_engines: dict[str, Any] = {}
_lock = threading.Lock()


@functools.cache
def _probe() -> tuple[str, dict[str, str]]:
    """Return (why there is no usable GPU, what was found); an empty reason means there is one."""
    found: dict[str, str] = {}
    try:
        cupy = importlib.import_module("cupy")
    except Exception as why:
        return f"CuPy cannot be imported ({why}); {_INSTALL}", found
    found["cupy"] = cupy.__version__
    runtime = cupy.cuda.runtime
    driver, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    found["driver"] = _version(driver) if driver else "none"
    found["runtime"] = _version(needed)
    if not driver:
        return "no NVIDIA driver found (libcuda.so.1 does not load); install one", found
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as why:
        if "InsufficientDriver" in str(why):
            return (
                f"the driver supports CUDA {_version(driver)}, CuPy needs {_version(needed)}; "
                "update the driver or install the extra of its version"
            ), found
        return f"no usable GPU ({why})", found
    if count == 0:
        return "the driver sees no GPU", found
    for device in range(count):
        properties = runtime.getDeviceProperties(device)
        found[f"gpu {device}"] = (
            f"{properties['name'].decode()}, sm_{properties['major']}"
            f"{properties['minor']}, "
            f"{properties['totalGlobalMem'] / 2**30:.0f} GiB"
        )
    try:
        compute = importlib.import_module("cuda.compute")
        found["cuda-cccl"] = importlib.import_module("importlib.metadata").version("cuda-cccl")
    except Exception as why:
        return f"cuda.compute cannot be imported ({why}); {_INSTALL}", found
    if not compute._BINDINGS_AVAILABLE:
        return f"cuda.compute finds no bindings for this CUDA version; {_INSTALL}", found
    return "", found


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def status() -> tuple[str, bool, str, dict[str, str]]:
    """Return (name, available, reason, details); it never raises."""
    try:
        reason, found = _probe()
    except Exception as why:
        return "cuda", False, f"the GPU check failed: {why}", {}
    return "cuda", not reason, reason, found


def current() -> int:
    """Return the number of CuPy's current device."""
    return int(importlib.import_module("cupy").cuda.runtime.getDevice())


def engine(device: str) -> Any:
    """Return the engine of `device`, such as `cuda:0`.

    Raises
    ------
    DeviceError
        Saying what was found and what to do, if no GPU can be used.
    """
    made = _engines.get(device)
    if made is None:
        reason, _ = _probe()
        if reason:
            raise DeviceError(f"the cuda engine cannot run: {reason}")
        with _lock:
            module = importlib.import_module("itfuse.engines.cuda.launch")
            made = _engines.setdefault(device, module.CudaEngine(int(device.partition(":")[2])))
    return made


def upload(array: Any, device: str) -> Any:
    """Copy a NumPy array to a GPU."""
    cupy = importlib.import_module("cupy")
    with cupy.cuda.Device(int(device.partition(":")[2])):
        return cupy.asarray(array)


def wrap(obj: Any) -> tuple[Any, Memory]:
    """Return a CuPy array over the memory of `obj` (no copy), and where it lies."""
    reason, _ = _probe()
    if reason:
        raise DeviceError(
            f"a {type(obj).__module__}.{type(obj).__name__} is a device array, and "
            f"the cuda engine cannot run: {reason}"
        )
    cupy = importlib.import_module("cupy")
    array = obj
    if not isinstance(obj, cupy.ndarray):
        array = (
            cupy.asarray(obj) if hasattr(obj, "__cuda_array_interface__") else cupy.from_dlpack(obj)
        )
    memory = Memory(f"cuda:{array.device.id}", array.data.ptr, array.strides)
    itemsize = array.dtype.itemsize
    if any(place % itemsize for place in (memory.pointer, *memory.strides)):
        raise Unsupported(
            f"an array of {array.dtype} at {memory.pointer:#x} with strides "
            f"{memory.strides} is not aligned to its elements; copy it first"
        )
    return array, memory
