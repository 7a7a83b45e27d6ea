"""Two results side by side: what became slower, and whether by more than the noise."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from itfuse.bench.case import FUSED
from itfuse.bench.remarks import listed
from itfuse.bench.result import Report, Row
from itfuse.bench.tables import Group, milliseconds, print_table

SLOWER, FASTER, SAME, GONE, NEW, BROKEN = "slower", "faster", "same", "gone", "new", "broken"
OTHER = "other size"
BAD = (SLOWER, GONE, BROKEN)
"""What makes `itfuse bench compare` exit with 1."""


@dataclass(frozen=True)
class Change:
    """One case in two results.

    Attributes
    ----------
    case, verdict : str
        Its name, and `slower`, `faster`, `same`, `gone` (only in the old one), `new` (only in the
        new one), `broken` (was timed, and is wrong, failed or not available now) or `other size`
        (was timed with another number of elements, which says nothing).
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


def _key(row: Row) -> tuple[str, str]:
    return row.case, row.dtype  # not the suite: a case of several is shown where it was asked for


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
        after = {(k[0], ""): row for k, row in after.items()}
        before = {(k[0], ""): row for k, row in before.items()}
    for key, row in before.items():
        other = after.get(key)
        if not row.timed:
            continue
        if other is None:
            made.append(Change(row.case, GONE, row.timings[FUSED].median))
        elif not other.timed:
            made.append(Change(row.case, BROKEN, row.timings[FUSED].median))
        elif _size(row, old) != _size(other, new):
            times = row.timings[FUSED].median, other.timings[FUSED].median
            made.append(Change(row.case, OTHER, *times))
        else:
            made.append(_change(row, other, threshold))
    made += [
        Change(row.case, NEW, after=row.timings[FUSED].median)
        for key, row in after.items()
        if row.timed and not (key in before and before[key].timed)
    ]
    return made


def _size(row: Row, report: Report) -> int:
    return row.size or report.settings.size  # a result of format 1 has it in its settings only


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
    groups = []
    order = (BROKEN, GONE, SLOWER, OTHER, SAME, FASTER, NEW)
    for one in sorted(changes, key=lambda change: (order.index(change.verdict), -change.ratio)):
        style = "bold red" if one.verdict in BAD else "green" if one.verdict == FASTER else ""
        line = [
            milliseconds(one.before) if one.before else "",
            milliseconds(one.after) if one.after else "",
            f"{one.ratio:.3f}" if one.ratio else "",
            one.verdict,
        ]
        groups.append(Group(one.case, [(line, style)]))
    print_table(console, ("case", "before ms", "after ms", "after / before", ""), groups)
    if other := [one.case for one in changes if one.verdict == OTHER]:
        console.print(f"not compared, since their sizes differ: {listed(other)}", style="yellow",
                      soft_wrap=True)  # fmt: skip
    counts = {verdict: sum(one.verdict == verdict for one in changes) for verdict in order}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
