"""From a judged run to its entry in the report; recordings that a schedule began at a program's end are short.

A profiler's schedule leaves a few steps, or none, where the program was about to end.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import polars as pl

from advisor.analysis.device import timeline as worst
from advisor.analysis.device.recording_cost import unprofiled_steps_ms
from advisor.analysis.device.steady_steps import ENOUGH_STEPS, two_lengths
from advisor.analysis.device.view import DeviceView, Selection
from advisor.errors import contained
from advisor.inputs.discover import Recording, workers_of
from advisor.metrics.evaluate import Measurements
from advisor.metrics.kernels.kernel_times import with_the_rest
from advisor.metrics.metric import JOB_TABLES, TABLES
from advisor.metrics.steps.breakdown import accounting
from advisor.metrics.steps.operations import pooled
from advisor.model.action import in_order
from advisor.model.clause import BARELY_RECORDED, Clause, Note
from advisor.model.finding import Finding, Value
from advisor.model.reason import Reason
from advisor.model.report import Events, Idle, Piece, Run, Span, Timeline, Track, Unreadable
from advisor.model.source import Device, LeftOutStep, Sign, Source, StepLength, Steps, Worker, Workload
from advisor.present.verdict import verdict
from advisor.rules.judge import Judgement
from advisor.runs.accounting import account
from advisor.text import bytes_, count, one_line, plain, runs_of
from advisor.vocabulary.kinds import LEFT_OUT
from advisor.vocabulary.parts import LONG

_FAR_MS: Final = 60_000  # between clocks of hosts that are set at all
_WORTH_A_NOTE: Final = 0.05
_HALF: Final = 0.5  # of the used steps: a replay of fewer is worth a note
_MATCHED: Final = 0.99  # of the time in collectives: less is worth a word
_MOST_ROWS: Final = 100  # of a table of kernels: the rest is a thousandth of the time
_MOST_ROWS_OF: Final = {
    "recorded_step": 1000,
    "step_part": 8000,
    "kernel_group": 1000,
    "activity": 5000,
    "call": 5000,
    "memory": 600,
    "over_time": 4096,
    "call_tree": worst.MOST_FRAMES,
}
_MOST_STEPS: Final = 1 << 15  # of a device; a row of more fills memory and tells nothing new
_MOST_PACES: Final = 4096  # ranks x steps: more cells than a heat map has room for
_MOST_PAIRS: Final = 4096  # of ranks that wait for each other
# tables of which the report has only the rows of the view that sets the job's pace
_OF_PACE: Final = frozenset(
    {"recorded_step", "step_part", "kernel_group", "memory", "memory_peak", "call_tree", "iterator"}
)
_LONGEST: Final = 200  # characters of a name in a timeline


def summarise(name: str, path: str, measurements: Measurements, judgement: Judgement) -> Run:
    """The report's entry for one run."""
    selection = measurements.selection
    slowest = selection.of(measurements.pace)
    row = measurements.frames["run"].row(0, named=True)
    source = _source(path, selection, slowest, row)
    timeline = contained(partial(_timeline, measurements, judgement.findings), lambda _: None)
    for view in selection.views:
        view.forget()  # the report's rows take the place of what they were computed from
    workload = _workload(measurements.frames.get("sign"))
    notes = (*source.notes, *map(Reason.of, judgement.notes))
    run = Run(
        name=plain(name),
        verdict="",
        source=source.model_copy(update={"notes": notes, "workload": workload}),
        **_outcomes(judgement),
        metrics=dict.fromkeys((*TABLES, *JOB_TABLES), ())  # of one that could not be computed
        | {
            scope: tuple(
                contained(partial(_rows_of, scope, frame, selection, slowest), lambda _: pl.DataFrame()).to_dicts()
            )
            for scope, frame in measurements.frames.items()
        },
        timeline=timeline,
    )
    parts = measurements.frames.get("accounting")
    return _concluded(run, [] if parts is None else _of_view(parts, slowest).to_dicts())


def _outcomes(judgement: Judgement) -> dict[str, Any]:
    names = ("findings", "not_evaluable", "passed", "not_applicable", "suppressed")
    return {name: getattr(judgement, name) for name in names}


