"""What launching many kernels at once saves: a compiled step, and a captured one."""

from typing import Final

from advisor.analysis.device.idle import gaps, launch_gaps
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.whatif import ELSE, Interval, cheaper_launches, saved

_COMPILED: Final = 0.3  # host time per launch that a compiled step keeps
_CAPTURED: Final = 0.1  # and a captured one

measure = of_devices(__name__, needs=("device_ops", "device_ops.launch"))


def _cheaper(view: DeviceView) -> Interval:
    """A compiled step at least, and a captured one at most."""
    waiting_ns = view.once(launch_gaps).total
    most_ns = waiting_ns + int(view.once(gaps)["queued_ns"].sum())
    change = cheaper_launches((_COMPILED, _CAPTURED), waiting_ns)
    return saved(view, change.at_most(most_ns, in_proportion=True))  # a faster host hastens more than these gaps


measure("launch_least_gain_ms", lambda view: view.once(_cheaper).least_ms).says(
    "Step time saved at least, if the step were compiled: three tenths of the host's time per launch.",
    f"replay with a host twice as fast as the profiler let it be, launches 0.3 as long again; cut as much as "
    f"capture_gain_ms where that exceeds the gaps{ELSE}0",
    "Llama 1B decoding on a B200: 48.8 to 12.6 ms compiled, 8.1 ms with CUDA graphs (stas00/ml-engineering)",
)
measure("capture_gain_ms", lambda view: view.once(_cheaper).most_ms).says(
    "Step time saved if the step were captured in a CUDA graph.",
    "replay with launches 0.1 as long and no pause between queued kernels, at most the host-bound gaps of up to "
    f"{{launch_gap}} and those pauses{ELSE}these gaps themselves",
    "as launch_least_gain_ms; a graph's kernels follow each other within 1 µs",
)
