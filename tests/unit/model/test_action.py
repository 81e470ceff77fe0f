"""Actions: findings with one fix together, in an order that no wide interval leads, and their sum."""

from __future__ import annotations

from itertools import chain

import pytest

from advisor.model.action import Action, actions, in_order
from advisor.model.finding import Finding, Fix, Patch, Reach, Saving
from advisor.model.report import Part
from tests.render_samples import RESNET, changed

STEP_MS = 100.0


def found(key: str, low: float, high: float, do: str | None = None, **more: object) -> Finding:
    """A finding that saves so many of 100 ms, with a fix of its own."""
    won = Saving(low_ms=low, high_ms=high, low_share=low / 100, high_share=high / 100, of="compute", method="m")
    fix = Fix(
        framework="any", do=do or f"Do {key}.", patch=more.pop("patch", None), records=bool(more.pop("records", 0))
    )
    fields = {"key": key, "rule": key, "saving": won, "fixes": (fix,), "confidence": "high"}
    return changed(RESNET.findings[0], **(fields | more))


def listed(*findings: Finding, **work_ms: float) -> tuple[Action, ...]:
    return actions(findings, "pytorch", STEP_MS, work_ms)


def names(*findings: Finding) -> list[tuple[str, ...]]:
    return [action.findings for action in listed(*findings)]


def test_findings_with_one_fix_are_one_action():
    one, other = found("a", 10, 20, "Compile it: `x`. It fuses."), found("b", 5, 8, "Compile it: `x`. It captures.")
    (action,) = listed(one, other)
    assert (action.findings, action.low_ms, action.high_ms) == (("a", "b"), 15, 28)
    assert (action.then_low_ms, action.then_high_ms) == (72, 85)


def test_what_workers_lose_at_once_is_saved_once():
    of_others = Reach(workers=(1,), steps=(3,), told_of=1)
    one, other = found("a", 10, 20, "Copy ahead."), found("b", 5, 28, "Copy ahead.", scope=of_others)
    (action,) = listed(one, other)
    assert (action.findings, action.low_ms, action.high_ms) == (("a", "b"), 10, 28)


def test_a_patch_that_does_more_stands_for_one_that_does_less():
    fuse, capture = Patch(name="compile"), Patch(name="compile", arguments={"mode": "reduce-overhead"})
    (action,) = listed(found("a", 10, 20, patch=fuse), found("b", 5, 8, "Capture.", patch=capture))
    assert (action.findings, action.do) == (("a", "b"), "Capture.")
    workers, pinned = (Patch(name="dataloader", arguments={name: 1}) for name in ("num_workers", "pin_memory"))
    assert len(listed(found("a", 10, 20, patch=workers), found("b", 5, 8, patch=pinned))) == 2


def test_no_wide_interval_stands_above_a_narrow_one_with_a_higher_low_end():
    assert names(found("wide", 2, 60), found("narrow", 9, 10), found("open", 0, 50)) == [
        ("narrow",),
        ("wide",),
        ("open",),
    ]
    trifle = found("trifle", 0.9, 0.95)  # of which less than 1 % of the step is sure
    assert names(trifle, found("open", 0, 50)) == [("open",), ("trifle",)]


def test_a_grave_cause_without_a_number_stands_above_what_saves_little():
    kernel = found("kernel", 0, 0, saving=None, severity="medium")
    hint = found("hint", 0, 0, saving=None, severity="low")
    order = names(found("little", 2, 6), hint, kernel, found("much", 6, 8))
    assert order == [("much",), ("kernel",), ("little",)]
    doubtful = found("doubtful", 0, 50, confidence="low")  # 25 % in the middle, 10 % expected
    assert names(doubtful, kernel) == [("kernel",), ("doubtful",)]
    assert names(found("firm", 0, 50), kernel) == [("firm",), ("kernel",)]


def test_what_ended_the_program_stands_above_the_kernel_that_took_most_of_its_time():
    ended = found("ended", 0, 0, saving=None, loss="unknown", severity="high", records=1)
    kernel = found("kernel", 0, 0, saving=None, severity="medium", time_share=0.97, records=1)
    assert names(kernel, ended) == [("ended",), ("kernel",)]


