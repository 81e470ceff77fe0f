"""Device planes: kernels, copies and memsets of GPUs, the XLA ops of TPUs, and the steps that the profiler marked."""

import math
import re
from typing import Final

import numpy as np
import polars as pl

from advisor.inputs.names.kernels import family
from advisor.inputs.readers.xplane.names import HLO_COLLECTIVE, TPU_PLANE, copies
from advisor.inputs.readers.xplane.plane import Events, Plane, either
from advisor.model.intervals import Ints
from advisor.model.profile import DEVICE_OP_KINDS, MEMORY_KINDS, TEXT, lean, matches, of_distinct

# Lines of a device that repeat its activity in other terms. On TPUs `XLA Ops` is the activity.
DERIVED_LINES: Final = re.compile(
    r"^(?:Steps|(?:TensorFlow|Framework) (?:Ops|Name Scope)|(?:Async )?XLA (?:Modules|Ops|TraceMe)|Source code"
    r"|Launch Stats|Host Offload|Scope [Rr]ange|_counters_|Overlay)"
)
DERIVED_IDS: Final = range(0xDEADBEEF, 0xDEADBEEF + 64)
HLO_COPY: Final = r"^(?:copy-start|copy-done|async-copy|data formatting)"
_HLO_COPY: Final = (
    r"^%copy-(start|done)[^=]*=.*?\((\w{1,20})\[([\d,]{0,200})\]\{([^{}]*)\}, \w+\[[\d,]*\]\{([^{}]*)\}, u32\["
)

# The stats that are read of what runs on a device
OF_OPS: Final = {
    *("correlation_id", "group_id", "is_eager", "kernel_details", "memcpy_details", "memset_details"),
    *("theoretical_occupancy_pct", "cuda_graph_exec_id", "cuda_graph_id", "graph_exec_id"),
    *("tf_op", "name", "level 0", "annotation", "hlo_op", "hlo_module", "hlo_category", "flops"),
}
OF_STEPS: Final = {"group_id", "step_name", "step_num"}  # those of the steps that the profiler drew
_NAMES: Final = ("device_name", "gpu_device_name", "device_type_string")
_NO_OP: Final = r"^XlaModule:?$|#.*$"  # tf_op holds the first where XLA compiled the program whole
_BLIT: Final = r"^__amd_rocclr_(copy|fill)Buffer"  # AMD copies and fills with kernels of its runtime
_NUMBERS: Final = ("regs", "shm", "static_shared", "dynamic_shared", "group_mem")  # of the details of a launch


def described(plane: Plane, number: int) -> dict[str, object]:
    """The row of `devices` that the plane's own stats make."""
    stats = plane.stats
    plain = "TPU" if TPU_PLANE.match(plane.name) else None  # a viewer's copy has no stats
    major, minor = (_integer(stats.get(f"compute_cap_{part}")) for part in ("major", "minor"))
    rate = stats.get("peak_teraflops_per_second")  # zero stands for unknown
    return {
        "device": number,
        "name": next((str(stats[key]) for key in _NAMES if key in stats), plain),
        "memory_bytes": _integer(stats.get("memory_size")),
        "sm_count": _integer(stats.get("core_count"), 1 << 31),
        "capability": None if major is None else major + (minor or 0) / 10,
        "peak_tflops": float(rate) if isinstance(rate, int | float) and 0 < rate < math.inf else None,
    }


def _integer(value: object, most: int = 1 << 51) -> int | None:
    """A positive integer that a column can hold; zero stands for unknown in these stats, but for a minor version."""
    return value if isinstance(value, int) and 0 <= value < most else None


def ops(plane: Plane, number: int) -> pl.DataFrame:
    """The activity of a GPU; the XLA ops of a TPU core, as far as they are what they are on a GPU."""
    is_tpu = TPU_PLANE.match(plane.name) is not None
    derived = [(line.id & 0xFFFFFFFF) in DERIVED_IDS or DERIVED_LINES.match(line.name) for line in plane.lines]
    lines = [i for i, line in enumerate(plane.lines) if (line.name == "XLA Ops" if is_tpu else not derived[i])]
    labels = [label or name for name, label in zip(plane.names.names, plane.names.labels, strict=True)]
    names = pl.DataFrame({"name": pl.Series([*labels, ""], dtype=pl.String)})
    names = names.with_columns(blit=pl.col("name").str.extract(_BLIT), text=pl.col("name").cast(TEXT))
    names = names.hstack(hlo_copies(pl.Series([*plane.names.names, ""], dtype=pl.String)))
    streams = np.array([line.id for line in plane.lines] or [0], np.int64)
    parts = [_some_ops(events, names[events.what], streams) for events in plane.events(lines, OF_OPS)]
    module = pl.col("hlo_module").fill_null("XLA") if is_tpu else pl.col("hlo_module")  # nothing else runs on a TPU
    return lean(pl.concat(parts)).with_columns(module, device=pl.lit(number, pl.Int32))


