"""The contract with other programs: reports, comparisons, weeks and trials written as JSON and read back; schemas.

`python -m advisor.render.json report` prints the schema of a report.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from advisor.errors import ReadError
from advisor.inputs.storage import head_of
from advisor.model.report import Report
from advisor.text import one_line
from advisor.vocabulary.formerly import in_json
from advisor.vocabulary.kinds import DocumentKind

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.model.trials import Trials

_Value = TypeVar("_Value", bound=BaseModel)

_WRITERS: Final = {
    "report": "`advisor check -o report.json` writes one",
    "comparison": "`advisor compare -o comparison.json` writes one",
    "trials": "`advisor try -o trials.json` writes one",
}
_NOUNS: Final = {"trials": "report of trials"}
_AGAIN: Final = {
    "report": "check the profile again",
    "comparison": "compare the profiles again",
    "trials": "try the fixes again",
}
_MOST_BYTES: Final = 1 << 29  # a report of thousands of ranks is a tenth of it


class _Keys(msgspec.Struct):
    """The key of a document that tells its kind."""

    kind: DocumentKind = "report"


_DECODER: Final = msgspec.json.Decoder(_Keys)


def render(value: BaseModel) -> str:
    """A report, comparison or week as one JSON object.

    Keys are in the order of the contract; ASCII only, byte for byte reproducible.
    """
    return value.model_dump_json(indent=1, ensure_ascii=True).replace("\x7f", "\\u007f") + "\n"


def kind_of(text: bytes | str) -> DocumentKind:
    """What a saved JSON object holds; without a kind a report, whose loader says what is wrong with it."""
    try:
        return _DECODER.decode(text).kind
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return "report"


def read_report(path: str) -> Report:
    """A report saved as JSON.

    Raises:
        ReadError: it cannot be opened, is no report, or is too large for one.
    """
    text = _text(path, "give the profile itself")
    if (kind := kind_of(text)) != "report":
        raise ReadError(f"{path}: is a saved {kind}, not a report; give what `advisor check -o FILE.json` wrote")
    return load(text, path)


def read(path: str) -> Report | Comparison | Trials:
    """What a command saved as JSON: a report, a comparison or trials.

    Raises:
        ReadError: it cannot be opened, or is something else.
    """
    text = _text(path, "give what `-o FILE.json` wrote")
    kind = kind_of(text)
    if kind == "week":
        raise ReadError(f"{path}: is a saved week; `advisor fleet report -o page.html` draws it from the store")
    if kind == "report":
        return load(text, path)
    return load_comparison(text, path) if kind == "comparison" else load_trials(text, path)


def read_trials(path: str) -> Trials:
    """What `advisor try` measured, saved as JSON.

    Raises:
        ReadError: it cannot be opened, or is something else.
    """
    return load_trials(_text(path, "give what `advisor try -o FILE.json` wrote"), path)


def _text(path: str, instead: str) -> bytes:
    text = head_of(path, _MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ReadError(f"{path}: larger than any report; {instead}")
    return text


def load(text: str | bytes, path: str = "report") -> Report:
    """The report that `render` wrote; fields that it does not know are ignored.

    Args:
        text: JSON.
        path: Where it comes from, for messages.

    Raises:
        ReadError: it is no JSON, no report, or one of another version.
    """
    return _load(Report, "report", text, path)


def load_comparison(text: str | bytes, path: str = "comparison") -> Comparison:
    """The comparison that `render` wrote, as `load` reads a report.

    Raises:
        ReadError: it is no JSON, no comparison, or one of another version.
    """
    from advisor.model.comparison import Comparison  # noqa: PLC0415 - a check does without

    return _load(Comparison, "comparison", text, path)


def load_trials(text: str | bytes, path: str = "trials") -> Trials:
    """The trials that `render` wrote, as `load` reads a report.

    Raises:
        ReadError: it is no JSON, no report of trials, or one of another version.
    """
    from advisor.model.trials import Trials  # noqa: PLC0415 - a check does without

    return _load(Trials, "trials", text, path)


def _load(model: type[_Value], kind: str, text: str | bytes, path: str) -> _Value:
    try:
        return model.model_validate_json(in_json(text))
    except ValidationError as error:
        raise ReadError(f"{path}: {_problem(kind, text, error)}") from None


def schema(kind: str = "report") -> str:
    """The JSON Schema of a report, comparison, week or brief."""
    module = import_module(f"advisor.model.{kind}")
    mode = "validation" if kind == "brief" else "serialization"  # a brief leaves out what is empty
    described = getattr(module, kind.title()).model_json_schema(mode=mode)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{kind}-{module.SCHEMA_VERSION}.json"}
    return json.dumps({**head, **described}, indent=2, sort_keys=True) + "\n"


def _problem(kind: str, text: str | bytes, error: ValidationError) -> str:
    """What is wrong with the first thing that is, on one line."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    what = one_line(first["msg"], 200)
    if first["type"] == "json_invalid":
        return f"is no JSON ({what}); {_WRITERS[kind].removesuffix('one')}a {_NOUNS.get(kind, kind)}"
    document = json.loads(text)
    document = document if isinstance(document, dict) else {}
    version, other = document.get("schema_version"), document.get("kind", kind)
    if other != kind:
        return f"is a saved {one_line(str(other), 40)}, not a {_NOUNS.get(kind, kind)}; {_WRITERS[kind]}"
    own = import_module(f"advisor.model.{kind}").SCHEMA_VERSION
    if isinstance(version, int) and version != own:
        return _other_version(kind, version, own)
    where = ".".join(str(step) for step in first["loc"]) or "the document"
    return f"is no {_NOUNS.get(kind, kind)}: {one_line(where, 100)}: {what}; {_WRITERS[kind]}"


def _other_version(kind: str, version: int, own: int) -> str:
    todo = "use a newer advisor" if version > own else _AGAIN[kind]
    return f"is a {_NOUNS.get(kind, kind)} of version {version}, and this advisor reads version {own}: {todo}"


if __name__ == "__main__":
    sys.stdout.write(schema(*sys.argv[1:2]))
