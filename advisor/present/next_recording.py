"""How far to trust what was measured, in one line, and how to record what this profile lacks: next_recording.yaml."""

import re
from collections.abc import Iterator
from math import inf
from textwrap import wrap
from typing import Final

import msgspec

from advisor.model.clause import FRAGMENT
from advisor.model.finding import CERTAINTY, Confidence, Finding, grade
from advisor.model.report import Run, number
from advisor.present.verdict import headline, in_brief, remedy, title, was_recorded
from advisor.text import capital, first_sentence, listing, percent
from advisor.vocabulary.limits import table
from advisor.vocabulary.parts import PARTS
from advisor.vocabulary.severities import SEVERITIES


class Option(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to record next time: an option of a profiler, what it is about, what it adds, and the reasons that it ends.

    `flag` is the option of `advisor record` that sets it, empty where that is set by default; `substitute` a metric
    that is known only where something else recorded as much.
    """

    option: str
    topic: str
    adds: str
    reasons: tuple[str, ...]
    flag: str = ""
    substitute: str = ""


class _Profiler(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"of": "for"}):
    """A profiler's options, and a command to paste that records with some of them."""

    format: str
    options: str
    of: str = ""
    command: str = "advisor record{} -- COMMAND"


class _Recipes(msgspec.Struct, forbid_unknown_fields=True):
    options: dict[str, tuple[Option, ...]]
    profilers: tuple[_Profiler, ...]
    measured: dict[str, str]
    surer: dict[str, dict[str, str]]
    in_doubt: dict[str, str]


_RECIPES: Final = msgspec.convert(table(__file__, "next_recording"), _Recipes)
RECORDING: Final = re.compile(r"`(advisor record (?:--[a-z]+ (?:\d+ )?)*-- COMMAND)`")  # no other: a fix has names
NSYS: Final = "nsys profile "
_OF_NSYS: Final = re.compile(rf"`{NSYS}(?![^`]*=none)[^`]*`")  # none that records less
_OPTION: Final = re.compile(r"(--[a-z-]+)=[\w,-]+")  # of Nsight Systems


def recording(run: Run) -> str:
    """`` `advisor record --memory -- COMMAND`; by hand: `profile_memory=True` (how full the memory is)``.

    The command that records what this profile lacks, where there is one, and the profiler's own options that do so.
    """
    options = [f"`{option.option}` ({option.adds})" for option in missing_options(run)]
    by_hand = f"{'by hand' if command(run) else 'the profiler'}: {listing(options)}" if options else ""
    return "; ".join(filter(None, (command(run) and f"`{command(run)}`", by_hand)))


def command(run: Run) -> str:
    """A command to paste that records what this profile lacks; empty of an engine, which starts its profiler itself."""
    known = _profiler(run).command
    texts = [action.do for action in run.listed if action.records and known.startswith(NSYS)]
    options = [of[0] for do in texts[:1] for of in _OPTION.finditer(do)]
    if (part := run.unexplained) and not was_recorded(part, steps := run.source.steps):
        options.append(f"--active {steps.count + len(steps.unprofiled_steps_ms)}")
    options += [of.option if of.option.startswith("--") else of.flag for of in missing_options(run)]
    flags = {name: f" {option}" for option in options if (name := option.partition("=")[0]) and f"{name}=" not in known}
    return known.format("".join(flags.values()))


def combined(do: str, run: Run, *, asks: bool) -> str:
    """What to do, with the one command that records all that is lacking where it names one or `asks` for it."""
    known = command(run)
    if known.startswith(NSYS):
        full = _OF_NSYS.sub(f"`{known}`", do) if asks else do
    else:
        every = known.removesuffix("-- COMMAND")
        full = RECORDING.sub(lambda of: f"`{' '.join(dict.fromkeys(f'{every}{of[1]}'.split()))}`", do)
    return f"{full.removesuffix('.')}: `{known}`." if asks and known and "COMMAND`" not in full else full


def answered(run: Run) -> list[str]:
    """The rules that could not be judged for the lack of these options."""
    codes = {code for option in missing_options(run) for code in option.reasons}
    return [rule.rule for rule in run.not_evaluable if any(why.code in codes for why in rule.missing.values())]


def missing_options(run: Run) -> list[Option]:
    """The profiler's options that would have recorded what this profile lacks."""
    reasons = [*run.source.lacks.values(), *(why for rule in run.not_evaluable for why in rule.missing.values())]
    missing = {why.code for why in reasons}
    options = _RECIPES.options.get(_profiler(run).options, ())
    return [of for of in options if missing & {*of.reasons} and run.of_pace.get(of.substitute) is None]


def _profiler(run: Run) -> _Profiler:
    ways = {each.of: each for each in _RECIPES.profilers if each.format == run.source.format}
    kinds = run.source.workload.kinds
    of = (kinds[0] if len(kinds) == 1 else "", run.source.framework or "")
    return next((ways[each] for each in of if each and each in ways), ways.get("", _Profiler("", "", command="")))


_WORTH_A_WORD: Final = 0.03  # of the time: nobody asks what the profiler takes below that
_MUCH: Final = 0.05  # of the time: a part without a recorded cause weakens what is said of the others
_CLAUSE: Final = re.compile(r", (?:so|and) ")
_PURPOSE: Final = re.compile(r", to see how [^:.`]*")  # of what to do: nobody needs it to do so
_COLUMNS, _MOST_LINES = 80, 2  # of the screen that the trust takes
_LAST_COMMAND: Final = re.compile(r"(?<=:) `[^`]*\bCOMMAND`\.$")
_EXPLAINS: Final = re.compile(r"[:;] ")
_FEW: Final = "few_steps"  # of next_recording.yaml
_LEAVES_OUT: Final = "seldom"  # a patch that runs a line in few steps: a cheaper line saves less
TRUST: Final = "Trust:"


def trust(run: Run) -> tuple[str, str]:
    """How far to trust what was measured and what action 1 saves, in two lines of a screen; what else weakens it."""
    weak, own = doubts(run), saving_trust(run)
    do = "" if not weak or (is_about_recording(run) and record(run)) else _surer(run)
    surer = [f"To be surer, {do[:1].lower()}{_PURPOSE.sub('', do[1:])}"] if do else []
    level = run.trust if weak or run.trust == "high" else f"{run.trust}, as it does not prove the cause"
    if own:
        least = max(own, run.trust, key=[*CERTAINTY].index)
        level += ", in the saving too" if least == run.trust else f"; in the saving: {least}"
    says, *others = [*weak, *_gaps(run, " ".join(weak))] or [""]
    line = [f"{level}.", *filter(None, [says])]
    if not _fits([*line, *surer]):  # the doubt without what it makes unsure
        line[1:] = [f"{_CLAUSE.split(says)[0].removesuffix('.')}."] if says else []
    behind: list[str] = []
    for other in others:
        (line if _fits([*line, other, *surer]) else behind).append(other)
    return " ".join([*line, *surer]), " ".join(behind)


def _fits(sentences: list[str]) -> bool:
    """Whether two lines of a screen hold them; a command has a line of its own."""
    return len(wrap(_LAST_COMMAND.sub("", f"{TRUST} {' '.join(sentences)}"), _COLUMNS)) <= _MOST_LINES


def saving_trust(run: Run) -> Confidence | None:
    """How well its range says what action 1 saves, low where that is not known; None where it is to save nothing."""
    first = next(iter(run.listed), None)
    if first is None or first.records or run.length_ms is None or (first.high_ms is not None and first.high_ms <= 0):
        return None
    return grade(range=first.high_ms / first.low_ms if first.high_ms and first.low_ms else inf)


def measures(run: Run) -> str:
    """The command that measures the first action: one that tries it, or that records what comes of an edit."""
    at, first = next(iter(run.numbered), (0, None))
    patches = (of.fixes[:1] for of in run.findings if first and of.key == first.findings[0])
    patch = next((fix.patch for fixes in patches for fix in fixes), None)
    if first and patch is not None:
        values = ",".join(f"{name}={value}" for name, value in patch.arguments.items())  # of this recording
        switch = f"--patch {patch.name}:{values}" if values else f"--fix {first.findings[0]}"
        what = f"the most that action {at} can save" if patch.name == _LEAVES_OUT else f"action {at}"
        return f"To measure {what}: `advisor try {switch} -- COMMAND`"
    if saving_trust(run) is None:
        return ""
    known, is_known = _profiler(run).command.format(""), is_about_recording(run) or "COMMAND`" in trust(run)[0]
    if is_known or run.records_first or advised(run) or not known:
        return f"`advisor compare BEFORE AFTER` shows what action {at} saved."
    return f"To measure action {at}, record after it, then `advisor compare BEFORE AFTER`: `{known}`"


def _gaps(run: Run, above: str) -> Iterator[str]:
    """What the recording does not show, or shows of the profiler's own work, and the words `above` do not say."""
    losses, cost = run.accounting.losses if run.accounting else (), number(run.of_job, "tracing_share")
    causes = {of.loss for of in run.findings if of.lacks_work} | {run.unexplained.part if run.unexplained else ""}
    unknown = [of.share for of in losses if of.part == "unknown" and of.share >= _MUCH and of.part not in causes]
    yield from (f"{percent(share)} of the time has no recorded cause." for share in unknown)
    if cost >= _WORTH_A_WORD and "profiler" not in above and run.source.steps.unprofiled_ms is None:
        yield f"At most {percent(cost)} of the time is the profiler's own work."
    topics = [of.topic if command(run) else f"{of.topic} (`{of.option}`)" for of in missing_options(run)]
    if lacking := [topic for topic in topics if topic not in above]:
        yield f"Not recorded: {listing(lacking)}."
    keys = {key for action in run.listed for key in action.findings}
    ended = (of for of in run.findings[1:] if of.loss == "unknown" and not of.of_recording and of.key not in keys)
    yield from (min(first_sentence(of.says), f"{of.title}.", key=len) for of in ended)


def _surer(run: Run) -> str:
    """What to do about what weakens the trust, another recording before all else."""
    steps = [first_sentence(of.do) for each in _on_recording(run) for of in each.fixes_for(run.source.framework)[:1]]
    places = ("any", run.source.format, f"{run.source.format} {run.source.framework}")
    known = {code: do for place in places for code, do in _RECIPES.surer.get(place, {}).items()}
    weak = [*(note.code for note in run.doubts), *[_FEW] * run.source.steps.are_few, *run.weakens]
    steps += [known[code] for code in weak if code in known]
    do = next(iter([*(of for of in steps if "record" in of.lower()), *steps]), "")
    same = (at for at, action in run.numbered if first_sentence(action.do) == do)
    if at := next(same, advised(run)):
        is_other = "COMMAND" in do or "record again" not in do or _on_recording(run)
        return f"do action {at}." if is_other else do.replace("record again", f"do action {at}")
    bare = _OF_NSYS.sub("", do)
    return combined(do, run, asks="COMMAND`" in do) if bare == do else f"{bare.rstrip(': .')}."


def record(run: Run) -> str:
    """The command that records what this recording lacks, ready to paste; empty where none would, or an action does."""
    calls_none = any(why.code == "no_cuda_called" for why in run.source.lacks.values())
    names_it = calls_none or advised(run) or any(RECORDING.search(first_sentence(action.do)) for action in run.listed)
    return command(run) if not names_it and (run.is_unsound or missing_options(run)) else ""


def advised(run: Run) -> int | None:
    """The number of the first listed action that asks for another recording; None where none does."""
    return next((at for at, action in run.numbered if action.is_recording), None)


def is_about_recording(run: Run) -> bool:
    """Whether the recording is what the verdict is about: it is to blame, or shows no cause of the largest loss.

    Not where an action says so.
    """
    part = run.unexplained if run.outcome.code == "loss" else None
    is_known = part is not None and not part.reasons and part.part in PARTS and bool(PARTS[part.part].remedy)
    is_action = advised(run) or (not run.listed and RECORDING.search(remedy(run)))  # which then is the action
    return not is_action and (run.is_unsound or (run.outcome.code in {"loss", "too_little"} and not is_known))


def doubts(run: Run) -> list[str]:
    """What is wrong with the recording, the gravest first, with what that puts in doubt, and not again the headline."""
    if run.trust == "high":
        return []
    verdict, notes = headline(run), {note.code: note for note in reversed(run.doubts)}  # one of all ranks' alike
    wrong = [("", "Most of the run has no kernel in the recording.")] if notes.pop(FRAGMENT, None) else []
    above = {key for action in run.listed for key in action.findings}
    pace, used = (None, run.source.steps.worker), run.source.steps.used  # of another rank no number is told here
    wrong += [
        (of.rule, title(of, run))
        if of.key in above or of.scope.told_of not in pace or in_brief(of.says) in verdict
        else (of.rule, first_sentence(of.says))
        for of in _on_recording(run)
    ]
    wrong += [("", "More rules could not be judged than could.")] if run.tells_too_little and not wrong else []
    wrong += [(note.code, note.words) for note in reversed(notes.values())]
    which = "usual ones" if run.source.steps.is_mean else "used"  # long ones are in the mean
    wrong += [(_FEW, f"Only {used} steps are {which}")] if run.source.steps.are_few else []
    wrong = [(code, says) for code, says in wrong if code not in run.weakens]
    known = [_RECIPES.measured[of].format(percent(value)) for of, value in run.weakens.items()]
    brief = ((_EXPLAINS.split(says)[0].removesuffix("."), _RECIPES.in_doubt.get(code)) for code, says in wrong)
    others = [f"{capital(says)}{f', so {what}' if what else ''}." for says, what in brief]
    return list(dict.fromkeys([*known, *others] if grade(**run.weakens) == "low" else [*others, *known]))


def _on_recording(run: Run) -> list[Finding]:
    """The findings that the recording is about, the gravest first."""
    return [f for of in SEVERITIES for f in run.findings if f.severity == of and (f.of_recording or f.lacks_work)]
