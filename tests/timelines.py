"""Timelines of calls and device ops small enough to replay by hand; times in microseconds."""

from __future__ import annotations

from advisor.analysis.device.selection import select_steps
from advisor.model.profile import Profile, table

US = 1000


def view(calls, ops, step=(0, 1000), host=None, threads=1):
    """One step: calls (kind, name, start, dur), ops (call, stream, kind, start, dur), `host` the host's range."""
    calls_table = {
        "id": range(len(calls)),
        "worker": 0,
        "thread": threads,
        "kind": [kind for kind, *_ in calls],
        "name": [name for _, name, *_ in calls],
        "start_ns": [start * US for *_, start, _ in calls],
        "dur_ns": [dur * US for *_, dur in calls],
    }
    device = {
        "id": range(len(ops)),
        "worker": 0,
        "device": 0,
        "launch": [call for call, *_ in ops],
        "stream": [stream for _, stream, *_ in ops],
        "kind": [kind for _, _, kind, *_ in ops],
        "name": "k",
        "start_ns": [start * US for *_, start, _ in ops],
        "dur_ns": [dur * US for *_, dur in ops],
    }
    host_begin, host_length = host or step
    steps = {
        "worker": [0],
        "device": [0],
        "step": [1],
        "name": ["s"],
        "start_ns": [step[0] * US],
        "dur_ns": [step[1] * US],
        "host_start_ns": [host_begin * US],
        "host_dur_ns": [host_length * US],
    }
    tables = {"workers": {"worker": [0]}, "steps": steps, "device_ops": device, "host_ops": calls_table}
    trace = Profile.of({name: table(name, columns) for name, columns in tables.items()}, format="test")
    return select_steps(trace).views[0]


#          0    10        20                       110
# host     launch(5) at 0, launch(5) at 5
# device        [10 .... 60][60 ........ 110]
BACK_TO_BACK = (
    [("runtime", "cudaLaunchKernel", 0, 5), ("runtime", "cudaLaunchKernel", 5, 5)],
    [(0, 7, "kernel", 10, 50), (1, 7, "kernel", 60, 50)],
)

# host     launch at 0 ... 300 of host work ... launch at 305, tail to 400
# device   [10 .. 60]                              [315 .. 365]
HOST_BOUND = (
    [("runtime", "cudaLaunchKernel", 0, 5), ("runtime", "cudaLaunchKernel", 305, 5)],
    [(0, 7, "kernel", 10, 50), (1, 7, "kernel", 315, 50)],
)

# host     launch at 0, sync 5..62 (the kernel ends at 60), launch at 62
# device   [10 .... 60]            [72 ... 122]
SYNC = (
    [
        ("runtime", "cudaLaunchKernel", 0, 5),
        ("sync", "cudaStreamSynchronize", 5, 57),
        ("runtime", "cudaLaunchKernel", 62, 5),
    ],
    [(0, 7, "kernel", 10, 50), (2, 7, "kernel", 72, 50)],
)
