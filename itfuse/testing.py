"""Checks against NumPy, for this project's tests and for code that builds on itfuse.

`evaluate` computes an expression node by node with plain NumPy: no planner, no engine, no blocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from itfuse import wording
from itfuse.array import Array, asarray
from itfuse.dtypes import DTYPES, finfo, kind, numpy_dtype
from itfuse.expr import Node
from itfuse.functions import FUNCTIONS
from itfuse.ops import CONSTANT, INPUT, IOTA, OPS, POSITION, RESHAPE, SCALAR, VIEW, identity
from itfuse.plan.index import Form
from itfuse.rows.op import ELEMENTWISE, Op

NumpyArray = np.ndarray[Any, Any]

INFINITE = (np.inf, -np.inf, np.nan)


def edge_values(dtype: Any, size: int, seed: int) -> NumpyArray:
    """Return `size` random values of `dtype`, the edge values among them.

    Parameters
    ----------
    dtype : dtype-like
        A supported dtype.
    size : int
        Number of elements.
    seed : int
        Seed of the generator.

    Returns
    -------
    numpy.ndarray
        For floats: zeros of both signs, infinities, NaN, denormals, extremes and values of many
        magnitudes; for integers: extremes, small values and random bits.
    """
    wanted = numpy_dtype(dtype)
    random = np.random.default_rng(seed)
    if wanted.kind == "b":
        return random.integers(0, 2, size).astype(bool)
    if wanted.kind == "c":
        part = DTYPES[wanted.name].part
        made = np.empty(size, wanted)
        made.real, made.imag = edge_values(part, size, seed), edge_values(part, size, seed + 7919)
        return made
    if kind(wanted) == "f":
        info = finfo(wanted)
        values = random.normal(size=size) * 10.0 ** random.integers(-3, 4, size)
        tiny = float(info.smallest_subnormal)
        edges = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, tiny, -3 * tiny, float(info.tiny),
                 float(info.max), float(info.min), float(info.eps), *INFINITE]  # fmt: skip
    else:
        limits = np.iinfo(wanted)
        values = random.integers(limits.min, limits.max, size, dtype=wanted, endpoint=True)
        small = random.integers(max(limits.min, -9), 10, size).astype(wanted)
        values = np.where(random.integers(0, 2, size).astype(bool), values, small)
        edges = [0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min, limits.min + 1]
    with np.errstate(all="ignore"):
        values = values.astype(wanted)
        spots = random.permutation(size)[: min(size, 4 * len(edges))]
        values[spots] = np.resize(np.array(edges, dtype=wanted), spots.size)
    return values


def exponents(x: NumpyArray, y: NumpyArray) -> NumpyArray:
    """Return exponents for `x ** y` near `y` whose powers NumPy defines and can be compared.

    NumPy refuses negative integer exponents of integers; the error of a complex power grows with
    the exponent.
    """
    if y.dtype.kind == "i":
        small: NumpyArray = np.abs(y % (8 if x.dtype.kind == "c" else 12))
        return small
    if "c" in (x.dtype.kind, y.dtype.kind):
        with np.errstate(all="ignore"):
            return np.where(np.isfinite(y) & (np.abs(y) > 8), y.dtype.type(3), y)
    return y


def ulps(got: NumpyArray, want: NumpyArray, scale: float = 0.0) -> NumpyArray:
    """Return the distance of `got` from `want` in units in the last place of `want`'s dtype.

    With `scale`, in those of max(|want|, scale).

    Equal values, and NaN beside NaN, are at distance 0; NaN beside a number is infinitely far.
    """
    if want.dtype.kind == "c":
        return _complex_ulps(got, want, scale)
    with np.errstate(all="ignore"):
        step = np.spacing(np.maximum(np.abs(want), want.dtype.type(scale))).astype(np.float64)
        far = np.abs(got.astype(np.float64) - want.astype(np.float64)) / step
        far = np.where(np.isnan(far), np.inf, far)
        # Rounding up from the largest number gives infinity: one step.
        top = finfo(want.dtype).max
        edge = (np.isinf(got) & (np.abs(want) == top)) | (np.isinf(want) & (np.abs(got) == top))
        far = np.where(edge & (np.sign(got) == np.sign(want)), 1.0, far)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        return np.where(same, 0.0, far)


def _complex_ulps(got: NumpyArray, want: NumpyArray, scale: float) -> NumpyArray:
    """Return distances in units in the last place of the magnitude, part by part.

    Where a part is not finite, each part must be the same or as far as a real number is.
    """
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(want.real), np.abs(want.imag))
        step = np.spacing(np.maximum(size, size.dtype.type(scale))).astype(np.float64)
        parts = []
        for a, b in ((got.real, want.real), (got.imag, want.imag)):
            far = np.abs(a.astype(np.float64) - b.astype(np.float64)) / step
            parts.append(np.where(np.isfinite(far), far, ulps(a, b)))
        return np.maximum(*parts)


def assert_same(got: Any, want: Any, ulp: float = 0.0, what: str = "", scale: float = 0.0) -> None:
    """Assert equal dtype, shape and values.

    Parameters
    ----------
    got, want : array
        NumPy arrays, or anything with `.get()`.
    ulp : float
        Allowed distance in units in the last place for floats; 0 asks for equal values (NaN
        equals NaN; zeros must agree in sign).
    what : str
        Names the case in the message.
    scale : float
        Count in units in the last place of max(|want|, scale).

    Raises
    ------
    AssertionError
        With the first places that differ.

    Examples
    --------
    >>> assert_same(np.float32([1.0]), np.float32([1.0]))
    >>> assert_same(np.float32([1.0]), np.float32([-1.0]))
    Traceback (most recent call last):
    AssertionError: 1 of 1 elements differ: at (0,) got np.float32(1.0), want np.float32(-1.0)
    """
    got = np.asarray(got.get() if hasattr(got, "get") else got)
    want = np.asarray(want)
    label = f"{what}: " if what else ""
    assert got.dtype == want.dtype, f"{label}dtype {got.dtype}, want {want.dtype}"
    assert got.shape == want.shape, f"{label}shape {got.shape}, want {want.shape}"
    if kind(want.dtype) not in "fc":
        wrong = got != want
    elif ulp:
        wrong = ulps(got, want, scale) > ulp
    else:
        wrong = np.zeros(want.shape, bool)
        parts = [(got, want)] if kind(want.dtype) == "f" else [(got.real, want.real),
                                                               (got.imag, want.imag)]  # fmt: skip
        for a, b in parts:
            wrong |= ~((a == b) | (np.isnan(a) & np.isnan(b)))
            wrong |= (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    if wrong.any():
        spots = np.argwhere(wrong)[:4]
        shown = ", ".join(
            f"at {tuple(map(int, s))} got {got[tuple(s)]!r}, want {want[tuple(s)]!r}" for s in spots
        )
        raise AssertionError(f"{label}{int(wrong.sum())} of {wrong.size} elements differ: {shown}")


def evaluate(array: Array) -> NumpyArray:
    """Return the value of an expression over host arrays, node by node with plain NumPy."""
    value: dict[Node, Any] = {}
    with np.errstate(all="ignore"):
        for node in wording.toposort((array._node,)):
            if node.op is INPUT:
                value[node] = array._data[node]
            elif node.op is SCALAR:
                value[node] = node.arg
            elif node.op is CONSTANT:
                value[node] = node.dtype.type(node.arg)
            elif node.op is POSITION:
                value[node] = None  # only a fold over its axes reads it
            elif node.op is IOTA:
                value[node] = _numbers(node.arg, node.shape)
            elif node.op is RESHAPE:
                value[node] = np.reshape(value[node.srcs[0]], node.shape)
            elif node.op is VIEW:
                value[node] = _viewed(node, [np.asarray(value[src]) for src in node.srcs])
            else:
                value[node] = _apply(node, [value[src] for src in node.srcs])
    return np.asarray(value[array._node])


def _reduced(node: Node, operands: list[Any]) -> NumpyArray:
    """Reduce with NumPy; the reduced axes go last and become one."""
    domain = node.srcs[0].shape
    kept = tuple(a for a in range(len(domain)) if a not in node.arg)
    rows = [domain[a] for a in kept]

    def by_rows(x: Any) -> NumpyArray:
        full = np.broadcast_to(np.asarray(x), domain).transpose((*kept, *node.arg))
        return full.reshape((*rows, math.prod(domain[a] for a in node.arg)))

    x = by_rows(operands[0])
    if node.op.name in ("argmax", "argmin"):
        return np.asarray(getattr(np, node.op.name)(x, axis=-1))
    if node.op.name == "squared_deviations":
        count = by_rows(operands[2])
        mean = (x * count).sum(-1, keepdims=True) / count.sum(-1, keepdims=True)
        return np.asarray((count * (x - mean) ** 2).sum(-1))
    if not x.shape[-1]:
        return np.full(rows, identity(node.op.combine, node.dtype))
    assert isinstance(node.op.numpy, np.ufunc)
    return np.asarray(node.op.numpy.reduce(x, axis=-1, dtype=node.dtype))


def _numbers(form: Form, shape: tuple[int, ...]) -> NumpyArray:
    total = np.full(shape, form.offset, np.int64)
    for index, step in zip(np.indices(shape, sparse=True), form.steps, strict=True):
        total += index * step
    return total


def _viewed(node: Node, operands: list[NumpyArray]) -> NumpyArray:
    source, *computed = operands
    rows = [
        np.broadcast_to(computed[row], node.shape)
        if isinstance(row, int)
        else _numbers(row, node.shape)
        for row in node.arg.rows
    ]
    return np.broadcast_to(source[tuple(rows)], node.shape)


def _apply(node: Node, operands: list[Any]) -> Any:
    if node.op.reduces:
        return _reduced(node, operands).reshape(node.shape)
    numpy = node.op.twin(node.dtype.kind)
    out = np.empty(node.shape, node.dtype)
    numpy(*(np.asarray(x) for x in operands), out=out)
    return out


WIDER = {"float16": "float64", "bfloat16": "float64", "float32": "float64",
         "float64": "longdouble", "complex64": "complex128",
         "complex128": "clongdouble"}  # fmt: skip
"""The dtype in which the truth is computed that a result is measured against."""


def measured_error(op: Op, operands: list[NumpyArray], got: NumpyArray) -> float | None:
    """Return the largest error of `got` in the units of `Op.ulp`.

    Parameters
    ----------
    op : Op
        An elementwise row of floats or complex numbers.
    operands : list of numpy.ndarray
        Of one dtype, that of the result.
    got : numpy.ndarray
        What an engine gave for them.

    Returns
    -------
    float or None
        None where nothing computes the row in a wider dtype: special functions of float64.
    """
    name = operands[0].dtype.name
    wide = np.dtype(WIDER[name])
    numpys = isinstance(op.numpy, np.ufunc) or (op.asks is not None and op.asks.__name__ == op.name)
    if not numpys and wide.itemsize > 8:
        return None
    with np.errstate(all="ignore"):
        operands = [x.astype(wide) for x in operands]
        truth = np.empty(got.shape, WIDER[got.dtype.name])
        op.twin(truth.dtype.kind)(*operands, out=truth)
        rounded = truth.astype(got.dtype)
        if truth.dtype.kind == "c":
            step = np.spacing(np.maximum(np.abs(rounded.real), np.abs(rounded.imag)))
            far = np.maximum(np.abs(got.real - truth.real), np.abs(got.imag - truth.imag))
        else:
            step = np.spacing(np.maximum(np.abs(rounded), rounded.dtype.type(op.scale)))
            far = np.abs(got.astype(truth.dtype) - truth)
        error = (far / step.astype(np.longdouble)).astype(np.float64)
        # What is not finite must be the same; tests of values see to it.
        finite = np.isfinite(error) & np.isfinite(got) & np.isfinite(rounded)
        return float(np.max(error[finite], initial=0.0))


def assert_matches_numpy(array: Array, rtol: float = 0.0, what: str = "") -> None:
    """Assert that computing `array` gives what NumPy gives node by node.

    Parameters
    ----------
    array : Array
        An expression over host arrays.
    rtol : float
        Allowed relative difference; 0 asks for equal values.
    what : str
        Names the case in the message.
    """
    got, want = array.compute(), evaluate(array)
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    if rtol == 0 or kind(want.dtype) not in "fc":
        assert_same(got, want, what=what)
    else:
        np.testing.assert_allclose(got, want, rtol=rtol, err_msg=what)


EXACT: tuple[Op, ...] = tuple(
    op
    for op in OPS.values()
    if op.kind == ELEMENTWISE and op.ulp == 0 and not op.ulp_c and op.name != "astype"
)
"""Elementwise rows whose every result is exact on every engine."""


def random_expression(seed: int, arrays: list[Any], nodes: int = 20) -> Array:
    """Return a random elementwise expression over `arrays`, of exact operations only.

    Parameters
    ----------
    seed : int
        The same seed gives the same expression.
    arrays : list of array
        Operands, of shapes that broadcast together.
    nodes : int
        Number of operations to apply.

    Returns
    -------
    Array
        Operations that NumPy refuses for the dtypes drawn are skipped; integer powers and
        conversions of floats to integers, whose results NumPy leaves open, are not drawn.
    """
    random = np.random.default_rng(seed)
    pool: list[Any] = [asarray(x) for x in arrays]
    ops = [op for op in EXACT if op.name != "power"]
    made = 0
    for _ in range(nodes * 4):
        op = ops[random.integers(len(ops))]
        operands = [_draw(random, pool) for _ in range(op.arity)]
        if not any(isinstance(x, Array) for x in operands):
            continue
        try:
            result = FUNCTIONS[op.name](*operands)
        except (TypeError, OverflowError, NotImplementedError):
            continue
        pool.append(result)
        made += 1
        if made == nodes:
            break
        if random.random() < 0.15 and kind(result.dtype) not in "fc":
            pool.append(result.astype(list(DTYPES)[random.integers(len(DTYPES))]))
    result = pool[-1]
    assert isinstance(result, Array)
    return result


def _draw(random: np.random.Generator, pool: list[Any]) -> Any:
    kind = random.random()
    if kind < 0.12:
        return int(random.integers(-4, 9))
    if kind < 0.2:
        return float(np.round(random.normal() * 4, 2))
    # Recent results more often, so that expressions grow deep.
    return pool[-1 - min(int(random.exponential(3)), len(pool) - 1)]
