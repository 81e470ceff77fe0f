"""The verdict and the savings in sentences."""

import re
from typing import Final

from advisor.model.action import LARGE, Action
from advisor.model.clause import FRAGMENT, ONE_RUN
from advisor.model.finding import Entry, Finding, Saving
from advisor.model.report import Part, Run, number
from advisor.model.source import Steps
from advisor.present.source import idle_devices, is_on_cpu, left_out_steps, rank_name, unused_parts
from advisor.text import WIDE, capital, count, first_sentence, in_words, listing, ms, one_line, percent, shorter
from advisor.vocabulary.limits import HEALTHY_SHARE
from advisor.vocabulary.parts import LONG, PARTS, UNMARKED, part_short, part_words, pool_short

_LONG: Final = 140  # characters of a sentence: the list at its end is cut to what fits
_LEAST_ENTRIES: Final = 2  # of such a list: one alone may be the lesser part of it
_THREE_LINES: Final = 205  # characters
_LONGEST: Final = 60  # characters of a range's name
_TELLING: Final = 0.5  # of a loss: what takes less of it is no cause
_LARGE: Final = 0.2  # of the step: a smaller loss of unknown cause is said after what the device does
_LITTLE: Final = 0.01  # of the step: nobody waits for less
_WORTH_A_STEP: Final = 0.02  # of the step: less would be two lengths that look alike
_SILENT: Final = frozenset({"no_host_op", "no_host_event", "no_cpu_activity", "no_host_activity", "no_host_tracer"})
_UNKNOWN_PART: Final = "unknown"  # its name says that already
_OF_HOST: Final = frozenset({_UNKNOWN_PART, "host_busy", "between"})  # time in which what the host ran may be the cause
_SURELY: Final = 1.25  # times the low end: what is lost is known, though not how to save it
AFTER_OTHERS: Final = "After the others"  # which save some of the same time
LINES: Final = {"": "Largest lines", "jax": "Largest lines, with waits for dispatched work"}
"""What to call the lines that take most: JAX's may only wait for what was dispatched before."""
# What work may be needless in, by the rule that finds it in some recordings; none finds an algorithm
_UNCHECKED: Final = {"padding": "padding", "repeated-work": "repeated work", "": "another algorithm"}
_DEVICE: Final = "compute"  # the work of a device
_ONCE: Final = "start_up"
_ALONE: Final = "host-alone"  # a rule
_REMEDY: Final = re.compile(r" \((`.*)\)$")  # at the end of a reason: what would have recorded it


def verdict(run: Run) -> str:
    """The verdict in one sentence, and what qualifies it."""
    return " ".join(filter(None, (headline(run), *beside(run))))


def beside(run: Run) -> tuple[str, ...]:
    """What qualifies the headline: what is known of a cause, what of the recording is left out, and idle devices."""
    return qualified(run), _unused_time(run), idle_devices(run)


def headline(run: Run) -> str:
    """The verdict in one sentence; of one request alone, which may be no usual one, it says so."""
    claim, is_single = _claim(run), any(note.code == ONE_RUN for note in run.doubts)
    is_single &= run.outcome.code != "too_little"
    return f"In the one run recorded, {claim[:1].lower()}{claim[1:]}" if is_single and claim[1:2].islower() else claim


def _claim(run: Run) -> str:
    """The verdict in one sentence: the first finding and what it is worth, or what the absence of findings means."""
    known = run.outcome
    if known.code == "too_little":
        is_telling = known.reason and (run.tells_too_little or known.reason.code in {"unsound_times", "partial_lines"})
        why = known.reason.words if known.reason and is_telling else "nothing shows where the time goes"
        why = "the file is cut off, and no step is complete" if run.source.steps.are_cut else why
        return f"Too little was recorded to judge this job: {why}."
    if fragment := _fragment(run):
        return fragment
    if known.code == "finding":
        return " ".join(filter(None, _of_first(run.findings[0], run)))
    if known.code == "loss":
        return f"{_health('Nothing large to fix', run)} {loss(run)}" if is_optional(run) else loss(run)
    claim = "Nothing to fix" if known.code == "minor" else f"No problem found by {count(known.judged, 'rule')}"
    return _health(claim, run)


