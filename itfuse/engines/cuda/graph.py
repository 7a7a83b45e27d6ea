"""Capture of work as a CUDA graph, with all the memory that its launches use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

from itfuse.engines.cuda.scratch import is_capturing, keeping
from itfuse.errors import DeviceError


class Captured:
    """A CUDA graph, its results, and what must live as long as it does.

    Memory comes from a pool of its own, so that nobody else is given what a replay writes to.

    Parameters
    ----------
    work : callable
        Queues the work on CuPy's current stream and returns its results.
    warm : callable or None
        Runs before the capture: builds what `work` needs.
    number : int
        The GPU.
    keep : object
        What the work reads.
    """

    def __init__(
        self, work: Callable[[], Any], warm: Callable[[], Any], number: int, keep: Any
    ) -> None:
        with cupy.cuda.Device(number):
            before = cupy.cuda.get_current_stream()
            if is_capturing(before.ptr):
                raise DeviceError(
                    "itf.graph: the current stream is being captured already; call the function "
                    "itself inside that capture"
                )
            self._keep: list[Any] = [keep]
            self._pool = cupy.cuda.MemoryPool()
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._stream.wait_event(before.record())
            with self._stream, cupy.cuda.using_allocator(self._pool.malloc):
                warm()
                # What is done to the inputs next must not overtake the warm call.
                before.wait_event(self._stream.record())
                self._stream.begin_capture()
                try:
                    with keeping(self._keep):
                        self.outputs = work()
                except BaseException:
                    self._abandon()
                    raise
                self._graph = self._stream.end_capture()

    def _abandon(self) -> None:
        try:
            self._stream.end_capture()
        except Exception:  # the first error says more
            return

    def launch(self, stream: Any) -> None:
        """Queue the whole graph."""
        if stream is None:
            self._graph.launch()
        else:
            self._graph.launch(cupy.cuda.Stream.from_external(stream))
