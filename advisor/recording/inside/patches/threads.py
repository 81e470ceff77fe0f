"""Threads of one op on the CPU."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from .patch import Patch


class Threads(Patch):
    """`torch.set_num_threads`; not in a program that calls it itself."""

    name = "threads"
    framework = "torch"
    toggles = ("cpu", "cuda")
    numerics = "rounding"
    arguments = {"number": {"type": "integer", "minimum": 1, "maximum": 1024, "description": "threads of one op"}}

    original: Any = None
    own = 0

    def hook(self, module: Any, census: Any) -> None:
        original = self.original = module.set_num_threads
        self.own = module.get_num_threads()

        @functools.wraps(original)
        def set_num_threads(number: int) -> None:
            caller = sys._getframe(1)
            place = "%s:%d" % (os.path.basename(caller.f_code.co_filename), caller.f_lineno)
            self.refuse("own_threads", number=int(number), place=place)
            original(number)

        module.set_num_threads = set_num_threads
        if self.own == self.values["number"]:
            self.refuse("as_it_is")

    def begin(self) -> None:
        if self.original and not self.refusals:
            self.hits = 1

    def switch(self, on: bool) -> None:
        super().switch(on)
        if self.original and not self.refusals:
            self.original(self.values["number"] if on else self.own)
