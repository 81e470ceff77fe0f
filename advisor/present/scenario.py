"""A scenario in words: the step as recorded, and after each change; what was not replayed, and what was."""

from collections.abc import Iterator
from typing import Final

from advisor.text import capital, count, ms, percent, shorter
from advisor.whatif.scenario import Scenario

_LITTLE: Final = 0.005  # of the step: less reads like nothing


def sentences(scenario: Scenario) -> Iterator[str]:
    """`A step takes 71 ms. The data loader sets the pace.`, then a line for each change, with those before it.

    Then one for each that was refused, with the reason, and how much of the recording was replayed.
    """
    yield f"A step takes {ms(scenario.step_ms)}. {capital(scenario.pace)} sets the pace."
    before = (scenario.step_ms, scenario.step_ms)
    for number, stage in enumerate(scenario.stages):
        change, ends = f"With {stage.change}{' too' if number else ''}", (stage.low_ms, stage.high_ms)
        why = f" {capital(stage.why)}." if stage.why else ""
        if max(abs(now - then) for now, then in zip(ends, before, strict=True)) < _LITTLE * scenario.step_ms:
            yield f"{change}: saves nothing{' more' if number else ''}. {capital(stage.pace)} sets the pace.{why}"
        else:
            step = shorter(scenario.step_ms, scenario.step_ms - stage.high_ms, scenario.step_ms - stage.low_ms)
            yield f"{change}: {step.change}. Then {stage.pace} sets the pace.{why}"
        before = ends
    yield from (f"{change} is left out: {why}." for change, why in scenario.refused.items())
    ranks = f" of each of {scenario.ranks} ranks" if scenario.ranks > 1 else ""
    of = f"{scenario.steps} of {count(scenario.of_steps, 'complete step')}{ranks}"
    yield f"Replayed: {of}. Without a change, the replay is off by {percent(scenario.off)}."
