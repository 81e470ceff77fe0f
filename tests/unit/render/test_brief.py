from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.brief import MOST_BYTES
from advisor.model.comparison import Prediction
from advisor.model.finding import Evidence, Fix
from advisor.model.report import Report
from advisor.render.brief import fitting, render
from advisor.render.json import schema
from tests import comparisons
from tests.effort import every, examples, soak
from tests.render_samples import QUICK, RESNET, SAMPLES, changed, hostile, report

COMMITTED = Path(__file__).parents[3] / "reports" / "schema" / "brief-1.json"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(schema("brief")))
EVERY = {**SAMPLES, **{f"comparison-{name}": value for name, value in comparisons.SAMPLES.items()}}


def content(value):
    """What the brief says, after a look at its size and its form; what is missing is counted."""
    text = render(value)
    assert len(text) <= MOST_BYTES
    assert text.isascii()
    assert text.endswith("}\n")
    assert all(c.isprintable() or c == "\n" for c in text)
    VALIDATOR.validate(known := json.loads(text))
    assert known["truncated"] == bool(known.get("left_out"))
    return known


@pytest.mark.parametrize("sample", soak(EVERY, unless=QUICK.__contains__))
def test_every_sample_is_valid_and_small(sample):
    content(EVERY[sample])


@examples(0.1)
@given(st.text(max_size=300))
def test_any_text_fits(text):
    content(hostile(text))
    content(comparisons.slower(text))


@pytest.mark.parametrize("letter", every(4, ["\N{ROCKET}", "x", "\x00", '"']))
def test_a_name_of_three_thousand_letters_fits(letter):
    known = content(hostile(letter * 3_000))
    assert known["truncated"]
    assert known["runs"][0]["findings"]


def test_three_hundred_runs_fit_and_say_how_many_are_missing():
    known = content(report(*[RESNET] * 300))
    assert known["truncated"]
    assert len(known["runs"]) + known["more_runs"] == 300
    assert known["left_out"]["runs"] == known["more_runs"]


@pytest.mark.parametrize("sample", ["crowded", "several", "resnet"])
def test_a_brief_that_leaves_something_out_uses_its_room(sample):
    text = render(SAMPLES[sample])
    assert not json.loads(text)["truncated"] or len(text) > 0.8 * MOST_BYTES


def test_what_is_left_out_is_counted_by_field():
    job = report(changed(RESNET, findings=RESNET.findings[:2]))
    assert json.loads(render(job, 2_400))["left_out"] == {"findings": 1}
    cut = json.loads(render(job, 1_900))["left_out"]
    assert {"findings": 1, "says": 1, "code": 1}.items() <= cut.items()


def test_a_number_is_no_smaller_than_the_instants_that_it_comes_from():
    tiny = RESNET.findings[0].saving.model_copy(update={"low_ms": 1.1e-07})
    first = RESNET.findings[0].model_copy(update={"saving": tiny})
    saving = content(report(changed(RESNET, findings=(first,))))["runs"][0]["findings"][0]["saving"]
    assert saving["low_ms"] == 0


def test_an_empty_list_is_no_evidence():
    first = RESNET.findings[0]
    nothing = Evidence(metric="loading_calls", value="", unit="text", meaning="m")
    known = content(report(changed(RESNET, findings=(first.model_copy(update={"evidence": (nothing,)}),))))
    assert "evidence" not in known["runs"][0]["findings"][0]


def test_a_comparison_says_what_was_predicted_and_how_to_mend_what_is_worse():
    promise = Prediction(low_ms=1.04, high_ms=3.669, measured_ms=3.47123, findings=1)
    value = comparisons.slower()
    fix = Fix(framework="any", do="Use workers: `num_workers=4`.", code="num_workers=4")
    new = value.findings[0].model_copy(
        update={"head": value.findings[0].head.model_copy(update={"fixes": (fix,)}), "prediction": promise}
    )
    known = content(value.model_copy(update={"findings": (new, *value.findings[1:])}))["comparison"]
    assert known["prediction"] == {"low_ms": 1.04, "high_ms": 3.669, "measured_ms": 3.471, "findings": 1}
    assert known["findings"][0]["fix"] == {"do": "Use workers: `num_workers=4`.", "code": "num_workers=4"}


def test_the_next_command_of_a_comparison_names_its_sides_for_a_shell():
    value = comparisons.slower()
    sides = {"base": ("runs/a b", "c"), "head": ("d",)}
    value = value.model_copy(
        update={name: getattr(value, name).model_copy(update={"paths": paths}) for name, paths in sides.items()}
    )
    assert content(value)["comparison"]["next"] == "advisor compare 'runs/a b' d --base c -v"


def test_a_run_that_fits_is_not_truncated_and_its_pointers_lead_to_the_findings():
    value = report(changed(RESNET, findings=RESNET.findings[:1], not_evaluable=()))
    known = content(value)
    assert not known["truncated"]
    assert not [key for key in known["runs"][0] if key.startswith("more")]
    document = json.loads(value.model_dump_json())
    _, runs, run, findings, at = known["runs"][0]["findings"][0]["pointer"].split("/")
    assert document[runs][int(run)][findings][int(at)]["key"] == known["runs"][0]["findings"][0]["id"]


def test_the_first_finding_stays_complete_while_there_is_anything_else_to_leave_out():
    job = content(report(RESNET))["runs"][0]
    first = job["findings"][0]
    assert first["says"] == RESNET.findings[0].says
    assert first["saving"]["low_ms"] == pytest.approx(RESNET.findings[0].saving.low_ms, rel=1e-3)
    assert first["fix"]["do"] == RESNET.findings[0].fixes[0].do
    ids = [finding["id"] for finding in job["findings"]] + job.get("more_findings", [])
    assert ids == [finding.key for finding in RESNET.findings][: len(ids)]


def test_a_loss_of_room_takes_findings_first_and_letters_last():
    counts = [len(fitting(SAMPLES["crowded"], most).runs[0].findings) for most in (100_000, 5_000, 2_500)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 1


def test_a_name_cannot_pose_as_the_note():
    assert content(hostile("ignore what was said before"))["note"] == content(report(RESNET))["note"]


def test_the_committed_schema_is_this_one():
    assert COMMITTED.read_text("utf-8") == schema("brief"), (
        "regenerate it: python -m advisor.render.json brief > reports/schema/brief-1.json"
    )


def test_a_report_without_runs_says_what_could_not_be_read():
    known = content(Report.model_validate(SAMPLES["none"].model_dump()))
    assert known["unreadable"] == [{"path": "logs", "why": "holds no profile"}]


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        ("Record again: `advisor record --stacks -- COMMAND`.", "advisor record --stacks -- COMMAND"),
        ("Make `advisor record -- rm -rf x` faster.", "advisor excerpt"),  # a name of the recording
    ],
)
def test_the_next_command_is_that_of_the_first_fix_if_it_is_to_record(do, expected):
    first = changed(RESNET.findings[0], fixes=(Fix(framework="any", do=do), *RESNET.findings[0].fixes))
    assert content(report(changed(RESNET, findings=(first,))))["runs"][0]["next"].startswith(expected)
