from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import get_args

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import ReadError
from advisor.model.comparison import Comparison, Shift, Side, Verdict
from advisor.render import mermaid
from advisor.render.compared import html as page
from advisor.render.compared import json as contract
from advisor.render.compared import markdown, terminal, words
from tests.comparisons import SAMPLES, slower
from tests.effort import examples
from tests.render_samples import HOSTILE

COMMITTED = Path(__file__).parents[3] / "reports" / "schema" / "comparison-1.json"
MENTION = re.compile(r"[@#!][\w\"{]|\bGH-\d|://|\bwww\.", re.IGNORECASE)
SCREEN = 45  # lines of a comment that are open, as GitHub draws it: a table's row is one


def drawn(text: str) -> str:
    """The comment as GitHub's own parser draws it."""
    return cmarkgfm.github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE)


def tags(text: str) -> list[str]:
    """The elements drawn; what a profile puts between backticks may be code."""
    return [tag for tag in re.findall(r"</?[a-z0-9]+", drawn(text)) if tag not in {"<code", "</code"}]


# ------------------------------------------------------------------------------------------ words


def test_the_headline_tells_verdict_size_and_cause():
    assert words.headline(slower()) == "Slower: 127 → 177 ms a step (+39 %), above all input (+59 ms)"
    assert words.headline(SAMPLES["same"]) == "No change: 177 ms a step (+39 %)"
    assert words.headline(SAMPLES["nothing"]) == "Inconclusive: no marked, complete step to time on the base and head"


@pytest.mark.parametrize(
    ("cause_ms", "said"), [(24, "above all"), (26, "most of it"), (50, "most of it"), (51, "above all")]
)
def test_a_cause_is_most_of_it_from_half_of_the_headlines_change_to_all_of_it(cause_ms: float, said: str):
    cause = Shift(category="input", base_ms=0, head_ms=cause_ms)
    assert f"{said} input" in words.headline(slower().model_copy(update={"cause": cause}))


def test_one_recording_on_both_sides_has_no_interval():
    assert "95 %" in words.certainty(slower())
    same = SAMPLES["same"].model_copy(
        update={"head": SAMPLES["same"].base, "reason": "both sides are the same recording"}
    )
    assert words.certainty(same) == "Both sides are the same recording."


def test_time_and_count_that_both_moved_are_both_named():
    change = slower().work[2]
    assert change.base is not None
    assert change.head is not None
    assert words.work_status(change) == "slower, more"
    alone = change.model_copy(update={"head": change.head.model_copy(update={"per_step": 1.04})})
    assert words.work_status(alone) == "slower"
    turned = change.model_copy(update={"base": change.head, "head": change.base, "status": "faster"})
    assert words.work_status(turned) == "faster, fewer"


def test_the_meaning_of_a_part_is_whole_or_on_a_line_of_its_own():
    whole = words.meaning("input")
    for width in (60, 80, 110):
        assert "waiting for the\u2026" not in terminal.render(slower(), width=width)
        assert whole[:30] in terminal.render(slower(), width=width, verbose=True)
    assert whole in terminal.render(slower(), width=110)


def test_the_flame_graph_says_whose_time_it_shows():
    shown = words.flame(slower())
    assert shown is not None
    assert shown.title == "Device time by module and operator, before and after"
    assert "The device's time alone: the host's and the waits are in the parts" in shown.says
    assert shown.all == "device time of a step: 60 ms, was 60 ms"
    hostly = words.flame(slower().model_copy(update={"head": slower().head.model_copy(update={"devices": ()})}))
    assert hostly is not None
    assert hostly.title.startswith("Host time")


def test_the_tally_counts():
    assert words.tally(slower()) == "findings: 1 new, 5 as before, 1 could not tell; 1 kernel and 41 ops changed"
    assert words.tally(SAMPLES["nothing"]) == "no findings on either side; no kernel or op changed"


def test_the_parts_that_make_up_the_change_stand_out():
    def row(base_ms: float, head_ms: float) -> words.Row:
        return words.Row("part", "x", "", base_ms, head_ms)

    rows = [row(50, 40), row(9, 11), row(1, 2.9), row(4, 4)]
    assert [words.moved(one, rows) for one in rows] == [True, True, False, False]
    assert not words.moved(rows[3], rows[3:])


