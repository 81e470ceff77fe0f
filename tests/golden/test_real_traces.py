"""Real recordings against their own JSON, their provenance, and torch-tb-profiler's step times."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from advisor.inputs.readers import kineto
from advisor.inputs.readers.kineto.columns import DEVICE_CATEGORIES, HOST_CATEGORIES
from advisor.model.profile import SCHEMAS, Profile
from tests import profiles
from tests.effort import every, soak
from tests.peer_windows import windows_of_marks

SHARED = Path(__file__).parents[2].parent / "shared"
TRACES = SHARED / "traces/kineto"
ORACLES = SHARED / "oracles/kineto"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not there")


class Facts(NamedTuple):
    """What is known of a recording without reading it with our reader."""

    rank: int | None
    world_size: int | None
    backend: str | None
    device: str | None  # of the one that worked
    steps: tuple[int, ...]


V100, A100 = "Tesla V100-SXM2-32GB", "NVIDIA A100-PG509-200"
DGX, H100 = "Tesla V100-DGXS-32GB", "NVIDIA H100 80GB HBM3"
FACTS = {
    "alexnet-cuda-sync": Facts(0, None, None, A100, ()),
    "amd-mi250": Facts(None, None, None, "AMD Radeon Graphics", (1, 2)),
    "bert-small-h100": Facts(None, None, None, H100, (6,)),
    "cpu-only": Facts(34, 300, "gloo", None, (551, 552, 553, 554, 555)),
    "ddp-a100-6steps": Facts(3, 8, "nccl", A100, (1009, 1010, 1011, 1012, 1013, 1014)),
    "ddp-resnet18-mi300": Facts(None, None, None, "AMD Instinct MI300X", (0, 1, 2, 3, 4)),
    "dlrm-8rank-v100": Facts(0, 8, "nccl", V100, (10,)),
    "event-sync-multi-stream": Facts(0, None, None, A100, ()),
    "memory-events-nccl": Facts(1, 2, "nccl", V100, (2, 3, 4, 5, 6)),
    "nccl-metadata-a100": Facts(0, 2, "nccl", A100, (4, 5, 6)),
    "ns-resolution": Facts(0, 1, "nccl", V100, (101, 102, 103, 104, 105)),
    "qwen-h100": Facts(None, None, None, H100, (6,)),
    "qwen-mi300": Facts(None, None, None, "AMD Instinct MI300X VF", (6,)),
    "resnet50-v100-workers0": Facts(None, None, None, DGX, (5, 6, 7, 8, 9, 10)),
    "resnet50-v100-workers4": Facts(None, None, None, DGX, (5, 6, 7, 8, 9, 10)),
    "triton-one-kernel": Facts(None, None, None, A100, (1,)),
    "vllm-decode-cuda-graph": Facts(0, 1, "nccl", None, ()),  # its devices have no name
    "vllm-eager-b200": Facts(0, 8, "nccl", "NVIDIA B200", ()),
    "cuda-graph-replay-gaps": Facts(0, 16, "nccl", "NVIDIA A100-SXM4-80GB", (550, 551, 552, 553, 554)),
    "kernels-not-recorded": Facts(None, None, None, None, ()),
    "owlv2-mi300": Facts(None, None, None, "AMD Instinct MI300X VF", tuple(range(5))),  # five images in one mark
    "param-linear-2080ti": Facts(None, None, None, "NVIDIA GeForce RTX 2080 Ti", tuple(range(40))),
    "particle-transformer-bs128": Facts(None, None, None, "NVIDIA A100-PCIE-40GB", ()),
    "particle-transformer-bs256-jit": Facts(None, None, None, "NVIDIA A100-PCIE-40GB", ()),
    "resnet-ddp-mi300": Facts(0, 8, "nccl", "AMD Instinct MI300X", (15, 16, 17)),
    "sglang-prefill-decode-mi300": Facts(0, 1, "nccl", "AMD Instinct MI300X", ()),
    "autoencoder-a40-no-kernels": Facts(None, None, None, None, ()),
    "copies-pageable-a100": Facts(None, None, None, "NVIDIA A100-SXM4-40GB", tuple(range(5, 15))),
    "copies-pinned-a100": Facts(None, None, None, "NVIDIA A100-SXM4-40GB", tuple(range(5, 15))),
    "dlrm-forward-4rank-v100": Facts(0, 4, "nccl", "Tesla V100-SXM2-16GB", (4, 5, 6)),
    "llama-tp2-allgather": Facts(0, 2, "nccl", "NVIDIA GeForce RTX 4090", ()),
    "llama-tp2-cold": Facts(0, 2, "nccl", "NVIDIA GeForce RTX 4090", ()),
    "megatron-tp8-a100": Facts(0, 8, "nccl", "NVIDIA A100-SXM4-80GB", (3,)),
    "swin-a4000-cold-start": Facts(None, None, None, "NVIDIA RTX A4000", ()),
}
NOTES = {  # the notes of these; the others have none
    "ddp-resnet18-mi300": "steps_by_optimizer",
    "param-linear-2080ti": "steps_by_optimizer",
    "kernels-not-recorded": "kernels_not_recorded",
    "autoencoder-a40-no-kernels": "kernels_not_recorded",
    "dlrm-forward-4rank-v100": "clock_behind",
    "owlv2-mi300": "steps_in_mark",
}
WITHOUT_DEVICE_WORK = {"cpu-only", "kernels-not-recorded", "autoencoder-a40-no-kernels"}
SMALL = sorted(  # quick to read twice, and their device's clock stays as it is
    set(FACTS)
    - {"dlrm-forward-4rank-v100", "megatron-tp8-a100"}
    - {"ddp-a100-6steps", "memory-events-nccl", "resnet50-v100-workers4", "cuda-graph-replay-gaps", "owlv2-mi300"}
    - {"resnet-ddp-mi300", "sglang-prefill-decode-mi300", "particle-transformer-bs256-jit"}
)
STEP_ORACLES = ["resnet50-v100-workers0", "resnet50-v100-workers4", "ns-resolution"]


def first(name: str) -> Path:
    """The file of a recording; of its first worker where there are several."""
    return min((TRACES / name).glob("*.json*"))


@cache
def content(name: str) -> bytes:
    """The JSON text of a recording."""
    data = first(name).read_bytes()
    return gzip.decompress(data) if first(name).suffix == ".gz" else data


def read(name: str) -> Profile:
    return profiles.read(first(name))


def test_no_recording_is_forgotten():
    assert {path.name for path in TRACES.iterdir()} == set(FACTS)


@pytest.mark.parametrize("name", soak(FACTS, unless=profiles.is_common))
def test_ranks_devices_and_steps(name: str):
    profile, facts = read(name), FACTS[name]
    assert [note for note in profile.salvaged if note.code != NOTES.get(name)] == []
    assert profile.workers.select("rank", "world_size", "backend").row(0) == facts[:3]
    assert tuple(profile.steps["step"]) == facts.steps
    worked = profile.device_ops.select("device").unique().join(profile.devices, on="device", how="left")
    assert worked["name"].to_list() == ([] if name in WITHOUT_DEVICE_WORK else [facts.device])


@pytest.mark.parametrize("name", soak(SMALL, unless=profiles.is_common))
def test_every_event_is_read_as_it_stands(name: str):
    profile, document = read(name), json.loads(content(name))
    as_recorded = profile.host_ops.filter(pl.col("kind") != "start_up")  # ranges that the reader adds
    profile = replace(profile, host_ops=as_recorded)
    events, base = document["traceEvents"], document.get("baseTimeNanoseconds", 0)
    counted = Counter(event.get("cat") for event in events)
    expected = {
        "host_ops": sum(counted[category] for category in HOST_CATEGORIES),
        "device_ops": sum(counted[category] for category in DEVICE_CATEGORIES),
        "allocations": sum(event["name"] == "[memory]" for event in events),
    }
    assert {table: getattr(profile, table).height for table in expected} == expected

    in_file = [event for event in events if event.get("cat") in {"kernel", "Kernel"}]
    kernels = profile.device_ops.filter(pl.col("kind").is_in(["kernel", "collective"]))
    assert kernels["name"].to_list() == [event["name"] for event in in_file]
    starts = [base + round(float(event["ts"]) * 1000) for event in in_file]
    worst = max((abs(a - b) for a, b in zip(kernels["start_ns"], starts, strict=True)), default=0)
    assert worst <= 256  # what this product loses in a double
    assert kernels["dur_ns"].to_list() == [round(float(event["dur"]) * 1000) for event in in_file]
    assert kernels["stream"].to_list() == [int(event["args"]["stream"]) for event in in_file]


@pytest.mark.parametrize("name", STEP_ORACLES)
def test_steps_last_as_long_as_torch_tb_profiler_says(name: str):
    raw = json.loads((ORACLES / f"{name}.tb-plugin.json").read_text())["raw"]
    expected = {
        int(number): categories[-1] for number, categories in raw["steps"].items()
    }  # us; the last is their total
    found = {
        step: dur_ns / 1000 for step, dur_ns in windows_of_marks(read(name)).steps.select("step", "dur_ns").iter_rows()
    }
    assert found == pytest.approx(expected, abs=1)


def test_steps_last_as_long_as_torch_tb_profiler_says_where_it_misses_the_communication():
    """The windows do not depend on how it sorts the kernels into categories."""
    for name in ("nccl-metadata-a100", "amd-mi250"):
        raw = json.loads((ORACLES / f"{name}.tb-plugin.json").read_text())["raw"]
        whole = windows_of_marks(read(name)).steps.filter(pl.col("incomplete").is_null())
        found = {str(step): dur_ns / 1000 for step, dur_ns in whole.select("step", "dur_ns").iter_rows()}
        assert found == pytest.approx({step: categories[-1] for step, categories in raw["steps"].items()}, abs=1)


def test_collectives_of_two_ranks():
    collectives = read("nccl-metadata-a100").collectives
    assert collectives.height == 21
    assert set(collectives["ranks"]) == {"[0, 1]"}
    size = collectives["dtype"].replace_strict({"Float": 4, "Long": 8})
    assert (collectives["bytes"] == pl.Series(_elements("nccl-metadata-a100", "In msg nelems")) * size).all()


def test_a_gather_is_sized_by_what_comes_out():
    row = read("vllm-eager-b200").collectives.filter(pl.col("op") == "all_gather").row(0, named=True)
    (elements,) = _elements("vllm-eager-b200", "Out msg nelems")
    assert row["bytes"] == 2 * elements


def _elements(name: str, argument: str) -> list[int]:
    """What the file says of each collective kernel."""
    events = json.loads(content(name))["traceEvents"]
    return [event["args"][argument] for event in events if event.get("cat") == "kernel" and argument in event["args"]]


def test_what_the_provenance_counts():
    profile = read("memory-events-nccl")
    assert (profile.allocations.height, profile.collectives.height) == (28_010, 2_020)


def test_one_graph_launch_stands_behind_hundreds_of_kernels():
    profile = read("vllm-decode-cuda-graph")
    calls = profile.device_ops.group_by("launch").len().filter(pl.col("len") > 100)["launch"]
    assert {profile.host_ops["name"][call] for call in calls} == {"hipGraphLaunch"}


@pytest.mark.parametrize("name", ["cpu-only", "ns-resolution"])
def test_users_hosts_and_jobs_are_not_kept(name: str):
    public = {"deviceProperties", "distributedInfo", "traceName", "displayTimeUnit"}
    header = {key: value for key, value in json.loads(content(name)).items() if key not in {*public, "traceEvents"}}
    private = [
        value for value in header.values() if isinstance(value, str) and len(value) > 5
    ]  # "prod" is an op's name
    assert private
    kept = "".join(getattr(read(name), table).write_ndjson() for table in SCHEMAS)
    assert [value for value in private if value in kept] == []


@pytest.mark.parametrize("name", ["nccl-metadata-a100", "dlrm-8rank-v100", "ns-resolution"])
@pytest.mark.parametrize("tenths", every(2, [3, 5, 7, 9]))
def test_no_step_of_a_truncated_recording_is_called_whole_that_lacks_device_work(name: str, tenths: int):
    """Profilers write buffers, not always in order of time: the first of these lacks work in its first steps."""
    whole, text = read(name), content(name)
    cut = kineto.read(io.BytesIO(text[: len(text) * tenths // 10]), "cut.json")
    work = (
        cut.device_ops.group_by("step").len().join(whole.device_ops.group_by("step").len(), on="step", suffix="_whole")
    )
    believed = cut.steps.filter(pl.col("incomplete").is_null()).join(work, on="step", how="left")
    assert believed.filter(pl.col("len").ne_missing(pl.col("len_whole"))).height == 0
    assert believed.height < whole.steps.height
    assert believed.height or tenths < 9 or name == "dlrm-8rank-v100"
