"""Random expressions beside their NumPy values: operations, casts, views, joins, reductions.

Every value is made by NumPy from the values of the operands, node by node, so that nothing of the
library's planning has a part in it. What is not exact (a function like exp, a power) or passes
elements on in an order of its own (a scan, a sort, a mask) comes last in an expression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import itfuse as itf
from itfuse.dtypes import DTYPES, kind
from itfuse.ops import OPS
from itfuse.rows.op import ELEMENTWISE, Op
from itfuse.testing import EXACT, edge_values, evaluate
from support import views

Random = np.random.Generator
Pair = tuple[itf.Array, np.ndarray[Any, Any]]

NAN_SIGNS = ("signbit", "copysign")
"""Rows that show the sign of a NaN, which is the machine's own."""
MOST = 4000
"""Elements of a value from which on no view may make it larger."""
_WHOLE = ("sum", "prod", "min", "max", "any", "all", "argmin", "argmax", "count_nonzero")
_REAL = ("min", "max", "any", "all", "argmin", "argmax")
_OPS = tuple(op for op in EXACT if op.name not in ("power", *NAN_SIGNS))  # no negative powers


_FUNCTIONS = tuple(
    op for op in OPS.values()
    if op.kind == ELEMENTWISE and op.ulp and not op.scale and "power" not in op.name
)  # fmt: skip
_SCANS = ("cumsum", "cumprod", "cummax", "cummin")
_COMPOSITES = ("clip", "round", "nan_to_num", "where", "diff", "roll", "pad", "repeat", "tril")


@dataclass(frozen=True)
class Case:
    """An expression and its value.

    Attributes
    ----------
    lazy, value
        Both sides.
    ulp : float
        How far an engine's value may be from NumPy's, in units in the last place.
    what : str
        What came last.
    strided : bool
        Whether it may be computed into an array with strides.
    """

    lazy: Any
    value: np.ndarray[Any, Any]
    ulp: float = 0.0
    what: str = ""
    strided: bool = False


def _made(random: Random, base: tuple[int, ...]) -> Pair:
    """Return a leaf that is made from the index."""
    if random.random() < 0.5:
        name = str(random.choice(["i8", "i4", "f8", "f4", "u1", "bool"]))
        number = int(random.integers(0, 2 if name == "bool" else 99))
        shape = base[int(random.integers(0, len(base))) :]
        return itf.full(shape, number, name, device="cpu"), np.full(shape, number, name)
    start, step = int(random.integers(-9, 9)), int(random.choice([-3, -1, 1, 2]))
    stop, name = start + base[-1] * step, str(random.choice(["i8", "i2", "f4", "f8"]))
    lazy = itf.arange(start, stop, step, name, device="cpu")
    return lazy, np.arange(start, stop, step, name)


