"""What a reader of a run's numbers should know: notes that are made when it has ended."""

from __future__ import annotations

from collections.abc import Iterable

from itfuse.bench.case import COPY
from itfuse.bench.result import Report, Row
from itfuse.bench.timing import NEW_PROCESS, Device

_LEAST_STEADY = 8  # repeats that halves are compared of
_NAMED = 8  # cases that a note names


def listed(names: Iterable[str], most: int = 0) -> str:
    """Return names of cases, which have commas of their own, as one text.

    Examples
    --------
    >>> listed(["dot", "min, max", "norm"]), listed(["dot", "min, max", "norm"], 1)
    ('dot; min, max; norm', 'dot and 2 more')
    """
    names = list(names)
    if most and len(names) > most:
        return f"{'; '.join(names[:most])} and {len(names) - most} more"
    return "; ".join(names)


def remark(device: Device, report: Report) -> None:
    """Add notes on cases that stay in a cache, and on timings that drifted."""
    cached = [row.case for row in report.timed if _from_cache(row, device)]
    if cached:
        report.notes.append(
            f"inputs this small stay in the {device.cache / 2**20:.0f} MiB cache, so GiB/s "
            f"is not that of memory: {listed(cached, _NAMED)}"
        )
    if report.settings.repeat < _LEAST_STEADY:
        return
    # A new process is timed a few times only: halves of that say nothing of what ran beside.
    timings = [
        (row.case, name, one)
        for row in report.rows
        for name, one in row.timings.items()
        if name != COPY and one.method != NEW_PROCESS
    ]
    shaky = sorted((t for t in timings if not t[2].steady), key=lambda t: -t[2].drift)
    if shaky:
        worst = "; ".join(f"{case} by {name} {one.drift:.0%}" for case, name, one in shaky[:3])
        report.notes.append(
            f"{len(shaky)} of {len(timings)} timings drifted by more than their spread between "
            f"the halves of the repeats, so something else ran beside: at most {worst}"
        )


def _from_cache(row: Row, device: Device) -> bool:
    return COPY in row.timings and row.sets * row.copy_bytes < 2 * device.cache
