from __future__ import annotations

import polars as pl
import pytest

from advisor.inputs.links import without_waits


@pytest.mark.parametrize(
    ("name", "copy", "kind"),
    [
        ("cudaMemcpy", "DtoD", "runtime"),
        ("cudaMemcpy", "DtoH", "sync"),
        ("cudaMemcpy", None, "sync"),
        ("hipMemcpy", "DtoD", "sync"),
        ("cudaMalloc", "DtoD", "allocator"),
    ],
)
def test_a_copy_within_a_device_makes_no_host_wait(name: str, copy: str | None, kind: str):
    """CUDA Runtime API, synchronisation: from device memory to device memory, no host-side synchronization."""
    was = kind if kind != "runtime" else "sync"
    host = pl.DataFrame({"id": [0, 1], "kind": ["sync", was], "name": ["cudaStreamSynchronize", name]})
    device = pl.DataFrame({"launch": [1, None], "copy_kind": [copy, "DtoD"]}, schema_overrides={"copy_kind": pl.String})
    assert without_waits(host, device)["kind"].to_list() == ["sync", kind]