def _of_first(first: Finding, run: Run) -> tuple[str | None, ...]:
    """What the first finding says and saves; where most happens once, of what saves more of each step, and then that.

    Its title where that is sure: else its first sentence, because the size of the loss is all that is.
    """
    leads = next((a.findings for a in run.listed[:1] if run.is_mostly_once and a.sure_share >= LARGE), (first.key,))
    of = next(finding for finding in run.findings if finding.key in leads)
    worth, won, once = (
        _worth(of, run),
        of.saving,
        "" if of is first else f"{first_sentence(first.says).partition(': ')[0].removesuffix('.')}.",
    )
    if of.culprit and of.says.startswith(of.culprit):  # the place itself is what is wrong
        return in_brief(of.says), worth, _larger(won, run) if won else "", once
    if won and won.high_ms < won.low_ms * WIDE and not any(fix.records for fix in of.fixes[:1]):
        window = "each step" if run.source.steps.marked else UNMARKED
        size = f": {percent(of.sentence_share)} of {window}" if of.sentence_share else ""
        return f"{title(of, run)}{size}.", worth, _larger(won, run), once
    whose, says = _alone(of, run), in_brief(of.says)
    who = "" if re.search(rf"(?i)\b{re.escape(whose)}\b", says) else f"{capital(whose)}: "
    why = None if of.lacks_work or won or is_on_cpu(run) else run.source.lacks.get("device_ops")
    lacks = f"{capital(why.words)}." if why and why.code == "no_gpu_activity" else ""  # of a program that may use one
    return lacks, f"{who}{says}", worth, once


def _larger(won: Saving, run: Run) -> str:
    """`More time goes into input (33 %): action 2.`: the largest loss, where the first action cannot save as much."""
    part = next(iter(run.accounting.losses if run.accounting else ()), None)
    if part is None or part.share <= won.high_share or part.part not in PARTS:
        return ""
    keys = {of.key for of in run.findings if of.saving and {*of.saving.parts} & {*PARTS[part.part].pools}}
    at = next((n for n, action in run.numbered if keys & {*action.findings}), 1)
    return f"More time goes into {part_short(part.part)} ({percent(part.share)}): action {at}." if at > 1 else ""


def in_brief(says: str) -> str:
    """The first sentence; a long one with the first entries of the list at its end, and how many are smaller."""
    sentence = first_sentence(says)
    head, _, names = sentence.partition(": ")
    entries = names.split("), ")
    fit = (n for n in range(len(entries), 1, -1) if len("), ".join((head, *entries[:n]))) <= _LONG)
    least = _LEAST_ENTRIES - (len("), ".join((head, *entries[:_LEAST_ENTRIES]))) > _THREE_LINES)
    first = "), ".join(entries[: next(fit, least)])
    cut = names.removeprefix(first)
    is_short = len(cut) <= len("), and 1 smaller.") or head.count("(") != head.count(")")
    rest = "others" if ", others (" in cut else f"{cut.count('), ')} smaller"  # together they may take the most
    return sentence if is_short else f"{head}: {first}), and {rest}."


def _worth(first: Finding, run: Run) -> str | None:
    """What the first finding's action saves, which may mend others too: then by its number; None where nobody knows."""
    at, action = next(((n, a) for n, a in run.numbered if first.key in a.findings), (0, None))
    if action is None or first.saving is None or not action.step_ms:
        return saving(first, run.source.steps)
    low_ms, high_ms = at_stake(action, run)
    shares = {"low_share": low_ms / action.step_ms, "high_share": high_ms / action.step_ms}
    has_others = len(action.findings) > 1 + len(action.repeats)
    shares |= {"shared_ms": 0.0} if has_others else {}
    ends = first.saving.model_copy(update={"low_ms": low_ms, "high_ms": high_ms, **shares})
    whose = f"Action {at}" if at > 1 + run.records_first or has_others else "Fixing this"
    return saving(first.model_copy(update={"saving": ends}), run.source.steps, whose)


