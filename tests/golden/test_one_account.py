"""One account of a run: terminal, page, Markdown, comment and brief say the numbers of the JSON, in its order."""

from __future__ import annotations

import html
import json
import re

import pytest

from advisor.present import document_of
from advisor.present.actions import MOST, becomes, worthwhile
from advisor.render import markdown
from advisor.render.registry import Request, draw
from advisor.text import percent
from advisor.vocabulary.parts import part_short
from tests.golden.test_figures import RECORDINGS, checked

PAGE_BYTES, MOST_CHARACTERS = 300_000, 4_000
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


@pytest.mark.parametrize("recording", RECORDINGS)
def test_every_surface_says_the_same_numbers_in_the_same_order(recording):
    report = checked(recording)
    brief = json.loads(draw(Request(report), "brief"))["runs"]
    stored = json.loads(draw(Request(report), "json"))["runs"]
    forms = surfaces(report)
    every = {name: squeezed(plain(text)) for name, text in forms.items()}
    for run, of_json, of_brief in zip(report.runs, stored, brief, strict=False):
        actions = worthwhile(run)[:MOST]
        assert [a["findings"] for a in of_json["actions"]] == [[*a.findings] for a in run.actions]
        assert of_json["trust"] == of_brief["trust"]
        for action, other in zip(actions, of_brief.get("actions", []), strict=False):
            for end in ("low_ms", "high_ms", "then_low_ms", "then_high_ms"):
                known = getattr(action, end)
                assert other.get(end) == (known if known is None else pytest.approx(known, rel=1e-3, abs=1e-4))
        assert len(forms["html"].encode()) <= PAGE_BYTES * len(report.runs)
        assert len(forms["comment"]) <= MOST_CHARACTERS * len(report.runs)
        for name, text in every.items():
            assert f"Trust:{run.trust}." in text, name
            sentences = [squeezed(becomes(action, run)) for action in actions]
            places = [text.find(sentence) for sentence in sentences if sentence]
            assert -1 not in places, name
            assert places == sorted(places), name
            for part in run.accounting.parts if run.accounting else ():
                if part.share >= SEEN:
                    assert squeezed(percent(part.share)) in text, (name, part.part)
                    assert squeezed(part_short(part.part)) in text, (name, part.part)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_parts_of_the_json_add_up_to_what_is_printed(recording):
    for run in json.loads(draw(Request(checked(recording)), "json"))["runs"]:
        known = run["accounting"]
        if known is None:
            continue
        assert sum(part["share"] for part in known["parts"]) == pytest.approx(1, abs=1e-4)
        assert sum(part["ms"] for part in known["parts"]) == pytest.approx(known["step_ms"], rel=1e-3)
        assert known["busy_share"] == pytest.approx(sum(p["share"] for p in known["parts"] if p["is_useful"]))
