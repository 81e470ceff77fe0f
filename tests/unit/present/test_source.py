from __future__ import annotations

import pytest

from advisor.model.finding import Entry, Evidence
from advisor.model.reason import Reason
from advisor.model.source import LeftOutStep, StepLength, Steps, Worker
from advisor.present.source import facts, idle_devices, left_out, owner, whose, window
from tests.render_samples import RESNET, SAMPLES, changed, cpu_only

DASH = "\N{EN DASH}"
MARKED = {"marked": True, "count": 8, "used": 8, "step_ms": 177.4, "step_mean_ms": 177.6, "left_out": ()}
EIGHT = SAMPLES["many-workers"].runs[0]
SIX_OF_EIGHT = "6 of 8 steps used, without step 7 (not recorded from its beginning) and step 14 (412 ms long)"


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (
            "resnet",
            ("pytorch profile (kineto)", "Tesla V100-DGXS-32GB", f"{SIX_OF_EIGHT}, 178 ms on average"),
        ),
        (
            "cpu-only",
            ("pytorch profile (kineto)", "CPU; no GPU was recorded", "no steps marked, 2.31 s used"),
        ),
        ("unknown", ("kineto profile", "0 processes", "CPU; no GPU was recorded", "no steps marked")),
    ],
)
def test_what_was_read(sample: str, expected: tuple[str, ...]):
    assert facts(SAMPLES[sample].runs[0]) == expected


def test_the_step_of_the_savings_is_told_from_the_usual_and_the_recorded_one():
    steps = RESNET.source.steps
    long = changed(RESNET, source=changed(RESNET.source, steps=changed(steps, whole_mean_ms=200.0)))
    assert facts(long)[-1] == "8 steps, 200 ms on average, a usual one 178 ms"
    timed = changed(RESNET, source=changed(RESNET.source, steps=changed(steps, unprofiled_ms=150.0)))
    assert facts(timed)[-1] == f"{SIX_OF_EIGHT}, 150 ms without the profiler, 178 ms with it"
    alike = changed(RESNET, source=changed(RESNET.source, steps=changed(steps, unprofiled_ms=178.0)))
    assert facts(alike)[-1] == f"{SIX_OF_EIGHT}, 178 ms without the profiler"


def test_idle_devices_are_named_where_a_finding_names_them():
    def known(**values: float | str) -> str:
        evidence = [Evidence(metric=name, value=value, unit="count", meaning="") for name, value in values.items()]
        finding = changed(RESNET.findings[0], evidence=tuple(evidence))
        return idle_devices(changed(RESNET, findings=(RESNET.findings[0], finding)))

    assert known(devices_idle=5, devices_visible=8) == "7 of 8 GPUs ran no kernel."
    assert known(devices_idle=7, devices_visible=8) == "7 of 8 GPUs do nothing."
    assert known(devices_idle=5) == ""  # a rule of one's own may show that alone
    assert idle_devices(RESNET) == ""


def test_of_a_recording_of_which_little_is_used_the_length_is_named():
    run = changed(SAMPLES["cpu-only"].runs[0], metrics={"worker": ({"worker": None, "recorded_ms": 23100.0},)})
    assert facts(run)[-1] == "no steps marked, 2.31 s of 23.1 s used"


def test_an_nsight_export_is_no_profile_of_the_frameworks_profiler():
    source = RESNET.source
    assert facts(changed(RESNET, source=changed(source, format="nsys")))[0] == "nsys profile of pytorch"
    assert facts(changed(RESNET, source=changed(source, format="nsys", framework="cuda")))[0] == "CUDA program (nsys)"
    assert facts(changed(RESNET, source=changed(source, format="nsys", framework=None)))[0] == "nsys profile"


def test_a_device_that_ranks_share_counts_once():
    one = EIGHT.source.devices[0]
    shared = changed(EIGHT.source, devices=(one, changed(one, worker=1, again=True)))
    assert facts(changed(EIGHT, source=shared))[2] == "NVIDIA H100 80GB HBM3, which they share"


def test_many_ranks_and_devices_are_counted():
    assert facts(EIGHT)[1:3] == ("8 of 16 ranks", "8 \N{MULTIPLICATION SIGN} NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(
    ("used", "expected"),
    [(8, "8 steps, 178 ms on average"), (0, "0 of 8 steps used"), (1, "1 of 8 steps used, 178 ms")],
)
def test_steps_that_were_used(used: int, expected: str):
    assert facts(changed(RESNET, source=changed(RESNET.source, steps=Steps(**MARKED | {"used": used}))))[-1] == expected


def test_of_steps_that_were_not_used_the_reasons_are_named():
    def said(used: int, share: float = 0.0, *more: LeftOutStep) -> str:
        cut = LeftOutStep(worker=0, device=0, step=9, why=Reason(code="no_end", words="it has no end; perhaps"))
        long = LeftOutStep(worker=0, device=0, step=3, why=Reason(code="outlier", words="an outlier; the median is 9"))
        steps = Steps(**MARKED | {"used": used, "worker": 0, "left_out": (long, cut, *more)})
        names = ("step 9, because it has no end; perhaps", "step 0, the first of the recording")
        parts = tuple(Entry(name=name, ms=50) for name in names)
        metrics = {"worker": ({"worker": 0, "left_out_share": share, "left_out_parts": parts},)}
        return facts(changed(RESNET, source=changed(RESNET.source, steps=steps), metrics=metrics))[-1]

    each = "step 3 (an outlier) and step 9 (it has no end)"
    assert said(6) == f"6 of 8 steps used, without {each}, 178 ms on average"
    assert said(6, 0.05) == "6 of 8 steps used, 178 ms on average"  # the headline names them
    assert said(5) == "5 of 8 steps used, 178 ms on average"
    first = LeftOutStep(worker=0, device=0, step=0, why=Reason(code="cold_ops", words="ops ran for the first time"))
    assert said(5, 0.0, first) == "5 of 8 steps used, 178 ms on average"  # three reasons are no line


