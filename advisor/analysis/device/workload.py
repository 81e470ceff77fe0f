"""What kind of work a recording shows, training, inference, serving, capture of graphs, one kernel, a log; and phases.

The steps of a serving engine by phase: prefill, decode, both mixed, or the check of drafts; how it decodes. Marks name
them. Where none does, kernels prove the passes of a model that writes tokens one by one: each layer writes to the cache
once, or attends once; the last kernels of a pass choose the next tokens. Passes of one model have equally many layers:
where they have not, nothing is told.
"""

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.launches import captures
from advisor.analysis.device.view import DeviceView, classes, outermost, spans
from advisor.inputs.names import engines
from advisor.inputs.names.calls import CAPTURE_BEGINS, CAPTURE_ENDS, GRAPH_LAUNCH, LAUNCHING
from advisor.inputs.step_periods import PRODUCTS, without_graph
from advisor.model.intervals import Intervals, Ints, begun
from advisor.model.profile import END_NS, matches, of_distinct

UNKNOWN: Final = "unknown"
_LINKED: Final = 0.5  # of the kernel time: of the rest it is not known what launched it
_OF_OPS: Final = 0.9  # of the linked kernel time: graphs may hold a backward pass that no op shows
_ONE_KERNEL: Final = 0.95  # of the kernel time
_FEWEST_RUNS: Final = 3
_MOST_KERNELS: Final = 3
_CAPTURING: Final = 0.5  # of the host's time
_ALONE: Final = ("capture", "benchmark", "inference", "collectives")
"""Kinds that are named only where no sign of training or serving is; capture hides even those."""


class Sign(NamedTuple):
    """What shows a kind of work: a code of `workloads.SIGNS`, and a name from the recording that is an example."""

    kind: str
    code: str
    example: str


def signs(view: DeviceView) -> list[Sign]:
    """Every sign of a kind of work in the recording, those of the likeliest kind first."""
    by_name = list(_by_name(view))
    kinds = _kinds([*_of_recording(view), *by_name, *_repetitions(view), *_forward_only(view)])
    return [sign for kind in dict.fromkeys(sign.kind for sign in kinds) for sign in kinds if sign.kind == kind]


def workload(view: DeviceView) -> str:
    """The kinds of work, joined by a comma where several mix; `unknown` where nothing shows it."""
    return ", ".join(dict.fromkeys(sign.kind for sign in view.once(signs))) or UNKNOWN


def _kinds(every: list[Sign]) -> list[Sign]:
    """The signs that count: capture hides all others, training and serving the weaker ones."""
    if capture := [sign for sign in every if sign.kind == "capture"]:
        return capture
    if strong := [sign for sign in every if sign.kind not in _ALONE]:
        return strong
    return next(([s for s in every if s.kind == kind] for kind in _ALONE if any(s.kind == kind for s in every)), [])


def _by_name(view: DeviceView) -> Iterator[Sign]:
    host = view.host.select("kind", "name").unique().with_columns(pl.col("name").cast(pl.String))
    names_of = {
        "kernels": view.ops.filter(pl.col("kind") == "kernel")["name"].unique().cast(pl.String),
        "ranges": host.filter(pl.col("kind").is_in(["op", "annotation", "step", "module", "compile"]))["name"],
        "python": host.filter(pl.col("kind") == "python")["name"],
    }
    for kind, code, whose, pattern in engines.signs():
        names = names_of[whose]
        if (example := names.filter(names.str.contains(pattern)).min()) is not None:
            yield Sign(kind, code, str(example))


def _of_recording(view: DeviceView) -> Iterator[Sign]:
    """Of a log of collectives alone, or where half of the host's time lies between begin and end of captures."""
    if view.collective_log.height and not (view.host.height or view.ops.height):
        yield Sign("collectives", "collective_log", str(view.collective_log["op"].drop_nulls().first() or ""))
    captured = captures(view.host_like(CAPTURE_BEGINS), view.host_like(CAPTURE_ENDS)).total
    if captured and captured >= _CAPTURING * view.host.select(END_NS.max() - pl.col("start_ns").min()).item():
        yield Sign("capture", "graph_capture", str(view.host_like(CAPTURE_BEGINS)["name"][0]))