def _some_ops(events: Events, what: pl.DataFrame, streams: Ints) -> pl.DataFrame:
    occupancy = events.number("theoretical_occupancy_pct", pl.Float64)
    occupancy = occupancy.set(~occupancy.is_between(0, 100, closed="right").fill_null(value=False), None) / 100
    launch = launches(events.text("kernel_details"))
    # JAX's name stack or TensorFlow's scope/name:Type; the XLA op where there is neither.
    texts = pl.DataFrame({stat: events.text(stat) for stat in ("name", "tf_op", "level 0", "annotation", "hlo_op")})
    bare = pl.all().cast(pl.String).str.replace(_NO_OP, "").replace("", None)
    columns = {
        "name": what["text"],
        "kind": _kinds(events, what),
        "stream": streams[events.line],
        "start_ns": events.start_ns,
        "dur_ns": events.dur_ns,
        "correlation": events.number("correlation_id"),
        "group": events.number("group_id"),
        "eager": events.number("is_eager").cast(pl.Boolean, strict=False),
        "graph": either(events.number("cuda_graph_exec_id"), events.number("cuda_graph_id")),
        "framework_op": of_distinct(texts, lambda rows: rows.select(op=pl.coalesce(bare).cast(TEXT)))["op"],
        "hlo_module": events.text("hlo_module"),
        "fusion": what["name"].str.strip_suffix(".kd").cast(TEXT),
        "hlo_category": events.text("hlo_category"),
        "xla_flops": events.number("flops", pl.Float64),
        **{
            key: either(own, what[key])
            for key, own in copies(events.text("memcpy_details"), what["text"]).to_dict().items()
        },
        **launch.to_dict(),
        "occupancy": either(launch["occupancy"], occupancy),
    }
    return pl.DataFrame(columns)


def by_name(ops: pl.DataFrame) -> pl.DataFrame:
    """The ops of all devices, those among them that communicate by their names: each distinct name is judged once."""
    names = ops["name"].unique()
    communicates = pl.col("name").is_in(names.filter(family(names) == "collective").implode())
    ops = ops.with_columns(kind=pl.when(communicates).then(pl.lit("collective", DEVICE_OP_KINDS)).otherwise("kind"))
    return ops.with_columns(copy_kind=pl.when(pl.col("kind") == "memcpy").then("copy_kind"))


def _kinds(events: Events, what: pl.DataFrame) -> pl.Series:
    name, category, hlo_op = what["name"], events.text("hlo_category"), events.text("hlo_op")
    copies_ = pl.Series(events.stats.has("memcpy_details")) | name.str.contains(r"(?i)^(?:hip|cuda)?_?mem ?cpy")
    fills = pl.Series(events.stats.has("memset_details")) | name.str.contains(r"(?i)^(?:hip|cuda)?_?mem ?set")
    kernel = pl.Series(events.stats.has("kernel_details"))
    categories = category.alias("name").to_frame()
    communicates, moves = (categories.select(matches(of)).to_series() for of in (HLO_COLLECTIVE, HLO_COPY))
    moves &= hlo_op.is_null()
    kinds = {
        "collective": communicates,
        "memcpy": (copies_ & ~kernel) | moves | (what["blit"] == "copy"),
        "memset": (fills & ~kernel) | (what["blit"] == "fill"),
    }
    known = (pl.when(rows).then(pl.lit(kind)) for kind, rows in kinds.items())
    return what.select(pl.coalesce(*known, pl.lit("kernel")).cast(DEVICE_OP_KINDS)).to_series()


