"""Profile: what a profiler recorded, as tidy polars tables. Readers fill it, metrics read it.

Times are integer nanoseconds on one clock per profile. Unknown is null, never a sentinel; `lacks` says why.
`worker` is the rank where the profile knows it, else the order of the files. Ids are row numbers of their table.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import polars as pl
from polars.datatypes import DataType, DataTypeClass

from advisor.errors import ReadError
from advisor.model.clause import Clause, Missing, Note
from advisor.model.intervals import EMPTY, Intervals
from advisor.secrets import LONG, MAY_LET_IN, without_random, without_secrets
from advisor.vocabulary import limits

_WRITTEN: Final = limits.table(__file__, "tables")
_KINDS: Final = {of: pl.Enum(kinds) for of, kinds in _WRITTEN["kinds"].items()}
DEVICE_OP_KINDS, HOST_OP_KINDS, MEMORY_KINDS = _KINDS.values()
TEXT: Final = pl.Categorical()

Schema = dict[str, DataType | DataTypeClass]


def _type(written: Any) -> DataType | DataTypeClass:  # noqa: ANN401 - a word, list or mapping
    if isinstance(written, list):
        return pl.List(_type(*written))
    if isinstance(written, dict):
        return pl.Struct({name: _type(inner) for name, inner in written.items()})
    return TEXT if written == "Text" else _KINDS.get(written) or getattr(pl, written)


# A stack of Python that was sampled; a batch of sequences
STACKS, BATCHES = (_type(_WRITTEN["structs"][name]) for name in ("stack", "batch"))
SCHEMAS: Final[dict[str, Schema]] = {
    name: {column: _type(written) for column, written in columns.items()}
    for name, columns in _WRITTEN["tables"].items()
}


_SMALL: Final = 1 << 12  # rows: to find the distinct texts of so few takes longer than to ask each
_MOST_TEXT: Final = 1 << 28  # bytes of a column's texts where each row spells its own: 268 of each of a million rows
_MOST_NAMES: Final = 1 << 16  # own choice: many patterns look at each name, 50 us long
_OTHERS: Final = "other names"
_LONGEST: Final = 1 << 17  # characters of a text that may hold a secret: to look for one takes a second per million
_MOST_HARMLESS: Final = 1 << 18
_harmless: set[int] = set()
"""Hashes of texts that are without secrets: a table is looked through as it is read, and when all are put together."""
_JSON: Final = ("shapes", "dtypes", "details")  # of which a beginning says nothing

END_NS: Final = pl.col("start_ns") + pl.col("dur_ns")  # the end of an op, range or step


def spans(ops: pl.DataFrame) -> Intervals:
    """The time ranges of device or host ops, merged."""
    start = ops["start_ns"].to_numpy()
    return Intervals.of(start, start + ops["dur_ns"].to_numpy()) if ops.height else EMPTY


def matches(pattern: str, column: str = "name") -> pl.Expr:
    """Whether a text matches a regular expression; null where there is no text.

    Each distinct text of a large table is asked once: it has a million rows and some thousand names.
    """

    def matching(texts: pl.Series) -> pl.Series:
        if texts.is_empty():
            return pl.Series(dtype=pl.Boolean)
        if len(texts) <= _SMALL:
            return texts.cast(pl.String).str.contains(pattern)
        known = texts.unique()
        hits = known.filter(known.cast(pl.String).str.contains(pattern))
        if hits.is_empty() and not texts.null_count():
            return pl.Series([False]).new_from_index(0, len(texts))  # most patterns are of another framework
        return texts.is_in(hits.implode())

    return pl.col(column).map_batches(matching, return_dtype=pl.Boolean)


def unnumbered(column: str = "name") -> pl.Expr:
    """A column's texts with `#` for each number in them; each distinct text is changed once."""

    def changed(texts: pl.Series) -> pl.Series:
        known = texts.unique()
        plain = known.cast(pl.String).str.replace_all(r"\d+", "#").cast(TEXT)
        return texts.replace_strict(known, plain, return_dtype=TEXT)

    return pl.col(column).map_batches(changed, return_dtype=TEXT)


