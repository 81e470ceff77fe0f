from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from advisor.model.report import Run
from tests import pages
from tests.browsing import MARKS, SCROLL, Visit, Visits
from tests.effort import every
from tests.render_samples import RESNET, SAMPLES, changed, drawn, report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = MARKS

Open = Callable[..., Visit]


@pytest.fixture
def opened(visit: Visits) -> Open:
    return lambda sample, **options: visit(pages.page(sample), **options)


# Tables, timeline and flame graph as they were when the page was loaded: that takes milliseconds, a page takes seconds.
RESET = """() => {
  for (const place of document.querySelectorAll(".tables .table")) {
    const { run } = place.closest(".tables").dataset;
    drawTable(place, dataOf(run).tables[place.dataset.table], run);
  }
  for (const chosen of document.querySelectorAll(".timeline select")) {
    chosen.value = "";
    chosen.dispatchEvent(new Event("change"));
  }
  for (const button of document.querySelectorAll(".flame [data-do=all]")) button.click();
}"""


@pytest.fixture
def resnet(opened: Open) -> Visit:
    made = opened("resnet")
    made.page.evaluate(RESET)
    return made


def kernels(made: Visit) -> list[str]:
    return made.page.locator("[data-table=kernels] tbody th").all_inner_texts()


def window(made: Visit) -> tuple[int, int]:
    made.repainted()
    start, end = made.page.locator(".timeline canvas").evaluate("c => [+c.dataset.from, +c.dataset.to]")
    return start, end


@pytest.mark.parametrize(
    ("sample", "amount"),
    [
        ("resnet", 4),
        ("many-workers", 8),
        pytest.param("hostile", 11, marks=pytest.mark.soak),
        pytest.param("large", 8, marks=pytest.mark.soak),
        pytest.param("hostile-script", 11, marks=pytest.mark.soak),
    ],
)
def test_every_chart_is_drawn_and_the_page_stays_quiet(opened: Open, sample: str, amount: int):
    made = opened(sample)
    made.page.evaluate(SCROLL)
    playwright.expect(made.page.locator(".plot > svg")).to_have_count(amount)
    assert made.trouble == []


@pytest.mark.parametrize("sample", ["many-workers", pytest.param("large", marks=pytest.mark.soak)])
def test_charts_and_tables_fit_a_phone(opened: Open, sample: str):
    made = opened(sample, width=360)
    made.page.evaluate(SCROLL)
    assert made.overflow() <= 0


@pytest.mark.parametrize(
    ("sample", "scheme"),
    [
        ("resnet", "dark"),
        *(
            pytest.param(sample, scheme, marks=pytest.mark.soak)
            for sample in ("tensorflow", "many-workers", "several", "none")
            for scheme in ("light", "dark")
        ),
    ],
)
def test_axe_finds_nothing_serious(opened: Open, sample: str, scheme: str):
    made = opened(sample, scheme=scheme)
    made.page.evaluate(SCROLL)
    with made.unfolded():
        assert made.serious() == []


