"""What every kind of report says in the same words. Nothing here is escaped: each renderer does that for its medium."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from advisor import vocabulary
from advisor.model.report import (
    OUTLIERS,
    SEVERITIES,
    Finding,
    Fix,
    NotEvaluable,
    Place,
    Report,
    Run,
    Source,
    Steps,
    Track,
    Value,
)
from advisor.text import (
    bytes_,
    count,
    interval,
    listing,
    ms,
    ns,
    percent,
    percents,
    quantity,
    runs_of,
    without_shared_unit,
)

CATEGORIES: Final = {code: category.meaning for code, category in vocabulary.CATEGORIES.items()}
"""Categories of the breakdown, in one line each."""

OF_XLA: Final = ("tensorflow", "jax")
"""The frameworks whose users know XProf's overview and pod viewer."""
# metric, what it is called, and whether users of PyTorch look for it too
_HEADLINES: Final = (
    ("device_busy_share", "device at work", True),
    ("device_op_share", "ops on it", False),
    ("tensor_core_share", "Tensor Cores", True),
    ("sixteen_bit_kernel_share", "16-bit kernels", True),
    ("xla_share", "XLA", False),
    ("host_eager_share", "eager ops", False),
    ("function_tracing_share", "tracing of tf.functions", False),
)
_LIBRARY: Final = re.compile(
    r"site-packages|dist-packages|(?:^|/)torch/|/lib/python3|<built-in|<frozen|(?:^|/)runpy\.py"
)
_FRAMES: Final = 5
_SENTENCE: Final = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")
CAUSES: Final = {code: cause.short for code, cause in vocabulary.IDLE_CAUSES.items()}
"""Why a device idles, in one line each."""

_WORTH_A_WORD: Final = 0.02  # of the step
_ODD: Final = 0.05  # of the typical rank's time: smaller differences are not worth a line
_WEB: Final = re.compile(r"https?://[^\s<>\"'`|\\()\[\]{}\x00-\x20\x7f-\U0010ffff]+")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_COMPARED: Final = re.compile(  # one name with one name: a factor has no unit
    r"(?:^|\bAND\b|\bOR\b|\()\s*([A-Za-z_]\w*)\s*(?:[<>]=?|=)\s*([A-Za-z_]\w*)\s*(?=$|\bAND\b|\bOR\b|\))"
)
_CODE: Final = re.compile(r"`([^`\n]+)`")


class Segment(NamedTuple):
    """One category of the breakdown: its share of the step, and the share of all categories before it."""

    category: str
    share: float
    start: float
    ms: float | None
    mostly: str = ""

    @property
    def label(self) -> str:
        """The category, and what it mostly is where its name would mislead."""
        return f"{self.category} (mostly {self.mostly})" if self.mostly else self.category

    @property
    def meaning(self) -> str:
        """What happens in this part of the step; empty for a category of a profiler's own."""
        return CATEGORIES.get(self.category, "")


def verdict(run: Run) -> tuple[str, str]:
    """The verdict, and what qualifies it behind a semicolon."""
    said, _, rest = run.verdict.partition("; ")
    return (f"{said}.", rest) if " could not be judged" in rest else (run.verdict, "")


def segments(run: Run) -> list[Segment]:
    """The categories that take any time, in the order of the breakdown."""
    drawn: list[Segment] = []
    start, step_ms = 0.0, run.source.steps.step_mean_ms
    for category, share in run.breakdown.items():
        if share > 0:
            time = None if step_ms is None else share * step_ms
            drawn.append(Segment(category, share, start, time, _mostly(run, category, share)))
            start += share
    return drawn


def _mostly(run: Run, category: str, share: float) -> str:
    """What most of a category is where its name says something else."""
    allocating = next(iter(run.metrics.get("run", ())), {}).get("allocator_idle_share")
    if category != "launch" or not isinstance(allocating, float):
        return ""
    return "taking or freeing memory" if allocating > max(share / 2, _WORTH_A_WORD) else ""


