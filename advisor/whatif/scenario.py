"""Scenarios: what a step takes, and who sets the pace, with changes that a user names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import loaded_ahead
from advisor.analysis.device.view import DeviceView, Selection, classes, spans
from advisor.analysis.job.job import Job, job_of
from advisor.analysis.job.own_steps import own_steps, unknown_split
from advisor.analysis.job.rank import rank_of
from advisor.errors import UsageError
from advisor.model.clause import Missing
from advisor.text import ms, one_line, percent, runs_of
from advisor.vocabulary.limits import TURNS_SHARE
from advisor.whatif.change import (
    Change,
    Edit,
    End,
    Interval,
    faster,
    on_faster,
    recorded,
    saved,
    together,
    without,
    without_waits,
)
from advisor.whatif.dependencies import of_process, replay
from advisor.whatif.job_replay import JobReplay, replayed
from advisor.whatif.replay import TRUSTED_ERROR, Replay

FORMS: Final = "input=0, input=2x, kernels:gemm=2x, waits=0; of several ranks or GPUs: link=2x, rank:2=typical"
_FORM: Final = re.compile(r"(input|kernels:.+|waits|link|rank:[0-9]{1,9})=(0|typical|[0-9]{1,12}(?:\.[0-9]{1,6})?x)")
_ONE_RANK: Final = "one rank does not show what it waits for; give the folder with the traces of all ranks"
_APART: Final = Missing("no_shared_collective")
_MOST_CHANGES: Final = 20
_LONGEST: Final = 80  # characters of a change in a message
_MOST_NAMES: Final = 3  # kernels or ops that a message names
_OF_RANKS: Final = {"link", "rank"}  # what is about what ranks are to each other
_LESS: Final = 0.9  # of the time: what the step notices most if it takes less sets the pace
_OFF: Final = 0.1  # of the step: so far off were eight of nine whose truth was measured (docs/savings.md)


class Term(NamedTuple):
    """One change: `what` it is about, `of` which kernels or rank, and the part of its time that is left."""

    text: str
    what: str
    of: str
    rest: float  # NaN: what is typical

    @classmethod
    def parse(cls, text: str) -> Term:
        """The change that this names, on a command line or in an agent's call; a UsageError where it is none."""
        form = _FORM.fullmatch(text := text.strip())
        what, _, of = form[1].partition(":") if form else ("", "", "")
        if form is None or (form[2] == "typical") != (what == "rank") or (what == "waits" and form[2] != "0"):
            raise UsageError(f"change {one_line(text, _LONGEST)}: no such change; write one of {FORMS}")
        speed = float(form[2].removesuffix("x")) if form[2] not in {"0", "typical"} else 0.0
        if form[2].endswith("x") and speed < 1:  # what takes longer is not replayed
            raise UsageError(f"change {text}: how many times as fast? as in {form[1]}=2x")
        return cls(text, what, of, np.nan if what == "rank" else 1 / speed if speed else 0.0)


@dataclass(frozen=True, slots=True)
class Stage:
    """The mean step with a change and all before it, between two ends."""

    change: str
    low_ms: float
    high_ms: float
    pace: str  # who sets it then
    why: str = ""  # what the interval rests on, where the replay alone does not show that


@dataclass(frozen=True, slots=True)
class Scenario:
    """The mean step as recorded, and what it takes after each change in turn."""

    step_ms: float
    pace: str  # who sets it
    stages: tuple[Stage, ...]
    refused: Mapping[str, str]  # changes that cannot be replayed, and why
    steps: int  # replayed, of each of so many `ranks`
    of_steps: int  # complete ones; 0: none marked
    ranks: int
    off: float  # how far the unchanged replay is from the recording, as a share


