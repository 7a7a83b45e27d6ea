"""Tables of a report: their cells, and how they are printed on a terminal of any width."""

from __future__ import annotations

from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from itfuse.bench.case import COPY, FUSED, LATENCY
from itfuse.bench.result import OK, Report, Row

UNKNOWN = "-"
"""What nobody counted."""

PLAIN = ("case", "MiB moved", "passes", "ms", "GiB/s", "of ceiling")
HOST = ("case", "by", "us a call", "spread", "vs itfuse", "x unfused")
_SHORT = {"of ceiling": "ceiling", "vs itfuse": "itfuse", "x unfused": "unfused",
          "MiB moved": "MiB"}  # fmt: skip
_LEFT_OUT = "spread"
_SHORTENED = "ceiling: share of a copy; itfuse: times its time; unfused: times as fast"


class Group(NamedTuple):
    """The lines of one case.

    Attributes
    ----------
    name : str
        The case.
    lines : list of (list of str, str)
        Cells and a style; cells that are missing at the end are empty.
    """

    name: str
    lines: list[tuple[list[str], str]]


def compared(report: Report) -> tuple[str, ...]:
    """Return the headings of tables that have every peer."""
    launched = "kernels" if report.engine == "cuda" else "passes"
    return ("case", "by", launched, "moved", "ms", "spread", "GiB/s", "of ceiling", "vs itfuse",
            "x unfused")  # fmt: skip


def headings_of(rows: list[Row], report: Report) -> tuple[str, ...]:
    """Return the headings of the table of some rows."""
    return HOST if all(row.kind == LATENCY for row in rows) else compared(report)


def lines(row: Row, report: Report) -> list[list[str]]:
    """Return a line for each that was timed, itfuse first, then those that were not, and why."""
    made = []
    own, unfused = row.timings.get(FUSED), row.timings.get(report.library)
    if own is None:
        made.append([FUSED, row.status])
    for name, one in row.timings.items():
        if name == COPY:
            continue
        against = f"{one.median / own.median:.2f}x" if own else ""
        faster = f"{unfused.median / one.median:.2f}x" if unfused else ""
        if row.kind == LATENCY:
            made.append([name, f"{one.median * 1e6:,.2f}", f"{one.spread:.0%}", against, faster])
            continue
        kernels, moved = launched(row, name, report), moved_by(row, name, report)
        speed = row.peer_gib_per_s(name)
        share = f"{speed / row.copy_gib_per_s:.2f}" if COPY in row.timings else ""
        made.append(
            [name, str(kernels) if kernels else UNKNOWN, size(moved) if moved else UNKNOWN,
             milliseconds(one.median), f"{one.spread:.1%}", number(speed), share, against, faster]
        )  # fmt: skip
    made += [[name, why.split(":")[0]] for name, why in row.failures.items()]
    return made


def launched(row: Row, name: str, report: Report) -> int:
    """Return the kernels of a timing, 0 if not known.

    Where no row of the report has any (there is no GPU, or the result is older), itfuse has its
    plan's passes and the unfused library its operations.
    """
    if any(one.kernels for one in report.rows):
        return row.kernels.get(name, 0)
    return {FUSED: row.passes, report.library: row.unfused_passes}.get(name, 0)


def moved_by(row: Row, name: str, report: Report) -> int:
    """Return the bytes that a timing moves; 0 if not known."""
    known = {FUSED: row.bytes_moved, report.library: row.unfused_bytes}
    return known.get(name) or row.moved.get(name, 0)


def article(row: Row, report: Report) -> str:
    """Return what fusing a case saves, in one line; `""` where that was not measured."""
    if FUSED not in row.timings or report.library not in row.timings or not row.unfused_bytes:
        return ""
    parts = []
    for name in (report.library, FUSED):
        count = launched(row, name, report)
        what = compared(report)[2].removesuffix("es" if report.engine != "cuda" else "s")
        plural = "" if count == 1 else "es" if report.engine != "cuda" else "s"
        said = f" in {count} {what}{plural}" if count else ""
        parts.append(f"{size(moved_by(row, name, report))}{said}")
    return f"{row.case}: {parts[0]} -> {parts[1]}, {row.speed_up(report.library):.2f}x as fast"


