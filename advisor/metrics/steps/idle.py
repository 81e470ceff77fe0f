"""Why the device idles: the shares of each cause, and where."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import (
    CAUSES,
    DOUBTFUL,
    SHORT,
    gaps,
    graph_holes_ns,
    graph_pauses_ns,
    idle_for,
    launch_gaps,
    stalls,
    unknown_idle,
)
from advisor.analysis.device.places import waits_that_cost
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value, of_devices
from advisor.model.clause import Entries
from advisor.vocabulary import idle_causes

_SOURCE: Final = (
    "HTA's host wait and kernel wait, refined; 5 µs is the p90 of queued gaps in public H100 and B200 traces"
)
_NEEDS: Final = ("device_ops", "device_ops.launch")
_AMONG_KERNELS: Final = ("queued", "dependency")  # inside a CUDA graph too
_WORTH_NAMING_SHARE: Final = 0.01
_SILENT: Final = "the host launches nothing and is in no recorded op or range"
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


def _cause_share(view: DeviceView, cause: str) -> Value:
    why = view.once(unknown_idle) if cause in DOUBTFUL else None
    return why or float(view.once(gaps)[f"{cause}_ns"].sum()) / view.total_ns


def _causes(view: DeviceView) -> Entries:
    """The three largest, by what they are in words."""
    rows, doubtful = view.once(gaps), DOUBTFUL if view.once(unknown_idle) else ()
    shares = {cause: float(rows[f"{cause}_ns"].sum()) / view.total_ns for cause in CAUSES}
    by_words = {_words(cause): share for cause, share in shares.items() if cause not in doubtful}
    if "host_bound" not in doubtful:
        long = view.once(stalls)
        by_words[_SILENT] = (long.total - (long & spans(view.host)).total) / view.total_ns
        by_words[_words("host_bound")] -= by_words[_SILENT]
    by_words |= {_EITHER: sum(shares[cause] for cause in doubtful)}
    largest = sorted(((s, words) for words, s in by_words.items() if s >= _WORTH_NAMING_SHARE), reverse=True)[:3]
    return [{"name": words, "share": share} for share, words in largest]


def _words(cause: str) -> str:
    return idle_causes.IDLE_CAUSES[cause].meaning


measure = of_devices(__name__, source=_SOURCE, needs=_NEEDS)
of_lateness = of_devices(__name__, source=_SOURCE, needs=_NEEDS, unknown=unknown_idle)
of_devices_work = of_devices(__name__, needs=("device_ops",))

of_devices_work("device_busy_share", lambda view: view.share(view.busy), needs=("device_ops.start_ns",)).says(
    "Part of the step in which anything runs on the device: kernels, copies, memsets, collectives.",
    "union of the device's ops over all streams inside the steps / step time",
)
of_devices_work("idle_share", lambda view: 1 - (view.share(view.busy) or 0.0), needs=("device_ops.dur_ns",)).says(
    "Part of the step in which nothing runs on the device; its causes are parts of it.", "1 - device_busy_share"
)
for _code, _cause in idle_causes.IDLE_CAUSES.items():
    measure(
        f"{_code}_idle_share",
        partial(_cause_share, cause=_code),
        needs=("device_ops.dur_ns",) if _code in _AMONG_KERNELS else (),
        where=waits_that_cost if _code == "sync" else _longest(_code),
    ).says(
        f"Part of the step in which the device idles and {_cause.meaning}.",
        f"idle time, all streams merged, in which {_cause.rule} / step time",
    )
of_lateness(
    "launch_gap_share", lambda view: view.share(view.once(launch_gaps)), where=_longest("host_bound", SHORT)
).says(
    "Part of the step in which the device idles in host-bound gaps of up to {launch_gap}: the price of launching op "
    "by op.",
    "host-bound idle time in gaps of at most {launch_gap} / step time",
)
of_lateness(
    "launch_gaps_per_step",
    lambda view: view.once(gaps).filter(SHORT, pl.col("host_bound_ns") > 0).height / view.steps.height,
).says(
    "How often per step the device waits for the host to launch, up to {launch_gap} each.",
    "host-bound gaps of at most {launch_gap} / steps",
)
of_lateness("host_busy_share", lambda view: view.share(view.once(stalls)), where=_longest("host_bound", ~SHORT)).says(
    "Part of the step in which the device idles for over {launch_gap} on end while the host launches nothing.",
    "host-bound idle time in gaps of over {launch_gap} / step time",
)
measure("graph_hole_share", lambda view: graph_holes_ns(view) / view.total_ns, where=_longest("unknown")).says(
    "Part of the step beside ops of CUDA graphs in which the device seems idle, but nodes were not recorded.",
    "idle time beside ops of CUDA graphs / step time, if queued ones wait over {queued_gap} each in 5 % of it; else 0",
)
of_devices(__name__)(
    "graph_pause_share", lambda view: graph_pauses_ns(view) / view.total_ns if view.ops.height else 0.0
).says(
    "Part of the step in short pauses between the nodes of a CUDA graph: recording nodes makes such pauses itself.",
    "idle time of at most {queued_gap} each between ops of one launch of a CUDA graph / step time; 0 without graphs",
    _SOURCE,
)
of_devices_work("idle_causes", _causes, needs=("device_ops.start_ns",)).says(
    "The causes of the idle time, the largest first.",
    "the three largest of the idle shares, of at least 1 % of the step each; as one where not told apart; "
    "of host-bound idle time that apart which lies in gaps of over {launch_gap} with nothing recorded on the host",
    _SOURCE,
)
