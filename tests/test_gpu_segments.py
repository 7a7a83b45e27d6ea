"""Segments on a real GPU, judged by the CPU engine: bits, balance, and nothing outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_gpu import on_gpu
from test_segments import RNG, device_cases, mixed, offsets_of, same, values

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.plan.order import LARGE, LEAF

pytestmark = pytest.mark.gpu


def test_the_cases_of_the_host(cp: Any) -> None:
    for asked in device_cases():
        for lazy, got in zip(asked, _together(asked, cp), strict=True):
            same(got.get(), lazy.compute(), lazy)


def _together(asked: tuple[itf.Array, ...], cp: Any) -> tuple[Any, ...]:
    """Compute expressions over device copies of their arrays, in one plan."""
    copies: dict[Any, Any] = {}

    def moved(one: itf.Array) -> itf.Array:
        for node, x in one._data.items():
            copies.setdefault(node, cp.asarray(x))
        return on_gpu(itf.Array(one._node, {n: copies[n] for n in one._data}, one.device), cp)

    found = itf.compute(*map(moved, asked))
    return found if len(asked) > 1 else (found,)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("strategy", ["tile", "cub"])
def test_both_strategies(dtype: str, strategy: str, cp: Any) -> None:
    offsets = mixed(200 * LEAF + 5)
    x = values(int(offsets[-1]), "float32").astype(dtype)
    for op in ("sum", "min", "max"):
        if dtype.startswith("complex") and op != "sum":
            continue
        if strategy == "cub" and x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
            continue  # it combines in float32: an epilogue, which CUB has not
        lazy = itf.segment_reduce(x, op, offsets)
        want = lazy.compute()
        with itf.config(strategy=strategy):
            got = on_gpu(lazy, cp).compute().get()
        if strategy == "tile" or want.dtype.kind in "biu":
            same(got, want, op)
        else:
            bound = 1e-10 if want.dtype.itemsize // (1 + (want.dtype.kind == "c")) == 8 else 1e-4
            np.testing.assert_allclose(got, want, rtol=bound, atol=bound * 100)


MIXES = {
    "one giant": [100_000_000],
    "giant and tiny": [3, 0, 100_000_000, *[2] * 1_000_000, 0, 7],
    "tiny and giant": [*[1] * 3_000_001, 20_000_000, 1],
    "of one element": [1] * 10_000_000,
    "empty": [0] * 20_000_000,
    "of a leaf, one less, one more": [LEAF, LEAF - 1, LEAF + 1, 2 * LEAF] * 300,
    "larger leaves": [5, LARGE - 1, 5, LARGE, 5, LARGE + 1],
    "of 129 and 1025": [129, 1025, 128, 1024] * 5000,
}


@pytest.mark.parametrize("mix", MIXES)
def test_any_mix_of_lengths_twenty_times(mix: str, cp: Any) -> None:
    offsets = offsets_of(MIXES[mix])
    x = RNG.standard_normal(int(offsets[-1]), dtype=np.float32)
    want = itf.segment_sum(x, offsets).compute()
    device, bounds = cp.asarray(x), cp.asarray(offsets)
    for _ in range(20):
        same(itf.segment_sum(device, bounds).compute().get(), want, mix)


def test_streams_graphs_and_a_reused_memory(cp: Any) -> None:
    offsets = mixed(300 * LEAF)
    x = values(int(offsets[-1]), "float32")
    want = itf.segment_sum(x * x, offsets).compute()
    device, bounds = cp.asarray(x), cp.asarray(offsets)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    cp.cuda.Device().synchronize()
    found = []
    for number in range(40):
        with streams[number % 4]:
            found.append(itf.segment_sum(itf.asarray(device) * device, bounds).compute())
            cp.full(1 << 16, 77, "u4")  # what the next launch's counters may lie in
    cp.cuda.Device().synchronize()
    for one in found:
        same(one.get(), want)


def test_offsets_are_not_trusted(cp: Any) -> None:
    x = values(1_000_000, "float64")
    wild = np.concatenate([[-(2**62), -1], np.sort(RNG.integers(0, x.size, 5000)), [2**62, 2**62]])
    lazy = itf.segment_sum(x, wild)
    same(on_gpu(lazy, cp).compute().get(), lazy.compute())
    for dtype in ("int32", "uint32", "int64"):
        lazy = itf.segment_mean(x, np.sort(RNG.integers(0, x.size, 5000)).astype(dtype))
        same(on_gpu(lazy, cp).compute().get(), lazy.compute())
    # Falling ones have no defined results, and do no harm to what comes after.
    fall = cp.asarray(RNG.integers(-10, 2 * x.size, 100_000))
    itf.segment_sum(cp.asarray(x), fall).compute()
    offsets = mixed()
    after = itf.segment_sum(x[: offsets[-1]], offsets)
    same(on_gpu(after, cp).compute().get(), after.compute())


def test_more_than_two_to_the_31(cp: Any) -> None:
    if cp.cuda.Device().mem_info[0] < 8 << 30:
        pytest.skip("not enough memory")
    n = (1 << 31) + 77
    x = cp.ones(n, "int8")
    offsets = cp.asarray(np.array([0, 5, (1 << 31) + 3, n]))
    got = itf.segment_sum(x, offsets, dtype="int32").compute().get()
    assert got.tolist() == [5, (1 << 31) - 2 - (1 << 32) if (1 << 31) - 2 > 2**31 - 1
                            else (1 << 31) - 2, 74]  # fmt: skip
    many = itf.segment_sum(cp.arange(9.0), cp.full((1 << 31) // 8, 3, "int32")).compute()
    assert not bool(many.any())
