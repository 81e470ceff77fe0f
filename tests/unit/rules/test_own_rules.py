"""`advisor rules new` and `advisor rules try`, as somebody uses them who writes a rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.model.finding import Value
from advisor.present.reference import distinct
from advisor.vocabulary.parts import POOLS
from tests.command import advisor
from tests.effort import every

pytestmark = pytest.mark.usefixtures("measured_once")

ROOT = Path(__file__).parents[3]
FIXTURE = str(ROOT / "fixtures/torch-cpu-none")
ANSWERS = ("--title", "Products take long", "--why", "They do.", "--fix", "Multiply: `less`.", "--limit", "0.01 %")


def new(folder: Path, *words: str, name: str = "products"):
    return advisor("rules", "new", name, *ANSWERS, *words, cwd=folder)


@pytest.fixture
def rule(tmp_path: Path) -> Path:
    assert new(tmp_path, "--kind", "ops", "--names", "^aten::addmm$").returncode == 0
    return tmp_path / "our-rules/products.yaml"


def test_a_new_rule_passes_its_cases_and_fires(rule: Path, tmp_path: Path):
    assert "1 rule, 3 cases: all right" in advisor("rules", "test", "our-rules", cwd=tmp_path).stdout
    done = advisor("rules", "try", str(rule), FIXTURE, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0] == "torch-cpu-none, 10 steps of 46 ms: fires, severity low, confidence medium"
    assert "  slow_count          10" in lines
    assert any(re.fullmatch(r"  slow_share > most  0\.053\d* % > 0\.01 %: yes", line) for line in lines)
    assert "  Fixing this saves 37 µs per step, 0.1 % of it at most." in lines
    assert "  Fix: Multiply: `less`." in lines


@pytest.mark.parametrize("kind", every(2, ["calls", "frames", "ranges", "kernels", "copies"]))
@pytest.mark.parametrize("change", ["without", "faster", "overlapped", "nothing"])
def test_every_kind_and_change_gives_a_rule_that_holds(tmp_path: Path, kind: str, change: str):
    done = new(tmp_path, "--kind", kind, "--names", "HtoD" if kind == "copies" else "a.*", "--change", change)
    if change == "overlapped" and kind not in {"kernels", "copies"}:
        assert done.stderr.startswith(f"advisor: --change overlapped: it is of kernels and copies, not of {kind}")
        assert not (tmp_path / "our-rules").exists()
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "--names: give it, because nobody can be asked; Which names?"),
        (("--names", "a", "--kind", "op"), "--kind op: give one of ops, kernels, "),
        (
            ("--names", "(?=a)"),
            "our-rules/products.yaml:3: measure.slow.kernels: '(?=a)' is no regular expression of Rust",
        ),
        (("--names", "a", "--limit", "much"), "our-rules/products.yaml:5: params.most"),
    ],
)
def test_an_answer_that_makes_no_rule_leaves_no_file(tmp_path: Path, words: tuple[str, ...], why: str):
    done = new(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"advisor: {why}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "our-rules").exists()


@pytest.mark.parametrize("name", ["../products", "{there}/products"])
def test_a_rule_is_written_into_its_folder_alone(tmp_path: Path, name: str):
    done = new(tmp_path, "--names", "a", name=name.format(there=tmp_path))
    assert (done.returncode, "an ID is words with hyphens" in done.stderr) == (2, True)
    assert not [*tmp_path.parent.glob("products.yaml"), *tmp_path.glob("**/*.yaml")]


def test_a_rule_that_is_there_stays(rule: Path, tmp_path: Path):
    before = rule.read_text()
    done = new(tmp_path, "--kind", "ops", "--names", "other")
    assert (done.returncode, done.stderr) == (
        2,
        "advisor: our-rules/products.yaml: is there already; choose another ID or --folder\n",
    )
    assert rule.read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("most: 0.01 %", "most: 90 %", "does not fire"),
        (
            "params:",
            "applies: {device: true, framework: [jax]}\nparams:",
            "does not apply here; it needs framework: [jax] and device: true",
        ),
        (
            'ops: "^aten',
            'frames: "^aten',
            (
                "could not tell: slow_share: no Python calls were recorded (`with_stack=True` records Python's calls "
                "in recent PyTorch)"
            ),
        ),
    ],
)
def test_why_a_rule_does_not_fire(rule: Path, old: str, new: str, line: str):
    assert old in rule.read_text()
    rule.write_text(rule.read_text().replace(old, new))
    done = advisor("rules", "try", str(rule), FIXTURE, cwd=ROOT)
    assert done.stdout.splitlines()[0].partition(": ")[2] == line


def test_a_saving_out_of_a_part_that_the_step_does_not_have_says_so(rule: Path):
    text = rule.read_text().replace("of: compute  ", "of: memcpy").replace(", host_ops, host_work]", "]")
    rule.write_text(text)
    done = advisor("rules", "try", str(rule), FIXTURE, cwd=ROOT)
    assert "  The rule claims 37 µs, but the part `memcpy` of the step has no more." in done.stdout.splitlines()


def test_the_page_on_rules_names_every_part_that_a_saving_comes_out_of():
    page = (ROOT / "docs/writing-a-rule.md").read_text("utf-8")
    _, _, parts = page.partition("`of` is one of the separate parts of a step:")
    assert set(POOLS) <= set(re.findall(r"`(\w+)`", parts.partition("All findings")[0]))


@pytest.mark.parametrize(
    ("values", "unit", "texts"),
    [
        ([0.000761, 0.0005], "share", ["0.0761 %", "0.05 %"]),
        ([0.09001, 0.09], "share", ["9.001 %", "9 %"]),
        ([0.05, 0.05], "share", ["5 %", "5 %"]),
        ([0.5204, 0.52], "ms", ["0.5204 ms", "0.52 ms"]),
        ([None, 0.05], "share", ["could not tell", "5 %"]),
        (["gc", "gc"], "text", ["gc", "gc"]),
    ],
)
def test_numbers_that_compare_differently_read_differently(values: list[Value], unit: str, texts: list[str]):
    assert distinct(values, unit) == texts
