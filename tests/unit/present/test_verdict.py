from __future__ import annotations

import pytest

from advisor.model.clause import Missing, Note
from advisor.model.finding import Entry, Finding, Fix
from advisor.model.reason import Reason
from advisor.model.report import Run
from advisor.model.source import LeftOutStep
from advisor.present.next_recording import command, doubts, is_about_recording
from advisor.present.verdict import (
    beside,
    cause,
    headline,
    place,
    qualified,
    remedy,
    saving,
    title,
    verdict,
)
from advisor.vocabulary.parts import PARTS
from tests.render_samples import ACCOUNTING, INPUT_BOUND, RESNET, SAMPLES, THIRTY_TWO_BIT, changed, cpu_only, part
from tests.render_samples import saving as won

DASH = "\N{EN DASH}"
STEPS = RESNET.source.steps
EIGHT = SAMPLES["many-workers"].runs[0]


def test_a_saving_is_of_the_step_that_it_is_relative_to():
    assert saving(INPUT_BOUND, STEPS) == f"Fixing this saves 30{DASH}59 ms of each 178 ms step."
    other = changed(INPUT_BOUND, saving=changed(won(10, 20, "input", ""), low_share=0.05, high_share=0.1))
    assert saving(other, STEPS) == f"Fixing this saves 10{DASH}20 ms of each 200 ms step."


def test_a_saving_from_nothing_on_is_up_to():
    finding = changed(INPUT_BOUND, saving=won(0, 59.3, "input", ""))
    assert saving(finding, STEPS) == "Fixing this may save up to 59 ms of each 178 ms step, or nothing."
    barely = changed(INPUT_BOUND, saving=won(2, 59.3, "input", ""))
    assert saving(barely, STEPS) == "Fixing this may save up to 59 ms of each 178 ms step, or only 2 ms."
    run = changed(RESNET, findings=(changed(finding, says="Loaders take 59 ms of each step. They are few."),))
    assert headline(run).startswith("Loaders take 59 ms of each step. Fixing this may save up to 59 ms")


def test_a_recording_saves_nothing_by_itself():
    first, *others = INPUT_BOUND.fixes
    again = changed(first, records=True)
    finding = changed(INPUT_BOUND, fixes=(again, *others))
    assert saving(finding, STEPS) is None
    run = changed(RESNET, findings=(changed(finding, says="Loaders take 59 ms of each step. They are few."),))
    assert headline(run) == "Loaders take 59 ms of each step."
    assert saving(changed(finding, fixes=(first, again)), STEPS) == saving(INPUT_BOUND, STEPS)


def test_a_loss_that_is_known_is_told_though_another_recording_must_show_how_to_save_it():
    first, *others = INPUT_BOUND.fixes
    finding = changed(INPUT_BOUND, fixes=(changed(first, records=True), *others), saving=won(80, 100, "host_busy", ""))
    assert saving(finding, STEPS) == f"Without it, a step would be 80{DASH}100 ms shorter."
    assert saving(changed(finding, saving=won(79, 100, "host_busy", "")), STEPS) is None


def test_a_finding_about_one_rank_says_which_though_its_title_does_not_stand_there():
    scope = changed(EIGHT.findings[0].scope, workers=(2,), told_of=2)
    late = changed(INPUT_BOUND, scope=scope, saving=won(0, 59, "input", ""), says="The host is late.")
    assert headline(changed(EIGHT, findings=(late,))).startswith("Rank 2: The host is late.")
    named = changed(late, says="Rank 2 comes last: others wait.")
    assert headline(changed(EIGHT, findings=(named,))).startswith("Rank 2 comes last: others wait.")
    both = changed(late, scope=changed(scope, workers=(2, 3)))
    assert headline(changed(EIGHT, findings=(both,))).startswith("The host is late.")


@pytest.mark.parametrize(("step_ms", "is_named"), [(477.0, False), (478.0, True)])
def test_long_steps_that_were_timed_and_not_recorded_are_no_recorded_step(step_ms: float, *, is_named: bool):
    """Long steps add 53.4 ms to each step, and nine were recorded: 477 ms of one of these are not enough."""
    bar = changed(ACCOUNTING, parts=(part("compute", 0.7), changed(part("long_steps", 0.3), ms=53.0625)))
    long = LeftOutStep(worker=0, device=0, step=8, why=Reason(code="outlier", words=""), step_ms=step_ms)
    timed = changed(STEPS, worker=0, count=10, used=9, left_out=(long,), unprofiled_steps_ms=(50.0, 900.0))
    run = losing(0.3)
    run = changed(run, accounting=bar, source=changed(run.source, format="kineto", framework="pytorch", steps=timed))
    said = "No recorded step shows why: steps that were timed without the profiler are longer." in verdict(run)
    assert said != is_named
    assert ("--active 12" in command(run)) != is_named


