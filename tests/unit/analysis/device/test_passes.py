"""Forward passes of recordings without marks: told by kernels that only they have, or not at all."""

from __future__ import annotations

from itertools import count

import pytest

from advisor.analysis.device.workload import passes
from tests.tables import Row, kernel, on_device, on_host, profile, view

CACHE = "vllm::reshape_and_cache_flash_kernel"
EITHER = "flash::flash_fwd_splitkv_kernel"
DECODE = "flashinfer::BatchDecodeWithPagedKVCacheKernel"
PREFILL = "flashinfer::BatchPrefillWithRaggedKVCacheKernel"
SAMPLE = "at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float> > >"


def run(*steps: list[str], replayed: tuple[str, ...] = (), copies: bool = True) -> list[Row]:
    """Kernels of these names, 10 us apart, and after each step a copy to the host; those of `replayed` by graphs."""
    clock, rows = count(10, 10), list[Row]()
    for names in steps:
        for name in names:
            at = next(clock)
            op = kernel(at, at + 8, at - 1, name=name)
            call = "cudaGraphLaunch" if name in replayed else "cudaLaunchKernel"
            rows.append(op | {"call": op["call"] | {"name": call}})
        if copies:
            at = next(clock)
            rows.append(on_device("memcpy", at, at + 1, at - 1, copy_kind="DtoH"))
    return rows


def layers(attention: str, number: int = 2) -> list[str]:
    return ["gemm", CACHE, attention] * number + ["gemm", SAMPLE]


def phases(device: list[Row], host: list[Row] | None = None) -> list[str]:
    return passes(view(profile(device, host or [])))["phase"].to_list()


def test_attention_names_the_phases():
    both = ["gemm", CACHE, DECODE, CACHE, PREFILL, "gemm", SAMPLE]
    steps = [layers(PREFILL), layers(DECODE), layers(DECODE), both, layers(DECODE), layers(DECODE)]
    assert phases(run(*steps)) == ["prefill", "decode", "decode", "mixed", "decode", "decode"]


def test_graphs_that_write_to_the_cache_decode():
    steps = [layers(EITHER)] * 4
    assert phases(run(*steps, replayed=(CACHE, EITHER))) == ["decode"] * 4
    assert phases(run(*steps)) == []  # kernels of either phase, launched one by one


def test_a_pass_whose_kernels_show_no_phase_has_no_name():
    eager = [name.replace("vllm", "acme") for name in layers(EITHER)]
    assert phases(run(layers(DECODE), layers(DECODE), eager, layers(DECODE))) == [
        "decode",
        "decode",
        "unnamed",
        "decode",
    ]


def test_a_pass_lasts_until_its_tokens_are_on_the_host():
    rows = passes(view(profile(run(*[layers(DECODE)] * 3))))
    # each has 8 kernels and a copy, 10 us apart; calls take 1 us
    assert rows["start_ns"].to_list() == [8_000, 98_000, 188_000]
    assert rows["end_ns"].to_list() == [89_000, 179_000, 269_000]


@pytest.mark.parametrize(
    "steps",
    [
        [layers(DECODE)] * 2,  # too few
        [layers(DECODE, 1)] * 5,  # a sampler in each layer looks alike
        [layers(DECODE, 2), layers(DECODE, 3), layers(DECODE, 4), layers(DECODE, 5), layers(DECODE, 6)],
        [["gemm", CACHE, DECODE] * 2] * 4,  # nothing chooses tokens
        [["gemm", SAMPLE]] * 4,  # nothing attends
    ],
    ids=["few", "one layer", "other models", "no sampler", "no attention"],
)
def test_what_proves_no_passes_tells_none(steps: list[list[str]]):
    assert phases(run(*steps, copies=False)) == []


def test_a_classifier_in_graphs_writes_no_tokens():
    steps = [["gemm", EITHER, "gemm", EITHER, "gemm", SAMPLE]] * 5
    assert phases(run(*steps, replayed=("gemm", EITHER, SAMPLE))) == []


def test_about_as_many_prefills_as_decode_steps_may_check_drafts():
    assert phases(run(*[layers(DECODE), layers(PREFILL)] * 4)) == ["decode", "unnamed"] * 4


@pytest.mark.parametrize(
    ("queries", "keys", "expected"), [(1, 90, ["decode"] * 3), (90, 90, []), (1, 1, [])], ids=["one", "all", "no cache"]
)
def test_shapes_of_attention_show_one_query_for_each_sequence(queries: int, keys: int, expected: list[str]):
    name = "aten::_scaled_dot_product_flash_attention"
    shapes = f"[[4, 8, {queries}, 64], [4, 8, {keys}, 64], [4, 8, {keys}, 64]]"
    device = [op | ({"op": 0} if op["name"] == EITHER else {}) for op in run(*[["gemm", EITHER] * 2 + [SAMPLE]] * 3)]
    host = [on_host("op", 0, 1, name=name, shapes=shapes)]
    rows = passes(view(profile(device, host)))
    assert rows["phase"].to_list() == expected
    assert rows["requests"].to_list() == rows["tokens"].to_list() == [4] * len(expected)
