"""Steps as periods: from one step's start to the next, on the host and on each device, whatever the marks enclose."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from advisor.inputs.names.calls import DEVICE_WAIT, OPTIMIZER_STEP, TAKES_OVER, WORKERS_LOADING
from advisor.model.clause import Note
from advisor.model.intervals import Intervals, Ints, Mask, begun
from advisor.model.profile import END_NS, HOST_OP_KINDS, matches, spans
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import THREE_SIGMA

NO_END: Final = "no_end"
NO_DEVICE_WORK: Final = "no_device_work"
KERNELS_ABSENT: Final = "kernels_absent"
LESS_WORK: Final = "less_work"
ENDED_EARLY: Final = "ended_early"
BEGAN_BEFORE: Final = "began_before"
FILE_CUT: Final = "file_cut"
BETWEEN: Final = "the time between the marks"
_SERVING: Final = r"(?i)decode|extend|prefill|generat|infer|predict|serv(?:e|ing)|request|\breqs?\b"
PRODUCTS: Final = r"^aten::(?:addmm|mm|bmm|baddbmm|linear|matmul|convolution|conv[123]d|_scaled_dot_product\w+)$"
_FEWEST_PRODUCTS: Final = 3
_LOADING: Final = r"(?i)data|batch|load|fetch|input|next|wait"
RANGES: Final = ["annotation", "step"]
_LEAST_SILENCE: Final = 0.05  # of the periods, from where on waiting for input is a finding
_MOST_WORK: Final = 0.8  # of the device ops of a period
_MOST_WAITS: Final = 0.8  # own choice, of the time between marks: with so much in waits the host does nothing else
_USUAL: Final = 0.25  # quantile of the steps' waits for their first op: so long most of them wait
_AS_LONG: Final = 0.5  # of the first step's wait for its first op: where most wait so long, it is no filling of a queue
_TILING_SHARE: Final = 0.02  # of the period: marks with less between them touch
_CUT_OFF_SHARE: Final = 0.8  # of the neighbouring step's device work: torch-tb-profiler's rule for a last step
_LEAST_PAUSE: Final = 0.1  # of the period, as for outliers
_FEW_CALLS: Final = 10
_ENOUGH_GAPS: Final = 3  # fewer do not tell what is usual
_MOST_NAMES: Final = 3
_MOSTLY: Final = 0.5


def host_periods(marks: pl.DataFrame, host: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """The marks as periods of the host: `host_dur_ns` reaches to the next start, `mark_ns` is the mark's own length.

    The last step ends with its mark where the marks touch, or where it is the only one, and with the wait for the
    device right behind it if no more follows the others; else, and where it alone runs nothing because the recorder
    stopped, `incomplete` says that its end is unknown. `pause_ns` is what lies between a step and the next that belongs
    to neither: see `_is_pause`. `has_workers`: processes load the batches. The marks are disjoint and in order.
    """
    start, mark = marks["host_start_ns"].to_numpy(), marks["host_dur_ns"].to_numpy()
    period = np.diff(start)
    gap = np.maximum(period - mark[:-1], 0)
    usual = int(np.median(gap)) if len(gap) else 0
    has_length = mark[:-1] > 0  # between calls, which are points, lies all of the work
    pause = np.where(has_length & _is_pause(start[:-1] + mark[:-1], start[1:], host, device), gap - usual, 0)
    tiles = not len(gap) or bool(usual <= _TILING_SHARE * np.median(period))
    works = begun(host.filter(pl.col("kind").is_in(["op", *DRIVER_CALLS]))["start_ns"], start, start + mark) > 0
    is_empty = len(gap) > 0 and bool(works[:-1].all() and not works[-1:].all())
    is_last = pl.int_range(pl.len()) == pl.len() - 1
    called, ends = host["start_ns"].gather(device["launch"].drop_nulls()), start + mark
    waits = host.filter(matches(DEVICE_WAIT).fill_null(value=False))
    is_wait = spans(waits).within(ends[:-1], start[1:]).sum() >= _MOST_WAITS * gap.sum() > 0
    may_end = bool(is_wait) and not begun(called, ends[:-1], start[1:]).any()
    after = host.filter(pl.col("kind").is_in(DRIVER_CALLS), may_end, pl.col("start_ns") >= ends.max(initial=0))
    next_call = after.sort("start_ns").head(1).filter(pl.col("start_ns") <= ends.max(initial=0) + usual)
    last = next_call.join(waits, on="id", how="semi").select(END_NS).to_series().to_numpy()
    return marks.with_columns(
        host_dur_ns=pl.Series([*(period - pause), *(last - start[-1:] if len(last) else mark[-1:])], dtype=pl.Int64),
        mark_ns=pl.Series(mark, dtype=pl.Int64),
        pause_ns=pl.Series([*pause, *mark[-1:] * 0], dtype=pl.Int64),
        incomplete=pl.when(is_last & (is_empty or not (tiles or len(last)))).then(pl.lit(NO_END)),
        has_workers=host.filter(kind="input").select(matches(WORKERS_LOADING).any()).item(),
    )


def _is_pause(opens: Ints, closes: Ints, host: pl.DataFrame, device: pl.DataFrame) -> Mask:
    """Whether the time between two marks is no part of a step: evaluation, a checkpoint, whatever is no input.

    Such a gap is far longer than most. More is launched in it than in others; or it alone is so long. A long wait for a
    batch is part of the step, and so is a compilation; so are several silent ones: late batches look like that.
    """
    if len(opens) < _ENOUGH_GAPS:
        return np.zeros(len(opens), bool)
    gap = np.maximum(closes - opens, 0)
    beyond = gap - np.median(gap)
    fence = np.maximum(THREE_SIGMA * np.median(np.abs(beyond)), _LEAST_PAUSE * np.median(np.diff(closes)))
    long = beyond > fence
    waits = spans(host.filter(pl.col("kind").is_in(["input", "compile"]))).within(opens, closes)
    launches = begun(host["start_ns"].gather(device["launch"].drop_nulls()), opens, closes)
    works = launches > np.maximum(2 * np.median(launches), _FEW_CALLS)
    pauses: Mask = long & (waits < _MOSTLY * gap) & (works | (long.sum() == 1))
    return pauses


def device_windows(periods: pl.DataFrame, extents: pl.DataFrame, earlier: pl.DataFrame) -> pl.DataFrame:
    """The periods as one device sees them: `start_ns` and `dur_ns`; work in the queue counts once.

    A step begins on a device where its period on the host begins, or later, where the last kernel launched before that
    ends. The first one, and the first after a pause, finds the queue empty: what it fills into the queue is taken off
    the device's wait for its first op, so that it takes as long as its period on the host or the device's, whichever is
    longer. Where three of four steps wait half as long or longer, as for a late batch, that is how the loop is, and the
    first one's wait too; all of it is if processes load the batches, which came at their pace.

    `extents` are the first op and the end of the last kernel of each step that used the device; `earlier` are kernels
    of no step, with the row of the first period that began after their launch.
    """
    before = earlier.group_by(row="before").agg(earlier_end=pl.max("kernel_end"))
    of_host, started = pl.col("host_start_ns"), pl.col("host_start_ns") + pl.col("host_dur_ns")
    reached = pl.max_horizontal("earlier_end", pl.max_horizontal(started, "kernel_end").shift(1)).cum_max()
    rows = (
        periods.with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
        .join(extents, on="step", how="left", maintain_order="left")
        .join(before, on="row", how="left", maintain_order="left")
        .with_columns(reached=reached.forward_fill())
        .with_columns(start_ns=pl.max_horizontal(of_host, "reached"))
        .with_columns(end=pl.max_horizontal(started, "kernel_end", "start_ns"))
    )
    is_fresh = (pl.col("pause_ns").shift(1) > 0).fill_null(value=True) & (pl.col("start_ns") == of_host)
    wait = (pl.col("first_ns") - pl.col("start_ns")).clip(0)
    usual = wait.filter(~is_fresh).quantile(_USUAL, "lower").fill_null(0).cast(pl.Int64)
    of_loop = pl.when("has_workers").then(wait).otherwise(usual)
    beyond = wait - pl.when(usual >= _AS_LONG * wait).then(of_loop).otherwise(0)
    ahead = pl.min_horizontal(pl.col("end") - started, beyond).clip(0)
    start = pl.col("start_ns") + pl.when(is_fresh).then(ahead).otherwise(0).fill_null(0)
    return (
        rows.with_columns(start_ns=start)
        .with_columns(dur_ns=pl.col("end") - pl.col("start_ns"))
        .drop("row", "earlier_end", "reached", "end", "first_ns", "kernel_end", "has_workers")
    )


def device_periods(
    periods: pl.DataFrame, device: pl.DataFrame, calls: pl.Series, number: int | None, *, cut_off: bool
) -> pl.DataFrame:
    """The steps of one device (None: of the host alone), from the ops of all and when each of these was launched."""
    own = device.with_columns(called=calls).filter(pl.col("device").eq_missing(pl.lit(number, pl.Int32)))
    ends = pl.when(pl.col("kind").is_in(["kernel", "collective"])).then(END_NS)
    grouped = own.group_by("step").agg(first_ns=pl.min("start_ns"), kernel_end=ends.max(), ops=pl.len())
    first = own.filter(pl.col("step").is_not_null())["start_ns"].min()
    stray = own.filter(pl.col("step").is_null()).with_columns(kernel_end=ends)
    before = np.searchsorted(periods["host_start_ns"].to_numpy(), stray["called"].fill_null(-1).to_numpy(), "right")
    earlier = stray.select("called", "start_ns", "kernel_end", before=pl.Series(before, dtype=pl.Int64)).filter(
        pl.col("called").is_not_null() | (pl.col("start_ns") < pl.lit(first))
    )
    rows = device_windows(periods, grouped.drop("ops"), earlier.drop_nulls("kernel_end"))
    unlinked = earlier.filter(pl.col("called").is_null())["start_ns"].max()
    why = _why_incomplete(unlinked, cut_off=cut_off) if cut_off or number is not None else pl.lit(None, pl.String)
    return (
        rows.join(grouped.select("step", "ops"), on="step", how="left", maintain_order="left")
        .with_columns(device=pl.lit(number, pl.Int32))
        .with_columns(incomplete=pl.coalesce(why, "incomplete"))
        .drop("ops")
    )


def _why_incomplete(unlinked: object, *, cut_off: bool) -> pl.Expr:
    """Why a step at either end of the recording does not count as whole, null where it does.

    At the start its first launches may not have been recorded: a device op without a launch (`unlinked`: the last of
    their starts) ran after the step began on the host, and the step has less work of its own than the next has. Of a
    file that ends early (`cut_off`) any step may lack some: Kineto writes the device's work last, and not always in
    order of time. Steps that agree on how much they have, while none has more, have it all.
    """
    ops = pl.col("ops").fill_null(0)
    if cut_off:
        most = (ops > 0) & (ops == ops.max())
        return pl.when(~(most & (most.sum() > 1))).then(pl.lit(FILE_CUT))
    before, after = ops.cum_sum(), ops.reverse().cum_sum().reverse()  # in this step and all on that side of it
    lacks = (after == 0) & (pl.col("host_dur_ns") > 0)  # what follows a last point that begins a step is in no period
    is_less_at_end = (after > 0) & (after == ops) & (ops < _CUT_OFF_SHARE * ops.shift(1))
    is_less_at_start = (before > 0) & (before == ops) & (ops < _CUT_OFF_SHARE * ops.shift(-1))
    began_before = is_less_at_start & (pl.col("host_start_ns") < pl.lit(unlinked, pl.Int64))
    codes = ((lacks, NO_DEVICE_WORK), (is_less_at_end, LESS_WORK), (began_before, BEGAN_BEFORE))
    return pl.coalesce(pl.when(applies).then(pl.lit(code)) for applies, code in codes)


def with_requests(host: pl.DataFrame, device: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Adds, where no request for input was recorded, what stands in for it: the silence between the marks.

    A loop that begins its mark once the batch is there fetches it between two marks, where the thread that sets them
    begins nothing and no range of the program's own says what else it does. Marks that launch only part of the device's
    work tell nothing of the rest; those of a model that only infers may wait for requests.
    """
    complete = steps.filter(pl.col("incomplete").is_null(), pl.col("mark_ns") > 0).unique("step", maintain_order=True)
    if not complete.height or (host["kind"] == "input").any():
        return host
    if complete["name"].str.contains(_SERVING).any() or without_graph(host):
        return host
    start, mark, period = (complete[column].to_numpy() for column in ("host_start_ns", "mark_ns", "host_dur_ns"))
    called = host["start_ns"].gather(device["launch"].drop_nulls())
    if begun(called, start, start + mark).sum() < _MOST_WORK * begun(called, start, start + period).sum():
        return host
    marks = host.join(complete, left_on=["start_ns", "dur_ns"], right_on=["host_start_ns", "mark_ns"], how="semi")
    is_loading = pl.col("kind").is_in(RANGES) & pl.col("name").cast(pl.String).str.contains(_LOADING)
    own = host.filter(pl.col("thread").is_in(marks["thread"].implode()), ~is_loading)
    begins, ends = own["start_ns"].to_numpy(), own.select(END_NS).to_series().to_numpy()
    at = np.searchsorted(start, begins, side="right") - 1
    between = (at >= 0) & (begins >= (start + mark)[at]) & (ends <= (start + period)[at])
    ran = Intervals.of(begins[between], ends[between]) | _passes(host, device)
    silences = _silences(ran, start + mark, start + period, complete["step"])
    is_enough = int(silences["dur_ns"].sum()) >= _LEAST_SILENCE * period.sum()
    return _with_input(host, marks, BETWEEN, silences) if is_enough else host


