"""The benchmark: its table against NumPy, its checker against wrong answers, its documents."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse import reference
from itfuse.bench import machine, options, report, runner, timing
from itfuse.bench.cases import CASES, Case, select
from itfuse.bench.result import Report, Row, Settings
from itfuse.errors import ConfigError

SMALL = Settings(size=3000, asked_size=3000, dtype="float32", repeat=2, seed=5)


@pytest.fixture
def cpu() -> timing.CpuDevice:
    return timing.CpuDevice()


def arrays_of(device: Any, case: Case, dtype: str = "float32") -> Any:
    return runner._arrays(device, case, 3000, replace(SMALL, dtype=dtype), 0)


# ---- the table ----
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_form_of_a_case_is_its_meaning(case: Case, cpu: timing.CpuDevice) -> None:
    inputs = [cpu.random(shape, "float64", k) for k, shape in enumerate(case.shapes(1009))]
    names = dict(zip("xyz", inputs, strict=False))
    want = eval(case.meaning, {"np": np, "erf": reference.erf, **names})
    fused = case.fused(*(itf.asarray(x) for x in inputs))
    plan = itf.plan(fused)
    assert plan.passes == 1
    assert plan.bytes_moved == sum(x.nbytes for x in inputs) + np.asarray(want).nbytes
    got = fused.compute()
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
    out = np.full_like(got, np.nan)
    case.unfused(cpu.xp, out, *inputs)
    np.testing.assert_array_equal(out, want)


def test_the_issue_s_cases_are_there() -> None:
    assert {"sum(abs(x))", "relu(2x+1)", "relu(2x+y)", "relu(x*y+z)", "gelu(x+b)", "dot", "norm",
            "mean"} <= set(CASES)  # fmt: skip


def test_cases_are_found_by_name() -> None:
    assert select([]) == list(CASES.values())
    assert [case.name for case in select(["MEAN", "relu(x*y + z)"])] == ["relu(x*y+z)", "mean"]
    with pytest.raises(ConfigError, match=r"no case 'nrm'; did you mean 'norm'\?"):
        select(["nrm"])
    with pytest.raises(ConfigError, match=r"no case '!!!'; there are sum"):
        select(["!!!"])


# ---- the checker ----
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_checker_passes_every_case(case: Case, dtype: str, cpu: timing.CpuDevice) -> None:
    assert runner.check(cpu, case, arrays_of(cpu, case, dtype)) == ""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_checker_refuses_a_wrong_answer(case: Case, cpu: timing.CpuDevice) -> None:
    wrong = replace(case, fused=lambda *inputs: case.fused(*inputs) * 1.0001)
    assert "unfused answer" in runner.check(cpu, wrong, arrays_of(cpu, wrong))


@pytest.mark.parametrize("name", ["sum(abs(x))", "dot", "norm", "mean"])
def test_the_checker_sees_one_lost_element(name: str, cpu: timing.CpuDevice) -> None:
    case = CASES[name]
    arrays = arrays_of(cpu, case)
    whole = case.unfused
    lossy = replace(
        case,
        unfused=lambda xp, out, *inputs: whole(xp, out, *(np.delete(x, 1000) for x in inputs)),
    )
    arrays.inputs[0][1000] = 1.5
    assert runner.check(cpu, case, arrays) == ""
    assert "unfused answer" in runner.check(cpu, lossy, arrays)


def test_what_was_not_written_is_wrong(cpu: timing.CpuDevice) -> None:
    want = np.ones(5, "f4")
    got = want.copy()
    got[3] = np.nan
    assert runner.difference(np, got, want, 100) == (
        "element 3 of 5 is nan, and the unfused answer 1.0"
    )
    assert runner.difference(np, want, got, 100) != ""
    assert runner.difference(np, want, want, 0) == ""


def test_differences_are_found_past_the_first_block() -> None:
    want = np.zeros(runner._BLOCK + 10, "f4")
    got = want.copy()
    got[-1] = 1
    assert runner.difference(np, got, want, 1).startswith(f"element {want.size - 1} of")


# ---- running ----
def test_a_row_has_the_plan_s_numbers(cpu: timing.CpuDevice) -> None:
    row = runner.run_case(cpu, CASES["relu(2x+y)"], SMALL)
    assert row.status == runner.OK, row.message
    assert (row.passes, row.bytes_read, row.bytes_written) == (1, 24000, 12000)
    assert row.copy_bytes == 24000
    assert set(row.timings) == {"itfuse", "numpy", "copy"}
    for one in row.timings.values():
        assert 0 < one.lowest <= one.median <= one.highest
    assert row.share == pytest.approx(row.gib_per_s / row.copy_gib_per_s)


def test_a_wrong_case_is_not_timed(cpu: timing.CpuDevice) -> None:
    wrong = replace(CASES["dot"], fused=lambda x, y: (x * y).sum() + 1)
    row = runner.run_case(cpu, wrong, SMALL)
    assert (row.status, row.timings) == (runner.WRONG, {})
    assert "element 0 of 1" in row.message


def test_a_failing_case_is_a_row(cpu: timing.CpuDevice) -> None:
    def broken(x: Any, y: Any) -> Any:
        raise MemoryError("no room\nat all")

    row = runner.run_case(cpu, replace(CASES["dot"], fused=broken), SMALL)
    assert (row.status, row.message) == (runner.FAILED, "MemoryError: no room")


def test_ctrl_c_keeps_what_ran(cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    run_case = runner.run_case

    def interrupted(device: Any, case: Case, settings: Settings) -> Row:
        if case.name == "norm":
            raise KeyboardInterrupt
        return run_case(device, case, settings)

    monkeypatch.setattr(runner, "run_case", interrupted)
    cases = select(["dot", "norm", "mean"])
    result = runner.start(cpu, cases, 1000, "float32", 1)
    runner.run(cpu, cases, result)
    assert result.interrupted
    assert [row.case for row in result.rows] == ["dot"]
    assert report.document(result)["complete"] is False


def test_calls_are_timed_in_turn(cpu: timing.CpuDevice) -> None:
    seen: list[tuple[str, int]] = []
    calls = {name: lambda k, name=name: seen.append((name, k)) for name in "ABC"}
    timings = cpu.measure(calls, repeat=2)
    rounds = timing.WARM_UP + 2
    assert [name for name, _ in seen] == list("ABC") * rounds
    assert [k for _, k in seen] == list(range(3 * rounds))
    assert set(timings) == set("ABC")


def test_inputs_that_fit_in_the_cache_are_rotated(cpu: timing.CpuDevice) -> None:
    case = CASES["mean"]
    cpu.cache = 3000 * 4
    assert runner._sets(cpu, case, 3000, "float32") == 4
    assert runner._sets(cpu, case, 1 << 20, "float32") == 1
    assert runner._sets(cpu, case, 1, "float32") == runner._MOST_SETS
    result = runner.start(cpu, [case], 10, "float32", 1)
    runner.run(cpu, [case], result)
    assert any("stay in the" in note and "mean" in note for note in result.notes)


def test_a_size_that_does_not_fit_is_scaled_down(
    cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "free_memory", lambda: 1 << 20)
    result = runner.start(cpu, [CASES["mean"]], 1 << 20, "float32", 1)
    assert (result.settings.size, result.settings.asked_size) == (1 << 16, 1 << 20)
    assert "scaled down to 65,536 elements" in result.notes[0]


def test_random_inputs(cpu: timing.CpuDevice) -> None:
    for dtype in ("float32", "float64"):
        x = cpu.random((100_000,), dtype, 3)
        assert x.dtype == dtype
        assert x.min() >= -1 and x.max() < 2
        assert abs(x.mean() - 0.5) < 0.02
        assert not np.array_equal(x, cpu.random((100_000,), dtype, 4))


def test_the_machine_is_described() -> None:
    versions = machine.packages()
    assert versions["numpy"] == np.__version__
    assert set(versions) >= {"cupy", "cuda-cccl", "cuda-core", "cuda-bindings", "nvrtc"}
    assert machine.free_memory() > 1 << 20
    assert machine.last_level_cache() > 1 << 10
    assert machine.processor() and machine.cores() >= 1


# ---- sizes ----
@pytest.mark.parametrize(
    ("text", "size"),
    [("2**26", 1 << 26), ("2^3", 8), ("1e6", 10**6), ("64Mi", 1 << 26), ("1.5k", 1500),
     ("1000", 1000), (" 1_000 ", 1000), ("1,000", 1000), ("2**40", 1 << 40), ("1Gi", 1 << 30)],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert options.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "abc", "0", "-5", "1.5", "2**99", "9**99", "1e99", "2**-1",
                                  "nan", "inf", "1e", "64Mb", "2**2**2", "2**41"])  # fmt: skip
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="is no size; give a"):
        options.parse_size(text)


# ---- documents and tables ----
def test_the_table(example: Report, golden: Callable[[str, str], None]) -> None:
    text = io.StringIO()
    console = report.terminal()
    console.file, console.width = text, 110
    console.print(report.title(example))
    report.show(example, console)
    golden("bench_table.txt", "\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def test_the_document(example: Report) -> None:
    values = report.document(example)
    assert json.loads(json.dumps(values)) == values
    assert list(values) == ["format", "date", "complete", "engine", "library", "device", "host",
                            "packages", "settings", "ceiling", "rows", "notes"]  # fmt: skip
    assert set(values["settings"]) == {"size", "asked_size", "dtype", "repeat", "seed", "cases"}
    assert values["ceiling"]["gib_per_s"] == pytest.approx(7.8125)
    assert set(values["rows"][0]) == {
        "case", "meaning", "status", "message", "passes", "bytes_read", "bytes_written",
        "copy_bytes", "sets", "timings", "bytes_moved", "gib_per_s", "copy_gib_per_s",
        "share_of_ceiling", "speed_up",
    }  # fmt: skip
    assert values["rows"][0]["speed_up"] == pytest.approx(5)
    assert values["rows"][0]["timings"]["itfuse"] == {
        "median": 0.002, "lowest": 0.0019, "highest": 0.003,
    }  # fmt: skip
    assert "speed_up" not in values["rows"][1]


def test_a_document_reads_back(example: Report) -> None:
    assert report.from_document(json.loads(json.dumps(report.document(example)))) == example
    with pytest.raises(ConfigError, match="format 99"):
        report.from_document({"format": 99})


def test_saving(example: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    assert report.unwritable(str(path)) == ""
    report.save(example, str(path))
    assert json.loads(path.read_text()) == report.document(example)
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]
    report.save(example, "-")
    assert json.loads(capsys.readouterr().out) == report.document(example)


def test_saving_to_a_device_does_not_replace_it(example: Report) -> None:
    assert report.unwritable(os.devnull) == ""
    report.save(example, os.devnull)
    assert not Path(os.devnull).is_file()


def test_unwritable_places(tmp_path: Path) -> None:
    assert "is a folder" in report.unwritable(str(tmp_path))
    assert "no folder" in report.unwritable(str(tmp_path / "none" / "x.json"))


# ---- on a GPU ----
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_case_on_the_gpu(dtype: str) -> None:
    device = timing.open_device("auto")
    assert device.engine == "cuda"
    cases = list(CASES.values())
    result = runner.start(device, cases, 1 << 20, dtype, 3)
    runner.run(device, cases, result)
    assert [(row.case, row.status, row.message) for row in result.rows] == [
        (case.name, "ok", "") for case in cases
    ]
    assert result.packages["cupy"] and result.device["name"]


@pytest.mark.gpu
def test_random_inputs_on_the_gpu() -> None:
    device = timing.open_device("cuda")
    for dtype in ("float32", "float64"):
        x = device.random((100_000,), dtype, 3).get()
        assert x.min() >= -1 and x.max() < 2
        assert abs(x.mean() - 0.5) < 0.02
        assert np.unique(x).size > 90_000


@pytest.mark.gpu
def test_a_copy_on_the_gpu_takes_as_long_as_its_bytes() -> None:
    device = timing.open_device("cuda")
    big = timing.copy_bandwidth(device, 1 << 29, 5)
    half = timing.copy_bandwidth(device, 1 << 28, 5)
    assert big == pytest.approx(half, rel=0.5)
