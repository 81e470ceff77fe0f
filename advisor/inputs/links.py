"""What profilers leave to be worked out: which range encloses which, what launched what, and where the steps are.

Host ops have `id` and `parent` from here on, device ops `id`, `launch` and `op`.
"""

from typing import Final

import numpy as np
import polars as pl

from advisor.errors import ReadError, UsageError
from advisor.inputs.clocks import ROUNDED_NS, are_many
from advisor.inputs.names.calls import LAUNCHING, STEP
from advisor.inputs.step_periods import NO_DEVICE_WORK, device_periods, host_periods
from advisor.model.clause import Note
from advisor.model.intervals import crossed, nest
from advisor.model.profile import END_NS, matches, unnumbered
from advisor.text import plain
from advisor.vocabulary.kinds import DRIVER_CALLS

_MOST_DEVICES: Final = 256
_MOST_NAMES: Final = 8
_CALLS: Final = [*DRIVER_CALLS, "overhead"]
_WORK: Final = ["op", "collective"]
_NESTED: Final = [*_WORK, "input"]  # which a thread opens and closes in order; a mark of a step may end in an op
_MANY_TIMES: Final = 20  # own choice


def with_parents(host: pl.DataFrame) -> pl.DataFrame:
    """Adds `id` (row number) and `parent` (id of the innermost enclosing range of the same thread)."""
    start = host["start_ns"].to_numpy()
    parent = nest(host["thread"].fill_null(-1).to_numpy(), start, start + host["dur_ns"].to_numpy())
    return host.with_columns(id=pl.int_range(pl.len(), dtype=pl.Int64), parent=pl.Series(parent).replace(-1, None))


def nested(host: pl.DataFrame, name: str, salvaged: list[Note]) -> pl.DataFrame:
    """The ranges without ops that reach over the end of another around them; a note says so.

    Of two that cross, the one is wrong that is longer against others of its name. So are those that are as long, and
    many times as long as others: they end where none begins, around what they never called. More are a ReadError.
    """
    ops = host.with_row_index("row").filter(pl.col("kind").is_in(_NESTED))
    within = crossed(ops["thread"].fill_null(-1), ops["start_ns"], ops.select(END_NS).to_series(), ROUNDED_NS)
    if not len(later := np.flatnonzero(within >= 0)):
        return host
    length = ops["dur_ns"].to_numpy()
    of_usual = ops.select(pl.col("dur_ns") / (pl.median("dur_ns").over("name") + 1)).to_series().to_numpy()
    crossing = np.where(of_usual[later] < of_usual[within[later]], within[later], later)
    wrong = (ops["kind"] == "op").to_numpy() & (of_usual > _MANY_TIMES) & (length >= np.median(length[crossing]))
    wrong[crossing] = True
    if are_many(int(wrong.sum()), len(ops)):
        many = f"{wrong.sum():,} of {len(ops):,} ops"
        raise ReadError(
            f"{many} end after one that they begin in, so lengths are wrong; record or export it again", name
        )
    salvaged.append(Note("unsound_ops", rows=int(wrong.sum()), ops=len(ops)))
    return host.filter(~pl.int_range(pl.len(), dtype=pl.UInt32).is_in(ops["row"].filter(wrong).implode()))


