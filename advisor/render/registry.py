"""Every kind of output, registered here and nowhere else: its name, the suffixes of its files, and what draws it.

What draws one is imported when it is asked for: `advisor --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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

    Attributes:
        value: A report, a comparison, a week or trials.
        verbose: Also what is behind the one screen.
        links: Where the reports of runs lie, as a URL or folder; None where nothing is linked.
        screen: What the terminal can show, as arguments of its renderer; empty for a file.
    """

    value: Value
    verbose: bool = True
    links: str | None = None
    screen: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def document(self) -> Document:
        """The value as it is shown."""
        from advisor.present import document_of  # noqa: PLC0415 - see above, as all that follow

        return document_of(self.value)


@dataclass(frozen=True, slots=True)
class Renderer:
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


def _terminal(request: Request) -> str:
    from advisor.render.terminal import render  # noqa: PLC0415

    return render(request.document, verbose=request.verbose, **request.screen)


def _markdown(request: Request) -> str:
    from advisor.render.markdown import render  # noqa: PLC0415

    return render(request.document, links=request.links)


def _json(request: Request) -> str:
    from advisor.render.json import render  # noqa: PLC0415

    return render(request.value)


def _brief(request: Request) -> str:
    from advisor.render.brief import render  # noqa: PLC0415

    assert request.value.kind in {"report", "comparison"}  # noqa: S101 - `shows` says so
    return render(request.value)


def _html(request: Request) -> str:
    from advisor.render.html import render  # noqa: PLC0415
    from advisor.render.payload import drawings, payloads  # noqa: PLC0415

    value = request.value
    return render(request.document, payloads(value), drawings(value), links=request.links)


def _sarif(request: Request) -> str:
    from advisor.render.sarif import render  # noqa: PLC0415

    return render(request.document)


def _csv(request: Request) -> str:
    from advisor.render.csv import render  # noqa: PLC0415

    assert request.value.kind == "report"  # noqa: S101 - `shows` says so
    return render(request.value)


def _svg(request: Request) -> bytes:
    return _picture(request, "svg")


def _png(request: Request) -> bytes:
    return _picture(request, "png")


def _picture(request: Request, kind: str) -> bytes:
    from advisor.errors import UsageError  # noqa: PLC0415
    from advisor.render.picture import picture  # noqa: PLC0415

    if not request.document.articles:
        raise UsageError("there is no run to draw a picture of")
    return picture(request.document.articles[0], kind)


RENDERERS: Final = {
    renderer.name: renderer
    for renderer in (
        Renderer("terminal", (".txt",), _terminal),
        Renderer("markdown", (".md",), _markdown),
        Renderer("json", (".json",), _json),
        Renderer("brief", (), _brief, shows=("report", "comparison")),
        Renderer("html", (".html", ".htm"), _html),
        Renderer("sarif", (".sarif",), _sarif, shows=("report",)),
        Renderer("csv", (".csv",), _csv, shows=("report",)),
        Renderer("svg", (".svg",), _svg, shows=("report",), is_text=False),
        Renderer("png", (".png",), _png, shows=("report",), is_text=False),
    )
}
"""Kinds of output by name."""
