"""The shares of the step by category of work, as each framework's own tools show them, and a server's phases.

The accounting: each nanosecond of the step is useful work or a loss with its cause. Findings and verdict rest on it.
Why the device idles: the shares of each cause, and where.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.categories import OF_TENSORFLOW, part_spans, part_times, sweep
from advisor.analysis.device.host_lines import host_lines, long_lines, longest_lines
from advisor.analysis.device.host_work import holder
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
    unknown_kernels,
)
from advisor.analysis.device.places import MOST_PLACES, main_range, places, waits_that_cost
from advisor.analysis.device.recording_cost import part_of_recorded, unprofiled_shares
from advisor.analysis.device.view import DeviceView, spans, started_in
from advisor.analysis.device.workload import phases, steps_by_phase
from advisor.inputs.names.engines import batch
from advisor.metrics.metric import NAMES, Details, Dtype, Value, of_devices, tabulates
from advisor.model.clause import Entries
from advisor.vocabulary.kinds import CATEGORIES
from advisor.vocabulary.parts import HOST_RANGES, IDLE_CAUSES, LONG, PARTS, POOLS

_CODES: Final = tuple(CATEGORIES)
_ON_DEVICE: Final = ("compute", "memcpy", "memset", "collective")  # at least so much, where ops were left out
_SOURCE: Final = (
    "the sweep of torch-tb-profiler's overview, with every collective kernel counted as communication; of TensorFlow "
    "and JAX that of TensorFlow 2.12's step-time breakdown, with copies to the device apart from input; of JAX on the "
    "CPU, programs that run on threads of XLA come first and count as host, as a device's kernels would"
)


def _of_tensorflow(name: str) -> str:
    order = [layer.category for layer in OF_TENSORFLOW]
    before = list(dict.fromkeys(order[: order.index(name)] if name in order else order))
    formula = f"outside {', '.join(before)}" if before else "the same"
    return {
        "launch": f"{formula}, `ExecutorState::Process` counted as a call",
        "memcpy": f"{formula}, of copies to the device outside input, collective and launch as well",
    }.get(name, formula) + ("" if name in {"compute", "memcpy", "memset", "other"} else ", by the step's own host work")


def _swept_ns(view: DeviceView) -> dict[str, int]:
    """Time of the used steps by category; it sums to theirs."""
    return {category: int(time.sum()) for category, time in sweep(view, view.steps)}


def _share(view: DeviceView, category: str) -> float:
    return view.once(_swept_ns)[category] / view.total_ns


@tabulates("step")
def step_table(view: DeviceView) -> pl.DataFrame:
    """One row per used step: step, name, phase, start_ns, step_ms, `<category>_share` of each category, bottleneck.

    The phase is what the mark of a server's step says, else null. The bottleneck is the category with the largest
    share, as in XProf's pod viewer.
    """
    length = np.maximum(view.steps["dur_ns"].to_numpy(), 1)
    shares = [pl.Series(f"{category}_share", time / length) for category, time in sweep(view, view.steps)]
    largest = np.argmax([share.to_numpy() for share in shares], axis=0)
    marks = view.steps["name"].fill_null("")
    phases = pl.Series("phase", [of and of.phase for of in map(batch, marks)], dtype=pl.String)
    return view.steps.select("step", "name", phases, "start_ns", step_ms=pl.col("dur_ns") / 1e6).with_columns(
        *shares, bottleneck=pl.Series([_CODES[i] for i in largest], dtype=pl.String)
    )


measure = of_devices(__name__, source=_SOURCE)
for _number, (_name, _meaning) in enumerate(CATEGORIES.items()):
    _before = ", ".join(_CODES[:_number]) or "nothing"
    _details: Details = (
        {"where": places(lambda view: view.host.filter(pl.col("kind") == "input"))} if _name == "input" else {}
    )
    if _name not in _ON_DEVICE:
        _details["needs"] = ("device_ops.start_ns",)
    measure(f"{_name}_share", partial(_share, category=_name), **_details).says(
        f"Part of the step in which {_meaning}.",
        f"time of {_name} outside {_before} / step time; of TensorFlow and JAX {_of_tensorflow(_name)}",
    )
measure("input_exposed_ms", lambda view: view.per_step_ms(view.once(_swept_ns)["input"])).says(
    "Time per step that passes waiting for input.", "input_share x step_mean_ms"
)


_OF_HOST: Final = [f"{cause}_ns" for cause in ("host_bound", "sync", *HOST_RANGES)]


@tabulates("phase")
def of_engine(view: DeviceView) -> pl.DataFrame:
    """One row per phase of a server's steps: see `analysis.device.phases`.

    And host_share: idle time that the host causes, as a share of the phase's time on the device.
    """
    rows = phases(view)
    if not rows.height:
        return rows.with_columns(host_share=pl.lit(None, pl.Float64))
    # Per phase, the idle time of the host in the steps in which it begins: phase, host_share.
    steps = view.once(steps_by_phase)
    idle = started_in(view.once(gaps), steps["first"].to_numpy(), (steps["first"] + steps["period_ns"]).to_numpy())
    of_step = idle.group_by("window").agg(late_ns=pl.sum_horizontal(_OF_HOST).sum())
    joined = steps.with_columns(window=pl.int_range(pl.len(), dtype=pl.Int64)).join(of_step, on="window", how="left")
    share = (pl.sum("late_ns") / pl.sum("period_ns")).clip(0, 1)
    return rows.join(joined.group_by("phase").agg(host_share=share), on="phase", how="left", maintain_order="left")


_LARGE: Final = 0.1  # of the samples
_PARTS_SCHEMA: Final[dict[str, Dtype]] = {
    "part": pl.String,
    "time_ns": pl.Int64,
    "share": pl.Float64,
    "unprofiled_share": pl.Float64,
    "range": pl.String,
    "range_share": pl.Float64,
    "lines": NAMES,
}


@tabulates("step_part")
def step_parts(view: DeviceView) -> pl.DataFrame:
    """The accounting of each complete step, one row per part that takes time in it: step, part, share."""
    alike = view.outliers.is_empty()
    every = view if alike else replace(view, steps=view.complete, _computed={})
    length = np.maximum(every.steps["dur_ns"].to_numpy(), 1)
    times = {**dict.fromkeys(PARTS, np.zeros(len(length))), **every.once(part_times)}
    share = np.array([*times.values()]) / length
    part, step = np.nonzero(share > 0)
    codes = pl.Series([*times], dtype=pl.String)
    return pl.DataFrame({"step": every.steps["step"][step], "part": codes[part], "share": share[part, step]})


@tabulates("accounting")
def accounting(view: DeviceView) -> pl.DataFrame:
    """One row per part that takes time in the used steps: part, time_ns (in all of them), share (of them).

    The times add up to the used steps to the nanosecond. `unprofiled_share` is that of the step without the profiler,
    as far as something shows that. `range` is that of the program's own ranges in which most of the part lies,
    `range_share` how much of the part; null where there is none, or where host ranges say nothing of it.
    `lines` are those of the program with half of the host's own time or more, empty where that is around the ops of the
    training; of ops, lines with a tenth of the samples; null where no stacks were sampled, and for other parts. Where
    lines that run in some steps only make these long, there is a row of that part, without time of the used steps.
    """
    times = {} if view.only_collectives else {part: int(time.sum()) for part, time in view.once(part_times).items()}
    ranges = {part: holder(view, time) for part, time in view.once(part_spans).items() if times.get(part)}
    shares = view.once(unprofiled_shares)
    rows = [
        (
            code,
            times[code],
            times[code] / view.total_ns,
            shares.get(code, 0.0) if shares else times[code] / view.total_ns,
            *(ranges.get(code) or (None, None)),
            _lines(view, code),
        )
        for code in sorted((code for code, time in times.items() if time), key=[*PARTS].index)  # each has an entry
    ]
    if rows and (lines := view.once(long_lines)):
        rows.append((LONG, 0, 0.0, 0.0, None, None, lines))
    return pl.DataFrame(rows, schema=_PARTS_SCHEMA, orient="row")


def _lines(view: DeviceView, part: str) -> Entries | None:
    """The lines of a part; a device that idles around the training's own ops waits for more than Python."""
    if part == "operators":
        of_ops = [line for line in view.once(longest_lines) if line["share"] >= _LARGE]
        return of_ops if len(of_ops) > 1 else None  # one says no more than that the program trains there
    if part not in {"between", "host_busy"}:
        return None
    lines = view.once(host_lines)
    return lines if part == "between" else lines or None


