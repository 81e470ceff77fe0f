"""Where Python spends the time, by sampled stacks: lines of the program, evaluation, threads that hold its lock."""

import re
from collections import Counter
from functools import partial
from math import hypot, sqrt
from typing import Any, Final

import numpy as np
import polars as pl

from advisor.analysis.device import recording_cost
from advisor.analysis.device.host_lines import MODULE, SIGMAS, Loss, entries, lock_sleeps, lock_waits, losses, place_of
from advisor.analysis.device.host_work import step_ops
from advisor.analysis.device.idle import no_frames
from advisor.analysis.device.loading_stages import taking
from advisor.analysis.device.places import FEW_SAMPLES, few_samples, sampled
from advisor.analysis.device.view import DeviceView, longest_name, spans
from advisor.inputs.names.calls import COMPILED_CALL, EAGER_CALL, KERAS_STEP, PYTHON_CALL
from advisor.inputs.names.stacks import Kind, kinds
from advisor.metrics.metric import of_devices
from advisor.model.clause import Entries, Missing, largest_first
from advisor.model.profile import matches

_OF_HOST: Final = ("host_busy", "launch_gap", "queued", "between", "operators")  # as savings come out of them
_LITTLE: Final = 0.02
_LARGE: Final = 0.1
_RECORDED: Final = 0.5
_HALF: Final = 0.5
_BLOCKS: Final = 4
_SOME: Final = 0.2  # of a line's time, from which on an op tells what it does
_ROWS: Final = r"\[(?:\d+, ?)?(?:1, ?)?(?:[2-9]|\d{2,}), ?\d+\]"  # with a dimension of one before them, or without
_APART: Final = r"\[(?:\d+, ?)?(?:[2-9]|\d{2,}), ?1, ?\d+\]"
_OF_PAIRS: Final = rf"^\[(?:{_APART}, ?{_ROWS}|{_ROWS}, ?{_APART})"
_REPAIR: Final = 0.2  # of the line: what the repair of one that a step needs may need in another way
_WITH_CACHES: Final = 0.1  # of the rest of the step on a CPU: what that gets shorter with caches for itself


def _unknown(view: DeviceView) -> Missing | None:
    if view.process.get("stacks") is None and view.host_samples.is_empty():
        return Missing("no_cpu_samples") if view.is_of_nsight else no_frames(view)
    samples = int(view.once(sampled)["samples"].sum())
    return few_samples(view, samples) if samples < FEW_SAMPLES else None


def _lines(view: DeviceView) -> list[Loss]:
    """Those without lines of a function that is a wait for input by its place, unless half of that is theirs."""
    calls = map(re.compile(PYTHON_CALL).fullmatch, view.host_like(PYTHON_CALL, "input")["name"].cast(pl.String))
    loading = {call[2] for call in calls if call}
    least = _HALF * view.once(recording_cost.unprofiled_shares).get("input", 0.0)
    return [of for of in view.once(losses) if of.share >= least or of.function.rpartition(".")[2] not in loading]


def _top(view: DeviceView) -> Loss | None:
    top = next(iter(view.once(_lines)), None)
    return top and top._replace(makes_pairs=view.once(_pairs) >= _SOME * top.share)


def _pairs(view: DeviceView) -> float:
    """The part of the step in differences of each row of one tensor and each of another, by their shapes."""
    ops = view.once(step_ops).filter(
        matches(r"^aten::r?sub$"), pl.col("shapes").cast(pl.String).str.contains(_OF_PAIRS)
    )
    return view.share(spans(ops.select("start_ns", "dur_ns").collect())) or 0.0


def _kind(top: Loss) -> Kind | None:
    """Of its calls; none where nothing is known of them."""
    return next((kind for kind in kinds() if kind.name == top.kind and kind.fix), None)


