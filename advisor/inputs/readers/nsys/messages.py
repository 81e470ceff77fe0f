"""What Nsight Systems and the program said: warnings of the profiler, and the error with which the program ended."""

import re
from pathlib import PurePath
from typing import Final

import polars as pl

from advisor.inputs.names.calls import OUTDATED
from advisor.inputs.names.stacks import user_line
from advisor.inputs.readers.nsys.tables import Export
from advisor.model.profile import END_NS
from advisor.secrets import masked_text, naming
from advisor.text import one_line, visible

_WARNING, ERROR = 2, 3  # of ENUM_DIAGNOSTIC_SEVERITY_LEVEL
_OF_GPU: Final = r"CUDA|CUPTI|torch\.cuda|(?i)\bGPU\b|driver|permission|injected process|^Not all OS"
_OUTCOME: Final = r"^(?:No|Not all) CUDA events"  # of which another message may tell the cause
_VERBOSE: Final = r"^CUDA profiling might|(?i)perf event|IP samples|metrics|unified memory"  # of CPUs and pages alone
_PARTS: Final = "text LIKE 'Common injection%' OR text LIKE '%CUDA%'"
_UNTRACED: Final = "CUDA was not traced."
REMEDIES: Final = {  # of the messages that tell what is wrong
    OUTDATED: "it is too old for this driver: update Nsight Systems and record again",
    "CUDA injection initialization failed": "update Nsight Systems, and record where `nvidia-smi` finds the GPU",
    r"torch\.cuda is not available": "PyTorch finds no GPU there, so the program ran on the CPU: check the driver with "
    "`nvidia-smi`, and `torch.version.cuda`, which is None in a build for CPUs",
    "Protected Memory mode": "a GPU that computes confidentially is not traced: turn that off, and record again",
}
_LAST_LINES: Final = 5  # of what the program printed: what stands before did not end it
_LONGEST: Final = 240
# An exception of Python, what a runtime or the loader says before it gives up, or what a shell says of a signal.
_ENDS: Final = re.compile(
    r"^(?:[\w.]+\.)?(?!\w*Warning)\w*(?:Error|Exception|Interrupt|Exit)\b(?::|$| ?\()"
    r"|^(?:FATAL|fatal)\b|(?i:fatal error)|terminate called|core dumped|[Ss]egmentation fault|^Aborted\b|^Killed\b"
    r"|exited on signal \d|^(?:[\w./-]+: )?error: "  # of mpirun; of argparse and of command-line tools
    r"|can't open file|No such file or directory|symbol lookup error|error while loading shared libraries"
    r"|^ERROR: |\u5410\u6838"  # of Julia; `core dumped` of a shell in Chinese
    r"|\bCUDA error\b|cudaError\w+|out of memory"
)
# What CUDA says of its error codes, or a program of its weights: that goes to the standard output as often.
_OUTPUT_ENDS: Final = re.compile(
    "illegal memory access|launch failure|misaligned address|no kernel image|no CUDA-capable"
    r"|^Load(?:ing)? \S+ failed\b"
)
_STREAMS: Final = {"stderr": _ENDS, "stdout": _OUTPUT_ENDS}
_PYTHON_FRAME: Final = re.compile(r'^[ \t]*File "(.+)", line (\d+)', re.MULTILINE)
_FRAME: Final = re.compile(r"\s*(?:\[\d+\] |@ |Stacktrace:|in expression starting at )")  # of Julia, behind its error
_WAITS: Final = r"^(?:ioctl|e?p?poll\w*|p?select|sem_\w*wait|pthread_cond_\w*wait|\w*sleep|sched_yield|futex)$"
_FEWEST_ASKS: Final = 3  # while a thread waits for the device, the driver asks the system once in a second


def diagnostics(export: Export, least: int = _WARNING) -> list[str]:
    """Why the GPU's work may be missing, as the profiler warns: each message once, grave ones, then causes first."""
    types = {"severity": pl.Int64, "text": pl.String}
    rows = export.rows("DIAGNOSTIC_EVENT", types, where=f"severity >= {_WARNING}")
    of_gpu = rows.filter(
        pl.col("severity") >= least, pl.col("text").str.contains(_OF_GPU), ~pl.col("text").str.contains(_VERBOSE)
    )
    order = pl.col("severity"), ~pl.col("text").str.contains(_OUTCOME)
    return of_gpu.sort(*order, descending=True, maintain_order=True)["text"].unique(maintain_order=True).to_list()


def gravest(export: Export) -> str | None:
    """The first of these messages, or that CUDA was not traced: the profiler names each part that it traces."""
    parts = export.rows("DIAGNOSTIC_EVENT", {"text": pl.String}, where=_PARTS)["text"]
    is_traced = parts.is_empty() or parts.str.contains("CUDA").any()
    return next((one_line(text, _LONGEST) for text in diagnostics(export)), None if is_traced else _UNTRACED)


def last_error(export: Export) -> str | None:
    """The error that ends what a program printed, without secrets, as `KeyboardInterrupt (train.py:12)`; or None."""
    printed = [(text, ends) for stream, ends in _STREAMS.items() for text in export.printed(stream)]
    for text, ends in ((visible(text), ends) for text, ends in printed):  # what is unseen may split a secret
        lines = text.splitlines()
        last = [line.strip() for line in lines if line.strip() and not _FRAME.match(line)][-_LAST_LINES:]
        if error := next((line for line in last if ends.search(line)), None):
            frames = [user_line(f"{path}({line})") for path, line in _PYTHON_FRAME.findall(text)]
            at = next((f" ({PurePath(frame[0]).name}:{frame[1]})" for frame in frames[::-1] if frame), "")
            return one_line(masked_text(error, naming(export.owners())).replace("`", "'"), _LONGEST) + at
    return None


def waits_at_end(calls: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Process and driver_wait_ns: how long a thread has waited in the driver, and none did anything else, at the end.

    CUDA writes a call down when it returns: one that never does shows in the driver's calls of the system alone
    (`host.os_calls`). A process whose data CUPTI flushes on its exit has come to its end.
    """
    name = pl.col("name").cast(pl.String)
    ended = host.filter(pl.col("kind") == "overhead", name.str.contains("process exit"))
    rest = [host.filter(pl.col("kind") != "overhead"), calls.filter(~name.str.contains(_WAITS))]
    before = pl.concat([rows.select("process", at=END_NS) for rows in rest]).group_by("process").agg(pl.max("at"))
    asks = calls.filter(name == "ioctl").join(ended, on="process", how="anti").join(before, on="process", how="left")
    late = asks.filter(pl.col("start_ns") > pl.col("at").fill_null(0)).group_by("process", "thread")
    waits = late.agg(pl.len(), driver_wait_ns=END_NS.max() - pl.min_horizontal(pl.min("start_ns"), pl.first("at")))
    return waits.filter(pl.col("len") >= _FEWEST_ASKS).group_by("process").agg(pl.max("driver_wait_ns"))