def at_stake(action: Action, run: Run) -> tuple[float, float]:
    """What an action saves at least and at most, in ms; of another recording, what is of the findings that it shows."""
    if action.low_ms is not None and action.high_ms is not None:
        return action.low_ms, action.high_ms
    savings = [finding.saving for finding in run.findings if finding.key in action.findings and finding.saving]
    return sum(saving.low_ms for saving in savings), sum(saving.high_ms for saving in savings)


def loss(run: Run) -> str:
    """`62 % of each step is communication that no computation overlaps.`; empty where that is not the verdict."""
    part = run.unexplained
    of = "the mean step" if part and part.part == LONG else each_step(run)  # a usual step has no such time
    return f"{percent(part.share)} of {of} ({ms(part.ms)}) is {part_words(part.part)}." if part else ""


def was_recorded(part: Part, steps: Steps) -> bool:
    """Whether recorded steps hold the part: steps that were timed without the profiler may be longer."""
    long_ms = sum(of.step_ms or 0 for of in steps.left_out if of.why.code == "outlier" and of.worker == steps.worker)
    return part.part != LONG or not steps.unprofiled_steps_ms or long_ms >= part.ms * steps.used


def place(part: Part | None, of: str = "") -> str:
    """`83 % of the host time outside of the framework's ops lies in `scores`.`; empty where no range holds most."""
    if part is None or part.range is None or part.range_share is None:
        return ""
    if any(reason.facts.get("range") == part.range for reason in part.reasons[:1]):  # those words name it
        return ""
    name = one_line(part.range, _LONGEST).replace("`", "'")
    subject = of or f"the {part_words(part.part).removeprefix('the ').partition(',')[0]}"
    return f"{percent(part.range_share)} of {subject} lies in the range `{name}`."


def cause(part: Part, run: Run) -> str:
    """What is known of the cause of a loss, or what kept it from being known."""
    if ran := _calls(part, run):
        return ran
    moves_ms = run.of_job.get("exposed_transfer_ms") if part.part == "collective" else None
    if isinstance(moves_ms, float) and moves_ms < _TELLING * part.ms:
        return f"At most {ms(moves_ms)} of it moves data; the rest is waiting for other ranks."
    silent = (why for rule in run.not_evaluable for why in rule.missing.values() if why.code in _SILENT)
    if not was_recorded(part, run.source.steps):
        return "No recorded step shows why: steps that were timed without the profiler are longer."
    reasons = part.reasons or [*silent] if part.part == _UNKNOWN_PART else part.reasons
    # A reason that is in a small part of the time is none of a loss that takes most of it.
    reasons = [
        why for why in reasons if not isinstance(of := why.facts.get("share"), float) or of >= _TELLING * part.share
    ]
    if reasons:
        known = [reason for reason in reasons if reason.code != "no_marks"] or reasons  # that names no cause
        return f"Cause unknown: {_REMEDY.sub('', known[0].words)}."
    if part.part in PARTS and PARTS[part.part].remedy:
        return PARTS[part.part].remedy if run.listed else ""  # else it is the action
    return "" if part.part == _UNKNOWN_PART else "No rule knows a cause of it."


def is_optional(run: Run) -> bool:
    """Whether a small loss of unknown cause is all that there is: nothing must be done."""
    return run.unexplained is not None and not run.worthwhile and run.unexplained.share < _LARGE


def remedy(run: Run) -> str:
    """What to do about a loss that no finding explains: what would show its cause, else what helps against its part."""
    is_advised = any(action.records for action in run.listed)
    part = run.unexplained if run.outcome.code == "loss" and not is_advised else None
    if part is None:
        return ""
    known = next(filter(None, (_REMEDY.search(reason.words) for reason in part.reasons)), None)
    own = PARTS[part.part].remedy if part.part in PARTS and not part.reasons and part.lines is None else ""
    do = f"To find the cause, record again: {known[1]}." if known else own
    return f"You need not do anything. Optional: {do[:1].lower()}{do[1:]}" if do and is_optional(run) else do


