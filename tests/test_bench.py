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
from itfuse.bench import check, machine, options, report, result, runner, timing
from itfuse.bench import peers as runner_peers
from itfuse.bench.case import BANDWIDTH, Case
from itfuse.bench.cases import CASES, SUITES, chosen, of_suite, select, suites
from itfuse.bench.peers.base import NotForThis
from itfuse.bench.peers.own import expressions
from itfuse.bench.result import Report, Row, Settings
from itfuse.bench.spaces import LAZY
from itfuse.errors import ConfigError

SMALL = Settings(size=3000, asked_size=3000, dtype="float32", repeat=2, seed=5)


DEFAULT = of_suite("default")
TIMED = [case for case in CASES.values() if case.kind == BANDWIDTH]


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> timing.CpuDevice:
    monkeypatch.setattr(timing.CpuDevice, "ceiling_bytes", 1 << 20)
    return timing.CpuDevice()


def arrays_of(device: Any, case: Case, dtype: str = "float32") -> Any:
    return runner.arrays_of(device, case, 3000, replace(SMALL, dtype=dtype), 0)


def check_own(device: Any, case: Case, arrays: Any) -> str:
    return runner.check(device, case, arrays, runner.registry()["itfuse"])


def own(case: Case) -> Callable[..., Any]:
    return case.fused or (lambda *lazy: case.form(LAZY, *lazy))


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layernorm(x: Any, w: Any, b: Any) -> Any:
    spread = x.var(axis=-1, keepdims=True)
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(spread + 1e-5) * w + b


# ---- the table ----
@pytest.mark.parametrize("case", TIMED, ids=lambda case: case.name)
def test_every_form_of_a_case_is_its_meaning(case: Case, cpu: timing.CpuDevice) -> None:
    settings = replace(SMALL, dtype="float64")
    arrays = runner.arrays_of(cpu, case, case.small, settings, 0)
    names = dict(zip("xyzw", arrays.inputs, strict=False))
    helpers = {"np": np, "erf": reference.erf, "softmax": softmax, "layernorm": layernorm}
    with np.errstate(all="ignore"):
        want = eval(case.meaning, {**helpers, **names})
        wants = want if isinstance(want, tuple) else (want,)
        got = runner.answer(cpu, case, arrays)
    for one, other in zip(got, wants, strict=True):
        tolerance = 1e-2 if one.dtype.itemsize < 4 else 1e-11
        np.testing.assert_allclose(
            np.asarray(one).astype(complex), np.asarray(other).astype(complex),
            rtol=tolerance, atol=tolerance,
        )  # fmt: skip
    try:
        lazy = expressions(case, arrays.inputs)
    except NotForThis:
        assert case.suites in (("scan",), ("select",))  # what the library does not have yet
        return
    plan = itf.plan(*lazy)
    least = sum(x.nbytes for x in (*arrays.inputs, *got))
    if any("do not stay on chip" in str(note) for note in plan.notes):
        assert plan.passes <= 3 and case.inputs[0][1] > 65_536
    elif "[::2]" in case.name:  # of the lines that are read whole the plan counts what is used
        assert plan.passes == 1 and plan.bytes_moved < least
    elif "select" in case.suites:  # data decide how much; the plan has a bound, and the count
        assert plan.passes == 1 and least <= plan.bytes_moved <= 2 * arrays.inputs[0].nbytes + 8
    else:
        assert plan.passes == 1 and plan.bytes_moved == least


def test_every_suite_has_cases_and_every_case_a_suite() -> None:
    assert all(of_suite(name) for name in SUITES)
    assert all(set(case.suites) <= set(SUITES) and case.suites for case in CASES.values())
    assert len(DEFAULT) == 8


def test_suites_are_found_by_name() -> None:
    assert suites(["rows, Article", "scan"]) == ["article", "rows", "scan"]
    assert "default" not in suites(["all"])
    with pytest.raises(ConfigError, match=r"no suite 'artcle'; did you mean 'article'\?"):
        suites(["artcle"])
    assert chosen([], ["article", "default"])[0].name == "sum(abs(x))"
    assert len(chosen([], ["article", "default"])) == 8
    assert [case.name for case in chosen(["dot"], ["article"])] == ["dot"]


def test_the_issue_s_cases_are_there() -> None:
    assert {"sum(abs(x))", "relu(2x+1)", "relu(2x+y)", "relu(x*y+z)", "gelu(x+b)", "dot", "norm",
            "mean"} <= set(CASES)  # fmt: skip


