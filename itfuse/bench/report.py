"""A report as tables for the terminal and as a JSON document."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from itfuse.bench.case import COPY, FUSED, Bar, Case
from itfuse.bench.cases import SUITES
from itfuse.bench.remarks import listed
from itfuse.bench.result import FAILED, OK, Report, Row, Settings, size_text
from itfuse.bench.schedule import clock
from itfuse.bench.tables import article, milliseconds, print_compared, print_plain
from itfuse.bench.timing import Timing
from itfuse.errors import ConfigError

FORMAT = 2
"""Version of the JSON document; version 1 had one suite and no peers."""

_LATER = ("ceilings", "clocks", "absent", "lost", "arithmetic")  # of a report, from version 2 on


def terminal(stderr: bool = False) -> Console:
    """Return a console; a file or pipe gets lines long enough for the table."""
    console = Console(stderr=stderr, markup=False, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    return console


@contextmanager
def progress(total: Callable[[], int]) -> Iterator[Callable[[Case], None]]:
    """Show a bar on standard error if that is a terminal; yields what to call with each case.

    It is drawn when a case begins and never in between: no thread disturbs a timing, and nothing
    is drawn before the first one, so that what is printed until then stays. `total` says how many
    there are by now, since cases may be left out.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns,
        console=console,
        auto_refresh=False,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task("", total=total())
    done = 0

    def began(case: Case) -> None:
        nonlocal done
        if not done:
            bar.start()
        bar.update(task, description=case.name, completed=done, total=total(), refresh=True)
        done += 1

    try:
        yield began
        bar.update(task, completed=done, total=done, refresh=bool(done))
    finally:
        bar.stop()


def document(report: Report) -> dict[str, Any]:
    """Return the report as plain values for JSON.

    Times are in seconds, sizes in bytes, bandwidths in GiB/s.
    """
    rows = []
    for row in report.rows:
        bars = [
            {**asdict(bar), "found": row.found(bar), "kept": row.keeps(bar)} for bar in row.bars
        ]
        values = {**asdict(row), "bars": bars, "bytes_moved": row.bytes_moved}
        values["suites"] = list(row.suites)
        if row.timed and COPY in row.timings:
            values["gib_per_s"] = row.gib_per_s
            values["copy_gib_per_s"] = row.copy_gib_per_s
            values["share_of_ceiling"] = row.share
            if report.library in row.timings:
                values["speed_up"] = row.speed_up(report.library)
        rows.append(values)
    return {
        "format": FORMAT,
        "date": report.date,
        "complete": not report.interrupted and len(report.rows) >= len(report.cases),
        "engine": report.engine,
        "library": report.library,
        "device": report.device,
        "host": report.host,
        "packages": report.packages,
        "settings": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in {**asdict(report.settings), "cases": report.cases}.items()
        },
        "ceiling": {"what": report.copy_name, "gib_per_s": report.ceiling},
        "rows": rows,
        "notes": report.notes,
        **{name: getattr(report, name) for name in _LATER},
        "command": report.command(),
    }


def from_document(values: dict[str, Any]) -> Report:
    """Return the report that `document` was made of.

    Raises
    ------
    ConfigError
        If it is of another format, or no result at all.
    """
    if not isinstance(values, dict) or values.get("format") not in (1, FORMAT):
        found = values.get("format") if isinstance(values, dict) else None
        raise ConfigError(f"a result of format {found}; this itfuse reads 1 and {FORMAT}")
    try:
        return _from_document(values)
    except (KeyError, TypeError, AttributeError) as why:
        raise ConfigError(f"a damaged result: {type(why).__name__}: {why}") from None


def _from_document(values: dict[str, Any]) -> Report:
    settings = dict(values["settings"])
    cases = settings.pop("cases")
    for name in ("suites", "peers", "named"):
        if name in settings:
            settings[name] = tuple(settings[name])
    known = {one.name for one in fields(Row)}
    rows = []
    for row in values["rows"]:
        stored = {name: value for name, value in row.items() if name in known}
        if "suites" in stored:
            stored["suites"] = tuple(stored["suites"])
        stored["timings"] = {name: Timing(**times) for name, times in row["timings"].items()}
        stored["bars"] = tuple(
            Bar(one["limit"], one["against"], one["of"]) for one in row.get("bars", ())
        )
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
        **{name: values[name] for name in _LATER if name in values},
    )


def load(path: str) -> Report:
    """Return the report saved at `path`.

    Raises
    ------
    ConfigError
        If it cannot be read, naming the file.
    """
    try:
        return from_document(json.loads(Path(path).read_text()))
    except (OSError, ValueError) as why:  # JSON's and Unicode's errors are ValueErrors
        text = getattr(why, "strerror", None) or str(why)
        raise ConfigError(f"cannot read {path}: {text}") from None


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
    write(json_text(report), path)


def json_text(report: Report) -> str:
    """Return the JSON document as text."""
    return json.dumps(document(report), indent=1) + "\n"


