"""A report as JSON, the contract with other programs, and its schema: `python -m advisor.render.json` prints that."""

from __future__ import annotations

import json
import sys
from typing import Final

from pydantic import BaseModel, ValidationError

from advisor.errors import ReadError
from advisor.model.report import SCHEMA_VERSION, Report
from advisor.text import one_line

_SCHEMA_ID: Final = f"report-{SCHEMA_VERSION}.json"


def render(value: BaseModel) -> str:
    """A report, comparison or week as one JSON object.

    Keys are in the order of the contract; ASCII only, byte for byte reproducible.
    """
    return value.model_dump_json(indent=1, ensure_ascii=True).replace("\x7f", "\\u007f") + "\n"


def load(text: str | bytes, path: str = "report") -> Report:
    """The report that `render` wrote; fields that it does not know are ignored.

    Args:
        text: JSON.
        path: Where it comes from, for messages.

    Raises:
        ReadError: it is no JSON, no report, or one of another version.
    """
    try:
        return Report.model_validate_json(text)
    except ValidationError as error:
        raise ReadError(f"{path}: {_problem(text, error)}") from None


def schema() -> str:
    """The JSON Schema of a report."""
    described = Report.model_json_schema(mode="serialization")
    titled = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _SCHEMA_ID, **described}
    return json.dumps(titled, indent=2, sort_keys=True) + "\n"


def _problem(text: str | bytes, error: ValidationError) -> str:
    """What is wrong with the first thing that is, on one line."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    what = one_line(first["msg"], 200)
    if first["type"] == "json_invalid":
        return f"is no JSON ({what}); `advisor check -o report.json` writes a report"
    document = json.loads(text)
    document = document if isinstance(document, dict) else {}
    version, kind = document.get("schema_version"), document.get("kind", "report")
    if kind != "report":
        return f"is a saved {one_line(str(kind), 40)}, not a report; `advisor check -o report.json` writes one"
    if isinstance(version, int) and version != SCHEMA_VERSION:
        return _other_version(version)
    where = ".".join(str(step) for step in first["loc"]) or "the document"
    return f"is no report: {one_line(where, 100)}: {what}; `advisor check -o report.json` writes one"


def _other_version(version: int) -> str:
    todo = "use a newer advisor" if version > SCHEMA_VERSION else "check the profile again"
    return f"is a report of version {version}, and this advisor reads version {SCHEMA_VERSION}: {todo}"


if __name__ == "__main__":
    sys.stdout.write(schema())