def test_a_saving_of_nothing_says_so():
    finding = changed(INPUT_BOUND, saving=won(0, 0, "input", ""))
    assert saving(finding, STEPS) == "Fixing this alone saves nothing: something else takes as long."


def test_without_marked_steps_nothing_is_called_a_step():
    steps = cpu_only().runs[0].source.steps
    assert saving(INPUT_BOUND, steps) == f"Fixing this saves 30{DASH}59 ms of the 178 ms used."


def test_no_estimate_has_no_sentence():
    assert saving(changed(INPUT_BOUND, saving=None), STEPS) is None


def test_the_verdict_is_the_first_finding_and_its_saving():
    saves = f"Fixing this saves 30{DASH}59 ms of each 178 ms step."
    assert headline(RESNET) == f"The GPU waits for input data: 33 % of each step. {saves}"
    assert qualified(RESNET) == ""


def test_the_verdict_on_one_request_says_that_it_is_of_one():
    one = changed(RESNET, source=changed(RESNET.source, salvaged=(Reason.of(Note("one_run")),)))
    assert headline(one).startswith("In the one run recorded, the GPU waits for input data: 33 % of each step.")


WORKING = SAMPLES["healthy"].runs[0].accounting


@pytest.mark.parametrize(("share", "size"), [(0.21, ": 21 % of each step."), (None, ".")])
def test_a_verdict_names_the_one_share_of_the_step_that_its_finding_tells(share: float | None, size: str):
    run = changed(RESNET, findings=(changed(INPUT_BOUND, sentence_share=share), *RESNET.findings[1:]))
    assert headline(run).startswith(f"The GPU waits for input data{size} Fixing this")


def test_a_larger_loss_than_the_first_action_can_save_is_named_with_its_action():
    both = (changed(INPUT_BOUND, saving=won(20, 30, "input", "")), THIRTY_TWO_BIT)
    late = changed(THIRTY_TWO_BIT, saving=changed(won(10, 40, "launch_gap", ""), parts={"launch_gap": 40.0}))
    known = changed(
        ACCOUNTING, parts=(part("compute", 0.5), part("launch_gap", 0.3, late.key), part("input", 0.2, "input-bound"))
    )
    run = changed(RESNET, findings=(both[0], late), accounting=known)
    assert headline(run).endswith(" More time goes into late launches (30 %): action 2.")
    assert "More time" not in headline(changed(run, findings=both))


def unjudged(**reasons: str) -> Run:
    rules = [
        changed(RESNET.not_evaluable[1], rule=rule, missing={"m": Reason.of(Missing(why))})
        for rule, why in reasons.items()
    ]
    return changed(RESNET, findings=(), passed=("x",) * 9, not_evaluable=tuple(rules), accounting=WORKING)


def test_health_names_what_was_not_checked_and_how_short_a_step_could_become():
    run = unjudged(a="no_shapes", b="no_shapes", c="few samples")
    busy = (
        "the GPU is busy 97 % of each step. Not checked: faster kernels, padding, repeated work and another algorithm."
    )
    assert headline(run) == f"No problem found by 10 rules: {busy}"
    assert qualified(run) == "Outside of kernels, at most 5.3 ms of each 178 ms step (3 %) could be saved."
    small = changed(run, findings=(changed(INPUT_BOUND, saving=None, severity="low"),))
    assert headline(small).startswith("Nothing to fix: the GPU is busy 97 %")


def test_health_of_a_cpu_is_only_that_no_fault_is_known():
    """No roof judges its ops."""
    of_cpu = changed(ACCOUNTING, parts=(part("operators", 0.97), part("between", 0.03)))
    run = changed(unjudged(a="no_shapes"), accounting=of_cpu)
    assert headline(run).startswith(
        "No known fault was found: the CPU is busy 97 % of each step. Not checked: faster ops, padding,"
    )


def test_health_of_a_programs_own_kernels_is_only_that_no_fault_is_known():
    run = unjudged(a="no_shapes")
    own = changed(run, source=changed(run.source, framework="cuda"))
    assert headline(own).startswith(
        "No known fault was found: the GPU is busy 97 % of each step. Not checked: faster kernels, padding,"
    )


