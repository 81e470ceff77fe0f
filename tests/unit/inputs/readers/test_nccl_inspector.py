"""Logs of NCCL's Inspector: lines as its README and inspector.cc have them."""

import io
import json

import pytest
from hypothesis import given

from advisor.errors import NothingRecorded, ReadError
from advisor.inputs.readers.nccl_inspector import read
from tests import hostile, profiles

LOG = (profiles.ROOT / "fixtures/nccl-inspector/host1-pid4003.log").read_bytes()


def line(op="AllReduce", group="0xa", rank=2, ranks=8, **more):
    done = {"coll": op, "coll_sn": 1407, "coll_msg_size_bytes": 1 << 30, "coll_exec_time_us": 5000}
    document = {
        "header": {"id": group, "rank": rank, "n_ranks": ranks, "nnodes": 1},
        "metadata": {"dump_timestamp_us": 10**15, "hostname": "node7", "pid": 41},
        "coll_perf": done | {"coll_timing_source": "kernel_gpu"} | more,
    }
    return json.dumps(document)


def profile(*lines):
    return read(io.BytesIO("\n".join(lines).encode()), "node7-pid41.log")


def test_a_line_is_a_collective_of_the_rank_that_the_largest_communicator_gives():
    (first, second) = profile(line(), line("AllGather", "0xb", rank=0, ranks=2)).collective_log.to_dicts()
    assert first == {
        "worker": 2,
        "group": "0xa",
        "group_name": "0xa",
        "ranks": None,
        "group_size": 8,
        "sequence": 1407,
        "op": "all_reduce",
        "peer": None,
        "bytes": 1 << 30,
        "completed": None,  # those that ranks are still in are not logged
        "called_ns": 10**18,
        "dur_ns": 5_000_000,
        "line": None,
    }
    assert (second["worker"], second["op"], second["bytes"]) == (
        2,
        "all_gather",
        2 << 30,
    )  # the plugin says a rank's part


def test_what_the_host_alone_timed_is_no_time_of_a_transfer():
    assert profile(line(coll_timing_source="collective_cpu")).collective_log["dur_ns"].to_list() == [None]


def test_a_process_of_several_gpus_has_a_worker_for_each_and_only_their_common_communicator():
    read_ = profile(line(rank=0, ranks=2), line(rank=1, ranks=2), line(group="0xb", rank=0, ranks=1))
    assert read_.workers["worker"].to_list() == [0, 1]
    assert read_.collective_log["worker"].to_list() == [0, 1]


def test_a_line_that_is_cut_off_is_left_out_and_said():
    read_ = profile(line(), line(), line()[:40])
    assert read_.collective_log.height == 2
    assert [note.words for note in read_.salvaged] == ["1 unreadable line of the log left out"]


def test_other_lines_and_none_are_refused():
    with pytest.raises(ReadError, match="most of its lines"):
        profile("{}", "NCCL INFO Bootstrap", line())
    with pytest.raises(NothingRecorded, match="NCCL_INSPECTOR_ENABLE=1"):
        profile("")


@given(hostile.places)
def test_changed_bytes_are_read_or_refused_in_one_line(places):
    try:
        read(io.BytesIO(hostile.flipped(LOG, places)), "log")
    except ReadError as error:
        assert str(error).startswith("log: ")
        assert "\n" not in str(error)
