"""Where batches come from: options of loaders, tf.data, and one batch again and again."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Dict, List

from ..wrapping import wrap  # noqa: TID252 - programs have no package `advisor`
from .patch import Patch

_NEED_WORKERS = ("prefetch_factor", "persistent_workers")
_ENDLESS = 2**62
_WITHOUT_WORKERS = {"prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None, "timeout": 0}


class Loader(Patch):
    """Changes the arguments of every `DataLoader` that is made."""

    name = "dataloader"
    framework = "torch"
    absent = "no_loader"
    numerics = "changes"  # random augmentation draws other numbers in other processes
    arguments = {
        "num_workers": {"type": "integer", "minimum": 0, "maximum": 128, "description": "worker processes"},
        "pin_memory": {"type": "boolean", "description": "batches in pinned memory; needs a GPU"},
        "prefetch_factor": {"type": "integer", "minimum": 1, "maximum": 64, "description": "batches ahead per worker"},
        "persistent_workers": {"type": "boolean", "description": "workers live longer than an epoch"},
    }

    def hook(self, module: Any, census: Any) -> None:
        self.remake(module.utils.data.DataLoader, self._changes)

    def _changes(self, arguments: Dict[str, Any]) -> Dict[str, Any]:
        """What differs from the program's own arguments; nothing where it has to stay as it is."""
        torch = sys.modules["torch"]
        if isinstance(arguments.get("dataset"), torch.utils.data.IterableDataset):
            self.refuse("iterable_dataset", kind=type(arguments["dataset"]).__name__)
            return {}
        planned = {name: value for name, value in self.values.items() if self._fits(name, arguments)}
        if planned.get("num_workers") == 0:
            planned.update(_WITHOUT_WORKERS)
        changes = {name: value for name, value in planned.items() if arguments.get(name) != value}
        if planned and not changes:
            self.refuse("as_it_is")
        return changes

    def _fits(self, name: str, arguments: Dict[str, Any]) -> bool:
        if name == "pin_memory" and not sys.modules["torch"].cuda.is_available():
            if len(self.values) == 1:
                self.refuse("no_gpu")
            return False
        if name in _NEED_WORKERS and not (self.values.get("num_workers") or arguments.get("num_workers")):
            return self.refuse("no_workers")
        return True


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
                wrap(dataset, name, functools.partial(self._parallel, inspect.signature(getattr(dataset, name)), tune))
        if self.values.get("prefetch"):
            wrap(dataset, "__iter__", functools.partial(self._ahead, tune))

    def _parallel(self, signature: Any, tune: Any, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        if bound.arguments.get("num_parallel_calls") is None:
            bound.arguments["num_parallel_calls"] = tune
            self.hits += 1
        return original(*bound.args, **bound.kwargs)

    def _ahead(self, tune: Any, iterate: Any, source: Any) -> Any:
        if type(source).__name__ == "_PrefetchDataset":
            self.refuse("as_it_is")
            return iterate(source)
        self.hits += 1
        return iterate(source.prefetch(tune))


class RepeatedInput(Patch):
    """While it is on, each iterator of a `DataLoader` gives its last batch again, tf.data its first; loading waits."""

    name = "input"
    framework = "torch tensorflow"
    absent = "no_loader"
    toggles = ("cpu", "cuda")
    numerics = "changes"  # the model sees one batch
    arguments = {"repeat": {"type": "string", "enum": ["one-batch"], "default": "one-batch", "description": "which"}}

    def __init__(self, values: Dict[str, Any]) -> None:
        super().__init__(values)
        self._choices: List[Any] = []

    def switch(self, on: bool) -> None:
        super().switch(on)
        for choice in self._choices:
            choice.assign(int(on))

    def hook(self, module: Any, census: Any) -> None:
        if hasattr(module, "executing_eagerly"):
            wrap(module.data.Dataset, "__iter__", functools.partial(self._of_dataset, module))
        else:
            wrap(module.utils.data.dataloader._BaseDataLoaderIter, "__next__", self._of_loader)

    def _of_dataset(self, tf: Any, iterate: Any, source: Any) -> Any:
        if not tf.executing_eagerly():
            return iterate(source)
        dataset, choice = tf.data.Dataset, tf.Variable(int(self.on), dtype=tf.int64, trainable=False)
        self._choices.append(choice)
        self.hits += 1
        both = [source, source.take(1).cache().repeat()]
        return iterate(dataset.choose_from_datasets(both, dataset.range(_ENDLESS).map(lambda _: choice + 0)))

    def _of_loader(self, load: Any, loader: Any) -> Any:
        batch = loader.__dict__.get("_advisor_batch")
        if self.on and batch is not None:
            self.hits += 1
            return batch
        loader._advisor_batch = load(loader)
        return loader._advisor_batch