def of_distinct(texts: pl.DataFrame, read: Callable[[pl.DataFrame], pl.DataFrame]) -> pl.DataFrame:
    """What `read` makes of each row of texts; it sees each distinct row once."""
    distinct = texts.unique()
    known = distinct.hstack(read(distinct))
    return texts.join(known, on=texts.columns, how="left", nulls_equal=True, maintain_order="left").drop(texts.columns)


def fitting(rows: pl.DataFrame, salvaged: list[Note] | list[Clause]) -> pl.DataFrame:
    """The table without tokens, with the rarest of too many names as one, and the longest texts cut: notes say so.

    Texts are cut where a column's would fill the memory.

    A text is there once, however many rows have it, until a step of the analysis spells it in each. Nobody could tell
    a token that is cut, or whose numbers are replaced.
    """
    if rows.is_empty():
        return rows
    if "name" in rows.columns and (number := rows["name"].n_unique()) > _MOST_NAMES + 1:
        salvaged.append(Note("many_names", of=number))
        each = rows.group_by("name", maintain_order=True).len().sort("len", descending=True, maintain_order=True)
        others = ~pl.col("name").is_in(each["name"].head(_MOST_NAMES).implode())
        rows = rows.with_columns(pl.when(others).then(pl.lit(_OTHERS, TEXT)).otherwise("name").alias("name"))
    written = [text for text in rows.select(pl.col(TEXT, pl.String).exclude("file")) if text.null_count() < len(text)]
    rows = rows.with_columns(map(_shut, written))
    texts = rows.select(pl.col(TEXT).exclude("stack")).iter_columns()
    large = [text for text in texts if (text.cat.len_bytes().sum() or 0) > _MOST_TEXT]
    salvaged += [Note("long_texts", column=column.name, of=column.len()) for column in large]
    return rows.with_columns(map(_cut, large))


