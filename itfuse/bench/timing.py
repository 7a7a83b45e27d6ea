"""Devices and clocks: random inputs, copies, and interleaved timings of several calls.

Only this module of the benchmark imports CuPy, and only when a GPU is used.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from itfuse import engines, reference
from itfuse.bench import machine
from itfuse.errors import DeviceError

WARM_UP = 2
"""Untimed rounds before the timed ones."""

Call = Callable[[int], object]
"""One run to time; its argument counts the runs, so that it can rotate its arrays."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call over the repeats.

    Attributes
    ----------
    median, lowest, highest : float
        Of the timed repeats.
    """

    median: float
    lowest: float
    highest: float


def _timing(seconds: list[float]) -> Timing:
    return Timing(statistics.median(seconds), min(seconds), max(seconds))


class Library:
    """A NumPy-like module, with `erf` added under that name."""

    def __init__(self, module: Any, erf: Callable[..., Any]) -> None:
        self._module = module
        self.erf = erf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class Device(Protocol):
    """Where the benchmark runs.

    Attributes
    ----------
    engine : str
        The itfuse engine: `cuda` or `cpu`.
    library : str
        What the unfused answer is computed with: `cupy` or `numpy`.
    copy_name : str
        What the ceiling is.
    xp : Library
        The library's module.
    cache : int
        Bytes of the largest cache.
    default_size, default_repeat : int
        Elements and repeats where nothing else is asked for.
    """

    engine: str
    library: str
    copy_name: str
    xp: Any
    cache: int
    default_size: int
    default_repeat: int

    def describe(self) -> dict[str, str]:
        """Return what was found of the device, for people."""

    def free_memory(self) -> int:
        """Return the bytes that can still be allocated."""

    def random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Return random numbers, uniform in [-1, 2)."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy memory, as fast as the device does."""

    def measure(self, calls: Mapping[str, Call], repeat: int) -> dict[str, Timing]:
        """Time `calls` in turn (A B C A B C ...), `repeat` rounds after the warm-up."""


