"""Reads Nsight Systems exports (SQLite, parquetdir, and reports where `nsys` is there to export them), any schema.

One worker per process that used a device; where none did, per process that called CUDA or marked ranges. What the
tables hold:

- device_ops: kernels under their demangled names; copies and memsets under the names that Kineto gives them, with
  bytes, kind and both kinds of memory; a launch of a CUDA graph whose nodes were not recorded is one kernel,
  "CUDA graph <id>".
- host_ops: CUDA calls without nsys' version suffix (kinds runtime, sync, allocator); NVTX ranges, as `op` (PyTorch's
  emit_nvtx, TensorFlow's and XLA's domains; names without ", op_id = ...", shapes and sequence numbers in their
  columns), `input` (PyTorch's DataLoader, and names such as "load batch"), `step`, or `annotation`, NCCL's API calls
  among them; the profiler's own work (`overhead`).
- steps: see `advisor.inputs.step_marks`, and of a recording without steps `advisor.inputs.phases`.
- collectives: NCCL kernels, with group and bytes where the export decoded NCCL's
  payloads. allocations: the driver's (`reserved_bytes`), with --cuda-memory-usage.
- threads, os_calls, off_cpu: of all processes of the job; worker is null where several workers could own them.
- host_samples: with --sample=process-tree, which is the default.
- gpu_samples: sm_active, sm_issue, tensor_active, dram_read, dram_write, nvlink_rx, nvlink_tx, pcie_rx, pcie_tx; 0..1.

Times are on the wall clock (UTC), so that the files of several machines can be compared.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from advisor.errors import ReadError
from advisor.inputs import phases
from advisor.inputs.clocks import align, impossible
from advisor.inputs.links import innermost, require_ranges, steps, with_launches, with_parents, without_waits
from advisor.inputs.names.kernels import collective_op
from advisor.inputs.readers import PLAIN, Reading, lacks
from advisor.inputs.readers.nsys import device as on_device
from advisor.inputs.readers.nsys import host as on_host
from advisor.inputs.readers.nsys import messages
from advisor.inputs.readers.nsys.tables import PID, Export, opened
from advisor.inputs.step_marks import marks
from advisor.inputs.step_periods import notes, with_requests
from advisor.inputs.storage import size
from advisor.model.clause import Clause, Missing, Note
from advisor.model.profile import SCHEMAS, Profile, fitting, join, matches
from advisor.text import ns, one_line
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import HANG_NS

FORMAT: Final = "nsys"
_WHY_ABSENT: Final = {need: Missing(why) for need, why in lacks(FORMAT).items()}

_MOST_PROCESSES: Final = 128  # some 80 ms each, however little they did
_AGAIN: Final = "record again: `nsys profile --trace=cuda,nvtx,osrt COMMAND`"
_TRACED: Final = "CUDA was traced: check what the first CUDA calls return, let the program end by itself, record again"
_LATEST_EPOCH_NS: Final = 1 << 61  # in 2043
_EMPTY_BYTES: Final = 512  # a journal without a page, or a log of less than one
_ASKS: Final = r"^cu(?:da)?(?:Ctx|Device|Driver|Func|Init|Module|Runtime|Stream|Event|GetProcAddress|GetDevice)\w*$"
_FEW_SHARE: Final = 0.05
_UNSOUND_SHARE: Final = 0.01  # of the device ops: so few may take any part of the time
_MOST_NAMES: Final = 8
_FRAMEWORKS: Final = [
    (r"at::native|at::cuda|c10::|^aten::|^void at::", "pytorch"),
    (r"hlo_module=jit_|^jit_\w+|^(?:loop|input|wrapped)_\w*fusion", "jax"),
    (r"tensorflow::|Eigen::|^tf_", "tensorflow"),
]
_IS_NAMELESS: Final = matches(f"^{on_device.NAMELESS}")


def read(path: Path, name: str, how: Reading = PLAIN) -> Profile:
    """The profile of every process in the export that used a device.

    The processes of all files of a job are numbered through where the files hold equally many, and by their MPI ranks
    where these are told. A ReadError where nothing of it can be read, or it holds no GPU activity.
    """
    beside = [other for end in ("-wal", "-journal") if (size(other := f"{path}{end}") or 0) > _EMPTY_BYTES]
    notes_ = [Note("half_written", file=f"{name}{other.removeprefix(str(path))}") for other in beside]
    try:
        with opened(path, name, how.max_bytes, how.memory) as export:
            profile = profile_of(export, name, how.worker, how.step_range)
    except ReadError as error:
        raise ReadError("; ".join([*(note.words for note in notes_), error.why]), name) from error
    how.on_read(size(str(path)) or 0)
    return replace(profile, salvaged=(*notes_, *profile.salvaged))


def profile_of(export: Export, name: str, number: int = 0, step_range: str | None = None) -> Profile:
    """The same of an export that is open."""
    cut: list[Note] = []
    os_calls = fitting(on_host.os_calls(export), cut)
    host, recorded = fitting(on_host.host_ops(export, os_calls), cut), fitting(on_device.device_ops(export), cut)
    recorded = _of_known(recorded, [host["process"], on_host.threads(export)["process"]])
    recorded = recorded.with_columns(dur_ns=pl.when(~impossible(recorded, name)).then("dur_ns"))
    device = recorded.drop_nulls("dur_ns")
    does = ~pl.col("kind").is_in(["overhead", "sync"]) & ~matches(_ASKS).fill_null(value=False)
    if not device.height and not host.filter(does).height:
        lacking = "only counters of the GPU and no CUDA call" if "GPU_METRICS" in export.names() else "no GPU activity"
        interfaces = on_device.drawing_interfaces(export)
        lacking = f"only what {interfaces} draws, and no work of CUDA," if interfaces else lacking
        raise ReadError(f"{lacking} in it{_why_without(export, host, interfaces)}", name)
    if step_range is not None:
        require_ranges(host, step_range)
    processes, of_all = _processes(host, device)
    host, device = _assigned(host, processes), _assigned(device, processes)
    tables = {
        "host_ops": host,
        "device_ops": device,
        "devices": on_device.devices(export, device, processes),
        "allocations": _assigned(on_device.allocations(export), processes),
        "os_calls": os_calls,
    }
    numbered = _numbered(processes, number, on_host.mpi_ranks(export))
    for facts in (messages.waits_at_end(os_calls, host), on_host.process_starts(export, host)):
        numbered = numbered.join(facts, on="process", how="left", maintain_order="left")
    stem = pl.lit(Path(name).stem)
    workers = numbered.with_columns(
        name=pl.format("{}-{}", stem, pl.col("pid").cast(pl.String).fill_null("?")) if len(processes) > 1 else stem,
        file=pl.lit(name),
        producer=pl.lit(_producer(export)),
        error=pl.lit(messages.last_error(export), pl.String),
        warning=pl.lit(messages.gravest(export), pl.String),
    )
    profile = join(
        [
            _of_process({table: rows.filter(of) for table, rows in tables.items()}, worker, step_range)
            for process, worker in zip(processes, workers.iter_slices(1), strict=True)
            for of in [pl.col("process").eq_missing(pl.lit(process, pl.Int64))]
        ]
    )
    of_job = {
        "threads": on_host.threads(export),
        "os_calls": os_calls,
        "off_cpu": on_host.off_cpu(export),
        "host_samples": on_host.host_samples(export, host),
        "gpu_samples": on_device.samples_by_device(on_device.gpu_samples(export), tables["devices"]),
    }
    # Rows of any process of the job with their worker: the process's own, else the only one.
    only, owners = pl.lit(workers["worker"][0] if workers.height == 1 else None, pl.Int32), workers["process", "worker"]
    owned = {
        table: rows.join(owners, on="process", how="left", maintain_order="left").with_columns(
            worker=pl.coalesce("worker", only), pid=PID
        )
        for table, rows in of_job.items()
    }
    shared = Profile.of(owned, format=FORMAT)
    profile = replace(profile, **{table: getattr(shared, table) for table in of_job})
    few = [Note("busiest_processes", read=len(processes), processes=of_all)] if len(processes) < of_all else []
    salvaged = tuple(dict.fromkeys([*profile.salvaged, *shared.salvaged, *cut, *few, *_notes(export, recorded, host)]))
    epoch = export.rows("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": pl.Int64})["utcEpochNs"]
    began = epoch.filter(epoch.is_between(0, _LATEST_EPOCH_NS)).head(1).sum()  # time of day; 0 where it is not told
    moments = pl.col(r"^(?:(?:\w+_)?(?:start|end)|at|zero)_ns$") + began
    on_clock = {table: getattr(profile, table).with_columns(moments) for table in SCHEMAS}
    return replace(profile, **on_clock, salvaged=salvaged, lacks=_lacks(profile, recorded))


def _why_without(export: Export, host: pl.DataFrame, interfaces: str) -> str:
    """Why there is none, as far as the export shows, and what to do; `interfaces` are those that draw."""
    if error := messages.last_error(export):
        grave = messages.diagnostics(export, messages.ERROR)[:1]
        also = "".join(f', and Nsight Systems says "{text}"' for text in grave)
        return f': the program ended with "{error}"{also}. Mend that, run it without the profiler, then {_AGAIN}'
    waits = messages.waits_at_end(on_host.os_calls(export), host)["driver_wait_ns"].to_list()
    if max(waits, default=0) >= HANG_NS:
        return (
            f": a thread waits in the driver for the last {ns(max(waits))}, until the recording ends. The program "
            "hangs, or its first kernel takes longer; record a smaller problem to its end"
        )
    if interfaces:
        return f", so it cannot be judged: advisor judges CUDA; Nsight Graphics shows {interfaces}"
    warnings = messages.diagnostics(export)
    says = "".join(f', and Nsight Systems says "{message}"' for message in warnings[:1])
    texts = export.rows("DIAGNOSTIC_EVENT", {"text": pl.String})["text"]
    again = _TRACED if texts.str.contains("^CUDA injection initialized successfully").any() else _AGAIN
    remedies = (do for text, do in messages.REMEDIES.items() if re.search(text, " ".join(warnings)))
    return f"{says}, so it cannot be judged; {next(remedies, again)}"


def _of_known(ops: pl.DataFrame, owners: list[pl.Series]) -> pl.DataFrame:
    """The ops; what is of no process that calls CUDA or names a thread is the only one's, or has no length."""
    known = pl.concat(owners).drop_nulls().unique()
    is_known = ops["process"].is_in(known.implode()).fill_null(value=False)
    if is_known.all() or not is_known.any():
        return ops
    only = pl.lit(known[0] if known.len() == 1 else None, pl.Int64)
    process = pl.when(is_known).then("process").otherwise(only)
    return ops.with_columns(process=process, dur_ns=pl.when(process.is_not_null()).then("dur_ns"))


