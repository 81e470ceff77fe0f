"""Dumps of PyTorch's Flight Recorder: real ones of gloo, and ones by hand with the fields of FlightRecorder.hpp."""

import functools
import io
import json
import os
import pickle
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NothingRecorded, ReadError
from advisor.inputs.readers import Reading, flight_recorder
from advisor.inputs.readers.flight_recorder import read
from tests import hostile, profiles

FIXTURE = profiles.ROOT / "fixtures/flight-recorder"
REAL = (FIXTURE / "pickle/nccl_trace_rank_2").read_bytes()
LIBRARY = {
    "filename": "/opt/env/site-packages/torch/distributed/distributed_c10d.py",
    "line": 3245,
    "name": "all_reduce",
}
OWN = {"filename": "/home/me/train.py", "line": 41, "name": "train_step"}


def entry(**fields):
    plain = {"process_group": ("0", "default_pg"), "collective_seq_id": 1, "profiling_name": "nccl:all_reduce"}
    return plain | {"state": "completed"} | fields


def dump(*entries, **fields):
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "", "ranks": "[0, 1]"}},
        "entries": [*entries],
    } | fields


def log(document, worker=0):
    return read(io.BytesIO(pickle.dumps(document, protocol=2)), "dump", Reading(worker)).collective_log


def test_a_call_with_its_group_its_size_its_time_and_the_line_of_the_program():
    call = entry(
        time_created_ns=10**18,
        duration_ms=1.5,
        input_sizes=[[4, 8]],
        input_dtypes=["Float"],
        output_sizes=[[4, 16]],
        output_dtypes=["Float"],
        frames=[LIBRARY, OWN],
    )
    (row,) = log(dump(call), worker=1).to_dicts()
    assert row == {
        "worker": 1,
        "group": "0",
        "group_name": "default_pg",
        "ranks": "0,1",
        "group_size": 2,
        "sequence": 1,
        "op": "all_reduce",
        "peer": None,
        "bytes": 4 * 16 * 4,
        "completed": True,
        "called_ns": 10**18,
        "dur_ns": 1_500_000,
        "line": "train.py:41",
    }


def test_a_message_has_the_number_of_its_kind_and_the_global_rank_at_its_other_end():
    config = {"5": {"ranks": "[4, 6, 9]", "name": "5", "desc": "pipe"}}
    sent = entry(process_group=("5", "pipe"), is_p2p=True, p2p_seq_id=7, profiling_name="nccl:send 0->2")
    (row,) = log(dump(sent, pg_config=config)).to_dicts()
    assert (row["op"], row["sequence"], row["peer"]) == ("send", 7, 9)


def test_calls_that_are_coalesced_have_the_state_of_the_entry_behind_them():
    sent, received = ({"profiling_name": name, "is_p2p": True} for name in ("nccl:send 0->1", "nccl:recv 0<-1"))
    whole = {"profiling_name": "nccl:coalesced", "is_p2p": True}
    entries = [
        entry(**fields, p2p_seq_id=number, state=state)
        for number, last in ((1, "completed"), (2, "started"))
        for fields, state in ((sent, "scheduled"), (received, "scheduled"), (whole, last))
    ]
    rows = log(dump(*entries)).select("op", "sequence", "peer", "completed").rows()
    assert rows == [("send", 1, 1, True), ("recv", 1, 1, True), ("send", 2, 1, False), ("recv", 2, 1, False)]


@pytest.mark.parametrize(
    ("state", "status", "completed"),
    [("started", {}, False), ("scheduled", {}, None), ("scheduled", {"0": {"last_completed_collective": 1}}, True)],
)
def test_a_group_that_nobody_watches_is_asked_how_many_it_completed(state, status, completed):
    assert log(dump(entry(state=state), pg_status=status))["completed"].to_list() == [completed]


def test_json_says_the_same_as_the_pickle_but_for_the_lines():
    forms = [
        read(io.BytesIO(path.read_bytes()), path.name, Reading(3)).collective_log.drop("line")
        for path in (FIXTURE / "json/nccl_trace_rank_3.json", FIXTURE / "pickle/nccl_trace_rank_3")
    ]
    assert forms[0].equals(forms[1])


def test_a_dump_takes_no_memory_for_what_it_may_have():
    data = pickle.dumps(dump(entry()), protocol=2)
    assert read(io.BytesIO(data), "dump", Reading(max_bytes=1 << 80)).collective_log.height == 1
    with pytest.raises(ReadError, match="larger than 10 bytes"):
        read(io.BytesIO(data), "dump", Reading(max_bytes=10))


def test_the_ranks_of_a_large_group_are_all_told():
    config = {"0": {"ranks": str([*range(20_000)])}}
    calls = log(dump(*[entry(collective_seq_id=number) for number in range(3)], pg_config=config))
    assert calls["ranks"].cast(str).to_list() == [",".join(map(str, range(20_000)))] * 3
    assert calls["group_size"].to_list() == [20_000] * 3


