"""Counting: `bincount`, `histogram` and what belongs to them.

All are one terminal: how many elements, or which sum of weights, have a place, which is an
expression like any other. The arithmetic of the places is NumPy's
(numpy/lib/_histograms_impl.py), element by element.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from itfuse import wording
from itfuse.array import Array, asarray
from itfuse.errors import DTypeError, ShapeError, Unsupported
from itfuse.functions import FUNCTIONS as F
from itfuse.ops import HISTOGRAM
from itfuse.terminals import flat, integers, known, lifted, on_device, terminal
from itfuse.wording import Lazily

_INT64 = np.dtype(np.int64)
_SPAN = 1 << 16
"""NumPy's histogram adds up weights of so many elements in float64, and these sums in turn."""


def _tally(  # noqa: PLR0917 - what makes a histogram
    shown: Sequence[Array], places: Array, weights: Array | None, bins: int, dtype: Any, name: str,
    span: int = 0,
) -> Array:  # fmt: skip
    fused = [places] if weights is None else [places, weights]
    if weights is not None:
        shown = [*shown, weights]
    label = ", ".join(f"{{{at}}}" for at in range(len(shown)))
    return terminal(
        HISTOGRAM, fused, [], places.shape, dtype, (bins,), f"{name}({label})", (span,), shown=shown
    )  # fmt: skip


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """Count how often each integer comes, or sum its weights.

    Parameters
    ----------
    x : array
        Integers that are not negative; one axis.
    weights : array, optional
        A number for each element.
    minlength : int
        The result has at least this length.
    length : int, optional
        The length of the result: elements at other places are not counted, nor negative ones,
        which would take a pass to find before there is a result (those of a list raise). Without
        it that pass over `x` finds the least and the greatest one first, and waits for them.

    Returns
    -------
    Array
        int64, or float64 with weights. Counts are the same bits on every engine; weights are added
        in the order of the elements.

    Raises
    ------
    DTypeError
        If `x` does not cast safely to int64.
    ShapeError
        If an element is negative (without `length`), or `x` has not one axis, as in NumPy.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.bincount(itf.asarray([1, 1, 3])).compute()
    array([0, 2, 0, 1])
    >>> itf.bincount(itf.asarray([1, 1, 7]), length=3).compute()
    array([0, 2, 0])
    """
    given, x = x, asarray(x)
    what = Lazily(lambda: f"bincount({wording.text(x._node)})")
    if x.ndim != 1:
        raise ShapeError(f"{what}: the operand has {x.ndim} axes, and one is needed; .ravel() it")
    if x.dtype == np.uint64:  # NumPy casts it, too: there is no array of so many places
        places = x.astype(np.int64)
    else:
        if x.size == 0 and not isinstance(given, (list, tuple)):  # of a list NumPy takes none
            _safe(x.dtype, what)
        places = integers(x, what)
    if operator.index(minlength) < 0:
        raise ShapeError(f"{what}: minlength={minlength} is negative")
    if weights is not None:
        weights = lifted(weights, x)
        if weights.shape != x.shape:
            raise ShapeError(
                f"{what}: weights have the shape {weights.shape}, and the operand {x.shape}"
            )
        if not np.can_cast(weights.dtype, np.float64, "safe"):
            raise DTypeError(f"{what}: weights of {weights.dtype} do not cast safely to float64")
        weights = weights.astype(np.float64)
    size = _length(places, given, minlength, length, what)
    # Of nothing NumPy returns counts, whatever the weights.
    dtype = _INT64 if weights is None or x.size == 0 else np.dtype(np.float64)
    weights = weights if x.size else None
    return _tally([x], places, weights, size, dtype, "bincount")


def _length(places: Array, given: Any, minlength: int, length: int | None, what: object) -> int:
    """Return how many places are counted."""
    if length is not None:
        if operator.index(length) < 0:
            raise ShapeError(f"{what}: length={length} is negative")
        if not (isinstance(given, (list, tuple)) and given):
            return operator.index(length)
        low, high = min(given), length - 1
    elif places.size == 0:
        return minlength
    else:
        low, high = known(what, F["min"](places), F["max"](places))
    if low < 0:
        raise ShapeError(f"{what}: an element is {low}; there is no place for negative ones")
    return high + 1 if length is not None else max(high + 1, minlength)


def _safe(dtype: np.dtype[Any], what: object) -> None:
    if not np.can_cast(dtype, _INT64, "safe"):
        raise DTypeError(f"{what}: {dtype} does not cast safely to int64; .astype('int64') it")


