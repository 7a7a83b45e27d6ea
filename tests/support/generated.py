"""An engine that runs the generated C++ of whole plans on the host, all of it compiled at once.

A stage's strategy decides which of its C++ runs: `tile` the kernel, block after block with the
threads of a block in turns; `cub.pointers` the map of loaded elements; `cub.iterator` the element
function. For a reduction by `cub` the functions combine in a tree over halves, for want of CUB.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from itfuse import Array, engines
from itfuse.cache import digest
from itfuse.dtypes import DTYPES
from itfuse.engines.cpu import CpuEngine
from itfuse.expr import Memory
from itfuse.lower import lower_tile
from itfuse.lower.cpp import Lowered, lower
from itfuse.lower.tile import TileKernel
from itfuse.plan import make_plan
from itfuse.plan.fuse import Layouts
from itfuse.plan.stages import Plan, Stage, fields
from support.host_cpp import HostError, HostLibrary

GUARD = 64
"""Bytes on either side of a kernel's output that must stay as they are."""


def plan_for(strategy: str, *expressions: Array, layouts: Layouts = ()) -> Plan:
    """Plan expressions over host or placeholder arrays as the cuda engine would."""
    asked = [node for one in expressions for node in one._asked()[0]]
    roots = tuple(dict.fromkeys(asked)) if len(asked) > len(expressions) else tuple(asked)
    return make_plan(roots, device="cuda:0", strategy=strategy, layouts=layouts)


def _alike(a: Any, b: Any) -> bool:
    """Whether two results have the same bytes, but for the signs of NaN: the compiler's choice."""
    number = (a == a) | (b == b)  # noqa: PLR0124
    return bool(a[number].tobytes() == b[number].tobytes())


def unit(sources: Iterable[str]) -> str:
    """Join translation units that use the same names: each in a namespace of its own."""
    return "".join(f"namespace n{at} {{\n{text}}}\n" for at, text in enumerate(sources))


def _launch(kernel: TileKernel) -> str:
    """Write the host's function that launches a kernel."""
    cluster = re.search(r"__cluster_dims__\((\d+)\)", kernel.source)
    if cluster:
        return f"ITF_HOST_CLUSTER({kernel.symbol}, State, {cluster[1]})\n"
    return f"ITF_HOST_LAUNCH({kernel.symbol}, State)\n"


def struct_of(dtypes: Sequence[str]) -> np.dtype[Any]:
    """Return the dtype of a generated struct."""
    return np.dtype([(f"r{at}", name) for at, name in enumerate(dtypes)], align=True)


