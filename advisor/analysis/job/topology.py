"""Where the ranks of a job are, and which of these places those that stand out have in common.

A rank has a node and a rail (the number of its device in the node: one switch joins the cards of one number in all
nodes), and a number in each kind of process group: its pipeline stage, its group of experts, its replica.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import polars as pl

from advisor.analysis.job.collectives import devices_of
from advisor.analysis.job.job import Job
from advisor.analysis.job.network import islands, placement
from advisor.model.clause import Missing
from advisor.text import listed_ranks, listing, plural, runs_of

_Of: TypeAlias = dict[int, Hashable]
Coordinates: TypeAlias = dict[str, _Of]
"""By dimension, the place of each rank's number, of those that were not recorded too."""
# By dimension and place, what is there; the dimensions that are named first come first
Places: TypeAlias = Mapping[str, Mapping[Hashable, set[int]]]
_NOUNS: Final = {
    "host": "host",
    "node": "node",
    "pipeline": "pipeline stage",
    "expert": "expert group",
    "tensor": "tensor rank",
    "context": "context rank",
    "data": "replica",
    "rail": "rail",
    "group": "group",
    "link": "node",  # which is between two
}
"""The dimensions in words, those first that explain more."""
_KINDS: Final = {  # by the words in the names that torch's meshes and Megatron-LM give their groups
    "expert": {"expert", "ep", "moe"},
    "tensor": {"tensor", "tp"},
    "pipeline": {"pipeline", "pp"},
    "context": {"context", "cp"},
    "data": {"data", "dp", "fsdp", "shard", "replicate"},
}
_MOSTLY: Final = 0.8  # of what is at a place, and of what stands out: one GPU of a node may look well
_LISTED: Final = 24  # letters: longer lists of ranks are counted instead


class Place(NamedTuple):
    """A dimension, and the values in it that those that stand out have in common."""

    dimension: str
    values: Sequence[Hashable]

    @property
    def words(self) -> str:
        """`node 17`, `nodes 4` to `7` with an en dash, `pipeline stage 3`, `hosts a and b`."""
        ends = {end for value in self.values for end in (value if isinstance(value, frozenset) else [value])}
        numbers = [end for end in ends if isinstance(end, int)]
        names = runs_of(numbers) if numbers else listing(sorted(map(str, ends)))
        noun = _NOUNS[self.dimension]
        return f"{noun if len(ends) == 1 else plural(noun)} {names}"


def common_places(items: Collection[int], places: Places) -> list[Place]:
    """The places that have most of the items and fewest others, in the fewest values: several that are alike.

    A place is believed where four fifths of what is there stands out, and as much of what stands out is there.
    """
    outstanding, candidates = set(items), list[tuple[float, int, Place]]()
    for dimension, values in places.items():
        slow = [value for value, there in values.items() if len(there & outstanding) >= _MOSTLY * len(there)]
        there = set[int]().union(*(values[value] for value in slow))
        agreement = len(there & outstanding) / len(there | outstanding)
        if agreement >= _MOSTLY and len(slow) < len(outstanding):
            candidates.append((agreement, -len(slow), Place(dimension, slow)))
    best = max((candidate[:2] for candidate in candidates), default=None)
    return [place for *rank, place in candidates if tuple(rank) == best]


def words(job: Job, positions: Sequence[int]) -> str:
    """`rank 3 (node 0)`, or `ranks 4-7 (host node2)` with the places that these ranks have in common.

    A process group is named where they have nothing else.
    """
    if job.several_devices:
        return listing([job.names[position] for position in positions])
    numbers = [job.ranks[position].worker for position in positions]
    places = in_common(job, positions)
    common = ", ".join(place.words for place in places if place.dimension != "group" or len(places) == 1)
    listed = listed_ranks(numbers)
    listed = listed if len(listed) <= _LISTED else f"{len(numbers)} ranks"
    return f"{listed} ({common})" if common else listed


def lone(job: Job, positions: Sequence[int]) -> int | Missing:
    """The number of the one rank that stands out."""
    return job.ranks[positions[0]].worker if len(positions) == 1 else Missing("several_late_ranks")


def in_common(job: Job, positions: Sequence[int]) -> list[Place]:
    """The places that these ranks have in common; of one rank its node."""
    if len(positions) > 1:
        return common_places(positions, job.once(places_of_ranks))
    node = job.once(_nodes).get(job.ranks[positions[0]].worker)
    return [] if node is None else [Place("node" if isinstance(node, int) else "host", [node])]


def places_of_ranks(job: Job) -> Places:
    """By dimension and place, the positions of the members that are there."""
    at = {job.ranks[position].worker: position for position in job.members}
    places: dict[str, dict[Hashable, set[int]]] = defaultdict(lambda: defaultdict(set))
    for dimension, of_rank in job.once(coordinates).items():
        for rank, value in of_rank.items():
            if rank in at:
                places[dimension][value].add(at[rank])
    for name, _, ranks in job.once(_groups):
        if name and at.keys() >= set(ranks):
            places["group"][name] |= {at[rank] for rank in ranks}
    return {dimension: places[dimension] for dimension in _NOUNS if dimension in places}


