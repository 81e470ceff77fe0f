"""Who meets whom, and which sends and receives go around a ring instead of between the stages of a pipeline."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from advisor.vocabulary.kinds import POINT_TO_POINT

SENDER: Final = pl.when(pl.col("op") == "send").then("worker").otherwise("peer")
RECEIVER: Final = pl.when(pl.col("op") == "send").then("peer").otherwise("worker")
"""The numbers of the ranks at the two ends of a message."""
_PAIR: Final = 2  # stages of a pipeline that train send both ways too


def islands(members: Iterable[int], meetings: Iterable[Iterable[int]]) -> list[list[int]]:
    """The members by whom they meet, directly or through others, ascending."""
    home = {member: {member} for member in members}
    for met in meetings:
        joined = set[int]().union(*(home[member] for member in met))
        home |= dict.fromkeys(joined, joined)
    return [list(island) for island in sorted({tuple(sorted(island)) for island in home.values()})]


def between_stages(calls: pl.DataFrame) -> pl.Series:
    """Whether each call is a send or receive that goes around no ring.

    In a ring each of three ranks or more of a group sends to one and receives from another: so context parallelism
    passes keys and values on (Ring Attention, arXiv 2310.01889). A pipeline ends at its first stage and its last.
    """
    key, message = ["group", "ranks", "worker"], pl.col("op").is_in(POINT_TO_POINT).fill_null(value=False)
    messages = calls.filter(message, pl.col("peer").is_not_null())
    messages = messages.select(*key, sender=SENDER, receiver=RECEIVER).unique()
    rings = [messages.clear()]
    for _, of_group in messages.group_by("group", "ranks"):
        pairs = of_group.select("sender", "receiver").unique().rows()
        for island in islands({end for pair in pairs for end in pair}, pairs):
            if len(island) > _PAIR and sorted(sender for sender, _ in pairs if sender in island) == island:
                rings += [of_group.filter(pl.col("worker").is_in(island))]
    around = pl.concat(rings).select(*key, around=True).unique()
    rows = calls.select(*key, "op").join(around, on=key, how="left", nulls_equal=True, maintain_order="left")
    return rows.select(message & pl.col("around").is_null()).to_series()
