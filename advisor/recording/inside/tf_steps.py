"""Keras' fit and calls of tf.functions, and TensorFlow's profiler."""

from __future__ import annotations

import sys
from typing import Any

from .torch_steps import Tick
from .wrapping import wrap
from .xplane import XplaneProfiler


def watch_fit(keras: Any, tick: Tick) -> None:
    """Count the batches of `Model.fit`: a callback more."""

    class Count(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            tick("fit", "fit", "Model.fit", None)

    def fit(original: Any, *args: Any, **kwargs: Any) -> Any:
        callbacks = kwargs.get("callbacks")
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(Count())
        else:
            present = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
            kwargs["callbacks"] = [*present, Count()]
        return original(*args, **kwargs)

    wrap(keras.Model, "fit", fit)


def watch_functions(tf: Any, tick: Tick) -> None:
    """Count the outermost calls of every tf.function."""

    def call(original: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(function, *args, **kwargs)
        if not tf.inside_function():
            tick("function", id(function), getattr(function, "__name__", "function"), None)
        return result

    wrap(type(tf.function(lambda: None)), "__call__", call)


PROFILER = "tensorflow.python.profiler.profiler_v2"
"""The module whose own calls start the profiler."""


class TfProfiler(XplaneProfiler):
    """`tf.profiler.experimental`."""

    def __init__(self, folder: str) -> None:
        self.profiler = sys.modules["tensorflow"].profiler.experimental
        super().__init__(folder, self.profiler.start, self.profiler.stop)

    def range_of(self, step: int) -> Any:
        return self.profiler.Trace("train", step_num=step, _r=1)

    def range(self, name: str) -> Any:
        return self.profiler.Trace(name)
