from __future__ import annotations

import codecs
import gzip
import io
import json
from collections.abc import Iterator

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import ReadError
from advisor.inputs.chrome_json.source import Source
from advisor.inputs.chrome_json.trace import Trace
from advisor.inputs.readers.kineto.fields import KINETO
from advisor.model.clause import Note
from advisor.model.profile import SCHEMAS, Profile
from tests.effort import every, examples
from tests.strategies_kineto import LAUNCH, Event, call, event, kernel, op, profile, read, step, text

REPAIRED, CUT_OFF, NO_HEADER = Note("malformed"), Note("ends_early"), Note("no_header")
V100 = {"id": 0, "name": "Tesla V100", "totalGlobalMem": 16 << 30, "numSms": 80}
LAST = event(None, "Record Window End", 200)


def in_pieces(trace: bytes, size: int) -> tuple[Trace, list[str | None]]:
    """What a trace is read as in pieces of `size` bytes: itself, and the names of its events."""
    decoded = Trace("t.json", KINETO)
    packed = gzip.compress(trace)  # of plain files, the first piece is never small
    names = [event.name for chunk in decoded.chunks(Source(io.BytesIO(packed), size=size)) for event in chunk]
    return decoded, names


def same_tables(one: Profile, other: Profile) -> bool:
    return all(getattr(one, name).equals(getattr(other, name)) for name in SCHEMAS)


# ---------------------------------------------------------------------------------------------- layout

NAMES = ["plain", "naïve ✓", '},{"ph":"X"', '}, {"name": "', "\\", '"', "[[", "\n"]
TRICKY = [op(10 * i, 5, name, **{"Input Dims": [[i]]}) for i, name in enumerate(NAMES)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 64, 251, 1_000, 100_000])
def test_wherever_it_is_cut_into_pieces_a_trace_is_read_alike(size: int, indent: int | None):
    document = {"schemaVersion": 1, "traceEvents": TRICKY, "deviceProperties": [V100]}
    trace, names = in_pieces(json.dumps(document, indent=indent).encode(), size)
    assert names == NAMES
    assert [device.name for device in trace.header.deviceProperties] == ["Tesla V100"]
    assert trace.salvaged == []


def test_a_cut_at_any_byte_is_no_loss():
    document = text(*TRICKY, *LAUNCH)

    class InTwo(Source):
        def __iter__(self) -> Iterator[bytes]:
            yield from (document[:at], document[at:])

    for at in range(len(document)):
        trace = Trace("t.json", KINETO)
        names = [event.name for chunk in trace.chunks(InTwo(io.BytesIO())) for event in chunk]
        assert (names, trace.salvaged) == ([*NAMES, "ProfilerStep#1", "aten::mm", "cudaLaunchKernel", "gemm"], []), at


@examples(0.6)
@given(st.integers(1, 5_000), st.lists(st.sampled_from(TRICKY), min_size=1, max_size=30), st.booleans())
def test_any_pieces_give_the_same_events(size: int, events: list[Event], header_first: bool):  # noqa: FBT001
    document = text(*events, deviceProperties=[V100]) if header_first else text(*events, after={"x": {"y": [1]}})
    _, names = in_pieces(document, size)
    assert names == [event["name"] for event in events]


def test_after_a_wrong_cut_reading_goes_on_in_pieces():
    """Within its first string each piece of this text seems to hold an end of an event."""
    misleading = op(0, 1, '},{"ph":"X"' * 300)
    trace = text(misleading, *(op(i, 1) for i in range(500)))
    pieces = Source(io.BytesIO(gzip.compress(trace)), size=1_000)
    chunks = [len(chunk) for chunk in Trace("t.json", KINETO).chunks(pieces)]
    assert sum(chunks) == 501
    assert max(chunks) < 100


def test_keys_in_an_unusual_order_make_one_whole_document():
    unusual = [dict(sorted(event.items(), reverse=True)) | {"zz": 1} for event in LAUNCH]
    first = [{"zz": 0} | event for event in unusual]
    assert in_pieces(text(*first), 10)[1] == [event["name"] for event in LAUNCH]


def test_the_header_may_stand_on_either_side_of_the_events():
    before = profile(*LAUNCH, deviceProperties=[V100], distributedInfo={"rank": 3, "world_size": 8, "backend": "nccl"})
    after = profile(*LAUNCH, after={"deviceProperties": [V100], "distributedInfo": {"rank": 3, "world_size": 8}})
    for found in (before, after):
        assert found.devices.row(0, named=True)["name"] == "Tesla V100"
        assert found.workers.select("worker", "rank", "world_size").row(0) == (3, 3, 8)
        assert found.salvaged == ()
    assert before.workers["backend"].item() == "nccl"


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("space", [b"", b" \n"])
def test_a_list_of_events_is_a_trace(mark: bytes, space: bytes):
    found = read(mark + space + json.dumps(LAUNCH).encode() + space)
    assert found.steps.equals(profile(*LAUNCH).steps)
    assert found.device_ops.equals(profile(*LAUNCH).device_ops)
    assert (found.workers["producer"].item(), found.salvaged) == ("Kineto", ())


