"""What the processes of a run noted, as numbers: times of blocks, patches that took hold, a ratio with its interval."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import log
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from advisor.comparing.significance import stats
from advisor.model.trials import Gain, Training
from advisor.trials.processes import Events

_ROUNDING: Final = 1e-6  # relative: 2e-11 fused, 2e-9 channels_last; other data or fewer bits are far above


class Block(NamedTuple):
    """The mean step of a block, of the slowest rank."""

    on: bool
    step_ms: float


def blocks(events: Events) -> list[Block]:
    """The blocks that all ranks completed, in their order."""
    ranks = list(_of_last_marker(events).values())
    if not ranks:
        return []
    numbers = set.intersection(*(set(rank) for rank in ranks))
    return [Block(bool(ranks[0][n]["on"]), max(float(rank[n]["step_ms"]) for rank in ranks)) for n in sorted(numbers)]


def _of_last_marker(events: Events) -> Mapping[str, Mapping[int, Mapping[str, Any]]]:
    """By process and number; what came before another marker was chosen counts no steps."""
    ranks: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for event in events:
        if event["event"] == "marker":
            ranks.pop(event["process"], None)
        elif event["event"] == "block":
            ranks[event["process"]][int(event["number"])] = event
    return ranks


def log_ratios(turns: Sequence[Block]) -> list[float]:
    """Log of the time with the patch over the time without, for each pair of neighbours of either setting."""
    pairs = zip(turns[::2], turns[1::2], strict=False)
    return [
        log(second.step_ms / first.step_ms) if second.on else log(first.step_ms / second.step_ms)
        for first, second in pairs
        if first.on != second.on
    ]


def paired(turns: Sequence[Block]) -> list[Block]:
    """Without a last block that lacks its neighbour."""
    return [*turns[: len(turns) // 2 * 2]]


def spread(turns: Sequence[Block]) -> float | None:
    """The largest difference between neighbours of one setting, as a share; None without any."""
    alike = [abs(log(b.step_ms / a.step_ms)) for a, b in pairwise(turns) if a.on == b.on]
    return max(alike, default=None)


def mean_ms(turns: Iterable[Block], *, on: bool) -> float | None:
    """The mean step of one setting."""
    times = [block.step_ms for block in turns if block.on == on]
    return sum(times) / len(times) if times else None


class Ready(NamedTuple):
    """What was known when the skipped steps were over: of the slowest process."""

    seconds: float
    digest: float | None  # of the parameters
    device: str
    ranks: int  # that time steps


def ready(events: Events) -> Ready | None:
    """None where no step ended."""
    each = [event for event in events if event["event"] == "ready"]
    if not each:
        return None
    digests = [event["digest"] for event in each]
    return Ready(
        max(float(event["seconds"]) for event in each),
        None if None in digests else sum(digests),
        str(each[0]["device"]),
        len({event["process"] for event in each}),
    )


def digest(events: Events) -> float | None:
    """Of the parameters after the first steps."""
    known = ready(events)
    return known.digest if known else None


def training(base: Sequence[float | None], patched: float | None) -> Training:
    """Whether the parameters are the same; unknown where the program itself does not repeat them."""
    known = [digest for digest in base if digest is not None]
    if patched is None or not known or any(digest != known[0] for digest in known):
        return "unknown"
    if patched == known[0]:
        return "same"
    return "rounding" if abs(patched - known[0]) <= _ROUNDING * abs(known[0]) else "different"


class Account(NamedTuple):
    """What all patches of a run say of themselves, over all ranks."""

    hits: Mapping[str, int]
    refusals: Mapping[str, tuple[str, Mapping[str, Any]]]
    proof: Mapping[str, Any]

    @property
    def is_applied(self) -> bool:
        """Whether any of them took hold."""
        return any(self.hits.values())


def account(events: Events) -> Account:
    """A patch took hold if it did in any process; a reason counts once."""
    each = [event for event in events if event["event"] == "patch"]
    hits = {name: number for event in events if event["event"] == "ready" for name, number in event["hits"].items()}
    for event in each:
        hits[event["name"]] = max(event["hits"], hits.get(event["name"], 0))
    refusals = {code: (event["name"], facts) for event in each for code, facts in event["refusals"]}
    proof = {key: value for event in each for key, value in event["proof"].items()}
    return Account(hits, refusals, proof)


Ladder: TypeAlias = tuple[int, ...]  # after how many pairs the interval is looked at, and the trial may end
BLOCKS: Final[Ladder] = (6, 12, 24, 48, 96, 192)
PROCESSES: Final[Ladder] = (4, 8, 16)

LEAST_PAIRS: Final = 3  # with two pairs the interval spans everything
_LEVEL: Final = 0.95
_TRIMMED: Final = 0.1  # of the log ratios at either end: a hiccup of the machine is no effect of a patch


def gain(log_ratios: Sequence[float], ladder: Ladder, within: float) -> tuple[Gain | None, bool]:
    """The ratio with its interval at the first look at which that was narrow enough, else of all pairs.

    It is None with fewer than three pairs. The second value is whether its half-width is `within`.
    """
    looks = [pairs for pairs in ladder if pairs <= len(log_ratios)]
    for look, pairs in enumerate(looks, 1):
        early = interval(log_ratios[:pairs], look)
        if early and early.half_width <= within:
            return early, True
    last = interval(log_ratios, len(looks) + (len(log_ratios) not in looks))
    return last, last is not None and last.half_width <= within


def interval(log_ratios: Sequence[float], look: int) -> Gain | None:
    """The ratio with its t interval; None with fewer than three pairs.

    The interval is Tukey's and McLaughlin's of a trimmed mean (Sankhya A 25, 1963): a tenth is cut at either end, and
    the variance is the winsorised one. Whoever stops when the interval is narrow enough looks several times: look k has
    the level 1 - 0.05 / (k (k + 1)), and all looks together have 95 % (union bound: these shares of 0.05 add up to it).
    """
    values = np.sort(np.asarray(log_ratios, np.float64))
    if len(values) < LEAST_PAIRS:
        return None
    cut = int(_TRIMMED * len(values))
    inner = values[cut : len(values) - cut]
    deviation = np.clip(values, inner[0], inner[-1]).std(ddof=1)
    error = deviation / ((1 - 2 * cut / len(values)) * np.sqrt(len(values)))
    margin = stats().t.ppf(1 - (1 - _LEVEL) / (look * (look + 1)) / 2, len(inner) - 1) * error
    low, middle, high = (float(np.exp(inner.mean() + side * margin)) for side in (-1, 0, 1))
    return Gain(ratio=middle, low=low, high=high, pairs=len(values))
