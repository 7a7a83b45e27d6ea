"""Shared fixtures: GPU tests run where there is a GPU; `--update-golden` rewrites golden files."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from itfuse import engines
from itfuse.bench.result import Report, Row, Settings
from itfuse.bench.timing import Timing

# Tests name every dtype; the library itself imports this only when bfloat16 is used.
with contextlib.suppress(ImportError):
    importlib.import_module("ml_dtypes")

# Tests compile what they test, and leave the user's cache alone.
os.environ["ITFUSE_CACHE_DIR"] = "off"

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/*")


@functools.cache
def _no_gpu() -> str:
    status = next(s for s in engines.available() if s.name == "cuda")
    return "" if status.available else status.reason


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and _no_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=_no_gpu()))


@pytest.fixture(scope="session")
def cp() -> Any:
    """Return CuPy."""
    return pytest.importorskip("cupy")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares a text with tests/golden/NAME, or rewrites that file."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no {path}; make it with --update-golden"
        assert text == path.read_text(), f"differs from {path}; --update-golden if that is right"

    return compare


@pytest.fixture
def example() -> Report:
    """Return a benchmark report with a row of each kind, interrupted before its last case."""
    times = {"itfuse": Timing(0.002, 0.0019, 0.003), "numpy": Timing(0.01, 0.009, 0.02),
             "copy": Timing(0.001, 0.001, 0.002)}  # fmt: skip
    rows = [
        Row("dot", "np.sum(x * y)", "ok", "", 1, 8 << 20, 4, 8 << 20, 2, times),
        Row("norm", "np.sqrt(np.sum(x * x))", "WRONG", "element 0 of 1 is 1.0, and so on", 1),
        Row("mean", "np.mean(x)", "FAILED", "MemoryError: [bold]no[/bold] room"),
    ]
    return Report(
        "cpu", "numpy", "memory copy (np.copyto)", {"name": "A processor", "cores": "2"},
        {"python": "3.11.0"}, {"itfuse": "0.1.0", "numpy": "2.4.6", "cupy": ""},
        Settings(1 << 20, 1 << 21, "float32", 9, 7), ["dot", "norm", "mean", "sum(abs(x))"],
        "2026-07-01T12:00:00+00:00", rows, ["scaled down"], interrupted=True,
    )  # fmt: skip
