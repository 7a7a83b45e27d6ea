"""docs/ops.md is what the op table says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.ops import OPS
from itfuse.rows.op import COMBINE, INDEX, RANDOM

TOOL = Path(__file__).parents[1] / "tools" / "ops_page.py"


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("ops_page", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif("bfloat16" not in DTYPES, reason="ml_dtypes is not installed")
def test_the_page_of_operations_is_current() -> None:
    made = tool()
    assert made.PAGE.read_text() == made.page(), f"run python {TOOL.relative_to(TOOL.parents[1])}"
    page = made.page()
    assert all(
        f"`{op.name}`" in page for op in OPS.values() if op.kind not in (INDEX, COMBINE, RANDOM)
    )
    missing = [name for name in itf.FUNCTIONS if f"`{name}`" not in page]
    missing += [name for name in itf.random.__all__ if f"`random.{name}`" not in page]
    assert not missing, f"{missing} are public and not on the page"


def test_a_function_without_a_section_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tool()
    monkeypatch.setattr(made, "FUNCTION_SECTIONS", made.FUNCTION_SECTIONS[1:])
    with pytest.raises(LookupError, match="creation"):
        made.function_tables()


def test_every_public_function_says_what_it_does() -> None:
    for name, function in itf.FUNCTIONS.items():
        assert (function.__doc__ or "").strip(), f"{name} has no docstring"
