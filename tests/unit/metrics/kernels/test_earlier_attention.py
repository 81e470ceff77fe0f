from __future__ import annotations

import pytest

from tests.tables import kernel, metrics_of, profile, step, view

FORWARD = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >(flash::Flash_fwd_params)"
BACKWARD = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128> >(int)"
DECODING = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128> >(flash::Flash_fwd_params)"
THIRD = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int> > >(int)"
H100 = {"device": 0, "name": "NVIDIA H100 80GB HBM3", "capability": 9.0, "sm_count": 132}


def attention(*names, device=H100, each=100):
    kernels = [kernel(each * n + 10, each * (n + 1) + 10, n, name=name) for n, name in enumerate(names)]
    made = profile(kernels, steps=[step(1, 0, each * len(names) + 10, host=(0, 10))], devices=[device])
    values = metrics_of(view(made))
    return [
        values[metric]
        for metric in (
            "earlier_attention_ms",
            "earlier_attention_least_gain_ms",
            "earlier_attention_gain_ms",
        )
    ]


def test_the_second_version_takes_up_to_twice_the_time():
    now, least, most = attention(THIRD, FORWARD, BACKWARD, THIRD)
    assert now == pytest.approx(0.2)
    assert (least, most) == pytest.approx((0.05, 0.1))


def test_decoding_and_short_kernels_do_not_count():
    assert attention(DECODING, "gemm") == [0, 0, 0]
    assert attention(FORWARD, BACKWARD, each=19) == [0, 0, 0]


@pytest.mark.parametrize("capability", [8.0, 12.0])
def test_other_gpus_have_nothing_faster(capability: float):
    assert attention(FORWARD, device=H100 | {"name": "other", "capability": capability}) == [0, 0, 0]