def test_steps_that_a_program_counts_from_its_start_are_told_by_their_numbers():
    rows = tuple({"step": step, "worker": 0, "device": 0} for step in range(22, 30))
    late = changed(RESNET, metrics=RESNET.metrics | {"recorded_step": rows})
    numbers = changed(late.source.steps, left_out=late.source.steps.left_out[:1])  # one is not explained
    assert facts(changed(late, source=changed(late.source, steps=numbers)))[-1].startswith(
        f"6 of 8 steps (22{DASH}29) used, 1"
    )


def test_steps_of_two_lengths_say_both():
    lengths = (StepLength(steps=4, mean_ms=36.0), StepLength(steps=4, mean_ms=320.0))
    steps = Steps(**MARKED | {"used": 8, "lengths": lengths})
    said = facts(changed(RESNET, source=changed(RESNET.source, steps=steps)))[-1]
    assert said == "8 steps, 178 ms on average (4 of 36 ms and 4 of 320 ms)"


@pytest.mark.parametrize("used", [8, 1])
def test_of_several_workers_one_gives_the_numbers(used: int):
    steps = Steps(**MARKED | {"used": used, "worker": 5})
    part = changed(EIGHT, source=changed(EIGHT.source, steps=steps, world_size=16))
    paced = changed(part, source=changed(part.source, world_size=len(part.source.workers)))
    assert facts(paced)[-1].endswith("; numbers of rank 5, which works longest")
    assert facts(part)[-1].endswith("; numbers of rank 5, which works longest of those")


def test_of_several_devices_of_a_process_one_gives_the_numbers():
    source = changed(RESNET.source, devices=RESNET.source.devices * 2)
    several = changed(RESNET, source=source, metrics={"worker": ({"worker": 0, "device": 1, "own_step_ms": 9.0},)})
    assert facts(several)[-1].endswith("; numbers of GPU 1, which works longest")
    unknown = changed(several, metrics={"worker": ({"worker": 0, "device": 1},)})
    assert facts(unknown)[-1].endswith("; numbers of GPU 1, whose steps take longest")  # waits for others included


def test_what_shares_are_of():
    assert window(RESNET.source.steps) == "a step of 178 ms"
    assert window(cpu_only().runs[0].source.steps) == "the 2.31 s used"


def test_steps_left_out_for_one_reason_stand_together():
    every = tuple(
        LeftOutStep(worker=w, device=0, step=s, why=Reason(code="compiled", words="it compiled"))
        for w in (0, 1, 2)
        for s in (3, 4)
    )
    steps = Steps(
        **MARKED
        | {"left_out": (*every, LeftOutStep(worker=5, device=0, step=9, why=Reason(code="x", words="my own reason")))}
    )
    assert left_out(changed(EIGHT.source, steps=steps)) == [
        (f"steps 3{DASH}4 of ranks 0{DASH}2", "it compiled"),
        ("step 9 of rank 5", "my own reason"),
    ]


def test_hosts_of_tensorflow_are_called_by_their_names():
    workers = tuple(Worker(worker=n, rank=None, name=name, file=name) for n, name in enumerate(("alpha", "beta")))
    hosts = changed(RESNET, source=changed(RESNET.source, format="xplane", workers=workers))
    assert (whose(hosts.source), owner(hosts, {"worker": 1})) == ("host", "beta")
    ranks = changed(hosts, source=changed(hosts.source, format="kineto"))
    assert (whose(ranks.source), owner(ranks, {"worker": 1})) == ("rank", "rank 1")
    gpus = changed(hosts, source=changed(hosts.source, workers=workers[:1], devices=RESNET.source.devices * 2))
    assert owner(gpus, {"worker": 0, "device": 6}) == "process 0, GPU 6"


def test_steps_that_differ_much_say_what_the_middle_one_takes():
    steps = Steps(**MARKED | {"used": 8, "step_ms": 230.0})
    said = facts(changed(RESNET, source=changed(RESNET.source, steps=steps)))[-1]
    assert said == "8 steps, 178 ms on average (they differ: the middle one has 230 ms)"
    alike = Steps(**MARKED | {"used": 8, "step_ms": 210.0})
    assert facts(changed(RESNET, source=changed(RESNET.source, steps=alike)))[-1] == "8 steps, 178 ms on average"


def test_with_long_steps_both_lengths_without_the_profiler_are_named():
    """The usual one is what a recorded step is told to be longer than."""
    steps = changed(RESNET.source.steps, unprofiled_ms=150.0, unprofiled_whole_ms=160.0)
    said = facts(changed(RESNET, source=changed(RESNET.source, steps=steps)))[-1]
    assert said.endswith("160 ms without the profiler on average, a usual one 150 ms, 178 ms with it")
    assert steps.longer == pytest.approx(178 / 150 - 1, abs=0.01)
