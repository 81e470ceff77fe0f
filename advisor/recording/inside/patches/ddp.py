"""Options of DistributedDataParallel."""

from __future__ import annotations

from typing import Any, Dict

from .patch import Patch


class Ddp(Patch):
    """Changes the arguments of every `DistributedDataParallel` that is made."""

    name = "ddp"
    framework = "torch"
    absent = "no_ddp"
    numerics = "rounding"
    arguments = {
        "gradient_as_bucket_view": {"type": "boolean", "description": "gradients live in the buckets: no copies"},
        "broadcast_buffers": {"type": "boolean", "description": "send buffers to all ranks at each forward pass"},
        "bucket_cap_mb": {"type": "integer", "minimum": 1, "maximum": 4096, "description": "size of a bucket in MB"},
        "find_unused_parameters": {"type": "boolean", "description": "search the graph for them at each step"},
        "static_graph": {"type": "boolean", "description": "every step uses the same parameters"},
    }

    def hook(self, module: Any, census: Any) -> None:
        self.remake(module.nn.parallel.DistributedDataParallel, self._changes)

    def _changes(self, arguments: Dict[str, Any]) -> Dict[str, Any]:
        """What differs from the program's own arguments."""
        changes = {name: value for name, value in self.values.items() if arguments[name] != value}
        if not changes:
            self.refuse("as_it_is")
        return changes
