"""What kind of work a recording shows: training, inference, serving, capture of graphs, one kernel repeated, a log."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device.launches import captures
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names import engines
from advisor.inputs.names.calls import CAPTURE_BEGINS, CAPTURE_ENDS
from advisor.inputs.step_periods import PRODUCTS, without_graph
from advisor.model.profile import END_NS

UNKNOWN: Final = "unknown"
_RANGES: Final = ["op", "annotation", "step", "module", "compile"]
_LINKED: Final = 0.5  # of the kernel time: of the rest it is not known what launched it
_OF_OPS: Final = 0.9  # of the linked kernel time: graphs may hold a backward pass that no op shows
_ONE_KERNEL: Final = 0.95  # of the kernel time
_FEWEST_RUNS: Final = 3
_MOST_KERNELS: Final = 3
_CAPTURING: Final = 0.5  # of the host's time
_ALONE: Final = ("capture", "benchmark", "inference", "collectives")
"""Kinds that are named only where no sign of training or serving is; capture hides even those."""


class Sign(NamedTuple):
    """What shows a kind of work: a code of `workloads.SIGNS`, and a name from the recording that is an example."""

    kind: str
    code: str
    example: str


def signs(view: DeviceView) -> list[Sign]:
    """Every sign of a kind of work in the recording, those of the likeliest kind first."""
    by_name = list(_by_name(view))
    kinds = _kinds([*_logged(view), *_captures(view), *by_name, *_repetitions(view), *_forward_only(view)])
    return [sign for kind in dict.fromkeys(sign.kind for sign in kinds) for sign in kinds if sign.kind == kind]


def workload(view: DeviceView) -> str:
    """The kinds of work, joined by a comma where several mix; `unknown` where nothing shows it."""
    return ", ".join(dict.fromkeys(sign.kind for sign in view.once(signs))) or UNKNOWN


def _kinds(every: list[Sign]) -> list[Sign]:
    """The signs that count: capture hides all others, training and serving the weaker ones."""
    if capture := [sign for sign in every if sign.kind == "capture"]:
        return capture
    if strong := [sign for sign in every if sign.kind not in _ALONE]:
        return strong
    return next(([s for s in every if s.kind == kind] for kind in _ALONE if any(s.kind == kind for s in every)), [])


def _by_name(view: DeviceView) -> Iterator[Sign]:
    host = view.host.select("kind", "name").unique().with_columns(pl.col("name").cast(pl.String))
    names_of = {
        "kernels": view.ops.filter(pl.col("kind") == "kernel")["name"].unique().cast(pl.String),
        "ranges": host.filter(pl.col("kind").is_in(_RANGES))["name"],
        "python": host.filter(pl.col("kind") == "python")["name"],
    }
    for kind, code, whose, pattern in engines.signs():
        names = names_of[whose]
        if (example := names.filter(names.str.contains(pattern)).min()) is not None:
            yield Sign(kind, code, str(example))


def _logged(view: DeviceView) -> Iterator[Sign]:
    """Where collectives were logged, and nothing else was recorded."""
    if view.collective_log.height and not (view.host.height or view.ops.height):
        yield Sign("collectives", "collective_log", str(view.collective_log["op"].drop_nulls().first() or ""))


def _captures(view: DeviceView) -> Iterator[Sign]:
    """Where half of the host's time lies between the begin and the end of captures."""
    captured = captures(view.host_like(CAPTURE_BEGINS), view.host_like(CAPTURE_ENDS)).total
    if captured and captured >= _CAPTURING * view.host.select(END_NS.max() - pl.col("start_ns").min()).item():
        yield Sign("capture", "graph_capture", str(view.host_like(CAPTURE_BEGINS)["name"][0]))


def _repetitions(view: DeviceView) -> Iterator[Sign]:
    """Where one kernel is nearly all that runs, again and again."""
    ran = view.ops.filter(pl.col("kind").is_in(["kernel", "collective"]))
    kernels = ran.group_by("name", "framework_op").agg(ns=pl.sum("dur_ns"), runs=pl.len()).sort("ns", descending=True)
    part = pl.col("ns") / pl.col("ns").sum()
    is_other = view.only_collectives or ran["graph"].count()
    if is_other or not 0 < kernels.height <= _MOST_KERNELS or kernels["runs"][0] < _FEWEST_RUNS:
        return
    if kernels.select(part.first() >= _ONE_KERNEL).item():
        yield Sign("benchmark", "one_kernel", str(kernels["name"][0]))


def _forward_only(view: DeviceView) -> Iterator[Sign]:
    """Where PyTorch's products build no graph for a backward pass, and ops launch nearly all kernels."""
    if not without_graph(view.host_like(PRODUCTS, "op")):
        return
    kernels = view.ops.filter(pl.col("kind") == "kernel")
    linked, of_ops = (pl.col("dur_ns").filter(pl.col(link).is_not_null()).sum() for link in ("launch", "op"))
    if kernels.select((of_ops >= _OF_OPS * linked) & (linked >= _LINKED * pl.col("dur_ns").sum())).item():
        yield Sign("inference", "forward_only", "")
