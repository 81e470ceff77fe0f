from __future__ import annotations

import json
import math
import operator
import re
from functools import partial, reduce
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from advisor.errors import ReadError
from advisor.model.report import Report
from advisor.model.source import Worker
from advisor.render.json import kind_of, load_as, read_as, render, schema
from advisor.render.registry import Request, draw, kinds
from tests.effort import examples, soak
from tests.render_samples import QUICK, RESNET, SAMPLES, SHAPES, changed, hostile, report

load = partial(load_as, Report, path="report")

COMMITTED = Path(__file__).parents[3] / "reports" / "schema" / "report-3.json"


@pytest.mark.parametrize("sample", soak(SAMPLES, unless=QUICK.__contains__))
def test_what_is_written_can_be_read_and_is_the_same(sample: str):
    text = render(SAMPLES[sample])
    assert load(text) == SAMPLES[sample]
    assert render(load(text)) == text


@pytest.mark.parametrize("character", ["a", '"', "\\"])
def test_a_text_that_would_take_long_to_draw_is_refused(character: str):
    text = render(next(iter(SAMPLES.values())))
    with pytest.raises(ReadError, match="it has a text of over 1 MiB"):
        load(text.replace("{", '{"x": ' + json.dumps(character * (1 << 20)) + ",", 1))
    assert load(text.replace("{", '{"x": ' + json.dumps(character * 1000) + ",", 1))


@examples(0.25)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(text: str):
    assert load(render(hostile(text))) == hostile(text)


def test_a_url_lets_nobody_in():
    text = render(hostile("https://ann:hush@host/x?token=hush"))
    assert "https://\\u2026@host/x?token=\\u2026" in text
    assert "hush" not in text


def test_a_token_in_a_saved_report_goes_before_it_is_drawn():
    token = "ghp_" + "aB3dE6gH9j" * 3 + "kL2nP5"
    older = render(hostile("PLACE")).replace("PLACE", f"{token} caf\\u00e9")
    loaded = load(older.encode()).model_dump_json()
    assert token in older
    assert token not in loaded
    assert "ghp_\u2026 caf\u00e9" in loaded


@pytest.mark.parametrize("sample", soak(SAMPLES, unless=QUICK.__contains__))
def test_the_output_is_safe_for_any_terminal_and_encoding(sample: str):
    text = render(SAMPLES[sample])
    assert text.isascii()
    assert text.endswith("}\n")
    assert text.replace("\n", "").isprintable()


def test_a_reader_ignores_what_it_does_not_know():
    document = json.loads(render(SAMPLES["resnet"]))
    document["of_tomorrow"] = document["runs"][0]["findings"][0]["of_tomorrow"] = 1
    assert load(json.dumps(document)) == SAMPLES["resnet"]


def test_codes_stand_beside_words():
    run = json.loads(render(SAMPLES["resnet"]))["runs"][0]
    assert run["not_evaluable"][1]["missing"]["gemm_waste_share"] == {
        "code": "no_shapes",
        "facts": {},
        "words": "recorded without `record_shapes=True`",
    }
    assert run["outcome"]["code"] == "finding"


def test_version_2_is_still_read():
    report = SAMPLES["resnet"]
    saved = json.loads(render(report))
    saved["schema_version"] = 2
    saved["runs"][0] |= {"breakdown": {"compute": 0.4412}}
    saved["runs"][0]["accounting"] |= {"useful_share": 0.4412}
    assert load(json.dumps(saved)) == report


def test_whole_numbers_stay_whole():
    assert json.loads(render(SAMPLES["resnet"]))["runs"][0]["metrics"]["worker"][0]["steps"] == 6
    assert isinstance(load(render(SAMPLES["resnet"])).runs[0].metrics["worker"][0]["steps"], int)


