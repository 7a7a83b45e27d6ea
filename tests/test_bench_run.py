"""What a run promises its reader: a failure hides nobody else, and every number comes again."""

from __future__ import annotations

import io
import json
import re
import shlex
import types
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from support import reports
from support.reports import row
from typer.testing import CliRunner

from itfuse.bench import (
    compare,
    counts,
    gpu,
    host,
    peers,
    report,
    result,
    runner,
    schedule,
    start,
    tables,
    timing,
)
from itfuse.bench.app import app
from itfuse.bench.cases import CASES, of_suite
from itfuse.bench.peers import cuda_cpp, cupy_fuse, cupy_kernels, launches, torch_peers
from itfuse.bench.peers.base import Peer
from itfuse.bench.result import Report, Settings
from itfuse.bench.timing import Timing

SMALL = Settings(3000, 3000, "float32", 2, 5)
SIZE = ("--engine", "cpu", "--size", "2**10", "--repeat", "2")


@pytest.fixture(autouse=True)
def small_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.CpuDevice, "ceiling_bytes", 1 << 20)


@pytest.fixture
def cpu() -> timing.CpuDevice:
    return timing.CpuDevice()


@pytest.fixture
def full(example: Report) -> Report:
    return reports.full(example)


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


class Tiring(Peer):
    """A peer that is right, and raises when it is called once too often."""

    engines = ("cpu",)

    def __init__(self, name: str, calls: int) -> None:
        self.name, self._left = name, calls

    def bind(self, case: Any, inputs: Any, out: Any, device: Any) -> Callable[[], Any]:
        def run() -> Any:
            self._left -= 1
            if self._left < 0:
                raise MemoryError("out of memory\nat address 0")
            return case.form(device.xp, *inputs)

        return run


# ---- names of kernels ----
def test_fused_kernels_have_names_that_cpp_knows(cpu: timing.CpuDevice) -> None:
    named: list[str] = []

    def fuse(kernel_name: str = "<lambda>") -> Callable[[Any], Any]:
        named.append(kernel_name)
        return lambda function: function

    gpu = types.SimpleNamespace(xp=cpu.xp, cupy=types.SimpleNamespace(fuse=fuse))
    peer = cupy_fuse.CuPyFuse()
    for case in of_suite("default"):
        arrays = runner.arrays_of(cpu, case, 100, SMALL, 0)
        assert peer.bind(case, arrays.inputs, arrays.out, gpu)() is not None
    assert set(named) == {cupy_fuse.KERNEL} and cupy_fuse.KERNEL.isidentifier()


def test_kernels_of_cupy_have_names_that_cpp_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy")
    named: list[str] = []
    for kind in ("ElementwiseKernel", "ReductionKernel"):
        monkeypatch.setattr(cupy, kind, lambda *given: named.append(given[-1]))
    cupy_kernels._build.cache_clear()
    for case in CASES.values():
        if case.kernel and not (case.kernel.scan or case.kernel.keep):
            cupy_kernels._build(case.kernel, len(case.inputs), 0)
    cupy_kernels._build.cache_clear()
    assert named and all(name.isidentifier() for name in named)


def test_cupy_fuse_itself_takes_the_name() -> None:
    cupy = pytest.importorskip("cupy")
    fused = cupy.fuse(kernel_name=cupy_fuse.KERNEL)(lambda x: x + 1)
    assert fused.name == cupy_fuse.KERNEL


# ---- kernels and bytes ----
def test_what_moves_is_said_where_it_is_known(cpu: timing.CpuDevice) -> None:
    some = [peers.registry()[name] for name in ("itfuse", "numpy")]
    found = runner.run_case(cpu, CASES["sum(abs(x))"], SMALL, [*some, Tiring("free", 99)])
    assert found.moved.pop("numpy") == pytest.approx(36_004, abs=8)  # counted small, scaled up
    assert found.moved == {"itfuse": 12_004, "copy": 24_000}
    assert found.kernels == {}


class Launching(timing.CpuDevice):
    """The CPU as if it launched kernels that can be counted."""

    engine = "cuda"
    library = "numpy"

    def launches(self, call: Callable[[], Any]) -> int:
        call()
        return 3


def test_kernels_are_counted_on_a_gpu(cpu: timing.CpuDevice) -> None:
    case = CASES["sum(abs(x))"]
    arrays = runner.arrays_of(cpu, case, 3000, SMALL, 0)
    good = [Tiring("three", 9), Tiring("tired", 0)]
    found = replace(row(case.name, 1.0, "article"), copy_bytes=8)
    assert counts.of_peers(Launching(), case, arrays, good, found) == ({"three": 3}, {"copy": 8})


