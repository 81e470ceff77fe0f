"""PyTorch's profiler for a recording, and that of the program itself, before which ours stands back."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from .clock import CudaClock
from .files import compressed, process_name
from .job import LoaderWatch, UnheldWatch
from .profilers import OURS, Profiler
from .repeats import RepeatWatch


class TorchProfiler(Profiler):
    """`torch.profiler` without its schedule: the phases call it directly."""

    def __init__(self, folder: str, options: dict[str, bool], name: str | None = None) -> None:
        self.folder, self.options, self.name = folder, options, name
        self.profile: Any = None
        self.loaders, self.unheld, self.repeats = LoaderWatch(), UnheldWatch(), RepeatWatch()

    def prepare(self) -> None:
        stacks = self.options.get("stacks", False)
        # What the Python calls of a trace need in some versions.
        config = getattr(sys.modules.get("torch._C._profiler"), "_ExperimentalConfig", None) if stacks else None
        with OURS:
            self.profile = sys.modules["torch.profiler"]._KinetoProfile(
                record_shapes=self.options.get("shapes", True),
                with_stack=stacks,
                profile_memory=self.options.get("memory", False),
                **({"experimental_config": config(verbose=True)} if config else {}),
            )
            with _WithoutInductor():
                self.profile.prepare_trace()
        self.loaders.start()
        with suppress(Exception):  # parameters of another kind are the program's own affair
            self.unheld.start()
        with suppress(Exception):
            self.repeats.start(self.clock())

    def warmed(self) -> None:
        self.repeats.next_step()

    def start(self) -> None:
        self.repeats.stop()
        with OURS:
            self.profile.start_trace()

    def range_of(self, step: int) -> Any:
        """As `Profiler.range_of`: the name by which readers know steps."""
        return self.range("ProfilerStep#%d" % step)

    def range(self, name: str) -> Any:
        return sys.modules["torch.profiler"].record_function(name)

    def halt(self) -> None:
        """As `Profiler.halt`; on a GPU the recording includes all queued work."""
        self.repeats.stop()
        clock = self.clock()
        if clock:
            clock.cuda.synchronize()
        self.profile.stop_trace()

    def forget(self) -> None:
        """As `Profiler.forget`: at exit Kineto would wait for its thread, which no fork has, or abort."""
        import ctypes

        self.repeats.stop()
        libc = ctypes.CDLL(None)
        if self.profile is not None and hasattr(libc, "on_exit"):
            libc.on_exit(libc._exit, None)  # with the status, in place of what was to run at exit before
            libc["__cxa_atexit"](libc.fflush, None, None)

    def export(self, block: dict[str, Any]) -> str:
        self.loaders.stop()
        distributed, name = sys.modules.get("torch.distributed"), self.name or process_name()
        if not self.name and distributed and distributed.is_available() and distributed.is_initialized():
            name = "rank%d" % distributed.get_rank()
        with OURS:
            return compressed(self.folder, name, self.profile.export_chrome_trace, block)

    def job(self) -> dict[str, Any]:
        looked: dict[str, Any] = {"batches": self.loaders.sequences()} if self.loaders.looked else {}
        with suppress(Exception):
            looked.update(self.unheld.facts())
            looked.update(self.repeats.facts())
        return {**super().job(), "loader_workers": self.loaders.workers, **looked}

    def clock(self) -> CudaClock | None:
        """As `Profiler.clock`: a CUDA stream's, where CUDA is in use."""
        cuda = sys.modules["torch"].cuda
        return CudaClock(cuda) if cuda.is_available() and cuda.is_initialized() else None


class _WithoutInductor:
    """Where nothing was compiled yet, the profiler imports no Inductor to ask for its graphs: it would take seconds."""

    def __enter__(self) -> None:
        self.lazy: set[str] = getattr(sys.modules["torch"], "_lazy_modules", set())
        self.hidden: set[str] = {"_inductor"} & self.lazy if "torch._inductor" not in sys.modules else set()
        self.lazy.difference_update(self.hidden)

    def __exit__(self, *_: object) -> None:
        self.lazy.update(self.hidden)