def headlines(run: Run) -> list[tuple[str, str]]:
    """What the frameworks' own tools put first, as far as the profile tells it: what, and how much."""
    row = next(iter(run.metrics.get("run", ())), {})
    of_xla = run.source.framework in OF_XLA
    told = [(what, share) for name, what, mine in _HEADLINES if mine or of_xla if (share := row.get(name)) is not None]
    shares = [(what, percent(share)) for what, share in told if isinstance(share, int | float)]
    peak, part = row.get("peak_memory_bytes"), row.get("peak_memory_share")
    of_all = f" ({percent(part)})" if isinstance(part, float) else ""
    return shares + ([("memory peak", bytes_(peak) + of_all)] if isinstance(peak, int) else [])


def whole(steps: Steps) -> str:
    """What shares are shares of, with its mean length: `a step of 178 ms`, or `the recording of 2.3 s`."""
    what = "a step" if steps.marked else "the recording"
    return what if steps.step_mean_ms is None else f"{what} of {ms(steps.step_mean_ms)}"


def saving(finding: Finding, steps: Steps) -> str | None:
    """`30 to 59 of 178 ms a step (17-33 %)`; None where the finding names no saving."""
    if finding.saving is None:
        return None
    won = finding.saving
    if won.high_ms <= 0:
        return "nothing beyond what the findings above give back"
    time, shares = interval(won.low_ms, won.high_ms), percents(won.low_share, won.high_share)
    if won.high_share <= 0:
        return time
    # The step is that of the worker that the finding speaks of, which need not be the slowest.
    step = ms(won.high_ms / won.high_share)
    of = "a step, uneven ones included" if won.of == OUTLIERS else "a step" if steps.marked else "recorded"
    return f"{without_shared_unit(time, step)} of {step} {of} ({shares})"


def what_was_read(source: Source) -> list[str]:
    """Format, workers, devices and steps, a phrase each."""
    return [_format(source), _workers(source), _devices(source), _steps(source.steps) + _paced(source)]


def left_out(source: Source) -> list[tuple[str, str]]:
    """The steps left out, those with one reason together: `step 7`, `steps 3-4 of workers 0-7`; and the reason."""
    by_reason: dict[str, list[tuple[int, int]]] = {}
    for step in source.steps.left_out:
        by_reason.setdefault(step.why, []).append((step.step, step.worker))
    return [(_which(steps, len(source.workers)), why) for why, steps in by_reason.items()]


def unknowns(rules: Iterable[NotEvaluable]) -> list[tuple[str, list[str]]]:
    """Why rules could not be judged, and which; the rules with the same reasons together."""
    by_reason: dict[str, list[str]] = {}
    for rule in rules:
        by_reason.setdefault("; ".join(rule.words) or "no reason given", []).append(rule.rule)
    return list(by_reason.items())


def recording(run: Run) -> str | None:
    """The profiler's call with the options that this profile was recorded without; None where no reason names one."""
    reasons = [*run.source.lacks.values(), *(why for rule in run.not_evaluable for why in rule.missing.values())]
    codes = {reason.code for reason in reasons}
    if run.source.format == "nsys":
        lines = [f" \\\n    {missing.option}" for missing in vocabulary.options(vocabulary.NSYS_OPTIONS, codes)]
        return f"nsys profile --trace=cuda,nvtx,osrt{''.join(lines)} <command>\n" if lines else None
    missing = vocabulary.options(vocabulary.TORCH_OPTIONS, codes)
    options = [f"    {option.option},  # {option.adds}\n" for option in missing]
    if not options or run.source.format == "xplane":
        return None
    return (
        "with torch.profiler.profile(\n"
        "    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],\n"
        "    schedule=schedule(skip_first=10, wait=1, warmup=2, active=10, repeat=1),\n"
        '    on_trace_ready=tensorboard_trace_handler("logdir"),\n'
        f"{''.join(options)}) as prof:\n"
        "    for batch in loader:\n"
        "        train_step(batch)\n"
        "        prof.step()  # marks the end of a step\n"
    )


