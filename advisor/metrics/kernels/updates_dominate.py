"""The kernels that update parameters, whatever the form: what a step pays once for its whole batch."""

from __future__ import annotations

import polars as pl

from advisor.analysis.device.kernel_groups import parts
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices


def _updates(view: DeviceView) -> pl.DataFrame:
    is_update = (pl.col("part") == "optimizer").fill_null(value=False) | (pl.col("family") == "optimizer")
    return view.once(parts).filter(is_update)


measure = of_devices(__name__, needs=("device_ops", "device_ops.name"))

measure.kernels("update", _updates).says(
    "in which kernels update parameters, in whatever form: their time does not depend on the batch",
    "kernels launched inside an Optimizer.step annotation or named after an optimizer or multi-tensor update, clipping "
    "of gradients among them",
)
