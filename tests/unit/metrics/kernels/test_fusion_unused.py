from __future__ import annotations

from collections.abc import Sequence

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.text import ms
from tests.device_bound import ADD, GEMM, op
from tests.tables import Row, kernel, metrics_of, profile, step, view

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>"
X = [64, 1024, 1024]  # 2^26 elements
N = 1 << 26
COLUMN = [64, 1024, 1]
WIDE, NARROW = "float", "c10::BFloat16"


def ran(*ops: Row, us: float = 100, nodes: Sequence[str] = ()) -> DeviceView:
    """Kernels of so many us each, one per op, one after another; each op within its node of autograd, if any."""
    names = {"aten::mm": GEMM, "aten::_flash_attention_forward": FLASH}
    kernels = [kernel(us * i, us * (i + 1), name=names.get(o["name"], ADD), op=i) for i, o in enumerate(ops)]
    worker = {"worker": 0, "framework": "pytorch"}
    around = [op(name) for name in nodes]
    inside = [o | {"parent": len(ops) + i} for i, o in enumerate(ops)] if nodes else ops
    return view(profile(kernels, [*inside, *around], [step(1, 0, us * len(ops))], workers=[worker]))


NORM = [
    op("aten::pow", X, [], dtype=WIDE),
    op("aten::mean", X, dtype=WIDE),
    op("aten::add", COLUMN, [], dtype=WIDE),
    op("aten::rsqrt", COLUMN, dtype=WIDE),
    op("aten::mul", X, COLUMN, dtype=WIDE),
    op("aten::mul", [1024], X, dtype=WIDE),
]
HALF = [64, 1024, 512]
ROTARY = [
    op("aten::mul", X, [1, 1024, 1024]),
    op("aten::neg", HALF),
    op("aten::cat", HALF, HALF, dtype="TensorList"),
    op("aten::mul", X, [1, 1024, 1024]),
    op("aten::add", X, X),
]
MM = op("aten::mm", [1024, 1024], [1024, 1024])
GATE = [op("aten::silu", X), MM, op("aten::mul", X, X)]
HEADS = [64, 16, 1024, 64]
COPIES = [*[op("aten::copy_", HEADS, HEADS)] * 3, op("aten::_flash_attention_forward", *[HEADS] * 3)]


@pytest.mark.parametrize(
    ("ops", "kind", "share"),
    [
        ([*NORM, MM], "norm", 6 / 7),
        ([op("aten::mul", X, X, dtype=WIDE), *NORM[1:], MM], "norm", 6 / 7),  # the square as a product
        ([*ROTARY, MM], "rotary", 5 / 6),
        (GATE, "gate", 2 / 3),
        (COPIES, "copies", 3 / 4),
    ],
)
def test_sequences_are_known_by_their_ops(ops: Sequence[Row], kind: str, share: float):
    values = metrics_of(ran(*ops))
    assert values["fusion_first"] == kind
    assert values["fusion_share"] == pytest.approx(share)


@pytest.mark.parametrize(
    "ops",
    [
        NORM[:3],  # a mean of squares is no norm
        [op("aten::pow", [64], []), op("aten::mean", [64]), *NORM[2:4], op("aten::mul", [64], [1])],  # small
        ROTARY[1:3],  # half of a rotary embedding
        [*ROTARY[:4], MM, ROTARY[4]],
        [op("aten::silu", X), op("aten::mul", X, [64, 1, 1])],  # scaled by channel, not gated
        [op("aten::silu", X), op("aten::mul", HALF, HALF)],  # of something else
        COPIES[1:],  # key and value alone: a cache is filled
        [op("aten::copy_", HEADS, HEADS, dtype=NARROW)] * 3,
    ],
)
def test_what_is_no_such_sequence(ops: Sequence[Row]):
    values = metrics_of(ran(*ops, MM))
    assert values["fusion_share"] == 0
    assert values["fusion_first"] == "none"
    assert values["fusion_kinds"] is None


def test_casts_before_attention_are_no_copies():
    cast = op("aten::copy_", HEADS, HEADS) | {"dtypes": '["c10::BFloat16", "float"]'}
    assert metrics_of(ran(cast, cast, cast, COPIES[-1]))["fusion_share"] == 0


def test_a_fused_kernel_reads_once_and_writes_once():
    values = metrics_of(ran(*GATE))
    # SiLU moves two tensors and the product three; one kernel for both moves three
    assert values["fusion_bytes"] == 2 * N * 2
    assert values["fusion_gain_ms"] == pytest.approx(0.2 * 2 / 5)
    assert values["fusion_least_gain_ms"] == 0  # no call launched them: there is no replay
    assert values["fusion_kinds"] == f"gated activations (1 x, {ms(0.2)})"


GRADIENT = [
    ("MulBackward0", op("aten::mul", X, X)),
    ("MulBackward0", op("aten::sum", X)),
    ("MulBackward0", op("aten::mul", X, COLUMN)),
    ("RsqrtBackward0", op("aten::mul", COLUMN, COLUMN)),
    ("MeanBackward1", op("aten::div", X)),
    ("PowBackward0", op("aten::mul", X, X)),
]


OF_GATE = [
    ("MulBackward0", op("aten::mul", X, X)),
    ("MulBackward0", op("aten::mul", X, X)),
    ("MmBackward0", MM),
    ("MmBackward0", MM),
    ("torch::autograd::AccumulateGrad", op("aten::add_", [1024, 1024], [1024, 1024])),
    ("SiluBackward0", op("aten::silu_backward", X, X)),
]
OF_ROTARY = [
    ("MulBackward0", op("aten::mul", X, [1, 1024, 1024])),
    ("NegBackward0", op("aten::neg", HALF)),
    ("SliceBackward0", op("aten::zero_", X)),
    ("SliceBackward0", op("aten::copy_", HALF, HALF)),
    ("SliceBackward0", op("aten::zero_", X)),
    ("SliceBackward0", op("aten::copy_", HALF, HALF)),
    ("", op("aten::add_", X, X)),
    ("MulBackward0", op("aten::mul", X, [1, 1024, 1024])),
    ("", op("aten::add_", X, X)),
]


def test_the_gradient_of_a_gate_is_two_products_and_the_activation_s():
    nodes, ops = zip(*OF_GATE, strict=True)
    values = metrics_of(ran(*ops, nodes=nodes))
    assert values["fusion_kinds"] == f"gated activations (1 x, {ms(0.3)})"
    # three tensors each; one kernel for all reads three and writes two
    assert values["fusion_bytes"] == (9 - 5) * N * 2
    others = ["MulBackward0" if node == "SiluBackward0" else node for node in nodes]
    assert metrics_of(ran(*ops, nodes=others))["fusion_share"] == 0


def test_the_gradient_of_a_rotary_embedding_brings_the_halves_back():
    nodes, ops = zip(*OF_ROTARY, strict=True)
    assert metrics_of(ran(*ops, nodes=nodes))["fusion_kinds"] == f"rotary embeddings (1 x, {ms(0.9)})"
    assert metrics_of(ran(*ops, nodes=["", *nodes[1:]]))["fusion_share"] == 0


def test_the_gradient_of_a_norm_is_known_by_the_nodes_of_autograd():
    nodes, ops = zip(*GRADIENT, strict=True)
    values = metrics_of(ran(*ops, nodes=nodes))
    assert values["fusion_share"] == 1
    assert values["fusion_kinds"] == f"norms (1 x, {ms(0.6)})"
    others = ["MulBackward0" if node == "RsqrtBackward0" else node for node in nodes]
    assert metrics_of(ran(*ops, nodes=others))["fusion_share"] == 0
