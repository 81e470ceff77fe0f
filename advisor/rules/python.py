"""Rules that need Python of their own, and why no selection measures what they ask for.

A rule needs Python of its own if it uses a metric that no other rule uses, and that is no fact which every report has,
nor the size of a part of the step, out of which savings come.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from advisor.metrics.metric import METRICS, Metric
from advisor.rules import wording
from advisor.rules.rule_file import Rule
from advisor.vocabulary.limits import table
from advisor.vocabulary.parts import POOLS

# Topics of metrics that every report has, whether a rule uses them or not
FACTS: Final = frozenset({"ranks.recorded_ranks", "steps.breakdown", "steps.step_times"})
REASONS: Final[Mapping[str, str]] = table(__file__, "python")  # by topic: see python.yaml


def used_metrics(rule: Rule) -> set[str]:
    """The metrics that a rule's expressions and texts name, those of its selections by the names that it gives them."""
    known = {*METRICS, *rule.selected}
    expressions = (*rule.expressions().values(), *rule.fix_conditions().values())
    texts = (rule.says, *(text for fix in rule.fixes for text in fix.templates))
    others = {*rule.shows, rule.about.time, rule.about.rank}
    return known & others.union(*(each.names for each in expressions), *map(wording.names, texts))


def python_metrics(book: Mapping[str, Rule]) -> dict[str, list[Metric]]:
    """By rule, the metrics that make it need Python of its own; without the rules that need none."""
    uses = {rule.id: used_metrics(rule) & METRICS.keys() for rule in book.values()}
    users = Counter(name for names in uses.values() for name in names)
    own = {
        rule: [
            METRICS[name]
            for name in sorted(names)
            if users[name] == 1 and not (METRICS[name].topic in FACTS or name.removesuffix("_share") in POOLS)
        ]
        for rule, names in uses.items()
    }
    return {rule: metrics for rule, metrics in own.items() if metrics}


def reason(metric: Metric) -> str:
    """Why it is Python, and no selection."""
    return REASONS.get(metric.topic) or REASONS[metric.topic.partition(".")[0]]
