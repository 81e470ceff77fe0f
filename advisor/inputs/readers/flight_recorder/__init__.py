"""PyTorch's Flight Recorder: the last collectives that a process called, which it dumps when one times out.

A dump is one process's, as a pickle (`nccl_trace_rank_7`) or as JSON. It has the collectives of a ring of entries, the
stack of each call (not in JSON), and how far each process group is. Its clock is the host's.

`completed` is null where nothing tells: gloo watches no work, and only counts what a group has completed.
"""

import io
import pickle
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, prod
from typing import IO, Annotated, Any, ClassVar, Final, NoReturn, TypeAlias

import msgspec

from advisor.errors import NothingRecorded, ReadError
from advisor.inputs.collective_logs import Clock, Number, profile_of, text_of
from advisor.inputs.names.kernels import DTYPE_BYTES
from advisor.inputs.names.stacks import user_line
from advisor.inputs.readers import PLAIN, Reading
from advisor.model.profile import Profile

FORMAT: Final = "flight_recorder"
_MOST_ENTRIES: Final = 1 << 17
_AGAIN: Final = "dump or copy it again"
_UNNAMED: Final = {"", "undefined"}  # what PyTorch calls groups without a description
_SCHEDULED: Final = "scheduled"  # the state of all entries of a group whose work nobody watches
_RANKS: Final = re.compile(r"(?<![0-9])[0-9]{1,7}(?![0-9])")
_VALUES_PER_BYTE: Final = 8  # at most: a pickle may say one value many times, but only frames are shared in real ones
_REFUSED: Final = {*b"t\x85\x87\x8f\x91\x96"}  # TUPLE, TUPLE1, TUPLE3, EMPTY_SET, FROZENSET, BYTEARRAY8
_HOLDING: Final = (b"]", b"}", b"(", b"\x86", b"\x94")  # codes of lists, mappings, marks, pairs, memos: 60 bytes each
_MOST_LISTS: Final = 1 << 23  # 60 of each entry; a text may hold such bytes too
_MOST_MEMBERS: Final = 1 << 24  # characters of all groups' ranks; 100,000 ranks in ten groups take 7 million
_KEYS: Final = slice(-2, -1), slice(None, None, 2), slice(None, None, 2)  # of SETITEM, SETITEMS and DICT on the stack
_FEW: Final = msgspec.Meta(max_length=1 << 12)
_Sizes: TypeAlias = Annotated[list[Annotated[list[Number], msgspec.Meta(max_length=64)]], _FEW]  # torch's dimensions
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
    entries: Annotated[list[_Entry], msgspec.Meta(max_length=_MOST_ENTRIES)] = []
    pg_config: dict[str, _Group] = {}
    pg_status: dict[str, _Progress] = {}


def _of_texts(load: Callable[[Any], None], keys: slice) -> Callable[[Any], None]:
    """Sets keys that are texts, as all are in dumps: numbers of one hash take time by the square of their number."""

    def loaded(unpickler: Any) -> None:  # noqa: ANN401 - what the class of the standard library has is private
        if not all(isinstance(key, str) for key in unpickler.stack[keys]):
            raise pickle.UnpicklingError("a mapping has a key that is no text")
        load(unpickler)

    return loaded


class _PlainValues(pickle._Unpickler):  # noqa: SLF001 - the one in C allots as much memory as a few bytes ask for
    """Unpickles numbers, texts, lists and mappings, and no class or function: bytes of strangers run nothing.

    Pairs become lists: to hash tuples that share others takes for ever. A bytearray takes what a few bytes ask for.
    """

    dispatch: ClassVar[dict[int, Any]] = {
        **{code: load for code, load in pickle._Unpickler.dispatch.items() if code not in _REFUSED},  # noqa: SLF001
        pickle.TUPLE2[0]: lambda self: self.append([self.stack.pop(-2), self.stack.pop()]),
    }
    for _code, _keys in zip((pickle.SETITEM, pickle.SETITEMS, pickle.DICT), _KEYS, strict=True):
        dispatch[_code[0]] = _of_texts(dispatch[_code[0]], _keys)

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which no dump does")


def _count(value: object, most: int, counts: dict[int, float]) -> float:
    """How many values it is when all that it shares is written out; more than so many are refused, and no end."""
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in counts:
        counts[id(value)] = inf
        if len(value) <= _MOST_ENTRIES:
            inner = value.values() if isinstance(value, dict) else value
            counts[id(value)] = 1 + sum(_count(part, most, counts) for part in inner)
    if counts[id(value)] > most:
        raise pickle.UnpicklingError("it says the same values too often")
    return counts[id(value)]


