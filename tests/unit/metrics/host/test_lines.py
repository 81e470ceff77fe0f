"""The line of the program that takes the time of its step: which lines count, and what their share is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from advisor.analysis.device.host_lines import long_lines, longest_lines, losses
from advisor.analysis.device.places import is_call_of, sampled
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.stacks import kind_of, kinds
from advisor.model.clause import Missing
from advisor.model.profile import STACKS
from tests.effort import every
from tests.tables import kernel, metrics_of, on_host, profile, step, view

OPS = [on_host("op", 0, 400, name="aten::linear"), on_host("op", 400, 500, name="aten::quantile")]
NODE = on_host("op", 500, 600, name="autograd::engine::evaluate_function: AddmmBackward0", sequence=7)


def trace(*stacks: dict[str, Any], ops: list[dict[str, Any]] = OPS) -> DeviceView:
    """A step of 1 ms on a CPU, whose ops take the first half of it, and what was sampled."""
    of = view(profile([], ops, [step(1, 0, 1000, device=None)]))
    of.process["stacks"] = [*stacks]  # type: ignore[index]  # a reader fills it
    return of


def stack(line: str | None, call: str | None, *below: str, samples: int = 10, **more: Any) -> dict[str, Any]:
    known = {"line": line, "call": call, "below": [*below], "samples": samples, "ns": 10_000_000 * samples}
    return {"function": "main", "above": None, "of_loader": False} | known | more


MODULE = "torch/nn/modules/module.py: Module._call_impl"
BACKWARD = stack("train.py:9", "loss.backward", "torch/_tensor.py: Tensor.backward", samples=60)


def test_a_line_that_saves_a_file_has_its_share_and_the_advice_for_it():
    saves = stack("train.py:12", "model.save_weights", "keras/src/saving/saving_api.py: save_weights", samples=40)
    values = metrics_of(trace(BACKWARD, saves))
    assert values["line_share"] == pytest.approx(0.4)
    assert values["line_place"] == "train.py:12 `model.save_weights(...)` in `main`"
    assert values["line_words"] == "saves a file"
    assert values["line_fix"].startswith("Save every 1,000 steps")
    assert values["line_least_gain_ms"] == pytest.approx(0.4 - 2 * (0.4 * 0.6 / 100) ** 0.5)
    assert values["line_gain_ms"] == pytest.approx(0.4 + 0.1 * 0.6 + 2 * (0.4 * 0.6 / 100) ** 0.5)


def test_a_line_that_takes_what_another_thread_makes_waits_for_input_where_that_was_recorded():
    takes = stack("train.py:8", "batches.get", "queue.py: Queue.get", "threading.py: Condition.wait", samples=40)
    values = metrics_of(trace(BACKWARD, takes))
    assert (values["line_share"], values["line_words"]) == (0.4, "waits for what another thread or process makes")
    asked = [*OPS, on_host("input", 600, 1000, name="queue.py(154): get")]
    assert metrics_of(trace(BACKWARD, takes, ops=asked))["line_share"] == 0


@pytest.mark.parametrize(
    ("samples", "function", "share"), [(24, "stream", 0.0), (25, "stream", 0.25), (24, "log", 0.24)]
)
def test_a_line_of_what_waits_for_input_by_its_place_is_judged_as_that_wait(samples: int, function: str, share: float):
    """`stream` takes half of the step, and the line a quarter or less."""
    saves = stack("train.py:20", "np.save", "numpy/lib/npyio.py: save", samples=samples, function=f"main.{function}")
    trains = BACKWARD | {"samples": 100 - samples, "ns": 10_000_000 * (100 - samples)}
    of = trace(trains, saves, ops=[*OPS, on_host("input", 500, 1000, name="$train.py:18 stream")])
    of.process.update(before_ms=1.0, after_ms=1.0, profiled_ms=1.0)  # type: ignore[attr-defined]
    assert metrics_of(of)["line_share"] == pytest.approx(share)


EVALUATION = "transformers/trainer.py: Trainer.evaluate"


@pytest.mark.parametrize(
    ("forward", "other", "long_ns", "share"),
    [
        (40, 0, 0, 0.4),
        (30, 10, 0, 0.4),
        (10, 30, 0, 0.0),  # it checks arguments
        (40, 0, 400_000_000, 0.0),  # once, in an uneven step
    ],
)
def test_passes_of_the_model_on_other_data_are_evaluation(forward: int, other: int, long_ns: int, share: float):
    passes = stack("train.py:9", "t.train", "torch/nn/modules/module.py: Module._call_impl", samples=forward)
    rows = [(passes, forward), (stack("train.py:9", "t.train", "json/encoder.py: encode", samples=other), other)]
    below = [row | {"evaluates": EVALUATION, "long_ns": long_ns} for row, samples in rows if samples]
    values = metrics_of(trace(BACKWARD, *below))
    assert values["evaluation_share"] == pytest.approx(share)
    assert values["evaluation_name"] == ("Trainer.evaluate" if share else "")
    error = 2 * (share * (1 - share) / 100) ** 0.5
    assert values["evaluation_least_gain_ms"] == pytest.approx(max(0.0, 0.9 * share - error))
    assert values["evaluation_gain_ms"] == pytest.approx(share + error)


def test_the_saving_has_what_blocks_of_steps_differ_by():
    """Blocks of 9 and 11 ms differ by a tenth."""
    of = trace(BACKWARD, stack("train.py:12", "torch.save", "torch/serialization.py: save", samples=40))
    of.process.update(before_ms=9.0, after_ms=11.0)  # type: ignore[attr-defined]
    values = metrics_of(of)
    error = (0.4 * 0.6 / 100 + 0.4**2 * 0.1**2) ** 0.5
    assert values["line_gain_ms"] - values["line_least_gain_ms"] == pytest.approx(0.1 * 0.6 + 4 * error)


def test_what_is_done_otherwise_takes_its_part_of_the_time():
    """A metric that is counted in each step, and not computed, may take half of the line."""
    of = stack("train.py:12", "metric", "torchmetrics/metric.py: Metric._wrap_compute", samples=40)
    least = metrics_of(trace(BACKWARD, of))["line_least_gain_ms"]
    assert least == pytest.approx(0.5 * 0.4 - 2 * (0.4 * 0.6 / 100) ** 0.5)


def test_a_line_that_only_waits_leaves_the_rest_of_the_step_as_long():
    loop, error = caller("train.py:30", "make", 31), 2 * (0.4 * 0.6 / 100) ** 0.5
    values = metrics_of(trace(BACKWARD, stack("train.py:12", "time.sleep", samples=40)))
    assert (values["line_least_gain_ms"], values["line_gain_ms"]) == pytest.approx((0.4 - error, 0.4 + error))
    trains = stack("train.py:31", "loss.backward", "torch/_tensor.py: Tensor.backward", samples=60)
    makes_batch = stack("data.py:3", "time.sleep", samples=40, function="make", callers=[loop])
    assert metrics_of(trace(trains, makes_batch))["line_least_gain_ms"] == pytest.approx(0.8 * 0.4 - error)


def test_lines_that_only_some_steps_run_are_why_these_are_long():
    """A tenth of the steps is uneven; of 100 ms a line of every step has 10 in them, one that saves a file has all."""
    even = BACKWARD | {"ns": 900_000_000, "long_ns": 90_000_000}
    saves = stack("train.py:12", "torch.save", "torch/serialization.py: save", samples=10) | {"long_ns": 100_000_000}
    of = trace(even, saves)
    of.process["long_part"] = 0.1  # type: ignore[index]
    assert long_lines(of) == [{"name": "train.py:12 `torch.save(...)` in `main`", "share": 0.1}]


def test_a_line_that_calls_the_same_in_every_step_is_not_what_only_long_steps_run():
    """`model.fit` holds the whole training: that some of its stacks were met in long steps alone tells nothing."""
    even = BACKWARD | {"ns": 900_000_000, "long_ns": 90_000_000}
    other = stack("train.py:9", "loss.backward", "keras/src/callbacks.py: on_epoch_end", samples=10)
    of = trace(even, other | {"long_ns": 100_000_000})
    of.process["long_part"] = 0.1  # type: ignore[index]
    assert long_lines(of) is None


def test_where_all_samples_lie_in_long_steps_none_of_them_says_what_makes_these_long():
    """As of steps of microseconds, which a sample makes longer itself."""
    lines = [stack(f"train.py:{line}", "model", samples=40) for line in (12, 13)]
    for long, is_named in ((lines[:1], True), (lines, False)):
        of = trace(*(each | {"long_ns": each["ns"] * (each in long)} for each in lines))
        of.process["long_part"] = 0.1  # type: ignore[index]
        assert bool(long_lines(of)) is is_named


def test_a_line_that_few_samples_stand_for_is_not_known_however_long_each_of_them_took():
    for samples, is_known in ((2, False), (4, False), (5, True)):
        stall = stack("train.py:12", "acquire", "threading.py: Condition.wait", samples=samples)
        of = trace(BACKWARD, stall | {"ns": 600_000_000})
        assert [loss.share for loss in losses(of)] == ([0.5] if is_known else [])


def test_lines_without_a_number_of_samples_count_as_calls_do():
    of = trace(*(stack(f"train.py:{n}", "f", samples=0, ns=10**9, long_ns=10**9 * (n == 1)) for n in (1, 2)))
    of.process["long_part"] = 0.1  # type: ignore[index]
    assert long_lines(of) == [{"name": "train.py:1 `f(...)` in `main`", "share": 0.5}]


def test_a_line_of_python_takes_no_more_than_the_time_outside_of_ops():
    values = metrics_of(trace(BACKWARD, stack("train.py:12", "distances", samples=140)))
    assert values["line_share"] == pytest.approx(0.5)
    assert values["line_words"] == ""


def test_a_line_of_python_takes_nothing_where_ops_take_the_whole_step():
    whole = [on_host("op", 0, 1000, name="aten::linear")]
    assert losses(trace(BACKWARD, stack("train.py:12", "distances", samples=40), ops=whole)) == []


def test_a_line_waits_for_python_s_lock_as_all_that_is_outside_of_ops_does():
    """Half of the step is outside of ops, and half of that waits for another thread: so does half of the line."""
    of = trace(BACKWARD, stack("train.py:12", "distances", samples=40))
    thread = {"line": "stats.py:8", "function": "crunch", "call": None, "share": 0.9}
    of.process.update(sleep_share=0.25, threads=[thread])  # type: ignore[attr-defined]
    assert [loss.share for loss in losses(of)] == pytest.approx([0.2])


def test_lines_of_a_function_that_does_nothing_else_count_together():
    lines = (stack(f"train.py:{line}", "f", samples=20, function="log") for line in (3, 4))
    inner = stack("train.py:4", "zip", samples=5, function="log.<locals>.<genexpr>")
    values = metrics_of(trace(BACKWARD, *lines, inner))
    assert values["line_share"] == pytest.approx(45 / 105)
    assert values["line_place"] == "train.py:3-4 in `log`"
    assert values["line_within"] == "train.py:4 `f(...)`"


@pytest.mark.parametrize(("calls", "fix"), [("np.array", "Keep an array"), ("clean", "")])
def test_a_line_that_takes_most_of_several_tells_a_known_rewrite_of_its_call(calls, fix):
    lines = (stack(f"train.py:{n}", of, samples=k, function="log") for n, of, k in ((3, "f", 15), (4, calls, 25)))
    values = metrics_of(trace(BACKWARD, *lines))
    assert values["line_within"] == f"train.py:4 `{calls}(...)`"
    assert (values["line_fix"], values["line_rewrite"][:13]) == ("", fix)


def test_a_call_is_the_place_where_no_line_that_it_runs_holds_four_fifths_of_it():
    """`prepare` takes 80 of 100 samples, 60 or 64 of them in one line, and 4 in the line that calls it."""
    called = {"function": "prepare", "callers": [caller("train.py:30", "prepare", 31)]}
    rest = [stack("train.py:31", "loss.backward", "torch/_tensor.py: Tensor.backward", samples=20)]
    rest.append(stack("train.py:30", "prepare", samples=4))
    call, inner = "train.py:30 `prepare(...)`", "graph.py:6 `sorted(...)`"
    for samples, place, share, within in ((60, f"{call} in `main`", 0.8, inner), (64, f"{inner} in", 0.64, "")):
        lines = [("graph.py:6", "sorted", samples), ("graph.py:4", "{u for u in edges}", 76 - samples)]
        of = trace(*rest, *(stack(line, call, samples=n, **called) for line, call, n in lines), ops=[])
        values = metrics_of(of)
        assert values["line_place"].startswith(place)
        assert (values["line_share"], values["line_within"]) == (pytest.approx(share), within)
        assert values["line_rewrite" if within else "line_fix"].startswith("Sort with one call")
        others = f"graph.py:4 `{{u for u in edges}}` ({76 - samples} %), {call} (4 %)"
        assert values["inner_lines"] == f"{inner} ({samples} %), {others}"
        assert values["line_apart"].startswith("graph.py")


@pytest.mark.parametrize(
    ("shapes", "fix"),
    [
        ("[[2560, 1, 32], [1, 160, 32]]", "Multiply matrices"),
        ("[[160, 32], [2560, 1, 32]]", "Multiply matrices"),
        ("[[2560, 32], [2560, 1]]", ""),
        ("[[2560, 4, 32], [1, 4, 32]]", ""),
    ],
)
def test_a_line_of_a_forward_pass_is_made_cheaper_by_what_its_op_does(shapes: str, fix: str):
    """`nearest` of a module takes 40 of 100 samples, and differences half of the step."""
    called = {"function": "Codebook.nearest", "callers": [caller("vq.py:49", "self.nearest", 50)]}
    called["callers"][0] |= {"function": "Codebook.forward"}
    lines = [stack(f"vq.py:{line}", of, samples=20, **called) for line, of in ((42, "flat.clone"), (43, "diff.pow"))]
    uses = stack("vq.py:50", "self.embed", MODULE, samples=20, function="Codebook.forward")
    values = metrics_of(trace(BACKWARD, *lines, uses, ops=[on_host("op", 0, 500, name="aten::sub", shapes=shapes)]))
    assert values["line_place"].startswith("vq.py:49 `self.nearest(...)` in `Codebook.forward`")
    assert (values["line_is_of_model"], values["line_rewrite"][:17]) == (1, fix)


PANDAS = "pandas/core/groupby/generic.py: SeriesGroupBy.transform"


def test_a_place_that_a_library_calls_names_the_line_on_the_way_to_it():
    """As what Keras asks a dataset for: `__getitem__` has no line that calls it."""
    callers = [caller("data.py:53", "features", function="Set.__getitem__")]
    makes = stack("data.py:34", "g.transform", PANDAS, samples=40, function="features", callers=callers)
    values = metrics_of(trace(BACKWARD, makes))
    assert values["line_place"] == "data.py:34 `g.transform(...)` in `features`, called at data.py:53 `features(...)`"
    assert (values["line_words"], values["line_share"]) == ("computes with a table", 0.4)


def test_a_line_whose_time_two_calls_share_gives_way_to_the_call_of_its_function():
    """Of 70 samples in line 6, its longest call has 40, 60 or 64: what is known of it is said where it is most."""
    called = {"function": "prepare", "callers": [caller("train.py:30", "prepare", 31)]}
    trains = stack("train.py:31", "loss.backward", "torch/_tensor.py: Tensor.backward", samples=30)
    repairs = []
    line = "graph.py:6 `torch.tensor(...)`"
    for longest, place in (
        (40, "train.py:30 `prepare(...)` in `main`"),
        (60, f"{line} and more in"),
        (64, f"{line} in"),
    ):
        calls = (("torch.tensor", longest), ("sorted", 70 - longest))
        lines = (stack("graph.py:6", call, samples=n, **called) for call, n in calls)
        values = metrics_of(trace(trains, *lines, ops=[]))
        assert values["line_place"].startswith(place)
        assert (values["line_share"], values["line_is_loop"]) == (pytest.approx(0.7), 0)
        repairs.append(0.7 - values["line_least_gain_ms"])
    assert repairs[2] - repairs[0] == pytest.approx(0.2 * 0.7)


def test_a_forward_function_is_the_place_where_its_lines_take_the_time_and_not_the_call_of_the_model():
    """A model is called in each step, whatever its forward function does besides its layers."""
    called = {"function": "Sage.forward", "callers": [caller("train.py:30", "model", 31)]}
    lines = (stack(f"net.py:{n}", call, samples=k, **called) for n, call, k in ((6, "reach", 40), (7, "pool", 20)))
    values = metrics_of(trace(BACKWARD, *lines, ops=[]))
    assert values["line_place"] == "net.py:6-7 in `Sage.forward`, called at train.py:30 `model(...)`"
    assert (values["line_within"], values["line_apart"]) == ("net.py:6 `reach(...)`", "net.py:6")


def test_a_sort_takes_half_of_its_time_in_any_form():
    least = [
        metrics_of(trace(BACKWARD, stack("train.py:12", call, samples=40), ops=[]))["line_least_gain_ms"]
        for call in ("sorted", "clean")
    ]
    assert least[1] - least[0] == pytest.approx(0.5 * 0.4)


@pytest.mark.parametrize(("call", "is_loop"), [("zip", 1), (None, 1), ("np.sort", 0)])
def test_a_function_that_loops_in_python_is_told_from_one_that_calls_a_library(call: str | None, is_loop: int):
    called = {"function": "overlap", "callers": [caller("train.py:30", "overlap")]}
    lines = (stack(f"train.py:{n}", call, samples=20, **called) for n in (7, 8))
    values = metrics_of(trace(BACKWARD, *lines))
    assert values["line_is_loop"] == is_loop


def test_a_line_of_a_loop_that_calls_nothing_stands_for_the_call_of_its_function():
    called = {"function": "worth", "callers": [caller("train.py:30", "worth", 31)]}
    values = metrics_of(trace(BACKWARD, stack("train.py:9", "factor *= alive[s]", samples=40, **called)))
    assert values["line_place"] == "train.py:30 `worth(...)` in `main`"
    assert values["inner_lines"] == "train.py:9 `factor *= alive[s]` (40 %)"


def test_lines_beside_the_one_that_holds_a_call_are_evidence_from_two_hundredths_on():
    called = {"function": "follow", "callers": [caller("train.py:30", "follow")]}
    lines = [("t.py:7", "f", 36), ("t.py:5", "g", 3), ("t.py:9", "h", 1)]
    inner = [stack(line, call, samples=n, **called) for line, call, n in lines]
    values = metrics_of(trace(BACKWARD, *inner))
    assert values["line_place"] == "t.py:7 `f(...)` in `follow`, called at train.py:30 `follow(...)`"
    assert values["inner_lines"] == "t.py:7 `f(...)` (36 %), t.py:5 `g(...)` (3 %)"
    assert metrics_of(trace(BACKWARD, *inner[:1]))["inner_lines"] == ""


def caller(line: str, call: str, *needed: int, function: str = "main") -> dict[str, Any]:
    return {"line": line, "function": function, "call": call, "needed": [*needed]}


def test_a_call_counts_with_all_that_it_calls_and_the_call_that_holds_it_is_named():
    """30 and 30 of 200 samples in two lines of `clean`, 5 in its caller `encode`: four fifths of 65 are in `clean`."""
    loop, rows = caller("train.py:30", "batch", 31), caller("data.py:9", "clean", function="encode")
    inner = [stack(f"data.py:{n}", "re.sub", "re/__init__.py: sub", samples=30, function="clean") for n in (3, 5)]
    outer = stack("data.py:9", "hash", samples=5, function="encode", callers=[loop])
    trains = stack("train.py:31", "loss.backward", "torch/_tensor.py: Tensor.backward", samples=135)
    of = trace(trains, outer, *(each | {"callers": [loop, rows]} for each in inner))
    values = metrics_of(of)
    assert values["line_share"] == pytest.approx(65 / 200)
    assert values["line_place"] == "data.py:9 `clean(...)` in `encode`, called at train.py:30 `batch(...)`"
    assert (values["line_is_needed"], values["line_apart"]) == (1, "data.py:3")
    longer = inner[1] | {"samples": 40, "ns": 400_000_000}
    of = trace(trains, outer, *(each | {"callers": [loop, rows]} for each in (inner[0], longer)))
    assert metrics_of(of)["line_apart"] == "data.py:5"  # of the line that takes most


def test_a_line_in_a_function_that_trains_is_not_apart():
    """What calls `training_step` more rarely would leave out the training too."""
    values = metrics_of(trace(BACKWARD, stack("train.py:12", "sorted", samples=40)))
    assert (values["line_place"], values["line_apart"]) == ("train.py:12 `sorted(...)` in `main`", "")


def test_a_call_whose_result_nothing_of_the_training_reads_is_not_needed():
    loop = caller("train.py:30", "report", 34)
    values = metrics_of(trace(BACKWARD, stack("log.py:3", "sorted", samples=40, function="report", callers=[loop])))
    assert values["line_is_needed"] == 0
    assert values["line_place"] == "log.py:3 `sorted(...)` in `report`, called at train.py:30 `report(...)`"


def test_a_line_may_be_an_operator():
    of_set = stack("train.py:12", "k not in seen", samples=40)
    assert metrics_of(trace(BACKWARD, of_set))["line_place"] == "train.py:12 `k not in seen` in `main`"


def test_a_method_of_a_tensor_in_a_function_that_watches_does_not_make_it_the_training():
    norms = stack("log.py:3", "grad.norm", "torch/_tensor.py: Tensor.norm", samples=2, function="log")
    others = (stack(f"log.py:{line}", ".float", samples=20, function="log") for line in (4, 5))
    values = metrics_of(trace(BACKWARD, norms, *others))
    assert values["line_place"] == "log.py:4-5 in `log`"
    assert values["line_share"] == pytest.approx(40 / 102)


def test_what_a_callback_calls_is_none_of_the_step_s_own_work():
    watches = caller("watch.py:9", "module", function="Watch.on_train_batch_end")
    module = {"function": "Net.forward", "above": "torch/nn/modules/module.py: Module._call_impl", "callers": [watches]}
    again = stack("net.py:3", "self.net", "torch/nn/modules/linear.py: Linear.forward", samples=40, **module)
    values = metrics_of(trace(BACKWARD, again))
    assert values["line_place"] == "watch.py:9 `module(...)` in `Watch.on_train_batch_end`"
    assert values["line_share"] == pytest.approx(0.4)
    assert (values["line_words"], values["line_fix"][:23]) == ("runs in a callback", "Do this every 100 steps")


def test_keras_waits_for_its_values_before_it_calls_back_and_the_callback_is_the_place():
    """Of 100 samples of `fit` on JAX 36 wait for the loss, and none is a call of the training."""
    keras = ("keras/src/utils/python_utils.py: pythonify_logs", "keras/src/backend/jax/core.py: convert_to_numpy")
    waits = stack("train.py:74", "model.fit", "keras/src/backend/jax/trainer.py: JAXTrainer.fit", *keras, samples=36)
    within = {"function": "Plot.on_train_batch_end", "callers": [caller("train.py:74", "model.fit")]}
    draws = [
        stack(f"train.py:{line}", call, "matplotlib/figure.py: draw", samples=samples, **within)
        for line, call, samples in ((35, "plt.subplots", 16), (40, "figure.savefig", 48))
    ]
    of = trace(waits, *draws, ops=[])
    of.process.update(framework="jax", sleep_share=0.36)  # type: ignore[attr-defined]
    values = metrics_of(of)
    assert values["line_place"] == "train.py:35-40 in `Plot.on_train_batch_end`"
    assert (values["line_share"], values["line_words"]) == (pytest.approx(0.64), "draws a figure")


FETCHES = ["keras/src/backend/tensorflow/trainer.py: predict", "tensorflow/python/ops/gen.py: iterator_get_next"]


@pytest.mark.parametrize(
    ("function", "samples", "of_loop", "input_share"),
    [
        ("Preview.on_train_batch_end", 20, 0, 0.1),
        ("main", 20, 0, 0.4),  # the loop itself asks
        ("Preview.on_train_batch_end", 20, 20, 0.4),  # as much as the callback does
        ("Preview.on_train_batch_end", 15, 0, 0.4),  # less than half of the ranges: a graph asks for a batch, too
    ],
)
def test_a_callback_s_own_loading_is_no_wait_for_the_step_s_loader(
    function: str, samples: int, of_loop: int, input_share: float
):
    """A step of 1 ms asks for 0.3 ms on its thread; another thread does for 0.1 ms, as a graph does."""
    host = [on_host("step", 0, 1000), on_host("op", 0, 500), on_host("input", 500, 800, name="IteratorGetNext")]
    host.append(on_host("input", 800, 900, name="IteratorGetNext", thread=2))
    asks = [stack("watch.py:9", "predict", *FETCHES, samples=samples, function=function)]
    asks += [stack("train.py:8", "next", *FETCHES, samples=of_loop)] if of_loop else []
    rest = stack("train.py:9", "step", samples=100 - samples - of_loop)
    of = profile([], host, [step(1, 0, 1000, device=None)])
    stacks = pl.Series("stacks", [[*asks, rest]], pl.List(STACKS))
    of = replace(of, workers=of.workers.with_columns(stacks))
    assert metrics_of(view(of))["input_share"] == pytest.approx(input_share)


@pytest.mark.parametrize(("ops", "share"), [(OPS, 0.4), ([], 0.0)], ids=["PyTorch", "JAX"])
def test_on_a_cpu_a_list_of_pytorch_s_values_is_work_and_no_wait(ops: list[dict[str, Any]], share: float):
    lists = stack("train.py:12", ".tolist", samples=40)
    assert metrics_of(trace(BACKWARD, lists, ops=ops))["line_share"] == pytest.approx(share)


def test_lines_of_a_loop_that_trains_count_one_by_one():
    loop = stack("train.py:9", "loss.backward", samples=60, function="main")
    others = (stack(line, call, samples=n) for line, call, n in (("train.py:3", "f", 30), ("train.py:4", "g", 10)))
    values = metrics_of(trace(loop, *others))
    assert values["line_share"] == pytest.approx(0.3)
    assert values["other_lines"] == "train.py:4 `g(...)` in `main` (10 %)"


@pytest.mark.parametrize(("second", "share"), [(5, 0.4), (6, 0.3)])
def test_neighbouring_lines_that_call_the_same_count_together(second: int, share: float):
    """30 and 10 of 100 samples in lines of which one follows the other, or stands apart."""
    others = (stack(f"train.py:{line}", "torch.tensor", samples=n) for line, n in ((3, 30), (second, 10)))
    values = metrics_of(trace(BACKWARD, *others))
    assert values["line_share"] == pytest.approx(share)
    assert values["line_place"] == f"train.py:3{'-5' * (second == 5)} `torch.tensor(...)` in `main`"
    error = 2 * (share * (1 - share) / 100) ** 0.5
    assert values["line_least_gain_ms"] == pytest.approx(share - error)


def test_a_line_that_several_lines_of_the_loop_call_counts_once():
    """15 and 25 of 100 samples, and no more than half of the step is outside of ops."""
    calls = [caller(f"train.py:{line}", "board.histogram") for line in (40, 41)]
    for samples, share in (((15, 25), 0.4), ((40, 40), 0.5)):
        inner = zip(samples, calls, strict=True)
        rows = [stack("log.py:14", "np.sort", samples=n, function="sums", callers=[line]) for n, line in inner]
        values = metrics_of(trace(BACKWARD, *rows))
        assert values["line_share"] == pytest.approx(share)
        assert values["other_lines"] == ""
    by = "called at train.py:40 `board.histogram(...)` and train.py:41 `board.histogram(...)`"
    assert values["line_place"] == f"log.py:14 `np.sort(...)` in `sums`, {by}"


def test_what_waits_for_the_loader_in_long_steps_alone_is_no_line_that_only_these_run():
    even, fetch = BACKWARD | {"ns": 900_000_000, "long_ns": 90_000_000}, "torch/utils/data/dataloader.py: __next__"
    of = trace(even, stack("train.py:8", None, fetch, samples=10) | {"long_ns": 100_000_000})
    of.process["long_part"] = 0.1  # type: ignore[index]
    assert long_lines(of) is None


@pytest.mark.parametrize(
    ("call", "below", "above"),
    [
        ("model", ["torch/nn/modules/module.py: Module._call_impl"], None),
        ("opt.step", [], None),
        ("loss.cpu", [], None),
        ("gc.collect", [], None),
        ("enumerate", [], None),
        ("Image.open", [], "torch/utils/data/_utils/fetch.py: _MapDatasetFetcher.fetch"),
    ],
)
def test_the_step_s_own_work_and_what_other_rules_judge_is_no_lost_line(call: str, below: list[str], above: str | None):
    assert not losses(trace(stack("train.py:9", call, *below, samples=100, above=above)))


def test_a_call_that_trains_is_no_lost_line_where_it_waits_for_the_lock_on_its_way_to_its_first_op():
    """A thread gives the lock up where it enters a function of Python: `net`, before it calls a module."""
    forward = stack("train.py:9", "net", "torch/nn/modules/module.py: Module._call_impl", samples=60)
    enters = stack("train.py:9", "net", samples=40)
    assert not losses(trace(forward, enters))
    others = (enters | {"call": call} for call in ("report", None))
    assert [loss.call for other in others for loss in losses(trace(forward, other))] == ["report", None]


def test_an_op_that_takes_no_part_in_the_training_is_lost():
    linear = on_host("op", 0, 400, name="aten::linear", sequence=7)
    ops = [linear, on_host("op", 400, 500, name="aten::quantile", sequence=8), NODE]
    stacks = (stack("train.py:9", f"torch.{name}", samples=50) for name in ("linear", "quantile"))
    assert [(loss.call, loss.share) for loss in losses(trace(*stacks, ops=ops))] == [("torch.quantile", 0.5)]


def test_ops_beside_one_that_takes_no_part_are_lost_with_it_where_some_of_their_kind_take_none():
    """Half of the sums make a node: those of line 9 are as needless as its quantile, as is an op without a name."""
    sums = [on_host("op", 0, 400, name="aten::sum", sequence=7), on_host("op", 450, 500, name="aten::sum")]
    ops = [*sums, on_host("op", 400, 450, name="aten::quantile", sequence=8), NODE]
    aside = [stack("train.py:9", f"torch.{name}", samples=20) for name in ("quantile", "sum")]
    power = stack("train.py:9", None, "torch/_tensor.py: _wrapped", samples=10)
    (loss,) = losses(trace(*aside, power, stack("train.py:12", "torch.sum", samples=50), ops=ops))
    assert (loss.lines, loss.share) == (("train.py:9",), 0.5)


def test_a_loop_over_the_elements_of_a_tensor_counts_with_the_ops_that_walk_it_and_read_them():
    """`zip` walks two tensors by `unbind`, for 60 of 90 samples; of what needs gradients, it is the training's."""
    walks = stack("train.py:3", "zip", "torch/_tensor.py: Tensor.__iter__", samples=60, function="overlap")
    reads = stack("train.py:4", "row.item", samples=30, function="overlap")
    trains = stack("train.py:9", "loss.backward", "torch/_tensor.py: Tensor.backward", samples=10)
    for makes, aside, share in (("linear", "unbind", 0.9), ("unbind", "linear", 0.3)):
        numbers = {makes: 7, aside: 8, "item": 8}
        ops = [on_host("op", 0, 150, name=f"aten::{name}", sequence=n) for name, n in numbers.items()]
        lost = losses(trace(walks, reads, trains, ops=[*ops, NODE]))
        assert sum(loss.share for loss in lost) == pytest.approx(share)


