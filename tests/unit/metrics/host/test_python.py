from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.tables import kernel, metrics_of, on_host, profile, step, values_of, view

python_bound = metrics_of

# us        0 1  5      25             101 105    125
# host        |                         |      110        calls of 1 us, 4 us before their kernels start
# kernels        =======                   ========
DEVICE = [kernel(5, 25, 2), kernel(105, 125, 102)]
STEPS = [step(1, 0, 125, host=(0, 110))]
OTHERS = [on_host("op", 0, 1, thread=9)]  # ops are recorded, these of a thread that launches nothing
CPU_STEP = step(1, 0, 100, device=None)
CPU = [on_host("step", 0, 100), on_host("op", 10, 40), on_host("op", 50, 58)]
OF_PYTHON = (
    "python_bound_share",
    "python_bound_part",
    "python_least_gain_ms",
    "python_gain_ms",
    "python_calls",
    "python_unrecorded_part",
    "python_silent_share",
)


def test_the_gaps_in_which_python_works_are_python_bound():
    # Python works from 2 to 101, the device idles before 5 and from 25 to 105
    values = metrics_of(view(profile(DEVICE, OTHERS, STEPS)))
    assert values["python_bound_share"] == pytest.approx(79 / 125)
    assert values["python_bound_part"] == pytest.approx(79 / 85)
    assert values["python_calls"] == "work or waits that were not recorded (79 µs)"


def test_without_python_the_second_kernel_follows_the_first():
    # its call is made at 2, so that it starts 1.2 us after the first one's end: 26.2 to 46.2
    values = metrics_of(view(profile(DEVICE, OTHERS, STEPS)))
    assert values["python_gain_ms"] == pytest.approx(0.125 - 0.0462)
    assert values["python_least_gain_ms"] == pytest.approx(0.75 * (0.125 - 0.0462))


FRAME = on_host("python", 20, 90, name="train.py(7): regroup", thread=2)


def test_python_s_frames_are_named():
    values = metrics_of(view(profile(DEVICE, [FRAME, on_host("op", 0, 1, thread=2)], STEPS)))
    assert values["python_calls"] == "train.py(7): regroup (65 µs), work or waits that were not recorded (14 µs)"
    assert values["python_unrecorded_part"] == pytest.approx(13.8 / 78.8, abs=0.01)


@pytest.mark.parametrize("host", [[], [FRAME], [on_host("annotation", 0, 100, thread=2)]])
def test_where_no_op_was_recorded_their_dispatch_is_not_called_python(host: list[dict[str, object]]):
    """Recorded with `activities=[CUDA]`: a function or a range does not tell its own work from that of ops in it."""
    values = values_of(OF_PYTHON, view(profile(DEVICE, host, steps=STEPS)))
    assert set(values.values()) == {Missing("no_framework_op")}


def test_python_that_calls_programs_of_jax_is_that_of_the_launching_thread():
    """XPlane records HIP's calls on lines of their own. A call of a jitted function dispatches; it is no Python."""
    # recorded from 1 to 125: the device idles from 25 until the launch at 101, and the call takes 10 of these 76
    call = on_host("annotation", 30, 40, name="PjitFunction(dot)", thread=3)
    made = profile(DEVICE, [call, on_host("python", 40, 95, name="$loop.py:7 make", thread=3)])
    values = metrics_of(view(replace(made, workers=made.workers.with_columns(framework=pl.lit("jax")))))
    assert values["python_bound_share"] == pytest.approx(66 / 124)
    assert values["python_calls"] == "`loop.py:7 make` (55 µs), work or waits that were not recorded (11 µs)"


def test_a_busy_device_is_not_bound_by_python():
    values = metrics_of(view(profile([kernel(0, 60, 0), kernel(60, 125, 50)], OTHERS, STEPS)))
    assert values["python_bound_share"] == 0
    assert values["python_bound_part"] == 0


