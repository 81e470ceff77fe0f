from __future__ import annotations

import pytest

from advisor.model.comparison import Comparison, Shift, Side
from advisor.model.reason import Reason, remark
from advisor.present import document as doc
from advisor.present import shifts
from advisor.present.comparison import (
    certainty,
    document,
    findings_tally,
    headline,
    side,
    work_name,
    work_status,
    work_tally,
    worth,
)
from tests.comparisons import SAMPLES, side_finding, slower


def section(comparison: Comparison, id_: str) -> doc.Section:
    (article,) = document(comparison).articles
    return next(section for section in article.sections if section.id == id_)


def test_the_headline_has_verdict_size_and_cause():
    assert headline(slower()) == "Slower: 127 → 177 ms per step (+39 %), largest change: input (+59 ms)"
    assert headline(SAMPLES["same"]) == "No change: 177 ms per step (+39 %)"
    assert (
        headline(SAMPLES["nothing"])
        == "Inconclusive: no marked, complete step before and after the change: mark each step"
    )


@pytest.mark.parametrize(
    ("cause_ms", "words"), [(24, "largest change:"), (26, "mostly"), (50, "mostly"), (51, "largest change:")]
)
def test_a_cause_is_most_of_the_change_from_half_of_it_to_all_of_it(cause_ms: float, words: str):
    cause = Shift(part="input", base_ms=0, head_ms=cause_ms)
    parts = (cause, Shift(part="compute", base_ms=127, head_ms=177 - cause_ms))
    comparison = slower().model_copy(update={"cause": cause, "breakdown": parts})
    assert f", {words} input (+{cause_ms} ms)" in headline(comparison)


def test_different_work_is_never_praised():
    other = Reason(code="other_sizes", words="the work of a step differs")
    comparison = SAMPLES["faster"].model_copy(update={"cautions": (other,)})
    article = document(comparison).articles[0]
    last = next(of for of in article.sections if of.title == "Next").blocks[0].text
    assert (article.headline.startswith("Different work: "), article.tone) == (True, "warning")
    assert last.startswith("Record both sides with the same inputs")


@pytest.mark.parametrize(
    ("sample", "tone"), [("slower", "bad"), ("faster", "good"), ("same", "strong"), ("inconclusive", "warning")]
)
def test_the_verdict_has_the_tone_of_its_news(sample: str, tone: str):
    assert document(SAMPLES[sample]).articles[0].tone == tone


def test_the_certainty_has_the_reason_and_the_interval():
    assert certainty(slower()) == (
        "This is no chance: the steps differ by more than their noise (3 against 3 steps). "
        "With 95 % confidence the median step changes by +3.3 % to +47 %."
    )
    base = SAMPLES["same"].base
    again = SAMPLES["same"].model_copy(update={"head": base, "reason": remark("one_recording")})
    assert certainty(again) == "Both sides are the same recording."


@pytest.mark.parametrize(("code", "title"), [("other_sizes", "Different work"), ("other_machine", "Slower")])
def test_different_work_is_said_before_the_verdict(code, title):
    caution = Reason(code=code, words="the work of a step differs")
    made = slower().model_copy(update={"cautions": (caution,)})
    assert headline(made).startswith(f"{title}: 127")
    assert ("95 % confidence" in certainty(made)) == (code == "other_machine")


def test_a_side_in_one_line():
    assert side(slower(), slower().base) == "job: 3 steps, median 127 ms, mean 139 ms · Tesla V100"


def test_the_tallies_count():
    assert findings_tally(slower()) == "7 findings: 1 new, 5 as before, 1 could not tell"
    assert work_tally(slower()) == "1 kernel and 41 ops changed"
    assert findings_tally(SAMPLES["nothing"]) == "no findings on either side"
    assert work_tally(SAMPLES["nothing"]) == "no kernel or op changed"


def test_a_symptom_on_both_sides_has_no_row():
    symptom = side_finding(None).model_copy(update={"under": "another"})
    change = slower().findings[2].model_copy(update={"base": symptom, "head": symptom})
    comparison = slower().model_copy(update={"findings": (change,)})
    assert findings_tally(comparison) == "no findings on either side"
    gone = comparison.model_copy(update={"findings": (change.model_copy(update={"status": "gone", "head": None}),)})
    assert findings_tally(gone) == "1 finding: 1 gone"


