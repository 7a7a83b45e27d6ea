"""`itf.linalg`: what NumPy's users write with `np.linalg.` that is a fused pass.

Not the array API's extension of that name: there are no matrix products and no decompositions.
"""

from __future__ import annotations

from typing import Any

from itfuse.functions import FUNCTIONS

NAMES = ("norm", "vector_norm", "matrix_norm", "vecdot", "matrix_transpose", "diagonal")
__all__ = list(NAMES)


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return FUNCTIONS[name]
    raise AttributeError(
        f"itfuse.linalg has no {name!r}: it is no fused pass; compute() the expression and use "
        f"cupy.linalg or numpy.linalg. There are {', '.join(NAMES)}"
    )