def read(source: IO[bytes], name: str, how: Reading = PLAIN) -> Profile:
    """The profile of one process; a ReadError where it is no dump, NothingRecorded where it has no collective."""
    text = text_of(source, name, how.max_bytes)
    how.on_read(len(text))
    dump = _dump(text, name)
    if not dump.entries:
        raise NothingRecorded(
            "a dump of the Flight Recorder without collectives; set `TORCH_FR_BUFFER_SIZE=2000`", name
        )
    texts = {group: config.ranks for group, config in dump.pg_config.items()}
    if sum(map(len, texts.values())) > _MOST_MEMBERS:
        raise ReadError(f"its groups list more than {_MOST_MEMBERS >> 20} million characters of ranks; {_AGAIN}", name)
    numbers = {text: array("i", (int(number[0]) for number in _RANKS.finditer(text))) for text in {*texts.values()}}
    listed = {text: ",".join(map(str, of_text)) for text, of_text in numbers.items()}  # a pickle may share a text
    members = {group: numbers[text] for group, text in texts.items()}
    process = {
        "worker": how.worker,
        "rank": how.worker,
        "world_size": max(map(len, members.values()), default=0) or None,
        "name": f"rank {how.worker}",
        "file": name,
        "framework": "pytorch",
        "producer": f"Flight Recorder {dump.version}",
        "backend": dump.entries[0].profiling_name.partition(":")[0],
    }
    watched = {entry.pg_id for entry in dump.entries if entry.state != _SCHEDULED}
    calls = [
        _call(entry, dump, members, is_watched=entry.pg_id in watched)
        | {"worker": how.worker, "ranks": listed.get(texts.get(entry.process_group[0], "")) or None}
        for entry in _calls(dump.entries)
    ]
    return profile_of([process], calls, FORMAT)


def _dump(text: bytes, name: str) -> _Dump:
    if text.lstrip()[:1] != b"{" and sum(map(text.count, _HOLDING)) > _MOST_LISTS:
        raise ReadError(f"a pickle that may hold {_MOST_LISTS >> 20} million lists and mappings; {_AGAIN}", name)
    try:
        if text.lstrip()[:1] == b"{":
            return msgspec.json.decode(text, type=_Dump, strict=False)
        loaded = _PlainValues(io.BytesIO(text)).load()
        _count(loaded, _VALUES_PER_BYTE * len(text), {})
        return msgspec.convert(loaded, _Dump, strict=False)
    except msgspec.ValidationError as error:
        raise ReadError(f"no dump of PyTorch's Flight Recorder: {error}; {_AGAIN}", name) from error
    except pickle.UnpicklingError as error:
        raise ReadError(f"a pickle that cannot be read safely: {error}; {_AGAIN}", name) from error
    except Exception as error:  # a broken pickle raises whatever its bytes lead to
        raise ReadError(f"a dump of PyTorch's Flight Recorder that is broken or cut off; {_AGAIN}", name) from error


def _calls(entries: Sequence[_Entry]) -> Iterator[_Entry]:
    """The entries that are calls; coalesced ones in the state of the entry behind them, which bears their number."""
    keyed = [((entry.pg_id, entry.is_p2p, entry.p2p_seq_id, entry.collective_seq_id), entry) for entry in entries]
    ends = {key: entry for key, entry in keyed if entry.profiling_name.endswith(":coalesced")}
    times = Counter(key for key, _ in keyed)
    for key, entry in keyed:
        end = ends.get(key)
        if entry is not end or times[key] == 1:  # older versions do not enter each call
            yield msgspec.structs.replace(entry, state=(end or entry).state)


def _call(entry: _Entry, dump: _Dump, members: Mapping[str, Sequence[int]], *, is_watched: bool) -> dict[str, Any]:
    group, description = entry.process_group
    ranks = members.get(group, [])
    number, peer = (entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id), None
    if entry.is_p2p and len(ends := _RANKS.findall(entry.profiling_name.partition(" ")[2])) > 1:
        peer = ranks[int(ends[1])] if int(ends[1]) < len(ranks) else None
    sides = ((entry.input_sizes, entry.input_dtypes), (entry.output_sizes, entry.output_dtypes))
    is_known = DTYPE_BYTES.keys() >= {*entry.input_dtypes, *entry.output_dtypes}
    pairs = (zip(*side, strict=False) for side in sides)
    sizes = (sum(prod(shape) * DTYPE_BYTES[dtype] for shape, dtype in of_side) for of_side in pairs)
    counts = None if entry.is_p2p else dump.pg_status.get(str(entry.pg_id))  # a group's, of completed collectives
    counted = None if counts is None else entry.collective_seq_id <= counts.last_completed_collective
    own = next(filter(None, (user_line(f"{of.filename}({of.line}): {of.name}") for of in entry.frames)), None)
    return {
        "group": group,
        "group_name": group if description in _UNNAMED else description,
        "group_size": len(ranks) or None,
        "sequence": number,
        "op": entry.profiling_name.partition(" ")[0],
        "peer": peer,
        "bytes": min(1 << 62, max(sizes)) if is_known else None,  # what goes in or comes out, whichever is more
        "completed": entry.state == "completed" if is_watched else counted,
        "called_ns": entry.time_created_ns,
        "dur_ns": None if entry.duration_ms is None else round(entry.duration_ms * 1e6),
        "line": own and f"{own[0].rpartition('/')[2]}:{own[1]}",  # `train.py:41`, of the program's own code
    }
