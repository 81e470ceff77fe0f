"""Stages of loading a batch, by `loading_stages.yaml`: how each is called in a sampled stack, and how to shorten it."""

from functools import cache
from typing import Final

from advisor.inputs.names.host_calls import Kind, table

TRANSPORT: Final = "transport"
COLLATE: Final = "collate"
PIN: Final = "pin"


class Stage(Kind, frozen=True, forbid_unknown_fields=True):
    """A stage: a thread may sleep in one that `waits`; the group of `names` is what a library does there."""

    waits: bool = False
    names: str = ""


@cache
def stages() -> tuple[Stage, ...]:
    """All stages, in the order in which they decide."""
    return table("loading_stages", Stage)


def stage_of(name: str) -> Stage:
    """The stage of this name."""
    return next(stage for stage in stages() if stage.name == name)
