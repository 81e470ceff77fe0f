"""What a file says: a report or a comparison as JSON, drawn and escaped here, or Markdown that is ready."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from advisor.errors import ReadError, UsageError
from advisor.model.comparison import Comparison
from advisor.model.comparison import fail_on as comparison_fails_on
from advisor.model.report import Report
from advisor.present import document_of
from advisor.pull_request.source import Pointer, pointers, pointers_of_changes
from advisor.render import markdown
from advisor.render.json import load, load_comparison
from advisor.text import one_line, plain

_MOST_BYTES: Final = 256 << 20
_KINDS: Final = (".json", ".md")
_LEVELS: Final = ("high", "medium", "low", "never")
_TAGS: Final = re.compile(r"<[^>]*>|^#+|[*`]")
_NO_VERDICT: Final = "no verdict"


@dataclass(frozen=True)
class Message:
    """A verdict and the Markdown behind it, within so many characters.

    `failed` is None for Markdown, which does not tell; `findings` name places in the source.
    """

    verdict: str
    markdown: Callable[[int], str]
    failed: bool | None = None
    findings: tuple[Pointer, ...] = ()


def read(path: Path, fail_on: list[str], *, strict: bool = False) -> Message:
    """The message in a file.

    Args:
        path: A `.json` that `advisor check` or `advisor compare` wrote, or a `.md`.
        fail_on: What counts as failed, in the words of the command that wrote the file; by default as there.
        strict: Whether a comparison that can tell nothing counts as failed too; of a report it asks nothing.

    Raises:
        ReadError: it is none of these.
        UsageError: `fail_on` is none of the words, or something is asked of Markdown.
    """
    kind = path.suffix.lower()
    if kind not in _KINDS:
        raise ReadError(f"{path}: is neither .json nor .md; give what `advisor check -o report.json` wrote")
    text = _text(path)
    if kind == ".md":
        if fail_on or strict:
            asked = "--fail-on" if fail_on else "--strict"
            raise UsageError(f"{asked}: {path} is Markdown, which tells no severity; give the JSON instead")
        return Message(_first_line(text), lambda _: text)
    if _is_comparison(text, path):
        return _of_comparison(load_comparison(text, str(path)), fail_on, strict=strict)
    return _of_report(load(text, str(path)), fail_on)


def _of_report(report: Report, fail_on: list[str]) -> Message:
    level = fail_on[-1] if fail_on else "never"
    for known in _LEVELS:
        if level == known:
            shown = document_of(report)
            verdict = shown.overview if shown.is_several else shown.title
            findings = pointers(finding for run in report.runs for finding in run.findings)
            return Message(verdict, _drawn(partial(markdown.render, shown)), bool(report.exit_code(known)), findings)
    raise UsageError(f"--fail-on {level}: for a report, one of {', '.join(_LEVELS)}")


def _of_comparison(comparison: Comparison, fail_on: list[str], *, strict: bool) -> Message:
    failed = bool(comparison.exit_code(comparison_fails_on(fail_on or ["slower"]), strict=strict))
    shown = document_of(comparison)
    lines = pointers_of_changes(comparison.findings)
    return Message(shown.title, _drawn(partial(markdown.render, shown)), failed, lines)


def _drawn(render: Callable[..., str]) -> Callable[[int], str]:
    """The renderer within the host's limit and its own."""
    return lambda most: render(most=min(most, markdown.MOST_CHARACTERS))


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ReadError(f"{path}: larger than {_MOST_BYTES >> 20} MiB; no report is")
        return plain(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise ReadError(f"{path}: is no UTF-8 text; give what `advisor check -o report.json` wrote") from None
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror}; `advisor check -o report.json` writes one") from None


def _is_comparison(text: str, path: Path) -> bool:
    """Whether the file says so, or has a verdict as those of version 1 have."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        said = one_line(str(error), 100)
        raise ReadError(f"{path}: is no JSON ({said}); `advisor check -o report.json` writes a report") from None
    return isinstance(document, dict) and (document.get("kind") == "comparison" or "verdict" in document)


def _first_line(text: str) -> str:
    lines = (html.unescape(_TAGS.sub("", line)).strip() for line in text[:10_000].splitlines())
    return one_line(next(filter(None, lines), _NO_VERDICT), 300)
