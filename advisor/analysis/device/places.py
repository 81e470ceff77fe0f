"""Host and device ops as places to point at in a report; what took the host's time, by name, and by sampled stacks.

A stack of Python that was sampled in the steps has the kind of what its line calls.
"""

import builtins
import re
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from advisor.analysis.device.autograd import makers, nodes
from advisor.analysis.device.compiled_lines import with_compiled
from advisor.analysis.device.host_work import own_frames, own_ns, training_ops
from advisor.analysis.device.idle import functions_in, gaps, idle_after_waits, launch_gaps, stalls
from advisor.analysis.device.view import DeviceView, bounds, outermost, positions, spans, spent_ns
from advisor.inputs.names.calls import LOGGING, SAVING
from advisor.inputs.names.stacks import AWAITED, OP, OWN, kind_of, kinds, user_line
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import EMPTY, Intervals, begun, nearest
from advisor.model.profile import END_NS, STACKS, matches
from advisor.text import ms
from advisor.vocabulary.kinds import DRIVER_CALLS, XLA_FRAMEWORKS

Rows: TypeAlias = Callable[[DeviceView], pl.DataFrame]

MOST_PLACES: Final = 10


def as_places(rows: Rows, table: str, op: str | None = None, name: pl.Expr | None = None, by: str = "dur_ns") -> Rows:
    """Rows with start_ns and dur_ns as places to point at, the longest first, or those with the most of another column.

    They are of this table, with `step` where they have one; `op` is the column that holds the id of the host op to
    name, and `name` what to call each in place of its name.
    """

    def longest(view: DeviceView) -> pl.DataFrame:
        ordered = view.once(rows).sort(by, "start_ns", descending=[True, False])
        step, id_ = ["step"] if "step" in ordered.columns else [], {"op": pl.col(op)} if op else {}
        label = pl.col("name").cast(pl.String) if name is None else name
        return ordered.select(*step, "start_ns", "dur_ns", table=pl.lit(table), name=label, **id_)

    return longest


def stretches(when: Callable[[DeviceView], Intervals], name: str) -> Rows:
    """Stretches of the host's time as places to point at, the longest first."""

    def rows(view: DeviceView) -> pl.DataFrame:
        spans = view.once(when)
        return pl.DataFrame({"start_ns": spans.starts, "dur_ns": spans.ends - spans.starts})

    return as_places(rows, "host_ops", name=pl.lit(name))


def places(rows: Rows, op: str = "id") -> Rows:
    """Those of the host ops that lie in used steps, as places to point at; `op` holds the id of the op to name."""

    def used(view: DeviceView) -> pl.DataFrame:
        ops = view.once(rows)
        window = view.used_host.filter(pl.col("id").is_in(ops["id"].implode())).select("id", "window").collect()
        return ops.drop("step", "window", strict=False).join(window, on="id").with_columns(step=_step(view))

    return as_places(used, "host_ops", op)


def waits_that_cost(view: DeviceView) -> pl.DataFrame:
    """The calls that waited, each with the idle time that followed, as places to point at, the costliest first."""
    after = view.once(idle_after_waits).group_by("call").agg(pl.min("window"), pl.sum("sync_ns")).drop_nulls("call")
    columns = {"parent": "parent", "dur_ns": "dur_ns", "call_start": "start_ns", "called": "name"}
    costs = view.with_host(after, "call", **columns).sort("sync_ns", "call_start", descending=[True, False])
    most = costs.head(MOST_PLACES)
    around = ops_around(view, most["call"])
    return most.select(
        step=_step(view),
        start_ns="call_start",
        dur_ns="dur_ns",
        op=pl.when(around != pl.col("call")).then(around).otherwise("parent"),
        table=pl.lit("host_ops"),
        name=pl.format("{}, then the device idles for {}", "called", _in_ms("sync_ns")),
    )


