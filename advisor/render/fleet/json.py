"""A week as JSON, and its schema: `python -m advisor.render.fleet.json` prints that."""

from __future__ import annotations

import json
import sys
from typing import Final

from advisor.model.week import SCHEMA_VERSION, Week

_SCHEMA_ID: Final = f"week-{SCHEMA_VERSION}.json"


def render(week: Week) -> str:
    """The week as one JSON object: ASCII only, byte for byte reproducible."""
    return json.dumps(week.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"


def schema() -> str:
    """The JSON Schema of a week."""
    described = Week.model_json_schema(mode="serialization")
    titled = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _SCHEMA_ID, **described}
    return json.dumps(titled, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())
