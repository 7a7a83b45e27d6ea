"""The unfused library: NumPy or CuPy, one call after the other, the last one into `out`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from itfuse.bench.case import LATENCY, Case
from itfuse.bench.peers.base import Peer


class NumPy(Peer):
    """NumPy's own operations."""

    name = "numpy"
    title = "NumPy, one operation after the other"
    library = "numpy"
    engines = ("cpu",)

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call of the library's functions."""
        # Where the host's time is measured, functions are found as the library's users find them.
        form, xp = case.form, device.xp.plain if case.kind == LATENCY else device.xp
        return lambda: form(xp, *inputs, out=out)

    # What its operations move is counted by running them small: `unfused.count`.


class CuPy(NumPy):
    """CuPy's own operations."""

    name = "cupy"
    title = "CuPy, one operation after the other"
    library = "cupy"
    engines = ("cuda",)


PEERS = (NumPy(), CuPy())