def ops_around(view: DeviceView, calls: pl.Series, called: str = "^aten::") -> pl.Series:
    """For each id of a call that of the outermost op around it `called` so, else its own: `.item()` is aten::item."""
    is_op = np.append(view.host.select(matches(called).fill_null(value=False)).to_series().to_numpy(), False)
    best = positions(view.host, calls)
    for at in view.outward(calls):
        best = np.where(is_op[at], at, best)
    return view.host["id"].gather(best).rename("around")


def _step(view: DeviceView) -> pl.Expr:
    """The number of the used step whose row `window` holds."""
    return pl.col("window").replace_strict(list(range(view.steps.height)), view.steps["step"], return_dtype=pl.Int32)


def device_places(rows: Rows) -> Rows:
    """Device ops as places to point at, the longest first: which call launched each, in what op or range, what follows.

    Only for as many as a report names: what follows is looked up for each.
    """

    def longest(view: DeviceView) -> pl.DataFrame:
        first = view.once(rows).sort("dur_ns", "start_ns", descending=[True, False]).head(MOST_PLACES)
        idle = view.once(gaps).select(end_ns="start_ns", idle_ns=pl.col("end_ns") - pl.col("start_ns"))
        calls = view.with_host(first.with_columns(end_ns=END_NS), "launch", parent="parent", called="name")
        by = pl.format(" by {}", "called").fill_null("")
        after = pl.format(", then the device idles for {}", _in_ms("idle_ns")).fill_null("")
        name = pl.concat_str(pl.col("name").cast(pl.String), by, after)
        op, table = pl.coalesce("op", "parent"), pl.lit("device_ops")
        calls_and_gaps = calls.join(idle, on="end_ns", how="left", maintain_order="left")
        return calls_and_gaps.select("step", "start_ns", "dur_ns", op=op, table=table, name=name)

    return longest


def _in_ms(column: str) -> pl.Expr:
    return pl.col(column).map_elements(lambda ns: ms(ns / 1e6), return_dtype=pl.String)


_MOST_NAMES: Final = 3
_MAIN_SHARE: Final = 0.8  # of the time of a range: what holds it tells more
_LITTLE: Final = 0.01
# around any function
_WRAPPERS: Final = r"\): (?:_call_impl|_wrapped_call_impl|decorate_context|wrapper|inner)$|<module>$"
_ROOT: Final = r"<module>$"  # the script itself, which tells nothing
NOTHING: Final = "work or waits that were not recorded"
_WORK: Final = ["op", "annotation", "module", "python", "collective", *DRIVER_CALLS]
_SEVERAL: Final = 2


def times_by_name(view: DeviceView, when: Intervals) -> pl.DataFrame:
    """What ran on the training threads during `when`: name and self_ns, the time of a range outside those within it.

    Ordered by time, most first. The name is null for the time in which no range was open.
    """
    ops = _during(view, when)
    own = by_place(view, ops.select("id", "name", self_ns=own_ns(ops, "ns").clip(0)))
    nothing = pl.DataFrame({"name": [None], "self_ns": [(when - spans(ops)).total]}, schema=own.schema)
    return pl.concat([own, nothing]).group_by("name").sum().sort("self_ns", "name", descending=[True, False])


def _during(view: DeviceView, when: Intervals) -> pl.DataFrame:
    """What of `_WORK` ran on the training threads during `when`, and for how long of it: `ns`."""
    ops = view.once(_unmarked)
    return ops.with_columns(spent_ns(ops, when)).filter("works", pl.col("ns") > 0)


