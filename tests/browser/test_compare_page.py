"""The page of a comparison in a browser: its table, its flame graph, its width, its manners."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.model.comparison import Comparison
from advisor.render.registry import Request, draw
from tests.browsing import MARKS, Visit, Visits
from tests.comparisons import SAMPLES, slower
from tests.render_samples import HOSTILE

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = MARKS

ALIKE = ("faster", "same", "inconclusive")  # the page of the slower with another verdict
Open = Callable[..., Visit]


@pytest.fixture
def opened(visit: Visits) -> Open:
    def opener(value: Comparison, **options: object) -> Visit:
        return visit(draw(Request(value), "html").decode(), **options)

    return opener


def names(page: playwright.Page) -> list[str]:
    return page.locator("[data-table=work] tbody th").all_inner_texts()


def test_the_most_moved_work_comes_first_and_heads_sort(opened: Open):
    page = opened(slower(), own=True).page
    assert len(names(page)) == 15
    first = page.locator("[data-table=work] tbody tr").first.locator("td").all_inner_texts()
    assert first[:6] == ["more often", "1", "2", *(f"{of}\u00a0ms" for of in ("0.377", "0.754", "+0.377"))]
    page.locator("[data-table=work] [data-sort=key]").press("Enter")
    page.get_by_role("button", name="Show all").click()
    assert names(page) == sorted(names(page), key=str.casefold)
    assert len(names(page)) == 42


def test_the_table_is_filtered_grouped_and_downloaded(opened: Open):
    page = opened(slower()).page
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
    page = opened(slower()).page
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
@pytest.mark.parametrize(
    "sample", ["slower", "nothing", *(pytest.param(name, marks=pytest.mark.soak) for name in ALIKE)]
)
def test_the_page_is_as_wide_as_its_window(opened: Open, sample: str, width: int):
    made = opened(SAMPLES[sample])
    with made.width(width):
        assert made.overflow() <= 0


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_axe_finds_nothing_serious(opened: Open, scheme: str):
    assert opened(slower(), scheme=scheme).serious() == []


TOGETHER = "".join(HOSTILE[name] for name in ("script", "rtl", "long"))
SOAK = [pytest.param(HOSTILE[name], marks=pytest.mark.soak) for name in ("script", "rtl", "long")]


@pytest.mark.parametrize("text", [TOGETHER, *SOAK])
def test_whatever_the_names_the_page_stays_quiet(opened: Open, text: str):
    made = opened(slower(text), width=360)
    assert made.page.locator("[data-table=work] tbody tr").count() == 15
    assert made.overflow() <= 0
    assert made.trouble == []


def test_the_page_stays_quiet_and_has_the_theme(opened: Open):
    made = opened(slower())
    themes = []
    for _ in range(3):
        made.page.locator("#theme").click()
        themes.append(made.page.locator("html").get_attribute("data-theme"))
    assert themes == ["light", "dark", None]
    assert made.trouble == []


def test_without_scripts_every_row_is_there(opened: Open):
    made = opened(slower(), java_script_enabled=False)
    assert made.page.locator("[data-table=work] tbody tr").count() == 42