def _concluded(run: Run, rows: Sequence[Mapping[str, Value]]) -> Run:
    """The entry with what its findings and numbers come to: the accounting from its rows, and the verdict."""
    steps = run.source.steps
    known = account(rows, steps, run.findings, run.not_evaluable)
    run = run.model_copy(update={"accounting": known})
    run = run.model_copy(update={"findings": in_order(run.findings, run.actions)})
    return run.model_copy(update={"verdict": verdict(run)})


def _workload(signs: pl.DataFrame | None) -> Workload:
    if signs is None:
        return Workload()
    rows = signs.unique(["kind", "code"], keep="first", maintain_order=True)
    signs_of_code = (
        Sign(**row | {"example": one_line(row["example"] or "", _LONGEST) or None})
        for row in rows.select(*Sign.model_fields).to_dicts()
    )
    return Workload(kinds=tuple(rows["kind"].unique(maintain_order=True)), signs=tuple(signs_of_code))


def judged_again(run: Run, judgement: Judgement, notes: Sequence[Reason], on_files: Sequence[Reason]) -> Run:
    """A run's entry with another judgement: `notes` on what was read stand before its own, `on_files` behind."""
    fresh = _with_notes(run, [*notes, *map(Reason.of, judgement.notes), *on_files])
    fresh = fresh.model_copy(update=_outcomes(judgement))
    parts = run.accounting.parts if run.accounting else ()  # a stored entry has no tables
    usual = 1 - sum(part.share for part in parts if part.part == LONG)
    return _concluded(fresh, [{"part": part.part, "share": part.share / usual} for part in parts if part.part != LONG])


def _with_notes(run: Run, notes: Sequence[Reason]) -> Run:
    return run.model_copy(update={"source": run.source.model_copy(update={"notes": tuple(notes)})})


