"""Reads XPlane profiles (`*.xplane.pb`) of TensorFlow, JAX and XLA: NVIDIA and AMD GPUs, TPUs as far as generic, CPUs.

Where a run has none, the trace viewer's copy of it (`*.trace.json.gz`, see `viewer`) is read as far as it goes.

What the tables hold, for those who compute with them:

- `workers.framework`: `tensorflow`, `jax`, or null; `name` is the host's name as the file bears it.
- `host_ops.kind`: `step` (Trace, StepTraceAnnotation, TraceContext: what bears a step number), `op` (TensorFlow's
  `scope/name:Type`; XLA ops that run on the CPU, by the HLO's name), `collective` (XLA's, on the CPU), `input` (the
  requests of a step, `IteratorGetNext*`; where there are none, what a step's thread does before it dispatches),
  `pipeline` (what tf.data does for them on any thread: `Iterator::A::B`, by its long name), `compile` (XLA, JAX's
  lowering, tf.function's tracing), `python` (`$file.py:12 function`), `runtime`,
  `sync`, `allocator` (CUDA and HIP calls; on old TensorFlow named after the kernel or copy that they launch),
  `annotation` (all other ranges: TraceAnnotation, tf.profiler.experimental.Trace, and those that the frameworks set
  themselves, such as `ExecutorState::Process`, `EagerExecute`, `PjitFunction(step)`).
- `host_ops.details`: JSON; of an iterator `id`, `parent_id` (the iterator that asked), `name`, `parallelism`,
  `autotune`, `buffer_limit`, ...; of a call of a tf.function `tf_function_call` (`notTraced-xla`) and `tracing_count`.
- `host_ops.stack`: of XLA ops on the CPU; first JAX's path of the op, then the frames that called for it.
- `host_ops.shapes`, `dtypes`: of the inputs (XLA's: of the result), JSON, in PyTorch's words. `eager`: no graph.
- `host_ops.step`: by the group that TensorFlow wrote down, or by nesting and by what asked for it on another thread.
- `device_ops.framework_op`: `jit(f)/dot_general` or `scope/name:Type` as the device op bears it, whether or not `op` is
  known; `hlo_module`, `hlo_category`, `eager`. AMD's copies by kernel (`__amd_rocclr_copyBuffer`) are kind `memcpy`.
- `allocations`: also those of the host (device null).

Kept of a file's environment is the process id and JAX's version; nothing else.

XLA's programs in a profile tell the lines that its ops come from, and in which format fusions of products multiply.
Source of the numbers of fields and types: hlo.proto and xla_data.proto of openxla/xla.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final, TypeVar

import numpy as np
import polars as pl

from advisor.errors import ReadError, UsageError
from advisor.inputs import phases
from advisor.inputs.clocks import align, longest_ns, sound
from advisor.inputs.names.kernels import collective_op
from advisor.inputs.readers import PLAIN, Reading, lacks
from advisor.inputs.readers.xplane import device as devices
from advisor.inputs.readers.xplane import names
from advisor.inputs.readers.xplane.host import host as host_tables
from advisor.inputs.readers.xplane.host import linked
from advisor.inputs.readers.xplane.links import step_marks, steps, with_launches, with_loads
from advisor.inputs.readers.xplane.plane import LATEST_NS, Plane, texts
from advisor.inputs.readers.xplane.space import Space
from advisor.inputs.readers.xplane.viewer import LACKS, Viewed
from advisor.inputs.readers.xplane.wire import Buffer, Fields, Message
from advisor.inputs.recorder_block import busy_machine, noted
from advisor.inputs.step_periods import notes
from advisor.model.clause import DOUBTS, FRAGMENT, Missing, Note
from advisor.model.profile import END_NS, SCHEMAS, TEXT, Profile, Schema, fitting, matches, rows_where
from advisor.system.file_size import Room

FORMAT: Final = "xplane"

_MOST_PLANES: Final = 256
_MOST_SMALL: Final = 64  # planes with lines, some 30 ms each however little they hold
_SMALL_BYTES: Final = 32 << 10
_MOST_LINES: Final = 8_000  # of all planes

_OF_JAX: Final = r"^PjitFunction\(|^\$pjit\.py|^pjit\("
_OF_TENSORFLOW: Final = r"^(?:ExecutorState::|Eager(?:Kernel)?Execute|FunctionRun|TFE_|SessionRun|Iterator::)"


def read(stream: IO[bytes], name: str, how: Reading = PLAIN) -> Profile:
    """The profile of one host, whose number is `worker`.

    A ReadError where nothing of it can be read; a UsageError of a `step_range`: these profiles bear their steps'
    numbers.
    """
    if how.step_range is not None:
        raise UsageError(f"--step-range: the steps of {name} are told by their numbers, not by names; leave it out")
    is_copy = name.removesuffix(".gz").endswith(".json")
    space = (Viewed if is_copy else Space)(name, stream, how.on_read, how.max_bytes)
    parts, lines, small = _Parts(), 0, 0
    room = Room(name, how.memory)
    for number, plane in enumerate(space.planes()):
        plane.room = room
        small += plane.line_count > 0 and plane.buffer.size < _SMALL_BYTES
        if number == _MOST_PLANES or small > _MOST_SMALL:
            many = f"{_MOST_PLANES:,} planes" if number == _MOST_PLANES else f"{_MOST_SMALL:,} planes that hold little"
            raise ReadError(f"more than {many}; a host has one per device and some more", name)
        lines += plane.line_count
        if lines > _MOST_LINES:
            most = f"more than {_MOST_LINES:,} lines"
            raise ReadError(f"{most}; a host has one per thread, a device one per stream", name)
        parts.add(plane)
    ranges = parts.linked()
    profile = _profile(parts, ranges, [*space.salvaged, *parts.notes()], name, how.worker)
    if is_copy:
        profile = replace(profile, lacks={**profile.lacks, **LACKS})
    if not (profile.host_ops.height or profile.device_ops.height):
        broken = [f"{note.words}; copy it again, or " for note in space.salvaged if note.code in DOUBTS]
        raise ReadError(f"no host or device activity in it; {''.join(broken[:1])}record it around some steps", name)
    return profile


@dataclass
class _Parts:
    """What the planes gave, so far apart: of `tables` a part each."""

    tables: defaultdict[str, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    described: list[dict[str, object]] = field(default_factory=list)
    base_ns: int = 0
    pid: int | None = None
    jax_version: str | None = None
    noted: dict[str, Any] = field(default_factory=dict)
    untimed: int = 0
    malformed: int = 0
    cut_lines: int = 0
    cut_tables: set[str] = field(default_factory=set)
    is_tpu: bool = False

    def add(self, plane: Plane) -> None:
        """Takes what a plane tells; planes of other kinds tell nothing here."""
        if plane.name in names.HOST_PLANES:
            self._take(**host_tables(plane))
        elif device := names.GPU_PLANE.match(plane.name) or names.TPU_PLANE.match(plane.name):
            number = int(device[1])
            if plane.lines:
                self._take(ops=devices.ops(plane, number), device_steps=devices.steps(plane, number))
            self.described.append(devices.described(plane, number))
            self.is_tpu = self.is_tpu or device.re is names.TPU_PLANE
        elif plane.name == names.TASK_PLANE:
            start = plane.stats.get("profile_start_time")
            self.base_ns = start if isinstance(start, int) and 0 < start < LATEST_NS else 0
        elif plane.name.startswith(names.RECORDER_PLANE):
            self.noted = noted(plane.name.removeprefix(names.RECORDER_PLANE).encode(errors="replace"))
        if plane.name in {names.METADATA_PLANE, *names.HOST_PLANES}:
            pid, version = plane.stats.get("process_id"), plane.stats.get("jax_version")
            self.pid = pid if isinstance(pid, int) and pid < 1 << 31 else self.pid
            self.jax_version = version[:20] if isinstance(version, str) else self.jax_version
            self._take(**programs(plane))
        self.untimed += plane.untimed
        self.malformed += plane.malformed
        self.cut_lines += plane.cut_lines
        if plane.cut_lines:
            self.cut_tables.add("host_ops" if plane.name in names.HOST_PLANES else "device_ops")

    def _take(self, **tables: pl.DataFrame) -> None:
        for name, rows in tables.items():
            self.tables[name].append(rows)

    def stacked(self, table: str, schema: Schema) -> pl.DataFrame:
        """All parts of a table, with these columns at least."""
        return pl.concat([pl.DataFrame(schema=schema), *self.tables[table]], how="diagonal_relaxed")

    def linked(self) -> pl.DataFrame:
        """The ranges of the host planes with their links, rows of all, but for those that cannot be as long."""
        every, rows = self.tables["ranges"], 0
        possible = pl.col("dur_ns") <= longest_ns([*every, *self.tables["ops"]])
        for at, ranges in enumerate(every):
            frame = linked(part := rows_where(ranges, possible))
            self.untimed += ranges.height - part.height
            every[at] = frame.with_columns(pl.col("parent", "asked_by") + rows)
            rows += frame.height
        return self.stacked("ranges", _RANGES)

    def notes(self) -> list[Note]:
        notes = [
            (self.untimed, Note("untimed_events", events=self.untimed)),
            (self.malformed, Note("unreadable_events", events=self.malformed)),
            (self.cut_lines, Note("partial_lines", lines=self.cut_lines)),
            (self.is_tpu, Note("tpu")),
        ]
        return [*(note for applies, note in notes if applies), *filter(None, [busy_machine(self.noted)])]


def _profile(parts: _Parts, ranges: pl.DataFrame, salvaged: list[Note], name: str, worker: int) -> Profile:
    host = _based(fitting(ranges, salvaged), parts.base_ns).with_columns(id=pl.int_range(pl.len(), dtype=pl.Int64))
    ops = _based(fitting(devices.by_name(parts.stacked("ops", _OPS)), salvaged), parts.base_ns)
    ops = ops if parts.is_tpu else sound(ops, name, salvaged)  # a TPU's loops hold the ops that they run
    products = parts.stacked("products", PRODUCTS).unique().unique(["hlo_module", "fusion"], keep="none")
    ops = ops.join(products, on=["hlo_module", "fusion"], how="left", maintain_order="left")
    aligned = align(with_launches(ops, host), host)
    of_devices = aligned.moved(_based(parts.stacked("device_steps", _DEVICE_STEPS), parts.base_ns))
    chosen = step_marks(host, aligned.device)
    step_rows, host, ops = steps(host, aligned.device, of_devices, chosen.steps)
    of_programs = parts.stacked("origins", ORIGINS).unique().unique(["program", "name"], keep="none")
    host = with_loads(host).join(of_programs, on=["program", "name"], how="left", maintain_order="left")
    host = host.with_columns(pl.coalesce("dtypes", "result").alias("dtypes"))
    described = pl.DataFrame(parts.described, schema=_DESCRIBED)
    sms = described.select("device", "sm_count").filter(pl.col("sm_count") > 0).unique("device", keep="first")
    unlinked = aligned.unlinked(ops).join(sms, on="device", how="left", maintain_order="left")
    blocks_per_sm = pl.col("grid") / pl.col("sm_count")  # as Kineto defines it
    extent = phases.work(host, ops)
    kernels = ops.filter(pl.col("kind") == "collective")
    op_names = pl.coalesce(collective_op(kernels["name"]), collective_op(kernels["hlo_category"]))
    tables = {
        "workers": extent.on(_workers(parts, host, ops, name)),
        "devices": described,
        "steps": step_rows,
        "device_ops": unlinked.with_columns(blocks_per_sm=blocks_per_sm).drop("sm_count"),
        "host_ops": host,
        "collectives": kernels.select(device_op="id", op=op_names),
        "threads": parts.stacked("threads", _THREADS).unique("thread", keep="first", maintain_order=True),
        "allocations": _based(parts.stacked("allocations", _ALLOCATIONS), parts.base_ns, "at_ns"),
    }
    how = () if of_devices.height else (chosen.how, *notes(chosen.steps, step_rows))
    on_file = [*salvaged, *aligned.notes, *filter(None, (*how, _fragment(host, ops, tables["allocations"])))]
    profile = Profile.of(tables, format=FORMAT, salvaged=on_file).numbered(worker)
    # Why each absent table or column is absent, in terms of how the profile was recorded.
    on_tpu = profile.devices["name"].str.starts_with("TPU").any()
    why = lacks(FORMAT) | ({"device_ops.launch": "no_launches_tpu"} if on_tpu else {})
    if profile.host_ops["dtypes"].count():  # of ops of XLA, whose programs tell how they are called
        why = {need: code for need, code in why.items() if need != "host_ops.shapes"}
    cut = Missing("partial_lines", lines=parts.cut_lines)  # what was done then is not told by what was read
    of_cut = {f"{of}.{column}": cut for of in parts.cut_tables for column in ("start_ns", "dur_ns", "launch")}
    absent = {need: Missing(why[need]) for need in profile.empty(why)}
    return replace(profile, lacks={**absent, **aligned.lacks, **of_cut})


def _fragment(host: pl.DataFrame, ops: pl.DataFrame, allocations: pl.DataFrame) -> Note | None:
    """A note where the kernels of each device, or what allocations stand for, cover under a tenth of the host's ops."""
    first, end = pl.col("start_ns").min(), END_NS.max()
    host_ns = host.filter(pl.col("kind") == "op").select(end - first).item() or 0
    ran = ops.filter(pl.col("kind").is_in(["kernel", "collective"]))
    none_ns = 0 if allocations["device"].count() else host_ns
    longest_ns = max(ran.group_by("device").agg(ns=end - first)["ns"].to_list(), default=none_ns)
    if longest_ns >= _FRAGMENT_SHARE * host_ns:
        return None
    return Note(FRAGMENT, kernels=longest_ns / 1e6, host=host_ns / 1e6)


