"""What `advisor record` adds to a trace: step times with and without the profiler, stacks, cores, worker processes."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from advisor.inputs.names.stacks import AWAITED, kinds
from advisor.model.clause import Note
from advisor.secrets import is_of_secret, masked_text, without_secrets

_PLAIN = re.compile(r"[\w.:,=+-]{1,100}(?: [\w.:,=+-]{1,100}){0,9}")
_VERSION = re.compile(r"\d+(?:\.\w{1,20}){1,3}")
_LIBRARIES = frozenset({"driver", "PyTorch", "cuDNN", "TensorFlow", "JAX", "jaxlib"})
_SETTING = re.compile(r"(?:CUDA|HIP|NCCL|NVIDIA|OMP|PYTORCH|TF|TORCH|TORCHDYNAMO|XLA)_")
_MOST_BYTES = 16 << 20  # a recorder writes up to a few MB; decoded, they take ten times as much
_BUSY = 0.2  # of a recorded step
_SHORTEST_MS, _LONGEST_MS = 1e-6, 1e9  # a nanosecond, 11 days

Time = Annotated[float, msgspec.Meta(ge=_SHORTEST_MS, le=_LONGEST_MS)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_MS)]
Steps = Annotated[list[Time], msgspec.Meta(max_length=1 << 16)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Text = Annotated[str, msgspec.Meta(max_length=500)]
Ns = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class _Unprofiled(msgspec.Struct):
    before_ms: Time | None = None
    after_ms: Time | None = None
    before_steps_ms: Steps | None = None
    after_steps_ms: Steps | None = None
    unprofiled_delay_ms: Wait | None = msgspec.field(default=None, name="run_delay_ms")
    long_ms: Wait | None = None
    long_part: Annotated[float, msgspec.Meta(ge=0, le=0.5)] | None = None


class _Profiled(msgspec.Struct):
    profiled_ms: Time | None = msgspec.field(default=None, name="step_ms")
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
    of_fetch: Count | None = None
    evaluates: Text | None = None
    below: Annotated[list[Text], msgspec.Meta(max_length=64)] = []


class _Ran(msgspec.Struct):
    run_ns: Ns
    wait_ns: Ns


class _Thread(_Line, kw_only=True):
    run_ns: Ns
    stacks: Annotated[list[_Stack], msgspec.Meta(max_length=64)] = []


class _Threads(msgspec.Struct):
    main: _Ran | None = None
    others: Annotated[list[_Thread], msgspec.Meta(max_length=1 << 12)] = []
    batches: Annotated[list[_Stack], msgspec.Meta(max_length=1 << 14)] = []
    unnamed_ns: Ns = 0
    all_ns: Ns = 0


class _Slow(msgspec.Struct):
    index: Annotated[int, msgspec.Meta(ge=-(1 << 60), le=1 << 60)]
    ns: Ns


_COUNTS = (
    *("batches", "samples", "fetch_ns", "run_ns", "awake_ns", "wait_ns", "requests", "request_ns", "request_run_ns"),
    *("cpu_ns", "send_ns", "pin_ns", "threads_ns", "receive_ns", "files", "faults", "read_bytes"),
    *("alone_files", "alone_bytes", "cold_ns", "warm_ns"),
)


class _Loading(msgspec.defstruct("_Counts", [(name, Ns, 0) for name in _COUNTS])):  # type: ignore[misc]  # made of names
    slow: Annotated[list[_Slow], msgspec.Meta(max_length=64)] = msgspec.field(default_factory=list)


class _Worker(msgspec.Struct):
    stacks: Annotated[list[_Stack], msgspec.Meta(max_length=1 << 14)] = []
    loading: _Loading | None = None


class _Stacks(msgspec.Struct):
    main: Annotated[list[_Stack], msgspec.Meta(max_length=1 << 14)] = []
    workers: Annotated[list[_Worker], msgspec.Meta(max_length=1 << 10)] = []
    loading: _Loading | None = None
    steps: Count = 0
    span_ns: Ns = 0
    lack: Literal["signal", "thread", "timer"] | None = None
    threads: _Threads = msgspec.field(default_factory=_Threads)


class _Batch(msgspec.Struct):
    rows: Count
    length: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
    longest: Count
    padding: Annotated[float, msgspec.Meta(ge=0, le=1)]
    unlabelled: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    largest: Annotated[int, msgspec.Meta(ge=0, le=1 << 60)] = 0


class _Again(msgspec.Struct):
    line: Text | None
    function: Text | None
    call: Text | None
    is_complete: bool
    all_ns: Ns
    ns: Ns
    of_each_ns: Ns


class _Job(msgspec.Struct):
    cpus: Count | None = None
    far_cores: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    loader_workers: Count | None = None
    batches: Annotated[list[_Batch], msgspec.Meta(max_length=1 << 10)] | None = None
    unheld: Count | None = None
    unheld_part: Text | None = None
    repeats: Annotated[list[_Again], msgspec.Meta(max_length=64)] | None = None
    calls_ns: Ns | None = None


class _Software(msgspec.Struct):
    versions: Annotated[dict[Text, Text], msgspec.Meta(max_length=32)] = {}
    settings: Annotated[dict[Text, Text], msgspec.Meta(max_length=64)] = {}


class _Block(msgspec.Struct):
    format: Literal[1]
    unprofiled: _Unprofiled
    profiled: _Profiled
    job: _Job = msgspec.field(default_factory=_Job)
    stacks: _Stacks | None = None
    marker: Annotated[str, msgspec.Meta(pattern=r"^\w{1,20}$")] | None = None
    pace: _Pace = msgspec.field(default_factory=_Pace)
    software: _Software = msgspec.field(default_factory=_Software)


def _is_setting(name: str, value: str) -> bool:
    """Whether the recorder can have written it: a file may hold others, with a secret in them."""
    plain = _SETTING.match(name) and _PLAIN.fullmatch(name) and _PLAIN.fullmatch(value)
    return bool(plain) and not is_of_secret(name.encode()) and masked_text(value) == value


def noted(block: bytes | msgspec.Raw) -> dict[str, Any]:
    """What the block (JSON, or empty) says, as columns of `workers`; nothing of one that is malformed or too long."""
    if len(memoryview(block)) > _MOST_BYTES:
        return {}
    try:
        of = msgspec.json.decode(block, type=_Block)
    except (ValueError, RecursionError):
        return {}
    versions = [f"{n} {v}" for n, v in of.software.versions.items() if n in _LIBRARIES and _VERSION.fullmatch(v)]
    columns = {
        **msgspec.structs.asdict(of.unprofiled),
        **msgspec.structs.asdict(of.profiled),
        **msgspec.to_builtins(of.job),
        **(_sampled(of.stacks) if of.stacks else {}),
        "marker": of.marker,
        "pace_ms": of.pace.steps_ms or None,
        "pace_steps": [of.pace.step, of.pace.step + of.pace.size] if of.pace.steps_ms else None,
        "software": ", ".join(versions) or None,
        "settings": " ".join(f"{n}={v}" for n, v in of.software.settings.items() if _is_setting(n, v)) or None,
    }
    return {name: _shut(value) for name, value in columns.items() if value is not None}


def _shut(value: Any) -> Any:  # noqa: ANN401 - any of JSON
    """The value without secrets: the recorder writes none, but somebody may write a block by hand."""
    if isinstance(value, dict):
        return {name: _shut(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shut(inner) for inner in value]
    return without_secrets(value) if isinstance(value, str) else value


def _sampled(of: _Stacks) -> dict[str, Any]:
    """The stacks and loads of the process and of its loader's workers; the part of the time that the main thread slept.

    And what other threads of Python ran of it: both without the main thread's waits for a CPU.
    """
    sources = [(of.main, of.loading, False), *((worker.stacks, worker.loading, True) for worker in of.workers)]
    sources += [(of.threads.batches, None, True)]
    stacks = [msgspec.to_builtins(stack) | {"of_loader": is_of} for every, _, is_of in sources for stack in every]
    span = {"steps": of.steps, "span_ns": of.span_ns}
    loads = [msgspec.to_builtins(loads) | span | {"of_loader": is_of} for _, loads, is_of in sources if loads]
    does_load = any(row["batches"] or row["receive_ns"] for row in loads)
    sampled = {"stacks": stacks, "stacks_lack": of.lack, "loading": loads if does_load else None}
    if not of.span_ns or of.threads.main is None:
        return sampled
    span_ns = max(1, of.span_ns - of.threads.main.wait_ns)
    others = [_at_work(thread) | {"share": thread.run_ns / span_ns} for thread in of.threads.others]
    sleeps = max(0, span_ns - of.threads.main.run_ns) / span_ns
    unnamed = of.threads.unnamed_ns / max(1, of.threads.unnamed_ns, of.threads.all_ns)
    return sampled | {"sleep_share": sleeps, "threads": others, "unnamed_part": unnamed}


def _at_work(thread: _Thread) -> dict[str, Any]:
    """The line in which a thread is for most of the time in which it does not wait, if there is such a time."""
    spent: Counter[tuple[str | None, ...]] = Counter()
    for each in thread.stacks:
        text = "\n".join([each.call or "", *each.below])
        waits = any(re.search(of.pattern, text) for of in kinds() if of.rests or of.name in (AWAITED, "locking"))
        spent[each.line, each.function, each.call] += 0 if waits else each.ns
    place = max(spent, key=lambda of: spent[of], default=(thread.line, thread.function, thread.call))
    return dict(zip(("line", "function", "call"), place, strict=True))


def busy_machine(of: Mapping[str, Any]) -> Note | None:
    """A note where a recorded step waited long for a CPU."""
    delay_ms, step_ms = of.get("run_delay_ms"), of.get("profiled_ms")
    if not delay_ms or not step_ms or delay_ms < _BUSY * (step_ms + delay_ms):
        return None
    return Note("busy_machine", delay=delay_ms)
