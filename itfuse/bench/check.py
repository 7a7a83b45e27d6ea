"""Whether an answer is right: compared with the unfused library's, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

_BLOCK = 1 << 22  # elements compared at a time


def peer_tolerance(tolerance: float) -> float:
    """Return what peers are allowed where itfuse is allowed `tolerance`.

    They may contract `x * y + z` into one rounding, and may add floats one after the other. What
    is allowed finds one lost element of the small check all the same.
    """
    return max(8.0, 16 * tolerance)


def epsilon(dtype: Any) -> float:
    """Return the rounding step at 1: of float32 for integers, whose sums may go through it."""
    dtype = np.dtype(dtype)
    if dtype.kind in "fc":
        return float(np.finfo(dtype).eps)
    return 2.0**-7 if dtype.name == "bfloat16" else float(np.finfo(np.float32).eps)


def difference(
    xp: Any, got: Any, want: Any, tolerance: float, *, undecided: float = 0.0, dtype: Any = None
) -> str:
    """Say where `got` is not `want`.

    Parameters
    ----------
    xp : module
        NumPy or CuPy.
    got, want : array
        Of the same shape.
    tolerance : float
        Allowed difference in units of epsilon times (|want| + 1).
    undecided : float
        Share of the elements that may differ all the same.
    dtype : dtype, optional
        Whose epsilon counts; that of `want` by default.

    Returns
    -------
    str
        Empty if they agree; NaN agrees with nothing.

    Examples
    --------
    >>> difference(np, np.float32([1, 3, 2]), np.float32([1, 2, 2]), 4)
    'element 1 of 3 is 3.0, and the unfused answer 2.0'
    """
    if got.shape != want.shape:
        return f"its shape is {got.shape}, and the unfused answer's {want.shape}"
    allowed = tolerance * epsilon(want.dtype if dtype is None else dtype)
    got, want = got.reshape(-1), want.reshape(-1)
    differing, first = 0, ""
    for at in range(0, want.size, _BLOCK):
        a, b = got[at : at + _BLOCK], want[at : at + _BLOCK]
        if a.dtype.kind != "c" and (a.dtype.itemsize < 4 or a.dtype.kind in "bu"):
            a, b = a.astype("float64"), b.astype("float64")  # differences do not wrap
        good = a == b  # equal infinities too
        if allowed:
            good |= xp.abs(a - b) <= allowed * (xp.abs(b) + 1)
        if not bool(good.all()):
            wrong = xp.flatnonzero(~good)
            differing += int(wrong.size)
            spot = int(wrong[0])
            first = first or (
                f"element {at + spot} of {want.size} is {a[spot].item()}, and the unfused "
                f"answer {b[spot].item()}"
            )
    return first if differing > undecided * want.size else ""