def test_on_a_cpu_python_and_tiny_ops_count():
    # 62 us outside ops and 8 in one of under 10; two ops were recorded, for 2 us
    values = metrics_of(view(profile([], CPU, [CPU_STEP])))
    assert values["python_bound_share"] == values["python_bound_part"] == pytest.approx(0.70)
    assert values["python_gain_ms"] == pytest.approx(0.035)
    assert values["python_least_gain_ms"] == pytest.approx(0.25 * 0.068)


NODE = "autograd::engine::evaluate_function: "
PYTORCH = [{"worker": 0, "framework": "pytorch"}]


def passes(count: int, weight: str = "AddmmBackward0") -> list[dict[str, object]]:
    """Forward and backward passes one after the other: 12 us of an op, 8 without one, 15 of a node each."""
    ops = []
    for number, at in enumerate(range(0, 40 * count, 40)):
        ops.append(on_host("op", at, at + 12, name="aten::addmm", sequence=number))
        ops.append(on_host("op", at + 20, at + 35, name=NODE + weight, sequence=number))
    return ops


def test_a_loop_over_samples_may_save_all_but_one_of_its_passes():
    # of 400 us 130 without an op; ten passes: the rest is 270 us of ops under 100, of which a tenth remains
    trace = profile([], passes(10), [step(1, 0, 400, device=None)], workers=PYTORCH)
    values = metrics_of(view(trace))
    assert metrics_of(view(trace))["passes_per_step"] == 10
    assert values["python_gain_ms"] == pytest.approx(0.130 + 0.9 * 0.270)
    assert values["python_least_gain_ms"] == pytest.approx(0.9 * 0.25 * (0.130 - 0.020))


@pytest.mark.parametrize(("calls", "passes", "gain_us"), [(8, 8, 7 / 8 * (400 - 130)), (7, 1, 0.5 * 190)])
def test_a_jitted_function_that_a_step_calls_in_a_loop_may_save_all_but_one_call(
    calls: int, passes: int, gain_us: float
):
    # The op of 100 us remains, and half of that of 60. With fewer calls the wait of 50 us remains too, and half of 190.
    host = [row for n in range(calls) for row in pair(5 * n, n)]
    host += [on_host("op", 100, 200, name="dot"), on_host("op", 210, 270, name="tanh")]
    host += [on_host("python", 300, 350, name="$array.py:615 _value")]
    jax = [{"worker": 0, "framework": "jax"}]
    made = view(profile([], host, [step(1, 0, 400, device=None)], workers=jax))
    assert metrics_of(made)["passes_per_step"] == passes
    assert metrics_of(made)["python_gain_ms"] * 1000 == pytest.approx(gain_us)


def pair(at: float, number: int) -> list[dict[str, object]]:
    """The two ranges that one call leaves."""
    name = "PjitFunction(score)"
    return [
        on_host("annotation", at, at + 4, name=name),
        on_host("annotation", at + 1, at + 3, name=name, parent=2 * number),
    ]


@pytest.mark.parametrize(("names", "passes"), [(["embed"] * 8, 8), (["embed"] * 8 + ["score"] * 3, 1)])
def test_a_tf_function_that_a_step_calls_in_a_loop_is_a_loop(names: list[str], passes: int):
    details = '{"tf_function_call":"notTraced-nonXla"}'
    host = [on_host("annotation", 9 * n, 9 * n + 5, name=of, details=details) for n, of in enumerate(names)]
    tensorflow = [{"worker": 0, "framework": "tensorflow"}]
    made = view(profile([], host, [step(1, 0, 100, device=None)], workers=tensorflow))
    assert metrics_of(made)["passes_per_step"] == passes


@pytest.mark.parametrize(("eager", "tiny_us"), [(True, 8), (None, 0)])
def test_tiny_ops_of_a_graph_of_tensorflow_are_not_python(*, eager: bool | None, tiny_us: float):
    ops = [row | {"eager": eager} for row in CPU]  # 8 of the 38 us in ops are of one under 10; 62 are between them
    made = profile([], ops, [CPU_STEP], workers=[{"worker": 0, "framework": "tensorflow"}])
    assert metrics_of(view(made))["python_bound_share"] == pytest.approx((62 + tiny_us) / 100)