_FRAGMENT_SHARE: Final = 0.1  # own choice
_LINKED: Final = {"id", "worker", "step", "launch", "op", "blocks_per_sm", "operand_type"}
_RANGES: Final[Schema] = {
    **dict.fromkeys(
        ["thread", "start_ns", "dur_ns", "correlation", "group", "step_num", "run", "parent", "asked_by"], pl.Int64
    ),
    "program": TEXT,
    **{column: SCHEMAS["host_ops"][column] for column in ("name", "kind", "shapes", "dtypes", "eager", "details")},
}
_OPS: Final[Schema] = {
    **{column: dtype for column, dtype in SCHEMAS["device_ops"].items() if column not in _LINKED},
    **dict.fromkeys(["correlation", "group"], pl.Int64),
    "fusion": TEXT,
}
_THREADS: Final[Schema] = {"thread": pl.Int64(), "name": pl.String()}
_ALLOCATIONS: Final[Schema] = {"at_ns": pl.Int64(), "device": pl.Int32()}
_DEVICE_STEPS: Final[Schema] = {
    **dict.fromkeys(["start_ns", "dur_ns", "group", "number"], pl.Int64),
    "device": pl.Int32,
    "name": pl.String,
}
_DESCRIBED: Final = {
    column: dtype
    for column, dtype in SCHEMAS["devices"].items()
    if column in {"device", "name", "memory_bytes", "sm_count", "capability", "peak_tflops"}
}


