"""One update of all parameters instead of a loop over them: fused or multi-tensor optimizers."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple

from .patch import Patch

_BOTH = ("fused", "foreach")


class Optimizer(Patch):
    """Sets `fused` or `foreach` in the parameter groups, which optimizers read at each step."""

    name = "optimizer"
    framework = "torch"
    absent = "no_optimizer"
    toggles = ("cpu",)  # on a GPU the two keep their counts of steps on different sides
    numerics = "rounding"
    arguments = {
        "implementation": {"type": "string", "enum": ["fused", "foreach"], "default": "fused", "description": "how"}
    }

    def __init__(self, values: Dict[str, Any]) -> None:
        super().__init__(values)
        self.own: List[Tuple[Dict[str, Any], Dict[str, Any]]] = []

    def hook(self, module: Any, census: Any) -> None:
        census.on_optimizer.append(self._adopt)

    def switch(self, on: bool) -> None:
        super().switch(on)
        for group, own in self.own:
            group.update({name: name == self.values["implementation"] for name in _BOTH} if on else own)

    def _adopt(self, optimizer: Any) -> None:
        """Take in an optimizer before its first step, when all its groups exist."""
        key = self.values["implementation"]
        if key not in optimizer.defaults:
            self.refuse("no_implementation", kind=type(optimizer).__name__, key=key)
            return
        for group in optimizer.param_groups:
            if self._fits(group, key):
                self.own.append((group, {name: group.get(name) for name in _BOTH}))
                self.hits += 1
        self.switch(self.on)

    def _fits(self, group: Dict[str, Any], key: str) -> bool:
        if group.get(key):
            return self.refuse("as_it_is")
        kinds = {parameter.device.type for parameter in group["params"]}
        fused = getattr(sys.modules.get("torch.utils._foreach_utils"), "_get_fused_kernels_supported_devices", None)
        known = {"cpu", "cuda", *(fused() if fused and key == "fused" else ())}
        if not kinds <= known or not all(p.is_floating_point() for p in group["params"]):
            return self.refuse("unsupported_device", kind=", ".join(sorted(kinds)))
        return True
