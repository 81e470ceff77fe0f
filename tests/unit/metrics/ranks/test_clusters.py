"""Faults of places in simulated jobs of many nodes: each is named by its place, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from advisor.analysis.job.job import job_of
from advisor.model.clause import Missing
from tests.clusters import CLUSTER_FAULTS, cluster
from tests.effort import every
from tests.tables import metrics_of

RANGE = "\N{EN DASH}"
LATE, SLOW = 0.05, 1.5  # limits of the rules


def blamed(values: Mapping[str, object]) -> list[str]:
    """What the rules on places would name: late ranks, a slow place of the network, the busiest stage."""
    named = {
        "late_ranks": _above(values["late_rank_share"], LATE),
        "slow_place": _above(values["slow_place_ratio"], SLOW),
        "busiest_ranks": isinstance(values["busiest_ranks"], str) and values["busiest_ranks"],
    }
    return [str(values[metric]) for metric, is_blamed in named.items() if is_blamed]


def _above(value: object, limit: float) -> bool:
    return isinstance(value, float) and value >= limit


def names(fault: str, seed: int, ranks: int) -> bool:
    """Whether the place of the fault is all that is blamed, in the words for it."""
    made, place = cluster(fault, seed, ranks)
    said = blamed(metrics_of(job_of([made.rank(number) for number in range(ranks)])))
    return not said if fault == "large-healthy" else len(said) == 1 and _says(said[0], place)


def _says(said: str, place: str) -> bool:
    return re.search(rf"\b{place}(?!\d|{RANGE})", said) is not None


@pytest.mark.parametrize("fault", every(4, CLUSTER_FAULTS))
def test_a_place_of_32_ranks_is_named(fault: str) -> None:
    assert names(fault, 3, 32)


@pytest.mark.parametrize(("logged", "share"), [("large-straggler", 0.9), ("large-healthy", 0.0)])
def test_logs_tell_whether_a_late_rank_is_late_for_hours(logged: str, share: float) -> None:
    made, hours = cluster("large-straggler", 3, 32)[0], cluster(logged, 3, 32)[0]
    values = metrics_of(job_of([made.rank(n) for n in range(32)], [hours.log(n) for n in range(32)]))
    assert share <= values["late_ranks_logged_share"] <= share + 0.2


@pytest.mark.parametrize("logged", ["large-slow-pair", "large-healthy"])
def test_logs_tell_whether_a_place_is_slow_for_hours(logged: str) -> None:
    made, hours = cluster("large-slow-pair", 3, 32)[0], cluster(logged, 3, 32)[0]
    values = metrics_of(job_of([made.rank(n) for n in range(32)], [hours.log(n) for n in range(32)]))
    expected = values["slow_place_ratio"] if logged == "large-slow-pair" else 1.0
    assert values["slow_place_logged_ratio"] == pytest.approx(expected, rel=0.1)


def test_without_all_logs_of_a_slow_group_nothing_is_said_of_its_hours() -> None:
    made, _ = cluster("large-slow-pair", 3, 32)
    values = metrics_of(job_of([made.rank(n) for n in range(32)], [made.log(n) for n in range(0, 32, 16)]))
    assert values["slow_place_logged_ratio"] is None or isinstance(values["slow_place_logged_ratio"], Missing)


@pytest.mark.soak
@pytest.mark.parametrize("fault", CLUSTER_FAULTS)
def test_a_place_of_256_ranks_is_named_in_95_of_100(fault: str) -> None:
    right = [names(fault, seed, 256) for seed in range(20)]
    assert sum(right) >= 19, [seed for seed, is_right in enumerate(right) if not is_right]
