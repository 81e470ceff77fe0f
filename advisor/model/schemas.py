"""The columns of a profile's tables, with their types.

Times are integer nanoseconds on one clock per profile.
"""

from typing import Final

import polars as pl
from polars.datatypes import DataType, DataTypeClass

DEVICE_OP_KINDS: Final = pl.Enum(["kernel", "collective", "memcpy", "memset"])
HOST_OP_KINDS: Final = pl.Enum(
    [
        *("op", "runtime", "sync", "allocator", "input", "collective", "annotation", "module", "python"),
        *("compile", "start_up", "gc", "step", "overhead"),
        "pipeline",  # a stage of the input pipeline at work; `input` is the request that waits for it
    ]
)
MEMORY_KINDS: Final = pl.Enum(["pageable", "pinned", "device", "managed"])
TEXT: Final = pl.Categorical()

Schema = dict[str, DataType | DataTypeClass]


_LINE: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "line": pl.String,  # of the program's own code: `train.py:41`
    "function": pl.String,  # that the line is in
    "call": pl.String,  # what the line calls, `model.save_weights`, or its operator, `a @ b`
    "needed": pl.List(pl.Int64),  # lines of the function that need what this one computes
}

STACKS: Final = pl.Struct(
    {
        **_LINE,  # the innermost
        "callers": pl.List(pl.Struct(_LINE)),  # the program's lines around it, the outermost first
        "above": pl.String,  # the nearest function of a library around the user's: `torch/nn/modules/module.py: ...`
        "above_call": pl.String,  # what that function calls
        "below": pl.List(pl.String),  # functions of libraries that the line is in, the outermost first
        "ns": pl.Int64,  # the time that its samples stand for
        "long_ns": pl.Int64,  # of that in steps far longer than the median
        "samples": pl.Int64,
        "of_loader": pl.Boolean,  # of a worker process of the data loader
    }
)
"""A stack of Python that was sampled, once for all its samples."""

THREADS: Final = pl.Struct({"line": pl.String, "function": pl.String, "call": pl.String, "share": pl.Float64})
"""Another thread of Python: where it is for the most of the sampled time, and which part of that time it runs."""

BATCHES: Final = pl.Struct({"rows": pl.Int64, "length": pl.Int64, "longest": pl.Int64, "padding": pl.Float64})
"""A batch of sequences: padded to `length`, the longest without its padding, and which part of the batch is padding."""

LOADING: Final = pl.Struct(
    {
        "of_loader": pl.Boolean,  # a worker process of the data loader, else the process of the steps
        **dict.fromkeys(("steps", "span_ns"), pl.Int64),  # that were sampled
        **dict.fromkeys(("batches", "samples", "fetch_ns"), pl.Int64),  # that it loaded, and how long that took
        "run_ns": pl.Int64,  # of that its thread ran
        **dict.fromkeys(("awake_ns", "wait_ns"), pl.Int64),  # that thread all the time: ran, and waited for a core
        **dict.fromkeys(("requests", "request_ns", "request_run_ns"), pl.Int64),  # of the loop, for a batch
        "cpu_ns": pl.Int64,  # what all threads of the process ran
        **dict.fromkeys(
            ("send_ns", "pin_ns"), pl.Int64
        ),  # what threads ran that pickle batches, or receive and pin them
        "threads_ns": pl.Int64,  # how long other threads of Python ran or waited for a core
        **dict.fromkeys(("files", "faults", "read_bytes"), pl.Int64),  # opened to be read, major, of files and pipes
        "slow": pl.List(pl.Struct({"index": pl.Int64, "ns": pl.Int64})),  # the samples that took longest
    }
)
"""What loading took of a process in the sampled steps."""