class Stream:
    """A stream that captures, and refuses calls that wait for it."""

    capturing = False

    def __init__(self, non_blocking: bool) -> None:
        assert non_blocking

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *why: object) -> None:
        pass

    def synchronize(self) -> None:
        assert not self.capturing

    def begin_capture(self) -> None:
        Stream.capturing = True

    def end_capture(self) -> Any:
        Stream.capturing = False
        return types.SimpleNamespace(graph=7)


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Any:
    device = object.__new__(gpu.CudaDevice)
    device.cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(Stream=Stream))
    device.device = types.SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(launches, "kernels_of", lambda graph: graph)
    return device


def test_a_captured_call_has_room_for_its_results(capturing: Any) -> None:
    alive: list[weakref.ref[Any]] = []

    class Result:
        pass

    def one() -> Any:
        assert not any(old() for old in alive), "an array of the call before is still there"
        made = Result()
        alive.append(weakref.ref(made))
        return made

    assert capturing.launches(one) == 7 and len(alive) == 2


def test_a_call_that_waits_is_not_counted(capturing: Any) -> None:
    def waits() -> None:
        assert not Stream.capturing

    assert capturing.launches(waits) is None and not Stream.capturing


def test_the_kernels_of_a_graph_are_its_kernel_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime")
    ok, kind = runtime.cudaError_t.cudaSuccess, runtime.cudaGraphNodeType
    kinds = [kind.cudaGraphNodeTypeKernel, kind.cudaGraphNodeTypeMemset,
             kind.cudaGraphNodeTypeKernel]  # fmt: skip

    def nodes(graph: Any, count: int = 0) -> Any:
        assert int(graph) == 99
        return (ok, list(range(count)), count) if count else (ok, [], len(kinds))

    monkeypatch.setattr(runtime, "cudaGraphGetNodes", nodes)
    monkeypatch.setattr(runtime, "cudaGraphNodeGetType", lambda node: (ok, kinds[node]))
    assert launches.kernels_of(99) == 2
    bad = runtime.cudaError_t.cudaErrorInvalidValue
    monkeypatch.setattr(runtime, "cudaGraphGetNodes", lambda *given: (bad, [], 0))
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
        launches.kernels_of(99)


def test_calls_that_wait_are_counted_by_what_they_queue() -> None:
    queued: list[str] = []
    waiting = peers.base.Waiting(lambda: queued.append("kernel"), lambda: "kept")
    assert waiting() == "kept" and queued == ["kernel"]
    device = types.SimpleNamespace(launches=lambda call: call() or 1)
    assert cuda_cpp.ByHand().launches(CASES["x[x>0]"], (), waiting, device) == 1


def test_torch_says_nothing_where_it_cannot_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    def graph(keep_graph: bool) -> Any:
        raise TypeError("an older torch")

    cuda = types.SimpleNamespace(CUDAGraph=graph, synchronize=lambda: None)
    fake = types.SimpleNamespace(cuda=cuda)
    monkeypatch.setitem(__import__("sys").modules, "torch", fake)
    assert torch_peers.captured(len) is None


def test_the_article_s_table(full: Report) -> None:
    full = replace(full, rows=[replace(full.rows[0], kernels={"itfuse": 1, "cupy": 2},
                                       moved={"triton": 5})])  # fmt: skip
    own, cupy, triton = tables.lines(full.rows[0], full)
    names = tables.compared(full)[1:]
    assert dict(zip(names, own, strict=True))["x unfused"] == "3.00x"
    assert dict(zip(names, cupy, strict=True)) == {
        "by": "cupy", "kernels": "2", "moved": "3.00 MiB", "ms": "1.500", "spread": "2.0%",
        "GiB/s": "0.65", "of ceiling": "0.33", "vs itfuse": "3.00x", "x unfused": "1.00x",
    }  # fmt: skip
    assert triton == ["triton", "WRONG"]
    quiet = replace(full.rows[0], timings={**full.rows[0].timings, "torch": Timing(1, 1, 1)})
    assert tables.lines(quiet, full)[2][1:3] == ["-", "-"]  # nobody counted


# ---- a peer that fails while it is timed ----
def test_a_peer_that_fails_late_is_dropped_and_the_others_are_timed(cpu: timing.CpuDevice) -> None:
    some = [peers.registry()[name] for name in ("itfuse", "numpy")]
    found = runner.run_case(cpu, CASES["dot"], SMALL, [*some, Tiring("late", 4), Tiring("ok", 99)])
    assert found.status == "ok" and found.peers == {"late": "FAILED: MemoryError: out of memory"}
    assert list(found.timings) == ["itfuse", "numpy", "ok", "copy"]


