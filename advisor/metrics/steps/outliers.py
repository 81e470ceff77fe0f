"""Steps left out because they took too long or compiled, what that costs and why; steps that do more at times.

Those that do more than the others at regular intervals validate, or roll out the next episodes, say.
"""

from collections.abc import Collection
from functools import reduce
from operator import sub
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.categories import part_spans
from advisor.analysis.device.host_lines import long_lines
from advisor.analysis.device.host_work import python_work
from advisor.analysis.device.op_work import inputs
from advisor.analysis.device.places import NOTHING, as_places, times_beyond
from advisor.analysis.device.steady_steps import ENOUGH_STEPS, empty_queue
from advisor.analysis.device.view import DeviceView, bounds, host_bounds, spans, started_in
from advisor.analysis.device.workload import workload
from advisor.inputs.names.calls import OPTIMIZER_STEP
from advisor.metrics.metric import Value, lacking, of_devices
from advisor.model.clause import Entries
from advisor.model.intervals import Floats, Intervals, Ints, Mask, shared_out
from advisor.text import runs_of
from advisor.vocabulary.kinds import ONCE, START_UP
from advisor.vocabulary.limits import THREE_SIGMA, table

_SAVING: Final = r"torch/serialization\.py\(\d+\): save|torch\.save|[Cc]heckpoint"
_CAUSES: Final[dict[str, str]] = table(__file__, "outlier_causes")
_WITHOUT_EVIDENCE: Final = ("unknown", "python")
_MOST_CAUSES: Final = 3
_HARDLY_MORE: Final = 0.02  # of the ops: a value that is logged now and then
_LONG: Final = 1.25  # times the median: as in the rule
_LEAST_SPREAD: Final = 0.03  # of the median: step times of one job vary by 1 to 3 % anyway
_MOST_OF_IT: Final = 0.7  # of how many times as long a step is: so many times as many ops make it so
_LARGER: Final = 0.5  # the same of the elements of the ops' inputs: large ones do not fit into caches
_ALWAYS_SHARE: Final = 0.05
_FIRST_STEPS: Final = 3  # steps in a row that may compile: the first, what the second finds anew, one to spare
_TELLING_SHARE: Final = 0.1  # of the excess: causes below are not named
_LABEL: Final = (
    pl.when(pl.col("left_out").is_not_null())
    .then(pl.format("{} ({})", "name", pl.col("left_out").str.replace_all("_", " ")))
    .otherwise("name")
)
_SOURCE: Final = (
    "steps are uneven above median + 3 x 1.4826 x MAD of the complete steps and 1.1 x their median, with and without "
    "their waits for input, or where compilation ran in them; a first one in which the host got ahead of the device, "
    "or of whose excess first uses of kernels (without a device: ops that all other steps run too) take half or more, "
    "is left out, but is no outlier"
)


def _beyond(view: DeviceView) -> dict[str, Ints]:
    """By cause, what the long steps take of it beyond the used steps' mean, in ns."""
    return _excess_by_cause(view, view.once(_long_steps))


def _added_ms(view: DeviceView, ns: float) -> float:
    """What so much time adds to the mean of the complete steps."""
    return ns / (view.steps.height + view.outliers.height) / 1e6


def _is_left_out_for(codes: Collection[str]) -> pl.Expr:
    return pl.col("left_out").is_in(codes).fill_null(value=False)


def _outliers_share(view: DeviceView) -> Value:
    most_ns = float(_excess(view.outliers.filter(~_is_left_out_for(ONCE)), _usual(view.steps)[1]).sum())
    return _added_ms(view, most_ns) * 1e6 / (view.total_ns / view.steps.height)


def _excess_ns(view: DeviceView) -> Floats:
    """By how much each long step exceeds the median of the used ones."""
    return _excess(view.once(_long_steps), _usual(view.steps)[0])


def _elsewhere_ns(view: DeviceView) -> float:
    """What of the long steps' excess slows down every other step too."""
    beyond, excess = view.once(_beyond), _excess_ns(view)
    always = {
        "input": _acts_always(view, "input"),
        "python": _acts_always(view, "python"),
        "compute": "serving" in view.once(workload),  # its batches are as large as the requests
    }
    return sum(float(np.minimum(beyond[cause], excess).sum()) for cause, acts in always.items() if acts)


def _ratio(view: DeviceView) -> float:
    long, (typical, _) = view.once(_long_steps), _usual(view.steps)
    return float(long["dur_ns"].to_numpy().max()) / typical if long.height and typical else 1.0


