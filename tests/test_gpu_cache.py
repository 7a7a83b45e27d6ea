"""Code kept on disk and built ahead of time, on a real GPU: nothing is compiled twice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse import ahead, disk
from itfuse.bench import start
from itfuse.cache import BUILT
from itfuse.engines import READY
from itfuse.engines.cuda import nvml
from itfuse.testing import assert_same

pytestmark = pytest.mark.gpu

ROOT = Path(itf.__file__).parents[1]
HOST = np.linspace(-2, 2, 10_001, dtype="f4")
STRATEGIES = ("tile", "cub")


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(disk, "_attached", {})
    forget()
    yield
    forget()


def forget() -> None:
    BUILT.clear()
    READY.clear()


def compilations() -> int:
    from itfuse.engines.cuda.compile import Count

    return Count.compilations


def pair(x: Any, a: Any) -> tuple[Any, Any]:
    return itf.maximum(x * a, 0), abs(x).max()


def check(x: Any, host: Any) -> None:
    top, most = itf.compute(*pair(itf.asarray(x), 3.0))
    assert_same(top, np.maximum(host * np.float32(3), 0))
    assert_same(most, abs(host).max())


def test_the_architecture_is_the_same_for_nvml(cp: Any) -> None:
    found = {f"sm_{cp.cuda.Device(n).compute_capability}"
             for n in range(cp.cuda.runtime.getDeviceCount())}  # fmt: skip
    assert found <= set(nvml.architectures())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_kept_code_runs(cp: Any, tmp_path: Path, strategy: str) -> None:
    x = cp.asarray(HOST)
    with itf.config(cache_dir=tmp_path, strategy=strategy):
        check(x, HOST)
        check(x[1:], HOST[1:])  # not aligned
        assert disk.info().entries >= 2
        before = compilations()
        forget()
        check(x, HOST)
        check(x[1:], HOST[1:])
        assert compilations() == before
        # Each thread has its own object of cuda.compute, of the same code.
        failed: list[BaseException] = []

        def work() -> None:
            try:
                with itf.config(cache_dir=tmp_path, strategy=strategy):
                    for _ in range(20):
                        check(x, HOST)
            except BaseException as why:
                failed.append(why)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed


LOADED = """
import sys
import cupy as cp, numpy as np
sys.path.insert(0, sys.argv[3])
import itfuse as itf
from itfuse import disk
from test_gpu_cache import HOST, check, compilations

itf.load(sys.argv[1])
with itf.config(strategy=sys.argv[2], cache_dir="off"):
    x = cp.asarray(HOST)
    check(x, HOST)
    check(x[:77], HOST[:77])
    check(x[1:], HOST[1:])
print(compilations(), "cuda.core" in sys.modules)
"""


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_file_built_ahead_compiles_nothing(cp: Any, tmp_path: Path, strategy: str) -> None:
    file = tmp_path / "kernels.itf"
    arch = cp.cuda.Device().compute_capability
    with itf.config(strategy=strategy):
        ahead.build(pair, ["f4[n], float"], [arch, "120"], file)
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(file), strategy, str(Path(__file__).parent)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        )},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    count, compiler = done.stdout.split()
    assert count == "0"
    assert strategy == "cub" or compiler == "False"


def test_a_file_for_other_gpus_is_refused(cp: Any, tmp_path: Path) -> None:
    others = {"80", "90", "120"} - {arch[3:-1] + "0" for arch in nvml.architectures()}
    file = tmp_path / "kernels.itf"
    ahead.build(pair, ["f4[n], float"], [sorted(others)[0]], file)
    with pytest.raises(itf.CacheError, match="build it with --arch"):
        itf.load(file)


def test_a_warm_start(cp: Any) -> None:
    for one in start.measure("cuda"):
        assert (one.compilations == 0) == (one.cache == "warm"), one
        if one.cache == "warm":
            assert max(one.seconds.values()) < 10 * start.WARM, one  # the bar, and much noise
