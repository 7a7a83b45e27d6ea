"""The engine protocol, the registry, and `run(plan, ...)`.

An engine is found by the device of a plan. Importing this module imports no GPU library; the cuda
engine is imported when the first device array, or the question whether there is one, arrives.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from itfuse import dtypes
from itfuse.cache import BUILT
from itfuse.engines import alias
from itfuse.engines.cpu import CpuEngine
from itfuse.errors import AliasError, DeviceError, DTypeError, ShapeError, Unsupported
from itfuse.expr import Memory, Node, text
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

    def on(self, stream: Any) -> Any:
        """Return a context in which the engine's device and `stream` are current."""

    def memory(self, array: Any) -> Memory:
        """Say where an array of the engine's library lies."""

    def bandwidth(self) -> float:
        """Return the memory bandwidth in bytes per second, for floor times."""


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
    return importlib.import_module("itfuse.engines.cuda")


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


def wrap(obj: Any) -> tuple[Any, Memory]:
    """Return an array of an engine's library over the memory of `obj`, and where it lies.

    Raises
    ------
    DTypeError, DeviceError, Unsupported
        Saying what `obj` is and what to do.
    """
    if not isinstance(obj, np.ndarray):
        if hasattr(obj, "__cuda_array_interface__"):
            return _checked(cuda_module().wrap(obj))
        if hasattr(obj, "__dlpack_device__") and not hasattr(obj, "__array_interface__"):
            kind, _ = obj.__dlpack_device__()
            if kind in (_KDL_CUDA, _KDL_MANAGED):
                return _checked(cuda_module().wrap(obj))
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
    return _checked((obj, _cpu().memory(obj)))


def upload(array: Any, device: str) -> Any:
    """Return a NumPy array, such as an index list's, as an array of `device`'s library."""
    return cuda_module().upload(array, device) if device.startswith("cuda") else array


def _checked(found: tuple[Any, Memory]) -> tuple[Any, Memory]:
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
    engine = engine or engine_for(plan.device)
    wanted = _check_out(plan, engine, out)
    # Everything is built before anything runs, so that a failure leaves `out` untouched.
    key = engine.build_key()
    with engine.on(stream):
        built = [BUILT.get((key, s.key), functools.partial(engine.build, s)) for s in plan.stages]
    made: list[list[Any]] = []
    with engine.on(stream):
        for s, stage in enumerate(plan.stages):
            outputs = [
                wanted[s, o] if (s, o) in wanted else engine.empty(one.shape, one.dtype)
                for o, one in enumerate(stage.outputs)
            ]
            operands = [
                made[i.source[0]][i.source[1]]
                if isinstance(i.source, tuple)
                else i.source.arg
                if i.kind == "scalar"
                else np.int64(i.offset)
                if i.kind == "iota"
                else data[i.source]
                for i in stage.inputs
            ]
            built[s](stage, operands, outputs)
            made.append(outputs)
    return tuple(made[s][o] for s, o in plan.results)


def _check_out(plan: Plan, engine: Any, out: tuple[Any, ...] | None) -> dict[Any, Any]:
    if out is None:
        return {}
    wanted: dict[tuple[int, int], Any] = {}
    places: dict[tuple[int, int], Memory] = {}
    for spot, root, array in zip(plan.results, plan.asked, out, strict=True):
        if array is None:
            continue
        try:
            memory = engine.memory(array)
        except (AttributeError, TypeError):
            memory = None
        error = _misfit(plan, root, array, memory)
        if not error and not array.flags.c_contiguous:
            error = _disorder(plan, spot, array, memory)
        if error:
            kind, why = error
            raise kind(f"out= for {text(root)} {why}")
        wanted[spot] = array
        if memory is not None:
            places[spot] = memory
    alias.check(plan, places)
    return wanted


def _misfit(plan: Plan, root: Node, array: Any, memory: Memory | None) -> Any:
    """Say why `array` cannot take the result `root`: (error, text), or None if it can."""
    if memory is None:
        return DeviceError, (
            f"is a {type(array).__name__}, and the expression is on "
            f"{plan.device}; pass an array of that device"
        )
    if memory.device != plan.device:
        return DeviceError, (
            f"is on {memory.device}, and the expression on {plan.device}; pass an "
            "array of the same device"
        )
    if tuple(array.shape) != root.shape:
        return ShapeError, f"has shape {tuple(array.shape)}, and the result {root.shape}"
    if array.dtype != root.dtype:
        return DTypeError, (
            f"has dtype {array.dtype}, and the result {root.dtype}; pass a "
            f"{root.dtype} array, or cast with .astype({str(array.dtype)!r})"
        )
    if not getattr(array.flags, "writeable", True):
        return ShapeError, "is read-only; pass a writable array"
    return None


def _disorder(plan: Plan, spot: tuple[int, int], array: Any, memory: Memory | None) -> Any:
    """Say why an `array` that is not C-contiguous cannot take the result at `spot`."""
    assert memory is not None
    stage = plan.stages[spot[0]]
    itemsize = array.dtype.itemsize
    if stage.primitive != "transform":
        return ShapeError, (
            f"is not C-contiguous (strides {memory.strides} bytes), and the result comes from a "
            f"{stage.primitive}; pass a contiguous array"
        )
    reach = itemsize
    for step, size in sorted((abs(s), n) for s, n in zip(memory.strides, array.shape, strict=True)):
        if size > 1 and step < reach:
            return AliasError, (
                f"has elements that share memory (strides {memory.strides} bytes); pass an array "
                "whose elements are apart"
            )
        reach += (size - 1) * step
    if plan.device != "cpu" and any(step % itemsize for step in memory.strides):
        return ShapeError, f"is not aligned to its elements (strides {memory.strides} bytes)"
    return None
