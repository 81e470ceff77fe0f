"""A checked run as rows of the store, and a stored run as something that can be judged again."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import msgspec
import polars as pl

from advisor import __version__
from advisor.fleet.columns import OF_FINDING, OF_RUN, values
from advisor.metrics import METRICS, Measurements, Metric, dtypes
from advisor.metrics.metric import table_of
from advisor.metrics.selection_kinds import Kind
from advisor.metrics.selection_numbers import Measured
from advisor.metrics.stored_names import NAME_METRICS, Names, answer
from advisor.model.finding import Place, Value
from advisor.model.frozen import Frozen
from advisor.model.missing import Missing
from advisor.model.notes import FRAGMENT, Note
from advisor.model.reason import Reason
from advisor.model.report import Run
from advisor.model.timeline import Timeline
from advisor.rules.judge import Suppression
from advisor.rules.measured_run import MeasuredRun
from advisor.rules.rule_file import Rule
from advisor.vocabulary.formerly import in_json

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[str, list[Row]]
"""Rows by table of the store."""

Trials: TypeAlias = Mapping[str, tuple[float, float]]
"""What the fixes of findings saved of the step when they were tried, both ends, by rule."""

_NAME_COLUMNS: Final = [metric.name for metric in NAME_METRICS.values()]
_STORED_SCOPES: Final = frozenset({"run", "worker", "device", "step"})


class Context(Frozen):
    """What judging a run again needs beside its report.

    `notes` are those on what was read, `file_notes` those on its files. Keys of places are `metric/worker`. `selected`
    has what each metric of a selection measured, by its name: a rule may call another selection so later.
    """

    frameworks: Mapping[int, str | None]
    used_steps: Mapping[int, tuple[int, ...] | None]
    reasons: Mapping[str, Reason]
    notes: tuple[Reason, ...]
    file_notes: tuple[Reason, ...]
    places: Mapping[str, tuple[Place, ...]]
    selected: Mapping[str, str] = {}


def context_of(
    run: MeasuredRun, metrics: Sequence[Metric], notes: Sequence[Reason], file_notes: Sequence[Note]
) -> Context:
    """What has to be kept of a run for which these metrics of selections were measured, all of it small."""
    selected = {metric.name: metric for metric in metrics if metric.name not in _NAME_COLUMNS}
    spots = {
        f"{name}/{worker}": tuple(Place.model_validate(row) for row in rows.to_dicts())
        for name, metric in (METRICS | selected).items()
        if metric.where is not None
        for worker in run.workers
        if (rows := run.places(name, worker)).height
    }
    return Context(
        frameworks=run.frameworks,
        used_steps=run.used_steps,
        reasons={name: Reason.of(why) for name, why in run.reasons.items()},
        notes=tuple(notes),
        file_notes=tuple(map(Reason.of, file_notes)),
        places=spots,
        selected={name: _what(metric) for name, metric in selected.items()},
    )


def _what(metric: Metric) -> str:
    """A short name of what a metric of a selection measures."""
    return hashlib.blake2b(metric.formula.encode(), digest_size=6).hexdigest()


def without_names(measurements: Measurements) -> tuple[Measurements, str]:
    """The measurements without the names of what ran, and those as JSON."""
    frames = {scope: rows.drop(_NAME_COLUMNS, strict=False) for scope, rows in measurements.frames.items()}
    columns = {f"names_of_{kind}": kind for kind in NAME_METRICS}
    rows = measurements.frames["worker"].select("worker", *columns).rename(columns).to_dicts()
    names = {
        str(row.pop("worker")): {kind: msgspec.Raw(of.encode()) for kind, of in row.items() if of is not None}
        for row in rows
    }
    return replace(measurements, frames=frames), msgspec.json.encode(names).decode()


class Drawing(Frozen):
    """What is large in a run's report and only drawn: its timeline, the tables of kernels, operators and such."""

    metrics: Mapping[str, tuple[Mapping[str, Value], ...]]
    timeline: Timeline | None


def as_measured(
    run: Run, context: Context, names: Mapping[str, Mapping[Kind, Names]], selected: Sequence[Metric] = ()
) -> MeasuredRun:
    """A run out of the store, as the judge asks for it: the metrics in its report, and what was kept beside.

    `names` are those of what ran on each worker; they answer for those of the `selected` metrics that the run lacks.
    """
    (of_run,) = run.metrics["run"]
    later = [metric for metric in selected if context.selected.get(metric.name) != _what(metric)]

    def complete(row: Mapping[str, Value]) -> dict[str, Any]:
        values = {metric.name: answer(metric, names.get(str(row["worker"]), {})) for metric in later}
        return {**row, **{name: None if isinstance(value, Missing) else value for name, value in values.items()}}

    of_job = {name: value for name, value in of_run.items() if name in METRICS and METRICS[name].scope == "run"}
    workers = [complete({**row, **of_job}) for row in run.metrics["worker"]]
    types = {"worker": pl.Int32(), "device": pl.Int32(), **dtypes(), **{m.name: m.dtype for m in selected}}
    return MeasuredRun(
        format=run.source.format,
        pace=run.source.steps.worker or 0,
        is_fragment=any(note.code == FRAGMENT for note in run.source.salvaged),
        reasons=_reasons(of_run, context, later),
        frames={"run": table_of([complete(of_run)], types), "worker": table_of(workers, types)},
        frameworks=context.frameworks,
        used_steps=context.used_steps,
        places=lambda metric, worker: pl.DataFrame(
            [p.model_dump() for p in context.places.get(f"{metric}/{worker}", ())]
        ),
    )


