from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal, assert_series_equal

from advisor.inputs.names import kernels

TABLE: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("kernel_names.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
NAMES = pl.Series("name", [row["name"] for row in TABLE], pl.String)
COLUMNS = ["family", "multiplies", "tensor_cores", "element_type", "alignment", "library", "generation", "collective"]

# Strings of what the patterns look for, so that random names come close to real ones.
LIKELY_NAME = st.from_regex(
    r"(void |at::native::|\(anonymous namespace\)::|<|>|\(|\)|_|gemm|s1688|align|8|Cijk_|nccl|umma|sgemm|<float|bf16"
    r"|nvjet_|_MI16x16x1|flash_fwd|cutlass::|std::enable_if<|>::type ){,8}",
    fullmatch=True,
)
ANY_NAME = st.one_of(st.none(), st.text(), LIKELY_NAME)


def _classify(names: list[str | None]) -> pl.DataFrame:
    return kernels.classify(pl.Series(names, dtype=pl.String))


def _verdict(row: dict[str, Any]) -> str:
    if not row["multiplies"]:
        return "not_candidate"
    return {True: "used", False: "unused", None: "unknown"}[row["tensor_cores"]]


def test_every_name_of_the_table_gets_the_verdict_written_by_hand() -> None:
    got = [
        (row["name"], _verdict(row), row["family"], row["element_type"], row["alignment"])
        for row in kernels.classify(NAMES).iter_rows(named=True)
    ]
    by_hand = [
        (row["name"], row["tensor_cores"], row["family"], row.get("type"), row.get("alignment")) for row in TABLE
    ]
    assert [pair for pair in zip(got, by_hand, strict=True) if pair[0] != pair[1]] == []


def test_the_table_covers_every_family_and_verdict_and_the_main_devices() -> None:
    assert len(TABLE) == NAMES.n_unique() >= 120
    assert {row["family"] for row in TABLE} == set(kernels.FAMILIES.categories)
    assert {row["tensor_cores"] for row in TABLE} == {"used", "unused", "unknown", "not_candidate"}
    assert {row.get("device") for row in TABLE} >= {"V100", "A100", "H100", "B200", "MI250", "MI300X"}


def test_a_family_is_that_of_classify() -> None:
    assert_series_equal(kernels.family(NAMES), kernels.classify(NAMES)["family"])


def test_names_beyond_what_is_kept_are_judged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = kernels.classify(NAMES)
    monkeypatch.setattr(kernels, "_MOST_NAMES", 1)
    assert_frame_equal(kernels.classify(NAMES), expected)
    assert_frame_equal(kernels.classify(NAMES), expected)


def test_the_columns_have_the_promised_types() -> None:
    types = kernels.classify(NAMES).select(COLUMNS).dtypes
    assert types == [kernels.FAMILIES, pl.Boolean, pl.Boolean, pl.String, pl.UInt8, *[pl.String] * 3]


@pytest.mark.parametrize("dtype", [pl.String, pl.Null, pl.Categorical])
def test_no_names_give_no_rows(dtype: type[pl.DataType]) -> None:
    assert kernels.classify(pl.Series([], dtype=dtype)).shape == (0, 9)


def test_categorical_names_are_taken_as_text() -> None:
    assert_frame_equal(kernels.classify(NAMES.cast(pl.Categorical)), kernels.classify(NAMES))


@given(st.lists(ANY_NAME, max_size=20))
def test_any_name_is_judged_and_null_stays_null(names: list[str | None]) -> None:
    frame = _classify(names)
    assert frame["name"].to_list() == names
    is_null = pl.col("name").is_null()
    assert frame.filter(~is_null).select("family", "multiplies").null_count().row(0) == (0, 0)
    assert set(frame.filter(is_null).rows()) <= {(None,) * 9}


@given(st.data(), st.lists(ANY_NAME, min_size=1, max_size=12))
def test_a_verdict_depends_neither_on_the_order_nor_on_the_company(
    data: st.DataObject, names: list[str | None]
) -> None:
    verdicts = dict(zip(names, _classify(names).rows(), strict=True))
    kernels._classes.clear()  # noqa: SLF001 - nothing is known from before
    some = data.draw(st.permutations(names))[: data.draw(st.integers(0, len(names)))]
    assert _classify(some).rows() == [verdicts[name] for name in some]


@given(st.lists(ANY_NAME, max_size=20))
def test_only_products_have_an_alignment_and_only_candidates_use_tensor_cores(names: list[str | None]) -> None:
    frame = _classify(names)
    aligned = frame.filter(pl.col("alignment").is_not_null())
    assert set(aligned["family"]) <= {"gemm", "gemv", "convolution", "attention"}
    assert set(frame.filter(~pl.col("multiplies"))["tensor_cores"]) <= {False}


def test_a_row_of_the_table_states_columns_that_there_are() -> None:
    for row in kernels.table():
        assert row.patterns
        assert row.columns.keys() <= set(kernels._COLUMNS), row  # noqa: SLF001
        assert row.columns.get("family", "other") in kernels.FAMILIES.categories
        assert row.columns.get("collective", "send") in kernels.COLLECTIVES
        assert row.columns.get("cores", "tensor") in {"tensor", "ordinary"}


def test_a_new_family_of_kernels_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "nova_kernel<int>(int)"
    assert kernels.classify(pl.Series([name])).row(0)[1:5] == ("other", True, None, None)
    columns = {"family": "gemm", "cores": "tensor", "type": "fp8", "library": "Nova"}
    row = kernels.Row({"own": ("^nova_",)}, columns, "its maker's handbook")
    rows = (row, *kernels.table())
    monkeypatch.setattr(kernels, "table", lambda: rows)
    kernels._classes.clear()  # noqa: SLF001
    got = kernels.classify(pl.Series([name])).row(0, named=True)
    kernels._classes.clear()  # noqa: SLF001
    assert (got["family"], got["tensor_cores"], got["element_type"], got["library"]) == ("gemm", True, "fp8", "Nova")


def test_names_of_two_long_recordings_are_searched_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    search = kernels._searched  # noqa: SLF001
    monkeypatch.setattr(kernels, "_searched", lambda names: searched.append(names.height) or search(names))
    monkeypatch.setattr(kernels, "_MOST_NAMES", 2)
    kernels._classes.clear()  # noqa: SLF001 - nothing is known from before
    for names in (["one", "two", "three"], ["two", "three", "four"]):
        assert [_classify(names)["name"].to_list() for _ in range(3)] == [names] * 3
    assert searched == [3, 1]


def test_an_explanation_names_the_row_that_decides_each_column() -> None:
    reasons = {of.column: of for of in kernels.explanation("nvjet_tst_64x16_64x16_2x4_TNT")}
    assert {column: of.value for column, of in reasons.items()} == {
        "family": "gemm",
        "cores": "tensor",
        "type": "bf16",
        "library": "cuBLAS",
        "generation": "Hopper",
    }
    assert {of.matched for of in reasons.values()} == {(r"nvjet_(?:sm\d+_)?t",)}
    assert all(of.source.startswith("NVIDIA cuBLAS") for of in reasons.values())
    assert kernels.explanation("unheard_of") == []


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("void cusparse::binary_search_partition_kernel<(int)128, (int)2048, int>(const int *)", "cuSPARSE"),
        ("void cusolver::getrf_params_init<double>(int, double *)", "cuSOLVER"),
        ("void regular_fft<(unsigned int)512, (EPT)8>(kernel_arguments_t<unsigned int>)", "cuFFT"),
        ("void my_fft_stage<int>(int *)", None),
    ],
)
def test_kernels_of_numerical_libraries_are_not_the_programs_own(name: str, library: str | None) -> None:
    assert kernels.classify(pl.Series([name]))["library"].to_list() == [library]