def test_a_function_of_torch_nn_functional_is_lost_with_its_op_and_trains_with_what_that_calls():
    ops = [
        on_host("op", 0, 300, name="aten::cross_entropy_loss"),
        on_host("op", 0, 200, name="aten::log_softmax", parent=0),
        on_host("op", 0, 100, name="aten::_log_softmax", parent=1, sequence=7),
        on_host("op", 300, 500, name="aten::grid_sampler", sequence=8),
        NODE,
    ]
    names = ("cross_entropy", "grid_sample")
    stacks = (stack("train.py:9", f"F.{of}", f"torch/nn/functional.py: {of}", samples=50) for of in names)
    assert [(loss.call, loss.share) for loss in losses(trace(*stacks, ops=ops))] == [("F.grid_sample", 0.5)]


def test_a_line_that_calls_nothing_calls_no_op():
    """Of `a @ b` no name is known."""
    below = pl.Series("below", [[], [], []], pl.List(pl.String))
    calls = pl.DataFrame({"call": [None, "torch.quantile", "sum"]}, {"call": pl.String}).with_columns(below)
    assert calls.select(is_call_of(pl.Series(["quantile", "sum"]))).to_series().to_list() == [False, True, False]


def test_without_a_training_no_op_is_lost():
    assert not losses(trace(stack("serve.py:9", "torch.quantile", samples=100)))


