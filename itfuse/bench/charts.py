"""What the pictures show, as plain numbers; svg.py and plot.py only draw it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from itfuse.bench.case import COPY, FUSED, LATENCY
from itfuse.bench.cases import SUITES
from itfuse.bench.report import by_suite
from itfuse.bench.result import Report, Row
from itfuse.bench.tables import milliseconds, number
from itfuse.bench.timing import NEW_PROCESS


@dataclass(frozen=True)
class Bars:
    """Bars in groups, and lines across them.

    Attributes
    ----------
    key, title, unit : str
        An identifier, a heading, and what the numbers are.
    groups : list of (str, list of (str, float or None, str))
        For each case its bars: name, value (None for one that was not timed), text beside it.
    limits : dict of str to float
        Lines across all bars: ceilings.
    """

    key: str
    title: str
    unit: str
    groups: list[tuple[str, list[tuple[str, float | None, str]]]]
    limits: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Curves:
    """Points over an axis, joined or not; both axes are logarithmic.

    Attributes
    ----------
    key, title, x, y : str
        An identifier, a heading, and what the axes are.
    series : dict of str to list of (float, float, str)
        For each name its points: x, y, text.
    joined : bool
        Whether the points of a series are joined.
    roof : float
        A line y = roof * x, or 0 for none.
    limits : dict of str to float
        Horizontal lines.
    """

    key: str
    title: str
    x: str
    y: str
    series: dict[str, list[tuple[float, float, str]]]
    joined: bool = True
    roof: float = 0.0
    limits: dict[str, float] = field(default_factory=dict)


Chart = Bars | Curves


def charts(report: Report) -> list[Chart]:
    """Return the pictures of a report, in order; suites that did not run have none."""
    made: list[Chart] = []
    for suite, rows in by_suite(report).items():
        timed = [row for row in rows if any(name != COPY for name in row.timings)]
        if not timed:
            continue
        if suite in _SWEPT:
            made += _sweeps(suite, timed, report)
        elif suite == "depth":
            made.append(_depth(timed))
        elif suite == "latency":
            made += _latency(timed)
        else:
            made.append(_bars(suite, timed, report))
    roofline = _roofline(report)
    if roofline.series:
        made.append(roofline)
    return made


def _limits(report: Report) -> dict[str, float]:
    found = {f"{name} ceiling": value for name, value in report.ceilings.items()}
    if not found and report.ceiling is not None:
        found = {"copy ceiling": report.ceiling}
    return found


def _names(row: Row) -> list[str]:
    return [name for name in row.timings if name != COPY]


def _bars(suite: str, rows: list[Row], report: Report) -> Bars:
    groups = []
    for row in rows:
        bars: list[tuple[str, float | None, str]] = []
        if FUSED not in row.timings:
            bars.append((FUSED, None, f"not available: {row.message}"))
        for name in _names(row):
            speed = row.peer_gib_per_s(name)
            bars.append(
                (name, speed, f"{number(speed)}, {milliseconds(row.timings[name].median)} ms")
            )
        bars += [(name, None, why.split(":")[0]) for name, why in row.failures.items()]
        groups.append((row.case, bars))
    title = f"{suite}: {SUITES.get(suite, '')}"
    return Bars(suite, title, "GiB/s, each input and output counted once", groups, _limits(report))


def _latency(rows: list[Row]) -> list[Chart]:
    made: list[Chart] = []
    for apart, about in ((False, "host time a call, not waiting for the device"),
                         (True, "new processes: import, compiling, first results")):  # fmt: skip
        unit, scale = ("ms", 1e3) if apart else ("us", 1e6)
        groups = []
        for row in rows:
            if any(one.method == NEW_PROCESS for one in row.timings.values()) != apart:
                continue
            bars: list[tuple[str, float | None, str]] = []
            for name in _names(row):
                value = row.timings[name].median * scale
                bars.append((name, value, f"{number(value)} {unit}"))
            groups.append((row.case, bars))
        if groups:
            made.append(Bars(f"latency-{len(made)}", f"latency: {about}", unit, groups))
    return made


_SWEPT = {"sizes": ("elements", r"(.+) at .+"), "rows": ("elements of a row", r"(.+), rows of \d+"),
          "columns": ("columns", r"(.+), \d+ columns")}  # fmt: skip
_FEWEST = 3  # points that make a curve


def _sweeps(suite: str, rows: list[Row], report: Report) -> list[Chart]:
    """Return a curve for each case that ran at several sizes or lengths, and bars of the others."""
    along, pattern = _SWEPT[suite]
    families: dict[str, list[Row]] = {}
    for row in rows:
        found = re.fullmatch(pattern, row.case)
        families.setdefault(found[1] if found else row.case, []).append(row)
    made: list[Chart] = []
    others: list[Row] = []
    for name, same in families.items():
        if len(same) < _FEWEST:
            others += same
            continue
        series: dict[str, list[tuple[float, float, str]]] = {}
        for row in same:
            at = row.size if suite == "sizes" else int(re.findall(r"\d+", row.case)[-1])
            for peer in _names(row):
                speed = row.peer_gib_per_s(peer)
                text = f"{row.case}: {number(speed)} GiB/s"
                series.setdefault(peer, []).append((at, speed, text))
        made.append(
            Curves(f"{suite}-{len(made)}", f"{suite}: {name}", along, "GiB/s", series,
                   limits=_limits(report))
        )  # fmt: skip
    if others:
        made.append(replace(_bars(suite, others, report), key=f"{suite}-{len(made)}"))
    return made


def _depth(rows: list[Row]) -> Curves:
    series: dict[str, list[tuple[float, float, str]]] = {}
    for row in rows:
        count = int(row.case.split()[0])
        for name in _names(row):
            time = row.timings[name].median * 1e3
            text = f"{row.case}: {milliseconds(time / 1e3)} ms"
            series.setdefault(name, []).append((count, time, text))
    return Curves("depth", "depth: chains of operations", "operations", "ms", series)


def _roofline(report: Report) -> Curves:
    """Operations of NumPy a second over operations a byte.

    The roofs are the copy and, where it is known, what the device has lanes for: an operation is
    one addition or product there, while NumPy's `exp` is one operation too.
    """
    series: dict[str, list[tuple[float, float, str]]] = {}
    for row in report.rows:
        if row.kind == LATENCY or not row.unfused_passes or not row.least_bytes:
            continue
        operations = row.unfused_passes * row.size
        for name in _names(row):
            rate = operations / row.timings[name].median / 1e9
            series.setdefault(name, []).append(
                (operations / row.least_bytes, rate, f"{row.case}: {number(rate)} Gop/s")
            )
    ceiling = report.ceilings.get("copy") or report.ceiling or 0.0
    known = report.arithmetic / 1e9
    title = "roofline" if known else "roofline; the arithmetic ceiling is not known here"
    return Curves("roofline-0", title, "NumPy operations a byte of input and output",
                  "10^9 operations a second", series, joined=False,
                  roof=ceiling * 2**30 / 1e9,
                  limits={"float32 lanes": known} if known else {})  # fmt: skip
