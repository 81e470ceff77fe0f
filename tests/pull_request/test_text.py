"""Markdown that pings nobody, starts nothing, and is cut where that breaks nothing."""

import re

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given
from hypothesis import strategies as st

from advisor.pull_request.comment import defused, fitted
from tests.effort import soak
from tests.render_samples import SAMPLES, SHAPES, drawn

QUICK = {*SHAPES, *(f"hostile-{name}" for name in ("mentions", "actions", "links", "backticks"))}
APART = "\N{ZERO WIDTH SPACE}"


@pytest.mark.parametrize(
    ("text", "calm"),
    [
        ("cc @everyone", f"cc @{APART}everyone"),
        ("fixes #12", f"fixes #{APART}12"),
        ("#12", f"#{APART}12"),
        ("octo/train#12", f"octo/train#{APART}12"),
        ("GH-12", f"GH{APART}-12"),
        ("!12 ~bug %v1 $3 &4", f"!{APART}12 ~{APART}bug %{APART}v1 ${APART}3 &{APART}4"),
        ("/close", f"{APART}/close"),
        ("> - /merge", f"> - {APART}/merge"),
        ("<!-- x -->", f"<!{APART}-- x -->"),
        ("https://github.com/a/b/issues/3 x", f"https://github.com/a/b/{APART}issues/3 x"),
        (
            "[a](<HTTPS://x.y/b/-/merge_requests/3#note_1>)",
            f"[a](<HTTPS://x.y/b/-/{APART}merge_requests/3#{APART}note_1>)",
        ),
        ("# heading\n\n**b** &amp; &#64;x <code>a</code>", "# heading\n\n**b** &amp; &#64;x <code>a</code>"),
        ("[a](<https://x.y/#1>) 5 %, a/b", "[a](<https://x.y/#1>) 5 %, a/b"),
        ("```python\n@compile\n# 1\n```\n@a", f"```python\n@compile\n# 1\n```\n@{APART}a"),
        ("<div>\n```\n@everyone\n```\n</div>", f"<div>\n```\n@{APART}everyone\n```\n</div>"),  # HTML knows no fence
    ],
)
def test_calls_are_broken_and_all_else_stays(text, calm):
    assert defused(text) == calm


@pytest.mark.parametrize("sample", soak(SAMPLES, unless=QUICK.__contains__))
def test_what_the_renderer_draws_needs_no_defusing(sample):
    comment = drawn(SAMPLES[sample], "markdown")
    assert defused(comment) == comment
    assert fitted(comment, 100_000) == comment


def test_it_is_cut_between_blocks():
    blocks = [f"paragraph {number} " + "x" * 80 for number in range(50)]
    cut = fitted("\n\n".join(blocks), 2000)
    kept = cut.split("\n\n")
    assert len(cut) <= 2000
    assert kept[:-1] == blocks[: len(kept) - 1]
    assert "full report" in kept[-1]


def test_a_folded_part_that_is_cut_is_closed():
    cut = fitted("# v\n\n<details><summary>s</summary>\n\n" + "line\n" * 1000 + "\n</details>\n", 1000)
    assert cut.count("<details>") == cut.count("</details>") == 1
    assert len(cut) <= 1000


def test_a_code_block_that_is_cut_is_closed_with_its_own_fence():
    cut = fitted("# v\n\n````text\n```\n" + "line\n" * 1000 + "````\n", 1000)
    assert "\n````\n\nShortened" in cut


def test_a_code_block_in_a_list_is_left_out():
    assert fitted("- a\n\n  ```\n  @x\n", 100) == "- a\n\n"


def test_one_endless_line_is_cut_after_a_word_and_breaks_no_tag():
    cut = fitted("word <code>&#64;x</code> " * 1000, 1000)
    assert re.search(r"(word|</code>)\n\nShortened", cut)


@given(st.text(alphabet="a@#1 \n`~<>/details&;-|*_", max_size=400), st.integers(200, 500))
def test_it_always_fits(text, most):
    assert len(fitted(defused(text), most)) <= most


@given(st.lists(st.sampled_from(["<details>", "</details>", "```", "~~~~", "text", "", "- a", "  ```"]), max_size=30))
def test_what_is_added_behind_stands_outside_of_all_code(lines):
    whole = f"{fitted(chr(10).join(lines), 2000).rstrip()}\n\n*footer*"
    assert "<em>footer</em>" in cmarkgfm.github_flavored_markdown_to_html(whole, Options.CMARK_OPT_UNSAFE)
