"""A report as one HTML page that needs nothing else: pictures, tables, how to run it again."""

from __future__ import annotations

from html import escape

from itfuse.bench.case import COPY, FUSED
from itfuse.bench.cases import SUITES
from itfuse.bench.charts import Chart, Curves, charts
from itfuse.bench.report import bar_cells, bar_lines, by_suite, savings, title
from itfuse.bench.result import OK, Report
from itfuse.bench.svg import draw
from itfuse.bench.tables import headings_of, lines

# Light and dark: each colour has at least 3:1 against its background (WCAG 2.2, 1.4.11).
_LIGHT = ("#0b6b3a", "#b3400b", "#1e5fb4", "#8a3ab9", "#9a6a00", "#0b7a8a", "#b0246a", "#5b5f66",
          "#6f7a00", "#7a4a2b", "#3f4fc4", "#c02b2b")  # fmt: skip
_DARK = ("#4fd18b", "#ff9a5c", "#7db4ff", "#cf9bff", "#e6b84d", "#5fd0e0", "#ff8ac0", "#b4bac4",
         "#c3cf4a", "#d3a585", "#a3aeff", "#ff8f8f")  # fmt: skip

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --fore: #1b1d21; --soft: #555b66;
  --line: #d5d9e0; --panel: #f6f7f9; --limit: #b00020; --focus: #1e5fb4; LIGHT }