def filled_in(finding: Finding) -> str | None:
    """The rule's condition with the numbers of this run in the place of its names; None where it is not known.

    A threshold is worded in the unit of the metric that it is held against.
    """
    if finding.condition is None:
        return None
    units = {e.metric: e.unit for e in finding.evidence}
    for left, right in _COMPARED.findall(finding.condition):
        units |= {
            name: units[of] for name, of in ((left, right), (right, left)) if name in finding.params and of in units
        }
    known = {e.metric: quantity(e.value, e.unit) for e in finding.evidence}
    known |= {name: quantity(value, units.get(name, "number")) for name, value in finding.params.items()}
    return _NAME.sub(lambda name: known.get(name[0], name[0]), finding.condition)


def shown_in_timeline(finding: Finding, run: Run) -> bool:
    """Whether the timeline has a stretch that shows the finding."""
    return run.timeline is not None and bool(run.timeline.shows.get(finding.key))


def timeline_title(run: Run) -> str:
    """`step 9 of rank 3, 178 ms`."""
    drawn = run.timeline
    if drawn is None:
        return ""
    which = f"step {drawn.step}" if drawn.step is not None else "the whole recording"
    name = f"rank {drawn.worker}"
    rank = f" of {host_names(run.source).get(name, name)}" if len(run.source.workers) > 1 else ""
    return f"{which}{rank}, {ns(drawn.dur_ns)}"


def track(drawn: Track) -> str:
    """`stream 7`, `thread 1234`, or the thread's name."""
    return f"{drawn.kind} {drawn.number}" if drawn.name is None else f"thread {drawn.name}"


def timeline_sample(run: Run) -> str | None:
    """What of the step's events is left out; None where they are all there."""
    drawn = run.timeline
    if drawn is None or drawn.recorded <= len(drawn.events.name):
        return None
    return f"{len(drawn.events.name):,} of {drawn.recorded:,} events: the shortest are left out"


def tensor_cores(run: Run) -> list[tuple[str, float, str]]:
    """How the kernel time divides by its use of Tensor Cores: what, share, and the word for its colour."""
    row = next(iter(run.metrics.get("run", ())), {})
    names = ("tensor_core_share", "tensor_core_eligible_share", "tensor_core_unknown_share")
    used, eligible, unknown = (value if isinstance(value := row.get(name), float) else None for name in names)
    if used is None or eligible is None:
        return []
    parts = [
        ("use them", used, "compute"),
        ("could use them", max(0.0, eligible - used), "memcpy"),
        ("could not tell", unknown or 0.0, "launch"),
        ("no gain from them", max(0.0, 1 - eligible - (unknown or 0.0)), "other"),
    ]
    return [part for part in parts if part[1] > 0]


def tables_title(run: Run) -> str:
    """`Kernels and operators`, or which of them the run has; empty where it has neither."""
    tables = {"kernels": "kernel_group", "operators": "op"}
    return listing([name for name, scope in tables.items() if run.metrics.get(scope)]).capitalize()


def tables_says(run: Run) -> str:
    """What the numbers of the tables are numbers of."""
    of = "Calls and times of a mean step" if run.source.steps.marked else "Calls and times of the recording"
    kernels, ops = run.metrics.get("kernel_group"), run.metrics.get("op")
    several = len(run.source.devices) > 1
    whose = ["kernels of the device that sets the pace"] if kernels and several else []
    whose += ["operators of the average device"] if ops and several else []
    what = f"{of}: {listing(whose)}." if whose else f"{of}."
    host = (
        " An operator's host time is without the operators inside it, its device time that of what it launches itself."
    )
    return what + (host if ops else "")


