"""First results of new processes: with an empty cache on disk, and with one that has everything.

A process for each strategy and cache times each pipeline from the expression to the result. What a
program pays once whatever it does is aside: the import of NumPy or CuPy, the CUDA context, the
engine. The null engine plans and compiles, and the result is that.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from itfuse.bench.case import FUSED, LATENCY, Bar
from itfuse.bench.result import FAILED, OK, Row
from itfuse.bench.schedule import STARTS
from itfuse.bench.timing import NEW_PROCESS, timing_of

WARM = 0.015
"""Seconds that a pipeline may take until its first result when everything is kept."""

COLD_ALONE, COLD = 0.15, 0.5
"""Seconds that a tile kernel may take to compile: an elementwise one, and any other."""

ALONE = ("relu(x * 2 + y)", "gelu(x)")
CACHES = ("empty", "warm")
SIZE = 1 << 20


@dataclass(frozen=True)
class Start:
    """What one process measured.

    Attributes
    ----------
    strategy : str
        `tile` or `cub`.
    cache : str
        `empty` or `warm`.
    imported : float
        Seconds of `import itfuse`, after NumPy's.
    seconds, compiling : dict of str to float
        For each pipeline: until its first result, and of that the compiler's share.
    compilations : int
        How often the process compiled.
    """

    strategy: str
    cache: str
    imported: float
    seconds: dict[str, float]
    compiling: dict[str, float]
    compilations: int


_PROCESS = """
import sys, time, numpy
began = time.perf_counter()
import itfuse
imported = time.perf_counter() - began
from itfuse.bench import start
start.child(*sys.argv[1:], imported)
"""


def child(strategy: str, engine: str, imported: float) -> None:
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
    if engine == "cuda":
        cupy = importlib.import_module("cupy")
        x, y = (itf.asarray(cupy.ones(SIZE, "f4") * k) for k in (1, 2))
        wait = cupy.cuda.Device().synchronize
        importlib.import_module("itfuse.engines").engine_for(x.device)
        if strategy == "cub":
            importlib.import_module("itfuse.engines.cuda.cub")
    elif engine == "null":
        x, y = (itf.spec((SIZE,), np.float32) for _ in range(2))
        itf.engines.engine_for("none")
    else:
        x, y = (itf.asarray(np.full(SIZE, k, np.float32)) for k in (1, 2))
    pipelines: dict[str, Callable[[], Any]] = {
        "relu(x * 2 + y)": lambda: itf.relu(x * 2 + y),
        "gelu(x)": lambda: 0.5 * x * (1 + itf.erf(x * 0.7071067811865476)),
        "sqrt(sum(x * x))": lambda: itf.sqrt((x * x).sum()),
        "max(abs(x - y))": lambda: abs(x - y).max(),
    }
    if strategy == "tile":
        pipelines["softmax of rows"] = lambda: itf.softmax(x.reshape(-1, 1024), axis=-1)
    times, compiling = {}, {}
    wait()
    with itf.config(strategy=strategy) if engine != "cpu" else contextlib.nullcontext():
        for name, expression in pipelines.items():
            before, start = compiler.Count.seconds, time.perf_counter()
            expression().compute(engine="auto" if engine == "cuda" else engine)
            wait()
            times[name] = time.perf_counter() - start
            compiling[name] = compiler.Count.seconds - before
    found = {"imported": imported, "seconds": times, "compiling": compiling,
             "compilations": compiler.Count.compilations}  # fmt: skip
    print(json.dumps(found))


def measure(engine: str, repeat: int = 1) -> list[Start]:
    """Start the processes and return what they measured; `cub` only where there is a GPU.

    One process before them is not counted: it reads files that the others find in memory.
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="itfuse-start-") as directory:
        _process("tile", CACHES[0], engine, directory)
    for strategy in ("tile", "cub") if engine == "cuda" else ("tile",):
        for _ in range(repeat):
            with tempfile.TemporaryDirectory(prefix="itfuse-start-") as directory:
                found += [_process(strategy, cache, engine, directory) for cache in CACHES]
    return found


def _process(strategy: str, cache: str, engine: str, directory: str) -> Start:
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, strategy, engine],
        env={**os.environ, "ITFUSE_CACHE_DIR": directory},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return Start(strategy, cache, **json.loads(done.stdout.splitlines()[-1]))


def rows(engine: str, repeat: int) -> list[Row]:
    """Return what new processes measured as rows of the suite `latency`.

    Parameters
    ----------
    engine : str
        `cuda`; `null`, which compiles and runs nothing; `cpu`, which compiles nothing.
    repeat : int
        Processes for each strategy and cache.
    """
    try:
        found = measure(engine, repeat)
    except (OSError, subprocess.SubprocessError, ValueError, RuntimeError) as why:
        text = f"{type(why).__name__}: {why}"
        return [Row(STARTS, "", FAILED, text, suite="latency",
                    kind=LATENCY)]  # fmt: skip
    bars = engine == "cuda"
    made = [_row("import itfuse", "in a new process", [one.imported for one in found])]
    for strategy in dict.fromkeys(one.strategy for one in found):
        empty, warm = (
            [one for one in found if (one.strategy, one.cache) == (strategy, cache)]
            for cache in CACHES
        )
        by = f"{strategy}, {engine}" if engine != "cpu" else engine
        for name in empty[0].seconds:
            times = [[one.seconds[name] for one in some] for some in (empty, warm)]
            limit = (Bar(WARM, ""),) if bars and strategy == "tile" else ()
            made.append(_row(f"first {name}, empty cache, {by}", name, times[0]))
            made.append(_row(f"first {name}, warm cache, {by}", name, times[1], limit))
            compiled = [one.compiling[name] for one in empty]
            if any(compiled) and strategy == "tile":
                most = COLD_ALONE if name in ALONE else COLD
                limit = (Bar(most, ""),) if bars else ()
                made.append(_row(f"compile {name}, {by}", name, compiled, limit))
        again = max(one.compilations for one in warm)
        if again:
            text = f"a process with a warm cache compiled {again} times"
            made.append(Row(f"warm cache, {by}", "", FAILED, text, suite="latency", kind=LATENCY))
    return made


def _row(name: str, meaning: str, seconds: list[float], bars: tuple[Bar, ...] = ()) -> Row:
    timings = {FUSED: timing_of(seconds, NEW_PROCESS)}
    return Row(name, meaning, OK, suite="latency", kind=LATENCY, size=SIZE, dtype="float32",
               timings=timings, bars=bars)  # fmt: skip