def _rewrite(top: Loss) -> Kind | None:
    """The known way to do otherwise what the line that takes most calls, where no kind decides."""
    rewrites = kinds("rewrites")
    names, call = {top.kind, "pairs" if top.makes_pairs else ""}, top.longest[1] or ""
    return next((of for of in rewrites if of.name in names or re.search(of.pattern, call)), None)


def _fix(top: Loss, *, within: bool = False) -> str:
    """What to do about the place as a whole, or `within` it about the line that takes most."""
    kind = None if within else _kind(top)
    kind = kind or (_rewrite(top) if bool(top.within) == within else None)
    return "" if kind is None else f"{kind.once} {kind.elsewhere}".rstrip() if top.is_needed else kind.fix


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    """What is saved without the line, in recorded ms: less and more twice the error; of recorded calls half, or all.

    The error has that of the samples, and how the step differs between blocks of steps. On a CPU a line at work takes
    room in caches from the rest of the step. To record Python's calls makes them longer.
    """
    top = view.once(_top)
    share = top.share if top else 0.0
    if not int(view.once(sampled)["samples"].sum()):
        return _RECORDED * view.per_step_ms(share * view.total_ns), view.per_step_ms(share * view.total_ns)
    error = SIGMAS * hypot(sqrt(1 - share) * top.error if top else 0.0, share * view.once(_unsteadiness))
    rests = top is not None and (kind := _kind(top)) is not None and kind.rests
    rest = _WITH_CACHES * (1 - share) if view.device is None and not rests else 0.0
    is_made_once = top is not None and bool(top.within) and not top.is_loop and _kind(top) is None
    repair = _REPAIR if top and top.is_needed and not is_made_once else 0.0
    if top and (other := _kind(top) or _rewrite(top)):
        repair = max(repair, other.keeps)
    least, most = max(0.0, (1 - repair) * share - error), min(1.0, share + rest + error)
    return recording_cost.recorded_ms(view, least, *_OF_HOST), recording_cost.recorded_ms(view, most, *_OF_HOST)


def _unsteadiness(view: DeviceView) -> float:
    """How blocks of steps differ: the standard deviation of their medians / the mean; 0 where that is unknown."""
    pace_ms = view.process.get("pace_ms") or ()
    ends_ms = [ms for ms in (view.process.get("before_ms"), view.process.get("after_ms")) if ms]
    blocks_ms = [*ends_ms, *(float(np.median(block)) for block in np.array_split(pace_ms, _BLOCKS) if len(block))]
    return float(np.std(blocks_ms) / np.mean(blocks_ms)) if blocks_ms else 0.0


def _line_of(view: DeviceView, calls: pl.Expr) -> dict[str, Any] | None:
    """The line that most of the samples of such calls are of, with its part of all."""
    stacks = view.once(sampled)
    of_lines = stacks.filter(calls, pl.col("line").is_not_null()).group_by("line", "function", "call")
    lines = of_lines.agg(part=pl.sum("ns") / stacks["ns"].sum()).sort("part", "line", descending=True)
    return next(lines.iter_rows(named=True), None)


_exchange: Final = partial(_line_of, calls=pl.col("kind") == "exchanging")
_DECIDES: Final = pl.element().filter(pl.element().str.contains(f"{EAGER_CALL}|{COMPILED_CALL}"))
_DISPATCH: Final = pl.col("below").list.eval(_DECIDES).list.first()  # the outermost: ops call compiled functions too


def _eager(view: DeviceView) -> dict[str, Any] | None:
    line = _line_of(view, _DISPATCH.str.contains(EAGER_CALL))
    return line | {"apart": _is_apart(view, line["function"])} if line and line["part"] >= _LARGE else None


