"""Stretches decoded elsewhere make the trace that one process reads, wherever the text is cut and whatever breaks."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
from hypothesis import given

from advisor.errors import ReadError
from advisor.inputs.chrome_json import parallel
from advisor.inputs.chrome_json.parallel import Parallel
from advisor.inputs.chrome_json.source import Source
from advisor.inputs.chrome_json.trace import Trace
from advisor.inputs.readers import Reading, kineto
from advisor.inputs.readers.kineto.fields import KINETO
from advisor.model.profile import SCHEMAS
from tests.effort import examples
from tests.hostile import flipped, places
from tests.strategies_kineto import op

EVENTS = [op(10 * i, 5, f"op {i}") for i in range(40)]
DOCUMENT = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "deviceProperties": [{"id": 0, "name": "V100"}]})


class Here(Executor):
    """Does the work at once; from the call number `dies` on, its process is dead."""

    def __init__(self, dies: int | None = None) -> None:
        self.calls, self.dies = 0, dies

    def submit(self, work: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        self.calls += 1
        future = Future[Any]()
        if self.dies is not None and self.calls >= self.dies:
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result(work(*args))
        return future


def names(text: bytes) -> tuple[int, list[str | None]] | None:
    try:
        events = KINETO.events.decode(text)
    except ValueError:
        return None
    return len(events), [event.name for event in events]


def outcome(text: bytes, size: int, pool: Executor | None = None) -> tuple[list[str | None], Trace[Any, Any]] | str:
    """Names of the events, and the trace; why it was refused. With a pool, stretches are decoded there."""
    trace, order = Trace("t.json", KINETO), list[str | None]()
    elsewhere = Parallel(names, order.extend, 2) if pool else None
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parallel, "pool", lambda _: pool)
            chunks = trace.chunks(Source(io.BytesIO(gzip.compress(text)), size=size), elsewhere)
            order += [event.name for chunk in chunks for event in chunk]
    except ReadError as error:
        return error.why
    return order, trace


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("size", [64, 251, 1_000, 100_000])
def test_wherever_the_text_is_cut_the_events_are_in_order_and_the_header_is_whole(size: int, indent: int | None):
    pool = Here()
    document = json.dumps(json.loads(DOCUMENT), indent=indent).encode()
    order, trace = outcome(document, size, pool)
    assert order == [f"op {i}" for i in range(40)]
    assert trace.decoded == 40
    assert [device.name for device in trace.header.deviceProperties] == ["V100"]
    assert trace.salvaged == []
    assert (pool.calls > 1) == (size < len(document) / 2)


@pytest.mark.parametrize("dies", [1, 2, 5])
def test_where_a_process_dies_the_rest_is_decoded_here(dies: int):
    order, trace = outcome(DOCUMENT.encode(), 251, Here(dies))
    assert order == [f"op {i}" for i in range(40)]
    assert trace.salvaged == []


def test_where_the_pool_refuses_a_stretch_it_is_decoded_here():
    class Refuses(Here):
        def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
            if self.calls == 3:
                raise BrokenProcessPool
            return super().submit(work, *args, **options)

    order, trace = outcome(DOCUMENT.encode(), 251, Refuses())
    assert order == [f"op {i}" for i in range(40)]
    assert trace.salvaged == []


def test_where_no_file_can_be_written_the_text_is_decoded_here(monkeypatch: pytest.MonkeyPatch):
    def refuses(**_: Any) -> None:
        raise OSError

    monkeypatch.setattr(parallel, "TemporaryDirectory", refuses)
    order, trace = outcome(DOCUMENT.encode(), 251, Here())
    assert order == [f"op {i}" for i in range(40)]
    assert trace.salvaged == []


def test_a_name_that_looks_like_the_end_of_an_event_is_no_end():
    events = [*EVENTS[:20], op(1, 5, '}, {"ph": "X"' * 9), *EVENTS[20:]]
    order, _ = outcome(json.dumps({"traceEvents": events}).encode(), 64, Here())
    assert order == [event["name"] for event in events]


@examples(0.4)
@given(places)
def test_damage_is_told_as_one_process_tells_it(changes: list[tuple[float, int]]):
    damaged = flipped(DOCUMENT.encode(), changes)
    alone, together = outcome(damaged, 251), outcome(damaged, 251, Here())
    if isinstance(alone, str) or isinstance(together, str):
        assert alone == together
    else:
        assert alone[0] == together[0]
        assert bool(alone[1].salvaged) == bool(together[1].salvaged)


def test_processes_read_the_tables_that_one_reads():
    alone, together = (
        kineto.read(io.BytesIO(DOCUMENT.encode() + b" " * 5_000_000), "t.json", Reading(processes=processes))
        for processes in (1, 2)
    )
    assert all(getattr(alone, name).equals(getattr(together, name)) for name in SCHEMAS)
    assert alone.host_ops.height == 40