def test_cases_are_found_by_name() -> None:
    assert select([]) == DEFAULT
    assert [case.name for case in select(["MEAN", "relu(x*y + z)"])] == ["relu(x*y+z)", "mean"]
    with pytest.raises(ConfigError, match=r"no case 'nrm'; did you mean 'norm'\?"):
        select(["nrm"])
    with pytest.raises(ConfigError, match=r"no case '!!!'; there are 'sum"):
        select(["!!!"])


# ---- the checker ----
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", DEFAULT, ids=lambda case: case.name)
def test_the_checker_passes_every_case(case: Case, dtype: str, cpu: timing.CpuDevice) -> None:
    assert check_own(cpu, case, arrays_of(cpu, case, dtype)) == ""


@pytest.mark.parametrize("case", DEFAULT, ids=lambda case: case.name)
def test_the_checker_refuses_a_wrong_answer(case: Case, cpu: timing.CpuDevice) -> None:
    wrong = replace(case, fused=lambda *inputs: own(case)(*inputs) * 1.0001)
    assert "unfused answer" in check_own(cpu, wrong, arrays_of(cpu, wrong))


@pytest.mark.parametrize("name", ["sum(abs(x))", "dot", "norm", "mean"])
def test_the_checker_sees_one_lost_element(name: str, cpu: timing.CpuDevice) -> None:
    case = CASES[name]
    arrays = arrays_of(cpu, case)
    lossy = replace(
        case,
        fused=own(case),
        form=lambda F, *inputs, out=None: case.form(F, *(np.delete(x, 1000) for x in inputs)),
    )
    arrays.inputs[0][1000] = 1.5
    assert check_own(cpu, case, arrays) == ""
    assert "unfused answer" in check_own(cpu, lossy, arrays)


def test_what_was_not_written_is_wrong(cpu: timing.CpuDevice) -> None:
    want = np.ones(5, "f4")
    got = want.copy()
    got[3] = np.nan
    assert check.difference(np, got, want, 100) == (
        "element 3 of 5 is nan, and the unfused answer 1.0"
    )
    assert check.difference(np, want, got, 100) != ""
    assert check.difference(np, want, want, 0) == ""


def test_differences_are_found_past_the_first_block() -> None:
    want = np.zeros(check._BLOCK + 10, "f4")
    got = want.copy()
    got[-1] = 1
    assert check.difference(np, got, want, 1).startswith(f"element {want.size - 1} of")


# ---- running ----
def test_a_row_has_the_plan_s_numbers(cpu: timing.CpuDevice) -> None:
    row = runner.run_case(cpu, CASES["relu(2x+y)"], SMALL)
    assert row.status == result.OK, row.message
    assert (row.passes, row.bytes_read, row.bytes_written) == (1, 24000, 12000)
    assert row.copy_bytes == 24000
    assert set(row.timings) == {"itfuse", "numpy", "copy"}
    for one in row.timings.values():
        assert 0 < one.lowest <= one.median <= one.highest
    assert row.share == pytest.approx(row.gib_per_s / row.copy_gib_per_s)


def test_a_selection_counts_what_it_kept(cpu: timing.CpuDevice) -> None:
    row = runner.run_case(cpu, CASES["x[x>0]"], SMALL)
    assert row.timed and row.bytes_read == 4 * 3000
    assert 0.6 * 12_000 < row.bytes_written < 0.75 * 12_000  # two thirds of [-1, 2) are kept
    assert row.bytes_moved == row.least_bytes


def test_a_wrong_case_is_not_timed(cpu: timing.CpuDevice) -> None:
    wrong = replace(CASES["dot"], fused=lambda x, y: (x * y).sum() + 1)
    row = runner.run_case(cpu, wrong, SMALL)
    assert (row.status, row.timings) == (result.WRONG, {})
    assert "element 0 of 1" in row.message


def test_a_failing_case_is_a_row(cpu: timing.CpuDevice) -> None:
    def broken(x: Any, y: Any) -> Any:
        raise MemoryError("no room\nat all")

    row = runner.run_case(cpu, replace(CASES["dot"], fused=broken), SMALL)
    assert (row.status, row.message) == (result.FAILED, "MemoryError: no room")


