"""A rule file from a few answers: what is slow, from which share on, and what a change would do."""

import json
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from advisor.errors import UsageError
from advisor.metrics.selection_gains import OF_DEVICE
from advisor.metrics.selection_kinds import KINDS
from advisor.rules.selections import MOST_SELECTIONS
from advisor.vocabulary.parts import Pool

Answers: TypeAlias = Mapping[str, str]
"""By the name of its question."""

NOTHING: Final = "nothing"
"""The change of a rule that saves no time."""


_HOST: Final[tuple[Pool, ...]] = ("launch_gap", "host_busy", "sync_idle", "queued_idle", "host_ops", "host_work")
_POOLS: Final[Mapping[str, tuple[Pool, ...]]] = {
    "ops": ("compute", *_HOST),
    "kernels": ("compute", "queued_idle", "dependency_idle"),
    "copies": ("memcpy", "sync_idle", "queued_idle", "dependency_idle"),
    "collectives": ("collective", "dependency_idle"),
}
"""The parts of the step that a saving comes out of, by what is slow; of what runs on the host those where it waits."""
_CHANGES: Final = ("without", "faster", "overlapped", "merged", NOTHING)
_FASTER: Final = "{slow: [1.5, 3]}"  # times as fast, at least and at most
_RULE: Final = """\
title: {title}
measure:                                # at most {most} selections; each gives slow_share, slow_ms, slow_count and more
  slow: {{{selection}}}
params:
  most: {limit}
when: slow_share > most
{gain}says: >-
  {{{{ slow_names }}}}: {{{{ slow_share | percent }}}} of {{{{ each_step }}}}.
  They run {{{{ slow_per_step | number }}}} times {{{{ per_step }}}}.
why: {why}
fixes:
- {{for: any, do: {fix}}}
references:                             # where the limit comes from: the source, then what it says
- own choice: {limit} of the step
cases:                                  # metrics of a made-up job, and what the rule must say of it
- shared: {{slow_names: a name, slow_per_step: 4{gains}}}
- much: {{slow_share: 90 %{verdict}}}
- none: {{slow_share: 0 %, fires: false}}
- not recorded: {{not_evaluable: [slow_share]}}
"""
_SAVING: Final = """\
saving:
  of: {of}                           # the part of the step that it comes out of; then the others, in order
  then_from: [{then_from}]
  {change}
"""
_LEVELS: Final = """\
severity: {low: true, because: It says what runs. Nothing says what a change saves.}
"""


def rule_text(answers: Answers) -> str:
    """The file of a rule that answers so.

    Raises:
        UsageError: an answer is none of those that there are.
    """
    _check("kind", answers["kind"], KINDS)
    _check("change", answers["change"], _CHANGES)
    kind, change = answers["kind"], answers["change"]
    if change in OF_DEVICE and kind not in _POOLS.keys() - {"ops"}:
        raise UsageError(f"--change {change}: it is of kernels and copies, not of {kind}; give without or faster")
    saves, names = change != NOTHING, answers["names"]
    pools = _POOLS.get(kind, ("host_busy", *(pool for pool in _HOST if pool != "host_busy"), "compute"))
    way = f"{change}: {_FASTER if change == 'faster' else 'slow'}"
    saving = _SAVING.format(of=pools[0], then_from=", ".join(pools[1:]), change=way)
    return _RULE.format(
        title=_quoted(answers["title"]),
        most=MOST_SELECTIONS,
        selection=f"copies: {{kind: {names}}}" if kind == "copies" else f"{kind}: {_quoted(names)}",
        limit=answers["limit"],
        gain=saving if saves else _LEVELS,
        why=_quoted(answers["why"]),
        fix=_quoted(answers["fix"]),
        gains=", slow_least_gain_ms: 1, slow_gain_ms: 2" if saves else "",
        verdict=", saves: [1, 2]" if saves else ", fires: low",
    )


def _check(question: str, answer: str, known: Collection[str]) -> None:
    if answer not in known:
        raise UsageError(f"--{question} {answer}: give one of {', '.join(known)}")


def _quoted(text: str) -> str:
    """The text as YAML: JSON's strings are YAML."""
    return json.dumps(text, ensure_ascii=False)
