"""The README says what is so: tables from results, links and commands that exist."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from itfuse.bench import report
from itfuse.bench.cases import CASES
from itfuse.bench.result import Report

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "readme_table", ROOT / "benchmarks" / "readme_table.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save(example: Report, path: Path, **changes: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report.document(replace(example, **changes))))


@pytest.fixture
def whole(example: Report) -> Report:
    return replace(example, cases=[row.case for row in example.rows], interrupted=False)


def test_the_tables_are_those_of_the_results(script: ModuleType) -> None:
    assert script.main(["--check"]) == 0


def test_a_stale_table_is_found(
    script: ModuleType, whole: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    readme = tmp_path / "README.md"
    readme.write_text(README)
    save(whole, tmp_path / "results" / "a.json")
    performance = tmp_path / "performance.md"
    performance.write_text((ROOT / "docs" / "performance.md").read_text())
    monkeypatch.setattr(script, "README", readme)
    monkeypatch.setattr(script, "PERFORMANCE", performance)
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
    assert script.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err
    assert readme.read_text() == README
    assert script.main([]) == 0
    assert "| `dot` | 8.00 | 1 | 2.000 | 3.91 | 0.50 | 10.0 | 5.00x |" in readme.read_text()
    assert script.main(["--check"]) == 0


def test_the_newest_complete_result_of_each_engine_counts(
    script: ModuleType, whole: Report, example: Report, tmp_path: Path
) -> None:
    save(whole, tmp_path / "old.json", date="2026-01-01T00:00:00+00:00")
    save(whole, tmp_path / "new.json", date="2026-03-01T00:00:00+00:00")
    save(example, tmp_path / "interrupted.json", date="2026-04-01T00:00:00+00:00")
    save(whole, tmp_path / "gpu" / "g.json", engine="cuda", date="2026-02-01T00:00:00+00:00")
    assert [name for name, _ in script.newest(tmp_path)] == ["gpu/g.json", "new.json"]


def test_suites_go_to_the_page_of_performance(
    script: ModuleType, whole: Report, tmp_path: Path
) -> None:
    rows = [replace(whole.rows[0], suite="article"), replace(whole.rows[0], suite="rows")]
    settings = replace(whole.settings, suites=("article", "rows"), peers=("all",))
    save(whole, tmp_path / "plain.json")
    save(replace(whole, rows=rows, settings=settings, cases=["a", "b"]), tmp_path / "d" / "s.json")
    named = replace(settings, named=("dot",))
    save(replace(whole, rows=rows, settings=named, cases=["a", "b"]), tmp_path / "d" / "n.json")
    assert [name for name, _ in script.newest(tmp_path)] == ["plain.json"]
    text = script.suites(tmp_path)
    assert "### article, A processor" in text and "### rows, A processor" in text
    assert text.count("From [d/s.json](../benchmarks/results/d/s.json).") == 2
    assert "| `dot` | itfuse | 1 | 8.00 MiB |" in text


def test_no_result_is_said(script: ModuleType, tmp_path: Path) -> None:
    assert "No result has been recorded yet." in script.updated(README, tmp_path)


def test_markers_are_needed(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="markers"):
        script.updated("# no markers", tmp_path)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text())
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b", README)) <= targets
    for name in re.findall(r"--case (\w+)", README):
        assert name in CASES
