"""Where the step goes: by a priority sweep, in the order that the users of each framework know from its own tools.

The accounting gives each nanosecond to useful work or to a loss with its cause; findings and verdict rest on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import sub
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.communication import host_collectives, host_exposed
from advisor.analysis.device.cpu_waits import cpu_waits, delayed_part, noted_ms
from advisor.analysis.device.host_work import callbacks, executed, running
from advisor.analysis.device.idle import CAUSES, gaps
from advisor.analysis.device.own_ranges import holder
from advisor.analysis.device.places import places
from advisor.analysis.device.steps import DeviceView, spans
from advisor.analysis.device.tf_data import builds
from advisor.analysis.device.unknowns import DOUBTFUL, start_up, unknown_idle
from advisor.inputs.names.calls import JIT_CALL
from advisor.inputs.names.engines import batch
from advisor.metrics.metric import Metric, Value, measures, tabulates
from advisor.model.arrays import Ints
from advisor.model.intervals import EMPTY, Union
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.idle_causes import HOST_RANGES
from advisor.vocabulary.kinds import CATEGORIES, DRIVER_CALLS, XLA_FRAMEWORKS
from advisor.vocabulary.limits import LAUNCH_GAP_NS
from advisor.vocabulary.parts import DELAYED, PARTS

_CODES: Final = tuple(CATEGORIES)
_ON_DEVICE: Final = ("compute", "memcpy", "memset", "collective")  # at least so much, where ops were left out


class _Layer(NamedTuple):
    """What owns an instant that no layer before it covers; `device` and `host` select the ops, None: none."""

    category: str
    device: pl.Expr | None = None
    host: pl.Expr | None = None


_KIND: Final = pl.col("kind")
_TO_DEVICE: Final = (_KIND == "memcpy") & pl.col("copy_kind").cast(pl.String).eq_missing("HtoD")
_CALLS: Final = _KIND.is_in(DRIVER_CALLS)
_CODE: Final = _KIND.is_in(["op", "annotation", "module", "python", "gc"])
_EXECUTOR: Final = matches("^ExecutorState::Process")
_COLLECTIVE: Final = _Layer("collective", _KIND == "collective", _KIND == "collective")
_INPUT: Final = _Layer("input", host=_KIND == "input")
_COMPILE: Final = _Layer("compile", host=_KIND == "compile")

# An overlapped collective is compute, and only an exposed one is collective.
_OF_PYTORCH: Final = (
    _Layer("compute", _KIND == "kernel"),
    _Layer("memcpy", _KIND == "memcpy"),
    _Layer("memset", _KIND == "memset"),
    _COLLECTIVE,
    _Layer("launch", host=_CALLS),
    _INPUT,
    _COMPILE,
    _Layer("host", host=_CODE),
)
# On the CPU, too, what JAX's programs do on threads of XLA comes before all waits: see `executed`.
# A wait for input owns an instant before the calls do, and a copy to the device only what the host leaves.
_OF_TENSORFLOW: Final = (
    _Layer("compute", _KIND == "kernel"),
    _Layer("memcpy", (_KIND == "memcpy") & ~_TO_DEVICE),
    _Layer("memset", _KIND == "memset"),
    _INPUT,
    _COLLECTIVE,
    _Layer("launch", host=_CALLS | _EXECUTOR),
    _Layer("memcpy", _TO_DEVICE),
    _COMPILE,
    _Layer("host", host=_CODE),
)
_ON_CPU: Final = (_INPUT, _COLLECTIVE, _COMPILE, _Layer("host", host=_CODE | _CALLS))  # the executor computes
LEAST_RECORDED: Final = 0.05
"""Of a window without steps: with less of it in ops or waits, the recording does not tell what the job does."""
_DEVICE_PARTS: Final = {"compute": "kernel", "memcpy": "memcpy", "memset": "memset", "collective": "collective"}
_WAITS: Final = ("input", "collective", "compile", "pipeline_build")
_DELAYS: Final = {"other_programs": "run_delay_ms", "own_processes": "own_delay_ms"}
_PARTS_SCHEMA: Final = {
    "part": pl.String,
    "time_ns": pl.Int64,
    "share": pl.Float64,
    "range": pl.String,
    "range_share": pl.Float64,
}
_SOURCE: Final = (
    "the sweep of torch-tb-profiler's overview, with every collective kernel counted as communication; of TensorFlow "
    "and JAX that of TensorFlow 2.12's step-time breakdown, with copies to the device apart from input; of JAX on the "
    "CPU, programs that run on threads of XLA come first and count as host, as a device's kernels would"
)


def _longest_waits(view: DeviceView) -> pl.DataFrame:
    """The longest requests for a batch in the used steps."""
    return places(view, view.host.filter(pl.col("kind") == "input"))


def _shares() -> dict[str, Metric]:
    return {
        name: Metric(
            f"{name}_share",
            "share",
            f"Part of the step in which {meaning}.",
            f"time of {name} outside {_before(name)} / step time; of TensorFlow and JAX {_of_tensorflow(name)}",
            _SOURCE,
            () if name in _ON_DEVICE else ("device_ops.start_ns",),
            where=_longest_waits if name == "input" else None,
        )
        for name, meaning in CATEGORIES.items()
    }


def _before(name: str) -> str:
    return ", ".join(_CODES[: _CODES.index(name)]) or "nothing"


def _of_tensorflow(name: str) -> str:
    order = [layer.category for layer in _OF_TENSORFLOW]
    before = list(dict.fromkeys(order[: order.index(name)] if name in order else order))
    formula = f"outside {', '.join(before)}" if before else "the same"
    return {
        "launch": f"{formula}, `ExecutorState::Process` counted as a call",
        "memcpy": f"{formula}, of copies to the device outside input, collective and launch as well",
    }.get(name, formula) + ("" if name in {"compute", "memcpy", "memset", "other"} else ", by the step's own host work")


SHARES: Final = _shares()
INPUT_EXPOSED_MS = Metric(
    "input_exposed_ms", "ms", "Time per step that passes waiting for input.", "input_share x step_mean_ms", _SOURCE
)


EXPOSED_MEMCPY_SHARE = Metric(
    "exposed_memcpy_share",
    "share",
    "Part of the step in which a copy runs and no kernel, whatever the host does meanwhile.",
    "(union of kernels and copies - union of kernels) inside the steps / step time",
    needs=("device_ops",),
)


@measures(EXPOSED_MEMCPY_SHARE)
def exposed_copies(view: DeviceView) -> Mapping[Metric, Value]:
    """Of TensorFlow and JAX it is more than memcpy_share where the call that copies returns only when it is done."""
    if not view.total_ns or view.device is None:
        return {}
    return {EXPOSED_MEMCPY_SHARE: int(view.once(_parts)["memcpy"].sum()) / view.total_ns}


@measures(*SHARES.values(), INPUT_EXPOSED_MS)
def breakdown(view: DeviceView) -> Mapping[Metric, Value]:
    """Shares of the used steps by category; they sum to 1."""
    owned = {category: int(time.sum()) for category, time in _sweep(view, view.steps)}
    if not view.total_ns:
        return {}
    shares: dict[Metric, Value] = {SHARES[category]: time / view.total_ns for category, time in owned.items()}
    return shares | {INPUT_EXPOSED_MS: view.per_step_ms(owned["input"])}


@tabulates("step")
def step_table(view: DeviceView) -> pl.DataFrame:
    """One row per used step: step, name, phase, start_ns, step_ms, `<category>_share` of each category, bottleneck.

    The phase is what the mark of a server's step says, else null. The bottleneck is the category with the largest
    share, as in XProf's pod viewer.
    """
    length = np.maximum(view.steps["dur_ns"].to_numpy(), 1)
    shares = [pl.Series(f"{category}_share", time / length) for category, time in _sweep(view, view.steps)]
    largest = np.argmax([share.to_numpy() for share in shares], axis=0)
    marks = view.steps["name"].fill_null("")
    phases = pl.Series("phase", [of and of.phase for of in map(batch, marks)], dtype=pl.String)
    return view.steps.select("step", "name", phases, "start_ns", step_ms=pl.col("dur_ns") / 1e6).with_columns(
        *shares, bottleneck=pl.Series([_CODES[i] for i in largest], dtype=pl.String)
    )


@tabulates("recorded_step")
def recorded_steps(view: DeviceView) -> pl.DataFrame:
    """One row per step that was recorded whole: step, name, start_ns, step_ms, left_out.

    The last one is why it is not used, null where it is.
    """
    return view.complete.select("step", "name", "start_ns", "left_out", step_ms=pl.col("dur_ns") / 1e6)


@tabulates("step_part")
def step_parts(view: DeviceView) -> pl.DataFrame:
    """The accounting of each of those steps, one row per part that takes time in it: step, part, share."""
    alike = view.outliers.is_empty()
    every = view if alike else replace(view, steps=view.complete, _computed={})
    length = np.maximum(every.steps["dur_ns"].to_numpy(), 1)
    times = {**dict.fromkeys(PARTS, np.zeros(len(length))), **every.once(_parts)}
    share = np.array([*times.values()]) / length
    part, step = np.nonzero(share > 0)
    codes = pl.Series([*times], dtype=pl.String)
    return pl.DataFrame({"step": every.steps["step"][step], "part": codes[part], "share": share[part, step]})


def _sweep(view: DeviceView, steps: pl.DataFrame) -> Iterator[tuple[str, Ints]]:
    """For each category, the time in every window that it covers and no earlier layer does."""
    starts = steps["start_ns"].to_numpy()
    ends = starts + steps["dur_ns"].to_numpy()
    alike = _layers(view) is _OF_PYTORCH or not view.has_marks
    owned = {category: np.zeros(steps.height, np.int64) for category in CATEGORIES}
    before = np.zeros(steps.height, np.int64)
    for category, covered in view.once(_covered) if alike else _covered(view, _of_windows(view, steps)):
        so_far = covered.within(starts, ends)
        owned[category] += so_far - before
        before = so_far
    owned["other"] = ends - starts - before
    yield from owned.items()


def owned_spans(view: DeviceView) -> Iterator[tuple[str, Union]]:
    """For each category but the last, when it owns the time of the used steps."""
    alike = _layers(view) is _OF_PYTORCH or not view.has_marks
    before = EMPTY
    for category, covered in view.once(_covered) if alike else _covered(view, _of_windows(view, view.steps)):
        yield category, covered - before
        before = covered


def _covered(view: DeviceView, host: pl.DataFrame | None = None) -> list[tuple[str, Union]]:
    """Per layer its category, and the time that it or one before it covers; `host` are the host ops that count."""
    host, covered, layers = view.host if host is None else host, EMPTY, list[tuple[str, Union]]()
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
    return _ON_CPU if view.device is None else _OF_TENSORFLOW


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


def _spans(ops: pl.DataFrame, which: pl.Expr | None) -> Union:
    return EMPTY if which is None else spans(ops.lazy().filter(which).select("start_ns", "dur_ns").collect())


@tabulates("accounting")
def accounting(view: DeviceView) -> pl.DataFrame:
    """One row per part that takes time in the used steps: part, time_ns (in all of them), share (of them).

    The times add up to the used steps to the nanosecond. `range` is that of the program's own ranges in which most of
    the part lies, `range_share` how much of the part; null where there is none, or where host ranges say nothing of it.
    """
    times = {part: int(time.sum()) for part, time in view.once(_parts).items()}
    when = view.once(_on_cpu_spans) if view.device is None else view.once(_idle_spans)
    ranges = {part: holder(view, time) for part, time in when.items() if times.get(part)}
    rows = [
        (code, times[code], times[code] / view.total_ns, *(ranges.get(code) or (None, None)))
        for code in PARTS
        if times.get(code)
    ]
    return pl.DataFrame(rows, schema=_PARTS_SCHEMA, orient="row")


def _parts(view: DeviceView) -> dict[str, Ints]:
    """The time of each part in each used step; in every step the parts add up to its length."""
    return _on_cpu(view) if view.device is None else {**dict(_busy(view)), **_idle(view)}


def _busy(view: DeviceView) -> Iterator[tuple[str, Ints]]:
    """What runs on the device; of what overlaps the first counts."""
    covered, so_far = EMPTY, np.zeros(view.steps.height, np.int64)
    for part, kind in _DEVICE_PARTS.items():
        covered = covered | view.device_spans(kind)
        now = covered.within(view.starts, view.ends)
        yield part, now - so_far
        so_far = now


def _idle(view: DeviceView) -> dict[str, Ints]:
    """What the device waits for; where too much of it is unknown, nothing of it is known but the host's ranges."""
    idle = view.once(gaps)
    causes = {cause: _by_step(view, idle, idle[f"{cause}_ns"].to_numpy()) for cause in CAUSES}
    if view.total_ns and unknown_idle(view):
        causes["unknown"] = np.sum([causes["unknown"], *(causes.pop(cause) for cause in DOUBTFUL)], axis=0)
    startup = _first(causes["unknown"], round(view.once(start_up)[0] * view.total_ns))
    causes |= {"start_up": startup, "unknown": causes["unknown"] - startup}
    if "host_bound" in causes:
        late = idle["host_bound_ns"].to_numpy()
        short = _by_step(view, idle, np.where(late <= LAUNCH_GAP_NS, late, 0))
        causes |= {"launch_gap": short, "host_busy": causes.pop("host_bound") - short}
    return causes


