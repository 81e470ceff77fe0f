"""How kernels fill the device: too few blocks for its multiprocessors, a last wave of few, few threads on each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import parts
from advisor.analysis.device.kernels import largest, longest
from advisor.analysis.device.roofline import gains_ms
from advisor.analysis.device.steps import DeviceView, spans
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.missing import Missing

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
_LAST_WAVE: Final = 1.2  # waves rounded up over waves: less costs too little to be worth a change
_LOW_OCCUPANCY: Final = 0.25
_TILED: Final = ["gemm", "convolution", "attention"]  # blocks of equal work; they hide latency without many threads
_NEEDS: Final = ("device_ops", "device_ops.name", "device_ops.grid")
_OCCUPANCY_NEEDS: Final = (*_NEEDS, "device_ops.occupancy")


def _launched(view: DeviceView) -> pl.DataFrame:
    """The kernels, with blocks per multiprocessor wherever the device's multiprocessors are known."""
    count = pl.lit(view.facts.get("sm_count"), pl.Float64)
    return view.once(parts).with_columns(pl.coalesce("blocks_per_sm", pl.col("grid") / count))


def _few_blocks(view: DeviceView) -> pl.DataFrame:
    is_optimizer = pl.col("part").eq_missing(pl.lit("optimizer"))  # more work per step makes none of it larger
    return view.once(_launched).filter(pl.col("blocks_per_sm") < 1, ~is_optimizer)


def _tails(view: DeviceView) -> pl.DataFrame:
    """Tiled kernels of more than one wave, with `lost`: the part of their time that the last wave leaves unused."""
    waves = pl.col("blocks_per_sm") / _resident(view)
    found = view.once(_launched).filter(pl.col("family").is_in(_TILED)).with_columns(waves=waves)
    rounded = pl.col("waves").ceil()
    found = found.filter(pl.col("waves") > 1, rounded / pl.col("waves") > _LAST_WAVE)
    return found.with_columns(lost=1 - pl.col("waves") / rounded)


def _thin(view: DeviceView) -> pl.DataFrame:
    """Kernels other than tiled ones of few resident threads, though there are blocks for all multiprocessors."""
    return view.once(_launched).filter(
        ~pl.col("family").is_in(_TILED),
        pl.col("occupancy").is_between(0, _LOW_OCCUPANCY, closed="none"),
        pl.col("blocks_per_sm") >= 1,
    )


@measures(
    Metric(
        "few_blocks_lost_share",
        "share",
        "Part of the multiprocessors' time in the step that kernels with too few blocks for them leave unused.",
        "sum over kernels with under one block per multiprocessor, without the optimizer's, of time x (1 - blocks / "
        "multiprocessors) / step time",
        "launch dimensions",
        _NEEDS,
        lambda view: longest(_few_blocks(view)),
    ),
    Metric(
        "few_blocks_share",
        "share",
        "Part of the step in kernels with fewer blocks than the device has multiprocessors.",
        "time of kernels with under one block per multiprocessor, without the optimizer's / step time",
        "launch dimensions",
        _NEEDS,
        lambda view: longest(_few_blocks(view)),
    ),
    Metric(
        "few_blocks_fill",
        "share",
        "Part of the multiprocessors that those kernels have a block for.",
        "mean of blocks / multiprocessors, weighted by the kernels' time",
        needs=_NEEDS,
    ),
    Metric("few_blocks_ops", "text", "The ops that launched them.", "the three with the most time", needs=_NEEDS),
    Metric(
        "tail_wave_share",
        "share",
        "Part of the step lost while the last, partly filled wave of a matrix kernel's blocks runs.",
        "sum over GEMM, convolution and attention kernels of more than one wave, with waves rounded up over waves "
        "above 1.2, of time x (1 - waves / waves rounded up) / step time; waves = blocks / (multiprocessors x blocks "
        "that fit on one, by threads, registers and shared memory)",
        "NVIDIA GPU Performance Background User's Guide; limits of the CUDA C++ Programming Guide",
        _NEEDS,
        lambda view: longest(_tails(view)),
    ),
    Metric("tail_wave_ops", "text", "The ops that launched them.", "the three with the most time", needs=_NEEDS),
    Metric(
        "tail_wave_gain_ms",
        "ms",
        "Step time that whole waves give back at most.",
        "replay of the recorded steps without that part of those kernels; where no replay can be trusted, that part",
        needs=_NEEDS,
    ),
    Metric(
        "low_occupancy_share",
        "share",
        "Part of the step in kernels, other than of matrices, that keep under a quarter of the device's threads.",
        "time of kernels with an estimated occupancy above 0 and under 25 % and at least one block per multiprocessor, "
        "without GEMM, convolution and attention / step time",
        "the profiler's estimate; matrix kernels hide latency with few threads",
        _OCCUPANCY_NEEDS,
        lambda view: longest(_thin(view)),
    ),
    Metric(
        "low_occupancy_ops", "text", "The ops that launched them.", "the three with the most", needs=_OCCUPANCY_NEEDS
    ),
)
def grids(view: DeviceView) -> Mapping[str, Value]:
    """How kernels fill the device, as far as their launch dimensions tell."""
    if not view.total_ns:
        return {}
    if view.once(parts).height and not view.once(_launched)["blocks_per_sm"].count():
        return dict.fromkeys(_NAMES, Missing("sm_count_unknown"))
    few, thin = _few_blocks(view), _thin(view)
    whole, filled = few.select(pl.sum("dur_ns"), filled=(pl.col("blocks_per_sm") * pl.col("dur_ns")).sum()).row(0)
    fill, share = (filled / whole if whole else 1.0), view.share(spans(few)) or 0.0
    values: dict[str, Value] = {
        "few_blocks_lost_share": (1 - fill) * share,
        "few_blocks_share": share,
        "few_blocks_fill": fill,
        "few_blocks_ops": largest(view, few),
        "low_occupancy_share": view.share(spans(thin)),
        "low_occupancy_ops": largest(view, thin),
    }
    return values | _last_waves(view)


def _last_waves(view: DeviceView) -> dict[str, Value]:
    if view.gpu is None or view.gpu.vendor != "NVIDIA" or view.gpu.capability not in _LIMITS:
        why = Missing("block_limit_unknown")
        return dict.fromkeys(("tail_wave_share", "tail_wave_ops", "tail_wave_gain_ms"), why)
    found = _tails(view)
    lost = found.select((pl.col("lost") * pl.col("dur_ns")).sum()).item()
    whole = pl.col("dur_ns") * (1 - pl.col("lost"))
    return {
        "tail_wave_share": lost / view.total_ns,
        "tail_wave_ops": largest(view, found),
        "tail_wave_gain_ms": gains_ms(view, found, whole, whole)[1],
    }


def _resident(view: DeviceView) -> pl.Expr:
    """Blocks of a kernel that fit on one multiprocessor; null where its registers or block size are not known."""
    capability, threads = (view.gpu.capability, view.gpu.max_threads_per_sm) if view.gpu else (0.0, None)
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


_NAMES: Final = (
    *(
        "few_blocks_lost_share",
        "few_blocks_share",
        "few_blocks_fill",
        "few_blocks_ops",
        "low_occupancy_share",
        "low_occupancy_ops",
    ),
    *("tail_wave_share", "tail_wave_ops", "tail_wave_gain_ms"),
)