@pytest.mark.parametrize("lost", ["", "worker", "step", "name", "id", "part"])
def test_what_a_row_of_a_file_lacks_is_unknown(lost: str):
    """A saved report may be anybody's: every form draws it, with rows that have nothing at all, or lack a name."""
    document = json.loads(render(SAMPLES["resnet"]))
    for row in [row for rows in document["runs"][0]["metrics"].values() for row in rows]:
        for name in [lost] if lost else [*row]:
            row.pop(name, None)
    loaded = Request(load(json.dumps(document)))
    assert all(draw(loaded, kind) for kind in kinds("report", text_only=True))


def test_no_number_that_json_lacks_can_enter():
    with pytest.raises(ValidationError):
        changed(RESNET, accounting=changed(RESNET.accounting, step_ms=math.nan))
    with pytest.raises(ValidationError):
        changed(RESNET, metrics={"worker": ({"share": math.inf},)})


@pytest.mark.parametrize(
    ("number", "why"),
    [("1e300", "above 1e+30"), ("-2" + "0" * 31 + ".5", "above 1e+30"), ("5E-324", "below 1e-99")],
)
def test_a_number_that_nothing_measures_is_no_reports(number: str, why: str):
    """Sums and squares of it would be infinite, which no report holds."""
    saved = json.loads(render(SAMPLES["resnet"]))
    saved["runs"][0]["metrics"]["worker"][0]["wall_ms"] = 12345.25
    text = json.dumps(saved)
    assert load(text)
    with pytest.raises(ReadError, match=re.escape(f"it has a number {why}")):
        load(text.replace("12345.25", number))


def test_a_number_in_a_name_is_a_name():
    saved = json.loads(render(SAMPLES["resnet"]))
    saved["runs"][0]["name"] = "lr=1e300"
    assert load(json.dumps(saved)).runs[0].name == "lr=1e300"


def test_a_step_that_takes_no_time_is_none():
    saved = json.loads(render(SAMPLES["resnet"]))
    saved["runs"][0]["accounting"]["step_ms"] = 0
    with pytest.raises(ReadError, match=r"accounting\.step_ms: Input should be greater than 0"):
        load(json.dumps(saved))


@pytest.mark.parametrize("field", ["accounting.parts.1.share", "accounting.parts.0.ms", "source.steps.step_ms"])
@pytest.mark.parametrize("number", [-(2**63), -1e-3])
def test_what_cannot_be_is_no_reports(field: str, number: float):
    saved = json.loads(render(SAMPLES["resnet"]))
    *above, last = (int(key) if key.isdigit() else key for key in field.split("."))
    reduce(operator.getitem, above, saved["runs"][0])[last] = number
    with pytest.raises(ReadError, match=re.escape(f"is no report: runs.0.{field}: ")):
        load(json.dumps(saved))


