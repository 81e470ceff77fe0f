from __future__ import annotations

import math
import re
from dataclasses import replace

import polars as pl
import pytest

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.selection import select_steps
from advisor.metrics import METRICS, dtypes, evaluate, metric
from advisor.metrics.evaluate import measure
from advisor.metrics.metric import Metric
from advisor.model.clause import Missing
from advisor.model.profile import join
from advisor.whatif.change import loss
from tests.tables import V100, kernel, measured, on_device, on_host, profile, step, union, view

STEP = [step(1, 0, 100)]
PLAIN = profile([kernel(0, 50, 0)], [on_host("op", 0, 10)], STEP)


def test_every_metric_has_a_column_of_its_type_in_every_scope():
    found = measured(PLAIN)
    keys = {"worker": pl.Int32, "device": pl.Int32}
    of_views = {name: dtype for name, dtype in dtypes().items() if METRICS[name].scope == "worker"}
    for scope in ("worker", "device"):
        assert dict(found.frames[scope].schema) == keys | of_views
    assert dict(found.frames["run"].schema) == dict(found.rows("worker").schema) == keys | dtypes()
    assert found.frames["step"]["worker"].to_list() == [0]
    assert found.frames["kernel"].height == 1


def test_every_metric_is_documented():
    for of in METRICS.values():
        assert of.meaning.endswith(".")
        assert of.formula or "_ms" in of.name  # of what a change saves, the rules have it


def test_every_meaning_stands_alone_because_evidence_is_sorted():
    elsewhere = re.compile(
        r"^(The same|Its|Their|That|Those) |\b(after it|because of them|in that time|launched them)\b"
    )
    assert [name for name, of in METRICS.items() if elsewhere.search(of.meaning)] == []


@pytest.mark.parametrize(
    ("frame", "stack"),
    [
        ("$profiler.py:385 __init__", "$train.py:7 main"),
        ("$loader.py:12 __next__", "$loader.py:12 __next__;$train.py:7 main"),
        ("$profiler.py:9 load", "$profiler.py:9 load;$train.py:7 main"),
    ],
)
def test_a_place_names_the_calls_around_it_but_not_the_profilers_own(frame: str, stack: str):
    host = [
        on_host("python", 0, 60, name="$train.py:7 main"),
        on_host("python", 1, 50, name=frame, parent=0),
        on_host("input", 2, 40, name="load_batch", parent=1),
    ]
    assert measured(profile([], host, STEP)).places("input_share", 0)["stack"].to_list() == [stack]


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch):
    """Declares metrics into a register of their own."""
    monkeypatch.setattr(metric, "METRICS", {})
    return lambda **shared: metric.of_devices("advisor.metrics.host.x", **shared)


def test_a_name_is_registered_once(declare):
    declare()("step_ms", lambda _: 1).says("x", "x")
    with pytest.raises(ValueError, match="step_ms"):
        declare()("step_ms", lambda _: 1).says("Again.", "x")


@pytest.mark.parametrize(
    ("name", "unit"),
    [("idle_ms", "ms"), ("idle_share", "share"), ("idle_part", "share"), ("ms_of_idle", "number")],
)
def test_a_metrics_unit_is_what_its_name_ends_in_unless_it_says_another(name: str, unit: str):
    assert Metric(name, "x", lambda: 1).unit == unit
    assert Metric(name, "x", lambda: 1, unit="count").unit == "count"


def test_a_metric_needs_what_all_that_are_declared_with_it_need_and_what_it_needs_itself(declare):
    measure = declare(needs=("device_ops",))
    measure("one_ms", lambda _: 1).says("x", "x")
    measure("other_ms", lambda _: 1, needs=("devices",)).says("x", "x")
    assert [metric.METRICS[name].needs for name in ("one_ms", "other_ms")] == [
        ("device_ops",),
        ("device_ops", "devices"),
    ]
    assert [of.name for of in metric.topics()["host"]] == ["one_ms", "other_ms"]


