"""When each category of work owns the step, in the order that the users of each framework know from its own tools.

And the parts of the step in the accounting.
"""

from collections.abc import Iterator
from functools import reduce
from operator import sub
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.communication import host_collectives, host_exposed
from advisor.analysis.device.cpu_waits import cpu_waits, delayed_part, noted_ms
from advisor.analysis.device.host_work import callbacks, executed, running
from advisor.analysis.device.idle import CAUSES, DOUBTFUL, gaps, idle_for, launch_gaps, stalls, unknown_idle
from advisor.analysis.device.iterators import builds
from advisor.analysis.device.launches import lacks_kernels
from advisor.analysis.device.view import DeviceView, bounds, spans
from advisor.inputs.names.calls import JIT_CALL
from advisor.model.intervals import EMPTY, Intervals, Ints, shared_out
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.kinds import CATEGORIES, DRIVER_CALLS, XLA_FRAMEWORKS
from advisor.vocabulary.limits import LAUNCH_GAP_NS
from advisor.vocabulary.parts import DELAYED, DEVICE_PARTS, HOST_RANGES


class _Layer(NamedTuple):
    """What owns an instant that no layer before it covers; `device` and `host` select the ops, None: none."""

    category: str
    device: pl.Expr | None = None
    host: pl.Expr | None = None


_KIND: Final = pl.col("kind")
_TO_DEVICE: Final = (_KIND == "memcpy") & pl.col("copy_kind").cast(pl.String).eq_missing("HtoD")
_CALLS: Final = _KIND.is_in(DRIVER_CALLS)
_CODE: Final = _KIND.is_in(["op", "annotation", "module", "python", "gc"])
_COLLECTIVE: Final = _Layer("collective", _KIND == "collective", _KIND == "collective")
_INPUT: Final = _Layer("input", host=_KIND == "input")
_COMPILE: Final = _Layer("compile", host=_KIND == "compile")

# An overlapped collective is compute, and only an exposed one is collective.
_OF_PYTORCH: Final = (
    _Layer("compute", _KIND == "kernel"),
    _Layer("memcpy", _KIND == "memcpy"),
    _Layer("memset", _KIND == "memset"),
    _COLLECTIVE,
    _Layer("other", _KIND == "graphics"),
    _Layer("launch", host=_CALLS),
    _INPUT,
    _COMPILE,
    _Layer("host", host=_CODE),
)

# On the CPU, too, what JAX's programs do on threads of XLA comes before all waits: see `executed`.
# A wait for input owns an instant before the calls do, and a copy to the device only what the host leaves.
OF_TENSORFLOW: Final = (
    _Layer("compute", _KIND == "kernel"),
    _Layer("memcpy", (_KIND == "memcpy") & ~_TO_DEVICE),
    _Layer("memset", _KIND == "memset"),
    _INPUT,
    _COLLECTIVE,
    _Layer("launch", host=_CALLS | matches("^ExecutorState::Process")),
    _Layer("memcpy", _TO_DEVICE),
    _COMPILE,
    _Layer("host", host=_CODE),
)
_ON_CPU: Final = (_INPUT, _COLLECTIVE, _COMPILE, _Layer("host", host=_CODE | _CALLS))  # the executor computes


def sweep(view: DeviceView, steps: pl.DataFrame) -> Iterator[tuple[str, Ints]]:
    """For each category, the time in every window that it covers and no earlier layer does."""
    starts, ends = bounds(steps)
    owned = {category: np.zeros(steps.height, np.int64) for category in CATEGORIES}
    before = np.zeros(steps.height, np.int64)
    for category, covered in _covered_in(view, steps):
        so_far = covered.within(starts, ends)
        owned[category] += so_far - before
        before = so_far
    owned["other"] += ends - starts - before
    yield from owned.items()


def _covered_in(view: DeviceView, steps: pl.DataFrame) -> list[tuple[str, Intervals]]:
    """What `_covered` counts for these steps: where TensorFlow marks them, host work of another step is left out."""
    every = _layers(view) is _OF_PYTORCH or not view.has_marks
    return view.once(_covered) if every else _covered(view, _of_windows(view, steps))


def _covered(view: DeviceView, host: pl.DataFrame | None = None) -> list[tuple[str, Intervals]]:
    """Per layer its category, and the time that it or one before it covers; `host` are the host ops that count."""
    host, covered, layers = view.host if host is None else host, EMPTY, list[tuple[str, Intervals]]()
    if view.device is None:  # as a device would: what is waited for meanwhile costs nothing
        covered = view.once(executed)
        layers.append(("host", covered))
    for layer in _layers(view):
        covered = covered | _spans(view.ops, layer.device) | _spans(host, layer.host)
        layers.append((layer.category, covered))
    return layers


def _layers(view: DeviceView) -> tuple[_Layer, ...]:
    if view.process.get("framework") not in XLA_FRAMEWORKS:
        return _OF_PYTORCH
    return _ON_CPU if view.device is None else OF_TENSORFLOW


