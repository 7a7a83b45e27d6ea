"""The variance: as accurate far from zero as near it, in the order of docs/determinism.md."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import host_cpp
from support.generated import HostEngine, plan_for

import itfuse as itf
from itfuse.reference import merge_moments
from itfuse.testing import assert_same

host = pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
BOUND = 8
"""Largest relative error in unit roundoffs: twice what was measured; docs/determinism.md."""
OFFSETS = (0, 1, 1e2, 1e4, 1e5, 1e6)
SIZES = (2, 9, 1000, 1 << 20)
WIDER = {"float32": np.float64, "float64": np.longdouble}


def around(offset: float, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    seed = int(offset) + shape[-1]
    return (offset + np.random.default_rng(seed).normal(size=shape)).astype(dtype)


def troubles(dtype: str = "float32", n: int = 1 << 18) -> dict[str, np.ndarray]:
    """Return data that fixed bases, single means or sums of squares get wrong."""
    line = np.linspace(0, 1, n)
    found = {
        "outlier first": np.r_[1e4, around(0, (n,))[1:]],
        "trend behind an outlier": np.r_[1e3, line[1:]],
        "zero, then far away": np.r_[0, around(1e5, (n,))[1:]],
        "two halves": np.repeat([1e4 + 0.3, 1e4 - 0.6], n // 2),
        "two clusters": np.where(np.arange(n) % 8, 1e5, -1e5) + around(0, (n,)),
        "trend behind zeros": np.where(np.arange(n) < 1024, 0, 1e4 + 100 * line),
    }
    return {what: x.astype(dtype) for what, x in found.items()}


def check(got: Any, x: np.ndarray, axis: int | None, what: object, root: bool = False) -> None:
    truth = x.astype(WIDER[x.dtype.name]).var(axis=axis)
    truth = np.sqrt(truth) if root else truth
    error = np.max(np.abs(np.asarray(got) - truth) / truth) / (np.finfo(x.dtype).eps / 2)
    assert error <= BOUND, (what, axis, error)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_does_not_grow_with_the_mean(offset: float, dtype: str) -> None:
    for n in SIZES:
        x = around(offset, (3 if n < 1 << 20 else 1, n), dtype)
        down = np.ascontiguousarray(x.T)
        check(itf.asarray(x[0]).var().compute(), x[0], None, (offset, n))
        check(itf.asarray(x).var(1).compute(), x, 1, (offset, n))
        check(itf.asarray(down).var(0).compute(), down, 0, (offset, n))
        check(itf.std(x, axis=1).compute(), x, 1, (offset, n), root=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_of_data_that_come_in_a_bad_order(dtype: str) -> None:
    for what, x in troubles(dtype).items():
        check(itf.asarray(x).var().compute(), x, None, what)
        few = x[:: x.size // 777]
        check(itf.asarray(few).var().compute(), few, None, what)


def cases() -> list[tuple[str, itf.Array]]:
    """Return variances by all kernels: whole, rows and columns of every class, masks, parts."""
    made: list[tuple[str, itf.Array]] = []
    for offset, n in itertools.product((0, 1e5), (1, 2, 9, 1000, 20_001)):
        x = around(offset, (3, n))
        made += [(f"whole {offset} {n}", itf.asarray(x[0]).var()),
                 (f"rows {offset} {n}", itf.asarray(x).var(1)),
                 (f"columns {offset} {n}", itf.asarray(x.T.copy()).var(0)),
                 (f"where {offset} {n}", itf.var(x, axis=1, where=np.sin(x * 9) > 0.6)),
                 (f"ddof {offset} {n}", itf.std(x, axis=1, ddof=1))]  # fmt: skip
    far = around(1e4, (2, 3000)) + 1j * around(1e5, (2, 3000))
    made.append(("complex", itf.asarray(far.astype("complex64")).var(1)))
    made.append(("double", itf.asarray(around(1e9, (40_001,), "float64")).var()))
    bad = around(1, (8, 3000))
    bad[0, 0] = bad[1, -1] = bad[2] = np.inf
    bad[3, 1500], bad[4, 7] = -np.inf, np.nan
    bad[5], bad[6], bad[7] = 3e38, 1e-30, 0
    bad[6, ::2] = 2e30
    made += [("not finite", itf.asarray(bad).var(1)), ("none", itf.asarray(bad[:, :0]).var(1))]
    made += [(what, itf.asarray(x[:70_000]).var()) for what, x in troubles().items()]
    return made


@host
def test_generated_cpp_has_the_bits_of_the_cpu_engine() -> None:
    made = cases()
    plans = [plan_for("tile", lazy) for _, lazy in made]
    engine = HostEngine(plans)
    for (what, lazy), plan in zip(made, plans, strict=True):
        (got,) = engine.run(plan, lazy)
        assert_same(got, lazy.compute(), 0.0, what)


@host
@pytest.mark.parametrize("offset", OFFSETS)
def test_error_of_generated_cpp(offset: float) -> None:
    made: list[tuple[np.ndarray, int | None, itf.Array]] = []
    for n in SIZES:
        x = around(offset, (1 if n == 1 << 20 else 3, n))
        down = np.ascontiguousarray(x.T)
        made += [(x[0], None, itf.asarray(x[0]).var()), (x, 1, itf.asarray(x).var(1)),
                 (down, 0, itf.asarray(down).var(0))]  # fmt: skip
    plans = [plan_for("tile", lazy) for _, _, lazy in made]
    engine = HostEngine(plans)
    for (x, axis, lazy), plan in zip(made, plans, strict=True):
        (got,) = engine.run(plan, lazy)
        check(got, x, axis, (offset, x.shape))


def test_infinity_nan_and_extremes_are_numpys() -> None:
    for dtype in ("float32", "float64"):
        for n in (1, 2, 5, 1000, 20_000):
            for at, value in itertools.product((0, n // 2, n - 1), (np.inf, -np.inf, np.nan)):
                x = around(1, (n,), dtype)
                x[at] = value
                assert np.isnan(itf.asarray(x).var().compute()), (dtype, n, at, value)
        for same in (0, 1234.567, np.finfo(dtype).max, np.finfo(dtype).tiny):
            assert itf.asarray(np.full(9001, same, dtype)).var().compute() == 0
        # The squares overflow, as NumPy's do; elements without a place change nothing.
        apart = np.array([1e-30, np.finfo(dtype).max / 4] * 3000, dtype)
        assert itf.asarray(apart).var().compute() == np.inf
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for size, ddof in itertools.product((0, 1, 2), (0, 1, 2)):
                x = around(1e5, (size,), dtype)
                got, want = itf.var(x, ddof=ddof).compute(), x.astype(WIDER[dtype]).var(ddof=ddof)
                np.testing.assert_allclose(got, want, 1e-6)
            mask = np.zeros(5, bool)
            assert np.isnan(itf.var(around(0, (5,), dtype), where=mask).compute())
            mask[3] = True
            assert itf.var(around(1e5, (5,), dtype), where=mask).compute() == 0


@pytest.mark.filterwarnings("ignore:invalid value")
def test_short_cuts_of_the_merge_have_its_bits() -> None:
    """Where all parts are elements, or none is small, the CPU engine leaves steps out."""
    rng = np.random.default_rng(3)
    n = 3000

    def part(*fields: Any) -> np.ndarray:
        return np.array([np.broadcast_to(f, n) for f in fields], "f4")

    far = 1e4 + rng.normal(size=n)
    parts = [
        part(0, 0, 0, 0),
        part(far, 0, 1, 0),
        part(far, rng.normal(size=n) * 1e-3, rng.integers(3, 40, n), rng.random(n)),
    ]
    for a, b in itertools.product(parts, parts[1:]):
        with np.errstate(all="ignore"):  # as in the engine: two parts without elements
            fast = merge_moments(tuple(a), tuple(b))
            # One part more, without elements, so that no step is left out.
            slow = merge_moments(tuple(np.c_[a, a[:, :1]]), tuple(np.c_[b, parts[0][:, :1]]))
        for one, other in zip(fast, slow, strict=True):
            np.testing.assert_array_equal(one, other[:-1])
    for some in parts[1:]:  # on either side a part without elements changes nothing
        for pair in ((some, parts[0]), (parts[0], some)):
            np.testing.assert_array_equal(np.array(merge_moments(*map(tuple, pair))), some)


def test_the_order_that_the_docs_give() -> None:
    text = (Path(__file__).parents[1] / "docs" / "determinism.md").read_text()
    names: dict[str, Any] = {"itf": itf}
    for part in text.split("```python\n"):
        if part.startswith(("import numpy", "def moments")):
            exec(part.partition("```")[0], names)
    for n, offset, dtype in itertools.product(
        (1, 2, 5, 300, 1025, 8192, 20_001, 300 * 8192), (0, 1e5), ("f4", "f8")
    ):
        x = around(offset, (n,), dtype)
        assert names["variance"](x) == itf.asarray(x).var().compute(), (n, offset, dtype)
        rows = around(offset, (2, n), dtype)
        got = itf.asarray(rows).var(1).compute()
        assert (got == [names["variance"](row) for row in rows]).all(), (n, offset, dtype)
