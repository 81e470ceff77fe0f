"""Logs of collectives through a whole check: a real hang of gloo, and made-up lines of NCCL's Inspector."""

import pickle
import shutil

import pytest

import advisor
from advisor.present.document import Table
from advisor.present.source import facts
from advisor.present.tables import communicators
from tests import profiles

FIXTURES = profiles.ROOT / "fixtures"


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_report_names_the_rank_that_evaluates_alone(form):
    (run,) = advisor.check(FIXTURES / "flight-recorder" / form).runs
    (finding,) = run.findings
    assert finding.rule == "ranks-missing-in-collective"
    assert "others wait for rank 2 in broadcast 11 of default_pg" in finding.says
    assert "3 ranks cannot go on" in finding.says
    assert ("called at record_hang.py:24" in finding.says) == (form == "pickle")


def copied(folder, *ranks):
    """Dumps of some ranks, whose groups do not list their members."""
    for rank in ranks:
        shutil.copy(FIXTURES / f"flight-recorder/pickle/nccl_trace_rank_{rank}", folder)
    (run,) = advisor.check(folder).runs
    return run


@pytest.mark.parametrize("rank", range(4))
def test_one_dump_of_a_hang_is_no_health(rank, tmp_path):
    run = copied(tmp_path, rank)
    assert (run.findings, run.passed) == ((), ())
    assert "Too little was recorded" in run.verdict


def test_the_rank_that_hangs_is_told_where_its_own_dump_is_missing(tmp_path):
    (finding,) = copied(tmp_path, 0, 1, 3).findings
    assert "others wait for rank 2 (no log here) in broadcast 11 of default_pg" in finding.says


def test_the_report_names_the_rank_that_is_late_and_the_bandwidth_of_each_communicator():
    (run,) = advisor.check(FIXTURES / "nccl-inspector").runs
    (finding,) = run.findings
    assert (finding.rule, finding.scope.workers) == ("late-rank-in-log", (3,))
    speeds = {(row["group"], row["op"]): row["bus_gbs"] for row in run.metrics["communicator"]}
    assert speeds == {
        ("0x7f8c496ae9f661", "all_reduce"): pytest.approx(180, rel=0.01),
        ("0xe62dedaa97644a", "reduce_scatter"): pytest.approx(160, rel=0.01),
        ("0x5a1be0c2d3f417", "reduce_scatter"): pytest.approx(160, rel=0.01),
    }


def test_ranks_that_arrive_together_are_no_finding(tmp_path):
    for log in (FIXTURES / "nccl-inspector").glob("host0-*.log"):
        shutil.copy(log, tmp_path)
    (run,) = advisor.check(tmp_path).runs
    assert not run.findings
    assert run.verdict == "No problem found by 1 rule."


def test_logs_beside_the_traces_of_their_job_are_told_with_it(tmp_path):
    shutil.copytree(FIXTURES / "simulated-ranks-slow-rank-a100", tmp_path / "job")
    shutil.copytree(FIXTURES / "nccl-inspector", tmp_path / "job/inspector")
    (run,) = advisor.check(tmp_path / "job").runs
    finding = run.findings[0]
    assert (finding.rule, run.source.format) == ("throttled-gpu", "kineto")
    assert "Over the 1.95 hours of the logs, 100 % of the waiting in their groups is for rank 3." in finding.says
    assert {symptom.rule for symptom in finding.symptoms} >= {"straggler-rank", "late-rank-in-log"}
    assert len(run.metrics["communicator"]) == 3
    (note,) = (note for note in run.source.notes if note.code == "logs_beside")
    assert note.facts["logs"] == 4


@pytest.mark.soak  # logs beside traces are above, and what a hang says by itself is too
def test_a_hang_in_dumps_beside_traces_stands_first(tmp_path):
    shutil.copytree(FIXTURES / "simulated-ranks-slow-rank-a100", tmp_path / "job")
    shutil.copytree(FIXTURES / "flight-recorder/pickle", tmp_path / "job/dumps")
    (run,) = advisor.check(tmp_path / "job").runs
    assert [finding.rule for finding in run.findings][:2] == ["ranks-missing-in-collective", "throttled-gpu"]


@pytest.mark.soak  # formats beside each other are in tests/unit/rules/test_nsys_to_rules.py
def test_a_log_of_another_job_beside_traces_is_a_run_of_its_own(tmp_path):
    for path in [*(FIXTURES / "nccl-inspector").iterdir(), *(FIXTURES / "simulated-healthy-a100").glob("*.json*")]:
        shutil.copy(path, tmp_path)
    runs = {run.source.format: run for run in advisor.check(tmp_path).runs}
    assert {*runs} == {"nccl_inspector", "kineto"}
    assert "several_formats" in {note.code for note in runs["nccl_inspector"].source.notes}


def test_what_a_log_does_not_know_is_empty_in_the_table_and_no_rank_is_called_the_slowest(tmp_path):
    for rank in range(2):
        entry = {"process_group": ("0", "dp"), "collective_seq_id": 1, "profiling_name": "nccl:all_reduce"}
        entry |= {"state": "completed", "duration_ms": 2.0 + rank, "input_sizes": [[4]], "input_dtypes": ["Posit"]}
        dump = {"version": "2.10", "entries": [entry], "pg_config": {"0": {"ranks": "[0, 1]"}}}
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    (run,) = advisor.check(tmp_path).runs
    (table,) = (block for block in communicators(run).blocks if isinstance(block, Table))
    assert [cell.text for cell in table.rows[0].cells] == [
        *("dp", "all_reduce", "2", "1", "", "", "20 %", "rank 0 (100 %)")
    ]
    assert "slowest" not in " ".join(facts(run))
