"""What a peer is."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from itfuse.bench.case import BANDWIDTH, LATENCY, Case


class NotForThis(Exception):
    """The peer has no form of a case; the text says why."""


class Peer:
    """A library, or a way to use one.

    Attributes
    ----------
    name : str
        What `--peer` takes and tables show.
    title : str
        What it is, in a few words.
    library : str
        The module that it needs.
    engines : tuple of str
        The engines beside which it runs.
    kinds : tuple of str
        The kinds of case that it is timed in.
    replays : bool
        Whether its calls run on CuPy's current stream and may be captured as a graph.
    builds : float
        About how many seconds it takes to build a case, to estimate how long a run takes.
    """

    name = ""
    title = ""
    library = ""
    engines: tuple[str, ...] = ("cuda",)
    kinds: tuple[str, ...] = (BANDWIDTH, LATENCY)
    replays = True
    builds = 0.05

    def missing(self, device: Any) -> str:
        """Say why the peer cannot run here at all; `""` if it can."""
        if device.engine not in self.engines:
            return f"runs beside the {' and '.join(self.engines)} engine only"
        if self.library and importlib.util.find_spec(self.library) is None:
            return f"{self.library} is not installed"
        return ""

    def may_have(self, case: Case) -> bool:
        """Return whether the peer may have a form of `case`, to estimate how long a run takes."""
        return True

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call that computes `case` of these arrays.

        Parameters
        ----------
        case : Case
            What to compute.
        inputs : tuple of array
            Arrays of the device's library.
        out : array or None
            Where the answer may go; None where the case has several results or the data decide
            their shape.
        device : Device
            Where it runs.

        Raises
        ------
        NotForThis
            If the peer has no form of this case.
        """
        raise NotImplementedError

    def launches(
        self, case: Case, inputs: tuple[Any, ...], call: Callable[[], Any], device: Any
    ) -> int | None:
        """Return how many kernels a call launches, as counted; None where nobody can count them.

        Parameters
        ----------
        case : Case
            What is computed.
        inputs : tuple of array
            Of the call.
        call : callable
            From `bind`, called before.
        device : Device
            Where it runs.
        """
        if not self.replays:
            return None
        found = device.launches(getattr(call, "queue", call))
        return None if found is None else int(found)

    def moves(self, case: Case, inputs: tuple[Any, ...], least: int) -> int | None:
        """Return the bytes that a call reads and writes; None where that is not known.

        Parameters
        ----------
        case : Case
            What was computed.
        inputs : tuple of array
            Of the call.
        least : int
            Each input and each result once.
        """
        return None

    wait: Callable[[Any], None] | None = None
    """Waits for a result, for a peer that CuPy's events cannot time."""

    def answer(self, value: Any, device: Any) -> tuple[Any, ...]:
        """Return a result of the call as arrays of the device's library."""
        values = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(device.xp.asarray(one) for one in values)

    def trim(self) -> None:
        """Give back memory that the peer's library keeps."""


class Waiting:
    """A call that queues kernels, then waits for what they found: the data decide the shape.

    Parameters
    ----------
    queue : callable
        Launches the kernels.
    result : callable
        Waits, and returns the result.
    """

    def __init__(self, queue: Callable[[], Any], result: Callable[[], Any]) -> None:
        self.queue = queue
        self._result = result

    def __call__(self) -> Any:
        """Do both."""
        self.queue()
        return self._result()


def kernel_of(
    case: Case,
    inputs: tuple[Any, ...],
    dtypes: tuple[str, ...],
    *,
    whole: bool = False,
    several: bool = False,
) -> Any:
    """Return the case's CUDA C++ for these inputs, or raise `NotForThis`.

    `whole` says that the peer has running sums and selections as well, `several` that its kernels
    have statements and more than one result.
    """
    if case.kernel is None or ((case.kernel.scan or case.kernel.keep) and not whole):
        raise NotForThis("no kernel of this case has been written")
    if case.kernel.also and not several:
        raise NotForThis("it has one result a call")
    name = str(inputs[0].dtype)
    if name not in dtypes:
        raise NotForThis(f"not written for {name}")
    return case.kernel


def results(device: Any, case: Case, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an array for each result of an elementwise case that has several."""
    return tuple(device.cupy.empty_like(inputs[0]) for _ in range(case.results))
