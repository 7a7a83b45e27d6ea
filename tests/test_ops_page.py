"""docs/ops.md is what the op table says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

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
