"""One account of a run: terminal, page, Markdown, comment and brief say the numbers of the JSON, in its order.

So do a comparison's and a week's."""

from __future__ import annotations

import html
import json
import re

import pytest

from advisor.config import Fleet
from advisor.fleet.store import Store
from advisor.fleet.weekly import weekly
from advisor.metrics import METRICS
from advisor.model.action import MOST
from advisor.model.comparison import Comparison
from advisor.model.report import number
from advisor.present import document_of, shifts
from advisor.present.actions import becomes
from advisor.present.comparison import headline
from advisor.present.next_recording import missing_options, trust
from advisor.present.table_builder import gpu_hours
from advisor.present.verdict import saved_time
from advisor.present.week import headline as title_of
from advisor.render import markdown
from advisor.render.json import load_as
from advisor.render.registry import Request, draw
from advisor.text import percent
from advisor.vocabulary.parts import LOOKS, part_short
from tests import profiles
from tests.effort import soak
from tests.fleet import finding_row, run_row, stored
from tests.golden.figures import path_of
from tests.golden.test_figures import RECORD, checked

SOME = soak(sorted(RECORD), unless=set(sorted(filter(profiles.is_common, RECORD))[::2]).__contains__)
PAGE_BYTES, MOST_CHARACTERS = 300_000, 4_000
# What the sentences of findings and symptoms call a part's share of the step.
SHARES = {"input": "input_share", "sync": "sync_idle_share", "launch_gap": "launch_gap_share"}
SHARES |= {"host_busy": "host_busy_share", "compile": "compile_idle_share", "memcpy": "exposed_memcpy_share"}
SHARES |= {"allocator": "allocator_idle_share", "gc": "gc_idle_share", "collective": "collective_share"}
# Times that are parts of a step, not of several threads; the step that others are parts of is no such part.
OF_THE_STEP = {metric.name: metric.meaning for metric in METRICS.values() if metric.unit == "ms"}
OF_THE_STEP = {name for name, words in OF_THE_STEP.items() if re.search("per step|[Ss]tep (?:time|would)", words)}
OF_THE_STEP -= {"complete_step_mean_ms", "step_ms", "preprocessing_ms"}
SEEN = 0.005  # of the step: what every bar names


def plain(text: str) -> str:
    """What a reader sees, without markup, and with one kind of blank."""
    words = re.sub(r"<(style|script)\b.*?</\1>|<title>.*?</title>", "", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"</?[a-z!][^>]*>|[*`]", " ", words)).split())


def squeezed(text: str) -> str:
    """The same without blanks and marks of code, which each surface sets in its own way."""
    return re.sub(r"[\s`\u200b]+", "", text)


def surfaces(report) -> dict[str, str]:
    """Each form of a report as text."""
    drawn = {kind: draw(Request(report), kind).decode() for kind in ("terminal", "html", "markdown")}
    return drawn | {"comment": markdown.render(document_of(report), folds=False)}


@pytest.mark.parametrize("recording", SOME)
def test_every_surface_says_the_same_numbers_in_the_same_order(recording):
    report = checked(recording)
    brief = json.loads(draw(Request(report), "brief"))["runs"]
    stored = json.loads(draw(Request(report), "json"))["runs"]
    forms = surfaces(report)
    every = {name: squeezed(plain(text)) for name, text in forms.items()}
    for after in re.findall(r"after action 1: (\d[^<]*)<", forms["html"]):  # below the annotated step
        assert squeezed(after) in every["markdown"]
    for run, of_json, of_brief in zip(report.runs, stored, brief, strict=False):
        actions = run.listed
        assert [a["findings"] for a in of_json["actions"]] == [[*a.findings] for a in run.actions]
        assert of_json["trust"] == of_brief["trust"]
        for action, other in zip(actions, of_brief.get("actions", []), strict=False):
            for end in ("low_ms", "high_ms", "then_low_ms", "then_high_ms"):
                known = getattr(action, end)
                assert other.get(end) == (known if known is None else pytest.approx(known, rel=1e-3, abs=1e-4))
        assert len(forms["html"].encode()) <= PAGE_BYTES * len(report.runs)
        assert len(forms["comment"]) <= MOST_CHARACTERS * len(report.runs)
        for name, text in every.items():
            assert re.search(f"Trust:{run.trust}[.;,]", text), name
            sentences = [squeezed(becomes(action, run)) for action in actions]
            places = [text.find(sentence) for sentence in sentences if sentence]
            assert -1 not in places, name
            assert places == sorted(places), name
            for part in run.accounting.parts if run.accounting else ():
                if part.share >= SEEN:
                    assert squeezed(percent(part.share)) in text, (name, part.part)
                    assert squeezed(part_short(part.part)) in text, (name, part.part)


