"""Steps that grow longer and longer: a list that is read or copied in each of them."""

from typing import Final

import numpy as np

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

_ENDS: Final = 2  # pieces at either end: the first and the last tenth
_STEADY: Final = 0.7  # of pairs of pieces, those of which the later one is longer, less those of which it is shorter


def _unknown(view: DeviceView) -> Missing | None:
    return None if view.process.get("pace_ms") else Missing("few_stack_samples", samples=0)


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    """The step at the begin and at the end of the run; the former twice if it does not grow steadily."""
    pace = np.asarray(view.process["pace_ms"], np.float64)
    first, last = float(np.median(pace[:_ENDS])), float(np.median(pace[-_ENDS:]))
    longer = np.sign(pace[None, :] - pace[:, None])[np.triu_indices(len(pace), 1)]
    is_steady = len(longer) > 0 and longer.mean() >= _STEADY
    return (first, last) if is_steady else (first, first)


def _growth(view: DeviceView) -> float:
    first, last = view.once(_ends_ms)
    return last / first


measure = of_devices(__name__, unknown=_unknown)
measure("step_growth", _growth, unit="ratio").says(
    "How many times as long a step takes at the end of a long run as at its begin, if it grows steadily; else 1.",
    "median step of the last tenth / of the first, without waits for a CPU because of other programs, of steps that "
    "`advisor record` samples last, 100 or more; 1 if the rank correlation of 20 pieces with their order is below 0.7",
    "Kendall's rank correlation",
)
measure("growth_first_ms", lambda view: view.once(_ends_ms)[0]).says(
    "The step at the begin of that run.", "median of the first tenth of its steps"
)
measure("growth_last_ms", lambda view: view.once(_ends_ms)[1]).says(
    "The step at the end of that run; growth_first_ms where it does not grow.", "median of the last tenth of its steps"
)
measure("growth_first_step", lambda view: view.process["pace_steps"][0], unit="count").says(
    "The number of the first step of that run.", "steps before it, those skipped included"
)
measure("growth_last_step", lambda view: view.process["pace_steps"][-1], unit="count").says(
    "The number of its last step.", "as growth_first_step"
)
