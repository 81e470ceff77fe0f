"""A comparison as JSON, and its schema: `python -m advisor.render.compared.json` prints that."""

from __future__ import annotations

import json
import sys
from typing import Final

from pydantic import ValidationError

from advisor.errors import ReadError
from advisor.model.comparison import SCHEMA_VERSION, Comparison
from advisor.text import one_line

_SCHEMA_ID: Final = f"comparison-{SCHEMA_VERSION}.json"


def render(found: Comparison) -> str:
    """The comparison as one JSON object: ASCII only, byte for byte reproducible."""
    return json.dumps(found.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"


def load(text: str | bytes, path: str = "comparison") -> Comparison:
    """The comparison that `render` wrote.

    Raises:
        ReadError: it is no JSON, or no comparison of this version.
    """
    try:
        return Comparison.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "the document"
        told = f"{one_line(where, 100)}: {one_line(first['msg'], 200)}"
        raise ReadError(f"{path}: is no comparison: {told}; `advisor compare -o FILE.json` writes one") from None


def schema() -> str:
    """The JSON Schema of a comparison."""
    described = Comparison.model_json_schema(mode="serialization")
    titled = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _SCHEMA_ID, **described}
    return json.dumps(titled, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())
