"""Evaluation between training steps, by the stacks that `advisor record` samples."""

from math import sqrt
from typing import Final

import polars as pl

from advisor.analysis.device.host_lines import SIGMAS
from advisor.analysis.device.places import FEW_SAMPLES, few_samples, sampled
from advisor.analysis.device.recording_cost import recorded_ms
from advisor.analysis.device.view import DeviceView, longest_name
from advisor.metrics.metric import of_devices
from advisor.model.clause import Missing

_LONG_PART: Final = 0.5  # of its time in uneven steps: from so much on it is one evaluation that was sampled by chance
_PASSES: Final = 0.3  # own choice, of its time in passes of the model: a function of such a name may check arguments
_REST: Final = 0.1


def _samples(view: DeviceView) -> int:
    return int(view.once(sampled)["samples"].sum()) if view.process.get("stacks") else 0


def _unknown(view: DeviceView) -> Missing | None:
    samples = view.once(_samples)
    return few_samples(view, samples) if samples < FEW_SAMPLES else None


def _evaluation(view: DeviceView) -> pl.DataFrame:
    """The stacks of usual steps in which the model is evaluated; none where mostly something else is done there."""
    rows = view.once(sampled).filter(pl.col("evaluates").is_not_null())
    all_ns, long_ns = int(rows["ns"].sum()), int(rows["long_ns"].sum())
    passes_ns = int(rows.filter(pl.col("kind") == "training")["ns"].sum())
    return rows if long_ns < _LONG_PART * all_ns and passes_ns >= _PASSES * all_ns else rows.clear()


def _share(view: DeviceView) -> float:
    return int(view.once(_evaluation)["ns"].sum()) / max(1, int(view.once(sampled)["ns"].sum()))


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    """Without most evaluations, in ms: a tenth of them stays at the low end; less and more twice the standard error."""
    share, of = view.once(_share), ("operators", "between")
    error = SIGMAS * sqrt(share * (1 - share) / view.once(_samples))
    return recorded_ms(view, max(0.0, (1 - _REST) * share - error), *of), recorded_ms(
        view, min(1.0, share + error), *of
    )


def _name(view: DeviceView) -> str:
    return longest_name(view.once(_evaluation).select(name="evaluates", dur_ns="ns")).rpartition(": ")[2]


of_samples = of_devices(__name__, unknown=_unknown)
of_samples("evaluation_share", _share).says(
    "Part of the step in which the model is evaluated.",
    "samples of the main thread below a function of such a name (`evaluate`, `validate`, `evaluation_loop`, "
    "`estimate_loss`), weighted by time / all samples; 0 where forward passes are less than three tenths of these",
)
of_samples("evaluation_name", _name, unit="text").says("The outermost function that evaluates the model.", "its name")
of_samples.saving("evaluation", lambda view: view.once(_ends_ms)).says("a step without most evaluations")
