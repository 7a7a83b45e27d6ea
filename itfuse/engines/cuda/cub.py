"""The `cub` strategies: stages as algorithms of cuda.compute.

A stage's functions become RawOps. Plain pointers go to CUB as they are; anything else is one
TransformIterator over a CountingIterator, whose state block holds pointers, strides and scalars.
"""

from __future__ import annotations

import importlib
import struct
import threading
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import cuda.compute as cc
import cupy
import numpy as np
from cuda.compute import types as cc_types
from cuda.compute.op import RawOp

from itfuse import disk, ops
from itfuse.cache import FORMAT
from itfuse.dtypes import DTYPES
from itfuse.engines.cuda import compile as nvrtc
from itfuse.errors import CompileError, ItfuseError
from itfuse.lower.cpp import Lowered
from itfuse.plan.stages import Stage, fields


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
        return {
            "shape": (1,),
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
        }


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


def value_type(names: Sequence[str], label: str) -> Any:
    """Return cuda.compute's type of values of these dtypes, a struct if there are several."""
    found = [cc_types.from_numpy_dtype(np.dtype(name)) for name in names]
    if len(found) == 1:
        return found[0]
    return cc_types.struct({f"r{at}": one for at, one in enumerate(found)}, name=label)


def init_value(stage: Stage) -> Any:
    """Return the identity of what a stage combines."""
    members = fields(stage.combine)
    values = [neutral for _, neutral in members]
    if len(values) == 1:
        return np.array(values)
    kinds = {f"r{at}": np.dtype(name) for at, (name, _) in enumerate(members)}
    return cc.gpu_struct(kinds, name="Item")(*values)


class CubBuilt:
    """A stage built with cuda.compute, for one architecture.

    cuda.compute's objects hold the arguments of a call, so each thread has its own; what they were
    compiled to is shared.
    """

    def __init__(
        self, stage: Stage, lowered: Lowered, arch: str, capability: Sequence[int] | None = None
    ) -> None:
        self.lowered = lowered
        self.arch = arch
        self.capability = None if capability is None else list(capability)
        targets = [arch] if capability is None else [f"sm_{one}" for one in capability]
        # Serialized builds differ from process to process; what they were made of does not. They
        # are read only by the cuda-cccl that wrote them.
        self._key = (FORMAT, "cub", _CCCL, targets, repr(stage.key.parts), lowered.source)
        self._code = b""
        self._empty: list[tuple[StatefulOp, str]] = []
        self._local = threading.local()
        self._local.call = self._build(stage)

    def serialize(self) -> bytes:
        """Return the compiled algorithm as bytes."""
        return self._code

    def __call__(
        self, stage: Stage, operands: list[int], outputs: list[int], stream: int, allocate: Any
    ) -> None:
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
        kind: Any = _KINDS.get(stage.primitive)
        if kind is None:
            kind = importlib.import_module("itfuse.engines.cuda.cub_terminals").KINDS[
                stage.primitive
            ]
        try:
            return kind(stage, self)
        except ItfuseError:
            raise
        except Exception as why:
            nvrtc.check(self.arch)
            raise CompileError(
                f"cuda.compute could not build a {stage.primitive} for {self.arch}",
                self.lowered.source,
                str(why),
            ) from why

    def algorithm(self, make: Callable[[], Any]) -> Any:
        """Return the algorithm that `make` builds, or the one that was kept.

        None where it was kept, and is for architectures that were named: nothing runs here then.
        """
        made: list[Any] = []

        def build() -> bytes:
            linked: dict[str, bytes] = {}  # each once: a symbol that is defined twice is an error
            for op, source in self._empty:
                beside = nvrtc.beside(source, self.arch)
                extra = [code for symbol, code in beside.items() if symbol not in linked]
                op.fill(nvrtc.ltoir(source, self.arch), extra)
                linked |= beside
            nvrtc.Count.add()
            made.append(make())
            return bytes(cc.serialize(made[0]))

        if not self._code:
            versions = nvrtc.versions_of(self.lowered.source)
            self._code = disk.compiled(self._key, versions, build)
        self._empty.clear()
        if made:
            return made[0]
        return None if self.capability else cc.deserialize(self._code)

    def op(self, role: str, state: bytes = b"") -> Any:
        """Return the stage's function `role` with this state; its code follows if it is needed."""
        function = self.lowered.functions[role]
        op = StatefulOp(ltoir=b"", name=function.symbol, state=state, state_alignment=8)
        op.current = state
        self._empty.append((op, function.source))
        return op


