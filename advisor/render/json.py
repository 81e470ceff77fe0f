"""The contract with other programs: reports, comparisons, weeks and trials written as JSON and read back; schemas.

`python -m advisor.render.json report` prints the schema of a report.
"""

from __future__ import annotations

import json
import operator
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from advisor.errors import ReadError
from advisor.inputs.storage import head_of
from advisor.model.finding import Value
from advisor.model.report import Columns, Report, Row, Run, number
from advisor.present.source import ranks_of
from advisor.text import one_line, shut
from advisor.vocabulary.formerly import in_json
from advisor.vocabulary.kinds import DocumentKind

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.model.trials import Trials


_Value = TypeVar("_Value", bound=BaseModel)


class _Saved(NamedTuple):
    """What users call a kind of saved value, what writes one, and what to do about one of another version."""

    noun: str
    writer: str
    again: str


_SAVED: Final = {
    "report": _Saved("report", "`advisor check -o report.json` writes one", "check the profile again"),
    "comparison": _Saved("comparison", "`advisor compare -o comparison.json` writes one", "compare the profiles again"),
    "trials": _Saved("report of trials", "`advisor try -o trials.json` writes one", "try the fixes again"),
}
_MOST_BYTES: Final = 1 << 29  # a report of thousands of ranks is a tenth of it

_LONGEST: Final = 1 << 20  # bytes, own choice: to draw as much text takes a second, and a report shows 2,000 of one
_LONG_TEXT: Final = re.compile(rb'"[^"]{%d}' % _LONGEST)
_LARGEST: Final = 1e30  # a thousand years of the fastest machine have 1e29 FLOP
_LEAST: Final = 1e-99  # what rounding leaves of a zero is larger
_MAY_BE_BEYOND: Final = re.compile(rb"\d{30}|\d[eE](?:\+?\d\d|-\d\d\d)")
_VALUES_A_BYTE: Final = 1  # of a job of many ranks; a third is usual


class _Keys(msgspec.Struct):
    """The key of a document that tells its kind."""

    kind: DocumentKind = "report"


def render(value: BaseModel) -> str:
    """A report, comparison or week as one JSON object.

    Keys are in the order of the contract; ASCII only, byte for byte reproducible. A report with columns is one line:
    a value a line would be most of it.
    """
    has_columns = False
    if isinstance(value, Report):
        value = value.model_copy(update={"runs": tuple(map(folded, value.runs))})
        has_columns = any(run.columns for run in value.runs)
    text = value.model_dump_json(indent=None if has_columns else 1, ensure_ascii=True)
    return shut(text.replace("\x7f", "\\u007f"), "\\u2026") + "\n"


def kind_of(text: bytes | str) -> DocumentKind:
    """What a saved JSON object holds; without a kind a report, whose loader says what is wrong with it."""
    try:
        return msgspec.json.decode(text, type=_Keys).kind
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return "report"


def read(path: str) -> Report | Comparison | Trials:
    """What a command saved as JSON: a report, a comparison or trials.

    Raises:
        ReadError: it cannot be opened, or is something else.
    """
    text = _text(path)
    kind = kind_of(text)
    if kind == "week":
        raise ReadError(f"{path}: is a saved week; `advisor fleet report -o page.html` draws it from the store")
    value: Report | Comparison | Trials = load_as(_model(kind), text, path)
    return value


def read_as(model: type[_Value], path: str) -> _Value:
    """A report, a comparison or trials saved as JSON.

    Raises:
        ReadError: it cannot be opened, is something else, or is too large for one.
    """
    return load_as(model, _text(path), path)


