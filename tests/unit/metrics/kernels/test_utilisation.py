from __future__ import annotations

import pytest

from advisor.analysis.device.selection import select_steps
from advisor.inputs.hardware import figures, usual
from advisor.inputs.hardware import table as gpus
from advisor.metrics import METRICS, measure
from advisor.model.clause import Missing
from tests.tables import A100, kernel, on_host, profile, step, view

STEPS = [step(1, 0, 1000)]
FLASH = "flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"


def job(*names: str, backward: bool = True, ranks: int | None = None):
    device = [kernel(100 * n, 100 * n + 90, name=name) for n, name in enumerate(names)]
    host = [on_host("op", 0, 10, name="autograd::engine::evaluate_function: MmBackward0")] if backward else []
    seen = view(profile(device, host, STEPS, devices=[A100]))
    seen.process["world_size"] = ranks
    return seen


def test_the_peak_is_that_of_sixteen_bits_over_the_step():
    """An A100 computes 312 TFLOP/s in bf16: 312e9 in 1 ms."""
    assert METRICS["peak_work_per_step"].value(job(GEMM)) == pytest.approx(312e9)


@pytest.mark.parametrize(("ranks", "least", "most"), [(None, 0.553, 0.642), (8, 0.553, 0.642), (64, 0.505, 0.611)])
def test_what_is_published_is_of_the_gpu_and_of_one_host_or_several(ranks: int | None, least: float, most: float):
    seen = job(GEMM, FLASH, ranks=ranks)
    assert METRICS["usual_least_share"].value(seen) == least
    assert METRICS["usual_most_share"].value(seen) == most


@pytest.mark.parametrize(
    ("names", "model", "least"),
    [
        ((GEMM, FLASH), "dense", 0.553),
        ((GEMM, FLASH, "void cutlass::device_kernel<GroupedGemm_bf16>"), "experts", None),
        ((CONVOLUTION, CONVOLUTION, GEMM), "convolution", 0.163),
        ((CONVOLUTION, GEMM, GEMM), None, None),
    ],
)
def test_the_model_is_told_by_what_most_of_the_products_are(names: tuple[str, ...], model: str | None, least):
    seen = job(*names)
    assert METRICS["usual_model"].value(seen) == model
    assert METRICS["usual_least_share"].value(seen) == (least or Missing("nothing_published"))


@pytest.mark.parametrize(
    "seen",
    [job(GEMM), job("ampere_sgemm_128x64_tn", FLASH.replace("bfloat16_t", "x")), job(GEMM, FLASH, backward=False)],
)
def test_nothing_is_published_of_other_jobs(seen):
    assert METRICS["usual_least_share"].value(seen) == Missing("nothing_published")


def test_each_published_figure_is_of_a_listed_gpu_and_a_share():
    ids = {gpu.id for gpu in gpus()}
    for figure in figures():
        assert any(name.startswith(figure.gpu) for name in ids), figure
        assert 0.05 < figure.share < 0.7
        assert figure.model in {"dense", "experts", "convolution"}
    assert usual("dense", "tesla-of-nobody", 8) is None
    assert usual("experts", "h100-sxm5-80gb", 64) == (0.155, 0.473)


def test_given_flops_take_the_place_of_counted_ones():
    made = measure(select_steps(profile([kernel(0, 90, name=GEMM)], [], STEPS, devices=[A100]), "all"))
    given = made.of_flops(31.2e9)
    assert given.frames["run"]["flops_of_peak_share"].item() == pytest.approx(0.1)
    assert made.of_flops(None) is made
