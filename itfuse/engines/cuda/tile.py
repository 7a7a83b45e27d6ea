"""The `tile` strategies: kernels of our own, compiled by NVRTC and launched through the driver."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from cupy.cuda import driver, function

from itfuse.engines.cuda import compile as nvrtc
from itfuse.lower.tile import BLOCK, TileKernel
from itfuse.plan.stages import Stage


class TileBuilt:
    """A compiled tile kernel.

    The driver copies a kernel's arguments during the launch call, so each thread reuses one
    block of bytes for them.
    """

    def __init__(self, kernel: TileKernel, arch: str) -> None:
        self.kernel = kernel
        self.arch = arch
        self._module = function.Module()
        self._module.load(nvrtc.cubin(kernel.source, arch))
        self._function = self._module.get_function(kernel.symbol).ptr
        self._local = threading.local()

    def _block(self) -> Any:
        size = self.kernel.state.size
        buffer = (ctypes.c_char * size)()
        table = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
        self._local.block = block = (buffer, table, ctypes.addressof(table))
        return block

    def __call__(
        self, stage: Stage, operands: list[Any], outputs: list[int], stream: int, allocate: Any
    ) -> None:
        """Queue one run; the arguments are those of `CubBuilt`."""
        block = getattr(self._local, "block", None) or self._block()
        block[0].raw = self.kernel.state.pack(stage, operands, outputs)
        grid = self.kernel.grid(stage.size)
        driver.launchKernel(self._function, grid, 1, 1, BLOCK, 1, 1, 0, stream, block[2], 0)
