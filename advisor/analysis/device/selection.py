"""Which steps are used, and why the others are not; a view of each device over those that are."""

import re
from dataclasses import replace
from typing import Final

import polars as pl

from advisor.analysis.device.launches import LAUNCHED, incomplete, launches
from advisor.analysis.device.steady_steps import ENOUGH_STEPS, steady
from advisor.analysis.device.view import DeviceView, Selection, spans
from advisor.errors import UsageError
from advisor.inputs.names.calls import LAUNCHING, THREAD_WAIT
from advisor.inputs.names.stacks import CALLBACK
from advisor.inputs.step_periods import ENDED_EARLY, FILE_CUT, LESS_WORK, NO_DEVICE_WORK
from advisor.model.clause import Note
from advisor.model.profile import END_NS, STACKS, Profile, matches, rows_where, table
from advisor.vocabulary.limits import BACKLOG_NS

_LITTLE: Final = 0.01  # of the time until then
_RANGES: Final = {  # kinds of ranges of the host, by what is below a line then
    "input": r"(?m): iterator_get_next$|DataLoaderIter\.__next__$",
    "compile": r"(?m): trace_function$|torch/_dynamo/.*: .*compile|jax/_src/compiler\.py",
}
_HALF: Final = 0.5
_RANGE = re.compile(r"^([0-9]*):([0-9]*)$")

_MOST_DEVICES: Final = 16
# Each device is measured by itself, for a third of a second: of more in a file, those count that have so much work
_MANY_OPS: Final = 1_000
STEADY: Final = "steady"
ALL: Final = "all"


def select_steps(profile: Profile, choice: str = STEADY) -> Selection:
    """The profile over the steps that `choice` names: `steady`, `all`, or `A:B` (step numbers, B excluded).

    Raises:
        UsageError: `choice` is none of these, or leaves no step.
    """
    profile = _with_ranges_of_callbacks(profile)
    profile, steps = _of_working_devices(profile, _steps_or_recordings(profile))
    looked = pl.concat(
        _left_out(_with_holes(rows, profile), profile, choice)
        for rows in steps.partition_by("worker", "device", maintain_order=True)
    )
    if _RANGE.match(choice) and not looked["left_out"].null_count():
        holds = f"the profile holds steps {looked['step'][0]} to {looked['step'][-1]}"
        raise UsageError(f"--steps {choice}: no complete step in that range; {holds}")
    keys = looked.select("worker", "device").unique().sort("worker", "device").rows()
    with_marks = set(profile.steps["worker"])
    return Selection(
        profile, looked, tuple(_view(profile, looked, *key, has_marks=key[0] in with_marks) for key in keys)
    )


def _with_ranges_of_callbacks(profile: Profile) -> Profile:
    """With ranges of loading and compiling as work where the program's callbacks make most, as `model.predict` does."""
    host = profile.host_ops
    for worker, rows in profile.workers.drop_nulls("stacks").select("worker", "stacks").rows():
        stacks = pl.DataFrame({"stack": rows}, schema={"stack": STACKS}).unnest("stack").filter(~pl.col("of_loader"))
        of_callers = pl.col("callers").list.eval(pl.element().struct["function"].str.contains(CALLBACK))
        calls_back = pl.col("function").str.contains(CALLBACK) | of_callers.list.any()
        marks = host.filter(pl.col("kind") == "step", worker=worker)
        is_of_thread = (pl.col("worker") == worker) & pl.col("thread").is_in(marks["thread"].implode())
        for kind, pattern in _RANGES.items():
            calls = stacks.filter(pl.col("below").list.join("\n").str.contains(pattern))
            of_kind, ns = is_of_thread & (pl.col("kind") == kind), int(calls.filter(calls_back)["ns"].sum())
            part = (spans(host.filter(of_kind)) & spans(marks)).total / max(1, spans(marks).total)
            if ns > _HALF * max(int(calls["ns"].sum()), part * int(stacks["ns"].sum())):  # samples cost no recording
                work = pl.when(of_kind).then(pl.lit("annotation", host.schema["kind"])).otherwise("kind")
                host = host.with_columns(kind=work)
    return replace(profile, host_ops=host)


