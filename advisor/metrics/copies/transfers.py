"""Copies between host and device: how much, from which memory, what nothing hides, and pages that move unasked."""

from functools import partial
from typing import Final

import polars as pl

from advisor.analysis.device.communication import (
    EFFICIENCY,
    IS_PAGEABLE,
    LARGE_BYTES,
    at_link,
    bytes_per_step,
    is_once,
    page_moves,
    paging,
    pcie_gbs,
    pinning_ns,
    unhidden_ns,
)
from advisor.analysis.device.idle import idle_for, undirected_copies
from advisor.analysis.device.places import as_places, device_places
from advisor.analysis.device.view import DeviceView, inside, longest_name, spans, spent_ns
from advisor.metrics.metric import Value, of_devices
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals
from advisor.model.profile import matches
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import PAGES_APART_NS
from advisor.whatif.change import Interval, faster, overlapped, saved

_PIECES: Final = 8  # own choice: copies in a row of which all but one have one size
_OF_DIRECTIVES: Final = r"^nvkernel_|^__omp_offloading_|_\d+_gpu(?:__red)?$"  # OpenMP and OpenACC: arrays go in and out
_HOST_GBS: Final = 300.0  # own choice: more than the memory of a socket gives
_ACROSS: Final = pl.col("copy_kind").is_in(["HtoD", "DtoH"]) & (
    (pl.col("source_memory") == "pinned") | (pl.col("target_memory") == "pinned")
)


def _copies(view: DeviceView) -> pl.DataFrame:
    return view.used_ops.filter(pl.col("kind") == "memcpy")


def _pageable(view: DeviceView) -> pl.DataFrame:
    return view.once(_copies).filter(IS_PAGEABLE)


def _exposed(view: DeviceView, copies: pl.DataFrame) -> Intervals:
    """When these copies run and no kernel or collective does."""
    return spans(copies) - view.device_spans("kernel", "collective")


def _exposed_ns(view: DeviceView) -> int:
    return _exposed(view, view.once(_pageable)).total


def _gbs(view: DeviceView) -> Value:
    size, took_ns = bytes_per_step(view, view.once(_pageable)), int(view.once(_pageable)["dur_ns"].sum())
    return size if isinstance(size, Missing) else size * view.steps.height / max(1, took_ns)


def _pinning_ms(view: DeviceView) -> tuple[float, float] | Missing:
    """At most copies of both directions run at once, and beside all kernels of other steps."""
    copies = at_link(view, view.once(_pageable))
    if isinstance(copies, Missing):
        return copies
    exposed_ns = view.once(_exposed_ns)
    pinned_ns = exposed_ns * float(copies["link_ns"].sum()) / max(1, int(copies["dur_ns"].sum()))
    left_ns = EFFICIENCY * pinned_ns if is_once(view) else min(exposed_ns, unhidden_ns(view, copies))
    if view.process.get("framework") == "cuda" and not is_once(view):
        left_ns *= 1 - _round_trip_part(view)  # a program of its own can keep on the device what comes in again
    least_ns = max(exposed_ns * _untouched_part(view), exposed_ns - pinned_ns - pinning_ns(view, copies)[1])
    return view.per_step_ms(least_ns), view.per_step_ms(exposed_ns - left_ns)


def _untouched_part(view: DeviceView) -> float:
    """Of round trips: the host cannot read or write what it has no time for."""
    own = view.used_kernels.filter(matches(_OF_DIRECTIVES))
    if is_once(view) or own.height < max(1, view.used_kernels.height):
        return 0.0
    free_ns = view.total_ns - view.used_ns(view.host_spans(*DRIVER_CALLS))
    moved = float(view.once(_pageable).filter(pl.col("copy_kind") == "DtoH")["bytes"].sum())
    return _round_trip_part(view) * max(0.0, 1 - _HOST_GBS * free_ns / max(1.0, moved))


def _to_host_part(view: DeviceView) -> float:
    dur, to_host = pl.col("dur_ns"), (pl.col("copy_kind") == "DtoH").fill_null(value=False)
    brought, total = view.once(_pageable).select(brought=dur.filter(to_host).sum(), total=dur.sum()).row(0)
    return float(brought / max(1, total))


