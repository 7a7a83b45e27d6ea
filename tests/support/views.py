"""Random chains of views, applied to an expression and to its NumPy value alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import itfuse as itf

Random = np.random.Generator
Pair = tuple[Any, Any]  # the lazy one and NumPy's


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def random_shape(random: Random, size: int) -> tuple[int, ...]:
    """Return a random shape of `size` elements."""
    if size == 0:
        return tuple(random.permutation([0, int(random.integers(1, 4))]).tolist())
    shape = []
    while size > 1 and len(shape) < 4:
        d = int(random.choice(divisors(size)))
        shape.append(d)
        size //= d
    return (*shape, size)


def random_slice(random: Random, size: int) -> slice:
    step = int(random.choice([1, 1, 2, 3, -1, -2]))
    ends = [None if random.random() < 0.4 else int(random.integers(-size - 1, size + 2))
            for _ in range(2)]  # fmt: skip
    return slice(ends[0], ends[1], step)


def random_key(random: Random, shape: tuple[int, ...], arrays: bool) -> tuple[Any, ...]:
    """Return a key for basic indexing, with index arrays if wanted."""
    key: list[Any] = []
    broadcast = tuple(int(n) for n in random.integers(1, 4, random.integers(0, 3)))
    for size in shape:
        kind = random.random()
        if random.random() < 0.1:
            key.append(None)
        if kind < 0.12 and size:
            key.append(int(random.integers(-size, size)))
        elif arrays and kind < 0.5 and size:
            own = tuple(n if random.random() < 0.7 else 1 for n in broadcast)
            key.append(random.integers(-size, size, own).astype(random.choice(["i8", "i4", "i1"])))
        else:
            key.append(random_slice(random, size))
        if random.random() < 0.1:
            break
    if random.random() < 0.25:
        key[int(random.integers(0, len(key) + 1)) :] = [Ellipsis]
    return tuple(key)


def step(random: Random, pair: Pair, gathers: bool) -> Pair:  # noqa: PLR0912, PLR0915
    """Apply one random view."""
    lazy, value = pair
    rank, shape = value.ndim, value.shape
    kinds = ["key", "reshape", "transpose", "flip", "broadcast", "expand", "squeeze", "ravel",
             "swap", "window", "diagonal"]  # fmt: skip
    if gathers:
        kinds += ["arrays", "arrays", "roll", "concat", "repeat", "tile", "shift", "take", "along"]
    kind = str(random.choice(kinds))
    if kind == "key":
        key = random_key(random, shape, False)
        return lazy[key], value[key]
    if kind == "arrays":
        key = random_key(random, shape, True)
        return lazy[key], value[key]
    if kind == "reshape":
        new = random_shape(random, value.size)
        return lazy.reshape(new), value.reshape(new)
    if kind == "ravel":
        order = str(random.choice(["C", "F"]))
        return lazy.ravel(order=order), value.ravel(order=order)
    if kind == "transpose":
        order = tuple(random.permutation(rank).tolist())
        return lazy.transpose(order), value.transpose(order)
    if kind == "expand":
        axis = int(random.integers(-rank - 1, rank + 1))
        return itf.expand_dims(lazy, axis), np.expand_dims(value, axis)
    if kind == "squeeze":
        return lazy.squeeze(), value.squeeze()
    if kind == "broadcast" and value.size < 2000:
        new = (*(int(random.integers(0 if random.random() < 0.05 else 1, 4)),), *(
            int(random.integers(1, 4)) if n == 1 else n for n in shape))  # fmt: skip
        return itf.broadcast_to(lazy, new), np.broadcast_to(value, new)
    if rank == 0:
        return pair
    axis = int(random.integers(-rank, rank))
    size = shape[axis]
    if kind == "flip":
        return itf.flip(lazy, axis), np.flip(value, axis)
    if kind == "swap":
        other = int(random.integers(0, rank))
        return lazy.swapaxes(axis, other), value.swapaxes(axis, other)
    if kind == "window" and value.size < 2000 and size:
        n = int(random.integers(1, min(size, 4) + 1))
        return (itf.sliding_window_view(lazy, n, axis),
                np.lib.stride_tricks.sliding_window_view(value, n, axis))  # fmt: skip
    if kind == "diagonal" and rank >= 2:
        k = int(random.integers(-2, 3))
        return itf.diagonal(lazy, k), np.diagonal(value, k)
    if kind == "roll":
        by = int(random.integers(-9, 9))
        where = axis if random.random() < 0.7 else None
        return itf.roll(lazy, by, where), np.roll(value, by, where)
    if kind == "concat" and value.size < 2000:
        return (itf.concat([lazy, lazy[::-1] * 2, lazy], axis),
                np.concatenate([value, value[::-1] * 2, value], axis))  # fmt: skip
    if kind == "repeat" and value.size < 2000:
        n = int(random.integers(0, 4))
        return itf.repeat(lazy, n, axis), np.repeat(value, n, axis)
    if kind == "tile" and value.size < 2000:
        n = (2, int(random.integers(1, 3)))
        return itf.tile(lazy, n), np.tile(value, n)
    if kind == "shift" and size > 1:
        n = int(random.integers(1, 4))
        mode = str(random.choice(["constant", "edge", "wrap", "reflect", "symmetric"]))
        widths = [(0, 0)] * rank
        widths[axis] = (n, 0)
        wide = np.pad(value, widths, mode=mode)
        want = wide[(slice(None),) * (axis % rank) + (slice(0, size),)]
        return itf.shift(lazy, n, axis, mode), want
    if kind == "take" and size and value.size < 2000:
        at = random.integers(-size, size, tuple(random.integers(1, 4, random.integers(0, 3))))
        return itf.take(lazy, at, axis), np.take(value, at, axis)
    if kind == "along" and size:
        own = (*shape[: axis % rank], 3, *shape[axis % rank + 1 :])
        at = random.integers(-size, size, own)
        return itf.take_along_axis(lazy, at, axis), np.take_along_axis(value, at, axis)
    return pair


def chain(random: Random, pair: Pair, steps: int, gathers: bool = False) -> Pair:
    """Apply random views with elementwise operations and other leaves in between."""
    start = pair
    for _ in range(steps):
        pair = step(random, pair, gathers)
        lazy, value = pair
        kind = random.random()
        if kind < 0.25:
            pair = lazy * 3 + 1, value * 3 + 1
        elif kind < 0.4 and value.ndim and value.shape[-1]:
            row = random.integers(-9, 9, value.shape[-1])
            pair = lazy + row, value + row
        elif kind < 0.5 and value.size < 2000:
            pair = lazy - lazy.reshape(value.shape)[...], value - value
            pair = pair[0] + lazy, value
        elif kind < 0.55 and value.ndim and value.shape[0] > 1:
            pair = lazy[1:] - lazy[:-1], value[1:] - value[:-1]
        if math.prod(pair[1].shape) > 20_000:
            pair = start
    return pair


def leaf(random: Random, how: int) -> np.ndarray[Any, Any]:
    """Return integers in a random shape and memory layout."""
    shape = tuple(int(n) for n in random.integers(1, 7, random.integers(0, 4)))
    if random.random() < 0.05:
        shape = (*shape, 0)
    x = np.asarray(random.integers(-99, 99, shape))
    if x.ndim == 0 or how == 0:
        return x
    if how == 1:
        return np.asfortranarray(x)
    if how == 2:
        return np.ascontiguousarray(np.flip(x))[(slice(None, None, -1),) * x.ndim]
    return np.repeat(x, 3, axis=-1)[..., ::3]
