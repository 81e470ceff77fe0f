"""What the headline of trials claims: no more than was measured."""

from __future__ import annotations

import pytest

from advisor.model.trials import Gain, Result, Trial, Trials
from advisor.present.trials import document, headline


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([], "No finding has a fix that can be tried from outside of the program"),
        (["not_tried", "not_tried"], "No fix was tried: the time is over"),
        (["same", "slower"], "No fix made the steps shorter"),
        (["same", "unclear"], "No fix is known to make steps shorter"),
        (["not_applied", "not_tried"], "No fix is known to make steps shorter"),
    ],
)
def test_a_fix_that_was_not_measured_counts_neither_for_nor_against(results: list[Result], words: str):
    trials = tuple(Trial(name="threads", uses=(), result=result) for result in results)
    assert headline(Trials(advisor_version="1", program="train.py", step_ms=10.0, within=0.05, trials=trials)) == words


def test_a_machine_that_is_too_busy_to_compare_anything_gets_no_interval():
    wide = Gain(ratio=1.1, low=1e-9, high=1e5, pairs=2)
    made = Trials(advisor_version="1", program="train.py", step_ms=10.0, within=0.05, spread=wide)
    facts = " ".join(document(made).articles[0].facts)
    assert "could not tell" in facts
    assert "95 %" not in facts
