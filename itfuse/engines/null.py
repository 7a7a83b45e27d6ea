"""The null engine: plans, lowers and compiles for a named architecture, and runs nothing.

It needs NVRTC (the cu13 or cu12 extra) but no driver and no GPU. The architecture is the setting
`arch`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from itfuse.cache import digest
from itfuse.config import setting
from itfuse.errors import DeviceError
from itfuse.expr import Memory
from itfuse.lower import lower_tile
from itfuse.lower.cpp import Lowered, lower
from itfuse.plan.stages import Stage

_PROBE_TRANSFORM = """
extern "C" __global__ void NAME_probe(ElementState state, Item* out, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    NAME_element(&state, &i, out + i);
  }
}
"""
_PROBE_REDUCE = """
extern "C" __global__ void NAME_probe(ElementState state, FinishState finish, Item init, Out* out,
                                      long long n) {
  Item total = init;
  for (long long i = 0; i < n; ++i) {
    Item one;
    NAME_element(&state, &i, &one);
    NAME_combine(&total, &one, &total);
  }
  NAME_finish(&finish, &total, out);
}
"""


def probe_source(stage: Stage, lowered: Lowered) -> str:
    """Return the stage's functions inside the plainest kernel that calls all of them."""
    kernel = _PROBE_REDUCE if stage.primitive == "reduce" else _PROBE_TRANSFORM
    return lowered.source + kernel.replace("NAME", lowered.name)


@dataclass(frozen=True)
class NullBuilt:
    """A stage compiled for an architecture: `source`, and machine code in `cubin`."""

    source: str
    cubin: bytes
    arch: str

    def __call__(self, stage: Stage, operands: list[Any], outputs: list[Any]) -> None:
        """Run nothing."""


class NullEngine:
    """Compiles plans and runs nothing; results are (shape, dtype) pairs."""

    name = "null"

    def build_key(self) -> tuple[Any, ...]:
        """Return what decides a build beside the stage."""
        return ("null", setting("arch"))

    def build(self, stage: Stage) -> NullBuilt:
        """Compile a stage for the architecture in force."""
        nvrtc = importlib.import_module("itfuse.engines.cuda.compile")
        source = self.source(stage)
        arch = setting("arch")
        return NullBuilt(source, nvrtc.cubin(source, arch), arch)

    def build_for_gpu(self, stage: Stage) -> None:
        """Compile all that the cuda engine may ask for to run `stage` on the setting's `arch`.

        Raises
        ------
        CompileError
            If code does not compile.
        DeviceError
            If there is no compiler, or no cuda.compute for a stage that it builds.
        """
        name, arch = f"itf_{digest(stage)}", setting("arch")
        if stage.strategy == "tile":
            nvrtc = importlib.import_module("itfuse.engines.cuda.compile")
            kernels = (lower_tile(stage, name, ok, arch) for ok in (True, False))
            for source in dict.fromkeys(kernel.source for kernel in kernels):
                nvrtc.cubin(source, arch)
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the same, in other words
                cub = importlib.import_module("itfuse.engines.cuda.cub")
        except ImportError as why:
            raise DeviceError(
                f"strategy {stage.strategy!r} is built by cuda.compute, which cannot be imported "
                "here: it needs the cu13 or cu12 extra, and a driver's libcuda.so.1, though no "
                "GPU. The strategy 'tile' needs no driver"
            ) from why
        number = int(arch.removeprefix("sm_"))
        cub.CubBuilt(stage, lower(stage, name), arch, [number])

    def source(self, stage: Stage) -> str:
        """Return the C++ generated for a stage."""
        name = f"itf_{digest(stage)}"
        if stage.strategy == "tile":
            return lower_tile(stage, name, arch=setting("arch")).source
        return probe_source(stage, lower(stage, name))

    def memory(self, array: Any) -> Memory:
        """There is no memory to write to."""
        raise DeviceError("the null engine runs nothing and takes no out=")

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return what stands for an array: its shape and dtype."""
        return (shape, dtype)

    def on(self, stream: Any) -> Any:
        """Return an empty context."""
        return contextlib.nullcontext()

    def bandwidth(self) -> float:
        """There is no memory to be fast."""
        raise DeviceError("the null engine has no memory; set bandwidth= for floor times")

    def seconds(self, call: Callable[[], object], repeat: int, batch: int) -> list[float]:
        """There is nothing to time."""
        raise DeviceError("the null engine runs nothing, so nothing can be timed")

    def copy_speed(self) -> float:
        """There is nothing to copy."""
        raise DeviceError("the null engine has no memory, so no copy can be timed")


@functools.cache
def engine() -> NullEngine:
    """Return the one null engine."""
    return NullEngine()


def status() -> tuple[str, bool, str, dict[str, str]]:
    """Return (name, available, reason, details); it never raises."""
    try:
        core = importlib.import_module("cuda.core")
    except Exception as why:
        return (
            "null",
            False,
            f"cuda-core cannot be imported ({why}); pip install 'itfuse[cu13]'",
            {},
        )
    return "null", True, "", {"arch": setting("arch"), "cuda-core": core.__version__}
