"""A finding as it is shown: what is wrong and with what, what a fix saves, what to do, and why we think so."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Final

from advisor.model.finding import Evidence, Fix, Place, Saving
from advisor.model.finding import Finding as Fact
from advisor.model.report import Run
from advisor.model.source import Source, Steps
from advisor.present import document as doc
from advisor.present.phases import per_step_of_phase
from advisor.present.ranks import reach
from advisor.present.source import members
from advisor.present.stacks import frames, source_lines
from advisor.present.verdict import saved_time, saving, saving_in_brief, title
from advisor.text import WIDE, count, listing, ms, ns, one_line, quantity, sentences_of
from advisor.vocabulary.parts import POOLS, pool_short
from advisor.vocabulary.rules import SIDES
from advisor.vocabulary.severities import GRADES

FEW: Final = 5
_FIRST: Final = 3
_LEAST_SAVING: Final = 0.01  # of the step
"""How many findings the one screen shows."""

_OF_ALL_NUMBERS: Final = "too-few-steps"  # whose sentence qualifies all others
_SPOTS: Final = 3  # places of one name
_MOST_RULES: Final = 3
_WORTH_A_WORD: Final = 0.02  # of a saving: nobody misses less in the sum of its parts
_MOST_CHARACTERS: Final = 400  # characters of a name
_QUANTITY: Final = re.compile(r"\d[\d.,]*\s(?:%|[a-zµ]+)")  # a number with its unit
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_UNMARKED: Final = (
    (" per step", ""),
    ("Part of the step", "Part of the recording"),
    ("Mean step time", "Time judged"),
    ("Step time", "Time"),
)
_COMPARED: Final = re.compile(  # one name with one name: a factor has no unit
    r"(?:^|\bAND\b|\bOR\b|\()\s*([A-Za-z_]\w*)\s*(?:[<>]=?|=)\s*([A-Za-z_]\w*)\s*(?=$|\bAND\b|\bOR\b|\))"
)
WEB: Final = re.compile(r"https?://[^\s<>\"'`|\\()\[\]{}\x00-\x20\x7f-\U0010ffff]+")


def findings(run: Run) -> doc.Findings:
    """The run's findings in their order."""
    findings = tuple(_finding(finding, number, run) for number, finding in enumerate(run.findings, 1))
    few = _few(run.findings)
    return doc.Findings(findings, few=few, more=_more(run.findings[few:]))


def _few(ordered: Sequence[Fact]) -> int:
    """How many stand on one screen: at most five, behind the first three only up to the last that is not small."""
    first = enumerate(ordered[:FEW], 1)
    return max((number for number, finding in first if number <= _FIRST or _is_worth_it(finding)), default=0)


def _is_worth_it(finding: Fact) -> bool:
    return finding.severity != "low" or (finding.saving is not None and finding.saving.high_share >= _LEAST_SAVING)


def _more(hidden: Sequence[Fact]) -> str:
    """What a screen writes of the findings that it leaves out."""
    rules = [f"`{finding.rule}`" for finding in hidden]
    doubts = [f" {finding.says}" for finding in hidden if finding.rule == _OF_ALL_NUMBERS]
    if len(rules) > _MOST_RULES:
        return f"and {count(len(rules), 'more finding')}{'.' if doubts else ''}{''.join(doubts)}"
    return f"Smaller findings: {listing(rules)}.{''.join(doubts)}" if rules else ""


def order(run: Run) -> str:
    """How the findings are ordered, where there are several."""
    if len(run.findings) <= 1:
        return ""
    if all(finding.saving is None for finding in run.findings):
        return "The highest severity comes first."
    leads = run.findings[0].saving is None  # only a rule that makes other numbers doubtful stands before savings
    doubt = "Finding 1 makes the numbers of the others doubtful. Of those, the" if leads else "The"
    rest = " Those without a saving come last." if any(f.saving is None for f in run.findings[1:]) else ""
    return f"{doubt} largest sure saving comes first, then the largest expected one.{rest}"


