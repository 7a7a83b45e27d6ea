"""The shortest call: a function written for one plan, with everything decided that can be.

A call of a few microseconds has no room for loops and look-ups, so the checks of the arguments,
the addresses, one `struct.pack_into` and one launch for each pass are written out as Python text
and compiled once. Set ITFUSE_DEBUG=3 to see the text.
"""

from __future__ import annotations

import ctypes
import dataclasses
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np
from cupy.cuda import driver, runtime

from itfuse.config import setting
from itfuse.dtypes import DTYPES
from itfuse.engines.cuda.scratch import is_capturing, keep
from itfuse.engines.cuda.tile import Loaded, TileBuilt
from itfuse.engines.ready import MISS, Argument, Ready, made_by_planning
from itfuse.errors import Unsupported
from itfuse.expr import Node
from itfuse.lower.tile import TileKernel
from itfuse.ops import INPUT
from itfuse.plan.index import contiguous_strides
from itfuse.plan.stages import Plan, Stage
from itfuse.rows.op import SELECTION
from itfuse.wording import text

_PACKED = set("?bhilqBHILQfd")
"""What `struct` packs from Python and NumPy numbers exactly as NumPy converts them."""


_KNOWN = {"symbol", "source", "state", "block", "span", "partial", "grid", "needs"}
_UNKNOWN = [one.name for one in dataclasses.fields(TileKernel) if one.name not in _KNOWN]
"""What a launch could also need; a kernel that does goes the general way."""


