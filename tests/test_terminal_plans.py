"""Passes and bytes of what ends a pipeline, as the cuda engine would run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import itfuse as itf

N = 1000


def keys() -> Any:
    return itf.spec((N,), "int32")


def table() -> Any:
    return itf.spec((10, 100), "int32")


def values() -> Any:
    return itf.spec((N,), "float32")


def offsets() -> Any:
    return itf.spec((11,), "int64")


SCAN = 4 * N  # each element once

# Case, passes, bytes read, bytes written.
CASES: dict[str, tuple[Callable[[], Any], int, int, int]] = {
    # the places, sorted beside the keys, and what is taken of both
    "topk": (lambda: itf.topk(keys(), 10), 4, 12 * N + 120, 20 * N + 120),
    "topk values": (lambda: itf.topk(keys(), 10)[0], 2, 4 * N + 40, 4 * N + 40),
    "topk of an expression": (lambda: itf.topk(keys() * 2, 10)[0], 3, 8 * N + 40, 8 * N + 40),
    "kthvalue": (lambda: itf.kthvalue(keys(), 3)[0], 2, 4 * N + 4, 4 * N + 4),
    "kthvalue and its index": (lambda: itf.kthvalue(keys(), 3), 4, 12 * N + 12, 20 * N + 12),
    "sort_by_key": (lambda: itf.sort_by_key(keys(), values()), 3, 24 * N, 24 * N),
    "nanmedian": (lambda: itf.nanmedian(values()), 4, 12 * N + 16, 8 * N + 12),
    "exclusive": (lambda: itf.scan(values() * 2, "sum", exclusive=True) / 3, 1, SCAN, SCAN),
    "reverse": (lambda: itf.scan(values(), "max", reverse=True), 1, SCAN, SCAN),
    "both": (lambda: itf.scan(values(), "min", reverse=True, exclusive=True), 1, SCAN, SCAN),
    "include_initial": (lambda: itf.cumulative_sum(values(), include_initial=True), 1, 4 * N,
                        4 * N + 4),
    "rows": (lambda: itf.scan(table(), "sum", 1, dtype="i4", exclusive=True), 1, SCAN, SCAN),
    "ufunc": (lambda: np.logaddexp.accumulate(values()), 1, SCAN, SCAN),
    "python operator": (lambda: itf.scan(values(), lambda a, b: a * 0 + b, identity=0), 1, SCAN,
                        SCAN),
    "segments": (lambda: itf.segment_sum(values() * 2, offsets()), 1, 4 * N + 88, 40),
    "segment_ids": (lambda: itf.segment_sum(values(), segment_ids=itf.spec((N,), "int64"),
                                            num_segments=10), 2, 4 * N + 968, 88 + 40),
    "segment_mean": (lambda: itf.segment_mean(values(), offsets()), 1, 4 * N + 88, 40),
    "histogram2d": (lambda: itf.histogram2d(values(), values(), bins=[np.linspace(0, 1, 5)] * 2)[0],
                    2, 8 * N + 2 * 40 + 128, 2 * 128),
    "histogramdd": (lambda: itf.histogramdd((values(), values(), values()), bins=(
        [np.array([0.0, 1, 2])] * 3))[0], 2, 12 * N + 3 * 24 + 64, 2 * 64),
    "bincount": (lambda: itf.bincount(keys() + 1, length=9), 1, 4 * N, 72),
    "select": (lambda: itf.select([values() > 1], [values()], 0.0), 1, 8 * N, 4 * N),
    "average": (lambda: itf.average(table(), 0, values()[:10], returned=True), 1, 4 * N + 40, 1600),
    "vector_norm": (lambda: itf.vector_norm(itf.spec((10, 10, 10), "float32"), axis=(0, 2)), 1,
                    4 * N, 40),
    "nanvar": (lambda: itf.nanvar(values()), 1, 4 * N, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_passes_and_bytes(name: str) -> None:
    make, *wanted = CASES[name]
    plan = itf.plan(make())
    assert [plan.passes, plan.bytes_read, plan.bytes_written] == wanted, plan
