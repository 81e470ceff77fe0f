"""The fields of a Kineto trace that are read, in every spelling that PyTorch has used; what the header tells.

A new one goes from here through `columns.py` into a table of `model/tables.yaml`.
"""

import re
from typing import Annotated, Final, TypeAlias

import msgspec

from advisor.inputs.chrome_json.trace import Form

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Clock: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]  # in ns since 1970: up to 2116
_OPTIONS: Final = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_LARGEST: Final = 10**9  # of a version's number


class Args(msgspec.Struct, gc=False):
    """The arguments that the tables need, in every spelling that PyTorch has used."""

    correlation: int | None = None
    external_id: int | None = msgspec.field(default=None, name="External id")
    external_id_2020: int | None = msgspec.field(default=None, name="external id")
    stream: int | str | None = None
    device: int | None = None
    bytes: int | str | None = None
    grid: list[int] | str | None = None
    block: list[int] | str | None = None
    registers: int | None = msgspec.field(default=None, name="registers per thread")
    shared_bytes: int | None = msgspec.field(default=None, name="shared memory")
    occupancy_percent: float | None = msgspec.field(default=None, name="est. achieved occupancy %")
    blocks_per_sm: float | None = msgspec.field(default=None, name="blocks per SM")
    graph: int | None = msgspec.field(default=None, name="graph id")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    dtypes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input type")
    options: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Concrete Inputs")
    stack: str | None = msgspec.field(default=None, name="Call stack")
    sequence: int | None = msgspec.field(default=None, name="Sequence number")
    device_type: int | None = msgspec.field(default=None, name="Device Type")
    device_id: int | None = msgspec.field(default=None, name="Device Id")
    size: int | None = msgspec.field(default=None, name="Bytes")
    address: int | None = msgspec.field(default=None, name="Addr")
    allocated_bytes: int | None = msgspec.field(default=None, name="Total Allocated")
    reserved_bytes: int | None = msgspec.field(default=None, name="Total Reserved")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    dtype: str | None = None
    elements_in: int | None = msgspec.field(default=None, name="In msg nelems")
    elements_out: int | None = msgspec.field(default=None, name="Out msg nelems")
    group: str | int | None = msgspec.field(default=None, name="Process Group Name")
    group_size: int | None = msgspec.field(default=None, name="Group size")
    description: str | None = msgspec.field(default=None, name="Process Group Description")
    ranks: str | None = msgspec.field(default=None, name="Process Group Ranks")
    collective_sequence: int | None = msgspec.field(default=None, name="Seq")
    source_rank: int | None = msgspec.field(default=None, name="Src Rank")
    target_rank: int | None = msgspec.field(default=None, name="Dst Rank")
    rank: object = None  # whose event it is, where a tool merged the files of several ranks


class Event(msgspec.Struct, gc=False):
    """One entry of `traceEvents`; times in microseconds as the file has them."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


class Device(msgspec.Struct):
    """One entry of `deviceProperties`."""

    device: Int32 = msgspec.field(name="id")
    name: str | None = None
    memory_bytes: Int64 | None = msgspec.field(default=None, name="totalGlobalMem")
    major: Int32 | None = msgspec.field(default=None, name="computeMajor")
    minor: Int32 | None = msgspec.field(default=None, name="computeMinor")
    sm_count: Int32 | None = msgspec.field(default=None, name="numSms")
    max_threads_per_sm: Int32 | None = msgspec.field(default=None, name="maxThreadsPerMultiprocessor")


class Distributed(msgspec.Struct):
    """`distributedInfo`; each part may be absent."""

    rank: Int32 | None = None
    world_size: Int32 | None = None
    backend: str | None = None
    nccl_version: object = None


class Header(msgspec.Struct):
    """What is kept of a trace's top level. Job names, hosts and environments found there are not."""

    schemaVersion: int | None = None  # noqa: N815 - the file's spelling
    deviceProperties: list[Device] = msgspec.field(default_factory=list)  # noqa: N815
    distributedInfo: Distributed | None = None  # noqa: N815
    baseTimeNanoseconds: Clock | None = None  # noqa: N815
    # Nobody computes with these: what they should not be is taken as unknown, and costs nothing else.
    cuda_runtime_version: object = None
    cuda_driver_version: object = None
    hip_runtime_version: object = None
    hip_driver_version: object = None
    record_shapes: object = None
    profile_memory: object = None
    with_stack: object = None
    with_flops: object = None
    with_modules: object = None
    advisor: msgspec.Raw = msgspec.field(default=msgspec.Raw())


def _decoded_header(text: bytes | bytearray) -> Header:
    """The header, with odd numbers as unknown unless they equal an integer; a ValueError where it is broken."""
    try:
        return _header.decode(text)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        devices = msgspec.json.decode(fields.get("deviceProperties", b"[]"), type=list[dict[str, object]])
        job = msgspec.json.decode(fields.get("distributedInfo", b"{}"), type=dict[str, object])
        sound = {"deviceProperties": [*map(_integral, devices)], "distributedInfo": _integral(job)}
        return _header.decode(msgspec.json.encode(fields | sound))


def _integral(facts: dict[str, object]) -> dict[str, object]:
    number = {name: int(value) for name, value in facts.items() if isinstance(value, float) and value.is_integer()}
    odd = {name: number.get(name) for name, value in facts.items() if isinstance(value, float) or value == ""}
    return facts | odd


_header = msgspec.json.Decoder(Header)
KINETO: Final = Form(
    Event,
    Header,
    what="a PyTorch Profiler trace (no JSON); give the *.pt.trace.json[.gz] file",
    last="Record Window End",
    lenient=_decoded_header,
)
"""The form of the traces."""


def software(header: Header) -> str | None:
    """`CUDA 12.4, driver for CUDA 12.9, NCCL 2.17.1`; None where the trace tells none.

    CUDA's number is 1000 x major + 10 x minor (CUDA_VERSION), HIP's 10^7 x major + 10^5 x minor + patch (HIP_VERSION).
    """
    nccl = (header.distributedInfo or Distributed()).nccl_version
    versions = {
        "CUDA": _version(header.cuda_runtime_version, 1000, 10),
        "driver for CUDA": _version(header.cuda_driver_version, 1000, 10),
        "HIP": _version(header.hip_runtime_version, 10**7, 10**5, 1),
        "driver for HIP": _version(header.hip_driver_version, 10**7, 10**5, 1),
        "NCCL": nccl if isinstance(nccl, str) and re.fullmatch(r"[\d.]{1,20}", nccl) else None,
    }
    return ", ".join(f"{what} {version}" for what, version in versions.items() if version) or None


def options(header: Header) -> str | None:
    """The options of torch.profiler that were on; None where the trace does not tell, as those of before 1.11."""
    return ", ".join(name for name in _OPTIONS if is_on(header, name)) or None


def is_on(header: Header, option: str) -> bool:
    """Whether the trace tells that an option of torch.profiler was on; some releases write 1, some true."""
    value = getattr(header, option)
    return value is True or (isinstance(value, int) and value == 1)


def _version(number: object, *units: int) -> str | None:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < _LARGEST:
        return None
    rests = [number, *(number % unit for unit in units)]
    return ".".join(str(rest // unit) for rest, unit in zip(rests, units, strict=False))