# of TensorFlow and JAX more than memcpy_share where the call that copies returns only when it is done
of_devices(__name__, needs=("device_ops", "device_ops.start_ns"), unknown=unknown_kernels)(
    "exposed_memcpy_share", lambda view: int(view.once(part_times)["memcpy"].sum()) / view.total_ns
).says(
    "Part of the step in which a copy runs and no kernel, whatever the host does meanwhile.",
    "(union of kernels and copies - union of kernels) inside the steps / step time",
)
of_parts = of_devices(__name__)
for _pool in POOLS:
    of_parts(f"unprofiled_{_pool}_part", partial(part_of_recorded, _pool)).says(
        f"What {POOLS[_pool]} takes without the profiler, as a part of what it takes in the recording.",
        "unprofiled_share x unprofiled_step_ms / (share x step_mean_ms), of such rows of the table accounting. What "
        "recording takes, at most 3 µs each, is where ops are called; of samples, the wait for a DataLoader has its "
        "share; of uneven steps, what they add to the mean step",
    )


_OF_IDLE: Final = (
    "HTA's host wait and kernel wait, refined; 5 µs is the p90 of queued gaps in public H100 and B200 traces"
)
_NEEDS: Final = ("device_ops", "device_ops.launch")
_AMONG_KERNELS: Final = ("queued", "dependency")  # inside a CUDA graph too
_WORTH_NAMING_SHARE: Final = 0.01
_SILENT: Final = "the host launches nothing and is in no recorded op or range"


