"""What kind of work the job does, and what in the recording shows it."""

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.analysis.device.workload import Sign, signs, workload
from advisor.metrics.metric import of_devices, tabulates

of_devices(__name__, needs_steps=False)("workload", workload, unit="text")


@tabulates("sign")
def of_workload(view: DeviceView) -> pl.DataFrame:
    """One row per sign of a kind of work: kind, code, example (a name from the recording)."""
    return pl.DataFrame(view.once(signs), schema=dict.fromkeys(Sign._fields, pl.String), orient="row")
