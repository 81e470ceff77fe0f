"""tf.data: elements in parallel, batches ahead."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from .patch import Patch


class TfData(Patch):
    """Lets `map` and `interleave` run in parallel, and has each iterated dataset fetch ahead."""

    name = "tf-data"
    framework = "tensorflow"
    absent = "no_dataset"
    numerics = "changes"  # random augmentation runs in another order
    arguments = {
        "parallel": {"type": "boolean", "description": "`num_parallel_calls=tf.data.AUTOTUNE` where none is given"},
        "prefetch": {"type": "boolean", "description": "`prefetch(tf.data.AUTOTUNE)` at the end"},
    }

    def hook(self, module: Any, census: Any) -> None:
        dataset, tune = module.data.Dataset, module.data.AUTOTUNE
        if self.values.get("parallel"):
            for name in ("map", "interleave"):
                self._parallel(dataset, name, tune)
        if self.values.get("prefetch"):
            self._ahead(dataset, tune)

    def _parallel(self, dataset: Any, name: str, tune: Any) -> None:
        original = getattr(dataset, name)
        signature = inspect.signature(original)

        @functools.wraps(original)
        def parallel(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            if bound.arguments.get("num_parallel_calls") is None:
                bound.arguments["num_parallel_calls"] = tune
                self.hits += 1
            return original(*bound.args, **bound.kwargs)

        setattr(dataset, name, parallel)

    def _ahead(self, dataset: Any, tune: Any) -> None:
        original = dataset.__iter__

        @functools.wraps(original)
        def iterate(source: Any) -> Any:
            if type(source).__name__ == "_PrefetchDataset":
                self.refuse("as_it_is")
                return original(source)
            self.hits += 1
            return original(source.prefetch(tune))

        dataset.__iter__ = iterate
