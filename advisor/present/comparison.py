"""A comparison as a document: is the head slower, where did its step change, what became of findings and of work."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from advisor.inputs.names.kernels import kernel_name
from advisor.model.comparison import (
    Amount,
    Comparison,
    FindingChange,
    FindingStatus,
    Side,
    SideFinding,
    Verdict,
    WorkChange,
    WorkStatus,
)
from advisor.present import document as doc
from advisor.present.shifts import breakdown, cells, rows, scaled, signed_ms, signed_share
from advisor.present.tables import changes as phases
from advisor.present.tables import flame_of
from advisor.text import (
    DASH,
    UNKNOWN,
    capital,
    count,
    first_sentence,
    interval,
    listing,
    ms,
    number,
    precise_ms,
    without_shared_unit,
)
from advisor.vocabulary.parts import part_short

_VERDICTS: Final[dict[Verdict, tuple[str, doc.Tone]]] = {
    "faster": ("Faster", "good"),
    "slower": ("Slower", "bad"),
    "same": ("No change", "strong"),
    "inconclusive": ("Inconclusive", "warning"),
}
_NEXT: Final[dict[Verdict, str]] = {
    "faster": "Keep the change. `advisor check AFTER` shows what else can get shorter.",
    "slower": "`-v` shows the kernels and ops that take longer, and all fixes.",
    "same": "This change saves nothing: `advisor check AFTER` shows what would.",
    "inconclusive": "Mend what the first line says, record both sides again, and compare them.",
}
_SAME_WORK: Final = "Record both sides with the same inputs and batch size, and compare them again."
_STATUSES: Final[dict[FindingStatus, tuple[str, doc.Tone]]] = {
    "new": ("new", "bad"),
    "worse": ("worse", "bad"),
    "hidden": ("hidden", "warning"),
    "gone": ("gone", "good"),
    "better": ("better", "good"),
    "uncovered": ("hidden before", "plain"),
    "same": ("as before", "plain"),
    "unknown": ("could not tell", "quiet"),
}
"""What became of a finding, in words."""

_WORK: Final[dict[WorkStatus, str]] = {"appeared": "new", "vanished": "gone", "slower": "slower", "faster": "faster"}
_NO_INTERVAL: Final = frozenset({"hardware", "world-size"})  # obstacles that make a ratio meaningless
_OTHER_COUNT: Final = 0.05  # by which the number per step has to differ, as where changes are sought
_OTHER_WORK: Final = frozenset({"other_sizes", "other_types"})  # cautions: the steps do not do the same
_FEW_FINDINGS: Final = 3
_FEW_ADVICE: Final = 3
_FEW_NOTES: Final = 3
_FEW_RUNS: Final = 3
_ARROW: Final = "\N{RIGHTWARDS ARROW}"
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_BEHIND: Final = doc.Level.BEHIND
_SCREEN: Final = doc.Level.SCREEN


def document(comparison: Comparison) -> doc.Document:
    """The comparison as a document."""
    # What else than a change of speed may explain the verdict.
    texts = [f"{capital(caution.words)}." for caution in comparison.cautions]
    blocks = tuple(doc.Text(text, "warning") for text in texts)
    parts = (
        doc.Section("Caution", blocks, id="cautions", is_titled=False, is_lead=True) if blocks else None,
        _sides(comparison),
        breakdown(comparison),
        phases(comparison),
        _every_step(comparison),
    )
    following = (doc.Text(_SAME_WORK if _is_other_work(comparison) else _NEXT[comparison.verdict], label="Next:"),)
    last = doc.Section("Next", following, level=_SCREEN, is_titled=False)
    rest = (_findings(comparison), _flame(comparison), _work(comparison), last)
    article = doc.Article(
        id="compare",
        name="Before and after",
        headline=headline(comparison),
        beside=certainty(comparison),
        facts=tuple(filter(None, (findings_tally(comparison), _shared_devices(comparison)))),
        sections=tuple(section for section in (*parts, *rest) if section),
        tone="warning" if _is_other_work(comparison) else _VERDICTS[comparison.verdict][1],
    )
    overview = "; ".join(article.facts)
    return doc.Document("comparison", article.headline, overview, comparison.advisor_version, (article,))


def headline(comparison: Comparison) -> str:
    """The verdict in one line: `Slower: 127 → 177 ms per step (+40 %), mostly input (+59.3 ms)`."""
    (title, _), change = _VERDICTS[comparison.verdict], comparison.change
    if _is_other_work(comparison):
        title = f"Different work, {title.lower()}" if comparison.verdict == "inconclusive" else "Different work"
    if comparison.verdict == "inconclusive" or change is None:
        return f"{title}: {comparison.reason.words}"
    by, (before, after) = signed_share(change.ratio - 1), printed(comparison, *comparison.times_ms)
    if comparison.verdict == "same":
        return f"{title}: {after} per step ({by})"
    cause, times = _cause(comparison), f"{without_shared_unit(before, after)} {_ARROW} {after}"
    return f"{title}: {times} per step ({by}){f', {cause}' if cause else ''}"


def printed(comparison: Comparison, *times_ms: float | None) -> list[str]:
    """Times of the steps, with the digits that the longer side has."""
    texts = scaled(max(of or 0.0 for of in comparison.times_ms), *(of or 0.0 for of in times_ms))
    return [UNKNOWN if of is None else text for of, text in zip(times_ms, texts, strict=True)]


def _is_other_work(comparison: Comparison) -> bool:
    return any(caution.code in _OTHER_WORK for caution in comparison.cautions)


def _cause(comparison: Comparison) -> str:
    """`mostly input (+59 ms)`; `most from input` where parts move against each other, so that none is a part of it."""
    cause = comparison.cause
    if cause is None:
        return ""
    before, after = comparison.times_ms
    change, lines = abs((after or 0.0) - (before or 0.0)), rows(comparison)
    is_part = change / 2 <= abs(cause.change_ms) <= change
    own = (cells(row, lines)[2] for row in lines if row.part == cause.part)  # the table's own number
    size = next(own, signed_ms(cause.change_ms))
    return f"{'mostly' if is_part else 'largest change:'} {part_short(cause.part)} ({size})"


def certainty(comparison: Comparison) -> str:
    """What the verdict rests on: its reason, unless the headline has it, and the interval; empty where neither.

    One step spans no interval. No statistics make two kinds of work one.
    """
    if _is_other_work(comparison):
        return "Steps of different work do not show whether the code became faster."
    reason = comparison.reason.words
    why = "" if comparison.verdict == "inconclusive" else f"{capital(reason)}. "
    change, steps = comparison.change, min(comparison.base.steps, comparison.head.steps)
    if change is None or comparison.one_recording or comparison.obstacle in _NO_INTERVAL or steps <= 1:
        return why.rstrip()
    low, high = (signed_share(ratio - 1) for ratio in (change.low, change.high))
    return f"{why}With 95 % confidence the {change.of} step changes by {low} to {high}."


def _sides(comparison: Comparison) -> doc.Section:
    shared = _shared_devices(comparison)
    sides = {"before": comparison.base, "after": comparison.head}
    pairs = tuple(doc.Pair(name, side(comparison, of, shared).removeprefix(f"{name}: ")) for name, of in sides.items())
    notes = [note.words for note in comparison.notes]
    more = len(notes) - _FEW_NOTES
    few = [doc.Lines(tuple(notes[:_FEW_NOTES]), "quiet")] if notes else []
    blocks: list[doc.Block] = [doc.Pairs(pairs), *few]
    if more > 0:
        blocks.append(doc.Text(f"and {count(more, 'more note')} (`-v`)", "quiet", level=_SCREEN))
        blocks.append(doc.Lines(tuple(notes[_FEW_NOTES:]), "quiet", level=_BEHIND))
    return doc.Section("What was compared", tuple(blocks), id="sides", is_titled=False, is_lead=True)


def _shared_devices(comparison: Comparison) -> str:
    is_shared = comparison.base.devices == comparison.head.devices
    return (listing(comparison.base.devices) or "no GPU recorded") if is_shared else ""


def side(comparison: Comparison, of: Side, shared_devices: str = "") -> str:
    """`resnet50: 6 steps, median 127 ms, mean 141 ms · Tesla V100`, without the devices that both sides share."""
    names = listing([series.run for series in of.series], _FEW_RUNS)
    median, mean = printed(comparison, of.median_ms, of.mean_ms)
    times = f"{count(of.steps, 'step')}, median {median}{f', mean {mean}' if mean != median else ''}"
    devices = "" if shared_devices else f" · {listing(of.devices) or 'no GPU recorded'}"
    return f"{names}: {times if of.steps else 'no step times'}{devices}"


def _every_step(comparison: Comparison) -> doc.Section | None:
    sides = {"before": comparison.base, "after": comparison.head}
    times = {name: [time for series in of.series for time in series.steps_ms] for name, of in sides.items()}
    if not all(times.values()):
        return None
    least, most = min(map(min, times.values())), max(map(max, times.values()))
    margin = 0.05 * (most - least) or 0.05 * most
    low, high = max(0.0, least - margin), most + margin

    def at(time: float) -> float:
        return (time - low) / (high - low)

    strips = tuple(doc.Strip(name, tuple(map(at, times[name])), at(of.median_ms or low)) for name, of in sides.items())
    title = "Every step, long ones included; the dark mark is the median"
    return doc.Section(title, (doc.Strips(strips, ms(low), ms(high)),), id="steps", level=_BEHIND)


def findings_tally(comparison: Comparison) -> str:
    """`6 findings: 1 new, 2 gone, 3 as before`."""
    changes = listed_findings(comparison)
    statuses = Counter(change.status for change in changes)
    each = ", ".join(f"{statuses[status]} {word}" for status, (word, _) in _STATUSES.items() if statuses[status])
    return f"{count(len(changes), 'finding')}: {each}" if each else "no findings on either side"


def listed_findings(comparison: Comparison) -> list[FindingChange]:
    """The findings worth a row; a symptom on both sides is part of the finding that accounts for it."""
    own = (any(side and not side.under for side in (of.base, of.head)) for of in comparison.findings)
    changes = zip(comparison.findings, own, strict=True)
    return [change for change, is_own in changes if is_own or change.status not in {"same", "unknown"}]


def _findings(comparison: Comparison) -> doc.Section:
    changes = listed_findings(comparison)
    # The findings that the head made, the gravest few.
    news = [change for change in changes if change.status in {"new", "worse"} and change.head and not change.head.under]
    blame = news[:_FEW_ADVICE]
    is_certain = comparison.verdict != "inconclusive"
    fixes = [fix for change in blame[:1] if change.head and is_certain for fix in change.head.fixes[:1]]
    blocks: list[doc.Block] = [
        _finding_table(changes),
        *(block for change in blame for block in _advice(change)),
        *(
            doc.Text(first_sentence(fix.do), label=f"Fix what is {blame[0].status} first:", level=_SCREEN)
            for fix in fixes
        ),
    ]
    promised = [change for change in changes if change.prediction]
    if promised and comparison.verdict in {"faster", "same"} and not _is_other_work(comparison):
        of = f"`{promised[0].rule}`" if len(promised) == 1 else f"{len(promised)} findings that are gone, together"
        blocks.append(doc.Text(f"{of}. {predicted(promised[0], comparison)}", label="Prediction"))
    others = [change for change in changes if change not in blame]
    if others:
        title = "Every finding in words" if others == changes else "The other findings in words"
        pairs = tuple(_finding_pair(of, comparison) for of in others)
        blocks.append(doc.Fold(title, (doc.Pairs(pairs),), level=_BEHIND))
    return doc.Section("Findings", tuple(blocks), id="findings", is_titled=False, is_lead=True)


def _finding_table(changes: Sequence[FindingChange]) -> doc.Table:
    saves = (doc.Head(f"Saves {side}", is_number=True) for side in ("before", "after"))
    heads, rows = (doc.Head("Finding"), doc.Head("Status"), *saves), list[doc.Row]()
    for change in changes:
        status, tone = _STATUSES[change.status]
        title = doc.Cell(change.title, beside=f"[{change.rule}]")
        cells = (title, doc.Cell(status, tone=tone), doc.Cell(worth(change.base)), doc.Cell(worth(change.head)))
        rows.append(doc.Row(cells, tone=tone))
    return doc.Table(heads, tuple(rows), none="No findings on either side.", few=_FEW_FINDINGS, more="and {rows} more")


def predicted(change: FindingChange, comparison: Comparison) -> str:
    """`Predicted 152-169 ms; tried 140-148 ms; measured 137 ms.`; empty where nothing was."""
    known = change.prediction
    if known is None:
        return ""
    none, tried = "no shorter step", ""
    if effect := known.trial:
        of = f" ({effect.findings} of these {known.findings})" if effect.findings < known.findings else ""
        tried = f"; tried {interval(effect.low_ms, effect.high_ms) if effect.low_ms > 0 else none}{of}"
    measured = printed(comparison, known.measured_ms)[0] if known.measured_ms > 0 else none
    return f"Predicted {interval(known.low_ms, known.high_ms)}{tried}; measured {measured}."


def _advice(change: FindingChange) -> Iterator[doc.Block]:
    """What was measured of a finding, and the first thing to do about it."""
    head = change.head
    if head is None:
        return
    status, _ = _STATUSES[change.status]
    yield doc.Text(head.says, label=f"{change.title} ({status}).", level=_BEHIND)
    for fix in head.fixes[:1]:
        yield doc.Text(fix.do, label="Fix", level=_BEHIND)
        if fix.code:
            yield doc.Code(fix.code, level=_BEHIND)


def _finding_pair(change: FindingChange, comparison: Comparison) -> doc.Pair:
    measured = change.head or change.base
    why = f": {change.why.words}" if change.why else ""
    status, says = _STATUSES[change.status][0], measured.says if measured else ""
    text = f"{change.title} ({status}{why}). {says} {predicted(change, comparison)}"
    return doc.Pair("", text.rstrip(), codes=(change.rule,))


def worth(finding: SideFinding | None) -> str:
    """What a fix saves on a side: `30-59 ms`; a dash where the side has no such finding."""
    if finding is None:
        return DASH
    if finding.under:
        return "in the one above"
    if finding.saving is None or finding.saving.high_ms <= 0:
        return "no estimate" if finding.saving is None else "nothing"
    return interval(finding.saving.low_ms, finding.saving.high_ms)


def work_tally(comparison: Comparison) -> str:
    """`12 kernels and 4 ops changed`."""
    if not comparison.per_step:
        return "kernels and ops not compared"
    ops = sum(change.work == "op" for change in comparison.work)
    amounts = ((len(comparison.work) - ops, "kernel"), (ops, "op"))
    parts = [count(amount, noun) for amount, noun in amounts if amount]
    return f"{listing(parts) or 'no kernel or op'} changed"


def work_status(change: WorkChange) -> str:
    """What became of a kernel or op, in a word or two; a size may come or go while the name stays."""
    if change.size and not (change.base and change.head):
        return "new size" if change.head else "size gone"
    if not (change.base and change.head):
        return _WORK[change.status]
    before, after = change.base.per_step, change.head.per_step
    if change.status == "count":
        return "more often" if after > before else "less often"
    is_other = abs(after - before) >= _OTHER_COUNT * max(before, after)
    return f"{_WORK[change.status]}{(', more' if after > before else ', fewer') if is_other else ''}"


def work_name(change: WorkChange) -> str:
    """What a person calls the kernel or op."""
    return change.name if change.work == "op" else kernel_name(change.name)


def work_size(change: WorkChange) -> str:
    """A kernel's grid and block, a copy's bytes or an op's shapes, with spaces to break at; empty where unknown."""
    return (change.size or "").replace(",", ", ")


