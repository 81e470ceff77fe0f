from __future__ import annotations

from advisor.model.finding import Value
from advisor.model.report import Run
from advisor.present.ranks import bandwidth, each_rank, hosts, pace, reach
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
    return changed(EIGHT, source=source, metrics={"device": tuple(rows), "wait": tuple(wait)})


def test_one_sentence_names_who_sets_the_pace_who_is_slow_and_who_is_awaited():
    assert pace(job(3, (100.0, 100.0, 100.0, 110.0), {3: 24.0})) == (
        "Rank 3 sets the pace: without waits it takes longest, 110 ms a step, 10 ms more than the typical rank. "
        "The others wait longest for it: 24 ms a step, the sum of all ranks."
    )
    assert pace(job(1, (100.0, 100.0, 100.0, 110.0), {2: 24.0, 3: 5.0})) == (
        "Rank 1 sets the pace; without waits rank 3 takes longest, 110 ms a step, 10 ms more than the typical rank. "
        "The others wait longest for rank 2, the last to arrive: 24 ms a step, the sum of all ranks."
    )


def test_ranks_that_are_alike_are_not_blamed():
    assert pace(job(0, (100.0, 100.0), {1: 0.001})) == (
        "Rank 0 sets the pace: without waits it takes longest, 100 ms a step. The ranks hardly wait for each other."
    )
    assert pace(job(0, (100.0, 100.0), {})) == "Rank 0 sets the pace: without waits it takes longest, 100 ms a step."
    assert pace(RESNET) is None


def test_the_other_odd_ranks_have_a_line_each():
    run = job(3, (80.0, 100.0, 100.0, 110.0), {})
    assert each_rank(run) == ["rank 0: 80 ms a step without waits, 20 ms less than the typical rank; waits 1 ms"]


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


def test_what_the_links_reach_is_one_line():
    known = {"bus_bandwidth_gbs": 64.1, "expected_bus_bandwidth_gbs": 211.0, "link_reached_share": 0.3038}
    large = {"op": "all_reduce", "group_size": 2, "bytes": 32 << 20, "algorithm_gbs": 13.0, "bus_gbs": 13.0}
    small = large | {"bytes": 1 << 20, "bus_gbs": 99.0}

    def line(run: dict[str, Value], *collectives: dict[str, Value]) -> str | None:
        return bandwidth(changed(EIGHT, metrics={"run": (run,), "collective": collectives}))

    assert line(known, large) == (
        "collectives of 4 MiB and more reach a bus bandwidth of 64.1 GB/s, 30 % of the 211 GB/s that the links allow"
    )
    assert line(known | {"link_reached_share": None}, small, large) == (
        "the largest all_reduce, 32 MiB between 2 ranks: at least 13 GB/s algorithm and 13 GB/s bus bandwidth (this "
        "includes waiting for late ranks)"
    )
    one_way = large | {"op": "send", "exact": 1.0}
    assert line({}, one_way) == "the largest send, 32 MiB from one rank to another: 13 GB/s"
    pair = {"slowest_pair": "ranks 2 and 3", "slowest_pair_share": 0.52}
    assert line(pair, one_way) == (
        "the largest send, 32 MiB from one rank to another: 13 GB/s; the slowest link, between ranks 2 and 3, reaches "
        "52 % of the typical one"
    )
    assert line(pair | {"slowest_pair_share": 0.93}) == "no link between two ranks is slower than the others"
    assert line({}, small) is None
    assert line({}, large | {"bytes": None, "bus_gbs": None}) is None
    assert line({}) is None


def test_hosts_and_what_takes_most_of_their_steps():
    rows = [
        {"worker": worker, "step": n, "step_ms": length, "bottleneck": most, "input_share": 0.7, "compute_share": 0.6}
        for worker, length, most in ((0, 20.0, "compute"), (1, 30.0, "input"))
        for n in range(2)
    ]
    workers = tuple(changed(RESNET.source.workers[0], worker=n, name=f"h{n}") for n in range(2))
    source = changed(RESNET.source, framework="jax", workers=workers)
    run = changed(RESNET, source=source, metrics={"step": tuple(rows)})
    assert hosts(run) == [
        "host 1 (h1): 30 ms a step, mostly input (70 %)",
        "host 0 (h0): 20 ms a step, mostly compute (60 %)",
    ]
    assert hosts(changed(run, source=changed(source, workers=workers[:1]))) == []


def test_each_gpu_of_an_nsight_export_has_a_line():
    quiet = {"worker": 0, "device": 0, "step_mean_ms": 200.0, "device_busy_share": 0.5, "communication_ms": 0.0}
    waiting = {"worker": 0, "device": 1, "step_mean_ms": 200.0, "device_busy_share": 0.9, "communication_ms": 20.0}
    waiting |= {"exposed_communication_ms": 10.0, "collective_calls": "all_reduce 33", "wait_ms": 9.0}
    source = changed(RESNET.source, format="nsys")
    run = changed(RESNET, source=source, metrics={"device": (quiet, waiting), "step": ()})
    assert each_rank(run) == [
        "GPU 0: busy 50 %, no NCCL kernels",
        "GPU 1: busy 90 %, NCCL 10 % (all_reduce 33), exposed 5 %, waits 9 ms",
    ]
    alike = changed(run, metrics={"device": (quiet, quiet | {"worker": 1})})
    assert each_rank(alike)[1] == "process 1, GPU 0: busy 50 %, no NCCL kernels"
    assert each_rank(changed(run, metrics={"device": (quiet,)})) == []
    assert each_rank(changed(run, source=RESNET.source)) == []
