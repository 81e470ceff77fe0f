"""Which steps are used, and why the others are not; a view of each device over those that are."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from advisor.analysis.device.launches import incomplete, launched, launches
from advisor.analysis.device.restarts import restarts
from advisor.analysis.device.view import DeviceView, Selection, first_uses, spans, started_in
from advisor.errors import UsageError
from advisor.inputs.names.calls import OPTIMIZER_STEP
from advisor.inputs.names.engines import varies
from advisor.inputs.step_periods import ENDED_EARLY, FILE_CUT, LAUNCHING, NO_DEVICE_WORK
from advisor.model.arrays import Ints, Mask
from advisor.model.intervals import Intervals
from advisor.model.notes import Note
from advisor.model.profile import END_NS, Profile, matches, rows_where, table
from advisor.vocabulary.limits import BACKLOG_NS, THREE_SIGMA

_LEAST_OUTLIER: Final = 1.1  # times the median: in very even runs three sigmas are a fraction of a per cent
_NEIGHBOURS: Final = 11  # steps, the step itself in their midst
_ENOUGH_STEPS: Final = 3
_TWICE: Final = 2
_ENDS: Final = (OPTIMIZER_STEP, r"^c10d::_?(?:all_?reduce|reduce_scatter)")  # of an accumulation of gradients
_MORE_WORK: Final = 1.2  # times the ops of any other step: validation, a rollout; an op or two more are none
_RESTARTS: Final = 0.5  # of what a step takes longer: with so much of it, new workers of the loader made it long
_FIRST_USES: Final = 0.5  # of what the first step takes longer: with so much of it, first uses made it long
_OTHER_KINDS: Final = ["input", "gc", "compile", "allocator", "sync"]
_LITTLE: Final = 0.01  # of the time until then
_RANGE = re.compile(r"^(\d*):(\d*)$")

_MOST_DEVICES: Final = 16
_MANY_OPS: Final = 1_000
"""Each device is measured by itself, for a third of a second: of more, those count that have so much work."""

Why: TypeAlias = tuple[pl.Expr, pl.Expr | int | None]
"""Whether a step is left out for a reason, and the time in ns that the reason speaks of."""

STEADY: Final = "steady"
ALL: Final = "all"


def select_steps(profile: Profile, choice: str = STEADY) -> Selection:
    """The profile over the steps that `choice` names: `steady`, `all`, or `A:B` (step numbers, B excluded).

    Raises:
        UsageError: `choice` is none of these, or leaves no step.
    """
    profile, steps = _of_working_devices(profile, _steps_or_recordings(profile))
    looked = pl.concat(
        _left_out(_with_holes(rows, profile), profile, choice)
        for rows in steps.partition_by("worker", "device", maintain_order=True)
    )
    if _RANGE.match(choice) and not looked["left_out"].null_count():
        raise UsageError(f"--steps {choice}: no complete step in that range; the profile holds {_range_of(looked)}")
    keys = looked.select("worker", "device").unique().sort("worker", "device").rows()
    with_marks = set(profile.steps["worker"])
    return Selection(
        profile, looked, tuple(_view(profile, looked, *key, has_marks=key[0] in with_marks) for key in keys)
    )


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
    launching = profile.host_ops.select("worker", "kind", "name", "details").filter(launched())
    lowest = profile.devices.group_by("worker").agg(first=pl.min("device"))
    first = launching.select("worker").unique().join(lowest, on="worker", how="left")
    joined = steps.join(
        first.with_columns(pl.col("first").fill_null(0)), on="worker", how="left", maintain_order="left"
    )
    return joined.with_columns(pl.coalesce("device", "first")).drop("first")


def _of_working_devices(profile: Profile, steps: pl.DataFrame) -> tuple[Profile, pl.DataFrame]:
    """The steps of the devices that are worth measuring, and a note in the profile where these are not all."""
    keys = ["worker", "device"]
    ops = profile.device_ops.group_by(keys).len("ops")
    devices = steps.select(keys).unique().join(ops, on=keys, how="left", nulls_equal=True)
    is_worth = (pl.int_range(pl.len()) < _MOST_DEVICES) | (pl.col("ops") >= _MANY_OPS)
    some = devices.sort("ops", *keys, descending=[True, False, False], nulls_last=True).filter(is_worth)
    if some.height == devices.height:
        return profile, steps
    note = Note("busiest_devices", measured=some.height, devices=devices.height)
    noted = replace(profile, salvaged=(*profile.salvaged, note))
    return noted, steps.join(some, on=keys, how="semi", nulls_equal=True)


def _view(profile: Profile, steps: pl.DataFrame, worker: int, device: int | None, *, has_marks: bool) -> DeviceView:
    of_device = (pl.col("worker") == worker) & pl.col("device").eq_missing(device)
    devices = profile.devices.filter(pl.col("worker") == worker)
    facts = devices.filter(of_device).to_dicts()
    process = profile.workers.filter(pl.col("worker") == worker).to_dicts()
    ops = rows_where(profile.device_ops, of_device)
    possibly = pl.col("worker").eq(worker).fill_null(value=True)  # not told whose it is
    used = profile.device_ops.filter(pl.col("worker") == worker)
    in_range = pl.col("incomplete").is_null() & (pl.col("left_out") != "outside")
    return DeviceView(
        worker=worker,
        device=device,
        has_marks=has_marks,
        steps=steps.filter(of_device & pl.col("left_out").is_null()).sort("start_ns", maintain_order=True),
        outliers=steps.filter(of_device & in_range).sort("start_ns", maintain_order=True),
        cut=steps.filter(of_device & (pl.col("left_out") == FILE_CUT)).height,
        devices=used["device"].n_unique(),
        used=tuple(used["device"].drop_nulls().unique().sort()),
        working=tuple(used.filter(pl.col("kind") == "kernel")["device"].drop_nulls().unique().sort()),
        ops=ops,
        beside=used.filter(pl.col("device").ne_missing(pl.lit(device, pl.Int32))).select("start_ns", "dur_ns"),
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
        visible=devices.height or None,
        visible_names=tuple(devices["name"].drop_nulls().unique().sort()),
    )


def _recordings(profile: Profile) -> pl.DataFrame:
    """One window per device (or worker) from its first event to its last, where no steps are marked.

    A thread with nothing but ranges of the program's own is no part of it, nor is the profiler's work beside other.

    Where the profile tells when a worker's work began and ended, start-up and shutdown stay outside; so does what comes
    before a device's first op where that op had to wait: the device was at work that was not recorded. Without one,
    what follows the last op stays outside: nothing shows whether the job goes on.
    """
    end = END_NS
    does_more = pl.col("kind") != "annotation"  # ranges alone begin and end at will
    works = does_more.any().over("worker", "thread") | ~does_more.any().over("worker")
    of_program = pl.col("kind").ne_missing(pl.lit("overhead"))
    on_devices = pl.col("worker").is_in([*profile.device_ops["worker"].unique()])
    profiler_alone = ~of_program.any().over("worker") & ~on_devices
    on_host = (
        profile.host_ops.filter(of_program | profiler_alone)
        .filter(works)
        .group_by("worker")
        .agg(
            host_start=pl.min("start_ns"),
            host_end=end.max(),
            op_end=end.filter(pl.col("kind") == "op").max(),
            launches=matches(LAUNCHING).fill_null(value=False).any(),
        )
    )
    on_device = profile.device_ops.group_by("worker", "device").agg(first=pl.min("start_ns"), last=end.max())
    bounds = (
        pl.coalesce(f"work_{side}_ns", f"recorded_{side}_ns").alias(f"work_{side}_ns") for side in ("start", "end")
    )
    work = profile.workers.select("worker", *bounds)
    start = pl.coalesce("work_start_ns", "held_up", pl.min_horizontal("host_start", "first"))
    op_end = pl.when(pl.col("first").is_null()).then("op_end")
    stop = pl.min_horizontal(op_end, pl.coalesce("work_end_ns", pl.max_horizontal("host_end", "last")))
    lacks = profile.lacks.get("device_ops")
    is_cut = pl.lit(lacks is not None and "cut_off" in lacks.values)  # Kineto writes the device's work last
    of_host = pl.col("work_start_ns").is_null() & pl.col("host_start").is_not_null()
    return (
        on_host.join(on_device, on="worker", how="full", coalesce=True)
        .join(work, on="worker", how="left")
        .join(_backlog(profile, on_device), on=["worker", "device"], how="left")
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
    judged = steps.with_columns(incomplete=pl.coalesce("incomplete", why))
    if judged["incomplete"].null_count() >= _ENOUGH_STEPS:
        return judged
    return steps.with_columns(incomplete=pl.coalesce("incomplete", pl.when(why == ENDED_EARLY).then(why)))


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
    return _steady(complete, profile) if choice == STEADY else complete


def _range_of(steps: pl.DataFrame) -> str:
    return f"steps {steps['step'].to_list()[0]} to {steps['step'].to_list()[-1]}"


def _steady(steps: pl.DataFrame, profile: Profile) -> pl.DataFrame:
    """Leave out steps with compilation and outliers, unless fewer than three would remain."""
    worker = steps["worker"][0]
    compiling = spans(profile.host_ops.filter((pl.col("worker") == worker) & (pl.col("kind") == "compile")))
    host_start = steps["host_start_ns"].to_numpy()
    compiled = compiling.within(host_start, host_start + steps["host_dur_ns"].to_numpy()) > 0
    varying = [name for name in steps["name"].drop_nulls().unique() if varies(name)]
    comparable = ~pl.col("name").is_in(varying).fill_null(value=False)
    steps = steps.with_columns(
        compiled=pl.Series(compiled, dtype=pl.Boolean),
        own_ns=pl.col("dur_ns") - pl.Series(_input_ns(steps, profile), dtype=pl.Int64),
    ).with_columns(usable=pl.col("left_out").is_null() & ~pl.col("compiled") & comparable)
    slow = steps.select(_is_slow()).to_series()
    if not (compiled.any() or slow.any()):
        return steps.drop("compiled", "own_ns", "usable")
    recurs = _recurs(steps.with_columns(slow=slow), profile)
    whys = _whys(steps.with_columns(slow=slow & ~recurs), profile)
    return _without(steps.with_columns(recurs=recurs), whys).drop("compiled", "own_ns", "usable")


def _is_slow() -> pl.Expr:
    """Whether a step is far longer than most, for its wait for a batch or without it.

    A batch that comes late is the loader's pace, no exception; only the first one may wait for the loader to start. Nor
    is a step an exception that is as long as most around it: it is of another stretch of the program.
    """
    usable, first = pl.col("usable"), pl.int_range(pl.len()) == 0
    median, fence = _median_and_fence(pl.col("dur_ns").filter(usable))
    own_median, own_fence = _median_and_fence(pl.col("own_ns").filter(usable))
    is_long = (pl.col("dur_ns") > fence) & (pl.col("dur_ns") >= _LEAST_OUTLIER * median)
    is_own = (pl.col("own_ns") > own_fence) & (pl.col("own_ns") >= _LEAST_OUTLIER * own_median)
    around = pl.col("dur_ns").rolling_median(_NEIGHBOURS, min_samples=1, center=True)
    return usable & is_long & (pl.col("dur_ns") >= _LEAST_OUTLIER * around) & (is_own | first)


def _recurs(steps: pl.DataFrame, profile: Profile) -> pl.Series:
    """Whether a slow step does, at regular intervals, what the others do and more: validation, the next rollout.

    So does one that reduces gradients or updates the weights, where the others only add up gradients, and one in which
    an epoch begins with new workers of the loader. That is how the loop is, so such steps count. A step that takes
    longer for the same work does not.
    """
    slow = steps["slow"].to_numpy()
    if np.count_nonzero(slow) < _TWICE:
        return pl.Series(np.zeros_like(slow))
    starts_workers = slow & _starts_workers(steps, profile)
    if _is_regular(slow) and _does_more(slow, steps, profile):
        return pl.Series(slow, dtype=pl.Boolean)
    return pl.Series(starts_workers & _is_regular(starts_workers), dtype=pl.Boolean)


def _is_regular(steps: Mask) -> bool:
    """Whether these steps are two or more, each as far from the next."""
    at = np.flatnonzero(steps)
    return len(at) >= _TWICE and len(np.unique(np.diff(at))) == 1


def _does_more(slow: Mask, steps: pl.DataFrame, profile: Profile) -> bool:
    """Whether all slow steps run more ops than any other, or only they end an accumulation of gradients."""
    others = steps["usable"].to_numpy() & ~slow
    ran = _ops_begun(steps, profile)
    usual = ran[others].max(initial=0)
    is_more = usual > 0 and bool((ran[slow] >= _MORE_WORK * usual).all())
    ends = (_begun_like(pattern, steps, profile) for pattern in _ENDS)
    return is_more or any(begun[slow].all() and not begun[others].any() for begun in ends)


def _starts_workers(steps: pl.DataFrame, profile: Profile) -> Mask:
    """Whether an epoch's new workers are half or more of what a step takes longer than most."""
    again = restarts(rows_where(profile.host_ops, pl.col("worker") == steps["worker"][0]))
    start, length = steps["host_start_ns"].to_numpy(), steps["host_dur_ns"].to_numpy()
    anew = (again.ending | again.starting | again.waiting).within(start, start + length)
    beyond = steps["dur_ns"].to_numpy() - float(np.median(steps["dur_ns"].filter(steps["usable"]).to_numpy()))
    starts: Mask = (anew > 0) & (anew >= _RESTARTS * beyond)
    return starts