def test_without_a_training_ops_beside_the_calls_of_a_model_are_lost():
    net = stack("serve.py:5", "self.net", MODULE, samples=40, callers=[caller("serve.py:9", "model", 10)])
    inner = stack("serve.py:6", "x.softmax", samples=10, callers=net["callers"]) | {"function": "Net.forward"}
    both = [stack("serve.py:10", call, samples=25, callers=[]) for call in ("F.normalize", "rows.float")]
    values = metrics_of(trace(net | {"above": MODULE}, inner, *both, ops=OPS))
    assert values["line_share"] == pytest.approx(0.5)
    assert values["line_place"].startswith("serve.py:10")


def test_a_builtin_of_python_is_no_op_of_the_same_name():
    lines = trace(stack("train.py:9", "sum", samples=100), ops=[on_host("op", 0, 500, name="aten::sum"), NODE])
    assert lines.once(sampled)["kind"].to_list() == ["own"]


def test_the_loader_s_processes_are_not_the_step():
    assert not losses(trace(BACKWARD, stack("data.py:3", "json.loads", samples=100, of_loader=True)))


def test_without_samples_or_with_few_nothing_is_told():
    assert metrics_of(trace())["line_share"] == Missing("few_stack_samples", samples=0)  # the program used the signal
    few = metrics_of(trace(stack("train.py:9", "f", samples=29)))["line_share"]
    assert few == Missing("few_stack_samples", samples=29)


