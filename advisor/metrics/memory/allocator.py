"""The driver's allocator: calls that take or give back device memory, and how much of it the framework holds."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.text import ms
from advisor.whatif import saved, without

_MOST_NAMES: Final = 3
_NEEDS: Final = ("device_ops", "device_ops.launch")
_NAME: Final = pl.col("name").cast(pl.String)
_FREES: Final = r"(?i)free|unmap"
_HOST_MEMORY: Final = r"(?i)host"
_REMAINDER: Final = 0.3  # of the calls' cost that may stay


def _calls(view: DeviceView) -> pl.DataFrame:
    """Calls of the used steps that take or free device memory; pinned host memory is another matter."""
    return view.used_host.filter(pl.col("kind") == "allocator").collect().filter(~matches(_HOST_MEMORY))


ALLOCATOR_CALLS_PER_STEP = Metric(
    "allocator_calls_per_step",
    "Calls per step that take device memory from the driver or give it back.",
    "cudaMalloc, cudaFree, hipMalloc, hipFree and the like, not those for host memory / steps",
    needs=_NEEDS,
    where=lambda view: places(view, _calls(view), op="parent"),
)
ALLOCATOR_FREES_PER_STEP = Metric(
    "allocator_frees_per_step",
    "Calls per step that give device memory back; each waits until the device has nothing left to do.",
    "calls with free or unmap in their name / steps",
    needs=_NEEDS,
)
ALLOCATOR_FREES_IN_OPS_PART = Metric(
    "allocator_frees_in_ops_part",
    "How many of the calls that give memory back are made inside ordinary framework ops.",
    "those of them inside an op of the framework / all of them; 0 where there are none",
    "a caching allocator frees nothing inside an op unless memory is full; without caching every op frees its own",
    _NEEDS,
)
ALLOCATOR_CALLS = Metric(
    "allocator_calls",
    "Which calls take device memory from the driver or give it back, the most time first.",
    "their time per step, summed by name",
    needs=_NEEDS,
    unit="text",
)
ALLOCATOR_LEAST_GAIN_MS = Metric(
    "allocator_least_gain_ms",
    "Step time saved if seven tenths of the driver's calls for device memory went away.",
    "0.7 x allocator_gain_ms",
    "own choice: memory that grows with the batch's shape is still taken at times",
    _NEEDS,
)
ALLOCATOR_GAIN_MS = Metric(
    "allocator_gain_ms",
    "Step time saved if the driver's calls for device memory went away.",
    "replay without them and their waiting; where the replay of the unchanged steps is off by more than 5 %: "
    "allocator_idle_share x step_mean_ms",
    "advisor.whatif.replay",
    _NEEDS,
)
RESERVED_MEMORY_SHARE = Metric(
    "reserved_memory_share",
    "Most device memory that the caching allocator held, as a part of the device's.",
    "reserved_memory_bytes / device memory",
    needs=("device_ops", "devices", "allocations", "allocations.allocated_bytes"),
)


@measures(
    ALLOCATOR_CALLS_PER_STEP,
    ALLOCATOR_FREES_PER_STEP,
    ALLOCATOR_FREES_IN_OPS_PART,
    ALLOCATOR_CALLS,
    ALLOCATOR_LEAST_GAIN_MS,
    ALLOCATOR_GAIN_MS,
    RESERVED_MEMORY_SHARE,
)
def churn(view: DeviceView) -> Values:
    """What taking and freeing device memory costs; zero where no step does."""
    calls = _calls(view)
    frees = calls.filter(_NAME.str.contains(_FREES))
    in_ops = view.with_host(frees, "parent", around="kind").filter(pl.col("around") == "op")
    idle_ns = int(view.once(gaps)["allocator_ns"].sum()) if calls.height else 0
    least, most = saved(view, without(calls=calls["id"], bound_ns=(idle_ns, idle_ns)).surely(1 - _REMAINDER))
    return {
        ALLOCATOR_CALLS_PER_STEP: calls.height / view.steps.height,
        ALLOCATOR_FREES_PER_STEP: frees.height / view.steps.height,
        ALLOCATOR_FREES_IN_OPS_PART: in_ops.height / max(1, frees.height),
        ALLOCATOR_CALLS: _longest_calls(view, calls),
        ALLOCATOR_LEAST_GAIN_MS: least,
        ALLOCATOR_GAIN_MS: most,
        RESERVED_MEMORY_SHARE: _reserved_share(view),
    }


def _longest_calls(view: DeviceView, calls: pl.DataFrame) -> str:
    by_name = calls.group_by(_NAME).agg(pl.sum("dur_ns")).sort("dur_ns", "name", descending=[True, False])
    return ", ".join(f"{name} ({ms(view.per_step_ms(ns))})" for name, ns in by_name.head(_MOST_NAMES).rows())


def _reserved_share(view: DeviceView) -> Value:
    capacity, totals = view.facts.get("memory_bytes"), view.reserved["reserved_bytes"].drop_nulls()
    if not capacity:
        return Missing("memory_size_unknown")
    return int(totals.max()) / capacity if totals.len() else Missing("no_reserved_totals")  # type: ignore[arg-type]  # integers