def with_handovers(
    host: pl.DataFrame, device: pl.DataFrame, steps: pl.DataFrame, stacks: Sequence[Mapping[str, Any]]
) -> pl.DataFrame:
    """Adds, where no request for input was recorded, each step's longest silence, if samples explain half of it."""
    total, waits = 0, Counter[str]()
    for stack in stacks:
        total += 0 if stack["of_loader"] else stack["ns"]
        waits.update({call: stack["ns"] for call in stack["below"] if re.search(TAKES_OVER, call)})
    complete = steps.filter(pl.col("incomplete").is_null()).unique("host_start_ns").sort("host_start_ns")
    if not complete.height or waits.total() < max(1, _LEAST_SILENCE * total) or (host["kind"] == "input").any():
        return host
    marks = host.filter((pl.col("kind") == "step") | matches(OPTIMIZER_STEP))
    own = host.filter(pl.col("thread").is_in(marks["thread"].implode()), pl.col("kind").is_in(["op", *DRIVER_CALLS]))
    start, period = complete["host_start_ns"].to_numpy(), complete["host_dur_ns"].to_numpy()
    silences = _silences(spans(own) | _passes(host, device), start, start + period, complete["step"])
    longest = silences.sort(-pl.col("dur_ns"), "start_ns").unique("step", keep="first").sort("start_ns")
    is_explained = waits.total() * int(period.sum()) >= _MOSTLY * total * int(longest["dur_ns"].sum())
    if not is_explained or not own.height or without_graph(host):
        return host  # of a model that only infers they may be waits for requests
    return _with_input(host, marks, waits.most_common(1)[0][0], longest)


