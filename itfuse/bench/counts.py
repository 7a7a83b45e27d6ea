"""What is known of a call beside its time: passes, kernels launched, bytes moved."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from itfuse.bench import unfused
from itfuse.bench.answers import Arrays
from itfuse.bench.case import COPY, FUSED, Case
from itfuse.bench.peers import NotForThis, Peer
from itfuse.bench.peers.own import plan
from itfuse.bench.result import Row
from itfuse.bench.timing import Device
from itfuse.dtypes import as_dtype


def plan_numbers(case: Case, arrays: Arrays) -> dict[str, int]:
    """Return passes and bytes of itfuse's plan; nothing where it has no such case."""
    try:
        made = plan(case, arrays.inputs)
    except NotForThis:
        return {}
    return {
        "passes": made.passes,
        "bytes_read": made.bytes_read,
        "bytes_written": made.bytes_written,
    }


def unfused_numbers(case: Case, size: int, dtype: str) -> dict[str, int]:
    """Return what the unfused library would move, counted small and scaled up."""
    few = 4 * case.small
    try:
        arrays = tuple(np.ones(shape, as_dtype(dtype, "")) for shape in case.shapes(few))
        if case.prepare:
            arrays = case.prepare(np, *arrays)
        passes, nbytes = unfused.count(case.form, arrays)
    except Exception:  # NumPy has no such operation in this dtype: nothing is claimed
        return {}
    return {"unfused_passes": passes, "unfused_bytes": round(nbytes * size / few)}


def of_peers(
    device: Device, case: Case, arrays: Arrays, peers: list[Peer], row: Row
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the kernels that each peer launches, and the bytes that it moves, where known.

    Parameters
    ----------
    device : Device
        Where they run.
    case : Case
        What they compute.
    arrays : Arrays
        Those that are timed.
    peers : list of Peer
        Those whose answers are right.
    row : Row
        With the plan's numbers and the unfused library's.
    """
    kernels: dict[str, int] = {}
    moved: dict[str, int] = {COPY: row.copy_bytes}
    known = {FUSED: row.bytes_moved, device.library: row.unfused_bytes}
    for peer in peers:
        with suppress(Exception):  # what a library does not tell is not known, and no failure
            call = peer.bind(case, arrays.inputs, arrays.out, device)
            if device.engine == "cuda":
                call()
                launched = peer.launches(case, arrays.inputs, call, device)
                if launched:
                    kernels[peer.name] = launched
        with suppress(Exception):
            found: Any = known.get(peer.name)
            found = found or peer.moves(case, arrays.inputs, row.least_bytes)
            if found:
                moved[peer.name] = int(found)
    return kernels, moved
