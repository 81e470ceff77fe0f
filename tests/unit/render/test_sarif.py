from __future__ import annotations

import json

import jsonschema
import pytest

from advisor.render import sarif
from tests.npm import packed
from tests.render_samples import HOSTILE, RESNET, SAMPLES, changed, hostile, place, report


def with_stacks(*stacks: str | None) -> object:
    where = tuple(place("op", n, 1.0, **({} if s is None else {"stack": s})) for n, s in enumerate(stacks))
    return changed(RESNET.findings[0], where=where)


def test_the_innermost_frame_of_the_users_code_is_the_line():
    stack = "torch/nn/modules/module.py(1501): _call_impl;src/model.py(42): forward;train.py(7): main"
    assert sarif.lines(with_stacks(stack)) == [("src/model.py", 42)]


def test_a_line_is_named_once_and_libraries_never():
    assert sarif.lines(
        with_stacks(
            "train.py(7): f", "train.py(7): f", None, "/env/lib/python3.11/threading.py(3): run", "<string>(1): x"
        )
    ) == [("train.py", 7)]


def test_the_standard_library_is_not_the_users_code():
    assert sarif.lines(with_stacks("threading.py(9): wait;multiprocessing/spawn.py(1): main;train.py(7): f")) == [
        ("train.py", 7)
    ]
    assert sarif.lines(with_stacks("transformers/models/bert/modeling_bert.py(9): forward;train.py(7): f")) == [
        ("train.py", 7)
    ]
    assert sarif.lines(with_stacks("src/queue/typing.py(9): f")) == [("src/queue/typing.py", 9)]


def test_a_folder_that_only_ends_like_a_library_is_the_users():
    assert sarif.lines(with_stacks("mytorch/train.py(7): f")) == [("mytorch/train.py", 7)]


def test_results_say_what_and_where():
    run = changed(RESNET, findings=(with_stacks("a b/train.py(7): f", "b/train.py(7): f"),))
    made = json.loads(sarif.render(report(run)))["runs"][0]
    (result,) = made["results"]
    assert result["ruleId"] == "input-bound"
    assert result["level"] == "error"
    assert "30 to 59 of 178 ms" in result["message"]["text"]
    region = result["locations"][0]["physicalLocation"]
    assert region == {"artifactLocation": {"uri": "b/train.py"}, "region": {"startLine": 7}}
    assert [rule["id"] for rule in made["tool"]["driver"]["rules"]] == ["input-bound"]


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_report_can_be_written(sample: str):
    made = json.loads(sarif.render(SAMPLES[sample]))["runs"][0]
    named = {rule["id"] for rule in made["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in made["results"]} == named


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_stays_a_message(text: str):
    assert "\x1b" not in json.dumps(json.loads(sarif.render(hostile(text))), ensure_ascii=False)


@pytest.fixture(scope="module")
def official() -> jsonschema.Draft4Validator:
    """The schema that OASIS published with SARIF 2.1.0, as Microsoft's package carries it."""
    schema = packed("@microsoft/jest-sarif@1.0.0-beta.0", "lib/schemas/sarif-2.1.0-rtm.5.json")
    return jsonschema.Draft4Validator(json.loads(schema.read_text()))


def test_the_file_is_sarif(official: jsonschema.Draft4Validator):
    made = changed(RESNET, findings=(with_stacks('a"é/train.py(7): f', "/home/x/tr%ain.py(9): g"),))
    stacked = json.loads(sarif.render(report(made)))
    assert len(stacked["runs"][0]["results"]) == 2
    for text in (*HOSTILE.values(), "plain"):
        official.validate(json.loads(sarif.render(hostile(text))))
    for one in SAMPLES.values():
        official.validate(json.loads(sarif.render(one)))
    official.validate(stacked)
    stacked["runs"][0]["results"][0]["level"] = "high"
    with pytest.raises(jsonschema.ValidationError):
        official.validate(stacked)
