"""The lines of the program that take the time of its main thread, as sampled stacks show them."""

import builtins
from typing import Final

import polars as pl

from advisor.analysis.device.autograd import makers, nodes
from advisor.analysis.device.host_work import logging_frames, running, saving_frames
from advisor.analysis.device.user_code import callers
from advisor.analysis.device.view import DeviceView, outermost, spent_ns
from advisor.inputs.names.host_calls import kinds
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import STACKS
from advisor.vocabulary.idle_causes import HOST_RANGES

OWN: Final = "own"
"""A kind beside those of calls: Python's or a library's work that no kind names."""

_OP: Final = "op"  # an op of the framework that the line calls itself
_LOADS: Final = r"^torch/utils/data/"
_ATEN: Final = r"^aten::_?(\w+?)_?$"
_CALLED: Final = r"(\w+)$"
_INNER: Final = r"\.<locals>\.<\w+>$"  # an expression's own function: `log.<locals>.<genexpr>`
_FRAME: Final = r"^(.+?)\((\d+)\): .*$"
_FUNCTION: Final = r"(\w+)(?: of .*)?>?$"
_SOME: Final = 0.2  # of the calls of an op


def sampled(view: DeviceView, *, of_loader: bool = False) -> pl.DataFrame:
    """The stacks of the main thread, or of the loader's workers, with `kind`: what the line calls, as it decides.

    Where the main thread was not sampled and Python's functions were recorded, those that log or save stand for it.
    """
    if view.process.get("stacks") is None and not of_loader:
        return _recorded(view)
    stacks = pl.DataFrame({"stack": view.process.get("stacks") or []}, schema={"stack": STACKS}).unnest("stack")
    stacks = stacks.filter(pl.col("of_loader") == of_loader)
    text = pl.concat_str(pl.col("call").fill_null(""), pl.col("below").list.join("\n"), separator="\n")
    kind = pl.lit(OWN)
    for each in reversed(kinds()):
        kind = pl.when(text.str.contains(each.pattern)).then(pl.lit(each.name)).otherwise(kind)
    is_op = (pl.col("below").list.len() == 0) & _called(view.once(_ops)["name"])
    kind = pl.when((kind == OWN) & is_op).then(pl.lit(_OP)).otherwise(kind)
    kind = pl.when(pl.col("above").str.contains(_LOADS)).then(pl.lit("loading")).otherwise(kind)
    return stacks.with_columns(kind=kind)


def _recorded(view: DeviceView) -> pl.DataFrame:
    """The same of recorded functions: with a device what they take while it idles. The rest of the step has no line."""
    kinds_of = {"saving": saving_frames(view), "logging": logging_frames(view)}
    frames = pl.concat([frames.with_columns(kind=pl.lit(kind)) for kind, frames in kinds_of.items()])
    outer, name = outermost(frames), pl.col("name").cast(pl.String)
    waits = Intervals.of(view.starts, view.ends) - (EMPTY if view.device is None else view.busy)
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


def _called(names: pl.Series) -> pl.Expr:
    """Whether a line calls something of one of these names, `torch.quantile`, but nothing of Python's, `sum`."""
    return pl.col("call").str.extract(_CALLED).is_in(names.implode()) & ~pl.col("call").is_in(dir(builtins))


def needless_lines(view: DeviceView) -> pl.DataFrame:
    """The lines whose work is none of the step's own, most time first: line, call, function, kind, share, lines.

    The lines of a function that does nothing else count together, by the one with the most time; `lines` is how many.
    `share` is of all samples. It is no more than what the recording holds of such time: outside of the framework's
    ops, or with a device while that idles; of a line that calls ops itself, in ops that take no part in the training.
    """
    stacks, rare = view.once(sampled), [each.name for each in kinds() if each.fix]
    is_aside = (pl.col("kind") == _OP) & _called(view.once(_ops).filter("aside")["name"])
    file = pl.coalesce(pl.col("line").str.extract("^(.*):"), "line")
    of_program = stacks.filter(pl.col("line").is_not_null())
    of_program = of_program.with_columns(
        pl.col("function").str.replace(_INNER, ""), is_needless=pl.col("kind").is_in([*rare, OWN]) | is_aside
    )
    unit = pl.when(pl.col("is_needless").all().over(file, "function")).then(pl.format("{} {}", file, "function"))
    needless = of_program.with_columns(unit=unit.otherwise("line")).filter("is_needless").sort("ns", descending=True)
    by_kind = needless.group_by("unit", "kind").agg(pl.sum("ns")).sort("ns", descending=True)
    of_unit = needless.group_by("unit", maintain_order=True).agg(
        pl.first("line", "call", "function"), pl.sum("ns"), lines=pl.col("line").n_unique()
    )
    units = of_unit.join(by_kind.group_by("unit", maintain_order=True).agg(pl.first("kind")), on="unit")
    most = pl.when(pl.col("kind") == OWN).then(_outside(view)).otherwise(1.0)
    share = pl.min_horizontal(pl.col("ns") / max(1, int(stacks["ns"].sum())), most)
    return units.with_columns(share=share).sort("share", "line", descending=[True, False])


def _outside(view: DeviceView) -> float:
    """The part of the recorded step in which no op runs and nothing is waited for; with a device, while it idles."""
    if view.device is not None:
        return 1 - (view.share(view.busy) or 0.0)
    return 1 - (view.share(view.once(running) | view.host_spans("collective", *HOST_RANGES)) or 0.0)


def _ops(view: DeviceView) -> pl.DataFrame:
    """What PyTorch's ops are called in the program, `quantile` of `aten::quantile`: name, and whether it is `aside`.

    Such ops take no part in a training: neither they nor what they call makes a node of a gradient's graph, but for a
    few, as ops behind the last node bear the number of the next one.
    """
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "name").collect()
    taking = view.once(makers) if view.once(nodes).height else ops.clear().with_columns(parent="id")
    makes = pl.col("id").is_in(pl.concat([taking["id"], taking["parent"].drop_nulls()]).implode())
    names = ops.select(makes=makes, name=pl.col("name").cast(pl.String).str.extract(_ATEN)).drop_nulls("name")
    return names.group_by("name").agg(aside=(pl.mean("makes") < _SOME) & pl.lit(bool(taking.height)))
