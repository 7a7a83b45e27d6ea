"""torch: eager operations, and the same function under `torch.compile`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from itfuse.bench.case import Case
from itfuse.bench.peers.base import NotForThis, Peer
from itfuse.bench.peers.launches import kernels_of


def _without_out(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, out: Any = None) -> Any:
        return function(*args)

    return call


class Torch:
    """torch's functions under NumPy's names and keywords. `out` is not used."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        for name in ("abs", "exp", "log", "sqrt", "where", "erf"):
            setattr(self, name, _without_out(getattr(torch, name)))  # plain: dynamo sees it

    def astype(self, x: Any, dtype: str, out: Any = None) -> Any:
        """Return `x` in another dtype."""
        return x.to(getattr(self._torch, dtype))

    def flip(self, x: Any) -> Any:
        """Return the elements of a vector in reverse order: torch has no negative strides."""
        return self._torch.flip(x, (0,))

    def maximum(self, x: Any, y: Any, out: Any = None) -> Any:
        """Return the greater; a number is a clamp, as torch's users write it."""
        torch = self._torch
        return torch.maximum(x, y) if torch.is_tensor(y) else torch.clamp(x, min=y)

    def multiply(self, x: Any, y: Any, out: Any = None) -> Any:
        """Return the product."""
        return x * y

    def add(self, x: Any, y: Any, out: Any = None) -> Any:
        """Return the sum of two."""
        return x + y

    def subtract(self, x: Any, y: Any, out: Any = None) -> Any:
        """Return the difference."""
        return x - y

    def copy(self, x: Any, out: Any = None) -> Any:
        """Return a copy."""
        return x.clone()

    def select(self, x: Any, mask: Any) -> Any:
        """Return the elements where `mask` is true."""
        return x[mask]

    def sum(self, x: Any, axis: Any = None, out: Any = None) -> Any:
        """Return the sum."""
        return self._torch.sum(x) if axis is None else self._torch.sum(x, dim=axis)

    def mean(self, x: Any, axis: Any = None, out: Any = None) -> Any:
        """Return the mean."""
        return self._torch.mean(x) if axis is None else self._torch.mean(x, dim=axis)

    def var(self, x: Any, axis: Any = None, out: Any = None) -> Any:
        """Return NumPy's variance, without Bessel's correction."""
        return self._torch.var(x, dim=axis, correction=0)

    def max(self, x: Any, axis: Any = None) -> Any:
        """Return the greatest."""
        return self._torch.max(x) if axis is None else self._torch.amax(x, dim=axis)

    def min(self, x: Any, axis: Any = None) -> Any:
        """Return the least."""
        return self._torch.min(x) if axis is None else self._torch.amin(x, dim=axis)

    def argmax(self, x: Any, axis: Any = None) -> Any:
        """Return the position of the greatest."""
        return self._torch.argmax(x, dim=axis)

    def argmin(self, x: Any, axis: Any = None) -> Any:
        """Return the position of the least."""
        return self._torch.argmin(x, dim=axis)

    def cumsum(self, x: Any, out: Any = None) -> Any:
        """Return running sums."""
        return self._torch.cumsum(x, dim=0)

    def softmax(self, x: Any, axis: int, out: Any = None) -> Any:
        """Return the softmax."""
        return self._torch.softmax(x, dim=axis)

    def logsumexp(self, x: Any, axis: int, out: Any = None) -> Any:
        """Return log(sum(exp(x)))."""
        return self._torch.logsumexp(x, dim=axis)

    def layernorm(self, x: Any, weight: Any, bias: Any) -> Any:
        """Return torch's own layer norm."""
        return self._torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)


def captured(call: Callable[[], Any]) -> int | None:
    """Return the kernels that a call of torch launches; None where torch cannot capture it."""
    import torch

    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)  # since torch 2.8
        with torch.cuda.graph(graph):
            call()
        return kernels_of(graph.raw_cuda_graph())
    except Exception:  # a call that waits for the device cannot be captured: nothing is claimed
        torch.cuda.synchronize()
        return None


class Eager(Peer):
    """torch's operations, one after the other."""

    name = "torch"
    title = "torch, eager"
    library = "torch"
    replays = False  # torch's allocator must take part in a capture

    def missing(self, device: Any) -> str:
        """Say whether torch is here and sees the GPU."""
        reason = super().missing(device)
        if not reason:
            import torch

            reason = "" if torch.cuda.is_available() else "this torch sees no GPU"
        return reason

    def function(self, case: Case, count: int, dtype: str) -> Callable[..., Any]:
        """Return what runs."""
        import torch

        library, form = Torch(torch), case.form
        return lambda *tensors: form(library, *tensors)

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call over tensors of the same memory."""
        import torch

        try:
            tensors = tuple(torch.from_dlpack(x) for x in inputs)
        except (TypeError, RuntimeError, BufferError) as why:
            raise NotForThis(f"torch takes no {inputs[0].dtype} array ({why})") from None
        run = self.function(case, inputs[0].size, str(inputs[0].dtype))
        return lambda: run(*tensors)

    def launches(
        self, case: Case, inputs: tuple[Any, ...], call: Callable[[], Any], device: Any
    ) -> int | None:
        """Return the kernels of a graph that torch captures, whose allocator has a part in it."""
        return captured(call)

    def answer(self, value: Any, device: Any) -> tuple[Any, ...]:
        """Return the result as CuPy arrays, without a copy."""
        values = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(device.cupy.from_dlpack(one.detach().contiguous()) for one in values)

    def trim(self) -> None:
        """Give torch's unused memory back."""
        import torch

        torch.cuda.empty_cache()


class Compiled(Eager):
    """The same function under torch.compile, for one shape."""

    name = "torch.compile"
    title = "torch.compile of the same function"
    builds = 4.0

    def __init__(self) -> None:
        self._made: dict[Any, Callable[..., Any]] = {}
        self._moved: dict[Any, int] = {}

    def function(self, case: Case, count: int, dtype: str) -> Callable[..., Any]:
        """Return the compiled function; each shape has its own.

        torch gives up compiling after eight shapes of one function and runs it eagerly without
        a word, so every function is compiled by itself, for this shape only.
        """
        import torch

        key = (case.name, count, dtype)
        if key not in self._made:
            torch._dynamo.reset()
            plain = super().function(case, count, dtype)
            self._made = {key: torch.compile(plain, dynamic=False)}
        return self._made[key]

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call; the first one of a shape is made here, and compiles."""
        call = super().bind(case, inputs, out, device)
        key = (case.name, inputs[0].size, str(inputs[0].dtype))
        if key not in self._moved:
            before = _accounted()
            call()
            self._moved = {key: _accounted() - before}
        return call

    def moves(self, case: Case, inputs: tuple[Any, ...], least: int) -> int | None:
        """Return what the compiler says that its kernels read and write, if it says it."""
        return self._moved.get((case.name, inputs[0].size, str(inputs[0].dtype))) or None


def _accounted() -> int:
    """Return the bytes that inductor has accounted for so far; 0 in versions that do not say."""
    try:
        metrics = importlib.import_module("torch._inductor.metrics")
    except ImportError:
        return 0
    return int(getattr(metrics, "num_bytes_accessed", 0))


PEERS = (Eager(), Compiled())
