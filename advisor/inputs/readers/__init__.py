"""One package per profile format, each with `read`; `FORMATS` declares all that others ask of one.

The declarations stand here and not in the packages: discovery then imports the one reader that it needs.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple

from advisor.vocabulary.limits import table


class Format(NamedTuple):
    """A kind of file: what tells it, how it is read, and what it can and cannot show."""

    name: str  # the reader's package in this folder
    title: str  # what to call such a file
    own: tuple[str, ...] = ()  # endings, in lower case, that no other program gives its files
    shared: tuple[str, ...] = ()  # endings that others use too: there `sign` decides
    sign: bytes = rb"(?!)"  # regular expression for what the first bytes, unpacked, contain
    openings: tuple[bytes, ...] = (b"",)  # what a file of such a name must begin with if its sign comes late
    name_pattern: str = r"(?!)"  # regular expression for the whole name of a file that no other program writes
    tables: tuple[str, ...] = ()  # files one of which is in every folder that is read as one file
    exports: tuple[str, ...] = ()  # endings of what it is exported to, and which is read instead; the first preferably
    copy_of: str = ""  # ending of the profile that this is a copy of: where that lies beside it, nobody misses the copy
    reads: str = ""  # what the reader reads, in the plural, with the endings; empty where there is no reader
    instead: str = ""  # what to do where there is none, and more is known than what others read
    folder_per_run: bool = False  # whether the profiler gives each run a folder of its own
    free_names: bool = False  # people name files as they like: one run are those that differ in numbers alone
    file_per_run: bool = False  # whether each file is a run of its own, whatever it is called
    memory_per_byte: float = 3.0  # bytes of memory that reading takes per byte of the file, unpacked
    needs_path: bool = False  # whether the reader takes a path on disk, and no stream
    splits: bool = False  # whether several processes can read one file
    tells_ranks: bool = False  # whether files tell their rank, so that one without it is worth a note
    file_per_host: bool = False  # whether each host writes one file, which is named after it
    # whether the profiler records programs of any kind, whose users know no ranks; else it is that of the framework
    any_program: bool = False
    is_log: bool = False  # written without a profiler, while a job runs: of one that was profiled too it is evidence


def _unheard(_: int) -> None:
    """Nothing is done with it; a function of the module, as what goes to other processes has to be."""


class Reading(NamedTuple):
    """How a file is to be read."""

    worker: int = 0  # the number of a worker whose file does not name its rank
    on_read: Callable[[int], object] = _unheard  # gets the number of bytes read each time
    step_range: str | None = None  # regular expression for the ranges that are steps
    max_bytes: int | None = None  # how large the file may be, unpacked
    memory: int | None = None  # that a check of it may take
    processes: int = 1  # of a format that `splits`: so many decode it


PLAIN: Final = Reading()

_XPLANE: Final = Format(
    "xplane",
    "a TensorFlow or JAX profile",
    (".xplane.pb",),
    reads="TensorFlow and JAX profiles (*.xplane.pb, or the *.trace.json.gz beside it)",
    folder_per_run=True,
    memory_per_byte=12.0,  # measured on events without stats, 13 bytes each; stats take less per byte
    file_per_host=True,
)
_VIEWER: Final = _XPLANE._replace(
    title="the trace viewer's copy of a TensorFlow or JAX profile",
    own=(),
    sign=rb'"highres-ticks"',
    copy_of=".xplane.pb",
)
_TF_TIMELINE: Final = Format(
    "tf_timeline",
    "a timeline of TensorFlow's `session.run`",
    shared=(".json", ".json.gz"),
    sign=rb'"name"\s*:\s*"Allocators"|"cat"\s*:\s*"Op"',
    reads="timelines of TensorFlow 1 (tensorflow.python.client.timeline)",
    memory_per_byte=6.0,
    file_per_run=True,
)
_NSYS: Final = Format(
    "nsys",
    "an Nsight Systems profile",
    (".nsys-rep", ".qdrep"),
    (".sqlite",),
    rb"^SQLite(?s:.)*(?:TARGET_INFO|ENUM_NSYS|ENUM_CUDA|NVTX_EVENTS|CUPTI_ACTIVITY|StringIds)",
    tables=("StringIds.parquet", "META_DATA_EXPORT.parquet"),
    exports=(".sqlite", "_pqtdir"),
    reads="Nsight Systems exports (*.sqlite, parquetdir; *.nsys-rep where nsys is installed)",
    free_names=True,
    memory_per_byte=3.0,  # rows are columns of 64-bit numbers in memory, and varints on disk
    needs_path=True,
    any_program=True,
)
_KINETO: Final = Format(
    "kineto",
    "a PyTorch Profiler trace",
    (".pt.trace.json", ".pt.trace.json.gz"),
    (".json", ".json.gz"),
    rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:|"ph"\s*:\s*"',
    openings=(b"{", b"["),
    reads="PyTorch Profiler traces (*.pt.trace.json, *.pt.trace.json.gz)",
    memory_per_byte=2.5,  # measured on the shortest events there are: 800,000 in 65 MB
    splits=True,
    tells_ranks=True,
)
_FLIGHT_RECORDER: Final = Format(
    "flight_recorder",
    "a dump of PyTorch's Flight Recorder",
    shared=(*"0123456789", ".pkl", ".pickle", ".json"),  # `nccl_trace_rank_7`
    name_pattern=r"(?:nccl|comm_lib)_trace_rank_[0-9]+(?:\.json)?",
    sign=rb'\A(?:\x80.\}(?s:.){1,9}(?:version|entries|pg_config)|\s*\{(?s:.)*"(?:comm_lib_version|collective_seq_id)"\s*:)',
    openings=(b"\x80", b"{"),
    reads="dumps of PyTorch's Flight Recorder (nccl_trace_rank_*, as pickle or JSON)",
    memory_per_byte=80.0,  # an empty list is one byte of a pickle
    is_log=True,
)
_NCCL_INSPECTOR: Final = Format(
    "nccl_inspector",
    "a log of NCCL's Inspector",
    shared=(".log",),
    sign=rb'"inspector_output_format_version"',
    reads="logs of NCCL's Inspector (HOST-pid*.log)",
    memory_per_byte=6.0,
    any_program=True,
    is_log=True,
)
_UNREAD: Final = (
    Format(
        "onnxruntime",
        "an ONNX Runtime profile",
        sign=rb'"cat"\s*:\s*"Session"',
        instead="record the program with Nsight Systems: `nsys profile COMMAND`",
    ),
    Format("memory", "a PyTorch memory profile", (".memory.json", ".memory.json.gz")),
    Format("nvprof", "a database of nvprof", sign=rb"^SQLite(?s:.)*TABLE CUPTI_ACTIVITY_KIND_\w+\(_id_ "),
    Format("rocpd", "a database of rocprofv3", shared=(".db",), sign=rb"^SQLite(?s:.)*rocpd_"),
    Format(
        "rocprof_trace",
        "a trace of rocprof",
        sign=rb'"CPU HIP API"',
        instead="of AMD's GPUs, jobs of PyTorch and JAX are read: record one with `advisor record -- COMMAND`",
    ),
    Format("rocprof", "a table of rocprofv3", shared=(".csv",), sign=rb'^"Kind","(?:Agent_Id|Domain)"'),
)
FORMATS: Final = (_VIEWER, *_UNREAD, _TF_TIMELINE, _KINETO, _XPLANE, _NSYS, _FLIGHT_RECORDER, _NCCL_INSPECTOR)
"""The first whose sign matches wins: the viewer data of TensorFlow and JAX are Chrome traces too."""


def format_of(name: str) -> Format:
    """The format that a reader or a report names; nothing is known of one of another version."""
    return next((kind for kind in FORMATS if kind.name == name), Format(name, name))


def lacks(profile_format: str) -> dict[str, str]:
    """Why a table or column may be absent from profiles of a format, by need: codes of `advisor.model.clause`."""
    reasons: dict[str, str] = table(__file__, "lacks")[profile_format]
    return reasons


def reader(profile_format: str) -> ModuleType:
    """The reader of a format, imported at its first use."""
    return import_module(f"{__name__}.{profile_format}")
