"""Files that once broke a reader or a metric: each is read without a bug, or refused in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine import check
from advisor.errors import NoRuns

BROKEN = sorted((Path(__file__).parents[2] / "fixtures" / "broken").iterdir())


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.name)
def test_no_bug_comes_up(path: Path):
    try:
        report = check([str(path)])
    except NoRuns as error:
        assert "report this" not in str(error)
        return
    assert "report this" not in report.model_dump_json()


def test_ops_of_no_stream_are_replayed_in_order():
    (run,) = check([str(path) for path in BROKEN if path.name.startswith("stream-minus-one")]).runs
    (row,) = run.metrics["run"]
    assert row["replay_error"] == pytest.approx(0, abs=0.05)


def test_memory_that_no_device_has_is_unknown():
    (run,) = check([str(path) for path in BROKEN if path.name.startswith("memory")]).runs
    assert not run.metrics["memory_peak"]


def test_a_capability_that_no_device_has_is_unknown():
    (run,) = check([str(path) for path in BROKEN if path.name.startswith("sm-count")]).runs
    assert run.metrics["run"][0]["capability"] is None
