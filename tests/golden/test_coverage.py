"""The page of what other tools show: each row is seen on its recording."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests import profiles
from tests.command import advisor
from tests.effort import soak

SHARED = profiles.ROOT.parent / "shared/traces"
PLACES = ("rule", "page", "json", "command", "test", "absent")
SIMULATED = "simulated "

sys.path.append(str(profiles.ROOT / "docs"))
from coverage_page import coverage_page, tools  # noqa: E402 - the scripts of docs/ are no package

ROWS = [row for tool in tools() for row in tool["rows"]]
BY_RECORDING = defaultdict(list)
for _row in ROWS:
    if "recording" in _row:
        BY_RECORDING[_row["recording"]].append(_row)


def path_of(recording: str, scratch: Path) -> Path:
    if recording.startswith(SIMULATED):
        profiles.case(recording.removeprefix(SIMULATED)).save(scratch)
        return scratch
    is_public = "/" in recording
    path = SHARED / recording if is_public else profiles.ROOT / "fixtures" / recording
    if is_public and not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def lacks(row: dict[str, Any], runs: list[dict[str, Any]], page: str) -> list[str]:
    """What the row promises and the report does not hold."""
    missing = []
    findings = [finding for run in runs for finding in run["findings"]]
    if "rule" in row and all(row["rule"] != part["rule"] for f in findings for part in (f, *f["symptoms"])):
        missing.append(f"rule {row['rule']}")
    if "page" in row and not any(mark in page for mark in (f'id="run-1-{row["page"]}"', f">{row['page']}<")):
        missing.append(f"page {row['page']}")
    if "json" in row:
        table, column = row["json"].split(".")
        if all(line.get(column) is None for run in runs for line in run["metrics"].get(table, ())):
            missing.append(f"json {row['json']}")
    return missing


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize(
    "recording", soak(BY_RECORDING, unless=lambda name: profiles.is_common(name) and len(BY_RECORDING[name]) > 5)
)
def test_what_the_page_says_is_seen_is_seen(recording: str, tmp_path: Path):
    path = path_of(recording, tmp_path / "recording")
    done = advisor("check", path, "-o", "report.json", "-o", "report.html", "-f", "brief", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "report.json").read_text("utf-8"))["runs"]
    page = (tmp_path / "report.html").read_text("utf-8")
    missing = {row["what"]: lacks(row, runs, page) for row in BY_RECORDING[recording]}
    assert not {what: parts for what, parts in missing.items() if parts}


def test_commands_print_what_the_page_says():
    shown: dict[tuple[str, ...], str] = {}
    for row in ROWS:
        if words := tuple(row.get("command", ())):
            if words not in shown:
                shown[words] = advisor(*words, cwd=profiles.ROOT).stdout
            assert row["prints"] in shown[words], row["what"]


def test_each_row_says_where_it_is_seen_or_why_not():
    for row in ROWS:
        assert any(place in row for place in PLACES), row["what"]
        assert ("page" in row or "json" in row) <= ("recording" in row), row["what"]
        assert (profiles.ROOT / row.get("test", ".")).exists(), row["what"]
        if "rule" in row:
            rule = profiles.book()[row["rule"]]
            assert any(case.fires for case in rule.cases.values()), row["what"]
    assert len({(tool["tool"], row["what"]) for tool in tools() for row in tool["rows"]}) == len(ROWS)


def test_the_page_has_every_row():
    assert coverage_page().count("\n| ") == len(ROWS) + 2 * len(tools())
