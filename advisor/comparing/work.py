"""Which kernels, copies and framework ops appeared, vanished, changed count or take longer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.comparing.significance import welch
from advisor.comparing.steps import LEAST_EFFECT
from advisor.model.comparison import Amount, WorkChange, WorkStatus
from advisor.model.report import Run
from advisor.text import bytes_

_ALPHA: Final = 0.01  # of adjusted probabilities of kernels and ops
_OTHER_WORK: Final = 0.1  # of the ops' time: with so much of it at other sizes a step is another one
_OTHER_COUNT: Final = 0.05  # by which the number per step has to differ
_MOST_WORK: Final = 200
_LONG_US: Final = 20
_FEW_OPS: Final = 5
_OTHER_PACE, _ALL_PACE = 1.4, 1.2
_WAITS: Final = r"(?i)nccl|rccl|gloo|c10d|record_param_comms|wait|DataLoader"
_CUT: Final = 2000  # rows of a report's tables; beyond, what is missing may only have been cut off
_SIZES: Final[dict[str, dict[str, type[pl.DataType]]]] = {
    "launch": {"kind": pl.String, "name": pl.String, "grid": pl.Int64, "block": pl.Int64, "bytes": pl.Int64},
    "op": {"name": pl.String, "shapes": pl.String},
}
_TYPES: Final[dict[str, type[pl.DataType]]] = {"types": pl.String}  # of an op's inputs; kernels bear theirs in the name
_NUMBERS: Final[dict[str, type[pl.DataType]]] = {
    "calls": pl.Int64,
    "calls_per_step": pl.Float64,
    "mean_us": pl.Float64,
    "sd_us": pl.Float64,
}


def changes(base: Sequence[Run], head: Sequence[Run], least_ms: float) -> tuple[WorkChange, ...]:
    """What work appeared, vanished, is done more or less often, or takes longer or shorter; most time moved first."""
    changed = [change for scope in _SIZES for change in _changes(scope, base, head, least_ms)]
    return tuple(sorted(changed, key=lambda change: -abs(change.change_ms))[:_MOST_WORK])


def has_tables(runs: Sequence[Run], scopes: Iterable[str] = tuple(_SIZES)) -> bool:
    """Whether all runs have the tables that the changes come from; reports of earlier versions have none."""
    return all(scope in run.metrics for scope in scopes for run in runs)


def hidden(runs: Sequence[Run]) -> str | None:
    """Why the device's work is not all named in one of the runs, as in graphs that were recorded as a whole.

    What is not seen there may have run all the same, so that nothing is new, gone or done more often.
    """
    return next((why.words for run in runs if (why := run.source.lacks.get("device_ops.name"))), None)


def altered(what: str, keys: list[str], base: Sequence[Run], head: Sequence[Run]) -> list[tuple[str, str, str]]:
    """The framework ops of the same `keys` that have none of `what` in common: the most time on the base first.

    Each with the sizes or types that most of its time goes to on either side: other sizes are other work, which takes
    other time. Nothing where `what` was not recorded, a table was cut, or such
    ops take less than a tenth of the time of all that have it.
    """
    if any(len(run.metrics.get("op", ())) >= _CUT for run in (*base, *head)):
        return []
    before, after = (_amounts("op", runs, *_TYPES).drop_nulls(what) for runs in (base, head))
    pairs = before.join(after, on=keys, suffix="_head").with_columns(
        ms=pl.col("per_step") * pl.col("mean_us"), ms_head=pl.col("per_step_head") * pl.col("mean_us_head")
    )
    by_keys = pairs.group_by(keys).agg(
        common=(pl.col(what) == pl.col(f"{what}_head")).any(),
        base=pl.col(what).sort_by("ms", what).last(),
        head=pl.col(f"{what}_head").sort_by("ms_head", f"{what}_head").last(),
        ms=pl.struct(what, "ms").unique().struct.field("ms").sum(),
    )
    others = by_keys.filter(~pl.col("common")).sort("ms", *keys, descending=[True, *[False] * len(keys)])
    if others["ms"].sum() < _OTHER_WORK * float(before.select(pl.col("per_step").dot("mean_us")).item() or 0.0):
        return []
    return others.select("name", "base", "head").rows()


class Pace(NamedTuple):
    """How many times as long ops take on the head, and how many kinds of them there are."""

    ratio: float
    ops: int
    certain: bool  # the files tell that they are ops of the same sizes and types


def pace(base: Sequence[Run], head: Sequence[Run]) -> Pace | None:
    """The pace of unchanged work, where all of it moved alike by much; None where it did not, or there is little.

    Kernels, or without a device ops, of the same sizes and types and as many per step, of 20 us or more each: shorter
    ones are mostly the profiler's. Nine tenths of their time moved by a fifth or more, the middle by two fifths. Where
    a side does not tell types, ops count without.
    """
    scope = "launch" if any(row.get("kind") == "kernel" for row in base[0].metrics.get("launch", ())) else "op"
    has_types = all(any(row.get("types") for row in run.metrics.get("op", ())) for run in (*base, *head))
    more = _TYPES if scope == "op" and has_types else ()
    before, after = (_amounts(scope, runs, *more).drop_nulls([*more]) for runs in (base, head))
    keys = [*(key for key in _SIZES[scope] if key != "bytes"), *more]
    both = before.join(after, on=keys, suffix="_head", nulls_equal=True).with_columns(
        ratio=pl.col("mean_us_head") / pl.col("mean_us"), weight=pl.col("per_step") * pl.col("mean_us")
    )
    alike = (pl.col("per_step_head") / pl.col("per_step")).is_between(1 - _OTHER_COUNT, 1 + _OTHER_COUNT)
    same = both.filter(alike, pl.col("mean_us") >= _LONG_US, ~pl.col("name").str.contains(_WAITS)).sort("ratio")
    if same.height < _FEW_OPS:
        return None
    below = same["weight"].cum_sum() / same["weight"].sum()
    low, middle, high = (float(same["ratio"].filter(below >= part)[0]) for part in (0.1, 0.5, 0.9))
    slower, faster = middle >= _OTHER_PACE and low >= _ALL_PACE, middle <= 1 / _OTHER_PACE and high <= 1 / _ALL_PACE
    return Pace(middle, same.height, scope == "launch" or bool(more)) if slower or faster else None


def _amounts(scope: str, runs: Sequence[Run], *more: str) -> pl.DataFrame:
    """One side's numbers per kind, name and size over all its runs, and per `more`; types where there is one kind."""
    keys = [*_SIZES[scope], *more]
    schema = {**_SIZES[scope], **_TYPES, **_NUMBERS}
    rows = [row for run in runs for row in run.metrics.get(scope, ())]
    columns = [pl.Series(name, [row.get(name) for row in rows], of, strict=False) for name, of in schema.items()]
    number, mean = pl.col("calls"), pl.col("mean_us")
    mean_us = (number * mean).sum() / number.sum()
    squares = ((number - 1) * pl.col("sd_us").fill_null(0) ** 2 + number * (mean - mean_us) ** 2).sum()
    return (
        pl.DataFrame(columns)
        .filter(number > 0, mean.is_finite(), pl.col("calls_per_step").is_finite())
        .group_by(keys)
        .agg(
            calls=number.sum(),
            per_step=pl.col("calls_per_step").sum() / len(runs),
            mean_us=mean_us,
            sd_us=pl.when(number.sum() > 1).then((squares / (number.sum() - 1)).sqrt()),
            **({} if more else {"types": pl.when(pl.col("types").n_unique() == 1).then(pl.col("types").first())}),
        )
    )