def _ops_begun(steps: pl.DataFrame, profile: Profile) -> Ints:
    """How many framework ops begin in each step on the host, or on a device where none was recorded on the host."""
    host = profile.host_ops.select("worker", "kind", "start_ns")
    rows = host.filter((pl.col("worker") == steps["worker"][0]) & (pl.col("kind") == "op"))
    if rows.height:
        return _begun(rows, steps["host_start_ns"], steps["host_dur_ns"])
    return _begun(profile.device_ops.filter(pl.col("worker") == steps["worker"][0]), steps["start_ns"], steps["dur_ns"])


def _begun_like(names: str, steps: pl.DataFrame, profile: Profile) -> Ints:
    """How many ops and ranges of such names begin in each step on the host."""
    host = profile.host_ops.select("worker", "name", "start_ns")
    rows = host.filter((pl.col("worker") == steps["worker"][0]) & matches(names))
    return _begun(rows, steps["host_start_ns"], steps["host_dur_ns"])


def _begun(rows: pl.DataFrame, starts: pl.Series, lengths: pl.Series) -> Ints:
    """How many of the rows begin in each window."""
    begins = np.sort(rows["start_ns"].to_numpy())
    counts: Ints = np.searchsorted(begins, starts + lengths) - np.searchsorted(begins, starts)
    return counts


