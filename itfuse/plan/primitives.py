"""Strategies as data: which device code runs a stage, under which conditions, and why.

The measurements behind the order of the rows are in docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.errors import Unsupported
from itfuse.plan.ordered import has_atomic
from itfuse.plan.stages import Note, Stage
from itfuse.wording import text


@dataclass(frozen=True)
class Strategy:
    """One way to run a primitive.

    Attributes
    ----------
    name : str
        What `strategy=` takes and `explain` prints.
    engine : str
        The kind of engine that has it.
    primitive : str
        The primitive it runs.
    refuses : callable
        Stage -> why not, or an empty string.
    why : str
        When it is the better choice, and what that was measured against.
    warns : callable
        Stage -> what a reader of the plan should know of its results, or an empty string.
    """

    name: str
    engine: str
    primitive: str
    refuses: Callable[[Stage], str]
    why: str
    warns: Callable[[Stage], str] = lambda stage: ""


def _not_a_filter(stage: Stage) -> str:
    """Say why a selection is not of one array's own elements by a function of each."""
    if stage.flags != 1 or sum(part >= 0 for part in stage.parts) != 1:
        return "cuda.compute selects one array by one condition"
    value = stage.element.instrs[stage.element.results[1]]
    arrays = [at for at, i in enumerate(stage.inputs) if i.layout != "fixed"]
    if value.op != "load" or arrays != [value.slot]:
        return "cuda.compute selects elements of one array by a function of each"
    if stage.inputs[value.slot].layout != "linear":
        return "its input is not contiguous"
    return ""


def _never(stage: Stage) -> str:
    return ""


def _not_on_pointers(stage: Stage) -> str:
    if stage.primitive == "reduce":
        if len(stage.combine) != 1 or len(stage.element.instrs) != 1:
            return "cuda.compute reduces plain pointers without a fused map"
        if stage.inputs[stage.element.instrs[0].slot].layout != "linear":
            return "its input is not contiguous"
        return ""
    if _not_in_order(stage):
        return _not_in_order(stage)
    arrays = [i for i in stage.inputs if i.layout != "fixed"]
    if len(stage.outputs) != 1:
        return f"it has {len(stage.outputs)} outputs and cuda.compute's transform one"
    if any(i.layout != "linear" for i in arrays):
        return "an input is not contiguous over the domain"
    if not 1 <= len(arrays) <= 2:
        return f"it has {len(arrays)} array inputs and cuda.compute's transforms one or two"
    return ""


def _not_in_order(stage: Stage) -> str:
    strided = any(o.strides for o in stage.outputs)
    return "an output is not contiguous over the domain" if strided else ""


SELECTED_BYTES = 128
"""Bytes of all values of an element that a selection's kernel keeps on chip."""


def _selects_much(stage: Stage) -> str:
    count = selected_bytes(stage)
    if count > SELECTED_BYTES:
        return (
            f"the values of an element have {count} bytes and its kernel keeps {SELECTED_BYTES} on "
            "chip; compute some of the results at a time"
        )
    return ""


def _in_any_order(stage: Stage) -> str:
    """Say what the order of atomic operations changes."""
    assert stage.how is not None
    floats = DTYPES[stage.outputs[0].dtype].kind == "f"
    if stage.primitive == "histogram":  # with weights: as determinism="not_guaranteed" asks
        return _SUMS if stage.how.fused == 2 and floats else ""
    (mode,) = stage.how.options
    if mode == "set":
        return "of several elements at one place any one stays"
    return _SUMS if mode == "add" and floats else ""


_SUMS = "floats are added in an order that differs from run to run, and so do the last bits"


def _atomic(stage: Stage) -> str:
    assert stage.how is not None
    (mode,) = stage.how.options
    dtype = stage.outputs[0].dtype
    if mode == "set" or has_atomic(dtype):
        return ""
    instead = "ordered=True, or " if mode == "add" else ""
    return f"a GPU has no atomic {mode} of {dtype}; {instead}.astype('int32') or .astype('float32')"


def _rows_of_words(stage: Stage) -> str:
    if stage.inputs[0].dtype.startswith("complex"):
        return "CUB sorts by bits, and complex numbers have no such order; sort abs(x), or x.real"
    return ""


def _not_bare_segments(stage: Stage) -> str:
    """Say why segments are not one reduction that is written as it is."""
    if len(stage.combine) != 1 or len(stage.outputs) != 1:
        return "CUB's segmented reduction has one result"
    if stage.finish is None or len(stage.finish.instrs) != 1:
        return "CUB's segmented reduction has no epilogue"
    if stage.outputs[0].strides:
        return "CUB writes contiguous results"
    if stage.outputs[0].size >= 1 << 31:
        return "CUB takes fewer than 2**31 segments"
    return ""


def _not_checked(stage: Stage) -> str:
    """Say what CUB's segments do not keep."""
    text = "CUB reads what offsets name, also beyond the array"
    if DTYPES[stage.combine[0].dtype].kind in "fc":
        text += ", and adds floats in an order of its own: the same on every run of one GPU"
    return text