def _repetitions(view: DeviceView) -> Iterator[Sign]:
    """Where one kernel is nearly all that runs, again and again."""
    ran = view.ops.filter(pl.col("kind").is_in(["kernel", "collective"]))
    kernels = ran.group_by("name", "framework_op").agg(ns=pl.sum("dur_ns"), runs=pl.len()).sort("ns", descending=True)
    part = pl.col("ns") / pl.col("ns").sum()
    is_other = view.only_collectives or ran["graph"].count()
    if is_other or not 0 < kernels.height <= _MOST_KERNELS or kernels["runs"][0] < _FEWEST_RUNS:
        return
    if kernels.select(part.first() >= _ONE_KERNEL).item():
        yield Sign("benchmark", "one_kernel", str(kernels["name"][0]))


def _forward_only(view: DeviceView) -> Iterator[Sign]:
    """Where PyTorch's products build no graph for a backward pass, and ops launch nearly all kernels."""
    if not without_graph(view.host_like(PRODUCTS, "op")):
        return
    kernels = view.ops.filter(pl.col("kind") == "kernel")
    linked, of_ops = (pl.col("dur_ns").filter(pl.col(link).is_not_null()).sum() for link in ("launch", "op"))
    if kernels.select((of_ops >= _OF_OPS * linked) & (linked >= _LINKED * pl.col("dur_ns").sum())).item():
        yield Sign("inference", "forward_only", "")


