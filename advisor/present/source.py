"""What was read, in phrases: format, processes, devices, steps, what was left out; and what sets one rank apart."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from advisor.inputs.readers import format_of
from advisor.model.finding import Entry, Finding, Value
from advisor.model.report import Run, number
from advisor.model.source import Source, Steps
from advisor.text import DASH, capital, count, listing, ms, plural, runs_of, times_as_long
from advisor.vocabulary.kinds import SIGNS, START_UP, WORKLOADS
from advisor.vocabulary.limits import TURNS_SHARE
from advisor.vocabulary.parts import UNMARKED

_ENDS: Final = {"outlier": "longer than the others", **dict.fromkeys(START_UP, "the first of the recording")}
_WORTH_SAYING: Final = 0.05  # of the recording: what leaves out more says so
_NEARLY_ALL: Final = 0.95  # of what was recorded
_UNLIKE: Final = 0.2  # own choice, of the mean step


def facts(run: Run) -> tuple[str, ...]:
    """Format, kind of work, processes, devices and steps, a phrase each."""
    source = run.source
    return (
        _format(source),
        *(WORKLOADS.get(kind, kind) for kind in source.workload.kinds),
        *([source.part] if source.part else []),
        *([count(len(source.workers), member(source))] if len(source.workers) != 1 and not source.part else []),
        _devices(run),
        f"{_steps(run)}{_paced(run)}",
    )


def window(steps: Steps) -> str:
    """What shares are shares of, with its length: `a step of 178 ms`, or `the 2.3 s used`."""
    if steps.length_ms is None:
        return "a step" if steps.marked else UNMARKED
    return f"a step of {ms(steps.length_ms)}" if steps.marked else f"the {ms(steps.length_ms)} used"


def left_out(source: Source, parts: Collection[str] = ()) -> list[tuple[str, str]]:
    """The steps left out, those with one reason together: `step 7`, `steps 3-4 of ranks 0-7`; and the reason.

    Without those that the parts of these names are about.
    """
    by_reason: dict[str, list[tuple[int, int]]] = {}
    ends = [(step, _ENDS.get(step.why.code, step.why.words)) for step in source.steps.left_out]
    for step in (step for step, end in ends if not any(name.endswith(end) for name in parts)):
        by_reason.setdefault(step.why.words, []).append((step.step, step.worker))
    reasons = []
    for why, steps in by_reason.items():
        numbers, owners = {step for step, _ in steps}, {worker for _, worker in steps}
        of = f" of {members(source, owners)}" if len(source.workers) > 1 else ""
        reasons.append((f"{'step' if len(numbers) == 1 else 'steps'} {runs_of(numbers)}{of}", why))
    return reasons


def whose(source: Source) -> str:
    """What the many of a job are: `GPU` or `TPU` where a process has several, `host` of TensorFlow or JAX, `rank`."""
    if len(source.devices) > len(source.workers):
        return _kind(source)
    return "host" if host_names(source) else "rank"


def host_names(source: Source) -> dict[int, str]:
    """What the ranks of a job of TensorFlow or JAX are called: they write one file per host, named after it."""
    several = len(source.workers) > 1 and len(source.devices) <= len(source.workers)
    of_hosts = several and format_of(source.format).file_per_host
    return {worker.worker: worker.name for worker in source.workers} if of_hosts else {}


def member(source: Source) -> str:
    """What a process of the run is called: `rank` or `host` where the job has several, `process` else."""
    if len(source.workers) <= 1 or len(source.devices) > len(source.workers):
        return "process"
    return whose(source)


def members(source: Source, workers: Collection[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`."""
    noun = member(source)
    return f"{noun if len(workers) == 1 else plural(noun)} {runs_of(workers)}"


def rank_name(source: Source, worker: int) -> str:
    """`rank 3`, or the host's name."""
    return host_names(source).get(worker, f"rank {worker}")


def place_name(source: Source, position: Value, name: Value) -> str:
    """The host's name where the ranks have one, else what tables call the rank at that place among the recorded."""
    return host_names(source).get(position if isinstance(position, int) else 0, str(name))


def owner(run: Run, row: Mapping[str, Value]) -> str:
    """Whose a row of devices is: `rank 3`, `process 0, GPU 2`, or the host's name."""
    if (many := whose(run.source)) in {"GPU", "TPU"}:
        return f"process {row['worker']}, {many} {row['device']}"
    return rank_name(run.source, int(number(row, "worker")))


def _format(source: Source) -> str:
    if source.framework == "cuda":
        return f"CUDA program ({source.format})"
    if format_of(source.format).any_program and source.framework:  # not what the framework's own profiler records
        return f"{source.format} profile of {source.framework}"
    return f"{source.framework} profile ({source.format})" if source.framework else f"{source.format} profile"


def signs(source: Source) -> list[tuple[str, str]]:
    """What shows the kinds of work, as pairs of a phrase and an example."""
    return [
        (f"{sign.kind}, because of {SIGNS.get(sign.code, sign.code)}", sign.example or "")
        for sign in source.workload.signs
    ]


