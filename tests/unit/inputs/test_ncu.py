"""What `ncu --csv --page raw` prints, and what is said of it beside a recording."""

from __future__ import annotations

import csv
import io
import tracemalloc
from pathlib import Path

import polars as pl
import pytest

from advisor.engine import check
from advisor.errors import ReadError
from advisor.inputs.ncu import Counters, base_name, read
from advisor.metrics.kernels.roofs import ncu_values
from advisor.options import Options
from tests import profiles
from tests.command import advisor
from tests.effort import every

HEAD = ("ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")
TIME, ISSUED = "gpu__time_duration.sum", "smsp__issue_active.avg.per_cycle_active"
CYCLES = "smsp__average_warp_latency_per_inst_issued.ratio"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
SECTORS = "memory_l2_theoretical_sectors_global_ideal", "memory_l2_theoretical_sectors_global"
BANKS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
THREADS = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
REGISTERS, SHARED = "launch__occupancy_limit_registers", "launch__occupancy_limit_shared_mem"

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"  # a quarter of fixtures/simulated-healthy-a100
STRIDED = {TIME: "1,200.5", ISSUED: "0.2", SECTORS[0]: "1,000", SECTORS[1]: "4,000"}
TRANSPOSED = {TIME: "10", BANKS[0]: "31", BANKS[1]: "32", OCCUPANCY: "100"}
MANY_REGISTERS = {TIME: "10", ISSUED: "0.4", CYCLES: "20", STALL.format("long_scoreboard"): "12"}
MANY_REGISTERS |= {STALL.format("selected"): "18", OCCUPANCY: "50", REGISTERS: "2", SHARED: "5"}


def printed(*launches: tuple[str, dict[str, str]]) -> str:
    """The output, with what ncu says of itself around the table."""
    names = [*dict.fromkeys(name for _, counters in launches for name in counters)]
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    writer.writerows([[*HEAD, *names], ["" for _ in HEAD] + ["" for _ in names]])
    for at, (kernel, counters) in enumerate(launches):
        writer.writerow(
            [at, 1, kernel, 1, 7, "(128, 1, 1)", "(4, 1, 1)", 0, "8.0", *(counters.get(n, "n/a") for n in names)]
        )
    return f"==PROF== Connected to process 1\n{file.getvalue()}==PROF== Disconnected from process 1\n"


def saved(folder: Path, *launches: tuple[str, dict[str, str]]) -> str:
    path = folder / "counters.csv"
    path.write_text(printed(*launches), "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        (STRIDED, Counters(issued=0.2, excess=0.75)),
        (TRANSPOSED, Counters(conflicts=31 / 32, occupancy=1.0)),
        (
            MANY_REGISTERS,
            Counters(issued=0.4, stall="long_scoreboard", stalled=0.6, occupancy=0.5, limit="registers"),
        ),
    ],
    ids=["strided", "transposed", "many registers"],
)
def test_the_limits_of_a_kernel_are_read(tmp_path: Path, counters: dict[str, str], expected: Counters):
    assert read(saved(tmp_path, ("void copy<float>(float*, int)", counters))) == {"copy": expected}


