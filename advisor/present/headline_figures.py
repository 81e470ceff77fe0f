"""The headline figures: the metrics that people look for first, with what they are called."""

from typing import Final

from advisor.model.report import Run
from advisor.present.document import Figure
from advisor.text import bytes_, percent, percents
from advisor.vocabulary.kinds import XLA_FRAMEWORKS
from advisor.vocabulary.limits import table

_TABLE: Final = table(__file__, "headline_figures")


def figures(run: Run) -> tuple[Figure, ...]:
    """What the frameworks' own tools put first, as far as the profile has it."""
    row = run.of_job
    of_xla = run.source.framework in XLA_FRAMEWORKS
    window = "step" if run.source.steps.marked else "recording"
    low, high = row.get("usual_least_share"), row.get("usual_most_share")
    usual = (
        f"({percents(low, high)} is published for {_TABLE['models'].get(str(row.get('usual_model')), 'such models')})"
        if isinstance(low, float) and isinstance(high, float)
        else ""
    )
    known = [
        Figure(of["called"], percent(share), of["of"].format(window=window, usual=usual))
        for of in _TABLE["figures"]
        if (of_xla or "for" in of) and isinstance(share := row.get(of["metric"]), int | float)
    ]
    peak, part = row.get("peak_memory_bytes"), row.get("peak_memory_share")
    of_all = f" ({percent(part)} of the device's memory)" if isinstance(part, float) else ""
    return (*known, *([Figure("memory peak", bytes_(peak) + of_all)] if isinstance(peak, int) else []))
