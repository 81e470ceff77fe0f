"""Scenarios: what a step takes, and who sets the pace, with changes that a user names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView, Selection, classes
from advisor.analysis.job.job import job_of
from advisor.analysis.job.job_replay import MOST_ERROR, replayed
from advisor.analysis.job.rank import Rank, rank_of
from advisor.analysis.job.segments import COMPUTE, HOST
from advisor.analysis.job.stragglers import START
from advisor.analysis.job.stragglers import Replay as JobReplay
from advisor.errors import UsageError
from advisor.inputs.names.kernels import classify
from advisor.model.arrays import Floats, Ints, Mask
from advisor.model.intervals import Intervals
from advisor.text import percent
from advisor.whatif.change import Change, Edit, faster, sooner, together, without_waits
from advisor.whatif.replay import Replay
from advisor.whatif.savings import Interval, is_replayed, recorded, replay_error, saved

FORMS: Final = "input=0, input=2x, kernels:gemm=2x, waits=0; of a job of several ranks: link=2x, rank:2=typical"
_FORM: Final = re.compile(r"(input|kernels:.+|waits|link|rank:\d{1,9})=(0|typical|\d{1,6}(?:\.\d{1,6})?x)")
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
            raise UsageError(f"--change {text}: no change; write one of {FORMS}")
        speed = float(form[2].removesuffix("x")) if form[2] not in {"0", "typical"} else 0.0
        if form[2].endswith("x") and not speed:
            raise UsageError(f"--change {text}: how many times as fast? as in {what}=2x")
        return cls(text, what, of, np.nan if what == "rank" else 1 / speed if speed else 0.0)

    def refused(self, why: str) -> UsageError:
        """Why it cannot be replayed."""
        return UsageError(f"--change {self.text}: cannot be replayed: {why}")


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
    terms = [Term.parse(text) for text in changes]
    views = selection.critical
    return _of_device(views[0], terms) if len(views) == 1 else _of_job([rank_of(view) for view in views], terms)


# One rank


def _of_device(view: DeviceView, terms: Sequence[Term]) -> Scenario:
    changes = [_change(view, term) for term in terms]
    if not is_replayed(view) and terms:
        off = replay_error(view)
        why = (
            "nothing links a device's work to calls of the host" if off is None else f"it is off by {percent(abs(off))}"
        )
        raise terms[0].refused(f"{why} without any change")
    step_ms = view.per_step_ms(view.total_ns)
    stages = [
        Stage(term.text, step_ms - most, step_ms - least, _pace(view, together(*changes[:number]).most.edit))
        for number, term in enumerate(terms, 1)
        for least, most in [_saved(view, changes[:number])]
    ]
    return Scenario(step_ms, _pace(view, Edit()), tuple(stages))


def _change(view: DeviceView, term: Term) -> Change:
    if term.what == "input":
        waits = view.host_spans("input")
        if not waits.total:
            raise term.refused("no wait for input was recorded")
        return sooner(waits, waits.total, (term.rest, term.rest))
    if term.what == "waits":
        return without_waits(0.0)
    if term.what != "kernels":
        raise term.refused("one rank does not show what it waits for; give the folder with the traces of all ranks")
    kernels = view.used_ops.filter(pl.col("kind") == "kernel").join(view.once(classes), on="name", how="left")
    kernels = kernels.filter(_is_of(term))
    if not kernels.height:
        raise term.refused(f"no kernel is of family or name {term.of}")
    time = pl.col("dur_ns") * term.rest
    return faster(kernels, time, time)


def _is_of(term: Term) -> pl.Expr:
    """Whether kernels, with `name` and `family`, are meant: of that family, or with these letters in the name."""
    letters = pl.col("name").cast(pl.String).str.to_lowercase().str.contains(term.of.lower(), literal=True)
    return (pl.col("family").cast(pl.String) == term.of.lower()) | letters


def _saved(view: DeviceView, changes: Sequence[Change]) -> Interval:
    """What they save together; nothing where a loader sets the pace that none of them makes faster.

    The ends are those on the host as recorded, and on one that no profiler slows down.
    """
    steps, change = view.once(recorded), together(*changes)
    if steps and len(steps.late) and not change.most.edit.hurries(steps):
        return Interval(0.0, 0.0)
    least, most = (replace(end, worlds=("recorded", "unprofiled")) for end in (change.least, change.most))
    return saved(view, Change(least, most))


def _pace(view: DeviceView, edit: Edit) -> str:
    """What the step gets shorter by most if it takes a tenth less time."""
    steps = view.once(recorded)
    if steps is None:
        return "unknown"
    changed = edit.on(steps)
    late = Intervals.of(changed.late_from, changed.late_until)
    less: Mapping[str, Callable[[Replay], Replay]] = {
        "the data loader": lambda these: these.without_host(late, _LESS),
        "the GPU": lambda these: these.with_durations(these.op, np.rint(these.dur * _LESS).astype(np.int64)),
        "the host": lambda these: these.with_host(_LESS),
    }
    return max(less, key=lambda who: changed.saved_ms(less[who](changed)))


# Several ranks


def _of_job(ranks: Sequence[Rank], terms: Sequence[Term]) -> Scenario:
    job = job_of(ranks)
    steps = None if job.missing else job.once(replayed)
    if steps is None or abs(steps.error) > MOST_ERROR:
        why = job.missing.words if job.missing else "the replay of the unchanged steps is off by more than 5 %"
        raise UsageError(f"the ranks cannot be replayed together: {why}")
    times = JobTimes.of(steps)
    stages = list[Stage]()
    for term in terms:
        times = times.after(term, ranks)
        ends = (times.step_ms * (1 - abs(steps.error)), times.step_ms * (1 + abs(steps.error)))
        stages.append(Stage(term.text, *ends, times.pace(ranks)))
    return Scenario(steps.step_ms, JobTimes.of(steps).pace(ranks), tuple(stages))


@dataclass(frozen=True, slots=True)
class JobTimes:
    """What the operations of a job take without waiting, in ns, shape (ops,), and what those like them typically do."""

    steps: JobReplay
    own: Floats
    typical: Floats

    @classmethod
    def of(cls, steps: JobReplay) -> JobTimes:
        """Those that were recorded."""
        return cls(steps, steps.recorded.astype(np.float64), steps.typical.astype(np.float64))

    @property
    def step_ms(self) -> float:
        """The mean step, in ms."""
        durations: Ints = np.rint(self.own).astype(np.int64)[:, None]
        return float(self.steps.graph.step_ns(durations).mean()) / 1e6

    def with_typical(self, column: str, value: object) -> JobTimes:
        """With the operations of one rank, stage or type as long as those like them typically are."""
        chosen = (self.steps.ops[column] == value).fill_null(value=False).to_numpy()
        return JobTimes(self.steps, np.where(chosen, self.typical, self.own), self.typical)

    def _like_others(self, place: int) -> JobTimes:
        """With a rank's operations as long as those like them are on the mean of the other ranks."""
        ops = self.steps.ops.with_columns(took=pl.Series(self.own))
        alike = ["kind", "type", "group"]
        others = ops.filter(pl.col("rank") != place, pl.col("type") != START).group_by(alike).agg(usual=pl.mean("took"))
        usual = ops.join(others, on=alike, how="left", maintain_order="left")["usual"].to_numpy()
        typical = np.where(np.isnan(usual), self.typical, usual)
        return JobTimes(self.steps, np.where(ops["rank"] == place, typical, self.own), self.typical)

    def scaled(self, chosen: Mask, rest: float | Floats) -> JobTimes:
        """With a part of the time of some operations."""
        part = np.where(chosen, rest, 1.0)
        return JobTimes(self.steps, self.own * part, self.typical * part)

    def after(self, term: Term, ranks: Sequence[Rank]) -> JobTimes:
        """With one more change.

        Raises:
            UsageError: it cannot be replayed.
        """
        ops = self.steps.ops
        if term.what == "rank":
            place = next((n for n, rank in enumerate(ranks) if rank.worker == int(term.of)), None)
            if place is None or not (ops["rank"] == place).any():
                raise term.refused(f"there is no rank {term.of} in the steps that all ranks recorded")
            return self._like_others(place)
        if term.what == "link":
            transfers = (ops["kind"] != "compute").to_numpy() & ops["instance"].is_not_null().to_numpy()
            if not transfers.any():
                raise term.refused("no collective shows how much of it is transfer and how much waiting")
            return self.scaled(transfers, term.rest)
        if term.what == "input":
            parts = [self._with_input(n, rank, term.rest) for n, rank in enumerate(ranks)]
            kind = HOST
        elif term.what == "kernels":
            parts = [np.where(ops["rank"] == n, _rest(rank, term), 0.0) for n, rank in enumerate(ranks)]
            kind = COMPUTE
        else:
            raise term.refused("who waits for the device is replayed of one rank alone; give one trace")
        part = np.sum(parts, axis=0)
        if (part[(ops["type"] == kind).to_numpy()] == 1).all():
            raise term.refused("nothing of it was recorded")
        return self.scaled((ops["type"] == kind).to_numpy(), part)

    def _with_input(self, place: int, rank: Rank, rest: float) -> Floats:
        """Of the rank's operations the part left of the host's idle time in each step; 0 of other ranks'."""
        ops = self.steps.ops.select("rank", "step", "type").with_columns(took=pl.Series(self.own))
        idle = ops.filter(rank=place, type=HOST).group_by("step").agg(pl.sum("took"))
        waits = rank.steps.select(pl.col("step").cast(pl.Int64), "input_ns")
        share = (pl.col("input_ns") / pl.col("took")).clip(0, 1)
        rest_of_step = idle.join(waits, on="step").select("step", left=1 - (1 - rest) * share.fill_nan(0))
        of_rank = ops.join(rest_of_step, on="step", how="left", maintain_order="left")["left"].fill_null(1.0)
        return np.where(ops["rank"] == place, of_rank, 0.0)

    def pace(self, ranks: Sequence[Rank]) -> str:
        """Who the step gets shorter by most for if it takes a tenth less time: the link, or the rank that does most."""
        ops = self.steps.ops
        transfers = (ops["kind"] != "compute").to_numpy()
        link, own = (self.scaled(chosen, _LESS).step_ms for chosen in (transfers, ~transfers))
        if link < own:
            return "the link between the ranks"
        alone = ops.with_columns(took=pl.Series(self.own)).filter(kind="compute").group_by("rank").agg(pl.sum("took"))
        place = int(alone.sort("took", "rank", descending=[True, False])["rank"][0])
        return f"rank {ranks[place].worker}"


def _rest(rank: Rank, term: Term) -> float:
    """The part of a rank's kernel time that is left."""
    kernels = rank.kernels.with_columns(family=classify(rank.kernels["name"])["family"])
    total, chosen = (float(rows["total_ns"].to_numpy().sum()) for rows in (kernels, kernels.filter(_is_of(term))))
    return 1 - (1 - term.rest) * chosen / total if total else 1.0
