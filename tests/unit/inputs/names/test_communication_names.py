"""Which kernels communicate, by names of public sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from advisor.inputs.names.calls import host_kinds
from advisor.inputs.names.kernels import collective_op, family

BOOK: dict[str, Any] = yaml.load(
    Path(__file__).with_name("communication_names.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)


def _families(names: list[str]) -> list[str]:
    return family(pl.Series(names)).to_list()


@pytest.mark.parametrize("library", BOOK["libraries"])
def test_kernels_of_every_library_are_communication(library: str) -> None:
    names = BOOK["libraries"][library]["names"]
    assert len(names) >= 3
    assert dict(zip(names, _families(names), strict=True)) == dict.fromkeys(names, "collective")


@pytest.mark.parametrize("library", BOOK["fused"])
def test_products_with_their_exchange_are_a_class_of_their_own(library: str) -> None:
    names = BOOK["fused"][library]["names"]
    assert len(names) >= 3
    assert dict(zip(names, _families(names), strict=True)) == dict.fromkeys(names, "fused_collective")


def test_kernels_that_only_resemble_communication_are_not() -> None:
    names = BOOK["resembling"]
    assert len(names) >= 40
    misjudged = [n for n, of in zip(names, _families(names), strict=True) if "collective" in of]
    assert misjudged == []


@pytest.mark.parametrize("library", BOOK["host"])
def test_ranges_of_libraries_that_communicate_on_the_host(library: str) -> None:
    names = BOOK["host"][library]["names"]
    frame = pl.DataFrame({"name": names})
    kinds = frame.select(kind=host_kinds(pl.lit("op"), pl.col("name")))["kind"]
    assert kinds.to_list() == ["collective"] * len(names)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "all_to_all"),
        ("void dpsk::ep::internode::combine_ll<3, 10, 7168, 9>(void*)", "all_to_all"),
        ("void dpsk::ep::internode::cached_notify<false>(int)", "barrier"),
        ("void deep_ep::intranode::notify_dispatch<8>(int const*)", "barrier"),
        ("hybrid_ep::device_sync_kernel(unsigned int*)", "barrier"),
        ("void a2a_dispatch_send_kernel<true>(unsigned long)", "all_to_all"),
        ("void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)", "all_reduce"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", None),
    ],
)
def test_what_a_kernel_of_an_exchange_does(name: str, op: str | None) -> None:
    assert collective_op(pl.Series([name])).to_list() == [op]
