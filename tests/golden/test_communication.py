"""Communication in real recordings, against figures worked out from their JSON alone."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from advisor.metrics import Measurements
from advisor.model.clause import Missing
from tests import profiles
from tests.effort import every

TRACES = Path(__file__).parents[2].parent / "shared/traces/kineto"
OURS = {
    *("allreduce-slower-than-link", "communication-exposed", "gradient-buckets-too-small", "too-many-collectives"),
    *("wrong-backend", "cross-node-bound", "nccl-contention", "buffer-broadcasts"),
}

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not there")


@cache
def kernels(name: str) -> list[dict[str, Any]]:
    """The collectives' events of the first file."""
    document = json.loads(gzip.decompress(min((TRACES / name).glob("*.gz")).read_bytes()))
    found = [e for e in document["traceEvents"] if e.get("cat") == "kernel" and e["name"].startswith("nccl")]
    return sorted(found, key=lambda e: e["ts"])


@cache
def measured(name: str) -> Measurements:
    """All metrics over all steps; eight ranks recorded one."""
    return profiles.measured(TRACES / name, "steady" if name == "dlrm-8rank-v100" else "all")


def run(name: str) -> dict[str, Any]:
    return measured(name).frames["run"].row(0, named=True)


def outcome(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What fired of the rules on communication, and what could not be told."""
    (report,) = profiles.check(TRACES / name).runs
    fired = {f.rule: f for f in report.findings}
    return {r: f for r, f in fired.items() if r in OURS}, {
        u.rule: u.missing for u in report.not_evaluable if u.rule in OURS
    }


def test_bandwidth_of_one_rank_of_two_is_a_lower_bound():
    shortest: dict[int, float] = {}
    for event in kernels("nccl-metadata-a100"):
        if event["args"]["Collective name"] == "allreduce":
            size = 4 * event["args"]["In msg nelems"]
            shortest[size] = min(shortest.get(size, 1e9), event["dur"])
    assert len(shortest) == 5
    row = run("nccl-metadata-a100")
    # All are larger than 4 MiB; the bus factor of two ranks is 1; bytes per us are 1e-3 GB/s.
    assert row["bus_bandwidth_gbs"] == pytest.approx(sum(shortest) / sum(shortest.values()) / 1e3)
    assert row["transfer_told_share"] == 0
    assert row["buffer_broadcasts_per_step"] == 2
    assert row["cross_node_share"] == 0  # ranks 0 and 1 of hosts with eight GPUs
    table = measured("nccl-metadata-a100").frames["collective"]
    assert dict(table.filter(op="all_reduce").select("bytes", "transfer_us").rows()) == pytest.approx(shortest)


def test_an_a100_that_may_or_may_not_have_nvlink_is_not_guessed():
    fired, untold = outcome("nccl-metadata-a100")
    assert list(fired) == ["buffer-broadcasts"]
    # From each DistributedDataParallel.forward to its first aten::conv2d the device idles for 38.3 to 39 ms.
    assert 37 < fired["buffer-broadcasts"].saving.high_ms < 39
    assert untold["allreduce-slower-than-link"]["link_reached_share"].code == "links_of_variants"
    assert measured("nccl-metadata-a100").reasons["wait_ms"] == Missing("ranks_missing", world=2)


@pytest.mark.parametrize("name", every(3, ["ddp-a100-6steps", "memory-events-nccl", "dlrm-8rank-v100"]))
def test_without_sizes_bandwidth_cannot_be_told(name: str):
    found = measured(name)
    for metric in ("bus_bandwidth_gbs", "link_reached_share", "expected_transfer_ms", "merge_gain_ms"):
        assert run(name)[metric] is None
        assert found.reasons[metric] == Missing("no_collective_sizes")
    _, untold = outcome(name)
    assert {"allreduce-slower-than-link", "gradient-buckets-too-small"} <= untold.keys()


@pytest.mark.parametrize(
    ("name", "steps"), [("ddp-a100-6steps", 6), pytest.param("memory-events-nccl", 5, marks=pytest.mark.soak)]
)
def test_one_rank_of_several_promises_nothing_for_sure(name: str, steps: int):
    fired, _ = outcome(name)
    exposed = fired["communication-exposed"]
    assert exposed.saving.low_ms == 0
    assert "or ranks wait for others" in exposed.says
    in_all = sum(e["dur"] for e in kernels(name)) / steps / 1e3  # one after the other on one stream
    row = run(name)
    assert row["communication_ms"] == pytest.approx(in_all, rel=1e-3)
    assert 0 < row["exposed_transfer_ms"] <= row["exposed_communication_ms"] <= row["communication_ms"]


@pytest.mark.soak  # places by hand are in tests/unit/metrics/communication
def test_reductions_of_one_place_in_the_step_are_held_to_the_shortest():
    # The same number in each of the five steps, nothing beside them: 404 places.
    by_place = defaultdict(list)
    events = kernels("memory-events-nccl")
    assert len(events) == 5 * 404
    for i, event in enumerate(events):
        by_place[i % 404].append(event["dur"])
    shortest = sum(min(found) for found in by_place.values()) / 1e3
    assert run("memory-events-nccl")["exposed_transfer_ms"] == pytest.approx(shortest, rel=1e-3)


def test_eight_ranks_that_wait_for_each_other_have_little_to_hide():
    row = run("dlrm-8rank-v100")
    # 11 of rank 1's 20 ms pass in collectives; 0.2 of them move data.
    of_ranks = dict(measured("dlrm-8rank-v100").frames["worker"].select("worker", "communication_ms").rows())
    assert of_ranks[1] == pytest.approx(11.3, abs=0.1)
    assert row["transfer_told_share"] == 1
    assert row["exposed_transfer_ms"] < 0.25
    fired, _ = outcome("dlrm-8rank-v100")
    assert not fired
    table = measured("dlrm-8rank-v100").frames["collective"]
    assert table["exact"].all()
    assert table.select("op", "calls").rows() == [("all_reduce", 24), ("all_to_all", 40)]
    assert table["bytes"].null_count() == table["bus_gbs"].null_count() == 2


def test_matrix_products_beside_a_collective_take_longer():
    # 1024 x 512 products of ddp-a100-6steps: 14 us beside all-to-all and all-reduce, 9 alone.
    assert run("ddp-a100-6steps")["contention_ratio"] == pytest.approx(1.6, abs=0.05)
    assert "nccl-contention" in outcome("ddp-a100-6steps")[0]


def test_ranks_on_cpus_that_mostly_communicate_are_told_so():
    """One rank of 300: the time is there, but not whether it is the network's or a late rank's."""
    (run,) = profiles.check(TRACES / "cpu-only").runs
    first = run.findings[0]
    assert (first.rule, first.severity, first.saving.low_ms if first.saving else None) == (
        *("communication-on-cpus", "high"),
        0,
    )
    assert "waiting for a late rank" in run.actions[0].do
    assert not any("waiting for other ranks" in f.says for f in run.findings)
