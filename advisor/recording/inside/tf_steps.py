"""Batches of Keras' fit and calls of tf.functions, and TensorFlow's profiler."""

from __future__ import annotations

import sys
from typing import Any

from .torch_steps import Tick
from .wrapping import wrap
from .xplane import XplaneProfiler


def watch_fit(keras: Any, tick: Tick) -> None:
    """Count the batches of `Model.fit`, as it tells its callbacks of each."""

    def ended(original: Any, *args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        tick("fit", "fit", "Model.fit", None)

    wrap(keras.callbacks.CallbackList, "on_train_batch_end", ended)


def watch_functions(tf: Any, tick: Tick) -> None:
    """Count the outermost calls of every tf.function."""

    def call(original: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(function, *args, **kwargs)
        if not tf.inside_function():
            tick("function", id(function), getattr(function, "__name__", "function"), None)
        return result

    wrap(type(tf.function(lambda: None)), "__call__", call)


PROFILER = "tensorflow.python.profiler.profiler_v2"  # the module whose own calls start the profiler


class TfProfiler(XplaneProfiler):
    """`tf.profiler.experimental`."""

    def __init__(self, folder: str) -> None:
        self.profiler = sys.modules["tensorflow"].profiler.experimental
        super().__init__(folder, self.profiler.start, self.profiler.stop)

    def range_of(self, step: int) -> Any:
        return self.profiler.Trace("train", step_num=step, _r=1)

    def range(self, name: str) -> Any:
        return self.profiler.Trace(name)
