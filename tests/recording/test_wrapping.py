"""Programs meet what they know in the place of what the recorder wraps."""

from __future__ import annotations

import atexit
import copy
import math
import pickle
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.recording.inside.hook import Hook
from advisor.recording.inside.jax_steps import Counted, watch_functions
from advisor.recording.inside.notes import Notes
from advisor.recording.inside.tf_steps import watch_fit
from advisor.recording.inside.wrapping import Method, wrap

HERE = sys.modules[__name__]


def doubled(number: int) -> int:
    """What a library has."""
    return 2 * number


def test_a_wrapped_function_is_pickled_by_its_place_and_put_back():
    original = doubled
    undo = wrap(HERE, "doubled", lambda call, number: call(number) + 1)
    assert doubled(3) == 7
    assert pickle.loads(pickle.dumps(doubled)) is doubled is not original  # noqa: S301 - our own
    assert undo()
    assert doubled is original


def test_what_the_program_puts_around_a_wrapped_function_stays(monkeypatch: pytest.MonkeyPatch):
    undo = wrap(HERE, "doubled", lambda call, number: call(number))
    monkeypatch.setattr(HERE, "doubled", own := lambda number: -number)
    assert not undo()
    assert doubled is own


def test_a_method_is_pickled_as_what_it_stands_for():
    method = Method(lambda self: (self, 1), "of the class", doubled)

    class Owner:
        call: Any = method

    owner = Owner()
    assert owner.call() == (owner, 1)
    assert Owner.call == "of the class"
    assert pickle.loads(pickle.dumps(method)) is doubled  # noqa: S301 - our own


def test_a_counted_function_is_bound_as_a_method():
    class Owner:
        root: Any = Counted(lambda _, number: math.sqrt(number), lambda *_: None)

    owner = Owner()
    assert owner.root(4.0) == 2.0
    assert owner.root.__self__ is owner


def test_a_copy_of_a_counted_function_is_the_function():
    counted = Counted(math.sqrt, lambda *_: None)
    assert counted(4.0) == 2.0
    assert copy.deepcopy(counted) is copy.copy(counted) is pickle.loads(pickle.dumps(counted)) is math.sqrt  # noqa: S301 - our own


def test_the_batches_of_fit_are_counted_without_a_callback_more():
    told: list[Any] = []

    class CallbackList:
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            told.append((batch, logs))

    steps: list[str] = []
    watch_fit(
        SimpleNamespace(callbacks=SimpleNamespace(CallbackList=CallbackList)), lambda kind, *_: steps.append(kind)
    )
    CallbackList().on_train_batch_end(0)
    CallbackList().on_train_batch_end(1, logs={"loss": 2.0})
    assert told == [(0, None), (1, {"loss": 2.0})]
    assert steps == ["fit", "fit"]


def test_the_batches_of_fit_are_recorded_by_the_framework_that_keras_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Keras may import others beside it: the last one imported recorded no op of a program on PyTorch."""

    class CallbackList:
        def on_train_batch_end(self, batch: int) -> None:
            pass

    keras: Any = SimpleNamespace(
        callbacks=SimpleNamespace(CallbackList=CallbackList), backend=SimpleNamespace(backend=lambda: "torch")
    )
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    process, recorders = Hook({"skip": 1}, Notes(str(tmp_path))), []
    monkeypatch.setattr(process, "_tick", lambda make, *_: recorders.append(make()))
    process.frameworks["keras"](keras)
    CallbackList().on_train_batch_end(0)  # no framework yet
    for name in ("torch", "jax"):
        process._begin(name, partial(str, name))  # type: ignore[arg-type]  # noqa: SLF001 - as an import does
    CallbackList().on_train_batch_end(1)
    keras.backend.backend = lambda: "tensorflow"  # not imported, so it tells nothing
    CallbackList().on_train_batch_end(2)
    assert recorders == ["torch", "jax"]


def jitted(fun: Any) -> Any:
    """As `jax.jit` has it, and `grad`."""
    result: Any = partial(fun)
    result.lower = None
    return result


def test_a_function_that_is_jitted_anew_in_each_step_is_one_and_those_of_a_factory_are_not():
    jax: Any = SimpleNamespace(jit=jitted, grad=jitted, value_and_grad=jitted)
    keys: list[object] = []
    watch_functions(jax, lambda _kind, key, _name, _result: keys.append(key))
    kept = [jax.jit(lambda number: number + 1) for _ in range(6)]
    assert [function(1) for function in kept] == [2] * 6
    assert len(set(keys)) == 4  # three by themselves, then all the others
    assert len(set(keys[3:])) == 1


@pytest.mark.parametrize(("library", "is_compiled"), [("optax", True), ("optax", False), ("equinox", True)])
def test_what_updates_parameters_ends_a_step_whatever_is_called_for_each_example(
    *, library: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
):
    """Of 32 examples each; nothing else ends one, neither an evaluation nor what is called once."""
    tracing: list[object] = []
    core = SimpleNamespace(trace_state_clean=lambda: not tracing)
    monkeypatch.setitem(sys.modules, "jax._src.core", core)

    def compiled(fun: Any) -> Any:
        result = jitted(fun)
        if not is_compiled:
            return result
        traced: list[Any] = []

        def call(*args: Any) -> Any:
            if not traced:
                tracing.append(fun)
                traced.append(fun(*args))
                tracing.pop()
            return traced[0]

        return jitted(call)

    jax: Any = SimpleNamespace(jit=compiled, grad=jitted, value_and_grad=jitted)
    optax: Any = SimpleNamespace(apply_updates=math.fsum)
    hook = Hook({"skip": 100}, Notes())
    watch_functions(jax, lambda *call: hook._tick(Any, *call))  # noqa: SLF001 - what all frameworks call
    hook.frameworks[library](optax)
    of_example = jax.jit(lambda number: number)
    update = jax.jit(lambda number: optax.apply_updates([number, 1]))
    for number in range(5):
        [of_example(number) for _ in range(32)]
        update(number)
        [of_example(number) for _ in range(number)]
    assert hook.marker.calls == 5
