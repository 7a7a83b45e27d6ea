"""Domains and index maps: how each input's elements follow the index of a pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from itfuse.expr import Node, Shape


@dataclass(frozen=True)
class Form:
    """An affine function of an index: `offset` + the sum of `steps[axis] * index[axis]`."""

    offset: int
    steps: tuple[int, ...]
    label: str = field(default="", compare=False)

    def __add__(self, other: Form) -> Form:
        steps = tuple(a + b for a, b in zip(self.steps, other.steps, strict=True))
        return Form(self.offset + other.offset, steps)

    def __mul__(self, factor: int) -> Form:
        return Form(self.offset * factor, tuple(step * factor for step in self.steps))

    def bounds(self, domain: Shape) -> tuple[int, int]:
        """Return the least and the greatest value over a domain that is not empty."""
        low = high = self.offset
        for size, step in zip(domain, self.steps, strict=True):
            reach = (size - 1) * step
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


@dataclass(frozen=True)
class Map:
    """Where a view reads its operand: one row for each axis of the operand.

    Attributes
    ----------
    rows : tuple of Form or int
        The place along an axis: a `Form` of the view's index, or k for the value of the view's
        index expression k (its source k + 1), which is a place in range.
    label : str
        What the user wrote, as a template: `{0}[1:]`. No part of the map's identity.
    """

    rows: tuple[Form | int, ...]
    label: str = field(default="", compare=False)


@dataclass(frozen=True)
class Choice:
    """What a selection chooses, from its first operands, the flags.

    Attributes
    ----------
    domain : tuple of int
        Shape that flags and values are broadcast to.
    flags : int
        How many flags there are: 1, or 2 to part the elements in three.
    part : int
        Which elements: k for those of which flag k is the first that holds, `flags` for those of
        which none does.
    label : str
        What the user wrote, as a template of the operands. No part of the choice's identity.
    """

    domain: Shape
    flags: int = 1
    part: int = 0
    label: str = field(default="", compare=False)


@dataclass(frozen=True)
class How:
    """What a terminal does, and over which domain: the argument of its node.

    Attributes
    ----------
    domain : tuple of int
        Shape that the fused operands are broadcast to.
    fused : int
        How many of the first operands are expressions that the pass computes element by element.
        The others are read as arrays, and computed by a pass of their own if they are none.
    options : tuple
        What the algorithm has to know: structure, never sizes.
    side : int
        Which of the results: sorted keys (0) or their order (1). One pass makes all that are
        asked for.
    label : str
        What the user wrote, as a template of `shown` or else of the operands. No part of its
        identity.
    shown : tuple of Node
        What the user wrote it of, where operands are made of that.
    """

    domain: Shape
    fused: int
    options: tuple[Any, ...] = ()
    side: int = 0
    label: str = field(default="", compare=False)
    shown: tuple[Node, ...] = field(default=(), compare=False, repr=False)


def constant(value: int, rank: int) -> Form:
    """Return the form that is `value` everywhere."""
    return Form(value, (0,) * rank)


def along(axis: int, rank: int, offset: int = 0, step: int = 1) -> Form:
    """Return the form `offset + step * index[axis]`."""
    return Form(offset, (0,) * axis + (step,) + (0,) * (rank - axis - 1))


def unravel(form: Form, domain: Shape, shape: Shape) -> list[Form] | None:
    """Split row-major places of `shape` into one affine place for each axis.

    Parameters
    ----------
    form : Form
        The place, as a function of the index of `domain`.
    domain, shape : tuple of int
        Sizes; `shape` has no axis of one element.

    Returns
    -------
    list of Form, or None
        None where the places of some axis are not affine over the domain.

    Examples
    --------
    >>> unravel(Form(0, (3, 1)), (2, 3), (2, 3)) == [Form(0, (1, 0)), Form(0, (0, 1))]
    True
    >>> unravel(Form(0, (1,)), (6,), (2, 3)) is None
    True
    """
    if 0 in domain:
        return [constant(0, len(domain)) for _ in shape]
    # One element moves nowhere, whatever its step is.
    rests = [step if size > 1 else 0 for size, step in zip(domain, form.steps, strict=True)]
    offset = form.offset
    rows = []
    for stride, size in zip(contiguous_strides(shape, 1), shape, strict=True):
        place, offset = divmod(offset, stride)
        steps = []
        for at, rest in enumerate(rests):
            step = abs(rest) // stride * (1 if rest > 0 else -1)
            rests[at] -= step * stride
            steps.append(step)
        row = Form(place, tuple(steps))
        low, high = row.bounds(domain)
        if low < 0 or high >= size:
            return None
        rows.append(row)
    return rows


def finer(form: Form, domain: Shape, shape: Shape) -> Shape | None:
    """Return `domain` with one axis split in two where `form` crosses an axis of `shape`.

    The split keeps the row-major order. None where no split lies on such a border.
    """
    borders = [stride for stride in reversed(contiguous_strides(shape, 1)) if stride > 1]
    for border in borders:
        for axis, (size, step) in enumerate(zip(domain, form.steps, strict=True)):
            if not step or border % step:
                continue
            inner = border // abs(step)
            if 1 < inner < size and size % inner == 0:
                return (*domain[:axis], size // inner, inner, *domain[axis + 1 :])
    return None


def grouped(shape: Shape, domain: Shape) -> tuple[Form, ...]:
    """Return the place along each axis of `shape` over a finer `domain` of the same elements."""
    if not domain:
        return tuple(Form(0, ()) for _ in shape)
    rank = len(domain)
    rows = []
    at = 0
    for size in shape:
        if size == 1 and (at == rank or domain[at] != 1):  # an axis that the domain leaves out
            rows.append(Form(0, (0,) * rank))
            continue
        end, total = at + 1, domain[at]
        while total != size:
            total *= domain[end]
            end += 1
        steps = [0] * rank
        steps[at:end] = contiguous_strides(domain[at:end], 1)
        rows.append(Form(0, tuple(steps)))
        at = end
    return tuple(rows)


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
