"""Real profiles of TensorFlow and JAX against what is known of them and what their own tools say."""

from __future__ import annotations

import json
import re
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from advisor.cli import main
from advisor.engine import check
from advisor.errors import ReadError
from advisor.inputs.readers import xplane
from advisor.metrics import Measurements
from advisor.model.clause import Note
from advisor.model.intervals import Intervals
from advisor.model.profile import Profile
from advisor.options import Options
from advisor.present.report import figures
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import judge
from tests import profiles

SHARED = Path(__file__).parents[2].parent / "shared"
TRACES = SHARED / "traces/xplane"
MALFORMED = SHARED / "traces/malformed"
ORACLES = SHARED / "oracles/xplane"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not there")


class Facts(NamedTuple):
    """What is known of a profile without reading it with our reader."""

    framework: str
    devices: int
    working: tuple[int, ...]  # devices that ran kernels
    steps: tuple[int, ...]
    device_ops: int


FACTS = {
    "jax-cpu": Facts("jax", 0, (), tuple(range(10)), 0),
    "jax08_attention-mi300": Facts("jax", 8, (0,), (), 105),
    "jax08_gemm-mi300": Facts("jax", 8, (0,), (), 54),
    "jax_conv_minimal_08-mi300": Facts("jax", 8, tuple(range(8)), (), 235),
    "te-attention-mi355": Facts("jax", 8, (0,), (1, 2, 3, 4), 150),
    "tf-compute-bound": Facts("tensorflow", 0, (), tuple(range(12)), 0),
    "tf-gpu-multi-worker": Facts("tensorflow", 8, (4, 6), (0,), 1556),
    "tf-input-bound": Facts("tensorflow", 0, (), tuple(range(12)), 0),
    "tpu-inference": Facts("jax", 4, (0, 1, 2, 3), (), 6013),
}


def read(name: str) -> Profile:
    return profiles.read(TRACES / name)


@cache
def oracle(name: str) -> Any:
    return json.loads((ORACLES / f"{name}.json").read_text())


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    """A table of the DataTable format, a dict per row."""
    names = [column["id"] for column in table["cols"]]
    return [dict(zip(names, (cell.get("v") for cell in row["c"]), strict=True)) for row in table["rows"]]


