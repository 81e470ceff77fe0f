"""What runs on the device and on the host, kind by kind and by name, with the spread that a comparison needs."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import own_ns
from advisor.analysis.device.kernels import element_types
from advisor.analysis.device.timeline import call_tree
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import tabulates
from advisor.vocabulary.kinds import DRIVER_CALLS

MOST_ROWS: Final = 2000  # of a pooled table: what takes least time is left out
_LONGEST_SHAPES: Final = 300
_SPREAD: Final = (
    pl.len().alias("calls"),
    (pl.col("dur_ns").mean() / 1e3).alias("mean_us"),
    (pl.col("dur_ns").std() / 1e3).alias("sd_us"),
)


tabulates("call_tree")(call_tree)


@tabulates("launch")
def launch_table(view: DeviceView) -> pl.DataFrame:
    """One row per device op's kind, name and size in the used steps; sorted by them.

    Columns: kind, name, grid and block of kernels, bytes of copies; calls, mean_us, sd_us (null for one call).
    """
    copies = ~pl.col("kind").is_in(["kernel", "collective"])
    keys = ["kind", "name", "grid", "block", "bytes"]
    ran = view.used_ops.select("kind", "name", "grid", "block", "dur_ns", bytes=pl.when(copies).then("bytes"))
    rows = ran.group_by(keys).agg(_SPREAD).with_columns(pl.col("kind", "name").cast(pl.String))
    return rows.sort(keys, nulls_last=True)


@tabulates("op")
def op_table(view: DeviceView) -> pl.DataFrame:
    """One row per framework op's name, input shapes and types, and caller in the used steps; sorted by them.

    What ran on the device for an op that was not recorded on the host, as of a compiled program, has a row of its own
    by the name that the device op bears.

    Columns: name, shapes, types (`fp32, int64`, each once) and stack (innermost frame first; null where not recorded),
    eager; calls on the host, total_ms and self_ms (outside the ops within it, as XProf and torch-tb-profiler count),
    mean_us and sd_us of that per call (null for none, or one); device_calls and device_ms, of the device ops that it
    launches itself.
    """
    on_host, on_device = _on_host(view), _on_device(view)
    keys = [*_KEYS]
    rows = on_host.join(on_device, on=keys, how="full", coalesce=True, nulls_equal=True)
    return rows.with_columns(pl.exclude(*keys, "mean_us", "sd_us").fill_null(0)).sort(keys, nulls_last=True)


_KEYS: Final = {"name": "name", "shapes": "shapes", "types": "dtypes", "stack": "stack", "eager": "eager"}


def _keys(view: DeviceView) -> list[pl.Expr]:
    """The columns of an op's row from those of a profile."""
    shapes = pl.col("shapes").cast(pl.String).str.replace_all(r"\s", "").str.slice(0, _LONGEST_SHAPES)
    types = pl.col("dtypes").cast(pl.String).replace_strict(view.once(_types), default=None, return_dtype=pl.String)
    name, stack = (pl.col(column).cast(pl.String) for column in ("name", "stack"))
    return [name, shapes, types.alias("types"), stack, pl.col("eager")]


def _types(view: DeviceView) -> dict[str, str | None]:
    """Each distinct text of types is parsed once."""
    texts = view.host["dtypes"].unique().drop_nulls().cast(pl.String)
    return {text: element_types(text) for text in texts}


def _on_host(view: DeviceView) -> pl.DataFrame:
    columns = [*_KEYS.values()]
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent", "dur_ns", *columns).collect()
    own = ops.select(*columns, whole_ns="dur_ns", dur_ns=own_ns(ops).clip(0))
    spelt = own.group_by(columns).agg("dur_ns", pl.sum("whole_ns")).with_columns(_keys(view))
    keys = spelt.select(*_KEYS).unique().with_row_index("key")  # two shapes may be written as one
    spent = spelt.join(keys, on=[*_KEYS], nulls_equal=True).select("key", "dur_ns", "whole_ns")
    totals = spent.group_by("key").agg(total_ms=pl.sum("whole_ns") / 1e6)
    times = spent.explode("dur_ns").group_by("key").agg(*_SPREAD, self_ms=pl.sum("dur_ns") / 1e6)
    return keys.join(times, on="key").join(totals, on="key").drop("key")


def _on_device(view: DeviceView) -> pl.DataFrame:
    """By the op that launched it; where that is another than the one that the device op names, or none, by the name."""
    columns = [*_KEYS.values()]
    ops = view.host_of(view.used_ops["op"]).filter(pl.col("kind") == "op").select(*columns, op="id")
    ran = view.used_ops.select("op", "dur_ns", named="framework_op").join(ops, on="op", how="left")
    sums = ran.group_by(*columns, "named").agg(pl.len(), pl.sum("dur_ns"))
    spelt = sums.select(pl.col("named").cast(pl.String), *_keys(view), "len", "dur_ns")  # texts of few rows
    other = pl.col("named").is_not_null() & pl.col("name").ne_missing(pl.col("named"))
    keys = [*_KEYS]
    rows = spelt.with_columns(
        pl.when(other).then("named").otherwise("name").alias("name"),
        *(pl.when(~other).then(key).alias(key) for key in keys[1:]),
    )
    counted = rows.group_by(keys).agg(device_calls=pl.sum("len"), device_ms=pl.sum("dur_ns") / 1e6)
    return counted.filter(pl.col("name").is_not_null())