def _processes(host: pl.DataFrame, device: pl.DataFrame) -> tuple[list[int | None], int]:
    """The processes that used a device, in order, and how many; null is one that an old schema does not name.

    Where none did, those that called CUDA or marked ranges. Of more than a node runs they are those with most rows.
    """
    known = host["process"].drop_nulls()
    used = (device if device.height else host.filter(pl.col("kind") != "overhead"))["process"].unique()
    if used.null_count() and known.n_unique() == 1:  # there is one that it can be
        used = used.fill_null(known[0]).unique()
    if len(used) > _MOST_PROCESSES:
        rows = (device if device.height else host)["process"].value_counts(sort=True).head(_MOST_PROCESSES)
        return [process for process in used.sort(nulls_last=True) if process in rows["process"].to_list()], len(used)
    return used.sort(nulls_last=True).to_list(), len(used)


def _assigned(rows: pl.DataFrame, processes: list[int | None]) -> pl.DataFrame:
    """Rows of no told process belong to the only one, where there is only one."""
    only = pl.lit(processes[0] if len(processes) == 1 else None, pl.Int64)
    return rows.with_columns(pl.coalesce("process", only))


def _numbered(processes: list[int | None], file: int, mpi_ranks: pl.DataFrame) -> pl.DataFrame:
    table = pl.DataFrame({"process": processes}, schema={"process": pl.Int64})
    table = table.join(mpi_ranks, on="process", how="left", maintain_order="left")
    ranked = not table["rank"].null_count() and not table["rank"].is_duplicated().any()
    order = file * len(processes) + pl.int_range(pl.len(), dtype=pl.Int64)
    return table.with_columns(
        pid=PID,
        rank=pl.col("rank") if ranked else pl.lit(None, pl.Int64),
        worker=(pl.col("rank") if ranked else order).cast(pl.Int32),
    )


