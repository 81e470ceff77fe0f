"""How kernels fill the device: too few blocks for its multiprocessors, a last wave of few, few threads on each."""

from typing import Final

import polars as pl

from advisor.analysis.device.communication import paging
from advisor.analysis.device.kernels import UPDATES, longest, no_multiprocessors, parts
from advisor.analysis.device.view import DeviceView, spans, spent_ns
from advisor.metrics.metric import lacking, of_devices
from advisor.model.profile import matches
from advisor.whatif.change import faster

_REGISTERS: Final = 65_536  # per multiprocessor, allocated by the warp in units of 256
_WARP: Final = 32
_UNIT: Final = 256
_RESERVED_BYTES: Final = 1_024  # of shared memory per block, from capability 8.0 on
# Per multiprocessor and compute capability: shared memory in KiB, blocks.
_LIMITS: Final = {
    7.0: (96, 32),
    7.5: (64, 16),
    8.0: (164, 32),
    8.6: (100, 16),
    8.9: (100, 24),
    9.0: (228, 32),
    10.0: (228, 32),
    12.0: (100, 24),
}
# Names of kernels that loop over tiles with a fixed number of blocks (CUTLASS, stream-K, cuDNN, nvJet, DeepGEMM).
_PERSISTENT: Final = r"(?i)persist|stream_?k|_SK\d|^nvjet|deep_gemm|megakernel"
_SIZES: Final = 3  # inputs of so many sizes on one grid
_FIXED: Final = 0.5  # of the multiprocessors: small inputs share a small grid by chance
_LAST_WAVE: Final = 1.2  # waves rounded up over waves: less costs too little to be worth a change
_BUSY_THREADS: Final = 1_024  # that a multiprocessor of every generation runs at once
_BLOCK_AGAIN: Final = 2.0  # times what its share of the multiprocessors tells: parts of a block meet and wait
_NARROW_PART: Final = 0.05  # of the time of less than a warp stays: one thread to 256 of a block took 0.027 to 0.05
_SHORTEST_NS: Final = (5_000, 2_000)  # a kernel takes so long to begin and to end
_MORE, _SAME_TIME = 2, 1.25  # own choice: so many times the blocks in so much of the time do more work
_PAGES: Final = 0.01  # of a kernel's time: if pages move to it for longer, it may wait for them
_USUAL_BLOCK: Final = 256
# times what the share of the warp's lanes tells: 16 threads to 256 took 0.27 of the time, one 0.05
_WARP_FACTOR: Final = 1.75
_TILED: Final = ["gemm", "convolution", "attention"]  # blocks of equal work; they hide latency without many threads
_NEEDS: Final = ("device_ops", "device_ops.name", "device_ops.grid")


def _few_blocks(view: DeviceView) -> pl.DataFrame:
    """Kernels that leave multiprocessors idle because they have little to do, and not because they are made so.

    None that waits for pages, nor one of a library without a framework: it chooses its grids, and nothing has batches.
    """
    few = view.once(parts).filter(pl.col("blocks_per_sm") < 1, ~UPDATES, ~_persistent())  # no batch makes those larger
    few = few.filter(spent_ns(few, view.once(paging)) <= _PAGES * few["dur_ns"], ~_beside_others(view, few))
    return few.filter(pl.col("library").is_null()) if view.process.get("framework") == "cuda" else few


def _persistent() -> pl.Expr:
    """Whether a kernel takes as many blocks as it was given multiprocessors, whatever there is to do.

    Its name says so, or one launch shape serves inputs of several sizes.
    """
    sizes, grids = (pl.col(name).n_unique().over("name") for name in ("elements", "grid"))
    measured = pl.col("elements").is_not_null() & (pl.col("blocks_per_sm") >= _FIXED)
    return matches(_PERSISTENT) | (measured & (sizes >= _SIZES) & (grids == 1)).fill_null(value=False)