@pytest.mark.parametrize("recording", SOME)
def test_an_action_of_one_finding_has_the_numbers_and_the_basis_of_its_finding(recording):
    for run in checked(recording).runs:
        for action in run.listed:
            known = [of.saving for of in run.findings if of.key in {*action.findings} - {*action.repeats} and of.saving]
            if len(known) != 1 or not action.high_ms or action.after:
                continue
            assert (action.low_ms, action.high_ms) == pytest.approx((known[0].low_ms, known[0].high_ms))
            words, is_rest = becomes(action, run), known[0].is_rest
            assert ("fter the others" in words, "after the others" in saved_time(known[0])) == (is_rest, is_rest)
            low, high = (percent(share) for share in action.shares)
            assert high in words
            assert (
                low in words or f"{low[:-2]}\N{EN DASH}" in words or "perhaps nothing" in words or " at best" in words
            )


@pytest.mark.parametrize("recording", SOME)
def test_the_drawn_step_has_the_parts_that_its_labels_say(recording):
    """To the piece of the picture, of which there are 800."""
    for line in (run.timeline for run in checked(recording).runs):
        if line is None or line.device is None or not line.parts_ns:
            continue
        drawn = dict.fromkeys(line.parts_ns, 0)
        for piece in line.strip:
            drawn[piece.part] = drawn.get(piece.part, 0) + piece.dur_ns
        assert {part: drawn[part] for part in line.parts_ns} == pytest.approx(line.parts_ns, abs=line.dur_ns / 400)


@pytest.mark.parametrize("recording", SOME)
def test_the_parts_of_the_json_add_up_to_what_is_printed(recording):
    for run in json.loads(draw(Request(checked(recording)), "json"))["runs"]:
        known = run["accounting"]
        if known is None:
            continue
        assert sum(part["share"] for part in known["parts"]) == pytest.approx(1, abs=1e-4)
        assert sum(part["ms"] for part in known["parts"]) == pytest.approx(known["step_ms"], rel=1e-3)
        assert known["busy_share"] == pytest.approx(sum(p["share"] for p in known["parts"] if p["is_useful"]))


@pytest.mark.parametrize("recording", SOME)
def test_with_batches_in_time_most_of_the_work_stays(recording):
    """A quarter may go of a step that was not timed without the profiler; else what ops take beyond their fastest."""
    for run in checked(recording).runs:
        work_ms = sum(part.ms for part in run.accounting.parts if part.is_useful) if run.accounting else 0.0
        most_ms = max(work_ms / 4, number(run.of_pace, "slowed_ops_ms"))
        for saving in (finding.saving for finding in run.findings if finding.saving and finding.saving.of == "input"):
            assert (run.source.steps.length_ms or 0.0) - saving.high_ms >= (work_ms - most_ms) * (1 - 1e-9)


@pytest.mark.parametrize("recording", SOME)
def test_findings_and_symptoms_have_the_shares_of_the_bar(recording):
    for run in checked(recording).runs:
        longer = (run.source.steps.length_ms or 1) / (run.source.steps.usual_ms or 1)  # long steps are in the bar too
        for part in run.accounting.parts if run.accounting else ():
            is_overlapped = part.part == "collective" and not run.source.devices  # by ops, which the bar has as ops
            said = None if is_overlapped else run.of_pace.get(SHARES.get(part.part, ""))
            assert said is None or said == pytest.approx(part.share * longer, abs=1e-3), part.part


@pytest.mark.parametrize("recording", SOME)
def test_nothing_of_a_step_is_longer_than_the_step(recording):
    """Means of other steps than the bar's would be: all of one job are of the same."""
    for run in checked(recording).runs:
        steps = run.source.steps
        step_ms = max(known or 0 for known in (steps.step_ms, steps.step_mean_ms, steps.whole_mean_ms))
        known = {**run.of_pace, **run.of_job}
        assert {name: known[name] for name in OF_THE_STEP if (known.get(name) or 0) > 1.001 * step_ms} == {}


