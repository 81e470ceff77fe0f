"""The stages of a batch, what sets the pace of loading, and what a change would give: sums worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from advisor.analysis.device.loading_stages import Batch, batch, limit, once, parts, with_stages
from advisor.analysis.device.selection import select_steps
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.stacks import stage_of, stages
from advisor.metrics.input.stages import _advice, _pace, period_ms
from advisor.metrics.metric import METRICS
from advisor.whatif.scenario import scenario
from tests.tables import kernel, metrics_of, on_host, profile, step, values_of, view

FETCH = "torch/utils/data/_utils/fetch.py: _MapDatasetFetcher.fetch"
COUNTS = (
    "fetch_ns",
    "run_ns",
    "awake_ns",
    "wait_ns",
    "request_ns",
    "request_run_ns",
    "send_ns",
    "pin_ns",
    "threads_ns",
    "cpu_ns",
    "cold_ns",
    "warm_ns",
)
SUMS = ("receive_ns", "batches", "samples", "requests", "files", "faults", "read_bytes", "alone_files", "alone_bytes")
MS = 1_000_000
WITH_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def counted(*, of_loader: bool, **sums: int) -> dict[str, Any]:
    """A row of what a process counted; times in ms."""
    row = dict.fromkeys(SUMS, 0) | sums
    row |= {name: sums.get(name, 0) * MS for name in COUNTS}
    return {"of_loader": of_loader, "steps": 10, "span_ns": 1000 * MS, "slow": [], **row}


def stack(ns: int, *below: str, call: str = "", **more: Any) -> dict[str, Any]:
    known = {"line": "data.py:8", "function": "item", "call": call, "callers": [], "above": FETCH}
    return (
        known | {"above_call": "self.dataset[idx]", "below": [*below], "samples": 1, "ns": ns, "of_loader": True} | more
    )


def recorded(stacks: list[dict[str, Any]], *loading: dict[str, Any]) -> DeviceView:
    of = view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)]))
    of.process.update({"stacks": stacks, "loading": [*loading]})  # type: ignore[attr-defined]
    return of


def of_workers() -> Batch:
    """Two workers load 20 batches in 40 ms each: sleep 16, run 20, wait for a core 4; a step receives one in 3 ms."""
    receiving = "multiprocessing/queues.py: Queue.get", "multiprocessing/connection.py: Connection._recv"
    asking = "multiprocessing/queues.py: Queue.get", "multiprocessing/connection.py: Connection._poll"
    stacks = [
        stack(50, call="open"),
        stack(30, "json/decoder.py: JSONDecoder.decode"),
        stack(
            10,
            "torchvision/transforms/v2/_container.py: Compose.forward",
            "torchvision/transforms/x.py: Resize.forward",
        ),
        stack(10, call="sum", above_call="self.collate_fn"),
        stack(6, *receiving, above=None, of_loader=False),
        stack(30, *asking, above=None, of_loader=False),
        stack(64, "torch/_tensor.py: Tensor.backward", above=None, of_loader=False),
    ]
    worker = counted(of_loader=True, batches=10, samples=80, fetch_ns=400, run_ns=200, wait_ns=40, send_ns=20, files=80)
    worker |= {"read_bytes": 80 * 4096, "cpu_ns": 220 * MS, "slow": [{"index": 7, "ns": 60 * MS}]}
    main = counted(of_loader=False, requests=20, request_ns=360, request_run_ns=30, cpu_ns=400)
    of = batch(recorded(stacks, main, worker, worker))
    assert of is not None
    return of


def test_the_stages_of_a_batch_share_what_a_worker_takes_for_it():
    of = of_workers()
    assert of.stages == pytest.approx({"read": 18.0, "decode": 10.8, "transform": 3.6, "collate": 3.6})
    assert of.names == pytest.approx({"Resize": 3.6})
    assert (of.workers, of.fetch_ms, of.alone_ms, of.sleep_ms, of.per_step) == (2, 40.0, 36.0, 16.0, 2.0)
    assert (of.period_ms, of.request_ms, of.rest_ms) == (50.0, 18.0, 32.0)
    assert (of.send_ms, of.receive_ms, of.hand_over_ms, of.cpu_ms) == (2.0, 3.0, 3.0, 42.0)
    assert (of.busy_part, of.files, of.bytes, of.slow) == (0.4, 8.0, 8 * 4096, ((7, 60.0),))
    assert [name for name, _ in parts(of)] == ["read", "decode", "transform", "collate", "transport"]
    assert dict(parts(of))["transport"] == 5.0


def test_a_picture_that_is_opened_lazily_is_decoded_by_convert():
    """Loading it is 30 of 40; what a library converts on the way is a transform."""
    convert = "PIL/Image.py: Image.convert"
    stacks = [
        stack(20, convert, "PIL/ImageFile.py: ImageFile.load", call="image.convert"),
        stack(10, convert, "PIL/Image.py: Image.copy", call="image.convert"),
        stack(10, "torchvision/transforms/x.py: Grayscale.forward", convert, call="self.transform"),
    ]
    of = batch(
        recorded(stacks, counted(of_loader=False, requests=10), counted(of_loader=True, batches=10, fetch_ns=400))
    )
    assert of is not None
    assert of.stages == {"decode": 30.0, "transform": 10.0}


def test_more_processes_load_beside_each_other_until_the_step_or_the_cores_hold_them():
    of = of_workers()
    assert period_ms(of, 0, floor_ms=0) == (32 + 36, "loading")
    assert period_ms(of, 1, floor_ms=21) == (36 + 2, "loading")
    assert period_ms(of, 4, floor_ms=21) == (32 + 3, "step")
    assert period_ms(of, 4, floor_ms=42) == (42, "cores")
    assert period_ms(of, 1, floor_ms=21, without_ms=20) == (32 + 3, "step")


@pytest.mark.parametrize(("workers", "step_us", "pace"), [(1, 180, "the data loader"), (2, 170, "the host")])
def test_workers_that_are_never_late_are_the_next_to_set_the_pace(workers: int, step_us: int, pace: str):
    """A step takes 100 ms without the profiler, of which a worker loads for 90; here it takes 200 us."""
    host = [on_host("input", t, t + 2, name="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
            for t in range(0, 2000, 200)]  # fmt: skip
    host += [on_host("op", t + 2, t + 62, name="aten::mm") for t in range(0, 2000, 200)]
    made = profile([], host, [step(i, 200 * i, 200 * i + 200, device=None) for i in range(10)], devices=())
    worker = counted(of_loader=True, batches=10 // workers, fetch_ns=850 // workers, send_ns=50 // workers)
    main = counted(of_loader=False, requests=10)
    seen = select_steps(made)
    seen.views[0].process.update({"stacks": [stack(1, call="open")], "loading": [main, *[worker] * workers]})  # type: ignore[attr-defined]
    (faster,) = scenario(seen, ["kernels:mm=2x"]).stages
    assert (faster.low_ms + faster.high_ms) / 2 == pytest.approx(step_us / 1000, abs=0.001)
    assert faster.pace == pace
    assert METRICS["loader_slack_part"].value(seen.views[0]) == pytest.approx(1 - 0.9 / workers)


@pytest.mark.parametrize(
    ("code", "main", "loads", "call"),
    [
        ("storage", {}, {"run_ns": 100}, "open"),
        ("sleep", {}, {"run_ns": 100}, "time.sleep"),
        ("storage", {}, {"run_ns": 100, "faults": 10}, "crunch"),
        ("", {}, {"run_ns": 100, "faults": 9}, "crunch"),
        ("work", {}, {"run_ns": 900}, "open"),
        ("delay", {}, {"run_ns": 500, "wait_ns": 300}, "crunch"),
        ("lock", {}, {"run_ns": 500, "threads_ns": 400}, "crunch"),
    ],
)
def test_what_sets_the_pace_is_what_a_process_sleeps_or_waits_for(
    code: str, main: dict[str, int], loads: dict[str, int], call: str
):
    """One process loads ten batches in a second of 1.1 s."""
    sums = {"batches": 10, "samples": 10, "fetch_ns": 1000, "requests": 10, "request_ns": 1000} | loads | main
    of = batch(recorded([stack(10, call=call, of_loader=False)], counted(of_loader=False, **sums)))
    assert of is not None
    assert limit(of) == code


@pytest.mark.parametrize(("fetch_ns", "code"), [(199, "ready"), (201, "work")])
def test_a_wait_for_a_worker_that_loads_in_a_quarter_of_the_step_is_not_for_its_loading(fetch_ns: int, code: str):
    """Ten steps of 100 ms, each with a wait of 20: the rest takes 80."""
    worker = counted(of_loader=True, batches=10, fetch_ns=fetch_ns, run_ns=fetch_ns)
    of = batch(recorded([stack(10, call="crunch")], counted(of_loader=False, requests=10, request_ns=200), worker))
    assert of is not None
    assert limit(of) == code


def test_a_stage_less_saves_the_wait_that_was_measured_where_the_step_then_sets_the_pace():
    """Steps of 100 ms wait 60; loading runs 50 on a core, so a model of a calm machine knows of a wait of 10."""
    main = counted(of_loader=False, requests=10, request_ns=600)
    worker = counted(of_loader=True, batches=10, fetch_ns=500, run_ns=500)
    of = view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100_000, device=None)]))
    of.process.update({"stacks": [stack(9, call="crunch"), stack(1, call="open")], "loading": [main, worker]})
    assert metrics_of(of)["stage_gain_ms"] == 60
    assert metrics_of(of)["loading_fix"] == (stage := stage_of("transform")).fix
    assert stage.on_device
    assert _advice(replace(of, device=0), stage) == f"{stage.fix} {stage.on_device}"
    again = view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100_000, device=None)]))
    again.process.update({"stacks": [stack(9, call="h5py.File"), stack(1, call="crunch")], "loading": [main, worker]})
    assert metrics_of(again)["stage_gain_ms"] == 0  # what to do then is about that call, and not about the stage


@pytest.mark.parametrize(
    ("receive_ns", "waits_for_a_core", "limit"),
    [(51, 0, "transport"), (50, 0, "pool"), (26, 1, "transport"), (25, 1, "pool"), (0, 1, "")],
)
@pytest.mark.parametrize(
    "call",
    [
        "multiprocessing/pool.py: IMapIterator.next",
        "multiprocessing/pool.py: ApplyResult.get",
        "concurrent/futures/_base.py: Future.result",
        "concurrent/futures/_base.py: as_completed",
        "joblib/parallel.py: Parallel._retrieve",
    ],
)
def test_what_a_pool_returns_is_handed_over_for_long_where_a_thread_unpickles_it_for_half_of_the_wait(
    call: str, receive_ns: int, waits_for_a_core: int, limit: str
):
    """The main thread waits for 100 ns of 120 at one line. A core that others want is waited for by all threads."""
    waits = stack(100, call, line="train.py:9", call="enumerate", above=None)
    trains = stack(20, "torch/_tensor.py: Tensor.backward", line="train.py:12", above=None)
    stacks = [of | {"of_loader": False} for of in (waits, trains)]
    values = metrics_of(
        recorded(stacks, counted(of_loader=False, receive_ns=receive_ns, awake_ns=10, wait_ns=10 * waits_for_a_core))
    )
    assert (values["loading_limit"], bool(values["loading_fix"])) == (limit, bool(limit))
    assert values["loading_line"] == "train.py:9 `enumerate(...)` in `item`"


@pytest.mark.parametrize(("sleeps", "limit"), [(0.41, "transport"), (0.42, ""), (None, "")])
def test_what_another_process_sends_is_handed_over_for_long_where_the_main_thread_sleeps_for_less_than_half_of_it(
    sleeps: float | None, limit: str
):
    """It receives for 100 ns of 120: 0.41 of all are 49.2."""
    takes = stack(100, "multiprocessing/queues.py: Queue.get", line="train.py:9", call="queue.get", above=None)
    trains = stack(20, "torch/_tensor.py: Tensor.backward", line="train.py:12", above=None)
    of = recorded([each | {"of_loader": False} for each in (takes, trains)], counted(of_loader=False))
    of.process["sleep_share"] = sleeps  # type: ignore[index]
    assert metrics_of(of)["loading_limit"] == limit


def test_with_every_batch_ready_ops_are_as_fast_as_the_fastest_of_their_kind():
    """A step waits 50 us of 100. An op takes 35 us in five steps and 5 in one: five sixths are lost to workers."""
    waits = [on_host("input", 100 * at, 100 * at + 50, name=WITH_WORKERS) for at in range(6)]
    ops = [on_host("op", 100 * at + 50, 100 * at + 50 + (5 if at == 2 else 35)) for at in range(6)]
    of = view(profile([], waits + ops, [step(at, 100 * at, 100 * at + 100, device=None) for at in range(6)]))
    main = counted(of_loader=False, requests=10, request_ns=500)
    of.process.update({"stacks": [stack(9, call="crunch")], "loading": [main, counted(of_loader=True, batches=10)]})
    (ready,) = _pace(of).filter(without="all")["period_ms"]
    assert ready == pytest.approx(50 * 30 / 180)


def test_a_lock_is_seen_around_a_batch_that_the_process_of_the_steps_loads():
    """Ten requests of 100 ms: 20 run, 40 wait for a core, 40 sleep; fetch takes 60 of that and waits for a core."""
    sums = {"batches": 10, "fetch_ns": 600, "run_ns": 200, "wait_ns": 400, "awake_ns": 200, "threads_ns": 900}
    main = counted(of_loader=False, requests=10, request_ns=1000, request_run_ns=200, **sums)
    of = batch(recorded([stack(10, call="crunch", of_loader=False)], main))
    assert of is not None
    assert (of.sleep_ms, of.locked_ms, limit(of)) == (0.0, 40.0, "lock")


def test_what_other_programs_take_of_a_worker_s_core_they_take_of_more_workers_too():
    """A batch of 40 ms, of which 4 wait for a core: a quarter of such waits is because of other programs."""
    worker = counted(of_loader=True, batches=10, fetch_ns=400, run_ns=200, awake_ns=200, wait_ns=40)
    view = recorded([stack(10, call="open")], counted(of_loader=False, requests=10, request_ns=360), worker)
    view.process.update({"run_delay_ms": 2.0, "own_delay_ms": 6.0})  # type: ignore[attr-defined]
    of = batch(view)
    assert of is not None
    assert (of.alone_ms, of.others_ms, of.load_ms) == (36.0, 1.0, 37.0)


def test_a_collate_function_of_the_program_is_advised_to_take_all_samples_at_once():
    own = stack(60, call="sum", above_call="self.collate_fn", of_fetch=1)
    of = recorded([own, stack(40, call="open", of_fetch=1)])
    assert once(of) == (stage_of("collate").fix, 0.6)
    assert METRICS["loading_line"].of(of) == "data.py:8 `sum(...)` in `item`"


def test_the_line_of_a_third_of_the_loading_is_named_and_any_where_a_third_need_not_be_done_for_each_sample():
    crunch, rest = stack(50, call="crunch", of_fetch=1), stack(50, call="parse", line="data.py:9", of_fetch=1)
    assert METRICS["loading_line"].of(recorded([crunch, rest])) == "data.py:8 `crunch(...)` in `item`"
    thirds = [crunch | {"ns": 34}, rest | {"ns": 33}, stack(33, call="mix", line="data.py:10", of_fetch=1)]
    assert METRICS["loading_line"].of(recorded(thirds)) == "data.py:8 `crunch(...)` in `item`"
    quarters = [stack(25, call="mix", line=f"data.py:{line}", of_fetch=1) for line in (8, 12, 16, 20)]
    assert METRICS["loading_line"].of(recorded(quarters)) == ""
    main, worker = counted(of_loader=False, requests=10), counted(of_loader=True, batches=10, fetch_ns=100, run_ns=100)
    opened = recorded([crunch | {"ns": 34, "call": "h5py.File", "known": "opening"}, *thirds[1:]], main, worker)
    assert METRICS["loading_line"].of(opened) == "data.py:8 `h5py.File(...)` in `item`"
    assert str(METRICS["loading_fix"].of(opened)).startswith("Open the file once in each process")


@pytest.mark.parametrize("workers", [0, 1])
def test_to_decode_once_is_advised_and_workers_only_where_there_are_none_but_no_random_transform_is_done_once(
    workers: int,
):
    """Decoding takes 40 of 100, transforms that read the same library 60."""
    decodes = stack(40, "PIL/Image.py: Image.convert", call="picture.convert", of_loader=workers > 0)
    crops = stack(60, "torchvision/transforms/v2/_geometry.py: RandomResizedCrop.forward", "PIL/Image.py: Image.resize")
    loads = {"batches": 10, "fetch_ns": 100, "run_ns": 100}
    main = counted(of_loader=False, requests=10, **({} if workers else loads))
    rows = [main, *(counted(of_loader=True, **loads) for _ in range(workers))]
    advice, part = once(recorded([decodes, crops | {"of_loader": workers > 0}], *rows))
    assert advice.startswith("Decode and resize the images once before the training")
    assert ("num_workers=2" in advice, part) == (not workers, 0.4)


def test_what_takes_most_of_a_collate_function_has_its_own_advice():
    """Cleaning takes 50 of 90 in it: to stack the samples at once would save little."""
    cleans = stack(50, call="re.sub", above_call="self.collate_fn", of_fetch=1)
    own = stack(40, call="sum", above_call="self.collate_fn", of_fetch=1)
    advice, part = once(recorded([cleans, own, stack(10, call="open", of_fetch=1)]))
    assert (advice.partition(",")[0], part) == ("Clean the texts once before the training", 0.5)
    assert once(recorded([cleans | {"ns": cleans["ns"] // 2}, own]))[0] == stage_of("collate").fix


@pytest.mark.parametrize(
    ("call", "advice"),
    [("[row[...] == user]", "Group all rows once"), ("i in seen", "Ask a `set`"), ("names.index", "Find the place in")],
)
def test_a_search_through_all_rows_for_each_sample_has_its_own_advice(call: str, advice: str):
    of = recorded([stack(60, call=call, above_call="self.data.__getitem__", of_fetch=1), stack(40, call="open")])
    assert (once(of)[0][: len(advice)], once(of)[1]) == (advice, 0.6)


def test_what_the_files_of_a_batch_take_alone_stands_beside_what_reading_takes():
    """A batch opens eight files; alone, four of 2 KiB take 10 ms from the disk and 2 ms from memory."""
    alone = {"alone_files": 4, "alone_bytes": 4 * 2048, "cold_ns": 10, "warm_ns": 2}
    loads = {"batches": 10, "samples": 10, "fetch_ns": 1000, "files": 80}
    main = counted(of_loader=False, requests=10, request_ns=1000, **loads, **alone)
    of = recorded([stack(10, call="open", of_loader=False)], main)
    assert metrics_of(of)["read_alone"] == "from the disk (8 x, 16 KiB, 20 ms), from memory (8 x, 16 KiB, 4 ms)"
    assert metrics_of(recorded([stack(10, call="crunch", of_loader=False)], main))["read_alone"] == ""


@pytest.mark.parametrize(("run_ns", "read_bytes", "part"), [(1000, 1, 0.76), (600, 1, 0.36), (1000, 2 << 20, 0)])
def test_small_files_in_memory_are_packed_for_what_opening_them_takes(run_ns: int, read_bytes: int, part: float):
    """Of 100 ms, 80 read eight files that take 4 from memory; what the process sleeps meanwhile is for the disk."""
    alone = {"alone_files": 4, "alone_bytes": 4 * 2048, "cold_ns": 10, "warm_ns": 2}
    loads = {"batches": 10, "samples": 10, "fetch_ns": 1000, "run_ns": run_ns, "files": 80}
    main = counted(of_loader=False, requests=10, request_ns=1000, read_bytes=80 * read_bytes, **loads, **alone)
    of = recorded([stack(80, call="np.load", of_loader=False), stack(20, call="sum", of_loader=False)], main)
    assert once(of)[1] == pytest.approx(part)
    assert "np.load(path, mmap_mode='r')" in once(of)[0] or not part
    small = {"small_files": 8.0 * (part > 0), "small_file_bytes": read_bytes * (part > 0)}
    assert values_of(small, of) == small


@pytest.mark.parametrize(("run_ns", "advice", "part"), [(490, "Loading waits for storage", 0.51), (500, "Read the", 1)])
def test_what_sleeps_for_storage_is_advised_to_be_near_whatever_reads_it(run_ns: int, advice: str, part: float):
    """All of the loading reads an archive: of 1,000 ns its thread runs so many."""
    loads = {"batches": 10, "samples": 10, "fetch_ns": 1000, "run_ns": run_ns, "files": 1}
    main = counted(of_loader=False, requests=10, request_ns=1000, request_run_ns=run_ns, **loads)
    of = recorded([stack(90, call="archive.read", known="unpacking", of_loader=False)], main)
    assert once(of) == (once(of)[0], pytest.approx(part))
    assert once(of)[0].startswith(advice)


def test_calls_that_open_small_files_are_advised_to_open_a_packed_one():
    """Of what loads, 60 of 100 open 8 files of 2 KiB for each sample."""
    loads = {"batches": 10, "samples": 10, "fetch_ns": 1000, "run_ns": 1000, "files": 80}
    main = counted(of_loader=False, requests=10, request_ns=1000, read_bytes=80 * 2048, **loads)
    stacks = [stack(60, call="open", known="files", of_loader=False), stack(40, call="sum", of_loader=False)]
    assert once(recorded(stacks, main)) == (stage_of("read").fix, 0.6)


def test_all_that_is_told_of_a_batch_is_told_of_the_same_time_on_a_busy_machine():
    """Fetch takes 60 ms, 40 of that wait for a core: 16 of 20 read files, and two cores have work for two processes."""
    sums = {"batches": 10, "fetch_ns": 600, "run_ns": 200, "wait_ns": 400, "awake_ns": 200}
    main = counted(of_loader=False, requests=10, request_ns=600, request_run_ns=200, **sums)
    stacks = [stack(80, call="open", of_loader=False), stack(20, call="sum", of_loader=False)]
    of = recorded([each | {"line": f"data.py:{each['call']}"} for each in stacks], main)
    of.process.update({"run_delay_ms": 40.0, "own_delay_ms": 0.0})  # type: ignore[attr-defined]
    names = ("loading_stages", "loading_calls", "loading_limit", "loading_delay_part")
    assert values_of(names, of) == {
        "loading_stages": "reading files (16 ms), transforming (4 ms)",
        "loading_calls": "`item` of data.py:open (16 ms), `item` of data.py:sum (4 ms)",
        "loading_limit": "delay",
        "loading_delay_part": pytest.approx(40 / 60),
    }


@pytest.mark.parametrize(("run_ns", "wait_ns", "advised"), [(4, 6, 2), (10, 0, 2), (1, 0, 5)])
def test_of_loading_that_needs_a_core_no_more_processes_are_advised_than_there_are_cores(
    run_ns: int, wait_ns: int, advised: int
):
    """Loading takes 400 us and the rest 90: five processes keep up, but on two cores only where they mostly sleep."""
    sums = {"batches": 10, "fetch_ns": 10, "run_ns": run_ns, "wait_ns": wait_ns, "awake_ns": run_ns}
    main = counted(of_loader=False, requests=10, request_ns=10, request_run_ns=run_ns, cpu_ns=1, **sums)
    loads = on_host("input", 0, 400, name="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    of = view(profile([kernel(400, 490, 400)], [loads], [step(1, 0, 490)]))
    of.process.update({"cpus": 2, "loading": [main], "stacks": [stack(1, call="open", of_loader=False)]})
    values = metrics_of(of)
    assert [values[metric] for metric in ("workers_needed", "workers_advised")] == [5, advised]


def test_workers_are_no_limit_where_the_step_does_not_wait_and_handing_over_is_where_it_takes_longer():
    worker = counted(of_loader=True, batches=10, samples=10, fetch_ns=100, run_ns=100)
    received = stack(90, "multiprocessing/queues.py: Queue.get", above=None, of_loader=False)
    rest = stack(10, "torch/_tensor.py: Tensor.backward", above=None, of_loader=False)
    for request_ns, code in ((40, "ready"), (950, "transport")):
        main = counted(of_loader=False, requests=10, request_ns=request_ns, request_run_ns=request_ns)
        of = batch(recorded([stack(10, call="open"), received, rest], main, worker))
        assert of is not None
        assert limit(of) == code


def test_without_counts_nothing_is_known_of_a_batch():
    assert batch(recorded([])) is None
    assert batch(recorded([], counted(of_loader=False))) is None


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("read", "open"),
        ("read", "f.read"),
        ("read", "np.load\nnumpy/lib/_npyio_impl.py: load\nnumpy/lib/_format_impl.py: read_array"),
        ("read", "Image.open\nPIL/Image.py: open"),
        ("read", "zipfile.ZipFile"),
        ("network", "requests.get\nrequests/api.py: get\nurllib3/connectionpool.py: HTTPConnectionPool.urlopen"),
        ("decode", "img.convert\nPIL/Image.py: Image.convert\nPIL/ImageFile.py: ImageFile.load"),
        ("decode", "cv2.imread"),
        ("decode", "float"),
        ("decode", "csv.reader"),
        ("transform", "point"),
        ("decode", "np.load\nzipfile.py: ZipExtFile.read\nzipfile.py: ZipExtFile._read1"),
        ("transform", "cv2.resize"),
        ("transform", "self.transform\nalbumentations/core/composition.py: Compose.__call__"),
        ("collate", "enumerate\ntorch/utils/data/_utils/collate.py: default_collate"),
        (
            "transport",
            "enumerate\ntorch/utils/data/_utils/collate.py: collate\ntorch/storage.py: UntypedStorage._new_shared",
        ),
        ("pin", "enumerate\ntorch/utils/data/_utils/pin_memory.py: pin_memory"),
        ("wait", "future.result\nconcurrent/futures/_base.py: Future.result\nthreading.py: Condition.wait"),
        ("sleep", "time.sleep"),
        ("read", "next\nwebdataset/tariterators.py: tar_file_iterator"),
        ("decode", "next\ndatasets/formatting/formatting.py: ArrowRow.extract"),
    ],
)
def test_each_library_is_one_row_of_the_table(stage: str, text: str):
    row = pl.DataFrame({"text": [text]})
    first = next(each for each in stages() if row.filter(pl.col("text").str.contains(each.pattern)).height)
    assert first.name == stage


def test_functions_of_a_native_program_are_no_samples_of_a_loader():
    samples = [{"worker": 0, "thread": 1, "at_ns": ms * MS, "functions": ["solver: fill"]} for ms in range(10)]
    native = view(profile([kernel(0, 10_000)], steps=[step(1, 0, 10_000)], host_samples=samples))
    assert with_stages(native, of_loader=False).is_empty()