class HostEngine:
    """Compiles the stages of `plans` together, as for `arch`; `run` then runs one of them."""

    name = "host"

    def __init__(self, plans: Iterable[Plan], arch: str = "sm_90") -> None:
        self.stages = {digest(s): s for plan in plans for s in plan.stages}
        self.lowered = {
            key: lower(stage, f"h_{key}")
            for key, stage in self.stages.items()
            if not stage.by_rows and stage.how is None
        }
        self.tiles: dict[str, list[TileKernel]] = {}
        self.ran = {True: 0, False: 0}  # launches of aligned and of other variants
        sources = []
        for key, stage in self.stages.items():
            if key in self.lowered:
                source = self.lowered[key].source
                if stage.strategy == "cub.pointers" and "map" in self.lowered[key].functions:
                    source += _map_at(stage, self.lowered[key])
                sources.append(source)
            if stage.strategy == "tile":
                variants = [
                    lower_tile(stage, f"h_{key}_{'na'[ok]}", bool(ok), arch) for ok in (1, 0)
                ]
                self.tiles[key] = variants
                sources += [t.source + _launch(t) for t in variants]
        self.library = HostLibrary(unit(sources))

    def run(self, plan: Plan, *expressions: Array, out: Any = None) -> tuple[Any, ...]:
        """Return the results of `plan`, which was made for these expressions."""
        data = {node: array for one in expressions for node, array in one._data.items()}
        return engines.run(plan, data, out, engine=self)

    def memory(self, array: Any) -> Memory:
        return Memory("cuda:0", array.ctypes.data, array.strides)

    def build_key(self) -> tuple[Any, ...]:
        return ("host", str(self.library.path))

    def build(self, stage: Stage) -> Any:
        key = digest(stage)
        if key in self.tiles:
            return lambda *run: self._tile(self.tiles[key], *run)
        if stage.primitive == "sort":
            return as_cub_sorts
        if stage.how is not None:
            return CpuEngine().build(stage)
        return lambda *run: self._functions(self.lowered[key], *run)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return np.empty(shape, dtype)

    def on(self, stream: Any) -> Any:
        return contextlib.nullcontext()

    def _functions(
        self, lowered: Lowered, stage: Stage, operands: list[Any], outputs: list[Any]
    ) -> None:
        raw = _addresses(stage, operands)
        item = struct_of(stage.element.result_dtypes)
        if stage.primitive == "reduce":
            assert stage.finish is not None
            init = tuple(neutral for _, neutral in fields(stage.combine))
            got = self.library.reduce(
                lowered.name, lowered.state.pack(stage, raw), stage.size, item, init,
                lowered.finish_state.pack(stage, raw), struct_of(stage.finish.result_dtypes),
            )  # fmt: skip
        elif stage.strategy == "cub.pointers" and "map" in lowered.functions:
            state = np.frombuffer(lowered.map_state.pack(stage, raw) or bytes(8), "u1").copy()
            places = [state.ctypes.data, *(raw[slot] for slot in lowered.pointers)]
            call = np.array(places, "u8").tobytes()
            got = self.library.transform(f"{lowered.name}_map_at", call, stage.size, item)
        else:
            state_bytes = lowered.state.pack(stage, raw)
            got = self.library.transform(lowered.name, state_bytes, stage.size, item)
        for at, out in enumerate(outputs):
            out[...] = got[f"r{at}"].reshape(out.shape)

    def _tile(
        self, variants: list[TileKernel], stage: Stage, operands: list[Any], outputs: list[Any]
    ) -> None:
        """Run the kernel twice: other alignments, another filling, another grid."""
        raw = _addresses(stage, operands)
        tile = variants[0]
        if stage.by_rows and stage.rows == 0:
            return
        nbytes, counts = tile.scratch(stage)
        partial = np.empty(max(1, nbytes), "u1")
        finished = np.zeros(counts, "u4")
        extra: tuple[int, ...] = ()
        if tile.partial:
            extra = (partial.ctypes.data, finished.ctypes.data)
        if stage.how is not None:  # what the engine puts into the output first
            extra = (outputs[0].size,)
            before = operands[-1] if stage.primitive == "scatter" else np.zeros_like(outputs[0])
        for fill, shift in ((0xA5, 0), (0x5A, 1)):
            partial[:] = fill
            spans = [_span(out) for out in outputs]
            rooms = [np.full(high - low + 3 * GUARD, fill, "u1") for low, high in spans]
            starts = [
                GUARD + -room.ctypes.data % 16 + shift * out.itemsize - low
                for room, out, (low, _) in zip(rooms, outputs, spans, strict=True)
            ]
            places = [room.ctypes.data + at for room, at in zip(rooms, starts, strict=True)]
            if stage.primitive in ("histogram", "scatter"):
                np.ndarray(before.shape, before.dtype, rooms[0], starts[0])[...] = before
            tile = variants[0] if variants[0].fits(stage, raw, places) else variants[1]
            self.ran[tile.needs is not None] += 1
            if tile.zeroed is not None:
                status = np.zeros(tile.zeroed(stage) + GUARD, "u1")
                status[-GUARD:] = fill
                numbers = tile.numbers(stage) if tile.numbers else ()
                extra = (status.ctypes.data, *numbers)
            state = tile.state.pack(stage, raw, places, extra)
            # A reduction's grid may be smaller than its leaves are many.
            spans = tile.spans(stage)
            grid = min(spans, 2) if tile.partial and not tile.partials and shift else spans
            self.library.launch(tile.symbol, state, grid, tile.block)
            if finished.any():
                raise HostError(f"{tile.symbol} leaves its count at {finished.max()}")
            if tile.zeroed is not None and (status[-GUARD:] != fill).any():
                raise HostError(f"{tile.symbol} writes behind its status")
            counts = _counts(stage, rooms, starts)
            for room, start, out, count in zip(rooms, starts, outputs, counts, strict=True):
                if count is not None:  # what lies behind the elements chosen is nobody's
                    out = out[:count]  # noqa: PLW2901
                placed = np.ndarray(out.shape, out.dtype, room, start, out.strides)
                got = placed.copy()
                bytes_of = np.ndarray((*out.shape, out.itemsize), "u1", room, start,
                                      (*out.strides, 1))  # fmt: skip
                bytes_of[...] = fill
                if (room != fill).any():
                    raise HostError(f"{tile.symbol} writes outside its output\n{tile.source}")
                if shift and not _alike(got, out):
                    raise HostError(f"{tile.symbol}: alignment or filling shows\n{tile.source}")
                out[...] = got


