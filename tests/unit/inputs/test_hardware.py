from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.inputs.hardware import Gpu, generation, has_tensor_cores, match, table

SHARED = Path(__file__).parents[3].parent / "shared"
MIB = 1 << 20
GIB = 1 << 30


def described(text: str) -> str | None:
    gpu = match(text)
    return gpu.id if gpu else None


# ---------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("Tesla V100-DGXS-32GB", "v100-dgxs-32gb"),
        ("Tesla V100S-PCIE-32GB", "v100s-pcie-32gb"),
        ("Tesla P100-PCIE-12GB", "p100-pcie-12gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("NVIDIA GeForce RTX 3070 Ti", "rtx-3070-ti"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX 5000 Ada Generation", "rtx-5000-ada"),
        ("NVIDIA RTX 5000 Ada Generation Laptop GPU", "rtx-5000-ada-laptop"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "rtx-3060-laptop"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA GeForce RTX 5070 Ti", "rtx-5070-ti"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-blackwell"),
        ("NVIDIA RTX A4000", "rtx-a4000"),
        ("AMD Instinct MI355X", "mi355x"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA A800-SXM4-80GB", "a800-sxm4-80gb"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA H200", "h200-sxm5-141gb"),
        ("NVIDIA H200 141GB HBM3e", "h200-sxm5-141gb"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),  # 480 GB is the CPU's
        ("NVIDIA B200", "b200-sxm-180gb"),
        ("NVIDIA GB200", "gb200"),
        ("AMD Instinct MI210", "mi210"),
        ("AMD Instinct MI250X", "mi250x-gcd"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("AMD Instinct MI325X", "mi325x"),
    ],
)
def test_a_name_in_full_is_one_entry(name: str, expected: str) -> None:
    assert described(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        *(None, "", " ", "???", "GPU", "NVIDIA", "NVIDIA Graphics Device", "AMD Radeon Graphics", "Nvidia GPU (Volta)"),
        *("Intel(R) UHD Graphics", "Intel(R) Iris(R) Xe Graphics", "Intel(R) Arc(TM) Pro A40 Graphics"),
        *("Microsoft Basic Render Driver", "AMD A10-7850K Radeon R7", "Apple A10 GPU", "TPU v6 Lite"),
        *("NVIDIA RTX A1000", "NVIDIA RTX A2000 12GB", "NVIDIA A100X", "NVIDIA A2", "NVIDIA H20", "NVIDIA GB300"),
        *("NVIDIA GeForce RTX 3070 Ti Laptop GPU", "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 4090 D"),
        *("NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA GeForce RTX 3080 Ti", "NVIDIA TITAN RTX"),
        *("NVIDIA RTX 4000 Ada Generation Laptop GPU", "NVIDIA RTX 4000 Ada Generation", "Quadro RTX 6000"),
        *("NVIDIA GeForce RTX 3080 12GB", "NVIDIA GeForce RTX 3080 12 GB", "NVIDIA H200 NVL", "NVIDIA H100 96GB HBM3"),
        *("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A10-24Q", "GRID A100-40C", "Tesla V100-FHHL-16GB"),
        *("Tesla V100-SXM3-32GB-H", "NVIDIA GH200 144G HBM3e", "AMD Instinct MI300A", "V100 or MI300X", "H100 A100"),
    ],
)
def test_another_part_or_no_name_is_none(name: str | None) -> None:
    assert match(name) is None


def test_every_entry_is_found_by_its_own_model_and_figures() -> None:
    for gpu in table():
        found = match(gpu.model, memory_bytes=gpu.memory_bytes, sm_count=gpu.sm_count, capability=gpu.capability)
        assert found is not None
        assert gpu == found or gpu in found.variants


# ------------------------------------------------------------------------- what the figures decide


def test_variants_that_nothing_decides_are_not_guessed_between() -> None:
    gpu = match("NVIDIA A100-PG509-200", memory_bytes=42_505_273_344, sm_count=108, capability=8.0)
    assert gpu is not None
    assert gpu.id == "a100-sxm4-40gb or a100-pcie-40gb"
    assert (gpu.model, gpu.memory_gb, gpu.memory_bandwidth_gbs) == ("A100", 40, 1555)
    assert gpu.peak_tflops["bf16"] == 312
    assert gpu.link is None  # NVLink, or a bridge that may be there
    assert {source for variant in gpu.variants for source in variant.sources} == set(gpu.sources)


