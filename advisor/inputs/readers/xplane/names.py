"""What names and stats of XPlane events mean, over the generations of TensorFlow, JAX and XLA; kinds by names.yaml."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

import polars as pl

from advisor.inputs.names.calls import alternatives
from advisor.model.profile import HOST_OP_KINDS, MEMORY_KINDS, TEXT
from advisor.vocabulary.limits import table

HOST_PLANE: Final = "/host:CPU"
HOST_PLANES: Final = (HOST_PLANE, "/host:python-tracer", "/host:CUPTI", "/host:ROCTRACER")  # not always merged
GPU_PLANE: Final = re.compile(r"^/device:(?:GPU|CUSTOM:[^:]+):(\d{1,9})$")
TPU_PLANE: Final = re.compile(r"^/device:TPU:(\d{1,9})$")
METADATA_PLANE: Final = "/host:metadata"
TASK_PLANE: Final = "Task Environment"
RECORDER_PLANE: Final = "/advisor:"  # and what `advisor record` measured, as JSON

# Lines of a device that repeat its activity in other terms. On TPUs `XLA Ops` is the activity.
DERIVED_LINES: Final = re.compile(
    r"^(?:Steps|(?:TensorFlow|Framework) (?:Ops|Name Scope)|(?:Async )?XLA (?:Modules|Ops|TraceMe)|Source code"
    r"|Launch Stats|Host Offload|Scope [Rr]ange|_counters_|Overlay)"
)
DERIVED_IDS: Final = range(0xDEADBEEF, 0xDEADBEEF + 64)
STEP_LINE: Final = "Steps"
TPU_LINE: Final = "XLA Ops"

EAGER_OP: Final = r"^EagerLocalExecute: "
REQUEST: Final = r"^IteratorGetNext\w*Op::DoCompute$"
EXECUTES: Final = "ExecutorState::Process"
REGION_OPENS: Final = "ThreadpoolListener::StartRegion"
REGION_CLOSES: Final = "ThreadpoolListener::StopRegion"
REGION_REQUEST: Final = "ThreadpoolListener::Record"
ALLOCATES: Final = "MemoryAllocation"
FREES: Final = "MemoryDeallocation"

# What `advisor record` itself runs in the program: calls of its hook and what they call. XPlane has no paths of files.
RECORDER_HOOK: Final = r"^\$hook\.py:\d+ _advance$"
RECORDER: Final = (
    r"^\$(?:hook\.py:\d+ (?:_tick|_advance|_phases)|marker\.py:\d+ (?:ends_step|_[a-z]\w+)"
    r"|phases\.py:\d+ (?:step|is_over|_\w+)|profilers\.py:\d+ (?:mark|_?end_mark|stop|clock|watched|__\w+__)"
    r"|clock\.py:\d+ (?:add|steps|__\w+__)|(?:(?:jax|tf)_steps|xplane)\.py:\d+ \w+)$"
)

_KINDS: Final[list[dict[str, Any]]] = table(__file__, "names")["kinds"]

# XLA's collective instructions, as they stand at the start of an HLO op's name or category.
HLO_COLLECTIVE: Final = (
    r"^(?:all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast)"
)
HLO_COPY: Final = r"^(?:copy-start|copy-done|async-copy|data formatting)"

# What is told of an iterator, in the order it is written down.
ITERATOR_FACTS: Final = {
    "id": pl.Int64,
    "parent_id": pl.Int64,
    "name": pl.String,
    "parallelism": pl.Int64,
    "num_parallel_calls": pl.Int64,
    "autotune": pl.String,
    "deterministic": pl.String,
    "buffer_limit": pl.Int64,
    "buffer_size": pl.Int64,
    "batch_size": pl.Int64,
    "cycle_length": pl.Int64,
    "block_length": pl.Int64,
}
# What is told of a call of a tf.function.
CALL_FACTS: Final = {"tf_function_call": pl.String, "tracing_count": pl.Int64}

# The spelling that `dtypes` has everywhere.
_DTYPES: Final = {"half": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double"}
_HLO_COPY: Final = (
    r"^%copy-(start|done)[^=]*=.*?\((\w{1,20})\[([\d,]{0,200})\]\{([^{}]*)\}, \w+\[[\d,]*\]\{([^{}]*)\}, u32\["
)
_OF_HOST: Final = r"S\(5\)"
_MOST_BYTES: Final = 1 << 50
_TENSOR = re.compile(r"([A-Za-z]\w{0,40})?\[([\d,]*)\]")  # bounded: a text may be one word of megabytes


def of_distinct(texts: pl.DataFrame, read: Callable[[pl.DataFrame], pl.DataFrame]) -> pl.DataFrame:
    """What `read` makes of each row of texts; it sees each distinct row once."""
    distinct = texts.unique()
    joined = texts.join(
        distinct.hstack(read(distinct)), on=texts.columns, how="left", nulls_equal=True, maintain_order="left"
    )
    return joined.drop(texts.columns)


def host_kinds(names: pl.Series) -> pl.Series:
    """Kind of a host event by its name alone."""
    rows = ((pl.col("name").str.contains(alternatives(row["names"])), row["kind"]) for row in _KINDS)
    branches = [pl.when(fits).then(pl.lit(kind)) for fits, kind in rows]
    kind = pl.coalesce(*branches, pl.lit("annotation")).cast(HOST_OP_KINDS).alias("kind")
    return names.alias("name").to_frame().select(kind).to_series()


def copies(details: pl.Series, names: pl.Series) -> pl.DataFrame:
    """What `memcpy_details` and the event's name tell, a row each: bytes, copy_kind, source_memory, target_memory.

    `size:112 dest:4 async:0` before TensorFlow 2.5, `kind_src:pageable kind_dst:device size:... dest:0 async:1` since.
    """
    return of_distinct(pl.DataFrame({"details": details, "name": names}), _copies)


def _copies(texts: pl.DataFrame) -> pl.DataFrame:
    text, name = pl.col("details").cast(pl.String), pl.col("name").cast(pl.String)
    sides = name.str.extract_groups(r"(?i)mem(?:cpy|ory ?copy)\W*([HDPA])\w*?(?:to|2)([HDPA])")
    letters = [sides.struct.field(side).str.to_uppercase() for side in ("1", "2")]
    size = text.str.extract(r"\bsize:(\d{1,18})").cast(pl.Int64, strict=False)
    return texts.select(
        bytes=pl.when(size > 0).then(size),
        copy_kind=pl.format("{}to{}", *letters).cast(TEXT),
        source_memory=_memory(text.str.extract(r"\bkind_src:(\w+)")),
        target_memory=_memory(text.str.extract(r"\bkind_dst:(\w+)")),
    )


def hlo_copies(texts: pl.Series) -> pl.DataFrame:
    """The same of HLO instructions that copy asynchronously; `bytes` of the one that waits for the copy's end only.

    `%copy-done = f32[8]{0} copy-done((f32[8]{0}, f32[8]{0:S(5)}, u32[]{:S(2)}) %copy-start)`: where to, where from, a
    token. Memory space 5 is the host's (xla/layout.h, kHostMemorySpace), which XLA pins.
    """
    parts = pl.col("text").str.extract_groups(_HLO_COPY)
    waits, dtype, sizes, to, out_of = (parts.struct.field(str(i)) for i in range(1, 6))
    spaces = [pl.when(side.is_not_null()).then(side.str.contains(_OF_HOST)) for side in (out_of, to)]
    letters = [pl.when(on_host).then(pl.lit("H")).when(~on_host).then(pl.lit("D")) for on_host in spaces]
    memories = [pl.when(on_host).then(pl.lit("pinned")).when(~on_host).then(pl.lit("device")) for on_host in spaces]
    bits = dtype.replace("pred", "b8").str.extract(r"^[a-z]+(\d{1,3})").cast(pl.Int64, strict=False)
    side = pl.element().cast(pl.Float64, strict=False).fill_null(1)  # as wide as the file may say
    size = sizes.str.split(",").list.eval(side).list.agg(pl.element().product()) * bits / 8
    return pl.DataFrame({"text": texts}).select(
        bytes=pl.when((waits == "done") & (size > 0) & (size < _MOST_BYTES)).then(size.cast(pl.Int64, strict=False)),
        copy_kind=pl.format("{}to{}", *letters).cast(TEXT),
        source_memory=memories[0].cast(MEMORY_KINDS),
        target_memory=memories[1].cast(MEMORY_KINDS),
    )


def _memory(text: pl.Expr) -> pl.Expr:
    return text.str.to_lowercase().str.replace("_static$", "").cast(MEMORY_KINDS, strict=False)


def launches(details: pl.Series) -> pl.DataFrame:
    """What `kernel_details` tells of a launch, a row each: grid, block, registers, shared_bytes, occupancy.

    `regs:38 shm:0 grid:160,1,1 block:1024,1,1`; later `static_shared:` and `dynamic_shared:`, on AMD `group_mem:`, and
    `occ_pct:`, in which 0 stands for unknown. Zero blocks or threads are none that ran: the text was not filled in.
    """
    return of_distinct(pl.DataFrame({"details": details}), _launches)


def _launches(texts: pl.DataFrame) -> pl.DataFrame:
    text = pl.col("details").cast(pl.String)
    kinds = ("shm", "static_shared", "dynamic_shared", "group_mem")
    shared = pl.sum_horizontal(_number(text, kind) for kind in kinds)
    percent = text.str.extract(r"\bocc_pct:([\d.]{1,9})").cast(pl.Float64, strict=False)
    return texts.select(
        grid=_product(text, "grid"),
        block=_fits(_product(text, "block")),
        registers=_fits(_number(text, "regs")),
        shared_bytes=_fits(pl.when(text.str.contains(r"\b(?:shm|\w+_shared|group_mem):\d")).then(shared)),
        occupancy=pl.when((percent > 0) & (percent <= 100)).then(percent / 100),  # noqa: PLR2004 - percent
    )


def _number(text: pl.Expr, key: str) -> pl.Expr:
    return text.str.extract(rf"\b{key}:(\d{{1,18}})").cast(pl.Int64, strict=False)


def _product(text: pl.Expr, key: str) -> pl.Expr:
    axes = text.str.extract_groups(rf"\b{key}:(\d{{1,10}}),(\d{{1,5}}),(\d{{1,5}})")
    x, y, z = (axes.struct.field(axis).cast(pl.Int64, strict=False) for axis in ("1", "2", "3"))
    return pl.when((x > 0) & (y > 0) & (z > 0) & (x < 1 << 31) & (y < 1 << 16) & (z < 1 << 16)).then(x * y * z)


def _fits(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.Int32, strict=False)


def inputs(shapes: pl.Series) -> pl.DataFrame:
    """`(half[4,384];int32[])` as JSON: `shapes` is [[4,384],[]], `dtypes` ["c10::Half","int32"]; a row each."""
    distinct = shapes.unique().drop_nulls()
    pairs = [_inputs(text) for text in distinct.cast(pl.String)]
    table = pl.DataFrame(
        {"text": distinct, "shapes": [s for s, _ in pairs], "dtypes": [d for _, d in pairs]},
        schema={"text": TEXT, "shapes": pl.String, "dtypes": pl.String},
    ).with_columns(pl.col("shapes", "dtypes").cast(TEXT))
    return shapes.alias("text").to_frame().join(table, on="text", how="left", maintain_order="left").drop("text")


def _inputs(text: str) -> tuple[str | None, str | None]:
    tensors = _TENSOR.findall(text)
    if not tensors:
        return None, None
    sides = ",".join(f"[{sides.strip(',')}]" for _, sides in tensors)
    return f"[{sides}]", json.dumps([_DTYPES.get(dtype, dtype) for dtype, _ in tensors], separators=(",", ":"))