def loss(rows: int, layers: int) -> list[dict[str, object]]:
    """The nodes of a loss that goes through the rows one by one, and of layers with a weight each."""
    kinds = ["MvBackward0", "LogsumexpBackward0", "SubBackward0"] * rows
    kinds += ["AddmmBackward0", "ReluBackward0", "torch::autograd::AccumulateGrad"] * layers
    return [on_host("op", 9 * n, 9 * n + 8, name=NODE + kind) for n, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("rows", "layers", "count"),
    [
        (64, 4, 64),
        (64, 33, 1),  # one of a kind per layer, nearly twice: blocks that repeat
        (7, 1, 1),  # too few to be a loop
    ],
)
def test_nodes_that_come_more_often_than_layers_are_of_a_loop(rows, layers, count):
    nodes = loss(rows, layers)
    trace = profile([], nodes, [step(1, 0, 9 * len(nodes), device=None)], workers=PYTORCH)
    assert metrics_of(view(trace))["passes_per_step"] == count


SINGLE = ("[[16],[1,4],[4,16],[],[]]", "[[3],[1,16],[16,3],[],[]]")
ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"


@pytest.mark.parametrize(
    ("times", "sizes", "beside", "count"),
    [
        (8, SINGLE, "aten::relu", 8),
        (7, SINGLE, "aten::relu", 1),  # too few to be a loop
        (8, SINGLE[:1], "aten::relu", 1),  # of one size: equal layers
        (8, ("[[16],[2,4],[4,16],[],[]]", "[[3],[2,16],[16,3],[],[]]"), "aten::relu", 1),  # batches: an evaluation's
        (8, SINGLE, ATTENTION, 1),  # each word needs the one before
    ],
)
def test_a_model_that_gets_one_sample_after_another_and_does_not_learn_from_them_is_in_a_loop(
    times: int, sizes: tuple[str, ...], beside: str, count: int
):
    """An agent that acts 8 times and then learns from all of it; the last product has nothing to do with that."""
    acts = [("aten::addmm", shapes, None) for shapes in sizes] * times + [(beside, "[[1,16]]", None)]
    learns = [("aten::addmm", "[[16],[8,4],[4,16],[],[]]", 5), (NODE + "AddmmBackward0", "", 5)]
    ops = [
        on_host("op", 9 * n, 9 * n + 8, name=name, shapes=shapes, sequence=number)
        for n, (name, shapes, number) in enumerate([*acts, *learns])
    ]
    made = view(profile([], ops, [step(1, 0, 9 * len(ops), device=None)], workers=PYTORCH))
    assert metrics_of(made)["passes_per_step"] == count


