"""A week against those before it: jobs that got slower or faster, and where the GPU-hours of each week went."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from advisor.comparing.significance import contrast
from advisor.fleet.gpu_hours import HOURS, LIKE
from advisor.model.week import Change, Shift, Trend
from advisor.vocabulary.parts import PARTS

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
    return tuple(
        Shift.model_validate(
            row
            | {
                "job": row["job_key"],
                "team": row["team"] or row["team_before"],
                "busy_before": row["busy_before"] / row["hours_before"] if row["hours_before"] else None,
                "busy": row["busy"] / row["hours"] if row["hours"] else None,
            }
        )
        for row in most.to_dicts()
    )


def _busy_hours(runs: pl.DataFrame) -> pl.DataFrame:
    """Per job the hours of which it is known whether the devices worked, and those in which they did."""
    known = runs.filter(pl.col("busy_share").is_not_null())
    return known.group_by("job_key").agg(
        pl.col("team", "run_id").first(), pl.col("hours").sum(), busy=(pl.col("hours") * pl.col("busy_share")).sum()
    )
