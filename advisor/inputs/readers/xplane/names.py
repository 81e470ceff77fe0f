"""What names of planes and stats of copies mean, over the generations of TensorFlow, JAX and XLA."""

import re
from typing import Final

import polars as pl

from advisor.model.profile import MEMORY_KINDS, TEXT, of_distinct

HOST_PLANES: Final = ("/host:CPU", "/host:python-tracer", "/host:CUPTI", "/host:ROCTRACER")  # not always merged
GPU_PLANE: Final = re.compile(r"^/device:(?:GPU|CUSTOM:[^:]+):(\d{1,9})$")
TPU_PLANE: Final = re.compile(r"^/device:TPU:(\d{1,9})$")
METADATA_PLANE: Final = "/host:metadata"
TASK_PLANE: Final = "Task Environment"
RECORDER_PLANE: Final = "/advisor:"  # and what `advisor record` measured, as JSON

# XLA's collective instructions, as they stand at the start of an HLO op's name or category.
HLO_COLLECTIVE: Final = (
    r"^(?:all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast)"
)


def copies(details: pl.Series, names: pl.Series) -> pl.DataFrame:
    """What `memcpy_details` and the event's name tell, a row each: bytes, copy_kind, source_memory, target_memory.

    `size:112 dest:4 async:0` before TensorFlow 2.5, `kind_src:pageable kind_dst:device size:... dest:0 async:1` since.
    """
    text, name = pl.col("details").cast(pl.String), pl.col("name").cast(pl.String)
    sides = name.str.extract_groups(r"(?i)mem(?:cpy|ory ?copy)\W*([HDPA])\w*?(?:to|2)([HDPA])")
    letters = [sides.struct.field(side).str.to_uppercase() for side in ("1", "2")]
    size = text.str.extract(r"\bsize:(\d{1,18})").cast(pl.Int64, strict=False)
    kinds = [text.str.extract(rf"\bkind_{side}:(\w+)").str.to_lowercase() for side in ("src", "dst")]
    memories = [kind.str.replace("_static$", "").cast(MEMORY_KINDS, strict=False) for kind in kinds]
    columns = {"bytes": pl.when(size > 0).then(size), "copy_kind": pl.format("{}to{}", *letters).cast(TEXT)}
    columns |= dict(zip(("source_memory", "target_memory"), memories, strict=True))
    return of_distinct(pl.DataFrame({"details": details, "name": names}), lambda texts: texts.select(**columns))
