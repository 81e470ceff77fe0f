from __future__ import annotations

import pytest

from advisor.analysis.device.kernels import part, parts
from advisor.analysis.device.view import DeviceView
from tests.device_bound import ADD, GEMM, REDUCE, SGEMM, SOFTMAX, SOFTMAX_BACKWARD, TO_NHWC, op, queued
from tests.tables import on_host

DROPOUT = "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1>"
UPDATE = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&)>"
LAMB = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, UnaryOpFunctor<float>>"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"
TRANSPOSE = "batched_transpose_32x32_half"
LETTERS = {"P": (GEMM, 0), "L": (GEMM, 1), "S": (SOFTMAX, 2), "B": (SOFTMAX_BACKWARD, 2), "G": (SOFTMAX, 3)}
LETTERS |= {"e": (ADD, 4), "d": (DROPOUT, 4), "r": (REDUCE, 5), "t": (TO_NHWC, None), "T": (TRANSPOSE, 6)}
LETTERS |= {"u": (TRANSPOSE, 5), "f": (ADD, 7), "n": (ADD, None), "k": (COPY, 4)}
OPS = [
    *(op("aten::bmm", [8, 64, 64], [8, 64, 64]), op("aten::mm", [64, 64], [64, 64]), op("aten::_softmax", [512, 64])),
    *(op("aten::_log_softmax", [512, 64]), op("aten::mul", [512, 64]), op("aten::sum", [512, 64])),
    *(op("aten::miopen_convolution", [8, 3, 9, 9]), op("aten::mul", [7, 3])),
]
SHORT = {"attention": "a", "chain": "c", "layout": "l", "optimizer": "o", None: "-"}


def letters_of(kernels: str, **columns: object) -> str:
    """The part of each kernel, as a letter, of kernels given as letters."""
    ran = [(LETTERS[k][0], 5, {"on": LETTERS[k][1], "grid": 1, "block": 1} | columns) for k in kernels]
    return letters_in(queued(*ran, ops=OPS))


@pytest.mark.parametrize(
    ("kernels", "letters"),
    [
        ("LPSPL", "-aaa-"),
        ("PeeSedPe", "aaaaaaa-"),  # scaling and mask before the softmax, cast and dropout after it
        ("LSL", "---"),  # of a classifier: no batched products
        ("PSL", "---"),
        ("PrSP", "----"),  # something else between
        ("PGP", "---"),  # the logarithm is a loss's
        ("PSPPSP", "aaaaaa"),
        ("LPPBePPL", "-aaaaaa-"),  # each product has two gradients
        ("LPBPL", "-----"),
        ("PeSPeL", "aaaa--"),  # what follows the last product is not of it
    ],
)
def test_attention_is_a_softmax_between_batched_products(kernels: str, letters: str):
    assert letters_of(kernels) == letters


def test_attention_s_kernels_are_neighbours_on_a_stream():
    ran = [(GEMM, 5, {"on": 0}), (SOFTMAX, 5, {"on": 2, "stream": 9}), (GEMM, 5, {"on": 0})]
    assert parts(queued(*ran, ops=OPS))["part"].null_count() == 3


@pytest.mark.parametrize(
    ("kernels", "letters"),
    [
        ("eee", "ccc"),
        ("ee", "--"),
        ("eereee", "---ccc"),  # another kernel ends a chain
        ("eefee", "-----"),  # so does another size
        ("eeefff", "cccccc"),
        ("edn", "---"),
        ("eed", "ccc"),
        ("nnn", "ccc"),  # without shapes equal grids tell
        ("kkk", "---"),  # of three tensors: nobody copies a copy
        ("eke", "ccc"),
        ("ekke", "----"),
    ],
)
def test_a_chain_is_three_elementwise_kernels_of_a_size_in_a_row(kernels: str, letters: str):
    assert letters_of(kernels) == letters


