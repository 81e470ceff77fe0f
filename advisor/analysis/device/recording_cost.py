"""What recording itself costs the host: measured where the recorder timed steps without the profiler, else assumed.

It lengthens the parts of the step in which much is recorded. Sampled stacks show the wait for a loader without it.
"""

from typing import Any, Final

import numpy as np
import polars as pl

from advisor.analysis.device.categories import part_spans, part_times
from advisor.analysis.device.host_lines import long_lines
from advisor.analysis.device.places import sampled
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import OWN_LOADING, TAKES_OVER, WORKERS_LOADING
from advisor.model.clause import Missing
from advisor.vocabulary.kinds import XLA_FRAMEWORKS
from advisor.vocabulary.limits import LONG_SHARE
from advisor.vocabulary.parts import DELAYED, LONG, PARTS

OP_NS: Final = 1_000  # what recording an op with its shapes costs where it was not measured
FRAME_NS: Final = 200  # what recording a call of a Python function costs the host
_MOST_OP_NS: Final = 10_000
_FEW_NESTED: Final = 100
_STEADY: Final = 1.5  # medians of steps that did not change differ by less, on a busy machine too
# A recorded step takes at most so many times what it takes without waits that nobody noted: else nothing is known
_MOST_WAITING: Final = 10
RECORDED: Final = ("op", "runtime", "sync")  # kinds of host ranges that each cost the profiler about as much
FRAMES: Final = ("python", "module")  # kinds that cost it less
_MOST_NS: Final = 3_000  # that an op costs at most, with stacks: what steps took more was not the profiler's
# Of a part in which ops ran, recording is at most so much: three microseconds of an op that takes one by itself
_MOST_PART: Final = 0.75
_COST: Final = (pl.col("kind").is_in(RECORDED) + FRAME_NS / OP_NS * pl.col("kind").is_in(FRAMES)).alias("cost")

_ENOUGH: Final = 100  # samples: a share is known within ten points, by two standard errors


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
    # what takes longer than recording can is another change, but for waits for a thread with Python's lock
    most_ns, longer = _MOST_OP_NS * sum(view.once(recorded).values()) / view.steps.height, max(before, after)
    if during > _STEADY * longer and 1e6 * (during - longer) > most_ns and not view.process.get("threads"):
        return Missing("unsteady_steps", before=before, during=during, after=after)
    return float(min(before if view.device is not None else (before + after) / 2, max(during, _recorded_ms(view))))


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


def unprofiled_whole_ms(view: DeviceView) -> float | Missing | None:
    """The mean step without the profiler with the uneven ones; None where these add little, or other programs do."""
    typical, long_ms = unprofiled_ms(view), unprofiled_long_ms(view)
    if isinstance(typical, Missing) or isinstance(long_ms, Missing):
        return typical
    adds = long_ms >= LONG_SHARE * typical and not others_lengthen(view, long_ms, "unprofiled_delay_ms")
    return typical + long_ms if adds else None


def others_lengthen(view: DeviceView, long_ms: float, delay: str) -> bool:
    """Whether other programs are why steps are uneven: waits for these are half of it, and no line is in such alone."""
    return 2 * float(view.process.get(delay) or 0) >= long_ms > 0 and view.once(long_lines) is None  # helpers wait too


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
    recorded_ms = _recorded_ms(view)
    works_ms = recorded_ms - float(view.process.get("run_delay_ms") or 0)
    return works_ms / _MOST_WAITING <= during_ms <= _STEADY * recorded_ms


def _recorded_ms(view: DeviceView) -> float:
    return float(np.median(view.steps["dur_ns"].to_numpy())) / 1e6


def recorded(view: DeviceView) -> dict[str, int]:
    """How many host ops of each kind the used steps have."""
    kinds = view.used_host.group_by("kind").len().collect()
    return dict(kinds.with_columns(pl.col("kind").cast(pl.String)).iter_rows())


def measured_share(view: DeviceView) -> float | None:
    """The part of a recorded step that recording takes; None where it was not measured."""
    without, during = unprofiled_ms(view), _times(view)[2]
    return None if isinstance(without, Missing) or during is None else 1 - without / during


def step_cost_ns(view: DeviceView) -> tuple[float, float] | None:
    """What recording costs the host per step, at least and at most, in ns; None where the recording does not tell.

    Between an op's bounds and those of the only op within it there is little but the recording of one, in half of the
    pairs. Quartiles are 1.0 and 1.4 us in Kineto recordings with shapes, 2 to 3 with stacks, and 4 to 9 under Nsight
    Systems with NVTX ranges of ops and their shapes: of three such jobs timed without it, recording cost 5.6 to 6.3 us.
    Where no op is recorded, calls alone cost something.
    """
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent", "start_ns", "dur_ns")
    only = ops.filter(pl.len().over("parent") == 1)
    costs = ops.join(only, left_on="id", right_on="parent").select(pl.col("dur_ns") - pl.col("dur_ns_right"))
    beside, kinds = costs.collect().to_series(), view.once(recorded)
    frames_ns = FRAME_NS * sum(kinds.get(kind, 0) for kind in FRAMES)
    count = sum(kinds.get(kind, 0) for kind in RECORDED)
    if len(beside) < _FEW_NESTED:
        return None if kinds.get("op") else (0.0, (_MOST_NS * count + frames_ns) / view.steps.height)
    least, most = (min(_MOST_OP_NS, beside.quantile(part) or 0.0) * count + frames_ns for part in (0.25, 0.5))
    return least / view.steps.height, most / view.steps.height