def amount(of: Amount | None) -> str:
    """How often per step and how long each: `2 x 0.382 ms`; a dash where there is none."""
    return DASH if of is None else f"{number(round(of.per_step, 2))} {_TIMES} {precise_ms(of.mean_us / 1e3)}"


def _work(comparison: Comparison) -> doc.Section:
    title = "Kernels (device time) and ops (host time) that differ"
    if not comparison.work:
        none = "None." if comparison.per_step else "Not compared: that takes steps on both sides."
        return doc.Section(title, (doc.Text(none, "quiet", level=_BEHIND),), id="work", level=_BEHIND)
    amounts = f"{capital(work_tally(comparison))}."
    each = f"Before and after: calls per step {_TIMES} time of each. The size of a kernel is grid {_TIMES} block."
    lead = "The largest change comes first. The time of an op is without the ops inside it."
    texts = (doc.Head("Kernel or op"), doc.Head("Status"))
    numbers = tuple(doc.Head(text, is_number=True) for text in ("Before", "After", "Change"))
    table = doc.Table((*texts, *numbers), tuple(map(_change, comparison.work)), name="work")
    return doc.Section(
        title, (doc.Text(f"{amounts} {each} {lead}", "quiet"), table), id="tables", level=_BEHIND, is_wide=True
    )