def test_a_cause_without_a_number_weighs_half_of_the_time_that_it_is_about():
    """With low confidence 0.4 of that: 14.2 % of a step where it takes 71 %; the copies are expected to save 14 %."""
    kernel = found("kernel", 0, 0, saving=None, severity="medium", confidence="low", time_share=0.71)
    copies = found("copies", 4, 24)
    assert names(copies, kernel) == [("kernel",), ("copies",)]
    assert names(copies, changed(kernel, time_share=0.69)) == [("copies",), ("kernel",)]
    assert names(copies, changed(kernel, severity="low")) == [("copies",)]
    trifle = found("trifle", 5.1, 5.2)  # kernels of less than half of the step weigh as other causes do
    assert names(trifle, changed(kernel, time_share=0.5)) == [("trifle",), ("kernel",)]
    assert names(trifle, changed(kernel, time_share=0.51)) == [("kernel",), ("trifle",)]


def test_of_equally_sure_ones_the_confident_one_comes_first():
    assert names(found("doubtful", 0, 20, confidence="low"), found("sure", 0, 10)) == [("sure",), ("doubtful",)]


def test_another_recording_leads_only_if_it_is_about_most():
    look = found("look", 0, 79, records=1)
    first, second = listed(found("small", 2, 3), look)
    assert (first.findings, first.high_ms, first.records) == (("look",), None, True)
    assert second.then_high_ms == 98
    assert names(found("look", 0, 4, records=1), found("large", 20, 30)) == [("large",), ("look",)]


def test_another_recording_of_seldom_steps_does_not_lead_where_one_op_is_most_of_each():
    """It may save 14 % and is expected to save 2.8; the op takes 79 %, and half of that counts 0.4 times: 15.8 %."""
    look = found("look", 0, 14, records=1, confidence="low")
    op = found("op", 0, 0, saving=None, severity="medium", confidence="low", time_share=0.79)
    assert names(look, op) == [("op",), ("look",)]
    assert names(found("look", 0, 32, records=1), op) == [("look",), ("op",)]


def test_actions_in_sequence_add_up_and_never_beyond_the_step():
    first, second, third = listed(found("a", 40, 60), found("b", 20, 30), found("c", 5, 90))
    assert (first.then_low_ms, first.then_high_ms) == (40, 60)
    assert (second.then_low_ms, second.then_high_ms) == (10, 40)
    assert (third.then_low_ms, third.then_high_ms) == (0, 35)


def test_work_is_saved_once():
    """Kernels take 80 of 100 ms. TF32 leaves 20 to 40; full waves save a quarter of what is left: 5, not 20."""
    faster, fuller, ahead = found("faster", 40, 60), found("fuller", 8, 20), found("ahead", 4, 6)
    of_kernels = [
        changed(each, saving=changed(each.saving, parts={"compute": ms})) for each, ms in ((faster, 60), (fuller, 20))
    ]
    of_copies = changed(ahead, saving=changed(ahead.saving, of="memcpy", parts={"memcpy": 6}))
    first, second, third = listed(*of_kernels, of_copies, compute=80)
    assert (first.then_low_ms, first.then_high_ms) == (40, 60)
    assert (second.low_ms, second.high_ms) == (8, 20)
    assert (second.then_low_ms, second.then_high_ms) == (35, 58)
    assert (third.then_low_ms, third.then_high_ms) == (29, 54)


def test_no_step_gets_shorter_than_the_work_that_stays():
    """Ops take 11 of 100 ms. Waits of 89 go at best; a line that would take all ops is of the same time as they are."""
    waits, line = found("waits", 75, 89), found("line", 4, 11)
    waits = changed(waits, saving=changed(waits.saving, of="input", parts={"input": 79, "host_work": 10}))
    ops = [changed(line, saving=changed(line.saving, of="host_busy", parts={"host_ops": ms})) for ms in (11, 5)]
    alone, (both, less) = listed(ops[0], host_ops=11), [listed(waits, of, host_ops=11) for of in ops]
    assert (alone[0].then_low_ms, alone[0].then_high_ms) == (89, 96)
    assert (both[1].then_low_ms, both[1].then_high_ms) == (11, 25)
    assert (less[1].then_low_ms, less[1].then_high_ms) == (6, 21)
    faster = changed(line, saving=changed(line.saving, of="host_ops", parts={"host_ops": 11}))
    assert listed(waits, faster, host_ops=11)[1].then_low_ms == 0  # it is about them
    more = changed(line, saving=changed(line.saving, high_ms=30, high_share=0.3, of="sync_idle", parts={}))
    assert listed(waits, more, host_ops=11)[1].then_low_ms == 11


