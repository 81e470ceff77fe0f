"""The accounting: each nanosecond of the step is useful work or a loss with its cause.

Findings and verdict rest on it.
"""

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.categories import part_spans, part_times
from advisor.analysis.device.host_lines import host_lines, long_lines, longest_lines
from advisor.analysis.device.host_work import holder
from advisor.analysis.device.idle import unknown_kernels
from advisor.analysis.device.recording_cost import part_of_recorded, unprofiled_shares
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import NAMES, Dtype, of_devices, tabulates
from advisor.model.clause import Entries
from advisor.vocabulary.parts import LONG, PARTS, POOLS

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
of_devices(__name__, needs=("device_ops",), unknown=unknown_kernels)(
    "exposed_memcpy_share", lambda view: int(view.once(part_times)["memcpy"].sum()) / view.total_ns
).says(
    "Part of the step in which a copy runs and no kernel, whatever the host does meanwhile.",
    "(union of kernels and copies - union of kernels) inside the steps / step time",
)
measure = of_devices(__name__)
for _pool in POOLS:
    measure(f"unprofiled_{_pool}_part", partial(part_of_recorded, _pool)).says(
        f"What {POOLS[_pool]} takes without the profiler, as a part of what it takes in the recording.",
        "unprofiled_share x unprofiled_step_ms / (share x step_mean_ms), of such rows of the table accounting. What "
        "recording takes, at most 3 µs each, is where ops are called; of samples, the wait for a DataLoader has its "
        "share; of uneven steps, what they add to the mean step",
    )
