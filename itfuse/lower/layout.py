"""State blocks: what a pass is told at launch, packed as the device's C++ struct.

Pointers, strides, sizes and runtime scalars are state, never code, so that none of them recompiles.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from itfuse.dtypes import DTYPES
from itfuse.plan.stages import Stage


@dataclass(frozen=True)
class StateLayout:
    """The state block of one program of a stage.

    Attributes
    ----------
    slots : tuple of int
        The stage inputs that it holds, in order.
    fields : tuple of (str, str)
        C++ declaration and `struct` format of each member.
    rank : int
        Axes of the index map, 0 without one.
    whole : bool
        Whether the block also holds the outputs' addresses and the number of elements, so that
        it is a kernel's only argument.
    extra : int
        Number of further members, packed last.
    """

    slots: tuple[int, ...]
    fields: tuple[tuple[str, str], ...]
    rank: int
    whole: bool = False
    extra: int = 0

    @cached_property
    def struct(self) -> struct.Struct:
        """Packs the members with the alignment that C++ gives them; a multiple of 8 bytes."""
        return struct.Struct("@" + "".join(code for _, code in self.fields) + "0q")

    @property
    def size(self) -> int:
        """Bytes of the block."""
        return self.struct.size

    def pack(
        self,
        stage: Stage,
        operands: Sequence[Any],
        outputs: Sequence[int] = (),
        extra: Sequence[Any] = (),
    ) -> bytes:
        """Return the block for one run: `values`, packed."""
        return self.struct.pack(*self.values(stage, operands, outputs, extra))

    def values(
        self,
        stage: Stage,
        operands: Sequence[Any],
        outputs: Sequence[Any] = (),
        extra: Sequence[Any] = (),
    ) -> list[Any]:
        """Return the members of the block for one run.

        Parameters
        ----------
        stage : Stage
            Gives sizes and strides.
        operands : sequence
            For each stage input its address (int), or the value of a scalar.
        outputs : sequence of int
            Addresses of the outputs, for a whole block.
        extra : sequence
            Values of the further members.
        """
        values: list[Any] = []
        if self.rank:
            values += stage.dims
        if self.rank > 1 and not stage.wide:
            values += stage.dividers
        for slot in self.slots:
            source = stage.inputs[slot]
            if source.kind == "scalar":
                values += DTYPES[source.dtype].packed(operands[slot])
            else:
                values.append(operands[slot])
            if source.mapped:
                values += stage.inputs[slot].strides
        if self.whole:
            shape = (stage.rows, stage.length) if stage.by_rows else ()
            for output, address in zip(stage.outputs, outputs, strict=True):
                values += [address, *output.strides]
            values += [stage.size, *shape, *extra]
        elif not values and self.fields:
            values.append(0)
        return values


def state_layout(
    stage: Stage,
    slots: Sequence[int],
    filler: bool = True,
    whole: bool = False,
    extra: Sequence[tuple[str, str]] = (),
) -> StateLayout:
    """Lay out the state for the stage inputs `slots`.

    Parameters
    ----------
    stage : Stage
        Whose inputs they are.
    slots : sequence of int
        The inputs to hold.
    filler : bool
        Whether a block without members gets one unused word (an empty struct has no address).
    whole : bool
        Whether it also holds the outputs' addresses and the number of elements.
    extra : sequence of (str, str)
        Further members of a whole block.
    """
    fields: list[tuple[str, str]] = []
    mapped = any(stage.inputs[slot].mapped for slot in slots)
    mapped = mapped or (whole and any(output.strides for output in stage.outputs))
    rank = len(stage.dims) if mapped else 0
    if rank:
        fields.append((f"long long size[{rank}];", f"{rank}q"))
    if rank > 1 and not stage.wide:
        text = f"unsigned divider[{2 * rank}];  // multipliers, then shifts"
        fields.append((text, f"{2 * rank}I"))
    for slot in slots:
        source = stage.inputs[slot]
        row = DTYPES[source.dtype]
        if source.kind == "scalar":
            fields.append((f"{row.cpp} k{slot};", row.pack))
            continue
        if source.kind == "iota":
            fields.append((f"{row.cpp} x{slot};", row.pack))
        else:
            fields.append((f"const {row.cpp}* x{slot};", "Q"))
        if source.mapped:
            unit = "" if source.kind == "iota" else "  // bytes"
            fields.append((f"long long step{slot}[{rank}];{unit}", f"{rank}q"))
    if whole:
        for at, output in enumerate(stage.outputs):
            fields.append((f"{DTYPES[output.dtype].cpp}* y{at};", "Q"))
            if output.strides:
                fields.append((f"long long ystep{at}[{rank}];  // bytes", f"{rank}q"))
        fields.append(("long long n;", "q"))
        if stage.by_rows:
            fields += [("long long rows;", "q"), ("long long length;", "q")]
        fields += extra
    if not fields and filler:
        fields.append(("long long unused;", "q"))
    return StateLayout(tuple(slots), tuple(fields), rank, whole, len(extra))
