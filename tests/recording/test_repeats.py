"""Which calls of PyTorch gave what they gave before."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from advisor.recording.inside.repeats import RepeatWatch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Not every process that collects this module needs it: it takes seconds to import."""
    torch = pytest.importorskip("torch")
    if compiler := sys.modules.get("torch._dynamo.eval_frame"):
        monkeypatch.setattr(compiler, "cached_backends", {})  # of other tests
    return torch


@contextmanager
def watching() -> Iterator[RepeatWatch]:
    """A watch that ends also where a test fails: the next test of the process has none."""
    watch = RepeatWatch()
    watch.start(None)
    try:
        yield watch
    finally:
        watch.stop()


def watched(step: Callable[[], Any]) -> dict[str, Any]:
    """What is noted of two steps."""
    with watching() as watch:
        for at in range(2):
            if at:
                watch.next_step()
            step()
    return watch.facts()


def again(step: Callable[[], Any]) -> dict[str, str]:
    """What the second of two steps computes again, by its call: of `each` step, or in `one`."""
    facts = watched(step)
    lines = [line for line in facts["repeats"] if line["is_complete"] and 50 * line["ns"] > facts["calls_ns"]]
    return {line["call"]: "each" if line["of_each_ns"] else "one" for line in lines}


def test_a_model_that_is_called_twice_on_a_batch_computes_the_second_time_again(torch: Any):
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(1), torch.nn.Conv1d(1, 16, 9))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        x = torch.randn(8, 1, 16384)
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            model(x).mean().item()
        optimizer.step()
        model(x)  # with other weights

    assert again(step)["model"] == "one"


def test_what_depends_on_no_batch_is_the_same_in_each_step(torch: Any):
    matrix = torch.randn(150, 150)

    def prepared() -> Any:
        mask = torch.ones(150, 150).tril()
        mask[0, 0] = 2
        return torch.linalg.inv(matrix) * mask

    def step() -> None:
        mask = prepared()
        mask @ torch.randn(150, 150)
        torch.randn(250, 250).inverse()  # most of the step is none of that

    assert again(step) == {"prepared": "each"}


def test_a_step_that_ends_between_two_equal_calls_computes_neither_in_each_step(torch: Any):
    """The first call of what a marked step computes twice lies in the step before."""
    values, rows = torch.randn(4000, 100), None

    def step() -> None:
        nonlocal rows
        if rows is not None:
            values.index_select(0, rows)
        rows = torch.randint(0, 4000, (900,))
        values.index_select(0, rows)

    step()
    assert again(step) == {"values.index_select": "one"}


def test_calls_that_read_alike_on_a_line_are_no_line_of_their_own(torch: Any):
    matrix, inverse = torch.randn(150, 150), torch.linalg.inv

    def step() -> None:
        inverse(matrix) - inverse(torch.randn(150, 150))
        torch.linalg.inv(matrix)

    lines = {line["call"]: line["is_complete"] for line in watched(step)["repeats"]}
    assert lines == {"inverse": False, "torch.linalg.inv": True}


def test_of_a_line_that_computes_other_things_too_its_own_calls_count_and_not_those_within_a_library(torch: Any):
    library: dict[str, Any] = {"torch": torch}
    text = "def fit(step):\n    step()\n    torch.ones(900, 900).tril()"
    exec(compile(text, "<library>", "exec"), library)  # noqa: S102 - a file of the test would be the program's

    constant = torch.randn(500, 500)

    def step() -> None:
        for matrix in (torch.randn(500, 500), torch.randn(500, 500), constant):
            matrix.inverse()

    (line,) = (of for of in watched(step)["repeats"] if of["call"] == "matrix.inverse")
    assert not line["is_complete"]
    assert 0 < line["ns"] < line["all_ns"]
    assert watched(lambda: library["fit"](lambda: torch.randn(500, 500).inverse()))["repeats"] == []


def test_a_list_of_thousands_of_rows_is_known(torch: Any):
    rows = {number: torch.randn(4) for number in range(5000)}

    def step() -> None:
        torch.stack(list(rows.values())) @ torch.randn(4)

    assert watched(step)["repeats"][0]["of_each_ns"]


@pytest.mark.parametrize("mode", ["inference_mode", "no_grad"])
def test_an_inference_is_followed(torch: Any, mode: str):
    model, states = torch.nn.Linear(300, 300), torch.zeros(200, 300)

    def step() -> None:
        with getattr(torch, mode)():
            x = torch.randn(200, 300)
            model(x)
            model(x)
            states.add_(1)
            torch.linalg.norm(states)

    assert again(step) == {"model": "one"}


