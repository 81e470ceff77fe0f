"""What a selection can be of: ops, kernels, calls, frames, ranges, copies or collectives, and the columns of each."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import polars as pl

from advisor.analysis.device.communication import device_collectives
from advisor.analysis.device.idle import launch_gaps, no_frames, stalls
from advisor.analysis.device.kernels import parts
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Rows, lacking
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals
from advisor.vocabulary.kinds import DRIVER_CALLS

Kind: TypeAlias = Literal[
    "ops", "kernels", "calls", "frames", "ranges", "copies", "collectives", "device_ops", "host_ops"
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Idle: TypeAlias = Literal["launch_gap", "host_busy", "no_kernel"]
IDLE: Final[Mapping[Idle, Callable[[DeviceView], Intervals]]] = {
    "launch_gap": launch_gaps,
    "host_busy": stalls,
    "no_kernel": lambda view: view.windows - view.device_spans("kernel"),
}
"""When the device idles, by cause; or computes nothing, whatever it copies or exchanges."""


class OfKind(NamedTuple):
    """What a kind of selection is.

    `words` name it in a formula, `rows` gives those of a device (else `host` are kinds of host ops), a pattern is held
    against `name_column`, and `columns` are what `where` may speak of.
    """

    words: str
    columns: Mapping[str, pl.Expr]
    rows: Rows | None = None
    host: tuple[str, ...] = ()
    name_column: str = "name"
    needs: tuple[str, ...] = ()
    unknown: Callable[[DeviceView], Missing | None] | None = None


def with_inner(view: DeviceView, rows: pl.DataFrame) -> pl.DataFrame:
    """Host ops with the number of ops and calls right `inside` each, and of what it launched on the device."""
    within = view.host.filter(pl.col("kind").is_in(["op", *DRIVER_CALLS]))["parent"]
    inner = pl.DataFrame({"id": pl.concat([within, view.ops["op"]])}).group_by("id").agg(inside=pl.len())
    return rows.join(inner, on="id", how="left", maintain_order="left").with_columns(pl.col("inside").fill_null(0))


def _with_ops(rows: Rows) -> Rows:
    """What runs on the device, with the name of the op that launched it."""
    return lambda view: view.with_host(rows(view), "op", op_name="name")


def _unseen(code: str, *kinds: str) -> Callable[[DeviceView], Missing | None]:
    """Why it is unknown what ran on the host of a device: nothing of these kinds was recorded."""
    return lacking(**{code: lambda view: view.device is not None and not view.host["kind"].is_in(kinds).any()})


def _texts(**columns: str) -> dict[str, pl.Expr]:
    return {name: pl.col(column).cast(pl.String) for name, column in columns.items()}


_RANGES: Final = ("annotation", "module", "input")
_OF_PROGRAM: Final = ("op", *_RANGES, "python")
_NO_RANGES: Final = _unseen("no_host_event", *_OF_PROGRAM)
_OF_ALL: Final = {"us": pl.col("dur_ns") / 1e3}
_OF_HOST: Final = {**_OF_ALL, "inside": pl.col("inside")}
_OF_DEVICE: Final = {**_OF_ALL, "stream": pl.col("stream")}
_OF_KERNELS: Final = {
    **_OF_DEVICE,
    **_texts(family="family", group="part", operand="op_dtype", library="library", generation="generation"),
    "type": pl.coalesce("element_type", "op_dtype"),
    "elements": pl.col("elements"),
    "dimensions": pl.col("shape").str.count_matches(",") + 1,
    "compiled": pl.col("hlo_module").is_not_null(),
    **{name: pl.col(name) for name in ("tensor_cores", "alignment", "occupancy", "block", "blocks_per_sm")},
    **{name: pl.col(name) for name in ("registers", "m", "n", "k")},
}
OF_INPUTS: Final = ("operand", "elements", "dimensions", "m", "n", "k")
"""Columns of kernels that the inputs of their ops tell."""

_TEXTS: Final = frozenset({"family", "group", "operand", "library", "generation", "type", "kind", "source", "target"})
_TRUTHS: Final = frozenset({"compiled", "managed", "tensor_cores"})


@cache
def no_rows(kind: Kind) -> pl.DataFrame:
    """The columns of a kind with their types."""
    names = OF_KIND[kind].columns
    return pl.DataFrame(
        schema={name: pl.String if name in _TEXTS else pl.Boolean if name in _TRUTHS else pl.Float64 for name in names}
    )


OF_KIND: Final[dict[Kind, OfKind]] = {
    "ops": OfKind("framework ops", _OF_HOST, host=("op",), needs=("host_ops",), unknown=_unseen("no_host_op", "op")),
    "kernels": OfKind("kernels", _OF_KERNELS, parts, needs=("device_ops.name",)),
    "calls": OfKind(
        "calls of CUDA or HIP",
        _OF_HOST,
        host=DRIVER_CALLS,
        needs=("host_ops",),
        unknown=_unseen("no_cuda_calls", *DRIVER_CALLS),
    ),
    "frames": OfKind("Python functions", _OF_HOST, host=("python",), unknown=no_frames),
    "ranges": OfKind(
        "ranges of the program",
        _OF_HOST,
        host=_RANGES,
        needs=("host_ops",),
        unknown=lambda view: None if view.is_of_nsight else view.once(_NO_RANGES),
    ),
    "copies": OfKind(
        "copies",
        {
            **_OF_DEVICE,
            "bytes": pl.col("bytes"),
            "compiled": pl.col("hlo_module").is_not_null(),
            "managed": pl.col("source_memory").eq_missing(pl.lit("managed")),
            **_texts(kind="copy_kind", source="source_memory", target="target_memory"),
        },
        _with_ops(lambda view: view.used_ops.filter(pl.col("kind") == "memcpy")),
        needs=("device_ops",),
    ),
    "collectives": OfKind(
        "collectives",
        {**_OF_DEVICE, "bytes": pl.col("size")},
        _with_ops(device_collectives),
        name_column="does",
        needs=("device_ops",),
    ),
    "device_ops": OfKind("ops of the device", _OF_DEVICE, _with_ops(lambda view: view.used_ops), needs=("device_ops",)),
    "host_ops": OfKind("ranges and functions of the host", _OF_HOST, host=_OF_PROGRAM),
}
