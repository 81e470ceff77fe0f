"""From a judged run to its entry in the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from advisor.judge import Judgement
from advisor.lens import OUTLIER, Lane, Lens
from advisor.metrics.breakdown import CATEGORIES
from advisor.metrics.operations import pooled
from advisor.metrics.registry import Measurements
from advisor.report import OUTLIERS, Device, LeftOutStep, Run, Source, Steps, Value, Worker
from advisor.text import count, interval, ms, percent, plain, runs_of

_MATCHED: Final = 0.99  # of the time in collectives: less is worth a word
_MOST_ROWS: Final = 100  # of a table of kernels: the rest is a thousandth of the time
_EVERY_ROW: Final = frozenset({"run", "worker", "device", "step"})
_POOLED: Final = frozenset({"launch", "op"})


def summarise(name: str, path: str, found: Measurements, judged: Judgement) -> Run:
    """The report's entry for one run."""
    slowest = found.lens.of(found.pace)
    row = found.frames["run"].row(0, named=True)
    source = _source(path, found.lens, slowest, row)
    run = Run(
        name=plain(name),
        verdict=_verdict(judged, row["step_mean_ms"], marked=slowest.marked),
        source=source.model_copy(update={"notes": (*source.notes, *judged.notes)}),
        breakdown={category: row[f"{category}_share"] or 0.0 for category in CATEGORIES},
        findings=judged.findings,
        not_evaluable=judged.not_evaluable,
        passed=judged.passed,
        not_applicable=judged.not_applicable,
        suppressed=judged.suppressed,
        metrics={scope: tuple(_kept(scope, frame, found.lens).to_dicts()) for scope, frame in found.frames.items()},
    )
    return run.model_copy(update={"verdict": _too_little(run)}) if run.tells_too_little else run


def _too_little(run: Run) -> str:
    """The verdict where most rules could not be judged: how many, and the reason that most of them have."""
    reasons = Counter(why for rule in run.not_evaluable for why in dict.fromkeys(rule.missing.values()))
    no_step = run.source.steps.marked and not run.source.steps.used
    why = "none of its steps is complete" if no_step else reasons.most_common(1)[0][0]
    rules = count(run.judged + len(run.not_evaluable), "rule")
    return f"Too little to judge this job by: {len(run.not_evaluable)} of {rules} could not be judged ({why})."


def _kept(scope: str, frame: pl.DataFrame, lens: Lens) -> pl.DataFrame:
    """What of a table goes into the report: steps and devices all, single launches and ops for all devices together."""
    if scope in _POOLED:
        return pooled(frame, sum(lane.steps.height for lane in lens.lanes))
    return frame if scope in _EVERY_ROW else frame.head(_MOST_ROWS)


def _verdict(judged: Judgement, step_ms: float, *, marked: bool) -> str:
    """One sentence: the first finding and what it is worth, or what the absence of findings means."""
    if not judged.findings:
        could, could_not = len(judged.passed), len(judged.not_evaluable)
        rest = f"; {could_not} more could not be judged" if could_not else ""
        return f"Nothing found by the {could} rules that could be judged{rest}."
    first = judged.findings[0]
    if first.saving is None:
        return f"{first.title}."
    won = first.saving
    if won.high_share > 0:  # of the worker that the finding speaks of, which need not be the slowest
        step_ms = won.high_ms / won.high_share
    whole = f"each {ms(step_ms)} step" if marked else f"the {ms(step_ms)} recorded"
    uneven = " (uneven ones included)" if won.of == OUTLIERS else ""
    return f"{first.title}: {interval(won.low_ms, won.high_ms)} of {whole}{uneven} to win."


def _source(path: str, lens: Lens, lane: Lane, row: Mapping[str, Value]) -> Source:
    profile = lens.profile
    return Source(
        path=plain(path),
        format=profile.format,
        framework=_common(profile.workers["framework"]),
        world_size=_common(profile.workers["world_size"]),
        workers=tuple(
            Worker(**w | {"file": plain(w["file"]), "name": plain(w["name"])})
            for w in profile.workers.select("worker", "rank", "name", "file").to_dicts()
        ),
        devices=_devices(lens),
        steps=_steps(lens, lane, row),
        salvaged=tuple(profile.salvaged),
        notes=tuple(_notes(lens, row)),
        lacks=dict(profile.lacks),
    )


def _notes(lens: Lens, row: Mapping[str, Value]) -> Iterator[str]:
    """What the reader should know of the ranks before trusting what is said of the job."""
    here, job = row.get("ranks_recorded"), row.get("ranks_in_job")
    if isinstance(here, int) and isinstance(job, int) and here < job:
        rest = "what is said of waiting counts only these" if here > 1 else "who waits for whom cannot be told from one"
        names = runs_of(lane.worker for lane in lens.critical)
        yield f"{here} of {job} ranks recorded ({names}): each rank's own numbers hold; {rest}"
    if len(set(lens.profile.workers["world_size"].drop_nulls())) > 1:
        yield "the files disagree on the number of ranks: they may be of different jobs; keep one job per folder"
    if isinstance(shift := row.get("clock_shift_ms"), float) and shift:
        yield f"the ranks' clocks differ by up to {ms(shift)}; aligned by the ends of their collectives"
    if isinstance(matched := row.get("matched_share"), float) and matched < _MATCHED:
        yield f"{percent(1 - matched)} of the time in collectives could not be matched between the ranks"


def _devices(lens: Lens) -> tuple[Device, ...]:
    return tuple(
        Device(
            worker=lane.worker,
            device=lane.device,
            name=lane.facts.get("name"),
            model=lane.gpu.id if lane.gpu else None,
            memory_bytes=lane.facts.get("memory_bytes"),
        )
        for lane in lens.lanes
        if lane.device is not None
    )


def _steps(lens: Lens, lane: Lane, row: Mapping[str, Value]) -> Steps:
    mine = lens.steps.filter(pl.col("worker") == lane.worker, pl.col("device").eq_missing(lane.device))
    left_out = lens.steps.filter(pl.col("left_out").is_not_null()).select(
        "worker",
        "device",
        "step",
        why="left_out",
        step_ms=pl.when(pl.col("incomplete").is_null()).then(pl.col("dur_ns") / 1e6),
        outlier=pl.col("left_out").str.starts_with(OUTLIER),
    )
    return Steps(
        marked=lane.marked,
        count=mine.height if lane.marked else 0,
        used=lane.steps.height if lane.marked else 0,
        step_ms=row["step_ms"],
        step_mean_ms=row["step_mean_ms"],
        left_out=tuple(LeftOutStep(**step) for step in left_out.to_dicts()),
        worker=lane.worker,
    )


def _common(values: pl.Series) -> str | int | None:
    """The value that all workers share, None where they differ."""
    distinct = values.unique()
    return distinct.item() if len(distinct) == 1 else None
