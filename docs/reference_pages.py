"""The pages of docs/ that list all rules, all metrics and the parts of the accounting, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from advisor.metrics.metric import Metric
from advisor.present.reference import SEVERITY, joined, metric_entry
from advisor.rules.rule_file import Rule
from advisor.text import percent
from advisor.vocabulary.limits import HEALTHY_SHARE
from advisor.vocabulary.parts import PARTS

_HEAD: Final = (
    "A finding is a rule that fired. You can change every threshold in `advisor.yaml`: "
    "see [writing a rule](../writing-a-rule.md)."
)


def rules_index(rules: Iterable[Rule]) -> str:
    """The table of all rules."""
    rows = [
        f"| [{r.id}]({r.id}.md) | {r.heading()} | {r.saving.of if r.saving else ' or '.join(r.levels)} |" for r in rules
    ]
    table = ["| rule | says | saving comes out of, or severity |", "| --- | --- | --- |", *rows]
    return joined("# Rules", _HEAD, SEVERITY, "\n".join(table))


_ACCOUNTING: Final = """
The accounting divides the mean step of the rank that sets the pace. Each nanosecond is in one part: the step is the sum
of useful work and of all losses. Where a device is at work, the first part in the table owns an instant that several
share. Idle time belongs to its cause, as the metrics `*_idle_share` tell it.

- `share` of a part: time of the part in the used steps / time of the used steps. Times are unions of intervals in whole
  nanoseconds.
- `saved_ms`: what the findings save of the part at most. Together they never save more than the part has. What
  other ranks wait for lies in the largest part of the latest rank's step.
- needed work: (useful work - what findings save of it) / step.
- `range`: of the program's own ranges (`record_function`, NVTX, `TraceAnnotation`) the shortest that holds more than
  half of the part. A range around 90 % of the steps or more counts as none.
- A finding explains a loss if its saving comes out of that part first, or if findings save more than half of the part.
  The cause of the other losses is unknown; `reasons` are what kept the rules about them from judging.

A job has no problem only if needed work is at least {healthy}. Otherwise, the largest loss of unknown cause is the
verdict, unless the first finding saves more. Beside a finding that is worth a verdict, a loss takes its place only from
{loss} of the step. If 5 % of the step or more is idle for unknown reasons, all idle time that no range of the host
explains is of unknown cause.
"""


_TOPICS: Final = {
    "steps": "Steps and the device's time",
    "input": "Input",
    "host": "Host",
    "kernels": "Kernels",
    "copies": "Copies",
    "memory": "Memory",
    "communication": "Communication",
    "ranks": "Ranks",
    "options": "Options of the program",
}


def metrics_page(topics: Mapping[str, Iterable[Metric]], rules: Iterable[Rule]) -> str:
    """All metrics by topic: a table of names, then each in full."""
    head = (
        "Every number is per device, over the steps that count (`--steps`). The row of a worker is that of the device "
        "with the longest steps. A share is a part of step time unless its formula says otherwise. An unknown number "
        "is null, with the reason, and no rule takes it for good news. A metric of the unit `names` lists names, each "
        "with what is known of it: [JSON](json.md#names)."
    )
    names = [*_TOPICS, *(topic for topic in topics if topic not in _TOPICS)]
    parts = (
        part for topic in names for part in _topic(_TOPICS.get(topic, topic.capitalize()), [*topics[topic]], [*rules])
    )
    return joined("# Metrics", head, *parts)


def _topic(title: str, metrics: Sequence[Metric], rules: Sequence[Rule]) -> Iterator[str]:
    yield f"## {title}"
    yield ", ".join(f"[`{metric.name}`](#{metric.name})" for metric in metrics)
    for metric in metrics:
        yield f"#{metric_entry(metric, rules).strip()}"


def accounting_page() -> str:
    """How the accounting is computed, and its parts."""
    rows = (
        f"| {part.short} | `{part.code}` | {part.words} | {'useful' if part.is_useful else 'loss'} | "
        f"{', '.join(f'`{pool}`' for pool in part.pools) or 'none'} |"
        for part in PARTS.values()
    )
    table = "\n".join(("| in reports | part | what it is | | `saving.of` |", "| --- | --- | --- | --- | --- |", *rows))
    limits = {"healthy": percent(HEALTHY_SHARE), "loss": percent(1 - HEALTHY_SHARE)}
    return joined("# Accounting", _ACCOUNTING.format(**limits).strip(), table)
