"""What `advisor record` costs a step outside the recorded phase: steps that do nothing, hooked and not, in turns."""

from __future__ import annotations

import time
from typing import Any, Final

import torch

from advisor.recording.inside.hook import Hook
from advisor.recording.inside.notes import Notes

_BLOCKS: Final = 200
_STEPS: Final = 500


def main() -> None:
    """Print the cost per step while steps are skipped, and once the recording is over: the least of many blocks."""
    alone = _optimizer()
    hook = Hook({"skip": 1 << 60, "active": 10, "logdir": "", "stop": False}, Notes())
    hook.frameworks["torch"](torch)
    hooked = _optimizer()
    for phase in ("skipping", "recorded"):
        hook.is_over = phase == "recorded"
        blocks = [(_block_ns(alone), _block_ns(hooked)) for _ in range(_BLOCKS)]
        least = [min(of) / _STEPS / 1e3 for of in zip(*blocks, strict=True)]
        print(f"{phase}: {least[1] - least[0]:.2f} us a step, of {least[0]:.2f} us that an empty step takes")


def _optimizer() -> Any:  # noqa: ANN401 - torch's
    nothing = type("Nothing", (torch.optim.Optimizer,), {"step": lambda _: None})
    return nothing([torch.nn.Parameter(torch.ones(1))], {})


def _block_ns(optimizer: Any) -> int:  # noqa: ANN401 - as above
    start = time.perf_counter_ns()
    for _ in range(_STEPS):
        optimizer.step()
    return time.perf_counter_ns() - start


if __name__ == "__main__":
    main()
