"""The `cub` strategies: stages as algorithms of cuda.compute.

A stage's functions become RawOps. Plain pointers go to CUB as they are; anything else is one
TransformIterator over a CountingIterator, whose state block holds pointers, strides and scalars.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import cuda.compute as cc
import numpy as np
from cuda.compute import types as cc_types
from cuda.compute.op import RawOp

from itfuse import ops
from itfuse.engines.cuda import compile as nvrtc
from itfuse.errors import CompileError, ItfuseError
from itfuse.lower.cpp import Lowered
from itfuse.lower.layout import StateLayout
from itfuse.plan.stages import Program, Stage


class Pointer:
    """Device memory of a dtype, as cuda.compute takes it: no array object needed."""

    __slots__ = ("address", "dtype")

    def __init__(self, dtype: str, address: int = 0) -> None:
        self.dtype = np.dtype(dtype)
        self.address = address

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (1,), "typestr": self.dtype.str, "data": (self.address, False),
                "version": 3, "strides": None}  # fmt: skip


class Stream:
    """A raw stream handle with cuda.compute's protocol."""

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class Storage:
    """Temporary storage as cuda.compute takes it."""

    __slots__ = ("address", "nbytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address


def _value_type(names: Sequence[str], label: str) -> Any:
    found = [cc_types.from_numpy_dtype(np.dtype(name)) for name in names]
    if len(found) == 1:
        return found[0]
    return cc_types.struct({f"r{at}": one for at, one in enumerate(found)}, name=label)


def _init(stage: Stage) -> Any:
    values = [ops.identity(one.op, np.dtype(one.dtype)) for one in stage.combine]
    if len(values) == 1:
        return np.array(values)
    fields = {f"r{at}": np.dtype(one.dtype) for at, one in enumerate(stage.combine)}
    return cc.gpu_struct(fields, name="Item")(*values)


def is_identity(program: Program) -> bool:
    """Whether the program hands its one loaded or combined value on."""
    return len(program.results) == 1 and program.instrs[program.results[0]].op in (
        "load", "combined")  # fmt: skip


class CubBuilt:
    """A stage built with cuda.compute, for one architecture.

    cuda.compute's objects hold the arguments of a call, so each thread has its own; what they were
    compiled to is shared.
    """

    def __init__(self, stage: Stage, lowered: Lowered, arch: str, capability: Any = None) -> None:
        self.lowered = lowered
        self.arch = arch
        self.capability = capability
        self._local = threading.local()
        self._local.call = self._build(stage)

    def serialize(self) -> bytes:
        """Return the compiled algorithm as bytes."""
        return bytes(cc.serialize(self._local.call.algorithm))

    def __call__(self, stage: Stage, operands: list[int], outputs: list[int], stream: int,
                 allocate: Any) -> None:  # fmt: skip
        """Queue one run.

        Parameters
        ----------
        stage : Stage
            Gives sizes and strides.
        operands, outputs : list of int
            Addresses; for scalars their values.
        stream : int
            Stream handle.
        allocate : callable
            Number of bytes -> (address, object that keeps the memory).
        """
        call = getattr(self._local, "call", None)
        if call is None:
            call = self._local.call = self._build(stage)
        call(stage, operands, outputs, Stream(stream), allocate)

    def _build(self, stage: Stage) -> Any:
        kind = _Reduce if stage.primitive == "reduce" else _Transform
        try:
            return kind(stage, self)
        except ItfuseError:
            raise
        except Exception as why:
            raise CompileError(f"cuda.compute could not build a {stage.primitive} for {self.arch}",
                               self.lowered.source, str(why)) from why  # fmt: skip

    def op(self, role: str, state: bytes = b"") -> Any:
        """Return the stage's function `role` with this state."""
        function = self.lowered.functions[role]
        code = nvrtc.ltoir(function.source, self.arch)
        return RawOp(ltoir=code, name=function.symbol, state=state, state_alignment=8)


def _blank(layout: StateLayout) -> bytes:
    return bytes(layout.size)


def _outputs(stage: Stage, addresses: Sequence[int]) -> Any:
    pointers = [Pointer(o.dtype, at) for o, at in zip(stage.outputs, addresses, strict=True)]
    return pointers[0] if len(pointers) == 1 else cc.ZipIterator(*pointers)


class _Transform:
    def __init__(self, stage: Stage, built: CubBuilt) -> None:
        lowered = built.lowered
        self.built = built
        self.on_pointers = stage.strategy == "cub.pointers"
        d_out = _outputs(stage, [0] * len(stage.outputs))
        if self.on_pointers:
            self.inputs = [Pointer(stage.inputs[slot].dtype) for slot in lowered.pointers]
            self.names = ("d_in",) if len(self.inputs) == 1 else ("d_in1", "d_in2")
            make = cc.make_unary_transform if len(self.inputs) == 1 else cc.make_binary_transform
            op = built.op("map", _blank(lowered.map_state))
            d_in = dict(zip(self.names, self.inputs, strict=True))
            self.algorithm = make(**d_in, d_out=d_out, op=op, compute_capability=built.capability)
        else:
            index = cc.CountingIterator(np.int64(0))
            op = built.op("element", _blank(lowered.state))
            self.algorithm = cc.make_unary_transform(
                d_in=index, d_out=d_out, op=op, compute_capability=built.capability
            )

    def __call__(self, stage: Stage, operands: list[int], outputs: list[int], stream: Stream,
                 allocate: Any) -> None:  # fmt: skip
        lowered = self.built.lowered
        d_out = _outputs(stage, outputs)
        if self.on_pointers:
            for pointer, slot in zip(self.inputs, lowered.pointers, strict=True):
                pointer.address = operands[slot]
            d_in = dict(zip(self.names, self.inputs, strict=True))
            state = lowered.map_state.pack(stage, operands)
            op = self.built.op("map", state)
        else:
            d_in = {"d_in": cc.CountingIterator(np.int64(0))}
            op = self.built.op("element", lowered.state.pack(stage, operands))
        self.algorithm(**d_in, d_out=d_out, op=op, num_items=stage.size, stream=stream)


class _Reduce:
    def __init__(self, stage: Stage, built: CubBuilt) -> None:
        lowered = built.lowered
        self.built = built
        self.on_pointers = stage.strategy == "cub.pointers"
        row = ops.OPS[stage.combine[0].op]
        single = len(stage.combine) == 1 and row.well_known and stage.combine[0].dtype != "bool"
        self.op = getattr(cc.OpKind, row.well_known) if single else built.op("combine")
        self.init = _init(stage)
        self.item = _value_type(stage.element.result_dtypes, "Item")
        assert stage.finish is not None
        self.plain = is_identity(stage.finish) and len(stage.outputs) == 1
        self.algorithm = cc.make_reduce_into(
            d_in=self._input(stage, None),
            d_out=self._output(stage, None, [0] * len(stage.outputs)),
            op=self.op, h_init=self.init, compute_capability=built.capability,
        )  # fmt: skip

    def _input(self, stage: Stage, operands: list[int] | None) -> Any:
        lowered = self.built.lowered
        if self.on_pointers:
            slot = stage.element.instrs[0].slot
            return Pointer(stage.inputs[slot].dtype, operands[slot] if operands else 0)
        layout = lowered.state
        state = layout.pack(stage, operands) if operands is not None else _blank(layout)
        index = cc.CountingIterator(np.int64(0))
        return cc.TransformIterator(index, self.built.op("element", state), self.item)

    def _output(self, stage: Stage, operands: list[int] | None, addresses: list[int]) -> Any:
        target = _outputs(stage, addresses)
        if self.plain:
            return target
        layout = self.built.lowered.finish_state
        state = layout.pack(stage, operands) if operands is not None else _blank(layout)
        return cc.TransformIterator(target, self.built.op("finish", state), self.item,
                                    is_input=False)  # fmt: skip

    def __call__(self, stage: Stage, operands: list[int], outputs: list[int], stream: Stream,
                 allocate: Any) -> None:  # fmt: skip
        arguments = {
            "d_in": self._input(stage, operands), "d_out": self._output(stage, operands, outputs),
            "num_items": stage.size, "op": self.op, "h_init": self.init, "stream": stream,
        }  # fmt: skip
        needed = self.algorithm(temp_storage=None, **arguments)
        address, keep = allocate(needed)
        self.algorithm(temp_storage=Storage(address, needed), **arguments)
        # Back to CuPy's pool, which hands it out again in the order of this stream.
        del keep
