"""Shapes: sizes, axes and broadcasting as NumPy has them, with errors in the user's terms."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from itfuse.errors import AxisError, ShapeError
from itfuse.form import Number

Shape = tuple[int, ...]

MOST_AXES = 64
"""NumPy's and CuPy's arrays have no more."""


def check_axes(rank: int, what: object) -> None:
    """Raise `ShapeError` if there are more axes than an array can have."""
    if rank > MOST_AXES:
        raise ShapeError(f"{what}: {rank} axes, and an array has {MOST_AXES} at most")


def shape_of(shape: Any, what: str) -> Shape:
    """Return the shape that an integer or a sequence of integers means."""
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if any(isinstance(size, (bool, np.bool)) for size in sizes):
        raise TypeError(f"{what}: a size is a bool in {shape!r}; expected integers")
    found = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in found):
        raise ShapeError(f"{what}: a size is negative in {found}")
    check_axes(len(found), what)
    return found


def broadcast(shapes: Iterable[Shape], describe: Callable[[], str]) -> Shape:
    """Return NumPy's broadcast of `shapes`; `describe()` names the expression in the error."""
    shapes = [shape for shape in shapes if shape]
    if not shapes:
        return ()
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(shape) for shape in shapes)
        raise ShapeError(
            f"{describe()}: shapes {listed} do not broadcast together; sizes must be "
            "equal or 1, aligned from the last axis"
        ) from None


def normalize_axes(axis: Any, ndim: int, describe: Callable[[], str]) -> tuple[int, ...]:
    """Return the sorted axes that `axis` (an int, a tuple, or None for all) means.

    Raises
    ------
    AxisError
        For an axis that is not there.
    ShapeError
        For one that is named twice.
    """
    if axis is None:
        return tuple(range(ndim))
    named = axis if isinstance(axis, tuple) else (axis,)
    axes = []
    for one in named:
        if isinstance(one, Number):
            raise TypeError(
                f"{describe()}: the axis {one!r} is an argument of the function that is being "
                "traced, so that it is not known; make it static: itf.fuse(static=...)"
            )
        if isinstance(one, (bool, np.bool)) or not isinstance(one, (int, np.integer)):
            raise TypeError(f"{describe()}: axis={axis!r} is no integer, tuple of them, or None")
        # NumPy takes 0 and -1 of a 0-d array where one axis is named.
        if ndim == 0 and not isinstance(axis, tuple) and one in (0, -1):
            return ()
        if not -ndim <= one < ndim:
            raise AxisError(
                f"{describe()}: axis {one} is out of bounds for the {ndim} axes of the expression"
            )
        axes.append(int(one) % ndim)
    if len(set(axes)) < len(axes):
        raise ShapeError(f"{describe()}: axis={axis} names an axis twice")
    return tuple(sorted(axes))
