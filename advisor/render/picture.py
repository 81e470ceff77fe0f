"""The picture of where a run's step goes, as SVG or PNG, that stands alone: its colours are the page's light ones."""

import re
from functools import cache

from advisor.errors import UsageError
from advisor.present.document import Article, Bars
from advisor.render.html import asset, environment
from advisor.text import first_sentence, one_line


def picture(article: Article, kind: str) -> bytes:
    """Where a step of the run goes as a picture, `svg` or `png`, for Markdown and mail.

    Raises:
        UsageError: what draws PNG is not installed.
    """
    # The title of the first section with bars, and the segments of the first.
    every = ((section.title, block) for section in article.sections for block in section.blocks)
    bars = ((title, block.bars[0].segments) for title, block in every if isinstance(block, Bars) and block.bars)
    where, segments = next(bars, ("", ()))
    svg = (
        environment()
        .get_template("picture.svg")
        .render(
            title=one_line(first_sentence(article.headline), 90),
            subtitle=f"{one_line(article.name, 60)}: {where[:1].lower()}{where[1:]}",
            segments=segments,
            colours=_light(),
        )
    )
    if kind == "svg":
        return svg.encode()
    try:
        from resvg_py import svg_to_bytes  # noqa: PLC0415 - only pictures in pixels need it
    except ImportError:
        raise UsageError("PNG files need one more package: pip install 'gpu-advisor[pictures]'") from None
    return bytes(svg_to_bytes(svg_string=svg, zoom=2))


@cache
def _light() -> dict[str, str]:
    """The page's colours for light surroundings, as its style gives them."""
    return dict(re.findall(r"(--[\w-]+): light-dark\((#[0-9a-f]{6}),", asset("report.css")))
