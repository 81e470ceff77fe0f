"""PyTorch's Flight Recorder: the last collectives that a process called, which it dumps when one times out.

A dump is one process's, as a pickle (`nccl_trace_rank_7`) or as JSON. It has the collectives of a ring of entries, the
stack of each call (not in JSON), and how far each process group is. Its clock is the host's.

`completed` is null where nothing tells: gloo watches no work, and only counts what a group has completed.
"""

import io
import pickle
import re
from collections.abc import Callable, Sequence
from typing import IO, Annotated, Any, Final, NoReturn, TypeAlias

import msgspec

from advisor.errors import NothingRecorded, ReadError
from advisor.inputs.collective_logs import Clock, Number, profile_of, text_of
from advisor.inputs.names.dtypes import DTYPE_BYTES
from advisor.inputs.names.stacks import user_line
from advisor.model.profile import Profile

FORMAT: Final = "flight_recorder"
_MOST_BYTES: Final = 1 << 62
_AGAIN: Final = "dump or copy it again"
_UNNAMED: Final = {"", "undefined"}  # what PyTorch calls groups without a description
_SCHEDULED: Final = "scheduled"  # the state of all entries of a group whose work nobody watches
_RANKS: Final = re.compile(r"\d+")


# A pickle may say one list many times, in a few bytes each: lists that are longer than any real one are refused.
_FEW: Final = msgspec.Meta(max_length=1 << 12)
_Sizes: TypeAlias = Annotated[list[Annotated[list[Number], _FEW]], _FEW]
_Types: TypeAlias = Annotated[list[str], _FEW]


class _Frame(msgspec.Struct):
    filename: str
    line: Number
    name: str = ""


class _Entry(msgspec.Struct):
    """A call of a collective, as FlightRecorder.hpp of PyTorch lists its fields."""

    process_group: tuple[str, str]  # name and description
    collective_seq_id: Number
    profiling_name: str  # `nccl:all_reduce`, `nccl:send 1->2`
    state: str
    pg_id: int = 0
    p2p_seq_id: Number = 0
    is_p2p: bool = False
    time_created_ns: Clock | None = None
    duration_ms: Annotated[float, msgspec.Meta(ge=0, lt=1e12)] | None = None
    input_sizes: _Sizes = []
    input_dtypes: _Types = []
    output_sizes: _Sizes = []
    output_dtypes: _Types = []
    frames: Annotated[list[_Frame], _FEW] = []


class _Group(msgspec.Struct):
    ranks: str = ""  # `[0, 1]`


class _Progress(msgspec.Struct):
    last_completed_collective: int = -1


class _Dump(msgspec.Struct):
    version: str
    entries: Annotated[list[_Entry], msgspec.Meta(max_length=1 << 17)] = []
    pg_config: dict[str, _Group] = {}
    pg_status: dict[str, _Progress] = {}


class _PlainValues(pickle.Unpickler):
    """Unpickles numbers, texts and containers, and no class or function: bytes of strangers run nothing."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which no dump does")


def read(  # noqa: PLR0913, PLR0917 - the last are options
    source: IO[bytes],
    name: str,
    worker: int = 0,
    on_read: Callable[[int], object] = lambda _: None,
    step_range: str | None = None,  # noqa: ARG001 - a dump has no ranges
    max_bytes: int | None = None,
) -> Profile:
    """The profile of one process; see docs/adding-a-reader.md for the arguments.

    Raises:
        ReadError: It is no dump.
        NothingRecorded: It has no collective.
    """
    text = text_of(source, name, max_bytes)
    on_read(len(text))
    dump = _dump(text, name)
    if not dump.entries:
        raise NothingRecorded(
            "a dump of the Flight Recorder without collectives; set `TORCH_FR_BUFFER_SIZE=2000`", name
        )
    sizes = [len(_RANKS.findall(group.ranks)) for group in dump.pg_config.values()]
    process = {
        "worker": worker,
        "rank": worker,
        "world_size": max(sizes, default=0) or None,
        "name": f"rank {worker}",
        "file": name,
        "framework": "pytorch",
        "producer": f"Flight Recorder {dump.version}",
        "backend": dump.entries[0].profiling_name.partition(":")[0],
    }
    watched = {entry.pg_id for entry in dump.entries if entry.state != _SCHEDULED}
    calls = [_call(entry, dump, is_watched=entry.pg_id in watched) | {"worker": worker} for entry in dump.entries]
    return profile_of([process], calls, FORMAT)


def _dump(text: bytes, name: str) -> _Dump:
    try:
        if text.lstrip()[:1] == b"{":
            return msgspec.json.decode(text, type=_Dump, strict=False)
        return msgspec.convert(_PlainValues(io.BytesIO(text)).load(), _Dump, strict=False)
    except msgspec.ValidationError as error:
        raise ReadError(f"no dump of PyTorch's Flight Recorder: {error}; {_AGAIN}", name) from error
    except pickle.UnpicklingError as error:
        raise ReadError(f"a pickle that cannot be read safely: {error}; {_AGAIN}", name) from error
    except Exception as error:  # a broken pickle raises whatever its bytes lead to
        raise ReadError(f"a dump of PyTorch's Flight Recorder that is broken or cut off; {_AGAIN}", name) from error


def _call(entry: _Entry, dump: _Dump, *, is_watched: bool) -> dict[str, Any]:
    group, description = entry.process_group
    ranks = _RANKS.findall(dump.pg_config[group].ranks) if group in dump.pg_config else []
    number, peer = (entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id), None
    if entry.is_p2p and len(ends := _RANKS.findall(entry.profiling_name.partition(" ")[2])) > 1:
        peer = int(ranks[int(ends[1])]) if int(ends[1]) < len(ranks) else None
    return {
        "group": group,
        "group_name": group if description in _UNNAMED else description,
        "ranks": ",".join(ranks) or None,
        "group_size": len(ranks) or None,
        "sequence": number,
        "op": entry.profiling_name.partition(" ")[0],
        "peer": peer,
        "bytes": max(_bytes(entry.input_sizes, entry.input_dtypes), _bytes(entry.output_sizes, entry.output_dtypes)),
        "completed": entry.state == "completed" if is_watched else _counted(entry, dump),
        "called_ns": entry.time_created_ns,
        "dur_ns": None if entry.duration_ms is None else round(entry.duration_ms * 1e6),
        "line": next(filter(None, map(_line, entry.frames)), None),
    }


def _counted(entry: _Entry, dump: _Dump) -> bool | None:
    """Whether a collective is among those that its group counts as completed; null where it counts none."""
    progress = dump.pg_status.get(str(entry.pg_id))
    return None if progress is None or entry.is_p2p else entry.collective_seq_id <= progress.last_completed_collective


def _bytes(sizes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> int:
    total = 0
    for shape, dtype in zip(sizes, dtypes, strict=False):
        elements = DTYPE_BYTES.get(dtype, 0)
        for length in shape:
            elements *= length
        total += elements
    return min(total, _MOST_BYTES)


def _line(frame: _Frame) -> str | None:
    """`train.py:41`, of the program's own code."""
    own = user_line(f"{frame.filename}({frame.line}): {frame.name}")
    return own and f"{own[0].rpartition('/')[2]}:{own[1]}"
