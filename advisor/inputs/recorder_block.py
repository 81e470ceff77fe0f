"""What `advisor record` adds to a trace: step times with and without the profiler, stacks, cores, worker processes."""

import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from advisor.model.notes import Note

_PLAIN = re.compile(r"[\w.:,=+-]{1,100}(?: [\w.:,=+-]{1,100}){0,9}")
_SETTING = re.compile(r"(?:CUDA|HIP|NCCL|NVIDIA|OMP|PYTORCH|TF|TORCH|TORCHDYNAMO|XLA)_")
_BUSY = 0.2  # of a recorded step
_SHORTEST_MS, _LONGEST_MS = 1e-6, 1e9  # a nanosecond, 11 days

Time = Annotated[float, msgspec.Meta(ge=_SHORTEST_MS, le=_LONGEST_MS)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_MS)]
Steps = Annotated[list[Time], msgspec.Meta(max_length=1 << 16)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Text = Annotated[str, msgspec.Meta(max_length=500)]
Ns = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class Noted(NamedTuple):
    """Median steps before, after and in the recording, in ms; cores and loader processes; None where not noted.

    `run_delay_ms` is what a recorded step waited for a CPU because of other programs, on average; `own_delay_ms` what
    it waited because of the job itself, `cpu_ms` what all threads and child processes ran in it. `before_steps_ms` and
    `after_steps_ms` are the steps that the medians are of; `unprofiled_delay_ms` is what one of them waited because of
    other programs; `long_ms` what steps far longer than the median add to the mean of all steps without the
    profiler, `long_part` which part of the steps they are. `stacks` are rows of `STACKS`, sampled in steps without
    the profiler; `batches` rows of `BATCHES`, none of them where a batch holds no sequences. `sleep_share` is the part
    of the sampled time, without waits for a CPU, in which the main thread did not run; `threads` are rows of `THREADS`.
    `pace_ms` are medians of equal pieces of the steps that were sampled last, `pace_steps` the numbers of the first of
    these steps and the last. `loading` are rows of `LOADING`, of the process and of its loader's workers.
    `software` is `PyTorch 2.9.1, cuDNN 9.10.2`, `settings` are variables of the environment from the recorder's list.
    """

    before_ms: float | None = None
    after_ms: float | None = None
    profiled_ms: float | None = None
    cpus: int | None = None
    loader_workers: int | None = None
    run_delay_ms: float | None = None
    own_delay_ms: float | None = None
    cpu_ms: float | None = None
    before_steps_ms: list[float] | None = None
    after_steps_ms: list[float] | None = None
    unprofiled_delay_ms: float | None = None
    long_ms: float | None = None
    long_part: float | None = None
    stacks: list[dict[str, Any]] | None = None
    batches: list[dict[str, Any]] | None = None
    sleep_share: float | None = None
    threads: list[dict[str, Any]] | None = None
    pace_ms: list[float] | None = None
    pace_steps: list[int] | None = None
    loading: list[dict[str, Any]] | None = None
    software: str | None = None
    settings: str | None = None


class _Unprofiled(msgspec.Struct):
    before_ms: Time | None = None
    after_ms: Time | None = None
    before_steps_ms: Steps | None = None
    after_steps_ms: Steps | None = None
    run_delay_ms: Wait | None = None
    long_ms: Wait | None = None
    long_part: Annotated[float, msgspec.Meta(ge=0, le=0.5)] | None = None


class _Profiled(msgspec.Struct):
    step_ms: Time | None = None
    run_delay_ms: Wait | None = None
    own_delay_ms: Wait | None = None
    cpu_ms: Wait | None = None


class _Pace(msgspec.Struct):
    step: Count = 0
    steps_ms: Annotated[list[Time], msgspec.Meta(max_length=64)] = []
    size: Count = 0


class _Line(msgspec.Struct, kw_only=True):
    line: Text | None = None
    function: Text | None = None
    call: Text | None = None
    needed: Annotated[list[Count], msgspec.Meta(max_length=1 << 14)] = []


class _Stack(_Line, kw_only=True):
    samples: Count
    ns: Ns
    long_ns: Ns = 0
    callers: Annotated[list[_Line], msgspec.Meta(max_length=64)] = []
    above: Text | None = None
    above_call: Text | None = None
    below: Annotated[list[Text], msgspec.Meta(max_length=64)] = []


class _Ran(msgspec.Struct):
    run_ns: Ns
    wait_ns: Ns


class _Thread(_Line, kw_only=True):
    run_ns: Ns


class _Threads(msgspec.Struct):
    main: _Ran | None = None
    others: Annotated[list[_Thread], msgspec.Meta(max_length=1 << 12)] = []


class _Slow(msgspec.Struct):
    index: Annotated[int, msgspec.Meta(ge=-(1 << 60), le=1 << 60)]
    ns: Ns


class _Loading(msgspec.Struct):
    batches: Ns = 0
    samples: Ns = 0
    fetch_ns: Ns = 0
    run_ns: Ns = 0
    awake_ns: Ns = 0
    wait_ns: Ns = 0
    requests: Ns = 0
    request_ns: Ns = 0
    request_run_ns: Ns = 0
    cpu_ns: Ns = 0
    send_ns: Ns = 0
    pin_ns: Ns = 0
    threads_ns: Ns = 0
    files: Ns = 0
    faults: Ns = 0
    read_bytes: Ns = 0
    slow: Annotated[list[_Slow], msgspec.Meta(max_length=64)] = []


class _Worker(msgspec.Struct):
    stacks: Annotated[list[_Stack], msgspec.Meta(max_length=1 << 14)] = []
    loading: _Loading | None = None


class _Stacks(msgspec.Struct):
    main: Annotated[list[_Stack], msgspec.Meta(max_length=1 << 14)] = []
    workers: Annotated[list[_Worker], msgspec.Meta(max_length=1 << 10)] = []
    loading: _Loading | None = None
    steps: Count = 0
    span_ns: Ns = 0
    threads: _Threads = msgspec.field(default_factory=_Threads)


class _Batch(msgspec.Struct):
    rows: Count
    length: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
    longest: Count
    padding: Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Job(msgspec.Struct):
    cpus: Count | None = None
    loader_workers: Count | None = None
    batches: Annotated[list[_Batch], msgspec.Meta(max_length=1 << 10)] | None = None


class _Software(msgspec.Struct):
    versions: Annotated[dict[Text, Text], msgspec.Meta(max_length=32)] = {}
    settings: Annotated[dict[Text, Text], msgspec.Meta(max_length=64)] = {}


class _Block(msgspec.Struct):
    format: Literal[1]
    unprofiled: _Unprofiled
    profiled: _Profiled
    job: _Job = msgspec.field(default_factory=_Job)
    stacks: _Stacks | None = None
    pace: _Pace = msgspec.field(default_factory=_Pace)
    software: _Software = msgspec.field(default_factory=_Software)


def _plain(words: dict[str, str]) -> list[tuple[str, str]]:
    """Those that the recorder can have written: a file may hold others, with a secret in them."""
    return [(name, value) for name, value in words.items() if _PLAIN.fullmatch(name) and _PLAIN.fullmatch(value)]


def noted(block: object) -> Noted:
    """What the block says; nothing of another format, or of one that is malformed in any part."""
    try:
        of = msgspec.convert(block, _Block)
    except msgspec.ValidationError:
        return Noted()
    free, profiled, job = of.unprofiled, of.profiled, of.job
    return Noted(
        before_ms=free.before_ms,
        after_ms=free.after_ms,
        profiled_ms=profiled.step_ms,
        cpus=job.cpus,
        loader_workers=job.loader_workers,
        run_delay_ms=profiled.run_delay_ms,
        own_delay_ms=profiled.own_delay_ms,
        cpu_ms=profiled.cpu_ms,
        before_steps_ms=free.before_steps_ms,
        after_steps_ms=free.after_steps_ms,
        unprofiled_delay_ms=free.run_delay_ms,
        long_ms=free.long_ms,
        long_part=free.long_part,
        stacks=_rows(of.stacks) if of.stacks else None,
        loading=_loading(of.stacks) if of.stacks else None,
        **_shares(of.stacks),
        pace_ms=of.pace.steps_ms or None,
        pace_steps=[of.pace.step, of.pace.step + of.pace.size] if of.pace.steps_ms else None,
        software=", ".join(f"{name} {version}" for name, version in _plain(of.software.versions)) or None,
        settings=" ".join(f"{name}={v}" for name, v in _plain(of.software.settings) if _SETTING.match(name)) or None,
        batches=None if job.batches is None else [msgspec.structs.asdict(batch) for batch in job.batches],
    )


def noted_json(text: str) -> Noted:
    """The same of a block as JSON."""
    try:
        return noted(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return Noted()


def _rows(stacks: _Stacks) -> list[dict[str, Any]]:
    """The stacks of the process itself, then those of its loader's workers."""
    workers = [(stack, True) for worker in stacks.workers for stack in worker.stacks]
    return [
        msgspec.to_builtins(stack) | {"of_loader": of_loader}
        for stack, of_loader in [*((stack, False) for stack in stacks.main), *workers]
    ]


def _loading(stacks: _Stacks) -> list[dict[str, Any]] | None:
    """What the process itself loaded and asked for while it was sampled, then what each worker loaded."""
    every = [(stacks.loading, False), *((worker.loading, True) for worker in stacks.workers)]
    span = {"steps": stacks.steps, "span_ns": stacks.span_ns}
    rows = [msgspec.to_builtins(of) | span | {"of_loader": of_loader} for of, of_loader in every if of]
    return rows if any(row["batches"] for row in rows) else None


def _shares(stacks: _Stacks | None) -> dict[str, Any]:
    """What the main thread slept of the sampled time, and other threads of Python ran; without its waits for a CPU."""
    if stacks is None or not stacks.span_ns or stacks.threads.main is None:
        return {}
    main = stacks.threads.main
    span_ns = max(1, stacks.span_ns - main.wait_ns)
    slept_ns = max(0, span_ns - main.run_ns)
    others = [
        {"line": thread.line, "function": thread.function, "call": thread.call, "share": thread.run_ns / span_ns}
        for thread in stacks.threads.others
    ]
    return {"sleep_share": min(1.0, slept_ns / span_ns), "threads": others}


def busy_machine(of: Noted) -> Note | None:
    """A note where a recorded step waited long for a CPU."""
    if not of.run_delay_ms or not of.profiled_ms or of.run_delay_ms < _BUSY * (of.profiled_ms + of.run_delay_ms):
        return None
    return Note("busy_machine", delay=of.run_delay_ms)
