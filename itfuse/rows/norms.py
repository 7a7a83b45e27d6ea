"""Norms along axes, as NumPy defines them (numpy/linalg/_linalg.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse.dtypes import kind
from itfuse.errors import AxisError, ShapeError, Unsupported

_FROBENIUS = ("fro", "f")


def squared(F: Any, x: Any) -> Any:
    """Return the squares of the absolute values."""
    if kind(x.dtype) == "c":
        return F.add(F.square(F.real(x)), F.square(F.imag(x)))
    return F.square(x)


def _inexact(F: Any, x: Any) -> Any:
    x = F.asarray(x)
    return x if x.dtype.kind in "fc" else F.astype(x, np.float64)  # bfloat16 too: NumPy's answer


def _extreme(F: Any, x: Any, greatest: bool, axis: Any, keepdims: bool) -> Any:
    """Return the greatest (0 of nothing: absolute values are not less) or the least element."""
    if not greatest:
        return F.min(x, axis=axis, keepdims=keepdims)
    nothing = F.length(x, axis) == 0
    return F.max(x, axis=axis, keepdims=keepdims, initial=0 if nothing else None)


def _of_vectors(F: Any, x: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    over: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    if isinstance(ord, str):
        raise ShapeError(f"norm: {ord!r} is no order of a vector norm; give a number, or two axes")
    if ord is None or ord == 2:
        return F.sqrt(F.sum(squared(F, x), **over))
    if ord in (np.inf, -np.inf):
        return _extreme(F, F.absolute(x), ord > 0, axes, keepdims)
    if ord == 0:
        return F.astype(F.sum(F.not_equal(x, 0), **over), F.absolute(x).dtype)
    if ord == 1:
        return F.sum(F.absolute(x), **over)
    return F.power(F.sum(F.power(F.absolute(x), float(ord)), **over), 1 / float(ord))


def _of_matrices(F: Any, x: Any, ord: Any, axes: tuple[int, int], keepdims: bool) -> Any:
    """Return the norms of matrices whose rows are counted along `axes[0]`."""
    both = tuple(sorted(axes))
    if ord is None or ord in _FROBENIUS:
        return F.sqrt(F.sum(squared(F, x), axis=both, keepdims=keepdims))
    if ord in (2, -2, "nuc"):
        raise Unsupported(f"norm: ord={ord!r} of a matrix needs a decomposition; compute() the "
                          "expression and use cupy.linalg.norm or numpy.linalg.norm")  # fmt: skip
    if ord not in (1, -1, np.inf, -np.inf):
        raise ShapeError(f"norm: {ord!r} is no order of a matrix norm")
    inner, outer = axes if abs(ord) == 1 else axes[::-1]
    sums = F.sum(F.absolute(x), axis=inner, keepdims=True)
    return _extreme(F, sums, ord > 0, outer if keepdims else both, keepdims)


def norm(F: Any, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Vector norms along one axis, matrix norms along two; of everything without `ord`."""
    x = _inexact(F, x)
    axes = F.axes(x, axis)
    if axis is None and (ord is None or (x.ndim == 2 and ord in _FROBENIUS)):
        return _of_vectors(F, x, None, axes, keepdims)
    if x.ndim == 0 and isinstance(axis, (int, np.integer)):
        raise AxisError(f"norm: axis {axis} is out of bounds for the 0 axes of the expression")
    if len(axes) not in (1, 2):
        raise ShapeError(
            f"norm: ord={ord!r} along {len(axes)} axes; give one axis, or two, or use "
            "itf.vector_norm, which takes any"
        )
    if len(axes) == 1:
        return _of_vectors(F, x, ord, axes, keepdims)
    first, second = axes if axis is None else (F.axes(x, one)[0] for one in axis)
    return _of_matrices(F, x, ord, (first, second), keepdims)


def vector_norm(
    F: Any, x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> Any:  # fmt: skip
    """Vector norm of all elements along the axes taken together, however many axes they are."""
    x = _inexact(F, x)
    return _of_vectors(F, x, ord, F.axes(x, axis), keepdims)


def matrix_norm(F: Any, x: Any, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Matrix norm along the last two axes."""
    x = _inexact(F, x)
    if x.ndim < 2:
        raise AxisError(f"matrix_norm: the operand has {x.ndim} axes; a matrix has two")
    return _of_matrices(F, x, ord, (x.ndim - 2, x.ndim - 1), keepdims)
