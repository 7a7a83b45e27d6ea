"""Random arrays, functions of users and iterators on a GPU: the CPU engine's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_custom
import test_random_arrays
from test_gpu_views import _again, _parts, on_gpu

import itfuse as itf
from itfuse.testing import assert_same

pytestmark = pytest.mark.gpu


def there(cp: Any, lazy: itf.Array) -> itf.Array:
    """Return an expression over copies of its arrays on the GPU."""
    rows, arrays = _parts(lazy)
    return _again(rows, [on_gpu(cp, one) for one in arrays])


@pytest.mark.parametrize("strategy", ["tile", "cub"])
def test_random_numbers_are_the_cpu_engine_s(cp: Any, strategy: str) -> None:
    for lazy, ulp in test_random_arrays.lazies():
        with itf.config(strategy="auto" if lazy.shape == (5,) else strategy):  # rows: tile only
            got = there(cp, lazy).compute().get()
        if ulp:
            np.testing.assert_array_max_ulp(got, _on_cpu(lazy), ulp)
        else:
            assert got.tobytes() == _on_cpu(lazy).tobytes(), lazy


def _on_cpu(lazy: itf.Array) -> Any:
    with itf.config(engine="cpu"):
        return lazy.compute()


def test_many_random_numbers(cp: Any) -> None:
    n = 1 << 26
    z = itf.random.normal(shape=n, dtype="f4", seed=3, device="cuda:0")
    mean, std = itf.compute(z.astype("f8").mean(), z.astype("f8").std())
    assert abs(float(mean)) < 5 / n**0.5 and abs(float(std) - 1) < 5 / n**0.5
    far = itf.random.integers(100, shape=(1 << 32) + 8, dtype="i1", seed=1, device="cuda:0")
    want = itf.random.integers(100, shape=(1 << 32) + 8, dtype="i1", seed=1, device="cpu")
    assert_same(far[-8:].compute(), want[-8:].compute())
    assert abs(float(far.sum().compute()) / far.size - 49.5) < 0.01


def test_a_seed_is_an_argument(cp: Any) -> None:
    @itf.fuse
    def dropout(x: Any, seed: int) -> Any:
        return x * itf.random.bernoulli(0.9, x.shape, seed=seed)

    x = np.arange(1000, dtype="f4")
    for seed in (1, 2**63):
        want = x * itf.random.bernoulli(0.9, 1000, seed=seed, device="cpu").compute()
        assert_same(dropout(cp.asarray(x), seed), want)


@pytest.mark.parametrize("strategy", ["tile", "cub"])
def test_functions_in_cpp(cp: Any, strategy: str) -> None:
    for lazy, want in test_custom.maps():
        rows = lazy.ndim == 1
        with itf.config(strategy="tile" if rows else strategy):
            assert_same(there(cp, lazy).compute(), want, what=str(lazy))


def test_operators_of_users(cp: Any) -> None:
    for lazy, want in test_custom.reductions():
        got = there(cp, lazy).compute().get()
        np.testing.assert_allclose(got, want, rtol=1e-13)
        if "hypot" not in repr(lazy):
            assert got.tobytes() == lazy.compute().tobytes(), lazy
    x = np.random.default_rng(1).normal(size=1 << 22)
    parts = itf.reduce((itf.asarray(cp.asarray(x)), 1.0, 0.0), test_custom.CHAN, (0.0, 0.0, 0.0))
    mean, count, m2 = (float(one.get()) for one in itf.compute(*parts))
    assert count == x.size and abs(mean - x.mean()) < 1e-12
    assert abs(m2 / count - x.var()) < 1e-12


def test_algorithms_of_cuda_compute(cp: Any) -> None:
    cc = pytest.importorskip("cuda.compute")
    x = np.random.default_rng(2).random(10_000, dtype="f4")
    lazy = itf.asarray(cp.asarray(x)[::-1]) * 10 - 1
    want = x[::-1] * np.float32(10) - np.float32(1)
    edges, places = cp.linspace(0, 9, 50, dtype="f4"), cp.empty(x.size, np.uintp)
    cc.lower_bound(d_data=edges, num_items=edges.size, d_values=lazy.as_iterator(),
                   num_values=x.size, d_out=places)  # fmt: skip
    assert (places.get() == np.searchsorted(edges.get(), want)).all()
    for shift in (0, 5):
        top = cp.empty(1, "f4")
        cc.reduce_into(d_in=lazy.as_iterator() + shift, d_out=top, num_items=x.size - shift,
                       op=cc.OpKind.MAXIMUM, h_init=np.full(1, -np.inf, "f4"))  # fmt: skip
        assert float(top[0]) == want[shift:].max()
    total = lazy.sum()
    with pytest.raises(itf.NeedsBuffer, match="compute"):
        (lazy - total).as_iterator()
