"""Host time: what a call costs before the device has done anything.

Calls are queued in batches and the device is waited for between batches, never inside one.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import Any

from itfuse.bench.case import FUSED, LATENCY, Case
from itfuse.bench.result import ABSENT, FAILED, OK, WRONG, Row, Settings
from itfuse.bench.timing import Device, Timing, timing_of

CALLS = 200
"""Calls of a batch: fewer than a stream's queue holds, so that no launch waits for the device."""


def run_case(device: Device, case: Case, settings: Settings, peers: list[Any]) -> Row:
    """Check one case with each peer, then time its calls without waiting for the device."""
    from itfuse.bench import answers, runner

    row = Row(case.name, case.meaning, OK, suite="latency", dtype=settings.dtype, kind=LATENCY,
              size=case.size,
              bars=case.promises(device.engine, case.size, settings.dtype))  # fmt: skip
    try:
        arrays = answers.arrays_of(device, case, case.size, settings, 0)
        want = answers.answer(device, case, arrays)
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