# ---- bins ------------------------------------------------------------------------------------
def _edges(x: Array, bins: Any, limits: Any, what: object) -> tuple[Any, Any]:
    """Return edges as NumPy makes them, and (first, last) if they are evenly spaced."""
    if isinstance(bins, str):
        raise Unsupported(
            f"{what}: bins={bins!r} are estimated from the data; compute() it, and give bins="
            f"np.histogram_bin_edges(array, {bins!r})"
        )
    if np.ndim(bins):
        edges = bins.compute() if isinstance(bins, Array) else bins
        edges = edges.get() if hasattr(edges, "get") else np.asarray(edges)
        if edges.ndim != 1:
            raise ShapeError(f"{what}: bins have {edges.ndim} axes; give one axis of edges")
        if (edges[:-1] > edges[1:]).any():
            raise ShapeError(f"{what}: the edges must not decrease")
        return edges, None
    sample = np.empty(0, x.dtype)
    if limits is None and x.size:
        # The edges follow from the least and the greatest element alone.
        sample = np.array(known(what, F["min"](x), F["max"](x)), x.dtype)
    try:
        edges = np.histogram_bin_edges(sample, bins, limits)
    except ValueError as why:
        raise ShapeError(f"{what}: {why}") from None
    if limits is None:
        first, last = (sample[0], sample[1]) if sample.size else (0, 1)
    else:
        first, last = limits
    if first == last:
        first, last = first - 0.5, last + 0.5
    return edges, (first, last)


def _unsigned(dtype: Any) -> Any:
    """Return the dtype in which NumPy subtracts: unsigned, so that it cannot overflow."""
    dtype = np.dtype(dtype)
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind == "i" else dtype


def _places(x: Any, edges: Any, even: Any) -> Any:
    """Return the bin of each element; -1 or beyond the last for those outside."""
    bins = len(edges) - 1
    if even is None:
        return _places_between(x, edges)
    first, last = even
    keep = (x >= first) & (x <= last)
    inner = x.astype(edges.dtype)
    kind = np.result_type(inner.dtype, first)
    apart: Any = inner.astype(kind) - np.asarray(first).astype(kind)[()]
    width = _width(first, last)
    scaled = apart / width * bins
    at = F["where"](keep, scaled, scaled.dtype.type(0)).astype(_INT64)
    at = at - (at == bins)
    lower = on_device(edges, x)
    at = at - (inner < F["take"](lower, F["clip"](at, 0, bins - 1)))
    upper = F["take"](lower, F["clip"](at + 1, 0, bins))
    at = at + ((inner >= upper) & (at != bins - 1))
    return F["where"](keep, at, np.int64(-1))


def _width(first: Any, last: Any) -> Any:
    """Return last - first as NumPy's histogram computes it."""
    dtype = np.result_type(last, first)
    if dtype.kind != "i":
        return np.subtract(last, first, dtype=dtype)
    return np.subtract(
        np.asarray(last, dtype), np.asarray(first, dtype), casting="unsafe", dtype=_unsigned(dtype)
    )


