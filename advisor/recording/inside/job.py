"""What a recording notes of machine and program: cores, loaders, batches, versions, settings; no name, no argument."""

from __future__ import annotations

import gc
import os
import re
import sys
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

from .threads import content
from .wrapping import wrap

_QUOTA = "/sys/fs/cgroup/cpu.max"
_DEVICES = "/sys/bus/pci/devices"
_VENDORS, _DISPLAY = ("0x10de", "0x1002"), "0x03"  # of GPUs: NVIDIA and AMD; the class of display controllers
_MOST_BATCHES, _MOST_VALUES = 8, 1 << 22
_NO_LABEL = -100  # what the losses of PyTorch ignore
_OF_FEATURES = 3  # dimensions of sequences of features
_SHORTEST = 8  # a second dimension that is shorter counts channels or classes


def cpus() -> int:
    """Cores for this process: of its affinity and its container's quota, shared by the job's processes on this host."""
    available = getattr(os, "sched_getaffinity", None)
    cores = len(available(0)) if available else os.cpu_count() or 1
    with suppress(ValueError):  # no quota, or `max`
        quota, period = content(_QUOTA).split()
        cores = min(cores, max(1, int(quota) // int(period)))
    processes = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, cores // max(1, int(processes) if processes.isdigit() else 1))


def far_cores() -> float | None:
    """Part of the cores of this process's affinity that are on other NUMA nodes than its GPU, or than every GPU.

    The GPU is PyTorch's, where that says which one it is. None where the machine does not tell.
    """
    available = getattr(os, "sched_getaffinity", None)
    lists = (part for address in _gpus() for part in _fact(address, "local_cpulist").split(",") if part)  # `0-7,16-23`
    ends = (part.partition("-") for part in lists)
    near = {core for first, _, last in ends for core in range(int(first), int(last or first) + 1)}
    own = available(0) if available and near else set()
    return len(own - near) / len(own) if own else None


def _gpus() -> List[str]:
    """PCI addresses of the GPU that PyTorch has set up, else of all in the machine."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        if hasattr(facts, "pci_bus_id"):
            return ["%04x:%02x:%02x.0" % (facts.pci_domain_id, facts.pci_bus_id, facts.pci_device_id)]
    addresses = os.listdir(_DEVICES) if os.path.isdir(_DEVICES) else []
    return [at for at in addresses if _fact(at, "vendor") in _VENDORS and _fact(at, "class").startswith(_DISPLAY)]


def _fact(address: str, name: str) -> str:
    return content(os.path.join(_DEVICES, address, name)).strip()


def noted(batch: Any) -> Dict[str, Any] | None:
    """Rows and length of the batch's sequences, the longest without padding, and which part is padding, or no label.

    Of a mask where there is one, else of numbers of tokens, else of features. Padding is what a mask leaves out, else
    the tail or the head of a row that repeats the last or the first value of most rows. None without sequences.
    `tokens`: those of a mask, or ids. What else has such dimensions may be images, whose zeros are no padding.
    `largest`: of the ids, 0 without any.
    """
    tensors = [(name, tensor) for name, tensor in _tensors(batch) if _is_of_sequences(tensor)]
    order = sorted(tensors, key=lambda pair: (not _is_mask(pair[0]), pair[1].is_floating_point()))
    if not order:
        return None
    name, tensor = order[0]
    rows, length = tensor.shape[:2]
    present = tensor != 0 if _is_mask(name) else _present(tensor)
    used = present.reshape(rows, length, -1).any(-1)
    return {
        "rows": rows,
        "tokens": _is_mask(name) or _is_of_ids(name, tensor),
        "length": length,
        "longest": int(used.sum(1).max()),
        "largest": max((int(of.max()) for key, of in tensors if _is_of_ids(key, of)), default=0),
        "padding": 1 - float(used.float().mean()),
        "unlabelled": max(float((of == _NO_LABEL).float().mean()) * (not of.is_floating_point()) for _, of in tensors),
    }


def _tensors(batch: Any) -> Iterator[Tuple[str, Any]]:
    if isinstance(batch, Mapping):
        pairs = [(str(name), each) for name, each in batch.items()]
    else:
        pairs = [("", each) for each in (batch if isinstance(batch, (list, tuple)) else [batch])]
    for name, each in pairs:
        if hasattr(each, "is_floating_point"):
            yield name, each
        elif isinstance(each, (Mapping, list, tuple)) and each is not batch:
            yield from _tensors(each)


def _is_of_sequences(tensor: Any) -> bool:
    is_small = tensor.device.type == "cpu" and 0 < tensor.numel() <= _MOST_VALUES
    dimensions = (_OF_FEATURES,) if tensor.is_floating_point() else (2, _OF_FEATURES)
    return is_small and tensor.dim() in dimensions and tensor.shape[1] >= _SHORTEST


def _is_of_ids(name: str, tensor: Any) -> bool:
    return tensor.dim() < _OF_FEATURES and not _is_mask(name) and int(tensor.max()) > 1


def _is_mask(name: str) -> bool:
    return name.endswith("attention_mask") or name == "mask"


def _present(tensor: Any) -> Any:
    """Which values belong to no tail and no head of a row that repeats one value."""
    last = tensor[:, -1].flatten().mode().values
    first = tensor[:, 0].flatten().mode().values
    tail = _run(tensor.flip(1) == last).flip(1)
    head = _run(tensor == first)
    padding = tail if int(tail.sum()) >= int(head.sum()) else head
    return ~padding | bool(int(padding.sum(1).max()) <= 1)  # once it ends, or begins, any row


def _run(equal: Any) -> Any:
    """Of each row what is equal from its begin on."""
    return equal.int().cumprod(1).bool()


class LoaderWatch:
    """Notes the worker processes of the DataLoader that gave the last batch, and what the first batches hold.

    There are no `workers` where no batch came from a DataLoader. Batches are those of the main process, while nothing
    is profiled.
    """

    def __init__(self) -> None:
        self.workers: int | None = None
        self.looked = 0
        self.batches: List[Dict[str, Any]] = []
        self.owner: Any = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        self.stop: Callable[[], Any] = bool

    def start(self) -> None:
        """Watch from here."""
        if self.owner is not None:
            self.stop = wrap(self.owner, "__next__", self._next)

    def _next(self, original: Any, iterator: Any) -> Any:
        self.workers = getattr(iterator, "_num_workers", None)
        batch, is_profiled = original(iterator), getattr(sys.modules["torch"].autograd, "_profiler_enabled", bool)
        self.look(batch, profiled=bool(is_profiled()))
        return batch

    def look(self, batch: Any, *, profiled: bool) -> None:
        """Note what a batch holds, unless enough were seen or a profiler would record how."""
        if profiled or self.looked >= _MOST_BATCHES:
            return
        self.looked += 1
        try:
            note = noted(batch)
        except Exception:  # a batch of another kind is the program's own affair
            note = None
        if note:
            self.batches.append(note)

    def sequences(self) -> List[Dict[str, Any]]:
        """The batches of tokens, and the others if their lengths vary, as of sequences, and not of images."""
        varies = len({note["length"] for note in self.batches if not note["tokens"]}) > 1
        return [note for note in self.batches if varies or note["tokens"]]


class UnheldWatch:
    """Parameters with gradients that no optimizer has, and that stay as they are between `start` and `facts`."""

    def __init__(self) -> None:
        self.before: Dict[int, Tuple[Any, Any]] = {}  # of parameters, and their states
        self.modules: List[Any] = []

    def start(self) -> None:
        """Look from here."""
        torch, every = sys.modules["torch"], gc.get_objects()
        optimizers = [of for of in every if issubclass(type(of), torch.optim.Optimizer)]
        updated = {id(each) for of in optimizers for group in of.param_groups for each in group["params"]}
        self.modules = [of for of in every if issubclass(type(of), torch.nn.Module)] if optimizers else []
        trained = (each for of in self.modules for each in of.parameters() if each.requires_grad)
        plain = (each for each in trained if type(each) is torch.nn.Parameter)  # a sharded one may ask all ranks
        self.before = {id(each): (each, _state(each)) for each in plain if id(each) not in updated}

    def facts(self) -> Dict[str, Any]:
        """`unheld`: their number; `unheld_part`: what a model calls the largest of its parts that has no others."""
        stay = {key for key, (each, state) in self.before.items() if each.grad is not None and _state(each) == state}
        own = {id(of): {*map(id, of.parameters())} for of in (self.modules if stay else ())}
        models = (of for of in self.modules if not own.get(id(of), stay) <= stay)
        parts = (part for model in models for part in model.named_children())
        sizes = {name: len(own[id(part)]) for name, part in parts if own[id(part)] <= stay}
        self.before, self.modules = {}, []
        return {"unheld": len(stay), "unheld_part": max(sizes, key=lambda name: sizes[name], default=None)}


def _state(parameter: Any) -> Tuple[int, float]:
    return parameter._version, float(parameter.detach().flatten()[0])


# Those that change how fast a program runs. None holds a secret, a path that it must have, or the name of a person
SETTINGS = (
    *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "HIP_LAUNCH_BLOCKING"),
    *("NCCL_ALGO", "NCCL_IB_DISABLE", "NCCL_MAX_NCHANNELS", "NCCL_NET_GDR_LEVEL", "NCCL_NVLS_ENABLE"),
    *("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE", "NVIDIA_TF32_OVERRIDE"),
    *("OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
    *("TF_ENABLE_ONEDNN_OPTS", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_THREAD_COUNT", "TF_GPU_THREAD_MODE"),
    *("TF_XLA_FLAGS", "TORCHDYNAMO_DISABLE", "TORCH_DISTRIBUTED_DEBUG", "TORCH_NCCL_BLOCKING_WAIT"),
    *("XLA_FLAGS", "XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_PREALLOCATE"),
)
_PLAIN = re.compile(r"[\w.:,=+-]{1,100}(?: [\w.:,=+-]{1,100}){0,9}")
_VERSION = re.compile(r"\d+(?:\.\w+){1,3}")
_CUDNN_9 = 90000
_DRIVER = "/proc/driver/nvidia/version"


def software() -> Dict[str, Dict[str, str]]:
    """`versions` by library, and `settings` by name; a value that is no plain text is noted as `set`."""
    values = {name: os.environ[name].strip() for name in SETTINGS if os.environ.get(name, "").strip()}
    settings = {name: value if _PLAIN.fullmatch(value) else "set" for name, value in values.items()}
    driver = re.search(r"  (\d+\.\d+(?:\.\d+)?)  ", content(_DRIVER).partition("\n")[0])
    versions = {"driver": driver.group(1) if driver else ""}
    torch = sys.modules.get("torch")
    if torch is not None:
        versions["PyTorch"] = _plain(torch.__version__)
        if torch.cuda.is_initialized():
            versions["cuDNN"] = _cudnn(torch.backends.cudnn.version())
    for module, name in (("tensorflow", "TensorFlow"), ("jax", "JAX"), ("jaxlib", "jaxlib")):
        versions[name] = _plain(getattr(sys.modules.get(module), "__version__", None))
    return {"versions": {name: version for name, version in versions.items() if version}, "settings": settings}


def _plain(version: object) -> str:
    match = _VERSION.match(str(version))
    return match.group() if match else ""


def _cudnn(number: object) -> str:
    """Its number is 10,000 x major + 100 x minor + patch from 9 on, 1,000 x major + 100 x minor + patch before."""
    if not isinstance(number, int):
        return ""
    of_major = 10000 if number >= _CUDNN_9 else 1000
    return "%d.%d.%d" % (number // of_major, number % of_major // 100, number % 100)