def test_that_there_is_no_data_is_left_to_the_reasons_that_say_why():
    (rule,) = unjudged(a="no_shapes").not_evaluable
    nothing, why = (Reason.of(Missing(code)) for code in ("nothing_to_compute_from", "no_step_used"))
    assert changed(rule, missing={"m": nothing, "n": why}).words == (why.words,)
    assert changed(rule, missing={"m": nothing}).words == (nothing.words,)


def losing(share: float, *, first_ms: float | None = None, reasons: tuple[Reason, ...] = ()) -> Run:
    """A run that loses so much of its 177.6 ms to communication that no finding explains."""
    lost, work = part("collective", share, reasons=reasons), part("compute", 1 - share)
    known = changed(ACCOUNTING, parts=(work, lost))
    first = () if first_ms is None else (changed(INPUT_BOUND, saving=won(0, first_ms, "compute", "")),)
    return changed(RESNET, accounting=known, findings=first, not_evaluable=())


def test_a_finding_about_more_of_the_step_than_a_loss_stands_above_it():
    """30 % are lost without a cause; one kernel, whose saving nobody knows, takes 40 %, or just as much."""
    kernel = changed(INPUT_BOUND, saving=None, severity="medium", time_share=0.4)
    run = losing(0.3)
    assert changed(run, findings=(kernel,)).outcome.code == "finding"
    assert changed(run, findings=(changed(kernel, time_share=0.3),)).outcome.code == "finding"
    assert changed(run, findings=(changed(kernel, time_share=0.29),)).outcome.code == "loss"
    assert changed(run, findings=(changed(kernel, severity="low"),)).outcome.code == "loss"


def test_a_large_loss_without_a_finding_is_the_verdict():
    run = losing(0.62, first_ms=1.0, reasons=(Reason.of(Missing("no_collective_sizes")),))
    assert (run.outcome.code, run.outcome.loss) == ("loss", "collective")
    assert verdict(run) == (
        "62 % of each step (110 ms) is communication that no computation overlaps. "
        "Cause unknown: the collectives have no sizes."
    )
    assert verdict(losing(0.62)).endswith("overlaps. No rule knows a cause of it.")
    assert headline(run) == "62 % of each step (110 ms) is communication that no computation overlaps."
    untold = changed(run, accounting=changed(run.accounting, parts=(part("compute", 0.38), part("unknown", 0.62))))
    assert verdict(untold) == "62 % of each step (110 ms) is idle time whose cause was not recorded."
    uneven = changed(run, accounting=changed(run.accounting, parts=(part("compute", 0.38), part("long_steps", 0.62))))
    assert headline(uneven) == "62 % of the mean step (110 ms) is the extra time of long steps."
    busy = changed(run, accounting=changed(run.accounting, parts=(part("compute", 0.38), part("other_programs", 0.62))))
    assert verdict(busy) == "62 % of each step (110 ms) is waiting for a CPU that other programs use."
    assert remedy(busy) == "Record on a quiet machine."
    assert [is_about_recording(each) for each in (run, losing(0.62), untold, busy)] == [True, True, True, False]
    asked = losing(0.62, reasons=(Reason.of(Missing("no_python_calls_recorder")),))  # its action has that command
    assert "`advisor record --stacks -- COMMAND`" in remedy(asked)
    assert not is_about_recording(asked)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.5, "During 50 % of it the host is in train.py(7): log (51 ms)."),
        (0.49, ""),
    ],
)
@pytest.mark.parametrize("code", ["between", "unknown"])
def test_a_list_of_what_the_host_ran_shows_how_much_of_a_loss_it_covers(code: str, share: float, words: str):
    row = {"open_calls": (Entry(name="train.py(7): log", ms=51),), "open_calls_part": share}
    known = changed(losing(0.62).accounting, parts=(part("operators", 0.38), part(code, 0.62)))
    silent = PARTS["between"].remedy if code == "between" else ""
    assert cause(known.parts[1], changed(losing(0.62), metrics={"run": (row,)}, accounting=known)) == words or silent


