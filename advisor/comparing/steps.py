"""Step times of two sets of runs, what can be said of them, and what keeps it from being told: a busy machine, say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Final, NamedTuple, Self

import numpy as np

from advisor.comparing.significance import Contrast, Cycle, contrast, mean_contrast, wander
from advisor.model.comparison import Obstacle, Series, Side, Verdict
from advisor.model.intervals import Floats
from advisor.model.reason import REMARKS, Reason, remark
from advisor.model.report import Run, Unreadable, number
from advisor.text import listing, one_line

# A smaller change of the step time is none (NVBench, perfgate and rustc-perf agree on the order of magnitude)
LEAST_EFFECT: Final = 0.02
_LEAST_ON_CPUS: Final = 0.05  # own choice: of ten simulated pairs of one program, one differed by more than 2 %
SEVERAL: Final = 3  # runs of a side that show how far a busy machine moves the step from one to the next
_VARIES: Final = 2  # as few steps as have a variance
_SAME: Final = 0.05  # what an interval has to rule out before two sides count as the same


@dataclass(frozen=True, slots=True)
class Pair:
    """The runs of both sides, what was measured of each over the ranks that count, and their steps side by side."""

    base: Sequence[Run]
    head: Sequence[Run]
    ranks: frozenset[int]  # those that all runs recorded, or any where they have none in common
    before: Side
    after: Side
    change: Contrast | None

    @classmethod
    def of(
        cls, base: Sequence[Run], head: Sequence[Run], unread: Sequence[Sequence[Unreadable]], phase: str | None
    ) -> Self:
        """At least one run of each side, and what could not be read of it; where a phase is given, over its steps."""
        recorded = [frozenset(worker.worker for worker in run.source.workers) for run in (*base, *head)]
        ranks = frozenset.intersection(*recorded) or frozenset.union(*recorded)
        unprofiled = phase is None and are_unprofiled([*base, *head])
        sides = zip((base, head), unread, strict=True)
        before, after = (side(runs, ranks, files, phase, unprofiled=unprofiled) for runs, files in sides)
        return cls(base, head, ranks, before, after, contrasted(before, after))

    @property
    def is_per_step(self) -> bool:
        """Whether both sides' times are of a step."""
        return self.before.per == self.after.per == "step"

    @property
    def is_of_means(self) -> bool:
        """Whether the verdict is about mean steps, not typical ones."""
        return self.change is not None and self.change.of == "mean"

    @property
    def times_ms(self) -> tuple[float | None, float | None]:
        """The steps of both sides that the verdict is about; None where a side has none."""
        before, after = self.before, self.after
        return (before.mean_ms, after.mean_ms) if self.is_of_means else (before.median_ms, after.median_ms)


def pace(run: Run, ranks: frozenset[int]) -> int | None:
    """The rank whose step is taken apart: that which sets the run's pace, or the slowest of those that count."""
    own = run.source.steps.worker
    if own is None or own in ranks:
        return own
    rows = [row for row in run.metrics.get("device", ()) if row.get("worker") in ranks]
    slowest = max(rows, key=lambda row: number(row, "step_mean_ms"), default={}).get("worker")
    return slowest if isinstance(slowest, int) else None


def are_unprofiled(runs: Sequence[Run]) -> bool:
    """Whether the recorder timed steps of all runs without the profiler and without waits for other programs."""
    return all(run.source.steps.unprofiled_steps_ms for run in runs)


def side(
    runs: Sequence[Run], ranks: frozenset[int], unread: Sequence[Unreadable], phase: str | None, *, unprofiled: bool
) -> Side:
    """What was measured of one side, over the ranks that count, and where a phase is given, over its steps.

    With `unprofiled` its steps are those that were timed without the profiler.
    """
    series = tuple(_series(run, ranks, phase, unprofiled=unprofiled) for run in runs)
    times = np.array([time for run in series for time in run.steps_ms])
    mean = _cycle(series).mean if len(times) else None
    sizes = {_world_size(run) for run in runs}
    timed = [run.source.steps for run in runs if run.source.steps.step_mean_ms and run.accounting]
    return Side(
        series=series,
        steps=len(times),
        median_ms=float(np.median(times)) if len(times) else None,
        mean_ms=mean,
        cv=float(times.std(ddof=1)) / mean if mean and len(times) > 1 else None,
        devices=tuple(sorted({d.name or d.model or "unnamed device" for run in runs for d in run.source.devices})),
        world_size=sizes.pop() if len(sizes) == 1 else None,
        unreadable=sum(1 + len(file.others) for file in unread),
        per=None if len(timed) < len(runs) else "step" if all(of.marked for of in timed) else "recording",
        is_unprofiled=unprofiled,
    )


