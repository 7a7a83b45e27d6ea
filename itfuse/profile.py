"""`itf.profile`: how fast an expression or a function runs, beside what memory allows."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from itfuse import engines
from itfuse.array import Array, asarray, compute, plan
from itfuse.errors import DeviceError
from itfuse.explain import at_most, bytes_text, explain_text, time_text
from itfuse.plan.stages import Plan
from itfuse.pytree import flatten

_LONG = 2e-3
"""Seconds that a timed batch takes at least, so that clocks and launches do not count."""


@dataclass(frozen=True)
class Profile:
    """What `itf.profile` found. It shows itself as text, and as HTML in notebooks.

    Attributes
    ----------
    plan : Plan
        What ran: passes, bytes, notes.
    seconds, lowest, highest : float
        Median and range of the time of a call.
    repeat : int
        Timed batches.
    ceiling : float
        Bytes per second, read and written, of a plain copy on the same device.
    """

    plan: Plan
    seconds: float
    lowest: float
    highest: float
    repeat: int
    ceiling: float

    @property
    def passes(self) -> int:
        """Number of device passes."""
        return self.plan.passes

    @property
    def bytes(self) -> int:
        """Bytes read and written by all passes; of a selection, at most."""
        return self.plan.bytes_moved

    @property
    def _bytes_text(self) -> str:
        return at_most(*self.plan.stages) + bytes_text(self.bytes)

    @property
    def gib_per_s(self) -> float:
        """Achieved bandwidth in GiB/s."""
        return self.bytes / self.seconds / 2**30

    @property
    def share(self) -> float:
        """Achieved bandwidth over that of a copy. A pass that mostly reads can exceed 1."""
        return self.bytes / self.seconds / self.ceiling

    @property
    def floor(self) -> float:
        """Least time in seconds: these bytes as fast as a copy moves them."""
        return self.plan.floor_time(self.ceiling)

    def __str__(self) -> str:
        passes = f"{self.passes} pass" + ("" if self.passes == 1 else "es")
        return "\n".join(
            [
                f"{passes} on {self.plan.device}, {self._bytes_text} moved in "
                f"{time_text(self.seconds)} (from {time_text(self.lowest)} to "
                f"{time_text(self.highest)} in {self.repeat} batches)",
                f"{self.gib_per_s:,.1f} GiB/s, {self.share:.2f} of a copy's "
                f"{self.ceiling / 2**30:,.1f}; at that speed it would take "
                f"{time_text(self.floor)}",
                explain_text(self.plan),
            ]
        )

    def _repr_html_(self) -> str:
        width = min(100.0, 100 * self.share)
        rows = {
            "passes": str(self.passes),
            "bytes moved": self._bytes_text,
            "time": f"{time_text(self.seconds)} ({time_text(self.lowest)} to "
            f"{time_text(self.highest)})",
            "floor time": time_text(self.floor),
            "achieved": f"{self.gib_per_s:,.1f} GiB/s",
            "of a copy": f"{self.share:.2f}",
        }
        body = "".join(
            f'<tr><th style="text-align:left">{escape(k)}</th>'
            f'<td style="text-align:right">{escape(v)}</td></tr>'
            for k, v in rows.items()
        )
        return (
            f'<div><table>{body}</table><div role="img" aria-label="{self.share:.0%} of a copy" '
            'style="border:1px solid;width:20em;height:1em"><div style="background:#1e8f55;'
            f'height:100%;width:{width:.1f}%"></div></div><details><summary>plan</summary>'
            f"<pre>{escape(explain_text(self.plan))}</pre></details></div>"
        )


def profile(what: Any, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
    """Time an expression, or a function of arrays, and relate it to what memory allows.

    Parameters
    ----------
    what : Array, container of Array, or callable
        Expressions that are computed together; or a function: one made by `itf.fuse` is called as
        it is, any other must return expressions when it is given lazy arrays.
    *args, **kwargs
        Arguments of the function.
    repeat : int
        Timed batches of calls; a batch takes at least two milliseconds.

    Returns
    -------
    Profile
        With `passes`, `bytes`, `seconds`, `gib_per_s`, `share`, `floor`; printing it shows them.

    Raises
    ------
    TypeError
        If the function returns something else than expressions.
    DeviceError
        For placeholders, which have no elements.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> x = itf.asarray(np.ones(100_000, np.float32))
    >>> found = itf.profile(abs(x).sum(), repeat=3)
    >>> found.passes, found.bytes
    (1, 400004)
    >>> found.seconds > 0 and found.floor > 0
    True
    """
    if repeat < 1:
        raise ValueError(f"profile: repeat={repeat}; give at least 1")
    made, call = _function(what, args, kwargs) if _is_function(what) else _expressions(what, args)
    if made.device == "none":
        raise DeviceError("profile: placeholders have no elements; pass real arrays")
    engine = engines.engine_for(made.device)
    call()  # builds
    first = engine.seconds(call, 1, 1)[0]
    batch = max(1, min(1000, round(_LONG / first))) if first else 1000
    times = engine.seconds(call, repeat, batch)
    return Profile(
        made, statistics.median(times), min(times), max(times), repeat, engine.copy_speed()
    )


def _is_function(what: Any) -> bool:
    return callable(what) and not isinstance(what, Array)


def _expressions(what: Any, args: tuple[Any, ...]) -> tuple[Plan, Callable[[], Any]]:
    if args:
        raise TypeError("profile: arguments follow a function, not an expression")
    return plan(what), lambda: compute(what)


def _function(
    what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Plan, Callable[[], Any]]:
    if hasattr(what, "plan"):  # made by itf.fuse
        return what.plan(*args, **kwargs), lambda: what(*args, **kwargs)
    name = getattr(what, "__name__", type(what).__name__)
    lazy = [asarray(x) if hasattr(x, "dtype") and hasattr(x, "shape") else x for x in args]
    results: list[Any] = []
    flatten(what(*lazy, **kwargs), lambda x: not isinstance(x, (tuple, list, dict)), results)
    wrong = [one for one in results if not isinstance(one, Array)]
    if wrong or not results:
        found = type(wrong[0]).__name__ if wrong else "nothing"
        raise TypeError(
            f"profile: {name} returned {found}; a function must return itfuse expressions, or be "
            "made by itf.fuse"
        )
    return _expressions(tuple(results), ())
