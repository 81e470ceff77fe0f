"""What Kineto's category and event names mean, over every generation of PyTorch, by names.yaml."""

from typing import Final

import polars as pl

from advisor.model.profile import MEMORY_KINDS
from advisor.vocabulary.limits import table

_WRITTEN: Final = table(__file__, "names")
DEVICE_CATEGORIES: Final[dict[str, str]] = _WRITTEN["device"]
HOST_CATEGORIES: Final[dict[str, str]] = _WRITTEN["host"]
LEFT_OUT_CATEGORIES: Final[frozenset[str]] = frozenset(_WRITTEN["left_out"])
NEXT_DATA: Final = r"(?:^|/)torch/utils/data/dataloader\.py\(\d+\): _next_data$"
FETCH: Final = r"(?:^|/)torch/utils/data/_utils/fetch\.py\(\d+\): fetch$"
"""Functions of PyTorch's DataLoader: asked for a batch; loads it in the same process, where there are no workers."""


def copy_kind(name: pl.Expr) -> pl.Expr:
    """HtoD, DtoH, ... from a copy's name, null where it does not say."""
    return name.str.extract(r"\b([HDP]to[HDP])\b").cast(pl.Categorical())


def copy_memory(name: pl.Expr, side: int) -> pl.Expr:
    """Kind of memory at the copy's source (side 1) or target (side 2), from `(Pageable -> Device)`."""
    memory = name.str.extract(r"\((\w+) -> (\w+)\)", side).str.to_lowercase()
    return memory.cast(MEMORY_KINDS, strict=False)
