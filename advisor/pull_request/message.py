"""What a file says: a report or a comparison as JSON, drawn and escaped here, or Markdown that is ready."""

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from advisor.errors import ReadError, UsageError
from advisor.inputs.storage import head_of
from advisor.model.comparison import Comparison
from advisor.model.comparison import fail_on as comparison_fails_on
from advisor.model.report import Report
from advisor.model.trials import Trials
from advisor.present import document_of
from advisor.pull_request.source import Pointer, pointers, pointers_of_changes
from advisor.render import json as report_json
from advisor.render import markdown
from advisor.text import one_line, plain
from advisor.vocabulary.severities import FAIL_ON

_MOST_BYTES: Final = 256 << 20
_ENDINGS: Final = (".json", ".md")
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
    """The message in a file: a `.json` that `advisor check` or `advisor compare` wrote, or a `.md`.

    `fail_on` is what counts as failed, in the words of the command that wrote the file; with `strict`, a comparison
    that can tell nothing does too.

    Raises:
        ReadError: it is none of these.
        UsageError: `fail_on` is none of the words, or something is asked of Markdown.
    """
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        raise ReadError("is neither .json nor .md; give what `advisor check -o report.json` wrote", path)
    if ending == ".md":
        if fail_on or strict:
            option = "--fail-on" if fail_on else "--strict"
            raise UsageError(f"{option}: {path} is Markdown, which tells no severity; give the JSON instead")
        text = _markdown(path)
        return Message(_first_line(text), lambda _: text)
    saved = report_json.read(str(path))
    if isinstance(saved, Trials):
        raise ReadError("is of trials, which no pull request is about; give the JSON of a check", path)
    if isinstance(saved, Comparison):
        return _of_comparison(saved, fail_on, strict=strict)
    return _of_report(saved, fail_on)


def _of_report(report: Report, fail_on: list[str]) -> Message:
    level = next((known for known in FAIL_ON if known == (fail_on or ["never"])[-1]), None)
    if level is None:
        raise UsageError(f"--fail-on {fail_on[-1]}: for a report, one of {', '.join(FAIL_ON)}")
    drawing = document_of(report)
    verdict = drawing.overview if drawing.is_several else drawing.title
    findings = pointers(finding for run in report.runs for finding in run.findings)
    return Message(verdict, _within_limits(partial(markdown.render, drawing)), bool(report.exit_code(level)), findings)


def _of_comparison(comparison: Comparison, fail_on: list[str], *, strict: bool) -> Message:
    failed = bool(comparison.exit_code(comparison_fails_on(fail_on or ["slower"]), strict=strict))
    drawing = document_of(comparison)
    lines = pointers_of_changes(comparison.findings)
    return Message(drawing.title, _within_limits(partial(markdown.render, drawing)), failed, lines)


def _within_limits(render: Callable[..., str]) -> Callable[[int], str]:
    """The renderer within the host's limit and its own, without what is folded: the full report has that."""
    return lambda most: render(most=min(most, markdown.MOST_CHARACTERS), folds=False)


def _markdown(path: Path) -> str:
    try:
        return plain(head_of(str(path), _MOST_BYTES).decode())
    except UnicodeDecodeError:
        raise ReadError("is no UTF-8 text; give what `advisor check -o report.md` wrote", path) from None


def _first_line(text: str) -> str:
    lines = (html.unescape(_TAGS.sub("", line)).strip() for line in text[:10_000].splitlines())
    return one_line(next(filter(None, lines), _NO_VERDICT), 300)