@pytest.mark.parametrize("recording", SOME)
def test_a_first_screen_leaves_nothing_unsaid(recording):
    """Each action has its saving or why nobody knows it, each mark its legend, and what was not judged its name."""
    report = checked(recording)
    for run in report.runs:
        for action in run.worthwhile[:MOST]:
            assert action.records or re.search(r"\d \S+|advisor compare", becomes(action, run)), action.do
        assert all(option.topic in " ".join(trust(run)) for option in missing_options(run))
    screen = draw(Request(report), "terminal").decode()
    lines, marks = screen.splitlines(), {look.glyph for look in LOOKS.values()} | {" "}
    at, bar = next(
        ((at, {*line} - {" "}) for at, line in enumerate(lines) if len(line) > 60 and {*line} <= marks), (0, set())
    )
    assert all(
        re.search(rf"(?:^|   ){re.escape(mark)} \S", "\n".join(lines[at + 1 : at + 5]), re.MULTILINE) for mark in bar
    )
    assert not re.search(r"\d[eE][+-]\d", plain(draw(Request(report), "html").decode()).partition("What was read")[0])


PAIRS = (
    ("fixtures/tutorial/before", "fixtures/tutorial/after"),
    ("fixtures/simulated-healthy-a100", "fixtures/simulated-input-bound-v100"),
    ("fixtures/jax-cpu-none", "fixtures/jax-cpu-slow-loader"),
    ("fixtures/tensorflow-cpu-none", "fixtures/tensorflow-cpu-generator"),
    ("fixtures/torch-cpu-zero-workers", "fixtures/torch-cpu-none"),
    ("shared/kineto/resnet50-v100-workers0", "shared/kineto/resnet50-v100-workers4"),
)


@pytest.mark.parametrize(("base", "head"), soak(PAIRS, unless=lambda pair: all(map(profiles.is_common, pair))))
def test_a_change_has_one_number_on_every_surface(base, head):
    paths = [path_of(base), path_of(head)]
    if missing := [path for path in paths if not path.exists()]:
        pytest.skip(f"{missing[0]} is not there")
    comparison = profiles.compare(*paths)
    before, after = comparison.times_ms
    assert sum(shift.base_ms for shift in comparison.breakdown) == pytest.approx(before)
    assert sum(shift.head_ms for shift in comparison.breakdown) == pytest.approx(after)
    predictions = [change.prediction for change in comparison.findings if change.prediction]
    assert all(known.measured_ms == pytest.approx(before - after) for known in predictions)
    brief = json.loads(draw(Request(comparison), "brief"))["comparison"]
    assert (brief["base_ms"], brief["head_ms"]) == pytest.approx((before, after), rel=1e-3)
    stored = load_as(Comparison, draw(Request(comparison), "json"), "c.json")
    assert stored == comparison
    lines = shifts.rows(comparison)
    for kind in ("terminal", "html", "markdown"):
        text = squeezed(plain(draw(Request(comparison), kind).decode()))
        assert squeezed(headline(comparison)) in text, kind
        places = [text.find(squeezed("".join(shifts.cells(row, lines))).replace("|", "")) for row in lines]
        if kind == "html":  # a cell of each
            assert -1 not in places
            assert places == sorted(places)
        assert squeezed(shifts.cells(lines[-1], lines)[2]) in text, kind


def test_a_week_has_one_account_on_every_surface(tmp_path):
    """10 and 30 hours, half and a fifth of them busy: 11 of 40, and the savings of both teams are those of all."""
    runs = [
        run_row("a", team="vision", gpu_hours=10.0, busy_share=0.5, expected_share=0.2),
        run_row("b", gpu_hours=30.0, busy_share=0.2, expected_share=0.3),
    ]
    findings = [finding_row("a"), finding_row("b", "launch-bound", 0.2, 0.4)]
    week = weekly(stored(Store(str(tmp_path)), runs=runs, findings=findings), Fleet())
    total = week.total
    assert (total.paid, total.busy, total.wasted) == pytest.approx((40, 11, 29))
    for name in ("paid", "busy", "expected"):
        assert sum(getattr(team.hours, name) for team in week.teams) == pytest.approx(getattr(total, name))
    assert sum(rule.expected for rule in week.rules) == pytest.approx(total.expected)
    known = json.loads(draw(Request(week), "json"))["total"]
    assert (known["paid"], known["expected"]) == pytest.approx((total.paid, total.expected))
    for kind in ("terminal", "html", "markdown"):
        text = squeezed(plain(draw(Request(week), kind).decode()))
        for words in (title_of(week), *map(gpu_hours, (total.paid, total.busy, total.wasted, total.expected))):
            assert squeezed(words) in text, (kind, words)
