"""Tiny Nsight Systems exports built by hand: times in ns, one dict per row, only what the test is about.

A table has the columns that its rows have, as the exports of different versions do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from advisor.inputs.readers import Reading, nsys
from advisor.model.profile import Profile

Row = dict[str, Any]
Tables = Mapping[str, list[Row]]

KERNEL, MEMCPY, MEMSET = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET"))
RUNTIME, GRAPH = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("RUNTIME", "GRAPH_TRACE"))
VM = 1 << 48
STRINGS: dict[str, int] = {}


def pid(number: int) -> int:
    return VM + (number << 24)


def tid(process: int, thread: int | None = None) -> int:
    return pid(process) + (process if thread is None else thread)


def string(text: str) -> int:
    return STRINGS.setdefault(text, len(STRINGS) + 1)


def kernel(start: int, end: int, name: str = "gemm", process: int = 100, **columns: object) -> Row:
    ids = {"deviceId": 0, "streamId": 7, "globalPid": pid(process), "correlationId": None}
    size = {"gridX": 2, "gridY": 3, "gridZ": 1, "blockX": 32, "blockY": 4, "blockZ": 1}
    return {"start": start, "end": end, "demangledName": string(name), "shortName": string(name)} | ids | size | columns


def copy(start: int, end: int, **columns: object) -> Row:
    """A copy of 400 bytes from pageable host memory."""
    ids = {"deviceId": 0, "streamId": 7, "globalPid": pid(100), "correlationId": None}
    return {"start": start, "end": end, "bytes": 400, "copyKind": 1, "srcKind": 0, "dstKind": 2} | ids | columns


def memset(start: int, end: int, **columns: object) -> Row:
    ids = {"deviceId": 0, "streamId": 7, "globalPid": pid(100), "correlationId": None}
    return {"start": start, "end": end, "bytes": 64, "value": 0, "memKind": 2} | ids | columns


def call(
    start: int, end: int, name: str = "cudaLaunchKernel_v7000", correlation: int | None = None, **columns: object
) -> Row:
    ids = {"eventClass": 0, "globalTid": tid(100), "correlationId": correlation, "returnValue": 0}
    return {"start": start, "end": end, "nameId": string(name)} | ids | columns


def nvtx(start: int | None, end: int | None, text: str | None, **columns: object) -> Row:
    ids = {"eventType": 59, "globalTid": tid(100), "domainId": 0, "textId": None}
    return {"start": start, "end": end, "text": text} | ids | columns


def launched(at: int, start: int, end: int, correlation: int, **columns: object) -> Tables:
    """A kernel and the call of 2 ns that launched it at `at`."""
    return {
        RUNTIME: [call(at, at + 2, correlation=correlation)],
        KERNEL: [kernel(start, end, correlationId=correlation, **columns)],
    }


def together(*parts: Tables) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for part in parts:
        for name, rows in part.items():
            tables[name] = tables.get(name, []) + rows
    return tables


def training(steps: int, kernels: int = 10, name: str = "step {}") -> Tables:
    """Steps of 1,000 ns from 1,000 on, each a range around that many launches and kernels of 40 ns."""
    parts: list[Tables] = []
    for step in range(steps):
        begin = 1_000 * (step + 1)
        parts.append({"NVTX_EVENTS": [nvtx(begin, begin + 900, name.format(step))]})
        for k in range(kernels):
            at = begin + 50 * k
            parts.append(launched(at + 5, at + 10, at + 50, 1_000 * step + k + 1))
    return together(*parts)


def write(path: Path, tables: Tables) -> Path:
    """The tables as a database; with the texts that they refer to, and an environment that nobody may read."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("pragma synchronous = off")  # nobody waits for the disk: each table is a commit
        for name, rows in _filled(tables).items():
            columns = list(dict.fromkeys(column for row in rows for column in row))
            shown = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f'create table "{name}" ({shown})')
            places = ", ".join("?" * len(columns))
            values = ([row.get(column) for column in columns] for row in rows)
            connection.executemany(f'insert into "{name}" values ({places})', values)  # noqa: S608 - names of ours
    connection.close()
    return path


