"""Expressions as iterators of `cuda.compute`."""

from __future__ import annotations

from typing import Any

from itfuse import engines, wording
from itfuse.array import Array, place_of
from itfuse.errors import DeviceError, NeedsBuffer
from itfuse.evaluate import check_bounds, check_values, engine_of
from itfuse.plan import make_plan


def as_iterator(self: Array) -> Any:
    """Return this expression as an input iterator of `cuda.compute`, for its own algorithms.

    Its elements are computed where an algorithm reads them, in row-major order, so that nothing is
    stored between. It keeps the arrays alive and reads them when the algorithm runs.

    Returns
    -------
    cuda.compute.TransformIterator
        With `shape`, `dtype`, and `arrays`. It goes wherever an algorithm takes an iterator as
        input. Iterators of one structure over other arrays and scalars share what is built.

    Raises
    ------
    DeviceError
        If the expression is not on a GPU.
    NeedsBuffer
        If its elements wait for a reduction; `.compute()` that first.

    Examples
    --------
    The places of `2 x + 1` in sorted edges, without an array of it (on a GPU)::

        import cuda.compute as cc, cupy as cp, numpy as np, itfuse as itf

        edges = cp.linspace(0, 10, 100, dtype=np.float32)
        x = cp.random.random(1 << 20, dtype=np.float32)
        out = cp.empty(x.size, np.uintp)
        values = (itf.asarray(x) * 2 + 1).as_iterator()
        cc.lower_bound(d_data=edges, num_items=edges.size, d_values=values,
                       num_values=x.size, d_out=out)
    """
    nodes, what = (self._node,), f"as_iterator({wording.text(self._node)})"
    check_values(nodes, self._data, "as_iterator")
    device = place_of(self._device)
    if not device.startswith("cuda"):
        raise DeviceError(
            f"{what}: it is on {device}, and an iterator of cuda.compute reads on a GPU; make it "
            "of CuPy arrays"
        )
    runner = engine_of("auto", device, nodes)
    stage = make_plan(nodes, device=device, until="fuse").stages[-1]
    if stage.primitive != "transform" or any(i.kind == "carried" for i in stage.inputs):
        raise NeedsBuffer(
            f"{what}: its elements wait for a reduction, which an iterator cannot run; .compute() "
            "the reduction first and use its result"
        )
    check_bounds(nodes, self._data, device, None)
    (stage,) = make_plan(nodes, device=device, strategy="cub.iterator").stages
    with runner.on(None):
        return runner.iterator(stage, engines.operands(stage, self._data))


Array.as_iterator = as_iterator  # type: ignore[attr-defined]
