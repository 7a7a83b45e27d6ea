"""Terminals as algorithms of cuda.compute: sorts, and reductions of segments."""

from __future__ import annotations

from typing import Any

import cuda.compute as cc
import numpy as np

from itfuse.engines.cuda.cub import (
    START,
    Bound,
    CubBuilt,
    Pointer,
    Storage,
    Stream,
    init_value,
    value_type,
    well_known,
)
from itfuse.plan.stages import Stage


class _Run:
    """Runs an algorithm twice: for the bytes of its temporary storage, then with it."""

    algorithm: Any

    def run(self, allocate: Any, **arguments: Any) -> None:
        needed = self.algorithm(temp_storage=None, **arguments)
        address, memory = allocate(max(1, needed))
        self.algorithm(temp_storage=Storage(address, needed), **arguments)
        del memory  # back to CuPy's pool, which reuses it in stream order


_WORDS = {"bool": "uint8"}
_SOME = 8  # an address that stands for any


class _Sort(_Run):
    """A stable sort of one row, or of several, with the places of the elements if wanted."""

    def __init__(self, stage: Stage, built: CubBuilt) -> None:
        assert stage.how is not None
        descending, self.several = stage.how.options
        name = _WORDS.get(stage.inputs[0].dtype, stage.inputs[0].dtype)
        self.itemsize = np.dtype(name).itemsize
        self.keys, self.sorted = Pointer(name), Pointer(name)
        # Keys, then where they were, then where rows begin.
        pairs = len(stage.inputs) == 2 + self.several
        # Builds without values are those whose value pointers are null.
        self.index = Pointer("int64", _SOME) if pairs else None
        self.order = Pointer("int64", _SOME) if pairs else None
        wanted = {
            "d_in_keys": self.keys,
            "d_out_keys": self.sorted,
            "d_in_values": self.index,
            "d_out_values": self.order,
            "order": cc.SortOrder.DESCENDING if descending else cc.SortOrder.ASCENDING,
        }
        make: Any = cc.make_radix_sort
        if self.several:
            make = cc.make_segmented_sort
            self.begin, self.end = Pointer("int64"), Pointer("int64")
            wanted |= {"start_offsets_in": self.begin, "end_offsets_in": self.end}
        self.algorithm = built.algorithm(
            lambda: make(**wanted, compute_capability=built.capability)
        )

    def __call__(
        self, stage: Stage, operands: list[Any], outputs: list[int], stream: Stream, allocate: Any
    ) -> None:
        spare: list[Any] = []
        places = dict(zip(stage.sides, outputs, strict=True))
        if 0 not in places:  # sorted keys are written in any case
            places[0], memory = allocate(stage.size * self.itemsize)
            spare.append(memory)
        self.keys.address, self.sorted.address = operands[0], places[0]
        arguments: dict[str, Any] = {"d_in_values": None, "d_out_values": None}
        if self.index is not None and self.order is not None:
            self.index.address, self.order.address = operands[1], places[1]
            arguments = {"d_in_values": self.index, "d_out_values": self.order}
        if self.several:
            self.begin.address, self.end.address = operands[-1], operands[-1] + 8
            arguments |= {
                "num_segments": stage.size // stage.shape[-1],
                "start_offsets_in": self.begin,
                "end_offsets_in": self.end,
            }
        self.run(
            allocate, d_in_keys=self.keys, d_out_keys=self.sorted, num_items=stage.size,
            stream=stream, **arguments,
        )  # fmt: skip


class _Segments(_Run):
    """A reduction of each segment of a TransformIterator, between offsets."""

    def __init__(self, stage: Stage, built: CubBuilt) -> None:
        self.layout = built.lowered.state
        name = well_known(stage)
        self.op = getattr(cc.OpKind, name) if name else built.op("combine")
        self.init = init_value(stage)
        item = value_type(stage.element.result_dtypes, "Item")
        element = built.op("element", bytes(self.layout.size))
        self.target = Pointer(stage.outputs[0].dtype)
        offset = stage.inputs[-1].dtype
        self.begin, self.end = Pointer(offset), Pointer(offset)
        self.step = np.dtype(offset).itemsize
        source = cc.TransformIterator(cc.CountingIterator(np.int64(0)), element, item)
        self.algorithm = built.algorithm(
            lambda: cc.make_segmented_reduce(
                d_in=source,
                d_out=self.target,
                start_offsets_in=self.begin,
                end_offsets_in=self.end,
                op=self.op,
                h_init=self.init,
                compute_capability=built.capability,
            )
        )

    def __call__(
        self, stage: Stage, operands: list[Any], outputs: list[int], stream: Stream, allocate: Any
    ) -> None:
        self.target.address = outputs[0]
        self.begin.address, self.end.address = operands[-1], operands[-1] + self.step
        self.run(
            allocate,
            d_in=Bound(START + self.layout.pack(stage, operands)),
            d_out=self.target,
            num_segments=stage.outputs[0].size,
            start_offsets_in=self.begin,
            end_offsets_in=self.end,
            op=self.op,
            h_init=self.init,
            stream=stream,
        )


KINDS: dict[str, Any] = {"sort": _Sort, "segments": _Segments}
