"""Errors. Every kind is an `ItfuseError` and also the Python kind a caller would expect.

A message names the user's expression, says what was found, and says what to do.
"""

from __future__ import annotations

import numpy as np


class ItfuseError(Exception):
    """Base of every error that itfuse raises on purpose."""


class ShapeError(ItfuseError, ValueError):
    """Shapes do not fit together, or a reduction of nothing has no value."""


class AxisError(ShapeError, np.exceptions.AxisError):
    """An axis that the expression does not have."""


class DTypeError(ItfuseError, TypeError):
    """A dtype that itfuse, or this operation, does not take."""


class BoundsError(ItfuseError, IndexError):
    """An index beyond the elements of its axis."""


class RangeError(ItfuseError, OverflowError, ValueError):
    """A Python integer that the dtype beside it cannot hold."""


class DeviceError(ItfuseError, RuntimeError):
    """Arrays on different devices, no usable GPU, or a driver that is too old."""


class AliasError(ItfuseError, ValueError):
    """`out` shares memory with an input in a way that would change the result."""


class TraceError(ItfuseError, TypeError):
    """A fused function asked for a value that is known only when it runs."""


class NeedsBuffer(ItfuseError, RuntimeError):
    """The expression cannot run in the passes allowed without an array nobody asked for."""


class Unsupported(ItfuseError, NotImplementedError):
    """Something itfuse knows about and does not do."""


class ConfigError(ItfuseError, ValueError):
    """An unknown setting, or a value that a setting cannot take."""


class CacheError(ItfuseError, RuntimeError):
    """A cache entry or a cache directory that cannot be used."""


class PlanError(ItfuseError, AssertionError):
    """A check between two passes of the planner failed: a fault in itfuse, please report it."""


class CompileError(ItfuseError, RuntimeError):
    """The device compiler refused generated code.

    Attributes
    ----------
    source : str
        The generated C++ source.
    log : str
        The compiler's log.
    """

    def __init__(self, message: str, source: str, log: str) -> None:
        super().__init__(f"{message}\n--- log ---\n{log}\n--- source ---\n{source}")
        self.source = source
        self.log = log

    def __reduce__(self) -> tuple[object, ...]:
        message = str(self.args[0]).split("\n--- log ---\n", 1)[0]
        return (type(self), (message, self.source, self.log))
