from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

import advisor

ROOT = Path(__file__).parents[1]
SHIPPED = sorted(path for room in ("rules", "reports") for path in (ROOT / room).rglob("*") if path.is_file())
HEAVY = {"altair", "fsspec", "jinja2", "msgspec", "numpy", "polars", "pydantic"}
UNFINISHED = re.compile(rb"\b(?:TODO|FIXME|XXX)\b")
SOMEBODYS_MACHINE = re.compile(rb"/(?:root|work)/\w")


def output_of(*arguments: str, cwd: Path = ROOT, **variables: str) -> str:
    command, environment = [sys.executable, *arguments], os.environ | variables
    done = subprocess.run(command, cwd=cwd, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZipFile]:
    folder = tmp_path_factory.mktemp("dist")
    output_of("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (made,) = folder.glob("*.whl")
    with ZipFile(made) as opened:
        yield opened


def repository_files() -> list[Path]:
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git does not list the files here: {error}")
    paths = (ROOT / name for name in listed.split("\0") if name)
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def test_the_wheel_ships_every_rule_and_template(wheel: ZipFile):
    assert SHIPPED
    assert {f"advisor/_data/{path.relative_to(ROOT).as_posix()}" for path in SHIPPED} <= set(wheel.namelist())


def test_the_wheel_ships_nothing_but_the_package(wheel: ZipFile):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"advisor", f"gpu_advisor-{advisor.__version__}.dist-info"}
    assert "advisor/py.typed" in wheel.namelist()


def test_an_installed_wheel_finds_its_own_rules(wheel: ZipFile, tmp_path: Path):
    site = tmp_path / "site"
    wheel.extractall(site)
    code = "from advisor.resources import rules_folder as f; print(f()); print(*(p.name for p in f().glob('*.yaml')))"
    folder, names = output_of("-c", code, cwd=tmp_path, PYTHONPATH=str(site)).splitlines()
    assert Path(folder).is_relative_to(site)
    assert sorted(names.split()) == sorted(path.name for path in (ROOT / "rules").glob("*.yaml"))
    assert "cases" in output_of("-m", "advisor", "rules", "test", cwd=tmp_path, PYTHONPATH=str(site))


def test_the_version_is_written_the_same_twice():
    assert advisor.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_a_check_imports_nothing_of_what_compares():
    code = "import sys, advisor.engine; print(*sys.modules)"
    assert not {"advisor.comparing", "advisor.model.comparison", "scipy"} & set(output_of("-c", code).split())


def test_the_command_line_imports_no_data_frames():
    code = "import sys, advisor.cli; print(*sys.modules)"
    assert not HEAVY & set(output_of("-c", code).split())


def test_no_file_holds_unfinished_work():
    texts = [path for path in repository_files() if path.suffix != ".png"]  # packed pixels spell anything
    assert [path for path in texts if UNFINISHED.search(content(path))] == []


def test_no_file_names_a_path_of_somebodys_machine():
    assert [path for path in repository_files() if SOMEBODYS_MACHINE.search(content(path))] == []


def test_binary_files_are_fixtures_or_pictures():
    rooms = [ROOT / "fixtures", ROOT / "docs/img"]
    elsewhere = [path for path in repository_files() if not any(path.is_relative_to(room) for room in rooms)]
    assert [path for path in elsewhere if b"\0" in path.read_bytes()] == []


def test_continuous_integration_can_be_started():
    assert os.access(ROOT / ".ci/run", os.X_OK)