def _cause_ms(view: DeviceView, cause: str) -> float:
    """What a cause adds to the mean step in long steps, and in a first one left out."""
    left_out = view.outliers.filter(~_compiled(view, view.outliers))
    beyond, excess = _excess_by_cause(view, left_out)[cause], _excess(left_out, _usual(view.steps)[0])
    return _added_ms(view, float(np.minimum(beyond, excess).sum()))


def _long_steps(view: DeviceView) -> pl.DataFrame:
    """Steps left out for their length, without compilation in them."""
    return view.outliers.filter(~_compiled(view, view.outliers) & ~_is_left_out_for(START_UP))


def _acts_always(view: DeviceView, cause: str) -> bool:
    """Whether a cause acts in 5 % of the used steps too: then its own rule counts the uneven ones as well."""
    when = view.once(_when)[cause] - view.busy
    return (view.share(when) or 0.0) >= _ALWAYS_SHARE


def _late_compilations(view: DeviceView) -> pl.DataFrame:
    """Steps that compile after the first that did not; before it, compilation is start-up, which does not take long."""
    steps, compiled = view.complete, _compiled(view, view.complete).to_numpy()
    is_late = np.arange(len(compiled)) > 0 if _goes_on(steps, compiled) else np.cumsum(~compiled) > 0
    return steps.filter(pl.Series(compiled & is_late, dtype=pl.Boolean))


def _goes_on(steps: pl.DataFrame, compiled: Mask) -> bool:
    """Whether so many steps compile that what one takes without is unknown, and too many for the start of a job."""
    most = 1 if (steps["step"].to_numpy() > _FIRST_STEPS).all() else _FIRST_STEPS  # the start was before the recording
    return int(compiled.sum()) > most and int((~compiled).sum()) < ENOUGH_STEPS


def _compiling_ns(view: DeviceView) -> tuple[float, float]:
    """What the steps that compile again take beyond the others, and at most."""
    steps, late, compiled = view.complete, _late_compilations(view), _compiled(view, view.complete)
    if _goes_on(steps, compiled.to_numpy()):
        busy = view.busy if view.device is not None else view.once(part_spans)["operators"]  # these may go on meanwhile
        alone, each = view.host_spans("compile") - busy, Intervals.of(*bounds(steps.filter(compiled)))
        most = alone if view.device is not None else each - busy  # what follows the ops may begin sooner, too
        return float(alone.within(*bounds(late)).sum()), float((most & each).total)
    typical, short = _usual(steps.filter(~compiled)) if late.height else (0.0, 0.0)
    return float(_excess(late, typical).sum()), float(_excess(late, short).sum())


def _usual(steps: pl.DataFrame) -> tuple[float, float]:
    """The median length of these steps, and how short they get."""
    length = steps["dur_ns"].to_numpy()
    median = float(np.median(length))
    return median, median - max(THREE_SIGMA * float(np.median(np.abs(length - median))), _LEAST_SPREAD * median)


def _excess(steps: pl.DataFrame, usual: float) -> Floats:
    return (steps["dur_ns"].to_numpy() - usual).clip(0)


def _compiled(view: DeviceView, steps: pl.DataFrame) -> pl.Series:
    return pl.Series(view.host_spans("compile").within(*host_bounds(steps)) > 0, dtype=pl.Boolean)


def _excess_by_cause(view: DeviceView, steps: pl.DataFrame) -> dict[str, Ints]:
    """By cause, the ns in each of `steps` beyond the mean of the used steps; the first cause owns an instant."""
    usual, long = _owned(view, view.steps), _owned(view, steps)
    return {cause: np.maximum(long[cause] - int(usual[cause].mean()), 0) for cause in long}


def _owned(view: DeviceView, steps: pl.DataFrame) -> dict[str, Ints]:
    starts, ends = bounds(steps)
    of_causes = shared_out(view.once(_when), starts, ends)
    return of_causes | {"unknown": ends - starts - sum(of_causes.values())}


def _when(view: DeviceView) -> dict[str, Intervals]:
    """When each cause acts, by priority."""
    saving = spans(view.host_like(_SAVING, "python", "annotation"))
    return {
        "compute": view.device_spans("kernel"),
        "collective": view.device_spans("collective") | view.host_spans("collective"),
        "compile": view.host_spans("compile"),
        "gc": view.host_spans("gc"),
        "checkpoint": saving | spans(view.ops.filter(pl.col("copy_kind") == "DtoH")),
        "allocator": view.host_spans("allocator"),
        "input": view.host_spans("input"),
        "python": view.once(python_work),
    }


