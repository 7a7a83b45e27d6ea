"""The `tile` strategies: kernels of our own, compiled by NVRTC and launched through the driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import cupy
from cupy.cuda import driver, function, runtime

from itfuse.engines.cuda import compile as nvrtc
from itfuse.engines.cuda.scratch import scratch
from itfuse.lower.staged import room_of
from itfuse.lower.tile import TileKernel
from itfuse.plan.stages import Stage

_MOST_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: more than 48 KiB must be asked for."""


class Loaded:
    """One variant of a tile kernel, compiled and loaded on the current device.

    The driver copies a kernel's argument during the launch call, so each thread reuses one block
    of bytes for it.
    """

    def __init__(self, kernel: TileKernel, arch: str) -> None:
        self.kernel = kernel
        self._module = function.Module()
        self._module.load(nvrtc.cubin(kernel.source, arch))
        self.function = self._module.get_function(kernel.symbol).ptr
        self._local = threading.local()
        if kernel.shared is not None:
            driver.funcSetAttribute(self.function, _MOST_SHARED, room_of(arch))
        self.most = 0
        if kernel.partial:
            device = cupy.cuda.Device()
            blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(
                self.function, kernel.block, 0
            )
            # A few waves: late blocks even out what early ones left (sum: 1 wave 1 % slower).
            self.most = 4 * blocks * device.attributes["MultiProcessorCount"]

    def block(self) -> Any:
        """Return this thread's argument block: its bytes, and the address of the table to it."""
        try:
            return self._local.block
        except AttributeError:
            runtime.setDevice(runtime.getDevice())  # a new thread has no context before
            buffer = (ctypes.c_char * self.kernel.state.size)()
            table = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
            self._local.block = (buffer, table, ctypes.addressof(table))
            return self._local.block


class TileBuilt:
    """A stage's tile kernel: the aligned variant, and the other from when it is first needed.

    Parameters
    ----------
    lower : callable
        Whether aligned -> kernel.
    arch : str
        Architecture of the current device.
    """

    def __init__(self, lower: Callable[[bool], TileKernel], arch: str) -> None:
        self._lower, self._arch = lower, arch
        self.aligned = Loaded(lower(True), arch)
        self._other: Loaded | None = None
        self._lock = threading.Lock()
        self.scratch = scratch(cupy.cuda.Device().id)

    @property
    def other(self) -> Loaded:
        """The variant for any addresses."""
        if self._other is None:
            with self._lock:
                if self._other is None:
                    self._other = Loaded(self._lower(False), self._arch)
        return self._other

    def __call__(
        self, stage: Stage, operands: list[Any], outputs: list[int], stream: int, allocate: Any
    ) -> None:
        """Queue one run; the arguments are those of `CubBuilt`."""
        fits = self.aligned.kernel.fits(stage, operands, outputs)
        loaded = self.aligned if fits else self.other
        kernel = loaded.kernel
        grid = kernel.spans(stage)
        extra: list[Any] = []
        if kernel.partial:
            nbytes, counts = kernel.scratch(stage)
            *extra, _memory = self.scratch.take(stream, max(1, nbytes), counts)
            if kernel.partials is None:  # blocks walk the leaves
                grid = min(grid, loaded.most)
        if stage.how is not None:
            extra = [stage.outputs[0].size]
        if kernel.zeroed is not None:
            nbytes = kernel.zeroed(stage)
            address, _memory = allocate(nbytes)
            _memory.memset_async(0, nbytes)
            extra = [address, *(kernel.numbers(stage) if kernel.numbers else ())]
        block = loaded.block()
        block[0].raw = kernel.state.pack(stage, operands, outputs, extra)
        shared = kernel.shared(stage) if kernel.shared else 0
        driver.launchKernel(
            loaded.function, grid, 1, 1, kernel.block, 1, 1, shared, stream, block[2], 0
        )
