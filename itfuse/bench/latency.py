"""Host time of a call: what a fused function, an eager expression and CuPy itself cost to queue.

`python -m itfuse.bench.latency` measures on the GPU, or with NumPy where there is none. Calls are
queued in batches without waiting; the device works on a few thousand elements, so that the host is
what takes the time. All variants run in turn, and only ratios within one run are compared.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import itfuse as itf
from itfuse import engines

SIZE = 1024


@dataclass(frozen=True)
class Bar:
    """A promise: `case` takes at most `limit` times as long as `against`."""

    case: str
    against: str
    limit: float


@dataclass(frozen=True)
class Latency:
    """Microseconds of one call: over the batches."""

    case: str
    median: float
    lowest: float


BARS = (
    Bar("fused", "add", 0.85),
    Bar("fused, out=", "add, out=", 0.75),
    Bar("eager, 4 nodes", "fused", 4.0),
    Bar("eager from arrays", "fused", 4.0),
    Bar("fused sum", "sum", 1.0),
)


def cases(xp: Any) -> dict[str, Callable[[], object]]:
    """Return the calls to time, by name, over arrays of `xp` (CuPy or NumPy)."""
    x, y = (xp.asarray(np.linspace(k, k + 1, SIZE, dtype="f4")) for k in range(2))
    out = xp.empty_like(x)
    fused = itf.fuse(lambda x, y: x + y)
    axpy = itf.fuse(lambda x, y, a: a * x + y)
    total = itf.fuse(lambda x: x.sum())
    lazy: Any = itf.asarray(x)
    other: Any = itf.asarray(y)
    wrap: Any = itf.asarray
    return {
        # Each a whole call; a bound method made beforehand would be less.
        "add": lambda: xp.add(x, y),
        "add, out=": lambda: xp.add(x, y, out),
        "sum": lambda: x.sum(),  # noqa: PLW0108
        "fused": lambda: fused(x, y),
        "fused, out=": lambda: fused(x, y, out=out),
        "fused with a number": lambda: axpy(x, y, 2.0),
        "fused with keywords": lambda: axpy(x=x, y=y, a=2.0),
        "fused sum": lambda: total(x),
        "eager, 4 nodes": lambda: (lazy * 2 + other).compute(),  # noqa: PLW0108
        "eager from arrays": lambda: (wrap(x) * 2 + y).compute(),  # noqa: PLW0108
        "eager sum": lambda: lazy.sum().compute(),
    }


def measure(
    batches: int = 20, calls: int = 2000, library: str | None = None
) -> tuple[list[Latency], dict[str, float]]:
    """Time every case.

    Parameters
    ----------
    batches, calls : int
        Batches of each case, and calls in a batch.
    library : str, optional
        `cupy` or `numpy`; by default CuPy where the cuda engine can run.

    Returns
    -------
    latencies : list of Latency
        In the order of `cases`.
    ratios : dict of str to float
        For each of `BARS`, `"case / against"` -> ratio of the medians.
    """
    if library is None:
        usable = any(one.name == "cuda" and one.available for one in engines.available())
        library = "cupy" if usable else "numpy"
    if library == "cupy":
        import cupy as xp

        wait: Callable[[], object] = xp.cuda.Device().synchronize
    else:
        xp, wait = np, lambda: None
    calls_of = cases(xp)
    times: dict[str, list[float]] = {name: [] for name in calls_of}
    for call in calls_of.values():
        for _ in range(50):
            call()
    for _ in range(batches):
        for name, call in calls_of.items():
            wait()
            gc.disable()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
            gc.enable()
    wait()
    found = [Latency(name, statistics.median(all_), min(all_)) for name, all_ in times.items()]
    median = {one.case: one.median for one in found}
    ratios = {f"{bar.case} / {bar.against}": median[bar.case] / median[bar.against] for bar in BARS}
    return found, ratios


def table(found: list[Latency], ratios: dict[str, float]) -> str:
    """Return the figures as text."""
    lines = [f"{'call':24s} {'median us':>10s} {'lowest us':>10s}"]
    lines += [f"{one.case:24s} {one.median:10.2f} {one.lowest:10.2f}" for one in found]
    lines += ["", f"{'ratio':36s} {'found':>7s} {'bar':>6s}"]
    for bar, (name, ratio) in zip(BARS, ratios.items(), strict=True):
        verdict = "" if ratio <= bar.limit else "  MISSED"
        lines.append(f"{name:36s} {ratio:7.2f} {bar.limit:6.2f}{verdict}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; the exit status says nothing about the bars."""
    parser = argparse.ArgumentParser(prog="python -m itfuse.bench.latency", description=__doc__)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--library", choices=("cupy", "numpy"))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args(arguments)
    found, ratios = measure(given.batches, given.calls, given.library)
    print(table(found, ratios))
    if given.json is not None:
        figures = {"microseconds": [asdict(one) for one in found], "ratios": ratios,
                   "bars": [asdict(bar) for bar in BARS]}  # fmt: skip
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
