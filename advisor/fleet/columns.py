"""The tables of the fleet's store and their columns: what each has of a run or a finding stands beside its type.

| table | one row per |
| --- | --- |
| runs | run, and file or folder that could not be read |
| findings | finding of a run, suppressed ones included |
| workers | worker of a run, and one (`scope` run) for the job as a whole; a column per metric |
| reports | run: its report as JSON, and what judging it again needs |
| drawings | run: what its report only draws, as JSON, and what ran by name: large, and judging changes none of it |
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
import polars as pl

from advisor import __version__
from advisor.config import MOST_HOURS
from advisor.metrics import METRICS, Measurements, Metric, dtypes
from advisor.metrics.metric import NAMES, table_of
from advisor.metrics.selection_gains import Measured
from advisor.metrics.selectors import Kind
from advisor.metrics.stored_names import NAME_METRICS, Names, answer
from advisor.model.clause import FRAGMENT, Missing, Note
from advisor.model.finding import CERTAINTY, Finding, Place, Value
from advisor.model.reason import Frozen, Reason
from advisor.model.report import Run, Timeline
from advisor.rules.evaluation import MeasuredRun
from advisor.rules.judge import Suppression
from advisor.rules.rule_file import Rule
from advisor.vocabulary import formerly
from advisor.vocabulary.formerly import in_json

Schema = dict[str, Any]
_Rows = TypeVar("_Rows", pl.DataFrame, pl.LazyFrame)

WEEK: Final = "week"
KEYS: Final[Schema] = {"week": pl.String, "recording": pl.String, "run_id": pl.String}
_TIME: Final = pl.Datetime("us", "UTC")
UNPROFILED: Final = "unprofiled"  # the status of a folder with labelled GPU-hours and no profile
LABELS: Final = ("team", "job", "owner", "model", "commit")
_LISTS: Final = ("passed", "not_evaluable")  # ids of rules
_HOURS_PER_MS: Final = 1 / 3.6e6
_LEAST: Final = dict.fromkeys(("gpu_hours", "recorded_hours", "price"), 0.0)


class Column(NamedTuple):
    """A column that a checked run fills: its type, and what it has of a run or of one of its findings."""

    kind: Any
    of: Callable[[Any], object]


def expected(finding: Finding) -> float | None:
    """What to expect of a finding's saving, as a share of the step: the middle, or less where less sure."""
    saving = finding.saving
    if saving is None:
        return None
    return saving.low_share + CERTAINTY[finding.confidence] * (saving.high_share - saving.low_share) / 2


def _recorded_hours(run: Run) -> float | None:
    """GPU-hours in the steps that were used."""
    steps, mean = run.source.steps.used or 1, run.source.steps.step_mean_ms
    return None if mean is None else steps * mean * _HOURS_PER_MS * len(run.source.devices)


def _gpu_type(run: Run) -> str | None:
    types = {device.model or device.name for device in run.source.devices}
    return types.pop() if len(types) == 1 else ("mixed" if types else None)


def _sum(share: Callable[[Finding], float | None]) -> Callable[[Run], float]:
    """Of all findings; parts of the step are promised once, so that they add up."""
    return lambda run: float(min(1.0, sum(share(finding) or 0.0 for finding in run.findings)))


def _saving(name: str) -> Callable[[Finding], Any]:
    return lambda finding: getattr(finding.saving, name, None)