def write(content: str | bytes, path: str) -> None:
    """Write a text or bytes to `path`, whole or not at all; `-` is standard output."""
    target = Path(path).absolute()
    if path == "-":
        assert isinstance(content, str)
        print(content, end="")
        return
    data = content.encode() if isinstance(content, str) else content
    if _is_special(target):  # such as /dev/stderr or a pipe
        target.write_bytes(data)
        return
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target.resolve())
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def title(report: Report) -> str:
    """Return one line: what ran where."""
    return (
        f"itfuse {report.packages['itfuse']}, {report.engine} engine on {report.device['name']}: "
        f"{size_text(report.settings.size)} {report.settings.dtype}, median of "
        f"{report.settings.repeat}, unfused is {report.library} {report.packages[report.library]}"
    )


def show(report: Report, console: Console) -> None:
    """Print the table or the tables, the ceilings and the notes."""
    if set(report.settings.peers) <= {FUSED, report.library}:
        print_plain(report, console)
    else:
        for suite, rows in by_suite(report).items():
            console.print(f"{suite}: {SUITES.get(suite, '')}", style="bold", soft_wrap=True)
            print_compared(rows, report, console)
            for line in savings(suite, rows, report):
                console.print(line, soft_wrap=True)
    _show_failures(report, console)
    if report.ceiling is not None:
        console.print(
            f"ceiling: {report.ceiling:,.1f} GiB/s, {report.copy_name}, timed in turn with "
            "each case"
        )
    if report.ceilings:
        found = ", ".join(f"{name} {value:,.1f}" for name, value in report.ceilings.items())
        console.print(f"ceilings of this run in GiB/s: {found}")
    for line in bar_lines(report):
        console.print(line, soft_wrap=True)
    for name, why in report.absent.items():
        console.print(f"without {name}: {why}")
    for note in report.notes:
        console.print(f"note: {note}")
    if any(row.seconds for row in report.rows):
        console.print(f"took {took(report)}", soft_wrap=True)
    console.print(f"again: {report.command()}", soft_wrap=True)
    if report.interrupted:
        console.print(
            f"interrupted: {len(report.rows)} of {len(report.cases)} cases ran", style="yellow"
        )


def savings(suite: str, rows: list[Row], report: Report) -> list[str]:
    """Return what fusion saves, a line for each case of the suite that shows it."""
    return [said for row in rows if (said := article(row, report))] if suite == "article" else []


def _show_failures(report: Report, console: Console) -> None:
    for row in report.rows:
        if row.status != OK:
            what = {FAILED: "raised", "n/a": "is not available:"}.get(
                row.status, "differs from the unfused answer:"
            )
            style = "yellow" if row.status == "n/a" else "red"
            console.print(f"{row.status} {row.case} {what} {row.message}", style=style)
        for name, why in row.failures.items():
            console.print(f"{row.case} by {name}: {why}", style="yellow")


def bar_lines(report: Report) -> list[str]:
    """Return how many promises were kept, then a line for each that was not, or not measured."""
    if not report.bars:
        return []
    verdicts = [(row, bar, row.keeps(bar)) for row, bar in report.bars]
    kept = sum(verdict is True for *_, verdict in verdicts)
    unknown = [(row, bar) for row, bar, verdict in verdicts if verdict is None]
    made = [f"bars: {kept} of {len(verdicts) - len(unknown)} kept, {len(unknown)} not measured"]
    for row, bar, verdict in verdicts:
        if verdict is False:
            made.append(f"MISSED {row.case}: {bar}, found {found_text(row, bar)}")
    missing = {name for row, bar in unknown if row.timed for name in (bar.against, bar.of)
               if name not in row.timings}  # fmt: skip
    untimed = dict.fromkeys(row.case for row, _ in unknown if not row.timed)
    if missing:
        made.append(f"not measured for want of {', '.join(sorted(missing))}")
    if untimed:
        made.append(f"not measured, since itfuse was not timed: {listed(untimed)}")
    return made


def found_text(row: Row, bar: Bar) -> str:
    """Return what a row has for a bar, in the bar's unit; a dash where it was not measured."""
    found = row.found(bar)
    if found is None:
        return "-"
    if not bar.against:
        return f"{milliseconds(found)} ms"
    return f"{found:.3f}" if bar.against == COPY else f"{found:.2f}x"


BARS = ("case", "bar", "found", "")


def bar_cells(report: Report) -> list[tuple[str, str, str, str]]:
    """Return a line of a table for each promise: case, bar, what was found, and the verdict."""
    words = {True: "kept", False: "MISSED", None: "not measured"}
    return [
        (row.case, str(bar), found_text(row, bar), words[row.keeps(bar)])
        for row, bar in report.bars
    ]


def took(report: Report) -> str:
    """Return what each suite took."""
    spent: dict[str, float] = {}
    for row in report.rows:
        spent[row.suite] = spent.get(row.suite, 0.0) + row.seconds
    parts = [f"{suite} {clock(seconds)}" for suite, seconds in spent.items()]
    return f"{clock(sum(spent.values()))}: {', '.join(parts)}"


def by_suite(report: Report) -> dict[str, list[Row]]:
    """Return the rows of each suite that was asked for; a case of two is a row of both."""
    found: dict[str, list[Row]] = {suite: [] for suite in report.settings.suites}
    for row in report.rows:
        for suite in row.suites or (row.suite,):
            found.setdefault(suite, []).append(row)
    return {suite: rows for suite, rows in found.items() if rows}
