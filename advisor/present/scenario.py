"""A scenario in words: the step as recorded, and after each change."""

from collections.abc import Iterator
from typing import Final

from advisor.text import capital, ms, shorter
from advisor.whatif.scenario import Scenario

_LITTLE: Final = 0.005  # of the step: less reads like nothing


def sentences(scenario: Scenario) -> Iterator[str]:
    """`A step takes 71 ms. The data loader sets the pace.`, then a line for each change, with those before it."""
    yield f"A step takes {ms(scenario.step_ms)}. {capital(scenario.pace)} sets the pace."
    before = (scenario.step_ms, scenario.step_ms)
    for number, stage in enumerate(scenario.stages):
        change, ends = f"With {stage.change}{' too' if number else ''}", (stage.low_ms, stage.high_ms)
        if max(abs(now - then) for now, then in zip(ends, before, strict=True)) < _LITTLE * scenario.step_ms:
            yield f"{change}: saves nothing{' more' if number else ''}. {capital(stage.pace)} sets the pace."
        else:
            step = shorter(scenario.step_ms, scenario.step_ms - stage.high_ms, scenario.step_ms - stage.low_ms)
            yield f"{change}: {step.change}. Then {stage.pace} sets the pace."
        before = ends