def test_without_memory_40_and_80_gb_stay_open() -> None:
    gpu = match("A100-SXM4")
    assert gpu is not None
    assert gpu.memory_gb is gpu.memory_bytes is gpu.memory_bandwidth_gbs is None
    assert gpu.link_gbs == 300
    assert [variant.memory_gb for variant in gpu.variants] == [40, 80]


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"sm_count": 114}, "h100-pcie-80gb"),
        ({"memory_bytes": 94 * GIB}, "h100-nvl-94gb"),
        ({"memory_bytes": 80 * GIB, "sm_count": 132}, "h100-sxm5-80gb"),
        ({"memory_bytes": 84_942_979_072}, "h100-pcie-80gb or h100-sxm5-80gb"),
        ({"sm_count": 0, "memory_bytes": 94 * GIB, "capability": 0.0}, "h100-nvl-94gb"),  # zero: not reported
    ],
)
def test_figures_decide_between_variants(figures: dict[str, Any], expected: str) -> None:
    gpu = match("NVIDIA H100", **figures)
    assert gpu is not None
    assert gpu.id == expected


def test_memory_that_ecc_takes_is_no_contradiction() -> None:
    gpu = match("Tesla T4", memory_bytes=15_843_721_216, sm_count=40, capability=7.5)  # 92 % of 16 GiB
    assert gpu is not None
    assert gpu.memory_bytes == 16 * GIB


@pytest.mark.parametrize(
    "figures",
    [
        {"sm_count": 14},  # a slice of one
        {"memory_bytes": 10 * GIB},
        {"capability": 8.0},
        {"capability": float("nan")},
        {"memory_bytes": 10**400},
        {"memory_bytes": -1},
    ],
)
def test_figures_that_contradict_the_name_rule_it_out(figures: dict[str, Any]) -> None:
    assert match("NVIDIA H100 80GB HBM3", **figures) is None


@pytest.mark.parametrize(
    ("name", "gib", "sm_count", "capability", "expected"),
    [
        ("", 191.98, 304, 9.4, "mi300x"),
        (None, 191.98, 304, 9.4, "mi300x"),
        ("AMD Radeon Graphics", 63.98, 104, 9.0, "mi210 or mi250-gcd"),  # the same die
        ("AMD Radeon Graphics", 63.98, 110, 9.0, "mi250x-gcd"),
        ("", 14.75, 40, 7.5, "t4"),
        ("Nvidia GPU (Volta)", 15.78, 80, 7.0, "v100-sxm2-16gb or v100-dgxs-16gb or v100-pcie-16gb"),
        ("", 79.18, 132, 9.0, "h100-sxm5-80gb or h800-sxm5-80gb"),
        ("AMD Radeon Graphics", 79.18, 132, 9.0, None),  # not AMD's figures
        ("", 23.99, 128, 8.9, None),  # a GeForce has workstation and laptop siblings of the same figures
        ("NVIDIA RTX 5880 Ada Generation", 47.5, 142, 8.9, None),  # the figures of an L40
        ("NVIDIA PG506-230", 79.18, 108, 8.0, None),  # a name it is, if an unknown one
    ],
)
def test_a_name_without_a_model_leaves_it_to_the_figures(
    name: str | None, gib: float, sm_count: int, capability: float, expected: str | None
) -> None:
    gpu = match(name, memory_bytes=int(gib * GIB), sm_count=sm_count, capability=capability)
    assert (gpu and gpu.id) == expected


def test_all_three_figures_are_needed_where_the_name_says_nothing() -> None:
    assert match("", memory_bytes=192 * GIB, sm_count=304) is None
    assert match("", sm_count=304, capability=9.4) is None
    assert match("", memory_bytes=192 * GIB, capability=9.4) is None


def test_undecided_figures_of_an_unnamed_a100_exclude_the_link_alone() -> None:
    gpu = match("", memory_bytes=79 * GIB, sm_count=108, capability=8.0)
    assert gpu is not None
    assert gpu.model == "A100 or A800"
    assert (gpu.peak_tflops["tf32"], gpu.link_gbs) == (156, None)


# --------------------------------------------------------------------------------------- properties

names = st.sampled_from([f"{gpu.vendor} {gpu.model} {form}" for gpu in table() for form in (*gpu.forms, "")])
figure = st.none() | st.integers()


