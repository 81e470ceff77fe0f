"""What a collective should take: its bandwidth as nccl-tests defines it, its expected time, and which nodes it spans.

`bytes` are those of the `collectives` table: the total array of a gather, scatter, reduce-scatter or all-to-all, the
buffer of one rank otherwise. Times are nanoseconds, bandwidths GB/s, which is bytes per nanosecond. Sends and receives
go around a ring, or between the stages of a pipeline.
"""

import re
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from advisor.inputs.hardware import Gpu, table
from advisor.inputs.names.kernels import COLLECTIVES
from advisor.model.clause import Missing
from advisor.model.intervals import Floats
from advisor.model.profile import Schema, of_distinct
from advisor.vocabulary.kinds import POINT_TO_POINT

CURVE: Final = "measured curve"
MODEL: Final = "model"

_BOARD: Final = 8  # GPUs of one HGX or DGX board, and of each node of the measured curves
_HALF_BOARD: Final = 4  # the only HGX boards since A100 that have no switch
_SWITCHED_FROM: Final = 8.0  # compute capability; of the V100, the sixteen of a DGX-2 have one

# --------------------------------------------------------------------------------------------------- bandwidth

# Bus over algorithm bandwidth: so many times (n - 1) / n, or 1 whatever n is.
_SHARED: Final = {
    "all_reduce": 2.0,
    **dict.fromkeys(["all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"], 1.0),
}
_UNSHARED: Final = dict.fromkeys(["broadcast", "reduce", "send", "recv", "send_recv"], 1.0)


def bus_factor(op: pl.Expr, group_size: pl.Expr) -> pl.Expr:
    """Bus bandwidth over algorithm bandwidth, which makes ops and group sizes comparable with the link.

    2 (n - 1) / n for all_reduce; (n - 1) / n for all_gather, reduce_scatter, all_to_all, gather, scatter; 1 for
    broadcast, reduce, send, recv, send_recv. Null for anything else and for a group of fewer than two. Source:
    nccl-tests, doc/PERFORMANCE.md and src/*.cu.
    """
    name, size = op.cast(pl.String), group_size.cast(pl.Float64)
    shared = name.replace_strict(_SHARED, default=None, return_dtype=pl.Float64) * (size - 1) / size
    unshared = name.replace_strict(_UNSHARED, default=None, return_dtype=pl.Float64)
    return pl.when(size.is_null() | (size > 1)).then(pl.coalesce(shared, unshared))


# -------------------------------------------------------------------------------------------------------- ranks

_PLACEMENT: Final[Schema] = {"ranks": pl.List(pl.Int32), "spans_nodes": pl.Boolean, "nodes": pl.Int32}
_RANKS: Final = re.compile(r"\[\s*(?:[0-9]{1,9}|\.\.\.)(?:\s*,\s*(?:[0-9]{1,9}|\.\.\.))*\s*\]")
_LARGEST_GROUP: Final = 1 << 20


def placement(ranks: pl.Series, group_size: pl.Series, devices: int | None) -> pl.DataFrame:
    """Where the groups of these "Process Group Ranks" lie, one row per text, in order.

    Ranks are taken to fill hosts of `devices` GPUs one after the other, as torchrun places them; a recording that shows
    one device, or none, does not tell how many there are.

    Columns: `ranks` (List(Int32): the global ranks, in order; null where the text is absent, unreadable, or cut where
    the rest does not follow from it), `spans_nodes` (Boolean) and `nodes` (Int32), null where they cannot be told.
    """
    groups = pl.DataFrame({"text": ranks.cast(pl.String), "size": group_size.cast(pl.Int64)})

    def places(distinct: pl.DataFrame) -> pl.DataFrame:
        rows = [_place(text, size, devices) for text, size in distinct.rows()]
        return pl.DataFrame(rows, _PLACEMENT, orient="row")

    return of_distinct(groups, places)


