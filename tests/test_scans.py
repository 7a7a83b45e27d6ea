"""Scans: NumPy's answers, one order on every engine, the passes and their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import host_cpp, nvrtc
from support.generated import HostEngine, plan_for

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.engines.tape import BLOCK
from itfuse.lower import lower_tile
from itfuse.ops import OPS
from itfuse.plan.order import SCAN_TILE
from itfuse.testing import assert_same, edge_values

RNG = np.random.default_rng(11)
SIZES = (0, 1, 2, 15, 16, 17, 100, 511, 513, SCAN_TILE - 1, SCAN_TILE, SCAN_TILE + 1,
         33 * SCAN_TILE + 5, BLOCK + 77)  # fmt: skip
NUMPY = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def whole(shape: Any, dtype: str = "int32") -> Any:
    return RNG.integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", NUMPY)
def test_numpy_s_answers_of_integers(op: str, size: int) -> None:
    x = whole(size)
    want = NUMPY[op].accumulate(x)
    assert_same(itf.scan(x, op).compute(), want)
    assert_same(itf.scan(x, op, reverse=True).compute(), NUMPY[op].accumulate(x[::-1])[::-1])
    got = itf.scan(x, op, exclusive=True).compute()
    assert_same(got[1:], want[:-1])
    assert not size or got[0] == OPS[op].identity(want.dtype)  # type: ignore[misc]


def test_names_of_numpy_and_of_the_standard() -> None:
    x = whole((3, 5, 7))
    lazy = itf.asarray(x)
    for axis in (0, 1, -1, None):
        assert_same(np.cumsum(lazy, axis).compute(), np.cumsum(x, axis))
        assert_same(lazy.cumprod(axis).compute(), np.cumprod(x, axis))
    for axis in (0, 1, 2):
        for initial in (False, True):
            got = itf.cumulative_sum(x, axis=axis, include_initial=initial).compute()
            assert_same(got, np.cumulative_sum(x, axis=axis, include_initial=initial))
        got = np.cumulative_prod(lazy, axis=axis, dtype="f4").compute()
        assert_same(got, np.cumulative_prod(x, axis=axis, dtype="f4"))
        assert_same(itf.cummax(x, axis).compute(), np.maximum.accumulate(x, axis))
    assert_same(itf.cumulative_sum(x[0, 0]).compute(), np.cumulative_sum(x[0, 0]))
    nan = np.array([1.0, np.nan, 2.0])
    assert_same(itf.nancumsum(nan).compute(), np.nancumsum(nan))
    assert_same(itf.cummin(nan).compute(), np.minimum.accumulate(nan))
    assert_same(itf.cumsum(np.array([-0.0, -0.0])).compute(), np.array([-0.0, -0.0]))
    assert_same(itf.scan(x > 3, "any", 1).compute(), np.logical_or.accumulate(x > 3, 1))
    for wrong in (lambda: itf.cumulative_sum(x), lambda: itf.scan(3, "sum"),
                  lambda: itf.scan(x, "mean")):  # fmt: skip
        with pytest.raises(itf.ShapeError):
            wrong()
    with pytest.raises(itf.AxisError):
        itf.scan(x, "sum", 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    x = np.asarray(whole((40, 333)), dtype) if dtype != "bool" else whole((40, 333)) > 0
    for op in ("sum", "max"):
        want = NUMPY[op].accumulate(x.astype("f8" if dtype == "bfloat16" else x.dtype), -1)
        got = itf.scan(x, op).compute()
        if op == "sum" and dtype in ("float16", "bfloat16"):  # whole, and exact to 256
            small = abs(want.astype("f8")) < 256
            assert got.dtype == x.dtype
            assert (got.astype("f8")[small] == want.astype("f8")[small]).all()
        else:
            assert_same(got, want.astype(got.dtype) if dtype == "bfloat16" else want)


def test_a_value_follows_from_the_elements_before_it() -> None:
    x = RNG.standard_normal(40 * SCAN_TILE + 9).astype("f4")
    full = itf.cumsum(x).compute()
    for k in (1, 17, 700, SCAN_TILE, SCAN_TILE + 1, 33 * SCAN_TILE):
        assert full[:k].tobytes() == itf.cumsum(x[:k]).compute().tobytes()
    rows = np.stack([x, x[::-1]])
    assert itf.cumsum(rows, 1).compute()[0].tobytes() == full.tobytes()
    assert itf.cumsum(rows.T, 0).compute()[:, 0].tobytes() == full.tobytes()
    with itf.config(threads=1):
        assert itf.cumsum(x).compute().tobytes() == full.tobytes()
    exact = np.cumsum(x.astype("f8"))
    assert np.abs(full - exact).max() < 1e-3


def test_what_is_computed_before_and_after_is_one_pass() -> None:
    x = itf.asarray(whole((50, 20), "f8"))
    plan = itf.plan((x * x).cumsum(1) / 3 + x)
    assert (plan.passes, plan.bytes_read, plan.bytes_written) == (1, 8000, 8000)
    s = x.cumsum(0)
    several = itf.plan(s, s * 2, s > 0)
    assert (several.passes, several.bytes_moved) == (1, 8000 * 3 + 1000)
    a, b, c = itf.compute(s, s * 2, s > 0)
    want = np.cumsum(x.compute(), 0)
    assert_same(a, want)
    assert_same(b, want * 2)
    assert_same(c, want > 0)
    assert itf.plan((x - x.mean()).cumsum(1)).passes == 2
    rows = itf.buffered(itf.cumsum(x, 1))
    twice = itf.cumsum(rows, 0) + rows
    assert itf.plan(twice).passes == 2
    assert_same(
        twice.compute(), np.cumsum(np.cumsum(x.compute(), 1), 0) + np.cumsum(x.compute(), 1)
    )
    assert_same(itf.sort(x.cumsum(1)).compute(), np.sort(np.cumsum(x.compute(), 1)))
    out = np.empty((50, 20), order="F")
    assert (x.cumsum(1) * 2).compute(out=out) is out
    assert_same(out, np.cumsum(x.compute(), 1) * 2)
    out[...] = 0
    assert x.cumsum(1).compute(out=out) is out
    assert_same(out, np.cumsum(x.compute(), 1))
    inside = x.compute().copy()
    itf.cumsum(inside, 1).compute(out=inside)
    assert_same(inside, np.cumsum(x.compute(), 1))
    f = itf.fuse(lambda x: x.cumsum(-1) * 2)
    assert_same(f(x.compute()), np.cumsum(x.compute(), -1) * 2)


def test_a_scan_carries_the_reductions_beside_it() -> None:
    x = itf.asarray(whole((50, 20), "f4"))
    v, i = x.compute().astype("f8"), itf.asarray(whole(999, "i8"))
    many = 4 * 1000
    for lazy, want, passes, read, written, between in (
        (x.cumsum(1) / x.sum(), np.cumsum(v, 1) / v.sum(), 2, 2 * many + 4, many + 4, 4),
        ((x - x.mean()).cumsum(0) / x.std(), np.cumsum(v - v.mean(), 0) / v.std(),
         2, 2 * many + 8, many + 8, 8),
        (x.cumsum(1) / x.sum(1)[:, None], np.cumsum(v, 1) / v.sum(1)[:, None],
         2, 2 * many + 200, many + 200, 200),
        (itf.cumsum(itf.softmax(x), 1), None, 2, 2 * many + 400, many + 400, 400),
    ):  # fmt: skip
        plan = lazy.plan()
        moved = plan.bytes_read, plan.bytes_written, plan.bytes_temporary
        assert (plan.passes, *moved) == (passes, read, written, between), itf.explain(lazy)
        if want is not None:
            np.testing.assert_allclose(lazy.compute(), want, 2e-5, 2e-5)
    # What else is asked for of x joins the pass of the sum, and nothing is computed twice.
    asked = (x.cumsum(1) / x.mean(), x.mean(), x.max())
    plan = itf.plan(*asked)
    assert [stage.primitive for stage in plan.stages] == ["reduce", "scan"]
    assert (plan.bytes_read, plan.bytes_temporary) == (2 * many + 4, 0)
    got = itf.compute(*asked)
    np.testing.assert_allclose(got[0], np.cumsum(v, 1) / v.mean(), 2e-5)
    assert_same(got[2], np.max(x.compute()))
    # A distribution: of counts, which are few.
    counts = itf.bincount(i % 9, length=9)
    plan = itf.plan(counts.cumsum() / counts.sum())
    assert [stage.primitive for stage in plan.stages] == ["histogram", "reduce", "scan"]
    few = np.bincount(i.compute() % 9, minlength=9)
    assert_same((counts.cumsum() / counts.sum()).compute(), few.cumsum() / few.sum())


LAST = """
template <typename T> T last(T a, T b) { return b != b ? a : b; }
"""  # the last number that is not NaN: associative, not commutative


def test_operators_of_one_s_own() -> None:
    last = itf.cpp_function(LAST, numpy=lambda a, b: np.where(np.isnan(b), a, b))
    x = RNG.standard_normal(9000)
    x[RNG.random(9000) < 0.5] = np.nan
    got = itf.scan(x, last, identity=np.nan).compute()
    at = np.maximum.accumulate(np.where(np.isnan(x), -1, np.arange(9000)))
    assert_same(got, np.where(at < 0, np.nan, x[at]))
    assert_same(
        itf.scan(np.array([12, 18, 27]), np.gcd, identity=0).compute(), np.array([12, 6, 3])
    )
    with pytest.raises(TypeError, match="scan"):
        itf.scan(x, 3, identity=0)
    assert "scan(a, last)" in itf.explain(itf.scan(x, last, identity=np.nan))


# ---- the kernel ------------------------------------------------------------------------------
def cases() -> list[tuple[str, itf.Array]]:
    found: list[tuple[str, itf.Array]] = []
    for shape in ((5,), (16,), (3, 1), (9, 2), (7, 33), (3, 700), (SCAN_TILE,), (2, SCAN_TILE + 3),
                  (70 * SCAN_TILE + 1,)):  # fmt: skip
        x = itf.asarray(RNG.standard_normal(shape).astype("f4"))
        for options in ({}, {"reverse": True}, {"exclusive": True},
                        {"reverse": True, "exclusive": True}):  # fmt: skip
            if len(options) < 2 or shape[-1] < 1000:
                found.append((f"{shape} {options}", itf.scan(x * 2, "sum", **options) + x))
    y = RNG.standard_normal((6, 7, 19))
    for axis in (0, 1):
        found.append((f"axis {axis}", itf.scan(itf.asarray(y), "sum", axis) * 2))
    found.append(("strided", itf.scan(itf.asarray(y[::2, ::-1, 1:]), "prod", 2)))
    for dtype in DTYPES:
        x = edge_values(dtype, 5000, 3)
        found.append((dtype, itf.scan(itf.asarray(x), "sum")))
        found.append((f"max {dtype}", itf.scan(itf.asarray(x.reshape(50, 100)), "max")))
    last = itf.cpp_function(LAST, numpy=lambda a, b: np.where(np.isnan(b), a, b))
    found.append(("an operator", itf.scan(itf.asarray(y[0]), last, 0, identity=np.nan)))
    z = itf.asarray(y[0])
    found.append(("a sum beside it", (z - z.mean()).cumsum(1) / z.sum()))
    found.append(("sums of rows beside it", z.cumsum(1) / z.sum(1)[:, None]))
    long = itf.asarray(RNG.standard_normal(3 * SCAN_TILE).astype("f4"))
    found.append(("a sum beside a long row", long.cumsum() / long.sum()))
    found.append(("two dtypes", itf.scan(itf.asarray(y[0, 0]), "sum").astype("i4")))
    return found


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
def test_the_kernel_gives_the_same_bits() -> None:
    pairs = cases()
    plans = [plan_for("tile", lazy) for _, lazy in pairs]
    engine = HostEngine(plans)
    for (what, lazy), plan in zip(pairs, plans, strict=True):
        (got,) = engine.run(plan, lazy)
        want = lazy.compute()
        number = (got == got) | (want == want)  # noqa: PLR0124 - not NaN, whose sign is open
        assert got.dtype == want.dtype, what
        assert (np.isnan(got) == np.isnan(want)).all() if got.dtype.kind in "fcV" else True, what
        assert got[number].tobytes() == want[number].tobytes(), what


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_it_compiles_and_spills_nothing(arch: str) -> None:
    nvrtc.require()
    x, z = itf.spec(1 << 20, "f4"), itf.spec((100, 300), "c16")
    for lazy in (itf.cumsum(x * x) / 3, itf.cumsum(z, 0), itf.scan(z.real, "max", reverse=True)):
        (stage,) = plan_for("tile", lazy).stages
        _, report = nvrtc.compile_cubin(lower_tile(stage, "scan").source, arch)
        assert report.spilled == 0


@pytest.mark.gpu
def test_the_cases_on_the_gpu(cp: Any) -> None:
    from test_gpu import on_gpu

    for what, lazy in cases():
        got, want = on_gpu(lazy, cp).compute().get(), lazy.compute()
        number = (got == got) | (want == want)  # noqa: PLR0124
        assert got[number].tobytes() == want[number].tobytes(), what


@pytest.mark.gpu
def test_one_result_in_100_runs(cp: Any) -> None:
    x = cp.random.default_rng(1).standard_normal(1 << 26, dtype="f4")
    lazy = itf.cumsum(itf.asarray(x) * itf.asarray(x))
    first = lazy.compute()
    host = x.get()
    assert first.get().tobytes() == itf.cumsum(host * host).compute().tobytes()
    for _ in range(100):
        assert bool((lazy.compute() == first).all())


def test_the_order_that_the_docs_give() -> None:
    """The code of docs/determinism.md gives the engine's bits."""
    import itertools
    from pathlib import Path

    text = (Path(__file__).parents[1] / "docs" / "determinism.md").read_text()
    (code,) = [part for part in text.split("```python\n") if part.startswith("def scan")]
    names: dict[str, Any] = {"np": np, "itertools": itertools}
    exec(code.partition("```")[0], names)
    for size in (1, 17, 600, 5000, 150_001):
        for dtype in ("f4", "f8"):
            x = RNG.standard_normal(size).astype(dtype)
            got = itf.cumsum(x).compute()
            assert got.tobytes() == names["scan"](x, np.add).tobytes(), (size, dtype)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax"])
def test_scans_of_reshaped_views(name: str) -> None:
    """An axis that is scanned stays whole: the places of its elements are computed."""
    z = np.random.default_rng(1).integers(0, 3, (4, 6))
    places = np.array([[1], [0], [2], [5]])
    views: tuple[Any, ...] = (
        lambda m, x: x.T.reshape(24), lambda m, x: (x.T + 1).reshape(8, 3)[::-1],
        lambda m, x: m.broadcast_to(x.reshape(1, 4, 1, 6), (2, 4, 1, 6)).reshape(8, 6),
        lambda m, x: m.take_along_axis(x, places, 1).T.reshape(4), lambda m, x: x.T.reshape(3, 8).T,
    )  # fmt: skip
    scan = {"cummax": np.maximum.accumulate}.get(name, getattr(np, name, None))
    for view in views:
        want = view(np, z)
        for axis in range(want.ndim):
            lazy = getattr(itf, name)(view(itf, itf.asarray(z)), axis=axis)
            assert_same(lazy.compute(), scan(want, axis=axis))
            assert itf.plan(lazy).passes == 1