def test_a_byte_order_mark_is_no_malformation():
    assert read(codecs.BOM_UTF8 + text(*LAUNCH, deviceProperties=[V100])).salvaged == ()


def test_a_trace_is_read_alike_packed_and_plain():
    assert same_tables(read(gzip.compress(text(*LAUNCH))), read(text(*LAUNCH)))


def test_base_time_and_header_may_come_last():
    found = profile(*LAUNCH, after={"baseTimeNanoseconds": 1_000_000_000_000_000_007})
    assert found.host_ops["start_ns"].min() == 1_000_000_000_000_000_007
    assert found.device_ops["start_ns"].to_list() == [1_000_000_000_000_040_007]
    assert found.steps["host_start_ns"].to_list() == [1_000_000_000_000_000_007]


# ---------------------------------------------------------------------------------------------- refusals


def mark(phase: str, at_us: int, name: str) -> dict[str, object]:
    """An event without a length: what begins or ends a range, or an instant."""
    return {"ph": phase, "ts": at_us, "name": name, "pid": 1, "tid": 1}


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (b"", "empty file"),
        (b" \n\t", "empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n", "git lfs pull"),
        (b"{}", 'no "traceEvents"'),
        (b'{"schemaVersion": 1, "tra', "cut off before its events"),
        (b'{"traceEvents": null}', 'no "traceEvents"'),
        (b'{"traceEvents": {"0": {}}}', 'no "traceEvents"'),
        (b'{"traceEvents": []}', "list of trace events is empty"),
        (b"[]", "list of trace events is empty"),
        (b'{"traceEvents": [', "none of its trace events can be read"),
        (b'{"traceEvents":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "none of its trace events can be read"),
        (b"[1, 2, null]", "none of its trace events can be read"),
        (b'{"traceEvents": [{"ph": 7}]}', "none of its trace events can be read"),
        (b"SQLite format 3\x00", "not a PyTorch Profiler trace"),
        (b"\x00" * 100_000, "not a PyTorch Profiler trace"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "no host or device activity"),
        (text(event(None, "cuMemAlloc_v2", 0)), "a Chrome trace of another tool (cuMemAlloc_v2)"),
        (text(*(event(kind, "Linear", 0) for kind in ("forward", "Trace", "backward"))), "tool (backward, forward)"),
        (text(mark("B", 0, "get_data"), mark("E", 5, "get_data")), "a Chrome trace of another tool (get_data)"),
        (text(mark("b", 0, "request"), mark("e", 5, "request")), "a Chrome trace of another tool (request)"),
        (text(mark("i", 0, "Iteration Start: PyTorch Profiler")), "no host or device activity"),
        (text(kernel("1", 1, 1)), "none of its trace events can be read"),
        (text(kernel(1, -1, 1)), "no event has a valid start and length"),
        (b"\x1f\x8b", "gzip data ends early"),
        (b"\x1f\x8b" + b"x" * 50, "gzip data is damaged"),
        (gzip.compress(b"", mtime=0), "empty file"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(trace: bytes, says: str):
    with pytest.raises(ReadError) as refused:
        read(trace, "runs/rank0.json")
    message = str(refused.value)
    assert message.startswith("runs/rank0.json: ")
    assert says in message
    assert "\n" not in message


def test_a_huge_file_without_events_is_not_read_to_its_end():
    class Endless(io.BytesIO):
        given = 0

        def read(self, size: int | None = -1, /) -> bytes:
            assert size
            self.given += size
            return b"{" + b" " * (size - 1)

    endless = Endless()
    with pytest.raises(ReadError, match='no "traceEvents"'):
        list(Trace("t.json", KINETO).chunks(Source(endless)))
    assert endless.given < 64 << 20


# ---------------------------------------------------------------------------------------------- repair


def broken(old: bytes, new: bytes) -> bytes:
    """A small trace with a header behind its events, and one thing wrong in it."""
    trace = text(*LAUNCH, op(70, 5, "after"), LAST, after={"deviceProperties": [V100]})
    assert trace.count(old) == 1
    return trace.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"after"', b'"af\nter"'),
        (b'"after"', b'"af\xe9ter"'),
        (b'"Record Window End"', b'"Record Window End", "x": NaN'),
        (b'"after", ', b'"after", "x": [-Infinity],'),
        (b"}], ", b"},], "),
        (b'"numSms": 80', b'"numSms": 80,'),
    ],
)
def test_what_is_repaired_loses_nothing(old: bytes, new: bytes):
    found = read(broken(old, new))
    assert found.salvaged == (REPAIRED,)
    assert (found.host_ops.height, found.device_ops.height, found.devices.height) == (4, 1, 1)