_CCCL = metadata.version("cuda-cccl")


class StatefulOp(RawOp):
    """A RawOp whose state block changes from call to call."""

    __slots__ = ("current",)

    def get_state(self) -> bytes:
        """Return the state of this call."""
        return self.current  # type: ignore[no-any-return]

    def fill(self, code: bytes, extra: list[bytes]) -> None:
        """Give it its code and what that calls, before anything is built with it."""
        self._ltoir = code  # type: ignore[misc]  # RawOp's slots
        self._extra_ltoirs = extra  # type: ignore[misc]


class Bound:
    """What an iterator is at call time: only its state block."""

    __slots__ = ("state",)

    def __init__(self, state: bytes) -> None:
        self.state = IteratorState(state)


IteratorState = type(cc.CountingIterator(np.int64(0)).state)
START = bytes(8)  # state of CountingIterator(int64(0)); a TransformIterator's own state follows


def _outputs(stage: Stage) -> Any:
    """Return what the algorithm is built to write: a pointer, or several zipped."""
    pointers = [Pointer(o.dtype) for o in stage.outputs]
    return pointers[0] if len(pointers) == 1 else cc.ZipIterator(*pointers)


class _Transform:
    """A transform on pointers, or of the index through a TransformIterator."""

    def __init__(self, stage: Stage, built: CubBuilt) -> None:
        lowered = built.lowered
        self.slots = lowered.pointers if stage.strategy == "cub.pointers" else ()
        self.layout = lowered.map_state if self.slots else lowered.state
        self.pack = struct.Struct(f"@{len(stage.outputs)}Q").pack
        self.target = _outputs(stage)
        make = cc.make_unary_transform
        if self.slots:
            self.inputs = [Pointer(stage.inputs[slot].dtype) for slot in self.slots]
            names = ["d_in"]
            if len(self.inputs) == 2:
                names, make = ["d_in1", "d_in2"], cc.make_binary_transform
            self.source = dict(zip(names, self.inputs, strict=True))
            self.op = built.op("map", bytes(self.layout.size))
        else:
            item = value_type(stage.element.result_dtypes, "Item")
            element = built.op("element", bytes(self.layout.size))
            index = cc.CountingIterator(np.int64(0))
            self.source = {"d_in": cc.TransformIterator(index, element, item)}
            self.op = built.op("copy")
        self.algorithm = built.algorithm(
            lambda: make(
                **self.source, d_out=self.target, op=self.op, compute_capability=built.capability
            )
        )

    def __call__(
        self, stage: Stage, operands: list[Any], outputs: list[int], stream: Stream, allocate: Any
    ) -> None:
        state = self.layout.pack(stage, operands)
        source: Any = self.source
        if self.slots:
            for pointer, slot in zip(self.inputs, self.slots, strict=True):
                pointer.address = operands[slot]
            self.op.current = state
        else:
            source = {"d_in": Bound(START + state)}
        target = self.target
        if len(outputs) == 1:
            target.address = outputs[0]
        else:
            target = Bound(self.pack(*outputs))
        self.algorithm(**source, d_out=target, op=self.op, num_items=stage.size, stream=stream)


def well_known(stage: Stage) -> str:
    """Return CUB's name of the operator where it means the same, or an empty string.

    Never for floats: the linker contracts CUB's own addition with the last multiplication of the
    fused map (an `exp` ends in one), and the sum is rounded once less than NumPy's.
    """
    if len(stage.combine) != 1:
        return ""
    if stage.combine[0].op not in ops.OPS:  # a fold
        return ""
    dtype = DTYPES[stage.combine[0].dtype]
    return ops.OPS[stage.combine[0].op].well_known if dtype.kind in "iu" else ""


