"""Terminals on a GPU: kernels that write at computed places, and algorithms of cuda.compute."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import cupy

from itfuse.cache import digest
from itfuse.engines.cuda.scratch import is_capturing, keep, relaxed
from itfuse.engines.cuda.tile import TileBuilt
from itfuse.lower import lower_tile
from itfuse.lower.cpp import lower
from itfuse.plan.stages import Stage


def allocate(nbytes: int) -> tuple[int, Any]:
    """Return memory of CuPy's pool on the current stream: its address, and what keeps it."""
    if not is_capturing(cupy.cuda.get_current_stream().ptr):
        memory = cupy.cuda.alloc(nbytes)
    else:
        with relaxed():  # the pool has none left where calls before in the capture keep theirs
            memory = cupy.cuda.alloc(nbytes)
        keep(memory)
    return memory.ptr, memory


class TerminalBuilt:
    """A built terminal that takes CuPy arrays.

    What its kernel adds to is put into the output first: zeros, or the array that is written into.
    """

    __slots__ = ("run",)

    def __init__(self, stage: Stage, arch: str) -> None:
        name = f"itf_{digest(stage)}"
        if stage.strategy == "tile":
            self.run: Any = TileBuilt(functools.partial(lower_tile, stage, name, arch=arch), arch)
            return
        # cuda.compute takes a while to import, and the tile kernels do without it.
        module = importlib.import_module("itfuse.engines.cuda.cub")
        self.run = module.CubBuilt(stage, lower(stage, name), arch)

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Queue one run on CuPy's current stream; nothing waits."""
        if stage.primitive == "histogram":
            outputs[0].data.memset_async(0, outputs[0].nbytes)
        elif stage.primitive == "scatter":
            base = operands[-1]
            if base.data.ptr != outputs[0].data.ptr:
                outputs[0].data.copy_from_device_async(base.data, base.nbytes)
        if stage.size == 0 and stage.primitive != "segments":
            return
        raw = [
            x.item() if i.kind in ("scalar", "iota") else x.data.ptr + i.offset
            for i, x in zip(stage.inputs, operands, strict=True)
        ]
        places = [out.data.ptr for out in outputs]
        self.run(stage, raw, places, cupy.cuda.get_current_stream().ptr, allocate)
