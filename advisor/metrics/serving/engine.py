"""A serving engine: which one runs, the phases of its steps, and what keeps it from faster prefills and decoding."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import launch_gaps, unknown_waits
from advisor.analysis.device.kernels import kernels, longest
from advisor.analysis.device.places import largest, stretches, times_by_range
from advisor.analysis.device.view import DeviceView, spans
from advisor.analysis.device.workload import decode_steps, gaps_between, graph_launches, steps_by_phase, time_of, work
from advisor.inputs.names.engines import DECODING, ENGINES, PREFILLING
from advisor.metrics.metric import DeclareOfDevices, Rows, lacking, of_devices
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals
from advisor.model.profile import matches

_NEEDS: Final = ("device_ops", "device_ops.launch")
_NVIDIA: Final = "TensorRT-LLM, host analysis guide"
_SAMPLES: Final = r"(?i)argmax|multinomial|sampl|top_?k|top_?p|sort|distribution_"


measure = of_devices(__name__, needs_steps=False)

measure(
    "engine",
    lambda view: next((name for name, of in ENGINES if view.host_like(of).height), Missing("no_engine")),
    unit="text",
).says(
    "The serving engine: `vllm`, `sglang` or `tensorrt_llm`.",
    "the first of them whose name for a step, or whose code, the host's ranges hold",
)
measure(
    "phases",
    lambda view: ", ".join(view.once(steps_by_phase)["phase"].unique().sort()) or Missing("no_engine_steps"),
    unit="text",
).says(
    "The phases of the used steps of a server: `prefill`, `decode`, `mixed`, `verify`; `unnamed` is none of them.",
    "from the marks of the steps, or else from the kernels of forward passes",
)


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
    of_waits(f"{phase}_idle_share", lambda view: 1 - _part(view.once(rows), "busy_ns", "period_ns")).says(
        f"Part of the {which} in which the device idles.",
        "1 - busy time / time from each such step's first op to the next step's first op",
        _NVIDIA,
    )
    of_waits(f"{phase}_launch_share", lambda view: _part(view.once(rows), "launching_ns", "host_ns")).says(
        f"Part of the {which} in which the host is inside calls that launch.",
        "union of calls that launch kernels or graphs / time from mark to mark on the host",
        _NVIDIA,
    )
    of_waits(f"{phase}_launch_part", lambda view: time_of(view.once(rows)).part_of(view.once(launch_gaps))).says(
        f"How much of the waiting for launches lies in {which}.",
        "idle time in host-bound gaps of at most {launch_gap} inside such steps / all of it; 0 without such gaps",
    )
    of_steps(f"{phase}_communication_share", lambda view: _part(view.once(rows), "communicating_ns", "busy_ns")).says(
        f"Communication in {which}; 0 without any.", f"time of collectives / busy time, both in {which}", _NVIDIA
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
).says(
    "Kernels per decode step that no CUDA graph launches.",
    "kernels of the decode steps whose call is no launch of a graph / decode steps",
)
measure_waits(
    "decode_gap_share",
    lambda view: _part_of_decoding(view, view.once(_before_launch)),
    where=stretches(lambda view: Intervals.of(*view.once(gaps_between)), "between two decode steps"),
).says(
    "Part of the decode steps in which the device idles between two of them, launches of graphs aside.",
    "idle time from the last op of a decode step to the first of the decode step that follows it, outside calls that "
    "launch graphs / time of the decode steps; gaps of over 10 times the median are pauses and left out",
    _NVIDIA,
)
measure_waits("decode_gap_us", _gap_us).says(
    "The median gap between two decode steps.",
    "median time from the last op of a decode step to the first of the decode step that follows it",
)
measure_waits("decode_gap_ms", lambda view: view.per_step_ms(view.once(_idle).total)).says(
    "Time per step in which the device idles between two decode steps.",
    "idle time as in decode_gap_share, launches of graphs included: who schedules ahead launches ahead / steps",
)
measure_waits("decode_busy_ms", lambda view: view.per_step_ms(int(view.once(decode_steps)["busy_ns"].sum()))).says(
    "Time per step in which the device works on decode steps.", "busy time of the decode steps / steps"
)
measure_waits("decode_gap_causes", lambda view: largest(view, times_by_range(view, view.once(_before_launch)))).says(
    "What the host did in the gaps between decode steps, as far as it was recorded.",
    "the three outermost ranges with the most time in them",
)
measure_decoding(
    "sampling_share", lambda view: _part_of_decoding(view, spans(view.once(_sampling))), where=longest(_sampling)
).says(
    "Part of the decode steps in which kernels sample.",
    "time of the kernels after a decode step's last matrix product, if one of them sorts, draws or takes the largest "
    "/ time of the decode steps",
)
measure_decoding("sampling_kernels", lambda view: view.once(_sampling).height / view.once(decode_steps).height).says(
    "Kernels per decode step that sample.", "their number / decode steps"
)
measure_decoding("sampling_ms", lambda view: view.per_step_ms(spans(view.once(_sampling)).total)).says(
    "Time per step of kernels that sample.", "their time / steps"
)
measure_stalls("prefill_stall_ms", lambda view: view.once(_stall_ns) / 1e6).says(
    "The longest time for which prefills hold up requests that decode.",
    "longest run of prefill and mixed steps after a decode step, before one with more requests than they had, on the "
    "device",
    "generation stalls: Sarathi-Serve (OSDI 2024)",
)
measure_stalls(
    "prefill_stall_ratio",
    lambda view: view.once(_stall_ns) / max(1.0, float(np.median(view.once(decode_steps)["period_ns"].to_numpy()))),
).says("How many typical decode steps the longest stall by prefills lasts.", "prefill_stall_ms / median decode step")


_TOKENS: Final = r"^\[\[(?:\d+, ?)?(\d+), ?\d+\], ?\[\d+, ?\d+\]"  # of `[[batch, tokens, width], [rows, width], ...]`
_FEWEST: Final = 4  # lengths in a row that grow by one: fewer may be so by chance
_MOST_GROW: Final = 0.9  # of the changes: the others begin another text


def _tokens(view: DeviceView) -> float:
    """The number in each step of generation; a product of a single token, such as the head's, tells none."""
    calls = view.used_like(r"^aten::linear$", "op").sort("start_ns")
    tokens = calls["shapes"].cast(pl.String).str.extract(_TOKENS).cast(pl.Int64)
    several = tokens.filter(tokens > 1).to_numpy()
    lengths = several[np.flatnonzero(np.diff(several, prepend=0))]
    is_growing = len(lengths) >= _FEWEST and float((np.diff(lengths) == 1).mean()) >= _MOST_GROW
    return float(lengths.mean()) if is_growing else 1.0


of_generation = of_devices(__name__, needs=("host_ops", "host_ops.shapes"))

of_generation("generation_tokens", _tokens).says(
    "Tokens that the model computes for each token it adds to a text; 1 where it keeps the others' keys and values.",
    "mean length of aten::linear's inputs over the steps of generation, which are calls in a row of one length; 1 "
    "where fewer than four lengths follow each other, or fewer than 90 % of the changes are one token more",
    "own choice: four, 90 %",
)