_NUMBERS: Final = {"calls", "mean_us", "sd_us", "self_ms", "total_ms", "device_calls", "device_ms"}


def pooled(table: pl.DataFrame, steps: int) -> pl.DataFrame:
    """One of these tables for all devices together, the most time first, of so many used steps of all of them.

    Without worker and device, with calls_per_step and ms_per_step (of an op, of the host's time of its own), and of ops
    total_ms_per_step, device_calls_per_step and device_ms_per_step; all per device.
    """
    keys = [name for name in table.columns if name not in {"worker", "device", *_NUMBERS}]
    sums = [name for name in ("total_ms", "device_calls", "device_ms") if name in table.columns]
    number, mean = pl.col("calls"), pl.col("mean_us")
    whole_mean = (number * mean).sum() / number.sum()
    # Chan, Golub and LeVeque 1979: squares about the common mean from those about each part's
    squares = ((number - 1) * pl.col("sd_us").fill_null(0) ** 2 + number * (mean - whole_mean) ** 2).sum()
    total = number.sum()
    together = table.group_by(keys).agg(
        calls=total,
        calls_per_step=total / max(1, steps),
        ms_per_step=(number * mean).sum() / 1e3 / max(1, steps),
        mean_us=pl.when(total > 0).then(whole_mean),
        sd_us=pl.when(total > 1).then((squares / (total - 1)).sqrt()),
        **{f"{name}_per_step": pl.col(name).sum() / max(1, steps) for name in sums},
    )
    spent = pl.sum_horizontal("ms_per_step", *(["device_ms_per_step"] if sums else []))
    most_first = [spent, *(pl.col(key) for key in keys)]
    return together.sort(most_first, descending=[True, *[False] * len(keys)], nulls_last=True).head(MOST_ROWS)


_RANGES: Final = ["op", "annotation", "input", "step", "compile"]
_KIND: Final = pl.col("kind")
_SPREAD_OF: Final = ("total", "mean", "median", "min", "max", "sd")


def _spread(column: str, unit: str) -> dict[str, pl.Expr]:
    """Total, mean, median, least, most and standard deviation."""
    of = pl.col(column)
    values = zip(_SPREAD_OF, (of.sum(), of.mean(), of.median(), of.min(), of.max(), of.std()), strict=True)
    return {f"{name}_{unit}": value for name, value in values}


@tabulates("activity")
def activity(view: DeviceView) -> pl.DataFrame:
    """One row per kind and name of device op in a whole Nsight Systems recording, steps or not; most time first.

    Columns: kind (kernel, collective, memcpy, memset), name (of copies their direction); calls, total_ns, mean_ns,
    median_ns, min_ns, max_ns, sd_ns; and of copies and memsets the same of their bytes.
    """
    keys = [_KIND, pl.when(_KIND.is_in(["kernel", "collective"])).then("name").alias("name"), pl.col("copy_kind")]
    sizes = {name: pl.when(pl.col("bytes").count() > 0).then(size) for name, size in _spread("bytes", "bytes").items()}
    rows = _recorded(view.ops, view).group_by(keys).agg(calls=pl.len(), **_spread("dur_ns", "ns"), **sizes)
    # named once they are few: of hundreds of thousands of rows that takes longer than all the rest
    moved = pl.format("Memcpy {}", pl.col("copy_kind").cast(pl.String).fill_null("?"))
    label = pl.when(_KIND == "memcpy").then(moved).when(_KIND == "memset").then(pl.lit("Memset"))
    name = label.otherwise(pl.col("name").cast(pl.String))
    return _most_first(rows.with_columns(_KIND.cast(pl.String), name=name).drop("copy_kind"))


@tabulates("call")
def call(view: DeviceView) -> pl.DataFrame:
    """One row per CUDA call and NVTX range by name, of the worker, in such a recording; most time first.

    Columns: kind (api, or range), name, calls, total_ns, mean_ns, median_ns, min_ns, max_ns, sd_ns.
    """
    kind = pl.when(_KIND.is_in(DRIVER_CALLS)).then(pl.lit("api")).when(_KIND.is_in(_RANGES)).then(pl.lit("range"))
    host = _recorded(view.host, view).group_by(kind.alias("kind"), "name")
    rows = host.agg(calls=pl.len(), **_spread("dur_ns", "ns")).drop_nulls("kind")
    return _most_first(rows.with_columns(pl.col("name").cast(pl.String)))


def _recorded(rows: pl.DataFrame, view: DeviceView) -> pl.DataFrame:
    return rows if view.is_of_nsight else rows.clear()


def _most_first(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("total_ns", "kind", "name", descending=[True, False, False])