def _size(scope: str) -> pl.Expr:
    if scope == "op":
        types = pl.format("{} \N{RIGHTWARDS ARROW} {}", "types", "types_head")
        other = pl.when(pl.col("types") != pl.col("types_head")).then(types)
        return pl.concat_str(other, "shapes", separator=" ", ignore_nulls=True).replace("", None)
    threads = pl.format("{} \N{MULTIPLICATION SIGN} {}", "grid", "block")
    size = pl.col("bytes").map_elements(bytes_, return_dtype=pl.String)
    return pl.coalesce(threads, size)


def _changes(scope: str, base: Sequence[Run], head: Sequence[Run], least_ms: float) -> Iterator[WorkChange]:
    """Names on one side only come as one; of the others each size is told by itself."""
    sizes = list(_SIZES[scope])
    before, after = (_amounts(scope, runs) for runs in (base, head))
    # Both sides' numbers beside each other, a row per kind, name and size; null on the side that lacks it.
    table = before.join(after, on=sizes, how="full", coalesce=True, nulls_equal=True, suffix="_head")
    if not has_tables([*base, *head], [scope]) or (scope == "launch" and hidden([*base, *head])):
        table = table.clear()
    elif any(len(run.metrics[scope]) >= _CUT for run in [*base, *head]):
        table = table.drop_nulls(["mean_us", "mean_us_head"])
    table = table.with_columns(kind=pl.col("kind") if "kind" in sizes else pl.lit("op"), size=_size(scope))
    keys = ["kind", "name"]
    here, there = pl.col("mean_us").is_not_null(), pl.col("mean_us_head").is_not_null()
    unmatched = ~(here.any() & there.any()).over(keys)
    others = table.filter(~unmatched)
    both = others.filter(here & there)
    sides = [
        [both[f"{name}{suffix}"].cast(pl.Float64).to_numpy() for name in ("mean_us", "sd_us", "calls")]
        for suffix in ("", "_head")
    ]
    p = welch(*[[mean, np.nan_to_num(spread), number] for mean, spread, number in sides])
    alone = chain.from_iterable(
        rows.iter_rows(named=True) for rows in (_summed(table.filter(unmatched)), others.filter(here != there))
    )
    changes = chain(map(_change, alone), map(_change, both.iter_rows(named=True), p.tolist()))
    return (change for change in changes if change and abs(change.change_ms) >= least_ms)


