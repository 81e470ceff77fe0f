"""The whole of `advisor comment`: what a saved report says goes to the pull request that this job runs for."""

import datetime as dt
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from advisor.errors import ReadError, UsageError
from advisor.inputs.storage import head_of
from advisor.model.comparison import Comparison
from advisor.model.comparison import fail_on as comparison_fails_on
from advisor.model.trials import Trials
from advisor.present import document_of
from advisor.pull_request.comment import MOST, Draft, post
from advisor.pull_request.host import NAME, Patience, Refused, Seal, Target, within
from advisor.pull_request.hosts import HOSTS, connected
from advisor.pull_request.source import Pointer, annotated, pointers, pointers_of_changes
from advisor.render import json as report_json
from advisor.render import markdown
from advisor.text import count, one_line, plain
from advisor.vocabulary.severities import FAIL_ON

if TYPE_CHECKING:
    from advisor.pull_request.client import Repository

_MOST_BYTES: Final = 256 << 20
_TAGS: Final = re.compile(r"<[^>]*>|^#+|[*`]")
_TOKEN: Final = re.compile(r"[!-~]+")


class Message(NamedTuple):
    """A verdict and the Markdown behind it."""

    verdict: str
    markdown: Callable[[int], str]  # within so many characters
    failed: bool | None = None  # Markdown does not tell
    findings: tuple[Pointer, ...] = ()  # they name places in the source


def read(path: Path, fail_on: list[str], *, strict: bool = False) -> Message:
    """The message in a file: a `.json` that `advisor check` or `advisor compare` wrote, or a `.md`; else a ReadError.

    `fail_on` is what counts as failed, in the words of the command that wrote the file; with `strict`, a comparison
    that can tell nothing does too. A UsageError where it is none of the words, or is asked of Markdown.
    """
    ending = path.suffix.lower()
    if ending not in {".json", ".md"}:
        raise ReadError("is neither .json nor .md; give what `advisor check -o report.json` wrote", path)
    if ending == ".md":
        if fail_on or strict:
            option = "--fail-on" if fail_on else "--strict"
            raise UsageError(f"{option}: {path} is Markdown, which tells no severity; give the JSON instead")
        try:
            text = plain(head_of(str(path), _MOST_BYTES).decode())
        except UnicodeDecodeError:
            raise ReadError("is no UTF-8 text; give what `advisor check -o report.md` wrote", path) from None
        lines = (html.unescape(_TAGS.sub("", line)).strip() for line in text[:10_000].splitlines())
        return Message(one_line(next(filter(None, lines), "no verdict"), 300), lambda _: text)
    saved = report_json.read(str(path))
    if isinstance(saved, Trials):
        raise ReadError("is of trials, which no pull request is about; give the JSON of a check", path)
    drawing = document_of(saved)
    verdict = drawing.overview if drawing.is_several else drawing.title
    if isinstance(saved, Comparison):
        failed = saved.exit_code(comparison_fails_on(fail_on or ["slower"]), strict=strict)
        places = pointers_of_changes(saved.findings)
    else:
        level = next((known for known in FAIL_ON if known == (fail_on or ["never"])[-1]), None)
        if level is None:
            raise UsageError(f"--fail-on {fail_on[-1]}: for a report, one of {', '.join(FAIL_ON)}")
        failed, places = saved.exit_code(level), pointers(of for run in saved.runs for of in run.findings)

    def render(most: int) -> str:  # without what is folded: the full report has that
        return markdown.render(drawing, most=min(most, markdown.MOST_CHARACTERS), folds=False)

    return Message(verdict, render, bool(failed), places)


RECIPE: Final = "docs/pull-requests.md, 'Pull requests from forks'"
_MOST_SUMMARY: Final = 60_000


@dataclass(frozen=True)
class Order:
    """What to post, and under which key."""

    key: str = "default"
    comment: bool = True
    check_run: bool = False
    status: bool = False
    root: Path = Path()  # the checkout that annotations refer to


class Notice(NamedTuple):
    """One line about what was done."""

    line: str
    hint: bool = False  # it was not, and the line says what to do