@given(st.text(), figure, figure, st.none() | st.floats())
@example("NVIDIA H100", 10**400, 132, 9.0)
def test_no_input_raises(name: str, memory: int | None, sm_count: int | None, capability: float | None) -> None:
    gpu = match(name, memory_bytes=memory, sm_count=sm_count, capability=capability)
    assert gpu is None or isinstance(gpu, Gpu)
    has_tensor_cores(capability, name)


@given(names, st.sampled_from([str.upper, str.lower, str.title]), st.sampled_from([" ", "  ", "\t", " \n", "-", "_"]))
def test_case_white_space_and_punctuation_do_not_matter(name: str, recase: Any, space: str) -> None:
    assert match(space + recase(name).replace(" ", space) + space) == match(name)


@given(st.sampled_from(table()), st.text("abcxyzSTG0123456789", min_size=1))
def test_a_model_inside_a_longer_word_is_no_match(gpu: Gpu, tail: str) -> None:
    found = match(f"{gpu.vendor} {gpu.model}{tail}")
    assert found is None or found.model != gpu.model


@given(names)
def test_what_is_merged_is_what_all_variants_say(name: str) -> None:
    gpu = match(name)
    assert gpu is not None
    for variant in gpu.variants:
        assert gpu.peak_tflops.items() <= variant.peak_tflops.items()
        assert gpu.forms <= variant.forms
        assert gpu.memory_gb in (None, variant.memory_gb)
        assert gpu.link in (None, variant.link)


# ------------------------------------------------------------------------------------- Tensor Cores


@pytest.mark.parametrize(
    ("name", "having", "lacking"),
    [
        ("Tesla P100-SXM2-16GB", "", "fp16 bf16 tf32 fp8 int8"),
        ("Tesla V100-SXM2-16GB", "fp16", "bf16 tf32 fp8 int8"),
        ("Tesla T4", "fp16 int8", "bf16 tf32 fp8"),
        ("NVIDIA A100-SXM4-40GB", "fp16 bf16 tf32 int8 fp64", "fp8 fp32"),
        ("NVIDIA L4", "fp16 bf16 tf32 int8 fp8", "fp64"),
        ("NVIDIA H200", "fp16 bf16 tf32 int8 fp8", "fp32 nonsense"),
        ("AMD Instinct MI210", "fp16 bf16 int8", "tf32 fp8"),
        ("AMD Instinct MI300X", "fp16 bf16 tf32 fp8 int8", "fp32"),
    ],
)
def test_supported_dtypes_follow_the_generation(name: str, having: str, lacking: str) -> None:
    gpu = match(name)
    assert gpu is not None
    assert {*having.split()} <= gpu.tensor_dtypes
    assert not gpu.tensor_dtypes & {*lacking.split()}


def test_tensor_core_gain_is_the_ratio_of_peaks() -> None:
    a100, rtx, p100 = match("NVIDIA A100-SXM4-80GB"), match("NVIDIA GeForce RTX 3090"), match("Tesla P100-SXM2-16GB")
    assert a100
    assert rtx
    assert p100
    assert a100.tensor_core_gain("fp32", "tf32") == 8.0  # 156 / 19.5
    assert a100.tensor_core_gain("tf32", "bf16") == 2.0
    assert a100.tensor_core_gain("fp32", "fp8") is None
    assert a100.tensor_core_gain("fp4", "bf16") is None
    assert rtx.tensor_core_gain("fp32", "tf32") == 1.0  # GeForce gains nothing
    assert p100.tensor_core_gain("fp32", "fp16") is None  # twice the rate, on ordinary cores


def test_gain_of_open_variants_is_the_least_of_theirs() -> None:
    gpu = match("NVIDIA H100")
    assert gpu is not None
    assert "fp32" not in gpu.peak_tflops  # 51.2, 60, 67
    assert gpu.tensor_core_gain("fp32", "tf32") == pytest.approx(417.5 / 60)  # NVL; PCIe 7.38, SXM 7.38


@pytest.mark.parametrize(
    ("capability", "name", "expected"),
    [
        (None, "", None),
        (0.0, "Microsoft Basic Render Driver", None),
        (6.1, "NVIDIA GeForce GTX 1080 Ti", False),
        (7.0, "", True),
        (7.5, "NVIDIA TITAN RTX", True),
        (7.5, "NVIDIA GeForce GTX 1660 Ti", False),
        (7.5, "NVIDIA T1000", False),
        (7.5, "Tesla T4", True),
        (8.6, "NVIDIA GeForce RTX 3070 Ti", True),
        (12.0, "NVIDIA GeForce RTX 5090", True),
        (9.0, "AMD Radeon Graphics", None),  # Vega has none, MI250 has
        (9.4, "AMD Instinct MI300X", True),
        (10.3, "AMD Radeon RX 6900 XT", False),
        (11.0, "AMD Radeon RX 7900 XTX", True),
    ],
)
def test_tensor_cores_by_capability(capability: float | None, name: str, *, expected: bool | None) -> None:
    assert has_tensor_cores(capability, name) is expected


