"""Write the performance tables of README.md and docs/performance.md from the newest results.

    python benchmarks/readme_table.py           rewrite both between their markers
    python benchmarks/readme_table.py --check   exit 1 if that would change one

Results are the complete runs among benchmarks/results/**/*.json, as `itfuse bench --json` saves
them. The README has the default suite, the newest of each engine; docs/performance.md the other
suites, the newest of each device.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from itfuse.bench.export import markdown
from itfuse.bench.report import by_suite, from_document
from itfuse.bench.result import Report, size_text
from itfuse.bench.tables import PLAIN, cells

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"


def _complete(results: Path) -> list[tuple[str, Report]]:
    """Return (file name, report) of every complete run, the oldest first."""
    found = []
    for path in sorted(results.rglob("*.json")):
        report = from_document(json.loads(path.read_text()))
        if not report.interrupted and not report.settings.named:
            found.append((path.relative_to(results).as_posix(), report))
    return sorted(found, key=lambda one: one[1].date)


def newest(results: Path) -> list[tuple[str, Report]]:
    """Return (file name, report) of the default suite's newest run of each engine, cuda first."""
    found = {r.engine: (n, r) for n, r in _complete(results) if r.settings.suites == ("default",)}
    return [found[engine] for engine in ("cuda", "cpu") if engine in found]


def suites(results: Path) -> str:
    """Return the other suites as Markdown: for each device and suite its newest run."""
    found: dict[tuple[str, str], tuple[str, Report]] = {}
    for name, report in _complete(results):
        for suite in by_suite(report):
            if suite != "default":
                found[report.device["name"], suite] = (name, report)
    parts = []
    for (device, suite), (name, report) in sorted(found.items(), key=lambda one: one[1][0]):
        rows = [replace(row, suite=suite, suites=(suite,)) for row in by_suite(report)[suite]]
        alone = replace(report, rows=rows)
        text = markdown(alone).replace(f"### {suite}\n", f"### {suite}, {device}\n")
        rest = text.partition("###")[2]
        parts.append(f"###{rest.rstrip()} From [{name}](../benchmarks/results/{name}).")
    return "\n\n".join(parts)


def table(name: str, report: Report) -> str:
    """Return one report as Markdown: heading, table, and what it takes to run it again."""
    settings, library = report.settings, report.library
    headings = (*PLAIN, f"{library} ms", "speed-up")
    versions = ", ".join(f"{k} {v}" for k, v in report.packages.items() if v and k != "itfuse")
    device = [f"{k} {v}" for k, v in report.device.items() if k != "name" and v]
    lines = [
        f"### {report.device['name']}, {report.engine} engine, {size_text(settings.size)} "
        f"{settings.dtype}",
        "",
        f"| {' | '.join(headings)} |",
        "|---|" + "---:|" * (len(headings) - 1),
    ]
    for row in report.rows:
        columns = cells(row, library)
        columns += [""] * (len(headings) - len(columns))
        lines.append(f"| `{columns[0]}` | {' | '.join(columns[1:])} |")
    lines += [
        "",
        f"Ceiling: {report.copy_name}, {report.ceiling or 0:,.1f} GiB/s. Median of "
        f"{settings.repeat}, itfuse {report.packages['itfuse']}, {report.date[:10]}. "
        f"{'; '.join(device)}. Python {report.host['python']}, {versions}. Again: "
        f"`{report.command()}`. From [{name}](benchmarks/results/{name}).",
    ]
    lines += [f"Note: {note}." for note in report.notes]
    return "\n".join(lines)


def updated(readme: str, results: Path) -> str:
    """Return the README's text with the tables of `results` between the markers.

    Raises
    ------
    ValueError
        If there is not one pair of markers.
    """
    tables = [table(name, report) for name, report in newest(results)]
    return _between(readme, "\n\n".join(tables), "README.md")


def _between(text: str, body: str, name: str) -> str:
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{name} needs the markers {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{body or 'No result has been recorded yet.'}\n{END}{tail}"


def main(arguments: list[str] | None = None) -> int:
    """Run the script and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stale")
    options = parser.parse_args(arguments)
    old = {path: path.read_text() for path in (README, PERFORMANCE)}
    new = {
        README: updated(old[README], RESULTS),
        PERFORMANCE: _between(old[PERFORMANCE], suites(RESULTS), PERFORMANCE.name),
    }
    stale = [path for path in new if new[path] != old[path]]
    for path in stale:
        if options.check:
            print(f"{path.name} is stale: run python benchmarks/readme_table.py", file=sys.stderr)
        else:
            path.write_text(new[path])
    return int(bool(stale) and options.check)


if __name__ == "__main__":
    sys.exit(main())
