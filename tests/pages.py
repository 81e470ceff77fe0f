"""The pages of the sample reports, each rendered once in a process."""

from __future__ import annotations

from functools import cache

from tests.render_samples import HOSTILE, SAMPLES, drawn
from tests.render_samples import hostile as hostile_report

TOGETHER = " ".join(text[:1000] for text in HOSTILE.values())
_SAMPLE = {text: f"hostile-{name}" for name, text in HOSTILE.items()}


@cache
def page(sample: str) -> str:
    """The HTML of a sample, or of all hostile ones together."""
    return drawn(hostile_report(TOGETHER) if sample == "hostile" else SAMPLES[sample], "html")


@cache
def hostile(text: str) -> str:
    """The HTML of the report with this text in every field."""
    return page(_SAMPLE[text]) if text in _SAMPLE else drawn(hostile_report(text), "html")
