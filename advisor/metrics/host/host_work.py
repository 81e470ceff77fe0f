"""What the host works on: Python and loops that launch, and without a device ops and the rest."""

from __future__ import annotations

from advisor.analysis.device.cpu_waits import delayed_part
from advisor.analysis.device.host_work import callbacks, optimizer_work, python_work, running
from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.recording_cost import unprofiled_ms
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing

HOST_LOOPS_SHARE = Metric(
    "host_loops_share",
    "Part of the step in which Python, or a loop over parameters, sets the pace.",
    "device idle in host-bound gaps of at most {launch_gap} while the launching threads run no framework op and make "
    "no call for {slow_call} or more, or while parameters are updated / step time",
)


@measures(HOST_LOOPS_SHARE, needs=("device_ops",))
def host_loops(view: DeviceView) -> Values:
    """The waits for launches that have a cause other than the launches."""
    if why := unknown_waits(view):
        return {HOST_LOOPS_SHARE: why}
    loops = view.once(python_work) | view.once(optimizer_work)
    return {HOST_LOOPS_SHARE: view.share(loops & view.once(launch_gaps))}


HOST_OPS_SHARE = Metric(
    "host_ops_share",
    "Part of the step in which a worker without a device runs framework ops.",
    "time of the ops outside of input, compilation, collectives and callbacks / step time without a device, less the "
    "part of the host's working time that waits for a CPU (run_delay_share), unless the step was timed without the "
    "profiler and these waits; loading in the main process is work; 0 "
    "with a device",
)
HOST_WORK_SHARE = Metric(
    "host_work_share",
    "Part of the step in which a worker without a device works outside of framework ops: its Python.",
    "1 - input_share - compile_share - collective_share - callback_share without a device, less the same part of it, "
    "- host_ops_share; 0 with one",
)


@measures(HOST_OPS_SHARE, HOST_WORK_SHARE)
def host_work(view: DeviceView) -> Values:
    """What a saving on a CPU comes out of."""
    if view.device is not None:
        return dict.fromkeys((HOST_OPS_SHARE, HOST_WORK_SHARE), 0.0)
    apart = view.host_spans("input", "compile", "collective") | spans(view.once(callbacks))
    busy = 1 - (view.share(apart) or 0.0)
    is_timed = not isinstance(unprofiled_ms(view), Missing)  # then without its waits, and work stands for work
    works = busy * (1 - (0.0 if is_timed else delayed_part(view, "run_delay_ms")))
    ops = works * (view.share(view.once(running) - apart) or 0.0) / max(works, busy)
    return {HOST_OPS_SHARE: ops, HOST_WORK_SHARE: works - ops}
