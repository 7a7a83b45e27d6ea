"""An expression as an iterator of cuda.compute, for its own algorithms."""

from __future__ import annotations

from typing import Any

import cuda.compute as cc
import numpy as np
from cuda.compute.op import RawOp

from itfuse.cache import digest
from itfuse.engines.cuda import compile as nvrtc
from itfuse.engines.cuda.cub import value_type
from itfuse.lower.cpp import lower
from itfuse.plan.stages import Stage


class ExpressionIterator(cc.TransformIterator):  # type: ignore[misc]
    """The elements of an expression in row-major order, computed where they are read.

    Attributes
    ----------
    shape : tuple of int
        Shape of the expression.
    dtype : numpy.dtype
        Its dtype.
    arrays : tuple
        What it reads, kept alive.
    """

    __slots__ = ("arrays", "dtype", "shape")

    def advance(self, offset: int) -> ExpressionIterator:
        """Return the iterator `offset` elements further, which keeps the arrays alive too."""
        moved = ExpressionIterator(self._underlying + offset, self._transform_op, self._value_type)
        moved.arrays, moved.dtype, moved.shape = self.arrays, self.dtype, self.shape
        return moved


def iterator(
    stage: Stage, operands: list[Any], arch: str, arrays: tuple[Any, ...]
) -> ExpressionIterator:
    """Make an iterator of a transform's one result.

    Parameters
    ----------
    stage : Stage
        A transform.
    operands : list of int
        Addresses; for scalars their values.
    arch : str
        The architecture that it is compiled for.
    arrays : tuple
        What must live as long as the iterator.
    """
    lowered = lower(stage, f"itf_{digest(stage)}")
    function = lowered.functions["element"]
    # The state is part of no key of cuda.compute's: other arrays and scalars build nothing.
    op = RawOp(
        ltoir=nvrtc.ltoir(function.source, arch),
        name=function.symbol,
        state=lowered.state.pack(stage, operands),
        state_alignment=8,
        extra_ltoirs=list(nvrtc.beside(function.source, arch).values()),
    )
    item = value_type(stage.element.result_dtypes, "Item")
    made = ExpressionIterator(cc.CountingIterator(np.int64(0)), op, item)
    made.arrays = arrays
    made.dtype, made.shape = np.dtype(stage.outputs[0].dtype), stage.outputs[0].shape
    return made