def test_a_source_that_all_share_is_said_once_and_one_may_have_another(declare):
    measure = declare(source="a book")
    measure("one_ms", lambda _: 1).says("x", "x")
    measure("other_ms", lambda _: 1).says("x", "x", "a paper")
    assert [metric.METRICS[name].source for name in ("one_ms", "other_ms")] == ["a book", "a paper"]


def test_a_gain_is_what_a_change_saves_at_most(declare):
    declare().gain("rain", lambda _: loss(10_000, 25_000)).says("Step time saved without rain.")
    gain = metric.METRICS["rain_gain_ms"]
    assert (gain.value(view(PLAIN)), gain.unit) == (pytest.approx(0.025), "ms")


def test_a_reason_that_several_share_is_looked_for_once(declare):
    asked = []
    measure = declare(unknown=lambda view: asked.append(view) or Missing("no_shapes"))
    measure("one_ms", lambda _: 1).says("x", "x")
    measure("other_ms", lambda _: 1).says("x", "x")
    assert {metric.METRICS[name].value(view(PLAIN)) for name in ("one_ms",)} == {Missing("no_shapes")}
    seen = view(PLAIN)
    asked.clear()
    assert [metric.METRICS[name].value(seen) for name in ("one_ms", "other_ms")] == [Missing("no_shapes")] * 2
    assert len(asked) == 1


def test_what_a_time_means_is_said_once(declare):
    declare().time("rain", lambda _: union((10, 30), (90, 120))).says("in which it rains", "rain", "a book")
    share, ms = (metric.METRICS[name] for name in ("rain_share", "rain_ms"))
    assert (share.meaning, share.formula, share.source) == (
        "Part of the step in which it rains.",
        "rain / step time",
        "a book",
    )
    assert (ms.meaning, ms.formula, ms.unit) == ("Time per step in which it rains.", "rain / steps", "ms")
    seen = view(PLAIN)
    assert share.value(seen) == pytest.approx(0.3)  # 20 + 10 of 100 us
    assert ms.value(seen) == pytest.approx(0.03)


def test_kernels_are_told_by_share_time_number_and_ops(declare):
    declare().kernels("some", lambda seen: seen.once(kernels), ("share", "ms", "ops", "per_step")).says(
        "in some", "some"
    )
    seen = view(PLAIN)
    values = {name: of.value(seen) for name, of in metric.METRICS.items()}
    assert values == {
        "some_share": pytest.approx(0.5),
        "some_ms": pytest.approx(0.05),
        "some_ops": [{"name": "kernel", "ms": 0.05}],
        "some_per_step": 1,
    }
    assert metric.METRICS["some_share"].where(seen)["name"].to_list() == ["kernel"]


def test_both_ends_of_a_saving_are_worked_out_together(declare):
    asked = []
    declare().saving("x", lambda view: asked.append(view) or (1.0, 2.0)).says("rest")
    seen = view(PLAIN)
    assert {name: of.value(seen) for name, of in metric.METRICS.items()} == {"x_least_gain_ms": 1, "x_gain_ms": 2}
    assert len(asked) == 1
    least, most = metric.METRICS.values()
    assert (least.meaning, most.meaning) == (
        "Step time that rest saves at least.",
        "Step time that rest saves at most.",
    )


def test_a_null_has_a_reason_and_a_value_none():
    found = measured(PLAIN)
    (row,) = found.frames["run"].to_dicts()
    assert {name for name, value in row.items() if value is None} == set(found.reasons)
    assert found.reasons["step_cv"] == Missing("nothing_to_compute_from")
    assert found.reasons["peak_memory_bytes"] == Missing("no_allocation")


def test_the_reason_is_that_of_the_device_whose_values_are_told():
    # of device 0, which sets the pace, a quarter is idle before a kernel without a launch, of device 1 eight tenths
    ran = [kernel(a, b, launched, device=0) for a, b, launched in ((0, 100, 0), (150, 200, None))]
    ran += [kernel(a, b, launched, device=1) for a, b, launched in ((0, 10, 0), (90, 100, None))]
    found = measured(profile(ran, steps=[step(1, 0, 200, device=0), step(1, 0, 100, device=1)]))
    assert found.frames["run"]["unknown_idle_share"].item() == pytest.approx(0.25)
    assert found.reasons["host_bound_idle_share"] == Missing("idle_cause_unknown", share=0.25)


