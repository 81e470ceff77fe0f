from __future__ import annotations

import pytest

from advisor.model.missing import Missing
from advisor.model.report import Reason, Run
from advisor.present.verdict import culprit, headline, qualified, saving, saving_in_brief, title
from tests.render_samples import INPUT_BOUND, RESNET, SAMPLES, THIRTY_TWO_BIT, changed, cpu_only
from tests.render_samples import saving as won

DASH = "\N{EN DASH}"
STEPS = RESNET.source.steps
EIGHT = SAMPLES["many-workers"].runs[0]


def test_a_saving_is_of_the_step_that_it_is_relative_to():
    assert saving(INPUT_BOUND, STEPS) == f"Fixing this saves 30{DASH}59 ms of each 178 ms step."
    assert saving_in_brief(INPUT_BOUND, STEPS) == f"30{DASH}59 ms of each 178 ms step (17{DASH}33 %)"
    other = changed(INPUT_BOUND, saving=changed(won(10, 20, "input", ""), low_share=0.05, high_share=0.1))
    assert saving(other, STEPS) == f"Fixing this saves 10{DASH}20 ms of each 200 ms step."


def test_a_saving_from_nothing_on_is_up_to():
    finding = changed(INPUT_BOUND, saving=won(0, 59.3, "input", ""))
    assert saving(finding, STEPS) == "Fixing this saves up to 59 ms of each 178 ms step."


def test_a_saving_that_others_have_claimed_says_so():
    finding = changed(INPUT_BOUND, saving=won(0, 0, "input", ""))
    assert saving(finding, STEPS) == "Fixing this saves nothing more: the findings above already count that time."
    assert saving_in_brief(finding, STEPS) == "nothing more"


def test_outlier_steps_are_named_where_the_saving_is_of_them():
    finding = changed(INPUT_BOUND, saving=won(10, 20, "outliers", ""))
    assert saving(finding, STEPS) == f"Fixing this saves 10{DASH}20 ms of each 178 ms step, outlier steps included."


def test_without_marked_steps_nothing_is_called_a_step():
    steps = cpu_only().runs[0].source.steps
    assert saving(INPUT_BOUND, steps) == f"Fixing this saves 30{DASH}59 ms of the 178 ms recorded."


def test_no_estimate_has_no_sentence():
    assert saving(changed(INPUT_BOUND, saving=None), STEPS) is None


def test_the_verdict_is_the_first_finding_and_its_saving():
    assert headline(RESNET) == f"The GPU waits for input data. Fixing this saves 30{DASH}59 ms of each 178 ms step."
    assert qualified(RESNET) == ""


def unjudged(**reasons: str) -> Run:
    rules = [
        changed(RESNET.not_evaluable[1], rule=rule, missing={"m": Reason.of(Missing(why))})
        for rule, why in reasons.items()
    ]
    return changed(RESNET, findings=(), passed=("x",) * 9, not_evaluable=tuple(rules))


def test_what_could_not_be_judged_qualifies_the_verdict():
    run = unjudged(a="no_shapes", b="no_shapes", c="few samples")
    assert headline(run) == "No problem found by the 10 rules that could be judged."  # one is suppressed
    assert qualified(run) == "3 more rules could not be judged (2 of them): recorded without `record_shapes=True`."
    assert (
        qualified(unjudged(a="no_shapes")) == "1 more rule could not be judged: recorded without `record_shapes=True`."
    )
    assert qualified(unjudged()) == ""


def test_most_rules_without_an_answer_are_no_verdict_on_the_job():
    run = changed(unjudged(a="no_shapes", b="no_shapes"), passed=(), suppressed=())
    assert headline(run) == "Too little was recorded to judge this job: 2 of 2 rules could not be judged."
    assert qualified(run) == "The most common reason: recorded without `record_shapes=True`."
    empty = changed(run, source=changed(run.source, steps=changed(STEPS, used=0)))
    assert qualified(empty) == "None of its steps is complete."


def test_the_title_names_the_one_rank_or_host_that_a_finding_is_about():
    alone = changed(EIGHT.findings[0], scope=changed(EIGHT.findings[0].scope, workers=(3,)))
    assert title(alone, EIGHT) == f"{alone.title} (rank 3)"
    hosts = changed(EIGHT, source=changed(EIGHT.source, format="xplane"))
    assert culprit(alone, hosts) == "rank3"  # the name of its file
    assert culprit(changed(alone, scope=changed(alone.scope, workers=(1, 3))), EIGHT) is None


@pytest.mark.parametrize(
    ("table", "name", "op", "expected"),
    [
        ("device_ops", "void deep_ep::internode::combine<4>(int)", None, "`internode::combine`"),
        ("host_ops", "aten::copy_", None, "`aten::copy_`"),
        ("host_ops", "cudaMalloc", "aten::empty", "`aten::empty`"),
        ("host_ops", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", None, None),
        ("gaps", "input", None, None),
    ],
)
def test_the_title_names_the_one_op_or_kernel_of_all_places(
    table: str, name: str, op: str | None, expected: str | None
):
    place = changed(INPUT_BOUND.where[0], table=table, name=name, op=op)
    assert culprit(changed(INPUT_BOUND, where=(place, place)), RESNET) == expected
    assert culprit(THIRTY_TWO_BIT, RESNET) is None  # two ops
