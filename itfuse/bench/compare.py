"""Two results side by side: what became slower, and whether by more than the noise."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from itfuse.bench.case import FUSED
from itfuse.bench.report import _table, milliseconds
from itfuse.bench.result import Report, Row

SLOWER, FASTER, SAME, GONE, NEW, BROKEN = "slower", "faster", "same", "gone", "new", "broken"
BAD = (SLOWER, GONE, BROKEN)
"""What makes `itfuse bench compare` exit with 1."""


@dataclass(frozen=True)
class Change:
    """One case in two results.

    Attributes
    ----------
    case, verdict : str
        Its name, and `slower`, `faster`, `same`, `gone` (only in the old one), `new` (only in the
        new one) or `broken` (was timed, and is wrong, failed or not available now).
    before, after : float
        Medians in seconds; 0 where there is none.
    ratio : float
        After over before: above 1 is slower.
    """

    case: str
    verdict: str
    before: float = 0.0
    after: float = 0.0
    ratio: float = 0.0


def _key(row: Row) -> tuple[str, str, str]:
    return row.suite, row.case, row.dtype


def compare(old: Report, new: Report, threshold: float) -> list[Change]:
    """Return the changes of itfuse's times from `old` to `new`.

    Parameters
    ----------
    old, new : Report
        From two runs of the same settings.
    threshold : float
        Share by which a time may differ and still be the same; where the spreads of the two
        measurements are larger, they count.
    """
    made = []
    after = {_key(row): row for row in new.rows}
    before = {_key(row): row for row in old.rows}
    # A result of format 1 does not say its dtype.
    if any(not row.dtype for row in (*old.rows, *new.rows)):
        after = {(k[0], k[1], ""): row for k, row in after.items()}
        before = {(k[0], k[1], ""): row for k, row in before.items()}
    for key, row in before.items():
        other = after.get(key)
        if not row.timed:
            continue
        if other is None:
            made.append(Change(row.case, GONE, row.timings[FUSED].median))
        elif not other.timed:
            made.append(Change(row.case, BROKEN, row.timings[FUSED].median))
        else:
            made.append(_change(row, other, threshold))
    made += [
        Change(row.case, NEW, after=row.timings[FUSED].median)
        for key, row in after.items()
        if row.timed and not (key in before and before[key].timed)
    ]
    return made


def _change(row: Row, other: Row, threshold: float) -> Change:
    first, second = row.timings[FUSED], other.timings[FUSED]
    noise = max(threshold, first.spread, second.spread)
    ratio = second.median / first.median
    verdict = SLOWER if ratio > 1 + noise else FASTER if ratio < 1 / (1 + noise) else SAME
    return Change(row.case, verdict, first.median, second.median, ratio)


def differences(old: Report, new: Report) -> list[str]:
    """Return what makes two results hard to compare: device, size, dtype."""
    said = []
    for name, a, b in (
        ("device", old.device["name"], new.device["name"]),
        ("engine", old.engine, new.engine),
        ("size", f"{old.settings.size:,}", f"{new.settings.size:,}"),
        ("dtype", old.settings.dtype, new.settings.dtype),
    ):
        if a != b:
            said.append(f"the {name} differs: {a} and {b}")
    return said


def show(changes: list[Change], console: Console) -> None:
    """Print the changes, the worst first, and their number."""
    table: Table = _table("case", "before ms", "after ms", "after / before", "")
    order = (BROKEN, GONE, SLOWER, SAME, FASTER, NEW)
    for one in sorted(changes, key=lambda change: (order.index(change.verdict), -change.ratio)):
        style = "bold red" if one.verdict in BAD else "green" if one.verdict == FASTER else ""
        table.add_row(
            one.case,
            milliseconds(one.before) if one.before else "",
            milliseconds(one.after) if one.after else "",
            f"{one.ratio:.3f}" if one.ratio else "",
            one.verdict,
            style=style,
        )
    console.print(table)
    counts = {verdict: sum(one.verdict == verdict for one in changes) for verdict in order}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
