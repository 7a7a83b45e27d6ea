"""The house: imports point downwards, and each optional dependency has its importers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import itfuse

ROOT = Path(itfuse.__file__).parent

# Top to bottom is the order of the data; a module imports lower layers and its own package only.
LAYERS = (
    ("errors", "config", "dtypes", "reference", "special", "pytree"),
    ("rows", "frozen"),
    ("ops",),
    ("form", "wording"),
    ("shapes",),
    ("expr",),
    ("plan",),
    ("lower",),
    ("cache", "disk", "engines"),
    ("explain",),
    ("picture",),
    ("evaluate", "containers"),
    ("array",),
    ("functions",),
    ("indexing", "operators"),
    ("manipulation",),
    ("creation", "joining"),
    ("combining",),
    (
        "arranging",
        "conversion",
        "differences",
        "editing",
        "numeric",
        "padding",
        "terminals",
        "custom",
    ),
    ("selected",),
    ("counting", "ordering", "placement", "python", "scans", "segmented", "segments"),
    ("numpy_calls",),
    ("protocol", "selection", "standard", "random", "iterator"),
    ("linalg", "unique", "number", "origin"),
    ("trace",),
    ("short", "signature", "bound"),
    ("fused",),
    ("graph",),
    ("profile", "visual"),
    ("__init__",),
    ("cli", "bench", "testing", "__main__", "ahead"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
INSIDE_A_LEVEL = {("config", "errors"), ("pytree", "errors"), ("dtypes", "errors"),
                  ("reference", "errors"),
                  ("special", "reference"),
                  ("engines", "cache"), ("engines", "disk"), ("form", "expr"),
                  ("wording", "expr"), ("wording", "form"),
                  ("cli", "bench"), ("__main__", "cli"), ("__init__", "ahead")}  # fmt: skip
OPTIONAL = {
    "cupy": ("engines/cuda/", "bench/"), "cuda": ("engines/cuda/", "bench/peers/"),
    "ml_dtypes": ("dtypes.py",), "rich": ("cli.py", "bench/"), "torch": ("bench/peers/",),
    "jax": ("bench/peers/",), "triton": ("bench/peers/",), "numexpr": ("bench/peers/",),
    "numba_cuda_mlir": ("engines/cuda/python.py",),
    "matplotlib": ("bench/plot.py", "picture.py"), "typer": ("cli.py", "bench/"),
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "itfuse"
            found += [f"itfuse.{a.name}" for a in node.names] if whole else [node.module]
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no layer: add it to LAYERS"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "itfuse" or len(parts) == 1:
            continue
        other = parts[1] if parts[1] in LEVEL else "__init__"
        if LEVEL["cli"] == LEVEL[own] or other == own or (own, other) in INSIDE_A_LEVEL:
            continue
        assert LEVEL[other] < LEVEL[own], f"{own} imports {name} from above"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_optional_dependencies_stay_where_they_belong(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    for name in imports(path):
        top = name.split(".")[0]
        if top in OPTIONAL:
            assert place.startswith(OPTIONAL[top]), f"{place} imports {name}"


def test_the_cpu_engine_does_not_see_generated_code() -> None:
    assert not any("lower" in name for name in imports(ROOT / "engines" / "cpu.py"))


def test_importing_itfuse_imports_no_gpu_library() -> None:
    code = ("import sys, itfuse; bad = {'cupy', 'cuda', 'rich', 'typer', 'ml_dtypes', 'numba', "
            "'numba_cuda_mlir'} & {m.split('.')[0] for m in sys.modules}; "
            "assert not bad, bad")  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_file_is_long() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in modules()}
    assert not {str(path): n for path, n in lines.items() if n > 500}
