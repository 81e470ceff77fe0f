from __future__ import annotations

import pytest

from advisor.inputs.saved_kinds import is_saved, kind_of


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"schema_version": 1, "advisor_version": "1", "runs": [{"verdict": "x"}]}', "report"),
        ('{"base": {}, "advisor_version": "1", "verdict": "same"}', "comparison"),
        ('{"advisor_version": "1", "week": "2026-W47", "runs": []}', "week"),
        ('{"kind": "week", "verdict": "same"}', "week"),
        ('{"kind": "trials", "verdict": "same"}', "trials"),
        ("[1]", "report"),
        ("{", "report"),
        (b"\xff", "report"),
    ],
)
def test_a_document_is_told_by_its_kind_or_its_keys(text: str | bytes, kind: str):
    assert kind_of(text) == kind


def test_a_file_of_ours_names_its_version_in_its_head():
    assert is_saved(b' {"kind": "report", "advisor_version": "1"')
    assert not is_saved(b'{"traceEvents": []}')
    assert not is_saved(b'["advisor_version"]')
