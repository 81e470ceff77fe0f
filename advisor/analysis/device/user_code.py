"""The functions of the user's own code around what the host runs."""

from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView, positions
from advisor.inputs.names.user_frames import user_line
from advisor.model.intervals import nearest

_SCRIPT: Final = ": <module>"  # as a whole it tells nothing


def callers(view: DeviceView) -> pl.DataFrame:
    """The innermost function of the user's code around each host range that lies in one: id, and `caller`, its name.

    A function of the user's is its own caller.
    """
    host = view.host.select("id", "parent", "kind", "name")
    names = host.filter(pl.col("kind") == "python")["name"].unique()
    own = names.filter(pl.Series([_is_own(str(name)) for name in names], dtype=pl.Boolean))
    is_own = host.select((pl.col("kind") == "python") & pl.col("name").is_in(own.implode())).to_series()
    if not is_own.any():
        return pl.DataFrame(schema={"id": pl.Int64, "caller": pl.String})
    inside = pl.Series(nearest(is_own.to_numpy(), positions(host, host["parent"]))).replace(-1, None)
    return host.select("id", caller=host["name"].gather(inside).cast(pl.String)).drop_nulls("caller")


def _is_own(function: str) -> bool:
    return user_line(function) is not None and not function.endswith(_SCRIPT)