def test_bars_share_a_scale():
    base, head = words.bars(slower())
    assert head[-1].start + head[-1].share == pytest.approx(1.0)
    assert base[-1].start + base[-1].share == pytest.approx(99.4 / 157.9)


def test_strips_share_an_axis():
    base, head = words.strips(slower())
    assert (base.low_ms, base.high_ms) == (head.low_ms, head.high_ms) == (pytest.approx(122.9), pytest.approx(191.1))
    assert 0 < base.steps[0] < base.median < head.median < head.steps[-1] < 1


def unlike() -> Comparison:
    """A step of 100 ms against 10 s of recording."""
    head = slower().head.model_copy(update={"per": "recording"})
    shifts = [
        slower().breakdown[0].model_copy(update=dict(zip(("category", "base_ms", "head_ms"), of, strict=True)))
        for of in (("compute", 75.0, 5000.0), ("input", 25.0, 5000.0))
    ]
    return slower().model_copy(update={"head": head, "breakdown": tuple(shifts), "work": ()})


def test_what_is_not_of_a_step_is_compared_in_shares():
    assert [words.cells(row) for row in words.rows(unlike())] == [
        ("75 %", "50 %", "\N{MINUS SIGN}25 points"),
        ("25 %", "50 %", "+25 points"),
    ]
    base, head = words.bars(unlike())
    assert [bar.share for bar in (*base, *head)] == [0.75, 0.25, 0.5, 0.5]
    told = "Where the time goes, in shares of a step on the base, the recording on the head"
    for text in (markdown.render(unlike()), page.render(unlike()), terminal.render(unlike())):
        assert told in text
        assert "10 s" not in text
    assert "mermaid" not in markdown.render(unlike())
    assert "kernels and ops not compared" in words.tally(unlike())


def test_a_side_without_numbers_is_said_to_be_not_measured():
    head = slower().head.model_copy(update={"per": None})
    found = slower().model_copy(update={"head": head, "breakdown": (), "work": ()})
    for text in (markdown.render(found), page.render(found), terminal.render(found)):
        assert "not measured on the head" in text


def test_a_size_that_comes_or_goes_is_no_new_name():
    (sized,) = [change for change in slower().work if change.name == "aten::copy_"]
    assert words.work_status(sized) == "new size"
    assert words.work_status(sized.model_copy(update={"base": sized.head, "head": None})) == "size gone"
    assert words.work_status(sized.model_copy(update={"size": None})) == "new"
    assert "aten::copy_ [[3, 224], []]" in terminal.render(slower(), width=110)


def test_a_caution_stands_beside_the_verdict():
    found = slower().model_copy(update={"cautions": ("the work of a step differs: 1 op has other sizes",)})
    for text in (markdown.render(found), page.render(found), terminal.render(found)):
        before = text.split("1 op has other sizes")[0]
        assert "Slower" in before
        assert "compute" not in before.split("<body", 1)[-1]


def test_less_than_a_nanosecond_is_no_difference():
    assert words.signed_ms(7.1e-15) == words.signed_ms(-7.1e-15) == "±0 ms"


# ------------------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize("sample", SAMPLES)
def test_json_comes_back_the_same(sample: str):
    text = contract.render(SAMPLES[sample])
    assert contract.load(text) == SAMPLES[sample]
    assert text.isascii()


def test_the_committed_schema_is_that_of_the_code():
    assert COMMITTED.read_text("utf-8") == contract.schema(), (
        "run: python -m advisor.render.compared.json > reports/schema/comparison-1.json"
    )


def test_the_schema_describes_what_is_written():
    described = json.loads(contract.schema())
    assert set(json.loads(contract.render(slower()))) == set(described["properties"])
    assert set(described["properties"]["verdict"]["enum"]) == set(get_args(Verdict))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 1}', "nonsense"])
def test_what_is_no_comparison_is_refused_on_one_line(text: str):
    with pytest.raises(ReadError, match=r"^c\.json: is no comparison: .*advisor compare -o") as refused:
        contract.load(text, "c.json")
    assert "\n" not in str(refused.value)


# ------------------------------------------------------------------------------------------ Markdown


