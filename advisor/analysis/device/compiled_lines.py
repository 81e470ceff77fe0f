"""The lines that ops of JAX on a CPU come from: each op has its path in the compiled code, and its stack."""

from itertools import pairwise
from typing import Any, Final

import polars as pl

from advisor.analysis.device.host_work import own_ns
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.stacks import AWAITED, COMPILED, OP, kind_of, kinds, user_line

_TIMES: Final = ("ns", "long_ns", "samples", "excess_ns")
_DIFFERENTIATED: Final = r"\bjvp\("
_TRAINS: Final = rf"{_DIFFERENTIATED}|/(?:optax|flax/training)/"
_COSTLY: Final = (  # and whatever else is no arithmetic on single values
    r"/(?:sort|(?:approx_)?top_k|arg(?:max|min|sort)|reduce_\w+|cum\w+|gather|scatter\S*|fft|svd|eigh?|qr|lu|cholesky"
    r"|triangular_solve|threefry\w*|random_\w+|rng_\w+)$"
)


def with_compiled(view: DeviceView, rows: pl.DataFrame) -> pl.DataFrame:
    """Sampled stacks with the lines that ops of JAX come from in place of those that wait for them, by the ops' time.

    Ops that take no part in a training have a kind of their own: of a program that differentiates, they are neither in
    the differentiated function nor in a library's update, and no arithmetic on single values, as a program's updates.
    """
    if view.device is not None or view.process.get("framework") != "jax":
        return rows
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent", "dur_ns", "stack").collect()
    stack, path = pl.col("stack").cast(pl.String), pl.col("stack").cast(pl.String).str.extract(r"^(p?jit\([^;]*)")
    beside = path.str.contains(_DIFFERENTIATED).any() & path.str.contains(_COSTLY) & ~stack.str.contains(_TRAINS)
    kind = pl.when(beside).then(kind_of(path, pl.lit(COMPILED), kinds())).otherwise(pl.lit(OP))
    own_part = own_ns(ops) / max(1, int(own_ns(ops).sum()))
    known = ops.with_columns(kind=kind, path=path, stack=stack, part=own_part).drop_nulls("path")
    awaited = rows.filter(kind=AWAITED).select(pl.sum(*_TIMES)).row(0, named=True)
    files = {line.rpartition(":")[0] for line in rows["line"].drop_nulls()}
    by = ["path", "stack", "kind", path.str.extract(r"^p?jit\((.+?)\)").alias("program")]
    grouped = known.group_by(by, maintain_order=True).agg(pl.sum("part"))
    placed = [(of, at) for of in grouped.to_dicts() if (at := _frames(of["path"], of["stack"], files))]
    with_line, calls, compiled, until = sum(of["part"] for of, _ in placed), _beside(placed, rows), [], 0.0
    rest = 0.0 if with_line >= 1 - with_line else 1 - with_line  # ops without a line, among most with one, are as these
    for of, frames in placed:
        *callers, line = calls.get(of["program"], frames)
        kind_of_op = "compiled-beside" if of["program"] in calls else of["kind"]
        before, until = until, until + (1 - rest) * of["part"] / with_line
        part = {name: round(until * time) - round(before * time) for name, time in awaited.items()}
        compiled.append({**line, **part, "callers": callers, "kind": kind_of_op, "known": kind_of_op})
    times = (pl.when(kind=AWAITED).then(pl.col(name) * rest).otherwise(name).cast(pl.Int64) for name in _TIMES)
    lines = pl.DataFrame(compiled, schema={name: rows.schema[name] for name in (compiled or [{}])[0]})
    return pl.concat([rows.with_columns(times), lines], how="diagonal")


def _beside(placed: list[tuple[dict[str, Any], list[dict[str, str]]]], rows: pl.DataFrame) -> dict[str, Any]:
    """Programs that take what one that differentiates computes, and by the lines give it nothing, with their calls."""
    calls = {  # the line around the function that was compiled
        of["program"]: call | {"call": of["program"]}
        for of, frames in placed
        for call, frame in pairwise(frames)
        if frame["function"].rpartition(".")[2] == of["program"]
    }
    trains = {of["program"] for of, _ in placed if "jvp(" in of["path"]} & calls.keys()
    sampled = (frame for row in rows.to_dicts() for frame in (*(row["callers"] or ()), row))
    needed = {(frame["line"], frame["function"]): frame["needed"] or () for frame in sampled}
    at = {program: (call["line"], call["function"]) for program, call in calls.items()}

    def takes(program: str, other: str) -> bool:
        return at[program][1] == at[other][1] and int(at[program][0].rpartition(":")[2]) in needed.get(at[other], ())

    beside = {program for program in at if any(takes(program, of) > takes(of, program) for of in trains)}
    return {program: [calls[program]] for program in beside if at[program] in needed}


def _frames(path: str, stack: str, files: set[str]) -> list[dict[str, str]]:
    """The program's own frames of a stack, the outermost first; their files as the samples name them."""
    frames, call = {}, path.rpartition("/")[2]
    for frame in stack.split(";")[:0:-1]:
        if at := user_line(frame):
            in_file, line = at
            file = next((file for file in files if f"/{in_file}".endswith(f"/{file}")), in_file.rpartition("/")[2])
            frames[at] = {"line": f"{file}:{line}", "function": frame.rpartition(": ")[2], "call": call}
    return [*frames.values()]
