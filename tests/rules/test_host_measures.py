"""What rules about the host measure without Python of their own, on profiles made by hand."""

from __future__ import annotations

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.profiles import of_rule
from tests.tables import Row, kernel, on_device, on_host, profile, step, view

# us        0 1  5      25                101 105    125
# host      ||                             |      110        calls of 1 us, 4 us before their kernels start
# kernels        =======                      ========
DEVICE = [kernel(5, 25, 2), kernel(105, 125, 102)]
STEPS = [step(1, 0, 125, host=(0, 110))]
RANDOM = on_host("op", 20, 90, name="aten::normal_", thread=2)


def ops_on_cpu(*host: Row):
    return of_rule("host-op-placement", view(profile(DEVICE, host, STEPS)))


def test_an_op_without_calls_that_the_device_waits_for_ran_on_the_cpu():
    values = ops_on_cpu(RANDOM)
    assert values["host_op_share"] == pytest.approx(65 / 125)  # the first 5 us of it are hidden
    assert values["host_op_names"] == "aten::normal_ (65 µs)"


def test_without_it_the_next_launch_comes_so_much_earlier():
    # 99 us before the call become 29, or with a quarter left 46.5: the kernel starts at 35 or 52.5 instead of 105
    values = ops_on_cpu(RANDOM)
    assert values["host_op_gain_ms"] == pytest.approx(0.070)
    assert values["host_op_least_gain_ms"] == pytest.approx(0.0525)


@pytest.mark.parametrize(
    "other",
    [
        RANDOM | {"dur_ns": 49_999},
        RANDOM | {"name": "aten::view"},
        RANDOM | {"name": "aten::empty_strided"},
        RANDOM | {"name": "autograd::engine::evaluate_function: SumBackward1"},
        RANDOM | {"thread": 9},
    ],
    ids=["short", "view", "allocation", "not aten", "another thread"],
)
def test_what_does_not_compute_on_the_launching_thread_is_left_out(other):
    assert ops_on_cpu(other)["host_op_share"] == 0


def test_the_op_that_holds_another_is_not_counted_beside_it():
    values = ops_on_cpu(on_host("op", 15, 95, name="aten::randn", thread=2), RANDOM | {"parent": 0})
    assert values["host_op_names"] == "aten::normal_ (65 µs)"


def test_an_op_with_a_call_in_it_launches():
    values = ops_on_cpu(RANDOM, on_host("runtime", 30, 31, name="cudaMemcpyAsync", thread=2, parent=0))
    assert values["host_op_share"] == 0


def test_the_data_loader_s_ops_are_its_own():
    assert ops_on_cpu(RANDOM, on_host("input", 10, 95, thread=2))["host_op_share"] == 0


def compiled(*ranges: Row, marks: bool = True) -> DeviceView:
    """A step of 1 ms: the host launches at 100 and 700 us, and the device runs dry from 300 to 705."""
    kernels = [kernel(105, 300, 100), kernel(705, 980, 700)]
    return view(profile(kernels, ranges, [step(1, 0, 1000)] if marks else ()))


def test_guards_count_where_the_device_waits_for_them():
    lookups = [on_host("op", start, start + 90, name="TorchDynamo Cache Lookup", thread=2) for start in (10, 500)]
    values = of_rule("guard-lookups", compiled(*lookups))
    assert values["lookups_ms"] == pytest.approx(0.18)
    assert values["guard_share"] == pytest.approx(0.18)  # before the first kernel and between the two
    elsewhere = compiled(on_host("op", 150, 240, name="TorchDynamo Cache Lookup", thread=2))
    assert of_rule("guard-lookups", elsewhere)["guard_share"] == 0


# us      0 5        100                              3050     3101 3105  3200
# code      |30 ======================================================3120       a compiled graph is called
# ops                                                  =========3104             launches a kernel of the user's
# device    =========                                                =====
def test_python_of_compiled_code_counts_where_the_device_waits_long_for_it():
    code = on_host("op", 30, 3120, name="## Call CompiledFxGraph fem7 ##", thread=2)
    ops = [on_host("op", 3050, 3104, name="relu_square_kernel_0", parent=0, thread=2)]
    made = profile([kernel(5, 100, 2), kernel(3105, 3200, 3101)], [code, *ops], [step(1, 0, 4000)])
    values = of_rule("host-stalls", view(made))
    assert values["compiled_code_ms"] == pytest.approx(3.005)  # until the kernel starts
    assert values["late_launches_names"] == "relu_square_kernel_0 (54 µs)"
    assert of_rule("host-stalls", compiled(code))["compiled_code_share"] == 0  # of a short gap


def test_loads_count_where_nothing_runs():
    loads = [on_host("runtime", start, start + 60, name="cuLibraryLoadData", thread=2) for start in (200, 400)]
    values = of_rule("modules-loaded-late", compiled(*loads))
    assert values["late_loads_per_step"] == 2
    assert values["late_loads_share"] == pytest.approx(0.06)
    assert values["late_loads_steps_share"] == 1
    unmarked = of_rule("modules-loaded-late", compiled(*loads, marks=False))
    assert unmarked["late_loads_steps_share"] == Missing("no_marks")


