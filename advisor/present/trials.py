"""Trials as a document: what each fix was worth on the job, beside what its finding had said; a what-if in words."""

from collections.abc import Iterator
from typing import Final

from advisor.model.trials import TOGETHER, Gain, Result, Training, Trial, Trials
from advisor.present import document as doc
from advisor.text import UNKNOWN, capital, count, interval, listing, ms, percent, shorter, without_shared_unit
from advisor.whatif.scenario import Scenario

_RESULTS: Final[dict[Result, str]] = {
    "faster": "faster",
    "slower": "slower",
    "same": "no difference",
    "unclear": UNKNOWN,
    "not_applied": "not applied",
    "failed": "failed",
    "not_tried": "not tried",
}
_STEADY: Final = 1.1  # between runs: what differs less is one number to a reader
_WIDEST: Final = 2.0  # of an interval that tells anything: twice the step
_TOO_WIDE: Final = "could not tell, it is too busy or the time too short"
_TONES: Final[dict[Result, doc.Tone]] = {"faster": "good", "slower": "bad", "failed": "warning"}
_TRAINING: Final[dict[Training, str]] = {
    "same": "the same",
    "rounding": "the same up to rounding",
    "different": "differs",
    "unknown": "not compared",
}
_MINUS: Final = "\N{MINUS SIGN}"
_ARROW: Final = "\N{RIGHTWARDS ARROW}"
_HEADS: Final = tuple(map(doc.Head, ("Fix", "Claimed", "Measured (95 %)", "Step", "Training", "Result")))
_MOST_FILES: Final = 20


def document(trials: Trials) -> doc.Document:
    """The trials as a document."""
    article = doc.Article(
        id="trials",
        name=trials.program,
        headline=headline(trials),
        beside="Ctrl-C or a signal ended the session: what was known by then." if trials.is_cut else "",
        facts=tuple(_facts(trials)),
        sections=tuple(_sections(trials)),
        tone="good" if _best(trials) else "strong",
    )
    return doc.Document("trials", article.headline, article.headline, trials.advisor_version, (article,))


def headline(trials: Trials) -> str:
    """The most that a trial gained, else what came of them; and the largest finding, where that cannot be tried."""
    claim = trials.largest_untried
    if claim is None:
        return _outcome(trials)
    saves = _range(1 - claim.low_share, 1 - claim.high_share)
    return f"{_outcome(trials)}. The largest finding has no patch: {trials.untried[0]}, {saves}"


def _outcome(trials: Trials) -> str:
    if best := _best(trials):
        return f"{title(best)}: {_steps(best)} a step, {saved(best.gain)}"
    results = {trial.result for trial in trials.trials}
    if trials.step_ms is None and (trials.notes or results):
        return f"Nothing measured: {trials.notes[-1].words}" if trials.notes else "Nothing measured"
    if "unclear" in results:
        return _undecided(trials)
    if results & {"same", "slower"}:
        return "No fix made the steps shorter"
    ceiling = next((trial for trial in trials.trials if trial.is_ceiling and trial.result == "faster"), None)
    if ceiling:
        return f"No fix was measured; perfect input: {_steps(ceiling)} a step, {saved(ceiling.gain)}"
    over = f"No fix was tried: the {'session ended' if trials.is_cut else 'time is over'}"
    return over if results <= {"not_tried"} else "No fix could be measured"


def _undecided(trials: Trials) -> str:
    """What the most promising fix came to where the runs differ too much to tell."""
    unclear = [trial for trial in trials.trials if trial.result == "unclear" and trial.gain and trial.gain.ratio < 1]
    if not unclear:
        return "Could not tell whether a fix makes the steps shorter"
    most = min(unclear, key=lambda trial: trial.gain.ratio if trial.gain else 1.0)
    return f"Could not tell whether {title(most)} makes the steps shorter: {_steps(most)}, but the runs differ too much"


def title(trial: Trial) -> str:
    """What was tried: `optimizer (implementation=fused)`."""
    uses = [(use.patch, ", ".join(f"{n}={str(of).lower()}" for n, of in use.arguments.items())) for use in trial.uses]
    return " + ".join(f"{patch} ({values})" if values else patch for patch, values in uses) or trial.name


def result(trial: Trial) -> str:
    """What came of it, in a word or two."""
    return _RESULTS[trial.result]


def saved(gain: Gain | None) -> str:
    """`-10.5 % (95 % interval: -12.0 to -9.1 %)`; a plus where steps take longer."""
    if gain is None:
        return UNKNOWN
    return f"{_signed(gain.ratio)} (95 % interval: {_range(gain.low, gain.high)})"


def _range(*ratios: float) -> str:
    """`-12.0 to -9.1 %`: the least first."""
    low, high = map(_signed, sorted(ratios))
    return f"{without_shared_unit(low, high)} to {high}"


def _signed(ratio: float) -> str:
    change = 100 * (ratio - 1)
    digits = 0 if abs(change) >= 99.5 else 1  # noqa: PLR2004 - three digits
    return f"{_MINUS if change < 0 else '+'}{abs(change):,.{digits}f} %"


def _best(trials: Trials) -> Trial | None:
    faster = [trial for trial in trials.trials if trial.is_recommended and trial.gain]
    return min(faster, key=lambda trial: trial.gain.ratio if trial.gain else 1.0, default=None)


def _steps(trial: Trial) -> str:
    before, after = ms(trial.before_ms), ms(trial.after_ms)
    return f"{without_shared_unit(before, after)} {_ARROW} {after}"


