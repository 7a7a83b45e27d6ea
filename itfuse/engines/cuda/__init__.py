"""The cuda engine. Only modules of this package import cupy and cuda.*, and only when used."""

from __future__ import annotations

import functools
import importlib
import os
import threading
from typing import Any

from itfuse.errors import DeviceError, Unsupported
from itfuse.expr import Memory

_INSTALL = "pip install 'itfuse[cu13]' (or [cu12] for a CUDA 12 driver)"
_engines: dict[str, Any] = {}
_lock = threading.Lock()
_forked = False


def _after_fork() -> None:
    global _forked, _lock  # noqa: PLW0603
    # CUDA that was initialised does not survive a fork; a probe alone initialises it.
    _forked = _forked or bool(_engines) or (_probe.cache_info().currsize > 0 and not _probe()[0])
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _refuse_forked() -> None:
    if _forked:
        raise DeviceError(
            "this process was forked from one that had used the GPU, and CUDA does not survive a "
            "fork; start processes with multiprocessing.get_context('spawn'), or fork before "
            "the first use of the GPU"
        )


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
    metadata = importlib.import_module("importlib.metadata")
    for package in ("cuda-cccl", "cuda-core"):  # imported when something is compiled with them
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            return f"{package} is not installed; {_INSTALL}", found
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
    _refuse_forked()
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
    """Copy a NumPy array to a GPU, for good: it may be read on another stream than the current."""
    cupy = importlib.import_module("cupy")
    with cupy.cuda.Device(int(device.partition(":")[2])):
        copied = cupy.asarray(array)
        cupy.cuda.get_current_stream().synchronize()
    return copied


_cupy: Any = None
_NAMES = [f"cuda:{number}" for number in range(64)]


def _import_cupy(obj: Any) -> Any:
    global _cupy  # noqa: PLW0603
    reason, _ = _probe()
    if reason:
        raise DeviceError(
            f"a {type(obj).__module__}.{type(obj).__name__} is a device array, and "
            f"the cuda engine cannot run: {reason}"
        )
    _cupy = importlib.import_module("cupy")
    return _cupy


def wrap(obj: Any) -> tuple[Any, Memory]:
    """Return a CuPy array over the memory of `obj` (no copy), and where it lies."""
    _refuse_forked()
    cupy = _cupy or _import_cupy(obj)
    array = obj
    if not isinstance(obj, cupy.ndarray):
        array = (
            cupy.asarray(obj) if hasattr(obj, "__cuda_array_interface__") else cupy.from_dlpack(obj)
        )
    data, strides = array.data, array.strides
    memory = Memory(_NAMES[data.device_id], data.ptr, strides)
    itemsize = array.dtype.itemsize
    # An address is a multiple of the size unless somebody made it so by hand.
    apart = memory.pointer % itemsize
    for step in strides:
        apart |= step % itemsize
    if apart:
        raise Unsupported(
            f"an array of {array.dtype} at {memory.pointer:#x} with strides "
            f"{memory.strides} is not aligned to its elements; copy it first"
        )
    return array, memory