def _round_trip_part(view: DeviceView) -> float:
    """Copies to the host are paired with those of as many bytes that next go to the device, as many as there are."""
    copies = view.once(_pageable).filter(pl.col("bytes") >= LARGE_BYTES).sort("start_ns")
    turns = (
        copies.with_columns(turn=pl.col("copy_kind").rle_id().over("bytes"))
        .group_by("bytes", "turn", maintain_order=True)
        .agg(pl.first("copy_kind"), number=pl.len(), each_ns=pl.mean("dur_ns"))
    )
    later = turns.with_columns(pl.col("copy_kind", "number", "each_ns").shift(-1).over("bytes").name.prefix("next_"))
    back = later.filter(pl.col("copy_kind") == "DtoH", pl.col("next_copy_kind") == "HtoD")
    back_ns = (pl.min_horizontal("number", "next_number") * (pl.col("each_ns") + pl.col("next_each_ns"))).sum()
    return float(back.select(back_ns).item() / max(1, copies["dur_ns"].sum()))


def _returning(view: DeviceView) -> pl.DataFrame:
    """Such copies of a size that moves both ways: arrays that come back, and no pieces of one on several streams.

    Runtimes of OpenMP and OpenACC move an array in pieces through a pinned buffer, which the host fills or empties in
    between: then the pieces in a row count together, each until the next one begins.
    """
    rows = view.once(_copies).filter(_ACROSS).sort("start_ns").with_columns(row=pl.col("copy_kind").rle_id())
    alike = (pl.col("bytes") == pl.col("bytes").median()).sum()
    is_cut = ((pl.len() >= _PIECES) & (alike >= pl.len() - 1)).over("row")  # the last or first is the rest
    until_next = (pl.col("start_ns").shift(-1) - pl.col("start_ns")).fill_null(pl.col("dur_ns"))
    arrays = rows.with_columns(
        bytes=pl.when(is_cut).then(pl.col("bytes").sum().over("row")).otherwise("bytes"),
        dur_ns=pl.when(is_cut).then(until_next.over("row")).otherwise("dur_ns"),
    ).filter(pl.col("bytes") >= LARGE_BYTES)
    ways, streams = (pl.col(name).n_unique().over("bytes") for name in ("copy_kind", "stream"))
    return arrays.filter(ways > 1, streams == 1).drop("row")


def _full_link_gain_ms(view: DeviceView) -> Value:
    copies = at_link(view, view.once(_copies).filter(_ACROSS, pl.col("bytes") >= LARGE_BYTES))
    if isinstance(copies, Missing):
        return copies
    return saved(view, faster(copies, pl.col("dur_ns"), pl.col("link_ns"))).most_ms


measure = of_devices(__name__, needs=("device_ops",))

measure(
    "pageable_copy_share", lambda view: view.share(spans(view.once(_pageable))), where=device_places(_pageable)
).says(
    "Part of the step in which a copy from or to pageable host memory runs.",
    "union of those copies inside the steps / step time",
)
measure("pageable_copy_bytes_per_step", lambda view: bytes_per_step(view, view.once(_pageable))).says(
    "Bytes per step copied from or to pageable host memory.", "sum of the bytes of those copies / steps"
)
measure("pageable_copy_gbs", _gbs, unit="number").says(
    "Rate of the copies from or to pageable host memory, in GB/s.",
    "sum of the bytes of those copies / sum of their times; 0 where there are none",
)
measure("pageable_copy_exposed_ms", lambda view: view.per_step_ms(view.once(_exposed_ns))).says(
    "Time per step in which a copy from or to pageable memory runs and no kernel or collective hides it.",
    "(union of those copies - its overlap with kernels and collectives) / steps",
)
measure.saving("pinning", _pinning_ms).says("the same copies from or to pinned memory")
measure("pinning_cost_ms", lambda view: view.per_step_ms(pinning_ns(view, view.once(_pageable))[0])).says(
    "What it takes at least to pin the memory of pageable copies, where nothing shows that they repeat.",
    "0.26 s for each GB of those copies; 0 where the work repeats",
    "cudaHostAlloc in public recordings: 0.26 to 0.62 s for a GB; 0.36 s with CuPy (rapidsai/dask-cuda, issue 106)",
)
measure("pageable_to_host_part", _to_host_part).says(
    "How much of the time of pageable copies brings values to the host.",
    "sum of those copies DtoH / sum of all of them; 0 where there are none",
)
measure("pageable_round_trip_part", _round_trip_part).says(
    "How much of the time of large pageable copies brings values to the host and as many bytes back.",
    "of pageable copies of at least 1 MB: time of those DtoH that ones of the same size HtoD follow, and of these, as "
    "many as there are of both / time of all; 0 where there are none",
)
measure("pageable_untouched_part", _untouched_part).says(
    "How much of the time of pageable copies is of arrays of OpenMP or OpenACC that the host left alone.",
    "pageable_round_trip_part x (1 - 300 GB/s x time without a call of the driver / bytes DtoH); 0 without steps, or "
    "where other kernels run",
)
measure(
    "returning_copy_ms",
    lambda view: view.per_step_ms(_exposed(view, view.once(_returning)).total),
    where=device_places(_returning),
).says(
    "Time per step in which arrays move to the device and back, and no kernel or collective hides it.",
    "of copies from and to pinned memory of at least 1 MB, those of as many bytes as one the other way, if all are on "
    "one stream; eight or more in a row of one size, but for one, count as one copy until its last piece ends: (their "
    "union - its overlap with kernels and collectives) / steps",
)
measure("memcpy_ms", lambda view: view.per_step_ms(spans(view.once(_copies)).total)).says(
    "Copy time per step, hidden or not.", "union of the copies / steps"
)
measure("pcie_gbs", pcie_gbs, unit="number").says(
    "Rate of the device's PCIe link in one direction with 16 lanes, in GB/s.", "from the table of GPUs"
)
measure("full_link_gain_ms", _full_link_gain_ms).says(
    "Step time saved at most if pinned copies took what the device's link allows."
)


