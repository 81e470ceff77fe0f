"""Findings that have a source line as SARIF 2.1.0, which code hosts show beside the code."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from advisor.present.document import Document, Finding, Findings
from advisor.text import one_line
from advisor.vocabulary.severities import GRADES

_LONGEST: Final = 1000


def render(document: Document) -> str:
    """The findings that point at a line of the user's code, one result per finding and line."""
    blocks = [block for article in document.articles for section in article.sections for block in section.blocks]
    findings = [finding for block in blocks if isinstance(block, Findings) for finding in block.findings]
    results = [result for finding in findings for result in _results(finding)]
    by_rule = {finding.rule: finding for finding in findings}
    used = dict.fromkeys(result["ruleId"] for result in results)
    rules = [
        {
            "id": rule,
            "shortDescription": {"text": _text(by_rule[rule].title)},
            "fullDescription": {"text": _text(by_rule[rule].why)},
        }
        for rule in used
    ]
    tool = {"name": "gpu-advisor", "version": document.version, "rules": rules}
    sarif = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": tool}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(sarif, indent=1, allow_nan=False) + "\n"


def _results(finding: Finding) -> Iterator[dict[str, Any]]:
    saving = f" {finding.saving.sentence}" if finding.saving else ""
    for line in finding.lines:
        uri = f"{'file://' if line.path.startswith('/') else ''}{quote(line.path)}"  # else relative to the repository
        region = {"artifactLocation": {"uri": uri}, "region": {"startLine": line.line}}
        yield {
            "ruleId": finding.rule,
            "level": GRADES[finding.severity].sarif,
            "message": {"text": _text(f"{finding.title}. {finding.says}{saving}")},
            "locations": [{"physicalLocation": region}],
        }


def _text(text: str) -> str:
    """On one line, without what a viewer would read as a link (SARIF 2.1.0, 3.11.6)."""
    return re.sub(r"[\[\]\\]", r"\\\g<0>", one_line(text, _LONGEST))
