"""The stacks of Python that were sampled in the steps, each with the kind of what its line calls."""

import builtins
from typing import Final

import polars as pl

from advisor.analysis.device.autograd import makers, nodes
from advisor.analysis.device.host_samples import functions_in
from advisor.analysis.device.host_work import own_frames
from advisor.analysis.device.idle import launch_gaps, stalls
from advisor.analysis.device.places import callers
from advisor.analysis.device.view import DeviceView, outermost, spent_ns
from advisor.inputs.names.calls import LOGGING, SAVING
from advisor.inputs.names.stacks import kinds
from advisor.model.clause import Missing
from advisor.model.intervals import EMPTY
from advisor.model.profile import STACKS
from advisor.vocabulary.kinds import XLA_FRAMEWORKS

OWN: Final = "own"
"""A kind beside those of calls: Python's or a library's work that no kind names."""

FEW_SAMPLES: Final = 30
"""With fewer nothing is said of lines."""

OP: Final = "op"
"""The kind of an op of the framework that the line calls itself."""

AWAITED: Final = "waiting"
"""The kind of calls that return before their work is done: the line that waits stands for it."""

NAME: Final = r"^[\w.]+$"
"""What a line calls by a name: no subscript, and no operator."""

_TAKING: Final = "taking"  # of calls that wait for what is made elsewhere: a batch, where input was recorded
_GETS: Final = r"^(?:np|numpy|onp)\.(?:as)?array$"  # what compiled code computes, or a list
_SLEEPS: Final = 0.8  # of the time in such calls and in waits: these wait, too
_CONVERTS: Final = r"\.(?:tolist|numpy)$"
_LOADS: Final = r"^torch/utils/data/"
_ATEN: Final = r"^aten::_?(\w+?)_?$"
_CALLED: Final = r"(\w+)$"
_FRAME: Final = r"^(.+?)\((\d+)\): .*$"
_FUNCTION: Final = r"(\w+)(?: of .*)?>?$"
_SOME: Final = 0.2  # of the calls of an op


def sampled(view: DeviceView, *, of_loader: bool = False) -> pl.DataFrame:
    """The stacks of the main thread, or of the loader's workers, with `kind`: what the line calls, as it decides.

    `known` is its kind where the loader calls it, too. `excess_ns` is what the line takes more in uneven steps than in
    the others; 0 where steps were not told apart.
    Where the main thread's lines were not sampled, the functions of a native program stand for it, sampled or recorded.
    """
    if view.process.get("stacks") is None and not of_loader:
        rows = _native(view) if view.host_samples.height else _recorded(view)
        return rows.with_columns(excess_ns=pl.lit(0, pl.Int64), below=pl.lit([], pl.List(pl.String)), above=None)
    stacks = pl.DataFrame({"stack": view.process.get("stacks") or []}, schema={"stack": STACKS}).unnest("stack")
    stacks = stacks.filter(pl.col("of_loader") == of_loader)
    call = pl.when(pl.col("call").str.contains(NAME)).then("call").otherwise(pl.lit(""))
    text = pl.concat_str(call, pl.col("below").list.join("\n"), separator="\n")
    kind = pl.lit(OWN)
    for each in reversed(kinds()):
        kind = pl.when(text.str.contains(each.pattern)).then(pl.lit(each.name)).otherwise(kind)
    if view.device is None and view.once(program_ops).height:  # PyTorch's ops on a CPU run at once: none is waited for
        kind = pl.when(pl.col("call").str.contains(_CONVERTS)).then(pl.lit(OWN)).otherwise(kind)
    is_op = (pl.col("below").list.len() == 0) & is_call_of(view.once(program_ops)["name"])
    kind = pl.when((kind == OWN) & is_op).then(pl.lit(OP)).otherwise(kind)
    known = kind
    gets = pl.col("call").str.contains(_GETS) & (kind == OWN)
    # Whether the thread sleeps for as long as these calls take, for code that XLA's frameworks compiled.
    sleeps_ns = (view.process.get("sleep_share") or 0.0) * int(stacks["ns"].sum())
    of_xla = view.process.get("framework") in XLA_FRAMEWORKS
    if of_xla and sleeps_ns >= _SLEEPS * int(stacks.filter(gets | (kind == AWAITED))["ns"].sum()):
        kind = pl.when(gets).then(pl.lit(AWAITED)).otherwise(kind)
    loads = pl.col("of_fetch").is_not_null() | pl.col("above").str.contains(_LOADS)
    loads = loads.fill_null(value=False) | ((kind == _TAKING) & pl.lit(view.host_spans("input").total > 0))
    kind = pl.when(loads).then(pl.lit("loading")).otherwise(kind)
    part = view.process.get("long_part") or 0.0  # a line of every step is in the uneven ones too
    even = (pl.col("ns") - pl.col("long_ns")) / (1 - part)
    return stacks.with_columns(kind=kind, known=known, excess_ns=(pl.col("ns") - even).clip(0).cast(pl.Int64))


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
        line=place.str.replace(_FRAME, "${1}:${2}"),
        function=place.str.extract(_FUNCTION),
        call=name.str.extract(_FUNCTION),
    )
    rest = pl.DataFrame({"kind": [OWN], "ns": [view.total_ns - int(rows["ns"].sum())]})
    return pl.concat([rows, rest], how="diagonal_relaxed").with_columns(samples=pl.lit(None, pl.Int64))


def is_call_of(names: pl.Series) -> pl.Expr:
    """Whether a line calls something of one of these names, `torch.quantile`, but nothing of Python's, `sum`."""
    return pl.col("call").str.extract(_CALLED).is_in(names.implode()) & ~pl.col("call").is_in(dir(builtins))


def program_ops(view: DeviceView) -> pl.DataFrame:
    """Names that the program has for ops of PyTorch which no other op calls, whether they are `aside`, or `partly` so.

    Such ops take no part in a training: neither they nor what they call makes a node of a gradient's graph, but for a
    few, as ops behind the last node bear the number of the next one.
    """
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent", "name").collect()
    ops = ops.filter(~pl.col("parent").is_in(ops["id"].implode()) | pl.col("parent").is_null()).drop("parent")
    taking = view.once(makers) if view.once(nodes).height else ops.clear().with_columns(parent="id")
    makes = pl.col("id").is_in(pl.concat([taking["id"], taking["parent"].drop_nulls()]).implode())
    names = ops.select(makes=makes, name=pl.col("name").cast(pl.String).str.extract(_ATEN)).drop_nulls("name")
    part, is_training = pl.mean("makes"), pl.lit(bool(taking.height))
    return names.group_by("name").agg(aside=(part < _SOME) & is_training, partly=(part < 1) & is_training)