_EXPOSED_PART: Final = 0.3  # of a prefetched copy: only a host that is a whole copy ahead hides all of it
_ROUND_RANGE: Final = 0.5  # of a step: what is open that long is around everything, and tells of no copy
_PARAMETERS: Final = r"(?i)^FSDP::|FullyShardedDataParallel\.|^DeepSpeedZeRO|partition_parameters|_fetch_sub_module"


def _ahead(view: DeviceView) -> pl.DataFrame:
    """Large copies to the device, none of them from pageable memory: those cannot run beside anything."""
    is_ahead = pl.col("source_memory").ne_missing(pl.lit("pageable"))
    return view.once(_copies).filter(is_ahead, pl.col("bytes") >= LARGE_BYTES, copy_kind="HtoD")


def _bare_ns(view: DeviceView) -> int:
    return _exposed(view, view.once(_ahead)).total


def _part_of_copies(view: DeviceView, some: pl.DataFrame) -> float:
    return float(some["dur_ns"].sum()) / max(1, int(view.once(_ahead)["dur_ns"].sum()))


def _queued(view: DeviceView) -> pl.DataFrame:
    """The copies on streams that run kernels too."""
    streams = view.ops.filter(pl.col("kind") == "kernel")["stream"].unique()
    # XLA's copies run beside its program, which shows where it waits for one's end
    waits = matches("^copy-done$", "hlo_category").fill_null(value=False)
    return view.once(_ahead).filter(pl.col("stream").is_in(streams.implode()), ~waits)


def _purpose(view: DeviceView) -> str:
    of = view.once(_around).filter(pl.col("telling")).unique("id", keep="last", maintain_order=True)
    return longest_name(of.select(pl.col("name").str.replace_all(r"\d+", "N"), dur_ns="copy_ns"))


def _of_parameters(view: DeviceView) -> pl.DataFrame:
    gathering = view.once(_around).filter(pl.col("name").str.contains(_PARAMETERS))["id"]
    return view.once(_ahead).filter(pl.col("id").is_in(gathering.implode()) | pl.col("hlo_module").is_not_null())


def _around(view: DeviceView) -> pl.DataFrame:
    """Id and copy_ns of each copy with the name of every range around its launching call, the innermost first."""
    longest_ns = view.total_ns / max(1, view.steps.height) * _ROUND_RANGE
    copies, host = view.once(_ahead), view.host
    calls = copies.select("id", copy_ns="dur_ns", at=pl.lit(-1, pl.Int64))
    levels = (calls.with_columns(at=pl.Series(at, dtype=pl.Int64)) for at in view.outward(copies["launch"]))
    around = pl.concat([calls, *levels]).filter(pl.col("at") >= 0)
    ranges = host.select("kind", "name", "dur_ns")[around["at"]]
    telling = pl.col("kind").is_in(["op", "annotation", "module", "input"]) & (pl.col("dur_ns") < longest_ns)
    return around.hstack(ranges.select(name=pl.col("name").cast(pl.String), telling=telling))


def _gains(view: DeviceView) -> Interval:
    copies, exposed_ns = view.once(_ahead), view.once(_bare_ns)
    unplaced_ns = _exposed(view, copies.filter(pl.col("launch").is_null())).total
    # parameters that stay on the device need no kernel to hide behind
    needless_ns = _exposed(view, _of_parameters(view)).total
    hiding_ns = (view.device_spans("kernel", "collective") - spans(copies)).total
    change = overlapped(copies, (_EXPOSED_PART, 0.0)).beyond(unplaced_ns)
    return saved(view, change.at_most(min(exposed_ns, needless_ns + hiding_ns)))