def _text(path: str) -> bytes:
    text = head_of(path, _MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ReadError(f"{path}: larger than any report; give what `-o FILE.json` wrote")
    return text.removeprefix(BOM_UTF8)  # of PowerShell


def load_as(model: type[_Value], text: str | bytes, path: str) -> _Value:
    """The report, comparison or trials that `render` wrote; fields that the model does not know are ignored.

    Raises:
        ReadError: it is no JSON, something else, or one of another version; the message begins with `path`.
    """
    encoded = text.encode() if isinstance(text, str) else text
    if len(encoded) > _LONGEST and _LONG_TEXT.search(encoded.replace(b"\\\\", b"xx").replace(b'\\"', b"xx")):
        raise ReadError(f"{path}: is no report: it has a text of over {_LONGEST >> 20} MiB")
    try:
        known = shut(in_json(text).decode(errors="surrogateescape"), "\\u2026")  # no token of an older report
        value = model.model_validate_json(known.encode(errors="surrogateescape"))
    except ValidationError as error:
        raise ReadError(f"{path}: {_problem(model, text, error)}") from None
    if not isinstance(value, Report):
        return value
    if _MAY_BE_BEYOND.search(encoded):
        json.loads(encoded, parse_float=_number(path), parse_int=_number(path))
    if sum(map(values, value.runs)) > _VALUES_A_BYTE * len(text):
        raise ReadError(f"{path}: is no report: its columns have more values than a file of its size")
    return value.model_copy(update={"runs": tuple(map(unfolded, value.runs))})


def _number(path: str) -> Callable[[str], None]:
    def checked(digits: str) -> None:
        size = abs(float(digits))
        if size and not _LEAST < size < _LARGEST:
            bounds = f"below {_LEAST:.0e}" if size < 1 else f"above {_LARGEST:.0e}"
            raise ReadError(f"{path}: is no report: it has a number {bounds}, which nothing measures")

    return checked


def _model(kind: str) -> Any:  # noqa: ANN401 - the model that is called as its module
    return getattr(import_module(f"advisor.model.{kind}"), kind.title())


def schema(kind: str = "report") -> str:
    """The JSON Schema of a report, comparison, week or brief."""
    mode = "validation" if kind == "brief" else "serialization"  # a brief leaves out what is empty
    described = _model(kind).model_json_schema(mode=mode)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{kind}-{_version(_model(kind))}.json"}
    return json.dumps({**head, **described}, indent=2, sort_keys=True) + "\n"


def _version(model: type[BaseModel]) -> int:
    version: int = import_module(model.__module__).SCHEMA_VERSION
    return version


def _problem(model: type[BaseModel], text: str | bytes, error: ValidationError) -> str:
    """What is wrong with the first thing that is, on one line."""
    kind, own = model.__name__.lower(), _version(model)
    noun, writer, again = _SAVED[kind]
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    what = one_line(first["msg"], 200)
    if first["type"] == "json_invalid":
        return f"is no JSON ({what}); {writer.removesuffix('one')}a {noun}"
    document = json.loads(text)
    document = document if isinstance(document, dict) else {}
    version, other = document.get("schema_version"), document.get("kind", kind)
    if other != kind:
        return f"is a saved {one_line(str(other), 40)}, not a {noun}; {writer}"
    if isinstance(version, int) and version != own:
        todo = "use a newer advisor" if version > own else again
        return f"is a {noun} of version {version}, and this advisor reads version {own}: {todo}"
    where = ".".join(str(step) for step in first["loc"]) or "the document"
    return f"is no {noun}: {one_line(where, 100)}: {what}; {writer}"


if __name__ == "__main__":
    sys.stdout.write(schema(*sys.argv[1:2]))


_MANY: Final = 32
_MOST_IN_ROWS: Final = 16
_OF_RANKS: Final = ("worker", "device", "step", "accounting", "over_time")
_OF_JOB: Final = ("wait", "pace")  # which have a row per pair of ranks, and per rank and step
_DIGITS: Final = 6  # significant ones: a step of 30 ms to 100 ns


def folded(run: Run) -> Run:
    """A run with the rows of most ranks in columns, where it has many ranks."""
    if len(run.source.workers) <= _MANY:
        return run
    # The ranks that set the pace, are awaited most and wait most, and those that findings are about.
    leading = (run.source.steps.worker, *(run.of_job.get(metric) for metric in ("awaited_most", "waiting_most")))
    about = (rank for finding in run.findings for rank in ranks_of(finding, run.source))
    every = chain(leading, (finding.scope.told_of for finding in run.findings), about)
    ranks = set(islice(dict.fromkeys(every), _MOST_IN_ROWS))
    metrics, columns = dict(run.metrics), dict[str, Columns]()
    for table in (*_OF_RANKS, *_OF_JOB):
        if not (rows := run.metrics.get(table)):
            continue
        stays = [table in _OF_RANKS and row.get("worker") in ranks for row in rows]
        rest = list(compress(rows, map(operator.not_, stays)))
        metrics[table] = tuple(compress(rows, stays))
        is_again = table == "device" and rows == run.metrics.get("worker")  # one device a rank
        columns[table] = Columns(like="worker") if is_again else _columns(rest)
    return run.model_copy(update={"metrics": metrics, "columns": columns})


def _columns(rows: Sequence[Row]) -> Columns:
    columns = {
        name: tuple(float(f"{of:.{_DIGITS}g}") if isinstance(of := row[name], float) else of for row in rows)
        for name in (rows[0] if rows else ())
    }
    same = {name: values[0] for name, values in columns.items() if len(rows) > 1 and len(set(values)) == 1}
    return Columns(same=same, columns={name: values for name, values in columns.items() if name not in same})


def values(run: Run) -> int:
    """How many values the rows have that are in columns: one that is the same in all of them is written once."""
    return sum(_length(of) * (len(of.same) + len(of.columns)) for _, of in _tables(run))


class _Row(dict[str, Value]):
    """A row of a file, which may be anybody's: what it does not have is unknown."""

    def __missing__(self, name: str) -> None:
        return None


def unfolded(run: Run) -> Run:
    """The run with all rows in their tables again, in the order of the ranks."""
    metrics = {table: tuple(map(_Row, rows)) for table, rows in run.metrics.items()}
    for table, of in _tables(run):
        rows = zip(*(column[: _length(of)] for column in of.columns.values()), strict=True)
        again = (_Row({**of.same, **dict(zip(of.columns, row, strict=True))}) for row in rows)
        every = (*metrics.get(table, ()), *again)
        metrics[table] = tuple(sorted(every, key=lambda row: (number(row, "worker"), number(row, "device"))))
    return run.model_copy(update={"metrics": metrics, "columns": {}})


def _tables(run: Run) -> list[tuple[str, Columns]]:
    """The tables that have columns, with those of another table where their rows are the same."""
    tables = [(table, run.columns[table]) for table in (*_OF_RANKS, *_OF_JOB) if table in run.columns]
    return [(table, run.columns.get(of.like or table, of)) for table, of in tables]


def _length(of: Columns) -> int:
    """Rows of a table; of a damaged file the shortest column counts."""
    return min(map(len, of.columns.values()), default=0)
