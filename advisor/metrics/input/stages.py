"""What a batch is made of and what holds it up: stages of its loading, more processes or a stage less, and padding."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import own_ns, step_ops
from advisor.analysis.device.iterators import slowed_part
from advisor.analysis.device.loading_stages import MOSTLY_ONCE, Batch, batch, cores, largest, once, pace_limit, parts
from advisor.analysis.device.recording_cost import unprofiled_ms
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.stacks import TRANSPORT, Stage, stage_of
from advisor.metrics.metric import lacking, of_devices, tabulates
from advisor.model.clause import Entries, Missing
from advisor.model.profile import BATCHES, matches

_LITTLE: Final = 0.05
_MOST_NAMES: Final = 3
_SLOW: Final = 4  # own choice: times the mean sample
_SLOW_MS: Final = 50.0  # several stacks: one alone stands for 10 ms or more
_HANDED_MS: Final = 1.0
_PROCESSES: Final = (0, 1, 2, 4, 8, 16)
_SOURCE: Final = "stacks and counts of `advisor record`; DS-Analyzer, arXiv 2007.06775: loading of each stage, measured"

measure = of_devices(__name__, source=_SOURCE)
of_batches = measure.parts_of(batch, without="")  # none was counted
of_lists = measure.parts_of(batch, without=[])
of_gains = measure.parts_of(batch, without=0.0)


def _stage_fix(view: DeviceView) -> str:
    advice, part = view.once(once)
    if view.once(batch) and view.once(pace_limit) != TRANSPORT and part >= MOSTLY_ONCE:
        return advice
    return _advice(view, view.once(largest))


def _advice(view: DeviceView, stage: Stage | None) -> str:
    """What to do about a stage."""
    if stage is None:
        return ""
    return stage.fix if view.device is None else f"{stage.fix} {stage.on_device}".rstrip()


def _stages(of: Batch) -> Entries:
    every = sorted(parts(of), key=lambda part: -part[1])
    least = _LITTLE * sum(length for _, length in every)
    details = {"transform": ", ".join([*of.names][:_MOST_NAMES]) or None}
    stages = ((stage_of(name).words, length, details.get(name)) for name, length in every if length >= least)
    return [{"name": words, "ms": length, "what": what} for words, length, what in stages]


def _read_alone(of: Batch) -> Entries:
    if not of.cold_ms or of.stages.get("read", 0.0) < _LITTLE * of.load_ms:
        return []
    alone = {"from the disk": of.cold_ms, "from memory": of.warm_ms}
    return [{"name": name, "count": of.files, "bytes": of.file_bytes, "ms": ms} for name, ms in alone.items()]


def _slow_samples(of: Batch) -> Entries:
    least_ms = max(_SLOW_MS, _SLOW * of.alone_ms / max(1, of.samples))
    return [{"name": str(index), "ms": length} for index, length in of.slow if length >= least_ms]


def period_ms(of: Batch, processes: int, floor_ms: float, without_ms: float = 0.0) -> tuple[float, str]:
    """From one batch to the next with so many processes, and what holds that: loading, cores, transport, step.

    `without_ms` is what loading takes less. Processes load beside the step; one of none takes turns with it. `floor_ms`
    is what the cores together take for all that they run for a batch.
    """
    load_ms = max(0.0, of.load_ms - without_ms)
    if processes == 0:
        return of.rest_ms + of.pin_ms + load_ms, "loading" if load_ms > of.rest_ms else "step"
    receive_ms = of.receive_ms if of.workers else min(_HANDED_MS, of.alone_ms)
    ends = {
        "loading": (load_ms + of.send_ms) / processes,
        "cores": max(0.0, floor_ms - without_ms * of.run_ms / max(of.alone_ms, 1e-9)),
        "transport": of.rest_ms + receive_ms if receive_ms > of.rest_ms else 0.0,
        "step": of.rest_ms + receive_ms,
    }
    last = max(ends, key=lambda name: ends[name])
    return ends[last], last


def _stage_gain_ms(view: DeviceView) -> float:
    of = view.once(batch)
    stage = view.once(largest)
    if of is None or stage in {None, stage_of(TRANSPORT)} or _stage_fix(view) != _advice(view, stage):
        return 0.0
    floor_ms, longest_ms = of.cpu_ms / cores(view), max(of.stages.values())
    now_ms = of.period_ms if of.workers else period_ms(of, 0, floor_ms)[0]  # a busy machine delays ready batches too
    shorter_ms = now_ms - period_ms(of, of.workers, floor_ms, longest_ms)[0]
    free_ms = unprofiled_ms(view)
    step_ms = view.per_step_ms(view.total_ns) if isinstance(free_ms, Missing) else free_ms
    return max(0.0, min(shorter_ms * of.per_step, step_ms))


@tabulates("loading_pace")
def _pace(view: DeviceView) -> pl.DataFrame:
    """What a batch takes now, with other numbers of processes, without its longest stages, or ready at once.

    Then no worker computes on the cores of the steps.
    """
    of, schema = view.once(batch), {"processes": pl.Int64, "without": pl.String, "is_now": pl.Boolean}
    schema |= {"period_ms": pl.Float64, "limit": pl.String}
    if of is None:
        return pl.DataFrame(schema=schema)
    floor_ms, limit = of.cpu_ms / cores(view), view.once(pace_limit)
    rows: list[tuple[int, str | None, bool, float, str | None]] = [(of.workers, None, True, of.period_ms, limit)]
    rows += [(n, None, False, *period_ms(of, n, floor_ms)) for n in _PROCESSES if n != of.workers]
    rows.sort(key=lambda row: row[0])
    long = [(name, length) for name, length in of.stages.items() if length >= _LITTLE * of.load_ms]
    rows += [(of.workers, name, False, *period_ms(of, of.workers, floor_ms, length)) for name, length in long]
    rows.append((of.workers, "all", False, (1 - view.once(slowed_part)) * of.rest_ms, "step"))
    return pl.DataFrame(rows, schema=schema, orient="row")


@tabulates("loading_stage")
def _journey(view: DeviceView) -> pl.DataFrame:
    """Each stage of a batch in the order in which it is passed."""
    of = view.once(batch)
    rows = [(name, stage_of(name).words, length) for name, length in parts(of)] if of else []
    return pl.DataFrame(rows, schema={"stage": pl.String, "words": pl.String, "ms": pl.Float64}, orient="row")


of_lists("loading_stages", _stages, unit="names", unprofiled=True).says(
    "What one batch takes, by stage, the longest first; empty where no batch was counted.",
    "mean time of the loader's fetch in a process that loads, without its waits for a core but those of a worker "
    "because of other programs, x each stage's part of the samples in it, by the calls in their stacks and "
    "`inputs/names/loading_stages.yaml`; and what processes run to hand it over",
)
measure("loading_limit", pace_limit, unit="text").says(
    "What holds up the loading: ready (nothing), transport, pool, storage, sleep, lock, delay (no core), work; "
    "else empty.",
    "ready: workers keep a step waiting for under 5 %, or loading and sending / workers and receiving each take under "
    "a quarter of the step without the wait. transport: what one process receives, or what workers send / workers, is "
    "above fetch / workers and a quarter of the wait. lock: the thread sleeps for a quarter of the request "
    "or more in no stage that waits, and other threads run meanwhile. storage, sleep: it sleeps for over half of fetch "
    "without waits for a core, half of that in a stage that reads, or in a sleep, or pages of a disk are waited for. "
    "delay: it waits for a core for over a quarter. Else work. Of what a pool makes (`multiprocessing.Pool`, "
    "`ProcessPoolExecutor`, joblib), transport: the thread that unpickles it runs for half of the sampled wait, with "
    "waits for a core as long as the main thread's to what that runs, or the main one receives for that long without "
    "sleep; else pool. Else empty",
    "own choice of the parts; time of the thread on a core (`CLOCK_THREAD_CPUTIME_ID`), waits for a core "
    "(`/proc/thread-self/schedstat`)",
)
of_gains("loading_delay_part", lambda of: of.delay_ms / of.fetch_ms if of.fetch_ms else 0.0).says(
    "Part of the loading that waits for a core; 0 where it is unknown.", "waits for a core in fetch / fetch"
)
measure("loading_fix", _stage_fix, unit="text").says(
    "How to shorten the longest stage, or the handing over where that holds up the loading; empty where unknown.",
    "the advice for the stage; from a loading_once_part of a third on, for that",
)
measure("loading_once_part", lambda view: view.once(once)[1]).says(
    "Part of the loading that opens a shared file, looks rows up, or prepares text for each sample anew, that a "
    "`collate_fn` of the program takes, or that opens small files.",
    "samples with calls that have such an advice in `inputs/names/host_calls.yaml`, of the largest kind / all in which "
    "a batch is made; of small_files, the stage that reads, without sleep and what they take read alone from memory / "
    "the loading",
)
of_gains(
    "alone_gain_ms", lambda of: max(0.0, of.period_ms - period_ms(of, 0, 0.0)[0]) * of.per_step if of.workers else 0.0
).says(
    "What a step gets shorter if the process of the steps loads its batches itself; 0 where it does, or it is unknown.",
    "(time from one batch to the next - time of the step without its request - fetch without waits for a core) x "
    "batches of a step",
)
measure("stage_gain_ms", _stage_gain_ms).says(
    "What a step gets shorter without the longest stage of loading, with as many processes as now; 0 where that is "
    "unknown, or loading_fix is of what need not be done for each sample.",
    "(time from one batch to the next by the measured stages - the same without that stage) x batches of a step, as in "
    "the table loading_pace; at most the step",
)
of_gains("small_files", lambda of: of.files if of.has_small_files else 0.0).says(
    "Files that are opened for a batch, where these are under 1 MiB and one for each second sample or more; else 0.",
    "files that Python opens to read / batches",
    "a disk reads 1 MiB in the time of one seek",
)
of_gains("small_file_bytes", lambda of: int(of.bytes / of.files) if of.has_small_files else 0).says(
    "The mean size of the small files that are opened for a batch; 0 without any.",
    "bytes read (`/proc/self/io`) / files",
)
of_lists("read_alone", _read_alone, unit="names", unprofiled=True).says(
    "What the files of a batch take when nothing else reads them, from the disk and from memory; empty where reading "
    "is under 5 % of the loading.",
    "files of a batch x time / file of up to 64 that were opened, which `advisor record` reads again behind the steps: "
    "once after `posix_fadvise(DONTNEED)`, and once more",
    "storage that gives less in the job than alone is asked by too few at once; memory gives what a cache would",
)
of_lists("slow_samples", _slow_samples, unit="names").says(
    "The samples that take longest, by their index; empty where none takes 50 ms and four times as long as the mean.",
    "time that the stacks stand for which were sampled one after another while the index was loaded: up to five",
)


_PRODUCTS: Final = r"bmm|attention"  # of each token with each other
_PICKS: Final = r"^(?:Index|Select|Slice)Backward\d*$"
_BETWEEN: Final = 4  # own choice: nodes from what picks rows to the layer, such as those of views
_SURELY: Final = 0.75  # own choice, of what shorter sequences save: ops over them cost their launch all the same
_PICKED: Final = 0.6  # of what rows take: without them, 62 % of that and more went in seven programs


def _batches(view: DeviceView) -> pl.DataFrame:
    """The batches, with `values`: places for tokens in each."""
    batches = (
        pl.DataFrame({"batch": view.process.get("batches") or []}, schema={"batch": BATCHES})
        .unnest("batch")
        .fill_null(0)
    )
    return batches.with_columns(values=pl.col("rows") * pl.col("length"))


def _mean(view: DeviceView, part: pl.Expr) -> float:
    """The mean over all places for tokens; 0 without sequences."""
    batches = view.once(_batches)
    total, weighted = int(batches["values"].sum()), batches.select(value=part * pl.col("values"))["value"].to_list()
    return float(sum(weighted)) / max(1, total)


def _padding(view: DeviceView) -> float:
    return _mean(view, pl.col("padding"))


def _shaped(view: DeviceView) -> pl.DataFrame:
    """The time of the used steps by op: name, shapes, ns; of a device's kernels by the op that launches them."""
    if view.device is None:
        ops = view.once(step_ops).select("id", "parent", "name", "shapes", "dur_ns").collect()
        times = ops.with_columns(ns=own_ns(ops))
    else:
        times = view.with_host(view.used_ops, "op", shapes="shapes", name="name").with_columns(ns="dur_ns")
    return times.select("name", pl.col("shapes").cast(pl.String), "ns")


