"""A step that the device bounds: the host launches all of its kernels at once, and they run one after another."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from advisor.analysis.device.view import DeviceView
from tests.tables import A100, Row, kernel, on_host, profile, step, view

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SGEMM = "ampere_sgemm_128x64_nn"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>"
SOFTMAX_BACKWARD = "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, float, float, float>"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>"
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>"
BEGIN = 20  # us, when the first kernel starts


def op(name: str, *shapes: Sequence[int], dtype: str = "c10::BFloat16") -> Row:
    """A framework op; it spans nothing that matters here."""
    return on_host("op", 0, 1, name=name, shapes=json.dumps(shapes), dtypes=json.dumps([dtype] * len(shapes)))


def queued(
    *ran: tuple[str, float, Mapping[str, object]],
    ops: Sequence[Row] = (),
    ranges: Sequence[Row] = (),
    device: Row = A100,
) -> DeviceView:
    """One step of kernels given as (name, us, columns), in order; a column `on` is the index of the launching op."""
    device_ops, at = [], float(BEGIN)
    for i, (name, us, columns) in enumerate(ran):
        told = {"op": columns.get("on"), **{key: value for key, value in columns.items() if key != "on"}}
        device_ops.append(kernel(at, at + us, 2 + i / 10, name=name, **told))
        at += us
    calls = (0, 2 + len(ran) / 10)
    return view(profile(device_ops, [*ops, *ranges], [step(1, 0, at, host=calls)], devices=[device]))