@given(st.text() | LIKELY_NAME)
def test_an_explanation_says_what_the_classes_are(name: str) -> None:
    said = {of.column: of.value for of in kernels.explanation(name)}
    row = kernels.classify(pl.Series([name], dtype=pl.String)).row(0, named=True)
    assert row["family"] == said.get("family", "other")
    assert [row[column] for column in ("library", "generation", "collective")] == [
        said.get(column) for column in ("library", "generation", "collective")
    ]


# Shares of the first two: published for these traces with a list of patterns made by others; of the rest: by hand.
@pytest.mark.parametrize(
    ("trace", "used"),
    [
        ("bert-small-h100/trace", 76.5),
        ("vllm-eager-b200/trace", 59.7),
        ("amd-mi250/rank0", 27.3),
        ("resnet50-v100-workers0/worker0.1623143089861", 0.0),
    ],
)
def test_percentage_of_kernel_time_on_tensor_cores_in_real_traces(trace: str, used: float) -> None:
    path = Path(__file__).parents[4].parent / "shared/traces/kineto" / f"{trace}.pt.trace.json.gz"
    if not path.exists():
        pytest.skip(f"no recorded trace at {path}")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    timed = [(e["name"], float(e["dur"])) for e in events if str(e.get("cat")).lower() == "kernel" and "dur" in e]
    frame = pl.DataFrame(timed, schema=["name", "us"], orient="row").group_by("name").sum()
    frame = frame.with_columns(
        pl.col("us") * 100 / pl.col("us").sum(), used=kernels.classify(frame["name"])["tensor_cores"]
    )
    assert frame["used"].null_count() == 0
    assert frame.filter("used")["us"].sum() == pytest.approx(used, abs=0.05)
