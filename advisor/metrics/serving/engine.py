"""A serving engine: which one runs, the phases of its steps, and what keeps it from faster prefills and decoding."""

from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import launch_gaps, unknown_waits
from advisor.analysis.device.kernels import kernels, longest
from advisor.analysis.device.places import largest, stretches, times_by_range
from advisor.analysis.device.view import DeviceView, spans
from advisor.analysis.device.workload import (
    decode_steps,
    gaps_between,
    graph_launches,
    steps_by_phase,
    time_of,
    work,
)
from advisor.inputs.names.engines import DECODING, ENGINES, PREFILLING
from advisor.metrics.metric import DeclareOfDevices, Details, Rows, Value, filled, lacking, of_devices
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals, Ints
from advisor.model.profile import matches

_NEEDS: Final = ("device_ops", "device_ops.launch")
_SAMPLES: Final = r"(?i)argmax|multinomial|sampl|top_?k|top_?p|sort|distribution_"


def _phases(view: DeviceView) -> Value:
    rows = view.once(steps_by_phase)
    return ", ".join(rows["phase"].unique().sort()) if rows.height else Missing("no_engine_steps")


measure = of_devices(__name__, needs_steps=False)

measure(
    "engine",
    lambda view: next((name for name, of in ENGINES if view.host_like(of).height), Missing("no_engine")),
    unit="text",
)
measure("phases", _phases, unit="text")


def _prefills(view: DeviceView) -> pl.DataFrame:
    return view.once(steps_by_phase).filter(pl.col("phase").is_in(PREFILLING))


def _part(rows: pl.DataFrame, part: str, total: str) -> float:
    return float(rows[part].sum()) / max(1, int(rows[total].sum()))


no_steps = lacking(no_engine_steps=lambda view: not view.once(steps_by_phase).height)
no_prefill = lacking(no_prefill_step=lambda view: not view.once(_prefills).height)
of_steps = of_devices(__name__, needs=_NEEDS, unknown=no_steps)
measure_prefills = of_devices(
    __name__, needs=(*_NEEDS, "host_ops"), unknown=lacking(no_steps, no_prefill, unknown_waits)
)


def _declare(phase: str, rows: Rows, which: str, of_waits: DeclareOfDevices) -> None:
    """What the steps that prefill have as those that decode do."""

    def words(name: str) -> Details:
        return {"words": partial(filled, __name__, f"phase_{name}", which=which)}

    idle, launching = ("busy_ns", "period_ns"), ("launching_ns", "host_ns")
    of_waits(f"{phase}_idle_share", lambda view: 1 - _part(view.once(rows), *idle), **words("idle_share"))
    of_waits(f"{phase}_launch_share", lambda view: _part(view.once(rows), *launching), **words("launch_share"))
    of_waits(
        f"{phase}_launch_part",
        lambda view: time_of(view.once(rows)).part_of(view.once(launch_gaps)),
        **words("launch_part"),
    )
    of_steps(
        f"{phase}_communication_share",
        lambda view: _part(view.once(rows), "communicating_ns", "busy_ns"),
        **words("communication_share"),
    )


_declare("prefill", _prefills, "steps that prefill", measure_prefills)


def _part_of_decoding(view: DeviceView, when: Intervals) -> float:
    return when.total / max(1, time_of(view.once(decode_steps)).total)


def _idle(view: DeviceView) -> Intervals:
    """When the device idles between two decode steps."""
    return (Intervals.of(*view.once(gaps_between)) - view.busy) & view.windows


def _before_launch(view: DeviceView) -> Intervals:
    return view.once(_idle) - view.once(graph_launches)


def _gap_us(view: DeviceView) -> float:
    opens, closes = view.once(gaps_between)
    return float(np.median(closes - opens)) / 1e3 if len(opens) else 0.0


def _sampling(view: DeviceView) -> pl.DataFrame:
    """Kernels of the decode steps that run after the step's last matrix product, of steps that sample there."""
    of_step = view.once(work).select("id", "mark")
    rows = view.once(kernels).join(of_step, on="id").join(view.once(decode_steps).select("mark"), on="mark")
    is_product = pl.col("family").is_in(["gemm", "gemv"])
    last = pl.col("start_ns").filter(is_product).max().over("mark")
    after = rows.filter(pl.col("start_ns") > last)
    return after.filter(matches(_SAMPLES).any().over("mark")) if after.height else after