def coordinates(job: Job) -> Coordinates:
    """Where each rank is, by dimension, as far as it is known and the ranks differ.

    Ranks fill nodes one after the other, as torchrun places them, unless the recordings name their hosts. A rank's
    number in a kind of group is its index there; of a kind with groups of several sizes the largest counts.
    """
    if job.several_devices:
        return {}
    known: Coordinates = defaultdict(dict, _machines(job))
    for _, kind, ranks in sorted(job.once(_groups), key=lambda group: len(group[2])):
        if kind and len(ranks) < (job.world_size or 0):
            known[kind] |= {rank: index for index, rank in enumerate(ranks)}
    known["pipeline"] |= {rank: stage for chain in job.once(pipelines) for stage, rank in enumerate(chain)}
    return {dimension: of_rank for dimension, of_rank in known.items() if len(set(of_rank.values())) > 1}


def node_names(job: Job) -> list[str | None]:
    """By position, the number of each rank's node or its host's name; None where all are on one, or none is known."""
    nodes = job.once(_nodes)
    return [str(nodes[rank.worker]) if rank.worker in nodes else None for rank in job.ranks]


def _nodes(job: Job) -> _Of:
    """The node of each rank's number, or its host's name, where there are several."""
    known = job.once(coordinates)
    return known.get("host") or known.get("node", {})


def _machines(job: Job) -> Coordinates:
    hosts = {job.ranks[position].worker: job.ranks[position].facts.get("host") for position in job.members}
    devices, world = devices_of(job), job.world_size or 0
    if hosts and None not in hosts.values():
        return {"host": dict(hosts)}
    if not devices or devices == 1 or any(job.ranks[i].device != job.ranks[i].worker % devices for i in job.members):
        return {}  # a job may use fewer devices of a node than it sees, or number its ranks in another way
    return {
        "node": {rank: rank // devices for rank in range(world)},
        "rail": {rank: rank % devices for rank in range(world)},
    }


def _groups(job: Job) -> list[tuple[str | None, str | None, list[int]]]:
    """Of each process group its name, the kind that its description or its operations show, its ranks' numbers."""
    columns = ["group", "description", "ranks", "group_size"]
    by_group = job.calls.filter(pl.col("ranks").is_not_null()).group_by(columns)
    groups = by_group.agg(exchanges=(pl.col("op") == "all_to_all").any()).sort(columns)
    listed = placement(groups["ranks"], groups["group_size"], None)["ranks"].to_list()
    return [
        (name, _kind(description, exchanges=exchanges), ranks)
        for (name, description, _, _, exchanges), ranks in zip(groups.rows(), listed, strict=True)
        if ranks
    ]


def _kind(description: str | None, *, exchanges: bool) -> str | None:
    """The kind of a group; None of one that names several, as the copies of experts do."""
    names = set(re.findall(r"[a-z]+", (description or "").lower()))
    kinds = [kind for kind, words_ in _KINDS.items() if names & words_]
    return (kinds[0] if len(kinds) == 1 else None) if kinds else "expert" if exchanges else None


def pipelines(job: Job) -> list[list[int]]:
    """The numbers of ranks that messages between stages join in the common steps, of unrecorded ones too, in order."""
    messages = job.calls.filter("staged", pl.col("peer").is_not_null(), pl.col("step").is_in(job.steps))
    pairs = messages.select("worker", "peer").unique().rows()
    return islands({rank for pair in pairs for rank in pair}, pairs)


def places_of_groups(job: Job, groups: Sequence[Sequence[int]]) -> Places:
    """By dimension and place, the indices of the groups of ranks' numbers whose data passes it.

    A node that has ranks of the group, a link between the nodes of ranks that are neighbours in it, and the rail that
    a group of several nodes stays on.
    """
    nodes, rails = job.once(_nodes), job.once(coordinates).get("rail", {})
    places: dict[str, dict[Hashable, set[int]]] = defaultdict(lambda: defaultdict(set))
    for index, ranks in enumerate(groups):
        passed = [nodes[rank] for rank in ranks if rank in nodes]
        if len(passed) == len(ranks):
            links = {frozenset(ends) for ends in pairwise([*passed, *passed[:1]]) if len({*ends}) > 1}
            on = {rails.get(rank) for rank in ranks} if links else set()
            for dimension, values in (("node", passed), ("link", links), ("rail", on if len(on) == 1 else ())):
                for value in values:
                    places[dimension][value].add(index)
    return places


def nodes_of(job: Job, ranks: Iterable[int]) -> int | None:
    """On how many nodes these ranks' numbers are; None where it is not known of all of them."""
    if job.several_devices:
        return 1
    machines = job.once(_machines)
    nodes = machines.get("host") or machines.get("node", {})
    return len({nodes[rank] for rank in ranks}) if nodes.keys() >= set(ranks) else None