def as_cub_sorts(stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
    """Sort as CUB does: by bits, so that NaN has to be prepared; and with what it reads beside."""
    assert stage.how is not None
    descending, several = stage.how.options
    keys, *beside = operands
    length = stage.shape[-1]
    if several:
        offsets = beside.pop()
        assert (offsets == np.arange(stage.size // length + 1) * length).all()
        assert keys.dtype.kind in "biu", "short rows are compared by <"
    if keys.dtype.kind == "f":
        nan = np.isnan(keys)
        assert not np.signbit(keys[nan]).any(), "a NaN with a sign would be first"
    order = np.argsort(keys[..., ::-1] if descending else keys, axis=-1, kind="stable")
    order = (length - 1 - order)[..., ::-1] if descending else order
    for out, side in zip(outputs, stage.sides, strict=True):
        out[...] = np.take_along_axis(beside[0] if side else keys, order, -1)


def _counts(stage: Stage, rooms: list[Any], starts: list[int]) -> list[int | None]:
    """Return how many elements each output of a selection got; None for whole arrays."""
    if stage.primitive != "select":
        return [None] * len(rooms)
    at = stage.parts.index(-1)
    flags = np.ndarray(stage.flags, "i8", rooms[at], starts[at]).tolist()
    parts = [*flags, stage.size - sum(flags)]
    return [None if part < 0 else parts[part] for part in stage.parts]


def _span(out: Any) -> tuple[int, int]:
    """Return the first byte of an array and the one behind its last, from its first element."""
    reach = [(n - 1) * step for n, step in zip(out.shape, out.strides, strict=True)]
    if not out.size:
        return 0, 0
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + out.itemsize


def _addresses(stage: Stage, operands: list[Any]) -> list[Any]:
    return [
        x.item() if source.kind in ("scalar", "iota") else x.ctypes.data + source.offset
        for source, x in zip(stage.inputs, operands, strict=True)
    ]


def _map_at(stage: Stage, lowered: Lowered) -> str:
    """Write `<name>_map_at_element`, which loads elements and calls `<name>_map` as CUB does."""
    loads = [
        f"static_cast<{DTYPES[stage.inputs[slot].dtype].cpp}*>(s[{at + 1}]) + i"
        for at, slot in enumerate(lowered.pointers)
    ]
    arguments = [*(["s[0]"] if lowered.map_state.fields else []), *loads, "out"]
    return (
        f'extern "C" void {lowered.name}_map_at_element(void* state, void* index, void* out) {{\n'
        "  void* const* const s = static_cast<void* const*>(state);\n"
        "  const long long i = *static_cast<const long long*>(index);\n"
        f"  {lowered.name}_map({', '.join(arguments)});\n}}\n"
    )