# us         0 ... 10 ... 20 ... 30 ... 40 ... 50 ... 60
# steps' ops [ call 0..10 ]      [ call 30..40 ]
# kernels          [ 5 .. 15 ]
def test_graphs_cost_what_the_device_idles_during_their_launches():
    calls = [on_host("runtime", at, at + 10, name="cudaGraphLaunch") for at in (0, 30)]
    made = view(profile([kernel(5, 15, 1)], calls, [step(1, 0, 100)]))
    assert of_rule("graph-launch-exposed", made)["graph_launch_wait_ms"] == pytest.approx(0.015)


REDUCER = on_host("op", 50, 90, name="torch.distributed.ddp.reducer::copy_bucket_to_grad")


def test_copies_out_of_buckets_are_those_launched_in_the_reducer_s_range():
    launched = [on_device("memcpy", 100, 200, 60), kernel(200, 300, 70), on_device("memcpy", 300, 400, 95)]
    of = of_rule("gradient-copies", view(profile(launched, [REDUCER], [step(1, 0, 1000)])))
    assert (of["bucket_copies_per_step"], of["bucket_copy_ms"]) == (1, pytest.approx(0.2))


def test_a_synchronised_norm_gathers_statistics():
    gather = on_host("op", 10, 40, name="aten::batch_norm_gather_stats_with_counts")
    alone = on_host("op", 10, 40, name="aten::native_batch_norm")
    for host, norms in (((gather, gather, alone), 2), ((alone,), 0), ((), Missing("no_host_op"))):
        of = of_rule("synchronised-norms", view(profile([kernel(0, 90)], host, [step(1, 0, 100)])))
        assert of["synchronised_norms_per_step"] == norms


def test_passes_of_data_parallel_are_counted():
    host = [on_host("annotation", 10, 90, name="DataParallel.forward"), on_host("annotation", 5, 9, name="forward")]
    made = view(profile([kernel(0, 10, 0)], host, [step(1, 0, 100), step(2, 100, 200)]))
    assert of_rule("dataparallel-instead-of-ddp", made)["data_parallel_calls_per_step"] == 0.5


ADDMM, GELU = "[[8], [1, 64], [64, 8], [], []]", "[[1, 64], []]"


@pytest.mark.parametrize(
    ("name", "shapes", "share", "products"),
    [
        ("aten::addmm", ADDMM, 0.64, 8),  # with the activation 8 x 8 of 100 us
        ("aten::mm", "[[1, 64], [64, 8]]", 0.64, 8),
        ("aten::mv", "[[8, 64], [64]]", 0.64, 8),
        ("aten::addmm", "[[8], [16, 64], [64, 8], [], []]", 0.32, 0),
        ("aten::mm", "[[12, 64], [64, 8]]", 0.32, 0),
        ("aten::convolution", "[[1, 3, 64, 64], [8, 3, 3, 3]]", 0.32, 0),  # an image is rows enough
    ],
)
def test_products_of_single_rows_are_known_by_their_shapes(name: str, shapes: str, share: float, products: int):
    ran = [(at, *call) for n in range(8) for at, call in ((10 * n, (name, shapes)), (10 * n + 5, ("aten::gelu", GELU)))]
    host = [on_host("op", at, at + 4, name=of, shapes=sizes) for at, of, sizes in ran]
    of = of_rule("single-samples", view(profile([], host, [step(1, 0, 100, device=None)])))
    assert of["single_row_whole_share"] == pytest.approx(share)
    assert (of["single_product_count"], of["single_product_repeats"], of["products_count"]) == (products, products, 8)


@pytest.mark.parametrize(
    ("table", "indices", "product", "small", "products"),
    [
        ("[300000, 32]", "[1024]", "[[8, 32], [32, 4]]", 1, 0),
        ("[300000, 32]", "[128, 40]", "[[8, 32], [32, 4]]", 0, 0),
        ("[300000, 32]", "[99, 99]", "[[8, 32], [32, 4]]", 1, 0),
        ("[80000, 32]", "[1024]", "[[8, 32], [32, 4]]", 1, 0),
        ("[80000, 32]", "[9000]", "[[8, 32], [32, 4]]", 0, 0),
        ("[300000, 32]", "[1024]", "[[8, 32], [32, 300000]]", 1, 1),
    ],
)
def test_updates_of_all_rows_are_known_by_the_shapes_of_tables(table, indices, product, small, products):
    host = [
        on_host("op", 0, 5, name="aten::embedding", shapes=f"[{table}, {indices}]"),
        on_host("op", 10, 20, name="aten::mm", shapes=product),
        on_host("op", 20, 40, id=500, name="aten::embedding_dense_backward", shapes="[[1024, 32], [1024]]"),
        on_host("op", 21, 38, name="aten::fill_", shapes=f"[{table}, []]", parent=500),
        on_host("annotation", 50, 90, name="Optimizer.step#Adam.step"),
        on_host("op", 50, 70, name="aten::sqrt", shapes=f"[{table}]"),
        on_host("op", 70, 80, name="aten::sqrt", shapes="[[32, 4]]"),
    ]
    of = of_rule("embedding-gradients-dense", view(profile([], host, [step(1, 0, 100, device=None)])))
    assert of["rows_share"] == pytest.approx(0.40)  # the gradient's 20 us and the table's update
    assert (of["lookups_count"], of["small_lookups_count"], of["products_count"]) == (1, small, products)