@pytest.mark.parametrize(
    ("few", "names", "unrecorded"),
    [(1, "train.py:9 `net(...)` in `main` (50 %), train.py:3 `f(...)` in `main` (10 %)", 0), (5, "work or waits", 1)],
)
def test_lines_that_were_sampled_tell_what_python_ran(few: int, names: str, unrecorded: float):
    """The loop's own work too; what waits or loads sets no pace. Fewer than 30 samples say nothing of lines."""
    made, common = view(profile([], CPU, [CPU_STEP], workers=PYTORCH)), {"function": "main", "below": [], "above": None}
    made.process["stacks"] = [  # type: ignore[index]  # a reader fills it
        {**common, "line": f"train.py:{line}", "call": call, "of_loader": False}
        | {"samples": samples // few, "ns": 1000 * samples, "long_ns": 0}
        for line, call, samples in ((9, "act", 40), (9, "net", 60), (7, "time.sleep", 80), (3, "f", 20))
    ]
    values = metrics_of(made)
    assert values["python_calls"].startswith(names)
    assert values["python_unrecorded_part"] == unrecorded


def by_row(rows: int, layers: int) -> DeviceView:
    """The backward pass of a loop over rows: each fills a gradient for 200 of 210 us, and adds for 8, every 230 us."""
    ops = []
    for at in range(0, 230 * rows, 230):
        ops.append(on_host("op", at, at + 210, name=NODE + "SelectBackward0"))
        ops.append(on_host("op", at + 5, at + 205, name="aten::fill_", parent=len(ops) - 1))
        ops.append(on_host("op", at + 215, at + 223, name=NODE + "AddBackward0"))
    end = 230 * rows
    weights = [NODE + "torch::autograd::AccumulateGrad"] * layers
    ops += [on_host("op", end + 8 * n, end + 8 * n + 8, name=name) for n, name in enumerate(weights)]
    return view(profile([], ops, [step(1, 0, end + 8 * layers, device=None)], workers=PYTORCH))


def test_gradients_that_a_loop_fills_row_by_row_may_be_saved_but_for_one():
    made = by_row(64, 4)
    assert metrics_of(made)["passes_per_step"] == 64
    assert metrics_of(made)["row_gradients_ms"] == pytest.approx(64 * 0.210)
    values = metrics_of(made)
    tiny, small, fills = 64 * 8 + 4 * 8, 64 * (10 + 5 + 7), 64 * 200  # us: 5 and 7 from node to node
    assert values["python_gain_ms"] == pytest.approx((tiny + 63 / 64 * (small + fills)) / 1e3)
    dispatch = tiny - (3 * 64 + 4)  # 1 us for each op recorded
    assert values["python_least_gain_ms"] == pytest.approx(63 / 64 * 0.25 * (dispatch + fills) / 1e3)


def test_the_ops_that_come_as_often_as_rows_are_a_loop_of_uneven_steps():
    """64 rows beside 52 means of those in a branch; what comes 51 times, under 80 % as often, is something else."""
    ops, names = [], ["SelectBackward0"] * 64 + ["MeanBackward1"] * 52 + ["MulBackward0"] * 51
    for at, name in enumerate(names):
        ops.append(on_host("op", 220 * at, 220 * at + 210, name=NODE + name))
    end = 220 * len(names)
    ops += [
        on_host("op", end + 8 * n, end + 8 * n + 8, name=NODE + "torch::autograd::AccumulateGrad") for n in range(4)
    ]
    made = view(profile([], ops, [step(1, 0, end + 32, device=None)], workers=PYTORCH))
    assert metrics_of(made)["passes_per_step"] == 1
    assert metrics_of(made)["row_loop_share"] == pytest.approx((64 + 52) * 210 / (end + 32))
    assert metrics_of(by_row(64, 4))["row_loop_share"] == 0  # its passes are known


@pytest.mark.parametrize(("factors", "passes"), [(2, 16), (1, 1)])
def test_a_product_of_two_results_is_no_layer(factors: int, passes: int):
    """16 products of a loop, with the nodes of two other ops each: of a frozen weight, one factor has a gradient."""
    ops = []
    for at in range(0, 16 * 40, 40):
        ops += [on_host("op", at, at + 20, name=NODE + "MmBackward0")]
        ops += [on_host("op", at + 5 * n, at + 5 * n + 4, name="aten::mm", parent=len(ops) - 1) for n in range(factors)]
        ops += [on_host("op", at + 20, at + 26, name=NODE + "SoftmaxBackward0")]
        ops += [on_host("op", at + 30, at + 36, name=NODE + "DivBackward0")]
    ops += [on_host("op", 640 + n, 641 + n, name=NODE + "torch::autograd::AccumulateGrad") for n in range(4)]
    made = view(profile([], ops, [step(1, 0, 650, device=None)], workers=PYTORCH))
    assert metrics_of(made)["passes_per_step"] == passes


@pytest.mark.parametrize(("around", "passes"), [("aten::gru", 1), ("aten::stack", 24)])
def test_the_time_steps_of_a_recurrent_layer_are_no_loop_of_python(around: str, passes: int):
    ops = [on_host("op", 0, 1000, name=around)]
    ops += [on_host("op", 10 * n, 10 * n + 8, name="aten::act", parent=0, sequence=n) for n in range(24 * 3)]
    for n in range(24 * 3):
        name = NODE + ("SigmoidBackward0", "TanhBackward0", "MulBackward0")[n % 3]
        ops.append(on_host("op", 1000 + 10 * n, 1008 + 10 * n, name=name, sequence=n))
    ops += [on_host("op", 1800 + n, 1801 + n, name=NODE + "torch::autograd::AccumulateGrad") for n in range(4)]
    made = view(profile([], ops, [step(1, 0, 2000, device=None)], workers=PYTORCH))
    assert metrics_of(made)["passes_per_step"] == passes


def test_the_line_of_a_loop_is_of_the_function_with_most_of_its_own():
    """Two lines of `backward` take 60 samples together; one of `main` takes 50, and its layers 200."""
    made, common = by_row(64, 4), {"above": None, "of_loader": False}
    layers = ["torch/nn/modules/module.py: Module._call_impl", "torch/nn/modules/linear.py: Linear.forward"]
    made.process["stacks"] = [  # type: ignore[index]  # a reader fills it
        {**common, "line": f"train.py:{line}", "function": function, "call": call, "below": below, "samples": n}
        | {"ns": 1000 * n, "long_ns": 0}
        for line, function, call, below, n in (
            (4, "backward", "out[i]", [], 35),
            (5, "backward", "range", [], 25),
            (9, "main", "draw", [], 50),
            (8, "main", "net", layers, 200),
        )
    ]
    assert metrics_of(made)["python_line"] == "train.py:4 `out[i]` in `backward`"
    of_layers = by_row(64, 4)
    of_layers.process["stacks"] = made.process["stacks"][3:]  # type: ignore[index]
    assert metrics_of(of_layers)["python_line"] == ""


@pytest.mark.parametrize(("rows", "layers"), [(64, 5), (12, 12)])
def test_a_row_for_each_layer_is_no_loop(rows: int, layers: int):
    """Two kinds of nodes, as many as each other, may be a block's; each layer may use one row of its own input."""
    made = by_row(rows, layers)
    assert metrics_of(made)["passes_per_step"] == 1
    assert metrics_of(made)["row_gradients_ms"] == 0


@pytest.mark.parametrize(("rows", "ms"), [(20, 20 * 0.008), (7, 0)])
def test_a_loop_of_few_passes_fills_a_row_in_each(rows: int, ms: float):
    """20 passes are less than 16 times as many as 4 layers: three other kinds of nodes tell the loop."""
    nodes = loss(rows, 4)
    end = 9 * len(nodes)
    nodes += [on_host("op", end + 9 * n, end + 9 * n + 8, name=NODE + "SelectBackward0") for n in range(rows)]
    made = view(profile([], nodes, [step(1, 0, end + 9 * rows, device=None)], workers=PYTORCH))
    assert metrics_of(made)["row_gradients_ms"] == pytest.approx(ms)


def test_an_op_that_a_busy_machine_stops_is_as_small_as_others_of_its_kind():
    """Of 64 nodes of 20 us one takes 3 ms; the loop's one large op of 200 us, of another shape, is work."""
    kinds, ops, at = ["MvBackward0", "LogsumexpBackward0", "SubBackward0"], [], 0
    for row in range(64):
        for kind in kinds:
            took = 3_000 if (row, kind) == (5, "SubBackward0") else 20
            ops.append(on_host("op", at, at + took, name=NODE + kind, shapes="[[8]]"))
            at += took
    ops.append(on_host("op", at, at + 200, name=NODE + "SubBackward0", shapes="[[9999]]"))
    made = view(profile([], ops, [step(1, 0, at + 200, device=None)], workers=PYTORCH))
    small = (64 * 3 - 1) * 20 + 3_000
    assert metrics_of(made)["python_gain_ms"] == pytest.approx(63 / 64 * small / 1e3, rel=0.02)


def test_layers_whose_weights_are_frozen_are_no_loop():
    kinds = ["AddmmBackward0", "GeluBackward0", "AddBackward0", "SoftmaxBackward0"] * 24
    nodes = [on_host("op", 9 * n, 9 * n + 8, name=NODE + kind) for n, kind in enumerate(kinds)]
    nodes.append(on_host("op", 900, 901, name=NODE + "torch::autograd::AccumulateGrad"))
    trace = profile([], nodes, [step(1, 0, 902, device=None)], workers=PYTORCH)
    assert metrics_of(view(trace))["passes_per_step"] == 1


def test_a_loop_is_python_however_long_nothing_was_recorded():
    nodes = loss(64, 1)
    end = 9 * len(nodes)
    loop, other = (
        metrics_of(view(profile([], rows, [step(1, 0, end + 5_000, device=None)], workers=PYTORCH)))
        for rows in (nodes, nodes[-40:])
    )
    assert loop["python_bound_share"] == pytest.approx((end - 3 * 64) / (end + 5_000), rel=0.2)
    assert other["python_bound_share"] == Missing("silent_host", share=pytest.approx(1, abs=0.1))


def test_reading_of_files_is_no_python_that_could_be_written_anew():
    # us    0         40                     90   100
    # op    ==========
    # load            =======================          it reads; the rest is Python
    host = [on_host("op", 0, 40), on_host("python", 40, 90, name="numpy/lib/_npyio_impl.py(311): load")]
    values = metrics_of(view(profile([], host, [step(1, 0, 100, device=None)], workers=PYTORCH)))
    assert values["python_bound_share"] == pytest.approx(0.10)


def test_what_eager_ops_need_may_not_be_saved_at_all():
    trace = profile([], passes(2), [step(1, 0, 80, device=None)], workers=PYTORCH)
    values = metrics_of(view(trace))
    assert metrics_of(view(trace))["passes_per_step"] == 1  # two models in turns make two
    assert (values["python_least_gain_ms"], values["python_gain_ms"]) == (0, pytest.approx(0.026))


def test_several_models_are_no_loop():
    """The backward passes differ: each has one node more than the one before."""
    ops = passes(12)
    for number in range(12):
        ops += [on_host("op", 40 * number + 36 + i / 10, 40 * number + 36 + i / 10, name=NODE) for i in range(number)]
    assert metrics_of(view(profile([], ops, [step(1, 0, 480, device=None)])))["passes_per_step"] == 1


@pytest.mark.parametrize(("weights", "expected"), [(2, 12), (12, 1)])
def test_weights_that_a_backward_pass_uses_again_and_again_show_a_loop(weights: int, expected: int):
    """Twelve calls of one layer with two weights; or twelve layers, each with a weight that trains."""
    names = [*["AddmmBackward0", "TBackward0", "SiluBackward0"] * 12, *["torch::autograd::AccumulateGrad"] * weights]
    ops = [on_host("op", 10 * i, 10 * i + 9, name=NODE + name) for i, name in enumerate(names)]
    trace = profile([], ops, [step(1, 0, 400, device=None)], workers=PYTORCH)
    assert metrics_of(view(trace))["passes_per_step"] == expected


def test_layers_beside_a_loop_do_not_hide_it():
    """Cells with two weights that 60 time steps use, and a head that comes once: no divisor is common."""
    names = [*["AddmmBackward0", "TBackward0"] * 121, *["SigmoidBackward0"] * 180]
    names += ["torch::autograd::AccumulateGrad"] * 6
    ops = [on_host("op", 10 * i, 10 * i + 9, name=NODE + name) for i, name in enumerate(names)]
    trace = profile([], ops, [step(1, 0, 5_000, device=None)], workers=PYTORCH)
    assert metrics_of(view(trace))["passes_per_step"] == 20  # 121 // 6


def test_batches_that_accumulate_are_a_loop_only_if_python_takes_long():
    # ten passes of 40 us: 13 of each without an op
    made = view(profile([], passes(10), [step(1, 0, 400, device=None)], workers=PYTORCH))
    assert metrics_of(made)["python_bound_part"] == pytest.approx(130 / 400)


def test_calls_of_the_longest_module_show_a_loop():
    calls = [on_host("module", 20 * i, 20 * i + 15, name="nn.Module: Encoder_0") for i in range(9)]
    inner = [on_host("module", 20 * i + 1, 20 * i + 9, name="nn.Module: Linear_0") for i in range(9)]
    inner += [on_host("module", 20 * i + 10, 20 * i + 14, name="nn.Module: Linear_0") for i in range(9)]
    trace = profile([], [*calls, *inner], [step(1, 0, 200, device=None)])
    assert metrics_of(view(trace))["passes_per_step"] == 9


def test_a_module_that_each_of_several_backward_passes_needs_is_no_loop():
    """A critic that is called twice before each of five backward passes."""
    ops = [row | {"start_ns": row["start_ns"] * 2} for row in passes(5)]
    calls = [on_host("module", 80 * i + 2 * n, 80 * i + 2 * n + 1, name="Critic") for i in range(5) for n in (0, 1)]
    trace = profile([], [*ops, *calls], [step(1, 0, 400, device=None)])
    assert metrics_of(view(trace))["passes_per_step"] == 1


@pytest.mark.parametrize(("pauses", "share"), [((3_000, 3_500), 0.3), ((3_000, 0), 0)])
def test_only_what_each_step_has_of_long_stretches_is_surely_python(pauses: tuple[int, ...], share: float):
    """Steps of 10 ms; an op ends so many us into each, after a function of as many: a pause may hit any function."""
    starts = [10_000 * i for i in range(len(pauses))]
    host = [on_host("op", at + us, at + 10_000) for at, us in zip(starts, pauses, strict=True)]
    host += [on_host("python", at, at + us, name="a.py(1): f") for at, us in zip(starts, pauses, strict=True) if us]
    steps = [step(i, at, at + 10_000, device=None) for i, at in enumerate(starts)]
    made = view(profile([], host, steps, workers=PYTORCH))
    assert metrics_of(made)["python_stretch_share"] == pytest.approx(share)


def test_on_a_cpu_autograd_s_engine_is_not_python():
    node = "autograd::engine::evaluate_function: MmBackward0"
    nodes = [on_host("op", at, at + 15, name=node) for at in (10, 30, 50)]  # 5 us from one to the next
    values = metrics_of(view(profile([], [on_host("step", 0, 100), *nodes], [CPU_STEP])))
    assert values["python_bound_share"] == pytest.approx(0.45)


def test_on_a_cpu_a_long_stretch_without_ops_may_go_as_a_whole():
    # us: an op to 1000, 3000 of Python, an op to 5000, 500 without any: 3 ms as a whole, half of the rest
    host = [on_host("op", 0, 1000), on_host("python", 1000, 4000), on_host("op", 4000, 5000)]
    values = metrics_of(view(profile([], host, [step(1, 0, 5500, device=None)])))
    assert values["python_gain_ms"] == pytest.approx(3.25)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ((), Missing("silent_host", share=0.75)),
        (("ProfilerStep#1",), Missing("silent_host", share=0.75)),  # the mark of the step says nothing
        (("fetch",), Missing("range_alone", share=0.75, range="fetch")),
        (("KernelAndDeviceFunc::Run",), Missing("silent_host", share=0.75)),  # a library's range, not the program's
    ],
)
def test_on_a_cpu_long_silence_between_marks_is_not_called_python(names: tuple[str, ...], why: Missing):
    """Ops for 1 ms, then 3 ms in which a generator makes the next batch, a lock is waited for, or somebody sleeps."""
    spans = {"ProfilerStep#1": ("step", 0)} | dict.fromkeys(("fetch", "KernelAndDeviceFunc::Run"), ("annotation", 1000))
    ranges = [on_host(spans[name][0], spans[name][1], 4000, name=name) for name in names]
    made = profile([], [on_host("op", 0, 1000), *ranges], [step(1, 0, 4000, device=None)])
    assert metrics_of(view(made))["python_bound_share"] == why


