"""What to try: patches that the command line names, and fixes of findings of a recording that name one.

A patch is a class in a file of `advisor/recording/inside/patches/`, because it runs in the program that is tried. Write
a new one there and list it in that folder's `__init__.py`; nothing here changes.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from advisor.config import find, load
from advisor.errors import ReadError, UsageError
from advisor.model.finding import Finding
from advisor.model.reason import Reason
from advisor.model.report import Report
from advisor.model.trials import PERFECT_INPUT, TOGETHER, Claim, Use
from advisor.options import Options
from advisor.recording.inside.patches import PATCHES
from advisor.recording.launcher import Options as Recording
from advisor.text import did_you_mean
from advisor.trials.processes import Program, run

CEILING: Final = "perfect input"
_PATIENCE_S: Final = 600.0
_NEXT: Final = re.compile(r",(?=\w+=)")


@dataclass(frozen=True)
class Idea:
    """What `Trial` has of patches before they are tried; a finding without a fix to try has none."""

    name: str
    uses: tuple[Use, ...]
    rule: str | None = None
    claimed: Claim | None = None


def use(name: str, values: Mapping[str, Any]) -> Use:
    """A patch with its arguments; a UsageError where there is no such patch, or an argument does not fit."""
    if name not in PATCHES:
        raise UsageError(f"--patch {name}: no such patch; there are: {', '.join(PATCHES)}")
    try:
        arguments = PATCHES[name].checked(dict(values))
    except ValueError as error:
        raise UsageError(f"--patch {name}: {error}") from None
    return Use(patch=name, arguments=arguments, numerics=PATCHES[name].numerics)


def toggles(uses: Sequence[Use], device: str) -> bool:
    """Whether all of them can be switched between two steps."""
    return all(device in PATCHES[use.patch].toggles for use in uses)


def variables(uses: Sequence[Use]) -> dict[str, str]:
    """The environment that the patches need."""
    each = [PATCHES[use.patch](dict(use.arguments)).variables() for use in uses]
    return {name: value for variables in each for name, value in variables.items()}


def of_option(text: str) -> Idea:
    """What `--patch NAME:key=value,...` names; a UsageError where it is no patch."""
    name, _, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in _NEXT.split(rest) if pair]
    if any(not equals for _, equals, _ in pairs):
        raise UsageError(f"--patch {text}: write arguments as {name}:key=value,key=value")
    return Idea(name, (use(name, {key.strip(): value for key, _, value in pairs}),))


def check_fixes(rules: Sequence[str], cwd: Path) -> None:
    """A UsageError where there is no such rule, or no patch makes its change."""
    from advisor.rules.user_config import rule_book  # noqa: PLC0415 - as below

    book = rule_book(load(find(cwd))) if rules else {}
    for name in rules:
        if name not in book:
            raise UsageError(f"--fix {name}: no rule is called that{did_you_mean(name, book)}")
        saving = book[name].saving
        if not any(fix.trial for fix in book[name].fixes) and not (saving and saving.of == "input"):
            raise UsageError(
                f"--fix {name}: no patch makes its change from outside; `advisor rules show {name}` prints the fix"
            )


def diagnosed(program: Program, budget_s: float, recording: str | None) -> Report | Reason:
    """The report of a recording, else of a new one, which may take ten minutes or as long as all runs; or why not."""
    from advisor.engine import check  # noqa: PLC0415 - patches that are named need nothing that reads profiles

    options = Options(config=load(find(program.cwd)))
    if recording:
        return check([recording], options)
    logdir = program.folder / "recording"
    logdir.mkdir()
    config = asdict(Recording(stop=True)) | {"logdir": str(logdir)}
    ended = run(program, config, {}, time.monotonic() + max(_PATIENCE_S, budget_s), lambda _: None)
    try:
        return check([str(logdir)], options)
    except ReadError:
        return Reason.of(ended.why("no_step_recorded"))


def of_report(report: Report, rules: Sequence[str]) -> tuple[list[Idea], list[Idea]]:
    """The fixes of a report's findings, those of the largest claim first; and findings that have none to try.

    Where the job waits for input, perfect input is tried too: it shows what work on input can gain at most. Only those
    of `rules` are tried where any are named; a UsageError where one is not among the findings.
    """
    findings = [finding for run in report.runs for finding in run.findings if not finding.of_recording]
    by_rule = {name: finding for finding in reversed(findings) for name in (finding.rule, finding.key)}
    for name in rules:
        if name not in by_rule:
            keys = ", ".join(dict.fromkeys(finding.key for finding in findings)) or "nothing"
            raise UsageError(f"--fix {name}: no finding of this program; found: {keys}")
    chosen = [by_rule[name] for name in rules] if rules else findings
    ideas = {finding.key: _idea(finding) for finding in chosen}
    tried = sorted((idea for idea in ideas.values() if idea.uses), key=_expected)
    if any(finding.saving and finding.saving.of == "input" for finding in chosen):
        tried.append(Idea(CEILING, (use(PERFECT_INPUT, {}),)))
    return tried, sorted((idea for idea in ideas.values() if not idea.uses), key=_expected)


def _expected(idea: Idea) -> float:
    return -(idea.claimed.low_share + idea.claimed.high_share) / 2 if idea.claimed else 0.0


def largest_untried(tried: Sequence[Idea], untried: Sequence[Idea]) -> Claim | None:
    """What the largest finding claims, where it cannot be tried."""
    is_largest = untried and _expected(untried[0]) < min(map(_expected, tried), default=0.0)
    return untried[0].claimed if is_largest else None


def _idea(finding: Finding) -> Idea:
    claimed = Claim.model_validate(finding.saving) if finding.saving else None
    fix = next((fix for fix in finding.fixes if fix.patch), None)
    if fix is None or fix.patch is None:
        return Idea(finding.key, (), claimed=claimed)
    patches = (use(fix.patch.name, fix.patch.arguments),)
    return Idea(finding.key, patches, finding.rule, claimed if fix.is_estimated else None)


def together(ideas: Iterable[Idea]) -> Idea:
    """All of them at once; of one patch the arguments are joined, later ones replace earlier ones."""
    joined: dict[str, Use] = {}
    for each in (item for idea in ideas for item in idea.uses):
        before = joined[each.patch].arguments if each.patch in joined else {}
        joined[each.patch] = each.model_copy(update={"arguments": {**before, **each.arguments}})
    return Idea(TOGETHER, tuple(joined.values()))