class Flame(NamedTuple):
    """The words around a flame graph; `all` stands on the frame that holds all others."""

    title: str
    says: str
    all: str


def flame(run: Run) -> Flame | None:
    """What the time of a step by module is called: after what its frames are; None where there are no frames."""
    rows = run.metrics.get("call_tree", ())
    if all(row.get("name") is None for row in rows):  # one frame of what nothing is known of shows nothing
        return None
    kinds = {row.get("kind") for row in rows}
    parts = [next((kind for kind in ("module", "scope", "annotation") if kind in kinds), None), "operator"]
    whose = "device" if run.source.devices else "host"
    total = sum(float(row.get("total_ms") or 0) for row in rows if row.get("parent") is None)
    when = "a step" if run.source.steps.marked else "the recording"
    counted = {
        "device": "Time of kernels and copies under what launched them, where they overlap each counted",
        "host": "Time of the host's ranges, all threads together",
    }
    backward = "; the backward pass counts where the forward op ran" if "module" in kinds else ""
    return Flame(
        f"{whose.capitalize()} time by {listing([part for part in parts if part])}",
        f"{counted[whose]}{backward}.",
        f"{whose} time of {when}{', all threads' if whose == 'host' else ''}: {ms(total)}",
    )


class Stage(NamedTuple):
    """One transformation of tf.data with those that it asks for elements; `waited` is its part of all waiting."""

    name: str
    facts: list[str]
    waited: float
    critical: bool
    bottleneck: bool
    asks: list[Stage]


def pipelines(run: Run) -> list[Stage]:
    """The pipelines of tf.data that the steps ask, each from the transformation that is asked first."""
    rows = run.metrics.get("iterator", ())
    whole = sum(float(row.get("waited_ms") or 0) for row in rows)
    known = {row.get("iterator") for row in rows}
    inner: dict[Value, list[Mapping[str, Value]]] = {}
    for row in rows:
        inner.setdefault(row.get("parent") if row.get("parent") in known else None, []).append(row)

    def stage(row: Mapping[str, Value], depth: int) -> Stage:
        asked = inner.get(row.get("iterator"), []) if depth < _DEEPEST else []
        waited = float(row.get("waited_ms") or 0) / whole if whole else 0.0
        return Stage(
            name=str(row.get("transformation")),
            facts=_facts(row, run.source.steps),
            waited=waited,
            critical=bool(row.get("critical")),
            bottleneck=bool(row.get("bottleneck")),
            asks=[stage(one, depth + 1) for one in asked],
        )

    return [stage(row, 0) for row in inner.get(None, [])]


_DEEPEST: Final = 40


def pipeline_lines(run: Run) -> list[tuple[int, str]]:
    """The pipelines of tf.data in words, a line per transformation: how deep below the step, and its facts."""
    lines: list[tuple[int, str]] = []

    def tell(stage: Stage, depth: int) -> None:
        mark = ", the bottleneck" if stage.bottleneck else ", on the critical path" if stage.critical else ""
        lines.append((depth, f"{stage.name}{mark}: {', '.join(stage.facts)}"))
        for one in stage.asks:
            tell(one, depth + 1)

    for stage in pipelines(run):
        tell(stage, 0)
    return lines


def _facts(row: Mapping[str, Value], steps: Steps) -> list[str]:
    """How long the steps wait for a transformation, how long it works, how often it is asked, how much runs at once."""
    each = "each" if steps.used > 1 else "in all"
    waited, works = (
        float(row.get(f"{name}_ms") or 0) / max(1, n) for name, n in (("waited", steps.used), ("self", steps.count))
    )
    calls, parallel = row.get("calls"), row.get("parallelism")
    return [
        f"steps wait {ms(waited)} {each}" if waited > 0 else "no step waits for it",
        f"works {ms(works)} a step" if steps.count > 1 else f"works {ms(works)}",
        *([count(calls, "call")] if isinstance(calls, int) else []),
        *([f"{parallel} at once"] if isinstance(parallel, int) else []),
    ]


