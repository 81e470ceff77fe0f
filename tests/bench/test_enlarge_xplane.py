from __future__ import annotations

import runpy
from pathlib import Path

import polars as pl
import pytest

from advisor.model.profile import Profile
from tests.strategies_xplane import JAX, read

enlarge = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/enlarge_xplane.py"))["enlarge"]


@pytest.fixture(scope="module")
def enlarged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Profile, Profile]:
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "short.xplane.pb").write_bytes(JAX)
    enlarge(folder / "short.xplane.pb", folder / "long.xplane.pb", 6 * len(JAX))
    return read(JAX), read((folder / "long.xplane.pb").read_bytes())


def test_every_copy_holds_everything_again_later(enlarged: tuple[Profile, Profile]):
    short, long = enlarged
    copies = long.host_ops.height // short.host_ops.height
    assert copies > 2
    for table in ("host_ops", "device_ops"):
        one, many = getattr(short, table), getattr(long, table)
        assert many.height == copies * one.height
        assert many["dur_ns"].sum() == copies * one["dur_ns"].sum()
    assert long.steps.height == copies * short.steps.height
    starts = long.steps.filter(pl.col("device").eq_missing(long.steps["device"][0]))["start_ns"]
    assert starts.is_sorted()
    assert starts.n_unique() == len(starts)


def test_links_stay_inside_a_copy(enlarged: tuple[Profile, Profile]):
    short, long = enlarged
    linked = long.device_ops.filter(pl.col("launch").is_not_null())
    assert linked.height * short.device_ops.height == long.device_ops.height * short.device_ops["launch"].count()
    called = long.host_ops["start_ns"].gather(linked["launch"])
    assert (linked["start_ns"] - called).is_between(0, 10**9).all()
