"""Reductions along axes and row programs on a real GPU, judged by the CPU engine."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from test_axes import LAYOUTS
from test_gpu import on_gpu
from test_rows import (
    LENGTHS,
    LONGER,
    OTHER_DTYPES,
    computed_places,
    other_dtypes,
    programs,
    random,
    several,
)

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.ops import OPS
from itfuse.rows.op import REDUCTION
from itfuse.testing import assert_same

pytestmark = pytest.mark.gpu


def check(what: str, lazies: tuple[itf.Array, ...], ulp: float, cp: Any) -> None:
    """The bits of the CPU engine: the order is the library's, not the machine's."""
    wants = itf.compute(*lazies) if len(lazies) > 1 else (lazies[0].compute(),)
    device = [on_gpu(one, cp) for one in lazies]
    gots = itf.compute(*device) if len(lazies) > 1 else (device[0].compute(),)
    for got, want in zip(gots, wants, strict=True):
        assert_same(got, want, ulp, what)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_and_columns_of_every_class(dtype: str, cp: Any) -> None:
    for length, rows in itertools.product((*LENGTHS, *LONGER), (1, 2, 33, 300)):
        if length * rows > 3_000_000:
            continue
        x = random((rows, length), dtype, length)
        check(f"rows {dtype}{x.shape}", several(itf.asarray(x), 1), 0.0, cp)
        check(f"columns {dtype}{x.shape}", several(itf.asarray(x.T.copy()), 0), 0.0, cp)


def test_long_and_few_or_many(cp: Any) -> None:
    for shape in [(1, 3_000_000), (3, 1_000_003), (2000, 9001), (1, 5_000_000), (70_000, 64)]:
        x = random(shape, "float32", 1)
        check(f"rows {shape}", several(itf.asarray(x), 1), 0.0, cp)
        check(f"columns {shape}", several(itf.asarray(x), 0), 0.0, cp)


@pytest.mark.parametrize("name", DTYPES)
def test_every_reduction_axis_and_layout(name: str, cp: Any) -> None:
    for shape in [(5, 130), (130, 5), (9, 11, 13)]:
        x = random(shape, name, 1)
        for (how, layout), axis in itertools.product(LAYOUTS.items(), (0, 1, -1, (0, 1))):
            lazy = itf.asarray(layout(x))
            every = [op.name for op in OPS.values() if op.kind == REDUCTION]
            made = tuple(getattr(itf, one)(lazy, axis=axis) for one in every)
            check(f"{name}{shape} {how} {axis}", made, 0.0, cp)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_row_programs(dtype: str, cp: Any) -> None:
    for length, rows in itertools.product((*LENGTHS, *LONGER), (3, 60)):
        x, w = random((rows, length), dtype, length), random((length,), dtype, 1)
        for what, lazies, ulp in programs(itf.asarray(x), w):
            if what != "log_softmax":
                check(f"{what} {dtype}{x.shape}", lazies, ulp, cp)


@pytest.mark.parametrize("dtype", OTHER_DTYPES)
def test_row_programs_of_other_dtypes(dtype: str, cp: Any) -> None:
    for what, lazies, ulp in other_dtypes(dtype):
        check(f"{what} {dtype}", lazies, ulp, cp)


def test_computed_places_and_numbers_of_the_index(cp: Any) -> None:
    for what, lazies, ulp in computed_places():
        check(what, lazies, ulp, cp)


def test_unaligned_starts_in_place_and_guards(cp: Any) -> None:
    guard = 64
    for length, rows, shift in itertools.product((3, 100, 512, 1001, 5000, 20_000), (1, 7), (0, 1)):
        flat = random((rows * length + 8,), "float32", length)
        x = flat[shift : shift + rows * length].reshape(rows, length)
        want = itf.softmax(x).compute()
        room = cp.full(rows * length + 2 * guard, 77, "f4")
        out = room[guard + shift : guard + shift + rows * length].reshape(rows, length)
        device = cp.asarray(flat)[shift : shift + rows * length].reshape(rows, length)
        itf.softmax(device).compute(out=out)
        assert_same(out, want, 64)
        edges = room.get()
        assert (edges[: guard + shift] == 77).all()
        assert (edges[guard + shift + rows * length :] == 77).all()
        itf.softmax(device).compute(out=device)
        assert_same(device, want, 64)


def test_one_result_in_many_runs_and_streams(cp: Any) -> None:
    x = cp.random.standard_normal((40, 1 << 16), dtype="f4")
    lazy = itf.asarray(x)
    asked = (lazy.sum(1), lazy.sum(0), lazy.var(1), (lazy * lazy).sum())
    first = [r.get() for r in itf.compute(*asked)]
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    cp.cuda.Device().synchronize()
    for run in range(40):
        results = itf.compute(*asked, stream=streams[run % 4])
        streams[run % 4].synchronize()
        for got, want in zip(results, first, strict=True):
            assert got.get().tobytes() == want.tobytes()


def test_nothing_of_the_inputs_size_is_allocated(cp: Any) -> None:
    x = cp.ones((4096, 2048), "f4")
    lazy = itf.asarray(x)
    for one in (itf.softmax(lazy), lazy.sum(0), lazy.sum(1), lazy - lazy.mean(0)):
        pool = cp.get_default_memory_pool()
        before = pool.used_bytes()
        got = one.compute()
        assert pool.used_bytes() - before <= got.nbytes + (1 << 16)
