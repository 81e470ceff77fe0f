"""What the host works on: Python and loops that launch, and without a device ops and the rest."""

from advisor.analysis.device.cpu_waits import delayed_part
from advisor.analysis.device.host_work import callbacks, optimizer_work, python_work, running
from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.recording_cost import unprofiled_ms
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

measure = of_devices(__name__)
of_waits = of_devices(__name__, needs=("device_ops",), unknown=unknown_waits)


def _ops_and_rest(view: DeviceView) -> tuple[float, float]:
    """The parts of the step that a saving on a CPU comes out of; 0 with a device."""
    if view.device is not None:
        return 0.0, 0.0
    apart = view.host_spans("input", "compile", "collective") | spans(view.once(callbacks))
    busy = 1 - (view.share(apart) or 0.0)
    is_timed = not isinstance(unprofiled_ms(view), Missing)  # then without its waits, and work stands for work
    works = busy * (1 - (0.0 if is_timed else delayed_part(view, "run_delay_ms")))
    ops = works * (view.share(view.once(running) - apart) or 0.0) / max(works, busy)
    return ops, works - ops


of_waits(
    "host_loops_share",
    lambda view: view.share((view.once(python_work) | view.once(optimizer_work)) & view.once(launch_gaps)),
).says(
    "Part of the step in which Python, or a loop over parameters, sets the pace.",
    "device idle in host-bound gaps of at most {launch_gap} while the launching threads run no framework op and make "
    "no call for {slow_call} or more, or while parameters are updated / step time",
)
measure("host_ops_share", lambda view: view.once(_ops_and_rest)[0]).says(
    "Part of the step in which a worker without a device runs framework ops.",
    "time of the ops outside of input, compilation, collectives and callbacks / step time without a device, less the "
    "part of the host's working time that waits for a CPU (run_delay_share), unless the step was timed without the "
    "profiler and these waits; loading in the main process is work; 0 with a device",
)
measure("host_work_share", lambda view: view.once(_ops_and_rest)[1]).says(
    "Part of the step in which a worker without a device works outside of framework ops: its Python.",
    "1 - input_share - compile_share - collective_share - callback_share without a device, less the same part of it, "
    "- host_ops_share; 0 with one",
)
