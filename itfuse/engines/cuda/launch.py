"""CudaEngine: CuPy arrays, pools and streams around what the strategies build."""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from itfuse.cache import digest
from itfuse.engines.cuda.fast import CudaReady
from itfuse.engines.cuda.terminals import TerminalBuilt, allocate
from itfuse.engines.cuda.tile import TileBuilt
from itfuse.errors import DeviceError
from itfuse.expr import Memory
from itfuse.lower import lower_tile
from itfuse.lower.cpp import lower
from itfuse.plan.stages import Stage

if TYPE_CHECKING:
    from itfuse.engines.cuda.cub import CubBuilt


_local = threading.local()
_PINNED = 64  # bytes: a count or two
_KEPT = 4


def _addresses(stage: Stage, operands: list[Any]) -> list[Any]:
    """Return the address of every operand's first element; for scalars their values."""
    return [
        x.item() if i.kind in ("scalar", "iota") else x.data.ptr + i.offset
        for i, x in zip(stage.inputs, operands, strict=True)
    ]


class CudaBuilt:
    """A built stage that takes CuPy arrays."""

    __slots__ = ("built", "stage")

    def __init__(self, built: CubBuilt | TileBuilt) -> None:
        self.built = built

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Queue one run on CuPy's current stream; nothing waits."""
        if (stage.primitive == "transform" and stage.size == 0) or (
            stage.by_rows and stage.rows == 0
        ):
            return
        self.built(
            stage,
            _addresses(stage, operands),
            [out.data.ptr for out in outputs],
            cupy.cuda.get_current_stream().ptr,
            allocate,
        )


class CudaEngine:
    """Runs plans on one GPU through cuda.compute."""

    name = "cuda"
    ready = CudaReady

    def __init__(self, number: int) -> None:
        self.number = number
        self.device = cupy.cuda.Device(number)
        self.arch = f"sm_{self.device.compute_capability}"

    def build_key(self) -> tuple[Any, ...]:
        """Return what decides a build beside the stage."""
        return ("cuda", self.number, self.arch)

    def build(self, stage: Stage) -> CudaBuilt | TerminalBuilt:
        """Compile a stage for this GPU."""
        if stage.how is not None:
            return TerminalBuilt(stage, self.arch)
        name = f"itf_{digest(stage)}"
        if stage.strategy == "tile":
            variant = functools.partial(lower_tile, stage, name, arch=self.arch)
            return CudaBuilt(TileBuilt(variant, self.arch))
        # cuda.compute takes a while to import, and the tile kernels do without it.
        cub = importlib.import_module("itfuse.engines.cuda.cub")
        return CudaBuilt(cub.CubBuilt(stage, lower(stage, name), self.arch))

    def iterator(self, stage: Stage, operands: list[Any]) -> Any:
        """Return the result of a transform as an iterator of cuda.compute."""
        made = importlib.import_module("itfuse.engines.cuda.iterator")
        arrays = tuple(x for x in operands if isinstance(x, cupy.ndarray))
        return made.iterator(stage, _addresses(stage, operands), self.arch, arrays)

    def source(self, stage: Stage) -> str:
        """Return the C++ generated for a stage."""
        name = f"itf_{digest(stage)}"
        if stage.strategy == "tile":
            return lower_tile(stage, name, arch=self.arch).source
        return lower(stage, name).source

    def memory(self, array: Any) -> Memory:
        """Say where a CuPy array lies."""
        return Memory(f"cuda:{array.device.id}", array.data.ptr, array.strides)

    def adopt(self, array: Any) -> tuple[Any, Memory | None]:
        """Return another library's array of a GPU as CuPy's, and where it lies; None elsewhere."""
        if not hasattr(array, "__cuda_array_interface__"):
            return array, None
        own = cupy.asarray(array)
        return own, self.memory(own)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an uninitialised array from CuPy's current pool."""
        return cupy.empty(shape, dtype)

    def read(self, array: Any) -> Any:
        """Return a small array on the host: one copy to pinned memory, waited for."""
        try:
            pinned = _local.pinned
        except AttributeError:
            pinned = _local.pinned = cupy.cuda.alloc_pinned_memory(_PINNED)
        host = np.frombuffer(pinned, array.dtype, array.size).reshape(array.shape)
        array.data.copy_to_host_async(host.ctypes.data, array.nbytes)
        cupy.cuda.get_current_stream().synchronize()
        return host.copy()

    def cut(self, array: Any, count: int) -> Any:
        """Return the first `count` elements: in place if they fill much of the array, or a copy.

        Memory that is there cannot be made smaller, so that a small result is copied, and the large
        array goes back to the pool. What is not worth a copy holds at most `_KEPT` times what it
        needs.
        """
        part = array[:count]
        return part if count * _KEPT >= array.size else part.copy()

    @contextlib.contextmanager
    def _entered(self, stream: Any) -> Any:
        with self.device:
            if stream is None:
                yield
                return
            if not hasattr(stream, "__cuda_stream__"):
                raise DeviceError(
                    f"stream={stream!r} has no __cuda_stream__; pass a stream of "
                    "CuPy, torch or cuda.core, or None for CuPy's current one"
                )
            with cupy.cuda.Stream.from_external(stream):
                yield

    def on(self, stream: Any) -> Any:
        """Return a context in which this GPU and `stream` are current."""
        if stream is None and cupy.cuda.runtime.getDevice() == self.number:
            return contextlib.nullcontext()
        return self._entered(stream)

    @functools.cached_property
    def _bandwidth(self) -> float:
        # The datasheet's: clock of the memory (kHz, double data rate) times the bus width (bits).
        attributes = self.device.attributes
        clock, width = attributes["MemoryClockRate"], attributes["GlobalMemoryBusWidth"]
        return float(2 * clock * 1e3 * width / 8)

    def bandwidth(self) -> float:
        """Return the memory bandwidth in bytes per second, as the device states it."""
        return self._bandwidth

    def seconds(self, call: Callable[[], object], repeat: int, batch: int) -> list[float]:
        """Time `repeat` batches of calls by events; return the seconds of one call in each."""
        event, times = cupy.cuda.Event, []
        with self.on(None):
            for _ in range(repeat):
                start, end = event(), event()
                start.record()
                for _ in range(batch):
                    call()
                end.record()
                end.synchronize()
                times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3 / batch)
        return times

    @functools.cached_property
    def _copied(self) -> float:
        free = int(self.device.mem_info[0])
        nbytes = max(1 << 20, min(1 << 28, free // 8))
        with self.on(None):
            source, target = cupy.zeros(nbytes, "uint8"), cupy.zeros(nbytes, "uint8")
            stream = cupy.cuda.get_current_stream()
            times = self.seconds(
                lambda: target.data.copy_from_device_async(source.data, nbytes, stream), 9, 4
            )
        return 2 * nbytes / sorted(times)[len(times) // 2]

    def copy_speed(self) -> float:
        """Return the bytes per second, read and written, of a copy measured here."""
        return self._copied
