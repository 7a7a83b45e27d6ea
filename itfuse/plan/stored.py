"""Results that a pass cannot write with strides: a second pass copies those of rows into place.

Transforms and scans write each element where the caller's array has it. What reduces writes its
results in row-major order: one for each row, which is little, so that another pass that copies them
costs next to nothing and is shown as one. A row program and a sort make as many elements as they
read. There an array nobody asked for would be needed, so that the call is refused (see
`engines.ready`).
"""

from __future__ import annotations

from collections.abc import Sequence

from itfuse.expr import Node, make
from itfuse.ops import HISTOGRAM, RESHAPE, SEGMENTS, STRIDED
from itfuse.plan.index import Form, contiguous_strides, grouped
from itfuse.plan.late import When, timetable
from itfuse.plan.stages import Note, Stage
from itfuse.wording import text, toposort

WITH_STRIDES = ("transform", "scan", "segments")
"""Primitives whose kernels store each element by the strides of the caller's array."""


Layouts = tuple[tuple[int, ...] | None, ...]


def copied(
    roots: tuple[Node, ...],
    layouts: Layouts,
    stages: Sequence[Stage],
    results: Sequence[tuple[int, int]],
) -> tuple[tuple[Node, ...], Layouts, list[Note]]:
    """Return the roots, copies of results of rows where the caller's array has strides.

    Parameters
    ----------
    roots, layouts
        What is asked for, and the strides it is to be written with, if not in row-major order.
    stages, results
        The passes that compute the roots in row-major order, and which outputs they are.

    Returns
    -------
    tuple of Node, Layouts, list of Note
        The same roots if nothing has to be copied. Strides that no pass can write are left out.
    """
    found, kept, notes = list(roots), list(layouts), []
    when: dict[Node, When] | None = None
    for at, (root, layout) in enumerate(zip(roots, layouts, strict=False)):
        stage = stages[results[at][0]]
        if layout is None:
            continue
        if stage.primitive in WITH_STRIDES:
            if stage.primitive == "transform" and not _finer(root.shape, stage.shape):
                kept[at] = None
            continue
        source = root
        while source.op is RESHAPE:  # which only names the shape
            source = source.srcs[0]
        if when is None:
            when, _ = timetable(toposort(roots))
        rows = bool(stage.combine) and when[source].row  # also where a row has one element
        if not (rows or source.op.reduces or source.op in (HISTOGRAM, SEGMENTS)):
            kept[at] = None
            continue
        place = Form(0, tuple(contiguous_strides(root.shape, root.dtype.itemsize)))
        found[at] = make(STRIDED, (source,), root.dtype, root.shape, place)
        why = (
            f"{text(root)} is copied to the strides of out=: a pass of {stage.primitive} stores "
            "its results in row-major order"
        )
        notes.append(Note("strided-out", why))
    return (tuple(found) if notes else roots), tuple(kept), notes


def _finer(shape: tuple[int, ...], domain: tuple[int, ...]) -> bool:
    """Whether a domain splits axes of a shape, if anything, so that strides say where each is."""
    try:
        grouped(shape, domain)
    except IndexError:
        return False
    return True
