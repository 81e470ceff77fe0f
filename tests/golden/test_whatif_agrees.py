"""What-if and check give one account of a recording: the same step, and of several ranks the same one sets the pace."""

from __future__ import annotations

import pytest

from advisor.analysis.device.selection import select_steps
from advisor.errors import UsageError
from advisor.whatif.scenario import scenario
from tests import profiles
from tests.effort import soak
from tests.golden.figures import path_of
from tests.golden.test_figures import RECORD, checked

QUICK = set([name for name in sorted(RECORD) if profiles.is_common(name)][::3])


@pytest.mark.parametrize("recording", soak(sorted(RECORD), unless=QUICK.__contains__))
def test_a_what_if_begins_with_the_step_and_the_rank_of_the_check(recording):
    report = checked(recording)
    if len(report.runs) != 1:
        pytest.skip("several runs: a what-if is of one")
    (run,) = report.runs
    try:
        answer = scenario(select_steps(profiles.read(path_of(recording))), [])
    except UsageError as why:  # nothing is said of what cannot be replayed
        assert "replayed" in str(why)
        return
    assert answer.step_ms == pytest.approx(
        run.source.steps.usual_ms, rel=1e-6
    )  # of the used steps, without uneven ones
    assert answer.steps <= (answer.of_steps or 1)  # none is marked
    if answer.pace.startswith("rank "):
        assert answer.pace == f"rank {run.source.steps.worker}"