@pytest.mark.parametrize(
    ("names", "letters"),
    [
        ("a/Gelu/mul:Mul a/Gelu/Tanh:Tanh a/Gelu/mul_1:Mul", "ccc"),  # one layer's activation, written out
        ("a/drop/Cast:Cast b/drop/Cast:Cast c/drop/Cast:Cast", "---"),  # one op of each of three layers
        ("a/r/RandomUniform:RandomUniform " * 3, "---"),  # nothing is read
        ("a/RandomUniform:RandomUniform a/GreaterEqual:GreaterEqual a/Cast:Cast", "ccc"),
        ("a/Mul:Mul a/Fill:Fill a/Cast:Cast", "---"),
        ("Mul:Mul AddV2:AddV2 Tanh:Tanh", "ccc"),  # a graph without names
        ("jit(f)/mul jit(f)/tanh jit(f)/add", "ccc"),
        ("aten::fill_ aten::fill_ aten::fill_", "---"),
        ("aten::zero_ aten::add_ aten::mul", "ccc"),
        ("aten::bernoulli_ aten::div_ aten::bernoulli_ aten::div_", "----"),
    ],
)
def test_a_chain_joins_only_what_can_depend_on_its_neighbour(names: str, letters: str):
    ops = [op(name, [512, 64]) for name in names.split()]
    ran = [(ADD, 5, {"on": i}) for i in range(len(ops))]
    assert "".join(SHORT[name] for name in parts(queued(*ran, ops=ops))["part"]) == letters


@pytest.mark.parametrize(
    ("shapes", "letters"),
    [
        ([[512, 64], [64, 512], [512, 64]], "---"),  # three weights, cast one by one
        ([[512, 64], [512, 64], [512, 64]], "ccc"),
    ],
)
def test_neighbours_of_a_type_and_of_other_shapes_are_two_tensors(shapes: list[list[int]], letters: str):
    ran = [(ADD, 5, {"on": i}) for i in range(3)]
    names = parts(queued(*ran, ops=[op("aten::copy_", shape) for shape in shapes]))["part"]
    assert "".join(SHORT[name] for name in names) == letters


def test_a_view_between_ops_of_two_types_does_not_end_a_chain():
    ran = [(ADD, 5, {"on": i}) for i in range(3)]
    views = [op("aten::mul", [512, 64]), op("aten::tanh", [64, 512]), op("aten::mul", [512, 64])]
    assert parts(queued(*ran, ops=views))["part"].null_count() == 0


def test_neighbouring_chains_are_two():
    ran = [(ADD, 5, {"on": on}) for on in (4, 4, 4, 7, 7, 7)]
    assert part(queued(*ran, ops=OPS), "chain")["run"].n_unique() == 2


def test_without_sizes_there_is_no_chain():
    assert letters_of("nnn", grid=None, block=None) == "---"


def test_kernels_on_other_streams_do_not_lengthen_a_chain():
    ran = [(ADD, 5, {"on": 4, "stream": 7 + i % 2}) for i in range(4)]
    assert parts(queued(*ran, ops=OPS))["part"].null_count() == 4


@pytest.mark.parametrize(("kernels", "letters"), [("t", "l"), ("T", "l"), ("u", "-"), ("eete", "--l-")])
def test_layout_changes_are_named_so_or_belong_to_a_convolution(kernels: str, letters: str):
    assert letters_of(kernels) == letters


def test_what_the_optimizer_launches_is_its_own_whatever_else_it_looks_like():
    ran = [(ADD, 5, {"on": 4})] * 4 + [(LAMB, 5, {})]
    update = on_host("annotation", 1.15, 9, name="Optimizer.step#SGD.step")  # calls start at 1, 1.1, 1.2, 1.3, 1.4
    assert parts(queued(*ran, ops=OPS, ranges=[update]))["part"].to_list() == [None, None, *["optimizer"] * 3]
    other = on_host("annotation", 0, 9, name="Optimizer.zero_grad#SGD.zero_grad")
    assert parts(queued(*ran, ops=OPS, ranges=[other]))["part"].to_list() == [*["chain"] * 4, None]


def test_without_ranges_a_chain_that_ends_as_an_update_does_is_the_optimizer_s():
    update = [(ADD, 5, {"on": 4})] * 3 + [(UPDATE, 5, {"on": 4})]
    others = [(GEMM, 5, {"on": 1}), *[(ADD, 5, {"on": 4})] * 3]
    assert letters_in(queued(*update, *others, ops=OPS)) == "oooo-ccc"
    marked = on_host("annotation", 1.45, 9, name="Optimizer.step#SGD.step")  # tells of another optimizer's kernels
    assert letters_in(queued(*update, *others, ops=OPS, ranges=[marked])) == "cccc-ooo"


def letters_in(view: DeviceView) -> str:
    return "".join(SHORT[name] for name in parts(view)["part"])


def test_without_kernels_there_are_no_parts():
    assert parts(queued((SGEMM, 5, {}))).height == 1
    assert parts(queued()).height == 0
