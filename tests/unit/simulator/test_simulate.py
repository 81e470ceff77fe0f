"""The simulator's model against times worked out by hand, and its faults against what they claim to cost."""

from __future__ import annotations

import gzip
import importlib.util
import json
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests import profiles
from tests.effort import every, soak

if TYPE_CHECKING:
    from simulator import Case, Kernel, Machine

FIXTURES = Path(__file__).parents[3] / "fixtures"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulate", FIXTURES / "make" / "simulate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulate"] = module
    spec.loader.exec_module(module)
    return module


simulate = load()
DEFAULT, SIDE, OTHER = (0, 7), (0, 20), (1, 7)
STREAMS = (DEFAULT, SIDE, OTHER)
FREE_OF_COST = {"none", "logged-loss", "memory-near-capacity"}
PAIRS = [(name, gpu) for name, fault in simulate.FAULTS.items() for gpu in fault.gpus]
FIRST = {(name, fault.gpus[0]) for name, fault in simulate.FAULTS.items()}
REPAIRED = [pair for pair in PAIRS if "few" not in pair[0] and "serial" not in pair[0]]


def machine() -> Machine:
    run: Machine = simulate.Machine(jitter=False)
    return run


def kernel(us: float) -> Kernel:
    made: Kernel = simulate.Kernel("k", us)
    return made


def device_times(run: Machine) -> list[tuple[int, int]]:
    return [(op.start_ns, op.end_ns) for op in run.device_ops]


def calls(run: Machine) -> list[tuple[str, int, int]]:
    return [(span.name, span.start_ns, span.end_ns) for span in run.spans if span.category == "cuda_runtime"]


class TestModel:
    """In us: a launch call 4.5, its way to an idle stream 6.5, a queued gap 1.2, waking a host 2, recording 0.2."""

    def test_one_kernel_then_a_wait(self) -> None:
        run = machine()
        run.launch(kernel(100))
        run.synchronize(DEFAULT)
        assert device_times(run) == [(6_500, 106_500)]
        assert calls(run) == [("cudaLaunchKernel", 0, 4_500), ("cudaStreamSynchronize", 4_700, 108_500)]

    def test_a_kernel_after_the_wait_starts_from_an_idle_stream(self) -> None:
        run = machine()
        run.launch(kernel(100))
        run.synchronize()
        run.launch(kernel(10))
        assert device_times(run)[1] == (115_200, 125_200)

    def test_a_queued_kernel_follows_the_one_before(self) -> None:
        run = machine()
        run.launch(kernel(100))
        run.launch(kernel(10))
        assert device_times(run) == [(6_500, 106_500), (107_700, 117_700)]

    def test_streams_run_beside_each_other_unless_one_waits_for_the_other(self) -> None:
        run = machine()
        run.launch(kernel(100))
        run.launch(kernel(10), SIDE)  # called at 4.7 us
        run.order(DEFAULT, OTHER)
        run.launch(kernel(10), OTHER)
        assert device_times(run) == [(6_500, 106_500), (11_200, 21_200), (107_700, 117_700)]

    def test_waiting_for_a_stream_that_is_done_costs_only_the_call(self) -> None:
        run = machine()
        run.launch(kernel(1))
        run.work(50)
        run.synchronize(DEFAULT)
        assert calls(run)[1] == ("cudaStreamSynchronize", 54_700, 55_700)

    def test_a_pinned_copy_returns_at_once(self) -> None:
        run = machine()
        run.copy("HtoD (Pinned -> Device)", 10_000, 10)  # 1 us, and 10 kB at 10 bytes a nanosecond
        assert device_times(run) == [(6_500, 8_500)]
        assert run.now == 4_700

    def test_a_pageable_copy_waits_for_the_stream_and_for_itself(self) -> None:
        run = machine()
        run.launch(kernel(100))
        run.copy("HtoD (Pageable -> Device)", 10_000, 10)
        assert device_times(run)[1] == (113_000, 115_000)  # called at 4.7, the stream is dry at 106.5
        assert calls(run)[1] == ("cudaMemcpyAsync", 4_700, 117_000)

    def test_a_graph_is_one_call_and_its_kernels_in_a_row(self) -> None:
        run = machine()
        run.replay([kernel(10), kernel(10)])
        assert device_times(run) == [(6_500, 16_500), (17_300, 27_300)]
        assert [op.graph_node for op in run.device_ops] == [1, 2]
        assert len({op.correlation for op in run.device_ops}) == 1

    def test_a_stream_holds_1024_launches(self) -> None:
        run = machine()
        for _ in range(1_100):
            run.launch(kernel(1_000))
        for index, (_, _, returned) in enumerate(calls(run)):
            waiting = sum(op.start_ns > returned for op in run.device_ops[: index + 1])
            assert waiting <= 1_024
        assert calls(run)[-1][2] > run.device_ops[1_100 - 1_024 - 1].start_ns  # and it was the queue that held the host

    def test_giving_memory_back_waits_for_the_device(self) -> None:
        run = machine()
        run.launch(kernel(100))
        run.launch(kernel(10), OTHER)
        run.free(1 << 20, 250)
        assert run.now == 106_500 + 250_000 + 200

    def test_two_workers_share_the_batches(self) -> None:
        workers = simulate.Workers(2)
        ready = []
        for _ in range(5):
            ready.append(workers.ready(10))
            workers.ask(ready[-1])
        assert ready == [10, 10, 20, 20, 30]  # two by two; the fifth was asked for at 10, its worker free at 20

    def test_a_worker_with_a_full_queue_rests(self) -> None:
        workers = simulate.Workers(1)
        assert [workers.ready(10), workers.ready(10)] == [10, 20]
        workers.ask(100)
        assert workers.ready(10) == 110

    def test_ranges_nest_with_room_between_their_bounds(self) -> None:
        run = machine()
        with run.span("cpu_op", "outer"), run.span("cpu_op", "inner"):
            run.work(1)
        assert [(span.start_ns, span.end_ns) for span in run.spans] == [(0, 2_000), (200, 1_600)]

    def test_a_step_ends_where_each_device_ends(self) -> None:
        run = machine()
        with run.step(3):
            run.launch(kernel(100))
            run.launch(kernel(10), OTHER)
        assert run.steps[0].device_end_ns == {0: 106_700, 1: 21_400}


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["launch", "copy", "pageable", "wait", "order", "work"]), st.integers(0, 2), st.integers(1, 60)
    ),
    max_size=60,
)


