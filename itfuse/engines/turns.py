"""Threads that take their turns in the order of the blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Lets block after block do what depends on all before it.

    Threads take blocks in order, so that one only waits for those that others are evaluating.
    """

    def __init__(self) -> None:
        self._next = 0
        self._stopped = False
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, number: int) -> Iterator[bool]:
        """Wait for all blocks before this one; False if a thread has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._next == number or self._stopped)
            stopped = self._stopped
        yield not stopped
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