def test_of_a_loss_that_nothing_names_the_calls_around_it_are_told():
    row = {"open_calls": (), "open_calls_part": 0.0, "open_place": (Entry(name="before `cudaMemcpy`", share=0.8),)}
    known = changed(losing(0.62).accounting, parts=(part("operators", 0.38), part("unknown", 0.62)))
    run = changed(losing(0.62), metrics={"run": (row,)}, accounting=known)
    assert cause(known.parts[1], run) == (
        "What the host does then was not recorded. Most of it lies before `cudaMemcpy` (80 %)."
    )


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((Entry(name="train.py:9 `log(...)`", share=0.15),), "Largest lines: train.py:9 `log(...)` (15 %)."),
        ((), "It is between the ops of the training."),
    ],
)
def test_a_loss_whose_lines_were_sampled_is_told_with_them(lines: tuple[Entry, ...], words: str):
    lost = changed(part("between", 0.62), lines=lines)
    run = changed(losing(0.62), accounting=changed(ACCOUNTING, parts=(part("operators", 0.38), lost)))
    assert cause(lost, run) == words
    assert remedy(run) == ""


@pytest.mark.parametrize(("moves_ms", "waits"), [(55.0, True), (55.1, False), (None, False)])
def test_communication_that_moves_little_is_waiting(moves_ms: float | None, *, waits: bool):
    """110.1 of 177.6 ms are communication."""
    run = changed(losing(0.62), metrics={"run": ({"exposed_transfer_ms": moves_ms},)})
    told = "At most 55 ms of it moves data; the rest is waiting for other ranks."
    assert (cause(run.accounting.parts[1], run) == told) == waits


def test_a_finding_without_a_saving_is_told_by_its_numbers_and_not_by_its_title():
    first = changed(INPUT_BOUND, title="The GPU is idle most of the time", says="It idles 62 %. Why?", saving=None)
    assert headline(changed(losing(0.62), findings=(first,), accounting=None)) == "It idles 62 %."


@pytest.mark.parametrize(
    ("share", "first_ms", "code"),
    [
        (0.101, None, "loss"),
        (0.1, None, "nothing"),  # nine tenths are useful work
        (0.2, 35.5, "loss"),  # of 177.6 ms: more than the finding saves
        (0.2, 35.52, "finding"),
    ],
)
def test_health_takes_nine_tenths_of_useful_work(share: float, first_ms: float | None, code: str):
    assert losing(share, first_ms=first_ms).outcome.code == code


@pytest.mark.parametrize(("start_up", "code"), [(0.4, "finding"), (0.2, "loss")])
def test_a_larger_loss_that_a_finding_explains_without_a_saving_goes_first(start_up: float, code: str):
    run = losing(0.3)
    once = changed(INPUT_BOUND, rule="one-time-work", saving=None, loss="once", severity="low")
    known = changed(run.accounting, parts=(*run.accounting.parts, part("start_up", start_up, once.rule)))
    assert changed(run, accounting=known, findings=(once,)).outcome.code == code


def test_a_finding_whose_repair_saves_nothing_is_no_verdict():
    run, of = losing(0.05), changed(INPUT_BOUND, loss="long_steps", severity="medium")
    saved = [won(0, high, "outliers", "") for high in (0, 2)]
    codes = [changed(run, findings=(changed(of, saving=each),)).outcome.code for each in saved]
    assert codes == ["minor", "finding"]


ONCE = changed(
    INPUT_BOUND,
    key="one-time-work",
    rule="one-time-work",
    severity="medium",
    saving=None,
    loss="once",
    says="9 s of the 10 s recorded (90 %) are start-up. No later step pays for it.",
    fixes=(Fix(framework="any", do="Start the program less often."),),
)


def mostly_once(*others: Finding, lost: float = 0.3, recorded_ms: float = 10_000, used: int = 1) -> Run:
    """A recording of 10 s that is start-up but for 177.6 ms, of which so much is communication."""
    steps = changed(STEPS, marked=used > 1, used=used, step_mean_ms=177.6)
    pace = {"recorded_ms": recorded_ms, "used_ms": 177.6 * used}
    run = changed(losing(lost), findings=(ONCE, *others), metrics={"worker": (pace,)})
    return changed(run, source=changed(run.source, steps=steps))


def test_what_happens_once_is_the_verdict_with_what_an_action_saves_of_the_rest():
    start = "9 s of the 10 s recorded (90 %) are start-up."
    first = changed(INPUT_BOUND, saving=won(120, 150, "input", ""))
    fault = (
        f"The GPU waits for input data: 33 % of the time used. Fixing this saves 120{DASH}150 ms of the 178 ms used."
    )
    assert headline(mostly_once(first)) == f"{fault} {start}"
    assert headline(mostly_once(changed(first, saving=won(17, 17.7, "input", "")))) == start
    assert headline(mostly_once(lost=0.62)) == start


