"""The shares of the step by category of work, as each framework's own tools show them, and a server's phases."""

from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.categories import OF_TENSORFLOW, sweep
from advisor.analysis.device.idle import gaps
from advisor.analysis.device.phases import phases, steps_by_phase
from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.engines import batch
from advisor.metrics.metric import Details, of_devices, tabulates
from advisor.vocabulary.idle_causes import HOST_RANGES
from advisor.vocabulary.kinds import CATEGORIES

_CODES: Final = tuple(CATEGORIES)
_ON_DEVICE: Final = ("compute", "memcpy", "memset", "collective")  # at least so much, where ops were left out
_SOURCE: Final = (
    "the sweep of torch-tb-profiler's overview, with every collective kernel counted as communication; of TensorFlow "
    "and JAX that of TensorFlow 2.12's step-time breakdown, with copies to the device apart from input; of JAX on the "
    "CPU, programs that run on threads of XLA come first and count as host, as a device's kernels would"
)


def _of_tensorflow(name: str) -> str:
    order = [layer.category for layer in OF_TENSORFLOW]
    before = list(dict.fromkeys(order[: order.index(name)] if name in order else order))
    formula = f"outside {', '.join(before)}" if before else "the same"
    return {
        "launch": f"{formula}, `ExecutorState::Process` counted as a call",
        "memcpy": f"{formula}, of copies to the device outside input, collective and launch as well",
    }.get(name, formula) + ("" if name in {"compute", "memcpy", "memset", "other"} else ", by the step's own host work")


def _swept_ns(view: DeviceView) -> dict[str, int]:
    """Time of the used steps by category; it sums to theirs."""
    return {category: int(time.sum()) for category, time in sweep(view, view.steps)}


def _share(view: DeviceView, category: str) -> float:
    return view.once(_swept_ns)[category] / view.total_ns


@tabulates("step")
def step_table(view: DeviceView) -> pl.DataFrame:
    """One row per used step: step, name, phase, start_ns, step_ms, `<category>_share` of each category, bottleneck.

    The phase is what the mark of a server's step says, else null. The bottleneck is the category with the largest
    share, as in XProf's pod viewer.
    """
    length = np.maximum(view.steps["dur_ns"].to_numpy(), 1)
    shares = [pl.Series(f"{category}_share", time / length) for category, time in sweep(view, view.steps)]
    largest = np.argmax([share.to_numpy() for share in shares], axis=0)
    marks = view.steps["name"].fill_null("")
    phases = pl.Series("phase", [of and of.phase for of in map(batch, marks)], dtype=pl.String)
    return view.steps.select("step", "name", phases, "start_ns", step_ms=pl.col("dur_ns") / 1e6).with_columns(
        *shares, bottleneck=pl.Series([_CODES[i] for i in largest], dtype=pl.String)
    )


measure = of_devices(__name__, source=_SOURCE)
for _number, (_name, _meaning) in enumerate(CATEGORIES.items()):
    _before = ", ".join(_CODES[:_number]) or "nothing"
    _details: Details = (
        {"where": places(lambda view: view.host.filter(pl.col("kind") == "input"))} if _name == "input" else {}
    )
    if _name not in _ON_DEVICE:
        _details["needs"] = ("device_ops.start_ns",)
    measure(f"{_name}_share", partial(_share, category=_name), **_details).says(
        f"Part of the step in which {_meaning}.",
        f"time of {_name} outside {_before} / step time; of TensorFlow and JAX {_of_tensorflow(_name)}",
    )
measure("input_exposed_ms", lambda view: view.per_step_ms(view.once(_swept_ns)["input"])).says(
    "Time per step that passes waiting for input.", "input_share x step_mean_ms"
)


_OF_HOST: Final = [f"{cause}_ns" for cause in ("host_bound", "sync", *HOST_RANGES)]


@tabulates("phase")
def of_engine(view: DeviceView) -> pl.DataFrame:
    """One row per phase of a server's steps: see `analysis.device.phases`.

    And host_share: idle time that the host causes, as a share of the phase's time on the device.
    """
    rows = phases(view)
    if not rows.height:
        return rows.with_columns(host_share=pl.lit(None, pl.Float64))
    # Per phase, the idle time of the host in the steps in which it begins: phase, host_share.
    steps, idle = view.once(steps_by_phase), view.once(gaps)
    begins = idle["start_ns"].to_numpy()
    at = np.searchsorted(steps["first"].to_numpy(), begins, side="right") - 1
    at = np.where(begins < (steps["first"] + steps["period_ns"]).to_numpy()[at], at, -1)
    of_step = idle.select(row=pl.Series(at), late_ns=pl.sum_horizontal(_OF_HOST)).group_by("row").agg(pl.sum("late_ns"))
    joined = steps.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64)).join(of_step, on="row", how="left")
    share = (pl.sum("late_ns") / pl.sum("period_ns")).clip(0, 1)
    return rows.join(joined.group_by("phase").agg(host_share=share), on="phase", how="left", maintain_order="left")
