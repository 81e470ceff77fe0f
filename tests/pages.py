"""The pages of the sample reports, each rendered once in a process."""

from __future__ import annotations

from functools import cache

from advisor.render import html
from tests.render_samples import SAMPLES


@cache
def page(sample: str) -> str:
    """The HTML of a sample."""
    return html.render(SAMPLES[sample])