def _steps_or_recordings(profile: Profile) -> pl.DataFrame:
    """The steps; of a worker that marks none, its whole recording."""
    at_work = {*profile.host_ops["worker"].unique(), *profile.device_ops["worker"].unique()}
    steps = profile.steps
    if not at_work <= {*steps["worker"].unique()}:
        steps = pl.concat([steps, _recordings(profile).join(steps, on="worker", how="anti")])
    steps = _on_launched_devices(steps, profile)
    return pl.concat([steps, _logs(profile).join(steps, on="worker", how="anti")])


def _logs(profile: Profile) -> pl.DataFrame:
    """The length of each worker's log of collectives: no step that can be used, for nothing else is known."""
    first, last = pl.min("called_ns").fill_null(0), pl.max("called_ns").fill_null(0)
    windows = profile.collective_log.group_by("worker", maintain_order=True).agg(start_ns=first, dur_ns=last - first)
    return table(
        "steps",
        windows.with_columns(
            step=0,
            name=pl.lit("whole log"),
            host_start_ns="start_ns",
            host_dur_ns="dur_ns",
            incomplete=pl.lit("only_collectives"),
        ),
    )


def _on_launched_devices(steps: pl.DataFrame, profile: Profile) -> pl.DataFrame:
    """With a device where a worker launched work and none of it was recorded: its first, as nothing says which."""
    if steps["device"].null_count() == 0:
        return steps
    launching = profile.host_ops.select("worker", "kind", "name", "details").filter(LAUNCHED)
    lowest = profile.devices.group_by("worker").agg(first=pl.min("device"))
    first = launching.select("worker").unique().join(lowest, on="worker", how="left").fill_null(0)
    joined = steps.join(first, on="worker", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("device", "first")).drop("first")


def _of_working_devices(profile: Profile, steps: pl.DataFrame) -> tuple[Profile, pl.DataFrame]:
    """The steps of the devices that are worth measuring, and a note in the profile where these are not all."""
    keys = ["worker", "device"]
    ops = profile.device_ops.group_by(keys).len("ops")
    files = profile.workers.select("worker", "file")
    devices = steps.select(keys).unique().join(files, on="worker", how="left")
    devices = devices.join(ops, on=keys, how="left", nulls_equal=True)
    is_worth = (pl.int_range(pl.len()).over("file") < _MOST_DEVICES) | (pl.col("ops") >= _MANY_OPS)
    some = devices.sort("ops", *keys, descending=[True, False, False], nulls_last=True).filter(is_worth)
    note = Note("busiest_devices", measured=some.height, devices=devices.height)
    noted = replace(profile, salvaged=(*profile.salvaged, *([note] if some.height < devices.height else [])))
    return noted, steps.join(some, on=keys, how="semi", nulls_equal=True, maintain_order="left")


def _view(profile: Profile, steps: pl.DataFrame, worker: int, device: int | None, *, has_marks: bool) -> DeviceView:
    of_device = (pl.col("worker") == worker) & pl.col("device").eq_missing(device)
    devices = profile.devices.filter(pl.col("worker") == worker)
    facts = devices.filter(of_device).to_dicts()
    process = profile.workers.filter(pl.col("worker") == worker).to_dicts()
    lacks = profile.lacking(worker)
    ops = rows_where(profile.device_ops, of_device)
    possibly = pl.col("worker").eq(worker).fill_null(value=True)  # not told whose it is
    used = rows_where(profile.device_ops, pl.col("worker") == worker)
    in_range = pl.col("incomplete").is_null() & (pl.col("left_out") != "outside")
    return DeviceView(
        worker=worker,
        device=device,
        has_marks=has_marks,
        steps=steps.filter(of_device & pl.col("left_out").is_null()).sort("start_ns", maintain_order=True),
        outliers=steps.filter(of_device & in_range).sort("start_ns", maintain_order=True),
        incomplete=steps.filter(of_device & (pl.col("left_out") == pl.col("incomplete"))),
        devices=used["device"].n_unique(),
        used=tuple(used["device"].drop_nulls().unique().sort()),
        working=tuple(used.filter(pl.col("kind") == "kernel")["device"].drop_nulls().unique().sort()),
        ops=ops,
        process_ops=used,
        host=rows_where(profile.host_ops, pl.col("worker") == worker),
        allocations=profile.allocations.filter(of_device),
        collectives=profile.collectives.join(ops.select("id"), left_on="device_op", right_on="id", how="semi"),
        collective_log=rows_where(profile.collective_log, pl.col("worker") == worker),
        threads=rows_where(profile.threads, possibly),
        os_calls=rows_where(profile.os_calls, possibly),
        off_cpu=rows_where(profile.off_cpu, possibly),
        host_samples=rows_where(profile.host_samples, possibly),
        gpu_samples=rows_where(profile.gpu_samples, of_device),
        facts=facts[0] if facts else {},
        process=process[0] if process else {},
        visible=devices.select("device", "name", "sm_count", "capability"),
        loses_ops=getattr(lacks.get("device_ops.start_ns"), "code", "") in {"unsound_times", "partial_lines"},
        host_doubt=lacks.get("host_ops.start_ns"),
        gpu_blocks=profile.allocations.filter(pl.col("bytes") > 0, worker=worker)["device"].count(),
    )


