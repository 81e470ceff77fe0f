"""Compiled code and code that is not: regions of torch.compile, programs of XLA, and ops outside of a tf.function."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import BACKWARD, between_ops, own_ns, step_ops
from advisor.analysis.device.idle import launch_gaps, unknown_waits
from advisor.analysis.device.kernels import kernels, kernels_ns
from advisor.analysis.device.places import places, stretches
from advisor.analysis.device.recording_cost import without_recording
from advisor.analysis.device.view import DeviceView, outermost, spans
from advisor.inputs.names.calls import FUNCTION_CALL, OPTIMIZER_STEP
from advisor.metrics.metric import Value, lacking, of_devices
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import EMPTY, Intervals, begun, nest
from advisor.model.profile import END_NS, matches, of_distinct
from advisor.vocabulary.kinds import XLA_FRAMEWORKS
from advisor.vocabulary.limits import DISPATCH_NS
from advisor.whatif.change import Interval, saved, without

_REGION: Final = r"^Torch-Compiled Region: (\d+)/(\d+)"
_ENDS_FORWARD: Final = rf"{OPTIMIZER_STEP}|^Optimizer\.zero_grad#|{BACKWARD}"
_REST: Final = 0.5  # of the host's work between regions, at most, once nothing breaks them

measure = of_devices(__name__, framework="pytorch")
of_waits = of_devices(__name__, framework="pytorch", needs=("device_ops", "device_ops.launch"), unknown=unknown_waits)


def _regions(view: DeviceView) -> pl.DataFrame:
    """The runs of compiled regions in the used steps, with `frame` and `version`."""
    rows, name = view.used_like(_REGION), pl.col("name").cast(pl.String).str
    parts = {part: name.extract(_REGION, number) for number, part in enumerate(("frame", "version"), 1)}
    return rows.hstack(of_distinct(rows.select("name"), lambda names: names.select(**parts)))


def _between(view: DeviceView) -> Intervals:
    """From the end of one region to the start of the next, of another frame, in the same forward pass of a step.

    Of a recording without marks nothing is said: what lies between two regions may be the next iteration's.
    """
    rows = view.once(_regions).sort("thread", "start_ns")
    if not view.has_marks or not rows.height:
        return EMPTY
    end = END_NS.cum_max().shift().over("thread", "window")
    is_other = pl.col("frame") != pl.col("frame").shift().over("thread", "window")
    gaps = rows.select(begin=end, end="start_ns", is_other=is_other).filter("is_other", pl.col("begin") < pl.col("end"))
    begin, until = gaps["begin"].to_numpy(), gaps["end"].to_numpy()
    of_forward = begun(view.used_like(_ENDS_FORWARD)["start_ns"], begin, until) == 0
    return Intervals.of(begin[of_forward], until[of_forward])


def _waiting(view: DeviceView) -> Intervals:
    """When the device waits for launches between regions."""
    work = view.once(_between)
    return work & view.once(launch_gaps) if work.total else EMPTY


def _joined(view: DeviceView) -> Interval:
    """With half of the work, at least, gone that the device waits for."""
    idle_ns = view.used_ns(_waiting(view))
    host = view.once(_between) if idle_ns else EMPTY
    return saved(view, without(host=host, rest=(_REST, 0.0), bound_ns=idle_ns))


measure("compiled_frames", lambda view: view.once(_regions)["frame"].n_unique()).says(
    "How many different frames torch.compile's regions are: a graph break divides a function into several.",
    "distinct F of ranges Torch-Compiled Region: F/R in the used steps",
    "recent PyTorch marks each run of a compiled frame F in its version R",
)
measure(
    "later_versions",
    lambda view: view.once(_regions).filter(pl.col("version") != "0").select("frame", "version").n_unique(),
).says(
    "How many of the regions that run are later versions: for other shapes, other values or another module.",
    "distinct F/R with R above 0, as in compiled_frames",
)
of_waits(
    "between_regions_share",
    lambda view: view.share(_waiting(view)),
    where=stretches(_between, "between compiled regions"),
).says(
    "Part of the step in which the device waits because the host works between two compiled regions of a forward pass.",
    "device idle in host-bound gaps of at most {launch_gap}, between regions of different frames in a row on a "
    "thread, in one step, with no backward op and no optimizer between them / step time",
)
of_waits.saving("between_regions", _joined).says("one compiled region in the place of several")


_MOST_NAMES: Final = 4
_IS_SMALL: Final = pl.col("kernels") <= pl.median("kernels")
_SMALL_PART: Final = pl.col("kernels").filter(_IS_SMALL).sum() / pl.max_horizontal(1, pl.sum("kernels"))
_JITTED: Final = r"^PjitFunction\((?P<module>.+)\)$"
_RUN: Final = r"Executable::Execute(?:Helper|$)"


def _runs(view: DeviceView) -> pl.DataFrame:
    """A row per run of a compiled program: module, kernels (or ops without a device); on one, in a row on a stream."""
    if view.device is None:
        return _host_runs(view)
    kernels = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("hlo_module").is_not_null())
    ordered = kernels.sort("stream", "start_ns").select("stream", module=pl.col("hlo_module").cast(pl.String))
    return ordered.group_by("stream", "module", run=pl.struct("stream", "module").rle_id()).agg(kernels=pl.len())


def _host_runs(view: DeviceView) -> pl.DataFrame:
    """As `_runs`, on the CPU: the module is the jitted function called last, the ops those before the next run."""
    host = view.used_host.select("kind", "name", "start_ns").sort("start_ns").collect()
    calls = host.filter(matches(_JITTED)).select("start_ns", module=pl.col("name").cast(pl.String).str.extract(_JITTED))
    runs = host.filter(matches(_RUN)).select("start_ns").with_row_index("run")
    ops = host.filter(pl.col("kind") == "op").join_asof(runs, on="start_ns").group_by("run").agg(kernels=pl.len())
    counted = runs.join(ops, on="run", how="left", maintain_order="left").join_asof(calls, on="start_ns")
    return counted.select("module", pl.col("kernels").fill_null(0)).drop_nulls()


def _most_often(view: DeviceView) -> Entries:
    often = view.once(_runs).group_by("module").len().sort("len", "module", descending=[True, False])
    return [{"name": name, "count": runs / view.steps.height} for name, runs in often.head(_MOST_NAMES).rows()]


of_programs = of_devices(
    __name__,
    needs=("device_ops.hlo_module",),
    unknown=lacking(
        xla_frameworks_only=lambda view: view.process.get("framework") != "jax",
        nothing_to_compute_from=lambda view: not view.once(_runs).height,
    ),
)
of_programs.per_step("executables", _runs).says(
    "Compiled programs that run per step, one after another.",
    "changes of the XLA module from kernel to kernel of a stream / steps: at least so many; without a device, calls of "
    "jitted functions that run a program / steps",
)
of_programs("executable_kinds", lambda view: view.once(_runs)["module"].n_unique()).says(
    "How many different compiled programs run.", "distinct XLA modules, or functions"
)
of_programs("kernels_per_executable", lambda view: float(view.once(_runs).select(pl.median("kernels")).item())).says(
    "Kernels of a compiled program, or ops without a device; one compiled step has tens or hundreds.",
    "median over programs in a row of their kernels; without a device, of the ops before the next program",
)
of_programs("small_executables_part", lambda view: float(view.once(_runs).select(_SMALL_PART).item())).says(
    "Part of the kernels, or of the ops without a device, that are in programs as small as the typical one.",
    "those in programs of at most kernels_per_executable / all",
)
of_programs("executable_names", _most_often).says("Which programs run most often.", "the four with the most runs")

of_kernels = of_devices(
    __name__,
    needs=("device_ops",),
    unknown=lacking(
        xla_frameworks_only=lambda view: view.process.get("framework") not in XLA_FRAMEWORKS,
        nothing_to_compute_from=lambda view: not view.once(kernels_ns),
    ),
)
of_kernels(
    "xla_share", lambda view: int(view.once(kernels).drop_nulls("hlo_module")["dur_ns"].sum()) / view.once(kernels_ns)
).says("Part of the kernel time that XLA compiled.", "time of kernels that belong to an XLA module / time of kernels")


_XPROF: Final = "XProf's overview page"
_TRACED: Final = r'"tf_function_call":"(?:traced|eager)'
# Functions that Keras 2 and 3 make of a model's step, and the mark of its TensorBoard callback.
_OF_KERAS: Final = (
    r"\b(?:__inference_)?(?:train_function|(?:one|multi)_step_on_(?:data|iterator))(?:_\d+)?$|^Profiled batch$"
)
_OWN_THREADS: Final = r"^tf_gpu_private_"
_SMALL_NS: Final = 100_000  # an eager op that typically takes less is mostly dispatch
_OF_DISPATCH: Final = 0.9
_LEAST: Final = 0.25  # own choice, as of all Python on a CPU
_WRITES: Final = r"(?:^EagerLocalExecute: |:)(?:Write\w*Summary|FlushSummaryWriter)$"

of_eager = of_devices(__name__, framework="tensorflow")
of_recording = of_devices(__name__, framework="tensorflow", needs_steps=False)
of_launches = of_devices(__name__, needs=("device_ops", "device_ops.launch"))


def _outermost(view: DeviceView) -> pl.DataFrame:
    """Framework ops of the used steps that stand in no other, without those of input pipelines and summaries."""
    of_step = pl.col("step").is_not_null() | pl.lit(not view.has_marks)
    return outermost(view.used_host.filter(pl.col("kind") == "op", of_step, ~matches(_WRITES)).collect())


def _eager(view: DeviceView) -> pl.DataFrame:
    return view.once(_outermost).filter(pl.col("eager").fill_null(value=False))


def _eager_share(view: DeviceView) -> float | None:
    total = int(view.once(_outermost)["dur_ns"].sum())
    return int(view.once(_eager)["dur_ns"].sum()) / total if total else None


def _device_share(view: DeviceView) -> Value:
    ran = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("eager").is_not_null())
    if not ran.height:
        return Missing("eager_kernels_unknown")
    return float(ran.filter("eager")["dur_ns"].sum()) / max(1, int(ran["dur_ns"].sum()))


def _functions(view: DeviceView, pattern: str) -> pl.DataFrame:
    return view.host.filter(matches(pattern, "details"))


def _tracing_share(view: DeviceView) -> Value:
    calls = spans(_functions(view, FUNCTION_CALL))
    return spans(_functions(view, _TRACED)).total / calls.total if calls.total else Missing("no_tf_function")


def _gains_ms(view: DeviceView) -> tuple[float, float]:
    """What a tf.function saves on a CPU: between two eager ops TensorFlow's own Python may run for milliseconds."""
    if view.device is not None:
        return 0.0, 0.0
    share, between = view.once(_eager_share) or 0.0, between_ops(view, view.steps)
    lengths = between.ends - between.starts
    short_ns = int(lengths[lengths <= DISPATCH_NS].sum())
    ops = view.once(step_ops).select("name", "thread", "start_ns", "dur_ns").collect().with_row_index("id")
    enclosing = nest(ops["thread"].fill_null(-1), ops["start_ns"], ops["start_ns"] + ops["dur_ns"])
    ops = ops.with_columns(parent=pl.Series(enclosing).replace(-1, None))  # however many ranges lie between
    least_ms = view.per_step_ms(without_recording(view, short_ns, ops.height))
    return share * _LEAST * least_ms, share * view.per_step_ms(between.total + _fused_ns(ops))


