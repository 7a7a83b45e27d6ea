"""`ElementwiseKernel` and `ReductionKernel`: the C++ of one element, written by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from itfuse.bench.case import Case, Kernel
from itfuse.bench.peers.base import Peer, kernel_of, results

_DTYPES = ("float32", "float64", "int32", "int64", "int8", "int16", "uint8")


@functools.cache
def _build(kernel: Kernel, count: int, size: int) -> Any:
    import cupy

    takes = ", ".join(f"T x{k}" for k in range(count))
    if not kernel.combine:
        maps = (kernel.map, *kernel.also)
        gives = ", ".join(f"T y{k}" for k in range(len(maps)))
        text = kernel.before + "".join(f" y{k} = {one};" for k, one in enumerate(maps))
        return cupy.ElementwiseKernel(takes, gives, text, "bench_elementwise")
    # The last step of a ReductionKernel does not know how many elements there are.
    finish = kernel.finish.replace("T(n)", f"T({size})")
    return cupy.ReductionKernel(
        takes, "T y", kernel.map, kernel.combine, f"y = {finish}", "0", "bench_reduction"
    )


class CuPyKernel(Peer):
    """CuPy's kernel classes."""

    name = "cupy kernel"
    title = "cupy.ElementwiseKernel or ReductionKernel"
    builds = 0.3
    library = "cupy"

    def may_have(self, case: Case) -> bool:
        """Return whether a kernel of the case has been written."""
        return case.kernel is not None

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call of the kernel."""
        size = inputs[0].size if case.kernel is not None and "n" in case.kernel.finish else 0
        kernel = kernel_of(case, inputs, _DTYPES, several=True)
        built = _build(kernel, len(inputs), size)
        if kernel.combine:
            return lambda: built(*inputs, out=out)
        outs = (out,) if out is not None else results(device, case, inputs)
        return lambda: built(*inputs, *outs)

    def moves(self, case: Case, inputs: tuple[Any, ...], least: int) -> int | None:
        """Return every input and result once."""
        return least


PEERS = (CuPyKernel(),)