def cells(row: Row, library: str) -> list[str]:
    """Return the columns of a row: name, MiB, passes, ms, GiB/s, share, unfused ms, speed-up."""
    if not row.timed or COPY not in row.timings:
        return [row.case, "", "", row.status]
    unfused = row.timings.get(library)
    return [
        row.case,
        number(row.bytes_moved / 2**20),
        str(row.passes),
        milliseconds(row.timings[FUSED].median),
        number(row.gib_per_s),
        f"{row.share:.2f}",
        milliseconds(unfused.median) if unfused else "",
        f"{row.speed_up(library):.2f}x" if unfused else row.peers.get(library, "").split(":")[0],
    ]


def print_plain(report: Report, console: Console) -> None:
    """Print a line for each case: itfuse beside the unfused library."""
    headings = (*PLAIN, f"{report.library} ms", "speed-up")
    groups = []
    for row in report.rows:
        first, *rest = cells(row, report.library)
        groups.append(Group(first, [(rest, "" if row.status == OK else "bold red")]))
    print_table(console, headings, groups)


def print_compared(rows: list[Row], report: Report, console: Console) -> None:
    """Print a line for each case and peer."""
    groups = [
        Group(row.case, [(one, "bold" if one[0] == FUSED else "") for one in lines(row, report)])
        for row in rows
    ]
    print_table(console, headings_of(rows, report), groups, left=2)


def print_table(
    console: Console, headings: tuple[str, ...], groups: list[Group], left: int = 1
) -> None:
    """Print a table; where it is wider than the console, each case is a line above its numbers.

    Parameters
    ----------
    console : Console
        Where to.
    headings : tuple of str
        The first is that of the cases.
    groups : list of Group
        The cases and their lines.
    left : int
        Columns of words, which come first.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at < left else "right", no_wrap=True)
    widths = [len(heading) for heading in headings]
    for group in groups:
        for at, (line, style) in enumerate(group.lines):
            row = ["" if at else group.name, *line]
            table.add_row(*row, style=style)
            widths[: len(row)] = map(max, widths, map(len, row))
    if sum(widths) + 3 * len(widths) - 1 <= console.width:
        console.print(table)
    else:
        _stack(console, headings, groups, left)


def _stack(console: Console, headings: tuple[str, ...], groups: list[Group], left: int) -> None:
    kept = [at for at, heading in enumerate(headings[1:]) if heading != _LEFT_OUT]
    short = [_SHORT.get(headings[1 + at], headings[1 + at]) for at in kept]
    padded = [
        (group.name, [([*line, *[""] * (len(headings) - 1 - len(line))], style)
                      for line, style in group.lines])
        for group in groups
    ]  # fmt: skip
    widths = [
        max([len(text), *(len(line[at]) for _, made in padded for line, _ in made)])
        for at, text in zip(kept, short, strict=True)
    ]

    def text_of(row: list[str]) -> str:
        words = [
            one.ljust(width) if at < left - 1 else one.rjust(width)
            for at, (one, width) in enumerate(zip(row, widths, strict=True))
        ]
        return " ".join(words).rstrip()

    console.print()
    console.print(text_of(short), soft_wrap=True)
    for name, made in padded:
        console.print(name, style="underline", soft_wrap=True)
        for line, style in made:
            console.print(text_of([line[at] for at in kept]), style=style, soft_wrap=True)
    if set(headings) & set(_SHORT) - {"MiB moved"}:
        console.print(_SHORTENED, style="dim", soft_wrap=True)
    console.print()


def number(value: float) -> str:
    """Return a number with the digits that matter.

    Examples
    --------
    >>> number(4008.04), number(8.5), number(0.0123)
    ('4,008.0', '8.50', '0.012')
    """
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def size(nbytes: float) -> str:
    """Return a number of bytes in three or four digits.

    Examples
    --------
    >>> size(3 << 30), size(1000), size(1023 << 20), size(12.5 * 2**10)
    ('3.00 GiB', '1000 B', '1023 MiB', '12.5 KiB')
    """
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while nbytes >= 1023.5 and len(units) > 1:
        nbytes /= 1024
        units.pop(0)
    if units[0] == "B":
        return f"{nbytes:.0f} B"
    return f"{nbytes:.{0 if nbytes >= 99.95 else 1 if nbytes >= 9.995 else 2}f} {units[0]}"


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds."""
    value = seconds * 1e3
    return (
        f"{value:.3f}" if 0.01 <= value < 10 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"
    )
