"""Names of collectives as profilers write them, each with what it does as its maker's documentation or source says."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.inputs.names.kernels import COLLECTIVES, collective_op, family

# Kernels: (name, op), None where the name does not say.
KERNELS: dict[str, list[tuple[str, str | None]]] = {
    "NCCL before 2.10 and TensorFlow's": [
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclAllReduceTreeLL128Kernel_sum_f16(ncclColl)", "all_reduce"),
        ("ncclReduceScatterRingLLKernel_sum_f32(ncclColl)", "reduce_scatter"),
        ("ncclAllGatherRingLLKernel_copy_i8(ncclColl)", "all_gather"),
        ("ncclBroadcastRingLLKernel_copy_i8(ncclColl)", "broadcast"),
        ("ncclReduceRingLLKernel_sum_f32(ncclColl)", "reduce"),
        ("_Z33ncclAllReduceRingLLKernel_sum_f328ncclColl", "all_reduce"),
    ],
    "NCCL 2.10 to 2.18": [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclKernel_AllReduce_TREE_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
        ("void ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", "all_reduce"),
        (
            "ncclKernel_ReduceScatter_RING_LL_Sum___nv_bfloat16(ncclDevComm*, unsigned long, ncclWork*)",
            "reduce_scatter",
        ),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "all_gather"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "broadcast"),
        ("ncclKernel_Reduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "send_recv"),
    ],
    "NCCL from 2.19": [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
        ("ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclDevKernel_AllReduce_Sum_f16_NVLS_SIMPLE(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)", "all_gather"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("_Z21ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE", "send_recv"),
    ],
    "NCCL's symmetric memory, 2.27 and 2.28": [
        ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)", "all_reduce"),
        ("ncclSymDevKernel_AllGather_STMC(ncclSymDevArgs)", "all_gather"),
        ("ncclSymDevKernel_ReduceScatter_LL_sum_f8e5m2(ncclSymDevArgs)", "reduce_scatter"),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f8e5m2(ncclSymkDevWorkArgs4K)", "all_reduce"),
        ("ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16", "all_reduce"),
        ("ncclSymkDevKernel_ReduceScatter_LD_sum_f32", "reduce_scatter"),
        ("ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLD_sum_bf16", "reduce_scatter"),
    ],
    "RCCL, MSCCL, MSCCL++": [
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", None),
        ("_Z23ncclDevKernel_Generic_424ncclDevKernelArgsStorageILm4096EE", None),
        ("ncclDevKernelDebug_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
        ("mscclKernel_Sum_float_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)", None),
        ("mscclKernel_Sum_hip_bfloat16_Simple_false", None),
        ("void mscclpp::collective::allreduceAllPairs<(mscclpp::ReduceOp)0, __half, false>(void*)", "all_reduce"),
    ],
    "inference engines": [
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, int, int)", "all_reduce"),
        ("void vllm::cross_device_reduce_2stage<float, 2>(vllm::RankData*, vllm::RankSignals)", "all_reduce"),
        ("aiter::cross_device_reduce_2stage<bf16,8,false>", "all_reduce"),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<__nv_bfloat16, 8>",
            "all_reduce",
        ),
        ("void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_twoshot_sync<half, 4>(int)", "all_reduce"),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, false>(AllReduceParams)", "all_reduce"),
        ("quickreduce::allreduce_prototype_twoshot", "all_reduce"),
        ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*)", "all_to_all"),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)", "all_to_all"),
        ("void deep_ep::intranode::barrier<8>(int**, int)", "barrier"),
    ],
    "PyTorch's symmetric memory, Transformer Engine": [
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "all_reduce"),
        ("void c10d::symmetric_memory::multimem_one_shot_reduce_kernel<c10::BFloat16, 16>(int)", "reduce"),
        ("void c10d::symmetric_memory::multimem_all_gather_kernel<16>(char*)", "all_gather"),
        ("two_shot_all_reduce_kernel", "all_reduce"),
        ("userbuffers_fp16_sum_inplace_gpu_mc_rs_oop", "reduce_scatter"),
        ("userbuffers_fp16_sum_inplace_gpu_mc_ag", "all_gather"),
        ("userbuffers_fp16_sum_gpu_mc_rmsnorm", "all_reduce"),
        ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "send"),
        ("kuserbuffers_pushrecv(int, int, int, int*, int*)", "recv"),
    ],
    "oneCCL, HCCL": [
        ("oneccl_allreduce_pcie<sycl::half>", "all_reduce"),
        ("oneccl_allgatherv_pcie", "all_gather"),
        ("hcom_allReduce__503_0_1", "all_reduce"),
        ("hcom_reduceScatter__503_0_1", "reduce_scatter"),
        ("hcom_broadcast__503_2_1", "broadcast"),
    ],
    "XLA": [
        ("all-reduce-start.1", "all_reduce"),
        ("reduce-scatter.3", "reduce_scatter"),
        ("all-gather.7", "all_gather"),
        ("all-to-all.2", "all_to_all"),
        ("collective-permute-start", "send_recv"),
        ("collective-broadcast.1", "broadcast"),
        ("ragged-all-to-all.1", "all_to_all"),
    ],
    "made up, to pin one rule each": [
        ("hcclAllGather_", "all_gather"),
        ("rccl_main_kernel", None),
        ("custom_namespace::myAllReduceKernel<float>", "all_reduce"),
    ],
}

# What PyTorch's process groups write into metadata.
METADATA = [
    ("allreduce", "all_reduce"),
    ("allreduce_coalesced", "all_reduce"),
    ("all_gather", "all_gather"),
    ("_allgather_base", "all_gather"),
    ("allgather_into_tensor_coalesced", "all_gather"),
    ("all_gather_into_tensor_coalesced", "all_gather"),
    ("reduce_scatter", "reduce_scatter"),
    ("_reduce_scatter_base", "reduce_scatter"),
    ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
    ("all_to_all", "all_to_all"),
    ("all_to_allv", "all_to_all"),
    ("alltoall_base", "all_to_all"),
    ("broadcast", "broadcast"),
    ("_broadcast_oop", "broadcast"),
    ("reduce", "reduce"),
    ("_reduce_oop", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("send", "send"),
    ("recv", "recv"),
    ("recv_anysource", "recv"),
    ("barrier", "barrier"),
    ("wait", None),
    ("end_coalescing", None),
    ("", None),
]

# Ranges that the host opens around a call.
RANGES = [
    ("nccl:all_reduce", "all_reduce"),
    ("nccl:all_reduce_barrier", "barrier"),
    ("nccl:_all_gather_base", "all_gather"),
    ("nccl:_reduce_scatter_base", "reduce_scatter"),
    ("nccl:all_to_all", "all_to_all"),
    ("nccl:broadcast", "broadcast"),
    ("nccl:send 0->1", "send"),
    ("nccl:recv 1<-0", "recv"),
    ("nccl:coalesced", None),
]

# Device work that only sounds like communication.
OTHERS = [
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(float)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::collective::CollectiveMma<int>>>",
    "void splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)",
    "Memcpy PtoP (Device -> Device)",
]


def ops(names: list[str]) -> list[str | None]:
    return collective_op(pl.Series(names, dtype=pl.String)).to_list()


@pytest.mark.parametrize("maker", KERNELS)
def test_every_kernel_is_a_collective_and_tells_what_it_does(maker: str):
    names = [name for name, _ in KERNELS[maker]]
    assert list(zip(names, ops(names), strict=True)) == KERNELS[maker]
    assert [name for name, what in zip(names, family(pl.Series(names)), strict=True) if what != "collective"] == []


@pytest.mark.parametrize("table", [METADATA, RANGES])
def test_metadata_and_ranges_tell_it_too(table: list[tuple[str, str | None]]):
    names = [name for name, _ in table]
    assert list(zip(names, ops(names), strict=True)) == table


def test_ranges_and_ordinary_kernels_are_no_collectives():
    names = [name for name, _ in RANGES] + OTHERS
    assert [name for name, what in zip(names, family(pl.Series(names)), strict=True) if what == "collective"] == []


def test_the_tables_cover_the_vocabulary():
    told = {op for table in [*KERNELS.values(), METADATA] for _, op in table if op}
    assert told == set(COLLECTIVES)


@given(st.lists(st.none() | st.text(max_size=40), max_size=10))
def test_any_name_is_answered_in_the_vocabulary_and_null_stays_null(names: list[str | None]):
    told = collective_op(pl.Series(names, dtype=pl.String)).to_list()
    assert len(told) == len(names)
    assert set(told) <= {*COLLECTIVES, None}
    assert all(op is None for op, name in zip(told, names, strict=True) if name is None)


def test_categorical_names_are_taken_as_text():
    assert collective_op(pl.Series(["send"], dtype=pl.Categorical)).to_list() == ["send"]
