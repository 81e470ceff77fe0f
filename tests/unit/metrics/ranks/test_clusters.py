"""Faults of places in simulated jobs of many nodes: each is named by its place, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from advisor.analysis.job.job import job_of
from tests.clusters import CLUSTER_FAULTS, cluster
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


@pytest.mark.parametrize("fault", CLUSTER_FAULTS)
def test_a_place_of_32_ranks_is_named(fault: str) -> None:
    assert names(fault, 3, 32)


@pytest.mark.soak
@pytest.mark.parametrize("fault", CLUSTER_FAULTS)
def test_a_place_of_256_ranks_is_named_in_95_of_100(fault: str) -> None:
    right = [names(fault, seed, 256) for seed in range(20)]
    assert sum(right) >= 19, [seed for seed, is_right in enumerate(right) if not is_right]
