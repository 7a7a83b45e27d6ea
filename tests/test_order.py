"""Histograms, sorts, segments and placement: NumPy's answer, the passes and their bytes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import fake_cupy, host_cpp, nvrtc, stub_driver
from support.generated import HostEngine, plan_for

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.engines.tape import BLOCK
from itfuse.lower import lower_tile
from itfuse.testing import assert_same

REAL = [name for name in DTYPES if not name.startswith("complex") and name != "bool"]
RNG = np.random.default_rng(7)


def numbers(shape: Any, dtype: str, nan: bool = True) -> Any:
    """Return random numbers with ties, and NaN of both signs where there are any."""
    x = np.rint(RNG.standard_normal(shape) * 20).astype(dtype)
    if nan and x.dtype.kind in "fcV" and x.size > 5:
        x.reshape(-1)[[1, -2]] = np.nan
        x.reshape(-1)[3] = -x.reshape(-1)[1]
    return x


def equal(got: Any, want: Any, what: object = "") -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, (what, got.dtype, want.dtype)
    assert got.shape == want.shape, (what, got.shape, want.shape)
    if want.dtype.name == "bfloat16":
        got, want = got.astype("f4"), want.astype("f4")
    assert np.array_equal(got, want, equal_nan=want.dtype.kind in "fc"), (what, got, want)


# ---- counting --------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64"])
def test_bincount(dtype: str) -> None:
    for size in (0, 1, 1000, BLOCK + 77):
        x = RNG.integers(0, 100, size).astype(dtype)
        weights = RNG.standard_normal(size)
        equal(itf.bincount(x).compute(), np.bincount(x), size)
        equal(itf.bincount(x, minlength=300).compute(), np.bincount(x, minlength=300))
        equal(itf.bincount(x, weights).compute(), np.bincount(x, weights))
        equal(np.bincount(itf.asarray(x), minlength=7).compute(), np.bincount(x, minlength=7))


def test_bincount_of_any_layout_and_known_length() -> None:
    x = RNG.integers(0, 9, (60, 50))
    lazy = itf.asarray(x).T[::-1, ::2].ravel() * 2
    equal(itf.bincount(lazy).compute(), np.bincount(x.T[::-1, ::2].ravel() * 2))
    far = np.array([-1, 0, 5, 2, 1 << 40])
    equal(itf.bincount(far, length=4).compute(), np.array([1, 0, 1, 0]))
    equal(itf.bincount(np.arange(3), length=0).compute(), np.zeros(0, int))
    f = itf.fuse(lambda a: itf.bincount(a % 7, length=7) * 2)
    equal(f(x.ravel()), np.bincount(x.ravel() % 7, minlength=7) * 2)
    equal(f(x.ravel()), np.bincount(x.ravel() % 7, minlength=7) * 2)


BINS: list[dict[str, Any]] = [
    {},
    {"bins": 7},
    {"bins": 33, "range": (-30, 20)},
    {"bins": [-20, -1, 0, 0.5, 0.5, 30]},
    {"bins": 1, "range": (5, 5)},
    {"bins": np.array([3])},
    {"bins": 5, "range": (-30.0, 7.5), "density": True},
    {"bins": [-20.0, 3, 30], "density": True},
]


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int64", "float16", "float32", "float64"]
)
def test_histogram(dtype: str) -> None:
    for size in (0, 1, 70_001):
        a = numbers(size, dtype, nan=False)
        for options in BINS:
            counts, edges = itf.histogram(a, **options)
            with np.errstate(all="ignore"):
                want, want_edges = np.histogram(a if dtype != "bool" else a.astype("u1"), **options)
            equal(edges, want_edges, options)
            got = counts.compute()
            if options.get("density"):
                np.testing.assert_allclose(got, want, rtol=1e-14)
            else:
                equal(got, want, (size, options))
    wide = np.arange(-128, 128, dtype="i1")
    equal(itf.histogram(wide, 7, (-300, 90))[0].compute(), np.histogram(wide, 7, (-300, 90))[0])
    holes = numbers(1000, "float32")
    equal(itf.histogram(holes, 9, (-9, 9))[0].compute(), np.histogram(holes, 9, (-9, 9))[0])
    equal(np.histogram(itf.asarray(holes), [0, 3])[0].compute(), np.histogram(holes, [0, 3])[0])


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "float64", "complex128"])
def test_weights_are_added_as_numpy_adds_them(dtype: str) -> None:
    a = RNG.standard_normal(BLOCK + 70_000)
    weights = (RNG.standard_normal(a.size) * 9).astype(dtype)
    for options in ({"bins": 12}, {"bins": 5, "range": (-1, 2)}):
        got, _ = itf.histogram(a, weights=weights, **options)  # type: ignore[arg-type]
        equal(got.compute(), np.histogram(a, weights=weights, **options)[0])  # type: ignore[call-overload]
    if dtype != "bool":
        got, _ = itf.histogram(a, bins=[-1, 0, 0.3], weights=weights)
        want, _ = np.histogram(a, bins=[-1, 0, 0.3], weights=weights)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.compute(), want, rtol=1e-4, atol=0.5)


def test_histograms_of_several_axes() -> None:
    x, y = RNG.standard_normal((2, 5000))
    x[:10] = 1.0
    cases: list[dict[str, Any]] = [
        {}, {"bins": (3, 4)}, {"bins": 5, "range": [(-1, 1), (0, 1)]}, {"density": True},
        {"weights": y}, {"bins": [np.array([-1, 0, 0.1, 1]), 4]}, {"bins": np.linspace(-1, 1, 5)},
    ]  # fmt: skip
    for options in cases:
        got, want = itf.histogram2d(x, y, **options), np.histogram2d(x, y, **options)
        for a, b in zip(got[1:], want[1:], strict=True):
            equal(a, b, options)
        np.testing.assert_allclose(got[0].compute(), want[0], rtol=1e-13)
        assert got[0].dtype == want[0].dtype
    sample = np.stack([x, y, x + y], 1)
    got_dd, edges = itf.histogramdd(sample, bins=(3, 2, 4))
    want_dd, want_edges = np.histogramdd(sample, bins=(3, 2, 4))
    equal(got_dd.compute(), want_dd)
    for a, b in zip(edges, want_edges, strict=True):
        equal(a, b)


def test_digitize() -> None:
    for dtype in ("int32", "float32", "float64"):
        x = numbers((40, 5), dtype)
        for bins in ([0.0], [-20, -3, 0, 5, 5, 17.5], [9.0, 4, 4, -3], [1, 1]):
            for right in (False, True):
                want = np.digitize(x, bins, right)
                equal(itf.digitize(x, bins, right).compute(), want, (bins, right))
    assert itf.plan(itf.digitize(itf.asarray(x), [1, 2]) + 1).passes == 1


# ---- order -----------------------------------------------------------------------------------
SHAPES = [(1,), (7,), (3, 4, 5), (1, 6), (0,), (3, 0), (2, 3001)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_and_argsort(dtype: str) -> None:
    for shape in SHAPES:
        a = numbers(shape, dtype)
        for lazy in (itf.asarray(a), itf.asarray(a)[..., ::-1] * 1):
            x = lazy.compute()
            for axis in (-1, 0, None):
                what = (shape, axis)
                equal(itf.sort(lazy, axis).compute(), np.sort(x, axis), what)
                want = np.argsort(x, axis, kind="stable")
                equal(itf.argsort(lazy, axis).compute(), want, what)
                if not a.size:
                    continue
                along = -1 if axis is None else axis
                flat = x.ravel() if axis is None else x
                down = itf.argsort(lazy, axis, descending=True).compute()
                equal(down, _descending(flat, along), what)
                got = itf.sort(lazy, axis, descending=True).compute()
                equal(got, np.take_along_axis(flat, down, along), what)


def _descending(x: Any, axis: int) -> Any:
    """Return the order of a stable descending sort."""
    turned = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - turned, axis)


def test_topk_kthvalue_and_sort_by_key() -> None:
    x = numbers((6, 50), "float32", nan=False)
    for axis in (0, 1):
        for k in (0, 1, 4, x.shape[axis]):
            values, indices = itf.topk(x * 1, k, axis)
            want = np.take(_descending(x, axis), range(k), axis)
            equal(indices.compute(), want)
            equal(values.compute(), np.take_along_axis(x, want, axis))
        values, indices = itf.topk(x, 3, axis, largest=False)
        equal(values.compute(), np.take(np.sort(x, axis), range(3), axis))
        value, index = itf.kthvalue(x, 5, axis, keepdims=True)
        equal(value.compute(), np.take(np.sort(x, axis), [4], axis))
        equal(np.take_along_axis(x, index.compute(), axis), value.compute())
    keys, values = RNG.integers(0, 9, 300), RNG.standard_normal((300, 2))
    got = itf.compute(*itf.sort_by_key(keys, values, values[:, 0] * 2))
    order = np.argsort(keys, kind="stable")
    for one, want in zip(got, (keys, values, values[:, 0] * 2), strict=True):
        equal(one, want[order])


@pytest.mark.parametrize("dtype", ["bool", *REAL])
def test_median(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.skip("NumPy's mean of bfloat16 has another rounding")
    for shape in SHAPES:
        a = numbers(shape, dtype)
        for axis in (None, 0, -1, (0, -1))[: 3 if len(shape) == 1 else 4]:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # of empty slices
                want = np.median(a, axis, keepdims=True)
            equal(itf.median(a, axis, keepdims=True).compute(), want, (shape, axis))
    equal(np.median(itf.asarray(a)).compute(), np.median(a))


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(method: str) -> None:
    options: dict[str, Any] = {"method": method}
    for dtype in ("int16", "uint8", "float32", "float64"):
        for shape in ((1,), (3, 4, 5), (2, 301)):
            a = numbers(shape, dtype, nan=shape == (2, 301))
            for axis in (None, 0, -1):
                for q in (0.3, 1, [0, 0.5, 1.0], np.array([0.1, 0.9]), []):
                    want = np.quantile(a, q, axis, **options)
                    got = itf.quantile(a, q, axis, **options).compute()
                    if np.isnan(want).any() or not np.size(q):  # of one NaN, NumPy keeps a dtype
                        np.testing.assert_array_equal(got, want)
                    else:
                        equal(got, want, (dtype, shape, axis, q))
    equal(itf.percentile(a, 30, -1).compute(), np.percentile(a, 30, -1))


# ---- segments --------------------------------------------------------------------------------
def lengths() -> Any:
    short = RNG.integers(0, 20, 500)
    return np.concatenate([[0, 0], short, [2 * BLOCK + 5, 0, 0], RNG.integers(0, 3000, 50), [0]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_segments(dtype: str) -> None:
    many = lengths()
    offsets = np.concatenate([[0], np.cumsum(many)])
    ids = np.repeat(np.arange(many.size), many)
    x = (RNG.standard_normal(ids.size) * 3).astype(dtype)
    ops: dict[str, Any] = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}
    wide = np.dtype("f4") if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else None
    for op, numpy in ops.items():
        got = itf.segment_reduce(x, op, offsets).compute()
        by_id = itf.segment_reduce(x, op, segment_ids=ids, num_segments=many.size, check=True)
        assert by_id.compute().tobytes() == got.tobytes()
        assert got.dtype == (numpy(x[:1]).dtype if wide is None else x.dtype)
        for k in [*range(0, many.size, 41), 2, 502]:
            part = x[offsets[k] : offsets[k + 1]]
            if part.size == 0:
                continue
            with np.errstate(all="ignore"):
                want = numpy(part if wide is None else part.astype(wide))
                if np.isfinite(want) and abs(want) < 1e4:
                    np.testing.assert_allclose(
                        got[k].astype(want.dtype), want, rtol=2e-2 if wide else 1e-4,
                        atol=0.3 if wide else 1e-2,
                    )  # fmt: skip
    assert (itf.segment_sum(x, offsets).compute()[many == 0] == 0).all()


def test_segments_of_nothing_and_means() -> None:
    equal(itf.segment_min(np.ones(3), [0, 0, 3, 3]).compute(), np.array([np.inf, 1, np.inf]))
    equal(itf.segment_max(np.ones(3, "i4"), [1, 1]).compute(), np.array([-(1 << 31)], "i4"))
    equal(itf.segment_sum(np.ones(0), [0]).compute(), np.zeros(0))
    equal(itf.segment_sum(np.ones(0), [0, 0]).compute(), np.zeros(1))
    equal(itf.segment_mean(np.arange(4), [0, 1, 1, 4]).compute(), np.array([0.0, np.nan, 2.0]))
    equal(itf.segment_mean(np.ones(3, "f2"), segment_ids=[0, 2, 2]).compute(),
          np.array([1, np.nan, 1], "f2"))  # fmt: skip
    equal(itf.segment_reduce(np.arange(4) > 2, "any", [0, 2, 4]).compute(), np.array([False, True]))


def test_runs() -> None:
    lone = np.array([5.0])
    for keys in (np.zeros(0), lone, np.repeat(RNG.integers(0, 4, 900), RNG.integers(1, 700, 900))):
        values, counts = itf.run_length_encode(keys)
        equal(np.repeat(values, counts), keys)
        assert not (values[1:] == values[:-1]).any()
        weight = np.arange(keys.size)
        found, sums = itf.reduce_by_key(keys, weight * 2)
        equal(found, values)
        starts = np.concatenate([[0], np.cumsum(counts)])[: values.size]
        equal(sums, np.add.reduceat(weight * 2, starts) if keys.size else np.zeros(0, int))
    values, counts = itf.run_length_encode([1.0, np.nan, np.nan])
    assert counts.tolist() == [1, 1, 1]


def test_terminals_of_terminals_and_selections_of_them() -> None:
    x = numbers(5000, "float64", nan=False)
    lazy = itf.buffered(itf.sort(itf.asarray(x) * 2))
    equal(lazy[lazy > 3].compute(), np.sort(x * 2)[np.sort(x * 2) > 3])
    equal(itf.sort(itf.asarray(x)[x > 0]).compute(), np.sort(x[x > 0]))
    order = itf.buffered(itf.argsort(x))
    equal(itf.bincount(order % 7, length=7).compute(), np.bincount(np.argsort(x) % 7))
    counts = itf.sort(itf.bincount(abs(x).astype("i8")), descending=True)
    equal(counts[:3].compute(), np.sort(np.bincount(abs(x).astype("i8")))[:-4:-1])
    total, order = itf.compute(lazy.sum(), itf.argsort(itf.asarray(x) * 2))
    np.testing.assert_allclose(total, (x * 2).sum())
    equal(order, np.argsort(x * 2, kind="stable"))


# ---- placement -------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "float32", "float64"])
def test_put(dtype: str) -> None:
    base, index = numbers((10, 10), dtype, nan=False), RNG.integers(-100, 100, BLOCK + 99)
    values = numbers(index.size, dtype, nan=False)
    for mode, at in {"add": np.add, "min": np.minimum, "max": np.maximum}.items():
        want = base.copy()
        at.at(want.reshape(-1), index, values)
        equal(itf.put(base, index, itf.asarray(values) + 0, mode).compute(), want, mode)
    want = base.copy()
    np.put(want, index, values)
    equal(itf.put(base, index, values).compute(), want)
    own = base.copy()
    assert itf.put(own, index, values).compute(out=own) is own
    equal(own, want)
    equal(itf.put(base, [[0], [3]], [1, 2]).compute(), np.put(base, [0, 0, 3, 3], [1, 2, 1, 2])
          or base)  # fmt: skip
    equal(itf.put(base, np.zeros(0, int), np.zeros(0)).compute(), base)
    equal(itf.put(np.zeros(3, dtype), -1, 5).compute(), np.array([0, 0, 5], dtype))
    equal(itf.put(np.zeros((), dtype), 0, 5).compute(), np.array(5, dtype))


# ---- passes, bytes and texts -----------------------------------------------------------------
def test_passes_and_bytes() -> None:
    n = 1 << 20
    x, i = itf.spec((n,), "float32"), itf.spec((n,), "int32")
    assert _figures(itf.bincount(i % 100, length=100)) == (1, 4 * n, 800)
    assert _figures(itf.bincount(i, length=100) / 2) == (2, 4 * n + 800, 1600)
    counts, _ = itf.histogram(x * 2, 64, (0, 1))
    assert _figures(counts)[0] == 1
    assert 4 * n <= _figures(counts)[1] <= 4 * n + 2 * 65 * 8
    with itf.config(engine="cpu"):
        host = itf.asarray(np.ones(n, "f4"))
    assert _figures(itf.sort(host)) == (1, 4 * n, 4 * n)
    assert _figures(itf.sort(host * 2)) == (2, 8 * n, 8 * n)
    both = itf.plan(itf.sort(host * 2), itf.argsort(host * 2))
    assert (both.passes, both.bytes_written) == (2, 16 * n)
    assert _figures(itf.median(host))[0] == 2
    offsets = itf.asarray(np.arange(0, n + 1, 1024))
    assert _figures(itf.segment_sum(host * host, offsets)) == (1, 4 * n + 8 * 1025, 4 * 1024)
    assert _figures(itf.put(host, itf.asarray(np.zeros(9, int)), 1.0, "add"))[0] == 1
    again = itf.plan(itf.sort(host), itf.sort(host))  # two arrays, as in NumPy
    assert again.passes == 2


def _figures(x: itf.Array) -> tuple[int, int, int]:
    plan = x.plan()
    return plan.passes, plan.bytes_read, plan.bytes_written


def test_explain(golden: Callable[[str, str], None]) -> None:
    x, i = itf.spec((1 << 20, 64), "float32"), itf.spec((1 << 20,), "int32")
    cases = [
        itf.explain(itf.bincount(i + 1, length=256) / (1 << 20)),
        itf.explain(itf.sort(x * 2), itf.argsort(x * 2)),
        itf.explain(itf.segment_sum(x[:, 0] ** 2, itf.spec((1001,), "int64"))),
        itf.explain(itf.put(itf.spec((99,), "float32"), i, x[:, 1], "add")),
    ]
    golden("explain_terminals.txt", "\n\n".join(cases) + "\n")


def test_a_picture_shows_the_algorithm() -> None:
    x = itf.asarray(np.ones((6, 5)))
    shown = itf.visualize(itf.median(x * 2, 1), itf.put(np.zeros(3), [1, 2], 4.0, "add")).dot
    assert "sort" in shown and "scatter" in shown and "multiply" in shown


def test_notes_and_limits() -> None:
    x = itf.asarray(np.ones((4, 5)))
    plan = itf.plan(itf.sort(x * 2))
    assert [note.reason for note in plan.notes] == ["materialized", "needs-result"]
    with pytest.raises(itf.NeedsBuffer, match="writes a \\* 2"):
        itf.sort(x * 2).compute(max_passes=1)
    i, w = itf.spec((9,), "int64"), itf.spec((9,), "float64")
    weighted = itf.bincount(i, w, length=3)
    assert "not_guaranteed" in next(
        note.text for note in weighted.plan().notes if note.reason == "determinism"
    )
    with itf.config(determinism="not_guaranteed"):
        allowed = itf.plan(weighted)
    assert allowed.passes == 1
    assert "run to run" in next(n.text for n in allowed.notes if n.reason == "determinism")
    for mode, dtype, noted in (("add", "float32", 1), ("add", "int32", 0), ("set", "int32", 1)):
        placed = itf.plan(itf.put(itf.spec((9,), dtype), i, 1, mode))
        assert [note.reason for note in placed.notes].count("determinism") == noted


X = itf.asarray(np.ones((4, 5)))
ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: itf.bincount([1, -1]), ValueError, "-1"),
    (lambda: itf.bincount([1.5]), TypeError, "safely"),
    (lambda: itf.bincount(X), ValueError, "axes"),
    (lambda: itf.bincount([1], [1.0, 2.0]), ValueError, "weights"),
    (lambda: itf.bincount(itf.spec((3,), "int64")), itf.DeviceError, "give the size"),
    (lambda: itf.histogram(X, [2, 1]), ValueError, "decrease"),
    (lambda: itf.histogram(X, 3, (0, np.inf)), ValueError, "finite"),
    (lambda: itf.histogram([np.nan]), ValueError, "finite"),
    (lambda: itf.histogram(X, 0), ValueError, "positive"),
    (lambda: itf.histogram(X, "auto"), NotImplementedError, "histogram_bin_edges"),
    (lambda: itf.histogram(X, weights=[1]), ValueError, "weights"),
    (lambda: itf.digitize(X, [1, 3, 2]), ValueError, "ascend or descend"),
    (lambda: itf.sort(X, 2), itf.AxisError, "sort"),
    (lambda: itf.sort(np.float32(1)), ValueError, "0-d"),
    (lambda: itf.sort(X, kind="fast"), ValueError, "kind"),
    (lambda: itf.topk(X, 6), ValueError, "5 elements"),
    (lambda: itf.kthvalue(X, 0), ValueError, "counted from 1"),
    (lambda: itf.quantile(X, 1.5), ValueError, "range"),
    (lambda: itf.quantile(X, 0.5, method="hazen"), NotImplementedError, "linear"),
    (lambda: itf.sort_by_key([1, 2], [1]), ValueError, "shape"),
    (lambda: itf.segment_sum(X, [0, 1]), ValueError, "ravel"),
    (lambda: itf.segment_sum(X[0]), ValueError, "either"),
    (lambda: itf.segment_reduce(X[0], "mode", [0]), ValueError, "no reduction"),
    (lambda: itf.segment_sum(X[0], [0, 3, 2], check=True), ValueError, "fall"),
    (lambda: itf.segment_sum(X[0], [0, 9], check=True), ValueError, "from 0 to 9"),
    (lambda: itf.segment_sum(X[0], segment_ids=[0, 1, 0, 2, 2], check=True), ValueError, "ascend"),
    (lambda: itf.reduce_by_key([1, 2], [1]), ValueError, "one length"),
    (lambda: itf.put(X, [20], 1).compute(), IndexError, "20"),
    (lambda: itf.put(X, [-21], 1).compute(), IndexError, "-1"),
    (lambda: itf.put(X, [0.5], 1), TypeError, "safely"),
    (lambda: itf.put(X, [0], 1, "mul"), NotImplementedError, "add"),
    (lambda: np.put(X, [0], 1), NotImplementedError, "put"),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(ERRORS)))
def test_errors(at: int) -> None:
    call, kind, words = ERRORS[at]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert isinstance(caught.value, itf.ItfuseError)


# ---- the GPU's code, without a GPU -----------------------------------------------------------
def device_cases() -> list[itf.Array]:
    """Return expressions whose results do not depend on the order of atomic operations."""
    a = itf.asarray
    i, f = RNG.integers(-9, 300, 4000), numbers(4000, "float32")
    sample = itf.histogram2d(f, a(f) * 2, 5, range=[(-9, 9), (-9, 9)])[0]
    cases = [
        itf.bincount(a(i) + 5, length=200),
        itf.bincount(a(abs(i)).reshape(40, 100).T.ravel(), length=5000),
        itf.histogram(f, 10, (-20, 20))[0], itf.histogram(a(i) * 2, [-3, 0, 0.5, 40])[0], sample,
    ]  # fmt: skip
    places = a(RNG.integers(-40, 40, 999))
    for dtype, mode in (("float32", "add"), ("int32", "add"), ("float64", "min"), ("uint64", "max"),
                        ("int64", "add"), ("float32", "max"), ("int32", "min")):  # fmt: skip
        base, more = numbers((4, 10), dtype, nan=False), numbers(999, dtype, nan=dtype == "float32")
        more = np.nan_to_num(more) if mode == "add" else more
        cases.append(itf.put(base, places, a(more), mode))
    for dtype in ("bool", "complex128"):
        cases.append(itf.put(numbers(40, dtype), a(RNG.permutation(40)), numbers(40, dtype)))
    for dtype in ("float32", "float16", "int16"):
        rows = a(numbers((3, 30), dtype))
        rows = itf.negative(rows)
        cases += [itf.sort(rows), itf.argsort(rows[0], descending=True), itf.sort(rows[1])]
        cases += [itf.argsort(rows, descending=True)]
    cases += [itf.median(f, axis=0), itf.segment_sum(f, np.array([0, 3, 3, 4000]))]
    return cases


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")
def test_generated_code_on_the_host() -> None:
    cases = device_cases()
    plans = [plan_for("auto", one) for one in cases]
    engine = HostEngine(plans)
    for one, plan in zip(cases, plans, strict=True):
        equal(engine.run(plan, one)[0], one.compute(), one)


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not() or "-")
def test_the_engine_prepares_what_kernels_add_to() -> None:
    i, x = RNG.integers(0, 50, 3000), np.arange(3000.0)
    with fake_cupy.installed() as cupy:
        counts = itf.bincount(itf.asarray(cupy.asarray(i)), length=50)
        assert_same(counts.compute(), np.bincount(i, minlength=50))
        base = cupy.asarray(np.zeros(50))
        put = itf.put(base, cupy.asarray(i), cupy.asarray(x), "max")
        want = np.zeros(50)
        np.maximum.at(want, i, x)
        assert_same(put.compute(), want)
        assert_same(base, np.zeros(50))
        assert put.compute(out=base) is base
        assert_same(base, want)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_kernels_compile(arch: str) -> None:
    nvrtc.require()
    n = itf.spec((1 << 20,), "int32")
    f = itf.spec((1 << 20,), "float64")
    modes = {"float32": "min", "float64": "add", "int64": "max", "int8": "set"}
    made = [itf.put(itf.spec((9,), name), n, f.astype(name), mode) for name, mode in modes.items()]
    made.append(itf.bincount(n, length=9))
    for at, one in enumerate(made):
        (stage,) = one.plan().stages
        _, report = nvrtc.compile_cubin(lower_tile(stage, f"k{at}").source, arch)
        assert report.spilled == 0


BUILD = """
import numpy as np
import itfuse as itf
from support.generated import plan_for
from itfuse.engines.cuda.cub import CubBuilt
from itfuse.lower.cpp import lower

x = itf.asarray(np.ones(40, "u4"))
for one in (itf.argsort(x),):
    stage = plan_for("auto", one).stages[-1]
    code = CubBuilt(stage, lower(stage, "itf_test"), "sm_90", [90]).serialize()
    print(stage.primitive, len(code) > 30_000, b"from_typesIjx" in code)
"""


@pytest.mark.skipif(bool(stub_driver.why_not()), reason=stub_driver.why_not() or "-")
def test_cuda_compute_builds(tmp_path: Any) -> None:
    nvrtc.require()
    done = stub_driver.run_with_stub(BUILD, tmp_path)
    assert done.returncode == 0, done.stderr
    # Its kernels are those of uint32 keys and int64 values, not of keys alone.
    assert done.stdout.splitlines() == ["sort True True"]