def test_groups_that_share_one_text_of_ranks_are_as_large_as_they_say():
    shared = "11 " * 600_000
    config = {str(number): {"ranks": shared} for number in range(9)}
    tracemalloc.start()
    try:
        assert log(dump(entry(), pg_config=config))["group_size"].to_list() == [600_000]
        assert tracemalloc.get_traced_memory()[1] < 100_000_000  # 9 * 600,000 texts take 300
    finally:
        tracemalloc.stop()
    with pytest.raises(ReadError, match="more than 16 million characters of ranks"):
        log(dump(entry(), pg_config=config | {"9": {"ranks": shared}}))


class Command:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def test_a_pickle_that_would_run_something_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReadError, match="cannot be read safely: it refers to posix"):
        log(dump(Command()))
    assert not list(tmp_path.iterdir())


def test_numbers_of_ranks_that_no_job_has_are_none():
    for call, ranks in (("nccl:send 0->" + "9" * 5000, "[0, 1]"), ("nccl:send 0->1", f"[0, {'9' * 30}]")):
        config = {"0": {"ranks": ranks, "name": "0", "desc": ""}}
        assert log(dump(entry(is_p2p=True, profiling_name=call), pg_config=config))["peer"].to_list() == [None]


def test_texts_that_are_no_text_or_drive_a_terminal_are_made_plain():
    source = io.BytesIO(pickle.dumps(dump(entry(profiling_name="\ud800:send"), version="\x1b[31m"), protocol=2))
    (process,) = read(source, "dump").workers.to_dicts()
    assert (process["backend"], process["producer"]) == ("\ufffd", "Flight Recorder \ufffd[31m")


def test_bytes_of_an_unknown_type_are_unknown():
    assert log(dump(entry(input_sizes=[[4]], input_dtypes=["Posit"])))["bytes"].to_list() == [None]


@pytest.mark.parametrize(
    "calls",
    [
        [entry(input_sizes=[[1] * 60] * 4096)] * 200,
        [entry(input_sizes=[[2] * 4096], input_dtypes=["Float"])],
        [functools.reduce(lambda inner, _: [inner] * 100, range(20), 1)],
    ],
)
def test_a_few_bytes_that_say_much_are_refused(calls):
    with pytest.raises(ReadError):
        log(dump(*calls))


@pytest.mark.parametrize("most", [1 << 17, (1 << 17) + 1])
def test_a_list_longer_than_any_of_a_dump_is_refused_before_its_values_are_counted(most):
    document = dump(entry(), unknown=[entry()] * most)
    if most <= 1 << 17:
        assert log(document).height == 1
    else:
        with pytest.raises(ReadError, match="the same values too often"):
            log(document)


def test_a_list_that_holds_itself_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(ReadError, match="the same values too often"):
        log(dump(entry(), unknown=endless))


@pytest.mark.parametrize("is_p2p", [True, False])
def test_calls_of_one_number_without_an_entry_behind_them_are_calls_each(is_p2p):
    """As of a batch of sends that the ring's end cuts, or of an entry that stands twice."""
    twice = [entry(is_p2p=is_p2p, state="started")] * 2
    assert log(dump(*twice)).height == 2


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "broken or cut off"),
        (b"\x80\x02}r" + b"\xff" * 4 + b".", "missing required field"),  # 64 GB of memo in C
        (b"\x80\x05}(" + b")" + b"2\x86" * 60 + b"Nu.", "a key that is no text"),  # the hash of a key: 2^60 tuples
        (b"\x80\x05}(" + b"(" * 60 + b")" + b"2t" * 60 + b"Nu.", "broken or cut off"),
        (b"\x80\x05}(\x8f(" + b")" + b"2\x86" * 60 + b"\x90Nu.", "broken or cut off"),
        (b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".", "broken or cut off"),  # 1 TB
        (pickle.dumps({n * (2**61 - 1): n for n in range(3)}), "a key that is no text"),  # all of one hash
        (pickle.dumps({1: 2}, protocol=0), "a key that is no text"),
        (REAL[:-20], "broken or cut off"),
        (pickle.dumps([1, 2]), "no dump of PyTorch's Flight Recorder"),
        (pickle.dumps(dump(entry(collective_seq_id=-1))), "collective_seq_id"),
        (json.dumps({"traceEvents": []}).encode(), "missing required field"),
    ],
)
def test_what_is_no_dump_is_refused_with_what_is_wrong(data, says):
    with pytest.raises(ReadError, match=says):
        read(io.BytesIO(data), "dump")


def test_a_dump_without_collectives_says_how_to_have_them():
    with pytest.raises(NothingRecorded, match="TORCH_FR_BUFFER_SIZE=2000"):
        log(dump())


@given(hostile.places, st.floats(0, 1))
def test_changed_bytes_are_read_or_refused_in_one_line(places, kept):
    data = hostile.flipped(REAL, places)[: round(kept * len(REAL))]
    try:
        read(io.BytesIO(data), "dump")
    except ReadError as error:
        assert str(error).startswith("dump: ")
        assert "\n" not in str(error)


def test_a_pickle_of_more_lists_than_a_dump_has_is_refused(monkeypatch: pytest.MonkeyPatch):
    """Each is a byte, and takes sixty of memory."""
    monkeypatch.setattr(flight_recorder, "_MOST_LISTS", 40)
    assert log(dump(entry())).height == 1
    for value in ([[] for _ in range(40)], [{} for _ in range(40)]):
        with pytest.raises(ReadError, match="may hold 0 million lists and mappings"):
            log(dump(entry(), more=value))
