from __future__ import annotations

import ast
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
LONGEST = 500  # lines of a module
HEAVY = {"fsspec", "jinja2", "msgspec", "numpy", "polars", "pydantic"}
UNFINISHED = re.compile(rb"\b(?:TODO|FIXME|XXX)\b")
SOMEBODYS_MACHINE = re.compile(rb"/(?:root|work)/\w")
NO_NOUN = re.compile(
    "found|told|untold|one|mine|whole|left|seen|asked|made|drawn|named|given|taken|kept|held|said|wanted|marked|lost|"
    "shown|lens|lanes?|alive|uneven|instruments|feeding|forge|sticky|situation",
    re.IGNORECASE,
)
ADJECTIVES = frozenset({"one", "whole", "left"})  # in front of a noun they do no harm: `one_line`, `left_out`


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
    code = "from advisor.system.resources import rules_folder as f; print(f()); print(*(p.name for p in f().glob('*')))"
    folder, names = output_of("-c", code, cwd=tmp_path, PYTHONPATH=str(site)).splitlines()
    assert Path(folder).is_relative_to(site)
    assert sorted(names.split()) == sorted(path.name for path in (ROOT / "rules").glob("*.yaml"))
    assert "input-bound" in output_of("-m", "advisor", "rules", "list", cwd=tmp_path, PYTHONPATH=str(site))


def test_the_version_is_written_the_same_twice():
    assert advisor.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_a_check_imports_nothing_of_what_compares():
    code = "import sys, advisor.engine; print(*sys.modules)"
    assert not {"advisor.comparing", "advisor.model.comparison", "scipy"} & set(output_of("-c", code).split())


def test_the_command_line_imports_no_data_frames():
    code = "import sys, advisor.cli; print(*sys.modules)"
    assert not HEAVY & set(output_of("-c", code).split())


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that the code binds, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def is_no_noun(name: str) -> bool:
    """Whether a name is one of the words, or a compound that begins or ends with one: `_told`, `found_jobs`."""
    words = re.findall(r"[a-z0-9]+|[A-Z0-9]+(?![a-z])|[A-Z][a-z0-9]*", name)
    judged = words[-1:] if words and words[0].lower() in ADJECTIVES else [*words[:1], *words[-1:]]
    return any(map(NO_NOUN.fullmatch, judged))


def stored_fields(tree: ast.AST) -> set[int]:
    """Lines of the fields of classes."""
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {item.lineno for each in classes for item in each.body if isinstance(item, ast.AnnAssign)}


def test_a_compound_is_judged_by_its_first_and_last_word():
    assert all(map(is_no_noun, ("found", "_told", "told_by", "found_jobs", "_FOUND", "NothingFound", "mine", "by_one")))
    assert not any(map(is_no_noun, ("foundation", "_", "one_line", "left_out", "LeftOutStep", "unmarked", "rank")))


def test_names_are_nouns_and_verbs_of_the_field():
    problems = []
    for path in sorted((ROOT / "advisor").rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        fields = stored_fields(tree) if path.parent.name == "model" else set()  # JSON has them
        names = ((name, line) for name, line in bound_names(tree) if line not in fields)
        problems += [f"{place}:{line} {name}" for name, line in names if is_no_noun(name)]
    assert problems == []


def test_no_module_is_too_long_to_read():
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in (ROOT / "advisor").rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}


def test_no_file_holds_unfinished_work():
    texts = [path for path in repository_files() if path.suffix != ".png"]  # packed pixels spell anything
    assert [path for path in texts if UNFINISHED.search(content(path))] == []


def test_no_file_names_a_path_of_somebodys_machine():
    assert [path for path in repository_files() if SOMEBODYS_MACHINE.search(content(path))] == []


def test_binary_files_are_fixtures_or_pictures():
    rooms = [ROOT / "fixtures", ROOT / "docs/img"]
    elsewhere = [path for path in repository_files() if not any(path.is_relative_to(room) for room in rooms)]
    assert [path for path in elsewhere if b"\0" in path.read_bytes()] == []


def test_what_a_merge_leaves_behind_is_no_file_of_the_project():
    assert [path for path in repository_files() if path.suffix in {".orig", ".rej", ".bak"}] == []


def test_continuous_integration_can_be_started():
    assert os.access(ROOT / ".ci/run", os.X_OK)
