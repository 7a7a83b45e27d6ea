"""Placement: writing elements at computed places."""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse import wording
from itfuse.array import Array, asarray
from itfuse.errors import DTypeError, ShapeError, Unsupported
from itfuse.expr import broadcast
from itfuse.functions import FUNCTIONS as F
from itfuse.ops import SCATTER
from itfuse.terminals import integers, lifted, terminal
from itfuse.wording import Lazily

_MODES = ("set", "add", "min", "max")


def put(out: Any, index: Any, values: Any, mode: str = "set", *, ordered: bool = False) -> Array:
    """Return `out` with values written at computed places of it.

    Computed into `out` itself, nothing but these elements is touched; elsewhere `out` is copied
    first: `itf.put(a, index, x * 2, "add").compute(out=a)` is one pass over the index and x.

    Parameters
    ----------
    out : array
        What is written into. If it is no array in row-major order, a pass writes it to memory
        first.
    index : array of integers
        Row-major places in `out`; negative ones count from its end.
    values : array
        Broadcast together with `index`; converted to the dtype of `out`, as an assignment does.
    mode : str
        `set`; or what happens to the element that is there: `add`, `min`, `max`.
    ordered : bool
        Whether a GPU must give the same bits in every run where a place comes more than once. It
        then sorts the places first (`set` keeps the last element of each, `add` adds their sum
        once), in several passes that the plan shows, and reads and writes all of `out`. What has
        the same bits in any order (`min`, `max`, sums of integers) stays one pass.

    Returns
    -------
    Array
        Of the shape and dtype of `out`. Where a place comes more than once, the CPU engine writes
        in order. On a GPU the order is not defined without `ordered`: of two elements `set` at one
        place either stays, and floats are not added to the same bits every time, as the plan
        notes. A place out of bounds is an error on the CPU; on a GPU nothing is written there.

    Raises
    ------
    BoundsError
        On the CPU, when it is computed.
    ShapeError, DTypeError, Unsupported
        If shapes do not fit, the index is not of integers, or there is no such mode.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> itf.put(itf.zeros(4), [1, 3, 1], itf.asarray([1.0, 2.0, 3.0]), "add").compute()
    array([0., 4., 0., 2.])
    """
    base = asarray(out)
    place = lifted(index, base)
    alone = isinstance(values, (bool, int, float, complex, np.generic))
    value = F["full"]((), values, dtype=base.dtype) if alone else lifted(values, base)
    what = Lazily(lambda: f"put({wording.text(base._node)}, {wording.text(place._node)}, ...)")
    if mode not in _MODES:
        raise Unsupported(f"{what}: mode={mode!r}; there are {', '.join(_MODES)}")
    if base.dtype.kind == "c" and mode in ("min", "max"):
        raise DTypeError(f"{what}: complex numbers have no {mode}")
    places: Any = integers(place, what)
    domain = broadcast((place.shape, value.shape), lambda: str(what))
    size = base.size
    if size == 0 and np.prod(domain):
        raise ShapeError(f"{what}: there is no place in an array without elements")
    if np.prod(domain) == 0:
        return base
    wrapped = F["where"](places < 0, places + size, places)
    if domain == ():
        domain, wrapped = (1,), F["reshape"](wrapped, (1,))
    if base.shape == ():
        one = put(F["reshape"](base, (1,)), place, value, mode, ordered=ordered)
        return F["reshape"](one, ())  # type: ignore[no-any-return]
    said = ("" if mode == "set" else f", {mode!r}") + (", ordered=True" if ordered else "")
    label = f"put({{0}}, {{1}}, {{2}}{said})"
    options = (mode, "ordered") if ordered else (mode,)
    return terminal(
        SCATTER, [wrapped, value.astype(base.dtype)], [base], domain, base.dtype, base.shape, label,
        options, shown=(base, place, value),
    )  # fmt: skip


F["put"] = put