def steps(plane: Plane, number: int) -> pl.DataFrame:
    """The steps of the line that the profiler draws them on: group, name, number, start_ns, dur_ns."""
    lines = [i for i, line in enumerate(plane.lines) if line.name == "Steps"]
    names = pl.Series([*plane.names.names, ""], dtype=pl.String)
    parts = list[pl.DataFrame]()
    for events in plane.events(lines, OF_STEPS):
        name = names.gather(events.what)
        columns = {
            "start_ns": events.start_ns,
            "dur_ns": events.dur_ns,
            "group": events.number("group_id"),
            "name": either(events.text("step_name").cast(pl.String), name),
            "number": either(events.number("step_num"), name.cast(pl.Int64, strict=False)),
        }
        parts.append(pl.DataFrame(columns))
    return pl.concat(parts).with_columns(device=pl.lit(number, pl.Int32))


def hlo_copies(texts: pl.Series) -> pl.DataFrame:
    """The same of HLO instructions that copy asynchronously; `bytes` of the one that waits for the copy's end only.

    `%copy-done = f32[8]{0} copy-done((f32[8]{0}, f32[8]{0:S(5)}, u32[]{:S(2)}) %copy-start)`: where to, where from, a
    token. Memory space 5 is the host's (xla/layout.h, kHostMemorySpace), which XLA pins.
    """
    parts = pl.col("text").str.extract_groups(_HLO_COPY)
    waits, dtype, sizes, to, out_of = (parts.struct.field(str(i)) for i in range(1, 6))
    spaces = [pl.when(side.is_not_null()).then(side.str.contains(r"S\(5\)")) for side in (out_of, to)]
    letters = [pl.when(on_host).then(pl.lit("H")).when(~on_host).then(pl.lit("D")) for on_host in spaces]
    memories = [pl.when(on_host).then(pl.lit("pinned")).when(~on_host).then(pl.lit("device")) for on_host in spaces]
    bits = dtype.replace("pred", "b8").str.extract(r"^[a-z]+(\d{1,3})").cast(pl.Int64, strict=False)
    side = pl.element().cast(pl.Float64, strict=False).fill_null(1)  # as wide as the file may say
    size = sizes.str.split(",").list.eval(side).list.agg(pl.element().product()) * bits / 8
    return pl.DataFrame({"text": texts}).select(
        bytes=pl.when((waits == "done") & (size > 0) & (size < 1 << 50)).then(size.cast(pl.Int64, strict=False)),
        copy_kind=pl.format("{}to{}", *letters).cast(TEXT),
        source_memory=memories[0].cast(MEMORY_KINDS),
        target_memory=memories[1].cast(MEMORY_KINDS),
    )


def launches(details: pl.Series) -> pl.DataFrame:
    """What `kernel_details` tells of a launch, a row each: grid, block, registers, shared_bytes, occupancy.

    `regs:38 shm:0 grid:160,1,1 block:1024,1,1`; later `static_shared:` and `dynamic_shared:`, on AMD `group_mem:`, and
    `occ_pct:`, in which 0 stands for unknown. Zero blocks or threads are none that ran: the text was not filled in.
    """
    text = pl.col("details").cast(pl.String)
    number = {key: text.str.extract(rf"\b{key}:(\d{{1,18}})").cast(pl.Int64, strict=False) for key in _NUMBERS}
    shared = pl.sum_horizontal(number[key] for key in _NUMBERS[1:])
    percent = text.str.extract(r"\bocc_pct:([\d.]{1,9})").cast(pl.Float64, strict=False)
    columns = {
        "grid": _product(text, "grid"),
        "block": _fits(_product(text, "block")),
        "registers": _fits(number["regs"]),
        "shared_bytes": _fits(pl.when(text.str.contains(r"\b(?:shm|\w+_shared|group_mem):\d")).then(shared)),
        "occupancy": pl.when((percent > 0) & (percent <= 100)).then(percent / 100),  # noqa: PLR2004 - percent
    }
    return of_distinct(pl.DataFrame({"details": details}), lambda texts: texts.select(**columns))


def _product(text: pl.Expr, key: str) -> pl.Expr:
    axes = text.str.extract_groups(rf"\b{key}:(\d{{1,10}}),(\d{{1,5}}),(\d{{1,5}})")
    x, y, z = (axes.struct.field(axis).cast(pl.Int64, strict=False) for axis in ("1", "2", "3"))
    return pl.when((x > 0) & (y > 0) & (z > 0) & (x < 1 << 31) & (y < 1 << 16) & (z < 1 << 16)).then(x * y * z)


def _fits(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.Int32, strict=False)