class CpuDevice:
    """The processor, with NumPy."""

    engine = "cpu"
    library = "numpy"
    copy_name = "memory copy (np.copyto)"
    default_size = 1 << 24
    default_repeat = 9

    def __init__(self) -> None:
        self.xp: Any = Library(np, reference.erf)
        self.cache = machine.last_level_cache()

    def describe(self) -> dict[str, str]:
        """Return the processor's name, cores and largest cache."""
        cache = f"{self.cache >> 20} MiB"
        return {"name": machine.processor(), "cores": str(machine.cores()), "cache": cache}

    def free_memory(self) -> int:
        """Return the bytes that can still be allocated."""
        return machine.free_memory()

    def random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Return random numbers, uniform in [-1, 2)."""
        values = np.random.default_rng(seed).random(shape, np.dtype(dtype))
        values *= 3
        values -= 1
        return values

    def copy(self, target: Any, source: Any) -> None:
        """Copy memory."""
        np.copyto(target, source)

    def measure(self, calls: Mapping[str, Call], repeat: int) -> dict[str, Timing]:
        """Time `calls` in turn by the clock on the wall."""
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        count = 0
        for turn in range(WARM_UP + repeat):
            for name, call in calls.items():
                start = time.perf_counter()
                call(count)
                took = time.perf_counter() - start
                count += 1
                if turn >= WARM_UP:
                    seconds[name].append(took)
        return {name: _timing(times) for name, times in seconds.items()}


# splitmix64 (Steele, Lea, Flood 2014) of the index: needs no cuRAND. 24 bits fit a float exactly.
_RANDOM = """
unsigned long long bits = (seed + i + 1) * 0x9E3779B97F4A7C15ULL;
bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ULL;
bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBULL;
bits ^= bits >> 31;
x = T(bits >> 40) * T(3.0 / 16777216.0) - T(1);
"""

# Holds the stream while the host queues a round, so that no call waits for its own launch.
_HOLD = r"""
extern "C" __global__ void itfuse_bench_hold(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}
"""
_LONGEST_HOLD = 0.02  # seconds; a call that itself waits for the device cannot be held longer


class CudaDevice:
    """The current GPU, with CuPy."""

    engine = "cuda"
    library = "cupy"
    copy_name = "device-to-device copy"
    default_size = 1 << 28
    default_repeat = 30

    def __init__(self) -> None:
        import cupy
        from cupyx.scipy.special import erf

        self.cupy = cupy
        self.xp: Any = Library(cupy, erf)
        self.device = cupy.cuda.Device()
        self.cache = int(self.device.attributes["L2CacheSize"])
        self._random = cupy.ElementwiseKernel("uint64 seed", "T x", _RANDOM, "itfuse_bench_random")
        self._hold = cupy.RawKernel(_HOLD, "itfuse_bench_hold")

    def describe(self) -> dict[str, str]:
        """Return the GPU's name, architecture, memory, cache, driver and CUDA versions."""
        runtime = self.cupy.cuda.runtime
        found = runtime.getDeviceProperties(self.device.id)
        return {
            "name": found["name"].decode(),
            "architecture": f"sm_{found['major']}{found['minor']}",
            "memory": f"{found['totalGlobalMem'] / 2**30:.0f} GiB",
            "cache": f"{self.cache / 2**20:.0f} MiB",
            "driver": machine.driver(),
            "driver supports CUDA": _cuda_version(runtime.driverGetVersion()),
            "CUDA runtime": _cuda_version(runtime.runtimeGetVersion()),
        }

    def free_memory(self) -> int:
        """Return the bytes that can still be allocated, CuPy's pool included."""
        pool = self.cupy.get_default_memory_pool()
        return int(self.device.mem_info[0]) + int(pool.free_bytes())

    def random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Return random numbers, uniform in [-1, 2)."""
        values = self.cupy.empty(shape, dtype)
        self._random(np.uint64(seed << 32), values)
        return values

    def copy(self, target: Any, source: Any) -> None:
        """Copy memory by cudaMemcpyAsync."""
        stream = self.cupy.cuda.get_current_stream()
        target.data.copy_from_device_async(source.data, source.nbytes, stream)

    def measure(self, calls: Mapping[str, Call], repeat: int) -> dict[str, Timing]:
        """Time `calls` in turn by events on the device's own clock."""
        event = self.cupy.cuda.Event
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for count, call in enumerate(calls.values()):
            call(count)  # builds, so that a round's time to queue says something
        count = len(calls)
        turn = 0
        hold = 1e-4
        self.device.synchronize()
        while turn < WARM_UP + repeat:
            marks = [(event(), event()) for _ in calls]
            began = time.perf_counter()
            self._hold((1,), (1,), (np.uint64(hold * 1e9),))
            for (start, end), call in zip(marks, calls.values(), strict=True):
                start.record()
                call(count)
                end.record()
                count += 1
            queued = time.perf_counter() - began
            marks[-1][1].synchronize()
            if queued > hold and hold < _LONGEST_HOLD:  # some call waited for the host: once more
                hold = min(2 * queued, _LONGEST_HOLD)
                continue
            if turn >= WARM_UP:
                for name, (start, end) in zip(calls, marks, strict=True):
                    milliseconds = self.cupy.cuda.get_elapsed_time(start, end)
                    seconds[name].append(milliseconds / 1e3)
            turn += 1
        return {name: _timing(times) for name, times in seconds.items()}


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def open_device(engine: str) -> Device:
    """Return the device of `engine`: `cuda`, `cpu`, or `auto`, a GPU if there is one.

    Raises
    ------
    DeviceError
        If `cuda` is asked for and cannot run, saying why.

    Examples
    --------
    >>> open_device("cpu").library
    'numpy'
    """
    if engine != "cpu":
        cuda = next(status for status in engines.available() if status.name == "cuda")
        if cuda.available:
            return CudaDevice()
        if engine == "cuda":
            raise DeviceError(f"the cuda engine cannot run: {cuda.reason}")
    return CpuDevice()


def copy_bandwidth(device: Device, nbytes: int, repeat: int) -> float:
    """Return the bytes per second, read and written, of copying `nbytes` on `device`."""
    source = device.random((nbytes // 4,), "float32", 1)
    target = device.random((nbytes // 4,), "float32", 2)
    timings = device.measure({"copy": lambda _: device.copy(target, source)}, repeat)
    return float(2 * source.nbytes / timings["copy"].median)