def _calls(part: Part, run: Run) -> str:
    """The lines of a loss; else what the host ran in half of the time of unknown cause or more, or calls around it."""
    if part.lines is not None:
        return (
            f"{LINES.get(run.source.framework or '', LINES[''])}: {in_words(part.lines)}."
            if part.lines
            else "It is between the ops of the training."
        )
    if part.part not in _OF_HOST or any(reason.code == "result_wait" for reason in part.reasons):
        return ""
    ran, share, around = (run.of_job.get(of) for of in ("open_calls", "open_calls_part", "open_place"))
    if ran and isinstance(share, float) and share >= _TELLING:
        return f"During {percent(share)} of it the host is in {in_words(ran)}."
    return f"What the host does then was not recorded. Most of it lies {in_words(around)}." if around else ""


def _health(claim: str, run: Run) -> str:
    """`Nothing to fix: the GPU is busy 99 % of each step; ...`; of work that no rule knows, only what is lost."""
    known = run.accounting
    if known is None:
        return f"{claim}."
    busy = f"is busy {percent(known.busy_share)} of {each_step(run)}"
    works = any(part.part == _DEVICE for part in known.parts if part.is_useful)
    if not (works and run.source.devices) or run.source.framework == "cuda":  # of whose kernels the rules know little
        claim = "No known fault was found" if known.busy_share >= HEALTHY_SHARE else "No large loss was found"
    device, work = ("GPU", "kernels") if works else ("CPU", "ops")
    judged = {*run.passed, *(finding.rule for finding in run.findings)}
    unchecked = (what for rule, what in _UNCHECKED.items() if rule not in judged)
    return f"{claim}: the {device} {busy}. Not checked: {listing([f'faster {work}', *unchecked])}."


def per_step(run: Run) -> str:
    """` a step`, ` a step on average` where long steps are in the mean; empty where no steps are marked."""
    steps = run.source.steps
    return (" a step on average" if steps.is_mean else " a step") if steps.marked else ""


def each_step(run: Run) -> str:
    """`each step`, or `the 13 ms used`."""
    steps = run.source.steps
    return "each step" if steps.marked or steps.step_mean_ms is None else f"the {ms(steps.step_mean_ms)} used"


def _unused_time(run: Run) -> str:
    """`91 % of the recording is left out: start-up (34 s).`, and what of the bar is start-up; empty where it is little.

    Of a headline about start-up, which says the first, what else is left out.
    """
    parts = unused_parts(run)
    if not parts or _fragment(run):
        return ""
    bar, once, window = run.accounting.parts if run.accounting else (), part_short(_ONCE), each_step(run)
    shared = sum(part.share for part in bar if part.part == _ONCE and once in in_words(parts))
    is_of_once = run.is_mostly_once or (run.findings[:1] and run.findings[0].loss == "once")
    if is_of_once:
        shared = max(shared, number(run.of_pace, "once_step_share"))  # which counts compilation too
        parts = _unsaid(parts, once, run)
    share = percent(number(run.of_pace, "left_out_share"))
    others = ", ".join(filter(None, (in_words(parts), left_out_steps(run))))
    beside = f"{'Also' if is_of_once else f'{share} of the recording is'} left out: {others}." if others else ""
    too = f"{percent(shared)} of {'that' if is_of_once else window} is {once} too." if shared >= _LITTLE else ""
    if is_of_once:
        says = f"The bar shows only {'a step' if run.source.steps.marked else window}.", too, beside
    else:
        says = beside, too and f"Another {too}", ""
    return " ".join(filter(None, says))


def _unsaid(parts: tuple[Entry, ...], once: str, run: Run) -> tuple[Entry, ...]:
    """The parts without what the headline says: start-up, or the longest other where the host works alone."""
    others = [part for part in parts if once not in part.name]
    if not (others and run.findings[:1] and run.findings[0].rule == _ALONE):
        return tuple(others)
    longest = max(others, key=lambda part: part.ms or 0.0)
    return tuple(part for part in parts if part is not longest)


