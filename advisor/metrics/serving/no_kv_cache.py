"""Text generation that computes all earlier tokens again for each new one."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.arrays import Ints

_LINEAR: Final = r"^aten::linear$"
_TOKENS: Final = r"^\[\[(?:\d+, ?)?(\d+), ?\d+\], ?\[\d+, ?\d+\]"  # of `[[batch, tokens, width], [rows, width], ...]`
_FEWEST: Final = 4  # lengths in a row that grow by one: fewer may be so by chance
_MOST_GROW: Final = 0.9  # of the changes: the others begin another text


def _lengths(view: DeviceView) -> Ints:
    """The number of tokens in each step of generation; a product of a single token, such as the head's, tells none."""
    calls = view.used_like(_LINEAR, "op").sort("start_ns")
    tokens = calls["shapes"].cast(pl.String).str.extract(_TOKENS).cast(pl.Int64)
    several = tokens.filter(tokens > 1).to_numpy()
    begins = np.flatnonzero(np.diff(several, prepend=0))
    lengths: Ints = several[begins]
    return lengths


def _tokens(view: DeviceView) -> float:
    lengths = _lengths(view)
    is_growing = len(lengths) >= _FEWEST and float((np.diff(lengths) == 1).mean()) >= _MOST_GROW
    return float(lengths.mean()) if is_growing else 1.0


measure = of_devices(__name__, needs=("host_ops", "host_ops.shapes"))

measure("generation_tokens", lambda view: view.once(_tokens)).says(
    "Tokens that the model computes for each token it adds to a text; 1 where it keeps the others' keys and values.",
    "mean length of aten::linear's inputs over the steps of generation, which are calls in a row of one length; 1 "
    "where fewer than four lengths follow each other, or fewer than 90 % of the changes are one token more",
    "own choice: four, 90 %",
)
measure("repeated_tokens_share", lambda view: 1 - 1 / view.once(_tokens)).says(
    "Part of the tokens of a step of generation that the step before computed, too.", "1 - 1 / generation_tokens"
)
