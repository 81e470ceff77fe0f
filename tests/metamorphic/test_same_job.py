"""The same job, recorded otherwise, gets the same verdict, or none with the reason; never another."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.metamorphic.changes import KEPT, WITHHELD
from tests.metamorphic.table import CHANGES, outcome, recordings

QUICK = 24
SMALL = 300_000  # bytes
MOST_WITHHELD = 1 / 3


def cells(most: int | None = None) -> list[tuple[str, str]]:
    """Recordings and changes; the quick ones go diagonally through both, so that each comes up."""
    small = [name for name, file in recordings().items() if most is None or file.stat().st_size < SMALL]
    names = list(CHANGES)
    pairs = ((name, names[(i + j) % len(names)]) for j in range(len(names)) for i, name in enumerate(small))
    return list(islice(pairs, most))


@pytest.mark.parametrize(("name", "change"), cells(QUICK))
def test_a_verdict_is_kept_or_withheld(name: str, change: str):
    allowed = {"kept", "not applicable"} if change in KEPT else {"kept", "withheld", "not applicable"}
    assert outcome(name, change) in allowed


@pytest.mark.soak
@pytest.mark.parametrize("change", CHANGES)
def test_the_whole_table(change: str):
    allowed = {"kept", "not applicable"} if change in KEPT else {"kept", "withheld", "not applicable"}
    wrong = {name: found for name in recordings() if (found := outcome(name, change)) not in allowed}
    assert wrong == {}


@pytest.mark.soak
def test_at_most_a_third_is_withheld():
    found = [outcome(name, change) for change in WITHHELD for name in recordings()]
    applicable = [one for one in found if one != "not applicable"]
    assert applicable.count("withheld") <= MOST_WITHHELD * len(applicable)