@pytest.mark.parametrize(
    "new",
    [b'null, {"ph": "X", "name": "after"', b'[], {"ph": "X", "name": "after"', b'{"ph": {"X": 1}, "name": "after"'],
)
@pytest.mark.parametrize("bad_type", [b'"dur": "5"', b'"dur": [5]', b'"dur": 1e400', b'"dur": true'])
def test_an_event_that_is_wrong_in_itself_is_left_out_and_counted(new: bytes, bad_type: bytes):
    trace = text(*LAUNCH, {"ph": "X", "name": "after", "dur": 5}, LAST, after={"deviceProperties": [V100]})
    found = read(trace.replace(b'{"ph": "X", "name": "after"', new).replace(b'"dur": 5}', bad_type + b"}"))
    assert found.salvaged[0] == REPAIRED
    assert found.salvaged[1] in {Note("unreadable_events", events=events) for events in (1, 2)}
    assert (found.host_ops.height, found.device_ops.height, found.devices.height) == (3, 1, 1)


@pytest.mark.parametrize(
    "damage", [b'"name": "af', b'"name" "after"', b'"name": "after"}', b"\\", b"{{", b'"after": 1e']
)
def test_damage_in_the_middle_costs_the_event_it_hits(damage: bytes):
    found = read(broken(b'"name": "after"', damage))
    assert found.salvaged == (REPAIRED, Note("unreadable_events", events=1))
    assert (found.host_ops.height, found.device_ops.height, found.devices.height) == (3, 1, 1)


@pytest.mark.parametrize("damage", [b"", b"}{", b'"', b"{\x00\x00"])
def test_damage_between_two_events_may_cost_both(damage: bytes):
    found = read(broken(b'{"ph": "X", "cat": "cpu_op", "name": "after"', damage))
    assert found.salvaged == (REPAIRED, Note("unreadable_events", events=1))
    assert found.host_ops.height + found.device_ops.height >= 3
    assert found.devices.height == 1


