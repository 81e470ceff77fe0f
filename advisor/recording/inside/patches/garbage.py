"""Python's collections of garbage: none while it is on."""

from __future__ import annotations

import functools
import gc
from typing import Any, Dict

from .patch import Patch


class Garbage(Patch):
    """No collection in the steps: neither Python's own nor one that the program asks for. What exists is frozen."""

    name = "gc"
    toggles = ("cpu", "cuda")

    def __init__(self, values: Dict[str, Any]) -> None:
        super().__init__(values)
        self.collects_itself = False

    def begin(self) -> None:
        """As `Patch.begin`: what the program asks for is left out from here on."""
        self.hits = int(self.collects_itself)
        gc.collect = self._unless_on(gc.collect)

    def switch(self, on: bool) -> None:
        super().switch(on)
        if on:
            self.collects_itself = self.collects_itself or gc.isenabled()
            gc.freeze()
            gc.disable()
        elif self.collects_itself:
            gc.unfreeze()
            gc.enable()

    def _unless_on(self, collect: Any) -> Any:
        @functools.wraps(collect)
        def collected(*args: Any, **kwargs: Any) -> Any:
            if self.on:
                self.hits += 1
                return 0
            return collect(*args, **kwargs)

        return collected
