"""A scenario in words: the step as recorded, and after each change."""

from collections.abc import Iterator

from advisor.text import capital, ms, shorter
from advisor.whatif.scenario import Scenario


def sentences(scenario: Scenario) -> Iterator[str]:
    """`A step takes 71 ms; the data loader sets the pace.`, then a line for each change."""
    yield f"A step takes {ms(scenario.step_ms)}. {capital(scenario.pace)} sets the pace."
    before = (scenario.step_ms, scenario.step_ms)
    for stage in scenario.stages:
        if before == (stage.low_ms, stage.high_ms):
            yield f"{stage.change}: saves nothing; {stage.pace} sets the pace."
        else:
            step = shorter(scenario.step_ms, scenario.step_ms - stage.high_ms, scenario.step_ms - stage.low_ms)
            yield f"{stage.change}: {step.change}; then {stage.pace} sets the pace."
        before = (stage.low_ms, stage.high_ms)