def test_in_a_large_file_damage_costs_no_more_than_that(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.inputs.chrome_json.trace._PATIENCE_BYTES", 5_000)
    trace = text(*(op(i, 1, f"op {i}") for i in range(500))).replace(b'"op 250"', b'"op 250')
    decoded = Trace("t.json", KINETO)
    chunks = list(decoded.chunks(Source(io.BytesIO(gzip.compress(trace)), size=2_000)))
    assert [event.name for chunk in chunks for event in chunk] == [f"op {i}" for i in range(500) if i != 250]
    assert max(map(len, chunks)) < 130  # it does not wait for the file's end
    assert (decoded.salvaged, decoded.cut_off) == ([REPAIRED, Note("unreadable_events", events=1)], False)


@pytest.mark.parametrize(
    "header",
    [
        {"deviceProperties": None},
        {"deviceProperties": [{"name": "no id"}]},
        {"deviceProperties": [{"id": 2**40}]},
        {"deviceProperties": [{"id": 0, "totalGlobalMem": 2**80}]},
        {"distributedInfo": {"rank": "zero"}},
        {"distributedInfo": {"rank": 2**40}},
        {"baseTimeNanoseconds": -1},
        {"baseTimeNanoseconds": 2**63},
    ],
)
def test_a_header_that_makes_no_sense_costs_the_header_only(header: Event):
    for found in (profile(*LAUNCH, **header), profile(*LAUNCH, after=header)):
        assert NO_HEADER in found.salvaged
        assert (found.host_ops.height, found.device_ops.height, found.devices.height) == (3, 1, 0)


def test_a_number_of_a_device_that_is_no_whole_one_does_not_cost_the_header():
    odd = V100 | {"id": 0.0, "totalGlobalMem": 17e9, "numSms": 80.5}
    found = profile(*LAUNCH, deviceProperties=[odd])
    assert NO_HEADER not in found.salvaged
    assert found.devices.select("device", "memory_bytes", "sm_count").rows() == [(0, 17_000_000_000, None)]


def test_a_rank_that_the_writer_left_empty_does_not_cost_the_header():
    found = profile(*LAUNCH, deviceProperties=[V100], distributedInfo={"rank": "", "world_size": 2})
    assert (found.devices["name"].to_list(), found.salvaged) == (["Tesla V100"], ())
    assert found.workers.select("rank", "world_size").rows() == [(None, 2)]


@pytest.mark.parametrize(("size", "known"), [((1 << 20) - 1, (1 << 20) - 1), (1 << 20, None), (2_000_000_001, None)])
def test_no_job_has_a_million_ranks(size, known):
    found = profile(*LAUNCH, distributedInfo={"rank": 0, "world_size": size})
    assert found.workers.select("rank", "world_size").rows() == [(0, known)]


def test_a_flag_that_nobody_needs_does_not_cost_the_header():
    found = profile(*LAUNCH, deviceProperties=[V100], with_stack=True, record_shapes="yes", cuda_runtime_version=[12])
    assert (found.devices.height, found.salvaged) == (1, ())


# ------------------------------------------------------------------------------------------- ends early

STEPS = [e for n in range(4) for e in (step(n, 100 * n, 100), op(100 * n + 10, 50), call(100 * n + 20, 10, n + 1))]
WORK = [kernel(100 * n + 40, 30, n + 1) for n in range(4)]
JOB = text(*STEPS, *WORK, LAST, after={"deviceProperties": [V100]})


@pytest.mark.soak
def test_wherever_the_file_ends_what_is_whole_before_that_is_read():
    for at in range(JOB.index(b"ProfilerStep#1"), JOB.index(b'{"ph": "X", "name": "Record'), 53):
        found = read(JOB[:at])
        assert CUT_OFF in found.salvaged
        whole = JOB[:at].count(b"}}")  # the last does not count if too little of the next tells that it ended
        assert whole - 1 <= found.host_ops.height + found.device_ops.height <= whole


def test_the_steps_of_a_file_that_ends_early_are_whole_only_if_two_agree():
    def whole(kernels: int) -> list[int]:
        found = read(text(*STEPS, *WORK[:kernels], kernel(0, 1, 99))[:-50])
        return found.steps.filter(pl.col("incomplete").is_null())["step"].to_list()

    assert [whole(kernels) for kernels in range(5)] == [[], [], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_a_file_whose_last_event_is_there_has_all_its_steps():
    one_step = text(*LAUNCH, LAST)
    whole, cut = read(one_step[: one_step.rindex(b"]")]), read(one_step[: one_step.rindex(b"{")])
    assert whole.salvaged == cut.salvaged == (CUT_OFF,)
    assert whole.steps["incomplete"].to_list() == [None]
    assert cut.steps["incomplete"].to_list() == ["file_cut"]


def test_what_a_cut_off_file_lacks_may_have_been_lost():
    found = read(JOB[: JOB.index(b'{"ph": "X", "cat": "kernel"')])
    assert found.device_ops.height == 0
    assert found.lacks["device_ops"].words.endswith("(or lost: the file ends early)")
    assert found.steps["incomplete"].null_count() == 0


def test_a_wrong_checksum_alone_costs_no_step():
    packed = gzip.compress(JOB)
    found = read(packed[:-8] + b"\0\0\0\0" + packed[-4:])
    assert found.salvaged == (Note("gzip_damaged"),)
    assert same_tables(found, read(JOB))


@pytest.mark.parametrize("fiftieth", every(5, range(1, 50)))
def test_a_truncated_gzip_file_is_read_as_far_as_it_goes(fiftieth: int):
    packed = gzip.compress(text(*STEPS, *(op(1_000 + i, 1, f"op {i * 7919 % 1000}") for i in range(300))))
    try:
        found = read(packed[: len(packed) * fiftieth // 50])
    except ReadError as error:
        assert fiftieth < 10, error
        return
    assert Note("gzip_cut_off") in found.salvaged
    assert found.host_ops.height > 6 * (fiftieth - 10)


# ---------------------------------------------------------------------------------------------- secrets


def test_what_a_trace_tells_of_its_job_is_not_kept():
    secrets = {
        "environment": {"AWS_SECRET": "x-secret-1"},
        "host_name": "x-secret-2",
        "username": "x-secret-3",
        "traceName": "/home/x-secret-4/trace.json",
        "job": [{"token": "x-secret-5"}],
    }
    extra = op(50, 5, "aten::add", environment={"PASSWORD": "x-secret-6"}, **{"Trace name": "x-secret-7"})
    labels = {"ph": "M", "name": "process_labels", "pid": 1, "tid": 0, "ts": 0, "args": {"labels": "x-secret-8"}}
    for found in (profile(*LAUNCH, extra, labels, **secrets), profile(*LAUNCH, extra, labels, after=secrets)):
        assert found.host_ops.height == 4
        kept = [getattr(found, name).write_ndjson() or "" for name in SCHEMAS]
        assert "x-secret" not in "".join(kept) + repr(found.lacks) + repr(found.salvaged)
