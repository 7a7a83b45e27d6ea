"""A stand-in for CuPy whose device is the processor, so that the cuda engine's own Python runs.

Memory is NumPy's. Kernels arrive as C++ text (what NVRTC would have compiled) and run through the
host shim when they are launched, with the very state block that the launch was given. Work is done
at once; streams have handles only. What is counted: launches, allocations, captures.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from .generated import unit
from .host_cpp import HostLibrary

ARCH = "90"


class Memory:
    """A block of host memory, aligned as CuPy's pool aligns."""

    def __init__(self, nbytes: int) -> None:
        self.buffer = np.full(nbytes + 512, 0xA5, "u1")
        self.ptr = -(-self.buffer.ctypes.data // 512) * 512


class MemoryPointer:
    def __init__(self, mem: Any, ptr: int) -> None:
        self.mem, self.ptr, self.device_id = mem, ptr, 0

    def memset_async(self, value: int, nbytes: int) -> None:
        _queue(lambda: ctypes.memset(self.ptr, value, nbytes))

    def copy_from_device_async(self, source: Any, nbytes: int) -> None:
        _queue(lambda: ctypes.memmove(self.ptr, source.ptr, nbytes))

    def copy_to_host_async(self, target: int, nbytes: int) -> None:
        _queue(lambda: ctypes.memmove(target, self.ptr, nbytes))


class Flags:
    def __init__(self, contiguous: bool) -> None:
        self.c_contiguous = contiguous


class ndarray:  # noqa: N801
    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None
    ) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.size = int(np.prod(self.shape, dtype=object))
        self.data = memptr or alloc(self.size * self.dtype.itemsize)
        self.strides = strides or np.empty(self.shape, self.dtype).strides
        self._c_contiguous = self.view_numpy().flags.c_contiguous
        self.flags = Flags(self._c_contiguous)
        self.device = types.SimpleNamespace(id=0)
        self.nbytes = self.size * self.dtype.itemsize

    def view_numpy(self) -> Any:
        low = sum(min(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        if not self.size:
            return np.empty(self.shape, self.dtype)
        raw = (ctypes.c_char * (high - low + self.dtype.itemsize)).from_address(self.data.ptr + low)
        return np.ndarray(self.shape, self.dtype, raw, -low, self.strides)

    def get(self) -> Any:
        return self.view_numpy().copy()

    def __bool__(self) -> bool:
        return bool(self.view_numpy())

    def copy(self) -> ndarray:
        return asarray(self.view_numpy())

    def reshape(self, shape: Any) -> ndarray:
        assert self._c_contiguous
        return ndarray(shape, self.dtype, self.data)

    def __getitem__(self, index: Any) -> ndarray:
        whole = self.view_numpy()
        part = whole[index]
        place = MemoryPointer(self.data.mem, part.__array_interface__["data"][0])
        return ndarray(part.shape, self.dtype, place, part.strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False),
                "strides": self.strides, "version": 3}  # fmt: skip


counts = {"launches": 0, "allocations": 0}
capturing: set[int] = set()
_here = threading.local()


def alloc(nbytes: int) -> MemoryPointer:
    counts["allocations"] += 1
    memory = Memory(nbytes)
    return MemoryPointer(memory, memory.ptr)


def empty(shape: Any, dtype: Any = float) -> ndarray:
    return ndarray(shape if isinstance(shape, tuple) else (shape,), dtype)


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    made = empty(shape, dtype)
    made.data.memset_async(0, made.nbytes)
    return made


def asarray(array: Any) -> ndarray:
    array = np.asarray(array)
    made = empty(array.shape, array.dtype)
    made.view_numpy()[...] = array
    return made


recording: dict[int, list[Any]] = {}


def _queue(work: Any) -> None:
    """Do the work of the current stream, or record it where that is being captured."""
    recorded = recording.get(current().ptr)
    work() if recorded is None else recorded.append(work)


class Graph:
    def __init__(self, work: list[Any]) -> None:
        self.work = work

    def launch(self, stream: Any = None) -> None:
        for one in self.work:
            one()


class Stream:
    def __init__(self, ptr: int = 0, non_blocking: bool = False) -> None:
        self.ptr = 1 << 20 if non_blocking else ptr

    def record(self) -> Any:
        return object()

    def synchronize(self) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def begin_capture(self) -> None:
        capturing.add(self.ptr)
        recording[self.ptr] = []

    def end_capture(self) -> Graph:
        capturing.discard(self.ptr)
        return Graph(recording.pop(self.ptr))

    def __enter__(self) -> Stream:
        self.before = current()
        _here.stream = self
        return self

    def __exit__(self, *_: object) -> None:
        _here.stream = self.before

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.ptr)

    @staticmethod
    def from_external(stream: Any) -> Stream:
        return Stream(stream.__cuda_stream__()[1])


def current() -> Stream:
    return getattr(_here, "stream", None) or Stream(0)


class Device:
    compute_capability = ARCH

    def __init__(self, number: int = 0) -> None:
        self.id = number
        self.attributes = {"MultiProcessorCount": 1, "MemoryClockRate": 1000,
                           "GlobalMemoryBusWidth": 64}  # fmt: skip

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Function:
    known: ClassVar[dict[int, Function]] = {}

    def __init__(self, source: str, symbol: str) -> None:
        self.source, self.symbol, self.library = source, symbol, None
        self.ptr = 0x1000 + len(self.known)
        self.known[self.ptr] = self


