"""Scenarios that can be worked out by hand, those that are refused, and the published shares of a job."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

import advisor
from advisor.analysis.device.selection import select_steps
from advisor.errors import UsageError
from advisor.whatif.change import faster, saved
from advisor.whatif.scenario import Term, scenario
from tests.profiles import ROOT
from tests.tables import V100, kernel, on_device, on_host, profile, step

WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
TF_DATA = "IteratorGetNextOp::DoCompute"
RANKS = "fixtures/simulated-ranks-slow-rank-a100"


def middle(stage) -> object:
    """Of the two ends, which lie as far from what the replay takes as measured steps do: a tenth of what is less."""
    half = (stage.high_ms - stage.low_ms) / 2
    assert 0 <= half <= 0.11 * stage.high_ms
    return pytest.approx(stage.low_ms + half, abs=0.0012)


# us        0                 100   120     200       The host asks for a batch, launches, and waits.
# input     |-----------------|
# launch                       ||                     99 to 100 and so on
# kernel                       =======                106 to 190
def waiting(name: str = "input", pipeline: str = ""):
    host, device = [], []
    for t in range(0, 800, 200):
        host += [on_host("input", t, t + 90, name=name), on_host("sync", t + 101, t + 192)]
        host += [on_host("pipeline", t, t + 90, name=f"Iterator::{pipeline}", thread=3)] * bool(pipeline)
        device += [kernel(t + 106, t + 190, t + 100, name="sgemm")]
    return select_steps(profile(device, host, [step(i, 200 * i, 200 * i + 200) for i in range(4)]))


def test_each_change_comes_after_those_before_it():
    answer = scenario(waiting(), ["input=0", "kernels:gemm=2x"])
    assert (answer.step_ms, answer.pace) == (pytest.approx(0.200), "the host")
    first, second = answer.stages
    assert (first.low_ms, first.pace) == (pytest.approx(0.101), "the GPU")  # 110 us less a tenth of the 90 that go
    assert second.low_ms == pytest.approx(0.0612)  # the kernel of 84 us takes 42: 68 us, less a tenth
    (of_family,) = scenario(waiting(), ["kernels:gem=2x"]).stages  # letters that the family begins with
    assert middle(of_family) == 0.158


def test_what_is_faster_than_the_loader_saves_nothing_before_that(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.analysis.device.iterators.HAND_OVER_NS", 20_000)
    workers = waiting(WORKERS)
    answer = scenario(workers, ["kernels:gemm=2x", "input=2x", "input=0"])
    assert answer.pace == "the data loader"
    assert middle(answer.stages[0]) == 0.200
    # a batch every 100 us: what a step takes beside its wait, kernels twice as fast or not, is less or as much
    assert middle(answer.stages[1]) == 0.1025
    assert answer.stages[2].low_ms <= 0.068 <= answer.stages[2].high_ms
    assert [stage.pace for stage in answer.stages[:2]] == ["the data loader"] * 2


def test_threads_of_tf_data_set_a_pace_where_they_work_ahead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.analysis.device.iterators.HAND_OVER_NS", 20_000)
    ahead = scenario(waiting(TF_DATA, "Root::Prefetch::Map"), ["kernels:gemm=2x", "input=2x"])
    assert (ahead.pace, middle(ahead.stages[0])) == ("the data loader", 0.200)
    assert middle(ahead.stages[1]) == 0.102  # an element every 100 us
    on_demand = scenario(waiting(TF_DATA, "Root::Map"), ["input=2x"])
    assert (on_demand.pace, on_demand.stages[0].low_ms) == ("the host", pytest.approx(0.1505))  # half of 90 us less


# us        0         60        100          200   workers bring a batch 40 us after it is asked for; 60 us of products
def on_cpu():
    host = [on_host("input", t, t + 40, name=WORKERS) for t in range(0, 800, 200)]
    host += [on_host("op", t + 40, t + 100, name="aten::mm") for t in range(0, 800, 200)]
    steps = [step(i, 200 * i, 200 * i + 200, device=None) for i in range(4)]
    return select_steps(profile([], host, steps, devices=()))


def test_without_a_device_the_host_runs_beside_the_workers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.analysis.device.iterators.HAND_OVER_NS", 20_000)
    answer = scenario(on_cpu(), ["kernels:mm=2x", "input=2x"])
    assert answer.pace == "the data loader"
    first, second = answer.stages
    assert middle(first) == 0.200  # the batch comes when it did
    # batches 100 us apart, the first after 20: then 30 us of products and 100 of the rest are more, four times
    assert middle(second) == 0.135


# us        0         wait      +60        200      a batch, 60 us of products and the rest; threads make one in `makes`
def with_threads(wait: int, makes: int, threads: int, hands_over: str = "$queue.py:122 put"):
    host = [on_host("input", t, t + wait, name="$queue.py:154 get", parent=None) for t in range(0, 2000, 200)]
    host += [on_host("op", t + wait, t + wait + 60, name="fusion.1") for t in range(0, 2000, 200)]
    pools = [(t, 10 + t % (200 * threads) // 200) for t in range(0, 2000, 200)]
    if hands_over.endswith("put"):  # 10 us, since the last one `makes`
        host += [on_host("python", t // 200 // threads * (makes + 10), t // 200 // threads * (makes + 10) + 10,
                         name=hands_over, thread=thread) for t, thread in pools]  # fmt: skip
    else:
        host += [on_host("python", t, t + makes, name=hands_over, thread=thread) for t, thread in pools]
    steps = [step(i, 200 * i, 200 * i + 200, device=None) for i in range(10)]
    return select_steps(profile([], host, steps, devices=()))


def test_threads_that_are_waited_for_set_the_pace(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.analysis.device.iterators.HAND_OVER_NS", 20_000)
    answer = scenario(with_threads(100, 190, 1), ["kernels:fusion=2x", "input=4x"])
    assert (answer.pace, middle(answer.stages[0])) == ("the data loader", 0.200)
    # the first batch after 25 us, then ten times 30 us of products and 40 of the rest
    assert middle(answer.stages[1]) == 0.0725


@pytest.mark.parametrize(
    ("makes", "threads", "hands_over", "step_us"),
    [
        (190, 1, "$queue.py:122 put", 191),  # the last step ends as soon after its batch as it did
        (380, 2, "$queue.py:122 put", 191),
        (190, 1, "$thread.py:53 run", 191),
        (190, 1, "$train.py:9 make", 170),  # nothing shows who makes it
    ],
)
def test_threads_that_just_keep_up_are_the_next_to_set_it(makes: int, threads: int, hands_over: str, step_us: int):
    faster = scenario(with_threads(5, makes, threads, hands_over), ["kernels:fusion=2x"])
    assert faster.stages[0].low_ms - 0.001 <= step_us / 1000 <= faster.stages[0].high_ms + 0.001


def test_so_are_functions_of_python_in_a_pipeline_that_works_ahead():
    """Two at a time take 380 us each, so that a batch comes every 190."""
    host = [on_host("op", t, t + 380, name="PyFunc:PyFunc", thread=10 + t % 400) for t in range(0, 2000, 200)]
    host += [on_host("pipeline", t, t + 2, name="Iterator::Root::Prefetch::ParallelMapV2", thread=3) for t in (0, 200)]
    for t in range(0, 2000, 200):
        host += [on_host("input", t, t + 5, name=TF_DATA), on_host("op", t + 5, t + 65, name="MatMul")]
    steps = [step(i, 200 * i, 200 * i + 200, device=None) for i in range(10)]
    faster = scenario(select_steps(profile([], host, steps, devices=())), ["kernels:MatMul=2x"])
    assert middle(faster.stages[0]) == 0.191
    assert faster.stages[0].pace == "the data loader"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("input", "no such change; write one of input=0"),
        ("rank:1=2x", "no such change"),
        (f"rank:{'9' * 5000}=typical", "no such change"),
        (f"input=0.{'0' * 300}1x", "no such change"),
        ("input=0x", "how many times as fast"),
        ("kernels:gemm=0x ", "as in kernels:gemm=2x"),
        ("kernels:gemm=0.5x", "how many times as fast"),  # it would be said to save nothing
    ],
)
def test_what_is_no_change_is_an_error_of_usage(change, why):
    with pytest.raises(UsageError, match=why) as refusal:
        scenario(waiting(), [change])
    assert change.strip()[:70] in str(refusal.value)


def test_blanks_around_a_change_are_no_part_of_it():
    assert scenario(waiting(), ["input=0 "]).stages[0].change == "input=0"


def test_what_cannot_be_replayed_is_left_out_with_the_reason_and_the_others_are_replayed():
    answer = scenario(waiting(), ["kernels:conv=2x", "input=0", "link=2x", "rank:1=typical", "input=1000000x"])
    assert [stage.change for stage in answer.stages] == ["input=0", "input=1000000x"]
    whys = answer.refused
    assert whys["kernels:conv=2x"] == "no kernel or op is called conv; most time is in gemm"
    assert whys["link=2x"] == whys["rank:1=typical"]
    assert "one rank does not show" in whys["link=2x"]
    assert answer.stages[-1] == replace(answer.stages[0], change="input=1000000x")
    assert (answer.steps, answer.of_steps, answer.ranks) == (4, 4, 1)


def test_where_no_step_is_complete_or_nothing_links_work_to_calls_the_reason_is_a_sentence():
    whole = waiting()
    with pytest.raises(UsageError, match=r"^no step can be replayed: the recording holds no complete one$"):
        scenario(replace(whole, views=tuple(replace(of, steps=of.steps.clear()) for of in whole.views)), ["input=0"])
    unlinked = profile([kernel(10, 90, None)], [on_host("op", 0, 50)], [step(0, 0, 100)])
    with pytest.raises(UsageError, match=r"^the steps cannot be replayed: nothing links most work of a device to"):
        scenario(select_steps(unlinked), ["waits=0"])


def test_without_a_gpu_nothing_waits_for_one_and_a_refusal_names_the_ops():
    ops = [on_host("op", 100 * i + 10, 100 * i + 60, name="aten::mm") for i in range(4)]
    on_cpu = profile([], ops, [step(i, 100 * i, 100 * i + 100, device=None) for i in range(4)])
    waits, gemm = scenario(select_steps(on_cpu), ["waits=0", "kernels:gemm=2x"]).refused.values()
    assert waits == "no call waits for a GPU: none was recorded"
    assert gemm.endswith("called gemm; most time is in aten::mm")


def test_more_changes_than_anybody_reads_are_refused():
    """Each is replayed with all before it."""
    with pytest.raises(UsageError, match="3,000 changes; give 20 at most"):
        scenario(waiting(), ["input=0"] * 3_000)


def test_a_message_repeats_no_long_change():
    with pytest.raises(UsageError) as caught:
        scenario(waiting(), ["x" * 100_000])
    assert len(str(caught.value)) < 300


def test_a_slow_rank_like_the_others_and_a_faster_link():
    late = advisor.what_if(ROOT / RANKS, "rank:3=typical")
    assert late.pace == "rank 3"
    (stage,) = late.stages
    assert stage.low_ms < 16.715 < stage.high_ms  # fixed_step_ms of its case.yaml
    assert not stage.why
    linked = advisor.what_if(ROOT / RANKS, "link=2x")
    assert linked.step_ms - linked.stages[0].low_ms < 0.05 * linked.step_ms  # waiting is not transfer
    assert linked.stages[0].pace == "rank 3"


@pytest.mark.parametrize(("until", "pace"), [(40, "communication with other ranks"), (60, "the GPU")])
def test_of_one_rank_what_it_exchanges_sets_the_pace_if_that_takes_longest(until: int, pace: str):
    host, device = [], []
    for t in range(0, 400, 100):
        device += [kernel(t + 10, t + until, t + 1), on_device("collective", t + until, t + 90, t + 3)]
        host += [on_host("sync", t + 5, t + 95)]
    steps = select_steps(profile(device, host, [step(i, 100 * i, 100 * i + 100) for i in range(4)]))
    assert scenario(steps, []).pace == pace


# us        0    10        50        85   90  100     one process: what GPU 0 waits for is GPU 1
# GPU 0          |=========|~~~~~~~~~~~~~~|
# GPU 1          |===================|~~~~|
def of_two_devices(*, meet: bool = True):
    host, device, steps = [], [], []
    for i in range(4):
        t = 100 * i
        steps += [step(i, t, t + 100, device=number) for number in (0, 1)]
        for number, end in ((0, 50), (1, 85)):
            of = {"device": number, "stream": 7 + number}
            device += [kernel(t + 10, t + end, t + 1 + number, name="sgemm", **of)]
            device += [on_device("collective", t + end, t + 90, t + 3 + number, name="ncclAllReduce", **of)] * meet
        host += [on_host("sync", t + 5, t + 95)]
    return select_steps(profile(device, host, steps, devices=[V100, V100 | {"device": 1}]))


def test_devices_of_one_process_that_meet_are_ranks():
    answer = scenario(of_two_devices(), ["rank:1=typical", "link=0"])
    assert (answer.step_ms, answer.pace) == (pytest.approx(0.100), "process 0, GPU 1")
    assert middle(answer.stages[0]) == 0.065  # 40 us as on GPU 0, not 75
    assert middle(answer.stages[1]) == 0.060  # and the transfer took 5 of 100 us
    assert "there is no rank 2" in scenario(of_two_devices(), ["rank:2=typical"]).refused["rank:2=typical"]
    apart = scenario(of_two_devices(meet=False), ["link=2x", "rank:5=typical"])
    assert [*apart.refused.values()] == [
        "the devices of this process meet in no collective",
        "there is no GPU 5, but 0\N{EN DASH}1",
    ]


# us        0   100   300   700 750  900 1000 1050 1100    GPU 0 computes while it waits in a sum, and GPU 1 is late
# GPU 0         |==A==|======B=======|
#   sums              |~~~~~~~~|     |~~~~~~~|
# GPU 1         |======A====|======B======|
#   sums                    |~~|          |~~|
def test_a_rank_that_computes_while_it_waits_has_all_of_its_own_work_shortened():
    host, device, steps = [], [], []
    for i in range(4):
        t = 1100 * i
        steps += [step(i, t, t + 1100, device=number) for number in (0, 1)]
        for number, (a_us, b_us) in enumerate(((200, 600), (600, 300))):
            of, sums = {"device": number, "stream": 7}, {"device": number, "stream": 20, "name": "ncclAllReduce"}
            one, two = t + 100 + a_us, t + 100 + a_us + b_us
            device += [kernel(t + 100, one, t + 91 + number, name="sgemm", **of)]
            device += [on_device("collective", one, t + 750, t + 93 + number, **sums)]
            device += [kernel(one, two, t + 95 + number, name="sgemm", **of)]
            device += [on_device("collective", two, t + 1050, t + 97 + number, **sums)]
        host += [on_host("sync", t + 99, t + 1060)]
    both = select_steps(profile(device, host, steps, devices=[V100, V100 | {"device": 1}]))
    (stage,) = scenario(both, ["kernels:sgemm=2x"]).stages
    assert stage.low_ms <= 0.65 <= stage.high_ms < 0.72  # GPU 1 computes for 450 us less, and GPU 0 is done before


# us        0    10        50    60        90   95  100     call 3 is made before call 5, and GPU 1 waits for the first
# GPU 0     1,3  |========A|==B==|
# GPU 1     5              |========C======|
def of_two_stages(c_ns: int = 40, name: str = "sgemm"):
    host, device, steps = [], [], []
    for t in range(0, 400, 100):
        steps += [step(t // 100, t, t + 100, device=number) for number in (0, 1)]
        device += [kernel(t + 10, t + 50, t + 1, name="sgemm"), kernel(t + 50, t + 60, t + 3, name="add")]
        device += [kernel(t + 50, t + 50 + c_ns, t + 5, name=name, device=1, stream=8)]
        host += [on_host("sync", t + 6, t + c_ns + 55)]
    return select_steps(profile(device, host, steps, devices=[V100, V100 | {"device": 1}]))


def test_devices_of_one_process_wait_for_each_other_without_a_collective():
    answer = scenario(of_two_stages(), ["kernels:sgemm=2x"])
    assert (answer.step_ms, answer.pace) == (pytest.approx(0.100), "no GPU alone")  # A and C take as long
    (stage,) = scenario(of_two_stages(name="copy"), ["kernels:sgemm=4x"]).stages
    assert stage.pace == "GPU 1"  # A takes 10 us, C still 40
    assert middle(answer.stages[0]) == 0.060  # 20 us less for A, and 20 for C behind it


def test_kernels_of_one_device_get_faster_with_those_of_the_same_name_on_the_others():
    stages = of_two_stages().views[0]
    assert stages.device == 0
    sgemm = stages.used_kernels.filter(pl.col("name") == "sgemm")
    half = pl.col("dur_ns") / 2
    assert saved(stages, faster(sgemm, half, half)).most_ms == pytest.approx(0.040)  # 20 us less for A, and 20 for C
    other = of_two_stages(name="copy").views[0]
    assert saved(other, faster(sgemm, half, half)).most_ms == pytest.approx(0.020)
    meet = of_two_devices().views[0]  # the collective takes as long as it did
    assert saved(meet, faster(meet.used_kernels, half, half)).most_ms == pytest.approx(0.020)


def test_a_slow_device_is_told_by_equal_kernels():
    slow = scenario(of_two_stages(44), ["rank:1=typical"])
    assert middle(slow.stages[0]) == 0.096  # C takes 40 of 44 us, as A does
    (no_slower,) = scenario(of_two_stages(44), ["rank:0=typical"]).refused.values()
    times = "40 \N{MICRO SIGN}s a step for kernels that take 44 \N{MICRO SIGN}s"
    assert no_slower == f"GPU 0 takes {times} on the other GPUs"
    (alone,) = scenario(of_two_stages(name="copy"), ["rank:1=typical"]).refused.values()
    assert alone == "no other GPU runs kernels like those of GPU 1"


def test_a_rank_that_is_missing_or_no_slower_than_others_is_left_out():
    missing, no_slower = advisor.what_if(ROOT / RANKS, "rank:99=typical", "rank:1=typical").refused.values()
    assert missing == "there is no rank 99 in the steps that all ranks recorded, but 0\N{EN DASH}3"
    assert no_slower == "rank 1 takes 16 ms a step by itself, the typical other rank 16 ms"


# us        0    10              90  100 or 200    no collective: a rank of 100 us a step and one of 200, an hour later
def test_ranks_that_meet_in_no_collective_are_replayed_each_by_itself():
    host, device, steps = [], [], []
    for worker, long, begin in ((0, 100, 0), (1, 200, 3_600_000_000)):
        of = {"worker": worker}
        for i in range(4):
            t = begin + i * long
            device += [kernel(t + 10, t + long - 10, t + 1, name="sgemm", device=0, **of)]
            host += [on_host("sync", t + 5, t + long - 5, **of)]
            steps += [step(i, t, t + long, **of)]
    both = select_steps(profile(device, host, steps, devices=[V100 | {"worker": worker} for worker in (0, 1)]))
    answer = scenario(both, ["kernels:sgemm=2x", "link=2x"])
    assert (answer.step_ms, answer.pace, answer.ranks) == (pytest.approx(0.200), "rank 1", 2)
    (stage,) = answer.stages
    assert middle(stage) == 0.110  # 90 of 180 us less
    assert stage.why == "each rank is replayed by itself: no collective between ranks or devices was recorded"
    assert "how much of it is transfer" in answer.refused["link=2x"]


def test_few_steps_do_not_show_that_a_rank_is_always_late(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.analysis.job.own_steps._ENOUGH_STEPS", 9)
    few = advisor.what_if(ROOT / RANKS, "rank:3=typical")
    (stage,) = few.stages
    assert (few.ranks, stage.high_ms) == (4, few.step_ms)
    assert stage.low_ms < 17
    assert "perhaps it saves nothing: the ranks have 5 steps in common; 9 or more show" in stage.why


def test_changes_are_parsed():
    assert Term.parse("kernels:flash attention=4x") == (
        "kernels:flash attention=4x",
        "kernels",
        "flash attention",
        0.25,
    )
    assert Term.parse("input=0").rest == 0
