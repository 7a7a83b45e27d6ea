"""`itf.profile` and `itf.visualize`: numbers of the plan, pictures of the passes."""

from __future__ import annotations

import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse.engines.cpu import CpuEngine


@pytest.fixture
def x() -> np.ndarray[Any, Any]:
    return np.linspace(-1, 1, 4096, dtype="f4").reshape(64, 64)


# ---- profile ----
def test_a_profile_has_the_plan_s_numbers(x: Any) -> None:
    found = itf.profile(itf.asarray(x) - itf.asarray(x).mean(), repeat=3)
    assert (found.passes, found.bytes) == (2, 2 * x.nbytes + 4 + 4 + x.nbytes)
    assert 0 < found.lowest <= found.seconds <= found.highest
    assert found.floor == pytest.approx(found.bytes / found.ceiling)
    assert found.share == pytest.approx(found.floor / found.seconds)
    assert found.gib_per_s == pytest.approx(found.bytes / found.seconds / 2**30)


@pytest.mark.parametrize("fuse", [False, True])
def test_functions(x: Any, fuse: bool) -> None:
    def both(a: Any, k: float) -> Any:
        return {"sum": (a * k).sum(), "max": a.max()}

    found = itf.profile(itf.fuse(both) if fuse else both, x, 2.0, repeat=2)
    assert (found.passes, found.bytes) == (1, x.nbytes + 8)


def test_a_selection_moves_at_most_what_the_plan_says(x: Any) -> None:
    a = itf.asarray(x)
    found = itf.profile(a[a > 0], repeat=2)
    assert "1 pass on cpu, at most " in str(found) and "at most " in found._repr_html_()
    assert "at most" not in str(itf.profile(a + 1, repeat=2))


def test_several_expressions_share_a_pass(x: Any) -> None:
    a = itf.asarray(x)
    assert itf.profile((a.sum(), a.max()), repeat=1).passes == 1


def test_what_cannot_be_profiled(x: Any) -> None:
    def f(a: Any) -> Any:
        return x

    with pytest.raises(TypeError, match="f returned ndarray; a function must return"):
        itf.profile(f, x)
    with pytest.raises(TypeError, match="returned nothing"):
        itf.profile(lambda a: [], x)
    with pytest.raises(TypeError, match="arguments follow a function"):
        itf.profile(itf.asarray(x), x)
    with pytest.raises(itf.DeviceError, match="placeholders have no elements"):
        itf.profile(itf.spec((10,), "f4") + 1)
    with pytest.raises(ValueError, match="repeat=0"):
        itf.profile(itf.asarray(x), repeat=0)


def test_the_texts(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuEngine, "seconds", lambda self, call, repeat, batch: [1e-3] * repeat)
    monkeypatch.setattr(CpuEngine, "copy_speed", lambda self: 2.0**30)
    found = itf.profile(abs(itf.asarray(x)).sum(), repeat=2)
    text = str(found)
    assert text.startswith(
        "1 pass on cpu, 16.00 KiB moved in 1 ms (from 1 ms to 1 ms in 2 batches)"
    )
    assert "0.0 GiB/s, 0.02 of a copy's 1.0; at that speed it would take 15.3 us" in text
    assert "out  float32[] = sum(absolute(a))" in text
    html = found._repr_html_()
    ET.fromstring(html)
    assert "2% of a copy" in html


@pytest.mark.gpu
def test_a_profile_on_the_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.ones(1 << 26, "f4")
    found = itf.profile(abs(itf.asarray(x)).sum(), repeat=5)
    assert 0.5 < found.share < 1.5
    assert found.plan.device.startswith("cuda")


# ---- visualize ----
def expressions(x: Any) -> dict[str, Any]:
    a = itf.asarray(x)
    long = a
    for _ in range(2000):
        long = long * 1.0001
    return {
        "transform": a * 2 + 1, "reduce": itf.sqrt((a * a).sum()), "two passes": a - a.mean(),
        "rows": itf.softmax(a, axis=-1), "columns": a.var(axis=0), "long": long,
        "leaf": a, "layernorm": itf.layernorm(a, a[0] if hasattr(a, "__getitem__") else a, 1.0),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["transform", "reduce", "two passes", "rows", "columns", "long",
                                  "leaf", "layernorm"])  # fmt: skip
def test_every_picture_is_well_formed(name: str, x: Any) -> None:
    lazy = expressions(x)[name]
    picture = lazy.visualize()
    root = ET.fromstring(picture.svg)
    assert root.tag.endswith("svg")
    titles = [e.text or "" for e in root.iter() if e.get("class") == "title"]
    assert len(titles) == lazy.plan().passes == picture.dot.count("subgraph cluster_")
    assert all(title.startswith(f"pass {at + 1}: ") for at, title in enumerate(titles))
    left, top, wide, tall = map(float, (root.get("viewBox") or "").split())
    for e in root.iter():
        if e.get("class") == "box":
            assert left <= float(e.get("x", -1))
            assert float(e.get("x", 0)) + float(e.get("width", 0)) <= wide + 0.1
            assert top <= float(e.get("y", -1)) <= tall
    assert len(picture.svg) < 100_000


def test_the_picture_of_two_passes(x: Any) -> None:
    a = itf.asarray(x)
    dot = itf.visualize(itf.maximum(a * 2, 0) - a.mean()).dot
    assert dot.index("combine add") < dot.index("cluster_1") < dot.index('label="maximum"')
    names = {line.split("[")[0].strip(): line for line in dot.splitlines() if "[label=" in line}
    carried = next(n for n, line in names.items() if "shape=note" in line)
    subtract = next(n for n, line in names.items() if 'label="subtract"' in line)
    assert f"{carried} -> {subtract};" in dot


def test_saving(x: Any, tmp_path: Path) -> None:
    lazy = itf.asarray(x) + 1
    picture = lazy.visualize(str(tmp_path / "p.svg"))
    assert (tmp_path / "p.svg").read_text() == picture.svg == picture._repr_svg_()
    picture.save(str(tmp_path / "p.dot"))
    assert (tmp_path / "p.dot").read_text() == str(picture)
    with pytest.raises(itf.ConfigError, match=r"p\.bmp: a picture is"):
        picture.save("p.bmp")
    if shutil.which("dot"):
        picture.save(str(tmp_path / "p.png"))
        assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["two passes", "rows", "leaf"])
def test_matplotlib_draws_where_graphviz_is_absent(
    name: str, x: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("matplotlib.image")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    picture = expressions(x)[name].visualize(str(tmp_path / "p.png"))
    wide, tall = (float(ET.fromstring(picture.svg).get(k, 0)) for k in ("width", "height"))
    pixels = image.imread(tmp_path / "p.png")
    assert pixels.shape[:2] == pytest.approx((tall, wide), abs=1)
    assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 10
    picture.save(str(tmp_path / "p.pdf"))
    assert (tmp_path / "p.pdf").read_bytes().startswith(b"%PDF")


def test_png_with_neither_is_explained(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(itf.Unsupported, match=r"program `dot` or matplotlib.*save \.svg"):
        itf.visualize(itf.asarray(x) + 1, path="p.png")