def test_no_profile_is_forgotten():
    assert {path.name for path in TRACES.iterdir() if path.is_dir()} == set(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_devices_steps_and_framework(name: str):
    profile, facts = read(name), FACTS[name]
    assert profile.workers["framework"].to_list() == [facts.framework]
    assert profile.devices.height == facts.devices
    kernels = profile.device_ops.filter(pl.col("kind") == "kernel")
    assert tuple(kernels["device"].unique().sort()) == facts.working
    assert tuple(profile.steps["step"].unique().sort()) == facts.steps
    assert profile.device_ops.height == facts.device_ops
    cut = profile.steps.filter(pl.col("incomplete").is_not_null())  # inferred steps: the last has no next one
    assert cut["step"].to_list() == ([4] if name == "te-attention-mi355" else [])


def test_steps_of_the_gpus_as_tensorflow_tells_them():
    """GPU 6 sets the pace with 21.310352 ms; the two steps lie 628 ms apart."""
    profile = read("tf-gpu-multi-worker")
    analysis = oracle("tf-gpu-multi-worker.tensorflow-2.12.1.overview_page")["input_analysis"]
    steps = dict(profile.steps.select("device", "dur_ns").rows())
    assert steps == {4: 19_865_491, 6: round(analysis["step_time_summary"]["average"] * 1e6)}
    assert profile.device_ops["launch"].null_count() == 0


def test_work_of_the_step_as_tensorflow_tells_it():
    """What TensorFlow calls device compute is kernels and the few copies of the longer step, overlaps counted once."""
    (step,) = oracle("tf-gpu-multi-worker.tensorflow-2.12.1.overview_page")["input_analysis"]["step_details"]
    ran = read("tf-gpu-multi-worker").device_ops.filter(pl.col("device") == 6, pl.col("step") == 0)
    start = ran["start_ns"].to_numpy()
    assert Intervals.of(start, start + ran["dur_ns"].to_numpy()).total / 1e6 == pytest.approx(
        step["device_compute_ms"], abs=0.02
    )


def test_kernel_statistics_equal_xprofs():
    """XProf lists a kernel once per launch geometry, and each row twice."""
    listed = {
        (row["kernel_name"], row["registers_per_thread"], _product(row["block_dim"]), _product(row["grid_dim"])): (
            row["occurrences"],
            row["total_duration_us"],
            row["min_duration_us"],
            row["max_duration_us"],
        )
        for row in rows(oracle("tf-gpu-multi-worker.xprof-2.24.2.kernel_stats"))
    }
    us = pl.col("dur_ns") / 1e3
    ran = read("tf-gpu-multi-worker").device_ops.filter(pl.col("kind") == "kernel")
    found = ran.group_by(pl.col("name").cast(pl.String), "registers", "block", "grid").agg(
        pl.len(), total=us.sum(), least=us.min(), most=us.max()
    )
    told = {row[:4]: row[4:] for row in found.rows()}
    for key, expected in listed.items():
        assert told[key] == pytest.approx(expected, abs=1e-3)
    assert sum(row[0] for row in told.values()) == 1330


def _product(dim: str) -> int:
    x, y, z = map(int, dim.split(","))
    return x * y * z


@pytest.mark.parametrize("name", ["tf-compute-bound", "tf-input-bound"])
def test_time_of_host_ops_equals_xprofs(name: str):
    """Total time of each op over all threads. XProf's count of occurrences is twice too high for some: not compared."""
    profile = read(name)
    ops = profile.host_ops.group_by(pl.col("name").cast(pl.String)).agg(pl.col("dur_ns").sum() / 1e3)
    told = dict(ops.rows())
    listed = [row for row in rows(oracle(f"{name}.xprof-2.24.2.framework_op_stats")[0]) if row["type"] != "IDLE"]
    assert len(listed) > 30
    for row in listed:
        own = row["operation"] if row["type"] == "Dataset" else f"{row['operation']}:{row['type']}"
        assert told.get(own, told.get(row["operation"])) == pytest.approx(row["total_time"], abs=1e-2)


def test_device_time_of_ops_adds_up_to_that_of_xprofs_kernels():
    """XProf's own table of ops has no device time on GPUs any more; its kernels, each listed twice, bear no ops."""
    kernels = {tuple(row.values())[1:]: row for row in rows(oracle("tf-gpu-multi-worker.xprof-2.24.2.kernel_stats"))}
    found = judged("tf-gpu-multi-worker")
    used = pl.concat([view.used_ops for view in found.selection.views])
    copies = used.filter(pl.col("kind") == "memcpy", pl.col("framework_op").is_not_null())["dur_ns"].sum() / 1e6
    assert found.frames["op"]["device_ms"].sum() - copies == pytest.approx(
        sum(row["total_duration_us"] for row in kernels.values()) / 1e3, rel=1e-3
    )


@pytest.mark.parametrize("name", ["tf-compute-bound", "tf-input-bound"])
def test_own_time_of_host_ops_equals_xprofs(name: str):
    """Of ops that ran in steps only: XProf's table covers the whole recording."""
    mine = judged(name).frames["op"].group_by("name").agg(pl.sum("self_ms", "total_ms"))
    told = {op: (own, whole) for op, own, whole in mine.rows()}
    listed = {
        f"{row['operation']}:{row['type']}": (row["total_self_time"] / 1e3, row["total_time"] / 1e3)
        for row in rows(oracle(f"{name}.xprof-2.24.2.framework_op_stats")[0])
    }
    same = [op for op, (_, whole) in listed.items() if op in told and told[op][1] == pytest.approx(whole, abs=1e-2)]
    assert len(same) > 10
    assert [told[op][0] for op in same] == pytest.approx([listed[op][0] for op in same], abs=1e-2)


@pytest.mark.parametrize("name", ["tf-compute-bound", "tf-input-bound"])
def test_waiting_for_input_equals_xprofs_step_by_step(name: str):
    profile = read(name)
    waits = profile.host_ops.filter(pl.col("kind") == "input").group_by("step").agg(pl.col("dur_ns").sum() / 1e6)
    told = {f"train {step}": wait for step, wait in waits.rows()}
    steps = dict(profile.steps.select("name", pl.col("mark_ns") / 1e6).rows())
    listed = rows(oracle(f"{name}.xprof-2.24.2.input_pipeline_analyzer")[1])
    assert len(listed) == 10
    for row in listed:
        assert told[row["stepnum"]] == pytest.approx(row["infeedTimeMs"], abs=1e-5)
        assert steps[row["stepnum"]] == pytest.approx(row["stepTimeMs"], abs=1e-5)


def test_most_of_a_starved_step_waits_for_input():
    profile = read("tf-input-bound")
    waits = profile.host_ops.filter(pl.col("kind") == "input")["dur_ns"].sum()
    assert waits / profile.steps["dur_ns"].sum() == pytest.approx(0.988, abs=5e-4)


def test_the_iterators_can_be_told_apart_and_put_together():
    profile = read("tf-input-bound")
    iterators = profile.host_ops.filter(pl.col("name").cast(pl.String).str.starts_with("Iterator::"))
    facts = iterators.select(pl.col("name", "details").cast(pl.String)).unique().rows()
    told = {name: json.loads(details) for name, details in facts}
    root, batch, source = (
        told[f"Iterator::Root{rest}"] for rest in ("", "::MapAndBatch", "::MapAndBatch::TensorSlice")
    )
    assert (batch["parent_id"], source["parent_id"]) == (root["id"], batch["id"])
    assert (batch["parallelism"], batch["autotune"], batch["batch_size"]) == (1, "false", 64)
    assert "parent_id" not in root


def test_the_slow_loader_of_a_jax_job_is_there():
    """`time.sleep(0.02)` in each step, in which nothing is computed."""
    profile = read("jax-cpu")
    loads = profile.host_ops.filter(pl.col("name").cast(pl.String) == "load_batch")
    assert (loads.height, loads["step"].to_list()) == (10, list(range(10)))
    assert loads["dur_ns"].min() >= 20_000_000
    ops = profile.host_ops.filter(pl.col("kind") == "op")
    assert ops["step"].null_count() == 0  # the last one's link was not recorded: its execution tells
    assert profile.workers["producer"].to_list() == ["JAX 0.10.2"]


def test_memory_of_the_gpus():
    peaks = read("tf-gpu-multi-worker").allocations.group_by("device").agg(pl.max("allocated_bytes")).rows()
    assert dict(peaks) == {None: 605_952, 1: 4_013_344_768, 4: 6_208_853_760, 6: 6_210_111_488}


def test_amd_kernels_find_their_launches_and_modules():
    ops = read("jax08_gemm-mi300").device_ops
    assert ops["launch"].null_count() == 0
    assert ops.group_by("kind").len().sort("kind").rows() == [("kernel", 30), ("memcpy", 24)]
    products = ops.filter(pl.col("name").cast(pl.String).str.starts_with("Cijk_"))
    assert set(products["framework_op"].cast(pl.String)) == {"jit(dot)/dot_general"}
    assert set(products["hlo_module"].cast(pl.String)) == {"jit_dot"}


def test_names_of_tpu_ops_are_short_and_the_rest_is_said():
    profile = read("tpu-inference")
    assert profile.device_ops["name"].cast(pl.String).str.len_chars().max() < 60
    assert Note("tpu") in profile.salvaged


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("truncated", r"the file is cut off after 989 KiB; copy it again, or record it again"),
        (
            "utf8-mangled",
            r"the file was copied or opened as text \(UTF-8\), which changed its bytes; copy it again.*",
        ),
    ],
)
def test_broken_files(name: str, why: str):
    path = MALFORMED / f"{name}.xplane.pb"
    with path.open("rb") as stream, pytest.raises(ReadError) as refused:
        xplane.read(stream, str(path))
    assert re.fullmatch(re.escape(f"{path}: ") + why, str(refused.value))