def test_itfuse_failing_late_leaves_the_others(
    cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    tired = Tiring("itfuse", 3)
    found = runner.run_case(cpu, CASES["dot"], SMALL, [tired, peers.registry()["numpy"]])
    assert (found.status, found.message) == ("FAILED", "MemoryError: out of memory")
    assert list(found.timings) == ["numpy", "copy"]


def test_a_peer_that_cannot_bind_all_sets_is_dropped(cpu: timing.CpuDevice) -> None:
    class Full(Tiring):
        def bind(self, *given: Any) -> Any:
            self.bound = getattr(self, "bound", 0) + 1
            if self.bound > 3:  # two checks, and what is counted
                raise MemoryError("no room")
            return super().bind(*given)

    found = runner.run_case(
        cpu, CASES["dot"], SMALL, [peers.registry()["itfuse"], Full("full", 99)]
    )
    assert found.peers == {"full": "FAILED: MemoryError: no room"}
    assert "itfuse" in found.timings


def test_host_time_drops_who_fails_late(cpu: timing.CpuDevice) -> None:
    case = of_suite("latency")[0]
    some = [peers.registry()["itf.fuse"], Tiring("late", 300)]
    found = host.run_case(cpu, case, SMALL, some)
    assert found.peers == {"late": "FAILED: MemoryError: out of memory"}
    assert list(found.timings) == ["itf.fuse"]


# ---- suites ----
def test_a_case_of_two_suites_is_timed_once_and_shown_in_both(
    cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ("article", "reduce", "cpu")
    cases = [CASES["sum(abs(x))"], CASES["argmax"]]
    found = runner.start(cpu, cases, 1000, "float32", 1, suites=wanted)
    runner.run(cpu, cases, found)
    assert [one.case for one in found.rows] == ["sum(abs(x))", "argmax"]
    shown = {suite: [one.case for one in rows] for suite, rows in report.by_suite(found).items()}
    assert shown == {"article": ["sum(abs(x))"], "reduce": ["sum(abs(x))", "argmax"],
                     "cpu": ["sum(abs(x))"]}  # fmt: skip
    again = report.from_document(json.loads(report.json_text(found)))
    assert again == found
    rows = [replace(one, suite="cpu", suites=("cpu",)) for one in found.rows]
    alone = replace(found, settings=replace(found.settings, suites=("cpu",)), rows=rows)
    assert {one.verdict for one in compare.compare(found, alone, 100.0)} == {"same"}


def test_all_suites_on_the_cpu_show_every_case_of_cpu() -> None:
    suites = tuple(name for name in ("article", "elementwise", "reduce", "rows", "columns", "cpu"))
    for case in of_suite("cpu"):
        assert "cpu" in schedule.suites_of(case, suites)


def test_plain_bench_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("numexpr")
    found = call("bench", *SIZE, "--json", str(tmp_path / "r.json"))
    assert found.exit_code == 0, found.output
    saved = json.loads((tmp_path / "r.json").read_text())
    assert saved["settings"]["suites"] == ["cpu"]
    assert saved["settings"]["peers"] == ["itfuse", "numpy", "numexpr"]
    assert {one["case"] for one in saved["rows"]} == {case.name for case in of_suite("cpu")}
    assert sum("numexpr" in one["timings"] for one in saved["rows"]) >= 6


def test_plain_bench_without_numexpr_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    numexpr = peers.registry()["numexpr"]
    monkeypatch.setattr(numexpr, "missing", lambda device: "numexpr is not installed")
    found = call("bench", *SIZE, "--budget", "0.5")
    assert found.exit_code == 0
    assert "without numexpr: numexpr is not installed" in found.output
    assert "--suite cpu --peer itfuse,numpy --size" in found.output


# ---- the command printed under a result ----
@pytest.mark.parametrize("options", [
    (), ("--suite", "default"), ("--case", "min, max", "--case", "dot"), ("--suite", "article"),
    ("--suite", "scan", "--peer", "numpy", "--quick"), ("--suite", "cpu", "--budget", "0.3"),
    ("--case", "dot", "--seed", "7"), ("--suite", "article", "--peer", "all"),
])  # fmt: skip
def test_the_printed_command_runs_the_same_again(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, Any]] = []

    def run(device: Any, chosen: Any, found: Report, *rest: Any, **more: Any) -> None:
        compared = rest[1] if len(rest) > 1 else None
        seen.append((found.settings, [case.name for case in chosen], compared))
        found.rows.append(result.Row("dot", "", "ok"))

    monkeypatch.setattr(runner, "run", run)
    first = call("bench", *SIZE, *options)
    assert first.exit_code == 0, first.output
    (line,) = re.findall(r"^again: (.+)$", first.output, re.MULTILINE)
    assert "--suite " in line and "--peer " in line and "--seed " in line
    again = call(*shlex.split(line)[1:])
    assert again.exit_code == 0, again.output
    assert seen[0] == seen[1]


def test_the_unfused_library_is_always_timed() -> None:
    found = call("bench", *SIZE, "--suite", "article", "--peer", "torch")
    assert "numpy" in found.output and "without torch: runs beside the cuda engine only" in (
        found.output
    )
    assert found.exit_code == 1  # who was asked for by name cannot run here
    assert call("bench", *SIZE, "--suite", "article").exit_code == 0


def test_names_with_commas_are_told_apart() -> None:
    found = call("bench", *SIZE, "--case", "min; maxx")
    assert found.exit_code == 2
    words = " ".join(found.output.replace("│", " ").split())
    assert "did you mean 'min, max'?" in words and "'mean, var, min, max, dot'" in words


@pytest.mark.parametrize("name", ["html", "csv", "markdown", "json"])
def test_rows_are_saved_before_the_next_case_in_every_form(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"r.{name}"
    run_case = runner.run_case
    seen: list[bool] = []

    def look(device: Any, case: Any, *rest: Any) -> Any:
        seen.append(path.exists() and "sum(abs(x))" in path.read_text())
        return run_case(device, case, *rest)

    monkeypatch.setattr(runner, "run_case", look)
    options = ("--case", "sum(abs(x))", "--case", "dot", f"--{name}", str(path))
    assert call("bench", *SIZE, *options).exit_code == 0
    assert seen == [False, True]


# ---- on a terminal ----
@pytest.mark.parametrize("width", [80, 120])
def test_every_number_is_read_on_a_narrow_terminal(width: int, full: Report) -> None:
    long = {"itfuse": Timing(1.2345, 1, 2), "cupy": Timing(12.345, 1, 2),
            "cuda.compute iterator": Timing(1.2345, 1, 2), "copy": Timing(1, 1, 1)}  # fmt: skip
    wide = row("mean, var, min, max, dot and more of them", 1.0, "reduce", timings=long,
               kernels=dict.fromkeys(long, 12), moved={"cuda.compute iterator": 1023 << 20},
               bytes_read=1 << 40, copy_bytes=4000 << 30, least_bytes=4000 << 30)  # fmt: skip
    full = replace(full, rows=[*full.rows, wide])
    console = report.terminal()
    text = io.StringIO()
    console.file, console.width = text, width
    tables.print_compared([wide], full, console)
    tables.print_plain(replace(full, rows=[wide]), console)
    said = text.getvalue()
    assert all(cell_len(line.rstrip()) <= width for line in said.splitlines()), said
    for line in tables.lines(wide, full):
        assert line[0] in said
        for at, one in enumerate(line[1:], 1):
            assert one in said or tables.compared(full)[1 + at] == "spread"
    assert "\u2026" not in said


def test_the_bar_begins_with_the_first_case_and_ends_full(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    class Bar:
        def __init__(self, *columns: Any, **options: Any) -> None:
            drawn.append("made")

        def add_task(self, text: str, total: int) -> int:
            return 0

        def start(self) -> None:
            drawn.append("start")

        def stop(self) -> None:
            drawn.append("stop")

        def update(self, task: int, **values: Any) -> None:
            drawn.append(f"{values['completed']} of {values['total']}")

    monkeypatch.setattr(report, "Progress", Bar)
    left = [3]
    with report.progress(lambda: left[0]) as began:
        assert drawn == ["made"]  # what is printed now stays
        began(CASES["dot"])
        left[0] = 2  # one was left out
        began(CASES["mean"])
    assert drawn == ["made", "start", "0 of 3", "1 of 2", "2 of 2", "stop"]


# ---- comparing ----
def test_other_sizes_are_not_compared(full: Report, tmp_path: Path) -> None:
    other = [replace(one, size=one.size * 2) for one in full.rows]
    files = []
    for name, rows in (("a", full.rows), ("b", other), ("c", [full.rows[0], *other[1:]])):
        path = tmp_path / f"{name}.json"
        path.write_text(report.json_text(replace(full, rows=rows)))
        files.append(str(path))
    none = call("bench", "compare", files[0], files[1])
    assert none.exit_code == 2 and "no timed case of the same size in common" in none.output
    some = call("bench", "compare", files[0], files[2])
    assert some.exit_code == 0, some.output
    assert "not compared, since their sizes differ: " in some.output and "1 same" in some.output


# ---- new processes ----
def test_a_first_process_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[str] = []

    def process(strategy: str, cache: str, engine: str, directory: str) -> start.Start:
        caches.append(cache)
        return start.Start(strategy, cache, float(len(caches)), {"f": 1.0}, {"f": 0.0}, 0)

    monkeypatch.setattr(start, "_process", process)
    found = start.measure("cpu", 2)
    assert caches == ["empty", "empty", "warm", "empty", "warm"]
    assert [one.imported for one in found] == [2.0, 3.0, 4.0, 5.0]


def test_new_processes_do_not_say_what_ran_beside(cpu: timing.CpuDevice, full: Report) -> None:
    shaky = Timing(1.0, 0.5, 2.0, 0.01, drift=0.5, method=timing.NEW_PROCESS)
    found = replace(full, rows=[replace(full.rows[0], timings={"itfuse": shaky})], notes=[])
    runner.remark(cpu, found)
    assert not any("ran beside" in note for note in found.notes)
    also = replace(found.rows[0], timings={"itfuse": replace(shaky, method="wall")})
    runner.remark(cpu, replace(found, rows=[also]))
    assert any("ran beside" in note for note in found.notes)


# ---- time ----
def test_estimates_learn_from_what_cases_took(
    cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(schedule.time, "monotonic", lambda: now[0])
    cases = of_suite("scan")
    settings = replace(SMALL, suites=("scan",), budget=10.0)
    made = schedule.Schedule(cases, [], cpu, settings)
    cost = schedule.estimate(cases[0], [], cpu, settings)
    now[0] = 10.0 - 2 * schedule.estimate(cases[1], [], cpu, settings)
    made.may_begin(cases[0].name)
    assert made.may_begin(cases[1].name)
    made.took(cases[0].name, 3 * cost)  # three times as long as was thought
    assert not made.may_begin(cases[1].name)


# ---- pictures ----
def test_the_roofline_says_what_it_knows(full: Report) -> None:
    from itfuse.bench import charts

    (chart,) = [one for one in charts.charts(full) if one.key.startswith("roofline")]
    assert isinstance(chart, charts.Curves)
    assert "not known" in chart.title and not chart.limits
    texts = [text for points in chart.series.values() for *_, text in points]
    assert any(" at 1000" in text for text in texts) and any("64 op" in text for text in texts)
    known = charts.charts(replace(full, arithmetic=33.5e12))[-1]
    assert isinstance(known, charts.Curves) and known.limits == {"float32 lanes": 33500.0}


# ---- on a GPU ----
@pytest.mark.gpu
def test_kernels_and_bytes_on_the_gpu() -> None:
    device = timing.open_device("cuda")
    names = ["cupy", "cupy.fuse", "cupy kernel", "CUDA C++"]
    settings = replace(SMALL, size=1 << 20, repeat=3)
    for case, operations in (("relu(2x+1)", 3), ("sum(abs(x))", 2)):
        found = runner.run_case(device, CASES[case], settings, peers.choose(names))
        assert found.status == "ok" and not found.failures, found
        assert found.kernels["itfuse"] == found.kernels["CUDA C++"] == 1
        assert found.kernels["cupy"] >= operations
        assert found.moved["CUDA C++"] == found.least_bytes == found.bytes_moved
        assert found.moved["cupy"] > 2 * found.least_bytes


@pytest.mark.gpu
def test_every_peer_that_is_here_says_what_it_launches() -> None:
    device = timing.open_device("cuda")
    here = [peer for peer in peers.registry().values() if not peer.missing(device)]
    settings = replace(SMALL, size=1 << 22, repeat=3)
    found = runner.run_case(device, CASES["sum(abs(x))"], settings, here)
    timed = {name for name in found.timings if name != "copy"}
    assert timed == set(found.kernels), found
    assert device.arithmetic() == 0 or device.arithmetic() > 1e12


@pytest.mark.gpu
@pytest.mark.parametrize("suite", ["scan", "select", "reduce", "rows", "columns", "apps"])
def test_hand_written_kernels_on_the_gpu(suite: str) -> None:
    device = timing.open_device("cuda")
    some, settings = peers.choose(["CUDA C++"]), replace(SMALL, size=1 << 22, repeat=3)
    written = [case for case in of_suite(suite) if some[-1].may_have(case)]
    assert written
    for case in written:
        found = runner.run_case(device, case, settings, some)
        assert not found.failures, found
