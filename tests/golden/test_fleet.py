"""Real recordings in a store: what the report says is what checking them one by one says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from advisor.config import Fleet
from advisor.fleet.ingest import ingest
from advisor.fleet.store import Store
from advisor.fleet.weekly import weekly
from advisor.rules.evaluation import CERTAINTY
from advisor.system.engines import local
from tests import profiles
from tests.fleet import Here

TRACES = Path(__file__).parents[2].parent / "shared/traces"
if not TRACES.is_dir():
    TRACES = Path(__file__).parents[3].parent / "shared/traces"
BAD = [f"malformed/{name}.pt.trace.json" for name in ("empty", "trailing-comma", "truncated-mid-event")]
SMALL = [str(TRACES / name) for name in ("kineto/resnet50-v100-workers0", *BAD)]
ALL = [str(TRACES / name) for name in ("kineto", "malformed")]


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded traces are not here")
@pytest.mark.soak  # a report of one stored recording is in tests/unit/fleet/test_page.py
@pytest.mark.parametrize("roots", [SMALL, ALL], ids=["small", "all"])
def test_the_report_of_real_recordings(tmp_path, roots):
    store = Store(str(tmp_path / "store"))
    engine = local(2) if roots is ALL else Here()
    first = ingest(roots, store, engine)
    again = ingest(roots, store, engine)
    assert (again.known, again.runs, again.unreadable) == (first.recordings, 0, 0)
    checked = profiles.check(*roots, all_runs=True)
    bad = sum(1 + len(one.others) for one in checked.unreadable)
    assert (first.runs, first.unreadable) == (len(checked.runs), bad)
    found = weekly(store, Fleet(), max(store.weeks()))
    assert found.coverage.runs + found.coverage.unreadable == first.runs + first.unreadable
    assert sum(reason.runs for reason in found.coverage.reasons) == first.unreadable
    assert found.rules
    assert found.rules[0].rule in _worth_most(checked)


def _worth_most(report):
    """The two rules whose savings come to the most time on the most GPUs, over the steps that were used.

    The store counts all of the recorded time, so that two rules of about the same worth may change places.
    """
    hours = Counter()
    for run in report.runs:
        for finding in run.findings:
            if finding.saving:
                low, high = finding.saving.low_ms, finding.saving.high_ms
                due = low + CERTAINTY[finding.confidence] * (high - low) / 2
                hours[finding.rule] += due * (run.source.steps.used or 1) * len(run.source.devices)
    return [rule for rule, _ in hours.most_common(2)]