def test_a_line_that_each_step_needs_has_the_advice_for_what_need_be_done_once():
    loop = caller("train.py:30", "make", 31)
    copies = stack("data.py:3", "copy.deepcopy", samples=40, function="make", callers=[loop])
    trains = stack("train.py:31", "loss.backward", "torch/_tensor.py: Tensor.backward", samples=60)
    assert metrics_of(trace(trains, copies))["line_fix"].startswith("Copy no more than what is changed")
    assert metrics_of(trace(trains, copies | {"callers": []}))["line_fix"].startswith("Copy only what is kept")


@pytest.mark.parametrize(("samples", "is_needed"), [(9, 1), (10, 0)])
def test_what_a_line_calls_is_needed_with_its_result_though_some_of_the_training_s_work_is_in_it(
    samples: int, is_needed: int
):
    """The line that makes a batch sleeps for 50 samples, and computes for less than a fifth of that."""
    loop, other = caller("train.py:30", "next", 31), caller("train.py:40", "main")
    loads = stack("data.py:3", "time.sleep", samples=50, function="make", callers=[other, loop])
    computes = stack("data.py:4", "model", MODULE, samples=samples, function="make", callers=[other, loop])
    trains = stack("train.py:31", "loss.backward", "torch/_tensor.py: Tensor.backward", samples=100, callers=[other])
    assert metrics_of(trace(trains, loads, computes, ops=[*OPS, NODE]))["line_is_needed"] == is_needed
    computes |= {"line": "data.py:3"}
    assert metrics_of(trace(trains, loads, computes, ops=[*OPS, NODE]))["line_is_needed"] == is_needed


