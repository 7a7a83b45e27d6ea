"""Explicit kernel fusion for CuPy arrays: one deterministic device pass for each pipeline.

You write array expressions; nothing runs. `compute` runs each pipeline as one pass: every input
read once, every output written once, no intermediate array. `explain` says beforehand what it
will do.

Examples
--------
>>> import itfuse as itf, numpy as np
>>> x = itf.asarray(np.array([3.0, -4.0], np.float32))    # a CuPy array runs on its GPU
>>> y = itf.maximum(x * 2 + 1, 0)                         # lazy
>>> y.compute()
array([7., 0.], dtype=float32)
>>> float(itf.sqrt((x * x).sum()).compute())              # one pass
5.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from itfuse import creation, engines, indexing, joining, manipulation  # noqa: F401 - they install
from itfuse.array import Array, asarray, compute, explain, plan, spec
from itfuse.config import config
from itfuse.errors import (
    AliasError,
    BoundsError,
    CacheError,
    CompileError,
    ConfigError,
    DeviceError,
    DTypeError,
    ItfuseError,
    NeedsBuffer,
    PlanError,
    RangeError,
    ShapeError,
    Unsupported,
)
from itfuse.functions import FUNCTIONS
from itfuse.plan.stages import Note, Plan, Stage

__version__ = "0.1.0"

globals().update(FUNCTIONS)

if TYPE_CHECKING:  # the functions of the op table

    def __getattr__(name: str) -> Callable[..., Any]: ...


__all__ = [
    "AliasError",
    "Array",
    "BoundsError",
    "CacheError",
    "CompileError",
    "ConfigError",
    "DTypeError",
    "DeviceError",
    "ItfuseError",
    "NeedsBuffer",
    "Note",
    "Plan",
    "PlanError",
    "RangeError",
    "ShapeError",
    "Stage",
    "Unsupported",
    "asarray",
    "compute",
    "config",
    "engines",
    "explain",
    "plan",
    "spec",
    *FUNCTIONS,
]