def _based(frame: pl.DataFrame, base_ns: int, column: str = "start_ns") -> pl.DataFrame:
    """Times since 1970 where the profile tells when it began; lines that show them already stay as they are."""
    at = pl.col(column)
    return frame.with_columns(pl.when(at < base_ns).then(at + base_ns).otherwise(at))


def _workers(parts: _Parts, host: pl.DataFrame, ops: pl.DataFrame, name: str) -> pl.DataFrame:
    producer = f"JAX {parts.jax_version}" if parts.jax_version else None
    called, modules = host["name"].unique().cast(pl.String), ops["hlo_module"].unique().cast(pl.String)
    # JAX programs may feed themselves from tf.data, so JAX's signs go first.
    is_jax = producer or called.str.contains(_OF_JAX).any() or modules.str.contains(r"^p?jit_").any()
    framework = "jax" if is_jax else "tensorflow" if called.str.contains(_OF_TENSORFLOW).any() else None
    file = name.rsplit("/", 1)[-1]
    # Where the recorder's own calls leave off and begin again; null where they were not recorded.
    begin = host.filter(matches(r"(?:^|[ .])start_trace$|profiler\.start$")).select(END_NS.max()).item()
    end = host.filter(matches(r"(?:^|[ .])stop_trace$|profiler\.stop$")).select(pl.min("start_ns")).item()
    if begin is not None or end is not None:
        moments = pl.concat([rows.select("start_ns", end=END_NS) for rows in (host, ops)])
        first, last = moments.select(pl.min("start_ns"), pl.max("end")).row(0)
        begin, end = first if begin is None else begin, last if end is None else end
    return pl.DataFrame(
        {
            "name": [re.sub(r"(?:\.xplane\.pb|\.trace\.json)?(?:\.gz)?$", "", file) or "host"],
            "pid": [parts.pid],
            "framework": [framework],
            "producer": [producer or "XPlane"],
            "file": [name],
            "recorded_start_ns": [begin],
            "recorded_end_ns": [end],
            **{fact: [value] for fact, value in parts.noted.items()},
        }
    )