def _place(text: str | None, size: int | None, devices: int | None) -> tuple[list[int] | None, bool | None, int | None]:
    known, complete = _parsed(text, size)
    if not known:
        return None, None, None
    if not devices or devices == 1:
        return (known if complete else None), None, None
    nodes = len({rank // devices for rank in known})
    if not complete:
        return None, (True if nodes > 1 else None), None
    return known, nodes > 1, nodes


def _parsed(text: str | None, size: int | None) -> tuple[list[int], bool]:
    """The ranks that the text names, and whether these are all.

    Kineto cuts long lists: "[0, 1, ...]" after 30, "[0, 1, ..., 63]" after 29 with the last one kept. The second is
    completed where what is there and the group's size leave one evenly spaced list.
    """
    if text is None or not _RANKS.fullmatch(text):
        return [], False
    head, cut, tail = text[1:-1].partition("...")
    known, last = ([int(digits) for digits in re.findall(r"[0-9]+", part)] for part in (head, tail))
    if not cut:
        return known, True
    if size and len(known) < size <= _LARGEST_GROUP and len(known) > 1 and len(last) == 1:
        spaced = [known[0] + i * (known[1] - known[0]) for i in range(size)]
        if spaced[: len(known)] == known and spaced[-1] == last[0]:
            return spaced, True
    return known + last, False


# -------------------------------------------------------------------------------------------------------- links


def fastest_gbs(gpu: Gpu | None) -> float:
    """What the links of one GPU move at most, one way; of one that is not known, those of any GPU.

    Neither the bus bandwidth of a collective can be above it nor, where a switch adds up, its algorithm bandwidth.
    """
    kinds = (gpu.variants or (gpu,)) if gpu else table()
    known = table() if any(kind.link and kind.link_gbs is None for kind in kinds) else kinds
    return max((rate for kind in known for rate in (kind.link_gbs, kind.pcie_gbs) if rate), default=inf)


class Link(NamedTuple):
    """What joins the GPUs of a group that lies on one node."""

    kind: str  # nvlink or pcie
    ring_gbs: float  # ring bus bandwidth as NCCL expects it
    capability: float


def link(gpu: Gpu | None, group_size: int, devices: int | None) -> Link | Missing:
    """What joins a group of that many GPUs on one host that has `devices` of them.

    NVLink where a switch joins any of them, or the group is the whole board. A bridge is an option and joins one pair:
    PCIe is what is sure to be there, at the rate of GPUs below one CPU.
    """
    if gpu is None:
        return Missing("gpu_unknown_link")
    if len({variant.link for variant in gpu.variants}) > 1:
        return Missing("links_of_variants", model=gpu.model)
    if gpu.link in {"nvlink", "xgmi"}:
        return _on_board(gpu, group_size, devices)
    if re.fullmatch(r"RTX \d{4}(?: Ti)?", gpu.model):
        return Missing("geforce_link")
    if gpu.vendor != "NVIDIA" or gpu.pcie_gbs is None or gpu.nccl_pcie_gbs is None:
        return Missing("no_link", model=gpu.model)
    return Link("pcie", gpu.nccl_pcie_gbs, gpu.capability)


def _on_board(gpu: Gpu, group_size: int, devices: int | None) -> Link | Missing:
    """Without a switch GPUs are wired pair by pair: a part of the board has a part of the links.

    Which part is not known, unless a link joins every pair: then a group's rings use all links among its members.
    """
    if gpu.nccl_peer_gbs is not None and gpu.link_gbs is not None and group_size <= _BOARD:
        return Link("nvlink", gpu.nccl_peer_gbs * max(1, group_size - 1), gpu.capability)  # each has one to every other
    if gpu.nccl_ring_gbs is None or gpu.link_gbs is None:
        return Missing("no_ring_bandwidth", model=gpu.model)
    board = _BOARD if gpu.capability < _SWITCHED_FROM else _HALF_BOARD if devices == _HALF_BOARD else None
    if board and group_size != board:
        return Missing("wired_in_pairs", board=board, model=gpu.model, size=group_size)
    return Link("nvlink", gpu.nccl_ring_gbs, gpu.capability)


# --------------------------------------------------------------------------------------------------- predictors


# NCCL 2.28, src/graph/tuning.cc: rings on one node with the protocols LL, LL128, Simple. Latencies in us.
_BASE_US: Final = (6.6, 14.0, 8.4)
_HOP_US: Final = {"nvlink": (0.6, 1.9, 3.4), "pcie": (1.0, 2.5, 5.7)}
_SHARE: Final = (0.5, 0.92, 1.0)  # of the ring's bandwidth
_LL_CAP_GBS: Final = ((10.0, 282.0), (9.0, 141.0), (8.0, 87.7), (0.0, 39.0))  # from this compute capability on
_LL128_FROM: Final = 7.0  # and on NVLink alone


def model_ns(way: Link, op: str, group_size: int, nbytes: Floats) -> Floats:
    """Time on one node by NCCL's own tuning model: a ring, with the fastest of the protocols LL, LL128 and Simple.

    Each takes base + hops x hop latency + bytes x wires / bandwidth: 2 (n - 1) hops and as many n-ths of the bytes for
    all_reduce, n - 1 for all_gather and reduce_scatter; one hop and all bytes, in a pipeline, for broadcast and reduce.

    Left out: trees, which in this model gain at most 1 % on one node; what limits single channels, which no entry of
    the table reaches; NVLS, the reduction in the switch, which serves all_reduce on more than 4 GPUs of a Hopper or
    Blackwell node from 2 MiB on. Against the measured curves of 8 GPUs the mean error is 14 % (H100, 30 % at most),
    18 % (H200, 39 %) and 25 % (B200, 58 %): too long for large messages, for want of NVLS, too short for small ones
    (on a B200 up to 256 MiB).

    NaN for ops that NCCL does not model: point-to-point and what is made of it.
    """
    if op not in _MODELLED:
        return np.full(len(nbytes), np.nan)
    hops = {"all_reduce": 2 * (group_size - 1), "all_gather": group_size - 1, "reduce_scatter": group_size - 1}.get(op)
    moved = nbytes * (hops / group_size if hops else 1)
    cap_gbs = next(cap for since, cap in _LL_CAP_GBS if way.capability >= since)
    rings = zip(_BASE_US, _HOP_US[way.kind], _SHARE, (cap_gbs, np.inf, np.inf), strict=True)
    ways = [
        (base_us + (hops or 1) * hop_us) * 1e3 + moved / min(share * way.ring_gbs, most_gbs)
        for base_us, hop_us, share, most_gbs in rings
    ]
    has_ll128 = way.kind == "nvlink" and way.capability >= _LL128_FROM
    fastest: Floats = np.min(ways if has_ll128 else ways[::2], axis=0)
    return fastest


_MODELLED: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})