def _longest(cause: str, *only: pl.Expr) -> Callable[[DeviceView], pl.DataFrame]:
    """Where the device idled longest for this cause, among the gaps that satisfy `only`."""

    def places(view: DeviceView) -> pl.DataFrame:
        owned = idle_for(view, cause, *only)
        window = np.searchsorted(view.starts, owned.starts, side="right") - 1
        # where to look: at what the host did before, or the op that was late, which has no part in other waits
        late = view.ops if cause == "host_bound" else view.ops.clear()
        ending = late.select("op", "id", end_ns="start_ns").sort("end_ns", "id").drop("id")
        rows = (
            pl.DataFrame({"start_ns": owned.starts, "end_ns": owned.ends, "dur_ns": owned.ends - owned.starts})
            .join_asof(ending, on="end_ns", strategy="forward")
            .select(
                "start_ns",
                "dur_ns",
                "op",
                table=pl.lit("gaps"),
                name=pl.lit(f"device idle: {IDLE_CAUSES[cause].meaning}"),
                step=view.steps["step"].gather(window),
            )
            .sort("dur_ns", "start_ns", descending=[True, False])
        )
        longest = rows.head(MOST_PLACES if late.height else 0).select("start_ns", "dur_ns").rows()
        ran = {start: op for start, dur in longest if (op := main_range(view, start, start + dur)) is not None}
        return rows.with_columns(op=pl.col("start_ns").replace_strict(ran, default=pl.col("op"), return_dtype=pl.Int64))

    return places


def _cause_share(view: DeviceView, cause: str) -> Value:
    why = view.once(unknown_idle) if cause in DOUBTFUL else None
    return why or float(view.once(gaps)[f"{cause}_ns"].sum()) / view.total_ns


def _causes(view: DeviceView) -> Entries:
    """The three largest, by what they are in words."""
    rows, doubtful = view.once(gaps), DOUBTFUL if view.once(unknown_idle) else ()
    shares = {cause: float(rows[f"{cause}_ns"].sum()) / view.total_ns for cause in CAUSES}
    by_words = {IDLE_CAUSES[cause].meaning: share for cause, share in shares.items() if cause not in doubtful}
    if "host_bound" not in doubtful:
        long = view.once(stalls)
        by_words[_SILENT] = (long.total - (long & spans(view.host)).total) / view.total_ns
        by_words[IDLE_CAUSES["host_bound"].meaning] -= by_words[_SILENT]
    by_words |= {"a launch or other work was late: could not tell which": sum(shares[cause] for cause in doubtful)}
    largest = sorted(((s, words) for words, s in by_words.items() if s >= _WORTH_NAMING_SHARE), reverse=True)[:3]
    return [{"name": words, "share": share} for share, words in largest]


of_causes = of_devices(__name__, source=_OF_IDLE, needs=_NEEDS)
of_lateness = of_devices(__name__, source=_OF_IDLE, needs=_NEEDS, unknown=unknown_idle)
of_devices_work = of_devices(__name__, needs=("device_ops",))