# Columns of `runs`
OF_RUN: Final = {
    "recorded_hours": Column(pl.Float64, _recorded_hours),
    "format": Column(pl.String, lambda run: run.source.format),
    "framework": Column(pl.String, lambda run: run.source.framework),
    "gpu_type": Column(pl.String, _gpu_type),
    "gpus": Column(pl.Int64, lambda run: max(len(run.source.devices), run.source.world_size or 0)),
    "world_size": Column(pl.Int64, lambda run: run.source.world_size),
    "workers": Column(pl.Int64, lambda run: len(run.source.workers)),
    "steps": Column(pl.Int64, lambda run: run.source.steps.used),
    "step_ms": Column(pl.Float64, lambda run: run.source.steps.step_ms),
    "busy_share": Column(pl.Float64, lambda run: run.accounting.busy_share if run.accounting else None),
    # of the step, without what fixes shorten
    "useful_share": Column(pl.Float64, lambda run: run.accounting.needed_share if run.accounting else None),
    # of the step, that all findings' fixes give back
    "low_share": Column(pl.Float64, _sum(_saving("low_share"))),
    "high_share": Column(pl.Float64, _sum(_saving("high_share"))),
    "expected_share": Column(pl.Float64, _sum(expected)),
    "breakdown": Column(
        pl.String,
        lambda run: json.dumps({part.part: part.share for part in run.accounting.parts} if run.accounting else {}),
    ),
    "verdict": Column(pl.String, lambda run: run.verdict),
    "worst": Column(pl.String, lambda run: run.worst),
    # rows that the table of findings has of it
    "findings": Column(pl.Int64, lambda run: len(run.findings) + len(run.suppressed)),
    "passed": Column(pl.List(pl.String), lambda run: list(run.passed)),
    "not_evaluable": Column(pl.List(pl.String), lambda run: [missing.rule for missing in run.not_evaluable]),
}
# Columns of `findings`
OF_FINDING: Final = {
    **{name: Column(pl.String, attrgetter(name)) for name in ("rule", "title", "severity", "confidence")},
    "of": Column(pl.String, _saving("of")),
    **{name: Column(pl.Float64, _saving(name)) for name in ("low_ms", "high_ms", "low_share", "high_share")},
    "expected_share": Column(pl.Float64, expected),
    "worker": Column(pl.Int64, lambda finding: finding.scope.told_of),
    "workers": Column(pl.List(pl.Int64), lambda finding: list(finding.scope.workers)),
    "says": Column(pl.String, lambda finding: finding.says),
    # the first for its framework
    "fix": Column(pl.String, lambda finding: finding.fixes[0].do if finding.fixes else None),
}
SCHEMAS: Final[dict[str, Schema]] = {
    "runs": {
        **KEYS,
        "status": pl.String,  # checked, unreadable, killed, unreachable or unprofiled
        "reason": pl.String,  # why it was not checked
        "name": pl.String,
        "path": pl.String,
        "fingerprint": pl.String,  # changes when a file is written anew
        "digests": pl.List(pl.String),  # one per file, of its content
        "bytes": pl.Int64,
        "started": _TIME,
        "started_from": pl.String,  # label, path or file: where `started` comes from
        "ingested": _TIME,
        **dict.fromkeys(LABELS, pl.String),
        "labels": pl.String,  # all of them, as JSON
        "gpu_hours": pl.Float64,  # as labelled
        "price": pl.Float64,  # of a GPU-hour, as labelled
        **{name: column.kind for name, column in OF_RUN.items()},
        "rule_set": pl.String,
        "advisor_version": pl.String,
    },
    "findings": {
        **KEYS,
        **{name: column.kind for name, column in OF_FINDING.items()},
        "rank": pl.Int64,
        "tried_low_share": pl.Float64,  # that the fix saved when it was tried
        "tried_high_share": pl.Float64,
        "suppressed": pl.String,  # why; null where it is not
    },
    "workers": {
        **KEYS,
        "scope": pl.String,
        "worker": pl.Int32,
        "device": pl.Int32,
        "rank": pl.Int64,
        "host": pl.String,
        "gpu": pl.String,
        **{name: kind for name, kind in dtypes().items() if kind != NAMES},  # which reports have
    },
    "reports": {**KEYS, "report": pl.String, "kept": pl.String},
    "drawings": {**KEYS, "drawing": pl.String, "names": pl.String},
}
TABLES: Final = ("drawings", "reports", "workers", "findings", "runs")  # in the order they are written in
OWN: Final = {"drawings": "drawing", "reports": "report", "workers": "scope", "findings": "rule", "runs": "status"}
"""By table, a column of every version that no other table has."""
LATER_TABLES: Final = frozenset({"drawings"})  # stores of earlier versions have none


