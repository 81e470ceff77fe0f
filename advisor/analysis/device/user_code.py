"""The functions of the user's own code around what the host runs."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.user_frames import user_line

_SCRIPT: Final = ": <module>"  # as a whole it tells nothing
_SCHEMA: Final = {"id": pl.Int64, "caller": pl.String}


def callers(view: DeviceView) -> pl.DataFrame:
    """The innermost function of the user's code around each host range that lies in one: id, and `caller`, its name.

    A function of the user's is its own caller.
    """
    host = view.host.select("id", "parent", "kind", "name")
    functions = host.filter(pl.col("kind") == "python")
    names = functions["name"].unique()
    own = names.filter(pl.Series([_is_own(str(name)) for name in names], dtype=pl.Boolean))
    if not own.len():
        return pl.DataFrame(schema=_SCHEMA)
    inside = _around(host, functions.filter(pl.col("name").is_in(own.implode()))["id"])
    called = functions.select(own="id", caller=pl.col("name").cast(pl.String))
    return inside.join(called, on="own").select(*_SCHEMA)


def _is_own(function: str) -> bool:
    return user_line(function) is not None and not function.endswith(_SCRIPT)


def _around(host: pl.DataFrame, functions: pl.Series) -> pl.DataFrame:
    """For each host range the innermost of the functions that is it or lies around it: id and `own`, the function's."""
    ids, nothing = host["id"].to_numpy(), -1
    size = int(max(ids.max(), host["parent"].max() or 0)) + 1
    outer, is_own = np.full(size, nothing), np.zeros(size, bool)
    outer[ids] = host["parent"].fill_null(nothing).to_numpy()
    outer[functions.to_numpy()], is_own[functions.to_numpy()] = functions.to_numpy(), True
    while len(climbing := np.flatnonzero((outer >= 0) & ~is_own[outer])):
        outer[climbing] = outer[outer[climbing]]
    return pl.DataFrame({"id": ids, "own": outer[ids]}).filter(pl.col("own") >= 0)
