"""Random expressions: the CPU engine against NumPy, node by node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.testing import assert_matches_numpy, edge_values, random_expression

SHAPES = [(257,), (1,), (3, 5, 7), (40_000,), (130, 257), (0,), ()]


def view(array: np.ndarray, how: int) -> np.ndarray:
    """Return another array of the same shape and values, laid out differently."""
    if array.ndim == 0 or how == 0:
        return array
    if how == 1:
        return np.asfortranarray(array)
    if how == 2:
        return np.ascontiguousarray(np.flip(array))[(slice(None, None, -1),) * array.ndim]
    spread = np.repeat(array, 3, axis=-1)
    return spread[..., ::3]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    shape=st.sampled_from(SHAPES),
    dtypes=st.lists(st.sampled_from(list(DTYPES)), min_size=1, max_size=4),
    how=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    nodes=st.integers(1, 40),
)
def test_elementwise(
    seed: int, shape: tuple[int, ...], dtypes: list[str], how: list[int], nodes: int
) -> None:
    arrays = [
        view(edge_values(name, int(np.prod(shape)), seed + k).reshape(shape), how[k])
        for k, name in enumerate(dtypes)
    ]
    assert_matches_numpy(random_expression(seed, arrays, nodes), what=f"seed {seed}")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 20), how=st.integers(0, 3))
def test_reductions_and_carried_values(seed: int, nodes: int, how: int) -> None:
    random = np.random.default_rng(seed)
    arrays = [view(random.integers(-50, 50, (170, 211)).astype("i4"), how),
              random.integers(0, 9, 211).astype("u1")]  # fmt: skip
    lazy = random_expression(seed, arrays, nodes).astype("int64")
    total = (lazy - lazy.min()).sum() * 2 + lazy.max()
    assert_matches_numpy(total, what=f"seed {seed}")
    assert_matches_numpy(lazy + total, what=f"seed {seed}")


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_bits_do_not_depend_on_threads_or_layout(threads: int) -> None:
    x = np.random.default_rng(0).normal(size=(60_000, 301)).astype("f4")  # enough for 2 threads
    expected = itf.asarray(x).sum().compute()
    with itf.config(threads=threads):
        for how in range(4):
            assert itf.asarray(view(x, how)).sum().compute() == expected
