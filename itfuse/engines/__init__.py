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

from itfuse.cache import BUILT
from itfuse.engines import alias
from itfuse.engines.cpu import CpuEngine
from itfuse.errors import DeviceError, DTypeError, ShapeError
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
        """Whatever beside the stage decides the compiled code."""

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


def run(plan: Plan, data: dict[Node, Any], out: tuple[Any, ...] | None = None,
        stream: Any = None, engine: Any = None) -> tuple[Any, ...]:  # fmt: skip
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
                made[i.source[0]][i.source[1]] if isinstance(i.source, tuple)
                else i.source.arg if i.kind == "scalar" else data[i.source]
                for i in stage.inputs
            ]  # fmt: skip
            built[s](stage, operands, outputs)
            made.append(outputs)
    return tuple(made[s][o] for s, o in plan.results)


def _check_out(plan: Plan, engine: Any, out: tuple[Any, ...] | None) -> dict[Any, Any]:
    if out is None:
        return {}
    wanted = {}
    for spot, root, array in zip(plan.results, plan.roots, out, strict=True):
        if array is None:
            continue
        what = f"out= for {text(root)}"
        try:
            memory = engine.memory(array)
        except (AttributeError, TypeError):
            raise DeviceError(f"{what} is a {type(array).__name__}, which the {engine.name} engine "
                              f"cannot write; the expression is on {plan.device}") from None  # fmt: skip
        if memory.device != plan.device:
            raise DeviceError(f"{what} is on {memory.device}, the expression on {plan.device}; "
                              "pass an array of the same device")  # fmt: skip
        if tuple(array.shape) != root.shape:
            raise ShapeError(f"{what} has shape {tuple(array.shape)}, the result {root.shape}")
        if array.dtype != root.dtype:
            raise DTypeError(f"{what} has dtype {array.dtype}, the result {root.dtype}; pass a "
                             f"{root.dtype} array, or cast with .astype({str(array.dtype)!r})")  # fmt: skip
        if not array.flags.c_contiguous:
            raise ShapeError(f"{what} is not C-contiguous (strides {memory.strides} bytes); pass a "
                             "contiguous array")  # fmt: skip
        if not getattr(array.flags, "writeable", True):
            raise ShapeError(f"{what} is read-only; pass a writable array")
        wanted[spot] = array
    alias.check(plan, {spot: engine.memory(array) for spot, array in wanted.items()})
    return wanted
