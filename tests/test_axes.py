"""Reductions along axes and row programs: NumPy's answers, the passes and bytes of each."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.plan.order import LEAF
from itfuse.rows.statistics import STATISTICS
from itfuse.testing import assert_matches_numpy, assert_same, edge_values, random_expression

REDUCTIONS = ("sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "ptp", "argmin",
              "argmax", "count_nonzero", "nansum", "nanmean", "nanmin", "nanmax")  # fmt: skip
SHAPES = [(4, 8), (3, 5, 7), (1, 9), (9, 1), (33, 1000), (1000, 33), (2, 3, 1, 4), (0, 3), (3, 0)]
LAYOUTS = {
    "c": np.ascontiguousarray,
    "f": np.asfortranarray,
    "reversed": lambda x: x[::-1],
    "spread": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
}
ROUNDED = ("sum", "prod", "mean", "var", "std", "nansum", "nanmean")


def axes_of(ndim: int) -> list[Any]:
    several = [c for n in range(2, ndim + 1) for c in itertools.combinations(range(ndim), n)]
    return [None, *range(ndim), -1, *several]


def numpy_answer(name: str, x: np.ndarray, **options: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(getattr(np, name)(x, **options))
        except (ValueError, TypeError) as why:
            return why


def check(name: str, x: np.ndarray, **options: Any) -> None:
    what = f"{name} {x.dtype}{x.shape} {options}"
    want = numpy_answer(name, x, **options)
    if isinstance(want, Exception):
        kind = ValueError if isinstance(want, ValueError) else TypeError
        with pytest.raises(kind):
            getattr(itf, name)(x, **options)
        return
    lazy = getattr(itf, name)(x, **options)
    assert lazy.plan().passes == (1 if want.size else lazy.plan().passes), what
    got = lazy.compute()
    if want.dtype.kind == "f" and name in ROUNDED:
        assert (got.dtype, got.shape) == (want.dtype, want.shape), what
        if x.dtype == np.float32 and "dtype" not in options:  # the truth: NumPy's order is naive
            want = numpy_answer(name, x.astype(float), **options)
        rtol = 2e-5 if got.dtype == np.float32 else 1e-11
        scale = np.abs(x[np.isfinite(x)].astype(float)).max(initial=1)
        power = 2 if name == "var" else 1
        np.testing.assert_allclose(got, want, rtol, rtol * scale**power, err_msg=what)
    else:
        assert_same(got, want, what=what)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "float64"])
def test_every_reduction_along_every_axis(name: str, dtype: str) -> None:
    for number, shape in enumerate(SHAPES):
        x = edge_values(dtype, int(np.prod(shape)), number).reshape(shape)
        if x.dtype.kind == "f" and name in ROUNDED:
            x = np.random.default_rng(number).normal(size=shape).astype(dtype)
        if name == "prod" and x.dtype.kind == "f":
            x = (1 + x / 1000).astype(dtype)
        if x.dtype.kind == "f":
            x = x + 0  # a tie of zeros has no sign
        for layout in LAYOUTS.values():
            for axis in axes_of(x.ndim):
                if name.startswith("arg") and isinstance(axis, tuple):
                    continue
                check(name, layout(x), axis=axis)
            check(name, layout(x), axis=-1, keepdims=True)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_nan_ties_and_infinities(name: str) -> None:
    x = np.random.default_rng(0).integers(-2, 3, (40, 300)).astype(name)
    x[3, 250] = x[5, 0] = x[7, 299] = x[7, 10] = np.nan
    x[9] = np.nan
    x[11, 4] = np.inf
    x[12] = -np.inf
    x[13] = np.inf
    for reduction in REDUCTIONS:
        if reduction != "prod":
            for axis in (0, 1, None):
                check(reduction, x, axis=axis)
    safe = np.delete(x, 9, axis=0)  # NumPy raises for rows of nothing else
    for reduction in ("nanargmax", "nanargmin"):
        assert_same(getattr(itf, reduction)(safe, axis=1).compute(),
                    getattr(np, reduction)(safe, axis=1))  # fmt: skip


def test_dtype_ddof_initial_where() -> None:
    x = np.random.default_rng(1).integers(-9, 9, (6, 11)).astype("i2")
    f = x.astype("f4")
    mask = x > 0
    for axis in (0, 1, None, (0, 1)):
        for ddof in (1, 2.5, 6, 11, 70):
            check("var", f, axis=axis, ddof=ddof)
            check("std", x, axis=axis, ddof=ddof)
        for dtype in ("f4", "f8", "i4"):
            check("sum", x, axis=axis, dtype=dtype)
        check("mean", x, axis=axis, dtype="f4")
        check("var", f, axis=axis, dtype="f8")
        for name, start in (("sum", 5), ("prod", 2), ("min", 3), ("max", -3)):
            check(name, x, axis=axis, initial=start)
            check(name, f, axis=axis, initial=start)
            check(name, x, axis=axis, initial=start, where=mask)
            check(name, f, axis=axis, initial=start, where=mask[0])
        for name in ("sum", "any", "all", "mean", "var", "std"):
            check(name, f, axis=axis, where=mask)
            check(name, x, axis=axis, where=mask[:, :1])
    for name in ("min", "max"):
        check(name, np.empty((0, 3), "f4"), axis=0, initial=1)
        check(name, np.empty((0, 3), "f4"), axis=0)
        check(name, np.empty((0, 0), "f4"), axis=0)
    check("sum", x, axis=())
    check("any", x, axis=())
    check("mean", x, axis=())
    check("sum", np.float32(3), axis=0)
    check("sum", np.float32(3), axis=-1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_statistic_of_every_dtype(dtype: str) -> None:
    rng = np.random.default_rng(4)
    x = np.abs(rng.normal(size=(6, 9)) * 3) + (
        1j * rng.normal(size=(6, 9)) if dtype[0] == "c" else 0
    )
    x = x.astype(DTYPES[dtype].numpy)
    for row in STATISTICS:
        numpy = getattr(np, row.name, None) or getattr(np.linalg, row.name, None)
        if numpy is None:
            continue
        for axis in (-1,) if row.arity == 2 else (None, 0, 1):
            operands = (x,) * row.arity
            try:
                want = np.asarray(numpy(*operands, axis=axis))
            except TypeError:
                with pytest.raises(TypeError):
                    getattr(itf, row.name)(*operands, axis=axis)
                continue
            got = getattr(itf, row.name)(*operands, axis=axis).compute()
            if (dtype, row.name) != ("bfloat16", "vecdot"):  # NumPy's has no such loop
                assert got.dtype == want.dtype, (row.name, axis)
            if dtype == "bfloat16":  # in which NumPy adds up
                want = numpy(*(one.astype("f4") for one in operands), axis=axis)
            loose = {"float16": 5e-3, "bfloat16": 5e-2}.get(dtype, 1e-5)
            close = np.allclose(got.astype("c16"), want.astype("c16"), rtol=loose)
            assert close, (row.name, axis, got, want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_nan_is_left_out_of_every_dtype(dtype: str) -> None:
    x = np.arange(1, 13).reshape(3, 4).astype(DTYPES[dtype].numpy)
    x[1, 2] = x[:, 0] = np.nan
    for name in ("nansum", "nanmean", "nanmin", "nanmax", "nanargmin", "nanargmax"):
        for axis in (1, None):
            if dtype == "bfloat16":
                want = getattr(np, name)(x.astype("f4"), axis)
            else:
                want = getattr(np, name)(x, axis)
            got = getattr(itf, name)(x, axis).compute()
            np.testing.assert_array_equal(got.astype("c16"), np.asarray(want, "c16"), name)


def test_float16_rows_beyond_its_largest_number() -> None:
    x = np.array([300, -400] * 8, "f2")
    wide = itf.asarray(x).astype("f4")
    for name in ("layernorm", "rmsnorm", "standardize", "normalize"):
        function = getattr(itf, name)
        assert_same(function(x).compute(), function(wide).astype("f2").compute())
    many = np.full(70_000, 0.5, "f2")
    assert itf.nanmean(many).compute() == 0.5
    assert_same(itf.softmax(many).compute(), np.full_like(many, 1 / 70_000))
    with pytest.raises(itf.DTypeError, match="real numbers only"):
        itf.logsumexp(np.ones(3, "c8"))
    with pytest.raises(itf.AxisError, match=r"layernorm\(a\): axis 7"):
        itf.layernorm(x, axis=7)


def test_complex_nan_to_num_keeps_its_parts() -> None:
    x = np.array([1, -0.0, np.inf, np.nan]) + 1j * np.array([np.inf, -0.0, np.nan, -np.inf])
    x.real[0] = 1
    got, want = itf.nan_to_num(x, posinf=np.inf).compute(), np.nan_to_num(x, posinf=np.inf)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_rows_of_complex_numbers(dtype: str) -> None:
    rng = np.random.default_rng(5)
    x = (rng.normal(size=(6, 90)) + 1j * rng.normal(size=(6, 90)) + 3j).astype(dtype)
    apart = x - x.mean(-1, keepdims=True)
    square = (np.abs(x) ** 2).mean(-1, keepdims=True)
    for got, want in (
        (itf.standardize(x), apart / x.std(-1, keepdims=True)),
        (itf.rmsnorm(x, eps=0), x / np.sqrt(square)),
        (itf.normalize(x, eps=0), x / np.linalg.norm(x, axis=-1, keepdims=True)),
    ):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.compute(), want, rtol=1e-5)


def test_norms_average_vecdot() -> None:
    x = np.random.default_rng(2).normal(size=(5, 6, 7))
    y = np.random.default_rng(3).normal(size=(6, 7))
    for axis in (0, 1, 2, (0, 2), (2, 1)):
        orders = (None, 1, -1, np.inf, -np.inf) + (() if isinstance(axis, tuple) else (0, 2, 3.5))
        for order, kept in itertools.product(orders, (False, True)):
            got = itf.norm(x, order, axis, kept).compute()
            np.testing.assert_allclose(got, np.linalg.norm(x, order, axis, kept), rtol=1e-12)
    np.testing.assert_allclose(itf.norm(x).compute(), np.linalg.norm(x), rtol=1e-12)
    np.testing.assert_allclose(itf.norm(y, "fro").compute(), np.linalg.norm(y, "fro"), rtol=1e-12)
    with pytest.raises(itf.Unsupported, match="decomposition"):
        itf.norm(y, 2)
    np.testing.assert_allclose(itf.vecdot(x, y).compute(), np.vecdot(x, y), rtol=1e-12)
    np.testing.assert_allclose(itf.vecdot(x, x, axis=1).compute(), np.vecdot(x, x, axis=1))
    i = np.arange(12, dtype="i1").reshape(3, 4)
    assert_same(itf.vecdot(i, i).compute(), np.vecdot(i, i))
    for axis, w in ((0, np.arange(1.0, 6)), (1, np.arange(1.0, 7)), (-1, np.arange(1.0, 8))):
        np.testing.assert_allclose(itf.average(x, axis, w).compute(), np.average(x, axis, w))
    np.testing.assert_allclose(itf.average(x, None, x + 9).compute(), np.average(x, None, x + 9))
    np.testing.assert_allclose(itf.average(i, 0, [1, 2, 3] * np.int64(1)).compute(),
                               np.average(i, 0, [1, 2, 3]))  # fmt: skip


def spec(*shape: int, dtype: str = "float32") -> itf.Array:
    return itf.spec(shape, dtype)


X, W, ROW = spec(64, 1000), spec(1000), spec(64)
BYTES = 64 * 1000 * 4


@pytest.mark.parametrize(
    ("expressions", "primitives", "read", "written"),
    [
        ((X.sum(-1),), ["rows"], BYTES, 256),
        ((X.sum(0),), ["columns"], BYTES, 4000),
        ((X.sum((0, 1)),), ["reduce"], BYTES, 4),
        ((X.mean(-1), X.var(-1), X.max(-1), (X * W).sum(-1)), ["rows"], BYTES + 4000, 1024),
        ((X.mean(), X.var(), X.min(), X.argmax()), ["reduce"], BYTES, 20),
        ((X.sum(-1) * ROW + 1,), ["rows"], BYTES + 256, 256),
        ((X.sum(0) * W + 1,), ["columns"], BYTES + 4000, 4000),
        ((X.max(-1), X.max(-1, keepdims=True)), ["rows"], BYTES, 512),
        ((X.sum(-1), X.sum(0)), ["rows", "columns"], 2 * BYTES, 4256),
        ((itf.softmax(X),), ["rows"], BYTES, BYTES),
        ((itf.log_softmax(X),), ["rows"], BYTES, BYTES),
        ((itf.softmax(X), X * 2, X.sum(-1)), ["rows"], BYTES, 2 * BYTES + 256),
        ((itf.softmax(X), X + W), ["transform", "rows"], 2 * BYTES + 4000, 2 * BYTES),
        ((X.sum(-1), X * 2), ["transform", "rows"], 2 * BYTES, BYTES + 256),
        ((itf.logsumexp(X, -1),), ["rows"], BYTES, 256),
        ((itf.layernorm(X, W, W),), ["rows"], BYTES + 4000, BYTES),
        ((itf.rmsnorm(X, W),), ["rows"], BYTES + 4000, BYTES),
        ((itf.normalize(X), itf.norm(X, axis=-1)), ["rows"], BYTES, BYTES + 256),
        ((itf.standardize(X),), ["rows"], BYTES, BYTES),
        (((X - X.mean(-1, keepdims=True)) / X.std(-1, keepdims=True) * W + W,), ["rows"],
         BYTES + 4000, BYTES),
        ((X - X.mean(0),), ["columns", "transform"], 2 * BYTES + 4000, BYTES + 4000),
        ((X / X.sum(-1, keepdims=True) / X.sum(),), ["reduce", "rows"], 2 * BYTES + 4,
         BYTES + 4),
        (((X / X.sum(-1, keepdims=True)).sum(0),), ["rows", "columns"], 2 * BYTES + 256, 4256),
        (((X - X.max(-1, keepdims=True)).sum(-1),), ["rows"], BYTES, 256),
        ((X.sum(-1).max(),), ["rows", "reduce"], BYTES + 256, 260),
        ((spec(8, 300_000) - spec(8, 300_000).mean(-1, keepdims=True),), ["rows", "transform"],
         2 * 8 * 300_000 * 4 + 32, 8 * 300_000 * 4 + 32),
    ],
)  # fmt: skip
def test_passes_and_bytes(
    expressions: tuple[itf.Array, ...], primitives: list[str], read: int, written: int
) -> None:
    plan = itf.plan(*expressions)
    assert [s.primitive for s in plan.stages] == primitives, itf.explain(*expressions)
    assert (plan.bytes_read, plan.bytes_written) == (read, written)


def test_notes_say_why_rows_need_a_second_pass() -> None:
    def why(lazy: itf.Array) -> str:
        return " ".join(note.text for note in itf.plan(lazy).notes if note.reason == "needs-result")

    square = spec(64, 64)
    assert "not the last ones" in why(X - X.mean(0))
    assert "another axis" in why(square - square.sum(-1))
    assert "do not stay on chip" in why(itf.softmax(spec(4, 300_000)))
    assert "different axes" in why(X - X.mean(-1, keepdims=True) - X.mean(0))
    assert "does not lie along" in why(itf.softmax(itf.asarray(np.ones((9, 50)).T)))
    (again,) = itf.softmax(spec(4, 100_000)).plan().notes
    assert again.reason == "read-again" and "3 times" in again.text
    notes = {n.reason for n in itf.plan(X.sum(-1), X.sum(0)).notes}
    assert "different-axes" in notes


def test_a_square_is_not_mistaken() -> None:
    x = np.random.default_rng(4).normal(size=(50, 50))
    lazy = itf.asarray(x)
    for got, want in (
        (lazy - lazy.sum(-1), x - x.sum(-1)), (lazy - lazy.sum(0), x - x.sum(0)),
        (lazy.sum(0) + lazy.sum(1), x.sum(0) + x.sum(1)),
        (lazy.sum(1) * x[0], x.sum(1) * x[0]),
        (lazy.sum(1, keepdims=True) * x[0], x.sum(1, keepdims=True) * x[0]),
        (lazy.sum(1, keepdims=True) + lazy.sum(1), x.sum(1, keepdims=True) + x.sum(1)),
        ((lazy * lazy.sum(0)).sum(1) + lazy.sum(1), (x * x.sum(0)).sum(1) + x.sum(1)),
    ):  # fmt: skip
        np.testing.assert_allclose(got.compute(), want, rtol=1e-10, atol=1e-10)


def test_row_programs_equal_numpy() -> None:
    sp = pytest.importorskip("scipy.special")
    for shape in [(7, 5), (3, 4, 300), (2, 9000), (300, 40), (3, 140_000)]:
        x = np.random.default_rng(5).normal(size=shape) * 10
        w = np.random.default_rng(6).normal(size=shape[-1])
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        cases = [
            (itf.softmax(x), sp.softmax(x, -1)), (itf.softmax(x, 0), sp.softmax(x, 0)),
            (itf.log_softmax(x), sp.log_softmax(x, -1)),
            (itf.logsumexp(x, -1), sp.logsumexp(x, -1)), (itf.logsumexp(x), sp.logsumexp(x)),
            (itf.logsumexp(x, 0, keepdims=True), sp.logsumexp(x, 0, keepdims=True)),
            (itf.layernorm(x, w, w), (x - mean) / np.sqrt(var + 1e-5) * w + w),
            (itf.rmsnorm(x, w), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w),
            (itf.normalize(x), x / np.linalg.norm(x, axis=-1, keepdims=True)),
            (itf.standardize(x), (x - mean) / np.sqrt(var)),
            (itf.softmax(x, (0, len(shape) - 1)), sp.softmax(x, (0, len(shape) - 1))),
        ]  # fmt: skip
        for got, want in cases:
            np.testing.assert_allclose(got.compute(), want, rtol=1e-9, atol=1e-11)
    inf = np.array([[-np.inf, -np.inf], [np.inf, 1], [np.nan, 0], [-np.inf, 3]])
    with np.errstate(all="ignore"):
        assert_same(itf.logsumexp(inf, -1).compute(), sp.logsumexp(inf, -1), 2)
        assert_same(itf.softmax(inf).compute(), sp.softmax(inf, -1), 2)


def test_a_row_sums_to_the_bits_of_the_whole() -> None:
    # The order depends on the length of a row only: not on how many there are, nor on strides.
    for length in (1, 3, 8, 31, 100, 129, 1000, 1025, 5000, LEAF, LEAF + 1, 70_000, 2_100_000):
        few = max(2, min(5, 4_000_000 // length))
        x = np.random.default_rng(length).normal(size=(few, length)).astype("f4")
        for name in ("sum", "var", "prod"):
            lone = [getattr(itf, name)(np.ascontiguousarray(row)).compute() for row in x]
            for rows in (itf.asarray(x), itf.asarray(np.asfortranarray(x))):
                assert_same(getattr(rows, name)(-1).compute(), np.array(lone), what=f"{length}")
            turned = itf.asarray(np.ascontiguousarray(x.T))
            assert length == 1 or turned.sum(0).plan().stages[0].primitive == "columns"
            assert_same(getattr(turned, name)(0).compute(), np.array(lone), what=f"{length}")


def test_out_of_a_row_program() -> None:
    x = np.random.default_rng(7).normal(size=(30, 40))
    want = itf.softmax(x).compute()
    out = np.empty_like(x)
    assert itf.softmax(x).compute(out=out) is out
    assert_same(out, want)
    assert itf.softmax(x).compute(out=x) is x  # each row is read before it is written
    assert_same(x, want)
    with pytest.raises(itf.AliasError):
        itf.softmax(x[:, :20]).compute(out=x.reshape(-1)[:600].reshape(30, 20))


def test_structure_is_the_key() -> None:
    keys = {itf.softmax(spec(m, n)).plan().stages[0].key for m, n in ((10, 500), (70, 500))}
    assert len(keys) == 1
    assert X.sum(-1).plan().stages[0].key != X.max(-1).plan().stages[0].key


@pytest.mark.parametrize("seed", range(25))
def test_random_expressions_along_random_axes(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shape = [(6, 9, 5), (40, 30), (3, 2000)][seed % 3]
    arrays = [draw.integers(-50, 50, shape).astype("i4"), draw.integers(0, 9, shape[-1:])]
    lazy = random_expression(seed, arrays, 12).astype("int64")
    axes = axes_of(lazy.ndim)

    def axis() -> Any:
        return axes[draw.integers(len(axes))]

    for _ in range(6):
        one = lazy - lazy.min(axis(), keepdims=True) * lazy.max(axis(), keepdims=True)
        mixed = (one.sum(axis(), keepdims=True) + lazy) * one.any(axis(), keepdims=True)
        assert_matches_numpy(mixed, what=f"seed {seed}")
        assert_matches_numpy(mixed.sum(axis()) * 2, what=f"seed {seed}")


def test_every_dtype_is_known() -> None:
    for name in DTYPES:
        x = edge_values(name, 60, 1).reshape(6, 10)
        assert_same(itf.max(x, axis=0).compute(), np.max(x, axis=0))
