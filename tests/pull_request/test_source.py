"""Lines of the checkout, told from call stacks."""

import pytest

from advisor.model.comparison import FindingChange, SideFinding
from advisor.pull_request.source import annotated, pointers, pointers_of_changes
from tests.render_samples import THIRTY_TWO_BIT, changed


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "repo"
    (root / "pkg").mkdir(parents=True)
    (root / "train.py").write_text("a\n" * 60)
    (root / "pkg" / "model.py").write_text("a\n" * 60)
    (tmp_path / "secret.py").write_text("a\n" * 60)
    return root


def spots(root, *stacks):
    where = tuple(changed(THIRTY_TWO_BIT.where[0], stack=stack) for stack in stacks)
    return [(a.path, a.line) for a in annotated(pointers([changed(THIRTY_TWO_BIT, where=where)]), root)]


@pytest.mark.parametrize(
    ("stack", "found"),
    [
        ("torch/nn/functional.py(3): linear;pkg/model.py(12): forward;train.py(5): <module>", ("pkg/model.py", 12)),
        ("/home/me/job/pkg/model.py(12): forward", ("pkg/model.py", 12)),
        ("C:\\job\\pkg\\model.py(12): forward", ("pkg/model.py", 12)),
        ("train.py(5): <module>", ("train.py", 5)),
        ("/opt/else/train.py(5): <module>", None),  # some other train.py
        ("/venv/site-packages/pkg/model.py(12): forward", None),
        ("../secret.py(1): <module>", None),
        ("pkg/model.py(62): beyond the end", None),
        ("pkg/model.py(0): before the start", None),
        ("pkg(1): a folder", None),
        ("<built-in method>", None),
        ("\x00.py(1): x;" + "x" * 5000 + "(1)", None),
        (None, None),
        ("", None),
    ],
)
def test_the_innermost_line_of_the_checkout(checkout, stack, found):
    assert spots(checkout, stack) == ([found] if found else [])


def test_a_line_is_remarked_once_by_each_finding(checkout):
    assert spots(checkout, "train.py(5): a", "train.py(5): b", "train.py(6): c") == [("train.py", 5), ("train.py", 6)]


def test_a_remark_says_what_the_finding_says(checkout):
    place = changed(THIRTY_TWO_BIT.where[0], stack="train.py(5): a")
    (remark,) = annotated(pointers([changed(THIRTY_TWO_BIT, where=(place,))]), checkout)
    assert remark.title == THIRTY_TWO_BIT.title
    assert remark.message.startswith(THIRTY_TWO_BIT.says)
    assert place.name in remark.message


def test_a_script_of_the_checkout_itself_is_found_by_its_whole_path(checkout):
    """Two checkouts side by side: the one that is meant is that of the root."""
    assert spots(checkout, f"{checkout}/train.py(5): <module>") == [("train.py", 5)]
    assert spots(checkout, f"{checkout.parent}/other/train.py(5): <module>") == []


def test_a_comparison_points_at_what_is_new_or_worse(checkout):
    place = changed(THIRTY_TWO_BIT.where[0], stack="train.py(5): a")

    def change(key, status, severity="high"):
        found = SideFinding(severity=severity, saving=None, says=f"{key}.", where=(place,))
        sides = {"base": found, "head": None} if status == "gone" else {"base": None, "head": found}
        return FindingChange(key=key, rule=key, title=key, status=status, **sides)

    changes = [change("a", "new"), change("b", "same"), change("c", "gone"), change("d", "worse", "low")]
    changes.append(change("symptom", "new", None))
    told = [(a.title, a.severity, a.path, a.line) for a in annotated(pointers_of_changes(changes), checkout)]
    assert told == [("a", "high", "train.py", 5), ("d", "low", "train.py", 5)]


def test_a_link_out_of_the_checkout_is_not_followed(checkout):
    (checkout / "out.py").symlink_to(checkout.parent / "secret.py")
    assert spots(checkout, "out.py(1): x") == []
