"""What rules and metrics were called in earlier versions: users' files, stored runs and saved reports still say so.

An earlier name is read as the name of now wherever one comes in from outside.
"""

import re
from collections import defaultdict
from typing import Final

from advisor.vocabulary.limits import table

_TABLE: Final = table(__file__, "formerly")
RULES: Final[dict[str, str]] = _TABLE["rules"]  # the id of a rule by each earlier one
METRICS: Final[dict[str, str]] = {
    **_TABLE["metrics"],
    **{f"{was}_least_ms": f"{now}_least_gain_ms" for was, now in _TABLE["savings"].items()},
    **{f"{was}_most_ms": f"{now}_gain_ms" for was, now in _TABLE["savings"].items()},
}
"""The name of a metric by each earlier one."""


def lines_of(text: str, names: dict[str, str]) -> dict[str, str]:
    """The earlier names that a YAML or TOML file has outside of comments, with their lines: `3, 5`."""
    at = defaultdict[str, dict[int, None]](dict)
    lines = text.splitlines() if any(name in text for name in names) else ()  # no pattern is as quick to say none is
    for number, line in enumerate(lines, start=1):
        for name in _words(names).findall(line.partition("#")[0]):
            at[name][number] = None
    return {name: ", ".join(map(str, numbers)) for name, numbers in at.items()}


def in_text(text: str, names: dict[str, str]) -> str:
    """The text with the names of now."""
    return _words(names).sub(lambda name: names[name[0]], text)


def in_json(text: str | bytes) -> bytes:
    """A saved object with the names of now: as values, as keys, and as the first part of one (`rule/worker`)."""
    names = RULES | METRICS
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    old = re.compile(rf'(?<=")(?:{"|".join(map(re.escape, names))})(?=["/])'.encode())
    return old.sub(lambda name: names[name[0].decode()].encode(), data)


def _words(names: dict[str, str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])")
