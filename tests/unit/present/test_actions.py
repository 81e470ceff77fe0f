"""What to do, in words: before and after on one scale, the evidence with its line, and the sum of what is listed."""

from __future__ import annotations

import pytest

from advisor.model.finding import Fix, Patch, Place
from advisor.present.actions import actions, becomes, sequence
from advisor.present.findings import findings
from tests.render_samples import ACCOUNTING, INPUT_BOUND, RESNET, SAMPLES, THIRTY_TWO_BIT, changed, part
from tests.render_samples import saving as won

DASH = "\N{EN DASH}"
ARROW = " \N{RIGHTWARDS ARROW} "
EIGHT = SAMPLES["many-workers"].runs[0]


def doing(*findings):
    """What is to be done about a run of these findings, in the order of their savings."""
    return actions(changed(RESNET, findings=findings))


def becoming(low: float, high: float) -> str:
    """What a step of 178 ms becomes."""
    run = changed(RESNET, findings=(changed(INPUT_BOUND, saving=won(low, high, "input", "")),))
    return becomes(run.actions[0], run)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (30, 59, f"178 \N{RIGHTWARDS ARROW} 119{DASH}148 ms a step"),
        (1, 59, f"178 \N{RIGHTWARDS ARROW} 119{DASH}177 ms a step (0.6{DASH}33 % shorter)."),
        (120, 177, f"178 \N{RIGHTWARDS ARROW} 1{DASH}58 ms a step"),
        (30, 30, "178 \N{RIGHTWARDS ARROW} 148 ms a step"),
        (0.5, 59, "178 \N{RIGHTWARDS ARROW} 119 ms a step at best (33 % shorter; perhaps nothing)."),
    ],
)
def test_before_and_after_are_on_one_scale(low, high, words):
    assert becoming(low, high).startswith(words)


def unknown(*, records: bool = False, **columns: object) -> str:
    """What is said of a finding without a saving that is about 40 % of the step."""
    fixes = tuple(changed(fix, records=records) for fix in INPUT_BOUND.fixes)
    run = changed(RESNET, findings=(changed(INPUT_BOUND, saving=None, fixes=fixes, **columns),))
    return becomes(run.actions[0], run)


def test_what_nobody_knows_is_told_by_what_it_is_at_most_and_what_shows_the_rest():
    assert unknown() == "The recording does not show how much this saves: `advisor compare BEFORE AFTER` does."
    assert (
        unknown(time_share=0.4)
        == "This saves between nothing and 71 ms a step (40 %): `advisor compare BEFORE AFTER` shows how much."
    )
    assert unknown(records=True) == "Saving: unknown until that is recorded."
    assert (
        unknown(records=True, time_share=0.4)
        == "Saving: at most 71 ms of 178 ms a step (40 %); the new recording shows how much."
    )


def test_what_happens_once_is_told_by_how_much_of_a_run_it_is():
    alone = changed(INPUT_BOUND.evidence[0], metric="once_ms", value=766.0, unit="ms")
    assert unknown(loss="once", evidence=(alone,)) == "This saves up to 766 ms of each run."
    assert unknown(loss="once", evidence=()).startswith("The recording does not show how much this saves")


def test_a_recording_that_shows_why_most_is_lost_is_asked_for_whatever_its_finding_saves():
    ask = (changed(INPUT_BOUND.fixes[0], records=True, do="Record all ranks at once."),)
    little = changed(INPUT_BOUND, saving=won(0, 0.2, "collective", ""), severity="low", fixes=ask)
    lost = changed(part("collective", 0.6, little.key), is_explained=False)
    known = changed(ACCOUNTING, parts=(part("compute", 0.4), lost))
    run = changed(RESNET, accounting=known, findings=(little,), not_evaluable=())
    assert run.outcome.code == "loss"
    assert (
        becomes(run.listed[0], run)
        == "Saving: at most 107 ms of 178 ms a step (60 %); the new recording shows how much."
    )
    elsewhere = changed(known, parts=(part("compute", 0.4, little.key), part("collective", 0.6)))
    assert changed(run, accounting=elsewhere).listed == []