def _change(change: WorkChange) -> doc.Row:
    name = doc.Cell(work_name(change), is_code=True, beside=work_size(change))
    tone: doc.Tone = "warning" if change.change_ms > 0 else "plain"
    cells = (work_status(change), amount(change.base), amount(change.head), signed_ms(change.change_ms))
    status, base, head, moved = map(doc.Cell, cells)
    return doc.Row((name, status, base, head, doc.Cell(moved.text, tone=tone)))


def _flame(comparison: Comparison) -> doc.Section | None:
    """The flame graph of both sides; None where there is no head to draw."""
    if not any(frame.head_ms for frame in comparison.frames):
        return None
    whose = "device" if comparison.head.devices else "host"
    outside = "The host's time and the waits are" if whose == "device" else "The waits are"
    says = (
        f"This is the {whose}'s time alone. {outside} in the parts of the step above. The width of a frame is its time"
        " after the change. The colour shows changes of 1 % of the total or more. What is gone has no width; the table"
        " below lists it."
    )
    top = [frame for frame in comparison.frames if frame.parent is None]
    base, head = sum(frame.base_ms for frame in top), sum(frame.head_ms for frame in top)
    everything = f"{whose} time of a step: {precise_ms(head)}, was {precise_ms(base)}"
    words = (everything, "takes longer", "takes less time", "as before")
    return flame_of(whose, {frame.kind for frame in comparison.frames}, says, words, when=", before and after")