def _places_between(x: Any, edges: Any) -> Any:
    """Return the bins of elements between edges at any distances."""
    bins = len(edges) - 1
    known_edges: Any = on_device(edges, x)
    at = F["searchsorted"](known_edges, x, side="right") - 1
    last = known_edges[-1:]
    return F["where"](x == last, np.int64(bins - 1), F["where"](x < last, at, np.int64(-1)))


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Array, Any]:
    """Count the elements in bins; the last bin includes its right edge.

    Parameters
    ----------
    a : array
        The elements, flattened.
    bins : int or array
        The number of bins of one width, or all edges.
    range : (float, float), optional
        The outer edges. Without it a pass over `a` finds them first, and waits for it.
    density : bool, optional
        Whether to return a density, whose integral over the range is 1.
    weights : array, optional
        A number for each element, in the shape of `a`. Between edges that are given, sums are
        added directly; NumPy takes differences of cumulative sums, which are less accurate.

    Returns
    -------
    counts : Array
        int64; with weights their dtype; a density float64. One pass over `a` when computed.
    edges : array
        The edges, on the device of `a`, in NumPy's dtype.

    Raises
    ------
    ShapeError
        If edges decrease, the range is not finite, or weights have another shape.

    Examples
    --------
    >>> import itfuse as itf
    >>> counts, edges = itf.histogram(itf.asarray([0.0, 0.5, 2.0]), bins=2, range=(0, 2))
    >>> counts.compute(), edges
    (array([2, 1]), array([0., 1., 2.]))
    """
    a = asarray(a)
    what = Lazily(lambda: f"histogram({wording.text(a._node)})")
    x = flat(a)
    if x.dtype == bool:
        x = x.astype(np.uint8)
    span, dtype = 0, _INT64
    if weights is not None:
        weights = lifted(weights, x)
        if weights.shape != a.shape:
            raise ShapeError(
                f"{what}: weights have the shape {weights.shape}, and the elements {a.shape}"
            )
        weights, dtype, span = flat(weights), weights.dtype, _SPAN
    edges, even = _edges(x, bins, range, what)
    if len(edges) < 2:
        return F["zeros"](0, dtype=dtype), edges
    places = _places(x, edges, even)
    counts: Any = _tally([x], places, weights, len(edges) - 1, dtype, "histogram", span)
    if density:
        widths = on_device(np.diff(edges).astype(np.float64), x)
        counts = counts / widths / F["sum"](counts)
    return counts, _given_back(edges, x)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """Return the edges that `histogram` counts between.

    Parameters
    ----------
    a : array
        The elements, flattened.
    bins, range : optional
        As for `histogram`. Without a range or edges a pass over `a` finds the outer ones, and waits
        for it.
    weights : array, optional
        Accepted for NumPy's sake: only estimated bins would look at them.

    Returns
    -------
    array
        The edges, on the device of `a`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.histogram_bin_edges(itf.asarray([0.0, 2.0, 8.0]), bins=4)
    array([0., 2., 4., 6., 8.])
    """
    x = flat(a)
    what = Lazily(lambda: f"histogram_bin_edges({wording.text(x._node)})")
    edges, _ = _edges(x.astype(np.uint8) if x.dtype == bool else x, bins, range, what)
    return _given_back(edges, x)


def _given_back(edges: Any, x: Array) -> Any:
    """Return edges as an array of the library of `x`."""
    if not x.device.startswith("cuda"):
        return edges
    leaf = on_device(edges, x)
    return leaf._data[leaf._node]


def histogram2d(  # noqa: PLR0917 - NumPy's arguments
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, Any, Any]:  # fmt: skip
    """Count pairs in the bins of a plane; see `histogramdd`.

    Returns
    -------
    counts : Array
        float64, of shape (bins of x, bins of y).
    x_edges, y_edges : array

    Examples
    --------
    >>> import itfuse as itf
    >>> counts, _, _ = itf.histogram2d([0, 1, 1], [0, 0, 1], bins=2)
    >>> counts.compute()
    array([[1., 0.],
           [1., 1.]])
    """
    if hasattr(bins, "__len__") and len(bins) not in (1, 2):
        bins = [bins, bins]
    counts, edges = histogramdd((x, y), bins, range, density, weights)
    return (counts, *edges)  # type: ignore[return-value]


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, list[Any]]:  # fmt: skip
    """Count points in the bins of a space of any number of axes.

    Parameters
    ----------
    sample : sequence of array, or array of shape (points, axes)
        Coordinates.
    bins : int, or sequence of int or edges
        For all axes, or one for each.
    range : sequence of (float, float) or None, optional
        Outer edges for each axis; without them a pass finds them first, and waits for it.
    density : bool, optional
        Whether to return a density, whose integral is 1.
    weights : array, optional
        A number for each point.

    Returns
    -------
    counts : Array
        float64, one axis for each coordinate.
    edges : list of array

    Raises
    ------
    ShapeError
        If `bins`, `range` or `weights` do not fit the sample.

    Examples
    --------
    >>> import itfuse as itf
    >>> counts, edges = itf.histogramdd(([0, 1, 1], [0, 0, 1]), bins=(2, 1))
    >>> counts.compute()
    array([[1.],
           [2.]])
    """
    if isinstance(sample, (list, tuple)):
        axes = [flat(one) for one in sample]
        common = np.result_type(*(x.dtype for x in axes))  # NumPy makes one array of them
        axes = [x.astype(common) for x in axes]
    else:
        sample = asarray(sample)
        sample = sample.reshape(-1, 1) if sample.ndim == 1 else sample
        axes = [sample[:, at] for at in np.arange(sample.shape[1]).tolist()]
    what = Lazily(lambda: f"histogramdd({', '.join(wording.text(x._node) for x in axes)})")
    if len({x.shape for x in axes}) != 1:
        raise ShapeError(f"{what}: the coordinates differ in length")
    count = len(axes)
    wanted: Sequence[Any] = bins if hasattr(bins, "__len__") else [bins] * count
    limits: Sequence[Any] = [None] * count if range is None else range
    if len(wanted) != count or len(limits) != count:
        raise ShapeError(f"{what}: bins and range need one entry for each of {count} axes")
    place: Any = np.int64(0)
    outside: Any = None
    found = []
    for one, some, limit in zip(axes, wanted, limits, strict=True):
        # NumPy's histogramdd looks up every element between the edges, also where they are even.
        x = one.astype(np.uint8) if one.dtype == bool else one
        edges = _edges_dd(x, some, limit, what)
        at = _places_between(x, edges)
        beyond: Any = at < 0
        outside = beyond if outside is None else outside | beyond
        place = place * (len(edges) - 1) + at
        found.append(edges)
    shape = tuple(len(edges) - 1 for edges in found)
    place = F["where"](outside, np.int64(-1), place)
    if weights is not None:
        weights = flat(weights)
        if weights.shape != axes[0].shape:
            raise ShapeError(f"{what}: weights have the shape {weights.shape}")
        weights = weights.astype(np.float64)
    dtype = _INT64 if weights is None else np.dtype(np.float64)
    total = int(np.prod(shape))
    counts: Any = _tally(axes, place, weights, total, dtype, "histogramdd")
    counts = F["reshape"](counts.astype(np.float64), shape)
    if density:
        whole = F["sum"](counts)
        for axis, edges in enumerate(found):
            sizes = [1] * count
            sizes[axis] = shape[axis]
            counts = counts / F["reshape"](on_device(np.diff(edges), axes[0]), tuple(sizes))
        counts = counts / whole
    return counts, [_given_back(edges, axes[0]) for edges in found]