def _causes(view: DeviceView) -> Entries:
    """Their time in all of those steps."""
    sums = sorted(((int(time.sum()), cause) for cause, time in view.once(_beyond).items()), reverse=True)
    causes = [(ns, cause) for ns, cause in sums if ns > _TELLING_SHARE * sum(ns for ns, _ in sums)][:_MOST_CAUSES]
    return [{"name": _called(view, cause), "ms": ns / 1e6} for ns, cause in causes]


def _first_cause(view: DeviceView) -> str:
    if not view.once(_long_steps).height:
        return ""
    beyond = view.once(_beyond)
    cause = max(beyond, key=lambda cause: int(beyond[cause].sum()))
    if cause in _WITHOUT_EVIDENCE and _more_of_the_same(view):
        return "work"
    is_slower = cause in _WITHOUT_EVIDENCE and view.device is None and _same_work(view)
    if is_slower and _may_be_of_machine(view, cause, int(beyond[cause].sum())):
        return "machine"
    return "host" if cause == "unknown" and view.once(_other_work) is not None else cause


def _may_be_of_machine(view: DeviceView, cause: str, longer_ns: int) -> bool:
    """Whether other programs may be what makes the same ops take so much longer.

    They kept the CPU from the job for half of it, or the ops themselves take longer, which another program's use of the
    memory makes them too. What takes longer while nothing is recorded may be the program's own, but not if none of the
    steps that were timed without the profiler, at least as many, is long.
    """
    others_ms = [*(view.process.get("before_steps_ms") or ()), *(view.process.get("after_steps_ms") or ())]
    if len(others_ms) >= view.complete.height and max(others_ms) < _LONG * np.median(others_ms):
        return True
    delay_ms = view.process.get("run_delay_ms")
    if delay_ms is not None and 2 * delay_ms * 1e6 * view.complete.height >= longer_ns:
        return True
    return delay_ms is None if cause == "python" else view.once(_other_work) is not None


def _same_work(view: DeviceView) -> bool:
    """Whether the long steps run hardly more of any op than a used step does: what takes longer is the machine's."""
    most = pl.max("len").cast(pl.Int64)
    usual, long = (_calls(view, steps, most) for steps in (view.steps, view.once(_long_steps)))
    both = long.join(usual, on="name", how="left", suffix="_usual").with_columns(pl.col("calls_usual").fill_null(0))
    more = int((both["calls"] - both["calls_usual"]).clip(0).sum())
    return usual.height > 0 and more <= _HARDLY_MORE * int(usual["calls"].sum())


def _more_of_the_same(view: DeviceView) -> bool:
    """Whether the long steps run the ops of used ones, but so many more or so much larger ones: samples differ."""
    both = (view.steps, view.once(_long_steps))
    usual, long = (_calls(view, steps, pl.sum("len") / steps.height) for steps in both)
    new = float(long.filter(~pl.col("name").is_in(usual["name"].implode()))["calls"].sum())
    calls, usual_calls = float(long["calls"].sum()), float(usual["calls"].sum())
    usual_ns, long_ns = (float(steps["dur_ns"].to_numpy().mean()) for steps in both)
    usual_sizes, sizes = (_elements(view, steps) for steps in both)
    many = calls >= usual_calls * max(_LONG, _MOST_OF_IT * long_ns / usual_ns) > 0
    return new <= _HARDLY_MORE * calls and (many or sizes >= usual_sizes * max(_LONG, _LARGER * long_ns / usual_ns) > 0)


def _elements(view: DeviceView, steps: pl.DataFrame) -> float:
    """How many the inputs of a step's ops have together, where shapes were recorded."""
    calls = _calls(view, steps, pl.sum("len") / steps.height, "shapes").iter_rows()
    return sum(float(of) * tensor.elements for shapes, of in calls for tensor in inputs(shapes, "[]") if tensor)


def _calls(view: DeviceView, steps: pl.DataFrame, of: pl.Expr, by: str = "name") -> pl.DataFrame:
    """How often each op runs in one of the steps, as `of` says of how often it does in each, `len`: name, calls."""
    ops = view.host.lazy().filter(pl.col("kind") == "op").select(pl.col(by).cast(pl.String), "start_ns").collect()
    calls = started_in(ops, *host_bounds(steps)).group_by(by, "window").len()
    return calls.group_by(by).agg(calls=of)