def _finding(finding: Fact, number: int, run: Run) -> doc.Finding:
    own = finding.fixes_for(run.source.framework)
    return doc.Finding(
        number=number,
        key=finding.key,
        rule=finding.rule,
        title=title(finding, run),
        severity=finding.severity,
        is_new=bool(finding.new),
        says=finding.says,
        saving=_saving(finding, run),
        beside=tuple(_certainty_and_reach(finding, run)),
        symptoms=tuple(_symptoms(finding)),
        fixes=tuple(_fix(fix, run.source.framework, own) for fix in own),
        other_fixes=tuple(_fix(fix, run.source.framework, ()) for fix in finding.fixes if fix not in own),
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


def _certainty_and_reach(finding: Fact, run: Run) -> Iterator[str]:
    """How sure its saving is, and the workers that it holds for where the title does not name the only one."""
    if finding.saving:
        yield f"{finding.confidence} confidence"
    if of_phase := per_step_of_phase(finding, run):
        yield of_phase
    if (where := reach(finding, run)) and len(finding.scope.workers) != 1:
        yield where


def _saving(finding: Fact, run: Run) -> doc.Saving | None:
    sentence, brief = (word(finding, run.source.steps) for word in (saving, saving_in_brief))
    if finding.saving is None or sentence is None or brief is None:
        return None
    won, window = finding.saving, "the step" if run.source.steps.marked else "the recording"
    words = " ".join(filter(None, (sentence, _in_the_bar(won))))
    return doc.Saving(words, brief, saved_time(won), won.low_share, won.high_share, window)


def _in_the_bar(won: Saving) -> str:
    """`Parts that it shortens: input (up to 18 ms) and ops (up to 3.1 ms).`; empty where it is one part of the bar."""
    parts = [f"{pool_short(pool)} (up to {ms(most_ms)})" for pool, most_ms in _pools(won)]
    return f"Parts that it shortens: {listing(parts)}." if len(parts) > 1 else ""


def _fix(fix: Fix, framework: str | None, beside: Iterable[Fix]) -> doc.Fix:
    whose = "" if fix.framework in {framework, "any"} else fix.framework
    return doc.Fix(" ".join(_instruction(fix, beside)), whose, fix.code, web_link(fix.link))


def _change(fix: Fix) -> Iterator[str]:
    if fix.numerics:
        yield f"This changes results: {fix.numerics}."


def _instruction(fix: Fix, beside: Iterable[Fix]) -> Iterator[str]:
    """What to do, how it changes results, and whether another fix beside it excludes it."""
    yield fix.do
    yield from _change(fix)
    if not fix.is_estimated:
        yield "The saving above is not of this fix alone, which may save less or nothing: try it."
    if fix.choice and any(other.choice == fix.choice for other in beside if other != fix):
        yield f"Choose one: {fix.choice}."


def _reasons(finding: Fact, source: Source) -> Iterator[doc.Block]:
    """Why we think so: the rule, what the saving comes out of, the evidence, where to look, and the sources."""
    yield doc.Text(finding.why, label="Why")
    if condition := filled_in(finding):
        yield doc.Text(f"`{_code(finding.condition or '')}`. Here: `{_code(condition)}`.", label="The rule fires if")
    if finding.saving:
        yield doc.Text(" ".join(_method(finding, finding.saving)), label="The saving")
    if evidence := tuple(_evidence(item, source.steps) for item in finding.evidence if item.value != ""):
        yield doc.Pairs(evidence, title="Evidence")
    yield from _places(finding.where, source)
    if finding.references:
        yield doc.Lines(finding.references, title="Where the thresholds come from")
    if web_link(finding.docs):
        yield doc.Text(finding.docs, label="The rule in full")
    else:
        yield doc.Text(f"`advisor rules show {finding.rule}`", label="The rule in full")


def _method(finding: Fact, won: Saving) -> Iterator[str]:
    """What the saving comes out of, how its ends are computed, and what would narrow it."""
    yield f"comes out of {_sources(won)}. {won.method}"
    if won.shared_ms > _WORTH_A_WORD * won.high_ms:
        yield f"The saving leaves out {ms(won.shared_ms)} that other findings count."
    if won.high_ms <= 0:
        return
    if won.low_ms == won.high_ms:
        yield "Both ends are the same, because nothing in this recording varies: record more steps to see what varies."
    elif won.low_ms * WIDE <= won.high_ms:
        yield f"The recording does not show how much of it a fix saves. {_measuring(finding)}"


def _sources(won: Saving) -> str:
    """The parts of the step that the saving comes out of, the largest first; of several, how much of each at most."""
    parts = _pools(won)
    if len(parts) > 1:
        return listing([f"{POOLS.get(pool, pool)} (up to {ms(most_ms)})" for pool, most_ms in parts])
    pool = parts[0][0] if parts else won.of
    return POOLS.get(pool, pool)


def _pools(won: Saving) -> list[tuple[str, float]]:
    """The pools that clearly count in a saving, the largest first, and the milliseconds out of each at most."""
    largest = sorted(won.parts.items(), key=lambda part: -part[1])
    return [(pool, most_ms) for pool, most_ms in largest if most_ms >= _WORTH_A_WORD * won.high_ms]


def _measuring(finding: Fact) -> str:
    """How to know what a fix saves."""
    if any(fix.patch for fix in finding.fixes):
        return f"Measure it on the job: `advisor try --fix {finding.key} -- COMMAND`."
    return "Make the change, record again and compare: `advisor compare BEFORE AFTER`."


def _evidence(item: Evidence, steps: Steps) -> doc.Pair:
    """A number; that of a recording without steps is of all of it."""
    value = quantity(item.value, item.unit)
    meaning = item.meaning if steps.marked else reduce(lambda text, word: text.replace(*word), _UNMARKED, item.meaning)
    return doc.Pair(meaning, thresholds(item), value, (item.metric,), item.formula or "")


def thresholds(item: Evidence) -> str:
    """`fires at 5 %, high at 20 %`; empty where the number is held against nothing."""
    limits = [("fires", "fires", item.limit)] if item.limit is not None else []
    limits += [(level, GRADES[level].word, limit) for level, limit in reversed([*item.limits.items()])]
    sides = {word: f"{SIDES[item.signs.get(key, '>=')]} {quantity(x, item.unit)}" for key, word, x in limits}
    gravest = {side: word for word, side in sides.items()} | {sides.get("fires", ""): "fires"}
    return ", ".join(f"{word} {side}" for side, word in gravest.items() if side)


def _places(places: Iterable[Place], source: Source) -> Iterator[doc.Block]:
    """Places of one name together, with the few frames that show most."""
    heading = "Where to look"
    for group in _alike(places):
        yield doc.Pairs((_place(group, source),), title=heading)
        if group[0].stack:
            yield doc.Code("\n".join(frames(group[0].stack)))
        heading = ""


def _place(places: Sequence[Place], source: Source) -> doc.Pair:
    first = places[0]
    spots = [spot(place, source) for place in places[:_SPOTS]]
    rest = [f"{len(places) - _SPOTS} more"] if len(places) > _SPOTS else []
    within = f"in `{_code(one_line(first.op, _MOST_CHARACTERS))}`, " if first.op else ""
    return doc.Pair("", within + "; ".join([*spots, *rest]), codes=(one_line(first.name, _MOST_CHARACTERS),))


def spot(place: Place, source: Source) -> str:
    """Where in the recording a place lies: `step 9, rank 3, device 0: 61 ms at 310.125 ms`."""
    owner = [f"step {place.step}"] if place.step is not None else []
    owner += [members(source, [place.worker])] if len(source.workers) > 1 or not owner else []
    owner += [f"device {place.device}"] if place.device is not None else []
    return f"{', '.join(owner)}: {ns(place.dur_ns)} at {place.at_ms:,.3f} ms"


def _alike(places: Iterable[Place]) -> list[list[Place]]:
    """Places of one name, op and stack together, in the order in which they first come."""
    groups: dict[tuple[str, str | None, str | None], list[Place]] = {}
    for place in places:
        groups.setdefault((place.name, place.op, place.stack), []).append(place)
    return list(groups.values())


def filled_in(finding: Fact) -> str | None:
    """The rule's condition with the numbers of this run in the place of its names; None where it is not known.

    A threshold is worded in the unit of the metric that it is held against.
    """
    if finding.condition is None:
        return None
    units = {e.metric: e.unit for e in finding.evidence}
    for lower, upper in _COMPARED.findall(finding.condition):
        pairs = ((lower, upper), (upper, lower))
        units |= {name: units[of] for name, of in pairs if name in finding.params and of in units}
    known = {e.metric: quantity(e.value, e.unit) for e in finding.evidence}
    known |= {name: quantity(value, units.get(name, "number")) for name, value in finding.params.items()}
    return _NAME.sub(lambda name: known.get(name[0], name[0]), finding.condition)


def web_link(text: str | None) -> str | None:
    """The text if it is a plain web address that no medium can read as anything else."""
    return text if text and WEB.fullmatch(text) else None


def _code(text: str) -> str:
    return text.replace("`", "'")
