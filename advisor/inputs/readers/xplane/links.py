"""What XPlane leaves to be worked out: what launched what, which step each event belongs to, and where steps end."""

from typing import Final

import numpy as np
import polars as pl

from advisor.inputs import links
from advisor.inputs.loops import FEWEST
from advisor.inputs.names.calls import INPUT_FUNCTION, JIT_CALL, LOGGING, RESULT_WAIT, SAVING, TAKES_OVER
from advisor.inputs.readers.xplane.names import copies
from advisor.inputs.step_marks import Marks, confidence, repeating
from advisor.inputs.step_periods import device_periods, device_windows, host_periods
from advisor.model.clause import Note
from advisor.model.intervals import Intervals, Ints, around
from advisor.model.profile import END_NS, HOST_OP_KINDS, TEXT, matches

_JUMPS: Final = 40  # each doubles how far is seen: more than any chain of hand-overs is long
_LOAD_NS: Final = 10_000  # what the host does in less before it dispatches is the loop itself
_DISPATCH: Final = r"^(?:PjitFunction\(|TFE_|EagerExecute|FunctionRun|SessionRun|ExecutorState::)|Execut(?:e|able)"
_FEWEST_OPS: Final = 2  # of a range that stands for a step: one call of a compiled program may be all of it
_DISPATCHES: Final = ["op", "runtime", "sync", "collective", "compile"]
_SENDS: Final = r"Executable::ExecuteHelper"  # within that range, whatever the class is called
_MOST: Final = 0.8
_MOSTLY: Final = 0.5  # of a drawn step: a longer silence of the device may end it
_LITTLE: Final = 0.01  # own choice: of the step's device work, if no more follows the silence
_NO: Final = pl.lit(None, pl.Int64)
_OVERLAP: Final = 0.2  # of the time of all: programs that run beside each other take turns in nothing