def _called(view: DeviceView, cause: str) -> str:
    """The cause in words; of other host work, what ran most, or that nothing of it was recorded."""
    name = view.once(_other_work) if cause == "unknown" else ""
    return NOTHING if name is None else f"{_CAUSES[cause]}{name and f', mostly {name}'}"


def _other_work(view: DeviceView) -> str | None:
    """What takes longer than usual in the long steps' time that no cause owns; None where nothing recorded does."""
    both = (view.once(_long_steps), view.steps)
    rests = ((reduce(sub, view.once(_when).values(), spans(steps)), steps.height) for steps in both)
    name: str | None = times_beyond(view, *rests)["name"][0]
    return name


measure = of_devices(__name__, source=_SOURCE)
of_compilation = of_devices(__name__)
measure("outliers_share", _outliers_share, where=as_places(lambda view: view.outliers, "steps", name=_LABEL)).says(
    "What the steps left out as uneven, but for what happens once, add to the mean step at most.",
    "sum over them of max(0, step - (median - max(3 x 1.4826 x MAD, 3 %))) / complete steps / step_mean_ms",
)
measure("outlier_steps", lambda view: view.once(_long_steps).height, unit="count").says(
    "Steps left out for their length, without compilation in them.", "count"
)
measure("outlier_numbers", lambda view: runs_of(view.once(_long_steps)["step"]), unit="text").says(
    "Which steps these are.", "their numbers, those in a row drawn together"
)
measure(
    "outlier_excess_ms",
    lambda view: _added_ms(view, float(_excess_ns(view).sum())),
    where=as_places(_long_steps, "steps", name=_LABEL),
).says(
    "What the steps left out for their length add to the mean step.",
    "sum over them of max(0, step - median of the used steps) / complete steps",
)
measure(
    "outlier_own_ms",
    lambda view: _added_ms(view, float(_excess_ns(view).sum()) - _elsewhere_ns(view)),
    where=as_places(_long_steps, "steps", name=_LABEL),
).says(
    "What the long steps add to the mean step, apart from what slows down every other step too.",
    "outlier_excess_ms, less outlier_input_ms where the used steps wait for input in 5 % of their time, less "
    "outlier_python_ms where Python keeps the device idle (without a device: works) in 5 % of it, less what a "
    "server's kernels take longer, because requests differ",
)
measure(
    "outlier_most_ms",
    lambda view: _added_ms(
        view, float(_excess(view.once(_long_steps), _usual(view.steps)[1]).sum()) - _elsewhere_ns(view)
    ),
).says(
    "What the long steps add to the mean step at most: had they been as short as the used steps get.",
    "outlier_own_ms with that median less 3 x 1.4826 x MAD (at least 3 %) in its place",
)
measure("outlier_ratio", _ratio).says(
    "How many times the typical step the longest step left out takes.",
    "longest step left out for its length / median of the used steps; 1 where there is none",
)
measure("outlier_causes", _causes, unprofiled=True).says(
    "What made the long steps long, the most time first.",
    "time by cause (as in the breakdown, saving a checkpoint told by name or copies to the host) beyond the used "
    "steps' mean; the host's other work by the ranges that ran",
)
measure("long_lines", lambda view: view.once(long_lines) or [], unit="names", unprofiled=True).says(
    "The lines that make long steps long, with their parts of all time; empty where no such were sampled.",
    "lines with half or more of what the samples have in long steps beyond the other steps' rate; up to three",
)
measure("outlier_cause", _first_cause, unit="text").says(
    "The first cause of long steps in one word; empty where there are no long steps.",
    f"one of {', '.join(_CAUSES)} with the most time; other host work is host, or unknown if not recorded; of "
    "that and Python: work, if the long steps run the ops of the used ones, 1.25 times as many or more, and 0.7 times"
    " as many for each time that they are longer, or with 1.25 and 0.5 times as many elements in their inputs; else, "
    "without a device: machine, if the long steps run at most 2 % more ops, name by name, than a used one does at "
    "most, and other programs kept the CPU from the job for half of it, or no step that was timed without the "
    "profiler takes 1.25 times their median, or what takes longer is ops (or Python, if nobody noted that)",
)
measure("outlier_input_ms", lambda view: _cause_ms(view, "input")).says(
    "What waiting for input adds to the mean step in long steps, and in a first one left out.",
    "sum over them of input time beyond the used steps' mean, at most their excess / complete steps",
)
measure("outlier_python_ms", lambda view: _cause_ms(view, "python")).says(
    "What Python between framework ops adds to the mean step in long steps, and in a first one left out.",
    "sum over them of Python's time ({slow_call} to {dispatch} on end) beyond the used steps' mean, at most their "
    "excess / complete steps",
)
of_compilation("compiling_steps", lambda view: _late_compilations(view).height, unit="count").says(
    "Steps in which code was compiled although a step without compilation had come before.",
    "steps with a compilation range after the first complete step without one; where fewer than three have none and "
    "more than three have one, or two in a recording that begins after step 3, all with one after the first step",
)
of_compilation("uncompiled_steps", lambda view: int((~_compiled(view, view.complete)).sum()), unit="count").says(
    "Complete steps in which nothing was compiled.", "complete steps without a compilation range"
)
of_compilation(
    "compiling_excess_ms",
    lambda view: _added_ms(view, view.once(_compiling_ns)[0]),
    where=as_places(_late_compilations, "steps", name=_LABEL),
).says(
    "What the steps that compile again add to the mean step.",
    "sum over them of max(0, step - median of the steps without compilation) / complete steps; with fewer than three "
    "such, the sum over them of compilation with the device idle, or without a device while no op runs",
)
of_compilation("compiling_most_ms", lambda view: _added_ms(view, view.once(_compiling_ns)[1])).says(
    "What the steps that compile again add to the mean step at most: had each got as short as the others get.",
    "sum over them of max(0, step - (that median less 3 x 1.4826 x MAD, at least 3 %)) / complete steps; "
    "with fewer than three steps that do not compile, compilation with the device idle in all others, or without a "
    "device all time in which no op runs",
)


