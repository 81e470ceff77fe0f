"""The same job, recorded otherwise, gets the same verdict, or none with the reason; never another."""

from __future__ import annotations

from typing import Final

import pytest

from tests.effort import every, soak
from tests.metamorphic.table import FORMATS, Verdict, changes, listed, outcome, peers, recordings, savings, source

TOGETHER: Final = 4
SMALL: Final = {"kineto": 120_000, "nsys": 600_000, "xplane": 110_000}  # bytes
MOST_WITHHELD: Final = 1 / 3


def cells(form: str) -> list[tuple[str, str, str]]:
    """Each change once; some together are made to one recording, whose own verdict is then computed once."""
    small = [name for name, file in recordings(form).items() if file.stat().st_size < SMALL[form]]
    names = [*changes(form)]
    first = [i - i % TOGETHER for i in range(len(names))]
    return [(form, small[i * len(small) // len(names)], change) for i, change in zip(first, names, strict=True)]


def allowed(form: str, change: str) -> set[str]:
    return {"kept", "not applicable"} | ({"withheld"} if change in FORMATS[form].WITHHELD else set())


CELLS: Final = [cell for form in FORMATS for cell in cells(form)]
QUICK: Final = 6


def is_quick(cell: tuple[str, str, str]) -> bool:
    """One of so many changes that no format before this one has; the others are left to `make soak`."""
    seen = {change: at for at, (_, _, change) in reversed([*enumerate(CELLS)])}
    first = sorted(seen.values())
    return CELLS.index(cell) in first[::QUICK]


def test_what_happens_in_the_same_places_is_the_same_loss_where_it_is_less_sure():
    loading = Verdict("input-bound", certainty=1.0, places=((0, 10), (20, 30)))
    assert Verdict("step-waits", certainty=0.7, places=((1, 9), (21, 29), (40, 49))).is_part_of(loading)
    assert not Verdict("step-waits", certainty=0.7, places=((1, 9), (40, 49))).is_part_of(loading)
    assert not Verdict("step-waits", certainty=1.0, places=((1, 9),)).is_part_of(loading)
    assert not Verdict("step-waits", certainty=0.7).is_part_of(loading)


def test_which_findings_may_lead_by_chance():
    """80 is about as much as 100, 70 is not; what has no number may lead if it stands above the 80."""
    assert peers({"a": 100, "b": 0, "c": 80, "d": 0, "e": 70}) == {"a", "b", "c"}
    assert peers({"a": 0, "b": 0, "c": 80}) == {"c"}


@pytest.mark.parametrize(("form", "name", "change"), soak(CELLS, unless=is_quick))
def test_a_verdict_is_kept_or_withheld(form: str, name: str, change: str):
    assert outcome(form, name, change) in allowed(form, change)


@pytest.mark.parametrize("form", every(3, FORMATS))
def test_layers_that_are_called_steps_change_no_saving(form: str):
    name = next(name for name in recordings(form) if name.startswith("simulated-sync-a100"))
    before = savings(form, source(form, name))
    after = savings(form, FORMATS[form].KEPT["layers called steps"](source(form, name)))
    assert before.keys() == after.keys()
    assert all(after[key] == (known and pytest.approx(known, rel=0.01)) for key, known in before.items())


ASIDE: Final = (
    "10 s of start-up in front",
    "5 s of teardown behind",
    "ranges on another thread",
    "layers called steps",
)
JOBS: Final = ("launch-bound-h100", "input-bound-v100", "pageable-v100", "sync-a100")


@pytest.mark.parametrize(
    ("form", "change", "job"),
    soak(
        [(form, change, job) for form in FORMATS for change in ASIDE for job in JOBS],
        unless=lambda cell: cell == ("kineto", ASIDE[0], JOBS[0]),
    ),
)
def test_what_is_beside_the_part_that_repeats_hides_no_action_on_it(form: str, change: str, job: str):
    name = next(name for name in recordings(form) if name.startswith(f"simulated-{job}"))
    before = listed(form, source(form, name))
    after = listed(form, FORMATS[form].KEPT[change](source(form, name)))
    assert before
    assert after == {
        key: (pytest.approx(low, rel=0.02), pytest.approx(high, rel=0.02)) for key, (low, high) in before.items()
    }


@pytest.mark.soak
@pytest.mark.parametrize(("form", "change"), [(form, change) for form in FORMATS for change in changes(form)])
def test_the_whole_table(form: str, change: str):
    wrong = {
        name: became
        for name in recordings(form)
        if (became := outcome(form, name, change)) not in allowed(form, change)
    }
    assert wrong == {}


@pytest.mark.soak
@pytest.mark.parametrize("form", FORMATS)
def test_at_most_a_third_is_withheld(form: str):
    outcomes = [outcome(form, name, change) for change in FORMATS[form].WITHHELD for name in recordings(form)]
    applicable = [each for each in outcomes if each != "not applicable"]
    assert applicable.count("withheld") <= MOST_WITHHELD * len(applicable)
