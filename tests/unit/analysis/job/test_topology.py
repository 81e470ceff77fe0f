"""Where ranks are, and what those that stand out have in common: by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.analysis.job.job import Job
from advisor.analysis.job.topology import Place, common_places, coordinates, words
from tests.ranks import call, job, rank

DASH = "\N{EN DASH}"


def two_nodes(**of_rank: str) -> Job:
    """Eight ranks on two nodes of four devices, each with a group that this names: [ranks], by description."""
    ranks = []
    for number in range(8):
        calls = [
            call(10 * i, 10 * i + 5, description=name, group=f"{name} {here}", ranks=str(here), group_size=len(here))
            for i, (name, kind) in enumerate(of_rank.items())
            for here in [next(group for group in GROUPS[kind] if number in group)]
        ]
        ranks.append(rank(number, calls, visible=4, device=number % 4))
    return job(*ranks)


GROUPS = {
    "pairs": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "across": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "every": [[0, 2, 4, 6], [1, 3, 5, 7]],
}


def test_ranks_fill_nodes_and_their_index_in_a_group_is_their_place_in_it() -> None:
    known = coordinates(two_nodes(mesh_tp="pairs", PIPELINE_MODEL_PARALLEL_GROUP="across", default_pg="every"))
    assert known["node"] == {rank: rank // 4 for rank in range(8)}
    assert known["rail"] == {rank: rank % 4 for rank in range(8)}
    assert known["tensor"] == {rank: rank % 2 for rank in range(8)}
    assert known["pipeline"] == {rank: rank // 4 for rank in range(8)}
    assert known.keys() == {"node", "rail", "tensor", "pipeline"}  # a group whose name says nothing has no kind


def test_ranks_on_other_devices_than_their_numbers_say_have_no_node() -> None:
    ranks = [rank(number, device=number % 2, visible=4) for number in range(4)]  # two of four devices on each node
    assert coordinates(job(*ranks)) == {}


def test_names_of_hosts_count_for_more_than_numbers() -> None:
    made = two_nodes(mesh_dp="every")
    named = job(*(replace(each, facts={"host": "ab"[each.worker % 2]}) for each in made.ranks))
    assert coordinates(named)["host"] == {rank: "ab"[rank % 2] for rank in range(8)}
    assert words(named, [1, 3, 5, 7]) == "ranks 1, 3, 5, 7 (host b)"


def test_a_group_of_copies_of_experts_is_of_no_kind() -> None:
    assert coordinates(two_nodes(EXPERT_DATA_PARALLEL_GROUP="every")).keys() == {"node", "rail"}


def test_what_exchanges_with_all_is_a_group_of_experts() -> None:
    calls = [
        [call(0, 5, op="all_to_all", group="1", ranks=f"[{n // 2 * 2}, {n // 2 * 2 + 1}]", group_size=2)]
        for n in range(4)
    ]
    made = job(*(rank(number, of) for number, of in enumerate(calls)))
    assert coordinates(made) == {"expert": {0: 0, 1: 1, 2: 0, 3: 1}}
    assert words(made, [1, 3]) == "ranks 1, 3 (expert group 1)"


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ([5], "rank 5 (node 1)"),
        ([4, 5, 6, 7], f"ranks 4{DASH}7 (node 1)"),
        ([1, 5], "ranks 1, 5 (rail 1)"),
        ([0, 1], f"ranks 0{DASH}1 (group mesh_tp [0, 1])"),
        ([0, 2, 4, 6], "ranks 0, 2, 4, 6 (tensor rank 0)"),
        ([0, 3], "ranks 0, 3"),
    ],
)
def test_words_for_what_ranks_have_in_common(positions: list[int], expected: str) -> None:
    assert words(two_nodes(mesh_tp="pairs"), positions) == expected


def test_two_places_that_are_the_same_ranks_are_both_named() -> None:
    made = two_nodes(mesh_pp="across")
    assert words(made, [4, 5, 6, 7]) == f"ranks 4{DASH}7 (node 1, pipeline stage 1)"


def test_a_place_may_have_few_exceptions() -> None:
    places = {"node": {0: set(range(8)), 1: set(range(8, 16))}, "rail": {n: {n, n + 8} for n in range(8)}}
    assert common_places(range(7), places) == [Place("node", [0])]  # 7 of 8
    assert common_places(range(6), places) == []  # 6 of 8: less than four fifths
    assert common_places([0, 8, 1, 9], places) == [Place("rail", [0, 1])]
    assert common_places([0], places) == []  # what stands out alone has nothing in common with others


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Place("node", [17]), "node 17"),
        (Place("link", [frozenset({4, 5}), frozenset({6, 7})]), f"nodes 4{DASH}7"),
        (Place("link", [frozenset({"a", "b"})]), "nodes a and b"),
        (Place("pipeline", [3]), "pipeline stage 3"),
        (Place("host", ["b", "a"]), "hosts a and b"),
    ],
)
def test_words_of_places(place: Place, expected: str) -> None:
    assert place.words == expected