# ---------------------------------------------------------------------------------------- the table

# FP32 operations per SM (CU) and clock: NVIDIA and AMD architecture white papers, an FMA counted as two.
FP32_PER_CLOCK = {
    "NVIDIA": {3.7: 384, 6.0: 128, 7.0: 128, 7.5: 128, 8.0: 128, 8.6: 256, 8.9: 256, 9.0: 256, 10.0: 256, 12.0: 256},
    "AMD": {9.0: 128, 9.4: 256, 9.5: 256},
}


def test_the_fp32_peak_of_the_units_is_that_of_a_clock_that_chips_run_at() -> None:
    for gpu in filter(lambda gpu: gpu.sm_count, table()):
        per_clock = (gpu.sm_count or 0) * FP32_PER_CLOCK[gpu.vendor][gpu.capability]
        assert 0.8 < 1000 * gpu.peak_tflops["fp32"] / per_clock < 3.2, gpu.id  # GHz


def test_an_entry_hangs_together() -> None:
    for gpu in table():
        assert gpu.sources, gpu.id
        assert set(gpu.tensor_dtypes) - {"fp64"} <= gpu.peak_tflops.keys(), gpu.id
        assert (gpu.link is None) <= (gpu.link_gbs is None), gpu.id
        assert gpu.nccl_ring_gbs is None or (gpu.link_gbs or 0) * 0.7 <= gpu.nccl_ring_gbs <= (gpu.link_gbs or 0)
        for curve in gpu.all_reduce_curves.values():
            assert list(curve) == sorted(curve), gpu.id
            assert list(curve.values()) == sorted(curve.values()), gpu.id
        known = {"all", *Gpu.__struct_fields__}
        assert {field.split(".")[0] for field in gpu.unsourced} <= known, gpu.id


def test_ids_are_unique() -> None:
    assert len({gpu.id for gpu in table()}) == len(table())


@pytest.mark.parametrize(("mib", "us"), [(0.0625, 19.5), (1, 27.4), (64, 325), (1024, 4029), (16384, 62648)])
def test_h100_curve_gives_back_the_measured_times(mib: float, us: float) -> None:
    gpu = match("NVIDIA H100 80GB HBM3")
    assert gpu is not None
    bandwidth = gpu.all_reduce_curves[8][mib]
    assert 2 * 7 / 8 * mib * MIB / (bandwidth * 1e9) * 1e6 == pytest.approx(us, rel=0.005)


@pytest.mark.parametrize(
    ("name", "capability", "gain"),
    [
        ("NVIDIA GeForce RTX 4060 Ti", 8.9, 1.0),  # TF32 is no faster on some GPUs of this generation
        ("NVIDIA RTX A2000", 8.6, 1.0),
        ("NVIDIA A100X", 8.0, 8.0),
    ],
)
def test_an_unlisted_gpu_is_one_of_its_generation(name: str, capability: float, gain: float) -> None:
    chip = generation(name, capability)
    assert chip is not None
    assert match(name, capability=capability) is None
    assert "tf32" in chip.tensor_dtypes
    assert chip.tensor_core_gain("fp32", "tf32") == pytest.approx(gain, rel=0.01)
    assert not chip.peak_tflops
    assert chip.memory_bandwidth_gbs is None


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA B300", 10.3),  # a generation that the table lacks
        ("", 9.0),  # of NVIDIA or of AMD
        ("NVIDIA GeForce GTX 1660", 7.5),  # without Tensor Cores, unlike the rest
        ("NVIDIA H20", None),
        (None, None),
    ],
)
def test_a_generation_that_is_not_certain_is_none(name: str | None, capability: float | None) -> None:
    assert generation(name, capability) is None


def test_a_misspelt_field_in_the_table_is_refused() -> None:
    row = {"id": "x", "model": "X", "vendor": "NVIDIA", "capability": 9.0, "tensor_dtypes": [], "peak_tflops": {}}
    assert msgspec.convert(row, Gpu).id == "x"
    with pytest.raises(msgspec.ValidationError, match="peak_tflop"):
        msgspec.convert(row | {"peak_tflop": {}}, Gpu)


