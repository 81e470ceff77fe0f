"""Which iterator of tf.data a step waits for: on its own thread, across threads, and behind the device."""

from __future__ import annotations

import polars as pl
import pytest

from advisor.analysis.device.iterators import bottleneck, iterators, path_to
from advisor.metrics.input.iterators import iterator_table
from advisor.model.clause import Missing
from tests.tables import Row, kernel, metrics_of, on_host, profile, step, view

ROOT, MAP, SOURCE = "Iterator::Root", "Iterator::Root::Map", "Iterator::Root::Map::TFRecord"


def request(start: float, end: float) -> Row:
    return on_host("input", start, end, name="IteratorGetNextOp::DoCompute")


def call(name: str, start: float, end: float, **columns: object) -> Row:
    return on_host("pipeline", start, end, name=name, **columns)


def rows_of(*host: Row, device_ops: tuple[Row, ...] = ()) -> pl.DataFrame:
    return iterators(view(profile(device_ops, list(host), [step(1, 0, 1000)])))


def waits_us(rows: pl.DataFrame) -> dict[str, int]:
    return dict(rows.select("iterator", pl.col("waited_ns") // 1000).rows())


SERIAL = (request(0, 500), call(ROOT, 10, 490), call(MAP, 20, 480), call(SOURCE, 100, 200), call(SOURCE, 300, 350))


def test_on_one_thread_the_time_of_an_iterator_is_that_outside_those_it_asks():
    rows = rows_of(*SERIAL)
    assert rows["iterator"].to_list() == [ROOT, MAP, SOURCE]
    assert rows["parent"].to_list() == [None, ROOT, MAP]
    assert waits_us(rows) == {ROOT: 20, MAP: 310, SOURCE: 150}
    assert (rows["self_ns"] // 1000).to_list() == [20, 310, 150]
    assert rows["calls"].to_list() == [1, 1, 2]
    assert rows["slow_calls"].to_list() == [1, 1, 1]  # of 50 us is not slow
    assert bottleneck(rows) == MAP


def test_a_name_that_ends_in_a_colon_is_not_its_own_parent():
    names = ["Iterator::", "Iterator::Root:", "Iterator::Root:::Map", "Iterator::Root\n::Map:"]
    rows = rows_of(request(0, 500), *(call(name, 10 * n, 490) for n, name in enumerate(names)))
    assert dict(rows.select("iterator", "parent").rows()) == dict.fromkeys(names) | {names[2]: names[1]}


def test_work_on_other_threads_counts_only_while_the_step_waits_for_it():
    """The producer runs from 0 to 900; the step waits for it from 100 to 300 only."""
    ahead, read = "Iterator::Prefetch", "Iterator::Prefetch::Generator"
    rows = rows_of(
        request(100, 300), call(ahead, 100, 300), call(read, 0, 290, thread=2), call(read, 310, 900, thread=2)
    )
    assert waits_us(rows) == {ahead: 10, read: 190}
    assert (rows["self_ns"] // 1000).to_list() == [200, 880]


def test_an_iterator_at_work_is_waited_for_though_the_one_that_asked_it_has_returned():
    """A parallel map asks for batches ahead, on a thread: from 120 to 280 the step waits for a batch."""
    ahead, mapped, batch = "Iterator::Prefetch", "Iterator::Prefetch::Map", "Iterator::Prefetch::Map::Batch"
    rows = rows_of(
        request(100, 300), call(ahead, 100, 300), call(mapped, 280, 295, thread=2), call(batch, 120, 280, thread=3)
    )
    assert waits_us(rows) == {ahead: 25, mapped: 15, batch: 160}


def test_what_hides_behind_the_device_is_not_waited_for():
    rows = rows_of(*SERIAL, device_ops=(kernel(0, 250),))
    assert waits_us(rows) == {ROOT: 10, MAP: 180, SOURCE: 50}


def test_instances_of_a_parallel_interleave_are_one_and_the_model_is_not_to_blame():
    rows = rows_of(request(0, 100), call(ROOT, 0, 100), *(call(f"{ROOT}::Parallel[{i}]", i, i + 1) for i in range(3)))
    assert rows["iterator"].to_list() == [ROOT, f"{ROOT}::Parallel"]
    assert bottleneck(rows) == f"{ROOT}::Parallel"
    assert path_to("Iterator::Root::Prefetch::Map") == ["Prefetch", "Map"]


@pytest.mark.parametrize(
    ("name", "parallelism", "kind"),
    [
        ("Map", None, "map"),
        ("ParallelMapV2", 8, "parallel"),
        ("MapAndBatch", 1, "map"),
        ("TFRecord", None, "source"),
        ("Generator", None, "python"),
        ("BatchV2", None, "batch"),
        ("Prefetch", None, "ahead"),
        ("Shuffle", None, "other"),
    ],
)
def test_what_can_be_done_goes_by_the_transformation(name: str, parallelism: int | None, kind: str):
    details = f'{{"id":1,"parallelism":{parallelism}}}' if parallelism else None
    host = [request(0, 500), call(f"Iterator::{name}", 0, 500, details=details)]
    values = metrics_of(view(profile((), host, [step(1, 0, 1000, device=None)])))
    assert (values["tf_data_bottleneck"], values["tf_data_class"]) == (name, kind)
    assert values["tf_data_share"] == pytest.approx(0.5)
    assert values["tf_data_parallelism"] == (parallelism or 1)


@pytest.mark.parametrize(
    ("op", "until", "kind", "path"),
    [
        ("PyFunc:PyFunc", 250, "pyfunc", "Generator > PyFunc"),
        ("EagerPyFunc:EagerPyFunc", 249, "python", "Generator"),
        ("MultiDeviceIteratorGetNextFromShard:MultiDeviceIteratorGetNextFromShard", 10, "replica", "Generator"),
    ],
)
def test_what_runs_on_other_threads_while_the_step_waits_tells_what_an_iterator_does(
    op: str, until: int, kind: str, path: str
):
    host = [request(0, 500), call("Iterator::Generator", 0, 500), on_host("op", 0, until, name=op, thread=2)]
    values = metrics_of(view(profile((), host, [step(1, 0, 1000, device=None)])))
    assert (values["tf_data_class"], values["tf_data_path"]) == (kind, path)


def test_stages_and_the_table():
    ahead = "Iterator::Prefetch::TFRecord"
    recording = view(profile((), [*SERIAL, call(ahead, 600, 700)], [step(1, 0, 1000, device=None)]))
    names = ("demanded_read_ms", "advanced_read_ms", "preprocessing_ms")
    assert [metrics_of(recording)[name] for name in names] == pytest.approx([0.15, 0.1, 0.33])
    table = iterator_table(recording)
    assert table.filter("critical")["iterator"].to_list() == [ROOT, MAP]
    assert table.filter("bottleneck")["iterator"].to_list() == [MAP]


def test_without_iterators_nothing_is_waited_for_unless_they_were_not_recorded():
    steps = [step(1, 0, 1000, device=None)]
    unused = metrics_of(view(profile((), [on_host("op", 0, 10)], steps)))
    assert unused["tf_data_share"] == 0
    assert isinstance(unused["tf_data_bottleneck"], Missing)
    unrecorded = metrics_of(view(profile((), [request(0, 10)], steps)))
    assert unrecorded["tf_data_share"] == unrecorded["tf_data_bottleneck"] == Missing("no_iterators")
