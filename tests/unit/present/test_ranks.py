from __future__ import annotations

from advisor.model.report import Run
from advisor.present.source import pace, reach
from tests.render_samples import INPUT_BOUND, RESNET, SAMPLES, changed

DASH = "\N{EN DASH}"
EIGHT = SAMPLES["many-workers"].runs[0]


def job(setter: int, own_ms: tuple[float, ...], waits: dict[int, float]) -> Run:
    """A job whose ranks take so long by themselves, and wait so long for a rank; before that, one was not recorded."""
    typical = sorted(own_ms)[(len(own_ms) - 1) // 2]
    rows = [
        {"worker": n, "device": 0, "own_step_ms": own, "own_step_excess_ms": own - typical, "wait_ms": 1.0}
        for n, own in enumerate(own_ms)
    ]
    wait = [{"awaited": n - 1, "awaited_name": f"rank {n}", "wait_ms": time} for n, time in waits.items()]
    source = changed(EIGHT.source, steps=changed(EIGHT.source.steps, worker=setter), world_size=8)
    return changed(EIGHT, source=source, metrics={"device": tuple(rows), "worker": tuple(rows), "wait": tuple(wait)})


def test_one_sentence_names_who_sets_the_pace_who_is_slow_and_who_is_awaited():
    assert pace(job(3, (100.0, 100.0, 100.0, 110.0), {3: 24.0})) == (
        "Rank 3 sets the pace: without waits it takes longest, 110 ms a step. "
        "The others wait longest for it: 24 ms a step, the sum of all ranks."
    )
    assert pace(job(1, (100.0, 100.0, 100.0, 110.0), {2: 24.0, 3: 5.0})) == (
        "Rank 1 sets the pace; without waits rank 3 takes longest, 110 ms a step. "
        "The others wait longest for rank 2, the last to arrive: 24 ms a step, the sum of all ranks."
    )


def test_ranks_that_are_late_in_turn_within_a_step_set_no_pace_alone():
    of = job(1, (70.0, 90.0), {1: 20.0})
    rows = tuple({**row, "step_mean_ms": 101.0} for row in of.metrics["device"])
    said = [
        pace(changed(of, metrics={**of.metrics, "device": rows, "run": ({"inner_skew_ms": inner_ms},)}))
        for inner_ms in (10.0, 10.2)
    ]
    turns = "No rank sets the pace alone: without waits rank 1 takes longest, 90 ms a step, and it waits for 11 ms."
    assert (said[0].startswith("Rank 1 sets the pace"), said[1]) == (True, turns)


def test_of_devices_of_one_process_the_device_is_named():
    rows = tuple({"worker": 0, "device": n, "own_step_ms": own} for n, own in enumerate((23.0, 27.0)))
    steps = changed(RESNET.source.steps, worker=0)
    source = changed(RESNET.source, devices=RESNET.source.devices * 2, steps=steps)
    wait = ({"awaited": 1, "awaited_name": "process 0, GPU 1", "wait_ms": 9.0},)
    assert pace(changed(RESNET, source=source, metrics={"device": rows, "worker": rows[1:], "wait": wait})) == (
        "Process 0, GPU 1 sets the pace: without waits it takes longest, 27 ms a step. "
        "The others wait longest for it: 9 ms a step, the sum of all GPUs."
    )


def test_ranks_that_are_alike_are_not_blamed():
    assert pace(job(0, (100.0, 100.0), {1: 0.001})) == (
        "Rank 0 sets the pace: without waits it takes longest, 100 ms a step. The ranks hardly wait for each other."
    )
    assert pace(job(0, (100.0, 100.0), {})) == "Rank 0 sets the pace: without waits it takes longest, 100 ms a step."
    assert pace(RESNET) is None


def test_reach_is_for_several_workers():
    assert reach(INPUT_BOUND, RESNET) is None
    whole = changed(EIGHT, source=changed(EIGHT.source, world_size=8))
    assert reach(EIGHT.findings[-1], whole) == f"ranks 0{DASH}2, 5 of 8"
    assert reach(EIGHT.findings[0], whole) == "rank 0 of 8"
    scope = changed(EIGHT.findings[0].scope, workers=tuple(range(8)), told_of=3)
    assert reach(changed(EIGHT.findings[0], scope=scope), whole) == "all 8 ranks; numbers are those of rank 3"


def test_reach_is_among_the_ranks_that_were_recorded():
    assert (EIGHT.source.world_size, len(EIGHT.source.workers)) == (16, 8)
    assert reach(EIGHT.findings[-1], EIGHT) == f"ranks 0{DASH}2, 5 of the 8 recorded"
    scope = changed(EIGHT.findings[0].scope, workers=tuple(range(8)))
    assert reach(changed(EIGHT.findings[0], scope=scope), EIGHT) == "all 8 that were recorded"
