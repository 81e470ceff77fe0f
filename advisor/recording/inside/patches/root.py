"""What changes how the program's outermost modules are called."""

from __future__ import annotations

from typing import Any, Callable, List

from .patch import Patch


class Call:
    """A module's `forward`, replaced while the patch is on; copies and pickles of it are the module's own."""

    def __init__(self, patch: RootPatch, root: Any) -> None:
        self.patch, self.root, self.original = patch, root, root.forward
        self.compiled: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `forward`."""
        if not self.patch.on:
            return self.original(*args, **kwargs)
        return self.patch.call(self, args, kwargs)

    def __reduce__(self) -> Any:
        return getattr, (self.root, "forward")  # of the copy, which has no `forward` but its class's


class RootPatch(Patch):
    """A patch of each module with parameters that no other encloses."""

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self.calls: List[Call] = []
        self.is_watching = False

    def install(self, framework: str, module: Any, census: Any) -> None:
        """As `Patch.install`."""
        if framework == "torch":
            self.is_watching = True
            census.on_root.append(self._adopt)

    def begin(self) -> None:
        """As `Patch.begin`."""
        if self.is_watching and not self.calls and not self.refusals:
            self.refuse("no_module")

    def fits(self, root: Any) -> bool:
        """Whether to change this one; a refusal says why not."""
        return True

    def call(self, call: Call, args: Any, kwargs: Any) -> Any:
        """A call of the module with the patch on."""
        return call.original(*args, **kwargs)

    def _adopt(self, root: Any) -> None:
        if self.fits(root):
            call = Call(self, root)
            root.forward = call
            self.calls.append(call)


def converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Tensors in nested containers, converted."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(converted(item, convert) for item in value)
    if type(value) is dict:
        return {key: converted(item, convert) for key, item in value.items()}
    return convert(value) if hasattr(value, "is_floating_point") else value
