"""TF32 in matrix products and convolutions."""

from __future__ import annotations

from typing import Any

from .patch import Patch

_CAPABILITY = 8  # of GPUs from A100 on


class _Tf32(Patch):
    """A switch of one of PyTorch's backends; on GPUs that have TF32."""

    framework = "torch"
    toggles = ("cuda",)
    numerics = "changes"
    torch: Any = None

    def backend(self) -> Any:
        """What has the switch."""
        raise NotImplementedError

    def hook(self, module: Any, census: Any) -> None:
        self.torch = module

    def begin(self) -> None:
        """As `Patch.begin`: by now the program has set what it sets itself."""
        cuda = self.torch.cuda if self.torch else None
        if cuda is None or not cuda.is_available() or not cuda.is_initialized():
            self.refuse("no_gpu")
        elif cuda.get_device_capability()[0] < _CAPABILITY:
            self.refuse("no_tf32")
        elif self.backend().allow_tf32:
            self.refuse("as_it_is")
        else:
            self.hits = 1

    def switch(self, on: bool) -> None:
        super().switch(on)
        if self.hits:
            self.backend().allow_tf32 = on


class Matmul(_Tf32):
    """`torch.backends.cuda.matmul.allow_tf32`."""

    name = "tf32-matmul"

    def backend(self) -> Any:
        return self.torch.backends.cuda.matmul


class Cudnn(_Tf32):
    """`torch.backends.cudnn.allow_tf32`."""

    name = "tf32-cudnn"

    def backend(self) -> Any:
        return self.torch.backends.cudnn