def scenario(selection: Selection, changes: Sequence[str]) -> Scenario:
    """The recorded steps with these changes in turn; see `FORMS`. A UsageError where they cannot be replayed."""
    if len(changes) > _MOST_CHANGES:  # each is replayed with all before it
        raise UsageError(f"{len(changes):,} changes; give {_MOST_CHANGES} at most")
    terms = [Term.parse(text) for text in changes]
    views: Sequence[DeviceView] = selection.critical
    if not any(view.steps.height for view in views):
        raise UsageError("no step can be replayed: the recording holds no complete one")
    if len(views) == 1 and views[0].once(of_process) is views[0]:
        views = selection.views  # of one process, whose devices meet
    if len(views) > 1:
        return _of_job(job_of([rank_of(view) for view in views]), views, terms)
    return _of_process(views[0].once(of_process), terms)


def _stage(term: Term, step_ms: float, saved_ms: Sequence[float], pace: str, why: str = "") -> Stage:
    """The step after what is saved of it: as far off, of what goes and of what stays, as the measured ones were."""
    high_ms, low_ms = (step_ms - ms for ms in (min(saved_ms), max(saved_ms)))
    low_ms -= _OFF * min(low_ms, step_ms - low_ms)
    return Stage(term.text, low_ms, high_ms + _OFF * min(high_ms, step_ms - high_ms), pace, why)


# One rank


def _of_process(view: DeviceView, terms: Sequence[Term]) -> Scenario:
    unchanged = view.once(replay)
    if unchanged is None or view.once(recorded) is None:
        off = unchanged and f"without any change, the replay is off by {percent(abs(unchanged.error))}"
        why = off or "nothing links most work of a device to calls of the host in them"
        raise UsageError(f"the steps cannot be replayed: {why}")
    step_ms = view.per_step_ms(view.total_ns)
    refused, known, stages = dict[str, str](), list[Change](), list[Stage]()
    for term in terms:
        change = _change(view, term)
        if isinstance(change, str):
            refused[term.text] = change
            continue
        known.append(change)
        stages.append(_stage(term, step_ms, _saved(view, known), _pace(view, unchanged, together(*known).most.edit)))
    now, of = _pace(view, unchanged, Edit()), view.complete.height * view.has_marks
    return Scenario(step_ms, now, tuple(stages), refused, unchanged.steps, of, 1, abs(unchanged.error))


def _change(view: DeviceView, term: Term) -> Change | str:
    """What the term changes in a rank by itself; or why it changes nothing."""
    if term.what == "input":
        if view.once(loaded_ahead).height:
            return Change(*2 * (End(Edit(loader=term.rest)),))
        waits = view.host_spans("input")
        change = without(host=waits, rest=(term.rest,) * 2, bound_ns=waits.total)
        return change if waits.total else "no wait for input was recorded"
    if term.what == "waits":
        return without_waits(0.0) if view.device is not None else "no call waits for a GPU: none was recorded"
    if term.what in _OF_RANKS:
        return _among_devices(view, term) if len(view.used) > 1 else _ONE_RANK
    if view.device is None:
        work = view.used_host.filter(pl.col("kind") == "op").collect()
        ops = work.filter(_is_called(term))
        return without(host=spans(ops), rest=(term.rest, term.rest)) if ops.height else _unknown(term, work)
    work = view.used_kernels.join(view.once(classes), on="name", how="left")
    kernels = work.filter(pl.col("family").cast(pl.String).str.starts_with(term.of.lower()) | _is_called(term))
    time = pl.col("dur_ns") * term.rest
    return faster(kernels, time, time) if kernels.height else _unknown(term, work.with_columns(name="family"))


def _among_devices(view: DeviceView, term: Term) -> Change | str:
    """With the kernels of one device as long as equal ones on the others on average; or why that is not known."""
    if term.what == "link":
        return "the devices of this process meet in no collective"
    is_own, equal = pl.col("device").cast(pl.String) == term.of, ["name", "grid", "block"]
    own, others = view.used_kernels.filter(is_own), view.used_kernels.filter(~is_own)
    if own.is_empty():
        return f"there is no GPU {term.of}, but {runs_of(others['device'].unique())}"
    kernels = own.join(others.group_by(equal).agg(usual=pl.mean("dur_ns")), on=equal, nulls_equal=True)
    time = pl.col("dur_ns") * pl.col("usual") / pl.mean("dur_ns").over(equal)
    if kernels.is_empty():
        return f"no other GPU runs kernels like those of GPU {term.of}"
    own_ms, usual_ms = (view.per_step_ms(kernels.select(of.sum()).item()) for of in (pl.col("dur_ns"), time))
    usual = f"GPU {term.of} takes {ms(own_ms)} a step for kernels that take {ms(usual_ms)} on the other GPUs"
    return faster(kernels, time, time) if own_ms > usual_ms else usual