def _of_process(tables: Mapping[str, pl.DataFrame], worker: pl.DataFrame, step_range: str | None) -> Profile:
    host = with_parents(tables["host_ops"])
    host = without_waits(host, linked := with_launches(tables["device_ops"], host))
    aligned = align(linked, host)
    host = phases.with_one_time_work(host, aligned.device)
    chosen = marks(host, aligned.device, step_range)
    step_rows, device = steps(host, aligned.device, chosen.steps, cut_off=False)
    extent = phases.work(host, device, tables["os_calls"])
    host = host if step_rows.height else phases.with_only_pass(host, device, extent)
    # Collective kernels, with what NCCL's own range around the call that launched them tells.
    kernels = device.filter(pl.col("kind") == "collective").rename({"id": "device_op"})
    call = innermost(host, kernels["launch"], host["nccl"].fill_null(value=False))
    calls = host.select("id", "group", "group_size", bytes=pl.col("message_bytes"), api=pl.col("name").cast(pl.String))
    rows = kernels.select("device_op", kernel=pl.col("name").cast(pl.String), id=call)
    rows = rows.join(calls, on="id", how="left", maintain_order="left")
    ops = [collective_op(rows[column]).alias(column) for column in ("kernel", "api")]
    filled = {
        **tables,
        "workers": extent.on(worker.with_columns(framework=pl.lit(_framework(host, device)), zero_ns=pl.lit(0))),
        "steps": step_rows,
        "device_ops": aligned.unlinked(device),
        "host_ops": with_requests(host, device, step_rows),
        "collectives": rows.with_columns(op=pl.select(pl.coalesce(ops)).to_series()),
    }
    salvaged = [*aligned.notes, *filter(None, [chosen.how]), *notes(chosen.steps, step_rows)]
    profile = Profile.of(filled, format=FORMAT, salvaged=salvaged).numbered(worker["worker"].item())
    return replace(profile, lacks=aligned.lacks)