class Held(NamedTuple):
    """Some of the memory at the peak: what asked for it and in which part of the program, and how much of all."""

    name: str
    within: str | None
    is_code: bool
    blocks: int | None
    bytes: float
    share: float


_HELD: Final = {"others": "all others", "earlier": "held before the recording began, such as weights"}


def peak(run: Run) -> list[Held]:
    """What held the memory when it was fullest, the most first; what was there before, and the rest, last."""
    rows = run.metrics.get("memory_peak", ())
    total = sum(float(row.get("bytes") or 0) for row in rows)
    return [
        Held(
            name=_HELD.get(str(row.get("what"))) or str(row.get("op") or "asked for outside any recorded op"),
            within=None if row.get("within") is None else str(row["within"]),
            is_code=row.get("op") is not None,
            blocks=blocks if isinstance(blocks := row.get("blocks"), int) else None,
            bytes=float(row.get("bytes") or 0),
            share=float(row.get("bytes") or 0) / total,
        )
        for row in rows
        if total
    ]


def tally(run: Run) -> str:
    """How the rules came out, so that silence does not pass for health: `8 rules: 3 found something, ...`."""
    fired = {finding.rule for finding in run.findings} | {s.rule for finding in run.findings for s in finding.symptoms}
    outcomes = {
        "found something": len(fired),
        "found nothing": len(run.passed),
        "could not be judged": len(run.not_evaluable),
        "suppressed": len(run.suppressed),
    }
    told = [f"{amount:,} {outcome}" for outcome, amount in outcomes.items() if amount]
    return f"{count(sum(outcomes.values()), 'rule')}: {listing(told)}" if told else "no rule applied"


def overview(report: Report) -> str:
    """`3 runs, 6 findings: 2 high, 4 medium; 2 files could not be read`."""
    severities = Counter(finding.severity for run in report.runs for finding in run.findings)
    each = [f"{severities[s]} {s}" for s in ("high", "medium", "low") if severities[s]]
    found = f"{count(severities.total(), 'finding')}{': ' if each else ''}{', '.join(each)}"
    unread = sum(1 + len(file.others) for file in report.unreadable)
    rest = f"; {count(unread, 'file')} could not be read" if unread else ""
    return f"{count(len(report.runs), 'run')}, {found}{rest}"


def reach(finding: Finding, run: Run) -> str | None:
    """The workers that a finding holds for, where there are several: `workers 0-2, 5 of 8`, `all 8 workers`."""
    read = len(run.source.workers)
    if read <= 1:
        return None
    workers, told_of = finding.scope.workers, finding.scope.told_of
    partly = bool(run.source.world_size and run.source.world_size > read)
    if len(workers) == read:
        held = f"all {read} that were recorded" if partly else f"all {read} workers"
    else:
        which = f"{'worker' if len(workers) == 1 else 'workers'} {runs_of(workers)}"
        held = f"{which} of the {read} recorded" if partly else f"{which} of {read}"
    elsewhere = len(workers) > 1 and told_of not in {None, run.source.steps.worker}
    return f"{held}, numbers of worker {told_of}" if elsewhere else held


_PACE: Final = ("own_step_ms", "own_step_excess_ms", "wait_ms")


class _Pace(NamedTuple):
    row: Mapping[str, Value]
    own_ms: float
    excess_ms: float
    wait_ms: float


def each_rank(run: Run) -> list[str]:
    """What of single ranks is worth a line; empty where there is one rank, or nothing sets any apart."""
    return [*_gpus(run), *odd_ranks(run)] or hosts(run)


def _gpus(run: Run) -> list[str]:
    """A line for each of several GPUs in exports of Nsight Systems, whose users know no ranks."""
    rows = run.metrics.get("device", ())
    if run.source.format != "nsys" or len(rows) < _SEVERAL:
        return []
    of = "" if len({row["device"] for row in rows}) == len(rows) else "worker {worker}, "
    return [f"{of.format(**row)}GPU {row['device']}: {_at_work(row)}" for row in rows]


