"""Shared fixtures: GPU tests run where there is a GPU; `--update-golden` rewrites golden files."""

from __future__ import annotations

import functools

import pytest

from itfuse import engines


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/*")


@functools.cache
def _no_gpu() -> str:
    status = next(s for s in engines.available() if s.name == "cuda")
    return "" if status.available else status.reason


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and _no_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=_no_gpu()))