def test_no_secret_of_a_recording_is_kept():
    """Options of the profiler hold the path of the log folder; stats hold source files and addresses."""
    for name in ("tf-input-bound", "jax-cpu"):
        profile = read(name)
        text = str(
            [
                getattr(profile, table).select(pl.col(pl.String)).unique().rows()
                for table in ("workers", "devices", "steps")
            ]
        )
        assert "/data/traces/xplane-generated" not in text


def test_input_and_launching_as_tensorflow_told_them_when_it_still_did():
    """TensorFlow 2.12 on the GPU that sets the pace; current XProf says 0 for both."""
    analysis = oracle("tf-gpu-multi-worker.tensorflow-2.12.1.overview_page")["input_analysis"]
    (step,) = analysis["step_details"]
    slowest = judged("tf-gpu-multi-worker").frames["run"].row(0, named=True)
    ms = slowest["step_mean_ms"]
    assert ms == pytest.approx(step["step_time_ms"], abs=1e-6)
    # theirs counts 7 us of transfers as input, whose names begin like its own: IteratorGetNextAsOptional_5/_47:_Recv
    assert slowest["input_share"] * ms == pytest.approx(step["host_wait_input_ms"], abs=1e-2)
    assert slowest["launch_share"] * ms == pytest.approx(step["host_prepare_ms"], abs=1e-2)
    assert (slowest["compute_share"] + slowest["memcpy_share"]) * ms == pytest.approx(
        step["device_compute_ms"], abs=5e-3
    )
    assert slowest["other_share"] * ms == pytest.approx(step["unknown_time_ms"], abs=5e-3)


