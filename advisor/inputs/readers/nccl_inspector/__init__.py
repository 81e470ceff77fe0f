"""NCCL's Inspector, a plugin of NCCL: how long a communicator's collectives took, a line of JSON each.

A file is one process's, `HOST-pidPID.log`. Of each communicator it has the collective that was the last to complete
whenever the plugin wrote, so that ranks have some of them in common. The plugin times kernels. What it times on the
host alone is no time of a transfer, and stays unknown here.
"""

from dataclasses import replace
from typing import IO, Annotated, Any, Final

import msgspec

from advisor.errors import NothingRecorded, ReadError
from advisor.inputs.collective_logs import Number, RankNumber, profile_of, text_of
from advisor.inputs.readers import PLAIN, Reading
from advisor.model.clause import Note
from advisor.model.profile import Profile

FORMAT: Final = "nccl_inspector"
_OF_EACH_RANK: Final = {"AllGather", "ReduceScatter"}  # the plugin counts what one rank gives or gets


class _Header(msgspec.Struct):
    id: str
    rank: RankNumber
    n_ranks: RankNumber


class _Metadata(msgspec.Struct):
    dump_timestamp_us: Number
    hostname: str = ""
    pid: Number | None = None


class _Times(msgspec.Struct):
    coll_start_ts: Number | None = None


class _Performance(msgspec.Struct):
    coll: str
    coll_sn: Number
    coll_msg_size_bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 38)]  # times the ranks: in 64 bits
    coll_exec_time_us: Number
    coll_timing_source: str = ""
    event_trace_ts: _Times | None = None


class _Line(msgspec.Struct):
    header: _Header
    metadata: _Metadata
    coll_perf: _Performance


_LINE: Final = msgspec.json.Decoder(_Line)


def read(source: IO[bytes], name: str, how: Reading = PLAIN) -> Profile:
    """The profile of the ranks of one process.

    They are those of the largest communicator: a line has the rank within its own. A ReadError where it is no log of
    the plugin; NothingRecorded where it has no collective.
    """
    text = text_of(source, name, how.max_bytes)
    how.on_read(len(text))
    lines, unread = [], 0
    for written in filter(None, map(bytes.strip, text.splitlines())):
        try:
            lines.append(_LINE.decode(written))
        except (ValueError, RecursionError):
            unread += 1
    if unread > len(lines):
        raise ReadError(
            "no log of NCCL's Inspector: most of its lines have not the plugin's fields; copy it again", name
        )
    if not lines:
        raise NothingRecorded("a log of NCCL's Inspector without collectives; set `NCCL_INSPECTOR_ENABLE=1`", name)
    size = max(line.header.n_ranks for line in lines)
    world = next(line.header.id for line in lines if line.header.n_ranks == size)
    ranks = sorted({line.header.rank for line in lines if line.header.id == world})
    metadata = lines[0].metadata
    process = {
        "host": metadata.hostname or None,
        "pid": metadata.pid,
        "world_size": size,
        "file": name,
        "producer": "NCCL Inspector",
        "backend": "nccl",
    }
    workers = [process | {"worker": rank, "rank": rank, "name": f"rank {rank}"} for rank in ranks]
    alone = ranks[0] if len(ranks) == 1 else None  # of several, only the largest communicator tells which is meant
    calls = [_call(line, alone) for line in lines if alone is not None or line.header.id == world]
    salvaged = [Note("unread_lines", lines=unread)] if unread else []
    return replace(profile_of(workers, calls, FORMAT), salvaged=salvaged)


def _call(line: _Line, rank: int | None) -> dict[str, Any]:
    header, done = line.header, line.coll_perf
    timed = done.coll_timing_source != "collective_cpu" and done.coll_exec_time_us > 0
    began_us = done.event_trace_ts.coll_start_ts if done.event_trace_ts else None
    known_us = began_us or line.metadata.dump_timestamp_us
    return {
        "worker": header.rank if rank is None else rank,
        "group": header.id,
        "group_name": header.id,
        "group_size": header.n_ranks,
        "sequence": done.coll_sn,
        "op": done.coll,
        "bytes": done.coll_msg_size_bytes * (header.n_ranks if done.coll in _OF_EACH_RANK else 1),
        "called_ns": known_us * 1000,
        "dur_ns": done.coll_exec_time_us * 1000 if timed else None,
    }