def test_what_is_little_of_a_recording_counts_all_its_steps():
    """1 % of 20 s is 200 ms, which 20 of 10 steps are and of 9 are not; it has a place below the start all the same."""
    known = changed(INPUT_BOUND, saving=won(20, 21, "input", ""))
    listed = [mostly_once(known, lost=0.02, recorded_ms=20_000, used=used).listed for used in (10, 9)]
    orders = [["input-bound", "one-time-work"], ["one-time-work", "input-bound"]]
    assert [[of.findings[0] for of in each] for each in listed] == orders


def test_small_losses_are_the_verdict_only_where_nothing_else_is():
    """18 % lost in three parts: the largest is named, unless a finding is about one."""
    lost = [part("compute", 0.82), part("memcpy", 0.07), part("sync", 0.06), part("queued", 0.05)]
    run = changed(losing(0.2), accounting=changed(ACCOUNTING, parts=tuple(lost)))
    assert run.outcome.loss == "memcpy"
    assert changed(run, findings=(changed(INPUT_BOUND, saving=None, severity="medium"),)).outcome.code == "finding"
    assert changed(run, findings=(changed(INPUT_BOUND, saving=None, severity="low"),)).outcome.loss == "memcpy"


def test_a_part_of_another_version_stands_for_itself():
    known = losing(0.62).accounting
    renamed = [changed(one, part="warp_drive") if not one.is_useful else one for one in known.parts]
    run = changed(losing(0.62), accounting=changed(known, parts=tuple(renamed)))
    assert headline(run).startswith("62 % of each step (110 ms) is warp_drive.")


def test_most_rules_without_an_answer_are_no_verdict_on_the_job():
    run = changed(unjudged(a="no_shapes", b="no_shapes"), passed=(), suppressed=())
    assert headline(run) == "Too little was recorded to judge this job: recorded without `record_shapes=True`."
    empty = changed(run, source=changed(run.source, steps=changed(STEPS, used=0)))
    assert qualified(empty) == "None of its steps is complete."


def test_the_title_names_the_one_rank_or_host_that_a_finding_is_about():
    alone = changed(EIGHT.findings[0], scope=changed(EIGHT.findings[0].scope, workers=(3,)))
    assert title(alone, EIGHT) == f"{alone.title} (rank 3)"
    hosts = changed(EIGHT, source=changed(EIGHT.source, format="xplane"))
    assert title(alone, hosts) == f"{alone.title} (rank3)"  # the name of its file
    assert title(changed(alone, scope=changed(alone.scope, workers=(1, 3))), EIGHT) == alone.title


def test_the_title_names_the_line_that_a_finding_is_about():
    assert (
        title(INPUT_BOUND, RESNET) == INPUT_BOUND.title
    )  # an op that all places have in common says less than the numbers
    logs = changed(THIRTY_TWO_BIT, culprit="train.py:41 `log(...)`")
    assert title(logs, RESNET) == f"{logs.title} (train.py:41 `log(...)`)"


def test_a_finding_that_says_what_a_line_takes_is_the_headline_itself():
    line = "train.py:41 `log(...)`"
    logs = changed(INPUT_BOUND, culprit=line, says=f"{line} in `main` takes 41 % of each step (73 ms): it logs. More.")
    claim = headline(changed(RESNET, findings=(logs,)))
    assert claim.startswith(f"{line} in `main` takes 41 % of each step (73 ms): it logs. Fixing this saves ")


def test_what_takes_a_small_part_of_a_loss_is_no_cause_of_it():
    def says(share: float) -> str:
        return verdict(losing(0.62, reasons=(Reason.of(Missing("silent_host", share=share)),)))

    assert "Cause unknown: nothing was recorded on the host in 31 % of the time" in says(0.31)
    assert says(0.3).endswith("No rule knows a cause of it.")


def test_the_program_s_own_range_that_holds_most_of_a_loss_is_named():
    run = losing(0.62)
    lost = changed(run.accounting.parts[1], range="scores `x`", range_share=0.9)
    run = changed(run, accounting=changed(run.accounting, parts=(run.accounting.parts[0], lost)))
    assert "overlaps. 90 % of that lies in the range `scores 'x'`. No rule knows" in verdict(run)
    alone = changed(lost, reasons=(Reason.of(Missing("range_alone", share=0.5, range="scores `x`")),))
    assert place(alone) == ""  # the reason names it


