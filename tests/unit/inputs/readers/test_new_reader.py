"""A format that has a module and an entry in `FORMATS`, and nothing else, goes through a whole check."""

import json
import subprocess
import sys

READER = """
import polars as pl
from dataclasses import replace
from advisor.model.clause import Missing
from advisor.model.profile import Profile

MS = 1_000_000


def read(path, name, how):
    worker = how.worker
    busy = int(path.read_text().split()[1])
    steps, device, host = [], [], []
    for n in range(12):
        at = 100 * n * MS
        of = {"worker": worker, "device": 0, "step": n, "start_ns": at, "dur_ns": 100 * MS}
        steps.append(of | {"host_start_ns": at, "host_dur_ns": 100 * MS, "mark_ns": 100 * MS})
        call = {"worker": worker, "thread": 1, "step": n}
        wait, launch = {"start_ns": at, "dur_ns": (95 - busy) * MS}, {"start_ns": at + (96 - busy) * MS, "dur_ns": MS}
        host += [
            call | wait | {"id": 2 * n, "kind": "input", "name": "next batch"},
            call | launch | {"id": 2 * n + 1, "kind": "runtime", "name": "launch"},
        ]
        kernel = {"worker": worker, "device": 0, "id": n, "stream": 1, "kind": "kernel", "name": "gemm", "step": n}
        device.append(kernel | {"launch": 2 * n + 1, "start_ns": at + (97 - busy) * MS, "dur_ns": busy * MS})
    workers = [{"worker": worker, "name": path.stem, "file": name, "rank": worker, "framework": "pytorch"}]
    devices = [{"worker": worker, "device": 0, "name": "Pixie 1"}]
    rows = {"workers": workers, "devices": devices, "steps": steps, "device_ops": device, "host_ops": host}
    tables = {name: pl.DataFrame(of) for name, of in rows.items()}
    return replace(Profile.of(tables, format="pixie"), lacks={"allocations": Missing("Pixie sees no memory")})
"""
CHECK = """
import json, sys
from advisor.inputs import readers

readers.__path__.append(sys.argv[1])
readers.FORMATS += (
    readers.Format("pixie", "a Pixie profile", (".pixie",), reads="Pixie profiles (*.pixie)", needs_path=True,
                   openings=(b"pixie",), folder_per_run=True, file_per_host=True),
)
import advisor
from advisor.errors import AdvisorError
from advisor.render.registry import Request, draw

report = advisor.check(sys.argv[2])
drawn = {form: draw(Request(report), form).decode() for form in ("terminal", "markdown", "html", "json")}
compared = advisor.compare(sys.argv[2], sys.argv[2])
try:
    advisor.check(sys.argv[3])
except AdvisorError as error:
    print(json.dumps({**drawn, "verdict": compared.verdict, "error": str(error)}))
"""


def test_a_module_and_an_entry_are_enough(tmp_path):
    package, job = tmp_path / "readers", tmp_path / "job"
    empty = tmp_path / "empty"
    for folder in (package, job, empty):
        folder.mkdir()
    (package / "pixie.py").write_text(READER)
    for host in ("a", "b"):
        (job / f"{host}.pixie").write_text("pixie 40")
    command = [sys.executable, "-c", CHECK, str(package), str(job), str(empty)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    (run,) = json.loads(out["json"])["runs"]
    assert (run["source"]["format"], run["source"]["steps"]["used"]) == ("pixie", 12)
    assert run["metrics"]["run"][0]["device_busy_share"] == 0.4
    assert run["findings"][0]["rule"] == "input-bound"
    assert "Pixie sees no memory" in out["terminal"]
    assert "2 hosts" in out["terminal"]  # as the entry has it
    assert "Pixie 1" in out["markdown"]
    assert "Pixie 1" in out["html"]
    assert out["verdict"] == "same"
    assert "Pixie profiles (*.pixie)" in out["error"]