def _framework(host: pl.DataFrame, device: pl.DataFrame) -> str | None:
    """What the names of ops, kernels and compiled modules betray; `cuda` where no work of the device is named so."""
    every = device.filter(pl.col("kind") == "kernel")
    kernels = every.filter(~matches(f"^CUDA graph |^{on_device.NAMELESS}"))
    ranges = host.filter(pl.col("kind").is_in(["op", "annotation"]))
    texts = pl.concat([rows["name"].unique().cast(pl.String) for rows in (kernels, ranges)])
    labels = (label for pattern, label in _FRAMEWORKS if texts.str.contains(pattern).any())
    return next(labels, "cuda" if kernels.height or (device.height and not every.height) else None)


def _producer(export: Export) -> str:
    where = "\"name\" IN ('EXPORT_PRODUCT_VERSION', 'EXPORT_SCHEMA_VERSION')"
    rows = export.rows("META_DATA_EXPORT|EXPORT_META_DATA", {"name": pl.String, "value": pl.String}, where=where)
    values = dict(rows.rows())
    product, schema = values.get("EXPORT_PRODUCT_VERSION"), values.get("EXPORT_SCHEMA_VERSION")
    return f"Nsight Systems {product or ''}".strip() + (f", schema {schema}" if schema else "")


def _notes(export: Export, device: pl.DataFrame, host: pl.DataFrame) -> Iterator[Clause]:
    if names := export.secret_variables():
        yield Note(
            "holds_secrets",
            names=", ".join(one_line(name, 60) for name in names[:_MOST_NAMES]),
            **({"more": len(names) - _MOST_NAMES} if len(names) > _MOST_NAMES else {}),
        )
    if unsound := device["dur_ns"].null_count():
        yield Note("unsound_ops", rows=unsound, ops=device.height)
    if (share := _share_of_time(device, _IS_NAMELESS)) > _FEW_SHARE:
        yield Missing("names_not_exported", share=share)
    if unclosed := on_host.open_ranges(export):
        yield Note("open_ranges", ranges=unclosed)
    if times := device["whole_graph"].sum():
        yield Note("whole_graphs", times=int(times))
    if not device["kind"].is_in(["kernel", "collective"]).any():
        calls = host["kind"].is_in(DRIVER_CALLS).any()  # then another process is meant that makes none
        texts = (text for text in messages.diagnostics(export) if not (calls and text.startswith("No CUDA events")))
        yield from (Note("profiler_message", message=one_line(text, 200)) for text in texts)


