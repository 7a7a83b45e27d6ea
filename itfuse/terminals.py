"""What the functions of terminals share: how one is made, and values that have to be known first.

A terminal (a histogram, a sort, a segmented reduction, ...) runs in a pass of its own, which
computes its operands on the way. Its result is an expression like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from itfuse import engines, expr, wording
from itfuse.array import Array, asarray, combine, compute, place_of, spec
from itfuse.containers import no_expressions
from itfuse.errors import DeviceError, DTypeError, TraceError
from itfuse.functions import FUNCTIONS
from itfuse.ops import BUFFER, INPUT
from itfuse.plan.index import How
from itfuse.rows.op import Op
from itfuse.wording import Lazily


def terminal(  # noqa: PLR0917 - what makes a terminal
    op: Op,
    fused: Sequence[Array],
    whole: Sequence[Array],
    domain: tuple[int, ...],
    dtype: Any,
    shape: tuple[int, ...],
    label: str,
    options: tuple[Any, ...] = (),
    side: int = 0,
    shown: Sequence[Array] = (),
) -> Array:
    """Return a terminal over expressions (`fused`, broadcast to `domain`) and arrays (`whole`).

    `label` is a template of what it is `shown` to be of, or else of all operands.
    """
    arrays = [*fused, *whole]
    what = Lazily(lambda: label.format(*(wording.text(x._node) for x in shown or arrays)))
    data, device = combine(arrays, lambda: str(what))
    how = How(domain, len(fused), options, side, label, tuple(x._node for x in shown))
    node = expr.make(op, tuple(x._node for x in arrays), np.dtype(dtype), shape, how)
    return Array(node, data, device)


def known(what: object, *values: Array) -> list[Any]:
    """Compute single values that decide a size, and wait for them.

    Raises
    ------
    DeviceError
        For placeholders, which have no values.
    TraceError
        Inside a fused function.
    """
    if place_of(values[0].device) == "none":
        raise DeviceError(
            f"{what}: a size follows from values, and placeholders have none; give the size"
        )
    try:
        found = compute(*values)
    except TraceError:
        raise TraceError(
            f"{what}: a size follows from values, which are not known yet inside a fused function; "
            "give the size (length=, range=, num_segments=), or compute it outside"
        ) from None
    return [one.item() for one in (found if len(values) > 1 else (found,))]


def lifted(x: Any, beside: Array) -> Array:
    """Return an operand; numbers and lists go where `beside` is."""
    no_expressions(x, "asarray")
    of_host = isinstance(x, (list, tuple, bool, int, float, complex, np.generic))
    return on_device(np.asarray(x), beside) if of_host else asarray(x)


def on_device(array: Any, beside: Array) -> Array:
    """Return a small array of the host, such as edges, where `beside` is."""
    if isinstance(array, Array):
        return array
    if beside.device == "none":
        return spec(array.shape, array.dtype)
    if isinstance(array, np.ndarray) and beside.device.startswith("cuda"):
        array = engines.upload(array, beside.device)
    return asarray(array)


def flat(x: Any) -> Array:
    """Return an operand with one axis."""
    x = asarray(x)
    return x if x.ndim == 1 else x.ravel()  # type: ignore[attr-defined, no-any-return]


def integers(x: Array, what: object) -> Array:
    """Return `x` as int64, which places are counted in.

    Raises
    ------
    DTypeError
        If NumPy's safe casting does not allow it, as in `numpy.bincount`.
    """
    if x.size == 0 and x.dtype == np.float64:  # of an empty list
        return x.astype(np.int64)
    if not np.can_cast(x.dtype, np.int64, "safe"):
        raise DTypeError(f"{what}: {x.dtype} does not cast safely to int64; .astype('int64') it")
    return x.astype(np.int64)


def buffered(x: Any) -> Array:
    """Return `x`, written to memory by a pass of the plan: a buffer that you ask for.

    Nothing runs yet; what reads the result reads the array that this pass leaves. itfuse makes no
    array between passes by itself, so that what needs one (`itf.diff(x.cumsum())`) raises
    `NeedsBuffer`; with this it is two passes. It also is the way to compute once what would be
    computed again at every place that is read.

    Parameters
    ----------
    x : array
        An expression.

    Returns
    -------
    Array
        Of the same shape and dtype.

    See Also
    --------
    materialize : Computes at once, and returns the array as a leaf.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.asarray([3, 1, 2])
    >>> plan = itf.plan(itf.buffered(x.cumsum())[1:] * 2)
    >>> plan.passes, plan.bytes_temporary
    (2, 24)
    """
    lazy = asarray(x)
    if lazy._node.op is INPUT:
        return lazy
    return terminal(BUFFER, [], [lazy], lazy.shape, lazy.dtype, lazy.shape, "{0}")


FUNCTIONS["buffered"] = buffered
