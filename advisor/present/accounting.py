"""The accounting: the step as a bar, how much of it is busy, and what becomes of the rest."""

from collections.abc import Mapping
from typing import Final

from advisor.model.report import Accounting, Part, Run
from advisor.present import document as doc
from advisor.present.large_parts import large_parts
from advisor.present.verdict import place
from advisor.text import UNKNOWN, ms, percent
from advisor.vocabulary.parts import PARTS, UNMARKED, part_gloss, part_short

_WORTH_A_WORD: Final = 0.01  # of the step: nobody looks for the cause of less
_NOTHING: Final = 1e-6
_NO_KERNELS: Final = "kernels_not_exported"
_UNKNOWN: Final = "unknown"  # its name says that the cause is not known
_NUMBERS: Final = (doc.Head("share", is_number=True), doc.Head("time", is_number=True))


def accounting(run: Run) -> tuple[doc.Block, ...]:
    """A bar with its legend, and one line."""
    known = run.accounting
    if known is None:
        return (doc.Bars((), none=f"Where the time goes: {UNKNOWN}."),)
    parts = (doc.Segment(p.part, p.share, p.ms, part_short(p.part), percent(p.share), ms(p.ms)) for p in known.parts)
    bar = doc.Bar("step" if run.source.steps.marked else "used", doc.in_a_row(parts))
    words = " ".join(filter(None, (_in_brief(run, known), "" if run.is_mostly_once else large_parts(run))))
    return doc.Bars((bar,)), doc.Text(words)


def parts(run: Run) -> tuple[doc.Block, ...]:
    """A table of all parts with the findings that explain them, and what these save of each."""
    known = run.accounting
    if known is None:
        return ()
    of = "step" if run.source.steps.marked else UNMARKED.removeprefix("the ")
    heads = (doc.Head(f"part of the {of}"), *_NUMBERS, doc.Head("finding"))
    return (doc.Table(heads, tuple(map(_row, known.parts))),)


def _unrecorded(run: Run, known: Accounting) -> float:
    """The part of the step in which the device may work, because a finding says that the recording lacks its work."""
    lacking = {finding.loss for finding in run.findings if finding.lacks_work}
    return sum(part.share for part in known.parts if part.part in lacking)


def _in_brief(run: Run, known: Accounting) -> str:
    """`Busy 74 %, lost 26 %.`, and what findings are of where long steps are a part of the bar.

    Of a file that lacks the kernels no sum, which would call lost what it lacks.
    """
    lacks = run.source.lacks.get("device_ops")
    if lacks and lacks.code == _NO_KERNELS:
        return f"Busy: {UNKNOWN}."
    unrecorded = _unrecorded(run, known)
    of_all = {"Busy": known.busy_share, "lost": 1 - known.busy_share - unrecorded, "not recorded": unrecorded}
    steps = run.source.steps
    usual = f" Findings describe a usual step ({ms(steps.usual_ms)})." if steps.whole_mean_ms and steps.usual_ms else ""
    return f"{', '.join(_adding_up(of_all))}.{usual}"


def _adding_up(shares: Mapping[str, float]) -> list[str]:
    """`Busy 90.3 %`, `lost 9.7 %`: with a decimal each where one has it, so that they add up; none of nothing."""
    texts = {what: percent(share) for what, share in shares.items() if what == "Busy" or share > _NOTHING}
    if any("." in text for text in texts.values()) and not any(text[0] in "<>" for text in texts.values()):
        texts = {what: f"{100 * shares[what]:.1f} %" for what in texts}
    return [f"{what} {text}" for what, text in texts.items()]


def _row(part: Part) -> doc.Row:
    what = doc.Cell(part_short(part.part), beside=part_gloss(part.part))
    cells = (what, doc.Cell(percent(part.share)), doc.Cell(ms(part.ms)), doc.Cell(_explained(part)))
    return doc.Row(cells, part=part.part)


def _explained(part: Part) -> str:
    """The findings that explain a part, why none does, or what to do where its name is its cause."""
    inside = place(part, "this part")[:-1] if part.share >= _WORTH_A_WORD else ""
    where = f"; {inside}" if inside else ""
    if part.findings:
        return f"{', '.join(part.findings)}{f': up to {ms(part.saved_ms)}' if part.saved_ms else ''}{where}"
    if part.is_useful:
        return f"busy{where}"
    if part.share < _WORTH_A_WORD:
        return ""
    if part.reasons:
        return f"cause unknown: {part.reasons[0].words}{where}"
    known = PARTS.get(part.part)
    return f"{known.remedy[:-1] if known and known.remedy else 'cause unknown'}{where}"
