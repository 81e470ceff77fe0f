"""Why the device idles: the shares of each cause, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import CAUSES, SHORT, gaps, graph_holes_ns, graph_pauses_ns, idle_for, stalls
from advisor.analysis.device.places import waits_that_cost
from advisor.analysis.device.unknowns import DOUBTFUL, start_up, unknown_idle
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value
from advisor.metrics.several import Metric, Values, measures
from advisor.text import percent
from advisor.vocabulary import idle_causes
from advisor.vocabulary.limits import LAUNCH_GAP_NS

_LAUNCH_FLOOR_NS: Final = 1_500  # the gap that remains between two ops however they are launched
_SOURCE: Final = (
    "HTA's host wait and kernel wait, refined; 5 µs is the p90 of queued gaps in public H100 and B200 traces"
)
_NEEDS: Final = ("device_ops", "device_ops.launch")
_AMONG_KERNELS: Final = ("queued", "dependency")  # inside a CUDA graph too
_WORTH_NAMING_SHARE: Final = 0.01
_SILENT: Final = "the host launches nothing, doing what was not recorded"
_EITHER: Final = "a launch or other work was late: could not tell which"


def _longest(cause: str, *only: pl.Expr) -> Callable[[DeviceView], pl.DataFrame]:
    """Where the device idled longest for this cause, among the gaps that satisfy `only`."""

    def places(view: DeviceView) -> pl.DataFrame:
        owned = idle_for(view, cause, *only)
        window = np.searchsorted(view.starts, owned.starts, side="right") - 1
        # the op that was late is where to look; what the device waits for otherwise is not the next op's doing
        late = view.ops if cause == "host_bound" else view.ops.clear()
        ending = late.select("op", "id", end_ns="start_ns").sort("end_ns", "id").drop("id")
        return (
            pl.DataFrame({"start_ns": owned.starts, "end_ns": owned.ends, "dur_ns": owned.ends - owned.starts})
            .join_asof(ending, on="end_ns", strategy="forward")
            .select(
                "start_ns",
                "dur_ns",
                "op",
                table=pl.lit("gaps"),
                name=pl.lit(f"device idle: {idle_causes.IDLE_CAUSES[cause].meaning}"),
                step=view.steps["step"].gather(window),
            )
            .sort("dur_ns", "start_ns", descending=[True, False])
        )

    return places


DEVICE_BUSY_SHARE = Metric(
    "device_busy_share",
    "Part of the step in which anything runs on the device: kernels, copies, memsets, collectives.",
    "union of the device's ops over all streams inside the steps / step time",
    needs=("device_ops", "device_ops.start_ns"),
)
IDLE_SHARE = Metric(
    "idle_share",
    "Part of the step in which nothing runs on the device; its causes are parts of it.",
    "1 - device_busy_share",
    needs=("device_ops", "device_ops.dur_ns"),
)
IDLE_SHARES: Final = {
    cause.code: Metric(
        f"{cause.code}_idle_share",
        f"Part of the step in which the device idles and {cause.meaning}.",
        f"idle time, all streams merged, in which {cause.rule} / step time",
        _SOURCE,
        (*_NEEDS, "device_ops.dur_ns") if cause.code in _AMONG_KERNELS else _NEEDS,
        waits_that_cost if cause.code == "sync" else _longest(cause.code),
    )
    for cause in idle_causes.IDLE_CAUSES.values()
}
LAUNCH_GAP_SHARE = Metric(
    "launch_gap_share",
    "Part of the step in which the device idles in host-bound gaps of up to {launch_gap}: the price of launching op "
    "by op.",
    "host-bound idle time in gaps of at most {launch_gap} / step time",
    _SOURCE,
    _NEEDS,
    _longest("host_bound", SHORT),
)
LAUNCH_GAPS_PER_STEP = Metric(
    "launch_gaps_per_step",
    "How often per step the device waits for the host to launch, up to {launch_gap} each.",
    "host-bound gaps of at most {launch_gap} / steps",
    _SOURCE,
    _NEEDS,
)
LAUNCH_GAP_RECOVERABLE_MS = Metric(
    "launch_gap_recoverable_ms",
    "Idle time per step that faster launching could remove.",
    "sum over host-bound gaps of at most {launch_gap} of max(0, gap - 1.5 µs) / steps",
    "1.5 µs is the median gap between queued kernels in public H100 and B200 traces",
    _NEEDS,
)
HOST_BUSY_SHARE = Metric(
    "host_busy_share",
    "Part of the step in which the device idles for over {launch_gap} on end while the host launches nothing.",
    "host-bound idle time in gaps of over {launch_gap} / step time",
    _SOURCE,
    _NEEDS,
    _longest("host_bound", ~SHORT),
)
SYNC_IDLE_MS = Metric(
    "sync_idle_ms",
    "Idle time per step after synchronisation.",
    "sync_idle_share x step_mean_ms",
    _SOURCE,
    _NEEDS,
)
STARTUP_SHARE = Metric(
    "startup_share",
    "Part of a recording without steps that passes in calls of CUDA or HIP before the device's first op: start-up.",
    "idle time of unknown cause before that op during runtime and synchronising calls / step time; 0 with steps",
    "CUDA sets itself up, and loads its libraries, in the first calls of a process",
    ("device_ops",),
)
GRAPH_HOLE_SHARE = Metric(
    "graph_hole_share",
    "Part of the step beside ops of CUDA graphs in which the device seems idle, but nodes were not recorded.",
    "idle time beside ops of CUDA graphs / step time, if queued ones wait over {queued_gap} each in 5 % of it; else 0",
    _SOURCE,
    _NEEDS,
    _longest("unknown"),
)
GRAPH_PAUSE_SHARE = Metric(
    "graph_pause_share",
    "Part of the step in short pauses between the nodes of a CUDA graph: recording nodes makes such pauses itself.",
    "idle time of at most {queued_gap} each between ops of one launch of a CUDA graph / step time; 0 without graphs",
    _SOURCE,
)
IDLE_CAUSES = Metric(
    "idle_causes",
    "The causes of the idle time, the largest first.",
    "the three largest of the idle shares, of at least 1 % of the step each; as one where not told apart; "
    "of host-bound idle time that apart which lies in gaps of over {launch_gap} with nothing recorded on the host",
    _SOURCE,
    ("device_ops", "device_ops.start_ns"),
    unit="text",
)


@measures(
    DEVICE_BUSY_SHARE,
    IDLE_SHARE,
    *IDLE_SHARES.values(),
    LAUNCH_GAP_SHARE,
    LAUNCH_GAPS_PER_STEP,
    LAUNCH_GAP_RECOVERABLE_MS,
    HOST_BUSY_SHARE,
    SYNC_IDLE_MS,
    STARTUP_SHARE,
    GRAPH_HOLE_SHARE,
    IDLE_CAUSES,
)
def idle(view: DeviceView) -> Values:
    """Busy and idle shares of the used steps, and the causes of the idle part."""
    busy = view.share(view.busy) or 0.0
    rows = view.once(gaps)
    shares = {cause: float(rows[f"{cause}_ns"].sum()) / view.total_ns for cause in CAUSES}
    values: dict[Metric, Value] = {IDLE_SHARES[cause]: share for cause, share in shares.items()}
    values |= {DEVICE_BUSY_SHARE: busy, IDLE_SHARE: 1 - busy}
    values |= _launching(view, rows)
    why = view.once(unknown_idle)
    startup, longest = view.once(start_up)
    doubtful = {cause: share for cause, share in shares.items() if why and cause in DOUBTFUL}
    by_words = {_words(cause): share for cause, share in shares.items() if cause not in doubtful}
    by_words[_words("unknown")] -= startup
    if "host_bound" not in doubtful:
        by_words[_SILENT] = _silent_share(view)
        by_words[_words("host_bound")] -= by_words[_SILENT]
    values[STARTUP_SHARE] = startup
    values[GRAPH_HOLE_SHARE] = graph_holes_ns(view) / view.total_ns
    values[IDLE_CAUSES] = _in_words(by_words | {longest: startup, _EITHER: sum(doubtful.values())})
    if why:
        values |= dict.fromkeys(_DOUBTFUL_METRICS, why)
    return values


_DOUBTFUL_METRICS: Final = (
    *(IDLE_SHARES[cause] for cause in DOUBTFUL),
    SYNC_IDLE_MS,
    *(LAUNCH_GAP_SHARE, LAUNCH_GAPS_PER_STEP, LAUNCH_GAP_RECOVERABLE_MS, HOST_BUSY_SHARE),
)


def _launching(view: DeviceView, rows: pl.DataFrame) -> dict[Metric, Value]:
    host_bound = rows["host_bound_ns"].to_numpy()
    short = host_bound[(host_bound > 0) & (host_bound <= LAUNCH_GAP_NS)]
    return {
        LAUNCH_GAP_SHARE: short.sum() / view.total_ns,
        LAUNCH_GAPS_PER_STEP: len(short) / view.steps.height,
        LAUNCH_GAP_RECOVERABLE_MS: view.per_step_ms(float(np.maximum(short - _LAUNCH_FLOOR_NS, 0).sum())),
        HOST_BUSY_SHARE: host_bound[host_bound > LAUNCH_GAP_NS].sum() / view.total_ns,
        SYNC_IDLE_MS: view.per_step_ms(float(rows["sync_ns"].sum())),
    }


def _silent_share(view: DeviceView) -> float:
    """Part of the time that passes in long host-bound gaps with nothing recorded on the host."""
    long = view.once(stalls)
    return (long.total - (long & spans(view.host)).total) / view.total_ns


def _words(cause: str) -> str:
    return idle_causes.IDLE_CAUSES[cause].meaning


def _in_words(shares: Mapping[str, float]) -> str:
    """The three largest, by what they are in words."""
    largest = sorted(((s, words) for words, s in shares.items() if s >= _WORTH_NAMING_SHARE), reverse=True)[:3]
    return "; ".join(f"{words} ({percent(share)})" for share, words in largest)


@measures(GRAPH_PAUSE_SHARE)
def graph_pauses(view: DeviceView) -> Values:
    """How much of the step may be the profiler's own work between nodes."""
    return {GRAPH_PAUSE_SHARE: graph_pauses_ns(view) / view.total_ns if view.ops.height else 0.0}
