"""What sampling Python's stacks costs a step: blocks of steps with and without it, in turns, in one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Final

import numpy as np
import torch

from advisor.recording.inside.sampling import Sampler

_PAIRS, _STEPS, _RESAMPLED = 30, 100, 2000
_STEP_MS: Final = (2, 12)


def main() -> None:
    """Print the ratio of neighbouring blocks, with and without samples: the median and its interval of 95 %."""
    torch.set_num_threads(1)
    for step_ms in _STEP_MS:
        step, sampler = _step(step_ms), Sampler()
        ratios = []
        for pair in range(_PAIRS):
            order = (False, True) if pair % 2 else (True, False)
            took = {is_on: _block_ns(step, sampler, is_on=is_on) for is_on in order}
            ratios.append(took[True] / took[False])
        drawn = np.median(np.random.default_rng(0).choice(ratios, (_RESAMPLED, _PAIRS)), axis=1)
        low, high = np.quantile(drawn, (0.025, 0.975))
        print(f"{step_ms} ms: {median(ratios):.4f} ({low:.4f}-{high:.4f}), {sampler.samples} samples")


def _step(step_ms: float) -> Callable[[], None]:
    """A training step of about that length, half of it in ops and half in Python."""
    model, values = torch.nn.Linear(256, 256), list(range(2_000))
    batch = torch.randn(64, 256)

    def part() -> None:
        model(batch).sum().backward()
        json.dumps(values)
        sum(i * i for i in values)

    start = time.perf_counter()
    for _ in range(100):
        part()
    parts = max(1, round(step_ms / 10 / (time.perf_counter() - start)))

    def step() -> None:
        for _ in range(parts):
            part()

    return step


def _block_ns(step: Callable[[], None], sampler: Sampler, *, is_on: bool) -> int:
    if is_on:
        sampler.start()
    start = time.thread_time_ns()  # other programs take turns with this one
    for _ in range(_STEPS):
        step()
    took = time.thread_time_ns() - start
    sampler.stop()
    return took


if __name__ == "__main__":
    main()
