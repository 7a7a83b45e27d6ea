"""First results of a new process: with an empty cache on disk, and with one that has everything.

`python -m itfuse.bench.start` starts a process for each strategy and cache, and times each pipeline
from the expression to the finished result. What a program pays once whatever it does is aside:
imports, the CUDA context, the engine. Where there is no GPU the null engine plans and compiles, and
the result is that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BAR = 15.0
"""Milliseconds that a pipeline may take until its first result when everything is kept."""


@dataclass(frozen=True)
class Start:
    """What one process measured.

    Attributes
    ----------
    strategy : str
        `tile` or `cub`.
    cache : str
        `empty` or `warm`.
    milliseconds : dict of str to float
        For each pipeline.
    compilations : int
        How often the process compiled.
    """

    strategy: str
    cache: str
    milliseconds: dict[str, float]
    compilations: int


def child(strategy: str, gpu: bool) -> None:
    """Measure in this process, and print the figures as JSON."""
    import importlib
    import time

    import numpy as np

    import itfuse as itf

    importlib.import_module("importlib.metadata")
    compiler = importlib.import_module("itfuse.engines.cuda.compile")
    wait: Callable[[], object] = lambda: None  # noqa: E731
    x: Any
    y: Any
    if gpu:
        cupy = importlib.import_module("cupy")
        x, y = (itf.asarray(cupy.ones(1 << 20, "f4") * k) for k in (1, 2))
        wait = cupy.cuda.Device().synchronize
        importlib.import_module("itfuse.engines").engine_for(x.device)
        if strategy == "cub":
            importlib.import_module("itfuse.engines.cuda.cub")
    else:
        x, y = (itf.spec((1 << 20,), np.float32) for _ in range(2))
        itf.engines.engine_for("none")
    engine = "auto" if gpu else "null"
    pipelines: dict[str, Callable[[], Any]] = {
        "relu(x * 2 + y)": lambda: itf.relu(x * 2 + y),
        "gelu(x)": lambda: 0.5 * x * (1 + itf.erf(x * 0.7071067811865476)),
        "sqrt(sum(x * x))": lambda: itf.sqrt((x * x).sum()),
        "max(abs(x - y))": lambda: abs(x - y).max(),
    }
    times = {}
    wait()
    with itf.config(strategy=strategy):
        for name, expression in pipelines.items():
            start = time.perf_counter()
            expression().compute(engine=engine)
            wait()
            times[name] = (time.perf_counter() - start) * 1e3
    print(json.dumps({"milliseconds": times, "compilations": compiler.Count.compilations}))


def measure(gpu: bool) -> list[Start]:
    """Start the processes and return what they measured; `cub` only where there is a GPU."""
    found = []
    for strategy in ("tile", "cub") if gpu else ("tile",):
        with tempfile.TemporaryDirectory() as directory:
            for cache in ("empty", "warm"):
                command = [sys.executable, "-m", __spec__.name, "--child", strategy]
                done = subprocess.run(
                    [*command, "--gpu"] if gpu else command,
                    env={**os.environ, "ITFUSE_CACHE_DIR": directory},
                    stdout=subprocess.PIPE,
                    check=True,
                )
                found.append(Start(strategy, cache, **json.loads(done.stdout)))
    return found


def table(found: list[Start]) -> str:
    """Return the figures as text."""
    lines = [f"{'pipeline':20s} {'strategy':9s} {'empty ms':>10s} {'warm ms':>9s} {'bar':>6s}"]
    for empty, warm in zip(found[::2], found[1::2], strict=True):
        for name, time in empty.milliseconds.items():
            after = warm.milliseconds[name]
            lines.append(
                f"{name:20s} {empty.strategy:9s} {time:10.1f} {after:9.2f} {BAR:6.1f}"
                + ("" if after <= BAR else "  MISSED")
            )
        lines.append(
            f"{'compilations':20s} {empty.strategy:9s} {empty.compilations:10d} "
            f"{warm.compilations:9d} {0:6d}" + ("  MISSED" if warm.compilations else "")
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; the exit status says nothing about the bar."""
    from itfuse import engines

    parser = argparse.ArgumentParser(prog="python -m itfuse.bench.start", description=__doc__)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--gpu", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args(arguments)
    if given.child:
        child(given.child, given.gpu)
        return 0
    gpu = any(one.name == "cuda" and one.available for one in engines.available())
    found = measure(gpu)
    print(table(found))
    if given.json is not None:
        figures = {"engine": "cuda" if gpu else "null", "starts": [asdict(one) for one in found],
                   "bar": BAR}  # fmt: skip
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
