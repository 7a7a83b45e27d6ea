"""What people read: explain's text and the generated source, kept as golden files."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import itfuse as itf

lower_tile = importlib.import_module("itfuse.lower").lower_tile
lower = importlib.import_module("itfuse.lower.cpp").lower


def bias_relu() -> itf.Array:
    x, bias = itf.spec((1024, 1000), "float32"), itf.spec((1000,), "float32")
    return itf.relu(2 * x + bias)


def norm() -> itf.Array:
    x = itf.spec((1 << 28,), "float32")
    return itf.sqrt((x * x).sum())


def centred() -> itf.Array:
    x = itf.spec((1 << 20,), "float64")
    return (x - x.mean()) / 2


def turned() -> itf.Array:
    return itf.spec((512, 512), "float32") * itf.spec((512, 1), "float32") > 0


def above_mean() -> itf.Array:
    x = itf.spec((1 << 20,), "float32")
    return (x * 2)[x > x.mean()]


def positive() -> itf.Array:
    x = itf.spec((1 << 20,), "float32")
    return x[x > 0]


def matrix() -> Any:
    return itf.spec((1 << 16, 1024), "float32")


def vector(dtype: str = "float32") -> Any:
    return itf.spec((1 << 20,), dtype)


LARGEST = itf.cpp_function("template <class T> T largest(T a, T b) { return a < b ? b : a; }")

# What ends a pipeline: each is a file of its own.
ENDS: dict[str, Callable[[], Any]] = {
    "rows": lambda: (matrix() * 2).sum(-1),
    "columns": lambda: (matrix() * 2).sum(0),
    "row_program": lambda: itf.softmax(matrix()),
    "statistics": lambda: [(x := vector()).mean(), x.var(), x.min(), x.max(), (x * x).sum()],
    "different_shapes": lambda: {"all": (x := matrix()).sum(), "rows": x.max(-1),
                                 "columns": x.min(0)},
    "scans": lambda: [itf.scan(vector() * 2, "sum", exclusive=True) / 3,
                      itf.scan(matrix(), "max", reverse=True)],
    "nonzero": lambda: itf.nonzero(matrix() > 0),
    "partition": lambda: itf.three_way_partition(x := vector(), x < 0, x > 1),
    "histogram": lambda: itf.histogram(vector() * 2, np.linspace(-1, 1, 101))[0],
    "sort": lambda: itf.sort(vector("int32") * 2),
    "topk": lambda: itf.topk(vector(), 10),
    "median": lambda: itf.median(vector()),
    "operator": lambda: itf.reduce(matrix() * 2, LARGEST, 0, axis=1),
    "python_operator": lambda: itf.reduce(vector(), lambda a, b: itf.sqrt(a * a + b * b), 0),
    "unique": lambda: itf.unique_counts(vector("int32")),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_explain_of_what_ends_a_pipeline(name: str, golden: Callable[[str, str], None]) -> None:
    with itf.config(bandwidth=4000):
        golden(f"explain_{name}.txt", itf.explain(ENDS[name]()) + "\n")


@pytest.mark.parametrize("case", [bias_relu, norm, centred, turned, above_mean])
def test_explain(case: Callable[[], itf.Array], golden: Callable[[str, str], None]) -> None:
    with itf.config(bandwidth=4000):
        golden(f"explain_{case.__name__}.txt", itf.explain(case()) + "\n")


@pytest.mark.parametrize("case", [bias_relu, norm, positive])
@pytest.mark.parametrize("aligned", [True, False], ids=["aligned", "any"])
def test_tile_source(
    case: Callable[[], itf.Array], aligned: bool, golden: Callable[[str, str], None]
) -> None:
    stage = itf.plan(case()).stages[0]
    name = f"{case.__name__}_{'aligned' if aligned else 'any'}"
    golden(f"tile_{name}.cu", lower_tile(stage, name, aligned).source)


@pytest.mark.parametrize("case", [bias_relu, norm])
def test_cub_source(case: Callable[[], itf.Array], golden: Callable[[str, str], None]) -> None:
    stage = itf.plan(case(), strategy="cub.iterator").stages[0]
    golden(f"cub_{case.__name__}.cu", lower(stage, case.__name__).source)