def _share_of_time(device: pl.DataFrame, condition: pl.Expr) -> float:
    """Part of the kernels' time that lies in those for which the condition holds; 0..1."""
    ran = device.filter(pl.col("kind").is_in(["kernel", "collective"]))
    return float(ran.filter(condition)["dur_ns"].sum()) / max(1, int(ran["dur_ns"].sum()))


def _lacks(profile: Profile, recorded: pl.DataFrame) -> dict[str, Missing]:
    """Why each absent table or column is absent: clocks that do not fit, or how the profile was recorded.

    `device_ops.start_ns` is lacking where device ops were left out for their times: idle time is not known then, nor
    its causes. `device_ops.dur_ns` is, too, where CUDA graphs hide what runs and idles within them.
    """
    device, host = profile.device_ops, profile.host_ops
    kernels = device.filter(pl.col("kind").is_in(["kernel", "collective"]))
    launched = host.filter(matches(r"^cu(?:da)?(?:Launch|GraphLaunch)"), pl.col("details").is_null()).height
    unsound, nameless = recorded["dur_ns"].null_count(), _share_of_time(recorded, _IS_NAMELESS)
    hides = _share_of_time(recorded, pl.col("whole_graph")) > _FEW_SHARE
    is_unsound = unsound > _UNSOUND_SHARE * recorded.height
    holds_no = {
        "device_ops": not device.height or (launched > 0 and not kernels.height),
        "device_ops.name": hides or nameless > _FEW_SHARE,
        "device_ops.start_ns": is_unsound,
        "device_ops.dur_ns": hides or is_unsound,
        "device_ops.grid": kernels["grid"].null_count() > _FEW_SHARE * kernels.height,
        "device_ops.launch": is_unsound or not device["launch"].count(),
        "device_ops.bytes": device["kind"].is_in(["memcpy", "memset"]).any() and not device["bytes"].count(),
        "devices": not profile.devices["name"].count(),
    }
    absent = {*profile.empty(_WHY_ABSENT.keys() - holds_no.keys()), *(need for need in holds_no if holds_no[need])}
    reasons = dict(_WHY_ABSENT)
    if not launched:
        called = host["kind"].is_in(DRIVER_CALLS).any()
        is_traced = profile.workers["warning"].str.starts_with("No CUDA events").any()
        reasons["device_ops"] = Missing("no_launches" if called else "no_cuda_called" if is_traced else "no_cuda_rows")
    if nameless > _FEW_SHARE:
        reasons["device_ops.name"] = Missing("names_not_exported", share=nameless)
    if is_unsound:
        why = Missing("unsound_times", rows=unsound, ops=recorded.height)
        reasons |= dict.fromkeys(("device_ops.start_ns", "device_ops.dur_ns", "device_ops.launch"), why)
    if (profile.workers["framework"] == "pytorch").any():
        reasons["host_ops.shapes"] = Missing("no_pytorch_range_shapes")
    outermost = [need for need in reasons if need in absent and need.partition(".")[0] not in absent - {need}]
    return {need: reasons[need] for need in outermost} | dict(profile.lacks)
