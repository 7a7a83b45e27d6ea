"""Stages -> C++ text and packed state blocks. No compiler, no device."""

from __future__ import annotations

from itfuse.lower.tile import TileKernel
from itfuse.lower.tile_reduce import lower_reduce
from itfuse.lower.tile_transform import lower_transform
from itfuse.plan.stages import Stage

_TILE = {"transform": lower_transform, "reduce": lower_reduce}


def lower_tile(stage: Stage, name: str) -> TileKernel:
    """Write the tile kernel of a stage, with symbols that start with `name`."""
    return _TILE[stage.primitive](stage, name)
