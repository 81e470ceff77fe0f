"""torch.compile."""

from __future__ import annotations

import sys
from typing import Any, Dict

from .root import Call, RootPatch


class Compile(RootPatch):
    """Compiles the outermost modules at their first call; where that fails the program runs on without."""

    name = "compile"
    toggles = ("cpu", "cuda")
    numerics = "rounding"
    arguments = {
        "mode": {
            "type": "string",
            "enum": ["default", "reduce-overhead", "max-autotune-no-cudagraphs"],
            "default": "default",
            "description": "of torch.compile",
        }
    }

    def fits(self, root: Any) -> bool:
        """As `RootPatch.fits`."""
        if type(root).__name__ == "OptimizedModule" or getattr(root, "_compiled_call_impl", None) is not None:
            self.refuse("as_it_is")
            return False
        return True

    def call(self, call: Call, args: Any, kwargs: Any) -> Any:
        """As `RootPatch.call`."""
        if self.refusals:
            return call.original(*args, **kwargs)
        torch = sys.modules["torch"]
        if call.compiled is None:
            call.compiled = torch.compile(call.original, mode=self.values["mode"])
        try:
            result = call.compiled(*args, **kwargs)
        except Exception as error:
            self.hits = 0
            self.refuse("compile_failed", kind=type(error).__name__)
            return call.original(*args, **kwargs)
        self.hits = self.hits or _counter("stats", "unique_graphs")
        return result

    def proof(self) -> Dict[str, Any]:
        """As `Patch.proof`."""
        if not self.hits:
            return {}
        return {"graphs": _counter("stats", "unique_graphs"), "graph_breaks": _counter("graph_break")}


def _counter(group: str, key: Any = None) -> int:
    utils = sys.modules.get("torch._dynamo.utils")
    counts = getattr(utils, "counters", {}).get(group, {})
    return int(counts.get(key, 0) if key else sum(counts.values()))
