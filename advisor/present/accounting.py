"""The accounting in words: how much of the step is useful work, and what becomes of the rest."""

from __future__ import annotations

from typing import Final

from advisor.model.report import Accounting, Part, Run
from advisor.present import document as doc
from advisor.text import ms, percent
from advisor.vocabulary import HEALTHY_SHARE, PARTS, part_words

_FEW: Final = 4  # losses in a sentence
_WORTH_A_WORD: Final = 0.01  # of the step
_NUMBERS: Final = (doc.Head("share", is_number=True), doc.Head("time", is_number=True))


def accounting(run: Run) -> tuple[doc.Block, ...]:
    """One line for the screen, and all parts behind it."""
    known = run.accounting
    if known is None:
        return ()
    what = doc.Head(f"part of the {'step' if run.source.steps.marked else 'recording'}")
    heads = (what, *_NUMBERS, doc.Head("finding"))
    table = doc.Table(heads, tuple(map(_row, known.parts)), level=doc.Level.BEHIND)
    return (doc.Text(in_brief(known), level=doc.Level.SCREEN), table)


def in_brief(known: Accounting) -> str:
    """`Useful 34 %, lost 66 %: communication 62 % (unexplained), copies 2.9 %`: the largest losses."""
    work = sum(part.share for part in known.parts if part.is_useful)
    largest = [part for part in known.losses if part.share >= _WORTH_A_WORD][:_FEW]
    losses = f", lost {percent(1 - work)}: {', '.join(map(_loss, largest))}" if largest else ""
    return f"Useful {percent(work)}{losses}."


def _loss(part: Part) -> str:
    short = PARTS[part.part].short if part.part in PARTS else part.part
    is_open = not part.is_explained and part.share >= 1 - HEALTHY_SHARE
    return f"{short} {percent(part.share)}{' (unexplained)' if is_open else ''}"


def _row(part: Part) -> doc.Row:
    what = doc.Cell(part_words(part.part))
    return doc.Row((what, doc.Cell(percent(part.share)), doc.Cell(ms(part.ms)), doc.Cell(_explained(part))))


def _explained(part: Part) -> str:
    """The findings that explain a part, or why none does."""
    if part.findings:
        return f"{', '.join(part.findings)}{f': up to {ms(part.saved_ms)}' if part.saved_ms else ''}"
    if part.is_useful:
        return "useful work"
    return f"unexplained{f': {part.reasons[0].words}' if part.reasons else ''}"