def _beside_others(view: DeviceView, few: pl.DataFrame) -> pl.Series:
    """Whether other streams compute or communicate during half of each kernel: the rest of the device is in use."""
    running = view.ops.filter(pl.col("kind").is_in(["kernel", "collective"])).select("stream", "start_ns", "dur_ns")
    rows = few.with_row_index("row").select("row", "stream", "start_ns", "dur_ns")
    covered = [pl.DataFrame(schema={"row": pl.UInt32, "others": pl.Boolean})]
    for (stream,), of_stream in rows.group_by("stream") if running["stream"].n_unique() > 1 else ():
        others = spans(running.filter(pl.col("stream").ne_missing(stream)))
        covered.append(of_stream.select("row", others=2 * spent_ns(of_stream, others) >= of_stream["dur_ns"]))
    return rows.join(pl.concat(covered), on="row", how="left", maintain_order="left")["others"].fill_null(value=False)


def _own_few_blocks(view: DeviceView) -> pl.DataFrame:
    """Those of the program's own kernels: the grids of libraries are the libraries'."""
    return view.once(_few_blocks).filter(pl.col("library").is_null())


def _split(_: DeviceView) -> tuple[pl.Expr, pl.Expr]:
    """Longest and shortest time of a kernel whose work is split over all multiprocessors.

    It may take as long as now where its larger grids take no longer: they have more to do, and each block the same.
    """
    threads = pl.col("blocks_per_sm") * pl.col("block") / _BUSY_THREADS
    least = pl.when(pl.col("block") < _WARP).then(_NARROW_PART)
    shares = (
        pl.max_horizontal(_BLOCK_AGAIN * pl.col("blocks_per_sm"), least),
        pl.min_horizontal(threads, "blocks_per_sm"),
    )
    now = pl.col("dur_ns")
    slow, fast = (
        pl.min_horizontal(now, pl.max_horizontal(now * part, pl.lit(shortest)))
        for part, shortest in zip(shares, _SHORTEST_NS, strict=True)
    )
    of_few, of_many = (now.filter(pl.col("grid") == end).median() for end in (pl.min("grid"), pl.max("grid")))
    grows = (pl.max("grid") >= _MORE * pl.min("grid")) & (of_many <= _SAME_TIME * of_few)
    has_own_work = grows.over("name", "block").fill_null(value=False)
    return pl.when(has_own_work).then(now).otherwise(slow), fast


def _narrow(view: DeviceView) -> pl.DataFrame:
    """The program's own kernels whose blocks have fewer threads than a warp."""
    is_own = pl.col("library").is_null() & (pl.col("family") == "other")
    return view.once(parts).filter(is_own, pl.col("block") < _WARP, pl.col("blocks_per_sm") > 0)


def _in_full_warps(view: DeviceView) -> tuple[pl.Expr, pl.Expr]:
    """Longest and shortest time with blocks of usual size on all multiprocessors: by lanes, by threads at once."""
    capability, threads = (view.chip.capability, view.chip.max_threads_per_sm) if view.chip else (0.0, None)
    resident = pl.min_horizontal(pl.col("blocks_per_sm").ceil(), pl.lit(_LIMITS.get(capability, (0, 16))[1]))
    room = pl.when(pl.col("blocks_per_sm") >= 1).then(threads or _BUSY_THREADS).otherwise(_USUAL_BLOCK)
    slow = pl.min_horizontal(pl.lit(1.0), _WARP_FACTOR * pl.col("block") / _WARP)
    fast = resident * pl.col("block") / room * pl.min_horizontal("blocks_per_sm", 1) * pl.col("dur_ns")
    longest_ns = slow * pl.col("dur_ns")
    return longest_ns, pl.min_horizontal(longest_ns, pl.max_horizontal(fast, _SHORTEST_NS[1]))


def _tails(view: DeviceView) -> pl.DataFrame:
    """Tiled kernels of more than one wave, with `unused`: the part of their time that the last wave wastes."""
    waves = pl.col("blocks_per_sm") / _resident(view)
    tiled = view.once(parts).filter(pl.col("family").is_in(_TILED))
    tails = tiled.filter(waves > 1, waves.ceil() / waves > _LAST_WAVE)
    return tails.with_columns(unused=1 - waves / waves.ceil())


