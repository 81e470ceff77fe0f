"""A finding as it is shown: what is wrong and with what, what a fix saves, what to do, why we think so, and where."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Final

from advisor.inputs.names.stacks import is_of_library, user_line
from advisor.model.finding import Finding as Fact
from advisor.model.finding import Fix, Place, Saving
from advisor.model.report import Run
from advisor.model.source import Source
from advisor.present import document as doc
from advisor.present.next_recording import combined
from advisor.present.source import members, reach
from advisor.present.verdict import saved_time, saving, title
from advisor.text import listing, ms, ns, one_line, quantity, sentences_of
from advisor.vocabulary.parts import POOLS, UNMARKED

_SPOTS: Final = 3  # places of one name
_WORTH_A_WORD: Final = 0.02  # of a saving: nobody misses less in the sum of its parts
_MOST_CHARACTERS: Final = 400  # characters of a name
_QUANTITY: Final = re.compile(r"\d[\d.,]*\s(?:%|[a-zµ]+)")  # a number with its unit
_UNMARKED: Final = (
    (" per step", ""),
    ("Part of the step", "Part of the time used"),
    ("Mean step time", "Time judged"),
    ("Step time", "Time"),
)
WEB: Final = re.compile(r"https?://[^\s<>\"'`|\\()\[\]{}\x00-\x20\x7f-\U0010ffff]+")


def findings(run: Run) -> doc.Findings:
    """The run's findings in their order."""
    return doc.Findings(tuple(_finding(finding, number, run) for number, finding in enumerate(run.findings, 1)))


def _finding(finding: Fact, number: int, run: Run) -> doc.Finding:
    own = finding.fixes_for(run.source.framework)
    where = reach(finding, run) if len(finding.scope.workers) != 1 else None  # whose name the title has
    return doc.Finding(
        number=number,
        key=finding.key,
        rule=finding.rule,
        title=title(finding, run),
        severity=finding.severity,
        is_new=bool(finding.new),
        says=finding.says,
        saving=_saving(finding, run),
        beside=tuple(filter(None, (f"{finding.confidence} confidence" if finding.saving else "", where))),
        symptoms=tuple(_symptoms(finding)),
        fixes=tuple(_fix(fix, run, own) for fix in own),
        other_fixes=tuple(_fix(fix, run, ()) for fix in finding.fixes if fix not in own),
        reasons=tuple(_reasons(finding, run.source)),
        why=finding.why,
        lines=source_lines(finding),
        in_timeline=run.timeline is not None and bool(run.timeline.shows.get(finding.key)),
    )


def _symptoms(finding: Fact) -> Iterator[doc.Symptom]:
    """What the finding accounts for, without the sentences that repeat a number that stands above them."""
    above = set(_QUANTITY.findall(finding.says))
    for symptom in () if finding.lacks_work else finding.symptoms:  # what was not recorded only looks like a symptom
        sentences = [s for s in sentences_of(symptom.says) if not above & set(_QUANTITY.findall(s))]
        above.update(_QUANTITY.findall(symptom.says))
        yield doc.Symptom(symptom.rule, symptom.title, " ".join(sentences))


def _saving(finding: Fact, run: Run) -> doc.Saving | None:
    sentence, won = saving(finding, run.source.steps), finding.saving
    if won is None or sentence is None:
        return None
    window = "the step" if run.source.steps.marked else UNMARKED
    stake = " at stake" if any(fix.records for fix in finding.fixes[:1]) else ""
    return doc.Saving(sentence, saved_time(won) + stake, won.low_share, won.high_share, window)


def _fix(fix: Fix, run: Run, beside: Iterable[Fix]) -> doc.Fix:
    whose = "" if fix.framework in {run.source.framework, "any"} else fix.framework
    return doc.Fix(" ".join(_instruction(fix, run, beside)), whose, fix.code, web_link(fix.link))


def _instruction(fix: Fix, run: Run, beside: Iterable[Fix]) -> Iterator[str]:
    """What to do, how it changes results, and, of fixes that exclude each other, what to choose from."""
    yield combined(fix.do, run, asks="COMMAND`" in fix.do)
    if fix.numerics:
        yield f"This changes results: {fix.numerics}."
    if not fix.is_estimated:
        yield "The saving above is not of this fix alone, which may save less or nothing: try it."
    alike = [other for other in beside if other.choice == fix.choice]
    if fix.choice and fix in alike[:1] and len(alike) > 1:
        yield f"Choose one: {fix.choice}."