def test_what_a_fix_saves_on_a_side():
    assert worth(side_finding()) == "30\N{EN DASH}59 ms"
    assert worth(None) == "\N{EN DASH}"
    assert worth(side_finding(high_ms=0)) == "nothing"
    assert worth(side_finding().model_copy(update={"saving": None})) == "no estimate"
    assert worth(side_finding().model_copy(update={"under": "another"})) == "in the one above"


def test_a_finding_shows_its_rule_and_why_it_could_not_be_judged():
    table, _, fold = section(slower(), "findings").blocks
    assert isinstance(table, doc.Table)
    assert isinstance(fold, doc.Fold)
    (pairs,) = fold.blocks
    assert isinstance(pairs, doc.Pairs)
    assert [cell.text for cell in table.rows[1].cells] == [
        *("Kernels are tiny", "could not tell", "30\N{EN DASH}59 ms", "\N{EN DASH}"),
    ]
    assert table.rows[1].cells[0].beside == "[b]"
    assert fold.title == "The other findings in words"  # the first is new, and stands above in words
    assert pairs.pairs[0].codes == ("b",)
    assert pairs.pairs[0].text.startswith(
        "Kernels are tiny (could not tell: unknown after the change: no shapes). 33 %"
    )


def test_time_and_count_that_both_changed_are_both_in_the_status():
    change = slower().work[2]
    assert change.base is not None
    assert change.head is not None
    assert work_status(change) == "slower, more"
    alone = change.model_copy(update={"head": change.head.model_copy(update={"per_step": 1.04})})
    assert work_status(alone) == "slower"
    turned = change.model_copy(update={"base": change.head, "head": change.base, "status": "faster"})
    assert work_status(turned) == "faster, fewer"


def test_a_size_that_comes_or_goes_is_no_new_name():
    (sized,) = [change for change in slower().work if change.name == "aten::copy_"]
    assert work_status(sized) == "new size"
    assert work_status(sized.model_copy(update={"base": sized.head, "head": None})) == "size gone"
    assert work_status(sized.model_copy(update={"size": None})) == "new"


def test_kernels_have_the_name_that_people_use():
    assert work_name(slower().work[0]) == "k"
    assert work_name(slower().work[1]) == "aten::copy_"


def test_the_flame_graph_says_whose_time_it_shows():
    (widget,) = section(slower(), "flame").blocks
    assert isinstance(widget, doc.Widget)
    assert widget.title == "Device time by module and operator, before and after"
    assert "This is the device's time alone. The host's time and the waits are in the parts" in widget.says
    assert widget.words[0] == "device time of a step: 60 ms, was 60 ms"
    head = slower().head.model_copy(update={"devices": ()})
    assert section(slower().model_copy(update={"head": head}), "flame").title.startswith("Host time")


def test_strips_share_an_axis():
    (strips,) = section(slower(), "steps").blocks
    assert isinstance(strips, doc.Strips)
    assert (strips.low, strips.high) == ("123 ms", "191 ms")  # 126 and 188, with 5 % of the span around them
    base, head = strips.strips
    assert 0 < base.marks[0] < base.median < head.median < head.marks[-1] < 1


def test_a_caution_is_a_sentence_beside_the_verdict():
    caution = remark("other_sizes", ops=1, op="aten::mm", base="[2]", head="[3]")
    (text,) = section(slower().model_copy(update={"cautions": (caution,)}), "cautions").blocks
    assert text == doc.Text(
        "The work of a step differs: other sizes in 1 of its ops, such as aten::mm ([2] → [3]).", "warning"
    )


# ------------------------------------------------------------------------------------------------------ the breakdown


def test_bars_share_a_scale():
    base, head = shifts.bars(slower()).bars
    assert sum(segment.share for segment in head.segments) == pytest.approx(1.0)
    assert sum(segment.share for segment in base.segments) == pytest.approx(127 / 177)


def unlike() -> Comparison:
    """A step of 100 ms against 10 s of recording."""
    head = slower().head.model_copy(update={"per": "recording"})
    parts = (
        Shift(part="compute", base_ms=75.0, head_ms=5000.0),
        Shift(part="input", base_ms=25.0, head_ms=5000.0),
    )
    return slower().model_copy(update={"head": head, "breakdown": parts, "work": ()})