PRODUCTS: Final[Schema] = dict.fromkeys(["hlo_module", "fusion", "operand_type"], TEXT)
ORIGINS: Final[Schema] = dict.fromkeys(["program", "name", "stack", "result"], TEXT)
_RESULTS: Final = {10: '["c10::Half"]', 11: '["float"]', 12: '["double"]', 16: '["c10::BFloat16"]'}  # as in `dtypes`
_TYPES: Final = {10: "fp16", 11: "fp32", 12: "fp64", 16: "bf16", **dict.fromkeys((19, 20, 23, 24, 25, 28, 29), "fp8")}
_PROGRAM: Final = 6  # of a stat that holds bytes
_MODULE: Final = 1  # of a program
_MODULE_NAME, _COMPUTATIONS = 1, 3
_NAME, _INSTRUCTIONS = 1, 2  # of a computation
_OPCODE, _SHAPE, _ID, _OPERANDS = 2, 3, 35, 36  # of an instruction
_ELEMENT_TYPE: Final = 2  # of a shape
_METADATA: Final = 7  # of an instruction
_LINE, _STACK = 4, 15  # of that
_TEXTS: Final = (_NAME, 2, 3)  # an instruction's, and of its metadata: path and file
_STACKS: Final = 17  # of a module: 1 files, 2 functions, 3 places in them, 4 calls, each with what is around it
_MOST_FRAMES: Final = 20
_LONGEST_NAME: Final = 512  # bytes, of a file or a function in them
_MOST_TEXT: Final = 64  # characters of stacks per byte of the program: many ops may have long ones
_PRODUCT: Final = "dot"
T = TypeVar("T")
_WITH_PRODUCT: Final = bytes([_OPCODE << 3 | 2, len(_PRODUCT)]) + _PRODUCT.encode()


