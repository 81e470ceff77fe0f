"""Of nearly all device time the kernels' classes are known, and of nearly all products the number format."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.selection import select_steps
from advisor.engine import read
from advisor.inputs.names.kernels import PRODUCTS
from tests import profiles
from tests.effort import soak

SHARED = profiles.ROOT.parent / "shared/traces"
KNOWN = 0.98  # of the device time
OWN = {"saxpy-mpi-a100-schema2.9.sqlite", "cloverleaf-a100-schema3.13.sqlite"}  # programs of their own
GRAPHS = {"llm-2.7b-a100-cuda-graph.sqlite"}  # recorded as a whole
NO_GPU = {"no-cuda-activity.sqlite", "no-metadata-table.sqlite", "tpu-inference"}
WITHOUT_FORMAT = {  # neither the kernel's name nor its op tells it: XLA's Triton fusions, a server without shapes
    *("te-attention-mi355", "jax08_attention-mi300", "vllm-decode-cuda-graph"),
}
RECORDINGS = sorted(
    path
    for room in ("kineto", "nsys", "xplane")
    for path in (SHARED / room).glob("*")
    if path.suffix in {"", ".sqlite"} and path.name not in OWN | GRAPHS | NO_GPU
)

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is not there")


@pytest.mark.parametrize("path", soak(RECORDINGS, unless=lambda path: path.name in {"amd-mi250", "bert-small-h100"}))
def test_classes_and_formats_of_kernels_are_known(path: Path):
    rank = min(path.iterdir()) if path.is_dir() else path  # the others run the same kernels
    views = [view for view in select_steps(read(str(rank))).views if view.device is not None]
    if not views:
        pytest.skip(f"no device op in {path.name}")
    rows = pl.concat(view.once(kernels) for view in views)
    total = rows["dur_ns"].sum()
    assert rows.filter(pl.col("family") == "other")["dur_ns"].sum() <= (1 - KNOWN) * total
    is_product = pl.col("family").cast(pl.String).is_in(PRODUCTS) & pl.col("multiplies")
    untyped = rows.filter(is_product, pl.coalesce("element_type", "op_dtype").is_null())
    if path.name not in WITHOUT_FORMAT:
        assert untyped["dur_ns"].sum() <= (1 - KNOWN) * total
