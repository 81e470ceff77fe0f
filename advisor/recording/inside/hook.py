"""The hook: learns which framework the program imports, counts its steps and has them recorded."""

from __future__ import annotations

import atexit
import errno
import functools
import os
import sys
import threading
from contextlib import suppress
from typing import Any, Callable, Hashable

from . import real_time as time
from .clock import Tail
from .marker import Marker
from .notes import Notes
from .phases import Phases, Steps
from .profilers import Profiler, watch
from .stacks import Stacks
from .threads import stacks_of_threads
from .torch_steps import Tick

Make = Callable[[], Profiler]
_PATIENCE_S = 30.0
_PAUSE_S = 0.05
_AHEAD = 2  # steps: ranks that meet in each are no further apart
_SILENT = 20  # own choice: calls in other threads after which the one whose calls end steps has left


class Hook:
    """One process's recording, of which `notes` tell the launcher."""

    def __init__(self, config: dict[str, Any], notes: Notes) -> None:
        self.config, self.notes = config, notes
        self.frameworks: dict[str, Callable[[Any], None]] = {
            "torch": self._torch,
            "deepspeed.runtime.engine": self._deepspeed,
            "jax": self._jax,
            "tensorflow": self._tensorflow,
            "keras": self._keras,
            **dict.fromkeys(("optax", "equinox"), self._updating),
        }
        self._makes: dict[str, Make] = {}
        self._inherited: list[Steps | None] = []
        self.reset()

    def reset(self) -> None:
        """Begin anew, as in a forked process: what its parent records is not its own, not even to be destroyed."""
        inherited = getattr(self, "phases", None)
        self._inherited.append(inherited)
        if inherited:
            inherited.forget()
        self.marker = Marker(self.config["skip"])
        self.phases: Steps | None = None
        self.tail: Tail | None = None
        self.thread: int | None = None
        self.beside = 0  # calls in other threads since the last one in this
        self.is_over = False

    def safely(self, call: Callable[..., None]) -> Callable[..., None]:
        """The call; whatever it raises ends the recording and nothing else."""

        @functools.wraps(call)
        def safe(*args: Any) -> None:
            try:
                call(*args)
            except Exception as error:
                self._fail(error)

        return safe

    def _fail(self, error: Exception) -> None:
        self.is_over = True
        self.notes.add("failed", kind=type(error).__name__, number=getattr(error, "errno", None))
        with suppress(Exception):
            if self.phases:
                self.phases.abandon()  # a profiler that runs at exit crashes the interpreter

    def _torch(self, torch: Any) -> None:
        from . import stacks, torch_profiler, torch_steps

        make = functools.partial(torch_profiler.TorchProfiler, self.config["logdir"], self.config)
        tick = self._begin("torch", make)
        of_autograd, stand_back = torch.autograd.profiler.profile, self.safely(self._stand_back)
        watch(torch.profiler._KinetoProfile, "__init__", stand_back)
        watch(of_autograd, "_prepare_trace", stand_back)  # not called where it is made with `enabled=False`
        torch_steps.watch_optimizers(tick, lambda: self.marker.await_optimizer())  # noqa: PLW0108 - that of then
        torch_steps.watch_root(tick)
        stacks.watch_loaders(self.notes.folder)

    def _deepspeed(self, module: Any) -> None:
        from . import torch_profiler, torch_steps

        make = functools.partial(torch_profiler.TorchProfiler, self.config["logdir"], self.config)
        torch_steps.watch_engine(module, functools.partial(self._tick, make))

    def _jax(self, jax: Any) -> None:
        from . import jax_steps

        tick = self._begin("jax", functools.partial(jax_steps.JaxProfiler, self.config["logdir"]))
        jax_steps.watch_functions(jax, tick)
        for owner in filter(None, (jax.profiler, sys.modules.get("jax._src.profiler"))):
            watch(owner, "start_trace", self.safely(self._stand_back))

    def _tensorflow(self, tf: Any) -> None:
        from . import tf_steps

        tick = self._begin("tensorflow", functools.partial(tf_steps.TfProfiler, self.config["logdir"]))
        tf_steps.watch_functions(tf, tick)
        for owner in filter(None, (tf.profiler.experimental, sys.modules.get(tf_steps.PROFILER))):
            watch(owner, "start", self.safely(self._stand_back))

    def _keras(self, keras: Any) -> None:
        from . import tf_steps

        tf_steps.watch_fit(keras, lambda *call: self._tick(self._make(), *call) if self._makes else None)

    def _updating(self, library: Any) -> None:
        """Optax or Equinox, which have imported JAX before."""
        from . import jax_steps

        tick = functools.partial(self._tick, self._makes.get("jax", Profiler))
        library.apply_updates = jax_steps.Counted(library.apply_updates, tick, "update")

    def _make(self) -> Make:
        """The profiler of Keras' own framework, as others may be imported beside it; without Keras the last one."""
        backend: Any = getattr(sys.modules.get("keras"), "backend", None)
        own = self._makes.get(backend.backend()) if hasattr(backend, "backend") else None
        return own or [*self._makes.values()][-1]

    def _begin(self, name: str, make: Make) -> Tick:
        """What every framework needs: a note, an end, a window where no step ends; what is to be called by those."""
        first, self._makes[name] = not self._makes, make
        is_passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
        self.notes.add("framework", name=name, is_passive=is_passive)
        if first:
            atexit.register(self.finish)
            if self.config.get("seconds"):
                threading.Thread(target=self._watch_time, daemon=True).start()
        return functools.partial(self._tick, make)

    def _tick(self, make: Make, kind: str, key: Hashable, label: str, result: object) -> None:
        if self.is_over and self.tail is None:
            return
        try:
            if self.tail is None:
                self._advance(make, kind, key, label, result)
            elif self.thread == threading.get_ident() and self.marker.ends_step(kind, key):
                self.tail.step()
                self.leave()
            elif self.marker.is_surer(kind) and self.phases and os.path.isfile(self.phases.path or ""):
                os.remove(self.phases.path or "")
                self.is_over, self.phases, self.tail = False, None, None
        except Exception as error:
            self._fail(error)

    def _advance(self, make: Make, kind: str, key: Hashable, label: str, result: object) -> None:
        thread = threading.get_ident()
        ends = self.marker.ends_step(kind, key) if self._is_of_steps(kind, thread) else None
        if self.phases and self.phases.thread != thread:
            return  # that thread ends its profiler itself
        if self.phases and ends is None:
            self.phases.abandon()
            self.phases = None
        if not ends:
            return
        if self.phases is None:
            self.phases = self._phases(make, kind)
            self.notes.add("marker", kind=kind, label=label)
        self.phases.step(result)
        rest = self.phases.rest()
        if rest:
            # A process that multiprocessing forked runs its finalizers, not those of `atexit`.
            util = sys.modules.get("multiprocessing.util")
            if util:
                util.Finalize(None, self.finish, exitpriority=100)
            self.notes.add("timed", **rest)
        if self.phases.is_over:
            self._conclude("over")
            if self.phases.typical_ms:
                self.tail = Tail(self.phases.typical_ms, self.marker.calls, self.phases.work_ms)
            self.leave()

    def _is_of_steps(self, kind: str, thread: int) -> bool:
        """Whether steps end in this thread: with the surest kind of calls, of equals in the first that goes on."""
        self.beside = 0 if thread == self.thread else self.beside + 1
        if self.marker.is_surer(kind) or (kind == self.marker.kind and not self.phases and self.beside > _SILENT):
            self.thread = thread
        return self.thread == thread

    def _phases(self, make: Make, kind: str) -> Steps:
        """What to do with the steps from here on; a trial measures blocks of them."""
        stacks = Stacks(self.notes.folder, samples=self.config.get("samples", True))
        return Phases(make(), self.config["active"], kind, self.marker.calls - 1, stacks)

    def _watch_time(self) -> None:
        """Record a window of time, unless a step has ended by then."""
        seconds = float(self.config["seconds"])
        time.sleep(seconds)
        if not self.is_over and self.phases is None and not self.marker.calls:
            in_main_thread(self.safely(self._open_window)).wait()
            time.sleep(seconds)
            in_main_thread(self.safely(self._close_window))

    def _open_window(self) -> None:
        if self._makes and not self.is_over:
            phases = Phases(self._make()(), 0, None)
            phases.open_window()
            self.phases = phases

    def _close_window(self) -> None:
        if self.phases and not self.is_over:
            self.phases.finish()
            self._conclude("over")
            self.leave()

    def _stand_back(self) -> None:
        """The program profiles itself: leave that to it, for good."""
        if not self.is_over:
            self.is_over = True
            self.notes.add("stood_back")
            if self.phases:
                self.phases.abandon()

    def finish(self) -> None:
        """The program ends: keep what has been recorded."""
        if not self.is_over:
            self.safely(self._finish)()
        elif self.tail is not None:
            self.notes.add("tail", **self.tail.facts())

    def _finish(self) -> None:
        phase = self.phases.phase if self.phases else "skip"
        if self.phases:
            self.phases.finish()
        # Whether an exception ends the program that says that a signal ended a call of the system early.
        error = getattr(sys, "last_value", None)
        if getattr(error, "errno", None) == errno.EINTR or os.strerror(errno.EINTR) in str(error):
            self.notes.add("interrupted")
        self._conclude(phase)

    def _conclude(self, phase: str) -> None:
        self.is_over = True
        phases = self.phases
        self.notes.add(
            "result",
            phase=phase,
            steps=self.marker.calls,
            path=phases.path if phases else None,
            block=phases.block("complete") if phases else None,
            world=os.environ.get("WORLD_SIZE"),
        )

    def leave(self) -> None:
        """Under `--stop`, end with the other ranks of this machine: all two steps after the last recording is over.

        Until then each goes on, for the others wait for it in every step. After 30 s it ends alone.
        """
        if not self.config.get("stop"):
            return
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or "1")
        if self.tail is not None and ranks > 1 and self.tail.seconds < _PATIENCE_S:
            ended = self.notes.values("result", "steps")
            if len(ended) < ranks or self.tail.number + self.tail.steps < max(ended) + _AHEAD:
                return
        _end(self.notes, ranks)