def _resident(view: DeviceView) -> pl.Expr:
    """Blocks of a kernel that fit on one multiprocessor; null where its registers or block size are not known."""
    capability, threads = (view.chip.capability, view.chip.max_threads_per_sm) if view.chip else (0.0, None)
    shared_kib, blocks = _LIMITS.get(capability, (0, 0))
    warps = (pl.col("block") / _WARP).ceil()
    registers = warps * (pl.col("registers") * _WARP / _UNIT).ceil() * _UNIT
    reserved = _RESERVED_BYTES if capability >= 8 else 0  # noqa: PLR2004 - Ampere
    limits = (
        pl.lit(blocks),
        ((threads or 0) / (warps * _WARP)).floor(),
        (_REGISTERS / registers).floor(),
        (shared_kib * 1024 / (pl.col("shared_bytes") + reserved)).floor(),
    )
    known = pl.all_horizontal(pl.col("registers", "block", "shared_bytes").is_not_null())
    fits = pl.min_horizontal(limits)
    return pl.when(known & (fits >= 1)).then(fits)


def _fill(few: pl.DataFrame) -> float:
    total_ns, full_ns = few.select(pl.sum("dur_ns"), full=(pl.col("blocks_per_sm") * pl.col("dur_ns")).sum()).row(0)
    return float(full_ns / total_ns) if total_ns else 1.0


_WAVES_NS: Final = pl.col("dur_ns") * (1 - pl.col("unused"))  # the time that they take

no_limits = lacking(
    block_limit_unknown=lambda view: (
        not view.chip or view.chip.vendor != "NVIDIA" or view.chip.capability not in _LIMITS
    )
)
measure = of_devices(__name__, needs=_NEEDS, unknown=no_multiprocessors)
measure_waves = of_devices(__name__, needs=_NEEDS, unknown=lacking(no_multiprocessors, no_limits))

measure(
    "few_blocks_lost_share",
    lambda view: (1 - _fill(view.once(_few_blocks))) * (view.share(spans(view.once(_few_blocks))) or 0.0),
    where=longest(_few_blocks),
).says(
    "Part of the multiprocessors' time in the step that kernels with too few blocks for them leave unused.",
    "sum over kernels with under a block per multiprocessor, without updates of parameters, persistent ones, and those "
    "beside kernels or collectives of other streams for half of their time, of time x (1 - blocks / "
    "multiprocessors) / step time",
    "launch dimensions",
)
measure.kernels("few_blocks", _few_blocks, gives=("share", "ops")).says(
    "in kernels with fewer blocks than the device has multiprocessors",
    "kernels as in few_blocks_lost_share",
    "launch dimensions",
)
measure("few_blocks_fill", lambda view: _fill(view.once(_few_blocks)), unit="share").says(
    "Part of the multiprocessors that kernels with too few blocks have a block for.",
    "mean of blocks / multiprocessors, weighted by the kernels' time",
)
measure.kernels("own_few_blocks", _own_few_blocks, gives=("share", "ops")).says(
    "in the program's own kernels with fewer blocks than the device has multiprocessors",
    "kernels as in few_blocks_lost_share that are of no known library",
    "launch dimensions; kernel names",
)
measure("own_few_blocks_fill", lambda view: _fill(view.once(_own_few_blocks)), unit="share").says(
    "Part of the multiprocessors that the program's own kernels with too few blocks have a block for.",
    "mean of blocks / multiprocessors, weighted by the kernels' time",
)
measure.faster("more_blocks", _own_few_blocks, _split).says(
    "launching the program's own kernels with blocks for all multiprocessors"
)
measure.faster("full_warps", _narrow, _in_full_warps).says(
    "launching the program's own kernels with blocks of 256 threads"
)
measure_waves(
    "tail_wave_share",
    lambda view: view.once(_tails).select((pl.col("unused") * pl.col("dur_ns")).sum()).item() / view.total_ns,
    where=longest(_tails),
).says(
    "Part of the step lost while the last, partly filled wave of a matrix kernel's blocks runs.",
    "sum over GEMM, convolution and attention kernels of more than one wave, with waves rounded up over waves "
    "above 1.2, of time x (1 - waves / waves rounded up) / step time; waves = blocks / (multiprocessors x blocks "
    "that fit on one, by threads, registers and shared memory)",
    "NVIDIA GPU Performance Background User's Guide; limits of the CUDA C++ Programming Guide",
)
measure_waves.kernels("tail_wave", _tails, gives=("ops",)).says(
    "in kernels with a mostly empty last wave", "kernels as in tail_wave_share"
)
measure_waves.gain("tail_wave", lambda view: faster(view.once(_tails), _WAVES_NS, _WAVES_NS)).says(
    "Step time that whole waves save at most."
)
