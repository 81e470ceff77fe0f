"""Simulated jobs of many nodes: groups that hold every rank once, and ranks that meet."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import polars as pl
import pytest

from advisor.inputs.readers import kineto

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "fixtures" / "make"))

import simulate  # noqa: E402 - the scripts of fixtures/ are no package
from simulator import CLUSTER_FAULTS  # noqa: E402
from simulator.large import LAYOUTS  # noqa: E402


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ranks", [16, 64, 1024])
def test_every_kind_of_group_holds_every_rank_once(layout: str, ranks: int) -> None:
    for groups in LAYOUTS[layout](ranks).groups.values():
        assert sorted(rank for group in groups for rank in group) == list(range(ranks))


@pytest.mark.parametrize("fault", CLUSTER_FAULTS)
def test_a_fault_makes_the_step_longer(fault: str) -> None:
    broken, _ = CLUSTER_FAULTS[fault].job(1, 32, 5)
    repaired, _ = CLUSTER_FAULTS[fault].job(1, 32, 5, broken=False)
    assert (broken.step_ms > 1.02 * repaired.step_ms) == (fault != "large-healthy")


@pytest.mark.soak  # sixteen ranks are simulated and read
def test_members_of_a_collective_end_together() -> None:
    job, place = CLUSTER_FAULTS["large-slow-node"].job(0, 16, 5)
    assert place.ranks in {tuple(range(8)), tuple(range(8, 16))}
    ends = []
    for rank, (name, text) in enumerate(job.files()):
        profile = kineto.read(io.BytesIO(text), name)
        assert profile.workers["rank"].to_list() == [rank]
        calls = profile.collectives.join(profile.device_ops, left_on="device_op", right_on="id")
        assert calls["group"].n_unique() == 2  # of the node, and with the other one; copies have one member
        ends.append(calls.select("group", "sequence", end_ns=pl.col("start_ns") + pl.col("dur_ns")))
    spread = pl.concat(ends).group_by("group", "sequence").agg(pl.len(), spread=pl.max("end_ns") - pl.min("end_ns"))
    assert set(spread["len"]) == {2, 8}
    assert spread["spread"].to_numpy().max() < 3_000


def test_ranks_that_fill_no_pairs_of_nodes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        simulate.main(["--fault", "large-healthy", "--ranks", "24", "-o", str(tmp_path)])
    assert "a large job has 16 to 1,024 ranks" in capsys.readouterr().err
