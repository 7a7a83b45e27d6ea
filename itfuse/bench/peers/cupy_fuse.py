"""`cupy.fuse`: CuPy's own tracer, for elementwise functions with at most one reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from itfuse.bench.case import Case
from itfuse.bench.peers.base import NotForThis, Peer
from itfuse.bench.peers.cuda_reduce import PROGRAMS
from itfuse.bench.spaces import WithoutOut

KERNEL = "bench_fused"
"""CuPy calls its kernel after the function, and a lambda's name is no name in C++."""


class CuPyFuse(Peer):
    """The case's form under `cupy.fuse`."""

    name = "cupy.fuse"
    title = "the same operations under cupy.fuse"
    builds = 0.2
    library = "cupy"

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Any] = {}

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call of the fused function."""
        if case.dynamic or (case.hand and case.hand not in PROGRAMS):
            raise NotForThis("cupy.fuse takes elementwise functions and one whole reduction")
        key = (case.name, str(inputs[0].dtype))
        if key not in self._made:
            library, form = WithoutOut(device.xp), case.form
            # cupy.fuse counts the parameters of what it is given: no *args.
            by_count: dict[int, Callable[..., Any]] = {
                1: lambda x: form(library, x),
                2: lambda x, y: form(library, x, y),
                3: lambda x, y, z: form(library, x, y, z),
                4: lambda x, y, z, w: form(library, x, y, z, w),
            }
            self._made[key] = device.cupy.fuse(kernel_name=KERNEL)(by_count[len(inputs)])
        fused = self._made[key]
        return lambda: fused(*inputs)

    def moves(self, case: Case, inputs: tuple[Any, ...], least: int) -> int | None:
        """Return every input and result once, where one map or one reduction is all there is."""
        return least if case.kernel is not None and not case.kernel.scan else None


PEERS = (CuPyFuse(),)
