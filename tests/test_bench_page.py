"""The benchmark's page in a real browser: docs/benchmarking.md says how to have one here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import reports

from itfuse.bench import charts, page
from itfuse.bench.result import Report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
BROWSER = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(_PROGRAMS)} is here")

_STOPS = """() => {
    const e = document.activeElement;
    return e === document.body ? '' : e.tagName + ' ' + (e.id || e.getAttribute('href')
        || e.getAttribute('aria-label') || e.dataset.mark || e.textContent).trim();
}"""
_WANTED = """() => [...document.querySelectorAll('a, input, summary, [tabindex="0"]')]
    .map(e => e.tagName + ' ' + (e.id || e.getAttribute('href') || e.getAttribute('aria-label')
        || e.dataset.mark || e.textContent).trim())"""
_CLOSED = """() => [...document.querySelectorAll('details:not([open]) [tabindex="0"]')]
    .map(e => 'DIV ' + e.getAttribute('aria-label'))"""
_OVERLAPPING = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
    const texts = [...svg.querySelectorAll('text')].map(e => [e.textContent,
        e.getBoundingClientRect()]);
    return texts.flatMap(([a, p], at) => texts.slice(at + 1)
        .filter(([, q]) => p.left < q.right - 2 && q.left < p.right - 2
            && p.top < q.bottom - 4 && q.top < p.bottom - 4)
        .map(([b]) => a + ' | ' + b));
})"""
_INVISIBLE = """() => [...document.querySelectorAll('svg text')].filter(e => {
    const fill = getComputedStyle(e).fill, back = getComputedStyle(document.body).backgroundColor;
    return fill === back || fill === 'none';
}).length"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # As root, as in containers, Chromium has no sandbox; the page is our own.
        chromium = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def file(example: Report, tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text(page.page(reports.full(example)))
    return path


def opened(browser: Any, file: Path, scheme: str, width: int) -> tuple[Any, list[str]]:
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, offline=True
    )
    tab, said = context.new_page(), []
    tab.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("requestfailed", lambda request: said.append(f"asked for {request.url}"))
    tab.goto(file.as_uri())
    return tab, said


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_seen(
    scheme: str, width: int, browser: Any, file: Path, example: Report
) -> None:
    tab, said = opened(browser, file, scheme, width)
    assert said == []
    sizes = [one.bounding_box() for one in tab.locator("svg").all()]
    assert len(sizes) == len(charts.charts(reports.full(example)))
    assert all(size["width"] > 300 and size["height"] > 50 for size in sizes)
    scrolled, shown = tab.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert scrolled <= shown
    assert tab.evaluate(_INVISIBLE) == 0
    assert tab.evaluate(_OVERLAPPING) == []
    back = tab.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    tab.context.close()


def test_the_keyboard_reaches_everything(browser: Any, file: Path) -> None:
    tab, _ = opened(browser, file, "light", 1280)
    wanted, stops = tab.evaluate(_WANTED), []
    for _ in range(len(wanted) + 5):
        tab.keyboard.press("Tab")
        stop = tab.evaluate(_STOPS)
        if not stop and stops:
            break
        stops.append(stop)
    hidden = {one for one in wanted if one.startswith("DIV table of") and one not in stops}
    closed = tab.evaluate(_CLOSED)
    assert hidden <= set(closed)
    assert [one for one in wanted if one not in hidden] == stops
    tab.context.close()


def test_the_boxes_hide_and_show(browser: Any, file: Path) -> None:
    tab, _ = opened(browser, file, "dark", 1280)
    box, marks = tab.locator("input[data-mark]").nth(1), tab.locator("g.m1")
    assert marks.first.is_visible()
    box.focus()
    tab.keyboard.press("Space")
    assert not box.is_checked() and not marks.first.is_visible()
    assert tab.locator("g.m0").first.is_visible()
    tab.keyboard.press("Space")
    assert marks.first.is_visible()
    tab.context.close()
