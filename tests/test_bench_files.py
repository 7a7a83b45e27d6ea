"""What a run leaves: CSV, Markdown, pages, pictures, comparisons; and what cannot be written."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support import reports
from support.reports import row
from typer.testing import CliRunner

from itfuse.bench import charts, compare, export, page, plot, report, runner, svg, timing
from itfuse.bench.app import app
from itfuse.bench.result import Report, Row
from itfuse.bench.timing import Timing

QUICK = ["bench", "--engine", "cpu", "--size", "2**10", "--repeat", "2"]
DEFAULT = [*QUICK, "--suite", "default", "--peer", "numpy"]


@pytest.fixture(autouse=True)
def small_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.CpuDevice, "ceiling_bytes", 1 << 20)


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def full(example: Report) -> Report:
    return reports.full(example)


# ---- texts ----
def test_csv(full: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(export.csv_text(full))))
    first = lines[0]
    assert (first["case"], first["by"], first["passes"]) == ("sum(abs(x))", "itfuse", "1")
    assert float(first["gib_per_s"]) == pytest.approx((2**20 + 4) / 0.0005 / 2**30)
    by = {(one["case"], one["by"]): one for one in lines}
    assert by["sum(abs(x))", "triton"]["status"] == "WRONG"
    assert by["sum(abs(x))", "jax.jit"]["status"] == "n/a"
    assert by["cumsum(x)", "itfuse"]["message"] == "itfuse has no cumsum"
    assert by["broken", "itfuse"]["status"] == "FAILED"
    assert by["host time of relu(2x+1)", "itfuse"]["gib_per_s"] == ""


def test_markdown(full: Report) -> None:
    text = export.markdown(full)
    assert "### article" in text and "| `sum(abs(x))` | itfuse | 1 |" in text
    again = "Again: `itfuse bench --engine cuda --suite article,sizes --peer all --size '2**18'"
    assert again in text
    widths = {
        line.count("|") - line.count("\\|") for line in text.splitlines() if "itfuse |" in line
    }
    assert widths <= {7, 11}
    assert "sum(abs(x)): 3.00 MiB in 2 kernels -> 1.00 MiB in 1 kernel, 3.00x as fast." in text
    assert "| `sum(abs(x))` | at least 4x cupy | 3.00x | MISSED |" in text
    assert "| `sum(abs(x))` | at least 0.1 of a copy | 1.000 | kept |" in text
    assert "| `sum(abs(x))` | at least 2x torch | - | not measured |" in text


def test_the_tables_of_a_comparison(full: Report) -> None:
    text = io.StringIO()
    console = report.terminal()
    console.file, console.width = text, 130
    report.show(full, console)
    said = text.getvalue()
    assert "bars: 1 of 2 kept, 1 not measured" in said
    assert "MISSED sum(abs(x)): at least 4x cupy, found 3.00x" in said
    assert "not measured for want of torch" in said
    assert "took 12 s: article 12 s" in said
    assert "n/a cumsum(x) is not available: itfuse has no cumsum" in said
    assert "FAILED broken raised Error: <b>&amp;" in said
    assert "sum(abs(x)) by triton: WRONG: element 3" in said
    assert "without torch: not here" in said
    assert "ceilings of this run in GiB/s: copy 3,900.0, read 4,200.0, write 3,500.0" in said


# ---- page and pictures ----
class Outline(HTMLParser):
    """Checks that tags close in order and ids are unique; keeps what a reader meets."""

    VOID = ("meta", "input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.charts = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self.links.append(values["href"])
        self.outside += [v for k, v in attrs if k in ("src", "href") and not v.startswith("#")]
        self.charts += tag == "svg"
        if tag == "svg":
            assert values["role"] == "img" and values["aria-labelledby"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_stands_alone(full: Report) -> None:
    text = page.page(full)
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.outside == []
    assert {link[1:] for link in outline.links} <= set(outline.ids)
    assert outline.charts == len(charts.charts(full)) >= 4
    assert "Error: &lt;b&gt;&amp;amp;" in text and "a &lt;note&gt;" in text
    assert "prefers-color-scheme: dark" in text and 'href="#main"' in text


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(
    ("colours", "back"), [(page._LIGHT, "#f6f7f9"), (page._DARK, "#1c1f25")], ids=["light", "dark"]
)
def test_every_colour_is_seen(colours: tuple[str, ...], back: str) -> None:
    for colour in colours:
        low, high = sorted((luminance(colour), luminance(back)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour  # WCAG 2.2, 1.4.11


def test_charts_have_the_numbers(full: Report) -> None:
    made = {chart.key: chart for chart in charts.charts(full)}
    bars = made["article"]
    assert isinstance(bars, charts.Bars)
    ((_, values),) = bars.groups
    assert [name for name, _, _ in values] == ["itfuse", "cupy", "triton"]
    assert values[2][1] is None and values[2][2] == "WRONG"
    assert bars.limits["read ceiling"] == 4200
    sweep = made["sizes-0"]
    assert isinstance(sweep, charts.Curves)
    assert [x for x, _, _ in sweep.series["itfuse"]] == [1000, 10**5, 10**6]
    latency = made["latency-0"]
    assert isinstance(latency, charts.Bars) and latency.unit == "us"
    first = made["latency-1"]
    assert isinstance(first, charts.Bars) and first.groups[0][1][0][1:] == (40.0, "40.0 ms")
    rows = made["rows-0"]
    assert isinstance(rows, charts.Curves) and rows.title == "rows: softmax"
    assert [x for x, _, _ in rows.series["cupy"]] == [32, 1024, 4096]
    rest = made["rows-1"]
    assert isinstance(rest, charts.Bars) and rest.groups[0][0] == "argmax, rows of 1024"
    drawn = svg.draw(replace(bars, limits={}), {"itfuse": 0, "cupy": 1, "triton": 2})
    lengths = [float(width) for width in re.findall(r'width="([\d.]+)" height="13"', drawn)]
    assert lengths[0] == pytest.approx(3 * lengths[1], abs=0.2)


def test_pictures(full: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plot.picture(full, "x.png").startswith(b"\x89PNG")
    assert b"<svg" in plot.picture(full, "x.svg")


# ---- comparing ----
def saved(path: Path, found: Report) -> str:
    path.write_text(report.json_text(found))
    return str(path)


def test_compare(full: Report, tmp_path: Path) -> None:
    slow = [replace(one, timings={**one.timings, "itfuse": Timing(0.0006, 0.0006, 0.0006)})
            if one.case == "sum(abs(x))" else one for one in full.rows]  # fmt: skip
    old, new = (
        saved(tmp_path / "a.json", full),
        saved(tmp_path / "b.json", replace(full, rows=slow)),
    )
    same = call("bench", "compare", old, old)
    assert same.exit_code == 0, same.output
    worse = call("bench", "compare", old, new)
    assert worse.exit_code == 1
    assert re.search(r"sum\(abs\(x\)\).*1\.200.*slower", worse.output)
    assert call("bench", "compare", old, new, "--threshold", "0.3").exit_code == 0
    better = call("bench", "compare", new, old)
    assert better.exit_code == 0 and "1 faster" in better.output


def test_compare_sees_what_is_gone_broken_and_new(full: Report) -> None:
    broken = [replace(full.rows[0], status="WRONG", timings={}), *full.rows[2:]]
    extra = row("another", 0.1, "apps")
    changes = compare.compare(full, replace(full, rows=[*broken, extra]), 0.05)
    verdicts = {one.case: one.verdict for one in changes}
    others = {case: word for case, word in verdicts.items() if word != "same"}
    assert others == {"sum(abs(x))": "broken", "relu(2x+1) at 1000": "gone", "another": "new"}
    assert verdicts["host time of relu(2x+1)"] == "same"


def test_noise_is_no_change(full: Report) -> None:
    noisy = Timing(0.00055, 0.0005, 0.0006, spread=0.2)
    changed = replace(full.rows[0], timings={**full.rows[0].timings, "itfuse": noisy})
    (one,) = compare.compare(replace(full, rows=full.rows[:1]), replace(full, rows=[changed]), 0.05)
    assert one.verdict == "same"


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "cannot read"), ("[]", "format None"), ('{"format": 9}', "format 9"), (None, "No such")],
)
def test_what_cannot_be_compared(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    found = call("bench", "compare", str(path), str(path))
    assert found.exit_code == 2
    assert message in " ".join(found.output.split())


def test_results_without_a_common_case(full: Report, tmp_path: Path) -> None:
    other = saved(tmp_path / "b.json", replace(full, rows=[row("another", 0.1, "apps")]))
    found = call("bench", "compare", saved(tmp_path / "a.json", full), other)
    assert found.exit_code == 2 and "no timed case in common" in found.output


# ---- the commands ----
def test_every_output_of_a_run(tmp_path: Path) -> None:
    names = {"json": "r.json", "csv": "r.csv", "markdown": "r.md", "html": "r.html"}
    options = [part for k, v in names.items() for part in (f"--{k}", str(tmp_path / v))]
    found = call(*QUICK, "--suite", "article,scan", "--peer", "numpy", *options)
    assert found.exit_code == 0, found.output
    values = json.loads((tmp_path / "r.json").read_text())
    assert values["settings"]["suites"] == ["article", "scan"]
    assert values["settings"]["peers"] == ["itfuse", "numpy"]
    scans = {"cumsum(x)", "cumsum(x*x)", "cumsum(x*x) at 2**20", "cumsum(x*x) at 2**24"}
    assert {one["case"] for one in values["rows"]} == {"sum(abs(x))", *scans}
    assert "--suite article,scan --peer itfuse,numpy" in values["command"]
    assert "sum(abs(x))" in (tmp_path / "r.csv").read_text()
    assert "### scan" in (tmp_path / "r.md").read_text()
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert {one.name for one in tmp_path.iterdir()} == set(names.values())


def test_rows_are_saved_before_the_next_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    run_case = runner.run_case
    seen: list[int] = []

    def look(*arguments: Any) -> Row:
        seen.append(len(json.loads(path.read_text())["rows"]) if path.exists() else 0)
        return run_case(*arguments)

    monkeypatch.setattr(runner, "run_case", look)
    assert call(*DEFAULT, "--json", str(path)).exit_code == 0
    assert seen == list(range(8))


def test_what_cannot_be_written_is_rescued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = tmp_path / "results"
    folder.mkdir()
    run = runner.run

    def run_and_lose_the_folder(*arguments: Any, **named: Any) -> None:
        run(*arguments, **named)
        folder.rmdir()

    monkeypatch.setattr(runner, "run", run_and_lose_the_folder)
    found = call(*QUICK, "--case", "dot", "--html", str(folder / "r.html"))
    assert found.exit_code == 1
    assert "cannot write" in found.output and "the results are in" in found.output
    (rescued,) = tmp_path.glob("itfuse-bench-*.json")
    assert json.loads(rescued.read_text())["rows"][0]["case"] == "dot"


def test_list() -> None:
    found = call("bench", "list")
    assert found.exit_code == 0
    for word in ("article:", "np.sum(np.abs(x))", "black-scholes", "torch.compile"):
        assert word in found.output
    rows = call("bench", "list", "rows")
    assert "softmax, rows of 1024" in rows.output and "black-scholes" not in rows.output
    assert call("bench", "list", "rosw").exit_code == 2


def test_a_gpu_suite_beside_the_cpu_s_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gpu(timing.CpuDevice):
        engine = "cuda"

    monkeypatch.setattr(timing, "open_device", lambda engine: Gpu())
    found = call("bench", "--suite", "cpu,rows")
    assert found.exit_code == 2
    assert "run it alone, or with --engine cpu" in " ".join(found.output.split())