def _is_apart(view: DeviceView, function: str) -> bool:
    """Whether a function, no expression, is none with the loop: a sampled loop calls it, and it nothing compiled."""
    stacks = view.once(sampled)
    own = stacks.filter(function=function)
    if int(own.filter(_DISPATCH.str.contains(COMPILED_CALL))["ns"].sum()) > _LARGE * int(own["ns"].sum()):
        return False
    frames = [frame for row in stacks.to_dicts() for frame in (*(row.get("callers") or ()), row)]
    of_module = {frame["line"] for frame in frames if frame["function"] == MODULE}
    around = {frame["function"] for callers in own["callers"].drop_nulls() for frame in callers}
    return not function.endswith(">") and bool(around - {MODULE} or (around and len(of_module) > 1))


def _keras_share(view: DeviceView) -> float:
    stacks = view.once(sampled)
    below, above = pl.col("below").list.join("\n"), pl.col("above").cast(pl.String)
    is_own = pl.col("function").str.contains(r"\btrain_step$") & above.str.contains("^(?:keras|tensorflow)/")
    steps = stacks.filter(below.str.contains(f"(?m){KERAS_STEP}") | is_own)
    return int(steps["ns"].sum()) / int(stacks["ns"].sum())


of_lines = of_devices(__name__, unknown=_unknown)
of_words, of_numbers = of_lines.parts_of(_top, without=""), of_lines.parts_of(_top, without=0)
of_numbers("line_share", lambda top: top.share).says(
    "Part of the step that one line of the program takes: the one that takes most without doing the step's own work.",
    "samples of its main thread in this line, each weighted by the time that it stands for / all samples; lines in "
    "forward and backward pass, updates, loading and waits for the device are the step's own, as are those of JAX in a "
    "function that loads by its place in the step, with under half of that time; at most the time outside "
    "of the framework's ops, or in which the device idles, and without the part of it that is lock_wait_share; without "
    "samples, time in recorded functions that log or save files, with a device only while it idles / step time",
)
of_lines(
    "line_time_ms", lambda view: recording_cost.recorded_ms(view, top.share if (top := _top(view)) else 0.0, *_OF_HOST)
).says(
    "Time of that line in the recorded step.", "line_share of the step without the profiler, as long as it was recorded"
)
of_words("line_place", lambda top: top.place, unit="text").says(
    "The line that takes the most time, and what it calls.",
    "file and line, and the call that most of the samples were in",
)
of_words("line_code", lambda top: top.code, unit="text").says(
    "The line itself, as a headline names it.", "line_place without the function and the line that calls it"
)
of_words("line_words", lambda top: kind.words if (kind := _kind(top)) else "", unit="text").says(
    "What that line does, where its calls are known.", "by the calls in its stacks and `inputs/names/host_calls.yaml`"
)
of_words("line_fix", _fix, unit="text").says(
    "How to do more rarely, or once, what that line does, where its calls are known.",
    "the advice for such calls; of those that each step needs, for these",
)
of_words("line_rewrite", partial(_fix, within=True), unit="text").says(
    "How to do otherwise what line_within calls, where that is known; else empty.", "as line_fix"
)
of_words("line_within", lambda top: top.within, unit="text").says(
    "Where that are several lines, or those that a call runs, the one that takes most, and what it calls; else empty.",
    "as line_share",
)
of_words("line_apart", lambda top: top.apart, unit="text").says(
    "A line of the function that has most of this, if the function does none of the step's own work; else empty.",
    "as line_share",
)
of_numbers("line_is_needed", lambda top: int(top.is_needed), unit="count").says(
    "1 where the training needs what that line computes, in each step; else 0.",
    "whether a line that trains reads what the line assigns, or what other lines compute from it: by the source",
)
of_numbers("line_is_of_model", lambda top: int(top.is_of_model), unit="count").says(
    "1 where that line is part of a module's forward pass, so that its inputs are new in each step; else 0.",
    "whether it, or a function that calls it, is named `forward`",
)
of_numbers("line_is_loop", lambda top: int(top.is_loop), unit="count").says(
    "1 where most of that line is a loop in Python; else 0.",
    "the inner line with most samples calls nothing by a name, or `zip`, `range` or the like",
)
of_lines.parts_of(_top, without=[])("inner_lines", lambda top: top.inner, unit="names").says(
    "The lines that this time is in, and what they call, where it is not that alone, with their parts of the step.",
    "up to three of 2 % of the samples or more",
)
of_lines(
    "other_lines", lambda view: entries(loss for loss in view.once(_lines)[1:] if loss.share >= _LITTLE), unit="names"
).says("The next lines of that sort, with their parts of the step.", "up to three lines of 2 % of the samples or more")
of_lines.parts_of(_exchange, without=0)("exchange_line_share", lambda line: line["part"]).says(
    "Part of the step that the line takes which calls for most of the exchanges between ranks.",
    "samples in that line, each weighted by the time that it stands for / all samples",
)
of_lines.parts_of(_exchange, without="")("exchange_line", place_of, unit="text").says(
    "The line of the program that takes most time to exchange with other ranks.",
    "of calls that are `exchanging` by `inputs/names/host_calls.yaml`, of which a backward pass has none",
)
of_ops = of_lines.parts_of(_eager, without="")
of_ops("eager_line", place_of, unit="text").says(
    "The line of the program that calls most ops of JAX or TensorFlow outside of compiled functions.",
    "of the samples in such calls; empty where it has less than a tenth of all",
)
of_ops("eager_function", lambda line: line["function"] if line["apart"] else "", unit="text").says(
    "The function to compile that this line is in; empty if it is the loop itself.",
    "a function that others call, less than a tenth of whose samples are in calls of compiled ones",
)
of_ops("eager_at", lambda line: line["line"] if line["apart"] else "", unit="text").says(
    "File and line by which `advisor try` finds that function.", "as eager_function"
)
of_lines("keras_eager_share", _keras_share).says(
    "Part of the time in which Keras' fit itself is at a step: above 0 it runs eagerly.",
    "samples below `train_step` or `one_step_on_data` / all; a compiled fit is in them only while it traces",
    "eight recordings of Keras 3: 0.27 with `run_eagerly=True`, else 0",
)
of_lines.saving("line", lambda view: view.once(_ends_ms)).says("a step without that line")


