"""What a recording asks of a framework's profiler, and how two profilers keep out of each other's way."""

from __future__ import annotations

from typing import Any, Callable

from .clock import CudaClock
from .job import cpus, far_cores
from .wrapping import wrap


class _Ours:
    """While it is open, whoever makes a profiler is us."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


OURS = _Ours()


def watch(owner: Any, name: str, on_other: Callable[[], None]) -> None:
    """Call `on_other` before the program makes or starts a profiler itself: two at a time lose events or crash."""

    def watched(original: Any, *args: Any, **kwargs: Any) -> Any:
        if not OURS.depth:
            on_other()
        return original(*args, **kwargs)

    wrap(owner, name, watched)


class Profiler:
    """A framework's profiler, as the phases of a recording call it."""

    step: Any = None

    def prepare(self) -> None:
        """Load and warm up; nothing is recorded yet."""

    def warmed(self) -> None:
        """The first step of the warm-up ended."""

    def start(self) -> None:
        """Record from here."""

    def range_of(self, step: int) -> Any:
        """The framework's own mark of a step."""

    def range(self, name: str) -> Any:
        """The framework's own mark of a stretch; on the thread that enters it."""

    def forget(self) -> None:
        """This is a forked process."""

    def halt(self) -> None:
        """End the recording, if there is one."""

    def export(self, block: dict[str, Any]) -> str:
        """Write the recording with the block of measured times; its path."""
        raise NotImplementedError

    def clock(self) -> CudaClock | None:
        """The clock of a device that works behind the host; None without one."""
        return None

    def job(self) -> dict[str, Any]:
        """What to note of machine and program."""
        return {"cpus": cpus(), "far_cores": far_cores()}

    def settle(self, result: object) -> None:
        """Wait for the device work of the call that ended a step, where nothing else orders it."""

    def mark(self, step: int) -> None:
        """End the mark of the last step, if any, and begin that of this one."""
        self.end_mark()
        self.step = self.range_of(step)
        self.step.__enter__()

    def stop(self, *, cut: bool = False) -> None:
        """End the recording; and the last mark, unless its step is cut off."""
        if not cut:
            self.end_mark()
        self.step = None
        with OURS:
            self.halt()

    def end_mark(self) -> None:
        """End the mark of the last step, if any."""
        if self.step is not None:
            self.step.__exit__(None, None, None)
            self.step = None