def test_where_calls_return_before_their_work_is_done_the_line_that_waits_shows_what_a_step_needs():
    loop = caller("train.py:30", "make", 31, 32)
    loads = stack("data.py:3", "time.sleep", samples=40, function="make", callers=[loop])
    of = trace(loads, stack("train.py:32", "loss.block_until_ready", samples=60), ops=[])
    assert metrics_of(of)["line_fix"].startswith("Leave out the sleep")
    of = trace(loads, stack("train.py:32", "loss.block_until_ready", samples=60), ops=[])
    of.process["framework"] = "jax"  # type: ignore[index]
    assert metrics_of(of)["line_fix"].startswith("Do not poll")


@pytest.mark.parametrize(("sleeps", "share"), [(0.4, 0.2), (0.39, 0.3)])
def test_an_array_of_numpy_awaits_what_jax_computes_where_the_thread_sleeps_as_long(sleeps: float, share: float):
    """Of 100 samples 30 are in `np.asarray` and 20 in waits: four fifths of these are 40."""
    gets, waits = (
        stack("train.py:9", "np.asarray", samples=30),
        stack("train.py:8", "loss.block_until_ready", samples=20),
    )
    of = trace(
        gets,
        waits,
        stack("train.py:12", "np.sort", samples=20),
        stack("train.py:7", "step", JITTED, samples=30),
        ops=[],
    )
    of.process.update(framework="jax", sleep_share=sleeps)  # type: ignore[attr-defined]
    assert metrics_of(of)["line_share"] == pytest.approx(share)


def test_an_array_that_is_copied_from_the_device_in_each_step_is_no_list_that_is_converted():
    """The thread sleeps in a quarter of what the copies take."""
    copies = stack("ema.py:9", "np.array", samples=40, function="average", callers=[caller("train.py:30", "average")])
    of = trace(copies, stack("train.py:29", "step", JITTED, samples=60), ops=[])
    of.process.update(framework="jax", sleep_share=0.35)  # type: ignore[attr-defined]
    assert metrics_of(of)["line_fix"].startswith("Compute this where the arrays are")


def test_a_function_that_only_waits_and_does_nothing_of_the_training_counts_with_all_its_other_lines():
    """`guard` takes 20, 10 and a wait of 30 of 100 samples; removed, the loop may wait as long."""
    called = {"function": "guard", "callers": [caller("train.py:40", "guard")]}
    lines = [stack(f"train.py:{line}", "f", samples=10 * n, **called) for line, n in ((31, 1), (32, 2))]
    waits = stack("train.py:31", ".tolist", samples=30, **called)
    trains = stack("train.py:38", "train_step", "jax/_src/pjit.py: jit", samples=40)
    of = trace(trains, *lines, waits, ops=[])
    of.process["framework"] = "jax"  # type: ignore[index]
    values = metrics_of(of)
    assert values["line_share"] == pytest.approx(0.3)
    assert values["line_place"] == "train.py:40 `guard(...)` in `main`"
    of = trace(trains, *lines, waits, ops=[])
    of.process.update(framework="jax", sleep_share=0.1)  # type: ignore[attr-defined]  # of the wait it works for 20
    assert metrics_of(of)["line_share"] == pytest.approx(0.5)
    in_loop = {"function": "main", "callers": []}
    of = trace(trains, lines[0] | in_loop | {"call": "g"}, lines[1] | in_loop, waits | in_loop, ops=[])
    of.process["framework"] = "jax"  # type: ignore[index]
    assert metrics_of(of)["line_share"] == pytest.approx(0.2)


