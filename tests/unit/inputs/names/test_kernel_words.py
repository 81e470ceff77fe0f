from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from advisor.inputs.names.kernels import kernel_name, kernel_symbol

REAL = yaml.load((Path(__file__).parent / "kernel_names.yaml").read_text("utf-8"), yaml.CSafeLoader)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("void deep_ep::internode::combine<false, 4, __nv_bfloat16>(deep_ep::Arg)", "internode::combine"),
        ("_ZN7deep_ep9internode7combineILi4EEEvv", "internode::combine"),
        ("_Z6vecAddPfS_S_i", "vecAdd"),
        ("_Z14ad_bc_bi_1_gpu7Float645Int6413CuDeviceArrayIS0_Li1ELi1EE", "ad_bc_bi_1_gpu"),  # Julia's, and its types
        ("__main__::move[abi:v1,cw51cXTLSUwv1sCUt9Ww0FEw09RRQPKzLTg](Array<float, (int)2, C>)", "move"),  # Numba's
        ("saxpy(double *, double *, double *, double, int)", "saxpy"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllGather_RING_LL"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, Array<char*> >()",
            "vectorized_elementwise_kernel<AddFunctor>",
        ),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_6detail5ArrayIPcLi1EEEEEviT0_T1_",
            "vectorized_elementwise_kernel<FillFunctor>",
        ),
        (
            "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(float*, int)",
            "softmax_warp_forward",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(T1::Params)",
            "cutlass_80_simt_sgemm_128x128_8x4_nn_align1",
        ),
        (
            "std::enable_if<!(false), void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
            "vllm::fused_add_rms_norm_kernel",
        ),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_execute_kernel__5x_cublas",
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n",
        ),
        ("Cijk_Alik_Bljk_DB_MT64x64x16_MI16x16x4x1_SN_LDSB0_AFC1", "Cijk_Alik_Bljk_DB_MT64x64x16"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("Memset (Device)", "Memset (Device)"),
        ("loop_add_fusion_4", "loop_add_fusion_4"),
        ("aten::mul", "aten::mul"),
        ("", ""),
    ],
)
def test_a_kernel_is_called_what_people_call_it(symbol: str, name: str):
    assert kernel_name(symbol) == name


def test_a_profiler_finds_a_function_by_its_whole_name_and_what_a_wrapper_runs_by_a_part():
    assert kernel_symbol("void kernel<int>(int*)") == ("kernel", True)
    assert kernel_symbol("_Z3addiPfS_") == ("add", True)
    assert kernel_symbol("__main__::move[abi:v1,cw51](Array<float, (int)2, C>)") == ("move", False)
    assert kernel_symbol("volta_sgemm_128x64_tilesize4_stage3") == ("volta_sgemm_128x64", False)
    assert kernel_symbol("void cutlass::Kernel2<cutlass_80_sgemm>(X)") == ("cutlass_80_sgemm", False)
    agent = "thrust::cuda_cub::__parallel_for::ParallelForAgent<thrust::cuda_cub::for_each_f<{}, int>, long>"
    of_thrust = f"void thrust::cuda_cub::core::_kernel_agent<{agent}, long>(int)"
    assert kernel_symbol(of_thrust.format("reduce_functor<(Kind)0>")) == ("reduce_functor", False)
    assert kernel_name(of_thrust.format("reduce_functor<(Kind)0>")) == "ParallelForAgent<reduce_functor>"
    assert kernel_symbol(of_thrust.format("int")) == ("ParallelForAgent", False)
    of_pytorch = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
    assert kernel_symbol(of_pytorch) == ("CUDAFunctor_add", False)


def test_no_real_name_gets_longer_or_loses_all():
    for symbol in (row["name"] for row in REAL):
        name = kernel_name(symbol)
        assert 0 < len(name) <= len(symbol), symbol
        assert name in symbol or "<" in name or "::" in name, symbol


@given(st.text(alphabet="_ZN0123456789abcKernel<>():, ~", max_size=60))
def test_any_text_has_a_name(text: str):
    assert len(kernel_name(text)) <= len(text) + 2