def frame(name: str, rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Rows of a table, with all its columns; a row's keys that are no columns are left out."""
    schema = SCHEMAS[name]
    return pl.DataFrame([{column: row.get(column) for column in schema} for row in rows], schema=schema, orient="row")


def of_now(name: str, rows: _Rows) -> _Rows:
    """The rows of a table with the names of now, and with the columns that they lack, as null.

    So is a number of a run or a finding that labels may not have either: sums over all runs stay finite.
    """
    columns = rows.collect_schema()
    floats = [column for column, kind in columns.items() if kind == pl.Float64 and name in {"runs", "findings"}]
    bounds = {column: pl.col(column).is_between(_LEAST.get(column, -MOST_HOURS), MOST_HOURS) for column in floats}
    rows = rows.with_columns(pl.when(is_sound).then(column) for column, is_sound in bounds.items())
    if formerly.RULES and name == "findings":
        rows = rows.with_columns(pl.col("rule").replace(formerly.RULES))
    if formerly.RULES and name == "runs":
        rows = rows.with_columns(pl.col(_LISTS).list.eval(pl.element().replace(formerly.RULES)))
    for old in formerly.METRICS.keys() & columns.keys() if name == "workers" else ():
        new = formerly.METRICS[old]
        rows = rows.with_columns(pl.coalesce(*([new] if new in columns else []), old).alias(new))
        columns = rows.collect_schema()
    return rows.with_columns(pl.lit(None, kind).alias(key) for key, kind in SCHEMAS[name].items() if key not in columns)


Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[str, list[Row]]  # rows by table of the store
# What the fixes of findings saved of the step when they were tried, both ends, by rule
Trials: TypeAlias = Mapping[str, tuple[float, float]]
_NAME_COLUMNS: Final = [metric.name for metric in NAME_METRICS.values()]
_STORED_SCOPES: Final = frozenset({"run", "worker", "device", "step"})


class Context(Frozen):
    """What judging a run again needs beside its report."""

    frameworks: Mapping[int, str | None]
    used_steps: Mapping[int, tuple[int, ...] | None]
    reasons: Mapping[str, Reason]
    notes: tuple[Reason, ...]  # on what was read
    file_notes: tuple[Reason, ...]  # on its files
    places: Mapping[str, tuple[Place, ...]]  # by `metric/worker`
    selected: Mapping[str, str] = {}  # by its name, what each metric of a selection measured: a rule may name it later


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
    # Why a metric is null; one that came later was never measured: the recording lacks it, or the store.
    stored = {name: Missing(why.code, **why.facts) for name, why in context.reasons.items()}
    newer = {name: Missing("measured_by_newer_version") for name in METRICS if name not in of_run}
    of_kinds = {kind: stored[metric.name] for kind, metric in NAME_METRICS.items() if metric.name in stored}
    unmeasured = dict.fromkeys((metric.name for metric in later), Missing("stored_before_rule"))
    for metric in later:
        if isinstance(metric.of, Measured) and metric.of.selector.kind in of_kinds:
            unmeasured[metric.name] = of_kinds[metric.of.selector.kind]
    return MeasuredRun(
        format=run.source.format,
        pace=run.source.steps.worker or 0,
        is_fragment=any(note.code == FRAGMENT for note in run.source.salvaged),
        reasons={**newer, **stored, **unmeasured},
        frames={"run": table_of([complete(of_run)], types), "worker": table_of(workers, types)},
        frameworks=context.frameworks,
        used_steps=context.used_steps,
        places=lambda metric, worker: pl.DataFrame(
            [p.model_dump() for p in context.places.get(f"{metric}/{worker}", ())]
        ),
    )


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
        **{name: column.of(run) for name, column in OF_RUN.items()},
        "rule_set": rules,
        "advisor_version": __version__,
    }
    report = {"report": small.model_dump_json(), "kept": context.model_dump_json()}
    return {"runs": [about], "findings": list(_findings(run, trials)), "reports": [report]}


def _findings(run: Run, trials: Trials) -> Iterator[Row]:
    for rank, finding in enumerate(run.findings, start=1):
        tried_low, tried_high = trials.get(finding.rule, (None, None))
        tried = {"tried_low_share": tried_low, "tried_high_share": tried_high}
        yield {**{name: column.of(finding) for name, column in OF_FINDING.items()}, "rank": rank, **tried}
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
