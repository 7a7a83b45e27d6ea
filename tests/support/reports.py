"""Results of the benchmark as a run leaves them, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from itfuse.bench import timing
from itfuse.bench.case import Bar
from itfuse.bench.result import Report, Row, Settings
from itfuse.bench.timing import Timing


def row(case: str, seconds: float, suite: str, **more: Any) -> Row:
    """Return a row whose unfused time is three times that of itfuse."""
    times = {"itfuse": Timing(seconds, seconds, seconds, 0.01),
             "cupy": Timing(3 * seconds, seconds, seconds, 0.02),
             "copy": Timing(0.001, 0.001, 0.001)}  # fmt: skip
    values = {"passes": 1, "bytes_read": 1 << 20, "bytes_written": 4, "copy_bytes": 1 << 21,
              "sets": 2, "timings": times, "suite": suite, "dtype": "float32", "size": 1 << 18,
              "least_bytes": (1 << 20) + 4, "unfused_passes": 2, "unfused_bytes": 3 << 20,
              }  # fmt: skip
    return Row(case, "np.sum(x | <y>)", "ok", **{**values, **more})


def full(example: Report) -> Report:
    """Return a report with rows of every kind, beside several peers."""
    rows = [
        row("sum(abs(x))", 0.0005, "article",
            peers={"triton": "WRONG: element 3", "jax.jit": "no"}),
        *(row(f"relu(2x+1) at {n}", n * 1e-9, "sizes", size=n) for n in (1000, 10**5, 10**6)),
        *(row(f"{n} operations", n * 1e-4, "depth") for n in (2, 64)),
        row("host time of relu(2x+1)", 5e-6, "latency", kind="latency"),
        row("first gelu(x)", 0.04, "latency", kind="latency",
            timings={"itfuse": Timing(0.04, 0.04, 0.04, 0.0, 0.0, timing.NEW_PROCESS)}),
        *(row(f"softmax, rows of {n}", 1e-3, "rows") for n in (32, 1024, 4096)),
        row("argmax, rows of 1024", 1e-3, "rows"),
        Row("cumsum(x)", "np.cumsum(x)", "n/a", "itfuse has no cumsum", suite="scan",
            dtype="float32", timings={"cupy": Timing(0.1, 0.1, 0.1), "copy": Timing(1, 1, 1)},
            copy_bytes=100, least_bytes=100),
        Row("broken", "np.nan", "FAILED", "Error: <b>&amp;", suite="apps"),
    ]  # fmt: skip
    rows[0] = replace(rows[0], seconds=12.0, bars=(Bar(0.1), Bar(4.0, "cupy"), Bar(2.0, "torch")))
    settings = Settings(1 << 18, 1 << 18, "float32", 9, 7, ("article", "sizes"), ("all",))
    return replace(
        example, rows=rows, cases=[one.case for one in rows], engine="cuda", library="cupy",
        settings=settings, interrupted=False, notes=["a <note>"], clocks=["SM 1980 MHz"],
        ceilings={"copy": 3900.0, "read": 4200.0, "write": 3500.0}, absent={"torch": "not here"},
        packages={"itfuse": "0.1.0", "cupy": "14.2.0", "numpy": "2.4.6"},
    )  # fmt: skip