def _unmarked(view: DeviceView) -> pl.DataFrame:
    """What ran on the training threads, and which of it `works`; all columns but two are those of the host's table.

    Marks of steps do not: what lies in one is part of what the mark lies in, a function that runs the loop say. Nor do
    ranges around several steps, such as an epoch's.
    """
    columns = ["id", "parent", "kind", "start_ns", "dur_ns"]
    ops = view.once(training_ops).select(*columns, "thread", "name")
    ranges = ops.select(columns).filter(pl.col("kind") == "annotation")
    few = pl.Series(begun(view.complete["host_start_ns"], *bounds(ranges))) < _SEVERAL
    marks = view.complete.select(start_ns="host_start_ns", dur_ns="mark_ns")
    of_steps = ranges.filter(few).join(marks, on=marks.columns, how="semi")
    all_marks = pl.concat([of_steps, view.host.select(columns).filter(pl.col("kind") == "step")]).drop_nulls("parent")
    apart = pl.concat([of_steps["id"], ranges.filter(~few)["id"]])
    works = pl.col("kind").is_in(_WORK) & ~pl.col("id").is_in(apart.implode())
    return ops.with_columns(pl.col("parent").replace(all_marks["id"], all_marks["parent"]), works=works)


def times_beyond(view: DeviceView, some: tuple[Intervals, int], others: tuple[Intervals, int]) -> pl.DataFrame:
    """By how much longer each runs per step in a time of some steps than in one of others, the most first: name, ns."""
    long, usual = (
        times_by_name(view, when).select("name", ns=pl.col("self_ns") / max(1, steps)) for when, steps in (some, others)
    )
    both = long.join(usual, on="name", how="left", nulls_equal=True, suffix="_usual", maintain_order="left")
    beyond = both.select("name", ns=pl.col("ns") - pl.col("ns_usual").fill_null(0))
    return beyond.sort("ns", descending=True, maintain_order=True)


def times_by_range(view: DeviceView, when: Intervals) -> pl.DataFrame:
    """As `times_by_name`, but by the outermost ranges that lie in `when` for half of their time or more.

    An op is named, not the views that it consists of. A range or a function of the user's gives way to what it holds,
    and so on, if that has four fifths of its time. Where no such range is open, the time is that of the ranges around,
    as in `times_by_name`.
    """
    ops = _during(view, when).select("id", "parent", "kind", "thread", "name", "start_ns", "dur_ns", self_ns="ns")
    worth = ops.filter(2 * pl.col("self_ns") >= pl.col("dur_ns"))
    ranges = _deepest(view, outermost(worth.filter(~matches(_WRAPPERS))), ops)
    rest = times_by_name(view, when - spans(ranges))
    together = pl.concat([by_place(view, ranges), rest]).group_by("name").sum()
    return together.sort("self_ns", "name", descending=[True, False])


def main_range(view: DeviceView, start: int, end: int) -> int | None:
    """The id of the innermost range that ends in this time, takes four fifths of it, and lies half in it, if any."""
    ran = _during(view, Intervals.of([start], [end])).filter(end >= END_NS, 2 * pl.col("ns") >= pl.col("dur_ns"))
    ran = ran.filter(pl.col("ns") >= _MAIN_SHARE * (end - start))
    return next(iter(ran.sort("dur_ns")["id"]), None)


