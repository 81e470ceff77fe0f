from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analysis.job import network
from advisor.analysis.job.network import Link
from advisor.inputs.hardware import Gpu, match, table
from advisor.inputs.names.kernels import COLLECTIVES
from advisor.model.clause import Missing

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def gpu(name: str, **facts: Any) -> Gpu:
    found = match(name, **facts)
    assert found is not None
    return found


H100, H200, B200 = gpu("NVIDIA H100 80GB HBM3"), gpu("NVIDIA H200"), gpu("NVIDIA B200")
A100, V100, T4 = gpu("NVIDIA A100-SXM4-80GB"), gpu("Tesla V100-SXM2-16GB"), gpu("Tesla T4")
A100_PCIE = gpu("NVIDIA A100 80GB PCIe")
LINKS = [way for one in table() for n in (2, 8) for way in [network.link(one, n, 8)] if isinstance(way, Link)]


def linked(one: Gpu, group_size: int, devices: int = 8) -> Link:
    way = network.link(one, group_size, devices)
    assert isinstance(way, Link)
    return way


def expected(
    one: Gpu | None, op: str | None, group_size: int | None, *sizes: int | None, nodes: int | None = 1, devices: int = 8
) -> list[dict[str, Any]]:
    spans = None if nodes is None else nodes > 1
    rows = [{"op": op, "group_size": group_size, "bytes": size, "spans_nodes": spans, "nodes": nodes} for size in sizes]
    schema = {"op": pl.String, "group_size": pl.Int32, "bytes": pl.Int64, "spans_nodes": pl.Boolean, "nodes": pl.Int32}
    return network.expected(pl.DataFrame(rows, schema=schema), one, devices).to_dicts()


# --------------------------------------------------------------------------------------------------- bandwidth


@pytest.mark.parametrize(
    ("op", "of_two", "of_eight"),
    [
        ("all_reduce", 1, 1.75),
        ("all_gather", 0.5, 0.875),
        ("reduce_scatter", 0.5, 0.875),
        ("all_to_all", 0.5, 0.875),
        ("gather", 0.5, 0.875),
        ("scatter", 0.5, 0.875),
        ("broadcast", 1, 1),
        ("reduce", 1, 1),
        ("send", 1, 1),
        ("recv", 1, 1),
        ("send_recv", 1, 1),
        ("barrier", None, None),
        ("nonsense", None, None),
        (None, None, None),
    ],
)
def test_bus_over_algorithm_bandwidth_as_nccl_tests_has_it(op: str | None, of_two: float, of_eight: float):
    frame = pl.DataFrame({"op": [op] * 4, "n": [2, 8, 1, 0]}, schema_overrides={"op": pl.Categorical})
    factors = frame.select(network.bus_factor(pl.col("op"), pl.col("n"))).to_series()
    assert factors.to_list() == [of_two, of_eight, None, None]


def test_every_operation_has_a_factor_but_the_barrier():
    frame = pl.DataFrame({"op": COLLECTIVES, "n": 2})
    without = frame.filter(network.bus_factor(pl.col("op"), pl.col("n")).is_null())
    assert without["op"].to_list() == ["barrier"]


def test_a_transfer_has_its_factor_whatever_the_group():
    frame = pl.DataFrame({"op": ["send", "all_reduce"], "n": [None, None]}, schema={"op": pl.String, "n": pl.Int32})
    assert frame.select(network.bus_factor(pl.col("op"), pl.col("n"))).to_series().to_list() == [1, None]


def test_bandwidth_of_the_published_h100_times():
    """nccl-tests on 8 H100s: 16 GiB in 62648 us, which it calls 274.2 and 479.9 GB/s."""
    frame = pl.DataFrame({"op": ["all_reduce"], "n": [8], "bytes": [16 * GIB], "dur_ns": [62_648_000]})
    op, size, nbytes, dur = (pl.col(name) for name in frame.columns)
    made = frame.select(a=nbytes / dur, b=nbytes / dur * network.bus_factor(op, size))
    assert made.row(0) == (pytest.approx(274.2, abs=0.05), pytest.approx(479.9, abs=0.05))


# -------------------------------------------------------------------------------------------------------- ranks