def test_what_is_not_of_a_step_is_compared_in_shares():
    assert [shifts.cells(row, []) for row in shifts.rows(unlike())] == [
        ("75 %", "50 %", "\N{MINUS SIGN}25 points"),
        ("25 %", "50 %", "+25 points"),
    ]
    base, head = shifts.bars(unlike()).bars
    assert [segment.share for segment in (*base.segments, *head.segments)] == [0.75, 0.25, 0.5, 0.5]
    assert all(segment.ms is None for segment in (*base.segments, *head.segments))
    title = "Where the time goes, in shares of a step before, the recording after"
    assert section(unlike(), "breakdown").title == title
    assert work_tally(unlike()) == "kernels and ops not compared"


def test_a_side_without_numbers_is_not_measured():
    head = slower().head.model_copy(update={"per": None})
    comparison = slower().model_copy(update={"head": head, "breakdown": (), "work": ()})
    (text,) = section(comparison, "breakdown").blocks
    assert text == doc.Text("Where a step goes: not measured after the change.")


def test_the_parts_add_up_to_the_time_of_the_headline():
    *parts, total = shifts.rows(slower())
    assert (total.name, total.base_ms, total.head_ms) == ("median step", 127.0, 177.0)
    assert [sum(getattr(row, side) for row in parts) for side in ("base_ms", "head_ms")] == [127.0, 177.0]
    assert [shifts.cells(row, [*parts, total])[2] for row in (*parts, total)] == [
        "\N{MINUS SIGN}9 ms",
        "+59 ms",
        "+50 ms",
    ]


def test_of_many_ranks_the_breakdown_says_whose_shares_it_has():
    def of(side_: Side, worker: int) -> Side:
        series = tuple(series.model_copy(update={"worker": worker}) for series in side_.series)
        return side_.model_copy(update={"world_size": 8, "series": series})

    both = slower().model_copy(update={"base": of(slower().base, 1), "head": of(slower().head, 3)})
    assert "step of rank 1 before and 3 after, and add up" in section(both, "breakdown").blocks[0].text
    alike = both.model_copy(update={"head": of(slower().head, 1)})
    assert "step of rank 1, and add up" in section(alike, "breakdown").blocks[0].text


def test_the_breakdown_adds_up_as_printed():
    """35.34 + 1.44 + 21.44 + 0.03 are 58.25: the rest has what rounding leaves, or the longest part has."""
    parts = [("a", 35.34, 35.24), ("b", 1.44, 0.14), ("c", 21.44, 0.04)]
    lines = [shifts.Row("part", name, "", base, head, name) for name, base, head in parts]
    rest, total = shifts.Row("part", "the rest", "", 0.03, 0.11), shifts.Row("sum", "step", "", 58.25, 35.53)
    for rows in ([*lines, rest, total], [*lines, total._replace(base_ms=58.22, head_ms=35.42)]):
        printed = [shifts.cells(row, rows) for row in shifts._rounded(rows)]  # noqa: SLF001
        *numbers, sums = [[float(text.split()[0].replace("\N{MINUS SIGN}", "-")) for text in line] for line in printed]
        assert [sum(column) for column in zip(*numbers, strict=True)] == pytest.approx(sums)
        assert all(after - before == pytest.approx(change) for before, after, change in [*numbers, sums])


def test_less_than_a_nanosecond_is_no_difference():
    assert shifts.signed_ms(7.1e-15) == shifts.signed_ms(-7.1e-15) == "±0 ms"


# ------------------------------------------------------------------------------------------------------------ remarks


def test_a_remark_is_its_code_in_words():
    assert remark("few_steps", base=3, head=1200).words == (
        "too few steps: 3 against 1,200; profile 10 or more on each side, 20 are better"
    )
    assert remark("given twice before").words == "given twice before"


def test_a_side_that_is_called_as_its_place_is_named_once():
    before = slower().base.model_copy(
        update={"series": (slower().base.series[0].model_copy(update={"run": "before"}),)}
    )
    pairs = section(slower().model_copy(update={"base": before}), "sides").blocks[0].pairs
    assert [(pair.name, pair.text.split(",")[0]) for pair in pairs] == [
        ("before", "3 steps"),
        ("after", "job: 3 steps"),
    ]
