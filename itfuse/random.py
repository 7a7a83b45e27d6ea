"""Random arrays: made from the index in registers, the same numbers on every engine.

An element's number is a function of the seed, the stream and its place in row-major order
(Philox4x32-10; see rows/philox.py). So nothing is read, nothing is kept, any part of an array can
be computed alone, and a seed gives the same integers, uniforms and booleans everywhere, bit for
bit. The seed is a runtime value: another one compiles nothing.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from itfuse import dtypes, expr
from itfuse.array import Array, asarray
from itfuse.creation import _place
from itfuse.errors import DTypeError, RangeError, ShapeError, TraceError
from itfuse.form import Number
from itfuse.functions import FUNCTIONS, F
from itfuse.manipulation import broadcast_to
from itfuse.ops import IOTA
from itfuse.plan.index import Form, contiguous_strides

__all__ = ["Generator", "bernoulli", "integers", "normal", "uniform"]

_FLOATS = ("float32", "float64")
_WORDS = 2**64
_state = threading.local()


def _known(x: Any) -> bool:
    """Return whether `x` is one number whose value is there."""
    return not isinstance(x, (Array, Number)) and np.ndim(x) == 0


def _unsigned(x: Any, what: str) -> Any:
    """Return a seed or an offset as an operand of dtype uint64."""
    if isinstance(x, Number) and x.kind is int:
        return x
    if isinstance(x, Array) and not x.shape and x.dtype.kind in "iu":
        return x.astype(np.uint64)
    if not isinstance(x, (bool, np.bool)):
        with contextlib.suppress(TypeError):
            if 0 <= (value := operator.index(x)) < _WORDS:
                return value
            raise RangeError(f"{what}={x}: it must be from 0 to 2**64 - 1")
    raise DTypeError(f"{what}={x!r}: expected an integer from 0 to 2**64 - 1")


def _shape(shape: Any, size: Any, what: str) -> Any:
    """Return the shape, which NumPy calls size."""
    if shape is not None and size is not None:
        raise TypeError(f"{what}: shape= and size= are one thing; give one of them")
    return size if shape is None else shape


class _Draw:
    """One draw: the places of its elements, and the words there.

    Parameters
    ----------
    what : str
        The function's name, for errors.
    shape : int or tuple of int, optional
        By default that of the parameters, broadcast.
    parameters : tuple
        Numbers and arrays.
    seed, offset, device
        As users give them.
    """

    def __init__(  # noqa: PLR0917
        self, what: str, shape: Any, parameters: tuple[Any, ...], seed: Any, offset: Any,
        device: Any,
    ) -> None:  # fmt: skip
        self.what = what
        shapes = [() if isinstance(x, Number) else np.shape(x) for x in parameters]
        common = expr.broadcast(shapes, lambda: what)
        self.shape = common if shape is None else expr.shape_of(shape, what)
        self.key, self.stream = _unsigned(seed, "seed"), _unsigned(offset, "offset")
        if expr.broadcast([self.shape, common], lambda: what) != self.shape:
            raise ShapeError(f"{what}: parameters of shape {common} do not fit shape={self.shape}")
        self.device = _place(device, None)

    def words(self, row: str, step: int = 1, first: int = 0, *more: Any) -> Any:
        """Return what a row of random words gives at `first + step * place`."""
        steps = tuple(contiguous_strides(self.shape, step))
        node = expr.make(IOTA, (), np.dtype(np.int64), self.shape, Form(first, steps))
        index = Array(node, {}, self.device)
        return F.random(row, index, self.key, self.stream, *more)

    def unit(self, dtype: np.dtype[Any]) -> Any:
        """Return numbers of [0, 1): multiples of 2**-24, or of 2**-53 for float64."""
        if dtype == np.float64:
            return (self.words("random_pair") >> 11).astype(dtype) * 2.0**-53
        return (self.words("random_word") >> 8).astype(dtype) * 2.0**-24

    def parameter(self, x: Any, dtype: np.dtype[Any]) -> Any:
        """Return a parameter as an operand that does not widen `dtype`."""
        if isinstance(x, Number) or type(x) in (bool, int, float):
            return x
        lazy = asarray(x)
        if lazy.dtype.kind not in "biuf":
            raise DTypeError(f"{self.what}: a parameter of dtype {lazy.dtype}; it must be real")
        return lazy.astype(dtype)


def _float(dtype: Any, what: str) -> np.dtype[Any]:
    found = dtypes.as_dtype(dtype, what)
    if found.name not in _FLOATS:
        raise DTypeError(
            f"{what}: dtype={found.name}; it is made in {' or '.join(_FLOATS)}; .astype(...) it"
        )
    return found


def uniform(
    low: Any = 0.0, high: Any = 1.0, shape: Any = None, dtype: Any = np.float64, *, seed: Any,
    offset: Any = 0, device: Any = None, size: Any = None,
) -> Array:  # fmt: skip
    """Return numbers that are equally likely everywhere in [low, high).

    Parameters
    ----------
    low, high : float or array
        The bounds. `low + (high - low) * u` may round to `high`, as NumPy's.
    shape : int or tuple of int, optional
        By default the bounds' shape, broadcast.
    dtype : dtype-like
        float32 (u is a multiple of 2**-24) or float64 (of 2**-53).
    seed : int
        From 0 to 2**64 - 1: the numbers depend on nothing else but `offset` and their places. It
        is no part of compiled code.
    offset : int
        Which of the 2**64 independent streams of the seed.
    device : str, optional
        `cpu`, `cuda:0`, ...; by default that of what the result is combined with.
    size : int or tuple of int, optional
        NumPy's name of `shape`.

    Raises
    ------
    DTypeError
        For other dtypes, or a seed that is no integer.
    RangeError
        For a seed or offset out of range.
    ShapeError
        If the parameters do not broadcast to `shape`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.random.uniform(shape=3, dtype="float32", seed=0, device="cpu").compute()
    array([0.39904642, 0.88052016, 0.73571277], dtype=float32)
    """
    kind = _float(dtype, "uniform")
    draw = _Draw("uniform", _shape(shape, size, "uniform"), (low, high), seed, offset, device)
    u: Array = draw.unit(kind)
    if _known(low) and _known(high) and (low, high) == (0, 1):
        return u
    low, high = draw.parameter(low, kind), draw.parameter(high, kind)
    made: Array = u * (high - low) + low
    return made


def normal(
    loc: Any = 0.0, scale: Any = 1.0, shape: Any = None, dtype: Any = np.float64, *, seed: Any,
    offset: Any = 0, device: Any = None, size: Any = None,
) -> Array:  # fmt: skip
    """Return normally distributed numbers.

    G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates" (1958):
    ``sqrt(-2 * log(u)) * cos(2 * pi * v)``. The uniform numbers are the same on every engine; the
    functions of them are accurate to a few units in the last place, so that before `loc` is added
    two engines differ by at most 16. The farthest are 6.8 (float32) and 8.7 (float64) from zero.

    Parameters
    ----------
    loc : float or array
        The mean.
    scale : float or array
        The standard deviation, not negative.
    shape, dtype, seed, offset, device, size
        See `uniform`.

    Raises
    ------
    ValueError
        If `scale` is a number below zero.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.random.normal(10, 2, 100_000, seed=1, device="cpu")
    >>> float(x.mean().compute().round(1)), float(x.std().compute().round(1))
    (10.0, 2.0)
    """
    kind = _float(dtype, "normal")
    if _known(scale) and not scale >= 0:
        raise RangeError(f"normal: scale={scale}; a standard deviation is not negative")
    draw = _Draw("normal", _shape(shape, size, "normal"), (loc, scale), seed, offset, device)
    if kind == np.float64:
        u = (draw.words("random_pair", 2, 1) >> 11).astype(kind) * 2.0**-53 + 2.0**-54
        v = (draw.words("random_pair", 2) >> 11).astype(kind) * 2.0**-53
    else:
        both = draw.words("random_pair")
        u = (both >> 32).astype(kind) * 2.0**-32 + 2.0**-33
        v = ((both & 0xFFFFFFFF) >> 8).astype(kind) * 2.0**-24
    z = FUNCTIONS["sqrt"](FUNCTIONS["log"](u) * -2.0) * FUNCTIONS["cos"](v * (2 * np.pi))
    if not (_known(scale) and scale == 1):
        z = z * draw.parameter(scale, kind)
    if not (_known(loc) and loc == 0):
        z = z + draw.parameter(loc, kind)
    return z if z.shape == draw.shape else broadcast_to(z, draw.shape)


def integers(
    low: Any, high: Any = None, shape: Any = None, dtype: Any = np.int64, endpoint: bool = False,
    *, seed: Any, offset: Any = 0, device: Any = None, size: Any = None,
) -> Array:  # fmt: skip
    """Return integers that are equally likely in [low, high), or in [low, high] with `endpoint`.

    128 random bits are multiplied by the number of integers and shifted (D. Lemire, "Fast random
    integer generation in an interval", 2019, without the rejections): no probability is off by
    more than 2**-64 of itself.

    Parameters
    ----------
    low, high : int or integer array
        The bounds. Alone, `low` is the upper one, and the lower is 0. In arrays and in arguments
        of fused functions nobody looks whether the upper bound is above the lower.
    shape : int or tuple of int, optional
        By default the bounds' shape, broadcast.
    dtype : dtype-like
        An integer dtype.
    endpoint : bool
        Whether the upper bound is one of them.
    seed, offset, device, size
        See `uniform`.

    Raises
    ------
    RangeError
        If a bound is beyond the dtype, or there is nothing between them.
    DTypeError
        If the dtype or a bound is no integer.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.random.integers(1, 6, 8, endpoint=True, seed=3, device="cpu").compute()
    array([5, 4, 3, 5, 4, 4, 4, 3])
    """
    kind = dtypes.as_dtype(dtype, "integers")
    if kind.kind not in "iu":
        raise DTypeError(f"integers: dtype={kind.name} is no integer")
    if high is None:
        low, high = 0, low
    draw = _Draw("integers", _shape(shape, size, "integers"), (low, high), seed, offset, device)
    bounds = [_integer(x, "integers") for x in (low, high)]
    if all(type(x) is int for x in bounds):
        start, stop = bounds[0], bounds[1] + bool(endpoint)
        info = np.iinfo(kind)
        if not info.min <= start or not stop - 1 <= info.max:
            raise RangeError(f"integers: [{start}, {stop}) is beyond {kind.name}")
        if start >= stop:
            raise RangeError(f"integers: there is no integer in [{start}, {stop})")
        first, last = start % _WORDS, stop - start - 1
    else:
        first, stop = (x % _WORDS if type(x) is int else x for x in bounds)
        last = F.subtract(F.subtract(_word(stop), _word(first)), int(not endpoint))
    found = draw.words("random_below", 1, 0, last)
    shifted: Array = found if type(first) is int and first == 0 else found + _word(first)
    return shifted.astype(kind)


def _integer(x: Any, what: str) -> Any:
    """Return a bound: an int, an integer argument of a fused function, or an Array."""
    if isinstance(x, Number) and x.kind is int:
        return x
    if _known(x):
        if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
            return int(x)
        if isinstance(x, float) and x.is_integer():  # as NumPy
            return int(x)
        raise DTypeError(f"{what}: the bound {x!r} is no integer")
    lazy = asarray(x)
    if lazy.dtype.kind not in "iu":
        raise DTypeError(f"{what}: bounds of dtype {lazy.dtype} are no integers")
    return lazy


def _word(x: Any) -> Any:
    """Return a bound modulo 2**64."""
    if type(x) is int:
        return np.uint64(x)
    return asarray(x).astype(np.uint64)


def bernoulli(
    p: Any = 0.5, shape: Any = None, *, seed: Any, offset: Any = 0, device: Any = None,
    size: Any = None,
) -> Array:  # fmt: skip
    """Return booleans that are true with probability `p`.

    Parameters
    ----------
    p : float or array
        From 0 to 1, kept to 2**-24. Never true for 0, always for 1.
    shape, seed, offset, device, size
        See `uniform`.

    Raises
    ------
    RangeError
        If `p` is a number out of [0, 1].

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> x = itf.asarray(np.ones(1000, np.float32))
    >>> dropped = x * itf.random.bernoulli(0.9, x.shape, seed=7)     # one pass
    >>> int(dropped.sum().compute())
    901
    """
    if _known(p) and not 0 <= p <= 1:
        raise RangeError(f"bernoulli: p={p} is no probability")
    draw = _Draw("bernoulli", _shape(shape, size, "bernoulli"), (p,), seed, offset, device)
    kind = np.dtype(np.float32)
    made: Array = draw.unit(kind) < draw.parameter(p, kind)
    return made


class Generator:
    """Draws with one seed, each from the next stream.

    Parameters
    ----------
    seed : int
        From 0 to 2**64 - 1.
    offset : int
        The stream of the first draw.

    Attributes
    ----------
    seed, offset : int
        What the next draw uses; they are all of its state.

    Raises
    ------
    TraceError
        If it draws inside a fused function, which is traced once and would repeat the same numbers
        in every call: give the function a seed or an offset.

    Examples
    --------
    >>> import itfuse as itf
    >>> rng = itf.random.Generator(5)
    >>> a, b = rng.uniform(shape=4), rng.uniform(shape=4)
    >>> rng.offset, bool((a == b).any().compute())
    (2, False)
    """

    def __init__(self, seed: int, offset: int = 0) -> None:
        self.seed, self.offset = _unsigned(seed, "seed"), _unsigned(offset, "offset")
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"itf.random.Generator({self.seed}, offset={self.offset})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Generator, (self.seed, self.offset)

    def _draw(self, function: Callable[..., Array], *args: Any, **kwargs: Any) -> Array:
        if name := getattr(_state, "traced", None):
            raise TraceError(
                f"{name}: a Generator draws while it is traced, and every call would repeat its "
                "numbers; give the function seed= or offset= as an argument"
            )
        with self._lock:
            made = function(*args, **kwargs, seed=self.seed, offset=self.offset)
            self.offset += 1
        return made

    def uniform(self, low: Any = 0.0, high: Any = 1.0, shape: Any = None,
                dtype: Any = np.float64, *, device: Any = None,
               size: Any = None) -> Array:  # fmt: skip
        """Return `itf.random.uniform` of the next stream."""
        return self._draw(uniform, low, high, shape, dtype, device=device, size=size)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, shape: Any = None,
               dtype: Any = np.float64, *, device: Any = None,
               size: Any = None) -> Array:  # fmt: skip
        """Return `itf.random.normal` of the next stream."""
        return self._draw(normal, loc, scale, shape, dtype, device=device, size=size)

    def integers(self, low: Any, high: Any = None, shape: Any = None, dtype: Any = np.int64,
                 endpoint: bool = False, *, device: Any = None,
                 size: Any = None) -> Array:  # fmt: skip
        """Return `itf.random.integers` of the next stream."""
        return self._draw(integers, low, high, shape, dtype, endpoint, device=device, size=size)

    def bernoulli(self, p: Any = 0.5, shape: Any = None, *, device: Any = None,
                  size: Any = None) -> Array:  # fmt: skip
        """Return `itf.random.bernoulli` of the next stream."""
        return self._draw(bernoulli, p, shape, device=device, size=size)


@contextlib.contextmanager
def tracing(name: str) -> Iterator[None]:
    """Let no Generator draw: the function `name` is traced, once for many calls."""
    before = getattr(_state, "traced", None)
    _state.traced = name
    try:
        yield
    finally:
        _state.traced = before
