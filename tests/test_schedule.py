"""What a run promises, and what it leaves out to end in time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from itfuse.bench import peers, report, runner, schedule, start, timing
from itfuse.bench.app import app
from itfuse.bench.case import EVERY_PEER, Bar, Case
from itfuse.bench.cases import CASES, SUITES, of_suite
from itfuse.bench.result import Row, Settings
from itfuse.bench.timing import Timing

SETTINGS = Settings(1 << 20, 1 << 20, "float32", 3, 5, ("elementwise", "rows"))
CASES_OF_BOTH = [*of_suite("elementwise"), *of_suite("rows")]


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> timing.CpuDevice:
    monkeypatch.setattr(timing.CpuDevice, "ceiling_bytes", 1 << 20)
    return timing.CpuDevice()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(schedule.time, "monotonic", lambda: now[0])
    return now


def row(**times: float) -> Row:
    made = {name.replace("_", "."): Timing(t, t, t) for name, t in times.items()}
    return Row("c", "x", "ok", timings=made, copy_bytes=8 << 30, least_bytes=4 << 30)


# ---- bars ----
@pytest.mark.parametrize(("bar", "found", "kept"), [
    (Bar(0.5), 0.5, True),  # 4 GiB in 2 s, and the copy 8 GiB in 2 s
    (Bar(0.51), 0.5, False),
    (Bar(1.5, "cupy"), 1.5, True),
    (Bar(1.6, "cupy"), 1.5, False),
    (Bar(1.0, EVERY_PEER), 0.75, False),  # the fastest of the others
    (Bar(2.0, ""), 2.0, True),
    (Bar(1.9, ""), 2.0, False),
    (Bar(2.0, "cupy", of="itf.fuse"), 2.0, True),
    (Bar(1.0, "torch"), None, None),
    (Bar(1.0, "cupy", of="nobody"), None, None),
])  # fmt: skip
def test_a_bar_is_kept_or_missed(bar: Bar, found: float | None, kept: bool | None) -> None:
    measured = row(itfuse=2.0, cupy=3.0, itf_fuse=1.5, copy=2.0)
    assert (measured.found(bar), measured.keeps(bar)) == (found, kept)


def test_bars_are_of_the_gpu_at_full_size() -> None:
    case = CASES["relu(2x+1)"]
    assert case.promises("cuda", 1 << 28, "float32") == case.bars != ()
    for where in (("cpu", 1 << 28, "float32"), ("cuda", 1 << 27, "float32"),
                  ("cuda", 1 << 28, "float64")):  # fmt: skip
        assert case.promises(*where) == ()
    assert CASES["relu(2x+1) int8"].promises("cuda", 1 << 28, "float64")
    assert CASES["sum at 1e4"].promises("cuda", 10**4, "float32")


def test_bars_name_peers_and_timings_that_there_are() -> None:
    known = {*peers.registry(), "copy", EVERY_PEER, ""}
    bars = [bar for case in CASES.values() for bar in case.bars]
    assert len(bars) > 250 and all({bar.against, bar.of} <= known for bar in bars)
    assert sum("softmax" in case.name and bool(case.bars) for case in CASES.values()) == 29


def test_a_kernel_has_an_array_to_write_to() -> None:
    case = CASES["relu(2x+1)"]
    for wrong in ({"allocates": True}, {"results": 2}):
        with pytest.raises(ValueError, match="needs an array"):
            replace(case, **wrong)


# ---- time ----
def test_every_suite_has_an_estimate(cpu: timing.CpuDevice) -> None:
    everyone = list(peers.registry().values())
    for name in SUITES:
        settings = replace(SETTINGS, suites=(name,))
        made = schedule.Schedule(of_suite(name), everyone, cpu, settings)
        assert list(made.estimates) == [name] and 0.1 < made.estimates[name] < 3600
        assert str(made).startswith("about ") and f"{name} " in str(made)


def test_a_budget_is_shared_and_the_main_cases_come_first(
    cpu: timing.CpuDevice, clock: list[float]
) -> None:
    own = peers.choose(["numpy"])
    made = schedule.Schedule(CASES_OF_BOTH, own, cpu, replace(SETTINGS, budget=100))
    rows = [case for case in made.cases if case.name in {c.name for c in of_suite("rows")}]
    assert made.cases[: len(of_suite("elementwise"))] == of_suite("elementwise")
    assert [case.extra for case in rows] == sorted(case.extra for case in rows)
    share = 100 * made.estimates["elementwise"] / sum(made.estimates.values())
    first, second, other, last = (one.name for one in (*made.cases[:2], rows[0], rows[1]))
    clock[0] = share - 0.1  # less is left than the case takes, but it is the suite's first
    assert made.may_begin(first) and not made.may_begin(second)
    assert made.may_begin(other) and made.may_begin(last)
    clock[0] = share - 5
    assert made.may_begin(second)
    clock[0] = 100.1
    assert not made.may_begin(last)
    made.begin()
    assert made.may_begin(last)


def test_without_a_budget_everything_runs_in_order(
    cpu: timing.CpuDevice, clock: list[float]
) -> None:
    made = schedule.Schedule(CASES_OF_BOTH, [], cpu, SETTINGS)
    clock[0] = 1e9
    assert made.cases == CASES_OF_BOTH and all(made.may_begin(c.name) for c in CASES_OF_BOTH)


def test_a_run_that_spends_its_budget_is_complete_and_says_what_it_left_out(
    cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = of_suite("default")
    found = runner.start(cpu, cases, 1024, "float32", 1, budget=0.5)

    def slow(device: Any, case: Case, settings: Settings, compared: Any) -> Row:
        time.sleep(0.2)
        return Row(case.name, case.meaning, "ok")

    monkeypatch.setattr(runner, "run_case", slow)
    runner.run(cpu, cases, found)
    assert 1 <= len(found.rows) < 8 and not found.interrupted
    assert all(0.2 <= one.seconds < 2 for one in found.rows)
    (note,) = [note for note in found.notes if "budget" in note]
    assert f"left out {8 - len(found.rows)}: " in note and cases[-1].name in note
    assert report.document(found)["complete"] and "--budget 0.5" in found.command()


def test_a_budget_for_nothing_is_a_failure() -> None:
    options = ("bench", "--engine", "cpu", "--size", "2**10", "--budget", "1e-9")
    found = CliRunner().invoke(app, [*options, "--case", "dot", "--peer", "numpy"])
    assert found.exit_code == 1 and "left out 1: dot" in found.output


def test_names_of_peers_can_be_joined_by_commas() -> None:
    assert not [name for name in peers.registry() if "," in name]
    assert peers.choose([",".join(peers.registry())]) == list(peers.registry().values())


def test_rows_come_in_the_table_s_order(
    cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = of_suite("rows")
    found = runner.start(cpu, cases, 1024, "float32", 1, suites=("rows",), budget=1e6)
    monkeypatch.setattr(runner, "run_case", lambda d, case, s, p: Row(case.name, "", "ok"))
    runner.run(cpu, cases, found)
    assert [one.case for one in found.rows] == [case.name for case in cases]


def test_quick_leaves_out_what_others_stand_for() -> None:
    options = ("bench", "--engine", "cpu", "--size", "2**10", "--quick", "--peer", "numpy")
    found = CliRunner().invoke(app, [*options, "--suite", "columns"])
    assert found.exit_code == 0, found.output
    assert "sum(x*x), 1024 columns" in found.output and "256 columns" not in found.output
    assert "median of 7" in found.output and "--quick" in found.output
    assert "about " in found.output and "took " in found.output


# ---- on a GPU ----
@pytest.mark.gpu
def test_bars_are_measured_at_full_size() -> None:
    device = timing.open_device("cuda")
    cases = [CASES["relu(2x+1)"], CASES["sum(abs(x))"], CASES["sum at 1e4"]]
    found = runner.start(device, cases, None, "float32", 5, peers=peers.choose(["cupy"]))
    runner.run(device, cases, found, peers=peers.choose(["cupy"]))
    assert found.settings.size == 1 << 28
    assert [len(one.bars) for one in found.rows] == [1, 1, 1]
    assert all(0.3 < (one.found(bar) or 0) < 10 for one, bar in found.bars)
    assert report.bar_lines(found)[0].startswith("bars: ")


@pytest.mark.gpu
@pytest.mark.slow
def test_new_processes_on_the_gpu() -> None:
    rows = start.rows("cuda", 1)
    assert {one.status for one in rows} == {"ok"}, rows
    names = [one.case for one in rows]
    assert len(names) == 1 + 3 * 5 + 2 * 4  # the import; tile, which compiles itself; cub
    assert sum(bool(one.bars) for one in rows) == 10