def _recordings(profile: Profile) -> pl.DataFrame:
    """One window per device (or worker) from its first event to its last, where no steps are marked.

    A thread with nothing but ranges of the program's own is no part of it, nor is the profiler's work beside other.

    Where the profile tells when a worker's work began and ended, start-up and shutdown stay outside; so does what comes
    before a device's first op where that op had to wait: the device was at work that was not recorded; or where the
    host waited to be asked for work. Without one, what follows the last op stays outside: nothing shows whether the job
    goes on.
    """
    does_more = pl.col("kind") != "annotation"  # ranges alone begin and end at will
    works = does_more.any().over("worker", "thread") | ~does_more.any().over("worker")
    of_program = pl.col("kind").ne_missing(pl.lit("overhead"))
    on_devices = pl.col("worker").is_in([*profile.device_ops["worker"].unique()])
    profiler_alone = ~of_program.any().over("worker") & ~on_devices
    by_worker = profile.host_ops.filter(of_program | profiler_alone).filter(works).group_by("worker")
    on_host = by_worker.agg(
        host_start=pl.min("start_ns"),
        host_end=END_NS.max(),
        op_end=END_NS.filter(pl.col("kind") == "op").max(),
        launches=matches(LAUNCHING).fill_null(value=False).any(),
    )
    on_device = profile.device_ops.group_by("worker", "device").agg(first=pl.min("start_ns"), last=END_NS.max())
    bounds = (
        pl.coalesce(f"work_{side}_ns", f"recorded_{side}_ns").alias(f"work_{side}_ns") for side in ("start", "end")
    )
    work = profile.workers.select("worker", *bounds)
    begun = pl.coalesce("work_start_ns", "held_up", pl.min_horizontal("host_start", "first"))
    start = pl.max_horizontal("asked", begun)
    op_end = pl.when(pl.col("first").is_null()).then("op_end")
    stop = pl.min_horizontal(op_end, pl.coalesce("work_end_ns", pl.max_horizontal("host_end", "last")))
    lacks = profile.lacks.get("device_ops")
    is_cut = pl.lit(lacks is not None and "cut_off" in lacks.values)  # Kineto writes the device's work last
    of_host = pl.all_horizontal(pl.col("work_start_ns", "asked").is_null()) & pl.col("host_start").is_not_null()
    return (
        on_host.join(on_device, on="worker", how="full", coalesce=True)
        .join(work, on="worker", how="left")
        .join(_backlog(profile, on_device), on=["worker", "device"], how="left")
        .join(_requests(profile, on_device), on="worker", how="left")
        .select(
            "worker",
            "device",
            step=pl.lit(0, pl.Int32),
            name=pl.lit("whole recording"),
            start_ns=start,
            dur_ns=stop - start,
            host_start_ns=pl.when(of_host).then("host_start").otherwise(start),
            host_dur_ns=pl.when(of_host)
            .then((pl.min_horizontal(op_end, "host_end", "work_end_ns") - pl.col("host_start")).clip(0))
            .otherwise(stop - start),
            mark_ns=pl.lit(None, pl.Int64),
            pause_ns=pl.lit(0, pl.Int64),
            incomplete=pl.when(pl.col("first").is_null()).then(
                pl.when(is_cut).then(pl.when("launches").then(pl.lit(NO_DEVICE_WORK)).otherwise(pl.lit(FILE_CUT)))
            ),
        )
        .sort("worker", "device")
    )


