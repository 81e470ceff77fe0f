from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from advisor.render.registry import Request, draw
from tests import pages
from tests.browsing import MARKS, Visit, Visits
from tests.effort import soak
from tests.golden.test_figures import checked
from tests.render_samples import HOSTILE, INPUT_BOUND, SAMPLES

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = MARKS
OFTEN = {"resnet", "cpu-only", "several", "unknown", "none", "crowded"}  # those that other tests look at too
SOAK = [pytest.param(f"hostile-{name}", marks=pytest.mark.soak) for name in HOSTILE]  # the page "hostile" has all

CONTRAST = """() => {
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
    .getContext("2d", { willReadFrequently: true });
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

FOLDED = "document.activeElement.tagName === 'SUMMARY' ? document.activeElement.innerText : null"

Open = Callable[..., Visit]


@pytest.fixture
def opened(visit: Visits) -> Open:
    return lambda sample, **options: visit(pages.page(sample), **options)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
@pytest.mark.parametrize("sample", [*soak(SAMPLES, unless=OFTEN.__contains__), "hostile"])
def test_a_page_asks_for_nothing_and_complains_of_nothing(opened: Open, sample: str, scheme: str):
    made = opened(sample, scheme=scheme)
    with made.unfolded():
        assert (made.requests, made.complaints) == ([made.url], [])


@pytest.mark.parametrize(
    "sample", ["resnet", pytest.param("several", marks=pytest.mark.soak), "cpu-only", "none", "hostile", *SOAK]
)
def test_a_phone_needs_no_sideways_scrolling(opened: Open, sample: str):
    made = opened(sample, width=360)
    assert made.overflow() <= 0
    with made.unfolded():
        assert made.overflow() <= 0


def test_two_hundred_findings_are_all_there(opened: Open):
    made = opened("crowded")
    assert made.page.locator("li.finding").count() == 200
    assert made.overflow() <= 0


@pytest.mark.parametrize("sample", ["resnet", pytest.param("several", marks=pytest.mark.soak), "unknown"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_on_what_is_behind_it(opened: Open, sample: str, scheme: str):
    made = opened(sample, scheme=scheme)
    with made.unfolded():
        assert made.page.evaluate(CONTRAST) == []


def test_dark_is_dark_and_light_is_light(opened: Open):
    def background(scheme: str) -> list[int]:
        color = opened("resnet", scheme=scheme).page.evaluate("getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]

    assert max(background("dark")) < 40
    assert min(background("light")) > 240


def test_hostile_text_is_text(opened: Open):
    made = opened("hostile")
    assert HOSTILE["script"] in made.page.locator("h2").last.inner_text()
    assert made.page.locator("script:not([type])").count() == 5
    assert made.trouble == []


def test_the_bar_is_drawn_to_scale(opened: Open):
    made = opened("resnet")
    whole = made.page.locator("svg.breakdown").bounding_box()["width"]
    part = made.page.locator("svg.breakdown [fill='var(--part-input)']").bounding_box()["width"]
    assert part / whole == pytest.approx(0.334, abs=0.002)


def test_code_is_copied_by_mouse_and_by_keyboard(opened: Open):
    made = opened("resnet")
    made.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    buttons = made.page.locator("button.copy:visible")
    for button, press in ((0, "click"), (1, "Enter")):
        copy = buttons.nth(button)
        copy.click() if press == "click" else copy.press(press)
        playwright.expect(copy).to_have_text("Copied")
    copied = made.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith('scaler = torch.amp.GradScaler("cuda")')
    assert made.trouble == []


@pytest.mark.parametrize("sample", ["cpu-only", pytest.param("resnet", marks=pytest.mark.soak)])
def test_everything_folded_opens_by_keyboard(opened: Open, sample: str):
    made = opened(sample, own=True)
    folded, reached = made.page.locator("summary"), set()
    for _ in range(120):
        made.page.keyboard.press("Tab")
        if text := made.page.evaluate(FOLDED):
            made.page.keyboard.press("Enter")
            reached.add(text)
            if reached == set(folded.all_inner_texts()):
                break
    assert reached == set(folded.all_inner_texts())


def test_the_page_reads_without_scripts(opened: Open):
    made = opened("resnet", java_script_enabled=False)
    assert made.page.locator("button.copy:visible").count() == 0
    made.page.locator("summary", has_text="Why we think so").first.click()
    playwright.expect(made.page.get_by_text(INPUT_BOUND.why)).to_be_visible()


def test_paper_has_what_is_open_and_no_buttons(opened: Open):
    made = opened("resnet", scheme="dark")
    made.page.emulate_media(media="print")
    playwright.expect(made.page.get_by_text(INPUT_BOUND.why)).to_be_hidden()
    assert made.page.locator("button.copy:visible").count() == 0
    assert made.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    pages = made.page.pdf(format="A4").count(b"/Type /Page\n")
    assert 1 <= pages <= 5
    made.page.emulate_media(media="screen")


def test_what_counts_comes_first_and_a_list_of_them_stays_in_view(opened: Open):
    made = opened("resnet")
    with made.width(1400):
        titles = [title.replace("\xa0", " ") for title in made.page.locator("h3").all_inner_texts()[:3]]
        assert titles == ["Where a step of 178 ms goes", "What to do", "How far to trust it"]
        links = made.page.locator(".contents li li a")
        assert [href.get_attribute("href") for href in links.all()] == [f"#run-1-finding-{n}" for n in (1, 2, 3)]
        made.page.locator("h3", has_text="What was read").scroll_into_view_if_needed()
        playwright.expect(links.first).to_be_in_viewport()
        links.nth(1).click()
        playwright.expect(made.page.locator("#run-1-finding-2 h4")).to_be_in_viewport()


def test_the_contents_hold_no_link_that_leads_nowhere(opened: Open):
    made = opened("several")
    links = "[...document.querySelectorAll('a[href^=\"#\"]')]"
    assert made.page.evaluate(f"{links}.every(link => document.getElementById(link.hash.slice(1)))")


def test_a_table_on_a_phone_is_a_list_of_named_values(opened: Open):
    made = opened("resnet", width=360)
    cell = made.page.locator("[data-table=kernels] tbody td").first
    named = "cell => getComputedStyle(cell, '::before').content"
    assert cell.evaluate(named) == '"calls"'
    assert made.page.locator(".table .scroll").first.evaluate("part => part.scrollWidth - part.clientWidth") <= 0


def test_headings_go_down_one_level_at_a_time(opened: Open):
    levels = opened("several").page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("recording", ["shared/kineto/memory-events-nccl"])
def test_a_long_report_is_five_sheets_of_paper(visit: Visits, recording: str):
    page = visit(draw(Request(checked(recording)), "html").decode()).page
    assert {page.pdf(format=size).count(b"/Type /Page\n") for size in ("A4", "Letter")} <= {1, 2, 3, 4, 5}


def test_a_name_without_words_has_the_whole_width(opened: Open):
    path = opened("resnet").page.locator(".pairs > div", has=opened("resnet").page.locator("dd:empty")).last
    assert " " not in path.evaluate("pair => getComputedStyle(pair).gridTemplateColumns")