def test_what_changes_between_two_calls_is_new(torch: Any):
    values, weight, states = np.ones(9), torch.nn.Parameter(torch.ones(9)), torch.zeros(9)
    shared, drops = torch.from_numpy(values), torch.nn.Dropout()
    frame, table = np.zeros((512, 512)), torch.zeros(20_000, 64)

    def step() -> None:
        values[3] += 1  # unseen by PyTorch
        frame[7, 9] += 1
        table.data[3001] += 1
        table.cos()
        torch.from_numpy(frame).cos()
        weight.data.add_(1)  # uncounted
        states.add_(1)
        shared.cos()
        weight.detach().cos()
        states.cos()
        drops(shared)
        torch.from_numpy(values).cos()
        torch.randperm(4)

    assert again(step) == {}


def test_what_is_computed_in_another_format_is_new(torch: Any):
    matrix, x = torch.randn(200, 200), torch.randn(200, 200)

    def step() -> None:
        x.add_(1)
        x @ matrix
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x @ matrix

    assert again(step) == {}


def test_a_class_of_the_program_is_asked_for_nothing_more(torch: Any):
    names: list[str] = []

    class Counted(torch.Tensor):  # type: ignore[misc]  # unknown until torch is
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    value = torch.ones(3).as_subclass(Counted)
    watched(lambda: value + 1)
    assert names == ["add", "add"]


def test_a_program_that_compiles_is_not_followed(torch: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.import_module("torch._dynamo.eval_frame"), "cached_backends", {})
    compiled = torch.compile(lambda x: x.cos(), backend="eager", fullgraph=True)
    assert watched(lambda: compiled(torch.ones(3))) == {"repeats": [], "calls_ns": 0}


def test_a_warning_comes_from_the_line_of_the_program(torch: Any):
    with pytest.warns(UserWarning, match="Implicit dimension") as warned:
        watched(lambda: torch.nn.functional.softmax(torch.ones(3)))
    assert {warning.filename for warning in warned} == {__file__}


def test_what_is_traced_has_nothing_of_it(torch: Any):
    layer, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    trace = importlib.import_module("torch.fx.experimental.proxy_tensor").make_fx
    plain = str(trace(layer)(x).graph)
    with watching():
        traced = str(trace(layer)(x).graph)
    assert traced == plain


def test_it_stands_back_where_somebody_else_sees_the_calls(torch: Any):
    with torch.device("cpu"), watching() as watch:
        watch.next_step()
    assert watch.facts() == {"repeats": [], "calls_ns": 0}


def test_an_error_of_a_call_is_the_programs(torch: Any):
    with watching() as watch, pytest.raises(RuntimeError, match="size"):
        torch.ones(2) + torch.ones(3)
    assert watch.facts() == {}


def test_of_a_long_list_all_are_known_and_some_are_looked_at(torch: Any):
    vectors = {at: torch.randn(64) for at in range(2000)}
    changing = [torch.zeros(64) for _ in range(2000)]

    def step() -> None:
        torch.stack(list(vectors.values()))
        torch.stack(changing)
        changing[1].add_(1)

    assert [line["call"] for line in watched(step)["repeats"] if line["is_complete"]] == ["torch.stack"]


def test_what_is_filled_or_shared_out_of_its_sight_is_new(torch: Any):
    buffer, count = torch.empty(9), iter(range(9))
    shared = buffer.numpy()

    def step() -> None:
        shared[:] = next(count)
        buffer.view(3, 3).cos()
        filled = torch.empty(9)
        filled.numpy()[:] = next(count)
        filled.cos()

    assert "filled.cos" not in (calls := again(step))
    assert "buffer.view(3, 3).cos" not in calls


@pytest.mark.parametrize(
    "value", ["torch.ones(2**20, 1).expand(-1, 2**20)", "torch.ones(9, 9, dtype=torch.cfloat).T.conj()"]
)
@pytest.mark.filterwarnings("error")
def test_what_is_spread_is_not_copied(torch: Any, value: str):
    spread = eval(value, {"torch": torch})  # noqa: S307 - the parameter above

    def step() -> None:
        spread.view_as(spread)

    assert len(watched(step)["repeats"]) == 1


def test_it_ends_where_a_context_of_the_program_stays_open(torch: Any):
    with watching():
        context = torch.device("cpu")
        context.__enter__()
        torch.ones(2)
    size = torch.overrides._len_torch_function_stack  # noqa: SLF001 - what PyTorch itself asks
    assert size() == 1
    context.__exit__(None, None, None)
    assert size() == 0
