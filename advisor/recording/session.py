"""`advisor.record`: a recording in the program's own code."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from advisor.errors import UsageError
from advisor.recording.inside.phases import Phases
from advisor.recording.inside.stacks import Stacks

if TYPE_CHECKING:
    from advisor.recording.inside.profilers import Profiler

_SURPLUS: Final = 3  # steps that a phase has at least


class record:  # noqa: N801 - reads as a function: `with advisor.record("logdir") as r:`
    """Records the steps of a loop in PyTorch or JAX, and times the same steps without the profiler.

    Leaving the block early keeps what was recorded so far.

    Args:
        logdir: Folder that the recording of this process goes into; ranks share it.
        skip: Steps before anything is timed or recorded.
        active: Steps to record, and to time before and after; at least 3.
        shapes: Record shapes and types of each op's inputs.
        stacks: Record source lines; slows the recorded steps.
        memory: Record allocations.

    Attributes:
        path: The recording, once it is written; None until then.

    Raises:
        UsageError: `active` is less than 3, or neither torch nor jax is imported.
        OSError: the recording cannot be written; raised by `step` or at the end of the block.
    """

    def __init__(  # noqa: PLR0913 - options of a recording
        self,
        logdir: str | Path,
        *,
        skip: int = 10,
        active: int = 10,
        shapes: bool = True,
        stacks: bool = False,
        memory: bool = False,
    ) -> None:
        if active < _SURPLUS:
            raise UsageError(f"active={active}: a recording needs {_SURPLUS} steps or more")
        options = {"shapes": shapes, "stacks": stacks, "memory": memory}
        self._skip = max(1, skip)
        self._phases = Phases(_profiler(Path(logdir).resolve(), options), active, "step", self._skip - 1, Stacks())

    @property
    def path(self) -> Path | None:
        """The recording, once it is written."""
        return Path(self._phases.path) if self._phases.path else None

    def __enter__(self) -> Self:
        return self

    def step(self) -> None:
        """A step has ended; once the recording is written, this does nothing."""
        self._skip -= 1
        if self._skip < 1 and not self._phases.is_over:
            self._phases.step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._phases.finish()


def _profiler(logdir: Path, options: dict[str, bool]) -> Profiler:
    if "torch" in sys.modules:
        from advisor.recording.inside.torch_profiler import TorchProfiler  # noqa: PLC0415 - of the framework in use

        return TorchProfiler(str(logdir), options)
    if "jax" in sys.modules:
        from advisor.recording.inside.jax_steps import JaxProfiler  # noqa: PLC0415 - as above

        return JaxProfiler(str(logdir))
    raise UsageError("advisor.record: neither torch nor jax is imported; import one of them before")
