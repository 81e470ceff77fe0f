"""The page of what other tools show and where it is seen here, from coverage.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

Row = Mapping[str, Any]

TEST: Final = "tests/golden/test_coverage.py"
INTRO: Final = f"""\
# What other tools show, and where it is seen here

Each row is a capability of a tool or a guide that users come from. `advisor check` shows it unless another command is
named. `{TEST}` runs the command on the recording of the row and looks for it there. "Its cases" are the examples in the
rule's file, which `advisor rules test` runs: no recording at hand shows that fault."""
HEAD: Final = "| what | seen here | shown by | difference |\n| --- | --- | --- | --- |"


def tools() -> Sequence[Mapping[str, Any]]:
    """The data: a tool, its address, and its rows."""
    loaded: Sequence[Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_name("coverage.yaml").read_text("utf-8"))
    return loaded


def coverage_page() -> str:
    """The page."""
    parts = [INTRO]
    for tool in tools():
        rows = "\n".join(_line(row) for row in tool["rows"])
        parts.append(f"## {tool['tool']}\n\n<{tool['link']}>\n\n{HEAD}\n{rows}")
    return "\n\n".join(parts) + "\n"


def _line(row: Row) -> str:
    seen = f"no, because {row['absent']}" if "absent" in row else "; ".join(_places(row)) or f"`{row['test']}`"
    return f"| {row['what']} | {seen} | {_proof(row)} | {row.get('differs', '')} |"


def _places(row: Row) -> Iterator[str]:
    if "rule" in row:
        yield f"rule [{row['rule']}](rules/{row['rule']}.md)"
    if "page" in row:
        yield f"page, *{row['page']}*"
    if "json" in row:
        yield f"JSON, `{row['json']}`"
    if "command" in row:
        yield f"`advisor {' '.join(row['command'])}`"


def _proof(row: Row) -> str:
    if "test" in row:
        return f"`{row['test']}`"
    if "command" in row:
        return "the command"
    return row.get("recording") or ("its cases" if "rule" in row else "")