def _backlog(profile: Profile, on_device: pl.DataFrame) -> pl.DataFrame:
    """When the first op of a stream began (`held_up`), if that was long after its call had returned.

    A launch reaches an idle device within some 10 us: this one stood behind work launched before the recording. The
    last such stream counts before whose first op no device of the worker did anything to speak of.
    """
    calls = profile.host_ops.select(launch="id", returned=END_NS)
    ops = profile.device_ops.select("worker", "device", "stream", "launch", "start_ns", "dur_ns").sort("start_ns")
    so_far = ops.with_columns(worked=pl.col("dur_ns").cum_sum().over("worker") - pl.col("dur_ns"))
    firsts = so_far.unique(["worker", "device", "stream"], keep="first", maintain_order=True).join(calls, on="launch")
    late = firsts.join(on_device, on=["worker", "device"]).filter(
        pl.col("start_ns") - pl.col("returned") > BACKLOG_NS,
        pl.col("worked") <= _LITTLE * (pl.col("start_ns") - pl.col("first")),
    )
    return late.group_by("worker", "device").agg(held_up=pl.max("start_ns"))


def _requests(profile: Profile, on_device: pl.DataFrame) -> pl.DataFrame:
    """When the first op of a worker began (`asked`), if for most of the time before it the host waited to be asked.

    That shows on the thread with most of Python's calls. A loop that waits for its batch waits again.
    """
    first = on_device.group_by("worker").agg(asked=pl.min("first"))
    before = profile.host_ops.join(first, on="worker").filter(pl.col("start_ns") < pl.col("asked"))
    calls = before.filter((pl.col("kind") == "python") & ~(pl.col("kind") == "input").any().over("worker"))
    threads = calls.group_by("worker", "thread").len().sort("len", "thread", descending=[True, False])
    own = calls.join(threads.unique("worker", keep="first", maintain_order=True), on=["worker", "thread"], how="semi")
    waited = own.filter(matches(THREAD_WAIT), pl.col("asked") >= END_NS).group_by("worker").agg(pl.sum("dur_ns"))
    since = before.group_by("worker", "asked").agg(since=pl.min("start_ns")).join(waited, on="worker")
    return since.filter(2 * pl.col("dur_ns") > pl.col("asked") - pl.col("since")).select("worker", "asked")


def _with_holes(steps: pl.DataFrame, profile: Profile) -> pl.DataFrame:
    """One view's steps; those that lack kernels are `incomplete`.

    Kernels that are absent amid the recording make none where fewer than three others would remain.
    """
    worker, device = steps["worker"][0], steps["device"][0]
    if device is None or steps.height == 1:
        return steps
    host = rows_where(profile.host_ops, pl.col("worker") == worker)
    ops = rows_where(profile.device_ops, pl.col("worker") == worker)
    calls = launches(host, ops, ops["device"].n_unique())
    start = steps["host_start_ns"].to_numpy()
    why = incomplete(start, start + steps["host_dur_ns"].to_numpy(), calls)
    surely = pl.col("incomplete").replace(LESS_WORK, None)  # absent kernels explain that
    judged = steps.with_columns(incomplete=pl.coalesce(surely, why, "incomplete"))
    if judged["incomplete"].null_count() >= ENOUGH_STEPS:
        return judged
    return steps.with_columns(incomplete=pl.coalesce(surely, pl.when(why == ENDED_EARLY).then(why), "incomplete"))


def _left_out(steps: pl.DataFrame, profile: Profile, choice: str) -> pl.DataFrame:
    """One view's steps with `left_out`, a code of LEFT_OUT, and `left_out_ns`, the time that it speaks of.

    `recurs` says whether a steady step does more than most: see `_recurs`.
    """
    reason = pl.col("incomplete")
    steps = steps.with_columns(recurs=pl.lit(value=False))
    if (span := _RANGE.match(choice)) is not None:
        low, high = int(span[1] or 0), int(span[2] or 2**31 - 1)
        in_range = pl.col("step").is_between(low, high, closed="left")
        left_out = pl.when(~in_range).then(pl.lit("outside")).otherwise(reason)
        return steps.with_columns(left_out=left_out, left_out_ns=pl.lit(None, pl.Int64))
    if choice not in {STEADY, ALL}:
        raise UsageError(f"--steps {choice}: not steady, all or A:B (as in 10:20)")
    complete = steps.with_columns(left_out=reason, left_out_ns=pl.lit(None, pl.Int64))
    return steady(complete, profile) if choice == STEADY else complete