def with_launches(device: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Adds `id`, `launch` (by correlation id) and `op` (around that call); a copy's direction may be the call's."""
    device = links.with_launches(device, host)
    called = copies(pl.repeat(None, device.height, dtype=TEXT, eager=True), host["name"].gather(device["launch"]))
    of_call = pl.when(pl.col("kind") == "memcpy").then(pl.coalesce("copy_kind", called["copy_kind"]))
    return device.with_columns(copy_kind=of_call)


def steps(
    host: pl.DataFrame, device: pl.DataFrame, device_steps: pl.DataFrame, marks: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Steps per device, the host ops and the device ops with their `step`.

    Where the profiler drew steps on the devices (`drawn`), they are the steps, and an event's group tells which it is
    part of. Else `marks` (see `step_marks`) begin the steps: an event is part of the step in whose
    period (see `inputs.step_periods`) it, or what asked for it on another thread, stands. None does where nothing
    joins a device with the host and it lags behind it by a step or more.
    """
    if device_steps.height:
        device_steps = _numbered(device_steps, "device")
        groups = device_steps.select("group", "step").drop_nulls().unique("group", keep="first")
        host, device = (ops.join(groups, on="group", how="left", maintain_order="left") for ops in (host, device))
        device_steps, device = _without_strays(device_steps, device)
        return _device_periods(device_steps, marks, host, device), host, device
    periods, called = links.periods_and_launches(marks, host, device)
    host = host.with_columns(step=_owned(host, periods))
    of_call = device.join(host.select("id", "step"), left_on="launch", right_on="id", how="left", maintain_order="left")
    by_time = links.containing(periods, called, called + 1)  # where the launching call is in no step
    device = of_call.with_columns(step=pl.coalesce("step", by_time))
    used = device.filter(pl.col("step").is_not_null())["device"].unique().sort().to_list() or [None]
    windows = [device_periods(periods, device, called, number, cut_off=False) for number in used]
    return pl.concat(windows).drop("id", "group", "number"), host, device


def with_loads(host: pl.DataFrame) -> pl.DataFrame:
    """Where no request for input was recorded, what stands in for it is of kind `input`, told by its place alone.

    That is what a step's thread does in the step before it hands anything to the framework to compute: the outermost
    ranges, of users or of Python, that hold no dispatch and end before the step's first one. A wait for what earlier
    steps compute is none, nor what follows one in the step: it may need the results. So do logging and saving. What
    takes over what another thread or process made is one wherever it stands.
    """
    kind, end = pl.col("kind"), END_NS
    if not (host["kind"] == "step").any() or (host["kind"] == "input").any():
        return host
    marks = host.filter(kind == "step")
    threads = pl.col("thread").is_in(marks["thread"].unique().implode())
    dispatches = threads & (kind.is_in(_DISPATCHES) | matches(_DISPATCH)).fill_null(value=False)
    of_results = matches(f"{RESULT_WAIT}|{LOGGING}|{SAVING}").fill_null(value=False)
    takes = threads & matches(TAKES_OVER).fill_null(value=False)
    others = host.select(dispatches=dispatches, of_results=threads & of_results, takes=takes)
    no_load = others["dispatches"] | others["of_results"]
    before = pl.col("parent").fill_null(-1)
    parent = host["parent"].fill_null(-1).to_numpy()
    enclosing, taking = (around(rows.to_numpy(), parent) for rows in (no_load, others["takes"]))
    frame = host.select(
        "id", "name", "thread", "step", "kind", "dur_ns", "start_ns", parent=before, end=end
    ).with_columns(
        holds=pl.Series(no_load.to_numpy() | enclosing), is_other=no_load, takes=others["takes"] | pl.Series(taking)
    )
    first = frame.filter("is_other", pl.col("step").is_not_null()).group_by("step").agg(first=pl.min("start_ns"))
    of_parent = frame.select(parent="id", opens=(kind == "step") | (pl.col("holds") & ~pl.col("is_other")))
    ranges = (
        frame.filter(threads, kind.is_in(["annotation", "python"]), ~pl.col("holds"), pl.col("dur_ns") >= _LOAD_NS)
        .join(first, on="step")
        .join(of_parent, on="parent")
        .filter("opens")
    )
    is_early = pl.col("end") <= pl.col("first")
    is_early = is_early.all().over("name")  # in no step after a result, which may be ready without a wait
    loads = ranges.filter(is_early | pl.col("takes"))
    is_load = pl.col("id").is_in(loads["id"].implode())
    return host.with_columns(kind=pl.when(is_load).then(pl.lit("input", HOST_OP_KINDS)).otherwise("kind"))


def step_marks(host: pl.DataFrame, device: pl.DataFrame) -> Marks:
    """The ranges of the host that bear a step number.

    Where there are none, the calls of the job's jitted function; or, without a device, ranges of one thread that repeat
    and hold the work. Without a device, too, the executions of the program that does the work stand for the steps where
    there are no marks, or what they dispatch runs behind them: JAX returns from a call before the program has run.
    """
    steps = _outermost(host.filter(pl.col("kind") == "step"))
    marks = Marks(steps) if steps.height else _jit_calls(host, device)
    if device.height:
        return marks
    if not marks.steps.height:
        ranges = repeating(host.filter(~matches(RESULT_WAIT), ~matches(INPUT_FUNCTION)), device, fewest=_FEWEST_OPS)
        at = ranges.steps.select("name", start_ns="host_start_ns", dur_ns="host_dur_ns")
        annotations = host.filter(pl.col("kind") == "annotation").with_columns(pl.col("name").cast(pl.String))
        marks = Marks(_outermost(annotations.join(at, on=at.columns, how="semi")), ranges.how)
    if not marks.steps.height:
        return _executed("steps_by_executions", _outermost(repeated(host)))
    sent = sent_by(marks.steps, host)
    if not is_late(marks.steps, sent):
        return marks
    ran = _executed("steps_late_executions", _outermost(in_place_of(marks.steps, sent, host)))
    return ran if ran.steps.height else Marks(ran.steps, Note("steps_late", marks=marks.steps.height))


def _executed(code: str, steps: pl.DataFrame) -> Marks:
    if steps.height < FEWEST:
        return Marks(steps.clear())
    return Marks(steps, Note(code, program=steps["name"][0], confidence=confidence(steps)))


def _jit_calls(host: pl.DataFrame, device: pl.DataFrame) -> Marks:
    """The calls of the jitted function that launches 80 % or more of what is launched from its first call to its last.

    At least four calls of one thread, evenly apart; a job of several functions, or one that runs op by op, has none. A
    first call that takes longer than all others specialises the function: it is no step. Without a device, the calls of
    all jitted functions count as launches.
    """
    calls = host.filter(matches(JIT_CALL))
    launch = device["launch"].drop_nulls() if device.height else _outermost(calls)["id"]
    launches = np.sort(host["start_ns"].gather(launch).to_numpy())
    for (name, _), rows in calls.group_by("name", "thread", maintain_order=True):
        marks = _outermost(rows)
        lengths = marks["host_dur_ns"].to_numpy()
        if len(lengths) > 1 and lengths[0] > lengths[1:].max():
            marks = marks[1:]
        begin = marks["host_start_ns"].to_numpy()
        before, after = (np.searchsorted(launches, at) for at in (begin, begin + marks["host_dur_ns"].to_numpy()))
        inside = int((after - before).sum())
        is_loop = marks.height >= FEWEST and confidence(marks) == "medium"
        if is_loop and inside and inside >= _MOST * (after[-1] - before[0]):
            return Marks(marks, Note("steps_by_calls", call=str(name), confidence="medium"))
    return Marks(_outermost(host.clear()))


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """The outermost of these ranges as steps, in order of time and disjoint."""
    marks = ranges.select(
        *("id", "group", "name"), number="step_num", host_start_ns="start_ns", host_dur_ns="dur_ns", end=END_NS
    ).sort("host_start_ns", "end", descending=[False, True])
    before = marks["end"].cum_max().shift(1).fill_null(-1)
    return _numbered(marks.filter(marks["host_start_ns"] >= before)).drop("end")


def _numbered(marks: pl.DataFrame, *views: str) -> pl.DataFrame:
    """Adds `step`: the recorded number, or the place in the order of time where numbers are missing or used twice."""
    number = pl.col("number")
    place = pl.int_range(pl.len(), dtype=pl.Int32)
    fits = number.is_between(0, 2**31 - 1).all() & (number.n_unique() == pl.len()) & (number.null_count() == 0)
    step = pl.when(fits.over(views) if views else fits).then(number).otherwise(place.over(views) if views else place)
    name = pl.col("name").cast(pl.String)
    numbered = pl.concat_str([name, pl.col("number").cast(pl.String)], separator=" ", ignore_nulls=True)  # `train 7`
    title = pl.when(name.str.contains(r"^\d*$")).then(pl.format("step {}", name)).otherwise(numbered)
    return marks.with_columns(step=step.cast(pl.Int32), name=title)


def _owned(host: pl.DataFrame, marks: pl.DataFrame) -> pl.Series:
    """The step of each host op: that of its group, or of the range that it, or what asked for it, stands in.

    On the threads that mark the steps, time tells whose what stands between the marks is. Where no hand-over between
    threads was recorded at all, it tells for all of them. An execution of a program is of one step (see `of_runs`).
    """
    steps = np.full(host.height, -1, np.int64)
    during = links.containing(marks, host["start_ns"], host["start_ns"] + 1)
    if marks.height:
        at = np.arange(host.height)
        owner = host.select(pl.coalesce("asked_by", "parent")).to_series().fill_null(-1).to_numpy()
        owner = np.where(owner < 0, at, owner)
        owner[marks["id"].to_numpy()] = marks["id"].to_numpy()
        for _ in range(_JUMPS):
            further = owner[owner]
            if np.array_equal(further, owner):
                break
            owner = further
        of_mark = np.full(host.height, -1, np.int64)
        of_mark[marks["id"].to_numpy()] = marks["step"].to_numpy()
        ids = [marks["id"]]
        if not host["run"].gather(marks["id"]).null_count():  # programs are marks: so is what calls them
            ids.append(host.filter(matches(JIT_CALL))["id"])
        threads = host["thread"].gather(pl.concat(ids)).unique()
        timed = np.where(host["thread"].is_in(threads.implode()), during.fill_null(-1), -1)
        steps = of_mark[owner]
        for between in (timed[owner], timed):
            steps = np.where(steps < 0, between, steps)
        steps = of_runs(host, steps, owner, during.fill_null(-1).to_numpy())
    owned = pl.Series("step", steps).replace(-1, None).cast(pl.Int32)
    if host["asked_by"].null_count() == host.height:
        owned = pl.select(pl.coalesce(owned, during).alias("step")).to_series()
    groups = marks.select("group", of_group="step").drop_nulls().unique("group", keep="first")
    both = host.select("group", owned).join(groups, on="group", how="left", maintain_order="left")
    return both.select(pl.coalesce("of_group", "step")).to_series()


def _without_strays(device_steps: pl.DataFrame, device: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The drawn steps and the device ops, where the last step of a device ends before a long silence.

    The profiler draws a step to the last op of its group. A single stray op, of a callback or of the end of the
    profile, makes a step of 31 ms one of a second. No next step shows that the silence belongs to a step.
    """
    last = device_steps.sort("start_ns").unique("device", keep="last")
    ops = device.join(last.select("device", "step", length="dur_ns"), on=["device", "step"]).sort("device", "start_ns")
    ended, done = END_NS.cum_max().shift(1), pl.col("dur_ns").cum_sum() - pl.col("dur_ns")
    is_stray = (pl.col("start_ns") - ended > _MOSTLY * pl.col("length")) & (
        done >= (1 - _LITTLE) * pl.col("dur_ns").sum()
    )
    cuts = ops.with_columns(is_stray=is_stray.over("device"), ended=ended.over("device")).filter("is_stray")
    cuts = cuts.group_by("device", "step").agg(cut_ns=pl.min("ended"))
    marks, rows = (
        frame.join(cuts, on=["device", "step"], how="left", maintain_order="left") for frame in (device_steps, device)
    )
    until = pl.min_horizontal("dur_ns", pl.col("cut_ns") - pl.col("start_ns"))
    within = pl.when((pl.col("start_ns") < pl.col("cut_ns")).fill_null(value=True)).then("step")
    return marks.with_columns(dur_ns=until).drop("cut_ns"), rows.with_columns(step=within).drop("cut_ns")


def _device_periods(
    device_steps: pl.DataFrame, marks: pl.DataFrame, host: pl.DataFrame, device: pl.DataFrame
) -> pl.DataFrame:
    """Steps of every device as the profiler recorded them there, each until the next begins."""
    of_host = marks.select("group", "host_start_ns", "host_dur_ns").drop_nulls("group").unique("group", keep="first")
    rows = device_steps.sort("device", "start_ns").join(of_host, on="group", how="left", maintain_order="left")
    rows = rows.with_columns(
        host_start_ns=pl.coalesce("host_start_ns", "start_ns"), host_dur_ns=pl.coalesce("host_dur_ns", "dur_ns")
    )
    windows, strays = [], pl.DataFrame(schema={"before": pl.Int64, "kernel_end": pl.Int64})
    for steps in rows.partition_by("device", maintain_order=True):
        own = steps.sort("host_start_ns").select("device", "step", "name", "host_start_ns", "host_dur_ns")
        ends = steps.select("step", first_ns="start_ns", kernel_end=END_NS)
        windows.append(device_windows(host_periods(own, host, device), ends, strays))
    return pl.concat(windows)


def executions(host: pl.DataFrame) -> pl.DataFrame:
    """Each run of a program on the host, in order of time: id (row of its first op), run, program, start_ns, end_ns."""
    ops = host.filter(pl.col("kind") == "op", pl.col("run").is_not_null()).sort("start_ns", "id")
    return (
        ops.group_by("run", "program", maintain_order=True)
        .agg(pl.first("id"), pl.min("start_ns"), end_ns=END_NS.max())
        .sort("start_ns", "id")
    )


def sent_by(marks: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """The executions that the steps but the last dispatch; what these steps send is what is run first."""
    runs = executions(host).filter(pl.col("start_ns") >= marks["host_start_ns"].min())
    during = pl.col("start_ns").is_between(marks["host_start_ns"].min(), marks["host_start_ns"].max(), closed="left")
    calls = host.filter(during)
    helpers = calls.filter(matches(_SENDS)).height
    return runs.head(helpers or calls.filter(matches(JIT_CALL)).height)


def is_late(marks: pl.DataFrame, sent: pl.DataFrame) -> bool:
    """Whether the steps end before 80 % of what they dispatch has run: they are steps of dispatching only."""
    begin = marks["host_start_ns"].to_numpy()
    end = begin + marks["host_dur_ns"].to_numpy()
    work = Intervals.of(sent["start_ns"], sent["end_ns"])
    return bool(work.within(begin[:1], end[-1:]).sum() < _MOST * work.total)


def in_place_of(marks: pl.DataFrame, sent: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """The executions that stand for these steps: of the program that runs longest, one or equally many per step.

    None where they do not run one after another, or their number does not fit.
    """
    main = _longest(sent)
    per_step, rest = divmod(sent.filter(pl.col("program") == main).height, marks.height - 1)
    runs = executions(host).filter(pl.col("program") == main, pl.col("start_ns") >= marks["host_start_ns"].min())
    if rest or not per_step or _overlaps(runs):
        runs, per_step = runs.clear(), 1
    last = runs.gather_every(per_step, per_step - 1)
    return _until_next(runs.gather_every(per_step).head(last.height).with_columns(last["end_ns"]))


def repeated(host: pl.DataFrame) -> pl.DataFrame:
    """The executions of the one program that runs for 80 % of the time of all: at least four, one after another."""
    runs = executions(host)
    if not runs.height:
        return _until_next(runs)
    main = runs.filter(pl.col("program") == _longest(runs))
    busy, all_busy = (Intervals.of(of["start_ns"], of["end_ns"]).total for of in (main, runs))
    is_loop = main.height >= FEWEST and busy >= _MOST * all_busy and not _overlaps(main)
    return _until_next(main if is_loop else main.clear())


def of_runs(host: pl.DataFrame, steps: Ints, owner: Ints, timed: Ints) -> Ints:
    """The step of each host op (-1: none) where those of one execution are of the same one.

    That is the step that some op of it has; else, where nothing tells on which thread the program was called, the step
    during which it began. `steps` is what is known without the executions, `owner` the row of the range that each op
    leads back to, over the threads, `timed` the step during which it begins.
    """
    rows = np.flatnonzero(host["run"].is_not_null().to_numpy())
    callers = host["thread"].is_in(host.filter(matches(JIT_CALL))["thread"].unique().implode()).to_numpy()
    none = pl.when(pl.col("known") >= 0).then("known")
    ops = pl.DataFrame({"run": host["run"].gather(rows), "start": host["start_ns"].gather(rows)}).with_columns(
        known=pl.Series(steps[rows]), timed=pl.Series(timed[rows]), called=pl.Series(callers[owner[rows]])
    )
    first = pl.col("timed").sort_by("start").first()
    of_run = ops.select(
        step=pl.coalesce(none.min().over("run"), pl.when(~pl.col("called").any().over("run")).then(first.over("run")))
    )["step"].fill_null(-1)
    filled = steps.copy()
    filled[rows] = of_run.to_numpy()
    return filled


def _longest(runs: pl.DataFrame) -> str:
    total = runs.group_by("program").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    return str(total.sort("ns", "program", descending=[True, False])["program"].cast(pl.String)[0])


def _overlaps(runs: pl.DataFrame) -> bool:
    start, end = runs["start_ns"].to_numpy(), runs["end_ns"].to_numpy()
    return bool(np.maximum(end[:-1] - start[1:], 0).sum() > _OVERLAP * (end - start).sum())


def _until_next(runs: pl.DataFrame) -> pl.DataFrame:
    """As ranges: each ends where the next begins at the latest."""
    end = pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1))
    return runs.select("id", "start_ns", name="program", dur_ns=end - pl.col("start_ns"), group=_NO, step_num=_NO)
