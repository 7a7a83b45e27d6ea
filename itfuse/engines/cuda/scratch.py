"""Memory that kernels need beside their arrays, also while a CUDA graph is captured.

Outside a capture scratch goes back to CuPy's pool at once, which reuses it in stream order. A
captured launch runs again and again, on any stream, long after: what it uses is never given to
anyone else as long as its graph may run.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections import OrderedDict
from typing import Any

import cupy
from cupy.cuda import runtime

from itfuse.errors import DeviceError

_LEGACY = 1  # handles 0 and 1 are the default stream, which cannot be captured
_STREAMS = 64

_here = threading.local()
_kept: list[Any] = []


def is_capturing(stream: int) -> bool:
    """Return whether work queued on this stream is being captured."""
    return stream > _LEGACY and bool(runtime.streamIsCapturing(stream))


def keep(memory: Any) -> None:
    """Keep what a captured launch uses: with the `itf.graph` being captured, or for good.

    CUDA does not tell when a graph captured by others is gone.
    """
    getattr(_here, "keeper", _kept).append(memory)


class keeping:  # noqa: N801  # used like a function
    """A context in which this thread's captured launches keep their memory in a list."""

    def __init__(self, keeper: list[Any]) -> None:
        self._keeper = keeper

    def __enter__(self) -> None:
        _here.keeper = self._keeper

    def __exit__(self, *_: object) -> None:
        del _here.keeper


@functools.cache
def _driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")


class relaxed:  # noqa: N801
    """A context in which this thread may allocate although a stream is being captured."""

    def __enter__(self) -> None:
        driver = _driver()
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        _, self._before = driver.cuThreadExchangeStreamCaptureMode(mode)

    def __exit__(self, *_: object) -> None:
        _driver().cuThreadExchangeStreamCaptureMode(self._before)


def _identity(stream: int) -> int:
    """Return a number that no later stream gets.

    The handle of a destroyed stream is reused while its work may still run, and the handle of the
    per-thread default stream is another stream in every thread.
    """
    driver = _driver()
    error, number = driver.cuStreamGetId(driver.CUstream(stream))
    if int(error):
        raise DeviceError(f"CUDA does not know the stream {stream:#x} ({error})")
    return int(number)


class Scratch:
    """Partial results and counters of finished blocks, of one device.

    A launch of a reduction counts its finished blocks and leaves the counter zero, so that the
    launches of one stream, which run one after the other, share it.
    """

    def __init__(self) -> None:
        self._default: Any = None
        self._counters: OrderedDict[int, Any] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, stream: int, nbytes: int, counts: int = 1) -> tuple[int, int, Any]:
        """Return memory for one launch on `stream`, which is the current one.

        Parameters
        ----------
        stream : int
            Its handle.
        nbytes : int
            Bytes of partial results.
        counts : int
            Number of counters.

        Returns
        -------
        partial, counter : int
            Addresses.
        owner : object
            Keeps the partial results until the launch is queued.
        """
        if is_capturing(stream):
            with relaxed():
                memory = cupy.cuda.alloc(nbytes + 8 + 4 * counts)
            # Captured too: every run starts from zero.
            memory.memset_async(0, nbytes + 8 + 4 * counts)
            keep(memory)
            return memory.ptr, memory.ptr + (nbytes + 7) // 8 * 8, memory
        return self.take_uncaptured(stream, nbytes, counts)

    def take_uncaptured(self, stream: int, nbytes: int, counts: int = 1) -> tuple[int, int, Any]:
        """Return the same where the caller knows that `stream` is not being captured."""
        memory = cupy.cuda.alloc(nbytes)
        return memory.ptr, self.counter(stream, counts), memory

    def counter(self, stream: int, counts: int = 1) -> int:
        """Return the address of the counters of `stream`, which is the current one.

        Fewer than are wanted go back to CuPy's pool, which reuses them in stream order.
        """
        if stream <= _LEGACY:
            with self._lock:
                if self._default is None or self._default.size < counts:
                    self._default = cupy.zeros(counts, "uint32")
                return int(self._default.data.ptr)
        number = _identity(stream)
        with self._lock:
            found = self._counters.get(number)
            if found is None or found.size < counts:
                found = self._counters[number] = cupy.zeros(counts, "uint32")
                if len(self._counters) > _STREAMS:
                    # Back to CuPy's pool, which gives it to the same stream only.
                    self._counters.popitem(last=False)
            else:
                self._counters.move_to_end(number)
        return int(found.data.ptr)


@functools.cache
def scratch(device: int) -> Scratch:
    """Return the scratch memory of a device."""
    return Scratch()