def test_on_a_cpu_waiting_for_a_thread_is_not_called_python():
    """A thread of the program's own fills a queue; the loop finds it empty for 3 of 4 ms."""
    calls = ("train.py(9): loop", "queue.py(154): get", "<built-in method acquire of _thread.lock object at 0x7f>")
    frames = [on_host("python", at, 4_000, name=name) for at, name in zip((0, 1_000, 1_000), calls, strict=True)]
    made = profile([], [on_host("op", 0, 1_000), *frames], [step(1, 0, 4_000, device=None)])
    why = Missing("thread_wait", share=0.75, range="queue.py(154): get")
    assert metrics_of(view(made))["python_bound_share"] == why


def test_on_a_cpu_without_steps_long_silence_may_be_a_loader_and_is_not_called_python():
    """Ops for 1 ms, then nothing for 3, then ops for 1 ms."""
    host = [on_host("op", start, start + 1_000) for start in (0, 4_000)]
    assert metrics_of(view(profile([], host)))["python_bound_share"] == Missing("silent_host", share=0.6)
    host.append(on_host("python", 1_000, 4_000, name="train.py(3): augment"))
    assert metrics_of(view(profile([], host)))["python_bound_share"] == pytest.approx(0.6)
    host[-1] |= {"dur_ns": 1_600_000}  # of Python, and 1.4 ms of silence, which it does not claim
    assert metrics_of(view(profile([], host)))["python_bound_share"] == pytest.approx(0.32)