def test_ctrl_c_keeps_what_ran(cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    run_case = runner.run_case

    def interrupted(device: Any, case: Case, *rest: Any) -> Row:
        if case.name == "norm":
            raise KeyboardInterrupt
        return run_case(device, case, *rest)

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
    assert runner._sets(cpu, case, 1, "float32") == runner.MOST_SETS
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
                            "packages", "settings", "ceiling", "rows", "notes", "ceilings",
                            "clocks", "absent", "lost", "arithmetic", "command"]  # fmt: skip
    assert set(values["settings"]) == {"size", "asked_size", "dtype", "repeat", "seed", "cases",
                                       "suites", "peers", "named", "quick", "budget"}  # fmt: skip
    assert values["ceiling"]["gib_per_s"] == pytest.approx(7.8125)
    assert set(values["rows"][0]) == {
        "case", "meaning", "status", "message", "passes", "bytes_read", "bytes_written",
        "copy_bytes", "sets", "timings", "bytes_moved", "gib_per_s", "copy_gib_per_s",
        "share_of_ceiling", "speed_up", "suite", "dtype", "kind", "size", "least_bytes",
        "unfused_passes", "unfused_bytes", "peers", "bars", "seconds", "suites", "kernels", "moved",
    }  # fmt: skip
    assert values["rows"][0]["speed_up"] == pytest.approx(5)
    assert values["rows"][0]["timings"]["itfuse"] == {
        "median": 0.002, "lowest": 0.0019, "highest": 0.003, "spread": 0.0, "drift": 0.0,
        "method": "",
    }  # fmt: skip
    assert "speed_up" not in values["rows"][1]


def test_a_document_reads_back(example: Report) -> None:
    assert report.from_document(json.loads(json.dumps(report.document(example)))) == example
    with pytest.raises(ConfigError, match="format 99"):
        report.from_document({"format": 99})
    with pytest.raises(ConfigError, match="format None"):
        report.from_document([1])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="damaged result: KeyError: 'settings'"):
        report.from_document({"format": 2})


def test_results_of_the_first_format_are_read() -> None:
    old = Path(__file__).parent.parent / "benchmarks" / "results" / "h200.json"
    found = report.load(str(old))
    assert found.rows[0].suite == "default" and found.rows[0].gib_per_s > 1000


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
    cases = DEFAULT
    result = runner.start(device, cases, 1 << 20, dtype, 3)
    runner.run(device, cases, result)
    assert [(row.case, row.status, row.message) for row in result.rows] == [
        (case.name, "ok", "") for case in cases
    ]
    assert result.packages["cupy"] and result.device["name"]


_STARTS = ("import", "first", "compile")


@pytest.mark.gpu
@pytest.mark.parametrize("suite", [name for name in SUITES if name != "cpu"])
def test_every_suite_on_the_gpu(suite: str) -> None:
    """Each suite small, beside every peer that is here: nothing of itfuse is wrong or fails."""
    device = timing.open_device("cuda")
    device.most_size = 1 << 20
    cases = [case for case in of_suite(suite) if case.size <= 1 << 20 and not case.extra]
    peers = runner_peers.choose([])
    found = runner.start(device, cases, 1 << 20, "float32", 3, suites=(suite,), peers=peers)
    runner.run(device, cases, found, peers=peers)
    assert not found.lost and not found.interrupted
    bad = [(row.case, row.status, row.message) for row in found.rows if row.status == "FAILED"]
    bad += [(row.case, row.status, row.message) for row in found.rows if row.status == "WRONG"]
    assert not bad
    faults = {(row.case, name): why for row in found.rows for name, why in row.failures.items()}
    ours = ("cupy kernel", "CUDA C++", "cuda.compute", "cuda.compute iterator", "itf.fuse",
            "itf.fuse by keyword", "itfuse from arrays")  # fmt: skip
    assert not {at: why for at, why in faults.items() if at[1] in ours}
    timed = [row for row in found.rows if row.timings]
    assert timed and all("cupy" in row.timings or row.case.startswith(_STARTS)
                         or "cupy" in row.peers for row in timed)  # fmt: skip


@pytest.mark.gpu
def test_small_calls_are_replayed_from_a_graph() -> None:
    device = timing.open_device("cuda")
    row = runner.run_case(device, CASES["relu(2x+1)"], replace(SMALL, size=1 << 16, repeat=3))
    assert row.timings["itfuse"].method.startswith("graph of "), row
    assert row.timings["itfuse"].median < 1e-4


@pytest.mark.gpu
def test_ceilings_on_the_gpu() -> None:
    device = timing.open_device("cuda")
    found = device.ceilings(1 << 28, 5)
    assert set(found) == {"copy", "read", "write"} and min(found.values()) > 1e11
    assert device.lost() == ""


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
