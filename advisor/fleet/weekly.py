"""The report of a week, computed from the store: lazy scans of that week and of the eight before it.

GPU-hours are those that a run is labelled with; a run without a label counts with those of its recorded steps. What a
profile tells of some steps is applied to all hours of its run, which is an extrapolation and is called one.
"""

from typing import Final

import polars as pl
from pydantic import ValidationError

from advisor import __version__
from advisor.config import Fleet
from advisor.errors import NoRuns
from advisor.fleet import history
from advisor.fleet.columns import UNPROFILED
from advisor.fleet.labels import weeks_before
from advisor.fleet.store import Store
from advisor.fleet.verify import newest, require_agreement, weeks_of
from advisor.model.week import Coverage, Group, Hours, Prices, Repeat, RunTotal, Unreadable, Unused, Week, order
from advisor.vocabulary.severities import SEVERITIES

WEEKS_BEFORE: Final = 8
_COMPARED_WEEKS: Final = 4
_MOST: Final = 100  # findings listed
_MOST_RUNS: Final = 20
_MOST_UNUSED: Final = 5
_MOST_REASONS: Final = 50
_SLOW_RANK_RULES: Final = ("straggler-rank", "throttled-gpu")  # what a host or its GPU can be to blame for
_REPEATED: Final = 2
_NOT_NEEDED: Final = ("recording", "fingerprint", "digests", "labels", "bytes", "ingested", "commit")
_OF_EARLIER: Final = ("week", "run_id", *history.LIKE, "team", "step_ms", "hours", "busy_share", "breakdown")
_OF_PAST_FINDINGS: Final = (
    *("run_id", "rule", "title", "severity"),
    *("low_share", "high_share", "tried_low_share", "tried_high_share"),
)


def weekly(store: Store, fleet: Fleet, week: str | None = None, *, rules: str | None = None) -> Week:
    """The report of one week, by default the last that has begun of those that the store holds.

    Runs that were judged by another rule set than `rules` are counted. NoRuns where the store holds none of that week,
    a StoreError where its tables disagree on these weeks.
    """
    later = []
    if week is None:
        week = newest(store.weeks())
        later = [other for other in weeks_of(store) if other > week]
    before = weeks_before(week, WEEKS_BEFORE) if week else []
    require_agreement(store, [*before, week, *later])
    try:
        return _week(store, fleet, week, before, rules)
    except ValidationError as error:
        raise store.unusable("runs", f"a row has no valid {error.errors()[0]['loc'][-1]}") from None


def _week(store: Store, fleet: Fleet, week: str, before: list[str], rules: str | None) -> Week:
    rows = store.collect(_priced(store.scan("runs", [week]), fleet).drop(_NOT_NEEDED))
    if not rows.height:
        weeks = store.weeks()
        has = f"; it holds {weeks[0]} to {weeks[-1]}" if weeks else ""
        raise NoRuns(f"{store.uri}: no run of {week or 'any week'}{has}")
    runs = rows.filter(pl.col("status") == "checked")
    about = runs.select("run_id", *history.LIKE, "team", "owner", "hours", "money", "step_ms")
    findings = store.collect(store.scan("findings", [week]).drop("week", "recording")).join(about, on="run_id")
    findings = findings.with_columns(
        **_SAVED,
        worth=pl.col("expected_share").fill_null(0.0) * pl.col("money"),
        grave=pl.col("severity").replace_strict(SEVERITIES, range(len(SEVERITIES)), default=len(SEVERITIES)),
    )
    earlier = store.collect(
        _priced(store.scan("runs", before), fleet).filter(pl.col("status") == "checked").select(_OF_EARLIER)
    )
    fired = store.collect(store.scan("findings", before).select(_OF_PAST_FINDINGS))
    past = fired.join(earlier.select("week", "run_id", *history.LIKE, "step_ms"), on="run_id")
    gone = history.fixed(runs, findings, past)
    listed = [*history.job_findings(findings, past), *history.fixed_findings(gone)]
    listed.sort(key=lambda each: (order([each]), SEVERITIES.index(each.severity), each.job, each.rule))
    regressions, wins, too_few = history.changes(runs, earlier.filter(pl.col("week").is_in(before[-_COMPARED_WEEKS:])))
    share = pl.col("expected_share").fill_null(0.0)
    totals = runs.with_columns(
        job="job_key", paid="hours", expected=share * pl.col("hours"), money=share * pl.col("money")
    )
    top = (
        totals.filter(pl.col("expected") > 0)
        .sort("money", "expected", "run_id", descending=[True, True, False], nulls_last=True)
        .head(_MOST_RUNS)
    )
    return Week(
        advisor_version=__version__,
        week=week,
        weeks_before=len(before),
        prices=Prices(currency=fleet.currency, by_gpu=fleet.prices, as_of=fleet.prices_as_of, source=fleet.prices_from),
        total=Hours.model_validate(runs.select(*_SUMS).row(0, named=True)),
        teams=_groups(runs, "team"),
        models=_groups(runs, "model"),
        gpu_types=_groups(runs, "gpu_type"),
        rules=history.rule_totals(findings, listed),
        findings=tuple(listed[:_MOST]),
        findings_left_out=max(0, len(listed) - _MOST),
        runs=tuple(map(RunTotal.model_validate, top.to_dicts())),
        unused=_unused(runs, findings),
        regressions=regressions,
        wins=wins,
        too_few_to_compare=too_few,
        repeats=_repeats(store, week, findings, runs),
        trend=history.trend(pl.concat([earlier, runs.select(earlier.columns)])),
        shifts=history.shifts(runs, earlier),
        realised=history.realised(gone, runs, earlier),
        coverage=_coverage(rows, fleet, rules),
    )


