"""How far to trust what was measured, in one line: what it rests on, what is wrong with it, what was not judged."""

import re
from collections.abc import Iterator
from typing import Final

from advisor.model.clause import FRAGMENT
from advisor.model.report import Run
from advisor.present.next_recording import RECORDING, command, missing_options
from advisor.present.source import count_devices
from advisor.present.verdict import headline, in_brief
from advisor.text import capital, count, first_sentence, listing, ms
from advisor.vocabulary.parts import PARTS
from advisor.vocabulary.severities import SEVERITIES

TRUST: Final = "Trust in what was measured:"  # a saving is not: its interval says how sure it is


def trust(run: Run) -> str:
    """`high. 12 steps, 1 GPU, host recorded. Not judged: memory.`; where it is less, why, in the place of the basis."""
    why = (doubts(run)[:1] if run.trust != "high" else []) or [f"{capital(', '.join(filter(None, _basis(run))))}."]
    return " ".join(filter(None, (f"{run.trust}.", *why, *_unjudged(run))))


def record(run: Run) -> str:
    """The command that records what this recording lacks, ready to paste; empty where none would, or an action does."""
    names_it = advised(run) or any(RECORDING.search(first_sentence(action.do)) for action in run.listed)
    return command(run) if not names_it and (run.trust == "low" or missing_options(run)) else ""


def advised(run: Run) -> int | None:
    """The number of the first listed action that asks for another recording; None where none does."""
    listed = enumerate(run.listed, 1)
    return next((at for at, action in listed if action.records and "record" in first_sentence(action.do).lower()), None)


def is_about_recording(run: Run) -> bool:
    """Whether the recording is what the verdict is about: it is to blame, or shows no cause of the largest loss.

    Not where an action says so.
    """
    part = run.unexplained if run.outcome.code == "loss" else None
    is_known = part is not None and not part.reasons and part.part in PARTS and bool(PARTS[part.part].remedy)
    return not advised(run) and (run.trust == "low" or (run.outcome.code in {"loss", "too_little"} and not is_known))


def doubts(run: Run) -> list[str]:
    """What is wrong with the recording, the gravest first: a sentence each, and not again that of the headline."""
    verdict, notes = headline(run), {note.code: note for note in reversed(run.doubts)}  # one of all ranks' alike
    about = [f for of in SEVERITIES for f in run.findings if f.severity == of and (f.of_recording or f.lacks_work)]
    sentences = ["Most of the run has no kernel in the recording."] if notes.pop(FRAGMENT, None) else []
    above = {key for action in run.listed for key in action.findings}
    sentences += [
        f"{of.title}." if of.key in above or in_brief(of.says) in verdict else first_sentence(of.says) for of in about
    ]
    sentences += ["More rules could not be judged than could."] if run.tells_too_little and not sentences else []
    doubtful = {of.key for of in run.findings[:1] if of.confidence == "low"}
    sentences += [
        "Action 1 may not help: its finding has low confidence."
        for of in run.worthwhile[:1]
        if doubtful & {*of.findings} and not of.records
    ]
    return [*sentences, *(f"{capital(note.words.partition(';')[0])}." for note in reversed(notes.values()))]


def not_judged(run: Run) -> list[str]:
    """What the recording was made without, with the option that adds it where no command does: `memory`."""
    missing = missing_options(run)
    return [option.topic if command(run) else f"{option.topic} (`{option.option}`)" for option in missing]


def _basis(run: Run) -> Iterator[str]:
    source, steps = run.source, run.source.steps
    if steps.marked:
        has_all = steps.used == steps.count or steps.whole_mean_ms is not None
        yield count(steps.count, "step") if has_all else f"{steps.used:,} of {steps.count:,} steps"
    elif source.workload.kinds == ("collectives",):
        yield "a log has no steps"
    else:
        yield f"no steps marked{f', {ms(steps.step_ms)} used' if steps.step_ms is not None else ''}"
    yield count_devices(source)
    yield "host not recorded" if "host_ops" in source.lacks else "host recorded"


def _unjudged(run: Run) -> Iterator[str]:
    """What was not recorded; else how many rules were not judged, and why, where it is one reason."""
    if lacking := listing(not_judged(run)):
        yield f"Not recorded: {lacking}."
    elif unjudged := len(run.not_evaluable):
        reason = run.outcome.reason if run.outcome.reason_rules == unjudged else None
        why = f", because {re.split(' [(]|;', reason.words)[0]}" if reason else " (`-v`)"
        yield f"Not judged: {unjudged:,} of {count(run.outcome.judged + unjudged, 'rule')}{why}."
