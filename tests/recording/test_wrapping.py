"""Programs meet what they know in the place of what the recorder wraps."""

from __future__ import annotations

import copy
import math
import pickle
from types import SimpleNamespace
from typing import Any

from advisor.recording.inside.jax_steps import Counted
from advisor.recording.inside.tf_steps import watch_fit


def test_a_copy_of_a_counted_function_is_the_function():
    counted = Counted(math.sqrt, lambda *_: None)
    assert counted(4.0) == 2.0
    assert copy.deepcopy(counted) is copy.copy(counted) is pickle.loads(pickle.dumps(counted)) is math.sqrt  # noqa: S301 - our own


def test_the_batches_of_fit_are_counted_without_a_callback_more():
    told: list[Any] = []

    class CallbackList:
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            told.append((batch, logs))

    steps: list[str] = []
    watch_fit(
        SimpleNamespace(callbacks=SimpleNamespace(CallbackList=CallbackList)), lambda kind, *_: steps.append(kind)
    )
    CallbackList().on_train_batch_end(0)
    CallbackList().on_train_batch_end(1, logs={"loss": 2.0})
    assert told == [(0, None), (1, {"loss": 2.0})]
    assert steps == ["fit", "fit"]