def _whys(steps: pl.DataFrame, profile: Profile) -> Mapping[str, Why]:
    """The reasons by their codes of LEFT_OUT; the first that holds counts."""
    usable, slow, dur = pl.col("usable"), steps["slow"], pl.col("dur_ns")
    median, _ = _median_and_fence(dur.filter(usable))
    host_median, host_fence = _median_and_fence(pl.col("host_dur_ns").filter(usable))
    first = slow & (pl.int_range(pl.len()) == 0)
    # Where it ends, the queue may hold more than where it began: the host's lead.
    usual_host = pl.col("host_dur_ns") <= pl.max_horizontal(host_fence, _LEAST_OUTLIER * host_median)
    filling = pl.col("device").is_not_null() & usual_host & (dur > pl.col("host_dur_ns"))
    is_slow = bool(slow[0])  # of another first step nobody asks why
    loading_ns, slower_ns = (_first_uses_ns(steps, profile), _slower_ops_ns(steps, profile)) if is_slow else (0, 0)
    return {
        "compiled": (pl.col("compiled"), None),
        "queue_filling": (first & filling, None),
        "first_uses": (first & (loading_ns >= _FIRST_USES * (dur - median)), loading_ns),
        "first_pass": (first & pl.lit(_is_from_start(steps, profile)), dur.filter(usable & ~slow).median()),
        "cold_ops": (first & (slower_ns >= _FIRST_USES * (dur - median)), slower_ns),
        # of the steps that are used, as everywhere else
        "outlier": (pl.lit(slow), dur.filter(usable & ~slow).median()),
    }


