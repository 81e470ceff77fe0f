"""What launching many kernels at once saves: a compiled step, and a captured one."""

from __future__ import annotations

from typing import Final

from advisor.analysis.device.idle import gaps, launch_gaps
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.whatif import ELSE, cheaper_launches, saved

_COMPILED: Final = 0.3  # host time per launch that a compiled step keeps
_CAPTURED: Final = 0.1  # and a captured one


LAUNCH_LEAST_GAIN_MS = Metric(
    "launch_least_gain_ms",
    "Step time saved at least, if the step were compiled: three tenths of the host's time per launch.",
    f"replay with a host twice as fast as the profiler let it be, launches 0.3 as long again; cut as much as "
    f"capture_gain_ms where that exceeds the gaps{ELSE}0",
    "Llama 1B decoding on a B200: 48.8 to 12.6 ms compiled, 8.1 ms with CUDA graphs (stas00/ml-engineering)",
)
CAPTURE_GAIN_MS = Metric(
    "capture_gain_ms",
    "Step time saved if the step were captured in a CUDA graph.",
    "replay with those times 0.1 as long and no pause between queued kernels, at most the host-bound gaps of up to "
    f"{{launch_gap}} and those pauses{ELSE}these gaps themselves",
    "the same; a graph's kernels follow each other within 1 µs",
)


@measures(LAUNCH_LEAST_GAIN_MS, CAPTURE_GAIN_MS, needs=("device_ops", "device_ops.launch"))
def capturing(view: DeviceView) -> Values:
    """Gains of launching many kernels at once."""
    waiting_ns = view.once(launch_gaps).total
    most_ns = waiting_ns + int(view.once(gaps)["queued_ns"].sum())
    change = cheaper_launches((_COMPILED, _CAPTURED), waiting_ns)
    least, most = saved(view, change.at_most(most_ns, in_proportion=True))  # a faster host hastens more than these gaps
    return {LAUNCH_LEAST_GAIN_MS: least, CAPTURE_GAIN_MS: most}