def _unscored_ms(view: DeviceView) -> tuple[float, float]:
    """What is saved without the scores of places that have no label: in ops over rows and classes of the softmax."""
    softmax = view.once(_shaped).filter(matches(r"_log_softmax$")).sort("ns")
    sides = softmax["shapes"].str.extract_groups(r"^\[\[(\d+), ?(\d+)\]").struct.unnest().drop_nulls().rows()
    part_ms = _mean(view, pl.col("unlabelled")) * _over_ms(view, *(sides or [("no", "no")])[-1])
    return _PICKED * part_ms, part_ms


def _over_ms(view: DeviceView, *sides: object) -> float:
    over = [pl.col("shapes").str.contains(rf"\b{side}\b") for side in sides]
    return view.per_step_ms(int(view.once(_shaped).filter(over)["ns"].sum()))


def _picked(view: DeviceView) -> list[tuple[int, int, float, float]]:
    """Results of layers of which rows are picked, by the zeros that gradients are spread over: rows, columns, read.

    And their part of all layers with a result of that form.
    """
    shapes = pl.col("shapes").cast(pl.String)
    sides = shapes.str.extract(r"^\[\[([^\]]+)\]").str.extract_all(r"\d+").cast(pl.List(pl.Int64))
    of = {"columns": sides.list.last(), "values": sides.list.eval(pl.element().product()).list.first()}
    columns = shapes.str.extract(r"^\[\[[^\]]+\], ?\[(\d+)").cast(pl.Int64)
    result = {"columns": columns, "values": of["values"] // of["columns"] * columns}
    alike = view.used_like(r"^aten::linear$", "op").select(**result).group_by("values", "columns").len("alike")
    picks, zeros, layers = (
        view.used_like(name, "op").select("thread", "sequence", "start_ns", **of).drop_nulls("values").sort("start_ns")
        for name in (_PICKS, r"^aten::zero_$", r"^(?:Addmm|Mm)Backward\d*$")
    )
    spread = zeros.join_asof(picks, on="start_ns", by=["thread", "columns"], suffix="_read", check_sortedness=False)
    scored = spread.join(layers, on=["thread", "values", "columns"], suffix="_made")
    scored = scored.filter((pl.col("sequence_read") - pl.col("sequence_made")).is_between(1, _BETWEEN))
    read = scored.group_by("values", "columns").agg(read=pl.mean("values_read"), picked=pl.len())
    read = read.join(alike, on=["values", "columns"], how="left").filter(pl.col("read") < pl.col("values"))
    parts = pl.col("picked") / pl.max_horizontal("picked", "alike")
    rows = read.sort("values", descending=True).select("values", "columns", "read", part=parts).rows()
    return [(n // columns, columns, places / columns, part) for n, columns, places, part in rows]


def _unread_ms(view: DeviceView) -> tuple[float, float]:
    of = view.once(_picked)
    part_ms = sum(part * (1 - read / rows) * _over_ms(view, rows, columns) for rows, columns, read, part in of)
    return _PICKED * part_ms, part_ms


def _times(view: DeviceView) -> pl.DataFrame:
    """The time of the used steps in ops over the padded length, by the power of it that their work has: power, ns.

    The length stands in their shapes, alone or times the rows of a batch.
    """
    batches, times, shapes = view.once(_batches), view.once(_shaped), pl.col("shapes")
    length = "|".join(map(str, batches["length"].unique().sort()))
    rows = "|".join(map(str, batches["values"].unique().sort()))
    twice = shapes.str.contains(rf"\[[^\[\]]*\b(?:{length})\b[^\[\]]*\b(?:{length})\b") | matches(_PRODUCTS)
    once = shapes.str.contains(rf"\b(?:{length}|{rows})\b")
    powers = times.select(power=pl.when(once & twice).then(2).when(once).then(1), ns="ns").drop_nulls()
    return powers.group_by("power").agg(pl.sum("ns"))


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    """What is saved if each batch is as long as its longest sequence, and if there is no padding at all."""
    if not view.once(_padding):
        return 0.0, 0.0
    longest, full = _mean(view, pl.col("longest") / pl.col("length")), 1 - view.once(_padding)
    times = view.once(_times).rows()
    least, most = (sum(ns * (1 - rest**power) for power, ns in times) for rest in (longest, full))
    return view.per_step_ms(_SURELY * least), view.per_step_ms(max(least, most))


def _vocabulary(view: DeviceView) -> int:
    """Rows of the largest table that ids look up."""
    shapes = view.used_like(r"^aten::embedding$", "op")["shapes"].cast(pl.String)
    return int(shapes.str.extract(r"^\[\[(\d{1,18}),").cast(pl.Int64).max() or 0)  # type: ignore[arg-type]


def _over_vocabulary_ms(view: DeviceView) -> float:
    """In ops over all rows of that table: scores, their loss, gradients and updates."""
    rows = pl.col("shapes").str.contains(rf"\b{view.once(_vocabulary) or 'no'}\b")
    return view.per_step_ms(int(view.once(_shaped).filter(rows)["ns"].sum()))


of_padding = of_devices(__name__, unknown=lacking(no_batches=lambda view: view.process.get("batches") is None))
of_padding("padding_share", _padding).says(
    "Part of the batches that is padding: places for tokens that hold none.",
    "places that an attention mask leaves out, else tails or heads of rows that repeat one value / places, in up to 8 "
    "batches of ids, or of features whose length varies, that the loader hands over; 0 without sequences",
)
of_padding("padded_length", lambda view: _mean(view, pl.col("length"))).says(
    "How long the sequences of a batch are with their padding.", "mean length of those batches"
)
of_padding("longest_length", lambda view: _mean(view, pl.col("longest"))).says(
    "How long the longest sequence of a batch is without its padding.", "mean over those batches"
)
of_padding.saving("padding", _ends_ms).says("shorter sequences")
of_padding("unlabelled_share", lambda view: _mean(view, pl.col("unlabelled"))).says(
    "Part of the places for tokens that has no label.", "places of -100 in the labels / places, in those batches"
)
of_padding.saving("unscored", _unscored_ms).says("no scores where there is no label")
of_padding("largest_id", lambda view: max(view.once(_batches)["largest"].to_list(), default=0), unit="count").says(
    "The largest id in the batches that the loader hands over; 0 without ids.", "of integers in up to 8 of them"
)
of_padding("vocabulary_rows", _vocabulary, unit="count").says(
    "Rows of the largest embedding that a step looks up; 0 without any.", "first shape of aten::embedding"
)
of_padding("over_vocabulary_ms", _over_vocabulary_ms).says(
    "Time per step in ops over all rows of that embedding: scores, their loss, gradients, updates.",
    "ops with that number in their shapes, without the ops within them; of a device what they launch",
)


of_picks = of_devices(__name__, needs=("host_ops.shapes",))
of_picks("unread_share", lambda view: next((1 - read / rows for rows, _, read, _ in view.once(_picked)), 0.0)).says(
    "Part of the rows of a layer's result that nothing reads.", "1 - picked rows / rows, by shapes of gradients"
)
of_picks.saving("unread", _unread_ms).says("rows of a result that nothing reads")