def _at_work(row: Mapping[str, Value]) -> str:
    """How busy one GPU is, what NCCL takes of its step and what of that nothing hides, and how long it waits."""
    busy, step_ms, nccl_ms = (_number(row, name) for name in ("device_busy_share", "step_mean_ms", "communication_ms"))
    if not nccl_ms or not step_ms:
        return f"busy {percent(busy)}, no NCCL kernels"
    exposed = _number(row, "exposed_communication_ms") / step_ms
    waits = f", waits {ms(waits_ms)}" if (waits_ms := _number(row, "wait_ms")) else ""
    nccl = f"NCCL {percent(nccl_ms / step_ms)} ({row['collective_calls']}), exposed {percent(exposed)}"
    return f"busy {percent(busy)}, {nccl}{waits}"


def odd_ranks(run: Run) -> list[str]:
    """A line for each rank that takes clearly longer or shorter by itself than the typical one, the oddest first."""
    told = [_Pace(row, *map(row.get, _PACE)) for row in run.metrics.get("device", ())]  # type: ignore[arg-type] # checked below
    known = [rank for rank in told if rank.excess_ms is not None and rank.own_ms is not None]
    odd = [rank for rank in known if abs(rank.excess_ms) >= _ODD * max(rank.own_ms - rank.excess_ms, 0)]
    here = len(run.source.workers)
    rest = " for those recorded" if run.source.world_size and run.source.world_size > here else ""
    return [
        f"{owner(run, rank.row)}: {ms(rank.own_ms)} by itself, {ms(abs(rank.excess_ms))}"
        f" {'more' if rank.excess_ms > 0 else 'less'} than the typical rank; waits {ms(rank.wait_ms)}{rest}"
        for rank in sorted(odd, key=lambda rank: -abs(rank.excess_ms))
    ]


def bandwidth(run: Run) -> str | None:
    """What the large collectives reach of what their links allow; None where there are none, or no sizes.

    Where waiting for late ranks could not be told from the transfer, the largest messages tell most, and that at least.
    """
    row = next(iter(run.metrics.get("run", ())), {})
    parts = [part for part in (_reached(run, row), slowest_link(run)) if part]
    return "; ".join(parts) or None


def slowest_link(run: Run) -> str | None:
    """Which two ranks have the slowest link between them; None where links cannot be compared."""
    row = next(iter(run.metrics.get("run", ())), {})
    pair, share = row.get("slowest_pair"), row.get("slowest_pair_share")
    if not pair or not isinstance(share, float):
        return None
    if share >= 1 - _ALIKE:
        return "no link between two ranks is slower than the others"
    return f"the slowest link, between {pair}, carries {percent(share)} of the typical one"


def _reached(run: Run, row: Mapping[str, Value]) -> str | None:
    reached, allowed, share = (row.get(name) for name in _BANDWIDTH)
    if isinstance(reached, float) and isinstance(allowed, float) and isinstance(share, float):
        return (
            f"collectives of 4 MiB and more: bus bandwidth of {_gbs(reached)} where the links allow {_gbs(allowed)}"
            f" ({percent(share)})"
        )
    large = [c for c in run.metrics.get("collective", ()) if _number(c, "bytes") >= _LARGE and _number(c, "bus_gbs")]
    if not large:
        return None
    most = max(large, key=lambda c: (_number(c, "bytes"), _number(c, "bus_gbs")))
    among = (
        "from one rank to another" if most["op"] in vocabulary.POINT_TO_POINT else f"between {most['group_size']} ranks"
    )
    named = f"{most['op']} of {quantity(most['bytes'], 'bytes')} {among}"
    algorithm, bus = (_gbs(_number(most, name)) for name in ("algorithm_gbs", "bus_gbs"))
    rate = bus if most["op"] in vocabulary.POINT_TO_POINT else f"{algorithm} algorithm and {bus} bus bandwidth"
    return f"{named}: {rate}" if most.get("exact") else f"{named}: at least {rate} (waiting for late ranks is in it)"


