"""The `tile` strategies: kernels of our own, compiled by NVRTC and launched through the driver."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import cupy
from cupy.cuda import driver, function

from itfuse.engines.cuda import compile as nvrtc
from itfuse.lower.tile import TileKernel
from itfuse.plan.stages import Stage


class TileBuilt:
    """A compiled tile kernel on the current device.

    The driver copies a kernel's argument during the launch call, so each thread reuses one block
    of bytes for it.
    """

    def __init__(self, kernel: TileKernel, arch: str) -> None:
        self.kernel = kernel
        self._module = function.Module()
        self._module.load(nvrtc.cubin(kernel.source, arch))
        self._function = self._module.get_function(kernel.symbol).ptr
        self._local = threading.local()
        self._most = 0
        self._finished: dict[int, Any] = {}
        if kernel.partial:
            device = cupy.cuda.Device()
            blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(
                self._function, kernel.block, 0
            )
            # A few waves: late blocks even out what early ones left (sum: 1 wave 1 % slower).
            self._most = 4 * blocks * device.attributes["MultiProcessorCount"]

    def _block(self) -> Any:
        buffer = (ctypes.c_char * self.kernel.state.size)()
        table = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
        self._local.block = block = (buffer, table, ctypes.addressof(table))
        return block

    def __call__(
        self, stage: Stage, operands: list[Any], outputs: list[int], stream: int, allocate: Any
    ) -> None:
        """Queue one run; the arguments are those of `CubBuilt`."""
        kernel = self.kernel
        block = getattr(self._local, "block", None) or self._block()
        grid = kernel.spans(stage)
        extra: tuple[int, ...] = ()
        if kernel.partial:
            # The scratch goes back to CuPy's pool at once; the pool reuses it in stream order.
            address, _memory = allocate(grid * kernel.partial)
            extra = (address, self._counter(stream))
            grid = min(grid, self._most)
        block[0].raw = kernel.state.pack(stage, operands, outputs, extra)
        driver.launchKernel(self._function, grid, 1, 1, kernel.block, 1, 1, 0, stream, block[2], 0)

    def _counter(self, stream: int) -> int:
        """Return the address of this stream's count of finished blocks; a launch leaves it zero."""
        counter = self._finished.get(stream)
        if counter is None:
            counter = self._finished.setdefault(stream, cupy.zeros(1, "uint32"))
        return int(counter.data.ptr)