def with_launches(device: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Adds `id`, `launch` (the runtime call) and `op` (the innermost framework op whose range encloses the call).

    External ids changed their meaning over PyTorch's versions and serve only where no range does. A ReadError where the
    ops are of more devices than a host has; what follows goes through them one by one.
    """
    if device["device"].n_unique() > _MOST_DEVICES:
        raise ReadError(f"ops of more than {_MOST_DEVICES:,} devices; a host has a few of them")
    calls = (
        host.lazy()
        .filter(pl.col("kind").is_in(DRIVER_CALLS) & (pl.col("correlation") > 0))
        .select("correlation", launch="id")
        .unique("correlation", keep="first", maintain_order=True)
        .collect()
    )
    device = device.with_columns(id=pl.int_range(pl.len(), dtype=pl.Int64)).join(
        calls, on="correlation", how="left", maintain_order="left"
    )
    enclosing = innermost(host, device["launch"], host["kind"].is_in(_WORK))
    device = device.with_columns(op=enclosing)
    if "external_id" not in device.columns or not device["launch"].null_count():
        return device
    by_id = host.filter(pl.col("kind").is_in(_WORK) & (pl.col("external_id") > 0)).select("external_id", named="id")
    device = device.join(by_id.unique("external_id", keep="first"), on="external_id", how="left", maintain_order="left")
    # One that repeats the correlation says nothing.
    is_known = pl.col("launch").is_null() & pl.col("external_id").ne_missing(pl.col("correlation"))
    return device.with_columns(op=pl.coalesce("op", pl.when(is_known).then("named")))


def without_waits(host: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """Copies within a device wait for nothing, whatever their call is named: "no host-side synchronization" (CUDA)."""
    copies = device.filter(pl.col("copy_kind") == "DtoD")["launch"]
    returns = (pl.col("kind") == "sync") & matches("^cu") & pl.col("id").is_in(copies.drop_nulls().implode())
    return host.with_columns(kind=pl.when(~returns).then("kind").otherwise(pl.lit("runtime", host.schema["kind"])))


def innermost(host: pl.DataFrame, rows: pl.Series, matches: pl.Series) -> pl.Series:
    """For each host row (its id; null: none) the nearest whose flag is set: itself or a range around it, or null."""
    if not host.height:
        return pl.repeat(None, len(rows), dtype=pl.Int64, eager=True)
    parent, is_match = host["parent"].fill_null(-1).to_numpy(), matches.to_numpy()
    at = rows.fill_null(-1).to_numpy().copy()
    while len(climbing := np.flatnonzero((at >= 0) & ~is_match[at])):
        at[climbing] = parent[at[climbing]]
    return pl.Series(at).replace(-1, None)


def steps(
    host: pl.DataFrame, device: pl.DataFrame, marks: pl.DataFrame | None = None, *, cut_off: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps per device, and the device ops with their `step`; `cut_off` says that the file's end is missing.

    `marks` are the ranges on the host that begin steps, disjoint and in order: step, name, host_start_ns, host_dur_ns;
    where not given, those called `ProfilerStep#N`. A step owns the device ops whose runtime call begins in its period
    on the host (see `inputs.step_periods`). Without such ranges there is none, and none where nothing joins the ops of
    a device with the host and it lags behind it by a step or more.
    """
    periods, called = periods_and_launches(profiler_steps(host) if marks is None else marks, host, device)
    device = device.with_columns(step=containing(periods, called, called + 1))
    devices = device.filter(pl.col("step").is_not_null())["device"].unique().sort().to_list()
    is_partial = cut_off or device.height > 0  # else no step has device work, and what the host does is known
    if is_partial and not devices and host.select(matches(LAUNCHING).any()).item():
        periods = periods.with_columns(incomplete=pl.lit(NO_DEVICE_WORK))
    known = [number for number in devices if number is not None] or [None]  # an odd op's device is none beside others
    windows = [device_periods(periods, device, called, number, cut_off=cut_off) for number in known]
    return pl.concat(windows), device


def periods_and_launches(
    marks: pl.DataFrame, host: pl.DataFrame, device: pl.DataFrame
) -> tuple[pl.DataFrame, pl.Series]:
    """The steps' periods on the host, if they can be used, and when each device op was launched, in ns or null."""
    periods = host_periods(marks, host, device)
    # Of a device of whose ops nothing is known, when they began; and how long it worked on after the steps on the host.
    known = pl.coalesce(pl.Series("at", host["start_ns"].gather(device[link])) for link in ("launch", "op"))
    ops = device.select("device", "start_ns", end=END_NS).with_columns(at=known)
    ops = ops.with_columns(is_apart=pl.col("at").is_null().all().over("device"))
    last = ops.filter("is_apart")["end"].max()
    done = periods.select((pl.col("host_start_ns") + pl.col("host_dur_ns")).max()).item()
    lag_ns = last - done if isinstance(last, int) and isinstance(done, int) else 0
    called = ops.select(pl.when("is_apart").then("start_ns").otherwise("at")).to_series()
    if periods.height and lag_ns > periods["host_dur_ns"].median():  # type: ignore[operator]  # there are rows
        periods = periods.clear()
    return periods, called


def profiler_steps(host: pl.DataFrame) -> pl.DataFrame:
    """The ranges called `ProfilerStep#N`, each number once."""
    number = pl.col("name").cast(pl.String).str.extract(STEP).cast(pl.Int32, strict=False)
    return (
        host.lazy()
        .filter(pl.col("kind") == "step")
        .select(step=number, name=pl.col("name").cast(pl.String), host_start_ns="start_ns", host_dur_ns="dur_ns")
        .filter(pl.col("step").is_not_null())
        .unique("step", keep="first")
        .sort("host_start_ns", "step")
        .collect()
    )


def require_ranges(host: pl.DataFrame, pattern: str) -> None:
    """Raise a UsageError where no range's whole name matches."""
    if not matching(host, pattern).height:
        ranges = host.lazy().filter(~pl.col("kind").is_in(_CALLS)).group_by(label=unnumbered().cast(pl.String))
        own = pl.col("kind").is_in(["step", "annotation"]).any()  # people's own come first
        there = ranges.agg(own=own, ns=pl.sum("dur_ns")).drop_nulls("label").collect()
        longest = there.sort("own", "ns", "label", descending=[True, True, False])["label"].head(_MOST_NAMES)
        names = ", ".join(plain(name)[:60] for name in longest)
        says = f"there are {names}" if names else "no range was recorded"
        part = f".*(?:{pattern}).*"
        inside = f" (the whole name must match; {part} would)" if matching(host, part).height else ""
        raise UsageError(f"--step-range {pattern}: no range is called like that{inside}; {says}")


def matching(host: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """The annotations and ops whose whole name matches; a UsageError where `pattern` is no regular expression."""
    ranges = host.filter(~pl.col("kind").is_in(_CALLS))
    try:
        pl.Series([""]).str.contains(pattern)  # by itself: in a group, `a)|(b` would be one
        return ranges.filter(pl.col("name").cast(pl.String).str.contains(f"^(?:{pattern})$"))
    except pl.exceptions.ComputeError as error:
        what = next((line.strip() for line in str(error).splitlines() if line.startswith("error: ")), "it is invalid")
        raise UsageError(f"--step-range {pattern}: not a regular expression ({what})") from None


def as_steps(ranges: pl.DataFrame) -> pl.DataFrame:
    """Ranges as steps in order of time, disjoint, with the last numbers in their names or, if none ascend, counted."""
    ordered = ranges.sort("start_ns", "dur_ns", descending=[False, True])
    apart = ordered.filter((pl.col("start_ns") >= END_NS.cum_max().shift(1)).fill_null(True))  # noqa: FBT003 - polars takes it so
    numbers = apart["name"].cast(pl.String).str.extract(r"(\d+)\D*$").cast(pl.Int32, strict=False)
    ascends = not numbers.null_count() and bool((numbers.diff().drop_nulls() > 0).all())
    return apart.select(
        step=numbers if ascends else pl.int_range(pl.len(), dtype=pl.Int32),
        name=pl.col("name").cast(pl.String),
        host_start_ns="start_ns",
        host_dur_ns="dur_ns",
    )


def containing(steps: pl.DataFrame, starts: pl.Series, ends: pl.Series) -> pl.Series:
    """Number of the step that contains each [start, end), null where none does or the span is unknown."""
    if not steps.height:
        return pl.repeat(None, len(starts), dtype=pl.Int32, eager=True)
    opens = steps["host_start_ns"].to_numpy()
    closes = opens + steps["host_dur_ns"].to_numpy()
    begin, finish = starts.fill_null(-1).to_numpy(), ends.fill_null(-1).to_numpy()
    i = np.searchsorted(opens, begin, side="right") - 1
    inside = (i >= 0) & (finish <= closes[i]) & starts.is_not_null().to_numpy()
    return pl.select(pl.when(pl.Series(inside)).then(steps["step"].gather(np.maximum(i, 0)))).to_series()
