"""Kineto traces whose events, header and bytes are changed at random."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.trees import changed, spoilt
from tests.strategies_kineto import call, event, kernel, op, step


def _steps() -> list[Any]:
    """Four lists of a step's events: a loader, ops, launches, kernels on two streams, copies, a wait, a collective."""
    steps: list[Any] = []
    for n in range(4):
        at, of = 1_000.0 * n, 10 * n
        events = [
            step(n, at, 900),
            event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 1, 60),
            op(
                at + 70, 50, **{"Input Dims": [[64, 32], [32, 64]], "Input type": ["float", "float"], "External id": of}
            ),
            call(at + 80, 5, of + 1),
            kernel(at + 90, 100, of + 1, "ampere_sgemm_128x64_tn", grid=[4, 2, 1], block=[128, 1, 1]),
            op(at + 130, 40, "aten::add", **{"Call stack": "train.py(3): step;train.py(9): main"}),
            call(at + 140, 5, of + 2),
            kernel(at + 200, 50, of + 2, "void at::native::vectorized_elementwise_kernel<4>", stream=9),
            call(at + 300, 90, of + 3, "cudaMemcpyAsync"),
            event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at + 310, 40, **_on(of + 3), bytes=4096),
            call(at + 400, 5, of + 4),
            kernel(at + 410, 70, of + 4, "ncclDevKernel_AllReduce_Sum_f32", **_collective(n)),
            call(at + 500, 30, None, "cudaDeviceSynchronize"),
            event("cuda_sync", "Context Sync", at + 500, 29, stream=7, device=0),
            event("python_function", "train.py(3): step", at + 2, 800, **{"Python id": n, "Python parent id": None}),
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 11, "ts": at + 75}
            | {
                "args": {"Bytes": 1 << 20, "Total Allocated": 1 << 22, "Total Reserved": 1 << 23, "Addr": 99}
                | {"Device Type": 1, "Device Id": 0}
            },
        ]
        steps.append(events)
    return steps


def _on(correlation: int) -> dict[str, Any]:
    return {"device": 0, "stream": 7, "correlation": correlation}


def _collective(number: int) -> dict[str, Any]:
    return {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "Group size": 2,
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
        "Seq": number,
    }


WHOLE = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42_505_273_344, "computeMajor": 8}
        | {"computeMinor": 0, "numSms": 108, "maxThreadsPerMultiprocessor": 2048},
    ],
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "profile_memory": 1,
}


def _part(random: Random) -> dict[str, Any]:
    """Some of the steps, with some of the kinds of events: what a recording lacks goes other ways, and costs less."""
    steps = _steps()[: random.choice((1, 2, 3, 4, 4))]
    share = random.choice((0.2, 0.5, 0.8, 1))
    kinds = [kind for kind in range(len(steps[0])) if random.random() < share]
    return {**WHOLE, "traceEvents": [step[kind] for step in steps for kind in kinds]}


def case(random: Random, folder: Path) -> Path:
    """Writes one changed trace."""
    data = json.dumps(changed(_part(random), random), default=lambda value: value.decode("latin-1")).encode()
    data = spoilt(data, random) if random.random() < 0.25 else data
    path = folder / "rank0.pt.trace.json"
    if random.random() < 0.2:
        path, data = path.with_name(f"{path.name}.gz"), gzip.compress(data, 1)
        data = spoilt(data, random) if random.random() < 0.3 else data
    path.write_bytes(data)
    return path