def _unaligned(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the same elements, a byte away from where they would be aligned."""
    buffer = np.zeros(x.nbytes + 1, "u1")
    moved = buffer[1:].view(x.dtype).reshape(x.shape)
    moved[...] = x
    return moved


def leaf(random: Random, base: tuple[int, ...]) -> Pair:
    """Return an array of edge values: some dtype, layout, and shape that broadcasts to `base`."""
    if random.random() < 0.1:
        return _made(random, base)
    shape = tuple(n if random.random() < 0.75 else 1 for n in base)
    shape = shape[int(random.integers(0, len(shape))) :] if random.random() < 0.3 else shape
    name = str(random.choice(list(DTYPES)))
    x = edge_values(name, math.prod(shape), int(random.integers(2**31))).reshape(shape)
    how = int(random.integers(6))
    if how == 1:
        x = np.asfortranarray(x)
    elif how == 2:
        x = np.ascontiguousarray(np.flip(x))[(slice(None, None, -1),) * x.ndim]
    elif how == 3:
        x = np.repeat(x, 3, axis=-1)[..., ::3]
    elif how == 4:
        x = np.broadcast_to(x[..., :1], shape)
    elif how == 5:
        x = _unaligned(np.ascontiguousarray(x))
    return itf.asarray(x), x


def random_case(seed: int, nodes: int) -> Case:
    """Return a random expression and its value.

    Parameters
    ----------
    seed : int
        The same seed gives the same expression.
    nodes : int
        Operations to apply.
    """
    random = np.random.default_rng(seed)
    base = tuple(int(n) for n in random.integers(1, 12, random.integers(1, 4)))
    if random.random() < 0.02:
        base = (*base[:-1], 0)
    pool = [leaf(random, base) for _ in range(int(random.integers(1, 5)))]
    for _ in range(nodes):
        chance = random.random()
        with np.errstate(all="ignore"):
            if chance < 0.58:
                made = _operation(random, pool, _OPS[random.integers(len(_OPS))])
            elif chance < 0.64:
                made = _composite(random, _recent(random, pool))
            elif chance < 0.68:
                made = _joined(random, pool)
            elif chance < 0.76:
                made = _cast(random, _recent(random, pool))
            elif chance < 0.92:
                made = views.step(random, _recent(random, pool), gathers=True)
            else:
                made = _reduced(random, _recent(random, pool))
        if made is not None and made[1].size <= MOST:
            pool.append((made[0], np.asarray(made[1])))
    with np.errstate(all="ignore"):
        return _last(random, *pool[-1])


def _composite(random: Random, pair: Pair) -> Pair | None:
    """Apply a function that is written with others; NumPy's own is its value."""
    lazy, value = pair
    name = str(random.choice(_COMPOSITES))
    if value.dtype.name == "bfloat16" or (kind(value.dtype) == "c" and name in ("clip", "round")):
        return None
    low, high = sorted(int(n) for n in random.integers(0, 100, 2))
    axis = int(random.integers(value.ndim)) if value.ndim else 0
    calls: dict[str, Any] = {
        "clip": lambda m, x: m.clip(x, low, high), "nan_to_num": lambda m, x: m.nan_to_num(x),
        "round": lambda m, x: m.round(x, low % 3), "tril": lambda m, x: m.tril(x, low % 5 - 2),
        "where": lambda m, x: m.where(x < low, x, x * 1), "diff": lambda m, x: m.diff(x, axis=axis),
        "roll": lambda m, x: m.roll(x, low, axis),
        "pad": lambda m, x: m.pad(x, (low % 3, high % 3), mode=("edge", "constant")[low % 2]),
        "repeat": lambda m, x: m.repeat(x, low % 4, axis),
    }  # fmt: skip
    call = calls[name]
    try:
        want = call(np, value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None  # NumPy has no such loop, or no such shape
    if name == "round" and kind(value.dtype) in "iub":
        return None
    return call(itf, lazy), want


def _joined(random: Random, pool: list[Pair]) -> Pair | None:
    """Join operands of one shape."""
    lazy, value = _recent(random, pool)
    near = [pair for pair in pool if pair[1].shape == value.shape]
    others = [near[int(random.integers(len(near)))] for _ in range(int(random.integers(0, 3)))]
    pairs = [(lazy, value), *others]
    stacks = bool(random.random() < 0.5) or not value.ndim
    axis = int(random.integers(value.ndim + 1 if stacks else value.ndim))
    ours, theirs = (itf.stack, np.stack) if stacks else (itf.concat, np.concatenate)
    try:
        want = theirs([one for _, one in pairs], axis)
    except (TypeError, ValueError):  # no common dtype
        return None
    return ours([one for one, _ in pairs], axis), want


def _last(random: Random, lazy: Any, value: np.ndarray[Any, Any]) -> Case:
    """Return a case: the expression, or something of it that has to come last."""
    chance, of = random.random(), kind(value.dtype)
    plain = Case(lazy, value, what="", strided=bool(random.random() < 0.3))
    odd = value.dtype.name == "bfloat16"
    if chance < 0.2 and of in "biuf" and not odd:
        return _function(random, plain)
    if chance < 0.25 and of in "iu":
        top = value.astype("f8") % 4
        exponent = lazy % 4
        return Case(lazy**exponent, value ** (value % 4), what="power") if top.size else plain
    if chance < 0.35 and value.ndim and of in "biu":
        name, axis = str(random.choice(_SCANS)), int(random.integers(value.ndim))
        call = {"cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}.get(name)
        want = call(value, axis=axis) if call else getattr(np, name)(value, axis=axis)
        return Case(getattr(itf, name)(lazy, axis=axis), want, what=name)
    if chance < 0.42 and value.ndim and of in "biuf" and not odd:
        axis = int(random.integers(value.ndim))
        want = np.sort(value, axis=axis, stable=True)
        zeros = 0.5 if of == "f" else 0.0  # equal zeros lose their signs
        return Case(itf.sort(lazy, axis=axis), want, zeros, "sort")
    if chance < 0.5 and value.ndim and of in "biuf" and not odd:
        return Case(lazy[lazy > 1], value[value > 1], what="mask")
    return plain


def _function(random: Random, case: Case) -> Case:
    op = _FUNCTIONS[int(random.integers(len(_FUNCTIONS)))]
    try:
        lazy = getattr(itf, op.name)(*[case.lazy] * op.arity)
        alone = getattr(itf, op.name)(*[itf.asarray(case.value)] * op.arity)
    except TypeError:  # no such loop
        return case
    # Both may be that far from the correctly rounded value.
    return Case(lazy, np.asarray(evaluate(alone)), 2 * op.ulp, op.name)


def _recent(random: Random, pool: list[Pair]) -> Pair:
    """Return one of the pool, of the newest more often, so that expressions grow deep."""
    return pool[-1 - min(int(random.exponential(3)), len(pool) - 1)]


def _operation(random: Random, pool: list[Pair], op: Op) -> Pair | None:
    first = _recent(random, pool)
    near = [pair for pair in pool if pair[1].shape == first[1].shape]
    lazies: list[Any] = [first[0]]
    values: list[Any] = [first[1]]
    for _ in range(op.arity - 1):
        chance = random.random()
        other: Any
        if chance < 0.15:
            other = int(random.integers(-4, 9))
        elif chance < 0.25:
            other = float(np.round(random.normal() * 4, 2))
        else:
            among = near if random.random() < 0.7 else pool
            other = None
            lazy, value = among[int(random.integers(len(among)))]
        at = int(random.integers(len(lazies) + 1))
        lazies.insert(at, lazy if other is None else other)
        values.insert(at, value if other is None else other)
    function = getattr(itf, op.name)
    try:
        lazy = function(*lazies)
        alone = function(*(itf.asarray(v) if isinstance(v, np.ndarray) else v for v in values))
    except (TypeError, ValueError, OverflowError):  # NumPy has no such loop, or no such shape
        return None
    return lazy, np.asarray(evaluate(alone))


def _cast(random: Random, pair: Pair) -> Pair | None:
    lazy, value = pair
    name = str(random.choice(list(DTYPES)))
    old, new = kind(value.dtype), DTYPES[name].kind
    if (old in "fc" and new in "iu") or (old == "c" and new != "c"):
        return None  # left open by NumPy, or a warning
    return lazy.astype(name), value.astype(DTYPES[name].numpy)


def _reduced(random: Random, pair: Pair) -> Pair | None:
    """Reduce, where the order of floating-point sums cannot show."""
    lazy, value = pair
    of = kind(value.dtype)
    names = {"c": ("any", "all"), "f": _REAL}.get(of, _WHOLE)
    name = str(random.choice(names))
    axis = None if not value.ndim or random.random() < 0.3 else int(random.integers(value.ndim))
    kept = bool(random.random() < 0.5)
    if value.size == 0 or (value.dtype.name == "bfloat16" and name.startswith("arg")):
        return None
    reduced = getattr(itf, name)(lazy, axis=axis, keepdims=kept)
    want = np.asarray(getattr(np, name)(value, axis=axis, keepdims=kept))
    if of == "f" and name in ("min", "max"):  # which of two zeros is NumPy's own
        return reduced + 0, np.asarray(want + want.dtype.type(0))
    return reduced, want
