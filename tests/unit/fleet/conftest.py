"""Stores of tiny traces: what lies in them is the point, not how it was measured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from advisor.fleet import columns, examine
from advisor.system import engines
from tests.fleet import Here, asked, context_of, judged, measured


@pytest.fixture(autouse=True, scope="module")
def _each_content_is_measured_and_judged_once() -> Iterator[None]:
    """Also for stores that a module's tests share: what one test measured tells where its own files lay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examine, "measured", measured)
        patch.setattr(examine, "judge", judged)
        patch.setattr(columns, "context_of", context_of)
        patch.setattr(examine, "measured_run", asked)
        yield


@pytest.fixture(autouse=True)
def _commands_start_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its processes are for is in test_engines.py, and in those tests of test_faults.py that start some."""
    monkeypatch.setattr(engines, "engine", lambda *_: Here())
