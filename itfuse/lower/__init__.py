"""Stages -> C++ text and packed state blocks. No compiler, no device."""

from __future__ import annotations

from itfuse.lower.staged import Chip, room_of
from itfuse.lower.tile import TileKernel
from itfuse.lower.tile_columns import lower_columns
from itfuse.lower.tile_places import lower_places
from itfuse.lower.tile_reduce import lower_reduce
from itfuse.lower.tile_rows import lower_rows
from itfuse.lower.tile_scan import lower_scan
from itfuse.lower.tile_segments import lower_segments
from itfuse.lower.tile_select import lower_select
from itfuse.lower.tile_transform import lower_transform
from itfuse.lower.tile_turned import lower_turned, side
from itfuse.plan.stages import Stage


def lower_tile(stage: Stage, name: str, aligned: bool = True, arch: str = "sm_90") -> TileKernel:
    """Write a variant of the tile kernel of a stage, with symbols that start with `name`.

    The architecture says how much shared memory a block may have.

    The aligned one says by `fits` whether it may run; the other always may. A kernel whose `needs`
    are None has only one.
    """
    if stage.primitive == "reduce":
        return lower_reduce(stage, name, aligned)
    if stage.primitive == "rows":
        return lower_rows(stage, name, aligned, Chip.of(arch))
    if stage.primitive == "select":
        return lower_select(stage, name, aligned, room_of(arch))
    if stage.primitive == "segments":
        return lower_segments(stage, name, aligned)
    if stage.primitive == "scan":
        return lower_scan(stage, name, room_of(arch))
    if stage.primitive == "columns":
        return lower_columns(stage, name, aligned)
    if stage.primitive in ("histogram", "scatter"):
        return lower_places(stage, name)
    turned = any(i.turned is not None for i in stage.inputs)
    # Squares know neither numbers of the index nor outputs with strides of their own.
    plain = all(i.layout != "index" for i in stage.inputs)
    plain = plain and not any(o.strides for o in stage.outputs)
    if turned and plain and side(stage):
        return lower_turned(stage, name)
    return lower_transform(stage, name, aligned)
