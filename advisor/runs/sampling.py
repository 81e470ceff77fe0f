"""Some of the ranks of a large job, chosen while they are read: one per node first, then those that others wait for."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from advisor.analysis.job.blame import blamed, least_known
from advisor.analysis.job.job import job_of
from advisor.analysis.job.rank import Rank

File = TypeVar("File")
Outcome = TypeVar("Outcome")


def sample(
    files: Mapping[int, File],
    most: int,
    read: Callable[[Sequence[File]], Sequence[Outcome]],
    ranks_of: Callable[[Outcome], Sequence[Rank]],
) -> dict[int, Outcome]:
    """What `read` makes of at most so many of the files, by their ranks' numbers, in the order in which they were read.

    So many ranks as a node has are left for those that others wait for. While nobody waits for an unread rank, those
    are read of which the read ones show least, the last nodes one at a time.
    """
    outcomes = dict[int, Outcome]()

    def take(numbers: Sequence[int]) -> list[Rank]:
        outcomes.update(zip(numbers, read([files[number] for number in numbers]), strict=True))
        return [*chain.from_iterable(map(ranks_of, outcomes.values()))]

    numbers = sorted(files)
    devices = max((rank.visible or 1 for rank in take(numbers[:1])), default=1)
    of_nodes = [number for number in numbers if number % devices == numbers[0] % devices]
    spare = devices + 2  # ranks that lead to the node of a late one, and those of the node
    ranks = take(_spread(of_nodes[1:], most - spare - 1))
    while (budget := most - len(outcomes)) > 0 and (unread := set(numbers) - outcomes.keys()):
        job, nodes = job_of(ranks), unread.intersection(of_nodes)
        suspects = blamed(job, unread)[: min(budget, devices)]
        many = max(1 if nodes else spare, budget - spare)
        ranks = take(suspects or _spread(least_known(job, nodes or unread), min(many, budget)))
    return outcomes


def _spread(numbers: Sequence[int], most: int) -> list[int]:
    """So many of the numbers, evenly apart: the middle of each part of them."""
    many = max(0, min(most, len(numbers)))
    return [numbers[(2 * place + 1) * len(numbers) // (2 * many)] for place in range(many)]
