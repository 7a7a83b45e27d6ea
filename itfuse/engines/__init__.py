"""The engine protocol, the registry, and `run(plan, ...)`.

An engine is found by the device of a plan. Importing this module imports no GPU library; the cuda
engine is imported when the first device array, or the question whether there is one, arrives.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from itfuse import dtypes
from itfuse.engines.cpu import CpuEngine
from itfuse.engines.ready import MISS, READY, Argument, Ready, made_by_planning
from itfuse.errors import DTypeError, Unsupported
from itfuse.expr import Memory, Node
from itfuse.ops import INPUT
from itfuse.plan.stages import Plan, Stage


class Built(Protocol):
    """A stage compiled for an engine; one for each structure, whatever the sizes."""

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Queue one run: an operand for each stage input, an array for each output."""


class Engine(Protocol):
    """What runs stages."""

    name: str

    def build_key(self) -> tuple[Any, ...]:
        """Return what beside the stage decides the compiled code."""

    def build(self, stage: Stage) -> Built:
        """Compile a stage."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an uninitialised array of the engine's library."""

    def read(self, array: Any) -> np.ndarray[Any, Any]:
        """Wait for the current stream and return a small array of the library on the host."""

    def cut(self, array: Any, count: int) -> Any:
        """Return the first `count` elements of a new array with one axis.

        What is returned must not keep much more memory than it needs.
        """

    def on(self, stream: Any) -> Any:
        """Return a context in which the engine's device and `stream` are current."""

    def memory(self, array: Any) -> Memory:
        """Say where an array of the engine's library lies."""

    def adopt(self, array: Any) -> tuple[Any, Memory | None]:
        """Return another library's array as the engine's, and where it lies; None if nowhere."""

    def bandwidth(self) -> float:
        """Return the memory bandwidth in bytes per second, for floor times."""

    def seconds(self, call: Callable[[], object], repeat: int, batch: int) -> list[float]:
        """Time `repeat` batches of calls; return the seconds of one call in each."""

    def copy_speed(self) -> float:
        """Return the bytes per second, read and written, of a copy measured here."""


@dataclass(frozen=True)
class EngineStatus:
    """Whether an engine can run here.

    Attributes
    ----------
    name : str
        `cuda`, `cpu` or `null`.
    available : bool
        Whether it can.
    reason : str
        Why not, and what to do; empty if it can.
    details : dict
        What was found: versions, devices.
    """

    name: str
    available: bool
    reason: str
    details: dict[str, str] = field(default_factory=dict)


def cuda_module() -> Any:
    """Import and return the cuda engine's module; it imports its libraries when first used."""
    name = "itfuse.engines.cuda"
    return sys.modules.get(name) or importlib.import_module(name)  # this is asked for every array


@functools.cache
def _cpu() -> CpuEngine:
    return CpuEngine()


def engine_for(device: str) -> Any:
    """Return the engine of `device` (`cpu`, `cuda:0`, ..., `none`)."""
    if device == "cpu":
        return _cpu()
    if device.startswith("cuda"):
        return cuda_module().engine(device)
    return importlib.import_module("itfuse.engines.null").engine()


def default_device() -> str:
    """Return where an expression without arrays runs: CuPy's current GPU, or the CPU without one.

    Examples
    --------
    >>> default_device() in ("cpu", "cuda:0")
    True
    """
    cuda = cuda_module()
    return f"cuda:{cuda.current()}" if cuda.status()[1] else "cpu"


def available() -> tuple[EngineStatus, ...]:
    """Return the state of every engine. It never raises.

    Examples
    --------
    >>> {status.name: status.available for status in available()}["cpu"]
    True
    """
    cuda = cuda_module().status()
    null = importlib.import_module("itfuse.engines.null").status()
    numpy = EngineStatus("cpu", True, "", {"numpy": np.__version__})
    return (EngineStatus(*cuda), numpy, EngineStatus(*null))


_KDL_CPU, _KDL_CUDA, _KDL_MANAGED = 1, 2, 13


def offers(obj: Any, protocol: str) -> bool:
    """Return whether an object has an array protocol, without asking it for the answer.

    In a forked process asking alone is an error of CUDA.
    """
    return hasattr(type(obj), protocol) or protocol in getattr(obj, "__dict__", ())


wrapped = threading.local()
"""Where a thread is tracing, `seen` notes arrays of other libraries, and what wraps them."""

OWN: set[type] = {np.ndarray}
"""Classes of arrays that are an engine's: they need not be asked what they offer."""


