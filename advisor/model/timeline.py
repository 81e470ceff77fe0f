"""The timeline of a report: what the worst step shows on a page."""

from collections.abc import Mapping
from typing import Literal

from advisor.model.frozen import Frozen


class Track(Frozen):
    """A stream of the device or a thread of the host; `name` is the thread's, null where it is not known."""

    kind: Literal["stream", "thread"]
    number: int
    name: str | None = None


class Idle(Frozen):
    """A stretch in which the device runs nothing, and why; times in ns from the timeline's start."""

    start_ns: int
    dur_ns: int
    cause: str


class Span(Frozen):
    """A stretch of a timeline, in ns from its start."""

    start_ns: int
    dur_ns: int


class Events(Frozen):
    """The events of a timeline, a column each and all of one length.

    `track` counts into the timeline's tracks, `name` and `kind` into its texts; times are in ns from its start. `depth`
    says how many ranges of the same track enclose the event.
    """

    track: tuple[int, ...]
    name: tuple[int, ...]
    kind: tuple[int, ...]
    depth: tuple[int, ...]
    start_ns: tuple[int, ...]
    dur_ns: tuple[int, ...]


class Timeline(Frozen):
    """The longest used step of the worker that sets the pace: what ran, and why the device idled.

    `recorded` is how many events the step has; the shortest are left out where that is more than a page can show.
    `shows` gives, by the key of a finding, the stretches that show it.
    """

    worker: int
    device: int | None
    step: int | None
    start_ns: int
    dur_ns: int
    recorded: int
    tracks: tuple[Track, ...]
    texts: tuple[str, ...]
    events: Events
    idle: tuple[Idle, ...]
    shows: Mapping[str, tuple[Span, ...]]
