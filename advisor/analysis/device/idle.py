"""The gaps: every idle instant of a device in the used steps, its one cause, and why a cause cannot be told.

`idle_functions`: the functions of the program in which its threads were sampled, in stretches of idle time.
"""

from functools import reduce
from operator import or_
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.launches import LAUNCHED, holes_in, lacks_kernels
from advisor.analysis.device.view import DeviceView, spans, started_in
from advisor.inputs.names.calls import GRAPH_LAUNCH
from advisor.model.clause import Missing
from advisor.model.intervals import EMPTY, Intervals, Ints, Mask, shared_out
from advisor.model.profile import END_NS
from advisor.vocabulary.limits import LAUNCH_GAP_NS, PAGES_APART_NS, QUEUED_GAP_NS, SLOW_CALL_NS, UNRECORDED_WAIT_NS
from advisor.vocabulary.parts import HOST_RANGES, IDLE_CAUSES

_HOLDS: Final = 0.8  # of a stretch or its samples: it is what the host does there


def functions_in(view: DeviceView, starts: Ints, ends: Ints) -> pl.DataFrame:
    """What the host ran in each stretch: stretch (its number), function, samples, and the ns that they stand for.

    The innermost function that four fifths of a stretch's samples are in, or below, stands for them; the others count
    for their innermost. The function is null of samples in none of the program's. Of several threads that one counts
    which was sampled most. Only a thread that has a CPU is sampled, so the time may be less than the stretch. The
    stretches ascend and do not overlap.
    """
    period = pl.col("at_ns").diff().median().over("thread", order_by="at_ns")
    samples = view.host_samples.with_columns(period_ns=period, start_ns="at_ns")
    samples = started_in(samples, starts, ends).rename({"window": "stretch"})
    most = samples.group_by("stretch", "thread").len("samples").sort("samples", "thread", descending=[True, False])
    samples = samples.join(most.unique("stretch", keep="first"), on=["stretch", "thread"]).with_row_index("id")
    functions = samples.select("id", "stretch", "samples", function="functions").explode("function").drop_nulls()
    depth = pl.int_range(pl.len()).over("id")
    around = (
        functions.with_columns(depth=depth).group_by("stretch", "samples", "function").agg(pl.len(), pl.mean("depth"))
    )
    around = around.filter(pl.col("len") >= _HOLDS * pl.col("samples")).sort("depth", "function")
    common = around.unique("stretch", keep="first").select("stretch", common="function")
    is_below = pl.col("functions").list.contains(pl.col("common"))
    function = pl.when(is_below).then("common").otherwise(pl.col("functions").list.first())
    length = pl.col("stretch").replace_strict(dict(enumerate((ends - starts).tolist())), return_dtype=pl.Int64)
    stands_for = pl.min_horizontal(pl.first("period_ns"), length.first() / pl.first("samples")) * pl.len()
    return (
        samples.join(common, on="stretch", how="left")
        .group_by("stretch", function=function)
        .agg(stands_for.cast(pl.Int64).alias("ns"), samples=pl.len())
        .sort("stretch", "ns", "function", descending=[False, True, False])
    )


def runs_in(view: DeviceView, starts: Ints, ends: Ints) -> Mask:
    """Whether the program's own functions run on the host for four fifths of each stretch; shape (stretches,)."""
    if view.host_samples.is_empty():
        return np.zeros(len(starts), bool)
    own = functions_in(view, starts, ends).drop_nulls("function").group_by("stretch").agg(pl.sum("ns"))
    ran = np.zeros(len(starts), np.int64)
    ran[own["stretch"].to_numpy()] = own["ns"].to_numpy()
    return (ran > 0) & (ran >= _HOLDS * (ends - starts))


_HOLES_SHARE: Final = 0.05  # of the steps: so long no queued graph waits between its nodes
_OF_HOST: Final = ("sync", "host_bound")
_OF_REST: Final = {"sync": ("start_ns", "late_ns"), "host_bound": ("late_ns", "due_ns")}
"""What of a gap these causes own; of the device's own causes, what follows."""
_PAGE: Final = pl.when(pl.col("source_memory") == "managed").then(pl.col("copy_kind").cast(pl.String)).alias("page")
_ANY: Final = pl.lit(True)  # noqa: FBT003 - polars takes it so
CAUSES: Final = tuple(IDLE_CAUSES)
_NUMBER: Final = {cause: np.uint8(number) for number, cause in enumerate(CAUSES)}
SHORT: Final = pl.col("host_bound_ns") <= LAUNCH_GAP_NS  # whether what the host is late by is the price of launching


