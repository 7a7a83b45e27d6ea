"""The whole library in a dozen end-to-end tests that run in seconds."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import itfuse as itf
from itfuse.dtypes import DTYPES


def data(seed: int, size: int = 100_003, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(dtype)


def test_one_transform_pass() -> None:
    x, y = data(1), data(2)
    lazy = itf.relu(itf.asarray(x) * 2 + y)
    assert itf.plan(lazy).passes == 1
    np.testing.assert_array_equal(lazy.compute(), np.maximum(x * 2 + y, 0))


def test_prologue_and_epilogue_are_one_pass() -> None:
    x = data(3)
    lazy = itf.sqrt((itf.asarray(x) * x).sum())
    plan = itf.plan(lazy)
    assert (plan.passes, plan.bytes_read, plan.bytes_written) == (1, x.nbytes, 4)
    want = np.sqrt((x.astype(float) ** 2).sum())
    np.testing.assert_allclose(lazy.compute(), want, rtol=1e-6)


def test_a_value_is_carried_to_a_second_pass() -> None:
    x = data(4)
    lazy = itf.asarray(x)
    centred = lazy - lazy.mean()
    plan = itf.plan(centred)
    assert (plan.passes, plan.bytes_temporary) == (2, 4)
    np.testing.assert_allclose(centred.compute(), x - x.mean(dtype=float), atol=1e-6)


def test_compute_shares_a_pass() -> None:
    x = data(5)
    lazy = itf.asarray(x)
    plan = itf.plan(lazy.sum(), lazy.max(), lazy.mean(), (lazy > 1).any())
    assert (plan.passes, plan.bytes_read) == (1, x.nbytes)
    total, top, mean, some = itf.compute(lazy.sum(), lazy.max(), lazy.mean(), (lazy > 1).any())
    assert top == x.max() and bool(some) is True
    np.testing.assert_allclose(total, x.sum(dtype=float), rtol=1e-4)
    np.testing.assert_allclose(mean, x.mean(dtype=float), rtol=1e-4)


def test_outputs_of_several_dtypes_in_one_pass() -> None:
    x, y = data(6), data(7)
    a, b = itf.asarray(x), itf.asarray(y)
    assert itf.plan(a + b, a > b).passes == 1
    total, greater = itf.compute(a + b, a > b)
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_array_equal(greater, x > y)


def test_broadcasting_and_views_are_read_in_place() -> None:
    x = data(8, 6000).reshape(60, 100)
    row, column = data(9, 60), data(10, 100)
    lazy = itf.asarray(x.T) * row + column[::-1][:, None]
    assert itf.plan(lazy).bytes_read == x.nbytes + row.nbytes + column.nbytes
    np.testing.assert_array_equal(lazy.compute(), x.T * row + column[::-1][:, None])


def test_out_may_be_the_input() -> None:
    x = data(11)
    want = x * 3 + 1
    got = (itf.asarray(x) * 3 + 1).compute(out=x)
    assert got is x
    np.testing.assert_array_equal(x, want)


def test_changes_before_compute_are_seen() -> None:
    x = data(12, 10)
    lazy = itf.asarray(x) + 1
    x[:] = 5
    np.testing.assert_array_equal(lazy.compute(), np.full(10, 6, "f4"))


def test_dtypes_are_numpys() -> None:
    small = np.arange(10, dtype=np.int8)
    lazy = itf.asarray(small)
    assert (lazy + 1).dtype == np.int8
    assert (lazy + 1.0).dtype == np.float64
    assert (lazy + np.int32(1)).dtype == np.int32
    assert lazy.sum().dtype == np.int64
    assert lazy.mean().dtype == np.float64
    assert (lazy / 2).dtype == np.float64
    assert (lazy < 300).compute().all()


def test_numpys_functions_and_operators_from_the_left() -> None:
    x, y = data(13, 100), data(14, 100)
    lazy = itf.asarray(y)
    for got, want in (
        (np.add(x, lazy), x + y), (x - lazy, x - y), (2 / lazy, 2 / y), (np.sqrt(abs(lazy)),
         np.sqrt(abs(y))), (np.float32(3) * lazy, np.float32(3) * y), (x < lazy, x < y),
    ):  # fmt: skip
        assert isinstance(got, itf.Array)
        np.testing.assert_array_equal(got.compute(), want)


def test_a_wish_that_cannot_be_kept_is_an_error() -> None:
    lazy = itf.asarray(data(15))
    with pytest.raises(itf.NeedsBuffer, match="max_passes is 1"):
        (lazy - lazy.mean()).compute(max_passes=1)
    with itf.config(max_passes=1), pytest.raises(itf.NeedsBuffer):
        (lazy - lazy.mean()).compute()


def test_many_scalars_are_one_build() -> None:
    from itfuse.cache import BUILT

    x = data(16, 100)
    lazy = itf.asarray(x)
    (lazy * 0.5 + 0.5).compute()
    before = BUILT.builds
    for a in np.linspace(-3, 3, 1000):
        got = (lazy * float(a) + 0.25).compute()
        np.testing.assert_array_equal(got, x * np.float32(a) + np.float32(0.25))
    assert BUILT.builds == before


@pytest.mark.skipif("bfloat16" not in DTYPES, reason="ml_dtypes is not installed")
def test_bfloat16_is_known_by_name_without_an_import() -> None:
    code = (
        "import itfuse as itf\nfrom itfuse.testing import edge_values\n"
        "assert itf.spec((4,), 'bfloat16').dtype.name == 'bfloat16'\n"
        "assert itf.asarray([1.5]).astype('bfloat16').sum().compute() == 1.5\n"
        "assert edge_values('bfloat16', 9, 1).dtype.itemsize == 2\n"
        "assert itf.finfo('bfloat16').bits == 16"
    )
    for line in code.split("\n")[2:]:  # each in a process that has not met the name before
        program = "\n".join([*code.split("\n")[:2], line])
        subprocess.run([sys.executable, "-c", program], check=True)
