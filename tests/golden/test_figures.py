"""Findings and numbers of every recording against the record: a rework of words or rooms must leave them alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests import profiles

_spec = importlib.util.spec_from_file_location("figures", Path(__file__).with_name("figures.py"))
assert _spec
assert _spec.loader
book = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(book)

RECORD = book.record()


@pytest.mark.parametrize("recording", sorted(RECORD))
def test_findings_and_numbers_are_those_of_the_record(recording):
    if not book.path_of(recording).exists():
        pytest.skip(f"{book.path_of(recording)} is not there")
    assert book.figures(recording, lambda paths: profiles.check(*paths)) == RECORD[recording]


def test_every_recording_has_its_figures():
    assert set(book.recordings()) <= set(RECORD)
