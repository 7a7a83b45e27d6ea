"""Inputs of a case, and its right answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.bench.case import Case
from itfuse.bench.peers.base import NotForThis
from itfuse.bench.peers.own import expressions
from itfuse.bench.result import Settings
from itfuse.bench.timing import CpuDevice, Device


@dataclass(frozen=True)
class Arrays:
    """A set of arrays of a case."""

    inputs: tuple[Any, ...]
    out: Any  # None where the case has several results or the data decide the shape
    spare: Any  # the copy's target, and where an elementwise unfused answer goes


def arrays_of(device: Device, case: Case, size: int, settings: Settings, number: int) -> Arrays:
    """Return inputs of a case, a place for its answer, and a place to copy the first input to."""
    dtype = case.dtype or settings.dtype
    seed = settings.seed + 100 * number
    inputs = tuple(
        device.random(shape, dtype, seed + k) for k, shape in enumerate(case.shapes(size))
    )
    if case.prepare:
        inputs = case.prepare(device.xp, *inputs)
    spare = device.xp.empty_like(inputs[0])
    spare.fill(0)
    out = None
    if case.results == 1 and not case.dynamic and not case.allocates:
        shape, kind = _result(device, case, inputs, settings)
        # Filled, so that a fresh page costs nobody's first timing.
        out = device.xp.empty(shape, kind)
        out.fill(nothing(out.dtype))
    return Arrays(inputs, out, spare)


def _result(device: Device, case: Case, inputs: tuple[Any, ...], settings: Settings) -> Any:
    """Return shape and dtype of the answer: itfuse's, or those of the library on a small one."""
    try:
        (made,) = expressions(case, inputs)
    except NotForThis:
        short = tuple(x[: max(1, min(len(x), 4096))] for x in inputs)
        made = case.form(device.xp, *short)
        if made.ndim and inputs[0].shape != short[0].shape:
            scale = inputs[0].shape[0] if made.shape[0] == short[0].shape[0] else made.shape[0]
            return (scale, *made.shape[1:]), made.dtype
    return made.shape, made.dtype


def nothing(dtype: Any) -> Any:
    """Return what an answer is filled with beforehand, so that what is not written is seen."""
    return np.nan if dtype.kind in "fc" or dtype.name == "bfloat16" else dtype.type(113)


def answer(device: Device, case: Case, arrays: Arrays) -> tuple[Any, ...]:
    """Return the unfused library's answer, in arrays that nobody else writes.

    Where the GPU's library has no such operation in this dtype, NumPy's answer counts.
    """
    try:
        return _answer(device, case, arrays)
    except (TypeError, NotImplementedError, AttributeError):
        if device.library == "numpy":
            raise
    hosts = CpuDevice()
    inputs = tuple(x.get() for x in arrays.inputs)
    made = _answer(hosts, case, Arrays(inputs, None, inputs[0]))
    return tuple(device.xp.asarray(one) for one in made)


def _answer(device: Device, case: Case, arrays: Arrays) -> tuple[Any, ...]:
    if case.truth is not None:
        right = case.truth(device.xp, *arrays.inputs)
        return right if isinstance(right, tuple) else (right,)
    spare = arrays.spare
    usable = arrays.out is not None and (spare.shape, spare.dtype) == (
        arrays.out.shape,
        arrays.out.dtype,
    )
    made = case.form(device.xp, *arrays.inputs, out=spare if usable else None)
    return tuple(made) if isinstance(made, tuple) else (made,)
