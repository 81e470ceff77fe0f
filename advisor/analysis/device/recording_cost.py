"""What recording itself costs the host: measured where the recorder timed steps without the profiler, else assumed."""

from typing import Any, Final

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.model.missing import Missing

OP_NS: Final = 1_000
"""What recording an op with its shapes costs where it was not measured."""

FRAME_NS: Final = 200
"""What recording a call of a Python function costs the host."""

_MOST_OP_NS: Final = 10_000
_QUARTILES: Final = (0.25, 0.75)
_FEW_NESTED: Final = 100
_STEADY: Final = 1.5
"""Medians of steps that did not change differ by less, on a busy machine too."""

_MOST_WAITING: Final = 10
"""A recorded step takes at most so many times what it takes without its waits for a CPU: else nothing is known."""

RECORDED: Final = ("op", "runtime", "sync")
"""Kinds of host ranges that each cost the profiler about as much."""


def unprofiled_ms(view: DeviceView) -> float | Missing:
    """The typical step without the profiler, in ms; missing where none was timed, or where steps changed meanwhile.

    With a device that is the step before the recording: CUPTI may slow steps after it. Without one, both count.
    """
    before, after, during = _times(view)
    if before is None or during is None:
        return Missing("no_unprofiled_steps")
    if view.steps["recurs"].any():
        return Missing("steps_recur")  # the recorder keeps the median, which is not theirs
    after = before if after is None else after
    if not 1 / _STEADY <= after / before <= _STEADY or before > _STEADY * during or not _is_of_recording(view, during):
        return Missing("unsteady_steps", before=before, during=during, after=after)
    # what takes longer than recording can is another change
    most_ns = _MOST_OP_NS * sum(view.once(recorded).values()) / view.steps.height
    if during > _STEADY * before and 1e6 * (during - before) > most_ns:
        return Missing("unsteady_steps", before=before, during=during, after=after)
    return float(min(before if view.device is not None else (before + after) / 2, during))


def unprofiled_steps_ms(view: DeviceView) -> tuple[float, ...]:
    """The steps that `unprofiled_ms` is typical of; none where that is missing."""
    if isinstance(unprofiled_ms(view), Missing):
        return ()
    names = ["before_steps_ms"] if view.device is not None else ["before_steps_ms", "after_steps_ms"]
    return tuple(step for name in names for step in view.process.get(name) or ())


def unprofiled_long_ms(view: DeviceView) -> float | Missing:
    """What uneven steps add to the mean step without the profiler, in ms; as recorded where nobody noted that."""
    typical, timed_ms = unprofiled_ms(view), view.process.get("long_ms")
    if isinstance(typical, Missing):
        return typical
    recorded_ns = view.lasting["dur_ns"].to_numpy().mean() - view.steps["dur_ns"].to_numpy().mean()
    return max(0.0, float(recorded_ns) / 1e6) if timed_ms is None else float(timed_ms)


def long_factor(view: DeviceView) -> float:
    """The mean step with the uneven ones over the typical one, both without the profiler: stacks are of all of them."""
    typical, long_ms = unprofiled_ms(view), unprofiled_long_ms(view)
    return 1.0 if isinstance(typical, Missing) or isinstance(long_ms, Missing) else 1 + long_ms / typical


def slowdown(view: DeviceView) -> float:
    """How many times as long recorded steps take as those around them, if more than recording their ops explains.

    1 where it does, where steps were not timed, and where those before and after differ.
    """
    before, after, during = _times(view)
    if before is None or after is None or during is None or not isinstance(unprofiled_ms(view), Missing):
        return 1.0
    steady = 1 / _STEADY <= after / before <= _STEADY and not view.steps["recurs"].any()
    return float(max(1.0, during / max(before, after))) if steady and _is_of_recording(view, during) else 1.0


def _is_of_recording(view: DeviceView, during_ms: float) -> bool:
    """Whether the recorder's median can be that of the recorded steps, which hold their waits for a CPU too."""
    recorded_ns = float(np.median(view.steps["dur_ns"].to_numpy()))
    return recorded_ns / _MOST_WAITING <= 1e6 * during_ms <= _STEADY * recorded_ns


def recorded(view: DeviceView) -> dict[str, int]:
    """How many host ops of each kind the used steps have."""
    kinds = view.used_host.group_by("kind").len().collect()
    return dict(kinds.with_columns(pl.col("kind").cast(pl.String)).iter_rows())


def measured_share(view: DeviceView) -> float | None:
    """The part of a recorded step that recording takes; None where it was not measured."""
    without, during = unprofiled_ms(view), _times(view)[2]
    return None if isinstance(without, Missing) or during is None else 1 - without / during


def op_ns(view: DeviceView) -> int:
    """What recording one op costs the host in this recording, in ns; 1 us where it was not measured.

    The measured cost is shared out evenly over all recorded ops and calls of the steps.
    """
    share, ops = measured_share(view), sum(view.once(recorded).get(kind, 0) for kind in RECORDED)
    return OP_NS if share is None or not ops else min(_MOST_OP_NS, int(share * view.total_ns / ops))


def step_cost_ns(view: DeviceView) -> tuple[float, float]:
    """What recording costs the host per step, at least and at most, in ns; nothing where the recording does not tell.

    Between an op's bounds and those of the only op within it there is little but the recording of one. The quartiles
    are 1.0 and 1.4 us in Kineto recordings with shapes, 2 to 3 with stacks, and 4 to 9 under Nsight Systems with NVTX
    ranges of ops and their shapes: of three such jobs that were timed without it, recording cost 5.6 to 6.3 us each.
    """
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent", "start_ns", "dur_ns")
    only = ops.filter(pl.len().over("parent") == 1)
    costs = ops.join(only, left_on="id", right_on="parent").select(pl.col("dur_ns") - pl.col("dur_ns_right"))
    beside = costs.collect().to_series()
    if len(beside) < _FEW_NESTED:
        return 0.0, 0.0
    kinds = view.once(recorded)
    frames_ns = FRAME_NS * (kinds.get("python", 0) + kinds.get("module", 0))
    count = sum(kinds.get(kind, 0) for kind in RECORDED)
    least, most = (min(_MOST_OP_NS, beside.quantile(part) or 0.0) * count + frames_ns for part in _QUARTILES)
    return least / view.steps.height, most / view.steps.height


def without_recording(view: DeviceView, time_ns: int, ops: int) -> int:
    """What remains of host time with so many recorded ops when nothing is recorded, in ns of the recorded step.

    Where the step without the profiler is known, that is a larger share of it: the profiler's cost is gone from both.
    """
    share, rest = measured_share(view), max(0, time_ns - op_ns(view) * ops)
    return rest if share is None else min(time_ns, int(rest / (1 - share)))


def _times(view: DeviceView) -> list[Any]:
    """The recorder's medians before, after and in the recording."""
    return [view.process.get(name) for name in ("before_ms", "after_ms", "profiled_ms")]
