"""What the threads that call CUDA were in: stacks that Nsight Systems samples while a thread has a CPU."""

from typing import Final

import polars as pl

from advisor.inputs.names.kernel_words import kernel_name
from advisor.inputs.readers.nsys.tables import Export
from advisor.model.schemas import Schema

# Code of the system, of the profiler and of interpreters: what a program calls, not what it is.
_FOREIGN_MODULE: Final = (
    r"^\[|(?:^|/)(?:(?:python|nsys)[-.\w]*|ld[-.][-.\w]*|lib(?:c|m|dl|rt|util|pthread|gcc_s|stdc\+\+)(?:-[\d.]+)?\.so"
    r"[^/]*|lib(?:python|cupti|nvidia-|nvrtc|Tools)[^/]*)$"
)
_FOREIGN_FUNCTION: Final = r"^(?:[\w:]+ )?(?:std::|__gnu_cxx::|operator)|^(?:_init|_start|_?_libc_\w+|0x\w+)?$"
# In these the recorded calls say what the thread does.
_DRIVER_MODULE: Final = r"(?:^|/)libcuda(?:rt)?[-.\d]*\.so"
_DRIVER_FUNCTION: Final = r"^(?:lib|__)cudart|^cu(?:da)?[A-Z]\w+$"
_COMPILED: Final = ("//anon", "a JIT: code compiled at run time")  # memory that no file is behind; it has no symbols
_EVENT: Final = ("id", "start", "globalTid")
_FRAME: Final = ("id", "symbol", "module", "stackDepth")
_SAMPLES: Final[Schema] = {"process": pl.Int64, "thread": pl.Int64, "at_ns": pl.Int64, "functions": pl.List(pl.String)}


def host_samples(export: Export, host: pl.DataFrame) -> pl.DataFrame:
    """Process, thread, at_ns and functions of each sample of a thread that calls CUDA.

    The functions are the program's and its libraries', the innermost first, each as `module: function` without folder
    and parameters. There are none in a call of CUDA, or where only the system or an interpreter was seen.
    """
    callers = host.filter(pl.col("correlation").is_not_null()).select("process", "thread").unique()
    thread, process = pl.col("globalTid") & 0xFFFFFF, pl.col("globalTid") // (1 << 24) * (1 << 24)
    events = export.rows("COMPOSITE_EVENTS", dict.fromkeys(_EVENT, pl.Int64), needs=_EVENT)
    events = events.unique("id", keep="first", maintain_order=True)  # each has a stack of its own, in a sound file
    events = events.with_columns(thread=thread, process=process).join(callers, on=["process", "thread"], how="semi")
    if events.is_empty():
        return pl.DataFrame(schema=_SAMPLES)
    frames = export.rows("SAMPLING_CALLCHAINS", dict.fromkeys(_FRAME, pl.Int64), needs=_FRAME).join(
        events, on="id", how="semi"
    )
    texts = export.strings(frames["symbol"], frames["module"]).with_columns(value=pl.col("value").fill_null(""))
    frames = frames.join(_known(texts, "module", _DRIVER_MODULE, _FOREIGN_MODULE), on="module")
    frames = frames.join(_known(texts, "symbol", _DRIVER_FUNCTION, _FOREIGN_FUNCTION), on="symbol")
    in_driver = (pl.col("module_of_driver") | pl.col("symbol_of_driver")).any().over("id")
    is_compiled = pl.col("module_text") == _COMPILED[0]
    is_own = ~in_driver & ~pl.col("module_foreign") & (is_compiled | ~pl.col("symbol_foreign"))
    own = frames.filter(is_own).sort("id", "stackDepth")
    words = {text: kernel_name(text) for text in own["symbol_text"].unique()}
    module, function = pl.col("module_text").str.extract(r"([^/]*)$"), pl.col("symbol_text").replace(words)
    text = pl.concat_str(module, function, separator=": ")
    label = pl.when(is_compiled).then(pl.lit(_COMPILED[1])).otherwise(text).unique(maintain_order=True)
    stacks = own.group_by("id", maintain_order=True).agg(functions=label)
    # Apart, since a left join takes room for the first stack in each row without one.
    without = events.join(stacks, on="id", how="anti").with_columns(functions=pl.lit([], pl.List(pl.String)))
    known = pl.concat([events.join(stacks, on="id"), without]).sort("start", "id")
    return known.select("process", "thread", at_ns="start", functions="functions")


def _known(texts: pl.DataFrame, of: str, driver: str, foreign: str) -> pl.DataFrame:
    """The texts as those of a column, each with whether it is the driver's or foreign."""
    text = pl.col("value")
    flags = {f"{of}_of_driver": text.str.contains(driver), f"{of}_foreign": text.str.contains(foreign)}
    return texts.select(pl.col("id").alias(of), text.alias(f"{of}_text"), **flags)
