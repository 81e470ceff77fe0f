"""The schemas that code hosts publish of their files."""

from __future__ import annotations

from pathlib import Path

import check_jsonschema
from click.testing import CliRunner


def departures(file: Path, schema: str) -> str:
    """What of a file is not as the host's schema wants it; empty where all is."""
    done = CliRunner().invoke(check_jsonschema.main, ["--builtin-schema", f"vendor.{schema}", str(file)])
    return done.output if done.exit_code else ""