def test_a_cpu_s_steps_without_a_single_op_tell_nothing_of_python():
    values = values_of(OF_PYTHON, view(profile([], [on_host("step", 0, 100)], [CPU_STEP])))
    assert all(isinstance(value, Missing) for value in values.values())


def test_an_op_is_tiny_by_its_own_time():
    nested = [*CPU, on_host("op", 12, 36, parent=1)]  # leaves the first op 6 us of its own
    assert metrics_of(view(profile([], nested, [CPU_STEP])))["python_bound_share"] == pytest.approx(0.76)


def test_on_a_cpu_neither_loader_nor_optimizer_is_python():
    others = [on_host("input", 60, 80), on_host("annotation", 80, 95, name="Optimizer.step#SGD.step")]
    values = metrics_of(view(profile([], [*CPU, *others], [CPU_STEP])))
    assert values["python_bound_share"] == pytest.approx(0.35)


def test_without_launches_the_host_s_part_is_not_known():
    trace = view(profile([kernel(0, 20), kernel(60, 80)], steps=[step(1, 0, 80)]))
    assert all(isinstance(value, Missing) for value in values_of(OF_PYTHON, trace).values())


def test_work_on_other_threads_for_a_step_is_no_python():
    host = [
        on_host("step", 0, 100, name="train", step=1),
        on_host("annotation", 10, 95, name="ThunkExecutor::Execute", step=1, thread=2),
    ]
    values = metrics_of(view(profile((), host, [step(1, 0, 100, device=None)])))
    assert values["python_bound_share"] == pytest.approx(0.15)
    apart = [row | {"step": None} for row in host]
    values = metrics_of(view(profile((), apart, [step(1, 0, 100, device=None)])))
    # nothing says that the other thread works for the step
    assert isinstance(values["python_bound_share"], Missing)
