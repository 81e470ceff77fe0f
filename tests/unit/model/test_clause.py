"""Codes with facts, in words: reasons, notes and remarks."""

import json
import re
from string import Formatter
from typing import ClassVar

import pytest

from advisor.fleet.columns import Context
from advisor.model.clause import NOTES, REASONS, Clause, Missing, Note
from advisor.model.reason import REMARKS, Reason
from advisor.vocabulary.kinds import LEFT_OUT


class Example(Clause):
    sentences: ClassVar = {"lines": "{lines:count line}{size:? of }{size} left out, {share:percent} of {name}"}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"lines": 1, "share": 0.25, "name": "a"}, "1 line left out, 25 % of a"),
        (
            {"lines": 1200, "share": 1.0, "name": "a\n\x1bb", "size": 9},
            "1,200 lines of 9 left out, 100 % of a \ufffdb",
        ),
    ],
)
def test_facts_stand_in_their_formats_and_what_acts_is_shown(facts: dict[str, float | str], words: str):
    assert Example("lines", **facts).words == words


@pytest.mark.parametrize("table", [REASONS, NOTES, REMARKS, LEFT_OUT])
def test_every_sentence_is_a_clause_with_all_its_facts(table: dict[str, str]):
    class Of(Clause):
        sentences = table

    for code, text in table.items():
        names = {name for _, name, spec, _ in Formatter().parse(text) if name and not (spec or "").startswith("?")}
        says = Of(code, **dict.fromkeys(names, 7)).words
        assert says.count("7") >= len(names), code
        assert not says.endswith("."), code


def test_what_a_file_says_is_quoted_safely():
    said = Reason.of(Note("profiler_message", message="\x1b]0;x\x07dropped\n10"))
    assert said.facts == {"message": "\ufffd]0;x\ufffddropped 10"}
    assert said.words == "the profiler says: \ufffd]0;x\ufffddropped 10"


@pytest.mark.parametrize(
    "note", [Note("profiler_message", message="with token=abcdef12345678"), Missing("token=abcdef12345678")]
)
def test_what_a_file_says_is_quoted_without_secrets(note: Clause):
    said = Reason.of(note).model_dump_json() + note.of("rank 1").words
    assert "token=xxxxxxxxxxxxxx" in said
    assert "abcdef12345678" not in said


def test_a_text_is_its_own_code():
    assert Reason.model_validate_json('"read by hand"') == Reason(code="read by hand", words="read by hand")
    assert Note("read by hand").words == "read by hand"


def test_a_store_of_an_earlier_version_has_notes_in_words_alone():
    empty = {"frameworks": {}, "used_steps": {}, "reasons": {}, "places": {}}
    stored = json.dumps(empty | {"notes": ["1 of 8 ranks"], "file_notes": [{"code": "tpu", "words": "a TPU profile"}]})
    context = Context.model_validate_json(stored)
    assert [note.words for note in (*context.notes, *context.file_notes)] == ["1 of 8 ranks", "a TPU profile"]


def test_a_note_of_some_workers_names_them():
    assert (
        Note("untimed_events", events=1).of("a, b").words == "1 event without a valid start and length left out (a, b)"
    )


def test_of_a_file_that_ends_early_a_value_may_be_lost():
    assert Missing("no_stacks_nsys", cut_off=1).words.endswith("to an op (or lost: the file ends early)")


@pytest.mark.parametrize("words", [*REASONS.values(), *LEFT_OUT.values()])
def test_a_reason_stands_behind_a_colon_and_has_none(words: str):
    """`small-matrices: recorded without ...`: two colons in a sentence are read twice; what is quoted comes last."""
    assert ": " not in re.sub(r": \{\w+\}$", "", words)
