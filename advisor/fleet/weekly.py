"""The report of a week, computed from the store: lazy scans of that week and of the eight before it.

GPU-hours are those that a run is labelled with; a run without a label counts with those of its recorded steps. What a
profile tells of some steps is applied to all hours of its run, which is an extrapolation and is called one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from advisor import __version__
from advisor.config import Fleet
from advisor.errors import NothingFound
from advisor.fleet.labels import monday_of, weeks_before
from advisor.fleet.store import Store
from advisor.metrics.breakdown import CATEGORIES
from advisor.report import SEVERITIES
from advisor.significance import contrast
from advisor.week import (
    Change,
    Coverage,
    Group,
    Hours,
    JobFinding,
    Prices,
    Realised,
    Repeat,
    RuleTotal,
    RunTotal,
    Trend,
    Unreadable,
    Week,
)

WEEKS_BEFORE: Final = 8
_COMPARED_WEEKS: Final = 4
_LEAST_CHANGE: Final = 0.05  # of the step time, as `advisor compare` has it
_LEAST_RUNS: Final = 5  # a side; fewer come out in order by chance too often
_MOST_COMPARED: Final = 50  # jobs with the most GPU-hours at stake that are tested
_MOST: Final = 100  # findings listed
_MOST_RUNS: Final = 20
_MOST_REASONS: Final = 50
_SLOW_RANK_RULES: Final = ("straggler-rank", "throttled-gpu")  # what a host or its GPU can be to blame for
_REPEATED: Final = 2

_LIKE: Final = ("job_key", "gpu_type", "gpus")  # runs that may be compared


def weekly(store: Store, fleet: Fleet, week: str | None = None) -> Week:
    """The report of one week.

    Args:
        store: Where the runs are.
        fleet: Prices, and what the fleet pays for.
        week: As `2026-W47`; by default the last one that the store holds.

    Raises:
        NothingFound: the store holds no run of that week.
        StoreError: the store cannot be read.
        UsageError: `week` is none.
    """
    if week is not None:
        monday_of(week)
    else:
        week = max(store.weeks(), default="")
    before = weeks_before(week, WEEKS_BEFORE) if week else []
    rows = store.collect(_priced(store.scan("runs", [week]), fleet))
    if not rows.height:
        held = store.weeks()
        has = f"; it holds {held[0]} to {held[-1]}" if held else ""
        raise NothingFound(f"{store.uri}: no run of {week or 'any week'}{has}")
    runs = rows.filter(pl.col("status") == "checked")
    findings = _of_runs(store.collect(store.scan("findings", [week]).drop("week", "recording")), runs)
    earlier = store.collect(
        _priced(store.scan("runs", before), fleet)
        .filter(pl.col("status") == "checked")
        .select("week", "run_id", *_LIKE, "step_ms", "hours", "busy_share", "breakdown")
    )
    fired = store.collect(
        store.scan("findings", before).select("run_id", "rule", "title", "severity", "low_share", "high_share")
    )
    past = fired.join(earlier.select("week", "run_id", *_LIKE, "step_ms"), on="run_id")
    fixed = _fixed(runs, findings, past)
    listed = sorted([*_job_findings(findings, past), *_fixed_findings(fixed)], key=_by_worth)
    regressions, wins, too_few = _changes(runs, earlier.filter(pl.col("week").is_in(before[-_COMPARED_WEEKS:])))
    return Week(
        advisor_version=__version__,
        week=week,
        weeks_before=len(before),
        prices=Prices(currency=fleet.currency, by_gpu=fleet.prices, as_of=fleet.prices_as_of, source=fleet.prices_from),
        total=_hours(runs),
        teams=_groups(runs, "team"),
        models=_groups(runs, "model"),
        gpu_types=_groups(runs, "gpu_type"),
        rules=_rules(findings, listed),
        findings=tuple(listed[:_MOST]),
        findings_left_out=max(0, len(listed) - _MOST),
        runs=_run_totals(runs),
        regressions=regressions,
        wins=wins,
        too_few_to_compare=too_few,
        repeats=_repeats(store, week, findings, runs),
        trend=_trend(pl.concat([earlier, runs.select(earlier.columns)])),
        realised=_realised(fixed, runs, earlier),
        coverage=_coverage(rows, fleet),
    )


def _priced(runs: pl.LazyFrame, fleet: Fleet) -> pl.LazyFrame:
    """The runs with the job they are of, their GPU-hours and what these cost."""
    table = (
        pl.col("gpu_type").replace_strict(
            list(fleet.prices), list(fleet.prices.values()), default=None, return_dtype=pl.Float64
        )
        if fleet.prices
        else pl.lit(None, pl.Float64)
    )
    hours = pl.coalesce("gpu_hours", "recorded_hours").fill_null(0.0)
    return runs.with_columns(
        job_key=pl.coalesce("job", "name"),
        hours=hours,
        estimated=pl.col("gpu_hours").is_null(),
        money=hours * pl.coalesce("price", table),
    )


def _of_runs(findings: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """The findings of these runs, with what is known of the run, and what they are worth in GPU-hours and money."""
    about = runs.select("run_id", *_LIKE, "team", "owner", "hours", "money", "step_ms")
    return findings.join(about, on="run_id").with_columns(
        low=pl.col("low_share").fill_null(0.0) * pl.col("hours"),
        high=pl.col("high_share").fill_null(0.0) * pl.col("hours"),
        expected=pl.col("expected_share").fill_null(0.0) * pl.col("hours"),
        worth=pl.col("expected_share").fill_null(0.0) * pl.col("money"),
        grave=pl.col("severity").replace_strict(SEVERITIES, range(len(SEVERITIES)), default=len(SEVERITIES)),
    )


# ---------------------------------------------------------------------------------------------- hours and money


def _sum(values: pl.Expr) -> pl.Expr:
    """The sum, null where all values are."""
    return pl.when(values.is_not_null().any()).then(values.sum())


_HOURS: Final = (
    pl.len().alias("runs"),
    pl.col("estimated").sum().alias("estimated"),
    pl.col("hours").sum().alias("paid"),
    _sum(pl.col("hours") * pl.col("busy_share")).alias("busy"),
    _sum(pl.col("hours") * (1 - pl.col("busy_share"))).alias("wasted"),
    *(
        (pl.col(f"{name}_share").fill_null(0.0) * pl.col("hours")).sum().alias(name)
        for name in ("low", "high", "expected")
    ),
    pl.col("money").is_not_null().sum().alias("priced"),
    _sum(pl.col("money")).alias("paid_money"),
    _sum(pl.col("money") * pl.col("expected_share").fill_null(0.0)).alias("expected_money"),
)


def _hours(runs: pl.DataFrame) -> Hours:
    return Hours.model_validate(runs.select(*_HOURS).row(0, named=True))


def _groups(runs: pl.DataFrame, label: str) -> tuple[Group, ...]:
    """Hours by label, the most to win first."""
    grouped = runs.group_by(label).agg(*_HOURS).sort(["expected", "paid", label], descending=[True, True, False])
    return tuple(Group(name=row.pop(label), hours=Hours.model_validate(row)) for row in grouped.to_dicts())


def _run_totals(runs: pl.DataFrame) -> tuple[RunTotal, ...]:
    told = runs.with_columns(
        expected=pl.col("expected_share").fill_null(0.0) * pl.col("hours"),
        worth=pl.col("expected_share").fill_null(0.0) * pl.col("money"),
    )
    top = told.filter(pl.col("expected") > 0).sort(["expected", "run_id"], descending=[True, False]).head(_MOST_RUNS)
    return tuple(
        RunTotal(
            job=row["job_key"],
            paid=row["hours"],
            money=row["worth"],
            **_only(row, "run_id", "name", "team", "owner", "gpu_type", "verdict", "estimated", "expected"),
        )
        for row in top.to_dicts()
    )


def _only(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


# ---------------------------------------------------------------------------------------------- findings


def _job_findings(findings: pl.DataFrame, past: pl.DataFrame) -> Iterator[JobFinding]:
    """Every rule on every job of this week."""
    seen = past.group_by("job_key", "rule").agg(weeks=pl.col("week").n_unique())
    best = pl.col("expected").arg_max()
    grouped = (
        findings.group_by("job_key", "rule")
        .agg(
            *(pl.col(name).get(best) for name in ("title", "team", "owner", "says", "run_id")),
            severity=pl.col("severity").get(pl.col("grave").arg_min()),
            runs=pl.col("run_id").n_unique(),
            low=pl.col("low").sum(),
            high=pl.col("high").sum(),
            expected=pl.col("expected").sum(),
            money=_sum(pl.col("worth")),
            silent=pl.col("suppressed").is_not_null().all(),
            reason=pl.col("suppressed").drop_nulls().first(),
        )
        .join(seen, on=["job_key", "rule"], how="left")
    )
    for row in grouped.to_dicts():
        weeks = row["weeks"] or 0
        yield JobFinding(
            job=row["job_key"],
            status="suppressed" if row["silent"] else "persisting" if weeks else "new",
            weeks=weeks + 1,
            says=row["says"] or "",
            reason=row["reason"] if row["silent"] else None,
            **_only(
                row, "rule", "title", "team", "owner", "severity", "runs", "low", "high", "expected", "money", "run_id"
            ),
        )


def _by_worth(finding: JobFinding) -> tuple[object, ...]:
    return -finding.expected, SEVERITIES.index(finding.severity), finding.job, finding.rule


def _rules(findings: pl.DataFrame, listed: Sequence[JobFinding]) -> tuple[RuleTotal, ...]:
    """Rules, the most to win first."""
    fired = findings.filter(pl.col("suppressed").is_null())
    by_owner = (
        fired.group_by("rule", "owner")
        .agg(pl.col("expected").sum())
        .sort("expected", "owner", descending=[True, False])
    )
    owners = (
        by_owner.filter(pl.col("owner").is_not_null())
        .group_by("rule", maintain_order=True)
        .agg(owners=pl.col("owner").head(3))
    )
    grouped = (
        fired.group_by("rule")
        .agg(
            title=pl.col("title").first(),
            severity=pl.col("severity").get(pl.col("grave").arg_min()),
            runs=pl.col("run_id").n_unique(),
            jobs=pl.col("job_key").n_unique(),
            teams=pl.col("team").drop_nulls().unique().sort(),
            low=pl.col("low").sum(),
            high=pl.col("high").sum(),
            expected=pl.col("expected").sum(),
            money=_sum(pl.col("worth")),
            grave=pl.col("grave").min(),
        )
        .join(owners, on="rule", how="left")
        .sort(["expected", "grave", "runs", "rule"], descending=[True, False, True, False])
    )
    statuses = [(finding.rule, finding.status) for finding in listed]
    return tuple(
        RuleTotal(
            owners=row["owners"] or (),
            new=statuses.count((row["rule"], "new")),
            persisting=statuses.count((row["rule"], "persisting")),
            **_only(row, "rule", "title", "severity", "runs", "jobs", "teams", "low", "high", "expected", "money"),
        )
        for row in grouped.to_dicts()
    )


def _fixed(runs: pl.DataFrame, findings: pl.DataFrame, past: pl.DataFrame) -> pl.DataFrame:
    """Rules that fired when a job last ran, and now pass in every run of it: one row per job and rule."""
    now = runs.select(*_LIKE, "run_id", "team", "owner", "passed")
    last = past.join(now.select(*_LIKE).unique(), on=_LIKE, nulls_equal=True)
    last = last.filter(pl.col("week") == pl.col("week").max().over(_LIKE))
    promised = last.group_by(*_LIKE, "rule").agg(
        pl.col("title", "severity").first(),
        low=pl.col("low_share").mean(),
        high=pl.col("high_share").mean(),
        week=pl.col("week").first(),
    )
    passes = (
        promised.join(now, on=_LIKE, nulls_equal=True)
        .with_columns(passes=pl.col("passed").list.contains(pl.col("rule")))
        .group_by(*_LIKE, "rule", maintain_order=True)
        .agg(
            pl.col("title", "severity", "low", "high", "week", "team", "owner", "run_id").first(),
            pl.col("passes").all(),
        )
    )
    still = findings.select(*_LIKE, "rule").unique()
    return passes.filter("passes").join(still, on=[*_LIKE, "rule"], how="anti", nulls_equal=True)


def _fixed_findings(fixed: pl.DataFrame) -> Iterator[JobFinding]:
    for row in fixed.unique(["job_key", "rule"], maintain_order=True).to_dicts():
        yield JobFinding(
            job=row["job_key"],
            status="fixed",
            weeks=0,
            runs=0,
            low=0.0,
            high=0.0,
            expected=0.0,
            money=None,
            says="",
            reason=None,
            **_only(row, "rule", "title", "team", "owner", "severity", "run_id"),
        )


def _realised(fixed: pl.DataFrame, runs: pl.DataFrame, earlier: pl.DataFrame) -> tuple[Realised, ...]:
    """Per job with fixed findings: what they promised together, and what became of its step."""
    promised = (
        fixed.filter(pl.col("high").is_not_null())
        .group_by(*_LIKE)
        .agg(pl.col("week", "team", "run_id").first(), pl.col("low", "high").sum(), titles=pl.col("title").sort())
    )
    then = earlier.join(promised.select(*_LIKE, "week"), on=[*_LIKE, "week"], how="semi", nulls_equal=True)
    both = promised.join(_medians(runs), on=_LIKE, nulls_equal=True)
    both = both.join(_medians(then), on=_LIKE, nulls_equal=True, suffix="_before")
    made = (
        Realised(
            job=row["job_key"],
            realised=1 - row["step_ms"] / row["step_ms_before"],
            brought=row["hours"] * (row["step_ms_before"] / row["step_ms"] - 1),
            before_ms=row["step_ms_before"],
            after_ms=row["step_ms"],
            runs=row["number"],
            runs_before=row["number_before"],
            **_only(row, "team", "titles", "low", "high", "run_id"),
        )
        for row in both.to_dicts()
    )
    return tuple(sorted(made, key=lambda one: (-one.realised, one.job)))


def _medians(runs: pl.DataFrame) -> pl.DataFrame:
    timed = runs.filter(pl.col("step_ms") > 0)
    return timed.group_by(*_LIKE).agg(pl.col("step_ms").median(), pl.col("hours").sum(), number=pl.len())


# ---------------------------------------------------------------------------------------------- over the weeks


def _changes(runs: pl.DataFrame, earlier: pl.DataFrame) -> tuple[tuple[Change, ...], tuple[Change, ...], int]:
    """Jobs that got slower, jobs that got faster, and how many have too few runs to tell.

    The sample is the runs' typical step times: steps of one run are not independent of each other.
    """
    after = _times(runs, pl.col("team", "run_id").first(), pl.col("hours").sum())
    before = _times(earlier)
    both = after.join(before, on=_LIKE, nulls_equal=True, suffix="_before")
    enough = pl.min_horizontal(pl.col("times").list.len(), pl.col("times_before").list.len()) >= _LEAST_RUNS
    ratio = pl.col("times").list.median() / pl.col("times_before").list.median()
    moved = both.filter(enough).with_columns(ratio=ratio, size=(ratio.log().abs() * pl.col("hours")))
    moved = moved.filter((pl.col("ratio") >= 1 + _LEAST_CHANGE) | (pl.col("ratio") <= 1 / (1 + _LEAST_CHANGE)))
    tested = moved.sort("size", *_LIKE, descending=[True, False, False, False]).head(_MOST_COMPARED)
    changes = [change for row in tested.to_dicts() if (change := _change(row)) is not None]
    slower, faster = ([c for c in changes if (c.ratio > 1) == worse] for worse in (True, False))
    return tuple(slower), tuple(faster), both.filter(~enough).height


def _times(runs: pl.DataFrame, *more: pl.Expr) -> pl.DataFrame:
    return runs.filter(pl.col("step_ms") > 0).group_by(*_LIKE).agg(*more, times=pl.col("step_ms"))


def _change(row: Mapping[str, Any]) -> Change | None:
    before, after = np.array(row["times_before"]), np.array(row["times"])
    found = contrast([before], [after])
    if not found.differs(_LEAST_CHANGE):
        return None
    return Change(
        job=row["job_key"],
        before_ms=float(np.median(before)),
        after_ms=float(np.median(after)),
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        runs=len(after),
        runs_before=len(before),
        **_only(row, "team", "gpu_type", "hours", "run_id"),
    )


def _trend(runs: pl.DataFrame) -> tuple[Trend, ...]:
    """Per week, where the GPU-hours go."""
    kinds = pl.Struct(dict.fromkeys(CATEGORIES, pl.Float64))
    told = runs.with_columns(pl.col("breakdown").str.json_decode(kinds).alias("parts"))
    weighed = {name: _mean(pl.col("parts").struct.field(name)) for name in CATEGORIES}
    grouped = told.group_by("week").agg(
        runs=pl.len(), paid=pl.col("hours").sum(), busy_share=_mean(pl.col("busy_share")), **weighed
    )
    return tuple(
        Trend(
            shares={name: row[name] for name in CATEGORIES if row[name] is not None},
            **_only(row, "week", "runs", "paid", "busy_share"),
        )
        for row in grouped.sort("week").to_dicts()
    )


def _mean(values: pl.Expr) -> pl.Expr:
    """The mean weighed with GPU-hours over the runs that tell it; null where none does."""
    weight = pl.col("hours").filter(values.is_not_null()).sum()
    return pl.when(weight > 0).then((values * pl.col("hours")).sum() / weight)


# ---------------------------------------------------------------------------------------------- hosts and coverage


def _repeats(store: Store, week: str, findings: pl.DataFrame, runs: pl.DataFrame) -> tuple[Repeat, ...]:
    """Hosts, and their GPUs, that rules about slow ranks named in two runs or more."""
    lanes = store.collect(
        store.scan("workers", [week])
        .filter(pl.col("scope") == "worker", pl.col("host").is_not_null())
        .select("run_id", "host", pl.col("worker").cast(pl.Int64), "device")
    ).join(runs.select("run_id"), on="run_id", how="semi")
    blamed = findings.filter(pl.col("rule").is_in(_SLOW_RANK_RULES)).select("run_id", "worker", "rule")
    named = lanes.join(blamed, on=["run_id", "worker"])
    took_part = lanes.group_by("host", "device").agg(of=pl.col("run_id").n_unique())
    counted = named.group_by("host", "device").agg(
        named=pl.col("run_id").n_unique(), rules=pl.col("rule").unique().sort()
    )
    often = counted.filter(pl.col("named") >= _REPEATED).join(took_part, on=["host", "device"], nulls_equal=True)
    ranked = often.sort("named", "host", "device", descending=[True, False, False]).head(_MOST_RUNS)
    return tuple(
        Repeat(
            host=row["host"],
            gpu=None if row["device"] is None else f"GPU {row['device']}",
            runs=row["of"],
            **_only(row, "named", "rules"),
        )
        for row in ranked.to_dicts()
    )


def _coverage(rows: pl.DataFrame, fleet: Fleet) -> Coverage:
    runs, bad = rows.filter(pl.col("status") == "checked"), rows.filter(pl.col("status") != "checked")
    reasons = bad.group_by("reason").agg(runs=pl.len(), path=pl.col("path").min())
    unknown = runs["not_evaluable"].explode(empty_as_null=False).value_counts()
    paid = fleet.gpu_hours_per_week
    return Coverage(
        runs=runs.height,
        unreadable=bad.height,
        without_gpu_hours=int(runs["estimated"].sum()),
        without_price=runs["money"].null_count(),
        profiled_share=None if paid is None else float(runs["gpu_hours"].sum()) / paid,
        not_evaluable=_counts(unknown.sort("count", "not_evaluable", descending=[True, False])),
        reasons=tuple(
            Unreadable(why=row["reason"] or "unknown", runs=row["runs"], path=row["path"])
            for row in reasons.sort(["runs", "reason"], descending=[True, False]).head(_MOST_REASONS).to_dicts()
        ),
        rule_sets=_counts(
            runs["rule_set"].drop_nulls().value_counts().sort("count", "rule_set", descending=[True, False])
        ),
    )


def _counts(values: pl.DataFrame) -> dict[str, int]:
    return {str(name): int(number) for name, number in values.iter_rows() if name is not None}
