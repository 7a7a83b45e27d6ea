"""NumPy's numerical functions that are compositions: choices, interpolation, products.

Each is written with the operations of the table and with views, by NumPy's own formulas and with
its signature; what is fused is what the formula says.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from itfuse import dtypes, wording
from itfuse.array import Array, asarray
from itfuse.errors import DTypeError, ShapeError, Unsupported
from itfuse.functions import FUNCTIONS, without_out
from itfuse.indexing import as_places, axis_of, beside, searchsorted
from itfuse.joining import clamped, stack
from itfuse.manipulation import expand_dims, moveaxis, ravel, reshape
from itfuse.wording import Lazily


def _what(name: str, x: Array) -> Lazily:
    return Lazily(lambda: f"{name}({wording.text(x._node)}, ...)")


def _known(x: Any) -> bool:
    """Whether the elements are on the host and not of an expression."""
    return isinstance(x, (bool, int, float, complex, list, tuple, range, np.ndarray, np.generic))


# ---- real and complex ----------------------------------------------------------------------------
def iscomplexobj(x: Any) -> bool:
    """Return whether the dtype is complex."""
    return dtypes.kind(asarray(x).dtype) == "c"


def isrealobj(x: Any) -> bool:
    """Return whether the dtype is not complex."""
    return not iscomplexobj(x)


def iscomplex(x: Any) -> Array:
    """Return whether elements have an imaginary part that is not zero."""
    return FUNCTIONS["not_equal"](FUNCTIONS["imag"](x), 0)


def isreal(x: Any) -> Array:
    """Return whether elements have no imaginary part."""
    return FUNCTIONS["equal"](FUNCTIONS["imag"](x), 0)


def real_if_close(a: Any, tol: float = 100) -> Array:
    """Return `a` if its dtype is real.

    Raises
    ------
    Unsupported
        If it is complex: the dtype of the result would depend on the elements.
    """
    x = asarray(a)
    if not iscomplexobj(x):
        return x
    raise Unsupported(
        f"{_what('real_if_close', x)}: the dtype of the result would depend on the elements; use "
        "itf.real(x), or itf.where(abs(itf.imag(x)) < eps, itf.real(x), x)"
    )


@without_out
def fix(x: Any) -> Array:
    """Return `x` rounded towards zero.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.fix(itf.asarray([1.7, -1.7])).compute()
    array([ 1., -1.])
    """
    return FUNCTIONS["trunc"](x)


# ---- choices -------------------------------------------------------------------------------------
def _conditions(condlist: Any, x: Array) -> list[Any]:
    """Return a list of conditions; as in NumPy, an array of one axis is one condition."""
    if isinstance(condlist, (Array, np.ndarray)):
        single = condlist.ndim == 0 or (condlist.ndim == 1 and x.ndim != 0)
    else:
        first = condlist[0] if isinstance(condlist, (list, tuple)) and condlist else None
        single = not isinstance(first, (list, np.ndarray, Array)) and x.ndim != 0
    return [condlist] if single or not hasattr(condlist, "__len__") else list(condlist)


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Array:
    """Return functions or numbers of `x` where conditions hold; of several the last counts.

    Parameters
    ----------
    x : array
        The operand; the result has its dtype.
    condlist : array or sequence of array
        Conditions.
    funclist : sequence of callable or scalar
        One for each; with one more, that is for where none holds, else zero. Functions are called
        with all of `x`, and must act on each element by itself.
    *args, **kw
        Passed to the functions.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.asarray([-2.0, 0.5, 3.0])
    >>> itf.piecewise(x, [x < 0, x > 1], [-1, lambda v: v * v, 0]).compute()
    array([-1.,  0.,  9.])
    """
    lazy: Any = asarray(x)
    conditions: list[Any] = [asarray(one).astype(bool) for one in _conditions(condlist, lazy)]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ShapeError(
            f"{_what('piecewise', lazy)}: {len(conditions)} conditions and {len(funclist)} "
            "functions; as many are expected, or one more"
        )
    result: Any = FUNCTIONS["zeros_like"](lazy)
    cases = list(zip(conditions, funclist, strict=False))
    if len(funclist) > len(conditions):
        none: Any = ~conditions[0]
        for one in conditions[1:]:
            none = none & ~one
        cases.append((none, funclist[-1]))
    for condition, function in cases:
        value = function(lazy, *args, **kw) if callable(function) else function
        result = FUNCTIONS["where"](condition, asarray(value).astype(lazy.dtype), result)
    return result


@without_out
def choose(a: Any, choices: Any, mode: str = "raise") -> Array:
    """Return of each place the element of the array that `a` names there.

    Parameters
    ----------
    a : integer array
        Numbers of arrays, broadcast with these.
    choices : sequence of array, or array
        The arrays, of a common dtype.
    mode : str
        `raise`: another number is an error when it is computed (on a GPU see the setting
        `bounds_check`); `wrap` or `clip`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.choose(itf.asarray([1, 0]), [[1, 2], [3, 4]]).compute()
    array([3, 2])
    """
    index: Any = asarray(a)
    what = _what("choose", index)
    arrays = [asarray(one) for one in choices]
    if not arrays:
        raise ShapeError(f"{what}: there is nothing to choose from")
    if index.dtype.kind not in "iub":
        raise DTypeError(f"{what}: the numbers must be integers, not {index.dtype}")
    index, count = index.astype(np.int64), len(arrays)
    if mode == "clip":
        index = FUNCTIONS["clip"](index, 0, count - 1)
    elif mode == "wrap":
        index = FUNCTIONS["remainder"](index, count)
    elif mode == "raise":
        index = as_places(FUNCTIONS["where"](index < 0, count, index), index, count, what)
    else:
        raise ValueError(f"{what}: mode={mode!r}; there are raise, wrap and clip")
    kind = np.result_type(*(
        given if type(given) in (bool, int, float, complex) else one.dtype
        for given, one in zip(choices, arrays, strict=True)
    ))  # fmt: skip
    result: Any = arrays[0].astype(kind)
    for number, one in enumerate(arrays[1:], 1):
        result = FUNCTIONS["where"](index == number, one.astype(kind), result)
    shape = np.broadcast_shapes(index.shape, *(one.shape for one in arrays))
    return FUNCTIONS["broadcast_to"](result, shape)


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
    kind: Any = None,
) -> Array:  # fmt: skip
    """Return whether each element is one of the test elements.

    Parameters
    ----------
    element : array
        The operand.
    test_elements : array
        What is looked for: numbers of the host are sorted there, others by a pass of their own,
        which leaves them in memory.
    assume_unique, kind
        Accepted for NumPy's sake.
    invert : bool
        Whether to return where it is none of them.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.isin(itf.asarray([1, 2, 3]) * 2, [4, 5]).compute()
    array([False,  True, False])
    """
    x: Any = asarray(element)
    if _known(test_elements):
        found = np.unique(np.asarray(test_elements))
        test: Any = beside(found, x) if found.size else None
    else:
        test = FUNCTIONS["buffered"](FUNCTIONS["sort"](ravel(test_elements)))
        test = test if test.size else None
    if test is None:
        return FUNCTIONS["full"](x.shape, bool(invert), like=x)
    common = np.result_type(x.dtype, test.dtype)
    x, test = x.astype(common), test.astype(common)
    place = clamped(searchsorted(test, x), test.size)
    there = FUNCTIONS["take"](test, place) == x
    return ~there if invert else there


# ---- polynomials and interpolation ---------------------------------------------------------------
def polyval(p: Any, x: Any) -> Array:
    """Return a polynomial at `x` by Horner's rule; coefficients begin with the highest power.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.polyval([1, 0, 2], itf.asarray([1.0, 3.0])).compute()
    array([ 3., 11.])
    """
    coefficients: Any = np.asarray(p) if _known(p) else asarray(p)
    if coefficients.ndim != 1:
        raise ShapeError("polyval: the coefficients must have one axis")
    lazy = asarray(x)
    y: Any = FUNCTIONS["zeros_like"](lazy)
    for at in range(coefficients.shape[0]):
        y = y * lazy + coefficients[at]
    return y


def interp(  # noqa: PLR0917 - NumPy's signature
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None
) -> Array:
    """Return the values at `x` of the line through the points (`xp`, `fp`).

    Parameters
    ----------
    x : array
        Where.
    xp, fp : array
        Coordinates, ascending (or any, with a period), and values there; real or complex.
    left, right : scalar, optional
        Values before the first and behind the last point; by default those of these points.
    period : float, optional
        Of `xp`, which then must be on the host, as `fp`.

    Returns
    -------
    Array
        float64 or complex128: one pass, with a few reads of the points for each element.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.interp(itf.asarray([0.5, 2.0, 9.0]), [0, 1, 3], [10, 20, 40]).compute()
    array([15., 30., 40.])
    """
    at: Any = asarray(x)
    what = _what("interp", at)
    if period is not None:
        if not (_known(xp) and _known(fp)):
            raise Unsupported(f"{what}: with a period the points must be on the host to be sorted")
        at, xp, fp, left, right = _periodic(at, np.asarray(xp), np.asarray(fp), period, what)
    xs: Any = beside(np.asarray(xp, float), at) if _known(xp) else asarray(xp)
    ys: Any = beside(np.asarray(fp), at) if _known(fp) else asarray(fp)
    if xs.ndim != 1 or ys.shape != xs.shape or not xs.size:
        raise ShapeError(f"{what}: xp and fp must have one axis of as many elements, at least one")
    kind = np.dtype(complex if iscomplexobj(ys) else float)
    at, xs = at.astype(float), xs.astype(float)
    ends = (left, right)
    if kind.kind != "c":
        return _on_line(at, xs, ys.astype(float), ends, False)
    parts = []
    for part in (FUNCTIONS["real"], FUNCTIONS["imag"]):
        own = tuple(None if end is None else part(asarray(complex(end))) for end in ends)
        parts.append(_on_line(at, xs, part(ys.astype(kind)), own, True))
    parts[1] = FUNCTIONS["where"](FUNCTIONS["isnan"](at), 0.0, parts[1])
    return FUNCTIONS["complex"](*parts)


def _on_line(at: Any, xs: Any, ys: Any, ends: tuple[Any, ...], inverse: bool) -> Array:
    """Return the line through points at places; NumPy multiplies by inverses for complex ones."""
    take, where, isnan = (FUNCTIONS[name] for name in ("take", "where", "isnan"))
    count = xs.size
    found: Any = searchsorted(xs, at, "right")
    low = clamped(found - 1, count)
    high = FUNCTIONS["minimum"](low + 1, count - 1)
    x0, y0, x1, y1 = take(xs, low), take(ys, low), take(xs, high), take(ys, high)
    slope = (y1 - y0) * (1.0 / (x1 - x0)) if inverse else (y1 - y0) / (x1 - x0)
    line = slope * (at - x0) + y0
    again = slope * (at - x1) + y1  # where the first is NaN, as NumPy
    line = where(isnan(line), where(isnan(again) & (y0 == y1), y0, again), line)
    line = where((at == x0) | (low == count - 1), y0, line)
    before = ys[0] if ends[0] is None else asarray(ends[0]).astype(float)
    behind = ys[count - 1] if ends[1] is None else asarray(ends[1]).astype(float)
    line = where(at > xs[count - 1], behind, where(at < xs[0], before, line))
    return where(isnan(at), at, line)


def _periodic(x: Any, xp: Any, fp: Any, period: float, what: object) -> tuple[Any, ...]:
    if period == 0:
        raise ValueError(f"{what}: the period is zero")
    period = abs(period)
    places = np.asarray(xp, float) % period
    order = np.argsort(places)
    places, values = places[order], fp[order]
    xs = np.concatenate((places[-1:] - period, places, places[0:1] + period))
    return (
        x.astype(float) % period,
        xs,
        np.concatenate((values[-1:], values, values[0:1])),
        None,
        None,
    )


# ---- products ------------------------------------------------------------------------------------
@without_out
def outer(a: Any, b: Any) -> Array:
    """Return each element of the flattened `a` times each of the flattened `b`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.outer([1, 2], [3, 4]).compute()
    array([[3, 4],
           [6, 8]])
    """
    return FUNCTIONS["multiply"](expand_dims(ravel(a), 1), expand_dims(ravel(b), 0))


def cross(  # noqa: PLR0917 - NumPy's signature
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """Return cross products of vectors of three elements along an axis.

    Raises
    ------
    ShapeError
        If there are not three.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.cross([1, 0, 0], [0, 1, 0]).compute()
    array([0, 0, 1])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    u, v = asarray(a), asarray(b)
    what = _what("cross", u)
    u = moveaxis(u, axis_of(axisa, u.ndim, what), -1)
    v = moveaxis(v, axis_of(axisb, v.ndim, what), -1)
    if u.shape[-1] != 3 or v.shape[-1] != 3:
        raise ShapeError(
            f"{what}: vectors of {u.shape[-1]} and {v.shape[-1]} elements; they must have 3"
        )
    (a0, a1, a2), (b0, b1, b2) = ([one[..., at] for at in range(3)] for one in (u, v))  # type: ignore[index]
    made = stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], -1)
    return moveaxis(made, -1, axis_of(axisc, made.ndim, what, "the result"))


