"""The picture of where a run's step goes, as SVG or PNG, that stands alone: its colours are the page's light ones."""

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Final

from advisor.errors import UsageError
from advisor.present.document import Article, Bars, Segment
from advisor.system.resources import reports_folder
from advisor.text import first_sentence, one_line
from advisor.vocabulary.parts import look

_WIDTH: Final = 720  # pixels


def picture(article: Article, kind: str) -> bytes:
    """Where a step of the run goes as a picture, `svg` or `png`, for Markdown and mail.

    Raises:
        UsageError: what draws PNG is not installed.
    """
    svg = _alone(article)
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
    style = (reports_folder() / "templates" / "report.css").read_text("utf-8")
    return dict(re.findall(r"(--[\w-]+): light-dark\((#[0-9a-f]{6}),", style))


def _alone(article: Article) -> str:
    """The first bar with a legend below it, on white."""
    where, segments = _first_bar(article)
    paper, ink, quiet = (_light()[name] for name in ("--paper", "--ink", "--quiet"))
    rows = -(-len(segments) // _COLUMNS)
    height = 128 + 22 * rows
    title = one_line(first_sentence(article.headline), 90)
    subtitle = f"{one_line(article.name, 60)}: {where[:1].lower()}{where[1:]}"
    font = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, Liberation Sans, sans-serif"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 40}" height="{height}" {font} fill="{ink}">',
        f'<rect width="100%" height="100%" fill="{paper}"/>',
        f'<text x="20" y="32" font-size="16" font-weight="600">{escape(title)}</text>',
        f'<text x="20" y="52" font-size="13" fill="{quiet}">{escape(subtitle)}</text>',
        *(
            f'<rect x="{20 + _WIDTH * s.start:.1f}" y="68" width="{_WIDTH * s.share:.1f}" height="36" '
            f'fill="{look(s.part).colour.light}" stroke="{paper}"/>'
            for s in segments
        ),
        *(_legend(at, segment, quiet) for at, segment in enumerate(segments)),
        "</svg>\n",
    ]
    return "\n".join(lines)


_COLUMNS: Final = 3


def _legend(at: int, segment: Segment, quiet: str) -> str:
    x, y = 20 + _WIDTH / _COLUMNS * (at % _COLUMNS), 128 + 22 * (at // _COLUMNS)
    words = escape(f"{segment.label}  {', '.join(filter(None, (segment.value, segment.time)))}")
    colour = look(segment.part).colour.light
    return (
        f'<rect x="{x:g}" y="{y - 10}" width="11" height="11" fill="{colour}"/>'
        f'<text x="{x + 17:g}" y="{y}" font-size="12.5" fill="{quiet}">{words}</text>'
    )


def _first_bar(article: Article) -> tuple[str, Sequence[Segment]]:
    """The title of the first section with bars, and the segments of the first."""
    every = ((section.title, block) for section in article.sections for block in section.blocks)
    bars = ((title, block.bars[0].segments) for title, block in every if isinstance(block, Bars) and block.bars)
    return next(bars, ("", ()))
