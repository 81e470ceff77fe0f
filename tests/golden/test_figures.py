"""Findings and numbers of every recording against the record: a rework of words or rooms must leave them alone."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import jsonschema
import pytest

from advisor.model.action import SMALL
from advisor.model.brief import MOST_BYTES
from advisor.present import document_of
from advisor.render import terminal
from advisor.render.brief import render
from advisor.render.json import schema
from tests import profiles
from tests.effort import soak

_spec = importlib.util.spec_from_file_location("figures", Path(__file__).with_name("figures.py"))
assert _spec
assert _spec.loader
book = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(book)

OPTION = r"\b([a-z_]{5,})=(\d[\d.]*)"
RECORD = book.record()
RECORDINGS = soak(sorted(RECORD), unless=profiles.is_common)
VALIDATOR = jsonschema.Draft202012Validator(json.loads(schema("brief")))


@pytest.mark.parametrize("recording", RECORDINGS)
def test_findings_and_numbers_are_those_of_the_record(recording):
    if not book.path_of(recording).exists():
        pytest.skip(f"{book.path_of(recording)} is not there")
    assert book.figures(recording, lambda paths: profiles.check(*paths)) == RECORD[recording]


def test_every_recording_has_its_figures():
    assert set(book.recordings()) <= set(RECORD)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_brief_of_every_recording_is_valid_and_small(recording):
    path = book.path_of(recording)
    if not path.exists() or any("error" in run for run in RECORD[recording]):
        pytest.skip(f"{path} is not there, or cannot be read")
    text = render(profiles.check(path))
    assert len(text) <= MOST_BYTES
    VALIDATOR.validate(json.loads(text))


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_report_recommends_one_number_for_an_option(recording):
    path = book.path_of(recording)
    if not path.exists() or any("error" in run for run in RECORD[recording]):
        pytest.skip(f"{path} is not there, or cannot be read")
    for run in profiles.check(path).runs:
        fixes = [fix for finding in run.findings for fix in finding.fixes_for(run.source.framework)]
        numbers = {number for fix in fixes for number in re.findall(OPTION, f"{fix.do} {fix.code or ''}")}
        options = [option for option, _ in numbers]
        assert len(options) == len(set(options)), numbers


@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_parts_of_the_accounting_add_up(recording):
    for run in RECORD[recording]:
        if run.get("steps", [0, None])[1] is not None:
            assert sum(run["accounting"].values()) == pytest.approx(1, abs=1e-4)


SCREEN_LINES, SCREEN_COLUMNS = 25, 80


def checked(recording):
    path = book.path_of(recording)
    if not path.exists() or any("error" in run for run in RECORD[recording]):
        pytest.skip(f"{path} is not there, or cannot be read")
    return profiles.check(path)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_first_screen_is_one_screen(recording):
    lines = terminal.render(document_of(checked(recording))).splitlines()
    assert len(lines) <= SCREEN_LINES
    assert all(len(line) <= SCREEN_COLUMNS for line in lines)
    assert any(line.startswith("Trust: ") for line in lines)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_actions_are_in_order_and_add_up(recording):
    """No wide interval above a narrow one with a higher low end, and never more than the step."""
    for run in checked(recording).runs:
        known = [action for action in run.actions if action.high_ms is not None]
        spans = [(action.low_ms, action.high_ms - action.low_ms, action.step_ms) for action in known]
        for n, (low, width, step) in enumerate(spans):
            for other_low, other_width, _ in spans[n + 1 :]:
                assert not (width > other_width and other_low > low and other_low >= SMALL * step)
        ends = [(action.then_low_ms, action.then_high_ms) for action in known]
        assert all(0 <= low <= high for low, high in ends)
        assert ends == sorted(ends, reverse=True)