def gaps(view: DeviceView) -> pl.DataFrame:
    """Idle intervals of the view's device inside the used steps, each split by cause.

    Columns: window (row of `view.steps`), start_ns, end_ns, next (device op that ends the gap; null at the end of the
    window), late_ns and due_ns (between which a host-bound part of the gap is host-bound: from its start, or where a
    wait returned, until the launching call returned), and `<cause>_ns` for every cause, which sum to end_ns - start_ns.
    All streams of the device are merged first. Time under an input, compilation, garbage collection or allocator range
    belongs to that range. What is left of a gap is the host's until the call that launched the next op returns, and the
    device's from then on. Of the host's part a wait owns what comes before it returns, where a long gap follows: from
    then on the host does something else than to wait or to launch.
    """
    start, end, window = view.busy.gaps(view.starts, view.ends)
    frame = pl.DataFrame({"window": window, "start_ns": start, "end_ns": end})
    return _split(_with_next(frame, view), view).drop("launch", "launched_ns", "page", "between_pages")


def _with_next(frame: pl.DataFrame, view: DeviceView) -> pl.DataFrame:
    """Adds the op that ends each gap, when the call that launched it returned, and whether pages lie on both sides."""
    ending = (
        view.ops.select("id", "launch", _PAGE, end_ns="start_ns")
        .join(frame, on="end_ns", how="semi")
        .sort("end_ns", "id")
        .unique("end_ns", keep="first", maintain_order=True)
        .select("end_ns", "launch", "page", next="id")
    )
    ending = view.with_host(ending, "launch", start_ns="start_ns", dur_ns="dur_ns")
    ending = ending.select("end_ns", "launch", "next", "page", launched_ns=END_NS)
    pages = view.ops.filter(_PAGE.is_not_null()).select(END_NS).to_series()
    joined = frame.join(ending, on="end_ns", how="left", maintain_order="left")
    return joined.with_columns(between_pages=pl.col("page").is_not_null() & pl.col("start_ns").is_in(pages.implode()))


def _split(frame: pl.DataFrame, view: DeviceView) -> pl.DataFrame:
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    covered = view.host_spans(*HOST_RANGES)
    parts = shared_out({cause: view.host_spans(cause) for cause in HOST_RANGES}, start, end)
    rest = _cause_of_rest(frame, view)
    # Each gap is the host's until the launching call returned, all of it where the op starts at once.
    returned = frame["launched_ns"].fill_null(frame["end_ns"]).to_numpy().clip(start, end)
    of_host = np.isin(rest, [_NUMBER[cause] for cause in _OF_HOST])
    due = np.where(of_host, np.where(end - returned > SLOW_CALL_NS, returned, end), start)
    late = np.where(rest == _NUMBER["sync"], _returned(start, due, view), start)
    of_device = np.where(of_host, _late_cause(end - due, view), rest)
    stretches = ((start, late, _NUMBER["sync"]), (late, due, _NUMBER["host_bound"]), (due, end, of_device))
    open_ns = [(to - since - covered.within(since, to), why) for since, to, why in stretches]
    frame, none = frame.with_columns(late_ns=late, due_ns=due), np.zeros(len(start), np.int64)
    for cause, number in _NUMBER.items():
        own = parts.pop(cause) if cause in parts else sum((np.where(why == number, ns, 0) for ns, why in open_ns), none)
        frame = frame.with_columns((pl.Series(own) if own.any() else pl.lit(0, pl.Int64)).alias(f"{cause}_ns"))
    return frame


def _late_cause(wait_ns: Ints, view: DeviceView) -> Ints:
    """What a launched op waits for on an idle device: long, and with no other device, for what was not recorded."""
    is_unrecorded = (wait_ns > UNRECORDED_WAIT_NS) & (view.devices == 1)
    return np.where(is_unrecorded, _NUMBER["unrecorded"], _NUMBER["dependency"])


def _returned(start: Ints, end: Ints, view: DeviceView) -> Ints:
    """Until when each gap after a wait is the wait's: until its end, or where a long gap follows it, the return."""
    waits = view.host_spans("sync")
    if not len(waits.starts):
        return end
    dry = view.busy.last_end(start)
    open_at = np.maximum(np.searchsorted(waits.starts, dry - 1, side="right") - 1, 0)
    returned = waits.ends[open_at].clip(start, end)
    return np.where(end - returned > LAUNCH_GAP_NS, returned, end)


