"""Copies of expressions stand on arrays of their own."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import itfuse as itf

COPIES: list[Callable[[itf.Array], itf.Array]] = [
    copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)),
]  # fmt: skip


@pytest.mark.parametrize("copied", COPIES)
def test_any_layout_survives(copied: Callable[[itf.Array], itf.Array]) -> None:
    x = np.arange(24.0).reshape(4, 6)
    for view in (x, x[::-1], x[:, ::2], x.T, np.broadcast_to(x[0], (3, 6)), x[1, 2], x[:0]):
        for lazy in (itf.asarray(view), itf.asarray(view) * 2 - view):
            np.testing.assert_array_equal(copied(lazy).compute(), lazy.compute())


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_is_not_the_original(copied: Callable[[itf.Array], itf.Array]) -> None:
    a = np.ones(3)
    lazy = itf.asarray(a) * 2
    other = copied(lazy)
    a[:] = 5
    assert (lazy - other).compute().tolist() == [8, 8, 8]
    assert copy.copy(lazy).compute().tolist() == [10, 10, 10]


@pytest.mark.parametrize("copied", COPIES)
def test_deep_expressions_and_placeholders(copied: Callable[[itf.Array], itf.Array]) -> None:
    lazy = itf.asarray(np.zeros(3))
    for _ in range(5_000):
        lazy = lazy + 1
    assert copied(lazy).compute().tolist() == [5_000] * 3
    blank = itf.spec((3,), "f4")
    assert (copied(blank) + blank).plan().bytes_read == 24  # two inputs