_LONG_PART: Final = 0.5  # of its time in uneven steps: from so much on it is one evaluation that was sampled by chance
_PASSES: Final = 0.3  # own choice, of its time in passes of the model: a function of such a name may check arguments
_REST: Final = 0.1


def _samples(view: DeviceView) -> int:
    return int(view.once(sampled)["samples"].sum()) if view.process.get("stacks") else 0


def _evaluation(view: DeviceView) -> pl.DataFrame:
    """The stacks of usual steps in which the model is evaluated; none where mostly something else is done there."""
    rows = view.once(sampled).filter(pl.col("evaluates").is_not_null())
    all_ns, long_ns = int(rows["ns"].sum()), int(rows["long_ns"].sum())
    passes_ns = int(rows.filter(pl.col("kind") == "training")["ns"].sum())
    return rows if long_ns < _LONG_PART * all_ns and passes_ns >= _PASSES * all_ns else rows.clear()


def _evaluation_share(view: DeviceView) -> float:
    return int(view.once(_evaluation)["ns"].sum()) / max(1, int(view.once(sampled)["ns"].sum()))


def _evaluation_ms(view: DeviceView) -> tuple[float, float]:
    """Without most evaluations, in ms: a tenth of them stays at the low end; less and more twice the standard error."""
    share, of = view.once(_evaluation_share), ("operators", "between")
    error = SIGMAS * sqrt(share * (1 - share) / view.once(_samples))
    least, most = max(0.0, (1 - _REST) * share - error), min(1.0, share + error)
    return recording_cost.recorded_ms(view, least, *of), recording_cost.recorded_ms(view, most, *of)