def selected_bytes(stage: Stage) -> int:
    """Return the bytes of all values that a `select` takes of an element."""
    pairs = zip(stage.outputs, stage.parts, strict=True)
    return sum(np.dtype(output.dtype).itemsize for output, part in pairs if part >= 0)


# fmt: off
STRATEGIES: tuple[Strategy, ...] = (
    Strategy("tile", "cuda", "transform", _never,
             "one 16-byte vector a thread, any number of inputs and outputs"),
    Strategy("cub.pointers", "cuda", "transform", _not_on_pointers,
             "CUB vectorises plain pointers: one or two contiguous inputs, one output"),
    Strategy("cub.iterator", "cuda", "transform", _not_in_order,
             "any number of inputs, outputs and input layouts through one TransformIterator"),
    Strategy("tile", "cuda", "reduce", _never,
             "one launch in the fixed order of docs/determinism.md, any number of results"),
    Strategy("cub.pointers", "cuda", "reduce", _not_on_pointers,
             "a reduction of one contiguous array as it is: CUB vectorises the loads"),
    Strategy("cub.iterator", "cuda", "reduce", _never,
             "any fused map before the reduction through one TransformIterator"),
    Strategy("blocks", "cpu", "transform", _never, "cache-sized blocks of NumPy"),
    Strategy("blocks", "cpu", "reduce", _never, "cache-sized blocks of NumPy"),
    Strategy("tile", "cuda", "rows", _never,
             "whole rows on chip, each walked as often as the expression needs"),
    Strategy("tile", "cuda", "columns", _never,
             "threads along the kept axes, in the same fixed order: nothing is transposed"),
    Strategy("tile", "cuda", "histogram", _never,
             "integer counts in shared memory, added to the result once a block", _in_any_order),
    Strategy("tile", "cuda", "scatter", _atomic, "one write or atomic operation an element",
             _in_any_order),
    Strategy("cub.pointers", "cuda", "sort", _rows_of_words,
             "CUB's radix sort of one row, its segmented sort of several"),
    Strategy("tile", "cuda", "segments", _never,
             "one launch, balanced for any mix of lengths, each segment in the order of an array"),
    Strategy("cub.iterator", "cuda", "segments", _not_bare_segments,
             "CUB's segmented reduction of a TransformIterator, to compare: a block a segment",
             _not_checked),
    Strategy("blocks", "cpu", "histogram", _never, "cache-sized blocks of NumPy, weights in order"),
    Strategy("blocks", "cpu", "sort", _never, "NumPy's stable sort of rows"),
    Strategy("blocks", "cpu", "segments", _never, "those of like lengths at once, in that order"),
    Strategy("blocks", "cpu", "scatter", _never, "cache-sized blocks of NumPy, in order"),
    Strategy("tile", "cuda", "scan", _never,
             "one launch in the fixed order of docs/determinism.md: blocks learn from each other "
             "what comes before"),
    Strategy("blocks", "cpu", "scan", _never, "cache-sized blocks of NumPy, in the same order"),
    Strategy("tile", "cuda", "select", _selects_much,
             "one launch that keeps the order: blocks learn from each other where to write"),
    Strategy("cub.pointers", "cuda", "select", _not_a_filter,
             "elements of one contiguous array by a function of each, to compare"),
    Strategy("blocks", "cpu", "select", _never, "cache-sized blocks of NumPy"),
    Strategy("blocks", "cpu", "rows", _never, "blocks of whole rows of NumPy"),
    Strategy("blocks", "cpu", "columns", _never, "blocks of whole rows of NumPy"),
)
# fmt: on


def choose(stage: Stage, number: int, engine: str, wish: str) -> tuple[Stage, list[Note]]:
    """Return `stage` with its strategy, and why better ones were refused.

    Parameters
    ----------
    stage : Stage
        A stage without a strategy.
    number : int
        Its place in the plan, for the notes.
    engine : str
        Kind of engine: `cuda` or `cpu`.
    wish : str
        The `strategy` setting: `auto`, a family such as `cub`, or one strategy.

    Raises
    ------
    Unsupported
        If the wish cannot be kept, saying why.
    """
    reasons: list[str] = []
    for row in STRATEGIES:
        if (row.engine, row.primitive) != (engine, stage.primitive):
            continue
        wished = wish in ("auto", row.name) or row.name.startswith(wish + ".")
        if engine == "cuda" and not wished:
            continue
        why_not = row.refuses(stage)
        if not why_not:
            notes = [Note("strategy", f"pass {number + 1}: {why}") for why in reasons]
            if warning := row.warns(stage):
                notes.append(Note("determinism", f"pass {number + 1}: {warning}"))
            return replace(stage, strategy=row.name), notes
        reasons.append(f"not {row.name}: {why_not}")
    what = ", ".join(text(output.node) for output in stage.outputs)
    why = "; ".join(reasons) or f"a {stage.primitive} pass has no such strategy"
    instead = "" if wish == "auto" else "; use strategy='auto'"
    raise Unsupported(f"{what}: strategy {wish!r} cannot run it: {why}{instead}")