def test_no_share_is_above_1():
    saved = json.loads(render(SAMPLES["resnet"]))
    part = saved["runs"][0]["accounting"]["parts"][1]
    part["share"] = 1 + 1e-9
    assert load(json.dumps(saved))
    part["share"] = 1.01
    with pytest.raises(ReadError, match=r"parts\.1\.share: Input should be less than"):
        load(json.dumps(saved))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is no JSON"),
        ("[1", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        ("[" * 5000, "is no JSON"),
        ('"\\ud800"', "is no JSON"),
        ("[]", "is no report: the document"),
        ("3", "is no report: the document"),
        ("{}", "is no report: advisor_version"),
        ('{"advisor_version": "1", "runs": [{"verdict": ""}]}', "is no report: runs.0.name"),
        (
            '{"schema_version": 1, "advisor_version": "1", "runs": []}',
            "is a report of version 1, and this advisor reads",
        ),
        (
            '{"schema_version": 4, "jobs": []}',
            "is a report of version 4, and this advisor reads version 3: use a newer",
        ),
        ('{"schema_version": "two", "advisor_version": "9", "runs": []}', "is no report: schema_version"),
        (
            '{"kind": "comp\\u001b[31m\\n", "advisor_version": "9", "runs": []}',
            "is a saved comp\ufffd[31m, not a report",
        ),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(text: str | bytes, told: str):
    with pytest.raises(ReadError) as refused:
        load(text, path="old.json")
    assert str(refused.value).startswith(f"old.json: {told}")
    assert len(str(refused.value).splitlines()) == 1


@examples(0.5)
@given(st.binary(max_size=200))
def test_bytes_are_a_report_or_a_read_error(content: bytes):
    with pytest.raises(ReadError):
        load(content)


def test_a_report_that_powershell_wrote_is_read(tmp_path: Path):
    saved = tmp_path / "report.json"
    saved.write_bytes(b"\xef\xbb\xbf" + render(report()).encode())
    assert read_as(Report, str(saved)) == report()


def test_of_many_ranks_the_rows_are_of_those_that_matter_and_the_rest_is_columns():
    """Rank 5 sets the pace, rank 2 is awaited; numbers of the others keep six digits."""
    rows = [{"worker": n, "device": 0, "step_ms": 100 + n / 7, "gpus": 8, "note": None} for n in range(33)]
    tables = {"run": ({"awaited_most": 2},), "worker": tuple(rows), "device": tuple(rows), "pace": ({"rank": 0},)}
    workers = tuple(Worker(worker=n, rank=n, name="", file="") for n in range(33))
    steps = changed(RESNET.source.steps, worker=5)
    run = changed(RESNET, source=changed(RESNET.source, workers=workers, steps=steps), metrics=tables, findings=())
    text = render(report(run))
    (written,) = json.loads(text)["runs"]
    assert [row["worker"] for row in written["metrics"]["device"]] == [2, 5]
    assert written["columns"]["device"] == {"same": {}, "columns": {}, "like": "worker"}
    assert written["columns"]["worker"]["same"] == {"device": 0, "gpus": 8, "note": None}
    assert written["columns"]["worker"]["columns"]["step_ms"][:4] == [100.0, 100.143, 100.429, 100.571]
    (again,) = load(text).runs
    assert [dict(row) for row in again.metrics["device"][:2]] == [rows[0], rows[1] | {"step_ms": 100.143}]
    assert again.metrics["worker"][5] == rows[5]
    assert again.metrics["device"] == again.metrics["worker"]
    assert render(load(text)) == text
    fewer = changed(run, source=changed(run.source, workers=workers[:32]))
    assert "columns" not in json.loads(render(report(fewer)))["runs"][0]


def test_columns_that_would_fill_the_memory_are_no_report():
    document = json.loads(render(report(RESNET)))
    same, numbers = {str(n): n for n in range(1000)}, list(range(10_000))
    document["runs"][0]["columns"] = {"step": {"same": same, "columns": {"worker": numbers}}}
    with pytest.raises(ReadError, match=r"^a\.json: is no report: its columns"):
        load(json.dumps(document), path="a.json")


def test_the_committed_schema_is_this_one():
    assert COMMITTED.read_text("utf-8") == schema(), (
        "regenerate it: python -m advisor.render.json > reports/schema/report-3.json"
    )


def test_the_schema_describes_what_is_written():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    for sample in (*SHAPES, "hostile-script"):
        validator.validate(json.loads(render(SAMPLES[sample])))
    broken = json.loads(render(report(RESNET)))
    broken["runs"][0]["findings"][0]["severity"] = "terrible"
    assert not validator.is_valid(broken)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"schema_version": 1, "advisor_version": "1", "runs": [{"verdict": "x"}]}', "report"),
        ('{"kind": "week", "verdict": "same"}', "week"),
        ('{"kind": "trials", "verdict": "same"}', "trials"),
        ("[1]", "report"),
        ("{", "report"),
        (b"\xff", "report"),
    ],
)
def test_a_document_is_told_by_its_kind(text: str | bytes, kind: str):
    assert kind_of(text) == kind