of_samples = of_devices(
    __name__, unknown=lambda view: few_samples(view, n) if (n := view.once(_samples)) < FEW_SAMPLES else None
)
of_samples("evaluation_share", _evaluation_share).says(
    "Part of the step in which the model is evaluated.",
    "samples of the main thread below a function of such a name (`evaluate`, `validate`, `evaluation_loop`, "
    "`estimate_loss`), weighted by time / all samples; 0 where forward passes are less than three tenths of these",
)
of_samples(
    "evaluation_name",
    lambda view: longest_name(view.once(_evaluation).select(name="evaluates", dur_ns="ns")).rpartition(": ")[2],
    unit="text",
).says("The outermost function that evaluates the model.", "its name")
of_samples.saving("evaluation", _evaluation_ms).says("a step without most evaluations")


def _unknown_threads(view: DeviceView) -> Missing | None:
    if view.process.get("threads") is not None:
        return None
    return few_samples(view, 0) if view.process.get("stacks_lack") else no_frames(view) or few_samples(view, 0)


def _threads(view: DeviceView) -> Entries:
    threads = [(place_of(thread), thread["share"]) for thread in view.process["threads"] or ()]
    several = {place: float(times) for place, times in Counter(place for place, _ in threads).items() if times > 1}
    most = largest_first(threads, "share")
    return [{**row, "count": several.get(row["name"]), "what": "of the time"} for row in most]


of_threads = of_devices(__name__, unknown=_unknown_threads)
of_threads("main_sleep_share", lambda view: view.process["sleep_share"]).says(
    "Part of the sampled time, without its waits for a CPU, in which the main thread does not run.",
    "1 - CPU time / (time while stacks were sampled - waits for a CPU), as `advisor record` notes",
    "/proc/self/task/*/schedstat",
)
of_threads("lock_wait_share", lock_waits).says(
    "Part of the step in which the main thread waits, as far as is known, for Python's lock (GIL), which another has.",
    "the lesser of lock_sleep_share and the recorded time outside of the framework's "
    "ops, or with a device in which that idles",
    "a thread that waits for the lock sleeps (CPython, `ceval_gil`), and so does one that waits for the threads of an "
    "op, but within the op",
)
of_threads("lock_sleep_share", lock_sleeps).says(
    "Part of the step in which the main thread sleeps while other threads of Python run.",
    "the lesser of main_sleep_share without the time in lines that wait for something else, and what other threads run",
    "as main_sleep_share",
)
of_threads(
    "lock_thread_line", lambda view: str(next((of["name"].split(" in `")[0] for of in _threads(view)), "")), unit="text"
).says("The line of the thread that runs most, as an action names it.", "the first of lock_threads")
of_threads("busy_thread_share", lambda view: max((of["share"] for of in view.process["threads"]), default=0.0)).says(
    "Part of the sampled time, without the main thread's waits for a CPU, that another thread of Python runs for most.",
    "CPU time of the one that runs most / (time while stacks were sampled - waits of the main thread for a CPU)",
    "as main_sleep_share",
)
of_threads("takes_over_part", lambda view: sum(view.once(taking)["ns"]) / max(1, sum(view.once(sampled)["ns"]))).says(
    "Part of the samples in which the main thread takes over what another thread or process makes.",
    "those in queue.Queue.get, concurrent.futures.Future.result, or get and next of multiprocessing.pool, weighted by "
    "the time they stand for / all",
)
of_threads("unnamed_threads_part", lambda view: view.process.get("unnamed_part") or 0.0).says(
    "Part of the CPU time of the job's threads that those of libraries take which have no name of their own.",
    "what threads ran that are not Python's and have the name of the process, as those of OpenBLAS and OpenMP, / what "
    "all threads ran while stacks were sampled; 0 with PyTorch and TensorFlow, whose own have no name either",
    "/proc/self/task/*/schedstat and comm",
)
of_threads("lock_threads", _threads, unit="names").says(
    "The other threads of Python that run most, where they are, and how much of the time they run.",
    "CPU time of the threads that have the same most frequent line while stacks were sampled "
    "(`/proc/self/task/*/schedstat`)",
)