def _is_from_start(steps: pl.DataFrame, profile: Profile) -> bool:
    """Whether the recording holds the process's start, so that the first step is the first of all."""
    of_worker = profile.workers.filter(pl.col("worker") == steps["worker"][0])
    return of_worker["work_start_ns"].drop_nulls().len() > 0


def _without(steps: pl.DataFrame, whys: Mapping[str, Why]) -> pl.DataFrame:
    """The steps with the reasons in `left_out`, unless fewer than three would remain."""
    codes = (pl.when(holds).then(pl.lit(code)) for code, (holds, _) in whys.items())
    judged = steps.with_columns(steady=pl.coalesce("left_out", *codes))
    if judged["steady"].null_count() < _ENOUGH_STEPS:
        return steps
    times = pl.coalesce(pl.when(pl.col("steady") == code).then(ns) for code, (_, ns) in whys.items())
    return judged.with_columns(left_out="steady", left_out_ns=times.cast(pl.Int64)).drop("steady")


def _input_ns(steps: pl.DataFrame, profile: Profile) -> Ints:
    """Time in each step in which a batch is asked for and the device idles."""
    worker, device = steps["worker"][0], steps["device"][0]
    asks = spans(profile.host_ops.filter((pl.col("worker") == worker) & (pl.col("kind") == "input")))
    busy = spans(
        profile.device_ops.filter((pl.col("worker") == worker) & pl.col("device").eq_missing(pl.lit(device, pl.Int32)))
    )
    start = steps["start_ns"].to_numpy()
    end = start + steps["dur_ns"].to_numpy()
    waits: Ints = asks.within(start, end) - (asks & busy).within(start, end)
    return waits