@pytest.mark.parametrize(("samples", "share"), [(1, 150 / 221), (3, 100 / 223)])
def test_a_function_in_which_next_to_nothing_trains_is_no_loop(samples: int, share: float):
    """Of 221 samples one asks for the leaves of a tree: less than a hundredth."""
    called = {"function": "guard", "callers": [caller("train.py:40", "guard")]}
    lines = [stack(f"train.py:{line}", call, samples=n, **called) for line, call, n in ((31, "f", 50), (34, "g", 100))]
    waits = stack("train.py:31", ".tolist", samples=30, **called)
    leaves = stack("train.py:30", "leaves", "jax/_src/tree_util.py: tree_leaves", samples=samples, **called)
    of = trace(stack("train.py:38", "train_step", JITTED, samples=40), *lines, waits, leaves, ops=[])
    of.process["framework"] = "jax"  # type: ignore[index]
    assert metrics_of(of)["line_share"] == pytest.approx(share)


@pytest.mark.parametrize("lack", ["signal", "thread", "timer"])
def test_where_nothing_can_be_sampled_the_reason_is_said(lack: str):
    of = trace()
    of.process["stacks_lack"] = lack  # type: ignore[index]
    values = metrics_of(of)
    assert values["line_share"] == values["main_sleep_share"] == Missing(f"stacks_without_{lack}")


@pytest.mark.parametrize(
    ("call", "below", "kind"),
    every(
        3,
        [
            ("env.step", "", "simulating"),
            ("self.env.step", "gymnasium/core.py: Wrapper.step", "simulating"),
            ("agent.step", "mujoco/mjx.py: step", "simulating"),
            ("agent.step", "", "own"),
            ("self.opt_d.step", "", "updating"),
            ("scaler.step", "", "updating"),
            ("Normal", "torch/distributions/distribution.py: Distribution.__init__", "checking"),
            ("policy.log_prob", "torch/distributions/normal.py: Normal.log_prob", "own"),
            ("self.db.commit", "", "committing"),
            ("g.transform", "pandas/core/groupby/generic.py: SeriesGroupBy.transform", "transforming"),
            ("s.rolling", "pandas/core/window/rolling.py: Rolling.mean", "transforming"),
            ("table.loc", "pandas/core/indexing.py: _LocIndexer.__getitem__", "looking-up"),
            ("table.query", "pandas/core/frame.py: DataFrame.query", "scanning"),
            ("", "pandas/core/arraylike.py: OpsMixin.__eq__", "scanning"),
            ("table.__getitem__", "pandas/core/frame.py: DataFrame._getitem_bool_array", "scanning"),
            ("metric", "torchmetrics/metric.py: Metric._wrap_update.<locals>.wrapped_func", "metric-updates"),
            ("metric", "torchmetrics/metric.py: Metric.forward", "metric-values"),
            ("metrics.compute", "torchmetrics/functional/classification/auroc.py: _reduce_auroc", "metrics"),
            ("weighted.choice", "", "choosing"),
            ("scaler.transform", "sklearn/preprocessing/_data.py: StandardScaler.transform", "fitting"),
            ("accuracy_score", "sklearn/metrics/_classification.py: accuracy_score", "metrics"),
            ("cursor.execute", "", "asking"),
            ("psutil.cpu_percent", "psutil/__init__.py: cpu_percent", "watching"),
            ("numpy.load", "zipfile.py: ZipExtFile.read", "unpacking"),
            ("self.file.__getitem__", "numpy/lib/_npyio_impl.py: NpzFile.__getitem__", "unpacking"),
            ("gzip.decompress", "", "unpacking"),
            ("file.readline", "gzip.py: _GzipReader.read", "unpacking"),
            ("archive.writestr", "zipfile.py: ZipFile.writestr", "compressing"),
            ("sort_rows", "jax/_src/lib/__init__.py: _xla_gc_callback", "own"),
            ("loss.mean", "jax/_src/array.py: ArrayImpl._value", "waiting"),
            ("float", "jax/_src/array.py: _value", "waiting"),
            ("os.path.exists", "genericpath.py: exists", "looking"),
            ("path.stat", "", "looking"),
            ("self.rng.choice", "", "choosing"),
            ("random.choice", "random.py: Random.choice", "picking"),
            ("zlib.compress", "", "compressing"),
            ("image.resize", "PIL/Image.py: Image.resize", "imaging"),
            ("librosa.feature.mfcc", "librosa/feature/spectral.py: mfcc", "listening"),
            ("nx.shortest_path", "networkx/algorithms/shortest_paths/generic.py: shortest_path", "connecting"),
            ("datetime.strptime", "_strptime.py: _strptime", "dates"),
            ("random.sample", "random.py: Random.sample", "picking"),
            ("torch.randperm", "", "permuting"),
            ("np.random.choice", "", "choosing"),
            ("torch.linalg.svdvals", "", "decomposing"),
            ("np.linalg.inv", "numpy/linalg/_linalg.py: inv", "decomposing"),
            ("random.randint", "random.py: Random.randint", "drawing"),
            ("ray.get", "ray/_private/worker.py: get", "taking"),
            ("next", "", "own"),  # of what C iterates: rows of a file
            ("next", "batches/stream.py: Stream.__next__", "loading"),
            ("dist.all_gather_object", "torch/distributed/distributed_c10d.py: all_gather_object", "gathering"),
            ("accelerator.gather_object", "", "gathering"),
            ("dist.all_gather_into_tensor", "torch/distributed/distributed_c10d.py: all_gather", "exchanging"),
        ],
    ),
)
def test_a_call_is_of_the_first_kind_that_knows_it(call: str, below: str, kind: str):
    of = trace(stack("train.py:9", call, *filter(None, [below])))
    assert sampled(of)["kind"].to_list() == [kind]


@pytest.mark.parametrize(("samples", "place"), [(40, "train.py:41 `jnp.roll(...)` in `shift`"), (6, "")])
def test_the_line_that_calls_ops_of_jax_alone_is_named(samples: int, place: str):
    rolls = stack("train.py:41", "jnp.roll", "jax/_src/numpy/lax_numpy.py: roll", samples=samples)
    jitted = stack("train.py:54", "train_step", "jax/_src/pjit.py: cache_miss", samples=60)
    assert metrics_of(trace(jitted, rolls | {"function": "shift"}))["eager_line"] == place


OPTAX = "optax/_src/transform.py: scale_by_adam.<locals>.update_fn"
ROLL = "jax/_src/numpy/lax_numpy.py: roll"
JITTED = "jax/_src/pjit.py: jit"
ADD = "tensorflow/python/ops/gen_math_ops.py: add_v2"
GRAPH = "tensorflow/python/eager/polymorphic_function/polymorphic_function.py: Function.__call__"
IN_MAIN = [{"line": "train.py:90", "function": "<module>", "call": "main"}]
IN_LOOP = [*IN_MAIN, {"line": "train.py:70", "function": "main", "call": "apply"}]
IN_MODULE = [{"line": "train.py:70", "function": "<module>", "call": "apply"}]


@pytest.mark.parametrize(
    ("below", "callers", "other", "function"),
    every(
        2,
        [
            ([OPTAX, ROLL, JITTED], IN_LOOP, [], "apply"),  # ops call compiled functions as well
            ([ADD], IN_LOOP, [], "apply"),
            ([ROLL], IN_MODULE, [], "apply"),  # the loop is the module's
            ([ROLL], IN_MAIN, [], ""),  # the function is that with the loop
            ([ROLL], IN_LOOP, [JITTED], ""),  # it calls what is compiled, too
            ([ADD], IN_LOOP, [GRAPH], ""),
        ],
    ),
)
def test_a_function_whose_ops_run_alone_is_the_one_to_compile(below, callers, other, function: str):
    eager = stack("train.py:54", "update", *below, function="apply", callers=callers)
    loop = "train.py:90" if callers == IN_MAIN else "train.py:68"
    step = stack(loop, "step", JITTED, function="<module>", callers=[], samples=60)
    beside = [stack("train.py:55", "step", *other, function="apply", callers=callers)] if other else []
    values = metrics_of(trace(step, eager, *beside))
    assert (values["eager_function"], values["eager_at"]) == (function, "train.py:54" if function else "")
    assert values["eager_line"] == "train.py:54 `update(...)` in `apply`"


