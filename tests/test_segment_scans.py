"""Scans that begin anew in every segment: NumPy's answer, one pass, and the kernel on the host."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support import host_cpp, nvrtc
from support.generated import HostEngine, plan_for
from test_segments import RNG, offsets_of, same, values

import itfuse as itf
from itfuse.lower import lower_tile

LENGTHS = [3, 0, 1, 9000, 0, 8192, 1, 40_000, *RNG.integers(0, 40, 300)]
OFFSETS = offsets_of(LENGTHS)
N = int(OFFSETS[-1])
IDS = np.repeat(np.arange(len(LENGTHS)), LENGTHS)


def scanned(ufunc: Any, x: Any, neutral: Any, exclusive: bool, reverse: bool) -> Any:
    """Scan segment after segment."""
    found = np.empty_like(x)
    for a, b in itertools.pairwise(OFFSETS):
        part = x[a:b][::-1] if reverse else x[a:b]
        one = ufunc.accumulate(part) if part.size else part
        if exclusive and part.size:
            one = np.concatenate([[neutral], one[:-1]]).astype(x.dtype)
        found[a:b] = one[::-1] if reverse else one
    return found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_like_numpy(exclusive: bool, reverse: bool) -> None:
    whole = RNG.integers(-50, 50, N)
    how = {"exclusive": exclusive, "reverse": reverse}
    for op, ufunc, x in (("sum", np.add, whole), ("max", np.maximum, values(N, "float32")),
                         ("any", np.logical_or, whole > 48)):  # fmt: skip
        neutral = {"sum": 0, "max": -np.inf, "any": False}[op]
        want = scanned(ufunc, x, neutral, exclusive, reverse)
        same(itf.segment_scan(x, op, OFFSETS, **how).compute(), want, op)
        same(itf.segment_scan(x, op, segment_ids=IDS, **how).compute(), want, op)
    got = itf.segment_scan(abs(whole), np.gcd, OFFSETS, identity=0, **how).compute()
    same(got, scanned(np.gcd, abs(whole), 0, exclusive, reverse))


def test_floats_do_not_leak_from_one_segment_to_the_next() -> None:
    x = values(N, "float32")
    x[OFFSETS[4] - 1] = np.inf  # the last of a long segment
    got = itf.segment_scan(x, "sum", OFFSETS).compute()
    assert np.flatnonzero(~np.isfinite(got)).tolist() == [OFFSETS[4] - 1]
    x[OFFSETS[4] - 1] = 0
    want = scanned(np.add, x.astype("f8"), 0, False, False)
    np.testing.assert_allclose(itf.segment_scan(x, "sum", OFFSETS).compute(), want, atol=1e-3)
    # What no offset names is a segment by itself.
    three = itf.segment_scan(np.ones(6), "sum", [2, 4]).compute()
    assert three.tolist() == [1, 2, 1, 2, 1, 2]
    assert itf.segment_scan(np.ones(0), "sum", [0]).compute().shape == (0,)


def test_passes_and_errors() -> None:
    x, ids = itf.spec((1 << 20,), "float32"), itf.spec((1 << 20,), "int64")
    plan = itf.plan(itf.segment_scan(x * x, "sum", segment_ids=ids) / 3)
    assert (plan.passes, plan.bytes_written) == (1, 4 << 20)
    assert plan.bytes_read == 12 << 20  # the ids once, although an element reads two
    assert itf.plan(itf.segment_scan(x, "sum", itf.spec((9,), "int64"))).passes == 3
    for call, words in (
        (lambda: itf.segment_scan(x, "mode", [0]), "no reduction"),
        (lambda: itf.segment_scan(x, "sum"), "either"),
        (lambda: itf.segment_scan(x, "sum", segment_ids=ids[1:]), "ids have the shape"),
        (lambda: itf.segment_scan(itf.spec((2, 2), "int8"), "sum", [0]), "ravel"),
    ):
        with pytest.raises(itf.ItfuseError, match=words):
            call()


def device_cases() -> list[itf.Array]:
    ids, offsets = itf.asarray(IDS), itf.asarray(OFFSETS)
    made = []
    for dtype in ("float32", "float64", "float16", "int16", "complex64"):
        x = itf.asarray(values(N, dtype))
        made.append(itf.segment_scan(x, "sum", segment_ids=ids))
        made.append(itf.segment_scan(x * x, "prod", offsets, reverse=True, exclusive=True) + x)
    return made


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")
def test_generated_code_on_the_host() -> None:
    cases = device_cases()
    plans = [plan_for("tile", one) for one in cases]
    engine = HostEngine(plans)
    for one, plan in zip(cases, plans, strict=True):
        got, want = engine.run(plan, one)[0], one.compute()
        if want.dtype.kind == "c":  # complex products differ by the compiler's contraction
            np.testing.assert_allclose(got, want, rtol=1e-4)
        else:
            same(got, want, one)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_kernels_compile(arch: str) -> None:
    nvrtc.require()
    x, ids = itf.spec((1 << 20,), "float32"), itf.spec((1 << 20,), "int64")
    for one in (itf.segment_scan(x * x, "sum", segment_ids=ids),
                itf.segment_scan(x, "max", itf.spec((9,), "int64"))):  # fmt: skip
        stage = plan_for("tile", one).stages[-1]
        _, report = nvrtc.compile_cubin(lower_tile(stage, "k", True, arch).source, arch)
        assert report.spilled == 0


@pytest.mark.gpu
def test_on_a_gpu(cp: Any) -> None:
    from test_gpu import on_gpu

    for one in device_cases():
        got, want = on_gpu(one, cp).compute().get(), one.compute()
        if want.dtype.kind == "c":
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
        else:
            same(got, want, one)
    x, ids = cp.asarray(values(10_000_000, "float32")), cp.arange(10_000_000) // 1000
    found = {itf.segment_scan(x, "sum", segment_ids=ids).compute().tobytes() for _ in range(20)}
    assert len(found) == 1