@pytest.mark.parametrize(
    ("path", "counts"),
    [("jvp()/dot_general", (0, 0)), ("transpose(jvp())/dot_general", (1, 0)), ("eigh", (0, 1)), ("weigh", (0, 0))],
)
def test_what_xla_computes_in_64_bits_is_known_by_its_paths(path: str, counts: tuple[int, int]):
    programs = [(f"jit(f)/{path};lu.py(3): eigh", '["double"]'), ("jit(f)/sin", '["float"]'), ("jit(f)/top_k", None)]
    host = [
        on_host("op", 10 * n, 10 * n + 6, name="dot", stack=stack, dtypes=types)
        for n, (stack, types) in enumerate(programs)
    ]
    of = of_rule("double-precision-jax", view(profile([], host, [step(1, 0, 100, device=None)])))
    assert of["doubles_share"] == pytest.approx(0.06)
    assert (of["gradients_count"], of["numerical_count"]) == counts


def test_small_copies_are_of_either_way_and_move_more_than_a_value():
    sizes = [("HtoD", 8), ("HtoD", 65_536), ("DtoH", 1_023), ("DtoH", 1_024), ("DtoD", 8)]
    copies = [on_device("memcpy", 10 * n, 10 * n + 1, copy_kind=k, bytes=b) for n, (k, b) in enumerate(sizes)]
    of = of_rule("many-small-copies", view(profile(copies, steps=[step(1, 0, 100)])))
    assert (of["small_copy_per_step"], of["small_copy_bytes_per_step"]) == (2, 8 + 1_024)
    pages = [on_device("memcpy", 60, 61, copy_kind="HtoD", bytes=8, source_memory="managed")]
    of = of_rule("many-small-copies", view(profile([*copies, *pages], steps=[step(1, 0, 100)])))
    assert of["small_copy_per_step"] == 2
    unsized = view(profile([*copies, on_device("memcpy", 90, 91, copy_kind="HtoD")], steps=[step(1, 0, 100)]))
    assert of_rule("many-small-copies", unsized)["small_copy_per_step"] == Missing("no_copy_sizes")


def test_what_xla_left_out_is_named():
    ops = [kernel(0, 30, hlo_module="jit_f"), kernel(40, 50, framework_op="a/c:Mul")]
    of = of_rule("outside-compilation", view(profile(ops, steps=[step(1, 0, 100)])))
    assert of["outside_compilation_names"] == "Mul (10 µs)"


def test_ops_whose_results_have_sizes_wait_for_a_gpu_that_was_not_recorded():
    masks = [on_host("op", 10 * n, 10 * n + 4, name="aten::nonzero") for n in range(3)]
    host = [*masks, on_host("op", 50, 55, name="aten::ge"), on_host("op", 60, 69, name="aten::cudnn_batch_norm")]
    of = of_rule("cpu-beside-gpu", view(profile((), host, [step(1, 0, 100)], devices=())))
    assert (of["waits_count"], of["waits_names"]) == (3, "aten::nonzero (12 µs)")


def test_copies_of_layout_are_those_within_contiguous_of_four_dimensions():
    """A copy of an image for a norm; one of a matrix, and one of no `contiguous`, are others."""
    image = "[[8, 32, 32, 64], [8, 32, 32, 64], []]"
    host = [
        on_host("op", 0, 20, name="aten::contiguous"),
        on_host("op", 5, 15, name="aten::copy_", shapes=image, parent=0),
        on_host("op", 20, 40, name="aten::native_layer_norm", shapes="[[8, 32, 32, 64], [], [64], [64], []]"),
        on_host("op", 40, 60, name="aten::contiguous"),
        on_host("op", 45, 55, name="aten::copy_", shapes="[[64, 64], [64, 64], []]", parent=3),
        on_host("op", 70, 80, name="aten::copy_", shapes=image),
    ]
    values = of_rule("layout-copies", view(profile([], host, [step(1, 0, 100, device=None)], devices=())))
    assert (values["layout_copy_share"], values["layout_copy_per_step"]) == (pytest.approx(0.1), 1)
    assert values["channel_norms_per_step"] == 1
