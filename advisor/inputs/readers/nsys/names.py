"""What the numbers, times, processes and names in an Nsight Systems export mean, over every schema (none to 3.25)."""

from typing import Final

import polars as pl
from polars.datatypes import DataTypeClass

from advisor.inputs.names.calls import STEP, host_kinds
from advisor.inputs.readers.nsys.tables import Export
from advisor.model.profile import MEMORY_KINDS, TEXT
from advisor.vocabulary.limits import table

TIME: Final = ("start", "end")
_LATEST_NS: Final = 1 << 60  # with the session's time of day it stays below 2**63
LONGEST_NS: Final = 1 << 50
"""13 days: no event is longer."""


def ints(*columns: str) -> dict[str, DataTypeClass]:
    """These columns as whole numbers."""
    return dict.fromkeys(columns, pl.Int64)


def records(export: Export, table: str, *columns: str, where: str | None = None) -> pl.DataFrame:
    """The rows of a table with these columns, as `_placed`."""
    return placed(export.rows(table, ints(*TIME, *columns), needs=TIME, where=where))


def timed(export: Export, table: str, *columns: str, where: str | None = None) -> pl.DataFrame:
    """Those that have a place in time."""
    return records(export, table, *columns, where=where).drop_nulls("dur_ns")


def placed(rows: pl.DataFrame) -> pl.DataFrame:
    """All rows, with start_ns and dur_ns; both null where the row has no sound place in time."""
    start, end = (pl.when(sane(column)).then(column) for column in TIME)
    sound = (end - start).is_between(0, LONGEST_NS)
    return rows.with_columns(start_ns=pl.when(sound).then(start), dur_ns=pl.when(sound).then(end - start))


def sane(column: str) -> pl.Expr:
    """Whether a time can be one of a session."""
    return pl.col(column).is_between(-_LATEST_NS, _LATEST_NS)


def whose() -> list[pl.Expr]:
    """Process and thread, as `process` and `thread` give them."""
    return [process().alias("process"), thread().alias("thread")]


def process() -> pl.Expr:
    """The bits of globalTid that tell the process."""
    return pl.col("globalTid") // (1 << 24) * (1 << 24)


def thread() -> pl.Expr:
    """Those that tell the thread."""
    return pl.col("globalTid") & 0xFFFFFF


def name_of(column: str) -> pl.Expr:
    """A name, `?` where there is none."""
    return pl.col(column).fill_null("?").cast(TEXT)


def small(column: str | pl.Expr) -> pl.Expr:
    """As 32 bits; null where the number is larger."""
    return (pl.col(column) if isinstance(column, str) else column).cast(pl.Int32, strict=False)


def with_names(rows: pl.DataFrame, column: str, export: Export) -> pl.DataFrame:
    """The rows with the `name` that a column refers to."""
    texts = export.strings(rows[column]).select(pl.col("id").alias(column), name=pl.col("value").cast(TEXT))
    return rows.join(texts, on=column, how="left", maintain_order="left")


_WRITTEN: Final = table(__file__, "names")
COPY_KINDS: Final[dict[int, str]] = _WRITTEN["copy_kinds"]
MEMORY: Final[dict[int, str]] = _WRITTEN["memory"]
GPU_METRICS: Final[list[tuple[str, str]]] = _WRITTEN["gpu_metrics"]
MIGRATIONS: Final = [11, 12, 13]
"""Those of managed memory: pages that the driver moves, with no call of the program around it."""

# ENUM_NSYS_EVENT_TYPE
NVTX_THREAD: Final = 39
NVTX_PUSH_POP: Final = (59, 70)
NVTX_START_END: Final = (60, 71)
NVTX_DOMAIN: Final = 75
# ENUM_NSYS_EVENT_CLASS: 67, "CUDA backtrace", repeats calls that are there already
API_CLASSES: Final = (0, 1)

VERSION: Final = r"_v\d{4,}$"  # cudaMalloc_v3020; cuGetProcAddress_v2 is a name of its own
_EMITTED: Final = r"^(.*?), (?:seq|op_id|sizes|input_op_ids) = "  # torch.autograd.profiler.emit_nvtx
_OP: Final = r"^[\w:.]+$|^autograd::"  # an operator's name, unlike one that a person gave, has no blanks
_OP_DOMAINS: Final = ["tensorflow-core", "TSL"]
# Ranges that people put around asking for the next batch; PyTorch's own are told by `host_kinds`.
_INPUT: Final = (
    r"(?i)^(?:(?:wait(?:ing)? (?:for|on) )?(?:the )?(?:next |get |load |fetch |read )?"
    r"(?:data[ _-]?load(?:er|ing)?|dataload(?:er|ing)|batch[ _-]?(?:load|gen|fetch)\w*|input[ _-]pipeline)"
    r"|(?:next|get|load|fetch|read)[ _-](?:a |the |next[ _-])?(?:data|batch|samples?|inputs?))\b"
)


def range_name(text: pl.Expr) -> pl.Expr:
    """An NVTX range's name without what PyTorch's emit_nvtx adds behind it."""
    return pl.coalesce(text.str.extract(_EMITTED), text)


def sequence(text: pl.Expr) -> pl.Expr:
    """Autograd's sequence number, where emit_nvtx gave one."""
    return text.str.extract(r", seq = (\d{1,18})(?:,|$)").cast(pl.Int64, strict=False)


def shapes(text: pl.Expr) -> pl.Expr:
    """The shapes of an op's inputs as JSON text, where emit_nvtx(record_shapes=True) gave them."""
    return text.str.extract(r", sizes = (\[.*?\])(?:, input_op_ids = .*)?$")


def range_kinds(text: pl.Expr, domain: pl.Expr) -> pl.Expr:
    """Kind of an NVTX range: op, step, input, compile, gc or annotation.

    Ops are the ranges that emit_nvtx and `nsys --pytorch=autograd-nvtx` push for operators, and those of TensorFlow's
    and XLA's own domains.
    """
    name = range_name(text)
    emitted = text.str.contains(_EMITTED) & name.str.contains(_OP)
    is_op = emitted | name.str.contains(r"^(?:aten|autograd)::") | domain.is_in(_OP_DOMAINS).fill_null(value=False)
    started_as = pl.when(name.str.contains(STEP) | ~is_op).then(pl.lit("annotation")).otherwise(pl.lit("op"))
    asks = ~is_op & name.str.contains(_INPUT)
    return pl.when(asks).then(pl.lit("input")).otherwise(host_kinds(started_as, name).cast(pl.String))


def memory_kind(number: pl.Expr) -> pl.Expr:
    """pageable, pinned, device or managed, null where unknown."""
    return number.replace_strict(MEMORY, default=None, return_dtype=pl.String).cast(MEMORY_KINDS)
