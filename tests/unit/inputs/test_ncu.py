"""What `ncu --csv --page raw` prints, and what is said of it beside a recording."""

from __future__ import annotations

import csv
import io
import tracemalloc
from pathlib import Path

import pytest

from advisor.engine import check
from advisor.errors import ReadError
from advisor.inputs.ncu import Counters, base_name, read
from advisor.options import Options
from tests import profiles
from tests.command import advisor

HEAD = ("ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")
TIME, ISSUED = "gpu__time_duration.sum", "smsp__issue_active.avg.per_cycle_active"
CYCLES = "smsp__average_warp_latency_per_inst_issued.ratio"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
SECTORS = "derived__memory_l2_theoretical_sectors_global_excessive", "memory_l2_theoretical_sectors_global"
BANKS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
REGISTERS, SHARED = "launch__occupancy_limit_registers", "launch__occupancy_limit_shared_mem"

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"  # a quarter of fixtures/simulated-healthy-a100
STRIDED = {TIME: "1,200.5", ISSUED: "0.2", SECTORS[0]: "3,000", SECTORS[1]: "4,000"}
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


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", '"ID","Kernel Name","Metric Name"\n"0","k","x"\n', "\x00\xff"])
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
    [
        (STRIDED, "Let neighbouring threads", "75 % in excess"),
        (TRANSPOSED, "Pad arrays", "97 % by conflicts"),
        (MANY_REGISTERS, "Let the kernel use less", "long scoreboard 60 %"),
    ],
    ids=["strided", "transposed", "many registers"],
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
