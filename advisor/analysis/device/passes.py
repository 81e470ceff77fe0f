"""Forward passes of a model that writes tokens one by one, where no mark shows the steps of an engine.

Kernels prove them. Each layer writes to the cache once, or attends once; the last kernels of a pass choose the next
tokens. Passes of one model have equally many layers: where they have not, nothing is told.
"""

import json
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView, classes
from advisor.inputs.names.calls import GRAPH_LAUNCH
from advisor.inputs.names.engines import CACHE_WRITES, DECODE_ATTENTION, PREFILL_ATTENTION, SAMPLERS
from advisor.model.profile import matches

PASS: Final = {"phase": pl.String, "requests": pl.Int64, "tokens": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
_KINDS: Final = ["kernel", "memcpy"]
UNNAMED: Final = "unnamed"
_FEWEST_LAYERS: Final = 2  # with one, a sampler in each layer would look like the end of a pass
_FEWEST_PASSES: Final = 3
_MOST_ODD: Final = 0.1  # of the passes, that have another number of layers
_AS_MANY: Final = 0.5  # of the decode passes: so many long ones check drafts, and are no prefill
_ATTENDS: Final = r"scaled_dot_product|(?:flash|efficient|cudnn)_attention_forward"
_LENGTH_LAST: Final = r"scaled_dot_product|cudnn_attention"  # the length is the last axis but one, else the second
_REDUCES: Final = r"(?i)combine|reduce|merge|stage2|dot_do_o"


class Queries(NamedTuple):
    """How many sequences attention has, and queries and keys of each."""

    sequences: int
    queries: int
    keys: int


def passes(view: DeviceView) -> pl.DataFrame:
    """The forward passes in order: phase, requests, tokens, start_ns and end_ns of the calls that launched them.

    Empty unless three passes or more surely decode. A phase is `unnamed` where kernels do not show it.
    """
    names = _names(view)
    if not names["samples"].any() or (not names["writes"].any() and not names["attends"].any()):
        return pl.DataFrame(schema=PASS)
    rows = _grouped(_launched(view, names))
    if not _have_equal_layers(rows):
        return pl.DataFrame(schema=PASS)
    usual = rows.filter(pl.col("layers") == np.bincount(rows["layers"].to_numpy()).argmax())
    of_phase = usual.with_columns(phase=_phase(), requests="sequences", tokens=pl.col("sequences") * pl.col("queries"))
    if of_phase.filter(pl.col("phase") == "decode").height < _FEWEST_PASSES:
        return pl.DataFrame(schema=PASS)
    return _doubted(of_phase).select(pl.col(name).cast(kind) for name, kind in PASS.items())


def _names(view: DeviceView) -> pl.DataFrame:
    """What the name of each kernel or copy shows of a pass."""
    ops = view.ops.filter(pl.col("kind").is_in(_KINDS))
    names = ops.select("name").unique().join(view.once(classes), on="name", how="left")
    text, attends = pl.col("name").cast(pl.String).str, pl.col("family") == "attention"
    return names.select(
        "name",
        writes=text.contains(CACHE_WRITES),
        attends=attends & ~text.contains(_REDUCES),
        decodes=text.contains(DECODE_ATTENTION),
        prefills=text.contains(PREFILL_ATTENTION),
        samples=text.contains(SAMPLERS) & ~attends,
    )


def _launched(view: DeviceView, names: pl.DataFrame) -> pl.DataFrame:
    """Kernels and copies in the order of their launches, with what each shows of its pass."""
    ops = view.ops.filter(pl.col("kind").is_in(_KINDS))
    ops = view.with_host(ops, "launch", called="start_ns", call_ns="dur_ns", call="name").drop_nulls("called")
    layer = "writes" if names["writes"].any() else "attends"
    return (
        ops.with_columns(returned=pl.col("called") + pl.col("call_ns"), replays=matches(GRAPH_LAUNCH, "call"))
        .drop("call_ns", "call")
        .join(names, on="name", how="left")
        .join(_queries(view), on="op", how="left")
        .sort("called", "start_ns")
        .with_columns(layer=pl.col(layer))
    )


def _queries(view: DeviceView) -> pl.DataFrame:
    """What the shapes of attention ops say of a pass: op, sequences, queries, keys."""
    ops = view.host.filter(pl.col("kind") == "op", matches(_ATTENDS), pl.col("shapes").is_not_null())
    texts = ops.select("name", "shapes").unique().with_columns(pl.col("name", "shapes").cast(pl.String))
    rows = [(name, text, *of) for name, text in texts.rows() if (of := _shape(name, text))]
    schema = {"name": pl.String, "shapes": pl.String, **dict.fromkeys(Queries._fields, pl.Int64)}
    known = pl.DataFrame(rows, schema=schema, orient="row")
    by_op = ops.select(pl.col("name", "shapes").cast(pl.String), op="id")
    return by_op.join(known, on=["name", "shapes"]).drop("name", "shapes")


def _shape(name: str, shapes: str) -> Queries | None:
    """The lengths in the shapes of query and keys, which are all that this looks at."""
    try:
        query, keys = json.loads(shapes)[:2]
        at = 2 if pl.Series([name]).str.contains(_LENGTH_LAST).item() else 1
        return Queries(int(query[0]), int(query[at]), int(keys[at]))
    except (ValueError, TypeError, IndexError):
        return None


def _divided(ops: pl.DataFrame) -> pl.DataFrame:
    """The ops with the number of their `group`: it ends with a choice of tokens, and their way to the host."""
    to_host = (pl.col("kind") == "memcpy") & (pl.col("copy_kind") == "DtoH").fill_null(value=False)
    rows = ops.with_row_index("row").with_columns(stretch=pl.col("layer").cum_sum(), to_host=to_host)
    ends = pl.col("samples") | (pl.col("to_host") & pl.col("samples").any().over("stretch"))
    rows = rows.with_columns(last=pl.when(ends).then("row")).with_columns(last=pl.col("last").max().over("stretch"))
    return rows.with_columns(group=(pl.col("row") == pl.col("last") + 1).fill_null(value=False).cum_sum())


def _grouped(ops: pl.DataFrame) -> pl.DataFrame:
    """One row per pass: from what follows the last choice of tokens to the next one."""
    shows = pl.col("sequences").is_not_null()
    one_query = pl.col("queries").eq(1) & pl.col("keys").gt(1)
    return (
        _divided(ops)
        .group_by("group", maintain_order=True)
        .agg(
            layers=pl.sum("layer"),
            start_ns=pl.min("called"),
            end_ns=pl.max("returned"),
            replayed=(pl.col("replays") & pl.col("writes")).any(),
            decodes=pl.col("decodes").any() | one_query.any(),
            prefills=pl.col("prefills").any() | (shows & (pl.col("queries") > 1)).any(),
            **{name: pl.col(name).drop_nulls().first() for name in ("sequences", "queries")},
        )
        .filter(pl.col("layers") > 0)
    )


def _have_equal_layers(rows: pl.DataFrame) -> bool:
    """Whether the passes have equally many layers, but for those that the recording cuts and a few."""
    layers = rows["layers"].to_numpy()
    if len(layers) < _FEWEST_PASSES:
        return False
    usual = np.bincount(layers).argmax()
    odd = int((layers[1:-1] != usual).sum())
    return bool(usual >= _FEWEST_LAYERS) and odd <= _MOST_ODD * len(layers)


def _phase() -> pl.Expr:
    """By the kernels of attention; engines replay graphs that write to the cache only to decode."""
    both = pl.col("decodes") & pl.col("prefills")
    return (
        pl.when(both)
        .then(pl.lit("mixed"))
        .when(pl.col("decodes") | (pl.col("replayed") & ~pl.col("prefills")))
        .then(pl.lit("decode"))
        .when("prefills")
        .then(pl.lit("prefill"))
        .otherwise(pl.lit(UNNAMED))
    )


def _doubted(rows: pl.DataFrame) -> pl.DataFrame:
    """Without the name of prefills that are about as many as decode steps: they may check drafts."""
    many = pl.col("phase").eq("prefill").sum() > _AS_MANY * pl.col("phase").eq("decode").sum()
    return rows.with_columns(
        phase=pl.when(many & (pl.col("phase") == "prefill")).then(pl.lit(UNNAMED)).otherwise("phase")
    )
