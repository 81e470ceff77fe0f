"""Findings and numbers of every recording against the record: a rework of words or rooms must leave them alone."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import jsonschema
import pytest

from advisor.model.brief import MOST_BYTES
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
RECORDINGS = soak(sorted(RECORD), unless=lambda name: name.rpartition("/")[2] in profiles.COMMON)
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