def _kind(source: Source) -> str:
    return "TPU" if all((device.name or "").startswith("TPU") for device in source.devices) else "GPU"


def _devices(run: Run) -> str:
    source = run.source
    kinds = Counter(device.name or f"{_kind(source)} of unknown model" for device in source.devices if not device.again)
    many = [f"{amount} \N{MULTIPLICATION SIGN} {name}" if amount > 1 else name for name, amount in kinds.items()]
    shared = ", which they share" * any(device.again for device in source.devices)
    return listing(many) + shared or ("CPU" if is_on_cpu(run) else "CPU; no GPU was recorded")


def is_on_cpu(run: Run) -> bool:
    """Whether it ran on the CPU: `advisor record`, which times steps without the profiler, records any GPU."""
    return run.source.steps.unprofiled_ms is not None or number(run.of_pace, "ran_on_cpu") > 0


def idle_devices(run: Run) -> str:
    """`5 of 8 GPUs do nothing.`, or ran no kernel; empty where no finding is about devices left out."""
    known = {item.metric: item.value for finding in run.findings[1:] for item in finding.evidence}
    idle, visible = known.get("devices_idle"), known.get("devices_visible")
    if not isinstance(idle, int) or not isinstance(visible, int) or not idle:
        return ""
    bare = visible - len(run.source.devices) if len(run.source.workers) == 1 else 0
    which = f"{bare} of {visible} {_kind(run.source)}s ran no kernel"
    return f"{which}." if bare > idle else f"{idle} of {visible} {_kind(run.source)}s do nothing."


def _steps(run: Run) -> str:
    steps = run.source.steps
    if not steps.marked:
        if steps.step_ms is None:
            return "no steps marked"
        recorded_ms = number(run.of_pace, "recorded_ms")
        of = f" of {ms(recorded_ms)}" if steps.step_ms < _NEARLY_ALL * recorded_ms else ""
        return f"no steps marked, {ms(steps.step_ms)}{of} used"
    others = "" if unused_parts(run) else left_out_steps(run)  # which are named beside the headline
    numbers = {int(number(row, "step")) for row in run.metrics.get("recorded_step", ())}
    is_numbered = len(numbers) == steps.count and min(numbers, default=0) > 1  # a program that counts from its start
    which = f" ({runs_of(numbers)})" if is_numbered else ""
    some = f"{steps.used:,} of {steps.count:,} steps{which} used{f', without {others}' if others else ''}"
    used = some if steps.used != steps.count else count(steps.used, "step")
    if steps.step_mean_ms is None or not steps.used:
        return used
    length, usual = ms(steps.length_ms), ms(steps.step_mean_ms)
    if steps.unprofiled_ms is not None:
        mean = f" on average, a usual one {ms(steps.unprofiled_ms)}" if steps.is_mean else ""
        return f"{used}, {length} without the profiler{mean}{f', {usual} with it' if usual != length else ''}"
    if usual != length:
        return f"{count(steps.count, 'step')}, {length} on average, a usual one {usual}"
    return f"{used}, {length}{' on average' if steps.used > 1 else ''}{_lengths(steps)}"


def left_out_steps(run: Run) -> str:
    """`step 4 (nothing shows where it ends)`, of those that no part that is left out names."""
    steps, parts = run.source.steps, [part.name for part in unused_parts(run)]
    reasons = [(of, why) for of, why in left_out(run.source, parts) if not any(p.startswith(f"{of},") for p in parts)]
    is_few = len(reasons) <= _SEVERAL and len(parts) + len(reasons) <= _MOST_LEFT_OUT
    is_all = len(steps.left_out) == steps.count - steps.used and is_few
    return listing([f"{of} ({re.split('[,;]', why)[0]})" for of, why in reasons]) if is_all else ""


def unused_parts(run: Run) -> tuple[Entry, ...]:
    """What of the recording is in no used step, where that is enough to be said in the headline."""
    share, parts = run.of_pace.get("left_out_share"), run.of_pace.get("left_out_parts")
    is_worth = isinstance(share, float) and share >= _WORTH_SAYING
    return parts if is_worth and isinstance(parts, tuple) else ()


def _lengths(steps: Steps) -> str:
    """Which two lengths the steps have, or the middle one far from the mean; empty where they are of one."""
    median_ms, mean_ms = steps.step_ms or 0.0, steps.step_mean_ms or 0.0
    if not steps.lengths and abs(median_ms - mean_ms) > _UNLIKE * mean_ms:
        return f" (they differ: the middle one has {ms(median_ms)})"
    each = [f"{length.steps} of {ms(length.mean_ms)}" for length in steps.lengths]
    return f" ({' and '.join(each)})" if each else ""


