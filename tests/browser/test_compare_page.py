"""The page of a comparison in a browser: its table, its flame graph, its width, its manners."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from advisor.render.registry import Request, draw
from tests.comparisons import SAMPLES, slower
from tests.render_samples import HOSTILE

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

AXE = Path(axe.__file__).parent / "axe.min.js"
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}: apt-get install chromium"),
]
SERIOUS = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter(v => ["serious", "critical"].includes(v.impact)).map(v => `${v.id}: ${v.nodes[0].html.slice(0, 200)}`)"""

Open = Callable[..., "playwright.Page"]


@pytest.fixture
def opened(browser: playwright.Browser, tmp_path: Path) -> Iterator[Open]:
    contexts, trouble = [], []

    def opener(found, *, width: int = 1100, **options: object) -> playwright.Page:
        file = tmp_path / "compare.html"
        file.write_bytes(draw(Request(found), "html"))
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: request.url == file.as_uri() or trouble.append(request.url))
        page.goto(file.as_uri())
        return page

    yield opener
    for context in contexts:
        context.close()
    assert trouble == []


def names(page: playwright.Page) -> list[str]:
    return page.locator("[data-table=work] tbody th").all_inner_texts()


def test_the_most_moved_work_comes_first_and_heads_sort(opened: Open):
    page = opened(slower())
    assert len(names(page)) == 15
    first = page.locator("[data-table=work] tbody tr").first.locator("td").all_inner_texts()
    assert first[:6] == ["more often", "1", "2", "0.377", "0.754", "+0.377"]
    page.locator("[data-table=work] [data-sort=key]").press("Enter")
    page.get_by_role("button", name="Show all").click()
    assert names(page) == sorted(names(page), key=str.casefold)
    assert len(names(page)) == 42


def test_the_table_is_filtered_grouped_and_downloaded(opened: Open):
    page = opened(slower())
    page.get_by_role("searchbox").fill("op1")
    assert "11 of 11" in page.locator("[data-table=work] .below").inner_text()
    page.get_by_role("searchbox").fill("")
    page.locator("[data-table=work] select").select_option(label="by what became of it")
    assert names(page)[0] == "slower, more"
    with page.expect_download() as download:
        page.locator("[data-table=work]").get_by_role("button", name="as CSV").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text("utf-8").splitlines()))
    assert {row["what became of it"] for row in rows} == {"slower, more", "more often", "new size"}
    assert float(rows[0]["change ms"]) == pytest.approx(40 * 0.377)


def test_the_flame_graph_tells_what_became_of_each_module(opened: Open):
    page = opened(slower())
    frames = page.locator(".flame [role=treeitem]")
    told = {frames.nth(i).get_attribute("aria-label"): frames.nth(i).get_attribute("class") for i in range(6)}
    assert told == {
        "everything: 60 ms, 100.0 %, was 60 ms": "frame k-all same",
        "Net: module, 60 ms, 100.0 %, was 50 ms": "frame k-module longer",
        "Conv: module, 35 ms, 58.3 %, was 20 ms": "frame k-module longer",
        "Norm: module, 15 ms, 25.0 %, was 30 ms": "frame k-module shorter",
        "what launched it was not recorded: module, 10 ms, 16.7 %, was not there": "frame k-module longer",
        "Dropout: module, 0 ns, 0.0 %, was 10 ms": "frame k-module shorter",
    }
    page.locator(".flame [role=treeitem]", has_text="Conv").click()
    assert page.locator(".flame [role=treeitem]:visible").all_inner_texts() == [
        "device time of a step: 60\N{NO-BREAK SPACE}ms, was 60\N{NO-BREAK SPACE}ms",
        "Net",
        "Conv",
    ]


@pytest.mark.parametrize("width", [360, 1100])
@pytest.mark.parametrize("sample", SAMPLES)
def test_the_page_is_as_wide_as_its_window(opened: Open, sample: str, width: int):
    page = opened(SAMPLES[sample], width=width)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened: Open, scheme: str):
    page = opened(slower(), color_scheme=scheme)
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(SERIOUS) == []


@pytest.mark.parametrize("text", [HOSTILE["script"], HOSTILE["rtl"], HOSTILE["long"]])
def test_whatever_the_names_the_page_stays_quiet(opened: Open, text: str):
    page = opened(slower(text), width=360)
    assert page.locator("[data-table=work] tbody tr").count() == 15
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_without_scripts_every_row_is_there(opened: Open):
    page = opened(slower(), java_script_enabled=False)
    assert page.locator("[data-table=work] tbody tr").count() == 42
