"""The cuda engine on a real GPU, judged by the CPU engine and NumPy."""

from __future__ import annotations

import gc
import itertools
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse.cache import BUILT
from itfuse.dtypes import DTYPES, kind
from itfuse.ops import OPS
from itfuse.rows.op import ELEMENTWISE, REDUCTION, Op
from itfuse.testing import (
    WIDER,
    assert_same,
    edge_values,
    evaluate,
    exponents,
    random_expression,
)

pytestmark = pytest.mark.gpu

ROWS = [op for op in OPS.values() if op.kind == ELEMENTWISE and op.name != "astype"]
SIZE = 1037


def on_gpu(array: itf.Array, cp: Any) -> itf.Array:
    """Return the same expression over device copies of its arrays."""
    copies = {node: itf.asarray(cp.asarray(x)) for node, x in array._data.items()}
    made: dict[Any, Any] = {}
    from itfuse.expr import make
    from itfuse.wording import toposort

    for node in toposort((array._node,)):
        if node in copies:
            made[node] = copies[node]._node
        elif not node.srcs:
            made[node] = node
        else:
            srcs = tuple(made[src] for src in node.srcs)
            made[node] = make(node.op, srcs, node.dtype, node.shape, node.arg)
    data = {copies[node]._node: next(iter(copies[node]._data.values())) for node in copies}
    return itf.Array(made[array._node], data, "cuda:0")


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_every_op_and_dtype(op: Op, cp: Any) -> None:
    tried = 0
    for names in itertools.product(DTYPES, repeat=op.arity):
        if op.arity == 3 and names[0] != "bool":
            continue
        values = [edge_values(name, SIZE, seed) for seed, name in enumerate(names)]
        if "power" in op.name:
            values[1] = exponents(*values)
        try:
            lazy = getattr(itf, op.name)(*values)
        except itf.DTypeError:
            continue
        want = lazy.compute()
        got = getattr(itf, op.name)(*(cp.asarray(x) for x in values)).compute()
        error = 2 * op.error(DTYPES[lazy._node.srcs[-1].dtype.name].kind)
        if op.name == "nextafter":  # of zeros of both signs: NumPy 2.5 returns the other one
            got, want = got.get() + 0, want + 0
        assert_same(got, want, error, f"{op.name}{names}", op.scale)
        tried += 1
    assert tried > 1


@pytest.mark.parametrize("name", [name for name in WIDER if name in DTYPES])
def test_measured_errors_keep_to_the_bounds(name: str, cp: Any) -> None:
    """Run with `-s` to see the largest error of every row on this GPU."""
    from test_accuracy import ROWS as INEXACT
    from test_accuracy import samples, too_far

    wrong = []
    for op in INEXACT:
        operands = samples(op, name)
        try:
            lazy = getattr(itf, op.name)(*(cp.asarray(x) for x in operands))
        except itf.DTypeError:
            continue
        if kind(lazy.dtype) in "fc":
            wrong.append(too_far(op, operands, lazy.compute().get(), "gpu"))
    assert not any(wrong), [one for one in wrong if one]


