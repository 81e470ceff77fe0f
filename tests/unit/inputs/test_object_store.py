"""Profiles in object stores: a real S3 server on the loopback interface, and fsspec's own store in memory."""

from __future__ import annotations

import gzip
import os
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.errors import ReadError
from advisor.inputs import storage as room
from advisor.inputs.discover import discover
from advisor.inputs.storage import local, open_file, size

fsspec = pytest.importorskip("fsspec")

TRACE = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}'
PACKED = gzip.compress(TRACE)
BLOCK_BYTES = 64 << 10


class Store:
    """One bucket of a local S3 server."""

    def __init__(self, server: str) -> None:
        self.server, self.bucket = server, f"bucket-{uuid.uuid4().hex}"
        self.files = fsspec.filesystem("s3")
        self.files.mkdir(self.bucket)

    def put(self, key: str, content: bytes = PACKED) -> str:
        self.files.pipe(f"{self.bucket}/{key}", content)
        return self.url(key)

    def url(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def refuse_unknown_keys(self, *, after_requests: float) -> None:
        """All keys are unknown to the server."""
        order = urllib.request.Request(  # noqa: S310 - the server of this test
            f"{self.server}/moto-api/reset-auth", str(after_requests).encode(), {"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(order).close()  # noqa: S310 - the same


@pytest.fixture
def store(s3: str) -> Iterator[Store]:
    store = Store(s3)
    yield store
    store.refuse_unknown_keys(after_requests=float("inf"))


@pytest.mark.soak
@pytest.mark.network_server
def test_two_workers_in_a_bucket(store: Store):
    files = tuple(store.put(f"job/rank{rank}.pt.trace.json.gz") for rank in (2, 10))
    (run,), rejected = discover([store.url("job/")])
    assert (run.name, run.path, run.format, run.files) == ("job", store.url("job"), "kineto", files)
    assert rejected == []
    for file in run.files:
        assert size(file) == len(PACKED)
        with open_file(file) as stream:
            assert gzip.decompress(stream.read()) == TRACE


@pytest.mark.network_server
def test_a_bucket_of_runs(store: Store):
    store.put("mon/run/w0.1623143089861.pt.trace.json", TRACE)
    store.put("mon/run/w0.1623143099861.pt.trace.json", TRACE)
    store.put("tue/run/rank0.json", TRACE)
    store.put("tue/run/rank1.json", b"")
    store.put("tue/run/rank2.pt.trace.json", b"")
    store.put("tue/.hidden/rank0.json", TRACE)
    store.put("package.json", b"{}")
    found, rejected = discover([f"s3://{store.bucket}"])
    assert [run.name for run in found] == ["mon/run", "run#2", "tue/run"]
    assert [len(run.files) for run in found] == [1, 1, 1]
    assert [(r.path, r.why.partition(":")[0]) for r in rejected] == [
        (store.url(f"tue/run/{name}"), "empty") for name in ("rank1.json", "rank2.pt.trace.json")
    ]


@pytest.mark.network_server
def test_one_object(store: Store):
    url = store.put("job/mine.txt")
    (run,), rejected = discover([url])
    assert (run.name, run.path, run.files, rejected) == ("mine", url, (url,), [])


@pytest.mark.network_server
def test_an_earlier_look_is_not_remembered(store: Store):
    rank0, rank1 = store.put("job/rank0.json"), store.url("job/rank1.json")
    assert discover([store.url("job")])[0][0].files == (rank0,)
    fsspec.filesystem("s3", skip_instance_cache=True).pipe(rank1, PACKED)
    assert discover([rank1])[0][0].files == (rank1,)
    assert discover([store.url("job")])[0][0].files == (rank0, rank1)


@pytest.mark.network_server
@pytest.mark.parametrize("length", [1, 3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 7])
def test_long_objects_come_back_whole(store: Store, monkeypatch: pytest.MonkeyPatch, length: int):
    monkeypatch.setattr(room, "_BLOCK_BYTES", BLOCK_BYTES)
    content = os.urandom(length)
    with open_file(store.put("long", content)) as stream:
        pieces = list(iter(lambda: stream.read(50_000), b""))
    assert b"".join(pieces) == content


@pytest.mark.network_server
def test_an_object_that_vanishes_while_it_is_read(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "_BLOCK_BYTES", BLOCK_BYTES)
    with open_file(store.put("long", bytes(9 * BLOCK_BYTES))) as stream:
        stream.read(10)
        store.files.rm(f"{store.bucket}/long")
        with pytest.raises(ReadError, match=r"^s3://.*/long: no such file"):
            stream.read()


@pytest.mark.network_server
def test_a_bucket_or_prefix_that_does_not_exist(store: Store):
    for url in ("s3://no-such-bucket-here", "s3://no-such-bucket-here/logs", store.url("no/such/prefix")):
        with pytest.raises(ReadError, match=f"^{url}: no such file, folder or bucket; check the path"):
            discover([url])
        with pytest.raises(ReadError, match=f"^{url}: "):
            open_file(url)
        assert size(url) is None


@pytest.mark.network_server
def test_refused_access(store: Store):
    url = store.put("job/rank0.json")
    store.refuse_unknown_keys(after_requests=0)
    for place in (f"s3://{store.bucket}", store.url("job"), url):
        with pytest.raises(ReadError, match=f"^{place}: .*; check its permissions or your credentials"):
            discover([place])
    with pytest.raises(ReadError, match="check its permissions or your credentials"):
        open_file(url)


@pytest.mark.network_server
def test_no_credentials(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    type(store.files).clear_instance_cache()  # a new client looks for credentials anew
    with pytest.raises(ReadError, match=r"Unable to locate credentials; check the path and the access to it"):
        discover([store.url("job")])
    type(store.files).clear_instance_cache()


# ---------------------------------------------------------------------------------------------- memory


@pytest.fixture
def memory() -> Iterator[str]:
    name = uuid.uuid4().hex
    files = fsspec.filesystem("memory")
    for rank in (10, 9):
        files.pipe(f"/{name}/job/rank{rank}.pt.trace.json.gz", PACKED)
    yield f"memory://{name}"
    files.rm(f"/{name}", recursive=True)


def test_a_folder_in_memory(memory: str):
    (run,), rejected = discover([memory])
    assert run.name == "job"
    assert run.files == tuple(f"{memory}/job/rank{rank}.pt.trace.json.gz" for rank in (9, 10))
    assert rejected == []
    assert discover(["memory://"])[0][0].name == "job"
    with open_file(run.files[0]) as stream:
        assert stream.read() == PACKED
    assert size(run.files[0]) == len(PACKED)


def test_a_file_in_memory(memory: str):
    url = f"{memory}/job/rank9.pt.trace.json.gz"
    (run,), _ = discover([url])
    assert (run.name, run.path, run.files) == ("rank9", url, (url,))


def test_a_file_in_memory_is_copied_to_be_read_from_disk(memory: str):
    with local(f"{memory}/job/rank9.pt.trace.json.gz") as path:
        assert path.name == "rank9.pt.trace.json.gz"
        assert path.read_bytes() == PACKED
    assert not path.exists()


def test_a_folder_in_memory_is_copied_to_be_read_from_disk(memory: str):
    with local(f"{memory}/job") as path:
        assert sorted(file.name for file in path.iterdir()) == ["rank10.pt.trace.json.gz", "rank9.pt.trace.json.gz"]
    assert not path.exists()


def test_what_lies_on_disk_is_not_copied(tmp_path: Path):
    with local(str(tmp_path)) as path:
        assert path == tmp_path


def test_nothing_in_memory(memory: str):
    with pytest.raises(ReadError, match="no such file, folder or bucket"):
        discover([f"{memory}/nothing"])


def test_a_run_at_the_root_of_a_store():
    fsspec.filesystem("memory").pipe("/rank0.json", PACKED)
    try:
        (run,), _ = discover(["memory://"])
    finally:
        fsspec.filesystem("memory").rm("/rank0.json")
    assert (run.name, run.path, run.files) == ("memory://", "memory://", ("memory:///rank0.json",))
