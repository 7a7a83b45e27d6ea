"""`itf.graph`: a call captured as a CUDA graph, to be replayed at the cost of one launch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from itfuse import engines, pytree
from itfuse.array import Array
from itfuse.bound import BoundFused
from itfuse.errors import DeviceError
from itfuse.fused import Fused
from itfuse.trace import NUMBERS, Layout, describe, is_leaf


class Graph:
    """A captured call; made by `itf.graph`.

    It keeps the arguments and the results of the call, which every replay reads and writes.

    Attributes
    ----------
    outputs : object
        What the captured call returned; a replay writes new values into the same arrays.
    """

    def __init__(self, captured: Any) -> None:
        self._captured = captured
        self.outputs = captured.outputs

    def replay(self, stream: Any = None) -> Any:
        """Queue the captured work again, and return `outputs`.

        Parameters
        ----------
        stream : object, optional
            Anything with `__cuda_stream__`; CuPy's current stream by default.
        """
        self._captured.launch(stream)
        return self.outputs

    __call__ = replay


def graph(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
    """Capture a call as a CUDA graph.

    Parameters
    ----------
    function : callable
        Queues work on the GPU: a fused function, or any function of fused functions, `compute`
        and CuPy's own operations that does not wait for the device.
    *args, **kwargs
        Its arguments. Their memory is part of the graph: write new data into the same arrays
        (`x[...] = new`) before a replay. Numbers are fixed.

    Returns
    -------
    Graph
        With `replay()` and `outputs`.

    Raises
    ------
    DeviceError
        If an argument is not on a GPU, if no GPU can be used, or inside another capture.

    Notes
    -----
    A fused function is only built before the capture. Any other function runs once to be built,
    and so has its effects once more than it is replayed.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> try:
    ...     itf.graph(itf.fuse(lambda x: x + 1), np.ones(3))
    ... except itf.DeviceError as why:
    ...     print(why)
    itf.graph captures work of a GPU, and an argument of <lambda> is on cpu; move the arrays there
    with cupy.asarray(...)
    """
    name = getattr(function, "__qualname__", getattr(function, "__name__", repr(function)))
    leaves: list[Any] = []
    for x in (*args, *kwargs.values()):
        _leaves(x, leaves)
    if any(isinstance(x, Array) for x in leaves):
        raise DeviceError(f"itf.graph: {name} was given lazy arrays; give computed ones")
    layouts = describe([x for x in leaves if type(x) not in NUMBERS])[1]
    devices = sorted({one.device for one in layouts if type(one) is Layout})
    for device in devices:
        if not device.startswith("cuda"):
            raise DeviceError(
                f"itf.graph captures work of a GPU, and an argument of {name} is on {device}; "
                "move the arrays there with cupy.asarray(...)"
            )
    if len(devices) != 1:
        raise DeviceError(
            f"itf.graph needs the arrays of {name} on one GPU, not on {devices or 'none'}"
        )
    number = int(devices[0].partition(":")[2])
    # The engine first: it says what is missing where there is no usable GPU.
    engines.engine_for(devices[0])
    captured = importlib.import_module("itfuse.engines.cuda.graph").Captured

    def work() -> Any:
        return function(*args, **kwargs)

    def warm() -> None:
        if isinstance(function, (Fused, BoundFused)):
            given = {key: x for key, x in kwargs.items() if key not in ("out", "stream")}
            function.build(*args, **given)
        else:
            work()

    return Graph(captured(work, warm, number, (args, kwargs)))


def _leaves(x: Any, leaves: list[Any]) -> None:
    """Collect the arrays and numbers in an argument; what is neither does not matter here."""
    try:
        pytree.flatten(x, is_leaf, leaves)
    except TypeError:
        return
