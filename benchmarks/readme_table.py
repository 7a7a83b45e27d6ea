"""Write the README's performance tables from the newest result of each engine.

    python benchmarks/readme_table.py           rewrite README.md between the markers
    python benchmarks/readme_table.py --check   exit 1 if that would change it

Results are the complete runs among benchmarks/results/**/*.json, as `itfuse bench --json` saves
them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from itfuse.bench.report import cells, from_document
from itfuse.bench.result import Report, size_text

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"
HEADINGS = ("case", "MiB moved", "passes", "ms", "GiB/s", "of ceiling")


def newest(results: Path) -> list[tuple[str, Report]]:
    """Return (file name, report) of the newest complete run of each engine, cuda first."""
    found: dict[str, tuple[str, Report]] = {}
    for path in sorted(results.rglob("*.json")):
        report = from_document(json.loads(path.read_text()))
        best = found.get(report.engine)
        if not report.interrupted and (best is None or report.date > best[1].date):
            found[report.engine] = (path.relative_to(results).as_posix(), report)
    return [found[engine] for engine in ("cuda", "cpu") if engine in found]


def table(name: str, report: Report) -> str:
    """Return one report as Markdown: heading, table, and what it takes to run it again."""
    settings, library = report.settings, report.library
    headings = (*HEADINGS, f"{library} ms", "speed-up")
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
        f"`itfuse bench --engine {report.engine} --size '{size_text(settings.size)}' --dtype "
        f"{settings.dtype}`. From [{name}](benchmarks/results/{name}).",
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
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md needs the markers {BEGIN} and {END}")
    tables = [table(name, report) for name, report in newest(results)]
    body = "\n\n".join(tables) or "No result has been recorded yet."
    return f"{head}{BEGIN}\n{body}\n{END}{tail}"


def main(arguments: list[str] | None = None) -> int:
    """Run the script and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stale")
    options = parser.parse_args(arguments)
    old = README.read_text()
    new = updated(old, RESULTS)
    if new == old:
        return 0
    if options.check:
        print("README.md is stale: run python benchmarks/readme_table.py", file=sys.stderr)
        return 1
    README.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