def write_parquet(folder: Path, tables: Tables) -> Path:
    """The same as a parquetdir export."""
    folder.mkdir()
    for name, rows in _filled(tables).items():
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / f"{name}.parquet")
    return folder


def _filled(tables: Tables) -> Tables:
    environment = {"devStateName": "x", "name": "env", "value": "SECRET=1"}
    strings = [{"id": number, "value": text} for text, number in STRINGS.items()]
    return {
        "StringIds": [*strings, {"id": 10**6, "value": "SECRET=1"}],
        "TARGET_INFO_SYSTEM_ENV": [environment],
        "META_DATA_CAPTURE": [{"name": "ENVIRONMENT_VARIABLE", "value": "SECRET=1"}],
        **{name: rows for name, rows in tables.items() if rows},
    }


def read(tables: Tables, folder: Path, **options: Any) -> Profile:
    return nsys.read(write(folder / "report.sqlite", tables), "report.sqlite", Reading(**options))


def gpus(rows: Iterable[Row]) -> Tables:
    return {"TARGET_INFO_GPU": list(rows)}


def _ids(**columns: object) -> Row:
    return {"deviceId": 0, "streamId": 7, "globalPid": pid(100), "contextId": 1} | columns


FULL: Final[dict[str, list[Row]]] = together(
    training(4),
    {
        RUNTIME: [
            call(-900, -890, "cuInit"),
            call(900, 905, "cudaMemcpyAsync_v3020", 501),
            call(906, 990, "cudaStreamSynchronize_v3020", 502),
            call(950, 955, "cudaGraphLaunch_v10000", 503),
        ],
        MEMCPY: [copy(-500, -400), copy(905, 950, correlationId=501)],
        MEMSET: [memset(960, 965)],
        GRAPH: [{"start": 5_000, "end": 5_100, "correlationId": 503, "graphId": 2, "graphExecId": 3} | _ids()],
        "NVTX_EVENTS": [
            nvtx(None, None, "NCCL", eventType=75, domainId=1),
            nvtx(1, 3, "ncclAllReduce", domainId=1, jsonText='{"Message size [bytes]": 8}', jsonTextId=None),
            nvtx(0, 9, "aten::mm, seq = 3, op_id = 4, sizes = [[2, 2], [2, 2]]"),
            nvtx(0, None, "left open"),
        ],
        "PROFILER_OVERHEAD": [{"start": 0, "end": 9, "globalTid": tid(100), "nameId": string("CUPTI Buffer flush")}],
        "OSRT_API": [{"start": 0, "end": 90_000, "globalTid": tid(100), "nameId": string("read")}],
        "SCHED_EVENTS": [
            {"start": 0, "cpu": 1, "isSchedIn": 0, "globalTid": tid(100), "threadState": 1},
            {"start": 90_000, "cpu": 2, "isSchedIn": 1, "globalTid": tid(100), "threadState": 0},
        ],
        "ENUM_SAMPLING_THREAD_STATE": [{"id": 1, "label": "Running"}],
        "ThreadNames": [{"nameId": string("main"), "globalTid": tid(100)}],
        "TARGET_INFO_GPU": [
            {
                "id": 0,
                "name": "NVIDIA A100",
                "totalMemory": 1 << 30,
                "smCount": 108,
                "computeMajor": 8,
                "computeMinor": 0,
            }
            | {"cuDevice": 0, "maxWarpsPerSm": 64, "threadsPerWarp": 32}
        ],
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 0, "pid": 100}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000}],
        "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.1"}],
        "TARGET_INFO_GPU_METRICS": [{"typeId": 256, "metricId": 4, "metricName": "SMs Active [Throughput %]"}],
        "GPU_METRICS": [{"timestamp": 10, "typeId": 256, "metricId": 4, "value": 50}],
        "CUDA_GPU_MEMORY_USAGE_EVENTS": [
            {"start": 1, "bytes": 9, "memoryOperationType": 0, "address": 1, "memKind": 2} | _ids()
        ],
        "MPI_RANKS": [{"globalPid": pid(100), "rank": 0}],
    },
)
"""Every table that the reader takes anything from."""
