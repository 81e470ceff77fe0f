from __future__ import annotations

import json

import jsonschema
import pytest

from tests.npm import packed
from tests.render_samples import HOSTILE, RESNET, SAMPLES, changed, drawn, hostile, place, report


def with_stacks(*stacks: str | None) -> object:
    where = tuple(place("op", n, 1.0, **({} if s is None else {"stack": s})) for n, s in enumerate(stacks))
    return changed(RESNET.findings[0], where=where)


def test_results_say_what_and_where():
    run = changed(RESNET, findings=(with_stacks("a b/train.py(7): f", "b/train.py(7): f"),))
    made = json.loads(drawn(report(run), "sarif"))["runs"][0]
    (result,) = made["results"]
    assert result["ruleId"] == "input-bound"
    assert result["level"] == "error"
    assert "Fixing this saves 30\N{EN DASH}59 ms of each 178 ms step" in result["message"]["text"]
    region = result["locations"][0]["physicalLocation"]
    assert region == {"artifactLocation": {"uri": "b/train.py"}, "region": {"startLine": 7}}
    assert [rule["id"] for rule in made["tool"]["driver"]["rules"]] == ["input-bound"]


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_report_can_be_written(sample: str):
    made = json.loads(drawn(SAMPLES[sample], "sarif"))["runs"][0]
    named = {rule["id"] for rule in made["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in made["results"]} == named


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_stays_a_message(text: str):
    assert "\x1b" not in json.dumps(json.loads(drawn(hostile(text), "sarif")), ensure_ascii=False)


def test_a_name_is_no_link():
    finding = changed(with_stacks("train.py(7): f"), title="T", says=r"see [x](javascript:alert) and \d")
    (result,) = json.loads(drawn(report(changed(RESNET, findings=(finding,))), "sarif"))["runs"][0]["results"]
    assert r"see \[x\](javascript:alert) and \\d" in result["message"]["text"]


@pytest.fixture(scope="module")
def official() -> jsonschema.Draft4Validator:
    """The schema that OASIS published with SARIF 2.1.0, as Microsoft's package carries it."""
    schema = packed("@microsoft/jest-sarif@1.0.0-beta.0", "lib/schemas/sarif-2.1.0-rtm.5.json")
    return jsonschema.Draft4Validator(json.loads(schema.read_text()))


def test_the_file_is_sarif(official: jsonschema.Draft4Validator):
    made = changed(RESNET, findings=(with_stacks('a"é/train.py(7): f', "/home/x/tr%ain.py(9): g"),))
    stacked = json.loads(drawn(report(made), "sarif"))
    assert len(stacked["runs"][0]["results"]) == 2
    for text in (*HOSTILE.values(), "plain"):
        official.validate(json.loads(drawn(hostile(text), "sarif")))
    for one in SAMPLES.values():
        official.validate(json.loads(drawn(one, "sarif")))
    official.validate(stacked)
    stacked["runs"][0]["results"][0]["level"] = "high"
    with pytest.raises(jsonschema.ValidationError):
        official.validate(stacked)