def _priced(runs: pl.LazyFrame, fleet: Fleet) -> pl.LazyFrame:
    table = pl.lit(None, pl.Float64)
    if fleet.prices:
        table = pl.col("gpu_type").replace_strict(fleet.prices, default=None, return_dtype=pl.Float64)
    hours = pl.coalesce("gpu_hours", "recorded_hours").fill_null(0.0)
    return runs.with_columns(
        job_key=pl.coalesce("job", "name"),
        hours=hours,
        estimated=pl.col("gpu_hours").is_null(),
        money=hours * pl.coalesce("price", table),
    )


# GPU-hours that fixes give back
_SAVED: Final = {end: pl.col(f"{end}_share").fill_null(0.0) * pl.col("hours") for end in ("low", "high", "expected")}
_SUMS: Final = (
    *history.HOURS,
    pl.col("estimated").sum().alias("estimated"),
    *(hours.sum().alias(end) for end, hours in _SAVED.items()),
    pl.col("money").is_not_null().sum().alias("priced"),
    pl.col("hours").filter(pl.col("money").is_not_null()).sum().alias("priced_hours"),
    history.sum_of(pl.col("money")).alias("paid_money"),
    history.sum_of(pl.col("money") * pl.col("expected_share").fill_null(0.0)).alias("expected_money"),
)


def _groups(runs: pl.DataFrame, label: str) -> tuple[Group, ...]:
    by = {"expected_money": True, "expected": True, "paid": True, label: False}
    grouped = runs.group_by(label).agg(*_SUMS).sort(*by, descending=[*by.values()], nulls_last=True)
    return tuple(Group(name=row.pop(label), hours=Hours.model_validate(row)) for row in grouped.to_dicts())


def _unused(runs: pl.DataFrame, findings: pl.DataFrame) -> tuple[Unused, ...]:
    """The runs that wasted the most GPU-hours, whether or not a finding says why; never less than fixes save."""
    loss = pl.max_horizontal(1 - pl.coalesce("useful_share", "busy_share"), "expected_share")
    lossy = runs.with_columns(wasted=pl.col("hours") * loss).filter(pl.col("wasted") > 0)
    top = lossy.sort(["wasted", "run_id"], descending=[True, False]).head(_MOST_UNUSED)
    ranked = findings.filter(pl.col("suppressed").is_null()).sort("rank", "rule")
    first = ranked.group_by("run_id").agg(first=pl.col("title").first())
    rows = top.join(first, on="run_id", how="left", maintain_order="left").with_columns(job="job_key", paid="hours")
    return tuple(map(Unused.model_validate, rows.to_dicts()))


def _repeats(store: Store, week: str, findings: pl.DataFrame, runs: pl.DataFrame) -> tuple[Repeat, ...]:
    """Hosts, and their GPUs, that rules about slow ranks named in two runs or more."""
    views = store.collect(
        store.scan("workers", [week])
        .filter(pl.col("scope") == "worker", pl.col("host").is_not_null())
        .select("run_id", "host", pl.col("worker").cast(pl.Int64), "device")
    ).join(runs.select("run_id"), on="run_id", how="semi")
    blamed = findings.filter(pl.col("rule").is_in(_SLOW_RANK_RULES)).select("run_id", "worker", "rule")
    suspects = views.join(blamed, on=["run_id", "worker"])
    took_part = views.group_by("host", "device").agg(runs=pl.col("run_id").n_unique())
    counted = suspects.group_by("host", "device").agg(
        named=pl.col("run_id").n_unique(), rules=pl.col("rule").unique().sort()
    )
    often = counted.filter(pl.col("named") >= _REPEATED).join(took_part, on=["host", "device"], nulls_equal=True)
    ranked = often.sort("named", "host", "device", descending=[True, False, False]).head(_MOST_RUNS)
    return tuple(
        Repeat(gpu=None if row["device"] is None else f"GPU {row['device']}", **row) for row in ranked.to_dicts()
    )


def _coverage(rows: pl.DataFrame, fleet: Fleet, rules: str | None) -> Coverage:
    status = pl.col("status")
    runs, bare = rows.filter(status == "checked"), rows.filter(status == UNPROFILED)
    bad = rows.filter(~status.is_in(["checked", UNPROFILED]))
    reasons = rows.filter(status != "checked").group_by("reason").agg(runs=pl.len(), path=pl.col("path").min())
    unknown = runs["not_evaluable"].explode(empty_as_null=False).value_counts()
    paid = fleet.gpu_hours_per_week
    return Coverage(
        runs=runs.height,
        unreadable=bad.height,
        unreadable_hours=float(bad["gpu_hours"].sum()),
        unprofiled=bare.height,
        unprofiled_hours=float(bare["gpu_hours"].sum()),
        without_gpu_hours=int(runs["estimated"].sum()),
        without_price=runs["money"].null_count(),
        gpus_without_price=tuple(runs.filter(pl.col("money").is_null())["gpu_type"].drop_nulls().unique().sort()),
        prices_of_no_gpu=tuple(sorted(set(fleet.prices) - set(runs["gpu_type"]))),
        stale=None if rules is None else int(runs["rule_set"].ne_missing(rules).sum()),
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
