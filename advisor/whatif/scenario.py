"""Scenarios: what a step takes, and who sets the pace, with changes that a user names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import loaded_ahead
from advisor.analysis.device.view import DeviceView, Selection, classes, spans
from advisor.analysis.job.job import Job, job_of
from advisor.analysis.job.rank import rank_of
from advisor.errors import UsageError
from advisor.text import one_line, percent
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
from advisor.whatif.job_replay import START, JobReplay
from advisor.whatif.replay import TRUSTED_ERROR
from advisor.whatif.segments import replayed

FORMS: Final = "input=0, input=2x, kernels:gemm=2x, waits=0; of several ranks or GPUs: link=2x, rank:2=typical"
_FORM: Final = re.compile(r"(input|kernels:.+|waits|link|rank:\d{1,9})=(0|typical|\d{1,6}(?:\.\d{1,6})?x)")
_ONE_RANK: Final = "one rank does not show what it waits for; give the folder with the traces of all ranks"
_MOST_CHANGES: Final = 20
_LONGEST: Final = 80  # characters of a change in a message
_MOST_NAMES: Final = 3  # kernels or ops that a message names
_LESS: Final = 0.9  # of the time: what the step notices most if it takes less sets the pace


class Term(NamedTuple):
    """One change: `what` it is about, `of` which kernels or rank, and the part of its time that is left."""

    text: str
    what: str
    of: str
    rest: float  # NaN: what is typical

    @classmethod
    def parse(cls, text: str) -> Term:
        """The change that `--change` names.

        Raises:
            UsageError: it is none.
        """
        form = _FORM.fullmatch(text)
        what, _, of = form[1].partition(":") if form else ("", "", "")
        if form is None or (form[2] == "typical") != (what == "rank") or (what == "waits" and form[2] != "0"):
            raise UsageError(f"--change {one_line(text, _LONGEST)}: no change; write one of {FORMS}")
        speed = float(form[2].removesuffix("x")) if form[2] not in {"0", "typical"} else 0.0
        if form[2].endswith("x") and not speed:
            raise UsageError(f"--change {text}: how many times as fast? as in {what}=2x")
        return cls(text, what, of, np.nan if what == "rank" else 1 / speed if speed else 0.0)

    def refused(self, why: str) -> UsageError:
        """Why it cannot be replayed."""
        return UsageError(f"--change {one_line(self.text, _LONGEST)}: cannot be replayed: {why}")


@dataclass(frozen=True, slots=True)
class Stage:
    """The mean step with a change and all before it, between two ends, and who sets the pace then."""

    change: str
    low_ms: float
    high_ms: float
    pace: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """The mean step as recorded, who sets its pace, and what it takes after each change in turn."""

    step_ms: float
    pace: str
    stages: tuple[Stage, ...]


def scenario(selection: Selection, changes: Sequence[str]) -> Scenario:
    """The recorded steps with these changes, one after the other; see `FORMS`.

    Raises:
        UsageError: a change is none, or cannot be replayed.
    """
    if len(changes) > _MOST_CHANGES:  # each is replayed with all before it
        raise UsageError(f"--change: {len(changes):,} changes; give {_MOST_CHANGES} at most")
    terms = [Term.parse(text) for text in changes]
    views: Sequence[DeviceView] = selection.critical
    if len(views) == 1 and views[0].once(of_process) is views[0]:
        views = selection.views  # of one process, whose devices meet
    if len(views) > 1:
        return _of_job(job_of([rank_of(view) for view in views]), views, terms)
    return _of_process(views[0].once(of_process), terms)


# One rank


def _of_process(view: DeviceView, terms: Sequence[Term]) -> Scenario:
    changes = list[Change]()
    for term in terms:
        change = _change(view, term)
        if isinstance(change, str):
            raise term.refused(change)
        changes.append(change)
    if view.once(recorded) is None and terms:
        off = (steps := view.once(replay)) and percent(abs(steps.error))
        why = f"it is off by {off}" if off else "nothing links a device's work to calls of the host"
        raise terms[0].refused(f"{why} without any change")
    step_ms = view.per_step_ms(view.total_ns)
    stages = [
        Stage(term.text, step_ms - most, step_ms - least, _pace(view, together(*changes[:number]).most.edit))
        for number, term in enumerate(terms, 1)
        for least, most in [_saved(view, changes[:number])]
    ]
    return Scenario(step_ms, _pace(view, Edit()), tuple(stages))


def _change(view: DeviceView, term: Term) -> Change | str:
    """What the term changes in a rank by itself; or why it changes nothing."""
    if term.what == "input":
        if view.once(loaded_ahead).height:
            return Change(*2 * (End(Edit(loader=term.rest)),))
        waits = view.host_spans("input")
        return (
            without(host=waits, rest=(term.rest,) * 2, bound_ns=waits.total)
            if waits.total
            else "no wait for input was recorded"
        )
    if term.what == "waits":
        return without_waits(0.0) if view.device is not None else "no call waits for a GPU: none was recorded"
    if term.what in {"link", "rank"}:
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
    kernels = own.join(others.group_by(equal).agg(usual=pl.mean("dur_ns")), on=equal, nulls_equal=True)
    time = pl.col("dur_ns") * pl.col("usual") / pl.mean("dur_ns").over(equal)
    return faster(kernels, time, time) if kernels.height else f"no other GPU runs kernels like those of GPU {term.of}"


def _unknown(term: Term, work: pl.DataFrame) -> str:
    """That nothing has this name, and what takes most time."""
    times = work.drop_nulls("name").group_by("name").agg(pl.sum("dur_ns"))
    most = times.top_k(_MOST_NAMES, by="dur_ns").sort("dur_ns", descending=True)["name"].to_list()
    known = f"; most time is in {', '.join(one_line(str(name), _LONGEST) for name in most)}" if most else ""
    return f"no kernel or op is called {one_line(term.of, _LONGEST)}{known}"


def _is_called(term: Term) -> pl.Expr:
    """Whether the name has these letters."""
    return pl.col("name").cast(pl.String).str.to_lowercase().str.contains(term.of.lower(), literal=True)


def _saved(view: DeviceView, changes: Sequence[Change]) -> Interval:
    """What they save together; nothing where a loader sets the pace that none of them makes faster.

    The ends are those on the host as recorded, and on one that no profiler slows down.
    """
    change = together(*changes)
    hosts = [steps for steps in (view.once(recorded), view.once(on_faster)) if steps]
    if not hosts:
        return saved(view, change)
    ends = [steps.saved_ms(end.edit.on(steps)) for steps in hosts for end in (change.least, change.most)]
    return Interval(min(ends), max(ends))


def _pace(view: DeviceView, edit: Edit) -> str:
    """What the step gets shorter by most if it takes a tenth less time."""
    steps = view.once(recorded)
    if steps is None:
        return "unknown"
    changed = edit.on(steps)
    awaited = "what the host waits for" if changed.awaits == "host_busy" else "the data loader"
    less = {awaited: changed.with_loader(_LESS)}
    for device, ops in view.ops.group_by("device", maintain_order=True):
        own = np.isin(changed.op, ops["id"].to_numpy())
        name = f"GPU {device[0]}" if view.ops["device"].n_unique() > 1 else "the GPU"
        less[name] = changed.with_durations(changed.op[own], np.rint(changed.dur[own] * _LESS).astype(np.int64))
    less["the host"] = changed.with_host(_LESS)
    return max(less, key=lambda who: changed.saved_ms(less[who]))


# Several ranks


def _of_job(job: Job, views: Sequence[DeviceView], terms: Sequence[Term]) -> Scenario:
    steps = None if job.missing else job.once(replayed)
    if steps is None or abs(steps.error) > TRUSTED_ERROR:
        why = job.missing.words if job.missing else "the replay of the unchanged steps is off by more than 5 %"
        raise UsageError(f"the ranks cannot be replayed together: {why}")
    places = [(rank.worker, rank.device) for rank in job.ranks]
    views = sorted(views, key=lambda view: places.index((view.worker, view.device)))
    off = abs(steps.error)
    stages = list[Stage]()
    for number, term in enumerate(terms, 1):
        least, most = _changed(steps, job, views, terms[:number])
        stages.append(Stage(term.text, most.step_ms * (1 - off), least.step_ms * (1 + off), _pace_of(most, job)))
    return Scenario(steps.step_ms, _pace_of(steps, job), tuple(stages))


def _changed(
    steps: JobReplay, job: Job, views: Sequence[DeviceView], terms: Sequence[Term]
) -> tuple[JobReplay, JobReplay]:
    """The job with the changes, at their least and most helpful end.

    What they save a rank by itself its own replay tells; the job's joins the ranks at their collectives.

    Raises:
        UsageError: one cannot be replayed.
    """
    of_ranks = [term for term in terms if term.what not in {"link", "rank"}]
    changes = [[_change(view, term) for term in of_ranks] for view in views]
    for term, why in zip(of_ranks, zip(*changes, strict=True), strict=True):
        if all(isinstance(change, str) for change in why):
            raise term.refused(str(why[0]))
    known = [[change for change in of_view if not isinstance(change, str)] for of_view in changes]
    saved_ms = np.array([_saved(view, of_view) for view, of_view in zip(views, known, strict=True)])
    alone = (steps.ops["kind"] == "compute").to_numpy() & ~steps.of("type", START)
    rank = steps.ops["rank"].to_numpy()
    own_ms = np.bincount(rank[alone], steps.own[alone], len(views)) / 1e6 / steps.steps
    shares = 1 - np.minimum(1.0, saved_ms.T / np.maximum(own_ms, 1e-6))
    least, most = (_of_all(steps.scaled(alone, part[rank]), job, terms) for part in shares)
    return least, most


def _of_all(steps: JobReplay, job: Job, terms: Sequence[Term]) -> JobReplay:
    """With the changes that are about the link, or hold a rank against the others."""
    for term in terms:
        if term.what == "rank":
            numbers = [rank.device or 0 if job.several_devices else rank.worker for rank in job.ranks]
            known = {number: n for n, number in enumerate(numbers) if steps.of("rank", n).any()}
            if (place := known.get(int(term.of))) is None:
                there = f"{min(known)} to {max(known)}"
                raise term.refused(f"there is no rank {term.of} in the steps that all ranks recorded, but {there}")
            steps = steps.like_others(place)
        if term.what == "link":
            transfers = (steps.ops["kind"] != "compute").to_numpy() & steps.ops["instance"].is_not_null().to_numpy()
            if not transfers.any():
                raise term.refused("no collective shows how much of it is transfer and how much waiting")
            steps = steps.scaled(transfers, term.rest)
    return steps


def _pace_of(steps: JobReplay, job: Job) -> str:
    """Who the step gets shorter by most for if it takes a tenth less time: the link, or the rank that does most."""
    transfers = (steps.ops["kind"] != "compute").to_numpy()
    link, own = (steps.scaled(chosen, _LESS).step_ms for chosen in (transfers, ~transfers))
    if link < own:
        return "the link between the ranks"
    alone = np.bincount(steps.ops["rank"].to_numpy()[~transfers], steps.own[~transfers])
    return job.names[int(alone.argmax())]