@given(ACTIONS, st.integers(0, 5))
def test_order_holds_whatever_the_program(actions: list[tuple[str, int, int]], seed: int) -> None:
    run: Machine = simulate.Machine(seed)
    for action, index, size in actions:
        stream = STREAMS[index]
        match action:
            case "launch":
                run.launch(kernel(size), stream)
            case "copy":
                run.copy("HtoD (Pinned -> Device)", size * 1_000, 10, stream)
            case "pageable":
                run.copy("HtoD (Pageable -> Device)", size * 1_000, 10, stream)
                assert run.now >= run.device_ops[-1].end_ns
            case "wait":
                run.synchronize(stream)
                assert run.now >= max((op.end_ns for op in run.device_ops if op.stream == stream), default=0)
            case "order":
                run.order(stream, STREAMS[index - 1])
            case _:
                run.work(size)
    assert_causal(run)


def assert_causal(run: Machine) -> None:
    """Streams are first in, first out; nothing starts before it is launched; the host does one thing at a time."""
    called = {span.correlation: span.start_ns for span in run.spans if span.category == "cuda_runtime"}
    assert all(op.start_ns >= called[op.correlation] for op in run.device_ops)
    for stream in {op.stream for op in run.device_ops}:
        ops = [op for op in run.device_ops if op.stream == stream]
        assert all(first.end_ns <= second.start_ns for first, second in pairwise(ops))
    starts = [span.start_ns for span in run.spans]
    assert starts == sorted(starts)


@pytest.mark.parametrize(("name", "gpu"), soak(PAIRS, unless=FIRST.__contains__))
def test_a_fault_costs_time_and_its_repair_gives_it_back(name: str, gpu: str) -> None:
    case = profiles.case(name, gpu, 11)
    least = 0.0 if name in FREE_OF_COST else 0.05
    assert least * case.faulty.step_ms <= case.saved_ms <= case.faulty.step_ms
    assert_causal(case.faulty.machine)
    kernels = sum(op.category == "kernel" for op in case.faulty.machine.device_ops) / len(case.faulty.steps_ms)
    assert 75 <= kernels <= 460


@pytest.mark.parametrize("gpu", simulate.GPUS)
@pytest.mark.parametrize("name", ["none", "logged-loss"])
def test_a_healthy_job_keeps_its_gpu_busy(name: str, gpu: str) -> None:
    assert profiles.case(name, gpu, 11).faulty.busy_share() > 0.95