# Reports that others published, and the rule of Nsight Compute 2024.1 that says the same on its page `details`; None
# where it says nothing of it.
PUBLISHED = {
    "armleth/cuda-mlp-inference@2e6f8f12, report_v2.ncu-rep": (
        {TIME: "67.456", ISSUED: "0.07", CYCLES: "95.114041", STALL.format("long_scoreboard"): "76.939254"}
        | {OCCUPANCY: "100", ACHIEVED: "86.378671", THREADS: "30.34", SECTORS[1]: "750000", SECTORS[0]: "375000"}
        | {"derived__memory_l2_theoretical_sectors_global_excessive": "375.0"},  # thousands, and the unit says sectors
        {"stalled": "CPIStall", "uncoalesced": "UncoalescedGlobalAccess", "lost_warps": "AchievedOccupancy"},
    ),
    "LakshyaSingh354/CudaCode@38060c15, gemm/reps/global_mem_coalesce.ncu-rep": (
        {TIME: "4.648416", ISSUED: "0.25", CYCLES: "31.203889", STALL.format("lg_throttle"): "22.837029"}
        | {OCCUPANCY: "100", ACHIEVED: "98.731816", THREADS: "31.96", SECTORS[1]: "168034304", SECTORS[0]: "168034304"},
        {"stalled": "CPIStall"},
    ),
    "LakshyaSingh354/CudaCode@38060c15, stage1/reps/dot_product.ncu-rep": (
        {TIME: "0.077792", ISSUED: "0.33", CYCLES: "21.174727", STALL.format("barrier"): "4.784323"}
        | {OCCUPANCY: "100", ACHIEVED: "89.381036", THREADS: "20.27", SECTORS[1]: "266240", SECTORS[0]: "266240"},
        {"lost_warps": "AchievedOccupancy", "divergent": "ThreadDivergence"},
    ),
    "bwd29/self-join-MiSTIC@656dd47b, profileBIGCROSS3.out.ncu-rep": (
        {TIME: "3.590359", ISSUED: "0.14", CYCLES: "13.316223", STALL.format("long_scoreboard"): "7.567638"}
        | {OCCUPANCY: "12.5", ACHIEVED: "10.639921", THREADS: "17.31"},
        {"stalled": "CPIStallLongScoreboard", "divergent": "ThreadDivergence", "occupancy_limit": None},
    ),
    "DarrenLu666888/CUDATutorial@59ad960e, profile.ncu-rep": (
        {TIME: "131.136", OCCUPANCY: "100", ACHIEVED: "84.093051"},
        {"lost_warps": "AchievedOccupancy"},
    ),
    "Lashi0812/CudaProgramming@409a4c6f, simpleDivergence.ncu-rep": (
        {TIME: "1", OCCUPANCY: "100", ACHIEVED: "4.164691", "launch__waves_per_multiprocessor": "0.01"},
        {},  # LaunchConfiguration: one block, which the trace shows
    ),
}