SCHEMAS: Final[dict[str, Schema]] = {
    "workers": {
        "worker": pl.Int32,
        "name": pl.String,
        "host": pl.String,
        "pid": pl.Int64,
        "rank": pl.Int32,
        "world_size": pl.Int32,
        "backend": pl.String,
        "framework": pl.String,
        "producer": pl.String,
        "error": pl.String,  # with which the program ended, in its own words
        "driver_wait_ns": pl.Int64,  # how long it has waited in the driver for one call when the recording ends
        "software": pl.String,  # versions of what the job ran on
        "settings": pl.String,  # `NCCL_ALGO=Ring OMP_NUM_THREADS=1`: variables that `advisor record` noted
        "options": pl.String,  # what the profiler was asked to record
        "file": pl.String,
        "zero_ns": pl.Int64,  # where the profiler's own tools count from; null: from the first instant recorded
        # Where the recorder watches a process from its start: when the first kernel begins and the last device op ends.
        # What lies before is start-up. Null where the recorder was started amid the work.
        "work_start_ns": pl.Int64,
        "work_end_ns": pl.Int64,
        # When the call that starts the recorder returns and the one that stops it begins; null where neither is there.
        "recorded_start_ns": pl.Int64,
        "recorded_end_ns": pl.Int64,
        # The median step before the recording, after it, and in it, by the recorder's own clock; null where not timed.
        "before_ms": pl.Float64,
        "after_ms": pl.Float64,
        "profiled_ms": pl.Float64,
        "run_delay_ms": pl.Float64,  # what a recorded step waited for a CPU because of other programs; null: not noted
        "own_delay_ms": pl.Float64,  # the same because of the job itself
        "cpu_ms": pl.Float64,  # what all threads of the job and its child processes ran in a recorded step
        # The steps that the medians before and after are of, and what one of them waited because of other programs.
        "before_steps_ms": pl.List(pl.Float64),
        "after_steps_ms": pl.List(pl.Float64),
        "unprofiled_delay_ms": pl.Float64,
        "long_ms": pl.Float64,  # what steps far longer than the median add to the mean one without the profiler
        "long_part": pl.Float64,  # of these steps
        "stacks": pl.List(STACKS),  # sampled in these steps; null: none were
        "sleep_share": pl.Float64,  # of the sampled time without waits for a CPU: the main thread did not run
        "threads": pl.List(THREADS),  # beside the main thread meanwhile; null: not noted
        "pace_ms": pl.List(pl.Float64),  # medians of equal pieces of a long run of steps without the profiler
        "pace_steps": pl.List(pl.Int64),  # the numbers of its first step and its last
        "batches": pl.List(BATCHES),  # of the first that a loader handed over; null: none was looked at
        # What the recorder notes of machine and program; null where it does not.
        "cpus": pl.Int32,
        "loading": pl.List(LOADING),  # null: no batch was counted
        "loader_workers": pl.Int32,  # of the DataLoader that gave the last batch
    },
    "devices": {
        "worker": pl.Int32,
        "device": pl.Int32,
        "name": pl.String,
        "memory_bytes": pl.Int64,
        "sm_count": pl.Int32,
        "capability": pl.Float64,
        "max_threads_per_sm": pl.Int32,
        "peak_tflops": pl.Float64,  # as the profile states it: of the type that `device_ops.xla_flops` counts in
    },
    # One row per step and device; device is null where the step is the host's alone. The window [start, start + dur) is
    # the device's period, from the step's start there to the next step's; the host's period is kept beside it.
    "steps": {
        "worker": pl.Int32,
        "device": pl.Int32,
        "step": pl.Int32,
        "name": pl.String,
        "start_ns": pl.Int64,
        "dur_ns": pl.Int64,
        "host_start_ns": pl.Int64,
        "host_dur_ns": pl.Int64,
        "mark_ns": pl.Int64,  # length of the range that marks the step; null where none does
        "pause_ns": pl.Int64,  # between this step and the next, of neither: evaluation, a checkpoint
        "incomplete": pl.String,  # code of why the recording does not hold all of the step; null when it does
    },
    "device_ops": {
        "id": pl.Int64,
        "worker": pl.Int32,
        "device": pl.Int32,
        "stream": pl.Int64,
        "kind": DEVICE_OP_KINDS,
        "name": TEXT,
        "start_ns": pl.Int64,
        "dur_ns": pl.Int64,
        "step": pl.Int32,
        "launch": pl.Int64,  # host_ops.id of the runtime call
        "op": pl.Int64,  # host_ops.id of the innermost framework op around that call
        "bytes": pl.Int64,
        "copy_kind": TEXT,  # HtoD, DtoH, DtoD, PtoP, HtoH
        "source_memory": MEMORY_KINDS,
        "target_memory": MEMORY_KINDS,
        "grid": pl.Int64,  # blocks in all
        "block": pl.Int32,  # threads per block
        "registers": pl.Int32,
        "shared_bytes": pl.Int32,
        "occupancy": pl.Float64,  # 0..1, as the profiler estimated it
        "blocks_per_sm": pl.Float64,
        "graph": pl.Int64,
        "framework_op": TEXT,  # name of the framework op as the device op itself bears it: `op` may be untold
        "hlo_module": TEXT,  # of XLA
        "hlo_category": TEXT,
        "xla_flops": pl.Float64,  # by XLA's cost analysis
        "eager": pl.Boolean,  # launched outside tf.function and tf.Graph
    },
    "host_ops": {
        "id": pl.Int64,
        "worker": pl.Int32,
        "thread": pl.Int64,
        "kind": HOST_OP_KINDS,
        "name": TEXT,
        "start_ns": pl.Int64,
        "dur_ns": pl.Int64,
        "parent": pl.Int64,  # host_ops.id of the innermost enclosing range on the same thread
        "step": pl.Int32,
        "correlation": pl.Int64,
        "sequence": pl.Int64,  # autograd's number: a backward op bears its forward op's
        "shapes": TEXT,  # JSON text
        "dtypes": TEXT,  # JSON text
        "stack": TEXT,  # innermost frame first, separated by ;
        "eager": pl.Boolean,
        "details": TEXT,  # JSON text: what a reader was told beyond these columns, by the profiler's own keys
    },
    "collectives": {
        "device_op": pl.Int64,
        "worker": pl.Int32,
        "group": pl.String,
        "group_size": pl.Int32,
        "sequence": pl.Int64,
        "op": TEXT,
        "dtype": TEXT,
        "bytes": pl.Int64,
        "ranks": pl.String,
        "peer": pl.Int32,  # global rank at the other end of a send or recv
    },
    "allocations": {
        "worker": pl.Int32,
        "device": pl.Int32,  # null: host memory
        "thread": pl.Int64,
        "at_ns": pl.Int64,
        "bytes": pl.Int64,  # negative: freed
        "address": pl.Int64,
        "allocated_bytes": pl.Int64,
        "reserved_bytes": pl.Int64,  # what the caching allocator took for good; null where it takes all it may
        "stack_bytes": pl.Int64,  # beside allocated_bytes: what the running program holds for its own (TPUs)
        "available_bytes": pl.Int64,  # what the allocator may still give, in any number of pieces
        "fragmentation": pl.Float64,  # 0..1, of that: outside its largest piece
        "framework_op": TEXT,  # that asked for it
        "region": TEXT,  # output, temp, dynamic, ...
    },
    # Threads of the job's processes, those of data loaders among them; worker is null where it is not told whose.
    "threads": {"worker": pl.Int32, "pid": pl.Int64, "thread": pl.Int64, "name": pl.String},
    # Calls of the operating system that took a while: reading files, waiting for locks.
    "os_calls": {
        "worker": pl.Int32,
        "pid": pl.Int64,
        "thread": pl.Int64,
        "name": TEXT,
        "start_ns": pl.Int64,
        "dur_ns": pl.Int64,
    },
    # When a thread was on no CPU, from its leaving one to its return.
    "off_cpu": {
        "worker": pl.Int32,
        "pid": pl.Int64,
        "thread": pl.Int64,
        "start_ns": pl.Int64,
        "dur_ns": pl.Int64,
        "cpu": pl.Int32,  # that it left
        "next_cpu": pl.Int32,  # that it returned to
        "state": TEXT,  # as the scheduler named it (Running: it could have gone on); null where it was not told
    },
    # Where threads that call the device's driver were sampled while they had a CPU.
    "host_samples": {
        "worker": pl.Int32,
        "thread": pl.Int64,
        "at_ns": pl.Int64,
        "functions": pl.List(pl.String),  # the program's, `module: function`, the innermost first; none: in others'
    },
    # Hardware counters sampled at a fixed rate, of the whole device whoever uses it.
    "gpu_samples": {
        "worker": pl.Int32,
        "device": pl.Int32,
        "metric": TEXT,  # sm_active, sm_issue, tensor_active, dram_read, dram_write, nvlink_rx, pcie_tx, ...
        "at_ns": pl.Int64,
        "value": pl.Float64,  # 0..1 of the peak
    },
}