def _cause_of_rest(frame: pl.DataFrame, view: DeviceView) -> Ints:
    """Cause (its number) of the time in each gap that no host range explains; shape (gaps,).

    A gap that ends its window has no next op there: the device waits for the host to begin the next step. At the
    edges of a recording without steps, the device may be busy with work that was launched or runs outside it. Where ops
    of CUDA graphs that were queued long before leave the device idle, nodes of these graphs were not recorded. Where no
    call launched the next op, samples may show that the host works through the gap. Pages of managed memory that follow
    one another move for one purpose; one moves to the host when that touches it, and did something else long before.
    """
    start, length = frame["start_ns"].to_numpy(), (frame["end_ns"] - frame["start_ns"]).to_numpy()
    dry = view.busy.last_end(start)  # before the window's start, where the gap lies across it
    is_last, unlaunched = frame["next"].is_null().to_numpy(), frame["launched_ns"].is_null().to_numpy()
    host_is_late = is_last | ~unlaunched & (frame["launched_ns"].fill_null(0).to_numpy() > dry)
    was_waiting = view.host_spans("sync").within(dry - 1, dry) > 0
    beside = _beside_graphs(frame, view)
    queued = beside & ~host_is_late & ~unlaunched & (length > QUEUED_GAP_NS)
    lacking = beside & bool(length[queued].sum() >= _HOLES_SHARE * view.total_ns)
    lacking = lacking | holes_in(frame, view)
    fetched = (frame["page"] == "DtoH").fill_null(value=False).to_numpy()
    host_runs = unlaunched & (fetched | runs_in(view, start, start + length))
    return np.select(
        [
            at_edges(frame, view).to_numpy() | lacking,
            unlaunched & frame["between_pages"].to_numpy() & (length <= PAGES_APART_NS),
            host_is_late & was_waiting,
            host_is_late | host_runs,
            unlaunched,
            length <= QUEUED_GAP_NS,
        ],
        [_NUMBER[cause] for cause in ("unknown", "paging", *_OF_HOST, "unknown", "queued")],
        _late_cause(length, view),
    )


def at_edges(frame: pl.DataFrame, view: DeviceView) -> pl.Series:
    """Whether each gap lies before the first or after the last op, without steps and of no one run; shape (gaps,)."""
    at_edge = pl.col("start_ns").is_in(pl.Series(view.starts).implode()) | pl.col("next").is_null()
    return frame.select(at_edge & pl.lit(not (view.has_marks or view.is_of_one_run))).to_series()


def _graph_nodes(view: DeviceView) -> pl.DataFrame:
    """Ops that launches of CUDA graphs queued."""
    return view.ops.filter(pl.col("launch").is_in(view.host_like(GRAPH_LAUNCH)["id"].implode()))


def _beside_graphs(frame: pl.DataFrame, view: DeviceView) -> Mask:
    """Whether an op of a CUDA graph runs right before or right after each gap."""
    nodes = view.once(_graph_nodes)
    before = frame["start_ns"].is_in((nodes["start_ns"] + nodes["dur_ns"]).implode())
    return (before | frame["next"].is_in(nodes["id"].implode()).fill_null(value=False)).to_numpy()


def graph_pauses_ns(view: DeviceView) -> int:
    """Idle time of at most 5 us each between nodes that one launch of a CUDA graph queued, in the used steps."""
    nodes = view.once(_graph_nodes)
    inner = nodes.filter(pl.col("start_ns") > pl.col("start_ns").min().over("launch")).select(next="id")
    return int(view.once(gaps).join(inner, on="next", how="semi")["queued_ns"].sum())


def graph_holes_ns(view: DeviceView) -> int:
    """Idle time of unknown cause beside ops of CUDA graphs, in the used steps."""
    idle = view.once(gaps)
    return int(idle["unknown_ns"].filter(pl.Series(_beside_graphs(idle, view), dtype=pl.Boolean)).sum())


def idle_for(view: DeviceView, cause: str, which: pl.Expr = _ANY) -> Intervals:
    """When the device idles for this cause, in the gaps that satisfy `which`; as long as its `<cause>_ns` there."""
    rows = view.once(gaps).filter(pl.col(f"{cause}_ns") > 0, which)
    start, end = ("start_ns", "end_ns") if cause in HOST_RANGES else _OF_REST.get(cause, ("due_ns", "end_ns"))
    idle = Intervals.of(rows[start], rows[end])
    before = HOST_RANGES[: HOST_RANGES.index(cause)] if cause in HOST_RANGES else HOST_RANGES
    return (idle & view.host_spans(cause) if cause in HOST_RANGES else idle) - view.host_spans(*before)


def launch_gaps(view: DeviceView) -> Intervals:
    """When the device waits at most `LAUNCH_GAP_NS` for the next launch; without what other causes account for."""
    return idle_for(view, "host_bound", SHORT)


