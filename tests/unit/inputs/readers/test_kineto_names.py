from __future__ import annotations

import polars as pl
import pytest

from advisor.inputs.names.calls import host_kinds
from advisor.inputs.names.kernels import DTYPE_BYTES
from advisor.inputs.readers.kineto.columns import DEVICE_CATEGORIES, HOST_CATEGORIES, copy_kind, copy_memory


def refined(started_as: str, name: str) -> str:
    return pl.select(host_kinds(pl.lit(started_as), pl.lit(name))).item()


@pytest.mark.parametrize(
    ("old", "new"),
    [("Kernel", "kernel"), ("Memcpy", "gpu_memcpy"), ("Memset", "gpu_memset")],
)
def test_both_generations_of_device_categories_mean_the_same(old: str, new: str):
    assert DEVICE_CATEGORIES[old] == DEVICE_CATEGORIES[new]


@pytest.mark.parametrize(("old", "new"), [("Operator", "cpu_op"), ("Runtime", "cuda_runtime")])
def test_both_generations_of_host_categories_mean_the_same(old: str, new: str):
    assert HOST_CATEGORIES[old] == HOST_CATEGORIES[new]


def test_every_vendors_runtime_is_a_runtime():
    assert {HOST_CATEGORIES[c] for c in ("cuda_runtime", "cuda_driver", "hip_runtime", "Runtime")} == {"runtime"}


@pytest.mark.parametrize(
    ("started_as", "name", "kind"),
    [
        ("op", "aten::mm", "op"),
        ("op", "ProfilerStep#12", "step"),
        ("annotation", "ProfilerStep#0", "step"),
        ("annotation", "ProfilerStep # 3", "step"),
        ("annotation", "my ProfilerStep#3", "annotation"),
        ("annotation", "ProfilerStep#", "annotation"),
        ("python", "ProfilerStep#3", "python"),
        ("op", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "input"),
        ("annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "input"),
        ("annotation", "enumerate(DataPipe)#IterDataPipe", "input"),
        ("op", "DataLoader", "op"),
        ("op", "Optimizer.step#SGD.step", "annotation"),
        ("annotation", "Optimizer.zero_grad#SGD.zero_grad", "annotation"),
        ("op", "DistributedDataParallel.forward", "annotation"),
        ("annotation", "gloo:all_reduce", "collective"),
        ("annotation", "nccl:all_reduce", "annotation"),
        ("python", "nn.Module: Linear_0", "module"),
        ("python", "torch/nn/modules/module.py(1532): _call_impl", "python"),
        ("python", "torch/_inductor/compile_fx.py(1): compile_fx_inner", "compile"),
        ("python", "torch/_inductor/compile_fx.py(1): wrapper", "python"),
        ("annotation", "FusionKernelRuntime::compileFusionParallel", "compile"),
        ("annotation", "FusionKernelRuntime::FusionKernelRuntime", "compile"),
        ("annotation", "FusionExecutorCache::getKernelRuntimeFor::compileNewKRT", "compile"),
        ("annotation", "ExecutorDispatch::compile2", "compile"),
        ("annotation", "KernelExecutor::compile", "compile"),
        ("annotation", "CompiledKernel::CompiledKernel", "compile"),
        ("annotation", "executor_utils::NVRTC", "compile"),
        ("annotation", "executor_utils::Nvrtc::CompileProgram", "compile"),
        ("annotation", "executor_utils::NvrtcCreateProgram", "compile"),
        ("annotation", "GpuLower::Lower::Index::getProducerStridedIndices", "compile"),
        ("annotation", "GpuLower::lower", "compile"),
        ("annotation", "FusionKernelRuntime::runWithInputs", "annotation"),
        ("annotation", "FusionExecutorCache::runFusionWithInputs", "annotation"),
        ("annotation", "FusionExecutorCache::getKernelRuntimeFor::reuseKRT", "annotation"),
        ("annotation", "KernelExecutor::runFusion", "annotation"),
        ("python", "<built-in function collect>", "gc"),
        ("gc", "Python GC", "gc"),
        ("overhead", "CUPTI Activity Flush", "overhead"),
        ("runtime", "cudaLaunchKernel", "runtime"),
        ("runtime", "cudaGraphLaunch", "runtime"),
        ("runtime", "cuLaunchKernelEx", "runtime"),
        ("runtime", "hipModuleLaunchKernel", "runtime"),
        ("runtime", "cudaMemcpyAsync", "runtime"),
        ("runtime", "cudaStreamWaitEvent", "runtime"),
        ("runtime", "cudaEventQuery", "runtime"),
        ("runtime", "cudaDeviceSynchronize", "sync"),
        ("runtime", "cudaStreamSynchronize", "sync"),
        ("runtime", "cudaEventSynchronize", "sync"),
        ("runtime", "hipDeviceSynchronize", "sync"),
        ("runtime", "cuCtxSynchronize", "sync"),
        ("runtime", "cudaMemcpy", "sync"),
        ("runtime", "cudaMemcpy_v3020", "sync"),
        ("runtime", "hipMemcpy", "sync"),
        ("runtime", "cudaMalloc", "allocator"),
        ("runtime", "cudaMallocAsync", "allocator"),
        ("runtime", "cudaFree", "allocator"),
        ("runtime", "cudaHostAlloc", "allocator"),
        ("runtime", "hipHostMalloc", "allocator"),
        ("runtime", "hipExtMallocWithFlags", "allocator"),
        ("runtime", "cuMemCreate", "allocator"),
        ("runtime", "cudaFuncGetAttributes", "runtime"),
        ("op", "cudaDeviceSynchronize", "op"),
    ],
)
def test_kinds(started_as: str, name: str, kind: str):
    assert refined(started_as, name) == kind


@pytest.mark.parametrize(
    ("name", "kind", "source", "target"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD", "pageable", "device"),
        ("Memcpy HtoD (Pinned -> Device)", "HtoD", "pinned", "device"),
        ("Memcpy DtoH (Device -> Pageable)", "DtoH", "device", "pageable"),
        ("Memcpy DtoD (Device -> Device)", "DtoD", "device", "device"),
        ("Memcpy PtoP (Device -> Device)", "PtoP", "device", "device"),
        ("Memcpy HtoH (Managed -> Pinned)", "HtoH", "managed", "pinned"),
        ("Memcpy HtoD (Unknown -> Device)", "HtoD", None, "device"),
        ("Memcpy HtoD (Array -> Device)", "HtoD", None, "device"),
        ("CopyHostToDevice", None, None, None),
        ("Memcpy", None, None, None),
        ("", None, None, None),
    ],
)
def test_copies(name: str, kind: str | None, source: str | None, target: str | None):
    text = pl.lit(name)
    row = pl.select(kind=copy_kind(text), source=copy_memory(text, 1), target=copy_memory(text, 2)).row(0)
    assert row == (kind, source, target)


def test_element_sizes():
    expected = {
        "Float": 4,
        "BFloat16": 2,
        "Half": 2,
        "Long": 8,
        "Byte": 1,
        "Float8_e4m3fn": 1,
        "Bool": 1,
        "Double": 8,
        "ComplexDouble": 16,
    }
    assert {name: DTYPE_BYTES[name] for name in expected} == expected