def _series(run: Run, ranks: frozenset[int], phase: str | None, *, unprofiled: bool) -> Series:
    times = dict(enumerate(run.source.steps.unprofiled_steps_ms)) if unprofiled else _step_times(run, ranks, phase)
    devices = () if unprofiled else run.metrics.get("device", ())
    every = max((int(number(row, "recurring_every")) for row in devices), default=0)
    recurs = sorted({step % every for step in times}) if every > 0 else []
    # The places of the steps that recur: of those so far from each other the longest.
    phases = [[place for place, step in enumerate(times) if step % every == phase] for phase in recurs]
    lengths = list(times.values())
    longest = max(filter(None, phases), key=lambda places: np.mean([lengths[at] for at in places]), default=[])
    return Series(
        run=run.name,
        steps_ms=tuple(times.values()),
        recurring=tuple(longest) if _VARIES <= len(longest) <= len(times) - _VARIES else (),
        every=every,
        worker=pace(run, ranks),
        tells_too_little=run.tells_too_little,
    )


def _cycle(series: Sequence[Series]) -> Cycle:
    recurring = [run.steps_ms[at] for run in series for at in run.recurring]
    usual = [time for run in series for at, time in enumerate(run.steps_ms) if at not in run.recurring]
    timed = [run for run in series if run.steps_ms]
    part = sum(1 / run.every for run in timed if run.recurring) / max(1, len(timed))
    runs = [np.mean(run.steps_ms) for run in timed]
    return Cycle(np.array(usual), np.array(recurring), part, np.array(runs))


def _step_times(run: Run, ranks: frozenset[int], phase: str | None) -> Mapping[int, float]:
    """Milliseconds of each complete step that did not compile, in order: outliers are part of what a job takes.

    A step is as long as its slowest rank's.
    """
    if not run.source.steps.marked:
        return {}
    rows = run.metrics.get("step", ())
    used = [(row["step"], row["worker"], row["step_ms"]) for row in rows if phase in {None, row.get("phase")}]
    outliers = [(s.step, s.worker, s.step_ms) for s in run.source.steps.left_out if s.why.code == "outlier"]
    longest: dict[int, float] = {}
    for step, worker, time in chain(used, outliers):
        if worker in ranks and isinstance(step, int) and isinstance(time, int | float) and time > 0:
            longest[step] = max(longest.get(step, 0.0), float(time))
    return {step: longest[step] for step in sorted(longest)}


def contrasted(base: Side, head: Side) -> Contrast | None:
    """Both sides' step times held against each other; None where a side has none.

    Medians; means where something recurs every few steps, because a median leaves that out, and where each side has
    three runs or more: they differ by more than their steps explain, as on a busy machine.
    """
    before, after = _samples(base), _samples(head)
    enough = min(base.steps, head.steps) >= _VARIES
    recurs = any(run.recurring for side in (base, head) for run in side.series)
    if before and after and enough and (recurs or (base.is_unprofiled and min(len(before), len(after)) >= SEVERAL)):
        return mean_contrast(_cycle(base.series), _cycle(head.series))
    return contrast(before, after) if before and after else None


def _samples(side: Side) -> list[Floats]:
    return [np.array(run.steps_ms) for run in side.series if run.steps_ms]


def least_change(base: Side) -> float:
    """The least change that counts: 2 %, 5 % on CPUs, or how far ten or more runs of the base stray by themselves."""
    return max(LEAST_EFFECT if base.devices else _LEAST_ON_CPUS, wander(_samples(base)) or 0.0)


class Decided(NamedTuple):
    """A verdict, what it rests on, and what keeps it inconclusive."""

    verdict: Verdict
    reason: Reason
    obstacle: Obstacle | None = None


def verdict(pair: Pair) -> Decided:
    """What can be said of the step times, and why that or nothing."""
    if unlike := incomparable(pair):
        obstacle, reason = unlike[0]
        return Decided("inconclusive", reason, obstacle)
    if (change := pair.change) is None:
        return _untimed(pair)
    if change.undecidable:
        return Decided("inconclusive", remark("few_steps", base=pair.before.steps, head=pair.after.steps), "few-steps")
    least = least_change(pair.before)
    if change.differs(least):
        if cost := _recording_costs(pair, change.ratio, least):
            return Decided("inconclusive", cost, "profiler")
        return Decided("slower" if change.ratio > 1 else "faster", _tested("steps_differ", pair, change))
    return _alike(pair, change, max(_SAME, least))


def _tested(code: str, pair: Pair, change: Contrast, **facts: float | str) -> Reason:
    return remark(code, **facts, p=change.p, base=pair.before.steps, head=pair.after.steps)


def _untimed(pair: Pair) -> Decided:
    sides = (("base", pair.base, pair.before), ("head", pair.head, pair.after))
    without = [(name, runs) for name, runs, timed in sides if not timed.steps]
    lacking = listing([name for name, _ in without])
    code = "no_complete_step"
    if not all(run.source.steps.marked for _, runs in without for run in runs):
        formats = {run.source.format for _, runs in without for run in runs}
        own = f"no_marked_step_{formats.pop()}" if len(formats) == 1 else ""
        code = own if own in REMARKS else "no_marked_step"
    return Decided("inconclusive", remark(code, sides=lacking), "no-steps")


