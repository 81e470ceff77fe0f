"""What a trial showed, judged: faster, slower, the same, not to be told, not applied, failed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.model.clause import Missing
from advisor.model.reason import Reason
from advisor.model.trials import Gain, Result, Trial
from advisor.trials import timings
from advisor.trials.ideas import Idea
from advisor.trials.processes import Ended
from advisor.trials.timings import LEAST_PAIRS


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured of some patches: `patched` is the first run with them, `last` the last run of all.

    `is_over_time` says that the time was over, not the program.
    """

    by: Literal["blocks", "processes"]
    turns: Sequence[timings.Block]
    gain: Gain | None
    is_reached: bool
    patched: Ended
    last: Ended
    is_over_time: bool = True

    @property
    def digest(self) -> float | None:
        """Of the parameters after the first steps with the patches."""
        ready = timings.ready(self.patched.events)
        return ready.digest if ready else None


def trial_of(idea: Idea, evidence: Evidence, digests: Sequence[float | None], seconds: float) -> Trial:
    """The result, with what it rests on."""
    account = timings.account(evidence.patched.events)
    result = _result(evidence, account)
    is_measured = result not in {"not_applied", "failed", "not_tried"}
    gain = evidence.gain.model_copy(update={"spread": timings.spread(evidence.turns)}) if evidence.gain else None
    reasons = [Missing(f"patch_{code}", patch=name, **facts) for code, (name, facts) in account.refusals.items()]
    if result == "not_applied" and not reasons:
        reasons.append(Missing("patch_without_effect"))
    if result in {"failed", "not_tried"}:
        reasons.append(evidence.last.why("no_step_ended"))
    if result == "unclear" and evidence.gain is None:
        pairs = len(timings.log_ratios(evidence.turns))
        too_few = Missing("too_few_pairs", pairs=pairs, needed=LEAST_PAIRS)
        reasons.append(too_few if evidence.is_over_time else Missing("program_short"))
    return Trial(
        **vars(idea),
        result=result,
        gain=gain if is_measured else None,
        before_ms=timings.mean_ms(evidence.turns, on=False) if is_measured else None,
        after_ms=timings.mean_ms(evidence.turns, on=True) if is_measured else None,
        by=evidence.by,
        training=timings.training(digests, evidence.digest) if is_measured else "unknown",
        proof={**account.hits, **account.proof} if is_measured else {},
        reasons=tuple(map(Reason.of, reasons)),
        seconds=seconds,
    )


def _result(evidence: Evidence, account: timings.Account) -> Result:
    if any(run.exit_code and not run.is_late for run in (evidence.patched, evidence.last)):
        return "failed"
    if timings.ready(evidence.patched.events) is None:
        return "not_tried" if evidence.patched.is_late else "failed"
    if not account.is_applied:
        return "not_applied"
    return verdict(evidence.gain, is_narrow=evidence.is_reached)


def verdict(gain: Gain | None, *, is_narrow: bool) -> Result:
    """What an interval shows: it excludes 1, or it is narrow around it, or neither."""
    if gain is None:
        return "unclear"
    if gain.high < 1:
        return "faster"
    if gain.low > 1:
        return "slower"
    return "same" if is_narrow else "unclear"
