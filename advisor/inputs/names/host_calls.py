"""What a line of a program calls, by `host_calls.yaml`: what each kind is called, and how to do it more rarely."""

from functools import cache
from pathlib import Path

import msgspec

from advisor.yamltree import Yaml


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls of one kind: `words` go on after a line, `fix` is what to do; both are empty where a rule judges them."""

    name: str
    patterns: tuple[str, ...]
    words: str = ""
    fix: str = ""

    @property
    def pattern(self) -> str:
        """The regular expression of all: found in the lines of a stack."""
        return "(?m)" + "|".join(self.patterns)


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds, in the order in which they decide."""
    document = Yaml(Path(__file__).with_name("host_calls.yaml").read_text("utf-8"))
    return msgspec.convert(document.value["kinds"], tuple[Kind, ...])
