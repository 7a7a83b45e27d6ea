"""A report as a picture by matplotlib, which is optional: PNG, SVG or PDF by the file's name."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from itfuse.bench.case import COPY, FUSED
from itfuse.bench.charts import Bars, Curves, charts
from itfuse.bench.page import _LIGHT
from itfuse.bench.result import Report
from itfuse.errors import ConfigError

FORMATS = ("png", "svg", "pdf")


def unusable(path: str) -> str:
    """Say why no picture can be made for `path`; `""` if one can.

    Examples
    --------
    >>> unusable("picture.bmp")
    'picture.bmp: a picture is .png, .svg or .pdf'
    """
    if Path(path).suffix.lstrip(".").lower() not in FORMATS:
        return f"{path}: a picture is .png, .svg or .pdf"
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "pictures need matplotlib: pip install 'itfuse[plot]'"
    return ""


def picture(report: Report, path: str) -> bytes:
    """Return the picture of a report in the format that the name of `path` asks for.

    Raises
    ------
    ConfigError
        If nothing was timed.
    """
    from matplotlib.figure import Figure

    made = charts(report)
    if not made:
        raise ConfigError("nothing was timed, so there is nothing to draw")
    names = list(dict.fromkeys([FUSED, report.library, *(
        name for row in report.rows for name in row.timings if name != COPY
    )]))  # fmt: skip
    colours = {name: _LIGHT[at % len(_LIGHT)] for at, name in enumerate(names)}
    heights = [_height(chart) for chart in made]
    figure = Figure(figsize=(10, sum(heights)), layout="constrained")
    axes = figure.subplots(len(made), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, chart in zip(axes, made, strict=True):
        axis.set_title(chart.title, loc="left", fontsize=10)
        if isinstance(chart, Bars):
            _draw_bars(axis, chart, colours)
        else:
            _draw_curves(axis, chart, colours)
    out = io.BytesIO()
    figure.savefig(out, format=Path(path).suffix.lstrip(".").lower(), dpi=120)
    return out.getvalue()


def _height(chart: Any) -> float:
    if isinstance(chart, Curves):
        return 4.0
    return 1.0 + 0.17 * sum(len(bars) + 1 for _, bars in chart.groups)


def _draw_bars(axis: Any, chart: Bars, colours: dict[str, str]) -> None:
    place, ticks, labels = 0.0, [], []
    for case, bars in chart.groups:
        for name, value, text in bars:
            axis.barh(place, value or 0, color=colours.get(name, "grey"), height=0.85)
            axis.text(value or 0, place, f" {text}", va="center", fontsize=6)
            ticks.append(place)
            labels.append(f"{case}  {name}" if name == bars[0][0] else name)
            place += 1
        place += 0.7
    axis.set_yticks(ticks, labels, fontsize=6)
    axis.invert_yaxis()
    axis.set_xlabel(chart.unit, fontsize=8)
    for name, value in chart.limits.items():
        axis.axvline(value, color="#b00020", linestyle="--", linewidth=1)
        axis.text(value, 1.0, name, fontsize=6, rotation=20, transform=axis.get_xaxis_transform())


def _draw_curves(axis: Any, chart: Curves, colours: dict[str, str]) -> None:
    for name, points in chart.series.items():
        xs, ys, _ = zip(*sorted(points), strict=True)
        line = "-" if chart.joined else ""
        axis.plot(xs, ys, marker="o", markersize=3, linestyle=line, label=name,
                  color=colours.get(name, "grey"))  # fmt: skip
    if chart.roof:
        low, high = (f(x for p in chart.series.values() for x, _, _ in p) for f in (min, max))
        axis.plot((low, high), (chart.roof * low, chart.roof * high), "--", color="#b00020",
                  label="copy ceiling")  # fmt: skip
    for name, value in chart.limits.items():
        axis.axhline(value, color="#b00020", linestyle="--", linewidth=1)
        axis.annotate(name, (1.0, value), xycoords=axis.get_yaxis_transform(), fontsize=6,
                      ha="right", va="bottom")  # fmt: skip
    axis.set(xscale="log", yscale="log", xlabel=chart.x, ylabel=chart.y)
    axis.legend(fontsize=7)