def test_the_verdict_is_in_the_first_line():
    text = markdown.render(slower())
    assert html.unescape(text.splitlines()[0]) == f"### 🔴 {words.headline(slower())}"


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_is_open_fits_a_screen(sample: str):
    text = markdown.render(SAMPLES[sample])
    folded = re.sub(r"(?s)<details><summary>(.*?)</summary>.*?</details>", r"\1", text)
    assert len([line for line in folded.splitlines() if line]) <= SCREEN
    assert len(folded) < 3000


def test_five_findings_are_in_the_table():
    text = markdown.render(slower(amount=30))
    table = text[: text.index("<details>")]
    assert table.count("\n| ") == 1 + 1 + 5 + 1
    assert "and 25 more" in table


@pytest.mark.parametrize("sample", SAMPLES)
def test_github_draws_tables_and_folded_parts(sample: str):
    shown = tags(markdown.render(SAMPLES[sample]))
    assert shown.count("<details") == shown.count("</details")
    assert shown.count("<h3") == 1
    rich = sample != "nothing"
    assert shown.count("<table") == (3 if rich else 0)
    assert ('lang="mermaid"' in drawn(markdown.render(SAMPLES[sample]))) == rich


def test_the_chart_has_both_sides_and_marks_the_cause():
    chart = re.search(r"(?s)```mermaid\n(.*?)\n```", markdown.render(slower()))
    assert chart is not None
    assert chart[1].split("\n") == [
        *("---", "displayMode: compact", "---", "gantt", "  dateFormat x"),
        *("  axisFormat %Q ms", "  tickInterval 20millisecond"),
        *("  section base", "  compute :t0p0, 0, 99"),
        *("  section head", "  compute :t1p0, 0, 98", "  input :crit, t1p1, 98, 158"),
    ]


def test_a_chart_names_only_what_is_long_enough_and_ours():
    drawn = mermaid.bars([mermaid.bar("step", [("compute", 9.0), ("host", 0.1), ("click x href", 2.0), ("y", 2.0)])])
    assert drawn is not None
    assert drawn.splitlines()[6:-1] == [
        *("  axisFormat %-S ms", "  tickInterval 2000millisecond", "  section step"),
        *("  compute :t0p0, 0, 9000", "  unlisted :done, t0p1, 9000, 13000", "  rest :done, t0p2, 13000, 13100"),
    ]
    assert mermaid.bars([]) is mermaid.bars([mermaid.bar("step", [("compute", 0.0)])]) is None


def test_the_breakdown_adds_up_to_the_medians_of_the_headline():
    rows = words.rows(slower())
    parts = [row for row in rows if row.kind == "part"]
    whole, rest, median = rows[len(parts) :]
    for side in ("base_ms", "head_ms", "change_ms"):
        assert sum(getattr(row, side) for row in parts) == pytest.approx(getattr(whole, side))
        assert getattr(whole, side) + getattr(rest, side) == pytest.approx(getattr(median, side))
    assert (median.base_ms, median.head_ms) == (127.0, 177.0)
    for text in (markdown.render(slower()), terminal.render(slower()), page.render(slower())):
        assert "all steps" in text


def test_of_many_ranks_the_breakdown_says_whose_it_is():
    def of(side: Side, worker: int) -> Side:
        series = tuple(one.model_copy(update={"worker": worker}) for one in side.series)
        return side.model_copy(update={"world_size": 8, "series": series})

    both = slower().model_copy(update={"base": of(slower().base, 1), "head": of(slower().head, 3)})
    meanings = {row.name: row.meaning for row in words.rows(both)}
    assert meanings["even steps"] == "their mean, of rank 1 on the base and 3 on the head"
    assert "slowest rank" in meanings["difference"]
    alike = both.model_copy(update={"head": of(slower().head, 1)})
    assert {row.name: row.meaning for row in words.rows(alike)}["even steps"] == "their mean, of rank 1"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_from_a_profile_is_markup_or_a_mention(text: str):
    ours, peaceful = markdown.render(slower(text), most=10**7), markdown.render(slower(), most=10**7)
    assert tags(ours) == tags(peaceful)
    seen = html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"(?s)```mermaid.*?```", "", ours)))
    assert not MENTION.search(seen)