def _unknown(term: Term, work: pl.DataFrame) -> str:
    """That nothing has this name, and what takes most time."""
    times = work.drop_nulls("name").group_by("name").agg(pl.sum("dur_ns"))
    most = times.top_k(_MOST_NAMES, by="dur_ns").sort("dur_ns", descending=True)["name"].to_list()
    known = f"; most time is in {', '.join(one_line(str(name), _LONGEST) for name in most)}" if most else ""
    return f"no kernel or op is called {one_line(term.of, _LONGEST)}{known}"


def _is_called(term: Term) -> pl.Expr:
    return pl.col("name").cast(pl.String).str.to_lowercase().str.contains(term.of.lower(), literal=True)


def _saved(view: DeviceView, changes: Sequence[Change], *, of_job: bool = False) -> Interval:
    """What they save together, on the host as recorded or on one that no profiler slows down.

    Of a rank `of_job` as a part of what it does by itself: its collectives take no time, because how long they wait for
    others, the job's replay tells. Where no call waits, its host may also work on during them, as long as they took.
    """
    change, joined = together(*changes), view.ops.filter((pl.col("kind") == "collective") & of_job)["id"].to_numpy()
    ends = [
        steps.saved_ms(edit.on(steps)) / (apart.step_ms if of_job else 1)
        for host in filter(None, (view.once(recorded), view.once(on_faster)))
        for apart in [host.with_durations(joined, 0 * joined)]
        for edit in (change.least.edit, change.most.edit)
        for steps in [apart, *[host] * edit.waits]
    ]
    if not ends:
        ends = [ms / (view.per_step_ms(view.total_ns) if of_job else 1) for ms in saved(view, change)]
    return Interval(min(ends), max(ends))


def _pace(view: DeviceView, steps: Replay, edit: Edit) -> str:
    """What the step gets shorter by most if it takes a tenth less time; no GPU alone if another saves half as much."""
    changed = edit.on(steps)
    awaited = "what the host waits for" if changed.awaits == "host_busy" else "the data loader"
    less = {awaited: changed.with_loader(_LESS)}
    gpu = pl.format("GPU {}", "device") if view.ops["device"].n_unique() > 1 else pl.lit("the GPU")
    of = pl.when(pl.col("kind") == "collective").then(pl.lit("communication with other ranks")).otherwise(gpu)
    for name, ops in view.ops.group_by(of, maintain_order=True):
        own = np.isin(changed.op, ops["id"].to_numpy())
        less[str(name[0])] = changed.with_durations(changed.op[own], np.rint(changed.dur[own] * _LESS).astype(np.int64))
    less["the host"] = changed.with_host(_LESS)
    won = {who: changed.saved_ms(then) for who, then in less.items()}
    *_, second, first = sorted(won, key=won.__getitem__)
    return "no GPU alone" if first[:4] == second[:4] == "GPU " and 2 * won[second] > won[first] else first


# Several ranks


