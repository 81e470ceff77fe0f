"""Mixed precision: bfloat16 where it is safe."""

from __future__ import annotations

import sys
from typing import Any

from .root import Call, RootPatch, converted


class Autocast(RootPatch):
    """`torch.autocast` around the outermost call; its results are float32 again, as accelerate has them."""

    name = "autocast"
    toggles = ("cpu", "cuda")
    numerics = "changes"
    arguments = {"dtype": {"type": "string", "enum": ["bfloat16"], "default": "bfloat16", "description": "the type"}}

    def fits(self, root: Any) -> bool:
        """As `RootPatch.fits`."""
        parameter = next(root.parameters())
        if str(parameter.dtype) != "torch.float32":
            self.refuse("other_type", kind=str(parameter.dtype))
            return False
        return True

    def call(self, call: Call, args: Any, kwargs: Any) -> Any:
        """As `RootPatch.call`."""
        torch = sys.modules["torch"]
        device = next(call.root.parameters()).device.type
        if torch.is_autocast_enabled() or (device == "cpu" and torch.is_autocast_cpu_enabled()):
            self.refuse("as_it_is")
            return call.original(*args, **kwargs)
        self.hits += 1
        with torch.autocast(device, dtype=torch.bfloat16):
            return converted(call.original(*args, **kwargs), lambda t: t.float() if t.is_floating_point() else t)
