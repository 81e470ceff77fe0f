"""Keras' fit and calls of tf.functions, and TensorFlow's profiler."""

from __future__ import annotations

import functools
import sys
from typing import Any

from . import xplane
from .profilers import OURS, Profiler
from .torch_steps import Tick


def watch_fit(keras: Any, tick: Tick) -> None:
    """Count the batches of `Model.fit`: a callback more."""
    model = keras.Model
    original = model.fit

    class Count(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            tick("fit", "fit", "Model.fit", None)

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        callbacks = kwargs.get("callbacks")
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(Count())
        else:
            present = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
            kwargs["callbacks"] = [*present, Count()]
        return original(self, *args, **kwargs)

    model.fit = fit


def watch_functions(tf: Any, tick: Tick) -> None:
    """Count the outermost calls of every tf.function."""
    owner = type(tf.function(lambda: None))
    original = owner.__call__

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if not tf.inside_function():
            tick("function", id(self), getattr(self, "__name__", "function"), None)
        return result

    owner.__call__ = call


PROFILER = "tensorflow.python.profiler.profiler_v2"
"""The module whose own calls start the profiler."""


class TfProfiler(Profiler):
    """`tf.profiler.experimental`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.profiler = sys.modules["tensorflow"].profiler.experimental
        self.profiling = False

    def start(self) -> None:
        """As `Profiler.start`."""
        with OURS:
            self.profiler.start(self.folder)
        self.profiling = True

    def range_of(self, step: int) -> Any:
        """As `Profiler.range_of`."""
        return self.profiler.Trace("train", step_num=step, _r=1)

    def range(self, name: str) -> Any:
        """As `Profiler.range`."""
        return self.profiler.Trace(name)

    def halt(self) -> None:
        """As `Profiler.halt`."""
        if self.profiling:
            self.profiling = False
            self.profiler.stop()

    def export(self, block: dict[str, Any]) -> str:
        """As `Profiler.export`; TensorFlow wrote it when it stopped, but for the block."""
        xplane.add(self.folder, block)
        return self.folder
