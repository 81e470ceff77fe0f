"""FLOPs and bytes of forty calls, as public traces have them, worked out by hand; half of them unknown."""

from __future__ import annotations

import json

import pytest

from advisor.analysis.device.op_work import Work, work

BF16, HALF, FLOAT, LONG, INT = "c10::BFloat16", "c10::Half", "float", "long int", "int"
FP8 = "c10::Float8_e4m3fn"

# name, shapes, types, options, and: kind, FLOPs, the least of them, bytes
KNOWN = [
    # 2 x 8944 x 1024 x 2816; (8944 x 1024 + 1024 x 2816 + 8944 x 2816) x 2
    ("aten::mm", [[8944, 1024], [1024, 2816]], [BF16] * 2, [], ("product", 51_581_550_592, None, 74_457_088)),
    # the bias of addmm is no factor: 2 x 16 x 4 x 8, (16 x 8 + 8 x 4 + 16 x 4) x 4
    ("aten::addmm", [[4], [16, 8], [8, 4], [], []], [FLOAT] * 3, [], ("product", 1024, None, 896)),
    # a bias that is a matrix of the same sides changes nothing
    ("aten::addmm", [[8, 8], [8, 16], [16, 8]], [FLOAT] * 3, [], ("product", 2048, None, (128 + 128 + 64) * 4)),
    # 2 x 12 x 5 x 5 x 64; 12 x (5 x 64 + 64 x 5 + 5 x 5) x 2
    ("aten::bmm", [[12, 5, 64], [12, 64, 5]], [BF16] * 2, [], ("product", 38_400, None, 15_960)),
    ("aten::baddbmm", [[12, 5, 5], [12, 5, 64], [12, 64, 5]], [HALF] * 3, [], ("product", 38_400, None, 15_960)),
    # a weight that all pairs share is read once: 2 x (3 x 7) x 10 x 5; (3 x 7 x 5 + 5 x 10 + 3 x 7 x 10) x 4
    ("aten::matmul", [[3, 7, 5], [5, 10]], [FLOAT] * 2, [], ("product", 2100, None, 1460)),
    # a square weight of a linear layer: 2 x 16 x 8 x 8
    ("aten::linear", [[16, 8], [8, 8], [8]], [FLOAT] * 3, [], ("product", 2048, None, (128 + 64 + 128) * 4)),
    # eight bits: 2 x 32 x 64 x 16, scales are no factors; the result counts as narrow as the inputs
    ("aten::_scaled_mm", [[32, 16], [16, 64], [], []], [FP8, FP8, FLOAT, FLOAT], [], ("product", 65_536, None, 3584)),
    # another library's, by its name and two matrices: 2 x 1000^3, 3 x 1000^2 x 4
    ("mylib::naive_matmul", [[1000, 1000], [1000, 1000]], [FLOAT] * 2, [], ("product", 2e9, None, 12_000_000)),
    # ResNet's first layer: 112 x 112 positions, 2 x 10 x 64 x 112 x 112 x 3 x 7 x 7
    (
        "aten::miopen_convolution",
        [[10, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []],
        [BF16] * 2,
        ["", "", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False"],
        ("convolution", 2_360_279_040, None, (1_505_280 + 9_408 + 8_028_160) * 2),
    ),
    # depthwise: each filter has one channel; 2 x 1 x 8 x 4 x 4 x 1 x 9
    (
        "aten::cudnn_convolution",
        [[1, 8, 4, 4], [8, 1, 3, 3]],
        [FLOAT] * 2,
        ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "8", "False", "False", "True"],
        ("convolution", 2304, None, (128 + 72 + 128) * 4),
    ),
    # transposed: each of 2 x 4 x 5 x 5 elements meets 3 x 2 x 2 of the filter
    (
        "aten::convolution",
        [[2, 4, 5, 5], [4, 3, 2, 2], [], [], [], [], [], [], []],
        [FLOAT] * 2,
        ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"],
        ("convolution", 4800, None, (200 + 48) * 4),
    ),
    # both gradients: 2 x (2 x 1 x 8 x 4 x 4 x 4 x 9)
    (
        "aten::convolution_backward",
        [[1, 8, 4, 4], [1, 4, 4, 4], [8, 4, 3, 3], [], [], [], [], [], [], [], []],
        [FLOAT] * 3,
        ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"],
        ("convolution", 18_432, None, (128 + 64 + 288) * 4),
    ),
    # without options: one gradient or two
    (
        "aten::convolution_backward",
        [[1, 8, 4, 4], [1, 4, 4, 4], [8, 4, 3, 3]],
        [FLOAT] * 3,
        [],
        ("convolution", 18_432, 9_216, (128 + 64 + 288) * 4),
    ),
    # 4 x 2 x 3 x 8 x 8 x 16 in full; four tensors of 2 x 3 x 8 x 16
    (
        "aten::_scaled_dot_product_flash_attention",
        [[2, 3, 8, 16]] * 3,
        [HALF] * 3,
        ["", "", "", "0.", "False", "False", "0.25"],
        ("attention", 24_576, None, 4 * 768 * 2),
    ),
    # causal: 9 / 16 of it, with the diagonal
    (
        "aten::_flash_attention_forward",
        [[2, 8, 3, 16]] * 3,
        [HALF] * 3,
        ["", "", "", "", "", "8", "8", "0.", "True", "False"],
        ("attention", 13_824, None, 4 * 768 * 2),
    ),
    # not told: between the two
    ("aten::_efficient_attention_forward", [[2, 8, 3, 16]] * 3, [HALF] * 3, [], ("attention", 24_576, 13_824, 6144)),
    # softmax reads and writes; a sum of two shapes is as large as both together; bool results are of a byte
    ("aten::_softmax", [[16, 5185, 5185], [], []], [BF16], [], ("moving", 0, None, 2 * 16 * 5185 * 5185 * 2)),
    ("aten::mul", [[16, 559, 1], [559, 64]], [FLOAT] * 2, [], ("moving", 0, None, (8944 + 35_776 + 16 * 559 * 64) * 4)),
    ("aten::eq", [[16, 559], []], [LONG, "Scalar"], [], ("moving", 0, None, 8944 * 9)),
    # two copies of 8,944 rows of 1,024, and their numbers
    ("aten::embedding", [[151_936, 1024], [16, 559]], [BF16, LONG], [], ("moving", 0, None, 8944 * (4096 + 8))),
    ("aten::copy_", [[1, 559, 64], [1, 559, 64], []], [BF16, FLOAT], [], ("moving", 0, None, 35_776 * 6)),
]

UNKNOWN = [
    ("aten::mm", None, None, None),  # recorded without shapes
    ("aten::mm", [[8, 4]], [FLOAT], []),
    ("aten::mm", [[8, 4], [5, 8]], [FLOAT] * 2, []),  # the inner sides disagree
    ("aten::mm", [[8, 4], [4, 8]], ["c10::complex<float>"] * 2, []),  # of a type without a size here
    ("aten::_grouped_mm", [[64, 16], [4, 16, 32], [4]], [BF16, BF16, INT], []),  # tokens per expert are not in shapes
    ("aten::cudnn_convolution", [[1, 8, 4, 4], [8, 1, 3, 3]], [FLOAT] * 2, []),  # stride and padding: not recorded
    ("aten::cudnn_convolution", [[1, 8, 4, 4], [8, 1, 3, 3]], [FLOAT] * 2, ["", "", "1", "1", "1"]),
    ("aten::convolution_backward", [[1, 8, 4, 4], [], [8, 4, 3, 3]], [FLOAT, "", FLOAT], []),
    # packed sequences: three sides, or lengths beside four
    ("aten::_flash_attention_forward", [[512, 3, 16]] * 3, [HALF] * 3, []),
    ("aten::_efficient_attention_forward", [*[[1, 512, 3, 16]] * 3, [], [9]], [HALF, HALF, HALF, "", INT], []),
    ("flash_attn::_flash_attn_varlen_forward", [[512, 3, 16]] * 3, [HALF] * 3, []),
    ("vllm::unified_attention_with_output", [[256, 2048]] * 4, [BF16] * 4, []),
    ("mylib::matmul", [[8, 8], [8, 8], [8, 8]], [FLOAT] * 3, []),  # which is the result?
    ("mylib::matmul", [[8, 8], [8, 1]], [FLOAT] * 2, []),  # a scale per row is no factor
    ("mylib::marlin_gemm", [[16, 512], [32, 1024]], [HALF, INT], []),  # packed weights
    ("triton_poi_fused_add_mul_0", [[8, 8], [8, 8]], [FLOAT] * 2, []),
    ("TransformerEngine", [[8, 8], [8, 8]], [FLOAT] * 2, []),
    ("aten::index_select", [[8, 8], [], [4]], [FLOAT, "Scalar", LONG], ["", "1", ""]),  # columns, not rows
    ("aten::cat", [[[4, 4], [4, 4]], []], ["TensorList", "Scalar"], []),  # a list's type is not recorded
    ("aten::_foreach_add_", [[[4], [4]], []], ["TensorList", "Scalar"], []),
    ("aten::mm", [[1 << 62, 1 << 62]] * 2, [FLOAT] * 2, []),  # more bytes than any device has
    ("aten::mm", [[True, 4], [4, 8]], [FLOAT] * 2, ["{"]),
]


def text(values: object) -> str | None:
    return None if values is None else json.dumps(values)


@pytest.mark.parametrize(("name", "shapes", "dtypes", "options", "expected"), KNOWN)
def test_what_a_call_has_to_do(name: str, shapes: object, dtypes: object, options: object, expected: tuple):
    kind, flops, least, nbytes = expected
    assert work(name, text(shapes), text(dtypes), text(options)) == Work(kind, flops, least or flops, nbytes)


@pytest.mark.parametrize(("name", "shapes", "dtypes", "options"), UNKNOWN)
def test_what_is_unknown(name: str, shapes: object, dtypes: object, options: object):
    assert work(name, text(shapes), text(dtypes), text(options)) is None
