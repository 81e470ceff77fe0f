"""A rule file, by new_rule.jinja, from a few answers: what is slow, from which share on, and what a change would do."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from jinja2 import Environment

from advisor.errors import UsageError
from advisor.metrics.selection_gains import OF_DEVICE
from advisor.metrics.selectors import KINDS
from advisor.rules.selections import MOST_SELECTIONS
from advisor.vocabulary.parts import Pool

Answers: TypeAlias = Mapping[str, str]  # by the name of its question
NOTHING: Final = "nothing"  # the change of a rule that saves no time


_HOST: Final[tuple[Pool, ...]] = ("launch_gap", "host_busy", "sync_idle", "queued_idle", "host_ops", "host_work")
_POOLS: Final[Mapping[str, tuple[Pool, ...]]] = {
    "ops": ("compute", *_HOST),
    "kernels": ("compute", "queued_idle", "dependency_idle"),
    "copies": ("memcpy", "sync_idle", "queued_idle", "dependency_idle"),
    "collectives": ("collective", "dependency_idle"),
}
"""The parts of the step that a saving comes out of, by what is slow; of what runs on the host those where it waits."""
_CHANGES: Final = ("without", "faster", "overlapped", "merged", NOTHING)


def rule_text(answers: Answers) -> str:
    """The file of a rule that answers so; a UsageError where an answer is none of those that there are."""
    for question, known in (("kind", KINDS), ("change", _CHANGES)):
        if (answer := answers[question]) not in known:
            raise UsageError(f"--{question} {answer}: give one of {', '.join(known)}")
    kind, change = answers["kind"], answers["change"]
    if change in OF_DEVICE and kind not in _POOLS.keys() - {"ops"}:
        raise UsageError(f"--change {change}: it is of kernels and copies, not of {kind}; give without or faster")
    saves, names = change != NOTHING, answers["names"]
    # What JSON writes is YAML too.
    quoted = {name: json.dumps(answers[name], ensure_ascii=False) for name in ("names", "title", "why", "fix")}
    pools = _POOLS.get(kind, ("host_busy", *(pool for pool in _HOST if pool != "host_busy"), "compute"))
    form = Environment("<%", "%>", "<<", ">>", trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 - it is YAML
    return form.from_string(Path(__file__).with_suffix(".jinja").read_text("utf-8")).render(
        **quoted,
        most=MOST_SELECTIONS,
        selection=f"copies: {{kind: {names}}}" if kind == "copies" else f"{kind}: {quoted['names']}",
        limit=answers["limit"],
        saves=saves,
        pools=pools,
        change=change,
    )
