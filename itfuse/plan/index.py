"""Domains and index maps: how each input's elements follow the index of a pass."""

from __future__ import annotations

import math
from collections.abc import Sequence

from itfuse.expr import Shape


def aligned_strides(shape: Shape, strides: Sequence[int], domain: Shape) -> tuple[int, ...]:
    """Return the strides of an array broadcast to `domain`: 0 along every repeated axis."""
    missing = len(domain) - len(shape)
    own = (0 if have == 1 else step for have, step in zip(shape, strides, strict=True))
    return (0,) * missing + tuple(own)


def merge_axes(domain: Shape, maps: Sequence[tuple[int, ...]]) -> tuple[Shape, list[Shape]]:
    """Drop axes of one element and merge neighbours that every map walks as one.

    Parameters
    ----------
    domain : tuple of int
        Sizes of the axes.
    maps : sequence of tuple of int
        For each input its stride along each axis.

    Returns
    -------
    dims : tuple of int
        Sizes of the merged axes (at least one).
    maps : list of tuple of int
        Strides along the merged axes.
    """
    dims: list[int] = []
    steps: list[list[int]] = [[] for _ in maps]
    for axis, size in enumerate(domain):
        if size == 1:
            continue
        mergeable = bool(dims) and all(
            step[-1] == own[axis] * size for step, own in zip(steps, maps, strict=True)
        )
        if mergeable:
            dims[-1] *= size
            for step, own in zip(steps, maps, strict=True):
                step[-1] = own[axis]
        else:
            dims.append(size)
            for step, own in zip(steps, maps, strict=True):
                step.append(own[axis])
    if not dims:
        return (math.prod(domain),), [(0,) for _ in maps]
    return tuple(dims), [tuple(step) for step in steps]


def contiguous_strides(shape: Shape, itemsize: int) -> tuple[int, ...]:
    """Return the byte strides of a C-contiguous array."""
    strides: list[int] = []
    step = itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


VECTOR_STEPS = range(-1, 5)
"""Elements from one to the next along a row for which kernels load vectors."""


def inner_step(strides: Sequence[int], itemsize: int) -> int | None:
    """Return the last stride in elements if it is one of `VECTOR_STEPS`."""
    step, rest = divmod(strides[-1], itemsize)
    return step if rest == 0 and step in VECTOR_STEPS else None


TURN = 32
"""Least length of two axes of which squares are turned through shared memory."""


def turned_axis(dims: Shape, strides: Sequence[int], itemsize: int) -> int | None:
    """Return the axis along which elements lie side by side if it is worth turning, or None."""
    for axis in range(len(dims) - 1):
        if strides[axis] == itemsize and min(dims[axis], dims[-1]) >= TURN:
            return axis
    return None