@pytest.mark.parametrize("source", DTYPES)
def test_astype(source: str, cp: Any) -> None:
    x = edge_values(source, SIZE, 3)
    if kind(x.dtype) in "fc":
        parts = [np.clip(np.nan_to_num(np.asarray(part, "f8"), posinf=100, neginf=0), 0, 100)
                 for part in (x.real, x.imag)]  # fmt: skip
        x = (parts[0] + 1j * parts[1] if kind(x.dtype) == "c" else parts[0]).astype(x.dtype)
    lazy = itf.asarray(cp.asarray(x))
    targets = [lazy.astype(name) for name in DTYPES]
    assert itf.plan(*targets).passes == 1
    for got, name in zip(itf.compute(*targets), DTYPES, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the imaginary part goes
            want = x.astype(name)
        assert_same(got, want, what=name)


@pytest.mark.parametrize("name", DTYPES)
def test_all_reductions_in_one_pass(name: str, cp: Any) -> None:
    rows = [op for op in OPS.values() if op.kind == REDUCTION]
    for size in (1, 31, 1037, 400_003):
        x = edge_values(name, size, size)
        inexact = kind(x.dtype) in "fc"
        if inexact:
            x = np.random.default_rng(size).uniform(0.5, 1.5, size).astype(name)
            if kind(x.dtype) == "c":
                x += 1j * np.random.default_rng(size + 1).uniform(0.5, 1.5, size).astype(name)
            x[1::2] = 1 / x[: size // 2 * 2 : 2]
        lazy = itf.asarray(cp.asarray(x))
        asked = [getattr(itf, op.name)(lazy) for op in rows]
        assert itf.plan(*asked).passes == 1
        for op, got in zip(rows, itf.compute(*asked), strict=True):
            # The CPU engine's order is the same; the device must have the same bits.
            want = getattr(itf, op.name)(x).compute()
            ulp = 0
            assert_same(got, want, ulp, f"{op.name} {name} {size}")


@pytest.mark.parametrize("strategy", ["tile", "cub", "cub.iterator"])
def test_strategies_agree(strategy: str, cp: Any) -> None:
    x, y, z = (edge_values("float32", 100_003, k) for k in range(3))
    wide = edge_values("float64", 100_003, 9)
    X, Y, Z, W = (itf.asarray(x) for x in (x, y, z, wide))
    cases = [(itf.relu(X * 2 + 1),), (itf.relu(X * 2 + Y),), (itf.relu(X * Y + Z),),
             (X + W, X > Y)]  # fmt: skip
    for expressions in cases:
        device = [on_gpu(e, cp) for e in expressions]
        with itf.config(strategy=strategy):
            assert all(s.strategy.startswith(strategy) for s in itf.plan(*device).stages)
            got = itf.compute(*device)
        want = itf.compute(*expressions)
        if len(expressions) == 1:
            got, want = (got,), (want,)
        for a, b in zip(got, want, strict=True):
            assert_same(a, b)


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions(seed: int, cp: Any) -> None:
    random = np.random.default_rng(seed)
    names = random.choice(list(DTYPES), 3)
    shape = [(1037,), (40, 57), (7, 9, 11)][seed % 3]
    arrays = [edge_values(n, int(np.prod(shape)), seed + k).reshape(shape)
              for k, n in enumerate(names)]  # fmt: skip
    arrays.append(edge_values("float32", shape[-1], seed))
    lazy = random_expression(seed, arrays, 25)
    from itfuse.wording import toposort

    # The sign of a NaN is the machine's own: conversions to float16 do not keep it, for one.
    for again in itertools.count(1):
        if not any(node.op.name in ("signbit", "copysign") for node in toposort((lazy._node,))):
            break
        lazy = random_expression(seed + 1000 * again, arrays, 25)
    assert_same(on_gpu(lazy, cp).compute(), evaluate(lazy), what=f"seed {seed}")


@pytest.mark.parametrize("name", ["int8", "int16", "float32", "float64"])
def test_any_alignment_and_size_with_poisoned_surroundings(name: str, cp: Any) -> None:
    guard = 32
    for size, shift_in, shift_out in itertools.product(
        (0, 1, 2, 3, 15, 16, 17, 255, 4096, 10_007), (0, 1, 3), (0, 1, 2)
    ):
        x = edge_values(name, size + 8, size)
        source = cp.asarray(x)[shift_in : shift_in + size]
        whole = cp.full(size + 2 * guard, 77, name)
        out = whole[guard + shift_out : guard + shift_out + size]
        other = cp.full(size, 3, "uint8")
        (itf.asarray(source) + other).astype(name).compute(out=out)
        want = np.full(size + 2 * guard, 77, name)
        with np.errstate(all="ignore"):
            want[guard + shift_out : guard + shift_out + size] = (
                x[shift_in : shift_in + size] + np.full(size, 3, "uint8")
            ).astype(name)
        assert_same(whole, want, what=f"{name} {size} {shift_in} {shift_out}")


def test_layouts_are_read_in_place(cp: Any) -> None:
    x = np.random.default_rng(0).normal(size=(33, 20, 17)).astype("f4")
    y = np.random.default_rng(1).normal(size=(20, 1)).astype("f4")
    device, row = cp.asarray(x), cp.asarray(y)
    for view in (lambda a: a, lambda a: a[::-1, :, ::-1], lambda a: a[:, ::-1],
                 lambda a: a.transpose(0, 1, 2)[1:30:3]):  # fmt: skip
        lazy = itf.asarray(view(device)) * 2 + row
        before = cp.get_default_memory_pool().used_bytes()
        got = lazy.compute()
        assert cp.get_default_memory_pool().used_bytes() - before <= got.nbytes + 1024
        assert_same(got, view(x) * 2 + y)
        np.testing.assert_allclose(itf.asarray(view(device)).sum().compute().get(),
                                   view(x).sum(dtype=float), rtol=1e-4)  # fmt: skip
    assert_same((itf.asarray(device.T) + 1).compute(), x.T + 1)
    assert_same((itf.asarray(cp.broadcast_to(row, (33, 20, 17))) + 1).compute(),
                np.broadcast_to(y, (33, 20, 17)) + 1)  # fmt: skip


def test_carried_values_stay_on_the_device(cp: Any) -> None:
    x = np.random.default_rng(0).normal(size=100_003).astype("f4")
    lazy = itf.asarray(cp.asarray(x))
    spread = (lazy - lazy.mean()) / itf.sqrt(((lazy - lazy.mean()) ** 2).mean())
    assert itf.plan(spread).passes == 3
    want = (x - x.mean(dtype=float)) / x.std(dtype=float)
    np.testing.assert_allclose(spread.compute().get(), want, atol=1e-5)


def test_empty_and_0d(cp: Any) -> None:
    empty = itf.asarray(cp.zeros((0, 3), "f4"))
    assert (empty + 1).compute().shape == (0, 3)
    assert_same((empty.sum() + 1).compute(), np.float32(1))
    assert_same((itf.asarray(cp.float32(2)) * 3).compute(), np.float32(6))


def test_cupys_operators_and_functions_defer(cp: Any) -> None:
    x = cp.random.random(100, dtype="f4")
    lazy = itf.asarray(cp.random.random(100, dtype="f4"))
    other = lazy.compute()
    for got, want in ((x + lazy, x + other), (x - lazy, x - other), (x < lazy, x < other),
                      (cp.multiply(x, lazy), x * other), (cp.sqrt(lazy), cp.sqrt(other)),
                      (2 / lazy, 2 / other), (np.add(lazy, x), x + other)):  # fmt: skip
        assert isinstance(got, itf.Array)
        assert_same(got.compute(), want.get(), 1)


def test_other_libraries_arrays_and_streams(cp: Any) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(1000, device="cuda", dtype=torch.float32)
    assert_same((itf.asarray(tensor) * 2).compute(), np.arange(1000, dtype="f4") * 2)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    got = (itf.asarray(tensor) * 3).compute(stream=stream)
    stream.synchronize()
    assert_same(got, np.arange(1000, dtype="f4") * 3)
    with cp.cuda.Stream(non_blocking=True) as mine:
        again = (itf.asarray(got) + 1).sum().compute()
        mine.synchronize()
    assert_same(again, (np.arange(1000, dtype="f4") * 3 + 1).sum())
    with pytest.raises(itf.DeviceError, match="__cuda_stream__"):
        itf.asarray(got).compute(stream=object())


def test_work_is_queued_on_the_stream_asked_for(cp: Any) -> None:
    x = cp.ones(1 << 22, "f4")
    cp.cuda.Device().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    start, end = cp.cuda.Event(), cp.cuda.Event()
    lazy = itf.asarray(x) * 2
    lazy.compute()
    cp.cuda.Device().synchronize()
    start.record(stream)
    lazy.compute(stream=stream)
    end.record(stream)
    end.synchronize()
    assert cp.cuda.get_elapsed_time(start, end) > 1e-3 * 32e6 / 5e9


def test_errors_before_launch_and_all_still_works(cp: Any) -> None:
    x = cp.arange(10, dtype="f4")
    lazy = itf.asarray(x)
    for call, error in (
        (lambda: lazy + np.ones(10, "f4"), itf.DeviceError),
        (lambda: (lazy * 2).compute(out=np.empty(10, "f4")), itf.DeviceError),
        (lambda: (lazy * 2).compute(out=cp.empty(9, "f4")), itf.ShapeError),
        (lambda: (itf.asarray(x[:8]) + 1).compute(out=x[1:9]), itf.AliasError),
        (lambda: lazy.compute(engine="cpu"), itf.DeviceError),
        (lambda: np.asarray(lazy), TypeError),
    ):
        with pytest.raises(error):
            call()
        assert_same((lazy + 1).compute(), np.arange(10, dtype="f4") + 1)
    assert_same(x, np.arange(10, dtype="f4"))


def test_a_compile_failure_shows_source_and_log(cp: Any, monkeypatch: Any) -> None:
    broken = dict(OPS["cbrt"].cpp, f="no_such_function({0})")
    monkeypatch.setitem(OPS["cbrt"].cpp, "f", broken["f"])
    for strategy in ("tile", "cub"):
        out = cp.full(5, 7, "f4")
        with itf.config(strategy=strategy), pytest.raises(itf.CompileError) as caught:
            (itf.cbrt(cp.ones(5, "f4")) + 11).compute(out=out)
        assert "no_such_function" in caught.value.log
        assert "no_such_function" in caught.value.source
        assert_same(out, np.full(5, 7, "f4"))
    monkeypatch.undo()
    assert_same((itf.cbrt(cp.ones(5, "f4")) + 11).compute(), np.full(5, 12, "f4"))


def test_new_scalars_pointers_and_sizes_do_not_build(cp: Any) -> None:
    (itf.asarray(cp.ones(5, "f4")) * 0.5 + 0.5).compute()
    before = BUILT.builds
    for k in range(1000):
        x = cp.full(k % 37 + 1, k, "f4")
        got = (itf.asarray(x) * float(k) + 0.25).compute()
        if k % 100 == 0:
            assert_same(got, np.full(k % 37 + 1, k, "f4") * np.float32(k) + np.float32(0.25))
    assert BUILT.builds == before


def test_nothing_keeps_arrays_alive(cp: Any) -> None:
    x = cp.ones(1000, "f4")
    holder = weakref.ref(x)
    for lazy in (itf.asarray(x) * 2, abs(itf.asarray(x)).sum()):
        lazy.compute()
    del x, lazy
    gc.collect()
    assert holder() is None


def test_reductions_give_one_result(cp: Any) -> None:
    lazy = itf.asarray(cp.random.standard_normal(1 << 22, dtype="f4"))
    results = {float(x) for x in ((lazy * lazy).sum().compute() for _ in range(100))}
    assert len(results) == 1


def test_threads_share_builds_and_not_arguments(cp: Any) -> None:
    wrong: list[Any] = []

    def work(k: int) -> None:
        x = cp.full(4099, k, "f4")
        for step in range(50):
            got = (itf.asarray(x) * float(step) + 1).compute()
            total = (itf.asarray(x) * float(step)).sum().compute()
            if float(got[-1]) != k * step + 1 or float(total) != k * step * 4099:
                wrong.append((k, step))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.slow
def test_more_than_2_to_the_31_elements(cp: Any) -> None:
    size = 2**31 + 5
    x = cp.zeros(size, "int8")
    x[-3:] = cp.asarray([1, 2, 3], "int8")
    lazy = itf.asarray(x)
    total, top = itf.compute(lazy.sum(), lazy.max())
    assert (int(total), int(top)) == (6, 3)
    y = (lazy + 1).compute()
    assert y[-3:].get().tolist() == [2, 3, 4] and int(y.sum(dtype="int64")) == size + 6
    with itf.config(strategy="cub"):
        (lazy * 2).compute(out=y)
    assert y[-4:].get().tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 8191, 8193, 40_000, (1 << 20) + 5, (1 << 26) + 12_345])
def test_sums_have_the_bits_of_the_cpu_engine(size: int, dtype: str, cp: Any) -> None:
    x = np.random.default_rng(size).normal(size=size).astype(dtype)
    host, device = itf.asarray(x), itf.asarray(cp.asarray(x))
    for fused in (lambda a: a.sum(), lambda a: (a * a + 1).mean(), lambda a: (a * 3).max()):
        assert fused(device).compute().get().tobytes() == fused(host).compute().tobytes()
    shifted = itf.asarray(cp.append(cp.zeros(1, dtype), cp.asarray(x))[1:])  # the other variant
    assert shifted.sum().compute().get().tobytes() == host.sum().compute().tobytes()
