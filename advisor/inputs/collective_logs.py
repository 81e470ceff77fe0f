"""What the logs of collectives that run beside a job, without a profiler, have in common."""

from collections.abc import Sequence
from dataclasses import replace
from typing import IO, Annotated, Any, TypeAlias

import msgspec
import polars as pl

from advisor.inputs.names.kernels import collective_op
from advisor.model.clause import Missing
from advisor.model.profile import SCHEMAS, TEXT, Profile
from advisor.system.file_size import too_large
from advisor.text import one_line
from advisor.vocabulary.limits import MOST_RANKS

RankNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]  # of microseconds or bytes, or in a sequence
Clock: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]  # in ns since 1970: up to 2116


def text_of(source: IO[bytes], name: str, max_bytes: int | None) -> bytes:
    """All that a file holds; a ReadError where it has more than `max_bytes`."""
    text = bytearray()
    while block := source.read(1 << 20):  # all at once would take the memory that a user allows
        text += block
        if max_bytes is not None and len(text) > max_bytes:
            raise too_large(name, max_bytes)
    return bytes(text)


def profile_of(workers: Sequence[dict[str, Any]], calls: Sequence[dict[str, Any]], profile_format: str) -> Profile:
    """The profile of a log: rows of the tables `workers` and `collective_log`, the op of each by any name of it."""
    schema = SCHEMAS["collective_log"] | {"op": pl.String()}
    ranks = [call.pop("ranks", None) for call in calls]  # long in large jobs, and few differ
    places = {text: place for place, text in enumerate(dict.fromkeys(ranks))}
    log = pl.DataFrame(_plain(calls), schema=schema, orient="row").with_columns(
        pl.Series("ranks", [*places], TEXT).gather([places[text] for text in ranks]),
        op=pl.col("op").map_batches(collective_op),
    )
    tables = {"workers": pl.DataFrame(_plain(workers), infer_schema_length=None), "collective_log": log}
    profile = Profile.of(tables, format=profile_format)
    return replace(profile, lacks=dict.fromkeys(("steps", "device_ops", "host_ops"), Missing("log_of_collectives")))


def _plain(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: one_line(of) if isinstance(of, str) else of for name, of in row.items()} for row in rows]