_NUMBERS: Final = ("busy_ns", "period_ns", "kernels", "graphs", "launching_ns", "host_ns", "communicating_ns")
PASS: Final = {"phase": pl.String, "requests": pl.Int64, "tokens": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
_KINDS: Final = ["kernel", "memcpy"]
UNNAMED: Final = "unnamed"
_FEWEST_LAYERS: Final = 2  # with one, a sampler in each layer would look like the end of a pass
_FEWEST_PASSES: Final = 3
_MOST_ODD: Final = 0.1  # of the passes, that have another number of layers
_AS_MANY: Final = 0.5  # of the decode passes: so many long ones check drafts, and are no prefill
_ATTENDS: Final = r"scaled_dot_product|(?:flash|efficient|cudnn)_attention_forward"
_SHAPE: Final = ("sequences", "queries", "keys")
_LENGTH_LAST: Final = r"scaled_dot_product|cudnn_attention"  # the length is the last axis but one, else the second
# By the kernels of attention; engines replay graphs that write to the cache only to decode
_PHASE: Final = (
    pl.when(pl.col("decodes") & pl.col("prefills")).then(pl.lit("mixed"))
    .when(pl.col("decodes") | (pl.col("replayed") & ~pl.col("prefills"))).then(pl.lit("decode"))
    .when("prefills").then(pl.lit("prefill"))
    .otherwise(pl.lit(UNNAMED))
)  # fmt: skip
_PAUSE: Final = 10  # times the median gap, above which no request was there to decode


def engine_steps(view: DeviceView) -> pl.DataFrame:
    """The engine's steps on the host, in order: phase, requests, tokens, start_ns, end_ns.

    From its marks, or else from the kernels of its forward passes.
    """
    of_marks = view.once(marks)
    return of_marks if of_marks.height else view.once(passes)


def marks(view: DeviceView) -> pl.DataFrame:
    """The steps that an engine marks, outermost.

    The thread counts whose marks cover most time: engines repeat the names on threads that launch nothing.
    """
    rows = view.host_like(f"{engines.STEP_MARKS}|{engines.JAX_MARKS}")
    threads = rows.group_by("thread").agg(pl.sum("dur_ns")).sort("dur_ns", "thread", descending=[True, False])
    own = outermost(rows.filter(pl.col("thread").is_in(threads["thread"].head(1).implode())))
    own = own.select(pl.col("name").cast(pl.String), "start_ns", "dur_ns")
    batches = ((engines.batch(name), start, start + dur) for name, start, dur in own.rows())
    return pl.DataFrame([(*of, *span) for of, *span in batches if of], schema=PASS, orient="row")


def work(view: DeviceView) -> pl.DataFrame:
    """The device's ops that the engine's steps launched, in that order.

    With `mark` (row of `engine_steps`) and `replays` (whether a launch of a CUDA graph runs it).
    """
    engine = view.once(engine_steps)
    ops = view.ops.filter(pl.col("start_ns") >= (0 if view.has_marks else int(view.starts[0])))
    ops = view.with_host(ops, "launch", called_ns="start_ns", call="name").drop_nulls("called_ns")
    ops = ops.with_columns(replays=matches(GRAPH_LAUNCH, "call")).drop("call").sort("called_ns", maintain_order=True)
    begins = engine["start_ns"].to_numpy()
    nothing = np.iinfo(np.int64).min  # is before the first mark
    until = np.concatenate(([nothing], begins[1:], engine["end_ns"].tail(1).to_numpy()))
    at = np.searchsorted(begins, ops["called_ns"].to_numpy(), "right") - 1
    inside = ops["called_ns"].to_numpy() < until[at + 1]
    return ops.with_columns(mark=pl.Series(at, dtype=pl.Int64)).filter(pl.Series(inside, dtype=pl.Boolean))


def steps_by_phase(view: DeviceView) -> pl.DataFrame:
    """One row per step of the engine that began in a used window, with its `mark` (row of `engine_steps`).

    Its phase, requests, tokens; `next_phase` of the step after it (null where that ran nothing or was not recorded);
    first and last, between which its ops run, in ns; and, in ns or counts: busy_ns and period_ns on the device, kernels
    and single (those that no CUDA graph launched), graphs (launches of CUDA graphs), launching_ns (time in calls that
    launch) and host_ns on the host, communicating_ns.

    On the device a step lasts from its first op to the next step's first op, on the host from mark to mark; the last
    step to its last op, and to the end of its mark.
    """
    engine = view.once(engine_steps)
    if not engine.height or not view.ops.height or not view.total_ns:
        more = dict.fromkeys(("mark", "first", "last", "single", *_NUMBERS), pl.lit(0, pl.Int64))
        return engine.clear().with_columns(**more, next_phase=pl.col("phase"))
    calls = view.host_like(LAUNCHING).sort("start_ns")
    is_kernel = pl.col("kind") == "kernel"
    by_mark = view.once(work).group_by("mark")
    extent = by_mark.agg(
        first=pl.min("start_ns"),
        last=END_NS.max(),
        kernels=is_kernel.sum().cast(pl.Int64),
        single=(is_kernel & ~pl.col("replays")).sum().cast(pl.Int64),
    )
    rows = engine.with_columns(mark=pl.int_range(pl.len(), dtype=pl.Int64)).join(extent, on="mark").sort("mark")
    is_next = pl.col("mark").diff().shift(-1) == 1
    rows = rows.with_columns(next_phase=pl.when(is_next).then(pl.col("phase").shift(-1)))
    opens = rows["first"].to_numpy()
    closes = np.maximum(np.append(opens[1:], rows["last"].tail(1).to_numpy()), opens)
    used = view.windows.covers(opens)
    begins = rows["start_ns"].to_numpy()
    ends = np.maximum(np.append(begins[1:], rows["end_ns"].tail(1).to_numpy()), begins)
    values = {
        "busy_ns": view.busy.within(opens, closes),
        "period_ns": closes - opens,
        "graphs": begun(calls.filter(matches(GRAPH_LAUNCH))["start_ns"], begins, ends),
        "launching_ns": spans(calls).within(begins, ends),
        "host_ns": ends - begins,
        "communicating_ns": view.device_spans("collective").within(opens, closes),
    }
    numbers = [pl.Series(name, of, dtype=pl.Int64) for name, of in values.items()]
    return rows.with_columns(numbers).filter(pl.Series(used, dtype=pl.Boolean))


def phases(view: DeviceView) -> pl.DataFrame:
    """One row per phase, that with most time first.

    Columns: phase, steps, requests and tokens (means; null where no mark says), step_ms, idle_share, launch_share (of
    the host's time), communication_share (of the device's busy time), kernels and graph_launches (means per step).
    """
    rows = view.once(steps_by_phase)
    total = {name: pl.sum(name) for name in _NUMBERS}
    return (
        rows.group_by("phase")
        .agg(
            steps=pl.len(),
            requests=pl.mean("requests"),
            tokens=pl.mean("tokens"),
            step_ms=pl.mean("period_ns") / 1e6,
            idle_share=1 - total["busy_ns"] / total["period_ns"],
            launch_share=total["launching_ns"] / total["host_ns"],
            communication_share=total["communicating_ns"] / total["busy_ns"],
            kernels=pl.mean("kernels"),
            graph_launches=pl.mean("graphs"),
        )
        .sort(pl.col("step_ms") * pl.col("steps"), "phase", descending=[True, False])
    )


def passes(view: DeviceView) -> pl.DataFrame:
    """The forward passes in order: phase, requests, tokens, start_ns and end_ns of the calls that launched them.

    Empty unless three passes or more surely decode. A phase is `unnamed` where kernels do not show it.
    """
    names = _names(view)
    if not names["samples"].any() or (not names["writes"].any() and not names["attends"].any()):
        return pl.DataFrame(schema=PASS)
    rows = _grouped(_launched(view, names))
    layers = rows["layers"].to_numpy()
    usual = np.bincount(layers).argmax() if len(layers) else 0
    odd = (layers[1:-1] != usual).sum()  # the recording cuts the first and the last one off
    if usual < _FEWEST_LAYERS or odd > _MOST_ODD * len(layers):
        return pl.DataFrame(schema=PASS)
    rows = rows.filter(pl.col("layers") == usual).with_columns(phase=_PHASE)
    decode_steps, fills = pl.col("phase").eq("decode").sum(), pl.col("phase") == "prefill"
    if rows.select(decode_steps).item() < _FEWEST_PASSES:
        return pl.DataFrame(schema=PASS)
    # Prefills that are about as many as decode steps may check drafts.
    unsure = fills & (fills.sum() > _AS_MANY * decode_steps)
    rows = rows.with_columns(
        phase=pl.when(unsure).then(pl.lit(UNNAMED)).otherwise("phase"),
        requests="sequences",
        tokens=pl.col("sequences") * pl.col("queries"),
    )
    return rows.select(pl.col(name).cast(kind) for name, kind in PASS.items())


def _names(view: DeviceView) -> pl.DataFrame:
    """What the name of each kernel or copy shows of a pass."""
    ops = view.ops.filter(pl.col("kind").is_in(_KINDS))
    names = ops.select("name").unique().join(view.once(classes), on="name", how="left")
    text, attends = pl.col("name").cast(pl.String).str, pl.col("family") == "attention"
    return names.select(
        "name",
        writes=text.contains(engines.CACHE_WRITES),
        attends=attends & ~text.contains(r"(?i)combine|reduce|merge|stage2|dot_do_o"),
        decodes=text.contains(engines.DECODE_ATTENTION),
        prefills=text.contains(engines.PREFILL_ATTENTION),
        samples=text.contains(engines.SAMPLERS) & ~attends,
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
    texts, schema = ops.select(pl.col("name", "shapes").cast(pl.String)), dict.fromkeys(_SHAPE, pl.Int64)
    known = of_distinct(texts, lambda of: pl.DataFrame([_shape(*row) for row in of.rows()], schema, orient="row"))
    return ops.select(op="id").hstack(known)


def _shape(name: str, shapes: str) -> tuple[int | None, int | None, int | None]:
    """How many sequences the shapes of query and keys have, which are all that this looks at, and how many of both."""
    try:
        query, keys = json.loads(shapes)[:2]
        at = 2 if pl.Series([name]).str.contains(_LENGTH_LAST).item() else 1
        return int(query[0]), int(query[at]), int(keys[at])
    except (ValueError, TypeError, IndexError):
        return None, None, None


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


def decode_steps(view: DeviceView) -> pl.DataFrame:
    """The rows of `steps_by_phase` that decode, in order."""
    return view.once(steps_by_phase).filter(pl.col("phase").is_in(engines.DECODING))


def time_of(steps: pl.DataFrame) -> Intervals:
    """When the device is in one of these rows of `steps_by_phase`, the wait for the next one's first op included."""
    return Intervals.of(steps["first"], steps["first"] + steps["period_ns"])


def gaps_between(view: DeviceView) -> tuple[Ints, Ints]:
    """When the last op of a decode step has ended and the first of the next has not begun: (starts, ends) in ns.

    Only of steps that follow each other: their requests were there all the time. A gap that is ten times as long as the
    median is a pause, in which the server may have had no request.
    """
    rows = view.once(decode_steps).filter(pl.col("next_phase").is_in(engines.DECODING))
    opens, closes = rows["last"].to_numpy(), (rows["first"] + rows["period_ns"]).to_numpy()
    length = closes - opens
    real = length > 0
    usual = real & (length <= _PAUSE * np.median(length[real])) if real.any() else real
    return opens[usual], closes[usual]


def graph_launches(view: DeviceView) -> Intervals:
    """When a call is open that launches a CUDA graph."""
    return spans(view.host_like(GRAPH_LAUNCH))