def _reasons(then: Mapping[str, Value], context: Context, later: Sequence[Metric]) -> Mapping[str, Missing]:
    """Why a metric is null; one that came later was never measured: the recording lacks it, or the store."""
    stored = {name: Missing(why.code, **why.facts) for name, why in context.reasons.items()}
    newer = {name: Missing("measured_by_newer_version") for name in METRICS if name not in then}
    of_kinds = {kind: stored[metric.name] for kind, metric in NAME_METRICS.items() if metric.name in stored}
    unmeasured = dict.fromkeys((metric.name for metric in later), Missing("stored_before_rule"))
    for metric in later:
        if isinstance(metric.of, Measured) and metric.of.selector.kind in of_kinds:
            unmeasured[metric.name] = of_kinds[metric.of.selector.kind]
    return {**newer, **stored, **unmeasured}


def rule_set(rules: Mapping[str, Rule], silenced: Mapping[str, Suppression]) -> str:
    """A short name of all that judging depends on: another rule, limit or suppression gives another."""
    texts = [[rule.model_dump(mode="json"), *map(_what, rule.selected.values())] for rule in rules.values()]
    quiet = [(name, s.reason, s.until, s.expired) for name, s in sorted(silenced.items())]
    return hashlib.blake2b(json.dumps([texts, quiet], sort_keys=True).encode(), digest_size=6).hexdigest()


def measured_rows(run: Run, names: str, hosts: Mapping[int, str], host: str | None) -> Rows:
    """The rows that a new rule set does not change: those of the run's workers."""
    ranks = {worker.worker: worker.rank for worker in run.source.workers}
    gpus = {(device.worker, device.device): device.model or device.name for device in run.source.devices}
    rows = []
    for scope in ("run", "worker"):
        for row in run.metrics[scope]:
            worker, device = row["worker"], row["device"]
            assert isinstance(worker, int)  # noqa: S101 - the frame's key
            gpu = gpus.get((worker, device)) if isinstance(device, int) else None
            about = {"scope": scope, "rank": ranks.get(worker), "host": hosts.get(worker, host), "gpu": gpu}
            rows.append({**row, **about})
    tables = {scope: of for scope, of in run.metrics.items() if scope not in _STORED_SCOPES}
    drawing = Drawing(metrics=tables, timeline=run.timeline)
    return {"workers": rows, "drawings": [{"drawing": drawing.model_dump_json(), "names": names}]}


def judged_rows(run: Run, context: Context, rules: str, trials: Trials) -> Rows:
    """The rows that a new rule set changes; the row of `runs` lacks what is known beside the profile."""
    tables = {scope: rows for scope, rows in run.metrics.items() if scope in _STORED_SCOPES}
    small = run.model_copy(update={"metrics": tables, "timeline": None})
    about = {
        "status": "checked",
        "name": run.name,
        "path": run.source.path,
        **values(OF_RUN, run),
        "rule_set": rules,
        "advisor_version": __version__,
    }
    report = {"report": small.model_dump_json(), "kept": context.model_dump_json()}
    return {"runs": [about], "findings": list(_findings(run, trials)), "reports": [report]}


def _findings(run: Run, trials: Trials) -> Iterator[Row]:
    for rank, finding in enumerate(run.findings, start=1):
        tried_low, tried_high = trials.get(finding.rule, (None, None))
        tried = {"tried_low_share": tried_low, "tried_high_share": tried_high}
        yield {**values(OF_FINDING, finding), "rank": rank, **tried}
    for quiet in run.suppressed:
        yield {"rule": quiet.rule, "title": quiet.title, "severity": quiet.severity, "suppressed": quiet.reason}


def as_checked(report: str, drawing: str | None) -> Run:
    """A run's entry in the report of `advisor check`, out of the tables `reports` and `drawings`.

    Without a drawing (an older version wrote none) it lacks what is drawn. Of what a drawing shows of findings, those
    that the run no longer has are left out.
    """
    run = Run.model_validate_json(in_json(report))
    if drawing is None:
        return run
    large = Drawing.model_validate_json(in_json(drawing))
    keys = {finding.key for finding in run.findings}
    timeline = large.timeline and large.timeline.model_copy(
        update={"shows": {key: spans for key, spans in large.timeline.shows.items() if key in keys}}
    )
    return run.model_copy(update={"metrics": {**run.metrics, **large.metrics}, "timeline": timeline})


def stored(report: str, context: str, names: str | None = None) -> tuple[Run, Context, dict[str, dict[Kind, Names]]]:
    """A run out of the store's tables: its report without what is drawn, what was kept beside, what ran by name."""
    tables = msgspec.json.decode(names or "{}", type=dict[str, dict[Kind, Names]])
    return Run.model_validate_json(in_json(report)), Context.model_validate_json(in_json(context)), tables