def test_a_recording_that_holds_little_beside_start_up_has_low_trust():
    ask = (changed(INPUT_BOUND.fixes[0], records=True, do="Record later steps."),)
    only = changed(INPUT_BOUND, rule="one-time-work", loss="once", saving=None, fixes=ask)
    assert changed(RESNET, findings=(only,)).trust == "low"
    assert changed(RESNET, findings=(only, INPUT_BOUND)).trust == RESNET.trust != "low"  # it saves something in a step


def test_a_minor_start_is_no_action_and_casts_no_doubt():
    start = changed(INPUT_BOUND, rule="one-time-work", loss="once", saving=None, severity="low")
    run = changed(RESNET, findings=(start,))
    assert run.actions == ()
    assert run.trust == RESNET.trust != "low"


def test_evidence_has_its_line_and_what_completes_it_comes_after():
    place = Place(
        worker=0,
        step=0,
        table="host_ops",
        name="next",
        device=None,
        start_ns=0,
        at_ms=0,
        dur_ns=1,
        stack="train.py(42): main",
    )
    says = "The first sentence. The second."
    alone = changed(INPUT_BOUND, where=(place,), says=says)
    (action,) = doing(alone).actions
    assert action.says == "The first sentence. Called from `train.py:42`."
    assert action.rest == ("Start with four per GPU and raise it while the wait shrinks.",)
    assert action.more == ("The second.",)


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        ("a (4 ms), b (3 ms), c (2 ms), d (1 ms)", "a (4 ms), b (3 ms), and 2 smaller"),
        ("a (4 ms), b (3 ms), c (2 ms), others (9 ms)", "a (4 ms), b (3 ms), and others"),
        ("a (4 ms), b (3 ms), c (2 ms)", "a (4 ms), b (3 ms), c (2 ms)"),  # no mask for one that is as short as it
        (f"a (4 ms), b (3 ms), {'c' * 20} (2 ms)", "a (4 ms), b (3 ms), and 1 smaller"),
        (
            f"{'a' * 60} (4 ms), b (3 ms), c (2 ms), d (1 ms)",
            f"{'a' * 60} (4 ms), b (3 ms), and 2 smaller",
        ),  # two at least
    ],
)
def test_a_long_list_is_cut_to_what_fits(calls, shown):
    says = f"The host {'very ' * 18}often calls things: "
    (action,) = doing(changed(INPUT_BOUND, where=(), says=f"{says}{calls}.")).actions
    assert action.says == f"{says}{shown}."


def test_a_wide_saving_says_why_it_may_be_less():
    """Only the reason: how the low end is computed stands behind `-v`."""
    method = "High end: all of it. Low end: three tenths of a replay, because some waits are needed."
    (wide,) = doing(changed(INPUT_BOUND, where=(), saving=won(10, 59, "input", method))).actions
    (narrow,) = doing(changed(INPUT_BOUND, where=(), saving=won(50, 59, "input", method))).actions
    assert wide.becomes.endswith(" shorter; wide because some waits are needed).")
    assert narrow.becomes.endswith(" shorter).")
    method = "Without a GPU, low end: a quarter, because it is needed. With a GPU, low end: half, because it is slow."
    (of_gpu,) = doing(changed(INPUT_BOUND, where=(), saving=won(10, 59, "input", method))).actions
    assert of_gpu.becomes.endswith(" shorter; wide because it is slow).")


@pytest.mark.parametrize(("rest_ms", "says"), [(0.6, ""), (5.0, "; at most 45 ms of input and 5 ms elsewhere")])
def test_of_a_saving_that_mostly_comes_out_of_one_part_of_the_bar_the_rest_has_no_name(rest_ms: float, says: str):
    saving = changed(won(40, 45 + rest_ms, "input", ""), parts={"input": 45.0, "host_ops": rest_ms})
    (action,) = doing(changed(INPUT_BOUND, where=(), saving=saving)).actions
    assert action.becomes.endswith(f" shorter{says}).")


def test_a_wide_saving_of_two_findings_has_the_reason_of_the_widest():
    first = changed(INPUT_BOUND, where=(), saving=won(1, 30, "input", "Low end: a part, because the disk may be slow."))
    second = changed(first, rule="other", saving=won(0, 40, "input", "Low end: nothing, because values may need it."))
    narrow = changed(first, rule="third", saving=won(9, 10, "input", "Low end: most, because it is nearly sure."))
    (action,) = doing(first, second, narrow).actions
    assert action.becomes.endswith("; wide because values may need it).")