def test_input_ops_as_tensorflow_told_them():
    analysis = oracle("tf-gpu-multi-worker.tensorflow-2.12.1.overview_page")["input_analysis"]
    found = judged("tf-gpu-multi-worker")
    told = {row["iterator"]: row for row in found.frames["iterator"].filter(pl.col("device") == 6).to_dicts()}
    for op in analysis["input_op_details"]:
        row = told[op["op_name"]]
        assert row["calls"] == int(op["count"])
        assert (row["total_ms"], row["self_ms"]) == pytest.approx((op["time_in_ms"], op["self_time_in_ms"]))
        assert row["stage"] == op["category"].lower()
    assert found.frames["run"]["preprocessing_ms"].item() == pytest.approx(
        analysis["input_time_breakdown"]["preprocessing_us"] / 1e3
    )


def test_sixteen_bits_as_xprof_tells_them():
    """30.5 % are casts and random numbers; no matrix is multiplied, so of Tensor Cores nothing is said."""
    told = oracle("tf-gpu-multi-worker.tensorflow-2.12.1.overview_page")["analysis"]["device_compute_16bit_percent"]
    found = judged("tf-gpu-multi-worker")
    of_devices = found.frames["device"]
    assert of_devices["sixteen_bit_kernel_share"].mean() == pytest.approx(told / 100, abs=0.002)
    assert of_devices["tensor_core_share"].to_list() == [0.0, 0.0]
    narrow = {row["name"] for row in of_devices["sixteen-bit-unused.narrow_names"][0]}
    assert {"GreaterEqual", "Mul"} <= narrow


def test_threads_that_launch_only_are_not_advised_where_they_are_on():
    """Its launching threads are called tf_gpu_private_4 and _6."""
    (run,) = profiles.check(TRACES / "tf-gpu-multi-worker").runs
    assert judged("tf-gpu-multi-worker").frames["run"]["private_launch_threads"].item() == 4
    assert "launch-bound" in {finding.rule for finding in run.findings}
    assert not [f.rule for f in run.findings for fix in f.fixes if "gpu_private" in f"{fix.do}{fix.code}"]


def test_memory_is_held_against_the_device_s_size():
    row = judged("tf-gpu-multi-worker").frames["run"].row(0, named=True)
    assert row["peak_memory_share"] == pytest.approx(6_210_111_488 / 16_945_512_448)
    assert row["reserved_memory_bytes"] == 15_477_102_400
    assert row["fragmentation"] == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize(
    ("name", "device", "heap", "stack"),
    [
        ("tf-gpu-multi-worker", 6, 6_210_111_488, 0),
        ("tf-gpu-multi-worker", 4, 6_208_853_760, 0),
        ("jax08_gemm-mi300", 0, 482_345_216, 0),
        ("tpu-inference", 0, 857_216, 21_491_712_000),
    ],
)
def test_the_memory_s_peak_is_xprofs(name: str, device: int, heap: int, stack: int):
    """What XProf 2.24.2 says on its page of the memory."""
    (row,) = judged(name).frames["device"].filter(pl.col("device") == device).to_dicts()
    assert row["peak_memory_bytes"] == heap + stack


@pytest.mark.parametrize(
    ("name", "fires", "silent"),
    [
        (
            "tf-gpu-multi-worker",
            {"tf-data-bottleneck", "input-bound", "launch-bound", "idle-devices"},
            {"python-bound"},
        ),
        ("tf-input-bound", {"tf-data-bottleneck", "input-bound"}, {"python-bound", "eager-execution"}),
        pytest.param(
            *("tf-compute-bound", set(), {"input-bound", "tf-data-bottleneck", "python-bound"}), marks=pytest.mark.soak
        ),
        ("jax-cpu", {"input-bound"}, {"python-bound", "tf-data-bottleneck"}),
        ("jax08_gemm-mi300", set(), {"idle-devices"}),
        pytest.param("jax_conv_minimal_08-mi300", set(), {"idle-devices"}, marks=pytest.mark.soak),
    ],
)
def test_findings(name: str, fires: set[str], silent: set[str]):
    found = findings(name)
    assert fires <= found.keys()
    assert not silent & found.keys()


