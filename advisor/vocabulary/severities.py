"""How grave a finding is: the codes that rules and JSON use, and how each is worded and drawn."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["high", "medium", "low"]


class Grade(NamedTuple):
    """One severity in every medium."""

    word: str  # what people read
    mark: str  # its sign in text
    ascii_mark: str  # the same where there is no Unicode
    outline: str  # its sign on a page, as a path of SVG in a box of 10 by 10
    style: str  # its colour on a terminal
    sarif: str  # the level of a result in SARIF
    annotation: str  # the level of a remark on a line in a check run


# The gravest first
GRADES: Final[dict[Severity, Grade]] = {
    "high": Grade("high", "▲", "!", "M5 .8 9.6 9H.4z", "bold red", "error", "warning"),
    "medium": Grade("medium", "◆", "*", "M5 .3 9.7 5 5 9.7.3 5z", "bold yellow", "warning", "warning"),
    "low": Grade("low", "●", "-", "M5 1a4 4 0 1 0 0 8 4 4 0 1 0 0-8z", "bold blue", "note", "notice"),
}
SEVERITIES: Final[tuple[Severity, ...]] = tuple(GRADES)  # codes, the gravest first
FailOn: TypeAlias = Severity | Literal["never"]
FAIL_ON: Final[tuple[FailOn, ...]] = (*SEVERITIES, "never")  # from which severity on a finding fails a check


def words(severities: Iterable[Severity]) -> list[str]:
    """What people read for these."""
    return [GRADES[severity].word for severity in severities]
