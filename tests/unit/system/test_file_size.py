"""What a file may be at most: worked out from the memory there is, and held to while it is read."""

from __future__ import annotations

import gzip
import io
import os
import resource
from pathlib import Path
from zipfile import ZipFile

import polars as pl
import pytest

from advisor.engine import check
from advisor.errors import NoRuns, ReadError, UsageError
from advisor.inputs import storage
from advisor.inputs.chrome_json import trace
from advisor.inputs.readers import Reading, kineto, nsys, xplane
from advisor.inputs.storage import listing, local
from advisor.options import Options
from advisor.system import file_size
from tests.strategies_kineto import LAUNCH, text
from tests.strategies_nsys import FULL, write, write_parquet
from tests.strategies_xplane import HOST, JAX, event, field, line, plane


@pytest.mark.parametrize(
    ("said", "expected"), [("500M", 500 << 20), ("12G", 12 << 30), ("1.5 GiB", 3 << 29), ("7", 7), ("2kb", 2048)]
)
def test_sizes_are_powers_of_1024(said: str, expected: int):
    assert file_size.size_of("--max-size", said) == expected


@pytest.mark.parametrize("said", ["", "0", "-1", "G", "1e3", "nan", "1 X", "9" * 5_000])
def test_what_is_no_size_is_refused(said: str):
    with pytest.raises(UsageError, match=r"--max-size .*not a size; write it as 500M or 12G"):
        file_size.size_of("--max-size", said)


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/job/step\n", {"job/step/memory.max": "max\n", "job/memory.max": "2000\n", "memory.max": "9000\n"}, 2000),
        ("0::/\n", {"memory.max": "3000\n"}, 3000),
        (
            "5:cpu:/x\n4:memory:/docker/a\n",
            {"memory/memory.limit_in_bytes": str(2**63 - 4096), "memory/docker/a/memory.limit_in_bytes": "4000"},
            4000,
        ),
        ("4:memory:/outside/of/the/container\n", {"memory/memory.limit_in_bytes": "5000"}, 5000),
    ],
)
def test_control_groups_limit_the_memory(
    groups: str, files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, content in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(content)
    (tmp_path / "own").write_text(groups)
    monkeypatch.setattr(file_size, "_CGROUPS", tmp_path / "fs")
    monkeypatch.setattr(file_size, "_OWN_CGROUPS", tmp_path / "own")
    assert file_size.usable_memory() == expected
    assert file_size.most_bytes(2.0) == int(0.7 * expected / 2)


def test_control_groups_are_read_once(monkeypatch: pytest.MonkeyPatch):
    file_size.usable_memory()
    monkeypatch.setattr(Path, "read_text", None)
    assert file_size.usable_memory() > 0


def test_a_limit_of_the_process_counts_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1000 if kind == resource.RLIMIT_AS else -1, -1))
    assert file_size.usable_memory() == 1000


def test_the_default_limit_is_what_fits_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.json"
    path.write_bytes(text(*LAUNCH))
    monkeypatch.setattr(file_size, "usable_memory", lambda: 1000)
    with pytest.raises(NoRuns, match=r"a\.json: larger than .* unpacked, .* with --max-size"):
        check([str(path)])
    assert check([str(path)], Options(max_bytes=1 << 20)).runs


def test_a_file_may_unpack_to_64_times_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert file_size.most_bytes(1.0, 1) == 10**9
    assert file_size.most_bytes(1e-6, 10**8) == 64 * 10**8
    assert file_size.most_bytes(1.0) == file_size.most_bytes(1.0, 1 << 60)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(text(*LAUNCH[:1], *LAUNCH[:1] * 10_000, *LAUNCH)))
    monkeypatch.setattr(file_size, "_LEAST", 0)
    with pytest.raises(NoRuns, match=r"a\.json\.gz: larger than .* unpacked, .* with --max-size"):
        check([str(path)])
    assert check([str(path)], Options(max_bytes=1 << 30)).runs


def test_a_gzip_bomb_ends_at_the_limit():
    bomb = gzip.compress(
        b'{"traceEvents": [' + b'{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1},\n' * 1_000_000, 1
    )
    assert len(bomb) < 1 << 20
    with pytest.raises(ReadError, match=r"^a: larger than 16 MiB unpacked"):
        kineto.read(io.BytesIO(bomb), "a", Reading(max_bytes=16 << 20))


@pytest.mark.parametrize("form", ["database", "Parquet", "XPlane"])
def test_every_format_keeps_to_the_limit(form: str, tmp_path: Path):
    if form == "XPlane":
        with pytest.raises(ReadError, match=r"^a: larger than"):
            xplane.read(io.BytesIO(JAX), "a", Reading(max_bytes=len(JAX) - 1))
        assert xplane.read(io.BytesIO(JAX), "a", Reading(max_bytes=len(JAX))).host_ops.height
        return
    path = write(tmp_path / "a.sqlite", FULL) if form == "database" else write_parquet(tmp_path / "a_pqtdir", FULL)
    if form != "database":
        kernels = path / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
        pl.select(start=pl.repeat(1, 2_000_000), end=pl.repeat(2, 2_000_000)).write_parquet(kernels)
        assert kernels.stat().st_size < 1 << 20
    with pytest.raises(ReadError, match=r"^a: larger than" if form == "database" else "^a: takes 3.4 GB of memory"):
        nsys.read(path, "a", Reading(max_bytes=1000, memory=1 << 30))