def _rows_of(scope: str, frame: pl.DataFrame, selection: Selection, view: DeviceView) -> pl.DataFrame:
    """The rows of a table that the report keeps; what only charts need is of the view that sets the job's pace."""
    if scope in {"launch", "op"}:
        return pooled(frame, sum(view.steps.height for view in selection.views))
    if scope == "step":
        return frame.filter(pl.int_range(pl.len()).over("worker", "device") < _MOST_STEPS)
    if scope in {"run", "worker", "device", "accounting"}:
        return frame
    if scope == "pace":
        ranks = frame["rank"].n_unique()
        every = max(1, -(-frame.height // _MOST_PACES))  # sampled evenly over the steps
        sample = frame["step"].unique().sort().gather_every(every if ranks else 1)
        return frame.filter(pl.col("step").is_in(sample.implode())).head(_MOST_PACES)
    if scope == "wait":
        return frame.top_k(_MOST_PAIRS, by="wait_ms").sort("waiting", "awaited")
    if scope in _OF_PACE:
        frame = _of_view(frame, view)
    if scope == "call":
        frame = frame.drop("device").unique(maintain_order=True)  # a worker's, whichever device they are for
    most = _MOST_ROWS_OF.get(scope, _MOST_ROWS)
    return with_the_rest(frame, most) if scope == "kernel_group" else frame.head(most)


def _of_view(frame: pl.DataFrame, view: DeviceView) -> pl.DataFrame:
    return frame.filter(pl.col("worker") == view.worker, pl.col("device").eq_missing(view.device))


def _timeline(measurements: Measurements, findings: Sequence[Finding]) -> Timeline | None:
    step = measurements.timeline(item.metric for finding in findings for item in finding.evidence)
    if step is None:
        return None
    tracks = step.events.select("on_device", "track").unique(maintain_order=True)
    names = step.events["name"].unique(maintain_order=True).append(step.events["kind"].unique(maintain_order=True))
    texts = names.unique(maintain_order=True)
    number = {text: i for i, text in enumerate(texts)}
    place = {key: i for i, key in enumerate(tracks.rows())}
    return Timeline(
        worker=step.worker,
        device=step.device,
        step=step.step,
        start_ns=step.start_ns,
        dur_ns=step.dur_ns,
        recorded=step.recorded,
        tracks=tuple(_track(on_device, number or 0, step.threads) for on_device, number in tracks.rows()),
        texts=tuple(one_line(text or "", _LONGEST) for text in texts),
        events=Events(
            track=tuple(place[key] for key in step.events.select("on_device", "track").rows()),
            name=tuple(number[name] for name in step.events["name"]),
            kind=tuple(number[kind] for kind in step.events["kind"]),
            **{name: tuple(step.events[name]) for name in ("depth", "start_ns", "dur_ns")},
        ),
        idle=tuple(Idle(**row) for row in step.idle.to_dicts()),
        strip=tuple(Piece(**row) for row in step.strip.to_dicts()),
        parts_ns=step.parts_ns,
        shows={f.key: spans for f in findings if f.scope.workers and (spans := _spans(f, step))},
    )


def _track(on_device: bool, number: int, threads: Mapping[int, str]) -> Track:  # noqa: FBT001 - a row's column
    name = None if on_device else threads.get(number)
    return Track(kind="stream" if on_device else "thread", number=number, name=name and one_line(name, _LONGEST))


def _spans(finding: Finding, step: worst.Timeline) -> tuple[Span, ...]:
    """The places of the first of the finding's metrics that has any in the step; else the idle time it comes out of."""
    for item in finding.evidence:
        if (places := step.evidence.get(item.metric)) is not None:
            return tuple(Span(**row) for row in places.to_dicts())
    of = finding.saving.of if finding.saving else ""
    idle = step.idle.filter(pl.col("cause") == of.removesuffix("_idle")).top_k(_MOST_ROWS, by="dur_ns").sort("start_ns")
    return tuple(Span(**row) for row in idle.select("start_ns", "dur_ns").to_dicts())


def _source(path: str, selection: Selection, view: DeviceView, row: Mapping[str, Value]) -> Source:
    profile = selection.profile
    return Source(
        path=plain(path),
        format=profile.format,
        framework=_common(profile.workers["framework"]),
        world_size=_common(profile.workers["world_size"]),
        workers=tuple(
            Worker(**w | {"file": plain(w["file"]), "name": plain(w["name"])})
            for w in profile.workers.select("worker", "rank", "name", "file").to_dicts()
        ),
        devices=tuple(
            Device(
                worker=view.worker,
                device=view.device,
                name=view.facts.get("name") or (view.gpu.model if view.gpu else _described(view.facts)),
                model=view.gpu.id if view.gpu else None,
                memory_bytes=view.facts.get("memory_bytes"),
                again=bool(view.facts.get("again")),
            )
            for view in selection.views
            if view.device is not None
        ),
        steps=_steps(selection, view, row),
        salvaged=tuple(map(Reason.of, profile.salvaged)),
        notes=tuple(map(Reason.of, _notes(selection, row))),
        lacks={need: Reason.of(why) for need, why in profile.lacks.items()},
        environment=_environment(selection),
    )


def _environment(selection: Selection) -> dict[str, str]:
    """Hardware, software, communication and recording: what is the same on all workers once, the rest side by side."""
    workers = selection.profile.workers
    hardware = Counter(_hardware(of) for of in selection.views if of.device is not None and not of.facts.get("again"))
    columns = {
        "software": "software",
        "settings": "settings",
        "communication": "backend",
        "profiler": "producer",
        "recorded with": "options",
    }
    lines = {
        "hardware": [f"{n} \N{MULTIPLICATION SIGN} {kind}" if n > 1 else kind for kind, n in hardware.items()],
        **{what: [*workers[of].drop_nulls().unique(maintain_order=True)] for what, of in columns.items()},
    }
    return {what: one_line("; ".join(values), _LONGEST) for what, values in lines.items() if values}


def _hardware(view: DeviceView) -> str:
    """`NVIDIA H100 80GB HBM3 (79.2 GiB, 132 multiprocessors, capability 9)`."""
    memory, multiprocessors, capability = (view.facts.get(f) for f in ("memory_bytes", "sm_count", "capability"))
    known = [
        bytes_(memory) if isinstance(memory, int) else None,
        count(multiprocessors, "multiprocessor") if isinstance(multiprocessors, int) else None,
        f"capability {capability:g}" if isinstance(capability, float) else None,
    ]
    name = view.facts.get("name") or (view.gpu.model if view.gpu else "unnamed device")
    return f"{name} ({', '.join(filter(None, known))})" if any(known) else str(name)


def _notes(selection: Selection, row: Mapping[str, Any]) -> Iterator[Note]:
    for note in (_unrecorded, _barely_recorded):
        yield from dict.fromkeys(filter(None, map(note, selection.critical)))
    pauses = row.get("graph_pause_share")
    if isinstance(pauses, float) and pauses >= _WORTH_A_NOTE:
        yield Note("graph_pauses", share=pauses)
    if row.get("waiting_views"):
        facts = {"ops": "waiting_views", "longest": "longest_waiting_view_ms", "share": "run_delay_share"}
        yield Note("few_cpus", **{fact: row[metric] or 0 for fact, metric in facts.items()})  # waits that nobody noted
    uncompiled = row.get("uncompiled_steps")
    if row.get("compiling_steps") and isinstance(uncompiled, int) and uncompiled < ENOUGH_STEPS:
        yield Note("usual_step_unknown", uncompiled=uncompiled, steps=row["steps"] or 0)
    replayed, used = row.get("replayed_steps"), row.get("steps")
    if isinstance(replayed, int) and isinstance(used, int) and replayed < _HALF * used:
        yield Note("replayed", replayed=replayed, steps=used)
    yield from _notes_on_ranks(selection, row)
    # How far the ranks' clocks and collectives agree.
    matched, shift = row.get("matched_share"), row.get("clock_shift_ms")
    if isinstance(shift, float) and shift and isinstance(matched, float) and matched:
        yield Note("ranks_aligned", shift=shift, far=int(shift > _FAR_MS))
    if isinstance(matched, float) and matched < _MATCHED:
        yield Note("unmatched", share=1 - matched)


def _unrecorded(view: DeviceView) -> Note | None:
    """What lies before the window of a recording without steps, where that begins with the device's first op."""
    before_ns = (
        0 if view.has_marks or not view.steps.height else int((view.steps["start_ns"] - view.steps["host_start_ns"])[0])
    )
    return Note("unrecorded_start", length=before_ns / 1e6) if before_ns > 0 else None


def _barely_recorded(view: DeviceView) -> Note | None:
    """What lacks in a recording of which nearly nothing is known, and so nothing can be told."""
    if not view.total_ns or view.has_marks or view.device is not None or accounting(view).height:
        return None
    return None if view.process.get("error") else Note(BARELY_RECORDED)  # that says why


def _notes_on_ranks(selection: Selection, row: Mapping[str, Any]) -> Iterator[Note]:
    """Whose files are here, and whether they are of one job."""
    here, job = row.get("ranks_recorded"), row.get("ranks_in_job")
    if isinstance(here, int) and isinstance(job, int) and here < job:
        code = "some_ranks_of_job" if here > 1 else "one_rank_of_job"
        yield Note(code, here=here, job=job, ranks=runs_of(view.worker for view in selection.critical))
    for code in ("ranks_apart", "ranks_strangers", "ranks_sittings", "ranks_copied"):
        if ranks := row.get(code):
            yield Note(code, ranks=ranks)
    common, used = row.get("common_steps"), row.get("steps")
    if isinstance(common, int) and isinstance(used, int) and 0 < common < used:
        yield Note("common_steps", steps=common)
    if len(set(selection.profile.workers["world_size"].drop_nulls())) > 1:
        yield Note("job_sizes_differ")


def _described(facts: Mapping[str, object]) -> str | None:
    """What is known of a device without a name that could be any of several models."""
    capability, memory = facts.get("capability"), facts.get("memory_bytes")
    of = f" of capability {capability}" if capability else ""
    sized = f" with {bytes_(memory)}" if isinstance(memory, int) and memory else ""
    return f"GPU{of}{sized}" if of or sized else None


def _steps(selection: Selection, view: DeviceView, row: Mapping[str, Value]) -> Steps:
    steps = selection.steps.filter(pl.col("worker") == view.worker, pl.col("device").eq_missing(view.device))
    return Steps(
        marked=view.has_marks,
        timed_by="period",
        count=steps.height if view.has_marks else 0,
        used=view.steps.height if view.has_marks else 0,
        step_ms=row["step_ms"],
        step_mean_ms=row["step_mean_ms"],
        whole_mean_ms=row.get("whole_step_mean_ms"),
        unprofiled_ms=row.get("unprofiled_step_ms"),
        unprofiled_whole_ms=row.get("unprofiled_whole_step_ms"),
        unprofiled_steps_ms=unprofiled_steps_ms(view),
        unprofiled_delay_ms=view.process.get("unprofiled_delay_ms"),
        profiled_delay_ms=view.process.get("run_delay_ms"),
        left_out=tuple(_left_out(selection.steps.filter(pl.col("left_out").is_not_null()))),
        worker=view.worker,
        lengths=tuple(
            StepLength(steps=len(durations_ns), mean_ms=float(durations_ns.mean()) / 1e6)
            for durations_ns in (two_lengths(view.steps["dur_ns"].to_numpy()) if view.has_marks else ())
            if len(durations_ns)
        ),
    )


class _LeftOut(Clause):
    sentences = LEFT_OUT


def _left_out(steps: pl.DataFrame) -> Iterator[LeftOutStep]:
    times = pl.col("dur_ns", "left_out_ns") / 1e6
    keys = ("worker", "device", "step")
    for *key, code, incomplete, length_ms, of_ms in steps.select(*keys, "left_out", "incomplete", times).rows():
        why = Reason.of(_LeftOut(code, length=length_ms, **({} if of_ms is None else {"of": of_ms})))
        step_ms = length_ms if incomplete is None else None
        yield LeftOutStep(**dict(zip(keys, key, strict=True)), why=why, step_ms=step_ms)


def _common(values: pl.Series) -> str | int | None:
    distinct = values.unique()
    return distinct.item() if len(distinct) == 1 else None


# What a recording came to: its runs, one per job, and the files of it that cannot be read
Outcome: TypeAlias = tuple[Sequence[Run], Sequence[Unreadable]]
_FRAGMENT: Final = 0.5  # of the steps of the same processes' longest recording: a schedule records equally many


def last_cycles(recordings: Sequence[Recording], steps: Sequence[int | None]) -> dict[int, int]:
    """By number, the recordings that are only the rest of a schedule, and the longest of the same processes.

    Where the program ends amid a cycle, that is written too: it has less than half of the steps of another one. `steps`
    are 0 where nothing was recorded, None where that is not known or no steps are marked.
    """
    of_processes = defaultdict[Hashable, list[int]](list)
    for number, recording in enumerate(recordings):
        if steps[number] is not None:
            of_processes[recording.path, workers_of(recording.files)].append(number)
    longest = {number: max(alike, key=lambda n: steps[n] or 0) for alike in of_processes.values() for number in alike}
    return {n: most for n, most in longest.items() if (steps[n] or 0) < _FRAGMENT * (steps[most] or 0)}


def without_last_cycles(recordings: Sequence[Recording], outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
    """What the recordings came to, without those; the run that stays notes it."""
    steps: list[int | None] = []
    for runs, broken in outcomes:
        of_runs = [run.source.steps for run in runs]
        is_known = all(of.marked for of in of_runs) and all(file.is_empty for file in broken)
        steps.append(max((of.count for of in of_runs), default=0) if is_known else None)
    fragments = last_cycles(recordings, steps)
    omitted = Counter(fragments.values())
    for number, (runs, broken) in enumerate(outcomes):
        if number not in fragments:
            noted = [Reason.of(Note("last_cycle", recordings=times))] if (times := omitted[number]) else []
            yield [_with_notes(run, [*run.source.notes, *noted]) for run in runs], broken