@pytest.mark.parametrize(("name", "gpu"), soak(REPAIRED, unless=FIRST.__contains__))
def test_a_repaired_job_is_a_healthy_one(name: str, gpu: str) -> None:
    fixed = profiles.case(name, gpu, 11).fixed
    small = name in {"launch-bound", "pageable-copies"}  # a graph of tiny kernels; copies that still hold up the stream
    assert fixed.busy_share() > (0.65 if small else 0.9)


def test_nothing_to_repair_saves_nothing() -> None:
    assert profiles.case("none").saved_ms == 0


def test_the_same_seed_meets_the_same_conditions() -> None:
    faulty, fixed = (profiles.case(name, seed=4).faulty for name in ("memory-near-capacity", "none"))
    assert faulty.steps_ms == fixed.steps_ms
    assert simulate.case("none", seed=5).faulty.steps_ms != fixed.steps_ms


def test_step_outliers_are_one_step_and_the_median_does_not_see_them() -> None:
    case = simulate.case("step-outliers")
    usual = case.faulty.median_step_ms
    assert [step > 2 * usual for step in case.faulty.steps_ms].count(True) == 1
    assert case.fixed.step_ms == pytest.approx(usual, rel=0.02)


def test_two_devices_work_at_different_times() -> None:
    case = simulate.case("serial-devices")
    run = case.faulty.machine
    ends = [[step.device_end_ns[device] for step in run.steps] for device in (0, 1)]
    apart = [first - second for first, second in zip(*ends, strict=True)]
    assert min(apart) > 0.2 * case.faulty.step_ms * 1e6
    assert case.faulty.busy_share(0) < 0.5 < case.faulty.busy_share(0) + case.faulty.busy_share(1) < 1.1


def test_faults_know_which_rules_must_speak() -> None:
    for name, fault in simulate.FAULTS.items():
        assert not set(fault.fires) & (set(fault.may) | set(fault.silent)), name
        assert bool(fault.first) == (name not in {"none", "logged-loss"}), name
        assert fault.says.endswith("."), name


@pytest.fixture(scope="module")
def case() -> Case:
    made: Case = profiles.case("frequent-synchronisation", seed=3)
    return made


@pytest.fixture(scope="module")
def trace(case: Case) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(case.faulty.kineto())
    return decoded


