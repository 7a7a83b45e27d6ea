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

import os
from pathlib import Path
from typing import Any

from itfuse import (  # these install functions
    arranging,  # noqa: F401
    conversion,  # noqa: F401
    counting,  # noqa: F401
    creation,  # noqa: F401
    differences,  # noqa: F401
    editing,  # noqa: F401
    engines,
    iterator,  # noqa: F401
    joining,  # noqa: F401
    linalg,
    numeric,  # noqa: F401
    operators,  # noqa: F401
    ordering,  # noqa: F401
    padding,  # noqa: F401
    placement,  # noqa: F401
    protocol,  # noqa: F401
    random,
    scans,  # noqa: F401
    segmented,  # noqa: F401
    segments,  # noqa: F401
    selection,  # noqa: F401
    unique,  # noqa: F401
)
from itfuse.array import Array, compute, explain, plan, spec
from itfuse.config import config
from itfuse.custom import CppFunction, cpp_function, reduce
from itfuse.dtypes import DTYPES
from itfuse.errors import (
    AliasError,
    AxisError,
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
    TraceError,
    Unsupported,
)
from itfuse.functions import FUNCTIONS
from itfuse.fused import fuse
from itfuse.graph import graph
from itfuse.plan.stages import Note, Plan, Stage
from itfuse.profile import Profile, profile
from itfuse.python import map
from itfuse.selected import Selected
from itfuse.standard import CONSTANTS, VERSION, namespace_info
from itfuse.visual import visualize

__version__ = "0.1.0"

__array_api_version__ = VERSION
__array_namespace_info__ = namespace_info
globals().update(CONSTANTS)
globals().update(FUNCTIONS)


def load(path: str | os.PathLike[str]) -> int:
    """Use the compiled code of a file that `itfuse build` made; see `itfuse.ahead.load`."""
    from itfuse.ahead import load as load_file  # noqa: PLC0415 - needed by few, imports much

    return load_file(Path(path))


def __getattr__(name: str) -> Any:
    # The library of this dtype takes a second to import: only where it is asked for.
    if name == "bfloat16" and name in DTYPES:
        return DTYPES[name].numpy
    raise AttributeError(f"module 'itfuse' has no attribute {name!r}")


__all__ = [
    "AliasError",
    "Array",
    "AxisError",
    "BoundsError",
    "CacheError",
    "CompileError",
    "ConfigError",
    "CppFunction",
    "DTypeError",
    "DeviceError",
    "ItfuseError",
    "NeedsBuffer",
    "Note",
    "Plan",
    "PlanError",
    "Profile",
    "RangeError",
    "Selected",
    "ShapeError",
    "Stage",
    "TraceError",
    "Unsupported",
    "compute",
    "config",
    "cpp_function",
    "engines",
    "explain",
    "fuse",
    "graph",
    "linalg",
    "load",
    "map",
    "plan",
    "profile",
    "random",
    "reduce",
    "spec",
    "visualize",
    *CONSTANTS,
    *FUNCTIONS,
]