def test_a_file_may_take_memory_by_its_size_unless_the_user_allows_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """128 bytes for each as stored, 1 GB at least, and 7 of the 10 GB that are there at most."""
    monkeypatch.setattr(file_size, "usable_memory", lambda: 10_000_000_000)
    sizes = {"small": 1_000, "a.gz": 1_000, "usual": 20_000_000, "large": 90_000_000, "folder/a.parquet": 20_000_000}
    for name, size in sizes.items():
        (path := tmp_path / name).parent.mkdir(exist_ok=True)
        path.touch()
        os.truncate(path, size)
    may = [
        file_size.memory_for(str(tmp_path / name), None) / 1e9 for name in ("small", "a.gz", "usual", "large", "folder")
    ]
    assert may == [1.0, 7.0, 2.56, 7.0, 2.56]
    assert file_size.memory_for(str(tmp_path / "small"), 3 << 30) == 3 << 30


@pytest.mark.parametrize(("plane_name", "each"), [(HOST, 500), ("/device:GPU:0", 1_600)])
def test_bare_events_of_xplane_are_counted_before_they_become_tables(plane_name: str, each: int):
    memory = 170_000_000 + 1000 * each
    ops = [event("a", 10 * at) for at in range(1001)]
    space = field(1, plane(plane_name, line(*ops[:500]), line(*ops[500:1000], id=7)))
    assert xplane.read(io.BytesIO(space), "a", Reading(memory=memory))
    with pytest.raises(ReadError, match=r"^a: takes 0\.17 GB of memory, over the 0\.17 GB for .*--max-size$"):
        xplane.read(io.BytesIO(field(1, plane(plane_name, line(*ops)))), "a", Reading(memory=memory))


def test_a_check_keeps_a_small_file_to_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (path := tmp_path / "a.xplane.pb").write_bytes(JAX)
    monkeypatch.setattr(file_size, "_LEAST", 170_000_000)
    with pytest.raises(NoRuns, match=r"takes 0\.17 GB of memory"):
        check([str(path)])
    assert check([str(path)], Options(max_bytes=1 << 30)).runs


def test_events_of_xplane_without_an_offset_are_left_out_and_counted():
    bare = field(3, field(2, "python") + field(4, field(1, 1)) * 1000)
    whole, more = (xplane.read(io.BytesIO(JAX + other), "a") for other in (b"", field(1, field(2, HOST) + bare)))
    assert more.host_ops.height == whole.host_ops.height
    assert "1,000 events without a valid start" in " ".join(note.words for note in more.salvaged)


@pytest.mark.parametrize(
    ("endless", "says"),
    [
        (b'{"ph":"X","name":"' + b"x" * (9 << 20), "over 4 MiB of one text"),
        (b" " * (9 << 20), "over 4 MiB of one text or of nothing"),
        (b'"aaaaaaaa",' * (2 << 20), "16 MiB on end are no trace events"),
        (b"{}," * (4 << 20), "1 million values are no trace events"),
        (b"[" * (9 << 20), "over 4 MiB of one text"),
    ],
    ids=["a string", "white space", "no events", "empty events", "nesting"],
)
def test_text_that_never_becomes_events_ends_in_a_line(endless: bytes, says: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trace, "_MOST_UNDECODED_BYTES", 16 << 20)  # a sixteenth, for the sake of time
    monkeypatch.setattr(trace, "_LONGEST_STRING_BYTES", 4 << 20)
    if endless.startswith(b"{"):
        monkeypatch.setattr(trace, "_MOST_UNDECODED_VALUES", 1 << 20)
    begin = b'{"traceEvents": [' + b'{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1},'
    with pytest.raises(ReadError, match=rf"^a: .*{says}.*; copy or record the profile again$"):
        kineto.read(io.BytesIO(begin + endless), "a")


def test_millions_of_empty_planes_lines_and_events_change_nothing():
    events = field(3, field(2, "python") + b"\x22\x00" * 100_000)
    empty = b"\x0a\x00" * 100_000 + field(1, field(2, HOST) + b"\x1a\x00" * 100_000 + events)
    assert (
        xplane.read(io.BytesIO(JAX + empty), "a").host_ops.height == xplane.read(io.BytesIO(JAX), "a").host_ops.height
    )


def test_commas_and_letters_are_no_events():
    with pytest.raises(ReadError, match=r"^a: "):
        kineto.read(io.BytesIO(b'{"traceEvents": [' + b",N-I" * 500_000), "a")


def test_a_copy_of_a_store_stays_in_its_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(storage, "listing", lambda url: ([f"{url}/../../out.json"], []))
    with pytest.raises(ReadError, match="its path leads out of the folder"), local("memory://logs"):
        pass


def test_paths_of_an_archive_lead_nowhere_out_of_it(tmp_path: Path):
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("../out.json", "in/../../out.json", "run/rank0.json"):
            archive.writestr(name, b"{}")
    url = f"zip://::{tmp_path}/a.zip"
    found = listing(url)
    assert found is not None
    assert all(".." not in file for file in found[0])


def test_why_a_file_cannot_be_read_is_said_without_secrets(tmp_path: Path):
    event = '{"ph": "X", "cat": "token=abcdef12345678", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
    (path := tmp_path / "rank0.pt.trace.json").write_text(f'{{"schemaVersion": 1, "traceEvents": [{event}]}}')
    with pytest.raises(NoRuns, match=r"a Chrome trace of another tool .*token=xxxxxxxxxxxxxx"):
        check([str(path)])