def _alike(pair: Pair, change: Contrast, margin: float) -> Decided:
    """Steps that do not differ are the same only where a change that matters can be excluded."""
    before, after = pair.before, pair.after
    if sorted(series.steps_ms for series in before.series) == sorted(series.steps_ms for series in after.series):
        return Decided("same", remark("one_recording"))
    if change.within(margin):
        return Decided("same", _tested("change_excluded", pair, change, share=margin))
    earlier = {series.steps_ms for series in before.series}
    shared = sorted({series.run for series in after.series if series.steps_ms and series.steps_ms in earlier})
    if shared:
        runs = one_line(listing(shared), 200)
        return Decided("inconclusive", _tested("shared_recording", pair, change, runs=runs), "noise")
    code = "noise_of_runs" if before.is_unprofiled and change.of == "mean" else "noise"
    return Decided("inconclusive", _tested(code, pair, change, low=change.low, high=change.high), "noise")


def incomparable(pair: Pair) -> list[tuple[Obstacle, Reason]]:
    """Other hardware or another number of ranks: a difference in speed would say nothing about the change."""
    base, head = pair.base, pair.head
    obstacles = list[tuple[Obstacle, Reason]]()
    if len({_models(run) for run in (*base, *head)}) > 1:
        models = (sorted(frozenset[str]().union(*map(_models, runs))) for runs in (base, head))
        before, after = (listing([one_line(model, 80) for model in of]) or "no device" for of in models)
        mixed, other = remark("mixed_hardware", models=before), remark("other_hardware", base=before, head=after)
        obstacles.append(("hardware", mixed if before == after else other))
    if len({_world_size(run) for run in (*base, *head)}) > 1:
        sizes = (sorted({_world_size(run) for run in runs}) for runs in (base, head))
        before, after = (listing([*map(str, of)]) for of in sizes)
        mixed, other = remark("mixed_world_size", ranks=before), remark("other_world_size", base=before, head=after)
        obstacles.append(("world-size", mixed if before == after else other))
    return obstacles


def _models(run: Run) -> frozenset[str]:
    """What a run ran on; the model where it is known, because drivers changed how they name it."""
    return frozenset(d.model or d.name or "unnamed device" for d in run.source.devices)


def _world_size(run: Run) -> int:
    return run.source.world_size or len(run.source.workers)


def _recording_costs(pair: Pair, ratio: float, least: float) -> Reason | None:
    """Why the verdict does not hold if what recording costs differs between the sides by enough to be the change."""
    base_ms, is_free = pair.before.median_ms, are_unprofiled([*pair.base, *pair.head])
    costs = [0.0 if is_free else _overhead_ms(runs) for runs in (pair.base, pair.head)]
    extra = (costs[1] - costs[0]) / base_ms if base_ms else 0.0
    slower = ratio > 1
    unexplained = ratio - (max(extra, 0) if slower else min(extra, 0))
    if unexplained >= 1 + least if slower else unexplained <= 1 / (1 + least):
        return None
    return remark("profiler_costs", base=costs[0], head=costs[1])


def _overhead_ms(runs: Sequence[Run]) -> float:
    """What recording costs per step: the profiler's own work or, if more, that of recording each op."""
    rows = [run.of_job for run in runs if run.of_job]
    shares = (max(number(row, of) for of in ("profiler_share", "tracing_share")) for row in rows)
    costs = [share * number(row, "step_mean_ms") for share, row in zip(shares, rows, strict=True)]
    return float(np.mean(costs)) if costs else 0.0


_BUSY: Final = 0.2  # of a step: so much waiting changes the pace of the work between the waits too
_QUIET: Final = 0.05


class Load(NamedTuple):
    """Whether hardly any step waited for a CPU because of other programs, and why that leaves no verdict, if so."""

    is_quiet: bool
    obstacle: Reason | None

    @classmethod
    def of(cls, pair: Pair) -> Self | None:
        """None where a recorder did not note the waits, or the steps are a device's, which runs on meanwhile.

        A step without its waits still varies by a third from one busy run to the next; three runs of each side show by
        how much.
        """
        runs = [*pair.base, *pair.head]
        steps = [[run.source.steps for run in side] for side in (pair.base, pair.head)]
        unknown = any(step.unprofiled_delay_ms is None for side in steps for step in side)
        if not pair.before.is_unprofiled or unknown or any(run.source.devices for run in runs):
            return None
        waits = [[step.unprofiled_delay_ms or 0.0 for step in side] for side in steps]
        pairs = ((step.unprofiled_delay_ms or 0.0, step.unprofiled_ms or 0.0) for side in steps for step in side)
        most = max(wait / (wait + step) if wait else 0.0 for wait, step in pairs)
        if most < _BUSY or min(map(len, waits)) >= SEVERAL:
            return cls(most <= _QUIET, None)
        base, head = map(fmean, waits)
        return cls(is_quiet=False, obstacle=remark("busy_sides", runs=SEVERAL, base=base, head=head))