def wrap(obj: Any) -> tuple[Any, Memory]:
    """Return an array of an engine's library over the memory of `obj`, and where it lies.

    Raises
    ------
    DTypeError, DeviceError, Unsupported
        Saying what `obj` is and what to do.
    """
    given = obj
    if type(obj) is np.ndarray:
        return _checked((obj, _cpu().memory(obj)))
    if type(obj) in OWN:
        return _checked(cuda_module().wrap(obj))
    if not isinstance(obj, np.ndarray):
        if offers(obj, "__cuda_array_interface__"):
            found = cuda_module().wrap(obj)
            if found[0] is obj:  # CuPy's own
                OWN.add(type(obj))
            return _noted(given, found)
        if offers(obj, "__dlpack_device__") and not offers(obj, "__array_interface__"):
            kind, _ = obj.__dlpack_device__()
            if kind in (_KDL_CUDA, _KDL_MANAGED):
                return _noted(given, cuda_module().wrap(obj))
            if kind == _KDL_CPU:
                obj = np.from_dlpack(obj)
        try:
            obj = np.asarray(obj)
        except (TypeError, ValueError) as why:
            raise DTypeError(f"asarray({type(obj).__name__}): no array ({why})") from None
    if type(obj) is not np.ndarray:
        if isinstance(obj, np.ma.MaskedArray):
            raise Unsupported("asarray: masked arrays are not supported; use .filled(...) first")
        obj = obj.view(np.ndarray)
    return _noted(given, (obj, _cpu().memory(obj)))


def _noted(given: Any, found: tuple[Any, Memory]) -> tuple[Any, Memory]:
    if found[0] is not given and (seen := getattr(wrapped, "seen", None)) is not None:
        seen.append((given, found[0]))
    return _checked(found)


def upload(array: Any, device: str) -> Any:
    """Return a NumPy array, such as an index list's, as an array of `device`'s library."""
    return cuda_module().upload(array, device) if device.startswith("cuda") else array


def _checked(found: tuple[Any, Memory]) -> tuple[Any, Memory]:
    if dtypes.supported(found[0].dtype):
        return found
    dtypes.check(found[0].dtype, f"asarray: the array of shape {tuple(found[0].shape)}")
    return found


def run(
    plan: Plan,
    data: dict[Node, Any],
    out: tuple[Any, ...] | None = None,
    stream: Any = None,
    engine: Any = None,
) -> tuple[Any, ...]:
    """Run `plan` and return its results.

    Parameters
    ----------
    plan : Plan
        What to run.
    data : dict of Node to array
        The array of every input leaf.
    out : tuple, optional
        An array for each result, or None for a new one.
    stream : object, optional
        A CUDA stream (`__cuda_stream__`); CuPy's current one by default.
    engine : Engine, optional
        By default that of the plan's device.

    Returns
    -------
    tuple
        One array for each expression asked for.

    Raises
    ------
    ShapeError, DTypeError, AliasError, DeviceError
        If `out` does not fit; nothing has run then.
    CompileError
        If generated code does not compile; nothing of that pass has run then.
    """
    leaves = [i.source for stage in plan.stages for i in stage.inputs if isinstance(i.source, Node)]
    leaves = [leaf for leaf in dict.fromkeys(leaves) if not made_by_planning(leaf)]
    made = ready(plan, leaves, engine)
    return made([data[leaf] if leaf.op is INPUT else leaf.arg for leaf in leaves], out, stream)


def operands(stage: Stage, data: dict[Node, Any]) -> list[Any]:
    """Return the arrays and scalars of a stage that waits for no other, one for each input."""
    found = []
    for i in stage.inputs:
        assert isinstance(i.source, Node)
        if made_by_planning(i.source):
            found.append(np.int64(i.offset) if i.kind == "iota" else i.source.arg.value)
        else:
            found.append(data[i.source] if i.source.op is INPUT else i.source.arg)
    return found


def ready(plan: Plan, leaves: Sequence[Node], engine: Any = None) -> Ready:
    """Build the passes of `plan` and return it ready to run, over and over.

    Parameters
    ----------
    plan : Plan
        What to run.
    leaves : sequence of Node
        The leaves that calls will give values for; all that the plan reads.
    engine : Engine, optional
        By default that of the plan's device.

    Raises
    ------
    CompileError
        If generated code does not compile.
    """
    engine = engine or engine_for(plan.device)
    make = getattr(engine, "ready", Ready)
    made: Ready = make(plan, leaves, engine)
    return made


__all__ = [
    "MISS",
    "OWN",
    "READY",
    "Argument",
    "Built",
    "Engine",
    "EngineStatus",
    "Ready",
    "available",
    "cuda_module",
    "default_device",
    "engine_for",
    "operands",
    "ready",
    "run",
    "upload",
    "wrap",
    "wrapped",
]