def dry_run(message: Message, target: Target, order: Order) -> str:
    """The comment as it would be posted for the first time."""
    return _draft(message, target, order).body(MOST, dt.datetime.now(dt.UTC).date())


def deliver(message: Message, target: Target, order: Order, patience: Patience | None = None) -> Iterator[Notice]:
    """Post the message; what a fork's token may not do ends in a hint, not in an error.

    A HostError where the host refuses, or does not answer; a UsageError where there is no token, no such pull request,
    or something is asked for that the host or message does not have.
    """
    sealed = order.status or order.check_run
    if sealed and message.failed is None:
        raise UsageError(
            "--status and --check-run need the JSON that `check` or `compare` wrote; Markdown does not tell"
        )
    if sealed and not target.commit:
        raise UsageError("--status and --check-run need a commit; give --commit")
    if not target.repo:
        every = " nor ".join(host.ci for host in HOSTS.values())
        raise UsageError(f"neither {every} is to be seen here; give --host, --repo and --pr")
    if order.comment and target.number is None and target.branch is None and target.event is None:
        raise UsageError("no event of a pull request is to be seen here; give --pr NUMBER")
    if order.comment and target.number is None and target.branch is None:
        yield Notice(f"no comment: {target.event} is no event of a pull request")
        order = replace(order, comment=False)
    if not (order.comment or order.status or order.check_run):
        return
    if not target.token:
        if not target.fork:
            raise UsageError(f"no token: set {HOSTS[target.kind].token}, or look at the comment with --dry-run")
        yield _refused("a fork's job gets no token", target)
        return
    if not _TOKEN.fullmatch(token := target.token.strip()):  # a header cannot hold it, and its error would print it
        raise UsageError(f"{HOSTS[target.kind].token} is no token: it has blanks or control characters within")
    patience = patience or Patience()
    host = connected(target, token, patience)
    yield from within(patience.total_s, lambda: _acts(host, message, target, order))


def _acts(host: "Repository", message: Message, target: Target, order: Order) -> Iterator[Notice]:
    refusals: list[str] = []
    for act, is_due in ((_comment, order.comment), (_status, order.status), (_check_run, order.check_run)):
        try:
            if is_due:
                yield act(host, message, target, order)
        except Refused as error:
            refusals.append(str(error))
    if refusals and not target.fork:
        raise Refused(_refused("; ".join(refusals), target).line)
    yield from (_refused(why, target) for why in refusals)


def _comment(host: "Repository", message: Message, target: Target, order: Order) -> Notice:
    number = target.number or (host.pull_of(target.branch) if target.branch else None)
    if number is None:
        return Notice("no comment: no open pull request has its head at that commit; a later push has a run of its own")
    outcome, note = post(host.thread(number), _draft(message, target, order), dt.datetime.now(dt.UTC).date())
    return Notice(f"comment on {target.repo} {number}: {outcome} {one_line(note.url, 300)}".rstrip())


def _status(host: "Repository", message: Message, target: Target, order: Order) -> Notice:
    host.set_status(seal := _seal(message, target, order))
    return Notice(f"status on {seal.commit}: {'failed' if seal.failed else 'passed'}")


def _check_run(host: "Repository", message: Message, target: Target, order: Order) -> Notice:
    seal, remarks = _seal(message, target, order), annotated(message.findings, order.root)
    host.add_check_run(seal, message.markdown(_MOST_SUMMARY), remarks)
    return Notice(f"check run on {seal.commit}: {count(len(remarks), 'annotation')}")


def _draft(message: Message, target: Target, order: Order) -> Draft:
    return Draft(message.verdict, message.markdown, target.commit, target.link, order.key)


def _seal(message: Message, target: Target, order: Order) -> Seal:
    name = NAME if order.key == Draft.key else f"{NAME} {order.key}"
    return Seal(target.commit or "", message.verdict, failed=bool(message.failed), link=target.link, name=name)


def _refused(why: str, target: Target) -> Notice:
    of_token = f"The token may not: give it {HOSTS[target.kind].rights}; for forks see {RECIPE}"
    of_fork = f"The change comes from a fork, whose token may only read: see {RECIPE}"
    return Notice(f"not posted: {why}. {of_fork if target.fork else of_token}", hint=True)
