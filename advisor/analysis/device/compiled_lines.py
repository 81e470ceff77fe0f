"""The lines that ops of JAX on a CPU come from: each op has its path in the compiled code, and its stack."""

from typing import Final

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
    compiled = []
    for of in known.group_by("path", "stack", "kind").agg(pl.sum("part")).to_dicts():
        frames = _frames(of["stack"], of["path"].rpartition("/")[2], files)
        if frames:
            *callers, line = frames
            part = {name: int(of["part"] * time) for name, time in awaited.items()}
            compiled.append({**line, **part, "callers": callers, "kind": of["kind"], "known": of["kind"]})
    rest = 1 - known["part"].sum()
    times = (pl.when(kind=AWAITED).then(pl.col(name) * rest).otherwise(name).cast(pl.Int64) for name in _TIMES)
    lines = pl.DataFrame(compiled, schema={name: rows.schema[name] for name in (compiled or [{}])[0]})
    return pl.concat([rows.with_columns(times), lines], how="diagonal")


def _frames(stack: str, call: str, files: set[str]) -> list[dict[str, str]]:
    """The program's own frames of a stack, the outermost first; their files as the samples name them."""
    frames = {}
    for frame in stack.split(";")[:0:-1]:
        if at := user_line(frame):
            path, line = at
            file = next((file for file in files if f"/{path}".endswith(f"/{file}")), path.rpartition("/")[2])
            frames[at] = {"line": f"{file}:{line}", "function": frame.rpartition(": ")[2], "call": call}
    return [*frames.values()]
