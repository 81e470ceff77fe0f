"""Stages of loading a batch, by `loading_stages.yaml`: how each is called in a sampled stack, and how to shorten it."""

from functools import cache
from pathlib import Path

import msgspec

from advisor.yamltree import Yaml

TRANSPORT, COLLATE, PIN = "transport", "collate", "pin"


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stage: `words` go on after "most of it", `fix` is what to do; a thread may sleep in one that `waits`.

    `names` finds what a library does there: the name is its group.
    """

    name: str
    words: str
    patterns: tuple[str, ...]
    fix: str
    waits: bool = False
    names: str = ""

    @property
    def pattern(self) -> str:
        """The regular expression of all: found in the lines of a stack."""
        return "(?m)" + "|".join(self.patterns)


@cache
def stages() -> tuple[Stage, ...]:
    """All stages, in the order in which they decide."""
    document = Yaml(Path(__file__).with_name("loading_stages.yaml").read_text("utf-8"))
    return msgspec.convert(document.value["stages"], tuple[Stage, ...])


def stage_of(name: str) -> Stage:
    """The stage of this name."""
    return next(stage for stage in stages() if stage.name == name)
