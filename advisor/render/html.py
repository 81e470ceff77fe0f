"""A document as one HTML page that needs nothing else: no network, no fonts, and a policy that forbids both.

`picture`: where a run's step goes, as SVG or PNG that stands alone; its colours are the page's light ones.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from advisor import text
from advisor.errors import UsageError
from advisor.present import document as doc
from advisor.present.document import Article, Bars
from advisor.present.findings import WEB
from advisor.render.markdown import code_spans
from advisor.render.payload import Payload, embedded
from advisor.system.resources import reports_folder
from advisor.text import first_sentence, one_line
from advisor.vocabulary.kinds import DocumentKind
from advisor.vocabulary.parts import LOOKS, look, variable
from advisor.vocabulary.severities import GRADES

_ASSETS: Final[dict[DocumentKind, tuple[str, ...]]] = {
    "report": ("charts.js", "tables.js", "timeline.js", "flame.js"),
    "comparison": ("changes.css", "compare.css", "tables.js", "flame.js"),
    "week": ("changes.css", "fleet.css", "fleet.js"),
    "trials": (),
}
"""What a page has beside the style and the script of all pages."""
_LONGEST, _LONGEST_PROSE, _LONGEST_CODE = 400, 1500, 4000  # characters of one text: the whole of it is in the JSON
_FEW_RUNS: Final = 5  # in a cell of a notebook
_INTERVAL: Final = re.compile(r"\d[\d.]*\N{EN DASH}\d[\d.]*|GPU-(?:h|min|s)\b|--[a-z][a-z-]{0,30}")
_LONG_NAME: Final = re.compile(r"[\w/:.]{20,}")
_PART_OF_NAME: Final = re.compile(r"(?<=[_/:.])(?=[A-Za-z]{2})")
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect y='6' width='16' "
    "height='5' rx='2' fill='%23b9bfd0'/%3E%3Crect y='6' width='10' height='5' rx='2' fill='%233b4fd8'/%3E%3C/svg%3E"
)


def render(
    document: doc.Document,
    payloads: Mapping[str, Payload],
    drawings: Mapping[str, Mapping[str, str]],
    *,
    links: str | None = None,
) -> str:
    """The document as a page for any browser, light or dark, wide or narrow, on screen or on paper.

    `payloads` are what the scripts draw from, and `drawings` the charts by name as SVG, both by the id of an article.
    `links` is the folder or URL of the reports of runs; without it nothing is linked.
    """
    charts = {of: {name: Markup(svg) for name, svg in each.items()} for of, each in drawings.items()}  # noqa: S704 - as below
    data = {name: Markup(embedded(payload)) for name, payload in payloads.items()}  # noqa: S704 - escaped there
    assets = ("report.css", "report.js", *_ASSETS[document.kind])
    style = Markup().join([part_colours(), *(asset(name) for name in assets if name.endswith(".css"))])
    scripts = [asset(name) for name in assets if name.endswith(".js")]
    return (
        environment()
        .get_template("document.html")
        .render(
            document=document,
            payloads=data,
            charts=charts,
            links=links,
            style=style,
            scripts=scripts,
            policy=escape(
                f"default-src 'none'; style-src {_hash(style)}; script-src {' '.join(map(_hash, scripts))}; "
                "img-src data:; base-uri 'none'; form-action 'none'"
            ),
            icon=Markup(_ICON),  # noqa: S704 - our own constant
        )
    )


def fragment(document: doc.Document) -> str:
    """The verdicts and findings with bars, for a cell of a notebook: no script, and nothing that is loaded."""
    return environment().get_template("notebook.html").render(document=document, few=_FEW_RUNS)


@cache
def environment() -> Environment:
    """What fills our templates, with their filters; all values are escaped."""
    environment = Environment(
        loader=FileSystemLoader(reports_folder() / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "capital": text.capital,
        "code": _code,
        "colour": lambda part: f"var({variable(part)})",
        "grade": GRADES.__getitem__,
        "kind": lambda block: type(block).__name__,
        "level": lambda block: block.level.value,
        "lines": _lines,
        "link": lambda value: bool(WEB.fullmatch(value)),  # no medium can read it as anything else
        "points": lambda share: f"{100 * min(max(share, 0.0), 1.0):.2f}",
        "prose": _prose,
        "paint": lambda part: look(part).colour.light,  # a notebook's cell has no style of its own
        "percent": text.percent,
        "ms": text.ms,
    }
    return environment


@cache
def part_colours() -> Markup:
    """The variables of the parts' colours, for light and dark surroundings."""
    colours = {variable(code): each.colour for code, each in LOOKS.items()}
    lines = (f"  {name}: light-dark({colour.light}, {colour.dark});" for name, colour in colours.items())
    return Markup("\n".join((":root {", *lines, "}", "")))  # noqa: S704 - our own constants


@cache
def asset(name: str) -> Markup:
    """Style or script, as it stands in its element; the policy allows it by its hash."""
    return Markup((reports_folder() / "templates" / name).read_text("utf-8"))  # noqa: S704 - ships with the package


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _printable(value: object) -> object:
    """What a template prints for a value, before it is escaped."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return text.UNKNOWN if value is None else value
    return _together(text.shortened(text.plain(value), _LONGEST))


def _together(words: str) -> str:
    """The text with no line break between a number and its unit."""
    return text.UNIT_BLANK.sub("\N{NO-BREAK SPACE}", words)


def _prose(value: str) -> Markup:
    """Escaped text; its `code` spans as such."""
    spans = ((code, _unbroken(part)) for code, part in code_spans(_together(text.one_line(value, _LONGEST_PROSE))))
    return Markup().join(Markup("<code>{}</code>").format(part) if code else part for code, part in spans)


def _unbroken(words: str) -> Markup:
    """Escaped text whose intervals, units and options stay on one line, and whose long names break behind a part."""
    # a plain string: `sub` joins with the type of its subject, and Markup would escape the spans
    broken = _LONG_NAME.sub(lambda name: _PART_OF_NAME.sub("<wbr>", name[0]), str(escape(words)))
    return Markup(_INTERVAL.sub(r'<span class="interval">\g<0></span>', broken))  # noqa: S704 - digits and options alone


def _code(value: str) -> Markup:
    """An escaped name, with a chance to break a long one behind each of its parts."""
    parts = re.split(r"(?<=[_/.:#])(?=\w)", text.one_line(value, _LONGEST))
    return Markup("<wbr>").join(escape(part) for part in parts)


def _lines(value: str) -> Markup:
    """Escaped lines that keep their breaks and indentation; not a string, which `_printable` would cut short."""
    lines = text.shortened(text.plain(value).rstrip(), _LONGEST_CODE).splitlines(keepends=True)
    return Markup().join(Markup('<span class="line">{}</span>').format(line) for line in lines)


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