_OF_LOOPS: Final = (
    "of the steps above the fence of outliers two or more, as far from each other, that begin 1.2 times the ops of any "
    "other, or the only reductions of gradients or updates; and those that wait for ops of JAX that others called"
)


def _recurring_ns(view: DeviceView) -> Floats:
    """By how much each step with more work exceeds the median of the others; none where it is work of these."""
    recurs = view.steps["recurs"].to_numpy()
    if not recurs.any() or empty_queue(recurs, ~recurs, view.steps, view.host):
        return np.zeros(0)
    return _excess(_recurring(view), _usual(view.steps.filter(~pl.col("recurs")))[0])


def _updates_alike(view: DeviceView) -> bool:
    recurs = view.steps["recurs"].to_numpy()
    updates = np.bincount(view.used_like(OPTIMIZER_STEP)["window"].to_numpy(), minlength=view.steps.height)
    return bool(recurs.any() and updates.min() > 0 and updates[recurs].max() <= updates[~recurs].max(initial=0))


def _recurring(view: DeviceView) -> pl.DataFrame:
    return view.steps.filter(pl.col("recurs"))


def _work(view: DeviceView) -> Entries:
    if not len(_recurring_ns(view)):
        return []
    both = (_recurring(view), view.steps.filter(~pl.col("recurs")))
    beyond = times_beyond(view, *((Intervals.of(*host_bounds(of)) - view.blocked, of.height) for of in both))
    large = beyond.drop_nulls("name").filter(pl.col("ns") >= _TELLING_SHARE * float(_recurring_ns(view).mean()))
    return [{"name": name, "ms": ns / 1e6} for name, ns in large.head(_MOST_CAUSES).rows()]


of_recurring = of_devices(
    __name__, source=_OF_LOOPS, unknown=lacking(no_marks=lambda view: not (view.has_marks and view.steps.height))
)
of_recurring(
    "recurring_steps", lambda view: _recurring(view).height, where=as_places(_recurring, "steps"), unit="count"
).says("Steps that do more than the others, at regular intervals.", "count; they are used as the others are")
of_recurring(
    "recurring_every",
    lambda view: next(iter(_recurring(view)["step"].sort().diff(null_behavior="drop")), 0),
    unit="count",
).says("How many steps lie from one step with more work to the next; 0 where there is none.", "count")
of_recurring("recurring_excess_ms", lambda view: view.per_step_ms(float(_recurring_ns(view).sum()))).says(
    "What steps with more work, at regular intervals, add to the mean step.",
    "sum over them of max(0, step - median of the other used steps) / used steps; 0 where that is work of the others",
)
of_recurring("recurring_work", _work, unit="names").says(
    "What runs longer in a step with more work than in another step, the most time first.",
    "own time per step, without waits for the device, less that in the other used steps; a tenth of the excess or more",
)
of_recurring("updates_alike", lambda view: int(_updates_alike(view)), unit="count").says(
    "1 where every step updates the weights, and steps with more work no more often than others; else 0.",
    "1 if an optimizer of PyTorch steps in each used step, and in none with more work more often than in another",
)
