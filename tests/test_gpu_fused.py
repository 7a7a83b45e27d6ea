"""Fused functions, graphs, streams and lifetimes on a real GPU."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse.cache import BUILT
from itfuse.testing import assert_same

pytestmark = pytest.mark.gpu

X = np.linspace(-2, 2, 1000, dtype="f4")
Y = np.linspace(5, 1, 1000, dtype="f4")


def short(f: Any) -> Any:
    """Return the short way that is tried first."""
    return f._short[1][0]


def test_a_call_and_the_short_way(cp: Any) -> None:
    f = itf.fuse(lambda x, y, a: itf.maximum(x * a + y, 0))
    x, y = cp.asarray(X), cp.asarray(Y)
    for a in (2.0, -0.5, 3.0):
        got = f(x, y, a)
        assert type(got) is cp.ndarray
        assert_same(got, np.maximum(X * np.float32(a) + Y, 0))
    assert_same(short(f)((x, y, 2.0), None), np.maximum(X * 2 + Y, 0))
    out = cp.empty_like(x)
    assert short(f)((x, y, 2.0), out) is out
    assert_same(out, np.maximum(X * 2 + Y, 0))
    assert f(x, y, 2.0, out=x) is x
    assert_same(x, np.maximum(X * 2 + Y, 0))
    with pytest.raises(itf.AliasError):
        f(x[1:], y[1:], 2.0, out=x[:-1])


@pytest.mark.parametrize("strategy", ["tile", "cub"])
def test_the_gpu_gives_what_the_processor_gives(strategy: str, cp: Any) -> None:
    @itf.fuse
    def f(x: Any, y: Any, a: Any) -> Any:
        t = x * a + y
        return {"t": t, "sum": t.sum(), "centred": t - t.sum(), "less": t < y}

    with itf.config(strategy=strategy):
        for shape in ((1000,), (10, 100), (1, 1), (0, 3), (70_001,), (3, 4, 5)):
            x = np.random.default_rng(1).random(shape, "f4")
            y = x[::-1] * 2
            for a in (0.5, 2.0):
                got = f(cp.asarray(x), cp.asarray(y), a)
                want = f(x, y, a)
                loose = 0 if strategy == "tile" else 200
                for name, one in want.items():
                    assert_same(got[name], one, 0 if name in ("t", "less") else loose, name)


def test_layouts_and_addresses(cp: Any) -> None:
    f = itf.fuse(lambda x, y: x * 2 - y)
    base = np.arange(48, dtype="f4").reshape(6, 8)
    x, y = cp.asarray(base), cp.asarray(base + 100)
    for index in (np.s_[:, :], np.s_[::2, ::2], np.s_[::-1], np.s_[:, ::-1], np.s_[:1],
                  np.s_[:, :1], np.s_[:, 1:], np.s_[:0]):  # fmt: skip
        for _ in range(3):
            assert_same(f(x[index], y[index]), base[index] * 2 - (base + 100)[index])
    flat = cp.arange(1004, dtype="f4")
    for start in range(4):
        part, out = flat[start : start + 1000], cp.empty(1003, "f4")[3 - start :][:1000]
        for _ in range(2):
            assert_same(f(part, part, out=out), part.get())


def test_new_sizes_and_numbers_compile_nothing(cp: Any) -> None:
    f = itf.fuse(lambda x, a: (x * a + 0.125, (x * a).max()))
    f(cp.asarray(X), 1.0)
    before = BUILT.builds
    for n in range(2, 200, 7):
        x = np.arange(n, dtype="f4")
        got, top = f(cp.asarray(x), float(n))
        assert_same(got, x * np.float32(n) + np.float32(0.125))
        assert_same(top, (x * np.float32(n)).max())
    assert BUILT.builds == before


def test_streams(cp: Any) -> None:
    f = itf.fuse(lambda x: (x + 1, x.sum()))
    x = cp.asarray(X)
    want = f(X)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(100)]
    cp.cuda.Device().synchronize()
    results = [f(x, stream=one) for one in streams]
    for stream in streams:
        with stream:
            results.append(f(x))
    cp.cuda.Device().synchronize()
    for got in results:
        assert_same(got[0], want[0])
        assert_same(got[1], want[1])
    del streams
    for _ in range(200):  # handles are used again
        with cp.cuda.Stream(non_blocking=True) as stream:
            got = f(x)[1]
        stream.synchronize()
        assert_same(got, want[1])


def test_cupys_own_capture(cp: Any) -> None:
    f = itf.fuse(lambda x, y: (x * 2 + y, x.sum(), x - x.sum()))
    x, y = cp.asarray(X), cp.asarray(Y)
    f(x, y)
    (itf.asarray(x) * 3 + y).compute()
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        results = f(x, y)
        eager = (itf.asarray(x) * 3 + y).compute()
        graph = stream.end_capture()
    other = cp.cuda.Stream(non_blocking=True)
    for shift in (0, 1, 2):
        x[...] = cp.asarray(X + shift)
        # Work of the capturing stream between replays must not meet the graph's scratch.
        cp.cuda.Device().synchronize()
        with stream:
            noise = [f(y, y) for _ in range(10)]
        graph.launch(other)
        cp.cuda.Device().synchronize()
        for got, want in zip(results, f(X + np.float32(shift), Y), strict=True):
            assert_same(got, want)
        assert_same(eager, (X + np.float32(shift)) * 3 + Y)
        del noise


def test_graphs(cp: Any) -> None:
    f = itf.fuse(lambda x, y, a: (itf.maximum(x * a + y, 0), (x * y).sum()))
    x, y = cp.asarray(X), cp.asarray(Y)
    graph = itf.graph(f, x, y, 2.0)
    pool = cp.get_default_memory_pool()
    for shift in range(3):
        x[...] = cp.asarray(X + shift)
        used = pool.used_bytes()
        got = graph.replay()
        assert pool.used_bytes() == used
        for one, want in zip(got, f(X + np.float32(shift), Y, 2.0), strict=True):
            assert_same(one, want)
    graph.replay(stream=cp.cuda.Stream(non_blocking=True))
    cp.cuda.Device().synchronize()

    def steps(x: Any) -> Any:
        for _ in range(5):
            x = f(x, y, 0.5)[0]
        return x.sum()

    graph = itf.graph(steps, x)
    got = graph()
    pool.free_all_blocks()
    for _ in range(3):
        assert_same(graph(), steps(x).get())
    assert got is graph.outputs


def test_numbers_meet_cupys_arrays_and_functions(cp: Any) -> None:
    w = cp.asarray(Y)
    f = itf.fuse(lambda x, a: x * cp.sqrt(a) + w * a - cp.maximum(a, w) + (w < a))
    for a in (2.0, 3.0, 4.5):
        of = np.float32(a)
        want = X * np.sqrt(a) + Y * of - np.maximum(of, Y) + np.less(Y, a)
        assert_same(f(cp.asarray(X), a), want, ulp=4)
    assert f.traces == 1


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_another_array_that_is_closed_over_is_seen(cp: Any, library: str) -> None:
    class Model:
        @itf.fuse
        def go(self, x: Any) -> Any:
            return x * itf.asarray(self.w) + itf.asarray(self.w)[::-1]

    model, x = Model(), cp.asarray(X)
    for factor in (1, 2, 5):
        new = cp.asarray(Y * factor)
        model.w = pytest.importorskip("torch").from_dlpack(new) if library == "torch" else new
        for _ in range(3):
            assert_same(model.go(x), X * (Y * factor) + (Y * factor)[::-1])
    assert Model.go.traces == 3
    if library == "cupy":
        model.w.shape = (1, 1000)
        assert_same(model.go(x), (X * (Y * 5) + Y * 5)[None])


def test_torchs_capture(cp: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    f = itf.fuse(lambda x, y: x * 2 + y)
    x, y, out = (torch.ones(1000, device="cuda") for _ in range(3))
    f(x, y, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f(x, y, out=out, stream=_TorchStream(torch.cuda.current_stream().cuda_stream))
    x.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert float(out[-1]) == 11


class _TorchStream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


def test_a_new_thread_launches_what_is_built(cp: Any) -> None:
    x, out = cp.arange(5000, dtype="f4"), cp.empty(5000, "f4")
    lazy = itf.asarray(x)
    lazy = lazy * 3 - lazy.sum()
    want = lazy.compute().get()
    got: list[Any] = []

    def work() -> None:  # the first that the thread does is a launch
        try:
            lazy.compute(out=out)
        except Exception as why:
            got.append(why)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not got
    assert_same(out.get(), want)


def test_what_is_carried_between_captured_passes_stays(cp: Any) -> None:
    f = itf.fuse(lambda x: x - x.sum())
    x = cp.arange(1000, dtype="f4")
    want = f(x).get()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        got = f(x)
        captured = stream.end_capture()
    room = [
        cp.full(n, 9e9, "f4") for n in (1, 2, 100, 128) for _ in range(50)
    ]  # takes what is free
    for _ in range(3):
        captured.launch(stream)
    stream.synchronize()
    assert_same(got.get(), want)
    assert all(float(one[0]) == np.float32(9e9) for one in room)


def test_threads(cp: Any) -> None:
    f = itf.fuse(lambda x, a: (itf.exp2(x) * a + 0.375, (x * a).sum()))
    start = threading.Barrier(8)
    wrong: list[Any] = []
    before = BUILT.builds

    def work(k: int) -> None:
        x = cp.full(4099, k, "f4")
        stream = cp.cuda.Stream(non_blocking=True) if k % 2 else cp.cuda.Stream.null
        cp.cuda.Device().synchronize()
        start.wait()
        with stream:
            for step in range(200):
                got, total = f(x, float(step))
                if float(got[-1]) != 2.0**k * step + 0.375 or float(total) != k * step * 4099:
                    wrong.append((k, step))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert f.traces == 1 and BUILT.builds - before <= 2


def test_nothing_is_kept_alive(cp: Any) -> None:
    f = itf.fuse(lambda x, y: (x * 2 + y, x.sum()))
    x, y = cp.asarray(X), cp.asarray(Y)
    for _ in range(3):
        results = f(x, y)
        lazy = (itf.asarray(x) * 2 + y).compute()
    holders = [weakref.ref(one) for one in (x, y, lazy, *results)]
    del x, y, lazy, results
    gc.collect()
    assert [one() for one in holders] == [None] * 5


@pytest.mark.slow
def test_100_000_calls_leak_nothing(cp: Any) -> None:
    f = itf.fuse(lambda x, a: (x * a + 1, x.sum()))
    x = cp.asarray(X)
    pool = cp.get_default_memory_pool()

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def calls(count: int) -> None:
        for k in range(count):
            f(x, float(k))
            (itf.asarray(x) * float(k) + 1).compute()
            if k % 1000 == 0:
                cp.cuda.Device().synchronize()

    calls(5000)
    gc.collect()
    host, device, used = resident(), pool.total_bytes(), pool.used_bytes()
    calls(100_000)
    gc.collect()
    assert pool.used_bytes() == used and pool.total_bytes() == device
    assert resident() - host < 16 << 20


def test_calls_do_not_wait_for_the_device(cp: Any) -> None:
    import time

    f = itf.fuse(lambda x, a: (x * a).sum())
    x = cp.ones(1 << 28, "f4")
    f(x, 1.0)
    cp.cuda.Device().synchronize()
    start = time.perf_counter()
    for k in range(100):
        f(x, float(k))
    queued = time.perf_counter() - start
    cp.cuda.Device().synchronize()
    whole = time.perf_counter() - start
    assert queued < whole / 3, (queued, whole)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_is_told(cp: Any) -> None:
    f = itf.fuse(lambda x: x + 1)
    x = cp.asarray(X)
    f(x)
    lazy = itf.asarray(x) + 1
    lazy.compute()
    child = os.fork()
    if not child:
        good = False
        try:  # whatever happens, the child must not go on with the tests
            told = 0
            for call in (lambda: f(x), lazy.compute, lambda: itf.asarray(x)):
                try:
                    call()
                except itf.DeviceError as why:
                    told += "forked" in str(why)
            good = told == 3 and f(X)[0] == X[0] + 1
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert_same(f(x), X + 1)


def test_several_gpus(cp: Any) -> None:
    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU only")
    f = itf.fuse(lambda x, y: (x * 2 + y, x.sum()))
    for number in (0, 1, 0, 1):
        with cp.cuda.Device(number):
            x, y = cp.asarray(X), cp.asarray(Y)
        for _ in range(2):
            got, total = f(x, y)
            assert got.device.id == total.device.id == number
            assert_same(got, X * 2 + Y)
    with cp.cuda.Device(0):
        other = cp.asarray(X)
    with pytest.raises(itf.DeviceError):
        f(x, other)