def placed(text: str | None, size: int | None, devices: int | None = 8) -> tuple[Any, ...]:
    ranks, sizes = pl.Series([text], dtype=pl.String), pl.Series([size], dtype=pl.Int32)
    return network.placement(ranks, sizes, devices).row(0)


@pytest.mark.parametrize(
    ("text", "size", "told"),
    [
        ("[0, 1, 2, 3]", 4, ([0, 1, 2, 3], False, 1)),
        ("[0,1]", 2, ([0, 1], False, 1)),
        ("[ 8, 15 ]", 2, ([8, 15], False, 1)),
        ("[7, 8]", 2, ([7, 8], True, 2)),
        ("[0, 8, 16, 24]", 4, ([0, 8, 16, 24], True, 4)),
        ("[24, 0]", 2, ([24, 0], True, 2)),
        ("[3]", None, ([3], False, 1)),
        # Cut after 30, as older versions do: nothing says how it goes on.
        (f"[{', '.join(map(str, range(30)))}, ...]", 64, (None, True, None)),
        ("[0, 1, ...]", 3, (None, None, None)),
        # Cut with the last one kept: completed where only one evenly spaced list fits.
        ("[0, 1, 2, ..., 63]", 64, (list(range(64)), True, 8)),
        ("[1, 3, 5, ..., 13]", 7, ([1, 3, 5, 7, 9, 11, 13], True, 2)),
        ("[0, 1, 2, ..., 63]", 40, (None, True, None)),
        ("[0, 1, 3, ..., 7]", 6, (None, None, None)),
        ("[0, 1, ..., 2147483]", 2**31 - 1, (None, True, None)),
        ("[]", 8, (None, None, None)),
        ("", 8, (None, None, None)),
        (None, 8, (None, None, None)),
        ("[0, 1", 2, (None, None, None)),
        ("[0, -1]", 2, (None, None, None)),
        ("[0; 1]", 2, (None, None, None)),
        ("[0, 99999999999999999999]", 2, (None, None, None)),
        ("[...]", 2, (None, None, None)),
    ],
)
def test_where_a_group_lies(text: str | None, size: int | None, told: tuple[Any, ...]):
    assert placed(text, size) == told


@pytest.mark.parametrize("devices", [None, 0, 1])
def test_a_recording_that_shows_one_device_does_not_tell_the_nodes(devices: int | None):
    assert placed("[0, 1]", 2, devices) == ([0, 1], None, None)