@media (prefers-color-scheme: dark) { :root { --back: #14161a; --fore: #e9ebef; --soft: #a9b0bc;
  --line: #363b45; --panel: #1c1f25; --limit: #ff7b8a; --focus: #7db4ff; DARK } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--back);
  color: var(--fore); font: 16px/1.5 system-ui, sans-serif; }
a { color: var(--focus); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
.skip { position: absolute; left: -100vw; } .skip:focus { left: 1rem; background: var(--back); }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; }
p { margin: .25rem 0; } .soft { color: var(--soft); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; padding: 0; }
.scroll { overflow-x: auto; border: 1px solid var(--line); background: var(--panel);
  padding: .5rem; }
svg { display: block; min-width: 42rem; width: 100%; height: auto; }
svg text { fill: var(--fore); font: 12px system-ui, sans-serif; }
svg .case { font-weight: 600; } svg .value { fill: var(--soft); stroke: var(--panel);
  stroke-width: 3px; paint-order: stroke; }
svg .limit { stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 5 4; }
svg .limit-text { fill: var(--limit); stroke: var(--panel); stroke-width: 3px;
  paint-order: stroke; } svg .grid { stroke: var(--line); }
svg polyline { fill: none; stroke-width: 2; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th[scope=row], td.name, th.name { text-align: left; }
tr.own td { font-weight: 600; } td.bad { color: var(--limit); text-align: left; }
fieldset { border: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .25rem 1rem;
  margin: 1rem 0; } label { white-space: nowrap; }
.key { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; }
code { background: var(--panel); padding: .1rem .3rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
@media print { fieldset { display: none; } }
"""

_SCRIPT = """
for (const box of document.querySelectorAll('input[data-mark]'))
  box.addEventListener('change', () => {
    for (const mark of document.querySelectorAll('.m' + box.dataset.mark))
      mark.style.display = box.checked ? '' : 'none';
  });
"""


def page(report: Report) -> str:
    """Return the page of a report."""
    names = list(dict.fromkeys([FUSED, report.library, *(
        name for row in report.rows for name in row.timings if name != COPY
    )]))  # fmt: skip
    numbers = {name: at for at, name in enumerate(names)}
    drawn: dict[str, list[Chart]] = {}
    for chart in charts(report):
        drawn.setdefault(chart.key.split("-")[0], []).append(chart)
    suites = by_suite(report)
    sections = [*suites, *(key for key in drawn if key not in suites)]
    body = [
        '<a class="skip" href="#main">Skip to the results</a>',
        f"<header><h1>itfuse benchmark</h1><p>{escape(title(report))}</p>",
        f'<p class="soft">{escape(report.date)}. Again: '
        f"<code>{escape(report.command())}</code></p>",
        _state(report),
        '<nav aria-label="Suites"><ul>',
        *(f'<li><a href="#{escape(name)}">{escape(name)}</a></li>' for name in sections),
        '<li><a href="#bars">bars</a></li>' if report.bars else "",
        '<li><a href="#machine">machine and notes</a></li></ul></nav></header>',
        _legend(numbers),
        '<main id="main">',
    ]
    for name in sections:
        about = SUITES.get(name, "what bounds each case: the copy, or arithmetic")
        body.append(f'<section id="{escape(name)}"><h2>{escape(name)}</h2>')
        body.append(f'<p class="soft">{escape(about)}</p>')
        for line in savings(name, suites.get(name, []), report):
            body.append(f"<p>{escape(line)}</p>")
        for chart in drawn.get(name, []):
            label = escape(f"chart of {chart.title}", quote=True)
            if chart.key != name:
                body.append(f"<h3>{escape(chart.title)}</h3>")
            body.append(
                f'<div class="scroll" tabindex="0" role="group" aria-label="{label}">'
                f"{draw(chart, numbers)}</div>"
            )
        if name in suites:
            body.append(_table(name, report))
        else:
            body += [_points(chart) for chart in drawn[name] if isinstance(chart, Curves)]
        body.append("</section>")
    body += [_bars(report), _machine(report), "</main>"]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>itfuse benchmark, {escape(report.device['name'])}</title>"
        f"<style>{_style(len(names))}</style></head>\n<body>\n"
        + "\n".join(body)
        + f"\n<script>{_SCRIPT}</script>\n</body></html>\n"
    )


def _style(count: int) -> str:
    def colours(palette: tuple[str, ...]) -> str:
        return " ".join(f"--c{k}: {palette[k % len(palette)]};" for k in range(count))

    marks = "".join(
        f".s{k} {{ fill: var(--c{k}); background: var(--c{k}); }}\n"
        f".l{k} {{ stroke: var(--c{k}); }}\n"
        for k in range(count)
    )
    return _STYLE.replace("LIGHT", colours(_LIGHT)).replace("DARK", colours(_DARK)) + marks


def _state(report: Report) -> str:
    said = []
    if report.interrupted:
        said.append(f"Interrupted: {len(report.rows)} of {len(report.cases)} cases ran.")
    for row in report.rows:
        if row.status != OK:
            said.append(f"{row.case}: {row.status} {row.message}")
        said += [f"{row.case} by {name}: {why}" for name, why in row.failures.items()]
    if not said:
        return "<p>Every answer was checked against the unfused library before it was timed.</p>"
    items = "".join(f"<li>{escape(one)}</li>" for one in said)
    count = f"{len(said)} remark{'s' if len(said) > 1 else ''} on answers"
    return f"<details><summary>{count}</summary><ul>{items}</ul></details>"


def _legend(numbers: dict[str, int]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" checked data-mark="{number}">'
        f'<span class="key s{number}" aria-hidden="true"></span>{escape(name)}</label>'
        for name, number in numbers.items()
    )
    return f"<fieldset><legend>Shown in the charts</legend>{boxes}</fieldset>"


def _table(suite: str, report: Report) -> str:
    rows = by_suite(report)[suite]
    headings = headings_of(rows, report)
    head = "".join(
        f'<th scope="col"{" class=name" if at < 2 else ""}>{escape(one)}</th>'
        for at, one in enumerate(headings)
    )
    body = []
    for row in rows:
        made = lines(row, report)
        for at, line in enumerate(made):
            first = ""
            if at == 0:
                about = escape(row.meaning, quote=True)
                first = (
                    f'<th scope="row" class="name" rowspan="{len(made)}" title="{about}">'
                    f"{escape(row.case)}</th>"
                )
            own = ' class="own"' if line[0] == FUSED else ""
            rest = len(headings) - 2
            if len(line) == 2:
                cells = f'<td class="bad" colspan="{rest}">{escape(line[1])}</td>'
            else:
                cells = "".join(f"<td>{escape(one)}</td>" for one in line[1:])
            body.append(f'<tr{own}>{first}<td class="name">{escape(line[0])}</td>{cells}</tr>')
    label = escape(f"table of {suite}", quote=True)
    return (
        f"<details open><summary>Numbers of {escape(suite)}</summary>"
        f'<div class="scroll" tabindex="0" role="group" aria-label="{label}"><table>'
        f"<caption>median of {report.settings.repeat}; the meaning in NumPy is each case's "
        f"title</caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        "</div></details>"
    )


def _bars(report: Report) -> str:
    """Return the promises, and which of them were kept."""
    if not report.bars:
        return ""
    rows = "".join(
        f'<tr><th scope="row" class="name">{escape(case)}</th><td class="name">{escape(bar)}</td>'
        f'<td>{escape(found)}</td><td class="{"bad" if verdict == "MISSED" else "name"}">'
        f"{escape(verdict)}</td></tr>"
        for case, bar, found, verdict in bar_cells(report)
    )
    said = escape(bar_lines(report)[0])
    return (
        f'<section id="bars"><h2>bars</h2><p class="soft">{said}</p><details open>'
        '<summary>Promises and what was found</summary><div class="scroll" tabindex="0" '
        'role="group" aria-label="table of bars"><table><thead><tr><th scope="col" class="name">'
        'case</th><th scope="col" class="name">bar</th><th scope="col">found</th><th scope="col" '
        f'class="name">verdict</th></tr></thead><tbody>{rows}</tbody></table></div></details>'
        "</section>"
    )


def _points(chart: Curves) -> str:
    """Return the points of a chart whose numbers are in no other table."""
    rows = "".join(
        f'<tr><td class="name">{escape(text)}</td><td class="name">{escape(name)}</td>'
        f"<td>{x:.3g}</td><td>{y:.3g}</td></tr>"
        for name, points in chart.series.items()
        for x, y, text in points
    )
    label = escape(f"table of {chart.title}", quote=True)
    return (
        f"<details><summary>Numbers of {escape(chart.title)}</summary>"
        f'<div class="scroll" tabindex="0" role="group" aria-label="{label}"><table>'
        '<thead><tr><th scope="col" class="name">case</th><th scope="col" class="name">by</th>'
        f'<th scope="col">{escape(chart.x)}</th><th scope="col">{escape(chart.y)}</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div></details>"
    )


def _machine(report: Report) -> str:
    pairs = {**report.device, **{f"host {k}": v for k, v in report.host.items()}}
    pairs.update({name: version for name, version in report.packages.items() if version})
    for name, value in report.ceilings.items():
        pairs[f"{name} ceiling"] = f"{value:,.1f} GiB/s"
    for at, found in enumerate(report.clocks):
        pairs[f"clocks {'after' if at else 'before'}"] = found
    pairs.update({f"without {name}": why for name, why in report.absent.items()})
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in pairs.items() if v)
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return (
        f'<section id="machine"><h2>machine and notes</h2><dl>{items}</dl>'
        + (f"<ul>{notes}</ul>" if notes else "")
        + "</section>"
    )