def _edges_dd(x: Array, bins: Any, limits: Any, what: object) -> Any:
    """Return the edges along an axis as `numpy.histogramdd` makes them."""
    sample = np.empty((0, 1), x.dtype)
    if np.ndim(bins) == 0 and limits is None and x.size:
        sample = np.array(known(what, F["min"](x), F["max"](x)), x.dtype).reshape(-1, 1)
    some = bins.compute() if isinstance(bins, Array) else bins
    try:
        return np.histogramdd(sample, [some], None if limits is None else [limits])[1][0]
    except ValueError as why:
        raise ShapeError(f"{what}: {why}") from None


def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """Return the number of the bin that each element belongs to.

    Parameters
    ----------
    x : array
        The elements.
    bins : array
        Edges of one axis, ascending or descending.
    right : bool
        Whether bins include their right edge instead of their left one.

    Returns
    -------
    Array
        int64, of the shape of `x`: 0 before the first edge, `len(bins)` behind the last. It is
        fused like any other elementwise operation.

    Raises
    ------
    ShapeError
        If the edges are neither ascending nor descending.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.digitize(itf.asarray([0.2, 6.4, 3.0]), [0.0, 1.0, 2.5, 4.0, 10.0]).compute()
    array([1, 4, 3])
    """
    x = asarray(x)
    what = Lazily(lambda: f"digitize({wording.text(x._node)}, ...)")
    if x.dtype.kind == "c":
        raise DTypeError(f"{what}: complex numbers have no order")
    edges = bins.compute() if isinstance(bins, Array) else bins
    edges = edges.get() if hasattr(edges, "get") else np.asarray(edges)
    if edges.ndim != 1:
        raise ShapeError(f"{what}: bins have {edges.ndim} axes; give one axis of edges")
    up, down = bool((edges[:-1] <= edges[1:]).all()), bool((edges[:-1] >= edges[1:]).all())
    if not up and not down:
        raise ShapeError(f"{what}: bins must ascend or descend")
    side = "left" if right else "right"
    if up:
        return F["searchsorted"](on_device(edges, x), x, side=side)  # type: ignore[no-any-return]
    backwards = on_device(edges[::-1].copy(), x)
    found: Array = len(edges) - F["searchsorted"](backwards, x, side=side)
    return found


_PUBLIC = (bincount, histogram, histogram_bin_edges, histogram2d, histogramdd, digitize)
F.update({one.__name__: one for one in _PUBLIC})
