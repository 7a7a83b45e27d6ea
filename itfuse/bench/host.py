"""Host time: what a call costs before the device has done anything, and what the first one costs.

Calls are queued in batches and the device is waited for between batches, never inside one.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

from itfuse.bench.case import LATENCY, Case
from itfuse.bench.result import ABSENT, FAILED, FUSED, OK, WRONG, Row, Settings
from itfuse.bench.timing import Device, Timing, timing_of

CALLS = 200
"""Calls of a batch: fewer than a stream's queue holds, so that no launch waits for the device."""

_FIRST = """
import json, sys, time
began = time.perf_counter()
import itfuse as itf
imported = time.perf_counter() - began
if sys.argv[1] == "cuda":
    import cupy as xp
else:
    import numpy as xp
x = xp.ones(1000, "float32")
x + x
wait = getattr(xp, "cuda", None)
began = time.perf_counter()
y = itf.maximum(itf.asarray(x) * 2 + 1, 0).compute()
if wait is not None:
    wait.Device().synchronize()
print(json.dumps({"import": imported, "first": time.perf_counter() - began}))
"""


def run_case(device: Device, case: Case, settings: Settings, peers: list[Any]) -> Row:
    """Check one case with each peer, then time its calls without waiting for the device."""
    from itfuse.bench import runner

    row = Row(case.name, case.meaning, OK, suite="latency", dtype=settings.dtype, kind=LATENCY,
              size=case.size)  # fmt: skip
    try:
        arrays = runner.arrays_of(device, case, case.size, settings, 0)
        want = runner.answer(device, case, arrays)
        refused: dict[str, str] = {}
        calls: dict[str, Any] = {}
        for peer in peers:
            if case.kind not in peer.kinds:
                continue
            why = runner.check(device, case, arrays, peer, want)
            if why:
                refused[peer.name] = why
            else:
                calls[peer.name] = peer.bind(case, arrays.inputs, arrays.out, device)
        why = refused.pop(FUSED, "")
        row = replace(row, peers=refused)
        if why:
            found = next((one for one in (WRONG, FAILED) if why.startswith(one)), ABSENT)
            row = replace(row, status=found, message=why.removeprefix(found).lstrip(": "))
        return replace(row, timings=batches(device, calls, settings.repeat))
    except Exception as why:  # whatever a library raises: this case failed, and the row says why
        return replace(row, status=FAILED, message=runner.first_line(why))


def batches(device: Device, calls: dict[str, Any], repeat: int) -> dict[str, Timing]:
    """Return seconds of a call, batch after batch, the calls in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(10):
            call()
    for _ in range(repeat):
        for name, call in calls.items():
            device.wait()
            gc.disable()
            try:
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                took = time.perf_counter() - start
            finally:
                gc.enable()
            seconds[name].append(took / CALLS)
    device.wait()
    return {n: timing_of(times, f"wall, {CALLS} calls") for n, times in seconds.items()}


def first_calls(device: Device, repeat: int = 3) -> list[Row]:
    """Return rows of the import and of first calls in new processes, the cache cold and warm."""
    cold: list[dict[str, float]] = []
    warm: list[dict[str, float]] = []
    try:
        for _ in range(repeat):
            with tempfile.TemporaryDirectory(prefix="itfuse-cold-") as folder:
                cold.append(_new_process(device.engine, folder))
                warm.append(_new_process(device.engine, folder))
    except (OSError, subprocess.SubprocessError, ValueError) as why:
        return [Row("first call, new process", "", FAILED, f"{type(why).__name__}: {why}",
                    suite="latency", kind=LATENCY)]  # fmt: skip
    rows = {
        "import itfuse": [one["import"] for one in (*cold, *warm)],
        "first call, cache cold": [one["first"] for one in cold],
        "first call, cache warm": [one["first"] for one in warm],
    }
    meaning = "np.maximum(2 * x + 1, 0) of 1000 elements, in a new process"
    return [
        Row(name, meaning, OK, suite="latency", kind=LATENCY, size=1000, dtype="float32",
            timings={FUSED: timing_of(times, "wall, new process")})
        for name, times in rows.items()
    ]  # fmt: skip


def _new_process(engine: str, folder: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST, engine],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "ITFUSE_CACHE_DIR": folder},
    )
    if done.returncode:
        raise ValueError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return dict(json.loads(done.stdout))
