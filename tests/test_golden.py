"""What people read: explain's text and the generated source, kept as golden files."""

from __future__ import annotations

import importlib
from collections.abc import Callable

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
