"""When each category of work owns the step, in the order that the users of each framework know from its own tools."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import executed
from advisor.analysis.device.view import DeviceView, bounds, spans
from advisor.model.arrays import Ints
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.kinds import CATEGORIES, DRIVER_CALLS, XLA_FRAMEWORKS


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
OF_TENSORFLOW: Final = (
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


def sweep(view: DeviceView, steps: pl.DataFrame) -> Iterator[tuple[str, Ints]]:
    """For each category, the time in every window that it covers and no earlier layer does."""
    starts, ends = bounds(steps)
    owned = {category: np.zeros(steps.height, np.int64) for category in CATEGORIES}
    before = np.zeros(steps.height, np.int64)
    for category, covered in _covered_in(view, steps):
        so_far = covered.within(starts, ends)
        owned[category] += so_far - before
        before = so_far
    owned["other"] = ends - starts - before
    yield from owned.items()


def owned_spans(view: DeviceView) -> Iterator[tuple[str, Intervals]]:
    """For each category but the last, when it owns the time of the used steps."""
    before = EMPTY
    for category, covered in _covered_in(view, view.steps):
        yield category, covered - before
        before = covered


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
