"""What changes how the outermost modules are called: precision, layout of images, compilation, options of DDP."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List

from ..wrapping import wrap  # noqa: TID252 - programs have no package `advisor`
from .patch import Patch

_OF_CHECKPOINT = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")
_FORMATS = {4: "channels_last", 5: "channels_last_3d"}


class Call:
    """A module's `forward`, replaced while the patch is on; copies and pickles of it are the module's own."""

    def __init__(self, patch: RootPatch, root: Any) -> None:
        self.patch, self.root, self.original = patch, root, root.forward
        self.compiled: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.patch.on:
            return self.original(*args, **kwargs)
        return self.patch.call(self, args, kwargs)

    def __reduce__(self) -> Any:
        return getattr, (self.root, "forward")  # of the copy, which has no `forward` but its class's


class RootPatch(Patch):
    """A patch of each module with parameters that no other encloses."""

    framework = "torch"

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self.calls: List[Call] = []

    def hook(self, module: Any, census: Any) -> None:
        census.on_root.append(self._adopt)

    def begin(self) -> None:
        if not self.calls and not self.refusals:
            self.refuse("no_module")

    def fits(self, root: Any) -> bool:
        """Whether to change this one; a refusal says why not."""
        return True

    def call(self, call: Call, args: Any, kwargs: Any) -> Any:
        """A call of the module with the patch on."""

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


class Autocast(RootPatch):
    """`torch.autocast` around the outermost call; its results are float32 again, as accelerate has them."""

    name = "autocast"
    toggles = ("cpu", "cuda")
    numerics = "changes"
    arguments = {"dtype": {"type": "string", "enum": ["bfloat16"], "default": "bfloat16", "description": "the type"}}

    def fits(self, root: Any) -> bool:
        parameter = next(root.parameters())
        if str(parameter.dtype) != "torch.float32":
            return self.refuse("other_type", kind=str(parameter.dtype))
        return True

    def call(self, call: Call, args: Any, kwargs: Any) -> Any:
        torch = sys.modules["torch"]
        device = next(call.root.parameters()).device.type
        if torch.is_autocast_enabled() or (device == "cpu" and torch.is_autocast_cpu_enabled()):
            self.refuse("as_it_is")
            return call.original(*args, **kwargs)
        self.hits += 1
        with torch.autocast(device, dtype=torch.bfloat16):
            return converted(call.original(*args, **kwargs), lambda t: t.float() if t.is_floating_point() else t)


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
        return self.refuse("no_convolution")

    def call(self, call: Call, args: Any, kwargs: Any) -> Any:
        return call.original(*converted(args, self._last), **converted(kwargs, self._last))

    def _last(self, tensor: Any) -> Any:
        if tensor.dim() not in _FORMATS:
            return tensor
        self.hits += 1
        return tensor.contiguous(memory_format=getattr(sys.modules["torch"], _FORMATS[tensor.dim()]))


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
        if type(root).__name__ == "OptimizedModule" or getattr(root, "_compiled_call_impl", None) is not None:
            return self.refuse("as_it_is")
        return True

    def call(self, call: Call, args: Any, kwargs: Any) -> Any:
        if call.compiled is None and not self.refusals:
            call.compiled = sys.modules["torch"].compile(call.original, mode=self.values["mode"])
        result = self.faster(call.compiled, call.original, args, kwargs)
        self.hits = self.hits or (0 if self.refusals else _counter("stats", "unique_graphs"))
        return result

    def proof(self) -> Dict[str, Any]:
        if not self.hits:
            return {}
        return {"graphs": _counter("stats", "unique_graphs"), "graph_breaks": _counter("graph_break")}


class Checkpoints(Patch):
    """Layers under `torch.utils.checkpoint` are called themselves: the backward pass computes none of them again."""

    name = "checkpoints"
    framework = "torch"
    absent = "no_checkpoint"
    toggles = ("cpu", "cuda")
    numerics = "rounding"

    def hook(self, module: Any, census: Any) -> None:
        wrap(module.utils.checkpoint, "checkpoint", self._called)

    def _called(self, checkpoint: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not self.on:
            return checkpoint(*args, **kwargs)
        self.hits += 1
        layer, *inputs = args or (kwargs.pop("function"),)
        return layer(*inputs, **{name: value for name, value in kwargs.items() if name not in _OF_CHECKPOINT})


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
        changes = {name: value for name, value in self.values.items() if arguments[name] != value}
        if not changes:
            self.refuse("as_it_is")
        return changes


def _counter(group: str, key: Any = None) -> int:
    utils = sys.modules.get("torch._dynamo.utils")
    counts = getattr(utils, "counters", {}).get(group, {})
    return int(counts.get(key, 0) if key else sum(counts.values()))
