"""The cuda engine's calls on a stand-in device: the same Python, kernels run on the host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import fake_cupy, host_cpp

import itfuse as itf
from itfuse.testing import assert_same

pytestmark = pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")

X = np.linspace(-2, 2, 1000, dtype="f4")
Y = np.linspace(5, 1, 1000, dtype="f4")


@pytest.fixture(scope="module")
def cp() -> Iterator[Any]:
    with fake_cupy.installed() as cupy:
        yield cupy


@pytest.fixture(autouse=True)
def _no_capture() -> Iterator[None]:
    yield
    fake_cupy.capturing.clear()


def short(f: Any) -> Any:
    """Return the only short way of a fused function."""
    (call,) = f._short[1]
    return call


def test_a_transform(cp: Any) -> None:
    f = itf.fuse(lambda x, y, a: itf.maximum(x * a + y, 0))
    x, y = cp.asarray(X), cp.asarray(Y)
    for a in (2.0, 3.0, -0.5, 1e300):
        with np.errstate(all="ignore"):
            want = np.maximum(X * a + Y, 0)
        got = f(x, y, a)
        assert type(got) is cp.ndarray
        assert_same(got, want, what=repr(a))
    before = fake_cupy.counts.copy()
    assert_same(short(f)((x, y, 2.0), None), np.maximum(X * 2 + Y, 0))
    assert fake_cupy.counts["launches"] == before["launches"] + 1
    assert fake_cupy.counts["allocations"] == before["allocations"] + 1
    assert f.traces == 1


def test_out(cp: Any) -> None:
    f = itf.fuse(lambda x, y: x * 2 + y)
    x, y = cp.asarray(X), cp.asarray(Y)
    f(x, y)
    before = fake_cupy.counts["allocations"]
    out = cp.empty(1000, "f4")
    assert short(f)((x, y), out) is out and f(x, y, out=out) is out
    assert_same(out, X * 2 + Y)
    assert fake_cupy.counts["allocations"] == before + 1  # `out`
    assert f(x, y, out=x) is x
    assert_same(x, X * 2 + Y)
    big = cp.asarray(np.arange(1001, dtype="f4"))
    assert short(f)((big[1:], y), big[:-1]) is itf.engines.MISS
    with pytest.raises(itf.AliasError):
        f(big[1:], y, out=big[:-1])
    for wrong, kind in ((cp.empty(999, "f4"), itf.ShapeError),
                        (cp.empty(1000, "f8"), itf.DTypeError),
                        (cp.empty(2000, "f4")[::2], itf.ShapeError),
                        (np.empty(1000, "f4"), itf.DeviceError)):  # fmt: skip
        with pytest.raises(kind):
            f(x, y, out=wrong)


def test_bounds_are_checked_if_wished(cp: Any) -> None:
    f = itf.fuse(lambda x, i: itf.take(x, i) * 2)
    x, at = cp.asarray(X), cp.asarray(np.array([1, 10**6]))
    last = X[-1] * 2
    for _ in range(3):
        assert f(x, at).get()[1] == last  # stays inside the array
    with itf.config(bounds_check=True):
        for _ in range(3):
            with pytest.raises(itf.BoundsError, match=r"lambda.*out of bounds"):
                f(x, at)
        assert f(x, cp.asarray(np.array([1, -1]))).get()[1] == last
    assert f(x, at).get()[1] == last


def test_out_over_an_array_that_the_function_closes_over_is_refused(cp: Any) -> None:
    w = cp.asarray(np.arange(64.0).reshape(8, 8))
    x = cp.asarray(np.ones((8, 8)))
    f = itf.fuse(lambda x: x + itf.asarray(w).T)
    for _ in range(3):
        f(x)
    with pytest.raises(itf.AliasError):
        f(x, out=w)
    assert_same(f(x, out=cp.empty((8, 8), "f8")), 1 + w.get().T)


def test_out_over_a_broadcast_input_is_refused(cp: Any) -> None:
    f = itf.fuse(lambda x, row: x + row)
    x = cp.asarray(np.arange(12, dtype="f4").reshape(3, 4))
    for _ in range(2):
        assert_same(f(x, x[0]), x.get() + x.get()[0])
        with pytest.raises(itf.AliasError):
            f(x, x[0], out=x)
    square = cp.asarray(np.arange(9, dtype="f4").reshape(3, 3))
    g = itf.fuse(lambda x, y: x + y)
    turned = square[::-1]
    g(square, turned)
    with pytest.raises(itf.AliasError):
        g(square, turned, out=square)


def test_reductions_and_several_results(cp: Any) -> None:
    f = itf.fuse(lambda x, a: ((x * a).sum(), x.max()))
    for size in (1, 1000, 40_000):
        data = np.random.default_rng(size).random(size, "f4")
        x = cp.asarray(data)
        lazy = itf.asarray(data)
        want = itf.compute((lazy * 3.0).sum(), lazy.max())
        for _ in range(3):
            for got, one in zip(f(x, 3.0), want, strict=True):
                assert_same(got, one)
    g = itf.fuse(lambda x: x - x.sum())
    lazy = itf.asarray(X)
    want = (lazy - lazy.sum()).compute()
    for _ in range(3):
        assert_same(g(cp.asarray(X)), want)
        assert_same(g(cp.asarray(X), out=cp.empty(1000, "f4")), want)
    assert short(g)((cp.asarray(X),), None).shape == (1000,)


def test_addresses_that_do_not_fit_go_the_general_way(cp: Any) -> None:
    f = itf.fuse(lambda x, y, a: x * a + y)
    base, other = cp.asarray(np.arange(1004, dtype="f4")), cp.asarray(Y)
    f(base[:1000], other, 2.0)
    for start in range(4):
        x = base[start : start + 1000]
        out = cp.empty(1001, "f4")[1:]
        assert_same(short(f)((x, other, 2.0), None), x.get() * 2 + Y)
        assert short(f)((x, other, 2.0), out) is out
        assert_same(out, x.get() * 2 + Y)
    raw = cp.asarray(np.zeros(4003, "u1"))
    askew = cp.ndarray((1000,), "f4", fake_cupy.MemoryPointer(raw.data.mem, raw.data.ptr + 2))
    with pytest.raises(itf.Unsupported, match="not aligned"):
        f(askew, other, 2.0)


def test_other_arguments_miss(cp: Any) -> None:
    f = itf.fuse(lambda x, a: x * a)
    x = cp.asarray(X)
    f(x, 2.0)
    call = short(f)
    for args in ((x,), (x, 2), (x, "2"), (cp.asarray(X[:999]), 2.0), (X, 2.0), (x, 2.0, 1),
                 (cp.asarray(X.astype("f8")), 2.0), (cp.asarray(np.zeros(2000, "f4"))[::2], 2.0),
                 (cp.asarray(X.reshape(10, 100)), 2.0)):  # fmt: skip
        assert call(args, None) is itf.engines.MISS
    k = itf.fuse(lambda x, a: x + a)
    i = cp.asarray(np.arange(10, dtype="i1"))
    k(i, 1)
    assert short(k)((i, 300), None) is itf.engines.MISS
    with pytest.raises(itf.RangeError):
        k(i, 300)


def test_layouts(cp: Any) -> None:
    f = itf.fuse(lambda x, y: x * 2 - y)
    base = np.arange(48, dtype="f4").reshape(6, 8)
    x, y = cp.asarray(base), cp.asarray(base + 100)
    for index in (
        np.s_[:, :],
        np.s_[::2, ::2],
        np.s_[::-1],
        np.s_[:, ::-1],
        np.s_[:1],
        np.s_[:, :1],
    ):
        for _ in range(3):
            got = f(x[index], y[index])
            assert_same(got, base[index] * 2 - (base + 100)[index])
    assert_same(f(x[:0], y[:0]), base[:0])


def test_eager_expressions(cp: Any) -> None:
    for k in range(1, 6):
        x, y = cp.asarray(X * k), cp.asarray(Y)
        got = (itf.asarray(x) * float(k) + y).compute()
        assert_same(got, X * np.float32(k) * np.float32(k) + Y, ulp=1)
        total, top = itf.compute(itf.asarray(x).sum(), itf.asarray(x).max())
        assert_same(total, itf.asarray(X * k).sum().compute())
        assert_same(top, (X * k).max())


def test_closed_over_arrays(cp: Any) -> None:
    w = cp.asarray(Y)
    f = itf.fuse(lambda x: x * w)
    x = cp.asarray(X)
    for _ in range(2):
        assert_same(f(x), X * Y)
    w = cp.asarray(X)
    for _ in range(2):
        assert_same(f(x), X * X)


def test_captured_launches_keep_their_scratch(cp: Any) -> None:
    from itfuse.engines.cuda import scratch

    f = itf.fuse(lambda x: x - x.sum())
    x = cp.asarray(X)
    want = f(x).get()
    stream = fake_cupy.Stream(77)
    for captured in (False, True, True):
        if captured:
            fake_cupy.capturing.add(77)
        kept: list[Any] = []
        with stream, scratch.keeping(kept):
            assert_same(f(x), want)
            assert_same((itf.asarray(x) - itf.asarray(x).sum()).compute(), want)
        assert len(kept) == (4 if captured else 0)  # partial results, and the sum between passes
        carried = [array for one in kept if isinstance(one, list) for array in one]
        assert [array.shape for array in carried] == ([(), ()] if captured else [])
    assert_same(f(x, stream=fake_cupy.Stream(5)), want)


def test_every_stream_has_a_counter_of_its_own(cp: Any) -> None:
    from itfuse.engines.cuda.scratch import _STREAMS, scratch

    f = itf.fuse(lambda x: x.sum())
    x = cp.asarray(X)
    want = f(x).get()
    for handle in range(2, 3 * _STREAMS):
        with fake_cupy.Stream(handle):
            assert_same(f(x), want)
    assert len(scratch(0)._counters) <= _STREAMS
    one = {scratch(0).counter(handle) for handle in (0, 2, 3, 4)}
    assert len(one) == 4


def test_threads(cp: Any) -> None:
    f = itf.fuse(lambda x, a: (x * a + 1, (x * a).sum()))
    wrong: list[Any] = []

    def work(k: int) -> None:
        x = cp.asarray(np.full(100, k, "f4"))
        for step in range(30):
            got, total = f(x, float(step))
            if got.get()[-1] != k * step + 1 or float(total.get()) != 100 * k * step:
                wrong.append((k, step))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and f.traces == 1


def test_debug_shows_the_function(cp: Any, capsys: Any) -> None:
    with itf.config(debug=3):
        itf.fuse(lambda x: x * 2 + 3)(cp.asarray(X))
    assert "launch(" in capsys.readouterr().err


def test_a_graph_replays_with_new_data(cp: Any) -> None:
    f = itf.fuse(lambda x, y, a: {"all": x * a - x.sum(), "top": itf.maximum(x, y).max()})
    x, y = cp.asarray(X), cp.asarray(Y)
    graph = itf.graph(f, x, y, a=2.0)
    assert f.traces == 1
    for shift in (0, 1):
        x.view_numpy()[...] = X + shift
        got = graph.replay()
        assert got is graph.outputs
        want = f(cp.asarray(X + shift), y, 2.0)
        assert_same(got["all"], want["all"].get())
        assert_same(got["top"], want["top"].get())

    def several(x: Any, out: Any) -> Any:
        f(x, y, 3.0)["all"]
        return (itf.asarray(x) + 1).compute(), f(x, y, 2.0, out={"all": out, "top": None})

    out = cp.empty(1000, "f4")
    graph = itf.graph(several, x, out)
    x.view_numpy()[...] = 0
    first, second = graph()
    assert_same(first, np.ones(1000, "f4"))
    assert second["all"] is out
    assert_same(out, np.zeros(1000, "f4"))


def test_a_capture_that_fails_is_over(cp: Any) -> None:
    f = itf.fuse(lambda x: x + 1)

    def fails(x: Any) -> Any:
        f(x)
        if fake_cupy.recording:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        itf.graph(fails, cp.asarray(X))
    assert not fake_cupy.recording
    assert_same(itf.graph(f, cp.asarray(X)).replay(), X + 1)
    with fake_cupy.Stream(9):
        fake_cupy.capturing.add(9)
        with pytest.raises(itf.DeviceError, match="captured already"):
            itf.graph(f, cp.asarray(X))


def test_a_graph_needs_arrays_of_one_gpu(cp: Any) -> None:
    f = itf.fuse(lambda x, y: x + y)
    for args in ((X, Y), (cp.asarray(X), Y), (1.0, 2.0), (itf.asarray(cp.asarray(X)), 1.0)):
        with pytest.raises(itf.DeviceError, match=r"itf\.graph"):
            itf.graph(f, *args)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_eager_out_goes_the_short_way_and_is_checked(cp: Any, device: str) -> None:
    make = cp.asarray if device == "cuda" else np.array

    def numpy(a: Any) -> Any:
        return a.view_numpy() if device == "cuda" else a

    x, y, out = make(X), make(Y), make(np.zeros_like(X))

    def expression(a: Any, b: Any) -> Any:
        return (itf.asarray(a) * 2 + b) * b

    want = (X * 2 + Y) * Y
    expression(x, y).compute(out=out)
    looked: list[Any] = []
    from itfuse.engines.ready import Ready

    check = Ready.check_out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ready, "check_out", lambda *args: looked.append(1) or check(*args))
        for _ in range(3):
            numpy(out)[...] = 0
            assert expression(x, y).compute(out=out) is out
            assert_same(numpy(out), want)
        assert not looked
        for wrong, error in (
            (make(np.zeros(7, "f4")), itf.ShapeError), (make(np.zeros(X.shape)), itf.DTypeError),
            (make(np.zeros((*X.shape, 2), "f4"))[..., 0], None), ("zz", itf.DeviceError),
            (np.zeros_like(X) if device == "cuda" else cp.asarray(X), itf.DeviceError),
        ):  # fmt: skip
            if error is None:
                expression(x, y).compute(out=wrong)
                assert_same(numpy(wrong), want)
                continue
            for _ in range(2):
                with pytest.raises(error, match="out="):
                    expression(x, y).compute(out=wrong)
    big = make(np.arange(X.size + 1, dtype="f4"))
    one, two = big[:-1], big[1:]
    flat = make(Y.ravel())
    with pytest.raises(itf.AliasError):
        expression(one, flat).compute(out=two)
    assert_same(numpy(big), np.arange(X.size + 1, dtype="f4"))
    assert expression(one, flat).compute(out=one) is one  # in place
    assert_same(numpy(one), (np.arange(X.size, dtype="f4") * 2 + Y.ravel()) * Y.ravel())
    totals = itf.asarray(x).sum(), itf.asarray(x).max()
    outs = make(np.zeros((), "f4")), make(np.zeros((), "f4"))
    for _ in range(2):
        itf.compute(*totals, out=(None, outs[1]))
        assert itf.compute(*totals, out=outs)[0] is outs[0]
        assert float(numpy(outs[1])) == X.max()