@pytest.mark.parametrize(("length", "paces"), [(1_005, 0), (1_050, 1)])
def test_of_devices_whose_steps_are_as_long_the_busier_sets_the_pace(length: int, paces: int):
    ran = [kernel(0, 900, 0, device=0), kernel(0, 100, 0, device=1)]
    found = measured(profile(ran, steps=[step(1, 0, 1_000, device=0), step(1, 0, length, device=1)]))
    assert found.frames["run"]["device_busy_share"].item() == pytest.approx([0.9, 100 / length][paces])


@pytest.mark.parametrize("need", ["device_ops.launch", "device_ops"])
def test_what_the_recording_lacks_is_the_reason(need: str):
    found = measured(replace(PLAIN, lacks={need: Missing("not_recorded")}))
    (row,) = found.frames["worker"].to_dicts()
    assert row["host_bound_idle_share"] is None
    assert found.reasons["host_bound_idle_share"] == Missing("not_recorded")
    assert row["step_ms"] is not None


@pytest.mark.soak
def test_a_damaged_file_of_several_casts_doubt_on_its_own_worker_alone():
    cut = Missing("partial_lines", lines=1)
    one, other = (
        replace(
            profile(
                [kernel(0, 50, 0, worker=worker)],
                [on_host("op", 0, 10, worker=worker)],
                [step(1, 0, 100, worker=worker)],
            ),
            lacks=dict.fromkeys(("device_ops.start_ns", "host_ops.start_ns"), cut) if worker else {},
        )
        for worker in (0, 1)
    )
    joined = join([one, other])
    views = select_steps(joined, "all").views
    assert [(view.loses_ops, view.host_doubt) for view in views] == [(False, None), (True, cut)]
    known = measured(joined).frames["worker"]
    alone = [measured(each).frames["worker"] for each in (one, other)]
    for name in ("device_busy_share", "host_share", "host_bound_idle_share"):
        assert known[name].to_list() == [each[name].item() for each in alone]
        assert (known[name].null_count(), measured(joined).reasons[name]) == (1, cut)
    of_all = replace(joined, lacks={"off_cpu": Missing("no_cpu_waits")})  # as a reader finds once it has joined them
    assert [of_all.why_lacking("off_cpu", worker) for worker in (0, 1)] == [Missing("no_cpu_waits")] * 2
    assert of_all.why_lacking("host_ops.start_ns", 1) == cut


def test_a_worker_without_a_device_is_told_from_a_recording_without_one():
    alone = profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)])
    assert measured(alone).reasons["idle_share"] == Missing("no_device_used")
    lacking = replace(alone, lacks={"device_ops": Missing("no_gpu_activity")})
    assert measured(lacking).reasons["idle_share"] == Missing("no_gpu_activity")
    assert measured(lacking).frames["worker"]["host_share"].item() == pytest.approx(0.1)


def test_what_is_no_number_becomes_null():
    found = measured(profile([kernel(0, 50, occupancy=math.nan, blocks_per_sm=math.nan)], steps=STEP))
    assert found.frames["worker"].select("occupancy", "sm_efficiency").row(0) == (None, None)
    assert found.reasons.keys() >= {"occupancy", "sm_efficiency"}


@pytest.mark.parametrize("metric", ["thirty_two_bit_share", "few_blocks_share"])
def test_a_part_of_the_step_is_at_most_all_of_it(metric: str):
    together = [kernel(0, 300, name="volta_sgemm_128x64_nn", stream=i, grid=1, blocks_per_sm=0.1) for i in range(3)]
    assert measured(profile(together, steps=STEP)).frames["worker"][metric].item() <= 1


