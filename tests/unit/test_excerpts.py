from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from advisor.analysis.device.selection import select_steps
from advisor.engine import check, excerpt, read
from advisor.errors import UsageError
from advisor.excerpts import excerpt as cut
from advisor.excerpts import window
from advisor.model.finding import Finding, Place
from advisor.model.profile import table

pytestmark = pytest.mark.usefixtures("measured_once")

FIXTURE = Path(__file__).parents[2] / "fixtures" / "simulated-sync-a100"


@pytest.fixture(scope="module")
def findings() -> tuple[Finding, ...]:
    return check([str(FIXTURE)]).runs[0].findings


@pytest.fixture(scope="module")
def view():
    return select_steps(read(str(FIXTURE))).views[0]


def at(finding: Finding, start_ns: int, dur_ns: int) -> Finding:
    spot = Place(table="host_ops", name="x", worker=0, device=0, step=None, start_ns=start_ns, at_ms=0, dur_ns=dur_ns)
    return finding.model_copy(update={"where": (spot,)})


def test_the_step_around_the_place_is_shown(findings, view):
    step = view.steps.row(1, named=True)
    shown = window(view, at(findings[0], step["start_ns"] + 10, 5))
    assert shown == (step["start_ns"], step["start_ns"] + step["dur_ns"])


def test_without_a_place_the_longest_step_is_shown(findings, view):
    shown = window(view, findings[0].model_copy(update={"where": ()}))
    assert shown[1] - shown[0] == view.steps["dur_ns"].max()


def test_outside_of_all_steps_the_place_and_what_is_around_it_is_shown(findings, view):
    before = view.steps["start_ns"].min() - 10**10
    assert window(view, at(findings[0], before, 10**6)) == (before - 2 * 10**6, before + 3 * 10**6)


def test_the_excerpt_holds_what_ran_the_launches_and_the_findings(findings):
    trace = excerpt(str(FIXTURE), findings[0].key)
    events = trace["traceEvents"]
    kinds = {event.get("cat") for event in events}
    assert {"kernel", "op", "runtime", "finding", "launch"} <= kinds
    told = trace["advisor"]
    drawn = [event for event in events if event["ph"] == "X"]
    window_end = told["ts"] + told["dur_ns"] / 1e3
    assert all(event["ts"] < window_end and event["ts"] + event["dur"] > told["ts"] for event in drawn)
    assert min(event["ts"] for event in events if event["ph"] != "M") >= 0  # a viewer drops what is before
    ends = {event["id"] for event in events if event["ph"] == "f"}
    assert ends == {event["id"] for event in events if event["ph"] == "s"}
    views = {(event["pid"], event["tid"]) for event in drawn}
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert views <= named


def test_a_finding_without_places_is_drawn_over_the_whole_window(findings, view):
    shown = findings[0].model_copy(update={"where": ()})
    trace = cut(read(str(FIXTURE)), [view], [shown, *findings[1:]], shown)
    drawn = [(e["ts"], e["dur"]) for e in trace["traceEvents"] if e.get("cat") == "finding" and e["tid"] == 0]
    assert drawn == [(trace["advisor"]["ts"], trace["advisor"]["dur_ns"] / 1e3)]
    assert trace["advisor"]["note"].startswith(f"{shown.key} names no place in the recording")


def test_what_a_finding_says_is_masked_as_the_events_are(findings, view):
    shown = findings[0].model_copy(update={"says": "It waits for load password: hush3Hush (5 ms)."})
    trace = cut(read(str(FIXTURE)), [view], [shown], shown)
    (said,) = {event["args"]["says"] for event in trace["traceEvents"] if event.get("cat") == "finding"}
    assert said == "It waits for load password: xxxxxxxxx (5 ms)."


def test_what_was_not_found_cannot_be_shown():
    with pytest.raises(UsageError, match=r"'launchbound': no such finding in .*, which has "):
        excerpt(str(FIXTURE), "launchbound")


def test_threads_bear_their_names_and_numbers_that_viewers_can_tell(findings, view):
    profile = read(str(FIXTURE))
    hashed = replace(
        profile,
        host_ops=profile.host_ops.with_columns(thread=pl.lit(-(2**62), pl.Int64)),
        threads=table("threads", {"worker": [0], "thread": [-(2**62)], "name": ["tf_Compute"]}),
    )
    names = [threads(cut(made, [view], findings, findings[0])) for made in (profile, hashed)]
    assert names[0]
    assert names == [{thread: f"thread {thread}" for thread in names[0]}, {1: "tf_Compute"}]


def test_an_op_of_no_known_device_is_not_shown(findings, view):
    profile = read(str(FIXTURE))
    odd = pl.when(pl.col("id") % 2 == 0).then("device")
    shown = cut(replace(profile, device_ops=profile.device_ops.with_columns(odd)), [view], findings, findings[0])
    assert len(shown["traceEvents"]) < len(cut(profile, [view], findings, findings[0])["traceEvents"])


def threads(trace: dict[str, Any]) -> dict[int, str]:
    named = [e for e in trace["traceEvents"] if e["name"] == "thread_name" and e["pid"] == 1000]
    ran = {e["tid"] for e in trace["traceEvents"] if e["pid"] == 1000 and e["ph"] == "X"}
    assert ran <= {e["tid"] for e in named}
    return {e["tid"]: e["args"]["name"] for e in named}


RANKS = Path(__file__).parents[2] / "fixtures" / "simulated-ranks-slow-rank-a100"


@pytest.fixture(scope="module")
def job():
    return read(str(RANKS))


def names_of(trace: dict[str, Any]) -> dict[int, str]:
    return {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}


@pytest.mark.soak  # two ranks are below
def test_all_ranks_of_a_job_are_processes_of_one_timeline():
    (run,) = check([str(RANKS)]).runs
    key = run.findings[0].key
    ranks = [worker.worker for worker in run.source.workers]
    trace = excerpt(str(RANKS), key, all_ranks=True)
    assert sorted(trace["advisor"]["workers"]) == ranks
    hosts = sorted(name for name in names_of(trace).values() if name.endswith("host"))
    assert hosts == [f"rank {rank}, host" for rank in ranks]
    drawn = {event["pid"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert drawn == {*names_of(trace)}


def test_ranks_whose_clocks_differ_are_shown_on_the_first_ones(job, findings):
    of_all = [view for view in select_steps(job).views if view.device is not None]
    subject = findings[0].model_copy(update={"where": ()})
    late = {name: getattr(job, name) for name in ("device_ops", "host_ops")}
    shifted = {
        name: rows.with_columns(pl.col("start_ns") + pl.when(pl.col("worker") == 1).then(10**9).otherwise(0))
        for name, rows in late.items()
    }
    together = cut(job, of_all, [subject], subject)
    apart = cut(replace(job, **shifted), of_all, [subject], subject, {1: 10**9})
    assert apart == together


def test_each_rank_has_its_share_of_the_events(job, findings, monkeypatch):
    views = [view for view in select_steps(job).views if view.device is not None]
    subject = findings[0].model_copy(update={"where": ()})
    monkeypatch.setattr("advisor.excerpts.MOST_EVENTS", 10 * len(views))
    counted = [event["pid"] for event in cut(job, views, [subject], subject)["traceEvents"] if "dur" in event]
    assert all(counted.count(pid) <= 10 for pid in {*counted})


def test_a_log_of_collectives_has_no_timeline():
    with pytest.raises(UsageError, match="has no timeline"):
        excerpt(str(RANKS.parent / "nccl-inspector"), "late-rank-in-log")