def test_the_iterator_to_blame_is_named():
    """`map` of a Python function, fused by tf.data with the batch after it."""
    row = judged("tf-input-bound").frames["run"].row(0, named=True)
    assert row["input_share"] == pytest.approx(0.988, abs=5e-4)
    assert (row["tf_data_bottleneck"], row["tf_data_class"]) == ("MapAndBatch", "pyfunc")
    assert row["tf_data_python_share"] > 0.9
    assert "MapAndBatch" in findings("tf-input-bound")["tf-data-bottleneck"]
    assert judged("tf-gpu-multi-worker").frames["run"]["tf_data_class"][0] == "replica"  # what tf.distribute adds
    assert "GPU 4, 6" in findings("tf-gpu-multi-worker")["idle-devices"]


def test_the_slowest_calls_of_the_iterator_are_pointed_at():
    found = judge(measured_run(judged("tf-input-bound")), profiles.book(), {}).findings
    (blamed,) = [one for one in found if one.rule == "tf-data-bottleneck"]
    assert blamed.where
    assert all("MapAndBatch" in place.name for place in blamed.where)


def test_idle_devices_are_told_once():
    """What the job as a whole leaves idle is said beneath what the process leaves idle."""
    found = judge(measured_run(judged("tf-gpu-multi-worker")), profiles.book(), {}).findings
    (idle,) = [f for f in found if {"idle-devices", "idle-ranks"} & {f.rule, *(s.rule for s in f.symptoms)}]
    assert (idle.rule, [s.rule for s in idle.symptoms]) == ("idle-devices", ["idle-ranks"])


def test_a_jax_loop_that_loads_by_itself_waits_twenty_milliseconds_a_step():
    """Found by its place in the step, whatever its author called it; XProf says 0."""
    row = judged("jax-cpu").frames["run"].row(0, named=True)
    assert 20 < row["input_exposed_ms"] < 22


@cache
def judged(name: str) -> Measurements:
    return profiles.measured(TRACES / name)


@cache
def findings(name: str) -> dict[str, str]:
    """What each rule that fired says, those beneath a cause too."""
    found = judge(measured_run(judged(name)), profiles.book(), {}).findings
    return {one.rule: one.says for f in found for one in (f, *f.symptoms)}


def test_a_report_holds_the_graph_of_the_pipeline():
    """What a page draws: each iterator with the one that asks it, its times, the critical path, the bottleneck."""
    (run,) = profiles.check(TRACES / "tf-input-bound").runs
    root, batch, source = run.metrics["iterator"]
    names = [row["iterator"] for row in (root, batch, source)]
    assert names == ["Iterator::Root", "Iterator::Root::MapAndBatch", "Iterator::Root::MapAndBatch::TensorSlice"]
    assert [row["parent"] for row in (root, batch, source)] == [None, *names[:2]]
    assert [row["critical"] for row in (root, batch, source)] == [True, True, False]
    assert [row["bottleneck"] for row in (root, batch, source)] == [False, True, False]
    for row in (root, batch, source):
        assert row["total_ms"] >= row["self_ms"] > 0
    assert batch["waited_ms"] / run.source.steps.used == pytest.approx(143, abs=1)


def test_hosts_and_steps_of_a_run_are_told_apart(tmp_path: Path):
    """Two hosts' profiles in one folder: the pod view's table."""
    folder = tmp_path / "plugins/profile/run"
    folder.mkdir(parents=True)
    for host, name in (("h0", "tf-input-bound"), ("h1", "tf-compute-bound")):
        (path,) = (TRACES / name).rglob("*.xplane.pb")
        shutil.copy(path, folder / f"{host}.xplane.pb")
    (run,) = check([str(tmp_path)], Options(steps="all")).runs
    cells = {(row["worker"], row["step"]): row["bottleneck"] for row in run.metrics["step"]}
    assert cells == {(host, step): most for host, most in ((0, "input"), (1, "host")) for step in range(12)}