class TestTrace:
    def test_the_header_says_what_it_is(self, trace: dict[str, Any]) -> None:
        assert trace["simulated"] is True
        assert trace["generator"] == "gpu-advisor fixtures/make/simulate.py"
        assert trace["deviceProperties"][0]["name"] == "NVIDIA A100-SXM4-80GB"
        assert trace["distributedInfo"]["rank"] == 0

    def test_times_are_the_machines(self, case: Case, trace: dict[str, Any]) -> None:
        kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
        ops = [op for op in case.faulty.machine.device_ops if op.category == "kernel"]
        first = kernels[0]["ts"]
        for event, op in zip(kernels, ops, strict=True):
            assert event["dur"] == (op.end_ns - op.start_ns) / 1000
            assert event["ts"] - first == pytest.approx((op.start_ns - ops[0].start_ns) / 1000, abs=1e-3)

    def test_every_device_operation_has_its_call_and_its_op(self, trace: dict[str, Any]) -> None:
        events = trace["traceEvents"]
        calls = [event["args"]["correlation"] for event in events if event.get("cat") == "cuda_runtime"]
        ops = {event["args"]["External id"] for event in events if event.get("cat") == "cpu_op"}
        device = [event["args"] for event in events if event.get("cat") in {"kernel", "gpu_memcpy"}]
        assert len(calls) == len(set(calls))
        assert {args["correlation"] for args in device} <= set(calls)
        assert {args["External id"] for args in device} <= ops

    def test_arrows_join_calls_to_device_operations(self, trace: dict[str, Any]) -> None:
        ends = {kind: {e["id"] for e in trace["traceEvents"] if e["ph"] == kind} for kind in "sf"}
        assert ends["s"] == ends["f"]
        assert len(ends["s"]) == sum(e.get("cat") in {"kernel", "gpu_memcpy"} for e in trace["traceEvents"])

    def test_ranges_of_a_thread_nest(self, trace: dict[str, Any]) -> None:
        spans = [e for e in trace["traceEvents"] if e.get("cat") in {"cpu_op", "user_annotation", "cuda_runtime"}]
        for thread in {span["tid"] for span in spans}:
            opened: list[int] = []
            for span in sorted((s for s in spans if s["tid"] == thread), key=lambda s: s["ts"]):
                start = round(span["ts"] * 1000)
                end = start + round(span["dur"] * 1000)
                while opened and opened[-1] <= start:
                    opened.pop()
                assert not opened or end < opened[-1]
                opened.append(end)

    def test_steps_are_annotated_on_both_sides(self, trace: dict[str, Any]) -> None:
        names = [(e["cat"], e["name"]) for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")]
        assert sorted(names) == sorted(
            (category, f"ProfilerStep#{number}")
            for category in ("user_annotation", "gpu_user_annotation")
            for number in range(3, 11)
        )

    def test_memory_is_near_capacity_where_it_should_be(self) -> None:
        for name, low, high in (("none", 0.5, 0.56), ("memory-near-capacity", 0.95, 0.97)):
            trace = json.loads(simulate.case(name, seed=1).faulty.kineto())
            peak = max(e["args"]["Total Allocated"] for e in trace["traceEvents"] if e["name"] == "[memory]")
            assert low < peak / trace["deviceProperties"][0]["totalGlobalMem"] < high

    def test_memory_that_is_taken_is_given_back_at_the_same_address(self, trace: dict[str, Any]) -> None:
        held: dict[int, int] = {}
        for event in (e["args"] for e in trace["traceEvents"] if e["name"] == "[memory]"):
            if event["Bytes"] > 0:
                assert held.setdefault(event["Addr"], event["Bytes"]) == event["Bytes"]
            else:
                assert held.pop(event["Addr"]) == -event["Bytes"]
        assert not held

    def test_occupancy_follows_the_launch_and_kinetos_limit(self) -> None:
        trace = json.loads(profiles.case("none").faulty.kineto())
        kernels = {e["name"]: e["args"] for e in trace["traceEvents"] if e.get("cat") == "kernel"}
        for name, args in kernels.items():
            if "s16816gemm" in name:  # 96 kB of shared memory a block: more than Kineto's calculator allows
                assert args["est. achieved occupancy %"] == 0
            if "flash_fwd" in name:  # 255 registers: two blocks of 128 threads on each multiprocessor
                assert args["est. achieved occupancy %"] == 13
            assert args["blocks per SM"] == pytest.approx(
                args["grid"][0] * args["grid"][1] * args["grid"][2] / 108, abs=1e-6
            )

    def test_the_same_seed_gives_the_same_bytes(self, case: Case, tmp_path: Path) -> None:
        again = simulate.case("frequent-synchronisation", seed=3)
        assert again.faulty.kineto() == case.faulty.kineto()
        assert again.save(tmp_path / "a").read_bytes() == case.save(tmp_path / "b").read_bytes()
        assert simulate.case("frequent-synchronisation", seed=4).faulty.kineto() != case.faulty.kineto()


class TestCommand:
    def test_it_writes_a_trace_and_the_truth(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert simulate.main(["--fault", "input-bound", "--gpu", "v100", "--steps", "5", "-o", str(tmp_path)]) == 0
        facts = yaml.safe_load((tmp_path / "case.yaml").read_text())
        truth = facts["truth"]
        assert facts["simulated"] is True
        assert facts["must_fire"] == ["input-bound"]
        assert "launch-bound" in facts["must_not_fire"]
        assert truth["saved_ms"] == pytest.approx(truth["faulty_step_ms"] - truth["fixed_step_ms"], abs=1e-3)
        assert f"{truth['faulty_step_ms']:.2f} ms a step" in capsys.readouterr().out
        (trace,) = tmp_path.glob("rank0.*.pt.trace.json.gz")
        assert json.loads(gzip.decompress(trace.read_bytes()))["simulated"] is True

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--fault", "amp-unused", "--gpu", "a100"], "occurs on v100 only"),
            (["--steps", "2"], "record 5 or more"),
        ],
    )
    def test_what_it_cannot_show_it_refuses(
        self, arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit, match="2"):
            simulate.main([*arguments, "-o", str(tmp_path)])
        assert says in capsys.readouterr().err

    @pytest.mark.parametrize("folder", every(3, sorted(FIXTURES.glob("simulated-*"))), ids=lambda folder: folder.name)
    def test_committed_traces_are_what_their_command_writes(self, folder: Path, tmp_path: Path) -> None:
        facts = yaml.safe_load((folder / "case.yaml").read_text())
        simulate.main([*shlex.split(facts["command"])[1:], "-o", str(tmp_path)])
        committed, written = ({file.name: file for file in of.glob("*.gz")} for of in (folder, tmp_path))
        assert committed.keys() == written.keys()
        for name, file in committed.items():
            assert gzip.decompress(file.read_bytes()) == gzip.decompress(written[name].read_bytes())
        assert yaml.safe_load((tmp_path / "case.yaml").read_text()) == facts
        assert sum(file.stat().st_size for file in committed.values()) < 400_000