def _idle_spans(view: DeviceView) -> dict[str, Union]:
    """When the device waits for its host, by the part that this is."""
    idle = view.once(gaps)
    late = idle["host_bound_ns"] > 0
    short = idle["host_bound_ns"] <= LAUNCH_GAP_NS
    parts = {"launch_gap": idle.filter(late & short), "host_busy": idle.filter(late & ~short)}
    spans_ = {part: Union.of(rows["late_ns"], rows["due_ns"]) for part, rows in parts.items()}
    others = {cause: idle.filter(pl.col(f"{cause}_ns") > 0) for cause in (*HOST_RANGES, "sync")}
    return spans_ | {cause: Union.of(rows["start_ns"], rows["end_ns"]) for cause, rows in others.items()}


def _by_step(view: DeviceView, idle: pl.DataFrame, time: Ints) -> Ints:
    """The time of the gaps in each step."""
    total = np.zeros(view.steps.height, np.int64)
    np.add.at(total, idle["window"].to_numpy(), time)
    return total


def _first(time: Ints, most: int) -> Ints:
    """So much of the time, from the first step on."""
    before = np.cumsum(time) - time
    first: Ints = np.clip(most - before, 0, time)
    return first


def _on_cpu(view: DeviceView) -> dict[str, Ints]:
    """The time of each part without a device, where enough was recorded."""
    times = {part: when.within(view.starts, view.ends) for part, when in view.once(_on_cpu_spans).items()}
    dispatch = spans(view.host_like(JIT_CALL)).within(view.starts, view.ends)  # of programs too small to last
    known = sum(int(time.sum()) for part, time in times.items() if part != "between") + int(dispatch.sum())
    if not view.has_marks and known < LEAST_RECORDED * view.total_ns:
        return {}  # another thread or process may work all the while
    return _without_delays(view, times)


def _on_cpu_spans(view: DeviceView) -> dict[str, Union]:
    """Without a device: what is no wait is the framework's ops, Python that they call, or what lies between them.

    Communication beside which another thread computes is no wait.
    """
    owned = {part: when for part, when in owned_spans(view) if part in _WAITS}
    owned["collective"] = owned["collective"] & host_exposed(view, view.once(host_collectives))
    owned["pipeline_build"] = owned["compile"] & view.once(builds)
    owned["compile"] = owned["compile"] - owned["pipeline_build"]
    rest = ("between", Union.of(view.starts, view.ends))
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