of_devices_work("device_busy_share", lambda view: view.share(view.busy), needs=("device_ops.start_ns",)).says(
    "Part of the step in which anything runs on the device: kernels, copies, memsets, collectives.",
    "union of the device's ops over all streams inside the steps / step time",
)
of_devices_work("idle_share", lambda view: 1 - (view.share(view.busy) or 0.0), needs=("device_ops.dur_ns",)).says(
    "Part of the step in which nothing runs on the device; its causes are parts of it.", "1 - device_busy_share"
)
for _code, _cause in IDLE_CAUSES.items():
    of_causes(
        f"{_code}_idle_share",
        partial(_cause_share, cause=_code),
        needs=("device_ops.dur_ns",) if _code in _AMONG_KERNELS else (),
        where=waits_that_cost if _code == "sync" else _longest(_code),
    ).says(
        f"Part of the step in which the device idles and {_cause.meaning}.",
        f"idle time, all streams merged, in which {_cause.rule} / step time",
    )
of_lateness.share("launch_gap_share", launch_gaps, where=_longest("host_bound", SHORT)).says(
    "Part of the step in which the device idles in host-bound gaps of up to {launch_gap}: the price of launching op "
    "by op.",
    "host-bound idle time in gaps of at most {launch_gap} / step time",
)
of_lateness.per_step("launch_gaps", lambda view: view.once(gaps).filter(SHORT, pl.col("host_bound_ns") > 0)).says(
    "How often per step the device waits for the host to launch, up to {launch_gap} each.",
    "host-bound gaps of at most {launch_gap} / steps",
)
of_lateness.share("host_busy_share", stalls, where=_longest("host_bound", ~SHORT)).says(
    "Part of the step in which the device idles for over {launch_gap} on end while the host launches nothing.",
    "host-bound idle time in gaps of over {launch_gap} / step time",
)
_FEWEST_TURNS: Final = 10
_TIMED: Final = 0.01  # of their median: what a timer ends is so even, as in a public recording on a shared V100


def _turns(view: DeviceView) -> pl.DataFrame:
    """Waits of queued ops of several names, all of one length, for work that was not recorded, if most are so."""
    waits = view.once(gaps).select("next", ns="unrecorded_ns").filter(pl.col("ns") > 0)
    waits = waits.join(view.ops.select("name", next="id"), on="next", how="left")
    timed = waits.filter((pl.col("ns") / pl.col("ns").median() - 1).abs() <= _TIMED)
    are_turns = timed.height >= max(_FEWEST_TURNS, waits.height / 2) and timed["name"].n_unique() > 1
    return timed if are_turns else timed.clear()


of_lateness("other_turns_share", lambda view: int(view.once(_turns)["ns"].sum()) / view.total_ns).says(
    "Part of the step in which queued work waits for turns of another program on the device.",
    "idle time as in unrecorded_idle_share in gaps within 1 % of their median length, if that is ten of them or more, "
    "half of all, and before ops of different names / step time",
    "NVIDIA's GPUs give each program that shares one equal slices of time (Multi-Process Service, when to use MPS)",
)
of_lateness(
    "other_turn_ms", lambda view: int(view.once(_turns)["ns"].sum()) / 1e6 / max(1, view.once(_turns).height)
).says("How long such a turn is.", "mean of these gaps; 0 without any")
of_causes("graph_hole_share", lambda view: graph_holes_ns(view) / view.total_ns, where=_longest("unknown")).says(
    "Part of the step beside ops of CUDA graphs in which the device seems idle, but nodes were not recorded.",
    "idle time beside ops of CUDA graphs / step time, if queued ones wait over {queued_gap} each in 5 % of it; else 0",
)
of_devices(__name__)(
    "graph_pause_share", lambda view: graph_pauses_ns(view) / view.total_ns if view.ops.height else 0.0
).says(
    "Part of the step in short pauses between the nodes of a CUDA graph: recording nodes makes such pauses itself.",
    "idle time of at most {queued_gap} each between ops of one launch of a CUDA graph / step time; 0 without graphs",
    _OF_IDLE,
)
of_devices_work("idle_causes", _causes, needs=("device_ops.start_ns",)).says(
    "The causes of the idle time, the largest first.",
    "the three largest of the idle shares, of at least 1 % of the step each; as one where not told apart; "
    "of host-bound idle time that apart which lies in gaps of over {launch_gap} with nothing recorded on the host",
    _OF_IDLE,
)
