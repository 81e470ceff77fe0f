"""Stores of tiny traces: what lies in them is the point, not how it was measured."""

from __future__ import annotations

import pytest

from advisor.fleet import examine
from tests.fleet import measured


@pytest.fixture(autouse=True)
def _each_content_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "measured", measured)