def lean(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns of one value, or of nulls alone, as that value: it takes no memory, nor does what is chosen of it."""
    if rows.is_empty():
        return rows
    return rows.with_columns(pl.first(of.name) for of in rows if of.null_count() == of.len() > 0 or _is_uniform(of))


def _is_uniform(values: pl.Series) -> bool:
    """Whether a large column has one value; of a small one, or of lists, nobody asks."""
    is_large = len(values) > _SMALL and not values.dtype.is_nested() and not values.null_count()
    return is_large and values[0] == values[-1] and bool((values == values[0]).all())


def _shut(texts: pl.Series) -> pl.Series:
    known = texts.unique().drop_nulls()
    words = known.cast(pl.String)
    signed = words.str.contains(MAY_LET_IN)
    for clean, hinting in ((without_secrets, signed), (without_random, ~signed & words.str.contains(LONG))):
        old = [text for text in known.filter(hinting) if hash(text) not in _harmless]
        new = [None if texts.name in _JSON and text[_LONGEST:] else clean(text[:_LONGEST]) for text in old]
        _harmless.update(hash(text) for text in new if text is not None)
        if old:
            texts = texts.replace(pl.Series(old, dtype=texts.dtype), pl.Series(new, dtype=texts.dtype))
    if len(_harmless) > _MOST_HARMLESS:
        _harmless.clear()
    return texts


def _cut(texts: pl.Series) -> pl.Series:
    each = texts.drop_nulls().value_counts(name="rows").with_columns(bytes=pl.col(texts.name).cat.len_bytes())
    each = each.cast({"rows": pl.Int64, "bytes": pl.Int64}).sort("bytes")
    longer = each["rows"].sum() - each["rows"].cum_sum()
    shorter = (each["rows"] * each["bytes"]).cum_sum()
    uncut = int(((shorter + longer * each["bytes"]) <= _MOST_TEXT).sum())  # the shortest texts stay as they are
    room = (_MOST_TEXT - int(shorter[uncut - 1] if uncut else 0)) // int(each["rows"][uncut:].sum())
    long = each[texts.name][uncut:]
    cut = [None if texts.name in _JSON else text.encode()[:room].decode(errors="ignore") for text in long]
    return texts.replace(long, pl.Series(cut, dtype=pl.String).cast(TEXT))


def rows_where(table: pl.DataFrame, *conditions: pl.Expr | pl.Series) -> pl.DataFrame:
    """The rows for which these hold; the table itself, not a copy, where they hold for all."""
    holds = table.select(pl.all_horizontal(pl.lit(value=True), *conditions).fill_null(value=False)).to_series()
    return table if holds.all() else table.filter(holds)


def in_order(table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The rows sorted by these columns; the table itself, not a copy, where they are."""
    order = table.select(pl.arg_sort_by(columns)).to_series()
    return table if order.is_sorted() else table[order]


_MOST_BYTES: Final = 1 << 50
_MOST: Final = {"sm_count": 1 << 12, "capability": 100, "max_threads_per_sm": 1 << 14}  # several times any device's
_EMPTY: Final = {name: pl.DataFrame(schema=schema) for name, schema in SCHEMAS.items()}
_EXPECTED: Final = {name: ([*schema], pl.Schema(schema).dtypes()) for name, schema in SCHEMAS.items()}


@dataclass(frozen=True, slots=True)
class Profile:
    """The tables named in SCHEMAS, with exactly those columns."""

    workers: pl.DataFrame
    devices: pl.DataFrame
    steps: pl.DataFrame
    device_ops: pl.DataFrame
    host_ops: pl.DataFrame
    collectives: pl.DataFrame
    collective_log: pl.DataFrame
    allocations: pl.DataFrame
    threads: pl.DataFrame
    os_calls: pl.DataFrame
    off_cpu: pl.DataFrame
    host_samples: pl.DataFrame
    gpu_samples: pl.DataFrame
    format: str
    lacks: Mapping[str, Missing] = field(default_factory=dict)  # by `table` or `table.column` why it is absent
    lacks_of: Mapping[int, Mapping[str, Missing]] = field(default_factory=dict)  # the same by worker, of its own file
    salvaged: Sequence[Clause] = ()  # what was repaired or dropped while reading

    def __post_init__(self) -> None:
        """Check every table against its schema: a reader that breaks it is a bug, not a bad file."""
        for name, expected in _EXPECTED.items():
            frame: pl.DataFrame = getattr(self, name)
            if (frame.columns, frame.dtypes) != expected:
                wrong = sorted(set(frame.schema.items()) ^ set(pl.Schema(SCHEMAS[name]).items()), key=str)
                raise TypeError(f"table {name} breaks its schema: {wrong}")

    @classmethod
    def of(cls, tables: Mapping[str, pl.DataFrame], *, format: str, salvaged: Sequence[Clause] = ()) -> Self:  # noqa: A002
        """A profile from some of its tables and columns; what is absent is empty or null."""
        notes = [*salvaged]
        filled = {name: lean(fitting(table(name, tables.get(name)), notes)) for name in SCHEMAS}
        return cls(**filled, format=format, salvaged=tuple(notes), lacks={}, lacks_of={})

    def numbered(self, worker: int) -> Self:
        """The profile of one worker under another number."""
        changed = {name: getattr(self, name).with_columns(worker=pl.lit(worker, pl.Int32)) for name in SCHEMAS}
        return replace(self, **changed)

    @property
    def start_ns(self) -> int:
        """The first instant that anything was recorded at; 0 where nothing was."""
        starts = pl.concat([self.host_ops["start_ns"], self.device_ops["start_ns"]]).to_numpy()
        return int(starts.min()) if len(starts) else 0

    def emptied(self) -> Self:
        """The same without the tables of single events."""
        events = SCHEMAS.keys() - {"workers", "devices", "steps"}
        return replace(self, **{name: getattr(self, name).clear() for name in events})

    def empty(self, needs: Iterable[str]) -> list[str]:
        """Those tables and columns (`table` or `table.column`) that hold nothing; no column of an empty table."""
        rows = {need: getattr(self, need.partition(".")[0]) for need in needs}
        return [
            need
            for need, of in rows.items()
            if (of.height and not of[need.partition(".")[2]].count() if "." in need else not of.height)
        ]

    def why_lacking(self, need: str, worker: int | None = None) -> Missing | None:
        """Reason why `table` or `table.column` is absent, of this worker if one is named; None where it is there."""
        lacks = self.lacking(worker)
        return lacks.get(need) or lacks.get(need.partition(".")[0])

    def lacking(self, worker: int | None) -> Mapping[str, Missing]:
        """What is absent of this worker: what all lack, and what its own file does."""
        return {**self.lacks, **(self.lacks_of.get(worker, {}) if worker is not None else {})}


def table(name: str, columns: Mapping[str, object] | pl.DataFrame | None = None) -> pl.DataFrame:
    """Table `name` of a Profile from some of its columns: cast to the schema, ordered, absent columns null.

    Numbers that no device can have are null too: sums of such sizes would leave the range of 64 bits.
    """
    frame, schema = columns if isinstance(columns, pl.DataFrame) else pl.DataFrame(columns or {}), SCHEMAS[name]
    if frame.is_empty():
        return _EMPTY[name].clone()
    there = frame.schema
    changed = [
        _cast(column, dtype) if column in there else pl.lit(None, dtype).alias(column)
        for column, dtype in schema.items()
        if there.get(column) != dtype or _least_and_most(column, dtype)
    ]
    return frame.with_columns(changed).select(*schema)


def _least_and_most(column: str, dtype: DataType | DataTypeClass) -> tuple[int, int] | None:
    """The bounds of what a device can have; None where any number may stand."""
    if column.endswith("bytes") and dtype == pl.Int64:
        return -_MOST_BYTES, _MOST_BYTES
    return (1, _MOST[column]) if column in _MOST else None


def _cast(column: str, dtype: DataType | DataTypeClass) -> pl.Expr:
    values, bounds = pl.col(column).cast(dtype), _least_and_most(column, dtype)
    return pl.when(values.is_between(*bounds)).then(values) if bounds else values


def join(profiles: Sequence[Profile]) -> Profile:
    """One profile of several workers, as their own files number them; a ReadError where two claim the same number."""
    if len(profiles) == 1:
        return profiles[0]
    workers = pl.concat([p.workers for p in profiles])
    if workers["worker"].is_duplicated().any():
        files = ", ".join(workers.filter(pl.col("worker").is_duplicated())["file"])
        raise ReadError(f"{files}: more than one file of the same rank; check them apart, or keep one file per rank")
    shifted, device_ops, host_ops = list[Profile](), 0, 0
    for profile in profiles:
        ids = {
            "device_ops": (pl.col("id") + device_ops, pl.col("launch", "op") + host_ops),
            "host_ops": (pl.col("id", "parent") + host_ops,),
            "collectives": (pl.col("device_op") + device_ops,),
        }
        tables = {name: getattr(profile, name).with_columns(columns) for name, columns in ids.items()}
        shifted.append(replace(profile, **tables))
        device_ops, host_ops = device_ops + profile.device_ops.height, host_ops + profile.host_ops.height
    joined = Profile.of(
        {name: pl.concat([getattr(p, name) for p in shifted]) for name in SCHEMAS},
        format=profiles[0].format,
        salvaged=_notes(profiles),
    )
    lacks_of = {worker: profile.lacks for profile in profiles for worker in profile.workers["worker"]}
    # what every one of them lacks: a table that some supply is not lacking as a whole
    reasons = {need: why for profile in reversed(profiles) for need, why in profile.lacks.items()}
    lacks = {need: why for need, why in reasons.items() if all(profile.why_lacking(need) for profile in profiles)}
    return replace(joined, lacks=lacks, lacks_of=lacks_of)


def _notes(profiles: Sequence[Profile]) -> list[Clause]:
    """What was salvaged, with the workers' names where it does not hold for all."""
    profiles_with = Counter(note for profile in profiles for note in dict.fromkeys(profile.salvaged))
    of_all = {note for note, number in profiles_with.items() if number == len(profiles)}
    groups = ((", ".join(profile.workers["name"].drop_nulls()), profile.salvaged) for profile in profiles)
    notes = [note if note in of_all or not names else note.of(names) for names, own in groups for note in own]
    return list(dict.fromkeys(notes))
