"""The judge on hand-made metrics: outcomes, causes above symptoms, savings shared out, ranking."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import metrics
from advisor.analysis.device.selection import select_steps
from advisor.metrics.evaluate import Measurements, pace_of
from advisor.model.clause import Missing, Note
from advisor.model.profile import Profile, table
from advisor.model.reason import Reason
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import Suppression, judge
from advisor.rules.rule_file import Rule, load
from advisor.rules.rule_form import About
from advisor.system.resources import rules_folder
from tests.effort import examples


def rule(name, when="input_share > 0.1", **changes):
    form = {
        "id": name,
        "title": name.title(),
        "when": when,
        **({} if "saving" in changes else {"severity": {"medium": True}}),
        "confidence": "high",
        "says": "{{ input_share | percent }} of {{ each_step }}",
        "why": "because",
        "fixes": [{"for": "any", "do": "less"}],
        "references": [{"what": "x", "where": "y"}],
        "cases": [],
    }
    return Rule.model_validate(form | changes)


def saving(low, high, of="input"):
    return {"saving": {"of": of, "low_ms": low, "high_ms": high, "method": "m"}}


def measured(*rows, **reasons):
    """Measurements with these rows of worker metrics, 100 ms a step."""
    workers = {"worker": list(range(len(rows)))}
    steps = {
        "worker": workers["worker"],
        "device": 0,
        "step": 1,
        "start_ns": 0,
        "dur_ns": 100,
        "host_start_ns": 0,
        "host_dur_ns": 9,
    }
    tables = {"workers": table("workers", {**workers, "framework": "pytorch"}), "steps": table("steps", steps)}
    selection = select_steps(Profile.of(tables, format="kineto"))
    base = {"device": 0, "step_mean_ms": 100.0}
    schema = {"worker": pl.Int32, "device": pl.Int32, **metrics.dtypes()}
    frame = pl.DataFrame([{"worker": i, **base, **row} for i, row in enumerate(rows)], schema=schema)
    return Measurements(selection, {"worker": frame, "device": frame, "run": paced(frame)}, reasons)


def paced(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("worker") == pace_of(frame))


def judged(found, *rules, silenced=None):
    return judge(measured_run(found), {r.id: r for r in rules}, silenced or {})


def savings(judgement):
    return {f.rule: (f.saving.low_ms, f.saving.high_ms) for f in judgement.findings if f.saving}


def test_a_rule_that_holds_is_a_finding_with_its_sentence_and_evidence():
    finding = judged(measured({"input_share": 0.5}), rule("a")).findings[0]
    assert (finding.says, finding.severity) == ("50 % of each step", "medium")
    assert [(e.metric, e.value, e.limit) for e in finding.evidence] == [("input_share", 0.5, 0.1)]


@pytest.mark.parametrize(("name", "called"), [("TPU v6 Lite", "device"), ("NVIDIA H100", "GPU"), (None, "GPU")])
def test_what_is_no_gpu_is_not_called_one(name, called):
    words = {"title": "Copies to the {{ device }}", "says": "the {{ device }} copies from {{ device_name }}"}
    cause, beneath = rule("a", explains=["b"], **words), rule("b", **words)
    finding = judged(measured({"input_share": 0.5, "device_name": name}), cause, beneath).findings[0]
    for one in (finding, *finding.symptoms):
        assert one.title == f"Copies to the {called}"
        assert one.says.startswith(f"the {called} copies")
    assert len(finding.symptoms) == 1


@pytest.mark.parametrize(("second", "told_of"), [(99.5, 0), (110.0, 0), (199.0, 0), (201.0, 1)])
def test_what_all_workers_win_is_told_of_the_one_whose_numbers_the_report_shows(second, told_of):
    rows = [
        {"input_share": 0.5, "step_mean_ms": step, "input_gain_ms": won} for step, won in [(201, 100), (200, second)]
    ]
    gain = {"saving": {"of": "input", "low_ms": 1.0, "high_ms": "input_gain_ms", "method": "m"}}
    assert judged(measured(*rows), rule("a", **gain)).findings[0].scope.told_of == told_of


def test_of_communication_the_most_that_a_rank_saves_may_be_waiting_for_another():
    rows = [{"input_share": 0.5, "step_mean_ms": ms, "input_gain_ms": won} for ms, won in [(201, 10.0), (200, 90.0)]]
    gain = {"saving": {"of": "collective", "low_ms": 1.0, "high_ms": "input_gain_ms", "method": "m"}}
    assert judged(measured(*rows), rule("a", **gain)).findings[0].scope.told_of == 0


def test_a_rule_that_does_not_hold_has_passed():
    assert judged(measured({"input_share": 0.1}), rule("a")).passed == ("a",)


def test_a_rule_that_cannot_be_put_in_words_leaves_the_others_as_they_are():
    wrong = rule("a", says="{{ (step_mean_ms / loading_ms) | ms }}")
    outcome = judged(measured({"input_share": 0.5}), wrong, rule("b"))
    assert [finding.rule for finding in outcome.findings] == ["b"]
    why = outcome.not_evaluable[0].missing["a"]
    assert "the rule cannot be put in words: a: says: unsupported operand" in why.words


def test_an_unknown_metric_makes_it_not_evaluable_and_says_why():
    missing = Missing("no_host_activity")
    outcome = judged(measured({}, input_share=missing), rule("a", "input_share > 0.1 OR step_mean_ms > 1"))
    assert outcome.not_evaluable[0].missing == {"input_share": Reason.of(missing)}
    assert not outcome.findings


def test_a_worker_without_a_step_that_can_be_used_leaves_the_others_judged():
    for rows, outcome in [(({"input_share": 0.05}, {}), "passed"), (({}, {}), "not_evaluable")]:
        run = replace(measured_run(measured(*rows)), used_steps={0: (1,), 1: ()})
        assert len(getattr(judge(run, {"a": rule("a")}, {}), outcome)) == 1
    assert judged(measured({"input_share": 0.05}, {}), rule("a")).not_evaluable  # of a worker with steps


def test_one_worker_that_fires_outweighs_one_that_cannot_be_judged():
    outcome = judged(measured({}, {"input_share": 0.5}), rule("a"))
    assert outcome.findings[0].scope.workers == (1,)


def test_elsewhere_a_rule_is_not_applicable():
    other = rule("a", applies={"framework": ["jax"]})
    assert judged(measured({"input_share": 0.5}), other).not_applicable == ("a",)


@pytest.mark.parametrize(("name", "applies"), [("TPU v5 lite", False), ("NVIDIA L4", True), (None, True)])
def test_what_only_gpus_have_is_not_asked_of_a_tpu(name, applies):
    judgement = judged(measured({"input_share": 0.5, "device_name": name}), rule("a", applies={"tpu": False}))
    assert (judgement.not_applicable == ()) is applies


@pytest.mark.parametrize(("main_sleep_share", "applies"), [(0.5, True), (0.0, True), (None, False)])
def test_a_rule_may_be_silent_where_a_metric_is_unknown(main_sleep_share, applies):
    rows = {"input_share": 0.5, "main_sleep_share": main_sleep_share}
    judgement = judged(measured(rows), rule("a", applies={"known": ["main_sleep_share"]}))
    assert (judgement.not_applicable == ()) is applies
    assert not judgement.not_evaluable


def test_a_suppressed_rule_is_told_with_its_reason():
    outcome = judged(measured({"input_share": 0.5}), rule("a"), silenced={"a": Suppression("known", "2027-01-01")})
    assert not outcome.findings
    assert (outcome.suppressed[0].rule, outcome.suppressed[0].reason) == ("a", "known")


def test_a_rule_of_whose_claim_next_to_nothing_is_left_stands_under_what_took_it():
    found = measured({"input_share": 0.3})
    finding, *more = judged(found, rule("a", **saving(10, 29.9)), rule("b", **saving(20, 25))).findings
    assert (finding.rule, [s.rule for s in finding.symptoms], [f.rule for f in more]) == ("b", [], ["a"])
    finding, *more = judged(found, rule("a", **saving(10, 26)), rule("b", **saving(20, 29.9))).findings
    assert (finding.rule, [s.rule for s in finding.symptoms], more) == ("b", ["a"], [])


@pytest.mark.parametrize(
    ("workload", "phases", "outcome"),
    [
        ("serving", "decode, prefill", "fired"),
        ("serving", "prefill", "not_applicable"),
        ("serving", None, "fired"),  # it may decode
        ("inference", None, "not_applicable"),
        ("inference", "decode", "fired"),
    ],
)
def test_a_rule_about_a_phase_needs_steps_of_it(workload: str, phases: str | None, outcome: str):
    of = rule("a", applies={"workload": ["inference", "serving"], "phase": ["decode"]})
    result = judged(measured({"input_share": 0.5, "workload": workload, "phases": phases}), of)
    assert [f.phase for f in result.findings] == (["decode"] if outcome == "fired" else [])
    assert result.not_applicable == (() if outcome == "fired" else ("a",))


def test_what_two_rules_claim_from_one_part_never_exceeds_it():
    found = measured({"input_share": 0.3})
    run = judged(found, rule("a", **saving(10, 20)), rule("b", **saving(10, 25)))
    assert savings(run) == {"b": (10.0, 25.0), "a": (2.5, 5.0)}  # 30 ms in all; the larger takes first
    assert {f.rule: f.saving.shared_ms for f in run.findings} == {"b": 0.0, "a": 15.0}
    assert {f.rule: f.saving.shared_low_ms for f in run.findings} == {"b": 0.0, "a": 7.5}


def test_a_part_that_is_smaller_than_a_claim_is_no_claim_of_others():
    (finding,) = judged(measured({"input_share": 0.3}), rule("a", **saving(10, 40))).findings
    assert (finding.saving.high_ms, finding.saving.shared_ms, finding.saving.shared_low_ms) == (30.0, 0.0, 0.0)


def test_all_that_is_no_input_saves_together_what_the_loader_lets_through():
    """80 ms a step without the profiler, in which the loader takes 64: 16 are left, less 6.4 that are not sure."""
    rules = [rule("a", **saving(20, 30, "host_ops")), rule("b", **saving(9, 12, "compute")), rule("c", **saving(1, 50))]
    row = {"input_share": 0.5, "host_ops_share": 0.5, "compute_share": 0.1, "unprofiled_step_ms": 80.0}
    row |= {f"unprofiled_{pool}_part": 0.8 for pool in ("input", "host_ops", "compute")}
    run = judged(measured(row | {"loader_slack_part": 0.2}), *rules)
    won = {finding.rule: finding.saving for finding in run.findings}
    assert (won["a"].low_ms, won["a"].high_ms) == pytest.approx((9.6, 16))
    assert (won["b"].high_ms, won["b"].shared_ms) == pytest.approx((0, 8))  # of 12 recorded, 10 of which are there
    assert won["c"].high_ms == 40
    loads = rule("a", saving=saving(20, 30, "host_ops")["saving"] | {"then_from": ["input"]})
    (shorter,) = judged(measured(row | {"loader_slack_part": 0.2}), loads).findings
    assert shorter.saving.high_ms == pytest.approx(24)  # of work that loading is a part of: that gets shorter itself
    free = judged(measured(row | {"loader_slack_part": 1.0}), *rules)
    assert {f.rule: f.saving.high_ms for f in free.findings} == pytest.approx({"a": 24, "b": 8, "c": 40})


def test_what_takes_a_part_of_the_wait_away_saves_before_the_loader_keeps_up():
    """Of 30 ms that a lost core costs, 20 are the wait for a batch; of 10 ms of kernels none is."""
    of_both = saving(20, 30, "host_ops")["saving"] | {"then_from": ["input"]}
    lost = rule("lost", saving=of_both)
    row = {"input_share": 0.2, "host_ops_share": 0.1, "compute_share": 0.1, "awaited_part": "input"}
    run = judged(measured(row), lost, rule("kernels", **saving(5, 10, "compute")))
    assert {finding.rule: finding.saving.after for finding in run.findings} == {"lost": None, "kernels": "input"}


def test_the_slowest_rank_sets_what_the_job_saves():
    # by themselves 100, 80 and 70 ms; without their waits for input 60, 75 and 30: the job goes from 100 to 75
    rows = [(100.0, 0.5, 40.0), (80.0, 0.1, 5.0), (70.0, 0.6, 40.0)]
    found = measured(*({"own_step_ms": o, "input_share": i, "input_gain_ms": g} for o, i, g in rows))
    (finding,) = judged(found, rule("a", **saving("0", "input_gain_ms"))).findings
    assert finding.saving.high_ms == pytest.approx(25.0)
    assert finding.scope.told_of == 0  # the worst is rank 2, but nobody waits for it


def test_a_saving_that_another_rank_limits_is_estimated():
    # without its wait the slower rank takes 60 ms by itself: the other one's 80 limit what the job saves
    for slower, other, confidence in ((100.0, 80.0, "medium"), (100.0, 50.0, "high")):
        rows = [(slower, 0.5, 40.0), (other, 0.0, 0.0)]
        found = measured(*({"own_step_ms": o, "input_share": i, "input_gain_ms": g} for o, i, g in rows))
        (finding,) = judged(found, rule("a", confidence="high", **saving("input_gain_ms", "input_gain_ms"))).findings
        assert finding.confidence == confidence


def test_a_rank_that_nobody_waits_for_saves_the_job_nothing():
    rows = [(100.0, 0.0, 0.0), (60.0, 0.6, 30.0)]
    found = measured(*({"own_step_ms": o, "input_share": i, "input_gain_ms": g} for o, i, g in rows))
    (finding,) = judged(found, rule("a", **saving("0", "input_gain_ms"))).findings
    assert finding.saving.high_ms == 0.0
    assert finding.scope.told_of == 1


def uneven(*gains, own=(100.0, 60.0, 60.0), steps_enough=True, more=None):
    """Three ranks, of which the first is 40 ms late; what each wins without its waits for input."""
    base = {"input_share": 0.5, "skew_share": 0.4, "persistent_skew_ms": 40.0 if steps_enough else None} | (more or {})
    return measured(*({**base, "own_whole_step_ms": o, "input_gain_ms": g} for o, g in zip(own, gains, strict=True)))


LATE = rule("late", scope="run", **saving(0, 40, "skew"))
LOADER = rule("loader", explains=["late"], **saving(0, "input_gain_ms"))


def test_what_evens_out_the_ranks_explains_what_they_lose_to_each_other():
    (finding,) = judged(uneven(40.0, 0.0, 0.0), LOADER, LATE).findings
    assert (finding.rule, finding.saving.high_ms) == ("loader", 40.0)
    assert [s.rule for s in finding.symptoms] == ["late"]


def test_what_shortens_all_ranks_alike_does_not():
    assert savings(judged(uneven(30.0, 30.0, 30.0), LOADER, LATE)) == {"late": (0.0, 40.0), "loader": (0.0, 30.0)}


def test_what_evens_them_out_in_part_leaves_the_rest():
    assert savings(judged(uneven(10.0, 0.0, 0.0), LOADER, LATE)) == {"late": (0.0, 30.0), "loader": (0.0, 10.0)}


def test_long_steps_of_a_rank_leave_the_lateness_that_lasts():
    """Fixing them saves 40 of 100 ms of the mean step of a rank that is not late in the others."""
    outliers = rule("outliers", explains=["late"], **saving(0, "input_gain_ms", "outliers"))
    found = uneven(40.0, 0.0, 0.0, more={"outliers_share": 0.4})
    assert savings(judged(found, outliers, LATE)) == {"late": (0.0, 40.0), "outliers": (0.0, 40.0)}


def test_one_step_tells_no_cause_of_lateness():
    found = uneven(40.0, 0.0, 0.0, steps_enough=False)
    assert savings(judged(found, LOADER, LATE)) == {"late": (0.0, 40.0), "loader": (0.0, 40.0)}


def test_what_ranks_lose_to_each_other_is_lost_once_whichever_rank_a_rule_is_told_of():
    other = rule("other", **saving(0, 30, "skew"))
    found = judged(uneven(0.0, 0.0, 0.0), LATE, other)
    assert savings(found) == {"late": (0.0, 40.0)}
    assert [symptom.rule for symptom in found.findings[0].symptoms] == ["other"]


def test_a_finding_on_the_job_holds_for_all_its_workers():
    (finding,) = judged(uneven(0.0, 0.0, 0.0), LATE).findings
    assert finding.scope.workers == (0, 1, 2)


def test_a_finding_on_the_job_that_is_about_one_rank_holds_for_that():
    about = LATE.model_copy(update={"about": About(rank="late_rank_alone")})
    rows = [{"input_share": 0.5, "late_rank_alone": 2}] * 3
    assert judged(measured(*rows), about).findings[0].scope.workers == (2,)
    assert judged(measured(*({"input_share": 0.5} for _ in rows)), about).findings[0].scope.workers == (0, 1, 2)


def test_the_worst_workers_saving_counts():
    found = measured({"input_share": 0.2, "input_gain_ms": 5.0}, {"input_share": 0.4, "input_gain_ms": 30.0})
    assert savings(judged(found, rule("a", **saving("input_gain_ms / 2", "input_gain_ms")))) == {"a": (15.0, 30.0)}


@pytest.mark.parametrize(("idle", "of"), [(0.2, "launch_gap"), (0.0, "host_work")])
def test_a_saving_is_told_of_the_first_part_that_has_any_time(idle, of):
    """A job without a GPU waits for no launches."""
    found = measured({"input_share": 0.5, "launch_gap_share": idle, "host_work_share": 0.6})
    parts = {"of": "launch_gap", "then_from": ("host_work",), "low_ms": 5, "high_ms": 9, "method": "m"}
    assert judged(found, rule("a", saving=parts)).findings[0].saving.of == of


def test_a_saving_that_cannot_be_told_is_none():
    finding = judged(measured({"input_share": 0.5}), rule("a", **saving(1, "input_gain_ms"))).findings[0]
    assert finding.saving is None


def test_the_fix_whose_condition_holds_comes_first_and_one_whose_does_not_is_left_out():
    fixes = [
        {"for": "any", "do": "not here", "when": "input_share > 0.9"},
        {"for": "any", "do": "unknown", "when": "device_name = 'A' OR input_share > 0"},
        {"for": "any", "do": "always"},
        {"for": "jax", "do": "elsewhere", "when": "input_share > 0.1"},
        {"for": "any", "do": "here", "when": "input_share BETWEEN 0.4 AND 0.6"},
    ]
    finding = judged(measured({"input_share": 0.5}), rule("a", fixes=fixes)).findings[0]
    assert [fix.do for fix in finding.fixes] == ["here", "always", "unknown"]
    finding = judged(measured({"input_share": 0.5}), rule("a", fixes=fixes[:1])).findings[0]
    assert finding.fixes == ()  # a fix of another cause is worse than none


@pytest.mark.parametrize(("workers_needed", "method"), [(2, "By processes."), (0, "By all fixes.")])
def test_a_saving_is_told_by_the_method_of_the_first_fix_where_that_has_its_own(workers_needed, method):
    fixes = [
        {"for": "any", "do": "workers", "when": "workers_needed > 1", "method": "By processes."},
        {"for": "any", "do": "less"},
    ]
    how = {"saving": {"of": "input", "low_ms": 1, "high_ms": 2, "method": "By all fixes."}, "fixes": fixes}
    (finding,) = judged(measured({"input_share": 0.5, "workers_needed": workers_needed}), rule("a", **how)).findings
    assert finding.saving.method == method


@pytest.mark.parametrize(("share", "first"), [(0.6, "between"), (0.4, "within")])
def test_time_that_no_saving_reckons_with_comes_first_where_it_is_most_of_it(share, first):
    between = rule(
        "between",
        "idle_share > 0.1",
        severity={"high": "idle_share > 0.5", "medium": True},
        says="{{ idle_share | percent }}",
        about={"loss": "unknown"},
    )
    found = measured({"idle_share": share, "input_share": 0.9})
    within = rule("within", **saving(40, 90))
    assert judged(found, between, within).findings[0].rule == first


def test_that_a_recording_shows_nothing_stands_behind_what_most_of_it_is_and_before_savings():
    small = rule("few", about={"loss": "unknown", "recording": True}, severity={"high": True})
    once, failed = (
        rule("once", about={"loss": "once"}),
        rule("zero", about={"loss": "unknown"}, severity={"high": True}),
    )
    rows = measured({"input_share": 0.5})
    found = judged(rows, small, once, failed, rule("gain", **saving(30, 50))).findings
    assert [finding.rule for finding in found] == ["zero", "once", "few", "gain"]


def test_what_others_leave_nothing_of_stands_beneath_the_first_that_took_from_the_same_part():
    taking, left = rule("taking", **saving(10, 40)), rule("left", **saving(1, 5))
    elsewhere = rule("elsewhere", **saving(1, 45, "memcpy"))
    found = judged(measured({"input_share": 0.4, "memcpy_share": 0.5}), taking, left, elsewhere)
    assert [(f.rule, [s.rule for s in f.symptoms]) for f in found.findings] == [("taking", ["left"]), ("elsewhere", [])]


def test_what_claims_nothing_stands_by_itself():
    found = judged(measured({"input_share": 0.4}), rule("taking", **saving(10, 40)), rule("left", **saving(0, 0)))
    assert [f.rule for f in found.findings] == ["taking", "left"]


def test_a_fix_that_is_made_already_is_left_out():
    fixes = [
        {"for": "any", "do": "made", "unless": "input_share > 0.1"},
        {"for": "any", "do": "not made", "unless": "input_share > 0.9"},
        {"for": "any", "do": "unknown", "unless": "device_name = 'A'"},
    ]
    finding = judged(measured({"input_share": 0.5}), rule("a", fixes=fixes)).findings[0]
    assert [fix.do for fix in finding.fixes] == ["not made", "unknown"]


def test_what_long_steps_cost_is_a_part_of_the_mean_with_them():
    found = measured({"input_share": 0.5, "outliers_share": 0.5, "whole_step_mean_ms": 150.0})
    won = judged(found, rule("a", **saving(15, 30, of="outliers"))).findings[0].saving
    assert (won.low_share, won.high_share) == (0.1, 0.2)


@pytest.mark.parametrize(("pauses_ms", "of", "share"), [(61, "outliers", 61 / 150), (60, "input", 60 / 150)])
def test_every_saving_is_of_the_mean_with_long_steps_if_these_add_to_it(pauses_ms: int, of: str, share: float):
    """Of each step of 100 ms, 30 ms wait for input; of 150 ms, outlier steps included, they add 50."""
    found = measured({"input_share": 0.3, "outliers_share": 0.5, "whole_step_mean_ms": 150.0})
    spread = {"of": "input", "then_from": ["outliers"], "low_ms": 20, "high_ms": pauses_ms, "method": "m"}
    (finding,) = judged(found, rule("slow", saving=spread)).findings
    assert (finding.saving.of, finding.saving.high_share) == (of, pytest.approx(share))


@pytest.mark.parametrize(("unprofiled", "low_share"), [(None, 0.06), (80.0, 0.10)])
def test_what_waits_for_other_programs_is_not_sure_to_be_saved(unprofiled, low_share):
    """Unless the step without the profiler was timed: the recorder takes the waits out of that."""
    parts = {"unprofiled_input_part": 0.8} if unprofiled else {}
    row = {"input_share": 0.4, "run_delay_share": 0.4, "unprofiled_step_ms": unprofiled, **parts}
    (finding,) = judged(measured(row), rule("slow", **saving(10, 20))).findings
    assert (finding.saving.low_share, finding.saving.high_share) == (pytest.approx(low_share), pytest.approx(0.20))


@pytest.mark.parametrize(("of", "ends_ms"), [("input", (5, 10)), ("outliers", (2.5, 5))])
def test_savings_are_of_the_mean_step_without_the_profiler(of: str, ends_ms: tuple[float, float]):
    """100 ms recorded are 50 without it; uneven steps add 40 ms to what was recorded, and 10 without the profiler."""
    row = {"input_share": 0.4, "outliers_share": 0.4, "complete_step_mean_ms": 140.0, "whole_step_mean_ms": 140.0}
    without = {"unprofiled_step_ms": 50.0, "unprofiled_whole_step_ms": 60.0}
    without |= {"unprofiled_input_part": 0.5, "unprofiled_outliers_part": 0.25}
    won = judged(measured(row | without), rule("a", **saving(10, 20, of=of))).findings[0].saving
    assert (won.low_ms, won.high_ms) == pytest.approx(ends_ms)
    assert (won.low_share, won.high_share) == pytest.approx([ms / 60 for ms in ends_ms])


def test_a_share_whose_part_is_unknown_without_the_profiler_is_told_of_the_recorded_step():
    row = {"input_share": 0.4, "unprofiled_step_ms": 50.0, "unprofiled_input_part": 0.5}
    (finding,) = judged(
        measured(row), rule("a", says="{{ input_share | of_step }}", severity={"low": True, "because": "b"})
    ).findings
    assert finding.says == "40 % of each recorded step (40 ms)"


@pytest.mark.parametrize(("names", "told"), [("python_calls", "f (2 ms)"), ("loading_calls", "f (4 ms)")])
def test_names_are_told_with_what_they_take_without_the_profiler(names: str, told: str):
    """Half of what they took in the recording, unless the metric was timed without it."""
    row = {"input_share": 0.4, "unprofiled_step_ms": 50.0, "unprofiled_input_part": 0.5}
    of = measured(row | {names: [{"name": "f", "ms": 4.0}]})
    (finding,) = judged(of, rule("a", says=f"{{{{ {names} }}}}", **saving(10, 20))).findings
    assert finding.says == told


@pytest.mark.parametrize(
    ("in_workers", "told"),
    [
        (
            0.4,
            " Stages of a batch, in all processes, beside the step: b (6 ms). Longest in a loader process: f (4 ms).",
        ),
        (0.0, " Stages of a batch: b (6 ms). Longest of it: f (4 ms)."),
    ],
)
def test_the_stages_of_a_batch_come_first_and_say_whether_they_are_beside_the_step(in_workers: float, told: str):
    names = {"loading_stages": [{"name": "b", "ms": 6.0}], "loading_calls": [{"name": "f", "ms": 4.0}]}
    says = load([rules_folder()], cases=False)["input-bound"].says
    of = measured({"input_share": 0.4, "worker_input_share": in_workers} | names)
    (finding,) = judged(of, rule("a", says=says)).findings
    assert told in finding.says


@pytest.mark.parametrize(
    ("says", "share"),
    [
        ("Sums take {{ input_share | of_step }}, and products 3 ms. Of {{ idle_share | of_step }} nobody knows.", 0.4),
        ("Sums take {{ input_share | of_step }}, and products {{ idle_share | of_step }}.", None),  # which is it?
        ("Sums take 3 ms. They are {{ input_share | of_step }}.", None),
        ("Sums take {{ input_gain_ms | ms_of_step }}.", 0.2),
    ],
)
def test_a_finding_knows_the_one_share_of_the_step_that_it_tells_first(says: str, share: float | None):
    row = {"input_share": 0.4, "idle_share": 0.5, "input_gain_ms": 20.0}
    (finding,) = judged(measured(row), rule("a", says=says)).findings
    assert finding.sentence_share == (share and pytest.approx(share))


def test_what_is_saved_of_a_part_shrinks_as_the_part_does():
    """Of 100 ms recorded the input has 20, which are 18 of 50 without the profiler; ops are 70, which are 28."""
    row = {"input_share": 0.2, "host_ops_share": 0.7, "unprofiled_step_ms": 50.0}
    row |= {"unprofiled_input_part": 0.9, "unprofiled_host_ops_part": 0.4}
    spread = {"of": "input", "then_from": ["host_ops"], "low_ms": 10, "high_ms": 30, "method": "m"}
    won = judged(measured(row), rule("a", saving=spread)).findings[0].saving
    assert (won.low_ms, won.high_ms) == pytest.approx((9, 18 + 4))
    assert won.parts == pytest.approx({"input": 18, "host_ops": 4})


def test_no_saving_is_more_than_the_step():
    row = {"input_share": 0.9, "outliers_share": 0.4}
    spread = {"saving": {"of": "input", "then_from": ["outliers"], "low_ms": 90, "high_ms": 120, "method": "m"}}
    (finding,) = judged(measured(row), rule("slow", **spread)).findings
    assert (finding.saving.high_ms, finding.saving.high_share) == (100, 1)


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        (1, "Ops run one by one. The GPU waits. See `x`."),
        (0, "Ops run one by one. The rule counts ops. Each reads all. See `x`."),
        (None, "Ops run one by one. The GPU waits. See `x`."),  # not known: as of most jobs
    ],
)
def test_a_job_reads_only_what_holds_with_or_without_a_device(devices, why):
    text = """Ops run one by one. With a GPU, the GPU waits. Without a GPU, the rule counts ops.
    On a CPU, each reads all. See `x`."""
    row = {"input_share": 0.4, "devices_used": devices}
    (finding,) = judged(measured(row), rule("slow", why=text)).findings
    assert finding.why == why


def test_without_a_device_a_formula_is_that_without_one():
    shown = rule("slow", when="python_bound_share > 0.1", shows=["kernels_per_step"])
    (finding,) = judged(measured({"input_share": 0.2, "python_bound_share": 0.4, "devices_used": 0}), shown).findings
    (evidence,) = finding.evidence  # and no number of kernels, which there are none of
    assert evidence.formula.startswith("time outside framework ops, input")


def test_a_symptom_stands_under_its_cause_only():
    cause, symptom = rule("cause", explains=["symptom"]), rule("symptom", about={"symptom": True})
    findings = judged(measured({"input_share": 0.5}), cause, symptom).findings
    assert [f.rule for f in findings] == ["cause"]
    assert [s.rule for s in findings[0].symptoms] == ["symptom"]


def test_a_weak_finding_does_not_hide_a_graver_one():
    """Neither has a number; a finding that is only a symptom stands under any cause."""
    weak = rule("weak", explains=["grave"], severity={"low": True, "because": "x"})
    grave = rule("grave", severity={"medium": True, "because": "x"})
    assert [f.rule for f in judged(measured({"input_share": 0.5}), weak, grave).findings] == ["grave", "weak"]
    symptom = rule("grave", severity={"medium": True, "because": "x"}, about={"symptom": True})
    assert [f.rule for f in judged(measured({"input_share": 0.5}), weak, symptom).findings] == ["weak"]


@pytest.mark.parametrize(
    ("saved_ms", "workers", "shown"), [(20, 1, ["toy"]), (30, 1, ["b", "toy"]), (20, 2, ["b", "toy"])]
)
@pytest.mark.parametrize("outweighs", [20, "CASE WHEN kernels_per_step < 9 THEN 20 ELSE 99 END"])
def test_where_nothing_can_be_judged_no_small_saving_is_promised(saved_ms, workers, shown, outweighs):
    """Whatever the part of the step; but not what a rank saves of which enough was recorded."""
    toy = rule("toy", "kernels_per_step < 9", about={"outweighs_ms": outweighs})
    rows = [{"input_share": 0.5, "kernels_per_step": 8.0}, {"input_share": 0.5, "kernels_per_step": 9.0}]
    findings = judged(measured(*rows[:workers]), toy, rule("b", **saving(10, saved_ms))).findings
    assert sorted(f.rule for f in findings) == shown


def test_a_symptom_without_a_cause_stands_alone():
    silent = rule("cause", "input_share > 0.9", explains=["symptom"])
    assert [
        f.rule
        for f in judged(measured({"input_share": 0.5}), silent, rule("symptom", about={"symptom": True})).findings
    ] == ["symptom"]


def test_what_a_cause_leaves_of_its_effect_is_shown_if_it_is_more():
    cause = rule("cause", explains=["effect"], **saving(5, 10))
    findings = judged(measured({"input_share": 0.3}), cause, rule("effect", **saving(15, 30))).findings
    assert {f.rule: f.saving.high_ms for f in findings} == {"effect": 20.0, "cause": 10.0}


def test_what_a_cause_leaves_of_its_effect_is_not_shown_if_it_is_less():
    cause = rule("cause", explains=["effect"], **saving(10, 20))
    findings = judged(measured({"input_share": 0.3}), cause, rule("effect", **saving(15, 30))).findings
    assert [f.rule for f in findings] == ["cause"]
    assert [s.rule for s in findings[0].symptoms] == ["effect"]


@pytest.mark.parametrize(("saved", "shown"), [(3.9, ["cause", "effect"]), (4.1, ["cause"])])
def test_a_cause_that_saves_next_to_nothing_of_what_another_is_about_does_not_hide_it(saved: float, shown: list[str]):
    """A kernel of 40 ms and no number, beside another kernel that saves a tenth of that, or less."""
    cause = rule("cause", explains=["effect"], **saving(saved, saved))
    effect = rule("effect", about={"time": "memcpy_ms"})
    findings = judged(measured({"input_share": 0.3, "memcpy_ms": 40.0}), cause, effect).findings
    assert [f.rule for f in findings] == shown


def test_what_is_saved_out_of_two_parts_is_limited_by_what_each_takes_without_the_profiler():
    """90 of 100 recorded ms, 89 of them out of ops, which take half without the profiler; the other part nearly all."""
    of = {"host_work_share": 0.01, "host_ops_share": 0.99, "unprofiled_step_ms": 50.0, "unprofiled_step_mean_ms": 50.0}
    parts = {"unprofiled_host_work_part": 0.9, "unprofiled_host_ops_part": 0.5, "input_share": 0.3}
    line = saving(80, 90, of="host_work")
    line["saving"]["then_from"] = ["host_ops"]
    assert savings(judged(measured(of | parts), rule("line", **line)))["line"] == pytest.approx((40.4, 45.4))


def test_what_a_finding_is_about_is_a_part_of_the_recorded_step():
    """78 of 100 ms as recorded, whatever the step takes without the profiler."""
    (about,) = judged(
        measured({"input_share": 0.3, "memcpy_ms": 78.0, "unprofiled_step_ms": 50.0, "unprofiled_step_mean_ms": 50.0}),
        rule("effect", about={"time": "memcpy_ms"}),
    ).findings
    assert about.time_share == pytest.approx(0.78)


def test_a_chain_of_causes_gathers_under_the_first():
    chain = [rule("a", explains=["b"], **saving(20, 30)), rule("b", explains=["c"]), rule("c", about={"symptom": True})]
    findings = judged(measured({"input_share": 0.3}), *chain).findings
    assert [f.rule for f in findings] == ["a"]
    assert {s.rule for s in findings[0].symptoms} == {"b", "c"}


def test_rank_is_by_expected_saving_then_severity_then_name():
    found = measured({"input_share": 0.3, "launch_gap_share": 0.3})
    rules = [
        rule("unsure", confidence="low", **saving(20, 28, "launch_gap")),
        rule("sure", **saving(10, 12)),
        rule("b"),
        rule("a"),
        rule("grave", severity={"high": True}),
    ]
    assert [f.rule for f in judged(found, *rules).findings] == ["sure", "unsure", "grave", "a", "b"]


@pytest.mark.parametrize(
    ("low", "high", "severity"),
    [
        (15.0, 15.0, "high"),  # 15 % of the step
        (0.0, 30.0, "high"),
        (0.0, 29.9, "medium"),
        (3.0, 3.0, "medium"),
        (0.0, 6.0, "medium"),
        (0.0, 5.9, "low"),
        (0.0, 0.0, "low"),
    ],
)
def test_the_middle_of_the_saving_decides_the_severity(low, high, severity):
    found, one = measured({"input_share": 0.9}), rule("a", **saving(low, high))
    assert judged(found, one).findings[0].severity == severity
    for level in ("high", "medium", "low"):
        assert judged(found, one.adjusted({}, level)).findings[0].severity == level  # the user's word holds


def test_a_level_that_the_rule_states_holds_where_no_saving_is_known():
    ms = "CASE WHEN input_share > 0.5 THEN 3.0 END"
    one = rule("a", **saving(ms, ms), severity={"high": True, "because": "without shapes nobody knows"})
    assert judged(measured({"input_share": 0.4}), one).findings[0].severity == "high"
    assert judged(measured({"input_share": 0.9}), one).findings[0].severity == "medium"
    assert judged(measured({"input_share": 0.9}), one.adjusted({}, "low")).findings[0].severity == "low"


@pytest.mark.parametrize(
    ("steps", "pool", "severity"),
    [(1, "host_busy", "medium"), (2, "host_busy", "high"), (1, "launch_gap", "high"), (1, "input", "high")],
)
def test_what_the_host_does_in_one_step_is_medium_at_most(steps, pool, severity):
    found = measured({"input_share": 0.9, "host_busy_share": 0.9, "launch_gap_share": 0.9, "steps": steps})
    assert judged(found, rule("a", **saving(15, 20, pool))).findings[0].severity == severity


def test_what_another_finding_saves_makes_no_severity():
    findings = judged(measured({"input_share": 0.3}), rule("a", **saving(25, 29)), rule("b", **saving(10, 20))).findings
    assert {f.rule: f.severity for f in findings} == {"a": "high", "b": "low"}


def test_a_saving_that_is_unknown_is_of_low_severity():
    unknown = rule("a", saving={"of": "input", "low_ms": 0, "high_ms": "input_gain_ms", "method": "m"})
    (found,) = judged(measured({"input_share": 0.3}), unknown).findings
    assert (found.saving, found.severity) == (None, "low")


def test_a_symptom_is_as_severe_as_what_it_would_save_alone():
    chain = [rule("a", explains=["b"], **saving(20, 30)), rule("b", **saving(2, 5))]
    (found,) = judged(measured({"input_share": 0.3}), *chain).findings
    assert [(s.rule, s.severity) for s in found.symptoms] == [("b", "medium")]


def test_without_a_saving_the_severity_is_the_rules():
    assert judged(measured({"input_share": 0.3}), rule("a", severity={"high": True})).findings[0].severity == "high"


@examples(0.5)
@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), st.sampled_from(["input", "compute"])), max_size=8),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
)
def test_savings_never_exceed_their_part(claims, input_share, compute_share):
    found = measured({"input_share": input_share, "compute_share": compute_share})
    rules = [rule(f"r{i}", True, **saving(min(a, b), max(a, b), of)) for i, (a, b, of) in enumerate(claims)]
    outcome = judged(found, *rules)
    for of, share in (("input", input_share), ("compute", compute_share)):
        claimed = [f.saving for f in outcome.findings if f.saving and f.saving.of == of]
        assert sum(s.high_ms for s in claimed) <= 100 * share + 1e-6
        assert all(0 <= s.low_ms <= s.high_ms for s in claimed)


@pytest.mark.parametrize("phrase", ["each_step", "per_step"])
def test_a_recording_without_steps_is_not_called_one(phrase):
    profile = Profile.of(
        {
            "workers": table("workers", {"worker": [0]}),
            "host_ops": table("host_ops", {"worker": [0], "start_ns": 0, "dur_ns": 9}),
        },
        format="kineto",
    )
    schema = {"worker": pl.Int32, "device": pl.Int32, **metrics.dtypes()}
    frame = pl.DataFrame([{"worker": 0, "input_share": 0.5, "step_mean_ms": 1.0}], schema=schema)
    found = Measurements(select_steps(profile), {"worker": frame, "run": frame}, {})
    said = judged(found, rule("a", says="{{ " + phrase + " }}")).findings[0].says
    assert "step" not in said


@pytest.mark.parametrize(("value", "arguments"), [("train.py:41", {"line": "train.py:41"}), ("", None), (None, None)])
def test_a_fix_is_tried_only_where_the_recording_has_what_its_patch_needs(value: str | None, arguments):
    fixes = [{"for": "any", "do": "less", "try": {"patch": "seldom", "line": "{{ line_apart }}"}}]
    (fix,) = judged(measured({"input_share": 0.5, "line_apart": value}), rule("a", fixes=fixes)).findings[0].fixes
    assert (fix.patch and dict(fix.patch.arguments)) == arguments


def with_fixes(*fixes, framework="pytorch", format_="kineto"):
    found = measured({"input_share": 0.5})
    profile = found.selection.profile
    told = replace(
        profile, format=format_, workers=profile.workers.with_columns(framework=pl.lit(framework, pl.String))
    )
    one = rule("a", fixes=[{"do": f"{fix['for']} {fix.get('format', '')}", **fix} for fix in fixes])
    judgement = judged(replace(found, selection=replace(found.selection, profile=told)), one)
    return [(fix.framework, fix.do) for fix in judgement.findings[0].fixes]


def test_a_fix_for_the_profiles_of_one_tool_is_told_to_nobody_else():
    fixes = ({"for": "pytorch", "format": ["kineto"], "do": "k"}, {"for": "any", "format": ["nsys"], "do": "n"})
    assert with_fixes(*fixes, format_="kineto") == [("pytorch", "k")]
    assert with_fixes(*fixes, format_="nsys") == [("any", "n")]
    assert with_fixes(fixes[0], format_="nsys") == [("pytorch", "k")]  # better than none


def test_a_program_of_no_framework_gets_its_own_fixes_in_place_of_those_for_any():
    fixes = ({"for": "pytorch", "do": "p"}, {"for": "any", "do": "a"}, {"for": "cuda", "do": "c"})
    assert with_fixes(*fixes, framework="cuda") == [("cuda", "c")]
    assert with_fixes(*fixes[:2], framework="cuda") == [("any", "a")]
    assert with_fixes(*fixes) == [("pytorch", "p"), ("any", "a")]


def test_a_rule_may_apply_where_the_framework_is_not_known():
    found = measured({"input_share": 0.5})
    profile = found.selection.profile
    unknown = replace(profile, workers=profile.workers.with_columns(framework=pl.lit(None, pl.String)))
    unknown = replace(found, selection=replace(found.selection, profile=unknown))
    assert judged(unknown, rule("a", applies={"framework": ["pytorch"]})).not_applicable == ("a",)
    assert judged(unknown, rule("a", applies={"framework": ["pytorch", "any"]})).findings


@pytest.mark.parametrize(
    ("of", "ends", "steps", "before", "confidence"),
    [
        ("input", (10, 20), 5, "medium", "high"),  # the recording shows the wait itself
        ("input", (10, 20), 4, "medium", "medium"),  # in few steps
        ("input", (5, 20), 5, "medium", "high"),  # a quarter of it goes, at least
        ("input", (4.9, 20), 5, "medium", "medium"),  # and not how much of it goes
        ("input", (0, 0), 5, "medium", "medium"),
        ("compute", (10, 20), 5, "medium", "medium"),  # how much faster work can be is a model's
        ("host_ops", (10, 20), 5, "medium", "medium"),
        ("compute", (10, 20), 5, "high", "medium"),
        ("outliers", (10, 20), 5, "medium", "medium"),  # uneven steps are few, however many steps there are
        ("input", (10, 20), 5, "low", "low"),
        ("input", (10, 20), None, "medium", "medium"),
    ],
)
def test_a_loss_that_the_recording_shows_in_enough_steps_is_sure(of, ends, steps, before, confidence):
    known = measured({"input_share": 0.5, "device_busy_share": 0.3, "steps": steps})
    assert judged(known, rule("a", confidence=before, **saving(*ends, of))).findings[0].confidence == confidence
    unsure = rule("a", confidence={"level": before, "lower_if": "input_share > 0"}, **saving(*ends, of))
    assert judged(known, unsure).findings[0].confidence == ("medium" if before == "high" else "low")


def test_a_saving_that_may_be_clearly_more_than_was_measured_is_not_sure():
    """Of a step of 100 ms, five are clear."""
    for cause_ms, confidence in (("15", "high"), ("14.9", "medium")):
        form = saving(10, 20)
        form["saving"]["cause_ms"] = cause_ms
        known = measured({"input_share": 0.5, "steps": 9})
        assert judged(known, rule("a", **form)).findings[0].confidence == confidence


def test_no_saving_of_a_fragment_has_more_than_low_confidence():
    whole = measured({"input_share": 0.5, "steps": 9})
    profile = replace(whole.selection.profile, salvaged=(Note("fragment", kernels=21.0, host=705.0),))
    part = replace(whole, selection=replace(whole.selection, profile=profile))
    for run, confidence in ((whole, "high"), (part, "low")):
        assert judged(run, rule("a", **saving(20, 28))).findings[0].confidence == confidence


def test_in_doubt_the_confidence_is_a_level_lower():
    unsure = rule("a", confidence={"level": "high", "lower_if": "unnamed_input <> ''"})
    for name, confidence in (("fetch_it", "medium"), ("", "high"), (None, "high")):
        (found,) = judge(
            measured_run(measured({"input_share": 0.5, "unnamed_input": name})), {"a": unsure}, {}
        ).findings
        assert found.confidence == confidence


def of_all(share_of_part, **whole):
    """A finding about 40 ms of copying, and one about a part of it that saves up to 12 ms."""
    row = {"input_share": 0.5, "moving_ms": 40.0, "memcpy_ms": 40.0 * share_of_part}
    part = rule("part", about={"time": "memcpy_ms"}, **saving(0, 12, of="compute"))
    about = {"about": {"time": "moving_ms", "parts": ["part"]}, "explains": ["part"]} | saving(1, 8, of="compute")
    return judged(measured(row | {"compute_share": 0.8}), rule("whole", **about | whole), part)


def test_a_finding_about_all_of_it_stands_for_its_parts():
    (finding,) = of_all(0.49).findings
    assert (finding.rule, [s.rule for s in finding.symptoms], finding.severity) == ("whole", ["part"], "medium")
    assert finding.saving
    assert (finding.saving.low_ms, finding.saving.high_ms) == (1.0, 12.0)


def test_a_part_that_is_most_of_it_is_a_finding_of_its_own():
    judgement = of_all(0.5)
    assert savings(judgement) == {"part": (0.0, 12.0), "whole": (1.0, 8.0)}
    assert judgement.findings[0].rule == "part"


def test_beside_a_part_that_is_most_of_it_only_the_rest_can_be_saved():
    # the part is about 36 of 40 ms: 4 are left of up to 8, and of the least saving as much of it
    assert savings(of_all(0.9)) == {"part": (0.0, 12.0), "whole": (0.5, 4.0)}


def test_copies_save_what_no_kernel_covers_though_a_framework_counts_it_as_launching():
    row = {"input_share": 0.5, "memcpy_share": 0.0, "exposed_memcpy_share": 0.3}
    assert savings(judged(measured(row), rule("copies", **saving(10, 40, of="memcpy")))) == {"copies": (7.5, 30.0)}


@pytest.mark.parametrize("saved", [30, 20])
def test_what_a_symptom_saves_out_of_other_work_makes_it_no_finding(saved: int):
    # The cause saves all of the wait of 30 ms, or 20. Without it 45 - saved are left: of the wait 0 or 10, of other
    # work 15. The wait is one, and what is left of it is less than its cause saves.
    row = measured({"input_share": 0.3, "host_ops_share": 0.5})
    beneath = {"saving": {"of": "input", "then_from": ["host_ops"], "low_ms": 20, "high_ms": 45, "method": "m"}}
    cause = rule("cause", explains=["symptom"], **saving(10, saved))
    (finding,) = judged(row, cause, rule("symptom", **beneath)).findings
    assert (finding.rule, [symptom.rule for symptom in finding.symptoms]) == ("cause", ["symptom"])
