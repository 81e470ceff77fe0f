"""Python that compiled code calls: `jax.pure_callback` and its kin."""

import re
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import callbacks
from advisor.analysis.device.places import places
from advisor.analysis.device.time_by_name import longest_name
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import PYTHON_CALL
from advisor.metrics.metric import of_devices
from advisor.model.profile import matches

_OF_JAX: Final = r"^\$callback\.py:\d+ "

measure = of_devices(__name__)


def _calls(view: DeviceView) -> pl.DataFrame:
    """None with a device."""
    calls = view.once(callbacks)
    return calls if view.device is None else calls.clear()


def _function(view: DeviceView) -> str:
    """`loss_on_host (train.py:3)`."""
    if not view.once(_calls).height:
        return ""
    around = view.host_like(_OF_JAX, "python")
    called = view.host.filter(
        pl.col("kind") == "python", ~matches(_OF_JAX), pl.col("parent").is_in(around["id"].implode())
    )
    frame = re.fullmatch(PYTHON_CALL, longest_name(called))
    return f"{frame[2]} ({frame[1]})" if frame else ""


measure(
    "callback_share",
    lambda view: view.share(spans(view.once(_calls)) - view.host_spans("input", "compile", "collective")),
    where=lambda view: places(view, callbacks(view)),
).says(
    "Part of the step in which compiled code calls Python, on a worker without a device.",
    "union of Python's ranges right inside ops of XLA, or of ops named pure_callback, io_callback or debug_callback, "
    "outside of input, compile and collective ranges / step time; 0 with a device",
)
measure("callback_function", _function, unit="text").says(
    "The function that takes most of the calls from compiled code; empty where Python's calls were not recorded.",
    "the range with the most time right inside those of jax/_src/callback.py",
)
