"""Selection on a GPU: NumPy's answers from one launch, and no memory kept behind small results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_select

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.testing import assert_same

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("text", test_select.CASES)
def test_numpy_means_the_same(cp: Any, text: str) -> None:
    arrays = {"x": test_select.X, "i": test_select.I, "v": test_select.V}
    want = test_select.evaluated(text, **arrays, xp=np)
    space = type("xp", (), {name: getattr(itf, name) for name in itf.__all__})
    space.asarray = staticmethod(lambda one: itf.asarray(cp.asarray(one)))
    lazy = {name: itf.asarray(cp.asarray(one)) for name, one in arrays.items()}
    got = test_select.evaluated(text, **lazy, xp=space)
    for ours, theirs in zip(got, want, strict=True):
        assert_same(ours.compute(), np.asarray(theirs), what=text)


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 131_072, 1_000_003, (1 << 24) + 77])
def test_sizes_and_shares(cp: Any, size: int) -> None:
    x = np.random.default_rng(size).random(size, "f4")
    lazy = itf.asarray(cp.asarray(x))
    for share in (0.0, 0.001, 0.03, 0.5, 0.97, 2.0):
        assert_same(lazy[lazy < share].compute(), x[x < share], what=f"{size} {share}")
    other = lazy[1:][lazy[1:] < 0.5]  # not aligned
    assert_same(other.compute(), x[1:][x[1:] < 0.5])


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_dtype(cp: Any, dtype: str) -> None:
    x = np.random.default_rng(3).integers(0, 2, 100_003).astype(dtype)
    lazy = itf.asarray(cp.asarray(x))
    assert_same(lazy[lazy != 0].compute(), x[x != 0])
    assert_same(itf.flatnonzero(lazy).compute(), np.flatnonzero(x))


def test_partition_and_runs(cp: Any) -> None:
    x = np.random.default_rng(4).integers(0, 1000, 3_000_017)
    lazy = itf.asarray(cp.asarray(x))
    parts = itf.compute(*itf.three_way_partition(lazy, lazy % 7 == 0, lazy % 3 == 0))
    first, second = x % 7 == 0, x % 3 == 0
    for got, mask in zip(parts, (first, second & ~first, ~(first | second)), strict=True):
        assert_same(got, x[mask])
    assert_same(itf.unique_consecutive(cp.sort(cp.asarray(x))).compute(), np.unique(x))


@pytest.mark.parametrize("size", [0, 1, 4097, 1_000_003])
def test_cub_selects_the_same(cp: Any, size: int) -> None:
    for dtype in ("f4", "i2", "f8", "c8"):
        x = np.random.default_rng(6).integers(-9, 9, size).astype(dtype)
        lazy = itf.asarray(cp.asarray(x))
        with itf.config(strategy="cub"):
            assert itf.plan(lazy[lazy == 3]).stages[0].strategy == "cub.pointers"
            for number in (3, 77):
                assert_same(lazy[lazy == number].compute(), x[x == number])
                assert_same(lazy[lazy != number].compute(), x[x != number])


def test_one_result_in_many_runs_and_on_many_streams(cp: Any) -> None:
    x = np.random.default_rng(5).standard_normal(5_000_011).astype("f4")
    lazy = itf.asarray(cp.asarray(x))
    want = cp.asarray(x[x > 0])
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    cp.cuda.Device().synchronize()
    for run in range(100):
        stream = streams[run % 4]
        got = lazy[lazy > 0].compute(stream=stream)
        with stream:
            assert bool((got == want).all())
            assert got.shape == want.shape


def test_one_launch_and_no_room_behind_a_small_result(cp: Any) -> None:
    x = cp.arange(1 << 24, dtype="f4")
    lazy = itf.asarray(x)
    few = lazy < 1000
    assert itf.plan(lazy[few]).passes == 1
    lazy[few].compute()
    pool = cp.get_default_memory_pool()
    before = pool.used_bytes()
    got = lazy[few].compute()
    assert got.shape == (1000,)
    assert pool.used_bytes() - before < 1 << 16
    half = lazy[lazy < 1 << 23].compute()
    assert half.size == 1 << 23
    assert pool.used_bytes() - before <= (1 << 26) + (1 << 16)


@pytest.mark.parametrize("share", [0, 3])
def test_more_elements_than_32_bits_count(cp: Any, share: int) -> None:
    size = (1 << 31) + 5
    if cp.cuda.Device().mem_info[0] < 3 * size:
        pytest.skip("not enough memory")
    x = cp.arange(size, dtype="i1")  # wraps: -128 to 127 over and over
    lazy = itf.asarray(x)
    got = lazy[lazy > share].compute()
    ones = cp.arange(256, dtype="i4").astype("i1")
    each = int((ones > share).sum())
    assert got.size == each * (size // 256) + int((ones[: size % 256] > share).sum())
    assert bool((got[-each:] > share).all())
    assert bool((got[: each * 1000].reshape(1000, each) == ones[ones > share]).all())


def test_a_graph_does_not_know_the_size(cp: Any) -> None:
    lazy = itf.asarray(cp.arange(1000.0))
    want = lazy[lazy > 5].compute().get()
    with cp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        with pytest.raises(itf.Unsupported, match="graph being captured"):
            lazy[lazy > 5].compute()
        stream.end_capture()
    assert_same(lazy[lazy > 5].compute(), want)
