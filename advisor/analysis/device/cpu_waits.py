"""How long the host's threads wait for a CPU: as `advisor record` noted it, else as ops without work of their own tell.

An op such as a view only notes another shape of the same memory: under a microsecond or a few, each time. If one takes
milliseconds now and then, its thread did not run meanwhile. These ops are a sample of the threads' time.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from advisor.analysis.device.communication import host_collectives, host_exposed
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import FILE_READ, OWN_LOADING

_WORKLESS: Final = (
    r"^(?:aten::(?:view|as_strided|alias|detach|resolve_conj|resolve_neg|_unsafe_view|_reshape_alias)|detach)$"
)
_LONG_NS: Final = 100_000  # 0 of 100,000 such ops in 31 public recordings took longer, but one of 0.2 ms
_LONG: Final = 20  # times the median
_FEWEST: Final = 5  # long ones: two standard errors of fewer are as many
_LEAST_RUN_NS: Final = 200_000  # a scheduler lets a thread run for longer: ops that are long more often work
_STANDARD_ERRORS: Final = 2


class Workless(NamedTuple):
    """Workless ops of the used steps: how many are long, these in all and the longest, and the others in all, in ns."""

    waits: int = 0
    waits_ns: int = 0
    longest_ns: int = 0
    run_ns: int = 0


NO_SAMPLE: Final = Workless()


class CpuWaits(NamedTuple):
    """What the workless ops tell."""

    waits: int  # how many waited
    longest_ns: int  # of them
    least_share: float  # part of their time that threads that could run waited for a CPU, at least


def workless(view: DeviceView) -> Workless:
    """The view's workless ops; none where the recorder noted the waits for a CPU."""
    if view.process.get("run_delay_ms") is not None:
        return NO_SAMPLE
    length = view.used_like(_WORKLESS, "op")["dur_ns"].to_numpy()
    if not len(length):
        return NO_SAMPLE
    long = length[length > max(_LONG_NS, _LONG * float(np.median(length)))]
    return Workless(len(long), int(long.sum()), int(long.max(initial=0)), int(length.sum() - long.sum()))


def pooled(samples: Sequence[Workless]) -> CpuWaits | None:
    """The waits for a CPU of threads that share some; None where too few ops tell.

    The share is waits / (waits + run time) of these ops, with as few waits as two standard errors of a Poisson count
    allow, each as long as the mean of all but the longest.
    """
    waits, waits_ns, run_ns = (sum(getattr(of, name) for of in samples) for name in ("waits", "waits_ns", "run_ns"))
    if waits < _FEWEST or run_ns < _LEAST_RUN_NS * waits:
        return None
    longest = max(of.longest_ns for of in samples)
    least = (waits_ns - longest) / (waits - 1) * (waits - _STANDARD_ERRORS * math.sqrt(waits))
    return CpuWaits(waits, longest, least / (least + run_ns))


def cpu_waits(view: DeviceView) -> CpuWaits | None:
    """Waits for a CPU in the used steps; None where the recorder noted them, or too few ops tell."""
    return pooled([view.once(workless)])


def delay_share(view: DeviceView) -> float:
    """The part of a recorded step that waits for a CPU: because of other programs if noted, else as ops tell."""
    sample = view.once(cpu_waits)
    return noted_share(view, "run_delay_ms") if sample is None else sample.least_share


def delayed_part(view: DeviceView, *delays: str) -> float:
    """The part of the host's working time that waits for a CPU; `delays` are those noted that count.

    The host works where it does not wait for another rank or for processes that load: all of its work waits alike. Ops
    beside a collective are work: those of a busy machine that waited for a CPU did so there, hardly in the collective.
    """
    sample = view.once(cpu_waits)
    if sample is not None:
        return sample.least_share
    loads = view.host_spans("input") - spans(view.host_like(f"{OWN_LOADING}|{FILE_READ}", "input"))
    waits = loads | host_exposed(view, view.once(host_collectives))
    works_ns = view.total_ns - view.used_ns(waits)
    noted_ns = 1e6 * view.steps.height * sum(noted_ms(view, delay) for delay in delays)
    return min(1.0, noted_ns / works_ns) if works_ns else 0.0


def noted_share(view: DeviceView, delay: str) -> float:
    """The part of a recorded step that waits for a CPU, as `advisor record` notes it; 0 where it does not."""
    mean_ms = view.per_step_ms(view.total_ns)
    return min(1.0, noted_ms(view, delay) / mean_ms) if mean_ms else 0.0


def noted_ms(view: DeviceView, delay: str) -> float:
    """What a used step waits for a CPU, as `advisor record` notes it of all recorded steps; 0 where it does not.

    "run_delay_ms" because of other programs: at most by what the used steps are longer than the recorder's median step
    without these waits, because steps that waited longest may be left out. "own_delay_ms" because of the job itself.
    """
    noted, without_ms = view.process.get(delay) or 0.0, view.process.get("profiled_ms")
    if delay != "run_delay_ms" or without_ms is None:
        return float(noted)
    return float(min(noted, max(0.0, view.per_step_ms(view.total_ns) - without_ms)))