def test_a_run_knows_how_much_work_there_is():
    """The same two, in a step that is 80 ms of kernels and 20 ms of input."""
    savings = {"faster": 60.0, "fuller": 20.0}
    alone = {key: found(key, ms, ms) for key, ms in savings.items()}
    both = tuple(changed(of, saving=changed(of.saving, parts={"compute": savings[key]})) for key, of in alone.items())
    parts = tuple(
        Part(part=name, is_useful=name == "compute", ms=ms, share=ms / 100)
        for name, ms in {"compute": 80.0, "input": 20.0}.items()
    )
    run = changed(RESNET, findings=both, accounting=changed(RESNET.accounting, step_ms=STEP_MS, parts=parts))
    assert [action.then_low_ms for action in run.actions] == [40, 35]


def test_of_work_the_findings_of_one_action_save_in_all_counts():
    """Kernels take 80 of 100 ms. Compiling saves 40 + 20 of them; full waves then save a quarter of 12."""
    savings = (("a", 40, "Compile."), ("b", 20, "Compile."), ("waves", 12, None))
    of_kernels = [found(key, ms, ms, do) for key, ms, do in savings]
    of_kernels = [
        changed(each, saving=changed(each.saving, parts={"compute": each.saving.high_ms})) for each in of_kernels
    ]
    compiled, waves = listed(*of_kernels, compute=80)
    assert (compiled.findings, compiled.then_low_ms) == (("a", "b"), 40)
    assert (waves.then_low_ms, waves.then_high_ms) == (37, 37)


def after_input(key: str, low: float, high: float) -> Finding:
    """One that saves so many ms of 100 once batches come in time."""
    late = found(key, low, high)
    return changed(late, saving=changed(late.saving, after="input"))


def test_what_waits_for_the_loader_counts_after_it():
    loading = found("loading", 30, 40)
    loading = changed(loading, saving=changed(loading.saving, of="input"))
    first, second = listed(after_input("half", 45, 50), loading)
    assert (first.findings, second.findings, second.after) == (("loading",), ("half",), "input")
    assert (first.then_low_ms, first.then_high_ms) == (60, 70)
    assert (second.then_low_ms, second.then_high_ms) == (10, 25)


def test_together_no_step_is_longer_than_after_one_of_them():
    """The ranks of a job differ: a saving is of the step of 100 ms, another of one of 120 ms."""
    of_one = found("first", 10, 20)
    other = found("second", 0, 6)
    other = changed(other, saving=changed(other.saving, high_share=0.05))  # of 120 ms
    assert [action.then_high_ms for action in listed(of_one, other)] == [90, 90]


def test_in_sequence_each_saves_its_share_of_one_step():
    """Rank 0 was timed only with the profiler: 20 to 40 of its 200 ms are a tenth to a fifth of the 100 ms of rank 1.

    10 of them are of kernels, which take 50. Of the 40 ms that are left the other action saves 3.2 to 8, not 4 to 10.
    """
    recorded, own = found("recorded", 20, 40), found("own", 4, 10)
    recorded = changed(
        recorded,
        saving=changed(recorded.saving, low_share=0.1, high_share=0.2, parts={"compute": 20, "input": 20}),
        scope=Reach(workers=(0,), steps=(3,), told_of=0),
    )
    own = changed(own, saving=changed(own.saving, parts={"compute": 10}))
    first, second = listed(recorded, own, compute=50)
    assert (first.step_ms, first.low_ms, first.high_ms) == (200, 20, 40)
    assert (first.then_low_ms, first.then_high_ms) == (80, 90)
    assert (second.then_low_ms, second.then_high_ms) == (pytest.approx(72), pytest.approx(86.8))


def test_what_counts_after_something_that_may_save_nothing_may_save_nothing():
    loading = found("loading", 0, 40)
    loading = changed(loading, saving=changed(loading.saving, of="input"))
    second = next(action for action in listed(after_input("half", 45, 50), loading) if action.after)
    assert (second.then_low_ms, second.then_high_ms) == (10, 100)


def test_what_waits_for_a_loader_that_no_action_makes_faster_leaves_the_step_as_it_is():
    other, late = listed(after_input("half", 45, 50), found("other", 1, 2))
    assert (other.then_low_ms, late.then_low_ms, late.then_high_ms) == (98, 98, 99)


