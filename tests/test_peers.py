"""Peers of the benchmark: found, checked, refused; those that need a GPU by fakes and compilers."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import nvrtc, stub_driver

from itfuse.bench import gpu, host, peers, result, runner, start, timing, unfused
from itfuse.bench.cases import CASES, of_suite
from itfuse.bench.peers import (
    cuda_columns,
    cuda_compute,
    cuda_cpp,
    cuda_reduce,
    cuda_rows,
    cuda_scan,
    jax_jit,
    numexpr_peer,
    torch_peers,
    triton_peer,
)
from itfuse.bench.peers.base import NotForThis, Peer
from itfuse.bench.spaces import LAZY
from itfuse.errors import ConfigError

SETTINGS = result.Settings(3000, 3000, "float32", 2, 5)


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> timing.CpuDevice:
    monkeypatch.setattr(timing.CpuDevice, "ceiling_bytes", 1 << 20)
    return timing.CpuDevice()


class Fake(Peer):
    """A peer whose call is given."""

    engines = ("cpu",)

    def __init__(self, name: str, call: Callable[..., Any], why: str = "") -> None:
        self.name = name
        self._call = call
        self._why = why
        self.trimmed = 0

    def missing(self, device: Any) -> str:
        return self._why

    def bind(self, case: Any, inputs: Any, out: Any, device: Any) -> Callable[[], Any]:
        return lambda: self._call(*inputs)

    def trim(self) -> None:
        self.trimmed += 1


def with_own(*fakes: Peer) -> list[Peer]:
    return [peers.registry()["itfuse"], peers.registry()["numpy"], *fakes]


# ---- choosing ----
def test_peers_are_found_by_name() -> None:
    names = [peer.name for peer in peers.choose(["CuPy Kernel,jax.jit"])]
    assert names == ["itfuse", "cupy kernel", "jax.jit"]
    assert len(peers.choose([])) == len(peers.registry()) >= 14
    with pytest.raises(ConfigError, match=r"no peer 'tritn'; did you mean 'triton'\?"):
        peers.choose(["tritn"])


def test_gpu_peers_say_why_they_are_not_here(cpu: timing.CpuDevice) -> None:
    for peer in peers.registry().values():
        why = peer.missing(cpu)
        assert isinstance(why, str)
        if "cpu" not in peer.engines:
            assert why == "runs beside the cuda engine only"


# ---- checked before timed ----
def test_a_right_peer_is_timed_and_a_wrong_one_is_shown(cpu: timing.CpuDevice) -> None:
    right = Fake("right", lambda x, y: np.float32(np.dot(x, y)))
    wrong = Fake("wrong", lambda x, y: np.float32(np.dot(x, y) * 1.01))
    shape = Fake("shape", lambda x, y: x * y)
    many = Fake("many", lambda x, y: (x, y))

    def breaks(x: Any, y: Any) -> Any:
        raise MemoryError("no room\nat all")

    def refuses(x: Any, y: Any) -> Any:
        raise NotForThis("not for dots")

    given = with_own(right, wrong, shape, many, Fake("bad", breaks), Fake("none", refuses))
    row = runner.run_case(cpu, CASES["dot"], SETTINGS, given)
    assert row.status == "ok"
    assert list(row.timings) == ["itfuse", "numpy", "right", "copy"]
    assert row.peers["wrong"].startswith("WRONG: element 0 of 1 is ")
    assert row.peers["shape"].startswith("WRONG: its shape is ")
    assert row.peers["many"] == "WRONG: 2 results, and 1 unfused ones"
    assert row.peers["bad"] == "FAILED: MemoryError: no room"
    assert row.peers["none"] == "not for dots"
    assert set(row.failures) == {"wrong", "shape", "many", "bad"}
    assert right.trimmed == 2  # before the sets of arrays are made, and at the end


def test_a_peer_that_leaves_the_answer_unwritten_is_wrong(cpu: timing.CpuDevice) -> None:
    class Lazy(Fake):
        def bind(self, case: Any, inputs: Any, out: Any, device: Any) -> Callable[[], Any]:
            return lambda: out

    for name in ("relu(2x+1)", "relu(2x+1) int8"):
        row = runner.run_case(cpu, CASES[name], SETTINGS, with_own(Lazy("lazy", len)))
        assert row.peers["lazy"].startswith("WRONG"), name


def test_a_case_that_itfuse_does_not_have_is_shown_and_its_peers_are_timed(
    cpu: timing.CpuDevice,
) -> None:
    case = replace(CASES["mean"], fused=absent)
    row = runner.run_case(cpu, case, SETTINGS, with_own())
    assert (row.status, row.message) == ("n/a", "itfuse has no no_such_function")
    assert list(row.timings) == ["numpy", "copy"]


def absent(x: Any) -> Any:
    return LAZY.no_such_function(x)


def test_peers_that_cannot_run_are_named(cpu: timing.CpuDevice) -> None:
    given = with_own(Fake("away", len, "it is away"), Fake("here", lambda x: np.abs(x).sum()))
    cases = [CASES["sum(abs(x))"]]
    report = runner.start(cpu, cases, 3000, "float32", 2, suites=("article",), peers=given)
    runner.run(cpu, cases, report, peers=given)
    assert report.absent == {"away": "it is away"}
    assert "here" in report.rows[0].timings
    assert set(report.ceilings) == {"copy", "read", "write"}


def test_a_lost_device_ends_the_run_and_keeps_the_rows(
    cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_case = runner.run_case

    def dies(device: Any, case: Any, *rest: Any) -> Any:
        row = run_case(device, case, *rest)
        return replace(row, status="FAILED", message="gone") if case.name == "norm" else row

    monkeypatch.setattr(runner, "run_case", dies)
    monkeypatch.setattr(cpu, "lost", lambda: "CUDARuntimeError: the GPU has fallen off the bus")
    cases = [CASES[name] for name in ("dot", "norm", "mean")]
    report = runner.start(cpu, cases, 3000, "float32", 2)
    runner.run(cpu, cases, report)
    assert [row.case for row in report.rows] == ["dot", "norm"]
    assert report.interrupted and report.failed
    said = "stopped answering (CUDARuntimeError: the GPU has fallen off"
    assert any(said in note for note in report.notes)


def test_sizes_that_do_not_fit_are_scaled_down_once(cpu: timing.CpuDevice) -> None:
    cpu.most_size = 10_000
    cases = of_suite("sizes")
    report = runner.start(cpu, cases, None, "float32", 1, suites=("sizes",))
    runner.run(cpu, cases, report)
    assert {row.size for row in report.rows} == {1000, 10_000}
    assert len(report.rows) == 5  # and the plain sum
    assert any("left out" in note for note in report.notes)
    assert not report.interrupted and len(report.cases) == 5


# ---- counting, host time ----
def test_the_article_s_traffic() -> None:
    x = np.ones(1 << 10, "f4")
    assert unfused.count(CASES["sum(abs(x))"].form, (x,)) == (2, 3 * x.nbytes + 4)
    assert unfused.count(CASES["relu(2x+1)"].form, (x,))[0] == 3


def test_depth_counts_its_operations() -> None:
    x = np.ones(10, "f4")
    for case in of_suite("depth"):
        assert unfused.count(case.form, (x,))[0] == int(case.name.split()[0])


def test_host_time(cpu: timing.CpuDevice) -> None:
    case = of_suite("latency")[0]
    names = ["itfuse", "itfuse from arrays", "itf.fuse", "itf.fuse by keyword", "numpy"]
    for case in of_suite("latency"):
        chosen = [peer for name, peer in peers.registry().items() if name in names]
        row = host.run_case(cpu, case, SETTINGS, chosen)
        assert (row.status, row.peers) == ("ok", {}), row
        assert list(row.timings) == names
        assert row.timings["numpy"].median < row.timings["itfuse"].median < 0.1


@pytest.mark.slow
def test_new_processes_on_the_cpu() -> None:
    rows = start.rows("cpu", 1)
    assert [row.status for row in rows] == ["ok"] * 11, rows
    assert rows[0].case == "import itfuse" and not any(row.bars for row in rows)
    assert all(row.timings["itfuse"].median > 0 for row in rows)


def test_a_process_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_PROCESS", "raise SystemExit('no such thing')")
    (row,) = start.rows("cpu", 1)
    assert row.status == "FAILED" and "no such thing" in row.message


def found_of(strategy: str, cache: str, seconds: float, compilations: int) -> start.Start:
    times = {"relu(x * 2 + y)": seconds, "softmax of rows": seconds}
    compiling = dict.fromkeys(times, 0.2 if cache == "empty" else 0.0)
    return start.Start(strategy, cache, 0.1, times, compiling, compilations)


def test_the_bars_of_new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [found_of("tile", "empty", 0.4, 2), found_of("tile", "warm", 0.02, 1)]
    monkeypatch.setattr(start, "measure", lambda engine, repeat: made)
    rows = {row.case: row for row in start.rows("cuda", 1)}
    kept = {name: row.keeps(row.bars[0]) for name, row in rows.items() if row.bars}
    assert kept == {
        "first relu(x * 2 + y), warm cache, tile, cuda": False,
        "first softmax of rows, warm cache, tile, cuda": False,
        "compile relu(x * 2 + y), tile, cuda": False,  # 0.2 s, and 0.15 without collectives
        "compile softmax of rows, tile, cuda": True,
    }
    assert rows["warm cache, tile, cuda"].status == "FAILED"
    assert not any(row.bars for row in start.rows("null", 1))


def test_a_steady_measurement() -> None:
    assert timing.timing_of([1.0, 1.1, 1.0, 1.1]).steady
    drifting = timing.timing_of([1.0, 1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.2, 1.2])
    assert drifting.drift == pytest.approx(0.2 / 1.0, rel=0.01)
    assert timing.timing_of([1.0]).drift == 0


# ---- peers with libraries that are here ----
@pytest.mark.parametrize("peer", [jax_jit.Jit(), numexpr_peer.NumExpr()], ids=lambda p: p.name)
def test_a_library_that_is_here_is_right(peer: Peer, cpu: timing.CpuDevice) -> None:
    if why := peer.missing(cpu):
        pytest.skip(why)
    right = 0
    for case in CASES.values():
        if set(case.suites) & {"sizes", "latency", "cpu"} or case.kind != "bandwidth":
            continue
        arrays = runner.arrays_of(cpu, case, case.small, SETTINGS, 0)
        why = runner.check(cpu, case, arrays, peer)
        assert not why.startswith(("WRONG", "FAILED")), (case.name, why)
        right += not why
    assert right >= 2


def fake_torch() -> Any:
    """NumPy as if it were torch: enough to see how the forms call it."""
    fake = types.ModuleType("torch")
    names = ("abs", "exp", "log", "sqrt", "where", "square")
    values: dict[str, Any] = {name: getattr(np, name) for name in names}
    values |= {
        "is_tensor": lambda x: isinstance(x, np.ndarray),
        "clamp": lambda x, min: np.maximum(x, min),  # noqa: PLW0108 - a keyword
        "maximum": np.maximum,
        "sum": lambda x, dim=None: np.sum(x, axis=dim),
        "mean": lambda x, dim=None: np.mean(x, axis=dim),
        "var": lambda x, dim, correction: np.var(x, axis=dim, ddof=correction),
        "min": np.min, "max": np.max, "amax": lambda x, dim: np.max(x, axis=dim),
        "argmax": lambda x, dim: np.argmax(x, axis=dim),
        "argmin": lambda x, dim: np.argmin(x, axis=dim),
        "cumsum": lambda x, dim: np.cumsum(x, axis=dim),
        "erf": timing.reference.erf,
        "flip": lambda x, dims: np.flip(x, dims),  # noqa: PLW0108 - a keyword
        "from_dlpack": lambda x: x,
        "logsumexp": lambda x, dim: np.log(np.sum(np.exp(x), axis=dim)),
        "softmax": lambda x, dim: np.exp(x) / np.sum(np.exp(x), axis=dim, keepdims=True),
    }  # fmt: skip
    for name, value in values.items():
        setattr(fake, name, value)

    def layer_norm(x: Any, shape: Any, weight: Any, bias: Any) -> Any:
        assert shape == x.shape[-1:]
        apart = x - x.mean(-1, keepdims=True)
        return apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5) * weight + bias

    fake.nn = types.SimpleNamespace(functional=types.SimpleNamespace(layer_norm=layer_norm))
    return fake


def test_torch_s_forms(cpu: timing.CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", fake_torch())
    eager = torch_peers.Eager()
    monkeypatch.setattr(eager, "answer", lambda value, device: Peer.answer(eager, value, device))
    for case in CASES.values():
        if set(case.suites) & {"sizes", "dtypes", "latency"} or case.dynamic:
            continue
        arrays = runner.arrays_of(cpu, case, case.small, SETTINGS, 0)
        # torch's clone() is the one method that NumPy has under another name.
        if case.name != "stream copy":
            assert runner.check(cpu, case, arrays, eager) == "", case.name


# ---- what compilers say of the hand-written ones ----
def test_triton_s_sources_are_python() -> None:
    made = 0
    for case in CASES.values():
        try:
            text = triton_peer.source(case, len(case.inputs))
        except NotForThis:
            continue
        compile(text, case.name, "exec")
        made += 1
    assert made > 20


@pytest.mark.skipif(bool(nvrtc.why_not()), reason=nvrtc.why_not())
def test_hand_written_kernels_compile() -> None:
    done = set()
    for case in CASES.values():
        if case.kernel is None or (case.kernel, len(case.inputs)) in done:
            continue
        done.add((case.kernel, len(case.inputs)))
        if case.kernel.scan or case.kernel.keep:
            nvrtc.compile_cubin(cuda_scan.source(case.kernel), "sm_90")
        else:
            text = cuda_cpp.source(case.kernel, len(case.inputs), "float32")
            nvrtc.compile_cubin(text, "sm_80")
        if case.kernel.also:
            continue
        for zipped in (False, True):
            text = cuda_compute.source("op", case.kernel.map, len(case.inputs), "float64", zipped)
            nvrtc.compile_cubin(text, "sm_90")
    nvrtc.compile_cubin(gpu._KERNELS, "sm_90")
    for name in cuda_columns.COLUMNS:
        for threads in (16, 256):
            nvrtc.compile_cubin(cuda_columns.source(name, threads), "sm_90")
    for name in cuda_reduce.PROGRAMS:
        nvrtc.compile_cubin(cuda_reduce.source(name, 2), "sm_90")
    for name in cuda_rows.ROWS:
        nvrtc.compile_cubin(cuda_rows.source(name, 1024), "sm_120")
    for length in (3, 257, 20_001, 65_537):
        for name in ("softmax", "layernorm", "squares"):
            nvrtc.compile_cubin(cuda_rows.source(name, length), "sm_90")
    with pytest.raises(NotForThis, match="rows of 1001"):
        cuda_rows.source("max", 1001)


class HalfGpu(timing.CpuDevice):
    """A device whose library lacks an operation that NumPy has."""

    library = "cupy"

    def __init__(self) -> None:
        super().__init__()
        self.xp = timing.Library(self, timing.reference.erf)

    def __getattr__(self, name: str) -> Any:
        if name == "maximum":
            raise AttributeError(name)
        return getattr(np, name)


def test_numpy_answers_where_the_library_cannot() -> None:
    class Hosted(np.ndarray[Any, Any]):
        def get(self) -> Any:
            return self.view(np.ndarray)

    x = np.linspace(-1, 1, 11, dtype="f4")
    arrays = runner.Arrays((x.view(Hosted),), np.empty_like(x), np.empty_like(x))
    (got,) = runner.answer(HalfGpu(), CASES["relu(2x+1)"], arrays)
    np.testing.assert_array_equal(got, np.maximum(2 * x + 1, 0))


_BY_HAND = """
import numpy as np
import cuda.compute as cc
from itfuse.bench.cases import CASES
from itfuse.bench.peers.cuda_compute import Iterators, Pointers