class Module:
    def load(self, cubin: bytes) -> None:
        self.source = cubin.decode()

    def get_function(self, symbol: str) -> Function:
        return Function(self.source, symbol)


_lock = threading.Lock()
sizes: dict[str, int] = {}


def launch_kernel(  # noqa: PLR0917
    function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int,
    shared: int, stream: int, table: int, extra: int,
) -> None:  # fmt: skip
    """Run a kernel of the host shim; positional integers only, like CuPy's."""
    assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0) and 0 <= shared <= 232_448
    assert stream == current().ptr
    one = Function.known[function]
    address = ctypes.c_void_p.from_address(table).value
    assert address
    state = ctypes.string_at(address, sizes[one.symbol])
    with _lock:
        counts["launches"] += 1
        if one.library is None:
            launch = f"ITF_HOST_LAUNCH({one.symbol}, State)\n"
            one.library = HostLibrary(unit([one.source + launch]))  # type: ignore[assignment]
        _queue(lambda: one.library.launch(one.symbol, state, gx, bx))  # type: ignore[attr-defined]


def _modules() -> dict[str, Any]:
    cupy = types.ModuleType("cupy")
    cuda = types.ModuleType("cupy.cuda")
    runtime = types.SimpleNamespace(
        getDevice=lambda: 0, setDevice=lambda number: None, getDeviceCount=lambda: 1,
        streamIsCapturing=lambda stream: stream in capturing,
    )  # fmt: skip
    driver = types.SimpleNamespace(
        launchKernel=launch_kernel,
        funcSetAttribute=lambda function, attribute, value: None,
        occupancyMaxActiveBlocksPerMultiprocessor=lambda function, block, shared: 1,
    )
    function = types.SimpleNamespace(Module=Module)
    for name, value in {
        "alloc_pinned_memory": bytearray,
        "runtime": runtime, "driver": driver, "function": function, "alloc": alloc,
        "get_current_stream": current, "Device": Device, "Stream": Stream,
        "MemoryPool": lambda: types.SimpleNamespace(malloc=alloc),
        "using_allocator": lambda malloc: contextlib.nullcontext(),
    }.items():  # fmt: skip
        setattr(cuda, name, value)
    for name, value in {
        "cuda": cuda, "ndarray": ndarray, "empty": empty, "zeros": zeros, "asarray": asarray,
        "__version__": "0",
    }.items():  # fmt: skip
        setattr(cupy, name, value)
    cub = types.ModuleType("itfuse.engines.cuda.cub")
    cub.CubBuilt = type("CubBuilt", (), {})  # type: ignore[attr-defined]
    bindings = types.ModuleType("cuda.bindings.driver")
    mode = types.SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    for name, value in {
        "CUstream": int, "cuStreamGetId": lambda stream: (0, 1000 + stream),
        "CUstreamCaptureMode": mode, "cuThreadExchangeStreamCaptureMode": lambda mode: (0, mode),
    }.items():  # fmt: skip
        setattr(bindings, name, value)
    return {"cupy": cupy, "cupy.cuda": cuda, "itfuse.engines.cuda.cub": cub,
            "cuda.bindings.driver": bindings}  # fmt: skip


def _forget(name: str) -> None:
    """Let the next import make a module anew: `from package import module` asks the package."""
    package, _, own = name.rpartition(".")
    if sys.modules.pop(name) is getattr(sys.modules.get(package), own, None):
        delattr(sys.modules[package], own)


@contextlib.contextmanager
def installed() -> Iterator[Any]:
    """Make `cuda:0` this device, and return the stand-in for the module `cupy`."""
    from itfuse.cache import BUILT
    from itfuse.engines import cuda
    from itfuse.engines.cuda import compile as nvrtc

    own = ("cupy", "cuda.bindings", "itfuse.engines.cuda.")
    keep = ("itfuse.engines.cuda.compile",)
    before = {name: module for name, module in sys.modules.items()
              if name.startswith(own) and name not in keep}  # fmt: skip
    for name in before:
        _forget(name)
    probe, engines, cubin = cuda._probe, dict(cuda._engines), nvrtc.cubin
    made = _modules()
    sys.modules.update(made)
    cuda._engines.clear()
    cuda._cupy = made["cupy"]
    cuda._probe = lambda: ("", {})  # type: ignore[assignment]
    nvrtc.cubin = lambda source, arch: source.encode()
    try:
        from itfuse.engines.cuda import tile

        class Loaded(tile.Loaded):
            def __init__(self, kernel: Any, arch: str) -> None:
                sizes[kernel.symbol] = kernel.state.size
                super().__init__(kernel, arch)

        tile.Loaded = Loaded  # type: ignore[misc]
        yield made["cupy"]
    finally:
        nvrtc.cubin, cuda._probe, cuda._cupy = cubin, probe, None
        cuda._engines.clear()
        cuda._engines.update(engines)
        for name in [name for name in sys.modules if name.startswith(own) and name not in keep]:
            _forget(name)
        sys.modules.update(before)
        BUILT.clear()  # of classes that are gone; and what is ready to run