def test_a_gpu_is_frozen() -> None:
    with pytest.raises(AttributeError):
        table()[0].sm_count = 1  # type: ignore[misc]


def test_importing_does_not_read_the_table() -> None:
    code = "import advisor.inputs.hardware as h; assert h.table.cache_info().currsize == 0"
    subprocess.run([sys.executable, "-c", code], check=True)


# -------------------------------------------------------------------- devices of recorded profiles


def kineto_devices(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
    at = text.find('"deviceProperties"')
    return json.JSONDecoder().raw_decode(text, text.index("[", at))[0] if at >= 0 else []


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ("alexnet-cuda-sync", "a100-sxm4-40gb or a100-pcie-40gb"),
        ("amd-mi250", "mi210 or mi250-gcd"),
        ("bert-small-h100", "h100-sxm5-80gb"),
        ("ddp-a100-6steps", "a100-sxm4-40gb or a100-pcie-40gb"),
        ("ddp-resnet18-mi300", "mi300x"),
        ("dlrm-8rank-v100", "v100-sxm2-32gb"),
        ("event-sync-multi-stream", "a100-sxm4-40gb or a100-pcie-40gb"),
        ("memory-events-nccl", "v100-sxm2-32gb"),
        ("nccl-metadata-a100", "a100-sxm4-40gb or a100-pcie-40gb"),
        ("ns-resolution", "v100-sxm2-32gb"),
        ("qwen-h100", "h100-sxm5-80gb"),
        ("qwen-mi300", "mi300x"),
        ("resnet50-v100-workers0", "v100-dgxs-32gb"),
        ("resnet50-v100-workers4", "v100-dgxs-32gb"),
        ("triton-one-kernel", "a100-sxm4-40gb or a100-pcie-40gb"),
        ("vllm-decode-cuda-graph", "mi300x"),
        ("vllm-eager-b200", "b200-sxm-180gb"),
    ],
)
def test_devices_of_kineto_traces(trace: str, expected: str) -> None:
    folder = SHARED / "traces" / "kineto" / trace
    if not folder.is_dir():
        pytest.skip("the shared traces are not here")
    devices = [device for path in sorted(folder.glob("*.json.gz")) for device in kineto_devices(path)]
    assert devices
    for device in devices:
        gpu = match(
            device["name"],
            memory_bytes=device["totalGlobalMem"],
            sm_count=device["numSms"],
            capability=device["computeMajor"] + device["computeMinor"] / 10,
        )
        assert gpu is not None
        assert gpu.id == expected
        assert gpu.max_threads_per_sm == device.get("maxThreadsPerMultiprocessor", gpu.max_threads_per_sm)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("cloverleaf-a100-schema3.13", "a100-sxm4-80gb"),
        ("h200-single-step", "h200-sxm5-141gb"),
        ("llm-2.7b-a100-pageable", "a100-sxm4-80gb"),
        ("llm-3070ti-17k-kernels", "rtx-3070-ti"),
        ("no-cuda-activity", "rtx-4070-ti"),
        ("no-metadata-table", None),
        ("non-nvidia-gpus-listed", "rtx-5000-ada-laptop"),  # and an Intel chip and a renderer, of no multiprocessors
        ("saxpy-mpi-a100-schema2.9", "a100-sxm4-40gb"),
        ("titanrtx-schema3.0", None),
    ],
)
def test_devices_of_nsight_systems_exports(file: str, expected: str | None) -> None:
    path = SHARED / "traces" / "nsys" / f"{file}.sqlite"
    if not path.is_file():
        pytest.skip("the shared traces are not here")
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    columns = "name, totalMemory, smCount, computeMajor + computeMinor / 10.0, memoryBandwidth"
    rows = db.execute(f"SELECT {columns} FROM TARGET_INFO_GPU").fetchall()  # noqa: S608 - a constant
    db.close()
    assert rows
    for name, memory, sm_count, capability, bandwidth in rows:
        gpu = match(name, memory_bytes=memory, sm_count=sm_count, capability=capability)
        assert (gpu and gpu.id) == (expected if sm_count else None)
        if gpu and gpu.memory_bandwidth_gbs:
            assert gpu.memory_bandwidth_gbs == pytest.approx(bandwidth / 1e9, rel=0.03)
