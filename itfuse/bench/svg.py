"""Charts as SVG. Colours are classes, so that a page's style decides them in light and dark."""

from __future__ import annotations

import math
from html import escape

from itfuse.bench.charts import Bars, Chart, Curves

_WIDTH, _LEFT, _RIGHT = 860, 190, 200
_BAR, _GAP, _HEAD = 16, 12, 20
_LETTER = 7.0  # about the width of one, in 12 px


def text_of(x: float, y: float, text: str, anchor: str = "start", kind: str = "label") -> str:
    """Return an SVG text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'
    )


def draw(chart: Chart, numbers: dict[str, int]) -> str:
    """Return the SVG of a chart; `numbers` gives each name its colour."""
    return _bars(chart, numbers) if isinstance(chart, Bars) else _curves(chart, numbers)


def _open(chart: Chart, height: float) -> str:
    unit = chart.unit if isinstance(chart, Bars) else f"{chart.y} over {chart.x}"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-labelledby="t-{chart.key}" '
        f'xmlns="http://www.w3.org/2000/svg"><title id="t-{chart.key}">'
        f"{escape(chart.title)}: {escape(unit)}; the numbers are in the table below</title>"
    )


def _bars(chart: Bars, numbers: dict[str, int]) -> str:
    known = [v for _, bars in chart.groups for _, v, _ in bars if v is not None]
    most = max([*known, *chart.limits.values()], default=1.0) or 1.0
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    limits = _levels(
        {name: _LEFT + value * scale for name, value in chart.limits.items()},
        {name: f"{name} {value:,.0f}" for name, value in chart.limits.items()},
    )
    y = 20.0 + 14 * max([1, *(level + 1 for _, level in limits.values())])
    parts: list[str] = []
    for case, bars in chart.groups:
        parts.append(text_of(4, y + 13, case, kind="case"))
        y += _HEAD
        for name, value, text in bars:
            number = numbers.get(name, 0)
            parts.append(f'<g class="mark m{number}">')
            parts.append(text_of(_LEFT - 8, y + 12, name, "end"))
            if value is not None:
                width = max(value * scale, 1)
                parts.append(
                    f'<rect x="{_LEFT}" y="{y + 1:.1f}" width="{width:.1f}" height="{_BAR - 3}" '
                    f'class="s{number}"><title>{escape(case)}, {escape(name)}: {escape(text)}'
                    "</title></rect>"
                )
            parts.append(text_of(_LEFT + (value or 0) * scale + 6, y + 12, text, kind="value"))
            parts.append("</g>")
            y += _BAR
        y += _GAP
    # Behind the bars, so that their texts stay readable.
    lines: list[str] = []
    words: list[str] = []
    for name, (x, level) in limits.items():
        top = 12 + 14 * level
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 3}" y2="{y:.1f}" class="limit"/>')
        text = f"{name} {chart.limits[name]:,.0f}"
        words.append(text_of(x - 4, top, text, "end", "limit-text"))
    return _open(chart, y + 6) + "".join(lines + words + parts) + "</svg>"


def _levels(at: dict[str, float], texts: dict[str, str]) -> dict[str, tuple[float, int]]:
    """Return where each line is and on which level its text, so that no two texts overlap.

    Examples
    --------
    >>> _levels({"a": 500, "b": 510, "c": 520, "d": 700}, dict.fromkeys("abcd", "ceiling 100"))
    {'a': (500, 0), 'b': (510, 1), 'c': (520, 2), 'd': (700, 0)}
    """
    found: dict[str, tuple[float, int]] = {}
    ends: list[float] = []  # of the last text of each level
    for name, x in sorted(at.items(), key=lambda one: one[1]):
        begin = x - _LETTER * len(texts[name])
        level = next((k for k, end in enumerate(ends) if end < begin), len(ends))
        ends[level : level + 1] = [x]
        found[name] = (x, level)
    return found


def marks(low: float, high: float) -> list[float]:
    """Return where a logarithmic axis is marked: decades, and 2 and 5 where there are few.

    Examples
    --------
    >>> marks(1500, 4200), marks(1, 1e4)
    ([2000.0], [1.0, 10.0, 100.0, 1000.0, 10000.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, (last - first) // 8)
    steps = (1, 2, 5) if high / low < 100 else (1,)
    found = [times * 10.0**k for k in range(first, last + 1, step) for times in steps]
    return [one for one in found if low <= one <= high]


def power_text(value: float) -> str:
    """Return the label of a decade.

    Examples
    --------
    >>> power_text(1000.0), power_text(0.01), power_text(1e9)
    ('1000', '0.01', '1e9')
    """
    if 1e-3 <= value <= 1e4:
        return f"{value:g}"
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def _curves(chart: Curves, numbers: dict[str, int]) -> str:
    height, top, bottom = 400.0, 24.0, 350.0
    left, right = 70.0, _WIDTH - 190.0
    xs = [x for points in chart.series.values() for x, _, _ in points]
    ys = [y for points in chart.series.values() for _, y, _ in points]
    ys += list(chart.limits.values())
    low_x, high_x = min(xs), max(xs)
    if chart.roof:
        ys += [chart.roof * low_x, chart.roof * high_x]
    low_x, high_x = (low_x / 1.3, high_x * 1.3)
    low_y, high_y = min(ys) / 1.3, max(ys) * 1.3

    def at_x(x: float) -> float:
        return left + (right - left) * math.log(x / low_x) / math.log(high_x / low_x)

    def at_y(y: float) -> float:
        return bottom - (bottom - top) * math.log(y / low_y) / math.log(high_y / low_y)

    parts = []
    for value in marks(low_x, high_x):
        x = at_x(value)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" class="grid"/>')
        parts.append(text_of(x, bottom + 16, power_text(value), "middle"))
    for value in marks(low_y, high_y):
        y = at_y(value)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(text_of(left - 8, y + 4, power_text(value), "end"))
    parts.append(text_of((left + right) / 2, bottom + 36, chart.x, "middle"))
    parts.append(text_of(4, 14, chart.y))
    if chart.roof:
        parts.append(
            f'<line x1="{left}" y1="{at_y(chart.roof * low_x):.1f}" x2="{right}" '
            f'y2="{at_y(chart.roof * high_x):.1f}" class="limit"/>'
        )
        end = at_y(chart.roof * high_x)
        parts.append(text_of(right + 6, end + 4, "copy ceiling", kind="limit-text"))
    ends: list[float] = []
    for name, value in sorted(chart.limits.items(), key=lambda item: item[1]):
        y = at_y(value)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="limit"/>')
        level = min([y + 4, *[end - 13 for end in ends[-1:]]])
        ends.append(level)
        parts.append(text_of(right + 6, level, f"{name} {value:,.0f}", kind="limit-text"))
    for at, (name, points) in enumerate(chart.series.items()):
        number = numbers.get(name, 0)
        places = [(at_x(x), at_y(y), text) for x, y, text in sorted(points)]
        parts.append(f'<g class="mark m{number}">')
        if chart.joined and len(places) > 1:
            joined = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
            parts.append(f'<polyline points="{joined}" class="l{number}"/>')
        for x, y, text in places:
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="s{number}">'
                f"<title>{escape(name)}, {escape(text)}</title></circle>"
            )
        y = bottom - 16 * (len(chart.series) - at)
        parts.append(f'<circle cx="{right + 12}" cy="{y - 4:.1f}" r="5" class="s{number}"/>')
        parts.append(text_of(right + 24, y, name))
        parts.append("</g>")
    return _open(chart, height) + "".join(parts) + "</svg>"
