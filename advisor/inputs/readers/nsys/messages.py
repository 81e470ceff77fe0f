"""What Nsight Systems and the program said: warnings of the profiler, and the error with which the program ended."""

import re
from typing import Final

import polars as pl
from polars.datatypes import DataTypeClass

from advisor.inputs.readers.nsys.tables import Export
from advisor.inputs.secrets import masked_text, naming
from advisor.text import one_line, visible

_WARNING: Final = 2  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL; 3 is an error
_OF_GPU: Final = r"CUDA|CUPTI|(?i)\bGPU\b|driver|permission"
_VERBOSE: Final = r"^CUDA profiling might|(?i)perf event|IP samples|metrics"  # what the next message says, or of CPUs
_LAST_LINES: Final = 5  # of what the program printed: what stands before did not end it
_LONGEST: Final = 160
# An exception of Python, what a runtime or the loader says before it gives up, or what a shell says of a signal.
_ENDS: Final = re.compile(
    r"^(?:[\w.]+\.)?(?!\w*Warning)\w*(?:Error|Exception|Interrupt|Exit)\b(?::|$)"
    r"|^(?:FATAL|fatal)\b|(?i:fatal error)|terminate called|core dumped|[Ss]egmentation fault|^Aborted\b|^Killed\b"
    r"|can't open file|No such file or directory|symbol lookup error|error while loading shared libraries"
    r"|\bCUDA error\b|cudaError\w+|out of memory"
)


def diagnostics(export: Export) -> list[str]:
    """What the profiler warns of that keeps the GPU's work out of a recording, each message once, the gravest first."""
    types: dict[str, DataTypeClass] = {"severity": pl.Int64, "text": pl.String}
    rows = export.rows("DIAGNOSTIC_EVENT", types, needs=tuple(types), where=f"severity >= {_WARNING}")
    of_gpu = rows.filter(pl.col("text").str.contains(_OF_GPU), ~pl.col("text").str.contains(_VERBOSE))
    return of_gpu.sort("severity", descending=True, maintain_order=True)["text"].unique(maintain_order=True).to_list()


def last_error(export: Export) -> str | None:
    """The error that ends what a program printed to its standard error, without secrets; None where nothing does so."""
    for text in export.printed():
        lines = visible(text).splitlines()  # what is unseen may split a secret
        last = [line.strip() for line in lines if line.strip()][-_LAST_LINES:]
        if error := next((line for line in last if _ENDS.search(line)), None):
            return one_line(masked_text(error, naming(export.owners())).replace("`", "'"), _LONGEST)
    return None