class Built:
    def __init__(self, made):
        self.made = made

    def __call__(self, temp_storage=None, **given):  # a size, without the device that runs it
        assert temp_storage is None and given["num_items"] == 1000
        return 16

for name in ("make_unary_transform", "make_binary_transform", "make_reduce_into",
             "make_inclusive_scan", "make_select"):
    make = getattr(cc, name)
    setattr(cc, name, lambda make=make, **given: Built(make(**given, compute_capability=90)))

class Array:
    size, dtype, ndim, shape, nbytes = 1000, np.dtype("float32"), 1, (1000,), 4000
    __cuda_array_interface__ = {"shape": (1000,), "typestr": "<f4", "data": (4096, False),
                                "version": 3, "strides": None}

class Count(Array):
    dtype = np.dtype("int64")
    __cuda_array_interface__ = {**Array.__cuda_array_interface__, "typestr": "<i8", "shape": (1,)}

class Device:
    class cupy:
        class cuda:
            get_current_stream = None
        empty = staticmethod(lambda size, dtype: Array())
        empty_like = staticmethod(lambda x: Array())
        zeros = staticmethod(lambda size, dtype: Count())
    class device:
        compute_capability = "90"

names = {Pointers(): ("relu(2x+y)", "x[x>0]"),
         Iterators(): ("black-scholes", "sum(abs(x))", "cumsum(x*x)")}
for peer, some in names.items():
    for name in some:
        case = CASES[name]
        assert callable(peer.bind(case, (Array(),) * len(case.inputs), Array(), Device))
print("built")
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(stub_driver.why_not()), reason=stub_driver.why_not())
def test_cuda_compute_builds_without_a_gpu(tmp_path: Path) -> None:
    done = stub_driver.run_with_stub(_BY_HAND, tmp_path)
    assert done.stdout.strip().endswith("built"), done.stderr[-2000:]
