from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests import pages
from tests.render_samples import HOSTILE, INPUT_BOUND, SAMPLES

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}: apt-get install chromium"),
]

CONTRAST = """() => {
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  const channels = text => {  // of a colour in whatever space
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const luminance = ([r, g, b]) => [r, g, b]
    .map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a = 1] = channels(getComputedStyle(e).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const [a, b] = [channels(getComputedStyle(element).color), behind(element)].map(luminance);
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push(`${element.className || element.tagName} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true; })"


@dataclass
class Visit:
    """A page as a reader has it open, with everything that it asked for and complained of."""

    page: playwright.Page
    url: str
    asked_for: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def is_quiet(self) -> bool:
        return self.asked_for == [self.url] and not self.complaints

    def overflow(self) -> int:
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")


Open = Callable[..., Visit]


@pytest.fixture
def visit(browser: playwright.Browser, tmp_path: Path) -> Iterator[Open]:
    contexts = []

    def opened(sample: str, *, width: int = 1100, **options: object) -> Visit:
        file = tmp_path / "report.html"
        file.write_text(pages.page(sample), "utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        made = Visit(context.new_page(), file.as_uri())
        made.page.on("request", lambda request: made.asked_for.append(request.url))
        made.page.on("console", lambda message: made.complaints.append(message.text))
        made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
        made.page.on("dialog", lambda dialog: made.complaints.append(dialog.message))
        made.page.route("**/*", lambda route: route.continue_() if route.request.url == made.url else route.abort())
        made.page.goto(made.url)
        return made

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
@pytest.mark.parametrize("sample", [name for name in SAMPLES if name != "hostile-long"])
def test_a_page_asks_for_nothing_and_complains_of_nothing(visit: Open, sample: str, scheme: str):
    opened = visit(sample, color_scheme=scheme)
    opened.page.evaluate(OPEN_ALL)
    assert opened.is_quiet, (opened.asked_for, opened.complaints)


@pytest.mark.parametrize("sample", ["resnet", "several", "cpu-only", "none", *(f"hostile-{name}" for name in HOSTILE)])
def test_a_phone_needs_no_sideways_scrolling(visit: Open, sample: str):
    opened = visit(sample, width=360)
    assert opened.overflow() <= 0
    opened.page.evaluate(OPEN_ALL)
    assert opened.overflow() <= 0


def test_two_hundred_findings_are_all_there(visit: Open):
    opened = visit("crowded")
    assert opened.page.locator("li.finding").count() == 200
    assert opened.overflow() <= 0


@pytest.mark.parametrize("sample", ["resnet", pytest.param("several", marks=pytest.mark.soak), "unknown"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_on_what_is_behind_it(visit: Open, sample: str, scheme: str):
    opened = visit(sample, color_scheme=scheme)
    opened.page.evaluate(OPEN_ALL)
    assert opened.page.evaluate(CONTRAST) == []


def test_dark_is_dark_and_light_is_light(visit: Open):
    def background(scheme: str) -> list[int]:
        color = visit("resnet", color_scheme=scheme).page.evaluate("getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]

    assert max(background("dark")) < 40
    assert min(background("light")) > 240


def test_hostile_text_is_text(visit: Open):
    opened = visit("hostile-script")
    assert HOSTILE["script"] in opened.page.locator("h2").last.inner_text()
    assert opened.page.locator("script:not([type])").count() == 6
    assert opened.is_quiet


def test_the_bar_is_drawn_to_scale(visit: Open):
    opened = visit("resnet")
    whole = opened.page.locator("svg.breakdown").bounding_box()["width"]
    part = opened.page.locator("svg.breakdown .c-input").bounding_box()["width"]
    assert part / whole == pytest.approx(0.334, abs=0.002)


def test_code_is_copied_by_mouse_and_by_keyboard(visit: Open):
    opened = visit("resnet", permissions=["clipboard-read", "clipboard-write"])
    for button, press in ((0, "click"), (1, "Enter")):
        copy = opened.page.locator("button.copy:visible").nth(button)
        copy.click() if press == "click" else copy.press(press)
        playwright.expect(copy).to_have_text("Copied")
    copied = opened.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith('scaler = torch.amp.GradScaler("cuda")')
    assert opened.is_quiet


def test_everything_folded_opens_by_keyboard(visit: Open):
    opened = visit("resnet")
    reached = set()
    for _ in range(120):
        opened.page.keyboard.press("Tab")
        if opened.page.evaluate("document.activeElement.tagName") == "SUMMARY":
            opened.page.keyboard.press("Enter")
            reached.add(opened.page.evaluate("document.activeElement.innerText"))
    folded = opened.page.locator("summary")
    assert reached == set(folded.all_inner_texts())


def test_the_page_reads_without_scripts(visit: Open):
    opened = visit("resnet", java_script_enabled=False)
    assert opened.page.locator("button.copy:visible").count() == 0
    opened.page.locator("summary", has_text="Why we think so").first.click()
    playwright.expect(opened.page.get_by_text(INPUT_BOUND.why)).to_be_visible()


def test_paper_has_everything_and_no_buttons(visit: Open):
    opened = visit("resnet", color_scheme="dark")
    opened.page.emulate_media(media="print")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    playwright.expect(opened.page.get_by_text(INPUT_BOUND.why)).to_be_visible()
    assert opened.page.locator("button.copy:visible").count() == 0
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.page.locator("details[open]").count() == 1  # what is suppressed is never folded away


def test_findings_come_first_and_a_list_of_them_stays_in_view(visit: Open):
    opened = visit("resnet", width=1400)
    assert opened.page.locator("h3").first.inner_text() == "What to change"
    links = opened.page.locator(".contents li li a")
    assert [href.get_attribute("href") for href in links.all()] == [f"#run-1-finding-{n}" for n in (1, 2, 3)]
    opened.page.locator("h3", has_text="What was read").scroll_into_view_if_needed()
    playwright.expect(links.first).to_be_in_viewport()
    links.nth(1).click()
    playwright.expect(opened.page.locator("#run-1-finding-2 h4")).to_be_in_viewport()


def test_the_contents_hold_no_link_that_leads_nowhere(visit: Open):
    opened = visit("several")
    links = "[...document.querySelectorAll('a[href^=\"#\"]')]"
    assert opened.page.evaluate(f"{links}.every(link => document.getElementById(link.hash.slice(1)))")


def test_a_table_on_a_phone_is_a_list_of_named_values(visit: Open):
    opened = visit("resnet", width=360)
    cell = opened.page.locator("[data-table=kernels] tbody td").first
    named = "cell => getComputedStyle(cell, '::before').content"
    assert cell.evaluate(named) == '"calls"'
    assert opened.page.locator(".table .scroll").first.evaluate("part => part.scrollWidth - part.clientWidth") <= 0


def test_headings_go_down_one_level_at_a_time(visit: Open):
    levels = visit("several").page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