def test_the_numbers_that_the_overview_page_puts_first():
    (run,) = profiles.check(TRACES / "tf-gpu-multi-worker").runs
    assert {figure.name: figure.value for figure in figures(run)} == {
        "device runs anything": "70 %",
        "ops that use the device": "54 %",
        "Tensor Cores": "0 %",
        "16-bit kernels": "31 %",
        "XLA": "0 %",
        "eager ops": "0 %",
        "memory peak": "5.78 GiB (37 % of the device's memory)",
    }


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (MALFORMED / "truncated.xplane.pb", "the file is cut off after 989 KiB"),
        (MALFORMED / "utf8-mangled.xplane.pb", "the file was copied or opened as text"),
        (b"\x0a\x00", "no host or device activity in it"),
        (b"", "empty: the recording or a copy of it broke off"),
        (None, "no profile in this folder"),
    ],
)
def test_what_cannot_be_read_ends_the_command_with_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    broken: Path | bytes | None,
    why: str,
):
    """A run's folder without a profile, with an empty one, one of empty planes, and files that were damaged."""
    folder = tmp_path / "plugins/profile/run"
    folder.mkdir(parents=True)
    if isinstance(broken, bytes):
        (folder / "host.xplane.pb").write_bytes(broken)
    path = broken if isinstance(broken, Path) else tmp_path
    assert exit_code(monkeypatch, path) == 3
    told = capsys.readouterr()
    assert why in told.err
    assert len(told.err.splitlines()) == 1
    assert not told.out


def test_of_a_tpu_what_is_generic_is_told_and_what_is_not_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert exit_code(monkeypatch, TRACES / "tpu-inference") == 0
    told = capsys.readouterr().out
    assert "4 × TPU v6 Lite" in told  # noqa: RUF001 - as it is printed
    (run,) = profiles.check(TRACES / "tpu-inference").runs
    assert "a TPU profile: its XLA ops" in " ".join(note.words for note in run.source.salvaged)


def test_loops_of_a_tpu_use_next_to_nothing_of_the_peak_that_the_profile_states():
    assert judged("tpu-inference").frames["run"].row(0, named=True)["xla_flops_of_peak_share"] < 0.001


def test_a_tpu_that_fetches_from_host_memory_most_of_the_time_is_told_so_first():
    """100 copies of 5 x 1024 x 1024 x 256 floats each of three names; XLA calls the host's memory S(5)."""
    row = judged("tpu-inference").frames["run"].row(0, named=True)
    assert row["exposed_copy_bytes_per_step"] == 300 * 5 * 1024 * 1024 * 256 * 4
    assert row["memcpy_share"] == pytest.approx(0.78, abs=0.01)
    assert row["host-transfer-bound.enqueue_share"] == 0
    (run,) = profiles.check(TRACES / "tpu-inference").runs
    assert run.verdict.startswith("Copies from host memory to the device")
    assert "Fixing this may save up to 58.6 s of the 97.4 s used, or nothing." in run.verdict
    assert run.findings[0].fixes[0].do.startswith("Keep the arrays in device memory")


@pytest.mark.soak  # excerpts are in tests/unit/test_excerpts.py
def test_an_excerpt_says_what_it_shows_of_a_finding_without_a_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """GPUs that do nothing are nowhere in the recording."""
    words = ("--finding", "idle-devices", "-o", str(tmp_path / "w.json"))
    assert exit_code(monkeypatch, TRACES / "tf-gpu-multi-worker", "excerpt", *words) == 0
    told = capsys.readouterr().err
    assert "idle-devices names no place in the recording" in told
    assert "the longest step used of process 0, device 6" in told


def exit_code(monkeypatch: pytest.MonkeyPatch, path: Path, command: str = "check", *words: str) -> int | str | None:
    """That of an `advisor` command on the path."""
    monkeypatch.setattr(sys, "argv", ["advisor", command, str(path), *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize(
    ("name", "products"), [("te-attention-mi355", 25), ("jax08_attention-mi300", 3), ("jax08_gemm-mi300", 3)]
)
def test_fused_products_have_the_format_that_the_program_tells(name: str, products: int):
    """Their kernels' names, as `gemm_fusion_dot_1.kd`, tell none."""
    ops = read(name).device_ops.filter(pl.col("name").cast(pl.String).str.contains("gemm_fusion_dot"))
    assert ops["operand_type"].cast(pl.String).to_list() == products * ["bf16"]
