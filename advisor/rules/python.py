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
from advisor.vocabulary.parts import POOLS

FACTS: Final = frozenset(
    {"ranks.recorded_ranks", *(f"steps.{of}" for of in ("breakdown", "device_facts", "idle", "step_times", "what_if"))}
)
"""Topics of metrics that every report has, whether a rule uses them or not."""

REASONS: Final[Mapping[str, str]] = {
    "communication": "it holds collectives against the kernels around them and the ranks that take part",
    "communication.accumulation": "it counts the backward passes between two updates",
    "communication.bandwidth": "it holds the bytes of collectives against what the links allow",
    "communication.bottlenecks": "it divides transfers by their place in the step and by nodes",
    "copies": "it tells which kernels could hide a copy, and what waits for it",
    "copies.transfers": "it holds copies against the rate of the link",
    "host": "it follows what the host does from one call to the next",
    "host.anomaly_detection": "it tells autograd's own checks from those of the program",
    "host.blocking_calls": "it tells the idle time that a call causes from that around it",
    "host.collection_pauses": "it finds pauses in which nothing was recorded",
    "host.compiled_regions": "it measures what lies between compiled regions",
    "host.executables": "it tells which program of XLA a kernel belongs to",
    "host.launching": "it pairs each launch with its kernel, and tells the idle time after a wait from that before it",
    "host.needless_autograd": "it pairs each backward op with its forward op",
    "host.operating_system": "it reads the notes of the operating system's scheduler and calls",
    "host.python": "it measures Python by the time in which no op runs",
    "host.python_loops": "it finds loops by repetition",
    "host.recording_cost": "it measures the recorder itself",
    "host.unused_gradients": "it follows gradients from the backward pass to the optimizer",
    "input": "it follows batches from the loader to the step that uses them",
    "input.tf_data": "it follows the iterators of tf.data down to the slowest",
    "kernels": "it needs the shapes and types of inputs, or the limits of the device",
    "kernels.counters": "it reads sampled hardware counters",
    "kernels.fusion_unused": "it finds sequences of kernels",
    "kernels.grids": "it holds the grid of a kernel against the multiprocessors",
    "kernels.kernel_times": "it holds the grid of a kernel against the multiprocessors",
    "kernels.memory_traffic": "it finds kernels that follow each other on the same values",
    "kernels.optimizer_in_passes": "it counts how often an update reads and writes the parameters",
    "kernels.optimizer_not_fused": "it tells the optimizer's class and its form",
    "memory": "it follows the allocator's state from one call to the next",
    "options": "it tells what the job uses already",
    "options.software": "it reads what a profile tells of libraries and their settings",
    "ranks": "it holds the ranks of a job against each other",
    "serving": "it follows requests and the lengths of inputs from step to step",
    "steps": "it holds steps against each other",
    "steps.start_up": "it measures what lies before the steps and the first uses within them",
    "steps.unrecorded_work": "it looks for work that the recording lacks",
    "steps.workload": "it tells the kind of work",
}
"""Why the metrics of a topic are Python; a module has the reason of its folder unless it gives another."""


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
