"""Jobs of many ranks: a recorded one against its raw events, simulated ones against their fault."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from advisor import metrics
from advisor.analysis.job.job import Job, job_of
from advisor.engine import check
from advisor.metrics import Part
from advisor.model.report import Run
from tests import profiles
from tests.effort import soak

ROOT = Path(__file__).parents[2]
DLRM = ROOT.parent / "shared/traces/kineto/dlrm-8rank-v100"
recorded = pytest.mark.skipif(not DLRM.is_dir(), reason=f"{DLRM} is not there")

# ---------------------------------------------------------------------------------------- eight V100, one step


@cache
def dlrm_parts() -> Sequence[Part]:
    return profiles.measured(DLRM).parts


@cache
def dlrm() -> Job:
    return job_of([rank for part in dlrm_parts() for rank in part.ranks])


@recorded
def test_its_collectives_are_matched_and_end_together():
    calls = dlrm().calls
    assert (calls["met"] == 8).all()
    assert calls["trusted"].all()
    assert dlrm().offsets_ns.tolist() == [0] * 8  # one host
    spread = calls.group_by("instance").agg(us=(pl.max("end_ns") - pl.min("end_ns")) / 1e3)["us"]
    assert len(spread) == 8
    assert spread.max() == 7


@recorded
def test_ranks_compute_alike_and_wait_unequally():
    """Ranks 1 and 3 also finish work of the step before; that is no part of theirs."""
    pace = dlrm().pace.sort("rank")
    work = (pace["work_ns"] / 1e6).to_list()
    assert work == pytest.approx([1.034, 1.050, 1.068, 1.064, 1.126, 1.041, 1.051, 1.059], abs=0.001)
    assert (pace["dur_ns"].min() / 1e6, pace["dur_ns"].max() / 1e6) == pytest.approx((12.5, 18.7), abs=0.02)
    waits = dlrm().calls.group_by("rank").agg(ms=pl.sum("wait_ns") / 1e6).sort("rank")["ms"].to_list()
    assert waits == pytest.approx([5.6, 11.1, 3.3, 9.6, 6.4, 6.0, 3.3, 1.5], abs=0.05)


@recorded
def test_who_arrives_last():
    last = dlrm().calls.filter(pl.col("rank") == 0).sort("start_ns")["last"].to_list()
    assert last == [7, 7, 7, 7, 7, 5, 5, 4]


@recorded
def test_its_steps_begin_far_apart():
    begins = [rank.steps["start_ns"].min() for rank in dlrm().ranks]
    assert (max(begins) - min(begins)) / 1e6 == pytest.approx(6.2, abs=0.05)


@recorded
def test_with_one_step_nobody_is_called_a_straggler():
    run = profiles.check(DLRM).runs[0]
    spoken = {f.rule for f in run.findings} | {s.rule for f in run.findings for s in f.symptoms}
    assert not spoken & {"straggler-rank", "data-imbalance", "throttled-gpu"}
    why = {n.rule: n.missing for n in run.not_evaluable}
    assert why["straggler-rank"]["late_rank_share"].code == "few_common_steps"
    assert why["data-imbalance"]["moving_skew_share"].facts == {"needed": 3, "steps": 1}
    assert "collective-waiting" in spoken


@recorded
def test_a_wait_that_costs_more_than_the_device_idles_after_it_shows_what_else_gets_shorter():
    waits = next(f for f in profiles.check(DLRM).runs[0].findings if f.rule == "frequent-synchronisation")
    idle = next(e.value for e in waits.evidence if e.metric == "sync_idle_share")
    assert waits.saving
    assert waits.saving.high_share > idle
    assert waits.saving.parts["memcpy"] > 0


@recorded
def test_its_numbers_do_not_depend_on_which_file_is_read_first():
    forth, back = (metrics.conclude(order) for order in (dlrm_parts(), dlrm_parts()[::-1]))
    names = ["skew_ms", "waiting_share", "waiting_most", "straggler_slowdown", "matched_share"]
    assert forth.frames["run"].select(names).rows() == back.frames["run"].select(names).rows()


@pytest.mark.soak
def test_the_places_of_a_large_job_whose_events_are_let_go_are_those_of_a_small_one():
    part, name = measured("simulated-input-bound-v100"), "input_share"
    small, large = (
        metrics.conclude([p, measured("simulated-ranks-slow-rank-a100", 1)]) for p in (part, part.emptied())
    )
    assert small.places(name, 0).height
    assert small.places(name, 0).equals(large.places(name, 0))
    drawn, kept = small.timeline([name]), large.timeline([name])
    assert drawn
    assert kept
    assert (drawn.step, drawn.recorded) == (kept.step, kept.recorded)
    assert drawn.evidence[name].equals(kept.evidence[name])


def measured(fixture: str, rank: int = 0) -> Part:
    return profiles.measured(ROOT / "fixtures" / fixture).parts[rank]


# ------------------------------------------------------------ four V100, three steps, rank 2 lacks a collective

FORWARD = DLRM.with_name("dlrm-forward-4rank-v100")


@pytest.mark.soak  # who sets the pace is in tests/unit/metrics/ranks
@pytest.mark.skipif(not FORWARD.is_dir(), reason=f"{FORWARD} is not there")
def test_the_rank_that_the_others_wait_for_sets_the_pace():
    """Read off its JSON: rank 2 comes last to 9 of 12 exchanges, and its host records nothing for 1 s of each step.

    One of the nine takes rank 2 for 35 us, and ends 23 us apart while the others are in it for 293 us at most.
    """
    job = job_of([rank for part in profiles.measured(FORWARD).parts for rank in part.ranks])
    met = job.calls.filter("trusted", pl.col("rank") == 2)
    assert (met.height, met.filter(pl.col("last") == 2).height) == (12, 9)
    run = profiles.check(FORWARD).runs[0]
    assert run.source.steps.worker == 2
    first = run.findings[0]
    assert (first.rule, first.scope.workers) == ("host-stalls", (2,))
    assert {"collective-waiting", "straggler-rank"} <= {symptom.rule for symptom in first.symptoms}
    assert 950 <= first.saving.high_ms <= 1000
    assert not {"communication-bound", "communication-exposed"} & {finding.rule for finding in run.findings}


MEGATRON = DLRM.with_name("megatron-tp8-a100")


@pytest.mark.soak  # cores that ranks share are in tests/unit/metrics/ranks/test_host_cpus.py
@pytest.mark.skipif(not MEGATRON.is_dir(), reason=f"{MEGATRON} is not there")
def test_eight_ranks_on_two_cores_lack_cpus_and_none_of_them_is_the_straggler():
    """Read off its JSON: each thread runs 25 % of the time, and the devices need 182 to 203 ms of 603."""
    run = profiles.check(MEGATRON).runs[0]
    first = run.findings[0]
    assert (first.rule, first.scope.workers) == ("hosts-share-cpus", tuple(range(8)))
    assert first.saving.low_ms < 400 < first.saving.high_ms <= 421
    assert run.metrics["run"][0]["host_delay_share"] == pytest.approx(0.59, abs=0.01)  # at least; in truth 0.75
    assert not {"straggler-rank", "host-stalls", "launch-bound"} & {finding.rule for finding in run.findings}


# ---------------------------------------------------------------------------------------- simulated faults

FAULTS = {
    "healthy-ranks": None,
    "slow-rank": "throttled-gpu",
    "moving-slow-rank": "data-imbalance",
    "data-wait-one-rank": "input-bound",
    "staggered-launches": "launch-staggered",
    "gc-pauses": "uncoordinated-pauses",
    "small-buckets": "gradient-buckets-too-small",
}
LONG = ("moving-slow-rank", "healthy-ranks", "slow-rank", "data-wait-one-rank")


# others are shown of two ranks below, of one rank in test_simulated_host.py, recorded ones in test_communication.py
OF_TWO = [(fault, FAULTS[fault], 2) for fault in ("gc-pauses", "staggered-launches")]
OF_MORE = [(fault, rule, ranks) for fault, rule in FAULTS.items() for ranks in (4, 8)]


def simulated(name: str, folder: Path, ranks: int = 4, **recording: object):
    """The job's report; what its repair saves, its step, and what the ranks' steps differ by, all in ms."""
    made = profiles.case(name, "a100", 3, ranks=ranks)
    from simulator.case import Recording  # noqa: PLC0415 - on the path since then

    options = Recording(**recording)
    for file, text in made.files(options):
        (folder / file).write_bytes(text)
    steps_ms = [process.step_ms for process in made.faulty.processes]
    return check([str(folder)]).runs[0], made.saved_ms, made.faulty.step_ms, max(steps_ms) - min(steps_ms)


@pytest.mark.parametrize(("fault", "rule", "ranks"), soak(OF_TWO + OF_MORE, unless=OF_TWO[0].__eq__))
def test_a_simulated_fault_is_named_first_and_its_saving_holds_the_truth(
    fault: str, rule: str | None, ranks: int, tmp_path: Path
):
    run, saved_ms, step_ms, apart_ms = simulated(fault, tmp_path, ranks)
    assert [f.rule for f in run.findings][:1] == ([rule] if rule else [])
    if fault == "gc-pauses":
        assert not {"data-imbalance", "straggler-rank", "throttled-gpu"} & spoken(run)
    if rule:
        saving = run.findings[0].saving
        assert saving
        slack_ms = 0.01 * step_ms + apart_ms  # the truth is the ranks' mean, the saving is the pace-setter's
        assert saving.low_ms - slack_ms <= saved_ms <= saving.high_ms + slack_ms
        assert saving.high_ms - saving.low_ms <= 0.25 * step_ms


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("moving-slow-rank", "data-imbalance"),
        pytest.param("slow-rank", "throttled-gpu", marks=pytest.mark.soak),  # of four ranks it is a fixture
    ],
)
def test_of_two_ranks_too_a_lasting_lateness_is_told_from_one_in_turn(fault: str, rule: str, tmp_path: Path):
    run, *_ = simulated(fault, tmp_path, ranks=2)
    assert run.findings[0].rule == rule
    assert ("straggler-rank" in spoken(run)) == (fault == "slow-rank")


def odd_rank(fault: str) -> object:
    return profiles.case(fault, "a100", 3, ranks=4).about.get("odd_rank")


@pytest.mark.soak  # of ranks without files, tests/properties/test_skew.py says the same
@pytest.mark.parametrize("fault", LONG)
def test_neither_clocks_nor_names_nor_a_missing_innocent_rank_change_the_verdict(fault: str, tmp_path: Path):
    innocent = next(rank for rank in range(4) if rank != odd_rank(fault))
    run, *_ = simulated(fault, tmp_path, skewed=True, shuffled=True, missing=(innocent,))
    assert len(run.source.workers) == 3
    assert [f.rule for f in run.findings][:1] == ([FAULTS[fault]] if FAULTS[fault] else [])


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["slow-rank", "data-wait-one-rank"])
def test_where_the_odd_rank_is_missing_no_other_is_blamed_and_nothing_promised(fault: str, tmp_path: Path):
    run, *_ = simulated(fault, tmp_path, missing=(odd_rank(fault),))
    assert {"communication-exposed", "communication-bound"} >= {f.rule for f in run.findings} != set()
    assert not {"straggler-rank", "throttled-gpu", "data-imbalance", "input-bound"} & spoken(run)
    for finding in run.findings:
        assert "this recording cannot show it" in finding.says
        assert finding.saving
        assert finding.saving.low_ms == 0


@pytest.mark.soak  # bubbles by hand are in tests/unit/metrics/ranks/test_pipelining.py
def test_the_bubbles_of_a_pipeline_are_named_and_its_stages_no_stragglers(tmp_path: Path):
    run, *_ = simulated("pipeline-bubbles", tmp_path)
    assert [(f.rule, [s.rule for s in f.symptoms]) for f in run.findings[:1]] == [
        ("pipeline-bubbles", ["communication-bound", "collective-waiting"])
    ]
    assert "4 stages and 4 micro-batches" in run.findings[0].says
    assert "straggler-rank" in {n.rule for n in run.not_evaluable}


def spoken(run: Run) -> set[str]:
    return {f.rule for f in run.findings} | {s.rule for f in run.findings for s in f.symptoms}
