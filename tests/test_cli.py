"""The command line: options, messages, exit codes."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import itfuse as itf
from itfuse import engines
from itfuse.bench import cases, runner, timing
from itfuse.bench.app import app


@pytest.fixture(autouse=True)
def small_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.CpuDevice, "ceiling_bytes", 1 << 20)


QUICK = ["bench", "--engine", "cpu", "--size", "2**10", "--repeat", "2"]
DEFAULT = [*QUICK, "--suite", "default", "--peer", "numpy"]


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_version() -> None:
    result = python("-m", "itfuse", "--version")
    assert (result.returncode, result.stdout) == (0, f"itfuse {itf.__version__}\n")


def test_help_is_quick() -> None:
    code = (
        "import sys\nfrom itfuse.cli import main\nsys.argv = ['itfuse', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "slow = {'rich.table', 'rich.progress', 'cupy', 'cuda', 'itfuse.bench.runner'}\n"
        "assert not slow & set(sys.modules), slow & set(sys.modules)\n"
    )
    result = python("-c", code)
    assert result.returncode == 0, result.stderr
    for command in ("bench", "doctor"):
        assert command in result.stdout
    for option in ("--size", "--dtype", "--case", "--repeat", "--json", "--engine"):
        assert option in call("bench", "--help").output


@pytest.mark.parametrize("library", ["rich", "typer"])
def test_a_missing_library_is_explained(library: str) -> None:
    code = (
        f"import sys\nsys.modules[{library!r}] = None\nfrom itfuse.cli import main\n"
        "sys.argv = ['itfuse', 'doctor']\nmain()"
    )
    result = python("-c", code)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert library in result.stderr and "pip install 'itfuse[bench]'" in result.stderr


def test_bench() -> None:
    result = call(*DEFAULT)
    assert result.exit_code == 0, result.output
    assert "cpu engine on" in result.output and "1024 float32"
    assert all(case.name in result.output for case in cases.of_suite("default"))
    assert "ceiling:" in result.output and "WRONG" not in result.output


def test_bench_saves(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    result = call(*QUICK, "--case", "norm", "--case", "dot", "--json", str(path))
    assert result.exit_code == 0, result.output
    saved = json.loads(path.read_text())
    assert [row["case"] for row in saved["rows"]] == ["dot", "norm"]
    assert saved["complete"] and saved["settings"]["size"] == 1024


def test_json_to_standard_output() -> None:
    result = python("-m", "itfuse", *QUICK, "--dtype", "float64", "--case", "mean", "--json", "-")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["settings"]["dtype"] == "float64"
    assert "mean" in result.stderr and "speed-up" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "'0' is no size"),
        (["--size", "many"], "'many' is no size"),
        (["--case", "dott"], "did you mean 'dot'?"),
        (["--dtype", "int8"], "'float32', 'float64'"),
        (["--engine", "tpu"], "'auto', 'cuda', 'cpu'"),
        (["--repeat", "0"], "--repeat"),
        (["--json", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
        (["--json", "/"], "/ is a folder"),
        (["--html", "/no/such/folder/x.html"], "there is no folder /no/such/folder"),
        (["--csv", "/"], "/ is a folder"),
        (["--suite", "rovs"], "did you mean 'rows'?"),
        (["--suite", "article", "--peer", "torch.compil"], "did you mean 'torch.compile'?"),
        (["--save-plot", "x.bmp"], ".png, .svg or .pdf"),
        (["--save-plot", "-"], "a picture needs a file"),
        (["--json", "-", "--csv", "-"], "only one result can be printed"),
        (["--speed"], "No such option"),
    ],
)
def test_bad_options(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run", lambda *_: pytest.fail("ran"))
    result = call("bench", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_no_gpu_is_explained() -> None:
    cuda = next(status for status in engines.available() if status.name == "cuda")
    if cuda.available:
        pytest.skip("there is a GPU")
    result = call("bench", "--engine", "cuda")
    assert result.exit_code == 2
    assert " ".join(cuda.reason.split()) in " ".join(result.output.split())


def test_a_wrong_case_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(cases.CASES["dot"], fused=lambda x, y: (x * y).sum() * 1.01)
    monkeypatch.setitem(cases.CASES, "dot", wrong)
    path = tmp_path / "r.json"
    result = call(*QUICK, "--case", "dot", "--case", "mean", "--json", str(path))
    assert result.exit_code == 1
    assert "WRONG dot differs from the unfused answer" in result.output
    assert [row["status"] for row in json.loads(path.read_text())["rows"]] == ["WRONG", "ok"]


def test_a_result_that_cannot_be_saved_is_still_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    run = runner.run

    def run_and_lose_the_folder(*arguments: Any, **named: Any) -> None:
        run(*arguments, **named)
        folder.rmdir()

    monkeypatch.setattr(runner, "run", run_and_lose_the_folder)
    result = call(*QUICK, "--case", "dot", "--json", str(folder / "r.json"))
    assert result.exit_code == 1
    assert "speed-up" in result.output and "cannot write" in result.output


@pytest.mark.slow
def test_ctrl_c_saves_and_exits_130(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    command = [sys.executable, "-m", "itfuse", "bench", "--engine", "cpu", "--size", "1Mi",
               "--repeat", "10000", "--json", str(path)]  # fmt: skip
    # A job in the background of a shell ignores the signal, and so would its children.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, preexec_fn=heed) as process:  # noqa: PLW1509
        assert process.stdout is not None
        assert "cpu engine" in process.stdout.readline()  # printed just before the first case
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130
    assert "interrupted: 0 of 17 cases ran" in rest
    assert json.loads(path.read_text())["complete"] is False


def test_doctor_prints_reasons_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    status = engines.EngineStatus("cuda", False, "no CuPy; pip install 'itfuse[cu13]'", {"a": "b"})
    monkeypatch.setattr(engines, "available", lambda: (status,))
    result = call("doctor")
    assert "not available: no CuPy; pip install 'itfuse[cu13]'" in result.output


def test_doctor() -> None:
    result = call("doctor")
    assert result.exit_code == 0, result.output
    for word in ("packages", "numpy", "cuda-cccl", "nvrtc", "engines", "null", "cache", "GiB/s"):
        assert word in result.output
    cuda = next(status for status in engines.available() if status.name == "cuda")
    if not cuda.available:
        assert " ".join(cuda.reason.split()) in " ".join(result.output.split())