_BANDWIDTH: Final = ("bus_bandwidth_gbs", "expected_bus_bandwidth_gbs", "link_reached_share")
_LARGE: Final = 4 << 20
_ALIKE: Final = 0.1
_SEVERAL: Final = 2


def _gbs(value: float) -> str:
    return f"{quantity(value, 'number')} GB/s"


def _number(row: Mapping[str, Value], name: str) -> float:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def hosts(run: Run) -> list[str]:
    """A line for each of several hosts, the slowest first: its mean step, and what takes most of it."""
    of_worker: dict[Value, list[Mapping[str, Value]]] = {}
    for row in run.metrics.get("step", ()):
        of_worker.setdefault(row.get("worker"), []).append(row)
    told = []
    several = len(run.source.workers) > 1 and run.source.framework in OF_XLA  # ranks of PyTorch: `odd_ranks`
    for worker in run.source.workers if several else ():
        steps = of_worker.get(worker.worker, [])
        lengths = [length for row in steps if isinstance(length := row.get("step_ms"), float)]
        most = Counter(row.get("bottleneck") for row in steps).most_common(1)
        if lengths and most:
            share = [part for row in steps if isinstance(part := row.get(f"{most[0][0]}_share"), float)]
            mean = sum(lengths) / len(lengths)
            line = f"worker {worker.worker} ({worker.name}): {ms(mean)} a step"
            told.append((-mean, f"{line}, mostly {most[0][0]} ({percent(sum(share) / len(share))})" if share else line))
    return [line for _, line in sorted(told)]


def fixes(finding: Finding, framework: str | None) -> tuple[Sequence[Fix], Sequence[Fix]]:
    """The fixes for the run's framework, and the others; all count as the run's where it has none of its own."""
    own = [fix for fix in finding.fixes if framework is None or fix.framework in {framework, "any"}]
    return (own, [fix for fix in finding.fixes if fix not in own]) if own else (finding.fixes, [])


def spot(place: Place) -> str:
    """Where in the recording a place lies: `step 9, worker 0, device 0: 61 ms from 310 ms on`."""
    owner = [f"step {place.step}"] if place.step is not None else []
    owner += [f"worker {place.worker}"] + ([f"device {place.device}"] if place.device is not None else [])
    return f"{', '.join(owner)}: {ns(place.dur_ns)} at {place.at_ms:,.3f} ms"


def pool(of: str) -> str:
    """A part of the step in words; the name itself for one of a profiler's own."""
    return vocabulary.POOLS.get(of, of)


def first_sentence(text: str) -> str:
    """The text up to its first full stop that ends a sentence."""
    return _SENTENCE.split(text, maxsplit=1)[0]


def frames(stack: str) -> list[str]:
    """The few frames of a stack that tell most: the user's own, innermost first; of libraries where there are none."""
    told = [frame.strip() for frame in re.split(r"[;\n]", stack) if frame.strip()]
    own = [frame for frame in told if not _LIBRARY.search(frame)]
    return (own or told)[:_FRAMES]


def alike(places: Iterable[Place]) -> list[list[Place]]:
    """Places of one name, op and stack together, in the order in which they first come."""
    groups: dict[tuple[str, str | None, str | None], list[Place]] = {}
    for place in places:
        groups.setdefault((place.name, place.op, place.stack), []).append(place)
    return list(groups.values())


def ranking(run: Run) -> str | None:
    """How the findings are ordered, where their severities alone would order them otherwise."""
    levels = [SEVERITIES.index(finding.severity) for finding in run.findings]
    if levels == sorted(levels):
        return None
    return (
        "ranked by what a fix is expected to give back; high, medium and low say how much time is affected and how"
        " surely a fix wins it"
    )