def _first_uses_ns(steps: pl.DataFrame, profile: Profile) -> int:
    """Time in the first step in which its device idles during first uses of kernels."""
    worker, device = steps["worker"][0], steps["device"][0]
    if device is None:
        return 0
    ops = profile.device_ops.filter(pl.col("worker") == worker)
    uses = first_uses(rows_where(profile.host_ops, pl.col("worker") == worker), ops)
    busy = spans(ops.filter(pl.col("device") == device))
    start, length = int(steps["start_ns"][0]), int(steps["dur_ns"][0])
    within = uses & Intervals.of([start], [start + length])
    return within.total - (within & busy).total


def _slower_ops_ns(steps: pl.DataFrame, profile: Profile) -> int:
    """What the ops of a first step without a device take beyond their usual time, where the next steps run them too.

    Caches are cold and the recorder begins its work: the same ops take longer. Where the step runs others, or more of
    them, or waits in a range that has a cause of its own, that is no start-up, and counts for nothing here.
    """
    if steps["device"][0] is not None or steps.height <= _ENOUGH_STEPS:
        return 0
    rows = profile.host_ops.select("worker", "kind", "name", "start_ns", "dur_ns")
    host = rows_where(rows, pl.col("worker") == steps["worker"][0])
    starts = steps["host_start_ns"].to_numpy()
    ends = starts + steps["host_dur_ns"].to_numpy()
    ops = started_in(host.filter(pl.col("kind") == "op"), starts, ends)
    times = ops.group_by("name", "window").len()
    most = times.filter(pl.col("window") > 0).group_by("name").agg(usual=pl.max("len"))
    more = times.filter(pl.col("window") == 0).join(most, on="name", how="left")
    usual = pl.col("name").is_in(more.filter(pl.col("len") <= pl.col("usual"))["name"].implode())
    running = spans(ops.filter(usual))
    apart = spans(host.filter(pl.col("kind").is_in(_OTHER_KINDS))) | spans(ops.filter(~usual))
    spent = running.within(starts, ends) - (running & apart).within(starts, ends)
    return max(0, int(spent[0] - np.median(spent[1:])))


def _median_and_fence(lengths: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """The median, and three standard deviations above it, robustly."""
    median = lengths.median()
    return median, median + THREE_SIGMA * (lengths - median).abs().median()
