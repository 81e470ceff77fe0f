"""The findings of a week: new, persisting, suppressed or fixed; the rules that they add up to; what fixes brought."""

from collections.abc import Iterator, Sequence

import polars as pl

from advisor.fleet.gpu_hours import LIKE, sum_of
from advisor.model.week import JobFinding, Realised, RuleTotal
from advisor.vocabulary.severities import SEVERITIES


def job_findings(findings: pl.DataFrame, past: pl.DataFrame) -> Iterator[JobFinding]:
    """Every rule on every job of this week."""
    earlier = past.group_by("job_key", "rule").agg(weeks=pl.col("week").n_unique())
    best = pl.col("expected").arg_max()
    columns = [name for name in JobFinding.model_fields if name in findings.columns and name != "rule"]
    grouped = (
        findings.group_by("job_key", "rule")
        .agg(
            **{name: pl.col(name).get(best) for name in columns}
            | {
                "severity": pl.col("severity").get(pl.col("grave").arg_min()),
                "runs": pl.col("run_id").n_unique(),
                "low": pl.col("low").sum(),
                "high": pl.col("high").sum(),
                "expected": pl.col("expected").sum(),
                "money": sum_of(pl.col("worth")),
                "silent": pl.col("suppressed").is_not_null().all(),
                "reason": pl.col("suppressed").drop_nulls().first(),
            }
        )
        .join(earlier, on=["job_key", "rule"], how="left")
    )
    for row in grouped.to_dicts():
        weeks = row["weeks"] or 0
        known = {
            "job": row["job_key"],
            "status": "suppressed" if row["silent"] else "persisting" if weeks else "new",
            "weeks": weeks + 1,
            "says": row["says"] or "",
            "fix": row["fix"] or "",
            "reason": row["reason"] if row["silent"] else None,
        }
        yield JobFinding.model_validate(row | known)


def by_worth(finding: JobFinding) -> tuple[object, ...]:
    """A key that sorts the most to win first."""
    return -finding.expected, SEVERITIES.index(finding.severity), finding.job, finding.rule


def rule_totals(findings: pl.DataFrame, listed: Sequence[JobFinding]) -> tuple[RuleTotal, ...]:
    """Rules, the most to win first."""
    statuses = [(finding.rule, finding.status) for finding in listed]
    return tuple(
        RuleTotal(
            new=statuses.count((row["rule"], "new")), persisting=statuses.count((row["rule"], "persisting")), **row
        )
        for row in _by_rule(findings.filter(pl.col("suppressed").is_null())).to_dicts()
    )


def _by_rule(fired: pl.DataFrame) -> pl.DataFrame:
    grouped = fired.group_by("rule").agg(
        title=pl.col("title").first(),
        severity=pl.col("severity").get(pl.col("grave").arg_min()),
        runs=pl.col("run_id").n_unique(),
        jobs=pl.col("job_key").n_unique(),
        teams=pl.col("team").drop_nulls().unique().sort(),
        low=pl.col("low").sum(),
        high=pl.col("high").sum(),
        expected=pl.col("expected").sum(),
        money=sum_of(pl.col("worth")),
        grave=pl.col("grave").min(),
        run_id=pl.col("run_id").get(pl.col("expected").arg_max()),
    )
    order = ["expected", "grave", "runs", "rule"]
    ranked = grouped.join(_owners(fired), on="rule", how="left").sort(order, descending=[True, False, True, False])
    return ranked.with_columns(pl.col("owners").fill_null([]))


def _owners(fired: pl.DataFrame) -> pl.DataFrame:
    """The three owners of each rule whose runs would save most: rule, owners."""
    totals = fired.drop_nulls("owner").group_by("rule", "owner").agg(pl.col("expected").sum())
    ordered = totals.sort("expected", "owner", descending=[True, False])
    return ordered.group_by("rule", maintain_order=True).agg(owners=pl.col("owner").head(3))


def fixed(runs: pl.DataFrame, findings: pl.DataFrame, past: pl.DataFrame) -> pl.DataFrame:
    """Rules that fired when a job last ran, and now pass in every run of it: one row per job and rule."""
    now = runs.select(*LIKE, "run_id", "team", "owner", "passed")
    last = past.join(now.select(*LIKE).unique(), on=LIKE, nulls_equal=True)
    last = last.filter(pl.col("week") == pl.col("week").max().over(LIKE))
    promised = last.group_by(*LIKE, "rule").agg(
        pl.col("title", "severity").first(),
        low=pl.col("low_share").mean(),
        high=pl.col("high_share").mean(),
        tried_low=pl.col("tried_low_share").mean(),
        tried_high=pl.col("tried_high_share").mean(),
        week=pl.col("week").first(),
    )
    passes = (
        promised.join(now, on=LIKE, nulls_equal=True)
        .with_columns(passes=pl.col("passed").list.contains(pl.col("rule")))
        .group_by(*LIKE, "rule", maintain_order=True)
        .agg(
            pl.col("title", "severity", "low", "high", "tried_low", "tried_high", "week").first(),
            pl.col("team", "owner", "run_id").first(),
            pl.col("passes").all(),
        )
    )
    still = findings.select(*LIKE, "rule").unique()
    return passes.filter("passes").join(still, on=[*LIKE, "rule"], how="anti", nulls_equal=True)


def fixed_findings(gone: pl.DataFrame) -> Iterator[JobFinding]:
    """Fixed findings, one per job and rule."""
    columns = ("job_key", "rule", "title", "team", "owner", "severity", "run_id")
    for row in gone.unique(["job_key", "rule"], maintain_order=True).select(columns).to_dicts():
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
            fix="",
            reason=None,
            **row,
        )


def realised(gone: pl.DataFrame, runs: pl.DataFrame, earlier: pl.DataFrame) -> tuple[Realised, ...]:
    """Per job with fixed findings: what they promised together, and what became of its step.

    What was tried of each alone does not add up: it is there where one finding is fixed.
    """
    alone = pl.when(pl.len() == 1).then(pl.col("tried_low", "tried_high").first())
    promised = (
        gone.filter(pl.col("high").is_not_null())
        .group_by(*LIKE)
        .agg(
            pl.col("week", "team", "run_id").first(), pl.col("low", "high").sum(), alone, titles=pl.col("title").sort()
        )
    )
    then = earlier.join(promised.select(*LIKE, "week"), on=[*LIKE, "week"], how="semi", nulls_equal=True)
    both = promised.join(_medians(runs), on=LIKE, nulls_equal=True)
    both = both.join(_medians(then), on=LIKE, nulls_equal=True, suffix="_before")
    rows = (
        Realised(
            job=row["job_key"],
            realised=1 - row["step_ms"] / row["step_ms_before"],
            brought=row["hours"] * (row["step_ms_before"] / row["step_ms"] - 1),
            before_ms=row["step_ms_before"],
            after_ms=row["step_ms"],
            runs=row["number"],
            runs_before=row["number_before"],
            **row,
        )
        for row in both.to_dicts()
    )
    return tuple(sorted(rows, key=lambda job: (-job.realised, job.job)))


def _medians(runs: pl.DataFrame) -> pl.DataFrame:
    timed = runs.filter(pl.col("step_ms") > 0)
    return timed.group_by(*LIKE).agg(pl.col("step_ms").median(), pl.col("hours").sum(), number=pl.len())