def _stall_ns(view: DeviceView) -> int:
    """The longest for which requests that decode wait for the prefills of others; zero where none does."""
    runs = view.once(steps_by_phase).with_columns(decodes=pl.col("phase").is_in(DECODING))
    by_run = runs.group_by(run=pl.col("decodes").rle_id()).agg(
        pl.first("decodes"), ns=pl.sum("period_ns"), most=pl.sum("requests"), next=pl.first("requests")
    )
    by_run = by_run.sort("run").with_columns(before=pl.col("run").shift(1), after=pl.col("next").shift(-1))
    stalled = by_run.filter(~pl.col("decodes"), pl.col("before").is_not_null(), pl.col("after") > pl.col("most"))
    return int(stalled["ns"].max() or 0)  # type: ignore[arg-type]  # integers


no_decode = lacking(no_decode_step=lambda view: not view.once(decode_steps).height)
no_requests = lacking(no_request_counts=lambda view: view.once(steps_by_phase)["requests"].null_count())
measure_decoding, measure_waits, measure_stalls = (
    of_devices(__name__, needs=(*_NEEDS, "host_ops"), unknown=lacking(no_steps, no_decode, *more))
    for more in ((), (unknown_waits,), (no_requests,))
)

_declare("decode", decode_steps, "decode steps", measure_waits)
measure_waits(
    "decode_single_kernels",
    lambda view: float(view.once(decode_steps)["single"].sum()) / view.once(decode_steps).height,
)
measure_waits(
    "decode_gap_share",
    lambda view: _part_of_decoding(view, view.once(_before_launch)),
    where=stretches(lambda view: Intervals.of(*view.once(gaps_between)), "between two decode steps"),
)
measure_waits("decode_gap_us", _gap_us)
measure_waits("decode_gap_ms", lambda view: view.per_step_ms(view.once(_idle).total))
measure_waits("decode_busy_ms", lambda view: view.per_step_ms(int(view.once(decode_steps)["busy_ns"].sum())))
measure_waits("decode_gap_causes", lambda view: largest(view, times_by_range(view, view.once(_before_launch))))
measure_decoding(
    "sampling_share", lambda view: _part_of_decoding(view, spans(view.once(_sampling))), where=longest(_sampling)
)
measure_decoding("sampling_kernels", lambda view: view.once(_sampling).height / view.once(decode_steps).height)
measure_decoding("sampling_ms", lambda view: view.per_step_ms(spans(view.once(_sampling)).total))
measure_stalls("prefill_stall_ms", lambda view: view.once(_stall_ns) / 1e6)
measure_stalls(
    "prefill_stall_ratio",
    lambda view: view.once(_stall_ns) / max(1.0, float(np.median(view.once(decode_steps)["period_ns"].to_numpy()))),
)


_LINEAR: Final = r"^aten::linear$"
_TOKENS: Final = r"^\[\[(?:\d+, ?)?(\d+), ?\d+\], ?\[\d+, ?\d+\]"  # of `[[batch, tokens, width], [rows, width], ...]`
_FEWEST: Final = 4  # lengths in a row that grow by one: fewer may be so by chance
_MOST_GROW: Final = 0.9  # of the changes: the others begin another text


def _lengths(view: DeviceView) -> Ints:
    """The number of tokens in each step of generation; a product of a single token, such as the head's, tells none."""
    calls = view.used_like(_LINEAR, "op").sort("start_ns")
    tokens = calls["shapes"].cast(pl.String).str.extract(_TOKENS).cast(pl.Int64)
    several = tokens.filter(tokens > 1).to_numpy()
    begins = np.flatnonzero(np.diff(several, prepend=0))
    return several[begins]


def _tokens(view: DeviceView) -> float:
    lengths = _lengths(view)
    is_growing = len(lengths) >= _FEWEST and float((np.diff(lengths) == 1).mean()) >= _MOST_GROW
    return float(lengths.mean()) if is_growing else 1.0


of_generation = of_devices(__name__, needs=("host_ops", "host_ops.shapes"))

of_generation("generation_tokens", _tokens)