def _of_job(job: Job, views: Sequence[DeviceView], terms: Sequence[Term]) -> Scenario:
    steps = job.once(replayed) if job.missing in {None, _APART} else None
    if steps is None or abs(steps.error) > TRUSTED_ERROR:
        why = job.missing.words if job.missing else "the replay of the unchanged steps is off by more than 5 %"
        raise UsageError(f"the ranks cannot be replayed together: {why}")
    places = [(rank.worker, rank.device) for rank in job.ranks]
    views = sorted(views, key=lambda view: places.index((view.worker, view.device)))
    own_ms = dict(zip(job.members, job.once(own_steps).own.mean(axis=1).tolist(), strict=True))
    longest = max(own_ms, key=own_ms.__getitem__)
    step_ms = views[longest].per_step_ms(views[longest].total_ns)
    refused, known, stages = dict[str, str](), list[Term](), list[Stage]()
    for term in terms:
        changes = [_alike(steps, job, term)] if term.what in _OF_RANKS else [_change(view, term) for view in views]
        if all(isinstance(change, str) for change in changes):
            refused[term.text] = str(changes[0])
            continue
        known.append(term)
        least, most = _changed(steps, job, views, known)
        saved_ms = [min(step_ms, max(0.0, steps.step_ms - end.step_ms)) for end in (least, most)]
        pace = _pace_of(most, job, {rank: own_ms[rank] - steps.alone_ms[rank] + most.alone_ms[rank] for rank in own_ms})
        few = job.once(unknown_split) if term.what == "rank" else None
        why = f"each rank is replayed by itself: {_APART.words}" if job.missing else ""
        why = f"perhaps it saves nothing: {few.words}" if few else why
        stages.append(_stage(term, step_ms, saved_ms, pace, why))
    now, of, ranks = _pace_of(steps, job, own_ms), len(job.whole_steps) * views[longest].has_marks, len(job.members)
    return Scenario(step_ms, now, tuple(stages), refused, steps.steps, of, ranks, abs(steps.error))


def _changed(
    steps: JobReplay, job: Job, views: Sequence[DeviceView], terms: Sequence[Term]
) -> tuple[JobReplay, JobReplay]:
    """The job with the changes, at their least and most helpful end.

    What they save a rank by itself its own replay tells; the job's joins the ranks at their collectives.
    """
    changes = [
        [_change(view, term) for term in terms if term.what not in _OF_RANKS] for view in views[: len(steps.alone_ms)]
    ]
    known = [[change for change in of_view if isinstance(change, Change)] for of_view in changes]
    spared = np.array([_saved(*of_rank, of_job=True) for of_rank in zip(views, known, strict=False)])
    rests = 1 - np.minimum(1.0, spared.T)
    least, most = (steps.scaled(steps.is_own, part[steps.ops["rank"].to_numpy()]) for part in rests)
    for term in filter(lambda term: term.what in _OF_RANKS, terms):
        few = term.what == "rank" and job.once(unknown_split)
        ends = least if few else _alike(least, job, term), _alike(most, job, term)
        least, most = (old if isinstance(new, str) else new for old, new in zip((least, most), ends, strict=True))
    return least, most


def _alike(steps: JobReplay, job: Job, term: Term) -> JobReplay | str:
    """With a change of the link, or a rank like the typical other one; or why that changes nothing."""
    if term.what == "link":
        transfers = ~steps.of("kind", "compute") & steps.ops["instance"].is_not_null().to_numpy()
        unknown = "no collective shows how much of it is transfer and how much waiting"
        return steps.scaled(transfers, term.rest) if transfers.any() else unknown
    numbers = {job.ranks[n].device or 0 if job.several_devices else job.ranks[n].worker: n for n in job.members}
    if (rank := numbers.get(int(term.of))) is None:
        return f"there is no rank {term.of} in the steps that all ranks recorded, but {runs_of(numbers)}"
    usual = steps.like_others(rank)
    now_ms, then_ms = (ms(of.alone_ms[rank]) for of in (steps, usual))
    slower = usual.alone_ms[rank] < steps.alone_ms[rank]
    return usual if slower else f"{job.names[rank]} takes {now_ms} a step by itself, the typical other rank {then_ms}"


def _pace_of(steps: JobReplay, job: Job, own_ms: Mapping[int, float]) -> str:
    """Who the step gets shorter by most for if it takes a tenth less time: the link, or the rank that does most."""
    link, own = (steps.scaled(chosen, _LESS).step_ms for chosen in (~steps.of("kind", "compute"), steps.is_own))
    longest = max(own_ms, key=own_ms.__getitem__)
    takes_turns = steps.step_ms - own_ms[longest] >= TURNS_SHARE * steps.step_ms  # even that one waits for others
    return "the link between the ranks" if link < own else "no rank alone" if takes_turns else job.names[longest]
