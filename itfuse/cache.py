"""The one cache key, and the in-process cache of what was built.

A key is the structure of a stage plus what else decides the code: engine, target and versions.
Pointers, sizes and runtime scalars are never part of it.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from itfuse.plan.stages import Stage

FORMAT = 3
"""Version of generated code and of the order of reductions; part of every name."""

T = TypeVar("T")


def digest(stage: Stage) -> str:
    """Return the name of a stage's structure: the same in every process and on every machine."""
    return hashlib.sha256(repr((FORMAT, stage.key.parts)).encode()).hexdigest()[:20]


class BuildCache:
    """Builds each key once, whichever thread asks first; the others wait for it.

    A failed build is not kept: the next call tries again.
    """

    def __init__(self) -> None:
        self._built: dict[Any, Any] = {}
        self.builds = 0
        self.unlock()
        self.on_clear: list[Callable[[], object]] = []
        """Called after `clear`, by those who hold on to what was built."""

    def get(self, key: Any, build: Callable[[], T]) -> T:
        """Return what `build` made for `key`, calling it only if nothing has."""
        found = self._built.get(key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        with self._lock:
            lock = self._building.setdefault(key, threading.Lock())
        with lock:
            found = self._built.get(key)
            if found is None:
                try:
                    found = self._built[key] = build()
                    with self._lock:
                        self.builds += 1
                finally:  # also after a failure, which the next call tries again
                    with self._lock:
                        if self._building.get(key) is lock:
                            del self._building[key]
            return found  # type: ignore[no-any-return]

    def unlock(self) -> None:
        """Make new locks: after a fork, for those that other threads of the parent held."""
        self._building: dict[Any, threading.Lock] = {}
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Forget everything that was built."""
        with self._lock:
            self._built.clear()
            self.builds = 0
        for forget in self.on_clear:
            forget()

    def __len__(self) -> int:
        return len(self._built)


BUILT = BuildCache()
"""What this process has built."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=BUILT.unlock)