@cache
def of_many_ranks() -> str:
    """The page of 1,024 ranks, 20 steps of 10 to 19 ms."""
    rows = [
        {
            "rank": rank,
            "name": f"rank {rank}",
            "node": str(rank // 8),
            "step": step,
            "own_ms": 10 + rank * step % 97 / 10,
        }
        for rank in range(1024)
        for step in range(20)
    ]
    eight = SAMPLES["many-workers"].runs[0]
    return drawn(report(changed(eight, findings=(), metrics={**eight.metrics, "pace": tuple(rows)})), "html")


@pytest.mark.parametrize(("width", "scheme"), every(2, [(390, "dark"), (1280, "light")]))
def test_the_row_of_a_node_leads_to_its_ranks(visit: Visits, width: int, scheme: str):
    assert len(of_many_ranks().encode()) < 3_000_000
    made = visit(of_many_ranks(), width=width, scheme=scheme)
    ranks = made.page.locator("[data-chart=heat] details details")
    made.page.locator("[data-chart=heat] details").evaluate_all("all => all.forEach(each => each.open = false)")
    playwright.expect(ranks.locator("svg.drawing").nth(17)).to_be_hidden()
    made.page.locator("[data-chart=heat] > svg a").nth(17).click()
    playwright.expect(ranks.locator("svg.drawing").nth(17)).to_be_visible()
    playwright.expect(ranks.locator("svg.drawing").nth(18)).to_be_hidden()
    assert ranks.nth(17).locator("text").all_text_contents()[:8] == [f"rank {n}" for n in range(136, 144)]
    assert made.overflow() <= 0
    with made.unfolded():
        assert made.serious() == []
    made.page.emulate_media(media="print")
    try:
        playwright.expect(ranks.nth(17)).to_be_hidden()
    finally:
        made.page.emulate_media(media="screen")


def test_the_ranks_of_a_node_open_with_the_keyboard(visit: Visits):
    made = visit(of_many_ranks())
    made.page.locator("[data-chart=heat] details").evaluate_all("all => all.forEach(each => each.open = false)")
    outer = made.page.locator("[data-chart=heat] > details > summary")
    outer.press("Enter")
    outer.press("Tab")
    made.page.keyboard.press("Enter")
    playwright.expect(made.page.locator("[data-chart=heat] details details svg.drawing").first).to_be_visible()


def test_the_steps_left_out_are_marked(resnet: Visit):
    marks = resnet.page.locator("[data-chart=steps] text", has_text="\N{MULTIPLICATION X}")
    playwright.expect(marks).to_have_count(2)


@pytest.mark.parametrize("press", ["click", "Enter"])
def test_a_table_is_sorted_by_its_heads(resnet: Visit, press: str):
    calls = resnet.page.locator("[data-table=kernels] [data-sort=calls]")
    assert kernels(resnet)[0] == "volta_sgemm_0"
    calls.click() if press == "click" else calls.press(press)
    assert kernels(resnet)[0] == "volta_sgemm_39"
    assert resnet.page.locator("[data-table=kernels] th[aria-sort]").get_attribute("aria-sort") == "descending"
    calls.click() if press == "click" else calls.press(press)
    assert kernels(resnet)[0] == "volta_sgemm_0"


def test_a_table_is_filtered_and_grouped(resnet: Visit):
    table = resnet.page.locator("[data-table=kernels]")
    table.locator("input").fill("SGEMM_3")
    assert sorted(kernels(resnet)) == ["volta_sgemm_3", *(f"volta_sgemm_{n}" for n in range(30, 40))]
    head = table.locator("thead th").first
    high, wide = table.bounding_box()["height"], head.bounding_box()["width"]
    table.locator("input").fill("nothing of that name")
    assert table.bounding_box()["height"] == pytest.approx(high, abs=1)
    assert head.bounding_box()["width"] == pytest.approx(wide, rel=0.1)
    assert table.locator("[role=status]").inner_text() == "no kernel matches"
    table.locator("input").fill("")
    table.locator("select").first.select_option("launching op")
    assert kernels(resnet) == ["aten::addmm", "aten::mm"]
    assert (
        table.locator("tbody tr").first.locator("td").nth(1).inner_text() == "70\u00a0ms"
    )  # (40 + 38 + ... + 2) / 6 ms
    table.locator("select").first.select_option("Tensor Cores")
    assert kernels(resnet) == ["could use them", "use them", "could not tell", "no gain from them"]


def operators(names: Iterable[str], host_ms: Iterable[float], device_ms: Iterable[float]) -> Run:
    rows = [
        {"name": name, "shapes": None, "calls_per_step": 1, "ms_per_step": host, "device_ms_per_step": device}
        for name, host, device in zip(names, host_ms, device_ms, strict=True)
    ]
    return changed(RESNET, metrics={**RESNET.metrics, "op": tuple(rows)})


def test_operators_are_grouped_by_type_and_weighed_by_host_time_where_there_is_no_device(visit: Visits):
    names = ("scope/a/MatMul:MatMul", "scope/b/MatMul_1:MatMul", "jit(f)/dot_general", "aten::mm")
    frameworks = operators(names, (1, 1, 1, 1), (1, 0.5, 0.25, 0.125))
    host = operators(("short", "long"), (1, 3), (0, 0))
    tables = visit(drawn(report(frameworks, host), "html")).page.locator("[data-table=operators]")
    tables.first.locator("select").first.select_option("type")
    assert tables.first.locator("tbody th").all_inner_texts() == ["MatMul", "dot_general", "mm"]
    assert tables.last.locator("tbody th").all_inner_texts() == ["long", "short"]
    assert tables.last.locator("td.share").first.inner_text() == "75.0\u00a0%"


def test_kernels_and_operators_are_both_told_per_step(resnet: Visit):
    assert resnet.page.locator(".table h4").all_inner_texts() == ["Kernels, per step", "Operators, per step"]
    cells = resnet.page.locator("[data-table=kernels] tbody tr").nth(2).locator("td").all_inner_texts()
    # of 6 steps: 13 calls, 38 ms
    assert cells[:3] == ["2.17", "6.33\u00a0ms", "2.92\u00a0ms"]
    times = resnet.page.evaluate("[time(0.0035), time(1234), time(-0.5, true), of('calls', 3), of('min µs', 4)]")
    assert [of.replace("\u00a0", " ") for of in times] == ["3.5 µs", "1.23 s", "\u22120.5 ms", "3", "4 µs"]


def test_a_label_of_a_frame_is_whole_or_has_four_letters(opened: Open):
    made = opened("resnet", width=360, own=True)
    cut = made.page.evaluate("""() => [...document.querySelectorAll('.frame span')]
      .filter(label => label.checkVisibility() && label.parentElement.scrollWidth > label.parentElement.clientWidth)
      .map(label => label.parentElement.clientWidth)""")
    assert cut
    assert min(cut) > 45


def test_a_table_comes_as_csv_that_no_spreadsheet_runs(opened: Open, tmp_path: Path):
    made = opened("hostile-actions")
    with made.page.expect_download() as caught:
        made.page.locator("[data-table=kernels] button", has_text="CSV").first.click()
    caught.value.save_as(tmp_path / "kernels.csv")
    with (tmp_path / "kernels.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][:2] == ["kernel", "calls"]
    assert len(rows) == 41
    evaluated = made.page.evaluate("[cellOf('=1+1'), cellOf('a,\"b\"'), cellOf(-1), cellOf(null)]")
    assert evaluated == ["'=1+1", '"a,""b"""', "-1", ""]


LINES = [
    ("memory", 50),
    *(pytest.param(*one, marks=pytest.mark.soak) for one in [("steps", 21), ("waits", 7), ("bandwidth", 7)]),
]


@pytest.mark.parametrize(("name", "rows"), LINES)
def test_the_numbers_of_a_chart_come_as_csv(opened: Open, tmp_path: Path, name: str, rows: int):
    made = opened("many-workers")
    with made.page.expect_download() as caught:
        made.page.locator(f"figure:has([data-chart={name}]) .csv").click()
    caught.value.save_as(tmp_path / "numbers.csv")
    with (tmp_path / "numbers.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == rows


def test_the_timeline_zooms_and_moves_by_keyboard(resnet: Visit):
    canvas = resnet.page.locator(".timeline canvas")
    whole = window(resnet)
    assert whole == (0, 178_000_000)
    canvas.press("+")
    near = window(resnet)
    assert near[1] - near[0] == pytest.approx(0.6 * whole[1], rel=0.01)
    canvas.press("ArrowRight")
    assert window(resnet)[0] > near[0]
    canvas.press("Home")
    assert window(resnet)[0] == 0
    canvas.press("0")
    assert window(resnet) == whole
    canvas.press("ArrowDown")
    assert "waits for the data loader" in resnet.page.locator(".timeline .readout").inner_text()
    assert resnet.trouble == []


def test_the_timeline_zooms_and_moves_by_mouse(resnet: Visit):
    canvas = resnet.page.locator(".timeline canvas")
    resnet.page.locator(".timeline [data-do=in]").click()
    near = window(resnet)
    assert near[1] - near[0] == pytest.approx(89_000_000, rel=0.01)
    canvas.scroll_into_view_if_needed()  # the click brings only its button into the window
    box = canvas.bounding_box()
    resnet.page.mouse.move(box["x"] + 400, box["y"] + 60)
    resnet.page.mouse.down()
    resnet.page.mouse.move(box["x"] + 200, box["y"] + 60)
    resnet.page.mouse.up()
    assert window(resnet)[0] > near[0]
    resnet.page.locator(".timeline [data-do=all]").click()
    assert window(resnet) == (0, 178_000_000)


def test_what_the_mouse_points_at_is_told(resnet: Visit):
    canvas = resnet.page.locator(".timeline canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    resnet.page.mouse.move(box["x"] + 20, box["y"] + 38 + 18 + 6)
    assert "Idle: waits for the data loader 59 ms" in resnet.page.locator(".timeline .readout").inner_text()
    resnet.page.mouse.move(box["x"] + 700, box["y"] + 38 + 18 + 14 + 6 + 18 + 6)
    assert "volta_sgemm_128x64_nt kernel, stream 7" in resnet.page.locator(".timeline .readout").inner_text()


def test_a_finding_is_shown_in_the_timeline(resnet: Visit):
    resnet.page.locator("[data-show=input-bound]").click()
    assert resnet.page.locator(".timeline select").input_value() == "input-bound"
    assert "Place 1 of 1" in resnet.page.locator(".timeline .readout").inner_text()
    assert resnet.page.evaluate("document.activeElement.tagName") == "CANVAS"


def test_the_timeline_zooms_around_the_place_of_a_finding_and_keeps_it_in_view(resnet: Visit):
    resnet.page.locator("[data-show=amp-unused]").click()
    near = window(resnet)
    assert near[0] < 64_900_000
    assert near[1] > 65_490_000
    assert near[1] - near[0] < 178_000_000 / 10
    resnet.page.locator(".timeline [data-do=in]").click()
    assert window(resnet)[0] < 65_195_000 < window(resnet)[1]
    resnet.page.locator(".timeline [data-do=on]").click()
    assert "Place 2 of 2" in resnet.page.locator(".timeline .readout").inner_text()
    assert window(resnet)[0] > near[0]  # places are counted by time


def labels(made: Visit) -> list[str]:
    shown = made.page.locator(".flame [role=treeitem]:visible").all_inner_texts()
    return [label.replace("\N{NO-BREAK SPACE}", " ") for label in shown]


def test_the_frames_are_drawn_to_scale_and_named(resnet: Visit):
    frames = resnet.page.locator(".flame [role=treeitem]")
    whole = frames.first.bounding_box()["width"]
    widths = [frames.nth(i).bounding_box()["width"] / whole for i in range(3)]
    assert widths == pytest.approx([1, 0.9, 0.1], abs=0.005)
    assert labels(resnet)[0] == "device time of a step: 100 ms"
    assert frames.nth(3).get_attribute("aria-label") == "Linear0: module, 48 ms, 48.0 %"
    assert frames.nth(2).get_attribute("aria-label") == "what launched it was not recorded: op, 10 ms, 10.0 %"


def test_a_frame_is_zoomed_by_mouse_and_all_are_back_by_a_button(resnet: Visit):
    before = labels(resnet)
    resnet.page.locator(".flame [role=treeitem]", has_text="Linear1").click()
    assert labels(resnet) == ["device time of a step: 100 ms", "Net_0", "Linear1", "aten::linear"]
    assert "Linear1 module, 24 ms, 24.0 %" in resnet.page.locator(".flame .readout").inner_text()
    resnet.page.locator(".flame [data-do=all]").click()
    assert labels(resnet) == before
    assert resnet.trouble == []


def test_the_frames_are_walked_through_by_keyboard(resnet: Visit):
    keys = resnet.page.keyboard
    resnet.page.locator(".flame [role=treeitem]").first.focus()
    focused = "document.activeElement.getAttribute('aria-label')"
    walked = []
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowDown", "ArrowUp"):
        keys.press(key)
        walked.append(resnet.page.evaluate(focused).partition(":")[0])
    assert walked == ["Net_0", "Linear0", "Linear1", "aten", "Linear1"]
    keys.press("Enter")
    assert labels(resnet) == ["device time of a step: 100 ms", "Net_0", "Linear1", "aten::linear"]
    keys.press("Escape")
    assert len(labels(resnet)) > 4
    assert resnet.page.locator(".flame [tabindex='0']").count() == 1  # one stop for the tabulator


def test_frames_of_a_comparison_tell_what_they_were(resnet: Visit):
    resnet.page.evaluate("""() => {
      const section = document.body.appendChild(document.querySelector(".flame").cloneNode(true));
      section.id = "compared";
      section.querySelector("[role=tree]").replaceChildren();
      drawFlame(section, {
        columns: ["id", "parent", "name", "kind", "total_ms", "self_ms", "base_ms"],
        rows: [["a", null, "longer", 60, 40], ["b", null, "shorter", 20, 50], ["c", null, "fresh", 20, null]]
          .map(([id, parent, name, now, then]) => [id, parent, name, "op", now, now, then]),
      });
    }""")
    frames = resnet.page.locator("#compared [role=treeitem]")
    assert [frames.nth(i).get_attribute("class") for i in (1, 2, 3)] == [
        "frame k-op longer",
        "frame k-op shorter",
        "frame k-op longer",
    ]
    assert frames.nth(3).get_attribute("aria-label") == "fresh: op, 20 ms, 20.0 %, was not there"
    resnet.page.evaluate("document.getElementById('compared').remove()")


def test_the_places_of_another_finding_are_marked_instead(resnet: Visit):
    marked = r"""([from, to]) => {
      const canvas = document.querySelector(".timeline canvas"), scale = canvas.width / 178e6;
      const probe = document.body.appendChild(make("i"));
      probe.style.color = "var(--mark)";
      const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g).map(Number);
      const at = Math.round((from + to) / 2 * scale), top = Math.round(36 * canvas.width / canvas.clientWidth);
      const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, -at, -top);
      const seen = copy.getImageData(0, 0, 1, 1).data;
      return seen[3] > 0 && [r, g, b].every((part, i) => Math.abs(part - seen[i]) < 60);
    }"""
    loader, kernel = [0, 59_000_000], [64_900_000, 65_490_000]
    resnet.page.locator("[data-show=input-bound]").click()
    resnet.page.locator(".timeline canvas").press("0")
    resnet.repainted()
    assert [resnet.page.evaluate(marked, span) for span in (loader, kernel)] == [True, False]
    resnet.page.locator("[data-show=amp-unused]").click()
    resnet.page.locator(".timeline canvas").press("0")
    resnet.repainted()
    assert [resnet.page.evaluate(marked, span) for span in (loader, kernel)] == [False, True]


@pytest.mark.parametrize("press", ["click", "Enter"])
def test_the_theme_can_be_chosen(opened: Open, press: str):
    made = opened("resnet", scheme="dark")
    button = made.page.locator("#theme")
    paper = []
    for _ in range(3):
        button.click() if press == "click" else button.press(press)
        paper.append(made.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert paper == ["rgb(255, 255, 255)", "rgb(16, 18, 22)", "rgb(16, 18, 22)"]


def test_ten_thousand_events_are_painted(opened: Open):
    made = opened("large")
    painted = made.page.locator(".timeline canvas").evaluate(
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)"
    )
    assert painted
    assert "10,000 of 10,005 events" in made.page.locator(".timeline").inner_text()