def test_without_a_step_used_nothing_of_the_steps_is_claimed():
    host = [on_host("input", 0, 10), on_host("sync", 20, 30)]
    found = measured(profile([kernel(0, 50, 0)], host, [step(1, 0, 100, incomplete="cut")]))
    (row,) = found.frames["worker"].to_dicts()
    known = {name for name, value in row.items() if value is not None}
    once = {
        "host_alone_ms",
        "host_alone_place",
        "host_alone_waits",
        "once_idle_share",
        "once_ms",
        "once_work",
        "recorded_ms",
        "unmarked_ms",
        "used_ms",
        "worker_start_ms",
        "worker_start_share",
        "worked_share",
        "peers_recorded",
    }  # of the recording, not of its steps
    assert known == {
        "worker",
        "device",
        "device_name",
        "devices_used",
        "program_error",
        "profiler_warning",
        "outdated_profiler",
        "interrupts",
        "memory_errors",
        "kernel_errors",
        "capability",
        "gpu_listed",
        "nccl_version",
        "driver_wait_ms",
        "steps",
        "steps_cut",
        "workload",
        *once,
    }


def test_a_worker_s_row_is_that_of_its_critical_device():
    # us         0    100  200
    # device 0   |-1-||-2-|          two steps of 100
    # device 1   |- 1 -||- 2 -|      one of 120 and one of 130, which begin later
    steps = [step(1, 0, 100), step(2, 100, 200), step(1, 10, 130, device=1), step(2, 130, 260, device=1)]
    device = [kernel(0, 50), kernel(100, 150), kernel(10, 130, device=1), kernel(130, 140, device=1)]
    found = measured(profile(device, steps=steps, devices=[V100, V100 | {"device": 1}]))
    assert found.frames["device"].select("device", "step_mean_ms", "device_busy_share").rows() == [
        (0, pytest.approx(0.1), pytest.approx(0.5)),
        (1, pytest.approx(0.125), pytest.approx(0.52)),
    ]
    assert found.frames["worker"].equals(found.frames["device"].filter(pl.col("device") == 1))
    assert found.frames["step"].select("device", "step", "step_ms").rows() == [
        (0, 1, pytest.approx(0.1)),
        (0, 2, pytest.approx(0.1)),
        (1, 1, pytest.approx(0.12)),
        (1, 2, pytest.approx(0.13)),
    ]


def test_of_a_whole_recording_a_worker_s_row_is_that_of_its_busiest_device():
    """Nothing marks steps: both windows span 100 us, of which device 0 works 2 and device 1 works 51."""
    device = [kernel(0, 1), kernel(99, 100), kernel(0, 50, device=1), kernel(99, 100, device=1)]
    found = measured(profile(device, devices=[V100, V100 | {"device": 1}]))
    assert found.frames["device"]["step_mean_ms"].n_unique() == 1
    assert found.rows("worker")["device"].to_list() == [1]


def test_time_in_collectives_makes_no_device_the_busiest():
    """Device 0 works 31 of 100 us, device 1 works 21 and is in a collective for 60, which may be waiting."""
    device = [kernel(0, 30), kernel(99, 100), kernel(0, 20, device=1), kernel(99, 100, device=1)]
    device.append(on_device("collective", 20, 80, device=1))
    found = measured(profile(device, devices=[V100, V100 | {"device": 1}]))
    assert found.rows("worker")["device"].to_list() == [0]


def test_places_of_a_metric_that_names_none():
    assert measure(select_steps(PLAIN)).places("step_ms", 0).is_empty()


def test_a_metric_whose_places_fail_costs_the_timeline_no_more_than_its_marks(monkeypatch: pytest.MonkeyPatch):
    def fails(_: object) -> object:
        raise IndexError("a bug")

    found = measured(profile([kernel(0, 50, 0)], steps=[step(1, 0, 100)]))
    broken = {**METRICS, "idle_share": replace(METRICS["idle_share"], where=fails)}
    monkeypatch.setattr(evaluate, "METRICS", broken)
    timeline = found.timeline(["idle_share", "device_busy_share"])
    assert timeline is not None
    assert "idle_share" not in timeline.evidence