of_pinned = of_devices(__name__, needs=("device_ops", "device_ops.dur_ns"), unknown=undirected_copies)

of_pinned("exposed_copy_share", lambda view: view.once(_bare_ns) / view.total_ns, where=device_places(_ahead)).says(
    "Part of the step in which data is copied to the device from pinned memory and nothing else runs on it.",
    "union of copies of at least 1 MB from host memory that is not pageable, without its overlap with kernels and "
    "collectives / step time",
)
of_pinned("exposed_copy_bytes_per_step", lambda view: bytes_per_step(view, view.once(_ahead))).says(
    "Bytes per step of the copies to the device that nothing else hides.", "sum of their bytes / steps"
)
of_pinned("exposed_copy_same_stream_share", lambda view: _part_of_copies(view, _queued(view))).says(
    "Part of the exposed copies' time that is queued in one stream with kernels, which cannot run meanwhile.",
    "time of those copies on streams that run kernels too / time of those copies; 0 without copies",
)
of_pinned("exposed_copy_of", _purpose, unit="text").says(
    "Range or op in which most of the exposed copies were asked for; empty where none was open.",
    "by time of those copies, the outermost range around the launching call that is no step and takes less than "
    "half a step; N for numbers",
)
of_pinned("exposed_copy_parameter_share", lambda view: _part_of_copies(view, _of_parameters(view))).says(
    "Part of the exposed copies' time that fetches parameters or activations kept in host memory.",
    "those launched inside a range of FSDP or DeepSpeed ZeRO, or by a program of XLA / time of those copies; 0 "
    "without copies",
)
of_pinned.saving("copy", _gains).says("copying ahead")


# Between two pages that a kernel waits for lies the handling of a fault: in an addition of vectors that takes 0.6 ms
# with the pages there and 110 ms without (A100, 512 MiB), all gaps but one are shorter.
_SERVICE_NS: Final = 500_000


def _waiting(view: DeviceView) -> pl.DataFrame:
    """The kernels that pages move for, most time first."""
    kernels = view.used_kernels
    waits = kernels.with_columns(wait_ns=spent_ns(kernels, view.once(paging)))
    return waits.filter(pl.col("wait_ns") > 0).sort("wait_ns", descending=True)


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    rows = view.once(page_moves)
    brought = rows.filter(inside(view.device_spans("kernel"), rows))
    at_most = view.once(paging).bridged(_SERVICE_NS) & view.device_spans("kernel")
    return _beyond_link(view, brought, view.once(paging), at_most)


def _beyond_link(view: DeviceView, pages: pl.DataFrame, *ends: Intervals) -> tuple[float, float]:
    """What each of two times is longer than moving all of these pages at once, in ms per step."""
    link = view.gpu.pcie_gbs if view.gpu else None
    at_once_ns = int(pages["bytes"].sum()) / (EFFICIENCY * link) if link else spans(pages).total
    low_ms, high_ms = (view.per_step_ms(max(0.0, when.total - at_once_ns)) for when in ends)
    return low_ms, high_ms


_fetched: Final = partial(page_moves, way="DtoH")  # pages that the driver moves to the host


def _fetching(view: DeviceView) -> tuple[Intervals, Intervals]:
    """When such pages move and no kernel runs; the same with the time between two of them."""
    moving = spans(view.once(_fetched)) - view.device_spans("kernel")
    return moving, moving | (idle_for(view, "paging") & moving.bridged(PAGES_APART_NS))


measure.share("page_wait_share", paging, where=as_places(_waiting, "device_ops", op="op")).says(
    "Part of the step in which kernels run while pages of managed memory move to the device for them.",
    "union of migrations to the device within kernels / step time",
)
measure.saving("prefetch", lambda view: view.once(_ends_ms)).says("a prefetch of the pages")
measure(
    "fetch_share", lambda view: view.share(view.once(_fetching)[1]), where=as_places(_fetched, "device_ops", op="op")
).says(
    "Part of the step in which the host waits for pages of managed memory that it reads, and no kernel runs.",
    "union of migrations to the host without kernels, and of idle time of up to {pages_apart} between two / step time",
)
measure.saving("fetch", lambda view: _beyond_link(view, view.once(_fetched), *view.once(_fetching))).says(
    "a prefetch of the pages that the host reads"
)
