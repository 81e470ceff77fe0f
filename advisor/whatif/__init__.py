"""What if: a change goes in, an interval of saved milliseconds comes out.

A metric makes a `Change` with one of the builders and asks `saved`. How the recorded steps are replayed with it, when
that can be trusted, and what stands in for it, only this room knows.
"""

from advisor.whatif.change import (
    NOTHING,
    Change,
    between,
    cheaper_launches,
    faster,
    loss,
    merged,
    overlapped,
    sooner,
    together,
    without,
    without_waits,
    without_work,
)
from advisor.whatif.savings import Interval, is_replayed, replay_error, replayed_steps, saved

__all__ = [
    "NOTHING",
    "Change",
    "Interval",
    "between",
    "cheaper_launches",
    "faster",
    "is_replayed",
    "loss",
    "merged",
    "overlapped",
    "replay_error",
    "replayed_steps",
    "saved",
    "sooner",
    "together",
    "without",
    "without_waits",
    "without_work",
]