def test_an_expression_of_the_loop_is_no_function_to_compile():
    eager = stack("train.py:54", "update", ROLL, function="main.<locals>.<listcomp>", callers=IN_LOOP)
    step = stack("train.py:68", "step", JITTED, function="<module>", callers=[], samples=60)
    values = metrics_of(trace(step, eager))
    assert (values["eager_line"][:11], values["eager_function"]) == ("train.py:54", "")


@pytest.mark.parametrize(
    ("function", "above", "below", "share"),
    every(
        2,
        [
            ("main", None, ["keras/src/backend/tensorflow/trainer.py: TensorFlowTrainer.train_step", ADD], 0.4),
            ("main", None, ["keras/src/trainers/trainer.py: Trainer._make_function.<locals>.one_step_on_data"], 0.4),
            ("main", None, ["tf_keras/src/engine/training.py: Model.train_function", ADD], 0),
            ("Gan.train_step", "tensorflow/python/autograph/impl/api.py: do_not_convert.<locals>.wrapper", [ADD], 0.4),
            ("train_step", None, [ADD], 0),  # of a loop of the program's own
            ("main", None, ["keras/src/backend/tensorflow/trainer.py: TensorFlowTrainer.fit", GRAPH], 0),
        ],
    ),
)
def test_keras_that_runs_its_steps_itself_is_seen_in_them(function: str, above: str | None, below, share: float):
    fit = stack("train.py:73", "model.fit", *below, function=function, above=above, samples=40)
    waits = stack("train.py:73", "model.fit", "keras/src/trainers/epoch_iterator.py: __next__", samples=60)
    assert metrics_of(trace(fit, waits))["keras_eager_share"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("call", "below", "of", "fix"),
    [
        (".save", "PIL/Image.py: Image.save", "kinds", "Encode with less effort"),  # into memory, as of an answer
        ("torch.save", "torch/serialization.py: save", "kinds", "Save every 1,000 steps"),
        ("np.histogram", "numpy/lib/histograms.py: histogram", "kinds", "Do this every 100 steps"),
        ("random.shuffle", "random.py: Random.shuffle", "kinds", "Draw with repeats"),
        ("random.sample", "random.py: Random.sample", "kinds", "Keep a `list`"),
        ("CATALOG.index", "", "rewrites", "Find the place in a `dict`"),
        ("db.commit", "", "kinds", "Commit once per step"),
        ("g.mean", "pandas/core/groupby/groupby.py: GroupBy.mean", "kinds", "Compute this for the whole table once"),
        ("rng.choice", "", "kinds", "Draw all with one call"),
        ("time.time", "", "kinds", "Leave out the wait"),
        ("F.one_hot", "torch/nn/functional.py: one_hot", "rewrites", "Use class numbers"),
        ("torch.diag", "", "rewrites", "Multiply rows and columns"),
        ("torch.cdist", "torch/functional.py: cdist", "rewrites", "Compute only distances that are read"),
        ("math.cos", "", "rewrites", "Make it once, in `__init__`"),
        ("statistics.stdev", "statistics.py: stdev", "rewrites", "Compute with arrays"),
        ("Decimal", "", "rewrites", "Compute with arrays"),
        ("torch.isfinite", "", "rewrites", "Check the loss alone"),
        ("item not in liked[u]", "", "rewrites", "Ask a `set`"),
        ("[row[...] == user]", "", "searches", "Group all rows once"),
        ("x[ids == i]", "", "rewrites", "Group all rows once"),
        ("table.toarray", "scipy/sparse/_csr.py: toarray", "rewrites", "Make only rows of the batch"),
        ("pd.concat", "pandas/core/reshape/concat.py: concat", "kinds", "Append each row to a `list`"),
        ("ndimage.zoom", "scipy/ndimage/_interpolation.py: zoom", "kinds", "Resample with less effort"),
        ("np.stack", "numpy/_core/shape_base.py: stack", "rewrites", "Keep the rows in one array"),
        ("glob.glob", "glob.py: glob", "kinds", "List the folder once"),
        ("self.root.iterdir", "pathlib.py: Path.iterdir", "kinds", "List the folder once"),
        (
            "yaml.safe_load",
            "yaml/__init__.py: safe_load\nyaml/scanner.py: Scanner.peek",
            "kinds",
            "Read it once before",
        ),
        ("json.loads", "json/__init__.py: loads\njson/decoder.py: JSONDecoder.decode", "kinds", "Read it once before"),
        ("json.dumps", "json/__init__.py: dumps\njson/encoder.py: JSONEncoder.encode", "kinds", "Do it once, after"),
    ],
)
def test_a_known_call_has_its_own_advice(call: str, below: str, of: str, fix: str):
    among = kinds(of)
    known = pl.select(kind_of(pl.lit(f"{call}\n{below}".strip()), pl.lit(""), among)).item()
    assert next(kind.fix for kind in among if kind.name == known).startswith(fix)


@pytest.mark.parametrize("compared", ["a[i - 1] == b[j - 1]", "x == z", "labels == c"])
def test_what_is_compared_one_by_one_picks_no_rows(compared: str):
    assert pl.select(kind_of(pl.lit(compared), pl.lit(""), kinds("searches"))).item() == ""


def test_kinds_have_words_and_advice_with_a_code_token_or_neither():
    for kind in (*kinds(), *kinds("rewrites")):
        assert bool(kind.words) == bool(kind.fix) or kind in kinds("rewrites"), kind.name
        assert not kind.fix or ("`" in kind.fix and len(kind.fix) < 160), kind.name


STEPS = [step(1, 0, 125)]
DEVICE = [kernel(0, 25, 0), kernel(100, 125, 100)]
LOG = on_host("python", 40, 70, name="logging/__init__.py(1517): debug", thread=2)


def recorded(name: str) -> DeviceView:
    """Without samples: 60 of 100 us in a function that was recorded."""
    host = [on_host("step", 0, 100), on_host("op", 0, 20), on_host("python", 20, 80, name=name)]
    return view(profile([], host, [step(1, 0, 100, device=None)]))


def test_without_samples_a_recorded_function_that_logs_counts_while_the_device_idles():
    early = LOG | {"start_ns": 15_000}  # 10 of its 30 us are hidden
    values = metrics_of(view(profile(DEVICE, [early], STEPS)))
    assert (values["line_share"], values["eager_line"]) == (pytest.approx(20 / 125), "")


def test_a_recorded_function_is_named_by_the_line_of_the_program_that_calls_it():
    caller = on_host("python", 30, 80, name="train.py(31): report", thread=2, id=0)
    log = LOG | {"parent": 0}
    values = metrics_of(view(profile(DEVICE, [caller, log], STEPS)))
    assert values["line_place"] == "train.py:31 `debug(...)` in `report`"
    assert (values["line_least_gain_ms"], values["line_gain_ms"]) == pytest.approx((0.015, 0.030))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("torch/serialization.py(938): save", True),
        ("torch/serialization.py(1176): _save", False),  # within it
        ("safetensors/torch.py(250): save_file", True),
        ("json/__init__.py(120): dump", True),
        ("<built-in function dump>", True),
        ("json/__init__.py(183): dumps", False),  # makes text
        ("train.py(10): save", False),
        ("site-packages/wandb/sdk/wandb_run.py(1700): log", True),
        ("torch/utils/tensorboard/writer.py(349): add_scalar", True),
        ("<built-in function print>", True),
        ("tqdm/std.py(1198): refresh", True),
        ("tqdm/std.py(1160): __iter__", False),
        ("catalogging/__init__.py(1): debug", False),
    ],
)
def test_functions_that_save_or_log_are_told_by_name_and_are_not_called_python(name: str, *, counts: bool):
    values, share = metrics_of(recorded(name)), 0.6 if counts else 0.0
    assert values["line_share"] == pytest.approx(share)
    assert values["python_bound_share"] == pytest.approx(0.8 - share)


