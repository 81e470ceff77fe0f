"""Inference on a CPU that gives a model one sample at a time."""

from typing import Final

import polars as pl

from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.profile import matches

_PRODUCTS: Final = r"^aten::(?:addmm|mm|addmv|mv|convolution)$"
_SINGLE_PRODUCT: Final = (  # of `[[bias], [1, width], [width, rows]]`; addmv and mv have a vector in its place
    r"^aten::addmm\[\[[\d, ]*\], ?\[1, ?\d+\],|^aten::mm\[\[1, ?\d+\],|^aten::(?:addmv|mv)\["
)
_SINGLE_ROW: Final = r"^\[\[1, ?\d+\]"
_IN_TURN: Final = r"^aten::(?:bmm|baddbmm|lstm|gru|rnn_tanh|rnn_relu|\w*scaled_dot_product\w*)$"
_MOST: Final = 0.9


def _single(view: DeviceView) -> pl.DataFrame:
    """The ops of single rows, where nearly all products are of one."""
    if view.device is not None or view.host_like(_IN_TURN, "op").height:
        return view.host.clear()
    call = pl.format("{}{}", pl.col("name").cast(pl.String), pl.col("shapes").cast(pl.String))
    is_single = call.str.contains(_SINGLE_PRODUCT).fill_null(value=False)
    products = view.used_like(_PRODUCTS, "op")
    if products.is_empty() or products.filter(is_single).height < _MOST * products.height:
        return view.host.clear()
    ops = view.used_host.filter(pl.col("kind") == "op").drop("window").collect()
    return ops.filter(is_single | pl.col("shapes").cast(pl.String).str.contains(_SINGLE_ROW))


def _runs(view: DeviceView) -> float:
    products = view.once(_single).filter(matches(_PRODUCTS))
    return products.height / max(1, products["shapes"].n_unique())


measure = of_devices(__name__, needs=("host_ops", "host_ops.shapes"))

measure(
    "single_row_share",
    lambda view: view.share(spans(view.once(_single))),
    where=lambda view: places(view, view.once(_single)),
).says(
    "Part of the step in which a CPU computes with the row of a single sample.",
    "union of ops whose first input is a matrix of one row, and of products with one, if 90 % of the products have one "
    "/ step time; 0 with a device, and where attention or a recurrent layer runs, whose tokens need those before them",
    "own choice of 90 %; products are aten::addmm, mm, addmv, mv and convolution",
)
measure("single_row_runs", _runs).says(
    "How often the recording multiplies a single row with weights of the same size.",
    "such products in the used steps / distinct shapes of them; 0 without any",
)
