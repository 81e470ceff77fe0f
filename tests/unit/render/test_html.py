from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.report import Report
from advisor.render import html
from advisor.render.html import payloads
from advisor.text import one_line
from advisor.vocabulary.severities import GRADES
from tests import pages
from tests.effort import every, examples, soak
from tests.render_samples import (
    ACCOUNTING,
    HOSTILE,
    IMPOSSIBLE,
    QUICK,
    RESNET,
    SAMPLES,
    changed,
    drawn,
    hostile,
    part,
    report,
)

TEMPLATES = Path(__file__).parents[3] / "reports" / "templates"
VOID = {"meta", "link", "wbr"}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "rel", "href", "id", "class", "type", "hidden", "open"),
    *("scope", "tabindex", "aria-hidden", "aria-label", "aria-labelledby", "aria-live", "role", "value"),
    *("data-run", "data-chart", "data-show", "data-do", "data-table", "data-per", "data-all", "data-head"),
    *("viewbox", "fill", "x", "y", "width", "height", "rx", "cx", "cy", "r", "d", "x1", "x2", "y1", "y2"),
    *("preserveaspectratio", "stroke", "stroke-width"),
}


class Page(HTMLParser):
    """A page's elements, attributes and text; refuses what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.inside: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in {*self._open[-1:], "html"}:
            self.inside.setdefault(tag, []).append(data)

    def text(self, tag: str = "html") -> str:
        return "".join(self.inside.get(tag, [])).replace("\N{NO-BREAK SPACE}", " ")

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


@cache
def page(sample: str) -> Page:
    return Page(pages.page(sample))


@cache
def hostile_page(text: str) -> Page:
    return Page(pages.hostile(text))


def test_the_page_tells_what_counts():
    text = page("resnet").text()
    for told in (
        RESNET.verdict,
        "6 of 8 steps used, without step 7 (not recorded from its beginning) and step 14 (412 ms long)",
        "Fixing this saves 30\N{EN DASH}59 ms of each 178 ms step.",
        "loader = DataLoader(",
        "The GPU is idle most of the time",
        "recorded without record_shapes=True",
        "next time, record with advisor record",
        "not recorded from its beginning",
        "cut off after 83 MB",
        "the dataset library cannot pin, fixed upstream",
        "frequent-synchronisation",
        "Written by gpu-advisor 0.1.0",
    ):
        assert told in text


def test_an_interval_stays_on_one_line_and_hides_no_markup():
    finding = changed(RESNET.findings[0], says="between 19\N{EN DASH}21 ms & <b>")
    made = drawn(report(changed(RESNET, findings=(finding,))), "html")
    assert '<span class="interval">19\N{EN DASH}21</span>\N{NO-BREAK SPACE}ms &amp; &lt;b&gt;' in made
    assert "&lt;span" not in made


def test_severity_is_told_by_a_word_and_a_shape():
    made = pages.page("many-workers")
    for severity in ("medium", "low"):
        shape = f'<path d="{GRADES[severity].outline}"/>'
        assert re.search(rf'<li class="severity {severity}"><svg[^>]*>{re.escape(shape)}</svg>{severity}</li>', made)


def test_the_saving_is_drawn_to_scale():
    finding = changed(RESNET.findings[0], saving=changed(RESNET.findings[0].saving, low_share=0.125, high_share=0.5))
    made = drawn(report(changed(RESNET, findings=(finding,))), "html")
    assert 'class="possible" width="50.00%"' in made
    assert 'class="certain" width="12.50%"' in made


def test_the_breakdown_is_drawn_to_scale():
    halves = changed(ACCOUNTING, parts=(part("compute", 0.75), part("input", 0.25)))
    made = drawn(report(changed(RESNET, accounting=halves)), "html")
    assert 'fill="var(--part-compute)" x="0.00%" width="75.00%"' in made
    assert 'fill="var(--part-input)" x="75.00%" width="25.00%"' in made


def test_shares_that_no_step_can_have_stay_inside():
    made = drawn(report(changed(RESNET, accounting=IMPOSSIBLE)), "html")
    assert all(0 <= float(width[:-1]) <= 100 for width in Page(made).values("width") if width.endswith("%"))


def test_other_frameworks_are_folded_away():
    made = pages.page("resnet")
    folded = made.index("With tensorflow, jax")
    assert made.index("num_workers=4") < folded < made.index("ds.map")


def test_no_findings_are_no_health():
    text = page("cpu-only").text()
    assert "2 rules found nothing wrong" in text
    assert "this worker used no device in the recording" in text


def test_several_runs_are_linked_from_the_top():
    links = [href for href in page("several").values("href") if href.startswith("#")]
    assert links[:3] == ["#run-1", "#run-3", "#run-2"]  # the worst first
    assert "is no profile: neither JSON nor XPlane" in page("several").text()


@pytest.mark.parametrize("sample", soak(SAMPLES, unless=QUICK.__contains__))
def test_names_inside_the_page_are_unique_and_lead_somewhere(sample: str):
    ids = Counter(page(sample).values("id"))
    assert not [name for name, amount in ids.items() if amount > 1]
    inside = [href[1:] for href in page(sample).values("href") if href.startswith("#")]
    assert {*page(sample).values("aria-labelledby"), *inside} <= ids.keys()


@pytest.mark.parametrize("sample", soak(SAMPLES, unless=QUICK.__contains__))
def test_only_our_scripts_and_style_and_their_hashes(sample: str):
    (policy,) = [v for v in page(sample).values("content") if v.startswith("default-src")]
    made = pages.page(sample)
    ours = [
        (TEMPLATES / file).read_text("utf-8")
        for file in ("report.js", "charts.js", "tables.js", "timeline.js", "flame.js")
    ]
    scripts = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", made, re.DOTALL)
    assert scripts == ours
    assert styles == [str(html.part_colours()) + (TEMPLATES / "report.css").read_text("utf-8")]
    assert page(sample).tags["script"] == len(scripts) + len(SAMPLES[sample].runs)
    for element, contents in {"script": scripts, "style": styles}.items():
        digests = (base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents)
        allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
        assert f"{element}-src {allowed};" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_a_page_without_charts_does_without_what_draws_them():
    assert len(pages.page("none")) < 60_000


@pytest.mark.parametrize("text", every(2, HOSTILE.values()))
def test_the_data_of_a_page_is_one_json_text(text: str):
    (data, *_) = re.findall(
        r'<script type="application/json" id="run-\d+-data">(.*?)</script>', pages.hostile(text), re.DOTALL
    )
    assert not set(data) & set("<>&")
    assert json.loads(data)["tables"]["kernels"]["rows"][0][0].startswith(
        one_line(text, 20)[:10].rstrip("\N{HORIZONTAL ELLIPSIS}")
    )


def test_what_was_not_recorded_is_recorded_next_time_with_these_options():
    told = page("resnet").text().partition("next time, record with ")[2]
    assert told.startswith(
        "advisor record --memory -- COMMAND; by hand: record_shapes=True (the input shapes of every op)"
    )
    assert "profile_memory=True (how full the memory is)" in told


@pytest.mark.parametrize("sample", soak(SAMPLES, unless=QUICK.__contains__))
def test_no_attribute_runs_styles_or_loads_anything(sample: str):
    assert {name for _, name, _ in page(sample).attributes} <= ATTRIBUTES
    trusted = {fix.link for finding in RESNET.findings for fix in finding.fixes}
    for tag, name, value in page(sample).attributes:
        if name in {"fill", "stroke"}:
            assert re.fullmatch(r"var\(--part-\w+\)", value), tag
        if name == "href":
            assert value in trusted or value.startswith(("#run-", "data:image/svg+xml,")), tag


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_from_a_trace_is_an_element(text: str):
    ours, peaceful = hostile_page(text).tags, hostile_page("x").tags
    # breaks in names, `code` in sentences, documentation that is no link any more, and what parts of the step mean
    formatting = {"wbr", "code", "a", "small"}
    assert {t: n for t, n in ours.items() if t not in {*formatting, "span"}} == {
        t: n for t, n in peaceful.items() if t not in {*formatting, "span"}
    }


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_from_a_trace_leaves_its_attribute(text: str):
    def attributes(of: Page) -> Counter[tuple[str, str]]:
        return Counter((tag, name) for tag, name, _ in of.attributes if tag not in {"a", "span"})

    assert attributes(hostile_page(text)) == attributes(hostile_page("x"))


def test_hostile_text_is_shown_as_itself():
    assert HOSTILE["script"] in hostile_page(HOSTILE["script"]).text("h2")
    assert HOSTILE["template"] in hostile_page(HOSTILE["template"]).text("h2")


@examples(0.25)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_leaves_a_page_whole(text: str):
    made = drawn(hostile(text), "html")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", made)
    assert Page(made).tags["li"] == hostile_page("x").tags["li"]


def codes(page: str) -> list[str]:
    """The code of each button that copies, without what keeps its lines apart."""
    found = re.findall(r'<pre tabindex="0"><code>(.*?)</code></pre>', page, re.DOTALL)
    return [re.sub(r'<span class="line">|</span>', "", code) for code in found]


def test_code_to_copy_is_whole():
    code = "\n".join(f"line_{number} = call(<{number}>)" for number in range(60))
    finding = RESNET.findings[0]
    fix = finding.fixes[0].model_copy(update={"code": code})
    made = RESNET.model_copy(update={"findings": (finding.model_copy(update={"fixes": (fix,)}),)})
    shown = drawn(report(made), "html")
    assert code in [unescape(each) for each in codes(shown)]


def test_a_chart_with_links_is_a_group_and_one_without_a_picture():
    """A picture hides what is in it from a reader of the screen, who would still come to the link."""
    finding = changed(RESNET.findings[0], where=(changed(RESNET.findings[0].where[0], op="aten::mm"),))
    row = {"op": "aten::mm", "shape": "[8, 8]", "dtype": "bf16", "gflops": 2.0, "megabytes": 4.0, "calls": 6}
    row |= {"total_ms": 0.6, "reached": 0.2}
    text = drawn(report(changed(RESNET, metrics={**RESNET.metrics, "roof": (row,)}, findings=(finding,))), "html")
    roles = dict(re.findall(r'data-chart="(\w+)" role="(\w+)"', text))
    assert (roles["roof"], roles["step"]) == ("group", "img")


def test_a_page_is_small():
    assert len(pages.page("resnet")) < 1_100_000
    assert len(pages.page("large")) < 3_000_000
    assert len(pages.page("hostile-long")) < 3_000_000


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.name)
def test_templates_only_draw(template: Path):
    for expression in re.findall(r"\{[{%](.*?)[%}]\}", template.read_text("utf-8"), re.DOTALL):
        assert not re.search(r"\s[+*/-]\s|\bnamespace\b|\|\s*safe\b", expression), expression


def test_equal_siblings_of_a_flame_graph_are_one_frame():
    """Two layers of 10 and 12 ms, each with one op; an op of the same name elsewhere stays apart."""

    def frame(number: int, parent: int | None, name: str, total_ms: float) -> dict[str, object]:
        return {"id": number, "parent": parent, "name": name, "kind": "module", "total_ms": total_ms, "self_ms": 1.0}

    rows = (
        frame(0, None, "Model_0", 30),
        frame(1, 0, "Layer_0", 10),
        frame(2, 0, "Layer_1", 12),
        frame(3, 1, "aten::mm", 9),
        frame(4, 2, "aten::mm", 11),
        frame(5, 0, "aten::mm", 5),
    )
    run = changed(RESNET, metrics={**RESNET.metrics, "call_tree": rows})
    data = payloads(Report(advisor_version="1", runs=(run,)))["run-1"]["flame"]["rows"]
    assert [(row[2], row[4]) for row in data] == [
        ("Model_0", 30),
        ("2 \N{MULTIPLICATION SIGN} Layer", 22),
        ("aten::mm", 20),
        ("aten::mm", 5),
    ]


def test_times_of_an_operator_add_up_over_all_its_rows():
    # 120 shapes of `a`, from 1 ms to 120 ms, and 60 other ops of 0.5 ms
    rows = [{"name": "a", "shapes": f"[{n}]", "total_ms_per_step": float(n)} for n in range(1, 121)]
    rows += [{"name": f"b{n}", "total_ms_per_step": 0.5} for n in range(60)]
    run = changed(RESNET, metrics={**RESNET.metrics, "op": tuple(rows)})
    table = payloads(Report(advisor_version="1", runs=(run,)))["run-1"]["tables"]["operators"]
    time = table["columns"].index("total_ms_per_step")
    assert sum(row[time] for row in table["rows"] if row[0] == "a") == 7260
    assert sum(row[time] for row in table["rows"]) == 7290
    assert len(table["rows"]) == 101
    assert table["rows"][-1][0] == "others"


def test_each_region_of_a_page_of_several_runs_has_its_own_name():
    names = re.findall(r'role="region" aria-label="([^"]*)"', drawn(SAMPLES["several"], "html"))
    assert len(names) == len({*names}) > 1