def test_a_thread_that_only_logs_holds_up_no_step():
    main = [on_host("step", 0, 100), on_host("op", 0, 60), on_host("python", 60, 80, name="train.py(9): main")]
    log = on_host("python", 0, 100, name="site-packages/wandb/sdk/lib/asyncio_manager.py(233): _main", thread=9)
    assert metrics_of(view(profile([], [*main, log], [step(1, 0, 100, device=None)])))["line_share"] == 0


def test_without_samples_and_functions_nothing_is_told():
    assert metrics_of(view(profile(DEVICE, steps=STEPS)))["line_share"] == Missing("no_python_calls")


def test_the_line_that_exchanges_most_with_other_ranks():
    """A quarter of the samples reduces, a twentieth gathers; what a backward pass reduces has the line of that."""
    of_pass = stack("train.py:9", "loss.backward", "torch/distributed/distributed_c10d.py: all_reduce", samples=70)
    reduces = stack("train.py:12", "dist.all_reduce", "torch/distributed/distributed_c10d.py: all_reduce", samples=25)
    gathers = stack("train.py:14", "accelerator.gather_for_metrics", samples=5)
    values = metrics_of(trace(of_pass, reduces, gathers))
    assert values["exchange_line"] == "train.py:12 `dist.all_reduce(...)` in `main`"
    assert values["exchange_line_share"] == pytest.approx(0.25)
    assert values["line_share"] == 0
    alone = metrics_of(trace(BACKWARD))
    assert (alone["exchange_line"], alone["exchange_line_share"]) == ("", 0)


def test_a_line_has_its_own_share_and_not_that_of_the_call_around_it():
    """Of the 40 samples of a search 32 are in one line: the rest stays if that line gets cheaper."""
    search = [caller("train.py:30", "search", 31)]
    norm = stack("index.py:16", "np.linalg.norm", samples=32, function="unit", callers=search)
    rest = stack("index.py:24", "np.argpartition", samples=8, function="search", callers=search)
    values = metrics_of(trace(BACKWARD, norm | {"callers": [*search, caller("index.py:23", "unit", 24)]}, rest))
    assert values["line_place"].startswith("index.py:16 `np.linalg.norm(...)`")
    assert values["line_share"] == pytest.approx(0.32)


@pytest.mark.parametrize(("elsewhere", "names"), [(10, ["model.py:5"]), (40, ["model.py:5", "train.py:9"])])
def test_a_line_with_nearly_all_of_the_time_below_it_is_none_of_the_longest(elsewhere: int, names: list[str]):
    trains = stack("train.py:9", "trainer.train", "torch/_tensor.py: Tensor.backward", samples=40)
    model = stack("model.py:5", "self.net", samples=50, callers=[caller("train.py:9", "trainer.train", 10)])
    of = trace(trains | {"callers": []}, model, stack("train.py:3", "f", samples=elsewhere) | {"callers": []})
    found = [line["name"].split()[0] for line in longest_lines(of)]
    assert [name for name in found if name != "train.py:3"] == names


IN_MAIN = "/home/me/job/train.py(46): step;/home/me/job/train.py(69): main;/home/me/job/train.py(79): <module>"
IN_OPTAX = "/lib/python3.11/site-packages/optax/_src/update.py(40): apply_updates"
IN_LOSS = "/home/me/job/train.py(27): predict"
IN_DRAW = "/home/me/job/train.py(38): draw.<locals>.<lambda>;/home/me/job/train.py(38): draw"


@pytest.mark.parametrize(
    ("path", "frames", "share", "place", "words"),
    [
        (
            "jit(step)/jit(_shuffle)/sort",
            IN_DRAW,
            0.4,
            "job/train.py:38 `sort(...)` in `draw`",
            "permutes a whole range at random",
        ),
        (
            "jit(step)/reduce_sum",
            IN_DRAW,
            0.4,
            "job/train.py:38 `reduce_sum(...)` in `draw`",
            "lies outside of the differentiated function",
        ),
        ("jit(step)/add", IN_DRAW, 0, "", ""),  # as a program's own update of its parameters
        ("jit(step)/reduce_sum", IN_OPTAX, 0, "", ""),
        ("jit(step)/jvp()/sort", IN_DRAW, 0, "", ""),
    ],
)
def test_ops_of_jax_beside_the_differentiated_function_are_of_their_line(
    path: str, frames: str, share: float, place: str, words: str
):
    ops = [("jit(step)/jvp()/dot_general", IN_LOSS, 0, 500), (path, frames, 500, 900), (None, None, 900, 1000)]
    rows = [
        on_host("op", start, end, name="fusion", stack=of and f"{of};{inner};{IN_MAIN}", thread=2, step=1)
        for of, inner, start, end in ops
    ]
    awaits = stack("job/train.py:70", "loss.block_until_ready", samples=90, callers=[])
    of = trace(awaits, stack("job/train.py:68", "split", "jax/_src/random.py: split"), ops=rows)
    of.process["framework"] = "jax"  # type: ignore[index]
    values = metrics_of(of)
    assert values["line_share"] == pytest.approx(share)
    assert (values["line_place"], values["line_words"], values["line_apart"]) == (place, words, "")


def test_samples_of_a_wait_remain_as_many_on_more_ops_than_they_are():
    rows = [
        on_host("op", 10 * n, 10 * n + 10, name="fusion", stack=f"jit(step)/jvp()/op{n};{IN_LOSS};{IN_MAIN}", thread=2)
        for n in range(100)
    ]
    of = trace(stack("job/train.py:70", "loss.block_until_ready", samples=40, callers=[]), ops=rows)
    of.process["framework"] = "jax"  # type: ignore[index]
    assert sampled(of).filter(kind="op").select("samples", "ns").sum().row(0) == (40, 400_000_000)


@pytest.mark.parametrize(
    ("needed", "of_trace", "share"),
    [
        ([78], [80], 0.6),  # the step's result goes into the trace, and that into a line that prints
        ([78], [80, 74], 0.0),  # the next step needs it
        ([80], [80], 0.0),  # the two have nothing of each other
        ([78], None, 0.0),  # no sample says which lines need it
    ],
)
def test_a_program_of_jax_that_takes_the_training_s_result_and_gives_nothing_is_beside_it(needed, of_trace, share):
    frames = "/home/me/job/train.py({}): {};/home/me/job/train.py({}): main"
    ops = [("jit(train_step)/jvp()/dot", frames.format(40, "train_step", 74), 0, 400)]
    ops += [("jit(trace)/jvp(jvp())/dot", frames.format(56, "trace", 78), 400, 1000)]
    rows = [
        on_host("op", start, end, name="fusion", stack=f"{of};{inner}", thread=2, step=1)
        for of, inner, start, end in ops
    ]
    calls = [stack("job/train.py:74", "train_step", "jax/_src/pjit.py: jit", samples=1) | {"needed": needed}]
    calls += [stack("job/train.py:78", "trace", samples=1) | {"needed": of_trace}] if of_trace is not None else []
    waits = stack("job/train.py:81", "loss.block_until_ready", samples=1000)
    of = trace(*(row | {"callers": [], "function": "main"} for row in (*calls, waits)), ops=rows)
    of.process["framework"] = "jax"  # type: ignore[index]
    values = metrics_of(of)
    assert values["line_share"] == pytest.approx(share, abs=0.002)
    if share:
        assert (values["line_place"], values["line_is_needed"]) == ("job/train.py:78 `trace(...)` in `main`", 0)
