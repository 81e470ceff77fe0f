"""Stores of tiny traces: what lies in them is the point, not how it was measured."""

from __future__ import annotations

import pytest

from advisor.fleet import engines, examine
from tests.fleet import Here, context_of, judged, measured


@pytest.fixture(autouse=True)
def _each_content_is_measured_and_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "measured", measured)
    monkeypatch.setattr(examine, "judge", judged)
    monkeypatch.setattr(examine, "context_of", context_of)


@pytest.fixture(autouse=True)
def _commands_start_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its processes are for is in test_engines.py, and in those tests of test_faults.py that start some."""
    monkeypatch.setattr(engines, "engine", lambda *_: Here())
