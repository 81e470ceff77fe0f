"""Thirty questions over profiles whose truth is known, answered from the brief alone by graders that need no model."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
import yaml

from advisor.render.brief import render
from tests import profiles

MOST_UNANSWERED = 2
SHARED = profiles.ROOT.parent / "shared/traces"
QUESTIONS = yaml.load((profiles.ROOT / "tests/golden/questions.yaml").read_text("utf-8"), yaml.CSafeLoader)


def recordings(question: dict[str, Any]) -> list[str]:
    """Where the question's recordings lie."""
    of = question["of"]
    places = [of] if isinstance(of, str) else of
    paths = [
        SHARED / name.removeprefix("shared/") if name.startswith("shared/") else profiles.ROOT / name for name in places
    ]
    for path in paths:
        if not path.exists():
            pytest.skip(f"{path} is not there")
    return [str(path) for path in paths]


def brief(question: dict[str, Any]) -> dict[str, Any]:
    """What is known of them: a job, or a comparison."""
    paths = recordings(question)
    value = profiles.compare(*paths) if len(paths) > 1 else profiles.check(*paths)
    content = json.loads(render(value))
    return content["comparison"] if len(paths) > 1 else content["runs"][0]


def answers_cause(job, truth):
    return job["findings"][0]["id"] in truth


def answers_saving(job, truth):
    saving = job["findings"][0]["saving"]
    return saving["low_ms"] <= truth <= saving["high_ms"]


def answers_fix(job, truth):
    fix = job["findings"][0]["fix"]
    return re.search(truth, fix["do"]) and re.search(truth, fix.get("code", fix["do"]))


def answers_location(job, truth):
    first = job["findings"][0]
    places = [first["title"], first.get("source", ""), *map(str, first.get("where", {}).values())]
    return any(re.search(truth, place) for place in places)


def answers_abstention(job, truth):
    if "first" in truth:
        return job["findings"][0]["id"] == truth["first"]
    if "unknown" in truth:
        rules = {rule for unknown in job["could_not_tell"] for rule in unknown["rules"]}
        return truth["unknown"] in rules and truth["record"] in job["record"]
    return not any("saving" in finding or finding["severity"] == "high" for finding in job["findings"])


def answers_comparison(change, truth):
    news = [turn["id"] for turn in change.get("findings", []) if turn["status"] == "new"]
    answers = {key: change.get(key) for key in truth if key != "new"} | ({"new": news[0]} if "new" in truth else {})
    return answers == truth


GRADERS = {
    "cause": answers_cause,
    "saving": answers_saving,
    "fix": answers_fix,
    "location": answers_location,
    "abstention": answers_abstention,
    "comparison": answers_comparison,
}


def parameter(question):
    """The question, and what keeps the brief from an answer."""
    reason = question.get("unanswered")
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
    places = [question["of"]] if isinstance(question["of"], str) else question["of"]
    if not all(map(profiles.is_common, places)):
        marks.append(pytest.mark.soak)
    return pytest.param(question, id=f"{question['topic']}: {question['ask']}", marks=marks)


@pytest.mark.parametrize("question", [parameter(question) for question in QUESTIONS])
def test_the_brief_answers(question):
    known = brief(question)
    assert GRADERS[question["topic"]](known, question["truth"]), known


def test_each_topic_has_five_questions():
    assert Counter(question["topic"] for question in QUESTIONS) == dict.fromkeys(GRADERS, 5)
    assert all(question["source"] for question in QUESTIONS)
    assert sum("unanswered" in question for question in QUESTIONS) <= MOST_UNANSWERED