def _paced(run: Run) -> str:
    """Whose step the numbers are of, where there are several processes, or devices of one."""
    source, pace = run.source, run.source.steps.worker
    if len(source.workers) > 1 and pace is not None and source.steps.step_ms is not None:
        return f"; numbers of {members(source, [pace])}, which works longest{' of those' if source.part else ''}"
    device, own_ms = (run.of_pace.get(name) for name in ("device", "own_step_ms"))
    if len(source.devices) <= 1 or len(source.workers) > 1 or device is None:
        return ""
    why = "whose steps take longest" if own_ms is None and source.steps.marked else "which works longest"
    return f"; numbers of {whose(source)} {device}, {why}"


_ALIKE: Final = 0.1
_SEVERAL: Final = 2
_MOST_LEFT_OUT: Final = 5  # parts and steps: more fill the screen
_RANKS: Final = re.compile(rf"ranks? ([\d, {DASH}]+)")
_CLEAR: Final = 0.02  # of the step: a shorter wait names nobody


def pace(run: Run) -> str | None:
    """A sentence on a job of several ranks: which sets the pace, which takes longest, which the others wait for.

    `Rank 3 sets the pace: without waits it takes longest, 20 ms a step. The others wait longest for it: 7.8 ms a step,
    the sum of all ranks.` Or that ranks are late in turn within a step. None where the ranks' own times are not known.
    """
    rows = [row for row in run.metrics.get("device", ()) if row.get("own_step_ms") is not None]
    if len(rows) < _SEVERAL or run.source.steps.worker is None:
        return None
    slowest = max(rows, key=lambda row: number(row, "own_step_ms"))
    who, slow = owner(run, run.of_pace), owner(run, slowest)
    is_same, own_ms = who == slow, number(slowest, "own_step_ms")
    longest = f"without waits {'it' if is_same else slow} takes longest, {ms(own_ms)}{_per(run)}"
    if number(run.of_job, "inner_skew_ms") >= TURNS_SHARE * (step_ms := number(slowest, "step_mean_ms")) > 0:
        of = f"without waits {slow} takes longest, {ms(own_ms)}{_per(run)}, and it waits for {ms(step_ms - own_ms)}"
        return f"No {whose(run.source)} sets the pace alone: {of}."
    sets_pace = "is the slowest of those recorded" if run.source.part else "sets the pace"  # another may be slower
    return capital(f"{who} {sets_pace}{':' if is_same else ';'} {longest}{_awaited(run, who)}.")


def _per(run: Run) -> str:
    return " a step" if run.source.steps.marked else ""


def most_awaited(run: Run) -> tuple[str, float] | None:
    """The rank that the others wait for most, and how long all of them do, in ms per step; None where none waits."""
    waits: defaultdict[str, float] = defaultdict(float)
    for row in run.metrics.get("wait", ()):
        waits[place_name(run.source, row["awaited"], row["awaited_name"])] += number(row, "wait_ms")
    return max(waits.items(), key=lambda wait: wait[1], default=None)


def _awaited(run: Run, setter: str) -> str:
    most = most_awaited(run)
    if most is None:
        return ""
    awaited, wait_ms = most
    if wait_ms <= _CLEAR * (run.source.steps.step_mean_ms or 0.0):
        return f". The {whose(run.source)}s hardly wait for each other"
    whom = "it" if awaited == setter else f"{awaited}, the last to arrive"
    return f". The others wait longest for {whom}: {ms(wait_ms)}{_per(run)}, the sum of all {whose(run.source)}s"


def slowest_link(run: Run) -> str | None:
    """Where data moves slowest between the ranks; None where no link is known to be slower."""
    place, ratio = run.of_job.get("slow_place"), run.of_job.get("slow_place_ratio")
    if not place or not isinstance(ratio, float) or ratio <= 1 + _ALIKE:
        return None
    return f"transfers {place} take {times_as_long(ratio)} as the same ones elsewhere"


def ranks_of(finding: Finding, source: Source) -> list[int]:
    """The ranks that a finding sets apart: those that it holds for; where that is all, those that it names."""
    if len(finding.scope.workers) < len(source.workers):
        return [*finding.scope.workers]
    words = " ".join(match[1] for of in finding.evidence if (match := _RANKS.match(str(of.value))))
    spans = [(int(first), int(last or first)) for first, last in re.findall(rf"(\d+)(?:{DASH}(\d+))?", words)]
    return [of.worker for of in source.workers if any(first <= of.worker <= last for first, last in spans)]


def reach(finding: Finding, run: Run) -> str | None:
    """The processes that a finding holds for, where there are several: `ranks 0-2, 5 of 8`, `all 8 ranks`."""
    read = len(run.source.workers)
    if read <= 1:
        return None
    workers, worker = finding.scope.workers, finding.scope.told_of
    if len(workers) == read:
        every = f"{'both' if read == _SEVERAL else f'all {read}'} {plural(member(run.source))}"
        where = f"all {read} that were recorded" if run.source.part else every
    else:
        which = members(run.source, workers)
        where = f"{which} of the {read} recorded" if run.source.part else f"{which} of {read}"
    if len(workers) == 1 or worker is None or worker == run.source.steps.worker:
        return where
    return f"{where}; numbers are those of {members(run.source, [worker])}"
