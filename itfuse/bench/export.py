"""A report as CSV and as Markdown."""

from __future__ import annotations

import csv
import io

from itfuse.bench.case import COPY, FUSED, LATENCY
from itfuse.bench.report import BARS, bar_cells, by_suite, savings, title
from itfuse.bench.result import Report
from itfuse.bench.tables import headings_of, launched, lines, moved_by

COLUMNS = ("suite", "case", "meaning", "dtype", "size", "by", "status", "message", "passes",
           "kernels", "bytes_moved", "median_s", "lowest_s", "highest_s", "spread", "drift",
           "method", "gib_per_s", "share_of_ceiling")  # fmt: skip


def csv_text(report: Report) -> str:
    """Return one line for each case and peer, with a heading; times in seconds.

    Suites of a case are joined by spaces. `bytes_moved` is what the call reads and writes, and is
    empty where nobody knows, as are `kernels`.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in report.rows:
        base = {"suite": " ".join(row.suites or (row.suite,)), "case": row.case,
                "meaning": row.meaning, "dtype": row.dtype, "size": row.size}  # fmt: skip
        if FUSED not in row.timings:
            writer.writerow({**base, "by": FUSED, "status": row.status, "message": row.message})
        for name, one in row.timings.items():
            moved = row.copy_bytes if name == COPY else moved_by(row, name, report)
            values = {
                **base, "by": name, "status": "ok", "bytes_moved": moved or "",
                "median_s": one.median, "lowest_s": one.lowest, "highest_s": one.highest,
                "spread": one.spread, "drift": one.drift, "method": one.method,
            }  # fmt: skip
            if name == FUSED:
                values["passes"] = row.passes
            if row.kind != LATENCY and name != COPY and report.engine == "cuda":
                values["kernels"] = launched(row, name, report) or ""
            if row.kind != LATENCY:
                speed = row.copy_gib_per_s if name == COPY else row.peer_gib_per_s(name)
                values["gib_per_s"] = speed
                if COPY in row.timings:
                    values["share_of_ceiling"] = speed / row.copy_gib_per_s
            writer.writerow(values)
        for name, why in row.peers.items():
            status, _, text = why.partition(": ") if name in row.failures else ("n/a", "", why)
            writer.writerow({**base, "by": name, "status": status, "message": text})
    return out.getvalue()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def markdown(report: Report) -> str:
    """Return a table for each suite, and what it takes to run it again."""
    parts = [f"{title(report)}.", ""]
    for suite, rows in by_suite(report).items():
        headings = headings_of(rows, report)
        parts += [f"### {suite}", "", f"| {' | '.join(headings)} |"]
        parts.append("|---|---|" + "---:|" * (len(headings) - 2))
        for row in rows:
            for at, line in enumerate(lines(row, report)):
                cells = ["" if at else f"`{row.case}`", *line]
                cells += [""] * (len(headings) - len(cells))
                parts.append(f"| {' | '.join(_cell(one) for one in cells)} |")
        parts.append("")
        for said in savings(suite, rows, report):
            parts += [f"{said}.", ""]
    if report.bars:
        parts += ["#### bars", "", f"| {' | '.join(BARS)} |", "|---|---|---:|---|"]
        for case, *rest in bar_cells(report):
            parts.append(f"| `{case}` | {' | '.join(map(_cell, rest))} |")
        parts.append("")
    if report.ceilings:
        found = ", ".join(f"{name} {value:,.1f}" for name, value in report.ceilings.items())
        parts.append(f"Ceilings of this run in GiB/s: {found}.")
    parts += [f"Note: {note}." for note in report.notes]
    parts.append(f"Again: `{report.command()}`, {report.date[:10]}.")
    return "\n".join(parts) + "\n"