def _silences(ran: Intervals, opens: Ints, closes: Ints, steps: pl.Series) -> pl.DataFrame:
    """When nothing ran in each of these windows, which are of these steps: start_ns, dur_ns, step."""
    starts, ends, window = ran.gaps(opens, closes)
    return pl.DataFrame({"start_ns": starts, "dur_ns": ends - starts, "step": steps.gather(window)})


def _with_input(host: pl.DataFrame, marks: pl.DataFrame, name: str, times: pl.DataFrame) -> pl.DataFrame:
    """With rows of kind `input` on the thread of the marks, at these times: start_ns, dur_ns, step."""
    rows = times.select("start_ns", "dur_ns", "step").with_columns(
        id=pl.int_range(host.height, host.height + pl.len(), dtype=pl.Int64),
        thread=pl.lit(marks["thread"].first()),
        kind=pl.lit("input", HOST_OP_KINDS),
        name=pl.lit(name, pl.String).cast(host.schema["name"]),
    )
    return pl.concat([host, rows], how="diagonal_relaxed")


def _passes(host: pl.DataFrame, device: pl.DataFrame) -> Intervals:
    """When a thread that launches kernels is inside an op or a driver call."""
    launches = device.filter(pl.col("kind") == "kernel")["launch"].drop_nulls()
    of_passes = pl.col("thread").is_in(host["thread"].gather(launches).unique().implode())
    return spans(host.filter(of_passes, pl.col("kind").is_in(["op", *DRIVER_CALLS])))


def without_graph(host: pl.DataFrame) -> bool:
    """Whether PyTorch's products among these ops bear no numbers of a backward pass: the model only infers."""
    products = host.filter(pl.col("kind") == "op", matches(PRODUCTS))
    return products.height >= _FEWEST_PRODUCTS and products["sequence"].drop_nulls().n_unique() <= 1


def notes(marks: pl.DataFrame, steps: pl.DataFrame) -> list[Note]:
    """Notes where steps are marked, and none is used; and where time between the marks counts in no step."""
    if marks.height and not steps.height:  # nothing tells which step device work belongs to
        return [Note("marks_unused")]
    paused = steps.filter(pl.col("pause_ns") > 0).unique("step", maintain_order=True)
    if not paused.height:
        return []
    after = ", ".join(paused["name"].head(_MOST_NAMES))
    return [Note("pauses", pauses=paused.height, total=int(paused["pause_ns"].sum()) / 1e6, after=after)]
