"""What a line of a program calls, by `host_calls.yaml`: what each kind is called, and how to do it more rarely."""

from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from advisor.yamltree import Yaml

Row = TypeVar("Row")


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


def table(name: str, row: type[Row]) -> tuple[Row, ...]:
    """The rows of a YAML file beside this one."""
    document = Yaml(Path(__file__).with_name(f"{name}.yaml").read_text("utf-8"))
    return msgspec.convert(document.value["kinds"], tuple[row, ...])  # type: ignore[valid-type]


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds, in the order in which they decide."""
    return table("host_calls", Kind)
