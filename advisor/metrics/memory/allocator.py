"""The driver's allocator: calls that take or give back device memory, and how much of it the framework holds."""

from typing import Final

import polars as pl

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.profile import matches
from advisor.text import ms
from advisor.whatif import Interval, saved, without

_MOST_NAMES: Final = 3
_NAME: Final = pl.col("name").cast(pl.String)
_FREES: Final = r"(?i)free|unmap"
_HOST_MEMORY: Final = r"(?i)host"
_REMAINDER: Final = 0.3  # of the calls' cost: memory that grows with the shapes is still taken (own choice)


def _calls(view: DeviceView) -> pl.DataFrame:
    """Calls of the used steps that take or free device memory; pinned host memory is another matter."""
    return view.used_host.filter(pl.col("kind") == "allocator").collect().filter(~matches(_HOST_MEMORY))


def _frees(view: DeviceView) -> pl.DataFrame:
    return view.once(_calls).filter(_NAME.str.contains(_FREES))


def _in_ops_part(view: DeviceView) -> float:
    frees = view.once(_frees)
    in_ops = view.with_host(frees, "parent", around="kind").filter(pl.col("around") == "op")
    return in_ops.height / max(1, frees.height)


def _longest_calls(view: DeviceView) -> str:
    by_name = view.once(_calls).group_by(_NAME).agg(pl.sum("dur_ns")).sort("dur_ns", "name", descending=[True, False])
    return ", ".join(f"{name} ({ms(view.per_step_ms(ns))})" for name, ns in by_name.head(_MOST_NAMES).rows())


def _gains(view: DeviceView) -> Interval:
    calls = view.once(_calls)
    idle_ns = int(view.once(gaps)["allocator_ns"].sum()) if calls.height else 0
    return saved(view, without(calls=calls["id"], bound_ns=(idle_ns, idle_ns)).surely(1 - _REMAINDER))


measure = of_devices(__name__, needs=("device_ops", "device_ops.launch"))

measure(
    "allocator_calls_per_step",
    lambda view: view.once(_calls).height / view.steps.height,
    where=places(_calls, op="parent"),
).says(
    "Calls per step that take device memory from the driver or give it back.",
    "cudaMalloc, cudaFree, hipMalloc, hipFree and the like, not those for host memory / steps",
)
measure("allocator_frees_per_step", lambda view: view.once(_frees).height / view.steps.height).says(
    "Calls per step that give device memory back; each waits until the device has nothing left to do.",
    "calls with free or unmap in their name / steps",
)
measure("allocator_frees_in_ops_part", _in_ops_part).says(
    "How many of the calls that give memory back are made inside ordinary framework ops.",
    "those of them inside an op of the framework / all of them; 0 where there are none",
    "a caching allocator frees nothing inside an op unless memory is full; without caching ops free their own",
)
measure("allocator_calls", _longest_calls, unit="text").says(
    "Which calls take device memory from the driver or give it back, the most time first.",
    "their time per step, summed by name",
)
measure.saving("allocator", _gains).says("doing without the driver's calls for device memory")
