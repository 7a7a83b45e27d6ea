"""Host time: what a call costs before the device has done anything.

Calls are queued in batches and the device is waited for between batches, never inside one.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import Any

from itfuse.bench.case import LATENCY, Case
from itfuse.bench.result import FAILED, OK, Row, Settings
from itfuse.bench.schedule import suites_of
from itfuse.bench.timing import (
    CallFailed,
    Device,
    Timing,
    first_line,
    timing_of,
    without_failures,
)

CALLS = 200
"""Calls of a batch: fewer than a stream's queue holds, so that no launch waits for the device."""

_WARM_CALLS = 10


def run_case(device: Device, case: Case, settings: Settings, peers: list[Any]) -> Row:
    """Check one case with each peer, then time its calls without waiting for the device."""
    from itfuse.bench import answers, runner

    row = Row(case.name, case.meaning, OK, suite="latency", dtype=settings.dtype, kind=LATENCY,
              size=case.size, suites=suites_of(case, settings.suites),
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
            if not why:
                try:
                    calls[peer.name] = peer.bind(case, arrays.inputs, arrays.out, device)
                    continue
                except Exception as error:  # whatever a library raises: this peer failed
                    why = f"{FAILED}: {first_line(error)}"
            refused[peer.name] = why
        timings, failed = without_failures(
            calls, lambda some: batches(device, some, settings.repeat)
        )
        refused.update({name: f"{FAILED}: {why}" for name, why in failed.items()})
        return replace(runner.judged(row, refused), timings=timings)
    except Exception as why:  # whatever a library raises: this case failed, and the row says why
        return replace(row, status=FAILED, message=first_line(why))


def batches(device: Device, calls: dict[str, Any], repeat: int) -> dict[str, Timing]:
    """Return seconds of a call, batch after batch, the calls in turn.

    Raises
    ------
    CallFailed
        If one of them raises.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-1, repeat):
        for name, call in calls.items():
            device.wait()
            gc.disable()
            try:
                start = time.perf_counter()
                for _ in range(CALLS if turn >= 0 else _WARM_CALLS):
                    call()
                took = time.perf_counter() - start
            except Exception as why:
                raise CallFailed(name) from why
            finally:
                gc.enable()
            if turn >= 0:
                seconds[name].append(took / CALLS)
    device.wait()
    return {n: timing_of(times, f"wall, {CALLS} calls") for n, times in seconds.items()}