class _Name:
    """A variable of the text among the members of a state block."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class CudaReady(Ready):
    """A plan of the cuda engine, with a function of its own if every pass is one tile kernel."""

    array_type = cupy.ndarray

    def __init__(self, plan: Plan, leaves: Sequence[Node], engine: Any) -> None:
        super().__init__(plan, leaves, engine)
        self.selections = [node for node in plan.asked if node.op.kind == SELECTION]
        with engine.on(None):
            self.several_gpus = runtime.getDeviceCount() > 1
            self.passes = _passes(self)
            self._queue = _queue(self) if self.passes else None
        self._into: Any = None  # written when it is first asked for

    def __call__(
        self,
        values: Sequence[Any],
        out: tuple[Any, ...] | None = None,
        stream: Any = None,
        roots: Sequence[Node] | None = None,
    ) -> tuple[Any, ...]:
        """Queue one run; see `Ready`."""
        if stream is None and self._queue is not None:
            results: Any = MISS
            if out is None:
                results = self._queue(values)
            elif len(out) == 1 and out[0] is not None:
                if self._into is None:
                    self._into = _queue(self, into=True)
                results = self._into(values, out[0])
            if results is not MISS:
                return results  # type: ignore[no-any-return]
        return super().__call__(values, out, stream, roots)

    def _takes(self, out: Any, values: Sequence[Any]) -> bool:
        """Whether `out` is known to do: what is not queued in the short way is looked at."""
        return False

    def run(self, values: Sequence[Any], given: dict[tuple[int, int], Any] | None) -> Any:
        """Queue one run where the device and the stream are current already."""
        if self.selections and is_capturing(cupy.cuda.get_current_stream().ptr):
            raise Unsupported(
                f"{text(self.selections[0])}: the size of a selection is decided by data, which "
                "a graph being captured does not know; compute it before, or use "
                "itf.where(condition, x, other)"
            )
        return super().run(values, given)

    def queued(self, made: list[list[Any]]) -> None:
        """Keep what goes from pass to pass while a graph is captured, which runs again later."""
        if len(made) > 1 and is_capturing(cupy.cuda.get_current_stream().ptr):
            asked = set(self.plan.results)
            keep([x for s, outs in enumerate(made) for o, x in enumerate(outs)
                  if (s, o) not in asked])  # fmt: skip

    def direct(
        self, arguments: Sequence[Argument], values: Sequence[Any]
    ) -> Callable[[tuple[Any, ...], Any], Any] | None:
        """Return the shortest way to call this plan; see `Ready`."""
        if not self.passes:
            return None
        return _direct(self, arguments, values)


def _passes(ready: Ready) -> list[tuple[Stage, TileBuilt, Loaded, bool]]:
    """Return (stage, built, variant, whether it asks for alignment) for each pass, if all can."""
    found: list[tuple[Stage, TileBuilt, Loaded, bool]] = []
    for stage, wrapper in zip(ready.plan.stages, ready.built, strict=True):
        built = getattr(wrapper, "built", None)
        if type(built) is not TileBuilt or stage.size == 0:
            return []
        if any(o.strides for o in stage.outputs):
            return []
        for i in stage.inputs:
            if i.offset or i.kind == "iota" or (i.kind == "scalar" and made_by_planning(i.source)):
                return []
            narrow = DTYPES[i.dtype].narrow  # its bits are made, not packed
            if i.kind == "scalar" and (narrow or DTYPES[i.dtype].pack not in _PACKED):
                return []
        if any(getattr(built.aligned.kernel, name) for name in _UNKNOWN):
            return []
        # With addresses that fit: what is left to fit is the layout, decided here.
        zeros = [0] * len(stage.inputs)
        offsets = built.aligned.kernel.needs
        if offsets is not None:
            for slot, offset, _ in offsets.inputs:
                zeros[slot] = -offset
        fits = built.aligned.kernel.fits(stage, zeros, [0] * len(stage.outputs))
        variant = built.aligned if fits else built.other
        found.append((stage, built, variant, fits and offsets is not None))
    return found


class _Text:
    """Collects the lines of a function and the constants that it names."""

    def __init__(self, ready: CudaReady) -> None:
        self.ready = ready
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "MISS": MISS,
            "ndarray": cupy.ndarray,
            "alloc": cupy.cuda.alloc,
            "current": cupy.cuda.get_current_stream,
            "launch": driver.launchKernel,
            "local": threading.local(),
            "get_device": runtime.getDevice,
            "is_capturing": is_capturing,
            "generic": ready.run,
            "PackError": (struct.error, OverflowError, TypeError),
        }
        self.names["blocks"] = _blocks(ready, self.names["local"])
        self._known: dict[Any, str] = {}

    def add(self, *lines: str, indent: int = 1) -> None:
        self.lines += ["    " * indent + line for line in lines]

    def constant(self, value: Any, hint: str = "c") -> str:
        try:
            known = self._known.get((hint, value))
        except TypeError:
            known = None
        if known is None:
            known = f"{hint}{len(self.names)}"
            self.names[known] = value
            if getattr(value, "__hash__", None) is not None and isinstance(
                value, (tuple, np.dtype)
            ):
                self._known[hint, value] = known
        return known

    def function(self, head: str) -> Any:
        text = f"def call({head}):\n" + "\n".join(self.lines) + "\n"
        if setting("debug") >= 3:
            print(text, file=sys.stderr)
        exec(compile(text, "<itfuse call>", "exec"), self.names)
        # Out of its own globals, so that it goes, and its arrays with it, without the collector.
        return self.names.pop("call")


def _blocks(ready: CudaReady, local: Any) -> Callable[[], Any]:
    """Return a function that makes a thread's argument blocks, one a pass.

    The driver copies a kernel's argument during the launch call, so that a thread reuses them.
    """
    sizes = [variant.kernel.state.size for _, _, variant, _ in ready.passes]
    number = ready.engine.number

    def make() -> Any:
        if runtime.getDevice() == number:
            runtime.setDevice(number)  # a new thread has no context before
        flat: list[Any] = []
        owners = []
        for size in sizes:
            buffer = bytearray(size)
            address = ctypes.addressof((ctypes.c_char * size).from_buffer(buffer))
            table = (ctypes.c_void_p * 1)(address)
            owners.append(table)
            flat += [buffer, ctypes.addressof(table)]
        local.blocks = blocks = tuple(flat)
        local.owners = owners
        return blocks

    return make


def _address(leaf: int) -> str:
    return f"p{leaf}"


def _launches(
    text: _Text, given: dict[tuple[int, int], str], leaves: dict[int, str], other: list[str]
) -> None:
    """Write the passes.

    Parameters
    ----------
    text : _Text
        Where; `p<leaf>` hold the addresses already.
    given : dict
        Address text of the outputs that the caller gives, by (stage, output).
    leaves : dict of int to str
        For each scalar leaf the text of its value.
    other : list of str
        What to do where the general way must be gone: a capture, addresses that do not fit.
    """
    ready = text.ready
    plan = ready.plan
    text.add("try:", "    own = local.blocks", "except AttributeError:", "    own = blocks()")
    names = [f"b{s}, t{s}" for s in range(plan.passes)]
    text.add(f"{', '.join(names)} = own", "stream = current().ptr")
    if any(variant.kernel.partial for _, _, variant, _ in ready.passes) or plan.passes > 1:
        text.add("if stream > 1 and is_capturing(stream):")
        text.add(*other, indent=2)
    for s, (stage, built, variant, asks) in enumerate(ready.passes):
        kernel = variant.kernel
        outputs = []
        for o, output in enumerate(stage.outputs):
            if (s, o) not in given:
                text.add(f"m{s}_{o} = alloc({output.bytes})")
            outputs.append(_Name(given.get((s, o), f"m{s}_{o}.ptr")))
        operands: list[Any] = []
        for spot, i in zip(ready.wiring[s], stage.inputs, strict=True):
            if isinstance(spot, tuple):
                operands.append(_Name(given.get(spot, f"m{spot[0]}_{spot[1]}.ptr")))
            else:
                operands.append(_Name(leaves[spot] if i.kind == "scalar" else _address(spot)))
        if asks and kernel.needs is not None:
            _ask(text, kernel.needs, operands, outputs, given, other)
        extra: list[Any] = []
        grid = kernel.spans(stage)
        if kernel.partial:
            take = text.constant(built.scratch.take_uncaptured, "take")
            text.add(f"w{s}, n{s}, k{s} = {take}(stream, {grid * kernel.partial})")
            extra = [_Name(f"w{s}"), _Name(f"n{s}")]
            grid = min(grid, variant.most)
        members = kernel.state.values(stage, operands, outputs, extra)
        shared = kernel.shared(stage) if kernel.shared else 0
        pack = text.constant(kernel.state.struct.pack_into, "pack")
        text.add(
            "try:",
            f"    {pack}(b{s}, 0, {', '.join(map(repr, members))})",
            "except PackError:",
            "    return MISS",
            f"launch({variant.function}, {grid}, 1, 1, {kernel.block}, 1, 1, {shared}, stream, "
            f"t{s}, 0)",
        )
    text.constant(ready.passes, "keep")  # the modules stay loaded


def _ask(  # noqa: PLR0917
    text: _Text,
    needs: Any,
    operands: list[Any],
    outputs: list[Any],
    given: dict[tuple[int, int], str],
    other: list[str],
) -> None:
    masks: dict[int, list[str]] = {}
    for slot, offset, mask in needs.inputs:
        masks.setdefault(mask, []).append(
            f"({operands[slot]} + {offset})" if offset else repr(operands[slot])
        )
    for output, mask in zip(outputs, needs.outputs, strict=False):
        if output.text in given.values():  # CuPy's pool gives whole blocks of 512 bytes
            masks.setdefault(mask, []).append(repr(output))
    parts = [f"({' | '.join(each)}) & {mask}" for mask, each in masks.items() if mask]
    if parts:
        text.add(f"if {' or '.join(parts)}:")
        text.add(*other, indent=2)


def _wrapped(text: _Text) -> list[str]:
    plan = text.ready.plan
    made = []
    for s, o in plan.results:
        output = plan.stages[s].outputs[o]
        shape = text.constant(output.shape, "shape")
        dtype = text.constant(np.dtype(output.dtype), "dtype")
        made.append(f"ndarray({shape}, {dtype}, m{s}_{o})")
    return made


def _on_device(text: _Text) -> None:
    if text.ready.several_gpus:
        text.add(f"if get_device() != {text.ready.engine.number}:", "    return MISS")


def _queue(ready: CudaReady, into: bool = False) -> Any:
    """Write the function of arrays and scalars that are known to fit: `values -> results`.

    With `into` it is `values, out -> results`, and returns MISS for an `out` that may not do.
    """
    text = _Text(ready)
    _on_device(text)
    names = ", ".join(f"v{at}" for at in range(len(ready.leaves)))
    if names:
        text.add(f"{names}, = values")
    leaves = {}
    for at, leaf in enumerate(ready.leaves):
        if leaf.op is INPUT:
            text.add(f"{_address(at)} = v{at}.data.ptr")
        else:
            leaves[at] = f"v{at}"
    if into:
        inputs = [
            Argument("array", (at,), leaf.dtype, leaf.shape, leaf.arg.strides)
            for at, leaf in enumerate(ready.leaves)
            if leaf.op is INPUT
        ]
        _out(text, inputs, {})
        spot = ready.plan.results[0]
        _launches(text, {spot: "q"}, leaves, [f"return generic(values, {{{spot}: out}})"])
        text.add("return (out,)")
        return text.function("values, out")
    _launches(text, {}, leaves, ["return generic(values, None)"])
    text.add(f"return ({', '.join(_wrapped(text))},)")
    return text.function("values")


def _guard(text: _Text, x: str, want: Argument) -> None:
    """Write the checks of one argument."""
    if want.kind == "number":
        text.add(f"if type({x}) is not {text.constant(want.type, 'type')}:", "    return MISS")
        return
    if want.kind == "same":
        text.add(f"if {text.constant(want.get, 'get')}() is not {x}:", "    return MISS")
        return
    shape, dtype = text.constant(want.shape, "shape"), text.constant(want.dtype, "dtype")
    strict = want.strides == contiguous_strides(want.shape, want.dtype.itemsize)
    strides = (
        f"not {x}._c_contiguous" if strict else f"{x}.strides != {text.constant(want.strides)}"
    )
    text.add(
        f"if type({x}) is not ndarray or {x}.dtype is not {dtype} or {x}.shape != {shape} "
        f"or {strides}:",
        "    return MISS",
    )
    if text.ready.several_gpus:
        number = text.ready.engine.number
        text.add(f"if {x}.data.device_id != {number}:", "    return MISS")
    if want.leaves:
        address = _address(want.leaves[0])
        text.add(f"{address} = {x}.data.ptr")
        if want.dtype.itemsize > 1:  # one that is not on its own boundary would be a fault
            text.add(f"if {address} & {_boundary(want.dtype) - 1}:", "    return MISS")


def _boundary(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize & -dtype.itemsize


def _span(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    low = sum(min(0, (n - 1) * step) for n, step in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * step) for n, step in zip(shape, strides, strict=True))
    return low, high + itemsize


def _out(text: _Text, arguments: Sequence[Argument], closed_over: dict[int, Any]) -> None:
    """Write the checks of `out`: it may be elsewhere, or an input that is read in its place.

    It may not be an array that the function closes over (by leaf): the general way decides there.
    """
    plan = text.ready.plan
    s, o = plan.results[0]
    stage, output = plan.stages[s], plan.stages[s].outputs[o]
    dtype = np.dtype(output.dtype)
    _guard(text, "out", Argument("array", (), dtype, output.shape,
                                 contiguous_strides(output.shape, dtype.itemsize)))  # fmt: skip
    text.add("q = out.data.ptr")
    for leaf, x in closed_over.items():
        p = _address(leaf)
        low, high = _span(x.shape, x.strides, x.dtype.itemsize)
        text.add(f"if q < {p} + {high} and {p} + {low} < q + {output.bytes}:", "    return MISS")
    for want in arguments:
        if want.kind != "array" or not want.leaves:
            continue
        p = _address(want.leaves[0])
        low, high = _span(want.shape, want.strides, want.dtype.itemsize)
        leaf = want.leaves[0]
        reading = [
            i.layout
            for s, one in enumerate(plan.stages)
            for i, spot in zip(one.inputs, text.ready.wiring[s], strict=True)
            if spot == leaf and i.kind == "array"
        ]
        in_place = (
            plan.passes == 1
            and stage.primitive == "transform"
            and want.dtype.itemsize == dtype.itemsize
            and all(layout == "linear" for layout in reading)
        )
        test = f"q < {p} + {high} and {p} + {low} < q + {output.bytes}"
        test += f" and q != {p}" if in_place else ""
        text.add(f"if {test}:", "    return MISS")


def _direct(
    ready: CudaReady, arguments: Sequence[Argument], values: Sequence[Any]
) -> Callable[[tuple[Any, ...], Any], Any]:
    """Write `(arguments, out) -> result`, which returns MISS where it is not the right one."""
    text = _Text(ready)
    names = [f"x{at}" for at in range(len(arguments))]
    _on_device(text)
    text.add("try:", f"    {', '.join(names)}, = args", "except ValueError:", "    return MISS")
    leaves: dict[int, str] = {}
    whole: dict[int, str] = {}
    for at, want in enumerate(arguments):
        _guard(text, names[at], want)
        for leaf in want.leaves:
            whole[leaf] = names[at]
            if want.kind == "number":
                leaves[leaf] = names[at]
                whole[leaf] = f"{text.constant(ready.leaves[leaf].dtype.type, 'as')}({names[at]})"
    closed_over: dict[int, Any] = {}
    for at, leaf_node in enumerate(ready.leaves):
        if at in whole:
            continue
        whole[at] = text.constant(values[at], "kept")
        if leaf_node.op is INPUT:  # an array that the function closes over; it does not move
            text.add(f"{_address(at)} = {whole[at]}.data.ptr")
            closed_over[at] = values[at]
        else:
            leaves[at] = text.constant(values[at].item(), "literal")
    every = ", ".join(whole[at] for at in range(len(ready.leaves)))
    several = [
        "try:",
        f"    values = [{every}]",
        "except PackError:",
        "    return MISS",
        "return generic(values, GIVEN)",
    ]
    one = [*several[:-1], "return generic(values, GIVEN)[0]"]
    if len(ready.plan.results) == 1:
        spot = ready.plan.results[0]
        shared = list(text.lines)
        text.lines = []
        _out(text, arguments, closed_over)
        _launches(text, {spot: "q"}, leaves, [x.replace("GIVEN", f"{{{spot}: out}}") for x in one])
        text.add("return out")
        with_out = ["    " + line for line in text.lines]
        text.lines = [*shared, "    if out is not None:", *with_out]
        _launches(text, {}, leaves, [x.replace("GIVEN", "None") for x in one])
        text.add(f"return {_wrapped(text)[0]}")
    else:
        text.add("if out is not None:", "    return MISS")
        _launches(text, {}, leaves, [x.replace("GIVEN", "None") for x in several])
        text.add(f"return ({', '.join(_wrapped(text))},)")
    return text.function("args, out")  # type: ignore[no-any-return]