def _fragment(run: Run) -> str:
    """`Kernels were recorded in only 21 ms of 705 ms: all numbers are of those.`; empty where not so, or none was."""
    spans = next((note.facts for note in run.source.salvaged if note.code == FRAGMENT), None)
    if spans is None or not spans["kernels"]:
        return ""
    kernels, host = (ms(float(spans[of])) for of in ("kernels", "host"))
    return f"Kernels were recorded in only {kernels} of {host}: all numbers are of those."


def qualified(run: Run) -> str:
    """The cause of a loss, or why that many rules could not be judged; empty where the verdict is a finding."""
    known = run.outcome
    if known.code == "loss":
        part = run.unexplained
        return " ".join(filter(None, (place(part, "that"), cause(part, run) if part else "")))
    if known.code == "finding" or run.source.steps.are_cut:
        return ""
    if known.code == "too_little":
        return "None of its steps is complete." if run.source.steps.marked and not run.source.steps.used else loss(run)
    share = 1 - run.accounting.busy_share if run.accounting else 0.0
    if run.accounting is None or not _WORTH_A_STEP <= share < 1:
        return ""
    of = f"each {ms(run.accounting.step_ms)} step" if run.source.steps.marked else each_step(run)
    work = {part_short(part.part): part.ms for part in run.accounting.parts if part.is_useful}
    beside = f"Outside of {max(work, key=work.__getitem__)}, at most" if work else "At most"
    return f"{beside} {ms(share * run.accounting.step_ms)} of {of} ({percent(share)}) could be saved."


def title(finding: Finding, run: Run) -> str:
    """The finding's title and the one rank, host or line that it is about: `Ranks wait for a slow one (rank 3)`."""
    who = _alone(finding, run) or finding.culprit
    return f"{finding.title} ({who})" if who and who not in finding.title else finding.title


def _alone(finding: Finding, run: Run) -> str:
    """The one rank of several that a finding is about; empty where it is about more."""
    workers = finding.scope.workers
    return rank_name(run.source, workers[0]) if len(run.source.workers) > 1 and len(workers) == 1 else ""


def saving(finding: Finding, steps: Steps, fix: str = "Fixing this") -> str | None:
    """`Fixing this saves 35-59 ms of each 178 ms step.`, or that it may be nothing; None without an estimate."""
    won = finding.saving
    if won is None:
        return None
    fix = f"{AFTER_OTHERS}, {fix[:1].lower()}{fix[1:]}" if won.is_rest else fix
    if won.high_share <= 0:
        return f"{fix} saves nothing." if won.is_rest else f"{fix} alone saves nothing: something else takes as long."
    whole_ms = won.high_ms / won.high_share
    known = shorter(whole_ms, won.low_ms, won.high_ms)
    if any(fix.records for fix in finding.fixes[:1]):
        without = f"Without it, {'a step' if steps.marked else 'the time used'} would be {known.saved} shorter."
        return without if won.high_ms <= _SURELY * won.low_ms else None
    step = f"the mean step of {known.before}" if steps.is_mean else f"each {known.before} step"
    of = f" of {step}" if steps.marked else f" of the {known.before} used"
    if won.after:
        return f"{until(won.after)}; then this saves {known.saved}{of}."
    if won.high_ms < won.low_ms * WIDE:
        return f"{fix} saves {known.saved}{of}."
    least, most = known.ends
    return f"{fix} may save up to {most}{of}, or {f'only {least}' if float(least.split()[0]) else 'nothing'}."


def until(part: str) -> str:
    """`This saves nothing until the data loader keeps up`: what has to get shorter first."""
    first = {"input": "the data loader keeps up", "host_busy": "what the host waits for comes sooner"}
    return f"This saves nothing until {first.get(part) or f'less time goes into {pool_short(part)}'}"


def saved_time(won: Saving) -> str:
    """`35-59 ms`; `35-59 ms, after input` where that has to get shorter first, `after the others` if they save some."""
    after = f", after {pool_short(won.after)}" if won.after else f", {AFTER_OTHERS.lower()}" * won.is_rest
    if won.high_share <= 0:
        return "nothing"
    return shorter(won.high_ms / won.high_share, won.low_ms, won.high_ms).saved + after