def test_lines_of_code_that_the_words_have_are_not_said_twice():
    fix = changed(
        INPUT_BOUND.fixes[0], do="Compile the model: `torch.compile(model)`.", code="model = torch.compile(model)"
    )
    (action,) = doing(changed(INPUT_BOUND, fixes=(fix,))).actions
    (other,) = doing(
        changed(INPUT_BOUND, fixes=(changed(fix, code="model = torch.compile(model, dynamic=True)"),))
    ).actions
    assert (action.code, other.code) == ("", "model = torch.compile(model, dynamic=True)")


def test_an_action_says_what_a_saving_adds_up_from_and_the_finding_what_of_it_is_measured():
    """Of 90 ms at best, 40 are told of; or nothing is, and they come out of two parts of the bar."""
    saving = changed(won(30, 90, "input", "All of it."), parts={"input": 59.3, "compute": 30.7}, cause_ms=40)
    run = changed(RESNET, findings=(changed(INPUT_BOUND, saving=saving),))
    (action,) = actions(run).actions
    assert (
        action.becomes
        == f"178{ARROW}88{DASH}148 ms a step (17{DASH}51 % shorter; 40 ms is measured, the rest is estimated)."
    )
    of_parts = changed(run, findings=(changed(INPUT_BOUND, saving=changed(saving, cause_ms=None)),))
    assert becomes(of_parts.actions[0], of_parts).endswith(" shorter; at most 59 ms of input and 31 ms of kernels).")
    for cause_ms, is_part in ((40, True), (89, False), (None, False)):
        known = changed(run, findings=(changed(INPUT_BOUND, saving=changed(saving, cause_ms=cause_ms)),))
        words = str(findings(known).findings[0].reasons)
        assert ("40 ms is measured, the rest is estimated. All of it." in words) == is_part
        assert "(up to 31 ms)" in words


def test_what_no_step_is_known_of_promises_no_shorter_one():
    """As a log of collectives; and a saving that may be nothing or all says why."""
    steps = changed(RESNET.source.steps, step_mean_ms=None, whole_mean_ms=None, unprofiled_ms=None)
    source = changed(RESNET.source, steps=steps)
    run = changed(RESNET, source=source, accounting=None, findings=(changed(INPUT_BOUND, saving=None),))
    assert becomes(run.actions[0], run) == "How much this saves is unknown: the recording has no steps."
    (vague,) = doing(changed(INPUT_BOUND, saving=won(0, 177, "input", "Low end: 0, because it may fail."))).actions
    assert vague.becomes.endswith("shorter; perhaps nothing, because it may fail).")
    slow = "Low end: half, because it is slow. Low end: nothing, because it may fail."
    (none,) = doing(changed(INPUT_BOUND, saving=won(0, 177, "input", slow))).actions
    (some,) = doing(changed(INPUT_BOUND, saving=won(1, 177, "input", slow))).actions
    assert none.becomes.endswith("shorter; perhaps nothing, because it may fail).")
    assert "because it is slow)" in some.becomes


def test_the_sum_is_of_those_that_are_listed():
    first = changed(INPUT_BOUND, saving=won(30, 59, "input", ""))
    second = changed(THIRTY_TWO_BIT, saving=won(10, 20, "compute", ""))
    block = doing(first, second)
    assert block.together(1) == ""
    assert block.together() == f"1 and 2 together: 178 \N{RIGHTWARDS ARROW} 99{DASH}138 ms a step."


def test_no_sum_is_a_step_of_no_time():
    first = changed(INPUT_BOUND, saving=won(30, 90, "input", ""))
    second = changed(THIRTY_TWO_BIT, saving=won(10, 87.6, "compute", ""))
    assert doing(first, second).together() == f"1 and 2 together: 178 ms{ARROW}at most 138 ms a step."


