"""Patterns of names that the rules and this program share: `selections.yaml` of the rule book."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from advisor.system.resources import rules_folder
from advisor.yamltree import Yaml, content_of, decoded

FILE: Final = "selections.yaml"
"""Of a folder of rules: its shared selections, and no rule."""
FIXES: Final = "fixes.yaml"
"""The same of fixes."""


@cache
def written(path: Path) -> Mapping[str, Any]:
    """The selections in a file by name, as they are written there."""
    selections: Mapping[str, Any] = Yaml(decoded(content_of(path))).value
    return selections


def pattern(name: str) -> str:
    """The pattern of a shared selection that selects by one."""
    joined: str = alternatives(next(iter(written(rules_folder() / FILE)[name].values())))
    return joined


def alternatives(written: object) -> Any:  # noqa: ANN401 - what a file holds
    """A list of patterns as one that each of them matches; what is no list as it is."""
    is_list = isinstance(written, list) and all(isinstance(each, str) for each in written)
    return "|".join(f"(?:{each})" for each in written) if is_list else written  # type: ignore[attr-defined]