class _Reduce:
    """A reduction of a pointer or of a TransformIterator, with the epilogue on its output."""

    def __init__(self, stage: Stage, built: CubBuilt) -> None:
        lowered = built.lowered
        assert stage.finish is not None
        self.slot = stage.element.instrs[0].slot if stage.strategy == "cub.pointers" else -1
        self.layout, self.finish = lowered.state, lowered.finish_state
        self.pack = struct.Struct(f"@{len(stage.outputs)}Q").pack
        name = well_known(stage)
        self.op = getattr(cc.OpKind, name) if name else built.op("combine")
        self.init = init_value(stage)
        item = value_type(stage.element.result_dtypes, "Item")
        if self.slot >= 0:
            self.source: Any = Pointer(stage.inputs[self.slot].dtype)
        else:
            element = built.op("element", bytes(self.layout.size))
            self.source = cc.TransformIterator(cc.CountingIterator(np.int64(0)), element, item)
        self.target = _outputs(stage)
        # Without an epilogue CUB writes the total itself.
        value = stage.finish.instrs[stage.finish.results[0]]
        single = len(fields(stage.combine)) == len(stage.outputs) == 1
        self.plain = single and value.op == "combined"
        if not self.plain:
            finish = built.op("finish", bytes(self.finish.size))
            self.target = cc.TransformIterator(self.target, finish, item, is_input=False)
        self.algorithm = built.algorithm(
            lambda: cc.make_reduce_into(
                d_in=self.source,
                d_out=self.target,
                op=self.op,
                h_init=self.init,
                compute_capability=built.capability,
            )
        )

    def __call__(
        self, stage: Stage, operands: list[Any], outputs: list[int], stream: Stream, allocate: Any
    ) -> None:
        source = self.source
        if self.slot >= 0:
            source.address = operands[self.slot]
        else:
            source = Bound(START + self.layout.pack(stage, operands))
        target = self.target
        if self.plain:
            target.address = outputs[0]
        else:
            target = Bound(self.pack(*outputs) + self.finish.pack(stage, operands))
        arguments = {
            "d_in": source,
            "d_out": target,
            "num_items": stage.size,
            "op": self.op,
            "h_init": self.init,
            "stream": stream,
        }
        needed = self.algorithm(temp_storage=None, **arguments)
        # The block goes back to CuPy's pool at once; the pool reuses it in stream order.
        address, memory = allocate(needed)
        self.algorithm(temp_storage=Storage(address, needed), **arguments)
        del memory


_COUNTS = 16  # bytes of the two counts of CUB's partition, of which a selection is the first
_ON_DEVICE = 3  # cudaMemcpyDeviceToDevice


class _Select:
    """A selection of a pointer's elements by a function of each."""

    def __init__(self, stage: Stage, built: CubBuilt) -> None:
        self.layout = built.lowered.map_state
        (self.slot,) = built.lowered.pointers
        self.counted = stage.parts.index(-1)
        dtype = stage.inputs[self.slot].dtype
        self.source, self.target, self.count = Pointer(dtype), Pointer(dtype), Pointer("int64")
        self.op = built.op("map", bytes(self.layout.size))
        self.algorithm = built.algorithm(
            lambda: cc.make_select(
                d_in=self.source,
                d_out=self.target,
                d_num_selected_out=self.count,
                cond=self.op,
                compute_capability=built.capability,
            )
        )

    def __call__(
        self, stage: Stage, operands: list[Any], outputs: list[int], stream: Stream, allocate: Any
    ) -> None:
        found = outputs[self.counted]
        if stage.size == 0:
            cupy.cuda.runtime.memsetAsync(found, 0, 8, stream.handle)
            return
        self.source.address = operands[self.slot]
        self.target.address = outputs[1 - self.counted]
        self.op.current = self.layout.pack(stage, operands)
        self.count.address, counts = allocate(_COUNTS)
        arguments = {
            "d_in": self.source,
            "d_out": self.target,
            "d_num_selected_out": self.count,
            "cond": self.op,
            "num_items": stage.size,
            "stream": stream,
        }
        needed = self.algorithm(temp_storage=None, **arguments)
        address, memory = allocate(needed)
        self.algorithm(temp_storage=Storage(address, needed), **arguments)
        cupy.cuda.runtime.memcpyAsync(found, self.count.address, 8, _ON_DEVICE, stream.handle)
        del memory, counts


_KINDS: dict[str, Any] = {"transform": _Transform, "reduce": _Reduce, "select": _Select}
