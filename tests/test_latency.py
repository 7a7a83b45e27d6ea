"""The latency figures: every case runs, and the table names what misses its bar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from itfuse.bench import latency


def test_every_case_is_measured(tmp_path: Path, capsys: Any) -> None:
    target = tmp_path / "latency.json"
    arguments = ["--library", "numpy", "--batches", "2", "--calls", "5", "--json", str(target)]
    assert latency.main(arguments) == 0
    figures = json.loads(target.read_text())
    assert [one["case"] for one in figures["microseconds"]] == list(latency.cases(latency.np))
    assert all(0 < one["lowest"] <= one["median"] for one in figures["microseconds"])
    assert len(figures["ratios"]) == len(latency.BARS) and "fused sum" in capsys.readouterr().out


def test_a_missed_bar_is_named() -> None:
    found = [latency.Latency(name, 1.0, 1.0) for name in ("add", "fused")]
    ratios = {f"{bar.case} / {bar.against}": bar.limit for bar in latency.BARS}
    assert "MISSED" not in latency.table(found, ratios)
    ratios["fused / add"] += 0.01
    (line,) = [line for line in latency.table(found, ratios).splitlines() if "MISSED" in line]
    assert line.startswith("fused / add ")
