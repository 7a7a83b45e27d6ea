"""Selection in blocks of NumPy: each block is evaluated once and written where the others end.

A block's place is the number of elements chosen before it. Threads take the blocks in order, so
that a thread that has evaluated one only waits for those that others are evaluating; what it
chose waits with it, and nothing else is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from itfuse.engines.tape import BLOCK, Tape, block_shape
from itfuse.engines.turns import Turns
from itfuse.plan.stages import Stage


def select_blocks(  # noqa: PLR0917 - the parts of a walk over blocks
    stage: Stage,
    tape: Tape,
    outputs: list[Any],
    cut: Callable[[Any], list[Any]],
    blocks: Callable[[Stage, int], Iterator[Any]],
    in_parallel: Callable[..., None],
) -> None:
    """Write the chosen elements to the beginning of each output, and how many there are.

    Parameters
    ----------
    stage : Stage
        A `select`.
    tape : Tape
        Its element.
    outputs : list of numpy.ndarray
        One a stage output.
    cut : callable
        Rectangle -> the elements of every input.
    blocks : callable
        (stage, block number) -> rectangles, in order.
    in_parallel : callable
        Runs a function over all block numbers, in several threads.
    """
    flags = stage.flags
    kinds = max(flags, max(stage.parts) + 1)
    turns = Turns()
    total = [0] * kinds
    taken = [pair for pair in zip(outputs, stage.parts, strict=True) if pair[1] >= 0]

    def evaluate(number: int, scratch: Any) -> tuple[list[int], list[list[Any]]]:
        counts = [0] * kinds
        chosen: list[list[Any]] = [[] for _ in taken]
        for block in blocks(stage, number):
            shape = block_shape(stage.dims, block)
            found = [
                np.broadcast_to(value, shape)
                for value in tape.run(cut(block), scratch(shape), None)
            ]
            # Places first: NumPy makes them without a branch an element, and all values share them.
            places = [np.flatnonzero(mask) for mask in _masks(found[:flags], kinds)]
            counts = [a + b.size for a, b in zip(counts, places, strict=True)]
            for pieces, value, (_, part) in zip(chosen, found[flags:], taken, strict=True):
                pieces.append(value.reshape(-1)[places[part]])
        return counts, chosen

    def work(numbers: Iterator[int]) -> None:
        scratch = tape.scratch()
        try:
            for number in numbers:
                counts, chosen = evaluate(number, scratch)
                with turns.turn(number) as go:
                    if not go:
                        return
                    start = list(total)
                    total[:] = [a + b for a, b in zip(start, counts, strict=True)]
                for pieces, (out, part) in zip(chosen, taken, strict=True):
                    at = start[part]
                    for piece in pieces:
                        out[at : at + piece.size] = piece
                        at += piece.size
        except BaseException:
            turns.stop()
            raise

    in_parallel(work, -(-stage.size // BLOCK))
    for out, part in zip(outputs, stage.parts, strict=True):
        if part < 0:
            out[...] = total[:flags]


def _masks(flags: list[Any], kinds: int) -> list[Any]:
    """Return masks of the elements of each kind: by the first flag that holds, then by none."""
    if kinds == 1:
        return flags
    rest = np.ones(flags[0].shape, bool)
    masks = []
    for flag in flags:
        masks.append(flag & rest)
        rest &= ~flag
    return [*masks, rest][:kinds]
