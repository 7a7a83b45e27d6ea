"""Random expressions beside their NumPy values: operations, casts, views, gathers, reductions.

Every value is made by NumPy from the values of the operands, node by node, so that nothing of the
library's planning has a part in it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import itfuse as itf
from itfuse.dtypes import DTYPES, kind
from itfuse.rows.op import Op
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


def leaf(random: Random, base: tuple[int, ...]) -> Pair:
    """Return an array of edge values: some dtype, layout, and shape that broadcasts to `base`."""
    shape = tuple(n if random.random() < 0.75 else 1 for n in base)
    shape = shape[int(random.integers(0, len(shape))) :] if random.random() < 0.3 else shape
    name = str(random.choice(list(DTYPES)))
    x = edge_values(name, math.prod(shape), int(random.integers(2**31))).reshape(shape)
    how = int(random.integers(5))
    if how == 1:
        x = np.asfortranarray(x)
    elif how == 2:
        x = np.ascontiguousarray(np.flip(x))[(slice(None, None, -1),) * x.ndim]
    elif how == 3:
        x = np.repeat(x, 3, axis=-1)[..., ::3]
    elif how == 4:
        x = np.broadcast_to(x[..., :1], shape)
    return itf.asarray(x), x


def random_pair(seed: int, nodes: int) -> Pair:
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
            if chance < 0.68:
                made = _operation(random, pool, _OPS[random.integers(len(_OPS))])
            elif chance < 0.76:
                made = _cast(random, _recent(random, pool))
            elif chance < 0.92:
                made = views.step(random, _recent(random, pool), gathers=True)
            else:
                made = _reduced(random, _recent(random, pool))
        if made is not None and made[1].size <= MOST:
            pool.append((made[0], np.asarray(made[1])))
    return pool[-1]


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