def stalls(view: DeviceView) -> Intervals:
    """When the device waits longer than that for the next launch."""
    return idle_for(view, "host_bound", ~SHORT)


def idle_spans(view: DeviceView) -> dict[str, Intervals]:
    """When the device idles, by part of the step, each as long as the accounting has it."""
    known = {cause: idle_for(view, cause) for cause in CAUSES if cause != "host_bound"}
    when = known | {"launch_gap": view.once(launch_gaps), "host_busy": view.once(stalls)}
    if not (view.total_ns and view.once(unknown_idle)):
        return when
    ranges = {part: times for part, times in when.items() if part in HOST_RANGES}
    return ranges | {"unknown": reduce(or_, (times for part, times in when.items() if part not in ranges), EMPTY)}


def idle_after_waits(view: DeviceView) -> pl.DataFrame:
    """Gaps after synchronising calls: window, start_ns, end_ns, sync_ns, and `call`, the id of the one that waited."""
    waits = view.once(gaps).filter(pl.col("sync_ns") > 0)
    waits = waits.with_columns(dry=pl.Series(view.busy.last_end(waits["start_ns"].to_numpy()), dtype=pl.Int64))
    calls = view.host.filter(pl.col("kind") == "sync").select("id", opens="start_ns", closes=END_NS).sort("opens")
    last = waits.join_asof(calls, left_on="dry", right_on="opens")
    call = pl.when(pl.col("closes") >= pl.col("dry")).then("id")
    return last.select("window", "start_ns", "end_ns", "sync_ns", call=call)


_UNKNOWN_SHARE: Final = 0.05  # of the step: with more idle time of unknown cause, no cause's share is known
_FRAMEWORKS: Final = ("tensorflow", "jax", "pytorch")


def no_frames(view: DeviceView) -> Missing | None:
    """Why Python's functions were not recorded, or None where they were."""
    if (view.host["kind"] == "python").any():
        return None
    if view.is_of_nsight or view.is_of_one_run:
        return Missing("not_in_timeline" if view.is_of_one_run else "no_python_calls")
    framework = view.process.get("framework")
    if framework == "pytorch" and view.process.get("cpus") is not None:  # `advisor record` notes them
        return Missing("no_python_calls_recorder")
    if framework == "pytorch" and view.host["stack"].count():
        return Missing("no_python_calls_lines")
    return Missing(f"no_python_calls_{framework}" if framework in _FRAMEWORKS else "no_python_calls")


def unknown_kernels(view: DeviceView) -> Missing | None:
    """Why it is unknown when kernels ran, or None where it is known."""
    launches = view.host.filter(LAUNCHED).height if view.once(lacks_kernels) else 0
    return Missing("kernels_not_recorded", launches=launches) if launches else None


def unknown_waits(view: DeviceView) -> Missing | None:
    """Why it is unknown what the device waited for, or None where it is known."""
    if view.device is None or not view.total_ns:
        return view.host_doubt
    if why := unknown_kernels(view):
        return why
    if not view.ops["launch"].count():
        return Missing("no_launches_tpu" if (view.facts.get("name") or "").startswith("TPU") else "no_cuda_calls")
    return view.once(unknown_idle)


def unknown_idle(view: DeviceView) -> Missing | None:
    """Why the causes of the idle time are unknown, or None where they are known.

    What lies at the edges of a recording without steps casts no doubt on the gaps between ops, where these are longer.
    """
    idle = view.once(gaps)
    between, length = idle.filter(~at_edges(idle, view)), pl.col("end_ns") - pl.col("start_ns")
    prevail = 2 * int(between.select(length).sum().item()) > int(idle.select(length).sum().item())
    unknown = int((between if prevail else idle)["unknown_ns"].sum()) / view.total_ns
    return Missing("idle_cause_unknown", share=unknown) if unknown >= _UNKNOWN_SHARE else view.host_doubt


def undirected_copies(view: DeviceView) -> Missing | None:
    """Why it is unknown what is copied to and from the host, or None where it is known."""
    if not view.total_ns:
        return None
    copies = view.used_ops.filter(pl.col("kind") == "memcpy", pl.col("copy_kind").is_null())
    share = view.used_ns(spans(copies)) / view.total_ns
    return Missing("copy_direction_unknown", share=share) if share >= _UNKNOWN_SHARE else None


DOUBTFUL: Final = tuple(cause for cause in CAUSES if cause not in {*HOST_RANGES, "unknown"})
"""Causes of idle time of which nothing is told where too much of it has an unknown one."""