def _reasons(finding: Fact, source: Source) -> Iterator[doc.Block]:
    """Why we think so: what the saving comes out of, the evidence, where to look; sources are on the rule's page."""
    yield doc.Text(finding.why, label="Why")
    if won := finding.saving:
        least = _WORTH_A_WORD * won.high_ms
        is_part = won.cause_ms is not None and won.cause_ms < won.high_ms - least
        known = f" {ms(won.cause_ms)} is measured, the rest is estimated." if is_part else ""
        shared = (
            f" The saving leaves out {ms(won.shared_ms)} that other findings count." if won.shared_ms > least else ""
        )
        yield doc.Text(f"comes out of {_sources(won)}.{known} {won.method}{shared}", label="The saving")
    items = []
    for item in (of for of in finding.evidence if of.value not in {"", ()}):
        others = () if source.steps.marked else _UNMARKED  # of a recording without steps a number is of all of it
        meaning = reduce(lambda text, word: text.replace(*word), others, item.meaning)
        items.append(doc.Pair(meaning, "", quantity(item.value, item.unit), (item.metric,), item.formula or ""))
    if items:
        yield doc.Pairs(tuple(items), title="Evidence")
    yield from _places(finding.where, source)
    page = finding.docs if web_link(finding.docs) else f"`advisor rules show {finding.rule}`"
    yield doc.Text(page, label="The rule, its thresholds and their sources")


def _sources(won: Saving) -> str:
    """The parts of the step that a saving clearly comes out of, the largest first; of several, how much at most."""
    least = _WORTH_A_WORD * won.high_ms
    parts = sorted((part for part in won.parts.items() if part[1] >= least), key=lambda part: -part[1])
    if len(parts) > 1:
        return listing([f"{POOLS.get(pool, pool)} (up to {ms(most_ms)})" for pool, most_ms in parts])
    pool = parts[0][0] if parts else won.of
    return POOLS.get(pool, pool)


def _places(places: Iterable[Place], source: Source) -> Iterator[doc.Block]:
    """Places of one name together, with the few frames that show most."""
    heading = "Where to look"
    # Places of one name, op and stack together, in the order in which they first come.
    groups: dict[tuple[str, str | None, str | None], list[Place]] = {}
    for place in places:
        groups.setdefault((place.name, place.op, place.stack), []).append(place)
    for group in groups.values():
        yield doc.Pairs((_place(group, source),), title=heading)
        if group[0].stack:
            yield doc.Code("\n".join(frames(group[0].stack)))
        heading = ""


def _place(places: Sequence[Place], source: Source) -> doc.Pair:
    first = places[0]
    spots = [spot(place, source) for place in places[:_SPOTS]]
    rest = [f"{len(places) - _SPOTS} more"] if len(places) > _SPOTS else []
    op = one_line(first.op or "", _MOST_CHARACTERS).replace("`", "'")
    within = f"in `{op}`, " if op else ""
    return doc.Pair("", within + "; ".join([*spots, *rest]), codes=(one_line(first.name, _MOST_CHARACTERS),))


def spot(place: Place, source: Source) -> str:
    """Where in the recording a place lies: `step 9, rank 3, device 0: 61 ms at 310.125 ms`."""
    owner = [f"step {place.step}"] if place.step is not None else []
    owner += [members(source, [place.worker])] if len(source.workers) > 1 or not owner else []
    owner += [f"device {place.device}"] if place.device is not None else []
    return f"{', '.join(owner)}: {ns(place.dur_ns)} at {place.at_ms:,.3f} ms"


def web_link(text: str | None) -> str | None:
    """The text if it is a plain web address that no medium can read as anything else."""
    return text if text and WEB.fullmatch(text) else None


_FRAMES: Final = 5
_SEPARATOR: Final = re.compile(r"[;\n]")


def frames(stack: str) -> list[str]:
    """The few frames of a stack that show most: the user's own, innermost first; of libraries where there are none."""
    every = [frame.strip() for frame in _SEPARATOR.split(stack) if frame.strip()]
    own = [frame for frame in every if not is_of_library(frame)]
    return (own or every)[:_FRAMES]


def source_lines(finding: Fact) -> tuple[doc.SourceLine, ...]:
    """The lines of the user's code that the finding's places lie in, each once: the innermost frame of each."""
    stacks = (_SEPARATOR.split(place.stack) for place in finding.where if place.stack)  # innermost first
    lines = (next(filter(None, map(user_line, stack)), None) for stack in stacks)
    return tuple(dict.fromkeys(doc.SourceLine(*line) for line in lines if line))