def test_a_sum_of_actions_that_may_save_nothing_says_that_none_is_sure():
    first = changed(INPUT_BOUND, saving=won(1, 30, "input", ""))
    second = changed(THIRTY_TWO_BIT, saving=won(0, 20, "compute", ""))
    assert doing(first, second).together().endswith("177 ms a step. None of them is sure to save much: try 1 first.")
    assert "None" not in doing(changed(first, saving=won(4, 30, "input", "")), second).together()


def test_what_others_save_too_is_told_as_what_an_action_saves_after_them_everywhere():
    """20-30 of 178 ms, of which the first action saves 15-22 as well."""
    first = changed(INPUT_BOUND, saving=won(30, 59, "input", ""))
    second = changed(THIRTY_TWO_BIT, saving=changed(won(5, 8, "compute", ""), shared_low_ms=15.0, shared_ms=22.0))
    both = changed(RESNET, findings=(first, second))
    block, shown = actions(both), findings(both).findings[1].saving
    assert block.actions[1].becomes.startswith(
        f"After the others it saves 5{DASH}8 ms of 178 ms a step (2.8{DASH}4.5 %"
    )
    assert shown.sentence == f"After the others, fixing this saves 5{DASH}8 ms of each 178 ms step."
    assert shown.time == f"5{DASH}8 ms, after the others"
    assert block.together().startswith(f"1 and 2 together: 178{ARROW}111{DASH}143 ms a step.")
    little = changed(second, saving=changed(second.saving, shared_ms=3.0))
    assert doing(first, little).actions[1].becomes.startswith(f"178{ARROW}170{DASH}173 ms a step")
    vague = changed(second, saving=changed(won(0, 80, "compute", ""), shared_ms=56.0))
    words = doing(first, vague).actions[1].becomes
    assert words == "After the others it saves at most 80 ms of 178 ms a step (45 %; perhaps nothing)."


def test_two_findings_of_one_loss_are_one_action_with_two_pieces_of_evidence():
    """The second saves 20 ms beyond the 40 ms that the first counts too; 10 ms beyond 5 would be another loss."""
    first = changed(INPUT_BOUND, where=(), saving=changed(won(30, 59, "input", ""), parts={"input": 59.0}))
    again = changed(won(0, 20, "input", ""), parts={"input": 20.0}, shared_ms=40.0)
    second = changed(THIRTY_TWO_BIT, saving=again, says="It waits for the same.")
    (action,) = doing(first, second).actions
    assert action.rules == (first.rule, second.rule)
    assert action.becomes == f"178{ARROW}119{DASH}148 ms a step (17{DASH}33 % shorter)."
    assert action.says.endswith("It waits for the same.")
    for other in (
        changed(again, shared_ms=5.0),
        changed(again, parts={"compute": 20.0}, of="compute"),
        changed(again, parts={"input": 10.0, "sync_idle": 10.0}),
        changed(again, of="memcpy"),
    ):
        assert len(doing(first, changed(second, saving=other)).actions) == 2
    chain = changed(second, saving=won(0, 30, "sync_idle", ""), explains=(first.rule,))
    assert len(doing(first, chain).actions) == 1
    for other in (changed(chain, saving=won(0, 31, "sync_idle", "")), changed(chain, explains=())):
        assert len(doing(first, other).actions) == 2
    assert len(doing(first, changed(chain, saving=won(1, 30, "sync_idle", ""))).actions) == 2


def test_a_long_reason_of_a_range_stands_only_beside_the_finding():
    method = f"Low end: a part, because {'some of the waits are needed, ' * 4}it seems."
    (action,) = doing(changed(INPUT_BOUND, where=(), saving=won(10, 59, "input", method))).actions
    assert action.becomes.endswith(" % shorter).")


def test_a_sum_over_ranks_says_so():
    steps = changed(EIGHT.source.steps, worker=0)
    known = changed(
        INPUT_BOUND, saving=won(30, 59, "input", ""), scope=changed(EIGHT.findings[0].scope, workers=(0,), told_of=0)
    )
    other = changed(
        THIRTY_TWO_BIT, saving=won(10, 20, "compute", ""), scope=changed(known.scope, workers=(1,), told_of=1)
    )
    run = changed(EIGHT, source=changed(EIGHT.source, steps=steps), findings=(known, other))
    assert "1 and 2 together, if all ranks gain as much: " in str(actions(run))


