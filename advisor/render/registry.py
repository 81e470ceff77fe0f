"""Every kind of output, registered here and nowhere else: its name, how names of its files end, and what draws it.

What draws one is imported when it is asked for: `advisor --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from advisor.errors import UsageError
from advisor.present import document_of

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.model.report import Report
    from advisor.model.trials import Trials
    from advisor.model.week import Week
    from advisor.present.document import Document
    from advisor.vocabulary.kinds import DocumentKind

    Value: TypeAlias = Report | Comparison | Week | Trials


@dataclass(frozen=True)
class Request:
    """What is to be drawn, and how.

    With `verbose` also what is behind the one screen. `links` is the folder or URL of the reports of runs, and `screen`
    what the terminal can show, as arguments of its renderer; empty for a file.
    """

    value: Value
    verbose: bool = True
    links: str | None = None
    screen: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def document(self) -> Document:
        """The value as it is shown."""
        return document_of(self.value)


class Renderer(NamedTuple):
    """A kind of output, and what it can show."""

    name: str
    suffixes: tuple[str, ...]
    draw: Callable[[Request], str | bytes]
    shows: tuple[DocumentKind, ...] = ("report", "comparison", "week", "trials")
    is_text: bool = True


def draw(request: Request, name: str) -> bytes:
    """What a file of this kind of output holds."""
    content = RENDERERS[name].draw(request)
    return content.encode() if isinstance(content, str) else content


def kinds(kind: DocumentKind, *, text_only: bool = False) -> tuple[str, ...]:
    """The names of the kinds of output that can show this."""
    return tuple(
        name for name, renderer in RENDERERS.items() if kind in renderer.shows and (renderer.is_text or not text_only)
    )


def _module(name: str) -> ModuleType:
    return import_module(f"advisor.render.{name}")


def _html(request: Request) -> str:
    value, html = request.value, _module("html")
    page: str = html.render(request.document, html.payloads(value), html.drawings(value), links=request.links)
    return page


def _picture(request: Request, kind: str) -> bytes:
    if not request.document.articles:
        raise UsageError("there is no run to draw a picture of")
    picture: bytes = _module("html").picture(request.document.articles[0], kind)
    return picture


RENDERERS: Final = {
    renderer.name: renderer
    for renderer in (
        Renderer(
            "terminal", (".txt",), lambda of: _module("terminal").render(of.document, verbose=of.verbose, **of.screen)
        ),
        Renderer("markdown", (".md",), lambda of: _module("markdown").render(of.document, links=of.links)),
        Renderer("json", (".json",), lambda of: _module("json").render(of.value)),
        Renderer("brief", (), lambda of: _module("brief").render(of.value), shows=("report", "comparison")),
        Renderer("html", (".html", ".htm"), _html),
        Renderer("sarif", (".sarif",), lambda of: _module("sarif").render(of.document), shows=("report",)),
        Renderer("ranks", ("ranks.csv",), lambda of: _module("csv").ranks(of.value), shows=("report",)),
        Renderer("csv", (".csv",), lambda of: _module("csv").kernels(of.value), shows=("report",)),
        Renderer("svg", (".svg",), lambda of: _picture(of, "svg"), shows=("report",), is_text=False),
        Renderer("png", (".png",), lambda of: _picture(of, "png"), shows=("report",), is_text=False),
    )
}
"""Kinds of output by name."""