def curve_ns(curve: Mapping[float, float], group_size: int, nbytes: Floats) -> Floats:
    """Time of an all_reduce read off a measured curve (MiB -> bus bandwidth in GB/s).

    Interpolated as a power of the size between two points. Below the smallest size its time, above the largest its
    bandwidth. A point that is left out of the table's curves comes back within 22 % (H100), 14 % (H200), 46 % (B200).
    How well a curve of one machine holds for another is not known.
    """
    size = np.array(list(curve)) * (1 << 20)
    moved = 2 * (group_size - 1) / group_size * size
    curve_times = moved / np.array(list(curve.values()))
    between = np.exp(np.interp(np.log(np.maximum(nbytes, size[0])), np.log(size), np.log(curve_times)))
    times: Floats = np.where(nbytes > size[-1], curve_times[-1] * nbytes / size[-1], between)
    return times


def curve_of(gpu: Gpu | None, op: str, group_size: int, nodes: int | None) -> Mapping[float, float] | None:
    """The measured curve of that group on so many nodes; those of the table were measured on nodes of eight."""
    if gpu is None or op != "all_reduce" or nodes != -(-group_size // _BOARD):
        return None
    return gpu.all_reduce_curves.get(group_size) or None


# ----------------------------------------------------------------------------------------------------- together

_EXPECTED: Final[Schema] = {
    "expected_ns": pl.Float64,
    "basis": pl.String,
    "link": pl.String,
    "link_gbs": pl.Float64,
    "why": pl.String,
}


def expected(collectives: pl.DataFrame, gpu: Gpu | None, devices: int | None) -> pl.DataFrame:
    """What each collective should take if no rank were late and nothing else used the links.

    `collectives` have `op`, `group_size`, `bytes`, and `spans_nodes` and `nodes` as `placement` tells them; all ranks
    use the GPU, of which a host shows so many. One row per collective, in order: `expected_ns`, with its `basis`,
    `CURVE` where there is one, or `MODEL`; `link`, nvlink or pcie, and the bus bandwidth that it allows rings,
    `link_gbs`; `why`, the reason where nothing is known. A group that spans nodes, or may, has a curve or nothing: its
    network is not in the profile.
    """
    case = ["op", "group_size", "spans_nodes", "nodes"]
    rows = collectives.select(pl.col("op").cast(pl.String), *case[1:], "bytes").with_row_index("row")
    parts = [
        _expectation(key, rows_of["bytes"], gpu, devices).hstack(rows_of.select("row"))
        for key, rows_of in rows.group_by(case, maintain_order=True)
    ]
    return pl.concat(parts).sort("row").drop("row") if parts else pl.DataFrame(schema=_EXPECTED)


def _expectation(case: tuple[Any, ...], nbytes: pl.Series, gpu: Gpu | None, devices: int | None) -> pl.DataFrame:
    """As `expected`; `case` is op, group_size, spans_nodes, nodes, each None where it is not known."""
    op, n, spans_nodes, nodes = case[0] or "", case[1] or 0, *case[2:]
    size = nbytes.cast(pl.Float64).fill_null(np.nan).to_numpy()
    size = np.where(size >= 0, size, np.nan)
    refused = {
        "operation_unknown": op not in COLLECTIVES,
        "barrier": op == "barrier",
        "group_size_unknown": case[1] is None,
        "group_of_one": n <= 1,
        "placement_unknown": spans_nodes is None,
        "spans_nodes": spans_nodes,
    }
    unknown = next((Missing(code) for code, holds in refused.items() if holds), None)
    way = unknown or link(gpu, n, devices)
    best = model_ns(way, op, n, size) if isinstance(way, Link) else np.full(len(size), np.nan)
    if curve := curve_of(gpu, op, n, nodes):
        measured = curve_ns(curve, n, size)
        best = np.where(np.isnan(measured), best, measured)
    why = way if isinstance(way, Missing) else _NO_SIZE if op in _MODELLED else Missing("no_point_to_point_model")
    known = pl.col("expected_ns").is_not_null()
    return (
        pl.DataFrame({"expected_ns": best})
        .fill_nan(None)
        .with_columns(
            basis=pl.when(known).then(pl.lit(CURVE if curve else MODEL)),
            link=pl.lit(way.kind if isinstance(way, Link) else None, pl.String),
            link_gbs=pl.lit(way.ring_gbs if isinstance(way, Link) else None, pl.Float64),
            why=pl.when(~known).then(pl.lit((_NO_SIZE if curve else why).encoded)),
        )
    )


_NO_SIZE: Final = Missing("no_size")


SENDER: Final = pl.when(pl.col("op") == "send").then("worker").otherwise("peer")
RECEIVER: Final = pl.when(pl.col("op") == "send").then("peer").otherwise("worker")
"""The numbers of the ranks at the two ends of a message."""
_PAIR: Final = 2  # stages of a pipeline that train send both ways too


def islands(members: Iterable[int], meetings: Iterable[Iterable[int]]) -> list[list[int]]:
    """The members by whom they meet, directly or through others, ascending."""
    home = {member: {member} for member in members}
    for met in meetings:
        joined = set[int]().union(*(home[member] for member in met))
        home |= dict.fromkeys(joined, joined)
    return [list(island) for island in sorted({tuple(sorted(island)) for island in home.values()})]


def between_stages(calls: pl.DataFrame) -> pl.Series:
    """Whether each call is a send or receive that goes around no ring.

    In a ring each of three ranks or more of a group sends to one and receives from another: so context parallelism
    passes keys and values on (Ring Attention, arXiv 2310.01889). A pipeline ends at its first stage and its last.
    """
    key, message = ["group", "ranks", "worker"], pl.col("op").is_in(POINT_TO_POINT).fill_null(value=False)
    messages = calls.filter(message, pl.col("peer").is_not_null())
    messages = messages.select(*key, sender=SENDER, receiver=RECEIVER).unique()
    rings = [messages.clear()]
    for _, of_group in messages.group_by("group", "ranks"):
        pairs = of_group.select("sender", "receiver").unique().rows()
        for island in islands({end for pair in pairs for end in pair}, pairs):
            if len(island) > _PAIR and sorted(sender for sender, _ in pairs if sender in island) == island:
                rings += [of_group.filter(pl.col("worker").is_in(island))]
    around = pl.concat(rings).select(*key, around=True).unique()
    rows = calls.select(*key, "op").join(around, on=key, how="left", nulls_equal=True, maintain_order="left")
    return rows.select(message & pl.col("around").is_null()).to_series()