def _of_windows(view: DeviceView, steps: pl.DataFrame) -> pl.DataFrame:
    """The host's work for each used step, as far as it lies in that step's window: what is prefetched is left out."""
    windows = steps.select("step", opens="start_ns", closes=END_NS)
    end = pl.min_horizontal(END_NS, "closes")
    return (
        view.host.select("kind", "name", "step", "start_ns", "dur_ns")
        .join(windows, on="step")
        .with_columns(pl.max_horizontal("start_ns", "opens"), end=end)
        .filter(pl.col("end") > pl.col("start_ns"))
        .with_columns(dur_ns=pl.col("end") - pl.col("start_ns"))
    )


def _spans(ops: pl.DataFrame, which: pl.Expr | None) -> Intervals:
    return EMPTY if which is None else spans(ops.lazy().filter(which).select("start_ns", "dur_ns").collect())


# Of a window without steps: with less of it in ops or waits, the recording does not tell what the job does
_LEAST_RECORDED: Final = 0.05
_WAITS: Final = ("input", "collective", "compile")
_DELAYS: Final = {"other_programs": "run_delay_ms", "own_processes": "own_delay_ms"}


def part_times(view: DeviceView) -> dict[str, Ints]:
    """The time of each part in each used step; in every step the parts add up to its length, or there are none."""
    if (view.host_doubt if view.device is None else view.loses_ops) or view.once(lacks_kernels):  # idle or not
        return {}
    if view.device is None:
        # The time of each part without a device, where enough was recorded.
        times = {part: when.within(view.starts, view.ends) for part, when in view.once(_on_cpu_spans).items()}
        dispatch = spans(view.host_like(JIT_CALL)).within(view.starts, view.ends)  # of programs too small to last
        known = sum(int(time.sum()) for part, time in times.items() if part != "between") + int(dispatch.sum())
        if not view.has_marks and known < _LEAST_RECORDED * view.total_ns:
            return {}  # another thread or process may work all the while
        return _without_delays(view, times)
    busy = {part: view.device_spans(kind) for part, kind in DEVICE_PARTS.items()}  # of what overlaps the first counts
    # What the device waits for; where too much of it is unknown, nothing of it is known but the host's ranges.
    idle = view.once(gaps)
    causes = {cause: _by_step(view, idle, idle[f"{cause}_ns"].to_numpy()) for cause in CAUSES}
    if view.total_ns and view.once(unknown_idle):
        causes["unknown"] = np.sum([causes["unknown"], *(causes.pop(cause) for cause in DOUBTFUL)], axis=0)
    if "host_bound" in causes:
        late = idle["host_bound_ns"].to_numpy()
        short = _by_step(view, idle, np.where(late <= LAUNCH_GAP_NS, late, 0))
        causes |= {"launch_gap": short, "host_busy": causes.pop("host_bound") - short}
    return shared_out(busy, view.starts, view.ends) | causes


def part_spans(view: DeviceView) -> dict[str, Intervals]:
    """When each part passes; with a device, those in which it waits for its host."""
    if view.device is None:
        return view.once(_on_cpu_spans)
    others = {cause: idle_for(view, cause) for cause in (*HOST_RANGES, "sync")}
    return {"launch_gap": view.once(launch_gaps), "host_busy": view.once(stalls), **others}


def _by_step(view: DeviceView, idle: pl.DataFrame, time: Ints) -> Ints:
    """The time of the gaps in each step."""
    total = np.zeros(view.steps.height, np.int64)
    np.add.at(total, idle["window"].to_numpy(), time)
    return total


def _on_cpu_spans(view: DeviceView) -> dict[str, Intervals]:
    """Without a device: what is no wait is the framework's ops, Python that they call, or what lies between them.

    Communication beside which another thread computes is no wait.
    """
    owned, before = dict.fromkeys(_WAITS, EMPTY), EMPTY
    for category, covered in _covered_in(view, view.steps):
        if category in _WAITS:
            owned[category] = covered - before
        before = covered
    owned["collective"] = owned["collective"] & host_exposed(view, view.once(host_collectives))
    owned["pipeline_build"] = owned["compile"] & view.once(builds)
    owned["compile"] = owned["compile"] - owned["pipeline_build"]
    rest = ("between", view.windows)
    for part, when in (("callback", spans(view.once(callbacks))), ("operators", view.once(running)), rest):
        owned[part] = reduce(sub, owned.values(), when)
    return owned


def _without_delays(view: DeviceView, times: dict[str, Ints]) -> dict[str, Ints]:
    """With the waits for a CPU, noted or sampled, taken in equal parts out of the work they lengthen."""
    part = delayed_part(view, *_DELAYS.values())
    if not part:
        return times
    working = {code: time for code, time in times.items() if code in DELAYED}
    shorter = {code: time - (part * time).astype(np.int64) for code, time in working.items()}
    waits = np.sum([*working.values()], axis=0) - np.sum([*shorter.values()], axis=0)
    if view.once(cpu_waits):
        return times | shorter | {"no_cpu": waits}
    of_others, of_own = (noted_ms(view, delay) for delay in _DELAYS.values())
    others = np.rint(waits * (of_others / (of_others + of_own))).astype(np.int64)
    return times | shorter | {"other_programs": others, "own_processes": waits - others}