def _summed(table: pl.DataFrame) -> pl.DataFrame:
    def of(suffix: str) -> list[pl.Expr]:
        number, mean = pl.col(f"per_step{suffix}"), pl.col(f"mean_us{suffix}")
        present = number.is_not_null().any()
        mean_us = (number * mean).sum() / number.sum()
        return [
            pl.when(present).then(number.sum()).alias(f"per_step{suffix}"),
            pl.when(present).then(mean_us).alias(f"mean_us{suffix}"),
        ]

    return table.group_by("kind", "name", maintain_order=True).agg(*of(""), *of("_head"), size=pl.lit(None, pl.String))


def _change(row: Mapping[str, object], p: float | None = None) -> WorkChange | None:
    """What became of a kind of work, `p` where a test compared both sides; None where it is as it was."""
    base, head = _amount(row, ""), _amount(row, "_head")
    status: WorkStatus = "appeared" if base is None else "vanished"
    if base and head:
        ratio = head.mean_us / base.mean_us if base.mean_us else np.inf
        longer = p is not None and p < _ALPHA and abs(ratio - 1) >= LEAST_EFFECT
        often = abs(head.per_step - base.per_step) >= _OTHER_COUNT * max(base.per_step, head.per_step)
        if not (longer or often):
            return None
        by_count = abs(head.per_step - base.per_step) * base.mean_us
        by_length = abs(head.mean_us - base.mean_us) * head.per_step
        is_count = often and (not longer or by_count >= by_length)
        status, p = ("count", None) if is_count else ("slower" if ratio > 1 else "faster", p)
    about = {"work": row["kind"], "name": row["name"], "size": row["size"]}
    return WorkChange.of_row({**about, "status": status, "base": base, "head": head, "p": p})


def _amount(row: Mapping[str, object], suffix: str) -> Amount | None:
    number, mean = row[f"per_step{suffix}"], row[f"mean_us{suffix}"]
    if not isinstance(number, float) or not isinstance(mean, float):
        return None
    return Amount(per_step=number, mean_us=mean, ms_per_step=number * mean / 1e3)
