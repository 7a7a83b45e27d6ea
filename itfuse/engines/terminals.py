"""Terminals in NumPy: what histograms, sorts and scattered writes mean.

Fused operands are evaluated in blocks, in order where the order decides the bits. What a sort
orders lies in memory already.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from itfuse import reference
from itfuse.engines.tape import BLOCK, Tape, block_shape, view
from itfuse.errors import BoundsError
from itfuse.plan.stages import Stage


class Walk:
    """The element program of a stage over its domain, block after block.

    Parameters
    ----------
    stage, tape, operands
        What runs over what.
    cutter, blocks, in_parallel : callable
        Those of the CPU engine.
    """

    def __init__(  # noqa: PLR0917 - the parts of a walk over blocks
        self,
        stage: Stage,
        tape: Tape,
        operands: list[Any],
        cutter: Callable[[Stage, list[Any]], Callable[[Any], list[Any]]],
        blocks: Callable[[Stage, int], Iterator[Any]],
        in_parallel: Callable[..., None],
    ) -> None:
        self.stage, self.tape, self.blocks = stage, tape, blocks
        self.in_parallel = in_parallel
        pairs = list(zip(stage.inputs, operands, strict=True))
        self.whole = [x for i, x in pairs if i.layout == "whole"]
        arrays = [
            x if i.layout == "whole" or not stage.size else view(stage, at, x)
            for at, (i, x) in enumerate(pairs)
        ]
        self.cut = cutter(stage, arrays) if stage.size else None
        self.count = -(-stage.size // BLOCK)

    def values(self, number: int, scratch: Any) -> list[Any]:
        """Return the results for a block, flat; valid until the next one."""
        assert self.cut is not None
        blocks = list(self.blocks(self.stage, number))
        parts: list[list[Any]] = []
        for block in blocks:
            shape = block_shape(self.stage.dims, block)
            found = self.tape.run(self.cut(block), scratch(shape), None)
            flat = [np.broadcast_to(value, shape).reshape(-1) for value in found]
            if len(blocks) == 1:
                return flat
            parts.append([one.copy() for one in flat])  # the next one uses the same buffers
        return [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]

    def in_order(self) -> Iterator[tuple[int, list[Any]]]:
        """Return the first place and the results of each block, in order."""
        scratch = self.tape.scratch()
        for number in range(self.count):
            yield number * BLOCK, self.values(number, scratch)


def _histogram(stage: Stage, walk: Walk, out: Any) -> None:
    """Count places, or sum weights in order; places outside are not counted."""
    bins = out.size
    out[...] = 0
    if stage.how is not None and stage.how.fused == 2:
        (span,) = stage.how.options
        for _, (places, weights) in walk.in_order():
            for at in range(0, places.size, span or BLOCK):
                cut = slice(at, at + (span or BLOCK))
                _weigh(out, places[cut], weights[cut], span)
        return
    lock = threading.Lock()

    def work(numbers: Iterator[int]) -> None:
        scratch = walk.tape.scratch()
        own: Any = None
        for number in numbers:
            (places,) = walk.values(number, scratch)
            inside = places[(places >= 0) & (places < bins)]
            found = np.bincount(inside, minlength=bins)
            own = found if own is None else np.add(own, found, out=own)
        if own is not None:
            with lock:
                np.add(out, own.reshape(out.shape), out=out)

    walk.in_parallel(work, walk.count, least=1 + bins // BLOCK)


def _weigh(out: Any, places: Any, weights: Any, span: int) -> None:
    inside = (places >= 0) & (places < out.size)
    if not inside.all():
        places, weights = places[inside], weights[inside]
    flat = out.reshape(-1)
    if not span:  # one sum, element by element
        np.add.at(flat, places, weights)
    elif out.dtype.kind == "c":
        flat.real += np.bincount(places, weights.real, out.size)
        flat.imag += np.bincount(places, weights.imag, out.size)
    else:  # a sum in float64 of every `span` elements, in the dtype of the result
        flat += np.bincount(places, weights, out.size).astype(out.dtype)


def _keys(given: Any) -> Any:
    """Return what orders as `given`: of another library's floats their keys."""
    if given.dtype.kind != "V":
        return given
    return reference.sort_key(given, np.empty(given.shape, f"u{given.itemsize}"))


def _sort(stage: Stage, walk: Walk, *outs: Any) -> None:
    """Sort rows; orders are stable, also descending."""
    assert stage.how is not None
    descending, _ = stage.how.options
    (keys,) = walk.whole
    length = keys.shape[-1]
    rows = keys.reshape(-1, length) if length else keys.reshape(0, 0)
    targets = [out.reshape(rows.shape) for out in outs]
    # Read from behind, sorted and written from behind: equal elements are in order again.
    step = -1 if descending else 1
    together = max(1, BLOCK // max(1, length))

    def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            cut = slice(number * together, (number + 1) * together)
            given = rows[cut, ::step]
            for target, side in zip(targets, stage.sides, strict=True):
                goal = target[cut, ::step]
                if side:
                    found = np.argsort(_keys(given), axis=-1, kind="stable")
                    goal[...] = length - 1 - found if descending else found
                elif given.dtype.kind == "V":  # NumPy's sort knows no NaN of theirs
                    order = np.argsort(_keys(given), axis=-1, kind="stable")
                    goal[...] = np.take_along_axis(given, order, axis=-1)
                else:
                    # Equal numbers cannot be told apart but by the sign of a zero, which is open.
                    goal[...] = np.sort(given, axis=-1)

    walk.in_parallel(work, -(-len(rows) // together))


_AT = {"add": np.add, "min": np.minimum, "max": np.maximum}


def _scatter(stage: Stage, walk: Walk, out: Any) -> None:
    """Write values at places, in order: of two at one place the last stays."""
    assert stage.how is not None
    (mode,) = stage.how.options
    (base,) = walk.whole
    if not np.may_share_memory(out, base):
        out[...] = base
    flat = out.reshape(-1)
    for _, (places, values) in walk.in_order():
        wrong = (places < 0) | (places >= flat.size)
        if wrong.any():
            at = int(places[wrong][0])
            raise BoundsError(f"place {at} is out of bounds for {flat.size} elements")
        if mode == "set":
            flat[places] = values
        else:
            _AT[mode].at(flat, places, values)


_RUN: dict[str, Callable[..., None]] = {
    "histogram": _histogram,
    "sort": _sort,
    "scatter": _scatter,
}


class TerminalBuilt:
    """A terminal of the CPU engine; `parts` are its cutter, its blocks and its threads."""

    def __init__(self, stage: Stage, *parts: Any) -> None:
        self.element = Tape(stage.element)
        self.parts = parts

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Run over `operands` into `outputs`."""
        with np.errstate(all="ignore"):
            walk = Walk(stage, self.element, operands, *self.parts)
            _RUN[stage.primitive](stage, walk, *outputs)
