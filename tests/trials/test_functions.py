"""Functions of a program that run in another way: found by a line, replaced for whoever holds them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.recording.inside.patches import PATCHES

CALLS: list[Any] = []


def plain(value: int, scale: int = 2, *, shift: int = 0) -> int:
    CALLS.append(value)
    return value * scale + shift


class Base:
    def add(self, value: int) -> int:
        return value + 1


class Average(Base):
    def __init__(self) -> None:
        self.times = 0

    def add(self, value: int) -> int:
        self.times += 1
        return super().add(value) + self.times


def counter(start: int) -> Any:
    total = start

    def add(value: int) -> int:
        nonlocal total
        total += value
        return total

    return add


def line_in(function: Any, text: str) -> str:
    """Where a function has this text, as a finding has it."""
    lines, first = inspect.getsourcelines(function)
    return f"test_functions.py:{first + next(n for n, line in enumerate(lines) if text in line)}"


@pytest.fixture(autouse=True)
def _as_they_were():
    codes = {function: function.__code__ for function in (plain, Average.add)}
    CALLS.clear()
    yield
    for function, code in codes.items():
        function.__code__ = code


def seldom(place: str, every: int = 3) -> Any:
    patch: Any = PATCHES["seldom"]({"line": place, "every": every})
    patch.switch(on=True)
    return patch


def test_a_function_runs_at_each_third_call_while_its_patch_is_on():
    held = functools.partial(plain, shift=1)  # whoever holds it calls what took its place
    patch = seldom(line_in(plain, "value * scale"))
    assert [held(1), held(2), plain(3), plain(4, 3, shift=9), plain(5)] == [3, 3, 6, 6, 6]
    assert (CALLS, patch.hits) == ([1, 3], 3)
    patch.switch(on=False)
    assert (plain(7), plain(8), CALLS) == (14, 16, [1, 3, 7, 8])


def test_a_method_of_objects_that_exist_is_found_with_its_class():
    first, second = Average(), Average()
    patch = seldom(line_in(Average.add, "super()"))
    assert [first.add(1), second.add(5), first.add(1)] == [3, 3, 4]
    assert (first.times, second.times, patch.hits) == (2, 0, 1)


def test_a_function_in_another_keeps_what_it_encloses():
    add = counter(10)
    seldom(line_in(counter, "total += value"), 2)
    assert [add(1), add(1), add(1)] == [11, 12, 12]


def test_a_generator_is_left_alone_as_its_result_is_of_one_use():
    def batches(count: int) -> Iterator[int]:
        yield from range(count)

    place = line_in(batches, "yield")
    assert list(seldom(place).refusals) == ["no_function"]
    assert [*batches(2), *batches(2)] == [0, 1, 0, 1]


@pytest.mark.parametrize("place", ["test_functions.py:1", "no_such_file.py:17", "test_functions.py", ""])
def test_a_line_of_no_function_is_refused(place: str):
    patch = seldom(place)
    assert (patch.hits, patch.refusals) == (0, {"no_function": {"line": place}})


@pytest.mark.parametrize("by", ["jax", "tensorflow"])
def test_a_function_is_compiled_by_its_framework_while_the_patch_is_on(by: str):
    patch: Any = PATCHES["jit"]({"line": line_in(plain, "value * scale"), "by": by})
    for module in ("jax", "tensorflow"):  # TensorFlow imports JAX
        compiler = {"jit" if module == "jax" else "function": lambda own, m=module: lambda *args: (m, own(*args))}
        patch.hook(SimpleNamespace(__name__=module, **compiler), None)
    patch.switch(on=True)
    assert (plain(2), patch.hits) == ((by, 4), 1)
    patch.switch(on=False)
    assert plain(2) == 4


def test_a_function_that_cannot_be_compiled_runs_as_it_is():
    def fails(*_: object) -> None:
        raise TypeError

    patch: Any = PATCHES["jit"]({"line": line_in(plain, "value * scale"), "by": "jax"})
    patch.hook(SimpleNamespace(__name__="jax", jit=lambda _: fails), None)
    patch.switch(on=True)
    assert (plain(2), patch.hits, patch.refusals) == (4, 0, {"compile_failed": {"kind": "TypeError"}})


def test_keras_compiles_its_step_whatever_the_program_asks_for():
    compiled: list[Any] = []
    model: Any = type("Model", (), {"compile": lambda _, *args, **kwargs: compiled.append((args, kwargs))})
    switched: list[bool] = []
    patch: Any = PATCHES["keras-graph"]({})
    patch.hook(SimpleNamespace(Model=model), None)
    config = SimpleNamespace(run_functions_eagerly=switched.append)
    patch.hook(SimpleNamespace(config=config, executing_eagerly=bool), None)
    model().compile("adam", run_eagerly=True)
    model().compile("adam", loss="mse")
    config.run_functions_eagerly(True)
    assert compiled == [(("adam",), {}), (("adam",), {"loss": "mse"})]
    assert (switched, patch.hits) == ([False], 2)


def test_a_layer_is_called_itself_in_place_of_its_checkpoint():
    module = SimpleNamespace(checkpoint=lambda layer, *args, **_: ("again", layer(*args)))
    patch: Any = PATCHES["checkpoints"]({})
    patch.hook(SimpleNamespace(utils=SimpleNamespace(checkpoint=module)), None)
    options = {"use_reentrant": False, "preserve_rng_state": True}
    assert module.checkpoint(lambda x, mask: x + mask, 1, mask=2, **options) == 3
    patch.switch(on=False)
    assert module.checkpoint(lambda x: x, 1, **options) == ("again", 1)
    assert patch.hits == 1
