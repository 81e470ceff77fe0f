"""A week against those before it: findings that are new, persist or are fixed, step times, and where GPU-hours went."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from advisor.comparing.significance import contrast
from advisor.model.week import Change, JobFinding, Realised, RuleTotal, Shift, Trend, order
from advisor.vocabulary.parts import PARTS
from advisor.vocabulary.severities import SEVERITIES

LIKE: Final = ("job_key", "gpu_type", "gpus")  # runs that may be compared


def sum_of(values: pl.Expr) -> pl.Expr:
    """The sum, null where all values are."""
    return pl.when(values.is_not_null().any()).then(values.sum())


# Runs, and their GPU-hours: those paid are those busy, wasted and unknown together, wherever they are shown
HOURS: Final = (
    pl.len().alias("runs"),
    pl.col("hours").sum().alias("paid"),
    sum_of(pl.col("hours") * pl.col("busy_share")).alias("busy"),
    sum_of(pl.col("hours") * (1 - pl.col("busy_share"))).alias("wasted"),
    pl.col("hours").filter(~pl.col("busy_share").is_not_null()).sum().alias("unknown"),
)
_FINDINGS: Final = (
    pl.col("severity").get(pl.col("grave").arg_min()),
    pl.col("run_id").n_unique().alias("runs"),
    pl.col("low", "high", "expected").sum(),
    sum_of(pl.col("worth")).alias("money"),
)
"""Of findings of one rule: the gravest, in how many runs they are, and what they are worth together."""


_ENDS: Final = ("low", "high", "tried_low", "tried_high")  # of what a fix saves, as it says and as it was tried


def job_findings(findings: pl.DataFrame, past: pl.DataFrame) -> Iterator[JobFinding]:
    """Every rule on every job of this week."""
    earlier = past.group_by("job_key", "rule").agg(weeks=pl.col("week").n_unique())
    grouped = (
        findings.group_by("job_key", "rule")
        .agg(
            *_FINDINGS,
            pl.col("title", "team", "owner", "says", "fix", "run_id").get(pl.col("expected").arg_max()),
            silent=pl.col("suppressed").is_not_null().all(),
            reason=pl.col("suppressed").drop_nulls().first(),
        )
        .join(earlier, on=["job_key", "rule"], how="left")
    )
    weeks = pl.col("weeks").fill_null(0)
    status = pl.when("silent").then(pl.lit("suppressed")).when(weeks > 0).then(pl.lit("persisting"))
    rows = grouped.with_columns(
        pl.col("says", "fix").fill_null(""),
        job="job_key",
        status=status.otherwise(pl.lit("new")),
        weeks=weeks + 1,
        reason=pl.when("silent").then("reason"),
    )
    return map(JobFinding.model_validate, rows.to_dicts())


def rule_totals(findings: pl.DataFrame, listed: Sequence[JobFinding]) -> tuple[RuleTotal, ...]:
    """Rules, the most to win first, each with the three owners whose runs would save most."""
    fired = findings.filter(pl.col("suppressed").is_null())
    of_owner = fired.drop_nulls("owner").group_by("rule", "owner").agg(pl.col("expected").sum())
    ordered = of_owner.sort("expected", "owner", descending=[True, False])
    owners = ordered.group_by("rule", maintain_order=True).agg(owners=pl.col("owner").head(3))
    grouped = fired.group_by("rule").agg(
        *_FINDINGS,
        pl.col("title").first(),
        pl.col("run_id").get(pl.col("expected").arg_max()),
        jobs=pl.col("job_key").n_unique(),
        teams=pl.col("team").drop_nulls().unique().sort(),
    )
    ranked = grouped.join(owners, on="rule", how="left").with_columns(pl.col("owners").fill_null([]))
    times = Counter((finding.rule, finding.status) for finding in listed)
    rows = ranked.to_dicts()
    totals = (RuleTotal(new=times[of["rule"], "new"], persisting=times[of["rule"], "persisting"], **of) for of in rows)
    return tuple(sorted(totals, key=lambda of: (order([of]), SEVERITIES.index(of.severity), -of.runs, of.rule)))


def fixed(runs: pl.DataFrame, findings: pl.DataFrame, past: pl.DataFrame) -> pl.DataFrame:
    """Rules that fired when a job last ran, and now pass in every run of it: one row per job and rule."""
    now = runs.select(*LIKE, "run_id", "team", "owner", "passed")
    last = past.join(now.select(*LIKE).unique(), on=LIKE, nulls_equal=True)
    last = last.filter(pl.col("week") == pl.col("week").max().over(LIKE))
    shares = last.rename({f"{end}_share": end for end in _ENDS})
    of_rule = shares.group_by(*LIKE, "rule")
    promised = of_rule.agg(pl.col("title", "severity", "week").first(), pl.col(_ENDS).mean())
    passes = (
        promised.join(now, on=LIKE, nulls_equal=True)
        .with_columns(passes=pl.col("passed").list.contains(pl.col("rule")))
        .group_by(*LIKE, "rule", maintain_order=True)
        .agg(
            pl.col("title", "severity", *_ENDS, "week", "team", "owner", "run_id").first(),
            pl.col("passes").all(),
        )
    )
    still = findings.select(*LIKE, "rule").unique()
    return passes.filter("passes").join(still, on=[*LIKE, "rule"], how="anti", nulls_equal=True)


def fixed_findings(gone: pl.DataFrame) -> Iterator[JobFinding]:
    """Fixed findings, one per job and rule."""
    about = gone.unique(["job_key", "rule"], maintain_order=True).select(
        "rule", "title", "team", "owner", "severity", "run_id", job="job_key", status=pl.lit("fixed")
    )
    nothing = {**dict.fromkeys(("weeks", "runs", "low", "high", "expected"), 0), "money": None, "reason": None}
    return (JobFinding.model_validate({**row, **nothing, "says": "", "fix": ""}) for row in about.to_dicts())


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
    before, after = pl.col("step_ms_before"), pl.col("step_ms")
    rows = both.with_columns(
        job="job_key",
        realised=1 - after / before,
        brought=pl.col("hours") * (before / after - 1),
        before_ms=before,
        after_ms=after,
        runs="number",
        runs_before="number_before",
    ).sort("realised", "job", descending=[True, False])
    return tuple(map(Realised.model_validate, rows.to_dicts()))


def _medians(runs: pl.DataFrame) -> pl.DataFrame:
    timed = runs.filter(pl.col("step_ms") > 0)
    return timed.group_by(*LIKE).agg(pl.col("step_ms").median(), pl.col("hours").sum(), number=pl.len())


_LEAST_CHANGE: Final = 0.05  # of the step time, as `advisor compare` has it
_LEAST_RUNS: Final = 5  # a side; fewer come out in order by chance too often
_MOST_COMPARED: Final = 50  # jobs with the most GPU-hours at stake that are tested
_MOST_SHIFTS: Final = 5
_LEAST_SHIFT: Final = 0.0005  # of 1: what is shown as 0.1 points


def changes(runs: pl.DataFrame, earlier: pl.DataFrame) -> tuple[tuple[Change, ...], tuple[Change, ...], int]:
    """Jobs that got slower, jobs that got faster, and how many have too few runs to tell.

    The sample is the runs' typical step times: steps of one run are not independent of each other.
    """
    after = _times(runs, pl.col("team", "run_id").first(), pl.col("hours").sum())
    before = _times(earlier)
    both = after.join(before, on=LIKE, nulls_equal=True, suffix="_before")
    enough = pl.min_horizontal(pl.col("times").list.len(), pl.col("times_before").list.len()) >= _LEAST_RUNS
    ratio = pl.col("times").list.median() / pl.col("times_before").list.median()
    moved = both.filter(enough, (ratio >= 1 + _LEAST_CHANGE) | (ratio <= 1 / (1 + _LEAST_CHANGE)))
    moved = moved.with_columns(size=ratio.log().abs() * pl.col("hours"))
    tested = moved.sort("size", *LIKE, descending=[True, False, False, False]).head(_MOST_COMPARED)
    moves = [change for row in tested.to_dicts() if (change := _change(row)) is not None]
    slower, faster = ([c for c in moves if (c.ratio > 1) == worse] for worse in (True, False))
    return tuple(slower), tuple(faster), both.filter(~enough).height


def _times(runs: pl.DataFrame, *more: pl.Expr) -> pl.DataFrame:
    return runs.filter(pl.col("step_ms") > 0).group_by(*LIKE).agg(*more, times=pl.col("step_ms"))


def _change(row: Mapping[str, Any]) -> Change | None:
    before, after = np.array(row["times_before"]), np.array(row["times"])
    difference = contrast([before], [after])
    if not difference.differs(_LEAST_CHANGE):
        return None
    return Change(
        job=row["job_key"],
        before_ms=float(np.median(before)),
        after_ms=float(np.median(after)),
        ratio=difference.ratio,
        low=difference.low,
        high=difference.high,
        runs=len(after),
        runs_before=len(before),
        **row,
    )


def trend(runs: pl.DataFrame) -> tuple[Trend, ...]:
    """Per week, where the GPU-hours go."""
    kinds = pl.Struct(dict.fromkeys(PARTS, pl.Float64))
    parts = [pl.col("breakdown").str.json_decode(kinds).struct.field(name).fill_null(0.0) for name in PARTS]
    shares = runs.with_columns(*parts).with_columns(pl.col("unknown") + 1 - pl.sum_horizontal(*PARTS))
    hours = [(pl.col(name) * pl.col("hours")).filter(pl.col("busy_share").is_not_null()).sum() for name in PARTS]
    own = {f"hours_{name}": total for name, total in zip(PARTS, hours, strict=True)}
    grouped = shares.group_by("week").agg(*HOURS, **own)
    return tuple(
        Trend(shares={name: row[f"hours_{name}"] / row["paid"] for name in PARTS} if row["paid"] else {}, **row)
        for row in grouped.sort("week").to_dicts()
    )


def shifts(runs: pl.DataFrame, earlier: pl.DataFrame) -> tuple[Shift, ...]:
    """The jobs that moved the fleet's busy share most since the last week with runs."""
    then = _busy_hours(earlier.filter(pl.col("week") == pl.col("week").max()))
    now = _busy_hours(runs)
    busy, known = (float(then[name].sum()) for name in ("busy", "hours"))
    if not known or not now["hours"].sum():
        return ()
    fleet = busy / known
    both = now.join(then, on="job_key", how="full", coalesce=True, suffix="_before").with_columns(
        pl.col("hours", "hours_before", "busy", "busy_before").fill_null(0.0)
    )
    parts = [
        (pl.col(f"busy{week}") - fleet * pl.col(f"hours{week}")) / pl.col(f"hours{week}").sum()
        for week in ("", "_before")
    ]
    ranked = both.with_columns(points=parts[0] - parts[1]).sort(
        pl.col("points").abs(), "job_key", descending=[True, False]
    )
    most = ranked.filter(pl.col("points").abs() >= _LEAST_SHIFT).head(_MOST_SHIFTS)
    shares = [
        pl.when(pl.col(f"hours{week}") > 0).then(pl.col(f"busy{week}") / pl.col(f"hours{week}")).alias(f"busy{week}")
        for week in ("", "_before")
    ]
    rows = most.with_columns(*shares, job="job_key", team=pl.coalesce("team", "team_before"))
    return tuple(map(Shift.model_validate, rows.to_dicts()))


def _busy_hours(runs: pl.DataFrame) -> pl.DataFrame:
    """Per job the hours of which it is known whether the devices worked, and those in which they did."""
    known = runs.filter(pl.col("busy_share").is_not_null())
    return known.group_by("job_key").agg(
        pl.col("team", "run_id").first(), pl.col("hours").sum(), busy=(pl.col("hours") * pl.col("busy_share")).sum()
    )
