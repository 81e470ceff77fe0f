"""Host and device ops as places to point at in a report."""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from advisor.analysis.device.idle import gaps, idle_after_waits
from advisor.analysis.device.view import DeviceView, positions
from advisor.model.intervals import Intervals
from advisor.model.profile import END_NS, matches
from advisor.text import ms

Rows: TypeAlias = Callable[[DeviceView], pl.DataFrame]

_MOST_PLACES: Final = 10


def as_places(rows: Rows, table: str, op: str | None = None, name: pl.Expr | None = None, by: str = "dur_ns") -> Rows:
    """Rows with start_ns and dur_ns as places to point at, the longest first, or those with the most of another column.

    Args:
        rows: Of the profile's ops, steps or gaps; with `step` where they have one.
        table: The table that they are of.
        op: The column that holds the id of the host op to name.
        name: What to call each; their names by default.
        by: The column that orders them.
    """

    def longest(view: DeviceView) -> pl.DataFrame:
        ordered = view.once(rows).sort(by, "start_ns", descending=[True, False])
        step, id_ = ["step"] if "step" in ordered.columns else [], {"op": pl.col(op)} if op else {}
        label = pl.col("name").cast(pl.String) if name is None else name
        return ordered.select(*step, "start_ns", "dur_ns", table=pl.lit(table), name=label, **id_)

    return longest


def stretches(when: Callable[[DeviceView], Intervals], name: str) -> Rows:
    """Stretches of the host's time as places to point at, the longest first."""

    def rows(view: DeviceView) -> pl.DataFrame:
        spans = view.once(when)
        return pl.DataFrame({"start_ns": spans.starts, "dur_ns": spans.ends - spans.starts})

    return as_places(rows, "host_ops", name=pl.lit(name))


def places(rows: Rows, op: str = "id") -> Rows:
    """Those of the host ops that lie in used steps, as places to point at; `op` holds the id of the op to name."""

    def used(view: DeviceView) -> pl.DataFrame:
        ops = view.once(rows)
        window = view.used_host.filter(pl.col("id").is_in(ops["id"].implode())).select("id", "window").collect()
        return ops.drop("step", "window", strict=False).join(window, on="id").with_columns(step=_step(view))

    return as_places(used, "host_ops", op)


def waits_that_cost(view: DeviceView) -> pl.DataFrame:
    """The calls that waited, each with the idle time that followed, as places to point at, the costliest first."""
    after = view.once(idle_after_waits).group_by("call").agg(pl.min("window"), pl.sum("sync_ns")).drop_nulls("call")
    columns = {"parent": "parent", "dur_ns": "dur_ns", "call_start": "start_ns", "called": "name"}
    costs = view.with_host(after, "call", **columns).sort("sync_ns", "call_start", descending=[True, False])
    most = costs.head(_MOST_PLACES)
    around = ops_around(view, most["call"])
    return most.select(
        step=_step(view),
        start_ns="call_start",
        dur_ns="dur_ns",
        op=pl.when(around != pl.col("call")).then(around).otherwise("parent"),
        table=pl.lit("host_ops"),
        name=pl.format("{}, then the device idles for {}", "called", _in_ms("sync_ns")),
    )


def ops_around(view: DeviceView, calls: pl.Series, called: str = "^aten::") -> pl.Series:
    """For each id of a call that of the outermost op around it `called` so, else its own: `.item()` is aten::item."""
    is_op = np.append(view.host.select(matches(called).fill_null(value=False)).to_series().to_numpy(), False)
    best = positions(view.host, calls)
    for at in view.outward(calls):
        best = np.where(is_op[at], at, best)
    return view.host["id"].gather(best).rename("around")


def _step(view: DeviceView) -> pl.Expr:
    """The number of the used step whose row `window` holds."""
    return pl.col("window").replace_strict(list(range(view.steps.height)), view.steps["step"], return_dtype=pl.Int32)


def device_places(rows: Rows) -> Rows:
    """Device ops as places to point at, the longest first: which call launched each, in what op or range, what follows.

    Only for as many as a report names: what follows is looked up for each.
    """

    def longest(view: DeviceView) -> pl.DataFrame:
        first = view.once(rows).sort("dur_ns", "start_ns", descending=[True, False]).head(_MOST_PLACES)
        idle = view.once(gaps).select(end_ns="start_ns", idle_ns=pl.col("end_ns") - pl.col("start_ns"))
        calls = view.with_host(first.with_columns(end_ns=END_NS), "launch", parent="parent", called="name")
        by = pl.format(" by {}", "called").fill_null("")
        after = pl.format(", then the device idles for {}", _in_ms("idle_ns")).fill_null("")
        name = pl.concat_str(pl.col("name").cast(pl.String), by, after)
        op, table = pl.coalesce("op", "parent"), pl.lit("device_ops")
        calls_and_gaps = calls.join(idle, on="end_ns", how="left", maintain_order="left")
        return calls_and_gaps.select("step", "start_ns", "dur_ns", op=op, table=table, name=name)

    return longest


def _in_ms(column: str) -> pl.Expr:
    return pl.col(column).map_elements(lambda ns: ms(ns / 1e6), return_dtype=pl.String)