def web_link(text: str | None) -> str | None:
    """The text if it is a plain web address that no medium can read as anything else."""
    return text if text and _WEB.fullmatch(text) else None


def code_spans(text: str) -> list[tuple[bool, str]]:
    """The text cut at its `code` spans; each part with whether it is code."""
    return [(number % 2 == 1, part) for number, part in enumerate(_CODE.split(text)) if part]


def _format(source: Source) -> str:
    if source.framework == "cuda":
        return f"CUDA program ({source.format})"
    if source.format == "nsys" and source.framework:  # not what the framework's own profiler records
        return f"nsys profile of {source.framework}"
    return f"{source.framework} profile ({source.format})" if source.framework else f"{source.format} profile"


def _workers(source: Source) -> str:
    read = len(source.workers)
    if source.world_size and source.world_size > read:
        return f"{read} of {count(source.world_size, 'rank')}"
    return count(read, "worker")


def _devices(source: Source) -> str:
    kinds = Counter(device.name or "unnamed device" for device in source.devices)
    many = [f"{amount} \N{MULTIPLICATION SIGN} {name}" if amount > 1 else name for name, amount in kinds.items()]
    return listing(many) or "no device"


def _steps(steps: Steps) -> str:
    if not steps.marked:
        return f"no steps marked, {ms(steps.step_ms)} recorded" if steps.step_ms is not None else "no steps marked"
    used = count(steps.used, "step") if steps.used == steps.count else f"{steps.used} of {steps.count} steps used"
    if steps.step_mean_ms is None or not steps.used:
        return used
    return f"{used}, {ms(steps.step_mean_ms)}{' on average' if steps.used > 1 else ''}"


def whose(source: Source) -> str:
    """What the many of a job are: a `GPU` where a process has several, a `host` of TensorFlow or JAX, else a `rank`."""
    return "GPU" if len(source.devices) > len(source.workers) else "host" if host_names(source) else "rank"


def host_names(source: Source) -> dict[str, str]:
    """What the `rank N` of a job of TensorFlow or JAX is called: they write one file per host, named after it."""
    of_hosts = source.format == "xplane" and len(source.workers) > 1 and len(source.devices) <= len(source.workers)
    return {f"rank {worker.worker}": worker.name for worker in source.workers} if of_hosts else {}


def owner(run: Run, row: Mapping[str, Value]) -> str:
    """Whose a row of devices is: `rank 3`, `worker 0, GPU 2`, or the host's name."""
    if whose(run.source) == "GPU":
        return f"worker {row['worker']}, GPU {row['device']}"
    rank = f"rank {row['worker']}"
    return host_names(run.source).get(rank, rank)


def charts_title(names: Iterable[str], source: Source) -> str:
    """What the charts of these names are about."""
    many = f"{whose(source)}s"
    of = {"ranks": many, "heat": many, "waits": "communication", "bandwidth": "communication", "memory": "memory"}
    shown = set(names)
    told = listing(list(dict.fromkeys(about for name, about in of.items() if name in shown)))
    return told[:1].upper() + told[1:]


def _paced(source: Source) -> str:
    """Whose step the numbers are of, where there are several."""
    if len(source.workers) <= 1 or source.steps.worker is None:
        return ""
    # one step does not show who is slow and who was only late this once
    role = "which sets the pace" if source.steps.used > 1 else "whose numbers stand here"
    return f" in worker {source.steps.worker}, {role}"


def _which(steps: Sequence[tuple[int, int]], workers: int) -> str:
    numbers, owners = {step for step, _ in steps}, {worker for _, worker in steps}
    which = f"{'step' if len(numbers) == 1 else 'steps'} {runs_of(numbers)}"
    return f"{which} of {'worker' if len(owners) == 1 else 'workers'} {runs_of(owners)}" if workers > 1 else which
