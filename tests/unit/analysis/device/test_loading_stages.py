"""The stages of a batch, what sets the pace of loading, and what a change would give: sums worked out by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from advisor.analysis.device.loading_stages import Batch, batch, limit, parts
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.stacks import stages
from advisor.metrics.input.stages import period_ms
from tests.tables import on_host, profile, step, view

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
)
MS = 1_000_000


def counted(*, of_loader: bool, **sums: int) -> dict[str, Any]:
    """A row of what a process counted; times in ms."""
    row = dict.fromkeys(("batches", "samples", "requests", "files", "faults", "read_bytes"), 0) | sums
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
    assert of.stages == {"read": 20.0, "decode": 12.0, "transform": 4.0, "collate": 4.0}
    assert of.names == {"Resize": 4.0}
    assert (of.workers, of.fetch_ms, of.alone_ms, of.sleep_ms, of.per_step) == (2, 40.0, 36.0, 16.0, 2.0)
    assert (of.period_ms, of.request_ms, of.rest_ms) == (50.0, 18.0, 32.0)
    assert (of.send_ms, of.receive_ms, of.hand_over_ms, of.cpu_ms) == (2.0, 3.0, 3.0, 42.0)
    assert (of.busy_part, of.files, of.bytes, of.slow) == (0.4, 8.0, 8 * 4096, ((7, 60.0),))
    assert parts(of) == [("read", 20.0), ("decode", 12.0), ("transform", 4.0), ("collate", 4.0), ("transport", 5.0)]


def test_more_processes_load_beside_each_other_until_the_step_or_the_cores_hold_them():
    of = of_workers()
    assert period_ms(of, 0, floor_ms=0) == (32 + 36, "loading")
    assert period_ms(of, 1, floor_ms=21) == (36 + 2, "loading")
    assert period_ms(of, 4, floor_ms=21) == (32 + 3, "step")
    assert period_ms(of, 4, floor_ms=42) == (42, "cores")
    assert period_ms(of, 1, floor_ms=21, without_ms=20) == (32 + 3, "step")


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
