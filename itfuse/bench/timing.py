"""Clocks and devices: random inputs, ceilings, and interleaved timings of several calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from itfuse import engines, reference
from itfuse.bench import machine
from itfuse.bench.spaces import Library
from itfuse.dtypes import as_dtype
from itfuse.errors import DeviceError

NEW_PROCESS = "wall, new process"
"""The method of times that were taken once in a process."""

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
    spread : float
        Half of the repeats lie in a range of this share of the median.
    drift : float
        Difference between the medians of the first and the second half of the repeats, as a share
        of the median: a steady measurement has less drift than spread.
    method : str
        `events` (the device's clock), `graph of N` (a replayed graph of N calls, the device's
        clock), `wall`, `wall, N calls`, or `wall, new process`.
    """

    median: float
    lowest: float
    highest: float
    spread: float = 0.0
    drift: float = 0.0
    method: str = ""

    @property
    def steady(self) -> bool:
        """Whether the halves of the repeats agree within the spread, or within 3 percent."""
        return self.drift <= max(self.spread, 0.03)


def timing_of(seconds: list[float], method: str = "") -> Timing:
    """Return the numbers of a list of times.

    Examples
    --------
    >>> timing_of([1.0, 1.0, 2.0, 1.0]).median
    1.0
    """
    median = statistics.median(seconds)
    low, high = np.percentile(seconds, (25, 75))
    half = len(seconds) // 2
    drift = 0.0
    if half and median:
        first, second = statistics.median(seconds[:half]), statistics.median(seconds[half:])
        drift = abs(first - second) / median
    spread = float(high - low) / median if median else 0.0
    return Timing(median, min(seconds), max(seconds), spread, drift, method)


class CallFailed(Exception):
    """A call raised while it was timed.

    Parameters
    ----------
    name : str
        Which one; what it raised is the cause.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


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
    default_size, default_repeat, most_size : int
        Elements and repeats where nothing else is asked for; elements of the largest sweep.
    ceiling_bytes : int
        Bytes of the arrays that the ceilings are measured with.
    typical_speed : float
        Bytes per second, to estimate how long a run takes.
    """

    engine: str
    library: str
    copy_name: str
    xp: Any
    cache: int
    default_size: int
    default_repeat: int
    most_size: int
    ceiling_bytes: int
    typical_speed: float

    def describe(self) -> dict[str, str]:
        """Return what was found of the device, for people."""

    def clocks(self) -> str:
        """Return the device's clocks now, `""` where they cannot be read."""

    def free_memory(self) -> int:
        """Return the bytes that can still be allocated."""

    def random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Return random numbers: uniform in [-1, 2), integers to 50, either truth value."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy memory, as fast as the device does."""

    def ceilings(self, nbytes: int, repeat: int) -> dict[str, float]:
        """Return bytes per second of a `copy` (read and written), a `read` and a `write`."""

    def measure(self, calls: Mapping[str, Call], repeat: int, **how: Any) -> dict[str, Timing]:
        """Time `calls` in turn (A B C A B C ...), `repeat` rounds after the warm-up.

        `waits` has, for the calls that the device's clock cannot time, what waits for their
        result; `replay` the names of those that may be replayed as a graph, and `sets` how many
        calls rotate over all arrays.

        Raises
        ------
        CallFailed
            If one of them raises.
        """

    def launches(self, call: Callable[[], Any]) -> int | None:
        """Return the kernels that a call launches; None where they cannot be counted."""

    def arithmetic(self) -> float:
        """Return the additions or products of float32 a second that there are lanes for, or 0."""

    def wait(self) -> None:
        """Wait until the device has done all that was queued."""

    def trim(self) -> None:
        """Give back memory that nobody uses."""

    def lost(self) -> str:
        """Say why the device no longer answers; `""` if it does."""


def uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Return random numbers of any dtype that cases have, made on the host."""
    wanted = as_dtype(dtype, "random inputs")
    if wanted.kind in "iu":
        return rng.integers(-50 if wanted.kind == "i" else 0, 50, shape).astype(wanted)
    if wanted.kind == "b":
        return rng.random(shape) < 0.5
    if wanted.kind == "c":
        return (rng.random(shape) + 1j * rng.random(shape)).astype(wanted)
    values = rng.random(shape, wanted if wanted in (np.float32, np.float64) else np.float32)
    values *= 3
    values -= 1
    return values.astype(wanted, copy=False)


class CpuDevice:
    """The processor, with NumPy."""

    engine = "cpu"
    library = "numpy"
    copy_name = "memory copy (np.copyto)"
    default_size = 1 << 24
    default_repeat = 9
    most_size = 1 << 26
    ceiling_bytes = 1 << 28
    typical_speed = 3e9

    def __init__(self) -> None:
        self.xp: Any = Library(np, reference.erf)
        self.cache = machine.last_level_cache()

    def describe(self) -> dict[str, str]:
        """Return the processor's name, cores and largest cache."""
        cache = f"{self.cache >> 20} MiB"
        return {"name": machine.processor(), "cores": str(machine.cores()), "cache": cache}

    def clocks(self) -> str:
        """Return the processor's clock now."""
        return machine.clock()

    def free_memory(self) -> int:
        """Return the bytes that can still be allocated."""
        return machine.free_memory()

    def random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Return random numbers: uniform in [-1, 2), integers to 50, either truth value."""
        return uniform(np.random.default_rng(seed), shape, dtype)

    def copy(self, target: Any, source: Any) -> None:
        """Copy memory."""
        np.copyto(target, source)

    def ceilings(self, nbytes: int, repeat: int) -> dict[str, float]:
        """Return bytes per second of a copy, of the or of all words, and of a fill."""
        source = np.ones(max(nbytes // 8, 1), np.int64)
        target = np.ones_like(source)
        calls: dict[str, Call] = {
            "copy": lambda _: np.copyto(target, source),
            "read": lambda _: np.bitwise_or.reduce(source),
            "write": lambda _: target.fill(0),
        }
        return speeds(self.measure(calls, repeat), source.nbytes)

    def measure(self, calls: Mapping[str, Call], repeat: int, **how: Any) -> dict[str, Timing]:
        """Time `calls` in turn by the clock on the wall."""
        waits = how.get("waits", {})
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        count = 0
        for turn in range(WARM_UP + repeat):
            for name, call in calls.items():
                try:
                    start = time.perf_counter()
                    result = call(count)
                    if name in waits:
                        waits[name](result)
                    took = time.perf_counter() - start
                except Exception as why:
                    raise CallFailed(name) from why
                count += 1
                if turn >= WARM_UP:
                    seconds[name].append(took)
        return {name: timing_of(times, "wall") for name, times in seconds.items()}

    def launches(self, call: Callable[[], Any]) -> int | None:
        """Return None: NumPy launches nothing."""
        return None

    def arithmetic(self) -> float:
        """Return 0: what a processor's vector units do a second is not known here."""
        return 0.0

    def wait(self) -> None:
        """Return: NumPy has finished."""

    def trim(self) -> None:
        """Return: nothing is kept."""

    def lost(self) -> str:
        """Return an empty text."""
        return ""


def without_failures(
    calls: dict[str, Any], measure: Callable[[dict[str, Any]], dict[str, Timing]], needed: str = ""
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Time calls; one that raises is dropped, and the others are timed from the beginning.

    Parameters
    ----------
    calls : dict of str to callable
        What to time.
    measure : callable
        Times them, and raises `CallFailed`.
    needed : str
        The one without which the others say nothing: what it raises is raised.

    Returns
    -------
    tuple of (dict of str to Timing, dict of str to str)
        The timings, and what each of the others raised.

    Examples
    --------
    >>> def measure(calls):
    ...     if "bad" in calls:
    ...         raise CallFailed("bad") from MemoryError("no room")
    ...     return {name: timing_of([1.0]) for name in calls}
    >>> timings, failed = without_failures({"good": len, "bad": len}, measure)
    >>> list(timings), failed
    (['good'], {'bad': 'MemoryError: no room'})
    """
    left = dict(calls)
    failed: dict[str, str] = {}
    while True:
        try:
            return measure(left), failed
        except CallFailed as why:
            cause = why.__cause__ or why
            if why.name == needed or why.name not in left:
                raise cause from None
            failed[why.name] = first_line(cause)
            del left[why.name]


def first_line(why: BaseException) -> str:
    """Return an error as one line: its kind and the first line of its text."""
    return f"{type(why).__name__}: {(str(why).splitlines() or [''])[0]}"


def speeds(timings: Mapping[str, Timing], nbytes: int) -> dict[str, float]:
    """Return bytes per second of `copy`, `read` and `write` over `nbytes`."""
    moved = {"copy": 2 * nbytes, "read": nbytes, "write": nbytes}
    return {name: moved[name] / timing.median for name, timing in timings.items()}


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
            from itfuse.bench.gpu import CudaDevice

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
