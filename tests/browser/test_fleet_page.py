"""The fleet's page in a real browser: it loads nothing, narrows to a team by keyboard, and can be read by everybody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from advisor.config import Fleet
from advisor.fleet.store import Store
from advisor.fleet.weekly import weekly
from advisor.render.registry import Request, draw
from tests.browsing import MARKS, Visit, Visits
from tests.fleet import finding_row, run_row, stored

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
pytestmark = MARKS

Open = Callable[..., Visit]
LONG = "x" * 300
PLACES = "tr[data-team]:visible"


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> str:
    """Three teams and runs without one; vision has more findings than fit on a table's first part."""
    folder = tmp_path_factory.mktemp("fleet")
    saves = {"low_share": 0.1, "high_share": 0.3, "expected_share": 0.2}
    runs = [
        *(run_row(f"v{i}", job=f"job{i}", team="vision", owner="ann", **saves) for i in range(14)),
        run_row("s", job="asr", team="speech", gpu_hours=40.0),
        run_row("l", job=LONG, team=LONG, verdict=LONG, **saves),
        run_row("n", job="nobody", **saves),
        run_row("bad", status="unreadable", reason="empty: do it again", path=f"/{LONG}"),
        *(run_row(f"p{week}", job="asr", team="speech", week=f"2026-W{week}") for week in (44, 45, 46)),
    ]
    findings = [
        *(finding_row(f"v{i}", low=0.1, high=0.3) for i in range(14)),
        finding_row("l", "other-rule"),
        finding_row("n"),
    ]
    store = stored(Store(str(folder / "store")), runs=runs, findings=findings)
    week = weekly(store, Fleet(prices={"a100": 2.0}, gpu_hours_per_week=4000))
    return draw(Request(week, links="fleet-runs"), "html").decode()


@pytest.fixture
def opened(visit: Visits, html: str) -> Open:
    return lambda **options: visit(html, **options)


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), pytest.param(1100, "light", marks=pytest.mark.soak)])
def test_a_page_that_loads_nothing_and_that_everybody_can_read(opened: Open, scheme: str, width: int):
    made = opened(scheme=scheme, width=width)
    with made.unfolded():
        assert (made.requests, made.complaints) == ([made.url], [])
        assert made.overflow() <= 0
        result = axe.Axe().run(made.page)
    assert [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in result.response["violations"]] == []


def test_a_team_is_chosen_by_keyboard(opened: Open):
    made = opened(own=True)
    page = made.page
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "team":
            break
    page.keyboard.press("s")  # as in any list: the entry that begins so
    playwright.expect(page.locator("#team")).to_have_value("speech")
    assert {row.get_attribute("data-team") for row in page.locator(PLACES).all()} == {"speech"}
    playwright.expect(page.locator("dl.figures:visible")).to_contain_text("40 GPU-h")
    playwright.expect(page.locator("#week-verdict")).to_contain_text(
        "2026-W47, speech: no finding with a saving in 1 run"
    )
    assert page.locator("#week-rules").is_hidden()
    assert page.locator("#week-findings").is_hidden()
    assert page.locator(".contents a[href='#week-findings']").is_hidden()
    assert page.url.endswith("#team=speech")
    page.select_option("#team", "")
    assert page.locator("#week-rules").is_visible()
    assert page.locator("#week-findings").is_visible()
    playwright.expect(page.locator("#week-verdict")).to_contain_text("2026-W47: fixes save")
    assert page.locator("dl.figures:visible").count() == 1
    assert made.complaints == []


def test_a_link_to_a_team(opened: Open):
    page = opened(at="#team=vision", own=True).page
    assert page.locator("#team").input_value() == "vision"
    assert page.locator("section:has(#week-findings) tr[data-team]:visible").count() == 14  # also the folded
    assert page.locator("section:has(#week-findings) .more summary").inner_text() == "6 more"
    assert page.locator("section:has(#week-actions) tbody tr:visible").count() == 1  # one fix of 14 jobs
    page.select_option("#team", "(no label)")
    assert page.locator("section:has(#week-findings) tr[data-team]:visible").count() == 1
    assert opened(at="#team=nobody").page.locator("#week-rules").is_visible()


def test_without_scripts_the_page_shows_all_teams(opened: Open):
    page = opened(java_script_enabled=False).page
    assert page.locator("#team").is_hidden()
    assert page.locator("dl.figures:visible").count() == 1
    assert page.locator("#week-rules").is_visible()


def test_items_lead_to_the_reports_of_their_runs(opened: Open):
    page = opened().page
    assert page.locator("section:has(#week-actions) a").first.get_attribute("href").startswith("fleet-runs/")
    assert page.locator("section:has(#week-runs) a").first.get_attribute("href").startswith("fleet-runs/")


def test_paper_has_what_is_open(opened: Open):
    page = opened().page
    page.emulate_media(media="print")
    assert page.locator("section:has(#week-findings) tr[data-team]:visible").count() == 0
    assert page.locator("#theme").is_hidden()
    page.emulate_media(media="screen")
