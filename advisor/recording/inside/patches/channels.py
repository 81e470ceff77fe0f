"""Images with their channels last."""

from __future__ import annotations

import sys
from typing import Any

from .root import Call, RootPatch, converted

_FORMATS = {4: "channels_last", 5: "channels_last_3d"}


class ChannelsLast(RootPatch):
    """Parameters and inputs of outermost modules with convolutions, in `channels_last` or `channels_last_3d`."""

    name = "channels_last"
    numerics = "rounding"

    def fits(self, root: Any) -> bool:
        """As `RootPatch.fits`; converts what fits."""
        dimensions = {parameter.dim() for parameter in root.parameters()}
        for number, name in _FORMATS.items():
            if number in dimensions:
                root.to(memory_format=getattr(sys.modules["torch"], name))
                return True
        self.refuse("no_convolution")
        return False

    def call(self, call: Call, args: Any, kwargs: Any) -> Any:
        """As `RootPatch.call`."""
        return call.original(*converted(args, self._last), **converted(kwargs, self._last))

    def _last(self, tensor: Any) -> Any:
        if tensor.dim() not in _FORMATS:
            return tensor
        self.hits += 1
        return tensor.contiguous(memory_format=getattr(sys.modules["torch"], _FORMATS[tensor.dim()]))
