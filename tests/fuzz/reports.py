"""Saved reports and comparisons that anybody may have changed: an error of one line, or a page in every form."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from advisor.render.json import read, render
from advisor.render.registry import Request, draw, kinds
from tests.comparisons import slower
from tests.fuzz.trees import changed, spoilt
from tests.render_samples import SAMPLES


@cache
def _saved() -> tuple[str, ...]:
    return tuple(map(render, (SAMPLES["several"], SAMPLES["tensorflow"], SAMPLES["many-workers"], slower())))


def case(random: Random, folder: Path) -> Path:
    """Writes a report with values, names or bytes changed."""
    text, path = random.choice(_saved()), folder / "report.json"
    if random.random() < 0.1:
        path.write_bytes(spoilt(text.encode(), random))
        return path
    document = json.loads(text)
    part = _part(document, random)
    part[:] = changed(part, random) if random.random() < 0.9 else []
    path.write_text(json.dumps(document, default=repr), "utf-8", "surrogatepass")
    return path


def _part(document: dict[str, Any], random: Random) -> list[Any]:
    """A list of the document: that of its runs, or of a table or of findings of one."""
    runs = document.get("runs", [[*document.values()]])
    run = random.choice(runs)
    tables = [*run["metrics"].values(), run["findings"], run["not_evaluable"]] if isinstance(run, dict) else runs
    return random.choice([runs, *(table for table in tables if table)])


def check(path: Path) -> None:
    """What `advisor show` does with it; a chart of what makes no sense says that it was not drawn."""
    os.environ.pop("ADVISOR_DEBUG", None)  # which tells of such charts
    request = Request(read(str(path)))
    for kind in kinds(request.document.kind, text_only=True):
        draw(request, kind)
