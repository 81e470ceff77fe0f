"""Options of DistributedDataParallel."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from .patch import Patch


class Ddp(Patch):
    """Changes the arguments of every `DistributedDataParallel` that is made."""

    name = "ddp"
    numerics = "rounding"
    arguments = {
        "gradient_as_bucket_view": {"type": "boolean", "description": "gradients live in the buckets: no copies"},
        "broadcast_buffers": {"type": "boolean", "description": "send buffers to all ranks at each forward pass"},
        "bucket_cap_mb": {"type": "integer", "minimum": 1, "maximum": 4096, "description": "size of a bucket in MB"},
        "find_unused_parameters": {"type": "boolean", "description": "search the graph for them at each step"},
        "static_graph": {"type": "boolean", "description": "every step uses the same parameters"},
    }

    def install(self, framework: str, module: Any, census: Any) -> None:
        """As `Patch.install`."""
        if framework != "torch":
            return
        ddp = module.nn.parallel.DistributedDataParallel
        original = ddp.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def init(replica: Any, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(replica, *args, **kwargs)
            defaults = {name: signature.parameters[name].default for name in self.values}
            if all(bound.arguments.get(name, defaults[name]) == value for name, value in self.values.items()):
                self.refuse("as_it_is")
            else:
                self.hits += 1
            bound.arguments.update(self.values)
            original(*bound.args, **bound.kwargs)

        ddp.__init__ = init

    def begin(self) -> None:
        """As `Patch.begin`."""
        if not self.hits and not self.refusals:
            self.refuse("no_ddp")