def test_rows_keep_their_order_and_number():
    ranks = pl.Series(["[0, 8]", None, "[0, 1]", "[0, 8]", "[0, 1]"])
    made = network.placement(ranks, pl.Series([2, None, 2, 2, 2]), 8)
    assert made["nodes"].to_list() == [2, None, 1, 2, 1]
    assert network.placement(ranks.clear(), pl.Series([], dtype=pl.Int32), 8).shape == (0, 3)


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=60, unique=True),
    st.integers(2, 16),
    st.sampled_from(["whole", "first 30", "first 29 and last"]),
)
def test_any_list_is_read_back_or_said_to_be_cut(ranks: list[int], devices: int, form: str):
    shown = [str(rank) for rank in ranks]
    if form != "whole" and len(ranks) > 30:
        shown = [*shown[:30], "..."] if form == "first 30" else [*shown[:29], "...", shown[-1]]
    read, spans, nodes = placed(f"[{', '.join(shown)}]", len(ranks), devices)
    truth = len({rank // devices for rank in ranks})
    assert read in (ranks, None)
    assert spans in (truth > 1, None)
    assert nodes in (truth, None)
    if form == "whole":
        assert read == ranks


@given(st.text(alphabet="[]0123456789,. ", max_size=40), st.none() | st.integers(-5, 2**31 - 1))
def test_any_text_is_answered(text: str, size: int | None):
    read, _, _ = placed(text, size)
    assert read is None or all(rank >= 0 for rank in read)


# -------------------------------------------------------------------------------------------------------- links


@pytest.mark.parametrize(
    ("one", "group_size", "devices", "kind", "ring_gbs"),
    [
        (H100, 8, 8, "nvlink", 370.8),
        (H100, 2, 8, "nvlink", 370.8),
        (A100, 4, 4, "nvlink", 240),
        (V100, 8, 8, "nvlink", 120),
        (T4, 4, 4, "pcie", 12),
        (A100_PCIE, 2, 8, "pcie", 24),  # a bridge may be there or not
    ],
)
def test_what_joins_a_group(one: Gpu, group_size: int, devices: int, kind: str, ring_gbs: float):
    way = linked(one, group_size, devices)
    assert (way.kind, way.ring_gbs) == (kind, ring_gbs)


@pytest.mark.parametrize(
    ("one", "group_size", "devices", "why"),
    [
        (None, 8, 8, "which GPU"),
        (V100, 4, 8, "wired pair by pair"),
        (A100, 2, 4, "wired pair by pair"),
        (gpu("Tesla V100-DGXS-32GB"), 8, 8, "has no ring bandwidth"),
        (gpu("AMD Instinct MI250X"), 8, 8, "has no ring bandwidth"),
        (gpu("NVIDIA GeForce RTX 4090"), 2, 2, "GeForce"),
        (gpu("NVIDIA H100"), 8, 8, "which variant of the H100"),
    ],
)
def test_what_joins_a_group_is_not_guessed(one: Gpu | None, group_size: int, devices: int, why: str):
    way = network.link(one, group_size, devices)
    assert isinstance(way, Missing)
    assert why in way.words


@pytest.mark.parametrize(("group_size", "devices"), [(2, 2), (2, 4), (4, 8), (8, 8), (16, 16), (8, None)])
def test_every_gpu_has_a_link_or_a_reason_on_one_line(group_size: int, devices: int | None):
    for one in table():
        way = network.link(one, group_size, devices)
        if isinstance(way, Missing):
            assert way.words, one.id
            assert "\n" not in way.words, one.id
        else:
            assert way.ring_gbs > 0, one.id


@pytest.mark.parametrize(("n", "ring"), [(8, 336.0), (4, 144.0), (2, 48.0)])
def test_on_a_meshed_board_a_group_has_the_links_among_its_members(n: int, ring: float) -> None:
    way = linked(gpu("AMD Instinct MI300X"), n)
    assert way.ring_gbs == pytest.approx(ring)


def test_the_mesh_of_an_mi300x_node_comes_near_its_measured_bandwidth() -> None:
    one = gpu("AMD Instinct MI300X")
    size = np.array([16.0 * GIB])
    reached = 1.75 * size / network.model_ns(linked(one, 8), "all_reduce", 8, size)
    assert reached[0] == pytest.approx(312.9, rel=0.1)
    assert linked(one, 2).ring_gbs == pytest.approx(47.7, rel=0.1)


@pytest.mark.parametrize("name", ["NVIDIA L40S", "NVIDIA L4", "NVIDIA A10", "Tesla T4"])
def test_boards_without_a_link_of_their_own_use_pcie(name: str) -> None:
    assert linked(gpu(name), 4).kind == "pcie"


# --------------------------------------------------------------------------------------------------- predictors


@pytest.mark.parametrize(
    ("one", "op", "group_size", "nbytes", "ns"),
    [
        (H100, "all_reduce", 8, 8, (6.6 + 14 * 0.6) * 1e3 + 1.75 * 8 / 141),  # LL at Hopper's cap
        (H100, "all_reduce", 8, 8 * MIB, (14 + 14 * 1.9) * 1e3 + 1.75 * 8 * MIB / (0.92 * 370.8)),  # LL128
        (H100, "all_reduce", 8, GIB, (8.4 + 14 * 3.4) * 1e3 + 1.75 * GIB / 370.8),  # Simple
        (A100, "all_gather", 4, 64 * KIB, (6.6 + 3 * 0.6) * 1e3 + 0.75 * 64 * KIB / 87.7),  # LL at Ampere's cap
        (A100, "reduce_scatter", 8, GIB, (8.4 + 7 * 3.4) * 1e3 + 0.875 * GIB / 240),
        (H100, "broadcast", 8, MIB, (8.4 + 3.4) * 1e3 + MIB / 370.8),  # LL would take 14.637 us
        (H100, "reduce", 8, 4 * KIB, (6.6 + 0.6) * 1e3 + 4 * KIB / 141),
        (V100, "all_reduce", 8, 4 * KIB, (6.6 + 14 * 0.6) * 1e3 + 1.75 * 4 * KIB / 39),
        (T4, "all_reduce", 2, KIB, (6.6 + 2 * 1.0) * 1e3 + KIB / 6),  # LL at half of PCIe
        (T4, "reduce_scatter", 4, 16 * MIB, (8.4 + 3 * 5.7) * 1e3 + 0.75 * 16 * MIB / 12),  # no LL128 over PCIe
    ],
)
def test_the_model_takes_the_fastest_protocol(one: Gpu, op: str, group_size: int, nbytes: int, ns: float):
    way = linked(one, group_size)
    assert network.model_ns(way, op, group_size, np.array([float(nbytes)])) == pytest.approx([ns])


def test_the_models_latency_alone_where_nothing_is_moved():
    assert network.model_ns(linked(H100, 8), "all_reduce", 8, np.zeros(1)) == pytest.approx([15_000])


@pytest.mark.parametrize(
    ("one", "mean", "most"), [(H100, 0.14, 0.30), (H200, 0.18, 0.40), (B200, 0.25, 0.58)], ids=lambda x: str(x)[:12]
)
def test_the_model_is_as_far_from_the_measured_curves_as_its_docs_say(one: Gpu, mean: float, most: float):
    curve = one.all_reduce_curves[8]
    sizes = np.array(list(curve)) * MIB
    measured = 1.75 * sizes / np.array(list(curve.values()))
    error = np.abs(network.model_ns(linked(one, 8), "all_reduce", 8, sizes) / measured - 1)
    assert (error.mean(), error.max()) == (pytest.approx(mean, abs=0.005), pytest.approx(most, abs=0.01))


CURVE = {1: 10.0, 4: 20.0, 16: 80.0}  # of two ranks: 104.858, 209.715 and 209.715 us


@pytest.mark.parametrize(
    ("mib", "us"),
    [
        (1, 104.858),
        (4, 209.715),
        (16, 209.715),
        (2, 148.291),  # half way in logarithms: the geometric mean
        (8, 209.715),
        (0.5, 104.858),  # below the smallest size its time
        (0, 104.858),
        (64, 838.861),  # above the largest its bandwidth
    ],
)
def test_a_curve_is_read_between_its_points_and_not_beyond(mib: float, us: float):
    assert network.curve_ns(CURVE, 2, np.array([mib * MIB])) / 1e3 == pytest.approx([us], abs=0.001)


def test_a_curve_serves_its_own_group_alone():
    assert network.curve_of(H100, "all_reduce", 8, 1)
    assert network.curve_of(B200, "all_reduce", 32, 4)
    asked = [(H100, "all_gather", 8, 1), (H100, "all_reduce", 4, 1), (H100, "all_reduce", 8, 2), (A100, "x", 8, 1)]
    asked += [(B200, "all_reduce", 32, 32), (B200, "all_reduce", 32, None), (None, "all_reduce", 8, 1)]
    assert [network.curve_of(*one) for one in asked] == [None] * len(asked)


SIZES = st.lists(st.floats(0, 2.0**45), min_size=1, max_size=20).map(sorted)


@given(st.sampled_from(LINKS), st.sampled_from(COLLECTIVES), st.integers(2, 64), SIZES)
def test_time_grows_with_bytes_and_no_link_is_outrun(way: Link, op: str, group_size: int, sizes: list[float]):
    nbytes = np.array(sizes)
    taken = network.model_ns(way, op, group_size, nbytes)
    if np.isnan(taken).all():
        assert op in {"all_to_all", "gather", "scatter", "send", "recv", "send_recv", "barrier"}
        return
    assert (np.diff(taken) >= 0).all()
    assert (taken >= network.model_ns(way, op, group_size, np.zeros(1))).all()
    frame = pl.DataFrame({"op": op, "n": group_size, "bytes": nbytes, "dur_ns": taken})
    bus = frame.select(pl.col("bytes") / pl.col("dur_ns") * network.bus_factor(pl.col("op"), pl.col("n"))).to_series()
    assert (bus.drop_nulls() <= way.ring_gbs).all()


@given(st.sampled_from([one for one in table() if one.all_reduce_curves]), SIZES)
def test_along_a_measured_curve_too(one: Gpu, sizes: list[float]):
    nbytes = np.array(sizes)
    for group_size, curve in one.all_reduce_curves.items():
        taken = network.curve_ns(curve, group_size, nbytes)
        assert (np.diff(taken) >= -1e-6 * taken[1:]).all()
        assert (taken >= network.curve_ns(curve, group_size, np.zeros(1)) * (1 - 1e-9)).all()


# ----------------------------------------------------------------------------------------------------- together


def test_the_curve_comes_before_the_model():
    (row,) = expected(H100, "all_reduce", 8, GIB)
    assert (row["basis"], row["link"], row["why"]) == (network.CURVE, "nvlink", None)
    assert row["expected_ns"] == pytest.approx(4_029_000, rel=0.005)
    assert row["expected_ns"] < network.model_ns(linked(H100, 8), "all_reduce", 8, np.array([GIB]))[0]


def test_without_a_curve_the_model_is_named():
    (row,) = expected(A100, "all_gather", 8, GIB)
    assert row["basis"] == network.MODEL
    assert row["expected_ns"] == network.model_ns(linked(A100, 8), "all_gather", 8, np.array([GIB]))[0]


def test_across_nodes_only_what_was_measured_across_nodes():
    (row,) = expected(B200, "all_reduce", 32, GIB, nodes=4)
    assert (row["basis"], row["link"]) == (network.CURVE, None)
    assert row["expected_ns"] == pytest.approx(2 * 31 / 32 * GIB / 362)
    (row,) = expected(B200, "all_reduce", 32, GIB, nodes=32)
    assert row["expected_ns"] is None
    assert Missing.decoded(row["why"]).code == "spans_nodes"


@pytest.mark.parametrize(
    ("one", "case", "why"),
    [
        (None, ("all_reduce", 8, MIB, 1), "which GPU"),
        (H100, (None, 8, MIB, 1), "operation is unknown"),
        (H100, ("nonsense", 8, MIB, 1), "operation is unknown"),
        (H100, ("barrier", 8, None, 1), "barrier"),
        (H100, ("all_reduce", None, MIB, 1), "size of the group"),
        (H100, ("all_reduce", 1, MIB, 1), "group of one"),
        (H100, ("all_reduce", 8, MIB, None), "on one node"),
        (H100, ("all_reduce", 16, MIB, 2), "spans nodes"),
        (H100, ("all_reduce", 8, None, 1), "has no size"),
        (A100, ("all_reduce", 8, None, 1), "has no size"),
        (A100, ("all_reduce", 8, -1, 1), "has no size"),
        (H100, ("all_to_all", 8, MIB, 1), "no model"),
        (H100, ("send", 2, MIB, 1), "no model"),
        (V100, ("all_reduce", 4, MIB, 1), "pair by pair"),
    ],
)
def test_what_cannot_be_told_has_a_reason(one: Gpu | None, case: tuple[Any, ...], why: str):
    op, group_size, nbytes, nodes = case
    (row,) = expected(one, op, group_size, nbytes, nodes=nodes)
    assert (row["expected_ns"], row["basis"]) == (None, None)
    assert why in Missing.decoded(row["why"]).words


def test_a_size_that_is_missing_leaves_the_others_alone():
    rows = expected(H100, "all_reduce", 8, GIB, None, 0)
    assert [row["expected_ns"] is None for row in rows] == [False, True, False]
    assert rows[2]["expected_ns"] == pytest.approx(16_900, rel=0.005)


def test_rows_of_many_cases_keep_their_order():
    rows = pl.DataFrame(
        {
            "op": ["all_reduce", "broadcast", "all_reduce", "barrier"],
            "group_size": [8, 4, 8, 8],
            "bytes": [GIB, MIB, 2 * GIB, None],
            "spans_nodes": False,
            "nodes": 1,
        },
        schema_overrides={"op": pl.Categorical},
    )
    made = network.expected(rows, H100, 8)
    assert made["basis"].to_list() == [network.CURVE, network.MODEL, network.CURVE, None]
    first, _, third, _ = made["expected_ns"]
    assert third == pytest.approx(2 * first, rel=0.02)
    assert network.expected(rows.clear(), H100, 8).schema == made.schema
