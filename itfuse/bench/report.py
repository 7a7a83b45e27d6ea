"""A report as a table for the terminal and as a JSON document."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from itfuse.bench.cases import Case
from itfuse.bench.runner import FAILED, FUSED, OK, Report, Row, Settings
from itfuse.bench.timing import Timing
from itfuse.errors import ConfigError

FORMAT = 1
"""Version of the JSON document."""


def terminal(stderr: bool = False) -> Console:
    """Return a console; a file or pipe gets lines long enough for the table."""
    console = Console(stderr=stderr, markup=False, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 110)
    return console


@contextmanager
def progress(total: int) -> Iterator[Callable[[Case], None]]:
    """Show a bar on standard error if that is a terminal; yields what to call with each case.

    It is drawn when a case begins and never in between: no thread disturbs a timing.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        console=console,
        auto_refresh=False,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=total)
        done = 0

        def began(case: Case) -> None:
            nonlocal done
            bar.update(task, description=case.name, completed=done, refresh=True)
            done += 1

        yield began


def document(report: Report) -> dict[str, Any]:
    """Return the report as plain values for JSON.

    Times are in seconds, sizes in bytes, bandwidths in GiB/s.
    """
    rows = []
    for row in report.rows:
        values = {**asdict(row), "bytes_moved": row.bytes_moved}
        if row.status == OK:
            values["gib_per_s"] = row.gib_per_s
            values["copy_gib_per_s"] = row.copy_gib_per_s
            values["share_of_ceiling"] = row.share
            values["speed_up"] = row.speed_up(report.library)
        rows.append(values)
    return {
        "format": FORMAT,
        "date": report.date,
        "complete": len(report.rows) == len(report.cases),
        "engine": report.engine,
        "library": report.library,
        "device": report.device,
        "host": report.host,
        "packages": report.packages,
        "settings": {**asdict(report.settings), "cases": report.cases},
        "ceiling": {"what": report.copy_name, "gib_per_s": report.ceiling},
        "rows": rows,
        "notes": report.notes,
    }


def from_document(values: dict[str, Any]) -> Report:
    """Return the report that `document` was made of.

    Raises
    ------
    ConfigError
        If it is of another format.
    """
    if values.get("format") != FORMAT:
        raise ConfigError(f"a result of format {values.get('format')}; this itfuse reads {FORMAT}")
    settings = dict(values["settings"])
    cases = settings.pop("cases")
    known = {one.name for one in fields(Row)}
    rows = []
    for row in values["rows"]:
        stored = {name: value for name, value in row.items() if name in known}
        stored["timings"] = {name: Timing(**times) for name, times in row["timings"].items()}
        rows.append(Row(**stored))
    return Report(
        values["engine"],
        values["library"],
        values["ceiling"]["what"],
        values["device"],
        values["host"],
        values["packages"],
        Settings(**settings),
        cases,
        values["date"],
        rows,
        values["notes"],
        interrupted=not values["complete"],
    )


def unwritable(path: str) -> str:
    """Say why a document cannot be written to `path`; `""` if it can. `-` is standard output.

    Examples
    --------
    >>> unwritable("/no/such/folder/result.json")
    'there is no folder /no/such/folder'
    """
    target = Path(path).absolute()
    if path == "-":
        return ""
    if target.is_dir():
        return f"{path} is a folder"
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    if target.exists() and not os.access(target, os.W_OK):
        return f"{path} is not writable"
    if not _is_special(target):
        try:
            tempfile.TemporaryFile(dir=target.parent).close()
        except OSError as why:
            return f"no file can be made in {target.parent} ({why.strerror})"
    return ""


def _is_special(target: Path) -> bool:
    return target.exists() and not target.is_file()


def save(report: Report, path: str) -> None:
    """Write the JSON document to `path`, whole or not at all; `-` is standard output."""
    text = json.dumps(document(report), indent=1) + "\n"
    target = Path(path).absolute()
    if path == "-":
        print(text, end="")
    elif _is_special(target):  # such as /dev/stderr or a pipe
        target.write_text(text)
    else:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target.resolve())


def title(report: Report) -> str:
    """Return one line: what ran where."""
    return (
        f"itfuse {report.packages['itfuse']}, {report.engine} engine on {report.device['name']}: "
        f"{size_text(report.settings.size)} {report.settings.dtype}, median of "
        f"{report.settings.repeat}, unfused is {report.library} {report.packages[report.library]}"
    )


def size_text(size: int) -> str:
    """Return a number of elements as `--size` takes it: a power of two, or the number.

    Examples
    --------
    >>> size_text(1 << 28), size_text(1000)
    ('2**28', '1000')
    """
    power = size.bit_length() - 1
    return f"2**{power}" if size == 1 << power and power > 9 else str(size)


def show(report: Report, console: Console) -> None:
    """Print the table, the ceiling and the notes."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("case", no_wrap=True)
    for heading in ("MiB moved", "passes", "ms", "GiB/s", "of ceiling"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(f"{report.library} ms", justify="right", no_wrap=True)
    table.add_column("speed-up", justify="right", no_wrap=True)
    for row in report.rows:
        table.add_row(*cells(row, report.library), style="" if row.status == OK else "bold red")
    console.print(table)
    for row in report.rows:
        if row.status != OK:
            what = "raised" if row.status == FAILED else "differs from the unfused answer:"
            console.print(
                f"{row.status} {row.case} {what} {row.message}", style="red", markup=False
            )
    if report.ceiling is not None:
        console.print(
            f"ceiling: {report.ceiling:,.1f} GiB/s, {report.copy_name}, timed in turn with "
            "each case"
        )
    for note in report.notes:
        console.print(f"note: {note}")
    if report.interrupted:
        console.print(
            f"interrupted: {len(report.rows)} of {len(report.cases)} cases ran", style="yellow"
        )


def cells(row: Row, library: str) -> list[str]:
    """Return the columns of a row: name, MiB, passes, ms, GiB/s, share, unfused ms, speed-up."""
    if row.status != OK:
        return [row.case, "", "", row.status]
    return [
        row.case,
        _number(row.bytes_moved / 2**20),
        str(row.passes),
        _milliseconds(row.timings[FUSED].median),
        _number(row.gib_per_s),
        f"{row.share:.2f}",
        _milliseconds(row.timings[library].median),
        f"{row.speed_up(library):.2f}x",
    ]


def _number(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _milliseconds(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
