"""Checks against NumPy, for this project's tests and for code that builds on itfuse.

`evaluate` computes an expression node by node with plain NumPy: no planner, no engine, no blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse import wording
from itfuse.array import Array, asarray
from itfuse.dtypes import DTYPES
from itfuse.expr import Node
from itfuse.functions import FUNCTIONS
from itfuse.ops import (
    ELEMENTWISE,
    INPUT,
    IOTA,
    OPS,
    REDUCTION,
    RESHAPE,
    SCALAR,
    VIEW,
    Op,
    identity,
)
from itfuse.plan.index import Form

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
    wanted = np.dtype(dtype)
    random = np.random.default_rng(seed)
    if wanted.kind == "b":
        return random.integers(0, 2, size).astype(bool)
    if wanted.kind == "f":
        info = np.finfo(wanted)
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


def ulps(got: NumpyArray, want: NumpyArray) -> NumpyArray:
    """Return the distance of `got` from `want` in units in the last place of `want`'s dtype.

    Equal values, and NaN beside NaN, are at distance 0; NaN beside a number is infinitely far.
    """
    with np.errstate(all="ignore"):
        step = np.spacing(np.abs(want)).astype(np.float64)
        far = np.abs(got.astype(np.float64) - want.astype(np.float64)) / step
        far = np.where(np.isnan(far), np.inf, far)
        # Rounding up from the largest number gives infinity: one step.
        top = np.finfo(want.dtype).max
        edge = (np.isinf(got) & (np.abs(want) == top)) | (np.isinf(want) & (np.abs(got) == top))
        far = np.where(edge & (np.sign(got) == np.sign(want)), 1.0, far)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        return np.where(same, 0.0, far)


def assert_same(got: Any, want: Any, ulp: float = 0.0, what: str = "") -> None:
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
    if want.dtype.kind != "f":
        wrong = got != want
    elif ulp:
        wrong = ulps(got, want) > ulp
    else:
        wrong = ~((got == want) | (np.isnan(got) & np.isnan(want)))
        wrong |= (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
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
            elif node.op is IOTA:
                value[node] = _numbers(node.arg, node.shape)
            elif node.op is RESHAPE:
                value[node] = np.reshape(value[node.srcs[0]], node.shape)
            elif node.op is VIEW:
                value[node] = _viewed(node, [np.asarray(value[src]) for src in node.srcs])
            else:
                value[node] = _apply(node, [value[src] for src in node.srcs])
    return np.asarray(value[array._node])


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
    numpy = node.op.numpy
    if node.op.kind == REDUCTION:
        assert isinstance(numpy, np.ufunc)
        flat = np.asarray(operands[0]).reshape(-1)
        if not flat.size:
            return identity(node.op.combine, node.dtype)
        return numpy.reduce(flat, dtype=node.dtype)
    assert numpy is not None
    out = np.empty(node.shape, node.dtype)
    numpy(*(np.asarray(x) for x in operands), out=out)
    return out


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
    if rtol == 0 or want.dtype.kind != "f":
        assert_same(got, want, what=what)
    else:
        np.testing.assert_allclose(got, want, rtol=rtol, err_msg=what)


EXACT: tuple[Op, ...] = tuple(
    op for op in OPS.values() if op.kind == ELEMENTWISE and op.ulp == 0 and op.name != "astype"
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
        if random.random() < 0.15 and result.dtype.kind != "f":
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