def test_what_waits_for_the_loader_says_so():
    after = changed(won(30, 59, "compute", ""), after="input")
    run = changed(RESNET, findings=(changed(THIRTY_TWO_BIT, saving=after),))
    assert becomes(run.actions[0], run) == (
        f"This saves nothing until the data loader keeps up; then it saves 30{DASH}59 ms a step."
    )
    loading = changed(run, findings=(changed(INPUT_BOUND, saving=won(60, 80, "input", "")), *run.findings))
    small = changed(THIRTY_TWO_BIT, saving=changed(won(17, 59, "compute", ""), after="input"))
    assert len(actions(changed(loading, findings=(loading.findings[0], small))).actions) == 1
    second = actions(loading).actions[1]
    assert second.becomes.startswith("This saves nothing until the data loader keeps up; then it saves ")
    assert second.then.startswith(f"1 and 2 together: 178 \N{RIGHTWARDS ARROW} 39{DASH}88 ms a step")


def test_the_sequence_of_the_actions_is_a_waterfall():
    """30-59 of 177.6 ms from the input and 5-20 ms of kernels: 118.6-147.6 ms, then 98.6-142.6 ms."""
    second = changed(THIRTY_TWO_BIT, saving=won(5, 20, "compute", ""))
    now, first, both = sequence(
        changed(RESNET, findings=(changed(INPUT_BOUND, saving=won(30, 59, "input", "")), second))
    )
    assert (now["step"], now["low_ms"]) == ("now: 178 ms", pytest.approx(177.6, abs=0.1))
    assert (first["low_ms"], first["high_ms"]) == pytest.approx((118.6, 147.6), abs=0.1)
    assert (both["low_ms"], both["high_ms"]) == pytest.approx((98.6, 142.6), abs=0.1)
    assert both["step"] == "after 1 and 2: 178 \N{RIGHTWARDS ARROW} 99\N{EN DASH}143 ms a step"
    assert sequence(changed(RESNET, findings=())) == []


def test_actions_are_worked_out_once_and_anew_for_a_copy():
    """All that is drawn asks for them: of 3,000 findings they took 26 s."""
    run = changed(RESNET, findings=(INPUT_BOUND,))
    assert run.actions is run.actions
    assert run.actions
    assert not run.model_copy(update={"findings": ()}).actions
    assert run == run.model_copy()


def test_a_step_of_another_rank_than_all_numbers_are_of_is_called_so():
    told = changed(INPUT_BOUND, saving=won(30, 59, "input", ""))
    eight = changed(EIGHT, findings=(changed(told, scope=changed(told.scope, workers=(3,), told_of=3)),))
    assert eight.source.steps.worker != 3
    assert "Rank 3, the only one where this shows: 178" in becomes(eight.actions[0], eight)
    assert "rank" not in becomes(changed(RESNET, findings=(told,)).actions[0], RESNET)


def test_the_code_is_that_of_the_fix_in_whose_words_an_action_is():
    mode = Patch(name="compile", arguments={"mode": "reduce-overhead"})
    less = Fix(framework="any", do="Compile.", code="less", patch=Patch(name="compile"))
    more = Fix(framework="any", do="Compile with graphs.", code="more", patch=mode)
    (action,) = doing(changed(INPUT_BOUND, fixes=(less,)), changed(THIRTY_TWO_BIT, fixes=(more,))).actions
    assert (action.do, action.code) == ("Compile with graphs.", "more")


def test_work_that_is_lacking_is_what_a_recording_shows_where_the_device_worked_too():
    again = Fix(framework="any", do="Record again.", records=True)
    lacks = changed(INPUT_BOUND, saving=None, loss="unknown", of_recording=True, severity="high", fixes=(again,))

    def shows(busy: float) -> str:
        known = changed(ACCOUNTING, parts=(part("compute", busy), part("unknown", 1 - busy)))
        run = changed(RESNET, findings=(lacks,), accounting=known)
        return becomes(run.actions[0], run)

    assert shows(0.4) == "Saving: at most 107 ms of 178 ms a step (60 %); the new recording shows how much."
    assert shows(0.001) == "Saving: unknown until that is recorded."
