"""How many kernels a captured CUDA graph launches."""

from __future__ import annotations

from typing import Any


def kernels_of(graph: int) -> int:
    """Return the number of kernels in a graph; copies and fills by the copy engine are none.

    Parameters
    ----------
    graph : int
        A `cudaGraph_t`.

    Raises
    ------
    RuntimeError
        If CUDA cannot read it.
    """
    from cuda.bindings import runtime

    handle = runtime.cudaGraph_t(init_value=int(graph))
    _, _, count = _checked(runtime.cudaGraphGetNodes(handle, 0))
    _, nodes, count = _checked(runtime.cudaGraphGetNodes(handle, count))
    kernel = runtime.cudaGraphNodeType.cudaGraphNodeTypeKernel
    kinds = [_checked(runtime.cudaGraphNodeGetType(node))[1] for node in nodes[:count]]
    return sum(kind == kernel for kind in kinds)


def _checked(found: tuple[Any, ...]) -> tuple[Any, ...]:
    if int(found[0]):
        raise RuntimeError(f"a graph cannot be read: {found[0].name}")
    return found
