"""Where the step goes: one priority sweep, in the order and the vocabulary that PyTorch's users know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from advisor.intervals import EMPTY, Ints, Union
from advisor.lens import Lane, spans
from advisor.metrics.registry import Metric, Value, measures, tabulates

# Category: (kinds of device ops, kinds of host ops, meaning). The first category that covers an instant owns it, so
# an overlapped collective is compute and only an exposed one is collective.
_ORDER: Final[dict[str, tuple[list[str], list[str], str]]] = {
    "compute": (["kernel"], [], "a kernel runs on the device"),
    "memcpy": (["memcpy"], [], "a copy runs on the device, and no kernel"),
    "memset": (["memset"], [], "only a memset runs on the device"),
    "collective": (["collective"], ["collective"], "only a collective runs: communication that nothing hides"),
    "launch": ([], ["runtime", "sync", "allocator"], "the device idles while the host is in a CUDA or HIP call"),
    "input": ([], ["input"], "the device idles while the data loader is asked for the next batch"),
    "compile": ([], ["compile"], "the device idles while code is being compiled"),
    "host": ([], ["op", "annotation", "module", "python", "gc"], "the device idles while other host code runs"),
}
CATEGORIES: Final = (*_ORDER, "other")
_SOURCE: Final = "the sweep of torch-tb-profiler's overview, with every collective kernel counted as communication"


def _longest_waits(lane: Lane) -> pl.DataFrame:
    """The longest requests for a batch in the used steps."""
    waits = lane.used_host.filter(pl.col("kind") == "input").sort("dur_ns", "start_ns", descending=[True, False])
    step = pl.col("window").replace_strict(list(range(lane.steps.height)), lane.steps["step"])
    name = pl.col("name").cast(pl.String)
    return waits.select("start_ns", "dur_ns", step=step, table=pl.lit("host_ops"), name=name, op=pl.col("id"))


def _metrics() -> list[Metric]:
    meanings = {name: meaning for name, (_, _, meaning) in _ORDER.items()} | {"other": "nothing that was recorded runs"}
    return [
        Metric(
            f"{name}_share",
            "share",
            f"Part of the step in which {meaning}.",
            f"time of {name} outside {', '.join(CATEGORIES[:i])} / step time" if i else "time of compute / step time",
            _SOURCE,
            where=_longest_waits if name == "input" else None,
        )
        for i, (name, meaning) in enumerate(meanings.items())
    ]


@measures(
    *_metrics(),
    Metric(
        "input_exposed_ms", "ms", "Time per step that passes waiting for input.", "input_share x step_mean_ms", _SOURCE
    ),
)
def breakdown(lane: Lane) -> Mapping[str, Value]:
    """Shares of the used steps by category; they sum to 1."""
    owned = {category: int(time.sum()) for category, time in _sweep(lane, lane.starts, lane.ends)}
    if not lane.total_ns:
        return {}
    shares: dict[str, Value] = {f"{category}_share": time / lane.total_ns for category, time in owned.items()}
    return shares | {"input_exposed_ms": lane.per_step_ms(owned["input"])}


@tabulates("step")
def step_table(lane: Lane) -> pl.DataFrame:
    """One row per used step: step, name, start_ns, step_ms and `<category>_share` for each category."""
    return _divided(lane, lane.steps)


@tabulates("recorded_step")
def recorded_steps(lane: Lane) -> pl.DataFrame:
    """The same for every step that was recorded whole, with `left_out`: why it is not used, null where it is."""
    return _divided(lane, lane.complete).with_columns(lane.complete["left_out"])


def _divided(lane: Lane, steps: pl.DataFrame) -> pl.DataFrame:
    starts = steps["start_ns"].to_numpy()
    ends = starts + steps["dur_ns"].to_numpy()
    length = np.maximum(ends - starts, 1)
    return steps.select("step", "name", "start_ns", step_ms=pl.col("dur_ns") / 1e6).with_columns(
        pl.Series(f"{category}_share", time / length) for category, time in _sweep(lane, starts, ends)
    )


def _sweep(lane: Lane, starts: Ints, ends: Ints) -> Iterator[tuple[str, Ints]]:
    """For each category, the time in every window that it covers and no earlier category does."""
    covered, before = EMPTY, np.zeros(len(starts), np.int64)
    for category, (device_kinds, host_kinds, _) in _ORDER.items():
        covered = covered | _spans(lane.ops, device_kinds) | _spans(lane.host, host_kinds)
        so_far = covered.within(starts, ends)
        yield category, so_far - before
        before = so_far
    yield "other", ends - starts - before


def _spans(ops: pl.DataFrame, kinds: list[str]) -> Union:
    return spans(ops.filter(pl.col("kind").is_in(kinds))) if kinds else EMPTY
