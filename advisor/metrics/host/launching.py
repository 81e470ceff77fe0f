"""What launching many kernels at once saves: a compiled step, and a captured one."""

from __future__ import annotations

from typing import Final

from advisor.analysis.device.idle import gaps, launch_gaps
from advisor.analysis.device.replay import ELSE, UNPROFILED, trusted_replay
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.vocabulary.limits import LAUNCH_GAP_NS

_COMPILED: Final = 0.3  # host time per launch that a compiled step keeps
_CAPTURED: Final = 0.1  # and a captured one

measure = of_devices(__name__, needs=("device_ops", "device_ops.launch"))


def _gains_ms(view: DeviceView) -> tuple[float, float]:
    """Of a compiled step, and of a captured one."""
    trusted, waiting_ns = view.once(trusted_replay), view.once(launch_gaps).total
    if trusted is None:
        return 0.0, view.per_step_ms(waiting_ns)
    unprofiled = trusted.with_launches(UNPROFILED, LAUNCH_GAP_NS)
    captured = trusted.with_launches(_CAPTURED, LAUNCH_GAP_NS).without_pauses()
    most = view.per_step_ms(waiting_ns + int(view.once(gaps)["queued_ns"].sum()))
    least = unprofiled.saved_ms(unprofiled.with_launches(_COMPILED, LAUNCH_GAP_NS))
    gain = trusted.saved_ms(captured)
    part = min(1.0, most / gain) if gain else 1.0  # a faster host hastens more than these gaps: that is not counted
    return part * least, part * gain


measure(
    "launch_least_gain_ms",
    "Step time saved at least, if the step were compiled: three tenths of the host's time per launch.",
    f"replay with a host twice as fast as the profiler let it be, launches 0.3 as long again; cut as much as "
    f"capture_gain_ms where that exceeds the gaps{ELSE}0",
    lambda view: view.once(_gains_ms)[0],
    source="Llama 1B decoding on a B200: 48.8 to 12.6 ms compiled, 8.1 ms with CUDA graphs (stas00/ml-engineering)",
)
measure(
    "capture_gain_ms",
    "Step time saved if the step were captured in a CUDA graph.",
    "replay with launches 0.1 as long and no pause between queued kernels, at most the host-bound gaps of up to "
    f"{{launch_gap}} and those pauses{ELSE}these gaps themselves",
    lambda view: view.once(_gains_ms)[1],
    source="as launch_least_gain_ms; a graph's kernels follow each other within 1 µs",
)
