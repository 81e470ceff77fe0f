"""What ends a step: of all that repeats in a program, the calls that repeat least often."""

from __future__ import annotations

from typing import Hashable

from . import clock

# Kinds of calls, the surest sign of a step highest; a surer kind replaces the others
RANKS = {"update": 4, "engine": 3, "fit": 3, "gradient": 3, "optimizer": 2, "function": 2, "module": 1}
_MOST_RESTARTS = 3
_PATIENCE_NS = 60 * 10**9  # so long an optimizer that exists may take to its first step
_ANY = "any"  # the key of all calls together
_ONCE = 20  # calls of others after which something that was called once was start-up
_STALE, _STALE_SKIPS = 50, 5  # the same of what repeated, by itself and in times `skip`


class Marker:
    """Chooses while skipping, then knows the ends of steps.

    Of several optimizers the one that steps least ends the step, of equals the last: so a GAN's generator, and of an
    optimizer per layer the last one. Another one that appears later begins the choice anew, three times at most; from
    then on all count as one. Where an optimizer exists, calls of modules before its first step are roll-outs or an
    evaluation; they count if none has stepped after a minute of them.
    """

    def __init__(self, skip: int) -> None:
        self.skip = max(1, skip)
        self.kind: str | None = None
        self.key: Hashable | None = None
        self.restarts = 0
        self._calls: dict[Hashable, int] = {}
        self._at: dict[Hashable, int] = {}
        self._total = 0
        self._optimizer_exists = False
        self._waits_since: int | None = None

    def await_optimizer(self) -> None:
        """An optimizer was made: its steps are to come."""
        self._optimizer_exists = True

    def ends_step(self, kind: str, key: Hashable) -> bool | None:
        """Whether this call ends a step after the skipped ones; None where the choice begins anew.

        The call that ends the skipping is the first to end a step.
        """
        if self.key is None and self._optimizer_exists and RANKS[kind] < RANKS["optimizer"]:
            self._waits_since = self._waits_since or clock.now_ns()
            if clock.now_ns() - self._waits_since < _PATIENCE_NS:
                return False
        if kind != self.kind:
            if not self.is_surer(kind):
                return False
            return self._restart(kind, key)
        if self.restarts > _MOST_RESTARTS:
            key = _ANY
        if key not in self._calls and self.key is not None:
            return self._restart(kind, key)
        self._count(key)
        if self.key is not None:
            return key == self.key
        if self._is_over(key):
            self.key = key
        return self.key is not None

    def is_surer(self, kind: str) -> bool:
        """Whether calls of this kind replace those that end steps."""
        return self.kind is None or RANKS[kind] > RANKS[self.kind]

    def _restart(self, kind: str, key: Hashable) -> bool | None:
        anew = self.key is not None
        self.restarts += anew
        self.kind, self.key, self._calls, self._at, self._total = kind, None, {}, {}, 0
        first = _ANY if self.restarts > _MOST_RESTARTS else key
        self._count(first)
        if self._is_over(first):
            self.key = first
        return None if anew else self.key is not None

    @property
    def calls(self) -> int:
        """How often the likeliest marker was called since the choice began."""
        return min(self._loop().values()) if self._calls else 0

    def _count(self, key: Hashable) -> None:
        self._total += 1
        self._calls[key] = self._calls.get(key, 0) + 1
        self._at[key] = self._total

    def _is_over(self, key: Hashable) -> bool:
        """Whether the slowest of those in the loop has been skipped often enough with this call."""
        if self._calls[key] < self.skip:
            return False
        loop = self._loop()
        return key in loop and min(loop.values()) >= self.skip and loop[key] == min(loop.values())

    def _loop(self) -> dict[Hashable, int]:
        """Calls of those that still take part; of all where none does."""
        # Calls of others after which one that was called once, or repeated, has left the loop.
        once, stale = max(_ONCE, 2 * self.skip), max(_STALE, _STALE_SKIPS * self.skip) * len(self._calls)
        ages = {key: self._total - self._at[key] for key in self._calls}
        loop = {key: of for key, of in self._calls.items() if ages[key] <= (once if of == 1 else stale)}
        return loop or self._calls