def programs(plane: Plane) -> dict[str, pl.DataFrame]:
    """`products` of the programs that the plane holds (module, kernel, and format or null), and `origins` of their ops.

    The `stack` is the framework's path of the op and the frames that call for it, the innermost first:
    `jit(step)/Net/dot_general;train.py(20): Net.__call__;...`. The `result` is the floating-point type that it gives.
    """
    buffer, stats = plane.buffer, plane.names.stats
    protos = buffer.all_fields(stats.start, stats.end)[0].messages(_PROGRAM)
    spans = buffer.all_fields(protos.start, protos.end)[0].messages(_MODULE)
    each = zip(spans.start.tolist(), spans.end.tolist(), strict=True)
    modules = [buffer.split(*span, _COMPUTATIONS) for span in each]
    products, ops = ([row for of in modules for row in read(buffer, of)] for read in (_products, _origins))
    tables = {"products": (products, PRODUCTS), "origins": (ops, ORIGINS)}
    return {name: pl.DataFrame(rows, schema, orient="row") for name, (rows, schema) in tables.items()}


def _title(buffer: Buffer, module: Message) -> str:
    return "".join(buffer.text(field.value, field.end) for field in module.fields if field.number == _MODULE_NAME)


def _origins(buffer: Buffer, module: Message) -> Iterator[tuple[str, str, str, str | None]]:
    spans = [(field.value, field.end) for field in module.fields if field.number == _STACKS and field.end >= 0]
    stacks = _stacks(buffer, *spans[-1]) if spans else [[]]
    title, computations = _title(buffer, module), buffer.all_fields(module.starts, module.ends)[0]
    instructions = computations.messages(_INSTRUCTIONS)
    fields, _ = buffer.all_fields(instructions.start, instructions.end)
    metadata, height = fields.messages(_METADATA), len(instructions.owner)
    facts, _ = buffer.all_fields(metadata.start, metadata.end)
    facts = facts._replace(owner=metadata.owner[facts.owner])
    names, paths, files = (texts(buffer, of, height) for of in map(Fields.messages, (fields, facts, facts), _TEXTS))
    room = _MOST_TEXT * int((module.ends - module.starts).sum())
    for name, path, file, (line, stack), element_type in zip(
        names, paths, files, _numbers(facts, height, _LINE, _STACK), _results(buffer, fields, height), strict=True
    ):
        if path or file:
            frames = (_at(stacks, stack) or [f"{file}({line}): "] * bool(file)) if room > 0 else []
            room -= len(around := ";".join([path, *frames]))
            yield title, name, around, _RESULTS.get(element_type)