def test_the_verdict_on_a_fragment_says_how_little_was_recorded():
    note = Reason.of(Note("fragment", kernels=21.0, host=705.0))
    run = changed(RESNET, source=changed(RESNET.source, salvaged=(note,)))
    assert headline(run) == "Kernels were recorded in only 21 ms of 705 ms: all numbers are of those."
    none = changed(run, source=changed(run.source, salvaged=(Reason.of(Note("fragment", kernels=0.0, host=705.0)),)))
    assert headline(none) == headline(RESNET)


def test_what_is_left_out_stands_behind_the_finding_about_the_rest():
    rest = {"left_out_share": 0.94, "left_out_parts": (Entry(name="the host alone after the last work", ms=3770),)}
    of_rest = changed(RESNET, metrics=RESNET.metrics | {"worker": ({**rest, "worker": 0},)})
    assert headline(of_rest) == headline(RESNET)
    steps = "step 7 (not recorded from its beginning) and step 14 (412 ms long)"
    rest_of_it = "94 % of the recording is left out: the host alone after the last work (3.77 s)"
    assert verdict(of_rest).endswith(f"{rest_of_it}, {steps}.")
    once = changed(of_rest, findings=(changed(ONCE, title="Start-up"), *RESNET.findings))
    assert beside(once)[1].endswith(f"Also left out: the host alone after the last work (3.77 s), {steps}.")
    alone = changed(once, findings=(changed(ONCE, rule="host-alone"), *RESNET.findings))
    assert beside(alone)[1].endswith(f"Also left out: {steps}.")


def test_start_up_outside_of_the_bar_and_in_it_are_two():
    """0.48 s before the time used, and 5 % of that itself."""
    parts = (Entry(name="start-up that each run pays once", ms=480), Entry(name="last step", ms=9))
    rest = {"left_out_share": 0.4, "left_out_parts": parts}
    known = changed(ACCOUNTING, parts=(part("compute", 0.95), part("start_up", 0.05)))
    source = changed(RESNET.source, steps=changed(RESNET.source.steps, left_out=()))
    metrics = RESNET.metrics | {"worker": ({**rest, "worker": 0},)}
    run = changed(RESNET, source=source, accounting=known, metrics=metrics)
    assert beside(run)[1].endswith("last step (9 ms). Another 5 % of each step is start-up too.")
    once = changed(run, findings=(changed(ONCE, title="Start-up"), *RESNET.findings))
    assert beside(once)[1] == (
        "The bar shows only a step. 5 % of that is start-up too. Also left out: last step (9 ms)."
    )
    alone = changed(once, findings=(changed(ONCE, rule="host-alone"), *RESNET.findings))
    assert beside(alone)[1].endswith("Also left out: start-up that each run pays once (480 ms).")


def test_that_no_gpu_was_recorded_stands_before_a_finding_without_a_number():
    lacks = {"device_ops": Reason.of(Missing("no_gpu_activity"))}
    run = changed(RESNET, source=changed(RESNET.source, lacks=lacks))
    first = "No GPU activity was recorded, because the job ran on the CPU or ProfilerActivity.CUDA was not given."
    assert headline(run) == headline(RESNET)
    assert headline(changed(run, findings=(changed(INPUT_BOUND, saving=None),))).startswith(first)
    lacking = changed(INPUT_BOUND, saving=None, loss="unknown")
    assert not headline(changed(run, findings=(lacking,))).startswith(first)
    timed = changed(run.source, steps=changed(run.source.steps, unprofiled_ms=178.0))  # by `advisor record`
    assert headline(changed(run, source=timed, findings=(changed(INPUT_BOUND, saving=None),))).startswith("33 %")


def test_a_saving_from_nothing_to_all_of_the_step_may_be_nothing():
    all_of_it = changed(INPUT_BOUND, saving=changed(won(0, 177.6, "input", ""), low_share=0.0, high_share=1.0))
    assert saving(all_of_it, STEPS) == "Fixing this may save up to 178 ms of each 178 ms step, or nothing."
    most = changed(INPUT_BOUND, saving=changed(won(40, 177.6, "input", ""), low_share=0.225, high_share=1.0))
    assert saving(most, STEPS) == "Fixing this saves 40\N{EN DASH}178 ms of each 178 ms step."


def test_a_doubt_that_several_ranks_give_is_told_once():
    notes = tuple(Reason.of(Note("busy_machine", delay=delay_ms)) for delay_ms in (395.0, 472.0))
    (says,) = doubts(changed(RESNET, source=changed(RESNET.source, notes=notes), findings=()))
    assert says == "The machine was busy, so the host was slower than it need be."