def _facts(trials: Trials) -> Iterator[str]:
    if trials.step_ms is not None:
        times_ms = [trials.step_ms, *(trial.before_ms for trial in trials.trials if trial.before_ms)]
        low, high = min(times_ms), max(times_ms)  # the machine was not as busy in each run
        several = f"{interval(low, high)} per step as it is, from run to run: each row compares steps of one time"
        yield f"{ms(times_ms[0])} per step as it is" if high <= _STEADY * low else several
    if trials.spread:
        is_wide = trials.spread.high > _WIDEST
        yield f"this machine against itself: {_TOO_WIDE if is_wide else saved(trials.spread)}"
    if trials.ranks > 1:
        yield f"{trials.ranks} ranks, the slowest counts"
    yield f"{ms(1e3 * trials.seconds)} for all runs"


def _sections(trials: Trials) -> Iterator[doc.Section]:
    if trials.trials:
        rows = tuple(map(_row, trials.trials))
        yield doc.Section("Claimed and measured", (doc.Table(_HEADS, rows),), id="trials-table", is_lead=True)
        lines = tuple(line for trial in trials.trials for line in _remarks(trial))
        if lines:
            yield doc.Section("Remarks", (doc.Lines(lines),), id="trials-remarks")
    if trials.untried:
        names = listing([f"`{name}`" for name in trials.untried])
        command = f"`advisor rules show {trials.untried[0]}` prints the fix"
        text = doc.Text(f"No patch makes the change from outside for {names}: {command}.")
        yield doc.Section("Not tried", (text,), id="trials-untried")
    if trials.notes and trials.step_ms is not None:
        yield doc.Section("Notes", (doc.Lines(tuple(note.words for note in trials.notes)),), id="trials-notes")
    if trials.files:
        yield doc.Section("Files that a run writes", (doc.Lines(trials.files[:_MOST_FILES]),), id="trials-files")


def _row(trial: Trial) -> doc.Row:
    measured = saved(trial.gain).replace("95 % interval: ", "") if trial.gain else ""
    name = f"{trial.name}: {title(trial)}" if trial.rule or trial.name == TOGETHER else title(trial)
    steps = _steps(trial) if trial.before_ms and trial.after_ms else ""
    plain = map(doc.Cell, (name, claimed(trial), measured, steps, _TRAINING[trial.training] if trial.gain else ""))
    return doc.Row((*plain, doc.Cell(result(trial), tone=_TONES.get(trial.result, "plain"))))


def claimed(trial: Trial) -> str:
    """What the finding says of it: `-39.0 to -13.0 %`; empty where there is none."""
    return _range(1 - trial.claimed.low_share, 1 - trial.claimed.high_share) if trial.claimed else ""


def _remarks(trial: Trial) -> Iterator[str]:
    name = title(trial)
    if trial.reasons:
        subject = f"{name}, {result(trial)}" if trial.gain is None else name
        yield f"{subject}: {'; '.join(reason.words for reason in trial.reasons)}."
    if trial.is_ceiling and trial.is_clear:
        yield f"With perfect input a step takes {ms(trial.after_ms)}: no work on input saves more."
    if trial.gain and trial.claimed and trial.is_clear:
        if trial.gain.low > 1 - trial.claimed.low_share:
            yield f"{name} saves less than the finding claims."
        if trial.gain.high < 1 - trial.claimed.high_share:
            yield f"{name} saves more than the finding claims."
    if trial.result == "slower":
        yield f"{name} makes the steps longer: not recommended."
    if trial.result == "unclear" and trial.gain:
        yield f"{name}: {UNKNOWN}, \N{PLUS-MINUS SIGN}{percent(trial.gain.half_width)}; give more time with `--budget`."
    if trial.training == "different" and not trial.is_ceiling:
        yield f"{name} changes the numbers of the training: compare the loss before you keep it."
    if trial.gain and trial.gain.spread is not None:
        pairs = count(trial.gain.pairs, "pair")
        kind = "blocks of steps" if trial.by == "blocks" else "processes"
        yield f"{name}: {pairs} of {kind}; neighbours of one setting differ by {percent(trial.gain.spread)}."


_LITTLE: Final = 0.005  # of the step: less reads like nothing


def sentences(scenario: Scenario) -> Iterator[str]:
    """`A step takes 71 ms. The data loader sets the pace.`, then a line for each change, with those before it.

    Then one for each that was refused, with the reason, and how much of the recording was replayed.
    """
    step = "A step takes" if scenario.of_steps else "No steps are marked. All that is used takes"
    yield f"{step} {ms(scenario.step_ms)}. {capital(scenario.pace)} sets the pace."
    before = (scenario.step_ms, scenario.step_ms)
    for number, stage in enumerate(scenario.stages):
        change, ends = f"With {stage.change}{' too' if number else ''}", (stage.low_ms, stage.high_ms)
        if max(abs(now - then) for now, then in zip(ends, before, strict=True)) < _LITTLE * scenario.step_ms:
            yield f"{change}: saves nothing{' more' if number else ''}. {capital(stage.pace)} sets the pace."
        else:
            then = shorter(scenario.step_ms, scenario.step_ms - stage.high_ms, scenario.step_ms - stage.low_ms)
            why = f" {capital(stage.why)}." if stage.why else ""
            yield f"{change}: {then.change}. Then {stage.pace} sets the pace.{why}"
        before = ends
    yield from (f"{change} is left out: {why}." for change, why in scenario.refused.items())
    ranks = f" of each of {scenario.ranks} ranks" if scenario.ranks > 1 else ""
    of = f"{scenario.steps} of {count(scenario.of_steps, 'complete step')}" if scenario.of_steps else "what is used"
    yield f"Replayed: {of}{ranks}. Without a change, the replay is off by {percent(scenario.off)}."
