"""Histograms, sorts, segments and placement on a real GPU, judged by the CPU engine and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_gpu import on_gpu
from test_order import RNG, device_cases, equal, lengths, numbers

import itfuse as itf
from itfuse.dtypes import DTYPES

pytestmark = pytest.mark.gpu


def check(lazy: itf.Array, cp: Any, what: object = "") -> None:
    equal(on_gpu(lazy, cp).compute().get(), lazy.compute(), (what, lazy))


def test_the_cases_of_the_host(cp: Any) -> None:
    for one in device_cases():
        check(one, cp)


def test_many_and_few_bins(cp: Any) -> None:
    for bins in (1, 100, 4096, 4097, 1 << 20):
        x = RNG.integers(0, bins, 3_000_001)
        got = itf.bincount(cp.asarray(x)).compute()
        equal(got.get(), np.bincount(x), bins)
    for dtype in ("uint8", "int16", "float16", "float32", "float64"):
        a = numbers(1_000_003, dtype, nan=False)
        for options in ({}, {"bins": 33, "range": (-30, 20)}, {"bins": [-20, 0, 0.5, 30]}):
            counts, edges = itf.histogram(cp.asarray(a), **options)  # type: ignore[arg-type]
            want, want_edges = np.histogram(a, **options)  # type: ignore[call-overload]
            equal(counts.compute().get(), want, (dtype, options))
            equal(edges.get(), want_edges)
    x, y = RNG.standard_normal((2, 100_000))
    equal(itf.histogram2d(cp.asarray(x), cp.asarray(y), 30)[0].compute().get(),
          np.histogram2d(x, y, 30)[0])  # fmt: skip


def test_weights_have_one_order_unless_it_is_relaxed(cp: Any) -> None:
    x, w = RNG.integers(0, 9, 100_000), RNG.standard_normal(100_000)
    lazy = itf.bincount(cp.asarray(x), cp.asarray(w))
    got = lazy.compute()
    np.testing.assert_allclose(got.get(), np.bincount(x, w), rtol=1e-9)
    for _ in range(20):
        assert lazy.compute().get().tobytes() == got.get().tobytes()
    with itf.config(determinism="not_guaranteed"):
        assert lazy.plan().passes == 1
        got = lazy.compute()
    np.testing.assert_allclose(got.get(), np.bincount(x, w), rtol=1e-9)
    for dtype in ("bool", "int8", "float16", "float32", "complex128"):
        weights = (w * 3).astype(dtype)  # whose sums float16 holds
        counts = itf.histogram(cp.asarray(w), 20, (-3, 3), weights=cp.asarray(weights))[0]
        want = np.histogram(w, 20, (-3, 3), weights=weights.astype("c16"))[0]
        if dtype not in ("bool", "int8"):
            loose = 1e-2 if dtype == "float16" else 1e-4
            np.testing.assert_allclose(counts.compute().get().astype("c16"), want, loose, 1)
        else:
            equal(counts.compute().get(), np.histogram(w, 20, (-3, 3), weights=weights)[0])


def test_placement_in_order(cp: Any) -> None:
    index = RNG.integers(0, 1000, 500_000)
    for dtype in ("int8", "float16", "float32", "float64"):
        base, values = numbers(1000, dtype, nan=False), numbers(500_000, dtype, nan=False)
        check(itf.put(base, index, itf.asarray(values) * 1, "set", ordered=True), cp, dtype)
        if dtype == "float16":
            continue  # sums beyond its largest number
        lazy = itf.put(*map(cp.asarray, (base, index, values)), "add", ordered=True)
        first = lazy.compute().get()
        want = base.astype("f8")
        np.add.at(want, index, values.astype("f8"))
        np.testing.assert_allclose(first, want if dtype != "int8" else want.astype(dtype), 1e-4)
        for _ in range(20):
            assert lazy.compute().get().tobytes() == first.tobytes()


@pytest.mark.parametrize("dtype", [name for name in DTYPES if not name.startswith("complex")])
def test_sorts(dtype: str, cp: Any) -> None:
    for shape in ((1,), (1000,), (1_000_003,), (3, 4, 5), (1000, 7), (300, 1000), (2, 200_001)):
        x = numbers(shape, dtype)
        lazy = itf.asarray(x)
        for descending in (False, True):
            check(itf.sort(lazy, descending=descending), cp, descending)
            check(itf.argsort(lazy, descending=descending), cp, descending)
        values, order = itf.compute(
            *(on_gpu(one, cp) for one in (itf.sort(lazy), itf.argsort(lazy)))
        )
        equal(np.take_along_axis(x, order.get(), -1), values.get(), shape)
    check(itf.sort(lazy, axis=0), cp)
    if dtype != "bfloat16":
        check(itf.median(lazy, axis=0), cp)


def test_complex_keys_are_refused(cp: Any) -> None:
    with pytest.raises(itf.Unsupported, match="abs"):
        itf.sort(cp.ones(9, "complex64")).compute()


def test_what_is_read_from_sorted_rows(cp: Any) -> None:
    x = itf.asarray(numbers((40, 333), "float32", nan=False))
    for one in (*itf.topk(x, 5), *itf.kthvalue(x, 7, 0), itf.quantile(x, [0.1, 0.5], -1)):
        check(one, cp)
    keys, values = RNG.integers(0, 99, 50_000), RNG.standard_normal(50_000)
    for one in itf.sort_by_key(keys, values):
        check(one, cp)


@pytest.mark.parametrize("dtype", DTYPES)
def test_segments(dtype: str, cp: Any) -> None:
    many = lengths()
    offsets = np.concatenate([[0], np.cumsum(many)])
    x = numbers(int(offsets[-1]), dtype, nan=False)
    for op in ("sum", "min", "max"):
        if dtype.startswith("complex") and op != "sum":
            continue
        lazy = itf.segment_reduce(x, op, offsets)
        got, want = on_gpu(lazy, cp).compute().get(), lazy.compute()
        if op == "sum" and np.dtype(want.dtype).kind not in "biu":
            np.testing.assert_allclose(
                got.astype("c16"), want.astype("c16"), rtol=2e-2 if x.itemsize == 2 else 1e-5
            )
        else:
            equal(got, want, op)
    again = {on_gpu(lazy, cp).compute().get().tobytes() for _ in range(20)}
    assert len(again) == 1


def test_runs(cp: Any) -> None:
    keys = np.repeat(RNG.integers(0, 4, 9000), RNG.integers(1, 700, 9000))
    values, counts = itf.run_length_encode(cp.asarray(keys))
    equal(np.repeat(values.get(), counts.get()), keys)
    found, sums = itf.reduce_by_key(cp.asarray(keys), cp.arange(keys.size))
    wanted, totals = itf.reduce_by_key(keys, np.arange(keys.size))
    equal(found.get(), wanted)
    equal(sums.get(), totals)


def test_placement(cp: Any) -> None:
    for dtype in ("int32", "uint64", "float32", "float64"):
        base = numbers(1000, dtype, nan=False)
        index = RNG.integers(-1000, 1000, 500_000)
        values = numbers(500_000, dtype, nan=False)
        for mode in ("add", "min", "max"):
            check(itf.put(base, index, itf.asarray(values) * 1, mode), cp, (dtype, mode))
    own = cp.zeros(10)
    assert itf.put(own, cp.asarray([3, -1]), 2.5).compute(out=own) is own
    equal(own.get(), np.array([0, 0, 0, 2.5, 0, 0, 0, 0, 0, 2.5]))
    far = itf.put(own, cp.asarray([99, 1]), 1.0).compute().get()  # nothing is written outside
    assert far[1] == 1 and far.sum() == 6


def test_a_captured_graph(cp: Any) -> None:
    x = cp.asarray(RNG.integers(0, 50, 100_000))
    counts = itf.bincount(x, length=50) * 2
    counts.compute()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        out = cp.zeros(50, "int64")
        stream.begin_capture()
        counts.compute(out=out)
        graph = stream.end_capture()
        for _ in range(3):
            x[...] = cp.roll(x, 1)
            graph.launch()
        stream.synchronize()
    equal(out.get(), 2 * np.bincount(x.get(), minlength=50))
