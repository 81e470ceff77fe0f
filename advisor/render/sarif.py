"""Findings that have a source line as SARIF 2.1.0, which code hosts show beside the code."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from advisor.model.report import Finding, Report, Run, Severity
from advisor.render import words
from advisor.text import one_line

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final[dict[Severity, str]] = {"high": "error", "medium": "warning", "low": "note"}
_FRAME: Final = re.compile(r"^\s*([^\s():;<>|?*]+\.py)\((\d{1,9})\)")
_LIBRARIES: Final = re.compile(r"(^|/)(site-packages|dist-packages|torch|torchvision|lib/python[\d.]*)/|^<")
# PyTorch leaves out the folder that a library is installed in
_BARE: Final = sys.stdlib_module_names | {
    *("accelerate", "deepspeed", "diffusers", "jax", "keras", "lightning", "megatron", "numpy", "pytorch_lightning"),
    *("tensorflow", "timm", "tqdm", "transformers", "triton", "vllm"),
}
_LONGEST: Final = 1000


def render(report: Report) -> str:
    """The report's findings that point at a line of the user's code, one result per finding and line."""
    results = [result for run in report.runs for finding in run.findings for result in _results(run, finding)]
    named = {f.rule: f for run in report.runs for f in run.findings}
    used = dict.fromkeys(result["ruleId"] for result in results)
    tool = {
        "name": "gpu-advisor",
        "version": report.advisor_version,
        "rules": [_rule(named[rule]) for rule in used],
    }
    sarif = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": tool}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(sarif, indent=1, allow_nan=False) + "\n"


def lines(finding: Finding) -> list[tuple[str, int]]:
    """Files and lines of the user's code that the finding's places lie in, each once: the innermost frame of each."""
    found = (_own(place.stack) for place in finding.where if place.stack)
    return list(dict.fromkeys(line for line in found if line is not None))


def _own(stack: str) -> tuple[str, int] | None:
    """The innermost frame outside of libraries; frames are separated by `;` or new lines, innermost first."""
    for frame in re.split(r"[;\n]", stack):
        match = _FRAME.match(frame)
        if match is None or not int(match[2]):
            continue
        path = match[1].replace("\\", "/")
        if not _LIBRARIES.search(path) and path.partition("/")[0].removesuffix(".py") not in _BARE:
            return path, int(match[2])
    return None


def _results(run: Run, finding: Finding) -> Iterator[dict[str, Any]]:
    saving = words.saving(finding, run.source.steps)
    worth = f" A fix gives back {saving}." if saving else ""
    for path, line in lines(finding):
        yield {
            "ruleId": finding.rule,
            "level": _LEVELS[finding.severity],
            "message": {"text": one_line(f"{finding.title}. {finding.says}{worth}", _LONGEST)},
            "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": _uri(path)}, "region": {"startLine": line}}}
            ],
        }


def _uri(path: str) -> str:
    """A path as a reference: absolute ones as `file:`, others as they stand, relative to the repository."""
    safe = "".join(c if c.isalnum() or c in "/._-~" else "".join(f"%{b:02X}" for b in c.encode()) for c in path)
    return f"file://{safe}" if path.startswith("/") else safe


def _rule(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.rule,
        "shortDescription": {"text": one_line(finding.title, _LONGEST)},
        "fullDescription": {"text": one_line(finding.why, _LONGEST)},
    }