def kron(a: Any, b: Any) -> Array:
    """Return `b` times each element of `a`, block by block.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.kron([1, 10], [1, 2]).compute()
    array([ 1,  2, 10, 20])
    """
    u, v = asarray(a), asarray(b)
    rank = max(u.ndim, v.ndim)
    left, right = ((1,) * (rank - one.ndim) + one.shape for one in (u, v))
    outers = reshape(u, tuple(n for size in left for n in (size, 1)))
    inners = reshape(v, tuple(n for size in right for n in (1, size)))
    whole = FUNCTIONS["multiply"](outers, inners)
    return reshape(whole, tuple(m * n for m, n in zip(left, right, strict=True)))


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    """Return powers of the elements of `x`, one column each, the highest first.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.vander([2, 3], 3).compute()
    array([[4, 2, 1],
           [9, 3, 1]])
    """
    lazy = asarray(x)
    if lazy.ndim != 1:
        raise ShapeError(f"{_what('vander', lazy)}: it has {lazy.ndim} axes and needs one")
    count = lazy.size if N is None else operator.index(N)
    if count < 0:
        raise ShapeError(f"{_what('vander', lazy)}: {count} columns")
    lazy = lazy.astype(np.promote_types(lazy.dtype, np.int64))
    if not count:
        return FUNCTIONS["zeros"]((lazy.size, 0), lazy.dtype, like=lazy)
    columns: list[Any] = [FUNCTIONS["ones_like"](lazy)]
    for _ in range(count - 1):
        columns.append(columns[-1] * lazy if len(columns) > 1 else lazy)
    return stack(columns if increasing else columns[::-1], 1)


_PUBLIC = (
    iscomplexobj, isrealobj, iscomplex, isreal, real_if_close, fix, piecewise, choose, isin,
    polyval, interp, outer, cross, kron, vander,
)  # fmt: skip
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
setattr(Array, "choose", choose)  # noqa: B010 - installed, as in functions.py
