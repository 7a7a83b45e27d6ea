"""JAX: the same function under `jax.jit`. It runs on a stream of its own: timed by the wall."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from itfuse.bench.case import Case
from itfuse.bench.peers.base import NotForThis, Peer
from itfuse.bench.spaces import WithoutOut

_FREE = ("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "copy-start",
         "copy-done", "after-all")  # fmt: skip
_HIDING = ("while", "conditional", "call", "custom-call", "async-start")


def kernels_in(program: str) -> int | None:
    r"""Return how many kernels XLA's optimised program launches; None where its text hides some.

    Each instruction of the entry is one, but for those that only name what is there. Loops, calls
    and libraries launch as many as they like.

    Examples
    --------
    >>> kernels_in("ENTRY %m (a: f32[8]) -> f32[8] {\n  %a = f32[8]{0} parameter(0)\n"
    ...            "  ROOT %f = f32[8]{0} fusion(%a), kind=kLoop, calls=%c\n}")
    1
    """
    entry = program.partition("ENTRY ")[2].partition("\n}")[0]
    found = re.findall(r"^\s+(?:ROOT )?%?[\w.-]+ = (?:\(.*?\)|\S+) ([\w-]+)\(", entry, re.MULTILINE)
    if not found or any(one in _HIDING for one in found):
        return None
    return sum(one not in _FREE for one in found)


class Jax:
    """jax.numpy, with the functions that JAX has elsewhere."""

    def __init__(self) -> None:
        import jax

        self._jax = jax

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jax.numpy, name)

    def erf(self, x: Any) -> Any:
        """Return the error function."""
        return self._jax.scipy.special.erf(x)

    def softmax(self, x: Any, axis: int) -> Any:
        """Return the softmax."""
        return self._jax.nn.softmax(x, axis=axis)

    def logsumexp(self, x: Any, axis: int) -> Any:
        """Return log(sum(exp(x)))."""
        return self._jax.nn.logsumexp(x, axis=axis)

    def layernorm(self, x: Any, weight: Any, bias: Any) -> Any:
        """Return rows of mean 0 and variance 1, times `weight`, plus `bias`."""
        return self._jax.nn.standardize(x, axis=-1, epsilon=1e-5) * weight + bias

    def astype(self, x: Any, dtype: str) -> Any:
        """Return `x` in another dtype."""
        return x.astype(dtype)

    def add(self, x: Any, y: Any, out: Any = None) -> Any:
        """Return the sum of two."""
        return x + y

    def copy(self, x: Any) -> Any:
        """Return a copy."""
        return self._jax.numpy.copy(x)


class Jit(Peer):
    """The case's form under jax.jit."""

    name = "jax.jit"
    title = "jax.jit of the same function"
    library = "jax"
    engines = ("cuda", "cpu")
    replays = False
    builds = 1.2  # twice: once more to read what was compiled

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._programs: dict[Any, Any] = {}

    def missing(self, device: Any) -> str:
        """Say whether JAX is here and sees the device."""
        reason = super().missing(device)
        if reason:
            return reason
        # Unless told otherwise JAX takes three quarters of the GPU's memory at its first call.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        jax.config.update("jax_enable_x64", True)  # float64 stays float64, as NumPy's does
        wanted = "gpu" if device.engine == "cuda" else "cpu"
        try:
            jax.devices(wanted)
        except RuntimeError:
            return f"this JAX sees no {wanted}"
        return ""

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call of the compiled function."""
        import jax

        if case.dynamic:
            raise NotForThis("jax.jit has no results whose shape the data decide")
        if device.engine == "cuda":
            device.wait()  # JAX's stream does not wait for CuPy's
            arrays = tuple(jax.dlpack.from_dlpack(x) for x in inputs)
        else:
            place = jax.devices("cpu")[0]
            arrays = tuple(jax.device_put(x, place) for x in inputs)
        if case.name not in self._made:
            library, form = WithoutOut(Jax()), case.form
            self._made = {case.name: jax.jit(lambda *xs: form(library, *xs))}
        run = self._made[case.name]
        return lambda: run(*arrays)

    def _program(self, case: Case, inputs: tuple[Any, ...]) -> Any:
        """Return XLA's compiled program; compiled once more, since a jitted function hides it."""
        import jax

        shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs)
        key = (case.name, *((one.shape, str(one.dtype)) for one in shapes))
        if key not in self._programs:
            self._programs = {key: self._made[case.name].lower(*shapes).compile()}
        return self._programs[key]

    def launches(
        self, case: Case, inputs: tuple[Any, ...], call: Callable[[], Any], device: Any
    ) -> int | None:
        """Return the kernels of XLA's program: graphs of its streams cannot be captured here."""
        if device.engine != "cuda":
            return None
        return kernels_in(self._program(case, inputs).as_text())

    def moves(self, case: Case, inputs: tuple[Any, ...], least: int) -> int | None:
        """Return what XLA says that its program reads and writes."""
        found = self._program(case, inputs).cost_analysis()
        found = found[0] if isinstance(found, list) else found
        return int(found["bytes accessed"]) if found and "bytes accessed" in found else None

    @staticmethod
    def wait(result: Any) -> None:
        """Wait for a result."""
        import jax

        jax.block_until_ready(result)

    def answer(self, value: Any, device: Any) -> tuple[Any, ...]:
        """Return the result as arrays of the device's library."""
        self.wait(value)
        values = value if isinstance(value, (tuple, list)) else (value,)
        if device.engine == "cuda":
            return tuple(device.cupy.from_dlpack(one) for one in values)
        return super().answer(values, device)


PEERS = (Jit(),)