@pytest.mark.parametrize(("counters", "advice"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_kernels_get_the_advice_of_nsight_compute(
    tmp_path: Path, counters: dict[str, str], advice: dict[str, str | None]
):
    kernels = pl.DataFrame({"name": ["k"], "total_ms": [1.0]})
    values = ncu_values(kernels, read(saved(tmp_path, ("k", counters))), steps=1, steps_ms=2.0)
    shares = {name.removesuffix("_kernels_share"): value for name, value in values.items() if "_kernels_share" in name}
    assert {name for name, share in shares.items() if share} == set(advice)
    assert all(shares[name] == 0.5 for name in advice)


def test_namespaces_do_not_count():
    assert (
        base_name("void mlx::core::cu::gemv<bf16, 8>(float const*)") == base_name("void gemv<bf16, 8>(T1 *)") == "gemv"
    )


def test_launches_count_by_their_time(tmp_path: Path):
    long, short = ({TIME: time, OCCUPANCY: part} for time, part in (("30", "40"), ("10", "80")))
    assert read(saved(tmp_path, ("copy(int)", long), ("copy(int)", short)))["copy"].occupancy == pytest.approx(0.5)


def test_a_row_per_counter_is_read_like_a_row_per_launch(tmp_path: Path):
    head = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
    rows = [
        f'"0","copy(int)","Occupancy","{name}","","{value}"' for name, value in {TIME: "10", OCCUPANCY: "50"}.items()
    ]
    (tmp_path / "long.csv").write_text("\n".join([head, *rows]), "utf-8")
    assert read(str(tmp_path / "long.csv")) == {"copy": Counters(occupancy=0.5)}


def test_decimal_commas_are_no_thousands(tmp_path: Path):
    with pytest.raises(ReadError, match="LC_ALL=C"):
        read(saved(tmp_path, ("copy(int)", {TIME: "5,77"})))


@pytest.mark.parametrize(
    "text", every(2, ["", "a,b\n1,2\n", '"ID","Kernel Name","Metric Name"\n"0","k","x"\n', "\x00\xff"])
)
def test_what_is_no_such_table_is_an_error_in_one_line(tmp_path: Path, text: str):
    (tmp_path / "wrong.csv").write_text(text, "utf-8")
    done = advisor("check", profiles.ROOT / "fixtures/simulated-healthy-a100", "--ncu", "wrong.csv", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("advisor: wrong.csv: ")
    assert done.stderr.count("\n") == 1
    assert "ncu --set full --csv --page raw" in done.stderr


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(ReadError, match="no such file, folder or bucket"):
        read(str(tmp_path / "none.csv"))


@pytest.mark.parametrize(
    ("counters", "fix", "words"),
    every(
        5,
        [
            (STRIDED, "Let neighbouring threads", "75 % in excess"),
            (TRANSPOSED, "Pad arrays", "97 % by conflicts"),
            (MANY_REGISTERS, "Let the kernel use less", "60 % long scoreboard"),
            ({TIME: "10", THREADS: "16"}, "Let the 32 threads", "50 % of a warp's threads"),
            ({TIME: "10", OCCUPANCY: "100", ACHIEVED: "84"}, "Give all blocks", "16 % of the warps missing"),
        ],
    ),
)
def test_a_kernel_of_the_step_has_its_limits_and_their_fix(
    tmp_path: Path, counters: dict[str, str], fix: str, words: str
):
    options = Options(ncu=saved(tmp_path, (GEMM, counters), ("of_another_program", STRIDED)))
    (run,) = check([str(profiles.ROOT / "fixtures/simulated-healthy-a100")], options).runs
    (finding,) = [each for each in run.findings if each.rule == "kernel-counters"]
    assert finding.fixes[0].do.startswith(fix)
    assert words in finding.says
    assert GEMM in finding.says
    assert "of_another_program" not in finding.says


def test_without_counters_nothing_is_asked():
    run = profiles.check(profiles.ROOT / "fixtures/simulated-healthy-a100").runs[0]
    assert "kernel-counters" in run.not_applicable


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e308"])
def test_a_number_that_is_no_counter_is_none(tmp_path: Path, number: str):
    read_ = read(saved(tmp_path, (GEMM, {TIME: "10", ISSUED: number, OCCUPANCY: "50"})))[base_name(GEMM)]
    assert (read_.issued, read_.occupancy) == (None, 0.5)


def test_a_file_that_is_no_csv_of_a_profile_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("advisor.inputs.ncu._MOST_BYTES", 100)
    (tmp_path / "large.csv").write_text("x" * 101)
    with pytest.raises(ReadError, match="profile fewer kernels"):
        read(str(tmp_path / "large.csv"))
    with pytest.raises(ReadError, match="not a regular file"):
        read("/dev/zero")


def test_a_wide_table_takes_no_room_for_what_its_rows_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.inputs.ncu._MOST_BYTES", 1 << 20)
    path = tmp_path / "wide.csv"
    head = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", TIME, ISSUED, *(f"c{n}" for n in range(2_000))))
    path.write_text(f'{head}\n"1","{GEMM}","15","0.4"\n' + f'"0","{GEMM}","5"\n' * 2_000, "utf-8")
    tracemalloc.start()
    counters = read(str(path))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counters[base_name(GEMM)].issued == 0.4
    assert peak_bytes < 10 << 20  # a slot of eight bytes for each column of each row would be 32 MB


def test_columns_that_nothing_reads_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.inputs.ncu._MOST_BYTES", 2 << 20)
    path = tmp_path / "wide.csv"
    head = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", TIME, ISSUED, *(f"c{n}" for n in range(2_000))))
    path.write_text(f"{head}\n" + f'"0","{GEMM}","5","0.4"{",1.5" * 2_000}\n' * 200, "utf-8")
    tracemalloc.start()
    counters = read(str(path))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counters[base_name(GEMM)].issued == 0.4
    assert peak_bytes < 15 << 20  # the numbers of all columns are 40 MB
