"""Simulated jobs of many ranks: coupled collectives against times worked out by hand, and what every job conserves."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import sys
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import yaml

from advisor.inputs.readers import kineto
from advisor.model.profile import Profile, join
from tests.effort import soak

if TYPE_CHECKING:
    from simulator import Case, FleetTrace, Machine
    from simulator.records import DeviceOp

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "fixtures" / "make"))

import simulate  # noqa: E402 - the scripts of fixtures/ are no package
import simulator  # noqa: E402
from simulator import groups, links  # noqa: E402

GPUS = simulator.GPUS
EXPERTS = {"experts-exposed", "experts-late"}
HEALTHY = {"healthy-ranks", "sharded-prefetched"}
FAULTS = [name for name in simulator.FLEET_FAULTS if name not in HEALTHY]
PAIRS = [(name, gpu) for name in FAULTS for gpu in simulator.FLEET_FAULTS[name].gpus]
OTHERS = {"staggered-launches", "pipeline-bubbles", *(f"sharded-{how}prefetched" for how in ("", "not-")), *EXPERTS}
REPLICAS = [name for name in simulator.FLEET_FAULTS if name not in OTHERS]
QUICK = {"healthy-ranks", "slow-rank", "moving-slow-rank", "slow-link", "gloo-on-gpu"}
NCCL = [name for name in REPLICAS if name != "gloo-on-gpu"]


@cache
def case(name: str, gpu: str = "a100", seed: int = 1, steps: int = 6, ranks: int = 4) -> Case:
    made: Case = simulator.case(name, gpu, seed, steps, ranks)
    return made


def nccl(machine: Machine) -> list[DeviceOp]:
    return [op for op in machine.device_ops if op.name.startswith("nccl")]


def coupled(run: FleetTrace) -> list[tuple[DeviceOp, ...]]:
    """Each collective as its kernels, by rank."""
    return list(zip(*(nccl(trace.machine) for trace in run.processes), strict=True))


def profile(name: str) -> Profile:
    return join([kineto.read(io.BytesIO(text), file) for file, text in case(name).files()])


class TestLinks:
    """All-reduces of 8 ranks over links of 240 GB/s: 14 hops, 1.75 times the buffer."""

    def test_a_large_one_is_bound_by_bandwidth(self) -> None:
        # Simple: 8.4 + 14 x 3.4 = 56 us, and 1.75 x 96 MB at 240 bytes a nanosecond
        assert links.ring_all_reduce_us(96_000_000, 8, 240) == pytest.approx(56 + 700)

    def test_a_tiny_one_by_the_hops(self) -> None:
        assert links.ring_all_reduce_us(0, 8, 240) == pytest.approx(6.6 + 14 * 0.6)  # LL

    def test_between_them_the_protocol_in_between(self) -> None:
        # LL128: 14 + 14 x 1.9 = 40.6 us, and 1.75 x 9.6 MB at 92 % of the bandwidth
        assert links.ring_all_reduce_us(9_600_000, 8, 240) == pytest.approx(40.6 + 70 / 0.92)

    def test_one_message_is_one_hop(self) -> None:
        assert links.send_us(24_000_000, 240) == pytest.approx(8.4 + 3.4 + 100)


class TestRendezvous:
    def test_everyone_learns_when_the_last_came_each_time(self) -> None:
        meeting = simulator.Rendezvous(3)

        def attend(index: int) -> list[int]:
            return [meeting.latest(index, 1000 * turn + 7 * ((index + turn) % 3)) for turn in range(50)]

        heard = simulator.together([partial(attend, index) for index in range(3)])
        assert heard == [[1000 * turn + 14 for turn in range(50)]] * 3

    def test_those_who_wait_in_vain_are_told(self) -> None:
        first, second = simulator.Rendezvous(2), simulator.Rendezvous(2)
        with pytest.raises(RuntimeError, match="programs 0, 1 wait for each other"):
            simulator.together([lambda: first.latest(0, 0), lambda: second.latest(1, 0), lambda: 0])

    def test_an_error_of_one_reaches_the_caller(self) -> None:
        meeting = simulator.Rendezvous(2)
        with pytest.raises(ZeroDivisionError):
            simulator.together([lambda: meeting.latest(0, 0), lambda: 1 // 0])


class TestCoupledTimeline:
    """Two ranks without jitter; in us a launch call 4.5, its way to the device 6.5, a queued gap 1.2."""

    @staticmethod
    def run(late_us: float) -> list[Machine]:
        """Each computes 100 us, then sums 1.2 MB on the other stream; the second comes `late_us` later."""
        meeting = simulator.Rendezvous(2)
        machines = [simulator.Machine(jitter=False) for _ in range(2)]

        def program(rank: int) -> None:
            machine = machines[rank]
            machine.work(late_us * rank)
            machine.launch(simulator.Kernel("compute", 100))
            network = groups.Network(meeting, rank, 0, jitter=False)
            group = groups.Nccl(machine, GPUS["a100"], rank, network, 1 / groups.LINK_SHARE)
            group.all_reduce(300_000)
            group.wait()
            machine.launch(simulator.Kernel("optimizer", 10))

        simulator.together([partial(program, rank) for rank in range(2)])
        return machines

    def test_the_transfer_starts_when_the_last_has_come_and_all_end_together(self) -> None:
        first, second = (machine.device_ops for machine in self.run(late_us=50))
        # Two ranks move the buffer once in 2 hops; LL: 6.6 + 2 x 0.6 + 1.2 MB at half of 240 GB/s.
        transfer = 7_800 + 10_000
        assert [op.start_ns for op in first] == [6_500, 107_700, 157_700 + transfer + 1_200]
        assert [op.start_ns for op in second] == [56_500, 157_700, 157_700 + transfer + 1_200]
        assert first[1].end_ns == second[1].end_ns == 157_700 + transfer

    def test_a_rank_that_comes_last_does_not_wait(self) -> None:
        first, second = (nccl(machine)[0] for machine in self.run(late_us=50))
        assert second.end_ns - second.start_ns == 17_800
        assert first.end_ns - first.start_ns == 17_800 + 50_000

    def test_the_kernel_belongs_to_the_op_that_bears_its_message(self) -> None:
        machine = self.run(late_us=0)[0]
        (op,) = (span for span in machine.spans if span.name == "record_param_comms")
        assert nccl(machine)[0].op == op.op
        assert op.args.items() >= nccl(machine)[0].args.items()


@pytest.mark.soak  # jobs of two ranks are simulated, read and judged in tests/golden/test_ranks.py
class TestConservation:
    @pytest.mark.parametrize("name", soak(NCCL, unless=QUICK.__contains__))
    def test_a_collective_ends_together_and_starts_with_its_last(self, name: str) -> None:
        for kernels in coupled(case(name).faulty):
            ends = [op.end_ns for op in kernels]
            assert max(ends) - min(ends) <= groups.SPREAD_NS
            transfer = min(op.end_ns - op.start_ns for op in kernels)
            assert transfer == pytest.approx(max(ends) - max(op.start_ns for op in kernels), abs=groups.SPREAD_NS)
            assert transfer > 10_000

    @pytest.mark.parametrize("name", soak(REPLICAS, unless=QUICK.__contains__))
    def test_every_rank_sums_every_gradient_once_a_step(self, name: str) -> None:
        run = case(name).faulty
        parameters = sum(run.fleet.job.tapes[0].parameters)
        for trace in run.processes:
            for step in trace.machine.steps:
                spans = [s for s in trace.machine.spans if step.start_ns <= s.start_ns < step.host_end_ns]
                if name not in NCCL:
                    summed = [s.args["Input Dims"] for s in spans if s.name == "gloo:all_reduce"]
                else:
                    summed = [s.args["Input Dims"] for s in spans if s.name == "nccl:all_reduce"]
                assert sum(shape[0][0] for shape in summed) == parameters

    @pytest.mark.parametrize("name", soak([name for name in NCCL if name != "no-overlap"], unless=QUICK.__contains__))
    def test_a_bucket_waits_for_its_gradients_and_the_optimizer_for_all_buckets(self, name: str) -> None:
        for trace in case(name).faulty.processes:
            ops = trace.machine.device_ops
            for before, op in itertools.pairwise(ops):
                if op.name.startswith("nccl") and not before.name.startswith("nccl"):
                    assert op.start_ns >= before.end_ns
            for index, op in enumerate(ops):
                if "FusedAdam" in op.name:
                    assert op.start_ns >= max(o.end_ns for o in ops[:index])

    @pytest.mark.parametrize("gpu", soak(GPUS, unless="a100".__eq__))
    def test_healthy_ranks_hardly_wait(self, gpu: str) -> None:
        run = case("healthy-ranks", gpu).faulty
        for kernels in coupled(run):
            starts = [op.start_ns for op in kernels]
            assert (max(starts) - min(starts)) / 1e6 < 0.04 * run.step_ms
        assert min(run.busy_shares) > 0.95

    def test_the_odd_rank_waits_least(self) -> None:
        made = case("slow-rank")
        waits = [sum(op.end_ns - op.start_ns for op in nccl(t.machine)) for t in made.faulty.processes]
        assert waits.index(min(waits)) == made.about["odd_rank"]
        kernels = [
            sum(op.end_ns - op.start_ns for op in t.machine.device_ops if op.kernel and "gemm" in op.name)
            for t in made.faulty.processes
        ]
        pace = made.fault.severity(made.seed)["odd_pace"]
        others = sorted(kernels)[:-1]
        assert max(kernels) / (sum(others) / len(others)) == pytest.approx(pace, abs=0.03)

    def test_another_rank_is_late_in_each_step(self) -> None:
        made = case("moving-slow-rank")
        late = []
        for step in range(6):
            length = [made.faulty.fleet.length(rank, 3 + step) for rank in range(4)]
            late.append(length.index(max(length)))
        assert late == made.about["odd_rank"]
        assert set(late) == set(range(4))

    def test_the_same_work_is_dealt_out(self) -> None:
        made = case("moving-slow-rank")
        for number in range(3, 9):
            uneven, even = ([run.fleet.length(rank, number) for rank in range(4)] for run in (made.faulty, made.fixed))
            assert len(set(even)) == 1
            assert sum(even) == pytest.approx(sum(uneven), abs=4 * 16)

    def test_a_slow_link_makes_large_transfers_as_much_longer(self) -> None:
        made = case("slow-link")
        faulty, fixed = (
            [min(ops, key=lambda op: op.end_ns - op.start_ns) for ops in coupled(run)]
            for run in (made.faulty, made.fixed)
        )
        large = [op.args["In msg nelems"] * 4 > 30 << 20 for op in fixed]
        slower = [(f.end_ns - f.start_ns) / (g.end_ns - g.start_ns) for f, g in zip(faulty, fixed, strict=True)]
        assert any(large)
        for is_large, ratio in zip(large, slower, strict=True):
            assert ratio > 1
            if is_large:  # all but the hops, which the link does not change
                assert ratio == pytest.approx(1 / made.fault.severity(made.seed)["link_share"], rel=0.12)


@pytest.mark.soak
class TestPipeline:
    def test_a_message_leaves_when_both_are_there(self) -> None:
        sent = [nccl(trace.machine) for trace in case("pipeline-bubbles").faulty.processes]
        for rank in range(3):
            here = [op for op in sent[rank] if rank + 1 in {op.args["Src Rank"], op.args["Dst Rank"]}]
            there = [op for op in sent[rank + 1] if rank in {op.args["Src Rank"], op.args["Dst Rank"]}]
            assert len(here) == len(there) == 6 * 2 * 4  # steps, directions, micro-batches
            for one, other in zip(here, there, strict=True):
                assert one.args["Src Rank"] == other.args["Src Rank"]
                assert abs(one.end_ns - other.end_ns) <= groups.SPREAD_NS
                assert min(one.end_ns, other.end_ns) > max(one.start_ns, other.start_ns)

    def test_stages_run_one_after_the_other(self) -> None:
        runs = [trace.machine for trace in case("pipeline-bubbles").faulty.processes]
        for number in range(6):
            first = [
                min(
                    op.start_ns
                    for op in run.device_ops
                    if "gemm" in op.name and op.start_ns >= run.steps[number].start_ns
                )
                for run in runs
            ]
            assert first == sorted(first)


@pytest.mark.soak
class TestFaults:
    @pytest.mark.parametrize(("name", "gpu"), soak(PAIRS, unless=lambda pair: pair[0] in QUICK and pair[1] == "a100"))
    def test_a_fault_costs_time_and_its_repair_gives_it_back(self, name: str, gpu: str) -> None:
        made = case(name, gpu)
        assert 0.05 * made.faulty.step_ms <= made.saved_ms <= made.faulty.step_ms

    def test_nothing_to_repair_saves_nothing(self) -> None:
        assert case("healthy-ranks").saved_ms == 0

    def test_rules_speak_or_stay_silent(self) -> None:
        for name, fault in simulator.FLEET_FAULTS.items():
            assert not set(fault.fires) & (set(fault.may) | set(fault.silent)), name
            assert bool(fault.first) == (name not in HEALTHY), name
            assert fault.says.endswith("."), name

    def test_the_same_seed_gives_the_same_bytes(self) -> None:
        again = simulator.case("slow-rank", "a100", 1, 6, 4)
        assert list(again.files()) == list(case("slow-rank").files())

    def test_small_buckets_are_some_hundred(self) -> None:
        assert 100 < len(coupled(case("small-buckets").faulty)) / 6 < 400

    def test_one_process_feeds_its_devices_in_turn(self) -> None:
        (trace,) = case("staggered-launches").faulty.processes
        for step in trace.machine.steps:
            ops = [op for op in trace.machine.device_ops if step.start_ns <= op.start_ns <= step.host_end_ns]
            starts = [min(op.start_ns for op in ops if op.stream[0] == device) for device in range(4)]
            assert all(later - sooner > 1_000_000 for sooner, later in itertools.pairwise(starts))


@pytest.mark.soak
class TestFiles:
    def test_the_header_says_which_rank_it_is(self) -> None:
        for rank, (name, text) in enumerate(case("slow-rank").files()):
            trace: dict[str, Any] = json.loads(text)
            assert name.startswith(f"rank{rank}.")
            assert len(trace["deviceProperties"]) == 4
            info = trace["distributedInfo"]
            assert (info["backend"], info["rank"], info["world_size"]) == ("nccl", rank, 4)
            (group,) = info["pg_config"]
            assert (group["pg_name"], group["pg_size"], group["ranks"]) == ("0", 4, [0, 1, 2, 3])
            kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
            assert {event["args"]["device"] for event in kernels} == {event["pid"] for event in kernels} == {rank}

    def test_the_reader_finds_ranks_and_messages(self) -> None:
        read = profile("slow-rank")
        assert read.workers["worker"].to_list() == read.workers["rank"].to_list() == [0, 1, 2, 3]
        assert set(read.workers["world_size"]) == {4}
        found = read.collectives.join(read.device_ops, left_on="device_op", right_on="id")
        assert found["group_size"].unique().to_list() == [4]
        assert found["ranks"].unique().to_list() == ["[0, 1, 2, 3]"]
        messages = found.group_by("group", "sequence").agg(
            pl.col("worker").n_unique(), pl.col("bytes").n_unique().alias("sizes"), pl.col("bytes").first()
        )
        assert messages["worker"].unique().to_list() == [4]
        assert messages["sizes"].unique().to_list() == [1]
        parameters = sum(case("slow-rank").faulty.fleet.job.tapes[0].parameters)
        assert messages["bytes"].sum() == 6 * 4 * parameters
        ends = (
            found.with_columns(end=pl.col("start_ns") + pl.col("dur_ns"))
            .group_by("sequence")
            .agg(pl.col("end").max() - pl.col("end").min())
        )
        assert ends["end"].max() <= groups.SPREAD_NS + 1

    def test_gloo_shows_on_the_host(self) -> None:
        read = profile("gloo-on-gpu")
        assert read.collectives.height == 0
        assert set(read.workers["backend"]) == {"gloo"}
        assert read.host_ops.filter(pl.col("kind") == "collective").height > 0

    def test_clocks_may_be_off(self) -> None:
        recording = simulator.Recording(skewed=True)
        plain, skewed = (
            [json.loads(text)["traceEvents"] for _, text in case("slow-rank").files(how)]
            for how in (simulator.Recording(), recording)
        )
        shifts = []
        for before, after in zip(plain, skewed, strict=True):
            (shift,) = {round(b["ts"] - a["ts"], 2) for a, b in zip(before, after, strict=True)}
            assert 0 < abs(shift) <= 5e6
            shifts.append(shift)
        assert len(set(shifts)) == 4

    def test_ranks_may_be_missing_and_files_numbered_otherwise(self) -> None:
        files = dict(case("slow-rank").files(simulator.Recording(missing=(2,), shuffled=True)))
        ranks = {name.split(".")[0]: json.loads(text)["distributedInfo"]["rank"] for name, text in files.items()}
        assert sorted(ranks.values()) == [0, 1, 3]
        assert any(name != f"worker{rank}" for name, rank in ranks.items())

    def test_the_command_writes_a_folder(self, tmp_path: Path) -> None:
        options = ["--fault", "slow-rank", "--ranks", "2", "--steps", "5", "--seed", "2", "--missing", "1"]
        assert simulate.main([*options, "-o", str(tmp_path)]) == 0
        facts = yaml.safe_load((tmp_path / "case.yaml").read_text())
        assert facts["command"].endswith("--ranks 2 --missing 1")
        assert facts["first"] == ["throttled-gpu"]
        assert facts["truth"]["odd_rank"] == 0
        assert len(facts["truth"]["device_busy_share"]) == 2
        (trace,) = tmp_path.glob("rank0.*.gz")
        assert json.loads(gzip.decompress(trace.read_bytes()))["distributedInfo"]["world_size"] == 2

    @pytest.mark.parametrize("ranks", ["1", "65"])
    def test_too_few_or_many_ranks_are_refused(self, ranks: str, tmp_path: Path) -> None:
        with pytest.raises(SystemExit, match="2"):
            simulate.main(["--fault", "slow-rank", "--ranks", ranks, "-o", str(tmp_path)])
