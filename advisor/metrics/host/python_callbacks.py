"""Python that compiled code calls: `jax.pure_callback` and its kin."""

import polars as pl

from advisor.analysis.device.host_work import callbacks
from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices

measure = of_devices(__name__)


def _calls(view: DeviceView) -> pl.DataFrame:
    """None with a device."""
    calls = view.once(callbacks)
    return calls if view.device is None else calls.clear()


measure(
    "callback_share",
    lambda view: view.share(spans(view.once(_calls)) - view.host_spans("input", "compile", "collective")),
    where=lambda view: places(view, callbacks(view)),
).says(
    "Part of the step in which compiled code calls Python, on a worker without a device.",
    "union of Python's ranges right inside ops of XLA, or of ops named pure_callback, io_callback or debug_callback, "
    "outside of input, compile and collective ranges / step time; 0 with a device",
)
