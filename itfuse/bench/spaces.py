"""Libraries under NumPy's names, with what each lacks written as its users write it.

A case's `form` calls these: `F.maximum(2 * x + 1, 0, out=out)`. `out=None` means a new array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import itfuse as itf


class Library:
    """NumPy or CuPy, with the functions that it has elsewhere or not at all."""

    def __init__(self, module: Any, erf: Callable[..., Any]) -> None:
        self._module = module
        self.erf = erf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def relu(self, x: Any, out: Any = None) -> Any:
        """Return maximum(x, 0)."""
        return self._call("maximum", out, x, 0)

    def softmax(self, x: Any, axis: int, out: Any = None) -> Any:
        """Return exp(x) over its sum along `axis`, without overflow."""
        e = self._module.exp(x - self._module.max(x, axis=axis, keepdims=True))
        return self._call("divide", out, e, self._module.sum(e, axis=axis, keepdims=True))

    def logsumexp(self, x: Any, axis: int, out: Any = None) -> Any:
        """Return log(sum(exp(x))) along `axis`, without overflow."""
        top = self._module.max(x, axis=axis, keepdims=True)
        total = self._module.sum(self._module.exp(x - top), axis=axis)
        return self._call("add", out, self._module.log(total), top.squeeze(axis))

    def layernorm(self, x: Any, weight: Any, bias: Any) -> Any:
        """Return rows of mean 0 and variance 1, times `weight`, plus `bias`."""
        apart = x - self._module.mean(x, axis=-1, keepdims=True)
        spread = self._module.mean(apart * apart, axis=-1, keepdims=True)
        return apart / self._module.sqrt(spread + 1e-5) * weight + bias

    def copy(self, x: Any, out: Any = None) -> Any:
        """Return a copy."""
        return self._call("positive", out, x)

    def select(self, x: Any, mask: Any) -> Any:
        """Return the elements where `mask` is true."""
        return x[mask]

    def astype(self, x: Any, dtype: str, out: Any = None) -> Any:
        """Return `x` in another dtype."""
        if out is None:
            return x.astype(dtype)
        self._module.copyto(out, x, casting="same_kind")
        return out

    @property
    def plain(self) -> Any:
        """The library's own module, whose functions are found at once."""
        return self._module

    def _call(self, name: str, out: Any, *operands: Any) -> Any:
        function = getattr(self._module, name)
        return function(*operands) if out is None else function(*operands, out=out)


class WithoutOut:
    """A library whose functions are never given `out`: for tracers that do not know it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            return found(*args, **kwargs)

        return call


class Lazy:
    """itfuse. A function that it does not have raises `AttributeError`."""

    def copy(self, x: Any) -> Any:
        """Return a copy: a pass of its own."""
        return itf.positive(x)

    def select(self, x: Any, mask: Any) -> Any:
        """Return the elements where `mask` is true."""
        return x[mask]

    def astype(self, x: Any, dtype: str) -> Any:
        """Return `x` in another dtype."""
        return x.astype(dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(itf, name)


LAZY = WithoutOut(Lazy())
