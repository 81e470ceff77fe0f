"""What the headline of trials claims: no more than was measured."""

from __future__ import annotations

import pytest

from advisor.model.clause import Missing
from advisor.model.reason import Reason
from advisor.model.trials import Claim, Gain, Result, Trial, Trials, Use
from advisor.present.trials import document, headline


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (["not_tried", "not_tried"], "No fix was tried: the time is over"),
        (["same", "slower"], "No fix made the steps shorter"),
        (["same", "unclear"], "Could not tell whether a fix makes the steps shorter"),
        (["same", "not_applied"], "No fix made the steps shorter"),
        (["not_applied", "not_tried"], "No fix could be measured"),
    ],
)
def test_a_fix_that_was_not_measured_counts_neither_for_nor_against(results: list[Result], words: str):
    trials = tuple(Trial(name="threads", uses=(), result=result) for result in results)
    assert headline(Trials(advisor_version="1", program="train.py", step_ms=10.0, within=0.05, trials=trials)) == words


def test_where_nothing_can_be_tried_the_headline_says_so_and_names_the_largest_finding():
    made = Trials(
        advisor_version="1",
        program="train.py",
        step_ms=None,
        within=0.05,
        notes=(Reason.of(Missing("nothing_to_try")),),
        untried=("python-callbacks",),
        largest_untried=Claim(low_share=0.2, high_share=0.4),
    )
    nothing = "Nothing measured: no finding has a fix that can be switched on from outside of the program. "
    assert headline(made).startswith(f"{nothing}The largest finding has no patch: python-callbacks, ")


def test_what_the_most_promising_fix_came_to_stands_in_the_headline():
    gains = {
        "threads": Gain(ratio=0.9, low=0.5, high=1.4, pairs=2),
        "workers": Gain(ratio=0.25, low=0.1, high=1.2, pairs=2),
    }
    trials = tuple(
        Trial(name=name, uses=(), result="unclear", gain=gain, before_ms=40.0, after_ms=40 * gain.ratio)
        for name, gain in gains.items()
    )
    made = Trials(advisor_version="1", program="train.py", step_ms=40.0, within=0.05, trials=trials)
    words = "Could not tell whether workers makes the steps shorter: 40 → 10 ms, but the runs differ too much"
    assert headline(made) == words


def test_perfect_input_leads_where_no_fix_was_measured():
    use = Use(patch="input", arguments={"repeat": "one-batch"}, numerics="changes")
    gain = Gain(ratio=0.445, low=0.416, high=0.476, pairs=6)
    ceiling = Trial(name="perfect input", uses=(use,), result="faster", gain=gain, before_ms=40.0, after_ms=18.0)
    trials = (Trial(name="input-bound", uses=(), result="not_tried"), ceiling)
    words = headline(Trials(advisor_version="1", program="train.py", step_ms=40.0, within=0.05, trials=trials))
    assert words.startswith("No fix was measured; perfect input: 40 → 18 ms a step, \N{MINUS SIGN}55.5 %")


def test_a_machine_that_is_too_busy_to_compare_anything_gets_no_interval():
    wide = Gain(ratio=1.1, low=1e-9, high=1e5, pairs=2)
    made = Trials(advisor_version="1", program="train.py", step_ms=10.0, within=0.05, spread=wide)
    facts = " ".join(document(made).articles[0].facts)
    assert "could not tell" in facts
    assert "95 %" not in facts


@pytest.mark.parametrize(
    ("ratio", "low", "high", "words"),
    [(0.94, 0.91, 0.98, "saves less than"), (0.8, 0.75, 0.89, ""), (0.5, 0.45, 0.6, "saves more than")],
)
def test_a_claim_whose_interval_meets_none_of_the_measured_one_is_told(
    ratio: float, low: float, high: float, words: str
):
    """Claimed are 12 to 30 % of the step."""
    gain = Gain(ratio=ratio, low=low, high=high, pairs=4)
    trial = Trial(name="compile", uses=(), result="faster", claimed=Claim(low_share=0.12, high_share=0.3), gain=gain)
    made = Trials(advisor_version="1", program="train.py", step_ms=50.0, within=0.05, trials=(trial,))
    sections = {section.id: section for section in document(made).articles[0].sections}
    told = str(sections.get("trials-remarks"))
    assert ("the finding claims" in told) == bool(words)
    assert words in told
