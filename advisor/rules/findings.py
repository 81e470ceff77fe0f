"""A rule that fired as a finding: its sentence, its numbers, its places and its fixes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from advisor.model.finding import OUTLIERS, Evidence, Finding, Fix, Operator, Patch, Place, Reach, Saving, Symptom
from advisor.rules import wording
from advisor.rules.candidates import Candidate
from advisor.rules.evaluation import fixes_in_order, fixes_of_other_causes
from advisor.rules.measured_run import MeasuredRun
from advisor.rules.pools import Share
from advisor.text import UNKNOWN
from advisor.vocabulary.severities import SEVERITIES

_NO_FRAMEWORK: Final = "cuda"
_SITES: Final = {
    "https://docs.pytorch.org/": "pytorch",
    "https://www.tensorflow.org/": "tensorflow",
    "https://docs.jax.dev/": "jax",
}


def finding(candidate: Candidate, share: Share | None, symptoms: Iterable[Candidate], run: MeasuredRun) -> Finding:
    """The finding, with what is its share of the step.

    Raises:
        RuleError: a template cannot be filled with the run's numbers.
    """
    rule, worker = candidate.rule, candidate.worker
    metrics, saving = _metrics(candidate), _saving(candidate, share)
    # Where it holds: of a rule about the job the one rank that it is about, if there is one, else all.
    rank = candidate.row.get(rule.about.rank or "")
    of_job = (rank,) if isinstance(rank, int) else run.workers
    of_rule = candidate.workers if rule.scope == "worker" else of_job
    return Finding(
        key=rule.id,
        rule=rule.id,
        title=candidate.heading,
        severity=candidate.severity_of((saving.low_share + saving.high_share) / 2 if saving else 0.0),
        culprit=str(candidate.row.get(rule.about.culprit or "") or "") or None,
        loss=rule.about.loss,
        time_share=None if saving or not candidate.step_ms else candidate.time_ms / candidate.step_ms,
        of_recording=rule.about.recording,
        phase=rule.applies.phase[0] if rule.applies.phase and not rule.about.symptom else None,
        confidence=candidate.confidence,
        saving=saving,
        scope=Reach(workers=of_rule, steps=run.used_steps.get(worker) or (), told_of=worker),
        says=candidate.says,
        why=wording.prose(rule.why, on_device=candidate.on_device),
        evidence=_evidence(candidate, metrics),
        where=_places((rule.metric(name).name for name in metrics), worker, run),
        fixes=_fixes(candidate, run.frameworks.get(worker), run.format),
        symptoms=tuple(Symptom(rule=s.rule.id, title=s.heading, says=s.says, severity=s.severity) for s in symptoms),
        explains=rule.explains,
        docs=f"docs/rules/{rule.id}.md",
        condition=" ".join(rule.texts["when"].split()),
        references=tuple(f"{' '.join(r.what.split())}: {r.where}" for r in rule.references),
        params={name: value for name, value in rule.params.items() if name in rule.expressions()["when"].names},
    )


def sentence(candidate: Candidate, run: MeasuredRun) -> str:
    """What the rule says, with the run's numbers.

    Raises:
        RuleError: it cannot be said of them.
    """
    phrases = wording.PHRASES[run.used_steps.get(candidate.worker) is not None]
    if candidate.known("unprofiled_input_part") is not None:  # the metrics are of the recorded step, savings are not
        phrases = wording.OF_RECORDED_STEP
    elif candidate.row.get("whole_step_mean_ms") is not None:
        phrases = wording.OF_USUAL_STEP
    values = {**candidate.row, **candidate.rule.params, **phrases, wording.DEVICE: candidate.device}
    try:
        return wording.say(candidate.rule.says, values)
    except ValueError as error:
        raise candidate.rule.error(("says",), str(error)) from None


def _saving(candidate: Candidate, share: Share | None) -> Saving | None:
    """What is saved of the step that all times of a report are of."""
    rule, step_ms = candidate.rule, candidate.step_ms
    if share is None or rule.saving is None or not step_ms:
        return None
    is_of_outliers = share.parts.get(OUTLIERS, 0.0) > share.high_ms / 2
    of = OUTLIERS if is_of_outliers else candidate.pool or rule.saving.of
    # waits for other programs need not go with the work that they lengthen
    waits = candidate.known("run_delay_share") if candidate.known("unprofiled_step_ms") is None else None
    awaited, ends = candidate.row.get("awaited_part"), (share.low_ms * (1 - (waits or 0.0)), share.high_ms)
    low_ms, high_ms = (min(candidate.unprofiled(ms, share.parts), step_ms) for ms in ends)
    return Saving(
        low_ms=low_ms,
        high_ms=high_ms,
        low_share=low_ms / step_ms,
        high_share=high_ms / step_ms,
        of=of,
        parts={pool: candidate.unprofiled(ms, {pool: ms}) for pool, ms in share.parts.items()},
        shared_ms=candidate.unprofiled(share.shared_ms, {of: share.shared_ms}),
        after=awaited if isinstance(awaited, str) and awaited and of not in {awaited, OUTLIERS} else None,
        method=wording.prose(rule.saving.method, on_device=candidate.on_device),
    )


def _metrics(candidate: Candidate) -> tuple[str, ...]:
    """The metrics that the verdict rests on, then those the rule adds."""
    parsed = candidate.rule.expressions()
    judged = (name for key, e in parsed.items() if not key.startswith("saving") for name in sorted(e.names))
    return tuple(dict.fromkeys(name for name in (*judged, *candidate.rule.shows) if candidate.rule.has_metric(name)))


def _evidence(candidate: Candidate, metrics: Sequence[str]) -> tuple[Evidence, ...]:
    limits, declared = _limits(candidate), {name: candidate.rule.metric(name) for name in metrics}
    return tuple(
        Evidence(
            metric=declared[metric].name,
            value=candidate.row[metric],
            unit=declared[metric].unit,
            meaning=declared[metric].meaning,
            limit=limits.get(metric, {}).get("fires", (None, None))[1],
            limits={level: limits[metric][level][1] for level in SEVERITIES if level in limits.get(metric, ())},
            signs={level: sign for level, (sign, _) in limits.get(metric, {}).items() if sign != ">="},
            formula=wording.formula(declared[metric].formula, on_device=candidate.on_device) or None,
        )
        for metric in metrics
        if candidate.row[metric] is not None or metric not in candidate.rule.shows
    )


def _limits(candidate: Candidate) -> dict[str, dict[str, tuple[Operator, float]]]:
    """By metric, the limit from which the rule fires (`fires`), and from which it has each severity."""
    limits: dict[str, dict[str, tuple[Operator, float]]] = defaultdict(dict)
    for key, expression in candidate.rule.expressions().items():
        if key == "when" or key.startswith("severity."):
            for metric, limit in expression.limits(candidate.row, candidate.rule.params).items():
                limits[metric]["fires" if key == "when" else key.removeprefix("severity.")] = limit
    return limits


def _places(metrics: Iterable[str], worker: int, run: MeasuredRun) -> tuple[Place, ...]:
    """The places of the first metric that has any."""
    for metric in metrics:
        if (rows := run.places(metric, worker)).height:
            return tuple(Place.model_validate(row) for row in rows.to_dicts())
    return ()


def _fixes(candidate: Candidate, framework: str | None, format_: str) -> tuple[Fix, ...]:
    """The fixes for the job's framework; all of them if it is not known or the rule has none for it.

    Those whose condition is known not to hold are left out: they are of other causes.
    Only those that go with the profile's format, unless there is none. A program of no framework gets what is meant for
    any only if the rule has nothing for it.
    """
    ordered = fixes_in_order(candidate.rule, candidate.row)
    ordered = [fix for fix in ordered if not fix.format or format_ in fix.format] or ordered
    meant = [fix for fix in ordered if framework is None or fix.framework in {framework, "any"}]
    if framework == _NO_FRAMEWORK:
        meant = [fix for fix in meant if fix.framework == framework] or meant
    eligible, unfit = meant or ordered, fixes_of_other_causes(candidate.rule, candidate.row)
    return tuple(
        Fix(
            framework=fix.framework,
            do=" ".join(_filled(fix.do, candidate).split()),
            code=fix.code and _filled(fix.code, candidate),
            **fix.model_dump(include={"numerics", "choice", "cannot_show", "records"}),
            link=fix.link if _is_for(framework, fix.link or "") else None,
            patch=_patch(fix.trial, candidate),
            is_estimated=fix.estimated,
        )
        for fix in eligible
        if fix not in unfit
    )


def _is_for(framework: str | None, link: str) -> bool:
    """Whether a page is not of another framework's documentation, where the job's is known."""
    return framework is None or all(framework == of for site, of in _SITES.items() if link.startswith(site))


def _patch(trial: Mapping[str, bool | int | str] | None, candidate: Candidate) -> Patch | None:
    """How to try a fix, with this job's numbers; not where one of them is unknown or empty."""
    of = (trial or {}).items()
    filled = {key: _filled(value, candidate) if isinstance(value, str) else value for key, value in of}
    if not filled or {"", UNKNOWN} & {*filled.values()}:
        return None
    return Patch(name=str(filled.pop("patch")), arguments=filled)


def _filled(template: str, candidate: Candidate) -> str:
    try:
        return wording.fill(template, {**candidate.row, **candidate.rule.params})
    except ValueError as error:
        raise candidate.rule.error(("says",), str(error)) from None