@examples(0.5)
@given(st.text(max_size=40))
def test_whatever_the_text_the_comment_keeps_its_shape(text: str):
    assert tags(markdown.render(slower(text))) == tags(markdown.render(slower()))


def test_a_comment_that_grows_too_long_is_cut_between_blocks():
    text = markdown.render(slower(), most=1500)
    assert len(text) <= 1500
    assert "Shortened" in text
    assert text.count("<details>") == text.count("</details>")


# ------------------------------------------------------------------------------------------ terminal


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("width", [60, 80, 110])
def test_lines_fit_the_terminal(sample: str, width: int):
    short, full = (terminal.render(SAMPLES[sample], width=width, verbose=verbose) for verbose in (False, True))
    assert max(len(line) for line in (short + full).splitlines()) <= width
    assert len(short.splitlines()) <= 50


def test_the_terminal_shows_verdict_categories_findings_and_work():
    text = terminal.render(slower())
    for told in (
        "Slower: 127 → 177 ms",
        "input",
        "+59 ms",
        "new        The loader is late",
        "1 \N{MULTIPLICATION SIGN} 0.38 ms → 2 \N{MULTIPLICATION SIGN} 0.38 ms",
    ):
        assert told in text
    assert "-v shows them" in text
    assert "aten::op39" in terminal.render(slower(), verbose=True)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_drives_the_terminal(text: str):
    shown = terminal.render(slower(text), verbose=True)
    assert all(c.isprintable() or c == "\n" or ord(c) > 127 for c in shown)
    assert "\x1b" not in shown


def test_plain_terminals_get_ascii():
    assert terminal.render(slower(), unicode=False).isascii()


# ------------------------------------------------------------------------------------------ HTML


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_page_holds_everything_and_loads_nothing(sample: str):
    text = page.render(SAMPLES[sample])
    assert "default-src 'none'" in html.unescape(text)
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text)
    assert f'<h2 id="verdict">{words.headline(SAMPLES[sample])}</h2>' in html.unescape(text).replace(
        "\N{NO-BREAK SPACE}", " "
    )
    for heading in ("What was compared", "Findings", "Kernels and operators that differ"):
        assert heading in text


def test_the_page_draws_both_sides():
    text = page.render(slower())
    assert text.count('class="strip"') == text.count('class="breakdown"') == 2
    assert text.count('class="step"') == 6
    assert "aten::<wbr>op39" in text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_from_a_profile_is_html(text: str):
    def elements(found: Comparison) -> list[str]:
        return re.findall(r"</?(?!wbr|code)[a-z0-9]+", page.render(found))

    assert elements(slower(text)) == elements(slower())


def test_the_page_has_what_its_script_asks_for():
    assert 'id="theme"' in page.render(slower())


def test_one_step_a_side_spans_no_interval():
    one = slower().base.model_copy(update={"steps": 1})
    assert "95 %" in words.certainty(slower())
    assert words.certainty(slower().model_copy(update={"base": one})).endswith(
        "The change of the median step is +39 %."
    )


def test_the_page_holds_the_numbers_of_its_table_and_flame_graph():
    (text,) = re.findall(r'(?s)<script type="application/json" id="compare-data">(.*?)</script>', page.render(slower()))
    data = json.loads(text)
    work = data["tables"]["work"]
    first = dict(zip(work["columns"], work["rows"][0], strict=True))
    assert (first["status"], first["base_ms"], first["head_ms"], first["change_ms"]) == (
        "more often",
        0.377,
        0.754,
        0.377,
    )
    assert len(work["rows"]) == len(slower().work)
    frames = [dict(zip(data["flame"]["columns"], row, strict=True)) for row in data["flame"]["rows"]]
    assert [(f["parent"], f["total_ms"], f["base_ms"]) for f in frames] == [
        *((None, 60, 50), (0, 35, 20), (0, 15, 30), (0, 10, None), (None, 0, 10))
    ]
    assert "Device time by module and operator, before and after" in page.render(slower())
    assert "device time of a step: 60\N{NO-BREAK SPACE}ms, was 60\N{NO-BREAK SPACE}ms" in page.render(slower())


def test_without_modules_there_is_no_flame_graph():
    assert "before and after" not in page.render(SAMPLES["nothing"])