def _results(buffer: Buffer, fields: Fields, height: int) -> list[int]:
    """The element type of what each instruction gives; 0 where that is not told, or several arrays."""
    shapes, types = fields.messages(_SHAPE), np.zeros(height, np.uint64)
    of_shapes, _ = buffer.all_fields(shapes.start, shapes.end)
    of_shapes._replace(owner=shapes.owner[of_shapes.owner]).put(_ELEMENT_TYPE, types)
    return types.tolist()


def _stacks(buffer: Buffer, start: int, end: int) -> list[list[str]]:
    """The frames of each stack by its number, which counts from 1: `train.py(20): main`, the innermost first."""
    index, _ = buffer.all_fields(np.array([start]), np.array([end]))
    spans = ((of.start, np.minimum(of.end, of.start + _LONGEST_NAME)) for of in map(index.messages, (1, 2)))
    files, functions = (["", *buffer.texts(*span)] for span in spans)
    inner = [(of, buffer.all_fields(of.start, of.end)[0]) for of in map(index.messages, (3, 4))]
    places, calls = ([(0, 0, 0), *_numbers(fields, len(of.owner), 1, 2, 3)] for of, fields in inner)
    stacks: list[list[str]] = [[]]
    for place, around, _ in calls[1:]:  # what is around one stands before it
        file, function, line = _at(places, place)
        frame = f"{_at(files, file)}({line}): {_at(functions, function)}"
        stacks.append([frame, *_at(stacks, around)][:_MOST_FRAMES])
    return stacks


def _at(rows: Sequence[T], number: int) -> T:
    """The row of this number; the first, which stands for none, where there is no such."""
    return rows[number if number < len(rows) else 0]


def _numbers(fields: Fields, height: int, *numbers: int) -> list[tuple[int, ...]]:
    """The values that so many messages have under these numbers; 0 where one has none."""
    columns = np.zeros((len(numbers), height), np.uint64)
    for number, column in zip(numbers, columns, strict=True):
        fields.put(number, column)
    return list(zip(*columns.tolist(), strict=True))


def _products(buffer: Buffer, module: Message) -> Iterator[tuple[str, str, str | None]]:
    """Those of one module; a kernel is called as its fusion is, but for marks that no name of a function has."""
    spans = zip(module.starts.tolist(), module.ends.tolist(), strict=True)
    multiplies = np.array([_WITH_PRODUCT in buffer.data[at:end] for at, end in spans], bool)
    computations, _ = buffer.all_fields(module.starts[multiplies], module.ends[multiplies])
    names = computations.messages(_NAME)
    kernels = buffer.texts(names.start, names.end).str.strip_suffix("_computation").str.replace_all(r"[.-]", "_")
    called = dict(zip(names.owner.tolist(), kernels, strict=True))
    instructions = computations.messages(_INSTRUCTIONS)
    fields, _ = buffer.all_fields(instructions.start, instructions.end)
    opcodes, operands = map(fields.messages, (_OPCODE, _OPERANDS))
    ids, first = np.zeros((2, len(instructions.owner)), np.uint64)
    fields.put(_ID, ids)
    first[operands.owner] = buffer.varints(operands.start)[0]
    known = zip(instructions.owner.tolist(), ids.tolist(), strict=True)
    type_of = dict(zip(known, _results(buffer, fields, len(ids)), strict=True))
    products = opcodes.owner[(buffer.texts(opcodes.start, opcodes.end) == _PRODUCT).to_numpy()]
    for factor in zip(instructions.owner[products].tolist(), first[products].tolist(), strict=True):
        yield _title(buffer, module), called.get(factor[0], ""), _TYPES.get(type_of.get(factor, 0))
