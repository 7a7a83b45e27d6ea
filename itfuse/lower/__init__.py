"""Stages -> C++ text and packed state blocks. No compiler, no device."""

from __future__ import annotations

from itfuse.lower.tile import TileKernel
from itfuse.lower.tile_reduce import lower_reduce
from itfuse.lower.tile_transform import lower_transform
from itfuse.lower.tile_turned import lower_turned, side
from itfuse.plan.stages import Stage


def lower_tile(stage: Stage, name: str) -> TileKernel:
    """Write the tile kernel of a stage, with symbols that start with `name`."""
    if stage.primitive == "reduce":
        return lower_reduce(stage, name)
    turned = any(i.turned is not None for i in stage.inputs)
    return (lower_turned if turned and side(stage) else lower_transform)(stage, name)