@pytest.mark.parametrize(("share", "most", "first"), [(0.3, 7, "kernel"), (0.3, 9, "small"), (0.51, 9, "kernel")])
def test_another_profiler_of_a_kernel_stands_before_a_small_saving(share: float, most: float, first: str):
    """Of less than half of the step before less than 5 % of it, else before less than half of its time."""
    small = found("small", 2, most)
    kernel = found("kernel", 0, 0, records=True, saving=None, time_share=share, severity="medium")
    assert names(small, kernel)[0] == (first,)
    assert names(found("much", 30, 40), found("small", 2, 7), kernel)[-1] == ("kernel",)


def test_two_recordings_with_one_command_are_asked_for_once():
    """What to record is said once where both say the same."""
    for to_do, both in (
        ("Record all ranks", "Record all ranks"),
        ("Find the lines", "Record all ranks; find the lines"),
    ):
        one = found("a", 0, 0, "Record all ranks: `advisor record -- COMMAND`.", records=True, saving=None)
        other = found("b", 0, 0, f"{to_do}: `advisor record -- COMMAND`. It shows more.", records=True, saving=None)
        (action,) = listed(one, other)
        assert action.do == f"{both}: `advisor record -- COMMAND`. It shows more."


def test_what_is_about_the_recording_or_small_without_a_saving_asks_for_nothing():
    few = found("few", 5, 8, of_recording=True, severity="low")
    assert listed(few, found("minor", 0, 0, saving=None, severity="low")) == ()
    (action,) = listed(found("idle", 0, 0, saving=None, severity="high"))
    assert (action.step_ms, action.high_ms) == (STEP_MS, None)
    assert not action.is_small


def test_a_middle_of_less_than_a_hundredth_of_the_step_is_small():
    assert [listed(found("a", 0.5, high))[0].is_small for high in (1.49, 1.51)] == [True, False]


def test_findings_stand_as_their_actions_do():
    doubt = found("doubt", 0, 0, saving=None, loss="unknown", severity="high", of_recording=True)
    few = found("few", 0, 0, saving=None, severity="low", of_recording=True)
    findings = (few, found("wide", 2, 60), found("narrow", 9, 10), doubt)
    ordered = in_order(findings, actions(findings, None, STEP_MS, {}))
    assert [finding.key for finding in ordered] == ["doubt", "narrow", "wide", "few"]


@pytest.mark.parametrize(
    ("cause", "used_share", "first"),
    [
        ({"saving": None, "severity": "medium", "time_share": 0.3}, 0.05, "cause"),
        ({"saving": None, "severity": "medium", "time_share": 0.3}, 0.049, "once"),
        ({"saving": None, "severity": "medium", "time_share": 0.29}, 0.05, "once"),
        ({"saving": None, "severity": "low", "time_share": 0.3, "loss": "compute"}, 0.05, "once"),
        ({"low": 0, "high": 30}, 0.05, "cause"),
        ({"low": 0, "high": 29}, 0.05, "once"),
        ({"low": 10, "high": 29}, 0.035, "cause"),
        ({"low": 10, "high": 29}, 0.034, "once"),  # of 1 % of the recording
    ],
)
def test_start_up_stands_behind_what_shortens_much_of_the_work(cause: dict[str, object], used_share: float, first: str):
    once = found("once", 0, 0, saving=None, loss="once", severity="medium")
    other = found("cause", cause.pop("low", 0), cause.pop("high", 0), **cause)
    done = actions([once, other], "cuda", STEP_MS, {}, used_share)
    assert done[0].findings == (first,)
    assert in_order([once, other], done)[0] == once  # the headline is about start-up all the same


def test_of_what_nobody_can_count_start_up_comes_first_where_the_work_is_little_of_a_recording():
    once, unknown = (found(name, 0, 0, saving=None, severity="medium") for name in ("once", "unknown"))
    findings = [once.model_copy(update={"loss": "once"}), unknown, found("sure", 10, 29)]
    orders = [[*chain(*(a.findings for a in actions(findings, "cuda", STEP_MS, {}, share)))] for share in (0.04, 0.06)]
    assert orders == [["sure", "once", "unknown"], ["sure", "unknown", "once"]]


def test_what_saves_next_to_nothing_of_a_recording_stands_behind_its_start():
    once, unknown = (found(name, 0, 0, saving=None, severity="medium") for name in ("once", "unknown"))
    findings = [once.model_copy(update={"loss": "once"}), unknown, found("sure", 20, 29)]
    assert [of.findings[0] for of in actions(findings, "cuda", STEP_MS, {}, 0.03)] == ["once", "unknown", "sure"]