def unprofiled_shares(view: DeviceView) -> dict[str, float]:
    """The share of each part of the step without the profiler; none where nothing shows that step."""
    lengths, waits = dict(view.once(recorded_parts)), _sampled_wait(view)
    if not lengths or (waits is None and isinstance(unprofiled_ms(view), Missing)):
        return {}
    # By the ops and calls that were made in each part, of which there is none where a device worked.
    before, cost = (column.to_numpy() for column in view.used_host.select(pl.col("start_ns") - 1, _COST).collect())
    costs = {part: float(cost[spans.covers(before)].sum()) for part, spans in view.once(part_spans).items()}
    op_ns = min(_MOST_NS, (measured_share(view) or 0.0) * view.total_ns / max(1.0, sum(costs.values())))
    for part in lengths.keys() & costs.keys():
        lengths[part] -= min(op_ns * costs[part], _MOST_PART * lengths[part])
    if waits is not None:
        lengths["input"] = waits / max(1e-9, 1 - waits) * (sum(lengths.values()) - lengths["input"])
    return {part: length / sum(lengths.values()) for part, length in lengths.items()}


def recorded_parts(view: DeviceView) -> dict[str, float]:
    """The recorded time of each part, in ns of the used steps; of a step that was timed without its waits for others.

    Those waits lengthened all work alike, which has their time.
    """
    times: dict[str, float] = {part: float(time.sum()) for part, time in view.once(part_times).items() if time.any()}
    work = sum(times.get(part, 0.0) for part in DELAYED)
    if isinstance(unprofiled_ms(view), Missing) or not work:
        return times
    longer = 1 + times.pop("other_programs", 0.0) / work
    return {part: time * longer if part in DELAYED else time for part, time in times.items()}


def _sampled_wait(view: DeviceView) -> float | None:
    """The sampled share of the wait for a loader; None with a device, or where compiled code asks for batches."""
    is_sampled = view.host_like(f"{OWN_LOADING}|{WORKERS_LOADING}|{TAKES_OVER}", "input").height
    if view.device is not None or view.process.get("framework") in XLA_FRAMEWORKS or not is_sampled:
        return None
    stacks = view.once(sampled)
    if int(stacks["samples"].sum() or 0) < _ENOUGH or "input" not in view.once(recorded_parts):
        return None
    return int(stacks.filter(kind="loading")["ns"].sum()) / int(stacks["ns"].sum())


def part_of_recorded(pool: str, view: DeviceView) -> float | Missing:
    """What recorded time of this pool of savings takes without the profiler, as a part of it."""
    step_ms, long_ms = unprofiled_ms(view), unprofiled_long_ms(view)
    times, shares = view.once(recorded_parts), view.once(unprofiled_shares)
    if isinstance(step_ms, Missing) and not shares:
        return step_ms
    usual_ms = view.per_step_ms(view.total_ns)
    if pool in PARTS[LONG].pools:
        excess_ms = float(view.complete["dur_ns"].to_numpy().mean()) / 1e6 - usual_ms
        if isinstance(long_ms, Missing):
            return 1.0
        is_in_no_step = others_lengthen(view, long_ms, "unprofiled_delay_ms")
        return 0.0 if is_in_no_step else long_ms / max(excess_ms, long_ms, 1e-9)
    of = [part for part in shares if pool in PARTS[part].pools] or [*shares]
    longer = sum(shares[part] for part in of) / sum(times[part] for part in of) * view.total_ns if of else 1.0
    return longer * (1.0 if isinstance(step_ms, Missing) else step_ms / usual_ms)


def recorded_ms(view: DeviceView, share: float, *parts: str) -> float:
    """What of the recorded step is this sampled share of a step, in ms: it comes out of these parts one after another.

    Stacks are of steps without the profiler, of uneven ones too.
    """
    recorded_ns, shares = 0.0, view.once(unprofiled_shares)
    for part in [part for part in parts if shares.get(part)]:
        takes = min(share, shares[part])
        recorded_ns += takes / shares[part] * view.once(recorded_parts)[part]
        share -= takes
    usual_ms, whole_ms = unprofiled_ms(view), unprofiled_whole_ms(view)
    longer = whole_ms / usual_ms if isinstance(whole_ms, float) and isinstance(usual_ms, float) else 1.0
    return longer * view.per_step_ms(recorded_ns + share * view.total_ns)


def without_recording(view: DeviceView, time_ns: int, ops: int) -> int:
    """What remains of host time with so many recorded ops when nothing is recorded, in ns of the recorded step."""
    return time_ns if measured_share(view) is not None else max(0, time_ns - OP_NS * ops)  # timed steps scale it


def _times(view: DeviceView) -> list[Any]:
    """The recorder's medians before, after and in the recording; none of use where no step of it is whole."""
    return [view.process.get(name) if view.steps.height else None for name in ("before_ms", "after_ms", "profiled_ms")]