def _deepest(view: DeviceView, ranges: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """For ranges of one name, what the user's innermost range or function holds that has four fifths of their time.

    Or that itself; further down are a library's own, which the user cannot change.
    """
    functions = view.once(callers).filter(pl.col("id").is_in(ops["id"].implode()))
    is_own = pl.col("caller").eq_missing(pl.col("name").cast(pl.String)) | (pl.col("kind") == "annotation")
    ops = ops.join(functions, on="id", how="left", maintain_order="left").with_columns(is_own=is_own).sort("parent")
    parents = ops["parent"].fill_null(-1).to_numpy()
    level = ops.join(ranges.select("id", top="name"), on="id").with_columns(follows=False)
    total = level.group_by("top").agg(total=pl.sum("self_ns"))
    chosen = level
    while level.height:
        first, last = (np.searchsorted(parents, level["id"].to_numpy(), side=side) for side in ("left", "right"))
        count = last - first
        rows = np.repeat(last - np.cumsum(count), count) + np.arange(count.sum())
        passed = level.select("top", follows=pl.col("is_own") | (pl.col("follows") & matches(_WRAPPERS)))
        inner = ops[rows].with_columns(passed[np.repeat(np.arange(len(count)), count)]).join(total, on="top")
        level = inner.filter(pl.sum("self_ns").over("top", "name") >= _MAIN_SHARE * pl.col("total")).drop("total")
        users = level.filter(pl.col("is_own") | pl.col("follows"), ~matches(_WRAPPERS))
        chosen = pl.concat([chosen.join(users, on="top", how="anti"), users])
    return chosen.select(ranges.columns)


def by_place(view: DeviceView, ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges' self_ns summed by name: that of a library's function, and of the user's that called it, as text.

    A built-in function goes without the object that it is of; the script as a whole has no name.
    """
    own = ranges.join(view.once(callers), on="id", how="left").group_by("name", "caller").agg(pl.sum("self_ns"))
    name = pl.col("name").cast(pl.String)
    plain = name.str.replace(r"^<built-in (?:method|function) (?P<name>[^ >]+).*>$", "$name (built-in)")
    place = pl.when(pl.col("caller") == name).then(plain).otherwise(pl.format("{} in {}", plain, "caller"))
    known = pl.when(~name.str.contains(_ROOT)).then(pl.coalesce(place, plain))
    return own.select(name=known, self_ns="self_ns").group_by("name").sum()


def largest(view: DeviceView, ran: pl.DataFrame) -> Entries:
    """Those of `times_by_name` with the most time per step."""
    code = {name: name if name[:1].isalnum() else f"`{name.lstrip('$')}`" for name in ran["name"] if name}
    return view.largest((code.get(name, NOTHING), ns) for name, ns in ran.rows() if ns > 0)


def top_three(ran: pl.DataFrame) -> pl.DataFrame:
    """Those three of `times_by_name`."""
    return ran.filter(pl.col("self_ns") > _LITTLE * pl.col("self_ns").sum()).head(_MOST_NAMES)


def callers(view: DeviceView) -> pl.DataFrame:
    """The innermost function of the user's code around each host range that lies in one: id, and `caller`, its name.

    A function of the user's is its own caller.
    """
    host = view.host.select("id", "parent", "kind", "name")
    names = host.filter(pl.col("kind") == "python")["name"].unique()
    own = names.filter(
        pl.Series([user_line(str(name)) is not None and not re.search(_ROOT, name) for name in names], dtype=pl.Boolean)
    )
    is_own = host.select((pl.col("kind") == "python") & pl.col("name").is_in(own.implode())).to_series()
    if not is_own.any():
        return pl.DataFrame(schema={"id": pl.Int64, "caller": pl.String})
    inside = pl.Series(nearest(is_own.to_numpy(), positions(host, host["parent"]))).replace(-1, None)
    return host.select("id", caller=host["name"].gather(inside).cast(pl.String)).drop_nulls("caller")


WRAPPING: Final = "wrapping"  # the kind of an op whose name the stack does not have
FEW_SAMPLES: Final = 30  # with fewer nothing is said of lines
NAME: Final = r"^[\w.]+$"  # what a line calls by a name: no subscript, and no operator
_TAKING: Final = "taking"  # of calls that wait for what is made elsewhere: a batch, where input was recorded
_GETS: Final = r"^(?:np|numpy|onp)\.(?:as)?array$"  # what compiled code computes, or a list
_SLEEPS: Final = 0.8  # of the time in such calls and in waits: these wait, too
_SPELT: Final = r"_(?:loss|generator)$|(sample)r$"  # where torch.nn.functional has another name for an op
_FUNCTION: Final = r"(\w+)(?: of .*)?>?$"
_SOME: Final = 0.2  # of the calls of an op
_WALKS: Final = r"^torch/_tensor\.py: Tensor\.__iter__$"


def sampled(view: DeviceView, *, of_loader: bool = False) -> pl.DataFrame:
    """The stacks of the main thread, or of the loader's workers, with `kind`: what the line calls, as it decides.

    `known` is its kind where the loader calls it, too, or how it searches. `excess_ns` is what the line takes more in
    uneven steps than in the others; 0 where steps were not told apart.
    Where the main thread's lines were not sampled, the functions of a native program stand for it, sampled or recorded.
    """
    if view.process.get("stacks") is None and not of_loader:
        rows = _native(view) if view.host_samples.height else _recorded(view)
        return rows.with_columns(excess_ns=pl.lit(0, pl.Int64), below=pl.lit([], pl.List(pl.String)), above=None)
    stacks = pl.DataFrame({"stack": view.process.get("stacks") or []}, schema={"stack": STACKS}).unnest("stack")
    stacks = stacks.filter(pl.col("of_loader") == of_loader)
    call = pl.when(pl.col("call").str.contains(NAME)).then("call").otherwise(pl.lit(""))
    text = pl.concat_str(call, pl.col("below").list.join("\n"), separator="\n")
    rows = stacks.with_columns(kind=kind_of(text, pl.lit(OWN), kinds()))  # at once: polars would try it at each use
    kind = pl.col("kind")
    if view.device is None and view.once(program_ops).height:  # PyTorch's ops on a CPU run at once: none is waited for
        is_own = pl.col("call").str.contains(r"\.(?:item|tolist|numpy)$")
        rows = rows.with_columns(kind=pl.when(is_own).then(pl.lit(OWN)).otherwise(kind))
    of_library = pl.col("below").list.eval(~pl.element().str.contains(r"^torch/nn/functional\.py: ")).list.any()
    may_be = (kind.is_in([OWN, "training"]) & ~of_library) | (kind == WRAPPING)
    is_op = may_be & is_call_of(view.once(program_ops)["name"])
    rows = rows.with_columns(kind=pl.when(is_op).then(pl.lit(OP)).otherwise(kind))
    searches = kind_of(pl.col("call"), kind, kinds("searches"))
    rows = rows.with_columns(known=pl.when(kind.is_in([OWN, OP])).then(searches).otherwise(kind))
    gets = pl.col("call").str.contains(_GETS) & (kind == OWN)
    # Whether the thread sleeps for as long as these calls take, for code that XLA's frameworks compiled.
    sleeps_ns = (view.process.get("sleep_share") or 0.0) * int(stacks["ns"].sum())
    of_xla = view.process.get("framework") in XLA_FRAMEWORKS
    if of_xla and sleeps_ns >= _SLEEPS * int(rows.filter(gets | (kind == AWAITED))["ns"].sum()):
        rows = rows.with_columns(kind=pl.when(gets).then(pl.lit(AWAITED)).otherwise(kind))
    loads = pl.col("of_fetch").is_not_null() | pl.col("above").str.contains(r"^torch/utils/data/")
    loads = loads.fill_null(value=False) | ((kind == _TAKING) & pl.lit(view.host_spans("input").total > 0))
    part = view.process.get("long_part") or 0.0  # a line of every step is in the uneven ones too
    excess_ns = (pl.col("ns") - (pl.col("ns") - pl.col("long_ns")) / (1 - part)).clip(0).cast(pl.Int64)
    rows = rows.with_columns(kind=pl.when(loads).then(pl.lit("loading")).otherwise(kind), excess_ns=excess_ns)
    return rows if of_loader else with_compiled(view, rows)


def few_samples(view: DeviceView, samples: int) -> Missing:
    """Why no more samples of the main thread's stacks are there."""
    lack = view.process.get("stacks_lack")
    return Missing(f"stacks_without_{lack}") if lack and not samples else Missing("few_stack_samples", samples=samples)


def _native(view: DeviceView) -> pl.DataFrame:
    """The same of functions without lines, as far as the device waits for them; `line` is the module that has them.

    A program without a framework has no ops to dispatch: what it does in a short gap is its own work too.
    """
    waits = view.once(stalls) | (view.once(launch_gaps) if view.process["framework"] == "cuda" else EMPTY)
    functions = functions_in(view, waits.starts, waits.ends).drop_nulls("function")
    name = pl.col("function").str.split_exact(": ", 1)
    rows = functions.select(
        "ns",
        samples=pl.col("samples").cast(pl.Int64),
        line=name.struct.field("field_0"),
        function=name.struct.field("field_1"),
        call=pl.lit(None, pl.String),
        kind=pl.lit(OWN),
    )
    samples = int(view.windows.covers(view.host_samples["at_ns"].to_numpy()).sum())
    rest = {"kind": OWN, "ns": view.total_ns - int(rows["ns"].sum()), "samples": samples - int(rows["samples"].sum())}
    return pl.concat([rows, pl.DataFrame([rest])], how="diagonal_relaxed")


def _recorded(view: DeviceView) -> pl.DataFrame:
    """The same of recorded functions: with a device what they take while it idles. The rest of the step has no line."""
    kinds_of = {"saving": own_frames(view, SAVING), "logging": own_frames(view, LOGGING)}
    frames = pl.concat([frames.with_columns(kind=pl.lit(kind)) for kind, frames in kinds_of.items()])
    outer, name = outermost(frames), pl.col("name").cast(pl.String)
    waits = view.windows - (EMPTY if view.device is None else view.busy)
    called = outer.with_columns(spent_ns(outer, waits)).join(view.once(callers), on="id", how="left")
    place = pl.coalesce("caller", name)
    rows = called.select(
        "kind",
        "ns",
        line=place.str.replace(r"^(.+?)\((\d+)\): .*$", "${1}:${2}"),
        function=place.str.extract(_FUNCTION),
        call=name.str.extract(_FUNCTION),
    )
    rest = pl.DataFrame({"kind": [OWN], "ns": [view.total_ns - int(rows["ns"].sum())]})
    return pl.concat([rows, rest], how="diagonal_relaxed").with_columns(samples=pl.lit(None, pl.Int64))


def is_call_of(names: pl.Series) -> pl.Expr:
    """Whether a line calls something of one of these names, `torch.quantile`, but nothing of Python's, `sum`.

    To walk a tensor's rows, `zip(rows, others)`, is `unbind`.
    """
    call = pl.when(~pl.col("call").is_in(dir(builtins))).then(pl.col("call").str.extract(r"(\w+)$"))
    walks = pl.col("below").list.last().str.contains(_WALKS)
    return pl.when(walks).then(pl.lit("unbind")).otherwise(call).is_in(names.implode()).fill_null(value=False)


def program_ops(view: DeviceView) -> pl.DataFrame:
    """Names that the program has for ops of PyTorch which no other op calls, whether they are `aside`, or `partly` so.

    Such ops take no part in a training: neither they nor what they call makes a node of a gradient's graph, but for a
    few, as ops behind the last node bear the number of the next one.
    """
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent", "name").collect()
    ops = ops.filter(~pl.col("parent").is_in(ops["id"].implode()) | pl.col("parent").is_null()).drop("parent")
    taking = view.once(makers) if view.once(nodes).height else ops.clear().with_columns(parent="id")
    around = np.unique(np.concatenate([[-1], *view.outward(taking["id"])]))[1:]
    makes = pl.col("id").is_in(view.host["id"].gather(around).implode())
    name = pl.col("name").cast(pl.String).str.extract(r"^aten::_?(\w+?)_?$").str.replace(_SPELT, "$1")
    names = ops.select(makes=makes, name=name).drop_nulls("name")
    part, is_training = pl.mean("makes"), pl.lit(bool(taking.height))
    return names.group_by("name").agg(aside=(part < _SOME) & is_training, partly=(part < 1) & is_training)
