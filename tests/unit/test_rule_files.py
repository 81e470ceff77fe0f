"""Rule files that break a YAML parser: an error with the file and the line, as for any other mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import RuleError
from advisor.rules.rule_file import RuleFile


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("id: x\nwhen: " + "[\n" * 3000 + "]" * 3000, r":1: nested too deep; a rule needs four levels$"),
        ("id: x\nuntil: 0000-00-00", r":1: not valid YAML: year 0 is out of range$"),
        ("id: x\nwhen: !!python/object:os.system {}", r":2: could not determine a constructor"),
    ],
    ids=["nesting", "the year 0", "a tag"],
)
def test_each_is_a_rule_error(content: str, says: str, tmp_path: Path):
    path = tmp_path / "x.yaml"
    path.write_text(content)
    with pytest.raises(RuleError, match=says) as refused:
        RuleFile(path)
    assert str(refused.value).startswith(f"{path}:")