def _end(notes: Notes, ranks: int) -> None:
    """End without running any handler of the program, once all ranks are as far.

    SystemExit would run them: some write a checkpoint over a good one.
    """
    notes.add("left")
    until = time.monotonic() + _PATIENCE_S
    while len(notes.values("left", "pid")) < ranks and time.monotonic() < until:
        time.sleep(_PAUSE_S)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    processes = sys.modules.get("multiprocessing.process")
    for child in processes.active_children() if processes else ():
        child.terminate()  # one that still hands a batch over would wait for ever
    os._exit(0)


_IMPORT_PAUSE_S = 0.01

_running: list[Any] = []  # functions that the interpreter is yet to call: it holds no reference itself


def in_main_thread(call: Callable[[], None]) -> threading.Event:
    """Have the main thread run `call` between two of its instructions: profilers record the thread that starts them.

    The event is set once `call` has returned.
    """
    import ctypes

    done = threading.Event()
    while _is_importing():
        time.sleep(_IMPORT_PAUSE_S)

    def pending(_: object) -> int:
        call()
        done.set()
        return 0

    function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(pending)
    _running.append(function)
    ctypes.pythonapi.Py_AddPendingCall(function, None)
    return done


def _is_importing() -> bool:
    """Whether the main thread imports a module: another import would find it half done."""
    main = threading.main_thread().ident or 0
    stack = stacks_of_threads(sys.getrecursionlimit()).get(main, ())
    return any(code.co_filename.startswith("<frozen importlib") for code, _ in stack)