def _fused_ns(ops: pl.DataFrame) -> float:
    """What of the ops' own time a graph saves at most: the dispatch of short ones. Long ones keep their arithmetic."""
    own = ops.select("name", ns=own_ns(ops)).filter(pl.col("ns").median().over("name") < _SMALL_NS)
    return _OF_DISPATCH * float(own["ns"].sum())


def _launching_share(view: DeviceView) -> Value:
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent").collect()
    innermost = ops.filter(~pl.col("id").is_in(ops["parent"].drop_nulls().implode()))
    if not innermost.height:
        return Missing("no_host_op")
    launching = innermost.filter(pl.col("id").is_in(view.ops["op"].drop_nulls().unique().implode()))
    return launching.height / innermost.height


of_eager("host_eager_share", _eager_share, where=places(_eager)).says(
    "Part of the framework ops' time on the host that is spent on ops outside tf.function and tf.Graph.",
    "time of eager ops / time of all ops of the steps, those inside others not counted",
    f"{_XPROF}, TF ops executed eagerly on the host",
)
of_eager.per_step("eager_ops", _eager).says(
    "Ops per step that the host runs outside tf.function and tf.Graph.",
    "such ops / steps, those inside others not counted",
)
of_eager("device_eager_share", _device_share).says(
    "Part of the device's kernel time that ops outside tf.function and tf.Graph launched.",
    "time of kernels of eager ops / time of kernels, if the profile shows which are",
    f"{_XPROF}, TF ops executed eagerly on the device",
)
of_eager("function_tracing_share", _tracing_share, where=places(lambda view: _functions(view, _TRACED))).says(
    "Part of the time in calls of tf.functions in which the function was traced anew or ran eagerly.",
    "union of such calls / union of all calls of tf.functions in the recording",
    "XProf's tf.function statistics",
)
of_eager.saving("eager", _gains_ms).says("a tf.function around the eager ops, on a CPU,")
of_recording(
    "keras_fit_ranges",
    lambda view: view.host.filter(pl.col("kind").is_in(["annotation", "step"])).filter(matches(_OF_KERAS)).height,
    unit="count",
).says(
    "Ranges that only Keras's Model.fit makes: above 0 the loop is Keras's own, not the user's.",
    "host ranges called train_function, one_step_on_data, multi_step_on_iterator and the like, or Profiled batch",
    "recordings of Model.fit with Keras 3.15; TensorFlow's Keras 2 names the function train_function",
)
of_recording(
    "private_launch_threads", lambda view: int(view.threads["name"].str.contains(_OWN_THREADS).sum()), unit="count"
).says(
    "Threads that do nothing but launch the kernels of one GPU: above 0 TF_GPU_THREAD_MODE=gpu_private is on.",
    "threads called tf_gpu_private_*",
    "TensorFlow names the pool of that mode so",
)
of_launches("device_op_share", _launching_share).says(
    "Part of the framework ops, by number, that run something on the device; the others compute on the host, or "
    "nothing.",
    "framework ops of the steps that launched a device op / all of them; those with ops inside not counted",
    f"{_XPROF}, TF op placement, which counts every op on GPUs as placed on the host",
)


def _summary_callbacks(view: DeviceView) -> pl.DataFrame:
    """The ops that write, each from the end of what its thread did before: the callback prepares it there."""
    rows = view.host_like(_WRITES).sort("start_ns")
    of_threads = pl.col("thread").is_in(rows["thread"].unique().implode())
    before = view.host.filter(of_threads, pl.col("kind") != "python").select("thread", since=END_NS).sort("since")
    after = rows.join_asof(before, left_on="start_ns", right_on="since", by="thread", check_sortedness=False)
    silent = (pl.col("start_ns") - pl.col("since")).fill_null(0)
    return after.with_columns(pl.col("start_ns") - silent, pl.col("dur_ns") + silent).drop("since")


of_eager(
    "summary_share",
    lambda view: view.share(spans(view.once(_summary_callbacks)) - view.busy),
    where=places(_summary_callbacks),
).says(
    "Part of the step that passes in callbacks that write summaries for TensorBoard.",
    "ops named Write...Summary and FlushSummaryWriter, each with its thread's silence before it; with a device only "
    "while it idles / step time",
)
